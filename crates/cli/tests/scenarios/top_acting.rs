//! What the keys of `lariat top` do: they run the verbs of the command line, and the terminal is given
//! back however it ends.

use std::path::Path;

use lariat_testkit::{DEADLINE, Sandbox, Signal, built, wait_for, wait_until};
use serde_json::Value;

use crate::asking::{ask, list};
use crate::chance::Chance;
use crate::tmux::{PROMPT, Pane};

fn stage(name: &str) -> Sandbox {
    let sandbox = Sandbox::new(name);
    sandbox.install_copy("claude", &built("lariat-actor"));
    sandbox
}

#[track_caller]
fn launch(sandbox: &Sandbox, project: &str, args: &[&str]) -> Value {
    let place = sandbox.project(project);
    let line = [&["launch", "claude", "--json", "--cwd", place.to_str().expect("UTF-8")], args].concat();
    let output = ask(sandbox, &line);
    assert_eq!(output.code(), 0, "{}", output.stderr);
    output.json()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().expect("text")
}

#[track_caller]
fn until(sandbox: &Sandbox, launched: &Value, status: &str) {
    let id = text(launched, "native_id");
    wait_until(&format!("{id} to be {status}"), DEADLINE, || {
        list(sandbox).find(id).is_some_and(|row| row["status"] == status)
    });
}

/// Waits until what it asks can be answered from elsewhere.
#[track_caller]
fn asked(sandbox: &Sandbox, launched: &Value) {
    wait_until("a hook that asks", DEADLINE, || {
        let seen = list(sandbox);
        let row = seen.find(text(launched, "native_id"));
        row.is_some_and(|r| r["because"].as_array().expect("because").iter().any(|o| o["witness"] == "hook"))
    });
}

/// The process of the screen.
fn top(sandbox: &Sandbox) -> lariat_testkit::world::Process {
    wait_for("lariat top", DEADLINE, || {
        let is = |p: &lariat_testkit::world::Process| p.state != 'Z' && p.argv.get(1).is_some_and(|a| a == "top");
        sandbox.processes().into_iter().find(is)
    })
}

#[test]
fn it_approves_denies_answers_and_replies() {
    let sandbox = stage("top-answers");
    let one = launch(&sandbox, "a", &["-p", "run touch made"]);
    asked(&sandbox, &one);
    let pane = Pane::new(&sandbox, 80, 24);
    pane.shell("lariat top");
    pane.wait("permission: Bash touch made");
    pane.text("y");
    let screen = pane.wait("? approve, for");
    assert!(screen.contains(&format!("lariat approve {}", text(&one, "handle"))), "{screen}");
    pane.text("y");
    pane.wait("approved: permission: Bash touch made");
    until(&sandbox, &one, "idle");
    assert!(sandbox.project("a").join("made").exists());
    pane.wait("1 idle");

    // Peek and reply: what is sent is shown by its transcript, and the answer to it comes by itself.
    pane.press(&["Space"]);
    pane.wait("say>");
    pane.text("run touch denied");
    pane.press(&["Enter"]);
    pane.wait("needs you: permission: Bash touch denied");
    asked(&sandbox, &one);
    pane.press(&["Escape"]);
    pane.wait("1 needs you");
    pane.text("N");
    pane.wait("? deny, for");
    pane.text("not here");
    pane.press(&["Enter"]);
    pane.wait("denied: permission: Bash touch denied");
    until(&sandbox, &one, "idle");
    assert!(!sandbox.project("a").join("denied").exists());
    pane.wait("Then I leave it (not here).");

    pane.press(&["Space"]);
    pane.wait("say>");
    pane.text("ask Which colour? Red | Blue");
    pane.press(&["Enter"]);
    pane.wait("answer>");
    asked(&sandbox, &one);
    pane.text("2");
    pane.press(&["Enter"]);
    pane.wait("You said: Blue");
    pane.wait("say>");
    pane.press(&["Escape", "q"]);
    pane.wait(PROMPT);
    assert_eq!(ask(&sandbox, &["kill", "--all", "--yes"]).code(), 0);
}

#[test]
fn it_launches_attaches_stops_and_resumes() {
    let sandbox = stage("top-launch");
    let place = sandbox.project("a");
    let pane = Pane::new(&sandbox, 80, 24);
    pane.shell(&format!("cd {} && clear && lariat top", place.display()));
    pane.wait("No agents here. n launches one.");
    pane.text("n");
    pane.wait("new session");
    pane.text("hello there");
    let screen = pane.wait("hello there'");
    assert!(screen.contains("< claude >") && screen.contains("work/a"), "{screen}");
    pane.press(&["Enter"]);
    pane.until("the new one, chosen", |s| s.contains("1 idle") && s.contains(">●"));
    let row = list(&sandbox).sessions()[0].clone();
    let (id, handle) = (text(&row, "native_id"), text(&row, "handle"));
    pane.wait("heard 2 words");

    pane.text("t");
    pane.wait("● I am a scripted agent");
    pane.press(&["Enter"]);
    pane.until("its terminal", |s| s.contains("a scripted actor") && s.contains("❯"));
    assert_eq!(pane.fact("alternate_on"), "0", "its terminal is not ours");
    pane.text("think 600");
    pane.press(&["Enter"]);
    pane.wait("esc to interrupt");
    pane.press(&["C-q"]);
    pane.until("the list again", |s| s.contains("1 working") && s.contains(&format!(">● {handle}")));
    assert_eq!(pane.fact("alternate_on"), "1");

    // What is typed on the way to another terminal is not for the list.
    pane.bytes(b"\rxx");
    pane.wait("esc to interrupt");
    pane.press(&["C-q"]);
    let screen = pane.until("the list again", |s| s.contains(&format!(">● {handle}")));
    assert!(!screen.contains("stop"), "{screen}");
    list(&sandbox).expect(id, "working", row["pid"].as_i64().and_then(|p| i32::try_from(p).ok()));

    pane.text("x");
    pane.wait("? stop");
    pane.press(&["Escape"]);
    pane.wait("nothing was done");
    // Two keys at once are not a question and its answer: nobody has seen the question.
    pane.bytes(b"xx");
    pane.wait("? stop");
    list(&sandbox).expect(id, "working", row["pid"].as_i64().and_then(|p| i32::try_from(p).ok()));
    pane.text("x");
    pane.until("its end", |s| s.contains("stopped") && s.contains("processes gone"));
    list(&sandbox).expect(id, "stopped", None);
    pane.text("a");
    pane.wait("stopped: ");
    pane.text("r");
    pane.wait("? resume");
    pane.press(&["Enter"]);
    pane.wait("1 idle");
    // The refusals are those of the command line.
    pane.text("r");
    pane.wait("? resume");
    pane.text("r");
    let screen = pane.wait("exit code 3");
    assert!(screen.contains("✗ resume"), "{screen}");
    pane.text("X");
    pane.wait("? kill");
    pane.text("X");
    pane.wait_gone("1 idle");
    list(&sandbox).expect(id, "stopped", None);
    pane.text("q");
    pane.wait(PROMPT);
}

#[test]
fn what_is_typed_into_a_line_never_becomes_a_command() {
    let sandbox = stage("top-typed");
    let one = launch(&sandbox, "a", &["-p", "run touch made"]);
    asked(&sandbox, &one);
    let (id, handle) = (text(&one, "native_id"), text(&one, "handle"));
    let pane = Pane::new(&sandbox, 80, 24);
    pane.shell("lariat top");
    pane.wait("permission: Bash touch made");
    pane.text("N");
    pane.wait("? deny, for");
    pane.text("why e");
    pane.wait("why not> why e");
    // Somebody else answers while the reason is typed.
    assert_eq!(ask(&sandbox, &["approve", handle]).code(), 0);
    pane.wait("what it asked has changed meanwhile");
    pane.text("xy");
    pane.wait("why not> why exy");
    pane.press(&["Enter"]);
    pane.wait("nothing was answered");
    let screen = pane.wait("why not> why exy");
    assert!(!screen.contains("? stop"), "{screen}");
    pane.press(&["Escape"]);
    pane.wait("nothing was done");
    until(&sandbox, &one, "idle");

    // One who leaves while it is answered leaves the line, too.
    pane.press(&["Space"]);
    pane.wait("say>");
    pane.text("one more");
    assert_eq!(ask(&sandbox, &["kill", handle]).code(), 0);
    pane.wait("the session is not there any more");
    pane.text(" xy");
    pane.wait("say> one more xy");
    pane.press(&["Enter"]);
    pane.wait("nothing was sent: the session is not there any more");
    pane.press(&["Escape"]);
    pane.wait("No agent runs here now");
    assert!(list(&sandbox).find(id).is_some_and(|row| row["status"] == "stopped"));
    pane.text("q");
    pane.wait(PROMPT);
}

#[test]
fn what_could_not_be_sent_stands_in_the_line_again() {
    let sandbox = stage("top-unsent");
    let one = launch(&sandbox, "a", &["-p", "think 600"]);
    until(&sandbox, &one, "working");
    let pane = Pane::new(&sandbox, 80, 24);
    pane.shell("lariat top");
    pane.wait("1 working");
    pane.press(&["Space"]);
    pane.wait("say>");
    pane.text("and mind the tests");
    pane.press(&["Enter"]);
    pane.wait("exit code 3");
    pane.wait("say> and mind the tests");
    pane.press(&["Escape"]);
    pane.wait("q quit");
    pane.text("q");
    pane.wait(PROMPT);
    assert_eq!(ask(&sandbox, &["kill", "--all", "--yes"]).code(), 0);
}

#[test]
fn it_shows_the_plan_and_restores() {
    let mut sandbox = stage("top-restore");
    let one = launch(&sandbox, "a", &["-p", "think 600"]);
    until(&sandbox, &one, "working");
    // Its own word comes before its conversation is on record.
    let recorded = |s: &Value| s["because"].as_array().is_some_and(|b| b.iter().any(|o| o["witness"] == "store"));
    wait_until("it is on record", DEADLINE, || list(&sandbox).sessions().iter().any(recorded));
    sandbox.reboot();
    // After a real reboot the first PID namespace is the same; a sandbox's next world has another, and an
    // entry of that could not be checked.
    std::fs::remove_dir_all(sandbox.home().join(".claude/sessions")).expect("the registry");
    let pane = Pane::new(&sandbox, 80, 24);
    pane.shell("lariat top");
    pane.wait("1 cut off");
    pane.text("R");
    for (columns, rows) in [(200, 50), (40, 15), (80, 24)] {
        pane.resize(columns, rows);
        let what = format!("the plan at {columns}x{rows}");
        let told = ["lariat  restore", "1 to bring back", text(&one, "handle"), "goes on with its conversation"];
        pane.until(&what, |s| told.iter().all(|t| s.replace('\n', " ").contains(t)));
    }
    assert!(list(&sandbox).sessions().iter().all(|s| s["live"] != true), "the plan is only shown");
    pane.press(&["Enter"]);
    pane.wait("is back");
    pane.press(&["Escape"]);
    pane.wait_gone("cut off");
    until(&sandbox, &one, "idle");
    assert_eq!(ask(&sandbox, &["kill", "--all", "--yes"]).code(), 0);
}

/// The terminal's settings, as `stty` tells them.
fn settings(pane: &Pane<'_>, sandbox: &Sandbox, name: &str) -> String {
    let file = sandbox.root().join(name);
    pane.shell(&format!("stty -a > {}", file.display()));
    wait_for("the settings", DEADLINE, || std::fs::read_to_string(&file).ok().filter(|s| s.contains("tostop")))
}

#[test]
fn the_terminal_is_given_back_however_it_ends() {
    let sandbox = stage("top-ends");
    let one = launch(&sandbox, "a", &[]);
    until(&sandbox, &one, "idle");
    let pane = Pane::new(&sandbox, 80, 24);
    let before = settings(&pane, &sandbox, "before");
    let checks = |how: &str, code: u8| {
        pane.shell(&format!("echo status $? {how}"));
        pane.wait(&format!("status {code} {how}"));
        assert_eq!(settings(&pane, &sandbox, &format!("after-{how}")), before, "{how}");
        for fact in ["alternate_on", "mouse_any_flag"] {
            assert_eq!(pane.fact(fact), "0", "{how}: {fact}");
        }
        assert_eq!(pane.fact("cursor_flag"), "1", "{how}");
    };
    for (how, signal, code) in [("term", Signal::TERM, 143), ("hup", Signal::HUP, 129), ("int", Signal::INT, 130)] {
        pane.shell("clear; lariat top");
        pane.wait("1 idle");
        assert_eq!(pane.fact("alternate_on"), "1");
        assert!(top(&sandbox).signal(signal));
        pane.until("the shell again", |s| s.contains(PROMPT) && !s.contains("1 idle"));
        checks(how, code);
    }
    // While it shows another terminal, too.
    pane.shell("clear; lariat top");
    pane.wait("1 idle");
    pane.press(&["Enter"]);
    pane.wait("a scripted actor");
    assert!(top(&sandbox).signal(Signal::TERM));
    pane.until("the shell again", |s| s.contains(PROMPT));
    checks("attached", 143);
    until(&sandbox, &one, "idle");

    // Suspended and brought back, by the key and by a signal.
    for suspend in ["key", "signal"] {
        pane.shell("clear; lariat top");
        pane.wait("1 idle");
        match suspend {
            "key" => pane.press(&["C-z"]),
            _ => assert!(top(&sandbox).signal(Signal::TSTP)),
        }
        pane.until("the shell again", |s| s.contains(PROMPT) && !s.contains("1 idle"));
        assert_eq!(pane.fact("alternate_on"), "0");
        pane.shell("fg");
        pane.wait("1 idle");
        assert_eq!(pane.fact("alternate_on"), "1");
        pane.text("q");
        pane.until("the shell again", |s| s.contains(PROMPT) && !s.contains("1 idle"));
        checks(suspend, 0);
    }
    assert_eq!(ask(&sandbox, &["kill", "--all", "--yes"]).code(), 0);
}

#[test]
fn no_sequence_of_keys_breaks_it() {
    let sandbox = stage("top-soak");
    for (n, args) in [&["-p", "run touch made"][..], &["-p", "think 600"], &["-p", "hello"]].iter().enumerate() {
        launch(&sandbox, &format!("p{n}"), args);
    }
    let pane = Pane::new(&sandbox, 80, 24);
    pane.shell("lariat top 2>/tmp/complaints; echo code $?");
    pane.wait("lariat");
    // Not Ctrl-C, Ctrl-Z and q, which leave. Enter may attach, and Ctrl-Q comes back from there.
    let keys: [&[u8]; 43] = [
        b"j",
        b"k",
        b"g",
        b"G",
        b".",
        b"\t",
        b" ",
        b"t",
        b"J",
        b"K",
        b"y",
        b"N",
        b"n",
        b"r",
        b"f",
        b"x",
        b"X",
        b"R",
        b"e",
        b"l",
        b"w",
        b"!",
        b"a",
        b"/",
        b"c",
        b"?",
        b"\x1b[A",
        b"\x1b[B",
        b"\x1b[5~",
        b"\x1b[6~",
        b"\x1b[<0;5;5M",
        b"\x1b[<64;5;5M",
        b"\x1b[<65;60;20M",
        b"\x1b[Z",
        b"\x7f",
        b"\x0c",
        b"\xc3\xa9",
        b"\x1b[200~s:id\x1b[201~",
        b"\x1b[99;1x",
        b"\x1b",
        b"\r",
        b"\x11",
        b"\x11",
    ];
    let mut chance = Chance::new();
    for round in 0..30 {
        let mut bytes = Vec::new();
        for _ in 0..100 {
            bytes.extend_from_slice(keys[chance.below(keys.len())]);
        }
        pane.bytes(&bytes);
        if round % 6 == 0 {
            let (columns, rows) = [(80, 24), (200, 50), (40, 15), (20, 5), (2, 2)][round / 6];
            pane.resize(columns, rows);
        }
        assert!(!pane.screen().contains("panicked"), "{}", pane.screen());
    }
    pane.resize(80, 24);
    let running = |p: &lariat_testkit::world::Process| p.state != 'Z' && p.argv.get(1).is_some_and(|a| a == "top");
    assert!(sandbox.processes().iter().any(running), "it is still there:\n{}", pane.screen());
    // It may show anything by now, another terminal even; from everywhere these lead out.
    wait_until("it is left", DEADLINE, || {
        pane.press(&["C-q"]);
        pane.press(&["C-c"]);
        pane.screen().contains("code 0")
    });
    assert_eq!(pane.fact("alternate_on"), "0");
    let complaints = std::fs::read_to_string(sandbox.root().join("tmp/complaints")).expect("its complaints");
    assert!(!complaints.contains("panicked"), "{complaints}");
    // What it attached to may have drawn where the shell stands now.
    pane.shell("clear; echo usable");
    pane.until("a usable shell", |s| s.lines().any(|line| line == "usable"));
    assert_eq!(ask(&sandbox, &["kill", "--all", "--yes"]).code(), 0);
    assert!(Path::new(&sandbox.home()).exists());
}
