//! Finds the transcripts: where they lie, whose sub-agents lie below or beside them, and what was read on the way.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use lariat_core::{Row, Warning};
use lariat_sys::file::{self, Directory, Kind};

use super::below::{self, Below, sub_agents};
use super::fold::Transcript;
use super::registry;
use super::sessions::Telling;
use crate::agent_process as ap;
use crate::look::Scope;
use crate::reader::Reader;
use crate::store::{self, Early, Finder, Found, Known, Loading, in_parallel_with};

/// A transcript on disk, and the files of its sub-agents.
#[derive(Default)]
pub(super) struct Stored {
    pub session: Box<str>,
    pub main: Found,
    /// Its sub-agents, if it has any, or a folder where they would lie.
    pub below: Option<Box<Below>>,
    /// Whether all of its files are read, so that their tokens can be counted.
    pub counts: bool,
    /// What was known of the main one as it was found.
    pub known: Option<Known>,
    /// What that tells, if it is the only one.
    pub told: Option<Told>,
}

impl Stored {
    /// The files of its sub-agents.
    pub fn agents(&self) -> &[Found] {
        self.below.as_ref().map_or(&[], |below| &below.files)
    }
}

/// A session as it is told, unless it is none, and what could not be read of it.
pub(super) type Told = Box<(Option<Row>, Vec<Warning>)>;

/// Copies of transcripts that tell of nothing more: what is known of them is kept, so that it is known next time too.
pub(super) type Copies = Vec<(Found, Option<Known>)>;

/// Some of a folder's transcripts, and what could not be looked at.
type Share = (Vec<Stored>, Vec<Warning>);

/// What a folder holds.
#[derive(Default)]
struct InFolder {
    shares: Vec<Share>,
    /// Sub-agents beside their sessions.
    agents: Vec<Found>,
    warning: Option<Warning>,
    /// Sessions that were left out.
    hidden: Vec<String>,
}

/// Whether a session is asked about.
pub(super) type Needed<'a> = &'a (dyn Fn(&str) -> bool + Sync);

impl Telling<'_> {
    /// Finds the transcripts: `projects/<slug>/<id>.jsonl`, one per session, and what else there is of it.
    pub fn transcripts(
        &self,
        cache: &Loading,
        (warnings, partial): (&mut Vec<Warning>, &mut bool),
        hidden: &mut HashSet<String>,
        needed: Needed<'_>,
    ) -> (Vec<Stored>, Copies) {
        let projects = self.look.places.claude.join("projects");
        let entries = match Directory::open(&projects).and_then(|d| d.entries()) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Default::default(),
            Err(e) => {
                warnings.push(registry::warning(self.look, &projects, e.to_string()));
                *partial = true;
                return Default::default();
            }
        };
        let folders: Vec<PathBuf> = entries
            .into_iter()
            .filter(|e| matches!(e.kind, Kind::Directory | Kind::Unsure))
            .map(|e| projects.join(e.name))
            .collect();
        let own = || Finder::beside(cache);
        let found = in_parallel_with(folders, own, |finder, folder| self.in_folder(finder, cache, &folder, needed));
        let (mut shares, mut beside) = (Vec::with_capacity(found.len()), Vec::new());
        for in_folder in found {
            *partial |= in_folder.warning.is_some();
            warnings.extend(in_folder.warning);
            hidden.extend(in_folder.hidden);
            shares.extend(in_folder.shares);
            beside.extend(in_folder.agents);
        }
        let mut all: Vec<Stored> = Vec::with_capacity(shares.iter().map(|(found, _)| found.len()).sum());
        for (found, more) in shares {
            warnings.extend(more);
            all.extend(found);
        }
        // The same session in two folders is one session.
        all.sort_by_cached_key(|s| beside_each_other(&s.session));
        let mut copies = Vec::new();
        for same in all.chunk_by_mut(|a, b| a.session == b.session).filter(|same| same.len() > 1) {
            same.sort_unstable_by(|a, b| a.main.path.cmp(&b.main.path));
            let finder = Finder::<Transcript>::beside(cache);
            store::latest_first(&finder, same, |s| (&s.main, s.known.as_ref()), |t| t.updated);
        }
        all.dedup_by(|copy, first| {
            let same = copy.session == first.session;
            copies.extend(same.then(|| (std::mem::take(&mut copy.main), copy.known.take())));
            same
        });
        let mut shut: HashSet<PathBuf> = HashSet::new();
        for (agent, session) in below::owned(self.look, beside) {
            let session = match session {
                Ok(session) => session,
                Err(e) => {
                    warnings.push(registry::warning(self.look, &agent.path, e.to_string()));
                    shut.extend(agent.path.parent().map(Path::to_owned));
                    continue;
                }
            };
            let own = all.binary_search_by(|s| (*s.session).cmp(&*session)).ok().map(|i| &mut all[i]);
            if let Some(own) = own.filter(|s| s.main.path.parent() == agent.path.parent()) {
                own.below.get_or_insert_default().files.push(agent);
                own.told = None; // there is more to tell of it
            }
        }
        // Whatever cannot be read may be of any session there.
        let is_there = |s: &&mut Stored| s.main.path.parent().is_some_and(|folder| shut.contains(folder));
        for s in all.iter_mut().filter(|_| !shut.is_empty()).filter(is_there) {
            (s.counts, s.told) = (false, None);
        }
        (all, copies)
    }

    fn in_folder<'a>(
        &self,
        finder: &mut Finder<'a, Transcript>,
        cache: &'a Loading,
        folder: &Path,
        needed: Needed<'_>,
    ) -> InFolder {
        let opened = Directory::open(folder).and_then(|d| d.entries().map(|e| (d, e)));
        let (dir, entries) = match opened {
            Ok(opened) => opened,
            Err(e) => {
                let matters = e.kind() != io::ErrorKind::NotADirectory;
                let warning = matters.then(|| registry::warning(self.look, folder, e.to_string()));
                return InFolder { warning, ..InFolder::default() };
            }
        };
        let beside = entries.iter().filter(|e| e.kind == Kind::Directory && ap::is_uuid(&e.name));
        let beside: HashSet<&str> = beside.map(|e| e.name.as_str()).collect();
        let mut hidden = Vec::new();
        let mut wanted = Vec::with_capacity(if self.look.scope == Scope::All { entries.len() } else { 0 });
        for entry in &entries {
            match entry.name.strip_suffix(".jsonl").filter(|id| ap::is_uuid(id)) {
                Some(session) if needed(session) => wanted.push(Name { session, kind: entry.kind, name: &entry.name }),
                Some(session) => hidden.push(session.to_owned()),
                None => {}
            }
        }
        let agents = entries.iter().filter(|e| below::is_beside(&e.name) && !wanted.is_empty());
        let agents = agents.filter_map(|e| {
            let key = match dir.key(&e.name) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return None, // gone this moment
                key => key.unwrap_or_default(),
            };
            Some(Found { path: store::path(folder, &e.name), key, whole: false })
        });
        let agents = agents.collect();
        let shares = store::shared(finder, &|| Finder::beside(cache), &wanted, |finder, names| {
            let (mut found, mut warnings) = (Vec::with_capacity(names.len()), Vec::new());
            for name in names {
                found.extend(self.stored(finder, (&dir, folder), name, &beside, &mut warnings));
            }
            // Most sessions are one file, and told of while the folder is at hand; but one after the other is looked at
            // first, and then one after the other told of: each is quicker by itself.
            for stored in found.iter_mut().filter(|s: &&mut Stored| s.told.is_none() && s.agents().is_empty()) {
                let reading = stored.known.as_ref().and_then(|known| finder.reading(known));
                stored.told = reading.map(|reading| self.tell(stored, Ok(reading), Vec::new()));
            }
            (found, warnings)
        });
        InFolder { shares, agents, warning: None, hidden }
    }

    fn stored(
        &self,
        finder: &mut Finder<'_, Transcript>,
        (dir, folder): (&Directory, &Path),
        &Name { session, kind, name }: &Name<'_>,
        beside: &HashSet<&str>,
        warnings: &mut Vec<Warning>,
    ) -> Option<Stored> {
        let mut warn = |path: &Path, e: io::Error| warnings.push(registry::warning(self.look, path, e.to_string()));
        self.look.steps.fetch_add(1, Ordering::Relaxed);
        let path = store::path(folder, name);
        let (key, early) = match finder.find(dir, name, self.bound.bonds.contains_key(session)) {
            Ok(found) => found,
            Err(e) if e.kind() == io::ErrorKind::NotFound && kind == Kind::File => return None, // gone this moment
            Err(e) => {
                warn(&path, e);
                Default::default()
            }
        };
        let main = Found { path, key, whole: false };
        let mut stored = Stored { session: session.into(), main, counts: true, ..Stored::default() };
        if beside.contains(session) && key.inode != 0 {
            let below = sub_agents(&folder.join(session).join("subagents"), &mut warn);
            stored.counts = !below.shut;
            stored.below = Some(Box::new(below));
        }
        if let Some(Early { known, reading }) = early {
            let reading = reading.filter(|_| stored.agents().is_empty());
            stored.told = reading.map(|reading| self.tell(&stored, Ok(reading), Vec::new()));
            stored.known = Some(known);
        }
        Some(stored)
    }
}

/// An id that is compared where it lies: ten thousand are quicker to sort so than by going to each.
fn beside_each_other(id: &str) -> [u8; 36] {
    let mut bytes = [0; 36];
    bytes.iter_mut().zip(id.bytes()).for_each(|(to, byte)| *to = byte);
    bytes
}

/// What the two ends of a transcript tell, if it can be read.
pub(super) fn read(path: &Path) -> Option<Transcript> {
    let (file, key) = file::open(path).ok()?;
    let reading = Reader::<Transcript>::default().read(file, &key, None, false).ok()?;
    Some(reading).filter(|r| r.unread.is_none()).map(|r| r.fold)
}

/// Whether a session has a transcript, in whichever project.
pub(super) fn is_stored(store: &Path, session: &str) -> bool {
    let (projects, name) = (store.join("projects"), format!("{session}.jsonl"));
    let folders = Directory::open(&projects).and_then(|d| d.entries()).unwrap_or_default();
    folders.iter().any(|folder| projects.join(&folder.name).join(&name).exists())
}

/// A transcript's name in its folder.
struct Name<'a> {
    session: &'a str,
    name: &'a str,
    kind: Kind,
}
