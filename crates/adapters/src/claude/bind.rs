//! Which process holds which session.
//!
//! In the order of belief: the registry's entry for that very process; the id
//! in the environment of a tool the process started; the id it was started
//! with. `/clear` gives a process a new session, so its arguments come last.
//! One process holds at most one session, and one session shows at most one
//! process. What cannot be tied to a session is told apart, never guessed.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use lariat_core::{Fact, Observation, Time, Unbound, Witness};
use lariat_sys::process;
use lariat_sys::scan::{Process, Table};

use super::history::History;
use super::registry::{self, Entry, Here, Holder, Job};
use super::{NAME, Role, is_daemon, is_program, role, transcripts};
use crate::agent_process as ap;
use crate::look::{Bond, Look, Places, Report};
use crate::strangers::Strangers;

/// What is known of the processes before any transcript is opened.
#[derive(Default)]
pub struct Bound {
    /// The process of a session.
    pub bonds: HashMap<String, Bond>,
    /// Entries by session, each with who stands behind it.
    pub entries: HashMap<String, Vec<(Entry, Holder)>>,
    /// Further things worth knowing of a session.
    pub notes: HashMap<String, Vec<Observation>>,
    /// Background jobs by session.
    pub jobs: HashMap<String, Job>,
    /// Whether the background daemon runs, which may start a worker any moment.
    pub daemon: bool,
    /// Processes that hold none: their person chooses which to go on with, or looks at those in the background.
    pub choosing: Vec<Unbound>,
    /// Processes that have left the session that they are registered with, and since when they write to another.
    pub moved: Vec<(Unbound, Time)>,
    /// Sessions that were moved to the background from a terminal that lariat launched for them and that is there still:
    /// its handle goes on to answer, whether anything was said or not.
    pub parked: HashSet<String>,
    /// Sessions whose process is gone, and what called it there still.
    pub outlived: HashSet<String>,
    /// Those of other users.
    pub strangers: Strangers,
}

/// Binds processes to sessions.
pub fn bind(look: &Look<'_>, report: &mut Report) -> Bound {
    let store = &look.places.claude;
    let mut warnings = Vec::new();
    let mut warn = |path: &Path, error: String| {
        report.partial |= path == store.join("sessions");
        warnings.push(registry::warning(look, path, error));
    };
    let entries = registry::entries(store, &mut warn);
    let jobs = registry::jobs(store, &mut warn);
    report.warnings.append(&mut warnings);

    let mut bound = Bound { jobs: jobs.into_iter().map(|j| (j.session.clone(), j)).collect(), ..Bound::default() };
    let ours = |p: &Process| uses_store(look.places, p);
    let history = History::new(look);
    let mut taken = HashSet::new();
    let here = Here::now();
    let mut held: Vec<(Entry, Holder)> = entries
        .into_iter()
        .map(|entry| {
            // It may have been called by another name than its own.
            let holder =
                entry.holder(look, &here, &|p| role(p).is_some() || ap::file(p).is_some_and(|(f, _)| is_program(&f)));
            (entry, holder)
        })
        .collect();
    // One process, one session: the file that bears its number, else the newer.
    held.sort_by_key(|(entry, _)| std::cmp::Reverse((entry.is_named_by_pid(), entry.state_at)));
    let (spare, held): (Vec<_>, Vec<_>) = held.into_iter().partition(|(entry, _)| entry.spare);
    taken.extend(spare.iter().filter_map(|(_, holder)| match holder {
        Holder::Alive(process) => Some(process.pid),
        _ => None,
    }));
    for (entry, mut holder) in held {
        if let Holder::Alive(process) = &holder {
            if let Some((run, why)) = holds_none(&entry, process) {
                taken.insert(process.pid);
                bound.choosing.extend(ap::unbound(NAME, vec![(process.clone(), run)], |_| why.to_owned()));
                let launched = || ap::launched_for(look.places, process).filter(|id| *id == entry.session);
                bound.parked.extend(entry.parked.then(launched).flatten());
                continue;
            }
            if has_not_found_it(store, &entry, process) {
                continue;
            }
            if let Some(since) = has_left(&history, &entry, process) {
                taken.insert(process.pid);
                has_moved(&mut bound, look, process, since);
                continue;
            }
            if taken.insert(process.pid) {
                by_registry(&mut bound, look, &entry, process);
            } else {
                holder = Holder::Gone(format!("process {} is registered for another session", process.pid));
            }
        }
        bound.entries.entry(entry.session.clone()).or_default().push((entry, holder));
    }
    let Ok(table) = look.table else { return bound };
    // Whoever uses this store has an entry in it; what one says that can be read was heard.
    let unheard = |pid: u32| report.partial || store.join(format!("sessions/{pid}.json")).exists();
    let is_one = |p: &Process| matches!(role(p), Some(Role::Session(_))) && !taken.contains(&p.pid) && unheard(p.pid);
    bound.strangers = Strangers::among(look.table, is_one);

    let mut loose = Vec::new();
    for process in table.iter() {
        match role(process) {
            Some(Role::Session(run)) if !taken.contains(&process.pid) && ours(process) => {
                loose.push((process.clone(), run));
            }
            Some(Role::Other) if !bound.daemon && is_daemon(process) => bound.daemon = ours(process),
            _ => {}
        }
    }
    let why = "no registry entry, no id in its arguments or in a child's environment";
    by_word(look, loose, &mut bound, report, why);
    bound
}

/// Whether a process keeps its sessions where we look.
pub fn uses_store(places: &Places, process: &Process) -> bool {
    ap::uses_store(process.pid, "CLAUDE_CONFIG_DIR", ".claude", &places.claude)
}

/// What the processes alone tell, when the store does not answer.
pub fn by_processes(look: &Look<'_>, why: &str) -> Report {
    let mut report = Report::default();
    let Ok(table) = look.table else { return report };
    let ours = |p: &Process| uses_store(look.places, p);
    let loose = table.iter().filter_map(|p| match role(p) {
        Some(Role::Session(run)) if ours(p) => Some((p.clone(), run)),
        _ => None,
    });
    let mut bound = Bound::default();
    by_word(look, loose.collect(), &mut bound, &mut report, why);
    bound.bonds.into_iter().for_each(|(id, bond)| report.add((look.judge)(NAME, bond.unread(id, why))));
    report
}

/// Binds by what the processes themselves say.
fn by_word(look: &Look<'_>, loose: Vec<(Process, ap::Run)>, bound: &mut Bound, report: &mut Report, why: &str) {
    let Ok(table) = look.table else { return };
    let mut unbound = Vec::new();
    for (process, run) in ap::genuine(look.places, loose, table, |p| role(p).is_some()) {
        let by_child = by_child(table, &process);
        let by_arguments = by_arguments(&process, run).filter(|_| by_child.is_none());
        if let Some((session, _)) = by_arguments.as_ref().filter(|(id, _)| called_who_is_gone(bound, id, &process)) {
            let stays = format!("process {}, which called it, is there still", process.pid);
            let note = Observation::new(Witness::Process, Fact::Note(stays.into()));
            bound.notes.entry(session.clone()).or_default().push(note);
            bound.outlived.insert(session.clone());
            continue;
        }
        match by_child.or(by_arguments) {
            Some((session, fact)) if !bound.bonds.contains_key(&session) => {
                let evidence = Observation::new(Witness::Process, fact).from(format!("/proc/{}", process.pid));
                bound.bonds.insert(session, Bond { process, evidence });
            }
            Some((session, _)) => {
                let also = format!("process {} also works on this session", process.pid);
                let note = Observation::new(Witness::Process, Fact::Note(also.into()));
                bound.notes.entry(session).or_default().push(note);
            }
            None => unbound.push((process, run)),
        }
    }
    report.unbound.extend(ap::unbound(NAME, unbound, |_| why.to_owned()));
}

/// Whether a process only bears the words of a session: one that began later has registered itself for it, and is gone. An
/// agent would be in the registry itself; this is a script that called the agent with its own arguments.
fn called_who_is_gone(bound: &Bound, session: &str, process: &Process) -> bool {
    let began = ap::started(process).0;
    let entries = bound.entries.get(session).into_iter().flatten();
    // What bears its own number is its own, whatever else is wrong with it.
    let another = |e: &Entry| e.pid != process.pid && e.started.is_some_and(|at| at > began);
    entries.into_iter().any(|(e, h)| matches!(h, Holder::Gone(_)) && another(e))
}

/// Why a process that is registered with a session holds none, if so.
fn holds_none(entry: &Entry, process: &Process) -> Option<(ap::Run, &'static str)> {
    let parked = role(process).filter(|_| entry.parked).and_then(|role| match role {
        Role::Session(run) => Some((run, "its session was moved to the background; it shows the sessions there")),
        Role::Other => None,
    });
    parked.or_else(|| Some((chooses(entry, process)?, "its person is asked which session to go on with")))
}

/// Whether a process was told to go on with a session, and not with which: until a person has chosen, it says nothing of
/// its state, and the id it has registered is none that anything is ever said in.
fn chooses(entry: &Entry, process: &Process) -> Option<ap::Run> {
    let Some(Role::Session(run)) = role(process).filter(|_| entry.state.is_none()) else { return None };
    let words: Vec<&str> = process.arguments().skip(run.arguments).collect();
    let resumes = words.iter().any(|w| matches!(*w, "-r" | "--resume") || w.starts_with("--resume="));
    let is_id = |flags: &[&str]| ap::flag(&words, flags).is_some_and(ap::is_uuid);
    let names = is_id(&["-r", "--resume"]) || is_id(&["--session-id"]);
    (resumes && !names && !words.iter().any(|w| matches!(*w, "-p" | "--print"))).then_some(run)
}

/// Whether a process was told to go on with the last session and has not found it yet: until then it has an id
/// registered that nothing is ever said in.
fn has_not_found_it(store: &Path, entry: &Entry, process: &Process) -> bool {
    let Some(Role::Session(run)) = role(process).filter(|_| entry.state.is_none()) else { return false };
    let told = |flags: &[&str]| process.arguments().skip(run.arguments).any(|w| flags.contains(&w));
    told(&["-c", "--continue", "-cp", "-pc"])
        && !told(&["--fork-session", "--session-id"])
        && !transcripts::is_stored(store, &entry.session)
}

/// Where the registry stays with the session that a process began with, only history tells that it was told to go on
/// to another one.
fn has_left(history: &History<'_>, entry: &Entry, process: &Process) -> Option<Time> {
    Some(entry).filter(|e| e.terse)?;
    history.moved_on(&entry.session, ap::started(process))
}

/// Which one that is, a tool that it runs may tell.
fn has_moved(bound: &mut Bound, look: &Look<'_>, process: &Process, since: Time) {
    if let Some((session, fact)) = look.table.ok().and_then(|table| by_child(table, process)) {
        let evidence = Observation::new(Witness::Process, fact).from(format!("/proc/{}", process.pid));
        bound.bonds.entry(session).or_insert_with(|| Bond { process: process.clone(), evidence });
        return;
    }
    let why = "it has left the session that it is registered with for another";
    let run = ap::Run { arguments: 1, script: false };
    bound
        .moved
        .extend(ap::unbound(NAME, vec![(process.clone(), run)], |_| why.to_owned()).into_iter().map(|u| (u, since)));
}

/// Claude Code does not keep two processes off one session. The row shows the
/// one that needs a person most; the other is a note.
fn by_registry(bound: &mut Bound, look: &Look<'_>, entry: &Entry, process: &Process) {
    let by = if process.halted { "registered, now halted by a signal" } else { "registered with this start time" };
    let evidence = Observation::new(Witness::Registry, Fact::Alive { pid: Some(process.pid), by: by.into() })
        .at(entry.state_at)
        .from(look.places.shown(&entry.path));
    let bond = Bond { process: process.clone(), evidence };
    let Some(other) = bound.bonds.insert(entry.session.clone(), bond.clone()) else { return };
    let rival = bound.entries.get(&entry.session).and_then(|all| all.iter().find(|(e, _)| e.pid == other.process.pid));
    let (shown, also) =
        if rival.is_some_and(|(e, _)| urgency(e) > urgency(entry)) { (other, bond) } else { (bond, other) };
    let text = format!("process {} also works on this session", also.process.pid);
    let note = Observation::new(Witness::Registry, Fact::Note(text.into()));
    bound.notes.entry(entry.session.clone()).or_default().push(note);
    bound.bonds.insert(entry.session.clone(), shown);
}

fn urgency(entry: &Entry) -> u8 {
    use lariat_core::State;
    match entry.state {
        Some(State::Waiting(_)) => 3,
        Some(State::Busy) => 2,
        Some(_) => 1,
        None => 0,
    }
}

/// A tool that the process started carries the session's id. The process's own
/// environment does not count: a nested Claude Code inherits that of the outer.
fn by_child(table: &Table, parent: &Process) -> Option<(String, Fact)> {
    let pid = parent.pid.to_string();
    table.descendants(parent.pid).into_iter().find_map(|child| {
        let environment = process::environment(child.pid).ok()?;
        let session = environment.get("CLAUDE_CODE_SESSION_ID").filter(|s| ap::is_uuid(s))?;
        (environment.get("CLAUDE_PID") == Some(&pid)).then(|| {
            let by = format!("its child {} carries the session's id", child.pid);
            (session.to_owned(), Fact::Alive { pid: Some(parent.pid), by: by.into() })
        })
    })
}

fn by_arguments(process: &Process, run: ap::Run) -> Option<(String, Fact)> {
    let arguments: Vec<&str> = process.arguments().skip(run.arguments).collect();
    let forks = arguments.contains(&"--fork-session");
    let (session, name) = match ap::flag(&arguments, &["--session-id"]) {
        Some(id) => (id, "--session-id"),
        None if forks => return None, // the fork's own id is not there yet
        None => (ap::flag(&arguments, &["--resume", "-r"])?, "--resume"),
    };
    ap::is_uuid(session).then(|| {
        let by = format!("started with {name}");
        (session.to_owned(), Fact::Alive { pid: Some(process.pid), by: by.into() })
    })
}
