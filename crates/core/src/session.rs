//! The shape that every listing speaks: `ls --json`, and later the socket,
//! HTTP and MCP. Fields are added, never renamed; what is not known is `null`.

use std::fmt;
use std::path::PathBuf;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::observation::{Fact, Observation, Witness};
use crate::status::{Role, Status};
use crate::text::Untrusted;
use crate::time::Time;

/// Tokens used by one session, exact.
///
/// `input` is counted as the agent counts it: Claude's excludes the cache,
/// Codex's includes `cache_read`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Tokens {
    /// Tokens sent.
    pub input: u64,
    /// Tokens received.
    pub output: u64,
    /// Tokens read from the provider's cache.
    pub cache_read: u64,
    /// Tokens written to the provider's cache.
    pub cache_write: u64,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// The signal behind the end, also where a shell or the agent itself
    /// turned it into the code 128 + signal. Only the signals that do end programs count:
    /// Gemini exits with what a byte holds of an HTTP status, 145 for 401 and 173 for 429.
    pub fn signal(self) -> Option<i32> {
        match self {
            Exit::Signal(n) => Some(n),
            Exit::Code(n) => Some(n - 128).filter(|n| matches!(n, 1..=15 | 24..=27 | 30..=31)),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(n) => write!(f, "code {n}"),
            Exit::Signal(n) => write!(f, "signal {n}"),
        }
    }
}

impl Serialize for Exit {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(Some(1))?;
        match self {
            Exit::Code(n) => map.serialize_entry("code", n)?,
            Exit::Signal(n) => map.serialize_entry("signal", n)?,
        }
        map.end()
    }
}

/// One conversation of one agent, as it is at the moment of asking.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields; design and README tell each")]
pub struct Session {
    pub id: Untrusted,
    pub agent: &'static str,
    pub native_id: Untrusted,
    pub handle: Option<String>,
    pub name: Option<Untrusted>,
    pub host: Option<String>,
    pub status: Status,
    pub reason: Untrusted,
    pub live: Option<bool>,
    pub pid: Option<u32>,
    pub cwd: Option<Untrusted>,
    pub branch: Option<Untrusted>,
    pub model: Option<Untrusted>,
    pub title: Option<Untrusted>,
    pub prompt: Option<Untrusted>,
    pub started_at: Option<Time>,
    pub updated_at: Option<Time>,
    pub ended_at: Option<Time>,
    pub exit: Option<Exit>,
    pub tokens: Option<Tokens>,
    pub cost_usd: Option<f64>,
    pub group: Option<String>,
    pub kept: bool,
    pub restorable: bool,
    /// What it is doing right now, if a turn is open and shows it.
    pub tool: Option<Untrusted>,
    /// The session it was forked from or works for, where the agent records it.
    pub parent: Option<Untrusted>,
    #[serde(serialize_with = "serialize_because")]
    pub because: Vec<(Role, Observation)>,
    /// Where the conversation is recorded.
    #[serde(skip)]
    pub transcript: Option<PathBuf>,
    /// When its process started, in clock ticks since boot: with the PID, which
    /// process that is. Without a PID, which of a gateway's runs of it is open.
    #[serde(skip)]
    pub start: Option<u64>,
    /// Its process is a server that others depend on too.
    #[serde(skip)]
    pub shared: bool,
    /// The lariat of `host` tells of it: its PID, its paths and its status are those of that machine.
    #[serde(skip)]
    pub elsewhere: bool,
    /// The id that it has besides: two adapters see it, and the other one calls it so.
    #[serde(skip)]
    pub also: Option<Untrusted>,
    /// Whose transcript that is, where it is not its own agent's.
    #[serde(skip)]
    pub teller: Option<&'static str>,
}

impl Session {
    /// What means exactly this session on a command line here: `HOST:ID` for one of another machine.
    pub fn target(&self) -> Untrusted {
        match &self.host {
            Some(host) if self.elsewhere => format!("{host}:{}", self.id.raw()).into(),
            _ => self.id.clone(),
        }
    }

    /// The agent whose adapter reads its transcript.
    pub fn teller(&self) -> &'static str {
        self.teller.unwrap_or(self.agent)
    }

    /// Whether it is the session of this id, whichever of two adapters calls it so.
    pub fn is(&self, id: &str) -> bool {
        self.id.raw() == id || self.also.as_ref().is_some_and(|also| also.raw() == id)
    }

    /// Whether it stands at its prompt with its turn over: it is idle, or waits for a
    /// login or a limit, of which it would learn by the next prompt. (A dialog that its shim sees on its terminal
    /// stands before the prompt.)
    pub fn at_its_prompt(&self) -> bool {
        let ended_its_turn = |(role, o): &(Role, Observation)| {
            let by_a_turn = matches!(&o.fact, Fact::Asks(ask) if ask.kind.ends_a_turn()) && o.witness != Witness::Shim;
            *role == Role::Decided && by_a_turn
        };
        match self.status {
            Status::Idle => true,
            Status::Waiting => self.because.iter().any(ended_its_turn),
            _ => false,
        }
    }
}

/// An ended session as text, with what lists are sorted and chosen by: a tenth of
/// what a [`Session`] takes, where there are ten thousand and one answer is made of them.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the fields of Session of the same names")]
pub struct Line {
    pub agent: &'static str,
    pub status: Status,
    pub updated_at: Option<Time>,
    /// The session as it is printed after another one, with a comma before it. Its id stands first in it, as it is.
    text: Box<[u8]>,
    /// How long that is.
    id: u32,
}

impl Line {
    /// What stands before the id.
    const BEFORE: &str = r#",{"id":""#;

    /// A session that was written down, unless its id is not to be found there.
    pub fn of(session: &Session, text: Box<[u8]>) -> Option<Line> {
        let &Session { agent, status, updated_at, .. } = session;
        let line = Line { agent, status, updated_at, text, id: u32::try_from(session.id.raw().len()).ok()? };
        (line.id() == session.id.raw()).then_some(line)
    }

    /// The session as it is printed after another one.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Its id.
    pub fn id(&self) -> &str {
        let id = self.text.get(Line::BEFORE.len()..).and_then(|rest| rest.get(..self.id as usize));
        id.and_then(|id| std::str::from_utf8(id).ok()).unwrap_or_default()
    }

    /// The agent's own id, which follows its name in the id.
    pub fn native_id(&self) -> &str {
        self.id().get(self.agent.len() + 1..).unwrap_or_default()
    }
}

/// What is told of a session.
#[derive(Clone, PartialEq, Debug)]
pub enum Row {
    /// All of it.
    Session(Box<Session>),
    /// It has ended, nobody asked anything of it, and the answer is text.
    Line(Line),
}

fn serialize_because<S: Serializer>(because: &[(Role, Observation)], s: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Because<'a> {
        witness: &'static str,
        #[serde(serialize_with = "serialize_fact")]
        fact: &'a Fact,
        at: Option<Time>,
        source: Option<&'a Untrusted>,
        role: Role,
    }
    s.collect_seq(because.iter().map(|(role, o)| Because {
        witness: o.witness.word(),
        fact: &o.fact,
        at: o.at,
        source: o.source.as_ref(),
        role: *role,
    }))
}

fn serialize_fact<S: Serializer>(fact: &&Fact, s: S) -> Result<S::Ok, S::Error> {
    match fact.constant() {
        Some(text) => s.serialize_str(text),
        None => s.serialize_str(fact.told().raw()),
    }
}

/// An agent process that could not be tied to a session: shown as what it is.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Unbound {
    /// The agent it is a process of.
    pub agent: &'static str,
    /// The machine it runs on, if not this one.
    pub host: Option<String>,
    /// Its PID.
    pub pid: u32,
    /// Where it stands, if that can be read.
    pub cwd: Option<Untrusted>,
    /// When it started.
    pub started_at: Option<Time>,
    /// Why it could not be tied to a session.
    pub why: Untrusted,
}

/// Something that could not be read or asked; it never hides the rest.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Warning {
    /// The adapter, or `lariat` for our own records, `settings` for our settings, `host` for
    /// another machine, or `process` for the scan.
    pub adapter: &'static str,
    /// The file it is about, if one.
    pub path: Option<Untrusted>,
    /// What went wrong.
    pub error: Untrusted,
    /// When it last worked, where that is known.
    pub last_ok: Option<Time>,
}

/// How many sessions a listing leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Hidden {
    /// Ended sessions that `-a` would show.
    pub ended: usize,
}

/// A whole answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Listing {
    /// The version of this shape.
    pub schema: u32,
    /// When it was true.
    pub at: Time,
    /// The sessions.
    pub sessions: Vec<Box<Session>>,
    /// Agent processes without a known session.
    pub unbound: Vec<Unbound>,
    /// What could not be read or asked.
    pub warnings: Vec<Warning>,
    /// What was left out.
    pub hidden: Hidden,
}
