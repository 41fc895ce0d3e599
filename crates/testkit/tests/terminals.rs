//! The real agents on real terminals: idle, working, waiting for a person.

use std::fs;

use lariat_testkit::{
    DEADLINE, Exit, Key, Model, Sandbox, Signal, Size,
    agents::{Claude, Codex, Daemon},
    wait_until,
};

#[test]
fn a_terminal_shows_and_takes() {
    let sandbox = Sandbox::new("tty");
    let shell = sandbox.terminal(&sandbox.program("sh").env("PS1", "ready> "));
    shell.wait_for_text("ready>", DEADLINE);
    shell.submit("tty; stty size", DEADLINE);
    let screen = shell.wait_for_text("45 140", DEADLINE);
    assert!(screen.contains("/dev/pts/"), "{screen}");
    shell.resize(Size { rows: 30, cols: 100 });
    shell.submit("stty size", DEADLINE);
    shell.wait_for_text("30 100", DEADLINE);
    shell.press(Key::Ctrl('d'));
    assert_eq!(shell.wait(DEADLINE), Exit::Code(0));
}

#[test]
fn hanging_up_reaches_the_program() {
    let sandbox = Sandbox::new("hup");
    let shell = sandbox.terminal(&sandbox.program("cat"));
    shell.submit("hello", DEADLINE);
    assert_eq!(shell.hang_up().wait(DEADLINE), Exit::Signal(Signal::HUP.as_raw()));
}

#[test]
fn claude_is_idle_then_working_then_waiting() {
    let (sandbox, model) = (Sandbox::new("claude-tui"), Model::start());
    let claude = Claude::install(&sandbox, &model);
    let tui = claude.terminal(&["--permission-mode", "manual"]);
    let entry = claude.wait_for_status("idle", DEADLINE);
    assert_eq!(entry["pid"], tui.pid());
    assert!(claude.transcripts().is_empty(), "no transcript before the first prompt");

    tui.submit("HOLD here hello", DEADLINE);
    model.wait_for_hold("here", DEADLINE);
    claude.wait_for_status("busy", DEADLINE);
    tui.wait_for_text("esc to interrupt", DEADLINE);
    model.release("here");
    tui.wait_for_text("echo: HOLD here hello", DEADLINE);
    claude.wait_for_status("idle", DEADLINE);

    tui.submit("TOOL touch made", DEADLINE);
    let entry = claude.wait_for_status("waiting", DEADLINE);
    assert_eq!(entry["waitingFor"], "permission prompt");
    tui.wait_for_text("Do you want to proceed?", DEADLINE);
    assert!(!sandbox.work().join("made").exists());
    tui.choose('❯', 1, DEADLINE);
    wait_until("the tool to run", DEADLINE, || sandbox.work().join("made").exists());
    tui.wait_for_text("tool finished", DEADLINE);
    claude.wait_for_status("idle", DEADLINE);

    tui.signal(Signal::TERM);
    assert_eq!(tui.wait(DEADLINE), Exit::Code(143));
    assert!(claude.registry().is_empty());
}

#[test]
fn claude_asks_and_plans() {
    let (sandbox, model) = (Sandbox::new("claude-ask"), Model::start());
    let claude = Claude::install(&sandbox, &model);
    let tui = claude.terminal(&["--permission-mode", "plan"]);
    claude.wait_for_status("idle", DEADLINE);
    tui.submit("ASK me", DEADLINE);
    assert_eq!(claude.wait_for_status("waiting", DEADLINE)["waitingFor"], "input needed");
    tui.wait_for_text("Which colour?", DEADLINE);
    tui.choose('❯', 2, DEADLINE);
    tui.wait_for_text("tool finished", DEADLINE);
    claude.wait_for_status("idle", DEADLINE);
    tui.submit("PLAN it", DEADLINE);
    assert_eq!(claude.wait_for_status("waiting", DEADLINE)["waitingFor"], "permission prompt");
    tui.wait_for_text("Exit plan mode?", DEADLINE);
}

#[test]
fn codex_is_idle_then_working_then_waiting() {
    let (sandbox, model) = (Sandbox::new("codex-tui"), Model::start());
    let codex = Codex::install(&sandbox, &model);
    let tui = codex.terminal(Daemon::None, &[]);
    tui.wait_for_text("gpt-5.1-codex", DEADLINE);
    assert!(codex.rollouts().is_empty(), "no rollout before the first prompt");

    tui.submit("HOLD here hello", DEADLINE);
    model.wait_for_hold("here", DEADLINE);
    tui.wait_for_text("esc to interrupt", DEADLINE);
    let rollout = codex.wait_for_rollout("task_started", DEADLINE);
    assert!(!fs::read_to_string(&rollout).expect("a rollout").contains("task_complete"));
    model.release("here");
    tui.wait_for_text("echo: HOLD here hello", DEADLINE);
    codex.wait_for_rollout("task_complete", DEADLINE);

    tui.submit("ESCALATE TOOL touch made", DEADLINE);
    tui.wait_for_text("Would you like to run the following command?", DEADLINE);
    codex.wait_for_rollout("require_escalated", DEADLINE);
    assert!(!sandbox.work().join("made").exists());
    tui.choose('›', 1, DEADLINE);
    tui.wait_for_text("tool finished", DEADLINE);
    assert!(sandbox.work().join("made").exists());

    tui.signal(Signal::KILL);
    assert_eq!(tui.wait(DEADLINE), Exit::Signal(9));
}

#[test]
fn codex_daemon_outlives_its_terminal_but_not_the_world() {
    let (sandbox, model) = (Sandbox::new("codex-daemon"), Model::start());
    let codex = Codex::install(&sandbox, &model);
    let tui = codex.terminal(Daemon::Shared, &[]);
    tui.wait_for_text("gpt-5.1-codex", DEADLINE);
    tui.submit("HOLD here hello", DEADLINE);
    model.wait_for_hold("here", DEADLINE);
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    let daemon = |process: &lariat_testkit::world::Process| process.argv.iter().any(|arg| arg == "app-server");
    assert!(sandbox.processes().iter().any(daemon), "{:?}", sandbox.processes());
    assert_eq!(model.held(), ["here"], "the daemon's turn goes on");
    let outside: Vec<_> = sandbox.processes().iter().map(|process| process.outside).collect();
    drop(sandbox);
    for pid in outside {
        assert!(!fs::exists(format!("/proc/{pid}")).expect("/proc"), "{pid} outlived its world");
    }
}
