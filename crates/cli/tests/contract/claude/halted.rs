//! Claude Code's turns that end, or go on, in another way than by an answer: by a hook, by a schema, by a
//! command of its own. And how it is found when it was started by the file of its version.

use std::fs;

use lariat_testkit::{DEADLINE, Exit, Signal, agents::Claude, copy_program, record::Store};
use serde_json::json;

use super::{FREE, last_result, reported};
use crate::looks::Stage;

/// Settings with one hook.
fn hook(event: &str, command: &str) -> String {
    json!({"hooks": {event: [{"hooks": [{"type": "command", "command": command}]}]}}).to_string()
}

/// Runs it to its end, which it takes for a good one, and looks.
#[track_caller]
fn ends_well(case: &'static str, prompt: &str, args: &[&str]) {
    let stage = Stage::new(case);
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let output = claude.headless(prompt, args).output(DEADLINE).expect_success();
    assert_eq!(last_result(&output.stdout)["is_error"], false, "{output:?}");
    let row = stage.now().ended("done").has("prompt", prompt).used(reported(&output.stdout));
    stage.agree(&row);
    stage.keep(Store::Claude, &[(&row, "done")]);
}

#[test]
fn a_schema_is_filled_in() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
    ends_well("p-schema", r#"CALL StructuredOutput {"a":"b"}"#, &["--json-schema", &schema.to_string()]);
}

#[test]
fn a_hook_halts_it() {
    const HALT: &str = r#"echo '{"continue":false,"stopReason":"enough"}'"#;
    let halts = |case, event, command: &str| {
        ends_well(
            case,
            "PARALLEL echo one ;; touch two",
            &[&FREE[..], &["--settings", &hook(event, command)]].concat(),
        );
    };
    halts("p-hook-blocks-prompt", "UserPromptSubmit", "echo no >&2; exit 2");
    halts("p-hook-halts-prompt", "UserPromptSubmit", HALT);
    halts("p-hook-halts-tool", "PreToolUse", HALT);
    // The other one runs after it, and its result comes after the end.
    halts("p-hook-halts-first-of-two", "PostToolUse", &format!("if grep -q 'echo one'; then {HALT}; fi"));
}

#[test]
fn a_hook_puts_a_tool_off() {
    let later = json!({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "defer"}});
    let settings = hook("PreToolUse", &format!("echo '{later}'"));
    ends_well("p-hook-defers-tool", "TOOL touch later", &[&FREE[..], &["--settings", &settings]].concat());
}

#[test]
fn commands_of_its_own() {
    ends_well("p-command", "/context", &[]);
}

#[test]
fn kept_from_ending_by_a_hook_then_killed() {
    let stage = Stage::new("p-hook-goes-on");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let settings = hook("Stop", "test -e once || { touch once; echo HOLD again >&2; exit 2; }");
    let child = claude.headless("hello", &["--settings", &settings]);
    stage.model.wait_for_hold("again", DEADLINE);
    claude.wait_for_transcript("Stop hook feedback:", DEADLINE);
    let row = stage.until("working", "").held_by(child.pid());
    stage.agree(&row);
    child.signal(Signal::KILL);
    assert_eq!(child.wait(DEADLINE), Exit::Signal(9));
    let row = stage.now().ended("interrupted");
    stage.keep(Store::Claude, &[(&row, "interrupted")]);
}

#[test]
fn started_by_the_file_of_its_version() {
    let stage = Stage::new("p-version");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let folder = stage.sandbox.home().join(".local/share/claude/versions");
    fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join(Claude::version());
    let real = fs::canonicalize(stage.sandbox.root().join("bin/claude")).expect("the program");
    fs::hard_link(&real, &file).unwrap_or_else(|_| copy_program(&real, &file));
    let child = stage.sandbox.spawn(&stage.sandbox.program(file).args(["-p", "HOLD here hello"]));
    stage.model.wait_for_hold("here", DEADLINE);
    claude.wait_for_status("busy", DEADLINE);
    let row = stage.until_at_work("HOLD here hello").held_by(child.pid());
    stage.agree(&row);
    stage.model.release("here");
    child.output(DEADLINE).expect_success();
    stage.now().ended("done");
}
