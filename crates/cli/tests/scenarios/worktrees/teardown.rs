//! Whoever comes in while a worktree is taken down: nothing is lost, and nobody who only looks is taken for one who works
//! there.

use std::fs;

use lariat_testkit::{DEADLINE, wait_until};

use super::{clean, end, hold, launch, put, with_agent};
use crate::asking::{ask, lariat};

#[test]
fn s32_what_is_written_during_teardown_is_not_lost() {
    for point in ["worktree.captured", "worktree.imported", "worktree.saved"] {
        let sandbox = with_agent("s32");
        let repo = sandbox.work();
        let one = launch(&sandbox, &["--worktree"]);
        put(&one.path.join("early"), "early\n");
        end(&sandbox, &one);
        let held = hold(&sandbox, &["worktree", "clean", &one.handle, "--force", "--json"], point);
        put(&one.path.join("late/file"), "late\n");
        put(&one.path.join("early"), "later\n");
        let (code, removed) = held.go_on();
        assert_eq!((code, &removed["outcome"]), (0, &"removed".into()), "{point}: {removed:#}");
        let name = removed["saved"].as_str().expect("a name");
        let content = |path: &str| sandbox.git(&repo, &["cat-file", "blob", &format!("{name}:{path}")]);
        assert_eq!((content("late/file"), content("early")), ("late\n".into(), "later\n".into()), "{point}");
        assert_eq!(ask(&sandbox, &["worktree", "apply", &one.handle]).code(), 0);
        assert_eq!(fs::read(one.path.join("late/file")).expect("given back"), b"late\n");
    }
}

#[test]
fn s32_a_clean_worktree_that_is_written_to_meanwhile_stays() {
    for point in ["worktree.captured", "worktree.moved", "worktree.verified"] {
        let sandbox = with_agent("s32b");
        let one = launch(&sandbox, &["--worktree"]);
        end(&sandbox, &one);
        let held = hold(&sandbox, &["worktree", "clean", &one.handle, "--json"], point);
        let going = one.path.with_file_name(format!(".{}.going", one.handle));
        let place = if going.exists() { going } else { one.path.clone() };
        put(&place.join("README.md"), "changed\n");
        put(&place.join("late"), "late\n");
        let (code, removed) = held.go_on();
        assert_eq!((code, &removed["outcome"]), (3, &"preserved".into()), "{point}: {removed:#}");
        assert_eq!(fs::read(one.path.join("late")).expect("kept"), b"late\n", "{point}");
        assert_eq!(fs::read(one.path.join("README.md")).expect("kept"), b"changed\n", "{point}");
        // It is an ordinary worktree again.
        let (code, removed) = clean(&sandbox, &[&one.handle, "--force"]);
        assert_eq!((code, &removed["outcome"]), (0, &"removed".into()), "{point}: {removed:#}");
    }
}

#[test]
fn a_look_at_a_worktree_is_not_taken_for_somebody_in_it() {
    let sandbox = with_agent("looking");
    let one = launch(&sandbox, &["--worktree"]);
    end(&sandbox, &one);
    let looks = hold(&sandbox, &["worktree", "ls", "--json"], "worktree.looking");
    let passed = sandbox.root().join("streams/asking");
    let program = lariat(&sandbox, &["worktree", "clean", &one.handle, "--json"]);
    let removes = sandbox.spawn(&program.env("LARIAT_POINTS", &passed));
    wait_until("it is about to ask who is there", DEADLINE, || {
        fs::read_to_string(&passed).is_ok_and(|p| p.lines().any(|l| l == "worktree.asking"))
    });
    let (_, listed) = looks.go_on();
    assert_eq!(listed["worktrees"][0]["handle"], one.handle.as_str(), "{listed:#}");
    let removed = removes.output(DEADLINE);
    assert_eq!(removed.json()["outcome"], "removed", "{removed:?}");
    assert!(!one.path.exists());
}

#[test]
fn a_look_that_was_stopped_holds_up_nobody_for_good() {
    let sandbox = with_agent("stopped");
    let one = launch(&sandbox, &["--worktree"]);
    end(&sandbox, &one);
    let looks = hold(&sandbox, &["worktree", "ls", "--json"], "worktree.looking");
    let (code, removed) = clean(&sandbox, &[&one.handle]);
    assert_eq!((code, &removed["outcome"]), (3, &"preserved".into()), "{removed:#}");
    assert!(removed["reason"].as_str().is_some_and(|r| r.contains("(lariat)")), "it is told: {removed:#}");
    looks.go_on();
    let (code, removed) = clean(&sandbox, &[&one.handle]);
    assert_eq!((code, &removed["outcome"]), (0, &"removed".into()), "{removed:#}");
}

#[test]
fn s32_what_is_written_where_it_was_is_left_alone() {
    for point in ["worktree.verified", "worktree.deleted"] {
        let sandbox = with_agent("s32d");
        let one = launch(&sandbox, &["--worktree"]);
        end(&sandbox, &one);
        let held = hold(&sandbox, &["worktree", "clean", &one.handle, "--json"], point);
        put(&one.path.join("late"), "late\n");
        let (code, removed) = held.go_on();
        assert_eq!((code, &removed["outcome"]), (0, &"removed".into()), "{point}: {removed:#}");
        assert_eq!(fs::read(one.path.join("late")).expect("left alone"), b"late\n", "{point}");
        assert!(!one.path.join("README.md").exists(), "{point}");
    }
}

#[test]
fn s32_whoever_gets_in_at_the_last_moment_keeps_it() {
    let sandbox = with_agent("s32c");
    let one = launch(&sandbox, &["--worktree"]);
    end(&sandbox, &one);
    let held = hold(&sandbox, &["worktree", "clean", &one.handle, "--json"], "worktree.captured");
    let other = sandbox.lookalike("editor", &[]);
    other.tell(&format!("chdir {}", one.path.display()));
    let (code, removed) = held.go_on();
    assert_eq!((code, &removed["outcome"]), (3, &"preserved".into()), "{removed:#}");
    assert!(removed["reason"].as_str().expect("why").contains("editor"), "{removed:#}");
    assert!(one.path.join("README.md").exists());
}
