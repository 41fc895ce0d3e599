//! HTTP on loopback, for those who know the token. Off until asked for.
//!
//! # Theory of operation
//!
//! Every request goes the same way: is it one, may its sender ask ([`guard`]), is
//! there such a route ([`routes`]), what command line does it mean, and what does that
//! print. A route that looks is answered from what is warm, if that is still true; one
//! that acts is a verb in a process of its own. Nothing is changed by `GET`.
//!
//! Written by hand because it is small: one method table, bodies with a length, and
//! one stream. [`httparse`] reads the heads.

pub mod guard;
mod metrics;
pub mod openapi;
mod request;
pub mod routes;

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lariat_sys::{durable, file};
use serde_json::{Map, Value, json};

use crate::hub::Next;
use crate::{Daemon, status, verb};
use guard::Claims;
use request::{NoRequest, Reader, Request};
use routes::{Answers, Found, Route};

/// How long an end may take to read.
const SLOW: Duration = Duration::from_secs(10);
/// How often a silent stream says that it is there.
const STILL_HERE: Duration = Duration::from_secs(15);
/// How long the daemon before us may take to leave its port.
const LEAVING: Duration = Duration::from_millis(500);
/// How long a verb that acts may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// The door to HTTP.
pub struct Http {
    /// Its port.
    pub port: u16,
    token: String,
}

/// Opens the door on loopback; 0 is any port that is free.
pub fn open(port: u16, token: &Path) -> io::Result<(Http, TcpListener)> {
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
    Ok((Http { port, token: read_token(token)? }, listener))
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
pub fn serve(daemon: &Arc<Daemon>, listener: &TcpListener) {
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
    let Some(http) = &daemon.http else { return };
    if stream.set_write_timeout(Some(SLOW)).and_then(|()| stream.set_nodelay(true)).is_err() {
        return;
    }
    let mut reader = Reader::new(stream);
    loop {
        let (sent, stays) = match reader.next() {
            Err(NoRequest::Over) => return,
            Err(NoRequest::Wrong(status, why)) => (Answer::error(status, 2, why).send(stream, false), false),
            Ok(request) => match answer(daemon, http, &request, stream) {
                Some(answer) => (answer.send(stream, request.stays), request.stays),
                None => return, // it was a stream, and is over
            },
        };
        if sent.is_err() || !stays {
            return;
        }
    }
}

/// An answer.
struct Answer {
    status: u16,
    kind: &'static str,
    body: Body,
    /// The methods that are allowed, if this one is not.
    allow: Option<String>,
    /// Not everything could be read.
    partial: bool,
}

enum Body {
    Text(Vec<u8>),
    /// What lies in a file of the kernel's.
    File(Arc<crate::warm::Answer>),
}

const JSON: &str = "application/json";

impl Answer {
    fn text(status: u16, kind: &'static str, text: impl Into<Vec<u8>>) -> Answer {
        Answer { status, kind, body: Body::Text(text.into()), allow: None, partial: false }
    }

    fn error(status: u16, code: u8, text: &str) -> Answer {
        let error = json!({"error": {"code": code, "text": text}});
        let mut bytes = Vec::new();
        // By our own writer: what an agent chose may be in it.
        let written = lariat_protocol::json::write(&mut bytes, &error);
        Answer::text(status, JSON, if written.is_ok() { bytes } else { b"{}".to_vec() })
    }

    fn send(&self, mut stream: &TcpStream, stays: bool) -> io::Result<()> {
        let length = match &self.body {
            Body::Text(text) => text.len() as u64,
            Body::File(answer) => answer.bytes,
        };
        let mut head = head(self.status, self.kind);
        head.push_str(&format!("Content-Length: {length}\r\n"));
        head.push_str(if stays { "" } else { "Connection: close\r\n" });
        if let Some(allow) = &self.allow {
            head.push_str(&format!("Allow: {allow}\r\n"));
        }
        if self.status == 401 {
            head.push_str("WWW-Authenticate: Bearer\r\n");
        }
        if self.partial {
            head.push_str("Lariat-Partial: true\r\n");
        }
        head.push_str("\r\n");
        match &self.body {
            Body::Text(text) => stream.write_all(&[head.as_bytes(), text].concat()),
            Body::File(answer) => {
                stream.write_all(head.as_bytes())?;
                crate::serve::send(stream, answer)
            }
        }
    }
}

fn head(status: u16, kind: &str) -> String {
    let words = match status {
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
        503 => "Service Unavailable",
        _ => "Gateway Timeout",
    };
    format!(
        "HTTP/1.1 {status} {words}\r\nContent-Type: {kind}\r\nCache-Control: no-store\r\n\
         Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n\
         X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\n"
    )
}

/// Answers a request; `None` if it was a stream, which is over.
fn answer(daemon: &Arc<Daemon>, http: &Http, request: &Request, stream: &TcpStream) -> Option<Answer> {
    let claims = Claims {
        host: request.header("host"),
        origin: request.header("origin"),
        authorization: request.header("authorization"),
    };
    if let Err(refusal) = guard::check(&claims, http.port, &http.token) {
        let (status, why) = refusal.told();
        return Some(Answer::error(status, 3, why));
    }
    let (route, target) = match routes::find(&request.method, &request.path) {
        Found::Route(route, target) => (route, target),
        Found::Methods(methods) => {
            let allow = methods.join(", ");
            let error = Answer::error(405, 2, &format!("only by {allow}"));
            return Some(Answer { allow: Some(allow), ..error });
        }
        Found::Nothing => {
            return Some(Answer::error(404, 2, "there is no such route; GET /v1/openapi.json lists them"));
        }
    };
    let said = match said(request) {
        Ok(said) => said,
        Err((status, why)) => return Some(Answer::error(status, 2, &why)),
    };
    let arguments = match routes::arguments(route, target.as_deref(), &said) {
        Ok(arguments) => arguments,
        Err(why) => return Some(Answer::error(400, 2, &why)),
    };
    Some(match route.answers {
        Answers::Verb(_) | Answers::Lines(_) => run(daemon, route, &arguments),
        Answers::Status => Answer::text(200, JSON, status::told(daemon)),
        Answers::Metrics => Answer::text(200, "text/plain; version=0.0.4; charset=utf-8", metrics::text(daemon)),
        Answers::OpenApi => Answer::text(200, JSON, openapi::text()),
        Answers::Events => {
            let last = request.header("last-event-id").first().and_then(|id| std::str::from_utf8(id).ok());
            let since = last.or_else(|| said.get("since")?.as_str()).map(str::to_owned);
            if let Err(e) = events(daemon, stream, since.as_deref())
                && matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
            {
                daemon.log.info("let go", "a stream's reader was too slow");
            }
            return None;
        }
    })
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

/// Runs the verb of a route.
fn run(daemon: &Daemon, route: &Route, arguments: &[String]) -> Answer {
    let ran = if route.method == "GET" {
        daemon.warm.answer(arguments).map(|(answer, _)| answer)
    } else {
        daemon.log.info("asked by HTTP", format!("{} {}", route.method, route.path));
        verb::run(arguments, PATIENCE, false)
            .map(|r| Arc::new(crate::warm::Answer { code: r.code, out: r.out, bytes: r.bytes, complaint: r.complaint }))
    };
    let answer = match ran {
        Ok(answer) => answer,
        Err(e) if e.kind() == io::ErrorKind::TimedOut => return Answer::error(504, 4, &e.to_string()),
        Err(e) => {
            daemon.log.error("verb", e.to_string());
            return Answer::error(503, 1, &e.to_string());
        }
    };
    let complaint = answer.complaint.trim_start_matches("lariat: ").trim_start_matches("error: ").to_owned();
    let status = match answer.code {
        0 => 200,
        5 if answer.bytes > 0 => 200,
        2 if complaint.starts_with("no session fits") => 404,
        2 => 400,
        3 => 409,
        4 => 504,
        5 => 503,
        _ => 422,
    };
    if answer.bytes == 0 && answer.code != 0 {
        return Answer::error(status, answer.code, &complaint);
    }
    let kind = if matches!(route.answers, Answers::Lines(_)) { "application/x-ndjson" } else { JSON };
    let partial = answer.code == 5;
    Answer { status, kind, body: Body::File(answer), allow: None, partial }
}

/// Tells what happens until the other end leaves.
fn events(daemon: &Daemon, mut stream: &TcpStream, since: Option<&str>) -> io::Result<()> {
    let mut head = head(200, "text/event-stream");
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
