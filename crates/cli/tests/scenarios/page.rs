//! The page in a real browser: `web/tests`, each file of it in a sandbox that holds what it tells of.
//!
//! A test here makes the world and starts the daemon; then Node drives Chromium inside that same world, asks the
//! same `lariat`, and fails if anything is not as it says. What the browser may not find on this machine
//! (`make test` installs it) fails too: a page nobody has looked at is no page.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lariat_testkit::{DEADLINE, Sandbox, built, put_program, wait_until, workspace};
use serde_json::json;

use crate::asking::{ask, id};
use crate::claude_store::ClaudeStore;
use crate::moment::now;

/// Where to take pictures into, if they are wanted.
pub const PICTURES: &str = "LARIAT_PICTURES";

/// How long a whole file of browser tests may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A tool that takes its time.
const SUITE: &str = "#!/bin/sh\necho 'step 1'\nexec tail -f /dev/null\n";

/// A sandbox whose `claude` is the scripted agent.
fn stage(name: &str) -> Sandbox {
    let sandbox = Sandbox::new(name);
    sandbox.install_copy("claude", &built("lariat-actor"));
    sandbox
}

/// HOME as seen from inside: where pictures are taken it is elsewhere, so that paths read like anybody's.
fn home(sandbox: &Sandbox) -> PathBuf {
    if std::env::var_os(PICTURES).is_none() {
        return sandbox.home();
    }
    let there = Path::new("/srv");
    if !sandbox.run(["test", "-d", "/srv/work"]).exit.success() {
        let home = sandbox.home();
        sandbox.run([Path::new("mount"), Path::new("--bind"), &home, there]).expect_success();
        sandbox.env("HOME", there);
    }
    there.to_owned()
}

/// Launches one in a project of its own name, and waits for a word of its status.
#[track_caller]
fn launch(sandbox: &Sandbox, name: &str, args: &[&str], state: &str) {
    sandbox.project(name);
    let place = home(sandbox).join("work").join(name);
    let place = place.to_str().expect("UTF-8");
    ask(sandbox, &[&["launch", "claude", "--name", name, "--cwd", place], args].concat()).expect_success();
    wait_until(&format!("{name} to be {state:?}"), DEADLINE, || ask(sandbox, &["status", name]).stdout.contains(state));
}

/// Runs one file of `web/tests` in the sandbox.
#[track_caller]
fn browse(sandbox: &Sandbox, file: &str) {
    ask(sandbox, &["daemon", "start", "--http", "0"]).expect_success();
    let tests = workspace().join("web/tests");
    assert!(workspace().join("web/node_modules").is_dir(), "web/node_modules is missing: run `make web`");
    let mut node = sandbox.program("node").arg("--test-reporter=spec").arg(tests.join(file)).cwd(sandbox.home());
    for name in ["LARIAT_CHROMIUM", "LARIAT_BROWSER_DEADLINE", PICTURES] {
        if let Some(value) = std::env::var_os(name) {
            node = node.env(name, Path::new(&value));
        }
    }
    let output = sandbox.spawn(&node).output(PATIENCE);
    assert!(output.exit.success(), "{file}: {:?}\n{}\n{}", output.exit, output.stdout, output.stderr);
    assert!(output.stdout.contains("pass "), "no test ran: {}", output.stdout);
    println!("{}", output.stdout);
}

/// A session of each kind: one that was cut off, two that need a person, one at work, one idle, one ended.
pub fn a_day(name: &str) -> Sandbox {
    let sandbox = stage(name);
    for project in ["migration", "release", "orders", "parser", "triage", "notes", "mine"] {
        sandbox.project(project);
    }
    for project in ["migration", "parser"] {
        for tool in ["suite", "migrate"] {
            let path = sandbox.project(project).join(tool);
            put_program(&path, SUITE);
        }
    }
    launch(&sandbox, "migration", &["-p", "Write the addresses migration"], "running Bash ./migrate");
    let pid = ask(&sandbox, &["status", "migration", "--json"]).json()["pid"].to_string();
    sandbox.run(["kill", "-KILL", &pid]).expect_success();
    wait_until("it is cut off", DEADLINE, || ask(&sandbox, &["ls"]).stdout.contains("1 cut off"));
    launch(&sandbox, "release", &["-p", "Prepare release 1.4"], "permission: Bash git tag v1.4.0");
    launch(&sandbox, "orders", &["-p", "Move the orders API to v2"], "question: Keep");
    launch(&sandbox, "parser", &["-p", "Let the parser accept trailing commas"], "running Bash ./suite");
    launch(&sandbox, "triage", &["-p", "Summarise the open issues by theme"], "idle:");
    launch(&sandbox, "notes", &["--headless", "-p", "Draft the release notes"], "done:");
    fs::write(sandbox.project("parser").join("README.md"), "# parser\nLists, and trailing commas.\n")
        .expect("a change that is not committed");
    for name in ["release", "orders"] {
        // Until then it can only be answered in its own terminal.
        wait_until("its hook to ask", DEADLINE, || ask(&sandbox, &["explain", name]).stdout.contains("  hook "));
    }
    sandbox
}

#[test]
fn a_person_sees_answers_launches_types_stops_and_restores() {
    let sandbox = a_day("page");
    let settings = sandbox.home().join(".config/lariat");
    fs::create_dir_all(&settings).expect("a folder");
    let price = "[[price]]\nmodel = \"claude-opus-5-5\"\ninput = 2.0\noutput = 8.0\n";
    fs::write(settings.join("config.toml"), price).expect("a price");
    browse(&sandbox, "fleet.test.mjs");
}

#[test]
fn nobody_gets_in_who_may_not() {
    browse(&stage("door"), "door.test.mjs");
}

#[test]
fn whoever_takes_the_port_hears_nothing_of_use() {
    let sandbox = stage("squat");
    launch(&sandbox, "triage", &["-p", "hello"], "idle:");
    browse(&sandbox, "squat.test.mjs");
}

#[test]
fn an_answer_is_for_what_was_shown() {
    let sandbox = stage("meant");
    for project in ["eta", "zeta"] {
        sandbox.project(project);
    }
    launch(&sandbox, "alpha", &["-p", "hello"], "idle:");
    launch(&sandbox, "beta", &["-p", "hello"], "idle:");
    launch(&sandbox, "gamma", &["-p", "run touch first"], "permission: Bash touch first");
    wait_until("its hook to ask", DEADLINE, || ask(&sandbox, &["explain", "gamma"]).stdout.contains("  hook "));
    browse(&sandbox, "meant.test.mjs");
}

#[test]
fn every_view_can_be_read_by_everybody() {
    browse(&a_day("looks"), "looks.test.mjs");
}

#[test]
fn two_thousand_sessions_are_listed() {
    let sandbox = stage("many");
    let claude = ClaudeStore::of(&sandbox);
    let began = now() - 3_000_000;
    for n in 0..2000_u32 {
        let asked = format!("number {n} of two thousand");
        let talk = claude.session(&id(u64::from(n) + 1)).at(began + i64::from(n) * 1000);
        drop(talk.asked(&asked).answered("Done.").left());
    }
    launch(&sandbox, "busy-one", &["-p", "hello"], "idle:");
    browse(&sandbox, "many.test.mjs");
}

/// What a page could be fooled with.
const HOSTILE: &str = "<script>window.pwned=1</script> <img src=x onerror=window.pwned=1> \
    [click me](javascript:window.pwned=1) [data](data:text/html,<script>window.pwned=1</script>) \
    <a href=\"javascript:window.pwned=1\">x</a> <iframe srcdoc='<script>parent.pwned=1</script>'></iframe> \
    </pre><script>window.pwned=1</script> {@html '<b>'} \u{202e}txet\u{2066} \x1b[2J\x1b]0;pwned\x07 \u{9b}31m \
    ![i](https://example.invalid/i.png) [the docs](https://example.invalid/docs?from=agent)";

#[test]
fn what_an_agent_writes_does_nothing() {
    let sandbox = Sandbox::new("page-hostile");
    let claude = ClaudeStore::of(&sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    sandbox.install_copy("claude", &built("lariat-actor"));
    let entry = claude.register(&agent, &id(1)).says("busy");
    let talk = claude.session(&id(1)).on_branch(HOSTILE).by_model(HOSTILE).asked(HOSTILE);
    let pile = |piece: &str, times: usize| format!("{}\n\n{HOSTILE}", piece.repeat(times));
    let talk = [
        ("**", 50_000),
        ("[", 50_000),
        ("](", 50_000),
        ("`", 50_000),
        ("> ", 20_000),
        ("- ", 20_000),
        ("|-", 20_000),
        ("_x", 50_000),
        ("huge ", 400_000),
        ("<b>\n", 20_000),
    ]
    .into_iter()
    .fold(talk, |talk, (piece, times)| talk.answered(&pile(piece, times)));
    let talk = talk.calls(HOSTILE, json!({"command": HOSTILE, HOSTILE: [HOSTILE]})).result(HOSTILE);
    let talk = talk.answered(&format!("# {HOSTILE}\n\n> {HOSTILE}\n\n- {HOSTILE}\n\n|a|b|\n|-|-|\n|{HOSTILE}|x|\n\n```\n{HOSTILE}\n```\n\nthe end of it"));
    drop(talk.named(HOSTILE).calls("Bash", json!({"command": HOSTILE})));
    launch(&sandbox, "evil", &["-p", "hello", "--", "--allowedTools=Bash"], "idle:");
    browse(&sandbox, "hostile.test.mjs");
    drop(entry);
}
