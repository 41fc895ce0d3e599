//! What stands in a session's folder: who wrote it, and what it says.
//!
//! # Theory of operation
//!
//! | file | written by | when |
//! |---|---|---|
//! | `launch.json` | the launcher | before the shim is started; never changed by the shim |
//! | `stdin` | the launcher | before the shim is started, for an agent without a terminal |
//! | `shim.lock` | nobody | locked by the shim that holds the session; never deleted |
//! | `shim.json` | the shim | once the agent runs, and at a take-over |
//! | `exit.json` | the shim, or the keeper if the shim is gone | once, when the agent has ended |
//! | `output.0`, `output.1` | the shim | a terminal's bytes, see [`crate::ring`] |
//! | `stdout`, `stderr` | the agent | when it has no terminal |
//!
//! A folder is used again when a session is resumed. What the last run left in
//! `shim.json` and `exit.json` is taken away, durably, before the next agent is
//! started, so that an old exit never stands for a new one; besides, an exit names
//! the process it is of.

use std::io;
use std::path::{Path, PathBuf};

use lariat_core::Time;
use lariat_sys::process::{Identity, Place};
use lariat_sys::spawn::Ended;
use lariat_sys::{clock, durable, file};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The name of the launcher's record.
pub const LAUNCH: &str = "launch.json";
/// The name of the shim's record.
pub const SHIM: &str = "shim.json";
/// The name of what an agent without a terminal reads.
pub const INPUT: &str = "stdin";
/// The name of the exit record.
pub const EXIT: &str = "exit.json";
/// The file whose lock makes a shim the only one.
pub const LOCK: &str = "shim.lock";
/// What the records of this program are numbered.
pub const VERSION: u32 = 1;
/// How long after an end its writer may be told to end by whoever told the agent: a full disk can make it write for long.
const MEANWHILE: i64 = 10_000;
/// A launch holds a whole environment and may hold a prompt.
const LARGEST: u64 = 64 << 20;

/// What to start, and how.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Launch {
    /// [`VERSION`].
    pub version: u32,
    /// The name `launch` gave.
    pub handle: String,
    /// The agent's program and its arguments.
    pub argv: Vec<String>,
    /// Where it starts.
    pub cwd: PathBuf,
    /// Variables besides those that the launcher hands over by pipe, which may be
    /// secret and are never stored. `LARIAT_SESSION` is added.
    #[serde(default)]
    pub env: Vec<(String, String)>,
    /// Without a terminal: output goes to the files `stdout` and `stderr`.
    pub headless: bool,
    /// The terminal's height.
    #[serde(default = "default_rows")]
    pub rows: u16,
    /// The terminal's width.
    #[serde(default = "default_cols")]
    pub cols: u16,
    /// Where viewers connect.
    pub socket: PathBuf,
    /// How much output is kept at most, in bytes.
    #[serde(default = "default_output")]
    pub output: u64,
    /// The environment of the command that is started once the end is on record
    /// (`lariat __after FOLDER`), if one is to be.
    #[serde(default)]
    pub after: Option<Vec<(String, String)>>,
}

fn default_rows() -> u16 {
    24
}
fn default_cols() -> u16 {
    80
}
fn default_output() -> u64 {
    4 << 20
}

/// A process, as stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields of sys::Identity")]
pub struct Process {
    pub boot: String,
    pub pid: u32,
    pub start: u64,
    pub pidfd_inode: Option<u64>,
    /// Where the PID means something: a folder may be shared with a container, or
    /// another machine. What older programs wrote has neither of the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

impl Process {
    /// Whether both are the same process, whatever each record says besides.
    pub fn is(&self, other: &Process) -> bool {
        Identity::from(self.clone()).is(&other.clone().into())
    }

    /// Whether its PID is one of our own namespace.
    pub fn is_numbered_here(&self) -> bool {
        let here = Place::here().map(|p| p.namespace.as_str());
        self.namespace.as_deref().is_none_or(|theirs| Some(theirs) == here)
    }
}

impl From<Identity> for Process {
    fn from(i: Identity) -> Self {
        let (namespace, machine) = i.place.map(|p| (p.namespace, p.machine)).unzip();
        let machine = machine.filter(|m| !m.is_empty());
        Process { boot: i.boot, pid: i.pid, start: i.start, pidfd_inode: i.pidfd_inode, namespace, machine }
    }
}

impl From<Process> for Identity {
    fn from(p: Process) -> Self {
        let place = |namespace| Place { namespace, machine: p.machine.unwrap_or_default() };
        let place = p.namespace.map(place);
        Identity { boot: p.boot, pid: p.pid, start: p.start, pidfd_inode: p.pidfd_inode, place }
    }
}

/// Who holds a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shim {
    /// [`VERSION`].
    pub version: u32,
    /// What it speaks on its socket, see [`crate::wire`].
    pub protocol: u16,
    /// The program it is.
    pub program: String,
    /// The shim.
    pub shim: Process,
    /// The agent it started.
    pub agent: Process,
    /// The second holder of the terminal, if there is one.
    pub keeper: Option<Process>,
    /// Where viewers connect.
    pub socket: PathBuf,
    /// The agent's own cgroup, if one could be made.
    pub cgroup: Option<PathBuf>,
    /// The inode of that cgroup: a name may be used again.
    #[serde(default)]
    pub cgroup_inode: Option<u64>,
    /// When the agent was started.
    pub started_at: Time,
    /// When this shim took over from another, if it did.
    pub taken_over_at: Option<Time>,
    /// The offset of the agent's first byte of output: what stands before it, an earlier run wrote.
    #[serde(default)]
    pub output_from: u64,
}

/// How an agent ended. Without code, signal and error it is not known how.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Exit {
    /// [`VERSION`].
    pub version: u32,
    /// The process that ended; `None` if none was started.
    pub agent: Option<Process>,
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Why it could not be started.
    pub error: Option<String>,
    /// When that was seen.
    pub at: Time,
    /// Bytes of output that could not be kept (a full disk), if any.
    #[serde(default)]
    pub lost: u64,
    /// When whoever wrote this was told to end itself, if that was about when the agent ended: no verb of ours does
    /// that, but a shutdown or a logout tells all. See [`crate::hold`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Time>,
}

impl Exit {
    /// The end of an agent that ran.
    pub fn of(agent: &Process, ended: Option<Ended>) -> Exit {
        let (code, signal) = match ended {
            Some(Ended::Code(code)) => (Some(code), None),
            Some(Ended::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        let at = Time(clock::now_ms());
        Exit { version: VERSION, agent: Some(agent.clone()), code, signal, error: None, at, lost: 0, told: None }
    }

    /// Adds to what is on record that whoever wrote it was told to end while it did. The caller holds the session's lock.
    pub(crate) fn tell(&mut self, folder: &Path, told: Option<Time>) {
        let meanwhile = |told: &Time| told.0 - self.at.0 <= MEANWHILE;
        if let (None, Some(told)) = (self.told, told.filter(meanwhile)) {
            self.told = Some(told);
            let _ = put(folder, EXIT, self);
        }
    }

    /// The end of one that could not be started.
    pub fn not_started(error: String) -> Exit {
        let at = Time(clock::now_ms());
        Exit { version: VERSION, agent: None, code: None, signal: None, error: Some(error), at, lost: 0, told: None }
    }
}

/// Why a record could not be had.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file could not be read.
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, io::Error),
    /// It is not what it should be.
    #[error("{0} is not a record of ours: {1}")]
    Parse(PathBuf, serde_json::Error),
    /// It could not be written.
    #[error("cannot write {0}: {1}")]
    Write(PathBuf, io::Error),
}

/// Reads one record of a folder; `None` if it is not there.
pub fn read<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<Option<T>, RecordError> {
    let path = folder.join(name);
    match file::read_small(&path, LARGEST) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|e| RecordError::Parse(path, e)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(RecordError::Read(path, e)),
    }
}

/// Writes one record of a folder, durably.
pub fn put<T: Serialize>(folder: &Path, name: &str, record: &T) -> Result<(), RecordError> {
    let path = folder.join(name);
    let bytes = serde_json::to_vec(record).map_err(|e| RecordError::Parse(path.clone(), e))?;
    durable::put(folder, name, &bytes).map_err(|e| RecordError::Write(path, e))
}

/// Writes how an agent ended, unless that is known already. The caller holds the
/// session's lock.
pub(crate) fn put_exit(folder: &Path, exit: &Exit) -> Result<(), RecordError> {
    match read::<Exit>(folder, EXIT) {
        Ok(Some(before)) if before.agent == exit.agent => Ok(()),
        _ => put(folder, EXIT, exit),
    }
}

/// Takes away what the last run left, durably. The shim does it before it starts the agent; a
/// launcher that uses a folder again does it before it puts the next launch there, lest the
/// last exit be taken for the next one's while no shim has come so far. The exit goes last: who reads the exit first never
/// finds a run that has ended without one.
pub fn forget_last_run(folder: &Path) -> Result<(), RecordError> {
    let mut forgotten = false;
    for name in [SHIM, EXIT] {
        let path = folder.join(name);
        #[expect(clippy::disallowed_methods, reason = "the shim's own record of a run that is over")]
        match std::fs::remove_file(&path) {
            Ok(()) => forgotten = true,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(RecordError::Write(path, e)),
        }
    }
    if forgotten {
        durable::sync(folder).map_err(|e| RecordError::Write(folder.to_owned(), e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_is_not_known_is_no_success() {
        let agent: Process = serde_json::from_str(r#"{"boot":"b","pid":1,"start":2,"pidfd_inode":null}"#).unwrap();
        let told = |ended| {
            let exit = Exit::of(&agent, ended);
            (exit.code, exit.signal, exit.error)
        };
        assert_eq!(told(None), (None, None, None));
        assert_eq!(told(Some(Ended::Code(0))), (Some(0), None, None));
        assert_eq!(told(Some(Ended::Signal(9))), (None, Some(9), None));
        let failed = Exit::not_started("why".into());
        assert_eq!((failed.code, failed.signal, failed.error.as_deref()), (None, None, Some("why")));
    }
}
