//! Numbers for Prometheus, true at the moment of the scrape.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use lariat_adapters::look::Scope;
use lariat_core::Status;
use lariat_engine::list::{DEADLINE, Question, list};
use lariat_sys::clock;

use crate::{Daemon, status};

/// All of them, as text.
pub fn text(daemon: &Daemon) -> String {
    let places = daemon.places.clone();
    let answer = list(Question { places: places.clone(), scope: Scope::Live, deadline: DEADLINE, agent: None });
    let mut text = Text(String::new());
    let mut sessions: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for adapter in lariat_adapters::all() {
        for word in [Status::Waiting, Status::Working, Status::Starting, Status::Idle, Status::Unknown] {
            sessions.insert((adapter.name(), word.word()), 0);
        }
    }
    for session in answer.listing.sessions.iter().filter(|s| !s.status.ended()) {
        *sessions.entry((session.agent, session.status.word())).or_default() += 1;
    }
    text.kind("lariat_sessions", "gauge", "Sessions that live or may live.");
    for ((agent, status), n) in sessions {
        text.line("lariat_sessions", &[("agent", agent), ("status", status)], n as f64);
    }
    text.one(
        "lariat_unbound_processes",
        "gauge",
        "Agent processes without a known session.",
        answer.listing.unbound.len() as f64,
    );
    text.one("lariat_ended_sessions", "gauge", "Sessions that have ended.", answer.listing.hidden.ended as f64);
    let claims = lariat_engine::claims::claims(&places).0.len();
    text.one("lariat_claims", "gauge", "Directories that people hold.", claims as f64);
    text.kind("lariat_adapter_up", "gauge", "Whether an agent's store could be read.");
    for name in lariat_adapters::all().iter().map(|a| a.name()).chain(["process"]) {
        let up = !answer.failed.iter().any(|(failed, _)| *failed == name);
        text.line("lariat_adapter_up", &[("adapter", name)], f64::from(u8::from(up)));
    }
    let watched = daemon.watched().clone();
    text.one("lariat_looks_total", "counter", "Looks taken to watch.", watched.looks as f64);
    text.one("lariat_look_seconds", "gauge", "How long the last of them took.", watched.took.as_secs_f64());
    let (listeners, events) = daemon.hub.counts();
    text.one("lariat_listeners", "gauge", "Those who listen to events.", listeners as f64);
    text.kind("lariat_events_total", "counter", "Events told.");
    for (name, n) in events {
        text.line("lariat_events_total", &[("event", name)], n as f64);
    }
    let (warm, fresh) = daemon.warm.given();
    text.kind("lariat_answers_total", "counter", "Answers given, by whether they needed a look.");
    text.line("lariat_answers_total", &[("kind", "warm")], warm as f64);
    text.line("lariat_answers_total", &[("kind", "fresh")], fresh as f64);
    let (taken, failed, given_up, owed) = daemon.deliver.counts();
    text.kind("lariat_deliveries_total", "counter", "Deliveries, by what became of them.");
    for (outcome, n) in [("taken", taken), ("failed", failed), ("given_up", given_up)] {
        text.line("lariat_deliveries_total", &[("outcome", outcome)], n as f64);
    }
    text.one("lariat_deliveries_owed", "gauge", "Deliveries that are owed.", owed as f64);
    text.one("lariat_memory_bytes", "gauge", "Memory that the daemon holds.", status::resident().unwrap_or(0) as f64);
    let up = (clock::now_ms() - daemon.started.0).max(0) as f64 / 1000.0;
    text.one("lariat_uptime_seconds", "gauge", "How long the daemon runs.", up);
    drop(answer);
    lariat_sys::spawn::trim_memory();
    text.0
}

struct Text(String);

impl Text {
    fn kind(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n"); // a String takes every write
    }

    /// Names and labels are words of ours: nothing in them needs an escape.
    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}"); // as above
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.kind(name, kind, help);
        self.line(name, &[], value);
    }
}
