//! Holding a session: one loop, from the agent's start to its end.
//!
//! # Theory of operation
//!
//! One thread, one `poll`, no timer unless somebody is waited for. What can happen:
//!
//! | readable | then |
//! |---|---|
//! | the agent's pidfd | it has ended: the loop is over |
//! | a child's end | it is reaped: orphans of the agent come to us; and the door is opened anew if it is gone |
//! | the word to end | it is noted, and heeded a while later |
//! | the keeper's pidfd | it is dead: another is made |
//! | the terminal | bytes go to the ring and to every viewer at the end of it |
//! | the door | a viewer comes in, if it is our user |
//! | a viewer | it types, resizes, asks, leaves |
//!
//! **Size.** The last viewer that typed sets it. Until somebody has, the one that came
//! first does; when that one leaves, the one that came last. Watchers never do.
//!
//! **Repaint.** The shim does not know what is on the screen, for it never parses
//! output. Who attaches first gets the end of the stream, as much as it asked for;
//! then the agent is made to draw again: by the new size if that differs, else by
//! one row less and, a moment later, the row back. The moment must be long enough for
//! the agent to look at its size in between: an agent that finds nothing changed draws
//! nothing.
//!
//! **Told to end.** No verb of ours tells a shim so. A shutdown and a logout tell every process, and some agents end well
//! then, as if they had ended by themselves. So the shim notes that it was told, by `SIGTERM` or `SIGHUP`, and stays for a
//! while: an agent that ends meanwhile was most likely told too, and the exit record says that. So it does if the word comes
//! to us while we write the record: whoever tells all comes to one after the other. If the agent goes on, the shim ends by
//! that signal, as any program does, and leaves the agent to the keeper, which is not told of it.
//!
//! **Typing** is queued until the terminal takes it, and for a moment after a new size: some programs (whatever reads its
//! keys by crossterm) leave what comes together with that unread until the next key. When the queue is full nobody who types is
//! heard on: they wait, and nothing is lost. Everybody else is.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use lariat_core::Time;
use lariat_sys::clock;
use lariat_sys::signals::{self, ChildEnds};
use lariat_sys::spawn::Ended;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use crate::agent::Agent;
use crate::keeper::Keeper;
use crate::record::{self, Exit, Launch, Shim};
use crate::ring::Ring;
use crate::socket;
use crate::viewer::{State, Viewer};
use crate::wire::{Attach, CHUNK, HEADER, Hello, Kind, Size, Status, header};

/// How much typing is queued.
const QUEUE: usize = 64 << 10;
/// How many may be connected.
const MOST: usize = 64;
/// How long the agent sees one row less.
const ROW_LESS: Duration = Duration::from_millis(50);
/// How long the agent has a new size to itself before keys come.
const SETTLING: Duration = Duration::from_millis(25);
/// How long the door stays shut when no descriptor is free.
const SHUT: Duration = Duration::from_secs(1);
/// A terminal that gives less has no more for now, as a rule.
const FEW: usize = 512;
/// How often a keeper is replaced: one that cannot live is not tried for ever.
const KEEPERS: u32 = 16;
/// How much is read after the end, lest a child that writes on keeps us for ever.
const LAST: u64 = 8 << 20;

/// How long the shim stays, once it was told to end, for an agent that was told so too.
const TOLD: Duration = Duration::from_secs(10);

/// A session that is held.
pub(crate) struct Hold<'a> {
    folder: &'a Path,
    launch: &'a Launch,
    agent: &'a Agent,
    record: Shim,
    ring: Option<Ring>,
    door: UnixListener,
    shut_until: Option<Instant>,
    children: ChildEnds,
    keeper: Option<Keeper>,
    keepers: u32,
    viewers: Vec<Viewer>,
    next_id: u64,
    size: Size,
    /// The one that sets the size.
    typist: Option<u64>,
    /// When the row comes back.
    row_less: Option<Instant>,
    /// When keys come again.
    settled: Option<Instant>,
    /// When we were told to end, and until when we stay all the same.
    told: Option<(Time, Instant)>,
    typed: Vec<u8>,
    scratch: Vec<u8>,
}

/// What woke us.
#[derive(Default)]
struct Woken {
    agent: bool,
    children: bool,
    keeper: bool,
    door: bool,
    readable: bool,
    writable: bool,
    viewers: Vec<(bool, bool)>,
}

impl<'a> Hold<'a> {
    pub fn new(
        (folder, launch, agent): (&'a Path, &'a Launch, &'a Agent),
        (record, keeper): (Shim, Option<Keeper>),
        (ring, door, children): (Option<Ring>, UnixListener, ChildEnds),
    ) -> Hold<'a> {
        let asked = Size { rows: launch.rows, cols: launch.cols };
        let size = agent.terminal.as_ref().and_then(|t| t.size().ok()).unwrap_or(asked);
        Hold {
            folder,
            launch,
            agent,
            record,
            ring,
            door,
            shut_until: None,
            children,
            keeper,
            keepers: 0,
            viewers: Vec::new(),
            next_id: 0,
            size,
            typist: None,
            row_less: None,
            settled: None,
            told: None,
            typed: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Holds it until the agent has ended, and says how.
    pub fn run(&mut self) -> io::Result<Option<Ended>> {
        let mut reaped = None;
        loop {
            let woken = self.wait()?;
            if woken.children {
                self.listen();
                reaped = reaped.or(self.agent.reap());
                self.stand_open();
            }
            if woken.agent {
                return Ok(self.agent.end(reaped));
            }
            if woken.readable {
                self.read_terminal();
            }
            for (index, (readable, writable)) in woken.viewers.into_iter().enumerate() {
                if writable {
                    self.viewers[index].pump(self.ring.as_ref());
                }
                if readable {
                    self.hear(index);
                }
            }
            if woken.writable || !self.typed.is_empty() {
                self.write_terminal();
            }
            for index in 0..self.viewers.len() {
                if self.has_room() && self.viewers[index].waits_to_type {
                    self.hear(index);
                }
            }
            if woken.door {
                self.let_in();
            }
            if woken.keeper {
                self.replace_keeper();
            }
            self.pass_time();
            self.see_off();
            if self.told.is_some_and(|(_, until)| until <= Instant::now()) {
                signals::end_by(Signal::TERM.as_raw());
            }
        }
    }

    /// Hears what signals there are.
    fn listen(&mut self) {
        if self.children.clear() {
            self.told.get_or_insert_with(|| (Time(clock::now_ms()), Instant::now() + TOLD));
        }
    }

    /// When we were told to end, if we were.
    pub fn told(&mut self) -> Option<Time> {
        self.listen();
        self.told.map(|(at, _)| at)
    }

    fn end(&self) -> u64 {
        self.ring.as_ref().map_or(0, Ring::end)
    }

    fn has_room(&self) -> bool {
        self.typed.len() < QUEUE
    }

    fn wait(&self) -> io::Result<Woken> {
        let end = self.end();
        let held = self.viewers.iter().any(|v| v.holds_up(end));
        let mut fds = Vec::with_capacity(5 + self.viewers.len());
        let at = |wanted| if wanted { PollFlags::IN } else { PollFlags::empty() };
        fds.push(PollFd::new(&self.agent.pidfd, PollFlags::IN));
        fds.push(PollFd::new(&self.children, PollFlags::IN));
        fds.push(PollFd::new(&self.door, at(self.shut_until.is_none())));
        // Absent ones keep their place: a second look at what is there anyway.
        let keeper = self.keeper.as_ref().map_or(self.agent.pidfd.as_fd(), |k| k.pidfd.as_fd());
        fds.push(PollFd::from_borrowed_fd(keeper, at(self.keeper.is_some())));
        let terminal = self.agent.terminal.as_ref();
        let mut wanted = at(terminal.is_some() && !held);
        if !self.typed.is_empty() && self.settled.is_none() {
            wanted |= PollFlags::OUT;
        }
        let master = terminal.map_or(self.agent.pidfd.as_fd(), |t| t.master.as_fd());
        fds.push(PollFd::from_borrowed_fd(master, wanted));
        for viewer in &self.viewers {
            let mut wanted = at(!viewer.waits_to_type);
            if viewer.waits(end) {
                wanted |= PollFlags::OUT;
            }
            fds.push(PollFd::new(&viewer.stream, wanted));
        }
        match poll(&mut fds, self.timeout(end).as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Woken::default()),
            Err(e) => return Err(e.into()),
        }
        let is = |at: usize, flags| fds[at].revents().intersects(flags);
        let broken = PollFlags::ERR | PollFlags::HUP;
        Ok(Woken {
            agent: is(0, PollFlags::IN),
            children: is(1, PollFlags::IN),
            door: is(2, PollFlags::IN),
            keeper: self.keeper.is_some() && is(3, PollFlags::IN),
            readable: terminal.is_some() && is(4, PollFlags::IN),
            writable: is(4, PollFlags::OUT),
            viewers: (5..fds.len()).map(|at| (is(at, PollFlags::IN | broken), is(at, PollFlags::OUT))).collect(),
        })
    }

    fn timeout(&self, end: u64) -> Option<Timespec> {
        let viewers = self.viewers.iter().filter_map(|v| v.deadline(end));
        let told = self.told.map(|(_, until)| until);
        let settled = self.settled.filter(|_| !self.typed.is_empty());
        let until = viewers.chain(self.row_less).chain(settled).chain(self.shut_until).chain(told).min()?;
        let left = until.saturating_duration_since(Instant::now());
        Some(Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() })
    }

    /// Reads what is there, up to a frame's worth; says how much that was.
    fn read_terminal(&mut self) -> usize {
        let (Some(terminal), Some(ring)) = (&self.agent.terminal, &mut self.ring) else { return 0 };
        self.scratch.resize(HEADER + CHUNK, 0);
        let mut len = HEADER;
        while len < self.scratch.len() {
            match rustix::io::read(&terminal.master, &mut self.scratch[len..]) {
                Ok(n) if n > 0 => {
                    len += n;
                    if n < FEW {
                        break; // most likely all there is: if not, we are woken again
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                _ => break, // nothing more for now
            }
        }
        let read = len - HEADER;
        if read > 0 {
            self.scratch[..HEADER].copy_from_slice(&header(Kind::Output, read));
            // First to the ring: what anybody has seen is kept, whatever becomes of us.
            let before = ring.end();
            ring.append(&self.scratch[HEADER..len]);
            for viewer in &mut self.viewers {
                viewer.offer(&self.scratch[..len], before, ring.end());
            }
        }
        read
    }

    fn write_terminal(&mut self) {
        let Some(terminal) = &self.agent.terminal else { return self.typed.clear() };
        self.settled.take_if(|until| *until <= Instant::now());
        if self.settled.is_some() {
            return;
        }
        while !self.typed.is_empty() {
            match rustix::io::write(&terminal.master, &self.typed) {
                Ok(n) => drop(self.typed.drain(..n)),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return, // it takes no more for now
            }
        }
        self.typed = Vec::new();
    }

    fn let_in(&mut self) {
        loop {
            let stream = match self.door.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.shut_until = Some(Instant::now() + SHUT);
                    return;
                }
            };
            if !matches!(socket::stranger(&stream), Ok(None)) || stream.set_nonblocking(true).is_err() {
                continue;
            }
            self.next_id += 1;
            let mut viewer = Viewer::new(self.next_id, stream);
            viewer.pump(None);
            if self.viewers.len() >= MOST {
                viewer.part(Kind::Dropped, b"too many are connected to this session");
                continue;
            }
            self.viewers.push(viewer);
        }
    }

    fn hear(&mut self, index: usize) {
        self.viewers[index].hear();
        let room = self.has_room();
        for (kind, payload) in self.viewers[index].frames(room) {
            let viewer = &mut self.viewers[index];
            match (viewer.state, kind) {
                (State::Leaving, _) | (_, None) => {}
                (State::New, Some(Kind::Hello)) if Hello::parse(&payload).is_some() => viewer.state = State::Known,
                (State::New, _) => viewer.shut(),
                (_, Some(Kind::Attach)) => match Attach::parse(&payload) {
                    Some(attach) => self.attach(index, attach),
                    None => viewer.shut(),
                },
                // Nor does one set the size who sees nothing yet.
                (State::Attached { watch: true }, Some(Kind::Input | Kind::Resize))
                | (State::Known, Some(Kind::Resize)) => {}
                (_, Some(Kind::Input)) => {
                    self.typed.extend_from_slice(&payload);
                    let (id, size) = (viewer.id, viewer.size);
                    if let Some(size) = size {
                        self.typist = Some(id);
                        self.set_size(size);
                    }
                }
                (_, Some(Kind::Resize)) => match Size::parse(&payload) {
                    Some(size) => {
                        viewer.size = Some(size);
                        if *self.typist.get_or_insert(viewer.id) == viewer.id {
                            self.set_size(size);
                        }
                    }
                    None => viewer.shut(),
                },
                (_, Some(Kind::Ask)) => {
                    let status = serde_json::to_vec(&self.status()).unwrap_or_default();
                    self.viewers[index].say(Kind::Status, &status);
                }
                (_, Some(Kind::Detach)) => viewer.shut(),
                (_, Some(_)) => viewer.shut(), // what only a shim says
            }
        }
    }

    fn attach(&mut self, index: usize, attach: Attach) {
        let viewer = &mut self.viewers[index];
        let Some(ring) = &self.ring else {
            let why = b"this session has no terminal: its output is in the files stdout and stderr";
            return viewer.part(Kind::Dropped, why);
        };
        let from = ring.end().saturating_sub(attach.tail.into()).max(ring.start());
        viewer.attach(attach.watch, from);
        viewer.size = Some(attach.size).filter(|_| !attach.watch);
        if !attach.watch {
            let sets = *self.typist.get_or_insert(viewer.id) == viewer.id;
            if !(sets && self.set_size(attach.size)) {
                self.repaint();
            }
        }
        self.viewers[index].pump(self.ring.as_ref());
    }

    /// Sets the size, if it is another; says whether it was.
    fn set_size(&mut self, size: Size) -> bool {
        if size == self.size {
            return false;
        }
        self.size = size;
        self.row_less = None;
        self.tell_size(size)
    }

    /// Tells the agent of a size; says whether it could be.
    fn tell_size(&mut self, size: Size) -> bool {
        self.settled = Some(Instant::now() + SETTLING);
        self.agent.terminal.as_ref().is_some_and(|t| t.set_size(size).is_ok())
    }

    /// Makes the agent draw again though nothing has changed.
    fn repaint(&mut self) {
        let rows = if self.size.rows > 1 { self.size.rows - 1 } else { 2 };
        if self.tell_size(Size { rows, ..self.size }) {
            self.row_less = Some(Instant::now() + ROW_LESS);
        }
    }

    fn pass_time(&mut self) {
        if self.row_less.is_none() && self.shut_until.is_none() && self.viewers.is_empty() {
            return;
        }
        let (now, end) = (Instant::now(), self.end());
        if self.row_less.take_if(|until| *until <= now).is_some() {
            self.tell_size(self.size);
        }
        self.shut_until.take_if(|until| *until <= now);
        for viewer in &mut self.viewers {
            if let Some(ring) = &self.ring {
                viewer.drop_if_lapped(ring);
            }
            if viewer.deadline(end).is_some_and(|until| until <= now) {
                viewer.lose_patience();
            }
        }
    }

    /// Forgets the viewers that are over.
    fn see_off(&mut self) {
        self.viewers.retain(|v| !v.is_over());
        let Some(typist) = self.typist else { return };
        // One that types may attach again, only to watch.
        let types = |v: &Viewer| v.is_attached() && !v.is_watcher();
        if self.viewers.iter().any(|v| v.id == typist && types(v)) {
            return;
        }
        let next = self.viewers.iter().rfind(|v| types(v));
        self.typist = next.map(|v| v.id);
        if let Some(size) = next.and_then(|v| v.size) {
            self.set_size(size);
        }
    }

    /// Opens the door again, and has a keeper that can be reached, if what leads there was taken away: a runtime
    /// directory goes when its user logs out. Who finds no door sends us `SIGCHLD` ([`crate::client::knock`]).
    fn stand_open(&mut self) {
        let gone = |path: &Path| path.symlink_metadata().is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
        if gone(&self.launch.socket)
            && let Ok(door) = socket::listen(&self.launch.socket)
        {
            (self.door, self.shut_until) = (door, None);
        }
        if self.keeper.is_some()
            && gone(&socket::keeper_path(&self.launch.socket))
            && let Ok(keeper) = Keeper::start(self.folder, &self.launch.socket, self.agent)
        {
            // First the new one: at no time are we alone.
            let before = self.keeper.replace(keeper);
            self.tell_of_keeper();
            before.iter().for_each(crate::dismiss);
        }
    }

    fn replace_keeper(&mut self) {
        self.keeper = None;
        self.keepers += 1;
        // One that was told to end as we were is not replaced: it is over.
        if self.keepers <= KEEPERS && self.told.is_none() {
            self.keeper = Keeper::start(self.folder, &self.launch.socket, self.agent).ok();
        }
        self.tell_of_keeper();
    }

    fn tell_of_keeper(&mut self) {
        self.record.keeper = self.keeper.as_ref().map(|k| k.process.clone());
        let _ = record::put(self.folder, record::SHIM, &self.record); // only a hint for who takes over
    }

    fn status(&self) -> Status {
        let count = |f: fn(&Viewer) -> bool| self.viewers.iter().filter(|v| f(v)).count() as u32;
        Status {
            agent: self.agent.process.clone(),
            headless: self.ring.is_none(),
            size: self.size,
            viewers: count(Viewer::is_attached),
            watchers: count(Viewer::is_watcher),
            output: self.end(),
            lost: self.lost(),
            kept: self.keeper.is_some(),
        }
    }

    /// How many bytes could not be kept.
    pub fn lost(&self) -> u64 {
        self.ring.as_ref().map_or(0, |r| r.lost)
    }

    /// Reads what the agent left in its terminal.
    pub fn drain(&mut self) {
        let mut left = LAST;
        while left > 0 {
            match self.read_terminal() as u64 {
                0 => return,
                n => left = left.saturating_sub(n),
            }
        }
    }

    /// Tells everyone how it ended, and closes. Who takes nothing is not waited for.
    pub fn announce(mut self, exit: &Exit) {
        socket::remove(&self.launch.socket);
        let exited = serde_json::to_vec(exit).unwrap_or_default();
        loop {
            let end = self.end();
            for viewer in &mut self.viewers {
                viewer.pump(self.ring.as_ref());
                if viewer.state != State::Leaving && !viewer.waits(end) {
                    viewer.part(Kind::Exited, &exited);
                }
                if viewer.last_deadline() <= Instant::now() {
                    viewer.shut();
                }
            }
            self.viewers.retain(|v| !v.is_over());
            let Some(until) = self.viewers.iter().map(Viewer::last_deadline).min() else { return };
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            let mut fds: Vec<_> = self.viewers.iter().map(|v| PollFd::new(&v.stream, PollFlags::OUT)).collect();
            let _ = poll(&mut fds, Some(&left));
        }
    }

    /// The keeper, to be let go when the exit is on record.
    pub fn take_keeper(&mut self) -> Option<Keeper> {
        self.keeper.take()
    }
}
