//! Row 7: of many at once one wins.
//!
//! Sixteen shims for one session; sixteen who lock one directory; sixteen launches into one
//! directory, by two names. Exactly one may win. A winner that is killed with -9 leaves nothing in
//! the way of the next.
//!
//! The control is a file that is looked for and then made.

use std::io;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use lariat_shim::record::{self, Shim};
use rustix::process::Signal;

use crate::chance::Chance;
use crate::ground::{Ground, is_alive, lives, signal, wait_until};
use crate::tally::Tally;

/// How many come at once.
const RACERS: usize = 16;

/// Runs the row.
pub fn run(ground: &Ground, count: u64, chance: &mut Chance, tally: &mut Tally) -> io::Result<()> {
    for round in 0..count {
        match round % 3 {
            0 => shims(ground, round, chance, tally)?,
            1 => locks(ground, round, tally)?,
            _ => launches(ground, round, tally)?,
        }
        if round % 3 == 0 {
            tally.control("look for a file, then make it", control(ground, round)? > 1);
        }
    }
    // Chance may favour the wrong way a few times; not for long.
    for round in 0..1000 {
        if tally.controls.iter().any(|(_, lost, _)| *lost > 0) {
            break;
        }
        tally.control("look for a file, then make it", control(ground, count + round)? > 1);
    }
    Ok(())
}

/// Ends the shim of a session; then all want to be the next.
fn shims(ground: &Ground, round: u64, chance: &mut Chance, tally: &mut Tally) -> io::Result<()> {
    let session = ground.start("sit", chance.below(2) == 0, &[])?;
    signal(&session.shim.shim, Signal::KILL);
    wait_until("the shim to be gone", || !is_alive(&session.shim.shim))?;
    let said: Vec<String> = std::thread::scope(|scope| {
        let one = || scope.spawn(|| said_by_one(&session.folder));
        let racing: Vec<_> = (0..RACERS).map(|_| one()).collect();
        racing.into_iter().map(|r| r.join().unwrap_or_default()).collect()
    });
    let won = said.iter().filter(|s| *s == "started").count();
    let held = said.iter().filter(|s| s.contains("another shim holds")).count();
    tally.try_one(&format!("a race of {RACERS} for a session's shim"));
    tally.hold(won == 1 && held == RACERS - 1, || format!("round {round}: {won} won: {said:?}"));
    let now: Option<Shim> = record::read(&session.folder, record::SHIM).map_err(io::Error::other)?;
    tally.hold(now.is_some_and(|s| is_alive(&s.shim)), || format!("round {round}: the winner is not on record"));
    ground.told(&["kill", &session.id, "--json"])?;
    wait_until("all shims to be gone", || ground.processes().iter().all(|p| !p.comm.starts_with("lariat")))?;
    ground.forget(&session);
    Ok(())
}

fn said_by_one(folder: &Path) -> String {
    let mut command = std::process::Command::new("lariat");
    command.args(["__shim", "--take-over"]).arg(folder).stdin(Stdio::null());
    let output = command.output().map(|o| o.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim_end().to_owned()
}

fn race(ground: &Ground, args: impl Fn(usize) -> Vec<String>) -> io::Result<Vec<i32>> {
    let start = |n| {
        let args = args(n);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut command = ground.lariat(&args);
        command.env("TORTURE", "sit").stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    };
    let racing: Vec<Child> = (0..RACERS).map(start).collect::<Result<_, _>>()?;
    racing.into_iter().map(|mut r| r.wait().map(|s| s.code().unwrap_or(-1))).collect()
}

fn locks(ground: &Ground, round: u64, tally: &mut Tally) -> io::Result<()> {
    let place = ground.fresh("locked")?;
    let path = place.display().to_string();
    let codes = race(ground, |n| vec!["lock".into(), path.clone(), "--by".into(), format!("w{n}")])?;
    let won = codes.iter().filter(|c| **c == 0).count();
    let refused = codes.iter().filter(|c| **c == 3).count();
    tally.try_one(&format!("a race of {RACERS} for a directory's lock"));
    tally.hold(won == 1 && refused == RACERS - 1, || format!("round {round}: {codes:?}"));
    let free = ground.ask(&["unlock", &path])?;
    tally.hold(free.status.success(), || format!("round {round}: it could not be freed"));
    Ok(())
}

fn launches(ground: &Ground, round: u64, tally: &mut Tally) -> io::Result<()> {
    let place = ground.fresh("wanted")?;
    let alias = place.with_extension("alias");
    std::os::unix::fs::symlink(&place, &alias)?;
    let names = [place.display().to_string(), alias.display().to_string()];
    let codes = race(ground, |n| vec!["launch".into(), "claude".into(), "--cwd".into(), names[n % 2].clone()])?;
    let won = codes.iter().filter(|c| **c == 0).count();
    let refused = codes.iter().filter(|c| **c == 3).count();
    let live = ground.others();
    tally.try_one(&format!("a race of {RACERS} to launch in one directory"));
    tally.hold(won == 1 && refused == RACERS - 1 && live.len() == 1, || {
        format!("round {round}: {codes:?}, {} agents live", live.len())
    });
    ground.told(&["kill", "--all", "--yes", "--json"])?;
    wait_until("all to be gone", || ground.processes().iter().all(|p| !p.comm.starts_with("lariat")))?;
    tally.hold(live.iter().all(|p| !lives(p.pid)), || format!("round {round}: they could not be ended"));
    for entry in std::fs::read_dir(ground.state.join("sessions"))? {
        let _ = std::fs::remove_dir_all(entry?.path());
    }
    let _ = std::fs::remove_dir_all(ground.home.join(".claude"));
    Ok(())
}

fn control(ground: &Ground, round: u64) -> io::Result<u64> {
    let path = ground.fresh("pidfile")?.join(round.to_string());
    let (barrier, winners) = (Barrier::new(RACERS), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..RACERS {
            scope.spawn(|| {
                barrier.wait();
                if !path.exists() && std::fs::write(&path, std::process::id().to_string()).is_ok() {
                    winners.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    Ok(winners.into_inner())
}
