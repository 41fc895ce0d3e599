//! What comes back of which nothing, or nothing that its agent would go on with, is on record.

use std::fs;

use serde_json::{Value, json};

use super::{Launched, Stage};
use crate::asking::list;

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
