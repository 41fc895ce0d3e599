//! One session, one row, where two adapters see it: the agent's own store, and the connection that lariat
//! owns to the same agent.
//!
//! Agents that speak ACP keep their sessions as ever, under the same ids. While our owner lives, the
//! session is its; once it is gone, the row of the connection stays, unless the agent's own adapter sees
//! somebody else in the session, or cannot tell: then that is the truth, and the handle goes with it, as does what a person
//! called it. The id that is not shown means it too ([`Session::also`](lariat_core::Session)).
//!
//! The agent's store knows what no connection tells: what was used, the branch, the model that answered; that a turn
//! failed, where the agent tells its client that it ended well (codex-acp). And once the owner is gone, it alone knows of
//! turns that somebody began elsewhere since: then the row says what it says.
//!
//! What else such an agent has open, and has stored nothing of, is no session: Codex makes itself one when it takes
//! another up again.
//!
//! It decides nothing about life: it only chooses which of two answers is told.

use std::collections::{HashMap, HashSet};

use lariat_adapters::look::About;
use lariat_core::{Fact, Observation, Role, Session, Status, Untrusted};
use lariat_sys::scan::Table;

use crate::acp::is_owned;
use crate::launched::All;
use crate::list::Answer;

/// Leaves one row of two.
pub fn of_both(answer: &mut Answer, launched: &All, table: Option<&Table>) {
    let Answer { listing, lines, .. } = answer;
    let owned = listing.sessions.iter().filter(|s| is_owned(s.agent));
    let owned: HashMap<String, Box<Session>> = owned.map(|s| (s.native_id.raw().to_owned(), s.clone())).collect();
    if owned.is_empty() {
        return;
    }
    // An agent that one of our owners started is not without a session.
    let owners: Vec<u32> = listing.sessions.iter().filter(|s| is_owned(s.agent)).filter_map(|s| s.pid).collect();
    let theirs = owners.iter().flat_map(|pid| table.into_iter().flat_map(|t| t.descendants(*pid)));
    let theirs: HashSet<u32> = theirs.map(|p| p.pid).collect();
    listing.unbound.retain(|u| !theirs.contains(&u.pid));
    let is_of_them = |s: &Session| s.pid.is_some_and(|pid| theirs.contains(&pid));
    let is_theirs = |s: &Session| !is_owned(s.agent) && owned.contains_key(s.native_id.raw()) && is_of_them(s);
    let behind: HashSet<u32> = listing.sessions.iter().filter(|s| is_theirs(s)).filter_map(|s| s.pid).collect();
    let is_bare = |s: &Session| s.transcript.is_none() && s.pid.is_some_and(|pid| behind.contains(&pid));
    listing.sessions.retain(|s| is_owned(s.agent) || owned.contains_key(s.native_id.raw()) || !is_bare(s));
    let mut theirs_too: HashMap<String, Untrusted> = HashMap::new();
    lines.retain(|l| {
        let both = owned.contains_key(l.native_id()); // ended, as the row of the connection tells
        theirs_too.extend(both.then(|| (l.native_id().to_owned(), Untrusted::new(l.id()))));
        !both
    });
    let mut elsewhere: HashSet<String> = HashSet::new();
    let mut as_stored: HashMap<String, Box<Session>> = HashMap::new();
    listing.sessions.retain_mut(|s| {
        if is_owned(s.agent) {
            return true;
        }
        let Some(ours) = owned.get(s.native_id.raw()) else { return true };
        if ours.live != Some(false) || s.live == Some(false) || is_of_them(s) {
            as_stored.insert(s.native_id.raw().to_owned(), s.clone());
            return false;
        }
        s.also = Some(ours.id.clone());
        s.handle = ours.handle.clone().or(s.handle.take());
        s.name = ours.name.clone().or(s.name.take());
        s.group = ours.group.clone().or(s.group.take());
        s.kept |= ours.kept;
        elsewhere.insert(s.native_id.raw().to_owned());
        true
    });
    listing.sessions.retain(|s| !is_owned(s.agent) || !elsewhere.contains(s.native_id.raw()));
    for s in listing.sessions.iter_mut().filter(|s| is_owned(s.agent)) {
        s.also = theirs_too.remove(s.native_id.raw());
        if let Some(stored) = as_stored.remove(s.native_id.raw()) {
            match went_on(s, &stored, launched) {
                true => tell_as_stored(s, &stored),
                false if (s.status, stored.status) == (Status::Done, Status::Failed) => tell_failure(s, &stored),
                false => {}
            }
            complete(s, *stored);
        }
    }
}

/// Whether somebody began a turn elsewhere, after the end of our connection, and that has ended too.
fn went_on(ours: &Session, stored: &Session, launched: &All) -> bool {
    let about = About { updated_at: stored.updated_at, ..About::default() };
    let both_ended = ours.live == Some(false) && stored.live == Some(false);
    both_ended && launched.by_id.get(ours.id.raw()).is_some_and(|l| l.was_followed(&about))
}

/// What the row says is what the store says. It is still the session that was launched.
fn tell_as_stored(ours: &mut Session, stored: &Session) {
    ours.status = stored.status;
    ours.reason = stored.reason.clone();
    ours.because = stored.because.clone();
    (ours.exit, ours.restorable) = (stored.exit, stored.restorable);
    (ours.updated_at, ours.ended_at) = (stored.updated_at, stored.ended_at);
    (ours.title, ours.cost_usd) = (stored.title.clone(), stored.cost_usd);
    ours.transcript = stored.transcript.clone();
    ours.teller = Some(stored.agent);
}

/// The turn that ended well, as the connection tells, failed.
fn tell_failure(ours: &mut Session, stored: &Session) {
    (ours.status, ours.reason) = (stored.status, stored.reason.clone());
    let is_of_turn = |o: &Observation| matches!(o.fact, Fact::Turn(_));
    let overruled = |(role, o): (Role, Observation)| (if is_of_turn(&o) { Role::Disagreed } else { role }, o);
    let before: Vec<_> = std::mem::take(&mut ours.because).into_iter().map(overruled).collect();
    ours.because = stored.because.iter().filter(|(_, o)| is_of_turn(o)).cloned().chain(before).collect();
    ours.because.sort_by_key(|(role, o)| (*role, o.witness));
}

/// What the connection does not tell.
fn complete(ours: &mut Session, stored: Session) {
    ours.tokens = stored.tokens;
    ours.cost_usd = ours.cost_usd.or(stored.cost_usd);
    ours.model = stored.model.or(ours.model.take()); // rather the one that answered than what was chosen, as "default"
    ours.branch = stored.branch;
    ours.title = ours.title.take().or(stored.title);
    ours.also = Some(stored.id);
}
