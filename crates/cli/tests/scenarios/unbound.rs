//! Which processes are agents, which are ours, and what one without a session means.

use std::{fs, path::PathBuf};

use lariat_testkit::{Child, DEADLINE, Lookalike, Sandbox, Signal, Stdin, wait_for, wait_until};
use serde_json::json;

use crate::{
    asking::{id, list},
    claude_store::ClaudeStore,
    codex_store::CodexStore,
};

#[test]
fn one_in_the_same_directory_could_be_the_session() {
    let sandbox = Sandbox::new("could-be");
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    claude.session(&id(1)).asked("fix it");
    codex.thread(&id(2)).asked("fix it");
    claude.session(&id(3)).asked("fix it").answered("fixed").left();
    let before = list(&sandbox);
    before.expect(&id(1), "interrupted", None);
    before.expect(&id(2), "interrupted", None);

    let someone = sandbox.lookalike("claude", &[]);
    let other = sandbox.lookalike("codex", &["--no-daemon"]);
    let seen = list(&sandbox);
    seen.expect(&id(1), "unknown", None);
    seen.expect(&id(2), "unknown", None);
    seen.expect(&id(3), "done", None);
    assert_eq!((seen.code, seen.unbound()), (5, vec![someone.pid(), other.pid()]));
    let told = &seen.json["unbound"][0];
    assert_eq!(told["cwd"], json!(sandbox.work()));
    assert!(told["why"].as_str().is_some_and(|why| !why.is_empty()), "{told}");
    assert!(told["started_at"].is_string(), "{told}");

    someone.signal(Signal::KILL);
    someone.wait(DEADLINE);
    let after = list(&sandbox);
    after.expect(&id(1), "interrupted", None);
    after.expect(&id(2), "unknown", None);
}

#[test]
fn one_in_another_directory_could_not() {
    let sandbox = Sandbox::new("could-not");
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    claude.session(&id(1)).asked("fix it");
    codex.thread(&id(2)).asked("fix it");
    let elsewhere = sandbox.project("elsewhere");
    let at = |name: &str| Lookalike::start(&sandbox, &Lookalike::program(&sandbox, name).cwd(&elsewhere));
    let (someone, other) = (at("claude"), at("codex"));
    let seen = list(&sandbox);
    seen.expect(&id(1), "interrupted", None);
    seen.expect(&id(2), "interrupted", None);
    assert_eq!((seen.code, seen.unbound()), (0, vec![someone.pid(), other.pid()]));
}

#[test]
fn a_link_to_the_directory_is_the_directory() {
    let sandbox = Sandbox::new("link");
    let claude = ClaudeStore::of(&sandbox);
    // The transcript names the place by another name than the kernel does.
    let link = sandbox.home().join("shortcut");
    std::os::unix::fs::symlink(sandbox.work(), &link).expect("a link");
    claude.session_in(&id(1), &link).asked("fix it");
    let someone = sandbox.lookalike("claude", &[]);
    let seen = list(&sandbox);
    seen.expect(&id(1), "unknown", None);
    assert_eq!(seen.unbound(), [someone.pid()]);
}

#[test]
fn one_that_another_session_claims_is_not_free() {
    let sandbox = Sandbox::new("taken");
    let claude = ClaudeStore::of(&sandbox);
    claude.session(&id(1)).asked("fix it");
    let agent = sandbox.lookalike("claude", &[]);
    claude.register(&agent, &id(2)).says("idle");
    let seen = list(&sandbox);
    seen.expect(&id(1), "interrupted", None);
    seen.expect(&id(2), "idle", Some(agent.pid()));
    assert_eq!(seen.unbound(), Vec::<i32>::new());
}

/// Starts an agent that is a shell in truth, so that its children are other programs.
fn with_tools(sandbox: &Sandbox, name: &str) -> Child {
    let program = sandbox.program(sandbox.install_copy(name, &shell()));
    sandbox.spawn(&program.arg0(name).stdin(Stdin::Pipe))
}

fn shell() -> PathBuf {
    fs::canonicalize("/bin/sh").expect("a shell")
}

#[test]
fn a_tool_s_environment_tells_the_session() {
    let sandbox = Sandbox::new("by-child");
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    claude.session(&id(1)).asked("fix it");
    codex.thread(&id(2)).asked("fix it");
    let (agent, thread) = (with_tools(&sandbox, "claude"), with_tools(&sandbox, "codex"));
    let seen = list(&sandbox);
    assert_eq!(seen.unbound(), [agent.pid(), thread.pid()]);
    agent.write_line(&format!("CLAUDE_CODE_SESSION_ID={} CLAUDE_PID=$$ sleep 9999 &", id(1)));
    thread.write_line(&format!("CODEX_THREAD_ID={} CODEX_TOOL_CALL_ID=c sleep 9999 &", id(2)));
    wait_until("both tools", DEADLINE, || sandbox.processes().iter().filter(|p| p.comm == "sleep").count() == 2);
    let seen = list(&sandbox);
    assert_eq!(seen.session(&id(1))["pid"], agent.pid(), "{:#}", seen.json);
    assert_eq!(seen.session(&id(2))["pid"], thread.pid(), "{:#}", seen.json);
    assert_eq!(seen.unbound(), Vec::<i32>::new());
}

#[test]
fn of_another_home_is_not_ours() {
    let sandbox = Sandbox::new("other-home");
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    claude.session(&id(1)).asked("fix it");
    codex.thread(&id(2)).asked("fix it");
    let home = sandbox.root().join("tmp/other");
    fs::create_dir_all(&home).expect("another home");
    let of = |name: &str, variable: &str| {
        let program = Lookalike::program(&sandbox, name).env(variable, &home);
        Lookalike::start(&sandbox, &program)
    };
    let _strangers =
        [of("claude", "HOME"), of("codex", "HOME"), of("claude", "CLAUDE_CONFIG_DIR"), of("codex", "CODEX_HOME")];
    let seen = list(&sandbox);
    seen.expect(&id(1), "interrupted", None);
    seen.expect(&id(2), "interrupted", None);
    assert_eq!((seen.code, seen.unbound()), (0, vec![]));
    // One that spells our home in another way is ours.
    let link = sandbox.root().join("homely");
    std::os::unix::fs::symlink(sandbox.home(), &link).expect("a link");
    let program = Lookalike::program(&sandbox, "claude").env("HOME", &link);
    let ours = Lookalike::start(&sandbox, &program);
    assert_eq!(list(&sandbox).unbound(), [ours.pid()]);
}

#[test]
fn a_word_in_the_arguments_is_no_agent() {
    let sandbox = Sandbox::new("words");
    let claude = ClaudeStore::of(&sandbox);
    claude.session(&id(1)).asked("fix it");
    let _others: Vec<_> = [
        ("vim", &["claude"][..]),
        ("vim", &["/home/dev/bin/claude"]),
        ("grep", &["-r", "codex", "."]),
        ("tail", &["-f", ".codex/log/codex"]),
        ("ssh", &["host", "claude"]),
        ("tmux", &["new", "codex"]),
        ("claudette", &[]),
        ("codex-notes", &[]),
        ("lariat", &["launch", "claude"]),
    ]
    .into_iter()
    .map(|(name, args)| {
        // Not the sandbox's own `lariat`, which is a link.
        sandbox.lookalike(&format!("others/{name}"), args)
    })
    .collect();
    let seen = list(&sandbox);
    seen.expect(&id(1), "interrupted", None);
    assert_eq!((seen.code, seen.unbound()), (0, vec![]));
}

/// Starts the program by a script of that name, run by what is called `node`.
fn wrapped(sandbox: &Sandbox, script: &str, program: &str, args: &[&str]) -> (Lookalike, i32) {
    let node = sandbox.install_copy("node", &shell());
    drop(Lookalike::program(sandbox, &format!("vendor/{program}"))); // puts it there
    let path = sandbox.root().join("bin").join(script);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    let real = sandbox.root().join("bin/vendor").join(program);
    fs::write(&path, format!("{} \"$@\"\nexit\n", real.display())).expect("a script");
    let call = sandbox.program(node).arg0("node").arg(&path).args(args).stdin(Stdin::Pipe);
    let wrapper = Lookalike::start(sandbox, &call);
    let child = sandbox.processes().into_iter().find(|p| p.parent == wrapper.pid()).expect("the real program");
    assert_eq!(child.comm, program);
    (wrapper, child.pid)
}

#[test]
fn a_wrapper_is_not_listed_beside_what_it_wraps() {
    let sandbox = Sandbox::new("wrapper");
    let codex = CodexStore::of(&sandbox);
    let (_wrapper, real) = wrapped(&sandbox, "codex.js", "codex", &["--no-daemon"]);
    assert_eq!(list(&sandbox).unbound(), [real]);
    codex.thread(&id(1)).at(crate::moment::now() - 60_000).asked("fix it").answered("fixed");
    let (wrapper, real) = wrapped(&sandbox, "codex.js", "codex", &["resume", &id(1)]);
    let seen = list(&sandbox);
    seen.expect(&id(1), "starting", Some(real));
    codex.lock(&wrapper, &id(1)); // told to the wrapper, done by the real one
    list(&sandbox).expect(&id(1), "idle", Some(real));
    // The wrapper dies: the agent goes on.
    wrapper.signal(Signal::KILL);
    wrapper.wait(DEADLINE);
    list(&sandbox).expect(&id(1), "idle", Some(real));
}

#[test]
fn a_nested_agent_is_not_its_outer_one() {
    let sandbox = Sandbox::new("nested");
    let claude = ClaudeStore::of(&sandbox);
    let outer = sandbox.lookalike("claude", &[]);
    claude.register(&outer, &id(1)).says("busy");
    claude.session(&id(1)).asked("run another");
    // It inherits the marks of the outer one, and is an agent itself.
    let pid = outer.pid().to_string();
    let inner = outer.spawn(&[("CLAUDE_CODE_SESSION_ID", &id(1)), ("CLAUDE_PID", &pid)]);
    let inside = sandbox.world().process(inner).expect("it lives");
    claude.register_as(inner, inside.outside, &id(2)).says("idle");
    claude.session(&id(2)).asked("hello").answered("hello");
    let seen = list(&sandbox);
    seen.expect(&id(1), "working", Some(outer.pid()));
    seen.expect(&id(2), "idle", Some(inner));
    assert_eq!(seen.unbound(), Vec::<i32>::new());
}

#[test]
fn a_script_is_not_hidden_by_a_copy_of_itself_or_by_an_agent_that_it_uses() {
    let sandbox = Sandbox::new("scripted");
    drop(Lookalike::program(&sandbox, "inner/claude")); // puts it there
    let inner = sandbox.root().join("bin/inner/claude");
    let path = sandbox.root().join("bin/claude");
    // The first stays what every child is between `fork` and `exec`.
    let copy = "mkfifo held; (read x < held) &";
    let tool = format!("tail -f /dev/null | {} -p other &", inner.display());
    fs::write(&path, format!("{copy}\n{tool}\nread x\n")).expect("a script");
    let call = sandbox.program("sh").arg(&path).args(["--session-id", &id(1)]).stdin(Stdin::Pipe);
    let script = sandbox.spawn(&call);
    let used = wait_for("the agent that it uses", DEADLINE, || {
        sandbox.processes().into_iter().find(|p| p.parent == script.pid() && p.comm == "claude").map(|p| p.pid)
    });
    ClaudeStore::of(&sandbox).session(&id(1)).asked("fix it");
    let seen = list(&sandbox);
    seen.expect(&id(1), "working", Some(script.pid()));
    assert_eq!(seen.unbound(), [used], "{}", seen.text);
}
