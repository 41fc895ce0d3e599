//! HTTP on loopback, for those who know the token. Off until asked for.
//!
//! # Theory of operation
//!
//! Every request goes the same way: is it one, may its sender ask ([`guard`]), is
//! there such a route ([`routes`]), what command line does it mean, and what does that
//! print. Its body is read only of one who may ask. A route that looks is answered from what is warm, if that is still true; one
//! that acts is a verb in a process of its own. Nothing is changed by `GET`.
//!
//! Written by hand because it is small: one method table, bodies with a length, and
//! one stream. [`httparse`] reads the heads.

pub mod guard;
mod metrics;
pub mod once;
pub mod openapi;
mod page;
mod pass;
mod request;
pub mod routes;
mod table;
mod terminal;

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lariat_adapters::look::Places;
use lariat_sys::{durable, file};
use serde_json::{Map, Value, json};

use crate::hub::Next;
use crate::place::Place;
use crate::{Daemon, status, verb};
use guard::Claims;
use pass::Run;
use request::{BODY, NoRequest, Reader, Request, STRANGERS_BODY};
use routes::{Answers, Found, Route};

/// How long an end may take to read.
const SLOW: Duration = Duration::from_secs(10);
/// How often a silent stream says that it is there.
const STILL_HERE: Duration = Duration::from_secs(15);
/// How much the kernel holds of a stream that is not read.
const UNREAD: usize = 128 << 10;
/// How long the daemon before us may take to leave its port.
const LEAVING: Duration = Duration::from_millis(500);
/// How long a verb that acts may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// The door to HTTP.
pub struct Http {
    /// Its port.
    pub port: u16,
    token: String,
    run: Run,
}

/// Opens the door on loopback; 0 is any port that is free. Secrets that were made for a daemon before us let nobody
/// in any more: who took its port may have heard them.
pub fn open(port: u16, places: &Places) -> io::Result<(Http, TcpListener)> {
    let began = Instant::now();
    let listener = loop {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            // The daemon before us may be on its way out.
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && began.elapsed() < LEAVING => {
                std::thread::sleep(Duration::from_millis(5));
            }
            bound => break bound?,
        }
    };
    let port = listener.local_addr()?.port();
    once::forget(places);
    Ok((Http { port, token: read_token(&Place::of(places).token)?, run: Run::new(port)? }, listener))
}

/// Opens the door of a daemon that runs, unless it is open; the port it serves on.
pub fn open_late(daemon: &Arc<Daemon>, port: u16) -> io::Result<u16> {
    static OPENING: Mutex<()> = Mutex::new(());
    let _one = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(http) = daemon.http.get() {
        return Ok(http.port);
    }
    let (http, listener) = open(port, &daemon.places)?;
    let port = http.port;
    let _ = daemon.http.set(http); // nobody else could, see above
    start(daemon, listener)?;
    daemon.log.info("http", format!("serves on port {port}, as asked"));
    Ok(port)
}

/// Lets people in, in a thread of its own.
pub fn start(daemon: &Arc<Daemon>, listener: TcpListener) -> io::Result<()> {
    let daemon = Arc::clone(daemon);
    let thread = std::thread::Builder::new().name("http".into());
    thread.spawn(move || serve(&daemon, &listener)).map(drop)
}

/// The token: the one that is there, or a new one, in a file that only we may read.
fn read_token(path: &Path) -> io::Result<String> {
    use std::os::unix::fs::MetadataExt as _;
    let private = path
        .symlink_metadata()
        .is_ok_and(|m| m.is_file() && m.mode() & 0o077 == 0 && m.uid() == rustix::process::geteuid().as_raw());
    let known = file::read_small(path, 1024).ok().and_then(|b| String::from_utf8(b).ok());
    let known = known.map(|t| t.trim().to_owned()).filter(|t| private && t.len() >= 32);
    if let Some(token) = known {
        return Ok(token);
    }
    let token = format!("{}{}", lariat_adapters::new_uuid()?, lariat_adapters::new_uuid()?).replace('-', "");
    let (folder, name) = (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or_default());
    durable::make_folder(folder)?;
    durable::put(folder, &name.to_string_lossy(), format!("{token}\n").as_bytes())?;
    Ok(token)
}

/// Lets people in, for as long as the process lives.
fn serve(daemon: &Arc<Daemon>, listener: &TcpListener) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => daemon.start_talk("http", move |daemon| talk(daemon, &stream)),
            Err(e) => {
                daemon.log.error("http", e.to_string());
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn talk(daemon: &Arc<Daemon>, stream: &TcpStream) {
    let Some(http) = daemon.http.get() else { return };
    if stream.set_write_timeout(Some(SLOW)).and_then(|()| stream.set_nodelay(true)).is_err() {
        return;
    }
    let mut reader = Reader::new(stream);
    loop {
        let answered = reader.next().and_then(|mut request| {
            let answer = answer(daemon, http, &mut request, &mut reader, stream)?;
            Ok((answer, request.stays))
        });
        let (answer, stays) = match answered {
            Err(NoRequest::Over) | Ok((None, _)) => return, // or it was a stream, and that is over
            Err(NoRequest::Wrong(status, why)) => (Answer::error(status, 2, why), false),
            Ok((Some(answer), stays)) => (answer, stays),
        };
        if answer.send(stream, stays).is_err() {
            return;
        }
        if !stays {
            return reader.hang_up();
        }
    }
}

/// An answer.
struct Answer {
    status: u16,
    kind: &'static str,
    body: Body,
    /// Further headers.
    headers: Vec<(&'static str, String)>,
    /// How long it may be kept.
    cache: &'static str,
    /// What a page that shows it may do.
    policy: &'static str,
}

enum Body {
    Text(Vec<u8>),
    /// What lies in the program.
    Embedded(&'static [u8]),
    /// What lies in a file of the kernel's.
    File(Arc<crate::warm::Answer>),
}

impl From<&'static [u8]> for Body {
    fn from(bytes: &'static [u8]) -> Body {
        Body::Embedded(bytes)
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Body::Text(bytes)
    }
}

impl From<String> for Body {
    fn from(text: String) -> Body {
        Body::Text(text.into_bytes())
    }
}

const JSON: &str = "application/json";

impl Answer {
    fn new(status: u16, kind: &'static str, body: impl Into<Body>) -> Answer {
        let policy = "default-src 'none'; frame-ancestors 'none'";
        Answer { status, kind, body: body.into(), headers: Vec::new(), cache: "no-store", policy }
    }

    fn error(status: u16, code: u8, text: &str) -> Answer {
        let error = json!({"schema": 1, "error": {"code": code, "text": text}});
        let mut bytes = Vec::new();
        // By our own writer: what an agent chose may be in it.
        let written = lariat_protocol::json::write(&mut bytes, &error);
        Answer::new(status, JSON, if written.is_ok() { bytes } else { b"{}".to_vec() })
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        self.headers.push((name, value.into()));
        self
    }

    fn head(&self) -> String {
        let words = match self.status {
            101 => "Switching Protocols",
            200 => "OK",
            400 => "Bad Request",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            409 => "Conflict",
            413 => "Content Too Large",
            415 => "Unsupported Media Type",
            421 => "Misdirected Request",
            422 => "Unprocessable Content",
            426 => "Upgrade Required",
            429 => "Too Many Requests",
            503 => "Service Unavailable",
            _ => "Gateway Timeout",
        };
        let mut head = format!("HTTP/1.1 {} {words}\r\n", self.status);
        if self.status != 101 {
            head.push_str(&format!(
                "Content-Type: {}\r\nCache-Control: {}\r\nContent-Security-Policy: {}\r\n\
                 X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
                 Cross-Origin-Resource-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin\r\n",
                self.kind, self.cache, self.policy
            ));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head
    }

    fn send(&self, mut stream: &TcpStream, stays: bool) -> io::Result<()> {
        let length = match &self.body {
            Body::Text(text) => text.len() as u64,
            Body::Embedded(bytes) => bytes.len() as u64,
            Body::File(answer) => answer.bytes,
        };
        let mut head = self.head();
        head.push_str(&format!("Content-Length: {length}\r\n"));
        head.push_str(if stays { "\r\n" } else { "Connection: close\r\n\r\n" });
        match &self.body {
            Body::Text(text) => stream.write_all(&[head.as_bytes(), text].concat()),
            Body::Embedded(bytes) => {
                stream.write_all(head.as_bytes())?;
                stream.write_all(bytes)
            }
            Body::File(answer) => {
                stream.write_all(head.as_bytes())?;
                crate::serve::send(stream, answer)
            }
        }
    }
}

/// Answers a request; `None` if it was a stream, which is over.
fn answer(
    daemon: &Arc<Daemon>,
    http: &Http,
    request: &mut Request,
    reader: &mut Reader<'_>,
    stream: &TcpStream,
) -> Result<Option<Answer>, NoRequest> {
    let found = routes::find(&request.method, &request.path);
    let route = if let Found::Route(route, _) = &found { Some(*route) } else { None };
    let upgrades = route.is_some_and(|r| r.answers == Answers::Terminal);
    let claims = Claims {
        host: request.header("host"),
        origin: request.header("origin"),
        authorization: request.header("authorization"),
        protocols: if upgrades { request.header("sec-websocket-protocol") } else { Vec::new() },
    };
    // What is nowhere needs a token too: nobody else learns what there is.
    let knows = |given: &[u8]| http.run.knows(&http.token, given);
    let known: Option<guard::Known<'_>> = if route.is_some_and(Route::is_open) { None } else { Some(&knows) };
    let given = match guard::check(&claims, http.port, known) {
        Ok(given) => given,
        Err(refusal) => {
            let (status, why) = refusal.told();
            let error = Answer::error(status, 3, why);
            request.stays &= !request.has_body(); // which is not read
            return Ok(Some(if status == 401 { error.with("WWW-Authenticate", "Bearer") } else { error }));
        }
    };
    let page = given.and_then(|given| http.run.page(&http.token, given)).map(str::to_owned);
    let page = page.as_deref();
    if known.is_some() {
        reader.is_known();
    }
    reader.body(request, if known.is_some() { BODY } else { STRANGERS_BODY })?;
    let (route, target) = match found {
        Found::Route(route, target) => (route, target),
        Found::Methods(methods) => {
            let allow = methods.join(", ");
            return Ok(Some(Answer::error(405, 2, &format!("only by {allow}")).with("Allow", allow)));
        }
        Found::Nothing => {
            return Ok(Some(Answer::error(404, 2, "there is no such route; GET /v1/openapi.json lists them")));
        }
    };
    let said = match said(request) {
        Ok(said) => said,
        Err((status, why)) => return Ok(Some(Answer::error(status, 2, &why))),
    };
    let arguments = match routes::arguments(route, target.as_deref(), &said) {
        Ok(arguments) => arguments,
        Err(why) => return Ok(Some(Answer::error(400, 2, &why))),
    };
    Ok(Some(match route.answers {
        Answers::Verb(_) | Answers::Lines(_) => run(daemon, route, &arguments),
        Answers::Status => Answer::new(200, JSON, status::told(daemon)),
        Answers::Metrics => Answer::new(200, "text/plain; version=0.0.4; charset=utf-8", metrics::text(daemon)),
        Answers::OpenApi => Answer::new(200, JSON, openapi::text()),
        Answers::Page(name) => {
            let path = name.map_or_else(|| format!("assets/{}", target.unwrap_or_default()), str::to_owned);
            page::answer(&path).unwrap_or_else(|| Answer::error(404, 2, "the page has no such file"))
        }
        Answers::Enter => enter(daemon, http, &said),
        Answers::Admit => admit(http, page),
        Answers::Meet => {
            let text = |name: &str| said.get(name).and_then(Value::as_str).unwrap_or_default();
            match http.run.prove(&http.token, text("page"), text("nonce")) {
                Some(proof) => Answer::new(200, JSON, proof.to_string()),
                None => Answer::error(400, 2, "page and nonce should be 32 hexadecimal digits, in small letters"),
            }
        }
        Answers::Terminal => return Ok(terminal::answer(daemon, route, &arguments, request, stream)),
        Answers::Events => {
            let last = request.header("last-event-id").first().and_then(|id| std::str::from_utf8(id).ok());
            let since = last.or_else(|| said.get("since")?.as_str()).map(str::to_owned);
            let nonce = request.header("lariat-nonce").first().and_then(|n| std::str::from_utf8(n).ok());
            let proof = page.zip(nonce).and_then(|(page, nonce)| http.run.proof(&http.token, page, nonce));
            if let Err(e) = events(daemon, stream, since.as_deref(), proof)
                && matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
            {
                daemon.log.info("let go", "a stream's reader was too slow");
            }
            return Ok(None);
        }
    }))
}

/// What is said in a request besides its path.
fn said(request: &Request) -> Result<Map<String, Value>, (u16, String)> {
    let query = routes::query(&request.query).ok_or((400, "the query is not UTF-8".to_owned()))?;
    if request.method == "GET" {
        return if request.body.is_empty() { Ok(query) } else { Err((400, "GET has no body".into())) };
    }
    if !query.is_empty() {
        return Err((400, "parameters of POST stand in its body".into()));
    }
    if request.body.is_empty() {
        return Ok(Map::new());
    }
    let json = |v: &&[u8]| {
        v.split(|b| *b == b';').next().is_some_and(|t| t.trim_ascii().eq_ignore_ascii_case(JSON.as_bytes()))
    };
    if !request.header("content-type").first().is_some_and(json) {
        return Err((415, "the body must be application/json".into()));
    }
    match serde_json::from_slice(&request.body) {
        Ok(Value::Object(said)) => Ok(said),
        Ok(_) => Err((400, "the body must be an object".into())),
        Err(e) => Err((400, format!("the body is not JSON: {e}"))),
    }
}

/// What lets a page in, and lets it know us again.
fn admit(http: &Http, page: Option<&str>) -> Answer {
    match http.run.admit(&http.token, page) {
        Ok(told) => Answer::new(200, JSON, told.to_string()),
        Err(e) => Answer::error(503, 1, &e.to_string()),
    }
}

/// Lets a page in for a secret that is good for one use. Who guesses is held up, and of
/// many who do most are turned away.
fn enter(daemon: &Daemon, http: &Http, said: &Map<String, Value>) -> Answer {
    const HELD_UP: Duration = Duration::from_millis(300);
    const MOST: usize = 8;
    static WRONG: AtomicUsize = AtomicUsize::new(0);
    let once = said.get("once").and_then(Value::as_str).unwrap_or_default();
    if once::take(&daemon.places, once) {
        daemon.log.info("enter", "a browser was let in");
        return admit(http, None);
    }
    if WRONG.fetch_add(1, Ordering::Relaxed) >= MOST {
        WRONG.fetch_sub(1, Ordering::Relaxed);
        return Answer::error(429, 3, "too many try to enter; `lariat web` lets you in");
    }
    daemon.log.error("enter", "somebody came with a secret that is not good, or no longer");
    std::thread::sleep(HELD_UP);
    WRONG.fetch_sub(1, Ordering::Relaxed);
    Answer::error(401, 3, "this address was used, or is older than two minutes; `lariat web` makes another")
        .with("WWW-Authenticate", "Bearer")
}

/// Runs the verb of a route.
fn run(daemon: &Daemon, route: &Route, arguments: &[String]) -> Answer {
    match outcome(daemon, route, arguments) {
        Ok(answer) => {
            let kind = if matches!(route.answers, Answers::Lines(_)) { "application/x-ndjson" } else { JSON };
            let partial = answer.code == 5;
            let told = Answer::new(status_of(&answer), kind, Body::File(answer));
            if partial { told.with("Lariat-Partial", "true") } else { told }
        }
        Err(error) => error,
    }
}

/// What the verb of a route printed; if it printed nothing, why.
fn outcome(daemon: &Daemon, route: &Route, arguments: &[String]) -> Result<Arc<crate::warm::Answer>, Answer> {
    let ran = if route.method == "GET" {
        daemon.warm.answer(arguments).map(|(answer, _)| answer)
    } else {
        daemon.log.info("asked by HTTP", format!("{} {}", route.method, route.path));
        verb::run(arguments, PATIENCE, false)
            .map(|r| Arc::new(crate::warm::Answer { code: r.code, out: r.out, bytes: r.bytes, complaint: r.complaint }))
    };
    let answer = match ran {
        Ok(answer) => answer,
        Err(e) if e.kind() == io::ErrorKind::TimedOut => return Err(Answer::error(504, 4, &e.to_string())),
        Err(e) => {
            daemon.log.error("verb", e.to_string());
            return Err(Answer::error(503, 1, &e.to_string()));
        }
    };
    if is_error(&answer) {
        return Err(Answer::new(status_of(&answer), JSON, Body::File(answer)));
    }
    if answer.bytes > 0 || answer.code == 0 {
        return Ok(answer);
    }
    let complaint = answer.complaint.trim_start_matches("lariat: ").trim_start_matches("error: ");
    Err(Answer::error(status_of(&answer), answer.code, complaint))
}

/// Whether what a verb printed says only why there is no answer.
fn is_error(answer: &crate::warm::Answer) -> bool {
    use std::os::unix::fs::FileExt as _;
    const BEGINS: &[u8] = br#"{"error":"#;
    let mut begins = [0; BEGINS.len()];
    answer.out.read_exact_at(&mut begins, 0).is_ok() && begins == BEGINS
}

/// The status that an exit code means.
fn status_of(answer: &crate::warm::Answer) -> u16 {
    // What could not be read is complained of before.
    const MISSING: [&str; 3] = ["no session fits", "no worktree fits", "no fuse is called"];
    let is_missing =
        |line: &str| line.strip_prefix("lariat: ").is_some_and(|l| MISSING.iter().any(|m| l.starts_with(m)));
    let missing = || answer.complaint.lines().any(is_missing);
    match answer.code {
        0 => 200,
        5 if answer.bytes > 0 && !is_error(answer) => 200,
        2 if missing() => 404,
        2 => 400,
        3 => 409,
        4 => 504,
        5 => 503,
        _ => 422,
    }
}

/// Tells what happens until the other end leaves. A page that asked for it is shown first that it is us: while this
/// stream lasts, nobody else has our port.
fn events(daemon: &Daemon, mut stream: &TcpStream, since: Option<&str>, proof: Option<String>) -> io::Result<()> {
    // Who does not read shall be noticed before the kernel holds megabytes for him.
    rustix::net::sockopt::set_socket_send_buffer_size(stream, UNREAD)?;
    let told = Answer::new(200, "text/event-stream", Vec::new());
    let mut head = proof.into_iter().fold(told, |told, proof| told.with("Lariat-Proof", proof)).head();
    head.push_str("Connection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut listener = daemon.hub.listen(since);
    let tell = |id: &str, name: &str, text: &str| format!("id: {id}\nevent: {name}\ndata: {text}\n\n");
    loop {
        let text = match listener.next(STILL_HERE) {
            Next::Events(events) => events.iter().map(|e| tell(&daemon.hub.id(e.number), e.name, &e.text)).collect(),
            Next::Reset(text, number) => tell(&daemon.hub.id(number), "reset", &text),
            Next::Nothing => ":\n\n".to_owned(),
            Next::Closed => return Ok(()),
        };
        stream.write_all(text.as_bytes())?;
    }
}
