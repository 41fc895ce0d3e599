//! What a launcher leaves that is killed before it knows the session of what it launched.

use std::fs;
use std::path::PathBuf;

use lariat_testkit::{DEADLINE, Sandbox, Signal, wait_until};
use serde_json::{Value, json};

use crate::asking::{ask, id, lariat, list};
use crate::codex_store::CodexStore;
use crate::launching::install;

/// Launches a Codex whose session is `id(1)`, and kills the launcher before that is shown; the session's folder. The
/// agent goes on, is at it when this returns, and ends when it is told to by the FIFO `stay`.
fn orphaned(sandbox: &Sandbox, headless: bool) -> PathBuf {
    let (work, codex) = (sandbox.work(), CodexStore::of(sandbox));
    let said = if headless { json!({"type": "thread.started", "thread_id": id(1)}).to_string() } else { String::new() };
    let lock = codex.lock_file(&id(1));
    let holds = format!("exec 9>>'{}'; flock 9; : > locked; read x < stay", lock.display());
    install(sandbox, "codex", &format!(": > here; read x < go; echo '{said}'; {holds}"));
    sandbox.run(["mkfifo".into(), work.join("go"), work.join("stay")]).expect_success();
    let kind = if headless { &["--headless", "-p", "fix it"][..] } else { &[] };
    let order = [&["launch", "codex", "--group", "night"], kind].concat();
    let launcher = sandbox.spawn(&lariat(sandbox, &order));
    wait_until("the agent runs", DEADLINE, || work.join("here").exists());
    let sessions = sandbox.state_dir().join("lariat/sessions");
    let folder = fs::read_dir(&sessions).expect("sessions").next().expect("one").expect("one").path();
    wait_until("it is on record", DEADLINE, || folder.join("shim.json").exists());
    launcher.signal(Signal::KILL);
    launcher.wait(DEADLINE);
    fs::write(work.join("go"), "go\n").expect("it goes on");
    wait_until("it holds its thread", DEADLINE, || work.join("locked").exists());
    drop(codex.thread(&id(1)).asked("fix it"));
    folder
}

#[test]
fn one_whose_launcher_is_killed_before_it_shows_its_id_has_its_handle() {
    for headless in [true, false] {
        let sandbox = Sandbox::new("unheard");
        let folder = orphaned(&sandbox, headless);
        let handle = folder.file_name().and_then(|name| name.to_str()).expect("a handle");
        let seen = list(&sandbox);
        let session = seen.session(&id(1));
        assert_eq!((&session["handle"], &session["group"]), (&json!(handle), &json!("night")), "{}", seen.text);
        ask(&sandbox, &["logs", handle]).expect_success();
        // One that ended by itself is known by what it showed, one that was ended by that.
        if headless {
            fs::write(sandbox.work().join("stay"), "go\n").expect("it ends");
            wait_until("it has ended", DEADLINE, || folder.join("exit.json").exists());
        } else {
            ask(&sandbox, &["kill", handle]).expect_success();
        }
        let seen = list(&sandbox);
        let session = seen.session(&id(1));
        assert_eq!((&session["handle"], &session["live"]), (&json!(handle), &json!(false)), "{}", seen.text);
        assert!(session["exit"].is_object(), "{}", seen.text);
    }
}

/// Nobody has wished for it, so it is not brought back, and need not be kept.
#[test]
fn one_that_is_killed_after_its_launcher_is_let_go() {
    let sandbox = Sandbox::new("unwished");
    let folder = orphaned(&sandbox, true);
    let shim: Value = serde_json::from_slice(&fs::read(folder.join("shim.json")).expect("read")).expect("JSON");
    let agent = sandbox.processes().into_iter().find(|p| shim["agent"]["pid"] == p.pid).expect("the agent");
    assert!(agent.signal(Signal::KILL));
    wait_until("it has ended", DEADLINE, || folder.join("exit.json").exists());
    let seen = list(&sandbox);
    assert_eq!(seen.session(&id(1))["restorable"], json!(false), "{}", seen.text);
    let handle = folder.file_name().and_then(|name| name.to_str()).expect("a handle");
    let plan = || ask(&sandbox, &["gc", "--retain", "0s"]).stdout;
    wait_until("its shim has left", DEADLINE, || plan().contains(handle));
    // A wish that could not be read is one all the same.
    let aside = folder.join("intent.json.0.unreadable");
    fs::write(&aside, "{").expect("written");
    assert!(!plan().contains(handle), "{}", plan());
    fs::remove_file(&aside).expect("removed");
    ask(&sandbox, &["gc", "--retain", "0s", "--yes"]).expect_success();
    assert!(!folder.exists());
}
