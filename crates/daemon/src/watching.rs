//! Looking again whenever something may have changed, and telling what has.
//!
//! # Theory of operation
//!
//! The ends of processes and the changes of files are hints that wake a fresh look;
//! nothing is concluded from a hint. The watch stands before the look that it could
//! miss something of: if a look names a place that was not watched, it is watched,
//! and looked at once more. However quiet it is, there is a look every minute; but where
//! every change of what is there would have given a hint, and none came, only the process
//! table is looked at, for a new process gives no hint ([`Watching::may_rest`]). A whole
//! look is taken every ten minutes all the same.
//!
//! Only what lives is looked at. If something that lived is not there any more,
//! everything is looked at once, to know how it ended.
//!
//! The end of a process is told at once where nothing else has stirred since the look:
//! then all that was observed still stands, but for that end ([`Watching::ends`]). The
//! look that follows may wait until it is quiet.
//!
//! Looks cost what they cost, and files may change all the time; so after a look
//! files wait for several times as long as it took. An end never waits.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lariat_adapters::look::{Places, Scope};
use lariat_core::{Listing, Session, Status, Time};
use lariat_engine::claims;
use lariat_engine::death;
use lariat_engine::list::{Answer, Question, list};
use lariat_engine::records::Wishes;
use lariat_engine::stop::is_unfinished;
use lariat_sys::vigil::{Standing, Woken};
use lariat_sys::{clock, file, scan};

use crate::changes::{Change, Changes};
use crate::fuses;
use crate::verb::Seen;

/// However quiet it is, a fresh look is taken this often.
const AT_LEAST: Duration = Duration::from_secs(60);
/// However sure it is that nothing has changed, everything is looked at this often.
const WHOLE: Duration = Duration::from_secs(600);
/// It is at rest when it was quiet for so long.
const AT_REST: Duration = Duration::from_secs(2);
/// How soon the next look is where a change may come without a hint.
const SOON: Duration = Duration::from_secs(2);
/// Files that were quiet for so long are looked at.
const QUIET: Duration = Duration::from_millis(20);
/// A burst of changes may not put a look off for longer.
const BURST: Duration = Duration::from_millis(200);
/// So many times as long as a look took, files wait for the next one.
const REST: u32 = 8;
/// After an end that was told at once, a look follows when it was calm for so long,
const CALM: Duration = Duration::from_millis(250);
/// and no later than this.
const FOLLOWS: Duration = Duration::from_secs(5);
/// A look that names new places is taken again, so many times at most.
const AGAIN: usize = 3;

/// One who looks, sleeps, and looks again.
pub struct Watching {
    question: Question,
    standing: Standing,
    changes: Changes,
    took: Duration,
    looked: Instant,
    next: Duration,
    /// When the first end was told that no look has followed yet.
    told: Option<Instant>,
    /// The last look could tell everything, and all of it gives hints.
    sure: bool,
    /// Every change of what the last look depended on gives a hint, but for new processes.
    hinted: bool,
    /// Which processes there were when it came to rest, if that is known.
    processes: Option<Option<u64>>,
    /// The number that was last given to a process before it was seen which there are.
    given: Option<u32>,
    /// When it was last seen that nothing has changed.
    checked: Instant,
    /// By the clock that tells when processes began: when the last look did.
    began: u64,
    /// When something is due that needs a look.
    due: Option<Time>,
}

/// What a look gave.
pub struct Looked {
    /// What has changed since the last one.
    pub changes: Vec<Change>,
    /// All that lives, or may.
    pub listing: Listing,
}

impl Watching {
    /// Begins; the first look tells what is there, and that nothing has changed.
    pub fn new(places: Places, deadline: Duration) -> io::Result<Watching> {
        Ok(Watching {
            question: Question { places, scope: Scope::Live, deadline, agent: None },
            standing: Standing::new()?,
            changes: Changes::default(),
            took: Duration::ZERO,
            looked: Instant::now(),
            next: Duration::ZERO,
            told: None,
            sure: false,
            hinted: false,
            processes: None,
            given: None,
            checked: Instant::now(),
            began: 0,
            due: None,
        })
    }

    /// What wakes it from another thread.
    pub fn caller(&self) -> io::Result<lariat_sys::vigil::Caller> {
        self.standing.caller()
    }

    /// How long the last look took.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// The adapters that fail now, and why.
    pub fn failing(&self) -> Vec<(&'static str, String)> {
        self.changes.failing().iter().map(|(name, why)| (*name, why.clone())).collect()
    }

    /// Looks.
    pub fn look(&mut self) -> Looked {
        let began = Instant::now();
        (self.began, self.processes) = (clock::boot_ticks(), None);
        self.standing.forget();
        self.told = None;
        let mut answer = list(self.question.clone());
        let mut stood = false;
        for _ in 0..AGAIN {
            stood = self.stand(&answer);
            if stood {
                break;
            }
            answer = list(self.question.clone());
        }
        self.sure = stood && !answer.partial && answer.listing.unbound.is_empty();
        let mut whole = false;
        if self.changes.misses_one(&answer) {
            let watched = std::mem::take(&mut answer.watch);
            answer = list(Question { scope: Scope::All, ..self.question.clone() });
            answer.watch = watched;
            whole = true;
        }
        let mut changes = self.changes.take(&answer, whole);
        let (claims, _) = claims::claims(&self.question.places);
        self.due = claims.iter().map(|c| c.until).min();
        changes.extend(self.changes.take_claims(claims, answer.listing.at));
        self.next = next_look(&answer.listing, answer.unhinted);
        self.hinted = self.sure && self.next == AT_LEAST && !whole && depends(&self.question.places, &answer).hinted;
        let mut listing = answer.listing;
        listing.sessions.retain(|s| s.live != Some(false));
        self.took = began.elapsed();
        (self.looked, self.checked) = (Instant::now(), Instant::now());
        Looked { changes, listing }
    }

    /// The ends that can be told without a look; `None` if there must be one.
    pub fn ends(&mut self) -> Option<Vec<Change>> {
        if !self.sure || self.standing.have_files_stirred() {
            return None;
        }
        let at = Time(clock::now_ms());
        let wishes = Wishes::read(&self.question.places);
        let judged = |pid: u32| {
            let session = self.changes.held_by(pid)?;
            death::judged(session, wishes.by_id.get(session.id.raw()))
        };
        // All of them or none: a look tells them all.
        let ended: Vec<_> = self.standing.ended().into_iter().map(judged).collect::<Option<_>>()?;
        let changes: Vec<Change> = ended.into_iter().map(|s| self.changes.take_end(s, at)).collect();
        self.told = self.told.or(Some(Instant::now())).filter(|_| !changes.is_empty());
        (!changes.is_empty()).then_some(changes)
    }

    /// Asks for the next look no later than this.
    pub fn no_later_than(&mut self, at: Time) {
        self.due = self.due.into_iter().chain([at]).min();
    }

    /// Whether it may sleep on though the time is up: nothing that it looked at can have
    /// changed. Where no process has begun since, that costs one small read.
    pub fn may_rest(&mut self) -> bool {
        let is_due = self.due.is_some_and(|at| at.0 <= clock::now_ms());
        if !self.hinted || self.told.is_some() || is_due || self.standing.have_files_stirred() {
            return false;
        }
        match self.processes {
            // One that began since the look is not among those it saw.
            None => {
                self.given = scan::last_given(); // first: who begins meanwhile is seen next time
                self.processes = Some(crate::warm::agents(Some(self.began)));
                true
            }
            _ if self.checked.elapsed() < AT_LEAST => true,
            Some(before) => {
                self.checked = Instant::now();
                let given = scan::last_given();
                let none_began = given.is_some() && given == std::mem::replace(&mut self.given, given);
                let same = || none_began || crate::warm::agents(None) == before;
                before.is_some() && self.looked.elapsed() < WHOLE && same()
            }
        }
    }

    /// Sleeps until it is time to look.
    pub fn sleep(&self) -> io::Result<Woken> {
        let mut left = self.next.saturating_sub(self.checked.elapsed());
        if self.hinted && self.processes.is_none() {
            left = left.min(AT_REST.saturating_sub(self.checked.elapsed()));
        }
        left = self.due.map_or(left, |at| left.min(until(at)));
        if let Some(told) = self.told {
            left = left.min(CALM).min(FOLLOWS.saturating_sub(told.elapsed()));
        }
        let woken = self.standing.sleep(left)?;
        if woken != Woken::File {
            return Ok(woken);
        }
        let rest = (self.took * REST).saturating_sub(self.looked.elapsed());
        let settled =
            if rest > BURST { self.standing.settle(rest, rest)? } else { self.standing.settle(QUIET, BURST)? };
        // What files told is forgotten by now: whatever else came, there must be a look.
        Ok(if settled == Woken::Called { Woken::Called } else { Woken::File })
    }

    /// Watches all that a look depends on; whether all of it was watched before.
    fn stand(&mut self, answer: &Answer) -> bool {
        let listing = &answer.listing;
        let sessions = listing.sessions.iter().filter(|s| s.live != Some(false));
        let pids = sessions.filter_map(|s| s.pid).chain(listing.unbound.iter().map(|u| u.pid));
        let alive = self.standing.processes(pids.collect::<HashSet<u32>>());
        let mut paths = paths(&self.question.places, answer.watch.iter().cloned(), &listing.sessions);
        stores(&self.question.places, &mut paths);
        self.standing.watch(&paths) && alive
    }
}

/// Every place whose change may change the answer: what the adapters say, what lies
/// beside the transcripts of what lives, and our own records.
pub fn paths(places: &Places, watch: impl Iterator<Item = PathBuf>, sessions: &[Box<Session>]) -> HashSet<PathBuf> {
    let mut paths: HashSet<PathBuf> = watch.collect();
    for session in sessions.iter().filter(|s| s.live != Some(false)) {
        if let Some(transcript) = &session.transcript {
            let beside = transcript.with_extension("");
            paths.extend([beside.join("subagents"), beside]);
            paths.extend(transcript.parent().map(PathBuf::from));
        }
    }
    let ours = places.state.join("sessions");
    for entry in file::Directory::open(&ours).and_then(|d| d.entries()).unwrap_or_default() {
        let folder = ours.join(entry.name);
        paths.extend([folder.join("asks"), folder]);
    }
    paths.extend([ours, places.state.join("claims"), fuses::place(places)]);
    paths
}

/// What an answer depends on: whether every change of it gives a hint, and all places
/// to watch for one.
///
/// There is none where an agent without a known session may find one, where an
/// adapter failed or does not tell where its files are, and where processes alone
/// tell: that a call of Codex waits for a person, or which thread it holds.
pub fn depends(places: &Places, answer: &Answer) -> Seen {
    let listing = &answer.listing;
    let adapters = lariat_adapters::all();
    let told = |agent: &str| adapters.iter().any(|a| a.name() == agent && a.directories(places).is_some());
    let told: HashSet<&str> = adapters.iter().map(|a| a.name()).filter(|name| told(name)).collect();
    let sure = |s: &Session| match s.live {
        Some(false) => told.contains(s.agent),
        Some(true) => s.agent == "claude",
        None => false,
    };
    // How long ago a kill was asked for that is not finished is told, and moves on.
    let wishes = Wishes::read(places);
    let unfinished = |s: &Session| wishes.by_id.get(s.id.raw()).is_some_and(|w| is_unfinished(w, s));
    let sure = |s: &Session| sure(s) && !unfinished(s);
    let hinted = !answer.partial && listing.unbound.is_empty() && listing.sessions.iter().all(|s| sure(s));
    let hinted = hinted && answer.lines.iter().all(|l| told.contains(l.agent));
    // A store that does not tell where its files are may have one more at any time.
    let local = adapters.iter().filter(|a| a.remote().is_none());
    let silent = local.filter(|a| a.directories(places).is_none()).map(|a| a.store(places));
    // Our own folders are watched one by one.
    let silent = silent.filter(|store| !store.starts_with(&places.state));
    let (there, missing): (Vec<_>, Vec<_>) = silent.partition(|store| store.exists());
    let hinted = hinted && !answer.unhinted && there.is_empty();
    let mut found = paths(places, answer.watch.iter().cloned(), &listing.sessions);
    found.extend(missing);
    stores(places, &mut found);
    Seen { hinted, paths: found.into_iter().collect() }
}

/// The directories of every store that tells them.
fn stores(places: &Places, found: &mut HashSet<PathBuf>) {
    let stores = lariat_adapters::all().into_iter().filter_map(|a| a.directories(places));
    stores.flatten().for_each(|(root, depth)| below(root, depth, found));
}

fn below(folder: PathBuf, depth: usize, found: &mut HashSet<PathBuf>) {
    if depth > 0 {
        let entries = file::Directory::open(&folder).and_then(|d| d.entries()).unwrap_or_default();
        for entry in entries.into_iter().filter(|e| matches!(e.kind, file::Kind::Directory | file::Kind::Unsure)) {
            below(folder.join(entry.name), depth - 1, found);
        }
    }
    found.insert(folder);
}

fn next_look(listing: &Listing, unhinted: bool) -> Duration {
    let codex = |s: &Session| s.agent == "codex" && s.status == Status::Working;
    let soon = unhinted || !listing.unbound.is_empty() || listing.sessions.iter().any(|s| codex(s));
    if soon { SOON } else { AT_LEAST }
}

fn until(at: Time) -> Duration {
    Duration::from_millis(u64::try_from(at.0.saturating_sub(clock::now_ms())).unwrap_or(0) + 1)
}
