//! What is asked by OpenCode's second interface, of which its log and a session's own columns tell nothing.
//!
//! Seen red: without `second::add`; `MIRRORED` not asked; in `could_run`, what the log does not name is nobody's; no `second_since`.

use lariat_testkit::{DEADLINE, Sandbox, Signal, database};
use serde_json::{Value, json};

use crate::{
    asking::{Answer, ask, list},
    moment::now,
    opencode_store::OpenCodeStore,
};

/// A store with sessions that the first interface was never asked anything of.
fn stage(sandbox: &Sandbox, sessions: &[&str]) -> OpenCodeStore {
    let store = OpenCodeStore::of(sandbox);
    store.sql(
        "CREATE TABLE session_message (id text PRIMARY KEY, session_id text NOT NULL, type text NOT NULL, seq integer NOT NULL, \
         time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL)",
    );
    sessions.iter().for_each(|id| drop(store.session_at(id, &sandbox.work(), None, now() - 120_000)));
    store
}

/// The next message of a session.
fn said(store: &OpenCodeStore, session: &str, kind: &str, data: &Value) {
    said_at(store, session, kind, data, now());
}

fn said_at(store: &OpenCodeStore, session: &str, kind: &str, data: &Value, at: i64) {
    let data = data.to_string().replace('\'', "''");
    store.sql(&format!(
        "INSERT INTO session_message SELECT 'm' || (1 + count(*)), '{session}', '{kind}', 1 + count(*), {at}, {at}, '{data}' \
         FROM session_message"
    ));
}

fn answer(finish: &str, content: &Value) -> Value {
    json!({"time": {"created": now(), "completed": now()}, "model": {"id": "m-2", "providerID": "q"}, "content": content,
        "finish": finish, "cost": 0, "tokens": {"input": 120, "output": 5, "reasoning": 2, "cache": {"read": 300, "write": 0}}})
}

#[test]
fn what_the_second_interface_was_asked_is_a_turn() {
    let sandbox = Sandbox::new("opencode-second");
    let store = stage(&sandbox, &["ses_well", "ses_bad", "ses_cut", "ses_open", "ses_tool", "ses_never"]);
    let ask_of = |id: &str| said(&store, id, "user", &json!({"time": {"created": now()}, "text": "fix it"}));
    ["ses_well", "ses_bad", "ses_cut", "ses_open", "ses_tool"].iter().for_each(|id| ask_of(id));
    said(&store, "ses_well", "assistant", &answer("stop", &json!([{"type": "text", "text": "ok"}])));
    said(&store, "ses_well", "model-switched", &json!({"odd": true}));
    let error = json!({"time": {"created": 1, "completed": 2}, "content": [], "finish": "error",
        "error": {"type": "unknown", "message": "HTTP 400: no"}});
    said(&store, "ses_bad", "assistant", &error);
    let state =
        json!({"status": "error", "input": {}, "error": {"type": "unknown", "message": "Tool execution interrupted"}});
    said(
        &store,
        "ses_cut",
        "assistant",
        &answer("tool-calls", &json!([{"type": "tool", "name": "bash", "state": state}])),
    );
    let state = json!({"status": "running", "input": {"command": "make"}});
    let runs =
        json!({"time": {"created": 1}, "content": [{"type": "tool", "id": "c", "name": "bash", "state": state}]});
    said(&store, "ses_tool", "assistant", &runs);
    let seen = list(&sandbox);
    assert_eq!(seen.warnings(), [""; 0]);
    for (id, status, reason) in [
        ("ses_well", "done", "turn over"),
        ("ses_bad", "failed", "HTTP 400: no"),
        ("ses_cut", "stopped", "turn aborted in a tool"),
        ("ses_open", "interrupted", "cut off in the middle of a turn"),
        ("ses_tool", "interrupted", "cut off in the middle of a turn (running bash make)"),
        ("ses_never", "done", "no turn was ever started"),
    ] {
        seen.expect(id, status, None);
        assert_eq!(seen.session(id)["reason"], reason, "{id}");
    }
    let row = seen.session("ses_well");
    let tokens = json!({"input": 120, "output": 7, "cache_read": 300, "cache_write": 0});
    assert_eq!((&row["tokens"], &row["cost_usd"]), (&tokens, &Value::Null), "{row:#}");
    assert_eq!((&row["prompt"], &row["model"]), (&json!("fix it"), &json!("q/m-2")), "{row:#}");
    let used = ask(&sandbox, &["usage", "ses_well", "--json"]).json();
    assert_eq!(used["total"]["tokens"], tokens, "{used:#}");

    let peeked = ask(&sandbox, &["peek", "ses_well", "--json"]).json();
    assert_eq!(peeked["reply"], "ok", "{peeked:#}");
    let all = ask(&sandbox, &["peek", "ses_cut", "--all", "--json"]);
    assert!(all.stdout.contains("bash"), "{all:?}");

    // A server could run what is open; it names none of them, though its log is read whole.
    let server = sandbox.lookalike("opencode", &["serve"]);
    store.logs(&server, "aaaa", "message=init count=1");
    ask_of("ses_open");
    // Another that was at it in the first one's way says nothing of this turn.
    let other = sandbox.lookalike("opencode", &["run"]);
    store.logs(&other, "bbbb", "message=loop session.id=ses_open step=0");
    other.signal(Signal::KILL);
    drop(other);
    for args in [&["ls", "--json"][..], &["ls", "-a", "--json"]] {
        let seen = Answer::of(&ask(&sandbox, args));
        seen.expect("ses_open", "unknown", None);
        assert_eq!(seen.session("ses_open")["live"], Value::Null, "{:#}", seen.json);
        assert!(seen.find("ses_well").is_none_or(|row| row["status"] == "done"), "{:#}", seen.json);
    }
    server.signal(Signal::KILL);
    drop(server);
    list(&sandbox).expect("ses_open", "interrupted", None);
}

/// OpenCode 1.16 to 1.17.12, if it was told to (`OPENCODE_EXPERIMENTAL`), stored what the first interface was asked in the
/// second one's way, too.
#[test]
fn a_mirror_of_the_first_interface_is_no_turn_and_uses_nothing() {
    let sandbox = Sandbox::new("opencode-mirror");
    let store = stage(&sandbox, &[]);
    let at = now() - 120_000;
    let used = json!({"input": 120, "output": 5, "reasoning": 2, "cache": {"read": 300, "write": 0}});
    let first = json!({"role": "assistant", "time": {"created": at + 1, "completed": at + 2}, "finish": "stop",
        "modelID": "m-1", "providerID": "p", "cost": 0, "tokens": used});
    let text = json!({"type": "text", "text": "1", "time": {"start": 1, "end": 2}});
    drop(store.session_at("ses_first", &sandbox.work(), None, at).asked("one").message(&first, &[text]));
    store
        .sql("UPDATE session SET tokens_input = 120, tokens_output = 5, tokens_reasoning = 2, tokens_cache_read = 300");
    let tokens = json!({"input": 120, "output": 7, "cache_read": 300, "cache_write": 0});
    let mirror = [
        ("user", json!({"time": {"created": at}, "text": "one"})),
        ("assistant", answer("stop", &json!([]))),
        // Of what went wrong it may not tell.
        ("assistant", json!({"time": {"created": at}, "content": []})),
    ];
    mirror.iter().for_each(|(kind, data)| said_at(&store, "ses_first", kind, data, at));
    let seen = list(&sandbox);
    seen.expect("ses_first", "done", None);
    assert_eq!(seen.session("ses_first")["tokens"], tokens, "{:#}", seen.json);
    let used = ask(&sandbox, &["usage", "--json"]).json();
    assert_eq!(used["total"]["tokens"], tokens, "{used:#}");
}

/// Whoever shows a session would see what is said in it, but nothing tells who says it.
#[test]
fn a_turn_of_the_second_interface_is_nobody_s_who_only_has_the_session_open() {
    let sandbox = Sandbox::new("opencode-second-held");
    let store = stage(&sandbox, &["ses_one"]);
    let tui = sandbox.lookalike("opencode", &["-s", "ses_one"]);
    store.logs(&tui, "aaaa", "message=init count=1");
    said(&store, "ses_one", "user", &json!({"time": {"created": now()}, "text": "fix it"}));
    let seen = list(&sandbox);
    let row = seen.session("ses_one");
    assert_eq!(
        (&row["status"], &row["live"], &row["pid"]),
        (&json!("unknown"), &json!(true), &json!(tui.pid())),
        "{row:#}"
    );
    said(&store, "ses_one", "assistant", &answer("stop", &json!([{"type": "text", "text": "ok"}])));
    list(&sandbox).expect("ses_one", "idle", Some(tui.pid()));
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    said(&store, "ses_one", "user", &json!({"time": {"created": now()}, "text": "more"}));
    list(&sandbox).expect("ses_one", "interrupted", None);
}

#[test]
fn what_is_damaged_of_the_second_interface_spoils_nothing_of_the_first() {
    let sandbox = Sandbox::new("opencode-second-damage");
    let store = stage(&sandbox, &["ses_second"]);
    store.sql("CREATE INDEX session_message_session_type_seq_idx ON session_message (session_id, type, seq)");
    let at = now() - 120_000;
    let used = json!({"input": 120, "output": 5, "reasoning": 0, "cache": {"read": 0, "write": 0}});
    let first = json!({"role": "assistant", "time": {"created": at + 1, "completed": at + 2}, "finish": "stop",
        "modelID": "m-1", "providerID": "p", "cost": 0, "tokens": used});
    let text = json!({"type": "text", "text": "1", "time": {"start": 1, "end": 2}});
    drop(store.session_at("ses_first", &sandbox.work(), None, at).asked("one").message(&first, &[text]));
    let long = json!([{"type": "text", "text": "an answer that fills pages ".repeat(100)}]);
    (0..8).for_each(|_| said(&store, "ses_second", "assistant", &answer("stop", &long)));
    let tui = sandbox.lookalike("opencode", &["-s", "ses_first"]);
    store.logs(&tui, "aaaa", "message=loop session.id=ses_first step=0");

    let path = store.path("opencode.db");
    let sound = std::fs::read(&path).expect("the database");
    let root = |name: &str| -> usize {
        let root = format!("SELECT rootpage FROM sqlite_master WHERE name = '{name}'");
        database::write(&path, "").query_row(&root, [], |row| row.get(0)).expect("a table")
    };
    let (table, ids) = (root("session_message"), root("sqlite_autoindex_session_message_1"));
    for (page, is_lost) in [(table - 1, true), (ids - 1, false), (sound.len() / 4096 - 1, true)] {
        let mut damaged = sound.clone();
        damaged[page * 4096..(page + 1) * 4096].fill(0);
        std::fs::write(&path, damaged).expect("a damaged database");
        let seen = list(&sandbox);
        assert_eq!(seen.warns_of("opencode.db"), is_lost, "page {page}");
        seen.expect("ses_first", "idle", Some(tui.pid()));
        assert_eq!(seen.session("ses_second")["status"] == "unknown", is_lost, "page {page}");
        let live = Answer::of(&ask(&sandbox, &["ls", "--json"]));
        live.expect("ses_first", "idle", Some(tui.pid()));
        assert_eq!(ask(&sandbox, &["peek", "ses_first", "--json"]).json()["reply"], "1", "page {page}");
        let used = ask(&sandbox, &["usage", "--json"]);
        let input = used.json()["total"]["tokens"]["input"].as_u64().expect("a number");
        assert!(input >= 120 && used.stdout.contains("opencode.db") == is_lost, "page {page}: {used:?}");
    }
}
