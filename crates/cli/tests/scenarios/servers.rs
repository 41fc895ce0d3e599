//! Servers of an agent's that stand below the session which needed them first: who else needs one keeps it.
//!
//! Seen red: in `engine::stop`, `hosts`, without `seen` (the first), without `is_coming` (the second); in
//! `engine::start`, `take_back`, nobody spared (the third).

use lariat_testkit::{DEADLINE, Lookalike, Sandbox, Signal, wait_until};

use crate::asking::{ask, id, list};
use crate::claude_store::ClaudeStore;
use crate::resuming;

/// Claude Code's daemon, with marks by which it is found.
fn daemon(sandbox: &Sandbox, marks: &[(&str, &str)]) -> Lookalike {
    let program = Lookalike::program(sandbox, "server/claude").args(["daemon", "run", "--origin", "transient"]);
    let program = marks.iter().fold(program, |program, (name, value)| program.env(name, value));
    Lookalike::start(sandbox, &program)
}

fn is_alive(sandbox: &Sandbox, pid: i32) -> bool {
    sandbox.processes().iter().any(|p| p.pid == pid && p.state != 'Z')
}

#[test]
fn one_whose_store_is_elsewhere_may_be_needed_and_is_left() {
    let sandbox = Sandbox::new("server-elsewhere");
    let agent = sandbox.lookalike("claude", &[]);
    drop(ClaudeStore::of(&sandbox).register(&agent, &id(1)).says("busy"));
    let elsewhere = sandbox.home().join("other");
    let elsewhere = elsewhere.to_str().expect("UTF-8");
    let server = daemon(&sandbox, &[("CLAUDE_CODE_SESSION_ID", &id(1)), ("CLAUDE_CONFIG_DIR", elsewhere)]);
    ask(&sandbox, &["kill", &id(1)]).expect_success();
    agent.wait(DEADLINE);
    server.tell("ready");
}

#[test]
fn one_is_left_to_who_is_coming_up_and_ends_where_nobody_is() {
    let sandbox = Sandbox::new("server-needed");
    let claude = ClaudeStore::of(&sandbox);
    let server = daemon(&sandbox, &[("CLAUDE_CODE_SESSION_ID", &id(1))]);
    let worker =
        Lookalike::start(&sandbox, &Lookalike::program(&sandbox, "claude").env("CLAUDE_CODE_SESSION_ID", id(1)));
    drop(claude.register(&worker, &id(2)).says("busy"));
    for round in 0..2 {
        let agent = sandbox.lookalike("claude", &[]);
        drop(claude.register(&agent, &id(1)).says("busy"));
        drop(claude.session(&id(1)).asked("fix it"));
        // A session of another's is about to come up, in the first round: its daemon is there for it.
        let job = (round == 0).then(|| claude.job(&id(3), "working"));
        ask(&sandbox, &["kill", &id(1)]).expect_success();
        agent.wait(DEADLINE);
        assert_eq!(is_alive(&sandbox, server.pid()), job.is_some(), "round {round}");
        list(&sandbox).expect(&id(2), "working", Some(worker.pid()));
        job.map(std::fs::remove_file).transpose().expect("a job");
    }
}

#[test]
fn a_start_that_comes_to_nothing_leaves_what_others_need() {
    let sandbox = Sandbox::new("server-resumed");
    resuming::install(&sandbox);
    let place = sandbox.project("a");
    let told = ask(&sandbox, &["launch", "claude", "--cwd", place.to_str().expect("UTF-8"), "--json"]).json();
    let [one, handle] = ["native_id", "handle"].map(|key| told[key].as_str().expect(key).to_owned());
    wait_until("it works", DEADLINE, || list(&sandbox).session(&one)["status"] == "working");
    let elsewhere = sandbox.home().join("other");
    let elsewhere = elsewhere.to_str().expect("UTF-8");
    let server = daemon(&sandbox, &[("LARIAT_SESSION", &handle), ("CLAUDE_CONFIG_DIR", elsewhere)]);
    let pid = i32::try_from(told["pid"].as_i64().expect("a pid")).expect("a pid");
    assert!(sandbox.world().process(pid).expect("it lives").signal(Signal::KILL));
    wait_until("it is gone", DEADLINE, || list(&sandbox).session(&one)["live"] == false);
    std::fs::write(place.join("refuse"), "").expect("a sign");
    assert_eq!(ask(&sandbox, &["resume", &handle]).code(), 1);
    server.tell("ready");
    // What was cut off before is so still.
    assert_eq!(list(&sandbox).session(&one)["restorable"], true);
}
