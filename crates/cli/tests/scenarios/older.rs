//! Stores as older versions of the agents keep them, where they differ from today's.

use std::fs;

use lariat_testkit::Sandbox;
use serde_json::{Value, json};

use crate::{
    asking::{ask, id, list},
    claude_store::ClaudeStore,
    codex_store::CodexStore,
    moment::now,
    scripted::put,
};

#[test]
fn a_title_is_of_the_session_whose_record_it_names() {
    let sandbox = Sandbox::new("older-titles");
    let claude = ClaudeStore::of(&sandbox);
    let at = 1_760_000_000_000_i64;
    let record = |at: i64| json!(format!("00000000-0000-4000-8000-{at:012x}"));
    let title = |title: &str, leaf: Value| json!({"type": "summary", "summary": title, "leafUuid": leaf});
    // Written when the second one began, of the first; so it stands in the second.
    claude.session(&id(1)).at(at).asked("fix it").answered("fixed");
    let of_another = title("Fixing it", record(at + 1));
    claude.session(&id(2)).line(&of_another).at(at + 100).asked("add it").answered("added");
    // One that was resumed has what was said before again, and one at its end the last of it.
    let own = title("Removing it", record(at + 201));
    claude.session(&id(3)).line(&of_another).line(&own).at(at + 200).asked("remove it").answered("removed");
    let session = claude.session(&id(4)).at(at + 300).asked("move it").answered("moved");
    drop(session.line(&title("Moving it", record(at + 302))).line(&of_another));
    let seen = list(&sandbox);
    let titles = [1, 2, 3, 4].map(|n| seen.session(&id(n))["title"].clone());
    assert_eq!(titles, [Value::Null, Value::Null, json!("Removing it"), json!("Moving it")]);
}

#[test]
fn a_prompt_that_was_taken_up_and_never_written_down_was_cut_off() {
    let sandbox = Sandbox::new("older-dequeued");
    let claude = ClaudeStore::of(&sandbox);
    let taken = json!({"type": "queue-operation", "operation": "dequeue", "timestamp": "2026-11-18T03:28:05.694Z"});
    let one = claude.session(&id(1)).line(&taken);
    list(&sandbox).expect(&id(1), "interrupted", None);
    drop(one.asked("fix it").answered("fixed"));
    list(&sandbox).expect(&id(1), "done", None);
}

#[test]
fn a_file_of_nothing_but_copies_is_no_session() {
    let sandbox = Sandbox::new("older-copies");
    let claude = ClaudeStore::of(&sandbox);
    let copy = json!({"type": "file-history-snapshot", "messageId": "m", "snapshot": {"trackedFileBackups": {}}});
    let one = claude.session(&id(1)).line(&copy).line(&copy);
    assert!(list(&sandbox).sessions().is_empty());
    drop(one.asked("fix it"));
    list(&sandbox).expect(&id(1), "interrupted", None);
}

/// As 2.1.90 registers itself, once and for all.
fn registered(claude: &ClaudeStore, pid: i32, session: &str) {
    let entry = json!({"pid": pid, "sessionId": session, "cwd": "/", "startedAt": now(), "kind": "interactive",
        "entrypoint": "cli"});
    claude.put(&format!("sessions/{pid}.json"), entry.to_string());
}

#[test]
fn a_terminal_that_only_says_which_session_it_began_with_is_at_its_prompt_until_something_is_recorded() {
    let sandbox = Sandbox::new("older-registry");
    let claude = ClaudeStore::of(&sandbox);
    claude.session(&id(1)).at(now() - 60_000).asked("fix it").answered("fixed");
    claude.session(&id(2)).at(now() - 60_000).asked("add it");
    let agents = [1, 2, 3].map(|n| {
        let agent = sandbox.lookalike("claude", &[]);
        registered(&claude, agent.pid(), &id(n));
        agent
    });
    let seen = list(&sandbox);
    for (agent, n) in agents.iter().zip(1..) {
        seen.expect(&id(n), "idle", Some(agent.pid()));
    }
    let session = claude.session(&id(1)).asked("once more");
    list(&sandbox).expect(&id(1), "working", Some(agents[0].pid()));
    drop(session.answered("done"));
    list(&sandbox).expect(&id(1), "idle", Some(agents[0].pid()));
}

#[test]
fn who_was_told_to_go_on_to_another_session_is_not_at_the_one_it_is_registered_with() {
    let sandbox = Sandbox::new("older-cleared");
    let claude = ClaudeStore::of(&sandbox);
    claude.session(&id(1)).at(now() - 60_000).asked("long ago").answered("yes");
    let agent = sandbox.lookalike("claude", &[]);
    registered(&claude, agent.pid(), &id(2));
    claude.session(&id(2)).at(now() - 1000).asked("fix it").answered("fixed");
    list(&sandbox).expect(&id(2), "idle", Some(agent.pid()));
    claude.typed(&id(2), "/clear");
    claude.session(&id(3)).at(now() + 10).asked("add it");
    let seen = list(&sandbox);
    // What it left has ended; what was written since could be its own.
    seen.expect(&id(1), "done", None);
    seen.expect(&id(2), "done", None);
    assert_eq!((seen.status(&id(3)), seen.unbound()), ("unknown", vec![agent.pid()]), "{}", seen.text);
    // It may have gone back to any.
    claude.typed(&id(2), "/resume");
    let seen = list(&sandbox);
    assert_eq!((seen.status(&id(1)), seen.status(&id(2))), ("unknown", "unknown"), "{}", seen.text);
    // A tool that it runs tells which.
    let pid = agent.pid().to_string();
    agent.spawn(&[("CLAUDE_CODE_SESSION_ID", &id(3)), ("CLAUDE_PID", &pid)]);
    list(&sandbox).expect(&id(3), "working", Some(agent.pid()));
}

#[test]
fn a_terminal_that_has_a_rollout_open_is_at_its_prompt_until_something_is_recorded() {
    let sandbox = Sandbox::new("older-rollout");
    let codex = CodexStore::of(&sandbox);
    let before = now() - 60_000;
    let answered = codex.thread(&id(1)).at(before).asked("fix it").answered("fixed");
    let killed = codex.thread(&id(2)).at(before).asked("add it").calls("call_1", "make");
    let asked = codex.thread(&id(3)).at(before).asked("move it").answered("moved");
    let [one, two] = [1, 2].map(|n| sandbox.lookalike("codex", &["resume", &id(n)]));
    let three = sandbox.lookalike("codex", &["exec", "resume", &id(3), "go on"]);
    // Of arguments alone it is not known how far it has come, nor of what it only reads.
    list(&sandbox).expect(&id(1), "starting", Some(one.pid()));
    one.tell(&format!("read {}", answered.path.display()));
    list(&sandbox).expect(&id(1), "starting", Some(one.pid()));
    for (agent, rollout) in [(&one, &answered), (&two, &killed), (&three, &asked)] {
        agent.tell(&format!("open {}", rollout.path.display()));
    }
    let seen = list(&sandbox);
    seen.expect(&id(1), "idle", Some(one.pid()));
    seen.expect(&id(2), "idle", Some(two.pid()));
    assert_eq!(seen.session(&id(2))["tool"], Value::Null);
    seen.expect(&id(3), "starting", Some(three.pid()));
    let thread = answered.at(now()).asked("once more");
    list(&sandbox).expect(&id(1), "working", Some(one.pid()));
    drop((thread, killed, asked));
}

#[test]
fn a_rollout_that_is_read_to_be_offered_or_forked_is_nobody_s() {
    let sandbox = Sandbox::new("older-offered");
    let codex = CodexStore::of(&sandbox);
    let [offered, forked, read] = [1, 2, 3].map(|n| codex.thread(&id(n)).asked("fix it").answered("fixed"));
    let picker = sandbox.lookalike("codex", &["resume"]);
    picker.tell(&format!("read {}", offered.path.display()));
    let fork = sandbox.lookalike("codex", &["fork", &id(2)]);
    fork.tell(&format!("read {}", forked.path.display()));
    // Where no argument says otherwise, it may be its own.
    let other = sandbox.lookalike("codex", &[]);
    other.tell(&format!("read {}", read.path.display()));
    let seen = list(&sandbox);
    seen.expect(&id(1), "done", None);
    seen.expect(&id(2), "done", None);
    seen.expect(&id(3), "idle", Some(other.pid()));
}

#[test]
fn a_codex_that_knows_no_daemon_is_launched_without_the_word() {
    let sandbox = Sandbox::new("older-codex");
    let codex = CodexStore::of(&sandbox);
    let (rollout, calls) = (codex.thread(&id(1)).path, sandbox.root().join("calls"));
    fs::create_dir_all(rollout.parent().expect("a folder")).expect("a folder of the store");
    let meta = json!({"timestamp": "2026-11-18T03:00:00.000Z", "type": "session_meta", "payload": {"id": id(1)}});
    let told = format!(
        "echo \"$*\" >>'{calls}'\ncase \"$*\" in *--no-daemon*)\n\
         echo \"error: unexpected argument '--no-daemon' found\" >&2; exit 2;; esac\n\
         echo '{meta}' >>'{rollout}'; exec 9>>'{rollout}'",
        calls = calls.display(),
        rollout = rollout.display(),
    );
    sandbox.install("codex", &put(&sandbox, "codex", &told));
    let launched = ask(&sandbox, &["launch", "codex", "-p", "fix it", "--json"]).expect_success().json();
    assert_eq!(launched["native_id"], id(1));
    let handle = launched["handle"].as_str().expect("a handle");
    ask(&sandbox, &["kill", handle, "--json"]).expect_success();
    let resumed = ask(&sandbox, &["resume", handle, "--json"]).expect_success().json();
    assert_eq!((&resumed["native_id"], &resumed["handle"]), (&json!(id(1)), &json!(handle)));
    let calls = fs::read_to_string(calls).expect("what it was told");
    let calls: Vec<&str> = calls.lines().collect();
    let resume = format!("resume {}", id(1));
    assert_eq!(calls, ["--no-daemon -- fix it", "-- fix it", &format!("resume --no-daemon {}", id(1)), &resume]);
}

#[test]
fn what_a_process_that_goes_on_counts_from_nothing_is_added() {
    let sandbox = Sandbox::new("older-tokens");
    let codex = CodexStore::of(&sandbox);
    let usage = |n: u64| json!({"input_tokens": 420 * n, "cached_input_tokens": 300 * n, "output_tokens": 7 * n});
    let info = |n| json!({"total_token_usage": usage(n), "last_token_usage": usage(1)});
    let counted = |thread: u64, told: &[Value]| {
        let event = |info: &Value| json!({"type": "token_count", "info": info});
        drop(told.iter().fold(codex.thread(&id(thread)), |rollout, info| rollout.add("event_msg", event(info))));
        list(&sandbox).session(&id(thread))["tokens"]["input"].clone()
    };
    let none = Value::Null;
    // 0.50: each process says first that it has counted nothing.
    assert_eq!(counted(1, &[none.clone(), info(1), info(2), none.clone(), info(1), info(1), info(2)]), 4 * 420);
    // 0.105: it says first what was counted before.
    assert_eq!(counted(2, &[none.clone(), info(1), info(1), info(2)]), 2 * 420);
    assert_eq!(counted(3, &[none.clone(), info(1), none, info(2)]), 2 * 420);
}

/// That nothing was answered means a failure only where a failure is not written down.
#[test]
fn a_turn_without_an_answer_has_failed_where_versions_do_not_say_so_themselves() {
    let sandbox = Sandbox::new("older-answerless");
    let folder = sandbox.home().join(".codex/sessions/2026/03/01");
    let line =
        |kind: &str, payload: Value| json!({"timestamp": "2026-03-01T07:47:10Z", "type": kind, "payload": payload});
    let asked = [json!({"type": "task_started", "turn_id": "1"}), json!({"type": "user_message", "message": "fix it"})];
    let silent = json!({"type": "task_complete", "turn_id": "1", "last_agent_message": null});
    let bare = json!({"type": "task_complete", "turn_id": "1"});
    for (n, version, end) in
        [(1, Some("0.133.0"), &silent), (2, Some("0.166.0"), &silent), (3, Some("0.133.0"), &bare), (4, None, &silent)]
    {
        let meta = line("session_meta", json!({"id": id(n), "cwd": "/w", "cli_version": version}));
        let events = asked.iter().chain([end]).map(|event| line("event_msg", event.clone()));
        let text: String = [meta].into_iter().chain(events).map(|line| format!("{line}\n")).collect();
        fs::create_dir_all(&folder).expect("a folder of the store");
        fs::write(folder.join(format!("rollout-2026-03-01T07-47-10-{}.jsonl", id(n))), text).expect("a rollout");
    }
    let seen = list(&sandbox);
    for (n, word) in [(1, "failed"), (2, "done"), (3, "done"), (4, "failed")] {
        seen.expect(&id(n), word, None);
    }
}
