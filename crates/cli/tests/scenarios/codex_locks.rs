//! Codex's thread locks: who really holds one, and which of several is the session.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use lariat_testkit::{DEADLINE, Lookalike, Sandbox, Signal, Stdin, built, wait_for, wait_until};
use serde_json::json;

use crate::{
    asking::{ask, id, list, list_through},
    codex_store::CodexStore,
    moment::now,
};

#[test]
fn held_by_another_program_is_not_held() {
    let sandbox = Sandbox::new("not-codex");
    let codex = CodexStore::of(&sandbox);
    codex.thread(&id(1)).asked("fix it");
    codex.thread(&id(2)).asked("fix it").answered("fixed");
    let backup = sandbox.lookalike("backup", &[]);
    codex.lock(&backup, &id(1));
    codex.lock(&backup, &id(2));
    codex.lock(&backup, &id(3));
    let seen = list(&sandbox);
    seen.expect(&id(1), "interrupted", None);
    seen.expect(&id(2), "done", None);
    assert!(seen.find(&id(3)).is_none(), "a lock is no session: {:#}", seen.json);
    assert_eq!((seen.code, seen.unbound()), (0, vec![]));
}

#[test]
fn where_it_works_is_known_before_its_rollout_says_so() {
    let sandbox = Sandbox::new("empty-rollout");
    let codex = CodexStore::of(&sandbox);
    let agent = sandbox.lookalike("codex", &["--no-daemon"]);
    codex.lock(&agent, &id(1));
    let begun = list(&sandbox).session(&id(1))["started_at"].clone();
    let rollout = codex.thread(&id(1)).path;
    std::fs::create_dir_all(rollout.parent().expect("a folder")).expect("the day's folder");
    std::fs::write(rollout, "").expect("a rollout without a line");
    let seen = list(&sandbox);
    seen.expect(&id(1), "starting", Some(agent.pid()));
    assert_eq!(seen.session(&id(1))["cwd"], sandbox.work().to_str().expect("UTF-8"));
    assert_eq!((begun.is_string(), &seen.session(&id(1))["started_at"]), (true, &begun), "as before");
}

/// Whoever may hold a thread, and can be asked neither by its lock nor by its files, keeps it from being called ended.
#[test]
fn what_no_lock_tells_may_be_held_by_whom_nobody_can_look_at() {
    let sandbox = Sandbox::new("blind");
    let codex = CodexStore::of(&sandbox);
    let server = sandbox.lookalike("codex", &["app-server"]);
    for n in [1, 3] {
        codex.thread(&id(n)).asked("fix it");
        codex.thread(&id(n + 1)).asked("add it").answered("added");
    }
    let lock = codex.lock(&server, &id(1));
    codex.lock(&server, &id(2));
    codex.thread(&id(5)).at(now() - 3_600_000).asked("tell").answered("told");
    let as_it_is = |line: &str| {
        let seen = list_through(&sandbox, line);
        seen.expect(&id(1), "working", Some(server.pid()));
        seen.expect(&id(2), "idle", Some(server.pid()));
        seen.expect(&id(3), "interrupted", None);
        seen.expect(&id(4), "done", None);
        seen
    };
    let torn = sandbox.root().join("torn");
    std::fs::write(&torn, b"\xff").expect("a table that cannot be read");
    let unlisted = format!("mount --bind {} /proc/locks && ", torn.display());
    let without = |caps: &str| format!("exec setpriv --bounding-set {caps} \"$@\"");
    // One of both tells, and nothing else is made unknown.
    let apart = |line: &str| format!("unshare -m sh -c '{line}' sh \"$@\"");
    assert_eq!(as_it_is(&without("-sys_ptrace")).code, 0);
    assert!(as_it_is(&apart(&format!("{unlisted} exec \"$@\""))).warns_of("/proc/locks"));
    let nobody_knows = |line: &str| {
        let seen = list_through(&sandbox, line);
        for n in 1..=4 {
            seen.expect(&id(n), "unknown", None);
            assert_eq!(seen.session(&id(n))["live"], json!(null));
        }
        // A server that is up holds nothing by that.
        seen.expect(&id(5), "done", None);
        let because = seen.session(&id(2))["because"].to_string();
        assert!(because.contains(&format!("codex process {} may hold it", server.pid())), "{because}");
        assert_eq!(seen.code, 5);
        assert!(seen.warns_of(&format!("/proc/{}/fd", server.pid())), "{:?}", seen.warnings());
    };
    nobody_knows(&apart(&format!("{unlisted} {}", without("-sys_ptrace"))));
    let folder = lock.parent().expect("a folder");
    let mode = |mode| std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode)).expect("a mode");
    mode(0);
    nobody_knows(&without("-sys_ptrace,-dac_override,-dac_read_search"));
    mode(0o700);
    server.signal(Signal::KILL);
    server.wait(DEADLINE);
    let seen = list_through(&sandbox, &apart(&format!("{unlisted} {}", without("-sys_ptrace"))));
    seen.expect(&id(1), "interrupted", None);
    seen.expect(&id(2), "done", None);
}

/// Whoever is known to have one thread may have gone on to another, and that only since it began.
#[test]
fn whom_its_words_tie_to_a_thread_holds_no_other_that_ended_before() {
    let sandbox = Sandbox::new("blind-tied");
    let codex = CodexStore::of(&sandbox);
    let before = now() - 3_600_000;
    codex.thread(&id(1)).at(before).asked("fix it").answered("fixed");
    codex.thread(&id(2)).at(before).asked("add it").answered("added");
    codex.thread(&id(3)).at(before).asked("tell");
    let agent = sandbox.lookalike("codex", &["resume", "--no-daemon", &id(1)]);
    let blind = || list_through(&sandbox, "exec setpriv --bounding-set -sys_ptrace \"$@\"");
    let seen = blind();
    assert_eq!(seen.session(&id(1))["pid"], agent.pid(), "{}", seen.text);
    seen.expect(&id(2), "done", None);
    seen.expect(&id(3), "interrupted", None);
    assert!(seen.warns_of(&format!("/proc/{}/fd", agent.pid())), "{:?}", seen.warnings());
    codex.thread(&id(4)).asked("go on").answered("gone on");
    blind().expect(&id(4), "unknown", None);
}

#[test]
fn left_behind_is_not_held() {
    let sandbox = Sandbox::new("stale-lock");
    let codex = CodexStore::of(&sandbox);
    let agent = sandbox.lookalike("codex", &["exec", "fix it"]);
    codex.lock(&agent, &id(1));
    codex.thread(&id(1)).asked("fix it");
    agent.signal(Signal::TERM);
    agent.wait(DEADLINE);
    assert!(codex.lock_file(&id(1)).exists());
    list(&sandbox).expect(&id(1), "interrupted", None);
}

#[test]
fn of_several_held_by_one_terminal_the_last_opened_is_the_session() {
    let sandbox = Sandbox::new("moved-on");
    let codex = CodexStore::of(&sandbox);
    let agent = sandbox.lookalike("codex", &["--no-daemon"]);
    // `/new` twice. Ids do not tell the order here, only the moments of opening do.
    let order = [id(2), id(3), id(1)];
    for thread in &order {
        let lock = codex.lock(&agent, thread);
        let rollout = codex.thread(thread).asked("fix it").answered("fixed");
        agent.tell(&format!("open {}", rollout.path.display()));
        crate::asking::settle(&[lock]); // opened well apart, as by a person
    }
    let seen = list(&sandbox);
    seen.expect(&id(1), "idle", Some(agent.pid()));
    seen.expect(&id(2), "done", None);
    seen.expect(&id(3), "done", None);
    // `/new` once more, and nothing asked there yet.
    codex.lock(&agent, &id(4));
    let seen = list(&sandbox);
    seen.expect(&id(4), "starting", Some(agent.pid()));
    seen.expect(&id(1), "done", None);
    assert_eq!(seen.sessions().iter().filter(|s| s["live"] == true).count(), 1);
}

#[test]
fn what_one_at_work_has_just_begun_is_a_sub_agent_s() {
    let sandbox = Sandbox::new("unborn");
    let codex = CodexStore::of(&sandbox);
    let agent = sandbox.lookalike("codex", &["--no-daemon"]);
    let lock = codex.lock(&agent, &id(1));
    let thread = codex.thread(&id(1)).asked("fix it");
    crate::asking::settle(&[lock]);
    // Its lock is there before its rollout is, and that before anything stands in it.
    codex.lock(&agent, &id(2));
    let at_work = |when: &str| {
        let seen = list(&sandbox);
        seen.expect(&id(1), "working", Some(agent.pid()));
        assert_eq!(seen.sessions().len(), 1, "{when}: {seen:?}");
    };
    at_work("locked");
    fs::write(thread.path.with_file_name(format!("rollout-2026-11-15T08-00-00-{}.jsonl", id(2))), "")
        .expect("a rollout");
    at_work("empty");
}

/// Measured: a terminal with `approvals_reviewer = "auto_review"` opens a thread for the reviewer right after each
/// conversation's, and records the shell for the conversation alone. After `/new` that of the one before is removed.
#[test]
fn what_is_kept_ready_for_a_reviewer_is_no_session() {
    let sandbox = Sandbox::new("reviewer");
    let codex = CodexStore::of(&sandbox);
    let agent = sandbox.lookalike("codex", &["--no-daemon"]);
    let shell = |id: &str| codex.path(&format!("shell_snapshots/{id}.1795123829238315503.sh"));
    fs::create_dir_all(codex.path("shell_snapshots")).expect("a folder");
    let lock = codex.lock(&agent, &id(1));
    fs::write(shell(&id(1)), "").expect("a shell");
    crate::asking::settle(&[lock]);
    let lock = codex.lock(&agent, &id(2));
    let alone = |wanted: &str, status: &str| {
        let seen = list(&sandbox);
        seen.expect(wanted, status, Some(agent.pid()));
        assert_eq!(seen.sessions().iter().filter(|s| s["live"] == true).count(), 1, "{seen:?}");
        seen
    };
    assert_eq!(alone(&id(1), "starting").sessions().len(), 1);
    drop(codex.thread(&id(1)).asked("fix it").answered("fixed"));
    assert_eq!(alone(&id(1), "idle").sessions().len(), 1);
    // The next one.
    crate::asking::settle(&[lock]);
    let lock = codex.lock(&agent, &id(3));
    crate::asking::settle(&[lock]);
    codex.lock(&agent, &id(4));
    fs::remove_file(shell(&id(1))).expect("a shell");
    fs::write(shell(&id(3)), "").expect("a shell");
    alone(&id(3), "starting").expect(&id(1), "done", None);

    // A daemon with a terminal of that kind.
    let sandbox = Sandbox::new("reviewer-daemon");
    let codex = CodexStore::of(&sandbox);
    let daemon = sandbox.lookalike("codex", &["app-server", "--listen", "unix://", "--managed-daemon"]);
    (1..4).for_each(|n| drop(codex.lock(&daemon, &id(n))));
    fs::create_dir_all(codex.path("shell_snapshots")).expect("a folder");
    for n in [1, 3] {
        fs::write(codex.path(&format!("shell_snapshots/{}.1.sh", id(n))), "").expect("a shell");
    }
    let seen = list(&sandbox);
    assert_eq!(seen.sessions().len(), 2, "{seen:?}");
    assert!(seen.sessions().iter().all(|s| s["native_id"] != id(2)), "{seen:?}");
}

#[test]
fn a_turn_that_began_since_another_thread_was_opened_is_of_the_terminal_s_session() {
    let sandbox = Sandbox::new("asked-since");
    let codex = CodexStore::of(&sandbox);
    let agent = sandbox.lookalike("codex", &["--no-daemon"]);
    let lock = codex.lock(&agent, &id(1));
    crate::asking::settle(&[lock]);
    let lock = codex.lock(&agent, &id(2));
    list(&sandbox).expect(&id(2), "starting", Some(agent.pid()));
    crate::asking::settle(&[lock]);
    drop(codex.thread(&id(1)).at(now()).asked("fix it").answered("fixed"));
    list(&sandbox).expect(&id(1), "idle", Some(agent.pid()));
}

#[test]
fn a_thread_that_was_left_in_the_middle_of_a_turn() {
    let sandbox = Sandbox::new("left-open");
    let codex = CodexStore::of(&sandbox);
    let agent = sandbox.lookalike("codex", &["--no-daemon"]);
    let lock = codex.lock(&agent, &id(1));
    codex.thread(&id(1)).asked("fix it").aborted();
    crate::asking::settle(&[lock]);
    codex.lock(&agent, &id(2));
    let seen = list(&sandbox);
    seen.expect(&id(1), "stopped", None);
    seen.expect(&id(2), "starting", Some(agent.pid()));
}

#[test]
fn a_daemon_holds_many() {
    let sandbox = Sandbox::new("daemon");
    let codex = CodexStore::of(&sandbox);
    let args = ["app-server", "--listen", "unix://", "--managed-daemon"];
    let daemon = sandbox.lookalike("codex", &args);
    let other = sandbox.project("other");
    for n in 1..=3 {
        codex.lock(&daemon, &id(n));
    }
    codex.thread(&id(1)).asked("fix it");
    codex.thread_in(&id(2), &other).asked("fix it").answered("fixed");
    codex.thread(&id(4)).asked("fix it").answered("fixed");
    let terminal = sandbox.lookalike("codex", &[]);
    let seen = list(&sandbox);
    seen.expect(&id(1), "working", Some(daemon.pid()));
    seen.expect(&id(2), "idle", Some(daemon.pid()));
    seen.expect(&id(3), "starting", Some(daemon.pid()));
    // The server being up makes nothing live.
    seen.expect(&id(4), "done", None);
    // The terminal is a client; which thread it shows cannot be seen.
    assert_eq!((seen.code, seen.unbound()), (0, vec![terminal.pid()]));
    for n in 1..=3 {
        let because = seen.session(&id(n))["because"].to_string();
        assert!(because.contains("host many"), "it says so: {because}");
    }

    daemon.signal(Signal::KILL);
    daemon.wait(DEADLINE);
    let seen = list(&sandbox);
    assert_ne!(seen.session(&id(1))["live"], true);
    assert_ne!(seen.session(&id(2))["live"], true);
}

#[test]
fn a_turn_that_an_earlier_process_left_open_is_not_this_one_s() {
    let sandbox = Sandbox::new("left-open");
    let codex = CodexStore::of(&sandbox);
    for n in 1..=2 {
        codex.thread(&id(n)).with_policy("on-request").at(now() - 60_000).asked("fix it").calls("c", "make");
    }
    let terminal = sandbox.lookalike("codex", &["resume", "--no-daemon", &id(1)]);
    // It has taken nothing up yet, and asks nothing that was asked before.
    let seen = list(&sandbox);
    seen.expect(&id(1), "starting", Some(terminal.pid()));
    assert_eq!(seen.session(&id(1))["tool"], json!(null));
    codex.lock(&terminal, &id(1));
    let exec = sandbox.lookalike("codex", &["exec", "resume", &id(2), "go on"]);
    codex.lock(&exec, &id(2));
    let seen = list(&sandbox);
    seen.expect(&id(1), "idle", Some(terminal.pid()));
    // One that was given something to do is about to begin with it.
    seen.expect(&id(2), "starting", Some(exec.pid()));
    exec.signal(Signal::KILL);
    exec.wait(DEADLINE);
    list(&sandbox).expect(&id(2), "interrupted", None);
}

#[test]
fn what_another_model_decides_on_waits_for_no_person() {
    let sandbox = Sandbox::new("reviewed");
    let codex = CodexStore::of(&sandbox);
    let server = sandbox.lookalike("codex", &["app-server"]);
    for (n, reviewer) in [(1, "user"), (2, "auto_review")] {
        codex.lock(&server, &id(n));
        let reviewed = json!({"approval_policy": "on-request", "approvals_reviewer": reviewer});
        codex.thread(&id(n)).asked("fix it").add("turn_context", reviewed).calls("c", "make");
    }
    // A call that is younger than a second may be about to begin.
    let seen = wait_for("the one that asks a person", DEADLINE, || {
        Some(list(&sandbox)).filter(|seen| seen.session(&id(1))["status"] == "waiting")
    });
    seen.expect(&id(2), "working", Some(server.pid()));
}

#[test]
fn what_may_be_asked_may_be_said_one_by_one() {
    let sandbox = Sandbox::new("granular");
    let codex = CodexStore::of(&sandbox);
    let server = sandbox.lookalike("codex", &["app-server"]);
    for (n, granted, before) in [(1, true, "never"), (2, false, "on-request")] {
        codex.lock(&server, &id(n));
        let grants = json!({"sandbox_approval": granted, "rules": false, "skill_approval": false,
            "request_permissions": false, "mcp_elicitations": false});
        let context = json!({"approval_policy": {"granular": grants}});
        codex.thread(&id(n)).with_policy(before).asked("fix it").add("turn_context", context).calls("c", "make");
    }
    // A call that is younger than a second may be about to begin.
    let seen = wait_for("the one that asks a person", DEADLINE, || {
        Some(list(&sandbox)).filter(|seen| seen.session(&id(1))["status"] == "waiting")
    });
    assert_eq!(seen.session(&id(1))["reason"], "permission: exec_command make");
    seen.expect(&id(2), "working", Some(server.pid()));
}

#[test]
fn a_terminal_that_is_told_to_go_on_with_an_archived_thread_asks_first() {
    let sandbox = Sandbox::new("archived");
    let codex = CodexStore::of(&sandbox);
    codex.archived(&id(1)).asked("fix it").answered("fixed");
    let agent = sandbox.lookalike("codex", &["resume", "--no-daemon", &id(1)]);
    let seen = list(&sandbox);
    seen.expect(&id(1), "waiting", Some(agent.pid()));
    assert!(seen.session(&id(1))["reason"].as_str().expect("a reason").starts_with("dialog: "));
    // Once it has it, that is answered.
    codex.lock(&agent, &id(1));
    list(&sandbox).expect(&id(1), "idle", Some(agent.pid()));
    // What was put away since is not what it was told to go on with: it may have left that for another.
    let client = sandbox.lookalike("codex", &["resume", &id(2)]);
    let rollout = codex.thread(&id(2)).asked("fix it").answered("fixed").path;
    let archived = codex.path("archived_sessions").join(rollout.file_name().expect("a name"));
    crate::asking::settle(std::slice::from_ref(&rollout));
    std::fs::rename(rollout, archived).expect("another folder");
    list(&sandbox).expect(&id(2), "idle", Some(client.pid()));
}

#[test]
fn a_server_called_by_another_name_holds_many_too() {
    let sandbox = Sandbox::new("renamed-server");
    let codex = CodexStore::of(&sandbox);
    let real = sandbox.install_copy("package/codex", &built("lariat-lookalike"));
    let link = sandbox.root().join("bin/cx");
    std::os::unix::fs::symlink(real, &link).expect("a link");
    let program = sandbox.program(link).arg0("cx").args(["app-server", "--listen", "stdio://"]).stdin(Stdin::Pipe);
    let server = Lookalike::start(&sandbox, &program);
    for n in 1..=2 {
        codex.lock(&server, &id(n));
    }
    codex.thread(&id(1)).asked("fix it");
    codex.thread(&id(2)).asked("fix it").answered("fixed");
    let seen = list(&sandbox);
    // A terminal would have left the first for the second.
    seen.expect(&id(1), "working", Some(server.pid()));
    seen.expect(&id(2), "idle", Some(server.pid()));
    // And it is not ended for the sake of one of them.
    let killed = ask(&sandbox, &["kill", &id(1)]);
    assert_eq!(killed.code(), 3, "{killed:?}");
}

#[test]
fn options_before_the_verb_change_nothing() {
    let sandbox = Sandbox::new("options");
    let codex = CodexStore::of(&sandbox);
    let server = sandbox.lookalike("codex", &["-c", "model=exec", "--enable", "x", "app-server"]);
    // A directory that is called like a verb.
    let terminal = sandbox.lookalike("codex", &["--no-daemon", "-C", "app"]);
    for (holder, n) in [(&server, 1), (&server, 2), (&terminal, 3)] {
        codex.lock(holder, &id(n));
        codex.thread(&id(n)).asked("fix it");
    }
    let seen = list(&sandbox);
    seen.expect(&id(1), "working", Some(server.pid()));
    seen.expect(&id(2), "working", Some(server.pid()));
    seen.expect(&id(3), "working", Some(terminal.pid()));
}

#[test]
fn one_that_only_shows_the_sessions_of_the_daemon_is_none() {
    let sandbox = Sandbox::new("codex-agents");
    let codex = CodexStore::of(&sandbox);
    let _browser = sandbox.lookalike("codex", &["agents"]);
    codex.thread(&id(1)).asked("fix it");
    let seen = list(&sandbox);
    seen.expect(&id(1), "interrupted", None);
    assert_eq!(seen.unbound(), [0; 0]);
}

#[test]
fn an_open_rollout_tells_where_there_are_no_locks() {
    let sandbox = Sandbox::new("no-locks");
    let codex = CodexStore::of(&sandbox);
    let agent = sandbox.lookalike("codex", &["exec", "fix it"]);
    let rollout = codex.thread(&id(1)).asked("fix it");
    agent.tell(&format!("open {}", rollout.path.display()));
    list(&sandbox).expect(&id(1), "working", Some(agent.pid()));
}

#[test]
fn an_open_rollout_tells_where_the_store_is_a_link() {
    let sandbox = Sandbox::new("linked-store");
    let real = sandbox.root().join("disk");
    std::fs::create_dir(&real).expect("a folder");
    std::os::unix::fs::symlink(&real, sandbox.home().join(".codex")).expect("a link");
    let codex = CodexStore::of(&sandbox);
    let agent = sandbox.lookalike("codex", &["exec", "fix it"]);
    let rollout = codex.thread_in(&id(1), &sandbox.project("other")).asked("fix it");
    agent.tell(&format!("open {}", rollout.path.display()));
    list(&sandbox).expect(&id(1), "working", Some(agent.pid()));
}

#[test]
fn the_lock_of_the_locks_is_no_thread() {
    let sandbox = Sandbox::new("coordination");
    let codex = CodexStore::of(&sandbox);
    let agent = sandbox.lookalike("codex", &["--no-daemon"]);
    let lock = codex.lock_file(&id(1)).with_file_name(".coordination.lock");
    agent.tell(&format!("flock {}", lock.display()));
    let seen = list(&sandbox);
    assert_eq!((seen.sessions().len(), seen.unbound()), (0, vec![agent.pid()]));
}

#[test]
fn waiting_is_told_from_a_call_that_nobody_runs() {
    let sandbox = Sandbox::new("approval");
    let codex = CodexStore::of(&sandbox);
    let agent = sandbox.lookalike("codex", &["--no-daemon"]);
    codex.lock(&agent, &id(1));
    codex.thread(&id(1)).at(now()).asked("clean").calls("call_1", "rm -rf build");
    // At first it may be about to run it.
    let seen = wait_for("a call that nobody runs", DEADLINE, || {
        let seen = list(&sandbox);
        (seen.status(&id(1)) != "working").then_some(seen)
    });
    seen.expect(&id(1), "waiting", Some(agent.pid()));
    assert_eq!(seen.session(&id(1))["reason"], "permission: exec_command rm -rf build");
    // A background command of an earlier call changes nothing; its own command does.
    agent.detach(&[("CODEX_THREAD_ID", &id(1)), ("CODEX_TOOL_CALL_ID", "call_0")]);
    list(&sandbox).expect(&id(1), "waiting", Some(agent.pid()));
    agent.detach(&[("CODEX_THREAD_ID", &id(1)), ("CODEX_TOOL_CALL_ID", "call_1")]);
    list(&sandbox).expect(&id(1), "working", Some(agent.pid()));
}

#[test]
fn a_script_that_nobody_runs_a_command_for_waits() {
    let sandbox = Sandbox::new("scripts");
    let codex = CodexStore::of(&sandbox);
    let agent = sandbox.lookalike("codex", &["app-server"]);
    let then = now();
    let script = |n: u64, text: &str| {
        codex.lock(&agent, &id(n));
        let call = json!({"type": "custom_tool_call", "name": "exec", "call_id": "c", "input": text});
        codex.thread(&id(n)).at(then).asked("clean").add("response_item", call)
    };
    let (command, ran) = ("text(await tools.exec_command({cmd: 'rm -rf build'}));", "exec-1");
    let ended = || json!({"type": "item_completed", "item": {"type": "CommandExecution", "id": ran}});
    script(1, command);
    // Its command runs, under an id of its own.
    script(2, command);
    agent.detach(&[("CODEX_THREAD_ID", &id(2)), ("CODEX_TOOL_CALL_ID", ran)]);
    // One of its tools is not a command.
    script(3, "await tools.exec_command({cmd: 'ls'}); await tools.mcp__web__find({})");
    // One command has just ended: the next may be about to begin.
    let busy = script(4, command);
    wait_until("the calls to be older than any that may be about to run", DEADLINE, || now() > then + 1500);
    drop(busy.at(now() + 60_000).add("event_msg", ended()));
    let seen = list(&sandbox);
    for (n, status) in [(1, "waiting"), (2, "working"), (3, "working"), (4, "working")] {
        seen.expect(&id(n), status, Some(agent.pid()));
    }
    assert_eq!(seen.session(&id(1))["reason"], format!("permission: exec {command}"));
}

#[test]
fn of_several_calls_at_once_the_one_that_nobody_runs_waits() {
    let sandbox = Sandbox::new("several-calls");
    let codex = CodexStore::of(&sandbox);
    let agent = sandbox.lookalike("codex", &["app-server"]);
    let then = now();
    let runs = |n: u64, call: &str| {
        agent.detach(&[("CODEX_THREAD_ID", &id(n)), ("CODEX_TOOL_CALL_ID", call)]);
    };
    let ran = |call: &str| json!({"type": "item_completed", "item": {"type": "CommandExecution", "id": call}});
    let patch = json!({"type": "custom_tool_call", "name": "apply_patch", "call_id": "p", "input": "*** Begin Patch"});
    for n in 1..=6 {
        codex.lock(&agent, &id(n));
    }
    let asked = |n: u64| codex.thread(&id(n)).at(then).asked("clean");
    // One runs, the other has run: no output is written before both have.
    asked(1).calls("a1", "make").calls("b1", "true").add("event_msg", ran("b1"));
    runs(1, "a1");
    // One runs, the other asks, whichever was called first.
    asked(2).calls("a2", "make").calls("b2", "rm -rf build");
    runs(2, "a2");
    asked(3).calls("a3", "rm -rf build").calls("b3", "make");
    runs(3, "b3");
    // A patch is alone: it waits for the command before it, and the command after it waits for it.
    asked(4).calls("a4", "make").add("response_item", patch.clone());
    runs(4, "a4");
    asked(5).add("response_item", patch.clone()).calls("b5", "make");
    // What a version without items writes.
    let ended = json!({"type": "exec_command_end", "call_id": "b6"});
    asked(6).calls("a6", "make").calls("b6", "true").add("event_msg", ended);
    runs(6, "a6");
    wait_until("the calls to be older than any that may be about to run", DEADLINE, || now() > then + 1500);
    let seen = list(&sandbox);
    for (n, status, reason) in [
        (1, "working", "running exec_command make"),
        (2, "waiting", "permission: exec_command rm -rf build"),
        (3, "waiting", "permission: exec_command rm -rf build"),
        (4, "working", "running apply_patch *** Begin Patch"),
        (5, "waiting", "permission: apply_patch *** Begin Patch"),
        (6, "working", "running exec_command make"),
    ] {
        let row = seen.session(&id(n));
        assert_eq!((&row["status"], &row["reason"]), (&json!(status), &json!(reason)), "{n}: {row:#}");
    }
}

#[test]
fn an_agent_that_never_asks_never_waits() {
    let sandbox = Sandbox::new("never-asks");
    let codex = CodexStore::of(&sandbox);
    let agent = sandbox.lookalike("codex", &["exec", "fix it"]);
    codex.lock(&agent, &id(1));
    let thread = codex.thread(&id(1)).with_policy("never");
    let then = now();
    thread.at(then).asked("clean").calls("call_1", "rm -rf build");
    wait_until("the call to be older than one that may be about to run", DEADLINE, || now() > then + 1500);
    list(&sandbox).expect(&id(1), "working", Some(agent.pid()));
}
