//! Claude Code's registry is a claim, not a fact: reused PIDs, other machines, leftovers.

use lariat_testkit::{DEADLINE, Lookalike, Sandbox, Signal, Stdin, built, wait_until};
use serde_json::json;

use crate::{
    asking::{id, list},
    claude_store::{ClaudeStore, started},
    codex_store::CodexStore,
    moment::now,
};

#[test]
fn a_pid_held_by_another_program_is_stale() {
    let sandbox = Sandbox::new("reused");
    let claude = ClaudeStore::of(&sandbox);
    // Same pid, same start time, another program: what the kernel allows within a tick.
    let make = sandbox.lookalike("make", &["all"]);
    claude.register(&make, &id(1)).says("busy");
    claude.session(&id(1)).asked("fix it").calls("Bash", json!({"command": "make"}));
    claude.register(&make, &id(2)).says("waiting").in_file("second.json");
    let seen = list(&sandbox);
    seen.expect(&id(1), "interrupted", None);
    assert_eq!(seen.session(&id(2))["live"], false, "{:#}", seen.json);
    assert_eq!((seen.code, seen.unbound()), (0, vec![]));
}

#[test]
fn who_leaves_by_exit_is_not_starting_while_its_process_ends() {
    let sandbox = Sandbox::new("leaving");
    let claude = ClaudeStore::of(&sandbox);
    claude.typed(&id(2), "/exit"); // of an earlier process
    let written = now();
    wait_until("a later moment", DEADLINE, || now() > written + 50); // the kernel counts starts in hundredths of a second
    let agents = [1, 2].map(|n| sandbox.lookalike("claude", &["--session-id", &id(n)]));
    let expect = |first: &str| {
        let seen = list(&sandbox);
        seen.expect(&id(1), first, Some(agents[0].pid()));
        seen.expect(&id(2), "starting", Some(agents[1].pid()));
    };
    expect("starting");
    // It has let go of its entry, and nothing was ever said.
    claude.typed(&id(1), "/exit");
    expect("idle");
}

#[test]
fn called_by_another_name_it_is_still_itself() {
    let sandbox = Sandbox::new("renamed");
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    let called = |file: &str, name: &str| {
        let real = sandbox.install_copy(file, &built("lariat-lookalike"));
        let link = sandbox.root().join("bin").join(name);
        std::os::unix::fs::symlink(real, &link).expect("a link");
        Lookalike::start(&sandbox, &sandbox.program(link).arg0(name).stdin(Stdin::Pipe))
    };
    let one = called("package/claude.exe", "cc");
    claude.register(&one, &id(1)).says("busy");
    claude.session(&id(1)).asked("fix it");
    let two = called("package/codex", "cx");
    codex.lock(&two, &id(2));
    drop(codex.thread(&id(2)).asked("fix it").answered("done"));
    let seen = list(&sandbox);
    seen.expect(&id(1), "working", Some(one.pid()));
    seen.expect(&id(2), "idle", Some(two.pid()));
}

#[test]
fn the_file_of_a_version_is_the_program() {
    let sandbox = Sandbox::new("versions");
    let claude = ClaudeStore::of(&sandbox);
    let file = sandbox.install_copy("share/claude/versions/2.1.325", &built("lariat-lookalike"));
    let start = |program: lariat_testkit::Program| Lookalike::start(&sandbox, &program.stdin(Stdin::Pipe));
    let one = start(sandbox.program(&file));
    claude.register(&one, &id(1)).says("busy");
    claude.session(&id(1)).asked("fix it");
    // Called by another name, only the file tells.
    let two = start(sandbox.program(&file).arg0("cc"));
    claude.register(&two, &id(2)).says("idle");
    let three = start(sandbox.program(&file).args(["--session-id", &id(3)]));
    let seen = list(&sandbox);
    seen.expect(&id(1), "working", Some(one.pid()));
    seen.expect(&id(2), "idle", Some(two.pid()));
    seen.expect(&id(3), "starting", Some(three.pid()));
    assert_eq!((seen.code, seen.unbound()), (0, vec![]));
}

#[test]
fn without_a_status_an_old_answer_is_not_rest() {
    let sandbox = Sandbox::new("no-status");
    let claude = ClaudeStore::of(&sandbox);
    let talk = claude.session(&id(1)).at(crate::moment::now() - 86_400_000).asked("fix it").answered("fixed").left();
    // As 2.1.197 does with `-p`.
    let agent = sandbox.lookalike("claude", &["-p", "--resume", &id(1), "go on"]);
    let _entry = claude.register(&agent, &id(1));
    list(&sandbox).expect(&id(1), "starting", Some(agent.pid()));
    let talk = talk.at(crate::moment::now() + 1).asked("go on");
    list(&sandbox).expect(&id(1), "working", Some(agent.pid()));
    drop(talk.answered("gone on"));
    list(&sandbox).expect(&id(1), "idle", Some(agent.pid()));
}

#[test]
fn what_a_killed_process_said_last_is_nothing_of_the_next() {
    let sandbox = Sandbox::new("said-last");
    let claude = ClaudeStore::of(&sandbox);
    let killed = sandbox.lookalike("claude", &[]);
    let _entry = claude.register(&killed, &id(1)).waits_for("permission prompt");
    let before = crate::moment::now() - 60_000;
    claude.session(&id(1)).at(before).asked("fix it").calls("Bash", json!({"command": "make"}));
    list(&sandbox).expect(&id(1), "waiting", Some(killed.pid()));
    killed.signal(Signal::KILL);
    killed.wait(DEADLINE);
    list(&sandbox).expect(&id(1), "interrupted", None);
    // Not registered yet.
    let next = sandbox.lookalike("claude", &["--resume", &id(1)]);
    list(&sandbox).expect(&id(1), "starting", Some(next.pid()));
    // At its prompt it runs nothing of what the killed one had called for.
    let entry = claude.register(&next, &id(1)).says("idle");
    let seen = list(&sandbox);
    seen.expect(&id(1), "idle", Some(next.pid()));
    assert_eq!(seen.session(&id(1))["tool"], json!(null));
    let _entry = entry.waits_for("permission prompt");
    assert_eq!(list(&sandbox).session(&id(1))["tool"], "Bash make");
}

#[test]
fn what_a_killed_process_asked_is_not_asked_by_the_next() {
    let sandbox = Sandbox::new("asked-last");
    let claude = ClaudeStore::of(&sandbox);
    let killed = sandbox.lookalike("claude", &[]);
    let _entry = claude.register(&killed, &id(1)).waits_for("input needed");
    let before = crate::moment::now() - 60_000;
    let question = json!({"questions": [{"question": "Which one?", "header": "One", "options": []}]});
    let talk = claude.session(&id(1)).at(before).asked("fix it").calls("AskUserQuestion", question.clone());
    list(&sandbox).expect(&id(1), "waiting", Some(killed.pid()));
    killed.signal(Signal::KILL);
    killed.wait(DEADLINE);
    let next = sandbox.lookalike("claude", &["--resume", &id(1)]);
    list(&sandbox).expect(&id(1), "starting", Some(next.pid()));
    // A version whose registry has no status: what it asks itself is asked.
    let _entry = claude.register(&next, &id(1));
    list(&sandbox).expect(&id(1), "starting", Some(next.pid()));
    drop(talk.at(crate::moment::now() + 1).asked("go on").calls("AskUserQuestion", question));
    list(&sandbox).expect(&id(1), "waiting", Some(next.pid()));
}

#[test]
fn what_a_killed_process_said_last_is_nothing_of_one_that_came_since_and_was_left() {
    let sandbox = Sandbox::new("said-before");
    let claude = ClaudeStore::of(&sandbox);
    let at = crate::moment::now() - 60_000;
    let ended = |n: u64, since: i64| {
        let killed = sandbox.lookalike("claude", &[]);
        // Busy with what leaves no record: it compacts.
        let _entry = claude.register(&killed, &id(n)).says("busy").with("statusUpdatedAt", json!(at + 10_000));
        let talk = claude.session(&id(n)).at(at).asked("fix it").answered("fixed");
        killed.signal(Signal::KILL);
        killed.wait(DEADLINE);
        list(&sandbox).expect(&id(n), "interrupted", None);
        drop(talk.line(&json!({"type": "cost-state", "totalCostUSD": 0, "startTime": since, "modelUsage": {}})));
    };
    ended(1, at + 20_000);
    // This accounting is of a run before the one that was killed.
    ended(2, at);
    let seen = list(&sandbox);
    seen.expect(&id(1), "done", None);
    seen.expect(&id(2), "interrupted", None);
}

#[test]
fn the_id_of_one_that_goes_on_is_nobody_s_until_it_has_found_with_what() {
    let sandbox = Sandbox::new("continues");
    let claude = ClaudeStore::of(&sandbox);
    let before = crate::moment::now() - 60_000;
    let _talk = claude.session(&id(1)).at(before).asked("fix it").answered("fixed").left();
    for (n, words) in (2..).zip([&["--continue"][..], &["-p", "go on", "-c"], &["-cp", "go on"]]) {
        let agent = sandbox.lookalike("claude", words);
        let entry = claude.register(&agent, &id(n));
        let seen = list(&sandbox);
        assert_eq!((seen.sessions().len(), seen.unbound()), (1, vec![agent.pid()]), "{words:?}: {:#}", seen.json);
        // As 2.1.197 does with `-p`, it never says what it is at.
        let entry = entry.with("sessionId", json!(id(1)));
        list(&sandbox).expect(&id(1), "starting", Some(agent.pid()));
        entry.says("idle");
        list(&sandbox).expect(&id(1), "idle", Some(agent.pid()));
        agent.signal(Signal::KILL);
        agent.wait(DEADLINE);
    }
    // A fork has its own from the start.
    let agent = sandbox.lookalike("claude", &["--continue", "--fork-session"]);
    let _entry = claude.register(&agent, &id(9));
    list(&sandbox).expect(&id(9), "starting", Some(agent.pid()));
}

#[test]
fn a_fork_of_a_transcript_has_its_own_id_from_the_start() {
    let sandbox = Sandbox::new("by-transcript");
    let claude = ClaudeStore::of(&sandbox);
    let talk = claude.session(&id(1)).asked("fix it").answered("fixed").left();
    let path = talk.path.to_str().expect("UTF-8");
    // As "Move to background and exit" goes on.
    let fork = sandbox.lookalike("claude", &["--session-id", &id(2), "--fork-session", "--resume", path]);
    let _entry = claude.register(&fork, &id(2));
    let seen = list(&sandbox);
    seen.expect(&id(2), "starting", Some(fork.pid()));
    assert_eq!(seen.unbound(), [0; 0]);
}

#[test]
fn a_pid_with_another_start_time_is_stale() {
    let sandbox = Sandbox::new("restarted");
    let claude = ClaudeStore::of(&sandbox);
    let agent = sandbox.lookalike("claude", &["--session-id", &id(2)]);
    let start = started(agent.outside_pid().expect("alive"));
    claude
        .register(&agent, &id(1))
        .says("busy")
        .with("procStart", json!((start - 1).to_string()))
        .with("startedAt", json!(crate::moment::now() - 1000));
    claude.session(&id(1)).asked("fix it");
    let seen = list(&sandbox);
    seen.expect(&id(1), "interrupted", None);
    seen.expect(&id(2), "starting", Some(agent.pid()));
}

#[test]
fn nor_does_it_tell_of_its_own_process_that_the_session_it_names_is_gone() {
    let sandbox = Sandbox::new("restarted-own");
    let claude = ClaudeStore::of(&sandbox);
    let agent = sandbox.lookalike("claude", &["--session-id", &id(1)]);
    let start = started(agent.outside_pid().expect("alive"));
    claude
        .register(&agent, &id(1))
        .says("busy")
        .with("procStart", json!((start - 1).to_string()))
        .with("startedAt", json!(crate::moment::now() + 1000));
    claude.session(&id(1)).asked("fix it");
    list(&sandbox).expect(&id(1), "working", Some(agent.pid()));
}

#[test]
fn an_entry_of_another_machine_cannot_be_checked() {
    let sandbox = Sandbox::new("machine");
    let claude = ClaudeStore::of(&sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    let namespace = "pid:[4026531836]";
    let domain = format!("linux:ffffffffffffffffffffffffffffffff:{namespace}");
    claude.register(&agent, &id(1)).says("busy").with("pidDomain", json!(domain));
    claude.session(&id(1)).asked("fix it");
    let seen = list(&sandbox);
    seen.expect(&id(1), "unknown", None);
    assert_eq!(seen.session(&id(1))["live"], json!(null));
    assert_eq!((seen.code, seen.unbound()), (5, vec![agent.pid()]));
}

#[test]
fn an_entry_of_another_pid_namespace_cannot_be_checked() {
    let sandbox = Sandbox::new("namespace");
    let claude = ClaudeStore::of(&sandbox);
    // In a directory of its own, so that no other process here could be it.
    let agent = sandbox.lookalike("claude", &[]);
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let domain = format!("linux:{}:pid:[4026532999]", machine.trim());
    claude.register(&agent, &id(1)).says("busy").with("pidDomain", json!(domain));
    claude.session(&id(1)).asked("fix it");
    agent.signal(Signal::KILL);
    agent.wait(DEADLINE);
    let seen = list(&sandbox);
    seen.expect(&id(1), "unknown", None);
    assert_eq!((seen.session(&id(1))["live"].clone(), seen.code), (json!(null), 5));
    // Seen by default too: unknown is always visible.
    let shown = crate::asking::ask(&sandbox, &["ls"]);
    assert!(shown.stdout.contains("UNKNOWN") && shown.stdout.contains(&id(1)[..8]), "{shown:?}");
    assert_eq!(shown.code(), 5);
}

#[test]
fn a_leftover_of_a_killed_agent_keeps_nothing_alive() {
    let sandbox = Sandbox::new("leftover");
    let claude = ClaudeStore::of(&sandbox);
    for (n, status) in [(1, "busy"), (2, "idle"), (3, "waiting"), (4, "shell"), (5, "dreaming")] {
        let agent = sandbox.lookalike("claude", &[]);
        claude.register(&agent, &id(n)).says(status);
        claude.session(&id(n)).asked("fix it").answered("fixed");
        agent.signal(Signal::KILL);
        agent.wait(DEADLINE);
    }
    let seen = list(&sandbox);
    for n in 1..=5 {
        seen.expect(&id(n), "done", None);
    }
    assert_eq!(seen.code, 0);
}

#[test]
fn a_status_from_the_future_is_alive() {
    let sandbox = Sandbox::new("future");
    let claude = ClaudeStore::of(&sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    claude.register(&agent, &id(1)).says("dreaming");
    claude.session(&id(1)).asked("fix it");
    list(&sandbox).expect(&id(1), "working", Some(agent.pid()));
}

#[test]
fn two_processes_on_one_session_are_one_row() {
    let sandbox = Sandbox::new("two-on-one");
    let claude = ClaudeStore::of(&sandbox);
    let first = sandbox.lookalike("claude", &["--resume", &id(1)]);
    let second = sandbox.lookalike("claude", &["-p", "--resume", &id(1)]);
    claude.session(&id(1)).asked("fix it");
    claude.register(&first, &id(1)).says("idle");
    claude.register(&second, &id(1)).waits_for("permission prompt");
    let seen = list(&sandbox);
    // The one that needs a person is the one to show.
    seen.expect(&id(1), "waiting", Some(second.pid()));
    assert_eq!(seen.sessions().len(), 1);
    let because = seen.session(&id(1))["because"].to_string();
    assert!(because.contains(&first.pid().to_string()), "the other is told of: {because}");
}

#[test]
fn one_process_has_one_session() {
    let sandbox = Sandbox::new("one-on-two");
    let claude = ClaudeStore::of(&sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    claude.register(&agent, &id(1)).says("busy").in_file("1-old.json");
    claude.register(&agent, &id(2)).says("busy");
    claude.session(&id(1)).asked("fix it");
    claude.session(&id(2)).asked("fix it");
    let seen = list(&sandbox); // the law is held against every listing
    seen.expect(&id(2), "working", Some(agent.pid()));
    assert_ne!(seen.session(&id(1))["live"], true, "{:#}", seen.json);
}

#[test]
fn a_worker_that_was_respawned_is_one_row() {
    let sandbox = Sandbox::new("respawned");
    let claude = ClaudeStore::of(&sandbox);
    let dead = sandbox.lookalike("claude", &["bg-spare", "--bg-spare", "claim.sock"]);
    claude.register(&dead, &id(1)).says("busy").with("kind", json!("bg"));
    dead.signal(Signal::KILL);
    dead.wait(DEADLINE);
    let worker = sandbox.lookalike("claude", &["bg-spare", "--bg-spare", "claim.sock"]);
    claude.register(&worker, &id(1)).says("busy").with("kind", json!("bg"));
    claude.session(&id(1)).asked("fix it");
    let seen = list(&sandbox);
    seen.expect(&id(1), "working", Some(worker.pid()));
    assert_eq!(seen.sessions().len(), 1);
}

#[test]
fn only_the_daemon_brings_a_worker_back() {
    let sandbox = Sandbox::new("job-left");
    let claude = ClaudeStore::of(&sandbox);
    claude.session(&id(1)).asked("tidy up");
    claude.job(&id(1), "working");
    let server = sandbox.lookalike("claude", &["mcp", "serve"]);
    list(&sandbox).expect(&id(1), "interrupted", None);
    // A job that was made this moment has none yet: it is coming up.
    let made = claude.job(&id(2), "working");
    list(&sandbox).expect(&id(2), "unknown", None);
    let short = crate::asking::ask(&sandbox, &["ls", "--json"]).json();
    assert_eq!(short["sessions"][0]["native_id"], id(2), "{short:#}");
    let job = std::fs::read_to_string(&made).expect("a job");
    let mut job: serde_json::Value = serde_json::from_str(&job).expect("JSON");
    // It may be made while the question is being answered, which is later than the moment of the question.
    for (since, status) in [(-60_000, "done"), (5_000, "unknown")] {
        job["createdAt"] = json!(crate::moment::iso(crate::moment::now() + since));
        std::fs::write(&made, job.to_string()).expect("a job");
        list(&sandbox).expect(&id(2), status, None);
    }
    let daemon = sandbox.lookalike("claude", &["daemon", "run", "--origin", "transient"]);
    list(&sandbox).expect(&id(1), "unknown", None);
    drop((server, daemon));
}

#[test]
fn an_end_record_beats_a_frozen_entry() {
    let sandbox = Sandbox::new("end-record");
    let claude = ClaudeStore::of(&sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    claude.register(&agent, &id(1)).says("busy");
    claude.session(&id(1)).asked("fix it").interrupted().left();
    agent.signal(Signal::KILL);
    agent.wait(DEADLINE);
    list(&sandbox).expect(&id(1), "stopped", None);
}

#[test]
fn without_a_status_a_record_in_whole_seconds_is_as_late_as_its_second() {
    let sandbox = Sandbox::new("seconds");
    let claude = ClaudeStore::of(&sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    drop(claude.register(&agent, &id(1)));
    let second = crate::moment::now() / 1000 * 1000;
    let talk = claude.session(&id(1)).at(second - 5002).asked("fix it").at(second - 5001).answered("fixed");
    list(&sandbox).expect(&id(1), "starting", Some(agent.pid()));
    drop(talk.at(second - 2).asked("and that").at(second - 1).answered("that too")); // its last line is at that second
    list(&sandbox).expect(&id(1), "idle", Some(agent.pid()));
}

#[test]
fn an_entry_without_a_start_is_of_whoever_had_the_number_when_it_was_written() {
    let sandbox = Sandbox::new("no-start");
    let claude = ClaudeStore::of(&sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    let entry = claude.register(&agent, &id(1)).says("busy").with("procStart", json!(null));
    let entry = entry.with("startedAt", json!(null)).with("pid", json!(agent.pid().to_string()));
    claude.session(&id(1)).asked("fix it");
    let path = claude.path(&format!("sessions/{}.json", agent.pid()));
    let text = std::fs::read_to_string(&path).expect("its entry");
    std::fs::write(&path, format!("\u{feff}{text}")).expect("written as some editors do");
    list(&sandbox).expect(&id(1), "working", Some(agent.pid()));
    // One that was written before is of another process that had the number.
    let before = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("its entry");
    file.set_modified(before).expect("an older entry");
    let seen = list(&sandbox);
    assert_eq!(
        (seen.session(&id(1))["live"].clone(), seen.unbound()),
        (json!(false), vec![agent.pid()]),
        "{}",
        seen.text
    );
    drop(entry);
}
