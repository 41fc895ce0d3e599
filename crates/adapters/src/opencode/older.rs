//! The logs of versions in which each process had its own (1.0 to 1.15, and perhaps later ones).
//!
//! `log/2026-11-18T025044.log`, named after the second in which it was opened; a terminal has two. All in it was written by
//! the process that has it open, so nothing must be told apart; but two that began in the same second share one, and then
//! no line tells whose it is. A line is `LEVEL  TIME +MSms service=… key=value … message`. Values are not quoted: one that
//! holds blanks may look like further members, or like the message. So of each member the first counts, the session is
//! taken only from lines that hold nothing of an agent's before it, and the message is known by its end.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use lariat_core::Time;
use lariat_sys::file;
use lariat_sys::process::Appended;

use super::log::{FARTHEST, Heard, Line};

/// What a process says at its very beginning.
const BEGINS: &str = "version";
/// Those of which a session is believed.
const SERVICES: [&str; 4] = ["llm", "session.prompt", "session.processor", "session.compaction"];
/// What is known by its end.
const MESSAGES: [&str; 8] =
    ["asking", "created", "event connected", "event disconnected", "init", "loop", "replied", "stream"];

/// Whether a log is one process's alone.
pub fn is_own(log: &Path) -> bool {
    let name = log.file_name().and_then(|n| n.to_str()).unwrap_or("");
    name.starts_with(|first: char| first.is_ascii_digit())
}

/// What a process wrote into its logs. Later starts remove old ones, which it goes on writing.
pub fn read(logs: &[Appended]) -> io::Result<Option<Heard>> {
    let mut texts = Vec::new();
    for log in logs {
        let (mut opened, key) = file::open(&log.through)?;
        if log.place != (key.device, key.inode) || key.size < log.position {
            return Ok(None); // closed meanwhile; or emptied by another that began in the same second
        }
        let from = key.size.saturating_sub(FARTHEST);
        opened.seek(SeekFrom::Start(from))?;
        let mut text = Vec::new();
        opened.take(FARTHEST).read_to_end(&mut text)?;
        texts.push((log, from == 0, text));
    }
    let Some((last, ..)) = texts.iter().max_by_key(|(log, ..)| log.position) else { return Ok(None) };
    let name = |log: &Appended| log.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let runs: Vec<String> = logs.iter().map(name).collect();
    let whole = texts.iter().all(|(_, whole, _)| *whole);
    let mut heard = Heard::in_own(whole, runs.clone(), last.path.clone());
    for ((_, _, text), run) in texts.iter().zip(&runs) {
        let lines = text.split(|b| *b == b'\n').filter_map(|line| parse(line, run));
        let mut begun = 0;
        for line in lines {
            begun += usize::from(line.members.iter().any(|(key, _)| *key == BEGINS));
            heard.take(&line);
        }
        if begun > 1 {
            return Ok(None); // another had the same second
        }
    }
    Ok(Some(heard))
}

/// One line, in the words of the later ones.
fn parse<'a>(line: &'a [u8], run: &'a str) -> Option<Line<'a>> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace();
    words.next().filter(|level| matches!(*level, "DEBUG" | "INFO" | "WARN" | "ERROR"))?;
    let at = Time::parse(&format!("{}Z", words.next()?))?.0;
    words.next().filter(|since| since.starts_with('+') && since.ends_with("ms"))?;
    let service = words.next()?.strip_prefix("service=")?;
    let mut members: Vec<(&str, &str)> = Vec::new();
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        let key = match key {
            "sessionID" if SERVICES.contains(&service) => "session.id",
            "version" if service != "default" => continue,
            key => key,
        };
        if !members.iter().any(|(known, _)| *known == key) {
            members.push((key, value));
        }
    }
    let ends = |message: &&&str| line.strip_suffix(**message).is_some_and(|rest| rest.ends_with(' '));
    let message = MESSAGES.iter().find(ends).copied().unwrap_or("");
    // Others are made and asked for, too.
    let known = match message {
        "created" => service == "session",
        "asking" | "replied" => matches!(service, "permission" | "question"),
        _ => true,
    };
    members.push(("message", if known { message } else { "" }));
    Some(Line { at, run, members })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_line_only_what_opencode_itself_says_is_believed() {
        let told = |rest: &str| {
            let line = format!("INFO  2026-11-18T02:50:46 +1ms {rest}");
            let mut heard = Heard::in_own(true, Vec::new(), "log".into());
            heard.take(&parse(line.as_bytes(), "log").expect("a line"));
            heard
        };
        let named = |rest: &str| told(rest).sessions.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(named("service=session.prompt step=0 sessionID=ses_a loop"), ["ses_a"]);
        assert_eq!(named("service=session id=ses_a title=of id=ses_b created"), ["ses_a"]);
        assert!(named("service=permission permission=bash pattern=x sessionID=ses_a loop").is_empty());
        assert!(named("service=provider id=ses_a created").is_empty());
        assert!(told("service=permission id=per_1 permission=bash patterns=[] asking").asked("bash").is_some());
        assert!(told("service=tool id=per_1 permission=bash asking").asked("bash").is_none());
        assert!(told("service=skill count=1 init").up && !told("service=file init").up);
        assert_eq!(told("service=server event connected").clients, 1);
        assert!(parse(b"half a li", "log").is_none() && parse(b"INFO  soon +1ms service=x", "log").is_none());
        assert!(is_own(Path::new("/x/log/2026-11-18T025044.log")) && !is_own(Path::new("/x/log/opencode.log")));
    }
}
