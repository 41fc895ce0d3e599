//! The files of Codex's threads: where they are, and which of them tell of one thread.
//!
//! A thread has one rollout, until it is rewound: then it goes on in another, which says how much of the earlier one still
//! belongs to it.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use lariat_sys::file::{self, Directory, Kind};

use super::bind::{rollout_of, thread_of};
use super::fold::Rollout;
use super::warning;
use crate::json::Doc;
use crate::look::{Look, Places, Report};
use crate::reader::Source;
use crate::store::{self, Finder, Found, Known, Loading, Readings, in_parallel, in_parallel_with};

/// One rollout of a thread.
pub struct Stored {
    /// The thread.
    pub thread: String,
    /// Of a thread that was rewound: the id of the rollout that it went on in.
    pub rewound: Option<String>,
    /// The thread went on in another rollout.
    pub superseded: bool,
    /// The file.
    pub file: Found,
    /// What was known of it as it was found.
    pub known: Option<Known>,
}

/// Copies of rollouts that tell of nothing more: what is known of them is kept, so that it is known next time too.
pub type Copies = Vec<(Found, Option<Known>)>;

/// Finds `sessions/YYYY/MM/DD/rollout-*.jsonl` and the archived ones, one per thread, and those before it of a thread
/// that was rewound.
pub fn rollouts(look: &Look<'_>, report: &mut Report, cache: &Loading, needed: Needed<'_>) -> (Vec<Stored>, Copies) {
    let mut all = found(look, report, || Finder::beside(cache), needed);
    // Their ids tell the time that they were made at.
    fn by_rollout(s: &Stored) -> (&str, Option<&str>) {
        (&s.thread, s.rewound.as_deref())
    }
    all.sort_unstable_by(|a, b| (by_rollout(a), &a.file.path).cmp(&(by_rollout(b), &b.file.path)));
    let mut copies = Vec::new();
    for same in all.chunk_by_mut(|a, b| by_rollout(a) == by_rollout(b)).filter(|same| same.len() > 1) {
        let finder = Finder::<Rollout>::beside(cache);
        store::latest_first(&finder, same, |s| (&s.file, s.known.as_ref()), |f| f.updated);
    }
    all.dedup_by(|copy, first| {
        let same = by_rollout(copy) == by_rollout(first);
        copies.extend(same.then(|| (std::mem::take(&mut copy.file), copy.known.take())));
        same
    });
    for i in 1..all.len() {
        all[i - 1].superseded = all[i - 1].thread == all[i].thread;
    }
    (all, copies)
}

/// What the earlier rollouts tell of a thread that was rewound.
#[derive(Default)]
pub struct Beginning {
    /// What was asked first, of what is still said.
    pub prompt: Option<String>,
    /// When it began.
    pub started: Option<i64>,
    /// The model that it was with.
    pub model: Option<String>,
}

/// Of the threads that were rewound, what is told before the last rollout. Of each one only what stands before the point
/// that a later one goes on from is still said.
pub fn beginnings(stored: &[Stored], readings: &Readings<Rollout>) -> HashMap<String, Beginning> {
    let mut begun = HashMap::new();
    let numbered: Vec<(usize, &Stored)> = stored.iter().enumerate().collect();
    for files in numbered.chunk_by(|a, b| a.1.thread == b.1.thread).filter(|files| files.len() > 1) {
        let folds: Vec<Rollout> =
            files.iter().filter_map(|(i, s)| Some(readings.get(*i, &s.file).ok()?.fold.clone())).collect();
        let prompt = folds.iter().enumerate().find_map(|(i, f)| {
            let until = folds[i + 1..].iter().filter_map(|later| later.base).min();
            let kept = until.is_none_or(|until| f.prompt_at.is_some_and(|at| at < until));
            f.prompt.clone().filter(|_| kept)
        });
        let started = folds.iter().filter_map(|f| f.started).min();
        let model = folds.iter().rev().find_map(|f| f.model.clone());
        begun.insert(files[0].1.thread.clone(), Beginning { prompt, started, model });
    }
    begun
}

/// Every rollout with its thread, also those of a thread that has several.
pub fn listed(look: &Look<'_>, report: &mut Report) -> Vec<(String, Found)> {
    found(look, report, Finder::default, &|_| true).into_iter().map(|s| (s.thread, s.file)).collect()
}

/// Where those lie that a person has put away.
const ARCHIVED: &str = "archived_sessions";

/// Whether a person has put a thread away: then Codex goes on with it only after it was brought back.
pub fn is_archived(rollout: &Path) -> bool {
    rollout.parent().is_some_and(|folder| folder.ends_with(ARCHIVED))
}

/// Whether a thread is asked about.
type Needed<'a> = &'a (dyn Fn(&str) -> bool + Sync);

fn found<'a>(
    look: &Look<'_>,
    report: &mut Report,
    finder: impl Fn() -> Finder<'a, Rollout> + Sync,
    needed: Needed<'_>,
) -> Vec<Stored> {
    let mut problems = Vec::new();
    let folders = all_folders(look.places, &mut |path, e| problems.push((path, e.to_string())));
    let mut all = Vec::new();
    report.partial |= !problems.is_empty();
    let in_folders = in_parallel_with(folders, &finder, |own, folder| in_folder(look, own, &finder, &folder, needed));
    for (found, more, hidden) in in_folders {
        // A folder that is shut may hold any thread; of a file it is known which.
        report.partial |= more.iter().any(|(path, _)| path.extension().is_none());
        problems.extend(more);
        report.hidden += hidden;
        all.extend(found);
    }
    report.warnings.extend(problems.into_iter().map(|(path, e)| warning(look, &path, e)));
    all
}

/// The rollout that a fork continues, and how many of its bytes belong to it.
pub fn base_of(places: &Places, transcript: &Path) -> Option<(PathBuf, u64)> {
    let (opened, _) = file::open(transcript).ok()?;
    let mut source = Source::default();
    source.open(opened);
    let mut doc = Doc::new(100);
    let keep = |_: &[u8], key: &[u8]| matches!(key, b"payload" | b"history_base" | b"thread_id" | b"end_byte_offset");
    doc.read(&mut source, keep).ok()?;
    let base = doc.root().get("payload").get("history_base");
    let (rollout, end) = (base.get("thread_id").str()?, base.get("end_byte_offset").u64()?);
    let found = all_folders(places, &mut |_, _| ()).into_iter().find_map(|folder| {
        let entries = Directory::open(&folder).and_then(|d| d.entries()).ok()?;
        entries.into_iter().find(|e| rollout_of(&e.name) == Some(rollout)).map(|e| folder.join(e.name))
    })?;
    Some((found, end))
}

/// Every folder that may hold rollouts; what cannot be opened is told. The first versions laid them into `sessions` itself.
fn all_folders(places: &Places, warn: &mut dyn FnMut(PathBuf, io::Error)) -> Vec<PathBuf> {
    let sessions = places.codex.join("sessions");
    let mut level = vec![sessions.clone()];
    let mut is_there = true;
    for _ in 0..3 {
        let inner = in_parallel(level, |folder| (subfolders(&folder), folder));
        level = Vec::new();
        for (found, folder) in inner {
            match found {
                Ok(found) => level.extend(found),
                Err(e) => {
                    is_there &= folder != sessions;
                    if e.kind() != io::ErrorKind::NotFound {
                        warn(folder, e);
                    }
                }
            }
        }
    }
    level.extend(is_there.then_some(sessions));
    level.push(places.codex.join(ARCHIVED));
    level
}

fn subfolders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = Directory::open(folder)?.entries()?;
    let folders = entries.into_iter().filter(|e| matches!(e.kind, Kind::Directory | Kind::Unsure));
    Ok(folders.map(|e| folder.join(e.name)).collect())
}

/// What could not be read, and why.
type Problem = (PathBuf, String);

fn in_folder<'a>(
    look: &Look<'_>,
    own: &mut Finder<'a, Rollout>,
    finder: &(impl Fn() -> Finder<'a, Rollout> + Sync),
    folder: &Path,
    needed: Needed<'_>,
) -> (Vec<Stored>, Vec<Problem>, usize) {
    let (mut wanted, mut problems, mut hidden) = (Vec::new(), Vec::new(), 0);
    let opened = Directory::open(folder).and_then(|d| d.entries().map(|e| (d, e)));
    let (dir, entries) = match opened {
        Ok(opened) => opened,
        Err(e) => {
            if e.kind() != io::ErrorKind::NotFound {
                problems.push((folder.to_owned(), e.to_string()));
            }
            return (Vec::new(), problems, hidden);
        }
    };
    for entry in &entries {
        if entry.name.ends_with(".jsonl.zst") {
            problems.push((folder.join(&entry.name), "compressed rollouts are not read".into()));
            continue;
        }
        match thread_of(&entry.name) {
            Some(thread) if needed(thread) => wanted.push((thread, entry)),
            Some(_) => hidden += 1,
            None => {}
        }
    }
    let shares = store::shared(own, finder, &wanted, |finder, wanted| {
        let (mut found, mut problems) = (Vec::with_capacity(wanted.len()), Vec::new());
        for (thread, entry) in wanted {
            look.steps.fetch_add(1, Ordering::Relaxed);
            let path = store::path(folder, &entry.name);
            let (key, early) = match finder.find(&dir, &entry.name, false) {
                Ok(found) => found,
                Err(e) if e.kind() == io::ErrorKind::NotFound && entry.kind == Kind::File => continue,
                Err(e) => {
                    problems.push((path.clone(), e.to_string()));
                    Default::default()
                }
            };
            let known = early.map(|early| early.known);
            let rewound = rollout_of(&entry.name).filter(|own| own != thread).map(str::to_owned);
            let file = Found { path, key, whole: false };
            found.push(Stored { thread: (*thread).to_owned(), rewound, superseded: false, file, known });
        }
        (found, problems)
    });
    let mut all = Vec::new();
    for (found, more) in shares {
        all.extend(found);
        problems.extend(more);
    }
    (all, problems, hidden)
}
