//! Where events are, for a while, for whoever listens.
//!
//! One ring, bounded in number and bytes, and beside it what lives now. A listener
//! has a place in the ring and nothing else, so a slow one costs nothing and holds
//! nobody up. Who has fallen behind, or asks for what is forgotten, or for what
//! another daemon told, gets everything that lives and goes on from there: a gap is
//! never silent.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use lariat_core::{Listing, Time};
use lariat_protocol::json;
use lariat_sys::clock;

use crate::changes::Change;

/// How many events are kept.
const EVENTS: usize = 2048;
/// How many bytes of them.
const BYTES: usize = 1 << 20;

/// An event as it is told.
#[derive(Debug)]
pub struct Event {
    /// Which one.
    pub number: u64,
    /// Its name.
    pub name: &'static str,
    /// One object.
    pub text: String,
    /// What it is known by over a crash, if it may be told again after one.
    pub key: Option<String>,
}

/// What a listener gets.
pub enum Next {
    /// These, in order.
    Events(Vec<Arc<Event>>),
    /// It has missed some: all that lives, as an event of the name `reset`, and the
    /// number from which to go on.
    Reset(String, u64),
    /// Nothing, for now.
    Nothing,
    /// Nothing, ever.
    Closed,
}

/// The ring.
pub struct Hub {
    epoch: String,
    inner: Mutex<Inner>,
    stirred: Condvar,
}

#[derive(Default)]
struct Inner {
    ring: VecDeque<Arc<Event>>,
    bytes: usize,
    next: u64,
    listing: Option<Arc<Listing>>,
    /// Sessions of the listing that have ended since.
    gone: HashSet<String>,
    closed: bool,
    listeners: usize,
    counts: BTreeMap<&'static str, u64>,
}

/// A listener, counted while it is there.
pub struct Listener<'a> {
    hub: &'a Hub,
    /// The next event it wants; `None` if it must be told everything first.
    place: Option<u64>,
    /// Whether it heard something before, from here or from another.
    heard: bool,
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        self.hub.lock().listeners -= 1;
    }
}

impl Hub {
    /// An empty one. The epoch tells its events from those of another daemon.
    pub fn new(epoch: String) -> Hub {
        Hub { epoch, inner: Mutex::new(Inner { next: 1, ..Inner::default() }), stirred: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing that is done under the lock can stop half-way.
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The id of an event.
    pub fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.epoch)
    }

    /// The number of an event of this hub, by its id.
    fn number(&self, id: &str) -> Option<u64> {
        id.strip_prefix(&self.epoch)?.strip_prefix('-')?.parse().ok()
    }

    /// Adds what has changed, and what lives now.
    pub fn publish(&self, changes: &[Change], listing: Listing) -> Vec<Arc<Event>> {
        self.add(changes, Some(listing))
    }

    /// Adds ends, between two looks.
    pub fn publish_ends(&self, changes: &[Change]) -> Vec<Arc<Event>> {
        self.add(changes, None)
    }

    fn add(&self, changes: &[Change], listing: Option<Listing>) -> Vec<Arc<Event>> {
        let mut inner = self.lock();
        let mut told = Vec::with_capacity(changes.len());
        for change in changes {
            let number = inner.next;
            let mut text = Vec::new();
            if json::write(&mut text, &change.told(&self.id(number))).is_err() {
                continue; // a mistake in the program, and no reason to be silent about the rest
            }
            let text = String::from_utf8(text).unwrap_or_default();
            inner.next += 1;
            inner.bytes += text.len();
            *inner.counts.entry(change.event).or_default() += 1;
            let event = Arc::new(Event { number, name: change.event, text, key: change.key() });
            inner.ring.push_back(Arc::clone(&event));
            told.push(event);
        }
        while inner.ring.len() > EVENTS || inner.bytes > BYTES {
            let Some(gone) = inner.ring.pop_front() else { break };
            inner.bytes -= gone.text.len();
        }
        match listing {
            Some(listing) => {
                inner.listing = Some(Arc::new(listing));
                inner.gone.clear();
            }
            None => inner.gone.extend(changes.iter().map(|c| c.subject().to_owned())),
        }
        drop(inner);
        self.stirred.notify_all();
        told
    }

    /// Ends it: listeners get what is left, and then the end.
    pub fn close(&self) {
        self.lock().closed = true;
        self.stirred.notify_all();
    }

    /// Listens: after the event of that id, or from now on, after all that lives.
    pub fn listen(&self, since: Option<&str>) -> Listener<'_> {
        let mut inner = self.lock();
        inner.listeners += 1;
        let place = since.and_then(|id| self.number(id)).map(|n| n + 1).filter(|n| *n <= inner.next);
        Listener { hub: self, place, heard: since.is_some() }
    }

    /// All events that are remembered.
    pub fn remembered(&self) -> Vec<Arc<Event>> {
        self.lock().ring.iter().cloned().collect()
    }

    /// How many listen, and how often each event happened.
    pub fn counts(&self) -> (usize, BTreeMap<&'static str, u64>) {
        let inner = self.lock();
        (inner.listeners, inner.counts.clone())
    }
}

impl Listener<'_> {
    /// What comes next, waiting for it no longer than `at_most`.
    pub fn next(&mut self, at_most: Duration) -> Next {
        let hub = self.hub;
        let idle = |inner: &mut Inner| {
            let ready = match self.place {
                Some(place) => place < inner.next,
                None => inner.listing.is_some(),
            };
            !ready && !inner.closed
        };
        let (inner, _) = hub
            .stirred
            .wait_timeout_while(hub.lock(), at_most, idle)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let oldest = inner.ring.front().map_or(inner.next, |e| e.number);
        match (self.place, &inner.listing) {
            (Some(place), _) if place >= oldest && place < inner.next => {
                let events: Vec<_> = inner.ring.iter().filter(|e| e.number >= place).cloned().collect();
                self.place = Some(inner.next);
                Next::Events(events)
            }
            (Some(place), _) if place >= inner.next && inner.closed => Next::Closed,
            (Some(place), _) if place >= inner.next => Next::Nothing,
            (_, Some(listing)) => {
                let (mut listing, next) = (Arc::clone(listing), inner.next);
                if !inner.gone.is_empty() {
                    Arc::make_mut(&mut listing).sessions.retain(|s| !inner.gone.contains(s.id.raw()));
                }
                drop(inner);
                let why = if self.heard { "events were missed" } else { "the beginning" };
                self.heard = true;
                self.place = Some(next);
                Next::Reset(reset(&hub.id(next - 1), why, &listing), next - 1)
            }
            (_, None) if inner.closed => Next::Closed,
            (_, None) => Next::Nothing,
        }
    }
}

/// All that lives, as an event.
pub fn reset(id: &str, why: &str, listing: &Listing) -> String {
    let at = Time(clock::now_ms());
    let mut text =
        format!("{{\"schema\":1,\"id\":\"{id}\",\"event\":\"reset\",\"at\":\"{at}\",\"why\":\"{why}\",\"listing\":");
    text.push_str(&json::listing(listing));
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::About;
    use lariat_core::session::Hidden;

    fn empty() -> Listing {
        Listing {
            schema: 1,
            at: Time(0),
            sessions: Vec::new(),
            unbound: Vec::new(),
            warnings: Vec::new(),
            hidden: Hidden::default(),
        }
    }

    fn change() -> Change {
        Change { event: "adapter.failed", at: Time(0), was: None, about: About::Adapter("claude", None) }
    }

    fn numbers(next: Next) -> Vec<u64> {
        match next {
            Next::Events(events) => events.iter().map(|e| e.number).collect(),
            Next::Reset(_, n) => vec![n + 1000],
            Next::Nothing => vec![],
            Next::Closed => vec![0],
        }
    }

    #[test]
    fn a_listener_gets_each_event_once_and_a_gap_is_told() {
        let hub = Hub::new("e".into());
        let mut early = hub.listen(None);
        assert!(numbers(early.next(Duration::ZERO)).is_empty(), "nothing was looked at yet");
        hub.publish(&[], empty());
        assert_eq!(numbers(early.next(Duration::ZERO)), [1000]);
        hub.publish(&[change(), change()], empty());
        assert_eq!(numbers(early.next(Duration::ZERO)), [1, 2]);
        assert!(numbers(early.next(Duration::ZERO)).is_empty());
        let mut again = hub.listen(Some("e-1"));
        assert_eq!(numbers(again.next(Duration::ZERO)), [2]);
        for strange in ["e-99", "other-1", "", "e-"] {
            assert_eq!(numbers(hub.listen(Some(strange)).next(Duration::ZERO)), [1002], "{strange}");
        }
        assert_eq!(hub.counts().0, 2);
        for _ in 0..=EVENTS {
            hub.publish(&[change()], empty());
        }
        assert_eq!(numbers(again.next(Duration::ZERO)), [1003 + EVENTS as u64], "it has fallen behind");
        hub.close();
        assert_eq!(numbers(early.next(Duration::ZERO)), [1003 + EVENTS as u64]);
        assert_eq!(numbers(again.next(Duration::ZERO)), [0]);
        assert_eq!(hub.remembered().len(), EVENTS);
    }
}
