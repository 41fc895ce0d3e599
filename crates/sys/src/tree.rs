//! Ending processes: a whole tree, each one by its identity, and for sure.
//!
//! No signal goes to a bare PID. Every process is opened as a pidfd, compared
//! with what the scan saw, and signalled through that: should it have ended and
//! its number been given out again, nobody is hit. Agents put their tools into
//! sessions of their own, so groups mean nothing here: the tree is every
//! descendant, every stray that carries a mark of the session in its
//! environment, and whoever is in the session's [`House`].
//!
//! A tree may grow while it is ended. In a cgroup of its own one blow of the
//! kernel's ends all, and no fork escapes it. Without one, all are halted first,
//! until a scan finds nobody new: who is halted cannot fork, and whoever it
//! started is still its child.
//!
//! It never decides whom to end: the caller names the root, the marks and the
//! house, and those to be spared.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
pub use rustix::process::Signal;
use rustix::process::pidfd_send_signal;

use crate::cgroup::Cgroup;
use crate::point::point;
use crate::process::{self, Identity, is_gone};
use crate::scan::{Process, ScanError, Table};

/// How long a gentle signal may take before the next one.
const NEXT: Duration = Duration::from_secs(3);
/// How long the hard way may take before survivors are named. A large process that was
/// struck is seconds in dying on a busy machine; one that cannot die is rare.
const HARD: Duration = Duration::from_secs(20);
/// The same, if nobody who is left may be signalled.
const REFUSED: Duration = Duration::from_secs(1);

/// What belongs to a session.
pub struct Tree {
    /// Its own process, if that is known to live.
    pub root: Option<Identity>,
    /// Variables that its tools carry, wherever they are: name and value.
    pub marks: Vec<(String, String)>,
    /// Processes of other sessions, never to be touched, nor what they started.
    pub spared: HashSet<u32>,
    /// Processes that are spared by themselves; what they started is not.
    pub aside: HashSet<u32>,
}

/// Where a session was put when it was started, so that nothing of it is lost.
#[derive(Clone, Default, Debug)]
pub struct House {
    /// The cgroup made for it.
    pub cgroup: Option<Cgroup>,
    /// The process that its orphans come to: its children are the session's.
    pub reaper: Option<Identity>,
    /// Whoever else holds the session and is not part of it.
    pub holders: Vec<Identity>,
}

/// One process of a tree, held by its pidfd.
struct Member {
    identity: Identity,
    comm: String,
    /// It was halted as the scan saw it.
    halted: bool,
    pidfd: OwnedFd,
}

/// A process that would not end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Survivor {
    /// Its PID.
    pub pid: u32,
    /// Its command name.
    pub comm: String,
    /// It is another user's, and not ours to signal.
    pub refused: bool,
}

/// How an ending went.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Ended {
    /// Those that were there and are gone.
    pub gone: Vec<u32>,
    /// Those that are still there.
    pub survivors: Vec<Survivor>,
}

/// No tree of processes is deeper.
const DEEPEST: usize = 10_000;

impl Tree {
    /// Ends the tree: the gentle signals to the root, one after the other within
    /// the grace period; then everything at once, again and again, until a scan
    /// finds nothing of it.
    pub fn end(&self, gentle: &[Signal], grace: Duration) -> Result<Ended, ScanError> {
        self.end_in(&House::default(), gentle, grace)
    }

    /// The same, with everyone in the session's house.
    pub fn end_in(&self, house: &House, gentle: &[Signal], grace: Duration) -> Result<Ended, ScanError> {
        let mut seen: Vec<Identity> = Vec::new();
        let members = self.members(house, &mut seen)?;
        let root = members.iter().find(|m| self.root.as_ref() == Some(&m.identity));
        if let Some(root) = root
            && !gentle.is_empty()
        {
            let until = Instant::now() + grace;
            for (i, signal) in gentle.iter().enumerate() {
                if !root.signal(*signal)? {
                    break;
                }
                if root.halted {
                    root.signal(Signal::CONT)?; // before that it heeds nothing
                }
                let left = until.saturating_duration_since(Instant::now());
                let patience = if i + 1 < gentle.len() { left.min(NEXT) } else { left };
                if wait_all(std::slice::from_ref(root), patience)? {
                    break;
                }
            }
        }
        // What the root left behind gets the same word, and a moment to heed it.
        if !gentle.is_empty() {
            let mut rest = Vec::new();
            for member in self.members(house, &mut seen)? {
                let heard = member.signal(Signal::TERM)?;
                member.signal(Signal::CONT)?;
                rest.extend(heard.then_some(member));
            }
            wait_all(&rest, grace.min(Duration::from_secs(1)))?;
        }
        self.kill(house, seen)
    }

    fn kill(&self, house: &House, mut seen: Vec<Identity>) -> Result<Ended, ScanError> {
        let began = Instant::now();
        loop {
            let mut members = self.members(house, &mut seen)?;
            point("tree.found");
            let in_one_blow = match &house.cgroup {
                Some(cgroup) => {
                    let spared = self.all_spared(house, &Table::scan()?);
                    cgroup.kill(|pid| spared.contains(&pid))?
                }
                None => false,
            };
            if !in_one_blow {
                members = self.halt(house, members, &mut seen, began)?;
                point("tree.halted");
            }
            let mut refused = HashSet::new();
            for member in &members {
                if !member.signal(Signal::KILL)? {
                    refused.insert(member.identity.pid);
                }
            }
            // Who may not be signalled now is hardly ever ours a moment later.
            let patience = if !in_one_blow && refused.len() == members.len() { REFUSED } else { HARD };
            if members.is_empty() || began.elapsed() > patience {
                let told = |m: &Member| {
                    let pid = m.identity.pid;
                    Survivor { pid, comm: m.comm.clone(), refused: refused.contains(&pid) }
                };
                let survivors: Vec<Survivor> = members.iter().map(told).collect();
                let left: HashSet<u32> = survivors.iter().map(|s| s.pid).collect();
                let gone = seen.into_iter().map(|i| i.pid).filter(|pid| !left.contains(pid)).collect();
                return Ok(Ended { gone, survivors });
            }
            point("tree.struck");
            wait_all(&members, Duration::from_millis(200))?;
        }
    }

    /// Halts everyone until nobody new is found: all that are in the tree.
    fn halt(
        &self,
        house: &House,
        mut members: Vec<Member>,
        seen: &mut Vec<Identity>,
        began: Instant,
    ) -> Result<Vec<Member>, ScanError> {
        let mut halted: HashSet<u32> = HashSet::new();
        loop {
            let mut any = false;
            for member in &members {
                if halted.insert(member.identity.pid) {
                    member.signal(Signal::STOP)?;
                    any = true;
                }
            }
            if !any || began.elapsed() > HARD {
                return Ok(members);
            }
            members = self.members(house, seen)?;
        }
    }

    /// Everyone in the tree now, each checked to be the one the scan saw. Who was
    /// seen before stays in it, whoever its parent is by now.
    fn members(&self, house: &House, seen: &mut Vec<Identity>) -> Result<Vec<Member>, ScanError> {
        // Before the scan, which is therefore sure to show them.
        let inside = house.cgroup.as_ref().map(Cgroup::members).transpose()?.unwrap_or_default();
        let table = Table::scan()?;
        let spared = self.all_spared(house, &table);
        // Each is opened and compared before anything is concluded from it.
        let known = self.root.iter().chain(seen.iter()).filter(|i| is_now(i)).filter_map(|i| table.get(i.pid));
        let orphans = house.reaper.iter().filter(|r| is_now(r)).flat_map(|r| table.children(r.pid));
        let inside = inside.iter().filter_map(|pid| table.get(*pid));
        let mut found: Vec<&Process> =
            known.chain(inside).chain(orphans).chain(table.iter().filter(|p| self.is_marked(p))).collect();
        let started: Vec<&Process> = found.iter().flat_map(|p| table.descendants(p.pid)).collect();
        found.extend(started);
        let mut members: Vec<Member> = Vec::new();
        for process in found {
            let taken = members.iter().any(|m| m.identity.pid == process.pid);
            if taken || spared.contains(&process.pid) {
                continue;
            }
            let (identity, pidfd) = match Identity::open(process.pid) {
                Ok(opened) => opened,
                Err(e) if is_gone(&e) => continue,
                Err(e) => return Err(e.into()),
            };
            if identity.start != process.start {
                continue; // its number was given out again
            }
            if !seen.contains(&identity) {
                seen.push(identity.clone());
            }
            members.push(Member { identity, comm: process.comm.clone(), halted: process.halted, pidfd });
        }
        Ok(members)
    }

    /// Whether a process is one of the spared, or comes from one of them and not from
    /// the root: what the root started is its own, wherever the root stands.
    fn is_shielded(&self, process: &Process, root: Option<u32>, table: &Table) -> bool {
        let mut at = Some(process);
        // Parents that were read at different moments could form a ring.
        for _ in 0..DEEPEST {
            match at {
                Some(p) if Some(p.pid) == root => return false,
                Some(p) if self.spared.contains(&p.pid) => return true,
                Some(p) => at = table.get(p.ppid),
                None => return false,
            }
        }
        false
    }

    fn is_marked(&self, process: &Process) -> bool {
        if self.marks.is_empty() {
            return false;
        }
        let Ok(environment) = process::environment(process.pid) else { return false };
        self.marks.iter().any(|(name, value)| environment.get(name) == Some(value))
    }

    /// The spared, what they started, whoever holds the session, and whoever asks:
    /// this process and its parents.
    fn all_spared(&self, house: &House, table: &Table) -> HashSet<u32> {
        let root = self.root.as_ref().map(|r| r.pid);
        let holders = house.reaper.iter().chain(&house.holders).filter(|h| is_now(h));
        let mut spared: HashSet<u32> = holders.map(|h| h.pid).collect();
        let mut asking = std::process::id();
        let mut asks: HashSet<u32> = HashSet::new();
        while let Some(process) = table.get(asking).filter(|p| Some(p.pid) != root && asks.insert(p.pid)) {
            asking = process.ppid;
        }
        spared.extend(asks);
        spared.extend(self.aside.iter().filter(|p| Some(**p) != root));
        spared.extend(table.iter().filter(|p| self.is_shielded(p, root, table)).map(|p| p.pid));
        spared
    }
}

impl Member {
    /// Whether it may be signalled at all; who is not ours to signal is named as a survivor.
    fn signal(&self, signal: Signal) -> io::Result<bool> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(true),
            Err(rustix::io::Errno::PERM) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}

/// Whether a PID is still held by that very process.
fn is_now(identity: &Identity) -> bool {
    Identity::open(identity.pid).is_ok_and(|(now, _)| now.is(identity))
}

/// Waits until all have exited; `false` if the time was up before.
fn wait_all(members: &[Member], at_most: Duration) -> io::Result<bool> {
    let until = Instant::now() + at_most;
    for member in members {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut [PollFd::new(&member.pidfd, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return Ok(false),
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
    Ok(true)
}
