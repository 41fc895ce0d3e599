//! A program on a real terminal, with a person's keys and eyes.
//!
//! The test holds the master; the program in the world has the slave as its controlling terminal.
//! A thread reads whatever is shown onto a screen and answers what programs ask a terminal (where
//! the cursor is, what it can do, its colours), so that they start as they would for a person.
//! Waiting is for text on the screen. It never decides that a program is quiet by the clock.

use std::{
    cmp::Ordering,
    fs::File,
    io::{self, Read, Write},
    num::NonZeroU16,
    os::fd::OwnedFd,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use vt100::{Callbacks, Parser, Screen};

use crate::{Picture, Program, World, world::Running};

/// A key that is not a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Enter.
    Enter,
    /// Escape.
    Esc,
    /// Tab.
    Tab,
    /// Shift and Tab.
    BackTab,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Arrow left.
    Left,
    /// Backspace.
    Backspace,
    /// Control and this letter.
    Ctrl(char),
}

impl Key {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Enter => b"\r".to_vec(),
            Self::Esc => b"\x1b".to_vec(),
            Self::Tab => b"\t".to_vec(),
            Self::BackTab => b"\x1b[Z".to_vec(),
            Self::Up => b"\x1b[A".to_vec(),
            Self::Down => b"\x1b[B".to_vec(),
            Self::Left => b"\x1b[D".to_vec(),
            Self::Backspace => b"\x7f".to_vec(),
            Self::Ctrl(letter) => vec![letter.to_ascii_uppercase() as u8 & 0x1f],
        }
    }
}

/// Rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

impl Default for Size {
    /// Large enough that no agent folds what a test looks for.
    fn default() -> Self {
        Self { rows: 45, cols: 140 }
    }
}

impl Size {
    fn winsize(self) -> Winsize {
        Winsize { ws_row: self.rows, ws_col: self.cols, ws_xpixel: 0, ws_ypixel: 0 }
    }

    fn cells(self) -> (NonZeroU16, NonZeroU16) {
        let cells = |n| NonZeroU16::new(n).expect("a terminal has at least one row and column");
        (cells(self.rows), cells(self.cols))
    }
}

/// A program on a terminal. Dropping it hangs up, which the program sees as SIGHUP.
pub struct Terminal {
    running: Running,
    line: Line,
}

/// The test's end of the terminal.
struct Line {
    /// Taken only at the end.
    master: Option<File>,
    view: Arc<View>,
    /// Closed to end the reader.
    wake: Option<io::PipeWriter>,
    reader: Option<JoinHandle<()>>,
}

struct View {
    state: Mutex<Seen>,
    changed: Condvar,
}

struct Seen {
    parser: Parser<Answers>,
    raw: Vec<u8>,
    over: bool,
}

/// How long a key may take to show its effect before it counts as dropped.
const KEY_EFFECT: Duration = Duration::from_millis(300);

const POISON: &str = "no thread of a terminal panics while it holds the screen";

impl std::ops::Deref for Terminal {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}

impl Terminal {
    /// Starts a program on a new terminal.
    ///
    /// # Panics
    /// When the machine has no terminal to give.
    pub fn start(world: &World, program: &Program, size: Size) -> Self {
        let (master, slave) = open(size).expect("a pseudo-terminal");
        let running = world.spawn_on_terminal(program, &slave);
        drop(slave);
        let (rows, cols) = size.cells();
        let parser = Parser::new_with_callbacks(rows, cols, 0, Answers::default());
        let view = Arc::new(View {
            state: Mutex::new(Seen { parser, raw: Vec::new(), over: false }),
            changed: Condvar::new(),
        });
        let (woken, wake) = io::pipe().expect("a pipe");
        let reader = thread::spawn({
            let view = Arc::clone(&view);
            let master = master.try_clone().expect("a second hold on the terminal");
            move || view.read(master, &woken)
        });
        let line = Line { master: Some(master), view, wake: Some(wake), reader: Some(reader) };
        Self { running, line }
    }

    fn write(&self, bytes: &[u8]) {
        self.line.master().write_all(bytes).expect("a terminal takes input");
    }

    /// Types text, without Enter.
    pub fn type_text(&self, text: &str) {
        self.write(text.as_bytes());
    }

    /// Presses a key.
    pub fn press(&self, key: Key) {
        self.write(&key.bytes());
    }

    /// Gives a prompt: pastes the text where the program knows what pasting is, waits until it is
    /// shown, and presses Enter. (Typed fast, agents take the Enter for a part of a paste.)
    ///
    /// # Panics
    /// When the text is not shown within `deadline`.
    #[track_caller]
    pub fn submit(&self, text: &str, deadline: Duration) {
        let pastes = self.lock().parser.screen().bracketed_paste();
        if pastes {
            self.type_text(&format!("\x1b[200~{text}\x1b[201~"));
        } else {
            self.type_text(text);
        }
        let start: String = text.chars().take(40).collect();
        self.wait_for_text(start.trim_end(), deadline);
        self.press(Key::Enter);
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.line.view.state.lock().expect(POISON)
    }

    /// What is on the screen now, one line per row.
    pub fn text(&self) -> String {
        self.lock().parser.screen().contents()
    }

    /// How the screen looks now.
    pub fn picture(&self) -> Picture {
        Picture::of(self.lock().parser.screen())
    }

    /// Every byte that was shown, from the start.
    pub fn raw(&self) -> Vec<u8> {
        self.lock().raw.clone()
    }

    /// Blocks until this text is on the screen, and returns the whole screen.
    ///
    /// # Panics
    /// When `deadline` passes first, or the program closed the terminal; the message shows the
    /// screen.
    #[track_caller]
    pub fn wait_for_text(&self, text: &str, deadline: Duration) -> String {
        self.wait_for_screen(&format!("{text:?}"), deadline, |screen| screen.contains(text))
    }

    /// Blocks until this text is not on the screen any more, and returns the whole screen.
    ///
    /// # Panics
    /// As [`wait_for_text`](Self::wait_for_text).
    #[track_caller]
    pub fn wait_for_no_text(&self, text: &str, deadline: Duration) -> String {
        self.wait_for_screen(&format!("no {text:?}"), deadline, |screen| !screen.contains(text))
    }

    /// Blocks until the screen is as wanted, and returns it.
    ///
    /// # Panics
    /// As [`wait_for_text`](Self::wait_for_text).
    #[track_caller]
    pub fn wait_for_screen(&self, what: &str, deadline: Duration, wanted: impl Fn(&str) -> bool) -> String {
        self.watch(deadline, wanted).unwrap_or_else(|screen| {
            let why = if self.lock().over { "the terminal was closed" } else { "the deadline" };
            panic!("{what} was not shown before {why}; the screen:\n{screen}")
        })
    }

    /// The screen as wanted, or as it is when `deadline` has passed or the terminal was closed.
    fn watch(&self, deadline: Duration, wanted: impl Fn(&str) -> bool) -> Result<String, String> {
        let end = Instant::now() + deadline;
        let mut seen = self.lock();
        loop {
            let screen = seen.parser.screen().contents();
            if wanted(&screen) {
                return Ok(screen);
            }
            let left = end.saturating_duration_since(Instant::now());
            if seen.over || left.is_zero() {
                return Err(screen);
            }
            seen = self.line.view.changed.wait_timeout(seen, left).expect(POISON).0;
        }
    }

    /// Chooses an entry of a numbered list that is on the screen, by its number from 1: moves the
    /// `marker` that stands before the chosen one, presses Enter, and sees the list go.
    ///
    /// Agents' dialogs drop keys in their first moments, Enter longer than the arrows, so that
    /// nobody agrees by accident; nothing on the screen says when that is over. So each key's
    /// effect is looked for before the next one, and a key without effect is pressed again.
    ///
    /// # Panics
    /// When the list is still there after `deadline`.
    #[track_caller]
    pub fn choose(&self, marker: char, number: usize, deadline: Duration) {
        self.choose_while(marker, number, deadline, |_| true);
    }

    /// The same where another list may follow at once: one counts only while the screen is like this.
    ///
    /// # Panics
    /// When the list is still there after `deadline`.
    #[track_caller]
    pub fn choose_while(&self, marker: char, number: usize, deadline: Duration, is_it: impl Fn(&str) -> bool) {
        let shown = |screen: &str| (1..10).find(|n| screen.contains(&format!("{marker} {n}.")));
        let at = |screen: &str| shown(screen).filter(|_| is_it(screen));
        let end = Instant::now() + deadline;
        self.wait_for_screen("a numbered list", deadline, |screen| at(screen).is_some());
        while let Some(now) = at(&self.text()) {
            assert!(Instant::now() < end, "{number} was not chosen on\n{}", self.text());
            self.press(match now.cmp(&number) {
                Ordering::Less => Key::Down,
                Ordering::Equal => Key::Enter,
                Ordering::Greater => Key::Up,
            });
            // Without effect in this time it was dropped.
            drop(self.watch(KEY_EFFECT, |screen| at(screen) != Some(now)));
        }
    }

    /// Presses a key until this text is gone: again where it had no effect, as in [`choose`](Self::choose).
    ///
    /// # Panics
    /// When the text is still there after `deadline`.
    #[track_caller]
    pub fn press_away(&self, key: Key, text: &str, deadline: Duration) {
        let end = Instant::now() + deadline;
        while self.text().contains(text) {
            assert!(Instant::now() < end, "{text:?} stays on\n{}", self.text());
            self.press(key);
            drop(self.watch(KEY_EFFECT, |screen| !screen.contains(text)));
        }
    }

    /// Changes the size, as a person does by dragging a corner.
    pub fn resize(&self, size: Size) {
        let (rows, cols) = size.cells();
        self.lock().parser.set_size(rows, cols);
        tcsetwinsize(self.line.master(), size.winsize()).expect("a terminal can be resized");
    }

    /// Hangs up and gives what is left: the program, which has no terminal any more.
    pub fn hang_up(self) -> Running {
        drop(self.line);
        self.running
    }
}

impl Line {
    fn master(&self) -> &File {
        self.master.as_ref().expect("the master is held to the end")
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.wake.take();
        if let Some(reader) = self.reader.take() {
            drop(reader.join());
        }
        self.master.take();
    }
}

fn open(size: Size) -> io::Result<(File, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    tcsetwinsize(&master, size.winsize())?;
    Ok((File::from(master), slave))
}

impl View {
    fn read(&self, mut master: File, woken: &io::PipeReader) {
        let mut bytes = [0; 16 << 10];
        loop {
            let mut fds = [
                PollFd::new(&master, PollFlags::IN),
                PollFd::from_borrowed_fd(std::os::fd::AsFd::as_fd(woken), PollFlags::IN),
            ];
            if poll(&mut fds, None).is_err_and(|error| error != rustix::io::Errno::INTR) {
                break;
            }
            if !fds[1].revents().is_empty() {
                break;
            }
            if fds[0].revents().is_empty() {
                continue;
            }
            // An error here is how Linux says that the last holder of the slave is gone.
            let Ok(count @ 1..) = master.read(&mut bytes) else {
                break;
            };
            let answers = {
                let mut seen = self.state.lock().expect(POISON);
                seen.raw.extend(&bytes[..count]);
                seen.parser.process(&bytes[..count]);
                self.changed.notify_all();
                std::mem::take(&mut seen.parser.callbacks_mut().0)
            };
            // A program that asks and does not wait for the answer may be gone.
            drop(master.write_all(&answers));
        }
        self.state.lock().expect(POISON).over = true;
        self.changed.notify_all();
    }
}

/// What the terminal has to say to the program.
#[derive(Default)]
struct Answers(Vec<u8>);

impl Callbacks for Answers {
    fn unhandled_csi(&mut self, screen: &mut Screen, i1: Option<u8>, _: Option<u8>, params: &[&[u16]], c: char) {
        let first = params.first().and_then(|param| param.first()).copied().unwrap_or(0);
        match (i1, c, first) {
            (None, 'n', 5) => self.0.extend(b"\x1b[0n"),
            (None, 'n', 6) => {
                let (row, col) = screen.cursor_position();
                self.0.extend(format!("\x1b[{};{}R", row + 1, col + 1).bytes());
            }
            (None, 'c', 0) => self.0.extend(b"\x1b[?62;22c"),
            (Some(b'>'), 'c', 0) => self.0.extend(b"\x1b[>0;10;1c"),
            _ => {}
        }
    }

    fn unhandled_osc(&mut self, _: &mut Screen, params: &[&[u8]]) {
        let colour = match params {
            [b"10", b"?", ..] => "10;rgb:eeee/eeee/eeee",
            [b"11", b"?", ..] => "11;rgb:1111/1111/1111",
            _ => return,
        };
        self.0.extend(format!("\x1b]{colour}\x1b\\").bytes());
    }
}
