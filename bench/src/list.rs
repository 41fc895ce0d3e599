//! Listing with no daemon, over thousands of ended sessions.
//!
//! First the answer, from an empty cache and from a warm one; then, with the page
//! cache warm, no cache against reading both ends of every file with two threads,
//! and a warm cache against a statx walk in C.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::answer::{self, Verdict};
use crate::corpus::{self, Expected, Manifest, Params};
use crate::measure::{self, Job, Side};
use crate::report::{Report, Row};
use crate::rig::{Rig, empty};

const PEAK_MB: f64 = 40.0;

/// Makes or finds the corpus and says which.
pub fn corpus(home: &Path, params: &Params, report: &mut Report) -> io::Result<Manifest> {
    let from = Instant::now();
    let (manifest, made) = corpus::ensure(home, params)?;
    let how = if made { format!("generated in {:.1} s", from.elapsed().as_secs_f64()) } else { "reused".to_owned() };
    report.fact(
        "corpus",
        format!(
            "{} Claude + {} Codex sessions, {:.2} GB, {} projects, seed {}, {how}",
            params.claude,
            params.codex,
            manifest.bytes as f64 / 1e9,
            params.projects,
            params.seed
        ),
    );
    Ok(manifest)
}

/// Checks, then measures. `false` if an answer was wrong; nothing is measured then.
pub fn run(rig: &Rig, home: &Path, manifest: &Manifest, report: &mut Report) -> io::Result<bool> {
    let cache = rig.fresh("cache")?;
    let cold_cache = rig.fresh("cold-cache")?;
    let ours = rig.lariat(home, &cache)?;
    let all = ours.clone().args(["ls", "-a", "--json"]);
    let live = ours.args(["ls", "--json"]);
    let roots = corpus::roots(home);
    let walk = |mode: &str| Job::new(&rig.limits.walk).arg(mode).args(roots.iter().cloned());
    let headtail = Job::new(&rig.this).args(["limit-headtail", "2"]).args(roots.iter().cloned());

    let files = format!("files={}", manifest.sessions.len());
    for limit in [walk("stat"), walk("names"), headtail.clone()] {
        let told = output(rig, &limit)?;
        if !told.starts_with(files.as_bytes()) {
            let told = String::from_utf8_lossy(&told).into_owned();
            return Err(io::Error::other(format!("a limit program found {} instead of {files}", told.trim())));
        }
    }

    let checks: [(&str, &Job, &[Expected]); 3] = [
        ("empty cache", &all, &manifest.sessions),
        ("warm cache", &all, &manifest.sessions),
        ("live only", &live, &[]),
    ];
    let mut right = true;
    for (name, job, expected) in checks {
        let verdict = check(rig, job, expected)?;
        right &= verdict.right();
        report.note(format!("answer, {name}: {verdict}"));
    }
    if !right {
        return Ok(false);
    }
    report.note(opens(rig, &all)?);

    let nowhere = rig.fresh("empty-home")?;
    let live_of_nothing = rig.lariat(&nowhere, &rig.fresh("empty-cache")?)?.args(["ls", "--json"]);
    let uncached = rig.lariat(home, &cold_cache)?.args(["ls", "-a", "--json"]);
    let sides = [
        Side { job: uncached, before: Box::new(|| empty(&cold_cache)) },
        Side::new(headtail),
        Side::new(all),
        Side::new(walk("stat")),
        Side::new(live),
        Side::new(live_of_nothing),
    ];
    let [uncached, headtail, cached, stat, live, nothing] = measure::rounds(&rig.meter, rig.rounds, &sides)?;
    let rows = [
        Row::times("ls -a, no cache", &uncached, "headtail, 2 threads", &headtail, Some(2.0)),
        Row::times("ls -a, warm cache", &cached, "C statx walk", &stat, Some(2.0)),
        Row::times("ls (live only), warm cache", &live, "C statx walk", &stat, None),
        Row::times("ls (live only), warm cache", &live, "ls in an empty HOME", &nothing, None),
        Row::ceiling("peak memory, no cache", "MB", uncached.peak_mb(), PEAK_MB),
        Row::ceiling("peak memory, warm cache", "MB", cached.peak_mb(), PEAK_MB),
    ];
    report.rows.extend(rows);
    Ok(true)
}

fn output(rig: &Rig, job: &Job) -> io::Result<Vec<u8>> {
    let out = rig.dir.join("run").join("output");
    rig.meter.run(job, &out)?;
    fs::read(out)
}

/// A run that fails is a wrong answer too.
pub fn check(rig: &Rig, job: &Job, expected: &[Expected]) -> io::Result<Verdict> {
    match output(rig, job) {
        Ok(output) => Ok(answer::check(&output, expected)),
        Err(error) if error.kind() == io::ErrorKind::Other => {
            Ok(Verdict { wrong: vec![error.to_string()], ..Verdict::default() })
        }
        Err(error) => Err(error),
    }
}

/// Counts the transcripts that a listing opens although nothing changed: it should be none.
fn opens(rig: &Rig, job: &Job) -> io::Result<String> {
    let trace = rig.dir.join("run").join("strace");
    let ran = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=open,openat,openat2", "-o"])
        .arg(&trace)
        .arg(&job.program)
        .args(&job.args)
        .env_clear()
        .envs(job.env.iter().map(|(name, value)| (name, value)))
        .output();
    match ran {
        Ok(ran) if ran.status.success() => {
            let text = fs::read_to_string(&trace)?;
            // Prompt histories and name indexes are no transcripts.
            let others = ["history.jsonl\"", "session_index.jsonl\""];
            let opened = text
                .lines()
                .filter(|line| line.contains(".jsonl\"") && !others.iter().any(|other| line.contains(other)))
                .count();
            let verdict = if opened == 0 { "holds" } else { "MISSED" };
            Ok(format!("transcripts opened when nothing changed: {opened} (hold 0: {verdict})"))
        }
        Ok(ran) => {
            let said = String::from_utf8_lossy(&ran.stderr).into_owned();
            Ok(format!("transcripts opened when nothing changed: not measured, strace failed: {}", said.trim()))
        }
        Err(error) => Ok(format!("transcripts opened when nothing changed: not measured, no strace ({error})")),
    }
}
