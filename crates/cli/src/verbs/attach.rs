//! `lariat attach`: the terminal of a launched session, raw, by choice.
//!
//! The one way by which an agent's bytes reach a terminal as they are, except
//! for what [`Guard`] keeps back. The session goes on when we leave, by
//! the key or by being killed.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use lariat_core::Session;
use lariat_core::terminal::Guard;
use lariat_engine::launched::{All, Launched};
use lariat_engine::send::connect;
use lariat_shim::client::{Client, Event};
use lariat_shim::wire::{Attach, Size};
use lariat_sys::signals::Caught;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::Done;
use crate::args::{self, Common, ControlKey};
use crate::output::{Failure, Out, complain};
use crate::verbs::{find, question};

/// What tells that our terminal has another size, and what else ends us: before that, the terminal is given back.
const SIGNALS: [Signal; 5] = [Signal::WINCH, Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
/// A key that is only echoed is answered so soon that whoever sleeps meanwhile is woken later than that.
const SOON: Duration = Duration::from_micros(250);
/// What a full-screen program may have switched on.
const RESET: &[u8] =
    b"\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[>4m\x1b[<u\x1b[0m\r\n";

/// How a view ended.
enum Left {
    /// By the person, or because the shim is gone.
    Here,
    /// The session has ended.
    Ended,
    /// We were told to end.
    Told(Signal),
}

pub fn run(args: &args::Attach, common: &Common, out: &mut Out) -> Done {
    let (answer, at) = find(&args.target, common)?;
    let session = &answer.listing.sessions[at];
    let launched = held(session, common)?;
    if args.to_where {
        drop(connect(&launched)?); // whoever goes there finds somebody
        let launch = &launched.record.launch;
        let socket = launch.socket.to_string_lossy();
        if out.json {
            out.json(&serde_json::json!({"schema": 1, "handle": launch.handle, "socket": socket}))?;
        } else {
            out.line(lariat_core::Untrusted::new(socket).row())?;
        }
        return Ok(0);
    }
    if out.json {
        let why = "attach shows a terminal as it is; `lariat logs --json` and `lariat peek --json` are for programs";
        return Err(Failure::Usage(why.into()));
    }
    if !args.watch && !io::stdin().is_terminal() {
        return Err(Failure::Usage("attach needs a terminal; --watch only looks".into()));
    }
    let client = connect(&launched)?;
    // Not before: whoever waits for the list can interrupt that.
    let caught = Caught::watch(&SIGNALS)?;
    let left = {
        // First raw, then the word: whoever types on reading it is heard.
        let _raw = Raw::enter(!args.watch)?;
        let name = &launched.record.launch.handle;
        complain(format_args!("attached to {name}; {} leaves, the session goes on", args.detach.shown()));
        view(client, &caught, args)?
    };
    complain(if matches!(left, Left::Ended) { "the session has ended" } else { "detached; the session goes on" });
    Ok(if let Left::Told(signal) = left { 128 + signal.as_raw() as u8 } else { 0 })
}

/// What lariat knows of a session that it launched and that takes prompts: with a terminal, or by the
/// owner of its connection.
pub fn reached(session: &Session, common: &Common) -> Result<Launched, Failure> {
    let owned = lariat_engine::acp::is_owned(session.agent) && session.live != Some(false);
    let places = question(common, lariat_adapters::look::Scope::Live).places;
    match All::read(&places).take(session).filter(|_| owned) {
        Some(launched) => Ok(launched),
        None => held(session, common),
    }
}

/// What lariat knows of a session that it launched with a terminal and that lives.
pub fn held(session: &Session, common: &Common) -> Result<Launched, Failure> {
    let places = question(common, lariat_adapters::look::Scope::Live).places;
    let refused = |why: &str| Failure::Refused(format!("{}: {why}", session.id.row()));
    let by_gateway = lariat_adapters::named(session.agent).is_some_and(|a| a.remote().is_some());
    if by_gateway {
        return Err(refused("a gateway runs it, so it has no terminal; `lariat peek` shows what it says"));
    }
    if session.live == Some(false) {
        return Err(refused("it has ended; `lariat peek` shows its last reply, `lariat resume` goes on with it"));
    }
    let launched = All::read(&places).take(session);
    let launched = launched.ok_or_else(|| refused("lariat did not launch it; it has a terminal of its own"))?;
    if launched.record.launch.headless {
        return Err(refused("it has no terminal; `lariat peek` shows what it says"));
    }
    Ok(launched)
}

/// Shows and types until we leave or it ends.
fn view(mut client: Client, caught: &Caught, args: &args::Attach) -> Result<Left, Failure> {
    let watch = args.watch;
    let mut size = size();
    client.attach(Attach { size, watch, tail: 64 << 10 })?;
    let mut out = Screen::default();
    let mut guard = (!args.allow_clipboard).then(Guard::default);
    let mut typed = [0; 4096];
    let mut typed_at: Option<Instant> = None;
    loop {
        loop {
            match client.ready()? {
                Some(Event::Output(bytes)) => match &mut guard {
                    Some(guard) => out.show(&guard.pass(bytes))?,
                    None => out.show(bytes)?,
                },
                Some(Event::Exited(_)) => return out.flush().map(|()| Left::Ended).map_err(Into::into),
                Some(Event::Dropped(why)) => {
                    out.flush()?;
                    return Err(anyhow::anyhow!("the shim let us go: {why}").into());
                }
                Some(Event::Closed) => return out.flush().map(|()| Left::Here).map_err(Into::into),
                Some(_) => {}
                None => break,
            }
        }
        out.flush()?;
        let stdin = io::stdin();
        let mut fds = [
            PollFd::new(&client, PollFlags::IN),
            PollFd::new(caught, PollFlags::IN),
            PollFd::new(&stdin, PollFlags::IN),
        ];
        let count = if watch { 2 } else { 3 };
        let soon = typed_at.is_some_and(|at| at.elapsed() < SOON).then(Timespec::default);
        match poll(&mut fds[..count], soon.as_ref()) {
            Ok(0) => {
                std::thread::yield_now();
                continue;
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(io::Error::from(e).into()),
        }
        let [spoke, told, keys] = fds.each_ref().map(|fd| !fd.revents().is_empty());
        if told {
            while let Some(signal) = caught.next() {
                if signal != Signal::WINCH {
                    let _ = client.detach(); // we are to end, whether it hears of it or not
                    return Ok(Left::Told(signal));
                }
            }
            let now = self::size();
            if now != size && !watch {
                size = now;
                client.resize(size)?;
            }
        }
        if spoke {
            typed_at = None;
            client.receive()?;
        }
        if keys {
            let n = rustix::io::read(io::stdin(), &mut typed).map_err(io::Error::from)?;
            let leave = leaves(&typed[..n], args.detach);
            client.input(&typed[..leave.unwrap_or(n)])?;
            typed_at = Some(Instant::now());
            if leave.is_some() || n == 0 {
                client.detach()?;
                return Ok(Left::Here);
            }
        }
    }
}

/// Where in what was typed the key stands that leaves: as the control character that it is, or as a terminal tells it whose
/// keys the session has asked to be told apart (kitty's keyboard protocol, xterm's `modifyOtherKeys`).
fn leaves(typed: &[u8], key: ControlKey) -> Option<usize> {
    let plain = typed.iter().position(|b| *b == key.0);
    let begins = |at: &usize| typed[*at..].starts_with(b"\x1b[");
    let told = (0..typed.len()).filter(begins).find(|at| is_told(&typed[at + 2..], key));
    plain.into_iter().chain(told).min()
}

/// Whether a sequence tells of this key, pressed with Control and with nothing else.
fn is_told(sequence: &[u8], key: ControlKey) -> bool {
    const CONTROL: u32 = 4;
    const LOCKS: u32 = 64 | 128; // of capitals, of numbers
    const RELEASED: u32 = 3;
    let Some(end) = sequence.iter().position(|b| (0x40..0x7f).contains(b)) else { return false };
    let Ok(text) = std::str::from_utf8(&sequence[..end]) else { return false };
    let fields: Vec<Vec<Option<u32>>> =
        text.split(';').map(|f| f.split(':').map(|n| n.parse().ok()).collect()).collect();
    let field = |at: usize| fields.get(at).map_or(&[][..], Vec::as_slice);
    let (keys, how) = match (sequence[end], field(0)) {
        (b'u', keys) => (keys, field(1)),
        (b'~', [Some(27)]) => (field(2), field(1)),
        _ => return false,
    };
    let number = |of: &[Option<u32>], at: usize| of.get(at).copied().flatten();
    let held = number(how, 0).is_some_and(|n| n.wrapping_sub(1) & !LOCKS == CONTROL);
    // What the key means, and where on the keyboard it is.
    let is_it = [0, 2].into_iter().any(|at| number(keys, at) == Some(key.unmodified().into()));
    is_it && held && number(how, 1) != Some(RELEASED)
}

/// Our terminal, which gets what has come at once: standard output as it is would be
/// written line by line, and what the last line begins with by itself.
#[derive(Default)]
struct Screen(Vec<u8>);

impl Screen {
    /// How much is held back until it is time to flush.
    const MOST: usize = 64 << 10;

    fn show(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.extend_from_slice(bytes);
        if self.0.len() >= Self::MOST { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut rest = self.0.as_slice();
        while !rest.is_empty() {
            match rustix::io::write(rustix::stdio::stdout(), rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => rest = &rest[n..],
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.0.clear();
        Ok(())
    }
}

fn size() -> Size {
    let seen = rustix::termios::tcgetwinsize(io::stdout()).ok().filter(|w| w.ws_row > 0 && w.ws_col > 0);
    seen.map_or(Size { rows: 24, cols: 80 }, |w| Size { rows: w.ws_row, cols: w.ws_col })
}

/// Our terminal in raw mode, until this is dropped.
struct Raw(Option<Termios>);

impl Raw {
    fn enter(typing: bool) -> io::Result<Raw> {
        if !typing {
            return Ok(Raw(None));
        }
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Raw(Some(before)))
    }
}

/// Switches off what a full-screen program may have left on.
pub fn reset() {
    if io::stdout().is_terminal() {
        let mut out = io::stdout().lock();
        let _ = out.write_all(RESET).and_then(|()| out.flush());
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        reset();
        if let Some(before) = &self.0 {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_that_leaves_is_known_however_the_terminal_tells_it() {
        let q = ControlKey(b'q' & 0x1f);
        let told: [&[u8]; 8] = [
            b"\x11",
            b"\x1b[113;5u",
            b"\x1b[113;5:1u",
            b"\x1b[113;133u",
            b"\x1b[113:81;5u",
            b"\x1b[1081::113;5u",
            b"\x1b[113;5;113u",
            b"\x1b[27;5;113~",
        ];
        for typed in told {
            assert_eq!(leaves(typed, q), Some(0), "{typed:?}");
            assert_eq!(leaves(&[b"ab\x1b[A", typed, b"c"].concat(), q), Some(5), "{typed:?}");
        }
        let others: [&[u8]; 10] = [
            b"q",
            b"\x1b[113u",
            b"\x1b[113;1u",
            b"\x1b[113;6u",
            b"\x1b[113;5:3u",
            b"\x1b[114;5u",
            b"\x1b[113;5~",
            b"\x1b[113;5",
            b"\x1b[27;5;114~",
            b"\x1b[;u",
        ];
        for typed in others {
            assert_eq!(leaves(typed, q), None, "{typed:?}");
        }
        assert_eq!(leaves(b"\x1b[93;5u", ControlKey(b']' & 0x1f)), Some(0));
    }
}
