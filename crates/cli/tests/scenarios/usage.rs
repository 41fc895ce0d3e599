//! `lariat usage`: every answer of a model counted once, whoever holds copies of it.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use lariat_testkit::{Output, Sandbox};
use serde_json::{Value, json};

use crate::{
    acp::Stage,
    asking::{ask, id, settle, through},
    moment::now,
    opencode_store::OpenCodeStore,
    pi_store::PiStore,
};

fn append(path: &Path, lines: &[Value]) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder of the store");
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("a file of the store");
    for line in lines {
        file.write_all(format!("{line}\n").as_bytes()).expect("room for a line");
    }
}

fn claude(sandbox: &Sandbox, session: &str) -> PathBuf {
    sandbox.home().join(format!(".claude/projects/-work/{session}.jsonl"))
}

/// An answer of Claude's, as its transcript has it.
fn answer(message: &str, at: &str, model: &str, [input, output, read, write]: [u64; 4]) -> Value {
    json!({"type": "assistant", "uuid": "u", "timestamp": at, "cwd": "/work/a", "requestId": "r", "message": {
        "id": message, "model": model, "role": "assistant", "content": [{"type": "text", "text": "\"usage\": 1"}],
        "usage": {"input_tokens": input, "output_tokens": output, "cache_read_input_tokens": read,
                  "cache_creation_input_tokens": write}}})
}

fn usage(sandbox: &Sandbox, args: &[&str]) -> Value {
    let output = used(sandbox, args);
    assert_eq!(output.code(), 0, "{}", output.stderr);
    output.json()
}

fn used(sandbox: &Sandbox, args: &[&str]) -> Output {
    let mut all = vec!["usage", "--json"];
    all.extend(args);
    ask(sandbox, &all)
}

fn tokens(row: &Value) -> [u64; 4] {
    ["input", "output", "cache_read", "cache_write"].map(|key| row["tokens"][key].as_u64().expect("a number"))
}

fn rows(usage: &Value) -> Vec<(String, [u64; 4])> {
    let rows = usage["rows"].as_array().expect("rows").iter();
    rows.map(|row| (row["key"].as_str().unwrap_or("none").to_owned(), tokens(row))).collect()
}

#[test]
fn claude_forks_sub_agents_and_lines_of_one_message_count_once() {
    let sandbox = Sandbox::new("usage-claude");
    let (first, fork) = (claude(&sandbox, &id(1)), claude(&sandbox, &id(2)));
    let said = [
        answer("msg_1", "2026-11-01T23:59:59.900Z", "claude-opus-4-5", [10, 1, 100, 5]),
        answer("msg_1", "2026-11-01T23:59:59.950Z", "claude-opus-4-5", [10, 7, 100, 5]),
        answer("msg_2", "2026-11-02T00:00:00.000Z", "claude-sonnet-4-5", [20, 2, 0, 0]),
    ];
    append(&first, &said);
    append(&fork, &said);
    append(&fork, &[answer("msg_3", "2026-11-02T10:00:00Z", "claude-opus-4-5", [1, 1, 1, 1])]);
    // What stands elsewhere in a line is no answer of the session's.
    append(
        &fork,
        &[json!({"type": "user", "toolUseResult": {"usage": {"input_tokens": 9000}}, "message": {
        "role": "user", "content": "a", "usage": {"input_tokens": 9000}}})],
    );
    let beside = sandbox.home().join(format!(".claude/projects/-work/{}/subagents/agent-a1.jsonl", id(1)));
    append(&beside, &[answer("msg_4", "2026-11-02T11:00:00Z", "claude-haiku-4-5", [1000, 0, 0, 0])]);

    let by_day = usage(&sandbox, &[]);
    assert_eq!(by_day["by"], "day");
    let days = [("2026-11-01".to_owned(), [10, 7, 100, 5]), ("2026-11-02".to_owned(), [1021, 3, 1, 1])];
    assert_eq!(rows(&by_day), days, "days of UTC, in their order");
    assert_eq!(tokens(&by_day["total"]), [1031, 10, 101, 6]);
    assert_eq!(by_day["total"]["answers"], 4);

    let by_session = usage(&sandbox, &["--by", "session"]);
    let sessions = [(format!("claude:{}", id(1)), [1030, 9, 100, 5]), (format!("claude:{}", id(2)), [1, 1, 1, 1])];
    assert_eq!(rows(&by_session), sessions, "a sub-agent's is its session's");
    assert_eq!(rows(&usage(&sandbox, &["--by", "dir"])), [("/work/a".to_owned(), [1031, 10, 101, 6])]);
    assert_eq!(rows(&usage(&sandbox, &["--by", "agent"])), [("claude".to_owned(), [1031, 10, 101, 6])]);
    let models: Vec<String> = rows(&usage(&sandbox, &["--by", "model"])).into_iter().map(|(model, _)| model).collect();
    assert_eq!(models, ["claude-haiku-4-5", "claude-opus-4-5", "claude-sonnet-4-5"], "the most first");
    assert_eq!(rows(&usage(&sandbox, &["--by", "group"])), [("none".to_owned(), [1031, 10, 101, 6])]);
}

/// What one session used: each step's time and tokens, and all of it.
fn over_time(sandbox: &Sandbox, target: &str) -> (Vec<(String, [u64; 4])>, [u64; 4]) {
    let told = usage(sandbox, &[target]);
    assert_eq!((&told["id"], &told["told"]), (&json!(target), &json!(true)));
    let steps = told["steps"].as_array().expect("steps").iter();
    (steps.map(|s| (s["at"].as_str().expect("a time").to_owned(), tokens(s))).collect(), tokens(&told["total"]))
}

#[test]
fn of_one_session_each_answer_is_told_with_its_time() {
    let sandbox = Sandbox::new("usage-one");
    let (first, other) = (claude(&sandbox, &id(1)), claude(&sandbox, &id(2)));
    let target = format!("claude:{}", id(1));
    append(
        &first,
        &[
            answer("msg_1", "2026-11-01T23:59:59Z", "claude-opus-4-5", [10, 1, 100, 5]),
            answer("msg_1", "2026-11-01T23:59:59Z", "claude-opus-4-5", [10, 7, 100, 5]),
            answer("msg_3", "2026-11-02T00:00:09Z", "nobody-knows-it", [20, 2, 0, 0]),
        ],
    );
    append(&other, &[answer("msg_9", "2026-11-02T00:00:00Z", "claude-opus-4-5", [9000, 0, 0, 0])]);
    let beside = sandbox.home().join(format!(".claude/projects/-work/{}/subagents/agent-a1.jsonl", id(1)));
    append(&beside, &[answer("msg_2", "2026-11-02T00:00:04Z", "claude-haiku-4-5", [1000, 0, 0, 0])]);
    let expected = [
        ("2026-11-01T23:59:59Z".to_owned(), [10, 7, 100, 5]),
        ("2026-11-02T00:00:04Z".to_owned(), [1000, 0, 0, 0]),
        ("2026-11-02T00:00:09Z".to_owned(), [20, 2, 0, 0]),
    ];
    assert_eq!(over_time(&sandbox, &target), (expected.to_vec(), [1030, 9, 100, 5]));
    let told = usage(&sandbox, &[&target]);
    assert_eq!(told["steps"][1]["cost_usd"], 0.001, "by the table");
    assert_eq!(told["total"]["cost_usd"], Value::Null, "a part of it has no price");
    assert_eq!((&told["steps"][2]["cost_usd"], &told["steps"][2]["unpriced_tokens"]), (&Value::Null, &json!(22)));
    // The sums of all files are gone on from, and stay theirs.
    settle(&[first.clone(), other, beside]);
    assert_eq!(rows(&usage(&sandbox, &["--by", "session"])).len(), 2);
    let kept = || fs::read(sandbox.home().join(".cache/lariat/usage-claude")).expect("what was kept");
    let before = kept();
    append(&first, &[answer("msg_4", "2026-11-02T00:00:10Z", "claude-opus-4-5", [1, 1, 1, 1])]);
    let (steps, total) = over_time(&sandbox, &target);
    assert_eq!((steps.len(), &steps[..3], total), (4, &expected[..], [1031, 10, 101, 6]));
    assert_eq!(kept(), before);
    // To a person, with what it comes to.
    let shown = ask(&sandbox, &["usage", &target]).stdout;
    let last = shown.lines().last().expect("a line");
    assert!(shown.lines().count() == 5 && last.starts_with("total") && last.contains('≥'), "{shown}");
    assert_eq!(ask(&sandbox, &["usage", &target, "--by", "day"]).code(), 2);
    // A long one is told in steps of several answers, and nothing of it is lost.
    let many: Vec<Value> =
        (0..1201).map(|n| answer(&format!("m{n}"), "2026-11-03T00:00:00Z", "m", [1, 0, 0, 0])).collect();
    append(&claude(&sandbox, &id(3)), &many);
    let (steps, total) = over_time(&sandbox, &format!("claude:{}", id(3)));
    assert_eq!((steps.len(), total), (401, [1201, 0, 0, 0]));
    assert_eq!(steps.iter().map(|(_, t)| t[0]).sum::<u64>(), 1201);
}

#[test]
fn what_grew_is_taken_up_again_and_a_lost_cache_changes_nothing() {
    let sandbox = Sandbox::new("usage-grown");
    let file = claude(&sandbox, &id(1));
    append(&file, &[answer("msg_1", "2026-11-01T10:00:00Z", "claude-opus-4-5", [10, 1, 0, 0])]);
    settle(std::slice::from_ref(&file));
    assert_eq!(tokens(&usage(&sandbox, &[])["total"]), [10, 1, 0, 0]);
    // The same message goes on: what is kept grows, and is not added to.
    append(
        &file,
        &[
            answer("msg_1", "2026-11-01T10:00:01Z", "claude-opus-4-5", [10, 5, 0, 0]),
            answer("msg_2", "2026-11-01T10:00:02Z", "claude-opus-4-5", [1, 1, 0, 0]),
        ],
    );
    assert_eq!(tokens(&usage(&sandbox, &[])["total"]), [11, 6, 0, 0]);
    settle(std::slice::from_ref(&file));
    let kept = usage(&sandbox, &["--by", "session"]);
    let cache = sandbox.home().join(".cache/lariat");
    assert!(cache.join("usage-claude").exists(), "there is a cache");
    let text = fs::read(&file).expect("a transcript");
    fs::remove_dir_all(&cache).expect("no cache");
    let anew = usage(&sandbox, &["--by", "session"]);
    assert_eq!((rows(&anew), tokens(&anew["total"])), (rows(&kept), tokens(&kept["total"])));
    // Rewritten, of the same length: read anew.
    let other = String::from_utf8(text).expect("text").replace("\"output_tokens\":5", "\"output_tokens\":9");
    fs::write(&file, other).expect("a rewrite");
    assert_eq!(tokens(&usage(&sandbox, &[])["total"]), [11, 10, 0, 0]);
}

fn codex(sandbox: &Sandbox, thread: &str) -> PathBuf {
    sandbox.home().join(format!(".codex/sessions/2026/11/01/rollout-2026-11-01T10-00-00-{thread}.jsonl"))
}

fn codex_usage([input, cached, output]: [u64; 3]) -> Value {
    json!({"input_tokens": input, "cached_input_tokens": cached, "cache_write_input_tokens": 0,
           "output_tokens": output, "reasoning_output_tokens": 0, "total_tokens": input + output})
}

fn codex_line(kind: &str, payload: &Value) -> Value {
    json!({"timestamp": "2026-11-01T10:00:00.000Z", "type": kind, "payload": payload})
}

fn token_count(total: [u64; 3], last: [u64; 3]) -> Value {
    let info = json!({"total_token_usage": codex_usage(total), "last_token_usage": codex_usage(last)});
    codex_line("event_msg", &json!({"type": "token_count", "info": info}))
}

fn record(response: &str, total: [u64; 3], last: [u64; 3]) -> Value {
    let payload =
        json!({"response_id": response, "usage": codex_usage(last), "thread_token_usage": codex_usage(total)});
    codex_line("token_usage_record", &payload)
}

#[test]
fn codex_forks_start_at_their_parents_total_and_sub_agents_count_for_their_session() {
    let sandbox = Sandbox::new("usage-codex");
    let meta = |thread: &str, more: Value| {
        let mut payload = json!({"id": thread, "cwd": "/work/c"});
        payload.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        [codex_line("session_meta", &payload), codex_line("turn_context", &json!({"model": "gpt-5.1-codex"}))]
    };
    // Records, and the counts that tell the same again; some are told twice.
    let parent = codex(&sandbox, &id(1));
    append(&parent, &meta(&id(1), json!({})));
    append(&parent, &[record("r1", [100, 60, 5], [100, 60, 5]), token_count([100, 60, 5], [100, 60, 5])]);
    append(&parent, &[token_count([100, 60, 5], [100, 60, 5])]);
    let base = json!({"forked_from_id": id(1), "history_base": {"thread_id": id(1), "end_byte_offset": 10}});
    let fork = codex(&sandbox, &id(2));
    append(&fork, &meta(&id(2), base));
    append(&fork, &[record("r2", [130, 80, 7], [30, 20, 2]), token_count([130, 80, 7], [30, 20, 2])]);
    // A version without records: only counts, and a fork with copies of its parent's lines.
    let old = codex(&sandbox, &id(3));
    append(&old, &meta(&id(3), json!({})));
    let told =
        [token_count([10, 0, 1], [10, 0, 1]), token_count([10, 0, 1], [10, 0, 1]), token_count([25, 5, 3], [15, 5, 2])];
    append(&old, &told);
    let copy = codex(&sandbox, &id(4));
    append(&copy, &meta(&id(4), json!({"forked_from_id": id(3)})));
    append(&copy, &meta(&id(3), json!({})));
    append(&copy, &told);
    append(&copy, &[token_count([26, 5, 4], [1, 0, 1])]);
    // A sub-agent of a sub-agent.
    let spawn = |parent: &str| json!({"source": {"subagent": {"thread_spawn": {"parent_thread_id": parent}}}});
    append(&codex(&sandbox, &id(5)), &meta(&id(5), spawn(&id(1))));
    append(&codex(&sandbox, &id(6)), &meta(&id(6), spawn(&id(5))));
    append(&codex(&sandbox, &id(6)), &[record("r3", [1000, 0, 0], [1000, 0, 0])]);

    let by = usage(&sandbox, &["--by", "session"]);
    let expected = [
        (format!("codex:{}", id(1)), [1040, 5, 60, 0]),
        (format!("codex:{}", id(2)), [10, 2, 20, 0]),
        (format!("codex:{}", id(3)), [20, 3, 5, 0]),
        (format!("codex:{}", id(4)), [1, 1, 0, 0]),
    ];
    assert_eq!(rows(&by), expected, "what came from the cache is no input");
    // By itself: without what works for it, and with what it holds copies of.
    let alone = [(1, 1, [40, 5, 60, 0]), (2, 1, [10, 2, 20, 0]), (3, 2, [20, 3, 5, 0]), (4, 3, [21, 4, 5, 0])];
    for (n, steps, total) in alone {
        let told = over_time(&sandbox, &format!("codex:{}", id(n)));
        assert_eq!((told.0.len(), told.1), (steps, total), "{n}");
    }
}

/// A listing and the sum over all say the same, also of what has no id; and what is not told is not nothing.
#[test]
fn an_answer_without_an_id_counts_and_one_that_does_not_tell_what_it_used_leaves_it_open() {
    let sandbox = Sandbox::new("usage-without");
    let shown = |session: &str| {
        let told = ask(&sandbox, &["status", session, "--json"]).json();
        (told["tokens"].clone(), told["cost_usd"].clone())
    };
    let nameless = |at: &str| {
        let mut line = answer("", at, "opus", [100, 7, 0, 0]);
        line["message"].as_object_mut().expect("an object").remove("id");
        line["uuid"] = json!(at);
        line
    };
    append(&claude(&sandbox, &id(1)), &[nameless("2026-11-15T08:00:00Z"), nameless("2026-11-15T08:00:01Z")]);
    let all = json!({"input": 200, "output": 14, "cache_read": 0, "cache_write": 0});
    assert_eq!(shown(&id(1)), (all, Value::Null));
    assert_eq!(tokens(&usage(&sandbox, &[])["total"]), [200, 14, 0, 0]);
    let mut silent = nameless("2026-11-15T08:00:02Z");
    silent["message"].as_object_mut().expect("an object").remove("usage");
    append(&claude(&sandbox, &id(1)), &[silent]);
    assert_eq!(shown(&id(1)), (Value::Null, Value::Null));
    let message = json!({"role": "assistant", "content": [{"type": "text", "text": "ok"}], "stopReason": "stop"});
    drop(PiStore::of(&sandbox).session("one").asked("fix it").message(message));
    assert_eq!(shown("one"), (Value::Null, Value::Null));
}

#[test]
fn an_answer_of_claude_s_that_tells_no_number_is_told_of() {
    let sandbox = Sandbox::new("usage-no-number");
    let with = |message: &str, key: &str, what: Value| {
        let mut line = answer(message, "2026-11-15T08:00:00Z", "claude-opus-4-5", [100, 7, 30, 0]);
        line["message"]["usage"][key] = what;
        line
    };
    // Without a cache some say `null`.
    append(&claude(&sandbox, &id(1)), &[with("m1", "cache_creation_input_tokens", Value::Null)]);
    assert_eq!(usage(&sandbox, &[])["warnings"], json!([]));
    append(&claude(&sandbox, &id(1)), &[with("m2", "input_tokens", json!("many"))]);
    append(&claude(&sandbox, &id(2)), &[with("m3", "output_tokens", Value::Null)]);
    let output = used(&sandbox, &[]);
    let (by, code) = (output.json(), output.code());
    assert_eq!((tokens(&by["total"]), code), ([100, 7, 30, 0], 5));
    let warnings = by["warnings"].to_string();
    assert!(warnings.contains(&id(1)) && warnings.contains(&id(2)), "{warnings}");
    assert_eq!(ask(&sandbox, &["status", &id(1), "--json"]).json()["tokens"], Value::Null);
}

#[test]
fn a_codex_that_goes_on_after_a_kill_has_not_counted_all_and_counts_nothing_twice() {
    let sandbox = Sandbox::new("usage-codex-killed");
    let meta = codex_line("session_meta", &json!({"id": id(1), "cwd": "/work/c", "history_mode": "paginated"}));
    let thread = codex(&sandbox, &id(1));
    append(&thread, &[meta, codex_line("turn_context", &json!({"model": "gpt-5.1-codex"}))]);
    // Killed before it counted; the next one begins at nothing. It says the same twice.
    append(&thread, &[record("r1", [420, 300, 7], [420, 300, 7])]);
    append(&thread, &[record("r2", [820, 600, 9], [400, 300, 2]), token_count([400, 300, 2], [400, 300, 2])]);
    append(&thread, &[token_count([400, 300, 2], [400, 300, 2])]);
    let shown = || ask(&sandbox, &["status", &id(1), "--json"]).json()["tokens"].clone();
    let expected = |[input, output, read]: [u64; 3]| json!({"input": input, "output": output, "cache_read": read, "cache_write": 0});
    assert_eq!(shown(), expected([820, 9, 600]), "input includes the cache, as Codex counts");
    assert_eq!(tokens(&usage(&sandbox, &[])["total"]), [220, 9, 600, 0]);
    // A version that writes no records goes on, and its response is as large as the last.
    append(&thread, &[token_count([800, 600, 4], [400, 300, 2])]);
    assert_eq!(shown(), expected([800, 4, 600]));
    assert_eq!(tokens(&usage(&sandbox, &[])["total"]), [320, 11, 900, 0]);
    // A total of another kind is none.
    let info = json!({"total_token_usage": {"tokens": 5}});
    append(&thread, &[codex_line("event_msg", &json!({"type": "token_count", "info": info}))]);
    assert_eq!(shown(), Value::Null);
}

#[test]
fn the_cost_that_an_agent_records_wins_and_copies_of_pi_and_opencode_count_once() {
    let sandbox = Sandbox::new("usage-recorded");
    let pi =
        |name: &str| sandbox.home().join(format!(".pi/agent/sessions/--work--/2026-11-01T10-00-00-000Z_{name}.jsonl"));
    let said = |id: &str, cost: f64| {
        json!({"type": "message", "id": id, "timestamp": "2026-11-01T10:00:00.000Z", "message": {"role": "assistant",
            "model": "gpt-5", "responseId": id, "usage": {"input": 1_000_000, "output": 0, "cacheRead": 0,
            "cacheWrite": 0, "cost": {"total": cost}}}})
    };
    append(&pi("one"), &[json!({"type": "session", "id": "one", "cwd": "/work/p"}), said("aa", 7.5), said("bb", 0.0)]);
    let parent = pi("one");
    append(
        &pi("two"),
        &[
            json!({"type": "session", "id": "two", "cwd": "/work/p", "parentSession": parent}),
            said("aa", 7.5),
            said("bb", 0.0),
            said("cc", 0.5),
        ],
    );
    let by = usage(&sandbox, &["--by", "session"]);
    assert_eq!(rows(&by), [("pi:one".to_owned(), [2_000_000, 0, 0, 0]), ("pi:two".to_owned(), [1_000_000, 0, 0, 0])]);
    let total = &by["total"];
    assert_eq!(total["recorded_usd"], 8.0);
    assert_eq!(total["table_usd"], 1.25, "a cost of nothing is none: the table tells");
    assert_eq!(total["cost_usd"], 9.25);
    // What Pi used to sum up, for a tool or beside all that is its session's, too.
    let beside = |id: &str, kind: &str| {
        json!({"type": kind, "id": id, "timestamp": "2026-11-01T10:00:01.000Z", "usage": {"input": 3, "output": 2,
            "cacheRead": 1, "cacheWrite": 0, "cost": {"total": 0.125}}})
    };
    let tool = json!({"type": "message", "id": "t", "timestamp": "2026-11-01T10:00:01.000Z",
        "message": {"role": "toolResult", "usage": beside("", "")["usage"]}});
    let more = [beside("c", "compaction"), beside("b", "branch_summary"), beside("u", "usage"), tool];
    append(&pi("three"), &[json!({"type": "session", "id": "three", "cwd": "/work/p"}), said("dd", 0.5)]);
    append(&pi("three"), &more);
    let by = usage(&sandbox, &["--by", "session"]);
    assert!(rows(&by).contains(&("pi:three".to_owned(), [1_000_012, 8, 4, 0])), "{by:#}");
    assert_eq!((&by["total"]["recorded_usd"], &by["total"]["cost_usd"]), (&json!(9.0), &json!(10.25)));
    let models = usage(&sandbox, &["--by", "model"]);
    assert_eq!(rows(&models).len(), 1, "who answers sums up, too: {models:#}");
    std::fs::remove_file(pi("three")).expect("a session");

    let store = OpenCodeStore::of(&sandbox);
    let message = |id: &str, session: &str, created: u64, input: u64| {
        let data = json!({"role": "assistant", "time": {"created": created, "completed": created + 1}, "modelID": "m",
            "providerID": "p", "cost": 0.25, "tokens": {"input": input, "output": 1, "reasoning": 2,
            "cache": {"read": 3, "write": 4}}});
        store.sql(&format!("INSERT INTO message VALUES ('{id}', '{session}', {created}, {created}, '{data}')"));
    };
    drop((store.session("ses_2"), store.session("ses_1"), store.below("ses_3", "ses_2")));
    // The newer an id of OpenCode's is, the earlier it stands in the alphabet.
    store.sql("UPDATE session SET time_created = time_created + 1000 WHERE id = 'ses_1'");
    message("msg_1", "ses_2", 1_793_527_200_000, 10);
    message("msg_2", "ses_1", 1_793_527_200_000, 10); // a fork's copy
    message("msg_3", "ses_1", 1_793_527_300_000, 10);
    message("msg_4", "ses_3", 1_793_527_400_000, 100);
    let by = usage(&sandbox, &["--by", "session"]);
    let opencode: Vec<_> = rows(&by).into_iter().filter(|(key, _)| key.starts_with("opencode")).collect();
    let expected = [("opencode:ses_2".to_owned(), [110, 6, 6, 8]), ("opencode:ses_1".to_owned(), [10, 3, 3, 4])];
    assert_eq!(opencode, expected, "one that works for another counts for it");
    assert_eq!(by["total"]["recorded_usd"], 8.75);
    for (target, steps, total) in [
        ("pi:one", 2, [2_000_000, 0, 0, 0]),
        ("pi:two", 3, [3_000_000, 0, 0, 0]),
        ("opencode:ses_2", 2, [110, 6, 6, 8]),
        ("opencode:ses_1", 2, [20, 6, 6, 8]), // with what it holds copies of
    ] {
        let told = over_time(&sandbox, target);
        assert_eq!((told.0.len(), told.1), (steps, total), "{target}");
    }
}

#[test]
fn of_sessions_of_pi_that_share_an_id_each_has_its_own() {
    let sandbox = Sandbox::new("usage-shared");
    let store = PiStore::of(&sandbox);
    for (n, (place, session)) in (1..).zip([("a", "work"), ("b", "work"), ("b", "alone")]) {
        drop(store.session_at(session, &sandbox.project(place), now() - n * 1000).asked("one").answered("1"));
    }
    let listed = ask(&sandbox, &["ls", "-a", "--json"]).json();
    let mut ids: Vec<&str> =
        listed["sessions"].as_array().expect("rows").iter().flat_map(|s| s["id"].as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids.len(), 3, "{listed:#}");
    let by = usage(&sandbox, &["--by", "session"]);
    let mut told: Vec<String> = rows(&by).into_iter().map(|(key, _)| key).collect();
    told.sort_unstable();
    assert_eq!(told, ids);
    for row in listed["sessions"].as_array().expect("rows") {
        let (steps, total) = over_time(&sandbox, row["id"].as_str().expect("an id"));
        assert_eq!((steps.len(), total), (1, tokens(row)), "{row:#}");
        assert!(total[1] > 0, "{row:#}");
    }
}

#[test]
fn of_sessions_of_pi_that_share_an_id_one_may_tell_it_by_its_header_alone() {
    let sandbox = Sandbox::new("usage-shared-header");
    let store = PiStore::of(&sandbox);
    let [_, other] = ["a", "b"].map(|place| {
        let session = store.session_at("work", &sandbox.project(place), now() - 1000);
        session.asked(place).answered("1").path
    });
    fs::rename(&other, other.with_file_name("brought-here.jsonl")).expect("another name");
    let listed = ask(&sandbox, &["ls", "-a", "--json"]).json();
    let rows_of = listed["sessions"].as_array().expect("rows").iter();
    let mut ids: Vec<&str> = rows_of.flat_map(|s| s["id"].as_str()).collect();
    ids.sort_unstable();
    assert!(ids.len() == 2 && ids.iter().all(|id| id.contains('@')), "{listed:#}");
    let mut told: Vec<String> = rows(&usage(&sandbox, &["--by", "session"])).into_iter().map(|(key, _)| key).collect();
    told.sort_unstable();
    assert_eq!(told, ids);
}

#[test]
fn what_was_launched_to_speak_acp_is_counted_in_its_agent_s_store() {
    let stage = Stage::new("usage-acp");
    let launched = stage.launch(&["acp:scripted", "--group", "party"]);
    let store = PiStore::of(&stage.sandbox);
    drop(store.session_at("other", &stage.sandbox.project("a"), now() - 9000).asked("one").answered("1").answered("2"));
    drop(store.session_at(launched.id(), &stage.sandbox.work(), now() - 5000).asked("one").answered("1"));
    stage.act(&["stop", launched.handle()]);
    stage.nothing_is_left();
    let by = usage(&stage.sandbox, &["--by", "group"]);
    assert_eq!(rows(&by), [("none".to_owned(), [200, 14, 600, 40]), ("party".to_owned(), [100, 7, 300, 20])]);
    let told = usage(&stage.sandbox, &[launched.handle()]);
    assert_eq!((&told["told"], tokens(&told["total"])), (&json!(true), [100, 7, 300, 20]), "{told:#}");
}

#[test]
fn gemini_counts_the_last_word_of_a_message_in_all_files_of_a_session() {
    let sandbox = Sandbox::new("usage-gemini");
    let file = |minute: &str| {
        sandbox.home().join(format!(".gemini/tmp/proj/chats/session-2026-11-01T10-{minute}-aaaaaaaa.jsonl"))
    };
    let head = json!({"sessionId": "aaaaaaaa-1", "kind": "main", "startTime": "2026-11-01T10:00:00.000Z"});
    let message = |id: &str, output: u64| {
        json!({"id": id, "type": "gemini", "timestamp": "2026-11-01T10:00:00.000Z", "model": "gemini-2.5-pro",
            "tokens": {"input": 420, "output": output, "cached": 300, "thoughts": 2, "tool": 5, "total": 0}})
    };
    append(&file("00"), &[head.clone(), message("m1", 1), message("m1", 7)]);
    append(&file("05"), &[head, json!({"$set": {"messages": [message("m1", 7), message("m2", 1)]}})]);
    fs::write(sandbox.home().join(".gemini/tmp/proj/.project_root"), "/work/g\n").expect("a file");
    assert_eq!(rows(&usage(&sandbox, &["--by", "dir"])), [("/work/g".to_owned(), [250, 12, 600, 0])]);
    assert_eq!(rows(&usage(&sandbox, &["--by", "session"]))[0].0, "gemini:aaaaaaaa-1");
    // Another one, whose id begins alike: a file's name has no more of it.
    let head = json!({"sessionId": "aaaaaaaa-2", "kind": "main", "startTime": "2026-11-01T10:00:00.000Z"});
    append(&file("09"), &[head, message("m9", 1)]);
    assert_eq!(over_time(&sandbox, "gemini:aaaaaaaa-1").1, [250, 12, 600, 0]);
    assert_eq!(over_time(&sandbox, "gemini:aaaaaaaa-2").1, [125, 3, 300, 0]);
    // A sub-agent counts for the session that it works for.
    let beside = sandbox.home().join(".gemini/tmp/proj/chats/aaaaaaaa-2/agent-7.jsonl");
    let head = json!({"sessionId": "agent-7", "kind": "subagent", "startTime": "2026-11-01T10:00:00.000Z"});
    append(&beside, &[head, message("m77", 1)]);
    assert_eq!(over_time(&sandbox, "gemini:aaaaaaaa-2").1, [250, 6, 600, 0]);
    let by: Vec<String> = rows(&usage(&sandbox, &["--by", "session"])).into_iter().map(|(key, _)| key).collect();
    assert_eq!(by, ["gemini:aaaaaaaa-1", "gemini:aaaaaaaa-2"]);
    assert_eq!(rows(&usage(&sandbox, &["--by", "dir"])), [("/work/g".to_owned(), [500, 18, 1200, 0])]);
}

#[test]
fn prices_of_the_settings_come_first_and_what_has_none_has_no_cost() {
    let sandbox = Sandbox::new("usage-prices");
    let lines = [
        answer("m1", "2026-11-01T10:00:00Z", "claude-opus-4-5-20251101", [1_000_000, 1_000_000, 1_000_000, 1_000_000]),
        answer("m2", "2026-11-01T10:00:00Z", "house-model", [1_000_000, 0, 0, 3]),
    ];
    append(&claude(&sandbox, &id(1)), &lines);
    let by = usage(&sandbox, &["--by", "model"]);
    let (known, unknown) = (&by["rows"][0], &by["rows"][1]);
    assert_eq!((&known["cost_usd"], &known["unpriced_tokens"]), (&json!(36.75), &json!(0)));
    assert_eq!(unknown["cost_usd"], Value::Null);
    assert_eq!(unknown["unpriced_tokens"], 1_000_003);
    assert_eq!(by["unpriced_models"], json!(["house-model"]));
    // A sum of both is exact or none; the table says what it is at least.
    let mixed = usage(&sandbox, &["--by", "agent"]);
    for sum in [&mixed["rows"][0], &mixed["total"], &by["total"]] {
        assert_eq!((&sum["cost_usd"], &sum["table_usd"]), (&Value::Null, &json!(36.75)), "{sum}");
        assert_eq!(sum["unpriced_tokens"], 1_000_003);
    }
    let table = ask(&sandbox, &["usage", "--by", "agent"]).stdout;
    assert_eq!(table.matches("≥$36.75").count(), 2, "{table}");
    assert!(by["prices"][0]["as_of"].is_string(), "a price says of which day it is: {by}");

    let settings = sandbox.home().join(".config/lariat/config.toml");
    fs::create_dir_all(settings.parent().expect("a folder")).expect("a folder");
    fs::write(&settings, "[[price\n").expect("settings");
    let unread = used(&sandbox, &[]);
    assert_eq!((unread.code(), unread.json()["warnings"][0]["adapter"].clone()), (5, json!("settings")));
    let text = "[[price]]\nmodel = \"house-model\"\ninput = 2\noutput = 4.5\ncache_write = 1_000\nas_of = \"2026-10-01\"\n\
                [[price]]\nmodel = \"claude-opus-4-5\"\ninput = 1\noutput = 0\ncache_read = 0\ncache_write = 0\n\
                [[price]]\nmodel = \"broken\"\ninput = \"much\"\n";
    fs::write(&settings, text).expect("settings");
    let output = used(&sandbox, &["--by", "model"]);
    let by = output.json();
    assert_eq!((&by["rows"][0]["cost_usd"], &by["rows"][1]["cost_usd"]), (&json!(1.0), &json!(2.003)));
    assert_eq!(by["unpriced_models"], json!([]));
    let warnings = by["warnings"].to_string();
    assert!(
        warnings.contains("input should be a number") && warnings.contains("a price needs its output"),
        "{warnings}"
    );
    assert_eq!(output.code(), 0, "no store is unread");
}

#[test]
fn since_leaves_out_what_came_before_and_what_has_no_time() {
    let sandbox = Sandbox::new("usage-since");
    let mut undated = answer("m3", "", "claude-opus-4-5", [4, 0, 0, 0]);
    undated["timestamp"] = Value::Null;
    let lines = [
        answer("m1", "2026-10-31T23:59:59.999Z", "claude-opus-4-5", [1, 0, 0, 0]),
        answer("m2", "2026-11-01T00:00:00.000Z", "claude-opus-4-5", [2, 0, 0, 0]),
        undated,
    ];
    append(&claude(&sandbox, &id(1)), &lines);
    assert_eq!(tokens(&usage(&sandbox, &[])["total"])[0], 7);
    let since = usage(&sandbox, &["--since", "2026-11-01"]);
    assert_eq!(tokens(&since["total"])[0], 2);
    assert!(since["notes"].to_string().contains("1 answers without a time"), "{}", since["notes"]);
    assert_eq!(tokens(&usage(&sandbox, &["--since", "2026-10-31T23:59:59Z"])["total"])[0], 3);
    assert_eq!(tokens(&usage(&sandbox, &["--since", "36500d"])["total"])[0], 3);
    for bad in [["--since", "yesterday"], ["--since", "2026-13-01"], ["--since", "7"], ["--by", "weekday"]] {
        let output = ask(&sandbox, &["usage", bad[0], bad[1]]);
        assert_eq!((output.code(), output.stdout.as_str()), (2, ""), "{bad:?}");
    }
}

#[test]
fn what_cannot_be_read_is_told_and_the_rest_counts() {
    let sandbox = Sandbox::new("usage-damage");
    let (good, broken) = (claude(&sandbox, &id(1)), claude(&sandbox, &id(2)));
    append(&good, &[answer("m1", "2026-11-01T10:00:00Z", "claude-opus-4-5", [1, 0, 0, 0])]);
    append(&broken, &[answer("m2", "2026-11-01T10:00:00Z", "claude-opus-4-5", [2, 0, 0, 0])]);
    // Still being written: no damage.
    fs::OpenOptions::new()
        .append(true)
        .open(&broken)
        .expect("it")
        .write_all(b"{\"type\":\"assistant\",\"message\":{\"us")
        .expect("room");
    assert_eq!(tokens(&usage(&sandbox, &[])["total"])[0], 3);
    fs::OpenOptions::new().append(true).open(&broken).expect("it").write_all(b"age}\n{\"usage\":}\n").expect("room");
    append(&broken, &[answer("m3", "2026-11-01T10:00:00Z", "claude-opus-4-5", [u64::from(u32::MAX) + 1, 0, 0, 0])]);
    let zst = sandbox.home().join(".codex/sessions/2026/11/01/rollout-2026-11-01T10-00-00-x.jsonl.zst");
    append(&zst, &[json!(1)]);
    let output = used(&sandbox, &[]);
    assert_eq!(output.code(), 5);
    let by = output.json();
    assert_eq!(tokens(&by["total"])[0], 3);
    let warnings = by["warnings"].to_string();
    assert!(warnings.contains("unreadable") && warnings.contains(&id(2)) && warnings.contains(".zst"), "{warnings}");
    // A pipe in place of a transcript holds nobody up, and is told.
    let pipe = claude(&sandbox, &id(3));
    through(&sandbox, &format!("mkfifo {}; true", pipe.display()), &[]);
    let output = used(&sandbox, &[]);
    assert_eq!((output.code(), tokens(&output.json()["total"])[0]), (5, 3));
    assert!(output.json()["warnings"].to_string().contains(&id(3)), "{}", output.json());
}

#[test]
fn the_table_fits_and_says_what_has_no_price() {
    let sandbox = Sandbox::new("usage-table");
    let nothing = ask(&sandbox, &["usage"]);
    assert!(nothing.stdout.starts_with("Nothing was used."), "{}", nothing.stdout);
    let lines = [
        answer("m1", "2026-11-01T10:00:00Z", "claude-opus-4-5", [1_000_000, 0, 0, 0]),
        answer("m2", "2026-11-02T10:00:00Z", "evil\u{1b}[31mmodel", [500_000, 0, 0, 0]),
    ];
    append(&claude(&sandbox, &id(1)), &lines);
    let output = ask(&sandbox, &["usage"]);
    let bars: Vec<usize> = output.stdout.lines().map(|l| l.matches('█').count()).filter(|n| *n > 0).collect();
    assert!(bars.len() == 2 && bars[0] == bars[1] * 2, "{}", output.stdout);
    assert!(output.stdout.contains("$5.00") && output.stdout.contains("≥$5.00"), "{}", output.stdout);
    assert!(output.stdout.contains("500k tokens have no price"), "{}", output.stdout);
    assert!(output.stdout.contains("openclaw") && output.stdout.contains("keeps no record"), "{}", output.stdout);
    for columns in ["20", "34", "60", "200"] {
        let output = through(&sandbox, &format!("COLUMNS={columns} \"$@\""), &["usage", "--by", "model"]);
        let table = output.stdout.split("\n\n").next().expect("a table");
        let widest = table.lines().map(|l| l.chars().count()).max().unwrap_or(0);
        assert!(widest <= columns.parse::<usize>().expect("a number").max(26), "{columns}: {table}");
        assert!(!output.stdout.contains('\u{1b}'), "nothing acts");
    }
}
