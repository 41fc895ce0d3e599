//! What the daemon tells those who listen, and when.

use std::fs;

use lariat_testkit::{Child, DEADLINE, Sandbox, Signal};
use serde_json::{Value, json};

use super::{heard, kill, listen, names, pid, start, status, wait_for_event};
use crate::asking::{ask, id, lariat, list};
use crate::claude_store::ClaudeStore;

#[test]
fn an_entry_that_is_torn_ends_no_session() {
    let sandbox = Sandbox::new("torn");
    let claude = ClaudeStore::of(&sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    let entry = claude.register(&agent, &id(1)).says("idle");
    let other = sandbox.lookalike("claude", &[]);
    let beside = claude.register(&other, &id(2)).says("idle");
    start(&sandbox);
    let listener = listen(&sandbox);
    // Its process truncated it and was held up, for so long that nobody waits for it any more.
    let torn = fs::File::create(&entry.path).expect("an entry");
    torn.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(10)).expect("a time");
    // Whoever tells of the other one has looked since.
    drop(beside.says("busy"));
    wait_for_event(&listener, &id(2), "session.working");
    assert_eq!(ask(&sandbox, &["ls", "--json"]).json()["unbound"].as_array().map(Vec::len), Some(1));
    drop(entry.says("busy"));
    wait_for_event(&listener, &id(1), "session.working");
    assert_eq!(names(&listener, &id(1)), ["session.working"]);
    drop((agent, other));
}

/// Takes one session through its life and gives the events about it.
pub(super) fn life(sandbox: &Sandbox, listener: &Child, number: u64) -> Vec<String> {
    let claude = ClaudeStore::of(sandbox);
    let one = id(number);
    let agent = sandbox.lookalike("claude", &[]);
    let entry = claude.register(&agent, &one).says("busy");
    let talk = claude.session(&one).asked("fix it").calls("Bash", json!({"command": "make"}));
    wait_for_event(listener, &one, "session.working");
    let entry = entry.waits_for("permission prompt");
    wait_for_event(listener, &one, "session.waiting");
    let entry = entry.says("idle");
    drop(talk.result("made").answered("done"));
    wait_for_event(listener, &one, "session.idle");
    entry.remove();
    agent.signal(Signal::KILL);
    agent.wait(DEADLINE);
    wait_for_event(listener, &one, "session.ended");
    names(listener, &one)
}

#[test]
fn a_life_is_told_step_by_step_with_and_without_a_daemon() {
    let expected = ["session.started", "session.working", "session.waiting", "session.idle", "session.ended"];
    let sandbox = Sandbox::new("life");
    let alone = listen(&sandbox);
    assert_eq!(life(&sandbox, &alone, 1), expected);
    alone.signal(Signal::KILL);
    start(&sandbox);
    let through = listen(&sandbox);
    assert_eq!(life(&sandbox, &through, 2), expected);
    let events = heard(&through);
    let ended = events.iter().find(|e| e["event"] == "session.ended").expect("an end");
    assert_eq!((&ended["session"]["status"], &ended["was"]), (&json!("done"), &json!("idle")));
    let asked = events.iter().find(|e| e["event"] == "session.waiting").expect("a question");
    assert_eq!(asked["session"]["reason"], "permission: Bash make");
    // What is remembered is what was told; and one can go on from any event.
    let remembered = ask(&sandbox, &["events"]);
    let told: Vec<String> = events[1..].iter().map(Value::to_string).collect();
    let again: Vec<String> =
        remembered.stdout.lines().map(|l| serde_json::from_str::<Value>(l).expect("JSON").to_string()).collect();
    assert_eq!(again, told);
    let since = events[2]["id"].as_str().expect("an id");
    let later = sandbox.spawn(&lariat(&sandbox, &["events", "-f", "--since", since]));
    later.wait_for_stdout("session.ended", DEADLINE);
    assert_eq!(heard(&later)[0], events[3]);
    // Another daemon knows nothing of it: the gap is told.
    kill(&sandbox, pid(&sandbox));
    start(&sandbox);
    let later = sandbox.spawn(&lariat(&sandbox, &["events", "-f", "--since", since]));
    later.wait_for_stdout("\"event\":\"reset\"", DEADLINE);
}

#[test]
fn s02_a_store_that_hangs_ends_nothing_for_those_who_listen() {
    let sandbox = Sandbox::new("d02");
    let claude = ClaudeStore::of(&sandbox);
    let one = id(1);
    let agent = sandbox.lookalike("claude", &[]);
    let entry = claude.register(&agent, &one).says("busy");
    drop(claude.session(&one).asked("fix it"));
    // As long as there is nothing to read from, nobody waits.
    let fifo = sandbox.root().join("silent");
    sandbox.env("LARIAT_PAUSE_AT", "claude.observe");
    sandbox.env("LARIAT_PAUSE_ON", &fifo);
    start(&sandbox);
    sandbox.without_env("LARIAT_PAUSE_AT");
    let listener = listen(&sandbox);
    sandbox.run(["mkfifo", fifo.to_str().expect("UTF-8")]).expect_success();
    drop(entry.says("idle"));
    listener.wait_for_stdout("adapter.failed", DEADLINE);
    agent.tell("ready");
    let claude_is = |status: &Value| {
        let all = status["adapters"].as_array().expect("adapters").clone();
        all.into_iter().find(|a| a["name"] == "claude").expect("claude")["ok"].clone()
    };
    assert_eq!(claude_is(&status(&sandbox)), json!(false));
    // The pipe gets a writer: the store answers again.
    fs::remove_file(&fifo).expect("no more hanging");
    claude.put("sessions/hint.txt", "");
    listener.wait_for_stdout("adapter.recovered", DEADLINE);
    wait_for_event(&listener, &one, "session.idle");
    let told = names(&listener, &one);
    assert!(!told.iter().any(|n| n == "session.ended" || n == "session.started"), "{told:?}");
}

#[test]
fn an_end_that_is_told_at_once_is_the_one_that_a_look_tells() {
    let sandbox = Sandbox::new("at-once");
    let claude = ClaudeStore::of(&sandbox);
    start(&sandbox);
    let listener = listen(&sandbox);
    let mut at_once = 0;
    for (n, state) in ["idle", "open", "frozen", "waiting"].into_iter().enumerate() {
        let one = id(n as u64 + 1);
        let agent = sandbox.lookalike("claude", &[]);
        let talk = claude.session(&one).asked("fix it");
        drop(match state {
            "open" | "waiting" => talk.calls("Bash", json!({"command": "make"})),
            _ => talk.answered("done"),
        });
        let entry = claude.register(&agent, &one);
        let (entry, word) = match state {
            "idle" => (entry.says("idle"), "session.idle"),
            "waiting" => (entry.waits_for("permission prompt"), "session.waiting"),
            _ => (entry.says("busy"), "session.working"),
        };
        wait_for_event(&listener, &one, word);
        agent.signal(Signal::KILL);
        agent.wait(DEADLINE);
        wait_for_event(&listener, &one, "session.ended");
        let told = heard(&listener).into_iter().rfind(|e| e["event"] == "session.ended").expect("an end");
        at_once += usize::from(told["session"]["because"].to_string().contains("has ended"));
        // The same words, but for how the end was proven.
        let bare = |mut row: Value| {
            row["because"] = Value::Null;
            row
        };
        let looked = list(&sandbox).session(&one).clone();
        assert_eq!(bare(told["session"].clone()), bare(looked), "{state}");
        drop(entry);
    }
    assert!(at_once > 0, "every end took a look");
    assert_eq!(heard(&listener).iter().filter(|e| e["event"] == "session.ended").count(), 4, "each once");
}
