//! Which process holds which session.
//!
//! Pi overwrites its arguments and keeps no file open. What ties a process to a session is its own
//! word, by the extension that lariat launches it with, or the session's file in the environment of
//! a tool it runs (1.5); of one that lariat launched and that says nothing, the session it was launched for; of one whose
//! arguments can still be read, the session that they name, once that is written. Any other Pi is told as what it is, and
//! may be any session of its directory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use lariat_core::{Fact, Observation, Time, Witness};
use lariat_sys::scan::{Process, Table};
use lariat_sys::{file, process};

use super::events::{self, Word};
use super::{NAME, runs};
use crate::agent_process as ap;
use crate::look::{Bond, Look, Places, Report, same_place, without_tilde};

const WHY: &str = "Pi shows no session from outside: not launched by lariat, and no tool of it carries a session";

/// A session that a process holds.
pub struct Hold {
    /// The process.
    pub bond: Bond,
    /// The session's id.
    pub id: String,
    /// What the process tells of itself, if it does.
    pub word: Option<Word>,
    /// A tool of the session's is at work below it.
    pub tool: bool,
}

/// Holders by the session's file, which need not be written yet.
pub type Held = HashMap<PathBuf, Hold>;

/// Finds the sessions that processes hold, by file, and by id alone where that is all there is; the others become
/// unbound.
pub fn bind(look: &Look<'_>, report: &mut Report, why: Option<&str>) -> (Held, Vec<Hold>) {
    let (mut held, mut by_id) = (Held::new(), Vec::new());
    let Ok(table) = look.table else { return (held, by_id) };
    let agents =
        table.iter().filter_map(|p| runs(p).map(|run| (p.clone(), run))).filter(|(p, _)| uses_store(look.places, p));
    let agents = ap::genuine(look.places, agents.collect(), table, |p| runs(p).is_some());
    let processes: Vec<&Process> = agents.iter().map(|(p, _)| p).collect();
    let words = events::told(look, &processes);
    let mut unbound = Vec::new();
    for ((process, run), word) in agents.into_iter().zip(words) {
        let hold = by_word(&process, word).or_else(|| by_child(table, &process));
        match hold.or_else(|| by_arguments(look, &process, run)) {
            Some((file, hold)) if !held.contains_key(&file) => {
                held.insert(file, hold);
            }
            None => match by_launch(look, &process) {
                Some(hold) => by_id.push(hold),
                None => unbound.push((process, run)),
            },
            _ => unbound.push((process, run)),
        }
    }
    report.unbound.extend(ap::unbound(NAME, unbound, |_| why.unwrap_or(WHY).to_owned()));
    (held, by_id)
}

/// The session that it was started with. An id is one only within its directory.
fn by_arguments(look: &Look<'_>, process: &Process, run: ap::Run) -> Option<(PathBuf, Hold)> {
    let words: Vec<&str> = process.arguments().skip(run.arguments).collect();
    let id = ap::flag(&words, &["--session-id"])?;
    let cwd = process::cwd(process.pid).ok()?;
    let folder = format!("--{}--", cwd.to_str()?.trim_start_matches('/').replace('/', "-"));
    let folder = look.places.pi.join("sessions").join(folder);
    let names = file::Directory::open(&folder).and_then(|d| d.entries()).ok()?;
    let name = names.into_iter().map(|e| e.name).find(|n| n.ends_with(&format!("_{id}.jsonl")))?;
    let by = "started with --session-id";
    let evidence = Observation::new(Witness::Process, Fact::Alive { pid: Some(process.pid), by: by.into() })
        .from(format!("/proc/{}/cmdline", process.pid));
    let bond = Bond { process: process.clone(), evidence };
    Some((folder.join(name), Hold { bond, id: id.to_owned(), word: None, tool: false }))
}

/// What lariat launched this very process for. A nested one has the same mark, and is another process.
fn by_launch(look: &Look<'_>, process: &Process) -> Option<Hold> {
    let id = ap::launched_for(look.places, process).filter(|id| !id.contains('@'))?;
    let by = "lariat launched it for this session, and it says nothing else";
    let evidence = Observation::new(Witness::Process, Fact::Alive { pid: Some(process.pid), by: by.into() })
        .from(format!("/proc/{}/environ", process.pid));
    Some(Hold { bond: Bond { process: process.clone(), evidence }, id, word: None, tool: false })
}

/// Whether a process keeps its sessions where we look.
pub fn uses_store(places: &Places, process: &Process) -> bool {
    let Ok(environment) = process::environment(process.pid) else {
        return ap::uses_store(process.pid, "PI_CODING_AGENT_DIR", ".pi/agent", &places.pi);
    };
    let set = |name: &str| environment.get(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    // Who has no home, or has written over its environment, could be at home here.
    let home = set("HOME").unwrap_or_else(|| places.home.clone());
    let sessions = set("PI_CODING_AGENT_SESSION_DIR").map(|p| without_tilde(&p, &home));
    if let (Some(theirs), Some(ours)) = (&sessions, &places.pi_sessions) {
        return same_place(theirs, ours);
    }
    // One that keeps them elsewhere may still open, by its path, a session that is here.
    match set("PI_CODING_AGENT_DIR") {
        Some(folder) => same_place(&without_tilde(&folder, &home), &places.pi),
        None => set("HOME").is_none_or(|home| same_place(&home.join(".pi/agent"), &places.pi)),
    }
}

fn by_word(process: &Process, word: Option<Word>) -> Option<(PathBuf, Hold)> {
    let word = word.filter(|w| w.since.is_none_or(|since| Time(since + 1000) >= ap::started(process)))?;
    let from = PathBuf::from(word.cwd.as_deref().unwrap_or_default());
    // One that keeps nothing (`--no-session`) has no file, and tells all the same.
    let file = word.file.as_ref().map_or_else(|| PathBuf::from(&word.id), |file| from.join(file));
    let by = "by its own word, told to lariat";
    let evidence = Observation::new(Witness::Hook, Fact::Alive { pid: Some(process.pid), by: by.into() })
        .at(word.said_at())
        .from(format!("/proc/{}/environ", process.pid));
    let bond = Bond { process: process.clone(), evidence };
    Some((file, Hold { bond, id: word.id.clone(), word: Some(word), tool: false }))
}

/// A tool that the process runs carries the session. Not looked at is what a nested Pi runs.
fn by_child(table: &Table, parent: &Process) -> Option<(PathBuf, Hold)> {
    let mut below: Vec<&Process> = table.children(parent.pid).filter(|p| runs(p).is_none()).collect();
    while let Some(child) = below.pop() {
        below.extend(table.children(child.pid).filter(|p| runs(p).is_none()));
        let Ok(environment) = process::environment(child.pid) else { continue };
        let file = environment.get("PI_SESSION_FILE").filter(|f| Path::new(f).is_absolute());
        let (Some(file), Some(id)) = (file, environment.get("PI_SESSION_ID")) else { continue };
        // What the process itself was started with it may have from a Pi around it.
        let own = process::environment(parent.pid).ok();
        if own.is_none_or(|own| own.get("PI_SESSION_FILE") == Some(file)) {
            continue;
        }
        let by = format!("its tool {} carries the session's file", child.pid);
        let evidence = Observation::new(Witness::Process, Fact::Alive { pid: Some(parent.pid), by: by.into() })
            .from(format!("/proc/{}/environ", child.pid));
        let bond = Bond { process: parent.clone(), evidence };
        return Some((PathBuf::from(file), Hold { bond, id: id.to_owned(), word: None, tool: true }));
    }
    None
}

/// What the processes alone tell, when the store does not answer.
pub fn by_processes(look: &Look<'_>, why: &str) -> Report {
    let mut report = Report::default();
    let (held, by_id) = bind(look, &mut report, Some(why));
    held.into_values().chain(by_id).for_each(|hold| report.add((look.judge)(NAME, hold.bond.unread(hold.id, why))));
    report
}
