//! How a Claude Code session was left: what a person did tells of the end that followed, and of none that came later.

use std::fs;

use lariat_testkit::Sandbox;
use serde_json::{Value, json};

use crate::{
    asking::{id, list},
    claude_store::ClaudeStore,
    moment::{iso, now},
};

/// A prompt as it stands where nothing says what kind of terminal it came from, or that there is none.
fn prompt(session: &str, at: i64, entrypoint: Option<&str>) -> Value {
    json!({"type": "user", "message": {"role": "user", "content": "fix it"}, "timestamp": iso(at), "cwd": "/w",
        "sessionId": session, "entrypoint": entrypoint})
}

#[test]
fn what_is_written_after_an_exit_does_not_undo_it() {
    let sandbox = Sandbox::new("leaving-late");
    let claude = ClaudeStore::of(&sandbox);
    let make = || json!({"command": "make"});
    let [cut, kept, told] = [1, 2, 3].map(|n| claude.session(&id(n)).at(now() - 60_000).asked("fix it"));
    let (cut, kept, told) = (cut.calls("Bash", make()), kept.calls("Bash", make()), told.answered("fixed"));
    let mute = claude.session(&id(4)).line(&prompt(&id(4), now() - 60_000, None));
    let asked = claude.session(&id(5)).line(&prompt(&id(5), now() - 60_000, None));
    (1..=5).for_each(|n| claude.typed(&id(n), "/exit"));
    let later = now() + 50;
    // What became of the tool that ran, and of what a hook had to say.
    let late = json!({"type": "attachment", "attachment": {"type": "hook_success"}});
    drop(cut.at(later).result("Exit code 137").said(late.clone()).left());
    // The person has thought better of it: the model went on.
    drop(kept.at(later).result("made").calls("Bash", make()));
    // A later run was told of a task, and was killed at that.
    let notice = "<task-notification>\n<task-id>b1</task-id>\n</task-notification>";
    drop(told.at(later).said(json!({"type": "user", "message": {"role": "user", "content": notice}})));
    drop(mute.line(&json!({"type": "attachment", "attachment": {"type": "hook_success"}, "timestamp": iso(later)})));
    drop(asked.line(&prompt(&id(5), later, Some("sdk-cli"))));
    // Somebody came back, and was killed when nothing was on record but what a hook had to say; or what was queued.
    let [back, queued] = [7, 8].map(|n| claude.session(&id(n)).at(now() - 60_000).asked("fix it"));
    [7, 8].iter().for_each(|n| claude.typed(&id(*n), "/exit"));
    let entry = json!({"pid": 4_194_000, "sessionId": id(7), "cwd": sandbox.work(), "startedAt": later + 50,
        "procStart": "1", "status": "busy"});
    claude.put("sessions/4194000.json", entry.to_string());
    drop(back.at(later + 100).said(late.clone()));
    drop(queued.at(later).said(json!({"type": "queue-operation", "operation": "enqueue", "content": "go on"})));
    // Where the program has recorded it itself.
    let exit = json!({"type": "user", "message": {"role": "user", "content": "<command-name>/exit</command-name>"}});
    let own = claude.session(&id(6)).asked("fix it").calls("Bash", make());
    drop(own.said(exit.clone()).result("Exit code 137").left());
    let own = claude.session(&id(9)).at(now() - 60_000).asked("fix it").said(exit).left();
    let back = json!({"pid": 4_194_001, "sessionId": id(9), "cwd": sandbox.work(), "startedAt": later + 50,
        "procStart": "1", "status": "busy"});
    claude.put("sessions/4194001.json", back.to_string());
    drop(own.at(later + 100).said(late));
    let seen = list(&sandbox);
    let cut_off = [2, 3, 5, 7, 8, 9];
    let expected = [1, 2, 3, 4, 5, 6, 7, 8, 9].map(|n| if cut_off.contains(&n) { "interrupted" } else { "stopped" });
    for (n, status) in (1..).zip(expected) {
        seen.expect(&id(n), status, None);
    }
}

/// What is written at an exit, of an answer that was cut off, is no word of the model since; nor is what ends a turn
/// without one. Where all that lies in the end of a transcript, what the model said last must be looked for before it.
#[test]
fn how_it_was_left_does_not_hang_on_how_much_of_it_is_read() {
    let sandbox = Sandbox::new("leaving-large");
    let claude = ClaudeStore::of(&sandbox);
    let (before, later) = (now() - 60_000, now() + 50);
    let filler = |size| json!({"type": "attachment", "filler": "x".repeat(size)});
    let large = |n| claude.session(&id(n)).at(before).asked("begin").answered("begun").said(filler(1 << 20));
    let half = json!({"type": "assistant", "isAbortedMidStream": true, "message": {"id": "m", "role": "assistant",
        "model": "claude-opus-5-5", "content": [{"type": "text", "text": "half of"}], "stop_reason": null,
        "usage": {"input_tokens": 100, "output_tokens": 1}}});
    let at_work = [1, 2, 3].map(|n| large(n).asked("fix it").said(filler(6 << 10)));
    claude.typed(&id(1), "/exit");
    claude.job(&id(2), "stopped");
    at_work.into_iter().for_each(|one| drop(one.at(later).said(half.clone()).left()));
    // Its sub-agent was at a tool after the model had spoken, and before a hook ended the turn.
    let halts = json!({"type": "attachment", "attachment": {"type": "hook_stopped_continuation"}});
    let halted = large(4).asked("fix it").calls("Bash", json!({"command": "make"})).said(filler(16 << 10));
    let halted = halted.at(later).said(halts);
    let agent = halted.path.with_extension("").join("subagents/agent-a1.jsonl");
    let agent = claude.session_at(&id(4), &sandbox.work(), &agent).at(before + 1000);
    drop(agent.asked("look around").calls("Bash", json!({"command": "make"})));
    let seen = list(&sandbox);
    for (n, status) in (1..).zip(["stopped", "stopped", "interrupted", "interrupted"]) {
        seen.expect(&id(n), status, None);
    }
}

#[test]
fn a_job_that_was_stopped_tells_of_no_later_end() {
    let sandbox = Sandbox::new("leaving-job");
    let claude = ClaudeStore::of(&sandbox);
    let make = || json!({"command": "make"});
    let [stopped, asked, went_on] =
        [1, 2, 3].map(|n| claude.session(&id(n)).at(now() - 60_000).asked("fix it").calls("Bash", make()));
    (1..=3).for_each(|n| drop(claude.job(&id(n), "stopped")));
    let later = now() + 50;
    drop(stopped.at(later).result("Exit code 137").left());
    drop(asked.at(later).asked("go on"));
    drop(went_on.at(later).result("made").calls("Bash", make()));
    let seen = list(&sandbox);
    for (n, status) in (1..).zip(["stopped", "interrupted", "interrupted"]) {
        seen.expect(&id(n), status, None);
    }
}

#[test]
fn a_job_that_its_daemon_has_given_up_was_stopped_by_nobody() {
    let sandbox = Sandbox::new("leaving-given-up");
    let claude = ClaudeStore::of(&sandbox);
    for (n, detail) in [(1, "stopped"), (2, "ended while the background service was off")] {
        claude.session(&id(n)).at(now() - 60_000).asked("fix it").calls("Bash", json!({"command": "make"}));
        let path = claude.job(&id(n), "stopped");
        let mut job: Value = serde_json::from_slice(&fs::read(&path).expect("a job")).expect("JSON");
        job["detail"] = json!(detail);
        fs::write(&path, job.to_string()).expect("a job");
    }
    let seen = list(&sandbox);
    seen.expect(&id(1), "stopped", None);
    seen.expect(&id(2), "interrupted", None);
}

#[test]
fn an_interruption_counts_where_it_stands_beside_what_the_tool_gave() {
    let sandbox = Sandbox::new("leaving-interrupted");
    let claude = ClaudeStore::of(&sandbox);
    let at_work = |n| claude.session(&id(n)).asked("fix it").calls("Bash", json!({"command": "make"}));
    let gave = |text: &str| {
        json!({"type": "user", "message": {"role": "user", "content": [
            {"tool_use_id": "toolu_1", "type": "tool_result", "content": "rejected", "is_error": true},
            {"type": "text", "text": text}]}})
    };
    drop(at_work(1).said(gave("[Request interrupted by user for tool use]")));
    drop(at_work(2).said(gave("and look at the log, too")));
    let seen = list(&sandbox);
    seen.expect(&id(1), "stopped", None);
    seen.expect(&id(2), "interrupted", None);
}

#[test]
fn what_looks_open_was_over_where_its_terminal_was_cleared_since() {
    let sandbox = Sandbox::new("leaving-cleared");
    let claude = ClaudeStore::of(&sandbox);
    let [taken_back, asked, at_work, back] =
        [1, 2, 3, 4].map(|n| claude.session(&id(n)).at(now() - 60_000).asked("fix it"));
    (1..=3).for_each(|n| claude.typed(&id(n), "/clear"));
    drop(taken_back.left());
    // Somebody has come back to it since; or the model was still at it.
    let later = now() + 50;
    drop(asked.at(later).asked("go on"));
    drop(at_work.at(later).calls("Bash", json!({"command": "make"})));
    claude.typed(&id(4), "clear it");
    drop(back.left());
    let seen = list(&sandbox);
    for (n, status) in (1..).zip(["done", "interrupted", "interrupted", "interrupted"]) {
        seen.expect(&id(n), status, None);
    }
}
