//! What the terminal screen costs while nothing happens.
//!
//! `lariat top` stands in a real tmux, with agents that sleep in its list. Once it
//! has drawn them and come to rest, every clock tick that it uses is one too many.

use std::fs;
use std::io;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::daemon::{Agents, command};
use crate::measure::Job;
use crate::report::{Report, Row};
use crate::rig::{Rig, empty};

const AGENTS: usize = 50;
const REST: Duration = Duration::from_secs(30);
/// Less than one tick is none.
const NONE: f64 = 0.5;
const PATIENCE: Duration = Duration::from_secs(60);

/// Checks, then measures. `false` if the list was wrong.
pub fn run(rig: &Rig, report: &mut Report) -> io::Result<bool> {
    let home = rig.fresh("screen-home")?;
    let place = rig.fresh("tmux")?;
    let job = rig.lariat(&home, &rig.fresh("screen-cache")?)?.env("TMUX_TMPDIR", &place);
    let agents = Agents::start(rig, &home, AGENTS)?;
    let tmux = Tmux(&job);
    let began = Instant::now();
    let lariat = rig.lariat.display().to_string();
    tmux.run(&["-f", "/dev/null", "new-session", "-d", "-x", "200", "-y", "50", &lariat, "top"])?;
    let wanted = format!("{AGENTS} idle");
    let right = loop {
        if tmux.run(&["capture-pane", "-p"])?.contains(&wanted) {
            break true;
        }
        if began.elapsed() > PATIENCE {
            break false;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    report.note(format!(
        "top shows {wanted}: {}, after {:.0} ms",
        if right { "yes" } else { "NO" },
        began.elapsed().as_secs_f64() * 1000.0
    ));
    if right {
        let pid = tmux.run(&["display-message", "-p", "#{pane_pid}"])?;
        let pid = pid.trim();
        // It rests once a while has passed without a tick.
        let mut before = ticks(pid)?;
        loop {
            std::thread::sleep(Duration::from_secs(3));
            let now = ticks(pid)?;
            if std::mem::replace(&mut before, now) == now || began.elapsed() > PATIENCE {
                break;
            }
        }
        let switches = switches(pid)?;
        std::thread::sleep(REST);
        let used = ticks(pid)? - before;
        let woken = self::switches(pid)?.saturating_sub(switches);
        report.note(format!(
            "top at rest: {used} clock ticks and {woken} wakings in {REST:?}, {} resident",
            resident(pid)?
        ));
        report.rows.push(Row::ceiling(&format!("top at rest, {AGENTS} live, 30 s"), "ticks", used as f64, NONE));
    }
    tmux.run(&["kill-server"])?;
    drop(agents);
    empty(&home)?;
    Ok(right)
}

struct Tmux<'a>(&'a Job);

impl Tmux<'_> {
    fn run(&self, args: &[&str]) -> io::Result<String> {
        let lariat = command(self.0);
        let mut tmux = Command::new("tmux");
        tmux.env_clear().envs(lariat.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output =
            tmux.env("TERM", "xterm-256color").args(["-L", "bench"]).args(args).stdin(Stdio::null()).output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(io::Error::other(format!("tmux {args:?}: {}", String::from_utf8_lossy(&output.stderr)))),
        }
    }
}

/// Clock ticks that a process has used, all its threads together.
fn ticks(pid: &str) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    Ok(fields.skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum())
}

/// How often its threads were given the processor.
fn switches(pid: &str) -> io::Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        let counts = status.lines().filter_map(|l| l.split_once("ctxt_switches:")?.1.trim().parse::<u64>().ok());
        sum += counts.sum::<u64>();
    }
    Ok(sum)
}

fn resident(pid: &str) -> io::Result<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or("?").trim().to_owned())
}
