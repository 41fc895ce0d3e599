//! What comes back of which nothing, or nothing that its agent would go on with, is on record.

use std::fs;

use serde_json::{Value, json};

use super::{Launched, Stage};
use crate::asking::{ask, list};

#[test]
fn s28_without_a_conversation_its_prompt_is_asked_again_and_that_is_said() {
    let stage = Stage::new("s28");
    let launched = stage.launch("a", &[]);
    stage.crash(&launched);
    fs::remove_file(stage.sandbox.home().join(format!(".claude/projects/x/{}.jsonl", launched.id()))).expect("it was");
    let told = stage.act(&["resume", launched.handle()]);
    assert_eq!((&told["way"], &told["handle"]), (&json!("replayed"), &launched.told["handle"]), "{told}");
    assert_eq!(told["said"], "hi");
    assert_ne!(told["native_id"], launched.told["native_id"]);
    assert_eq!((stage.runs("--resume"), stage.runs("--session-id")), (0, 2));
    // One row answers to the handle, and nothing is left to restore.
    assert_eq!(stage.act(&["status", launched.handle()])["id"], told["id"]);
    assert_eq!(stage.act(&["restore"])["restore"], json!([]));
}

#[test]
fn a_restore_says_what_it_tells_and_what_it_begins_anew() {
    let stage = Stage::new("restore-says");
    let go_on = "Continue where you left off.";
    let forget = |launched: &Launched| {
        let path = stage.sandbox.home().join(format!(".claude/projects/x/{}.jsonl", launched.id()));
        fs::remove_file(path).expect("it was");
    };
    let (on, anew) = (stage.launch("a", &[]), stage.launch("b", &[]));
    stage.crash(&on);
    stage.crash(&anew);
    forget(&anew);
    let of = |told: &Value, launched: &Launched| {
        let rows = told["restore"].as_array().expect("rows");
        rows.iter().find(|row| row["handle"] == launched.handle()).expect("a row").clone()
    };
    let plan = stage.act(&["restore"]);
    let said = |told: &Value| [&on, &anew].map(|launched| of(told, launched)["said"].clone());
    assert_eq!(said(&plan), [json!(go_on), json!("hi")], "{plan:#}");
    let shown = ask(&stage.sandbox, &["restore"]).stdout;
    assert!(shown.contains(&format!("told: {go_on}")), "{shown}");

    let told = stage.act(&["restore", "--yes"]);
    assert_eq!(said(&told), [json!(go_on), json!("hi")], "{told:#}");
    let now = stage.act(&["status", anew.handle()])["id"].clone();
    let ids = [&on, &anew].map(|launched| (of(&told, launched)["id"].clone(), of(&told, launched)["new_id"].clone()));
    assert_eq!(ids, [(on.told["id"].clone(), Value::Null), (anew.told["id"].clone(), now.clone())], "{told:#}");
    assert_ne!(now, anew.told["id"]);
    let journal = ask(&stage.sandbox, &["journal"]).stdout;
    assert_eq!(journal.lines().filter(|line| line.contains("  restore claude:")).count(), 2, "{journal}");

    let again = Launched {
        told: json!({"native_id": now.as_str().expect("an id")["claude:".len()..], "handle": anew.handle()}),
        cwd: anew.cwd.clone(),
    };
    stage.until(&again, "working");
    stage.crash(&on);
    stage.crash(&again);
    forget(&again);
    let shown = ask(&stage.sandbox, &["restore", "--yes"]).stdout;
    let now = stage.act(&["status", anew.handle()])["id"].clone();
    let begun =
        format!("{} is back as {}: its agent has no conversation of it", anew.handle(), now.as_str().expect("an id"));
    assert!(shown.contains(&format!("{} is back, and was told: {go_on}", on.handle())), "{shown}");
    assert!(shown.contains(&begun), "{shown}");
}

#[test]
fn who_comes_while_another_starts_it_is_told_so() {
    let stage = Stage::new("at-this-moment");
    let launched = stage.launch("a", &[]);
    stage.crash(&launched);
    let lock = fs::File::create(stage.folder(&launched).join("ending.lock")).expect("a lock");
    lock.lock().expect("as who starts it does");
    let refused = stage.ask(&["resume", launched.handle()]);
    assert_eq!(refused.code(), 3, "{refused:?}");
    assert!(refused.stderr.contains("is being started or ended at this moment"), "{}", refused.stderr);
}

#[test]
fn s28_what_was_never_taken_up_is_asked_when_it_comes_back() {
    let stage = Stage::new("s28-never");
    let launched = stage.launch("a", &[]);
    stage.crash(&launched);
    // As if that had been before it took its prompt up.
    let command = json!({"type": "user", "message": {"content": "<command-name>/model</command-name>"}});
    transcribe(&stage, &launched, &[command]);
    // It was given one, and has come to no end of it.
    let seen = list(&stage.sandbox);
    seen.expect(launched.id(), "interrupted", None);
    let reason = "cut off in the middle of a turn by signal 9 (nothing of it was recorded)";
    assert_eq!(seen.session(launched.id())["reason"], reason);
    fs::rename(stage.folder(&launched).join("exit.json"), stage.sandbox.home().join("aside")).expect("nobody saw it");
    list(&stage.sandbox).expect(launched.id(), "interrupted", None);
    fs::rename(stage.sandbox.home().join("aside"), stage.folder(&launched).join("exit.json")).expect("its place");
    let told = stage.act(&["resume", launched.handle()]);
    assert_eq!((&told["way"], &told["said"]), (&json!("native"), &json!("hi")), "{told}");
    assert_eq!((&told["id"], stage.runs("--resume")), (&launched.told["id"], 1), "{told}");
}

#[test]
fn s28_what_claude_only_noted_is_no_conversation_to_go_on_with() {
    // The real one says of any of these that it finds no conversation.
    let queued = |operation: &str| json!({"type": "queue-operation", "operation": operation, "content": "hi"});
    let noted = [
        vec![json!({"type": "mode", "mode": "normal"})],
        vec![queued("enqueue")],
        vec![queued("enqueue"), queued("dequeue")],
    ];
    let stage = Stage::new("s28-noted");
    for (place, lines) in ["a", "b", "c"].into_iter().zip(noted) {
        let launched = stage.launch(place, &[]);
        stage.crash(&launched);
        transcribe(&stage, &launched, &lines);
        let plan = stage.act(&["restore"]);
        assert_eq!(plan["restore"][0]["way"], "replayed", "{lines:?}: {plan}");
        let told = stage.act(&["resume", launched.handle()]);
        assert_eq!((&told["way"], &told["said"]), (&json!("replayed"), &json!("hi")), "{lines:?}: {told}");
        assert_ne!(told["id"], launched.told["id"]);
    }
    assert_eq!(stage.runs("--resume"), 0);
}

/// Makes these lines all that is on record of a session.
fn transcribe(stage: &Stage, launched: &Launched, lines: &[Value]) {
    let path = stage.sandbox.home().join(format!(".claude/projects/x/{}.jsonl", launched.id()));
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(path, lines).expect("a transcript");
}
