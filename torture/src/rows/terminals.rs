//! Row 4: an agent outlives those who hold it.
//!
//! Shims of terminal agents are killed: the agent goes on by its keeper, and the next shim shows
//! the same terminal. Shims and keepers of agents without a terminal are killed: the agent goes on.
//! Both holders of a terminal killed: the agent is hung up on, and is never told to be alive.
//!
//! The control is that last case: with one holder less, agents are lost.

use std::io;

use lariat_shim::client::{Client, Event};
use lariat_shim::record::{self, Launch, Shim};
use lariat_shim::wire::{Attach, Size};
use rustix::process::Signal;

use crate::chance::Chance;
use crate::ground::{Ground, Session, is_alive, signal, wait_for, wait_until};
use crate::tally::Tally;

/// How many live at once.
const CROWD: usize = 8;

/// Runs the row.
pub fn run(ground: &Ground, count: u64, chance: &mut Chance, tally: &mut Tally) -> io::Result<()> {
    let crowd: Vec<Session> = (0..CROWD).map(|_| ground.start("echo", false, &[])).collect::<Result<_, _>>()?;
    for round in 0..count {
        let session = chance.pick(&crowd);
        let shim = held(session)?;
        signal(&shim.shim, Signal::KILL);
        wait_until("the shim to be gone", || !is_alive(&shim.shim))?;
        tally.try_one("a terminal agent whose shim was killed");
        tally.hold(is_alive(&shim.agent), || format!("round {round}: the agent died with its shim"));
        // By hand, or by whatever verb acts next.
        if round % 8 == 0 {
            ground.ask(&["kill", "no-such-session"])?;
        } else {
            let said = ground.shim(&session.handle, "--take-over", "", &[])?;
            tally.hold(said == "started", || format!("round {round}: no other took over: {said}"));
        }
        let now = held(session)?;
        tally.hold(is_alive(&now.shim) && now.agent == shim.agent, || format!("round {round}: nobody holds it"));
        let answer = talk(session, &format!("round{round}"));
        tally.hold(answer.is_ok(), || format!("round {round}: the terminal is not the same: {answer:?}"));
        if round % 16 == 0 {
            keeper_killed(session, tally)?;
        }
    }
    for _ in 0..(count / 20).max(2) {
        without_terminal(ground, tally)?;
        both(ground, tally)?;
    }
    Ok(())
}

fn held(session: &Session) -> io::Result<Shim> {
    record::read(&session.folder, record::SHIM).map_err(io::Error::other)?.ok_or(io::ErrorKind::NotFound.into())
}

/// Types a line and waits for its answer.
fn talk(session: &Session, line: &str) -> io::Result<()> {
    let launch: Launch =
        record::read(&session.folder, record::LAUNCH).map_err(io::Error::other)?.ok_or(io::ErrorKind::NotFound)?;
    let mut client = Client::connect(&launch.socket).map_err(io::Error::other)?;
    client.attach(Attach { size: Size { rows: 24, cols: 80 }, watch: false, tail: 0 })?;
    client.input(format!("{line}\n").as_bytes())?;
    let wanted = format!("got {line}");
    let mut seen = Vec::new();
    loop {
        match client.next().map_err(io::Error::other)? {
            Event::Output(bytes) => seen.extend_from_slice(bytes),
            other => return Err(io::Error::other(format!("{other:?} after {:?}", String::from_utf8_lossy(&seen)))),
        }
        if seen.windows(wanted.len()).any(|w| w == wanted.as_bytes()) {
            return Ok(());
        }
    }
}

fn keeper_killed(session: &Session, tally: &mut Tally) -> io::Result<()> {
    let before = held(session)?;
    let Some(keeper) = before.keeper else { return Ok(()) };
    signal(&keeper, Signal::KILL);
    let another = || held(session).ok().and_then(|s| s.keeper).filter(|k| *k != keeper);
    let found = wait_for("another keeper", another);
    tally.try_one("a keeper that was killed");
    tally.hold(found.is_ok() && is_alive(&before.agent), || "no other keeper, or no agent".into());
    Ok(())
}

fn kill_both(shim: &Shim) -> io::Result<()> {
    if let Some(keeper) = &shim.keeper {
        signal(keeper, Signal::STOP); // lest it acts on the other's death
        signal(&shim.shim, Signal::KILL);
        signal(keeper, Signal::KILL);
        wait_until("the keeper to be gone", || !is_alive(keeper))?;
    }
    wait_until("the shim to be gone", || !is_alive(&shim.shim))
}

fn without_terminal(ground: &Ground, tally: &mut Tally) -> io::Result<()> {
    let session = ground.start("sit", true, &[])?;
    kill_both(&session.shim)?;
    tally.try_one("an agent without a terminal whose shim and keeper were killed");
    tally.hold(is_alive(&session.shim.agent), || "it died with them".into());
    let (_, told) = ground.told(&["status", &session.id, "--json"])?;
    tally.hold(told["live"] == true, || format!("it lives and is told as {told}"));
    let (code, told) = ground.told(&["kill", &session.id, "--json"])?;
    tally.hold(code == 0 && !is_alive(&session.shim.agent), || format!("it could not be ended: {told}"));
    ground.forget(&session);
    Ok(())
}

fn both(ground: &Ground, tally: &mut Tally) -> io::Result<()> {
    let session = ground.start("echo", false, &[])?;
    // One that has recorded nothing was at nothing.
    wait_until("its turn to be on record", || ground.has_turn(&session))?;
    kill_both(&session.shim)?;
    let lost = wait_until("the agent to be hung up on", || !is_alive(&session.shim.agent)).is_ok();
    tally.control("a terminal with one holder, killed", lost);
    let (_, told) = ground.told(&["status", &session.id, "--json"])?;
    tally.try_one("a terminal agent that lost both holders");
    let word = told["status"].as_str().unwrap_or_default();
    let honest = told["live"] == false && matches!(word, "interrupted" | "failed" | "unknown");
    tally.hold(honest, || format!("it is gone and told as {told}"));
    ground.forget(&session);
    Ok(())
}
