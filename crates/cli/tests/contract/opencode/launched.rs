//! OpenCode, launched by lariat.

use std::time::Instant;

use lariat_testkit::{DEADLINE, Signal, agents::OpenCode, wait_until};
use serde_json::Value;

use crate::looks::Stage;

#[track_caller]
fn act(stage: &Stage, args: &[&str]) -> Value {
    let output = stage.sandbox.world().run(&stage.lariat().args(args));
    assert_eq!(output.code(), 0, "{args:?}: {} {}", output.stdout, output.stderr);
    output.json()
}

fn text<'a>(launched: &'a Value, key: &str) -> &'a str {
    launched[key].as_str().expect(key)
}

/// Waits until no process is left but the world's own first one.
#[track_caller]
fn nothing_is_left(stage: &Stage) {
    wait_until("nothing is left", DEADLINE, || stage.sandbox.processes().iter().all(|p| p.pid == 1 || p.state == 'Z'));
}

#[test]
fn headless_with_the_id_chosen_and_the_prompt_as_it_was_given() {
    let stage = Stage::new("launch-opencode");
    let opencode = OpenCode::install(&stage.sandbox, &stage.model);
    let project = stage.sandbox.project("elsewhere");
    let prompt = "HOLD me \"two\" words\nand a line";
    let cwd = project.to_str().expect("a path");
    let launched = act(&stage, &["launch", "opencode", "--headless", "-p", prompt, "--cwd", cwd, "--json"]);
    stage.model.wait_for_hold("me", DEADLINE);
    let row = stage.until_at_work(prompt).has("native_id", text(&launched, "native_id"));
    let row = row.has("handle", text(&launched, "handle")).has("pid", launched["pid"].clone()).has("cwd", cwd);
    stage.agree(&row);
    stage.model.release("me");
    let ended = act(&stage, &["wait", text(&launched, "handle"), "--until", "done", "--timeout", "60s", "--json"]);
    assert_eq!((&ended["status"], &ended["exit"]["code"]), (&"done".into(), &0.into()), "{ended}");
    assert_eq!(opencode.export(row.id())["info"]["directory"], cwd);
    nothing_is_left(&stage);
}

/// What it was asked may have been done: neither is that tried again where nothing of it can be read, nor where a person
/// has deleted it.
#[test]
fn what_was_cut_off_and_cannot_be_read_or_was_deleted_is_not_begun_again() {
    let stage = Stage::new("launch-opencode-unread");
    let opencode = OpenCode::install(&stage.sandbox, &stage.model);
    let launched = act(&stage, &["launch", "opencode", "--headless", "-p", "HOLD here", "--json"]);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_at_work("HOLD here");
    let pid = i32::try_from(launched["pid"].as_i64().expect("a pid")).expect("a pid");
    assert!(stage.sandbox.world().process(pid).expect("it lives").signal(Signal::KILL));
    nothing_is_left(&stage);
    let row = stage.now().ended("interrupted").has("restorable", true);

    let database = opencode.store().join("opencode.db");
    let aside = database.with_extension("aside");
    std::fs::rename(&database, &aside).expect("another name");
    std::fs::write(&database, "no database").expect("a file");
    let seen = stage.sandbox.world().run(&stage.lariat().args(["ls", "-a", "--json"]));
    assert_eq!((seen.code(), &seen.json()["sessions"][0]["status"]), (5, &"unknown".into()), "{seen:?}");
    let back = stage.sandbox.world().run(&stage.lariat().args(["restore", "--yes", "--json"]));
    assert_eq!((back.code(), &back.json()["restore"][0]["outcome"]), (3, &"left".into()), "{back:?}");
    std::fs::rename(&aside, &database).expect("its own name");
    stage.now().ended("interrupted").has("native_id", row.id());

    stage.sandbox.run(["opencode", "session", "delete", row.id()]).expect_success();
    let row = stage.now().ended("stopped").has("native_id", row.id()).has("restorable", false);
    assert!(row.0["reason"].as_str().is_some_and(|why| why.contains("no longer")), "{row}");
    assert_eq!(act(&stage, &["restore", "--json"])["restore"], serde_json::json!([]));
}

#[test]
fn a_terminal_with_a_prompt_shows_its_id_and_ends_with_its_tools() {
    let stage = Stage::new("launch-opencode-tui");
    let _opencode = OpenCode::install(&stage.sandbox, &stage.model);
    let prompt = "TOOL touch started; setsid tail -f /dev/null";
    let launched = act(&stage, &["launch", "opencode", "-p", prompt, "--json"]);
    stage.until_started();
    let row = stage.until("working", "running bash").has("prompt", prompt);
    let row = row.has("native_id", text(&launched, "native_id")).has("pid", launched["pid"].clone());
    stage.agree(&row);
    act(&stage, &["stop", text(&launched, "handle"), "--json"]);
    nothing_is_left(&stage);
    stage.now().ended("stopped");
}

#[test]
fn a_terminal_without_a_prompt_takes_what_is_sent() {
    let stage = Stage::new("send-opencode");
    let _opencode = OpenCode::install(&stage.sandbox, &stage.model);
    let launched = act(&stage, &["launch", "opencode", "--json"]);
    let id = text(&launched, "native_id");
    let row = stage.until("idle", "no turn yet").has("native_id", id).has("pid", launched["pid"].clone());
    stage.agree(&row);
    let told = act(&stage, &["send", text(&launched, "handle"), "say", "something", "--wait", "--json"]);
    assert_eq!((&told["outcome"], &told["status"]), (&"sent".into(), &"idle".into()), "{told}");
    assert_eq!(told["reply"], "echo: say something", "{told}");
    // At home it shows no session, and would begin another.
    stage.until_look("its title", |look| look.rows.iter().find(|row| row.0["title"] == "Scripted title").cloned());
    let sent = |words: &str| {
        let words = ["send", text(&launched, "handle"), words, "--timeout", "3s", "--json"];
        stage.sandbox.world().run(&stage.lariat().args(words))
    };
    sent("/new");
    let lost = sent("and again");
    assert_eq!((lost.code(), &lost.json()["outcome"]), (3, &"refused".into()), "{lost:?}");
    assert!(stage.model.requests().iter().all(|r| r.prompt != "and again"));
    act(&stage, &["kill", text(&launched, "handle"), "--json"]);
    stage.now().ended("stopped").has("native_id", id);
    nothing_is_left(&stage);
}

#[test]
fn a_fork_of_one_that_was_cut_off_is_at_nothing() {
    let stage = Stage::new("fork-opencode");
    let _opencode = OpenCode::install(&stage.sandbox, &stage.model);
    let launched = act(&stage, &["launch", "opencode", "-p", "HOLD here hello", "--json"]);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_at_work("HOLD here hello");
    act(&stage, &["kill", text(&launched, "handle"), "--json"]);
    let first = stage.now().ended("stopped");
    // A fork of the same moment could not be told from what it copied.
    let cut_off = Instant::now();
    wait_until("another second", DEADLINE, || cut_off.elapsed().as_secs() > 1);
    let fork = act(&stage, &["fork", text(&launched, "handle"), "--json"]);
    let row = stage.until_of(text(&fork, "native_id"), "idle", "").has("pid", fork["pid"].clone());
    stage.agree(&row);
    let told = act(&stage, &["send", text(&fork, "handle"), "and you", "--wait", "--json"]);
    assert_eq!(told["reply"], "echo: and you", "{told}");
    act(&stage, &["kill", text(&fork, "handle"), "--json"]);
    stage.look().row(row.id()).ended("stopped");
    stage.look().row(first.id()).ended("stopped");
    nothing_is_left(&stage);
}
