//! What is done through a gateway: ending runs, giving them words, following them.

use std::fs;

use lariat_testkit::{
    DEADLINE, Exit,
    gateway::{Abort, Manner, now, row},
    wait_until,
};
use serde_json::json;

use super::{ONE, TWO, outcome, stage};
use crate::asking::{ask, lariat, list};

#[test]
fn stop_and_kill_go_through_the_gateway_and_end_when_it_says_so() {
    let (sandbox, gateway) = stage("gateway-stop");
    for verb in ["stop", "kill"] {
        gateway.run(ONE);
        gateway.on_abort(Abort::After(2));
        let (code, told) = outcome(&sandbox, &[verb, ONE, "--json"]);
        assert_eq!((code, &told["outcome"]), (0, &json!("stopped")), "{told}");
        assert_eq!(gateway.find(ONE).expect("a session")["status"], "killed", "it had ended when we were told");
        let seen = list(&sandbox);
        seen.expect(ONE, "stopped", None);
        assert!(seen.session(ONE)["reason"].as_str().expect("text").contains("through lariat"));
        let again = outcome(&sandbox, &[verb, ONE, "--json"]);
        assert_eq!((again.0, &again.1["outcome"]), (0, &json!("gone")));
    }
    assert_eq!(gateway.asked("sessions.abort").len(), 2, "what is gone is not asked to end");
    assert_eq!(gateway.asked("sessions.abort")[0], json!({"key": ONE, "clearQueued": true}));
    // A new life ends in its own way.
    gateway.run(ONE);
    gateway.end(ONE, "failed");
    list(&sandbox).expect(ONE, "failed", None);
    // Without a durable wish nothing is asked of the gateway.
    gateway.run(ONE);
    let state = sandbox.state_dir().join("lariat");
    fs::remove_dir_all(&state).expect("our records");
    fs::write(&state, "in the way").expect("a file");
    let (code, told) = outcome(&sandbox, &["kill", ONE, "--json"]);
    assert_eq!((code, &told["outcome"]), (1, &json!("failed")), "{told}");
    assert_eq!(gateway.asked("sessions.abort").len(), 2);
    list(&sandbox).expect(ONE, "working", None);
}

#[test]
fn who_may_end_a_run_is_the_gateway_s_to_say() {
    let (sandbox, gateway) = stage("gateway-no-admin");
    gateway.run(ONE);
    gateway.behave(Manner::GrantsNoAdmin);
    let (code, told) = outcome(&sandbox, &["stop", ONE, "--json"]);
    assert_eq!((code, &told["outcome"]), (0, &json!("stopped")), "{told}");
    list(&sandbox).expect(ONE, "stopped", None);
}

#[test]
fn a_run_in_preparation_is_asked_to_end_until_it_can() {
    let (sandbox, gateway) = stage("gateway-prepared");
    gateway.prepare(ONE);
    gateway.on_abort(Abort::Dropped(2));
    let (code, told) = outcome(&sandbox, &["stop", ONE, "--json"]);
    assert_eq!((code, &told["outcome"]), (0, &json!("stopped")), "{told}");
    assert_eq!(gateway.asked("sessions.abort").len(), 3);
    let seen = list(&sandbox);
    seen.expect(ONE, "stopped", None);
    assert!(seen.session(ONE)["reason"].as_str().expect("text").contains("through lariat"), "{:#}", seen.json);
}

#[test]
fn a_stop_explains_the_end_of_the_run_it_was_asked_of_and_of_no_other() {
    let (sandbox, gateway) = stage("gateway-stale-stop");
    let lose = |updated: u64| {
        // Its gateway was killed in mid run: what it stored when that began tells nothing.
        for (field, value) in
            [("systemSent", json!(true)), ("hasActiveRun", json!(false)), ("updatedAt", json!(updated))]
        {
            gateway.set(ONE, field, value);
        }
        ["status", "startedAt", "endedAt"].iter().for_each(|field| gateway.set(ONE, field, json!(null)));
    };
    // It comes to nothing, and the run to its own end.
    gateway.prepare(ONE);
    gateway.on_abort(Abort::Never);
    let died = lariat(&sandbox, &["stop", ONE]).env("LARIAT_DIE_AT", "openclaw.aborted");
    assert_eq!(sandbox.world().run(&died).exit, Exit::Signal(9));
    gateway.end(ONE, "done");
    list(&sandbox).expect(ONE, "done", None);
    gateway.run(ONE);
    gateway.end(ONE, "failed");
    list(&sandbox).expect(ONE, "failed", None);
    gateway.run(ONE);
    lose(now() + 60_000);
    list(&sandbox).expect(ONE, "unknown", None);
    // Nobody has seen the run end that is gone now: it may be the one.
    lose(now());
    list(&sandbox).expect(ONE, "stopped", None);
    // What was seen to come true explains no run that came later.
    gateway.prepare(ONE);
    gateway.on_abort(Abort::Dropped(1));
    assert_eq!(ask(&sandbox, &["stop", ONE]).code(), 0);
    let seen = list(&sandbox);
    assert!(seen.session(ONE)["reason"].as_str().expect("text").contains("through lariat"), "{:#}", seen.json);
    gateway.run(ONE);
    gateway.end(ONE, "killed");
    assert_eq!(list(&sandbox).session(ONE)["reason"], "its last run was aborted");
    gateway.run(ONE);
    lose(now());
    list(&sandbox).expect(ONE, "unknown", None);
}

#[test]
fn a_kill_that_a_crash_cut_short_is_finished_through_the_gateway() {
    for point in ["stop.wished", "openclaw.aborted"] {
        let (sandbox, gateway) = stage("gateway-crash");
        gateway.on_abort(Abort::Never);
        gateway.run(ONE);
        gateway.run(TWO);
        gateway.end(TWO, "done");
        let killed = lariat(&sandbox, &["kill", ONE]).env("LARIAT_DIE_AT", point);
        assert_eq!(sandbox.world().run(&killed).exit, Exit::Signal(9), "it died at {point}");
        // Looking shows it and does nothing.
        let asked = gateway.asked("sessions.abort").len();
        let seen = list(&sandbox);
        seen.expect(ONE, "working", None);
        assert!(seen.session(ONE)["reason"].as_str().expect("text").contains("kill asked"), "{:#}", seen.json);
        assert_eq!(gateway.asked("sessions.abort").len(), asked);
        // The next verb that acts finishes it, whatever that is about.
        gateway.on_abort(Abort::AtOnce);
        let other = ask(&sandbox, &["stop", TWO]);
        assert_eq!(other.code(), 0, "{other:?}");
        assert!(other.stderr.contains("finished what was cut short"), "{other:?}");
        list(&sandbox).expect(ONE, "stopped", None);
        // A later run is another life.
        gateway.run(ONE);
        ask(&sandbox, &["stop", TWO]);
        list(&sandbox).expect(ONE, "working", None);
    }
}

#[test]
fn peek_send_and_wait_through_the_gateway() {
    let (sandbox, gateway) = stage("gateway-talk");
    gateway.put(row(ONE));
    gateway.set(ONE, "label", json!("fix-login"));
    gateway.say(ONE, json!({"role": "user", "content": "first"}));
    gateway.say(
        ONE,
        json!({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"},
            {"type": "text", "text": "the \u{1b}[31manswer"},
            {"type": "toolCall", "name": "exec", "arguments": {"command": "make test"}}], "timestamp": 1_794_751_058_435u64}),
    );
    gateway.say(ONE, json!({"role": "toolResult", "content": "ok"}));
    let peeked = ask(&sandbox, &["peek", "fix-login", "-n", "2", "--json"]).json();
    assert_eq!(peeked["reply"], "the \u{1b}[31manswer");
    let roles: Vec<&str> =
        peeked["messages"].as_array().expect("a list").iter().filter_map(|m| m["role"].as_str()).collect();
    assert_eq!(roles, ["person", "agent", "tool"]);
    assert_eq!(peeked["messages"][2]["text"], "exec make test");
    assert!(!ask(&sandbox, &["peek", "fix-login"]).stdout.contains('\u{1b}'), "nothing acts on a terminal");

    let (code, told) = outcome(&sandbox, &["send", "fix-login", "go", "on", "--json"]);
    assert_eq!((code, &told["outcome"]), (0, &json!("sent")), "{told}");
    let [sent] = gateway.asked("chat.send").try_into().expect("one message");
    assert_eq!((&sent["sessionKey"], &sent["message"]), (&json!(ONE), &json!("go on")));
    assert_eq!(sent["idempotencyKey"].as_str().map(str::len), Some(36));
    list(&sandbox).expect(ONE, "working", None);
    let (code, told) = outcome(&sandbox, &["send", ONE, "again", "--json"]);
    assert_eq!((code, &told["outcome"]), (3, &json!("busy")), "{told}");
    assert_eq!(gateway.asked("chat.send").len(), 1);
    let late = ask(&sandbox, &["wait", ONE, "--timeout", "1ms"]);
    assert_eq!(late.code(), 4, "{late:?}");
    let waiting = sandbox.spawn(&lariat(&sandbox, &["wait", ONE]));
    gateway.end(ONE, "done");
    assert_eq!(waiting.output(lariat_testkit::DEADLINE).code(), 0);
    // One that is deleted meanwhile is not sent to in silence.
    gateway.delete(ONE);
    assert_eq!(ask(&sandbox, &["send", ONE, "hello"]).code(), 2);
    assert_eq!(ask(&sandbox, &["peek", ONE]).code(), 2);
}

#[test]
fn what_was_not_answered_may_have_arrived_and_the_same_key_says_it_once() {
    let (sandbox, gateway) = stage("gateway-once");
    gateway.put(row(ONE));
    let send = |key: &str| {
        let (code, told) = outcome(&sandbox, &["send", ONE, "go", "on", "--key", key, "--json"]);
        (code, told["outcome"].as_str().expect("an outcome").to_owned(), told["reason"].to_string())
    };
    gateway.behave(Manner::TakesInSilence);
    let (code, outcome, reason) = send("once");
    assert_eq!((code, outcome.as_str()), (4, "stalled"), "{reason}");
    assert!(reason.contains("whether it arrived is not known"), "{reason}");
    gateway.behave(Manner::Well);
    list(&sandbox).expect(ONE, "working", None);
    gateway.end(ONE, "done");
    assert_eq!(send("once").1, "sent");
    list(&sandbox).expect(ONE, "done", None);
    assert_eq!(send("another").1, "sent");
    list(&sandbox).expect(ONE, "working", None);
    // What never went out did not arrive.
    gateway.end(ONE, "done");
    list(&sandbox);
    gateway.behave(Manner::Http(503));
    assert_eq!((send("later").1.as_str(), gateway.asked("chat.send").len()), ("unknown", 3));
}

#[test]
fn what_a_gateway_s_session_says_is_followed_until_its_run_is_over() {
    let (sandbox, gateway) = stage("gateway-follow");
    let answer = |text: &str| gateway.say(ONE, json!({"role": "assistant", "content": text, "timestamp": now()}));
    gateway.run(ONE);
    answer("said before");
    let following = sandbox.spawn(&lariat(&sandbox, &["peek", ONE, "-f", "--json"]));
    let shows = |words: &str| wait_until(words, DEADLINE, || following.stdout().contains(words));
    shows("said before");
    answer("said meanwhile");
    shows("said meanwhile");
    answer("the last words");
    gateway.end(ONE, "done");
    let output = following.output(DEADLINE);
    assert_eq!(output.code(), 0, "{output:?}");
    for words in ["said meanwhile", "the last words"] {
        assert_eq!(output.stdout.matches(words).count(), 1, "each once: {}", output.stdout);
    }
    // Over already, it is shown and no more; and a gateway that goes away is no end.
    assert_eq!(ask(&sandbox, &["peek", ONE, "-f"]).code(), 0);
    gateway.run(ONE);
    let following = sandbox.spawn(&lariat(&sandbox, &["peek", ONE, "-f", "--json"]));
    wait_until("it is followed", DEADLINE, || following.stdout().contains("the last words"));
    gateway.behave(Manner::Http(503));
    let output = following.output(DEADLINE);
    assert_eq!((output.code(), output.stderr.contains("HTTP 503")), (5, true), "{output:?}");
}
