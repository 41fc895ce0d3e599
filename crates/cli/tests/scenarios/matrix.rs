//! `launch --matrix`: every combination once, in one group, or none at all.

use std::fs;

use lariat_testkit::{DEADLINE, Lookalike, Sandbox};
use serde_json::{Value, json};

use crate::asking::{ask, lariat, list};

/// A sandbox with agents that sit still until they are ended, and a matrix in its project.
fn stage(name: &str, matrix: &str) -> Sandbox {
    let sandbox = Sandbox::new(name);
    drop(Lookalike::program(&sandbox, "claude"));
    fs::write(sandbox.home().join("plan.toml"), matrix).expect("a matrix");
    sandbox
}

/// The lines that came, each an object.
fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect()
}

fn launch(sandbox: &Sandbox, more: &[&str]) -> lariat_testkit::Output {
    let plan = sandbox.home().join("plan.toml");
    ask(sandbox, &[&["launch", "--matrix", plan.to_str().expect("UTF-8")], more].concat())
}

fn folders(sandbox: &Sandbox) -> usize {
    fs::read_dir(sandbox.state_dir().join("lariat/sessions")).map_or(0, Iterator::count)
}

#[test]
fn every_combination_is_launched_once_each_in_a_worktree_of_its_own() {
    let text = "agents = \"claude\"\nmodels = [\"opus\", \"haiku\"]\nprompts = [\"fix it\"]\nprompt_files = [\"more.md\"]\n\
                cwd = \"work/proj\"\n";
    let sandbox = stage("matrix", text);
    fs::write(sandbox.home().join("more.md"), "and then\nsome more").expect("a prompt");
    // The plan, which does nothing.
    let plan = launch(&sandbox, &["--dry-run", "--group", "flaky", "--json"]);
    assert_eq!((plan.code(), folders(&sandbox)), (0, 0), "{}", plan.stderr);
    let plan = plan.json();
    let planned: Vec<(&Value, &Value)> =
        plan["launch"].as_array().expect("a plan").iter().map(|l| (&l["model"], &l["prompt"])).collect();
    let (opus, haiku, one, two) = (json!("opus"), json!("haiku"), json!("fix it"), json!("and then\nsome more"));
    assert_eq!(planned, [(&opus, &one), (&opus, &two), (&haiku, &one), (&haiku, &two)]);
    assert_eq!((&plan["group"], &plan["worktree"]), (&json!("flaky"), &json!(true)));

    let done = launch(&sandbox, &["--group", "flaky", "--name", "try", "--json"]);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    let launched = lines(&done.stdout);
    assert_eq!(launched.len(), 4, "{}", done.stdout);
    let seen = ask(&sandbox, &["ls", "--group", "flaky", "--json"]).json();
    let seen = seen["sessions"].as_array().expect("sessions");
    assert_eq!(seen.len(), 4);
    let mut places: Vec<&str> = launched.iter().filter_map(|l| l["worktree"].as_str()).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 4, "{launched:?}");
    for (n, told) in launched.iter().enumerate() {
        let row = seen.iter().find(|s| s["id"] == told["id"]).expect("its row");
        assert_eq!((&row["handle"], &row["cwd"], &row["live"]), (&told["handle"], &told["worktree"], &json!(true)));
        assert_eq!((&row["name"], &told["number"]), (&json!(format!("try-{}", n + 1)), &json!(n + 1)));
    }
    // Asked for by its arguments, as a launch of one asks.
    let argv: Vec<Vec<String>> =
        sandbox.processes().into_iter().filter(|p| p.comm == "claude").map(|p| p.argv).collect();
    for (model, prompt) in [("opus", "fix it"), ("haiku", "fix it"), ("opus", "some more"), ("haiku", "some more")] {
        let fits = |a: &&Vec<String>| a.iter().any(|w| w == model) && a.iter().any(|w| w.contains(prompt));
        assert_eq!(argv.iter().filter(fits).count(), 1, "{model} {prompt}: {argv:?}");
    }
    assert_eq!(ask(&sandbox, &["kill", "--group", "flaky"]).code(), 0);
}

#[test]
fn if_one_of_them_is_wrong_none_is_launched() {
    let wrong = [
        ("agents = [\"claude\", \"nobody\"]\ncwd = \"work/proj\"", "no agent is called 'nobody'"),
        ("agents = \"claude\"\nprompts = \"a\"\nprompt_files = \"gone.md\"", "gone.md"),
        ("agents = \"claude\"\ncwd = [\"work/proj\", \"work/gone\"]", "work/gone"),
        ("agents = \"claude\"\ncwd = [\"work/proj\", \"bare\"]", "no git repository"),
        ("agents = \"claude\"\nprompts = \"a\\u0000b\"", "zero byte"),
        ("agents = [\"claude\", \"codex\"]\ncwd = \"work/proj\"", "codex"),
        ("agents = \"claude\"\ncolour = \"red\"", "'colour' is not known"),
        ("agents = \"claude\"\ncount = 2000", "more than 1000"),
        ("prompts = \"a\"", "lists no agents"),
        ("agents = [", "plan.toml"),
    ];
    let sandbox = stage("matrix-wrong", "");
    fs::create_dir(sandbox.home().join("bare")).expect("a folder without a repository");
    // Only what is on the path of the sandbox is installed there.
    sandbox.env("PATH", format!("{}:/usr/bin:/bin", sandbox.root().join("bin").display()));
    for (text, word) in wrong {
        fs::write(sandbox.home().join("plan.toml"), text).expect("a matrix");
        let refused = launch(&sandbox, &[]);
        assert!([1, 2].contains(&refused.code()), "{text}: {}", refused.stdout);
        assert!(refused.stderr.contains(word), "{text}: {}", refused.stderr);
        assert_eq!((folders(&sandbox), list(&sandbox).sessions().len()), (0, 0), "{text}");
    }
    // Two in one directory, without a worktree each.
    let text = "agents = \"claude\"\ncwd = \"work/proj\"\ncount = 2\nworktree = false";
    fs::write(sandbox.home().join("plan.toml"), text).expect("a matrix");
    let refused = launch(&sandbox, &[]);
    assert!(refused.code() == 3 && refused.stderr.contains("worktree = true"), "{}", refused.stderr);
    assert_eq!(folders(&sandbox), 0);
    assert_eq!(launch(&sandbox, &["codex"]).code(), 2, "what differs is said once");
    assert_eq!(ask(&sandbox, &["launch"]).code(), 2, "an agent or a matrix");
    assert_eq!(ask(&sandbox, &["launch", "claude", "--dry-run"]).code(), 2);
    assert_eq!(launch(&sandbox, &["--force"]).code(), 0);
    assert_eq!(list(&sandbox).sessions().len(), 2);
    ask(&sandbox, &["kill", "--all", "--yes"]);
}

#[test]
fn one_that_fails_is_named_and_the_others_go_on() {
    let text =
        "agents = \"claude\"\ncwd = [\"work/proj\", \"work/held\", \"work/last\"]\nworktree = false\ngroup = \"g\"\n";
    let sandbox = stage("matrix-fails", text);
    let held = sandbox.project("held");
    sandbox.project("last");
    ask(&sandbox, &["lock", held.to_str().expect("UTF-8")]).expect_success();
    let done = launch(&sandbox, &["--json"]);
    assert_eq!(done.code(), 3, "{}", done.stderr);
    let told = lines(&done.stdout);
    let went: Vec<bool> = told.iter().map(|l| l["handle"].is_string()).collect();
    assert_eq!(went, [true, false, true], "{}", done.stdout);
    assert_eq!((&told[1]["number"], &told[1]["group"]), (&json!(2), &json!("g")));
    assert!(told[1]["error"].as_str().expect("why").contains("held") && told[0]["error"].is_null(), "{told:?}");
    ask(&sandbox, &["kill", "--group", "g"]);
    // As many as may at once: one waits for its turn, and gets it.
    let text = "agents = \"claude\"\ncwd = [\"work/proj\", \"work/last\"]\nworktree = false\ngroup = \"h\"\n";
    fs::write(sandbox.home().join("plan.toml"), text).expect("a matrix");
    let plan = sandbox.home().join("plan.toml");
    let words = ["launch", "--matrix", plan.to_str().expect("UTF-8"), "--max", "1", "--queue"];
    let launching = sandbox.spawn(&lariat(&sandbox, &words));
    let first =
        lariat_testkit::wait_for("the first one", DEADLINE, || launching.stdout().split(' ').nth(1).map(str::to_owned));
    assert!(launching.exit().is_none(), "the second one waits");
    assert_eq!(ask(&sandbox, &["kill", &first]).code(), 0);
    let out = launching.output(DEADLINE);
    assert!(out.code() == 0 && out.stdout.contains("[2/2]") && out.stdout.contains("group h"), "{out:?}");
    ask(&sandbox, &["kill", "--group", "h"]);
}
