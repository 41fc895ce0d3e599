//! Codex on a terminal of its own (`--no-daemon`): one process, one thread at a time.

use std::fs;

use lariat_testkit::{
    DEADLINE, Exit, Key, Signal, Terminal,
    agents::{Codex, Daemon},
    record::Store,
    wait_until,
};
use serde_json::Value;

use super::counted;
use crate::looks::{Row, Stage, Tokens, lines};

/// Codex at its prompt, and its thread.
#[track_caller]
fn ready(stage: &Stage, codex: &Codex<'_>) -> (Terminal, Row) {
    let tui = codex.terminal(Daemon::None, &[]);
    tui.wait_for_text("gpt-5.1-codex", DEADLINE);
    let row = stage.until("starting", "").held_by(tui.pid());
    (tui, row)
}

/// Waits until it shows what the turn took: before, it refuses commands.
#[track_caller]
fn until_answered(tui: &Terminal, prompt: &str) {
    let echo = format!("echo: {prompt}");
    tui.wait_for_screen("the end of the turn", DEADLINE, |screen| {
        screen.split_once(&echo).is_some_and(|(_, after)| after.contains("Worked for"))
    });
}

/// One turn, to its end.
#[track_caller]
fn turn(stage: &Stage, tui: &Terminal, prompt: &str) -> Row {
    tui.submit(prompt, DEADLINE);
    until_answered(tui, prompt);
    let row = stage.until_look("the end of the turn", |look| {
        let done = look.rows.iter().find(|row| row.0["prompt"] == prompt)?;
        done.is("idle", "turn over").then(|| done.clone())
    });
    row.held_by(tui.pid())
}

#[track_caller]
fn leave(tui: &Terminal) {
    tui.submit("/quit", DEADLINE);
    assert_eq!(tui.wait(DEADLINE), Exit::Code(0));
}

/// What the rollout's last total says was used.
fn total(codex: &Codex<'_>) -> Tokens {
    let [rollout] = codex.rollouts().try_into().expect("one rollout");
    let all = lines(&fs::read_to_string(rollout).expect("a rollout"));
    let count = |line: &&Value| line["payload"]["type"] == "token_count";
    let last = all.iter().rfind(count).expect("a count");
    counted(&last["payload"]["info"]["total_token_usage"])
}

#[test]
fn at_its_first_prompt() {
    let stage = Stage::new("tui-no-prompt");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (tui, row) = ready(&stage, &codex);
    let row = row.has("prompt", ()).has("tokens", ());
    let row = row.has("cwd", stage.sandbox.work().to_str().unwrap());
    assert!(codex.rollouts().is_empty());
    assert_eq!(stage.agree(&row)["reply"], Value::Null);
    leave(&tui);
    assert!(stage.look().rows.is_empty(), "nothing was ever said");
}

#[test]
fn working_then_idle_then_left() {
    let stage = Stage::new("tui-idle");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (tui, row) = ready(&stage, &codex);
    let id = row.id();
    tui.submit("HOLD here hello", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = stage.until_at_work("HOLD here hello").held_by(tui.pid()).has("native_id", id);
    stage.agree(&row);
    stage.model.release("here");
    let row = stage.until("idle", "turn over").held_by(tui.pid()).has("native_id", id);
    stage.agree_on_reply(&row, "echo: HOLD here hello");
    let row = row.used(total(&codex));
    stage.keep(Store::Codex, &[(&row, "done")]);
    leave(&tui);
    let row = stage.now().ended("done").has("native_id", id).used(total(&codex));
    stage.agree_on_reply(&row, "echo: HOLD here hello");
}

#[test]
fn refused_and_alive() {
    let stage = Stage::new("tui-refused");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (tui, _) = ready(&stage, &codex);
    tui.submit("FAIL 401", DEADLINE);
    let row = stage.until("waiting", "login: unexpected status 401").held_by(tui.pid());
    stage.agree(&row);
    tui.wait_for_text("unexpected status 401", DEADLINE);
    tui.submit("FAIL 429", DEADLINE);
    let row = stage.until("waiting", "limit: exceeded retry limit").held_by(tui.pid());
    stage.keep(Store::Codex, &[(&row, "failed")]);
    tui.wait_for_text("429", DEADLINE);
    tui.submit("FAIL 400", DEADLINE);
    stage.until("idle", "last turn failed").held_by(tui.pid());
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    stage.now().ended("failed");
}

#[test]
fn waiting_for_an_approval_then_in_the_tool() {
    let stage = Stage::new("tui-approval");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    stage.sandbox.run(["mkfifo", "pipe"]).expect_success();
    let (tui, _) = ready(&stage, &codex);
    tui.submit("ESCALATE TOOL touch started; cat pipe", DEADLINE);
    tui.wait_for_text("Would you like to run the following command?", DEADLINE);
    let reason = "permission: exec_command touch started; cat pipe";
    let row = stage.until("waiting", reason).held_by(tui.pid());
    assert_eq!(stage.agree(&row)["asks"], row.0["reason"]);
    stage.keep(Store::Codex, &[(&row, "interrupted")]);

    tui.choose('›', 1, DEADLINE);
    stage.until_started();
    let row = stage.until("working", "running exec_command touch started; cat pipe");
    let row = row.held_by(tui.pid());
    assert_eq!(stage.agree(&row)["asks"], Value::Null);
    stage.sandbox.run(["sh", "-c", "echo > pipe"]).expect_success();
    tui.wait_for_text("tool finished", DEADLINE);
    let row = stage.until("idle", "turn over").held_by(tui.pid()).used(total(&codex));
    stage.agree_on_reply(&row, "tool finished");
}

/// The models of today write a script that calls the tools, and a program beside Codex runs it.
#[test]
fn a_script_that_waits_for_an_approval_then_runs() {
    let stage = Stage::new("tui-script-approval");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    stage.sandbox.run(["mkfifo", "pipe"]).expect_success();
    let tui = codex.terminal(Daemon::None, &["-m", "gpt-6.1-sol"]);
    tui.wait_for_text("GPT-6.1-Sol", DEADLINE);
    tui.submit("ESCALATE TOOL touch started; cat pipe", DEADLINE);
    tui.wait_for_text("Would you like to run the following command?", DEADLINE);
    let script = "exec text(await tools.exec_command({\"cmd\":\"touch started; cat pipe\"";
    let row = stage.until("waiting", &format!("permission: {script}")).held_by(tui.pid());
    assert_eq!(stage.agree(&row)["asks"], row.0["reason"]);
    stage.keep(Store::Codex, &[(&row, "interrupted")]);

    tui.choose('›', 1, DEADLINE);
    stage.until_started();
    let row = stage.until("working", &format!("running {script}")).held_by(tui.pid());
    assert_eq!(stage.agree(&row)["asks"], Value::Null);
    stage.sandbox.run(["sh", "-c", "echo > pipe"]).expect_success();
    tui.wait_for_text("tool finished", DEADLINE);
    let row = stage.until("idle", "turn over").held_by(tui.pid()).used(total(&codex));
    stage.agree_on_reply(&row, "tool finished");
}

#[test]
fn a_tool_that_needs_no_approval() {
    let stage = Stage::new("tui-tool");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    stage.sandbox.run(["mkfifo", "pipe"]).expect_success();
    let (tui, _) = ready(&stage, &codex);
    tui.submit("TOOL touch started; cat pipe", DEADLINE);
    stage.until_started();
    let row = stage.until_look("the tool at work", |look| {
        let [row] = look.rows.as_slice() else { return None };
        assert_ne!(row.status(), "waiting", "nobody is asked: {row}");
        // Older than any allowance for a call that is only just being started.
        let old = row.is("working", "running exec_command touch") && look.age(row) > 2.0;
        old.then(|| row.clone())
    });
    stage.agree(&row.held_by(tui.pid()));
}

#[test]
fn of_two_tools_at_once_one_is_through() {
    let stage = Stage::new("tui-two-tools");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    stage.sandbox.run(["mkfifo", "pipe"]).expect_success();
    let (tui, _) = ready(&stage, &codex);
    tui.submit("PARALLEL touch started; cat pipe ;; echo quick", DEADLINE);
    stage.until_started();
    tui.wait_for_text("Ran echo quick", DEADLINE);
    let row = stage.until_look("the other at work", |look| {
        let [row] = look.rows.as_slice() else { return None };
        assert_ne!(row.status(), "waiting", "nobody is asked: {row}");
        let old = row.is("working", "running exec_command touch started") && look.age(row) > 2.0;
        old.then(|| row.clone())
    });
    stage.agree(&row.held_by(tui.pid()));
}

#[test]
fn a_sub_agent_that_asks() {
    let stage = Stage::new("tui-sub-agent-approval");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (tui, row) = ready(&stage, &codex);
    tui.submit("THEN up AGENT ESCALATE TOOL touch made", DEADLINE);
    tui.wait_for_text("Would you like to run the following command?", DEADLINE);
    let asks = stage.until("waiting", "permission: exec_command touch made").held_by(tui.pid());
    assert_eq!(asks.id(), row.id(), "it is its session's");
    stage.agree(&asks);
    stage.keep(Store::Codex, &[(&asks, "interrupted")]);
}

#[test]
fn waiting_for_more_rights() {
    let stage = Stage::new("tui-rights");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let prompt = r#"CALL request_permissions {"reason":"to load it","permissions":{"network":{"enabled":true}}}"#;
    let tui = codex.terminal(Daemon::None, &["--enable", "request_permissions_tool", prompt]);
    tui.wait_for_text("grant these permissions", DEADLINE);
    let row = stage.until("waiting", "permission: request_permissions to load it");
    stage.agree(&row);
    tui.choose('›', 4, DEADLINE);
    stage.until("idle", "turn over");
}

#[test]
fn with_a_model_that_decides_in_a_person_s_place() {
    let stage = Stage::new("tui-reviewer");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let tui = codex.terminal(Daemon::None, &["-c", "approvals_reviewer=\"auto_review\""]);
    tui.wait_for_text("gpt-5.1-codex", DEADLINE);
    // It has a thread of its own from the start, in which nothing is said; and Codex has recorded the shell.
    let count = |folder: &str| fs::read_dir(codex.store().join(folder)).map_or(0, Iterator::count);
    wait_until("both threads", DEADLINE, || count("thread-writer-locks") == 3 && count("shell_snapshots") == 1);
    let row = stage.now().has("status", "starting").held_by(tui.pid());
    stage.agree(&row);
    let row = turn(&stage, &tui, "hello").has("native_id", row.id());
    assert_eq!(stage.now().id(), row.id());
    tui.submit("ESCALATE TOOL touch made", DEADLINE);
    tui.wait_for_text("Request denied", DEADLINE);
    tui.wait_for_text("tool finished", DEADLINE);
    let row = stage.until("idle", "turn over").held_by(tui.pid()).has("native_id", row.id());
    stage.agree(&row);
    leave(&tui);
    stage.now().ended("done").has("native_id", row.id());
}

#[test]
fn waiting_for_an_answer() {
    let stage = Stage::new("tui-question");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (tui, _) = ready(&stage, &codex);
    // Until its thread is there, Codex forgets the mode again; nothing on the screen tells.
    turn(&stage, &tui, "hello");
    tui.submit("/plan", DEADLINE);
    tui.wait_for_text("Plan mode (shift+tab to cycle)", DEADLINE);
    tui.submit("ASK me", DEADLINE);
    tui.wait_for_text("Which colour?", DEADLINE);
    let row = stage.until("waiting", "question: Which colour?").held_by(tui.pid());
    assert_eq!(stage.agree(&row)["asks"], "question: Which colour?");
    stage.keep(Store::Codex, &[(&row, "interrupted")]);
}

#[test]
fn a_review() {
    let stage = Stage::new("tui-review");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (tui, _) = ready(&stage, &codex);
    tui.submit("/review HOLD here", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = stage.until("working", "").held_by(tui.pid());
    stage.agree(&row);
    stage.model.release("here");
    tui.wait_for_text("Code review finished", DEADLINE);
    // Its rollout has the beginning of the reviewer's turn and the end of its own.
    let row = stage.until("idle", "turn over").held_by(tui.pid()).has("native_id", row.id());
    stage.agree(&row);
    stage.keep(Store::Codex, &[(&row, "done")]);
    leave(&tui);
    stage.now().ended("done").has("native_id", row.id()).has("model", "gpt-5.1-codex");
}

#[test]
fn interrupted_then_left() {
    let stage = Stage::new("tui-esc-quit");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (tui, _) = ready(&stage, &codex);
    tui.submit("HOLD here hello", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_at_work("HOLD here hello").held_by(tui.pid());
    tui.wait_for_text("esc to interrupt", DEADLINE);
    tui.press(Key::Esc);
    let row = stage.until("idle", "last turn was interrupted by a person").held_by(tui.pid());
    stage.agree(&row);
    stage.keep(Store::Codex, &[(&row, "stopped")]);
    tui.wait_for_no_text("esc to interrupt", DEADLINE);
    leave(&tui);
    stage.now().ended("stopped").has("native_id", row.id());
}

#[test]
fn killed() {
    let stage = Stage::new("tui-sigkill");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (tui, _) = ready(&stage, &codex);
    tui.submit("HOLD here hello", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_at_work("HOLD here hello").held_by(tui.pid());
    tui.signal(Signal::KILL);
    assert_eq!(tui.wait(DEADLINE), Exit::Signal(9));
    let row = stage.now().ended("interrupted");
    stage.keep(Store::Codex, &[(&row, "interrupted")]);
}

#[test]
fn resumed_after_a_kill() {
    let stage = Stage::new("tui-resumed-after-kill");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (tui, _) = ready(&stage, &codex);
    tui.submit("ESCALATE TOOL touch made", DEADLINE);
    let asked = stage.until("waiting", "permission: ").held_by(tui.pid());
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    stage.now().ended("interrupted");
    let tui = stage.sandbox.terminal(&codex.program().args(["resume", "--no-daemon", asked.id()]));
    tui.wait_for_text("Ask Codex to do anything", DEADLINE);
    // Its rollout ends in the middle of that turn still: nobody asks, and nobody works.
    let row = stage.until("idle", "last turn failed: it was cut off before").held_by(tui.pid());
    stage.agree(&row.has("native_id", asked.id()).has("tool", ()));
    tui.submit("HOLD here again", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until("working", "turn open").held_by(tui.pid());
    stage.model.release("here");
    let row = stage.until("idle", "turn over").held_by(tui.pid()).has("native_id", asked.id());
    stage.keep(Store::Codex, &[(&row, "done")]);
}

#[test]
fn a_new_thread() {
    let stage = Stage::new("tui-new");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (tui, _) = ready(&stage, &codex);
    let old = turn(&stage, &tui, "hello");
    tui.submit("/new", DEADLINE);
    tui.wait_for_text("Use current Git worktree", DEADLINE);
    tui.choose('›', 1, DEADLINE);
    let new = stage.until_look("a second thread", |look| {
        look.rows.iter().find(|row| row.id() != old.id() && row.is("starting", "")).cloned()
    });
    let new = new.held_by(tui.pid());
    let look = stage.look();
    assert_eq!((look.rows.len(), look.live()), (2, vec![new.id()]));
    let before = look.row(old.id()).ended("done");
    stage.agree_on_reply(&before, "echo: hello");
    stage.agree(&new);
    let again = turn(&stage, &tui, "again").has("native_id", new.id());
    stage.keep(Store::Codex, &[(&before, "done"), (&again, "done")]);
    leave(&tui);
    let look = stage.look();
    assert_eq!((look.rows.len(), look.unbound.len()), (2, 0));
    look.row(old.id()).ended("done");
    look.row(new.id()).ended("done");
}

#[test]
fn a_fork_at_its_prompt_and_gone_back_from() {
    let stage = Stage::new("tui-fork");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (tui, _) = ready(&stage, &codex);
    let old = turn(&stage, &tui, "hello");
    tui.submit("/fork", DEADLINE);
    tui.wait_for_text("Use current Git worktree", DEADLINE);
    tui.choose('›', 1, DEADLINE);
    tui.wait_for_text("Fork created", DEADLINE);
    let fork = stage.until_look("a fork at rest", |look| {
        look.rows.iter().find(|row| row.id() != old.id() && row.is("idle", "no turn yet")).cloned()
    });
    let fork = fork.held_by(tui.pid());
    stage.look().row(old.id()).ended("done");
    stage.agree(&fork);
    tui.submit("/resume", DEADLINE);
    tui.wait_for_text("Resume a previous session", DEADLINE);
    tui.wait_for_text("hello", DEADLINE);
    tui.press(Key::Enter);
    stage.until_of(old.id(), "idle", "turn over").held_by(tui.pid());
    stage.look().row(fork.id()).ended("done");
}

#[test]
fn rewound_it_goes_on_as_the_same_session() {
    let stage = Stage::new("tui-rewound");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (tui, row) = ready(&stage, &codex);
    let id = row.id();
    turn(&stage, &tui, "first");
    tui.submit("second", DEADLINE);
    until_answered(&tui, "second");
    let rewind = |to: &str| {
        stage.until("idle", "turn over").held_by(tui.pid());
        tui.press(Key::Esc);
        tui.wait_for_text("edit previous", DEADLINE);
        tui.press(Key::Esc);
        tui.wait_for_text("rewind", DEADLINE);
        tui.press(Key::Enter);
        // What was asked stands in the prompt again.
        tui.wait_for_screen("the end of what is left", DEADLINE, |screen| {
            !screen.contains(&format!("echo: {to}")) && screen.contains(&format!("› {to}"))
        });
        // It goes on in a file that has nothing but a beginning yet.
        let row = stage.until("idle", "turn over").held_by(tui.pid()).has("native_id", id);
        tui.press(Key::Ctrl('u'));
        tui.wait_for_text("Ask Codex", DEADLINE);
        row
    };
    let row = rewind("second").has("prompt", "first").has("parent", ());
    stage.agree_on_reply(&row, "echo: first");
    tui.submit("HOLD here third", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = stage.until("working", "turn open").held_by(tui.pid()).has("native_id", id).has("prompt", "first");
    stage.agree(&row);
    stage.model.release("here");
    until_answered(&tui, "HOLD here third");
    let row = rewind("HOLD here third").has("prompt", "first");
    stage.agree_on_reply(&row, "echo: first");
    assert_eq!(codex.rollouts().len(), 3);
    tui.submit("HOLD there fourth", DEADLINE);
    stage.model.wait_for_hold("there", DEADLINE);
    stage.until("working", "turn open").held_by(tui.pid()).has("native_id", id);
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    let row = stage.now().ended("interrupted").has("native_id", id).has("prompt", "first");
    stage.keep(Store::Codex, &[(&row, "interrupted")]);
}

#[test]
fn a_plan_put_before_a_person() {
    let stage = Stage::new("tui-plan");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (tui, _) = ready(&stage, &codex);
    // Its session is configured a moment after it is stored, and that undoes a mode that was chosen before.
    let row = turn(&stage, &tui, "hello");
    let id = row.id();
    tui.submit("/plan", DEADLINE);
    tui.wait_for_text("Plan mode (shift+tab", DEADLINE);
    tui.submit("PLAN", DEADLINE);
    tui.wait_for_text("Implement this plan?", DEADLINE);
    let row = stage.until("waiting", "plan: 1. Look.").held_by(tui.pid()).has("native_id", id);
    assert_eq!(stage.agree(&row)["asks"], row.0["reason"]);
    tui.press(Key::Enter);
    // What it says then is what it was told.
    stage.until("idle", "turn over").held_by(tui.pid()).has("native_id", id);
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    stage.now().ended("done");
}

#[test]
fn renamed() {
    let stage = Stage::new("tui-renamed");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (tui, _) = ready(&stage, &codex);
    let row = turn(&stage, &tui, "hello").has("name", ());
    tui.submit("/rename brisk-heron", DEADLINE);
    let named = stage.until_look("the name", |look| {
        let named = look.rows.iter().find(|row| row.0["name"] == "brisk-heron");
        named.cloned()
    });
    let named = named.held_by(tui.pid()).has("native_id", row.id());
    stage.agree(&named);
    let found = stage.lariat().args(["status", "brisk-heron", "--json"]);
    let found = stage.sandbox.world().run(&found).expect_success().json();
    assert_eq!(found["native_id"], row.id());
    stage.keep(Store::Codex, &[(&named, "done")]);
}

#[test]
fn rewound_its_tokens_are_what_it_says_itself_and_every_response_is_spent() {
    let stage = Stage::new("tui-rewound");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let (tui, _) = ready(&stage, &codex);
    let id = turn(&stage, &tui, "first words").id().to_owned();
    for prompt in ["second words", "third words"] {
        tui.submit(prompt, DEADLINE);
        until_answered(&tui, prompt);
    }
    tui.press(Key::Esc);
    tui.wait_for_text("esc again", DEADLINE);
    tui.press(Key::Esc);
    tui.wait_for_text("Browsing transcript", DEADLINE);
    tui.press(Key::Enter);
    tui.wait_for_text("Conversation reverted to this point", DEADLINE);
    // Until it is asked again its own sum is nothing, and so it is not known here.
    stage.until("idle", "turn over").has("tokens", ());
    tui.press(Key::Enter);
    until_answered(&tui, "third words");
    tui.submit("/quit", DEADLINE);
    assert_eq!(tui.wait(DEADLINE), Exit::Code(0));
    // Three turns are left of four: that is its own sum, and what it has cost is four.
    let said = tui.text();
    let line = said.lines().rfind(|line| line.starts_with("Token usage: ")).expect("what it used");
    assert!(line.contains("input=360 (+ 900 cached) output=21"), "{line}");
    let left = Tokens { input: 1260, output: 21, cache_read: 900, cache_write: 0 };
    stage.now().ended("done").used(left).has("native_id", id);
    let usage = stage.sandbox.world().run(&stage.lariat().args(["usage", "--json"])).expect_success().json();
    assert_eq!(usage["total"]["answers"], 4, "{usage}");
    assert_eq!(usage["total"]["tokens"]["output"], 28, "{usage}");
}
