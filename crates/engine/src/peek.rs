//! What a session last said: whole replies, from the transcript.

use std::io;
use std::path::{Path, PathBuf};

use lariat_adapters::look::Places;
use lariat_adapters::talk::{self, Said, Speaker, Talk};
use lariat_adapters::{Adapter, named};
use lariat_core::Session;

/// How far back a conversation is followed from one file to the one that it goes on from.
const DEEPEST: usize = 16;

/// The last `replies` replies of a session, and what else was said since the
/// first of them.
pub fn last_replies(agent: &str, places: &Places, transcript: &Path, replies: usize) -> io::Result<Talk> {
    let adapter = adapter(agent)?;
    let count = |said: &[Said]| said.iter().filter(|s| s.who == Speaker::Agent).count();
    // One more than asked for: the first may be cut at its start.
    let mut talk = match adapter.archive() {
        Some(archive) => archive.last(transcript, &|said| count(said) > replies)?,
        None => talk::last(transcript, adapter.language(), None, |said| count(said) > replies)?,
    };
    let mut from = transcript.to_owned();
    let mut more = talk.more;
    for _ in 0..DEEPEST {
        let missing = replies.saturating_sub(count(&talk.said));
        if missing == 0 || more {
            break;
        }
        let Some((base, end)) = adapter.before(places, &from) else { break };
        let earlier = talk::last(&base, adapter.language(), Some(end), |said| count(said) > missing)?;
        more = earlier.more;
        talk.said.splice(0..0, earlier.said);
        from = base;
    }
    from_reply(&mut talk.said, replies);
    Ok(talk)
}

/// The end of a conversation, with at least the last `prompts` prompts, or all.
pub(crate) fn last_prompts(agent: &str, transcript: &Path, prompts: usize) -> io::Result<Talk> {
    let adapter = adapter(agent)?;
    // One more than asked for: the first may be cut at its start.
    let enough = |said: &[Said]| said.iter().filter(|s| s.who == Speaker::Person).count() > prompts;
    match adapter.archive() {
        Some(archive) => archive.last(transcript, &enough),
        None => talk::last(transcript, adapter.language(), None, enough),
    }
}

/// The same of a session that a gateway runs; `None` if none does.
pub fn last_replies_of_gateway(
    session: &Session,
    places: &Places,
    replies: usize,
) -> Option<Result<Vec<Said>, String>> {
    const MESSAGES_PER_REPLY: usize = 40;
    let remote = adapter(session.agent).ok()?.remote()?;
    let talk = remote.talk(places, session.native_id.raw(), (replies + 1) * MESSAGES_PER_REPLY);
    Some(talk.map(|mut said| {
        from_reply(&mut said, replies);
        said
    }))
}

/// The last things said in a session that a gateway runs; `None` if none does.
pub fn said_at_gateway(session: &Session, places: &Places) -> Option<Result<Vec<Said>, String>> {
    const MESSAGES: usize = 200;
    let remote = adapter(session.agent).ok()?.remote()?;
    Some(remote.talk(places, session.native_id.raw(), MESSAGES))
}

/// Leaves the last `replies` replies and what else was said since the first of them.
fn from_reply(said: &mut Vec<Said>, replies: usize) {
    let mut left = replies;
    let from = said.iter().rposition(|s| {
        left -= usize::from(s.who == Speaker::Agent && left > 0);
        left == 0 && s.who == Speaker::Agent
    });
    if let Some(from) = from.filter(|_| replies > 0) {
        // The prompt that was answered belongs to the answer.
        let from = if replies > 1 {
            said[..from].iter().rposition(|s| s.who == Speaker::Person).unwrap_or(from)
        } else {
            from
        };
        said.drain(..from);
    }
}

/// A part of a conversation.
pub struct Page {
    /// What was said, oldest first.
    pub said: Vec<Said>,
    /// The place before which there is more.
    pub before: Option<u64>,
}

/// The last things said, at most `limit`, of those that stand before a place.
pub fn page(session: &Session, places: &Places, before: Option<u64>, limit: usize) -> Result<Page, String> {
    // What a tool gave stands after its call, and maybe after that place.
    const RESULTS: u64 = 256 << 10;
    let adapter = adapter(session.teller()).map_err(|e| e.to_string())?;
    let earlier = |s: &Said| before.is_none_or(|place| s.place < place);
    let enough = |said: &[Said]| said.iter().filter(|s| earlier(s)).count() > limit;
    let (mut said, mut more) = match (&session.transcript, adapter.remote()) {
        (Some(transcript), _) => {
            let talk = match adapter.archive() {
                Some(archive) => archive.last(transcript, &enough),
                None => {
                    let until = before.map(|place| talk::line_of(place).saturating_add(RESULTS));
                    talk::last(transcript, adapter.language(), until, enough)
                }
            };
            let talk = talk.map_err(|e| format!("reading {}: {e}", transcript.display()))?;
            (talk.said, talk.more)
        }
        // A gateway tells the end of it, and no more.
        (None, Some(remote)) if before.is_none() => (remote.talk(places, session.native_id.raw(), limit)?, false),
        (None, _) => (Vec::new(), false),
    };
    said.retain(earlier);
    if said.len() > limit {
        said.drain(..said.len() - limit);
        more = true;
    }
    let before = said.first().filter(|_| more).map(|s| s.place);
    Ok(Page { said, before })
}

/// What was said since.
pub fn since(agent: &str, transcript: &Path, offset: u64) -> io::Result<Talk> {
    let adapter = adapter(agent)?;
    match adapter.archive() {
        Some(archive) => archive.since(transcript, offset),
        None => talk::since(transcript, adapter.language(), offset),
    }
}

/// Where the next thing said will stand.
pub fn end(agent: &str, transcript: &Path) -> io::Result<u64> {
    match adapter(agent)?.archive() {
        Some(archive) => archive.end(transcript),
        None => transcript.metadata().map(|m| m.len()),
    }
}

/// What changes on disk when something is said.
pub fn stirs(agent: &str, transcript: &Path) -> PathBuf {
    let archive = adapter(agent).ok().and_then(|a| a.archive());
    archive.map_or_else(|| transcript.to_owned(), |a| a.stirs(transcript))
}

fn adapter(agent: &str) -> io::Result<&'static dyn Adapter> {
    let unknown = || io::Error::new(io::ErrorKind::NotFound, format!("no adapter for {agent}"));
    named(agent).ok_or_else(unknown)
}
