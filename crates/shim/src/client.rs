//! Talking to a shim.
//!
//! # Theory of operation
//!
//! Blocking, and nothing but a socket and a buffer. [`Client::connect`] checks the door
//! and who is behind it, and exchanges hellos; a shim that was halted is told apart from
//! one that is dead. Then everything that is said is one
//! call, and everything heard comes from [`Client::next`]. Who waits for something
//! else besides polls the client's descriptor, and takes what has come with
//! [`Client::receive`] and [`Client::ready`].

use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use lariat_sys::durable;
use lariat_sys::process::Identity;
use rustix::buffer::spare_capacity;

use crate::record::{Exit, Shim};
use crate::socket::{self, SocketError};
use crate::wire::{self, Attach, Front, HEADER, Hello, Kind, Size, Status};

/// How much is taken from the socket at once.
const PIECE: usize = 64 << 10;

/// Why it cannot be talked to.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The connection broke.
    #[error("the connection to the shim broke: {0}")]
    Io(#[from] io::Error),
    /// It does not speak as a shim does.
    #[error("what answers there is not a shim of ours")]
    NotAShim,
}

/// What a shim has said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// Bytes of the terminal, raw.
    Output(&'a [u8]),
    /// The agent has ended; nothing follows.
    Exited(Exit),
    /// The shim let us go, and why; nothing follows.
    Dropped(String),
    /// The answer to [`Client::ask`].
    Status(Status),
    /// The connection is over.
    Closed,
}

/// A connection to a shim.
pub struct Client {
    stream: UnixStream,
    hello: Hello,
    buffer: Vec<u8>,
    /// What of the buffer was given out already.
    used: usize,
    closed: bool,
}

impl ClientError {
    /// Whether somebody is there and does not answer.
    pub fn is_silent(&self) -> bool {
        matches!(self, ClientError::Socket(SocketError::Silent(_)))
    }
}

/// Has a shim open its door again, if the door is gone: whatever clears runtime directories cares for no shim that
/// lives on. The signal is one that no shim of any version dies of.
pub fn knock(shim: &Shim) -> io::Result<()> {
    let gone = shim.socket.symlink_metadata().is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    let Some((_, pidfd)) = Identity::from(shim.shim.clone()).here()?.filter(|_| gone) else { return Ok(()) };
    shim.socket.parent().map_or(Ok(()), durable::make_folder)?;
    Ok(rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::CHILD)?)
}

impl Client {
    /// Connects to a session's socket.
    pub fn connect(socket: &Path) -> Result<Client, ClientError> {
        let stream = socket::connect(socket)?;
        (&stream).write_all(&Hello::ours())?;
        let hello = Hello { protocol: 0, program: String::new() };
        let mut client = Client { stream, hello, buffer: Vec::new(), used: 0, closed: false };
        loop {
            match wire::front(&client.buffer) {
                Front::Whole(Some(Kind::Hello), len) => {
                    client.hello = Hello::parse(&client.buffer[HEADER..len]).ok_or(ClientError::NotAShim)?;
                    client.used = len;
                    // From here on an agent may be silent for days.
                    client.stream.set_read_timeout(None)?;
                    client.stream.set_write_timeout(None)?;
                    return Ok(client);
                }
                Front::Part if !client.closed => client.receive().map_err(|e| match e.kind() {
                    io::ErrorKind::WouldBlock => SocketError::Silent(socket.to_owned()).into(),
                    _ => ClientError::Io(e),
                })?,
                _ => return Err(ClientError::NotAShim),
            }
        }
    }

    /// What the shim said of itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Asks to see the terminal, and for the end of what it showed so far.
    pub fn attach(&self, attach: Attach) -> io::Result<()> {
        self.say(Kind::Attach, &attach.bytes())
    }

    /// Types.
    pub fn input(&self, bytes: &[u8]) -> io::Result<()> {
        bytes.chunks(wire::LONGEST).try_for_each(|piece| self.say(Kind::Input, piece))
    }

    /// Tells the size of our terminal.
    pub fn resize(&self, size: Size) -> io::Result<()> {
        self.say(Kind::Resize, &size.bytes())
    }

    /// Leaves.
    pub fn detach(self) -> io::Result<()> {
        self.say(Kind::Detach, &[])
    }

    /// Asks for the status; the answer is an event.
    pub fn ask(&self) -> io::Result<()> {
        self.say(Kind::Ask, &[])
    }

    /// Asks for the status and waits for it; only before attaching.
    pub fn status(&mut self) -> Result<Status, ClientError> {
        self.ask()?;
        loop {
            match self.next()? {
                Event::Status(status) => return Ok(status),
                Event::Output(_) => {}
                _ => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            }
        }
    }

    fn say(&self, kind: Kind, payload: &[u8]) -> io::Result<()> {
        let mut frame = Vec::with_capacity(HEADER + payload.len());
        wire::frame(&mut frame, kind, payload);
        (&self.stream).write_all(&frame)
    }

    /// Waits for the next event.
    #[expect(clippy::should_implement_trait, reason = "what it gives borrows from it, so it is no iterator")]
    pub fn next(&mut self) -> Result<Event<'_>, ClientError> {
        while !self.has_frame()? && !self.closed {
            self.receive()?;
        }
        self.ready().map(|event| event.unwrap_or(Event::Closed))
    }

    /// The next event that has come already.
    pub fn ready(&mut self) -> Result<Option<Event<'_>>, ClientError> {
        while self.has_frame()? {
            let Front::Whole(kind, len) = wire::front(&self.buffer[self.used..]) else { break };
            let payload = self.used + HEADER..self.used + len;
            self.used += len;
            let wrong = |_| ClientError::NotAShim;
            return Ok(Some(match kind {
                Some(Kind::Output) => Event::Output(&self.buffer[payload]),
                Some(Kind::Exited) => Event::Exited(serde_json::from_slice(&self.buffer[payload]).map_err(wrong)?),
                Some(Kind::Dropped) => Event::Dropped(String::from_utf8_lossy(&self.buffer[payload]).into_owned()),
                Some(Kind::Status) => Event::Status(serde_json::from_slice(&self.buffer[payload]).map_err(wrong)?),
                _ => continue, // a later shim's word
            }));
        }
        Ok(self.closed.then_some(Event::Closed))
    }

    fn has_frame(&self) -> Result<bool, ClientError> {
        match wire::front(&self.buffer[self.used..]) {
            Front::Whole(..) => Ok(true),
            Front::Part => Ok(false),
            Front::Wrong => Err(ClientError::NotAShim),
        }
    }

    /// Takes what has come; blocks if nothing has.
    pub fn receive(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.used);
        self.used = 0;
        self.buffer.reserve(PIECE);
        let read = loop {
            match rustix::io::read(&self.stream, spare_capacity(&mut self.buffer)) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::CONNRESET) => break 0,
                read => break read?,
            }
        };
        self.closed = read == 0;
        Ok(())
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
