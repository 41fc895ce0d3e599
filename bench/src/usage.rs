//! Tokens and cost over every byte, beside ccusage: the same store, both without a network.
//!
//! First the totals must be the same to the token. Then every byte is read, with nothing known from
//! before; and then one file in a hundred has grown by an answer since the last time: in a store beside it
//! that has links to the others, and copies of those that grow.

use std::cell::Cell;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::corpus::{Expected, Manifest};
use crate::measure::{self, Job, Side};
use crate::report::{Report, Row};
use crate::rig::{Rig, empty};

/// ccusage takes seconds: fewer rounds than where milliseconds are compared.
const ROUNDS: usize = 3;
const AGAIN: usize = 5;
/// One in so many files grows.
const GROWN: usize = 100;
/// At least so many times as fast, with at most such a part of the memory, and so many times as fast
/// where little has changed.
const FASTER: f64 = 6.0;
const SMALLER: f64 = 20.0;
const FASTER_AGAIN: f64 = 200.0;

/// Checks, then measures. `false` if the totals differ.
pub fn run(rig: &Rig, home: &Path, manifest: &Manifest, report: &mut Report) -> io::Result<bool> {
    let Some(program) = ccusage(rig)? else {
        report.note("ccusage is not there (`make agents`, or name it in CCUSAGE): hold 3 is not measured");
        return Ok(true);
    };
    let sessions: Vec<&Expected> = manifest.sessions.iter().filter(|s| s.path.starts_with(".claude")).collect();
    let beside = rig.fresh("usage-home")?;
    link(home, &beside, &sessions)?;
    let (cache, cold_cache) = (rig.fresh("usage-cache")?, rig.fresh("usage-cold-cache")?);
    let right = same(rig, &program, &beside, &cache, report, "totals of both")?;
    grow(&beside, &sessions, 0)?;
    if !(right & same(rig, &program, &beside, &cache, report, "totals of both, after some files grew")?) {
        return Ok(false);
    }
    let sides = [
        Side { job: ours(rig, home, &cold_cache)?, before: Box::new(|| empty(&cold_cache)) },
        Side::new(theirs(rig, &program, home)?),
    ];
    let [cold, theirs_cold] = measure::rounds(&rig.meter, rig.rounds.min(ROUNDS), &sides)?;
    let round = Cell::new(1);
    let sides = [
        Side {
            job: ours(rig, &beside, &cache)?,
            before: Box::new(|| grow(&beside, &sessions, round.replace(round.get() + 1))),
        },
        Side::new(theirs(rig, &program, &beside)?),
    ];
    let [again, theirs_again] = measure::rounds(&rig.meter, rig.rounds.min(AGAIN), &sides)?;
    report.note(format!(
        "usage: {:.1} times as fast as ccusage over every byte (hold {FASTER}), 1/{:.1} of its memory (hold 1/{SMALLER}), \
         {:.0} times as fast once 1 file in {GROWN} grew (hold {FASTER_AGAIN})",
        theirs_cold.median() / cold.median(),
        theirs_cold.peak_mb() / cold.peak_mb(),
        theirs_again.median() / again.median(),
    ));
    report.rows.push(Row::times("usage, every byte", &cold, "ccusage", &theirs_cold, Some(1.0 / FASTER)));
    report.rows.push(Row {
        name: "peak memory of that".into(),
        unit: "MB",
        ours: [cold.peak_mb(); 2],
        limit_name: "ccusage",
        limit: [theirs_cold.peak_mb(); 2],
        hold: Some(1.0 / SMALLER),
    });
    let name = format!("usage, 1% of {} files grew", sessions.len());
    report.rows.push(Row::times(&name, &again, "ccusage", &theirs_again, Some(1.0 / FASTER_AGAIN)));
    Ok(true)
}

/// The program itself, not the script that starts it, as one that may be run.
fn ccusage(rig: &Rig) -> io::Result<Option<PathBuf>> {
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let native = format!("../agents/node_modules/@ccusage/ccusage-linux-{machine}/bin/ccusage");
    let native =
        std::env::var_os("CCUSAGE").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(native), PathBuf::from);
    if !native.is_file() {
        return Ok(None);
    }
    let copy = rig.dir.join("limits/ccusage");
    fs::copy(native, &copy)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    Ok(Some(copy))
}

/// Both count Claude's store only: of others ccusage knows other rules.
fn ours(rig: &Rig, home: &Path, cache: &Path) -> io::Result<Job> {
    let none = rig.dir.join("run/own/tmp");
    Ok(rig.lariat(home, cache)?.env("CODEX_HOME", none).args(["usage", "--json"]))
}

fn theirs(rig: &Rig, program: &Path, home: &Path) -> io::Result<Job> {
    let own = rig.dir.join("run/own/tmp");
    let job = Job::new(program).args(["claude", "daily", "--offline", "--json", "--timezone", "UTC"]);
    Ok(job.env("HOME", own).env("CLAUDE_CONFIG_DIR", home.join(".claude")).env("TZ", "UTC"))
}

fn same(rig: &Rig, program: &Path, home: &Path, cache: &Path, report: &mut Report, what: &str) -> io::Result<bool> {
    let out = rig.dir.join("run/output");
    let told = |job: Job| -> io::Result<Value> {
        rig.meter.run(&job, &out)?;
        Ok(serde_json::from_slice(&fs::read(&out)?)?)
    };
    let ours = told(ours(rig, home, cache)?)?["total"]["tokens"].take();
    let theirs = told(theirs(rig, program, home)?)?["totals"].take();
    let keys = [
        ("input", "inputTokens"),
        ("output", "outputTokens"),
        ("cache_read", "cacheReadTokens"),
        ("cache_write", "cacheCreationTokens"),
    ];
    let right = keys.iter().all(|(our, their)| ours[*our].is_u64() && ours[*our] == theirs[*their]);
    let verdict = if right { "the same".to_owned() } else { format!("DIFFERENT: {ours} and {theirs}") };
    report.note(format!("{what}: {verdict}"));
    Ok(right)
}

/// Those that grow, by their numbers.
fn grown<'a>(sessions: &'a [&Expected]) -> impl Iterator<Item = (usize, &'a &'a Expected)> {
    sessions.iter().enumerate().step_by(GROWN)
}

/// The same store once more: links to what stays, copies of what grows.
fn link(home: &Path, beside: &Path, sessions: &[&Expected]) -> io::Result<()> {
    for session in sessions {
        let (from, to) = (home.join(&session.path), beside.join(&session.path));
        fs::create_dir_all(to.parent().unwrap_or(beside))?;
        fs::hard_link(from, to)?;
    }
    for (_, session) in grown(sessions) {
        let to = beside.join(&session.path);
        fs::remove_file(&to)?;
        fs::copy(home.join(&session.path), to)?;
    }
    Ok(())
}

/// One more answer in every hundredth transcript.
fn grow(home: &Path, sessions: &[&Expected], round: usize) -> io::Result<()> {
    for (at, session) in grown(sessions) {
        let line = json!({"type": "assistant", "sessionId": session.id, "version": "2.1.325", "cwd": session.cwd,
            "uuid": format!("grown-{at}-{round}"), "timestamp": "2026-11-15T01:00:00.000Z",
            "requestId": format!("req_grown_{at}_{round}"),
            "message": {"id": format!("msg_grown_{at}_{round}"), "type": "message", "role": "assistant", "content": [],
                "model": "claude-sonnet-4-5-20250929",
                "usage": {"input_tokens": 3, "output_tokens": 5 + at, "cache_read_input_tokens": 7,
                    "cache_creation_input_tokens": 11}}});
        let mut file = OpenOptions::new().read(true).append(true).open(home.join(&session.path))?;
        let mut last = [0];
        file.read_exact_at(&mut last, file.metadata()?.len().saturating_sub(1))?;
        if last == *b"\n" {
            file.write_all(format!("{line}\n").as_bytes())?; // what was cut off in a line stays so
        }
    }
    Ok(())
}
