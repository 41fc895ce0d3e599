//! Any agent that speaks the Agent Client Protocol: what its owner heard.
//!
//! Such an agent talks to whoever started it, and to nobody else. So a launched one gets an *owner*: a
//! process of lariat's own that holds the connection and writes down every message, as it went or
//! came, into the session's folder ([`EVENTS`]). That is the transcript. What it adds up to is the
//! state of the turn, and counts as such only while that very owner lives ([`sessions`]).
//!
//! Nothing is asked here: looking starts no agent, lists no sessions and loads none.
//!
//! Measured with OpenCode 1.18.33; see `docs/agents/acp.md`.

mod asks;
mod fold;
mod sessions;
mod talk;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use lariat_core::Ask as Asked;
use lariat_sys::file;
use lariat_sys::tree::Signal;
use serde::{Deserialize, Serialize};

use crate::agent_process as ap;
use crate::look::{Look, Places, Report};
use crate::settings::is_name;
use crate::talk::Language;
use crate::{Adapter, Ask, Beside, Decision, Past, Plan};

/// What every one of them is called.
pub const NAME: &str = "acp";
/// The argument that makes `lariat` own a connection.
pub const VERB: &str = ap::OWNS;
/// What the owner is to do, in the session's folder.
pub const ORDER: &str = "acp.json";
/// Every message, in the session's folder.
pub const EVENTS: &str = "events.ndjson";

/// The one that looks at all of them.
pub static EVERY: Acp = Acp { name: NAME };

/// The adapter of one, or of every one.
pub struct Acp {
    name: &'static str,
}

/// What an owner is to do.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The agent's name, `acp:<name>`.
    pub agent: String,
    /// Its program and arguments.
    pub command: Vec<String>,
    /// The first prompt.
    pub prompt: Option<String>,
    /// The model, if one is wanted.
    pub model: Option<String>,
    /// It ends when the first turn is over.
    pub once: bool,
    /// The session to go on with.
    pub past: Option<String>,
    /// A new session shall begin with what was said in it.
    pub fork: bool,
}

/// The adapter of one of them. It is known by its name alone: a session outlives the settings that it
/// was launched with.
pub fn named(name: &str) -> Option<&'static dyn Adapter> {
    static KNOWN: Mutex<Vec<&'static Acp>> = Mutex::new(Vec::new());
    name.strip_prefix("acp:").filter(|short| is_name(short))?;
    let mut known = KNOWN.lock().ok()?;
    if let Some(found) = known.iter().find(|a| a.name == name) {
        return Some(*found);
    }
    // Once for each name: rows carry it for as long as the program runs.
    let made: &'static Acp = Box::leak(Box::new(Acp { name: Box::leak(name.to_owned().into_boxed_str()) }));
    known.push(made);
    Some(made)
}

impl Acp {
    fn plan(&self, ask: &Ask, past: Option<&Past<'_>>) -> Result<Plan, String> {
        if self.name == NAME {
            return Err("say which one: acp:<name>, as [[acp]] in the settings names it".into());
        }
        if ask.command.is_empty() {
            let short = self.name.trim_start_matches("acp:");
            return Err(format!(
                "the settings have no [[acp]] with name = \"{short}\"; add it with its command, \
                 like command = [\"opencode\", \"acp\"]"
            ));
        }
        if ask.headless && ask.prompt.is_none() {
            return Err("a headless launch needs a prompt (-p)".into());
        }
        let order = Order {
            agent: self.name.to_owned(),
            command: ask.command.iter().chain(&ask.arguments).cloned().collect(),
            prompt: ask.prompt.clone(),
            model: ask.model.clone(),
            once: ask.headless,
            past: past.map(|p| p.native_id.to_owned()),
            fork: past.is_some_and(|p| p.fork),
        };
        let text = serde_json::to_string(&order).map_err(|e| e.to_string())?;
        Ok(Plan {
            native_id: past.filter(|p| !p.fork).map(|p| p.native_id.to_owned()),
            files: vec![Beside { name: ORDER, text, flag: VERB }],
            no_terminal: true,
            ..Plan::default()
        })
    }
}

impl Adapter for Acp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn programs(&self) -> &'static [&'static str] {
        &[]
    }

    fn store(&self, places: &Places) -> PathBuf {
        places.state.join("sessions")
    }

    fn observe(&self, look: &Look<'_>) -> Report {
        lariat_sys::point::point("acp.observe");
        let mut report = Report::default();
        sessions::tell(look, self.name, &mut report);
        report
    }

    /// Without its file nothing is known of a session, not even which one it is.
    fn observe_processes(&self, look: &Look<'_>, why: &str) -> Report {
        let mut report = Report::default();
        sessions::owners_without(look, &[], why, &mut report);
        report
    }

    fn is_spoken_for(&self) -> bool {
        true
    }

    fn start(&self, ask: &Ask) -> Result<Plan, String> {
        self.plan(ask, None)
    }

    fn resume(&self, ask: &Ask, past: &Past<'_>) -> Result<Plan, String> {
        self.plan(ask, Some(past))
    }

    /// The owner says so once the agent has taken the session up.
    fn came_up(&self, places: &Places, native_id: &str, pid: u32) -> Option<bool> {
        let folder = ap::launched_folder(places, pid)?;
        let last = file::tail(&folder.join(EVENTS), 1 << 20).unwrap_or_default();
        Some(fold::has_taken_up(&last, native_id, pid))
    }

    /// The owner's first line.
    fn id_in_output(&self, line: &str) -> Option<String> {
        fold::id_in_line(line)
    }

    fn asked(&self, event: &[u8]) -> Option<Asked> {
        asks::asked(event)
    }

    fn answer(&self, event: &[u8], decision: &Decision) -> Result<String, String> {
        asks::answer(event, decision)
    }

    /// The owner cancels the turn, and ends the agent.
    fn gentle(&self) -> &'static [Signal] {
        &[Signal::TERM]
    }

    fn marks(&self, _native_id: &str) -> Vec<(String, String)> {
        Vec::new()
    }

    fn language(&self) -> &'static dyn Language {
        &talk::Lines
    }
}

/// Whether a path is that of a session's messages.
fn is_events(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == EVENTS || name == "events.ndjson (deleted)")
}
