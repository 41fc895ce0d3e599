//! Which runs wait for a person's leave: a gateway's list of sessions shows them as any other open run.
//!
//! A gateway shows what the run of another client asks only to whoever may do everything there. So that is asked for
//! on a line of its own, and only while a run is open. Where it is not granted, the row says so.

use std::collections::BTreeMap;
use std::time::Duration;

use lariat_core::{Ask, AskKind, Fact, Time, Untrusted};
use serde_json::json;

use crate::json::Value;
use crate::openclaw::rows::Row;
use crate::openclaw::wire::{ADMIN, Line};
use crate::settings::Gateway;

/// Something that is asked and not answered.
struct Approval {
    /// The session that asks.
    key: String,
    /// What it wants to do.
    command: String,
    since: Option<Time>,
}

impl Approval {
    fn read(told: Value<'_>) -> Option<Approval> {
        let request = told.get("request");
        let since = told.get("createdAtMs").u64().and_then(|t| i64::try_from(t).ok()).map(Time);
        let key = request.get("sessionKey").some_str()?.to_owned();
        Some(Approval { key, command: request.get("command").some_str().unwrap_or_default().to_owned(), since })
    }
}

/// Adds to the rows what their runs ask, longest waiting first.
pub fn add(gateway: &Gateway, patience: Duration, step: &dyn Fn(), rows: &mut BTreeMap<String, Row>) {
    if !rows.values().any(|row| row.live == Some(true)) {
        return;
    }
    let read = |told: Value<'_>| told.items().filter_map(Approval::read).collect::<Vec<_>>();
    let asked = Line::open(gateway, &[ADMIN], patience, step).map_err(String::from);
    let asked = asked.and_then(|mut line| line.call("exec.approval.list", &json!({}), read));
    for row in rows.values_mut().filter(|row| row.live == Some(true)) {
        let asks = asked.as_ref().map(|all| all.iter().filter(|a| a.key == row.key).min_by_key(|a| a.since));
        row.asks = match asks {
            Ok(asks) => asks.map(|a| (Fact::Asks(a.ask()), a.since)),
            Err(why) => {
                let why = format!("whether it waits for a person's leave could not be asked: {why}");
                Some((Fact::Note(Untrusted::new(why)), None))
            }
        };
    }
}

impl Approval {
    fn ask(&self) -> Ask {
        Ask { kind: AskKind::Permission, text: Untrusted::new(format!("exec {}", self.command)) }
    }
}
