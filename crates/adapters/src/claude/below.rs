//! What lies in a session's own folder: the files of its sub-agents (which those of older versions are, and which are at
//! work), and the title that a person gave it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use lariat_sys::file::{Directory, Kind};
use serde::{Deserialize, Serialize};

use crate::json::{Doc, Value};
use crate::look::Look;
use crate::reader::Fold;
use crate::store::{self, Found};

/// How far below its folder a sub-agent's files may lie: `workflows/<run>/agent-<id>.jsonl`.
pub const DEEPEST: usize = 4;

/// The sub-agents of a session.
#[derive(Default)]
pub struct Below {
    /// Their transcripts.
    pub files: Vec<Found>,
    /// All of which anything is said, by the name of their file: what each is for that has not recorded its end.
    pub described: BTreeMap<String, Option<String>>,
    /// Some could not be looked at: what they used is not known.
    pub shut: bool,
}

/// The name of a sub-agent's file, by which the others are told of it.
pub fn name(agent: &Found) -> &str {
    agent.path.file_stem().and_then(|name| name.to_str()).unwrap_or_default()
}

/// `agent-<id>.jsonl` and `agent-<id>.meta.json`, which says when it is finished.
/// One whose word cannot be read counts as at work, unless its own last turn is over. Those of a workflow lie in a
/// folder of their own.
pub fn sub_agents(folder: &Path, warn: &mut dyn FnMut(&Path, io::Error)) -> Below {
    let mut below = Below::default();
    collect(folder, &mut below, warn, DEEPEST);
    below.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    below
}

fn collect(folder: &Path, below: &mut Below, warn: &mut dyn FnMut(&Path, io::Error), deepest: usize) {
    let opened = Directory::open(folder).and_then(|d| d.entries().map(|e| (d, e)));
    let (dir, entries) = match opened {
        Ok(opened) => opened,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return,
        Err(e) => {
            below.shut = true;
            return warn(folder, e);
        }
    };
    for entry in entries {
        let path = folder.join(&entry.name);
        if entry.name.ends_with(".jsonl") {
            match dir.key(&entry.name) {
                Ok(key) => below.files.push(Found { path, key, whole: true }),
                Err(e) => {
                    below.shut = true;
                    warn(&path, e);
                }
            }
        } else if let Some(name) = entry.name.strip_suffix(".meta.json") {
            let what = unfinished(&path).unwrap_or_else(|e| {
                warn(&path, e);
                Some("sub-agent".to_owned())
            });
            below.described.insert(name.to_owned(), what);
        } else if entry.kind == Kind::Directory && deepest > 0 {
            collect(&path, below, warn, deepest - 1);
        }
    }
}

/// What a sub-agent that has not recorded its end is for.
fn unfinished(path: &Path) -> io::Result<Option<String>> {
    let bytes = lariat_sys::file::read_small(path, 1 << 20)?;
    let broken = || io::Error::new(io::ErrorKind::InvalidData, "not a description of a sub-agent: broken JSON");
    let doc = Doc::parse(&bytes, |_, _| true, 400).map_err(|_| broken())?;
    if !doc.root().is_object() {
        return Err(broken());
    }
    let what = doc.root().get("description").some_str().or(doc.root().get("agentType").some_str());
    Ok((!doc.root().get("finished").is_true()).then(|| what.unwrap_or("sub-agent").to_owned()))
}

/// The title that a person gave a session, as its folder has it beside the transcript.
pub fn custom_title(transcript: &Path) -> (PathBuf, io::Result<Option<String>>) {
    let path = transcript.with_extension("").join("custom-title.json");
    let read = || {
        let bytes = match lariat_sys::file::read_small(&path, 1 << 20) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        let broken = || io::Error::new(io::ErrorKind::InvalidData, "not a title: broken JSON");
        let doc = Doc::parse(&bytes, |_, _| true, 400).map_err(|_| broken())?;
        if !doc.root().is_object() {
            return Err(broken());
        }
        Ok(doc.root().get("customTitle").some_str().map(str::to_owned))
    };
    let title = read();
    (path, title)
}

/// Whether a file among the sessions' is a sub-agent's, as versions from 2.0 to 2.1 kept them.
pub fn is_beside(name: &str) -> bool {
    name.starts_with("agent-") && name.ends_with(".jsonl")
}

/// Those beside the sessions, each with the session that its first line tells, unless it cannot be read.
pub fn owned(look: &Look<'_>, beside: Vec<Found>) -> Vec<(Found, io::Result<String>)> {
    if beside.is_empty() {
        return Vec::new();
    }
    let owners = store::read_all::<Owner>(look, "claude-agents", &beside);
    let owned = beside.into_iter().zip(owners);
    let owned = owned.filter_map(|(agent, owner)| {
        Some((Found { whole: true, ..agent }, owner.map(|owner| owner.fold.0.clone()).transpose()?))
    });
    owned.collect()
}

/// The session that a sub-agent works for.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Owner(Option<String>);

impl Fold for Owner {
    fn keeps(parent: &[u8], key: &[u8]) -> bool {
        parent.is_empty() && key == b"sessionId"
    }

    fn line(&mut self, line: Value<'_>) {
        self.0 = self.0.take().or_else(|| line.get("sessionId").some_str().map(str::to_owned));
    }

    fn gap(&mut self) {}

    fn knows_head(&self) -> bool {
        self.0.is_some()
    }

    fn knows_tail(&self) -> bool {
        true
    }
}
