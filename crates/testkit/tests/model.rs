//! The scripted model over plain HTTP.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
};

use lariat_testkit::{
    DEADLINE, Model, Sandbox, built,
    model::{Api, Outcome, usage},
    wait_until,
};
use serde_json::{Value, json};

fn messages(prompt: &str, stream: bool) -> Value {
    json!({"model": "m", "stream": stream, "tools": [{"name": "Bash"}, {"name": "Agent"}],
        "messages": [{"role": "user", "content": prompt}]})
}

fn responses(prompt: &str) -> Value {
    json!({"model": "m", "stream": true, "tools": [{"type": "function", "name": "exec_command"}],
        "input": [{"type": "message", "role": "user",
            "content": [{"type": "input_text", "text": prompt}]}]})
}

fn connect(model: &Model, path: &str, body: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(model.address()).expect("the model listens");
    let body = body.to_string();
    let head = format!("POST {path}?beta=true HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).expect("the model reads");
    stream.write_all(body.as_bytes()).expect("the model reads");
    stream
}

fn read(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

fn post(model: &Model, path: &str, body: &Value) -> String {
    read(connect(model, path, body))
}

#[test]
fn it_holds_until_released() {
    let model = Model::start();
    let held = connect(&model, "/v1/messages", &messages("HOLD a hello", true));
    model.wait_for_hold("a", DEADLINE);
    assert_eq!(model.held(), ["a"]);
    assert_eq!(model.requests()[0].outcome, Outcome::Open);
    assert!(post(&model, "/v1/messages", &messages("other", true)).contains("echo: other"));
    model.release("a");
    let answer = read(held);
    assert!(answer.contains("echo: HOLD a hello") && answer.contains("message_stop"), "{answer}");
    assert!(model.held().is_empty());
    assert_eq!(model.prompts(), ["HOLD a hello", "other"]);
}

#[test]
fn it_holds_in_the_middle_and_after_a_tool() {
    let model = Model::start();
    let mut stream = connect(&model, "/v1/responses", &responses("PARTIAL p a long enough text"));
    model.wait_for_hold("p", DEADLINE);
    let mut seen = vec![0; 4096];
    let count = stream.read(&mut seen).expect("a part");
    let part = String::from_utf8_lossy(&seen[..count]).into_owned();
    assert!(!part.contains("response.completed"), "{part}");
    model.release("p");
    assert!(read(stream).contains("response.completed"));

    let mut body = responses("THEN t TOOL true");
    assert!(post(&model, "/v1/responses", &body).contains("exec_command"));
    let result = json!({"type": "function_call_output", "call_id": "c", "output": ""});
    body["input"].as_array_mut().expect("an array").push(result);
    let stream = connect(&model, "/v1/responses", &body);
    model.wait_for_hold("t", DEADLINE);
    model.release("t");
    assert!(read(stream).contains("tool finished"));
}

#[test]
fn a_client_that_leaves_a_hold_is_noticed() {
    let model = Model::start();
    let stream = connect(&model, "/v1/responses", &responses("HOLD a"));
    model.wait_for_hold("a", DEADLINE);
    drop(stream);
    wait_until("the hold to end", DEADLINE, || model.held().is_empty());
    wait_until("the outcome", DEADLINE, || model.requests()[0].outcome == Outcome::Abandoned);
}

#[test]
fn it_answers_whole_and_counts_tokens() {
    let model = Model::start();
    let answer = post(&model, "/v1/messages", &messages("PARALLEL a ;; b", false));
    let body: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON");
    assert_eq!(body["stop_reason"], "tool_use");
    assert_eq!(body["content"][1]["input"]["command"], "a");
    assert_eq!(body["content"][2]["input"]["command"], "b");
    assert_eq!(body["usage"]["output_tokens"], usage::OUTPUT);
    assert!(post(&model, "/v1/messages/count_tokens", &json!({})).contains("input_tokens"));
    assert!(post(&model, "/v1/messages", &messages("FAIL 529", true)).starts_with("HTTP/1.1 529"));
}

#[test]
fn side_requests_are_not_scripted() {
    let model = Model::start();
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "HOLD a"}]});
    assert!(post(&model, "/v1/messages", &body).contains("echo: HOLD a"));
    assert!(!model.requests()[0].main);
}

#[test]
fn it_reads_chunks_and_waits_to_be_told_to_go_on() {
    let model = Model::start();
    let mut stream = TcpStream::connect(model.address()).expect("the model listens");
    let head = "POST /v1/messages HTTP/1.1\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("the model reads");
    let mut go = [0; 25];
    stream.read_exact(&mut go).expect("leave to go on");
    assert!(go.starts_with(b"HTTP/1.1 100 Continue"));
    let body = messages(&"long ".repeat(500_000), false).to_string();
    for chunk in body.as_bytes().chunks(65_521) {
        write!(stream, "{:x}\r\n", chunk.len()).expect("the model reads");
        stream.write_all(chunk).expect("the model reads");
        stream.write_all(b"\r\n").expect("the model reads");
    }
    stream.write_all(b"0\r\n\r\n").expect("the model reads");
    assert!(read(stream).contains("echo: "));
    assert_eq!(model.requests()[0].api, Api::Messages);
}

#[test]
fn dropping_it_frees_what_it_holds() {
    let model = Model::start();
    let stream = connect(&model, "/v1/messages", &messages("HOLD a", true));
    model.wait_for_hold("a", DEADLINE);
    let reader = thread::spawn(move || read(stream));
    drop(model);
    assert!(!reader.join().expect("no panic").contains("message_stop"));
}

#[test]
fn it_runs_on_its_own() {
    let sandbox = Sandbox::new("model");
    let program = sandbox.spawn(&sandbox.program(built("lariat-model")));
    let url = program.wait_for_stdout("\n", DEADLINE);
    let address = url.trim().strip_prefix("http://").expect("a URL");
    assert!(TcpStream::connect(address).is_ok());
}
