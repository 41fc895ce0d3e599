//! Worktrees and lariat killed at every step: scenario 35, and removals and givings back that were
//! cut short.

use std::fs;
use std::path::Path;

use lariat_testkit::{Exit, Sandbox};

use crate::asking::{ask, lariat, list};
use crate::worktrees::{Files, Launched, clean, end, launch, put, saved, tree, with_agent};

/// Every point that a command passes, each once, in order.
fn points(sandbox: &Sandbox, args: &[&str]) -> Vec<String> {
    let passed = sandbox.root().join("streams/points");
    let output = sandbox.world().run(&lariat(sandbox, args).env("LARIAT_POINTS", &passed));
    assert_eq!(output.code(), 0, "{}", output.stderr);
    let mut points: Vec<String> = Vec::new();
    for point in fs::read_to_string(&passed).expect("points").lines() {
        if !points.iter().any(|p| p == point) {
            points.push(point.to_owned());
        }
    }
    points
}

fn die(sandbox: &Sandbox, args: &[&str], point: &str) {
    let died = sandbox.world().run(&lariat(sandbox, args).env("LARIAT_DIE_AT", point));
    assert_eq!(died.exit, Exit::Signal(9), "{point}: {}", died.stderr);
}

#[test]
fn s35_a_launch_that_crashed_at_any_step_can_be_launched_again() {
    let order = ["launch", "claude", "--json", "--worktree", "x", "--setup", "echo set up > .set-up"];
    let first = with_agent("s35");
    let points: Vec<String> =
        points(&first, &order).into_iter().filter(|p| !p.ends_with(".observe") && !p.starts_with("shim")).collect();
    for wanted in ["recorded", "added", "copied", "setup", "ready"] {
        assert!(points.contains(&format!("worktree.{wanted}")), "{points:?}");
    }
    for point in
        points.iter().filter(|p| p.starts_with("worktree.") || p.starts_with("launch.") || p.starts_with("put."))
    {
        let sandbox = with_agent("s35");
        let repo = sandbox.work();
        die(&sandbox, &order, point);
        // Whatever lives was launched: it is ended as any other.
        for session in list(&sandbox).sessions().iter().filter(|s| s["live"] == true) {
            let id = session["id"].as_str().expect("an id");
            assert_eq!(ask(&sandbox, &["kill", id]).code(), 0, "{point}");
        }
        let again = launch(&sandbox, &order[3..]);
        assert_eq!(sandbox.git(&again.path, &["branch", "--show-current"]).trim(), "x", "{point}");
        assert_eq!(sandbox.git(&again.path, &["diff", "HEAD", "--stat"]), "", "{point}");
        assert!(again.path.join(".set-up").exists(), "{point}");
        assert_eq!(sandbox.git(&repo, &["worktree", "list"]).lines().count(), 2, "{point}");
        let folders = fs::read_dir(again.path.parent().expect("a folder")).expect("a folder").count();
        assert_eq!(folders, 1, "{point}: nothing else is left");
        list(&sandbox).expect(&again.id, "starting", Some(again.pid));
    }
}

/// A session that ended and left work of all kinds.
fn with_work(name: &str) -> (Sandbox, Launched, Files) {
    let sandbox = with_agent(name);
    let one = launch(&sandbox, &["--worktree"]);
    put(&one.path.join("README.md"), "changed\n");
    put(&one.path.join("a/b/new"), "new\n");
    put(&one.path.join("staged"), "staged\n");
    sandbox.git(&one.path, &["add", "staged"]);
    end(&sandbox, &one);
    let content = tree(&one.path);
    (sandbox, one, content)
}

#[test]
fn a_removal_that_was_cut_short_loses_nothing_and_is_finished() {
    let (first, one, _) = with_work("wtcut");
    let points = points(&first, &["worktree", "clean", &one.handle, "--force"]);
    for wanted in ["imported", "saved", "captured", "moved", "verified", "deleted", "unregistered"] {
        assert!(points.contains(&format!("worktree.{wanted}")), "{points:?}");
    }
    for point in points.iter().filter(|p| p.starts_with("worktree.")) {
        let (sandbox, one, content) = with_work("wtcut");
        let repo = sandbox.work();
        die(&sandbox, &["worktree", "clean", &one.handle, "--force"], point);
        let going = one.path.with_file_name(format!(".{}.going", one.handle));
        let whole = |path: &Path| path.exists() && tree(path) == content;
        assert!(whole(&one.path) || whole(&going) || !saved(&sandbox, &repo).is_empty(), "{point}");
        let shown = ask(&sandbox, &["worktree", "ls", "--json"]).json();
        assert_eq!(shown["worktrees"][0]["handle"], one.handle.as_str(), "{point}: {shown:#}");
        let (code, told) = clean(&sandbox, &[&one.handle, "--force"]);
        assert_eq!(code, 0, "{point}: {told:#}");
        assert!(!one.path.exists() && !going.exists(), "{point}");
        assert_eq!(sandbox.git(&repo, &["worktree", "list"]).lines().count(), 1, "{point}");
        let applied = ask(&sandbox, &["worktree", "apply", &one.handle]);
        assert_eq!(applied.code(), 0, "{point}: {}", applied.stderr);
        assert!(tree(&one.path) == content, "{point}");
        assert_eq!(sandbox.git(&one.path, &["diff", "--cached", "--name-only"]).trim(), "staged", "{point}");
    }
}

#[test]
fn a_giving_back_that_was_cut_short_is_finished_by_the_next() {
    for point in ["worktree.apply", "worktree.applied"] {
        let (sandbox, one, content) = with_work("wtback");
        let repo = sandbox.work();
        assert_eq!(clean(&sandbox, &[&one.handle, "--force"]).0, 0);
        die(&sandbox, &["worktree", "apply", &one.handle], point);
        assert_eq!(saved(&sandbox, &repo).len(), 1, "{point}");
        let applied = ask(&sandbox, &["worktree", "apply", &one.handle]);
        assert_eq!(applied.code(), 0, "{point}: {}", applied.stderr);
        assert!(tree(&one.path) == content, "{point}");
        assert!(saved(&sandbox, &repo).is_empty(), "{point}");
    }
}

#[test]
fn a_giving_back_to_the_checkout_itself_is_finished_too() {
    let (sandbox, one, content) = with_work("wtmain");
    let repo = sandbox.work();
    assert_eq!(clean(&sandbox, &[&one.handle, "--force"]).0, 0);
    let order = ["worktree", "apply", &one.handle, "--into", repo.to_str().expect("UTF-8")];
    die(&sandbox, &order, "worktree.applied");
    assert_eq!(saved(&sandbox, &repo).len(), 1);
    let applied = ask(&sandbox, &order);
    assert_eq!(applied.code(), 0, "{}", applied.stderr);
    let now = tree(&repo);
    assert!(content.iter().all(|(path, file)| now.get(path) == Some(file)), "{:?}", now.keys());
    assert!(saved(&sandbox, &repo).is_empty());
}
