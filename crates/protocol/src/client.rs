//! Asking the daemon.
//!
//! Blocking, one connection, one question after the other. Whoever cannot connect
//! looks for himself: that there is no daemon is no error of any verb.

use std::io::{self, BufRead as _, BufReader, Read as _, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use lariat_shim::socket::{self, SocketError};
use serde::Serialize;

use crate::wire::{Hello, LONGEST, Question, Reply};

/// How long the daemon may take to say hello. It is on this machine and does
/// nothing else first.
const HELLO: Duration = Duration::from_secs(5);

/// How long it may be silent while it answers.
const ANSWER: Duration = Duration::from_secs(10);

/// Why the daemon cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The connection broke.
    #[error("the connection to the daemon broke: {0}")]
    Io(#[from] io::Error),
    /// It does not speak as a daemon does.
    #[error("what answers there is not a daemon of ours")]
    NotADaemon,
    /// Its words are too old or too new.
    #[error("the daemon is lariat {0}, which this one does not understand; `lariat daemon restart` helps")]
    Version(String),
    /// It says why not.
    #[error("the daemon: {0}")]
    Refused(String),
}

impl ClientError {
    /// Whether nobody listens there.
    pub fn is_absent(&self) -> bool {
        let absent = |e: &io::Error| matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
        matches!(self, ClientError::Socket(SocketError::Io(_, _, e)) if absent(e))
    }
}

/// A connection to the daemon.
pub struct Client {
    stream: BufReader<UnixStream>,
    hello: Hello,
}

impl Client {
    /// Connects and exchanges hellos.
    pub fn connect(socket: &Path, ours: &Hello) -> Result<Client, ClientError> {
        Client::connect_within(socket, ours, HELLO)
    }

    /// As [`connect`](Self::connect), for one who would rather look for himself than
    /// wait: for a daemon that was stopped in its tracks, for example.
    pub fn connect_within(socket: &Path, ours: &Hello, patience: Duration) -> Result<Client, ClientError> {
        let stream = socket::connect(socket)?;
        stream.set_read_timeout(Some(patience))?;
        say(&stream, ours)?;
        let mut stream = BufReader::with_capacity(64 << 10, stream);
        let hello: Hello = serde_json::from_str(&line(&mut stream)?).map_err(|_| ClientError::NotADaemon)?;
        if !ours.understands(&hello) {
            return Err(ClientError::Version(hello.lariat));
        }
        stream.get_ref().set_read_timeout(None)?;
        Ok(Client { stream, hello })
    }

    /// What the daemon said of itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Asks what a looking verb prints; its bytes go to `to`.
    pub fn answer(&mut self, arguments: &[String], to: &mut impl Write) -> Result<Reply, ClientError> {
        self.stream.get_ref().set_read_timeout(Some(ANSWER))?;
        self.ask(&Question::Answer { arguments: arguments.to_vec() }, to)
    }

    /// Asks how the daemon is.
    pub fn status(&mut self) -> Result<serde_json::Value, ClientError> {
        let mut text = Vec::new();
        self.ask(&Question::Status, &mut text)?;
        serde_json::from_slice(&text).map_err(|_| ClientError::NotADaemon)
    }

    /// Has the daemon serve HTTP; the port that it serves on.
    pub fn http(&mut self, port: u16) -> Result<u16, ClientError> {
        let mut text = Vec::new();
        self.ask(&Question::Http { port }, &mut text)?;
        std::str::from_utf8(&text).ok().and_then(|t| t.trim().parse().ok()).ok_or(ClientError::NotADaemon)
    }

    /// Ends the daemon; returns when it has hung up.
    pub fn stop(mut self) -> Result<(), ClientError> {
        self.ask(&Question::Stop, &mut io::sink())?;
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest); // a reset is an end too
        Ok(())
    }

    /// Asks for what happened; each event is a line, given to `tell` as it comes,
    /// until the daemon hangs up or `tell` has enough.
    pub fn events(
        mut self,
        since: Option<String>,
        follow: bool,
        mut tell: impl FnMut(&str) -> io::Result<()>,
    ) -> Result<(), ClientError> {
        say(self.stream.get_ref(), &Question::Events { since, follow })?;
        let mut text = String::new();
        loop {
            text.clear();
            if self.stream.read_line(&mut text)? == 0 {
                return Ok(());
            }
            tell(text.trim_end_matches('\n'))?;
        }
    }

    fn ask(&mut self, question: &Question, to: &mut impl Write) -> Result<Reply, ClientError> {
        say(self.stream.get_ref(), question)?;
        let reply: Reply = serde_json::from_str(&line(&mut self.stream)?).map_err(|_| ClientError::NotADaemon)?;
        if let Some(error) = reply.error {
            return Err(ClientError::Refused(error));
        }
        let mut left = reply.bytes;
        while left > 0 {
            let piece = self.stream.fill_buf()?;
            if piece.is_empty() {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            let n = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            to.write_all(&piece[..n])?;
            self.stream.consume(n);
            left -= n as u64;
        }
        Ok(reply)
    }
}

/// Says something in one line.
fn say(mut stream: &UnixStream, what: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(what)?;
    text.push(b'\n');
    stream.write_all(&text)
}

fn line(stream: &mut BufReader<UnixStream>) -> Result<String, ClientError> {
    let mut text = String::new();
    stream.by_ref().take(LONGEST).read_line(&mut text)?;
    if text.ends_with('\n') { Ok(text) } else { Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()) }
}
