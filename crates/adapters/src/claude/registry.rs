//! Claude Code's own list of running sessions, `sessions/<pid>.json`, and of
//! background jobs, `jobs/<id>/state.json`.
//!
//! An entry is a claim, not a fact: a killed session leaves its entry behind
//! with the last status frozen in it. It counts only for the very process it
//! names: same PID, same start time, in the same PID namespace, and still the
//! same program.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lariat_core::{State, Time, Untrusted, Warning};
use lariat_sys::scan::{self, Process};
use lariat_sys::{clock, file, process};

use crate::agent_process as ap;
use crate::json::{Doc, Value};
use crate::look::Look;
use crate::store::{in_parallel, spread};

const LARGEST: u64 = 1 << 20;
/// How many milliseconds a torn entry gets to become whole: on a busy machine, its process may come to write
/// only a while after it has truncated.
const SETTLE: i64 = 1_000;
/// How far a recorded start may lie from the kernel's, in milliseconds: the
/// registry is written a moment after the start, and clocks are set.
const SLACK: i64 = 60_000;

/// One entry.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "named after the entry's own fields")]
pub struct Entry {
    /// A worker that is kept ready for whatever is asked next: nobody has begun that session.
    pub spare: bool,
    /// Its session was moved to the background and goes on there; the rest of the entry stays as it was then.
    pub parked: bool,
    /// A terminal of a version, 2.1.90 or so, that never says here more than which session it began with.
    pub terse: bool,
    pub path: PathBuf,
    pub pid: u32,
    pub session: String,
    pub cwd: Option<String>,
    pub started: Option<i64>,
    pub proc_start: Option<u64>,
    pub domain: Option<String>,
    pub name: Option<String>,
    pub state: Option<State>,
    pub state_at: Option<Time>,
}

/// Who stands behind an entry.
#[derive(Debug)]
pub enum Holder {
    /// This process.
    Alive(Process),
    /// Nobody any more, and why we know.
    Gone(String),
    /// It cannot be checked from here, and why not.
    Elsewhere(String),
}

impl Holder {
    /// Whether it is this process.
    pub fn is(&self, pid: u32) -> bool {
        matches!(self, Holder::Alive(p) if p.pid == pid)
    }
}

/// Reads every entry; what cannot be read is a warning.
pub fn entries(store: &Path, warn: &mut dyn FnMut(&Path, String)) -> Vec<Entry> {
    let dir = store.join("sessions");
    let paths = names(&dir, warn).into_iter().filter(|n| n.ends_with(".json")).map(|n| dir.join(n)).collect();
    let read_batch =
        |batch: Vec<PathBuf>| -> Vec<_> { batch.into_iter().map(|path| (read_settled(&path), path)).collect() };
    let mut found = Vec::new();
    for (entry, path) in in_parallel(spread(paths, 64), read_batch).into_iter().flatten() {
        match entry {
            Ok(entry) => found.extend(entry),
            Err(error) => warn(&path, error),
        }
    }
    found
}

/// Claude Code truncates its entry and writes it anew. What is torn, was touched just now and is of a process that
/// lives, is being written this moment: it is looked at again, shortly.
fn read_settled(path: &Path) -> Result<Option<Entry>, String> {
    let mut entry = read(path);
    let pid = path.file_stem().and_then(|s| s.to_str()?.parse().ok());
    let fresh = || file::open(path).is_ok_and(|(_, key)| (clock::now_ms() - key.mtime / 1_000_000).abs() < SETTLE);
    let lives = || pid.is_some_and(|pid| matches!(scan::look(pid), Ok(Some(_))));
    for _ in 0..SETTLE {
        if entry.is_ok() || !fresh() || !lives() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
        entry = read(path);
    }
    entry
}

fn names(dir: &Path, warn: &mut dyn FnMut(&Path, String)) -> Vec<String> {
    match file::Directory::open(dir).and_then(|d| d.entries()) {
        Ok(entries) => entries.into_iter().map(|e| e.name).collect(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(e) => {
            warn(dir, e.to_string());
            Vec::new()
        }
    }
}

fn read(path: &Path) -> Result<Option<Entry>, String> {
    let bytes = match file::read_small(path, LARGEST) {
        Ok(bytes) => bytes,
        Err(e) if file::is_absent(path, &e) => return Ok(None),
        Err(e) => return Err(e.to_string()),
    };
    let doc = Doc::parse(&bytes, |_, _| true, 4096).map_err(|_| "not a registry entry: broken JSON".to_owned())?;
    let v = doc.root();
    let text = |key: &str| v.get(key).some_str().map(str::to_owned);
    // Some numbers are told as text.
    let number = |key: &str| v.get(key).str().and_then(|s| s.parse().ok()).or(v.get(key).u64());
    let (Some(pid), Some(session)) =
        (number("pid").and_then(|p| u32::try_from(p).ok()), text("sessionId").filter(|id| ap::is_uuid(id)))
    else {
        return Err("not a registry entry: no pid, or no session id".into());
    };
    let state = v.get("status").some_str().map(|status| state(status, v.get("waitingFor")));
    Ok(Some(Entry {
        path: path.to_owned(),
        spare: v.get("spare").is_true(),
        parked: v.get("parkedJobId").some_str().is_some(),
        terse: state.is_none() && v.get("entrypoint").str() == Some("cli") && !v.get("version").exists(),
        pid,
        session,
        cwd: text("cwd"),
        started: v.get("startedAt").u64().map(|t| t as i64),
        proc_start: number("procStart"),
        domain: text("pidDomain"),
        name: text("name").filter(|_| v.get("nameSource").str() == Some("user")),
        state,
        state_at: v.get("statusUpdatedAt").u64().or(v.get("updatedAt").u64()).map(|t| Time(t as i64)),
    }))
}

fn state(status: &str, waiting_for: Value<'_>) -> State {
    match status {
        "busy" => State::Busy,
        "idle" => State::Idle,
        "shell" => State::Shell,
        "waiting" => State::Waiting(Untrusted::new(waiting_for.some_str().unwrap_or("input needed"))),
        other => State::Other(Untrusted::new(other)),
    }
}

/// What is true of the machine we look from.
pub struct Here {
    machine: String,
    namespace: String,
}

impl Here {
    /// Looks.
    pub fn now() -> Here {
        let machine = file::read_small(Path::new("/etc/machine-id"), 4096).unwrap_or_default();
        Here {
            machine: String::from_utf8_lossy(&machine).trim().to_owned(),
            namespace: process::own_pid_namespace().unwrap_or_default(),
        }
    }
}

impl Entry {
    /// Checks who stands behind the entry. `is_agent` says whether a process is
    /// a Claude Code at all. Only for a table that was read.
    pub fn holder(&self, look: &Look<'_>, here: &Here, is_agent: &dyn Fn(&Process) -> bool) -> Holder {
        let (machine, namespace) = self.domain();
        if machine.is_some_and(|m| !here.machine.is_empty() && m != here.machine) {
            return Holder::Elsewhere("registered on another machine".into());
        }
        let Ok(table) = look.table else {
            return Holder::Elsewhere("the process table could not be read".into());
        };
        match namespace {
            Some(theirs) if theirs != here.namespace => {
                let inside = |p: &&Process| {
                    Some(p.start) == self.proc_start
                        && process::pid_namespace(p.pid).is_ok_and(|ns| ns == theirs)
                        && process::innermost_pid(p.pid).is_ok_and(|pid| pid == self.pid)
                };
                if let Some(found) = table.iter().find(inside).filter(|p| is_agent(p)) {
                    return Holder::Alive(found.clone());
                }
                if self.is_of_another_boot() {
                    return Holder::Gone("registered before the last boot".into());
                }
                if here.namespace == process::FIRST_NAMESPACE {
                    return Holder::Gone(format!("process {} of {theirs} is gone", self.pid));
                }
                Holder::Elsewhere(format!("registered in another PID namespace ({theirs})"))
            }
            _ => self.local_holder(look, is_agent),
        }
    }

    /// Whether it says that it was written on this machine.
    pub fn is_of_this_machine(&self) -> bool {
        let here = Here::now().machine;
        self.domain().0.is_some_and(|machine| !here.is_empty() && machine == here)
    }

    /// Whether its file is named after its process, as Claude Code does.
    pub fn is_named_by_pid(&self) -> bool {
        self.path.file_stem().is_some_and(|stem| stem == self.pid.to_string().as_str())
    }

    fn local_holder(&self, look: &Look<'_>, is_agent: &dyn Fn(&Process) -> bool) -> Holder {
        let pid = self.pid;
        // It may have started after the scan: ask again before calling it gone.
        let seen = look.table.ok().and_then(|t| t.get(pid)).filter(|p| self.is_started_by(p)).cloned();
        let process = match seen.map_or_else(|| scan::look(pid), |p| Ok(Some(p))) {
            Ok(Some(process)) => process,
            Ok(None) => return Holder::Gone(format!("process {pid} is gone")),
            Err(e) => return Holder::Elsewhere(format!("process {pid} could not be looked at: {e}")),
        };
        if !self.is_started_by(&process) {
            return Holder::Gone(format!("process {pid} is gone, its PID belongs to a later process"));
        }
        if !is_agent(&process) {
            return Holder::Gone(format!("PID {pid} is now {}, not claude", process.comm));
        }
        Holder::Alive(process)
    }

    fn is_started_by(&self, process: &Process) -> bool {
        match (self.proc_start, self.started) {
            (Some(start), _) => start == process.start,
            (None, Some(started)) => (clock::ticks_to_ms(process.start) - started).abs() < SLACK,
            // Whoever wrote it had this number then.
            (None, None) => {
                let written = file::open(&self.path).map_or(0, |(_, key)| key.mtime / 1_000_000);
                written + ap::TICK >= clock::ticks_to_ms(process.start)
            }
        }
    }

    /// The start in this boot's ticks and the start by the wall clock must be
    /// the same moment, if the entry is of this boot.
    fn is_of_another_boot(&self) -> bool {
        match (self.proc_start, self.started) {
            (Some(ticks), Some(started)) => (clock::ticks_to_ms(ticks) - started).abs() > SLACK,
            _ => false,
        }
    }

    /// `linux:<machine-id>:pid:[…]`; a machine of zeros is none.
    fn domain(&self) -> (Option<&str>, Option<&str>) {
        let Some(rest) = self.domain.as_deref().and_then(|d| d.strip_prefix("linux:")) else { return (None, None) };
        let (machine, namespace) = rest.split_once(':').unwrap_or((rest, ""));
        let some = |s: &'_ str| !s.is_empty() && !s.bytes().all(|b| b == b'0');
        (Some(machine).filter(|m| some(m)), Some(namespace).filter(|n| some(n)))
    }
}

/// What the daemon writes of a job that it finds cut off long ago and does not take up again: it calls that stopped, too.
const GIVEN_UP: &str = "ended while the background service was off";

/// A background job.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "named after the job's own fields")]
pub struct Job {
    pub path: PathBuf,
    pub session: String,
    pub cwd: Option<String>,
    pub intent: Option<String>,
    pub created: Option<Time>,
    pub updated: Option<Time>,
    /// By a person.
    pub stopped: bool,
    pub open: bool,
}

/// Reads every background job.
pub fn jobs(store: &Path, warn: &mut dyn FnMut(&Path, String)) -> Vec<Job> {
    let dir = store.join("jobs");
    let mut found = Vec::new();
    for name in names(&dir, warn) {
        let path = dir.join(name).join("state.json");
        let bytes = match file::read_small(&path, LARGEST) {
            Ok(bytes) => bytes,
            Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => continue,
            Err(e) => {
                warn(&path, e.to_string());
                continue;
            }
        };
        let Ok(doc) = Doc::parse(&bytes, |_, _| true, 4096) else {
            warn(&path, "not a job: broken JSON".into());
            continue;
        };
        let v = doc.root();
        if !v.is_object() {
            warn(&path, "not a job: no object".into());
            continue;
        }
        let text = |key: &str| v.get(key).some_str().map(str::to_owned);
        let time = |key: &str| v.get(key).str().and_then(Time::parse);
        let Some(session) = text("sessionId").filter(|s| ap::is_uuid(s)) else { continue };
        let state = v.get("state").str().unwrap_or("");
        found.push(Job {
            path,
            session,
            cwd: text("cwd"),
            intent: text("intent"),
            created: time("createdAt"),
            updated: time("updatedAt"),
            stopped: state == "stopped" && v.get("detail").str() != Some(GIVEN_UP),
            open: matches!(state, "working" | "crashed" | "blocked"),
        });
    }
    found
}

/// A warning of this adapter.
pub fn warning(look: &Look<'_>, path: &Path, error: String) -> Warning {
    Warning { adapter: super::NAME, path: Some(look.places.shown(path)), error: error.into(), last_ok: None }
}
