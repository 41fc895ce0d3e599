//! Typing a prompt into a launched session, and knowing that it arrived.
//!
//! # Theory of operation
//!
//! The text is pasted (bracketed, so that no newline in it submits early) and
//! then submitted by a key of its own. That the bytes went out means nothing:
//! it is sent when the agent's own transcript shows it. Nothing is ever typed
//! into a session that waits for an answer: the first letter of a prompt could
//! grant a permission.

use std::io;
use std::time::{Duration, Instant};

use lariat_adapters::talk::Speaker;
use lariat_core::{Session, State, Status};
use lariat_shim::client::{Client, ClientError};
use lariat_shim::ring::Output;
use lariat_shim::start::{self, StartError};

use crate::launched::Launched;
use crate::list::{Question, list};
use crate::peek;

/// Between a paste and the key that submits it: programs take keys that come
/// with a paste for part of it.
const PAUSE: Duration = Duration::from_millis(120);

/// When a key that had no effect is pressed again.
const AGAIN: Duration = Duration::from_millis(1500);
/// How long a program may take to show that it took a paste.
const TAKEN: Duration = Duration::from_secs(2);

/// Why nothing was sent, or not for sure.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// It waits for an answer.
    #[error("it waits for an answer ({0}), so nothing was typed")]
    Blocked(String),
    /// It is at work.
    #[error("it is {0}, so nothing was typed; `lariat wait` tells when its turn is over")]
    Busy(&'static str),
    /// It was typed, and the agent does not show it.
    #[error("it was typed, but its transcript does not show it after {0:?}; `lariat attach` shows why")]
    Stalled(Duration),
    /// The shim cannot be reached.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No shim could take over.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Something else failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Connects to a session's shim; if that was killed, another one takes over first.
pub fn connect(launched: &Launched) -> Result<Client, SendError> {
    if let Ok(client) = Client::connect(&launched.record.launch.socket) {
        return Ok(client);
    }
    start::take_over(&std::env::current_exe()?, &launched.folder)?;
    Ok(Client::connect(&launched.record.launch.socket)?)
}

/// Types a prompt; returns when the agent's transcript shows it, with where the
/// transcript ended before.
pub fn send(
    question: &Question,
    session: &Session,
    launched: &Launched,
    text: &str,
    patience: Duration,
) -> Result<u64, SendError> {
    match session.status {
        Status::Idle => {}
        // A Codex that holds its thread stands at its prompt; a Claude Code that has
        // recorded nothing may stand at a dialog.
        Status::Starting if session.agent == "codex" => {}
        Status::Waiting => return Err(SendError::Blocked(session.reason.row())),
        status => return Err(SendError::Busy(status.word())),
    }
    let before = session.transcript.as_ref().and_then(|t| t.metadata().ok()).map_or(0, |m| m.len());
    let client = connect(launched)?;
    // Only what ends a paste could break out of it.
    let text: String = text.chars().filter(|c| *c != '\x1b').collect();
    let from = Output::open(&launched.folder).and_then(|output| output.range()).map_or(0, |(_, end)| end);
    client.input(format!("\x1b[200~{text}\x1b[201~").as_bytes())?;
    // A program that is busy takes the paste late: the pause is one after it was taken.
    let pasted = Instant::now();
    while !is_taken(launched, from, &text) && pasted.elapsed() < TAKEN {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(PAUSE);
    client.input(b"\r")?;
    let began = Instant::now();
    let mut pressed = Instant::now();
    while began.elapsed() < patience {
        if shows(question, session, before, &text) {
            return Ok(before);
        }
        // One that says it is at rest took the key for part of the paste. Where an agent says nothing
        // the key is never pressed twice: it could answer a question.
        if pressed.elapsed() > AGAIN && launched.says() == Some(State::Idle) {
            client.input(b"\r")?;
            pressed = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    Err(SendError::Stalled(patience))
}

/// Whether the terminal has shown a paste since an offset: its first word, or, for a text that programs
/// show only as a note that something was pasted, anything at all.
fn is_taken(launched: &Launched, from: u64, text: &str) -> bool {
    let Ok(piece) = Output::open(&launched.folder).and_then(|output| output.read(from, 1 << 20)) else { return true };
    let word = text.split_whitespace().next().unwrap_or_default();
    if text.len() > 200 || text.contains('\n') || word.is_empty() {
        return !piece.bytes.is_empty();
    }
    let start = word.char_indices().nth(16).map_or(word, |(end, _)| &word[..end]);
    piece.bytes.windows(start.len()).any(|w| w == start.as_bytes())
}

/// Whether the transcript shows this prompt since an offset.
fn shows(question: &Question, session: &Session, offset: u64, text: &str) -> bool {
    let transcript = session.transcript.clone().or_else(|| {
        let answer = list(question.clone());
        answer.listing.sessions.into_iter().find(|s| s.id == session.id)?.transcript
    });
    let Some(talk) = transcript.and_then(|t| peek::since(session.agent, &t, offset).ok()) else { return false };
    let plain = |t: &str| t.split_whitespace().collect::<Vec<_>>().join(" ");
    talk.said.iter().any(|s| s.who == Speaker::Person && plain(s.text.raw()) == plain(text))
}
