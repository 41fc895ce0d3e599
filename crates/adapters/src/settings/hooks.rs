//! Who is to be told of what happens: `[[webhook]]`, `[[command]]`, `[notify]`; and
//! `[daemon]`.

use std::ops::Range;

use super::section::{Section, nearest};
use super::{Token, expanded};
use crate::look::Places;

/// Somebody who is to be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hook {
    /// Who.
    pub told: Told,
    /// Of which events: names, or beginnings of names that end in `*`.
    pub events: Vec<String>,
    /// Where the secret is that signs what is sent.
    pub secret: Token,
}

/// How somebody is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Told {
    /// By a request to this address.
    Webhook(String),
    /// By running this command.
    Command(String),
    /// By a note on the desktop.
    Desktop,
}

impl Hook {
    /// Whether it is to be told of this event.
    pub fn wants(&self, event: &str) -> bool {
        self.events.iter().any(|e| e == event || e.strip_suffix('*').is_some_and(|begin| event.starts_with(begin)))
    }
}

/// What can happen.
const EVENTS: [&str; 13] = [
    "session.started",
    "session.waiting",
    "session.working",
    "session.idle",
    "session.ended",
    "session.unknown",
    "adapter.failed",
    "adapter.recovered",
    "claim.taken",
    "claim.released",
    "claim.expired",
    "fuse.warned",
    "fuse.fired",
];

/// All of them, in the order of the file.
pub(super) fn read(top: &mut Section<'_, '_>, places: &Places) -> Vec<Hook> {
    let mut hooks = top.tables("webhook", |entry| webhook(entry, places));
    hooks.extend(top.tables("command", command));
    hooks.extend(top.table("notify", notify).flatten());
    hooks
}

/// `[daemon] http = 4700`.
pub(super) fn port(top: &mut Section<'_, '_>) -> Option<u16> {
    top.table("daemon", |entry| {
        entry.knows(&["http"]);
        let value = entry.value("http")?;
        let port = value.get_ref().as_integer().and_then(|i| i.as_str().parse().ok());
        if port.is_none() {
            entry.wrong.tell(&value.span(), "http should be a port, like 4700");
        }
        port
    })
}

fn webhook(entry: &mut Section<'_, '_>, places: &Places) -> Option<Hook> {
    let before = entry.wrong.found.len();
    entry.knows(&["url", "events", "secret_file", "secret_env"]);
    let url = required(entry, "url", "a webhook needs its url, like \"http://127.0.0.1:9000/hook\"")?;
    if !is_address(url.0) {
        entry.wrong.tell(&url.1, format!("url {:?} should be like \"https://example.org/hook\"", url.0));
    }
    let secret = match (entry.text("secret_file"), entry.text("secret_env")) {
        (Some((_, at)), Some(_)) => {
            entry.wrong.tell(&at, "either secret_file or secret_env, not both");
            Token::None
        }
        (Some((path, _)), None) => Token::File(expanded(path, places)),
        (None, Some((variable, _))) => Token::Env(variable.to_owned()),
        (None, None) => Token::None,
    };
    let events = events(entry, &["*"]);
    let told = Told::Webhook(url.0.to_owned());
    (entry.wrong.found.len() == before).then_some(Hook { told, events, secret })
}

fn command(entry: &mut Section<'_, '_>) -> Option<Hook> {
    let before = entry.wrong.found.len();
    entry.knows(&["run", "events"]);
    let run = required(entry, "run", "a command needs what to run, like run = \"echo $LARIAT_ID\"")?;
    let events = events(entry, &["*"]);
    let told = Told::Command(run.0.to_owned());
    (entry.wrong.found.len() == before).then_some(Hook { told, events, secret: Token::None })
}

fn notify(entry: &mut Section<'_, '_>) -> Option<Option<Hook>> {
    let before = entry.wrong.found.len();
    entry.knows(&["desktop", "events"]);
    let wanted = match entry.value("desktop") {
        None => false,
        Some(value) => value.get_ref().as_bool().unwrap_or_else(|| {
            entry.wrong.tell(&value.span(), "desktop should be true or false");
            false
        }),
    };
    let events = events(entry, &["session.waiting"]);
    let hook = Hook { told: Told::Desktop, events, secret: Token::None };
    Some((wanted && entry.wrong.found.len() == before).then_some(hook))
}

fn required<'a>(entry: &mut Section<'a, '_>, key: &str, why: &str) -> Option<(&'a str, Range<usize>)> {
    if entry.value(key).is_none() {
        entry.wrong.tell(&entry.span.clone(), why);
    }
    entry.text(key)
}

fn events(entry: &mut Section<'_, '_>, unsaid: &[&str]) -> Vec<String> {
    let Some(events) = entry.texts("events") else { return unsaid.iter().map(|e| (*e).to_owned()).collect() };
    for (event, at) in &events {
        let known = match event.strip_suffix('*') {
            Some(begin) => EVENTS.iter().any(|e| e.starts_with(begin)),
            None => EVENTS.contains(event),
        };
        if !known {
            let near = nearest(event, &EVENTS).map_or_else(String::new, |n| format!(", did you mean {n:?}?"));
            entry.wrong.tell(at, format!("{event:?} never happens{near}"));
        }
    }
    events.into_iter().map(|(event, _)| event.to_owned()).collect()
}

/// An address without a password in it, and without what would end a line.
fn is_address(url: &str) -> bool {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '<' | '>');
    rest.is_some_and(|r| !r.is_empty() && !r.starts_with('/') && !r.contains('@') && r.chars().all(plain))
}
