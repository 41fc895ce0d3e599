//! A scripted gateway: OpenClaw's WebSocket protocol 4 on loopback, with the sessions that a test
//! gives it, and every way to go wrong that a test can name.
//!
//! It speaks as the real one was seen to speak, which the contract tests hold; here it can be made
//! to hang, to stammer and to lie on demand. It never waits by the clock: a connection that hangs
//! does so until the client leaves.

use std::{
    collections::{HashMap, HashSet},
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU16, Ordering},
    },
    thread::{self, JoinHandle},
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use tungstenite::{Message, WebSocket, protocol::CloseFrame};

/// How it behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manner {
    /// As it should.
    Well,
    /// It answers the upgrade with this HTTP status.
    Http(u16),
    /// It takes connections and says nothing.
    Mute,
    /// It answers the upgrade with bytes that are no HTTP.
    Noise,
    /// It greets and never answers a question.
    Deaf,
    /// It stops in the middle of the answer to a question.
    Stops,
    /// It sends the answer to a question byte by byte, and another byte only when asked again.
    Trickles,
    /// It sends text that is no JSON.
    Babbles,
    /// It sends bytes instead of text.
    Binary,
    /// It announces a frame of a gigabyte.
    Oversized,
    /// It hangs up on a question, with this code.
    HangsUp(u16),
    /// It wants this protocol.
    Speaks(u64),
    /// It greets with this protocol although another was asked for.
    Greets(u64),
    /// It accepts the token and grants nothing.
    GrantsNothing,
    /// It grants all but `operator.admin`, and ends a run for whoever may write.
    GrantsNoAdmin,
    /// It grants nothing, and tells over HTTP what it has; or this status, 0 for no word at all.
    Afar(u16),
    /// It grants everything and refuses the list, but tells it over HTTP.
    ForbidsList,
    /// It is of a version that knows neither archived sessions nor tasks.
    Older,
    /// Its list has another page for ever.
    Endless,
    /// Its list has fewer rows than it counts.
    Miscounts,
    /// It answers the question for its list with this instead.
    NoList(Value),
    /// It sends a hundred events before each answer.
    Chatty,
    /// It takes a message, and hangs up instead of saying so.
    TakesInSilence,
    /// It does not tell what questions there are: it refuses that with this code, or without one never answers.
    NoQuestions(&'static str),
}

/// When an abort takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abort {
    /// At once.
    AtOnce,
    /// After so many more listings.
    After(usize),
    /// After so many more aborts: until then the run is being prepared, and they are dropped.
    Dropped(usize),
    /// Never.
    Never,
}

struct State {
    manner: Manner,
    abort: Abort,
    aborting: HashMap<String, usize>,
    token: String,
    sessions: Vec<Value>,
    tasks: Vec<Value>,
    approvals: Vec<Value>,
    plugins: Vec<Value>,
    questions: Vec<Value>,
    messages: HashMap<String, Vec<Value>>,
    /// Messages that it knows, by what they are known by.
    taken: HashSet<String>,
    calls: Vec<(String, Value)>,
    closing: bool,
}

type Shared = Arc<Mutex<State>>;

/// The running gateway.
pub struct Gateway {
    shared: Shared,
    address: SocketAddr,
    acceptor: Option<JoinHandle<()>>,
}

/// Rows given at once, as the real one does unless asked for more.
const PAGE: u64 = 100;
const POISON: &str = "no thread of the gateway panics while it holds the state";

/// Milliseconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    u64::try_from(since.as_millis()).expect("a clock of this age")
}

/// A row as the gateway tells it: of a session that never ran, until more is set.
pub fn row(key: &str) -> Value {
    json!({"key": key, "kind": "direct", "agentId": "main", "createdAt": now(), "updatedAt": now(),
        "model": "scripted-1", "hasActiveRun": false, "activeRunIds": [], "inputTokens": 7, "totalTokens": 9})
}

impl Gateway {
    /// Starts one that wants this token.
    pub fn start(token: &str) -> Self {
        // An address of its own, so that nobody takes the port while it is down.
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let [a, b] = u16::try_from(std::process::id() % 0xfff0).expect("16 bits").to_be_bytes();
        let c = u8::try_from(NEXT.fetch_add(1, Ordering::Relaxed) % 250 + 2).expect("8 bits");
        Self::start_at(SocketAddr::from(([127, a, b, c], 0)), token)
    }

    /// Starts one at this address, where another has been.
    pub fn start_at(address: SocketAddr, token: &str) -> Self {
        let listener = TcpListener::bind(address).expect("a port of loopback");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Mutex::new(State {
            manner: Manner::Well,
            abort: Abort::AtOnce,
            aborting: HashMap::new(),
            token: token.to_owned(),
            sessions: Vec::new(),
            tasks: Vec::new(),
            approvals: Vec::new(),
            plugins: Vec::new(),
            questions: Vec::new(),
            messages: HashMap::new(),
            taken: HashSet::new(),
            calls: Vec::new(),
            closing: false,
        }));
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Self { shared, address, acceptor: Some(acceptor) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `ws://127.…`.
    pub fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock().expect(POISON)
    }

    /// Changes how it behaves, from the next connection on.
    pub fn behave(&self, manner: Manner) {
        self.state().manner = manner;
    }

    /// Changes when an abort takes effect.
    pub fn on_abort(&self, abort: Abort) {
        self.state().abort = abort;
    }

    /// Sets a session, by its key.
    pub fn put(&self, row: Value) {
        let mut state = self.state();
        match state.sessions.iter_mut().find(|s| s["key"] == row["key"]) {
            Some(known) => *known = row,
            None => state.sessions.push(row),
        }
    }

    /// Opens a run of a session, which is made if it is not there.
    pub fn run(&self, key: &str) {
        let mut new = self.find(key).unwrap_or_else(|| row(key));
        begin(&mut new);
        self.put(new);
    }

    /// Begins to prepare a run of a session: its row tells of the one before, and nothing names it yet.
    pub fn prepare(&self, key: &str) {
        let before = self.find(key).unwrap_or_else(|| row(key));
        let mut new = before.clone();
        begin(&mut new);
        for field in ["startedAt", "endedAt"] {
            new[field] = before[field].clone();
        }
        new["openRun"] = Value::Null;
        self.put(new);
    }

    /// Ends the open run of a session.
    pub fn end(&self, key: &str, status: &str) {
        let mut ended = self.find(key).expect("a session");
        end(&mut ended, status);
        self.put(ended);
    }

    /// Changes one field of a session.
    pub fn set(&self, key: &str, field: &str, value: Value) {
        let mut changed = self.find(key).expect("a session");
        changed[field] = value;
        self.put(changed);
    }

    /// Writes the end of a run of its own into its ledger: the session, its transcript, how it ended.
    pub fn task(&self, key: &str, transcript: &str, status: &str, error: &str) {
        let task = json!({"childSessionKey": format!("{key}:run:{transcript}"), "status": status, "error": error,
            "runtime": "cron", "endedAt": now()});
        self.state().tasks.insert(0, task);
    }

    /// Has the run of a session ask leave for a command, or for nothing any more.
    pub fn ask(&self, key: &str, command: Option<&str>) {
        let mut state = self.state();
        state.approvals.retain(|a| a["request"]["sessionKey"] != key);
        state.approvals.extend(command.map(|command| {
            json!({"id": "a", "approvalKind": "exec", "createdAtMs": now(), "expiresAtMs": now() + 1_800_000,
                "request": {"command": command, "sessionKey": key, "agentId": "main", "host": "gateway"}})
        }));
    }

    /// Has a plugin that the run of a session uses ask leave for this, or for nothing any more.
    pub fn ask_by_plugin(&self, key: &str, title: Option<&str>) {
        let mut state = self.state();
        state.plugins.retain(|a| a["request"]["sessionKey"] != key);
        state.plugins.extend(title.map(|title| {
            json!({"id": "plugin:a", "approvalKind": "plugin", "createdAtMs": now(),
                "request": {"title": title, "description": "why", "toolName": "tool", "sessionKey": key}})
        }));
    }

    /// Has the run of a session put a question, or none any more.
    pub fn question(&self, key: &str, question: Option<&str>) {
        let mut state = self.state();
        state.questions.retain(|q| q["sessionKey"] != key);
        state.questions.extend(question.map(|question| {
            json!({"id": "ask_a", "sessionKey": key, "status": "pending", "createdAtMs": now(),
                "questions": [{"questionId": "q", "header": "One", "question": question,
                    "options": [{"label": "red"}, {"label": "blue"}]}]})
        }));
    }

    /// Forgets a session.
    pub fn delete(&self, key: &str) {
        self.state().sessions.retain(|s| s["key"] != key);
    }

    /// A session as it stands.
    pub fn find(&self, key: &str) -> Option<Value> {
        self.state().sessions.iter().find(|s| s["key"] == key).cloned()
    }

    /// Adds to a conversation.
    pub fn say(&self, key: &str, message: Value) {
        self.state().messages.entry(key.to_owned()).or_default().push(message);
    }

    /// Every question of this method that was asked, with its parameters.
    pub fn asked(&self, method: &str) -> Vec<Value> {
        self.state().calls.iter().filter(|(m, _)| m == method).map(|(_, p)| p.clone()).collect()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.state().closing = true;
        drop(TcpStream::connect(self.address)); // wakes the acceptor, which then sees that it is over
        if let Some(acceptor) = self.acceptor.take() {
            drop(acceptor.join());
        }
    }
}

fn begin(row: &mut Value) {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    row["hasActiveRun"] = json!(true);
    row["status"] = json!("running");
    row["startedAt"] = json!(now());
    // Only the history tells it while it runs.
    row["openRun"] = json!(format!("run-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    let row = row.as_object_mut().expect("a row");
    for key in ["activeRunIds", "endedAt", "lastRunId"] {
        row.remove(key);
    }
}

fn end(row: &mut Value, status: &str) {
    row["hasActiveRun"] = json!(false);
    row["activeRunIds"] = json!([]);
    row["status"] = json!(status);
    row["endedAt"] = json!(now());
    row["updatedAt"] = json!(now());
}

fn accept(listener: &TcpListener, shared: &Shared) {
    for stream in listener.incoming() {
        if shared.lock().expect(POISON).closing {
            return;
        }
        let Ok(stream) = stream else { continue };
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            // A failure is the client's leaving.
            let _ = serve(stream, &shared);
        });
    }
}

/// Waits until the client leaves.
fn outlast(stream: &mut impl Read) {
    let mut bytes = [0; 1024];
    while stream.read(&mut bytes).is_ok_and(|n| n > 0) {}
}

type Served = Result<(), Box<tungstenite::Error>>;

fn serve(mut stream: TcpStream, shared: &Shared) -> Served {
    let manner = shared.lock().expect(POISON).manner.clone();
    match &manner {
        Manner::Mute => {
            outlast(&mut stream);
            return Ok(());
        }
        Manner::Http(code) => {
            let answer = format!("HTTP/1.1 {code} Scripted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).map_err(|e| Box::new(e.into()))?;
            outlast(&mut stream);
            return Ok(());
        }
        Manner::Noise => {
            let noise: Vec<u8> = (0..4096u32).map(|i| ((i * 7919) >> 3) as u8).collect();
            stream.write_all(&noise).map_err(|e| Box::new(e.into()))?;
            outlast(&mut stream);
            return Ok(());
        }
        Manner::Afar(_) | Manner::ForbidsList => {
            let status = if let Manner::Afar(status) = manner { status } else { 200 };
            let mut start = [0; 5];
            let upgrades = stream.peek(&mut start).is_ok_and(|n| &start[..n] == b"GET /") && !is_history(&stream);
            if !upgrades {
                return over_http(stream, status, shared).map_err(|e| Box::new(e.into()));
            }
        }
        _ => {}
    }
    let Ok(mut socket) = tungstenite::accept(stream) else { return Ok(()) };
    let challenge = json!({"type": "event", "event": "connect.challenge",
        "payload": {"nonce": "scripted", "ts": now()}});
    say(&mut socket, &challenge)?;
    let mut scopes = Value::Null;
    loop {
        let Message::Text(text) = socket.read().map_err(Box::new)? else { continue };
        let Ok(request) = serde_json::from_str::<Value>(&text) else { return Ok(()) };
        let (method, params) = (request["method"].as_str().unwrap_or_default(), &request["params"]);
        shared.lock().expect(POISON).calls.push((method.to_owned(), params.clone()));
        if method != "connect" && !misbehave(&manner, &mut socket)? {
            return Ok(());
        }
        if method == "question.list" && manner == Manner::NoQuestions("") {
            outlast(socket.get_mut());
            return Ok(());
        }
        if method == "connect" {
            scopes = params["scopes"].clone();
        }
        let admin = scopes.as_array().is_some_and(|s| s.contains(&json!("operator.admin")));
        let answer = if method == "exec.approval.list" && !admin {
            Ok(json!([])) // those of other clients are not shown
        } else if method == "sessions.abort" && !admin && !matches!(manner, Manner::GrantsNoAdmin) {
            // Runs that another client began.
            Err(refuse("INVALID_REQUEST", "unauthorized", Value::Null))
        } else {
            answer(&manner, method, params, shared)
        };
        if method == "chat.send" && manner == Manner::TakesInSilence {
            return Ok(());
        }
        let refused = answer.is_err();
        let frame = match answer {
            Ok(payload) => json!({"type": "res", "id": request["id"], "ok": true, "payload": payload}),
            Err(error) => json!({"type": "res", "id": request["id"], "ok": false, "error": error}),
        };
        say(&mut socket, &frame)?;
        if refused && method == "connect" {
            let close = CloseFrame { code: 1008.into(), reason: "refused".into() };
            socket.close(Some(close)).map_err(Box::new)?;
        }
    }
}

fn is_history(stream: &TcpStream) -> bool {
    let mut start = [0; 13];
    stream.peek(&mut start).is_ok_and(|n| &start[..n] == b"GET /sessions")
}

/// Answers one request: its list of sessions, as the real one does it, without what is live.
fn over_http(mut stream: TcpStream, status: u16, shared: &Shared) -> std::io::Result<()> {
    let (mut asked, mut byte) = (Vec::new(), [0]);
    while !asked.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? == 1 {
        asked.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&asked).into_owned();
    if status == 0 {
        outlast(&mut stream);
        return Ok(());
    }
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let mut state = shared.lock().expect(POISON);
    let right = head.contains(&format!("Authorization: Bearer {}\r\n", state.token));
    let answer = match serde_json::from_slice::<Value>(&body) {
        Ok(asked) if asked["tool"] == "sessions_list" => {
            let mut list = list(&mut state, &asked["args"], false);
            let rows = list["sessions"].as_array_mut().expect("rows");
            rows.iter_mut().filter_map(Value::as_object_mut).for_each(|row| drop(row.remove("hasActiveRun")));
            list.as_object_mut().expect("a list").remove("totalCount");
            json!({"ok": true, "result": {"content": [], "details": list}})
        }
        _ => json!({"messages": []}),
    };
    drop(state);
    let (status, answer) = if right { (status, answer.to_string()) } else { (401, "{}".to_owned()) };
    let head = format!("HTTP/1.1 {status} Scripted\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", answer.len());
    stream.write_all((head + &answer).as_bytes())
}

fn say(socket: &mut WebSocket<TcpStream>, frame: &Value) -> Served {
    socket.send(Message::text(frame.to_string())).map_err(Box::new)
}

/// Whether it goes on to answer as it should.
fn misbehave(manner: &Manner, socket: &mut WebSocket<TcpStream>) -> Result<bool, Box<tungstenite::Error>> {
    // A text frame of 64 KiB or more: its head says how long.
    let head = |length: u64| [&[0x81, 127][..], &length.to_be_bytes()].concat();
    let raw = |socket: &mut WebSocket<TcpStream>, bytes: &[u8]| -> Served {
        socket.get_mut().write_all(bytes).map_err(|e| Box::new(e.into()))
    };
    match manner {
        Manner::Deaf => {}
        Manner::Stops => {
            raw(socket, &[&head(100_000)[..], b"{\"type\":\"res\",\"id\":\"2\",\"ok\":true,\"payl"].concat())?
        }
        Manner::Trickles => {
            raw(socket, &head(1 << 20))?;
            // Half a million bytes, one at a time, for as long as anybody takes them.
            for _ in 0..1 << 19 {
                raw(socket, b" ")?;
                thread::yield_now();
            }
        }
        Manner::Babbles => socket.send(Message::text("{\"type\":\"res\",\"ok\":tr")).map_err(Box::new)?,
        Manner::Binary => socket.send(Message::binary(vec![0xff, 0, 1])).map_err(Box::new)?,
        Manner::Oversized => raw(socket, &head(1 << 30))?,
        Manner::HangsUp(code) => {
            say(socket, &json!({"type": "event", "event": "shutdown", "payload": {}}))?;
            let close = CloseFrame { code: (*code).into(), reason: "service restart".into() };
            socket.close(Some(close)).map_err(Box::new)?;
        }
        Manner::Chatty => {
            for n in 0..100 {
                say(socket, &json!({"type": "event", "event": "tick", "seq": n, "payload": {"id": "2", "ok": true}}))?;
                say(socket, &json!({"type": "res", "id": "999", "ok": false, "error": {"code": "OTHERS"}}))?;
            }
            return Ok(true);
        }
        _ => return Ok(true),
    }
    outlast(socket.get_mut());
    Ok(false)
}

fn refuse(code: &str, message: &str, details: Value) -> Value {
    json!({"code": code, "message": message, "details": details})
}

fn answer(manner: &Manner, method: &str, params: &Value, shared: &Shared) -> Result<Value, Value> {
    let mut state = shared.lock().expect(POISON);
    let text = |key: &str| params[key].as_str().unwrap_or_default().to_owned();
    match method {
        "connect" => greet(manner, params, &state.token),
        "sessions.list" => match manner {
            Manner::ForbidsList => {
                Err(refuse("FORBIDDEN", "no", json!({"code": "MISSING_SCOPE", "missingScope": "operator.read"})))
            }
            Manner::Older if !params["archived"].is_null() => {
                Err(refuse("INVALID_REQUEST", "unexpected property 'archived'", Value::Null))
            }
            Manner::NoList(other) => Ok(json!({"sessions": other})),
            Manner::Endless => {
                let offset = params["offset"].as_u64().unwrap_or(0);
                Ok(json!({"sessions": [row(&format!("agent:main:{offset}"))], "totalCount": 1u64 << 40,
                    "hasMore": true, "nextOffset": offset + 40_000}))
            }
            _ => Ok(list(&mut state, params, *manner == Manner::Miscounts)),
        },
        "exec.approval.list" => Ok(json!(state.approvals)),
        "plugin.approval.list" if *manner != Manner::Older => Ok(json!(state.plugins)),
        "question.list" if *manner != Manner::Older => match manner {
            Manner::NoQuestions(code) => Err(refuse(code, "for now", Value::Null)),
            _ => Ok(json!({"questions": state.questions})),
        },
        "tasks.list" if *manner != Manner::Older => Ok(json!({"tasks": state.tasks})),
        "sessions.abort" => {
            let key = text("key");
            let abort = state.abort;
            let running = state.sessions.iter_mut().find(|s| s["key"] == key && s["hasActiveRun"] == true);
            let Some(session) = running else {
                return Ok(json!({"abortedRunId": null, "status": "no-active-run"}));
            };
            match abort {
                Abort::AtOnce => end(session, "killed"),
                Abort::After(looks) => drop(state.aborting.insert(key, looks)),
                Abort::Dropped(0) => {
                    session["startedAt"] = json!(now());
                    end(session, "killed");
                }
                Abort::Dropped(more) => {
                    state.abort = Abort::Dropped(more - 1);
                    return Ok(json!({"abortedRunId": null, "status": "no-active-run"}));
                }
                Abort::Never => {}
            }
            Ok(json!({"abortedRunId": "r", "status": "aborted"}))
        }
        "chat.send" => {
            let (key, message) = (text("sessionKey"), json!({"role": "user", "content": text("message")}));
            if !state.taken.insert(text("idempotencyKey")) {
                return Ok(json!({"runId": params["idempotencyKey"], "status": "ok"}));
            }
            state.messages.entry(key.clone()).or_default().push(message);
            if let Some(session) = state.sessions.iter_mut().find(|s| s["key"] == key) {
                begin(session);
            }
            Ok(json!({"runId": params["idempotencyKey"], "status": "started"}))
        }
        "chat.history" => {
            let messages = state.messages.get(&text("sessionKey")).cloned().unwrap_or_default();
            let session = state.sessions.iter().find(|s| s["key"] == params["sessionKey"]);
            let open = session
                .filter(|s| s["hasActiveRun"] == true && s["openRun"].is_string())
                .map(|s| json!({"runId": s["openRun"], "text": ""}));
            Ok(json!({"messages": messages, "inFlightRun": open}))
        }
        other => Err(refuse("INVALID_REQUEST", &format!("unknown method: {other}"), Value::Null)),
    }
}

fn greet(manner: &Manner, params: &Value, token: &str) -> Result<Value, Value> {
    let wants = |protocol: u64| params["minProtocol"] != protocol || params["maxProtocol"] != protocol;
    if let Manner::Speaks(protocol) = manner
        && wants(*protocol)
    {
        let details = json!({"code": "PROTOCOL_MISMATCH", "expectedProtocol": protocol});
        return Err(refuse("INVALID_REQUEST", "protocol mismatch", details));
    }
    match params["auth"]["token"].as_str() {
        _ if token.is_empty() => {}
        Some(given) if given == token => {}
        Some(_) => {
            return Err(refuse("INVALID_REQUEST", "unauthorized", json!({"code": "AUTH_TOKEN_MISMATCH"})));
        }
        None => {
            return Err(refuse("NOT_PAIRED", "identity required", json!({"code": "DEVICE_IDENTITY_REQUIRED"})));
        }
    }
    let scopes = match (manner, params["scopes"].as_array()) {
        (Manner::GrantsNothing | Manner::Afar(_), _) => json!([]),
        (Manner::GrantsNoAdmin, Some(asked)) => asked.iter().filter(|s| *s != "operator.admin").cloned().collect(),
        _ => params["scopes"].clone(),
    };
    let protocol = if let Manner::Greets(protocol) = manner { *protocol } else { 4 };
    Ok(json!({"type": "hello-ok", "protocol": protocol, "server": {"version": "scripted"},
        "auth": {"method": "token", "role": "operator", "scopes": scopes}}))
}

fn list(state: &mut State, params: &Value, miscounts: bool) -> Value {
    let State { aborting, sessions, .. } = state;
    aborting.retain(|key, looks| {
        if *looks == 0 {
            sessions.iter_mut().filter(|s| s["key"] == *key).for_each(|s| end(s, "killed"));
            return false;
        }
        *looks -= 1;
        true
    });
    let offset = params["offset"].as_u64().unwrap_or(0);
    let limit = params["limit"].as_u64().unwrap_or(PAGE).min(PAGE);
    let (from, count) = (usize::try_from(offset).expect("small"), usize::try_from(limit).expect("small"));
    let listed = |s: &&Value| s["archived"] != true || params["archived"] == "all";
    let all: Vec<&Value> = state.sessions.iter().filter(listed).collect();
    let total = all.len() as u64;
    let rows: Vec<Value> = all.into_iter().skip(from).take(count).cloned().collect();
    let next = offset + limit;
    let more = next < total;
    json!({"ts": now(), "count": rows.len(), "totalCount": total + u64::from(miscounts), "limitApplied": limit,
        "nextOffset": more.then_some(next), "hasMore": more, "sessions": rows})
}
