//! The one way to print.
//!
//! Text that agents chose arrives as [`Untrusted`] and leaves through its
//! escaping; JSON leaves through [`crate::json`], which does the same for data.

use std::cmp::Reverse;
use std::fmt::Display;
use std::io::{self, BufWriter, IoSlice, IsTerminal as _, Stdout, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use lariat_core::{Line, Listing, Session, Untrusted};
use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;

use crate::json;

/// Why a verb could not do it.
#[derive(Debug)]
pub enum Failure {
    /// The person asked for something that is not there or not one thing.
    Usage(String),
    /// It is there and may not be done.
    Refused(String),
    /// It may be there, but not everything could be read.
    Unread(String),
    /// Something failed.
    Error(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::Error(error.into())
    }
}

impl Failure {
    /// What is told of it.
    pub fn text(&self) -> String {
        match self {
            Failure::Usage(text) | Failure::Refused(text) | Failure::Unread(text) => text.clone(),
            Failure::Error(error) => format!("{error:#}"),
        }
    }
}

/// A failure, as `--json` and HTTP tell it.
#[derive(Serialize)]
pub struct Told {
    // First: by that the daemon and the page tell it from an answer.
    error: Wrong,
    schema: u32,
}

/// Why something was not done.
#[derive(Serialize)]
pub struct Wrong {
    code: u8,
    text: Untrusted,
}

impl Wrong {
    /// For an answer that has more to tell, if its exit code says that it failed. It comes last there: an answer that
    /// begins with it has nothing else.
    pub fn by(code: u8, text: impl Into<Untrusted>) -> Option<Wrong> {
        (!matches!(code, 0 | 5)).then(|| Wrong { code, text: text.into() })
    }
}

impl Told {
    /// What failed, with the exit code.
    pub fn new(code: u8, text: &str) -> Told {
        Told { error: Wrong { code, text: Untrusted::new(text) }, schema: 1 }
    }
}

/// Prints to standard error. Whatever an error quotes, nothing in it acts.
pub fn complain(text: impl Display) {
    let text = Untrusted::new(text.to_string()).block();
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// For one who stays: ends as soon as nobody reads any more, and not only at the next word.
pub fn leave_with_the_reader() {
    let wait = || {
        let stdout = io::stdout();
        loop {
            // Nothing is asked for: what is told all the same is that the other end is gone.
            let mut reader = [PollFd::new(&stdout, PollFlags::empty())];
            match poll(&mut reader, None) {
                Ok(_) if reader[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) => std::process::exit(0),
                Err(rustix::io::Errno::INTR) => {}
                _ => return, // the next word tells
            }
        }
    };
    drop(std::thread::Builder::new().name("reader".into()).spawn(wait));
}

/// How strongly a text stands out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ink {
    /// As it is.
    Plain,
    /// Less.
    Dim,
    /// More.
    Bold,
    /// Needs a person.
    Urgent,
    /// At work.
    Active,
    /// Something is off.
    Odd,
}

/// A line, part by part. Each part is ours or already escaped.
pub type Spans = Vec<(Ink, String)>;

/// Whether nobody wants colours.
pub fn is_colourless() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty()) || std::env::var_os("TERM").is_some_and(|t| t == "dumb")
}

/// Standard output.
pub struct Out {
    to: BufWriter<Stdout>,
    /// Whether JSON was asked for.
    pub json: bool,
    /// Whether anything was printed.
    said: bool,
    colour: bool,
    terminal: bool,
}

impl Out {
    /// Looks at where output goes.
    pub fn new(json: bool) -> Out {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let colour = terminal && !is_colourless();
        Out { to: BufWriter::with_capacity(64 << 10, stdout), json, said: false, colour, terminal }
    }

    /// How many columns there are; a pipe has many.
    pub fn columns(&self) -> usize {
        let set = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok()).filter(|c| *c > 0);
        let seen =
            || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|w| usize::from(w.ws_col)).filter(|c| *c > 0);
        let columns = if self.terminal { seen().or(set) } else { set };
        columns.unwrap_or(120)
    }

    /// Whether a person looks at it.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Tells of a failure and gives its exit code. A reader that went away is none. Where JSON was asked for, an
    /// object says it in place of the answer.
    pub fn fail(&mut self, failure: &Failure) -> ExitCode {
        let code = match failure {
            Failure::Usage(_) => 2,
            Failure::Refused(_) => 3,
            Failure::Unread(_) => 5,
            Failure::Error(error) => {
                let pipe = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
                let pipe = error.chain().any(|e| e.downcast_ref::<io::Error>().is_some_and(pipe));
                if pipe {
                    return ExitCode::SUCCESS;
                }
                1
            }
        };
        let text = failure.text();
        complain(format_args!("lariat: {text}"));
        self.failed(code, &text);
        ExitCode::from(code)
    }

    /// Says in JSON, if that was asked for and nothing was printed yet, what was complained of.
    pub fn failed(&mut self, code: u8, text: &str) {
        if self.json && !self.said {
            // Who cannot be told has the exit code.
            let _ = self.json(&Told::new(code, text));
            let _ = self.to.flush();
        }
    }

    /// Where everything goes that is printed.
    fn to(&mut self) -> &mut BufWriter<Stdout> {
        self.said = true;
        &mut self.to
    }

    /// Prints a line of text.
    pub fn line(&mut self, text: impl Display) -> io::Result<()> {
        writeln!(self.to(), "{text}")
    }

    /// Prints text that is ours or already escaped, as it is.
    pub fn raw(&mut self, text: &str) -> io::Result<()> {
        self.to().write_all(text.as_bytes())
    }

    /// Lets out bytes that were printed by lariat already.
    pub fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to().write_all(bytes)
    }

    /// Lets everything out, for one who goes on.
    pub fn flush_now(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// Text in a colour, where there are colours.
    pub fn ink(&self, ink: Ink, text: impl Display) -> String {
        let code = match ink {
            Ink::Plain => return text.to_string(),
            Ink::Dim => "2",
            Ink::Bold => "1",
            Ink::Urgent => "1;33",
            Ink::Active => "36",
            Ink::Odd => "35",
        };
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    /// A line in its colours.
    pub fn spans(&self, spans: &[(Ink, String)]) -> String {
        spans.iter().map(|(ink, text)| self.ink(*ink, text)).collect()
    }

    /// Prints a value as one line of JSON.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let mut text = Vec::new();
        json::write(&mut text, value)?;
        text.push(b'\n');
        Ok(self.to().write_all(&text)?)
    }

    /// Prints what one verb has to tell as one line of JSON, with the version of its shape.
    pub fn told(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct Versioned<'a, T> {
            #[serde(flatten)]
            value: &'a T,
            schema: u32,
        }
        self.json(&Versioned { value, schema: 1 })
    }

    /// Prints a listing as one line of JSON.
    pub fn listing(&mut self, listing: &Listing, lines: &[Line]) -> Result<(), Failure> {
        self.listing_before(listing, lines, b"}\n")
    }

    /// Prints one page of a listing, with the id after which the next begins.
    pub fn listing_page(&mut self, listing: &Listing, next: Option<&Untrusted>) -> Result<(), Failure> {
        let mut end = b",\"next\":".to_vec();
        json::write(&mut end, &next)?;
        end.extend_from_slice(b"}\n");
        self.listing_before(listing, &[], &end)
    }

    fn listing_before(&mut self, listing: &Listing, lines: &[Line], end: &[u8]) -> Result<(), Failure> {
        write!(self.to(), "{{\"schema\":{},\"at\":\"{}\",\"sessions\":[", listing.schema, listing.at)?;
        self.sessions(&listing.sessions, lines)?;
        let mut rest = b"],\"unbound\":".to_vec();
        json::write(&mut rest, &listing.unbound)?;
        rest.extend_from_slice(b",\"warnings\":");
        json::write(&mut rest, &listing.warnings)?;
        rest.extend_from_slice(b",\"hidden\":");
        json::write(&mut rest, &listing.hidden)?;
        rest.extend_from_slice(end);
        Ok(self.to().write_all(&rest)?)
    }

    /// Ten thousand sessions are ten megabytes of text: most was made by the threads
    /// that looked, and leaves from where it lies.
    fn sessions(&mut self, sessions: &[Box<Session>], lines: &[Line]) -> Result<(), Failure> {
        /// How many pieces the kernel takes at once.
        const AT_ONCE: usize = 1024;
        let text = |s: &Session| json::session(s).context("a session cannot be printed");
        let texts: Vec<_> = sessions.iter().map(|s| text(s)).collect::<anyhow::Result<_>>()?;
        let mut pieces: Vec<IoSlice<'_>> = Vec::with_capacity(sessions.len() + lines.len());
        let mut next = |text| pieces.push(IoSlice::new(text));
        // Both are in the order of the listing.
        let mut lines = lines.iter().peekable();
        for (session, text) in sessions.iter().zip(&texts) {
            let place = (session.status, Reverse(session.updated_at));
            while let Some(line) = lines.next_if(|l| (l.status, Reverse(l.updated_at)) < place) {
                next(line.text());
            }
            next(text);
        }
        lines.for_each(|line| next(line.text()));
        let mut left = pieces.as_mut_slice();
        if !left.is_empty() {
            IoSlice::advance_slices(&mut left, 1); // no comma before the first
        }
        self.to.flush()?;
        while !left.is_empty() {
            match rustix::io::writev(io::stdout(), &left[..left.len().min(AT_ONCE)]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(n) => IoSlice::advance_slices(&mut left, n),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(io::Error::from(e).into()),
            }
        }
        Ok(())
    }

    /// Lets everything out.
    pub fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.to.flush().context("standard output")?)
    }
}
