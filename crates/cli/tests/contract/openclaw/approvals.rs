//! A run of the real gateway that asks leave for a command.

use lariat_testkit::{DEADLINE, agents::OpenClaw, wait_for};
use serde_json::json;

use super::{good_look, until};
use crate::looks::Stage;

#[test]
fn a_run_that_asks_leave_waits_until_it_is_given() {
    let stage = Stage::new("openclaw-asks");
    let openclaw = OpenClaw::install_asking(&stage.sandbox, &stage.model);
    stage.sandbox.env("OPENCLAW_GATEWAY_URL", openclaw.url());
    stage.sandbox.env("OPENCLAW_GATEWAY_TOKEN", OpenClaw::TOKEN);
    let gateway = openclaw.start();
    openclaw.wait(&gateway);
    // Without one who could give it, leave is refused at once.
    let mut owner = openclaw.approver();
    let made = owner.call("sessions.create", &json!({"label": "one", "cwd": stage.sandbox.work()}));
    let key = made["key"].as_str().expect("a key").to_owned();
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
