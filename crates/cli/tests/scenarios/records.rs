//! Records of our own that cannot be read: they hide nothing else, keep nobody from working, and are put aside before
//! anything takes their place.

use std::fs;
use std::path::{Path, PathBuf};

use lariat_testkit::{DEADLINE, Sandbox, Signal, wait_until};
use serde_json::{Value, json};

use crate::asking::{ask, id, lariat, list, through};
use crate::claude_store::ClaudeStore;
use crate::resuming::install;
use crate::worktrees::hold;

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

#[test]
fn a_journal_that_was_cut_short_within_a_character_can_be_read() {
    let sandbox = Sandbox::new("torn-journal");
    ask(&sandbox, &["lock", "--by", "Zoë"]).expect_success();
    let path = sandbox.state_dir().join("lariat/journal.ndjson");
    let whole = fs::read(&path).expect("a journal");
    let half = whole.iter().position(|b| !b.is_ascii()).expect("an ë") + 1;
    fs::write(&path, [&whole[..], &whole[..half]].concat()).expect("cut short");
    ask(&sandbox, &["unlock"]).expect_success();
    let told = ask(&sandbox, &["journal"]);
    assert!(told.code() == 0 && told.stderr.contains("1 lines of the journal are unreadable"), "{told:?}");
    let entries: Vec<&str> = told.stdout.lines().filter(|l| l.contains("Zoë")).collect();
    assert!(
        matches!(entries[..], [lock, unlock] if lock.contains(" lock ") && unlock.contains(" unlock ")),
        "{told:?}"
    );
}

#[test]
fn what_two_say_of_a_session_at_once_both_counts() {
    let sandbox = Sandbox::new("labels");
    let (handle, folder, _) = launched(&sandbox);
    let renaming = hold(&sandbox, &["rename", &handle, "eins", "--json"], "label.read");
    let keeping = sandbox.spawn(&lariat(&sandbox, &["keep", &handle]));
    let pid = keeping.outside_pid().expect("it runs").to_string();
    let waits = || {
        let locks = fs::read_to_string("/proc/locks").expect("locks");
        locks.lines().any(|l| l.contains("->") && l.split_ascii_whitespace().any(|word| word == pid))
    };
    wait_until("the other has said it, or waits", DEADLINE, || keeping.exit().is_some() || waits());
    assert_eq!(renaming.go_on().0, 0);
    assert_eq!(keeping.output(DEADLINE).code(), 0);
    let row = status(&sandbox, &handle);
    assert_eq!((&row["name"], &row["kept"]), (&json!("eins"), &json!(true)));

    // What is said now counts, whatever the clock was at before.
    let other = sandbox.state_dir().join("lariat/sessions/other");
    fs::create_dir(&other).expect("a folder");
    let label = json!({"id": row["id"], "name": "zwei", "kept": false, "at": "2100-01-01T00:00:00Z"});
    fs::write(other.join("label.json"), label.to_string()).expect("a label");
    assert_eq!(status(&sandbox, &handle)["name"], "zwei");
    ask(&sandbox, &["rename", &handle, "drei"]).expect_success();
    assert_eq!(status(&sandbox, &handle)["name"], "drei");
    assert!(folder.join("label.json").exists());
    ask(&sandbox, &["kill", &handle]).expect_success();
}

#[test]
fn whoever_keeps_everything_from_everybody_can_read_what_was_written() {
    use std::os::unix::fs::PermissionsExt as _;
    fn all(folder: &Path, modes: &mut Vec<(u32, PathBuf)>) {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let kind = entry.file_type().expect("a kind");
            let needed = if kind.is_dir() { 0o700 } else { 0o600 };
            let mode = entry.metadata().expect("an entry").permissions().mode() & 0o777;
            modes.extend((mode & needed != needed || mode & 0o077 != 0).then(|| (mode, entry.path())));
            if kind.is_dir() {
                all(&entry.path(), modes);
            }
        }
    }
    for mask in ["777", "277", "000"] {
        let sandbox = Sandbox::new("umask");
        install(&sandbox);
        let line = format!("umask {mask}; exec \"$@\"");
        let told = through(&sandbox, &line, &["launch", "claude", "--headless", "-p", "hi", "--json"]);
        let handle = told.json()["handle"].as_str().expect("a handle").to_owned();
        let other = sandbox.project("other");
        through(&sandbox, &line, &["lock", other.to_str().expect("UTF-8")]).expect_success();
        let mut wrong = Vec::new();
        all(&sandbox.state_dir(), &mut wrong);
        assert_eq!(wrong, [], "umask {mask}");
        ask(&sandbox, &["kill", &handle]).expect_success();
    }
}

#[test]
fn what_a_session_is_called_that_goes_on_is_not_forgotten_with_an_old_stop() {
    let sandbox = Sandbox::new("called");
    let claude = ClaudeStore::of(&sandbox);
    let first = sandbox.lookalike("claude", &[]);
    drop(claude.session(&id(1)).asked("fix it").answered("done"));
    drop(claude.register(&first, &id(1)).says("idle"));
    ask(&sandbox, &["rename", &id(1), "the login bug"]).expect_success();
    ask(&sandbox, &["kill", &id(1)]).expect_success();
    // A person goes on with it by hand.
    let second = sandbox.lookalike("claude", &[]);
    drop(claude.register(&second, &id(1)).says("idle"));
    ask(&sandbox, &["gc", "--yes", "--retain", "0s"]).expect_success();
    let row = status(&sandbox, "the login bug");
    assert_eq!((&row["native_id"], &row["live"]), (&json!(id(1)), &json!(true)), "{row:#}");
}

#[test]
fn a_handle_is_not_forgotten_while_its_session_lives_by_another_hand() {
    let sandbox = Sandbox::new("by-hand");
    let (handle, folder, _) = launched(&sandbox);
    fs::write(sandbox.project("a").join("go"), "").expect("a sign");
    wait_until("its end is on record", DEADLINE, || folder.join("exit.json").exists());
    let native = status(&sandbox, &handle)["native_id"].as_str().expect("an id").to_owned();
    let agent = sandbox.lookalike("claude", &["--resume", &native]);
    drop(ClaudeStore::of(&sandbox).register(&agent, &native).says("idle"));
    // As long ago as anything is kept.
    let settings = sandbox.home().join(".config/lariat/config.toml");
    fs::create_dir_all(settings.parent().expect("a folder")).expect("a folder");
    fs::write(settings, "retain = \"0s\"\n").expect("settings");
    let other = sandbox.project("b");
    ask(&sandbox, &["gc", "--yes"]).expect_success();
    ask(&sandbox, &["launch", "claude", "--cwd", other.to_str().expect("UTF-8")]).expect_success();
    let row = status(&sandbox, &handle);
    assert_eq!((&row["native_id"], &row["live"]), (&json!(native), &json!(true)), "{row:#}");
    ask(&sandbox, &["kill", &handle]).expect_success();
    wait_until("its shim is gone", DEADLINE, || ask(&sandbox, &["gc"]).stdout.contains(&handle));
    // While it cannot be told who lives, it may be this one.
    let (registry, away) = (sandbox.home().join(".claude/sessions"), sandbox.home().join("away"));
    fs::rename(&registry, &away).expect("it is there");
    fs::write(&registry, "").expect("no directory");
    ask(&sandbox, &["gc", "--yes"]).expect_success();
    assert!(folder.exists(), "nobody can tell");
    fs::remove_file(&registry).expect("no directory");
    fs::rename(&away, &registry).expect("it is back");
    ask(&sandbox, &["gc", "--yes"]).expect_success();
    assert!(!folder.exists(), "it is gone");
}

#[test]
fn one_that_ended_may_be_started_again_where_that_cannot_be_told() {
    let sandbox = Sandbox::new("unread-start");
    let (handle, folder, _) = launched(&sandbox);
    fs::write(sandbox.project("a").join("go"), "").expect("a sign");
    wait_until("its end is on record", DEADLINE, || folder.join("exit.json").exists());
    let row = status(&sandbox, &handle);
    assert_eq!(row["live"], json!(false), "{row:#}");
    let lock = folder.join("start.lock");
    fs::remove_file(&lock).expect("a lock");
    fs::create_dir(&lock).expect("nothing that can be locked");
    // As whoever goes on with it leaves it, until its agent is on record.
    let intent = folder.join("intent.json");
    let text = fs::read_to_string(&intent).expect("a wish");
    let mut wish: Value = serde_json::from_str(&text).expect("JSON");
    wish["at"] = json!("2126-01-01T00:00:00.000Z");
    fs::write(&intent, wish.to_string()).expect("a wish");
    let row = status(&sandbox, &handle);
    assert_eq!((&row["status"], &row["live"]), (&json!("unknown"), &Value::Null), "{row:#}");
}

#[test]
fn settings_that_cannot_be_read_forget_nothing() {
    let sandbox = Sandbox::new("unread-retain");
    let (handle, folder, _) = launched(&sandbox);
    ask(&sandbox, &["kill", &handle]).expect_success();
    // As long ago as what no setting says is kept.
    for name in ["exit.json", "intent.json"] {
        let text = fs::read_to_string(folder.join(name)).expect("a record");
        let mut record: Value = serde_json::from_str(&text).expect("JSON");
        for at in ["/at", "/intent/at"] {
            record.pointer_mut(at).into_iter().for_each(|at| *at = json!("2026-01-01T00:00:00Z"));
        }
        fs::write(folder.join(name), record.to_string()).expect("a record");
    }
    let settings = sandbox.home().join(".config/lariat/config.toml");
    fs::create_dir_all(settings.parent().expect("a folder")).expect("a folder");
    wait_until("it may be forgotten", DEADLINE, || ask(&sandbox, &["gc"]).stdout.contains(&handle));
    for wrong in ["retain = \"30 days\"\n", "retain = \n"] {
        fs::write(&settings, wrong).expect("settings");
        for args in [&["gc"][..], &["gc", "--yes"]] {
            let refused = ask(&sandbox, args);
            assert_eq!(refused.code(), 3, "{wrong}: {refused:?}");
            assert!(refused.stderr.contains("line 1") && refused.stderr.contains("--retain"), "{wrong}: {refused:?}");
        }
        assert!(folder.exists(), "{wrong}");
    }
    // Who says it goes on.
    ask(&sandbox, &["gc", "--yes", "--retain", "1d"]).expect_success();
    assert!(!folder.exists());
}
