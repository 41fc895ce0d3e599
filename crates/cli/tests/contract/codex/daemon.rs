//! Codex as it is by default: terminals that only show what a shared daemon does.

use lariat_testkit::{
    DEADLINE, Signal, Terminal,
    agents::{Codex, Daemon},
    record::Store,
    wait_for,
};
use serde_json::Value;

use crate::looks::{Look, Row, Stage};

/// The daemon's pid, as it wrote it.
#[track_caller]
fn daemon(codex: &Codex<'_>) -> i32 {
    let file = codex.store().join("app-server-daemon/daemon.pid");
    wait_for("the daemon", DEADLINE, || {
        let daemon: Value = serde_json::from_slice(&std::fs::read(&file).ok()?).ok()?;
        i32::try_from(daemon["pid"].as_i64()?).ok()
    })
}

/// A terminal at its prompt, in the directory of this program.
#[track_caller]
fn ready(codex: &Codex<'_>) -> Terminal {
    let tui = codex.terminal(Daemon::Shared, &[]);
    tui.wait_for_text("gpt-5.1-codex", DEADLINE);
    tui
}

/// The terminals that are shown as processes without a session.
fn clients(look: &Look) -> Vec<i64> {
    let mut pids: Vec<_> = look.unbound.iter().filter_map(|p| p["pid"].as_i64()).collect();
    pids.sort_unstable();
    pids
}

/// Waits until the only thread is so, held by the daemon, with these terminals beside it.
#[track_caller]
fn until(stage: &Stage, codex: &Codex<'_>, terminals: &[i64], status: &str, reason: &str) -> Row {
    let row = stage.until_look(&format!("{status}: {reason}…"), |look| {
        let [row] = look.rows.as_slice() else { return None };
        (clients(look) == terminals && row.is(status, reason)).then(|| row.clone())
    });
    row.held_by(daemon(codex))
}

#[test]
fn a_terminal_killed_stops_nothing() {
    let stage = Stage::new("daemon-tui-killed");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let tui = ready(&codex);
    let pid = i64::from(tui.pid());
    let row = until(&stage, &codex, &[pid], "starting", "");
    let id = row.id();
    tui.submit("HOLD here hello", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = until(&stage, &codex, &[pid], "working", "turn open").has("native_id", id);
    stage.agree(&row.has("cwd", stage.sandbox.work().to_str().unwrap()));

    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    let row = stage.now().held_by(daemon(&codex)).has("native_id", id);
    assert!(row.is("working", "turn open"), "{row}");
    stage.model.release("here");
    let row = until(&stage, &codex, &[], "idle", "turn over").has("native_id", id);
    stage.agree_on_reply(&row, "echo: HOLD here hello");
    stage.keep(Store::Codex, &[(&row, "done")]);
}

#[test]
fn a_terminal_that_leaves() {
    let stage = Stage::new("daemon-quit");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let tui = ready(&codex);
    tui.submit("hello", DEADLINE);
    tui.wait_for_text("echo: hello", DEADLINE);
    let row = until(&stage, &codex, &[i64::from(tui.pid())], "idle", "turn over");
    tui.submit("/quit", DEADLINE);
    tui.wait(DEADLINE);
    // The daemon keeps the thread open.
    let row = stage.now().held_by(daemon(&codex)).has("native_id", row.id());
    assert!(row.is("idle", "turn over"), "{row}");
    stage.sandbox.run(["codex", "app-server", "daemon", "stop"]).expect_success();
    let row = stage.until_of(row.id(), "done", "");
    stage.agree_on_reply(&row, "echo: hello");
}

#[test]
fn waiting_by_the_daemon() {
    let stage = Stage::new("daemon-approval");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    stage.sandbox.run(["mkfifo", "pipe"]).expect_success();
    let tui = ready(&codex);
    let pid = i64::from(tui.pid());
    tui.submit("ESCALATE TOOL touch started; cat pipe", DEADLINE);
    tui.wait_for_text("Would you like to run the following command?", DEADLINE);
    let reason = "permission: exec_command touch started; cat pipe";
    let row = until(&stage, &codex, &[pid], "waiting", reason);
    assert_eq!(stage.agree(&row)["asks"], row.0["reason"]);
    tui.choose('›', 1, DEADLINE);
    stage.until_started();
    let row = until(&stage, &codex, &[pid], "working", "running exec_command touch started");
    stage.agree(&row);
    stage.keep(Store::Codex, &[(&row, "interrupted")]);
}

#[test]
fn two_threads_then_the_daemon_killed() {
    let stage = Stage::new("daemon-two-killed");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let other = stage.sandbox.project("other");
    codex.trust(&other);
    let first = ready(&codex);
    first.submit("HOLD one hello", DEADLINE);
    stage.model.wait_for_hold("one", DEADLINE);
    let second = stage.sandbox.terminal(&codex.program().cwd(&other));
    second.wait_for_text("gpt-5.1-codex", DEADLINE);
    second.submit("HOLD two hello", DEADLINE);
    stage.model.wait_for_hold("two", DEADLINE);
    let (one, two) = stage.until_look("both at work", |look| {
        let on = |prompt: &str| look.rows.iter().find(|row| row.is_at_work(prompt)).cloned();
        Some((on("HOLD one hello")?, on("HOLD two hello")?))
    });
    let pid = daemon(&codex);
    let (one, two) = (one.held_by(pid), two.held_by(pid));
    let one = one.has("cwd", stage.sandbox.work().to_str().unwrap());
    let two = two.has("cwd", other.to_str().unwrap());
    assert_eq!(clients(&stage.look()), [first.pid(), second.pid()].map(i64::from));

    let process = stage.sandbox.world().process(pid).expect("the daemon");
    assert!(process.signal(Signal::KILL));
    lariat_testkit::wait_until("the daemon's end", DEADLINE, || stage.sandbox.world().process(pid).is_none());
    let look = stage.look();
    assert_eq!(look.live(), Vec::<&str>::new(), "terminals hold no thread");
    for terminal in [first, second] {
        terminal.signal(Signal::KILL);
        terminal.wait(DEADLINE);
    }
    let look = stage.look();
    let one = look.row(one.id()).ended("interrupted");
    let two = look.row(two.id()).ended("interrupted");
    stage.keep(Store::Codex, &[(&one, "interrupted"), (&two, "interrupted")]);
}
