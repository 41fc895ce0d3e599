//! Row 3: an exit is told right, or not at all.
//!
//! First agents that end with nobody attached: every code and signal must be told. Then agents
//! whose shim, and at times whose keeper, is killed around the exit, at a random moment or at a
//! named point: what is told must be right, and nothing may look like a success. (Every agent here
//! ends with a failure, in the middle of a turn.)
//!
//! The control takes a missing record for a success.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use lariat_shim::record::{self, Exit};
use rustix::process::Signal;
use serde_json::Value;

use crate::chance::Chance;
use crate::ground::{Ground, Session, is_alive, lives, signal, wait_for, wait_until};
use crate::tally::Tally;

// Not those that Rust's runtime handles itself.
const SIGNALS: [i32; 4] = [6, 9, 10, 15];
const POINTS: [&str; 6] = ["shim.told", "shim.ended", "shim.drained", "shim.exited", "shim.announced", "put.renamed"];
/// How many sessions one listing is asked about.
const BATCH: u64 = 500;

/// How an agent shall end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Code(i32),
    Signal(i32),
}

impl End {
    fn chosen(chance: &mut Chance) -> End {
        match chance.below(4) {
            0 => End::Signal(*chance.pick(&SIGNALS)),
            _ => End::Code(i32::try_from(1 + chance.below(254)).unwrap_or(1)),
        }
    }

    fn word(self, after: u64) -> String {
        match self {
            End::Code(n) => format!("exit {n} {after}"),
            End::Signal(n) => format!("signal {n} {after}"),
        }
    }

    fn is(self, exit: &Exit) -> bool {
        match self {
            End::Code(n) => (exit.code, exit.signal) == (Some(n), None),
            End::Signal(n) => (exit.code, exit.signal) == (None, Some(n)),
        }
    }

    fn json(self) -> Value {
        match self {
            End::Code(n) => serde_json::json!({"code": n}),
            End::Signal(n) => serde_json::json!({"signal": n}),
        }
    }
}

/// Runs the row.
pub fn run(ground: &Ground, count: u64, chance: &mut Chance, tally: &mut Tally) -> io::Result<()> {
    let mut left = count / 2;
    while left > 0 {
        let batch = left.min(BATCH);
        alone(ground, batch, chance, tally)?;
        left -= batch;
    }
    let mut left = count / 2;
    while left > 0 {
        let batch = left.min(BATCH);
        struck(ground, batch, chance, tally)?;
        left -= batch;
    }
    Ok(())
}

fn alone(ground: &Ground, count: u64, chance: &mut Chance, tally: &mut Tally) -> io::Result<()> {
    let mut ended: Vec<(Session, End)> = Vec::new();
    for round in 0..count {
        let end = if round % 10 == 0 { End::Code(0) } else { End::chosen(chance) };
        let session = ground.start(&end.word(chance.below(3000)), round % 2 == 0, &[])?;
        ended.push((session, end));
    }
    for (session, end) in &ended {
        let exit = wait_for(&format!("the record of {end:?} of {}", session.handle), || {
            record::read::<Exit>(&session.folder, record::EXIT).ok().flatten()
        })?;
        tally.try_one("an exit with nobody attached");
        tally.hold(end.is(&exit), || format!("{end:?} was recorded as {exit:?}"));
    }
    let rows: HashMap<String, Value> = rows(ground)?;
    for (session, end) in &ended {
        let row = rows.get(&session.id).cloned().unwrap_or_default();
        tally.hold(row["exit"] == end.json(), || format!("{end:?} is told as {row}"));
    }
    ended.iter().for_each(|(session, _)| ground.forget(session));
    Ok(())
}

fn rows(ground: &Ground) -> io::Result<HashMap<String, Value>> {
    let sessions = ground.list()?.into_iter();
    Ok(sessions.map(|s| (s["native_id"].as_str().unwrap_or_default().to_owned(), s)).collect())
}

fn struck(ground: &Ground, count: u64, chance: &mut Chance, tally: &mut Tally) -> io::Result<()> {
    let mut ended: Vec<(Session, End, bool)> = Vec::new();
    for round in 0..count {
        let end = End::chosen(chance);
        let headless = chance.below(2) == 0;
        let point = (round % 3 == 0).then(|| *chance.pick(&POINTS));
        let env = point.map(|p| ("LARIAT_DIE_AT", p));
        let word = end.word(2000 + chance.below(4000));
        let session = match ground.start(&word, headless, env.as_slice()) {
            Ok(session) => session,
            // It died before it had anything to hold: nothing is told of it, and nothing lives.
            Err(_) if point.is_some() => continue,
            Err(e) => return Err(e),
        };
        // It dies in the middle of a turn, which has to be on record for that.
        wait_until("its turn to be on record", || ground.has_turn(&session) || !is_alive(&session.shim.agent))?;
        let keeper = session.shim.keeper.as_ref();
        let mut both = false;
        if round % 4 == 1 && point.is_none() {
            // Before the exit, and with the keeper held still: nobody is left to witness it.
            both = true;
            keeper.map(|k| signal(k, Signal::STOP));
            signal(&session.shim.shim, Signal::KILL);
            keeper.map(|k| signal(k, Signal::KILL));
        } else if point.is_none() {
            std::thread::sleep(chance.moment(Duration::from_millis(9)));
            signal(&session.shim.shim, Signal::KILL);
            both = chance.below(3) == 0;
            if let Some(keeper) = keeper.filter(|_| both) {
                std::thread::sleep(chance.moment(Duration::from_millis(2)));
                signal(keeper, Signal::KILL);
            }
        }
        ended.push((session, end, both));
    }
    for (session, ..) in &ended {
        let holders = || [Some(&session.shim.shim), session.shim.keeper.as_ref()].into_iter().flatten();
        wait_until("the agent to end", || !is_alive(&session.shim.agent))?;
        wait_until("its holders to go", || holders().all(|p| !lives(p.pid)))?;
    }
    let rows = rows(ground)?;
    for (session, end, both) in &ended {
        let exit = record::read::<Exit>(&session.folder, record::EXIT).map_err(io::Error::other)?;
        let row = rows.get(&session.id).cloned().unwrap_or_default();
        tally.try_one("an exit with its shim killed around it");
        let hung_up = |e: &Exit| e.signal == Some(1) && *both;
        let unknown = |e: &Exit| e.code.is_none() && e.signal.is_none();
        let right = exit.as_ref().is_none_or(|e| end.is(e) || hung_up(e) || unknown(e));
        tally.hold(right, || format!("{end:?} was recorded as {exit:?}"));
        let status = row["status"].as_str().unwrap_or("absent");
        let told = matches!(status, "failed" | "interrupted" | "unknown");
        tally.hold(told || !ground.has_turn(session), || {
            format!("{end:?}, in the middle of a turn, is told as {status}: {row}")
        });
        tally.hold(row["exit"]["code"] != 0, || format!("{end:?} is told as a success: {row}"));
        tally.control("take a missing record for a success", exit.as_ref().is_none_or(unknown));
    }
    ended.iter().for_each(|(session, ..)| ground.forget(session));
    Ok(())
}
