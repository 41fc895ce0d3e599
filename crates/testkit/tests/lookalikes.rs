//! A process that looks like an agent and does as it is told.

use std::fs;

use lariat_testkit::{DEADLINE, Exit, Lookalike, Sandbox, Signal, wait_until};

#[test]
fn it_looks_like_the_agent() {
    let sandbox = Sandbox::new("looks");
    let claude = sandbox.lookalike("claude", &["--resume", "x"]);
    let process = sandbox.world().process(claude.pid()).expect("it lives");
    assert_eq!(process.comm, "claude");
    assert_eq!(process.argv, ["claude", "--resume", "x"]);
    let exe = fs::read_link(format!("/proc/{}/exe", process.outside)).expect("its executable");
    assert_eq!(exe, sandbox.root().join("bin/claude"));
    let deep = sandbox.lookalike("vendor/any/bin/codex", &[]);
    assert_eq!(sandbox.world().process(deep.pid()).expect("it lives").comm, "codex");
}

#[test]
fn it_holds_locks_writes_and_ends() {
    let sandbox = Sandbox::new("holds");
    let codex = sandbox.lookalike("codex", &[]);
    let lock = sandbox.home().join("thread.lock");
    codex.tell(&format!("flock {}", lock.display()));
    let ours = fs::OpenOptions::new().read(true).open(&lock).expect("the lock");
    assert!(ours.try_lock().is_err());
    let store = sandbox.home().join("a/b/rollout.jsonl");
    codex.tell(&format!("write-line {} {{\"type\":\"x\"}}", store.display()));
    codex.tell(&format!("write-line {} {{\"type\":\"y\"}}", store.display()));
    let written = fs::read_to_string(&store).expect("a store");
    assert_eq!(written, "{\"type\":\"x\"}\n{\"type\":\"y\"}\n");
    codex.write_line("exit 7");
    assert_eq!(codex.wait(DEADLINE), Exit::Code(7));
    ours.try_lock().expect("the lock is free");
}

#[test]
fn it_has_children_and_can_ignore_signals() {
    let sandbox = Sandbox::new("children");
    let program = Lookalike::program(&sandbox, "claude").arg("-p");
    let claude = Lookalike::start_ignoring(&sandbox, &program, &[Signal::TERM]);
    let child = claude.spawn(&[("CLAUDE_CODE_SESSION_ID", "x")]);
    let detached = claude.detach(&[]);
    let world = sandbox.world();
    let found = world.process(child).expect("the child lives");
    assert_eq!(found.parent, claude.pid());
    assert!(found.environ().contains(&"CLAUDE_CODE_SESSION_ID=x".to_owned()));
    assert_eq!(world.process(claude.pid()).expect("it lives").argv, ["claude", "-p"]);

    claude.signal(Signal::TERM);
    claude.tell("ready");
    claude.signal(Signal::KILL);
    assert_eq!(claude.wait(DEADLINE), Exit::Signal(9));
    assert_eq!(world.process(detached).expect("the orphan lives").parent, 1);
    assert!(world.process(child).expect("the orphan lives").signal(Signal::KILL));
    wait_until("the orphan to be reaped", DEADLINE, || world.process(child).is_none());
}
