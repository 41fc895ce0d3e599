//! What knows the agents: one folder per agent, and what they share.
//!
//! Adapters read agents' stores and never write into them. They observe and
//! never judge: [`lariat_core::judge`] does. Shared by all: [`json`] reads,
//! [`reader`] folds append-only files incrementally, [`cache`] remembers what
//! was read, [`agent_process`] tells an agent from other processes, [`talk`]
//! reads a conversation. An adapter is one folder and one entry in [`all`].

pub mod acp;
pub mod agent_process;
pub mod cache;
pub mod claude;
pub mod codex;
pub mod counting;
pub mod described;
pub mod gemini;
pub mod json;
pub mod look;
pub mod memory;
pub mod needs;
pub mod openclaw;
pub mod opencode;
pub mod pi;
pub mod reader;
pub mod remote;
pub mod settings;
pub mod spent;
pub mod store;
mod strangers;
mod sums;
pub mod talk;
pub mod tool;

use std::io;
use std::path::{Path, PathBuf};

use lariat_core::{State, Time, Turn};
use lariat_sys::scan::Process;
use lariat_sys::tree::Signal;
use look::{Look, Places, Report};

/// What an agent's folder provides.
pub trait Adapter: Send + Sync {
    /// The agent's name, as in ids.
    fn name(&self) -> &'static str;
    /// Programs to look for when asked what is installed.
    fn programs(&self) -> &'static [&'static str];
    /// Where its store is.
    fn store(&self, places: &Places) -> PathBuf;
    /// The directories of its store, each with how deep they go on, if every change of
    /// an ended session is a change of a file in one of them.
    fn directories(&self, _places: &Places) -> Option<Vec<(PathBuf, usize)>> {
        None
    }
    /// Everything that can be seen of its sessions.
    fn observe(&self, look: &Look<'_>) -> Report;
    /// What the processes alone tell, for when the store does not answer.
    fn observe_processes(&self, look: &Look<'_>, why: &str) -> Report;
    /// Whether it takes a process for its agent's, with a store here. What it says of who is gone covers no other: a
    /// script may have become any program.
    fn takes_for_its_own(&self, _places: &Places, _process: &Process) -> bool {
        true
    }
    /// Whether a process is a server of its agent's, with sessions of anybody's below it: whoever needed one first has
    /// it below itself.
    fn hosts(&self, _process: &Process) -> bool {
        false
    }
    /// Whether lariat itself speaks for it to the command that the settings name
    /// ([`Ask::command`]), and so is the program that is started.
    fn is_spoken_for(&self) -> bool {
        false
    }
    /// Where arguments put its store, and the variable that would say the same.
    fn store_in(&self, _arguments: &[String]) -> Option<(&'static str, PathBuf)> {
        None
    }
    /// Whether a session is in its store before anybody knows its id: one that is not there was deleted.
    fn records_at_once(&self) -> bool {
        false
    }
    /// Whether it was told to store nothing of the session: then none can go on, and what it was asked may have been
    /// done.
    fn stores_nothing(&self, _arguments: &[String]) -> bool {
        false
    }
    /// Whether nothing of it tells of its turns: it is known by its process alone, and never goes on by
    /// more than the settings describe ([`Ask::described`]).
    fn is_mute(&self) -> bool {
        false
    }
    /// How a new session is started.
    fn start(&self, ask: &Ask) -> Result<Plan, String>;
    /// How an ended session goes on under its own id, or as a fork under a new
    /// one; or why it cannot.
    fn resume(&self, _ask: &Ask, _past: &Past<'_>) -> Result<Plan, String> {
        Err(format!("{} sessions cannot be resumed", self.name()))
    }
    /// Why a session of its store would be lost if another way than [`resume`](Self::resume) took it up again.
    fn loses(&self, _places: &Places, _native_id: &str) -> Option<&'static str> {
        None
    }
    /// Whether it would go on with what this transcript holds: it may note something there before anything is said.
    fn goes_on_with(&self, _transcript: &Path) -> bool {
        true
    }
    /// Whether the last words of one that ended at once say that it is too old for an option that we gave it, and that
    /// it can do without ([`Ask::older`]).
    fn is_older(&self, _last_words: &str) -> bool {
        false
    }
    /// The real program behind a wrapper that would die alone, if there is one.
    fn native(&self, _found: &Path) -> Option<PathBuf> {
        None
    }
    /// Whether this process shows in the agent's own records that it has this
    /// session; `None` if only a whole look can tell.
    fn came_up(&self, _places: &Places, _native_id: &str, _pid: u32) -> Option<bool> {
        None
    }
    /// The session's id in the first line of its output, if it is told there.
    fn id_in_output(&self, _line: &str) -> Option<String> {
        None
    }
    /// The session with which its process goes on, if an event of its hook tells of
    /// that.
    fn moved(&self, _event: &[u8]) -> Option<String> {
        None
    }
    /// What an event of its hook asks a person.
    fn asked(&self, _event: &[u8]) -> Option<lariat_core::Ask> {
        None
    }
    /// What its hook must say for a decision, or why that is none.
    fn answer(&self, _event: &[u8], _decision: &Decision) -> Result<String, String> {
        Err(format!("{} gives no safe way to answer; `lariat attach` does", self.name()))
    }
    /// How many of the last bytes that an agent wrote on its terminal may tell its state, or what it asks: none of one
    /// whose store tells all, and then they are not read.
    fn tells_within(&self) -> u64 {
        0
    }
    /// What a live agent says of itself on its terminal, from the last of what it wrote there: its
    /// own word in a form made for programs; words that it draws, only where it has no such form and nothing else
    /// tells. `argv` is what it was started with.
    fn state_in_output(&self, _last: &[u8], _argv: &[String]) -> Option<State> {
        None
    }
    /// What a live agent asks a person on its terminal before it listens to anything else, from the last of what
    /// it wrote there, where nothing else tells.
    fn asks_in_output(&self, _last: &[u8]) -> Option<lariat_core::Ask> {
        None
    }
    /// Whether it asks there before anything else tells what it does: then only that is looked for there.
    fn asks_first(&self) -> bool {
        false
    }
    /// What it asks on its terminal before it begins any session, by the last of its output: nobody can answer that by lariat.
    fn asks_before_any(&self, _last: &[u8]) -> Option<&'static str> {
        None
    }
    /// Whether the terminal of a live agent shows that a person has put aside what its store still says that it asks.
    fn put_aside_in_output(&self, _ask: &lariat_core::Ask, _last: &[u8]) -> bool {
        false
    }
    /// Whether its terminal tells which session it shows ([`is_elsewhere_in_output`](Self::is_elsewhere_in_output)); else
    /// what it wrote there is not read for that.
    fn tells_where(&self) -> bool {
        false
    }
    /// Whether the terminal of a live agent shows another place than the session of this title, by all that it wrote
    /// there: what is typed then is not said in that session. `argv` is what it was started with.
    fn is_elsewhere_in_output(&self, _all: &[u8], _title: Option<&str>, _argv: &[String]) -> bool {
        false
    }
    /// Whether a command was submitted in this session's terminal since then, by the agent's own log of what is typed;
    /// `None` where it keeps none or that cannot be read. `argv` is what it was started with.
    fn took_command(&self, _transcript: &Path, _argv: &[String], _since: Time) -> Option<bool> {
        None
    }
    /// When something was last typed in this session's terminal, by the same log.
    fn typed_at(&self, _transcript: &Path, _argv: &[String]) -> Option<Time> {
        None
    }
    /// How a headless agent that has ended leaves its turn, by the last of its output, where that tells more than its
    /// exit and its store.
    fn left_in_output(&self, _last: &[u8]) -> Option<Turn> {
        None
    }
    /// How the turn of a headless agent stands, by the last of its output. It counts for one that its store tells
    /// nothing of.
    fn turn_in_output(&self, _last: &[u8]) -> Option<Turn> {
        None
    }
    /// Whether an agent that has ended was at a turn of this session by what it told beside its launch, in `folder`.
    fn was_at_work(&self, _folder: &Path, _native_id: &str) -> io::Result<bool> {
        Ok(false)
    }
    /// The signals that ask a session to end, gentlest first.
    fn gentle(&self) -> &'static [Signal] {
        &[Signal::INT, Signal::TERM]
    }
    /// Variables that a session's tools carry in their environment.
    fn marks(&self, native_id: &str) -> Vec<(String, String)>;
    /// How its transcripts are read as a conversation.
    fn language(&self) -> &'static dyn talk::Language;
    /// Where its conversations are, if they are not files of lines.
    fn archive(&self) -> Option<&'static dyn talk::Archive> {
        None
    }
    /// The transcript that holds what came before a forked one, and how much
    /// of it counts.
    fn before(&self, _places: &Places, _transcript: &Path) -> Option<(PathBuf, u64)> {
        None
    }
    /// Tells every use of tokens that its store records, each once, and gives what could not be
    /// read; `None` if its store records none.
    fn spent(&self, _look: &Look<'_>, _to: &mut spent::Tell<'_>) -> Option<Vec<lariat_core::Warning>> {
        None
    }
    /// Tells every use that the files of one session record, by its own id. What a fork copied from its
    /// parent is among it: whose it was, only all files together tell.
    fn spent_by(
        &self,
        _look: &Look<'_>,
        _session: &str,
        _to: &mut spent::Tell<'_>,
    ) -> Option<Vec<lariat_core::Warning>> {
        None
    }
    /// The way to its gateways, if those run its sessions.
    fn remote(&self) -> Option<&'static dyn remote::Remote> {
        None
    }
}

/// What a new session is asked.
#[derive(Clone, Default, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Ask {
    /// The prompt.
    pub prompt: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The name a person gave.
    pub name: Option<String>,
    /// One prompt, structured output, no terminal.
    pub headless: bool,
    /// Further arguments for the agent, as they are.
    pub arguments: Vec<String>,
    /// Hold what it asks for a person's answer, even without a terminal.
    #[serde(default)]
    pub held: bool,
    /// The command that the settings name for it, for an agent that they describe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// What the settings say of it, for an agent that they alone describe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub described: Option<settings::Described>,
    /// The command that hears what it tells by hooks, for agents that have them.
    #[serde(skip)]
    pub hook: Option<String>,
    /// Only with what its older versions know: this one has said that it is one.
    #[serde(skip)]
    pub older: bool,
    /// Where it is launched.
    #[serde(skip)]
    pub cwd: Option<PathBuf>,
}

/// How an agent is started.
#[derive(Clone, Default, Debug)]
pub struct Plan {
    /// The arguments after the program.
    pub arguments: Vec<String>,
    /// The id, if it can be chosen.
    pub native_id: Option<String>,
    /// Variables that it needs besides.
    pub env: Vec<(String, String)>,
    /// What it reads from its standard input, if it has no terminal.
    pub input: Option<String>,
    /// What its program is told first, in a run of its own, so that the id that
    /// we chose is known to it.
    pub first: Option<First>,
    /// Files for this launch only, put into the session's own folder.
    pub files: Vec<Beside>,
    /// Files of the agent's that starting it puts at risk: copied into the session's own folder first.
    pub keep: Vec<PathBuf>,
    /// It has no terminal, whether it was asked for one or not.
    pub no_terminal: bool,
}

/// A short run of the agent's program before the session's own.
#[derive(Clone, Default, Debug)]
pub struct First {
    /// The arguments after the program.
    pub arguments: Vec<String>,
    /// What it reads from its standard input.
    pub input: String,
}

/// A file that an agent is started with.
#[derive(Clone, Debug)]
pub struct Beside {
    /// Its name in the session's folder.
    pub name: &'static str,
    /// What is in it.
    pub text: String,
    /// The argument that its path follows; both come first.
    pub flag: &'static str,
}

impl Plan {
    /// Asks the prompt: as the last argument, or, if that is too long for one, by
    /// standard input, which `from_input` tells the agent to read.
    pub fn ask(mut self, ask: &Ask, from_input: &[&str]) -> Result<Plan, String> {
        match &ask.prompt {
            Some(prompt) if prompt.len() <= LONGEST_ARGUMENT => {
                self.arguments.extend(["--".to_owned(), prompt.clone()]);
            }
            Some(prompt) if ask.headless => {
                self.arguments.extend(from_input.iter().map(|a| (*a).to_owned()));
                self.input = Some(prompt.clone());
            }
            Some(_) => return Err("the prompt is too long for an argument".into()),
            None if ask.headless => return Err("a headless launch needs a prompt (-p)".into()),
            None => {}
        }
        Ok(self)
    }
}

/// What a person decides about what an agent asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// It may.
    Allow,
    /// It may not, and why.
    Deny(Option<String>),
    /// One answer for each question.
    Answer(Vec<String>),
}

/// What is continued.
#[derive(Clone, Debug)]
pub struct Past<'a> {
    /// The agent's own id of it.
    pub native_id: &'a str,
    /// Its transcript, if it has one of its own.
    pub transcript: Option<&'a Path>,
    /// A new session shall begin with what was said in it.
    pub fork: bool,
}

/// The longest prompt that is given as an argument; the kernel takes 128 KiB.
pub const LONGEST_ARGUMENT: usize = 100_000;

/// A fresh random id, as both agents write theirs.
pub fn new_uuid() -> io::Result<String> {
    use std::io::Read as _;
    let mut bytes = [0u8; 16];
    #[expect(clippy::disallowed_methods, reason = "the kernel's source of randomness")]
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(uuid(bytes, 4))
}

/// These bytes as a UUID, of this version.
fn uuid(mut bytes: [u8; 16], version: u8) -> String {
    bytes[6] = bytes[6] & 0x0f | version << 4;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Every adapter.
pub fn all() -> Vec<&'static dyn Adapter> {
    vec![
        &claude::Claude,
        &codex::Codex,
        &opencode::OpenCode,
        &pi::Pi,
        &gemini::Gemini,
        &openclaw::OpenClaw,
        &acp::EVERY,
        &described::EVERY,
    ]
}

/// The adapter of this name, or of what other tools call it. Of those that speak ACP, and of those that are
/// only described, each has its own, `acp:<name>` and `agent:<name>`, besides the one that looks at them all.
pub fn named(name: &str) -> Option<&'static dyn Adapter> {
    let name = if name == "claude-code" { "claude" } else { name };
    match name.split_once(':') {
        Some((acp::NAME, _)) => acp::named(name),
        Some((described::NAME, _)) => described::named(name),
        _ => all().into_iter().find(|a| a.name() == name),
    }
}

/// Whether a name that a person gave means this agent: `acp` means every one that speaks it, `agent` every
/// one that is only described.
pub fn means(name: &str, agent: &str) -> bool {
    let every = |all: &str| name == all && agent.strip_prefix(all).is_some_and(|rest| rest.starts_with(':'));
    name == agent || every(acp::NAME) || every(described::NAME)
}
