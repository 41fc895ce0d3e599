//! Forgetting what has ended long ago.
//!
//! Only our own records go, and only of sessions whose process is proven gone
//! and whose shim is gone too; the agents' stores are not ours to touch. What
//! cannot be read or told stays. What could not be read, was put aside and told
//! of for as long goes too.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lariat_adapters::look::Places;
use lariat_adapters::settings::Settings;
use lariat_core::{Time, Want};
use lariat_sys::process::Identity;
use lariat_sys::{clock, file};

use crate::launched::Launched;
use crate::list::Known;
use crate::records::{self, Wish, Wishes, folder_name};

/// How long what has ended is kept, unless a person says otherwise.
const RETAIN: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long what has ended is kept.
pub fn retain(places: &Places) -> Duration {
    Settings::read(places).retain.unwrap_or(RETAIN)
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

/// What may be forgotten now.
pub fn old(places: &Places, retain: Duration) -> Vec<Old> {
    old_among(places, retain, &Known::read(places))
}

/// The same, by what was read before: of most it tells that they may not. What may go is looked at again.
pub(crate) fn old_among(places: &Places, retain: Duration, known: &Known) -> Vec<Old> {
    let sessions = places.state.join("sessions");
    let entries = file::Directory::open(&sessions).and_then(|d| d.entries()).unwrap_or_default();
    let limit = limit(retain);
    let Known { wishes, launched } = known;
    let launched = launched.by_id.values().chain(&launched.without_id);
    let launched: HashMap<&Path, &Launched> = launched.map(|l| (l.folder.as_path(), l)).collect();
    let stays = |l: &Launched| match &l.exit {
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
                Ok(None) => wished.get_or_init(|| by_folder(wishes)).get(&entry.name).copied().and_then(last_of_wish),
                Err(_) => None,
            }?;
            (last.0 < limit).then_some(Old { folder, name: entry.name, last })
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn wish_of<'a>(wishes: &'a Wishes, launched: &Launched) -> Option<&'a Wish> {
    let native = launched.record.native_id.as_ref()?;
    wishes.by_id.get(&format!("{}:{native}", launched.record.agent))
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
