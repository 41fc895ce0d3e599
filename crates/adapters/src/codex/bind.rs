//! Which process has which thread open.
//!
//! By the thread's lock in `/proc/locks`; by a descriptor on its rollout, for
//! versions before locks; by its id in the arguments (`resume ID`) or in a
//! tool's environment for a process that holds nothing yet.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use lariat_core::{Fact, Observation, Time, Unbound, Witness};
use lariat_sys::process::{self, Opened};
use lariat_sys::scan::{Process, Table};
use lariat_sys::{file, locks};

use super::{NAME, PROGRAMS, Role, role, role_of, warning};
use crate::agent_process as ap;
use crate::look::{Bond, Look, Places, Report, could_be};

const CLIENT: &str = "a terminal of the shared daemon, which holds its thread";

const LOOSE: &str = "holds no thread, no id in its arguments or in a child's environment";

const BLIND: &str = "neither its open files nor the locks of threads can be read";

/// A thread that a process has open.
#[derive(Clone, Debug)]
pub struct Hold {
    /// The process.
    pub bond: Bond,
    /// The holder is an app server, which may hold many.
    pub server: bool,
    /// When the lock was made: the last one opened is the current one.
    pub opened: i64,
    /// It has the rollout itself open, and not only to see how to go on with it: it has taken the thread up, as versions
    /// without locks show it.
    pub taken: bool,
}

/// What is known of the processes before any rollout is opened.
#[derive(Default)]
pub struct Held {
    /// Holders by thread.
    pub threads: HashMap<String, Hold>,
    /// Processes that hold nothing and may yet be a session's own.
    pub loose: Vec<Unbound>,
    /// Processes that may hold any thread, as far as can be seen.
    pub blind: Vec<Blind>,
    /// Further things worth knowing of a thread.
    pub notes: HashMap<String, Vec<Observation>>,
    /// Threads whose lock a process holds that has begun since the others were counted.
    pub newer: HashSet<String>,
}

/// A process whose open files cannot be read, where the locks do not tell either.
pub struct Blind {
    /// The process.
    pub unbound: Unbound,
    /// Its being up holds no thread by itself.
    server: bool,
    /// Its words tie it to a thread; it may have gone on to another since.
    tied: bool,
}

impl Blind {
    /// Whether it may hold a thread of this directory that is nobody else's, and that was last written to then.
    pub fn could_hold(&self, cwd: Option<&str>, last: Option<Time>, open: bool) -> bool {
        // What has ended before it began is none of its threads, as far as anybody knows.
        let since = last.is_none() || self.unbound.started_at <= last;
        match self.server {
            true => open || since, // of any directory
            false => (since || !self.tied) && could_be(std::slice::from_ref(&self.unbound), cwd).is_some(),
        }
    }
}

/// Finds the threads that processes hold.
pub fn held(look: &Look<'_>, report: &mut Report) -> Held {
    let mut held = Held::default();
    let Ok(table) = look.table else { return held };
    let agents = agents(look, table);
    let daemon = agents.iter().any(|(p, _)| p.arguments().any(|a| a == "--managed-daemon"));
    let locks_tell = by_lock(look, &agents, &mut held, report);
    let themselves: Vec<_> = agents.iter().copied().filter(|(p, _)| !p.is_copy_of_parent(table)).collect();
    by_left_lock(&themselves, &mut held);
    let shut = by_rollout(&themselves, &mut held);
    if !locks_tell && !shut.is_empty() {
        held.blind = blind(look, &shut, report);
    }
    let holding: Vec<u32> = held.threads.values().map(|h| h.bond.process.pid).collect();
    let loose = agents.into_iter().filter(|(p, _)| !holding.contains(&p.pid)).filter_map(session_run).collect();
    let mut unbound = Vec::new();
    for (process, run) in ap::genuine(look.places, loose, table, |p| role(p).is_some()) {
        match by_child(table, &process).or_else(|| by_arguments(&process, run)) {
            Some((thread, by)) => by_word(&mut held, &process, thread, by),
            None => unbound.push((process, run)),
        }
    }
    let is_tied = |pid| held.threads.values().any(|h| h.bond.process.pid == pid);
    held.blind.iter_mut().for_each(|blind| blind.tied = is_tied(blind.unbound.pid));
    let is_client = |p: &Process| daemon && !p.arguments().any(|a| matches!(a, "exec" | "e" | "--no-daemon"));
    let (clients, loose) = unbound.into_iter().partition(|(p, _)| is_client(p));
    held.loose = ap::unbound(NAME, loose, |_| LOOSE.to_owned());
    report.unbound.extend(ap::unbound(NAME, clients, |_| CLIENT.to_owned()));
    report.unbound.extend(held.loose.iter().cloned());
    held
}

/// Looks again who holds locks: what is in a store by now may have been begun since.
pub fn again(look: &Look<'_>, held: &mut Held, report: &mut Report) {
    let Ok(table) = look.table else { return };
    by_lock(look, &agents(look, table), held, report);
    let holds = |u: &Unbound| held.threads.values().any(|h| h.bond.process.pid == u.pid);
    held.loose.retain(|u| !holds(u));
    report.unbound.retain(|u| !holds(u));
}

fn agents<'a>(look: &Look<'_>, table: &'a Table) -> Vec<(&'a Process, Role)> {
    let agents = table.iter().filter_map(|p| role(p).filter(|r| *r != Role::Other).map(|r| (p, r)));
    agents.filter(|(p, _)| uses_store(look.places, p)).collect()
}

fn session_run((process, role): (&Process, Role)) -> Option<(Process, ap::Run)> {
    match role {
        Role::Session(run) => Some((process.clone(), run)),
        Role::Server | Role::Other => None,
    }
}

/// Those that could not be looked at.
fn blind(look: &Look<'_>, shut: &[(&Process, Role, io::Error)], report: &mut Report) -> Vec<Blind> {
    let all = shut.iter().map(|(p, ..)| ((*p).clone(), ap::Run { arguments: 1, script: false })).collect();
    let all = ap::unbound(NAME, all, |_| BLIND.to_owned()).into_iter();
    let blind = all.filter_map(|unbound| {
        let (_, role, error) = shut.iter().find(|(p, ..)| p.pid == unbound.pid)?;
        let files = format!("/proc/{}/fd", unbound.pid);
        report.warnings.push(warning(look, Path::new(&files), error.to_string()));
        report.partial = true;
        Some(Blind { unbound, server: *role == Role::Server, tied: false })
    });
    blind.collect()
}

/// Whether a process keeps its threads where we look.
pub fn uses_store(places: &Places, process: &Process) -> bool {
    ap::uses_store(process.pid, "CODEX_HOME", ".codex", &places.codex)
}

/// What the processes alone tell, when the store does not answer.
pub fn by_processes(look: &Look<'_>, why: &str) -> Report {
    let mut report = Report::default();
    let Ok(table) = look.table else { return report };
    let ours = |p: &Process| uses_store(look.places, p);
    let loose = table.iter().filter_map(|p| session_run((p, role(p)?))).filter(|(p, _)| ours(p)).collect();
    let mut unbound = Vec::new();
    let mut threads = HashMap::new();
    for (process, run) in ap::genuine(look.places, loose, table, |p| role(p).is_some()) {
        match by_child(table, &process).or_else(|| by_arguments(&process, run)) {
            Some((thread, by)) => {
                threads.entry(thread).or_insert_with(|| bond(&process, by));
            }
            None => unbound.push((process, run)),
        }
    }
    threads.into_iter().for_each(|(thread, bond)| report.add((look.judge)(NAME, bond.unread(thread, why))));
    report.unbound = ap::unbound(NAME, unbound, |_| why.to_owned());
    report
}

/// Whether the locks tell who holds a thread: not where they cannot be read, nor to versions that keep none.
fn by_lock(look: &Look<'_>, agents: &[(&Process, Role)], held: &mut Held, report: &mut Report) -> bool {
    let dir = look.places.codex.join("thread-writer-locks");
    let (folder, entries) = match file::Directory::open(&dir).and_then(|d| d.entries().map(|entries| (d, entries))) {
        Ok(found) => found,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return false,
        Err(e) => {
            report.partial = true;
            report.warnings.push(warning(look, &dir, e.to_string()));
            return false;
        }
    };
    let table = match locks::held() {
        Ok(table) => table,
        Err(e) => {
            report.warnings.push(warning(look, Path::new("/proc/locks"), e.to_string()));
            return false;
        }
    };
    for entry in entries {
        let Some(thread) = entry.name.strip_suffix(".lock").filter(|t| ap::is_uuid(t)) else { continue };
        let path = dir.join(&entry.name);
        let key = match file::open(&path) {
            Ok((_, key)) => key,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue, // released this moment
            Err(e) => {
                report.warnings.push(warning(look, &path, e.to_string()));
                // Which file it is can be told all the same.
                let Ok(key) = folder.key(&entry.name) else { continue };
                key
            }
        };
        // The inode and a Codex as its holder say enough: some file systems show
        // another device here.
        let holder = table.iter().filter(|l| l.inode == key.inode).find_map(|lock| {
            // It may have been called by another name than its own.
            let renamed = || {
                let process = look.table.ok()?.get(lock.pid).filter(|p| role(p).is_none())?;
                let (file, run) = ap::file(process)?;
                PROGRAMS.contains(&ap::base(&file)).then(|| (process, role_of(process, run)))
            };
            // Whoever has this very file uses this store, also one of another user.
            let of_another = || {
                let process = look.table.ok()?.get(lock.pid).filter(|_| lock.number() == key.device)?;
                Some((process, role(process).filter(|r| *r != Role::Other)?))
            };
            agents.iter().copied().find(|(p, _)| p.pid == lock.pid).or_else(renamed).or_else(of_another)
        });
        let Some((process, role)) = holder else {
            let is_new = |pid| look.table.is_ok_and(|processes| processes.get(pid).is_none());
            if table.iter().any(|l| l.inode == key.inode && l.pid > 0 && is_new(l.pid)) {
                held.newer.insert(thread.to_owned());
            }
            continue;
        };
        let by = "it holds the thread's lock";
        let evidence = Observation::new(Witness::Registry, Fact::Alive { pid: Some(process.pid), by: by.into() })
            .at(Some(Time(key.mtime / 1_000_000)))
            .from(look.places.shown(&path));
        held.threads.insert(
            thread.to_owned(),
            Hold {
                bond: Bond { process: process.clone(), evidence },
                server: role == Role::Server,
                opened: key.mtime,
                taken: false,
            },
        );
    }
    true
}

/// The threads whose shell Codex has recorded: `shell_snapshots/<id>.<time>.sh`. It does so for each conversation that it has
/// open, and not for what it keeps for itself.
pub fn shells(look: &Look<'_>, report: &mut Report) -> HashSet<String> {
    let dir = look.places.codex.join("shell_snapshots");
    match file::Directory::open(&dir).and_then(|d| d.entries()) {
        Ok(entries) => entries.iter().filter_map(|e| Some(e.name.split_once('.')?.0.to_owned())).collect(),
        Err(e) => {
            let absent = e.kind() == io::ErrorKind::NotFound;
            report.warnings.extend((!absent).then(|| warning(look, &dir, e.to_string())));
            HashSet::new()
        }
    }
}

/// A lock that a tool took for it, as `flock` does for a script, or that it has taken since the kernel's list was read.
/// When it did is known if the file was made since it started.
fn by_left_lock(agents: &[(&Process, Role)], held: &mut Held) {
    let thread = |path: &Path| {
        let name = path.file_name()?.to_str()?.strip_suffix(".lock").filter(|t| ap::is_uuid(t))?;
        path.parent()?.ends_with("thread-writer-locks").then(|| name.to_owned())
    };
    for (process, role) in agents {
        if held.threads.values().any(|h| h.bond.process.pid == process.pid) {
            continue;
        }
        let files = process::opened(process.pid, |p| thread(p).is_some()).unwrap_or_default();
        for lock in files.into_iter().filter(|f| f.locks) {
            let Some(id) = thread(&lock.path) else { continue };
            let bond = bond(process, "it holds the thread's lock".into());
            let made = file::open(&lock.path).map_or(0, |(_, key)| key.mtime);
            let opened = if made / 1_000_000 + ap::TICK < ap::started(process).0 { 0 } else { made };
            held.threads.entry(id).or_insert(Hold { bond, server: *role == Role::Server, opened, taken: false });
        }
    }
}

/// Where the file lies is not asked: the store may be a link, and all of these use this store. Of a file that is only read
/// the arguments may tell that it is another thread's: one that is forked, or one of all that are offered. Gives those whose
/// files cannot be read.
fn by_rollout<'a>(agents: &[(&'a Process, Role)], held: &mut Held) -> Vec<(&'a Process, Role, io::Error)> {
    fn thread(path: &Path) -> Option<&str> {
        thread_of(path.file_name()?.to_str()?)
    }
    let (mut found, mut shut) = (Vec::new(), Vec::new());
    for (process, role) in agents {
        match process::opened(process.pid, |p| thread(p).is_some()) {
            Ok(files) => found.extend(files.into_iter().map(|file| ((*process).clone(), role, file))),
            Err(e) => shut.push((*process, *role, e)),
        }
    }
    found.sort_by_key(|(_, _, file)| !file.writes);
    for (process, role, Opened { path, writes, .. }) in found {
        let words: Vec<&str> = process.arguments().collect();
        let resumes = words.contains(&"resume");
        let named = |t: &str| words.iter().any(|word| word.eq_ignore_ascii_case(t));
        let is_its_own = |t: &str| !words.contains(&"fork") && (!resumes || named(t));
        let Some(thread) = thread(&path).filter(|t| writes || is_its_own(t)) else { continue };
        if held.threads.contains_key(thread) {
            continue;
        }
        let fact = Fact::Alive { pid: Some(process.pid), by: "it has the rollout open".into() };
        let evidence = Observation::new(Witness::Process, fact).from(format!("/proc/{}/fd", process.pid));
        let (server, taken) = (*role == Role::Server, writes || !resumes);
        held.threads.insert(thread.to_owned(), Hold { bond: Bond { process, evidence }, server, opened: 0, taken });
    }
    shut
}

/// The thread of `rollout-2026-11-15T07-47-10-<id>.jsonl`. One that was rewound goes on in another file, whose name has an
/// id of its own behind the thread's: `rollout-<time>-<id>_<own id>.jsonl`.
pub fn thread_of(name: &str) -> Option<&str> {
    let own = rollout_of(name)?;
    let before = name.strip_suffix(".jsonl")?.strip_suffix(own)?.strip_suffix('_');
    let thread = before.and_then(|stem| stem.get(stem.len().checked_sub(36)?..)).filter(|id| ap::is_uuid(id));
    thread.or(Some(own).filter(|_| before.is_none()))
}

/// The id of the rollout itself: the thread's, unless the thread was rewound.
pub fn rollout_of(name: &str) -> Option<&str> {
    let stem = name.strip_prefix("rollout-")?.strip_suffix(".jsonl")?;
    stem.get(stem.len().checked_sub(36)?..).filter(|id| ap::is_uuid(id))
}

fn by_word(held: &mut Held, process: &Process, thread: String, by: String) {
    if let Some(hold) = held.threads.get(&thread) {
        let text = format!("terminal {} shows it, {} holds it", process.pid, hold.bond.process.pid);
        let note = Observation::new(Witness::Process, Fact::Note(text.into()));
        held.notes.entry(thread).or_default().push(note);
        return;
    }
    held.threads.insert(thread, Hold { bond: bond(process, by), server: false, opened: 0, taken: false });
}

fn bond(process: &Process, by: String) -> Bond {
    let evidence = Observation::new(Witness::Process, Fact::Alive { pid: Some(process.pid), by: by.into() })
        .from(format!("/proc/{}", process.pid));
    Bond { process: process.clone(), evidence }
}

fn by_child(table: &Table, parent: &Process) -> Option<(String, String)> {
    table.children(parent.pid).find_map(|child| {
        let environment = process::environment(child.pid).ok()?;
        let thread = environment.get("CODEX_THREAD_ID").filter(|t| ap::is_uuid(t))?;
        // A nested Codex inherits the outer's marks; a tool of ours is no Codex.
        role(child).is_none().then(|| (thread.to_owned(), format!("its child {} carries the thread's id", child.pid)))
    })
}

/// However a person has written the id, Codex writes it small.
fn by_arguments(process: &Process, run: ap::Run) -> Option<(String, String)> {
    let words: Vec<&str> = process.arguments().skip(run.arguments).collect();
    let at = words.iter().position(|w| *w == "resume")?;
    let thread = words[at + 1..].iter().find(|w| ap::is_uuid(w))?;
    Some((thread.to_ascii_lowercase(), "started with resume".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rewound_thread_is_the_same_thread() {
        let (thread, own) = ("01a1e2f8-2ac3-70c3-ae12-481e379a3d68", "01a1e2f8-75f6-7f83-9715-14ab3337cd48");
        let plain = format!("rollout-2026-11-16T06-07-57-{thread}.jsonl");
        assert_eq!((thread_of(&plain), rollout_of(&plain)), (Some(thread), Some(thread)));
        let rewound = format!("rollout-2026-11-16T06-08-16-{thread}_{own}.jsonl");
        assert_eq!((thread_of(&rewound), rollout_of(&rewound)), (Some(thread), Some(own)));
        assert_eq!(thread_of(&format!("rollout-2026-11-16T06-08-16-x_{own}.jsonl")), None);
        assert_eq!(thread_of("rollout-x.jsonl"), None);
    }
}
