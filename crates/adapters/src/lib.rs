//! What knows the agents: one folder per agent, and what they share.
//!
//! Adapters read agents' stores and never write into them. They observe and
//! never judge: [`lariat_core::judge`] does. Shared by all: [`json`] reads,
//! [`reader`] folds append-only files incrementally, [`cache`] remembers what
//! was read, [`agent_process`] tells an agent from other processes, [`talk`]
//! reads a conversation. An adapter is one folder and one entry in [`all`].

pub mod agent_process;
pub mod cache;
pub mod claude;
pub mod codex;
pub mod json;
pub mod look;
pub mod reader;
pub mod store;
pub mod talk;
pub mod tool;

use std::path::{Path, PathBuf};

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
    /// Everything that can be seen of its sessions.
    fn observe(&self, look: &Look<'_>) -> Report;
    /// What the processes alone tell, for when the store does not answer.
    fn observe_processes(&self, look: &Look<'_>, why: &str) -> Report;
    /// The signals that ask a session to end, gentlest first.
    fn gentle(&self) -> &'static [Signal] {
        &[Signal::INT, Signal::TERM]
    }
    /// Variables that a session's tools carry in their environment.
    fn marks(&self, native_id: &str) -> Vec<(String, String)>;
    /// How its transcripts are read as a conversation.
    fn language(&self) -> &'static dyn talk::Language;
    /// The transcript that holds what came before a forked one, and how much
    /// of it counts.
    fn before(&self, _places: &Places, _transcript: &Path) -> Option<(PathBuf, u64)> {
        None
    }
}

/// Every adapter.
pub fn all() -> Vec<&'static dyn Adapter> {
    vec![&claude::Claude, &codex::Codex]
}
