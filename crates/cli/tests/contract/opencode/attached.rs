//! OpenCode's terminals of a server, and what a person takes back.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use lariat_testkit::{DEADLINE, Key, Signal, Stdin, agents::OpenCode, free_port};
use serde_json::{Value, json};

use crate::looks::{Row, Stage};

#[test]
fn what_a_terminal_of_a_server_shows_is_not_over_and_a_dead_server_runs_nothing() {
    let stage = Stage::new("attached");
    let opencode = OpenCode::install(&stage.sandbox, &stage.model);
    let port = free_port();
    let server = opencode.serve(port);
    server.wait_for_stdout("listening", DEADLINE);
    let url = format!("http://127.0.0.1:{port}");
    // It shows the session, and nothing tells so.
    let client = opencode.terminal(&["attach", &url]);
    client.wait_for_text("Ask anything", DEADLINE);
    client.submit("hello", DEADLINE);
    client.wait_for_text("echo: hello", DEADLINE);
    let may_show = format!("cannot tell if it lives: opencode process {} is a terminal", client.pid());
    let id = stage.until_look("a session that may be shown", |look| {
        let row = look.rows.iter().find(|row| row.is("unknown", &may_show))?;
        Some(row.id().to_owned())
    });
    // This one says which it shows; its server runs it.
    let named = opencode.terminal(&["attach", &url, "-s", &id]);
    named.wait_for_text("echo: hello", DEADLINE);
    stage.until_of(&id, "idle", "turn over").held_by(named.pid());
    client.signal(Signal::TERM);
    client.wait(DEADLINE);
    named.submit("HOLD here again", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_look("its server has it", |look| {
        look.find(&id).filter(|row| row.is("working", "turn open") && row.0["pid"] == server.pid()).map(|_| ())
    });
    server.signal(Signal::KILL);
    server.wait(DEADLINE);
    let row = stage.now().held_by(named.pid()).has("status", "idle");
    stage.agree(&row.has("reason", "last turn failed: the process that ran it is gone"));
    named.signal(Signal::KILL);
    named.wait(DEADLINE);
    stage.now().ended("interrupted").has("native_id", id);
}

#[test]
fn of_what_a_terminal_and_its_clients_prompted_nothing_tells_which_it_shows() {
    let stage = Stage::new("attached-tui");
    let opencode = OpenCode::install(&stage.sandbox, &stage.model);
    let port = free_port();
    let tui = opencode.terminal(&["--port", &port.to_string()]);
    tui.wait_for_text("Ask anything", DEADLINE);
    tui.wait_for_text("Scripted", DEADLINE);
    tui.submit("hello one", DEADLINE);
    stage.until("idle", "turn over").held_by(tui.pid());
    let client = opencode.terminal(&["attach", &format!("http://127.0.0.1:{port}")]);
    client.wait_for_text("Ask anything", DEADLINE);
    client.submit("hello two", DEADLINE);
    client.wait_for_text("echo: hello two", DEADLINE);
    client.signal(Signal::TERM);
    client.wait(DEADLINE);
    let may_show = format!("cannot tell if it lives: opencode process {} is a terminal", tui.pid());
    stage.until_look("both may be shown", |look| {
        (look.rows.len() == 2 && look.rows.iter().all(|row| row.is("unknown", &may_show))).then_some(())
    });
}

#[test]
fn what_a_client_has_begun_is_open_between_its_turns() {
    let stage = Stage::new("acp-foreign");
    let opencode = OpenCode::install(&stage.sandbox, &stage.model);
    let agent = stage.sandbox.spawn(&opencode.program().arg("acp").stdin(Stdin::Pipe));
    let ask = |id: u32, method: &str, params: Value| {
        agent.write_line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        agent.wait_for_stdout(&format!("\"id\":{id},\"result\""), DEADLINE);
    };
    ask(1, "initialize", json!({"protocolVersion": 1, "clientCapabilities": {}}));
    let begin = json!({"cwd": stage.sandbox.work(), "mcpServers": []});
    ask(2, "session/new", begin.clone());
    let row = stage.until("idle", "no turn yet").held_by(agent.pid());
    let prompt = json!({"sessionId": row.id(), "prompt": [{"type": "text", "text": "hello"}]});
    ask(3, "session/prompt", prompt);
    let row = stage.until("idle", "turn over").held_by(agent.pid()).has("native_id", row.id());
    stage.agree_on_reply(&row, "echo: hello");
    let refused = stage.sandbox.world().run(&stage.lariat().args(["stop", row.id()]));
    assert_eq!(refused.code(), 3, "{refused:?}");
    // Of several, it may have closed any.
    ask(4, "session/new", begin);
    stage.until_look("two that may be open", |look| {
        let may = |row: &Row| row.is("unknown", "cannot tell if it lives: opencode process");
        (look.rows.len() == 2 && look.rows.iter().all(may)).then_some(())
    });
    agent.close_stdin();
    agent.wait(DEADLINE);
    stage.look().row(row.id()).ended("done");
}

#[test]
fn what_is_undone_is_no_turn() {
    let stage = Stage::new("undone");
    let opencode = OpenCode::install(&stage.sandbox, &stage.model);
    let tui = opencode.terminal(&[]);
    tui.wait_for_text("Ask anything", DEADLINE);
    tui.wait_for_text("Scripted", DEADLINE);
    let undo = || {
        tui.type_text("/undo");
        tui.wait_for_text("Undo previous message", DEADLINE);
        tui.press(Key::Enter);
        tui.wait_for_text("reverted", DEADLINE);
    };
    tui.submit("hello", DEADLINE);
    stage.until("idle", "turn over").held_by(tui.pid());
    tui.submit("FAIL 401", DEADLINE);
    stage.until("waiting", "login: ").held_by(tui.pid());
    undo();
    let row = stage.until("idle", "turn over").held_by(tui.pid());
    stage.agree_on_reply(&row, "echo: hello");
    tui.wait_for_text("FAIL 401", DEADLINE);
    tui.press(Key::Ctrl('u'));
    tui.wait_for_no_text("FAIL 401", DEADLINE);
    tui.submit("FAIL 400", DEADLINE);
    stage.until("idle", "last turn failed").held_by(tui.pid());
    undo();
    stage.until("idle", "turn over").held_by(tui.pid());
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    stage.now().ended("done");
}

#[test]
fn what_the_second_interface_is_asked_is_a_turn() {
    let stage = Stage::new("second");
    let opencode = OpenCode::install(&stage.sandbox, &stage.model);
    let port = free_port();
    let server = opencode.serve(port);
    server.wait_for_stdout("listening", DEADLINE);
    let post = |path: &str, body: &Value| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a server");
        let body = body.to_string();
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
        );
        stream.write_all(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes()).expect("a question");
        // It keeps the connection, so the answer ends with its last brace.
        let mut told = Vec::new();
        loop {
            let mut more = [0; 4096];
            let count = stream.read(&mut more).expect("an answer");
            told.extend_from_slice(&more[..count]);
            let text = String::from_utf8_lossy(&told);
            let json = text.find('{').zip(text.rfind('}')).map(|(from, to)| &text[from..=to]);
            match json.and_then(|json| serde_json::from_str::<Value>(json).ok()) {
                Some(json) => return json,
                None => assert!(count > 0, "no answer: {text}"),
            }
        }
    };
    let begin = || {
        let made = post("/api/session", &json!({"location": {"directory": stage.sandbox.work()}}));
        made["data"]["id"].as_str().expect("an id").to_owned()
    };
    let prompt = |id: &str, text: &str| {
        let asked = post(&format!("/api/session/{id}/prompt"), &json!({"prompt": {"text": text}}));
        assert_eq!(asked["data"]["sessionID"], id, "{asked:#}");
    };
    let until = |id: &str, status: &str, reason: &str| {
        stage.until_look(status, |look| look.find(id).filter(|row| row.is(status, reason)).cloned())
    };
    let first = begin();
    prompt(&first, "hello");
    let row = until(&first, "done", "turn over");
    assert_eq!((&row.0["prompt"], &row.0["tokens"]["output"]), (&json!("hello"), &json!(7)), "{:#}", row.0);
    stage.agree_on_reply(&row, "echo: hello");
    let failed = begin();
    prompt(&failed, "FAIL 400");
    until(&failed, "failed", "Provider request failed with HTTP 400");
    // No line of its log names one, so nothing tells that it runs it.
    prompt(&first, "HOLD here");
    stage.model.wait_for_hold("here", DEADLINE);
    let row = until(&first, "unknown", &format!("cannot tell if it lives: opencode process {}", server.pid()));
    assert_eq!(row.0["live"], Value::Null);
    server.signal(Signal::KILL);
    server.wait(DEADLINE);
    until(&first, "interrupted", "cut off in the middle of a turn");
}
