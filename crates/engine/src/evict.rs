//! Forgetting what has ended long ago.
//!
//! Only our own records go, and only of sessions whose process is proven gone
//! and whose shim is gone too; the agents' stores are not ours to touch. What
//! cannot be read or told stays. What could not be read, was put aside and told
//! of for as long goes too.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lariat_adapters::look::Places;
use lariat_adapters::settings::Settings;
use lariat_core::{Time, Want};
use lariat_sys::process::{Identity, environment};
use lariat_sys::scan::{Process, Table};
use lariat_sys::{clock, file};

use crate::launched::Launched;
use crate::list::{Answer, Known};
use crate::records::{self, Wish, Wishes, folder_name};

/// How long what has ended is kept, unless a person says otherwise.
const RETAIN: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long what has ended is kept; or what is wrong with settings that may say it and cannot be read. Then nothing is
/// forgotten: they may ask for more time.
pub fn retain(places: &Places) -> Result<Duration, String> {
    let settings = Settings::read(places);
    settings.unreadable().map_or_else(|| Ok(settings.retain.unwrap_or(RETAIN)), Err)
}

/// A folder of ours that is no longer needed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Old {
    /// The folder.
    pub folder: PathBuf,
    /// Whose it is: a handle, or an agent and an id.
    pub name: String,
    /// When its session was last heard of.
    pub last: Time,
}

/// Which sessions live or may live: a person may have gone on with one by hand.
#[derive(Debug)]
pub struct Living {
    ids: HashSet<String>,
    untold: Vec<&'static str>,
}

impl Living {
    /// As a look told.
    pub fn of(answer: &Answer) -> Living {
        let living = answer.listing.sessions.iter().filter(|s| s.live != Some(false));
        Living { ids: living.map(|s| s.id.raw().to_owned()).collect(), untold: answer.untold.clone() }
    }

    /// Whether this one may: of an agent whose store could not be read whole any may.
    fn may_be(&self, launched: &Launched) -> bool {
        let agent = launched.record.agent.split(':').next();
        self.untold.iter().any(|untold| *untold == "process" || Some(*untold) == agent)
            || id_of(launched).is_some_and(|id| self.ids.contains(&id))
    }
}

/// What may be forgotten now.
pub fn old(places: &Places, retain: Duration, living: &Living) -> Vec<Old> {
    old_among(places, retain, &Known::read(places), living)
}

/// The same, by what was read before: of most it tells that they may not. What may go is looked at again.
pub(crate) fn old_among(places: &Places, retain: Duration, known: &Known, living: &Living) -> Vec<Old> {
    let sessions = places.state.join("sessions");
    let entries = file::Directory::open(&sessions).and_then(|d| d.entries()).unwrap_or_default();
    let limit = limit(retain);
    let Known { wishes, launched } = known;
    let launched = launched.by_id.values().chain(&launched.without_id);
    let launched: HashMap<&Path, &Launched> = launched.map(|l| (l.folder.as_path(), l)).collect();
    let stays = |l: &Launched| match &l.exit {
        _ if living.may_be(l) => true,
        Some(exit) => exit.at.0 >= limit,
        None => last_of_launched(l, wish_of(wishes, l)).is_none_or(|last| last.0 >= limit),
    };
    let wished = OnceCell::new();
    let mut found: Vec<Old> = entries
        .into_iter()
        .filter_map(|entry| {
            let folder = sessions.join(&entry.name);
            if launched.get(folder.as_path()).is_some_and(|l| stays(l)) {
                return None;
            }
            let last = match Launched::read(&folder) {
                Ok(Some(launched)) => last_of_launched(&launched, wish_of(wishes, &launched)),
                // What a person calls one that lariat did not launch stays: it may go on.
                Ok(None) => {
                    let wish = wished.get_or_init(|| by_folder(wishes)).get(&entry.name).copied();
                    match wish {
                        Some(wish) if wishes.labels.contains_key(&wish.id) => None,
                        Some(wish) => last_of_wish(wish),
                        None => last_of_unborn(&folder),
                    }
                }
                Err(_) => None,
            }?;
            (last.0 < limit).then_some(Old { folder, name: entry.name, last })
        })
        .collect();
    // What it left behind is found by its handle, and ended by `kill`: no other session may have that meanwhile.
    if !found.is_empty() {
        let marked = marked();
        found.retain(|old| marked.as_ref().is_some_and(|marked| !marked.contains(&old.name)));
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// The handles that processes carry as their mark; `None` if that cannot be told.
fn marked() -> Option<HashSet<String>> {
    let table = Table::scan().ok()?;
    let mark = |p: &Process| environment(p.pid).ok()?.get(lariat_shim::MARK).map(str::to_owned);
    Some(table.iter().filter_map(mark).collect())
}

fn id_of(launched: &Launched) -> Option<String> {
    let native = launched.record.native_id.as_ref()?;
    Some(format!("{}:{native}", launched.record.agent))
}

fn wish_of<'a>(wishes: &'a Wishes, launched: &Launched) -> Option<&'a Wish> {
    wishes.by_id.get(&id_of(launched)?)
}

/// The wishes by the folder that each has if its session was not launched.
fn by_folder(wishes: &Wishes) -> HashMap<String, &Wish> {
    wishes.by_id.values().map(|wish| (folder_name(&wish.id), wish)).collect()
}

/// Only what has an end on record: what was cut off is kept for whoever wants it
/// back. What nobody has wished for is never brought back.
fn last_of_launched(launched: &Launched, wish: Option<&Wish>) -> Option<Time> {
    let gone = matches!(launched.process(), Ok(None)) && !launched.is_held();
    let stopped = wish.filter(|w| w.intent.want == Want::Stop).map(|w| w.intent.at);
    let ended = launched.exit.as_ref().filter(|_| !launched.could_be_cut_off()).map(|e| e.at);
    let unwished = || (wish.is_none() && !launched.is_wished()).then_some(launched.record.created_at);
    gone.then(|| ended.max(stopped).or_else(unwished)).flatten()
}

fn last_of_wish(wish: &Wish) -> Option<Time> {
    let process = wish.process.clone().map(Identity::from);
    let gone = process.is_none_or(|p| matches!(p.is_alive(), Ok(false)));
    gone.then_some(wish.intent.at)
}

/// A launch that was killed before it was on record leaves its folder, with no record in it.
fn last_of_unborn(folder: &Path) -> Option<Time> {
    use std::os::unix::fs::MetadataExt as _;
    let entries = file::Directory::open(folder).and_then(|folder| folder.entries()).ok()?;
    let is_record = |name: &str| !name.starts_with('.') && name.contains(".json");
    let empty = entries.iter().all(|e| !is_record(&e.name));
    let begun = entries.iter().any(|e| e.name == records::START);
    let left = matches!(records::is_starting(folder), Ok(false)) && matches!(lariat_shim::is_locked(folder), Ok(false));
    let since = || Some(Time(folder.symlink_metadata().ok()?.mtime() * 1000));
    (empty && begun && left).then(since).flatten()
}

/// What was put aside so long ago: each file, and since when it lies there.
pub fn aside(places: &Places, retain: Duration) -> Vec<(PathBuf, Time)> {
    let limit = limit(retain);
    records::lying_aside(places).into_iter().filter(|(_, since)| since.0 < limit).collect()
}

/// Forgets what was put aside; how many of them.
pub fn forget_aside(places: &Places, aside: &[(PathBuf, Time)]) -> io::Result<usize> {
    let paths: Vec<PathBuf> = aside.iter().map(|(path, _)| path.clone()).collect();
    records::forget_aside(places, &paths)
}

fn limit(retain: Duration) -> i64 {
    clock::now_ms() - i64::try_from(retain.as_millis()).unwrap_or(i64::MAX)
}

/// Forgets; how many of them.
pub fn forget(old: &[Old]) -> usize {
    let forgotten = old.iter().filter(|o| {
        #[expect(clippy::disallowed_methods, reason = "our own record of what ended long ago")]
        std::fs::remove_dir_all(&o.folder).is_ok()
    });
    forgotten.count()
}
