//! Whose a directory is: scenarios 36 and 37.

use std::fs;

use lariat_testkit::{DEADLINE, Exit, Lookalike, Signal, wait_until};
use serde_json::{Value, json};

use super::{alive, launch, pid, with_agents};
use crate::asking::{ask, id, lariat, list};
use crate::claude_store::ClaudeStore;
use crate::worktrees::layer;

#[test]
fn s36_of_two_launches_in_one_directory_one_wins() {
    let sandbox = with_agents("s36");
    let work = sandbox.work();
    let below = work.join("below");
    fs::create_dir_all(&below).expect("a folder");
    let link = sandbox.root().join("link");
    std::os::unix::fs::symlink(&work, &link).expect("a link");
    let places = [&work, &link, &below, &work];
    let launching: Vec<_> = places
        .iter()
        .map(|p| sandbox.spawn(&lariat(&sandbox, &["launch", "claude", "--json", "--cwd", p.to_str().expect("UTF-8")])))
        .collect();
    let codes: Vec<i32> = launching.iter().map(|l| l.output(DEADLINE).code()).collect();
    assert_eq!(codes.iter().filter(|c| **c == 0).count(), 1, "{codes:?}");
    assert_eq!(codes.iter().filter(|c| **c == 3).count(), 3, "{codes:?}");
    assert_eq!(list(&sandbox).sessions().len(), 1);
    // All was ready before it was refused.
    let folders = fs::read_dir(sandbox.state_dir().join("lariat/sessions")).expect("records").count();
    let shims = sandbox.processes().into_iter().filter(|p| p.comm == "lariat-shim").count();
    assert_eq!((folders, shims), (1, 1), "of one, and nothing of the others");
}

#[test]
fn of_a_launch_that_was_killed_while_it_looked_only_its_folder_is_left_and_goes() {
    let sandbox = with_agents("unborn");
    let died = sandbox.world().run(&lariat(&sandbox, &["launch", "claude"]).env("LARIAT_DIE_AT", "launch.claimed"));
    assert_eq!(died.exit, Exit::Signal(9), "built without --features lariat/pause-points");
    wait_until("its shim has left", DEADLINE, || !sandbox.processes().iter().any(|p| p.comm == "lariat-shim"));
    assert_eq!(list(&sandbox).sessions().len(), 0);
    let folders = || fs::read_dir(sandbox.state_dir().join("lariat/sessions")).expect("records").count();
    ask(&sandbox, &["gc", "--yes"]).expect_success();
    assert_eq!(folders(), 1, "not before its time");
    ask(&sandbox, &["gc", "--yes", "--retain", "0s"]).expect_success();
    assert_eq!(folders(), 0);
    launch(&sandbox, &["claude"]);
}

#[test]
fn an_agent_that_lariat_did_not_start_holds_its_directory_too() {
    let sandbox = with_agents("claimed");
    let other = sandbox.lookalike("claude", &[]);
    let refused = ask(&sandbox, &["launch", "claude"]);
    assert_eq!(refused.code(), 3);
    assert!(
        refused.stderr.contains(&other.pid().to_string()) && refused.stderr.contains("--force"),
        "{}",
        refused.stderr
    );
    launch(&sandbox, &["claude", "--force"]);
}

#[test]
fn a_directory_that_was_moved_is_still_held() {
    let sandbox = with_agents("moved");
    let claude = ClaudeStore::of(&sandbox);
    let (before, after) = (sandbox.project("before"), sandbox.root().join("after"));
    let agent = Lookalike::start(&sandbox, &Lookalike::program(&sandbox, "claude").cwd(&before));
    drop(claude.register(&agent, &id(1)).with("cwd", json!(before)).says("busy"));
    fs::rename(&before, &after).expect("it is moved");
    let there = after.to_str().expect("UTF-8");
    let refused = ask(&sandbox, &["launch", "claude", "--cwd", there]);
    assert!(refused.code() == 3 && refused.stderr.contains(there), "{refused:?}");
    // Also where another directory is called by now what that was called.
    fs::create_dir(&before).expect("another directory");
    let refused = ask(&sandbox, &["launch", "claude", "--cwd", there]);
    assert!(refused.code() == 3 && refused.stderr.contains(there), "{refused:?}");
    // A server stands anywhere: where its session worked is gone, and was not moved to where that stands.
    let server = Lookalike::start(&sandbox, &Lookalike::program(&sandbox, "claude").cwd(sandbox.root()));
    drop(claude.register(&server, &id(2)).with("cwd", json!(sandbox.root().join("gone"))).says("busy"));
    let free = sandbox.project("free");
    launch(&sandbox, &["claude", "--cwd", free.to_str().expect("UTF-8")]);
}

#[test]
fn a_lock_that_cannot_be_read_can_be_given_up() {
    let sandbox = with_agents("torn-lock");
    ask(&sandbox, &["lock", "--for", "1h"]).expect_success();
    let folder = sandbox.state_dir().join("lariat/claims");
    let file = fs::read_dir(&folder).expect("locks").next().expect("a lock").expect("a lock").path();
    fs::write(&file, "{").expect("torn");
    let elsewhere = sandbox.project("elsewhere");
    let order = ["claude", "--cwd", elsewhere.to_str().expect("UTF-8")];
    assert_eq!(ask(&sandbox, &[&["launch"], &order[..]].concat()).code(), 3, "whose it is cannot be told");
    ask(&sandbox, &["unlock"]).expect_success();
    launch(&sandbox, &order);
    // One that has run out is nobody's, and so is a time that no end could be written for.
    ask(&sandbox, &["lock", "--for", "0s"]).expect_success();
    assert_eq!(ask(&sandbox, &["unlock"]).code(), 2);
    assert_eq!(ask(&sandbox, &["lock", "--for", "99999999999999d"]).code(), 2);
    assert_eq!(ask(&sandbox, &["stop", "--all", "--grace", "99999999999999d"]).code(), 2);
}

#[test]
fn a_lock_on_a_directory_that_is_gone_is_given_up_by_any_of_its_names() {
    let sandbox = with_agents("gone-lock");
    std::os::unix::fs::symlink(sandbox.work(), sandbox.root().join("link")).expect("a link");
    let linked = sandbox.root().join("link/gone");
    for name in ["gone", "./gone", linked.to_str().expect("UTF-8")] {
        fs::create_dir(sandbox.work().join("gone")).expect("a directory");
        ask(&sandbox, &["lock", name]).expect_success();
        fs::remove_dir(sandbox.work().join("gone")).expect("it was there");
        ask(&sandbox, &["unlock", name]).expect_success();
        assert_eq!(ask(&sandbox, &["locks", "--json"]).json()["locks"], json!([]));
    }
}

#[test]
fn a_lock_is_on_the_directory_that_was_locked_and_not_on_one_that_got_its_inode() {
    let sandbox = with_agents("inode");
    let (first, second) = (sandbox.project("first"), sandbox.project("second"));
    let paths = [&first, &second].map(|p| p.to_str().expect("UTF-8").to_owned());
    let [first, second] = &paths;
    ask(&sandbox, &["lock", first, "--by", "ann"]).expect_success();
    let claims = sandbox.state_dir().join("lariat/claims");
    let path = fs::read_dir(&claims).expect("claims").next().expect("one").expect("one").path();
    let claim: Value = serde_json::from_slice(&fs::read(&path).expect("a claim")).expect("a record");
    let is_held = |claim: &Value| {
        fs::write(&path, claim.to_string()).expect("a claim");
        ask(&sandbox, &["lock", second, "--by", "ben"]).code() == 3
    };
    // It was moved: the second is what was called the first.
    let place: Vec<u64> = {
        use std::os::unix::fs::MetadataExt as _;
        fs::metadata(second).map(|m| vec![m.dev(), m.ino()]).expect("a directory")
    };
    let mut moved = claim.clone();
    moved["place"] = json!(place);
    assert!(claim["born"].is_i64(), "{claim}");
    assert!(!is_held(&moved), "the first is gone, and the second, made at another moment, has its inode");
    ask(&sandbox, &["unlock", second]).expect_success();
    moved.as_object_mut().expect("an object").remove("born");
    assert!(is_held(&moved), "of older records nobody can tell");
    // The next start of the machine may give the device another number.
    let mut counted = claim.clone();
    counted["place"][0] = json!(place[0] + 1);
    fs::remove_file(&path).expect("a claim");
    let path = claims.join(format!("{}-{}.json", counted["place"][0], counted["place"][1]));
    fs::write(path, counted.to_string()).expect("a claim");
    assert_eq!(ask(&sandbox, &["lock", first, "--by", "ben"]).code(), 3);
    assert_eq!(ask(&sandbox, &["unlock", second]).code(), 2);
    // Locked again it is locked once.
    ask(&sandbox, &["lock", first, "--by", "ann"]).expect_success();
    ask(&sandbox, &["unlock", first]).expect_success();
    assert_eq!(ask(&sandbox, &["locks", "--json"]).json()["locks"], json!([]));
}

#[test]
fn a_lock_in_a_file_system_of_layers_outlives_the_first_file_that_is_made_there() {
    let sandbox = with_agents("layered-lock");
    let place = sandbox.project("place");
    let name = place.to_str().expect("UTF-8");
    layer(&sandbox, &sandbox.home().join("work"));
    ask(&sandbox, &["lock", name, "--by", "ann"]).expect_success();
    sandbox.run(["touch", &format!("{name}/file")]).expect_success();
    let refused = ask(&sandbox, &["launch", "claude", "--cwd", name]);
    assert!(refused.code() == 3 && refused.stderr.contains("ann"), "{refused:?}");
}

#[test]
fn what_is_given_up_is_the_lock_on_what_is_called_so_now() {
    let sandbox = with_agents("renamed-lock");
    let place = sandbox.root().join("place");
    let name = place.to_str().expect("UTF-8");
    // Many, for they are found in no order.
    let moved: Vec<_> = (0..12).map(|n| sandbox.root().join(format!("moved{n}"))).collect();
    for moved in &moved {
        fs::create_dir(&place).expect("a directory");
        ask(&sandbox, &["lock", name, "--by", "ann"]).expect_success();
        fs::rename(&place, moved).expect("it is moved");
    }
    fs::create_dir(&place).expect("another directory");
    ask(&sandbox, &["lock", name, "--by", "ben"]).expect_success();
    let told = ask(&sandbox, &["unlock", name, "--json"]);
    assert_eq!((told.code(), &told.json()["by"]), (0, &json!("ben")), "{told:?}");
    for moved in moved {
        let told = ask(&sandbox, &["lock", moved.to_str().expect("UTF-8"), "--by", "eve"]);
        assert!(told.code() == 3 && told.stderr.contains("ann"), "it is held still: {told:?}");
    }
}

#[test]
fn s37_a_claim_goes_with_its_holder_and_a_persons_stays() {
    let sandbox = with_agents("s37");
    let launched = launch(&sandbox, &["claude"]);
    let held = ask(&sandbox, &["locks", "--json"]).json();
    assert_eq!(held["locks"][0]["session"], launched["id"]);
    assert_eq!(ask(&sandbox, &["lock"]).code(), 3, "a live agent holds it");
    let agent = sandbox.processes().into_iter().find(|p| p.pid == pid(&launched)).expect("it lives");
    agent.signal(Signal::KILL);
    wait_until("it is dead", DEADLINE, || !alive(&sandbox, agent.pid));
    let free = ask(&sandbox, &["locks", "--json"]).json();
    assert_eq!(free["locks"], json!([]), "free within one look");

    let locked = ask(&sandbox, &["lock", "--by", "ann", "--reason", "a release", "--for", "1h", "--json"]);
    assert_eq!((locked.code(), &locked.json()["by"]), (0, &json!("ann")), "{}", locked.stderr);
    let refused = ask(&sandbox, &["launch", "claude"]);
    assert_eq!(refused.code(), 3);
    assert!(refused.stderr.contains("ann") && refused.stderr.contains("a release"), "{}", refused.stderr);
    assert_eq!(ask(&sandbox, &["lock", "--by", "ben"]).code(), 3);
    for args in [&["locks"][..], &["lock", "list"]] {
        assert!(ask(&sandbox, args).stdout.contains("ann"), "{args:?}");
    }
    assert_eq!(ask(&sandbox, &["unlock"]).code(), 0);
    assert_eq!(ask(&sandbox, &["unlock"]).code(), 2);
    launch(&sandbox, &["claude"]);
    // One that has run out holds nothing.
    let place = sandbox.project("other");
    let place = place.to_str().expect("UTF-8");
    assert_eq!(ask(&sandbox, &["lock", place, "--for", "0s"]).code(), 0);
    launch(&sandbox, &["claude", "--cwd", place]);
}

#[test]
fn claims_that_cannot_be_read_let_nobody_in() {
    let sandbox = with_agents("unread");
    let claims = sandbox.state_dir().join("lariat/claims");
    fs::create_dir_all(claims.parent().expect("a folder")).expect("our folder");
    fs::write(&claims, "not a folder").expect("a file in the way");
    let refused = ask(&sandbox, &["launch", "claude"]);
    assert_eq!(refused.code(), 3, "{}", refused.stderr);
    assert!(refused.stderr.contains("claims"), "{}", refused.stderr);
    fs::remove_file(&claims).expect("it is gone");
    launch(&sandbox, &["claude"]);
}

#[test]
fn what_a_refusal_advises_can_be_done() {
    let sandbox = with_agents("advice");
    let settings = sandbox.home().join(".config/lariat/config.toml");
    fs::create_dir_all(settings.parent().expect("a folder")).expect("a folder");
    fs::write(&settings, "max = 1\n").expect("settings");
    let (one, two) = (sandbox.project("one"), sandbox.project("two"));
    let ended = launch(&sandbox, &["claude", "--cwd", two.to_str().expect("UTF-8")]);
    let ended = ended["handle"].as_str().expect("a handle");
    assert_eq!(ask(&sandbox, &["kill", ended]).code(), 0);
    let first = launch(&sandbox, &["claude", "--cwd", one.to_str().expect("UTF-8")]);
    let again = ["launch", "claude", "--json", "--cwd", two.to_str().expect("UTF-8")];
    let refused = ask(&sandbox, &again);
    assert_eq!((refused.code(), refused.stderr.contains("--queue")), (3, true), "{}", refused.stderr);
    let told = ask(&sandbox, &["send", ended, "hello", "--json"]);
    assert_eq!((told.code(), &told.json()["outcome"]), (3, &json!("refused")), "{}", told.stdout);
    let refused = ask(&sandbox, &["resume", ended]);
    assert_eq!((refused.code(), refused.stderr.contains("--queue")), (3, false), "{}", refused.stderr);
    let queued = sandbox.spawn(&lariat(&sandbox, &again).args(["--queue"]));
    assert_eq!(ask(&sandbox, &["kill", first["handle"].as_str().expect("a handle")]).code(), 0);
    let queued = queued.output(DEADLINE);
    assert_eq!(queued.code(), 0, "{}", queued.stderr);

    let none = ask(&sandbox, &["ls", "--group", "none"]);
    assert!(none.stdout.contains("None of these"), "{}", none.stdout);
    let odd = "d=$(printf 'odd\\377'); mkdir \"$d\"; exec lariat launch claude --force --cwd \"$d\"";
    let refused = sandbox.run(["sh", "-c", odd]);
    assert_eq!((refused.code(), refused.stderr.contains("UTF-8")), (2, true), "{}", refused.stderr);
}
