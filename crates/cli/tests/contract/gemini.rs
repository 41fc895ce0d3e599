//! Gemini CLI: without a terminal, on one, and launched by lariat. What a terminal's Gemini is doing
//! is only half in its file; the tests hold lariat to saying no more than that, unless it launched it.

use std::{
    fs,
    time::{Duration, Instant},
};

use lariat_testkit::{DEADLINE, Exit, Key, Signal, Terminal, agents::Gemini, record::Store, wait_until};
use serde_json::{Value, json};

use crate::looks::{Look, Row, Stage, Tokens, lines};

/// Tools run without a question.
const FREE: [&str; 2] = ["--approval-mode", "yolo"];

/// A key without effect in this time was dropped.
const EFFECT: Duration = Duration::from_secs(3);

/// An id, told by its first letter.
fn id(letter: char) -> String {
    let short: String = std::iter::repeat_n(letter, 8).collect();
    format!("{short}-1111-4222-8333-444444444444")
}

/// What the result on stdout says was used.
fn reported(stdout: &str) -> Tokens {
    let result = lines(stdout).pop().expect("a result");
    assert_eq!((&result["type"], &result["status"]), (&"result".into(), &"success".into()));
    let count = |key: &str| result["stats"][key].as_u64().expect("a count");
    Tokens { input: count("input_tokens"), output: count("output_tokens"), cache_read: count("cached"), cache_write: 0 }
}

#[track_caller]
fn act(stage: &Stage, args: &[&str]) -> Value {
    let output = stage.sandbox.world().run(&stage.lariat().args(args));
    assert_eq!(output.code(), 0, "{args:?}: {} {}", output.stdout, output.stderr);
    output.json()
}

/// Launches, and gives the handle, the id and the process.
#[track_caller]
fn launch(stage: &Stage, args: &[&str]) -> (String, String, Value) {
    let launched = act(stage, &[&["launch", "--json", "gemini"], args].concat());
    let text = |key: &str| launched[key].as_str().expect(key).to_owned();
    (text("handle"), text("native_id"), launched["pid"].clone())
}

/// Every process that is not the world's own first one.
fn others(stage: &Stage) -> Vec<String> {
    let all = stage.sandbox.processes();
    all.iter().filter(|p| p.pid != 1 && p.state != 'Z').map(|p| format!("{} {:?}", p.comm, p.argv)).collect()
}

/// Gives a prompt. For a moment after text Gemini takes Enter for a part of it, or drops it, and nothing
/// on the screen says when that is over; so a key that had no effect is pressed again.
#[track_caller]
fn submit(stage: &Stage, tui: &Terminal, text: &str) {
    tui.type_text(text);
    tui.wait_for_text(text, DEADLINE);
    let mut pressed = None::<Instant>;
    wait_until(&format!("the model to be asked {text:?}"), DEADLINE, || {
        let waiting = tui.text().contains(&format!("> {text}")) && stage.model.held().is_empty();
        if waiting && pressed.is_none_or(|at| at.elapsed() > EFFECT) {
            tui.press(Key::Enter);
            pressed = Some(Instant::now());
        }
        stage.model.prompts().iter().any(|prompt| prompt == text)
    });
}

/// The real process behind the one that was started, which only waits for it.
fn real(stage: &Stage, started: i32) -> i32 {
    let all = stage.sandbox.processes();
    let child = all.iter().find(|p| p.parent == started && p.argv.iter().any(|a| a.starts_with("--max-old-space")));
    child.expect("the real process").pid
}

#[test]
fn without_a_terminal_it_works_until_it_ends() {
    let stage = Stage::new("p-done");
    let gemini = Gemini::install(&stage.sandbox, &stage.model);
    let first = id('a');
    let child = gemini.headless("HOLD here first line\nsecond line", &["--session-id", &first]);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = stage.until_at_work("HOLD here first line\nsecond line").held_by(real(&stage, child.pid()));
    let row = row.has("native_id", first.as_str()).has("cwd", stage.sandbox.work().to_str().unwrap());
    stage.agree(&row);
    stage.model.release("here");
    let output = child.output(DEADLINE).expect_success();
    let row = stage.now().ended("done").used(reported(&output.stdout));
    stage.agree_on_reply(&row, "echo: HOLD here first line\nsecond line");
    stage.keep(Store::Gemini, &[(&row, "done")]);

    // One without an id in its arguments is a process without a session; what it writes could be its
    // own, what was written before it started could not.
    let child = gemini.headless("HOLD there hello", &[]);
    stage.model.wait_for_hold("there", DEADLINE);
    let look = stage.until_look("a session that could be anybody's", |look| {
        let second = look.rows.iter().find(|r| r.id() != first)?;
        (second.status() == "unknown" && look.unbound.len() == 1).then(|| stage.look())
    });
    look.row(&first).ended("done");
    stage.model.release("there");
    child.output(DEADLINE).expect_success();
    let look = stage.look();
    assert!(look.rows.iter().all(|r| r.status() == "done"), "{}", look.rows[0]);
}

#[test]
fn several_in_one_directory_ended_by_signals() {
    let stage = Stage::new("p-signals");
    stage.sandbox.env("GEMINI_CLI_NO_RELAUNCH", "true");
    let gemini = Gemini::install(&stage.sandbox, &stage.model);
    let ways =
        [('a', Signal::INT, Exit::Code(0)), ('b', Signal::TERM, Exit::Code(0)), ('c', Signal::KILL, Exit::Signal(9))];
    let children = ways.map(|(letter, ..)| {
        let child = gemini.headless(&format!("HOLD {letter} hello"), &["--session-id", &id(letter)]);
        // One after the other: all are held until the last one works.
        stage.model.wait_for_hold(&letter.to_string(), DEADLINE);
        child
    });
    for ((letter, ..), child) in ways.iter().zip(&children) {
        stage.until_of(&id(*letter), "working", "turn open").held_by(child.pid());
    }
    let mut rows = Vec::new();
    for ((letter, signal, exit), child) in ways.iter().zip(&children) {
        child.signal(*signal);
        assert_eq!(child.wait(DEADLINE), *exit);
        // Its exit code says nothing; that its turn was open does.
        let look = stage.look();
        rows.push(look.row(&id(*letter)).ended("interrupted").used(Tokens::default()));
        let living = look.live().len();
        assert_eq!(living, 3 - rows.len(), "the others live on");
    }
    let failed = gemini.headless("FAIL 400", &["--session-id", &id('d')]).output(DEADLINE);
    assert_ne!(failed.code(), 0);
    let row = stage.look().row(&id('d')).ended("failed");
    rows.push(row);
    let kept: Vec<(&Row, &str)> = rows.iter().zip(["interrupted", "interrupted", "interrupted", "failed"]).collect();
    stage.keep(Store::Gemini, &kept);
}

#[test]
fn on_a_terminal_only_what_is_recorded_is_told() {
    let stage = Stage::new("tui-escaped");
    stage.sandbox.env("GEMINI_CLI_NO_RELAUNCH", "true");
    let gemini = Gemini::install(&stage.sandbox, &stage.model);
    stage.sandbox.run(["mkfifo", "pipe"]).expect_success();
    let tui = gemini.terminal(&["--session-id", &id('a')]);
    let row = stage.until("starting", "alive, no turn recorded yet").held_by(tui.pid());
    stage.agree(&row);
    tui.wait_for_text("Type your message", DEADLINE);
    submit(&stage, &tui, "HOLD here hello");
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_at_work("HOLD here hello").held_by(tui.pid());
    stage.model.release("here");
    // Answered, it may be at rest or wait for leave to use a tool.
    let row = stage.until("unknown", "last turn unreadable: it has answered").held_by(tui.pid());
    assert_eq!(row.0["live"], true);

    submit(&stage, &tui, "TOOL touch started; cat pipe");
    tui.wait_for_text("Allow", DEADLINE);
    stage.until("unknown", "last turn unreadable: it has answered").held_by(tui.pid());
    tui.choose('●', 1, DEADLINE);
    stage.until_started();
    stage.until("working", "running a tool").held_by(tui.pid());
    tui.press(Key::Esc);
    // What the tool still gives is recorded after that, at its leisure, and opens nothing.
    let chats =
        || fs::read_dir(gemini.store().join("tmp/proj/chats")).expect("chats").map(|e| e.expect("a chat").path());
    wait_until("the tool's end is recorded", DEADLINE, || {
        chats().any(|chat| fs::read_to_string(chat).is_ok_and(|said| said.contains("Operation cancelled by user")))
    });
    let row = stage.until("idle", "last turn was interrupted by a person").held_by(tui.pid());
    stage.agree(&row);
    stage.keep(Store::Gemini, &[(&row, "stopped")]);

    submit(&stage, &tui, "FAIL 400");
    stage.until("idle", "last turn failed: [API Error").held_by(tui.pid());
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    stage.now().ended("failed");
}

#[test]
fn on_a_terminal_a_call_without_words_waits_and_a_refusal_needs_a_login() {
    let stage = Stage::new("tui-call");
    stage.sandbox.env("GEMINI_CLI_NO_RELAUNCH", "true");
    let gemini = Gemini::install(&stage.sandbox, &stage.model);
    let tui = gemini.terminal(&["--session-id", &id('a')]);
    tui.wait_for_text("Type your message", DEADLINE);
    submit(&stage, &tui, "CALL run_shell_command {\"command\":\"touch made\"}");
    tui.wait_for_text("Allow", DEADLINE);
    let row = stage.until("waiting", "permission: ").held_by(tui.pid());
    stage.agree(&row);
    stage.keep(Store::Gemini, &[(&row, "interrupted")]);
    tui.press(Key::Esc);
    stage.until("idle", "last turn was interrupted by a person").held_by(tui.pid());
    // What is typed right after Esc would be one key with it.
    tui.wait_for_text("Request cancelled.", DEADLINE);
    tui.wait_for_text("Type your message", DEADLINE);
    submit(&stage, &tui, "FAIL 401");
    let row = stage.until("waiting", "login: [API Error").held_by(tui.pid());
    stage.agree(&row);
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    stage.now().ended("failed");
}

#[test]
fn while_its_sub_agent_thinks_it_works_and_what_that_calls_for_it_asks_leave_for() {
    let stage = Stage::new("tui-beside");
    stage.sandbox.env("GEMINI_CLI_NO_RELAUNCH", "true");
    let gemini = Gemini::install(&stage.sandbox, &stage.model);
    let tui = gemini.terminal(&["--session-id", &id('a')]);
    tui.wait_for_text("Type your message", DEADLINE);
    let told = |task: &str| format!("CALL invoke_agent {}", json!({"agent_name": "generalist", "prompt": task}));
    submit(&stage, &tui, &told("HOLD sub"));
    stage.model.wait_for_hold("sub", DEADLINE);
    let began = Instant::now();
    // As long as any tool of Gemini's own would take.
    wait_until("it thinks for long", DEADLINE, || {
        stage.until("working", "sub-agent at work").held_by(tui.pid());
        began.elapsed() > Duration::from_secs(5)
    });
    tui.press(Key::Esc);
    stage.until("idle", "last turn was interrupted by a person").held_by(tui.pid());
    tui.wait_for_text("Request cancelled.", DEADLINE);
    tui.wait_for_text("Type your message", DEADLINE);
    submit(&stage, &tui, &told("CALL run_shell_command {\"command\": \"touch made\"}"));
    tui.wait_for_text("Allow", DEADLINE);
    stage.until("waiting", "permission: ").held_by(tui.pid());
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    stage.now().ended("interrupted");
}

#[test]
fn launched_in_a_terminal_its_title_tells() {
    let stage = Stage::new("launch-tui");
    let _gemini = Gemini::install(&stage.sandbox, &stage.model);
    let (handle, id, pid) = launch(&stage, &[]);
    let row = stage.until("idle", "no turn yet").has("native_id", id.as_str()).has("pid", pid.clone());
    assert_eq!(row.0["handle"], handle);
    let told = act(&stage, &["send", &handle, "say something", "--wait", "--json"]);
    assert_eq!((&told["outcome"], &told["status"]), (&"sent".into(), &"idle".into()), "{told}");
    assert!(told["reply"].as_str().is_some_and(|r| r.contains("say something")), "{told}");

    // Scenario 40: while it asks, nothing is typed.
    act(&stage, &["send", &handle, "TOOL touch made", "--json"]);
    stage.until("waiting", "action required").has("pid", pid);
    let output = stage.sandbox.world().run(&stage.lariat().args(["send", &handle, "yes please", "--json"]));
    assert_eq!((output.code(), &output.json()["outcome"]), (3, &"blocked".into()));
    assert!(!stage.sandbox.work().join("made").exists());
    act(&stage, &["kill", &handle, "--json"]);
    wait_until("nothing is left", DEADLINE, || others(&stage).is_empty());
    stage.now().ended("stopped").has("native_id", id);
}

#[test]
fn at_a_dialog_before_its_prompt_it_waits_and_nothing_is_typed() {
    for (case, reason) in [("launch-trust", "dialog: whether it may trust"), ("launch-login", "login: how to")] {
        let stage = Stage::new(case);
        let gemini = Gemini::install(&stage.sandbox, &stage.model);
        let path = gemini.store().join("settings.json");
        let text = fs::read_to_string(&path).expect("its settings");
        let mut settings: Value = serde_json::from_str(&text).expect("its settings");
        if case == "launch-trust" {
            settings["security"]["folderTrust"] = json!({"enabled": true});
            fs::remove_file(gemini.store().join("trustedFolders.json")).expect("what it trusts");
            stage.sandbox.env("GEMINI_CLI_TRUST_WORKSPACE", "");
        } else {
            settings["security"] = json!({"folderTrust": {"enabled": false}});
            stage.sandbox.env("GEMINI_API_KEY", "");
        }
        fs::write(&path, settings.to_string()).expect("its settings");
        let (handle, id, pid) = launch(&stage, &[]);
        stage.until("waiting", reason).has("native_id", id.as_str()).has("pid", pid);
        let output = stage.sandbox.world().run(&stage.lariat().args(["send", &handle, "yes please", "--json"]));
        assert_eq!((output.code(), &output.json()["outcome"]), (3, &"blocked".into()), "{output:?}");
        act(&stage, &["kill", &handle, "--json"]);
        stage.now().ended("stopped");
    }
}

#[test]
fn at_a_dialog_in_the_place_of_its_prompt_it_waits_and_nothing_is_typed() {
    let stage = Stage::new("launch-dialogs");
    let _gemini = Gemini::install(&stage.sandbox, &stage.model);
    let (handle, _, pid) = launch(&stage, &[]);
    stage.until("idle", "no turn yet");
    let viewer = stage.sandbox.terminal(&stage.lariat().args(["attach", &handle]));
    // What a person has opened: a key there changes a setting.
    viewer.wait_for_text("Type your message", DEADLINE);
    let opened = [
        ("/model", "Esc to close"),
        ("/settings", "to change focus"),
        ("/editor", "Apply To"),
        ("/footer", "to reorder"),
    ];
    for (opens, shown) in opened {
        command(&viewer, opens, || viewer.text().contains(shown));
        stage.until("waiting", "dialog: what was opened");
        let output = stage.sandbox.world().run(&stage.lariat().args(["send", &handle, "x", "--json"]));
        assert_eq!((output.code(), &output.json()["outcome"]), (3, &"blocked".into()), "{output:?}");
        viewer.press(Key::Esc);
        stage.until("idle", "no turn yet");
    }
    // A model that is not there: its title says that it works. Then one that says the same again and again: `Ready`.
    let asked =
        [("FAIL 404", "dialog: whether to try again", "2. Stop"), ("so REPEAT", "dialog: whether loops", "(esc)")];
    for (prompt, reason, answer) in asked {
        act(&stage, &["send", &handle, prompt, "--json"]);
        let row = stage.until("waiting", reason).has("pid", pid.clone());
        stage.agree(&row);
        let output = stage.sandbox.world().run(&stage.lariat().args(["send", &handle, "yes please", "--json"]));
        assert_eq!((output.code(), &output.json()["outcome"]), (3, &"blocked".into()), "{output:?}");
        viewer.wait_for_text(answer, DEADLINE);
        viewer.type_text(if prompt == "FAIL 404" { "2" } else { "1" });
        stage.until("idle", "last turn failed");
    }
    // What was said can be taken back: a key there chooses how much.
    viewer.wait_for_text("Type your message", DEADLINE);
    command(&viewer, "/rewind", || viewer.text().contains("Stay at current position"));
    stage.until("waiting", "dialog: what was opened");
    act(&stage, &["kill", &handle, "--json"]);
    stage.now().ended("stopped");
}

#[test]
fn launched_headless_a_result_and_not_the_exit_code_is_success() {
    let stage = Stage::new("launch-done");
    let _gemini = Gemini::install(&stage.sandbox, &stage.model);
    let (handle, first, pid) = launch(&stage, &["--headless", "-p", "--HOLD is no flag, HOLD here"]);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_at_work("--HOLD is no flag, HOLD here").has("native_id", first.as_str()).has("pid", pid);
    stage.model.release("here");
    let ended = act(&stage, &["wait", &handle, "--until", "done", "--timeout", "60s", "--json"]);
    assert_eq!(ended["exit"]["code"], 0, "{ended}");
    let stdout = stage.sandbox.home().join(".local/state/lariat/sessions").join(&handle).join("stdout");
    stage.now().ended("done").used(reported(&fs::read_to_string(stdout).expect("what it wrote")));

    // Ended in a tool, after words that look like an answer: it exits with 0 and leaves its tool.
    let tool = ["-p", "TOOL touch started; setsid -w tail -f /dev/null", "--"];
    let (handle, second, _) = launch(&stage, &[&["--headless"][..], &tool, &FREE].concat());
    stage.until_started();
    let row = stage.until_of(&second, "working", "");
    let pid = i32::try_from(row.0["pid"].as_i64().expect("a pid")).expect("a pid");
    let agent = stage.sandbox.world().process(pid).expect("it lives");
    agent.signal(Signal::TERM);
    let row = stage.until_look("it has ended", |look| look.find(&second).filter(|r| r.0["live"] == false).cloned());
    row.ended("interrupted").has("exit", json!({"code": 0}));
    act(&stage, &["kill", &handle, "--json"]);

    // Refused: it exits with the rest of 401, which is not 128 and a signal. Nobody has cut that off.
    let (_, third, _) = launch(&stage, &["--headless", "-p", "FAIL 401"]);
    let row = stage.until_look("it was refused", |look| look.find(&third).filter(|r| r.0["live"] == false).cloned());
    row.ended("failed").has("exit", json!({"code": 145})).has("restorable", false);
}

#[test]
fn resumed_it_is_one_session_and_the_next_start_removes_it() {
    let stage = Stage::new("p-resumed");
    stage.sandbox.env("GEMINI_CLI_NO_RELAUNCH", "true");
    let gemini = Gemini::install(&stage.sandbox, &stage.model);
    gemini.configure(json!({"sessionRetention": {"enabled": false}}));
    let old = id('a');
    gemini.headless("hello", &["--session-id", &old]).output(DEADLINE).expect_success();
    // As if it had been begun in another minute.
    let file = gemini.chats().remove(0);
    let earlier = file.with_file_name("session-2026-11-15T01-02-aaaaaaaa.jsonl");
    fs::rename(&file, &earlier).expect("another name");
    let child = gemini.headless("HOLD here again", &["-r", &old]);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = stage.until_at_work("hello").held_by(child.pid()).has("native_id", old.as_str());
    stage.agree_on_reply(&row, "echo: hello");
    stage.model.release("here");
    child.output(DEADLINE).expect_success();
    assert_eq!(gemini.chats().len(), 2, "the session's file, and one that says nothing");
    let row = stage.now().ended("done");
    stage.agree_on_reply(&row, "echo: HOLD here again");
    stage.keep(Store::Gemini, &[(&row, "done")]);

    // Why lariat resumes only where that is switched off: with it, the next start of another session,
    // anybody's, takes the whole conversation away.
    gemini.headless("other", &["--session-id", &id('b')]).output(DEADLINE).expect_success();
    assert_eq!(gemini.chats().len(), 3, "nothing was removed");
    gemini.configure(json!({}));
    gemini.headless("other", &["--session-id", &id('c')]).output(DEADLINE).expect_success();
    assert!(!earlier.exists(), "Gemini has removed it: {:?}", gemini.chats());
    assert!(stage.look().find(&old).is_none());
}

#[test]
fn brought_back_on_a_terminal_it_says_nothing_of_the_run_before_and_is_idle_once() {
    let stage = Stage::new("launch-back");
    let gemini = Gemini::install(&stage.sandbox, &stage.model);
    gemini.configure(json!({"sessionRetention": {"enabled": false}}));
    let (handle, id, _) = launch(&stage, &[]);
    stage.until("idle", "no turn yet");
    act(&stage, &["send", &handle, "first words", "--wait", "--json"]);
    act(&stage, &["send", &handle, "HOLD here second words", "--json"]);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = stage.until("working", "");
    let pid = i32::try_from(row.0["pid"].as_i64().expect("a pid")).expect("a pid");
    assert!(stage.sandbox.world().process(pid).expect("it lives").signal(Signal::KILL));
    stage.until_look("it has ended", |look| look.find(&id).filter(|r| r.0["live"] == false).cloned());
    stage.now().ended("interrupted").has("restorable", true);

    // Its terminal's last word is that it works, and what it takes up ends with an open turn: neither is this run's.
    act(&stage, &["resume", &handle, "--terminal", "--json"]);
    stage.until_look("its prompt", |look| {
        let row = look.only();
        assert!(["starting", "idle"].contains(&row.status()), "nobody has asked it anything: {row}");
        row.is("idle", "").then_some(())
    });
    // From then on it listens.
    let told = act(&stage, &["send", &handle, "third words", "--wait", "--json"]);
    assert_eq!((&told["outcome"], &told["reply"]), (&"sent".into(), &"echo: third words".into()), "{told}");
    act(&stage, &["kill", &handle, "--json"]);
}

#[test]
fn while_it_compresses_it_works() {
    let stage = Stage::new("launch-compress");
    let _gemini = Gemini::install(&stage.sandbox, &stage.model);
    let (handle, _, pid) = launch(&stage, &[]);
    stage.until("idle", "no turn yet");
    for words in ["first words", "second words", "third words"] {
        act(&stage, &["send", &handle, words, "--wait", "--json"]);
    }
    stage.model.script_beside("state_snapshot", "HOLD squeeze");
    let tui = stage.sandbox.terminal(&stage.lariat().args(["attach", &handle]));
    tui.wait_for_text("Type your message", DEADLINE);
    tui.type_text("/compress");
    tui.wait_for_text("> /compress", DEADLINE);
    let mut pressed = None::<Instant>;
    wait_until("the model to be asked for less", DEADLINE, || {
        if pressed.is_none_or(|at| at.elapsed() > EFFECT) {
            tui.press(Key::Enter);
            pressed = Some(Instant::now());
        }
        !stage.model.held().is_empty()
    });
    let row = stage.until("working", "").has("pid", pid);
    stage.agree(&row);
    stage.model.release("squeeze");
    stage.until("idle", "");
    let told = act(&stage, &["send", &handle, "fourth words", "--wait", "--json"]);
    assert_eq!(told["reply"], "echo: fourth words", "{told}");
    act(&stage, &["kill", &handle, "--json"]);
}

/// Gives a command, until it has had its effect. To ask for that must cost little: where a processor is short, whoever
/// asks again and again takes it from Gemini.
#[track_caller]
fn command(tui: &Terminal, text: &str, effect: impl Fn() -> bool) {
    tui.type_text(text);
    tui.wait_for_text(&format!("> {text}"), DEADLINE);
    let mut pressed = None::<Instant>;
    wait_until(&format!("the effect of {text}"), DEADLINE, || {
        if pressed.is_none_or(|at| at.elapsed() > EFFECT) {
            tui.press(Key::Enter);
            pressed = Some(Instant::now());
        }
        effect()
    });
}

/// Gives a command that begins another session.
#[track_caller]
fn clear(gemini: &Gemini<'_>, tui: &Terminal, text: &str) {
    let before = gemini.chats().len();
    command(tui, text, || gemini.chats().len() > before);
}

#[test]
fn after_clear_its_handle_goes_with_it_to_the_new_session() {
    let stage = Stage::new("launch-clear");
    let gemini = Gemini::install(&stage.sandbox, &stage.model);
    let (handle, first, pid) = launch(&stage, &[]);
    stage.until("idle", "no turn yet");
    act(&stage, &["send", &handle, "first words", "--wait", "--json"]);
    let tui = stage.sandbox.terminal(&stage.lariat().args(["attach", &handle]));
    tui.wait_for_text("Type your message", DEADLINE);
    let has_left = |look: &Look, old: &str| {
        let new = look.rows.iter().find(|r| r.0["handle"] == handle && r.id() != old)?.clone();
        let row = look.row(old).ended("done");
        assert_eq!(row.0["handle"], Value::Null, "{row}");
        assert_eq!((look.live().len(), look.unbound.len()), (1, 0), "one process, one session: {new}");
        Some(new)
    };

    // The new one's file is there at once, and nothing is said in it.
    clear(&gemini, &tui, "/clear");
    let second = stage.until_look("the second one", |look| has_left(look, &first)).has("pid", pid.clone());
    let row = stage.until_of(second.id(), "idle", "no turn yet").has("pid", pid.clone()).has("handle", handle.as_str());
    stage.agree(&row);
    let told = act(&stage, &["send", &handle, "second words", "--wait", "--json"]);
    assert_eq!((&told["id"], &told["reply"]), (&second.0["id"], &"echo: second words".into()), "{told}");
    act(&stage, &["send", &handle, "HOLD here third words", "--json"]);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = stage.until_of(second.id(), "working", "").has("pid", pid.clone()).has("handle", handle.as_str());
    assert_eq!(row.0["prompt"], "second words", "{row}");
    assert_eq!(stage.look().row(&first).ended("done").0["prompt"], "first words");
    stage.model.release("here");
    stage.until_of(second.id(), "idle", "");
    // Gone from the store, the old one is no row: its process is not there.
    let chat = gemini.chats().into_iter().find(|p| p.to_string_lossy().contains(&first[..8])).expect("its file");
    let aside = stage.sandbox.home().join("aside");
    fs::rename(&chat, &aside).expect("another place");
    assert_eq!(stage.look().only().id(), second.id());
    fs::rename(aside, chat).expect("its place");

    // Once more; and back by the list of all, which only the next prompt tells of.
    tui.wait_for_text("Type your message", DEADLINE);
    clear(&gemini, &tui, "/new");
    let third = stage.until_look("the third one", |look| has_left(look, second.id()));
    tui.wait_for_text("Type your message", DEADLINE);
    // A key opens the list, another takes the first of it: the last one that was written.
    command(&tui, "/resume", || tui.text().contains("echo: HOLD here third words"));
    tui.wait_for_text("Type your message", DEADLINE);
    submit(&stage, &tui, "HOLD there fourth words");
    stage.model.wait_for_hold("there", DEADLINE);
    stage.until_of(second.id(), "working", "").has("pid", pid).has("handle", handle.as_str());
    let look = stage.look();
    assert_eq!((look.live().len(), look.row(third.id()).status()), (1, "done"));
    stage.model.release("there");
    stage.until_of(second.id(), "idle", "");
    act(&stage, &["kill", &handle, "--json"]);
    wait_until("nothing is left", DEADLINE, || others(&stage).is_empty());
    let look = stage.look();
    let row = look.row(second.id()).ended("stopped");
    assert_eq!(row.0["handle"], handle, "{row}");
    assert_eq!((look.row(&first).status(), look.row(third.id()).status()), ("done", "done"));
}

#[test]
fn one_that_lariat_did_not_launch_is_followed_too() {
    let stage = Stage::new("tui-clear-gemini");
    let gemini = Gemini::install(&stage.sandbox, &stage.model);
    let first = id('a');
    let tui = gemini.terminal(&["--session-id", &first]);
    tui.wait_for_text("Type your message", DEADLINE);
    submit(&stage, &tui, "first words");
    stage.until_of(&first, "unknown", "last turn unreadable: it has answered");
    let pid = real(&stage, tui.pid());
    clear(&gemini, &tui, "/clear");
    let new = stage.until_look("another", |look| look.rows.iter().find(|r| r.id() != first).cloned());
    let row = stage.until_of(new.id(), "starting", "").held_by(pid);
    stage.agree(&row);
    stage.look().row(&first).ended("done");
    tui.wait_for_text("Type your message", DEADLINE);
    submit(&stage, &tui, "HOLD here second words");
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_of(new.id(), "working", "turn open").held_by(pid);
    stage.look().row(&first).ended("done");
    stage.model.release("here");
    stage.until_of(new.id(), "unknown", "last turn unreadable: it has answered").held_by(pid);
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    stage.until_look("both have ended", |look| look.rows.iter().all(|r| r.status() == "done").then_some(()));
}
