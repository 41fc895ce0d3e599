//! What Gemini's sessions used: every message that tells tokens, by its id, the last word of it.
//!
//! Sub-agents have files of their own, in a folder beside the session's. What was taken back was
//! used all the same. A resumed session has several files, and messages may be written again in
//! each.

use std::path::Path;

use lariat_core::{Time, Tokens, Warning};
use memchr::memmem;
use serde::{Deserialize, Serialize};

use super::{fold, sessions, warning};
use crate::counting::{self, Counts, File};
use crate::json::Value;
use crate::look::{Look, Report};
use crate::reader::Fold;
use crate::spent::{self, Again, Tally, Tell, Use};

#[derive(Clone, Default, Serialize, Deserialize)]
struct Messages(Tally);

impl Messages {
    fn message(&mut self, message: Value<'_>) {
        let (Some(id), tokens) = (message.get("id").some_str(), message.get("tokens")) else { return };
        if !tokens.exists() {
            return;
        }
        let Some([input, output, cached]) = fold::used(tokens) else { return self.0.refuse() };
        let used = Use {
            at: message.get("timestamp").str().and_then(Time::parse).map(|t| t.0.div_euclid(1000)),
            model: 0,
            tokens: Tokens { input: input.saturating_sub(cached), output, cache_read: cached, cache_write: 0 },
            cost: None,
            answers: 1,
        };
        let model = message.get("model").some_str().unwrap_or("unknown");
        self.0.take(spent::known_by(&[id.as_bytes()]), model, used, Again::Last);
    }
}

impl Counts for Messages {
    fn tally(&self) -> &Tally {
        &self.0
    }
}

impl Fold for Messages {
    fn keeps(parent: &[u8], key: &[u8]) -> bool {
        match parent {
            b"" | b"messages" => {
                matches!(key, b"sessionId" | b"id" | b"timestamp" | b"tokens" | b"model" | b"messages" | b"$set")
            }
            b"$set" => key == b"messages",
            b"tokens" => true,
            _ => false,
        }
    }
    const SIEVE: Option<fn(&[u8]) -> bool> =
        Some(|line| memmem::find(line, b"\"tokens\"").is_some() || memmem::find(line, b"\"sessionId\"").is_some());

    /// A sub-agent, which has an id of its own, counts for the session that it works for: its folder is named after that.
    fn begin(path: &Path) -> Self {
        let folder = path.parent().filter(|folder| !folder.ends_with("chats"));
        let session = folder.and_then(|folder| folder.file_name()?.to_str()).map(str::to_owned);
        let mut messages = Messages::default();
        messages.0.session = session;
        messages
    }

    fn line(&mut self, line: Value<'_>) {
        if line.get("id").str().is_some() {
            self.message(line);
            return;
        }
        if self.0.session.is_none() {
            self.0.session = line.get("sessionId").some_str().map(str::to_owned);
        }
        let all = line.get("messages").items().chain(line.get("$set").get("messages").items());
        all.for_each(|message| self.message(message));
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
    let files = files.map(|(session, dir, found)| File { session, dir, found }).collect();
    let warning = |path: &Path, why: String| warning(look, path, why);
    report.warnings.extend(match only {
        None => counting::tell::<Messages>(look, "usage-gemini", files, &warning, to),
        Some(session) => counting::tell_only::<Messages>(look, "usage-gemini", session, files, &warning, to),
    });
    report.warnings
}
