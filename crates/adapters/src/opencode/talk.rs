//! An OpenCode session as a conversation: from the database, or from the files
//! of the older layout.
//!
//! A session's transcript is the database followed by its id, as if it were a
//! folder. A place in a conversation is the row of a part. What is still being
//! written is not told: its text comes when it is complete.

use std::io;
use std::path::{Path, PathBuf};

use lariat_core::Time;

use super::{legacy, open, record};
use crate::json::{Doc, Value};
use crate::talk::{Archive, Said, Speaker, Talk, place, push};
use crate::tool::gist;

/// How much of one message is kept.
const LONGEST: usize = 1 << 20;
/// How many parts are read at first.
const FIRST: u64 = 64;

/// Every conversation of OpenCode's.
pub struct Conversations;

impl Archive for Conversations {
    fn last(&self, transcript: &Path, enough: &dyn Fn(&[Said]) -> bool) -> io::Result<Talk> {
        let Some((path, id)) = in_database(transcript) else {
            let said = older(transcript)?;
            return Ok(Talk { offset: said.len() as u64, said, more: false });
        };
        let mut parts = FIRST;
        loop {
            let talk = from_database(path, id, 0, Some(parts))?;
            if !talk.more || enough(&talk.said) {
                return Ok(talk);
            }
            parts *= 8;
        }
    }

    fn since(&self, transcript: &Path, offset: u64) -> io::Result<Talk> {
        match in_database(transcript) {
            Some((path, id)) => from_database(path, id, offset, None),
            None => {
                let all = older(transcript)?;
                let said: Vec<Said> = all.into_iter().skip(usize::try_from(offset).unwrap_or(usize::MAX)).collect();
                Ok(Talk { offset: offset + said.len() as u64, said, more: false })
            }
        }
    }

    fn end(&self, transcript: &Path) -> io::Result<u64> {
        let Some((path, id)) = in_database(transcript) else { return Ok(older(transcript)?.len() as u64) };
        let second = ask(path, |db| super::second::said(db.connection(), id, 0, Some(1)))?;
        if let Some(talk) = second {
            return Ok(talk.offset);
        }
        let last = ask(path, |db| {
            let newest = "SELECT max(rowid) FROM part WHERE session_id = ?1";
            db.connection().query_row(newest, [id], |row| Ok(open::number(row, 0)))
        })?;
        Ok(last.and_then(|n| u64::try_from(n).ok()).unwrap_or(0))
    }

    fn stirs(&self, transcript: &Path) -> PathBuf {
        let file = in_database(transcript).map_or(transcript, |(path, _)| path);
        file.parent().unwrap_or(file).to_owned()
    }
}

/// The database and the session, if that is where it is.
fn in_database(transcript: &Path) -> Option<(&Path, &str)> {
    let id = transcript.file_name()?.to_str().filter(|id| super::is_id(id))?;
    Some((transcript.parent()?, id))
}

fn ask<T>(path: &Path, what: impl Fn(&open::Db) -> rusqlite::Result<T>) -> io::Result<T> {
    let told = open::with(path, None, what).map_err(io::Error::other)?;
    told.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The parts after a row, or the last ones.
fn from_database(path: &Path, id: &str, offset: u64, last: Option<u64>) -> io::Result<Talk> {
    let limit = last.map_or(i64::MAX, |n| i64::try_from(n).unwrap_or(i64::MAX));
    let second = ask(path, |db| super::second::said(db.connection(), id, offset, last))?;
    if let Some(talk) = second {
        return Ok(talk);
    }
    let rows = ask(path, |db| {
        let newest = "SELECT p.rowid, p.data, p.time_created, m.data, m.id FROM part p JOIN message m ON m.id = p.message_id \
                      WHERE p.session_id = ?1 AND p.rowid > ?2 AND (?4 IS NULL OR m.id < ?4) ORDER BY p.rowid DESC LIMIT ?3";
        let mut asked = db.connection().prepare(newest)?;
        let undone = db.undone(id)?;
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        let rows = asked.query_map(rusqlite::params![id, offset, limit, undone], |row| {
            Ok((open::number(row, 0), open::text(row, 1), open::number(row, 2), open::text(row, 3), open::text(row, 4)))
        })?;
        rows.collect::<Result<Vec<_>, _>>()
    })?;
    let more = last.is_some_and(|n| rows.len() as u64 >= n);
    let mut talk = Talk { said: Vec::new(), offset, more };
    let newest = rows.iter().find(|(_, _, _, message, _)| message.as_deref().is_some_and(is_assistant));
    let newest = newest.and_then(|(.., key)| key.clone());
    for (row, data, at, message, key) in rows.into_iter().rev() {
        let (Some(data), Some(message)) = (data, message) else { continue };
        let part = record::part(data.as_bytes(), LONGEST);
        let message = record::message(message.as_bytes());
        if let (Ok(part), Ok(message)) = (&part, &message) {
            if is_being_written(message.root(), part.root()) {
                if key == newest {
                    break;
                }
                continue; // it was cut off, and stays so
            }
            let said = said(message.root(), part.root(), at.map(Time));
            let place = place(row.and_then(|r| u64::try_from(r).ok()).unwrap_or(0), 0);
            said.into_iter().for_each(|s| push(&mut talk.said, s.part_of(key.as_deref()).at_place(place)));
        }
        talk.offset = row.and_then(|r| u64::try_from(r).ok()).unwrap_or(talk.offset);
    }
    Ok(talk)
}

fn is_assistant(message: &str) -> bool {
    record::message(message.as_bytes()).is_ok_and(|m| m.root().get("role").str() == Some("assistant"))
}

/// Text of a turn that goes on, which has no end yet.
fn is_being_written(message: Value<'_>, part: Value<'_>) -> bool {
    let text = part.get("type").str() == Some("text") && message.get("role").str() == Some("assistant");
    let over = message.get("time").get("completed").exists() || message.get("error").exists();
    text && !over && !part.get("time").get("end").exists()
}

fn said(message: Value<'_>, part: Value<'_>, at: Option<Time>) -> Option<Said> {
    match (message.get("role").str(), part.get("type").str()) {
        (Some("user"), Some("text")) => record::spoken(part).map(|t| Said::new(Speaker::Person, at, t)),
        (Some("assistant"), Some("text")) => part.get("text").some_str().map(|t| Said::new(Speaker::Agent, at, t)),
        (Some("assistant"), Some("tool")) => {
            let name = part.get("tool").some_str().unwrap_or("tool");
            let told = format!("{name} {}", gist(part.get("state").get("input")));
            let state = part.get("state");
            let output = state.get("output").str().or_else(|| state.get("error").str()).map(str::to_owned);
            let failed = match state.get("status").str() {
                Some("completed") => Some(false),
                Some("error") => Some(true),
                _ => None,
            };
            let said = Said::new(Speaker::Tool, at, told.trim());
            Some(said.calling(part.get("callID").str(), name, state.get("input")).giving(output, failed))
        }
        _ => None,
    }
}

fn older(transcript: &Path) -> io::Result<Vec<Said>> {
    let mut all = Vec::new();
    for (i, (message, parts)) in legacy::conversation(transcript)?.into_iter().enumerate() {
        let at = message.root().get("time").get("created").u64().and_then(|t| i64::try_from(t).ok()).map(Time);
        let key = i.to_string();
        let told = |part: &Doc| said(message.root(), part.root(), at);
        let said = (0..).zip(parts.iter().filter_map(told));
        said.for_each(|(n, s)| push(&mut all, s.part_of(Some(&key)).at_place(place(i as u64, n))));
    }
    Ok(all)
}
