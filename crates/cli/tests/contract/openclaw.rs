//! OpenClaw: the real gateway in every state it has, and `lariat` beside it.
//!
//! A gateway takes long to start, so one test goes through all states of one gateway, which is
//! killed and started again on the way.

mod approvals;
mod devices;
mod many;

use std::fs;

use lariat_testkit::{DEADLINE, Output, Signal, agents::OpenClaw, wait_for};
use serde_json::{Value, json};

use crate::looks::Stage;

/// What lariat says of all sessions, and how it said it.
struct Seen {
    output: Output,
    json: Value,
}

impl Seen {
    #[track_caller]
    fn row(&self, key: &str) -> Value {
        let rows = self.json["sessions"].as_array().expect("sessions");
        let row = rows.iter().find(|row| row["native_id"] == key);
        row.unwrap_or_else(|| panic!("no row of {key}: {}", self.output.stdout)).clone()
    }

    fn has(&self, key: &str) -> bool {
        self.json["sessions"].as_array().expect("sessions").iter().any(|row| row["native_id"] == key)
    }

    /// The gateway has not answered, for this reason, and nothing of it is called ended.
    #[track_caller]
    fn expect_silent(&self, words: &str, keys: &[&str]) {
        assert_eq!(self.output.code(), 5, "{:?}", self.output);
        let warning = &self.json["warnings"][0];
        assert!(warning["error"].as_str().expect("a warning").contains(words), "{words}: {warning}");
        assert!(warning["last_ok"].is_string(), "{warning}");
        for key in keys {
            let row = self.row(key);
            assert_eq!((&row["status"], &row["live"]), (&json!("unknown"), &Value::Null), "{row:#}");
            assert!(row["reason"].as_str().expect("a reason").contains("last good answer is"), "{row:#}");
        }
    }
}

#[track_caller]
fn run(stage: &Stage, args: &[&str]) -> Output {
    // On a busy machine it may be slow, and is not silent for that.
    stage.sandbox.world().run(&stage.lariat().args(args).args(["--deadline", "30s"]))
}

#[track_caller]
fn look(stage: &Stage) -> Seen {
    let output = run(stage, &["ls", "-a", "--json"]);
    let json = output.json();
    Seen { output, json }
}

/// A look at a gateway that answers.
#[track_caller]
fn good_look(stage: &Stage) -> Seen {
    let seen = look(stage);
    assert_eq!((seen.output.code(), &seen.json["warnings"]), (0, &json!([])), "{:?}", seen.output);
    seen
}

/// Waits until a session is as wanted; on the way it is at work or was never anything else.
#[track_caller]
fn until(stage: &Stage, key: &str, status: &str) -> Value {
    wait_for(&format!("{key} {status}"), DEADLINE, || {
        let row = good_look(stage).row(key);
        let there = row["status"] == status;
        assert!(there || row["status"] == "working", "waiting for {status}: {row:#}");
        there.then_some(row)
    })
}

#[track_caller]
fn send(stage: &Stage, key: &str, text: &str) {
    let sent = run(stage, &["send", key, text, "--json"]);
    assert_eq!((sent.code(), &sent.json()["outcome"]), (0, &json!("sent")), "{sent:?}");
}

/// Gives a session a prompt that the model holds, and waits until it does.
#[track_caller]
fn hold(stage: &Stage, key: &str, gate: &str) {
    send(stage, key, &format!("HOLD {gate} hello"));
    stage.model.wait_for_hold(gate, DEADLINE);
    let row = good_look(stage).row(key);
    assert_eq!((&row["status"], &row["live"], &row["pid"]), (&json!("working"), &json!(true), &Value::Null), "{row:#}");
}

#[test]
fn a_gateway_through_all_its_states() {
    let stage = Stage::new("openclaw");
    let openclaw = OpenClaw::install(&stage.sandbox, &stage.model);
    stage.sandbox.env("OPENCLAW_GATEWAY_URL", openclaw.url());
    stage.sandbox.env("OPENCLAW_GATEWAY_TOKEN", OpenClaw::TOKEN);
    let gateway = openclaw.start();
    openclaw.wait(&gateway);
    assert_eq!(good_look(&stage).json["sessions"], json!([]));

    // Created, and never run.
    let call = |method: &str, params: Value| openclaw.client().call(method, &params);
    let create = |label: &str| {
        let made = call("sessions.create", json!({"label": label, "cwd": stage.sandbox.work()}));
        made["key"].as_str().expect("a key").to_owned()
    };
    let (one, two) = (create("one"), create("two"));
    let row = good_look(&stage).row(&one);
    assert_eq!((&row["status"], &row["reason"]), (&json!("done"), &json!("no turn was ever started")), "{row:#}");
    assert_eq!((&row["id"], &row["name"]), (&json!(format!("openclaw:{one}")), &json!("one")), "{row:#}");
    assert_eq!((&row["cwd"], &row["host"]), (&json!(stage.sandbox.work()), &Value::Null), "{row:#}");

    // At work, then done.
    hold(&stage, &one, "first");
    assert!(run(&stage, &["locks", "--json"]).stdout.contains(&one), "it works there");
    let busy = run(&stage, &["send", &one, "more", "--json"]);
    assert_eq!((busy.code(), &busy.json()["outcome"]), (3, &json!("busy")), "{busy:?}");
    let waiting = stage.sandbox.spawn(&stage.lariat().args(["wait", &one, "--deadline", "30s"]));
    stage.model.release("first");
    let row = until(&stage, &one, "done");
    assert_eq!((&row["reason"], &row["live"]), (&json!("turn over"), &json!(false)), "{row:#}");
    assert!(row["ended_at"].is_string() && row["model"] == "scripted-1", "{row:#}");
    assert_eq!(row["tokens"], Value::Null, "the gateway counts its last call only");
    assert_eq!(waiting.output(DEADLINE).code(), 0);
    for verb in ["status", "explain"] {
        let said = run(&stage, &[verb, &one, "--json"]).json();
        assert_eq!((&said["status"], &said["reason"]), (&row["status"], &row["reason"]));
    }
    let peeked = run(&stage, &["peek", "one", "--json"]).json();
    let reply = peeked["reply"].as_str().expect("a reply");
    assert!(reply.starts_with("echo: ") && reply.ends_with("HOLD first hello"), "{peeked:#}");

    // Failed, and well again.
    send(&stage, &one, "FAIL 400");
    let row = until(&stage, &one, "failed");
    assert!(row["reason"].as_str().expect("a reason").contains("LLM request failed"), "{row:#}");
    let said = run(&stage, &["send", &one, "well again", "--wait"]);
    assert_eq!(said.code(), 0, "{said:?}");
    assert!(said.stdout.contains("well again"), "{said:?}");
    for _ in 0..2 {
        let sent = run(&stage, &["send", &one, "only once", "--key", "k", "--wait", "--json"]);
        assert_eq!((sent.code(), &sent.json()["outcome"]), (0, &json!("sent")), "{sent:?}");
    }
    let heard = stage.model.prompts().iter().filter(|prompt| prompt.ends_with("only once")).count();
    assert_eq!(heard, 1, "{:?}", stage.model.prompts());

    // Ended through lariat, and by another client.
    hold(&stage, &one, "second");
    let stopped = run(&stage, &["stop", &one, "--json"]);
    assert_eq!((stopped.code(), &stopped.json()["outcome"]), (0, &json!("stopped")), "{stopped:?}");
    let row = good_look(&stage).row(&one);
    assert_eq!(row["status"], "stopped", "the very next look knows: {row:#}");
    assert!(row["reason"].as_str().expect("a reason").contains("through lariat"), "{row:#}");
    let rows = call("sessions.list", json!({"search": one}))["sessions"].clone();
    assert_eq!((&rows[0]["status"], &rows[0]["hasActiveRun"]), (&json!("killed"), &json!(false)), "{rows:#}");
    hold(&stage, &two, "third");
    call("sessions.abort", json!({"key": two}));
    let row = until(&stage, &two, "stopped");
    assert_eq!(row["reason"], "its last run was aborted", "{row:#}");

    // Deleted.
    let three = create("three");
    assert!(good_look(&stage).has(&three));
    call("sessions.delete", json!({"key": three}));
    assert!(!good_look(&stage).has(&three));

    // Refused, in each way.
    stage.sandbox.env("OPENCLAW_GATEWAY_TOKEN", "another");
    look(&stage).expect_silent("AUTH_TOKEN_MISMATCH", &[&one, &two]);
    stage.sandbox.without_env("OPENCLAW_GATEWAY_TOKEN");
    look(&stage).expect_silent("DEVICE_IDENTITY_REQUIRED", &[&one, &two]);
    stage.sandbox.env("OPENCLAW_GATEWAY_TOKEN", OpenClaw::TOKEN);
    let afar = openclaw.from_afar();
    stage.sandbox.env("OPENCLAW_GATEWAY_URL", afar.url());
    let warned = look(&stage).json["warnings"].to_string();
    assert!(warned.contains("grants no operator.read (granted: none)"), "{warned}");
    stage.sandbox.env("OPENCLAW_GATEWAY_URL", openclaw.url());
    good_look(&stage);

    // Killed in the middle of a run: unknown, not absent and not ended.
    hold(&stage, &one, "fourth");
    gateway.signal(Signal::KILL);
    gateway.wait(DEADLINE);
    let seen = look(&stage);
    seen.expect_silent("connection refused", &[&one, &two]);
    assert_eq!(seen.json["sessions"].as_array().expect("sessions").len(), 2);
    assert!(!run(&stage, &["locks", "--json"]).stdout.contains(&one), "what is remembered claims nothing");

    // Started again it goes on with the run by itself, and lariat can end that.
    let gateway = openclaw.start();
    openclaw.wait(&gateway);
    wait_for("the run to go on", DEADLINE, || {
        let row = good_look(&stage).row(&one);
        assert!(["interrupted", "working"].contains(&row["status"].as_str().expect("a status")), "{row:#}");
        (row["status"] == "working").then_some(())
    });
    let killed = run(&stage, &["kill", &one, "--json"]);
    assert_eq!((killed.code(), &killed.json()["outcome"]), (0, &json!("stopped")), "{killed:?}");
    assert_eq!(good_look(&stage).row(&one)["status"], "stopped");

    // Put away, and still there.
    let away = create("away");
    let rows = call("sessions.list", json!({}));
    let of = rows["sessions"].as_array().expect("sessions").iter().find(|s| s["key"] == away).expect("a session");
    call("sessions.patch", json!({"key": away, "archived": true, "expectedSessionId": of["sessionId"]}));
    let row = good_look(&stage).row(&away);
    assert_eq!(row["status"], "done", "{row:#}");
    assert!(row["because"].to_string().contains("archived there"), "{row:#}");

    // On schedule: how that ended is in its ledger only.
    let job = ["cron", "add", "--name", "job", "--at", "1s", "--message", "FAIL 400", "--session", "isolated"];
    openclaw.run(&[&job[..], &["--no-deliver", "--keep-after-run"]].concat()).expect_success();
    let row = wait_for("a run on schedule to fail", DEADLINE, || {
        let seen = look(&stage);
        let rows = seen.json["sessions"].as_array().expect("sessions");
        let row = rows.iter().find(|row| row["native_id"].as_str().is_some_and(|key| key.contains(":cron:")))?;
        (row["status"] == "failed").then(|| row.clone())
    });
    assert!(row["reason"].as_str().is_some_and(|why| why.contains("LLM request failed")), "{row:#}");

    // Draining: it takes nobody in until its runs are over.
    hold(&stage, &two, "fifth");
    gateway.signal(Signal::TERM);
    let seen = wait_for("the gateway to drain", DEADLINE, || {
        let seen = look(&stage);
        if seen.output.code() == 0 {
            assert_eq!(seen.row(&two)["status"], "working", "it runs on: {:?}", seen.output);
            return None;
        }
        // It says so on the line for a moment, and then takes nobody in.
        seen.expect_silent("look again", &[&one, &two]);
        Some(seen).filter(|s| s.json["warnings"].to_string().contains("HTTP 503"))
    });
    seen.expect_silent("HTTP 503", &[&one, &two]);
    assert!(fs::read_dir(stage.sandbox.home().join(".cache/lariat")).expect("a cache").count() > 0);
    gateway.signal(Signal::KILL);
    gateway.wait(DEADLINE);
}
