//! What Codex's threads used: each response once.
//!
//! 0.166 writes a `token_usage_record` for each response, known by the response's id, and a
//! `token_count` behind it, with what its process has counted: less than the thread's total, if the
//! process before it was killed. Earlier versions wrote only the latter, some of them twice: there,
//! what a total has grown by is a response. A fork's total starts at its parent's, so the first one
//! tells only of its last response. A fork that holds copies of its parent's lines (as versions
//! without `history_base` make them) begins with its parent's `session_meta` too, so totals are known
//! by the thread that is at the root of it.
//!
//! A sub-agent has a rollout of its own, which counts for the session it works for.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::LazyLock;

use lariat_core::{Time, Tokens, Warning};
use memchr::memmem;
use serde::{Deserialize, Serialize};

use super::{rollouts, warning};
use crate::counting::{self, Counts, File};
use crate::json::Value;
use crate::look::{Look, Report};
use crate::reader::Fold;
use crate::spent::{self, Again, Spent, Tally, Tell, Use};

/// How far up a sub-agent is followed to the session it works for.
const DEEPEST: usize = 16;

/// What a line that counts has in it. Made once: a store has millions of lines.
static USAGE: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new("_token_usage\""));

#[derive(Clone, Default, Serialize, Deserialize)]
struct Responses {
    tally: Tally,
    /// The thread at the root of what it holds copies of, or itself.
    root: String,
    model: Option<String>,
    /// The thread's last total.
    total: Option<Count>,
    /// What the last record told, until it is told again.
    recorded: Option<Count>,
}

/// `input` with the cache, `output`, `cache_read`, `cache_write`.
type Count = [u64; 4];

/// `None` if what is told is no number.
fn count(usage: Value<'_>) -> Option<Count> {
    let count = |key: &str| usage.get(key).count();
    let (input, output) = (count("input_tokens")?, count("output_tokens")?);
    Some([input, output, count("cached_input_tokens")?, count("cache_write_input_tokens")?])
}

impl Responses {
    fn meta(&mut self, p: Value<'_>) {
        let text = |key: &str| p.get(key).some_str().map(str::to_owned);
        let first = self.root.is_empty();
        self.root = text("id").or_else(|| text("session_id")).unwrap_or_default();
        if !first {
            return; // a copy of its parent's
        }
        self.tally.dir = text("cwd");
        let subagent = p.get("source").get("subagent");
        if subagent.exists() || p.get("thread_source").str() == Some("subagent") {
            let parent = subagent.get("thread_spawn").get("parent_thread_id").some_str();
            self.tally.session = parent.map(str::to_owned).or_else(|| text("parent_thread_id"));
        }
    }

    fn use_(&mut self, known: spent::Known, at: Option<i64>, [input, output, cache_read, cache_write]: Count) {
        let fresh = input.saturating_sub(cache_read).saturating_sub(cache_write);
        let tokens = Tokens { input: fresh, output, cache_read, cache_write };
        let model = self.model.as_deref().unwrap_or("unknown").to_owned();
        self.tally.take(known, &model, Use { at, model: 0, tokens, cost: None, answers: 1 }, Again::Larger);
    }

    fn record(&mut self, p: Value<'_>, at: Option<i64>) {
        let (total, used) = (p.get("thread_token_usage"), count(p.get("usage")));
        let told = count(total);
        if total.exists() {
            self.total = told;
        }
        self.recorded = used;
        let Some(used) = used else { return self.tally.refuse() };
        let known = match p.get("response_id").some_str() {
            Some(id) => spent::known_by(&[id.as_bytes()]),
            None => self.known_by_total(&told.unwrap_or_default(), &used),
        };
        self.use_(known, at, used);
    }

    fn token_count(&mut self, info: Value<'_>, at: Option<i64>) {
        let (total, last) = (info.get("total_token_usage"), info.get("last_token_usage"));
        if !total.exists() {
            return;
        }
        let Some(told) = count(total) else {
            // What the next total has grown by is not one answer.
            self.total = None;
            return if self.recorded.take().is_none() {
                self.tally.refuse()
            };
        };
        let last = count(last).filter(|_| last.exists());
        let (recorded, before) = (self.recorded.take(), self.total.replace(told));
        if before == Some(told) || recorded.is_some() && recorded == last {
            return; // nothing new, or told by the record before it
        }
        let grown = before.filter(|before| told.iter().zip(before).all(|(now, before)| now >= before));
        let used = match (grown, last) {
            (Some(before), _) => std::array::from_fn(|i| told[i] - before[i]),
            (None, Some(last)) => last,
            (None, None) => told,
        };
        self.use_(self.known_by_total(&told, &used), at, used);
    }

    fn known_by_total(&self, total: &Count, used: &Count) -> spent::Known {
        let bytes = |count: &Count| count.map(u64::to_le_bytes);
        spent::known_by(&[self.root.as_bytes(), bytes(total).as_flattened(), bytes(used).as_flattened()])
    }
}

impl Counts for Responses {
    fn tally(&self) -> &Tally {
        &self.tally
    }
}

impl Fold for Responses {
    fn keeps(parent: &[u8], key: &[u8]) -> bool {
        match parent {
            b"" => matches!(key, b"type" | b"timestamp" | b"payload"),
            b"payload" => matches!(
                key,
                b"type"
                    | b"id"
                    | b"session_id"
                    | b"cwd"
                    | b"source"
                    | b"thread_source"
                    | b"parent_thread_id"
                    | b"model"
                    | b"info"
                    | b"usage"
                    | b"response_id"
                    | b"thread_token_usage"
            ),
            b"source" => key == b"subagent",
            b"subagent" => key == b"thread_spawn",
            b"thread_spawn" => key == b"parent_thread_id",
            b"info" => matches!(key, b"total_token_usage" | b"last_token_usage"),
            b"usage" | b"thread_token_usage" | b"total_token_usage" | b"last_token_usage" => true,
            _ => false,
        }
    }
    // What a line is stands at its start, or at its end if its keys are sorted. Where it does neither,
    // a model or a directory is not known, but no number is lost.
    const SIEVE: Option<fn(&[u8]) -> bool> = Some(|line| {
        let (start, end) = (&line[..line.len().min(160)], &line[line.len().saturating_sub(160)..]);
        let has = |text: &[u8], what: &[u8]| memmem::find(text, what).is_some();
        let is = |what: &[u8]| has(start, what) || has(end, what);
        USAGE.find(line).is_some() || is(b"\"turn_context\"") || is(b"\"session_meta\"")
    });

    fn line(&mut self, line: Value<'_>) {
        let payload = line.get("payload");
        let at = line.get("timestamp").str().and_then(Time::parse).map(|t| t.0.div_euclid(1000));
        match line.get("type").str() {
            Some("session_meta") => self.meta(payload),
            Some("turn_context") => {
                let model = payload.get("model").some_str().filter(|m| self.model.as_deref() != Some(m));
                self.model = model.map(str::to_owned).or(self.model.take());
            }
            Some("token_usage_record") => self.record(payload, at),
            Some("event_msg") if payload.get("type").str() == Some("token_count") => {
                self.token_count(payload.get("info"), at);
            }
            _ => {}
        }
    }

    fn gap(&mut self) {
        (self.total, self.recorded) = (None, None);
    }

    fn knows_head(&self) -> bool {
        true
    }

    fn knows_tail(&self) -> bool {
        true
    }
}

/// Tells what every thread used.
pub fn tell(look: &Look<'_>, only: Option<&str>, to: &mut Tell<'_>) -> Vec<Warning> {
    let mut report = Report::default();
    let files = rollouts::listed(look, &mut report).into_iter();
    let files: Vec<File> = files.map(|(session, found)| File { session, dir: None, found }).collect();
    let warning = |path: &Path, why: String| warning(look, path, why);
    if let Some(session) = only {
        // Who works for it stands in the other files.
        let told = counting::tell_only::<Responses>(look, "usage-codex", session, files, &warning, to);
        report.warnings.extend(told);
        return report.warnings;
    }
    let parents: RefCell<HashMap<String, String>> = RefCell::default();
    let mut known = |file: &File, works_for: Option<&str>| {
        parents.borrow_mut().extend(works_for.map(|parent| (file.session.clone(), parent.to_owned())));
    };
    let mut counted = |spent: Spent<'_>| {
        // A sub-agent of a sub-agent works for the session at the root.
        let (parents, mut session) = (parents.borrow(), spent.session);
        for _ in 0..DEEPEST {
            session = parents.get(session).map_or(session, String::as_str);
        }
        (to.to)(Spent { session, ..spent });
    };
    let to = &mut Tell { grain: to.grain, to: &mut counted };
    report.warnings.extend(counting::tell_of::<Responses>(look, "usage-codex", files, &warning, &mut known, to));
    report.warnings
}
