//! Fuses: what a person wants done when a time is up or a budget is used.
//!
//! # Theory of operation
//!
//! A fuse is a wish, stored durably, one file each; setting, extending and cancelling
//! it is writing that file, by the command line. The daemon reads them at every look,
//! and looks when the next one is due. When one burns down, it is done what was asked,
//! once: ending is idempotent and is marked after it was done; a command or an event is
//! in the outbox under the fuse's own id before the fuse is marked, and a mark that a
//! crash cut off is made good before anything is sent.
//!
//! A budget that cannot be told (tokens that are `null`) burns nothing. A fuse on a
//! session never does anything to another one.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use lariat_adapters::look::Places;
use lariat_core::{Listing, Session, Time, Untrusted, Warning};
use lariat_sys::{clock, durable, file};
use serde::{Deserialize, Serialize};

/// No fuse is longer.
const LARGEST: u64 = 1 << 16;
/// How long one that has burnt is remembered, in milliseconds.
const REMEMBERED: i64 = 7 * 86_400_000;
/// From this part of a budget on it is warned.
const WARN: f64 = 0.8;

/// A fuse.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Fuse {
    /// Its name, for cancelling.
    pub id: String,
    /// What it is on.
    pub on: On,
    /// What burns it.
    pub limit: Limit,
    /// What is done then: `stop`, `kill`, `command`, or `tell`.
    pub then: String,
    /// The command, if it is one.
    pub run: Option<String>,
    /// Who set it.
    pub by: String,
    /// When it was set.
    pub at: Time,
    /// When it was told that it is about to burn down.
    #[serde(default)]
    pub warned_at: Option<Time>,
    /// When it burnt down.
    #[serde(default)]
    pub fired_at: Option<Time>,
    /// How that went.
    #[serde(default)]
    pub outcome: Option<String>,
}

/// What a fuse is on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// A session, by its id.
    Session(String),
    /// Every session in a directory or below it.
    Directory(String),
}

/// What burns a fuse.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// This moment.
    Until(Time),
    /// So many tokens, sent and received.
    Tokens(u64),
    /// So many dollars.
    Cost(f64),
    /// So many milliseconds since it was started.
    Age(i64),
    /// So many milliseconds without a turn.
    Idle(i64),
}

/// How far a fuse has burnt.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Burnt {
    /// 1 is all of it.
    pub part: f64,
    /// When it will have burnt down, if only time burns it.
    pub down_at: Option<Time>,
}

impl Fuse {
    /// The live sessions that it is on.
    pub fn sessions<'a>(&'a self, listing: &'a Listing) -> impl Iterator<Item = &'a Session> {
        let live = listing.sessions.iter().filter(|s| s.live == Some(true)).map(|s| &**s);
        live.filter(|s| match &self.on {
            On::Session(id) => s.is(id),
            On::Directory(path) => s.cwd.as_ref().is_some_and(|cwd| is_within(Path::new(cwd.raw()), Path::new(path))),
        })
    }

    /// How far it has burnt for one session; `None` if that cannot be told.
    pub fn burnt(&self, session: Option<&Session>, now: Time) -> Option<Burnt> {
        let by_time = |from: Time, to: Time| {
            let part = (now.0 - from.0) as f64 / (to.0 - from.0).max(1) as f64;
            Some(Burnt { part, down_at: Some(to) })
        };
        let used = |used: f64, limit: f64| Some(Burnt { part: used / limit.max(f64::MIN_POSITIVE), down_at: None });
        match self.limit {
            Limit::Until(at) => by_time(self.at, at),
            Limit::Tokens(most) => session?.tokens.and_then(|t| used((t.input + t.output) as f64, most as f64)),
            Limit::Cost(most) => session?.cost_usd.and_then(|c| used(c, most)),
            Limit::Age(most) => session?.started_at.and_then(|from| by_time(from, Time(from.0 + most))),
            Limit::Idle(most) => {
                let session = session.filter(|s| s.at_its_prompt())?;
                session.updated_at.and_then(|from| by_time(from, Time(from.0 + most)))
            }
        }
    }

    fn name(&self) -> String {
        format!("{}.json", self.id)
    }
}

/// What is to be done with a fuse now.
#[derive(Clone, PartialEq, Debug)]
pub enum Due {
    /// It has burnt down, for these sessions.
    Fire(Vec<String>),
    /// It is about to.
    Warn(Vec<String>),
    /// Nothing, before this moment, if one is known.
    Wait(Option<Time>),
}

/// Decides what is to be done with a fuse.
pub fn due(fuse: &Fuse, listing: &Listing, now: Time) -> Due {
    if fuse.fired_at.is_some() {
        return Due::Wait(None);
    }
    let ids = |sessions: &[&Session]| sessions.iter().map(|s| s.id.raw().to_owned()).collect();
    let sessions: Vec<&Session> = fuse.sessions(listing).collect();
    if let Limit::Until(at) = fuse.limit {
        // A time is up whether anybody is there or not.
        return if at <= now { Due::Fire(ids(&sessions)) } else { Due::Wait(Some(at)) };
    }
    let burnt: Vec<(&Session, Burnt)> = sessions.iter().filter_map(|s| Some((*s, fuse.burnt(Some(s), now)?))).collect();
    let beyond = |part: f64| burnt.iter().filter(|(_, b)| b.part >= part).map(|(s, _)| *s).collect::<Vec<_>>();
    let down = beyond(1.0);
    if !down.is_empty() {
        return Due::Fire(ids(&down));
    }
    let warned = beyond(WARN);
    if fuse.warned_at.is_none() && !warned.is_empty() {
        return Due::Warn(ids(&warned));
    }
    let moments = burnt.iter().filter_map(|(_, b)| {
        let (to, part) = (b.down_at?, b.part);
        // When it will have burnt so far that it is warned, or down.
        let left = to.0 - now.0;
        let whole = left as f64 / (1.0 - part).max(f64::MIN_POSITIVE);
        Some(if fuse.warned_at.is_none() { Time(to.0 - (whole * (1.0 - WARN)) as i64 + 1) } else { to })
    });
    Due::Wait(moments.min())
}

/// Whether a directory is another one or lies below it, by whatever names: some agents tell a link where they work.
fn is_within(cwd: &Path, directory: &Path) -> bool {
    let same = |place| cwd.ancestors().any(|above| file::place(above).is_ok_and(|p| p == place));
    cwd.starts_with(directory) || file::place(directory).is_ok_and(same)
}

fn folder(places: &Places) -> PathBuf {
    places.state.join("fuses")
}

/// Where fuses are.
pub fn place(places: &Places) -> PathBuf {
    folder(places)
}

/// All fuses, oldest first, and what could not be read.
pub fn read(places: &Places) -> (Vec<Fuse>, Vec<Warning>) {
    let folder = folder(places);
    let entries = match file::Directory::open(&folder).and_then(|d| d.entries()) {
        Ok(entries) => entries,
        Err(_) => return (Vec::new(), Vec::new()), // none was set
    };
    let (mut fuses, mut warnings) = (Vec::new(), Vec::new());
    for entry in entries.into_iter().filter(|e| e.name.ends_with(".json")) {
        let path = folder.join(&entry.name);
        let read = file::read_small(&path, LARGEST).map_err(|e| e.to_string());
        let read = read.and_then(|b| match serde_json::from_slice::<Fuse>(&b) {
            Ok(fuse) if fuse.name() == entry.name => Ok(fuse),
            Ok(fuse) => Err(format!("not called by what it holds; call it {}", fuse.name())),
            Err(e) => Err(format!("not a fuse of ours: {e}")),
        });
        match read {
            Ok(fuse) => fuses.push(fuse),
            Err(error) => warnings.push(Warning {
                adapter: "lariat",
                path: Some(places.shown(&path)),
                error: Untrusted::new(error),
                last_ok: None,
            }),
        }
    }
    fuses.sort_by(|a, b| (a.at, &a.id).cmp(&(b.at, &b.id)));
    (fuses, warnings)
}

/// Stores a fuse, whatever stands there; when it returns, no crash undoes it.
pub fn put(places: &Places, fuse: &Fuse) -> io::Result<()> {
    let _lock = lock(places)?;
    store(places, fuse)
}

fn store(places: &Places, fuse: &Fuse) -> io::Result<()> {
    let folder = folder(places);
    durable::make_folder(&folder)?;
    durable::put(&folder, &fuse.name(), serde_json::to_string(fuse)?.as_bytes())
}

/// Stores a fuse in the place of the one that was read, unless a person has changed that or taken it away since; whether it
/// did.
pub fn replace(places: &Places, read: &Fuse, fuse: &Fuse) -> io::Result<bool> {
    let _lock = lock(places)?;
    let stands = is_still(places, read);
    if stands {
        store(places, fuse)?;
    }
    Ok(stands)
}

/// Whether a fuse is what it was when it was read.
pub fn is_still(places: &Places, read: &Fuse) -> bool {
    let now = file::read_small(&folder(places).join(read.name()), LARGEST).ok();
    now.and_then(|bytes| serde_json::from_slice::<Fuse>(&bytes).ok()).as_ref() == Some(read)
}

/// Held by who changes one or takes one away. Not in the folder of the fuses, which is watched.
fn lock(places: &Places) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    durable::make_folder(&places.state)?;
    let path = places.state.join("fuses.lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.lock()?;
    Ok(file)
}

/// Takes a fuse away.
pub fn remove(places: &Places, fuse: &Fuse) -> io::Result<()> {
    let _lock = lock(places)?;
    let folder = folder(places);
    #[expect(clippy::disallowed_methods, reason = "a fuse that its person takes away, or that has long burnt down")]
    std::fs::remove_file(folder.join(fuse.name())).and_then(|()| durable::sync(&folder))
}

/// Forgets those that burnt down long ago.
pub fn tidy(places: &Places) {
    let old = |f: &Fuse| f.fired_at.is_some_and(|at| at.0 + REMEMBERED < clock::now_ms());
    for fuse in read(places).0.iter().filter(|f| old(f)) {
        let _ = remove(places, fuse); // next time, then
    }
}

/// A short name that no fuse has.
pub fn new_id(places: &Places) -> io::Result<String> {
    let taken = read(places).0;
    loop {
        let id = lariat_adapters::new_uuid()?[..6].to_owned();
        if !taken.iter().any(|f| f.id == id) {
            return Ok(id);
        }
    }
}

#[cfg(test)]
#[path = "fuses_tests.rs"]
mod tests;
