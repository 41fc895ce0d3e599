//! Claude Code ended while something that it started goes on, and taken up again.

use lariat_testkit::{DEADLINE, Exit, Key, Signal, Terminal, agents::Claude, record::Store, wait_for};

use super::asked;
use crate::looks::{Row, Stage};

const AGENTS: [&str; 4] = ["--permission-mode", "manual", "--allowedTools", "Agent,Task,Bash"];

/// A terminal with a sub-agent that works on after the answer.
#[track_caller]
fn with_a_sub_agent(stage: &Stage, claude: &Claude<'_>) -> (Terminal, Row) {
    let tui = claude.terminal(&AGENTS);
    stage.until("idle", "no turn yet");
    tui.submit("AGENT HOLD below hello", DEADLINE);
    stage.model.wait_for_hold("below", DEADLINE);
    claude.wait_for_transcript("tool finished", DEADLINE);
    let row = stage.until("working", "sub-agent at work: scripted").held_by(tui.pid());
    stage.agree(&row);
    (tui, row)
}

#[test]
fn ended_with_a_sub_agent_at_work_then_gone_on_with() {
    let stage = Stage::new("tui-sub-agent-sigterm");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let (tui, row) = with_a_sub_agent(&stage, &claude);
    let id = row.id();
    tui.signal(Signal::TERM);
    assert_eq!(tui.wait(DEADLINE), Exit::Code(143));
    let row = stage.now().ended("interrupted").has("native_id", id);
    stage.agree(&row);
    stage.keep(Store::Claude, &[(&row, "interrupted")]);

    let tui = claude.terminal(&["--continue"]);
    let found = stage.until_look("the same session at rest", |look| {
        assert_eq!(look.rows.iter().map(Row::id).collect::<Vec<_>>(), [id], "no other id is ever shown");
        look.rows[0].is("idle", "").then(|| look.rows[0].clone())
    });
    let _row = found.held_by(tui.pid());
    tui.submit("again", DEADLINE);
    claude.wait_for_transcript("echo: again", DEADLINE);
    stage.until("idle", "turn over").held_by(tui.pid());
    tui.signal(Signal::TERM);
    tui.wait(DEADLINE);
    let row = stage.now().ended("done").has("native_id", id);
    stage.agree_on_reply(&row, "echo: again");
}

#[test]
fn left_by_a_person_with_a_sub_agent_at_work() {
    let stage = Stage::new("tui-sub-agent-exit");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let (tui, row) = with_a_sub_agent(&stage, &claude);
    tui.submit("/exit", DEADLINE);
    tui.wait_for_text("Background work is running", DEADLINE);
    tui.choose('❯', 1, DEADLINE);
    assert_eq!(tui.wait(DEADLINE), Exit::Code(0));
    let row = stage.now().ended("stopped").has("native_id", row.id());
    stage.agree(&row);
    stage.keep(Store::Claude, &[(&row, "stopped")]);
}

#[test]
fn cleared_with_a_sub_agent_at_work() {
    let stage = Stage::new("tui-sub-agent-clear");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let (tui, row) = with_a_sub_agent(&stage, &claude);
    tui.submit("/clear", DEADLINE);
    // (What was typed reaches its history a moment later.)
    let (old, new) = wait_for("a new session, at work for the old one", DEADLINE, || {
        let look = stage.look();
        let new = look.rows.iter().find(|new| new.id() != row.id() && new.is("working", ""))?;
        Some((look.row(row.id()), new.clone())).filter(|(old, _)| old.is("done", ""))
    });
    claude.wait_for_transcript("<local-command-stdout>", DEADLINE);
    stage.agree(&stage.look().row(new.id()).held_by(tui.pid()));
    stage.model.release("below");
    stage.until_of(new.id(), "idle", "turn over");
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    let look = stage.look();
    let (old, new) = (look.row(old.id()).ended("done"), look.row(new.id()).ended("done"));
    stage.keep(Store::Claude, &[(&old, "done"), (&new, "done")]);
}

#[test]
fn forked_into_the_background() {
    let stage = Stage::new("tui-fork");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let tui = claude.terminal(&AGENTS);
    stage.until("idle", "no turn yet");
    tui.submit("hello", DEADLINE);
    claude.wait_for_transcript("echo: hello", DEADLINE);
    let old = stage.until("idle", "turn over");
    tui.submit("/fork HOLD aside words", DEADLINE);
    let new = stage.until_look("the fork at work", |look| {
        let new = look.rows.iter().find(|new| new.id() != old.id())?;
        assert_ne!(new.0["live"], false, "it has only begun: {new}");
        new.is("working", "").then(|| new.clone())
    });
    stage.model.wait_for_hold("aside", DEADLINE);
    let look = stage.look();
    assert_eq!((look.rows.len(), look.live().len(), look.unbound.len()), (2, 2, 0));
    assert_ne!(new.0["pid"], tui.pid());
}

#[test]
fn moved_to_the_background_by_a_person() {
    let stage = Stage::new("tui-to-background");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let (tui, row) = with_a_sub_agent(&stage, &claude);
    tui.submit("/exit", DEADLINE);
    tui.wait_for_text("Background work is running", DEADLINE);
    tui.choose('❯', 2, DEADLINE);
    assert_eq!(tui.wait(DEADLINE), Exit::Code(0));
    // It goes on under another id, in a process that nobody is asked anything in.
    let new = stage.until_look("the one that goes on", |look| {
        let asked = |loose: &serde_json::Value| loose["why"].to_string().contains("its person");
        assert!(!look.unbound.iter().any(asked), "{:?}", look.unbound);
        look.rows.iter().find(|new| new.id() != row.id() && new.is("idle", "")).cloned()
    });
    let look = stage.look();
    assert_eq!(look.live(), [new.id()]);
    look.row(row.id()).ended("done");
}

/// Waits until a terminal's session is shown ended, so, and another one lives that goes on with it.
#[track_caller]
fn moved(stage: &Stage, tui: &Terminal, old: &str, status: &str) -> Row {
    tui.wait_for_text("Your conversation moved to the background", DEADLINE);
    let new = wait_for("the one that goes on", DEADLINE, || {
        let look = stage.look();
        let new = look.rows.iter().find(|new| new.id() != old && new.0["live"] == true)?.clone();
        (look.live() == [new.id()] && new.status() != "starting").then_some(new)
    });
    let look = stage.look();
    let before = look.row(old).ended(status);
    assert!(before.is(status, &format!("ended by a person: moved to the background as {}", new.id())), "{before}");
    stage.agree(&before);
    let [viewer] = look.unbound.as_slice() else { panic!("{:?}", look.unbound) };
    assert_eq!(viewer["pid"], tui.pid(), "it shows what is there");
    assert_ne!(new.0["pid"], tui.pid());
    new
}

#[test]
fn moved_to_the_background_by_a_key() {
    let stage = Stage::new("tui-left-to-background");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let tui = claude.terminal(&AGENTS);
    stage.until("idle", "no turn yet");
    tui.submit("hello", DEADLINE);
    claude.wait_for_transcript("echo: hello", DEADLINE);
    let old = stage.until("idle", "turn over").held_by(tui.pid());
    tui.press(Key::Left);
    let new = moved(&stage, &tui, old.id(), "done");
    // The person goes on with it in the same terminal, which another process works for.
    tui.press(Key::Esc);
    tui.wait_for_no_text("Your conversation moved to the background", DEADLINE);
    tui.submit("HOLD here again", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_of(new.id(), "working", "").has("pid", new.0["pid"].clone());
    stage.look().row(old.id()).ended("done");
    // Taken up again where it was left, it is a session of its own.
    let child = claude.headless("HOLD there once more", &["--resume", old.id()]);
    stage.model.wait_for_hold("there", DEADLINE);
    stage.until_of(old.id(), "working", "").held_by(child.pid());
}

#[test]
fn moved_to_the_background_before_anything_was_said() {
    let stage = Stage::new("tui-left-unused");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let tui = claude.terminal(&AGENTS);
    let old = stage.until("idle", "no turn yet").held_by(tui.pid());
    tui.press(Key::Left);
    tui.wait_for_text("Your conversation moved to the background", DEADLINE);
    let look = wait_for("the one that goes on", DEADLINE, || {
        let look = stage.look();
        (look.rows.len() == 1 && look.rows[0].id() != old.id() && look.rows[0].is("idle", "no turn yet"))
            .then_some(look)
    });
    assert_ne!(look.rows[0].0["pid"], tui.pid());
    assert_eq!(look.unbound.iter().map(|u| &u["pid"]).collect::<Vec<_>>(), [tui.pid()]);
}

#[test]
fn moved_to_the_background_in_mid_turn() {
    let stage = Stage::new("tui-left-in-mid-turn");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    stage.sandbox.run(["mkfifo", "pipe"]).expect_success();
    let tui = claude.terminal(&AGENTS);
    stage.until("idle", "no turn yet");
    tui.submit("THEN here TOOL cat pipe", DEADLINE);
    let old = stage.until("working", "running Bash cat pipe").held_by(tui.pid());
    stage.until_runs(&["cat", "pipe"]);
    tui.press(Key::Left);
    tui.wait_for_text("Backgrounding after the current tool finishes", DEADLINE);
    stage.sandbox.run(["sh", "-c", "echo > pipe"]).expect_success();
    // What its terminal last said of itself is that it is busy, and it says nothing more.
    let new = moved(&stage, &tui, old.id(), "stopped");
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_of(new.id(), "working", "");
    tui.press(Key::Ctrl('c'));
    tui.press(Key::Ctrl('c'));
    assert_eq!(tui.wait(DEADLINE), Exit::Code(0));
    stage.look().row(old.id()).ended("stopped");
}

#[test]
fn ended_with_a_background_shell() {
    let stage = Stage::new("tui-background-shell-sigterm");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    stage.sandbox.run(["mkfifo", "pipe"]).expect_success();
    let tui = claude.terminal(&AGENTS);
    stage.until("idle", "no turn yet");
    tui.submit("BGTOOL cat pipe", DEADLINE);
    claude.wait_for_transcript("tool finished", DEADLINE);
    stage.until("idle", "turn over, a background shell still runs").held_by(tui.pid());
    tui.signal(Signal::TERM);
    assert_eq!(tui.wait(DEADLINE), Exit::Code(143));
    let row = stage.now().ended("done");
    stage.agree_on_reply(&row, "tool finished");
    stage.keep(Store::Claude, &[(&row, "done")]);
}

#[test]
fn killed_while_it_asked_then_resumed() {
    let stage = Stage::new("tui-asked-resumed");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let tui = claude.terminal(&["--permission-mode", "manual"]);
    stage.until("idle", "no turn yet");
    tui.submit("TOOL touch made", DEADLINE);
    let row = stage.until("waiting", "permission: Bash touch made").held_by(tui.pid());
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    stage.now().ended("interrupted");
    let child = claude.headless("HOLD here go on", &["--resume", row.id()]);
    let at_work = stage.until_look("the next one at work", |look| {
        let [row] = look.rows.as_slice() else { panic!("not one session: {:?}", look.live()) };
        assert_ne!(row.status(), "waiting", "nobody asks any more: {row}");
        row.is("working", "").then(|| row.clone())
    });
    at_work.held_by(child.pid()).has("native_id", row.id());
    stage.model.wait_for_hold("here", DEADLINE);
    claude.wait_for_transcript(&asked("HOLD here go on"), DEADLINE);
    stage.model.release("here");
    child.output(DEADLINE).expect_success();
    stage.now().ended("done").has("native_id", row.id());
}
