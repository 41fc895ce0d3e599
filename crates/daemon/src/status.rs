//! How the daemon is, and what is here: true at the moment of the question.

use std::time::Duration;

use lariat_core::{Time, Untrusted};
use lariat_protocol::json;
use lariat_protocol::wire::PROTOCOL;
use lariat_sys::clock;
use serde::Serialize;

use crate::log::Line;
use crate::{Daemon, verb};

#[derive(Serialize)]
struct Status {
    schema: u32,
    running: bool,
    version: &'static str,
    protocol: u32,
    pid: u32,
    started_at: Time,
    uptime_s: i64,
    memory_bytes: Option<u64>,
    http: Option<String>,
    adapters: Vec<Health>,
    looks: u64,
    last_look_at: Option<Time>,
    last_look_ms: u64,
    answers_warm: u64,
    answers_fresh: u64,
    listeners: usize,
    events: std::collections::BTreeMap<&'static str, u64>,
    deliveries: Deliveries,
    errors: Vec<Line>,
}

#[derive(Serialize)]
struct Deliveries {
    taken: u64,
    failed: u64,
    given_up: u64,
    owed: usize,
}

#[derive(Serialize)]
struct Health {
    name: &'static str,
    ok: bool,
    error: Option<Untrusted>,
}

/// How it is, as one object. The counts come from a fresh look.
pub fn told(daemon: &Daemon) -> String {
    let now = clock::now_ms();
    let watched = daemon.watched();
    let health = lariat_adapters::all().into_iter().map(|a| a.name()).chain(["process"]).map(|name| {
        let error = watched.failing.iter().find(|(n, _)| *n == name).map(|(_, why)| why.clone().into());
        Health { name, ok: error.is_none(), error }
    });
    let (listeners, events) = daemon.hub.counts();
    let (taken, failed, given_up, owed) = daemon.deliver.counts();
    let (answers_warm, answers_fresh) = daemon.warm.given();
    let status = Status {
        schema: 1,
        running: true,
        version: env!("CARGO_PKG_VERSION"),
        protocol: PROTOCOL,
        pid: std::process::id(),
        started_at: daemon.started,
        uptime_s: (now - daemon.started.0).max(0) / 1000,
        memory_bytes: resident(),
        http: daemon.http_address(),
        adapters: health.collect(),
        looks: watched.looks,
        last_look_at: watched.at,
        last_look_ms: u64::try_from(watched.took.as_millis()).unwrap_or(u64::MAX),
        answers_warm,
        answers_fresh,
        listeners,
        events,
        deliveries: Deliveries { taken, failed, given_up, owed },
        errors: daemon.log.errors(),
    };
    let mut text = Vec::new();
    if json::write(&mut text, &status).is_err() {
        return "{}".into();
    }
    let mut text = String::from_utf8(text).unwrap_or_default();
    text.pop();
    text.push_str(",\"counts\":");
    text.push_str(counts().as_deref().unwrap_or("null"));
    text.push('}');
    text
}

/// What `lariat status --json` says now.
fn counts() -> Option<String> {
    use std::io::{Read as _, Seek as _};
    let arguments = ["status".to_owned(), "--json".to_owned()];
    let mut ran = verb::run(&arguments, Duration::from_secs(60), false).ok().filter(|r| matches!(r.code, 0 | 5))?;
    let mut text = String::new();
    ran.out.rewind().ok()?;
    ran.out.read_to_string(&mut text).ok()?;
    Some(text.trim_end().to_owned()).filter(|t| t.starts_with('{'))
}

/// How much memory this process holds.
pub fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
