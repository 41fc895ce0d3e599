//! Claude Code without a terminal: one prompt, one process, and every way in which that goes on
//! and ends. With a terminal: [`terminal`]. With several sessions or processes: [`several`].
//! Where no answer ends the turn: [`halted`]. Where something goes on that it started: [`left`].

mod halted;
mod left;
mod several;
mod terminal;

use std::{fs, path::Path};

use lariat_testkit::{DEADLINE, Exit, Signal, Stdin, agents::Claude, record::Store};
use serde_json::{Value, json};

use crate::looks::{Row, Stage, Tokens, lines};

/// Tools run without a question.
const FREE: [&str; 2] = ["--permission-mode", "bypassPermissions"];

/// The tokens in Claude's own accounting by model.
fn by_model(usage: &Value) -> Tokens {
    let mut sum = Tokens::default();
    for model in usage.as_object().expect("usage by model").values() {
        let count = |key: &str| model[key].as_u64().expect("a count");
        sum.input += count("inputTokens");
        sum.output += count("outputTokens");
        sum.cache_read += count("cacheReadInputTokens");
        sum.cache_write += count("cacheCreationInputTokens");
    }
    sum
}

/// What the last `result` on stdout says was used.
fn reported(stdout: &str) -> Tokens {
    by_model(&last_result(stdout)["modelUsage"])
}

fn last_result(stdout: &str) -> Value {
    let mut events = lines(stdout);
    events.retain(|event| event["type"] == "result");
    events.pop().expect("a result")
}

/// What the transcript's last accounting says was used.
fn accounted(transcript: &Path) -> Tokens {
    let all = lines(&fs::read_to_string(transcript).expect("a transcript"));
    let last = all.iter().rfind(|line| line["type"] == "cost-state");
    by_model(&last.expect("an accounting")["modelUsage"])
}

fn transcript(claude: &Claude<'_>, id: &str) -> std::path::PathBuf {
    let name = format!("{id}.jsonl");
    let all = claude.transcripts();
    all.into_iter().find(|path| path.ends_with(&name)).expect("a transcript")
}

/// The id that Claude itself tells on stdout.
fn session_id(stdout: &str) -> String {
    let events = lines(stdout);
    let init = events.iter().find(|event| event["subtype"] == "init");
    init.expect("a first event")["session_id"].as_str().expect("an id").to_owned()
}

/// What a transcript holds once this prompt of a person is recorded.
fn asked(prompt: &str) -> String {
    format!("\"role\":\"user\",\"content\":\"{prompt}\"")
}

/// The row's transcript and registry belong to the program's own id.
#[track_caller]
fn same_session(row: &Row, stdout: &str) {
    assert_eq!(row.id(), session_id(stdout));
    assert_eq!(row.0["id"], format!("claude:{}", row.id()));
}

#[test]
fn working_then_done() {
    let stage = Stage::new("p-working");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let child = claude.headless("HOLD here first line\nsecond line", &[]);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = stage.until_at_work("HOLD here first line\nsecond line").held_by(child.pid());
    let row = row.has("branch", "main");
    let row = row.has("cwd", stage.sandbox.work().to_str().unwrap()).used(Tokens::default());
    assert_eq!(claude.registry()[0]["sessionId"], row.id());
    stage.agree(&row);
    stage.keep(Store::Claude, &[(&row, "interrupted")]);

    stage.model.release("here");
    let output = child.output(DEADLINE).expect_success();
    same_session(&row, &output.stdout);
    let row = stage.now().ended("done").used(reported(&output.stdout));
    let reply = last_result(&output.stdout)["result"].clone();
    assert_eq!(reply, "echo: HOLD here first line\nsecond line");
    stage.agree_on_reply(&row, reply.as_str().unwrap());
}

#[test]
fn done() {
    let stage = Stage::new("p-done");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let output = claude.headless("hello", &[]).output(DEADLINE).expect_success();
    let row = stage.now().ended("done").used(reported(&output.stdout));
    let row = row.used(accounted(&claude.transcripts()[0]));
    let cost = last_result(&output.stdout)["total_cost_usd"].clone();
    let row = row.has("cost_usd", cost).has("model", stage.model.requests()[0].model.clone());
    same_session(&row, &output.stdout);
    stage.agree_on_reply(&row, "echo: hello");
    stage.keep(Store::Claude, &[(&row, "done")]);
}

#[test]
fn in_a_tool_then_killed() {
    let stage = Stage::new("p-killed-in-tool");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    stage.sandbox.run(["mkfifo", "pipe"]).expect_success();
    let child = claude.headless("TOOL cat pipe", &FREE);
    let row = stage.until("working", "running Bash cat pipe").held_by(child.pid());
    let row = row.has("tool", "Bash cat pipe");
    stage.until_runs(&["cat", "pipe"]);
    stage.agree_on_reply(&row, "running");

    child.signal(Signal::KILL);
    assert_eq!(child.wait(DEADLINE), Exit::Signal(9));
    let orphan = stage.sandbox.processes().into_iter().find(|p| p.argv == ["cat", "pipe"]);
    assert!(orphan.is_some(), "Claude's tool outlives it: {:?}", stage.sandbox.processes());
    assert_eq!(claude.registry()[0]["status"], "busy", "a killed Claude leaves its entry");
    let row = stage.now().ended("interrupted");
    stage.agree_on_reply(&row, "running");
    stage.keep(Store::Claude, &[(&row, "interrupted")]);
}

/// Ends a held turn by a signal, and looks at once.
#[track_caller]
fn ended_by(stage: &Stage, claude: &Claude<'_>, signal: Signal, exit: Exit, status: &str) -> Row {
    let child = claude.headless("HOLD here hello", &[]);
    stage.model.wait_for_hold("here", DEADLINE);
    let before = stage.until_at_work("HOLD here hello").held_by(child.pid());
    child.signal(signal);
    assert_eq!(child.wait(DEADLINE), exit);
    let row = stage.now().ended(status);
    assert_eq!(row.id(), before.id());
    stage.agree(&row);
    stage.keep(Store::Claude, &[(&row, status)]);
    row
}

#[test]
fn interrupted_by_a_person() {
    let stage = Stage::new("p-sigint");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    ended_by(&stage, &claude, Signal::INT, Exit::Code(0), "stopped");
}

#[test]
fn ended_by_sigterm() {
    let stage = Stage::new("p-sigterm");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    ended_by(&stage, &claude, Signal::TERM, Exit::Code(143), "interrupted");
    assert!(claude.registry().is_empty(), "it cleaned up");
}

#[test]
fn killed_leaves_a_stale_entry() {
    let stage = Stage::new("p-sigkill");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    ended_by(&stage, &claude, Signal::KILL, Exit::Signal(9), "interrupted");
    assert_eq!(claude.registry()[0]["status"], "busy", "a killed Claude leaves its entry");
}

#[test]
fn killed_without_a_transcript() {
    let stage = Stage::new("p-sigkill-unrecorded");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let child = claude.headless("HOLD here hello", &["--no-session-persistence"]);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = stage.until("working", "busy").held_by(child.pid()).has("tokens", ());
    stage.agree(&row);
    child.signal(Signal::KILL);
    child.wait(DEADLINE);
    assert!(claude.transcripts().is_empty());
    let row = stage.now().ended("interrupted");
    stage.agree(&row);
    stage.keep(Store::Claude, &[(&row, "interrupted")]);
}

#[test]
fn failed() {
    let stage = Stage::new("p-failed");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let output = claude.headless("FAIL 400", &[]).output(DEADLINE);
    assert_eq!(output.code(), 1);
    let row = stage.now().ended("failed").used(reported(&output.stdout));
    let said = last_result(&output.stdout)["result"].clone();
    let row = row.has("reason", said);
    stage.agree(&row);
    stage.keep(Store::Claude, &[(&row, "failed")]);
}

#[test]
fn out_of_turns() {
    let stage = Stage::new("p-max-turns");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let output = claude.headless("TOOL true", &["--max-turns", "1", "--allowedTools", "Bash"]).output(DEADLINE);
    assert_eq!((output.code(), &last_result(&output.stdout)["subtype"]), (1, &"error_max_turns".into()));
    let row = stage.now().ended("failed").has("reason", "it reached its limit of 1 turns");
    stage.agree(&row);
    stage.keep(Store::Claude, &[(&row, "failed")]);
}

#[test]
fn trying_again() {
    let stage = Stage::new("p-retrying");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let child = claude.headless("FAIL 500", &[]);
    stage.model.wait_for_request("a second try", DEADLINE, |request| {
        request.main && request.number > 0 && request.prompt == "FAIL 500"
    });
    let row = stage.until_at_work("FAIL 500").held_by(child.pid());
    stage.agree(&row);
    child.signal(Signal::KILL);
    child.wait(DEADLINE);
    let row = stage.now().ended("interrupted");
    stage.keep(Store::Claude, &[(&row, "interrupted")]);
}

#[test]
fn spoken_to_by_a_program() {
    let stage = Stage::new("p-stream-permission");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let streams = ["--input-format", "stream-json", "--output-format", "stream-json", "--verbose"];
    let asking = ["--permission-mode", "manual", "--permission-prompt-tool", "stdio"];
    let program = claude.program().arg("-p").args(streams).args(asking).stdin(Stdin::Pipe);
    let child = stage.sandbox.spawn(&program);
    let row = stage.until("idle", "no turn yet").held_by(child.pid());
    stage.agree(&row);
    let content = json!([{"type": "text", "text": "TOOL touch made"}]);
    let message = json!({"type": "user", "message": {"role": "user", "content": content}});
    child.write_line(&message.to_string());
    let row = stage.until("waiting", "permission: Bash touch made").held_by(child.pid());
    stage.agree(&row);
    stage.keep(Store::Claude, &[(&row, "interrupted")]);

    let asked = child.wait_for_stdout("can_use_tool", DEADLINE);
    let asked = lines(&asked).into_iter().find(|event| event["type"] == "control_request");
    let asked = asked.expect("a request");
    let allow = json!({"behavior": "allow", "updatedInput": asked["request"]["input"]});
    let answer = json!({"subtype": "success", "request_id": asked["request_id"],
        "response": allow});
    child.write_line(&json!({"type": "control_response", "response": answer}).to_string());
    child.wait_for_stdout("\"type\":\"result\"", DEADLINE);
    let row = stage.until("idle", "turn over").held_by(child.pid());
    stage.agree_on_reply(&row, "tool finished");
    child.close_stdin();
    let output = child.output(DEADLINE).expect_success();
    stage.now().ended("done").used(reported(&output.stdout));
}

#[test]
fn another_store() {
    let stage = Stage::new("p-config-dir");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    stage.sandbox.env("CLAUDE_CONFIG_DIR", stage.sandbox.home().join("elsewhere"));
    let child = claude.headless("HOLD here hello", &[]);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = stage.until_at_work("HOLD here hello").held_by(child.pid());
    stage.agree(&row);
    let outside = crate::looks::Look::take(&stage, &stage.lariat().without_env("CLAUDE_CONFIG_DIR"));
    assert!(outside.rows.is_empty(), "the usual store has no session");
    stage.model.release("here");
    let output = child.output(DEADLINE).expect_success();
    let row = stage.now().ended("done").used(reported(&output.stdout));
    stage.agree_on_reply(&row, "echo: HOLD here hello");
}
