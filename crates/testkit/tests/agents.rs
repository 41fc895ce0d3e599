//! The real agents, driven by the scripted model.

use std::fs;

use lariat_testkit::{
    DEADLINE, Model, Sandbox,
    agents::{Claude, Codex},
    model::usage,
    record::{Store, record},
};
use serde_json::Value;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

#[test]
fn claude_headless_runs_a_turn() {
    let (sandbox, model) = (Sandbox::new("claude-p"), Model::start());
    let claude = Claude::install(&sandbox, &model);
    let child = claude.headless("HOLD here hello", &[]);
    model.wait_for_hold("here", DEADLINE);
    let entry = claude.wait_for_status("busy", DEADLINE);
    assert_eq!(entry["pid"], child.pid());
    model.release("here");
    let output = child.output(DEADLINE).expect_success();
    let events = lines(&output.stdout);
    let result = events.iter().find(|e| e["type"] == "result").expect("a result");
    assert_eq!(result["result"], "echo: HOLD here hello");
    assert_eq!(result["usage"]["input_tokens"], usage::INPUT);
    assert_eq!(claude.transcripts().len(), 1);
    let init = events.iter().find(|e| e["type"] == "system").expect("a first event");
    assert_eq!(init["claude_code_version"], Claude::version());
}

#[test]
fn claude_headless_runs_a_tool() {
    let (sandbox, model) = (Sandbox::new("claude-tool"), Model::start());
    let claude = Claude::install(&sandbox, &model);
    let args = ["--permission-mode", "bypassPermissions"];
    claude.headless("PARALLEL touch one ;; touch two", &args).output(DEADLINE).expect_success();
    assert!(sandbox.work().join("one").exists());
    assert!(sandbox.work().join("two").exists());
}

#[test]
fn codex_exec_runs_a_turn() {
    let (sandbox, model) = (Sandbox::new("codex-exec"), Model::start());
    let codex = Codex::install(&sandbox, &model);
    let child = codex.exec("HOLD here hello", &[]);
    model.wait_for_hold("here", DEADLINE);
    assert!(child.stdout().contains("thread.started"));
    model.release("here");
    let output = child.output(DEADLINE).expect_success();
    let events = lines(&output.stdout);
    let done = events.iter().find(|e| e["type"] == "turn.completed").expect("a completed turn");
    assert_eq!(done["usage"]["input_tokens"], usage::RESPONSES_INPUT);
    let rollout = codex.wait_for_rollout("task_complete", DEADLINE);
    assert!(fs::read_to_string(rollout).expect("a rollout").contains("echo: HOLD here hello"));
}

#[test]
fn codex_exec_runs_a_tool() {
    let (sandbox, model) = (Sandbox::new("codex-tool"), Model::start());
    let codex = Codex::install(&sandbox, &model);
    codex.exec("PARALLEL touch one ;; touch two", &[]).output(DEADLINE).expect_success();
    assert!(sandbox.work().join("one").exists());
    assert!(sandbox.work().join("two").exists());
}

#[test]
fn stores_are_recorded_without_a_trace_of_the_machine() {
    let (sandbox, model) = (Sandbox::new("record"), Model::start());
    let claude = Claude::install(&sandbox, &model);
    let codex = Codex::install(&sandbox, &model);
    codex.exec("hello", &[]).output(DEADLINE).expect_success();
    let child = claude.headless("HOLD here hello", &[]);
    model.wait_for_hold("here", DEADLINE);
    claude.wait_for_status("busy", DEADLINE);
    let transcript = claude.wait_for_transcript("HOLD here hello", DEADLINE);
    let fixture = sandbox.root().join("fixture");
    let mut files = record(&sandbox, Store::Claude, &fixture);
    files.extend(record(&sandbox, Store::Codex, &fixture));
    model.release("here");
    child.wait(DEADLINE);

    let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    assert!(names.iter().any(|name| name.contains("/projects/-home-dev-work-proj/")), "{names:?}");
    assert!(names.iter().any(|name| name.contains("/.codex/sessions/")), "{names:?}");
    let registry = format!(".claude/sessions/{}.json", child.pid());
    let entry = fs::read_to_string(fixture.join(registry)).expect("the registry was recorded");
    assert!(entry.contains("linux:00000000") || entry.contains("linux::"), "{entry}");
    let root = sandbox.root().to_string_lossy().into_owned();
    for file in &files {
        let text = fs::read_to_string(file).expect("a recorded file");
        assert!(!text.contains(&root), "{} names the sandbox", file.display());
        lines(&text);
        assert!(text.len() < 1 << 20);
    }
    let name = transcript.file_name().expect("a name");
    let recorded = files.iter().find(|file| file.file_name() == Some(name));
    let text = fs::read_to_string(recorded.expect("the transcript")).expect("the transcript");
    assert!(text.contains("HOLD here hello"));
    assert!(text.contains("\"cwd\":\"/home/dev/work/proj\""));
    assert!(!text.contains("IMPORTANT: Assist"), "the vendor's prose was kept");
}

#[test]
fn agents_have_agents() {
    let (sandbox, model) = (Sandbox::new("sub"), Model::start());
    let codex = Codex::install(&sandbox, &model);
    // Held, because codex ends its sub-agents when its own turn ends.
    let child = codex.exec("THEN up AGENT hello from below", &[]);
    model.wait_for_request("the sub-agent", DEADLINE, |r| r.prompt == "hello from below");
    model.release("up");
    child.output(DEADLINE).expect_success();
    let claude = Claude::install(&sandbox, &model);
    let child = claude.headless("AGENT hello under claude", &[]);
    model.wait_for_request("the sub-agent", DEADLINE, |r| r.prompt == "hello under claude");
    child.output(DEADLINE).expect_success();
    let below = |path: &std::path::PathBuf| path.display().to_string().contains("subagents");
    assert!(claude.transcripts().iter().any(below));
}
