//! What a person asked of a session: the only thing lariat itself knows.
//!
//! An intent says nothing about what is true. It explains an end that was seen
//! (`stopped`), and tells whether a session that was cut off is wanted back.

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// What was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Want {
    /// The session shall run.
    Run,
    /// The session shall end and stay ended.
    Stop,
}

/// The newest wish for one session. A later wish has a higher generation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Intent {
    /// What was asked for.
    pub want: Want,
    /// Counts up with every change, so that a stale writer loses.
    pub generation: u64,
    /// When it was asked.
    pub at: Time,
    /// For a stop: whether the session was alive when it was asked. Asking to
    /// stop what has already ended changes no word of how it ended.
    pub found_live: bool,
    /// For a stop: until when the session may still have been writing while it
    /// ended. What it recorded later, it recorded in another life.
    pub until: Option<Time>,
}

impl Intent {
    /// Whether this wish is why a session ended whose last record is this old.
    pub fn explains_end(&self, last_record: Option<Time>) -> bool {
        let same_life = match (self.until, last_record) {
            (Some(until), Some(last)) => last <= until,
            _ => true,
        };
        self.want == Want::Stop && self.found_live && same_life
    }
}
