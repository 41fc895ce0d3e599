//! What a Pi that lariat launched tells of itself, by the extension it was launched with.
//!
//! The file stands in the session's own folder; the process's environment names the session. A nested
//! Pi inherits that name but not the extension, so only lines with the process's own PID count.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use lariat_core::{State, Time};
use lariat_sys::file;
use lariat_sys::scan::Process;
use serde::{Deserialize, Serialize};

use crate::agent_process as ap;
use crate::json::{Doc, Value};
use crate::look::Look;
use crate::reader::Fold;
use crate::store::{Found, read_all};

/// Where the extension writes.
pub const FILE: &str = "pi-events.jsonl";
/// How much of that tells how the last turn stood.
const LAST: u64 = 64 << 10;

/// The last word of one process.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Word {
    /// The session it holds.
    pub id: String,
    /// That session's file, whether it is written yet or not.
    pub file: Option<PathBuf>,
    /// The session's directory.
    pub cwd: Option<String>,
    /// Its first prompt.
    pub prompt: Option<String>,
    /// Whether a turn is open.
    pub busy: bool,
    /// It has begun to make the conversation shorter, or to sum up a branch of it, and has not said that this is done. If
    /// it fails it says nothing; on a terminal, what is drawn there tells.
    pub compacting: bool,
    /// It is on a terminal.
    pub terminal: bool,
    /// This version says when no more is to come, so what is not busy has settled.
    pub settles: bool,
    /// What an extension of its asks a person.
    pub asks: Option<String>,
    /// It has a key for no model.
    pub needs_login: bool,
    /// When it took that session up.
    pub since: Option<i64>,
    /// When it said so.
    pub at: Option<i64>,
}

impl Word {
    /// As its own word for its state, if that is one.
    pub fn state(&self) -> Option<State> {
        match (self.busy, self.compacting) {
            (true, _) => Some(State::Busy),
            (false, true) => (!self.terminal).then_some(State::Busy),
            (false, false) => Some(State::Idle),
        }
    }

    /// When it was said.
    pub fn said_at(&self) -> Option<Time> {
        self.at.map(Time)
    }
}

/// The events of one launch, by process.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Events {
    by_pid: BTreeMap<u32, Word>,
    /// This version says when no more is to come, so a turn's end is not yet that.
    settles: bool,
}

impl Fold for Events {
    fn keeps(_: &[u8], key: &[u8]) -> bool {
        matches!(
            key,
            b"event" | b"pid" | b"at" | b"id" | b"file" | b"cwd" | b"prompt" | b"asks" | b"login" | b"terminal"
        )
    }

    fn line(&mut self, line: Value<'_>) {
        let pid = line.get("pid").u64().and_then(|pid| u32::try_from(pid).ok());
        let (Some(pid), Some(id)) = (pid, line.get("id").some_str()) else { return };
        let text = |key: &str| line.get(key).some_str().map(str::to_owned);
        let event = line.get("event").str().unwrap_or("");
        let word = self.by_pid.entry(pid).or_default();
        let at = line.get("at").str().and_then(Time::parse).map(|t| t.0);
        if event == "session_start" {
            *word = Word { since: at, ..Word::default() };
        }
        self.settles |= event == "agent_settled";
        word.settles = self.settles;
        word.id = id.to_owned();
        word.file = text("file").map(PathBuf::from);
        word.cwd = text("cwd");
        word.prompt = word.prompt.take().or_else(|| text("prompt"));
        word.at = at;
        word.asks = text("asks");
        word.needs_login = line.get("login").is_true();
        word.terminal = line.get("terminal").is_true();
        word.compacting = match event {
            "session_before_compact" | "session_before_tree" => true,
            "session_compact" | "session_tree" | "compaction_aborted" | "agent_start" => false,
            _ => word.compacting,
        };
        word.busy = match event {
            "agent_start" => true,
            "agent_end" => word.busy && self.settles,
            "agent_settled" => false,
            _ => word.busy,
        };
    }

    fn gap(&mut self) {}

    fn knows_head(&self) -> bool {
        false // it is always read whole
    }

    fn knows_tail(&self) -> bool {
        true
    }
}

/// The session that a process goes on with, if what the extension says tells of one.
pub fn moved(event: &[u8]) -> Option<String> {
    let doc = Doc::parse(event, |_, key| matches!(key, b"event" | b"id"), 256).ok()?;
    let moved = doc.root().get("event").str() == Some("moved");
    doc.root().get("id").some_str().filter(|_| moved).map(str::to_owned)
}

/// What these processes tell of themselves; nothing for one that lariat did not launch.
pub fn told(look: &Look<'_>, processes: &[&Process]) -> Vec<Option<Word>> {
    let files: Vec<Option<Found>> = processes.iter().map(|p| file_of(look, p.pid)).collect();
    let wanted: Vec<Found> = files.iter().flatten().cloned().collect();
    let mut read = read_all::<Events>(look, "pi-events", &wanted).into_iter();
    let words = files.iter().zip(processes).map(|(file, process)| {
        file.as_ref()?;
        read.next()?.ok()?.fold.by_pid.remove(&process.pid)
    });
    words.collect()
}

/// Whether one that has ended was at a turn of this session when it last told.
pub fn was_at_work(folder: &Path, id: &str) -> io::Result<bool> {
    let last = match file::tail(&folder.join(FILE), LAST) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        last => last?,
    };
    let mut events = Events::default();
    // (The first of these lines may have lost its beginning, and the last one its end.)
    let lines = last.split(|b| *b == b'\n').filter_map(|line| Doc::parse(line, Events::keeps, 1 << 10).ok());
    lines.for_each(|line| events.line(line.root()));
    Ok(events.by_pid.values().any(|word| word.id == id && word.busy))
}

fn file_of(look: &Look<'_>, pid: u32) -> Option<Found> {
    let path = ap::launched_folder(look.places, pid)?.join(FILE);
    let (_, key) = file::open(&path).ok()?;
    Some(Found { path, key, whole: true })
}
