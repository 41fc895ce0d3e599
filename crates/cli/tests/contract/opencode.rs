//! OpenCode without a terminal: `opencode run`, and every way in which that goes on and ends. With a
//! terminal and by a server: [`terminal`], [`attached`]. Launched by lariat: [`launched`].
//!
//! Each start of the real program takes seconds of CPU, so one test goes through several states.

mod attached;
mod launched;
mod terminal;

use lariat_testkit::{Child, DEADLINE, Exit, Signal, agents::OpenCode, record::Store};
use serde_json::Value;

use crate::looks::{Row, Stage, Tokens, lines};

/// The session that OpenCode itself names on stdout.
fn session(stdout: &str) -> String {
    lines(stdout)[0]["sessionID"].as_str().expect("an id").to_owned()
}

/// What OpenCode says that a session has used: the sum of its steps.
fn reported(opencode: &OpenCode<'_>, id: &str) -> Tokens {
    let export = opencode.export(id);
    let mut sum = Tokens::default();
    for message in export["messages"].as_array().expect("messages") {
        let tokens = &message["info"]["tokens"];
        let count = |value: &Value| value.as_u64().unwrap_or_default();
        sum.input += count(&tokens["input"]);
        sum.output += count(&tokens["output"]) + count(&tokens["reasoning"]);
        sum.cache_read += count(&tokens["cache"]["read"]);
        sum.cache_write += count(&tokens["cache"]["write"]);
    }
    assert_ne!(sum, Tokens::default(), "{export}");
    sum
}

/// The ids that `opencode session list` shows.
fn listed(stage: &Stage) -> Vec<String> {
    let output = stage.sandbox.run(["opencode", "session", "list", "--format", "json"]).expect_success();
    let all: Value = serde_json::from_str(&output.stdout).expect("a list");
    all.as_array().expect("a list").iter().map(|s| s["id"].as_str().expect("an id").to_owned()).collect()
}

#[track_caller]
fn working(stage: &Stage, prompt: &str, child: &Child) -> Row {
    let row = stage.until_look(&format!("{prompt:?} at work"), |look| {
        look.rows.iter().find(|row| row.is_at_work(prompt)).cloned()
    });
    row.held_by(child.pid())
}

#[test]
fn in_a_tool_then_thinking_then_done() {
    let stage = Stage::new("run-tool");
    let opencode = OpenCode::install(&stage.sandbox, &stage.model);
    stage.sandbox.run(["mkfifo", "pipe"]).expect_success();
    let prompt = "THEN later TOOL touch started; cat pipe";
    let child = opencode.run(prompt, &[]);
    stage.until_started();
    let doing = "bash touch started; cat pipe";
    let row = stage.until("working", &format!("running {doing}")).held_by(child.pid());
    let row = row.has("tool", doing).has("prompt", prompt).has("model", "scripted/scripted-1");
    let row = row.has("cwd", stage.sandbox.work().to_str().unwrap());
    stage.agree(&row);
    stage.keep(Store::OpenCode, &[(&row, "interrupted")]);
    stage.sandbox.run(["sh", "-c", "echo > pipe"]).expect_success();
    stage.model.wait_for_hold("later", DEADLINE);
    let row = stage.until_at_work(prompt).held_by(child.pid());
    stage.agree(&row);
    stage.model.release("later");
    let output = child.output(DEADLINE).expect_success();
    let id = session(&output.stdout);
    let row = stage.now().ended("done").has("native_id", id.as_str()).used(reported(&opencode, &id));
    assert_eq!(row.0["cost_usd"], opencode.export(&id)["info"]["cost"], "{row}");
    stage.agree_on_reply(&row.has("title", "Scripted title"), "tool finished");
}

#[test]
fn failed() {
    let stage = Stage::new("run-failed");
    let opencode = OpenCode::install(&stage.sandbox, &stage.model);
    let output = opencode.run("FAIL 400", &[]).output(DEADLINE);
    assert_eq!(output.code(), 1);
    let events = lines(&output.stdout);
    let said = events.iter().find(|event| event["type"] == "error").expect("a failure");
    let row = stage.now().ended("failed").has("native_id", session(&output.stdout));
    let row = row.has("reason", said["error"]["data"]["message"].clone());
    stage.agree(&row);
    stage.keep(Store::OpenCode, &[(&row, "failed")]);
}

#[test]
fn four_in_one_directory_ended_one_by_one() {
    let stage = Stage::new("run-signals");
    let opencode = OpenCode::install(&stage.sandbox, &stage.model);
    let ways = [(Signal::INT, 2), (Signal::HUP, 1), (Signal::TERM, 15), (Signal::KILL, 9)];
    let runs = ways.map(|(signal, number)| {
        let prompt = format!("HOLD gate{number} hello");
        let child = opencode.run(&prompt, &[]);
        // One after the other: the first of all makes the database.
        stage.model.wait_for_hold(&format!("gate{number}"), DEADLINE);
        (signal, number, child, prompt)
    });
    let rows = runs.each_ref().map(|(_, _, child, prompt)| working(&stage, prompt, child));
    let look = stage.look();
    assert_eq!((look.rows.len(), look.live().len(), look.unbound.len()), (4, 4, 0));
    for (i, (signal, number, child, _)) in runs.iter().enumerate() {
        child.signal(*signal);
        assert_eq!(child.wait(DEADLINE), Exit::Signal(*number));
        let look = stage.look();
        look.row(rows[i].id()).ended("interrupted");
        for other in &rows[i + 1..] {
            look.row(other.id()).has("status", "working").has("pid", other.0["pid"].clone());
        }
    }
    let kept = rows.each_ref().map(|row| (stage.look().row(row.id()), "interrupted"));
    stage.keep(Store::OpenCode, &kept.each_ref().map(|(row, status)| (row, *status)));
    let mut shown = rows.map(|row| row.id().to_owned());
    let mut own = listed(&stage);
    shown.sort();
    own.sort();
    assert_eq!(own, shown);
}

#[test]
fn killed_in_a_tool_then_resumed_and_forked() {
    let stage = Stage::new("run-resumed");
    let opencode = OpenCode::install(&stage.sandbox, &stage.model);
    stage.sandbox.run(["mkfifo", "pipe"]).expect_success();
    let prompt = "TOOL (touch started; cat pipe; true); true";
    let child = opencode.run(prompt, &[]);
    stage.until_started();
    let row = stage.until("working", "running bash").held_by(child.pid());
    child.signal(Signal::KILL);
    assert_eq!(child.wait(DEADLINE), Exit::Signal(9));
    let id = row.id().to_owned();
    stage.now().ended("interrupted").has("native_id", id.as_str());

    let child = opencode.run("HOLD here again", &["--session", &id]);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_at_work(prompt);
    // Its arguments name it first; from its first line in the log on, that does.
    let row = stage.until_look("its log names it", |look| {
        let named = |row: &&Row| row.0["because"].to_string().contains("its own lines in the log");
        look.find(&id).filter(named).cloned()
    });
    let row = row.held_by(child.pid()).has("native_id", id.as_str());
    stage.agree(&row);
    stage.model.release("here");
    child.output(DEADLINE).expect_success();
    let row = stage.now().ended("done").has("native_id", id.as_str());
    stage.agree_on_reply(&row, "echo: HOLD here again");

    let child = opencode.run("HOLD aside go on", &["--session", &id, "--fork"]);
    stage.model.wait_for_hold("aside", DEADLINE);
    let fork = stage.until_look("the fork at work", |look| {
        let fork = look.rows.iter().find(|row| row.id() != id)?;
        (look.unbound.is_empty() && fork.is("working", "")).then(|| fork.clone())
    });
    let fork = fork.held_by(child.pid());
    stage.look().row(&id).ended("done");
    stage.model.release("aside");
    let output = child.output(DEADLINE).expect_success();
    assert_eq!(session(&output.stdout), fork.id());
    let look = stage.look();
    let fork = look.row(fork.id()).ended("done").used(reported(&opencode, fork.id()));
    stage.agree_on_reply(&fork, "echo: HOLD aside go on");
    let first = look.row(&id).ended("done");
    stage.keep(Store::OpenCode, &[(&first, "done"), (&fork, "done")]);
}

#[test]
fn with_a_sub_agent() {
    let stage = Stage::new("run-sub-agent");
    let opencode = OpenCode::install(&stage.sandbox, &stage.model);
    let child = opencode.run("AGENT HOLD below hello", &[]);
    stage.model.wait_for_hold("below", DEADLINE);
    let row = stage.until("working", "running task").held_by(child.pid());
    stage.agree(&row);
    stage.keep(Store::OpenCode, &[(&row, "interrupted")]);
    stage.model.release("below");
    child.output(DEADLINE).expect_success();
    stage.agree_on_reply(&stage.now().ended("done"), "tool finished");
}
