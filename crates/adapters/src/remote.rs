//! What is asked of a session that a gateway runs: it has no process of ours to
//! signal and no terminal to type into.
//!
//! Every question here ends in time. Whether something has happened is told by
//! the gateway, never by the request having gone out.

use std::time::Duration;

use crate::look::Places;
use crate::talk::Said;

/// How one gateway stands, for `doctor`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Which.
    pub gateway: String,
    /// What it said of itself, or what is wrong.
    pub found: Result<String, String>,
}

/// Why something was not said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unsent {
    /// Nothing was, and why.
    Not(String),
    /// It went out, and no answer came: nobody knows whether it was taken.
    Untold(String),
}

/// An adapter's way to its gateways.
pub trait Remote: Sync {
    /// How each gateway stands; none if none is set.
    fn standing(&self, places: &Places, patience: Duration) -> Vec<Standing>;
    /// The last messages of a session.
    fn talk(&self, places: &Places, native_id: &str, messages: usize) -> Result<Vec<Said>, String>;
    /// Says something to a session; returns when the gateway has started a run of it. With a key, the gateway starts one
    /// for it only once.
    fn send(&self, places: &Places, native_id: &str, text: &str, key: Option<&str>) -> Result<(), Unsent>;
    /// Which run of a session is open, by the gateway's own id.
    fn run(&self, places: &Places, native_id: &str) -> Result<Option<String>, String>;
    /// Ends a session's open run; returns when the gateway says that none is open, with what tells that run from later
    /// ones in the list (`Session::start`). With `run`, only if it is that one: nothing if another is open by now.
    fn end(
        &self,
        places: &Places,
        native_id: &str,
        run: Option<&str>,
        patience: Duration,
    ) -> Result<Option<u64>, String>;
}
