//! One fact seen now, with its witness.
//!
//! Adapters make observations; nothing else does. An observation never says
//! what the status is: [`crate::status::judge`] does that from all of them.

use std::fmt;

use crate::session::Exit;
use crate::text::Untrusted;
use crate::time::Time;

/// Who saw the fact. The order is the order of belief, strongest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Witness {
    /// The agent told by a hook or a protocol event.
    Hook,
    /// A gateway that runs the session.
    Gateway,
    /// The lariat of another machine.
    Host,
    /// The shim that holds the session.
    Shim,
    /// The agent's own list of running sessions.
    Registry,
    /// The agent's transcript.
    Store,
    /// The process table.
    Process,
}

impl Witness {
    /// The word used in output.
    pub fn word(self) -> &'static str {
        match self {
            Witness::Hook => "hook",
            Witness::Gateway => "gateway",
            Witness::Host => "host",
            Witness::Shim => "shim",
            Witness::Registry => "registry",
            Witness::Store => "store",
            Witness::Process => "process",
        }
    }
}

/// What the agent itself says it is doing, as its registry or a hook tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// A turn is open.
    Busy,
    /// The turn is over.
    Idle,
    /// The turn is over and a background shell still runs.
    Shell,
    /// It needs a person; the agent's own words for what.
    Waiting(Untrusted),
    /// A word this version of lariat does not know: alive, no more.
    Other(Untrusted),
}

/// How a turn ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// With an answer.
    Well,
    /// In an error, in the agent's words.
    Failed(Untrusted),
    /// A person interrupted it, by the agent's own record.
    Aborted(Untrusted),
}

/// What the transcript's end shows of the last turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Turn {
    /// The record has no turn yet.
    Never,
    /// A turn is open; what it is at, if known (`running Bash npm test`).
    Open(Option<Untrusted>),
    /// The last turn is over.
    Over(Outcome),
}

/// What kind of answer a waiting agent needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskKind {
    /// May it use this tool?
    Permission,
    /// A question with or without choices.
    Question,
    /// Shall it carry out this plan?
    Plan,
    /// It needs a login.
    Login,
    /// A limit was reached.
    Limit,
    /// Some dialog of the program itself.
    Dialog,
}

impl AskKind {
    /// Whether it is asked by a turn that could not go on and is over: the agent
    /// stands at its prompt, and says of itself that it is idle.
    pub fn ends_a_turn(self) -> bool {
        matches!(self, AskKind::Login | AskKind::Limit)
    }

    /// The word used in a reason.
    pub fn word(self) -> &'static str {
        match self {
            AskKind::Permission => "permission",
            AskKind::Question => "question",
            AskKind::Plan => "plan",
            AskKind::Login => "login",
            AskKind::Limit => "limit",
            AskKind::Dialog => "dialog",
        }
    }
}

/// What a waiting agent asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask {
    /// What kind of answer it needs.
    pub kind: AskKind,
    /// The question, or the tool and its input.
    pub text: Untrusted,
}

impl Ask {
    /// `permission: Bash rm -rf build`, or `plan` of one that says nothing.
    pub fn reason(&self) -> Untrusted {
        match self.text.raw() {
            "" => self.kind.word().into(),
            text => Untrusted::new(format!("{}: {text}", self.kind.word())),
        }
    }
}

/// One fact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fact {
    /// The session's own process is alive; how it was recognised.
    Alive {
        /// Its PID, unless it can only be seen to exist.
        pid: Option<u32>,
        /// The evidence that ties it to this session.
        by: Untrusted,
    },
    /// The session's process is gone, and what proves it.
    Gone(Untrusted),
    /// Whether it lives could not be told, and why not.
    Unseen(Untrusted),
    /// What the agent says it is doing.
    State(State),
    /// What the end of the transcript shows.
    Turn(Turn),
    /// The transcript could not be read far enough to tell of its last turn.
    TurnUnread(Untrusted),
    /// Nothing of this agent ever tells how a turn of it stands, and why not.
    Mute(Untrusted),
    /// What it asks a person.
    Asks(Ask),
    /// What it asked a person, and asks no more: what was asked for has its result.
    Answered(Ask),
    /// How its process ended.
    Exit(Exit),
    /// Its shim was told to end about when it ended, as at a shutdown; no verb of ours does that.
    AllTold,
    /// The agent's own record that a person ended the session.
    Left(Untrusted),
    /// It was given something to do a moment ago, which it may not have taken up yet, and which is not done.
    Given,
    /// Worth showing, decides nothing.
    Note(Untrusted),
}

impl Fact {
    /// The fact as a sentence, where that needs nothing of the agent's.
    pub fn constant(&self) -> Option<&'static str> {
        Some(match self {
            Fact::State(State::Busy) => "status busy",
            Fact::State(State::Idle) => "status idle",
            Fact::State(State::Shell) => "status shell: turn over, a background shell still runs",
            Fact::Given => "was given a prompt a moment ago",
            Fact::AllTold => "its shim was told to end as well, as at a shutdown",
            Fact::Turn(Turn::Never) => "no turn recorded",
            Fact::Turn(Turn::Open(None)) => "turn open",
            Fact::Turn(Turn::Over(Outcome::Well)) => "turn over, answered",
            _ => return None,
        })
    }

    /// The fact as a sentence. It may hold text from outside, so it is
    /// [`Untrusted`] as a whole.
    pub fn told(&self) -> Untrusted {
        let join = |before: &str, text: &Untrusted| [before, text.raw()].concat();
        Untrusted::from(match self {
            Fact::Alive { pid: Some(pid), by } => format!("process {pid} is alive: {}", by.raw()),
            Fact::Alive { pid: None, by } => join("alive: ", by),
            Fact::Gone(proof) => join("gone: ", proof),
            Fact::Unseen(why) => join("cannot tell if it lives: ", why),
            Fact::State(State::Waiting(what)) => join("status waiting: ", what),
            Fact::State(State::Other(word)) => join("status not known to this version: ", word),
            Fact::Turn(Turn::Open(Some(doing))) => join("turn open: ", doing),
            Fact::Turn(Turn::Over(Outcome::Failed(error))) => join("turn ended in an error: ", error),
            Fact::Turn(Turn::Over(Outcome::Aborted(how))) => join("turn aborted: ", how),
            Fact::TurnUnread(why) => join("last turn unreadable: ", why),
            Fact::Mute(why) => join("nothing tells of its turns: ", why),
            Fact::Asks(ask) => join("asks for ", &ask.reason()),
            Fact::Answered(ask) => join("answered in its terminal: ", &ask.reason()),
            Fact::Exit(exit) => format!("exited with {exit}"),
            Fact::Left(how) => join("ended by a person: ", how),
            Fact::Note(text) => text.raw().to_owned(),
            Fact::State(_) | Fact::Turn(_) | Fact::Given | Fact::AllTold => {
                return self.constant().unwrap_or_default().into();
            }
        })
    }
}

/// One fact seen now: by whom, as of when, and where it can be looked up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observation {
    /// Who saw it.
    pub witness: Witness,
    /// What was seen.
    pub fact: Fact,
    /// When the witness recorded it, where it says.
    pub at: Option<Time>,
    /// The file, socket or `/proc` entry it was read from.
    pub source: Option<Untrusted>,
}

impl Observation {
    /// An observation without a time or source of its own.
    pub fn new(witness: Witness, fact: Fact) -> Self {
        Self { witness, fact, at: None, source: None }
    }

    /// Adds when it was recorded.
    pub fn at(mut self, at: Option<Time>) -> Self {
        self.at = at;
        self
    }

    /// Adds where it was read.
    pub fn from(mut self, source: impl Into<Untrusted>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
