//! What Pi's sessions used: every assistant's message, with the cost that Pi itself works out.
//!
//! A fork begins with copies of its parent's lines: the same ids and the same times.

use std::path::Path;

use lariat_core::{Time, Tokens, Warning};
use memchr::memmem;
use serde::{Deserialize, Serialize};

use super::{sessions, warning};
use crate::counting::{self, Counts, File};
use crate::json::{Keep, Value};
use crate::look::{Look, Report};
use crate::reader::Fold;
use crate::spent::{self, Again, Tally, Tell, Use};

#[derive(Clone, Default, Serialize, Deserialize)]
struct Answers(Tally);

impl Counts for Answers {
    fn tally(&self) -> &Tally {
        &self.0
    }
}

impl Fold for Answers {
    const KEEP: Keep = |parent, key| match parent {
        b"" => matches!(key, b"type" | b"id" | b"timestamp" | b"cwd" | b"message"),
        b"message" => matches!(key, b"role" | b"model" | b"usage" | b"responseId"),
        b"usage" => matches!(key, b"input" | b"output" | b"cacheRead" | b"cacheWrite" | b"cost"),
        b"cost" => key == b"total",
        _ => false,
    };
    const SIEVE: Option<fn(&[u8]) -> bool> = Some(|line| {
        memmem::find(line, b"\"usage\"").is_some()
            || memmem::find(&line[..line.len().min(64)], b"\"session\"").is_some()
    });

    fn line(&mut self, line: Value<'_>) {
        let text = |key: &str| line.get(key).some_str().map(str::to_owned);
        let message = line.get("message");
        match line.get("type").str() {
            Some("session") => {
                // After `/new` 0.42 wrote another one into the same file: what Pi takes up again is the first.
                self.0.session = self.0.session.take().or_else(|| text("id"));
                self.0.dir = self.0.dir.take().or_else(|| text("cwd"));
            }
            Some("message") if message.get("role").str() == Some("assistant") => {
                let usage = message.get("usage");
                let [input, output, cache_read, cache_write] =
                    ["input", "output", "cacheRead", "cacheWrite"].map(|key| usage.get(key).count());
                let all = input.zip(output).zip(cache_read.zip(cache_write));
                let Some(((input, output), (cache_read, cache_write))) = all else { return self.0.refuse() };
                let tokens = Tokens { input, output, cache_read, cache_write };
                let (id, time) = (line.get("id").str(), line.get("timestamp").str());
                let known = [id, time, message.get("responseId").str()].map(|part| part.unwrap_or("").as_bytes());
                let used = Use {
                    at: time.and_then(Time::parse).map(|t| t.0.div_euclid(1000)),
                    model: 0,
                    tokens,
                    // Pi writes 0 where it knows no price.
                    cost: usage.get("cost").get("total").f64().filter(|cost| *cost > 0.0).and_then(spent::usd),
                    answers: 1,
                };
                let model = message.get("model").some_str().unwrap_or("unknown");
                self.0.take(spent::known_by(&known), model, used, Again::Last);
            }
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

/// Tells what every session used, or only this one.
pub fn tell(look: &Look<'_>, only: Option<&str>, to: &mut Tell<'_>) -> Vec<Warning> {
    let mut report = Report::default();
    let files = sessions::listed(look, &mut report).into_iter();
    let files = files.map(|(session, found)| File { session, dir: None, found }).collect();
    let warning = |path: &Path, why: String| warning(look, path, why);
    report.warnings.extend(match only {
        None => counting::tell::<Answers>(look, "usage-pi", files, &warning, to),
        Some(session) => counting::tell_only::<Answers>(look, "usage-pi", session, files, &warning, to),
    });
    report.warnings
}
