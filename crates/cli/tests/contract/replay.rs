//! The recorded stores again, with no process alive: every session must be shown as its recording
//! says (`expect.json`), by a lariat that has never seen it and by one that remembers.
//!
//! It needs no agent, only `fixtures/`; a case is `fixtures/AGENT/VERSION/CASE`, a HOME. To record
//! them anew, run the other tests with `LARIAT_RECORD=fixtures` (`make record`).

use std::{
    fs,
    path::{Path, PathBuf},
};

use lariat_testkit::{record::restore, workspace};
use serde_json::{Value, json};

use crate::looks::{Look, RECORD, Row, Stage};

/// Every recorded case.
fn cases() -> Vec<PathBuf> {
    let below = |folder: PathBuf| -> Vec<PathBuf> {
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        entries.map(|entry| entry.expect("an entry").path()).collect()
    };
    let agents = ["claude", "codex", "gemini", "opencode", "pi"].map(|agent| workspace().join("fixtures").join(agent));
    let mut cases: Vec<_> = agents.into_iter().flat_map(below).flat_map(below).collect();
    cases.sort();
    cases
}

#[track_caller]
fn replay(stage: &Stage, case: &Path) {
    let text = fs::read_to_string(case.join("expect.json")).expect("what it must show");
    let expect: Value = serde_json::from_str(&text).expect("what it must show");
    let name = case.to_string_lossy().replace('/', "-");
    // A database is recorded as text, and built where it is looked at.
    let built = stage.sandbox.root().join("tmp").join(format!("home-{name}"));
    let is_text = case.join(".local/share/opencode/opencode.sql").exists();
    if is_text {
        restore(case, &built);
    }
    let home = if is_text { built.as_path() } else { case };
    let lariat = stage.lariat().env("HOME", home).env("XDG_DATA_HOME", home.join(".local/share"));
    let lariat = lariat.env("XDG_CACHE_HOME", stage.sandbox.root().join("tmp").join(name));
    for memory in ["cold", "warm"] {
        let look = Look::take(stage, &lariat);
        assert!(look.unbound.is_empty(), "{}: {:?}", case.display(), look.unbound);
        let mut shown: Vec<_> = look.rows.iter().map(|row| told(stage, &lariat, row)).collect();
        shown.sort_by_key(|session| session["native_id"].to_string());
        let mut wanted = expect["sessions"].as_array().expect("sessions").clone();
        wanted.sort_by_key(|session| session["native_id"].to_string());
        assert_eq!(shown, wanted, "{} ({memory})", case.display());
    }
}

/// What is shown of a session, in the form of `expect.json`.
fn told(stage: &Stage, lariat: &lariat_testkit::Program, row: &Row) -> Value {
    let peek = lariat.clone().args(["peek", row.id(), "--json"]);
    let peeked = stage.sandbox.world().run(&peek).expect_success().json();
    let [tokens, prompt, name, cwd] = ["tokens", "prompt", "name", "cwd"].map(|key| &row.0[key]);
    json!({"native_id": row.id(), "status_without_process": row.status(), "tokens": tokens,
        "prompt": prompt, "name": name, "cwd": cwd, "reply": peeked["reply"]})
}

#[test]
fn recorded_stores() {
    if std::env::var_os(RECORD).is_some() {
        return; // the other tests may be writing there this very moment
    }
    let stage = Stage::new("replay");
    let cases = cases();
    assert!(!cases.is_empty(), "nothing is recorded in fixtures/");
    for case in cases {
        replay(&stage, &case);
    }
}
