//! The real agents, launched by lariat: with a terminal and without, killed shims, ended trees.

use lariat_testkit::{
    DEADLINE,
    agents::{Claude, Codex},
    wait_until,
};
use serde_json::Value;

use crate::looks::Stage;

#[track_caller]
fn launch(stage: &Stage, args: &[&str]) -> Value {
    let output = stage.sandbox.world().run(&stage.lariat().args([&["launch", "--json"], args].concat()));
    assert_eq!(output.code(), 0, "{}", output.stderr);
    output.json()
}

#[track_caller]
fn act(stage: &Stage, args: &[&str]) -> Value {
    let output = stage.sandbox.world().run(&stage.lariat().args(args));
    assert_eq!(output.code(), 0, "{args:?}: {} {}", output.stdout, output.stderr);
    output.json()
}

fn id(launched: &Value) -> &str {
    launched["native_id"].as_str().expect("an id")
}

fn handle(launched: &Value) -> &str {
    launched["handle"].as_str().expect("a handle")
}

/// Every process that is not the world's own first one.
fn others(stage: &Stage) -> Vec<String> {
    let all = stage.sandbox.processes();
    all.iter().filter(|p| p.pid != 1 && p.state != 'Z').map(|p| format!("{} {:?}", p.comm, p.argv)).collect()
}

#[test]
fn a_headless_claude_runs_to_its_end() {
    let stage = Stage::new("launch-p");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let launched = launch(&stage, &["claude", "--headless", "-p", "HOLD me"]);
    stage.model.wait_for_hold("me", DEADLINE);
    let row = stage.until_at_work("HOLD me");
    assert_eq!((row.id(), row.0["handle"].as_str()), (id(&launched), Some(handle(&launched))));
    assert_eq!(row.0["pid"], launched["pid"]);
    stage.model.release("me");
    let ended = act(&stage, &["wait", handle(&launched), "--until", "done", "--timeout", "60s", "--json"]);
    assert_eq!((&ended["status"], &ended["exit"]["code"]), (&"done".into(), &0.into()), "{ended}");
}

#[test]
fn claude_in_a_terminal_outlives_its_shim_and_ends_with_its_tools() {
    let stage = Stage::new("launch-tui");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let launched = launch(
        &stage,
        &[
            "claude",
            "-p",
            "TOOL touch started; setsid tail -f /dev/null",
            "--",
            "--permission-mode",
            "manual",
            "--allowedTools=Bash",
        ],
    );
    stage.until_started();
    let row = stage.until("working", "running Bash");
    assert_eq!(row.0["pid"], launched["pid"]);
    // Every process of lariat's own is killed: the shim, and whoever holds the terminal with it.
    for process in stage.sandbox.processes() {
        if process.comm.starts_with("lariat") && process.pid != 1 {
            process.signal(lariat_testkit::Signal::KILL);
            break; // one holder of the terminal must stay, or it hangs up
        }
    }
    let row = stage.until("working", "running Bash");
    assert_eq!((row.id(), &row.0["pid"]), (id(&launched), &launched["pid"]));
    act(&stage, &["stop", handle(&launched), "--json"]);
    wait_until("nothing is left", DEADLINE, || others(&stage).is_empty());
    assert_eq!(stage.look().find(id(&launched)).expect("its row").status(), "stopped");
}

#[test]
fn codex_shows_its_id_with_a_terminal_and_without() {
    let stage = Stage::new("launch-codex");
    let _codex = Codex::install(&stage.sandbox, &stage.model);
    let exec = launch(&stage, &["codex", "--headless", "-p", "HOLD me"]);
    stage.model.wait_for_hold("me", DEADLINE);
    let row = stage.until_of(id(&exec), "working", "");
    assert_eq!(row.0["pid"], exec["pid"]);
    let terminal = launch(&stage, &["codex", "--force"]);
    assert_ne!(id(&exec), id(&terminal));
    let row = stage.until_of(id(&terminal), "starting", "");
    assert_eq!(row.0["handle"], terminal["handle"]);
    for launched in [&exec, &terminal] {
        act(&stage, &["stop", handle(launched), "--json"]);
    }
    wait_until("nothing is left", DEADLINE, || others(&stage).is_empty());
    assert_eq!(stage.look().find(id(&exec)).expect("its row").status(), "stopped");
}

#[test]
fn what_is_sent_arrives_and_nothing_is_typed_into_a_question() {
    let stage = Stage::new("send");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let launched = launch(&stage, &["claude", "--", "--permission-mode", "manual"]);
    stage.until("idle", "");
    let told = act(&stage, &["send", handle(&launched), "say something", "--wait", "--json"]);
    assert_eq!((&told["outcome"], &told["status"]), (&"sent".into(), &"idle".into()), "{told}");
    assert!(told["reply"].as_str().is_some_and(|r| r.contains("say something")), "{told}");

    // Scenario 40: on a permission prompt the text is held back, and nothing is typed.
    act(&stage, &["send", handle(&launched), "TOOL touch made", "--json"]);
    stage.until("waiting", "permission: Bash touch made");
    let output = stage.sandbox.world().run(&stage.lariat().args(["send", handle(&launched), "yes please", "--json"]));
    assert_eq!((output.code(), &output.json()["outcome"]), (3, &"blocked".into()));
    assert!(!stage.sandbox.work().join("made").exists());
    stage.until("waiting", "permission: Bash touch made");
    act(&stage, &["kill", handle(&launched), "--json"]);
}

#[test]
fn codex_takes_what_is_sent() {
    let stage = Stage::new("send-codex");
    let _codex = Codex::install(&stage.sandbox, &stage.model);
    let launched = launch(&stage, &["codex", "-p", "first words"]);
    stage.until("idle", "");
    let told = act(&stage, &["send", handle(&launched), "second", "words", "--wait", "--json"]);
    assert!(told["reply"].as_str().is_some_and(|r| r.contains("second words")), "{told}");
    act(&stage, &["kill", handle(&launched), "--json"]);
}
