//! What Claude Code's sessions used: the answers in their transcripts and in their sub-agents'.
//!
//! One answer is several lines with the same message id; a fork copies them, ids included. What
//! `cost-state` says is a sum over runs without a day, and is copied too, so it is not asked.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use lariat_core::{Time, Tokens, Warning};
use lariat_sys::file::{Directory, Kind};
use memchr::memmem;
use serde::{Deserialize, Serialize};

use super::below::DEEPEST;
use super::registry;
use crate::counting::{self, Counts, File};
use crate::json::Value;
use crate::look::Look;
use crate::reader::Fold;
use crate::spent::{self, Again, Tally, Tell, Use};
use crate::store::{Found, in_parallel};

/// What a line that counts has in it. Made once: a store has millions of lines.
static USAGE: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new("\"usage\""));

#[derive(Clone, Default, Serialize, Deserialize)]
struct Answers(Tally);

impl Counts for Answers {
    fn tally(&self) -> &Tally {
        &self.0
    }
}

impl Fold for Answers {
    fn keeps(parent: &[u8], key: &[u8]) -> bool {
        match parent {
            b"" => matches!(key, b"type" | b"message" | b"timestamp" | b"cwd" | b"uuid" | b"costUSD"),
            b"message" => matches!(key, b"id" | b"model" | b"usage"),
            b"usage" => matches!(
                key,
                b"input_tokens" | b"output_tokens" | b"cache_read_input_tokens" | b"cache_creation_input_tokens"
            ),
            _ => false,
        }
    }
    const SIEVE: Option<fn(&[u8]) -> bool> = Some(|line| USAGE.find(line).is_some());

    fn line(&mut self, line: Value<'_>) {
        let message = line.get("message");
        let (usage, model) = (message.get("usage"), message.get("model").str().unwrap_or("unknown"));
        if line.get("type").str() != Some("assistant") || !usage.exists() || model == "<synthetic>" {
            return;
        }
        if self.0.dir.is_none() {
            self.0.dir = line.get("cwd").some_str().map(str::to_owned);
        }
        let id = message.get("id").some_str().or(line.get("uuid").some_str());
        let time = line.get("timestamp").str();
        // Without any id it is known by its time, and can only be itself.
        let known = spent::known_by(&[id.or(time).unwrap_or("").as_bytes()]);
        // Without a cache there are no such numbers.
        let all = usage.get("input_tokens").whole().zip(usage.get("output_tokens").whole());
        let cached = |key: &str| Some(usage.get(key)).filter(Value::exists).map_or(Some(0), |n| n.whole());
        let cached = cached("cache_read_input_tokens").zip(cached("cache_creation_input_tokens"));
        let Some(((input, output), (cache_read, cache_write))) = all.zip(cached) else { return self.0.refuse() };
        let used = Use {
            at: time.and_then(Time::parse).map(|t| t.0.div_euclid(1000)),
            model: 0,
            tokens: Tokens { input, output, cache_read, cache_write },
            cost: line.get("costUSD").f64().and_then(spent::usd), // as versions before 1.0.9 wrote
            answers: 1,
        };
        self.0.take(known, model, used, Again::Larger);
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
    let mut warnings = Vec::new();
    let mut files = Vec::new();
    let projects = look.places.claude.join("projects");
    match Directory::open(&projects).and_then(|d| d.entries()) {
        Ok(entries) => {
            let folders = entries.into_iter().filter(|e| matches!(e.kind, Kind::Directory | Kind::Unsure));
            let folders: Vec<PathBuf> = folders.map(|e| projects.join(e.name)).collect();
            for (found, problems) in in_parallel(folders, |folder| in_project(&folder)) {
                files.extend(found);
                warnings.extend(problems.into_iter().map(|(path, e)| registry::warning(look, &path, e.to_string())));
            }
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => warnings.push(registry::warning(look, &projects, e.to_string())),
    }
    let warning = |path: &Path, why: String| registry::warning(look, path, why);
    warnings.extend(match only {
        None => counting::tell::<Answers>(look, "usage-claude", files, &warning, to),
        Some(session) => counting::tell_only::<Answers>(look, "usage-claude", session, files, &warning, to),
    });
    warnings
}

type Problems = Vec<(PathBuf, io::Error)>;

/// The transcripts of a project, and of the sub-agents of its sessions, also of those whose own is gone.
fn in_project(folder: &Path) -> (Vec<File>, Problems) {
    let (mut files, mut problems) = (Vec::new(), Vec::new());
    for (name, kind) in transcripts(folder, None, &mut files, &mut problems) {
        if kind != Kind::File {
            let mut below = vec![folder.join(&name).join("subagents")];
            for _ in 0..=DEEPEST {
                let mut inner = Vec::new();
                for folder in below {
                    let others = transcripts(&folder, Some(&name), &mut files, &mut problems);
                    let folders = others.into_iter().filter(|(_, kind)| *kind == Kind::Directory);
                    inner.extend(folders.map(|(name, _)| folder.join(name)));
                }
                below = inner;
            }
        }
    }
    (files, problems)
}

/// Takes the transcripts in a folder, and gives what else is there.
fn transcripts(
    folder: &Path,
    session: Option<&str>,
    files: &mut Vec<File>,
    problems: &mut Problems,
) -> Vec<(String, Kind)> {
    let (dir, entries) = match Directory::open(folder).and_then(|d| d.entries().map(|e| (d, e))) {
        Ok(opened) => opened,
        Err(e) => {
            let absent = matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
            problems.extend(Some((folder.to_owned(), e)).filter(|_| !absent));
            return Vec::new();
        }
    };
    let mut others = Vec::new();
    for entry in entries {
        let Some(stem) = entry.name.strip_suffix(".jsonl") else {
            others.push((entry.name, entry.kind));
            continue;
        };
        let path = folder.join(&entry.name);
        match dir.key(&entry.name) {
            Ok(key) => files.push(File {
                session: session.unwrap_or(stem).to_owned(),
                dir: None,
                found: Found { path, key, whole: true },
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound && entry.kind == Kind::File => {} // gone this moment
            Err(e) => problems.push((path, e)),
        }
    }
    others
}
