//! What clears runtime directories cares for nobody who lives on: a logout does it under every shim and the daemon.

use std::fs;

use lariat_testkit::{DEADLINE, Exit, Key, Lookalike, Sandbox, Signal, wait_until};

use crate::asking::{ask, lariat, list};

/// Types into a session on a terminal of ours, and sees that it was done.
#[track_caller]
fn type_into(sandbox: &Sandbox, handle: &str, name: &str) {
    let terminal = sandbox.terminal(&lariat(sandbox, &["attach", handle]));
    terminal.wait_for_text("Ctrl-Q leaves", DEADLINE);
    let answer = sandbox.work().join(name);
    terminal.type_text(&format!("write {} yes", answer.display()));
    terminal.press(Key::Enter);
    wait_until("what was typed was done", DEADLINE, || answer.exists());
    terminal.press(Key::Ctrl('q'));
    assert_eq!(terminal.wait(DEADLINE), Exit::Code(0));
}

#[test]
fn a_session_whose_door_was_taken_away_opens_another() {
    let sandbox = Sandbox::new("nodoor");
    drop(Lookalike::program(&sandbox, "claude"));
    let launched = ask(&sandbox, &["launch", "claude", "--json"]).json();
    let handle = launched["handle"].as_str().expect("text");
    let pid = i32::try_from(launched["pid"].as_i64().expect("a pid")).expect("a pid");
    let alive = |name: &str| sandbox.processes().into_iter().find(|p| p.comm == name && p.state != 'Z');
    let shim = alive("lariat-shim").expect("its shim").pid;
    fs::remove_dir_all(sandbox.runtime_dir()).expect("a runtime directory");
    list(&sandbox).expect(launched["native_id"].as_str().expect("an id"), "starting", Some(pid));
    assert!(!sandbox.runtime_dir().exists(), "looking never acts");
    type_into(&sandbox, handle, "first");
    assert_eq!(alive("lariat-shim").expect("its shim").pid, shim, "it is the same one");
    // Its keeper is within reach again as well.
    let shim = alive("lariat-shim").expect("its shim");
    shim.signal(Signal::KILL);
    wait_until("it is gone", DEADLINE, || alive("lariat-shim").is_none());
    type_into(&sandbox, handle, "second");
    assert_eq!(ask(&sandbox, &["stop", handle]).code(), 0);
    wait_until("all have left", DEADLINE, || alive("lariat-shim").is_none() && alive("lariat-keeper").is_none());
}

/// Our own files may be deleted at any time; then nobody waits for a record of the end.
#[test]
fn a_shim_whose_folder_was_deleted_leaves_with_its_agent() {
    let sandbox = Sandbox::new("nofolder");
    drop(Lookalike::program(&sandbox, "claude"));
    let launched = ask(&sandbox, &["launch", "claude", "--json"]).json();
    let terminal = sandbox.terminal(&lariat(&sandbox, &["attach", launched["handle"].as_str().expect("text")]));
    terminal.wait_for_text("Ctrl-Q leaves", DEADLINE);
    fs::remove_dir_all(sandbox.state_dir().join("lariat")).expect("our records");
    assert_eq!(ask(&sandbox, &["stop", launched["native_id"].as_str().expect("an id")]).code(), 0);
    terminal.wait(DEADLINE);
    let alive = |name: &str| sandbox.processes().into_iter().any(|p| p.comm == name && p.state != 'Z');
    wait_until("all have left", DEADLINE, || !alive("lariat-shim") && !alive("lariat-keeper"));
}

#[test]
fn a_daemon_whose_door_was_taken_away_opens_another() {
    let sandbox = Sandbox::new("nodaemon");
    assert_eq!(ask(&sandbox, &["daemon", "start"]).code(), 0);
    let pid = ask(&sandbox, &["daemon", "status", "--json"]).json()["pid"].clone();
    // It may open the other door before the last of the directory is gone, and that is taken away as well.
    wait_until("no runtime directory", DEADLINE, || fs::remove_dir_all(sandbox.runtime_dir()).is_ok());
    let told = ask(&sandbox, &["daemon", "status", "--json"]);
    assert_eq!((told.code(), &told.json()["pid"]), (0, &pid), "{}", told.stderr);
    // From where it cannot be reached, it is not said that there is none.
    let elsewhere = sandbox.root().join("elsewhere");
    let away = lariat(&sandbox, &["daemon", "stop"]).env("XDG_RUNTIME_DIR", &elsewhere);
    let told = sandbox.world().run(&away);
    assert_eq!(told.code(), 1, "{}", told.stdout);
    assert!(told.stderr.contains("XDG_RUNTIME_DIR"), "{}", told.stderr);
    assert_eq!(ask(&sandbox, &["daemon", "stop", "--json"]).json()["daemon"], "stopped");
}

#[test]
fn a_runtime_directory_that_cannot_be_made_keeps_nobody_from_launching() {
    let sandbox = Sandbox::new("noruntime");
    drop(Lookalike::program(&sandbox, "claude"));
    sandbox.env("XDG_RUNTIME_DIR", "/proc/none");
    let launched = ask(&sandbox, &["launch", "claude", "--json"]);
    assert_eq!(launched.code(), 0, "{}", launched.stderr);
    type_into(&sandbox, launched.json()["handle"].as_str().expect("text"), "first");
}

/// The kernel takes no long path of a socket; that of a runtime directory may be as long as it likes.
#[test]
fn where_the_runtime_directory_is_too_long_for_a_door_it_is_elsewhere() {
    let sandbox = Sandbox::new("longdoor");
    drop(Lookalike::program(&sandbox, "claude"));
    let long = sandbox.root().join("r".repeat(120));
    fs::create_dir_all(&long).expect("a directory");
    sandbox.env("XDG_RUNTIME_DIR", &long);
    let launched = ask(&sandbox, &["launch", "claude", "--json"]).json();
    let handle = launched["handle"].as_str().expect("text");
    type_into(&sandbox, handle, "typed");
    assert_eq!(ask(&sandbox, &["daemon", "start"]).code(), 0);
    assert!(ask(&sandbox, &["daemon", "status", "--json"]).json()["pid"].is_u64());
    assert_eq!(ask(&sandbox, &["daemon", "stop"]).code(), 0);
    assert_eq!(ask(&sandbox, &["stop", handle]).code(), 0);
}
