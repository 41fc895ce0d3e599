//! Sessions whose agent has its store where we do not look: they were launched with `CLAUDE_CONFIG_DIR`, `CODEX_HOME`, a
//! `HOME` of their own or the like, and whoever asks now has another one, or none, as what systemd starts at login.
//!
//! Where an agent was told to have its store is a fact of the launch that nobody else knows once the agent has ended.
//! So it is on record, is looked at besides, and is told to the agent again when its session goes on. Of such a store
//! only what lariat launched there is told; all else there is none of ours.

use std::collections::BTreeMap;

use lariat_adapters::Adapter;
use lariat_adapters::look::{Places, Report, Stores, same_place};
use lariat_core::Session;

use crate::launched::{All, Launched};
use crate::list::Question;

/// The stores to look at besides, each with its agent.
pub(crate) fn others(places: &Places, launched: &All) -> Vec<(&'static dyn Adapter, Places)> {
    let known = launched.by_id.values().chain(&launched.without_id);
    let told = known.filter_map(|l| Some(((l.record.agent.as_str(), l.record.stores.as_ref()?), ())));
    let told: BTreeMap<(&str, &Stores), ()> = told.collect();
    let there = told.into_keys().filter_map(|(agent, stores)| {
        let adapter = lariat_adapters::named(agent)?;
        let there = places.at(stores);
        (!is_same(adapter, places, &there)).then_some((adapter, there))
    });
    let mut found: Vec<(&'static dyn Adapter, Places)> = Vec::new();
    for (adapter, there) in there {
        // Variables of other agents make no other store of this one.
        if !found.iter().any(|(a, p)| a.name() == adapter.name() && is_same(adapter, p, &there)) {
            found.push((adapter, there));
        }
    }
    found
}

fn is_same(adapter: &dyn Adapter, one: &Places, other: &Places) -> bool {
    same_place(&adapter.store(one), &adapter.store(other))
        && (adapter.name() != "opencode" || one.opencode_db == other.opencode_db)
}

/// What is told of such a store: the sessions that lariat launched, and those that their processes moved on to.
pub(crate) fn ours_of(mut report: Report) -> Report {
    report.sessions.retain(|s| s.handle.is_some());
    report.lines.clear();
    report.unbound.clear();
    report.hidden = 0;
    report
}

/// A question as one would ask it who looks where these variables lead.
pub(crate) fn seen_from(question: &Question, adapter: &dyn Adapter, stores: &Stores) -> Question {
    let there = question.places.at(stores);
    match is_same(adapter, &question.places, &there) {
        true => question.clone(),
        false => Question { places: there, ..question.clone() },
    }
}

/// Where a session that was launched with these variables is stored: where it was seen, else where they lead.
pub(crate) fn store_of(places: &Places, adapter: &dyn Adapter, session: &Session, stores: &Stores) -> Places {
    let there = places.at(stores);
    match is_seen_in(places, adapter, session) || is_same(adapter, places, &there) {
        true => places.clone(),
        false => there,
    }
}

fn is_seen_in(places: &Places, adapter: &dyn Adapter, session: &Session) -> bool {
    session.transcript.as_ref().is_some_and(|t| t.starts_with(adapter.store(places)))
}

/// Where the store of a session is that goes on: where it was seen, unless a person says otherwise now.
pub(crate) fn goes_on_with(
    places: &Places,
    adapter: &dyn Adapter,
    session: &Session,
    launched: Option<&Launched>,
    env: &[(String, String)],
) -> Stores {
    let now = Places::stores_of(env);
    let Some(then) = launched.and_then(|l| l.record.stores.as_ref()) else { return now };
    let seen_here = is_seen_in(places, adapter, session);
    // What lariat speaks to has a store that lariat does not know.
    if !adapter.is_spoken_for() && (seen_here || is_same(adapter, places, &places.at(then))) {
        return now;
    }
    let told = env.iter().filter(|(name, _)| Places::is_store(name));
    then.clone().into_iter().chain(told.cloned()).collect()
}
