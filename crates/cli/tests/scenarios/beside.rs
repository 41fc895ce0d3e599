//! What Claude Code's sub-agents leave beside a session's own transcript, and in it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::{Duration, SystemTime},
};

use lariat_testkit::Sandbox;
use serde_json::{Value, json};

use crate::{
    asking::{Answer, id, list, list_through},
    claude_store::ClaudeStore,
    damage::WITHOUT_OVERRIDE,
    moment::{iso, now},
};

/// A line of a sub-agent in a session's own transcript, as versions before 2.0.2x write it.
fn aside(kind: &str, at: i64, message: Value) -> Value {
    json!({"type": kind, "isSidechain": true, "timestamp": iso(at), "cwd": "/w", "version": "2.0.20", "message": message})
}

#[test]
fn a_transcript_that_begins_with_a_sub_agent_is_the_session_s_own() {
    let sandbox = Sandbox::new("beside-first");
    let claude = ClaudeStore::of(&sandbox);
    let before = now() - 60_000;
    let warmup = aside("user", before, json!({"role": "user", "content": "Warmup"}));
    let answer = |at| {
        let usage = json!({"input_tokens": 5, "output_tokens": 1});
        let said = json!([{"type": "text", "text": "ready"}]);
        aside(
            "assistant",
            at,
            json!({"id": "m1", "role": "assistant", "model": "small", "content": said,
            "stop_reason": "end_turn", "usage": usage}),
        )
    };
    let began = |n| claude.session(&id(n)).line(&warmup).line(&answer(before + 1)).at(before + 100);
    drop(began(1));
    drop(began(2).asked("fix it").line(&answer(before + 200)));
    drop(began(3).asked("fix it").answered("fixed").line(&warmup));
    let seen = list(&sandbox);
    for (n, status) in (1..).zip(["done", "interrupted", "done"]) {
        seen.expect(&id(n), status, None);
    }
    let prompts = [1, 2, 3].map(|n| seen.session(&id(n))["prompt"].clone());
    assert_eq!(prompts, [Value::Null, json!("fix it"), json!("fix it")]);
    assert_eq!(seen.session(&id(3))["tokens"]["input"], 105, "what a sub-agent used counts");
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

#[test]
fn what_a_sub_agent_used_is_not_left_out_because_it_cannot_be_read() {
    let sandbox = Sandbox::new("beside-shut");
    let claude = ClaudeStore::of(&sandbox);
    let paths = [1, 2, 3].map(|n| {
        let one = claude.session(&id(n)).asked("fix it").answered("fixed");
        let (talk, _) = one.sub_agent("a1", true);
        // What it wrote down when it ended has all of it.
        drop(if n == 3 { one.left() } else { one });
        talk
    });
    let input = |seen: &Answer| [1, 2, 3].map(|n| seen.session(&id(n))["tokens"]["input"].clone());
    assert_eq!(input(&list(&sandbox)), [json!(200), json!(200), json!(200)]);
    let folder = paths[1].parent().expect("a folder");
    mode(&paths[0], 0);
    mode(folder, 0);
    mode(&paths[2], 0);
    let seen = list_through(&sandbox, WITHOUT_OVERRIDE);
    assert_eq!(input(&seen), [Value::Null, Value::Null, json!(100)]);
    assert!(seen.warns_of("agent-a1.jsonl") && seen.warns_of("subagents"), "{:?}", seen.warnings());
    mode(folder, 0o700);
    paths.iter().for_each(|path| mode(path, 0o600));
    // As older versions keep them, any session there may be its own.
    let beside = claude.session(&id(1)).path.with_file_name("agent-b1.jsonl");
    drop(claude.session_at(&id(1), &sandbox.work(), &beside).asked("look around").answered("seen"));
    assert_eq!(input(&list(&sandbox)), [json!(200), json!(200), json!(200)]);
    mode(&beside, 0);
    let seen = list_through(&sandbox, WITHOUT_OVERRIDE);
    assert_eq!(input(&seen), [Value::Null, Value::Null, json!(100)]);
    assert!(seen.warns_of("agent-b1.jsonl"), "{:?}", seen.warnings());
    (1..=3).for_each(|n| seen.expect(&id(n), "done", None));
}

#[test]
fn a_sub_agent_of_which_nothing_is_said_was_at_work_if_it_outlived_the_turn() {
    let sandbox = Sandbox::new("beside-mute");
    let claude = ClaudeStore::of(&sandbox);
    let before = now() - 60_000;
    let make = || json!({"command": "make"});
    for n in 1..=5 {
        let one = claude.session(&id(n)).at(before).asked("fix it").answered("fixed");
        let folder = one.path.with_extension("").join("subagents");
        let agent = claude.session_at(&id(n), &sandbox.work(), &folder.join("agent-a1.jsonl"));
        let at_work = || agent.at(before + if n == 2 { 1 } else { 1000 }).asked("look around");
        match n {
            // Asked something for the program's own sake, which leaves no mark when it comes to nothing.
            3 => drop(at_work()),
            4 => drop(at_work().calls("Bash", make()).result("made").answered("seen")),
            _ => drop(at_work().calls("Bash", make())),
        }
        match n {
            2 => drop(one.at(before + 1000).asked("and that").answered("that too")),
            5 => claude.typed(&id(5), "/exit"),
            _ => {}
        }
    }
    // One that came to nothing while the turn went on, and one that has answered, as it is marked.
    let [failed, answered] = [6, 7].map(|n| claude.session(&id(n)).at(before).asked("fix it"));
    let own = |n: u64, path: &Path| path.with_file_name(id(n)).join("subagents/agent-a1.jsonl");
    let agent = claude.session_at(&id(6), &sandbox.work(), &own(6, &failed.path));
    drop(agent.at(before + 500).asked("look around").calls("Bash", make()));
    drop(failed.at(before + 1000).answered("fixed"));
    let agent = claude.session_at(&id(7), &sandbox.work(), &own(7, &answered.path));
    let said = json!({"role": "assistant", "content": [{"type": "text", "text": "seen"}], "stop_reason": "end_turn"});
    let marked = aside("assistant", before + 2000, said);
    drop(agent.at(before + 1000).asked("look around").calls("Bash", make()).line(&marked));
    drop(answered.answered("fixed"));
    let seen = list(&sandbox);
    for (n, status) in (1..).zip(["interrupted", "done", "done", "done", "stopped", "done", "done"]) {
        seen.expect(&id(n), status, None);
    }
    // However long the session was.
    let long = "x".repeat(2 << 20);
    drop(claude.session(&id(1)).at(before - 1000).answered(&long).at(before + 500).answered("fixed"));
    let talk = fs::read_to_string(claude.session(&id(1)).path).expect("a transcript");
    assert!(talk.len() > 2 << 20);
    let agent = claude.session(&id(1)).path.with_extension("").join("subagents/agent-a1.jsonl");
    let newer = fs::OpenOptions::new().append(true).open(agent).expect("its file");
    newer.set_modified(SystemTime::now() + Duration::from_secs(1)).expect("a later moment");
    list(&sandbox).expect(&id(1), "interrupted", None);
    // And whatever was noted at the exit, after all that the sub-agent has written.
    newer
        .set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis((before + 1001).unsigned_abs()))
        .expect("a moment");
    drop(claude.session(&id(1)).left());
    list(&sandbox).expect(&id(1), "interrupted", None);
}

#[test]
fn a_title_that_only_its_folder_has_is_its_name() {
    let sandbox = Sandbox::new("beside-title");
    let claude = ClaudeStore::of(&sandbox);
    let titles = [r#"{"customTitle":"mend the fold"}"#, r#"{"customTitle":"older"}"#, "{", "{}"];
    for (n, title) in (1..).zip(titles) {
        let one = claude.session(&id(n)).asked("fix it").answered("fixed");
        let folder = one.path.with_extension("");
        fs::create_dir_all(&folder).expect("its folder");
        fs::write(folder.join("custom-title.json"), title).expect("a title");
        drop(if n == 2 { one.named("newer") } else { one });
    }
    let seen = list(&sandbox);
    let names = [1, 2, 3, 4].map(|n| (seen.session(&id(n))["name"].clone(), seen.session(&id(n))["title"].clone()));
    let both = |name: &str| (json!(name), json!(name));
    assert_eq!(names, [both("mend the fold"), both("newer"), Default::default(), Default::default()]);
    assert!(seen.warns_of("custom-title.json"), "{:?}", seen.warnings());
    assert_eq!(seen.warnings().len(), 1);
}

#[test]
fn a_title_from_the_start_of_a_large_transcript_is_not_its_last() {
    let sandbox = Sandbox::new("beside-retitled");
    let filler = || json!({"type": "attachment", "filler": "x".repeat(1 << 20)});
    let large = ClaudeStore::of(&sandbox).session(&id(1)).named("first").asked("fix it").said(filler());
    let large = large.named("second").said(filler()).answered("fixed");
    let row = || list(&sandbox).session(&id(1)).clone();
    assert_eq!(row()["name"], "first", "all that can be known without its folder");
    let folder = large.path.with_extension("");
    fs::create_dir_all(&folder).expect("its folder");
    fs::write(folder.join("custom-title.json"), r#"{"customTitle":"second"}"#).expect("a title");
    assert_eq!((&row()["name"], &row()["title"]), (&json!("second"), &json!("second")));
}
