//! What was typed in Gemini's terminals, and which session it went into.
//!
//! `tmp/<project>/logs.json` is one array of all that was typed in the project's terminals, commands too. Each entry
//! bears the id that its process was started with, also after `/clear` or `/resume` has taken that process to another
//! session. So what was typed last, and stands in a session's file with the very words and a moment later, tells where
//! the process is. `/clear` begins a file at once: until something is typed after it, that beginning tells, if only one
//! began and nothing was asked in it that was not typed here.
//!
//! Whatever fits two sessions, or may have been typed in another terminal, tells nothing. All terminals of a project
//! write the whole file anew, in place: one may undo the entry of another.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lariat_core::Time;
use lariat_sys::file;
use xxhash_rust::xxh3::xxh3_64;

use crate::json::Doc;
use crate::reader::TEXT;

/// How much of the end of a log is read.
const MOST: u64 = 256 << 10;
/// How often one is read that is being written.
const TRIES: usize = 5;
const WRITING: Duration = Duration::from_millis(4);

/// How much later than it was typed a prompt may be recorded in the session.
const RECORDED_MS: i64 = 5000;
/// How much later than `/clear` the session may begin that it makes: at once, where the machine has time for it.
const BEGUN_MS: i64 = 60_000;

/// What a person asked, as far as it is compared.
pub fn words(text: &str) -> u64 {
    xxh3_64(text.trim().as_bytes())
}

/// What was typed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// A new session.
    Clear,
    /// Maybe another session: a person chooses from a list.
    Choose,
    /// Another command.
    Command,
    /// A prompt.
    Words(u64),
}

impl What {
    fn of(message: &str) -> What {
        let Some(command) = message.trim().strip_prefix('/') else { return What::Words(words(message)) };
        match command.split_whitespace().next() {
            Some("clear" | "new") => What::Clear,
            Some("resume" | "chat") => What::Choose,
            _ => What::Command,
        }
    }
}

/// One thing that was typed.
struct Entry {
    /// The id that the process was started with.
    by: String,
    what: What,
    at: i64,
}

/// A session of the project, as its file tells of it.
pub struct Told<'a> {
    /// Its id.
    pub id: &'a str,
    /// A process was started for it, and lives.
    pub is_held: bool,
    /// When it began.
    pub started: Option<i64>,
    /// When it may have been taken up again, if nothing was said since.
    pub taken_up: Option<i64>,
    /// When it was last written.
    pub updated: Option<i64>,
    /// What was asked in it, and when.
    pub asked: Vec<(u64, i64)>,
}

impl Told<'_> {
    /// Whether it has what was typed, in these words and at that time.
    fn shows(&self, entry: &Entry) -> bool {
        let asked = |(words, at): &(u64, i64)| entry.what == What::Words(*words) && follows(entry, *at, RECORDED_MS);
        self.started.is_some_and(|started| started <= entry.at) && self.asked.iter().any(asked)
    }

    /// Whether it may be the session that a command led to, in which this was typed since.
    fn came_of(&self, command: &Entry, typed: &[&Entry]) -> bool {
        let typed_here = |(_, at): &(u64, i64)| typed.iter().any(|e| follows(e, *at, RECORDED_MS));
        match command.what {
            What::Clear => {
                let begun = self.started.is_some_and(|at| follows(command, at, BEGUN_MS));
                begun && !self.is_held && self.asked.iter().all(typed_here)
            }
            _ => self.taken_up.is_some_and(|at| at >= command.at),
        }
    }
}

/// Where a process is.
#[derive(PartialEq, Eq, Debug)]
pub struct Place {
    /// The session.
    pub session: String,
    /// Until when it may have been in another one.
    pub left: Time,
    /// Whether that is known only by when the session began.
    pub by_time: bool,
}

/// What is known of where a process is.
enum Found {
    Here(Place),
    /// It may be in several sessions.
    Doubt,
    /// It has not moved, as far as that is known.
    Nothing,
}

/// What was typed in the terminals of one project, in that order.
pub struct Log(Vec<Entry>);

/// Where a project keeps it.
pub fn path(project: &Path) -> PathBuf {
    project.join("logs.json")
}

impl Log {
    /// Reads its end. One that is missing or is no such list tells nothing.
    pub fn read(project: &Path) -> Option<Log> {
        let read = |tried: usize| {
            if tried > 0 {
                std::thread::sleep(WRITING);
            }
            Log::parse(file::tail(&path(project), MOST).ok()?)
        };
        (0..TRIES).find_map(read)
    }

    fn parse(mut bytes: Vec<u8>) -> Option<Log> {
        if bytes.len() as u64 >= MOST {
            // No string holds a bare newline, so this is the beginning of an entry.
            let from = memchr::memmem::find(&bytes, b"\n  {")?;
            bytes.drain(..from);
            bytes.insert(0, b'[');
        }
        let keep = |_: &[u8], key: &[u8]| matches!(key, b"sessionId" | b"type" | b"message" | b"timestamp");
        let doc = Doc::parse(&bytes, keep, TEXT).ok()?;
        let users = doc.root().items().filter(|entry| entry.get("type").str() == Some("user"));
        let entries = users.filter_map(|entry| {
            let at = entry.get("timestamp").str().and_then(Time::parse)?.0;
            Some(Entry {
                by: entry.get("sessionId").str()?.to_owned(),
                what: What::of(entry.get("message").str()?),
                at,
            })
        });
        doc.root().is_array().then(|| Log(entries.collect()))
    }

    /// Whether a command was typed since, in the terminal that was started with this id.
    pub fn has_command(&self, first: &str, since: Time) -> bool {
        self.0.iter().any(|e| e.by == first && e.at >= since.0 && !matches!(e.what, What::Words(_)))
    }

    /// When something was last typed in the terminal that was started with this id.
    pub fn last(&self, first: &str) -> Option<Time> {
        self.0.iter().filter(|e| e.by == first).map(|e| Time(e.at)).max()
    }

    /// Where a process is that was started with this id at that time.
    pub fn place(&self, first: &str, since: Time, sessions: &[Told<'_>]) -> Option<Place> {
        let own: Vec<&Entry> = self.0.iter().filter(|e| e.by == first && e.at >= since.0).collect();
        let mut rest = own.as_slice();
        loop {
            let moved = rest.iter().rposition(|e| matches!(e.what, What::Clear | What::Choose));
            let typed = rest.split_off(moved.map_or(0, |at| at + 1)..)?;
            let moved = rest.split_off_last().copied();
            match self.since(moved, typed, sessions) {
                Found::Here(place) => return Some(place),
                Found::Doubt => return None,
                Found::Nothing => moved?,
            };
        }
    }

    /// Where a process is that was moved like this, if it was, and in which this was typed since.
    fn since(&self, moved: Option<&Entry>, typed: &[&Entry], sessions: &[Told<'_>]) -> Found {
        let tell = |entry: &Entry, fits: Vec<&Told<'_>>| match fits[..] {
            [only] if !self.may_be_anothers(entry, only) => Found::Here(Place {
                session: only.id.to_owned(),
                left: Time(moved.unwrap_or(entry).at),
                by_time: entry.what == What::Clear,
            }),
            _ => Found::Doubt,
        };
        for entry in typed.iter().rev() {
            let fits: Vec<_> = sessions.iter().filter(|s| s.shows(entry)).collect();
            if !fits.is_empty() {
                return tell(entry, fits);
            }
        }
        let Some(moved) = moved else { return Found::Nothing };
        let began_with_it = |s: &Told<'_>| moved.what == What::Clear && self.0.iter().any(|e| e.by == s.id);
        let came: Vec<_> = sessions.iter().filter(|s| s.came_of(moved, typed) && !began_with_it(s)).collect();
        match moved.what {
            // It may not have been run yet, or a person chose nothing.
            _ if came.is_empty() => Found::Nothing,
            What::Clear => tell(moved, came),
            _ => Found::Doubt,
        }
    }

    /// Whether the same was typed in another terminal, at a time that fits the session too.
    fn may_be_anothers(&self, entry: &Entry, session: &Told<'_>) -> bool {
        let fits = |e: &Entry| match e.what {
            What::Clear => session.started.is_some_and(|at| follows(e, at, BEGUN_MS)),
            _ => (e.at - entry.at).abs() <= RECORDED_MS,
        };
        self.0.iter().any(|e| e.by != entry.by && e.what == entry.what && fits(e))
    }
}

fn follows(entry: &Entry, at: i64, within: i64) -> bool {
    (entry.at..=entry.at + within).contains(&at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = 1_800_000_000_000;

    fn log(entries: &[(&str, &str, i64)]) -> Log {
        let entry = |(by, message, at): &(&str, &str, i64)| Entry {
            by: (*by).to_owned(),
            what: What::of(message),
            at: START + at,
        };
        Log(entries.iter().map(entry).collect())
    }

    fn told<'a>(id: &'a str, started: i64, asked: &[(&str, i64)]) -> Told<'a> {
        let asked: Vec<_> = asked.iter().map(|(text, at)| (words(text), START + at)).collect();
        let updated = asked.last().map(|a| a.1).or(Some(START + started));
        Told { id, is_held: false, started: Some(START + started), updated, taken_up: None, asked }
    }

    /// Where the process that was started with `a` is.
    fn place(log: &Log, sessions: &[Told<'_>]) -> Option<String> {
        log.place("a", Time(START), sessions).map(|place| place.session)
    }

    #[test]
    fn the_last_words_tell_where_a_process_is() {
        let sessions = [told("a", 1, &[("one", 110)]), told("b", 240, &[("two", 330), ("yes", 510)])];
        let at = |entries: &[(&str, &str, i64)]| place(&log(entries), &sessions);
        assert_eq!(at(&[("a", "one", 100)]).as_deref(), Some("a"));
        assert_eq!(at(&[("a", "one", 100), ("a", "/clear", 200), ("a", "two", 300)]).as_deref(), Some("b"));
        // Commands go into no session; that one was cleared may have been undone by another terminal.
        assert_eq!(at(&[("a", "one", 100), ("a", "two", 300), ("a", "/help", 400)]).as_deref(), Some("b"));
        assert_eq!(at(&[("a", "two", 300), ("a", "not there", 350)]).as_deref(), Some("b"));
        // Nothing was typed since: its beginning tells.
        let cleared = log(&[("a", "one", 100), ("a", "/new", 200)]);
        let begun = [told("a", 1, &[("one", 110)]), told("b", 240, &[])];
        let found = cleared.place("a", Time(START), &begun).unwrap();
        assert_eq!((found.session.as_str(), found.left, found.by_time), ("b", Time(START + 200), true));
        // A command of a person's own makes a prompt.
        let own = log(&[("a", "/clear", 200), ("a", "/review", 300)]);
        assert_eq!(place(&own, &[told("b", 240, &[("Please review", 330)])]).as_deref(), Some("b"));
        // It has not begun yet: it is where it was.
        assert_eq!(place(&cleared, &sessions[..1]).as_deref(), Some("a"));
    }

    #[test]
    fn what_could_be_anothers_tells_nothing() {
        let cleared = [("a", "/clear", 200), ("a", "two", 300)];
        let two = || told("b", 240, &[("two", 330)]);
        for (why, more, sessions) in [
            ("two fit", &[][..], vec![two(), told("c", 250, &[("two", 340)])]),
            ("another terminal, too", &[("x", "two", 900)], vec![two()]),
            ("long after", &[], vec![told("b", 240, &[("two", 5301)])]),
            ("other words at another time", &[], vec![told("b", 240, &[("too", 290)])]),
            ("begun since", &[], vec![told("b", 310, &[("two", 330)]), told("c", 320, &[])]),
        ] {
            assert_eq!(place(&log(&[&cleared, more].concat()), &sessions), None, "{why}");
        }
        // Before it was started, another process was.
        assert_eq!(
            place(&log(&[("a", "/clear", -300), ("a", "two", -200)]), &[told("b", -250, &[("two", -170)])]),
            None
        );
        assert_eq!(place(&log(&[("x", "/clear", 200), ("x", "two", 300)]), &[two()]), None);
        // Two were cleared together.
        let both = log(&[("a", "/clear", 200), ("x", "/new", 900)]);
        assert_eq!(place(&both, &[told("b", 240, &[])]).as_deref(), Some("b"), "it began before that");
        assert_eq!(place(&both, &[told("b", 950, &[])]), None);
        assert_eq!(place(&log(&[("a", "/clear", 200)]), &[told("b", 240, &[]), told("c", 250, &[])]), None);
        assert_eq!(place(&log(&[("a", "/clear", 200)]), &[told("b", 60_201, &[])]), None);
        assert_eq!(place(&log(&[("a", "/clear", 200)]), &[told("b", 240, &[("zero", 250)])]), None);
        assert_eq!(place(&log(&[("a", "/clear", 200)]), &[Told { is_held: true, ..told("b", 240, &[]) }]), None);
        assert_eq!(place(&log(&[("a", "/clear", 200), ("b", "x", 99_000)]), &[told("b", 240, &[])]), None);
    }

    #[test]
    fn a_list_to_choose_from_tells_nothing_until_words_do() {
        let chose = [("a", "one", 100), ("a", "/resume", 200)];
        let here = || told("a", 1, &[("one", 110)]);
        let back = |taken_up| Told { taken_up, ..told("b", -900, &[("zero", -800)]) };
        assert_eq!(place(&log(&chose), &[here(), back(None)]).as_deref(), Some("a"), "nothing was chosen");
        assert_eq!(place(&log(&chose), &[here(), back(Some(START + 300))]), None);
        let said = log(&[&chose[..], &[("a", "two", 400)]].concat());
        assert_eq!(place(&said, &[here(), told("b", -900, &[("two", 430)])]).as_deref(), Some("b"));
    }

    #[test]
    fn a_command_counts_where_it_was_typed() {
        let typed = log(&[("a", "/help", 100), ("a", "words", 300), ("b", "/help", 300)]);
        let has = |since| typed.has_command("a", Time(START + since));
        assert_eq!([has(100), has(101)], [true, false]);
    }

    #[test]
    fn a_log_that_is_not_one_tells_nothing_and_of_a_long_one_the_end() {
        let entry = |id: &str, message: &str| {
            format!(
                "\n  {{\n    \"sessionId\": \"{id}\",\n    \"messageId\": 0,\n    \"type\": \"user\",\n    \
                 \"message\": \"{message}\",\n    \"timestamp\": \"2026-11-16T12:37:02.834Z\"\n  }}"
            )
        };
        let count = |text: String| Log::parse(text.into_bytes()).map(|log| log.0.len());
        assert_eq!(count("[]".into()), Some(0));
        assert_eq!(count(format!("[{},{}\n]", entry("a", "one"), entry("b", "[/clear"))), Some(2));
        for bad in ["", "[", "{}", "null", "[{\"sessionId\": \"a\", ", "[1"] {
            assert_eq!(count(bad.into()), None, "{bad:?}");
        }
        assert_eq!(count(format!("[{},{{\"type\":\"user\"}},7\n]", entry("a", "one"))), Some(1), "others are left out");
        // As it is cut: in the middle of an entry.
        let long = entry("a", &"x".repeat(MOST as usize));
        assert_eq!(count(format!("{},{}\n]", &long[9..], entry("a", "/clear"))), Some(1));
        assert_eq!(count(long), None);
    }
}
