//! Which runs wait for a person, for leave or for an answer: a gateway's list of sessions shows them as any other open run.
//!
//! A gateway shows what the run of another client asks only to whoever may do everything there. So that is asked for
//! on a line of its own, and only while a run is open. Where it is not granted, the row says so.

use std::collections::BTreeMap;
use std::time::Duration;

use lariat_core::{Ask, AskKind, Fact, Time, Untrusted};
use serde_json::json;

use crate::json::Value;
use crate::openclaw::rows::Row;
use crate::openclaw::wire::{ADMIN, Line, Trouble};
use crate::settings::Gateway;

/// Something that is asked and not answered.
struct Asked {
    /// The session that asks.
    key: String,
    ask: Ask,
    since: Option<Time>,
}

/// What every version knows, as it does not the others.
const COMMANDS: &str = "exec.approval.list";
/// Its code for a question that its version does not know.
const UNKNOWN: &str = "INVALID_REQUEST";

/// How an answer is read.
type Read<'a> = &'a dyn Fn(Value<'_>) -> Vec<Asked>;

/// Adds to the rows what their runs ask, longest waiting first.
pub fn add(gateway: &Gateway, patience: Duration, step: &dyn Fn(), rows: &mut BTreeMap<String, Row>) {
    if !rows.values().any(|row| row.live == Some(true)) {
        return;
    }
    let (asked, untold) = match Line::open(gateway, &[ADMIN], patience, step) {
        Ok(mut line) => all(&mut line, step),
        Err(shut) => (Vec::new(), Some(String::from(shut))),
    };
    let untold = untold.map(|why| {
        let why = format!("whether it waits for a person could not be asked: {why}");
        (Fact::Note(Untrusted::new(why)), None)
    });
    for row in rows.values_mut().filter(|row| row.live == Some(true)) {
        let first = asked.iter().filter(|a| a.key == row.key).min_by_key(|a| a.since);
        row.asks = first.map(|a| (Fact::Asks(a.ask.clone()), a.since)).or_else(|| untold.clone());
    }
}

/// All that is asked there: leave for commands and for what plugins do, and questions; and why that is not all, if so.
/// Each answer is a step.
fn all(line: &mut Line<'_>, step: &dyn Fn()) -> (Vec<Asked>, Option<Trouble>) {
    let leave = |told: Value<'_>| told.items().filter_map(Asked::leave).collect::<Vec<_>>();
    let questions = |told: Value<'_>| told.get("questions").items().filter_map(Asked::question).collect::<Vec<_>>();
    let (mut all, mut trouble) = (Vec::new(), None);
    let asked: [(&str, Read<'_>); 3] =
        [(COMMANDS, &leave), ("plugin.approval.list", &leave), ("question.list", &questions)];
    for (method, read) in asked {
        match line.call(method, &json!({}), read) {
            Ok(more) => all.extend(more),
            Err(_) if method != COMMANDS && line.refused() == Some(UNKNOWN) => {}
            Err(why) if line.refused().is_some() => trouble = Some(why),
            Err(why) => return (all, Some(why)), // nothing more comes over this line
        }
        step();
    }
    (all, trouble)
}

impl Asked {
    /// A command, or what a plugin is about to do.
    fn leave(told: Value<'_>) -> Option<Asked> {
        let request = told.get("request");
        let text = match request.get("command").some_str() {
            Some(command) => format!("exec {command}"),
            None => request.get("title").some_str().or(request.get("toolName").some_str()).unwrap_or("exec").to_owned(),
        };
        Asked::of(request, told, AskKind::Permission, text)
    }

    /// One or several questions, of which the first is told.
    fn question(told: Value<'_>) -> Option<Asked> {
        let first = told.get("questions").items().next()?;
        let text = first.get("question").some_str().or(first.get("header").some_str()).unwrap_or_default().to_owned();
        Asked::of(told, told, AskKind::Question, text)
    }

    fn of(by: Value<'_>, told: Value<'_>, kind: AskKind, text: String) -> Option<Asked> {
        let since = told.get("createdAtMs").u64().and_then(|t| i64::try_from(t).ok()).map(Time);
        let key = by.get("sessionKey").some_str()?.to_owned();
        Some(Asked { key, ask: Ask { kind, text: Untrusted::new(text) }, since })
    }
}
