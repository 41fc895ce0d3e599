//! A run of the real gateway that asks leave for a command, or puts a question.

use lariat_testkit::agents::{Client, OpenClaw};
use lariat_testkit::{Child, DEADLINE, wait_for};
use serde_json::json;

use super::{good_look, until};
use crate::looks::Stage;

/// A gateway that runs, who may give leave there, and a session of theirs.
fn begin(stage: &Stage, openclaw: &OpenClaw<'_>) -> (Child, Client, String) {
    stage.sandbox.env("OPENCLAW_GATEWAY_URL", openclaw.url());
    stage.sandbox.env("OPENCLAW_GATEWAY_TOKEN", OpenClaw::TOKEN);
    let gateway = openclaw.start();
    openclaw.wait(&gateway);
    let mut owner = openclaw.approver();
    let made = owner.call("sessions.create", &json!({"label": "one", "cwd": stage.sandbox.work()}));
    let key = made["key"].as_str().expect("a key").to_owned();
    (gateway, owner, key)
}

#[test]
fn a_run_that_asks_leave_waits_until_it_is_given() {
    let stage = Stage::new("openclaw-asks");
    let openclaw = OpenClaw::install_asking(&stage.sandbox, &stage.model);
    // Without one who could give it, leave is refused at once.
    let (_gateway, mut owner, key) = begin(&stage, &openclaw);
    // A run may do what the one who began it may.
    let words = "CALL exec {\"command\": \"touch made\"}";
    owner.call("chat.send", &json!({"sessionKey": key, "message": words, "idempotencyKey": "one"}));
    let row = wait_for("it waits", DEADLINE, || {
        let row = good_look(&stage).row(&key);
        (row["status"] == "waiting").then_some(row)
    });
    assert_eq!((&row["reason"], &row["live"]), (&json!("permission: exec touch made"), &json!(true)), "{row:#}");
    let asked = owner.call("exec.approval.list", &json!({}));
    assert_eq!(asked.as_array().map(Vec::len), Some(1), "{asked:#}");
    assert!(!stage.sandbox.work().join("made").exists());
    owner.call("exec.approval.resolve", &json!({"id": asked[0]["id"], "decision": "allow-once"}));
    wait_for("it goes on", DEADLINE, || (good_look(&stage).row(&key)["status"] != "waiting").then_some(()));
    let row = until(&stage, &key, "done");
    assert!(stage.sandbox.work().join("made").exists(), "{row:#}");
}

/// As its tool `ask_user` does it, which not every profile offers.
#[test]
fn a_run_that_puts_a_question_waits_until_that_is_answered() {
    let stage = Stage::new("openclaw-questions");
    let openclaw = OpenClaw::install_asking(&stage.sandbox, &stage.model);
    let (_gateway, mut owner, key) = begin(&stage, &openclaw);
    owner.call("chat.send", &json!({"sessionKey": key, "message": "HOLD here", "idempotencyKey": "one"}));
    stage.model.wait_for_hold("here", DEADLINE);
    until(&stage, &key, "working");
    let question = json!({"questionId": "colour", "header": "Colour", "question": "Red or blue?",
        "options": [{"label": "Red"}, {"label": "Blue"}], "isOther": true});
    let asked = json!({"id": "ask_one", "questions": [question], "sessionKey": key, "timeoutMs": 900_000});
    owner.call("question.request", &asked);
    let row = until(&stage, &key, "waiting");
    assert_eq!((&row["reason"], &row["live"]), (&json!("question: Red or blue?"), &json!(true)), "{row:#}");
    let answers = json!({"answers": {"colour": ["Blue"]}});
    owner.call("question.resolve", &json!({"id": "ask_one", "answers": answers}));
    until(&stage, &key, "working");
    owner.call("sessions.abort", &json!({"key": key}));
    until(&stage, &key, "stopped");
}
