//! What a person has typed and not submitted, when something is sent.

use lariat_testkit::{
    DEADLINE,
    agents::{Claude, Codex},
    terminal::{Size, Terminal},
};
use serde_json::Value;

use super::{act, handle, launch};
use crate::looks::Stage;

#[track_caller]
fn is_sent_with_what_is_sent(stage: &Stage, launched: &Value) {
    stage.until("idle", "turn over");
    let terminal = stage.sandbox.terminal(&stage.lariat().args(["attach", handle(launched)]));
    terminal.wait_for_text("echo: first words", DEADLINE);
    terminal.type_text("my half draft ");
    terminal.wait_for_text("my half draft", DEADLINE);
    // The agent was given it, and who sends it once more would give it twice.
    let told = act(stage, &["send", handle(launched), "SENT TEXT", "--wait", "--json"]);
    assert_eq!((&told["outcome"], &told["before"]), (&"sent".into(), &"my half draft".into()), "{told}");
    assert!(told["reply"].as_str().is_some_and(|r| r.contains("SENT TEXT")), "{told}");
    let prompts = stage.model.prompts();
    assert_eq!(prompts.iter().filter(|p| p.contains("my half draft SENT TEXT")).count(), 1, "{prompts:?}");
    let told = act(stage, &["send", handle(launched), "more words", "--wait", "--json"]);
    assert_eq!((&told["outcome"], &told["before"]), (&"sent".into(), &Value::Null), "{told}");
    // The same where its cursor stands within it.
    terminal.type_text("another half draft");
    terminal.wait_for_text("another half draft", DEADLINE);
    terminal.type_text(&"\x1b[D".repeat(" draft".len()));
    let told = act(stage, &["send", handle(launched), "LAST TEXT", "--wait", "--json"]);
    assert_eq!((&told["before"], &told["after"]), (&"another half".into(), &"draft".into()), "{told}");
    let prompts = stage.model.prompts();
    assert_eq!(prompts.iter().filter(|p| p.contains("another halfLAST TEXT draft")).count(), 1, "{prompts:?}");
    act(stage, &["kill", handle(launched), "--json"]);
}

#[test]
fn a_draft_at_claude_s_prompt_is_sent_with_what_is_sent_and_told() {
    let stage = Stage::new("draft");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let launched = launch(&stage, &["claude", "-p", "first words", "--", "--permission-mode", "manual"]);
    is_sent_with_what_is_sent(&stage, &launched);
}

#[test]
fn a_draft_at_codex_s_prompt_is_sent_with_what_is_sent_and_told() {
    let stage = Stage::new("draft-codex");
    let _codex = Codex::install(&stage.sandbox, &stage.model);
    let launched = launch(&stage, &["codex", "-p", "first words"]);
    is_sent_with_what_is_sent(&stage, &launched);
}

/// Codex leaves keys that come together with a new size of its terminal unread until the next key.
#[test]
fn whoever_types_at_another_size_is_read_at_once() {
    let stage = Stage::new("sizes");
    let _codex = Codex::install(&stage.sandbox, &stage.model);
    let launched = launch(&stage, &["codex", "-p", "first words"]);
    stage.until("idle", "turn over");
    let viewer = |rows, cols| {
        let attach = stage.lariat().args(["attach", handle(&launched)]);
        Terminal::start(stage.sandbox.world(), &attach, Size { rows, cols })
    };
    let viewers = [viewer(45, 140), viewer(40, 120)];
    for word in (0..10).map(|n| format!("draft{n}")) {
        for (viewer, side) in viewers.iter().zip(["left", "right"]) {
            viewer.type_text(&format!("{word}{side} "));
            viewer.wait_for_text(&format!("{word}{side}"), DEADLINE);
        }
    }
    act(&stage, &["kill", handle(&launched), "--json"]);
}
