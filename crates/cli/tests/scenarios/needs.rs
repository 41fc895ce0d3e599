//! At its prompt, with something in the way that only a person can take away: a login, a limit, a
//! permission of which nothing is recorded.

use lariat_testkit::{DEADLINE, Lookalike, Sandbox, Signal, wait_for, wait_until};
use serde_json::{Value, json};

use crate::{
    asking::{ask, id, list},
    claude_store::{ClaudeStore, Transcript},
    codex_store::CodexStore,
    gemini_store::{GeminiStore, gemini},
    moment::now,
    opencode_store::OpenCodeStore,
};

/// The error line that Claude Code writes.
fn refused(talk: Transcript, error: &str, status: u16, text: &str) -> Transcript {
    talk.said(json!({"type": "assistant", "isApiErrorMessage": true, "error": error, "apiErrorStatus": status,
        "message": {"id": "e", "role": "assistant", "model": "<synthetic>", "stop_reason": "stop_sequence",
        "content": [{"type": "text", "text": text}], "usage": {"input_tokens": 0, "output_tokens": 0}}}))
}

fn reason(sandbox: &Sandbox, id: &str) -> Value {
    list(sandbox).session(id)["reason"].clone()
}

#[test]
fn a_login_or_a_limit_in_the_way_needs_a_person() {
    let sandbox = Sandbox::new("needs");
    let claude = ClaudeStore::of(&sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    let entry = claude.register(&agent, &id(1)).says("idle");
    let talk = claude.session(&id(1)).at(now() + 1000).asked("one");
    let talk = refused(talk, "authentication_failed", 401, "Please run /login");
    list(&sandbox).expect(&id(1), "waiting", Some(agent.pid()));
    assert_eq!(reason(&sandbox, &id(1)), "login: Please run /login");
    // Its turn is over: who waits for that has waited enough.
    assert_eq!(ask(&sandbox, &["wait", &id(1), "--timeout", "5s"]).code(), 0);
    // Asked again it works, and what is in the way is something else.
    let entry = entry.says("busy");
    let talk = talk.asked("two");
    list(&sandbox).expect(&id(1), "working", Some(agent.pid()));
    let talk = refused(talk, "rate_limit", 429, "You've hit your limit");
    let entry = entry.says("idle");
    assert_eq!(reason(&sandbox, &id(1)), "limit: You've hit your limit");
    // A fault that may pass by itself needs nobody.
    let talk = talk.asked("three").failed("API Error: 529");
    list(&sandbox).expect(&id(1), "idle", Some(agent.pid()));
    drop(refused(talk.asked("four"), "rate_limit", 429, "You've hit your limit"));
    agent.signal(Signal::KILL);
    agent.wait(DEADLINE);
    list(&sandbox).expect(&id(1), "failed", None);
    entry.remove();

    // Another process may have what the earlier one lacked.
    let later = sandbox.lookalike("claude", &["--resume", &id(2)]);
    refused(claude.session(&id(2)).at(now() - 60_000).asked("x"), "rate_limit", 429, "You've hit your limit");
    claude.register(&later, &id(2)).says("idle");
    list(&sandbox).expect(&id(2), "idle", Some(later.pid()));
}

/// What `/login` writes: its name, and how it went.
fn logs_in(talk: Transcript, how: &str) -> Transcript {
    let said = |text: String| json!({"type": "user", "message": {"role": "user", "content": text}});
    let talk = talk.said(said("<command-name>/login</command-name>\n<command-message>login</command-message>".into()));
    talk.said(said(format!("<local-command-stdout>{how}</local-command-stdout>")))
}

#[test]
fn who_has_logged_in_is_not_asked_to() {
    let sandbox = Sandbox::new("needs-login");
    let claude = ClaudeStore::of(&sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    let entry = claude.register(&agent, &id(1)).says("idle");
    let talk = claude.session(&id(1)).at(now() + 1000).asked("one");
    let talk = refused(talk, "authentication_failed", 401, "Please run /login");
    let talk = logs_in(talk, "Login interrupted");
    list(&sandbox).expect(&id(1), "waiting", Some(agent.pid()));
    let talk = logs_in(talk, "Login successful");
    list(&sandbox).expect(&id(1), "idle", Some(agent.pid()));
    // Who has done so is still over a limit.
    let talk = refused(talk.asked("two"), "rate_limit", 429, "You've hit your limit");
    drop(logs_in(talk, "Login successful"));
    list(&sandbox).expect(&id(1), "waiting", Some(agent.pid()));
    drop(entry);
}

#[test]
fn what_a_later_process_writes_does_not_renew_an_old_refusal() {
    let sandbox = Sandbox::new("needs-old");
    let claude = ClaudeStore::of(&sandbox);
    let later = sandbox.lookalike("claude", &["--resume", &id(1)]);
    let talk =
        refused(claude.session(&id(1)).at(now() - 60_000).asked("x"), "rate_limit", 429, "You've hit your limit");
    claude.register(&later, &id(1)).says("idle");
    let line = json!({"type": "user", "message": {"role": "user", "content": "<command-name>/model</command-name>"}});
    drop(talk.at(now() + 1000).said(line));
    list(&sandbox).expect(&id(1), "idle", Some(later.pid()));

    let codex = CodexStore::of(&sandbox);
    let agent = sandbox.lookalike("codex", &["--no-daemon"]);
    codex.lock(&agent, &id(2));
    let thread = codex.thread(&id(2)).at(now() - 60_000).asked("x").failed_by("no", &json!("usage_limit_exceeded"));
    drop(thread.at(now() + 1000).add("event_msg", json!({"type": "thread_settings_applied"})));
    list(&sandbox).expect(&id(2), "idle", Some(agent.pid()));
}

#[test]
fn codex_and_opencode_say_what_refused_them() {
    let sandbox = Sandbox::new("needs-others");
    let codex = CodexStore::of(&sandbox);
    let agent = sandbox.lookalike("codex", &["--no-daemon"]);
    codex.lock(&agent, &id(1));
    let mut thread = codex.thread(&id(1)).at(now() + 1000);
    for (info, status) in [
        (json!({"http_connection_failed": {"http_status_code": 401}}), "waiting"),
        (json!("usage_limit_exceeded"), "waiting"),
        (json!({"response_too_many_failed_attempts": {"http_status_code": 429}}), "waiting"),
        (json!("internal_server_error"), "idle"),
        (json!({"response_stream_disconnected": {"http_status_code": null}}), "idle"),
    ] {
        thread = thread.asked("again").failed_by("no", &info);
        let seen = list(&sandbox);
        assert_eq!(seen.status(&id(1)), status, "{info}: {:#}", seen.session(&id(1)));
    }

    let store = OpenCodeStore::of(&sandbox);
    let terminal = sandbox.lookalike("opencode", &[]);
    let stored = store.session_at("ses_one", &sandbox.work(), None, now() + 1000).asked("fix it");
    store.logs(&terminal, "aaaa", "message=loop session.id=ses_one step=0");
    let error = json!({"name": "APIError", "data": {"message": "who?", "statusCode": 401}});
    drop(stored.message(&json!({"role": "assistant", "time": {"created": 1}, "error": error}), &[]));
    let seen = list(&sandbox);
    seen.expect("ses_one", "waiting", Some(terminal.pid()));
    assert_eq!(seen.session("ses_one")["reason"], "login: who?");
}

#[test]
fn a_call_of_gemini_s_that_nobody_runs_waits_for_leave_or_is_at_work_within() {
    let sandbox = Sandbox::new("needs-gemini");
    let store = GeminiStore::of(&sandbox);
    let write = |number: u64| {
        let path = format!("07-4{number}");
        drop(store.session_at(&id(number), &sandbox.work(), &path, now()).asked("go").answered(""));
    };
    let program = |number: u64, more: &[&str]| gemini(&sandbox, &[&["--session-id", &id(number)], more].concat());
    // All before any runs: each puts the program there anew.
    let (asks, free, headless) = (program(1, &[]), program(2, &["--yolo"]), program(3, &["-p", "go"]));
    let (asks, free) = (sandbox.terminal(&asks), sandbox.terminal(&free));
    let headless = Lookalike::start(&sandbox, &headless);
    wait_until("all run", DEADLINE, || list(&sandbox).sessions().len() == 3);
    (1..=3).for_each(write);
    // At first it may be about to run it.
    let settings = sandbox.home().join(".gemini/settings.json");
    std::fs::write(&settings, r#"{"mcpServers": {"db": {"command": "db"}}}"#).expect("settings");
    let seen = wait_for("a call that does not run", DEADLINE, || {
        let seen = list(&sandbox);
        (seen.status(&id(1)) != "working").then_some(seen)
    });
    // A tool of an MCP server is no process of the call, and needs nobody.
    seen.expect(&id(1), "unknown", Some(asks.pid()));
    let why = reason(&sandbox, &id(1));
    assert!(why.as_str().is_some_and(|r| r.contains("may wait for leave or be at work in an MCP server")), "{why}");
    // Without such servers there is nothing else that it could be at for long.
    std::fs::remove_file(&settings).expect("settings");
    let seen = list(&sandbox);
    seen.expect(&id(1), "waiting", Some(asks.pid()));
    seen.expect(&id(2), "working", Some(free.pid()));
    seen.expect(&id(3), "working", Some(headless.pid()));
    // Once it runs, it is seen to.
    asks.submit("spawn", DEADLINE);
    wait_until("a call that runs", DEADLINE, || list(&sandbox).status(&id(1)) == "working");
}
