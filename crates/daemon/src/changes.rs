//! What has changed between two looks: pure, and the one place where events are made.
//!
//! What was seen is kept in memory only, and only of sessions that were seen alive.
//! It decides nothing but what is worth telling.
//!
//! Three rules keep an event from being a rumour:
//! - The first good look at an agent's sessions tells of nothing: what is there was
//!   there before.
//! - An end is told only of what was seen alive, and only by a row that says so or by
//!   a whole listing without it. A look that failed for that agent ends nothing, nor
//!   does one that cannot tell what the session's process is at.
//! - One word is told once. A session that still waits is told again only if it asks
//!   something else.

use std::collections::{BTreeMap, HashMap, HashSet};

use lariat_core::{Session, Status, Time, Untrusted};
use lariat_engine::claims::Claim;
use lariat_engine::list::Answer;
use serde::Serialize;

use crate::fuses::Fuse;

/// One thing that has changed.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// The event's name.
    pub event: &'static str,
    /// When it was seen.
    pub at: Time,
    /// What the session was before.
    pub was: Option<Status>,
    /// What it is about.
    pub about: About,
}

/// What a change is about.
#[derive(Clone, PartialEq, Debug)]
pub enum About {
    /// A session, as it is now.
    Session(Box<Session>),
    /// An adapter, or `process`, and why it failed.
    Adapter(&'static str, Option<String>),
    /// A person's claim.
    Claim(Claim),
    /// A fuse, and the sessions it is on.
    Fuse(Box<Fuse>, Vec<String>),
}

impl Change {
    /// What it is known by over a crash: a fuse burns down once, whoever tells it.
    pub fn key(&self) -> Option<String> {
        match &self.about {
            About::Fuse(fuse, _) if self.event == "fuse.fired" => Some(format!("fired-{}", fuse.id)),
            _ => None,
        }
    }

    /// As one object; `id` tells which event this is.
    pub fn told<'a>(&'a self, id: &'a str) -> impl Serialize + 'a {
        #[derive(Serialize)]
        struct Adapter<'a> {
            name: &'a str,
            error: Option<&'a str>,
        }
        #[derive(Serialize)]
        struct Told<'a> {
            schema: u32,
            id: &'a str,
            event: &'a str,
            at: Time,
            was: Option<Status>,
            session: Option<&'a Session>,
            adapter: Option<Adapter<'a>>,
            claim: Option<&'a Claim>,
            fuse: Option<&'a Fuse>,
            sessions: Option<&'a [String]>,
        }
        let (mut session, mut adapter, mut claim, mut fuse, mut sessions) = (None, None, None, None, None);
        match &self.about {
            About::Session(s) => session = Some(&**s),
            About::Adapter(name, error) => adapter = Some(Adapter { name, error: error.as_deref() }),
            About::Claim(c) => claim = Some(c),
            About::Fuse(f, on) => (fuse, sessions) = (Some(&**f), Some(on.as_slice())),
        }
        Told { schema: 1, id, event: self.event, at: self.at, was: self.was, session, adapter, claim, fuse, sessions }
    }

    /// What it is about, in one word for a log: an id, a name, a path.
    pub fn subject(&self) -> &str {
        match &self.about {
            About::Session(s) => s.id.raw(),
            About::Adapter(name, _) => name,
            About::Claim(c) => &c.path,
            About::Fuse(f, _) => &f.id,
        }
    }
}

/// What was seen last.
#[derive(Default)]
pub struct Changes {
    /// Sessions that were seen alive and have not been seen to end.
    alive: HashMap<String, Box<Session>>,
    /// Agents whose sessions were seen at least once.
    based: HashSet<&'static str>,
    failing: BTreeMap<&'static str, String>,
    claims: Option<HashMap<(u64, u64), Claim>>,
}

impl Changes {
    /// Whether a look at what lives leaves open how something ended: then everything
    /// must be looked at.
    pub fn misses_one(&self, answer: &Answer) -> bool {
        let here: HashSet<&str> = answer.listing.sessions.iter().map(|s| s.id.raw()).collect();
        self.alive.values().any(|s| !here.contains(s.id.raw()) && !failed(answer, s.agent) && !is_unbound(answer, s))
    }

    /// Takes a look in; what it changes. `whole` says that ended sessions are in it.
    pub fn take(&mut self, answer: &Answer, whole: bool) -> Vec<Change> {
        let at = answer.listing.at;
        let mut changes = self.adapters(answer, at);
        let mut here: HashSet<&str> = HashSet::new();
        for session in &answer.listing.sessions {
            if self.alive.contains_key(session.id.raw()) || session.live == Some(true) {
                here.insert(session.id.raw());
                self.session(session, at, &mut changes);
            }
        }
        let is_gone =
            |s: &Session| whole && !here.contains(s.id.raw()) && !failed(answer, s.agent) && !is_unbound(answer, s);
        let gone: Vec<String> = self.alive.iter().filter(|(_, s)| is_gone(s)).map(|(id, _)| id.clone()).collect();
        for mut session in gone.iter().filter_map(|id| self.alive.remove(id)) {
            let was = Some(session.status);
            (session.status, session.live, session.pid) = (Status::Unknown, Some(false), None);
            session.reason = Untrusted::from("it has ended and left no record");
            session.because.clear();
            changes.push(Change { event: "session.ended", at, was, about: About::Session(session) });
        }
        let well = lariat_adapters::all().into_iter().map(|a| a.name()).filter(|name| !failed(answer, name));
        self.based.extend(well);
        changes
    }

    fn session(&mut self, now: &Session, at: Time, changes: &mut Vec<Change>) {
        let before = self.alive.get(now.id.raw());
        let was = before.map(|b| b.status);
        let mut tell = |event| changes.push(Change { event, at, was, about: About::Session(Box::new(now.clone())) });
        if now.live == Some(false) {
            tell("session.ended");
            self.alive.remove(now.id.raw());
            return;
        }
        let known = before.is_some() || !self.based.contains(now.agent);
        let other_process = before.is_some_and(|b| match (b.pid.zip(b.start), now.pid.zip(now.start)) {
            (Some(before), Some(now)) => before != now,
            _ => false,
        });
        if !known || other_process {
            tell("session.started");
        }
        let asks_anew = before.is_some_and(|b| b.status == Status::Waiting && asked(b) != asked(now));
        let silent = before.is_none() && known;
        if !silent && (was != Some(now.status) || (now.status == Status::Waiting && asks_anew)) {
            match now.status {
                Status::Waiting => tell("session.waiting"),
                Status::Working => tell("session.working"),
                Status::Idle => tell("session.idle"),
                Status::Unknown => tell("session.unknown"),
                _ => {}
            }
        }
        self.alive.insert(now.id.raw().to_owned(), Box::new(now.clone()));
    }

    fn adapters(&mut self, answer: &Answer, at: Time) -> Vec<Change> {
        let now: BTreeMap<&'static str, String> = answer.failed.iter().cloned().collect();
        let tell = |event, name, error: Option<&String>| Change {
            event,
            at,
            was: None,
            about: About::Adapter(name, error.cloned()),
        };
        let failed = now.iter().filter(|(name, _)| !self.failing.contains_key(*name));
        let failed = failed.map(|(name, error)| tell("adapter.failed", name, Some(error)));
        let back = self.failing.keys().filter(|name| !now.contains_key(*name));
        let changes = failed.chain(back.map(|name| tell("adapter.recovered", name, None))).collect();
        self.failing = now;
        changes
    }

    /// The session that this process holds.
    pub fn held_by(&self, pid: u32) -> Option<&Session> {
        let mut held = self.alive.values().filter(|s| s.pid == Some(pid));
        held.next().filter(|_| held.next().is_none()).map(|s| &**s)
    }

    /// Takes in that a session has ended.
    pub fn take_end(&mut self, ended: Box<Session>, at: Time) -> Change {
        let was = self.alive.remove(ended.id.raw()).map(|s| s.status);
        Change { event: "session.ended", at, was, about: About::Session(ended) }
    }

    /// Takes in what people claim now; what that changes.
    pub fn take_claims(&mut self, claims: Vec<Claim>, at: Time) -> Vec<Change> {
        let now: HashMap<(u64, u64), Claim> = claims.into_iter().map(|c| (c.place, c)).collect();
        let Some(before) = self.claims.replace(now.clone()) else { return Vec::new() };
        let tell = |event, c: &Claim| Change { event, at, was: None, about: About::Claim(c.clone()) };
        let mut changes: Vec<Change> = Vec::new();
        for claim in before.values().filter(|c| !now.contains_key(&c.place)) {
            changes.push(tell(if claim.until <= at { "claim.expired" } else { "claim.released" }, claim));
        }
        for claim in now.values().filter(|c| before.get(&c.place) != Some(c)) {
            changes.push(tell("claim.taken", claim));
        }
        changes
    }

    /// The adapters that fail now, and why.
    pub fn failing(&self) -> &BTreeMap<&'static str, String> {
        &self.failing
    }
}

/// What a session asks: its reason, without how long ago somebody asked to end it,
/// which says nothing new every second.
fn asked(session: &Session) -> &str {
    let reason = session.reason.raw();
    reason.split_once(" and not finished; ").map_or(reason, |(_, asked)| asked)
}

/// Whether a look says nothing of this agent's ends.
fn failed(answer: &Answer, agent: &str) -> bool {
    answer.failed.iter().any(|(name, _)| *name == agent || *name == "process")
}

/// Whether the process that a session was seen in is there, and tied to no session.
fn is_unbound(answer: &Answer, session: &Session) -> bool {
    session.pid.is_some_and(|pid| answer.listing.unbound.iter().any(|u| u.pid == pid && u.agent == session.agent))
}

#[cfg(test)]
#[path = "changes_tests.rs"]
pub(crate) mod tests;
