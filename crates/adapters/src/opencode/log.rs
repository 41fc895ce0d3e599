//! What a process wrote into the log that all OpenCode processes share.
//!
//! Each line says which run wrote it, and no line says which process that is.
//! But the kernel does: it keeps, per descriptor, where its last write ended. The
//! line that ends there was written by this very process, so its run is known,
//! and with it every line of that run: the sessions it made, the turns it began,
//! what it asked. (A program may stand at the end of what others wrote without having written
//! itself: a run that is older than the process is not its own.)
//!
//! Up to 1.15 at least each process had files of its own, named after the second in which it opened them: see [`older`].
//!
//! Lines are written about a second late, and the last ones of a process that
//! died never: the log proves what a living process did, never that one ended.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use lariat_core::Time;
use lariat_sys::file;
use lariat_sys::process::{self, Appended};

use super::older;

/// How far back a log is read.
pub const FARTHEST: u64 = 4 << 20;
const STEP: u64 = 128 << 10;
/// A line stamped so long before a process started is none of its own.
const SLACK_MS: i64 = 5000;
/// The kernel counts the start of a process in hundredths of a second.
const TICK_MS: i64 = 20;

/// What a process logged.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Heard {
    /// The sessions it named, each with when it last did, in order of that.
    pub sessions: Vec<(String, i64)>,
    /// What it asked; that a permission was given or refused is not logged.
    asks: Vec<Asking>,
    /// How often somebody began to listen to what it does; a terminal that serves nobody is not listened to.
    pub clients: usize,
    /// Whether its terminal has come up.
    pub up: bool,
    /// Whether all that it logged was read, back to its start.
    pub whole: bool,
    /// What it calls itself there; if the log is its own, that log's name.
    pub runs: Vec<String>,
    /// The log is its own; yet two that began in the same second have one.
    pub own: bool,
    /// The log.
    pub path: PathBuf,
}

/// Something that a person is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Asking {
    id: String,
    /// What for; nothing for a question.
    permission: Option<String>,
    at: i64,
}

impl Asking {
    /// Whether a call of this tool may be what waits for it. What is asked for another tool's sake, a call of some other
    /// session of the process, is not.
    fn may_be_for(&self, tool: &str) -> bool {
        let own = match tool {
            "shell" => "bash",
            "write" | "patch" | "apply_patch" | "multiedit" => "edit",
            tool => tool,
        };
        match self.permission.as_deref() {
            Some(what) if TOOLS.contains(&what) => what == own,
            Some(_) => true, // a directory elsewhere, the same call again and again, a tool of a server's
            None => !(self.id.starts_with("que_") && TOOLS.contains(&own)),
        }
    }
}

/// Permissions that are one tool's alone.
const TOOLS: [&str; 11] =
    ["bash", "edit", "read", "glob", "grep", "list", "task", "skill", "webfetch", "websearch", "todowrite"];

/// What this process logged since it started, if it has a log and wrote to it.
pub fn heard(pid: u32, started: i64, folder: &Path) -> Option<Heard> {
    let logs = process::appended(pid, folder).ok()?;
    let (own, shared): (Vec<Appended>, Vec<Appended>) =
        logs.into_iter().filter(|l| l.position > 0).partition(|l| older::is_own(&l.path));
    if shared.is_empty() { older::read(&own).ok().flatten() } else { read(&shared, started).ok().flatten() }
}

/// Reads what one process wrote. It may have several descriptors on the log: what
/// was written through the others ends earlier.
fn read(logs: &[Appended], started: i64) -> io::Result<Option<Heard>> {
    let Some(last) = logs.iter().max_by_key(|l| l.position) else { return Ok(None) };
    let (mut opened, key) = file::open(&last.path)?;
    if logs.iter().any(|l| l.place != (key.device, key.inode)) || key.size < last.position {
        return Ok(None); // another file by now
    }
    let mut text: Vec<u8> = Vec::new();
    let mut from = last.position;
    let mut whole = false;
    while from > 0 && last.position - from < FARTHEST && !whole {
        let step = STEP.min(from);
        from -= step;
        let mut chunk = vec![0; usize::try_from(step).map_err(io::Error::other)?];
        opened.seek(SeekFrom::Start(from))?;
        opened.read_exact(&mut chunk)?;
        chunk.extend_from_slice(&text);
        text = chunk;
        // Older than the process: all of its own has been seen.
        let first = lines(&text, from == 0).find_map(Line::parse);
        whole = from == 0 || first.is_some_and(|l| l.at < started - SLACK_MS);
    }
    let mut runs: Vec<&str> = logs.iter().filter_map(|log| run_at(&text, from, log.position)).collect();
    let known = runs.len();
    for line in lines(&text, from == 0).filter_map(Line::parse).filter(|l| l.at + TICK_MS < started) {
        runs.retain(|run| *run != line.run);
    }
    if runs.is_empty() {
        return Ok(None);
    }
    let mut heard =
        Heard { whole: whole && known == logs.len(), runs: owned(&runs), path: last.path.clone(), ..Heard::default() };
    for line in lines(&text, from == 0).filter_map(Line::parse).filter(|l| runs.contains(&l.run)) {
        heard.take(&line);
    }
    Ok(Some(heard))
}

/// Whether the end of the log says that another run than these works on a session since then: who does says so at each
/// step.
pub fn is_at_work_elsewhere(log: &Path, runs: &[String], session: &str, since: i64) -> bool {
    let read = || -> io::Result<Vec<u8>> {
        let (mut opened, key) = file::open(log)?;
        opened.seek(SeekFrom::Start(key.size.saturating_sub(STEP)))?;
        let mut text = Vec::new();
        opened.take(STEP).read_to_end(&mut text)?;
        Ok(text)
    };
    let text = read().unwrap_or_default();
    let works = |line: &Line<'_>| {
        matches!(line.message(), "loop" | "process" | "stream")
            && line.session() == Some(session)
            && line.at >= since
            && !runs.iter().any(|run| run == line.run)
    };
    lines(&text, false).filter_map(Line::parse).any(|line| works(&line))
}

fn owned(runs: &[&str]) -> Vec<String> {
    runs.iter().map(|run| (*run).to_owned()).collect()
}

/// Whose line ends at a position, if one does.
fn run_at(text: &[u8], from: u64, position: u64) -> Option<&str> {
    let end = usize::try_from(position.checked_sub(from)?).ok()?;
    let before = text.get(..end)?.strip_suffix(b"\n")?;
    let start = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
    Line::parse(&before[start..]).map(|line| line.run)
}

/// Whole lines; the first may lack its start.
fn lines(text: &[u8], whole: bool) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
    let start = if whole { 0 } else { memchr::memchr(b'\n', text).map_or(text.len(), |at| at + 1) };
    let text = &text[start..];
    text.strip_suffix(b"\n").unwrap_or(text).split(|b| *b == b'\n')
}

impl Heard {
    /// Nothing yet, of one that has logs of its own.
    pub fn in_own(whole: bool, runs: Vec<String>, path: PathBuf) -> Heard {
        Heard { own: true, whole, runs, path, ..Heard::default() }
    }

    /// Whether both are taken for the same run, of which only one can be it.
    pub fn is_run_of(&self, other: &Heard) -> bool {
        self.runs.iter().any(|run| other.runs.contains(run))
    }

    /// When it last asked what a call of this tool may wait for, unless that was answered.
    pub fn asked(&self, tool: &str) -> Option<i64> {
        self.asks.iter().rfind(|asking| asking.may_be_for(tool)).map(|asking| asking.at)
    }

    pub fn take(&mut self, line: &Line<'_>) {
        if let Some(session) = line.session() {
            self.sessions.retain(|(id, _)| id != session);
            self.sessions.push((session.to_owned(), line.at));
        }
        match line.message() {
            "asking" => {
                let text = |key: &str| line.get(key).map(str::to_owned);
                let id = text("id").unwrap_or_default();
                self.asks.push(Asking { id, permission: text("permission"), at: line.at });
            }
            "replied" => {
                let answered = line.get("requestID");
                self.asks.retain(|asking| answered.is_some_and(|answered| answered != asking.id));
            }
            "global event connected" | "event connected" => self.clients += 1,
            "event disconnected" if self.own => self.clients = self.clients.saturating_sub(1),
            "init" => self.up |= line.get("count").is_some(),
            _ => {}
        }
    }
}

/// `timestamp=… level=… run=… message=… key=value …`
pub struct Line<'a> {
    /// When, in milliseconds since 1970.
    pub at: i64,
    /// Which run wrote it.
    pub run: &'a str,
    /// What it says.
    pub members: Vec<(&'a str, &'a str)>,
}

impl<'a> Line<'a> {
    fn parse(line: &'a [u8]) -> Option<Line<'a>> {
        let mut rest = std::str::from_utf8(line).ok()?;
        let mut members = Vec::new();
        while let Some((key, value)) = rest.split_once('=') {
            let (value, after) = match value.strip_prefix('"') {
                // Values that hold blanks are quoted; what stands inside is no key.
                Some(quoted) => {
                    let mut escaped = false;
                    let end = quoted.bytes().position(|b| {
                        let ends = b == b'"' && !escaped;
                        escaped = b == b'\\' && !escaped;
                        ends
                    })?;
                    (&quoted[..end], &quoted[end + 1..])
                }
                None => value.split_once(' ').unwrap_or((value, "")),
            };
            members.push((key.trim_start(), value));
            rest = after;
        }
        let get = |key: &str| members.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        let at = get("timestamp").and_then(Time::parse)?.0;
        let run = get("run")?;
        Some(Line { at, run, members })
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.members.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }

    fn message(&self) -> &'a str {
        self.get("message").unwrap_or("")
    }

    /// The session that the line is about.
    fn session(&self) -> Option<&'a str> {
        let made = self.get("id").filter(|_| self.message() == "created");
        self.get("session.id").or(made).filter(|id| super::is_id(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_by_its_keys_and_quoted_text_is_none() {
        let line = br#"timestamp=2026-11-15T13:58:42.835Z level=INFO run=0a2cbb1b message=evaluated pattern="x \" session.id=ses_a" session.id=ses_b"#;
        let line = Line::parse(line).expect("a line");
        assert_eq!((line.run, line.message(), line.session()), ("0a2cbb1b", "evaluated", Some("ses_b")));
        let forged =
            br#"timestamp=2026-11-15T13:58:42.835Z level=INFO run=a message=evaluated pattern="x session.id=ses_a""#;
        assert_eq!(Line::parse(forged).expect("a line").session(), None);
        assert!(Line::parse(b"half a li").is_none());
    }

    #[test]
    fn the_line_that_ends_at_the_position_names_the_run() {
        let folder = std::env::temp_dir().join(format!("lariat-log-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("opencode.log");
        let line = |run: &str, rest: &str| format!("timestamp=2026-11-15T13:58:42.835Z level=INFO run={run} {rest}\n");
        let mine = [line("aa", "message=created id=ses_1"), line("aa", "message=asking id=per_1")].concat();
        let theirs = line("bb", "message=loop session.id=ses_2 step=0");
        #[allow(clippy::disallowed_methods)]
        std::fs::write(&path, [theirs.clone(), mine.clone(), theirs.clone()].concat()).expect("a log");
        let (_, key) = file::open(&path).expect("a log");
        let log = |position: usize| Appended {
            path: path.clone(),
            place: (key.device, key.inode),
            position: position as u64,
            through: path.clone(),
        };
        let at = |position: usize| read(&[log(position)], 0).expect("a log");
        let heard = at(theirs.len() + mine.len()).expect("a run");
        assert_eq!(heard.sessions.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["ses_1"]);
        assert!(heard.asked("bash").is_some() && heard.whole);
        let heard = at(theirs.len() * 2 + mine.len()).expect("a run");
        assert_eq!(heard.sessions.len(), 1);
        assert_eq!(heard.sessions[0].0, "ses_2");
        assert_eq!(at(theirs.len() + 5), None, "a position within a line names nobody");
        let first_of_mine = theirs.len() + mine.find('\n').expect("a line") + 1;
        let both = [log(first_of_mine), log(theirs.len() + mine.len())];
        let heard = read(&both, 0).expect("a log").expect("a run");
        assert!(heard.asked("bash").is_some() && heard.whole, "the later of two descriptors tells all: {heard:?}");
        #[allow(clippy::disallowed_methods)]
        std::fs::remove_dir_all(&folder).expect("a folder");
    }
}
