//! Agents that speak the Agent Client Protocol: who owns their connection, and how others reach it.
//!
//! # Theory of operation
//!
//! An ACP agent talks to whoever started it. So that a session outlives its launcher, its terminal and
//! any daemon, one process of ours owns the connection: the shim starts `lariat __acp FOLDER/acp.json`
//! in the agent's place ([`owner::run`]), and that starts the agent, as its child, with pipes
//! ([`wire`]). Every message is written to `events.ndjson` before it goes and when it came.
//!
//! Others reach the owner by files in the session's folder: a prompt is mail in `mail/` ([`post`]); what
//! the agent asks and what it is answered lie in `asks/`, as a hook's do ([`crate::ask`]). What became
//! of mail stands in `events.ndjson`.
//!
//! The owner never loads a session while another process may have it: that is for `resume` to know. It
//! answers no request but permissions, and offers the agent neither files nor terminals.

pub mod owner;
mod wire;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use lariat_adapters::acp::EVENTS;
use lariat_sys::point::point;
use lariat_sys::watch::Watch;
use lariat_sys::{durable, file};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::launched::Launched;

pub use lariat_adapters::acp::VERB;

/// Where prompts are left, in a session's folder.
const MAIL: &str = "mail";

/// How long after it has read a prompt an agent would have refused it.
const SETTLED: Duration = Duration::from_secs(1);

/// Why mail is refused while the agent is at work.
pub const TURN_OPEN: &str = "a turn is open";

/// A prompt that somebody left.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Mail {
    prompt: String,
}

/// Whether an agent is reached this way.
pub fn is_owned(agent: &str) -> bool {
    agent.starts_with("acp:")
}

/// What became of mail.
enum Fate {
    /// The agent shows that it has begun.
    Begun,
    /// It was not sent.
    Refused(String),
    /// The agent answered with an error, before anything else.
    Failed(String),
    /// Sent, and nothing was heard since; whether the agent has read it.
    Sent(bool),
    /// Nothing is known of it.
    Lying,
}

/// Why a prompt did not arrive.
#[derive(Debug)]
pub enum Lost {
    /// The owner would not send it.
    Refused(String),
    /// The agent took it, and could do nothing with it.
    Failed(String),
    /// Nobody took it in time; it was taken back.
    Untaken,
    /// It was sent, and the agent shows nothing.
    Silent,
    /// Our files could not be written or read.
    Io(io::Error),
}

impl From<io::Error> for Lost {
    fn from(e: io::Error) -> Lost {
        Lost::Io(e)
    }
}

/// Leaves a prompt for a session's owner; returns when the agent shows that its turn has begun, or has
/// read it and does not fail at once: a model may think for long before its first word.
pub fn post(launched: &Launched, prompt: &str, patience: Duration) -> Result<(), Lost> {
    let folder = launched.folder.join(MAIL);
    durable::make_folder(&folder)?;
    let from = file::open(&launched.folder.join(EVENTS)).map_or(0, |(_, key)| key.size);
    let name = format!("{}.json", lariat_adapters::new_uuid()?);
    let mut watch = Watch::new();
    watch.path(&launched.folder.join(EVENTS));
    launched.shim.iter().for_each(|shim| watch.process(shim.agent.pid));
    let text = serde_json::to_string(&Mail { prompt: prompt.to_owned() }).map_err(io::Error::from)?;
    point("acp.post");
    durable::put(&folder, &name, text.as_bytes())?;
    let began = Instant::now();
    let mut taken: Option<Instant> = None;
    loop {
        let gone = matches!(launched.process(), Ok(None));
        let fate = fate(&launched.folder, from, &name)?;
        let late = gone || began.elapsed() > patience;
        match fate {
            Fate::Begun => return Ok(()),
            Fate::Refused(why) => return Err(Lost::Refused(why)),
            Fate::Failed(why) => return Err(Lost::Failed(why)),
            // The protocol has no word for "taken"; what is wrong with a prompt is said at once.
            Fate::Sent(true) if *taken.get_or_insert_with(Instant::now) + SETTLED < Instant::now() => return Ok(()),
            Fate::Sent(_) if late => return Err(Lost::Silent),
            Fate::Lying if late => {
                // Whoever takes the file away decides: it is either sent or was never left.
                #[expect(clippy::disallowed_methods, reason = "our own mail, which nobody took")]
                match std::fs::remove_file(folder.join(&name)) {
                    Ok(()) => return Err(Lost::Untaken),
                    Err(_) if gone => return Err(Lost::Silent),
                    Err(_) if began.elapsed() > patience * 2 => return Err(Lost::Silent),
                    Err(_) => {}
                }
            }
            _ => {}
        }
        watch.sleep(Duration::from_millis(200), Duration::ZERO)?;
    }
}

/// What the messages since an offset tell of mail.
fn fate(folder: &Path, from: u64, name: &str) -> io::Result<Fate> {
    use std::io::{BufRead as _, Seek as _};
    let (mut events, _) = file::open(&folder.join(EVENTS))?;
    events.seek(io::SeekFrom::Start(from))?;
    let mut fate = Fate::Lying;
    let mut request = Value::Null;
    for line in io::BufReader::new(events).split(b'\n') {
        let Ok(line) = serde_json::from_slice::<Value>(&line?) else { continue };
        if line["mail"] == name {
            match line["refused"].as_str() {
                Some(why) => return Ok(Fate::Refused(why.to_owned())),
                None if line["taken"] == true => fate = Fate::Sent(true),
                None => (fate, request) = (Fate::Sent(false), line["request"].clone()),
            }
            continue;
        }
        let message = &line["from"];
        if !matches!(fate, Fate::Sent(_)) || !message.is_object() {
            continue;
        }
        if message["method"].is_null() && message["id"] == request {
            return Ok(match message["error"]["message"].as_str() {
                Some(why) => Fate::Failed(format!("the agent answered: {why}")),
                None if message["error"].is_object() => Fate::Failed("the agent answered with an error".into()),
                None => Fate::Begun,
            });
        }
        if is_work(message) {
            return Ok(Fate::Begun);
        }
    }
    Ok(fate)
}

/// Whether a message shows that a turn is under way; agents also tell of their commands and settings
/// at any time.
fn is_work(message: &Value) -> bool {
    match message["method"].as_str() {
        Some("session/request_permission") => true,
        Some("session/update") => matches!(
            message["params"]["update"]["sessionUpdate"].as_str(),
            Some(
                "agent_message_chunk"
                    | "agent_thought_chunk"
                    | "user_message_chunk"
                    | "tool_call"
                    | "tool_call_update"
                    | "plan"
            )
        ),
        _ => false,
    }
}
