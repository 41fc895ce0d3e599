//! Commands that people hang on a session: run once it is launched, and once it
//! has ended.
//!
//! # Theory of operation
//!
//! The first is run by `launch` itself. The second is run by `lariat __after
//! FOLDER`, which the shim starts when the end is on record; if everyone who
//! could was killed, the next verb that acts runs what is owed ([`owed`]). That a
//! command has begun is on record before it begins, so it runs at most once for
//! each run of the agent. Its output and its exit stay in the session's folder,
//! and the journal tells.
//!
//! A command gets what it is about by its environment (`LARIAT_ID`, …). It fails
//! alone: the session is what it is.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lariat_adapters::look::{Places, Scope};
use lariat_core::{Session, Time};
use lariat_shim::record::{self, Process};
use lariat_sys::process::Identity;
use lariat_sys::{clock, durable};
use serde::{Deserialize, Serialize};

use crate::launched::{All, Launched, Record};
use crate::list::{Question, list};
use crate::records;
use crate::start::Started;

/// The argument that makes `lariat` run what was hung on an ended session.
pub const VERB: &str = lariat_shim::AFTER;
const ON_LAUNCH: &str = "on-launch";
const ON_EXIT: &str = "on-exit";

/// What is kept of the environment for a command that runs later: where things
/// are, and nothing that could be a secret.
const KEPT: [&str; 14] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "DBUS_SESSION_BUS_ADDRESS",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
];

/// Commands to run besides.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct After {
    /// Once it is launched.
    pub on_launch: Option<String>,
    /// Once it has ended.
    pub on_exit: Option<String>,
}

impl After {
    /// The environment in which `lariat __after` is to run, if it is needed.
    pub(crate) fn environment(&self) -> Option<Vec<(String, String)>> {
        self.on_exit.as_ref()?;
        let kept = |name: &str| KEPT.contains(&name) || name.starts_with("XDG_") || name.starts_with("LARIAT_TEST");
        // What is not text cannot be kept, and is no reason to start nothing.
        let text = |(name, value): (OsString, OsString)| name.into_string().ok().zip(value.into_string().ok());
        Some(std::env::vars_os().filter_map(text).filter(|(name, _)| kept(name)).collect())
    }
}

/// That a command has begun, and how it ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Ran {
    /// The run of the agent that it is about.
    agent: Option<Process>,
    /// Who runs it.
    by: Option<Process>,
    begun: Time,
    code: Option<i32>,
}

/// Runs what was hung on a launch; says what went wrong.
pub fn launched(places: &Places, folder: &Path, started: &Started) -> Option<String> {
    let record = Launched::read(folder).ok().flatten()?.record;
    let command = record.commands.on_launch.clone()?;
    let facts = vec![("LARIAT_PID", started.pid.to_string())];
    let how = run(folder, ON_LAUNCH, &command, facts_of(&record, &started.native_id, facts));
    tell(places, folder, ON_LAUNCH, &started.id(), how)
}

/// Runs what was hung on the end of a session, if it has ended and that was not
/// done yet.
pub fn ended(question: &Question, folder: &Path) -> io::Result<()> {
    let lock =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(folder.join("after.lock"))?;
    lock.lock()?;
    let Some(launched) = Launched::read(folder).map_err(io::Error::other)? else { return Ok(()) };
    let Some(command) = launched.record.commands.on_exit.clone().filter(|_| is_owed(&launched)) else { return Ok(()) };
    let agent = launched.shim.as_ref().map(|s| s.agent.clone());
    let by = Identity::open(std::process::id()).ok().map(|(identity, _)| identity.into());
    let native_id = launched.record.native_id.clone().unwrap_or_default();
    let id = format!("{}:{native_id}", launched.record.agent);
    let answer = list(Question { scope: Scope::All, ..question.clone() });
    let session = answer.listing.sessions.iter().find(|s| s.id.raw() == id);
    let facts = session.map(|s| facts_of_end(s)).unwrap_or_default();
    // From now on it may go on again: what is told is how it ended.
    let mut ran = Ran { agent, by, begun: Time(clock::now_ms()), code: None };
    put(folder, &ran)?;
    drop(lock);
    let how = run(folder, ON_EXIT, &command, facts_of(&launched.record, &native_id, facts));
    ran.code = how.as_ref().ok().copied().flatten();
    put(folder, &ran)?;
    tell(&question.places, folder, ON_EXIT, &id, how);
    Ok(())
}

/// Has whatever run that nobody was left to run. For verbs that act; none of them
/// waits for it.
pub fn owed(places: &Places) {
    owed_of(&All::read(places));
}

/// The same, of what was read already.
pub(crate) fn owed_of(all: &All) {
    all.by_id.values().filter(|l| is_owed(l) && !l.is_held()).for_each(|l| lariat_shim::start::after(&l.folder));
}

/// Has what was hung on the end of a session begun before the session goes on again: a new run
/// forgets the old one. One that does not begin is not waited for any longer than that.
pub(crate) fn begin_owed(launched: &Launched, patience: Duration) {
    if !is_owed(launched) {
        return;
    }
    lariat_shim::start::after(&launched.folder);
    let began = Instant::now();
    while is_owed(launched) && began.elapsed() < patience {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Who runs what was hung on the end of a session, now or once: nobody who ends the
/// session means that one.
pub(crate) fn at_work(folder: &Path) -> Option<Process> {
    record::read::<Ran>(folder, &marker()).ok().flatten()?.by
}

fn is_owed(launched: &Launched) -> bool {
    let agent = launched.shim.as_ref().map(|s| &s.agent);
    let ran = || record::read::<Ran>(&launched.folder, &marker()).ok().flatten();
    launched.record.commands.on_exit.is_some()
        && agent.is_some()
        && matches!(launched.process(), Ok(None))
        && ran().is_none_or(|r| r.agent.as_ref() != agent)
}

fn marker() -> String {
    format!("{ON_EXIT}.json")
}

fn put(folder: &Path, ran: &Ran) -> io::Result<()> {
    durable::put(folder, &marker(), serde_json::to_string(ran)?.as_bytes())
}

type Facts = Vec<(&'static str, String)>;

fn facts_of(record: &Record, native_id: &str, more: Facts) -> Facts {
    let mut facts = vec![
        ("LARIAT_HANDLE", record.launch.handle.clone()),
        ("LARIAT_ID", format!("{}:{native_id}", record.agent)),
        ("LARIAT_NATIVE_ID", native_id.to_owned()),
        ("LARIAT_AGENT", record.agent.clone()),
        ("LARIAT_CWD", record.launch.cwd.to_string_lossy().into_owned()),
        ("LARIAT_NAME", record.ask.name.clone().unwrap_or_default()),
        ("LARIAT_GROUP", record.group.clone().unwrap_or_default()),
    ];
    facts.extend(more);
    facts
}

fn facts_of_end(session: &Session) -> Facts {
    use lariat_core::Exit;
    let mut facts = vec![
        ("LARIAT_STATUS", session.status.word().to_owned()),
        ("LARIAT_REASON", session.reason.row()),
        (
            "LARIAT_TRANSCRIPT",
            session.transcript.as_ref().map_or_else(String::new, |t| t.to_string_lossy().into_owned()),
        ),
    ];
    match session.exit {
        Some(Exit::Code(code)) => facts.push(("LARIAT_EXIT_CODE", code.to_string())),
        Some(Exit::Signal(signal)) => facts.push(("LARIAT_EXIT_SIGNAL", signal.to_string())),
        None => {}
    }
    facts
}

/// Runs a command of the person's, to its end; its exit code, if it had one.
fn run(folder: &Path, event: &str, command: &str, facts: Facts) -> io::Result<Option<i32>> {
    let output = output(&log(folder, event))?;
    #[expect(clippy::disallowed_methods, reason = "the command that a person hung on the session")]
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let cwd = facts.iter().find(|(name, _)| *name == "LARIAT_CWD").map(|(_, cwd)| cwd.clone()).unwrap_or_default();
    // The directory may be gone by now; the command is still run.
    shell.current_dir(if Path::new(&cwd).is_dir() { Path::new(&cwd) } else { folder });
    shell.env_remove(lariat_shim::MARK).env("LARIAT_EVENT", event.trim_start_matches("on-"));
    shell.envs(facts.into_iter().map(|(name, value)| (name, value.replace('\0', ""))));
    Ok(shell.status()?.code())
}

fn log(folder: &Path, event: &str) -> PathBuf {
    folder.join(format!("{event}.log"))
}

fn output(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Tells the journal; what went wrong, if anything did.
fn tell(places: &Places, folder: &Path, event: &str, id: &str, how: io::Result<Option<i32>>) -> Option<String> {
    let log = places.shown(&log(folder, event)).row();
    let (told, wrong) = match how {
        Ok(Some(0)) => ("it succeeded".to_owned(), false),
        Ok(Some(code)) => (format!("it failed with code {code}; its output is in {log}"), true),
        Ok(None) => (format!("it was ended by a signal; its output is in {log}"), true),
        Err(e) => (format!("it could not be run: {e}"), true),
    };
    records::tell(places, event, id, told.clone());
    wrong.then(|| format!("the {event} command: {told}"))
}
