//! What a store does not say, or says in a way that nobody can use: told as that, and nothing is made up in its place.

use std::fs;
use std::os::unix::fs::symlink;

use lariat_testkit::Sandbox;
use serde_json::json;

use crate::{
    asking::{ask, id, list},
    gemini_store::GeminiStore,
    pi_store::PiStore,
};

#[test]
fn a_project_root_that_names_no_directory_is_told_of_and_left_aside() {
    let sandbox = Sandbox::new("unsaid-root");
    let store = GeminiStore::of(&sandbox);
    store.session(&id(1)).asked("one").answered("1");
    let root = store.path("tmp/proj/.project_root");
    let projects = json!({"projects": {"/the/very/place": "proj"}});
    fs::write(store.path("projects.json"), projects.to_string()).expect("a list of projects");
    for unusable in ["/this is\n/no path\n", "\0\0", "a/place"] {
        fs::write(&root, unusable).expect("a bad name");
        let seen = list(&sandbox);
        assert_eq!(seen.session(&id(1))["cwd"], "/the/very/place", "{unusable:?}");
        assert!(seen.warns_of(".project_root"), "{unusable:?}");
    }
    fs::remove_file(&root).expect("it was there");
    assert!(!list(&sandbox).warns_of(".project_root"), "what is not there is no damage");
    symlink("/nowhere/at/all", &root).expect("a link");
    let seen = list(&sandbox);
    assert_eq!(seen.session(&id(1))["cwd"], "/the/very/place");
    assert!(seen.warns_of(".project_root"));
}

#[test]
fn a_list_of_names_that_leads_nowhere_is_told_of() {
    let sandbox = Sandbox::new("unsaid-names");
    fs::create_dir_all(sandbox.home().join(".codex/sessions")).expect("a store");
    assert_eq!(list(&sandbox).warnings(), [""; 0]);
    symlink("/nowhere/at/all", sandbox.home().join(".codex/session_index.jsonl")).expect("a link");
    assert!(list(&sandbox).warns_of("session_index.jsonl"));
}

#[test]
fn a_session_whose_first_line_is_lost_has_the_id_of_its_files_name() {
    let sandbox = Sandbox::new("unsaid-header");
    let folder = PiStore::of(&sandbox).path("sessions/--work--");
    fs::create_dir_all(&folder).expect("a store");
    let file = folder.join(format!("2026-11-15T07-47-12-340Z_{}.jsonl", id(1)));
    let header = |id: &str| json!({"type": "session", "version": 3, "id": id, "cwd": sandbox.work()}).to_string();
    let said = json!({"type": "message", "id": "m", "timestamp": "2026-11-15T07:47:13.000Z", "message": {
        "role": "assistant", "stopReason": "stop", "usage": {"input": null, "output": 1}}});
    fs::write(&file, format!("{}\n{}\n{said}\n", header(&id(1)), header(&id(2)))).expect("a session");
    list(&sandbox).expect(&id(1), "done", None);
    // A number that is none is told of by who counts.
    let counted = ask(&sandbox, &["usage", "--json"]).json();
    assert!(counted["warnings"].to_string().contains("cannot be true"), "{counted:#}");
    fs::write(&file, format!("{{\"type\":\"se\u{fffd}\n{}\n{said}\n", header(&id(2)))).expect("a session");
    let seen = list(&sandbox);
    seen.expect(&id(1), "done", None);
    assert!(seen.find(&id(2)).is_none());
}
