//! Row 2: of a tree that was ended nothing is left.
//!
//! Every tree has tools in sessions of their own, tools that ignore signals, double-forked ones
//! without an environment, and forkers that race the blow. Half of the trees stand in a cgroup of
//! their own, some of those with their shim and keeper killed first; half have none, and only their
//! shim knows their orphans. When `lariat` says that it ended, nothing of it may live. Beside them
//! lives a session that nobody asked to end, and some trees launch a session of their own, which
//! is not theirs.
//!
//! The control ends the agent's process group.

use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::agent;
use crate::chance::Chance;
use crate::ground::{Ground, Session, is_alive, lives, signal, wait_for, wait_until};
use crate::tally::Tally;

/// Runs the row.
pub fn run(ground: &Ground, count: u64, chance: &mut Chance, tally: &mut Tally) -> io::Result<()> {
    let bystander = ground.start("sit", true, &[])?;
    for round in 0..count / 2 {
        one(ground, round, chance, tally, true, &bystander)?;
    }
    for _ in 0..(count / 50).max(1) {
        nested(ground, tally)?;
    }
    for _ in 0..(count / 40).max(2) {
        control(ground, chance, tally, &bystander)?;
    }
    ground.cover_cgroups()?;
    for round in 0..count / 2 {
        one(ground, round, chance, tally, false, &bystander)?;
    }
    tally.hold(is_alive(&bystander.shim.agent), || "a session that nobody asked to end was ended".into());
    Ok(())
}

fn grown(ground: &Ground, chance: &mut Chance) -> io::Result<Session> {
    let dir = ground.fresh("tree")?;
    let session = ground.start(&format!("tree {} {}", chance.number(), dir.display()), true, &[])?;
    wait_until("the tools of a tree", || std::fs::read_dir(&dir).is_ok_and(|files| files.count() >= agent::AT_LEAST))?;
    let _ = std::fs::remove_dir_all(&dir);
    Ok(session)
}

/// What lives and is neither lariat's nor the bystander's.
fn left(ground: &Ground, bystander: &Session) -> Vec<String> {
    let others = ground.others().into_iter().filter(|p| p.pid != bystander.shim.agent.pid);
    others.map(|p| format!("{} {:?}", p.pid, p.argv)).collect()
}

fn one(
    ground: &Ground,
    round: u64,
    chance: &mut Chance,
    tally: &mut Tally,
    cgroup: bool,
    bystander: &Session,
) -> io::Result<()> {
    let session = grown(ground, chance)?;
    let housed = session.shim.cgroup.is_some();
    tally.hold(cgroup || !housed, || "a cgroup was made where there is none".into());
    let mut what = if housed { "a tree in its cgroup" } else { "a tree without a cgroup" }.to_owned();
    if housed && round.is_multiple_of(3) {
        what.push_str(", its shim and keeper killed before");
        if let Some(keeper) = &session.shim.keeper {
            signal(keeper, Signal::STOP);
            signal(&session.shim.shim, Signal::KILL);
            signal(keeper, Signal::KILL);
        }
    }
    std::thread::sleep(chance.moment(Duration::from_millis(15)));
    let gentle = round % 4 == 1;
    let args: &[&str] =
        if gentle { &["stop", &session.id, "--grace", "50ms", "--json"] } else { &["kill", &session.id, "--json"] };
    let (code, told) = ground.told(args)?;
    let left = left(ground, bystander);
    tally.try_one(&what);
    tally.hold(code == 0 && told["outcome"] == "stopped", || format!("{what}, round {round}: {code} {told}"));
    tally.hold(left.is_empty(), || format!("{what}, round {round}: {} left: {left:?}", left.len()));
    for pid in ground.others().iter().filter(|p| p.pid != bystander.shim.agent.pid).map(|p| p.pid) {
        crate::ground::signal_pid(pid, Signal::KILL);
    }
    wait_until("its shim to be gone", || !lives(session.shim.shim.pid))?;
    ground.forget(&session);
    Ok(())
}

/// What was launched from within a session, in its very cgroup, is another session.
fn nested(ground: &Ground, tally: &mut Tally) -> io::Result<()> {
    let dir = ground.fresh("nest")?;
    let outer = ground.start(&format!("nest {}", dir.display()), true, &[])?;
    let told = wait_for("the inner launch", || std::fs::read(dir.join("nested")).ok())?;
    let told: serde_json::Value = serde_json::from_slice(&told)?;
    let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
    let inner = ground.session(text("handle"), text("native_id"))?;
    let (code, ended) = ground.told(&["kill", &outer.id, "--json"])?;
    tally.try_one("a tree with another session launched from within");
    tally.hold(code == 0 && !is_alive(&outer.shim.agent), || format!("the outer one: {code} {ended}"));
    let spared = is_alive(&inner.shim.agent) && is_alive(&inner.shim.shim);
    tally.hold(spared, || format!("the inner one was hit: {ended}"));
    let (code, _) = ground.told(&["kill", &inner.id, "--json"])?;
    tally.hold(code == 0 && !is_alive(&inner.shim.agent), || "the inner one could not be ended".into());
    wait_until("its shim to be gone", || !lives(inner.shim.shim.pid))?;
    ground.forget(&outer);
    ground.forget(&inner);
    Ok(())
}

fn control(ground: &Ground, chance: &mut Chance, tally: &mut Tally, bystander: &Session) -> io::Result<()> {
    let session = grown(ground, chance)?;
    if let Some(group) = Pid::from_raw(session.shim.agent.pid.cast_signed()) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    wait_until("the agent to be gone", || !is_alive(&session.shim.agent))?;
    let leaked = left(ground, bystander).len();
    tally.control("end the agent's process group", leaked > 0);
    // And what it left behind is ended by a later kill, which says so.
    let (code, told) = ground.told(&["kill", &session.id, "--json"])?;
    let swept = told["ended"].as_array().map_or(0, Vec::len);
    tally.try_one("a session that was gone and had left others behind");
    tally.hold(code == 0 && told["outcome"] == "gone" && swept > 0, || format!("not swept: {code} {told}"));
    let left = left(ground, bystander);
    tally.hold(left.is_empty(), || format!("left after the sweep: {left:?}"));
    wait_until("its shim to be gone", || !lives(session.shim.shim.pid))?;
    ground.forget(&session);
    Ok(())
}
