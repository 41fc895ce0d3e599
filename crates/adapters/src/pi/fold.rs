//! What the lines of a Pi session add up to.
//!
//! Written for format 3, as 0.73.1 and 1.5.0 write it. The file is a tree that only grows; the last
//! message is where the conversation stands:
//!
//! ```text
//!  user ──> Open ── assistant toolUse / toolResult ──> Open
//!             │── assistant stop, length ──> Over, well
//!             │── assistant error ─────────> Over, failed
//!             │── assistant aborted ───────> Over, aborted
//!             └── assistant, any other word ─> not known
//! ```
//!
//! A signal writes nothing, so a turn that was cut off stays open. A fork begins with copies of its
//! parent's lines, tokens included; they are older than its own first line.

use lariat_core::{Time, Tokens};
use serde::{Deserialize, Serialize};

use crate::json::{Keys, Value};
use crate::reader::Fold;
use crate::tool::Call;

/// How the last turn stands.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Stand {
    /// Nothing seen of it, since the start or since a gap.
    #[default]
    Unseen,
    /// Open.
    Open,
    /// Answered.
    Well,
    /// Ended in this error.
    Failed(String),
    /// Aborted, in the agent's words.
    Aborted(String),
    /// Whether it is over, and how, is said by no word that is known.
    Untold(String),
}

/// The fold of one session.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named after what the lines say")]
pub struct Transcript {
    pub id: Option<String>,
    /// The first line, which has it, could not be read: what a later header tells may be another session's.
    pub beheaded: bool,
    pub cwd: Option<String>,
    /// The file it was forked from.
    pub forked_from: Option<String>,
    pub name: Option<String>,
    pub model: Option<String>,
    pub prompt: Option<String>,
    pub started: Option<i64>,
    pub updated: Option<i64>,
    /// When a person last gave it a prompt.
    pub asked_at: Option<i64>,
    pub stand: Stand,
    /// The last message is one that a fork has copied: no turn of its own.
    pub copied: bool,
    /// How many replies to the last prompt have failed, one after the other.
    pub failures: u32,
    /// Tool calls without a result.
    pub calls: Vec<Call>,
    tokens: [u64; 4],
    /// An answer does not say what it used.
    uncounted: bool,
    cost: f64,
    /// Some of it has no price that Pi knows.
    unpriced: bool,
    /// Lines were left out: what is asked after them was not asked first.
    gapped: bool,
    /// The entry that was read last.
    last: Option<String>,
}

impl Transcript {
    /// What all lines used, if each answer tells its own.
    pub fn tokens(&self) -> Option<Tokens> {
        let [input, output, cache_read, cache_write] = self.tokens;
        (!self.uncounted).then_some(Tokens { input, output, cache_read, cache_write })
    }

    /// What all lines cost, if Pi knew the price of each.
    pub fn cost(&self) -> Option<f64> {
        (!self.unpriced).then_some(self.cost)
    }

    fn message(&mut self, message: Value<'_>) {
        match message.get("role").str().unwrap_or("") {
            "user" => {
                let content = message.get("content");
                let text = content.str().or_else(|| content.items().find_map(|i| i.get("text").some_str()));
                if self.prompt.is_none() && !self.gapped {
                    self.prompt = text.map(|t| t.trim().to_owned()).filter(|t| !t.is_empty());
                }
                self.calls.clear();
                self.failures = 0;
                self.stand = Stand::Open;
            }
            "toolResult" => {
                let id = message.get("toolCallId").str().unwrap_or("");
                self.calls.retain(|call| call.id != id);
                self.uses_beside(message);
                // What a tool still gives does not open a turn again that was aborted.
                if !matches!(self.stand, Stand::Aborted(_)) {
                    self.stand = Stand::Open;
                }
            }
            "assistant" => self.assistant(message),
            _ => {} // the system's prompt, a command typed with `!`, an extension's note
        }
    }

    /// What a model has used: for an answer, or beside those.
    fn uses(&mut self, usage: Value<'_>) {
        let mut used = false;
        let count = |key: &str| usage.get(key);
        let all =
            [count("input").whole(), count("output").whole(), count("cacheRead").count(), count("cacheWrite").count()];
        for (sum, count) in self.tokens.iter_mut().zip(all) {
            self.uncounted |= count.is_none();
            let count = count.unwrap_or(0);
            *sum = sum.saturating_add(count);
            used |= count > 0;
        }
        // Pi writes 0 where it knows no price.
        let cost = usage.get("cost").get("total").f64().unwrap_or(0.0).max(0.0);
        self.cost += cost;
        self.uncounted |= !usage.exists();
        self.unpriced |= cost == 0.0 && (used || self.uncounted);
    }

    /// What was used for no answer (a summary, a tool's own model, a cache kept warm) stands in the line itself.
    fn uses_beside(&mut self, line: Value<'_>) {
        if line.get("usage").exists() {
            self.uses(line.get("usage"));
        }
    }

    fn assistant(&mut self, message: Value<'_>) {
        self.uses(message.get("usage"));
        if let Some(model) = message.get("model").some_str() {
            self.model = Some(model.to_owned());
        }
        self.calls.clear();
        let said = message.get("errorMessage").some_str();
        self.stand = match message.get("stopReason").str() {
            Some("error") => Stand::Failed(said.unwrap_or("the turn failed").to_owned()),
            Some("aborted") => Stand::Aborted(said.unwrap_or("the turn was aborted").to_owned()),
            Some("toolUse" | "pending") => Stand::Open,
            Some("stop" | "length") => Stand::Well,
            Some(word) => Stand::Untold(format!("its last reply ended by a word that is not known: {word}")),
            None => Stand::Untold("its last reply does not say how it ended".into()),
        };
        self.failures = if matches!(self.stand, Stand::Failed(_)) { self.failures.saturating_add(1) } else { 0 };
        if self.stand != Stand::Open {
            return;
        }
        let calls = message.get("content").items().filter(|b| b.get("type").str() == Some("toolCall"));
        self.calls.extend(calls.take(64).map(|b| {
            Call::new(b.get("id").str().unwrap_or(""), b.get("name").str().unwrap_or("tool"), b.get("arguments"), None)
        }));
    }
}

/// What is kept of a line, wherever it stands in it.
static KEYS: Keys = Keys::new(&[
    b"type",
    b"id",
    b"timestamp",
    b"cwd",
    b"parentSession",
    b"modelId",
    b"name",
    b"message",
    b"role",
    b"content",
    b"text",
    b"arguments",
    b"toolCallId",
    b"model",
    b"usage",
    b"input",
    b"output",
    b"cacheRead",
    b"cacheWrite",
    b"cost",
    b"total",
    b"stopReason",
    b"errorMessage",
]);

impl Fold for Transcript {
    fn keeps(parent: &[u8], key: &[u8]) -> bool {
        KEYS.has(key) || parent == b"arguments"
    }

    fn reads(line: Value<'_>) -> bool {
        let says = line.get("message").get("role").str().is_some();
        line.has_kind() && (says || line.get("type").word() != b"message")
    }

    fn line(&mut self, line: Value<'_>) {
        let entry = line.get("id").some_str();
        if entry.is_some() && entry == self.last.as_deref() {
            return; // a line that was written twice
        }
        self.last = entry.map(str::to_owned);
        let at = line.get("timestamp").str().and_then(Time::parse).map(|t| t.0);
        self.started = self.started.or(at);
        self.updated = self.updated.max(at);
        let text = |key: &str| line.get(key).some_str().map(str::to_owned);
        match line.get("type").str().unwrap_or("") {
            // After `/new` 0.42 wrote another one into the same file: what Pi takes up again is the first.
            "session" if self.id.is_none() => {
                self.id = text("id");
                self.cwd = text("cwd");
                self.forked_from = text("parentSession");
            }
            "model_change" => self.model = text("modelId").or(self.model.take()),
            "session_info" => self.name = text("name"),
            "usage" | "compaction" | "branch_summary" => self.uses_beside(line),
            "message" => {
                self.message(line.get("message"));
                if line.get("message").get("role").str() == Some("user") {
                    self.asked_at = at;
                }
                self.copied = self.forked_from.is_some() && at.is_some() && at < self.started;
                // Nobody is at it here.
                if self.copied && self.stand == Stand::Open {
                    self.stand = Stand::Well;
                    self.calls.clear();
                }
            }
            _ => {}
        }
    }

    fn gap(&mut self) {
        self.lost();
        self.asked_at = None;
        self.gapped = true;
    }

    fn lost(&mut self) {
        self.beheaded |= self.id.is_none();
        self.stand = Stand::Unseen;
        self.calls.clear();
    }

    fn knows_head(&self) -> bool {
        self.prompt.is_some() && self.cwd.is_some()
    }

    fn knows_tail(&self) -> bool {
        self.stand != Stand::Unseen
    }
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
