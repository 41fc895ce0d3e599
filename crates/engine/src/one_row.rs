//! One session, one row, where two adapters see it: the agent's own store, and the connection that lariat
//! owns to the same agent.
//!
//! Agents that speak ACP keep their sessions as ever, under the same ids. While our owner lives, the
//! session is its; once it is gone, the row of the connection stays, unless the agent's own adapter sees
//! somebody else in the session, or cannot tell: then that is the truth, and the handle goes with it.
//!
//! It decides nothing about life: it only chooses which of two answers is told.

use std::collections::{HashMap, HashSet};

use lariat_sys::scan::Table;

use crate::acp::is_owned;
use crate::list::Answer;

/// Leaves one row of two.
pub fn of_both(answer: &mut Answer, table: Option<&Table>) {
    let Answer { listing, lines, .. } = answer;
    let owned = listing.sessions.iter().filter(|s| is_owned(s.agent));
    let mut owned: HashMap<String, (Option<bool>, Option<String>)> =
        owned.map(|s| (s.native_id.raw().to_owned(), (s.live, s.handle.clone()))).collect();
    if owned.is_empty() {
        return;
    }
    // An agent that one of our owners started is not without a session.
    let owners: Vec<u32> = listing.sessions.iter().filter(|s| is_owned(s.agent)).filter_map(|s| s.pid).collect();
    let theirs = owners.iter().flat_map(|pid| table.into_iter().flat_map(|t| t.descendants(*pid)));
    let theirs: HashSet<u32> = theirs.map(|p| p.pid).collect();
    listing.unbound.retain(|u| !theirs.contains(&u.pid));
    lines.retain(|l| !owned.contains_key(l.native_id())); // ended, as the row of the connection tells
    let mut elsewhere: HashSet<String> = HashSet::new();
    listing.sessions.retain_mut(|s| {
        if is_owned(s.agent) {
            return true;
        }
        let Some((live, handle)) = owned.get_mut(s.native_id.raw()) else { return true };
        let held_by_us = s.pid.is_some_and(|pid| theirs.contains(&pid));
        if *live != Some(false) || s.live == Some(false) || held_by_us {
            return false;
        }
        s.handle = handle.take().or(s.handle.take());
        elsewhere.insert(s.native_id.raw().to_owned());
        true
    });
    listing.sessions.retain(|s| !is_owned(s.agent) || !elsewhere.contains(s.native_id.raw()));
}
