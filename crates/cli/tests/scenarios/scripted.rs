//! Agents that are scripts: what an interpreter was told, what a script uses, and what it takes from a person.
//!
//! Seen red: in `agent_process`, `script`, the first word that is no option (1, 2); `file` without links (3); in
//! `passes_on`, whoever hears the same (4); in `codex::bind`, no `by_left_lock`; in `pi::bind`, no `by_arguments`; in
//! `engine::send`, `keys`, always a paste; in `runs_packaged`, the path as it was given only, or its second word
//! only; in `launched`, `testify`, no look at whose process it is, or at how it was
//! launched; in `pi::bind`, `uses_store`, an empty home.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use lariat_testkit::{Child, DEADLINE, Lookalike, Sandbox, Signal, Stdin, put_program, wait_until};
use serde_json::json;

use crate::asking::{ask, id, lariat, list};
use crate::claude_store::ClaudeStore;
use crate::codex_store::CodexStore;
use crate::gemini_store::GeminiStore;
use crate::moment::now;
use crate::pi_store::PiStore;

/// Puts a script where an agent would be. Left alone it waits for ever.
pub fn put(sandbox: &Sandbox, name: &str, text: &str) -> PathBuf {
    let path = sandbox.root().join("scripts").join(name);
    put_program(&path, format!("#!/bin/sh\n{text}\nread x\n"));
    path
}

/// Lets a shell run something.
fn shell(sandbox: &Sandbox, args: &[&str]) -> Child {
    sandbox.spawn(&sandbox.program("sh").args(args).stdin(Stdin::Pipe))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn an_interpreter_s_own_options_do_not_hide_its_script() {
    let sandbox = Sandbox::new("options");
    let claude = put(&sandbox, "claude", "");
    let script = shell(&sandbox, &["-u", "-o", "noglob", text(&claude), "--session-id", &id(1)]);
    drop(ClaudeStore::of(&sandbox).session(&id(1)).asked("fix it"));
    list(&sandbox).expect(&id(1), "working", Some(script.pid()));
}

#[test]
fn a_text_that_names_an_agent_is_none() {
    let sandbox = Sandbox::new("text");
    drop(ClaudeStore::of(&sandbox).session(&id(1)).asked("fix it"));
    let _waits = shell(&sandbox, &["-c", "read x; exec /usr/local/bin/claude"]);
    let _besides = shell(&sandbox, &["-ec", "read x; exec /usr/local/bin/codex"]);
    let seen = list(&sandbox);
    assert_eq!(seen.unbound(), Vec::<i32>::new(), "{}", seen.text);
    seen.expect(&id(1), "interrupted", None);
}

#[test]
fn a_script_called_by_another_name_is_what_it_is() {
    let sandbox = Sandbox::new("linked");
    let store = ClaudeStore::of(&sandbox);
    let claude = put(&sandbox, "claude", "");
    let other = claude.with_file_name("cc");
    symlink(&claude, &other).expect("a link");
    let script = shell(&sandbox, &[text(&other)]);
    drop(store.register(&script, &id(1)).says("busy"));
    drop(store.session(&id(1)).asked("fix it"));
    list(&sandbox).expect(&id(1), "working", Some(script.pid()));
    // And one that is none stays none.
    let stranger = shell(&sandbox, &[text(&put(&sandbox, "stranger", ""))]);
    drop(store.register(&stranger, &id(2)).says("busy"));
    drop(store.session(&id(2)).asked("fix it"));
    list(&sandbox).expect(&id(2), "interrupted", None);
}

#[test]
fn an_agent_that_a_script_uses_may_hear_the_same() {
    let sandbox = Sandbox::new("same-ears");
    drop(Lookalike::program(&sandbox, "inner/claude")); // puts it there
    let inner = sandbox.root().join("bin/inner/claude");
    let uses = format!("{} --session-id {} <&3 &", inner.display(), id(2));
    let claude = put(&sandbox, "claude", &format!("exec 3<&0\n{uses}"));
    let script = shell(&sandbox, &[text(&claude), "--session-id", &id(1)]);
    wait_until("the agent that it uses", DEADLINE, || sandbox.processes().iter().any(|p| p.comm == "claude"));
    let used = sandbox.processes().into_iter().find(|p| p.comm == "claude").expect("it lives").pid;
    let store = ClaudeStore::of(&sandbox);
    drop(store.session(&id(1)).asked("fix it"));
    drop(store.session(&id(2)).asked("help it"));
    let seen = list(&sandbox);
    seen.expect(&id(1), "working", Some(script.pid()));
    seen.expect(&id(2), "working", Some(used));
    assert_eq!(seen.unbound(), Vec::<i32>::new(), "{}", seen.text);
}

#[test]
fn a_script_that_only_wraps_is_not_listed_beside_what_it_wraps() {
    let sandbox = Sandbox::new("wraps");
    drop(Lookalike::program(&sandbox, "inner/claude")); // puts it there
    let inner = sandbox.root().join("bin/inner/claude");
    let claude = put(
        &sandbox,
        "claude",
        &format!("mkfifo held; exec 4<>held; {} --verbose \"$@\" --model x <held &", inner.display()),
    );
    let _wrapper = shell(&sandbox, &[text(&claude), "-p", "fix it"]);
    wait_until("what it wraps", DEADLINE, || sandbox.processes().iter().any(|p| p.comm == "claude"));
    let real = sandbox.processes().into_iter().find(|p| p.comm == "claude").expect("it lives").pid;
    let seen = list(&sandbox);
    assert_eq!(seen.unbound(), [real], "{}", seen.text);
}

#[test]
fn a_lock_that_a_tool_took_is_its_script_s() {
    let sandbox = Sandbox::new("flock");
    let codex = CodexStore::of(&sandbox);
    let lock = codex.lock_file(&id(1));
    let script = put(&sandbox, "codex", &format!("exec 9>>'{}'; flock 9; touch locked", lock.display()));
    let agent = shell(&sandbox, &[text(&script), "exec"]);
    wait_until("the lock", DEADLINE, || sandbox.work().join("locked").exists());
    drop(codex.thread(&id(1)).asked("fix it"));
    let seen = list(&sandbox);
    seen.expect(&id(1), "working", Some(agent.pid()));
    assert_eq!(seen.unbound(), Vec::<i32>::new(), "{}", seen.text);
}

/// So is one that was taken between two looks at the locks: the kernel's list, and the process's own.
#[test]
fn who_has_a_lock_by_a_tool_is_at_its_prompt_whatever_was_left_open_before() {
    let sandbox = Sandbox::new("flock-resumed");
    let codex = CodexStore::of(&sandbox);
    drop(codex.thread(&id(1)).with_policy("on-request").at(now() - 60_000).asked("fix it").calls("c", "make"));
    let lock = codex.lock_file(&id(1));
    let script = put(&sandbox, "codex", &format!("exec 9>'{}'; flock 9; touch locked", lock.display()));
    let agent = shell(&sandbox, &[text(&script), "resume", "--no-daemon", &id(1)]);
    wait_until("the lock", DEADLINE, || sandbox.work().join("locked").exists());
    list(&sandbox).expect(&id(1), "idle", Some(agent.pid()));
}

#[test]
fn a_pi_whose_arguments_can_be_read_has_the_session_that_they_name() {
    let sandbox = Sandbox::new("pi-words");
    let pi = PiStore::of(&sandbox);
    let other = sandbox.home().join("other");
    let agent = shell(&sandbox, &[text(&put(&sandbox, "pi", "")), "--session-id", "one"]);
    drop(pi.session("one").asked("fix it"));
    drop(pi.session_in("two", &other).asked("elsewhere"));
    let seen = list(&sandbox);
    seen.expect("one", "working", Some(agent.pid()));
    assert_eq!(seen.unbound(), Vec::<i32>::new(), "{}", seen.text);
    // An id is one only within its directory.
    let stranger = shell(&sandbox, &[text(&put(&sandbox, "pi", "")), "--session-id", "two"]);
    assert_eq!(list(&sandbox).unbound(), [stranger.pid()]);
}

/// At its prompt, where a line is what a person typed and nothing else.
const READS_LINES: &str = r#"
    id=$2 dir=$HOME/.claude/projects/x
    mkdir -p "$dir" "$HOME/.claude/sessions"
    start=$(cut -d' ' -f22 /proc/$$/stat)
    echo "{\"pid\":$$,\"sessionId\":\"$id\",\"procStart\":\"$start\",\"status\":\"idle\"}" > "$HOME/.claude/sessions/$$.json"
    while read -r line; do
        printf '%s' "$line" > typed
        echo "{\"type\":\"user\",\"cwd\":\"$PWD\",\"sessionId\":\"$id\",\"message\":{\"role\":\"user\",\"content\":\"$(tr -d '\033' < typed)\"},\"timestamp\":\"$(date -u +%Y-%m-%dT%H:%M:%S.%3NZ)\"}" >> "$dir/$id.jsonl"
    done"#;

#[test]
fn who_did_not_ask_for_marked_pastes_is_given_plain_text() {
    let sandbox = Sandbox::new("plain");
    let claude = put(&sandbox, "claude", READS_LINES);
    sandbox.install("claude", &claude);
    let launched = ask(&sandbox, &["launch", "--json", "claude"]).json();
    let (handle, one) =
        (launched["handle"].as_str().expect("a handle"), launched["native_id"].as_str().expect("an id"));
    wait_until("its prompt", DEADLINE, || list(&sandbox).session(one)["status"] == json!("idle"));
    let sent = ask(&sandbox, &["send", handle, "the second thing"]);
    assert_eq!(sent.code(), 0, "{}", sent.stderr);
    assert_eq!(fs::read_to_string(sandbox.work().join("typed")).expect("what it read"), "the second thing");
    assert_eq!(ask(&sandbox, &["kill", handle]).code(), 0);
}

#[test]
fn a_script_in_its_package_is_told_by_where_it_lies() {
    let sandbox = Sandbox::new("packaged");
    let store = ClaudeStore::of(&sandbox);
    let package = put(&sandbox, "node_modules/@anthropic-ai/claude-code/cli.js", "");
    let folder = package.parent().expect("a folder").to_owned();
    // Behind the interpreter's own options.
    let one = shell(&sandbox, &["-u", text(&package), "--session-id", &id(1)]);
    drop(store.session(&id(1)).asked("fix it"));
    // By a path that does not say whose it is.
    let within = |args: &[&str]| sandbox.spawn(&sandbox.program("sh").args(args).cwd(&folder).stdin(Stdin::Pipe));
    let two = within(&["cli.js", "--session-id", &id(2)]);
    drop(store.session(&id(2)).asked("fix it"));
    // By a name that says nothing at all: its entry names it.
    let link = sandbox.root().join("scripts/cc");
    symlink(&package, &link).expect("a link");
    let three = shell(&sandbox, &[text(&link)]);
    drop(store.register(&three, &id(3)).says("busy"));
    drop(store.session(&id(3)).asked("fix it"));
    let pi = put(&sandbox, "pi-coding-agent/dist/bundle/cli.js", "");
    let four = shell(&sandbox, &["-u", text(&pi), "--session-id", "four"]);
    drop(PiStore::of(&sandbox).session("four").asked("fix it"));
    let gemini = put(&sandbox, "gemini-cli/dist/index.js", "");
    let five = shell(&sandbox, &["-u", text(&gemini), "--session-id", &id(5)]);
    drop(GeminiStore::of(&sandbox).session(&id(5)).asked("fix it"));
    // And another package's is none of them.
    let _other = shell(&sandbox, &[text(&put(&sandbox, "other/cli.js", "")), "--session-id", &id(6)]);
    drop(store.session(&id(6)).asked("fix it"));
    let seen = list(&sandbox);
    for (session, agent) in [(id(1), &one), (id(2), &two), (id(3), &three), ("four".to_owned(), &four), (id(5), &five)]
    {
        seen.expect(&session, "working", Some(agent.pid()));
    }
    seen.expect(&id(6), "interrupted", None);
    assert_eq!(seen.unbound(), Vec::<i32>::new(), "{}", seen.text);
}

#[test]
fn s09_whatever_agent_a_script_called_and_outlived_is_dead() {
    let sandbox = Sandbox::new("called");
    let gate = sandbox.root().join("gate");
    rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a FIFO");
    let thread = json!({"type": "thread.started", "thread_id": id(2)});
    for (name, says) in [("codex", format!("echo '{thread}'")), ("pi", ":".into()), ("gemini", ":".into())] {
        let native = sandbox.install_copy(&format!("native/{name}"), &lariat_testkit::built("lariat-lookalike"));
        let (path, gate) = (native.display(), gate.display());
        let called = format!("until [ \"$(readlink /proc/$!/exe)\" = '{path}' ]; do :; done");
        let script = format!("'{path}' \"$@\" <&0 &\n{called}\n{says}\nwait\nread x < '{gate}'");
        sandbox.install(name, &put(&sandbox, name, &script));
        let order = lariat(&sandbox, &["launch", name, "--headless", "-p", "fix it", "--json"]);
        let launching = sandbox.spawn(&order.env("LARIAT_TAKES", "up:60000"));
        let program = native.display().to_string();
        let called = || sandbox.processes().into_iter().find(|p| p.argv.first() == Some(&program));
        wait_until("the script has called it", DEADLINE, || called().is_some());
        let agent = called().expect("it lives");
        let given = agent.argv.iter().skip_while(|word| *word != "--session-id").nth(1);
        let native = given.cloned().unwrap_or_else(|| id(2));
        match name {
            "codex" => drop(CodexStore::of(&sandbox).thread(&native).asked("fix it")),
            "pi" => drop(PiStore::of(&sandbox).session(&native).asked("fix it")),
            _ => drop(GeminiStore::of(&sandbox).session(&native).asked("fix it")),
        }
        let launched = launching.output(DEADLINE).expect_success().json();
        assert_eq!(launched["native_id"], *native);
        assert_eq!(list(&sandbox).session(&native)["status"], "working");
        agent.signal(Signal::KILL);
        wait_until("it is gone", DEADLINE, || !sandbox.processes().iter().any(|p| p.pid == agent.pid));
        let seen = list(&sandbox);
        seen.expect(&native, "interrupted", None);
        let row = seen.session(&native);
        assert_eq!((&row["live"], &row["restorable"]), (&json!(false), &json!(true)), "{row:#}");
        assert_eq!(seen.unbound(), Vec::<i32>::new(), "{}", seen.text);
        let handle = launched["handle"].as_str().expect("a handle");
        let killed = ask(&sandbox, &["kill", handle, "--json"]).expect_success().json();
        assert_eq!(killed["ended"], json!([launched["pid"]]), "{killed}");
        list(&sandbox).expect(&native, "interrupted", None);
    }
}

#[test]
fn what_a_script_of_a_person_s_called_is_gone_though_the_script_stays() {
    let sandbox = Sandbox::new("called-by-hand");
    let native = sandbox.install_copy("native/claude", &lariat_testkit::built("lariat-lookalike"));
    let claude = put(&sandbox, "claude", &format!("'{}' \"$@\" < /dev/null &\nwait", native.display()));
    let script = shell(&sandbox, &[text(&claude), "--session-id", &id(1)]);
    let program = native.display().to_string();
    let called = || sandbox.processes().into_iter().find(|p| p.argv.first() == Some(&program));
    wait_until("the script has called it", DEADLINE, || called().is_some());
    let agent = called().expect("it lives");
    let store = ClaudeStore::of(&sandbox);
    let _entry = store.register_as(agent.pid, agent.outside, &id(1)).says("busy");
    drop(store.session(&id(1)).asked("fix it"));
    list(&sandbox).expect(&id(1), "working", Some(agent.pid));
    agent.signal(Signal::KILL);
    wait_until("it is gone", DEADLINE, || called().is_none());
    list(&sandbox).expect(&id(1), "interrupted", None);
    assert!(script.exit().is_none(), "the script stays");
}

#[test]
fn a_script_that_becomes_another_program_is_still_what_was_launched() {
    let sandbox = Sandbox::new("becomes");
    let became =
        |name: &str, first: &str| sandbox.install(name, &put(&sandbox, name, &format!("{first}exec sleep 1000")));
    let thread = format!("echo '{}'\n", json!({"type": "thread.started", "thread_id": id(2)}));
    for (name, first) in [("claude", ""), ("codex", thread.as_str()), ("pi", ""), ("gemini", "")] {
        became(name, first);
        let launched = ask(&sandbox, &["launch", name, "--headless", "-p", "fix it", "--json"]);
        let launched = launched.expect_success().json();
        let native = launched["native_id"].as_str().expect("an id");
        match name {
            "claude" => drop(ClaudeStore::of(&sandbox).session(native).asked("fix it")),
            "codex" => drop(CodexStore::of(&sandbox).thread(native).asked("fix it")),
            "pi" => drop(PiStore::of(&sandbox).session(native).asked("fix it")),
            _ => drop(GeminiStore::of(&sandbox).session(native).asked("fix it")),
        }
        let seen = list(&sandbox);
        seen.expect(native, "working", launched["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()));
        assert_eq!(seen.session(native)["handle"], launched["handle"]);
        let handle = launched["handle"].as_str().expect("a handle");
        let twice = ask(&sandbox, &["resume", handle, "--force"]);
        assert_eq!(twice.code(), 3, "{twice:?}");
        let killed = ask(&sandbox, &["kill", handle, "--json"]).json();
        assert_eq!(killed["ended"], json!([launched["pid"]]), "{killed}");
        list(&sandbox).expect(native, "stopped", None);
    }
}

#[test]
fn one_that_was_given_a_single_prompt_has_not_moved_on_when_it_lets_go_of_its_session() {
    let sandbox = Sandbox::new("lets-go");
    let thread = json!({"type": "thread.started", "thread_id": id(1)});
    sandbox.install("codex", &put(&sandbox, "codex", &format!("echo '{thread}'\nsleep 1000")));
    let launched = ask(&sandbox, &["launch", "codex", "--headless", "-p", "fix it", "--json"]);
    let launched = launched.expect_success().json();
    drop(CodexStore::of(&sandbox).thread(&id(1)).asked("fix it").answered("fixed"));
    let seen = list(&sandbox);
    seen.expect(&id(1), "idle", launched["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()));
    assert_eq!(seen.session(&id(1))["handle"], launched["handle"]);
    assert_eq!(seen.unbound(), Vec::<i32>::new(), "{}", seen.text);
    ask(&sandbox, &["kill", launched["handle"].as_str().expect("a handle")]).expect_success();
}

#[test]
fn who_has_written_over_its_environment_could_be_at_home_here() {
    let sandbox = Sandbox::new("overwritten");
    drop(PiStore::of(&sandbox).session("one").asked("fix it"));
    let titled = "$0 = 'pi'; open my $told, '>', 'titled'; close $told; sleep 1000";
    let agent = sandbox.spawn(&sandbox.program("perl").args(["-e", titled]));
    wait_until("its title", DEADLINE, || sandbox.work().join("titled").exists());
    let seen = list(&sandbox);
    assert_eq!(seen.unbound(), [agent.pid()], "{}", seen.text);
    seen.expect("one", "unknown", None);
}
