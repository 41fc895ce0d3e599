//! Fuses burn down once, whatever happens to the daemon, and touch nothing else.

use std::fs;
use std::path::Path;

use lariat_testkit::{DEADLINE, Lookalike, Sandbox, wait_until};
use serde_json::{Value, json};

use crate::{
    asking::{ask, id, list},
    claude_store::ClaudeStore,
    daemon::{heard, kill, listen, start},
};

fn idle(sandbox: &Sandbox, number: u64) -> Lookalike {
    let claude = ClaudeStore::of(sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    drop(claude.session(&id(number)).asked("fix it").answered("done"));
    drop(claude.register(&agent, &id(number)).says("idle"));
    agent
}

fn set(sandbox: &Sandbox, args: &[&str]) -> String {
    let told = ask(sandbox, &[&["fuse", "set", "--json"], args].concat());
    assert_eq!(told.code(), 0, "{}", told.stderr);
    told.json()["id"].as_str().expect("an id").to_owned()
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn fuses(sandbox: &Sandbox) -> Value {
    ask(sandbox, &["fuse", "ls", "--json"]).json()["fuses"].clone()
}

#[test]
fn when_the_time_is_up_its_session_ends_and_no_other() {
    let sandbox = Sandbox::new("fuse");
    let (agent, other) = (idle(&sandbox, 1), idle(&sandbox, 2));
    start(&sandbox);
    let listener = listen(&sandbox);
    let fuse = set(&sandbox, &[&id(1), "--after", "1s"]);
    agent.wait(DEADLINE);
    listener.wait_for_stdout("fuse.fired", DEADLINE);
    wait_until("it is marked", DEADLINE, || !fuses(&sandbox)[0]["fired_at"].is_null());
    other.tell("ready");
    let seen = list(&sandbox);
    seen.expect(&id(1), "stopped", None);
    seen.expect(&id(2), "idle", Some(other.pid()));
    let fired: Vec<Value> = heard(&listener).into_iter().filter(|e| e["event"] == "fuse.fired").collect();
    assert_eq!((fired.len(), &fired[0]["fuse"]["id"]), (1, &json!(fuse)));
    assert_eq!(fired[0]["sessions"], json!([format!("claude:{}", id(1))]));
    assert!(fuses(&sandbox)[0]["outcome"].as_str().expect("an outcome").contains("ended"));
}

#[test]
fn it_burns_on_without_a_daemon_and_is_cancelled_and_extended_like_any_wish() {
    let sandbox = Sandbox::new("fuse-off");
    let (agent, other) = (idle(&sandbox, 1), idle(&sandbox, 2));
    let told = ask(&sandbox, &["fuse", "set", &id(1), "--after", "10ms", "--then", "kill"]);
    assert!(told.code() == 0 && told.stderr.contains("only a daemon burns fuses"), "{}", told.stderr);
    let cancelled = set(&sandbox, &[&id(2), "--after", "10ms"]);
    ask(&sandbox, &["fuse", "cancel", &cancelled]).expect_success();
    let later = set(&sandbox, &[&id(2), "--after", "10ms"]);
    ask(&sandbox, &["fuse", "extend", &later, "--by", "1h"]).expect_success();
    agent.tell("ready");
    // The one that is overdue burns down when a daemon comes; the others do not.
    start(&sandbox);
    agent.wait(DEADLINE);
    wait_until("it is marked", DEADLINE, || !fuses(&sandbox)[0]["fired_at"].is_null());
    other.tell("ready");
    list(&sandbox).expect(&id(2), "idle", Some(other.pid()));
    assert_eq!(fuses(&sandbox).as_array().expect("fuses").len(), 2);
    // One that is called otherwise than it says is nobody's, and told of.
    let folder = sandbox.state_dir().join("lariat/fuses");
    fs::rename(folder.join(format!("{later}.json")), folder.join("mine.json")).expect("a fuse");
    let refused = ask(&sandbox, &["fuse", "extend", &later, "--by", "1h"]);
    assert!(refused.code() == 2 && refused.stderr.contains("mine.json"), "{refused:?}");
    for (args, code) in [
        (&["fuse", "cancel", "nothing"][..], 2),
        (&["fuse", "set", &id(2)], 2),
        (&["fuse", "set", "/none/such", "--after", "1s"], 2),
        (&["fuse", "set", "nobody", "--after", "1s"], 2),
        (&["fuse", "set", &id(2), "--after", "1s", "--then", "cmd"], 2),
        (&["fuse", "set", &id(2), "--cost", "-1"], 2),
    ] {
        assert_eq!(ask(&sandbox, args).code(), code, "{args:?}");
    }
}

#[test]
fn one_that_is_taken_away_while_the_daemon_looks_neither_burns_nor_comes_back() {
    let sandbox = Sandbox::new("fuse-race");
    let agent = idle(&sandbox, 1);
    let due = set(&sandbox, &[&id(1), "--after", "10ms", "--then", "kill"]);
    // Its answer is 107 tokens: of the second there is to be warned.
    let warns = set(&sandbox, &[&id(1), "--tokens", "120"]);
    let (fifo, points) = (sandbox.root().join("streams/gate"), sandbox.root().join("streams/points"));
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a FIFO");
    for (name, value) in [("PAUSE_AT", "fuse.read"), ("PAUSE_ON", utf8(&fifo)), ("POINTS", utf8(&points))] {
        sandbox.env(&format!("LARIAT_{name}"), value);
    }
    start(&sandbox);
    ["PAUSE_AT", "PAUSE_ON", "POINTS"].iter().for_each(|name| sandbox.without_env(&format!("LARIAT_{name}")));
    let looks = || {
        let passed = fs::read_to_string(&points).unwrap_or_default();
        passed.lines().filter(|point| *point == "fuse.read").count()
    };
    wait_until("it has read them", DEADLINE, || looks() == 1);
    for fuse in [due, warns] {
        ask(&sandbox, &["fuse", "cancel", &fuse]).expect_success();
    }
    let gate = fs::OpenOptions::new().write(true).open(&fifo).expect("it waits");
    fs::remove_file(&fifo).expect("it waits only once");
    drop(gate);
    wait_until("it looks again", DEADLINE, || looks() > 1);
    assert_eq!(fuses(&sandbox), json!([]));
    agent.tell("ready");
    list(&sandbox).expect(&id(1), "idle", Some(agent.pid()));
}

#[test]
fn over_a_crash_at_every_point_it_burns_down_once() {
    for (point, then) in [("fuse.owed", "cmd"), ("deliver.sent", "cmd"), ("fuse.ended", "kill")] {
        let sandbox = Sandbox::new("fuse-die");
        let agent = idle(&sandbox, 1);
        let ran = sandbox.root().join("ran");
        let run = format!("echo $LARIAT_EVENT >> {}", ran.display());
        sandbox.env("LARIAT_DIE_AT", point);
        let daemon = start(&sandbox);
        sandbox.without_env("LARIAT_DIE_AT");
        let command: &[&str] = if then == "cmd" { &["--run", &run] } else { &[] };
        set(&sandbox, &[&[&*id(1), "--after", "10ms", "--then", then], command].concat());
        wait_until("the daemon dies", DEADLINE, || sandbox.world().process(daemon).is_none_or(|p| p.state == 'Z'));
        for _ in 0..2 {
            let daemon = start(&sandbox);
            let nothing_owed = || ask(&sandbox, &["daemon", "deliveries", "--json"]).json()["owed"] == json!([]);
            wait_until("all is done", DEADLINE, || !fuses(&sandbox)[0]["fired_at"].is_null() && nothing_owed());
            kill(&sandbox, daemon);
        }
        match then {
            "kill" => {
                agent.wait(DEADLINE);
                list(&sandbox).expect(&id(1), "stopped", None);
            }
            _ => {
                let said = fs::read_to_string(&ran).expect("it ran");
                // A crash between the doing and the note of it is the one time that it is done twice.
                let times = if point == "deliver.sent" { 2 } else { 1 };
                assert_eq!(said.lines().collect::<Vec<_>>(), vec!["fuse.fired"; times], "{point}");
                agent.tell("ready");
            }
        }
    }
}

#[test]
fn a_budget_of_tokens_warns_and_then_ends_all_that_works_in_a_directory() {
    let sandbox = Sandbox::new("fuse-tok");
    let claude = ClaudeStore::of(&sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    drop(claude.register(&agent, &id(1)).says("busy"));
    // Each answer is 107 tokens.
    let talk = claude.session(&id(1)).asked("fix it").answered("one");
    start(&sandbox);
    let listener = listen(&sandbox);
    set(&sandbox, &[sandbox.work().to_str().expect("UTF-8"), "--tokens", "250", "--then", "kill"]);
    let talk = talk.asked("more").answered("two");
    listener.wait_for_stdout("fuse.warned", DEADLINE);
    agent.tell("ready");
    drop(talk.asked("more").answered("three"));
    agent.wait(DEADLINE);
    listener.wait_for_stdout("fuse.fired", DEADLINE);
    let warned = heard(&listener).iter().filter(|e| e["event"] == "fuse.warned").count();
    assert_eq!(warned, 1);
}

#[test]
fn one_on_a_directory_is_on_all_that_call_it_otherwise() {
    let sandbox = Sandbox::new("fuse-link");
    let claude = ClaudeStore::of(&sandbox);
    let link = sandbox.root().join("link");
    std::os::unix::fs::symlink(sandbox.work(), &link).expect("a link");
    let agent = sandbox.lookalike("claude", &[]);
    let below = link.join("below");
    fs::create_dir(&below).expect("a folder");
    drop(claude.session_in(&id(1), &below).asked("fix it").answered("done"));
    drop(claude.register(&agent, &id(1)).with("cwd", json!(below)).says("idle"));
    let other = idle(&sandbox, 2);
    let elsewhere = sandbox.project("elsewhere");
    set(&sandbox, &[utf8(&elsewhere), "--after", "10ms", "--then", "kill"]);
    set(&sandbox, &[utf8(&sandbox.work()), "--tokens", "100", "--then", "kill"]);
    start(&sandbox);
    agent.wait(DEADLINE);
    other.wait(DEADLINE);
}

/// A command that nothing would run stands for a mistake: the session would be stopped instead.
#[test]
fn a_command_is_run_only_where_that_was_asked_for() {
    let sandbox = Sandbox::new("fuse-run");
    let _agent = idle(&sandbox, 1);
    let refused = ask(&sandbox, &["fuse", "set", &id(1), "--idle", "20m", "--run", "true", "--json"]);
    assert_eq!((refused.code(), &refused.json()["error"]["code"]), (2, &json!(2)), "{refused:?}");
    assert!(refused.stderr.contains("--then cmd"), "{refused:?}");
    assert_eq!(fuses(&sandbox), json!([]));
    set(&sandbox, &[&id(1), "--idle", "20m", "--run", "true", "--then", "cmd"]);
}
