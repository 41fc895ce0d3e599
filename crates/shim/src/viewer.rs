//! One connection: what it has said, and what it has not yet been told.
//!
//! # Theory of operation
//!
//! A viewer has no copy of the output waiting for it. It has a place in the stream;
//! whoever is at the end gets new bytes straight from the terminal, and whoever fell
//! behind is served from the ring on disk as it can take them. So a viewer costs a
//! frame's worth of memory at most, and its bound is the ring's.
//!
//! It is dropped, and told why, when it takes nothing at all for [`PATIENCE`] while
//! more than [`FAR`] waits for it, or when what it has not read is not kept any more.
//! Until then one that is far behind slows the agent to its own pace, as any
//! terminal does; a watcher never does.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::ring::Ring;
use crate::wire::{self, CHUNK, Front, Hello, Kind, Size};

/// How long one that holds up the agent may take nothing at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// How long a dropped one may take to hear why.
const FAREWELL: Duration = Duration::from_secs(60);
/// How far behind is too far.
pub(crate) const FAR: u64 = 1 << 20;

/// Where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Has not said hello.
    New,
    /// May ask and type.
    Known,
    /// Sees the output.
    Attached {
        /// Only looks.
        watch: bool,
    },
    /// Is told one last thing.
    Leaving,
}

pub(crate) struct Viewer {
    /// Its number, given once.
    pub id: u64,
    pub stream: UnixStream,
    pub state: State,
    pub size: Option<Size>,
    /// Its place in the stream.
    at: u64,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    sent: usize,
    /// When it last took something, or began to wait.
    progress: Instant,
    gone: bool,
    /// What it has typed waits for room, and whatever it said after that.
    pub waits_to_type: bool,
}

impl Viewer {
    pub fn new(id: u64, stream: UnixStream) -> Viewer {
        let (inbox, outbox) = (Vec::new(), Hello::ours());
        let progress = Instant::now();
        let (state, size, at, sent) = (State::New, None, 0, 0);
        Viewer { id, stream, state, size, at, inbox, outbox, sent, progress, gone: false, waits_to_type: false }
    }

    pub fn is_attached(&self) -> bool {
        matches!(self.state, State::Attached { .. })
    }

    pub fn is_watcher(&self) -> bool {
        self.state == State::Attached { watch: true }
    }

    /// Over: closed by it, broken, or told all.
    pub fn is_over(&self) -> bool {
        self.gone || (self.state == State::Leaving && self.outbox.is_empty())
    }

    /// Reads what it has said; the caller takes the frames with [`Viewer::frames`].
    pub fn hear(&mut self) {
        let mut piece = [0u8; 4096];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => self.gone = true,
                Ok(n) => {
                    self.inbox.extend_from_slice(&piece[..n]);
                    if n == piece.len() && self.inbox.len() < wire::LONGEST {
                        continue;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => self.gone = true,
            }
            return;
        }
    }

    /// Takes every whole frame; without `room`, up to one that types, unless it has left. `None` in place of a kind: a
    /// later program's word.
    pub fn frames(&mut self, room: bool) -> Vec<(Option<Kind>, Vec<u8>)> {
        let mut frames = Vec::new();
        let mut at = 0;
        self.waits_to_type = false;
        loop {
            match wire::front(&self.inbox[at..]) {
                Front::Part => break,
                Front::Whole(Some(Kind::Input), _) if !room && !self.gone => {
                    self.waits_to_type = true;
                    break;
                }
                Front::Whole(kind, len) => {
                    frames.push((kind, self.inbox[at + wire::HEADER..at + len].to_vec()));
                    at += len;
                }
                Front::Wrong => {
                    self.gone = true;
                    break;
                }
            }
        }
        self.inbox.drain(..at);
        if self.inbox.is_empty() {
            self.inbox = Vec::new();
        }
        frames
    }

    /// Ends it without a word.
    pub fn shut(&mut self) {
        self.gone = true;
    }

    /// Says something that is not output.
    pub fn say(&mut self, kind: Kind, payload: &[u8]) {
        if self.outbox.is_empty() {
            self.progress = Instant::now();
        }
        wire::frame(&mut self.outbox, kind, payload);
        self.flush();
    }

    /// Says one last thing.
    pub fn part(&mut self, kind: Kind, payload: &[u8]) {
        self.state = State::Leaving;
        self.say(kind, payload);
    }

    /// Shows it the output from this place on.
    pub fn attach(&mut self, watch: bool, from: u64) {
        self.state = State::Attached { watch };
        self.at = from;
    }

    /// Gives it new output, a whole frame, that ends the stream where the ring ends.
    /// Only one that has seen all before takes it here.
    pub fn offer(&mut self, frame: &[u8], before: u64, after: u64) {
        if !self.is_attached() || self.at != before || !self.outbox.is_empty() {
            return;
        }
        self.at = after;
        self.progress = Instant::now();
        match (&self.stream).write(frame) {
            Ok(n) if n == frame.len() => {}
            Ok(n) => self.outbox.extend_from_slice(&frame[n..]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.outbox.extend_from_slice(frame),
            Err(_) => self.gone = true,
        }
    }

    /// Gives it whatever it can take now.
    pub fn pump(&mut self, ring: Option<&Ring>) {
        loop {
            self.flush();
            let Some(ring) = ring.filter(|r| self.is_attached() && self.at < r.end()) else { return };
            if !self.outbox.is_empty() || self.gone {
                return;
            }
            if self.drop_if_lapped(ring) {
                return;
            }
            self.outbox.resize(wire::HEADER + CHUNK, 0);
            let read = ring.read_at(self.at, &mut self.outbox[wire::HEADER..]).unwrap_or(0);
            if read == 0 {
                self.outbox.clear();
                self.part(Kind::Dropped, b"the output on disk cannot be read");
                return;
            }
            self.outbox.truncate(wire::HEADER + read);
            self.outbox[..wire::HEADER].copy_from_slice(&wire::header(Kind::Output, read));
            self.at += read as u64;
        }
    }

    /// Drops it if what it has not seen is not kept any more; says whether it was so.
    pub fn drop_if_lapped(&mut self, ring: &Ring) -> bool {
        let lapped = self.is_attached() && self.at < ring.start();
        if lapped {
            self.part(Kind::Dropped, b"fell too far behind: what was not read is no longer kept");
        }
        lapped
    }

    fn flush(&mut self) {
        while self.sent < self.outbox.len() {
            match (&self.stream).write(&self.outbox[self.sent..]) {
                Ok(n) if n > 0 => {
                    self.sent += n;
                    self.progress = Instant::now();
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                _ => {
                    self.gone = true;
                    return;
                }
            }
        }
        self.sent = 0;
        self.outbox = Vec::new();
    }

    /// Whether there is anything it should take.
    pub fn waits(&self, end: u64) -> bool {
        !self.outbox.is_empty() || (self.is_attached() && self.at < end)
    }

    /// Whether the agent has to wait for it.
    pub fn holds_up(&self, end: u64) -> bool {
        self.state == State::Attached { watch: false } && end.saturating_sub(self.at) > FAR
    }

    /// When its time is up, if it has to take something.
    pub fn deadline(&self, end: u64) -> Option<Instant> {
        match self.state {
            State::Leaving => Some(self.progress + FAREWELL),
            _ if self.holds_up(end) => Some(self.progress + PATIENCE),
            _ => None,
        }
    }

    /// When one has to be over that is told the end of the session.
    pub fn last_deadline(&self) -> Instant {
        self.progress + PATIENCE
    }

    /// Its time is up.
    pub fn lose_patience(&mut self) {
        match self.state {
            State::Leaving => self.gone = true,
            _ => self.part(Kind::Dropped, b"took nothing while the agent had to wait for it"),
        }
    }
}
