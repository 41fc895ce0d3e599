//! Servers among the processes: an agent's own, which hold or start sessions of several, and lariat's daemon. They are no part
//! of the tree of one session, and one that keeps a session starts it again if it only dies.

use std::collections::HashSet;

use lariat_adapters::look::{Places, Scope};
use lariat_adapters::{Adapter, agent_process as ap};
use lariat_sys::process::Identity;
use lariat_sys::scan::{self, ScanError, Table};
use lariat_sys::{file, locks};

use crate::list::{Question, list};

/// What the daemon holds for as long as it runs, among our files; never deleted.
pub const DAEMON_LOCK: &str = "daemon.lock";
/// How lariat is called as the daemon.
pub const DAEMON_VERB: &str = "__daemon";
/// How far above a session's process whoever keeps it may stand.
const DEEPEST: usize = 16;

/// Lariat's own daemon, which is nobody's, though a tool of the session may have started it: whoever holds its lock and runs as
/// it.
pub(crate) fn own_daemon(places: &Places) -> Option<u32> {
    let (_, key) = file::open(&places.state.join(DAEMON_LOCK)).ok()?;
    // Some file systems show another device here; the inode and what runs there say enough.
    let held = locks::held().ok()?.into_iter().filter(|lock| lock.inode == key.inode);
    let is_it = |p: &scan::Process| p.arguments().nth(1) == Some(DAEMON_VERB) && ap::runs(p, &["lariat"]).is_some();
    held.map(|lock| lock.pid).find(|pid| matches!(scan::look(*pid), Ok(Some(p)) if is_it(&p)))
}

/// The servers that others need: their sessions stand below one, though this one may have needed it first. One is ended only
/// where it can be shown that nobody does.
pub(crate) fn hosts(places: &Places, id: &str, spared: &HashSet<u32>) -> Result<HashSet<u32>, ScanError> {
    let table = Table::scan()?;
    let adapters = lariat_adapters::all();
    let host = |p: &scan::Process| adapters.iter().copied().find(|a| a.hosts(p));
    let servers: Vec<_> = table.iter().filter_map(|p| Some((p, host(p)?))).collect();
    if servers.is_empty() {
        return Ok(HashSet::new());
    }
    // Looked at now: a session may have come since.
    let now = list(Question { scope: Scope::Live, ..Question::of(places) });
    let others: Vec<_> = now.listing.sessions.iter().filter(|o| o.id.raw() != id).collect();
    // One without a process may be between two.
    let is_coming = |agent: &str| others.iter().any(|o| o.agent == agent && o.live.is_none() && o.pid.is_none());
    let is_anothers = |pid: u32| spared.contains(&pid) || others.iter().any(|o| o.pid == Some(pid));
    let is_needed = |(p, adapter): &(&scan::Process, &dyn Adapter)| {
        let seen = !now.partial && adapter.takes_for_its_own(places, p);
        !seen || is_coming(adapter.name()) || table.descendants(p.pid).iter().any(|below| is_anothers(below.pid))
    };
    Ok(servers.into_iter().filter(is_needed).map(|(p, _)| p.pid).collect())
}

/// Whether a server of its agent's has started a process, and starts another one for the session if that one dies without
/// having been told to end.
pub(crate) fn is_kept(adapter: &dyn Adapter, process: &Identity) -> Result<bool, ScanError> {
    let table = Table::scan()?;
    let mut above = table.get(process.pid).and_then(|p| table.get(p.ppid));
    for _ in 0..DEEPEST {
        let Some(process) = above else { return Ok(false) };
        if adapter.hosts(process) {
            return Ok(true);
        }
        above = table.get(process.ppid);
    }
    Ok(false)
}
