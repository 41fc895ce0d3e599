//! Listing with all adapters at work: the corpus, and Pi and OpenCode beside it; and with one of them standing
//! still.
//!
//! The limits read the same files as lariat does, without OpenCode's database: what lariat reads of that is
//! its own cost. A gateway that takes connections and never says a word must cost no more than the deadline,
//! and hide nothing of the others.

use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::answer::{self, Verdict};
use crate::corpus::{self, Expected, Manifest, others};
use crate::list;
use crate::measure::{self, Job, Side};
use crate::report::{Report, Row};
use crate::rig::{Rig, empty};

/// A twentieth of Claude's sessions, each.
const SHARE: usize = 20;
/// The most that an adapter may stand still, in milliseconds.
const DEADLINE: f64 = 1_000.0;

/// Checks, then measures. `false` if an answer was wrong.
pub fn run(rig: &Rig, home: &Path, manifest: &Manifest, report: &mut Report) -> io::Result<bool> {
    let (share, seed) = (manifest.params.claude / SHARE, manifest.params.seed);
    let dir = rig.dir.join(format!("others-{share}"));
    let others = others::ensure(&dir, seed, share, share)?;
    let all: Vec<Expected> = manifest.sessions.iter().chain(&others.sessions).cloned().collect();
    let ours = |cache: &Path| -> io::Result<Job> {
        let job = rig.lariat(home, cache)?.env("PI_CODING_AGENT_DIR", others::pi(&dir));
        Ok(job.env("XDG_DATA_HOME", others::data(&dir)).args(["ls", "-a", "--json"]))
    };
    let (cache, cold_cache) = (rig.fresh("mixed-cache")?, rig.fresh("mixed-cold-cache")?);
    let warm = ours(&cache)?;
    let mut right = true;
    for name in ["empty cache", "warm cache"] {
        let verdict = list::check(rig, &warm, &all)?;
        right &= verdict.right();
        report.note(format!("answer, all adapters, {name}: {verdict}"));
    }
    if !right {
        return Ok(false);
    }
    let mut roots = corpus::roots(home).to_vec();
    roots.push(others::pi(&dir).join("sessions"));
    let walk = Job::new(&rig.limits.walk).arg("stat").args(roots.iter().cloned());
    let headtail = Job::new(&rig.this).args(["limit-headtail", "2"]).args(roots.iter().cloned());
    let sides = [
        Side { job: ours(&cold_cache)?, before: Box::new(|| empty(&cold_cache)) },
        Side::new(headtail),
        Side::new(warm.clone()),
        Side::new(walk),
    ];
    let [uncached, headtail, cached, stat] = measure::rounds(&rig.meter, rig.rounds, &sides)?;
    let what = |how: &str| format!("ls -a of {}, all adapters, {how}", all.len());
    report.rows.push(Row::times(&what("no cache"), &uncached, "headtail, 2 threads", &headtail, Some(2.0)));
    report.rows.push(Row::times(&what("warm cache"), &cached, "C statx walk", &stat, Some(2.0)));
    hanging(rig, warm, &all, cached.median(), report)
}

/// The same beside a gateway that hangs.
fn hanging(rig: &Rig, job: Job, all: &[Expected], plain: f64, report: &mut Report) -> io::Result<bool> {
    // The kernel takes the connections, and nobody ever reads them.
    let gateway = TcpListener::bind("127.0.0.1:0")?;
    let config = rig.fresh("hanging-config")?;
    std::fs::create_dir_all(config.join("lariat"))?;
    let url = format!("[[gateway]]\nurl = \"ws://{}\"\n", gateway.local_addr()?);
    std::fs::write(config.join("lariat/config.toml"), url)?;
    let deadline = format!("{DEADLINE}ms");
    let job = job.env("XDG_CONFIG_HOME", config).args(["--deadline", deadline.as_str()]);
    let mut took = Vec::new();
    for _ in 0..rig.rounds.min(3) {
        let began = Instant::now();
        let mut command = Command::new(&job.program);
        let ran =
            command.args(&job.args).env_clear().envs(job.env.iter().map(|(name, value)| (name, value))).output()?;
        took.push(began.elapsed().as_secs_f64() * 1e3);
        let verdict = beside(&ran.stdout, all);
        if !verdict.right() || ran.status.code() != Some(5) {
            report.note(format!("answer, one adapter hangs: {verdict} (exit {:?})", ran.status.code()));
            return Ok(false);
        }
    }
    report.note(format!("answer, one adapter hangs: right: {} sessions, and one warning of it", all.len()));
    took.sort_by(f64::total_cmp);
    report.rows.push(Row {
        name: "ls -a, one adapter hangs".into(),
        unit: "ms",
        ours: [took[0], took[took.len() / 2]],
        limit_name: "its deadline, and ls -a",
        limit: [DEADLINE + plain; 2],
        hold: Some(1.0),
    });
    Ok(true)
}

/// Holds a listing against the manifest in which exactly one warning is due, that of the gateway.
fn beside(output: &[u8], all: &[Expected]) -> Verdict {
    let mut listing: Value = match serde_json::from_slice(output) {
        Ok(listing) => listing,
        Err(_) => return answer::check(output, all),
    };
    let warnings = listing["warnings"].take();
    let due = warnings.as_array().is_some_and(|w| w.len() == 1 && w[0]["adapter"] == "openclaw");
    listing["warnings"] = Value::Array(Vec::new());
    let mut verdict = answer::check(listing.to_string().as_bytes(), all);
    if !due {
        verdict.wrong.push(format!("not one warning of the gateway: {warnings}"));
    }
    verdict
}
