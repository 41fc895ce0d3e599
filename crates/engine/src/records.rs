//! What people asked for: the only things lariat stores.
//!
//! One folder per session under `$XDG_STATE_HOME/lariat/sessions`, one file per
//! fact, each written durably and only when it changes; and a journal that only
//! grows. A record says what was wished, never what is true. One that cannot be
//! read hides nothing: it is a warning, and an acting verb puts it aside.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use lariat_adapters::look::{About, Places};
use lariat_core::{Intent, Time, Untrusted, Want, Warning};
use lariat_shim::record::{self, Process};
use lariat_sys::durable::Staged;
use lariat_sys::point::point;
use lariat_sys::two::by_two;
use lariat_sys::{clock, durable, file};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::launched::AFTERMATH;

pub(crate) const INTENT: &str = "intent.json";
/// Locked by who starts an agent there.
pub(crate) const START: &str = "start.lock";
const LABEL: &str = "label.json";
/// What was put aside, a line for each; told of for as long as it lies there.
const ASIDE: &str = "aside";
const LARGEST: u64 = 1 << 20;
/// So many folders are read sooner by two threads than by one.
const MANY: usize = 16;

/// A wish, as stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Wish {
    /// The session.
    pub id: String,
    /// What was asked.
    #[serde(flatten)]
    pub intent: Intent,
    /// By which verb.
    pub verb: String,
    /// The process it was about.
    pub process: Option<Process>,
    /// The gateway's run it was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// The last that its agent had recorded then, where that is later: the clock was set back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<Time>,
    /// When it was seen to have come true, by the record of that end.
    #[serde(skip)]
    pub seen: Option<Time>,
}

impl Wish {
    /// What was asked, as it counts for a session of which the agent tells this. A stop explains no end of a later life:
    /// nothing that has ended begins a turn, and it does not write for long.
    pub fn as_of(&self, about: &About) -> Intent {
        let mut intent = self.intent.clone();
        let began_since = match (&self.run, self.seen) {
            (Some(run), _) => run.was_followed(about, intent.until),
            (None, Some(seen)) => about.turn_at.is_some_and(|t| t > seen),
            (None, None) => false,
        };
        intent.found_live &= !began_since;
        let settled = self.seen.map(|seen| Time(seen.0 + AFTERMATH));
        intent.until = intent.until.map(|until| settled.map_or(until, |settled| until.min(settled)));
        intent
    }
}

/// A run that a gateway had open.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The gateway's id of it; a run that is being prepared has none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What told it from others in the list (`core::Session::start`).
    pub mark: u64,
    /// The same, as it was when the run was seen to be over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<u64>,
}

impl Run {
    /// Whether the last run of which the gateway tells this is a later one, by the gateway's own clock.
    fn was_followed(&self, about: &About, until: Option<Time>) -> bool {
        match about.turn_at.map(|t| u64::try_from(t.0).unwrap_or(0)) {
            Some(began) => began > self.over.unwrap_or(self.mark),
            // A run that was lost with its gateway took the times of the one before with it, and has none.
            None => {
                let since = |until: Time| about.updated_at.is_some_and(|t| t > until);
                self.over.is_some_and(|mark| mark > 0) || until.is_some_and(since)
            }
        }
    }
}

/// What a person calls a session, and whether it is to be kept, as stored.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Label {
    /// The session.
    pub id: String,
    /// Its name.
    pub name: Option<String>,
    /// Whether it is to be brought back without asking.
    pub kept: Option<bool>,
    /// When that was said.
    #[serde(default)]
    pub at: Option<Time>,
}

/// All wishes, by session id.
#[derive(Clone, Default, Debug)]
pub struct Wishes {
    /// Those that could be read.
    pub by_id: HashMap<String, Wish>,
    /// What people call them.
    pub labels: HashMap<String, Label>,
    /// Those that could not.
    pub warnings: Vec<Warning>,
    unreadable: Vec<PathBuf>,
}

impl Wishes {
    /// Reads all. Nothing there is nothing wished.
    pub fn read(places: &Places) -> Wishes {
        let told = "it could not be read and was put aside; delete it once nobody needs it";
        let aside = lying_aside(places).into_iter().map(|(path, _)| warning(places, &path, told));
        let mut wishes = Wishes { warnings: aside.collect(), ..Wishes::default() };
        let sessions = places.state.join("sessions");
        let entries = match file::Directory::open(&sessions).and_then(|d| d.entries()) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                // What was asked for may lie on a disk that is not there now.
                if places.state.is_symlink() && !places.state.exists() {
                    wishes.warnings.push(warning(places, &places.state, "it is a link that leads nowhere"));
                }
                return wishes;
            }
            Err(e) => {
                wishes.warnings.push(warning(places, &sessions, &e.to_string()));
                return wishes;
            }
        };
        let folders: Vec<PathBuf> = entries.into_iter().map(|entry| sessions.join(entry.name)).collect();
        let read = |folder: &Path| {
            let (label, intent) = (folder.join(LABEL), folder.join(INTENT));
            ((read_one::<Label>(&label), label), (read_wish(&intent), intent))
        };
        for ((label, label_path), (wish, wish_path)) in of_each(&folders, read) {
            match label {
                Ok(Some(label)) => {
                    if wishes.labels.get(&label.id).is_none_or(|other| other.at < label.at) {
                        wishes.labels.insert(label.id.clone(), label);
                    }
                }
                Ok(None) => {}
                Err(error) => wishes.could_not_read(places, label_path, &error),
            }
            match wish {
                Ok(Some(wish)) => {
                    let rank = |w: &Wish| (w.intent.generation, w.intent.want == Want::Stop);
                    let older = wishes.by_id.get(&wish.id).is_none_or(|other| rank(other) < rank(&wish));
                    if older {
                        wishes.by_id.insert(wish.id.clone(), wish);
                    }
                }
                Ok(None) => {}
                Err(error) => wishes.could_not_read(places, wish_path, &error),
            }
        }
        wishes
    }

    fn could_not_read(&mut self, places: &Places, path: PathBuf, error: &str) {
        self.warnings.push(warning(places, &path, error));
        self.unreadable.push(path);
    }

    /// Puts aside what could not be read: for verbs that act.
    pub fn put_unreadable_aside(&self) {
        for path in &self.unreadable {
            let _ = put_aside(path); // it stays where it is, and stays a warning
        }
    }
}

/// Puts a record of ours aside that cannot be read, and keeps in mind where.
pub(crate) fn put_aside(path: &Path) -> io::Result<()> {
    let kept = durable::aside(path)?;
    // A claim lies below the folder of claims, a session's records below its own folder among those of sessions.
    let ours = |p: &&Path| p.file_name().is_some_and(|name| name == "sessions" || name == "claims");
    let state = path.ancestors().skip(1).find(ours).and_then(Path::parent).ok_or(io::ErrorKind::InvalidInput)?;
    let name = kept.strip_prefix(state).unwrap_or(&kept).to_string_lossy().into_owned();
    let _list = listing_aside(state)?;
    durable::append(&state.join(ASIDE), name.as_bytes())
}

/// Held by who changes the list of what was put aside: no line is lost that another adds meanwhile.
fn listing_aside(state: &Path) -> io::Result<File> {
    let file = open(&state.join("aside.lock"))?;
    file.lock()?;
    Ok(file)
}

/// What was put aside and is still there, and since when. (A file's change of name is a change of its inode.)
pub(crate) fn lying_aside(places: &Places) -> Vec<(PathBuf, Time)> {
    use std::os::unix::fs::MetadataExt as _;
    let list = file::read_small(&places.state.join(ASIDE), LARGEST).unwrap_or_default();
    let names = String::from_utf8_lossy(&list).into_owned();
    let there = names.lines().map(|name| places.state.join(name)).filter_map(|path| {
        let kept = path.symlink_metadata().ok()?;
        Some((path, Time(kept.ctime() * 1000 + kept.ctime_nsec() / 1_000_000)))
    });
    there.collect()
}

/// Removes what was put aside, and from the list of it all that is there no longer; how many were removed.
pub(crate) fn forget_aside(places: &Places, paths: &[PathBuf]) -> io::Result<usize> {
    let list = places.state.join(ASIDE);
    if !list.exists() {
        return Ok(0);
    }
    let _list = listing_aside(&places.state)?;
    let removed = paths.iter().filter(|path| {
        #[expect(clippy::disallowed_methods, reason = "what could not be read, was told of, and is to be forgotten")]
        std::fs::remove_file(path).is_ok()
    });
    let removed = removed.count();
    let names = file::read_small(&list, LARGEST)?;
    let left: Vec<&[u8]> = names
        .split_inclusive(|b| *b == b'\n')
        .filter(|name| places.state.join(&*String::from_utf8_lossy(name.trim_ascii_end())).symlink_metadata().is_ok())
        .collect();
    let left = left.concat();
    if left != names {
        durable::put(&places.state, ASIDE, &left)?;
    }
    Ok(removed)
}

/// Makes room for a record: one that cannot be read is put aside, never overwritten.
pub(crate) fn make_room<T: serde::de::DeserializeOwned>(path: &Path) -> io::Result<()> {
    if read_one::<T>(path).is_err() { put_aside(path) } else { Ok(()) }
}

/// Reads every folder, in their order; by two threads where there are many, for each is a handful of small files.
pub(crate) fn of_each<T: Send>(folders: &[PathBuf], read: impl Fn(&Path) -> T + Sync) -> Vec<T> {
    by_two(folders, MANY, |some| some.iter().map(|folder| read(folder)).collect())
}

fn read_one<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, String> {
    match file::read_small(path, LARGEST) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|e| format!("not a record of ours: {e}")),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e.to_string()),
    }
}

/// A wish, and when it came true: how the agent ended stands beside it.
fn read_wish(path: &Path) -> Result<Option<Wish>, String> {
    let Some(mut wish) = read_one::<Wish>(path)? else { return Ok(None) };
    if wish.intent.want == Want::Stop && wish.intent.found_live {
        let exit = read_one::<record::Exit>(&path.with_file_name(record::EXIT)).ok().flatten();
        let seen = exit.map(|exit| exit.at).filter(|at| *at >= wish.intent.at);
        wish.seen = seen.map(|at| wish.ahead.map_or(at, |ahead| at.max(ahead)));
    }
    Ok(Some(wish))
}

/// Stores that a session which lariat did not launch was seen to end as it was wished. Nobody else writes that down.
pub(crate) fn put_end(places: &Places, id: &str, process: &Process) -> io::Result<()> {
    let exit = record::Exit::of(process, None);
    let folder = places.state.join("sessions").join(folder_name(id));
    durable::put(&folder, record::EXIT, serde_json::to_string(&exit)?.as_bytes())
}

fn warning(places: &Places, path: &Path, error: &str) -> Warning {
    Warning { adapter: "lariat", path: Some(places.shown(path)), error: Untrusted::new(error), last_ok: None }
}

/// Stores a wish; when it returns, no crash undoes it.
pub fn put(places: &Places, wish: &Wish) -> io::Result<()> {
    let folder = places.state.join("sessions").join(folder_name(&wish.id));
    durable::make_folder(&folder)?;
    put_in(&folder, wish)
}

/// The folder of a session that lariat did not launch. Gateways choose ids too,
/// so only what is harmless in a name stays, no two ids share one, and none is
/// too long.
pub fn folder_name(id: &str) -> String {
    const LONGEST: usize = 200;
    let (agent, rest) = id.split_once(':').unwrap_or(("", id));
    let mut name = format!("{agent}-");
    for byte in rest.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(byte.into()),
            odd => name.push_str(&format!("~{odd:02x}")),
        }
    }
    if name.len() > LONGEST {
        name.truncate(LONGEST);
        name.push_str(&format!("~~{:032x}", xxh3_128(id.as_bytes())));
    }
    name
}

/// Changes what a person calls a session, or whether it is to be kept; what is stored then. One at a time does.
pub fn change_label(
    places: &Places,
    handle: Option<&str>,
    id: &str,
    at: Time,
    change: impl FnOnce(&mut Label),
) -> io::Result<Label> {
    let name = handle.map_or_else(|| folder_name(id), str::to_owned);
    let folder = places.state.join("sessions").join(name);
    let changed = || {
        let _act = Locks::of(places, handle, id)?.act()?;
        let known = Wishes::read(places).labels.remove(id);
        point("label.read");
        let mut label = known.unwrap_or_else(|| Label { id: id.to_owned(), ..Label::default() });
        change(&mut label);
        // The last that was said counts, though the clock was set back since the one before.
        label.at = Some(label.at.map_or(at, |before| at.max(Time(before.0 + 1))));
        make_room::<Label>(&folder.join(LABEL))?;
        durable::put(&folder, LABEL, serde_json::to_string(&label)?.as_bytes())?;
        Ok(label)
    };
    changed().map_err(|e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", folder.display())))
}

/// Stores with a wish that its run was seen to be over, unless something else is wished by now. The caller holds none of
/// the session's locks but that of ending it.
pub(crate) fn put_over(places: &Places, wish: &Wish, mark: u64) -> io::Result<()> {
    let Some(run) = &wish.run else { return Ok(()) };
    let _act = Locks::of(places, None, &wish.id)?.act()?;
    let folder = places.state.join("sessions").join(folder_name(&wish.id));
    let same = |w: &Wish| w.intent.generation == wish.intent.generation && w.intent.want == wish.intent.want;
    match read_in(&folder).filter(same) {
        Some(stored) => put_in(&folder, &Wish { run: Some(Run { over: Some(mark), ..run.clone() }), ..stored }),
        None => Ok(()),
    }
}

/// Stores a wish in the folder of a session that lariat launched.
pub fn put_in(folder: &Path, wish: &Wish) -> io::Result<()> {
    make_room::<Wish>(&folder.join(INTENT))?;
    durable::put(folder, INTENT, serde_json::to_string(wish)?.as_bytes())
}

/// Makes a launch and the wish for it ready to be stored together, in the folder of that launch.
pub fn stage(folder: &Path, launch: &str, wish: Option<&Wish>) -> io::Result<Staged> {
    let wish = wish.map(serde_json::to_string).transpose()?;
    let mut records = vec![(record::LAUNCH, launch.as_bytes())];
    if let Some(wish) = &wish {
        make_room::<Wish>(&folder.join(INTENT))?;
        records.push((INTENT, wish.as_bytes()));
    }
    durable::stage(folder, &records)
}

/// The locks of one session. Both are gone with the process that holds them.
#[derive(Debug)]
pub struct Locks {
    act: PathBuf,
    ending: PathBuf,
}

impl Locks {
    /// Those of a session, by its handle if it has one.
    pub fn of(places: &Places, handle: Option<&str>, id: &str) -> io::Result<Locks> {
        let name = handle.map_or_else(|| folder_name(id), str::to_owned);
        let folder = places.state.join("sessions").join(name);
        durable::make_folder(&folder)?;
        Ok(Locks { act: folder.join("act.lock"), ending: folder.join("ending.lock") })
    }

    /// One at a time changes what is wished of a session. Held only for moments.
    pub fn act(&self) -> io::Result<File> {
        let file = open(&self.act)?;
        file.lock()?;
        Ok(file)
    }

    /// Held by everyone who ends it, as long as that takes.
    pub fn ending(&self) -> io::Result<File> {
        let file = open(&self.ending)?;
        file.lock_shared()?;
        Ok(file)
    }

    /// Held by who starts it again; nobody may be at ending it.
    pub fn starting(&self) -> io::Result<Option<File>> {
        let file = open(&self.ending)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(e)) => Err(e),
        }
    }
}

/// Held by who starts an agent from a folder, from before that is on record until its process is.
pub fn begin_start(folder: &Path) -> io::Result<File> {
    let file = open(&folder.join(START))?;
    file.lock()?;
    Ok(file)
}

/// Whether somebody starts one there this moment. An error is no answer.
pub fn is_starting(folder: &Path) -> io::Result<bool> {
    let file = match file::open(&folder.join(START)) {
        Ok((file, _)) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(std::fs::TryLockError::WouldBlock) => Ok(true),
        Err(std::fs::TryLockError::Error(e)) => Err(e),
    }
}

fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// The wish in the folder of a session that lariat launched.
pub fn read_in(folder: &Path) -> Option<Wish> {
    read_one(&folder.join(INTENT)).ok().flatten()
}

/// One line of the journal: who did what to which session, and how it went.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// When.
    pub at: Time,
    /// What was done.
    pub what: String,
    /// To which session.
    pub id: String,
    /// By whom.
    pub by: String,
    /// On what evidence, and how it went.
    pub how: String,
}

fn journal_path(places: &Places) -> PathBuf {
    places.state.join("journal.ndjson")
}

/// Adds to the journal.
pub fn note(places: &Places, entry: &Entry) -> io::Result<()> {
    durable::make_folder(&places.state)?;
    durable::append(&journal_path(places), serde_json::to_string(entry)?.as_bytes())
}

/// Adds to the journal what was done now. The deed is done: a full disk must not
/// undo the answer.
pub fn tell(places: &Places, what: &str, id: &str, how: String) {
    let entry = Entry { at: Time(clock::now_ms()), what: what.into(), id: id.into(), by: who(), how };
    let _ = note(places, &entry);
}

/// Who asks.
pub fn who() -> String {
    let name = |variable| std::env::var(variable).ok().filter(|n| !n.is_empty());
    name("USER").or_else(|| name("LOGNAME")).unwrap_or_else(listed)
}

/// Who that is by the machine's own list of users; else the number.
fn listed() -> String {
    let user = crate::start::own_user().to_string();
    let users = file::read_small(Path::new("/etc/passwd"), 1 << 20).unwrap_or_default();
    let users = String::from_utf8_lossy(&users).into_owned();
    let mut fields = users.lines().map(|line| line.splitn(4, ':'));
    let found = fields.find_map(|mut f| f.next().filter(|_| f.nth(1) == Some(&user)));
    found.map_or_else(|| format!("user {user}"), str::to_owned)
}

/// The journal, oldest first; lines that cannot be read are counted.
pub fn journal(places: &Places) -> io::Result<(Vec<Entry>, usize)> {
    use io::BufRead as _;
    let path = journal_path(places);
    let wrong = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let opened = match file::open(&path) {
        Ok((file, _)) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(e) => return Err(wrong(e)),
    };
    let (mut entries, mut odd) = (Vec::new(), 0);
    // A full disk may have cut one short within a character.
    for line in io::BufReader::new(opened).split(b'\n') {
        match serde_json::from_slice(&line.map_err(wrong)?) {
            Ok(entry) => entries.push(entry),
            Err(_) => odd += 1,
        }
    }
    Ok((entries, odd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_folder_is_read_once_and_in_order_however_many_there_are() {
        for count in [0, 1, MANY - 1, MANY, MANY + 1, 101] {
            let folders: Vec<PathBuf> = (0..count).map(|n| PathBuf::from(n.to_string())).collect();
            assert_eq!(of_each(&folders, Path::to_owned), folders);
        }
    }

    #[test]
    fn no_id_leads_out_of_its_folder_and_no_two_share_one() {
        assert_eq!(folder_name("claude:1c80-aa"), "claude-1c80-aa");
        let long = "x".repeat(1000);
        let ids = ["o:agent:main:a:b", "o:agent:main:a-b", "o:../../x", "o:a/b", "o:a~2fb", "o:.", "o:", &long];
        let mut names: Vec<String> = ids.iter().map(|id| folder_name(id)).collect();
        names.push(folder_name(&format!("{long}y")));
        for name in &names {
            assert!(name.len() < 250 && !name.contains(['/', '.', '\0']) && !name.is_empty(), "{name}");
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), ids.len() + 1);
    }
}
