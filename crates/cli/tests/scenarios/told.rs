//! What the command line tells of what it did not do: to a terminal nothing that acts, to a program one shape.

use lariat_testkit::{Sandbox, built};
use serde_json::{Value, json};

use crate::asking::{ask, through};
use crate::worktrees;

#[test]
fn nothing_that_an_error_quotes_acts() {
    let sandbox = Sandbox::new("usage-hostile");
    let bad = "\x1b[31mfoo\x1b]52;c;aGk=\x07\u{202e}\u{200b}\u{2066}\u{e0041}\u{9b}\rX";
    let lines = [
        &[bad][..],
        &["completions", bad],
        &["daemon", bad],
        &["ls", bad],
        &["ls", &format!("--{bad}")],
        &["ls", "--status", bad],
        &["ls", "--agent", bad],
        &["usage", "--since", bad],
        &["attach", "x", "--detach", bad],
        &["wait", "x", "--timeout", bad],
        &["peek", "x", "-n", bad],
    ];
    for args in lines {
        for args in [args.to_vec(), [args, &["--json"]].concat()] {
            let said = ask(&sandbox, &args);
            assert_eq!(said.code(), 2, "{args:?}: {said:?}");
            let acts = |c: char| c != '\n' && lariat_core::Untrusted::new(c.to_string()).row() != c.to_string();
            let acting: Vec<char> = said.stderr.chars().chain(said.stdout.chars()).filter(|c| acts(*c)).collect();
            assert!(acting.is_empty(), "{args:?}: {acting:?} {said:?}");
            // And it is not lost: what was typed can be seen.
            assert!(said.stderr.contains("foo"), "{args:?}: {said:?}");
        }
    }
    let said = ask(&sandbox, &["\x1b[31mfoo"]);
    assert!(said.stderr.contains(r"'\x1b[31mfoo'"), "{said:?}");
    // What is no text, neither.
    for args in [&[][..], &["ls", "--agent"], &["completions"]] {
        let said = through(&sandbox, r#"exec "$@" "$(printf '\377\033[31m\233foo')""#, args);
        assert!(said.code() == 2 && !said.stderr.contains(['\x1b', '\u{9b}']), "{said:?}");
    }
}

#[test]
fn the_verb_help_has_help_too() {
    let sandbox = Sandbox::new("help-help");
    for args in [&["help", "--help"][..], &["help", "-h"], &["help", "ls", "--help"], &["worktree", "help", "--help"]] {
        let said = ask(&sandbox, args);
        assert_eq!((said.code(), said.stderr.as_str()), (0, ""), "{args:?}: {said:?}");
        assert!(said.stdout.contains("Usage: lariat"), "{args:?}: {said:?}");
    }
    assert_eq!(ask(&sandbox, &["help", "--hepl"]).code(), 2);
}

/// Whoever asked for JSON has something to read, also of nothing.
#[test]
fn of_nothing_an_object_tells_too() {
    let sandbox = Sandbox::new("told-nothing");
    let killed = ask(&sandbox, &["kill", "--all", "--yes", "--json"]);
    assert_eq!((killed.code(), killed.json()), (0, json!({"schema": 1, "ids": []})));
    let cleaned = ask(&sandbox, &["worktree", "clean", "--json"]);
    assert_eq!((cleaned.code(), cleaned.json()), (0, json!({"schema": 1, "worktrees": [], "warnings": []})));
}

/// What shows a screen has nothing for a program, and says so.
#[test]
fn what_shows_a_screen_refuses_json() {
    let sandbox = worktrees::with_agent("told-screens");
    let one = worktrees::launch(&sandbox, &["--worktree"]).handle;
    for args in [&["demo"][..], &["demo", "--tour"], &["attach", &one], &["attach", &one, "--watch"], &["top"]] {
        let said = ask(&sandbox, &[args, &["--json"]].concat());
        assert_eq!((said.code(), &said.json()["error"]["code"]), (2, &json!(2)), "{args:?}: {said:?}");
        assert!(said.stderr.contains("people") || said.stderr.contains("programs"), "{args:?}: {said:?}");
    }
}

/// What fails beside other things that can be told is told as every failure is, and those stay.
#[test]
fn a_failure_that_has_more_to_tell_has_the_shape_of_all() {
    let sandbox = Sandbox::new("told-failures");
    sandbox.install_copy("claude", &built("lariat-actor"));
    let place = sandbox.project("a");
    let place = place.to_str().expect("UTF-8");
    let launched = ask(&sandbox, &["launch", "claude", "--json", "--cwd", place, "-p", "think 600"]).json();
    let handle = launched["handle"].as_str().expect("a handle");
    let sent = ask(&sandbox, &["send", handle, "hi", "--json"]);
    let told = sent.json();
    assert_eq!((sent.code(), &told["outcome"], &told["id"]), (3, &json!("busy"), &launched["id"]), "{sent:?}");
    is_failure(&told, 3, &sent.stderr);
    assert_eq!(ask(&sandbox, &["kill", "--all", "--yes"]).code(), 0);
    let sent = ask(&sandbox, &["send", handle, "hi", "--json"]);
    is_failure(&sent.json(), 3, &sent.stderr);
}

#[test]
fn a_worktree_that_stays_is_such_a_failure() {
    let sandbox = worktrees::with_agent("told-worktree");
    let one = worktrees::launch(&sandbox, &["--worktree"]);
    let kept = ask(&sandbox, &["worktree", "clean", &one.handle, "--json"]);
    let told = kept.json();
    assert_eq!((kept.code(), &told["outcome"]), (3, &json!("preserved")), "{kept:?}");
    is_failure(&told, 3, &kept.stderr);
    // Whoever named none has all that may go gone.
    let all = ask(&sandbox, &["worktree", "clean", "--json"]);
    assert_eq!((all.code(), &all.json()["outcome"], all.json().get("error")), (0, &json!("preserved"), None));
    worktrees::end(&sandbox, &one);
}

/// Whether an answer has the shape that every failure has.
#[track_caller]
fn is_failure(told: &Value, code: u8, stderr: &str) {
    assert_eq!((&told["schema"], &told["error"]["code"]), (&json!(1), &json!(code)), "{told} {stderr}");
    let text = told["error"]["text"].as_str().expect("a text");
    assert!(!text.is_empty() && stderr.contains(text), "{told} {stderr}");
}
