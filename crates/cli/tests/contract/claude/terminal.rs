//! Claude Code on a terminal, with a person who types, answers, takes back and leaves.

use lariat_testkit::{DEADLINE, Exit, Key, Signal, Terminal, agents::Claude, record::Store};

use serde_json::{Value, json};

use super::{accounted, transcript};
use crate::looks::{Row, Stage, Tokens};

/// Asks before every tool.
const ASKING: [&str; 2] = ["--permission-mode", "manual"];

/// Claude at its prompt, and its session.
#[track_caller]
fn ready(stage: &Stage, claude: &Claude<'_>, args: &[&str]) -> (Terminal, Row) {
    let tui = claude.terminal(args);
    let row = stage.until("idle", "").held_by(tui.pid());
    assert_eq!(claude.registry()[0]["sessionId"], row.id());
    (tui, row)
}

/// One turn, to its end.
#[track_caller]
fn turn(stage: &Stage, tui: &Terminal, id: &str, prompt: &str) -> Row {
    tui.submit(prompt, DEADLINE);
    tui.wait_for_text(&format!("echo: {prompt}"), DEADLINE);
    stage.until_of(id, "idle", "turn over").held_by(tui.pid())
}

/// Leaves by the program's own command.
#[track_caller]
fn leave(tui: &Terminal) {
    tui.submit("/exit", DEADLINE);
    assert_eq!(tui.wait(DEADLINE), Exit::Code(0));
}

#[test]
fn at_its_first_prompt() {
    let stage = Stage::new("tui-no-prompt");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let (tui, row) = ready(&stage, &claude, &[]);
    let row = row.has("reason", "no turn yet").has("prompt", ()).has("tokens", ());
    let row = row.has("cwd", stage.sandbox.work().to_str().unwrap());
    assert_eq!(stage.agree(&row)["reply"], Value::Null);
    stage.keep(Store::Claude, &[(&row, "done")]);
    leave(&tui);
    let look = stage.look();
    assert!(look.rows.is_empty(), "nothing was ever said: {}", look.rows[0]);
}

#[test]
fn working_then_idle_then_left() {
    let stage = Stage::new("tui-idle");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let (tui, row) = ready(&stage, &claude, &[]);
    let id = row.id();
    tui.submit("HOLD here hello", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = stage.until_at_work("HOLD here hello").held_by(tui.pid()).has("native_id", id);
    stage.agree(&row);

    stage.model.release("here");
    let row = stage.until("idle", "turn over").held_by(tui.pid()).has("native_id", id);
    stage.agree_on_reply(&row, "echo: HOLD here hello");
    stage.keep(Store::Claude, &[(&row, "done")]);
    let used = row.0["tokens"].clone();

    leave(&tui);
    let row = stage.now().ended("done").used(accounted(&transcript(&claude, id)));
    let row = row.has("tokens", used);
    stage.agree_on_reply(&row, "echo: HOLD here hello");
}

/// Brings Claude to a question, and looks.
#[track_caller]
fn waits(case: &'static str, args: &[&str], prompt: &str, shown: &str, reason: &str) {
    let stage = Stage::new(case);
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let (tui, row) = ready(&stage, &claude, args);
    tui.submit(prompt, DEADLINE);
    tui.wait_for_text(shown, DEADLINE);
    let id = row.id();
    let row = stage.until("waiting", reason).held_by(tui.pid()).has("native_id", id);
    let row = row.has("reason", reason);
    assert_eq!(stage.agree(&row)["asks"], reason);
    stage.keep(Store::Claude, &[(&row, "interrupted")]);

    // Answered, it goes on; nothing of the question is left.
    tui.choose('❯', 1, DEADLINE);
    tui.wait_for_text("tool finished", DEADLINE);
    let row = stage.until("idle", "turn over").held_by(tui.pid());
    assert_eq!(stage.agree(&row)["asks"], Value::Null);
}

#[test]
fn waiting_for_a_permission() {
    let shown = "Do you want to proceed?";
    waits("tui-permission", &ASKING, "TOOL touch made", shown, "permission: Bash touch made");
}

#[test]
fn waiting_for_an_answer() {
    waits("tui-question", &ASKING, "ASK me", "Which colour?", "question: Which colour?");
}

#[test]
fn waiting_for_a_plan_to_be_accepted() {
    let args = ["--permission-mode", "plan"];
    waits("tui-plan", &args, "PLAN it", "Exit plan mode?", "plan: 1. Look.");
}

#[test]
fn failed_and_alive() {
    let stage = Stage::new("tui-failed");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let (tui, _) = ready(&stage, &claude, &[]);
    tui.submit("FAIL 400", DEADLINE);
    tui.wait_for_text("API Error", DEADLINE);
    let row = stage.until("idle", "last turn failed: API Error").held_by(tui.pid());
    stage.agree(&row);
    stage.keep(Store::Claude, &[(&row, "failed")]);
    leave(&tui);
    stage.now().ended("failed").used(Tokens::default());
}

#[test]
fn refused_and_alive() {
    let stage = Stage::new("tui-refused");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    stage.sandbox.env("CLAUDE_CODE_MAX_RETRIES", "0");
    let (tui, row) = ready(&stage, &claude, &[]);
    tui.submit("FAIL 401", DEADLINE);
    let refused = stage.until("waiting", "login: Please run /login").held_by(tui.pid());
    stage.agree(&refused);
    tui.wait_for_text("Please run /login", DEADLINE);
    // It takes the next prompt all the same.
    tui.submit("FAIL 429", DEADLINE);
    stage.until("waiting", "limit: API Error: Request rejected (429)").held_by(tui.pid());
    stage.keep(Store::Claude, &[(&stage.now(), "failed")]);
    tui.wait_for_text("(429)", DEADLINE);
    turn(&stage, &tui, row.id(), "hello");
    leave(&tui);
    stage.now().ended("done");
}

#[test]
fn a_login_that_came_to_nothing() {
    let stage = Stage::new("tui-login-left");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    stage.sandbox.env("CLAUDE_CODE_MAX_RETRIES", "0");
    let (tui, row) = ready(&stage, &claude, &[]);
    tui.submit("FAIL 401", DEADLINE);
    stage.until("waiting", "login: Please run /login").held_by(tui.pid());
    tui.wait_for_text("Please run /login", DEADLINE);
    tui.submit("/login", DEADLINE);
    tui.wait_for_text("Esc to cancel", DEADLINE);
    tui.press(Key::Esc);
    // What it writes when all went well stands in the scenarios: nobody here can log in.
    claude.wait_for_transcript("<local-command-stdout>Login interrupted", DEADLINE);
    let row = stage.until("waiting", "login: Please run /login").has("native_id", row.id());
    stage.keep(Store::Claude, &[(&row, "failed")]);
}

#[test]
fn compacting() {
    let stage = Stage::new("tui-compacted");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let (tui, row) = ready(&stage, &claude, &[]);
    turn(&stage, &tui, row.id(), "hello");
    tui.submit("/compact HOLD here", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    let working = stage.until("working", "").held_by(tui.pid());
    stage.agree(&working);
    stage.model.release("here");
    claude.wait_for_transcript("isCompactSummary", DEADLINE);
    let row = stage.until("idle", "turn over").held_by(tui.pid()).has("native_id", row.id());
    stage.keep(Store::Claude, &[(&row, "done")]);
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    stage.now().ended("done");
}

#[test]
fn killed_while_it_compacts_then_resumed_and_ended_at_its_prompt() {
    let stage = Stage::new("tui-compacting-killed");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let (tui, row) = ready(&stage, &claude, &[]);
    turn(&stage, &tui, row.id(), "hello");
    tui.submit("/compact HOLD here", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until("working", "").held_by(tui.pid());
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    stage.now().ended("interrupted");
    // What the killed one said last says nothing of the next one.
    let tui = claude.terminal(&["--resume", row.id()]);
    stage.until("idle", "turn over").held_by(tui.pid()).has("native_id", row.id());
    tui.signal(Signal::TERM);
    assert_eq!(tui.wait(DEADLINE), Exit::Code(143));
    let row = stage.now().ended("done");
    stage.agree(&row);
    stage.keep(Store::Claude, &[(&row, "done")]);
}

#[test]
fn asked_by_the_server_of_a_tool() {
    let stage = Stage::new("tui-elicitation");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let server = crate::looks::mcp_server(&stage.sandbox);
    let servers = serde_json::json!({"mcpServers": {"forms": {"command": "python3", "args": [server]}}}).to_string();
    let (tui, row) = ready(&stage, &claude, &["--allowedTools", "mcp__forms__ask", "--mcp-config", &servers]);
    tui.submit("CALL mcp__forms__ask {}", DEADLINE);
    tui.wait_for_text("Which size?", DEADLINE);
    // The tool runs; what it waits for is an answer, not a permission.
    let row = stage.until("waiting", "question: mcp__forms__ask").held_by(tui.pid()).has("native_id", row.id());
    stage.agree(&row);
}

#[test]
fn called_by_another_name() {
    let stage = Stage::new("tui-renamed-program");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let real = std::fs::canonicalize(stage.sandbox.root().join("bin/claude")).expect("the program");
    let link = stage.sandbox.root().join("bin/cc");
    std::os::unix::fs::symlink(real, &link).expect("another name");
    let tui = stage.sandbox.terminal(&stage.sandbox.program(link).arg0("cc"));
    let row = stage.until("idle", "no turn yet").held_by(tui.pid());
    turn(&stage, &tui, row.id(), "hello");
}

#[test]
fn a_background_shell() {
    let stage = Stage::new("tui-background-shell");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    stage.sandbox.run(["mkfifo", "pipe"]).expect_success();
    let (tui, _) = ready(&stage, &claude, &["--allowedTools", "Bash"]);
    tui.submit("BGTOOL cat pipe", DEADLINE);
    claude.wait_for_transcript("tool finished", DEADLINE);
    let row = stage.until("idle", "turn over, a background shell still runs").held_by(tui.pid());
    assert_eq!(claude.registry()[0]["status"], "shell");
    stage.agree_on_reply(&row, "tool finished");
    stage.keep(Store::Claude, &[(&row, "done")]);
}

#[test]
fn taken_back_then_left() {
    let stage = Stage::new("tui-esc-exit");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let (tui, row) = ready(&stage, &claude, &[]);
    tui.submit("HOLD here hello", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_at_work("HOLD here hello").held_by(tui.pid());
    tui.wait_for_text("esc to interrupt", DEADLINE);
    tui.press(Key::Esc);
    let idle = stage.until("idle", "").held_by(tui.pid()).has("native_id", row.id());
    stage.agree(&idle);

    // The prompt is back in its box.
    tui.wait_for_no_text("esc to interrupt", DEADLINE);
    tui.press(Key::Ctrl('u'));
    tui.wait_for_no_text("❯ HOLD here hello", DEADLINE);
    leave(&tui);
    let row = stage.now().ended("stopped");
    stage.agree(&row);
    stage.keep(Store::Claude, &[(&row, "stopped")]);
}

#[test]
fn taken_back_then_left_by_a_word() {
    let stage = Stage::new("tui-esc-word");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let (tui, _) = ready(&stage, &claude, &[]);
    tui.submit("HOLD here hello", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_at_work("HOLD here hello");
    tui.press(Key::Esc);
    stage.until("idle", "at its prompt");
    tui.press(Key::Ctrl('u'));
    tui.submit("exit", DEADLINE);
    assert_eq!(tui.wait(DEADLINE), Exit::Code(0));
    let row = stage.now().ended("stopped");
    stage.agree(&row);
    stage.keep(Store::Claude, &[(&row, "stopped")]);
}

#[test]
fn taken_back_then_killed() {
    let stage = Stage::new("tui-esc-sigkill");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let (tui, row) = ready(&stage, &claude, &[]);
    tui.submit("HOLD here hello", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_at_work("HOLD here hello").held_by(tui.pid());
    tui.wait_for_text("esc to interrupt", DEADLINE);
    tui.press(Key::Esc);
    stage.until("idle", "").held_by(tui.pid()).has("native_id", row.id());
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    // Its transcript ends with the prompt; what it last said of itself is that it rests.
    let row = stage.now().ended("done");
    stage.agree(&row);
    stage.keep(Store::Claude, &[(&row, "done")]);
}

#[test]
fn interrupted_in_a_tool_then_left() {
    let stage = Stage::new("tui-esc-tool-exit");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    stage.sandbox.run(["mkfifo", "pipe"]).expect_success();
    let (tui, _) = ready(&stage, &claude, &["--allowedTools", "Bash"]);
    tui.submit("TOOL cat pipe", DEADLINE);
    stage.until("working", "running Bash cat pipe").held_by(tui.pid());
    tui.wait_for_text("esc to interrupt", DEADLINE);
    tui.press(Key::Esc);
    let row = stage.until("idle", "last turn was interrupted by a person").held_by(tui.pid());
    stage.agree(&row);
    leave(&tui);
    let row = stage.now().ended("stopped");
    stage.keep(Store::Claude, &[(&row, "stopped")]);
}

#[test]
fn interrupted_in_mid_reply() {
    let stage = Stage::new("tui-esc-partial-exit");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let (tui, _) = ready(&stage, &claude, &[]);
    tui.submit("PARTIAL here a reply that is cut in two", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_at_work("PARTIAL here a reply that is cut in two").held_by(tui.pid());
    // The reply has begun; half a line is not shown yet.
    tui.wait_for_text("●", DEADLINE);
    tui.press(Key::Esc);
    let row = stage.until("idle", "last turn was interrupted by a person").held_by(tui.pid());
    stage.agree(&row);
    leave(&tui);
    let row = stage.now().ended("stopped");
    stage.keep(Store::Claude, &[(&row, "stopped")]);
}

#[test]
fn hung_up_in_mid_turn() {
    let stage = Stage::new("tui-sighup");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let (tui, _) = ready(&stage, &claude, &[]);
    tui.submit("HOLD here hello", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_at_work("HOLD here hello").held_by(tui.pid());
    // It notices the end of its input or the signal, whichever comes first.
    tui.hang_up().wait(DEADLINE);
    let row = stage.now().ended("interrupted");
    stage.keep(Store::Claude, &[(&row, "interrupted")]);
}

#[test]
fn resumed_at_its_prompt() {
    let stage = Stage::new("tui-resumed");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let output = claude.headless("hello", &[]).output(DEADLINE).expect_success();
    let id = super::session_id(&output.stdout);
    let (tui, row) = ready(&stage, &claude, &["--resume", &id]);
    let row = row.has("native_id", id.as_str()).has("reason", "turn over");
    stage.agree_on_reply(&row, "echo: hello");
    tui.submit("again", DEADLINE);
    claude.wait_for_transcript("echo: again", DEADLINE);
    let row = stage.until("idle", "turn over").held_by(tui.pid()).has("native_id", id.as_str());
    stage.agree_on_reply(&row, "echo: again");
    leave(&tui);
    let row = stage.now().ended("done").used(accounted(&transcript(&claude, &id)));
    stage.keep(Store::Claude, &[(&row, "done")]);
}

#[test]
fn killed_in_mid_turn() {
    let stage = Stage::new("tui-sigkill");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let (tui, _) = ready(&stage, &claude, &[]);
    tui.submit("HOLD here hello", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_at_work("HOLD here hello").held_by(tui.pid());
    tui.signal(Signal::KILL);
    assert_eq!(tui.wait(DEADLINE), Exit::Signal(9));
    let row = stage.now().ended("interrupted");
    stage.agree(&row);
    stage.keep(Store::Claude, &[(&row, "interrupted")]);
}

#[test]
fn killed_at_its_prompt() {
    let stage = Stage::new("tui-sigkill-idle");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let (tui, row) = ready(&stage, &claude, &[]);
    turn(&stage, &tui, row.id(), "hello");
    tui.signal(Signal::KILL);
    assert_eq!(tui.wait(DEADLINE), Exit::Signal(9));
    let row = stage.now().ended("done");
    stage.agree_on_reply(&row, "echo: hello");
    stage.keep(Store::Claude, &[(&row, "done")]);
}

#[test]
fn cleared() {
    let stage = Stage::new("tui-clear");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let (tui, row) = ready(&stage, &claude, &[]);
    let old = row.id();
    turn(&stage, &tui, old, "hello");
    tui.submit("/clear", DEADLINE);
    let new = stage.until_look("a second session", |look| {
        look.rows.iter().find(|row| row.id() != old && row.is("idle", "")).cloned()
    });
    let new = new.held_by(tui.pid());
    assert_eq!(claude.registry()[0]["sessionId"], new.id());
    claude.wait_for_transcript("\"type\":\"cost-state\"", DEADLINE);
    claude.wait_for_transcript("<local-command-stdout>", DEADLINE);
    let look = stage.look();
    assert_eq!((look.rows.len(), look.live()), (2, vec![new.id()]));
    let before = look.row(old).ended("done").used(accounted(&transcript(&claude, old)));
    stage.agree_on_reply(&before, "echo: hello");
    stage.agree(&look.row(new.id()));

    let new = turn(&stage, &tui, new.id(), "again");
    stage.agree_on_reply(&new, "echo: again");
    stage.keep(Store::Claude, &[(&before, "done"), (&new, "done")]);
}

#[test]
fn asking_which_session_to_go_on_with() {
    let stage = Stage::new("tui-choose");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let (tui, row) = ready(&stage, &claude, &[]);
    turn(&stage, &tui, row.id(), "hello");
    leave(&tui);
    let before = stage.now().ended("done");
    let tui = claude.terminal(&["--resume"]);
    tui.wait_for_text("Resume session", DEADLINE);
    tui.wait_for_text("hello", DEADLINE);
    let look = stage.look();
    // The id that it has registered is nobody's.
    assert_eq!(look.rows.iter().map(Row::id).collect::<Vec<_>>(), [before.id()]);
    look.row(before.id()).ended("done");
    assert_eq!(look.unbound.iter().map(|u| &u["pid"]).collect::<Vec<_>>(), [&json!(tui.pid())]);
    tui.press_away(Key::Enter, "Resume session", DEADLINE);
    stage.until("idle", "turn over").held_by(tui.pid()).has("native_id", before.id());
}

#[test]
fn asking_for_trust() {
    let stage = Stage::new("tui-trust");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let project = stage.sandbox.project("strange");
    let tui = stage.sandbox.terminal(&claude.program().cwd(&project));
    tui.wait_for_text("trust", DEADLINE);
    let look = stage.look();
    assert!(look.rows.is_empty(), "{}", look.rows[0]);
    let [process] = look.unbound.as_slice() else { panic!("{:?}", look.unbound) };
    assert_eq!(process["agent"], "claude");
    assert_eq!(process["pid"], tui.pid());
    assert_eq!(process["cwd"], project.to_str().unwrap());
}
