//! Records of our own that cannot be read: they hide nothing else, keep nobody from working, and are put aside before
//! anything takes their place.

use std::fs;
use std::path::{Path, PathBuf};

use lariat_testkit::{DEADLINE, Sandbox, Signal, wait_until};
use serde_json::{Value, json};

use crate::asking::{ask, list};
use crate::resuming::install;

/// One that was launched in a directory of its own and works; its handle, its folder and its PID.
fn launched(sandbox: &Sandbox) -> (String, PathBuf, i64) {
    install(sandbox);
    let place = sandbox.project("a");
    let place = place.to_str().expect("UTF-8");
    let told = ask(sandbox, &["launch", "claude", "--headless", "-p", "hi", "--cwd", place, "--json"]).json();
    let handle = told["handle"].as_str().expect("a handle").to_owned();
    wait_until("it works", DEADLINE, || status(sandbox, &handle)["status"] == "working");
    let folder = sandbox.state_dir().join("lariat/sessions").join(&handle);
    (handle, folder, told["pid"].as_i64().expect("a PID"))
}

fn status(sandbox: &Sandbox, target: &str) -> Value {
    ask(sandbox, &["status", target, "--json"]).json()
}

/// The paths that warnings name.
fn warned(sandbox: &Sandbox) -> Vec<String> {
    let told = ask(sandbox, &["ls", "--json"]).json()["warnings"].clone();
    told.as_array().expect("warnings").iter().filter_map(|w| w["path"].as_str().map(str::to_owned)).collect()
}

fn tear(path: &Path) {
    fs::write(path, "{").expect("torn");
}

#[test]
fn an_end_that_cannot_be_read_hides_no_handle_and_is_no_reason_to_come_back() {
    let sandbox = Sandbox::new("torn-exit");
    let (handle, folder, _) = launched(&sandbox);
    fs::write(sandbox.project("a").join("go"), "").expect("a sign");
    wait_until("its end is on record", DEADLINE, || folder.join("exit.json").exists());
    tear(&folder.join("exit.json"));
    let row = status(&sandbox, &handle);
    assert_eq!((&row["status"], &row["exit"], &row["restorable"]), (&json!("done"), &Value::Null, &json!(false)));
    assert!(warned(&sandbox).iter().any(|p| p.ends_with("/exit.json")), "{:?}", warned(&sandbox));
    assert_eq!(ask(&sandbox, &["restore", "--json"]).json()["restore"], json!([]));
    // Nobody else is kept from working.
    let other = sandbox.project("b");
    ask(&sandbox, &["launch", "claude", "--cwd", other.to_str().expect("UTF-8")]).expect_success();
    // A start that comes to nothing leaves that as it was.
    let refuse = sandbox.project("a").join("refuse");
    fs::write(&refuse, "").expect("a sign");
    assert_eq!(ask(&sandbox, &["resume", &handle]).code(), 1);
    assert_eq!(status(&sandbox, &handle)["restorable"], json!(false));
    for sign in ["go", "refuse"] {
        fs::remove_file(sandbox.project("a").join(sign)).expect("it was there");
    }
    ask(&sandbox, &["resume", &handle]).expect_success();
    // What was there is kept, and told of until somebody has seen to it.
    let aside = folder.join("exit.json.0.unreadable");
    assert_eq!(fs::read_to_string(&aside).expect("kept"), "{");
    assert!(warned(&sandbox).iter().any(|p| p.ends_with("exit.json.0.unreadable")), "{:?}", warned(&sandbox));
    for n in 0..2 {
        let _ = fs::remove_file(folder.join(format!("exit.json.{n}.unreadable")));
    }
    assert_eq!(warned(&sandbox), [""; 0]);
}

#[test]
fn what_cannot_be_read_is_kept_however_early_a_start_fails() {
    let sandbox = Sandbox::new("torn-early");
    let (handle, folder, pid) = launched(&sandbox);
    let agent = sandbox.processes().into_iter().find(|p| i64::from(p.pid) == pid).expect("it lives");
    assert!(agent.signal(Signal::KILL));
    wait_until("its end is on record", DEADLINE, || folder.join("exit.json").exists());
    tear(&folder.join("exit.json"));
    fs::remove_file(folder.join("intent.json")).expect("a wish"); // else nothing is put back so early
    let again = ask(&sandbox, &["resume", &handle, "--", "--bg"]);
    assert!(again.code() != 0 && again.stderr.contains("--bg"), "{again:?}");
    assert_eq!(fs::read_to_string(folder.join("exit.json.0.unreadable")).expect("kept"), "{");
    assert_eq!(status(&sandbox, &handle)["restorable"], false);
}

#[test]
fn who_holds_it_is_known_by_others_if_its_shim_s_record_cannot_be_read() {
    let sandbox = Sandbox::new("torn-shim");
    let (handle, folder, pid) = launched(&sandbox);
    tear(&folder.join("shim.json"));
    let row = status(&sandbox, &handle);
    assert_eq!((&row["status"], &row["pid"]), (&json!("working"), &json!(pid)), "{row:#}");
    let agent = sandbox.processes().into_iter().find(|p| i64::from(p.pid) == pid).expect("it lives");
    assert!(agent.signal(Signal::KILL));
    wait_until("it is gone", DEADLINE, || status(&sandbox, &handle)["live"] == json!(false));
    let row = status(&sandbox, &handle);
    assert_eq!((&row["status"], &row["restorable"]), (&json!("interrupted"), &json!(false)), "{row:#}");
    ask(&sandbox, &["kill", &handle]).expect_success();
}

#[test]
fn what_was_put_aside_is_told_of_until_it_is_forgotten_on_request() {
    let sandbox = Sandbox::new("torn-old");
    let (handle, folder, _) = launched(&sandbox);
    for name in ["eins", "zwei"] {
        tear(&folder.join("label.json"));
        ask(&sandbox, &["rename", &handle, name]).expect_success();
    }
    let aside = |n: u32| folder.join(format!("label.json.{n}.unreadable"));
    let listed = || fs::read_to_string(sandbox.state_dir().join("lariat/aside")).expect("a list").lines().count();
    fs::remove_file(aside(1)).expect("it was there");
    assert_eq!((warned(&sandbox).len(), listed()), (1, 2));
    let forget = |args: &[&str]| ask(&sandbox, &[&["gc", "--json"], args].concat()).json();
    // Not yet; and a plan does nothing.
    assert_eq!(forget(&[])["aside"], json!([]));
    let plan = forget(&["--retain", "0s"]);
    assert!(plan["aside"][0]["name"].as_str().is_some_and(|n| n.ends_with("label.json.0.unreadable")), "{plan}");
    assert!(ask(&sandbox, &["gc", "--retain", "0s"]).stdout.contains("label.json.0.unreadable"));
    assert!(aside(0).exists() && warned(&sandbox).len() == 1);
    // What lies there not so long stays; what is there no longer is not told of in the list.
    assert_eq!(forget(&["--yes"])["aside"], json!([]));
    assert_eq!((aside(0).exists(), listed()), (true, 1));
    assert_eq!(forget(&["--retain", "0s", "--yes"])["aside"].as_array().map(Vec::len), Some(1));
    assert_eq!((aside(0).exists(), listed(), warned(&sandbox)), (false, 0, Vec::new()));
    ask(&sandbox, &["kill", &handle]).expect_success();
}

#[test]
fn nothing_is_written_over_what_cannot_be_read() {
    let sandbox = Sandbox::new("torn-label");
    let (handle, folder, _) = launched(&sandbox);
    ask(&sandbox, &["rename", &handle, "eins"]).expect_success();
    tear(&folder.join("label.json"));
    ask(&sandbox, &["keep", &handle]).expect_success();
    assert_eq!(fs::read_to_string(folder.join("label.json.0.unreadable")).expect("kept"), "{");
    tear(&folder.join("intent.json"));
    ask(&sandbox, &["kill", &handle]).expect_success();
    assert_eq!(fs::read_to_string(folder.join("intent.json.0.unreadable")).expect("kept"), "{");
    assert_eq!(list(&sandbox).sessions()[0]["status"], "stopped");
    // Whose a lock was that cannot be read is not known: only by force somebody else has it.
    let place = sandbox.project("c");
    let place = place.to_str().expect("UTF-8");
    ask(&sandbox, &["lock", place, "--by", "ann"]).expect_success();
    let claims = sandbox.state_dir().join("lariat/claims");
    let claim = fs::read_dir(&claims).expect("claims").next().expect("one").expect("one").path();
    tear(&claim);
    assert_eq!(ask(&sandbox, &["lock", place, "--by", "ben"]).code(), 3);
    ask(&sandbox, &["lock", place, "--by", "ben", "--force"]).expect_success();
    let kept = claim.with_extension("json.0.unreadable");
    assert_eq!(fs::read_to_string(kept).expect("kept"), "{");
    assert_eq!(ask(&sandbox, &["locks", "--json"]).json()["locks"][0]["by"], "ben");
    assert_eq!(warned(&sandbox).len(), 3, "each is told of: {:?}", warned(&sandbox));
}
