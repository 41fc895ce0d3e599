//! Typing a prompt into a launched session, and knowing that it arrived.
//!
//! # Theory of operation
//!
//! The text is pasted (bracketed, so that no newline in it submits early) and
//! then submitted by a key of its own. That the bytes went out means nothing:
//! it is sent when the agent's own transcript shows it. Nothing is ever typed
//! into a session that waits for an answer, nor into one at work, which may begin
//! to ask at any moment: the first letter of a prompt could grant a permission.
//!
//! A prompt with a key is typed at most once. That it is about to be typed is on
//! record before the first letter; who asks again with the same key is told what
//! became of it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lariat_adapters::look::Scope;
use lariat_adapters::remote::Unsent;
use lariat_adapters::talk::Speaker;
use lariat_core::time::lasting;
use lariat_core::{Session, State, Status, Time, Untrusted};
use lariat_shim::client::{self, Client, ClientError};
use lariat_shim::record;
use lariat_shim::ring::Output;
use lariat_shim::start::{self, StartError};
use lariat_sys::process::own_program;
use lariat_sys::{clock, durable};
use serde::{Deserialize, Serialize};

use crate::acp;
use crate::launched::Launched;
use crate::list::{Question, list};
use crate::peek;
use crate::records::folder_name;

/// Between a paste and the key that submits it: programs take keys that come
/// with a paste for part of it.
const PAUSE: Duration = Duration::from_millis(120);

/// Where keys lie in a session's folder.
const SENT: &str = "sent";
/// When a key that had no effect is pressed again.
const AGAIN: Duration = Duration::from_millis(1500);
/// How often it is looked at whether a command has done something.
const LOOKS: Duration = Duration::from_millis(250);
/// How long a program may take to show that it took a paste.
const TAKEN: Duration = Duration::from_secs(2);
/// A text that is shorter could be part of another word.
const NO_PART: usize = 8;
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
    #[error(
        "it was typed, but its transcript does not show it after {time}; `lariat attach` shows if it still stands there, \
             `lariat peek` if it was sent as part of a longer text: look before you send it again",
        time = lasting(*.0)
    )]
    Stalled(Duration),
    /// It was sent, and the agent did not read it.
    #[error("it was sent, but the agent has not taken it after {}; `lariat peek` shows what it does", lasting(*.0))]
    Unread(Duration),
    /// The key was used for something else.
    #[error("the key '{0}' was used for another text, so nothing was typed")]
    OtherText(String),
    /// It was typed once, and the agent does not show it.
    #[error("it was typed before under the key '{0}', and its transcript does not show it; nothing was typed again")]
    Typed(String),
    /// A command of the agent's own was typed, and nothing shows that it did anything.
    #[error(
        "it was typed, but nothing shows after {time} that it was taken, as not every command leaves a record; \
             `lariat attach` shows its terminal",
        time = lasting(*.0)
    )]
    Command(Duration),
    /// It was typed, and nothing can tell more.
    #[error(
        "it was typed; whether it arrived is not known, because the settings describe this agent and lariat knows no \
         more of it: `lariat logs` shows its terminal"
    )]
    Blind,
    /// Its gateway did not take it.
    #[error("{0}")]
    Gateway(String),
    /// It was sent, and its gateway did not answer.
    #[error(
        "it was sent, and whether it arrived is not known: {0}; `lariat peek` shows that: look before you send it again"
    )]
    Untold(String),
    /// Whoever owns its connection would not take it.
    #[error("{0}")]
    Refused(String),
    /// The agent answered with an error.
    #[error("{0}")]
    Failed(String),
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

/// Connects to a session's shim; if that was killed, another one takes over first, and if its door is gone, it opens
/// another. Of several that try that at once one succeeds, and its shim answers to all.
pub fn connect(launched: &Launched) -> Result<Client, SendError> {
    let socket = &launched.record.launch.socket;
    let began = Instant::now();
    loop {
        match Client::connect(socket) {
            Ok(client) => return Ok(client),
            Err(e) if e.is_silent() => return Err(e.into()),
            Err(_) => {}
        }
        match start::take_over(&own_program()?, &launched.folder) {
            Ok(_) => return Ok(Client::connect(socket)?),
            Err(StartError::Held(_)) if began.elapsed() < TAKING_OVER => {
                launched.shim.as_ref().map_or(Ok(()), client::knock)?;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// Whether it stands at its prompt.
pub fn takes_prompts(session: &Session) -> bool {
    // A Codex that holds its thread does; a Claude Code that has recorded nothing
    // may stand at a dialog.
    session.at_its_prompt() || session.status == Status::Starting && session.agent == "codex"
}

/// Whether nothing tells if it stands at its prompt: then whoever sends must know.
pub fn is_mute(agent: &str) -> bool {
    lariat_adapters::named(agent).is_some_and(|a| a.is_mute())
}

/// Waits until a terminal has shown something and then nothing for a while: the best there is to tell that a
/// program which tells nothing has come up.
pub(crate) fn until_quiet(launched: &Launched, patience: Duration) {
    const QUIET: Duration = Duration::from_millis(300);
    let written = || Output::open(&launched.folder).and_then(|output| output.range()).map_or(0, |(_, end)| end);
    let (began, mut last, mut since) = (Instant::now(), written(), Instant::now());
    while began.elapsed() < patience && (last == 0 || since.elapsed() < QUIET) {
        std::thread::sleep(Duration::from_millis(20));
        if written() != last {
            (last, since) = (written(), Instant::now());
        }
    }
}

/// What is typed to give a program a text: a paste, or, if it has not asked for pastes to be marked, the one line
/// that it is.
fn keys(launched: &Launched, mute: bool, text: &str) -> Result<String, SendError> {
    let paste = format!("\x1b[200~{text}\x1b[201~");
    let output = Output::open(&launched.folder)?;
    // An agent that we know asks when it comes up; what it said then may be lost.
    if !mute && output.range()?.0 > 0 {
        return Ok(paste);
    }
    let shown = output.tail(u64::MAX)?.bytes;
    let last = |mode: &[u8]| memchr::memmem::rfind(&shown, mode);
    if last(b"2004h") > last(b"2004l") {
        return Ok(paste);
    }
    match (text.contains(|c: char| c.is_control()), mute) {
        (true, true) => {
            Err(SendError::Refused("it takes no pastes, so only one line of plain text can be typed".into()))
        }
        (true, false) => Ok(paste),
        (false, _) => Ok(text.to_owned()),
    }
}

/// What was sent, by the transcript.
#[derive(Clone, Default, Debug)]
pub struct Sent {
    /// Where the transcript ended before.
    pub offset: u64,
    /// What stood at the agent's prompt before, if anything did, and was sent with it.
    pub around: Around,
}

/// What stands around a text in the prompt that holds it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Around {
    /// Before it.
    pub before: Option<Untrusted>,
    /// After it: the cursor stood before that.
    pub after: Option<Untrusted>,
}

/// What to type.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The text.
    pub text: &'a str,
    /// The same key, the same message.
    pub key: Option<&'a str>,
    /// How long the transcript may take to show it.
    pub patience: Duration,
}

/// A message that is about to be typed, or was.
#[derive(PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Begun {
    key: String,
    text: String,
    /// Where the transcript ended before.
    offset: u64,
}

/// Gives a session that a gateway runs its next message; returns when the gateway
/// has started a run of it. `None` if no gateway runs it.
pub fn through_gateway(question: &Question, session: &Session, message: &Message<'_>) -> Option<Result<(), SendError>> {
    let remote = lariat_adapters::named(session.agent)?.remote()?;
    Some(match (session.live, session.status) {
        (Some(true), Status::Waiting) => Err(SendError::Blocked(session.reason.row())),
        (Some(true), status) => Err(SendError::Busy(status.word())),
        (None, _) => Err(SendError::Gateway(format!("nothing was sent: {}", session.reason.row()))),
        (Some(false), _) => {
            let sent = remote.send(&question.places, session.native_id.raw(), message.text, message.key);
            sent.map_err(|unsent| match unsent {
                Unsent::Not(why) => SendError::Gateway(why),
                Unsent::Untold(why) => SendError::Untold(why),
            })
        }
    })
}

/// Types a prompt; returns when the agent's transcript shows it.
pub fn send(
    question: &Question,
    session: &Session,
    launched: &Launched,
    message: Message<'_>,
) -> Result<Sent, SendError> {
    // Only what ends a paste could break out of it.
    let text: String = message.text.chars().filter(|c| *c != '\x1b').collect();
    // One at a time types: two pastes would become one prompt.
    let typing = open_lock(&launched.folder)?;
    typing.lock()?;
    // Looked at again: who typed before us has begun a turn.
    let fresh = list(Question { scope: Scope::All, agent: Some(session.agent), ..question.clone() });
    let fresh = fresh.listing.sessions.into_iter().find(|s| s.id == session.id);
    let session = fresh.as_deref().unwrap_or(session);
    let offset = session.transcript.as_ref().and_then(|t| peek::end(session.agent, t).ok()).unwrap_or(0);
    if let Some(key) = message.key {
        let before: Option<Begun> =
            record::read(&launched.folder.join(SENT), &file_of(key)).map_err(io::Error::other)?;
        match before {
            Some(before) if before.text != text => return Err(SendError::OtherText(key.to_owned())),
            Some(before) => {
                drop(typing);
                if is_mute(session.agent) && session.transcript.is_none() {
                    return Err(SendError::Typed(key.to_owned()));
                }
                let mut looked = Instant::now();
                let shown = until_shown(question, session, before.offset, &text, message.patience, || {
                    Ok(is_command(&text) && has_stirred(question, session, before.offset, &mut looked))
                })?;
                let sent = |around| Sent { offset: before.offset, around };
                return shown.map(sent).ok_or_else(|| SendError::Typed(key.to_owned()));
            }
            None => {}
        }
    }
    let mute = is_mute(session.agent);
    match session.status {
        _ if takes_prompts(session) || mute && session.live == Some(true) => {}
        Status::Waiting => return Err(SendError::Blocked(session.reason.row())),
        status => return Err(SendError::Busy(status.word())),
    }
    until_there(launched, session, message.patience)?;
    let typed = keys(launched, mute, &spelt(session.agent, &text))?;
    let client = if acp::is_owned(session.agent) { None } else { Some(connect(launched)?) };
    if let Some(key) = message.key {
        let folder = launched.folder.join(SENT);
        durable::make_folder(&folder)?;
        let begun = Begun { key: key.to_owned(), text: text.clone(), offset };
        durable::put(&folder, &file_of(key), serde_json::to_string(&begun).map_err(io::Error::from)?.as_bytes())?;
    }
    let Some(client) = client else {
        drop(typing); // its owner takes one at a time
        let sent = acp::post(launched, &text, message.patience);
        if let (Err(acp::Lost::Refused(_) | acp::Lost::Failed(_) | acp::Lost::Untaken), Some(key)) =
            (&sent, message.key)
        {
            // It was never said, or nothing came of it: whoever says it again is the first.
            #[expect(clippy::disallowed_methods, reason = "our own note of what was not sent")]
            let _ = std::fs::remove_file(launched.folder.join(SENT).join(file_of(key)));
        }
        return sent.map(|()| Sent { offset, around: Around::default() }).map_err(|lost| lost_mail(lost, &message));
    };
    let from = Output::open(&launched.folder).and_then(|output| output.range()).map_or(0, |(_, end)| end);
    let since = Time(clock::now_ms());
    client.input(typed.as_bytes())?;
    // A program that is busy takes the paste late: the pause is one after it was taken.
    let pasted = Instant::now();
    while !is_taken(launched, from, &text) && pasted.elapsed() < TAKEN {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(PAUSE);
    client.input(b"\r")?;
    drop(typing);
    if mute && session.transcript.is_none() {
        return Err(SendError::Blind);
    }
    let (mut pressed, mut looked) = (Instant::now(), Instant::now());
    let shown = until_shown(question, session, offset, &text, message.patience, || {
        // One that says it is at rest took the key for part of the paste. Where an agent says nothing
        // the key is never pressed twice: it could answer a question. Nor after a command, which may have opened a
        // dialog, unless the agent's own log says that none was submitted.
        let took = took_command(launched, session, &text, since);
        let lost = !is_command(&text) || took == Some(false);
        if lost && pressed.elapsed() > AGAIN && launched.says() == Some(State::Idle) {
            client.input(b"\r")?;
            pressed = Instant::now();
        }
        Ok(took.unwrap_or_else(|| is_command(&text) && has_stirred(question, session, offset, &mut looked)))
    })?;
    match shown {
        Some(around) => Ok(Sent { offset, around }),
        None if is_command(&text) => Err(SendError::Command(message.patience)),
        None => Err(SendError::Stalled(message.patience)),
    }
}

/// Waits until the terminal shows the session that is meant.
fn until_there(launched: &Launched, session: &Session, patience: Duration) -> Result<(), SendError> {
    let began = Instant::now();
    while launched.shows_another_place(session) {
        if began.elapsed() > patience {
            let why =
                "its terminal does not show this session, so nothing was typed; `lariat attach` shows what it does";
            return Err(SendError::Refused(why.into()));
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    Ok(())
}

/// Whether a text is one of the commands that agents have for themselves, like `/compact`. They are no prompts, and no
/// transcript shows them as such.
fn is_command(text: &str) -> bool {
    let word = text.strip_prefix('/').and_then(|rest| rest.split(char::is_whitespace).next());
    word.is_some_and(|word| !word.is_empty() && !word.contains('/')) // else it begins with a path
}

/// Whether a command was submitted, where the agent's own log tells.
fn took_command(launched: &Launched, session: &Session, text: &str, since: Time) -> Option<bool> {
    let transcript = session.transcript.as_ref().filter(|_| is_command(text))?;
    lariat_adapters::named(session.agent)?.took_command(transcript, &launched.record.launch.argv, since)
}

/// What is typed of a text. While Gemini offers commands that are like the one that was typed, a submitting key takes one
/// of those, which may be `/clear`; once a space stands behind it, it offers none.
fn spelt(agent: &str, text: &str) -> String {
    if agent == "gemini" && is_command(text) { format!("{text} ") } else { text.to_owned() }
}

/// Whether a session that stood at its prompt has done something since: its transcript has changed, or it is at work, asks
/// something, or has gone on to another session. `looked` is when all that was last looked at: each look costs.
fn has_stirred(question: &Question, session: &Session, offset: u64, looked: &mut Instant) -> bool {
    let changed = |t: &PathBuf| peek::end(session.agent, t).is_ok_and(|end| end != offset);
    if session.transcript.as_ref().is_some_and(changed) {
        return true;
    }
    if looked.elapsed() < LOOKS {
        return false;
    }
    let answer = list(Question { scope: Scope::Live, agent: Some(session.agent), ..question.clone() });
    *looked = Instant::now();
    let now = answer.listing.sessions.iter().find(|s| s.id == session.id);
    !answer.partial && now.is_none_or(|now| now.live.is_some() && !takes_prompts(now))
}

/// Waits until the transcript shows a prompt, or it is known otherwise.
fn until_shown(
    question: &Question,
    session: &Session,
    offset: u64,
    text: &str,
    patience: Duration,
    mut meanwhile: impl FnMut() -> io::Result<bool>,
) -> io::Result<Option<Around>> {
    let began = Instant::now();
    while began.elapsed() < patience {
        if let Some(shown) = shows(question, session, offset, text) {
            return Ok(Some(shown));
        }
        if meanwhile()? {
            return Ok(Some(Around::default()));
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    Ok(None)
}

fn open_lock(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).open(folder.join("send.lock"))
}

fn lost_mail(lost: acp::Lost, message: &Message<'_>) -> SendError {
    match lost {
        acp::Lost::Refused(why) if why == acp::TURN_OPEN => SendError::Busy("working"),
        acp::Lost::Refused(why) => SendError::Refused(why),
        acp::Lost::Failed(why) => SendError::Failed(why),
        acp::Lost::Untaken => SendError::Refused("its owner did not take it, so nothing was sent".into()),
        acp::Lost::Silent => SendError::Unread(message.patience),
        acp::Lost::Io(e) => e.into(),
    }
}

fn file_of(key: &str) -> String {
    format!("{}.json", folder_name(key))
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
    // Not within a word that it would have drawn anyway. (What is drawn before it may be a colour, which ends in a letter.)
    let ends = |at: usize| piece.bytes.get(at + start.len()).is_none_or(|b| !b.is_ascii_alphabetic());
    memchr::memmem::find_iter(&piece.bytes, start).any(|at| start.len() < word.len() || ends(at))
}

/// Whether the transcript shows this prompt since an offset: alone, or within what a person had begun to type.
fn shows(question: &Question, session: &Session, offset: u64, text: &str) -> Option<Around> {
    let transcript = session.transcript.clone().or_else(|| {
        let answer = list(Question { agent: Some(session.agent), ..question.clone() });
        answer.listing.sessions.into_iter().find(|s| s.id == session.id)?.transcript
    });
    if is_mute(session.agent) {
        return transcript.filter(|t| holds(t, offset, text)).map(|_| Around::default());
    }
    let talk = transcript.and_then(|t| peek::since(session.agent, &t, offset).ok())?;
    let prompts: Vec<String> =
        talk.said.iter().filter(|s| s.who == Speaker::Person).map(|s| plain(s.text.raw())).collect();
    let (before, after) = around(&prompts, &plain(text))?;
    let told = |part: &str| Some(part.trim()).filter(|part| !part.is_empty()).map(Untrusted::new);
    Some(Around { before: told(before), after: told(after) })
}

/// A text without regard to how its words are spaced.
pub(crate) fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What stands before and after a text in the prompt that is that text, or else in one that ends with it, or else in one
/// that holds it. Of quotes around it the adapter may have taken that the agent put them there.
fn around<'a>(prompts: &'a [String], text: &str) -> Option<(&'a str, &'a str)> {
    let mut ends = prompts.iter().filter_map(|prompt| Some((prompt.strip_suffix(text)?, "")));
    let own = |(before, after): &(&str, &str)| {
        let part = before.ends_with(char::is_alphanumeric) || after.starts_with(char::is_alphanumeric);
        !part || text.chars().count() >= NO_PART
    };
    let within =
        |prompt: &'a String| prompt.match_indices(text).map(|(at, _)| (&prompt[..at], &prompt[at + text.len()..]));
    let whole = ends.clone().find(|(before, _)| before.is_empty());
    let found = whole.or_else(|| ends.next()).or_else(|| prompts.iter().flat_map(within).find(own));
    let bare = || text.strip_prefix('"')?.strip_suffix('"').filter(|t| !t.is_empty());
    found.or_else(|| around(prompts, bare()?))
}

/// Whether a file whose form nobody knows holds a text since an offset: as it is, or as JSON writes it.
fn holds(path: &Path, offset: u64, text: &str) -> bool {
    let Ok(all) = lariat_sys::file::read_small(path, 64 << 20) else { return false };
    let since = all.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
    let quoted = serde_json::to_string(text).unwrap_or_default();
    let within = quoted.trim_matches('"');
    [text, within].iter().any(|t| !t.is_empty() && memchr::memmem::find(since, t.as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use super::{around, is_command};

    #[test]
    fn what_stood_at_the_prompt_before_is_told_from_what_was_sent() {
        let prompts = ["half a draft go on", "go on"].map(str::to_owned);
        assert_eq!(around(&prompts, "go on"), Some(("", "")), "the prompt itself comes first");
        assert_eq!(around(&prompts[..1], "go on"), Some(("half a draft ", "")));
        assert_eq!(around(&["gone, my good dog".to_owned()], "go"), None, "it is not what was sent");
    }

    #[test]
    fn what_the_cursor_stood_in_is_told_from_what_was_sent() {
        let prompts = ["half go on a draft", "a long going on with it half"].map(str::to_owned);
        assert_eq!(around(&prompts, "go on"), Some(("half ", " a draft")));
        assert_eq!(around(&prompts, "half"), Some(("a long going on with it ", "")), "the end comes first");
        assert_eq!(around(&prompts[1..], "going on with"), Some(("a long ", " it half")));
        assert_eq!(around(&["haSENT TEXTlf".to_owned()], "SENT TEXT"), Some(("ha", "lf")));
        assert_eq!(around(&prompts, "on with us"), None);
        assert_eq!(around(&["say it".to_owned()], "\"say it\""), Some(("", "")));
        assert_eq!(around(&["say it".to_owned()], "\"\""), None);
    }

    #[test]
    fn a_path_is_no_command() {
        assert!(["/compact", "/model opus", "/mcp__x__y", "/a:b c/d"].into_iter().all(is_command));
        assert!(!["", "/", "/ x", "compact", "/home/dev/x.rs does not build", "//"].into_iter().any(is_command));
    }
}
