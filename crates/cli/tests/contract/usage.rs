//! The same tokens and the same prices as `ccusage`, a counter of its own, on a store that both read.
//!
//! It runs natively, without a network and with the prices that are built into it. Only what both
//! understand is in the store: it counts Pi's forks twice, and knows Codex's forks by other rules.

use std::{fs, path::PathBuf};

use lariat_testkit::{Sandbox, copy_program};
use serde_json::{Value, json};

/// The program under test.
const LARIAT: &str = env!("CARGO_BIN_EXE_lariat");

/// The program itself, not the script that starts it.
fn ccusage(sandbox: &Sandbox) -> PathBuf {
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let native = lariat_testkit::agents::file(&format!("@ccusage/ccusage-linux-{machine}/bin/ccusage"));
    // The package has it without the right to be run.
    let copy = sandbox.root().join("ccusage");
    copy_program(&native, &copy);
    copy
}

const MODELS: [&str; 8] = [
    "claude-opus-4-1-20250805",
    "claude-opus-4-5",
    "claude-sonnet-4-5-20250929",
    "claude-haiku-4-5-20251001",
    "claude-sonnet-5",
    "claude-opus-4-8",
    "claude-fable-5",
    "house-model",
];

#[test]
fn the_same_sums_as_ccusage() {
    let sandbox = Sandbox::new("usage-ccusage");
    let folder = sandbox.home().join(".claude/projects/-work");
    fs::create_dir_all(&folder).expect("a store");
    let mut text = String::new();
    for n in 0..400u64 {
        let id = n / 2; // two lines a message
        let line = json!({"type": "assistant", "sessionId": "s", "version": "2.1.0", "cwd": "/work", "uuid": format!("u{n}"),
            "timestamp": format!("2026-10-{:02}T{:02}:00:00.000Z", 1 + id % 30, id % 24), "requestId": format!("req_{id}"),
            "message": {"id": format!("msg_{id}"), "type": "message", "role": "assistant", "content": [],
                "model": MODELS[id as usize % MODELS.len()],
                "usage": {"input_tokens": id * 7 + 1, "output_tokens": id * 3, "cache_read_input_tokens": id * 101,
                          "cache_creation_input_tokens": id * 11}}});
        text.push_str(&format!("{line}\n"));
        if n == 199 {
            // A fork: all so far, under another id.
            fs::write(folder.join("22222222-1111-4111-8111-111111111111.jsonl"), &text).expect("a fork");
        }
    }
    fs::write(folder.join("11111111-1111-4111-8111-111111111111.jsonl"), &text).expect("a transcript");

    let theirs =
        sandbox.program(ccusage(&sandbox)).args(["claude", "daily", "--offline", "--json", "--timezone", "UTC"]);
    let theirs = sandbox.world().run(&theirs);
    assert_eq!(theirs.code(), 0, "{}", theirs.stderr);
    let theirs = theirs.json();
    let ours = sandbox.world().run(&sandbox.program(LARIAT).args(["usage", "--json"])).json();
    let keys = [
        ("input", "inputTokens"),
        ("output", "outputTokens"),
        ("cache_read", "cacheReadTokens"),
        ("cache_write", "cacheCreationTokens"),
    ];
    let days = theirs["daily"].as_array().expect("days");
    assert_eq!(days.len(), 30);
    let same = |ours: &Value, theirs: &Value| {
        for (our, their) in keys {
            assert_eq!(ours["tokens"][our], theirs[their], "{our}: {ours} and {theirs}");
        }
        let cost = |v: &Value| v.as_f64().unwrap_or(0.0);
        // They leave out what has no price, and say nothing of it.
        let (our, their) = (cost(&ours["recorded_usd"]) + cost(&ours["table_usd"]), cost(&theirs["totalCost"]));
        assert!((our - their).abs() < 1e-6, "{our} and {their}: {ours}");
    };
    for (ours, theirs) in ours["rows"].as_array().expect("rows").iter().zip(days) {
        assert_eq!(ours["key"], theirs["date"]);
        same(ours, theirs);
    }
    same(&ours["total"], &theirs["totals"]);
    assert_eq!(ours["unpriced_models"], theirs["totals"]["unpricedModels"]);
}
