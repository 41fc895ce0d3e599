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

/// One thing said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// Who.
    pub who: Speaker,
    /// When.
    pub at: Option<Time>,
    /// What.
    pub text: Untrusted,
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
        Said { who, at, text: Untrusted::new(text), key: None, again: false, chunk: false }
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
        let size = size.map_or(key.size, |s| s.min(key.size));
        let document = is_document(path);
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
    let mut doc = Doc::new(language.keep(), LONGEST);
    let mut all: Vec<Said> = Vec::new();
    let mut offset = source.position();
    while source.position() < until {
        if source.fill_buf()?.starts_with(b"\n") {
            source.consume(1);
            continue;
        }
        match doc.read(source) {
            Ok(()) => {
                for said in language.said(doc.root()) {
                    push(&mut all, said);
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

/// Adds what was said; parts of one message become one.
pub fn push(all: &mut Vec<Said>, said: Said) {
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
        earlier.text = said.text;
        return;
    }
    if said.key.is_some()
        && let Some(earlier) = all.iter_mut().rev().take(8).find(|s| s.key == said.key && s.who == said.who)
    {
        earlier.text = Untrusted::new(format!("{}\n\n{}", earlier.text.raw(), said.text.raw()));
        earlier.at = said.at.or(earlier.at);
        return;
    }
    all.push(said);
}
