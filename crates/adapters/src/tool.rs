//! A tool call, told in a few words.

use lariat_core::{Ask, Time};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::json::Value;

/// A call that has no result yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Call {
    /// The agent's id of the call.
    pub id: String,
    /// The tool.
    pub name: String,
    /// What of its input tells most: a command, a file, a question.
    pub gist: String,
    /// When it was called, in milliseconds since 1970, where that is known.
    pub at: Option<i64>,
}

/// How the latest calls of a session stand, each by the [`mark`] of what it asks.
#[derive(Clone, Default, Debug)]
pub struct Calls {
    /// Without a result.
    pub open: Vec<u64>,
    /// With one, and since when.
    pub settled: Vec<(u64, Time)>,
}

/// What tells one question from another.
pub fn mark(ask: &Ask) -> u64 {
    xxh3_64(ask.reason().raw().as_bytes())
}

/// The members of an input that tell most, most telling first.
const TELLING: [&str; 15] = [
    "command",
    "cmd",
    "file_path",
    "filePath",
    "notebook_path",
    "path",
    "pattern",
    "url",
    "query",
    "question",
    "plan",
    "description",
    "prompt",
    "skill",
    "subject",
];

impl Call {
    /// Takes a call down.
    pub fn new(id: &str, name: &str, input: Value<'_>, at: Option<i64>) -> Call {
        Call { id: id.to_owned(), name: name.to_owned(), gist: gist(input), at }
    }

    /// `Bash npm test`.
    pub fn told(&self) -> String {
        format!("{} {}", self.name, self.gist).trim().to_owned()
    }
}

/// The gist of a tool's input.
pub fn gist(input: Value<'_>) -> String {
    if let Some(text) = input.str() {
        return text.to_owned();
    }
    let questions: Vec<&str> = input.get("questions").items().filter_map(|q| q.get("question").some_str()).collect();
    if !questions.is_empty() {
        return questions.join(" / ");
    }
    for key in TELLING {
        let member = input.get(key);
        if let Some(text) = member.some_str() {
            return text.to_owned();
        }
        let words: Vec<&str> = member.items().filter_map(|w| w.str()).collect();
        if !words.is_empty() {
            return words.join(" ");
        }
    }
    input.entries().find_map(|(_, v)| v.some_str()).unwrap_or("").to_owned()
}
