//! Doing what burnt fuses ask for, once.

use std::sync::Arc;
use std::time::Duration;

use lariat_adapters::settings::Told;
use lariat_core::{Listing, Time};
use lariat_engine::records;
use lariat_sys::clock;
use lariat_sys::point::point;

use crate::changes::{About, Change};
use crate::deliver::outbox::Owed;
use crate::fuses::{self, Due, Fuse};
use crate::{Daemon, deliver, verb};

/// How long ending one session may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Before anything is told: a fuse whose command lies in the outbox has burnt down,
/// though a crash came before its mark.
pub fn make_good(daemon: &Daemon) {
    fuses::tidy(&daemon.places);
    for fuse in fuses::read(&daemon.places).0.into_iter().filter(|f| f.fired_at.is_none()) {
        if daemon.deliver.has(&owed(&fuse, "").id) {
            mark(daemon, fuse, "its command is owed".into());
        }
    }
}

/// What a look at the fuses gave.
#[derive(Default)]
pub struct Looked {
    /// What is to be told.
    pub changes: Vec<Change>,
    /// When to look again.
    pub next: Option<Time>,
    /// Those that only tell: they have burnt down once what they tell is owed.
    told: Vec<Fuse>,
}

/// Looks at every fuse.
pub fn look(daemon: &Arc<Daemon>, listing: &Listing) -> Looked {
    let now = Time(clock::now_ms());
    let Looked { mut changes, mut next, mut told } = Looked::default();
    let read = fuses::read(&daemon.places).0;
    point("fuse.read");
    for fuse in read {
        match fuses::due(&fuse, listing, now) {
            Due::Wait(at) => next = next.into_iter().chain(at).min(),
            Due::Warn(ids) => {
                let warned = Fuse { warned_at: Some(now), ..fuse.clone() };
                match fuses::replace(&daemon.places, &fuse, &warned) {
                    Ok(true) => changes.push(change("fuse.warned", &warned, ids, now)),
                    Ok(false) => {} // it is looked at again as it is now
                    Err(e) => daemon.log.error("fuse", format!("{}: {e}", fuse.id)),
                }
            }
            // To burn others down may have taken its time.
            Due::Fire(_) if !fuses::is_still(&daemon.places, &fuse) => {}
            Due::Fire(ids) if !matches!(fuse.then.as_str(), "stop" | "kill" | "command") => {
                changes.push(change("fuse.fired", &fuse, ids, now));
                told.push(fuse);
            }
            Due::Fire(ids) => changes.extend(fire(daemon, fuse, ids, now)),
        }
    }
    Looked { changes, next, told }
}

/// What was to be told is owed: a crash from here on loses nothing.
pub fn told(daemon: &Daemon, looked: Looked) {
    for fuse in looked.told {
        point("fuse.told");
        mark(daemon, fuse, "told".into());
    }
}

fn change(event: &'static str, fuse: &Fuse, ids: Vec<String>, at: Time) -> Change {
    Change { event, at, was: None, about: About::Fuse(Box::new(fuse.clone()), ids) }
}

fn owed(fuse: &Fuse, body: &str) -> Owed {
    let run = fuse.run.clone().unwrap_or_default();
    Owed::new(&Told::Command(run), &format!("fuse-{}", fuse.id), "fuse.fired", Time(clock::now_ms()), body)
}

/// Does what it asks for. Ending takes a while, so it is done elsewhere, and marked
/// when it is done: whoever comes after a crash does it again, which changes nothing.
fn fire(daemon: &Arc<Daemon>, fuse: Fuse, ids: Vec<String>, now: Time) -> Option<Change> {
    match fuse.then.as_str() {
        "stop" | "kill" => {
            if !daemon.begin_burning(&fuse.id) {
                return None; // it is being done
            }
            let told = change("fuse.fired", &fuse, ids.clone(), now);
            let ours = Arc::clone(daemon);
            let thread = std::thread::Builder::new().name("fuse".into()).stack_size(256 << 10);
            let started = thread.spawn(move || {
                let outcome = end(&fuse, &ids);
                point("fuse.ended");
                let id = fuse.id.clone();
                mark(&ours, fuse, outcome);
                ours.end_burning(&id);
            });
            if let Err(e) = started {
                daemon.log.error("thread", e.to_string());
                return None;
            }
            Some(told)
        }
        _ => {
            let told = change("fuse.fired", &fuse, ids, now);
            let mut body = Vec::new();
            let _ = lariat_protocol::json::write(&mut body, &told.told(&format!("fuse-{}", fuse.id))); // all of it is ours
            let owed = owed(&fuse, &String::from_utf8_lossy(&body));
            if let Err(e) = daemon.deliver.keep(&owed) {
                daemon.log.error("fuse", format!("{}: {e}", fuse.id));
                return None;
            }
            point("fuse.owed");
            mark(daemon, fuse, "its command is owed".into());
            deliver::start(daemon);
            Some(told)
        }
    }
}

/// Ends each of its sessions, as a person would.
fn end(fuse: &Fuse, ids: &[String]) -> String {
    let mut words = Vec::new();
    for id in ids {
        let arguments = [fuse.then.clone(), "--json".into(), "--".into(), id.clone()];
        words.push(match verb::run(&arguments, PATIENCE, false) {
            Ok(ran) if ran.code == 0 => format!("{id} ended"),
            Ok(ran) => format!("{id} not ended (code {}) {}", ran.code, ran.complaint),
            Err(e) => format!("{id} not ended: {e}"),
        });
    }
    if words.is_empty() { "nobody was there".into() } else { words.join("; ") }
}

/// It has burnt down, for good.
fn mark(daemon: &Daemon, fuse: Fuse, outcome: String) {
    // A person may have extended or taken it away meanwhile: what is done is done.
    let burnt = Fuse { fired_at: Some(Time(clock::now_ms())), outcome: Some(outcome.clone()), ..fuse };
    if let Err(e) = fuses::put(&daemon.places, &burnt) {
        daemon.log.error("fuse", format!("{}: {e}", burnt.id));
    }
    records::tell(&daemon.places, "fuse", &burnt.id, outcome);
}
