//! What lives and what does not, whatever was seen last: scenarios 8, 10, 11, 13, 15.

use lariat_testkit::{DEADLINE, Lookalike, Sandbox, Signal, wait_for, wait_until};
use serde_json::json;

use crate::{
    asking::{ask, id, list},
    claude_store::ClaudeStore,
    codex_store::CodexStore,
};

/// Ends a process as the kernel does when memory runs out.
fn kill(agent: &Lookalike) {
    agent.signal(Signal::KILL);
    agent.wait(DEADLINE);
}

#[test]
fn a_session_of_each_agent_goes_through_its_states() {
    let sandbox = Sandbox::new("states");
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    let (one, two) = (id(1), id(2));
    let agent = sandbox.lookalike("claude", &[]);
    let entry = claude.register(&agent, &one).says("idle");
    list(&sandbox).expect(&one, "idle", Some(agent.pid()));
    let entry = entry.says("busy");
    let talk = claude.session(&one).asked("fix the login").calls("Bash", json!({"command": "make"}));
    let seen = list(&sandbox);
    seen.expect(&one, "working", Some(agent.pid()));
    assert_eq!(seen.session(&one)["prompt"], "fix the login");
    assert_eq!(seen.session(&one)["tool"], "Bash make");
    let entry = entry.waits_for("permission prompt");
    let seen = list(&sandbox);
    seen.expect(&one, "waiting", Some(agent.pid()));
    assert_eq!(seen.session(&one)["reason"], "permission: Bash make");
    let entry = entry.says("idle");
    let talk = talk.result("made").answered("done");
    list(&sandbox).expect(&one, "idle", Some(agent.pid()));
    drop(talk.left());
    entry.remove();
    kill(&agent);
    list(&sandbox).expect(&one, "done", None);

    let agent = sandbox.lookalike("codex", &["--no-daemon"]);
    codex.lock(&agent, &two);
    list(&sandbox).expect(&two, "starting", Some(agent.pid()));
    let thread = codex.thread(&two).asked("fix the logout");
    let seen = list(&sandbox);
    seen.expect(&two, "working", Some(agent.pid()));
    assert_eq!(seen.session(&two)["prompt"], "fix the logout");
    drop(thread.answered("done"));
    list(&sandbox).expect(&two, "idle", Some(agent.pid()));
    kill(&agent);
    list(&sandbox).expect(&two, "done", None);
}

#[test]
fn s08_killed_in_the_middle_of_a_turn_is_dead() {
    let sandbox = Sandbox::new("s08");
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    let (one, two) = (id(1), id(2));
    let agent = sandbox.lookalike("claude", &[]);
    claude.register(&agent, &one).says("busy");
    claude.session(&one).asked("fix it").calls("Bash", json!({"command": "make"}));
    let thread = sandbox.lookalike("codex", &["exec", "fix it"]);
    codex.lock(&thread, &two);
    codex.thread(&two).asked("fix it").calls("call_1", "make");
    let before = list(&sandbox);
    before.expect(&one, "working", Some(agent.pid()));
    assert_eq!(before.session(&two)["live"], true);
    kill(&agent);
    kill(&thread);
    // The registry still says busy, the lock file still lies there.
    let after = list(&sandbox);
    after.expect(&one, "interrupted", None);
    after.expect(&two, "interrupted", None);
    assert_eq!((after.code, after.unbound()), (0, vec![]));
}

#[test]
fn s10_dead_while_it_waited_is_dead() {
    let sandbox = Sandbox::new("s10");
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    let (one, two) = (id(1), id(2));
    let agent = sandbox.lookalike("claude", &[]);
    claude.register(&agent, &one).waits_for("permission prompt");
    claude.session(&one).asked("clean").calls("Bash", json!({"command": "rm -rf build"}));
    let thread = sandbox.lookalike("codex", &["--no-daemon"]);
    codex.lock(&thread, &two);
    codex.thread(&two).at(crate::moment::now()).asked("clean").calls("call_1", "rm -rf build");
    // Until its command would run.
    let before = wait_for("both to wait", DEADLINE, || {
        let seen = list(&sandbox);
        (seen.status(&two) != "working").then_some(seen)
    });
    before.expect(&one, "waiting", Some(agent.pid()));
    before.expect(&two, "waiting", Some(thread.pid()));
    kill(&agent);
    kill(&thread);
    let after = list(&sandbox);
    after.expect(&one, "interrupted", None);
    after.expect(&two, "interrupted", None);
}

#[test]
fn s11_freshly_spawned_is_starting() {
    let sandbox = Sandbox::new("s11");
    let codex = CodexStore::of(&sandbox);
    let (one, two) = (id(1), id(2));
    let new = sandbox.lookalike("claude", &["--session-id", &one, "fix it"]);
    let thread = sandbox.lookalike("codex", &["--no-daemon"]);
    codex.lock(&thread, &two);
    let seen = list(&sandbox);
    seen.expect(&one, "starting", Some(new.pid()));
    seen.expect(&two, "starting", Some(thread.pid()));
    assert_eq!((seen.sessions().len(), seen.unbound()), (2, vec![]));
}

#[test]
fn s11_an_id_is_written_as_its_agent_writes_it() {
    let sandbox = Sandbox::new("s11-written");
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    // Claude Code takes it as it was given; to Codex all ways of writing it are one.
    let one = "AAAAAAAA-1111-4111-8111-AAAAAAAAAAAA";
    let two = id(0xab);
    claude.session(one).asked("fix it").answered("fixed").left();
    codex.thread(&two).asked("fix it").answered("fixed");
    let resumed = sandbox.lookalike("claude", &["--resume", one]);
    let thread = sandbox.lookalike("codex", &["resume", "--no-daemon", &two.to_uppercase()]);
    let seen = list(&sandbox);
    assert_eq!((seen.sessions().len(), seen.unbound()), (2, vec![]), "no other session than these");
    assert_eq!(seen.session(one)["pid"], resumed.pid());
    assert_eq!(seen.session(&two)["pid"], thread.pid());
}

#[test]
fn s11_resumed_and_nothing_recorded_yet_is_not_ended() {
    let sandbox = Sandbox::new("s11-resume");
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    let (one, two) = (id(1), id(2));
    let yesterday = crate::moment::now() - 86_400_000;
    claude.session(&one).at(yesterday).asked("fix it").answered("fixed").left();
    codex.thread(&two).at(yesterday).asked("fix it").answered("fixed");
    list(&sandbox).expect(&one, "done", None);
    let agent = sandbox.lookalike("claude", &["--resume", &one]);
    let thread = sandbox.lookalike("codex", &["resume", &two]);
    let seen = list(&sandbox);
    seen.expect(&one, "starting", Some(agent.pid()));
    seen.expect(&two, "starting", Some(thread.pid()));
    assert_eq!(seen.sessions().len(), 2);
}

#[test]
fn s13_three_sessions_in_one_directory_and_one_process() {
    let sandbox = Sandbox::new("s13");
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    let now = crate::moment::now();
    for (n, ago) in [(1, 3_600_000), (2, 7_200_000), (3, 60_000)] {
        claude.session(&id(n)).at(now - ago).asked("fix it").answered("fixed");
        codex.thread(&id(10 + n)).at(now - ago).asked("fix it").answered("fixed");
    }
    // The one that runs is neither the newest nor the oldest.
    let agent = sandbox.lookalike("claude", &[]);
    claude.register(&agent, &id(1)).says("idle");
    let thread = sandbox.lookalike("codex", &["resume", &id(11)]);
    codex.lock(&thread, &id(11));
    let seen = list(&sandbox);
    seen.expect(&id(1), "idle", Some(agent.pid()));
    seen.expect(&id(11), "idle", Some(thread.pid()));
    for ended in [2, 3, 12, 13] {
        seen.expect(&id(ended), "done", None);
    }
    assert_eq!((seen.code, seen.unbound()), (0, vec![]));
}

#[test]
fn s15_clear_gives_the_process_another_session() {
    let sandbox = Sandbox::new("s15");
    let claude = ClaudeStore::of(&sandbox);
    let (old, new) = (id(1), id(2));
    // Its arguments keep the first id for ever.
    let agent = sandbox.lookalike("claude", &["--session-id", &old]);
    let entry = claude.register(&agent, &old).says("idle");
    let talk = claude.session(&old).asked("fix it").answered("fixed");
    list(&sandbox).expect(&old, "idle", Some(agent.pid()));

    drop(talk.left());
    entry.with("sessionId", json!(new)).says("idle");
    claude.typed(&old, "/clear");
    let seen = list(&sandbox);
    seen.expect(&new, "idle", Some(agent.pid()));
    seen.expect(&old, "done", None);
    assert_eq!((seen.sessions().len(), seen.code), (2, 0));

    let talk = claude.session(&new).asked("again");
    claude.register(&agent, &new).says("busy");
    list(&sandbox).expect(&new, "working", Some(agent.pid()));
    drop(talk.at(crate::moment::now()).answered("done"));
    kill(&agent);
    list(&sandbox).expect(&new, "done", None);
}

#[test]
fn a_zombie_is_dead() {
    let sandbox = Sandbox::new("zombie");
    let claude = ClaudeStore::of(&sandbox);
    let one = id(1);
    // Its child bears its name and is never reaped; both stand elsewhere.
    let elsewhere = sandbox.project("elsewhere");
    let parent = Lookalike::start(&sandbox, &Lookalike::program(&sandbox, "claude").cwd(elsewhere));
    let child = sandbox.world().process(parent.spawn(&[])).expect("a child");
    assert_eq!(child.comm, "claude");
    claude.register_as(child.pid, child.outside, &one).says("busy");
    claude.session(&one).asked("fix it");
    list(&sandbox).expect(&one, "working", Some(child.pid));
    assert!(child.signal(Signal::KILL));
    wait_until("the child to be a zombie", DEADLINE, || {
        sandbox.world().process(child.pid).is_some_and(|p| p.state == 'Z')
    });
    list(&sandbox).expect(&one, "interrupted", None);
}

/// A program whose first thread ends at once, and whose second one stays.
const LEAVES: &str = "
    #include <pthread.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    static void *stay(void *nothing) { for (;;) pause(); return nothing; }
    int main(void) { pthread_t other; pthread_create(&other, 0, stay, 0); syscall(SYS_exit, 0); }
";

#[test]
fn one_whose_first_thread_has_ended_lives_until_all_have() {
    let sandbox = Sandbox::new("threads");
    let claude = ClaudeStore::of(&sandbox);
    let (source, program) = (sandbox.root().join("leaves.c"), sandbox.root().join("bin/claude"));
    std::fs::write(&source, LEAVES).expect("a source");
    let built = std::process::Command::new("cc").arg("-pthread").arg("-o").args([&program, &source]).status();
    assert!(built.expect("a C compiler").success());
    let agent = sandbox.spawn(&sandbox.program(program).arg0("claude"));
    // To the kernel's table it is a zombie, as any agent of many threads is while it dies.
    wait_until("its first thread has ended", DEADLINE, || {
        sandbox.world().process(agent.pid()).is_some_and(|p| p.state == 'Z')
    });
    claude.register(&agent, &id(1)).says("busy");
    claude.session(&id(1)).asked("fix it");
    list(&sandbox).expect(&id(1), "working", Some(agent.pid()));
    let killed = ask(&sandbox, &["kill", &id(1), "--json"]);
    assert_eq!((killed.code(), &killed.json()["outcome"]), (0, &json!("stopped")), "{killed:?}");
    agent.wait(DEADLINE);
    list(&sandbox).expect(&id(1), "stopped", None);
}

#[test]
fn a_halted_agent_lives() {
    let sandbox = Sandbox::new("halted");
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    let (one, two) = (id(1), id(2));
    let agent = sandbox.lookalike("claude", &[]);
    claude.register(&agent, &one).says("busy");
    claude.session(&one).asked("fix it");
    let thread = sandbox.lookalike("codex", &["--no-daemon"]);
    codex.lock(&thread, &two);
    codex.thread(&two).asked("fix it");
    for halted in [&agent, &thread] {
        halted.signal(Signal::STOP);
        wait_until("it to be halted", DEADLINE, || {
            sandbox.world().process(halted.pid()).is_some_and(|p| p.state == 'T')
        });
    }
    let seen = list(&sandbox);
    seen.expect(&one, "working", Some(agent.pid()));
    seen.expect(&two, "working", Some(thread.pid()));
}

#[test]
fn when_it_ended_is_not_told_by_a_file_of_the_future() {
    let sandbox = Sandbox::new("future");
    let claude = ClaudeStore::of(&sandbox);
    drop(claude.session(&id(1)).asked("fix it").answered("done").left());
    let seen = list(&sandbox);
    seen.expect(&id(1), "done", None);
    assert!(seen.session(&id(1))["ended_at"].is_string(), "{}", seen.text);
    let file = format!("{}.jsonl", id(1));
    let home = sandbox.home();
    let touch =
        ["find", home.to_str().expect("UTF-8"), "-name", &file, "-exec", "touch", "-d", "2100-01-01", "{}", "+"];
    sandbox.run(touch).expect_success();
    let seen = list(&sandbox);
    seen.expect(&id(1), "done", None);
    assert!(seen.session(&id(1))["ended_at"].is_null(), "{}", seen.text);
}

#[test]
fn when_it_ended_is_not_told_by_a_file_that_was_touched_since() {
    let sandbox = Sandbox::new("touched");
    let claude = ClaudeStore::of(&sandbox);
    let (hour, now) = (3_600_000, crate::moment::now());
    let last = now - hour;
    // What it says that it began at, and how long it took; all files are written now.
    let accounts = [(last - 10_000, 30_000), (last - hour, 30_000), (last - 10_000, hour + 5000)];
    for (n, (since, took)) in (1..).zip(accounts) {
        let account = json!({"type": "cost-state", "startTime": since, "totalDuration": took, "modelUsage": {}});
        drop(claude.session(&id(n)).at(last).asked("fix it").answered("done").line(&account));
    }
    drop(claude.session(&id(4)).at(last).asked("fix it").answered("done").left());
    drop(claude.session(&id(5)).at(now - 10).asked("fix it").answered("done").left());
    let seen = list(&sandbox);
    let ended = |n| seen.session(&id(n))["ended_at"].as_str().map(str::to_owned);
    assert_eq!(ended(1), Some(crate::moment::iso(last + 20_000)), "as it says itself");
    assert_eq!((ended(2), ended(4)), (None, None), "nothing tells");
    let about_now = |n| ended(n).is_some_and(|at| at >= crate::moment::iso(now - 5000));
    assert!(about_now(3) && about_now(5), "{}", seen.text);
    (1..=5).for_each(|n| seen.expect(&id(n), "done", None));
}

#[test]
fn when_it_ended_is_not_told_by_an_accounting_that_lacks_the_time_between_runs() {
    let sandbox = Sandbox::new("accounted");
    let claude = ClaudeStore::of(&sandbox);
    let last = crate::moment::now() - 3_600_000;
    let account = |since: u64, took: i64| json!({"type": "cost-state", "startTime": since, "totalDuration": took, "modelUsage": {}});
    let since = (last - 10_000).unsigned_abs();
    let first = |n| claude.session(&id(n)).at(last - 9000).asked("fix it").answered("done").line(&account(since, 2000));
    let next = |n| first(n).at(last).asked("go on").answered("gone on");
    let ends = account(since, 30_000);
    // Written twice at one exit; of what was gone on with; by a run that began to count anew.
    drop(claude.session(&id(1)).at(last).asked("fix it").answered("done").line(&ends).line(&ends));
    drop(next(2).line(&ends));
    drop(next(3).line(&account(since + 9000, 21_000)));
    // Whether it was gone on with stands among what is not read.
    let filler = json!({"type": "attachment", "filler": "x".repeat(2 << 20)});
    drop(claude.session(&id(4)).at(last - 1).asked("fix it").line(&filler).at(last).answered("done").line(&ends));
    // A number that is no time.
    let said = json!({"role": "assistant", "content": [], "stop_reason": "end_turn"});
    let bare = json!({"type": "assistant", "cwd": "/w", "message": said});
    drop(claude.session(&id(5)).line(&bare).line(&account(1 << 63, 1)));
    let seen = list(&sandbox);
    let ended = [1, 2, 3, 4, 5].map(|n| seen.session(&id(n))["ended_at"].as_str().map(str::to_owned));
    let told = Some(crate::moment::iso(last + 20_000));
    assert_eq!(ended, [told.clone(), None, told, None, None]);
    assert_eq!(seen.warnings(), Vec::<String>::new());
}
