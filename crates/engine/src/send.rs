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
use lariat_core::{Session, Status};
use lariat_shim::client::{Client, ClientError};
use lariat_shim::start::{self, StartError};

use crate::launched::Launched;
use crate::list::{Question, list};
use crate::peek;

/// Between a paste and the key that submits it: programs take keys that come
/// with a paste for part of it.
const PAUSE: Duration = Duration::from_millis(120);

/// How long another one that takes over may take until it answers.
const TAKING_OVER: Duration = Duration::from_secs(5);

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
/// Of several that try that at once one succeeds, and its shim answers to all.
pub fn connect(launched: &Launched) -> Result<Client, SendError> {
    let socket = &launched.record.launch.socket;
    let began = Instant::now();
    loop {
        match Client::connect(socket) {
            Ok(client) => return Ok(client),
            Err(e) if e.is_silent() => return Err(e.into()),
            Err(_) => {}
        }
        match start::take_over(&std::env::current_exe()?, &launched.folder) {
            Ok(_) => return Ok(Client::connect(socket)?),
            Err(StartError::Held(_)) if began.elapsed() < TAKING_OVER => std::thread::sleep(Duration::from_millis(10)),
            Err(e) => return Err(e.into()),
        }
    }
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
    client.input(format!("\x1b[200~{text}\x1b[201~").as_bytes())?;
    std::thread::sleep(PAUSE);
    client.input(b"\r")?;
    let began = Instant::now();
    while began.elapsed() < patience {
        if shows(question, session, before, &text) {
            return Ok(before);
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    Err(SendError::Stalled(patience))
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
