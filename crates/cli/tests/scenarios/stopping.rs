//! What ends when it is told to, and nothing else: scenarios 12, 14, 23, 24, 25, and a kill that
//! was cut short.
//!
//! Seen red: in `sys::tree`, `members`, only the root (24); in `engine::stop`, the wish stored after
//! the end instead of before (25 and the cut-short ones); in `claude::registry`, `local_holder`, any
//! program may hold the PID (12); in `sys::tree`, `end_in`, no `CONT` for who is halted.

use std::fs;

use lariat_testkit::{DEADLINE, Exit, Lookalike, Sandbox, Signal, put_program, wait_until};
use serde_json::{Value, json};

use crate::{
    asking::{ask, id, lariat, list},
    claude_store::ClaudeStore,
    codex_store::CodexStore,
};

/// A lookalike in the middle of a turn.
fn working(sandbox: &Sandbox, number: u64) -> (Lookalike, String) {
    let claude = ClaudeStore::of(sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    let one = id(number);
    drop(claude.register(&agent, &one).says("busy"));
    drop(claude.session(&one).asked("fix it").calls("Bash", json!({"command": "make"})));
    (agent, one)
}

fn alive(sandbox: &Sandbox, pid: i32) -> bool {
    sandbox.processes().iter().any(|p| p.pid == pid && p.state != 'Z')
}

fn outcome(sandbox: &Sandbox, args: &[&str]) -> (i32, Value) {
    let output = ask(sandbox, args);
    let last = output.stdout.lines().last().unwrap_or("null");
    (output.code(), serde_json::from_str(last).expect("one object a line"))
}

#[test]
fn a_clock_that_was_set_back_hides_not_who_asked() {
    let sandbox = Sandbox::new("clock");
    let (agent, one) = working(&sandbox, 1);
    drop(ClaudeStore::of(&sandbox).session(&one).at(crate::moment::now() + 86_400_000).asked("said tomorrow"));
    assert_eq!(ask(&sandbox, &["kill", &one]).code(), 0);
    agent.wait(DEADLINE);
    list(&sandbox).expect(&one, "stopped", None);
}

#[test]
fn a_session_that_two_processes_hold_ends_with_both() {
    for verb in ["stop", "kill"] {
        let sandbox = Sandbox::new("both");
        let (agent, one) = working(&sandbox, 1);
        let second = sandbox.lookalike("claude", &[]);
        drop(ClaudeStore::of(&sandbox).register(&second, &one).says("busy"));
        let (code, told) = outcome(&sandbox, &[verb, &one, "--json"]);
        assert_eq!((code, &told["outcome"]), (0, &json!("stopped")), "{told}");
        let mut ended: Vec<i64> = told["ended"].as_array().expect("pids").iter().filter_map(Value::as_i64).collect();
        ended.sort_unstable();
        assert_eq!(ended, [i64::from(agent.pid()), i64::from(second.pid())], "{told}");
        assert!(!alive(&sandbox, agent.pid()) && !alive(&sandbox, second.pid()));
        list(&sandbox).expect(&one, "stopped", None);
    }
}

#[test]
fn stop_ends_it_and_says_who_asked() {
    let sandbox = Sandbox::new("stop");
    let (agent, one) = working(&sandbox, 1);
    let (code, told) = outcome(&sandbox, &["stop", &one, "--json"]);
    assert_eq!((code, &told["outcome"]), (0, &json!("stopped")), "{told}");
    agent.wait(DEADLINE);
    let seen = list(&sandbox);
    seen.expect(&one, "stopped", None);
    // Deleting what we own forgets only who asked.
    fs::remove_dir_all(sandbox.state_dir().join("lariat")).expect("our records");
    list(&sandbox).expect(&one, "interrupted", None);
}

#[test]
fn one_that_is_halted_heeds_a_stop_at_once() {
    let sandbox = Sandbox::new("stop-halted");
    let (agent, one) = working(&sandbox, 1);
    agent.signal(Signal::STOP);
    wait_until("it is halted", DEADLINE, || sandbox.world().process(agent.pid()).is_some_and(|p| p.state == 'T'));
    assert_eq!(ask(&sandbox, &["stop", &one, "--grace", "1h"]).code(), 0, "it was not waited for");
    assert_eq!(agent.wait(DEADLINE), Exit::Signal(Signal::INT.as_raw()));
    list(&sandbox).expect(&one, "stopped", None);
}

#[test]
fn s12_a_pid_that_another_program_has_now_is_not_signalled() {
    let sandbox = Sandbox::new("s12");
    let claude = ClaudeStore::of(&sandbox);
    let one = id(1);
    let other = sandbox.lookalike("editor", &[]);
    drop(claude.register(&other, &one).says("busy"));
    drop(claude.session(&one).asked("fix it"));
    for verb in ["stop", "kill"] {
        let (code, told) = outcome(&sandbox, &[verb, &one, "--json"]);
        assert_eq!((code, &told["outcome"]), (0, &json!("gone")), "{told}");
        other.tell("ready");
    }
    list(&sandbox).expect(&one, "interrupted", None);
}

#[test]
fn s14_the_newer_session_in_the_same_directory_is_unharmed() {
    let sandbox = Sandbox::new("s14");
    let (old, one) = working(&sandbox, 1);
    let (newer, two) = working(&sandbox, 2);
    // Even one that was started from within the old one's tool, and stands on its own by now.
    let claude = ClaudeStore::of(&sandbox);
    let three = id(3);
    let program = Lookalike::program(&sandbox, "inner/claude").env("CLAUDE_CODE_SESSION_ID", &one);
    let inner = Lookalike::start(&sandbox, &program);
    drop(claude.register(&inner, &three).says("idle"));
    let (code, _) = outcome(&sandbox, &["kill", &one, "--json"]);
    assert_eq!(code, 0);
    old.wait(DEADLINE);
    newer.tell("ready");
    inner.tell("ready");
    let seen = list(&sandbox);
    seen.expect(&one, "stopped", None);
    seen.expect(&two, "working", Some(newer.pid()));
    seen.expect(&three, "idle", Some(inner.pid()));
}

#[test]
fn s23_killing_what_is_gone_succeeds_and_changes_no_word() {
    let sandbox = Sandbox::new("s23");
    let (agent, one) = working(&sandbox, 1);
    agent.signal(Signal::KILL);
    agent.wait(DEADLINE);
    for _ in 0..2 {
        let (code, told) = outcome(&sandbox, &["kill", &one, "--json"]);
        assert_eq!((code, &told["outcome"]), (0, &json!("gone")));
        list(&sandbox).expect(&one, "interrupted", None);
    }
    let wish = sandbox.state_dir().join(format!("lariat/sessions/claude-{one}/intent.json"));
    let wish: Value = serde_json::from_slice(&fs::read(wish).expect("the wish is kept")).expect("JSON");
    assert_eq!((&wish["want"], &wish["generation"]), (&json!("stop"), &json!(1)));
}

#[test]
fn s24_grandchildren_in_sessions_of_their_own_that_ignore_signals_are_ended() {
    for verb in ["stop", "kill"] {
        let sandbox = Sandbox::new("s24");
        let claude = ClaudeStore::of(&sandbox);
        let one = id(1);
        let program = Lookalike::program(&sandbox, "claude");
        let stubborn = [Signal::TERM, Signal::INT, Signal::HUP];
        let agent = Lookalike::start_ignoring(&sandbox, &program, &stubborn);
        drop(claude.register(&agent, &one).says("busy"));
        drop(claude.session(&one).asked("serve"));
        // Ignored signals are inherited; one of them has lost the mark, one its parent.
        let marked = agent.detach(&[("CLAUDE_CODE_SESSION_ID", &one)]);
        let plain = agent.detach(&[]);
        let (code, told) = outcome(&sandbox, &[verb, &one, "--grace", "200ms", "--json"]);
        assert_eq!((code, &told["outcome"]), (0, &json!("stopped")), "{told}");
        for pid in [agent.pid(), marked, plain] {
            assert!(!alive(&sandbox, pid), "{pid} is left: {told}");
        }
        list(&sandbox).expect(&one, "stopped", None);
    }
}

#[test]
fn s25_it_shows_running_until_it_is_dead() {
    let sandbox = Sandbox::new("s25");
    let claude = ClaudeStore::of(&sandbox);
    let one = id(1);
    let agent =
        Lookalike::start_ignoring(&sandbox, &Lookalike::program(&sandbox, "claude"), &[Signal::INT, Signal::TERM]);
    drop(claude.register(&agent, &one).says("busy"));
    drop(claude.session(&one).asked("serve"));
    let stopping = sandbox.spawn(&lariat(&sandbox, &["stop", &one, "--grace", "2s", "--json"]));
    let wish = sandbox.state_dir().join(format!("lariat/sessions/claude-{one}/intent.json"));
    wait_until("the wish is stored", DEADLINE, || wish.exists());
    let seen = list(&sandbox);
    seen.expect(&one, "working", Some(agent.pid()));
    assert!(seen.session(&one)["reason"].as_str().expect("text").starts_with("stop asked"), "{}", seen.session(&one));
    assert_eq!(stopping.output(DEADLINE).code(), 0);
    list(&sandbox).expect(&one, "stopped", None);
}

/// However many there are, it takes no longer than the time that one is given.
#[test]
fn several_are_given_their_time_together() {
    let sandbox = Sandbox::new("stop-several");
    let claude = ClaudeStore::of(&sandbox);
    let program = Lookalike::program(&sandbox, "claude");
    let agents: Vec<(String, Lookalike)> =
        (1..=3).map(|n| (id(n), Lookalike::start_ignoring(&sandbox, &program, &[Signal::INT, Signal::TERM]))).collect();
    for (one, agent) in &agents {
        drop(claude.register(agent, one).says("busy"));
        drop(claude.session(one).asked("serve"));
    }
    let (first, second, third) = (agents[0].0.as_str(), agents[1].0.as_str(), agents[2].0.as_str());
    let stopping = lariat(&sandbox, &["stop", first, second, first, third, "--grace", "1h", "--json"]);
    let stopping = sandbox.spawn(&stopping);
    for (one, _) in &agents {
        let wish = sandbox.state_dir().join(format!("lariat/sessions/claude-{one}/intent.json"));
        wait_until("the wish is stored", DEADLINE, || wish.exists());
    }
    for (_, agent) in &agents {
        agent.signal(Signal::KILL);
    }
    let told = stopping.output(DEADLINE);
    let mut ended: Vec<String> = told
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("one object a line"))
        .inspect(|told| assert_eq!(told["outcome"], "stopped", "{told}"))
        .map(|told| told["id"].as_str().expect("an id").to_owned())
        .collect();
    ended.sort_unstable();
    assert_eq!((told.code(), ended), (0, (1..=3).map(|n| format!("claude:{}", id(n))).collect()));
}

#[test]
fn a_journal_that_nobody_can_write_holds_up_nothing() {
    let sandbox = Sandbox::new("journal-fifo");
    let (agent, one) = working(&sandbox, 1);
    let journal = sandbox.state_dir().join("lariat/journal.ndjson");
    std::fs::create_dir_all(journal.parent().expect("a folder")).expect("a folder");
    sandbox.run(["mkfifo", journal.to_str().expect("UTF-8")]).expect_success();
    assert_eq!(ask(&sandbox, &["kill", &one]).code(), 0);
    agent.wait(DEADLINE);
    let told = ask(&sandbox, &["journal"]);
    assert_eq!(told.code(), 1);
    assert!(told.stderr.contains("journal.ndjson"), "{told:?}");
}

#[test]
fn a_kill_that_a_crash_cut_short_is_shown_and_finished_by_the_next_verb_that_acts() {
    let sandbox = Sandbox::new("cut");
    let (agent, one) = working(&sandbox, 1);
    let (_other, two) = working(&sandbox, 2);
    let died = sandbox.world().run(&lariat(&sandbox, &["kill", &one]).env("LARIAT_DIE_AT", "stop.wished"));
    assert_eq!(died.exit, Exit::Signal(9), "built without --features lariat/pause-points");
    agent.tell("ready");
    let seen = list(&sandbox);
    seen.expect(&one, "working", Some(agent.pid()));
    assert!(seen.session(&one)["reason"].as_str().expect("text").starts_with("kill asked"), "looking never acts");
    let (code, _) = outcome(&sandbox, &["kill", &two, "--json"]);
    assert_eq!(code, 0);
    agent.wait(DEADLINE);
    list(&sandbox).expect(&one, "stopped", None);
}

#[test]
fn verbs_that_have_nothing_else_to_do_finish_it_too() {
    let nobody: [&[&str]; 4] = [&["stop", "nosuch"], &["kill", "nosuch"], &["resume", "nosuch"], &["fork", "nosuch"]];
    let nothing: [&[&str]; 2] = [&["restore", "--yes"], &["gc", "--yes"]];
    for (verb, code) in nothing.map(|verb| (verb, 0)).into_iter().chain(nobody.map(|verb| (verb, 2))) {
        let sandbox = Sandbox::new("cut-too");
        let (agent, one) = working(&sandbox, 1);
        sandbox.world().run(&lariat(&sandbox, &["kill", &one]).env("LARIAT_DIE_AT", "stop.wished"));
        assert_eq!(ask(&sandbox, &["restore"]).code(), 0);
        agent.tell("ready");
        assert_eq!(ask(&sandbox, verb).code(), code, "{verb:?}");
        agent.wait(DEADLINE);
        list(&sandbox).expect(&one, "stopped", None);
    }
}

#[test]
fn a_crash_before_the_wish_is_stored_ends_nothing() {
    for point in ["put.created", "put.written", "put.synced"] {
        let sandbox = Sandbox::new("before");
        let (agent, one) = working(&sandbox, 1);
        sandbox.world().run(&lariat(&sandbox, &["kill", &one]).env("LARIAT_DIE_AT", point));
        agent.tell("ready");
        list(&sandbox).expect(&one, "working", Some(agent.pid()));
    }
}

#[test]
fn without_a_durable_wish_nothing_is_signalled() {
    let sandbox = Sandbox::new("full");
    let (agent, one) = working(&sandbox, 1);
    let state = sandbox.state_dir();
    fs::create_dir_all(&state).expect("a folder");
    fs::write(state.join("lariat"), "in the way").expect("a file where our folder should be");
    let (code, told) = outcome(&sandbox, &["kill", &one, "--json"]);
    assert_eq!((code, &told["outcome"]), (1, &json!("failed")), "{told}");
    agent.tell("ready");
    let (code, told) = outcome(&sandbox, &["kill", &one, "--force", "--json"]);
    assert_eq!((code, &told["outcome"]), (0, &json!("stopped")), "{told}");
    assert!(told["reason"].as_str().is_some_and(|r| r.contains("restore")), "what that means is said: {told}");
    agent.wait(DEADLINE);
}

#[test]
fn what_was_killed_without_a_record_is_not_offered_once_it_is_told_again() {
    let sandbox = Sandbox::new("again");
    drop(Lookalike::program(&sandbox, "claude"));
    let launched = ask(&sandbox, &["launch", "claude", "--json"]).json();
    let handle = launched["handle"].as_str().expect("a handle");
    // No file may grow: what a full disk is to a program.
    let full = |how: &str| {
        let limited = format!("(trap '' XFSZ; ulimit -f 0; lariat kill {handle} {how}; echo code $?) 2>&1 | cat");
        sandbox.run(["sh", "-c", &limited]).stdout
    };
    let refused = full("");
    assert!(refused.contains("nothing was signalled") && refused.contains("code 1"), "{refused}");
    let forced = full("--force");
    assert!(forced.contains("not on record") && forced.contains("code 0"), "{forced}");
    let offered = || ask(&sandbox, &["restore", "--json"]).json()["restore"].as_array().map_or(0, Vec::len);
    assert_eq!(offered(), 1, "nobody knows better");
    let again = ask(&sandbox, &["kill", handle]);
    assert_eq!((again.code(), again.stderr.as_str()), (0, ""));
    assert_eq!(offered(), 0);
    // Nothing in the environment says who asks.
    let journal = ask(&sandbox, &["journal"]).stdout;
    assert!(!journal.contains("by unknown"), "{journal}");
}

#[test]
fn all_is_a_plan_until_it_is_confirmed_and_a_shared_server_is_refused() {
    let sandbox = Sandbox::new("all");
    let codex = CodexStore::of(&sandbox);
    let (agent, one) = working(&sandbox, 1);
    let plan = ask(&sandbox, &["stop", "--all"]);
    assert_eq!(plan.code(), 0);
    assert!(plan.stdout.contains(&one) && plan.stdout.contains("--yes"), "{}", plan.stdout);
    agent.tell("ready");
    let (code, _) = outcome(&sandbox, &["stop", "--all", "--yes", "--json"]);
    assert_eq!(code, 0);
    agent.wait(DEADLINE);

    let two = id(2);
    let daemon = sandbox.lookalike("codex", &["app-server", "--listen", "unix://", "--managed-daemon"]);
    codex.lock(&daemon, &two);
    drop(codex.thread(&two).asked("fix it"));
    let (code, told) = outcome(&sandbox, &["kill", &two, "--json"]);
    assert_eq!((code, &told["outcome"]), (3, &json!("refused")), "{told}");
    daemon.tell("ready");
}

#[test]
fn a_broken_wish_is_a_warning_and_is_put_aside_by_the_next_verb_that_acts() {
    let sandbox = Sandbox::new("broken");
    let (_agent, one) = working(&sandbox, 1);
    let folder = sandbox.state_dir().join(format!("lariat/sessions/claude-{one}"));
    fs::create_dir_all(&folder).expect("our folder");
    fs::write(folder.join("intent.json"), "{").expect("a torn record");
    let listed = ask(&sandbox, &["ls", "--json"]);
    assert!(listed.stdout.contains("intent.json"), "{}", listed.stdout);
    assert_eq!(outcome(&sandbox, &["kill", &one, "--json"]).0, 0);
    let kept = fs::read_dir(&folder).expect("our folder").flatten();
    assert!(kept.into_iter().any(|f| f.file_name().to_string_lossy().ends_with(".unreadable")));
}

#[test]
fn the_journal_tells_what_was_done() {
    let sandbox = Sandbox::new("journal");
    let (_agent, one) = working(&sandbox, 1);
    assert_eq!(outcome(&sandbox, &["kill", &one, "--json"]).0, 0);
    let (code, entry) = outcome(&sandbox, &["journal", "--json"]);
    assert_eq!((code, &entry["what"], &entry["id"]), (0, &json!("kill"), &json!(format!("claude:{one}"))));
}

/// A lookalike launched by lariat, its handle, its id, and a tool of its own that nothing but its cgroup
/// or its shim knows: without a parent, without an environment, in a session of its own.
fn launched_with_a_stray(sandbox: &Sandbox, mode: &[&str]) -> (Value, i32) {
    drop(Lookalike::program(sandbox, "claude"));
    let file = sandbox.work().join("stray");
    let leave = format!("env -i setsid sh -c 'echo $$ > {0}.tmp; mv {0}.tmp {0}; exec sleep 1000' &", file.display());
    let script = format!("#!/bin/sh\n({leave})\nexec {}/bin/claude \"$@\"\n", sandbox.root().display());
    let path = sandbox.root().join("own/claude");
    put_program(&path, script);
    let search = format!("{}:/usr/bin:/bin", path.parent().expect("a folder").display());
    let program = lariat(sandbox, &[&["launch", "claude", "--json"], mode].concat()).env("PATH", search);
    let launched = sandbox.world().run(&program).expect_success().json();
    wait_until("the stray", DEADLINE, || file.exists());
    let stray = fs::read_to_string(&file).expect("its pid").trim().parse().expect("a pid");
    assert!(alive(sandbox, stray));
    (launched, stray)
}

#[test]
fn a_stray_that_carries_no_mark_is_ended_with_its_session() {
    for mode in [&[][..], &["--headless", "-p", "go on"]] {
        for covered in [false, true] {
            let sandbox = Sandbox::new("stray");
            if covered {
                sandbox.run(["mount", "-t", "tmpfs", "none", "/sys/fs/cgroup"]).expect_success();
            }
            let (launched, stray) = launched_with_a_stray(&sandbox, mode);
            let handle = launched["handle"].as_str().expect("text");
            let (code, told) = outcome(&sandbox, &["kill", handle, "--json"]);
            assert_eq!((code, &told["outcome"]), (0, &json!("stopped")), "{told}");
            assert!(!alive(&sandbox, stray), "{told}");
        }
    }
}

#[test]
fn what_a_session_left_behind_is_ended_by_a_later_kill_that_says_so() {
    let sandbox = Sandbox::new("left");
    let (launched, stray) = launched_with_a_stray(&sandbox, &[]);
    let (handle, id) = (launched["handle"].as_str().expect("text"), launched["native_id"].as_str().expect("an id"));
    let agent = i32::try_from(launched["pid"].as_i64().expect("a pid")).expect("a pid");
    sandbox.world().process(agent).expect("it lives").signal(Signal::KILL);
    wait_until("it has ended", DEADLINE, || !alive(&sandbox, agent));
    let marked = sandbox.program("sleep").arg("1000").env("LARIAT_SESSION", handle);
    let (marked, other) = (sandbox.spawn(&marked), sandbox.lookalike("editor", &[]));
    let before = list(&sandbox).status(id).to_owned();
    assert!(alive(&sandbox, stray), "looking never acts");
    let (code, told) = outcome(&sandbox, &["kill", handle, "--json"]);
    assert_eq!((code, &told["outcome"]), (0, &json!("gone")), "{told}");
    let ended = told["ended"].as_array().expect("pids");
    assert!(ended.contains(&json!(stray)) && ended.contains(&json!(marked.pid())), "{told}");
    assert!(!alive(&sandbox, stray) && !alive(&sandbox, marked.pid()));
    other.tell("ready");
    assert_eq!(list(&sandbox).status(id), before, "why it ended is what it was");
    let (code, told) = outcome(&sandbox, &["kill", handle, "--json"]);
    assert_eq!((code, &told["ended"]), (0, &json!([])), "nothing is left to end");
}

#[test]
fn a_kill_cut_short_after_the_agents_end_is_finished_for_the_rest() {
    let sandbox = Sandbox::new("rest");
    let (launched, stray) = launched_with_a_stray(&sandbox, &[]);
    let handle = launched["handle"].as_str().expect("text");
    let agent = i32::try_from(launched["pid"].as_i64().expect("a pid")).expect("a pid");
    let died = sandbox.world().run(&lariat(&sandbox, &["kill", handle]).env("LARIAT_DIE_AT", "stop.wished"));
    assert_eq!(died.exit, Exit::Signal(9), "built without --features lariat/pause-points");
    sandbox.world().process(agent).expect("it lives").signal(Signal::KILL);
    wait_until("it has ended", DEADLINE, || !alive(&sandbox, agent));
    assert!(alive(&sandbox, stray));
    let acted = ask(&sandbox, &["kill", "no-such-session"]);
    assert_eq!(acted.code(), 2, "{}", acted.stderr);
    assert!(!alive(&sandbox, stray), "{}", acted.stderr);
}

/// Only what lariat launched is ever brought back, so nobody is told otherwise.
#[test]
fn what_lariat_did_not_launch_is_not_kept() {
    let sandbox = Sandbox::new("not-kept");
    let (_agent, one) = working(&sandbox, 1);
    let told = ask(&sandbox, &["keep", &one]);
    assert!(told.code() == 3 && told.stderr.contains("did not launch it"), "{told:?}");
    assert_eq!(list(&sandbox).session(&one)["kept"], json!(false));
    let told = ask(&sandbox, &["resume", &one]);
    assert!(told.code() == 3 && !told.stderr.contains("lariat send"), "{told:?}");
}
