//! An agent that speaks the Agent Client Protocol and does what its prompts say.
//!
//! It speaks real JSON-RPC over its standard streams, and keeps nothing but which sessions there were
//! (`$HOME/.scripted-acp/ID`, with what was said). Its first argument, if any, takes something away:
//! `no-resume` (it can only load), `late` (the same, and it repeats what was said only after its response), `no-past` (neither), `v2` (another version of the protocol), `login`
//! (no session without one), `deaf` (it neither heeds a cancel nor the end of its input).
//!
//! | prompt | does |
//! |---|---|
//! | `HOLD PIPE` | says "thinking", then waits until somebody writes to that FIFO |
//! | `MUTE PIPE` | the same, without a word |
//! | `TOOL PIPE` | the same, as a call of a tool |
//! | `ASK WHAT` | asks for permission, and says which option it was given |
//! | `TWICE` | asks two at once |
//! | `UNASK PIPE` | asks two at once, takes the first back when somebody writes to that FIFO, and says what it was told |
//! | `READ` | asks for what no client of ours offers, and says what it was told |
//! | `LEAVE` | starts a process in a session of its own, which stays |
//! | `FAIL`, `REFUSE` | ends the turn in an error, or with a refusal |
//! | `DIE N` | exits |
//! | anything else | says it back, in two pieces |

use std::{
    collections::HashMap,
    fs,
    io::{self, BufRead, Read, Write},
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use serde_json::{Value, json};

/// The open turn, and who waits for the client's responses.
#[derive(Default)]
struct State {
    turn: Option<Value>,
    waiting: HashMap<u64, Sender<Value>>,
    next: u64,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

fn with<T>(act: impl FnOnce(&mut State) -> T) -> T {
    act(STATE.lock().expect("no thread panics with it").get_or_insert_default())
}

fn say(message: &Value) {
    let mut out = io::stdout().lock();
    drop(writeln!(out, "{message}").and_then(|()| out.flush()));
}

fn respond(id: &Value, result: &Value) {
    say(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

fn fail(id: &Value, code: i32, why: &str) {
    say(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}}));
}

fn update(session: &str, update: Value) {
    say(&json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "update": update}}));
}

fn chunk(session: &str, text: &str) {
    update(session, json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}));
}

/// Ends the turn, if nobody did before.
fn end(reason: &str) {
    if let Some(id) = with(|s| s.turn.take()) {
        respond(&id, &json!({"stopReason": reason}));
    }
}

fn request(method: &str, params: Value) -> Receiver<Value> {
    let (tell, told) = channel();
    let id = with(|s| {
        s.next += 1;
        s.waiting.insert(s.next, tell);
        s.next
    });
    say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    told
}

fn ask(session: &str, what: &str) -> Receiver<Value> {
    let option = |id: &str, kind: &str| json!({"optionId": id, "name": id, "kind": kind});
    let options = [option("always", "allow_always"), option("once", "allow_once"), option("no", "reject_once")];
    let call = json!({"toolCallId": what, "title": what, "kind": "execute", "status": "pending"});
    request("session/request_permission", json!({"sessionId": session, "toolCall": call, "options": options}))
}

fn chosen(told: &Value) -> &str {
    told["result"]["outcome"]["optionId"].as_str().unwrap_or("nothing")
}

fn wait_for(pipe: &str) {
    let mut text = String::new();
    drop(fs::File::open(pipe).and_then(|mut pipe| pipe.read_to_string(&mut text)));
}

fn turn(session: &str, prompt: &str) {
    let (word, rest) = prompt.split_once(' ').unwrap_or((prompt, ""));
    match word {
        "HOLD" => {
            chunk(session, "thinking");
            wait_for(rest);
        }
        "LEAVE" => {
            let mut child = Command::new("setsid");
            child.args(["tail", "-f", "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            drop(child.spawn().expect("a child"));
        }
        "MUTE" => wait_for(rest),
        "TOOL" => {
            update(
                session,
                json!({"sessionUpdate": "tool_call", "toolCallId": "t", "title": prompt, "status": "pending"}),
            );
            wait_for(rest);
            update(session, json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed"}));
            chunk(session, "tool finished");
        }
        "ASK" => {
            let Ok(told) = ask(session, rest).recv() else { return };
            chunk(session, &format!("chosen: {}", chosen(&told)));
        }
        "TWICE" => {
            let (first, second) = (ask(session, "first"), ask(session, "second"));
            let (Ok(first), Ok(second)) = (first.recv(), second.recv()) else { return };
            chunk(session, &format!("chosen: {} {}", chosen(&first), chosen(&second)));
        }
        "UNASK" => {
            let first = ask(session, "first");
            let id = with(|s| s.next);
            let second = ask(session, "second");
            wait_for(rest);
            say(&json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": id}}));
            let (Ok(first), Ok(second)) = (first.recv(), second.recv()) else { return };
            chunk(session, &format!("told: {} {}", first["error"]["code"], chosen(&second)));
        }
        "READ" => {
            let Ok(told) = request("fs/read_text_file", json!({"sessionId": session, "path": "/x"})).recv() else {
                return;
            };
            chunk(session, &format!("told: {}", told["error"]["code"]));
        }
        "FAIL" => {
            if let Some(id) = with(|s| s.turn.take()) {
                fail(&id, -32603, "the model is on fire");
            }
            return;
        }
        "REFUSE" => return end("refusal"),
        "DIE" => std::process::exit(rest.parse().unwrap_or(1)),
        _ => {
            chunk(session, "echo: ");
            chunk(session, prompt);
            let cost = json!({"amount": 0.25, "currency": "USD"});
            update(session, json!({"sessionUpdate": "usage_update", "used": 11, "size": 64000, "cost": cost}));
        }
    }
    end("end_turn");
}

fn store() -> PathBuf {
    let folder = PathBuf::from(std::env::var_os("HOME").expect("HOME")).join(".scripted-acp");
    fs::create_dir_all(&folder).expect("a store");
    folder
}

/// Runs it.
pub fn main() {
    let lacks = std::env::args().nth(1).unwrap_or_default();
    let has_past = lacks != "no-past";
    let only_loads = lacks == "no-resume" || lacks == "late";
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let message: Value = serde_json::from_str(&line).expect("a message");
        let (id, params) = (&message["id"], &message["params"]);
        let session = params["sessionId"].as_str().unwrap_or_default().to_owned();
        let known = |session: &str| !session.is_empty() && store().join(session).is_file();
        match message["method"].as_str() {
            Some("initialize") => {
                let version = if lacks == "v2" { 2 } else { 1 };
                let can = if only_loads || !has_past { json!({}) } else { json!({"resume": {}, "fork": {}}) };
                let can = json!({"loadSession": has_past, "sessionCapabilities": can});
                respond(id, &json!({"protocolVersion": version, "agentCapabilities": can, "authMethods": []}));
            }
            Some("session/new" | "session/fork") if lacks == "login" => fail(id, -32000, "Authentication required"),
            Some("session/new") => {
                let free = |n: &u32| fs::File::create_new(store().join(format!("scripted-{n}"))).is_ok();
                let session = format!("scripted-{}", (1..).find(free).expect("a free number"));
                respond(id, &json!({"sessionId": session}));
            }
            Some("session/fork") if known(&session) => {
                let fork = format!("{session}-fork");
                fs::copy(store().join(&session), store().join(&fork)).expect("a fork");
                respond(id, &json!({"sessionId": fork}));
            }
            Some("session/resume") if known(&session) && !only_loads => respond(id, &json!({})),
            Some("session/load") if known(&session) => {
                if lacks == "late" {
                    respond(id, &json!({}));
                }
                for said in fs::read_to_string(store().join(&session)).expect("a session").lines() {
                    let text = json!({"type": "text", "text": said});
                    update(&session, json!({"sessionUpdate": "user_message_chunk", "content": text}));
                    chunk(&session, "said before");
                }
                if lacks != "late" {
                    respond(id, &json!({}));
                }
            }
            Some("session/prompt") => {
                let prompt = params["prompt"][0]["text"].as_str().unwrap_or_default().to_owned();
                let mut said = fs::File::options().append(true).open(store().join(&session)).expect("a session");
                writeln!(said, "{prompt}").expect("a prompt");
                let id = id.clone();
                with(|s| s.turn = Some(id));
                thread::spawn(move || turn(&session, &prompt));
            }
            Some("session/cancel") if lacks == "deaf" => {}
            Some("session/cancel") => end("cancelled"),
            Some(_) if id.is_null() => {}
            Some(method) => fail(id, -32601, &format!("no {method}")),
            None => {
                let waiting = id.as_u64().and_then(|id| with(|s| s.waiting.remove(&id)));
                waiting.map(|tell| tell.send(message.clone()));
            }
        }
    }
    if lacks == "deaf" {
        loop {
            thread::park();
        }
    }
}
