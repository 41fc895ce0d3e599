//! Telling others what happens: webhooks, commands, notes on the desktop.
//!
//! # Theory of operation
//!
//! An event that somebody wants becomes a file in the outbox ([`outbox`]) before
//! anything is sent. A thread for each who is told takes what is due, in order, and
//! sends it ([`send`]); one that is slow or gone holds up nobody else. What is not
//! taken is tried again later and later; after the last try it is a dead letter, which
//! a person can see. So everything owed is told at least once, over any crash, and the
//! delivery's id tells those who are told twice.
//!
//! Who is told is read from the settings whenever something happens: there is nothing
//! to restart.

pub mod outbox;
mod send;
pub mod sign;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lariat_adapters::look::Places;
use lariat_adapters::settings::{Hook, Settings, Told};
use lariat_core::Time;
use lariat_sys::clock;
use lariat_sys::point::point;

pub use send::words;

use crate::Daemon;
use crate::hub::Event;
use outbox::{Outbox, Owed};

/// More than this is not kept for one who is told.
const MOST: usize = 10_000;
/// So many dead letters are kept.
const DEAD: usize = 1000;
/// However long there is to wait, the clock is looked at this often.
const LONGEST: Duration = Duration::from_secs(3600);

/// What is owed to whom.
pub struct Deliver {
    outbox: Outbox,
    /// Held whenever the outbox changes, too: what is told once more just as it was taken is owed anew, on disk and here.
    state: Mutex<State>,
    stirred: Condvar,
}

#[derive(Default)]
struct State {
    /// Without their bodies, which stay on disk.
    owed: HashMap<Told, Vec<Owed>>,
    /// Who has a thread.
    served: HashSet<Told>,
    delivered: u64,
    failed: u64,
    given_up: u64,
}

impl Deliver {
    /// With what an earlier daemon left.
    pub fn new(state: &Path) -> Deliver {
        let outbox = Outbox::at(state);
        outbox.tidy();
        let mut owed: HashMap<Told, Vec<Owed>> = HashMap::new();
        for one in outbox.owed() {
            owed.entry(one.told()).or_default().push(Owed { body: String::new(), ..one });
        }
        Deliver { outbox, state: Mutex::new(State { owed, ..State::default() }), stirred: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is owed.
    pub fn has(&self, id: &str) -> bool {
        self.outbox.get(id).is_some()
    }

    /// Makes one thing owed; it is told once [`start`] is called.
    pub fn keep(&self, owed: &Owed) -> std::io::Result<()> {
        let mut state = self.lock();
        let all = state.owed.entry(owed.told()).or_default();
        if all.iter().all(|o| o.id != owed.id) {
            self.outbox.put(owed)?;
            point("deliver.owed");
            all.push(Owed { body: String::new(), ..owed.clone() });
        }
        Ok(())
    }

    /// How many were taken, tried in vain, and given up; and how many are owed.
    pub fn counts(&self) -> (u64, u64, u64, usize) {
        let state = self.lock();
        (state.delivered, state.failed, state.given_up, state.owed.values().map(Vec::len).sum())
    }
}

/// Makes these events owed to all who want them, and sees to it that they are told.
pub fn owe(daemon: &Arc<Daemon>, events: &[Arc<Event>]) {
    if events.is_empty() {
        return;
    }
    point("deliver.begin");
    let deliver = &daemon.deliver;
    let hooks = Settings::read(&daemon.places).hooks;
    for event in events {
        for hook in hooks.iter().filter(|h| h.wants(event.name)) {
            let now = Time(clock::now_ms());
            let id = event.key.clone().unwrap_or_else(|| daemon.hub.id(event.number));
            let owed = Owed::new(&hook.told, &id, event.name, now, &event.text);
            if deliver.lock().owed.get(&hook.told).is_some_and(|all| all.len() >= MOST) {
                daemon.log.error("outbox full", format!("{} is not told of {}", owed.how, owed.id));
                continue;
            }
            if let Err(e) = deliver.keep(&owed) {
                daemon.log.error("outbox", format!("{} cannot be kept: {e}", owed.id));
            }
        }
    }
    start(daemon);
}

/// Gives everyone who is owed something a thread.
pub fn start(daemon: &Arc<Daemon>) {
    let deliver = &daemon.deliver;
    let mut state = deliver.lock();
    let waiting: Vec<Told> = state.owed.keys().filter(|t| !state.served.contains(*t)).cloned().collect();
    for told in waiting {
        let ours = Arc::clone(daemon);
        let who = told.clone();
        let thread = std::thread::Builder::new().name("deliver".into()).stack_size(256 << 10);
        match thread.spawn(move || serve(&ours, &who)) {
            Ok(_) => drop(state.served.insert(told)),
            Err(e) => daemon.log.error("thread", e.to_string()),
        }
    }
    drop(state);
    deliver.stirred.notify_all();
}

/// Tells one what is owed to him, until nothing is.
fn serve(daemon: &Arc<Daemon>, told: &Told) {
    let deliver = &daemon.deliver;
    loop {
        let mut state = deliver.lock();
        let next = state.owed.get(told).and_then(|all| all.iter().min_by_key(|o| o.next)).cloned();
        let Some(owed) = next else {
            state.owed.remove(told);
            state.served.remove(told);
            return;
        };
        let left = u64::try_from(owed.next.0 - clock::now_ms()).unwrap_or(0);
        if left > 0 {
            let wait = Duration::from_millis(left).min(LONGEST);
            drop(deliver.stirred.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner));
            continue;
        }
        drop(state);
        let outcome = attempt(daemon, &owed);
        point("deliver.sent");
        let mut state = deliver.lock();
        let settled = settle(daemon, &mut state, owed, outcome);
        let all = state.owed.entry(told.clone()).or_default();
        match settled {
            Settled::Over(id) => all.retain(|o| o.id != id),
            Settled::Later(owed) => all.iter_mut().filter(|o| o.id == owed.id).for_each(|o| *o = owed.clone()),
        }
    }
}

enum Settled {
    Over(String),
    Later(Owed),
}

/// Why it was not taken.
enum Refused {
    /// It may be later.
    Now(String),
    /// It never will be.
    Ever(String),
}

fn attempt(daemon: &Daemon, owed: &Owed) -> Result<(), Refused> {
    let owed = daemon.deliver.outbox.get(&owed.id).ok_or_else(|| Refused::Ever("its file is gone".into()))?;
    if owed.id.starts_with("fuse-") {
        return send::command(&owed).map_err(Refused::Ever); // a person set it with the fuse
    }
    let hooks = Settings::read(&daemon.places).hooks;
    let hook: Hook = hooks
        .into_iter()
        .find(|h| h.told == owed.told())
        .ok_or_else(|| Refused::Ever("it is no longer in the settings".into()))?;
    match hook.told {
        Told::Webhook(_) => send::webhook(&owed, &hook).map_err(Refused::Now),
        // What a command has begun may not be begun again.
        Told::Command(_) => send::command(&owed).map_err(Refused::Ever),
        Told::Desktop => send::desktop(&owed).map_err(Refused::Ever),
    }
}

fn settle(daemon: &Daemon, state: &mut State, owed: Owed, outcome: Result<(), Refused>) -> Settled {
    let deliver = &daemon.deliver;
    let whole = || deliver.outbox.get(&owed.id);
    let (why, again) = match outcome {
        Ok(()) => {
            if let Err(e) = deliver.outbox.done(&owed) {
                daemon.log.error("outbox", format!("{}: {e}", owed.id));
            }
            state.delivered += 1;
            return Settled::Over(owed.id);
        }
        Err(Refused::Now(why)) => (why, send::again(owed.tries + 1, Time(clock::now_ms()))),
        Err(Refused::Ever(why)) => (why, None),
    };
    state.failed += 1;
    let tries = owed.tries + 1;
    daemon.log.error("delivery", format!("{} to {}: {why} (try {tries})", owed.id, shown(&owed)));
    let Some(whole) = whole() else { return Settled::Over(owed.id) };
    let failed = Owed { tries, error: Some(why), next: again.unwrap_or(owed.next), ..whole };
    let kept = if again.is_some() { deliver.outbox.put(&failed) } else { deliver.outbox.give_up(&failed) };
    if let Err(e) = kept {
        daemon.log.error("outbox", format!("{}: {e}", failed.id));
    }
    if again.is_some() {
        return Settled::Later(Owed { body: String::new(), ..failed });
    }
    state.given_up += 1;
    deliver.outbox.keep_dead(DEAD);
    Settled::Over(failed.id)
}

/// Who it is for, without what may be secret in an address.
fn shown(owed: &Owed) -> String {
    match owed.how.as_str() {
        "webhook" => owed.who.split(['?', '#']).next().unwrap_or_default().to_owned(),
        how => how.to_owned(),
    }
}

/// All that is owed and all that nobody took, for a person.
pub fn list(places: &Places) -> (Vec<Owed>, Vec<Owed>) {
    let outbox = Outbox::at(&places.state);
    (outbox.owed(), outbox.dead())
}
