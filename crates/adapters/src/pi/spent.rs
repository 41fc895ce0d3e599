//! What Pi's sessions used: every assistant's message, and what was used beside those for a summary, by a tool or to
//! keep a cache warm, with the cost that Pi itself works out.
//!
//! A fork begins with copies of its parent's lines: the same ids and the same times.

use std::path::Path;

use lariat_core::{Time, Tokens, Warning};
use memchr::memmem;
use serde::{Deserialize, Serialize};

use super::{sessions, warning};
use crate::counting::{self, Counts, File};
use crate::json::Value;
use crate::look::{Look, Report};
use crate::reader::Fold;
use crate::spent::{self, Again, Spent, Tally, Tell, Use};

#[derive(Clone, Default, Serialize, Deserialize)]
struct Answers {
    tally: Tally,
    /// Who answered last: it sums up, too.
    model: Option<String>,
}

impl Counts for Answers {
    fn tally(&self) -> &Tally {
        &self.tally
    }
}

impl Answers {
    /// Takes in what a line has used; `told` is the part of it that says what.
    fn uses(&mut self, line: Value<'_>, told: Value<'_>) {
        let usage = told.get("usage");
        let all = usage.get("input").whole().zip(usage.get("output").whole());
        let all = all.zip(usage.get("cacheRead").count().zip(usage.get("cacheWrite").count()));
        let Some(((input, output), (cache_read, cache_write))) = all else { return self.tally.refuse() };
        let tokens = Tokens { input, output, cache_read, cache_write };
        let (id, time) = (line.get("id").str(), line.get("timestamp").str());
        let known = [id, time, told.get("responseId").str()].map(|part| part.unwrap_or("").as_bytes());
        let used = Use {
            at: time.and_then(Time::parse).map(|t| t.0.div_euclid(1000)),
            model: 0,
            tokens,
            // Pi writes 0 where it knows no price.
            cost: usage.get("cost").get("total").f64().filter(|cost| *cost > 0.0).and_then(spent::usd),
            answers: 1,
        };
        let model = told.get("model").some_str().or(self.model.as_deref()).unwrap_or("unknown");
        self.tally.take(spent::known_by(&known), model, used, Again::Last);
    }
}

impl Fold for Answers {
    fn keeps(parent: &[u8], key: &[u8]) -> bool {
        match parent {
            b"" => matches!(key, b"type" | b"id" | b"timestamp" | b"cwd" | b"message" | b"model" | b"usage"),
            b"message" => matches!(key, b"role" | b"model" | b"usage" | b"responseId"),
            b"usage" => matches!(key, b"input" | b"output" | b"cacheRead" | b"cacheWrite" | b"cost"),
            b"cost" => key == b"total",
            _ => false,
        }
    }
    const SIEVE: Option<fn(&[u8]) -> bool> = Some(|line| {
        memmem::find(line, b"\"usage\"").is_some()
            || memmem::find(&line[..line.len().min(512)], b"\"session\"").is_some()
    });

    fn line(&mut self, line: Value<'_>) {
        let text = |key: &str| line.get(key).some_str().map(str::to_owned);
        let message = line.get("message");
        match line.get("type").str() {
            Some("session") => {
                // After `/new` 0.42 wrote another one into the same file: what Pi takes up again is the first.
                self.tally.session = self.tally.session.take().or_else(|| text("id"));
                self.tally.dir = self.tally.dir.take().or_else(|| text("cwd"));
            }
            Some("message") if message.get("role").str() == Some("assistant") => {
                self.model = message.get("model").some_str().map(str::to_owned).or(self.model.take());
                self.uses(line, message);
            }
            Some("message") if message.get("usage").exists() => self.uses(line, message),
            Some("usage" | "compaction" | "branch_summary") if line.get("usage").exists() => self.uses(line, line),
            _ => {}
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

/// Tells what every session used, or only this one, each by the name that lists give it.
pub fn tell(look: &Look<'_>, only: Option<&str>, to: &mut Tell<'_>) -> Vec<Warning> {
    let mut report = Report::default();
    let files = sessions::listed(look, &mut report);
    let shared = sessions::shared(look, &files);
    let files = files.into_iter().map(|(session, found)| File { session, dir: None, found }).collect();
    let warning = |path: &Path, why: String| warning(look, path, why);
    let grain = to.grain;
    let mut by_name = |spent: Spent<'_>| {
        let project = spent.dir.filter(|_| shared.contains(spent.session));
        let name = project.map(|project| sessions::name(spent.session, project));
        let session = name.as_deref().unwrap_or(spent.session);
        if only.is_none_or(|only| only == session) {
            (to.to)(Spent { session, ..spent });
        }
    };
    let to = &mut Tell { grain, to: &mut by_name };
    report.warnings.extend(match only {
        None => counting::tell::<Answers>(look, "usage-pi", files, &warning, to),
        Some(session) => {
            let id = session.split('@').next().unwrap_or(session);
            counting::tell_only::<Answers>(look, "usage-pi", id, files, &warning, to)
        }
    });
    report.warnings
}
