//! Codex without a terminal: `codex exec`, one thread, one process, and every way in which that
//! goes on and ends. With a terminal: [`terminal`]. By the shared daemon: [`daemon`].

mod daemon;
mod terminal;

use lariat_testkit::{
    Child, DEADLINE, Exit, Key, Signal,
    agents::{Codex, Daemon},
    record::Store,
};
use serde_json::Value;

use crate::looks::{Look, Row, Stage, Tokens, lines};

/// The thread that Codex itself tells on stdout.
fn thread(child: &Child) -> String {
    let stdout = child.wait_for_stdout("\n", DEADLINE);
    let first = lines(&stdout).remove(0);
    assert_eq!(first["type"], "thread.started");
    first["thread_id"].as_str().expect("an id").to_owned()
}

/// What the last turn on stdout says the thread has used.
fn reported(stdout: &str) -> Tokens {
    let events = lines(stdout);
    let done = events.iter().rfind(|event| event["type"] == "turn.completed");
    counted(&done.expect("a completed turn")["usage"])
}

/// Codex's own way to count.
fn counted(usage: &Value) -> Tokens {
    let count = |key: &str| usage[key].as_u64().unwrap_or_default();
    Tokens {
        input: count("input_tokens"),
        output: count("output_tokens"),
        cache_read: count("cached_input_tokens"),
        cache_write: count("cache_write_input_tokens"),
    }
}

/// The id of a finished thread, and what it has used.
#[track_caller]
fn finished(codex: &Codex<'_>, prompt: &str) -> (String, Tokens) {
    let child = codex.exec(prompt, &[]);
    let id = thread(&child);
    let output = child.output(DEADLINE).expect_success();
    (id, reported(&output.stdout))
}

#[test]
fn working_then_done() {
    let stage = Stage::new("exec-working");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let child = codex.exec("HOLD here first line\nsecond line", &[]);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = stage.until_at_work("HOLD here first line\nsecond line").held_by(child.pid());
    let row = row.has("native_id", thread(&child)).has("branch", "main");
    let row = row.has("cwd", stage.sandbox.work().to_str().unwrap()).has("tokens", ());
    stage.agree(&row);
    stage.keep(Store::Codex, &[(&row, "interrupted")]);

    stage.model.release("here");
    let output = child.output(DEADLINE).expect_success();
    let row = stage.now().ended("done").used(reported(&output.stdout));
    stage.agree_on_reply(&row, "echo: HOLD here first line\nsecond line");
}

#[test]
fn done() {
    let stage = Stage::new("exec-done");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (id, used) = finished(&codex, "hello");
    let row = stage.now().ended("done").has("native_id", id).used(used);
    let row = row.has("model", "gpt-5.1-codex").has("prompt", "hello");
    stage.agree_on_reply(&row, "echo: hello");
    stage.keep(Store::Codex, &[(&row, "done")]);
}

#[test]
fn in_a_tool_then_done() {
    let stage = Stage::new("exec-tool");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    stage.sandbox.run(["mkfifo", "pipe"]).expect_success();
    let child = codex.exec("TOOL touch started; cat pipe", &[]);
    stage.until_started();
    let doing = "exec_command touch started; cat pipe";
    let row = stage.until("working", &format!("running {doing}")).held_by(child.pid());
    let row = row.has("tool", doing);
    stage.agree(&row);
    stage.keep(Store::Codex, &[(&row, "interrupted")]);
    // Between Codex and the command stands its own sandbox, which is Codex's program, too.
    assert!(!row.0["because"].to_string().contains("terminal"), "there is none: {row}");
    stage.sandbox.run(["sh", "-c", "echo > pipe"]).expect_success();
    let output = child.output(DEADLINE).expect_success();
    let row = stage.now().ended("done").used(reported(&output.stdout));
    stage.agree_on_reply(&row, "tool finished");
}

#[test]
fn failed() {
    let stage = Stage::new("exec-failed");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let child = codex.exec("FAIL 400", &[]);
    let output = child.output(DEADLINE);
    assert_eq!(output.code(), 1);
    let events = lines(&output.stdout);
    let said = events.iter().find(|event| event["type"] == "turn.failed").expect("a failure");
    let row = stage.now().ended("failed").has("native_id", thread(&child));
    let row = row.has("reason", said["error"]["message"].clone());
    stage.agree(&row);
    stage.keep(Store::Codex, &[(&row, "failed")]);
}

/// Ends a held turn by a signal, and looks at once.
#[track_caller]
fn ended_by(stage: &Stage, signal: Signal, exit: Exit, status: &str) -> Row {
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let child = codex.exec("HOLD here hello", &[]);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_at_work("HOLD here hello").held_by(child.pid());
    child.signal(signal);
    assert_eq!(child.wait(DEADLINE), exit);
    let row = stage.now().ended(status).has("native_id", thread(&child));
    stage.agree(&row);
    stage.keep(Store::Codex, &[(&row, status)]);
    row
}

#[test]
fn interrupted_by_a_person() {
    ended_by(&Stage::new("exec-sigint"), Signal::INT, Exit::Code(1), "stopped");
}

#[test]
fn ended_by_sigterm() {
    ended_by(&Stage::new("exec-sigterm"), Signal::TERM, Exit::Signal(15), "interrupted");
}

#[test]
fn killed() {
    ended_by(&Stage::new("exec-sigkill"), Signal::KILL, Exit::Signal(9), "interrupted");
}

#[test]
fn killed_in_a_tool() {
    let stage = Stage::new("exec-sigkill-in-tool");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    stage.sandbox.run(["mkfifo", "pipe"]).expect_success();
    // A grandchild outlives it.
    let child = codex.exec("TOOL (touch started; cat pipe; true); true", &[]);
    stage.until_started();
    stage.until("working", "running exec_command").held_by(child.pid());
    child.signal(Signal::KILL);
    assert_eq!(child.wait(DEADLINE), Exit::Signal(9));
    let row = stage.now().ended("interrupted");
    stage.keep(Store::Codex, &[(&row, "interrupted")]);
}

#[test]
fn resumed() {
    let stage = Stage::new("exec-resumed");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (id, _) = finished(&codex, "hello");
    let child = codex.exec("HOLD here again", &["resume", &id]);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = stage.until_at_work("hello").held_by(child.pid()).has("native_id", id.as_str());
    stage.agree_on_reply(&row, "echo: hello");
    stage.model.release("here");
    let output = child.output(DEADLINE).expect_success();
    let row = stage.now().ended("done").used(reported(&output.stdout));
    stage.agree_on_reply(&row, "echo: HOLD here again");
    stage.keep(Store::Codex, &[(&row, "done")]);
}

#[test]
fn resumed_from_elsewhere() {
    let stage = Stage::new("exec-elsewhere");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (id, _) = finished(&codex, "hello");
    let other = stage.sandbox.project("other");
    codex.trust(&other);
    let program = codex.program().args(["exec", "resume", "--json", &id, "HOLD here again"]).cwd(&other);
    let child = stage.sandbox.spawn(&program);
    stage.model.wait_for_hold("here", DEADLINE);
    codex.wait_for_rollout(other.to_str().unwrap(), DEADLINE);
    let row = stage.until("working", "turn open").held_by(child.pid());
    stage.agree(&row.has("cwd", other.to_str().unwrap()));
    stage.model.release("here");
    child.output(DEADLINE).expect_success();
    stage.now().ended("done").has("cwd", stage.sandbox.work().to_str().unwrap());
}

#[test]
fn forked() {
    let stage = Stage::new("exec-forked");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (old, used) = finished(&codex, "hello");
    let child = codex.exec("HOLD here aside", &["fork", &old]);
    stage.model.wait_for_hold("here", DEADLINE);
    let new = thread(&child);
    assert_ne!(new, old);
    let row = stage.until_of(&new, "working", "turn open").held_by(child.pid());
    let look = stage.look();
    assert_eq!((look.rows.len(), look.live()), (2, vec![new.as_str()]));
    stage.agree_on_reply(&row.has("parent", format!("codex:{old}")), "echo: hello");
    stage.model.release("here");
    let output = child.output(DEADLINE).expect_success();
    let look = stage.look();
    let parent = look.row(&old).ended("done").used(used);
    let fork = look.row(&new).ended("done").used(reported(&output.stdout));
    stage.agree_on_reply(&parent, "echo: hello");
    stage.agree_on_reply(&fork, "echo: HOLD here aside");
    stage.keep(Store::Codex, &[(&parent, "done"), (&fork, "done")]);
}

#[test]
fn two_in_one_directory() {
    let stage = Stage::new("exec-two");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (old, _) = finished(&codex, "hello");
    let child = codex.exec("HOLD here hello", &[]);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = stage.until_of(&thread(&child), "working", "turn open").held_by(child.pid());
    let look = stage.look();
    assert_eq!((look.rows.len(), look.live()), (2, vec![row.id()]));
    assert!(look.unbound.is_empty());
    let first = look.row(&old).ended("done");
    stage.keep(Store::Codex, &[(&first, "done"), (&row, "interrupted")]);
    child.signal(Signal::KILL);
    child.wait(DEADLINE);
    let look = stage.look();
    look.row(&old).ended("done");
    look.row(row.id()).ended("interrupted");
}

#[test]
fn archived() {
    let stage = Stage::new("exec-archived");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (id, used) = finished(&codex, "hello");
    stage.sandbox.run(["codex", "archive", &id]).expect_success();
    assert!(codex.rollouts().is_empty(), "it was moved away");
    let row = stage.now().ended("done").has("native_id", id.as_str()).used(used);
    stage.agree_on_reply(&row, "echo: hello");
    stage.keep(Store::Codex, &[(&row, "done")]);
    // Nobody goes on with it before a person has brought it back.
    for args in [&["resume", &id][..], &["resume", &id, "--headless", "go on"], &["fork", &id]] {
        let refused = stage.sandbox.world().run(&stage.lariat().args(args));
        assert!(refused.code() == 2 && refused.stderr.contains("codex unarchive"), "{args:?}: {refused:?}");
    }
    let tui = codex.terminal(Daemon::None, &["resume", &id]);
    tui.wait_for_text("This conversation is archived", DEADLINE);
    let row = stage.until("waiting", "dialog: the conversation is archived").held_by(tui.pid());
    stage.agree(&row.has("native_id", id.as_str()));
    tui.press_away(Key::Enter, "This conversation is archived", DEADLINE);
    stage.until("idle", "turn over").held_by(tui.pid()).has("native_id", id.as_str());
    tui.submit("/quit", DEADLINE);
    tui.wait(DEADLINE);
    stage.now().ended("done").has("native_id", id).used(used);
}

#[test]
fn with_a_sub_agent() {
    let stage = Stage::new("exec-sub-agent");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let child = codex.exec("THEN up AGENT HOLD below hello", &[]);
    stage.model.wait_for_hold("below", DEADLINE);
    stage.model.wait_for_hold("up", DEADLINE);
    let row = stage.until_at_work("THEN up AGENT HOLD below hello").held_by(child.pid());
    let row = row.has("native_id", thread(&child));
    stage.agree(&row);
    stage.keep(Store::Codex, &[(&row, "interrupted")]);
    stage.model.release("up");
    let output = child.output(DEADLINE).expect_success();
    // Codex ends its sub-agent with its own turn, which went well.
    stage.now().ended("done").used(reported(&output.stdout));
}

#[test]
fn a_sub_agent_that_was_killed_holds_nothing_up() {
    let stage = Stage::new("exec-sub-agent-killed");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let child = codex.exec("THEN up AGENT HOLD below hello", &[]);
    stage.model.wait_for_hold("below", DEADLINE);
    stage.model.wait_for_hold("up", DEADLINE);
    stage.until_at_work("THEN up AGENT HOLD below hello").held_by(child.pid());
    child.signal(Signal::KILL);
    assert_eq!(child.wait(DEADLINE), Exit::Signal(9));
    let row = stage.now().ended("interrupted");
    codex.exec("again", &["resume", row.id()]).output(DEADLINE).expect_success();
    let row = stage.now().ended("done").has("native_id", row.id());
    stage.agree_on_reply(&row, "echo: again");
    stage.keep(Store::Codex, &[(&row, "done")]);
}

#[test]
fn another_store() {
    let stage = Stage::new("exec-codex-home");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let elsewhere = stage.sandbox.home().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("another store");
    std::fs::copy(codex.store().join("config.toml"), elsewhere.join("config.toml")).expect("the same configuration");
    stage.sandbox.env("CODEX_HOME", &elsewhere);
    let child = codex.exec("HOLD here hello", &[]);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = stage.until_at_work("HOLD here hello").held_by(child.pid());
    stage.agree(&row);
    let outside = Look::take(&stage, &stage.lariat().without_env("CODEX_HOME"));
    assert!(outside.rows.is_empty(), "the usual store has no thread");
    stage.model.release("here");
    let output = child.output(DEADLINE).expect_success();
    let row = stage.now().ended("done").used(reported(&output.stdout));
    stage.agree_on_reply(&row, "echo: HOLD here hello");
}
