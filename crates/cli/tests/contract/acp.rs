//! Agents that speak the Agent Client Protocol, for real: `opencode acp`, `codex-acp` and `claude-agent-acp`,
//! launched by lariat.
//!
//! All keep such a session in their own store too; there must be one row of it all the same.

use lariat_testkit::{
    DEADLINE, Signal,
    agents::{Claude, Codex, Gemini, OpenCode},
    wait_until,
};
use serde_json::{Value, json};

use crate::looks::{Row, Stage};

fn stage(name: &'static str) -> Stage {
    let stage = Stage::new(name);
    let folder = stage.sandbox.home().join(".config/lariat");
    std::fs::create_dir_all(&folder).expect("a folder");
    let settings = "[[acp]]\nname = \"opencode\"\ncommand = [\"opencode\", \"acp\"]\n\
                    [[acp]]\nname = \"codex\"\ncommand = [\"codex-acp\"]\n\
                    [[acp]]\nname = \"claude\"\ncommand = [\"claude-agent-acp\"]\n\
                    [[acp]]\nname = \"gemini\"\ncommand = [\"gemini\", \"--acp\"]\n";
    std::fs::write(folder.join("config.toml"), settings).expect("settings");
    stage
}

#[track_caller]
fn act(stage: &Stage, args: &[&str]) -> Value {
    let output = stage.sandbox.world().run(&stage.lariat().args(args).arg("--json"));
    assert_eq!(output.code(), 0, "{args:?}: {} {}", output.stdout, output.stderr);
    output.json()
}

fn text<'a>(launched: &'a Value, key: &str) -> &'a str {
    launched[key].as_str().expect(key)
}

#[track_caller]
fn nothing_is_left(stage: &Stage) {
    wait_until("nothing is left", DEADLINE, || stage.sandbox.processes().iter().all(|p| p.pid == 1 || p.state == 'Z'));
}

#[test]
fn opencode_is_talked_to_cancelled_and_taken_up_again() {
    let stage = stage("acp-opencode");
    let opencode = OpenCode::install(&stage.sandbox, &stage.model);
    let launched = act(&stage, &["launch", "acp:opencode"]);
    let (handle, id) = (text(&launched, "handle"), text(&launched, "native_id"));
    assert_eq!(launched["id"], format!("acp:opencode:{id}"));
    stage.now().has("status", "idle").has("pid", launched["pid"].clone()).has("native_id", id);
    let told = act(&stage, &["send", handle, "hello", "--wait"]);
    assert_eq!(told["reply"], "echo: hello", "{told}");
    stage.agree_on_reply(&stage.now().has("status", "idle").has("prompt", "hello"), "echo: hello");
    assert_eq!(opencode.export(id)["info"]["id"], id, "it is OpenCode's own session");
    spent(&stage);

    act(&stage, &["send", handle, "THEN later TOOL touch started; true"]);
    stage.model.wait_for_hold("later", DEADLINE);
    let row = stage.now().has("status", "working").has("agent", "acp:opencode").has("native_id", id);
    stage.agree(&row);
    let busy = stage.sandbox.world().run(&stage.lariat().args(["send", handle, "more", "--json"]));
    assert_eq!(busy.code(), 3, "{busy:?}");
    act(&stage, &["stop", handle]);
    nothing_is_left(&stage);
    let row = stage.now().ended("stopped").has("native_id", id);
    assert!(row.0["because"].to_string().contains("its turn was cancelled"), "{row}");

    let again = act(&stage, &["resume", handle, "and now"]);
    assert_eq!((&again["native_id"], &again["handle"]), (&launched["native_id"], &launched["handle"]));
    act(&stage, &["wait", handle, "--until", "idle", "--timeout", "60s"]);
    stage.agree_on_reply(&stage.now().has("status", "idle"), "echo: and now");
    let owner = i32::try_from(again["pid"].as_i64().expect("a pid")).expect("a pid");
    assert!(stage.sandbox.world().process(owner).expect("an owner").signal(Signal::KILL));
    nothing_is_left(&stage);
    stage.now().ended("done").has("native_id", id);
}

#[test]
fn opencode_asks_and_is_answered_and_ends_with_its_one_turn() {
    let stage = stage("acp-opencode-asks");
    let opencode = OpenCode::install(&stage.sandbox, &stage.model);
    opencode.ask_for("bash");
    let launched = act(&stage, &["launch", "acp:opencode", "--headless", "-p", "TOOL touch allowed"]);
    let handle = text(&launched, "handle");
    stage.until("waiting", "permission: ");
    // What it asks for is told by a message of its own, after the question.
    wait_until("its call is on record", DEADLINE, || stage.now().0["tool"].is_string());
    stage.agree(&stage.now());
    act(&stage, &["approve", handle]);
    let ended = act(&stage, &["wait", handle, "--until", "done", "--timeout", "60s"]);
    assert_eq!((&ended["status"], &ended["exit"]), (&json!("done"), &json!({"code": 0})), "{ended}");
    assert!(stage.sandbox.work().join("allowed").exists());
    nothing_is_left(&stage);
    let launched = act(&stage, &["launch", "acp:opencode", "--headless", "-p", "TOOL touch denied"]);
    let handle = text(&launched, "handle");
    wait_until("it asks", DEADLINE, || act(&stage, &["status", handle])["status"] == "waiting");
    act(&stage, &["deny", handle]);
    nothing_is_left(&stage);
    assert!(!stage.sandbox.work().join("denied").exists());
    assert_eq!(act(&stage, &["status", handle])["live"], false);
}

#[test]
fn codex_is_talked_to_cancelled_and_taken_up_again() {
    let stage = stage("acp-codex");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    codex.speak_acp();
    let launched = act(&stage, &["launch", "acp:codex", "-p", "hello"]);
    let (handle, id) = (text(&launched, "handle"), text(&launched, "native_id"));
    act(&stage, &["wait", handle, "--until", "idle", "--timeout", "60s"]);
    let row = stage.now().has("status", "idle").has("native_id", id).has("agent", "acp:codex");
    stage.agree_on_reply(&row.has("pid", launched["pid"].clone()), "echo: hello");
    codex.wait_for_rollout("echo: hello", DEADLINE);
    spent(&stage);
    act(&stage, &["send", handle, "THEN later TOOL touch started; true"]);
    stage.model.wait_for_hold("later", DEADLINE);
    stage.agree(&stage.now().has("status", "working").has("native_id", id));
    act(&stage, &["stop", handle]);
    nothing_is_left(&stage);
    let row = stage.now().ended("stopped").has("native_id", id);
    assert!(row.0["because"].to_string().contains("its turn was cancelled"), "{row}");
    act(&stage, &["resume", handle]);
    let told = act(&stage, &["send", handle, "and now", "--wait"]);
    assert_eq!(told["reply"], "echo: and now", "{told}");
    stage.now().has("status", "idle").has("native_id", id); // alone, though Codex has another thread open
    act(&stage, &["kill", handle]);
    nothing_is_left(&stage);
    stage.now().ended("stopped").has("native_id", id);
    // It tells its client that a turn has ended well which failed.
    let launched = act(&stage, &["launch", "acp:codex", "--headless", "-p", "FAIL 400"]);
    nothing_is_left(&stage);
    let ended = stage.sandbox.world().run(&stage.lariat().args(["wait", text(&launched, "handle"), "--json"]));
    assert_eq!((ended.code(), &ended.json()["status"]), (1, &json!("failed")), "{ended:?}");
}

/// Waits until the row tells what was used: only the agent's own store does, and that is written a moment later.
#[track_caller]
fn spent(stage: &Stage) -> Row {
    let used = |row: &&Row| row.0["tokens"]["output"].as_u64() > Some(0);
    stage.until_look("what was used", |look| look.rows.first().filter(used).cloned())
}

#[test]
fn claude_is_talked_to_asked_cancelled_and_taken_up_again() {
    let stage = stage("acp-claude");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    claude.speak_acp();
    let launched = act(&stage, &["launch", "acp:claude", "-p", "hello"]);
    let (handle, id) = (text(&launched, "handle"), text(&launched, "native_id"));
    act(&stage, &["wait", handle, "--until", "idle", "--timeout", "60s"]);
    // It is told what the session is called a moment after its turn.
    let row = stage.until_look("its title", |look| look.rows.first().filter(|r| r.0["title"].is_string()).cloned());
    let row = row.has("status", "idle").has("native_id", id).has("agent", "acp:claude");
    let used = spent(&stage).has("branch", "main");
    assert_ne!(used.0["model"], "default", "the one that answered");
    stage.agree_on_reply(&row.has("pid", launched["pid"].clone()), "echo: hello");
    let transcript = claude.wait_for_transcript("echo: hello", DEADLINE);
    assert_eq!(transcript.file_stem().and_then(|s| s.to_str()), Some(id), "it is Claude Code's own session");

    act(&stage, &["send", handle, "TOOL touch made"]);
    let row = stage.until("waiting", "permission: ");
    stage.agree(&row);
    assert!(!stage.sandbox.work().join("made").exists());
    act(&stage, &["approve", handle]);
    act(&stage, &["wait", handle, "--until", "idle", "--timeout", "60s"]);
    assert!(stage.sandbox.work().join("made").exists());

    act(&stage, &["send", handle, "HOLD here more"]);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.agree(&stage.now().has("status", "working").has("native_id", id));
    act(&stage, &["stop", handle]);
    nothing_is_left(&stage);
    let row = stage.now().ended("stopped").has("native_id", id);
    assert!(row.0["because"].to_string().contains("its turn was cancelled"), "{row}");

    act(&stage, &["resume", handle]);
    let told = act(&stage, &["send", handle, "and now", "--wait"]);
    assert_eq!(told["reply"], "echo: and now", "{told}");
    let asked: Vec<String> = stage.model.requests().iter().map(|r| r.body.to_string()).collect();
    assert!(asked.iter().any(|r| r.contains("and now") && r.contains("echo: hello")), "the same conversation");
    act(&stage, &["kill", handle]);
    nothing_is_left(&stage);
    stage.now().ended("stopped").has("native_id", id);
}

#[test]
fn gemini_is_talked_to_and_asked_and_is_taken_up_again_only_where_nothing_is_lost() {
    let stage = stage("acp-gemini");
    let gemini = Gemini::install(&stage.sandbox, &stage.model);
    let launched = act(&stage, &["launch", "acp:gemini"]);
    let (handle, id) = (text(&launched, "handle"), text(&launched, "native_id"));
    let of = |status: &str, reason: &str| stage.until_of(id, status, reason).has("handle", handle);
    of("idle", "no turn yet");
    let told = act(&stage, &["send", handle, "hello", "--wait"]);
    assert_eq!(told["reply"], "echo: hello", "{told}");
    // It makes another session when it starts, in which nobody says anything.
    assert_eq!(stage.look().live(), [id]);
    assert!(stage.look().rows.iter().all(|row| row.status() != "unknown"), "{}", stage.look().rows[1]);
    act(&stage, &["send", handle, r#"CALL run_shell_command {"command":"touch made"}"#]);
    of("waiting", "permission: touch made");
    act(&stage, &["approve", handle]);
    of("idle", "turn over");
    assert!(stage.sandbox.work().join("made").exists());
    act(&stage, &["stop", handle]);
    nothing_is_left(&stage);
    stage.look().row(id).ended("stopped");

    // What Gemini leaves behind when it loads a session has its next start remove the conversation.
    let before = gemini.wait_for_chat("echo: hello", DEADLINE);
    let refused = stage.sandbox.world().run(&stage.lariat().args(["resume", handle, "and now"]));
    assert_eq!(refused.code(), 3, "{refused:?}");
    assert!(refused.stderr.contains("general.sessionRetention.enabled"), "{refused:?}");
    gemini.headless("other", &[]).output(DEADLINE).expect_success();
    assert!(before.exists(), "nothing of it is lost");

    // As if it had been begun in another minute: in the same one Gemini does not find its own session.
    gemini.configure(json!({"sessionRetention": {"enabled": false}}));
    let name = before.file_name().and_then(|n| n.to_str()).expect("a name");
    std::fs::rename(&before, before.with_file_name(format!("session-2026-11-15T01-02{}", &name[24..])))
        .expect("a name");
    act(&stage, &["resume", handle, "and now"]);
    of("idle", "turn over");
    let peeked = act(&stage, &["peek", handle]);
    assert_eq!(peeked["reply"], "echo: and now", "{peeked}");
    act(&stage, &["kill", handle]);
    nothing_is_left(&stage);
}
