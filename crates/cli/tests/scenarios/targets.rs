//! Which session a person means: scenario 19, for every verb that takes a target.

use lariat_testkit::Sandbox;

use crate::{
    asking::{ask, id},
    claude_store::ClaudeStore,
    codex_store::CodexStore,
};

const ONE: &str = "aaaa1111-1111-4111-8111-111111111111";
const TWO: &str = "aaaa2222-1111-4111-8111-111111111111";
const THREE: &str = "bbbb3333-1111-7111-8111-111111111111";

const VERBS: [&[&str]; 4] = [&["status"], &["explain"], &["peek"], &["peek", "-n", "3"]];

fn three() -> Sandbox {
    let sandbox = Sandbox::new("targets");
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    claude.session(ONE).asked("first thing").answered("first answer").left();
    let other = sandbox.project("other");
    claude.session_in(TWO, &other).asked("second thing").answered("second answer").left();
    let third = sandbox.project("third");
    codex.thread_in(THREE, &third).asked("third thing").answered("third answer");
    codex.name(THREE, "the-third");
    sandbox
}

#[test]
fn s19_a_shared_prefix_is_an_error_that_lists_both() {
    let sandbox = three();
    for verb in VERBS {
        for json in [&[][..], &["--json"]] {
            let said = ask(&sandbox, &[verb, &["aaaa"], json].concat());
            assert_eq!(said.code(), 2, "{verb:?}: {said:?}");
            assert!(said.stderr.contains(ONE) && said.stderr.contains(TWO), "{verb:?}: {said:?}");
            assert!(!said.stderr.contains(THREE), "{verb:?}: {said:?}");
            if json.is_empty() {
                assert_eq!(said.stdout, "", "{verb:?}");
            } else {
                let error = &said.json()["error"];
                let text = error["text"].as_str().expect("a text");
                assert_eq!(error["code"], 2, "{verb:?}: {said:?}");
                assert!(text.contains(ONE) && text.contains(TWO) && !text.contains(THREE), "{verb:?}: {said:?}");
            }
        }
    }
    // Beside a target that is one: still an error, and nothing half said.
    let said = ask(&sandbox, &["status", THREE, "aaaa"]);
    assert_eq!((said.code(), said.stdout.as_str()), (2, ""), "{said:?}");
}

#[test]
fn one_session_by_every_name_it_has() {
    let sandbox = three();
    let third = sandbox.project("third");
    let third = third.to_str().expect("UTF-8");
    let full = format!("codex:{THREE}");
    for verb in VERBS {
        for target in [THREE, full.as_str(), "bbbb", "codex:bbbb", "the-third", third] {
            let said = ask(&sandbox, &[verb, &[target]].concat());
            assert_eq!(said.code(), 0, "{verb:?} {target}: {said:?}");
            assert!(said.stdout.contains(THREE), "{verb:?} {target}: {said:?}");
        }
    }
    // `.` is where one stands.
    let said = ask(&sandbox, &["status", "."]);
    assert!(said.stdout.contains(ONE), "{said:?}");
    let peeked = ask(&sandbox, &["peek", "bbbb"]);
    assert!(peeked.stdout.contains("third answer"), "{peeked:?}");
}

#[test]
fn what_fits_nothing_is_said_so() {
    let sandbox = three();
    for verb in VERBS {
        for target in ["cccc", "", "no-such-name", "/no/such/place", "%"] {
            let said = ask(&sandbox, &[verb, &[target]].concat());
            assert_eq!(said.code(), 2, "{verb:?} {target:?}: {said:?}");
            assert!(!said.stderr.is_empty() && said.stdout.is_empty(), "{verb:?}: {said:?}");
        }
    }
}

#[test]
fn an_id_beats_a_name_that_imitates_it() {
    let sandbox = three();
    // Agents choose names; nobody may take another's id away by choosing it.
    CodexStore::of(&sandbox).name(THREE, ONE);
    for verb in VERBS {
        let said = ask(&sandbox, &[verb, &[ONE]].concat());
        assert_eq!(said.code(), 0, "{verb:?}: {said:?}");
        assert!(said.stdout.contains(&format!("claude:{ONE}")), "{verb:?}: {said:?}");
    }
}

/// Ids that begin with the time are alike for their first letters. What the list shows of one means that one.
#[test]
fn what_the_list_shows_of_an_id_means_one_session() {
    let sandbox = Sandbox::new("alike");
    let codex = CodexStore::of(&sandbox);
    let ids = ["01a1de2c-a4ef-7111", "01a1de2c-ab60-7111", "01a1de2c-ab60-7112", "01b00000-0000-7111"];
    let ids = ids.map(|start| format!("{start}-8111-000000000001"));
    ids.iter().for_each(|id| drop(codex.thread(id).asked("hello").answered("hi")));
    let shown = ask(&sandbox, &["ls", "-a"]).stdout;
    let rows = shown.lines().filter_map(|line| line.strip_prefix(" ○ "));
    let mut names: Vec<&str> = rows.filter_map(|row| row.split_whitespace().next()).collect();
    names.sort_unstable();
    assert_eq!(names, ["01a1de2c-a4", "01a1de2c-ab60-7111", "01a1de2c-ab60-7112", "01b00000"], "{shown}");
    for (name, id) in names.iter().zip(&ids) {
        assert_eq!(ask(&sandbox, &["status", name, "--json"]).json()["native_id"], *id);
    }
}

/// A store may call a directory by a link that leads there.
#[test]
fn a_directory_has_several_names() {
    let sandbox = Sandbox::new("links");
    let (real, link) = (sandbox.project("real"), sandbox.root().join("link"));
    std::os::unix::fs::symlink(&real, &link).expect("a link");
    drop(ClaudeStore::of(&sandbox).session_in(&id(1), &link).asked("hello").answered("hi"));
    for target in [real.join("."), real, link.join("."), link] {
        let told = ask(&sandbox, &["status", target.to_str().expect("UTF-8"), "--json"]);
        assert_eq!(told.json()["native_id"], id(1), "{}: {told:?}", target.display());
    }
    assert_eq!(ask(&sandbox, &["status", "/", "--json"]).code(), 2);
}

#[test]
fn a_name_that_another_has_is_refused() {
    let sandbox = three();
    let refused = ask(&sandbox, &["rename", ONE, "the-third"]);
    assert_eq!(refused.code(), 3, "{refused:?}");
    assert!(refused.stderr.contains(THREE) && refused.stderr.contains("already"), "{refused:?}");
    // Its own name it may have again.
    ask(&sandbox, &["rename", THREE, "the-third"]).expect_success();
}
