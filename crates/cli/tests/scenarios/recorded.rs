//! What a Claude Code store tells of sessions that nobody holds any more: by its lines, by what a process left in the
//! registry, and where a line cannot be read.

use lariat_testkit::{DEADLINE, Sandbox, Signal};
use serde_json::{Value, json};

use crate::{
    asking::{id, list},
    claude_store::{ClaudeStore, Transcript},
    moment::{iso, now},
};

/// An assistant's line, with the fields that versions differ in.
fn said(talk: Transcript, version: &str, message: Value) -> Transcript {
    let mut whole = json!({"id": "msg_1", "role": "assistant", "model": "claude-opus-5-5",
        "usage": {"input_tokens": 100, "output_tokens": 7}});
    whole.as_object_mut().expect("an object").extend(message.as_object().expect("an object").clone());
    let line = json!({"type": "assistant", "uuid": "u", "timestamp": iso(now()), "cwd": "/x", "sessionId": talk.id,
        "version": version, "message": whole});
    talk.line(&line)
}

fn text(stop_reason: &Value) -> Value {
    json!({"content": [{"type": "text", "text": "Let me see."}], "stop_reason": stop_reason})
}

#[test]
fn who_came_after_a_turn_was_cut_off_has_not_ended_it() {
    let sandbox = Sandbox::new("came-after");
    let claude = ClaudeStore::of(&sandbox);
    let (cut, back) = (id(1), id(2));
    // Somebody looked at it again, said nothing, and was killed.
    drop(claude.session(&cut).at(now() - 60_000).asked("fix it").calls("Bash", json!({"command": "make"})));
    // Here the very one that was at the turn said last that it rests: it was taken back.
    drop(claude.session(&back).at(now() - 60_000).asked("fix it"));
    for (session, started) in [(&cut, now()), (&back, now() - 90_000)] {
        let agent = sandbox.lookalike("claude", &[]);
        let _entry = claude.register(&agent, session).with("startedAt", json!(started)).says("idle");
        agent.signal(Signal::KILL);
        agent.wait(DEADLINE);
    }
    let told = list(&sandbox);
    told.expect(&cut, "interrupted", None);
    told.expect(&back, "done", None);
}

#[test]
fn a_word_frozen_at_busy_tells_nothing_that_an_unread_record_may_know_better() {
    let sandbox = Sandbox::new("frozen-unread");
    let claude = ClaudeStore::of(&sandbox);
    let (older, newer) = (id(1), id(2));
    for (session, busy_at) in [(&older, now() - 60_000), (&newer, now() + 60_000)] {
        let agent = sandbox.lookalike("claude", &[]);
        let entry = claude.register(&agent, session).says("busy").with("statusUpdatedAt", json!(busy_at));
        let talk = claude.session(session).asked("fix it");
        std::fs::write(&talk.path, std::fs::read_to_string(&talk.path).expect("lines") + "{\"type\":\"assist\n")
            .expect("a broken line");
        agent.signal(Signal::KILL);
        agent.wait(DEADLINE);
        drop(entry);
    }
    let told = list(&sandbox);
    told.expect(&older, "unknown", None);
    told.expect(&newer, "interrupted", None);
}

#[test]
fn an_answer_without_a_reason_is_over_only_where_none_has_one() {
    let sandbox = Sandbox::new("reasons");
    let claude = ClaudeStore::of(&sandbox);
    let none = text(&Value::Null);
    // 2.1.47 writes none; 2.0.34 did in the turn before; 2.1.90 always does.
    drop(said(claude.session(&id(1)).asked("one"), "2.1.47", none.clone()));
    let before = said(claude.session(&id(2)).asked("one"), "2.0.34", text(&json!("end_turn")));
    drop(said(before.asked("two"), "2.0.34", none.clone()));
    drop(said(claude.session(&id(3)).asked("one"), "2.1.90", none));
    let told = list(&sandbox);
    told.expect(&id(1), "done", None);
    told.expect(&id(2), "interrupted", None);
    told.expect(&id(3), "interrupted", None);
}

#[test]
fn what_a_tool_gave_after_a_line_that_was_lost_opens_no_turn() {
    let sandbox = Sandbox::new("lost-then-result");
    let claude = ClaudeStore::of(&sandbox);
    let talk = claude.session(&id(1)).asked("fix it").calls("Bash", json!({"command": "make"}));
    let broken = std::fs::read_to_string(&talk.path).expect("lines") + "{\"type\":\"attachm\n";
    std::fs::write(&talk.path, broken).expect("a broken line");
    let talk = talk.result("made");
    list(&sandbox).expect(&id(1), "unknown", None);
    drop(talk.answered("done"));
    list(&sandbox).expect(&id(1), "done", None);
}

#[test]
fn a_branch_is_that_of_the_directory_and_a_number_that_is_none_counts_nothing() {
    let sandbox = Sandbox::new("branch-here");
    let claude = ClaudeStore::of(&sandbox);
    let other = sandbox.home().join("elsewhere");
    let talk = claude.session(&id(1)).on_branch("main").asked("one").answered("yes");
    let at = |cwd: &str, branch: &str| {
        json!({"type": "user", "uuid": "v", "timestamp": iso(now()), "cwd": cwd, "gitBranch": branch,
            "sessionId": id(1), "version": "2.1.325", "isMeta": true, "message": {"role": "user", "content": "x"}})
    };
    drop(talk.line(&at(other.to_str().expect("UTF-8"), "HEAD")));
    for (n, wrong) in [json!(null), json!("100"), json!(-1), json!(7.5)].iter().enumerate() {
        let usage = json!({"usage": {"input_tokens": wrong, "output_tokens": 7}, "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "x"}]});
        drop(said(claude.session(&id(2 + n as u64)).asked("one"), "2.1.325", usage));
    }
    let null_cache = json!({"usage": {"input_tokens": 100, "output_tokens": 7, "cache_read_input_tokens": null},
        "stop_reason": "end_turn", "content": [{"type": "text", "text": "x"}]});
    drop(said(claude.session(&id(9)).asked("one"), "2.1.325", null_cache));
    let told = list(&sandbox);
    assert_eq!(told.session(&id(1))["branch"], "main");
    for n in 2..6 {
        assert_eq!(told.session(&id(n))["tokens"], Value::Null, "{n}");
    }
    assert_eq!(told.session(&id(9))["tokens"]["input"], 100);
}

#[test]
fn a_link_that_leads_nowhere_is_told_of() {
    let sandbox = Sandbox::new("dangling");
    let claude = ClaudeStore::of(&sandbox);
    drop(claude.session(&id(1)).asked("one"));
    let links = [claude.put("sessions/77.json", ""), claude.put("history.jsonl", "")];
    for link in &links {
        std::fs::remove_file(link).expect("a file");
        std::os::unix::fs::symlink("/nowhere", link).expect("a link");
    }
    let told = list(&sandbox);
    let warned = told.json["warnings"].to_string();
    assert!(warned.contains("sessions/77.json") && warned.contains("history.jsonl"), "{warned}");
    told.expect(&id(1), "interrupted", None);
}
