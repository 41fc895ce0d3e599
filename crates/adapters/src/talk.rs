//! A conversation, read from a transcript: for `peek`.
//!
//! Unlike a listing, a person who peeks wants whole replies. The last part of
//! the file is read, as much as holds the messages asked for, and messages are
//! told as they were written: who, when, what. It works for any session,
//! live or ended, without its terminal.

use std::io::{self, BufRead as _};
use std::path::{Path, PathBuf};

use lariat_core::{Time, Untrusted};
use lariat_sys::file;

use crate::json::{Bad, Doc, Keep, Value, skip_line};
use crate::reader::{Source, is_document};

/// How much of one message is kept.
const LONGEST: usize = 1 << 20;
/// How far back a conversation is read.
const FARTHEST: u64 = 256 << 20;
const FIRST: u64 = 64 << 10;

/// Who said something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speaker {
    /// The person.
    Person,
    /// The agent.
    Agent,
    /// A tool that the agent called.
    Tool,
}

/// A tool that was called, in full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tool {
    /// Its name.
    pub name: Untrusted,
    /// What it was given: a text, or an object as JSON.
    pub input: Untrusted,
    /// What it gave, if it has.
    pub output: Option<Untrusted>,
    /// Whether it failed, if that is told.
    pub failed: Option<bool>,
}

/// One thing said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// Who.
    pub who: Speaker,
    /// When.
    pub at: Option<Time>,
    /// What.
    pub text: Untrusted,
    /// The tool, if one was called.
    pub tool: Option<Box<Tool>>,
    /// Where it stands: what was said later stands farther on, and it stays there.
    pub place: u64,
    /// The agent's id of the call.
    call: Option<String>,
    /// It is what the call of that id gave, and nothing by itself.
    result: bool,
    /// Lines with the same key are parts of one message.
    key: Option<String>,
    /// It says again, in full, what an earlier line of that key said.
    again: bool,
    /// It goes on where the last one stopped, in the middle of a word maybe.
    chunk: bool,
}

impl Said {
    /// Something said, as one message.
    pub fn new(who: Speaker, at: Option<Time>, text: impl Into<String>) -> Said {
        Said {
            who,
            at,
            text: Untrusted::new(text),
            tool: None,
            place: 0,
            call: None,
            result: false,
            key: None,
            again: false,
            chunk: false,
        }
    }

    /// It is a call of a tool.
    pub fn calling(mut self, id: Option<&str>, name: &str, input: Value<'_>) -> Said {
        self.call = id.map(str::to_owned);
        let input = input.str().map_or_else(|| plain(input).to_string(), str::to_owned);
        let (name, input) = (Untrusted::new(name), Untrusted::new(input));
        self.tool = Some(Box::new(Tool { name, input, output: None, failed: None }));
        self
    }

    /// What the called tool gave.
    pub fn giving(mut self, output: Option<String>, failed: Option<bool>) -> Said {
        if let Some(tool) = &mut self.tool {
            tool.output = output.map(Untrusted::new).or(tool.output.take());
            tool.failed = failed.or(tool.failed);
        }
        self
    }

    /// What the call of this id gave.
    pub fn result(id: &str, output: Option<String>, failed: Option<bool>) -> Said {
        let (name, input, output) = (Untrusted::new(""), Untrusted::new(""), output.map(Untrusted::new));
        let tool = Some(Box::new(Tool { name, input, output, failed }));
        Said { result: true, call: Some(id.to_owned()), tool, ..Said::new(Speaker::Tool, None, "") }
    }

    /// It stands there.
    pub fn at_place(self, place: u64) -> Said {
        Said { place, ..self }
    }

    /// Part of the message with this key.
    pub fn part_of(mut self, key: Option<&str>) -> Said {
        self.key = key.map(str::to_owned);
        self
    }

    /// A piece of a message that is told piece by piece; those with another key, if they have one,
    /// are another message.
    pub fn chunk_of(mut self, key: Option<&str>) -> Said {
        self.key = key.map(str::to_owned);
        self.chunk = true;
        self
    }

    /// The newest form of the message with this key.
    pub fn instead_of(mut self, key: &str) -> Said {
        self.key = Some(key.to_owned());
        self.again = true;
        self
    }
}

/// How an agent's transcript lines are read.
pub trait Language: Sync {
    /// The keys needed.
    fn keep(&self) -> Keep;
    /// What a line says, if it says anything.
    fn said(&self, line: Value<'_>) -> Vec<Said>;
}

/// Conversations that are kept otherwise than as lines of a file. A transcript's
/// path stands for one of them.
pub trait Archive: Sync {
    /// The last part, until `enough` says so or its start is reached.
    fn last(&self, transcript: &Path, enough: &dyn Fn(&[Said]) -> bool) -> io::Result<Talk>;
    /// What was said since `offset`.
    fn since(&self, transcript: &Path, offset: u64) -> io::Result<Talk>;
    /// Where the next thing said will stand.
    fn end(&self, transcript: &Path) -> io::Result<u64>;
    /// What changes on disk when something is said.
    fn stirs(&self, transcript: &Path) -> PathBuf;
}

/// The lines of an agent that writes none: its conversations are in an archive.
pub struct NoLines;

impl Language for NoLines {
    fn keep(&self) -> Keep {
        |_, _| false
    }

    fn said(&self, _line: Value<'_>) -> Vec<Said> {
        Vec::new()
    }
}

/// The last messages of a transcript, and where reading stopped.
pub struct Talk {
    /// The messages, oldest first.
    pub said: Vec<Said>,
    /// Where the next line will start.
    pub offset: u64,
    /// Whether the transcript has more before these.
    pub more: bool,
}

/// Reads the last part of a transcript, until `enough` says so or its start is
/// reached. Only the first `size` bytes count, if given.
pub fn last(
    path: &Path,
    language: &dyn Language,
    size: Option<u64>,
    enough: impl Fn(&[Said]) -> bool,
) -> io::Result<Talk> {
    let mut back = FIRST;
    loop {
        let (opened, key) = file::open(path)?;
        let document = is_document(path);
        let size = size.filter(|_| !document).map_or(key.size, |s| s.min(key.size));
        let from = if document { 0 } else { size.saturating_sub(back) };
        let mut source = Source::default();
        if document {
            source.open_document(opened)
        } else {
            source.open(opened)
        }
        source.seek(from.saturating_sub(1), 64 << 10);
        if from > 0 {
            skip_line(&mut source)?;
        }
        let (said, offset) = read(&mut source, language, size)?;
        if from == 0 || back >= FARTHEST || enough(&said) {
            return Ok(Talk { said, offset, more: from > 0 });
        }
        back *= 4;
    }
}

/// Reads what was appended since `offset`.
pub fn since(path: &Path, language: &dyn Language, offset: u64) -> io::Result<Talk> {
    let (opened, key) = file::open(path)?;
    let mut source = Source::default();
    source.open(opened);
    source.seek(offset.min(key.size), 64 << 10);
    let (said, offset) = read(&mut source, language, key.size)?;
    Ok(Talk { said, offset, more: false })
}

fn read(source: &mut Source, language: &dyn Language, until: u64) -> io::Result<(Vec<Said>, u64)> {
    let mut doc = Doc::new(LONGEST);
    let mut all: Vec<Said> = Vec::new();
    let mut offset = source.position();
    while source.position() < until {
        let line = source.position();
        if source.fill_buf()?.starts_with(b"\n") {
            source.consume(1);
            continue;
        }
        match doc.read(source, language.keep()) {
            Ok(()) => {
                for (i, said) in (0..).zip(language.said(doc.root())) {
                    push(&mut all, Said { place: place(line, i), ..said });
                }
            }
            Err(Bad::Unfinished) => break,
            Err(Bad::Io(e)) => return Err(e),
            Err(Bad::Broken) => {}
        }
        skip_line(source)?;
        offset = source.position();
    }
    Ok((all, offset))
}

/// How many things may be said at one place.
const WITHIN: u64 = 64;

/// The place of the n-th thing said in a line, or a row, that stands there.
pub fn place(line: u64, n: u64) -> u64 {
    line * WITHIN + n.min(WITHIN - 1)
}

/// The line, or the row, of a place.
pub fn line_of(place: u64) -> u64 {
    place / WITHIN
}

/// A value as it was, but for what is not kept of it.
fn plain(value: Value<'_>) -> serde_json::Value {
    if value.is_object() {
        return value.entries().map(|(key, v)| (key.to_owned(), plain(v))).collect();
    }
    if value.is_array() {
        return value.items().map(plain).collect();
    }
    let number = || value.u64().map(Into::into).or_else(|| value.f64().map(Into::into));
    value.str().map(Into::into).or_else(|| value.bool().map(Into::into)).or_else(number).unwrap_or_default()
}

/// Adds what was said; parts of one message become one, and a result goes to its call.
pub fn push(all: &mut Vec<Said>, said: Said) {
    if said.result {
        // One whose call stands before what was read is nobody's.
        if let Some(Tool { output, failed, .. }) = said.tool.as_deref()
            && let Some(tool) = all.iter_mut().rev().find(|s| s.call == said.call).and_then(|s| s.tool.as_deref_mut())
        {
            (tool.output, tool.failed) = (output.clone().or(tool.output.take()), failed.or(tool.failed));
        }
        return;
    }
    if said.chunk {
        match all.last_mut().filter(|last| last.chunk && last.who == said.who && last.key == said.key) {
            Some(last) => last.text = Untrusted::new([last.text.raw(), said.text.raw()].concat()),
            None => all.push(said),
        }
        return;
    }
    if said.again
        && let Some(earlier) = all.iter_mut().rev().take(256).find(|s| s.key == said.key && s.who == said.who)
    {
        (earlier.text, earlier.tool) = (said.text, said.tool);
        return;
    }
    if said.key.is_some()
        && said.tool.is_none()
        && let Some(earlier) = all.iter_mut().rev().take(8).find(|s| s.key == said.key && s.who == said.who)
    {
        earlier.text = Untrusted::new(format!("{}\n\n{}", earlier.text.raw(), said.text.raw()));
        earlier.at = said.at.or(earlier.at);
        return;
    }
    all.push(said);
}
