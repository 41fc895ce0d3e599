//! Which process holds which session.
//!
//! By the id in its arguments: `--session-id`, or `--resume` with a whole id. In a terminal `/clear`
//! and `/resume` change the session and not the arguments. Where it went is told by what was typed in it
//! ([`typed`]); where that tells nothing, a terminal may also hold a session of its directory that was
//! written since it started and that nobody else holds.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use lariat_core::{Fact, Observation, Time, Witness};
use lariat_sys::process;
use lariat_sys::scan::{Process, Table};

use super::typed::{self, Log, Place, Told};
use super::{NAME, runs};
use crate::agent_process as ap;
use crate::look::{Bond, Look, Places, Report, same_place};

const WHY: &str = "no session's id in its arguments";

/// A session that a process holds.
pub struct Hold {
    /// The process.
    pub bond: Bond,
    /// One prompt without a terminal: while it lives, its turn is open.
    pub headless: bool,
    /// It uses every tool without asking.
    pub free: bool,
    /// It may have been started with something to do.
    pub asked: bool,
    /// Nobody else was started for the same session.
    alone: bool,
}

/// A process that may hold a session it does not name.
pub struct Loose {
    pid: u32,
    cwd: Option<String>,
    started: Time,
    /// It was started for a session that is known.
    named: bool,
}

/// A session that was just written may bear a time of the clock's last tick.
const SLACK_MS: i64 = 100;

impl Loose {
    /// Whether it could hold a session of this directory, last written then: Gemini writes into a
    /// session's file whenever it takes that session up.
    pub fn could_hold(&self, cwd: Option<&str>, written: Option<Time>) -> bool {
        let there = match (&self.cwd, cwd) {
            (Some(theirs), Some(cwd)) => same_place(Path::new(theirs), Path::new(cwd)),
            _ => true,
        };
        there && written.is_none_or(|w| w.0 + SLACK_MS >= self.started.0)
    }

    /// Why the session is not known to have ended.
    pub fn told(&self) -> String {
        let how = if self.named { "which may have moved on from its first session" } else { "tied to no session" };
        format!("gemini process {}, {how}, stands in the same or an unknown directory", self.pid)
    }
}

/// What is known of the processes before any file is opened.
#[derive(Default)]
pub struct Bound {
    /// Holders by session.
    pub holds: HashMap<String, Hold>,
    /// Further things worth knowing of a session.
    pub notes: HashMap<String, Vec<Observation>>,
    /// Processes that may hold a session they do not name.
    pub loose: Vec<Loose>,
    /// Sessions that a process was started for and has left: when, and who.
    pub left: HashMap<String, (Time, u32)>,
}

/// The sessions of one project.
pub struct Project<'a> {
    /// Its folder in the store.
    pub folder: &'a Path,
    /// Where its terminals stand.
    pub cwd: &'a str,
    /// All that are known.
    pub sessions: Vec<Told<'a>>,
}

impl Bound {
    /// Since when a terminal may have moved on to another session.
    pub fn moving_since(&self) -> Option<Time> {
        self.loose.iter().filter(|l| l.named).map(|l| l.started).min()
    }

    /// Follows terminals to the sessions that they have moved on to.
    pub fn follow(&mut self, look: &Look<'_>, projects: &[Project<'_>]) {
        let terminals = self.holds.iter().filter(|(_, hold)| !hold.headless && hold.alone);
        let moves = terminals.filter_map(|(first, hold)| {
            let cwd = ap::standing(hold.bond.process.pid)?;
            let project = projects.iter().find(|p| same_place(Path::new(p.cwd), Path::new(cwd.raw())))?;
            let place = self.place(first, hold, project)?;
            // Whom another one was started for may be that one's: whichever of them has moved on.
            let free = !self.holds.contains_key(&place.session);
            free.then(|| (first.clone(), place, typed::path(project.folder)))
        });
        let moves: Vec<(String, Place, PathBuf)> = moves.collect();
        for (first, place, log) in &moves {
            if self.holds.contains_key(&place.session) {
                continue; // one session, one process
            }
            let Some(mut hold) = self.holds.remove(first) else { continue };
            let pid = hold.bond.process.pid;
            let by = if place.by_time {
                "begun by a /clear that was typed in it"
            } else {
                "what was typed in it stands here"
            };
            hold.bond.evidence = Observation::new(Witness::Process, Fact::Alive { pid: Some(pid), by: by.into() })
                .from(look.places.shown(log));
            self.loose.retain(|l| l.pid != pid);
            self.left.insert(first.clone(), (place.left, pid));
            self.holds.insert(place.session.clone(), hold);
        }
    }

    /// Where a terminal is, if that can be told.
    fn place(&self, first: &str, hold: &Hold, project: &Project<'_>) -> Option<Place> {
        let started = ap::started(&hold.bond.process);
        let elsewhere = |s: &Told<'_>| s.id != first && s.updated.is_some_and(|at| at + SLACK_MS >= started.0);
        if !project.sessions.iter().any(elsewhere) {
            return None;
        }
        let place = Log::read(project.folder)?.place(first, started, &project.sessions)?;
        // One that names no session may have begun one at the same time.
        let anybody = || self.loose.iter().any(|l| !l.named && l.could_hold(Some(project.cwd), None));
        (!place.by_time || !anybody()).then_some(place)
    }
}

/// Binds processes to sessions.
pub fn bind(look: &Look<'_>, report: &mut Report, why: Option<&str>) -> Bound {
    let mut bound = Bound::default();
    let Ok(table) = look.table else { return bound };
    let agents = table.iter().filter_map(|p| runs(p).map(|run| (p, run)));
    let agents = agents.filter(|(p, run)| {
        !p.is_copy_of_parent(table) && !waits_for_another(look, p, *run, table) && uses_store(look.places, p)
    });
    let mut unbound = Vec::new();
    for (process, run) in agents {
        let arguments: Vec<&str> = process.arguments().skip(run.arguments).collect();
        let headless = is_headless(process, &arguments);
        let loose = |named| Loose {
            pid: process.pid,
            cwd: ap::standing(process.pid).map(|c| c.raw().to_owned()),
            started: ap::started(process),
            named,
        };
        let Some((session, by)) = by_arguments(&arguments) else {
            if ap::is_owned(look.places, process, table) {
                continue; // what it has is told by who owns it
            }
            bound.loose.push(loose(false));
            unbound.push((process.clone(), run));
            continue;
        };
        if !headless {
            bound.loose.push(loose(true));
        }
        if let Some(other) = bound.holds.get_mut(&session) {
            other.alone = false;
            let also = format!("process {} also works on this session, beside {}", process.pid, other.bond.process.pid);
            let note = Observation::new(Witness::Process, Fact::Note(also.into()));
            bound.notes.entry(session).or_default().push(note);
            continue;
        }
        let evidence = Observation::new(Witness::Process, Fact::Alive { pid: Some(process.pid), by: by.into() })
            .from(format!("/proc/{}/cmdline", process.pid));
        let bond = Bond { process: process.clone(), evidence };
        let free = arguments.iter().any(|a| matches!(*a, "-y" | "--yolo" | "yolo" | "--approval-mode=yolo"));
        let asked = headless || has_prompt(&arguments);
        bound.holds.insert(session, Hold { bond, headless, free, asked, alone: true });
    }
    report.unbound.extend(ap::unbound(NAME, unbound, |_| why.unwrap_or(WHY).to_owned()));
    bound
}

/// What the processes alone tell, when the store does not answer.
pub fn by_processes(look: &Look<'_>, why: &str) -> Report {
    let mut report = Report::default();
    let bound = bind(look, &mut report, Some(why));
    bound.holds.into_iter().for_each(|(id, hold)| report.add((look.judge)(NAME, hold.bond.unread(id, why))));
    report
}

/// Gemini starts itself again with more memory, and the first process only waits for the second: the
/// same arguments, after others for Node. A child with all the same ones is a copy about to become a
/// tool; one with others is a Gemini of its own.
/// Or it is a script that called the Gemini.
fn waits_for_another(look: &Look<'_>, process: &Process, run: ap::Run, table: &Table) -> bool {
    let again = |child: &Process| {
        let same =
            |theirs: ap::Run| child.arguments().skip(theirs.arguments).eq(process.arguments().skip(run.arguments));
        runs(child).is_some_and(same) && child.arguments().ne(process.arguments())
    };
    run.script && (table.children(process.pid).any(again) || ap::is_caller(look.places, process))
}

/// Whether a process keeps its sessions where we look.
pub fn uses_store(places: &Places, process: &Process) -> bool {
    let Ok(environment) = process::environment(process.pid) else {
        return ap::uses_store(process.pid, "HOME", ".gemini", &places.gemini);
    };
    let set = |name: &str| environment.get(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let home = set("GEMINI_CLI_HOME").or_else(|| set("HOME"));
    home.is_none_or(|home| same_place(&home.join(".gemini"), &places.gemini))
}

/// Whether it answers one prompt and ends: it says so, or has no terminal to read from.
fn is_headless(process: &Process, arguments: &[&str]) -> bool {
    let says = |a: &&str| matches!(*a, "-p" | "--prompt") || a.starts_with("--prompt=");
    let input = std::fs::read_link(format!("/proc/{}/fd/0", process.pid)).ok();
    let serves = arguments.iter().any(|a| matches!(*a, "--acp" | "--experimental-acp"));
    let is_terminal = |path: PathBuf| path.starts_with("/dev/pts") || path.to_string_lossy().starts_with("/dev/tty");
    !serves && (arguments.iter().any(says) || input.is_some_and(|path| !is_terminal(path)))
}

/// Options that take the next word, so that it is no prompt.
const WITH_VALUE: [&str; 18] = [
    "-m",
    "--model",
    "-r",
    "--resume",
    "--session-id",
    "--session-file",
    "-w",
    "--worktree",
    "--approval-mode",
    "--policy",
    "--admin-policy",
    "--allowed-mcp-server-names",
    "--allowed-tools",
    "-e",
    "--extensions",
    "--include-directories",
    "-o",
    "--output-format",
];

/// Whether a terminal may have been started with something to do.
fn has_prompt(arguments: &[&str]) -> bool {
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if WITH_VALUE.contains(word) {
            words.next();
        } else if !word.starts_with('-') || word.starts_with("-i") || word.starts_with("--prompt-interactive") {
            return true;
        }
    }
    false
}

/// The session that a process was started for, and how that is known.
pub fn by_arguments(arguments: &[&str]) -> Option<(String, String)> {
    if let Some(id) = ap::flag(arguments, &["--session-id"]).filter(|id| is_id(id)) {
        return Some((id.to_owned(), "started with --session-id".into()));
    }
    let id = ap::flag(arguments, &["--resume", "-r"]).filter(|id| ap::is_uuid(id))?;
    Some((id.to_owned(), "started with --resume".into()))
}

/// Whether text has the shape of an id.
pub fn is_id(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_an_option_is_no_prompt() {
        let asked = |line: &str| has_prompt(&line.split(' ').collect::<Vec<_>>());
        for line in ["--resume a-1", "-m flash --resume a-1 --approval-mode default -y", "--session-id=a-1 -e x"] {
            assert!(!asked(line), "{line}");
        }
        for line in ["-m flash -i hello", "--resume a-1 hello", "--prompt-interactive=hello", "--yolo hello"] {
            assert!(asked(line), "{line}");
        }
    }
}
