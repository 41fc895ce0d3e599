//! Looking at every process, with thousands of them.
//!
//! lariat lists an empty HOME, first with almost no other process, then beside a
//! crowd that sleeps. The difference is what the crowd cost it, and is held
//! against the same difference of a scan in C that reads as much of each process.

use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::list::check;
use crate::measure::{self, Job, Series, Side};
use crate::report::{Report, Row};
use crate::rig::Rig;

const CROWD: usize = 3_000;

/// Checks, then measures. `false` if an answer was wrong.
pub fn run(rig: &Rig, report: &mut Report) -> io::Result<bool> {
    let home = rig.fresh("empty-home")?;
    let cache = rig.fresh("empty-cache")?;
    let ours = rig.lariat(&home, &cache)?.args(["ls", "--json"]);
    let scan = |mode: &str| Job::new(&rig.limits.procscan).arg(mode);
    let sides = [Side::new(ours.clone()), Side::new(scan("full")), Side::new(scan("comm"))];

    let verdict = check(rig, &ours, &[])?;
    report.note(format!("answer, few processes: {verdict}"));
    let mut right = verdict.right();
    let few = measure::rounds(&rig.meter, rig.rounds, &sides)?;

    let crowd = Crowd::gather(rig, CROWD)?;
    let verdict = check(rig, &ours, &[])?;
    report.note(format!("answer, {CROWD} processes: {verdict}"));
    right &= verdict.right();
    if !right {
        return Ok(false);
    }
    let many = measure::rounds(&rig.meter, rig.rounds, &sides)?;
    drop(crowd);

    let cost = |at: usize| difference(&many[at], &few[at]);
    let [ours, full, comm] = [cost(0), cost(1), cost(2)];
    let row = |limit_name, limit, hold| Row {
        name: format!("ls beside {CROWD} more processes"),
        unit: "ms",
        ours,
        limit_name,
        limit,
        hold,
    };
    report.rows.push(row("C, stat+comm+cmdline+cwd", full, Some(1.5)));
    report.rows.push(row("C, comm only", comm, None));
    Ok(true)
}

fn difference(many: &Series, few: &Series) -> [f64; 2] {
    [many.min() - few.min(), many.median() - few.median()]
}

/// Processes that sleep until this is dropped.
struct Crowd(Child);

impl Crowd {
    fn gather(rig: &Rig, count: usize) -> io::Result<Self> {
        let mut child = Command::new(&rig.limits.crowd)
            .arg(count.to_string())
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let crowd = Self(child);
        if line.trim() == "ready" {
            Ok(crowd)
        } else {
            Err(io::Error::other(format!("{count} processes could not be started: a limit on processes?")))
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // Its stdin closes, which tells it to end its children; then it is reaped.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
