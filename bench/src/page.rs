//! The web page: how much of it goes over the wire, and how soon a browser shows the first list.
//!
//! The sessions are sleeping agents as in [`crate::daemon`]. Node drives Chromium (`web/bench`), in turn on the
//! page and on the least page that could show the same list. Where either is missing, that is a note.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::daemon::{Agents, Daemon};
use crate::measure::{Run, Series};
use crate::report::{Report, Row};
use crate::rig::Rig;

/// All that the page may weigh, compressed, and what of it is loaded before a terminal is opened.
const WEIGHT_KB: f64 = 150.0;
const FIRST_KB: f64 = 60.0;

/// Checks, then measures. `false` if the browser did not show the list.
pub fn run(rig: &Rig, quick: bool, report: &mut Report) -> io::Result<bool> {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../web");
    let dist = web.join("dist");
    if !dist.join("index.html").is_file() || !web.join("node_modules").is_dir() {
        report.note("the page is not built (make web): not measured");
        return Ok(true);
    }
    weigh(&dist, report)?;
    let home = rig.fresh("page-home")?;
    let job = rig.lariat(&home, &rig.fresh("page-cache")?)?;
    let agents = Agents::start(rig, &home, 50)?;
    let daemon = Daemon::start(job.clone(), &["--http", "0"])?;
    let rounds = if quick { 5 } else { 11 };
    let told = Command::new("node")
        .arg(web.join("bench/first-list.mjs"))
        .arg(&rig.lariat)
        .arg(rounds.to_string())
        .env_clear()
        .envs(job.env.iter().map(|(name, value)| (name, value)))
        .output();
    drop((daemon, agents));
    let told = match told {
        Ok(told) if told.status.success() => told,
        Ok(told) => return Err(io::Error::other(String::from_utf8_lossy(&told.stderr).into_owned())),
        Err(error) => {
            report.note(format!("node: {error}: time to the first list was not measured"));
            return Ok(true);
        }
    };
    let told: Value = serde_json::from_slice(&told.stdout).map_err(io::Error::other)?;
    let right = told["sessions"] == 50 && told["rows"].as_u64().is_some_and(|n| n > 10);
    report.note(format!("page: {} sessions, {} rows drawn at first", told["sessions"], told["rows"]));
    let series = |side: &str| {
        let mut series = Series::default();
        let times = told[side].as_array().into_iter().flatten().filter_map(Value::as_f64);
        times.for_each(|ms| series.push(Run { ms, rss_kb: 0 }));
        series
    };
    report.rows.push(Row::times("page, to the first list", &series("ours"), "least page", &series("floor"), None));
    Ok(right)
}

/// Adds up what lies compressed in `web/dist`. What the terminal needs has a file of its own.
fn weigh(dist: &Path, report: &mut Report) -> io::Result<()> {
    let (mut all, mut first) = (0, 0);
    for folder in [dist.to_owned(), dist.join("assets")] {
        for path in fs::read_dir(folder)?.map(|e| e.map(|e| e.path())).collect::<io::Result<Vec<PathBuf>>>()? {
            if path.extension().is_some_and(|e| e == "gz") {
                let size = path.metadata()?.len();
                all += size;
                let later = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("glass-"));
                first += if later { 0 } else { size };
            }
        }
    }
    report.rows.push(Row::ceiling("page, compressed, all", "kB", all as f64 / 1000.0, WEIGHT_KB));
    report.rows.push(Row::ceiling("page, compressed, to the list", "kB", first as f64 / 1000.0, FIRST_KB));
    Ok(())
}
