//! A scripted model: the vendors' APIs on loopback, with a test in place of the intelligence.
//!
//! It speaks Anthropic Messages, OpenAI Responses and Chat Completions, and Gemini, and does what the
//! newest prompt says in upper-case words (see [`Script`]). The word to build tests on is `HOLD name`: that reply waits
//! until the test calls [`Model::release`], so "the agent is working now" is a fact and not a race:
//!
//! ```no_run
//! # use lariat_testkit::{DEADLINE, Model};
//! let model = Model::start();
//! // … an agent is given the prompt "HOLD here"
//! model.wait_for_hold("here", DEADLINE);
//! // … it is working, for as long as the test likes
//! model.release("here");
//! ```
//!
//! Only an agent's main loop is scripted. Side requests (titles, summaries, classifiers: those
//! without a shell tool) quote the same prompt and are answered plainly. It never reaches beyond
//! loopback, never checks a key, and counts tokens by fixed numbers ([`usage`]).

mod chat;
mod gemini;
mod http;
mod messages;
mod responses;
mod script;

use std::{
    collections::{HashMap, HashSet},
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use http::{Incoming, Outgoing};
pub use script::{Reply, Script};
use serde_json::{Value, json};

/// The token counts that every reply reports.
pub mod usage {
    /// Messages: new input.
    pub const INPUT: u64 = 100;
    /// Messages: input written to the cache.
    pub const CACHE_WRITE: u64 = 20;
    /// Input read from the cache; for Responses and Chat a part of [`RESPONSES_INPUT`].
    pub const CACHE_READ: u64 = 300;
    /// Output of one reply.
    pub const OUTPUT: u64 = 7;
    /// Responses and Chat: all input, cached or not.
    pub const RESPONSES_INPUT: u64 = 420;
    /// Responses and Chat: output spent on reasoning, a part of [`OUTPUT`].
    pub const RESPONSES_REASONING: u64 = 2;
}

/// How soon a hold notices that its client has gone.
const HEARTBEAT: Duration = Duration::from_millis(50);
/// How often a waiting client hears that the reply is still to come.
const PING: Duration = Duration::from_secs(2);

/// Which API a request was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// Anthropic Messages.
    Messages,
    /// OpenAI Responses.
    Responses,
    /// OpenAI Chat Completions.
    Chat,
    /// Gemini's `generateContent`, streamed or not.
    Gemini,
    /// Anything else: token counts, model lists, probes.
    Other,
}

/// One request that came, as the test may ask for it later.
#[derive(Debug, Clone)]
pub struct Request {
    /// Its place in the order of arrival.
    pub number: usize,
    /// The API it was for.
    pub api: Api,
    /// The HTTP method.
    pub method: String,
    /// The path without the query.
    pub path: String,
    /// All headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The model it named.
    pub model: Option<String>,
    /// What the person said last.
    pub prompt: String,
    /// The tools it offered.
    pub tools: Vec<String>,
    /// Whether it belongs to an agent's main loop, and so was scripted.
    pub main: bool,
    /// Whether it brought back a tool's result.
    pub tool_result: bool,
    /// The whole body.
    pub body: Arc<Value>,
    /// How it ended.
    pub outcome: Outcome,
}

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Being answered.
    Open,
    /// Answered in full.
    Answered,
    /// The client went away first.
    Abandoned,
}

/// The running server. Dropping it frees every hold and closes the port.
pub struct Model {
    address: SocketAddr,
    state: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    requests: Vec<Request>,
    /// How many requests stand at each gate now.
    held: HashMap<String, usize>,
    released: HashSet<String>,
    /// What is asked beside the main loop, and the script for it; the last one counts.
    beside: Vec<(String, String)>,
    closing: bool,
}

impl Model {
    /// Starts a model on a free port.
    ///
    /// # Panics
    /// When loopback offers no port.
    pub fn start() -> Self {
        Self::bind(0).expect("a free port on loopback")
    }

    /// Starts a model on this port of loopback, 0 for any.
    ///
    /// # Errors
    /// When the port cannot be had.
    pub fn bind(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let state = Arc::new(Shared::default());
        let acceptor = thread::spawn({
            let state = Arc::clone(&state);
            move || accept(&listener, &state)
        });
        Ok(Self { address, state, acceptor: Some(acceptor) })
    }

    /// Where it listens: `http://127.0.0.1:PORT`, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every request so far, oldest first.
    pub fn requests(&self) -> Vec<Request> {
        self.state.lock().requests.clone()
    }

    /// The prompts of the main loop so far, without those that only brought back a tool's result.
    pub fn prompts(&self) -> Vec<String> {
        let state = self.state.lock();
        let spoken = state.requests.iter().filter(|r| r.main && !r.tool_result);
        spoken.map(|r| r.prompt.clone()).collect()
    }

    /// Blocks until a request is being held at this gate.
    ///
    /// # Panics
    /// When `deadline` passes first.
    #[track_caller]
    pub fn wait_for_hold(&self, name: &str, deadline: Duration) {
        self.block(&format!("a request held at {name:?}"), deadline, |state| {
            state.held.get(name).is_some_and(|&count| count > 0).then_some(())
        });
    }

    /// Blocks until a request that `wanted` accepts has come, and returns it.
    ///
    /// # Panics
    /// When `deadline` passes first.
    #[track_caller]
    pub fn wait_for_request(&self, what: &str, deadline: Duration, wanted: impl Fn(&Request) -> bool) -> Request {
        self.block(what, deadline, |state| state.requests.iter().find(|r| wanted(r)).cloned())
    }

    #[track_caller]
    fn block<T>(&self, what: &str, deadline: Duration, mut probe: impl FnMut(&State) -> Option<T>) -> T {
        let end = Instant::now() + deadline;
        let mut state = self.state.lock();
        loop {
            if let Some(found) = probe(&state) {
                return found;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seen: Vec<_> = state
                    .requests
                    .iter()
                    .map(|r| format!("  {} {} {:?} {:?}", r.method, r.path, r.prompt, r.outcome))
                    .collect();
                drop(state);
                panic!("waited {deadline:?} in vain for {what}; requests:\n{}", seen.join("\n"));
            }
            state = self.state.changed.wait_timeout(state, left).expect(POISON).0;
        }
    }

    /// From now on a request beside the main loop (a summary, a title) whose prompt has these words is answered as if
    /// it were the main loop's with this prompt.
    pub fn script_beside(&self, words: &str, prompt: &str) {
        self.state.lock().beside.push((words.to_owned(), prompt.to_owned()));
    }

    /// The gates at which requests are held now.
    pub fn held(&self) -> Vec<String> {
        let state = self.state.lock();
        let mut names: Vec<_> = state.held.iter().filter(|(_, count)| **count > 0).map(|(n, _)| n.clone()).collect();
        names.sort();
        names
    }

    /// Lets everything at this gate go on. The gate stays open: use a new name for a new hold.
    pub fn release(&self, name: &str) {
        self.state.lock().released.insert(name.to_owned());
        self.state.changed.notify_all();
    }

    /// Blocks until the server ends, which it does only with the process.
    pub fn serve(mut self) {
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.join().expect("the acceptor does not panic");
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.state.lock().closing = true;
        self.state.changed.notify_all();
        // Wakes the acceptor, which then sees that it is over.
        drop(TcpStream::connect(self.address));
        if let Some(acceptor) = self.acceptor.take() {
            drop(acceptor.join());
        }
    }
}

const POISON: &str = "no thread of the model panics while it holds the state";

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(POISON)
    }

    fn log(&self, mut request: Request) -> usize {
        let mut state = self.lock();
        request.number = state.requests.len();
        let number = request.number;
        state.requests.push(request);
        self.changed.notify_all();
        number
    }

    fn finish(&self, number: usize, outcome: Outcome) {
        self.lock().requests[number].outcome = outcome;
        self.changed.notify_all();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.lock().closing {
            return;
        }
        let Ok(stream) = stream else { continue };
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            if let Err(error) = answer(&stream, &shared) {
                refuse(stream, &error);
            }
        });
    }
}

/// A request that could not be read gets the reason, so that it shows in the agent's own output.
fn refuse(stream: TcpStream, error: &io::Error) {
    let body = json!({"type": "error", "error": {"type": "invalid_request_error",
        "message": format!("scripted model: {error}")}});
    drop(Outgoing::new(stream).json(400, &body));
}

fn answer(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    let Some(incoming) = Incoming::read(stream)? else {
        return Ok(());
    };
    let body: Value = if incoming.body.is_empty() { Value::Null } else { serde_json::from_slice(&incoming.body)? };
    let posted = incoming.method == "POST";
    let mut said = match incoming.path.as_str() {
        path if posted && path.ends_with("/messages") => messages::read(&body),
        path if posted && path.ends_with("/responses") => responses::read(&body),
        path if posted && path.ends_with("/chat/completions") => chat::read(&body),
        path if posted && path.contains("enerateContent") => gemini::read(&body),
        _ => Said::default(),
    };
    let number = shared.log(Request {
        number: 0,
        api: said.api,
        method: incoming.method.clone(),
        path: incoming.path.clone(),
        headers: incoming.headers.clone(),
        model: body["model"].as_str().map(str::to_owned),
        prompt: said.prompt.clone(),
        tools: said.tools.clone(),
        main: said.main,
        tool_result: said.tool_result,
        body: Arc::new(body.clone()),
        outcome: Outcome::Open,
    });
    if !said.main
        && let Some((_, prompt)) = shared.lock().beside.iter().rfind(|(words, _)| said.prompt.contains(words))
    {
        (said.main, said.prompt) = (true, prompt.clone());
    }
    let mut turn = Turn { shared, out: Outgoing::new(stream.try_clone()?), last_ping: Instant::now() };
    let done = match said.api {
        Api::Messages => messages::answer(&mut turn, &body, &said),
        Api::Responses => responses::answer(&mut turn, &body, &said),
        Api::Chat => chat::answer(&mut turn, &body, &said),
        Api::Gemini => gemini::answer(&mut turn, &incoming.path, &body, &said),
        Api::Other => other(&mut turn.out, &incoming),
    };
    // A failure from here on is the client's hanging up: nothing more can be said to it.
    shared.finish(number, if done.is_ok() { Outcome::Answered } else { Outcome::Abandoned });
    Ok(())
}

fn other(out: &mut Outgoing, incoming: &Incoming) -> io::Result<()> {
    match (incoming.method.as_str(), incoming.path.as_str()) {
        ("HEAD", _) => out.empty(200),
        ("POST", path) if path.ends_with(":countTokens") => out.json(200, &json!({"totalTokens": usage::INPUT})),
        ("POST", path) if path.ends_with("/count_tokens") => out.json(200, &json!({"input_tokens": usage::INPUT})),
        ("GET", path) if path.ends_with("/models") => {
            out.json(200, &json!({"object": "list", "data": [], "models": [], "has_more": false}))
        }
        _ => out.json(
            404,
            &json!({"type": "error", "error": {"type": "not_found_error",
                "message": "the scripted model has no such path"}}),
        ),
    }
}

/// What a request says, whatever its wire format.
struct Said {
    api: Api,
    prompt: String,
    tools: Vec<String>,
    main: bool,
    tool_result: bool,
}

impl Default for Said {
    fn default() -> Self {
        Self { api: Api::Other, prompt: String::new(), tools: Vec::new(), main: false, tool_result: false }
    }
}

impl Said {
    fn script(&self) -> Script {
        match (self.main, self.tool_result) {
            (false, _) => Script::default(),
            (true, false) => Script::read(&self.prompt),
            (true, true) => Script::read(&self.prompt).after_tool(),
        }
    }

    /// The text of a reply that calls no tool.
    fn text(&self) -> String {
        if self.tool_result {
            return "tool finished".to_owned();
        }
        let chars: Vec<char> = self.prompt.chars().collect();
        let tail: String = chars[chars.len().saturating_sub(80)..].iter().collect();
        let times = if self.main && Script::read(&self.prompt).repeat { 60 } else { 1 };
        vec![format!("echo: {tail}"); times].join(" ")
    }
}

/// One reply under way.
struct Turn<'a> {
    shared: &'a Shared,
    out: Outgoing,
    last_ping: Instant,
}

impl Turn<'_> {
    /// Stands at a gate until the test opens it. `ping` is sent now and then, where the stream is
    /// open already.
    fn hold(&mut self, name: &str, ping: Option<&Value>) -> io::Result<()> {
        let shared = self.shared;
        *shared.lock().held.entry(name.to_owned()).or_default() += 1;
        shared.changed.notify_all();
        let passed = self.stand(ping, |state| state.released.contains(name), None);
        *shared.lock().held.entry(name.to_owned()).or_default() -= 1;
        shared.changed.notify_all();
        passed
    }

    /// Waits out a `SLEEP`.
    fn sleep(&mut self, length: Duration, ping: Option<&Value>) -> io::Result<()> {
        if length.is_zero() {
            return Ok(());
        }
        self.stand(ping, |_| false, Some(Instant::now() + length))
    }

    fn stand(&mut self, ping: Option<&Value>, open: impl Fn(&State) -> bool, until: Option<Instant>) -> io::Result<()> {
        let shared = self.shared;
        let mut state = shared.lock();
        loop {
            if open(&state) {
                return Ok(());
            }
            if state.closing {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let left = until.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(());
            }
            let nap = left.map_or(HEARTBEAT, |left| left.min(HEARTBEAT));
            drop(shared.changed.wait_timeout(state, nap).expect(POISON));
            if self.out.closed() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if let Some(ping) = ping
                && self.last_ping.elapsed() > PING
            {
                self.out.event(ping)?;
                self.last_ping = Instant::now();
            }
            state = shared.lock();
        }
    }
}

/// An id that no two replies of this process share.
fn fresh_id(prefix: &str) -> String {
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        time::{SystemTime, UNIX_EPOCH},
    };
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos() as u64);
    format!("{prefix}_scripted{nanos:016x}{:04x}", NEXT.fetch_add(1, Ordering::Relaxed))
}
