//! The one way to print.
//!
//! Text that agents chose arrives as [`Untrusted`] and leaves through its
//! escaping; JSON leaves through [`Safe`], which writes every character that
//! could act on a terminal as a JSON escape: the data stays what it was.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write};
use std::process::ExitCode;

use lariat_adapters::store::in_parallel;
use lariat_core::Listing;
use lariat_core::text::is_hidden;
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter};

/// Why a verb could not do it.
#[derive(Debug)]
pub enum Failure {
    /// The person asked for something that is not there or not one thing.
    Usage(String),
    /// Something failed.
    Error(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::Error(error.into())
    }
}

/// Tells of a failure and gives its exit code. A reader that went away is none.
pub fn fail(failure: &Failure) -> ExitCode {
    let (text, code) = match failure {
        Failure::Usage(text) => (text.clone(), 2),
        Failure::Error(error) => {
            let broken_pipe = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
            let pipe = error.chain().any(|e| {
                e.downcast_ref::<io::Error>().is_some_and(broken_pipe)
                    || e.downcast_ref::<serde_json::Error>()
                        .is_some_and(|e| e.io_error_kind() == Some(io::ErrorKind::BrokenPipe))
            });
            if pipe {
                return ExitCode::SUCCESS;
            }
            (format!("{error:#}"), 1)
        }
    };
    complain(format_args!("lariat: {text}"));
    ExitCode::from(code)
}

/// Prints a line to standard error.
pub fn complain(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// How strongly a text stands out.
#[derive(Clone, Copy, PartialEq, Eq)]
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

/// Standard output.
pub struct Out {
    to: BufWriter<Stdout>,
    /// Whether JSON was asked for.
    pub json: bool,
    colour: bool,
    terminal: bool,
}

impl Out {
    /// Looks at where output goes.
    pub fn new(json: bool) -> Out {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
            || std::env::var_os("TERM").is_some_and(|t| t == "dumb");
        Out { to: BufWriter::with_capacity(64 << 10, stdout), json, colour: terminal && !plain, terminal }
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

    /// Prints a line of text.
    pub fn line(&mut self, text: impl Display) -> io::Result<()> {
        writeln!(self.to, "{text}")
    }

    /// Prints text that is ours or already escaped, as it is.
    pub fn raw(&mut self, text: &str) -> io::Result<()> {
        self.to.write_all(text.as_bytes())
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

    /// Prints a value as one line of JSON.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        self.to.write_all(&safe(value)?)?;
        Ok(self.to.write_all(b"\n")?)
    }

    /// Prints a listing as one line of JSON, its sessions on all cores: there
    /// may be ten thousand.
    pub fn listing(&mut self, listing: &Listing) -> Result<(), Failure> {
        write!(self.to, "{{\"schema\":{},\"at\":", listing.schema)?;
        self.to.write_all(&safe(&listing.at)?)?;
        self.raw(",\"sessions\":[")?;
        let mut comma = "";
        for round in listing.sessions.chunks(1024) {
            let texts = in_parallel(round.chunks(256).collect(), |chunk| safe(&chunk));
            for text in texts {
                let text = text?;
                self.raw(comma)?;
                self.to.write_all(&text[1..text.len() - 1])?; // without its own brackets
                comma = ",";
            }
        }
        self.raw("],\"unbound\":")?;
        self.to.write_all(&safe(&listing.unbound)?)?;
        self.raw(",\"warnings\":")?;
        self.to.write_all(&safe(&listing.warnings)?)?;
        self.raw(",\"hidden\":")?;
        self.to.write_all(&safe(&listing.hidden)?)?;
        Ok(self.raw("}\n")?)
    }

    /// Lets everything out.
    pub fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.to.flush()?)
    }
}

fn safe(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut text = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, Safe))?;
    Ok(text)
}

/// JSON without a byte that could act on a terminal.
struct Safe;

impl Formatter for Safe {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, to: &mut W, fragment: &str) -> io::Result<()> {
        if fragment.bytes().all(|b| (0x20..0x7f).contains(&b)) {
            return to.write_all(fragment.as_bytes());
        }
        let mut plain = 0;
        for (at, c) in fragment.char_indices().filter(|(_, c)| is_hidden(*c)) {
            to.write_all(&fragment.as_bytes()[plain..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(to, "\\u{unit:04x}")?;
            }
            plain = at + c.len_utf8();
        }
        CompactFormatter.write_string_fragment(to, &fragment[plain..])
    }
}
