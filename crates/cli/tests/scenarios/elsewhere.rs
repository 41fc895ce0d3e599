//! An agent that was launched with its store elsewhere is told right by whoever asks, wherever that one looks; and goes
//! on there, not in a new conversation.

use std::fs;

use lariat_testkit::{DEADLINE, Sandbox, Signal, built, wait_until};
use serde_json::Value;

use crate::asking::{ask, lariat, list};

const STORE: &str = "CLAUDE_CONFIG_DIR";

fn launch(sandbox: &Sandbox, project: &str, args: &[&str]) -> Value {
    launch_in(sandbox, "elsewhere", project, args)
}

fn launch_in(sandbox: &Sandbox, store: &str, project: &str, args: &[&str]) -> Value {
    let place = sandbox.project(project);
    let program = lariat(sandbox, &["launch", "claude", "--json", "--cwd", place.to_str().expect("UTF-8")]).args(args);
    let output = sandbox.world().run(&program.env(STORE, sandbox.root().join(store)));
    assert_eq!(output.code(), 0, "{}", output.stderr);
    output.json()
}

fn until(sandbox: &Sandbox, launched: &Value, status: &str) {
    let id = launched["native_id"].as_str().expect("an id");
    wait_until(status, DEADLINE, || list(sandbox).find(id).is_some_and(|row| row["status"] == status));
}

#[test]
fn what_was_launched_with_its_store_elsewhere_is_seen_there_and_goes_on_there() {
    let sandbox = Sandbox::new("elsewhere");
    sandbox.install_copy("claude", &built("lariat-actor"));
    let ends = launch(&sandbox, "one", &["--headless", "-p", "say it"]);
    until(&sandbox, &ends, "done");
    let works = launch(&sandbox, "two", &["-p", "think 1000"]);
    until(&sandbox, &works, "working");
    let rests = launch(&sandbox, "three", &["-p", "say it"]);
    until(&sandbox, &rests, "idle");
    let handle = rests["handle"].as_str().expect("a handle");
    let sent = ask(&sandbox, &["send", handle, "and again", "--wait", "--json"]);
    assert_eq!(sent.code(), 0, "{}", sent.stdout);
    // Its other sessions are none of ours.
    let strange = sandbox.root().join("elsewhere/projects/-x");
    fs::create_dir_all(&strange).expect("a folder");
    let own = sandbox.root().join("elsewhere/projects").read_dir().expect("projects");
    let any = own.flatten().flat_map(|d| d.path().read_dir().into_iter().flatten().flatten()).next().expect("one");
    fs::copy(any.path(), strange.join("33333333-3333-4333-8333-333333333333.jsonl")).expect("another session");
    assert_eq!(list(&sandbox).sessions().len(), 3);

    let agent = works["pid"].as_i64().expect("a pid");
    let agent = sandbox.processes().into_iter().find(|p| i64::from(p.pid) == agent).expect("the agent");
    agent.signal(Signal::KILL);
    until(&sandbox, &works, "interrupted");
    let told = ask(&sandbox, &["restore", "--yes", "--json"]).json();
    let row = &told["restore"][0];
    assert_eq!(
        (&row["id"], &row["way"], &row["outcome"]),
        (&works["id"], &"native".into(), &"restored".into()),
        "{told}"
    );
    assert!(!sandbox.home().join(".claude/projects").exists(), "no conversation began where we look");
    // Whoever looks there sees the same.
    let there = lariat(&sandbox, &["ls", "-a", "--json"]).env(STORE, sandbox.root().join("elsewhere"));
    let there = sandbox.world().run(&there).json();
    let seen = list(&sandbox);
    for row in seen.sessions() {
        let same = |s: &&Value| s["id"] == row["id"];
        let other = there["sessions"].as_array().expect("rows").iter().find(same).expect("the same row");
        assert_eq!((&row["status"], &row["handle"]), (&other["status"], &other["handle"]));
    }
}

#[test]
fn what_was_launched_here_is_seen_by_one_who_looks_elsewhere() {
    let sandbox = Sandbox::new("here");
    sandbox.install_copy("claude", &built("lariat-actor"));
    let output = ask(&sandbox, &["launch", "claude", "--json", "--headless", "-p", "fail"]);
    let launched = output.json();
    until(&sandbox, &launched, "failed");
    let elsewhere =
        |args: &[&str]| sandbox.world().run(&lariat(&sandbox, args).env(STORE, sandbox.root().join("elsewhere")));
    let handle = launched["handle"].as_str().expect("a handle");
    assert_eq!(elsewhere(&["status", handle, "--json"]).json()["status"], "failed");
    let again = elsewhere(&["resume", handle, "say it", "--json"]);
    assert_eq!((&again.json()["id"], &again.json()["way"]), (&launched["id"], &"native".into()), "{}", again.stderr);
    until(&sandbox, &launched, "done");
}

#[test]
fn a_home_of_its_own_is_a_store_of_its_own() {
    let sandbox = Sandbox::new("house");
    sandbox.install_copy("claude", &built("lariat-actor"));
    let home = format!("HOME={}", sandbox.root().join("house").display());
    let launched = ask(&sandbox, &["launch", "claude", "--json", "--env", &home, "-p", "say it"]).json();
    until(&sandbox, &launched, "idle");
    let handle = launched["handle"].as_str().expect("a handle");
    let sent = ask(&sandbox, &["send", handle, "think 1000", "--json"]);
    assert_eq!(sent.code(), 0, "{}", sent.stdout);
    until(&sandbox, &launched, "working");
    let agent = launched["pid"].as_i64().expect("a pid");
    let agent = sandbox.processes().into_iter().find(|p| i64::from(p.pid) == agent).expect("the agent");
    agent.signal(Signal::KILL);
    until(&sandbox, &launched, "interrupted");
    let told = ask(&sandbox, &["restore", "--yes", "--json"]).json();
    let row = &told["restore"][0];
    assert_eq!((&row["way"], &row["outcome"]), (&"native".into(), &"restored".into()), "{told}");
    assert!(!sandbox.home().join(".claude/projects").exists(), "no conversation began where we look");
}

#[test]
fn what_was_used_there_counts_and_of_what_others_used_there_nothing() {
    let sandbox = Sandbox::new("elsewhere-used");
    sandbox.install_copy("claude", &built("lariat-actor"));
    let launched = launch(&sandbox, "one", &["--headless", "-p", "say it", "--group", "party"]);
    until(&sandbox, &launched, "done");
    let strange = sandbox.root().join("elsewhere/projects/-x");
    fs::create_dir_all(&strange).expect("a folder");
    let own = sandbox.root().join("elsewhere/projects").read_dir().expect("projects");
    let any = own.flatten().flat_map(|d| d.path().read_dir().into_iter().flatten().flatten()).next().expect("one");
    let text = fs::read_to_string(any.path()).expect("a transcript").replace("msg_", "other_");
    fs::write(strange.join("33333333-3333-4333-8333-333333333333.jsonl"), text).expect("another session");
    let tokens = list(&sandbox).session(launched["native_id"].as_str().expect("an id"))["tokens"].clone();
    assert!(tokens["output"].as_u64() > Some(0), "{tokens}");
    let handle = launched["handle"].as_str().expect("a handle");
    for args in [&["usage", handle, "--json"][..], &["usage", "--json"], &["usage", "--by", "group", "--json"]] {
        let told = ask(&sandbox, args).json();
        assert_eq!(told["total"]["tokens"], tokens, "{args:?}: {told:#}");
        if args.len() == 4 {
            assert_eq!(told["rows"][0]["key"], "party", "{told:#}");
        }
    }
    // What was copied to where something else was launched counts once.
    let [from, to] = ["elsewhere", "there"].map(|store| sandbox.root().join(store));
    sandbox.run(["cp", "-a", from.to_str().expect("UTF-8"), to.to_str().expect("UTF-8")]).expect_success();
    let used = |args: &[&str]| ask(&sandbox, args).json()["total"]["tokens"]["output"].as_u64().expect("tokens");
    let other = launch_in(&sandbox, "there", "two", &["--headless", "-p", "say it"]);
    until(&sandbox, &other, "done");
    let (both, of_other) =
        (used(&["usage", "--json"]), used(&["usage", other["handle"].as_str().expect("a handle"), "--json"]));
    assert_eq!((both, of_other > 0), (tokens["output"].as_u64().expect("tokens") + of_other, true));
    fs::remove_dir_all(to).expect("a copy");
    // What came here, too, counts once.
    let here = sandbox.home().join(".claude/projects/-x");
    fs::create_dir_all(&here).expect("a folder");
    fs::copy(any.path(), here.join(any.file_name())).expect("a copy");
    assert_eq!(ask(&sandbox, &["usage", "--json"]).json()["total"]["tokens"], tokens);
}
