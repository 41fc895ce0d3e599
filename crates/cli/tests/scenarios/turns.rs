//! What the lines of a transcript add up to when no process is left: how its last turn stands, what it cost, and
//! whose it is. Each is a shape that a real store has, and that once was told wrongly.

use std::fs;

use lariat_testkit::Sandbox;
use serde_json::{Value, json};

use crate::{
    asking::{id, list},
    claude_store::{ClaudeStore, Transcript},
    codex_store::CodexStore,
    gemini_store::{GeminiChat, GeminiStore},
    moment::{iso, now},
};

#[test]
fn a_word_that_leaves_is_as_good_as_the_command() {
    let sandbox = Sandbox::new("leaving");
    let claude = ClaudeStore::of(&sandbox);
    let words = ["/exit", "/quit", "exit", " quit ", ":q", ":q!", ":wq", ":wq!"];
    for (n, word) in (1..).zip(words) {
        claude.session(&id(n)).asked("fix it").left();
        claude.typed(&id(n), word);
    }
    claude.session(&id(98)).asked("fix it").left();
    claude.typed(&id(98), "exit the loop");
    let seen = list(&sandbox);
    for n in 1..=8 {
        seen.expect(&id(n), "stopped", None);
    }
    seen.expect(&id(98), "interrupted", None);
}

#[test]
fn a_leaving_that_the_program_has_recorded_itself_counts() {
    let sandbox = Sandbox::new("leaving-recorded");
    let claude = ClaudeStore::of(&sandbox);
    let command = |word: &str| {
        json!({"type": "user", "message": {"role": "user", "content":
        format!("<command-name>{word}</command-name>\n            <command-message>it</command-message>")}})
    };
    for (n, word) in (1..).zip(["/exit", "/quit", "/status"]) {
        // It is written a moment after the history has it.
        claude.typed(&id(n), word);
        claude.session(&id(n)).at(now() + 50).asked("fix it").said(command(word)).left();
    }
    // Whoever goes on has not left.
    claude.session(&id(4)).asked("fix it").said(command("/exit")).asked("go on").left();
    // Nor has whoever came back after it, and was killed before anything was recorded.
    claude.session(&id(5)).asked("fix it").said(command("/exit")).left();
    let back = json!({"pid": 4_194_000, "sessionId": id(5), "cwd": sandbox.work(), "startedAt": now() + 60_000,
        "procStart": "1", "status": "busy"});
    claude.put("sessions/4194000.json", back.to_string());
    let seen = list(&sandbox);
    let told = [(1, "stopped"), (2, "stopped"), (3, "interrupted"), (4, "interrupted"), (5, "interrupted")];
    for (n, status) in told {
        seen.expect(&id(n), status, None);
    }
    assert_eq!(seen.session(&id(1))["reason"], "ended by a person: /exit");
}

#[test]
fn what_the_program_does_for_itself_is_no_turn_and_no_end_of_one() {
    let sandbox = Sandbox::new("for-itself");
    let claude = ClaudeStore::of(&sandbox);
    // It goes on by itself where its answer was cut at the limit.
    let cut = json!({"type": "assistant", "message": {"id": "m", "role": "assistant", "model": "claude-opus-5-5",
        "content": [{"type": "text", "text": "half of"}], "stop_reason": "max_tokens",
        "usage": {"input_tokens": 100, "output_tokens": 7}}});
    claude.session(&id(1)).asked("fix it").said(cut);
    // What `#` noted, as versions before 2.1 wrote it.
    let note = |text: &str| json!({"type": "user", "message": {"role": "user", "content": text}});
    let noted = claude.session(&id(2)).asked("fix it").answered("fixed");
    noted.said(note("<user-memory-input>use tabs</user-memory-input>"));
    // A command that was queued first, as with `-p`.
    let queued = json!({"type": "queue-operation", "operation": "enqueue", "content": "/context"});
    let command = note("<command-name>/context</command-name>");
    claude.session(&id(3)).asked("fix it").answered("fixed").said(queued.clone()).said(command);
    claude.session(&id(4)).asked("fix it").answered("fixed").said(queued);
    let seen = list(&sandbox);
    seen.expect(&id(1), "interrupted", None);
    seen.expect(&id(2), "done", None);
    seen.expect(&id(3), "done", None);
    seen.expect(&id(4), "interrupted", None);
}

#[test]
fn an_answer_that_was_cut_off_is_none_and_what_comes_after_an_interruption_opens_nothing() {
    let sandbox = Sandbox::new("cut-off-answer");
    let claude = ClaudeStore::of(&sandbox);
    let answer = |aborted: bool| {
        json!({"type": "assistant", "isAbortedMidStream": aborted, "message": {"id": "m", "role": "assistant",
            "model": "claude-opus-5-5", "content": [{"type": "text", "text": "half of"}], "stop_reason": null,
            "usage": {"input_tokens": 100, "output_tokens": 1}}})
    };
    claude.session(&id(1)).asked("fix it").said(answer(true));
    claude.session(&id(2)).asked("fix it").said(answer(true)).interrupted();
    // This version always says why an answer stopped; what others do is in `recorded`.
    claude.session(&id(3)).asked("fix it").said(answer(false));
    // Of two tools one still gives what it had.
    let calls = |n: u64| claude.session(&id(n)).asked("fix it").calls("Bash", json!({"command": "make"}));
    calls(4).interrupted().result("made");
    calls(5).interrupted().result("made").asked("go on");
    let seen = list(&sandbox);
    seen.expect(&id(1), "interrupted", None);
    seen.expect(&id(2), "stopped", None);
    seen.expect(&id(3), "interrupted", None);
    seen.expect(&id(4), "stopped", None);
    seen.expect(&id(5), "interrupted", None);
}

#[test]
fn the_end_of_a_large_store_tells_no_more_than_it_knows() {
    let sandbox = Sandbox::new("large-ends");
    let (claude, gemini) = (ClaudeStore::of(&sandbox), GeminiStore::of(&sandbox));
    let filler = |size: usize| json!({"type": "attachment", "filler": "x".repeat(size)});
    // A hook, or a person, ended the turn; what its other tools gave comes after that.
    let halts = json!({"type": "attachment", "attachment": {"type": "hook_stopped_continuation"}});
    let calls = |n: u64| {
        let talk = claude.session(&id(n)).asked("fix it").said(filler(2 << 20));
        talk.calls("Bash", json!({"command": "make"}))
    };
    let gives = |talk: Transcript| (0..20).fold(talk, |talk, _| talk.result(&"made ".repeat(600)));
    gives(calls(1).said(halts));
    gives(calls(2).interrupted());
    gives(calls(3));
    // What Gemini complains of after an answer is about no turn.
    let chat = |n: u64| gemini.session(&id(n)).asked("fix it").line(json!({"$set": {"x": "x".repeat(2 << 20)}}));
    let complains = |chat: GeminiChat| (0..20).fold(chat, |chat, _| chat.noted("error", &"no room ".repeat(400)));
    complains(chat(4).answered("fixed"));
    complains(chat(5));
    // What was asked first lies where nobody looks.
    let thread = CodexStore::of(&sandbox).thread(&id(6)).add("world_state", json!({"state": "x".repeat(5 << 20)}));
    let thread = thread.asked("fix it").add("world_state", json!({"state": "x".repeat(1 << 20)})).answered("fixed");
    thread.asked("and the rest").answered("fixed");
    let seen = list(&sandbox);
    for (n, status) in (1..).zip(["done", "stopped", "interrupted", "done", "failed", "done"]) {
        seen.expect(&id(n), status, None);
    }
    assert_eq!(seen.session(&id(6))["prompt"], Value::Null);
}

#[test]
fn a_long_path_is_told_whole() {
    let sandbox = Sandbox::new("long-path");
    let long = std::path::Path::new("/home/dev").join(vec!["directory"; 300].join("/"));
    let path = sandbox.home().join(format!(".claude/projects/p/{}.jsonl", id(1)));
    ClaudeStore::of(&sandbox).session_at(&id(1), &long, &path).asked("fix it").answered("fixed");
    CodexStore::of(&sandbox).thread_in(&id(2), &long).asked("fix it").answered("fixed");
    let seen = list(&sandbox);
    for n in 1..=2 {
        assert_eq!(seen.session(&id(n))["cwd"], long.to_str().expect("UTF-8"));
    }
}

#[test]
fn a_sub_agent_whose_own_turn_is_over_is_at_work_no_more() {
    let sandbox = Sandbox::new("sub-agent-over");
    let claude = ClaudeStore::of(&sandbox);
    for n in 1..=2 {
        let talk = claude.session(&id(n)).asked("fix it").answered("fixed");
        let (_, about) = talk.sub_agent("a1", n == 1);
        // As versions wrote it that did not say when one has finished.
        std::fs::write(about, json!({"agentType": "Explore"}).to_string()).expect("what is said about it");
    }
    let seen = list(&sandbox);
    seen.expect(&id(1), "done", None);
    seen.expect(&id(2), "interrupted", None);
}

#[test]
fn what_a_task_came_to_is_no_prompt_and_ends_a_sub_agent_s_work() {
    let sandbox = Sandbox::new("task-notices");
    let claude = ClaudeStore::of(&sandbox);
    let notice = |task: &str| format!("<task-notification>\n<task-id>{task}</task-id>\n</task-notification>");
    let queued = json!({"type": "queue-operation", "operation": "enqueue", "content": notice("b1")});
    // A background shell that ended with the program: queued behind the final accounting, and for nobody.
    claude.session(&id(1)).asked("fix it").answered("fixed").left().said(queued);
    // Left with a sub-agent at work: by whoever, and by a person.
    claude.session(&id(2)).asked("fix it").answered("fixed").left().sub_agent("a2", false);
    let before = now() - 60_000;
    claude.session(&id(3)).at(before).asked("fix it").answered("fixed").left().sub_agent("a3", false);
    claude.typed(&id(3), "/exit");
    // The next run tells what the one before has left behind.
    let told = |task| json!({"type": "user", "message": {"role": "user", "content": notice(task)}});
    let first = claude.session(&id(4)).asked("fix it").answered("fixed").left();
    first.sub_agent("a4", false);
    first.said(told("a4")).answered("done").left();
    // However much was said since.
    let first = claude.session(&id(5)).asked("fix it").answered("fixed").left();
    first.sub_agent("a5", false);
    let long = "x".repeat(1 << 20);
    first.said(told("a5")).answered(&long).answered(&long).answered("done").left();
    // Who goes on to another session takes it along; not if that came to nothing.
    for (n, typed) in [(6, "/clear"), (7, " /resume yesterday"), (8, "/cleared up?")] {
        claude.session(&id(n)).at(before).asked("fix it").answered("fixed").left().sub_agent("a1", false);
        claude.typed(&id(n), typed);
    }
    claude.typed(&id(9), "/resume");
    claude.session(&id(9)).at(now() + 1000).asked("fix it").answered("fixed").left().sub_agent("a1", false);
    let seen = list(&sandbox);
    for (n, status) in [(1, "done"), (2, "interrupted"), (3, "stopped"), (4, "done"), (5, "done")] {
        seen.expect(&id(n), status, None);
    }
    for (n, status) in [(6, "done"), (7, "done"), (8, "interrupted"), (9, "interrupted")] {
        seen.expect(&id(n), status, None);
    }
}

#[test]
fn a_sub_agent_of_claude_that_was_cut_off_before_the_last_prompt_holds_nothing_up() {
    let sandbox = Sandbox::new("claude-left-behind");
    let claude = ClaudeStore::of(&sandbox);
    let long = "x".repeat(1 << 20);
    let killed = |n: u64| {
        let talk = claude.session(&id(n)).at(now() - 60_000).asked("fix it").calls("Agent", json!({"prompt": "look"}));
        talk.sub_agent("a1", false);
        talk.at(now())
    };
    killed(1).asked("go on").answered("fixed").left();
    // However much was said since.
    killed(2).asked("go on").answered(&long).answered(&long).answered("fixed").left();
    drop(killed(3));
    // This one was at it when the last answer was given.
    let talk = killed(4).asked("go on");
    talk.sub_agent("a1", false);
    talk.answered("fixed").left();
    let seen = list(&sandbox);
    for (n, status) in [(1, "done"), (2, "done"), (3, "interrupted"), (4, "interrupted")] {
        seen.expect(&id(n), status, None);
    }
}

#[test]
fn what_a_sub_agent_asks_is_told_and_not_that_it_was_called() {
    let sandbox = Sandbox::new("asked-below");
    let claude = ClaudeStore::of(&sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    claude.register(&agent, &id(1)).waits_for("permission prompt");
    let talk = claude.session(&id(1)).asked("fix it").calls("Task", json!({"description": "look around"}));
    let (below, _) = talk.sub_agent("a1", false);
    let call = json!({"type": "tool_use", "id": "toolu_2", "name": "Bash", "input": {"command": "rm -rf build"}});
    let line = json!({"type": "assistant", "message": {"id": "m", "role": "assistant",
        "model": "claude-opus-5-5", "content": [call], "stop_reason": "tool_use"}});
    let before = std::fs::read_to_string(&below).expect("its lines");
    std::fs::write(&below, format!("{before}{line}\n")).expect("one more");
    let seen = list(&sandbox);
    assert_eq!(seen.session(&id(1))["reason"], "permission: Bash rm -rf build");
}

#[test]
fn an_accounting_that_misses_a_run_tells_no_cost() {
    let sandbox = Sandbox::new("accounting");
    let claude = ClaudeStore::of(&sandbox);
    let at = now() - 60_000;
    let account = |calls: u64, more: Value| {
        let mut line = json!({"type": "cost-state", "totalCostUSD": 0.7, "modelUsage": {"claude-opus-5-5":
            {"inputTokens": 100 * calls, "outputTokens": 7 * calls, "cacheReadInputTokens": 300 * calls,
            "cacheCreationInputTokens": 20 * calls}}});
        line.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        line
    };
    let twice = |n: u64, line: &Value| {
        let talk = claude.session(&id(n)).at(at).asked("one").answered("1").asked("two").answered("2");
        drop(talk.line(line));
    };
    twice(1, &account(2, json!({"startTime": at - 1000})));
    // The first run was killed.
    twice(2, &account(1, json!({"startTime": at + 2})));
    // One between two others was.
    twice(3, &account(1, json!({"startTime": at - 1000})));
    // It had no price, and took one.
    twice(4, &account(2, json!({"startTime": at - 1000, "hasUnknownModelCost": true})));
    let seen = list(&sandbox);
    let all = json!({"input": 200, "output": 14, "cache_read": 600, "cache_write": 40});
    for (n, cost) in [(1, json!(0.7)), (2, Value::Null), (3, Value::Null), (4, Value::Null)] {
        let row = seen.session(&id(n));
        assert_eq!((&row["tokens"], &row["cost_usd"]), (&all, &cost), "{n}: {row:#}");
    }
    // Where it is too large to be read whole, the accounting alone must not tell of a part as of all.
    let padding = json!({"type": "attachment", "filler": "x".repeat(1 << 20)});
    for (n, since) in [(5, at - 1000), (6, at + 2)] {
        let talk = claude.session(&id(n)).at(at).asked("one").answered("1").line(&padding).asked("two").answered("2");
        drop(talk.line(&account(1, json!({"startTime": since}))));
    }
    // Ended in mid turn, it leaves out what was answered before, too.
    let talk = claude.session(&id(7)).at(at).asked("one").answered("1").line(&padding).asked("two").answered("2");
    drop(talk.asked("three").line(&account(1, json!({"startTime": at - 1000}))));
    let seen = list(&sandbox);
    assert_eq!(seen.session(&id(5))["tokens"]["input"], 100, "what is accounted for is taken");
    for n in [6, 7] {
        let row = seen.session(&id(n));
        assert_eq!((&row["tokens"], &row["cost_usd"]), (&Value::Null, &Value::Null), "{n}: {row:#}");
    }
}

#[test]
fn a_copied_beginning_is_not_its_own() {
    let sandbox = Sandbox::new("copied");
    let codex = CodexStore::of(&sandbox);
    // As a fork of versions before `history_base` begins: its own first line, then all of its parent's.
    let parents = json!({"id": id(9), "cwd": "/elsewhere", "timestamp": "2020-01-01T00:00:00Z",
        "git": {"branch": "old"}, "forked_from_id": id(8)});
    codex.thread(&id(1)).asked("fix it").add("session_meta", parents).answered("fixed");
    let seen = list(&sandbox);
    let row = seen.session(&id(1));
    assert_eq!(row["cwd"], sandbox.work().to_str().unwrap(), "{row:#}");
    assert_eq!((&row["branch"], &row["parent"]), (&json!("main"), &Value::Null), "{row:#}");
    assert!(!row["started_at"].as_str().unwrap().starts_with("2020"), "{row:#}");
}

#[test]
fn where_it_was_taken_and_what_it_was_branched_from_is_told() {
    let sandbox = Sandbox::new("taken-elsewhere");
    let claude = ClaudeStore::of(&sandbox);
    // As `/cd` writes it; what was said before, and where, stays.
    let moved = |to: &str| json!({"type": "relocated", "sessionId": id(1), "relocatedCwd": to});
    claude.session(&id(1)).asked("fix it").answered("fixed").said(moved("/first")).said(moved("/then"));
    // As `/branch` copies each line.
    let copied = json!({"type": "user", "message": {"role": "user", "content": "go on"},
        "forkedFrom": {"sessionId": id(1), "messageUuid": id(7)}});
    claude.session(&id(2)).said(copied).answered("fixed");
    claude.session(&id(3)).asked("fix it").answered("fixed");
    let seen = list(&sandbox);
    assert_eq!(seen.session(&id(1))["cwd"], "/then");
    assert_eq!(seen.session(&id(2))["parent"], format!("claude:{}", id(1)));
    assert_eq!(seen.session(&id(3))["parent"], Value::Null);
}

#[test]
fn where_no_branch_is_checked_out_none_is_told() {
    let sandbox = Sandbox::new("no-branch");
    let claude = ClaudeStore::of(&sandbox);
    claude.session(&id(1)).on_branch("HEAD").asked("fix it").answered("fixed");
    claude.session(&id(2)).asked("fix it").answered("fixed").on_branch("HEAD").asked("and that").answered("fixed");
    claude.session(&id(3)).on_branch("HEAD").asked("fix it").answered("fixed").on_branch("fix").asked("go on");
    let seen = list(&sandbox);
    let branches = [1, 2, 3].map(|n| seen.session(&id(n))["branch"].clone());
    assert_eq!(branches, [Value::Null, Value::Null, json!("fix")]);
}

#[test]
fn what_an_editor_says_for_itself_is_nobody_s_prompt() {
    let sandbox = Sandbox::new("editor");
    let claude = ClaudeStore::of(&sandbox);
    let by_editor = "<ide_opened_file>The user opened the file /work/a.rs in the IDE.</ide_opened_file>";
    let texts = |texts: &[&str]| {
        let content: Vec<Value> = texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
        json!({"type": "user", "message": {"role": "user", "content": content}})
    };
    claude.session(&id(1)).said(texts(&[by_editor, "fix it"])).answered("fixed");
    claude.session(&id(2)).said(texts(&["<b> is missing in a.html", "and elsewhere"])).answered("fixed");
    let seen = list(&sandbox);
    assert_eq!(seen.session(&id(1))["prompt"], "fix it");
    assert_eq!(seen.session(&id(2))["prompt"], "<b> is missing in a.html");
}

#[test]
fn sub_agents_that_lie_beside_their_session_count_for_it() {
    let sandbox = Sandbox::new("agents-beside");
    let claude = ClaudeStore::of(&sandbox);
    let one = claude.session(&id(1)).asked("fix it").answered("fixed");
    claude.session(&id(2)).asked("fix it").answered("fixed");
    let answer = |n: u64, session: &str| {
        json!({"type": "assistant", "isSidechain": true, "agentId": "1c809f1f", "sessionId": session, "message": {
            "id": format!("below-{n}"), "role": "assistant", "model": "claude-opus-5-5", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "found"}], "usage": {"input_tokens": 1000 * n, "output_tokens": 1}}})
    };
    // As versions from 2.0.2x on wrote them; the last one's session is not here.
    for (name, n, session) in [("1c809f1f", 1, id(1)), ("2c809f1f", 2, id(1)), ("3c809f1f", 3, id(9))] {
        let path = one.path.with_file_name(format!("agent-{name}.jsonl"));
        std::fs::write(path, format!("{}\n", answer(n, &session))).expect("a sub-agent's lines");
    }
    // Those of a workflow, as 2.1.325 writes them.
    let below = one.path.with_file_name(id(2)).join("subagents/workflows/wf_1");
    std::fs::create_dir_all(&below).expect("a folder");
    std::fs::write(below.join("agent-a4.jsonl"), format!("{}\n", answer(4, &id(2)))).expect("a sub-agent's lines");
    let seen = list(&sandbox);
    assert_eq!(seen.sessions().len(), 2, "{:#}", seen.json);
    assert_eq!(seen.session(&id(1))["tokens"]["input"], 3100);
    assert_eq!(seen.session(&id(2))["tokens"]["input"], 4100);
    seen.expect(&id(1), "done", None);
    let used = crate::asking::ask(&sandbox, &["usage", "--json"]).json();
    assert_eq!(used["total"]["tokens"]["input"], 200 + 10_000, "{used:#}");
    // One of them is not finished.
    std::fs::write(below.join("agent-a4.meta.json"), r#"{"description":"look"}"#).expect("what is said about it");
    let cut = json!({"type": "user", "isSidechain": true, "message": {"role": "user", "content": "look"}});
    std::fs::write(below.join("agent-a4.jsonl"), format!("{cut}\n")).expect("a sub-agent's lines");
    list(&sandbox).expect(&id(2), "interrupted", None);
}

/// A rollout as it stands in the store.
fn rollout(sandbox: &Sandbox, n: u64, lines: &[Value]) -> std::path::PathBuf {
    let path =
        CodexStore::of(sandbox).path(&format!("sessions/2025/08/20/rollout-2025-08-20T07-47-10-{}.jsonl", id(n)));
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(&path, lines).expect("a rollout");
    path
}

#[test]
fn rollouts_before_there_were_envelopes_are_read() {
    let sandbox = Sandbox::new("codex-bare");
    let text = |role: &str, text: &str| {
        let kind = if role == "user" { "input_text" } else { "output_text" };
        json!({"type": "message", "id": null, "role": role, "content": [{"type": kind, "text": text}]})
    };
    let first = |n: u64| {
        json!({"id": id(n), "timestamp": "2025-08-20T07:47:10.340Z", "instructions": null,
        "git": {"commit_hash": "1c809f1f", "branch": "old"}})
    };
    let state = json!({"record_type": "state"});
    let tagged = text("user", "<environment_context>\n  <cwd>/work/one</cwd>\n</environment_context>");
    let plain = text("user", "<environment_context>\nCurrent working directory: /work/two\nApproval policy: never\n");
    let call = json!({"type": "function_call", "id": "fc_1", "name": "shell", "call_id": "call_1",
        "arguments": "{\"command\":[\"make\"]}"});
    let output = json!({"type": "function_call_output", "call_id": "call_1", "output": "ok"});
    let asked = text("user", "fix it");
    let ended = text("assistant", "fixed");
    let thought = json!({"type": "reasoning", "id": "rs_1", "summary": []});
    let all = [&first(1), &state, &tagged, &asked, &state, &thought, &call, &output, &ended, &state].map(Value::clone);
    rollout(&sandbox, 1, &all);
    rollout(&sandbox, 2, &[first(2), state.clone(), plain, asked, state.clone(), call, state]);
    // The very first lie in no folder of a day.
    let path = rollout(&sandbox, 3, &[first(3), tagged, text("user", "fix it"), text("assistant", "fixed")]);
    let sessions = CodexStore::of(&sandbox).path("sessions");
    std::fs::rename(path, sessions.join(format!("rollout-2025-05-07-{}.jsonl", id(3)))).expect("it can be moved");
    let seen = list(&sandbox);
    seen.expect(&id(1), "done", None);
    seen.expect(&id(2), "interrupted", None);
    seen.expect(&id(3), "done", None);
    for (n, cwd) in [(1, "/work/one"), (2, "/work/two")] {
        let row = seen.session(&id(n));
        let told = ["prompt", "cwd", "branch", "started_at"].map(|key| row[key].as_str());
        assert_eq!(told, [Some("fix it"), Some(cwd), Some("old"), Some("2025-08-20T07:47:10.340Z")], "{row:#}");
    }
    assert_eq!(seen.warnings(), [""; 0]);
    let peeked = crate::asking::ask(&sandbox, &["peek", &id(1), "--json"]);
    assert_eq!(peeked.json()["reply"], "fixed");
}

#[test]
fn what_works_for_another_thread_is_no_session_even_if_it_does_not_say_for_which() {
    let sandbox = Sandbox::new("codex-nobody-s");
    let at = "2026-01-10T07:47:10Z";
    let meta = |n: u64, source: Value| json!({"timestamp": at, "type": "session_meta", "payload": {"id": id(n), "cwd": "/w", "source": source}});
    let asked = json!({"timestamp": at, "type": "event_msg", "payload": {"type": "user_message", "message": "look"}});
    let sources = [
        json!("cli"),
        json!({"subagent": "review"}),
        json!({"subagent": {"other": "guardian"}}),
        json!({"internal": "memory_consolidation"}),
        json!("exec"),
    ];
    for (n, source) in (1..).zip(sources) {
        rollout(&sandbox, n, &[meta(n, source), asked.clone()]);
    }
    let seen = list(&sandbox);
    let mut ids: Vec<&str> = seen.sessions().iter().map(|s| s["native_id"].as_str().expect("an id")).collect();
    ids.sort_unstable();
    assert_eq!(ids, [id(1), id(5)], "{:#}", seen.json);
    seen.expect(&id(1), "interrupted", None);
}

#[test]
fn a_sub_agent_that_was_cut_off_before_the_last_turn_holds_nothing_up() {
    let sandbox = Sandbox::new("codex-left-behind");
    let codex = CodexStore::of(&sandbox);
    let before = now() - 60_000;
    let below = |n: u64, root: u64| {
        let source = json!({"subagent": {"thread_spawn": {"parent_thread_id": id(root)}}});
        let meta = json!({"timestamp": iso(before), "type": "session_meta", "payload": {"id": id(n), "cwd": "/w", "source": source}});
        let thread = codex.thread(&id(n));
        fs::create_dir_all(thread.path.parent().expect("a folder")).expect("a folder");
        fs::write(&thread.path, format!("{meta}\n")).expect("its first line");
        thread.at(before)
    };
    // Killed with its sub-agent, and gone on with later; the sub-agent's turn stays open for ever.
    codex.thread(&id(1)).at(before).asked("fix it").at(now()).asked("go on").answered("fixed");
    drop(below(11, 1).asked("look around"));
    // Still at it when the turn was over.
    codex.thread(&id(2)).at(before).asked("fix it").answered("fixed");
    drop(below(12, 2).at(before + 5).asked("look around"));
    // At it through a later turn, too.
    codex.thread(&id(3)).at(before).asked("fix it").at(before + 1000).asked("go on").answered("fixed");
    drop(below(13, 3).asked("look around").at(before + 2000).calls("call_1", "make"));
    // As the first, with more said than is read of the end.
    let long = json!({"type": "agent_message", "message": "x".repeat(1 << 20)});
    let talk = codex.thread(&id(4)).at(before).asked("fix it").at(now()).asked("go on");
    talk.add("event_msg", long.clone()).add("event_msg", long).answered("fixed");
    drop(below(14, 4).asked("look around"));
    let seen = list(&sandbox);
    seen.expect(&id(1), "done", None);
    seen.expect(&id(2), "interrupted", None);
    seen.expect(&id(3), "interrupted", None);
    seen.expect(&id(4), "done", None);
}

#[test]
fn an_error_before_the_end_of_a_turn_is_its_failure() {
    let sandbox = Sandbox::new("codex-error");
    let codex = CodexStore::of(&sandbox);
    let meta = |n: u64| json!({"timestamp": "2026-03-01T07:47:10Z", "type": "session_meta", "payload": {"id": id(n), "cwd": "/w"}});
    let event = |payload: Value| json!({"timestamp": "2026-03-01T07:47:11Z", "type": "event_msg", "payload": payload});
    let begun = event(json!({"type": "task_started", "turn_id": "1"}));
    let over = event(json!({"type": "task_complete", "turn_id": "1", "last_agent_message": null}));
    let error = |info: &str| event(json!({"type": "error", "message": "it broke", "codex_error_info": info}));
    for (n, info) in [(1, "server_overloaded"), (2, "thread_rollback_failed")] {
        rollout(&sandbox, n, &[meta(n), begun.clone(), error(info), over.clone()]);
    }
    // Not said at all, as by versions whose turns name no root: something was asked, and nothing came of it.
    let asked = event(json!({"type": "user_message", "message": "fix it"}));
    let thought = event(json!({"type": "agent_reasoning", "text": "hm"}));
    let rooted =
        event(json!({"type": "task_complete", "turn_id": "1", "root_turn_id": "1", "last_agent_message": null}));
    let compacted = json!({"timestamp": "2026-03-01T07:47:11Z", "type": "compacted", "payload": {"message": "all"}});
    rollout(&sandbox, 5, &[meta(5), begun.clone(), asked.clone(), over.clone()]);
    rollout(&sandbox, 6, &[meta(6), begun.clone(), asked.clone(), thought, over.clone()]);
    rollout(&sandbox, 7, &[meta(7), begun.clone(), asked.clone(), rooted]);
    // Much came of it, of which only what was asked and how it ended is read.
    let item = json!({"type": "reasoning", "summary": ["hm".repeat(300)]});
    let item = json!({"timestamp": "2026-03-01T07:47:11Z", "type": "response_item", "payload": item});
    let count = event(json!({"type": "token_count", "info": null}));
    let ends = [vec![item; 2000], vec![count; 200], vec![over.clone()]].concat();
    rollout(&sandbox, 9, &[vec![meta(9), begun.clone(), asked], ends].concat());
    rollout(&sandbox, 8, &[meta(8), begun.clone(), compacted, over.clone()]);
    // Said in an earlier turn.
    let again = event(json!({"type": "task_started", "turn_id": "2"}));
    let well = event(json!({"type": "task_complete", "turn_id": "2", "last_agent_message": "fixed"}));
    let lines = [meta(3), begun.clone(), error("other"), over.clone(), again, well];
    rollout(&sandbox, 3, &lines);
    // Which the turn has survived.
    let answered = event(json!({"type": "task_complete", "turn_id": "1", "last_agent_message": "fixed"}));
    rollout(&sandbox, 10, &[meta(10), begun.clone(), error("other"), answered.clone()]);
    let said = event(json!({"type": "agent_message", "message": "fixed"}));
    rollout(&sandbox, 11, &[meta(11), begun.clone(), said.clone(), error("other"), said.clone(), answered.clone()]);
    // Which has ended it, after all that it said: a hook had sent it on.
    rollout(&sandbox, 12, &[meta(12), begun.clone(), said, error("other"), answered]);
    // One that lives says what it needs.
    let agent = sandbox.lookalike("codex", &["--no-daemon"]);
    codex.lock(&agent, &id(4));
    let limit = json!({"type": "error", "message": "slow down", "codex_error_info": "rate_limit_exceeded"});
    codex.thread(&id(4)).asked("fix it").add("event_msg", limit).answered("");
    let seen = list(&sandbox);
    seen.expect(&id(1), "failed", None);
    assert_eq!(seen.session(&id(1))["reason"], "it broke");
    seen.expect(&id(2), "done", None);
    seen.expect(&id(3), "done", None);
    seen.expect(&id(5), "failed", None);
    assert_eq!(seen.session(&id(5))["reason"], "it ended without an answer");
    for n in 6..=11 {
        seen.expect(&id(n), "done", None);
    }
    seen.expect(&id(12), "failed", None);
    assert_eq!(seen.session(&id(4))["reason"], "limit: slow down");
}

#[test]
fn an_end_of_a_rollout_that_cannot_be_read_is_not_guessed_at() {
    let sandbox = Sandbox::new("codex-broken-line");
    let codex = CodexStore::of(&sandbox);
    let thread = codex.thread(&id(1)).asked("one").answered("1").asked("two").calls("call_1", "make").answered("2");
    let good = std::fs::read_to_string(&thread.path).expect("a rollout");
    let with_broken = |broken: usize, upto: usize| {
        let lines = good.lines().take(upto).enumerate();
        let lines = lines.map(|(i, line)| if i == broken { &line[..line.len() / 2] } else { line });
        let beside =
            json!({"timestamp": iso(now()), "type": "event_msg", "payload": {"type": "thread_settings_applied"}});
        let lines: String = lines.map(|line| format!("{line}\n")).chain([format!("{beside}\n")]).collect();
        std::fs::write(&thread.path, lines).expect("a rollout");
        list(&sandbox).session(&id(1))["status"].clone()
    };
    let of =
        |text: &str| good.lines().enumerate().filter(|(_, l)| l.contains(text)).map(|(n, _)| n).collect::<Vec<_>>();
    let all = good.lines().count();
    let (ends, calls) = (of("task_complete"), of("\"function_call\""));
    assert_eq!(with_broken(ends[1], all), "unknown", "it may have been the end, or an error");
    assert_eq!(with_broken(ends[0], all), "done", "what came later tells");
    assert_eq!(with_broken(calls[0] - 1, calls[0] + 1), "interrupted", "it was at work after that");
}

#[test]
fn that_a_context_is_full_is_no_count_of_what_was_used() {
    let sandbox = Sandbox::new("codex-full");
    let codex = CodexStore::of(&sandbox);
    let count = |input: u64, output: u64, cached: u64, total: u64| {
        let used = json!({"input_tokens": input, "cached_input_tokens": cached, "cache_write_input_tokens": 0,
            "output_tokens": output, "reasoning_output_tokens": 0, "total_tokens": total});
        json!({"type": "token_count", "info": {"total_token_usage": used}})
    };
    let full = |n: u64| {
        let thread = codex.thread(&id(n)).asked("fix it").answered("fixed").asked("more");
        thread.add("event_msg", count(0, 0, 0, 258_400)).failed_by("no room", &json!("context_window_exceeded"))
    };
    full(1);
    // What it goes on with is counted from nothing, and comes on top.
    full(2).asked("go on").add("event_msg", count(840, 14, 600, 259_254));
    // Nothing was used yet.
    codex.thread(&id(3)).asked("fix it").add("event_msg", count(0, 0, 0, 0)).failed("no");
    let seen = list(&sandbox);
    let used = |input: u64, output: u64, cached: u64| json!({"input": input, "output": output, "cache_read": cached, "cache_write": 0});
    for (n, tokens) in [(1, used(420, 7, 300)), (2, used(1260, 21, 900)), (3, used(0, 0, 0))] {
        assert_eq!(seen.session(&id(n))["tokens"], tokens, "{n}");
    }
    seen.expect(&id(1), "failed", None);
}
