//! `lariat top`: the terminal screen.
//!
//! # Theory of operation
//!
//! ```text
//!  look ──┐ (answers)                       ┌── state ──> draw ──> screen
//!  preview ┼──> one channel ──> this thread ┤
//!  act ───┘ (what verbs say)                └── keys ──> effects: attach, act, quit
//!  keys, signals ──────────────^
//! ```
//!
//! One thread draws and hears keys; it never looks, reads or acts itself. It sleeps
//! until a key, a signal or a word of another thread comes, and draws only then, so
//! that a screen on which nothing happens costs nothing. [`look`] gives the list that
//! `ls` gives, [`preview`] what `peek` and `logs` give; whatever acts is a verb of the
//! command line in a process of its own ([`act`]).

mod act;
mod draw;
mod filter;
mod form;
mod help;
mod input;
mod keys;
mod lines;
mod look;
mod preview;
mod screen;
mod state;

use std::io::{self, IsTerminal as _};
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use lariat_adapters::look::Places;
use lariat_core::Session;
use lariat_engine::list::Answer;
use lariat_sys::point::point;
use lariat_sys::process::Identity;
use lariat_sys::signals::{self, Caught};
use ratatui::Terminal;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::{Signal, kill_current_process_group};

use crate::Done;
use crate::args::Common;
use crate::output::{self, Failure};
use crate::tui::act::Ended;
use crate::tui::input::{Input, Key};
use crate::tui::keys::Effect;
use crate::tui::look::Looks;
use crate::tui::preview::{Preview, Shown, Wanted};
use crate::tui::screen::Drawing;
use crate::tui::state::{App, View};
use crate::verbs::attach;

/// What other threads tell.
pub enum Event {
    Looked(Arc<Answer>),
    Failed(String),
    Shown(Shown),
    /// A line of something under way.
    Said(u64, String),
    Ended(u64, Ended),
}

/// How they tell it.
#[derive(Clone)]
pub struct Teller {
    events: mpsc::Sender<Event>,
    wake: Arc<OwnedFd>,
}

impl Teller {
    fn tell(&self, event: Event) {
        let _ = self.events.send(event); // nobody listens once the screen is left
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes()); // full is woken already
    }
}

const SIGNALS: [Signal; 6] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::WINCH, Signal::TSTP, Signal::CONT];

/// Shows the screen until a person leaves it.
pub fn run(common: &Common) -> Done {
    let dumb = std::env::var_os("TERM").is_none_or(|t| t.is_empty() || t == "dumb");
    if dumb || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let why = "top needs a terminal that can be drawn on; `lariat ls` prints the list";
        return Err(Failure::Usage(why.into()));
    }
    // Before any other thread: they inherit it.
    let caught = Caught::watch(&SIGNALS)?;
    screen::give_back_on_panic();
    let (events, told) = mpsc::channel();
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
    let tell = Teller { events, wake: Arc::new(wake) };
    screen::enter()?;
    let done = Top::new(common, caught, tell, told).and_then(Top::stay);
    screen::leave();
    done.map_err(Failure::from)
}

/// The thread that draws and hears.
struct Top<'a> {
    common: &'a Common,
    caught: Caught,
    tell: Teller,
    told: mpsc::Receiver<Event>,
    looks: Looks,
    preview: Preview,
    wanted: Wanted,
    terminal: Terminal<Drawing>,
    input: Input,
    /// Somebody else had the terminal: what was typed meanwhile was not for us.
    away: bool,
    app: App,
}

/// Why a sleep was over.
struct Woken {
    keys: bool,
    signal: bool,
    /// Nothing came.
    time: bool,
}

impl<'a> Top<'a> {
    fn new(common: &'a Common, caught: Caught, tell: Teller, told: mpsc::Receiver<Event>) -> io::Result<Top<'a>> {
        let terminal = Terminal::new(Drawing::new(!output::is_colourless()))?;
        let size = terminal.size()?;
        Ok(Top {
            common,
            caught,
            looks: Looks::start(common, tell.clone())?,
            preview: Preview::start(Places::from_env(), tell.clone())?,
            wanted: Wanted::Nothing,
            terminal,
            input: Input::default(),
            away: false,
            app: App::new((size.width, size.height)),
            tell,
            told,
        })
    }

    /// Stays until it is left; the exit code.
    fn stay(mut self) -> io::Result<u8> {
        loop {
            self.show()?;
            let woken = self.sleep()?;
            while woken.signal
                && let Some(signal) = self.caught.next()
            {
                match signal {
                    Signal::WINCH => {}
                    Signal::TSTP => self.suspend()?,
                    Signal::CONT => self.repaint()?,
                    signal => return Ok(128 + u8::try_from(signal.as_raw()).unwrap_or(0)),
                }
            }
            let _ = rustix::io::read(&*self.tell.wake, &mut [0u8; 8]); // nobody called
            while let Ok(event) = self.told.try_recv() {
                self.hear(event);
            }
            let keys = match woken.keys {
                true => self.typed()?,
                false if woken.time => Some(self.input.give_up().into_iter().collect()),
                false => Some(Vec::new()),
            };
            let Some(keys) = keys else { return Ok(0) };
            for key in keys {
                if let Some(code) = self.press(&key)? {
                    return Ok(code);
                }
                // A question is seen before it is answered.
                if matches!(self.app.view, View::Confirm(_)) {
                    break;
                }
                if std::mem::take(&mut self.away) {
                    self.input = Input::default();
                    break;
                }
            }
            if self.app.stale.is_some_and(|at| at <= Instant::now()) {
                self.app.refresh();
            }
        }
    }

    /// Draws what has changed, and asks for what is to be shown.
    fn show(&mut self) -> io::Result<()> {
        let size = self.terminal.size()?;
        self.app.resized((size.width, size.height));
        self.looks.want_ended(self.app.all || self.app.filter.wants_ended());
        let wanted = self.app.wanted();
        if !wanted.is_same(&self.wanted) {
            self.wanted = wanted;
            self.preview.want(self.wanted.clone());
        }
        self.terminal.draw(|frame| draw::draw(frame, &mut self.app))?;
        // What was typed before this was drawn was not meant for it.
        self.app.moved &= is_typed()?;
        if !self.app.moved {
            point("top.settled");
        }
        Ok(())
    }

    fn sleep(&self) -> io::Result<Woken> {
        let stale = self.app.stale.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = [stale, self.input.patience()].into_iter().flatten().min();
        let timeout = timeout.map(|t| t + Duration::from_millis(1)).and_then(|t| Timespec::try_from(t).ok());
        let stdin = io::stdin();
        let mut fds = [
            PollFd::new(&stdin, PollFlags::IN),
            PollFd::new(&self.caught, PollFlags::IN),
            PollFd::new(&*self.tell.wake, PollFlags::IN),
        ];
        let count = match poll(&mut fds, timeout.as_ref()) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => 1,
            Err(e) => return Err(e.into()),
        };
        let ready = |at: usize| !fds[at].revents().is_empty();
        Ok(Woken { keys: ready(0), signal: ready(1), time: count == 0 })
    }

    /// The keys that were typed; `None` if nobody is there any more.
    fn typed(&mut self) -> io::Result<Option<Vec<Key>>> {
        let mut bytes = [0; 4096];
        match rustix::io::read(io::stdin(), &mut bytes) {
            Ok(0) | Err(rustix::io::Errno::IO) => return Ok(None),
            Ok(n) => self.input.take(&bytes[..n]),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(Some(std::iter::from_fn(|| self.input.next()).collect()))
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Looked(answer) => {
                let had_moved = self.app.moved;
                self.app.looked(answer);
                if self.app.moved && !had_moved {
                    point("top.moved");
                }
            }
            Event::Failed(why) => self.app.refuse(why),
            Event::Shown(shown) => self.app.preview = Some(shown),
            Event::Said(number, line) => self.app.said(number, &line),
            Event::Ended(number, ended) => {
                self.app.ended(number, &ended);
                self.looks.again();
            }
        }
    }

    /// Does what a key says; the exit code if that is to leave.
    fn press(&mut self, key: &Key) -> io::Result<Option<u8>> {
        match keys::press(&mut self.app, key) {
            Effect::Nothing => {}
            Effect::Quit => return Ok(Some(0)),
            Effect::Suspend => self.suspend()?,
            Effect::Repaint => self.repaint()?,
            Effect::Start(number, order) => act::start(number, order, self.app.size.0, self.tell.clone()),
            Effect::Copy(shown) => {
                screen::copy(&shown)?;
                keys::copied(&mut self.app, &shown);
            }
            Effect::Attach(session) => return self.attach(&session),
        }
        Ok(None)
    }

    /// Takes the terminal anew and draws all of it.
    fn repaint(&mut self) -> io::Result<()> {
        screen::enter()?;
        self.terminal = Terminal::new(Drawing::new(!output::is_colourless()))?;
        Ok(())
    }

    /// Stops as Ctrl-Z does, and goes on when told to. Where nobody could tell, it goes
    /// on at once: the kernel stops no group that has no shell.
    fn suspend(&mut self) -> io::Result<()> {
        screen::leave();
        signals::unblock()?;
        let stopped = kill_current_process_group(Signal::TSTP);
        self.caught = Caught::watch(&SIGNALS)?;
        stopped?;
        self.repaint()
    }

    /// Gives the terminal to `lariat attach` and takes it back; the exit code if we were
    /// told to end meanwhile.
    fn attach(&mut self, session: &Session) -> io::Result<Option<u8>> {
        if !session.elsewhere
            && let Err(refused) = attach::held(session, self.common)
        {
            self.app.refuse(refused.text());
            return Ok(None);
        }
        self.away = true;
        screen::lend()?;
        let mut command = act::program();
        let ended = command.args(keys::attach(session)).spawn().and_then(|child| self.until_left(child));
        self.repaint()?;
        match ended {
            Ok((_, Some(code))) => return Ok(Some(code)),
            Ok((Some(0), None)) => {}
            Ok((code, None)) => {
                let code = code.map_or_else(|| "a signal".into(), |c| format!("exit code {c}"));
                let again = act::line(&keys::attach(session));
                self.app.refuse(format!("attach ended with {code}; `{again}` shows why"));
            }
            Err(e) => self.app.refuse(format!("attach could not be started: {e}")),
        }
        self.looks.again();
        Ok(None)
    }

    /// Waits for a viewer; its exit code, and ours if we were told to end.
    fn until_left(&self, mut child: Child) -> io::Result<(Option<i32>, Option<u8>)> {
        let pidfd = Identity::of_child(child.id()).map(|(_, pidfd)| pidfd);
        while let Ok(pidfd) = &pidfd {
            let mut fds = [PollFd::new(pidfd, PollFlags::IN), PollFd::new(&self.caught, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            if !fds[0].revents().is_empty() {
                break;
            }
            while let Some(signal) = self.caught.next() {
                if matches!(signal, Signal::TERM | Signal::INT | Signal::HUP) {
                    // Only a viewer ends: the session goes on.
                    child.kill()?;
                    child.wait()?;
                    attach::reset();
                    return Ok((None, Some(128 + u8::try_from(signal.as_raw()).unwrap_or(0))));
                }
            }
        }
        Ok((child.wait()?.code(), None))
    }
}

/// Whether somebody has typed what was not read yet.
fn is_typed() -> io::Result<bool> {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}
