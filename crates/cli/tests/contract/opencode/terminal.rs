//! OpenCode on a terminal, and its server.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use lariat_testkit::{
    DEADLINE, Exit, Key, Signal, Terminal, agents::OpenCode, free_port, record::Store, wait_for, wait_until,
};
use serde_json::{Value, json};

use super::working;
use crate::looks::Stage;

/// One at its prompt that asks before it runs a command, beside a pipe that a command can wait for.
fn asking(stage: &Stage) -> Terminal {
    let opencode = OpenCode::install(&stage.sandbox, &stage.model);
    opencode.ask_for("bash");
    stage.sandbox.run(["mkfifo", "pipe"]).expect_success();
    let tui = opencode.terminal(&[]);
    tui.wait_for_text("Ask anything", DEADLINE);
    // Until it knows its model, it lets a prompt stand.
    tui.wait_for_text("Scripted", DEADLINE);
    tui
}

#[test]
fn no_session_then_working_aborted_waiting_and_ended() {
    let stage = Stage::new("tui");
    let tui = asking(&stage);
    let look = stage.look();
    assert!(look.rows.is_empty());
    assert_eq!(look.unbound.iter().map(|u| &u["pid"]).collect::<Vec<_>>(), [&json!(tui.pid())]);

    tui.submit("HOLD here hello", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = stage.until_at_work("HOLD here hello").held_by(tui.pid());
    stage.agree(&row);
    let id = row.id().to_owned();
    tui.wait_for_text("interrupt", DEADLINE);
    tui.press(Key::Esc);
    tui.wait_for_text("again to interrupt", DEADLINE);
    tui.press(Key::Esc);
    stage.until("idle", "last turn was interrupted by a person").held_by(tui.pid());

    tui.submit("TOOL touch started; cat pipe", DEADLINE);
    let doing = "bash touch started; cat pipe";
    let row = stage.until("waiting", &format!("permission: {doing}")).held_by(tui.pid());
    let row = row.has("native_id", id.as_str()).has("tool", doing);
    assert_eq!(stage.agree(&row)["asks"], row.0["reason"]);
    tui.wait_for_text("Allow once", DEADLINE);
    tui.press(Key::Enter);
    stage.until_started();
    stage.until("working", &format!("running {doing}")).held_by(tui.pid());
    stage.sandbox.run(["sh", "-c", "echo > pipe"]).expect_success();
    let row = stage.until("idle", "turn over").held_by(tui.pid());
    stage.agree_on_reply(&row, "tool finished");

    tui.submit("ASK", DEADLINE);
    stage.until("waiting", "question: Which colour?").held_by(tui.pid());
    tui.signal(Signal::TERM);
    assert_eq!(tui.wait(DEADLINE), Exit::Code(0));
    let row = stage.now().ended("stopped").has("native_id", id.as_str());
    stage.agree(&row);
    stage.keep(Store::OpenCode, &[(&row, "stopped")]);
}

#[test]
fn whoever_of_it_asks_and_for_what_it_waits() {
    let stage = Stage::new("tui-asks");
    let tui = asking(&stage);
    let waits = |what: &str| {
        let row = stage.until("waiting", &format!("permission: {what}")).held_by(tui.pid());
        assert_eq!(stage.agree(&row)["asks"], row.0["reason"]);
        tui.wait_for_text("Allow once", DEADLINE);
    };

    // A sub-agent.
    tui.submit("AGENT TOOL touch started; cat pipe", DEADLINE);
    waits("bash touch started; cat pipe");
    tui.press(Key::Enter);
    stage.until_started();
    stage.until("working", "running task").held_by(tui.pid());
    stage.sandbox.run(["sh", "-c", "echo > pipe"]).expect_success();
    stage.until("idle", "turn over").held_by(tui.pid());

    // What lies elsewhere is asked for without any setting.
    tui.submit(r#"CALL read {"filePath":"/etc/hostname"}"#, DEADLINE);
    waits("read /etc/hostname");
    tui.press(Key::Enter);
    stage.until("idle", "turn over").held_by(tui.pid());

    // One of two calls, while the other runs.
    stage.sandbox.run(["rm", "started"]).expect_success();
    tui.submit("PARALLEL touch started; cat pipe ;; touch other", DEADLINE);
    waits("bash touch started; cat pipe");
    tui.press(Key::Enter);
    stage.until_started();
    waits("bash touch other");
    stage.sandbox.run(["sh", "-c", "echo > pipe"]).expect_success();
    wait_until("the other one is over", DEADLINE, || stage.now().0["tool"] == "bash touch other");
    waits("bash touch other");
    tui.press(Key::Enter);
    stage.until("idle", "turn over").held_by(tui.pid());
    tui.signal(Signal::TERM);
    tui.wait(DEADLINE);
    stage.now().ended("done");
}

#[test]
fn whatever_is_queued_or_tried_again_ends_with_the_turn() {
    let stage = Stage::new("tui-queued");
    let tui = asking(&stage);
    let interrupt = || {
        tui.wait_for_text("interrupt", DEADLINE);
        tui.press(Key::Esc);
        tui.wait_for_text("again to interrupt", DEADLINE);
        tui.press(Key::Esc);
        let row = stage.until("idle", "last turn was interrupted by a person").held_by(tui.pid());
        stage.agree(&row);
        tui.wait_for_no_text("to interrupt", DEADLINE);
        row
    };
    // A command of the person's own is not what was asked first.
    tui.type_text("!true");
    tui.press(Key::Enter);
    let row = stage.until("idle", "turn over").held_by(tui.pid()).has("prompt", ());
    // Until it shows the session, what is typed is lost.
    tui.wait_for_text("$ true", DEADLINE);
    tui.submit("HOLD here first", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_at_work("HOLD here first").held_by(tui.pid()).has("native_id", row.id());
    tui.submit("second", DEADLINE);
    tui.wait_for_text("QUEUED", DEADLINE);
    // It is not taken up then.
    interrupt();
    tui.submit("FAIL 503", DEADLINE);
    stage.model.wait_for_request("one that fails", DEADLINE, |r| r.main && r.prompt == "FAIL 503");
    stage.until("working", "turn open").held_by(tui.pid());
    let row = interrupt().has("prompt", "HOLD here first");
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    let row = stage.now().ended("stopped").has("native_id", row.id());
    stage.keep(Store::OpenCode, &[(&row, "stopped")]);
}

#[test]
fn what_a_terminal_has_turned_to_is_never_called_ended() {
    let stage = Stage::new("tui-new");
    let tui = asking(&stage);
    tui.submit("hello", DEADLINE);
    let first = stage.until("idle", "turn over").held_by(tui.pid());
    tui.type_text("/new");
    tui.wait_for_text("New session", DEADLINE);
    tui.press(Key::Enter);
    tui.wait_for_text("Ask anything", DEADLINE);
    tui.submit("HOLD here again", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    // It logs late which session it works on, and has stored it before.
    let second = stage.until_look("the new session at work", |look| {
        let second = look.rows.iter().find(|row| row.id() != first.id())?;
        assert_ne!(second.0["live"], false, "{second}");
        second.is_at_work("HOLD here again").then(|| second.clone())
    });
    let second = second.held_by(tui.pid());
    stage.look().row(first.id()).ended("done");
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    stage.look().row(second.id()).ended("interrupted");
}

/// One request to the server; it never answers late.
fn post(port: u16, path: &str, body: &Value) -> Value {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n");
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let open = answer.find('{').filter(|_| answer.starts_with("HTTP/1.1 200"));
    let json = open.map(|at| &answer[at..=answer.rfind('}').expect("JSON")]);
    json.map_or(Value::Null, |json| serde_json::from_str(json).expect("JSON"))
}

#[test]
fn a_server_makes_nothing_live_but_the_turns_that_it_runs() {
    let stage = Stage::new("serve");
    let opencode = OpenCode::install(&stage.sandbox, &stage.model);
    let port = free_port();
    let server = opencode.serve(port);
    server.wait_for_stdout("listening", DEADLINE);
    let here = format!("directory={}", stage.sandbox.work().display());
    let made = wait_for("a session", DEADLINE, || {
        Some(post(port, &format!("/session?{here}"), &json!({}))).filter(Value::is_object)
    });
    let id = made["id"].as_str().expect("an id");
    stage.now().ended("done").has("native_id", id);
    let prompt = json!({"parts": [{"type": "text", "text": "HOLD here hello"}]});
    post(port, &format!("/session/{id}/prompt_async?{here}"), &prompt);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = working(&stage, "HOLD here hello", &server).has("native_id", id);
    stage.agree(&row);
    let refused = stage.sandbox.world().run(&stage.lariat().args(["stop", id]));
    assert_eq!(refused.code(), 3, "{refused:?}");
    stage.model.release("here");
    let row = stage.until_of(id, "done", "turn over").ended("done");
    stage.agree_on_reply(&row, "echo: HOLD here hello");
    server.signal(Signal::KILL);
    server.wait(DEADLINE);
    stage.now().ended("done");
}
