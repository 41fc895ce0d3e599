//! The older layout: a JSON file per session, message and part.
//!
//! Written for 1.1.65: `storage/session/<project>/<id>.json`,
//! `storage/message/<session>/<id>.json`, `storage/part/<message>/<id>.json`.
//! Versions before 0.6 had them by project: `project/<slug>/storage/session/info/<id>.json`, and beside `info` the
//! folders `message/<session>` and `part/<session>/<message>`; what is in both is copied.
//! Later versions leave these files where they are and import nothing, so they
//! stay true of what was said then. Ids rise with time, so the last name is the
//! newest. A session that the database knows too is told from there.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use lariat_sys::file::{self, Directory, Kind};

use super::record::{self, Stand, Stored, Sum};
use crate::json::Keep;
use crate::look::Look;

/// No file of this layout is larger that means anything.
const LARGEST: u64 = 32 << 20;

const SESSION: Keep = |parent, key| match parent {
    b"" => matches!(key, b"id" | b"directory" | b"title" | b"parentID" | b"time"),
    b"time" => matches!(key, b"created" | b"updated"),
    _ => false,
};

/// What was found, what could not be read, and how many were left out.
#[derive(Default)]
pub struct Contents {
    /// The sessions, in the order of their ids.
    pub sessions: Vec<Stored>,
    /// Files that could not be read, with the reason.
    pub problems: Vec<(PathBuf, String)>,
    /// Sessions that were not asked for.
    pub hidden: usize,
}

/// Where what was said in one session lies.
struct Place {
    messages: PathBuf,
    /// A folder in this one for each message.
    parts: PathBuf,
}

impl Place {
    /// By the file that tells of the session.
    fn of(session: &Path, id: &str) -> Option<Place> {
        let folder = session.parent()?;
        Some(match folder.file_name()?.to_str() {
            Some("info") => {
                let storage = folder.parent()?;
                Place { messages: storage.join("message").join(id), parts: storage.join("part").join(id) }
            }
            _ => {
                let storage = folder.ancestors().nth(2)?;
                Place { messages: storage.join("message").join(id), parts: storage.join("part") }
            }
        })
    }
}

/// Reads the sessions that are needed.
pub fn read(look: &Look<'_>, needed: &dyn Fn(&str) -> bool) -> Contents {
    let mut contents = Contents::default();
    let is_folder = |e: &file::Entry| e.kind != Kind::File && e.kind != Kind::Other;
    let folder = look.places.opencode.join("storage/session");
    let mut folders: Vec<PathBuf> =
        names(&folder, &mut contents.problems, is_folder).into_iter().map(|project| folder.join(project)).collect();
    let older = look.places.opencode.join("project");
    let projects = names(&older, &mut contents.problems, is_folder);
    folders.extend(projects.into_iter().map(|project| older.join(project).join("storage/session/info")));
    for folder in folders {
        for name in names(&folder, &mut contents.problems, |e| e.name.ends_with(".json")) {
            let Some(id) = name.strip_suffix(".json").filter(|id| id.starts_with("ses_")) else { continue };
            if !needed(id) {
                contents.hidden += 1;
                continue;
            }
            look.steps.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(&name);
            match session(&path, id, &mut contents.problems) {
                Ok(Some(stored)) => contents.sessions.push(stored),
                Ok(None) => {} // it works for another
                Err(e) => contents.problems.push((path, e)),
            }
        }
    }
    contents.sessions.sort_by(|a, b| a.id.cmp(&b.id));
    contents.sessions.dedup_by(|a, b| a.id == b.id);
    contents
}

/// The names in a folder, oldest first. A folder that is not there has none.
fn names(folder: &Path, problems: &mut Vec<(PathBuf, String)>, wanted: impl Fn(&file::Entry) -> bool) -> Vec<String> {
    let entries = match Directory::open(folder).and_then(|d| d.entries()) {
        Ok(entries) => entries,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Vec::new(),
        Err(e) => {
            problems.push((folder.to_owned(), e.to_string()));
            return Vec::new();
        }
    };
    let mut names: Vec<String> = entries.into_iter().filter(wanted).map(|e| e.name).collect();
    names.sort_unstable();
    names
}

fn session(path: &Path, id: &str, problems: &mut Vec<(PathBuf, String)>) -> Result<Option<Stored>, String> {
    let place = &Place::of(path, id).ok_or("a session lies nowhere")?;
    let bytes = file::read_small(path, LARGEST).map_err(|e| e.to_string())?;
    let doc = record::parse(&bytes, SESSION, 2000).map_err(|_| "a session is not JSON".to_owned())?;
    let root = doc.root();
    if !root.is_object() {
        return Err("a session is not JSON".into());
    }
    let is_stored =
        |above: &str| above != id && super::is_id(above) && path.with_file_name(format!("{above}.json")).exists();
    if root.get("parentID").some_str().is_some_and(is_stored) {
        return Ok(None);
    }
    let time = |key: &str| record::moment_of(root.get("time").get(key));
    let mut stored = Stored {
        id: id.to_owned(),
        directory: root.get("directory").some_str().map(str::to_owned),
        title: record::title(root.get("title").some_str().map(str::to_owned)),
        created: time("created"),
        updated: time("updated").or(time("created")).unwrap_or(0),
        transcript: path.to_owned(),
        ..Stored::default()
    };
    let folder = &place.messages;
    let messages = names(folder, problems, |e| e.name.ends_with(".json"));
    let counted = messages.len() <= record::COUNTED;
    let mut sum = Sum::default();
    if !counted {
        sum.lack();
    }
    let mut answered: Option<crate::json::Doc> = None;
    for (i, name) in messages.iter().enumerate() {
        let last = i + 1 == messages.len();
        if !last && i > 0 && !counted {
            continue;
        }
        let path = folder.join(name);
        let read = file::read_small(&path, LARGEST).map_err(|e| e.to_string());
        let doc = match read.and_then(|bytes| record::message(&bytes)) {
            Ok(doc) => doc,
            Err(e) => {
                sum.lack();
                if last {
                    stored.stand = Stand::Unread(e.clone());
                }
                problems.push((path, e));
                continue;
            }
        };
        let message = doc.root();
        let is = |role: &str| message.get("role").str() == Some(role);
        if is("user") && stored.prompt.is_none() && i == 0 {
            stored.prompt = prompt(place, name, problems);
        }
        if is("assistant") && stored.directory.is_none() {
            stored.directory = message.get("path").get("cwd").some_str().map(str::to_owned);
        }
        sum.add(message);
        let mute = last && record::ends_without_a_word(message);
        if last {
            stored.stand = record::stand(message);
            let at = |key: &str| record::moment_of(message.get("time").get(key));
            stored.since = at("created").unwrap_or(0);
            stored.updated = stored.updated.max(at("completed").unwrap_or(stored.since));
            if is("user")
                && let Some(doc) = &answered
                && let Some(stand) = record::stand_behind(stored.since, doc.root())
            {
                stored.stand = stand;
            }
            if stored.is_open() {
                for part in parts(place, name, problems) {
                    stored.take(part.root());
                }
            } else if mute && !parts(place, name, problems).any(|part| record::gives(part.root())) {
                stored.given_up();
            }
        }
        if is("assistant") {
            answered = Some(doc);
        }
    }
    (stored.tokens, stored.cost) = sum.told();
    stored.model = sum.model;
    Ok(Some(stored))
}

/// The parts of a message, oldest first; what cannot be read is told.
fn parts<'a>(
    place: &Place,
    message: &str,
    problems: &'a mut Vec<(PathBuf, String)>,
) -> impl Iterator<Item = crate::json::Doc> + use<'a> {
    let folder = place.parts.join(message.trim_end_matches(".json"));
    let names = names(&folder, problems, |e| e.name.ends_with(".json"));
    names.into_iter().filter_map(move |name| {
        let path = folder.join(name);
        let read = file::read_small(&path, LARGEST).map_err(|e| e.to_string());
        read.and_then(|bytes| record::part(&bytes, 1 << 20)).map_err(|e| problems.push((path, e))).ok()
    })
}

fn prompt(place: &Place, message: &str, problems: &mut Vec<(PathBuf, String)>) -> Option<String> {
    parts(place, message, problems).find_map(|doc| record::spoken(doc.root()).map(str::to_owned))
}

/// Every message of a session with its parts, oldest first, for what was said.
pub fn conversation(transcript: &Path) -> io::Result<Vec<(crate::json::Doc, Vec<crate::json::Doc>)>> {
    let id = transcript.file_stem().and_then(|s| s.to_str()).ok_or(io::ErrorKind::InvalidInput)?;
    let place = Place::of(transcript, id).ok_or(io::ErrorKind::InvalidInput)?;
    let folder = &place.messages;
    let mut problems = Vec::new();
    let mut all = Vec::new();
    for name in names(folder, &mut problems, |e| e.name.ends_with(".json")) {
        let Ok(message) = record::message(&file::read_small(&folder.join(&name), LARGEST)?) else { continue };
        let parts = parts(&place, &name, &mut problems).collect();
        all.push((message, parts));
    }
    Ok(all)
}
