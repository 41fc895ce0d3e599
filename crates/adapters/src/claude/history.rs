//! Who left with `/exit`, or with a word that means the same; and who went on to another session.
//!
//! Hardly ever is the leaving of Claude Code written into the transcript. A turn that
//! looks open at its end may have been left on purpose: then `history.jsonl`
//! has an `/exit` for the session that is younger than all that the turn was at. With a `/clear` or the like the process goes on
//! to another session, and its sub-agents with it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use lariat_core::{Time, Warning};
use lariat_sys::file;
use memchr::memchr_iter;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::registry;
use crate::json::Value;
use crate::look::Look;
use crate::reader::Fold;
use crate::store::{Found, read_all};

/// What leaves when it is typed alone.
const WORDS: [&str; 8] = ["/exit", "/quit", "exit", "quit", ":q", ":q!", ":wq", ":wq!"];

/// The longest of them, with room for blanks and a quotation mark.
const SHORT: usize = 12;

/// What goes on to another session, with or without more words.
const MOVES: [&str; 6] = ["/clear", "/reset", "/new", "/resume", "/continue", "/branch"];

/// Of these, what goes on to one that was there before.
const BACK: [&str; 2] = ["/resume", "/continue"];

/// How much is looked through at once; after a line that counts, what followed it is looked at again.
const WINDOW: usize = 8 << 10;

/// When a session was last left, by hash of its id; and when for another one, and whether that was a new one.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
struct Exits(BTreeMap<u64, i64>, BTreeMap<u64, (i64, bool)>);

impl Fold for Exits {
    fn keeps(_: &[u8], key: &[u8]) -> bool {
        matches!(key, b"display" | b"sessionId" | b"timestamp")
    }
    const PASS: Option<fn(&[u8]) -> usize> = Some(pass);

    fn line(&mut self, line: Value<'_>) {
        let typed = line.get("display").str().unwrap_or("").trim();
        let Some(session) = line.get("sessionId").str() else { return };
        let at = line.get("timestamp").u64().unwrap_or(0) as i64;
        if WORDS.contains(&typed) {
            self.0.insert(xxh3_64(session.as_bytes()), at);
        }
        if let Some(word) = typed.split_whitespace().next().filter(|word| MOVES.contains(word)) {
            self.1.insert(xxh3_64(session.as_bytes()), (at, !BACK.contains(&word)));
        }
    }

    fn gap(&mut self) {}

    fn knows_head(&self) -> bool {
        true
    }

    fn knows_tail(&self) -> bool {
        true
    }
}

/// Years of prompts are many lines, of which hardly any counts: they are passed up to the first one that
/// is one of the words, or is no text, or does not begin like a record.
fn pass(buffer: &[u8]) -> usize {
    let window = &buffer[..buffer.len().min(WINDOW)];
    let is_text = std::str::from_utf8(window).map_or_else(|e| e.valid_up_to(), str::len);
    let mut from = 0;
    for newline in memchr_iter(b'\n', &window[..is_text]) {
        if counts(&window[from..newline]) {
            break;
        }
        from = newline + 1;
    }
    from
}

fn counts(line: &[u8]) -> bool {
    let Some(typed) = line.strip_prefix(b"{\"display\":\"") else { return true };
    let end = typed.iter().take(SHORT).position(|b| *b == b'"');
    end.is_some_and(|end| WORDS.iter().any(|word| word.as_bytes() == typed[..end].trim_ascii()))
        || MOVES.iter().any(|word| typed.trim_ascii_start().starts_with(word.as_bytes()))
}

/// Tells whether a session was left with `/exit`; reads history on the first
/// question, if there is one.
pub struct History<'a> {
    look: &'a Look<'a>,
    path: PathBuf,
    read: OnceLock<(Exits, Option<String>)>,
}

impl<'a> History<'a> {
    /// Nothing is read yet.
    pub fn new(look: &'a Look<'a>) -> Self {
        History { look, path: look.places.claude.join("history.jsonl"), read: OnceLock::new() }
    }

    /// Reads it now, for those who will ask.
    pub fn read_ahead(&self) {
        self.read.get_or_init(|| self.read());
    }

    /// Whether `/exit` was typed in a session, and not before that.
    pub fn left_by_exit(&self, session: &str, since: Option<i64>) -> bool {
        let (exits, _) = self.read.get_or_init(|| self.read());
        exits.0.get(&xxh3_64(session.as_bytes())).is_some_and(|at| since.is_none_or(|since| *at >= since))
    }

    /// When its process was told to go on to another session, if that was after its last record.
    pub fn went_on(&self, session: &str, last_record: Option<i64>) -> Option<Time> {
        let (exits, _) = self.read.get_or_init(|| self.read());
        let (at, _) = exits.1.get(&xxh3_64(session.as_bytes()))?;
        last_record.is_none_or(|last| *at >= last).then_some(Time(*at))
    }

    /// Whether a process that started then with a session was told to go on to another one: since when that one was
    /// written to, if anything was said in it at all.
    pub fn moved_on(&self, session: &str, started: Time) -> Option<Time> {
        let (exits, _) = self.read.get_or_init(|| self.read());
        let (at, new) = exits.1.get(&xxh3_64(session.as_bytes())).filter(|(at, _)| *at >= started.0)?;
        Some(Time(if *new { *at } else { 0 }))
    }

    /// What could not be read of it, if it was asked at all.
    pub fn warning(&self) -> Option<Warning> {
        let error = self.read.get()?.1.clone()?;
        Some(registry::warning(self.look, &self.path, error))
    }

    fn read(&self) -> (Exits, Option<String>) {
        let key = match file::open(&self.path) {
            Ok((_, key)) => key,
            Err(e) if file::is_absent(&self.path, &e) => return Default::default(),
            Err(e) => return (Exits::default(), Some(e.to_string())),
        };
        let files = [Found { path: self.path.clone(), key, whole: true }];
        match read_all::<Exits>(self.look, "claude-history", &files).pop() {
            Some(Ok(reading)) => (reading.fold.clone(), reading.complaint()),
            Some(Err(e)) => (Exits::default(), Some(e.to_string())),
            None => Default::default(),
        }
    }
}
