//! Talking to one gateway: a WebSocket, the greeting, questions and answers.
//!
//! Every step has an end in time, whatever the other side does: sends nothing,
//! sends a byte now and then, or never comes to the end of a frame. What goes
//! wrong becomes one sentence that says what to do, with the gateway's own code
//! for it. Nothing here decides what a session is.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use lariat_core::Untrusted;
use lariat_sys::names;
use serde_json::json;
use tungstenite::error::{CapacityError, ProtocolError};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, HandshakeError, Message, WebSocket};

use crate::json::{Doc, Keep, Value};
use crate::openclaw::device::{Challenge, Device};
use crate::openclaw::token;
use crate::settings::Gateway;

/// The protocol that is spoken.
const PROTOCOL: u64 = 4;
/// The gateway's own limit is 25 MiB.
pub const LARGEST: usize = 32 << 20;
/// How many frames that are no answer may come before one.
const MOST_EVENTS: usize = 10_000;
/// May look at sessions.
pub const READ: &str = "operator.read";
/// May send to them.
pub const WRITE: &str = "operator.write";
/// May end runs that another client began.
pub const ADMIN: &str = "operator.admin";

/// A stream whose reads and writes end when the step's time is up.
pub struct Timed {
    /// The stream.
    pub stream: TcpStream,
    /// When its time is up.
    pub until: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// A socket's time-out comes as "would block", which would mean: try again.
fn in_time<T>(result: io::Result<T>) -> io::Result<T> {
    result.map_err(|e| if e.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { e })
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        in_time(self.stream.read(buffer))
    }
}

impl Write for Timed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        in_time(self.stream.write(buffer))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A connection that was greeted.
pub struct Line<'a> {
    gateway: &'a Gateway,
    socket: WebSocket<Timed>,
    /// How long one step may take.
    patience: Duration,
    asked: u64,
    /// Its code for what it refused last.
    refused: String,
    /// The request of this client that waits for its owner's word.
    request: Option<String>,
    /// The gateway's version, as it says.
    pub version: String,
}

impl Drop for Line<'_> {
    /// Takes leave, without waiting for an answer.
    fn drop(&mut self) {
        self.socket.get_mut().until = Instant::now() + Duration::from_millis(100);
        let _ = self.socket.close(None);
        let _ = self.socket.flush();
    }
}

/// What to do about it, in a sentence.
pub type Trouble = String;

/// Why there is no line.
pub enum Shut {
    /// It is not to be had at all.
    Trouble(Trouble),
    /// It knows the token, and grants this client nothing or not what it came for; with the request that waits
    /// for its owner's word, if one does.
    NoScope(Trouble, Option<String>),
}

impl From<Trouble> for Shut {
    fn from(trouble: Trouble) -> Shut {
        Shut::Trouble(trouble)
    }
}

impl From<Shut> for Trouble {
    fn from(shut: Shut) -> Trouble {
        match shut {
            Shut::Trouble(why) | Shut::NoScope(why, _) => why,
        }
    }
}

impl<'a> Line<'a> {
    /// Connects, is greeted, and makes sure that it may do what it came for. Each
    /// step that is over is counted by `step`.
    pub fn open(gateway: &'a Gateway, scopes: &[&str], patience: Duration, step: &dyn Fn()) -> Result<Line<'a>, Shut> {
        let token = token::read(&gateway.token)?;
        let device = gateway.device.as_deref().map(Device::read).transpose()?;
        let until = Instant::now() + patience;
        let stream = connect(gateway, until, patience)?;
        step();
        let config = WebSocketConfig::default().max_message_size(Some(LARGEST)).max_frame_size(Some(LARGEST));
        let timed = Timed { stream, until: Instant::now() + patience };
        let upgraded = tungstenite::client::client_with_config(gateway.url(), timed, Some(config));
        let (socket, _) = upgraded.map_err(|e| match e {
            HandshakeError::Failure(e) => told(&e, patience),
            HandshakeError::Interrupted(_) => late(patience),
        })?;
        step();
        let (refused, version) = (String::new(), String::new());
        let mut line = Line { gateway, socket, patience, asked: 0, refused, request: None, version };
        line.greet(token.as_deref(), device.as_ref(), scopes)?;
        step();
        Ok(line)
    }

    fn greet(&mut self, token: Option<&str>, device: Option<&Device>, scopes: &[&str]) -> Result<(), Shut> {
        self.socket.get_mut().until = Instant::now() + self.patience;
        // It speaks first.
        let (nonce, at) = self.frames(|frame| {
            let payload = frame.get("payload");
            let challenge = (payload.get("nonce").str().unwrap_or("").to_owned(), payload.get("ts").u64().unwrap_or(0));
            (frame.get("event").str() == Some("connect.challenge")).then_some(Ok(challenge))
        })?;
        let auth = token.map_or_else(|| json!({}), |token| json!({"token": token}));
        let mut params = json!({
            "minProtocol": PROTOCOL,
            "maxProtocol": PROTOCOL,
            "client": {
                "id": CLIENT,
                "mode": CLIENT,
                "displayName": "lariat",
                "version": env!("CARGO_PKG_VERSION"),
                "platform": PLATFORM,
            },
            "role": ROLE,
            "scopes": scopes,
            "auth": auth,
        });
        if let Some(device) = device {
            let client = [CLIENT, CLIENT, PLATFORM];
            params["device"] = device.greeting(&Challenge { nonce: &nonce, at, client, role: ROLE, scopes, token });
        }
        let hello = self.ask("connect", &params, |hello| {
            let granted: Vec<String> =
                hello.get("auth").get("scopes").items().filter_map(|s| s.str().map(str::to_owned)).collect();
            let version = shown(hello.get("server").get("version").str().unwrap_or("unknown"));
            (version, hello.get("protocol").u64(), granted)
        });
        let (version, protocol, granted) = match hello {
            Err(why) if self.refused == PAIRING => {
                let request = self.request.take();
                return Err(Shut::NoScope(why, request));
            }
            hello => hello?,
        };
        if protocol != Some(PROTOCOL) {
            let theirs = protocol.map_or_else(|| "another protocol".to_owned(), |p| format!("protocol {p}"));
            return Err(format!("it speaks {theirs}; this lariat speaks {PROTOCOL}").into());
        }
        // A gateway may accept the token and grant nothing.
        if let Some(lacking) = scopes.iter().find(|s| !granted.iter().any(|g| g == *s)) {
            let has = if granted.is_empty() { "none".to_owned() } else { shown(&granted.join(", ")) };
            let why = format!("it accepts the token but grants no {lacking} (granted: {has}); {REMOTE}");
            return Err(Shut::NoScope(why, None));
        }
        self.version = version;
        Ok(())
    }

    /// Its code for what it refused, if that was what it was asked last.
    pub fn refused(&self) -> Option<&str> {
        (!self.refused.is_empty()).then_some(&self.refused)
    }

    /// Why something asked of it came to nothing: not to be had, or not granted.
    pub fn shut(&self, why: Trouble) -> Shut {
        if self.refused == UNGRANTED { Shut::NoScope(why, None) } else { Shut::Trouble(why) }
    }

    /// Asks, and reads the answer with `read`.
    pub fn call<T>(
        &mut self,
        method: &str,
        params: &serde_json::Value,
        read: impl FnOnce(Value<'_>) -> T,
    ) -> Result<T, Trouble> {
        self.socket.get_mut().until = Instant::now() + self.patience;
        self.ask(method, params, read)
    }

    fn ask<T>(
        &mut self,
        method: &str,
        params: &serde_json::Value,
        read: impl FnOnce(Value<'_>) -> T,
    ) -> Result<T, Trouble> {
        self.asked += 1;
        self.refused.clear();
        let id = self.asked.to_string();
        let request = json!({"type": "req", "id": id, "method": method, "params": params});
        self.socket.send(Message::text(request.to_string())).map_err(|e| told(&e, self.patience))?;
        let mut read = Some(read);
        let (gateway, mut refused) = (self.gateway, (String::new(), None));
        let answer = self.frames(|frame| {
            let answers = frame.get("type").str() == Some("res") && frame.get("id").str() == Some(&id);
            if !answers {
                return None;
            }
            Some(match (frame.get("ok").bool(), read.take()) {
                (Some(true), Some(read)) => Ok(read(frame.get("payload"))),
                (Some(false), _) => {
                    let error = frame.get("error");
                    refused = (code_of(error), error.get("details").get("requestId").some_str().map(shown));
                    Err(refusal(gateway, method, error))
                }
                _ => Err(garbled("an answer that is neither yes nor no")),
            })
        });
        (self.refused, self.request) = refused;
        answer
    }

    /// Reads frames until one is what is waited for.
    fn frames<T>(&mut self, mut wanted: impl FnMut(Value<'_>) -> Option<Result<T, Trouble>>) -> Result<T, Trouble> {
        for _ in 0..MOST_EVENTS {
            let text = match self.socket.read().map_err(|e| told(&e, self.patience))? {
                Message::Text(text) => text,
                Message::Binary(_) => return Err(garbled("bytes instead of text")),
                Message::Close(frame) => {
                    let how =
                        frame.map_or_else(String::new, |f| format!(" ({} {})", u16::from(f.code), shown(&f.reason)));
                    return Err(format!("it hung up{how}; look again in a moment"));
                }
                _ => continue,
            };
            let doc = Doc::parse(text.as_bytes(), KEEP, LONGEST).map_err(|_| garbled("a frame that is not JSON"))?;
            if let Some(found) = wanted(doc.root()) {
                return found;
            }
        }
        Err(garbled("thousands of events and no answer"))
    }
}

const REMOTE: &str = "a gateway grants scopes to clients on its own machine, so forward its port \
                      (ssh -L 18789:127.0.0.1:18789 HOST) and name that in the settings, or name a device there \
                      and run `lariat gateway pair`";

/// Its list of clients is closed: ours is one of these.
const CLIENT: &str = "cli";
const PLATFORM: &str = "linux";
const ROLE: &str = "operator";
/// Its code for a device that its owner has not approved.
const PAIRING: &str = "PAIRING_REQUIRED";
/// Its code for what it does not grant.
const UNGRANTED: &str = "MISSING_SCOPE";

/// How much of a text is kept: the longest that is of use are messages.
pub const LONGEST: usize = 1 << 20;

/// What is kept of all that it tells.
pub const KEEP: Keep = |parent, key| {
    parent == b"arguments"
        || matches!(
            key,
            // the frame, the greeting, errors
            b"type" | b"id" | b"ok" | b"payload" | b"event" | b"error" | b"code" | b"message" | b"details"
                | b"protocol" | b"server" | b"version" | b"auth" | b"scopes" | b"expectedProtocol"
                | b"missingScope" | b"requestId" | b"nonce" | b"ts" | b"result"
                // the list
                | b"sessions" | b"totalCount" | b"nextOffset" | b"hasMore" | b"key" | b"hasActiveRun" | b"activeRunIds"
                | b"status" | b"lastRunError" | b"label" | b"displayName" | b"derivedTitle" | b"model" | b"spawnedCwd"
                | b"execCwd" | b"sessionRoot" | b"worktree" | b"branch" | b"parentSessionKey" | b"spawnedBy"
                | b"createdAt" | b"updatedAt" | b"endedAt" | b"startedAt" | b"archived" | b"systemSent" | b"sessionId"
                // the ledger, what is asked
                | b"tasks" | b"childSessionKey" | b"request" | b"command" | b"sessionKey" | b"createdAtMs" | b"title"
                | b"toolName" | b"questions" | b"question" | b"header"
                // a conversation, a run
                | b"messages" | b"role" | b"content" | b"text" | b"name" | b"arguments" | b"timestamp"
                | b"runId" | b"inFlightRun"
        )
};

/// Connects to where a gateway listens.
pub fn connect(gateway: &Gateway, until: Instant, patience: Duration) -> Result<TcpStream, Trouble> {
    let mut last = Trouble::new();
    for address in names::addresses(&gateway.address, gateway.port, until).map_err(|e| e.to_string())? {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late(patience));
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                let _ = stream.set_nodelay(true); // only a matter of milliseconds
                return Ok(stream);
            }
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                last = "connection refused: no gateway listens there; start it (openclaw gateway run)".into();
            }
            Err(e) if e.kind() == io::ErrorKind::TimedOut => last = late(patience),
            Err(e) => last = format!("it cannot be reached: {e}"),
        }
    }
    Err(last)
}

/// A text of the gateway's, as part of a sentence of ours.
fn shown(text: &str) -> String {
    Untrusted::new(text).row_within(200)
}

/// It took too long.
pub fn late(patience: Duration) -> Trouble {
    format!("it did not answer within {:.1} s", patience.as_secs_f32())
}

/// It says what no gateway would.
pub fn garbled(what: &str) -> Trouble {
    format!("it answers what is not OpenClaw's protocol ({what}); is this the gateway's port?")
}

/// What went wrong below the protocol.
fn told(error: &Error, patience: Duration) -> Trouble {
    match error {
        Error::Io(e) if e.kind() == io::ErrorKind::TimedOut => late(patience),
        Error::Io(e) if matches!(e.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof) => {
            "it hung up in the middle; look again in a moment".into()
        }
        Error::Io(e) => format!("the connection failed: {e}"),
        Error::ConnectionClosed
        | Error::AlreadyClosed
        | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake | ProtocolError::HandshakeIncomplete) => {
            "it hung up in the middle; look again in a moment".into()
        }
        Error::Http(response) if response.status().as_u16() == 503 => {
            "it is shutting down or starting (HTTP 503); look again when it is up".into()
        }
        Error::Http(response) => {
            format!("it answers HTTP {} and no WebSocket; is this the gateway's port?", response.status().as_u16())
        }
        Error::Capacity(CapacityError::MessageTooLong { size, .. }) => {
            format!("it sends a frame of {size} bytes, and {LARGEST} is the most; is this the gateway's port?")
        }
        e => garbled(&e.to_string()),
    }
}

/// A refusal's code, the most exact that it has.
fn code_of(error: Value<'_>) -> String {
    shown(error.get("details").get("code").some_str().or(error.get("code").some_str()).unwrap_or("no code"))
}

/// What a gateway's refusal means, by its code and never by its words.
fn refusal(gateway: &Gateway, method: &str, error: Value<'_>) -> Trouble {
    let details = error.get("details");
    let code = code_of(error);
    let place = token::place(&gateway.token);
    match code.as_str() {
        "AUTH_TOKEN_MISMATCH" | "AUTH_PASSWORD_MISMATCH" => {
            format!("it refuses the token of {place} ({code}); put the gateway's own there")
        }
        "AUTH_TOKEN_MISSING" | "DEVICE_IDENTITY_REQUIRED" | "AUTH_REQUIRED" => {
            format!("it wants a token ({code}) and has {place}; name token_file or token_env in the settings")
        }
        PAIRING => {
            let request = shown(details.get("requestId").str().unwrap_or("ID"));
            format!("it wants this device approved ({code}); on its machine: openclaw devices approve {request}")
        }
        "PROTOCOL_MISMATCH" => {
            let theirs = details.get("expectedProtocol").u64();
            let theirs = theirs.map_or_else(|| "another protocol".to_owned(), |p| format!("protocol {p}"));
            format!("it speaks {theirs} ({code}); this lariat speaks {PROTOCOL}")
        }
        UNGRANTED => {
            let scope = shown(details.get("missingScope").str().unwrap_or("a scope"));
            format!("it grants no {scope} for {method} ({code}); {REMOTE}")
        }
        // What it says while it starts, among other things.
        "UNAVAILABLE" => {
            let message = shown(error.get("message").str().unwrap_or("for now"));
            format!("it is not to be had ({code}: {message}); look again in a moment")
        }
        code => {
            let message = shown(error.get("message").str().unwrap_or("without a reason"));
            format!("it refuses {method} ({code}): {message}")
        }
    }
}
