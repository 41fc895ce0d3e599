//! Which transcripts there are: `projects/<slug>/<id>.jsonl`, one per session, and those of its sub-agents.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use lariat_core::Warning;
use lariat_sys::file::{Directory, Entry, Kind};
use serde::{Deserialize, Serialize};

use super::registry;
use crate::agent_process as ap;
use crate::json::{Doc, Keep, Value};
use crate::look::{Look, Report, Scope};
use crate::reader::Fold;
use crate::store::{self, Found, in_parallel};

/// How far below its folder a sub-agent's files may lie: `workflows/<run>/agent-<id>.jsonl`.
pub const DEEPEST: usize = 4;

/// A transcript on disk, and the files of its sub-agents.
#[derive(Default)]
pub struct Stored {
    /// The session.
    pub session: String,
    /// Its own transcript.
    pub main: Found,
    /// Those of its sub-agents.
    pub agents: Vec<Found>,
    /// Sub-agents that have not recorded their end, by the name of their file: what each is for.
    pub unfinished: Vec<(String, String)>,
    /// Whether all of its files are read, so that their tokens can be counted.
    pub counts: bool,
}

/// Finds the transcripts: `projects/<slug>/<id>.jsonl`, one per session.
pub fn transcripts(
    look: &Look<'_>,
    report: &mut Report,
    hidden: &mut HashSet<String>,
    needed: &(dyn Fn(&str) -> bool + Sync),
) -> Vec<Stored> {
    let projects = look.places.claude.join("projects");
    let entries = match Directory::open(&projects).and_then(|d| d.entries()) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(e) => {
            report.warnings.push(registry::warning(look, &projects, e.to_string()));
            return Vec::new();
        }
    };
    let folders: Vec<PathBuf> = entries
        .into_iter()
        .filter(|e| matches!(e.kind, Kind::Directory | Kind::Unsure))
        .map(|e| projects.join(e.name))
        .collect();
    let folders = in_parallel(folders, |folder| in_folder(look, &folder, needed));
    let mut all: Vec<Stored> = Vec::with_capacity(folders.iter().map(|(found, ..)| found.len()).sum());
    let mut loose = Vec::new();
    for (found, agents, warnings, left_out) in folders {
        report.warnings.extend(warnings);
        hidden.extend(left_out);
        all.extend(found);
        loose.extend(agents);
    }
    // The same session in two folders is one session: the newer file tells.
    all.sort_unstable_by(|a, b| a.session.cmp(&b.session).then(b.main.key.mtime.cmp(&a.main.key.mtime)));
    all.dedup_by(|a, b| a.session == b.session);
    assign(look, loose, &mut all);
    all
}

/// Versions from 2.0 to 2.1 kept the transcripts of sub-agents beside those of sessions. Whose one is, its first
/// line tells.
fn assign(look: &Look<'_>, loose: Vec<Found>, all: &mut [Stored]) {
    if loose.is_empty() {
        return;
    }
    let owners = store::read_all::<Owner>(look, "claude-agents", &loose);
    for (agent, owner) in loose.into_iter().zip(owners) {
        let Some(session) = owner.ok().and_then(|o| o.fold.0.clone()) else { continue };
        let own = all.binary_search_by(|s| s.session.as_str().cmp(&session)).ok().map(|i| &mut all[i]);
        if let Some(own) = own.filter(|s| s.main.path.parent() == agent.path.parent()) {
            own.agents.push(Found { whole: true, ..agent });
        }
    }
}

/// The session that a sub-agent works for.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Owner(Option<String>);

impl Fold for Owner {
    const KEEP: Keep = |parent, key| parent.is_empty() && key == b"sessionId";

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

/// Sessions, sub-agents beside them, warnings, and what was left out.
type InFolder = (Vec<Stored>, Vec<Found>, Vec<Warning>, Vec<String>);

fn in_folder(look: &Look<'_>, folder: &Path, needed: &(dyn Fn(&str) -> bool + Sync)) -> InFolder {
    let mut warnings = Vec::new();
    let mut warn = |path: &Path, e: io::Error| warnings.push(registry::warning(look, path, e.to_string()));
    let opened = Directory::open(folder).and_then(|d| d.entries().map(|e| (d, e)));
    let (dir, entries) = match opened {
        Ok(opened) => opened,
        Err(e) => {
            if e.kind() != io::ErrorKind::NotADirectory {
                warn(folder, e);
            }
            return (Vec::new(), Vec::new(), warnings, Vec::new());
        }
    };
    let mut found = Vec::with_capacity(if look.scope == Scope::All { entries.len() } else { 0 });
    let mut hidden = Vec::new();
    let beside: Vec<&str> =
        entries.iter().filter(|e| e.kind == Kind::Directory && ap::is_uuid(&e.name)).map(|e| e.name.as_str()).collect();
    for entry in &entries {
        let Some(session) = entry.name.strip_suffix(".jsonl").filter(|id| ap::is_uuid(id)) else { continue };
        if !needed(session) {
            hidden.push(session.to_owned());
            continue;
        }
        let path = folder.join(&entry.name);
        look.steps.fetch_add(1, Ordering::Relaxed);
        match dir.key(&entry.name) {
            Ok(key) => {
                let mut stored = Stored {
                    session: session.to_owned(),
                    main: Found { path, key, whole: false },
                    counts: true,
                    ..Stored::default()
                };
                if beside.contains(&session) {
                    sub_agents(&folder.join(session).join("subagents"), &mut stored, &mut warn, DEEPEST);
                    stored.agents.sort_unstable_by(|a, b| a.path.cmp(&b.path));
                }
                found.push(stored);
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound && entry.kind == Kind::File => {} // gone this moment
            Err(e) => {
                warn(&path, e);
                found.push(Stored {
                    session: session.to_owned(),
                    main: Found { path, key: Default::default(), whole: false },
                    counts: true,
                    ..Stored::default()
                });
            }
        }
    }
    let is_agent = |e: &&Entry| e.name.starts_with("agent-") && e.name.ends_with(".jsonl");
    let agents = entries.iter().filter(is_agent).filter(|_| !found.is_empty());
    let agents = agents.filter_map(|e| {
        let key = dir.key(&e.name).ok()?;
        Some(Found { path: folder.join(&e.name), key, whole: false })
    });
    let agents = agents.collect();
    (found, agents, warnings, hidden)
}

/// `agent-<id>.jsonl` and `agent-<id>.meta.json`, which says when it is finished.
/// One whose word cannot be read counts as at work, unless its own last turn is over. Those of a workflow lie in a
/// folder of their own.
fn sub_agents(folder: &Path, stored: &mut Stored, warn: &mut dyn FnMut(&Path, io::Error), deepest: usize) {
    let opened = Directory::open(folder).and_then(|d| d.entries().map(|e| (d, e)));
    let (dir, entries) = match opened {
        Ok(opened) => opened,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return,
        Err(e) => return warn(folder, e),
    };
    for entry in entries {
        let path = folder.join(&entry.name);
        if entry.name.ends_with(".jsonl") {
            match dir.key(&entry.name) {
                Ok(key) => stored.agents.push(Found { path, key, whole: true }),
                Err(e) => warn(&path, e),
            }
        } else if let Some(name) = entry.name.strip_suffix(".meta.json") {
            let what = unfinished(&path).unwrap_or_else(|e| {
                warn(&path, e);
                Some("sub-agent".to_owned())
            });
            stored.unfinished.extend(what.map(|what| (name.to_owned(), what)));
        } else if entry.kind == Kind::Directory && deepest > 0 {
            sub_agents(&path, stored, warn, deepest - 1);
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
