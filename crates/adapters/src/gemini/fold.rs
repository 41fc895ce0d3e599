//! What the lines of a Gemini conversation add up to.
//!
//! Written for 0.61. The file is a log of changes to one record: a line with an `id` adds a message or
//! replaces the one of that id, `$set` changes members, `$set.messages` replaces all messages, and
//! `$rewindTo` takes back a message and all after it. How the last turn stands is told by the messages
//! that are left, from the end:
//!
//! ```text
//!  user ───────────────────────────> Open        (the model is asked, or it was cut off)
//!  gemini without text ────────────> Open        (its tools are not recorded until they ran)
//!  gemini with tools that ran ─────> Open        (the model is asked again)
//!  gemini with text, no tools ─────> Over, well  (or it also called a tool that has not run yet)
//!  info "Request cancelled." ──────> Over, aborted
//!  error; a prompt taken back ─────> Over, failed
//! ```
//!
//! The message that sets the scene (`<session_context>`) is nobody's prompt, nor is what a person ran with `!`. An error
//! after an answer is about something else.

use std::collections::BTreeMap;

use lariat_core::{Time, Tokens};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::typed;
use crate::json::{Keys, Value};
use crate::reader::Fold;

/// How many of the last prompts are kept.
const ASKED: usize = 64;

/// How the last turn stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Stand {
    /// There was none.
    Never,
    /// Open.
    Open,
    /// Answered.
    Well,
    /// Ended in this error.
    Failed(String),
    /// Cancelled by a person.
    Aborted(String),
}

/// What a message is, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Kind {
    /// What a person asked.
    Prompt,
    /// An answer.
    Text,
    /// A call of which nothing is recorded until it ran.
    Calls,
    /// Another part of a turn that goes on.
    Midway,
    /// A call that a person refused.
    Refused,
    /// Nothing that bears on a turn.
    Aside,
}

/// The fold of one file.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named after what the lines say")]
pub struct Chat {
    pub id: Option<String>,
    pub kind: Option<String>,
    pub title: Option<String>,
    pub model: Option<String>,
    pub prompt: Option<String>,
    pub started: Option<i64>,
    pub updated: Option<i64>,
    /// When the last message of a turn was added by itself. A Gemini that takes the session up writes all earlier ones again, and
    /// so changes `updated` before anybody has said anything to it.
    pub said: Option<i64>,
    /// Taken up again, and nothing dated was written since.
    pub reopened: bool,
    /// The last prompts that were added by themselves, and when.
    pub asked: Vec<(u64, i64)>,
    messages: Vec<(u64, Kind)>,
    /// What was said after the last turn, of how it ended.
    after: Option<Stand>,
    /// The same, until the messages are put together anew: a cancelled turn is first followed by the
    /// earlier messages again, under new ids and without tokens.
    told: Option<Stand>,
    /// A client begins it, and nobody else has taken it up since.
    by_client: bool,
    /// Begun again by another process, and nothing was said since: the messages that it puts together anew, first
    /// without any that were said, take nothing back.
    anew: bool,
    /// Lines are missing somewhere: whether somebody else has taken it up may have stood there.
    missing: bool,
    /// Lines are missing before the messages known.
    cut: bool,
    /// All messages were put together anew right after a gap: whether that took a prompt back, or for whom, cannot
    /// be told from there.
    unsure: bool,
    /// Usage by hash of the message id: `input, output, cache_read`; of some answers it is not told.
    used: BTreeMap<u64, Option<[u64; 3]>>,
}

impl Chat {
    /// What all messages together used, those taken back included. `input` includes `cache_read`, as
    /// Gemini counts. `None` if an answer does not say what it used.
    pub fn tokens_together<'a>(all: impl Iterator<Item = &'a Chat>) -> Option<Tokens> {
        let mut used: BTreeMap<u64, Option<[u64; 3]>> = BTreeMap::new();
        for (id, told) in all.flat_map(|c| &c.used) {
            let known = used.entry(*id).or_default();
            *known = told.or(*known);
        }
        let used: Vec<[u64; 3]> = used.into_values().collect::<Option<_>>()?;
        let sum = |i: usize| used.iter().fold(0u64, |sum, u| sum.saturating_add(u[i]));
        Some(Tokens { input: sum(0), output: sum(1), cache_read: sum(2), cache_write: 0 })
    }

    /// How the last turn stands; `None` if the lines since a gap do not tell.
    pub fn stand(&self) -> Option<Stand> {
        let last = self.last();
        match (&self.after, last) {
            (Some(after), _) => Some(after.clone()),
            (None, _) if self.unsure => None,
            (None, Some((_, Kind::Prompt | Kind::Calls | Kind::Midway))) => Some(Stand::Open),
            (None, Some((_, Kind::Text))) => Some(Stand::Well),
            (None, Some((_, Kind::Refused))) => Some(Stand::Aborted("a tool call was refused".into())),
            (None, _) => (!self.cut).then_some(Stand::Never),
        }
    }

    /// Whether its last word is a call that has not run to its end.
    pub fn calls(&self) -> bool {
        self.after.is_none() && matches!(self.last(), Some((_, Kind::Calls)))
    }

    /// Whether anything was ever said in it: the file that a resume leaves beside has nothing.
    pub fn says_something(&self) -> bool {
        self.last().is_some() || self.prompt.is_some() || self.after.is_some()
    }

    fn last(&self) -> Option<(u64, Kind)> {
        self.messages.iter().rev().find(|(_, kind)| *kind != Kind::Aside).copied()
    }

    fn at(&mut self, time: Value<'_>) {
        let at = time.str().and_then(Time::parse).map(|t| t.0);
        self.reopened &= at.is_none();
        self.started = self.started.or(at);
        self.updated = self.updated.max(at);
    }

    /// A message that was added or changed.
    fn message(&mut self, message: Value<'_>) {
        self.at(message.get("timestamp"));
        let text = text(message.get("content"));
        let kind = kind(message);
        // What its tools still give follows on the word that the turn was cancelled.
        let late = matches!(self.after, Some(Stand::Aborted(_))) && matches!(kind, Kind::Midway | Kind::Refused);
        match message.get("type").str() {
            Some("error") if self.may_fail() => self.after = Some(Stand::Failed(text.unwrap_or("error").to_owned())),
            Some("info") if text == Some("Request cancelled.") => {
                self.after = Some(Stand::Aborted("cancelled by a person".into()));
                self.told = self.after.clone();
            }
            Some("user" | "gemini") if !late && !text.is_some_and(is_by_hand) => {
                self.after = None;
                self.unsure = false;
            }
            _ => {}
        }
        if message.get("tokens").exists() {
            self.told = None;
        }
        let at = message.get("timestamp").str().and_then(Time::parse).map(|t| t.0);
        // Only the first time it is said: what is put together anew, or said again after a cancelled turn, has no tokens.
        if kind == Kind::Text
            && self.told.is_none()
            && let Some(id) = message.get("id").str()
        {
            self.used.entry(xxh3_64(id.as_bytes())).or_default();
        }
        if kind != Kind::Aside || self.after.is_some() {
            self.said = self.said.max(at);
            self.anew = false;
        }
        if let (Kind::Prompt, Some(text), Some(at)) = (kind, text, at) {
            let before = self.asked.len().saturating_sub(ASKED - 1);
            self.asked.drain(..before);
            self.asked.push((typed::words(text), at));
        }
        self.place(message);
    }

    /// Whether an error is about a turn: Gemini records as one whatever it complains of, also after an answer. What comes
    /// right after a gap may be either.
    fn may_fail(&self) -> bool {
        let turn = self.last().map_or(!self.cut, |(_, kind)| !matches!(kind, Kind::Text | Kind::Refused));
        self.after.is_some() || turn
    }

    /// Puts a message in its place.
    fn place(&mut self, message: Value<'_>) {
        let Some(id) = message.get("id").str().map(|id| xxh3_64(id.as_bytes())) else { return };
        let kind = kind(message);
        if kind == Kind::Prompt && self.prompt.is_none() {
            self.prompt = text(message.get("content")).map(|t| t.trim().to_owned());
        }
        if let Some(model) = message.get("model").some_str()
            && self.model.as_deref() != Some(model)
        {
            self.model = Some(model.to_owned());
        }
        let tokens = message.get("tokens");
        if tokens.exists() {
            self.used.insert(id, used(tokens));
        }
        match self.messages.iter_mut().rev().find(|(other, _)| *other == id) {
            Some(place) => place.1 = kind,
            None => self.messages.push((id, kind)),
        }
    }

    fn set(&mut self, set: Value<'_>) {
        self.reopened |= set.get("sessionId").exists();
        self.by_client &= !set.get("sessionId").exists();
        self.at(set.get("lastUpdated"));
        if let Some(summary) = set.get("summary").some_str() {
            self.title = Some(summary.to_owned());
        }
        if !set.get("messages").is_array() {
            return;
        }
        let asked = self.last().filter(|(_, kind)| *kind == Kind::Prompt);
        self.unsure = self.cut && self.messages.is_empty();
        self.messages.clear();
        self.cut = false;
        set.get("messages").items().for_each(|m| self.place(m));
        let taken_back = asked.is_some_and(|(id, _)| !self.messages.iter().any(|(other, _)| *other == id));
        self.after = self.after.take().or(self.told.take());
        if taken_back && !self.anew && self.after.is_none() {
            self.unsure |= self.by_client && self.missing;
            let how = "its last request failed or was cancelled, and was taken back".to_owned();
            let told = if self.by_client { Stand::Aborted(how) } else { Stand::Failed(how) };
            self.after = (!self.unsure).then_some(told);
        }
    }

    fn rewind(&mut self, id: &str) {
        let id = xxh3_64(id.as_bytes());
        let from = self.messages.iter().position(|(other, _)| *other == id);
        self.messages.truncate(from.unwrap_or(0));
        self.after = None;
    }
}

/// What an answer used: `input, output, cache_read`, if those are numbers.
pub fn used(tokens: Value<'_>) -> Option<[u64; 3]> {
    let both = |a: &str, b: &str| Some(tokens.get(a).whole()?.saturating_add(tokens.get(b).count()?));
    Some([both("input", "tool")?, both("output", "thoughts")?, tokens.get("cached").count()?])
}

/// The text of a message's content: a string, or parts.
fn text(content: Value<'_>) -> Option<&str> {
    content.some_str().or_else(|| content.items().find_map(|part| part.get("text").some_str()))
}

/// Whether a message tells the model, when it is next asked, of a command that a person ran with `!`.
fn is_by_hand(text: &str) -> bool {
    text.trim_start().starts_with("I ran the following shell command:\n")
}

fn kind(message: Value<'_>) -> Kind {
    let said = text(message.get("content")).map_or("", str::trim);
    match message.get("type").str() {
        Some("user") if said.starts_with("<session_context>") || said.starts_with("<hook_context>") => Kind::Aside,
        Some("user") if is_by_hand(said) => Kind::Aside,
        Some("user") if said.is_empty() => Kind::Midway, // a tool's result
        Some("user") => Kind::Prompt,
        Some("gemini") => {
            let calls = message.get("toolCalls");
            let refused = |call: Value<'_>| call.get("status").str() == Some("cancelled");
            match calls.items().next() {
                Some(_) if calls.items().all(refused) => Kind::Refused,
                Some(_) => Kind::Midway,
                None if said.is_empty() => Kind::Calls,
                None => Kind::Text,
            }
        }
        _ => Kind::Aside,
    }
}

/// What is kept of a line, wherever it stands in it.
static KEYS: Keys = Keys::new(&[
    b"sessionId",
    b"projectHash",
    b"kind",
    b"startTime",
    b"lastUpdated",
    b"summary",
    b"$set",
    b"$rewindTo",
    b"messages",
    b"id",
    b"timestamp",
    b"type",
    b"content",
    b"text",
    b"tokens",
    b"input",
    b"output",
    b"cached",
    b"thoughts",
    b"tool",
    b"model",
    b"toolCalls",
    b"status",
]);

impl Fold for Chat {
    fn keeps(_: &[u8], key: &[u8]) -> bool {
        KEYS.has(key)
    }

    fn reads(line: Value<'_>) -> bool {
        let id = line.get("id");
        // A message; whatever else has no id.
        let is_one = id.exists() || matches!(line.get("type").word(), b"user" | b"gemini");
        !is_one || id.str().is_some() && line.has_kind()
    }

    fn line(&mut self, line: Value<'_>) {
        if let Some(id) = line.get("$rewindTo").str() {
            self.rewind(id);
        } else if line.get("id").str().is_some() {
            self.message(line);
        } else if line.get("$set").is_object() {
            self.set(line.get("$set"));
        } else if let Some(id) = line.get("sessionId").some_str() {
            self.anew = self.id.replace(id.to_owned()).is_some();
            self.by_client = self.anew && !self.cut && !self.says_something();
            self.kind = line.get("kind").some_str().map(str::to_owned);
            self.at(line.get("startTime"));
            self.at(line.get("lastUpdated"));
            self.title = line.get("summary").some_str().map(str::to_owned).or(self.title.take());
            // All of them, in the one document that older versions wrote.
            line.get("messages").items().for_each(|m| self.message(m));
        }
    }

    fn gap(&mut self) {
        self.messages.clear();
        self.unsure = false;
        self.after = None;
        self.told = None;
        (self.cut, self.missing) = (true, true);
    }

    fn lost(&mut self) {
        self.gap();
    }

    fn knows_head(&self) -> bool {
        self.prompt.is_some() && self.id.is_some()
    }

    fn knows_tail(&self) -> bool {
        (self.id.is_some() || self.cut || self.unsure) && self.stand().is_some()
    }
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
