//! Agents of other users.
//!
//! Which store those use cannot be seen from here: their environment is not ours to read. As a rule it is their own. But
//! one that was started by `sudo` with this user's home writes here, and its files are its user's. So it could hold any
//! session whose file is that user's, and no other.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use lariat_core::{Fact, Untrusted};
use lariat_sys::process;
use lariat_sys::scan::{Process, Table};

use crate::agent_process::{own_user, owner};

/// Their users and processes.
#[derive(Default)]
pub struct Strangers(Vec<(u32, u32)>);

impl Strangers {
    /// Those in the process table.
    pub fn among<E>(table: Result<&Table, E>, is_agent: impl Fn(&Process) -> bool) -> Strangers {
        let Ok(table) = table else { return Strangers::default() };
        let agents = table.iter().filter(|p| is_agent(p) && process::environment(p.pid).is_err());
        let users = agents.filter_map(|p| Some((owner(p.pid)?, p.pid)));
        Strangers(users.filter(|(user, _)| *user != own_user()).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// That one of them could hold the session that this file is of.
    pub fn could_hold(&self, file: &Path) -> Option<Fact> {
        if self.is_empty() {
            return None;
        }
        let user = std::fs::metadata(file).ok()?.uid();
        let (_, pid) = self.0.iter().find(|(of, _)| *of == user)?;
        let why = format!("its file belongs to another user, who runs process {pid}, which could hold it");
        Some(Fact::Unseen(Untrusted::new(why)))
    }
}
