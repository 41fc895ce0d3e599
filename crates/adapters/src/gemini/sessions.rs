//! Every session: its files, and what they and its process tell.
//!
//! A session that was resumed has several files: the one it began with, which goes on, and an empty
//! one for each minute in which it was taken up again. They are one session, by the id in them. A
//! project's directory is in `.project_root` beside its conversations, or in `projects.json`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use lariat_core::{Ask, AskKind, Fact, Observation, Outcome, Time, Turn, Untrusted, Witness};
use lariat_sys::file::{self, Directory, Kind};
use lariat_sys::point::takes;

use super::bind::{Bound, Hold, Project, is_id};
use super::fold::{Chat, Stand};
use super::typed::Told;
use super::{NAME, warning};
use crate::agent_process as ap;
use crate::json::Doc;
use crate::look::{About, Look, Report, Scope, Sighting};
use crate::needs::Need;
use crate::reader::Reading;
use crate::store::{self, Found, in_parallel, read_all};

/// A tool younger than the reply that called for it by this much is that reply's.
const SETTLING_MS: i64 = 1000;
/// Gemini's own tools, a search of the web among them, take no longer as a rule.
const OWN_TOOLS_MS: i64 = 3000;

/// A file of a conversation.
struct Stored {
    /// The project's folder.
    project: PathBuf,
    /// The first eight characters of the session's id, from the name.
    short: String,
    file: Found,
}

/// A file as read, or why it could not be.
type Read = Result<Box<Reading<Chat>>, String>;

/// Tells of every session, held or not.
pub fn tell(look: &Look<'_>, bound: Bound, report: &mut Report) {
    let mut bound = bound;
    let everyone = look.scope == Scope::All || look.table.is_err() || !bound.loose.is_empty();
    let mut stored = files(look, report);
    let is_held = |short: &str| bound.holds.keys().any(|id| id.starts_with(short));
    let hidden: HashSet<(PathBuf, String)> = stored
        .iter()
        .filter(|s| !everyone && !is_held(&s.short))
        .map(|s| (s.project.clone(), s.short.clone()))
        .collect();
    report.hidden += hidden.len();
    stored.retain(|s| everyone || is_held(&s.short));
    let moving = bound.moving_since();
    let may_hold_a_terminal = |file: &Found| moving.is_some_and(|since| file.key.mtime / 1_000_000 >= since.0);
    stored.iter_mut().filter(|s| may_hold_a_terminal(&s.file)).for_each(|s| s.file.whole = true);
    for s in stored.iter_mut().filter(|s| is_held(&s.short)) {
        s.file.whole = true;
        report.watch.extend(s.file.path.parent().map(Path::to_owned));
    }
    let chats = stored.iter().filter(|s| is_held(&s.short)).filter_map(|s| s.file.path.parent());
    let of_sub_agents = chats.flat_map(|chats| bound.holds.keys().map(|id| chats.join(id)));
    report.watch.extend(of_sub_agents.filter(|folder| folder.is_dir()));
    // A launched one says there what it is doing.
    report.watch.extend(bound.holds.values().filter_map(|h| ap::launched_folder(look.places, h.bond.process.pid)));
    store::choose_whole(stored.iter_mut().map(|s| &mut s.file));
    let found: Vec<Found> = stored.iter().map(|s| s.file.clone()).collect();
    let read = read_all::<Chat>(look, NAME, &found).into_iter().map(|r| r.map_err(|e| e.to_string()));
    let read: Vec<(Stored, Read)> = stored.into_iter().zip(read).collect();
    for (s, read) in &read {
        let error = match read {
            Ok(reading) => reading.complaint(),
            Err(e) => Some(e.clone()).filter(|_| s.file.key.inode != 0), // else warned of when it was found
        };
        report.warnings.extend(error.map(|e| warning(look, &s.file.path, e)));
    }
    let directories = directories(look, read.iter().map(|(s, _)| &s.project), report);
    let (sessions, nameless) = by_session(read, &bound);
    let told = projects(&sessions, &directories, &bound);
    bound.follow(look, &told);
    report.warnings.extend(nameless.iter().map(|path| warning(look, path, "tells no session's id".into())));
    for (id, seen) in sessions {
        let hold = bound.holds.remove(&id);
        report.unhinted |= hold.as_ref().is_some_and(|h| !h.asked && ap::comes_up(look, &h.bond.process));
        let sighting = sighting(look, &mut bound, id, seen, hold, &directories);
        report.add((look.judge)(NAME, sighting));
    }
    // Held, and no file yet: it is starting.
    let mut bare: Vec<(String, Hold)> = bound.holds.into_iter().collect();
    bare.sort_by(|a, b| a.0.cmp(&b.0));
    for (id, hold) in bare {
        let started = Some(ap::started(&hold.bond.process));
        let cwd = ap::standing(hold.bond.process.pid).map(|c| c.raw().to_owned());
        let mut observations = bound.notes.remove(&id).unwrap_or_default();
        observations.push(hold.bond.evidence);
        let about = About { cwd, started_at: started, updated_at: started, ..About::default() };
        let process = Some(hold.bond.process);
        report.add((look.judge)(NAME, Sighting { native_id: id, observations, about, process, ..Sighting::default() }));
    }
}

/// Finds `tmp/<project>/chats/session-<time>-<short id>.jsonl`.
fn files(look: &Look<'_>, report: &mut Report) -> Vec<Stored> {
    let tmp = look.places.gemini.join("tmp");
    let entries = match Directory::open(&tmp).and_then(|d| d.entries()) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(e) => {
            report.partial = true;
            report.warnings.push(warning(look, &tmp, e.to_string()));
            return Vec::new();
        }
    };
    let projects = entries.into_iter().filter(|e| matches!(e.kind, Kind::Directory | Kind::Unsure));
    let projects: Vec<PathBuf> = projects.map(|e| tmp.join(e.name)).collect();
    let mut all = Vec::new();
    for (found, problems) in in_parallel(projects, |project| in_project(look, &project)) {
        all.extend(found);
        report.partial |= problems.iter().any(|(path, _)| path.ends_with("chats"));
        report.warnings.extend(problems.into_iter().map(|(path, e)| warning(look, &path, e.to_string())));
    }
    all.sort_unstable_by(|a: &Stored, b: &Stored| a.file.path.cmp(&b.file.path));
    all
}

/// Every file, with the id as far as its name tells it, and the project's directory; those of sub-agents with the id of
/// the session that they work for.
pub fn listed(look: &Look<'_>, report: &mut Report) -> Vec<(String, Option<String>, Found)> {
    let mut stored = files(look, report);
    let projects: BTreeSet<PathBuf> = stored.iter().map(|s| s.project.clone()).collect();
    for (found, problems) in in_parallel(projects.into_iter().collect(), |project| of_sub_agents(look, &project)) {
        stored.extend(found);
        report.warnings.extend(problems.into_iter().map(|(path, e)| warning(look, &path, e.to_string())));
    }
    let directories = directories(look, stored.iter().map(|s| &s.project), report);
    let with = |s: Stored| (s.short, directories.get(&s.project).cloned(), s.file);
    stored.into_iter().map(with).collect()
}

fn in_project(look: &Look<'_>, project: &Path) -> (Vec<Stored>, Vec<(PathBuf, io::Error)>) {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let chats = project.join("chats");
    let listed = Directory::open(&chats).and_then(|d| d.entries().map(|entries| (d, entries)));
    let (dir, entries) = match listed {
        Ok(listed) => listed,
        Err(e) => {
            let absent = matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
            problems.extend(Some((chats, e)).filter(|_| !absent));
            return (found, problems);
        }
    };
    for entry in entries {
        let Some(short) = short_id(&entry.name) else { continue };
        look.steps.fetch_add(1, Ordering::Relaxed);
        let path = chats.join(&entry.name);
        let key = match dir.key(&entry.name) {
            Ok(key) => key,
            Err(e) if e.kind() == io::ErrorKind::NotFound && entry.kind == Kind::File => continue,
            Err(e) => {
                problems.push((path.clone(), e));
                Default::default()
            }
        };
        let file = Found { path, key, whole: false };
        found.push(Stored { project: project.to_owned(), short: short.to_owned(), file });
    }
    (found, problems)
}

/// `chats/<session>/<sub-agent>.jsonl`.
fn of_sub_agents(look: &Look<'_>, project: &Path) -> (Vec<Stored>, Vec<(PathBuf, io::Error)>) {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let chats = project.join("chats");
    let entries = Directory::open(&chats).and_then(|d| d.entries()).unwrap_or_default(); // told of where it was listed
    let folders = entries.into_iter().filter(|e| matches!(e.kind, Kind::Directory | Kind::Unsure) && is_id(&e.name));
    for session in folders.map(|e| e.name) {
        let folder = chats.join(&session);
        let listed = Directory::open(&folder).and_then(|d| d.entries().map(|entries| (d, entries)));
        let (dir, entries) = match listed {
            Ok(listed) => listed,
            Err(e) => {
                let absent = matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
                problems.extend(Some((folder, e)).filter(|_| !absent));
                continue;
            }
        };
        for name in entries.into_iter().map(|e| e.name).filter(|name| name.ends_with(".jsonl")) {
            look.steps.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(&name);
            match dir.key(&name) {
                Ok(key) => {
                    let file = Found { path, key, whole: false };
                    found.push(Stored { project: project.to_owned(), short: session.clone(), file });
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => problems.push((path, e)),
            }
        }
    }
    (found, problems)
}

/// The short id in `session-2026-11-15T07-55-023db839.jsonl`.
fn short_id(name: &str) -> Option<&str> {
    let name = name.strip_prefix("session-")?;
    // Older versions wrote one document, and this one goes on with it in lines, under the same name.
    let stem = name.strip_suffix(".jsonl").or_else(|| name.strip_suffix(".json"))?;
    // An id of a person's choice may be shorter, and may have dashes.
    let is_time = stem.len() > 17 && stem.as_bytes()[16] == b'-' && stem.as_bytes()[10] == b'T';
    let short = if is_time { &stem[17..] } else { stem.split_once('-')?.1 };
    (!short.is_empty()).then_some(short)
}

/// The files of one session, the one that says something first.
struct Seen {
    project: PathBuf,
    files: Vec<(Found, Read)>,
}

impl Seen {
    /// When a file of it was last changed.
    fn touched(&self) -> Option<Time> {
        self.files.iter().map(|(file, _)| file.key.mtime / 1_000_000).max().map(Time)
    }
}

/// Puts the files of each session together. One that cannot be read belongs to the session whose id
/// begins as its name says, if there is one; of the others nothing is known but where they are.
fn by_session(read: Vec<(Stored, Read)>, bound: &Bound) -> (BTreeMap<String, Seen>, Vec<PathBuf>) {
    let mut sessions: BTreeMap<String, Seen> = BTreeMap::new();
    let mut nameless = Vec::new();
    for (s, read) in read {
        let fold = read.as_ref().ok().map(|r| &r.fold);
        if fold.is_some_and(|f| f.kind.as_deref() == Some("subagent")) {
            continue; // part of the session it works for
        }
        // An id that does not fit the file's name is damage.
        let fits = |id: &String| is_id(id) && id.starts_with(&s.short);
        match fold.and_then(|f| f.id.clone()).filter(fits) {
            Some(id) => {
                let seen = sessions.entry(id).or_insert_with(|| Seen { project: s.project, files: Vec::new() });
                seen.files.push((s.file, read));
            }
            None => nameless.push((s, read)),
        }
    }
    let mut lost = Vec::new();
    for (s, read) in nameless {
        let stored = sessions.iter().find(|(id, seen)| id.starts_with(&s.short) && seen.project == s.project);
        let held = || bound.holds.keys().find(|id| id.starts_with(&s.short));
        let Some(id) = stored.map(|(id, _)| id).or_else(held).cloned() else {
            // What could not be read was warned of; an empty file is only not written yet.
            let silent = read.as_ref().is_ok_and(|r| r.complaint().is_none()) && s.file.key.size > 0;
            lost.extend(Some(s.file.path).filter(|_| silent));
            continue;
        };
        let seen = sessions.entry(id).or_insert_with(|| Seen { project: s.project, files: Vec::new() });
        seen.files.push((s.file, read));
    }
    for seen in sessions.values_mut() {
        let says = |read: &Read| read.as_ref().is_ok_and(|r| r.fold.says_something());
        // By their lines: a later Gemini writes a summary into older files, and a copy has times of its own.
        let said = |read: &Read| read.as_ref().ok().and_then(|r| r.fold.said);
        seen.files.sort_by_key(|(file, read)| std::cmp::Reverse((says(read), said(read), file.key.mtime)));
    }
    (sessions, lost)
}

/// What the sessions of each project tell of where a terminal may be.
fn projects<'a>(
    sessions: &'a BTreeMap<String, Seen>,
    directories: &'a HashMap<PathBuf, String>,
    bound: &Bound,
) -> Vec<Project<'a>> {
    let mut found: BTreeMap<&Path, Vec<Told<'a>>> = BTreeMap::new();
    for (id, seen) in sessions {
        let folds = || seen.files.iter().filter_map(|(_, r)| r.as_ref().ok().map(|r| &r.fold));
        found.entry(&seen.project).or_default().push(Told {
            id,
            is_held: bound.holds.contains_key(id),
            started: folds().filter_map(|f| f.started).min(),
            updated: folds().filter_map(|f| f.updated).max(),
            taken_up: folds().any(|f| f.reopened).then(|| seen.touched()).flatten().map(|t| t.0),
            asked: folds().flat_map(|f| f.asked.iter().copied()).collect(),
        });
    }
    let with = |(folder, sessions): (&'a Path, _)| Some(Project { folder, cwd: directories.get(folder)?, sessions });
    found.into_iter().filter_map(with).collect()
}

/// The directory of each project folder.
fn directories<'a>(
    look: &Look<'_>,
    projects: impl Iterator<Item = &'a PathBuf>,
    report: &mut Report,
) -> HashMap<PathBuf, String> {
    let projects: HashSet<&PathBuf> = projects.collect();
    let mut found = HashMap::new();
    let mut missing = Vec::new();
    for project in projects {
        let path = project.join(".project_root");
        match file::read_small(&path, 1 << 16).map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()) {
            Ok(root) if root.starts_with('/') && !root.contains(['\n', '\0']) => {
                found.insert(project.clone(), root);
            }
            Ok(root) if !root.is_empty() => {
                report.warnings.push(warning(look, &path, "names no directory".into()));
                missing.push(project);
            }
            Err(e) if !file::is_absent(&path, &e) => {
                report.warnings.push(warning(look, &path, e.to_string()));
                missing.push(project);
            }
            _ => missing.push(project),
        }
    }
    if missing.is_empty() {
        return found;
    }
    let path = look.places.gemini.join("projects.json");
    let text = match file::read_small(&path, 1 << 24) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return found,
        Err(e) => {
            report.warnings.push(warning(look, &path, e.to_string()));
            return found;
        }
    };
    let Ok(doc) = Doc::parse(&text, |parent, key| parent == b"projects" || key == b"projects", 4096) else {
        report.warnings.push(warning(look, &path, "not a list of projects: broken JSON".into()));
        return found;
    };
    for (directory, slug) in doc.root().get("projects").entries() {
        let folder = slug.str().and_then(|slug| missing.iter().find(|p| p.file_name().is_some_and(|n| n == slug)));
        found.extend(folder.map(|folder| ((*folder).clone(), directory.to_owned())));
    }
    found
}

fn sighting(
    look: &Look<'_>,
    bound: &mut Bound,
    id: String,
    seen: Seen,
    hold: Option<Hold>,
    directories: &HashMap<PathBuf, String>,
) -> Sighting {
    let folds = || seen.files.iter().filter_map(|(_, r)| r.as_ref().ok().map(|r| &r.fold));
    let updated = folds().filter_map(|f| f.updated).max().map(Time);
    let said = folds().filter_map(|f| f.said).max().map(Time);
    let started = folds().filter_map(|f| f.started).min().map(Time);
    let cwd = directories.get(&seen.project).cloned();
    let cwd = cwd.or_else(|| ap::standing(hold.as_ref()?.bond.process.pid).map(|c| c.raw().to_owned()));
    let mut observations = bound.notes.remove(&id).unwrap_or_default();
    let main = seen.files.first();
    let path = main.map(|(file, _)| file.path.clone());
    let fact = main.map(|(_, read)| turn(read));
    let fact = match &hold {
        Some(hold) => {
            observations.push(hold.bond.evidence.clone());
            let calls = main.is_some_and(|(_, read)| read.as_ref().is_ok_and(|r| r.fold.calls()));
            let own = said.is_some_and(|s| s >= ap::started(&hold.bond.process));
            let beside = main.filter(|_| own && !hold.headless).and_then(|(file, _)| beside(look, file, &id, updated?));
            // What its sub-agent calls for waits as what it calls for itself.
            let (calls, updated, fact) = match (beside, fact) {
                (Some(Beside::AtWork), Some(Fact::Turn(Turn::Open(_) | Turn::Over(Outcome::Well)))) => {
                    (false, updated, Some(Fact::Turn(Turn::Open(Some("sub-agent at work".into())))))
                }
                (Some(Beside::Calls(since)), fact) => (calls, updated.max(since), fact),
                (_, fact) => (calls, updated, fact),
            };
            let lacks = main.and_then(|(_, read)| lacking(read)).filter(|_| own);
            let lacks = lacks.map(|ask| Observation::new(Witness::Store, Fact::Asks(ask)).at(updated));
            let within = || may_work_within(look, cwd.as_deref());
            let asks = (calls && own && may_ask(look, hold, updated) && !within()).then(|| {
                let ask = Ask { kind: AskKind::Permission, text: "a tool that Gemini has not recorded yet".into() };
                let source = format!("/proc/{}/task", hold.bond.process.pid);
                Observation::new(Witness::Process, Fact::Asks(ask)).at(updated).from(source)
            });
            let unclear = calls && own && lacks.is_none() && asks.is_none();
            observations.extend(lacks.or(asks));
            fact.map(|fact| while_it_lives(look, hold, fact, unclear, updated))
        }
        None => {
            observations.push(presence(look, bound, &id, &seen, cwd.as_deref(), updated));
            fact
        }
    };
    let source = path.as_deref().map_or_else(|| Untrusted::new(""), |p| look.places.shown(p));
    // What was said before this process started is not its turn, though it has written that again.
    let shut = main.filter(|(_, read)| read.is_err()).map(|(file, read)| (turn(read), file.key.mtime));
    let young = hold.as_ref().is_some_and(|h| match &shut {
        Some((unread, mtime)) => ap::is_past(unread, None, *mtime, &h.bond.process),
        None => ap::is_before(said.or(updated), &h.bond.process),
    });
    // A terminal that took it up stands at its prompt, once it had the time to come up.
    let left = main.map(|(_, read)| turn(read)).and_then(|fact| match fact {
        Fact::Turn(Turn::Open(_)) => Some(Fact::Turn(Turn::Over(Outcome::Failed("it was cut off".into())))),
        over @ Fact::Turn(Turn::Over(_)) => Some(over),
        _ => None,
    });
    let left = left.filter(|_| hold.as_ref().is_some_and(|h| !h.asked && ap::is_up(look, &h.bond.process)));
    let fact = fact.map(|fact| match young {
        true if left.is_some() => left.unwrap_or(fact),
        true => Fact::Note(Untrusted::new(format!("{}, before this process started", fact.told().raw()))),
        false => fact,
    });
    observations.extend(fact.map(|fact| Observation::new(Witness::Store, fact).at(updated).from(source)));
    let all_read = seen.files.iter().all(|(_, r)| r.as_ref().is_ok_and(|r| r.is_exact()));
    let last = |get: fn(&Chat) -> Option<&String>| folds().find_map(get).cloned();
    Sighting {
        about: About {
            tokens: all_read.then(|| Chat::tokens_together(folds())).flatten(),
            title: last(|f| f.title.as_ref()),
            model: last(|f| f.model.as_ref()),
            prompt: last(|f| f.prompt.as_ref()),
            cwd,
            started_at: started,
            updated_at: updated,
            turn_at: folds().filter_map(|f| f.asked.last()).map(|(_, at)| Time(*at)).max(),
            ..About::default()
        },
        native_id: id,
        observations,
        process: hold.map(|h| h.bond.process),
        named: Vec::new(),
        missed: Vec::new(),
        outlived: false,
        shared: false,
        transcript: path,
    }
}

/// How the sub-agents stand that were written to since a session's last word.
enum Beside {
    /// One of them thinks, or its tool has run.
    AtWork,
    /// They have called for a tool, of which nothing is recorded until it ran, and when.
    Calls(Option<Time>),
}

/// Sub-agents that may be at work for a session: their files lie in a folder of its name beside its own.
fn beside(look: &Look<'_>, main: &Found, id: &str, since: Time) -> Option<Beside> {
    let folder = main.path.parent()?.join(id);
    let dir = Directory::open(&folder).ok()?;
    let names = dir.entries().ok()?.into_iter().map(|e| e.name).filter(|name| name.ends_with(".jsonl"));
    let found =
        names.filter_map(|name| Some(Found { key: dir.key(&name).ok()?, path: folder.join(name), whole: true }));
    // The kernel may date a file by the last tick of its clock; what Gemini says itself is exact.
    let found: Vec<Found> = found.filter(|f| f.key.mtime / 1_000_000 + SETTLING_MS >= since.0).collect();
    let chats = read_all::<Chat>(look, "gemini-agents", &found).into_iter().flatten().map(|r| r.fold);
    let chats: Vec<Chat> = chats.filter(|c| c.updated >= Some(since.0)).collect();
    let open = || chats.iter().filter(|c| c.stand() == Some(Stand::Open));
    if open().any(|c| !c.calls()) {
        return Some(Beside::AtWork);
    }
    let called = open().filter_map(|c| c.updated).max();
    called.map(|at| Beside::Calls(Some(Time(at))))
}

/// What its last turn failed for the lack of.
fn lacking(read: &Read) -> Option<Ask> {
    match read.as_ref().ok()?.fold.stand()? {
        Stand::Failed(error) => Need::of_text(&error).map(|need| need.ask(&error)),
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
    Fact::Turn(match reading.fold.stand() {
        None | Some(Stand::Never) => Turn::Never,
        Some(Stand::Open) => Turn::Open(None),
        Some(Stand::Well) => Turn::Over(Outcome::Well),
        Some(Stand::Failed(error)) => Turn::Over(Outcome::Failed(error.into())),
        Some(Stand::Aborted(how)) => Turn::Over(Outcome::Aborted(how.into())),
    })
}

/// What the file shows while the process lives. An answer may also have called for a tool: one that
/// runs is seen as a process; one that waits for a person's leave is not seen at all.
fn while_it_lives(look: &Look<'_>, hold: &Hold, fact: Fact, calls: bool, updated: Option<Time>) -> Fact {
    match fact {
        Fact::Turn(Turn::Open(_)) if calls && may_ask(look, hold, updated) => Fact::TurnUnread(
            "it has called for a tool, which may wait for leave or be at work in an MCP server: Gemini does not \
             record which"
                .into(),
        ),
        Fact::Turn(Turn::Over(_)) if hold.headless => Fact::Turn(Turn::Open(Some("a tool, or its end".into()))),
        Fact::Turn(Turn::Over(Outcome::Well)) if has_tool(look, hold, updated) => {
            Fact::Turn(Turn::Open(Some("running a tool".into())))
        }
        Fact::Turn(Turn::Over(Outcome::Well)) => Fact::TurnUnread(
            "it has answered, and may be at rest or waiting for leave to use a tool: Gemini does not record which"
                .into(),
        ),
        fact => fact,
    }
}

/// Whether a tool may be at work that is no process of the call: those of MCP servers, which settings or
/// extensions name.
fn may_work_within(look: &Look<'_>, cwd: Option<&str>) -> bool {
    let names = |path: PathBuf| match file::read_small(&path, 1 << 20) {
        Ok(text) => memchr::memmem::find(&text, b"\"mcpServers\"").is_some(),
        Err(e) => e.kind() != io::ErrorKind::NotFound,
    };
    let store = &look.places.gemini;
    let extended = Directory::open(&store.join("extensions")).and_then(|d| d.entries()).is_ok_and(|e| !e.is_empty());
    extended
        || names(store.join("settings.json"))
        || cwd.is_none_or(|c| names(Path::new(c).join(".gemini/settings.json")))
}

/// Whether a call may wait for a person's leave: a command that runs is seen as a process, and none is seen when
/// the call is so old that Gemini's own tools are done.
fn may_ask(look: &Look<'_>, hold: &Hold, updated: Option<Time>) -> bool {
    let settled = updated.is_some_and(|u| look.now.0 - u.0 >= takes("own-tools", OWN_TOOLS_MS));
    settled && !hold.headless && !hold.free && look.table.is_ok() && !has_tool(look, hold, updated)
}

/// Whether a child was started since the last line.
fn has_tool(look: &Look<'_>, hold: &Hold, updated: Option<Time>) -> bool {
    let Ok(table) = look.table else { return false };
    let since = updated.map_or(i64::MIN, |u| u.0 - SETTLING_MS / 2);
    let descendants = table.descendants(hold.bond.process.pid);
    descendants.into_iter().any(|child| ap::started(child).0 >= since && !child.is_copy_of_parent(table))
}

/// Nobody is known to hold it: gone, unless a Gemini that could was written into it since it started. What was written
/// before its own process left it is that one's.
fn presence(
    look: &Look<'_>,
    bound: &Bound,
    id: &str,
    seen: &Seen,
    cwd: Option<&str>,
    updated: Option<Time>,
) -> Observation {
    let touched = seen.touched();
    let undated = seen.files.iter().any(|(_, r)| r.as_ref().map_or(true, |r| r.fold.reopened || r.unread.is_some()));
    let written = if undated { touched.max(updated) } else { updated };
    let left = bound.left.get(id).filter(|(at, _)| written.is_some_and(|w| w <= *at));
    let fact = match look.table {
        Err(why) => Fact::Unseen(Untrusted::new(format!("the process table could not be read: {why}"))),
        Ok(_) => match (left, bound.loose.iter().find(|l| l.could_hold(cwd, written))) {
            (Some((_, pid)), _) => Fact::Gone(format!("gemini process {pid} has moved on to another session").into()),
            (None, Some(loose)) => Fact::Unseen(Untrusted::new(loose.told())),
            (None, None) => Fact::Gone("no gemini process could be it".into()),
        },
    };
    Observation::new(Witness::Process, fact)
}
