//! A session's terminal, on a WebSocket.
//!
//! # Theory of operation
//!
//! The browser is one more viewer of the session's shim: this thread sits between the
//! two and passes on. Whatever an attach keeps back from a person's terminal is kept
//! back here too. Nothing is stored: what the browser does not take is not asked of the
//! shim, which has rules of its own for who falls behind.
//!
//! ```text
//! to the browser     binary: output     text: {"size":[cols,rows]} {"ended":{…}}
//! from the browser   binary: typing     text: {"resize":[cols,rows]} {"watch":true}
//! ```

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lariat_core::terminal::Guard;
use lariat_shim::client::{Client, Event};
use lariat_shim::wire::{Attach, Size};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde_json::{Value, json};
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tungstenite::{Error, Message, WebSocket};

use super::request::Request;
use super::routes::Route;
use super::{Answer, outcome};
use crate::Daemon;

/// The words that are spoken here.
const PROTOCOL: &str = "lariat.terminal.v1";
/// How much of the past is shown first.
const TAIL: u32 = 64 << 10;
/// The longest message from a browser: a paste.
const LONGEST: usize = 1 << 20;
/// How long a browser may take to say how large it is, before it is shown what there is.
const FIRST_WORD: Duration = Duration::from_millis(500);
/// How long it may take to take what it was sent.
const SLOW: Duration = Duration::from_secs(10);
/// How often a silent one is asked whether it is there, and how long it may be silent.
const STILL_THERE: Duration = Duration::from_secs(20);
const SILENT: Duration = Duration::from_secs(65);
/// How long goodbye may take.
const FAREWELL: Duration = Duration::from_secs(2);
/// How often the size is looked at, while something is shown.
const SIZE: Duration = Duration::from_secs(1);

/// Answers a request for a terminal; `None` if it was given, and is over.
pub fn answer(
    daemon: &Arc<Daemon>,
    route: &Route,
    arguments: &[String],
    request: &Request,
    stream: &TcpStream,
) -> Option<Answer> {
    let Some(key) = upgrade_key(request) else {
        let error = Answer::error(426, 2, "a terminal is on a WebSocket; ask for an upgrade to version 13");
        return Some(error.with("Upgrade", "websocket").with("Sec-WebSocket-Version", "13"));
    };
    let mut client = match reach(daemon, route, arguments) {
        Ok(client) => client,
        Err(error) => return Some(error),
    };
    if let Err(e) = serve(request, key, stream, &mut client) {
        daemon.log.info("terminal", e.to_string());
    }
    None
}

/// The key of a request that asks for a WebSocket as it should.
fn upgrade_key(request: &Request) -> Option<&[u8]> {
    let has = |name: &str, word: &str| {
        let words = request.header(name).into_iter().flat_map(|v| v.split(|b| *b == b','));
        words.map(<[u8]>::trim_ascii).any(|w| w.eq_ignore_ascii_case(word.as_bytes()))
    };
    let right = has("upgrade", "websocket") && has("connection", "upgrade") && has("sec-websocket-version", "13");
    match request.header("sec-websocket-key").as_slice() {
        [key] if right && key.len() == 24 => Some(key),
        _ => None,
    }
}

/// Connects to the shim of the session that is meant.
fn reach(daemon: &Daemon, route: &Route, arguments: &[String]) -> Result<Client, Answer> {
    let answer = outcome(daemon, route, arguments)?;
    let failed = |e: &dyn std::fmt::Display| Answer::error(422, 1, &e.to_string());
    let mut text = vec![0; usize::try_from(answer.bytes.min(64 << 10)).unwrap_or(0)];
    std::os::unix::fs::FileExt::read_exact_at(&answer.out, &mut text, 0).map_err(|e| failed(&e))?;
    let told: Value = serde_json::from_slice(&text).map_err(|e| failed(&e))?;
    let socket = told["socket"].as_str().map(PathBuf::from).ok_or_else(|| failed(&"it has no socket"))?;
    let client = Client::connect(&socket).map_err(|e| failed(&e))?;
    // One that was halted must not hold this thread for ever.
    set_socket_timeout(&client, Timeout::Send, Some(SLOW)).map_err(|e| failed(&e))?;
    Ok(client)
}

fn serve(request: &Request, key: &[u8], mut stream: &TcpStream, client: &mut Client) -> io::Result<()> {
    let asked = request.header("sec-websocket-protocol");
    let mut words = asked.iter().flat_map(|v| v.split(|b| *b == b',')).map(<[u8]>::trim_ascii);
    let mut head = Answer::new(101, "", Vec::new())
        .with("Upgrade", "websocket")
        .with("Connection", "Upgrade")
        .with("Sec-WebSocket-Accept", tungstenite::handshake::derive_accept_key(key));
    if words.any(|w| w == PROTOCOL.as_bytes()) {
        head = head.with("Sec-WebSocket-Protocol", PROTOCOL);
    }
    stream.write_all((head.head() + "\r\n").as_bytes())?;
    stream.set_nonblocking(true)?;
    let config = WebSocketConfig::default()
        .read_buffer_size(16 << 10)
        .max_message_size(Some(LONGEST))
        .max_frame_size(Some(LONGEST))
        .max_write_buffer_size(1 << 20);
    let socket = WebSocket::from_raw_socket(stream, Role::Server, Some(config));
    let now = Instant::now();
    let mut view = View {
        socket,
        client,
        guard: Guard::default(),
        attached: false,
        watch: false,
        size: None,
        began: now,
        heard: now,
        asked: now,
        sized: now,
        pending: None,
    };
    let parting = match view.go_on() {
        Ok(parting) => parting,
        Err(Error::Io(e)) => return Err(e),
        Err(Error::ConnectionClosed | Error::AlreadyClosed) => return Ok(()),
        Err(e) => Parting(CloseCode::Protocol, e.to_string()),
    };
    view.part(&parting)
}

/// Why it is over.
struct Parting(CloseCode, String);

/// A browser that sees a terminal.
struct View<'a> {
    socket: WebSocket<&'a TcpStream>,
    client: &'a mut Client,
    guard: Guard,
    attached: bool,
    /// It only looks: it neither types nor sets the size.
    watch: bool,
    /// The size that the browser was told.
    size: Option<Size>,
    began: Instant,
    /// When it last said anything, and was last asked to.
    heard: Instant,
    asked: Instant,
    /// When the size was last looked at.
    sized: Instant,
    /// Since when it has not taken what it was sent.
    pending: Option<Instant>,
}

impl View<'_> {
    fn go_on(&mut self) -> Result<Parting, Error> {
        self.ask_size()?;
        loop {
            if let Some(parting) = self.hear()? {
                return Ok(parting);
            }
            if let Some(parting) = self.show()? {
                return Ok(parting);
            }
            self.flush()?;
            if let Some(parting) = self.pass_time()? {
                return Ok(parting);
            }
            self.wait()?;
        }
    }

    /// Sleeps until one of the two says something, or it is time for something.
    fn wait(&mut self) -> io::Result<()> {
        let full = self.pending.is_some();
        let flags = if full { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let stream = *self.socket.get_ref();
        let mut fds = [PollFd::new(stream, flags), PollFd::from_borrowed_fd(self.client.as_fd(), PollFlags::IN)];
        let count = if full { 1 } else { 2 };
        let most = if !self.attached {
            FIRST_WORD
        } else if full {
            SIZE
        } else {
            STILL_THERE
        };
        let timeout = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
        match poll(&mut fds[..count], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        if count == 2 && !fds[1].revents().is_empty() {
            self.client.receive()?;
        }
        Ok(())
    }

    /// Takes what the browser has said.
    fn hear(&mut self) -> Result<Option<Parting>, Error> {
        loop {
            let message = match self.socket.read() {
                Err(Error::Io(e)) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                message => message?,
            };
            self.heard = Instant::now();
            match message {
                Message::Binary(typed) => {
                    if !self.attached {
                        self.attach(self.size)?;
                    }
                    if !self.watch {
                        self.client.input(&typed)?;
                    }
                }
                Message::Text(text) => {
                    if let Some(wrong) = self.obey(text.as_str())? {
                        return Ok(Some(Parting(CloseCode::Unsupported, wrong.into())));
                    }
                }
                Message::Close(_) => return Err(Error::ConnectionClosed),
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }

    /// Does what the browser asks; or says what is wrong with it.
    fn obey(&mut self, text: &str) -> io::Result<Option<&'static str>> {
        let Ok(Value::Object(said)) = serde_json::from_str(text) else { return Ok(Some("a text is an object")) };
        if said.get("watch") == Some(&Value::Bool(true)) {
            self.watch = true;
            let size = self.size.unwrap_or(Size { rows: 24, cols: 80 });
            // What it was shown already is not shown again.
            let tail = if self.attached { 0 } else { TAIL };
            self.client.attach(Attach { size, watch: true, tail })?;
            self.attached = true;
        }
        let Some(resize) = said.get("resize") else { return Ok(None) };
        let side = |at: usize| resize.get(at).and_then(Value::as_u64).filter(|n| (1..=2000).contains(n));
        let (Some(cols), Some(rows)) = (side(0), side(1)) else { return Ok(Some("a size is [columns, rows]")) };
        let size = Size { rows: rows as u16, cols: cols as u16 };
        match (self.attached, self.watch) {
            (_, true) => {}
            (false, _) => self.attach(Some(size))?,
            (true, false) => {
                self.client.resize(size)?;
                self.ask_size()?;
            }
        }
        Ok(None)
    }

    fn attach(&mut self, size: Option<Size>) -> io::Result<()> {
        self.attached = true;
        self.client.attach(Attach {
            size: size.unwrap_or(Size { rows: 24, cols: 80 }),
            watch: self.watch,
            tail: TAIL,
        })?;
        self.ask_size()
    }

    fn ask_size(&mut self) -> io::Result<()> {
        self.sized = Instant::now();
        self.client.ask()
    }

    /// Shows what the terminal has said, as long as the browser takes it.
    fn show(&mut self) -> Result<Option<Parting>, Error> {
        let mut any = false;
        while self.pending.is_none() {
            let event = match self.client.ready() {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(e) => return Ok(Some(Parting(CloseCode::Error, e.to_string()))),
            };
            match event {
                Event::Output(bytes) => {
                    any = true;
                    let bytes = self.guard.pass(bytes);
                    if !bytes.is_empty() {
                        self.say(Message::binary(bytes))?;
                    }
                }
                Event::Status(status) => {
                    if self.size != Some(status.size) {
                        self.size = Some(status.size);
                        let told = json!({"size": [status.size.cols, status.size.rows]});
                        self.say(Message::text(told.to_string()))?;
                    }
                }
                Event::Exited(exit) => {
                    let told = json!({"ended": {"code": exit.code, "signal": exit.signal}});
                    self.say(Message::text(told.to_string()))?;
                    return Ok(Some(Parting(CloseCode::Normal, "the session has ended".into())));
                }
                Event::Dropped(why) => return Ok(Some(Parting(CloseCode::Again, why))),
                Event::Closed => return Ok(Some(Parting(CloseCode::Away, "the shim is gone; connect again".into()))),
            }
            self.flush()?;
        }
        if any && self.sized.elapsed() > SIZE {
            self.ask_size()?; // somebody else may have set it
        }
        Ok(None)
    }

    fn say(&mut self, message: Message) -> Result<(), Error> {
        match self.socket.write(message) {
            // It is taken down all the same.
            Err(Error::Io(e)) if e.kind() == io::ErrorKind::WouldBlock => {
                self.pending.get_or_insert_with(Instant::now);
                Ok(())
            }
            said => said,
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        match self.socket.flush() {
            Ok(()) => self.pending = None,
            Err(Error::Io(e)) if e.kind() == io::ErrorKind::WouldBlock => {
                self.pending.get_or_insert_with(Instant::now);
            }
            Err(e) => return Err(e),
        }
        Ok(())
    }

    fn pass_time(&mut self) -> Result<Option<Parting>, Error> {
        if !self.attached && self.began.elapsed() >= FIRST_WORD {
            self.attach(self.size)?;
        }
        if self.pending.is_some_and(|since| since.elapsed() > SLOW) {
            return Ok(Some(Parting(CloseCode::Again, "it took too long to take what it was sent".into())));
        }
        if self.heard.elapsed() > SILENT {
            return Ok(Some(Parting(CloseCode::Away, "it has been silent for too long".into())));
        }
        if self.heard.elapsed() >= STILL_THERE && self.asked.elapsed() >= STILL_THERE {
            self.asked = Instant::now();
            self.say(Message::Ping(Default::default()))?;
            self.flush()?;
        }
        Ok(None)
    }

    /// Says why it is over, if that is still heard.
    fn part(&mut self, Parting(code, reason): &Parting) -> io::Result<()> {
        let mut reason = reason.clone();
        while reason.len() > 120 {
            reason.pop(); // as much as fits
        }
        let frame = CloseFrame { code: *code, reason: reason.as_str().into() };
        let began = Instant::now();
        let mut done = self.socket.close(Some(frame));
        while began.elapsed() < FAREWELL {
            let flags = match done {
                Err(Error::Io(e)) if e.kind() == io::ErrorKind::WouldBlock => PollFlags::IN | PollFlags::OUT,
                Ok(()) => PollFlags::IN,
                Err(_) => break, // closed, by both
            };
            let timeout = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
            let _ = poll(&mut [PollFd::new(*self.socket.get_ref(), flags)], Some(&timeout));
            done = match self.socket.read() {
                Ok(_) => Ok(()),
                Err(Error::Io(e)) if e.kind() == io::ErrorKind::WouldBlock => self.socket.flush(),
                Err(e) => Err(e),
            };
        }
        Err(io::Error::other(reason))
    }
}
