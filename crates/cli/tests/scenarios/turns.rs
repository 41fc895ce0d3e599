//! What the lines of a transcript add up to when no process is left: how its last turn stands, what it cost, and
//! whose it is. Each is a shape that a real store has, and that once was told wrongly.

use lariat_testkit::Sandbox;
use serde_json::{Value, json};

use crate::{
    asking::{id, list},
    claude_store::ClaudeStore,
    codex_store::CodexStore,
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
    let at = crate::moment::now() - 60_000;
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
    let seen = list(&sandbox);
    assert_eq!(seen.session(&id(5))["tokens"]["input"], 100, "what is accounted for is taken");
    assert_eq!((&seen.session(&id(6))["tokens"], &seen.session(&id(6))["cost_usd"]), (&Value::Null, &Value::Null));
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
