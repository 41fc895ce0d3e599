//! An OpenCode session that lariat has made, before its process is there.

use std::fs;

use lariat_testkit::{DEADLINE, Sandbox, Signal, wait_for, wait_until};
use serde_json::{Value, json};

use crate::asking::{ask, lariat, list};
use crate::opencode_store::OpenCodeStore;
use crate::scripted::put;

#[test]
fn while_its_launcher_starts_it_it_is_starting_and_not_cut_off() {
    let sandbox = Sandbox::new("opencode-launching");
    let store = OpenCodeStore::of(&sandbox);
    // Its import does not end.
    sandbox.install("opencode", &put(&sandbox, "opencode", "touch importing\nsleep 1000"));
    let launching = ["launch", "opencode", "--headless", "-p", "fix it", "--json"];
    let launcher = sandbox.spawn(&lariat(&sandbox, &launching));
    wait_until("its import", DEADLINE, || sandbox.work().join("importing").exists());
    let record: Value = wait_for("its record", DEADLINE, || {
        let mut folders = fs::read_dir(sandbox.state_dir().join("lariat/sessions")).ok()?.flatten();
        let text = folders.find_map(|folder| fs::read(folder.path().join("launch.json")).ok())?;
        serde_json::from_slice(&text).ok()
    });
    let id = record["native_id"].as_str().expect("an id");
    drop(store.session(id));
    let seen = list(&sandbox);
    seen.expect(id, "starting", None);
    let row = seen.session(id);
    assert_eq!((&row["live"], &row["restorable"], &row["handle"]), (&json!(true), &json!(false), &record["handle"]));
    assert_eq!(ask(&sandbox, &["restore", "--json"]).json()["restore"], json!([]));
    // Without its launcher nobody starts it.
    launcher.signal(Signal::KILL);
    launcher.wait(DEADLINE);
    assert_eq!(list(&sandbox).session(id)["live"], false);
}
