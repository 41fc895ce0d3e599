//! Every session: its file, and what that and its holder tell.
//!
//! # Names
//!
//! Pi's ids are unique in a project only. A session's native id is Pi's own, as long as no other
//! session in the store has it. Those that share one are named `ID@PROJECT`, where PROJECT is a hash
//! of the session's directory in eight hex digits: it depends on nothing but the session itself, and
//! no id of Pi's has an `@`. The bare id then is a prefix that fits them all, and so ambiguous.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use lariat_core::{Ask, AskKind, Fact, Observation, Outcome, State, Time, Turn, Untrusted, Witness};
use lariat_sys::file::{self, Directory, Kind};
use xxhash_rust::xxh3::xxh3_64;

use super::bind::{Held, Hold};
use super::fold::{Stand, Transcript};
use super::{NAME, runs, warning};
use crate::agent_process as ap;
use crate::json::Doc;
use crate::look::{About, Look, Places, Report, Scope, Sighting, could_be, same_place};
use crate::needs::Need;
use crate::reader::Reading;
use crate::store::{self, Found, in_parallel, read_all};
use crate::strangers::Strangers;
use crate::tool::Call;

/// How long a request that is made again takes to begin.
const TAKING_UP_MS: i64 = 1000;
/// No wait between two requests is longer.
const LONGEST_WAIT_MS: i64 = 120_000;

/// A session's file, and the id its name tells: `<time>_<id>.jsonl`.
struct Stored {
    file: Found,
    named: Option<String>,
}

/// A session as read, or why it could not be.
type Read = Result<Box<Reading<Transcript>>, String>;

/// Tells of every session, held or not.
pub fn tell(look: &Look<'_>, held: Held, by_id: Vec<Hold>, report: &mut Report) {
    let mut stored = files(look, report);
    let mut held = by_listed_path(held, &stored);
    stored.extend(elsewhere(&held, &stored));
    // Nothing was ever written into it, and nobody is about to: it is no session.
    let is_held = |s: &Stored| held.contains_key(&s.file.path) || by_id.iter().any(|h| s.named.as_ref() == Some(&h.id));
    stored.retain(|s| s.file.key.size > 0 || s.file.key.inode == 0 || is_held(s));
    report.watch.extend(held.values().filter_map(|h| ap::launched_folder(look.places, h.bond.process.pid)));
    let mut names: HashMap<String, usize> = HashMap::new();
    for id in stored.iter().filter_map(|s| s.named.clone()) {
        *names.entry(id).or_default() += 1;
    }
    let strangers = Strangers::among(look.table, |p| runs(p).is_some());
    let everyone = look.scope == Scope::All || look.table.is_err() || !report.unbound.is_empty();
    let listed = stored.len();
    // One whose name does not tell its id, or tells one that another has, must be opened to be named.
    let is_theirs = |file: &Path| strangers.could_hold(file).is_some();
    stored.retain(|s| {
        everyone || is_held(s) || is_theirs(&s.file.path) || s.named.as_ref().is_none_or(|id| names[id] > 1)
    });
    report.hidden += listed - stored.len();
    for s in &mut stored {
        if is_held(s) {
            s.file.whole = true;
            report.watch.extend(s.file.path.parent().map(Path::to_owned));
        }
    }
    store::choose_whole(stored.iter_mut().map(|s| &mut s.file));
    let files: Vec<Found> = stored.iter().map(|s| s.file.clone()).collect();
    let read = read_all::<Transcript>(look, "pi", &files).into_iter().map(|r| r.map_err(|e| e.to_string()));
    let mut seen: Vec<Seen> = stored.into_iter().zip(read).map(|(s, read)| Seen::of(s, read)).collect();
    for s in &seen {
        let error = match &s.read {
            Ok(reading) => reading.complaint(),
            Err(e) => Some(e.clone()).filter(|_| s.file.key.inode != 0), // else warned of when it was found
        };
        report.warnings.extend(error.map(|e| warning(look, &s.file.path, e)));
    }
    // What is not written yet is told by whoever launched it.
    for hold in by_id {
        if let Some(s) = seen.iter().find(|s| s.id == hold.id) {
            held.entry(s.file.path.clone()).or_insert(hold);
        }
    }
    // Held, and not written yet: before its first reply (0.73) or prompt (1.5).
    let written: HashSet<&Path> = seen.iter().map(|s| s.file.path.as_path()).collect();
    let bare: Vec<PathBuf> = held.keys().filter(|file| !written.contains(file.as_path())).cloned().collect();
    seen.extend(bare.into_iter().filter_map(|file| Seen::unwritten(&file, held.get(&file)?)));
    let only_live = look.scope == Scope::Live && !everyone;
    for (native_id, s) in named(seen) {
        let hold = held.remove(&s.file.path);
        // That a wait is over without another request, nothing tells.
        report.unhinted |= hold.is_some() && s.read.as_ref().is_ok_and(|r| is_trying_again(look, &r.fold));
        if only_live && hold.is_none() && !is_theirs(&s.file.path) {
            report.hidden += 1; // opened only for its name
            continue;
        }
        let sighting = sighting(look, native_id, s, hold, (report, &strangers));
        report.add((look.judge)(NAME, sighting));
    }
}

/// Every file that may be a session: in the folder of sessions, or in a project's folder in it.
fn files(look: &Look<'_>, report: &mut Report) -> Vec<Stored> {
    let mut level = folders(look.places);
    let mut all = Vec::new();
    for depth in 0..2 {
        let mut inner = Vec::new();
        for (folder, entries) in in_parallel(level, |folder| (in_folder(look, &folder), folder)).into_iter().map(flip) {
            let (found, below, problems) = match entries {
                Ok(entries) => entries,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => {
                    report.partial = true;
                    report.warnings.push(warning(look, &folder, e.to_string()));
                    continue;
                }
            };
            all.extend(found);
            report.warnings.extend(problems.into_iter().map(|(path, e)| warning(look, &path, e)));
            inner.extend(below.into_iter().filter(|_| depth == 0));
        }
        level = inner;
    }
    all.sort_unstable_by(|a: &Stored, b: &Stored| a.file.path.cmp(&b.file.path));
    all.dedup_by(|a, b| a.file.path == b.file.path);
    all
}

/// Every file, with the id that its name tells.
pub fn listed(look: &Look<'_>, report: &mut Report) -> Vec<(String, Found)> {
    let stem = |path: &Path| path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
    files(look, report).into_iter().map(|s| (s.named.unwrap_or_else(|| stem(&s.file.path)), s.file)).collect()
}

fn flip<A, B>((a, b): (A, B)) -> (B, A) {
    (b, a)
}

/// Where sessions are kept: by the environment, by the settings, and by default.
fn folders(places: &Places) -> Vec<PathBuf> {
    let mut folders = vec![places.pi.join("sessions")];
    folders.extend(places.pi_sessions.clone());
    let settings = file::read_small(&places.pi.join("settings.json"), 1 << 20).ok();
    let settings = settings.and_then(|text| Doc::parse(&text, |_, key| key == b"sessionDir", 4096).ok());
    if let Some(folder) = settings.as_ref().and_then(|doc| doc.root().get("sessionDir").some_str()) {
        let folder = crate::look::without_tilde(Path::new(folder), &places.home);
        folders.extend(Some(folder).filter(|f| f.is_absolute()));
    }
    let mut distinct: Vec<PathBuf> = Vec::new();
    for folder in folders {
        if !distinct.iter().any(|d| same_place(d, &folder)) {
            distinct.push(folder);
        }
    }
    distinct
}

type InFolder = (Vec<Stored>, Vec<PathBuf>, Vec<(PathBuf, String)>);

fn in_folder(look: &Look<'_>, folder: &Path) -> io::Result<InFolder> {
    let dir = Directory::open(folder)?;
    let (mut found, mut below, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for entry in dir.entries()? {
        let path = folder.join(&entry.name);
        let Some(stem) = entry.name.strip_suffix(".jsonl") else {
            below.extend(Some(path).filter(|_| entry.kind == Kind::Directory));
            continue;
        };
        look.steps.fetch_add(1, Ordering::Relaxed);
        let key = match dir.key(&entry.name) {
            Ok(key) => key,
            Err(e) if e.kind() == io::ErrorKind::NotFound && entry.kind == Kind::File => continue,
            Err(e) => {
                problems.push((path.clone(), e.to_string()));
                Default::default()
            }
        };
        found.push(Stored { file: Found { path, key, whole: false }, named: id_in_name(stem).map(str::to_owned) });
    }
    Ok((found, below, problems))
}

/// The id in a file's name.
fn named_in(file: &Found) -> Option<String> {
    file.path.file_stem().and_then(|stem| id_in_name(stem.to_str()?)).map(str::to_owned)
}

/// The id in `2026-11-15T07-47-12-340Z_<id>`.
fn id_in_name(stem: &str) -> Option<&str> {
    let (time, id) = stem.split_once('_')?;
    let is_time = time.len() == 24 && time.starts_with(|c: char| c.is_ascii_digit()) && time.ends_with('Z');
    Some(id).filter(|id| is_time && !id.is_empty())
}

/// Whether text has the shape of an id; another one is damage.
fn is_id(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// The id in a session's first line.
pub fn id_in_header(line: &str) -> Option<String> {
    let doc = Doc::parse(line.as_bytes(), |_, key| matches!(key, b"type" | b"id"), 256).ok()?;
    let header = doc.root().get("type").str() == Some("session");
    doc.root().get("id").some_str().filter(|_| header).map(str::to_owned)
}

/// Holders by the path that was listed: Pi may spell the same place in another way.
fn by_listed_path(held: Held, stored: &[Stored]) -> Held {
    let listed = |file: PathBuf| {
        let same = |s: &&Stored| s.file.path.file_name() == file.file_name() && same_place(&s.file.path, &file);
        stored.iter().find(same).map_or(file.clone(), |s| s.file.path.clone())
    };
    held.into_iter().map(|(file, hold)| (listed(file), hold)).collect()
}

/// The files of holders that keep them where nobody looks (`--session-dir`), as far as they are written.
fn elsewhere(held: &Held, stored: &[Stored]) -> Vec<Stored> {
    let listed: HashSet<&Path> = stored.iter().map(|s| s.file.path.as_path()).collect();
    let unlisted = held.iter().filter(|(path, _)| path.is_absolute() && !listed.contains(path.as_path()));
    let found = unlisted.filter_map(|(path, hold)| {
        let (_, key) = file::open(path).ok()?;
        Some(Stored { file: Found { path: path.clone(), key, whole: false }, named: Some(hold.id.clone()) })
    });
    found.collect()
}

/// A session before it is named.
struct Seen {
    id: String,
    project: String,
    file: Found,
    read: Read,
    /// Whether its file is there.
    written: bool,
}

impl Seen {
    fn of(stored: Stored, read: Read) -> Seen {
        let fold = read.as_ref().ok().map(|r| &r.fold);
        let stem = || stored.file.path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
        let told = fold.and_then(|f| f.id.clone()).filter(|id| is_id(id));
        let by_name = stored.named.filter(|_| told.is_none() || fold.is_some_and(|f| f.beheaded));
        let id = by_name.or(told).unwrap_or_else(stem);
        let folder = || stored.file.path.parent().map_or_else(String::new, |p| p.to_string_lossy().into_owned());
        let project = fold.and_then(|f| f.cwd.clone()).unwrap_or_else(folder);
        Seen { id, project, file: stored.file, read, written: true }
    }

    fn unwritten(file: &Path, hold: &Hold) -> Option<Seen> {
        let cwd = hold.word.as_ref().and_then(|w| w.cwd.clone());
        let project = cwd.or_else(|| file.parent()?.to_str().map(str::to_owned))?;
        let file = Found { path: file.to_owned(), ..Found::default() };
        Some(Seen { id: hold.id.clone(), project, file, read: Err("not written yet".into()), written: false })
    }
}

/// Gives each session its native id. Copies of one session are one: the one with the newest line tells.
fn named(mut seen: Vec<Seen>) -> Vec<(String, Seen)> {
    let written = |s: &Seen| (s.read.as_ref().ok().and_then(|r| r.fold.updated), s.file.key.mtime);
    seen.sort_by(|a, b| {
        let newest = written(b).cmp(&written(a));
        (&a.id, &a.project).cmp(&(&b.id, &b.project)).then(newest).then_with(|| a.file.path.cmp(&b.file.path))
    });
    seen.dedup_by(|a, b| a.id == b.id && a.project == b.project);
    let mut count: HashMap<String, usize> = HashMap::new();
    for s in &seen {
        *count.entry(s.id.clone()).or_default() += 1;
    }
    let one = |s: Seen| match count[&s.id] {
        1 => (s.id.clone(), s),
        _ => (name(&s.id, &s.project), s),
    };
    seen.into_iter().map(one).collect()
}

/// What a session is called that has its id together with one of another project.
pub fn name(id: &str, project: &str) -> String {
    format!("{id}@{:08x}", xxh3_64(project.as_bytes()) as u32)
}

/// The ids that sessions of several projects have.
pub fn shared(look: &Look<'_>, files: &[(String, Found)]) -> HashSet<String> {
    let mut count: HashMap<&str, usize> = HashMap::new();
    files.iter().for_each(|(id, _)| *count.entry(id).or_default() += 1);
    let read = |cache: &str, files: Vec<&(String, Found)>| -> Vec<Seen> {
        let found: Vec<Found> = files.iter().map(|(_, file)| file.clone()).collect();
        let folds = read_all::<Transcript>(look, cache, &found).into_iter().map(|r| r.map_err(|e| e.to_string()));
        let stored = found.into_iter().map(|file| Stored { named: named_in(&file), file });
        stored.zip(folds).map(|(s, fold)| Seen::of(s, fold)).collect()
    };
    let (unsure, named): (Vec<_>, Vec<_>) =
        files.iter().partition(|(id, file)| count[id.as_str()] > 1 || named_in(file).is_none());
    let mut all = read("pi-names", unsure);
    // The others' names tell their ids, which nobody else has but who tells it by its first line alone.
    let told: HashSet<&str> = all.iter().map(|s| s.id.as_str()).collect();
    let more = read("pi-names-told", named.into_iter().filter(|(id, _)| told.contains(id.as_str())).collect());
    all.extend(more);
    let mut projects: HashMap<String, HashSet<String>> = HashMap::new();
    for s in all {
        projects.entry(s.id).or_default().insert(s.project);
    }
    projects.into_iter().filter(|(_, projects)| projects.len() > 1).map(|(id, _)| id).collect()
}

fn sighting(
    look: &Look<'_>,
    native_id: String,
    s: Seen,
    hold: Option<Hold>,
    (report, strangers): (&Report, &Strangers),
) -> Sighting {
    let fold = s.read.as_ref().ok().map(|r| &r.fold);
    let updated = fold.and_then(|f| f.updated).map(Time);
    let word = hold.as_ref().and_then(|h| h.word.clone());
    let cwd = fold.and_then(|f| f.cwd.clone()).or_else(|| word.as_ref()?.cwd.clone());
    let mut observations = Vec::new();
    match &hold {
        Some(hold) => {
            observations.push(hold.bond.evidence.clone());
            let again = fold.is_some_and(|f| is_trying_again(look, f));
            let state = word.as_ref().and_then(|w| {
                let state = if again && !w.settles { Some(State::Busy) } else { w.state() };
                Some(Observation::new(Witness::Hook, Fact::State(state?)).at(w.said_at()))
            });
            observations.extend(state);
            let asks = word.as_ref().and_then(|w| {
                let login = w.needs_login.then(|| (AskKind::Login, "it has a key for no model".into()));
                let dialog = w.asks.as_ref().map(|text| (AskKind::Dialog, Untrusted::new(text.as_str())));
                let (kind, text) = dialog.or(login)?;
                Some(Observation::new(Witness::Hook, Fact::Asks(Ask { kind, text })).at(w.said_at()))
            });
            observations.extend(asks);
            let lacks =
                fold.and_then(lacking).filter(|_| updated.is_some_and(|u| u >= ap::started(&hold.bond.process)));
            observations.extend(lacks.map(|ask| Observation::new(Witness::Store, Fact::Asks(ask)).at(updated)));
        }
        None => {
            let theirs = strangers.could_hold(&s.file.path);
            observations.push(presence(look, cwd.as_deref(), report, theirs));
        }
    }
    // A turn that an earlier process left open is none of this one's, unless it has a tool of it at work.
    let young = hold.as_ref().is_some_and(|h| !h.tool && ap::is_before(updated, &h.bond.process));
    let rests = observations.iter().any(|o| o.fact == Fact::State(State::Idle));
    let turn = s.written.then(|| match turn(&s.read) {
        Fact::Turn(Turn::Open(_)) if young && rests => {
            Fact::Turn(Turn::Over(Outcome::Failed("it was cut off before this process started".into())))
        }
        left @ Fact::Turn(Turn::Open(_)) if young => {
            Fact::Note(Untrusted::new(format!("{}, before this process started", left.told().raw())))
        }
        turn => turn,
    });
    let open = matches!(turn, Some(Fact::Turn(Turn::Open(_))));
    let source = look.places.shown(&s.file.path);
    observations.extend(turn.map(|fact| Observation::new(Witness::Store, fact).at(updated).from(source)));
    let counted = s.read.as_ref().is_ok_and(|r| r.is_exact());
    let f = s.read.map(|r| r.fold).unwrap_or_default();
    let since = word.as_ref().and_then(|w| w.since);
    Sighting {
        native_id,
        observations,
        about: About {
            tokens: f.tokens().filter(|_| counted),
            cost_usd: f.cost().filter(|_| counted),
            tool: f.calls.first().filter(|_| open).map(Call::told),
            parent: f.forked_from.as_deref().and_then(parent),
            name: f.name.clone(),
            title: f.name,
            cwd,
            model: f.model,
            prompt: f.prompt.or_else(|| word.as_ref()?.prompt.clone()),
            started_at: f.started.or(since).map(Time),
            updated_at: updated.max(word.and_then(|w| w.said_at())),
            turn_at: f.asked_at.map(Time),
            ..About::default()
        },
        process: hold.map(|h| h.bond.process),
        named: Vec::new(),
        missed: Vec::new(),
        outlived: false,
        shared: false,
        transcript: s.written.then_some(s.file.path),
    }
}

/// The session that a file's name tells, as an id.
fn parent(file: &str) -> Option<String> {
    let stem = Path::new(file).file_stem()?.to_str()?;
    id_in_name(stem).map(|id| format!("{NAME}:{id}"))
}

/// Whether a request that failed is about to be made again, of which Pi records nothing: it waits for two seconds,
/// then four, then eight, unless its settings say otherwise.
pub fn is_trying_again(look: &Look<'_>, f: &Transcript) -> bool {
    let (Stand::Failed(error), Some(failed)) = (&f.stand, f.updated) else { return false };
    let age = look.now.0 - failed;
    if f.copied || f.failures == 0 || age > LONGEST_WAIT_MS || !may_pass(error) {
        return false;
    }
    let text = file::read_small(&look.places.pi.join("settings.json"), 1 << 20).unwrap_or_default();
    let keep = |_: &[u8], key: &[u8]| matches!(key, b"retry" | b"enabled" | b"maxRetries" | b"baseDelayMs");
    let doc = Doc::parse(&text, keep, 64).ok();
    let set = |key: &str| doc.as_ref().map(|doc| doc.root().get("retry").get(key));
    let number = |key: &str, other: u64| set(key).and_then(|v| v.u64()).unwrap_or(other);
    let enabled = set("enabled").and_then(|v| v.bool()).unwrap_or(true);
    let wait = number("baseDelayMs", 2000).saturating_mul(1 << (f.failures - 1).min(20));
    enabled
        && u64::from(f.failures) <= number("maxRetries", 3)
        && age <= i64::try_from(wait).unwrap_or(0) + TAKING_UP_MS
}

/// Whether an error may pass by itself: the other side's, or one on the way there.
fn may_pass(error: &str) -> bool {
    const PASSING: [&str; 10] = [
        "429",
        "rate limit",
        "overloaded",
        "unavailable",
        "server error",
        "internal",
        "timeout",
        "timed out",
        "connection",
        "fetch failed",
    ];
    let status = error.get(..3).and_then(|code| code.parse::<u16>().ok());
    match status {
        Some(status) if (400..500).contains(&status) => status == 429,
        Some(status) if (500..600).contains(&status) => true,
        _ => PASSING.iter().any(|word| error.to_lowercase().contains(word)),
    }
}

/// What its last turn failed for the lack of.
fn lacking(f: &Transcript) -> Option<Ask> {
    match &f.stand {
        Stand::Failed(error) if !f.copied => Need::of_text(error).map(|need| need.ask(error)),
        _ => None,
    }
}

fn turn(read: &Read) -> Fact {
    let reading = match read {
        Ok(reading) => reading,
        Err(error) => return Fact::TurnUnread(error.clone().into()),
    };
    if let Some(why) = &reading.unread {
        return Fact::TurnUnread(why.clone().into());
    }
    let f = &reading.fold;
    Fact::Turn(match &f.stand {
        Stand::Unseen => Turn::Never,
        Stand::Open => Turn::Open(f.calls.first().map(|c| Untrusted::new(format!("running {}", c.told())))),
        Stand::Well => Turn::Over(Outcome::Well),
        Stand::Failed(error) => Turn::Over(Outcome::Failed(error.clone().into())),
        Stand::Aborted(how) => Turn::Over(Outcome::Aborted(how.clone().into())),
        Stand::Untold(why) => return Fact::TurnUnread(why.clone().into()),
    })
}

/// Nobody is known to hold it: gone, unless a Pi that shows no session could. That one may have opened
/// any session of its directory, and writes nothing until it is asked something.
fn presence(look: &Look<'_>, cwd: Option<&str>, report: &Report, theirs: Option<Fact>) -> Observation {
    let fact = match look.table {
        Err(why) => Fact::Unseen(Untrusted::new(format!("the process table could not be read: {why}"))),
        Ok(_) => match could_be(&report.unbound, cwd) {
            Some(u) => Fact::Unseen(Untrusted::new(format!(
                "pi process {}, tied to no session, stands in the same or an unknown directory",
                u.pid
            ))),
            None => theirs.unwrap_or_else(|| Fact::Gone("no pi process could be it".into())),
        },
    };
    Observation::new(Witness::Process, fact)
}
