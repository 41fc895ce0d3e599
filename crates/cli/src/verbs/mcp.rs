//! `lariat mcp`: other agents see, launch, ask and end sessions, by the Model Context
//! Protocol on standard input and output.
//!
//! # Theory of operation
//!
//! One object a line, JSON-RPC 2.0. A tool is a route of the HTTP interface, which is a
//! verb: so it refuses what the verb refuses and answers what `--json` prints. Each call
//! runs in a process of its own and is answered when it is done; one that waits holds up
//! no other. No daemon is needed.
//!
//! Written by hand: the official SDK needs an asynchronous runtime, and all that is
//! spoken here is four methods.

use std::io::{self, BufRead as _, Read as _, Seek as _, Write as _};
use std::sync::Mutex;
use std::time::Duration;

use lariat_daemon::http::openapi;
use lariat_daemon::http::routes::{self, Answers, ROUTES, Route};
use lariat_daemon::verb;
use lariat_protocol::json;
use serde_json::{Map, Value, json};

use crate::Done;
use crate::output::complain;

/// The versions that are spoken, newest first.
const VERSIONS: [&str; 3] = ["2025-06-18", "2025-03-26", "2024-11-05"];
/// The longest line that is read.
const LONGEST: u64 = 8 << 20;
/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long `wait` waits, unless told otherwise.
const WAITS: &str = "60s";

/// What is offered: a name, and the verb of the route behind it.
const TOOLS: [(&str, &str); 8] = [
    ("list", "ls"),
    ("status", "status"),
    ("explain", "explain"),
    ("peek", "peek"),
    ("launch", "launch"),
    ("send", "send"),
    ("wait", "wait"),
    ("stop", "stop"),
];

pub fn run() -> Done {
    let out = Mutex::new(io::stdout());
    std::thread::scope(|scope| {
        let mut input = io::stdin().lock();
        loop {
            let mut line = Vec::new();
            match input.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
                Ok(0) => return,
                Ok(_) if line.trim_ascii().is_empty() => continue,
                Ok(_) => {}
                Err(e) => {
                    complain(format_args!("lariat: {e}"));
                    return;
                }
            }
            let out = &out;
            match serde_json::from_slice::<Value>(&line) {
                Ok(asked) => drop(scope.spawn(move || hear(&asked, out))),
                Err(e) => say(out, &error(&Value::Null, -32700, &format!("not JSON: {e}"))),
            }
        }
    });
    Ok(0)
}

/// Answers one message, or several that came as a list.
fn hear(asked: &Value, out: &Mutex<io::Stdout>) {
    match asked {
        Value::Array(several) => {
            let answers: Vec<Value> = several.iter().filter_map(answer).collect();
            if !answers.is_empty() {
                say(out, &Value::Array(answers));
            }
        }
        one => answer(one).iter().for_each(|answer| say(out, answer)),
    }
}

fn say(out: &Mutex<io::Stdout>, what: &Value) {
    let mut text = Vec::new();
    // By our own writer: what agents chose is in it.
    if json::write(&mut text, what).is_err() {
        return;
    }
    text.push(b'\n');
    let mut out = out.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if out.write_all(&text).and_then(|()| out.flush()).is_err() {
        std::process::exit(0); // nobody listens any more
    }
}

fn error(id: &Value, code: i64, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}})
}

/// The answer to a message; `None` if it wants none.
fn answer(asked: &Value) -> Option<Value> {
    let Some(id) = asked.get("id").filter(|id| id.is_string() || id.is_number()) else {
        let notice = asked["method"].is_string() || asked.get("result").is_some();
        return (!notice).then(|| error(&Value::Null, -32600, "not a request"));
    };
    let params = &asked["params"];
    let result = match asked["method"].as_str() {
        Some("initialize") => {
            let wanted = params["protocolVersion"].as_str();
            let version = VERSIONS.into_iter().find(|v| Some(*v) == wanted).unwrap_or(VERSIONS[0]);
            json!({"protocolVersion": version, "capabilities": {"tools": {}},
                "serverInfo": {"name": "lariat", "version": env!("CARGO_PKG_VERSION")},
                "instructions": "Sees and supervises the coding agents on this machine. A session that waits needs a person."})
        }
        Some("ping") => json!({}),
        Some("tools/list") => {
            json!({"tools": TOOLS.iter().filter_map(|(n, v)| Some(tool(n, route(v)?))).collect::<Vec<_>>()})
        }
        Some("tools/call") => match call(params) {
            Ok(result) => result,
            Err(why) => return Some(error(id, -32602, &why)),
        },
        Some(other) => return Some(error(id, -32601, &format!("there is no method {other:?}"))),
        None => return Some(error(id, -32600, "not a request")),
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// The route of a verb: the one on a session, if there are two.
fn route(verb: &str) -> Option<&'static Route> {
    let of = |r: &&Route| matches!(r.answers, Answers::Verb(v) if v == verb);
    ROUTES.iter().filter(of).max_by_key(|r| r.path.contains("{target}"))
}

fn tool(name: &str, route: &Route) -> Value {
    let mut schema = openapi::schema_of(route.parameters);
    if route.path.contains("{target}") {
        let about = "a handle, a name, the agent's own id, or a unique prefix of one";
        schema["properties"]["target"] = json!({"type": "string", "description": about});
        let mut required = schema["required"].as_array().cloned().unwrap_or_default();
        required.push("target".into());
        schema["required"] = required.into();
    }
    json!({"name": name, "description": route.about, "inputSchema": schema,
        "annotations": {"readOnlyHint": route.method == "GET", "destructiveHint": name == "stop"}})
}

/// Calls a tool. What is wrong with the call is an error; what the verb refuses is an
/// answer, for the one who asked to read.
fn call(params: &Value) -> Result<Value, String> {
    let name = params["name"].as_str().unwrap_or("");
    let verb = TOOLS.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
    let route = verb.and_then(route).ok_or_else(|| format!("there is no tool {name:?}"))?;
    let mut said = match &params["arguments"] {
        Value::Null => Map::new(),
        Value::Object(said) => said.clone(),
        _ => return Err("arguments should be an object".into()),
    };
    let target = match said.remove("target") {
        Some(Value::String(target)) if route.path.contains("{target}") => Some(target),
        None if !route.path.contains("{target}") => None,
        None => return Err("target is missing".into()),
        Some(_) => return Err("target should be a text, where there is one".into()),
    };
    if name == "wait" {
        said.entry("timeout").or_insert_with(|| WAITS.into());
    }
    let arguments = routes::arguments(route, target.as_deref(), &said)?;
    let (text, failed) = match ran(&arguments) {
        Ok(told) => told,
        Err(e) => (e.to_string(), true),
    };
    let mut result = json!({"content": [{"type": "text", "text": text}], "isError": failed});
    if let Ok(object @ Value::Object(_)) = serde_json::from_str(&text) {
        result["structuredContent"] = object;
    }
    Ok(result)
}

fn ran(arguments: &[String]) -> io::Result<(String, bool)> {
    let mut ran = verb::run(arguments, PATIENCE, false)?;
    let mut text = String::new();
    ran.out.rewind()?;
    ran.out.read_to_string(&mut text)?;
    let failed = !matches!(ran.code, 0 | 5);
    Ok((if text.trim().is_empty() { ran.complaint } else { text.trim_end().to_owned() }, failed))
}
