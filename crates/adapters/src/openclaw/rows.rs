//! A gateway's list of sessions, and what a row of it says.
//!
//! A row's `hasActiveRun` is the gateway's own memory of what it runs: that is
//! what lives. Where it is left out, the list of open runs tells the same. Its `status` is how the last run ended, as stored; while no run is
//! open it tells the outcome, and never that something lives.

use std::collections::BTreeMap;

use lariat_core::{Fact, Observation, Outcome, Time, Turn, Untrusted, Witness};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::json::Value;
use crate::look::{About, Sighting};
use crate::openclaw::wire::{Line, Trouble};
use crate::settings::Gateway;

/// Rows asked for at once: two megabytes or so.
const PAGE: usize = 500;
/// More than that is no list.
const MOST: usize = 100_000;
/// How often a list is read anew that changed while it was read.
const TRIES: usize = 3;
const LONGEST_KEY: usize = 1024;

/// One session, as the gateway tells it.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "what the gateway's fields of nearly the same names say")]
pub struct Row {
    pub key: String,
    /// Whether a run of it is open; `None` if it does not say.
    pub live: Option<bool>,
    /// Its word for the last run; none if it never ran.
    pub status: Option<String>,
    /// It has run, whether there is a word for that or not.
    pub ran: bool,
    /// Somebody put it away; it has no open run.
    pub archived: bool,
    /// What names its conversation.
    pub transcript: Option<String>,
    pub error: Option<String>,
    pub label: Option<String>,
    pub title: Option<String>,
    pub model: Option<String>,
    pub cwd: Option<String>,
    pub branch: Option<String>,
    pub parent: Option<String>,
    pub created: Option<i64>,
    pub updated: Option<i64>,
    pub started: Option<i64>,
    pub ended: Option<i64>,
    /// What its run asks a person, or that it cannot be told, and since when. It is asked anew each time.
    #[serde(skip)]
    pub asks: Option<(Fact, Option<Time>)>,
}

impl Row {
    fn read(row: Value<'_>) -> Option<Row> {
        let text = |key: &str| row.get(key).some_str().map(str::to_owned);
        // Nobody's clock is beyond the year 9999.
        let time =
            |key: &str| row.get(key).u64().and_then(|t| i64::try_from(t).ok()).filter(|t| *t < 253_402_300_800_000);
        let key = text("key").filter(|k| k.len() <= LONGEST_KEY)?;
        let error = row.get("lastRunError");
        let runs = row.get("activeRunIds");
        Some(Row {
            key,
            live: row.get("hasActiveRun").bool().or_else(|| runs.is_array().then(|| runs.items().next().is_some())),
            status: text("status"),
            ran: row.get("systemSent").is_true(),
            archived: row.get("archived").is_true(),
            transcript: text("sessionId"),
            error: error.some_str().or(error.get("message").some_str()).map(str::to_owned),
            label: text("label"),
            title: text("derivedTitle").or_else(|| text("displayName")),
            model: text("model"),
            cwd: text("execCwd").or_else(|| text("spawnedCwd")).or_else(|| text("sessionRoot")),
            branch: row.get("worktree").get("branch").some_str().map(str::to_owned),
            parent: text("parentSessionKey").or_else(|| text("spawnedBy")),
            created: time("createdAt"),
            updated: time("updatedAt"),
            started: time("startedAt"),
            ended: time("endedAt"),
            asks: None,
        })
    }

    /// Tells runs apart where the row has no id of the open one: a run that begins
    /// or ends moves this on, and nothing moves it back.
    pub fn mark(&self) -> u64 {
        self.started.max(self.ended).and_then(|t| u64::try_from(t).ok()).unwrap_or(0)
    }

    /// Whether the list does not tell how its last run ended.
    pub fn lacks_its_end(&self) -> bool {
        self.ran && self.status.is_none() && self.live != Some(true)
    }

    /// What the last run came to.
    fn turn(&self) -> Fact {
        let failed = |what: &str| {
            let error = self.error.clone().unwrap_or_else(|| what.to_owned());
            Fact::Turn(Turn::Over(Outcome::Failed(error.into())))
        };
        match self.status.as_deref() {
            None if self.ran => Fact::TurnUnread("the gateway does not tell how its last run ended".into()),
            None => Fact::Turn(Turn::Never),
            Some("done") => Fact::Turn(Turn::Over(Outcome::Well)),
            Some("failed") => failed("its last run failed"),
            Some("timeout") => failed("its last run took too long"),
            Some("killed") => Fact::Turn(Turn::Over(Outcome::Aborted("its last run was aborted".into()))),
            // Stored while it ran, and nobody runs it now.
            Some("running" | "queued") => Fact::Turn(Turn::Open(None)),
            Some(word) => Fact::TurnUnread(format!("the gateway's word for it is not known: {word}").into()),
        }
    }

    fn observations(&self, source: &str) -> Vec<Observation> {
        let seen = |fact| Observation::new(Witness::Gateway, fact).from(source.to_owned());
        let time = |t: Option<i64>| t.map(Time);
        match self.live {
            Some(true) => {
                let doing = (self.status.as_deref() == Some("queued")).then(|| "queued by the gateway".into());
                let by = Untrusted::from("the gateway has a run of it open");
                let open = seen(Fact::Turn(Turn::Open(doing))).at(time(self.updated));
                let asks = self.asks.clone().map(|(fact, since)| seen(fact).at(since));
                [seen(Fact::Alive { pid: None, by }), open].into_iter().chain(asks).collect()
            }
            Some(false) => vec![
                seen(Fact::Gone("the gateway has no run of it open".into())),
                seen(self.turn()).at(time(self.ended)),
            ],
            None => vec![
                seen(Fact::Unseen("the gateway does not say whether a run of it is open".into())),
                seen(self.turn()).at(time(self.ended)),
            ],
        }
    }

    /// The session of a row that the gateway told just now.
    pub fn seen(self, gateway: &Gateway) -> Sighting {
        let mut observations = self.observations(&gateway.url());
        let archived = || Observation::new(Witness::Gateway, Fact::Note("archived there".into())).from(gateway.url());
        observations.extend(self.archived.then(archived));
        self.sighting(gateway, observations)
    }

    /// The session of a row that the gateway told a while ago, and does not now.
    pub fn remembered(self, gateway: &Gateway, why: &str, at: Time, now: Time) -> Sighting {
        let seen = |fact| Observation::new(Witness::Gateway, fact).at(Some(at)).from(gateway.url());
        let then = match (self.live, self.status.as_deref()) {
            (Some(true), _) => "a run of it was open",
            (_, None) if !self.ran => "it had never run",
            _ => "no run of it was open",
        };
        let unseen = Fact::Unseen(format!("{why}; its last good answer is {} old", at.age(now)).into());
        let observations = vec![seen(unseen), seen(Fact::Note(format!("then {then}").into()))];
        self.sighting(gateway, observations)
    }

    fn sighting(self, gateway: &Gateway, observations: Vec<Observation>) -> Sighting {
        Sighting {
            native_id: native_id(gateway, &self.key),
            observations,
            about: About {
                run: Some(self.mark()),
                host: gateway.host.clone(),
                parent: self.parent.as_ref().map(|key| format!("openclaw:{}", native_id(gateway, key))),
                name: self.label,
                cwd: self.cwd,
                branch: self.branch,
                model: self.model,
                title: self.title,
                started_at: self.created.map(Time),
                updated_at: self.updated.map(Time),
                turn_at: self.started.map(Time),
                ended_at: self.ended.map(Time),
                ..About::default()
            },
            ..Sighting::default()
        }
    }
}

/// A session's id among all gateways: its key, after the gateway's name if that
/// has one. Without, a key that looks as if it began with a name gets an empty
/// one.
pub fn native_id(gateway: &Gateway, key: &str) -> String {
    match &gateway.name {
        Some(name) => format!("{name}/{key}"),
        None if named(key).is_some() => format!("/{key}"),
        None => key.to_owned(),
    }
}

fn named(id: &str) -> Option<(&str, &str)> {
    id.split_once('/').filter(|(name, _)| !name.contains(':'))
}

/// The gateway and the key that an id means.
pub fn find<'g>(gateways: &'g [Gateway], native_id: &str) -> Option<(&'g Gateway, String)> {
    let (name, key) = match named(native_id) {
        Some(("", key)) => (None, key),
        Some((name, key)) => (Some(name), key),
        None => (None, native_id),
    };
    let gateway = gateways.iter().find(|g| g.name.as_deref() == name)?;
    Some((gateway, key.to_owned()))
}

/// One page of a list.
pub struct Page {
    rows: Vec<Row>,
    /// Rows that have no key.
    odd: usize,
    total: Option<usize>,
    next: Option<usize>,
}

impl Page {
    fn read(list: Value<'_>, offset: usize) -> Option<Page> {
        if !list.get("sessions").is_array() {
            return None;
        }
        let number = |key: &str| list.get(key).u64().and_then(|n| usize::try_from(n).ok());
        let all: Vec<Option<Row>> = list.get("sessions").items().map(Row::read).collect();
        let count = all.len();
        let rows: Vec<Row> = all.into_iter().flatten().collect();
        // It may give fewer at once than it is asked for.
        let more = list.get("hasMore").bool();
        let next = number("nextOffset").or_else(|| (more == Some(true)).then_some(offset + count));
        let next = next.filter(|_| more.unwrap_or(count > 0));
        Some(Page { odd: count - rows.len(), rows, total: number("totalCount"), next })
    }
}

/// Every session of a gateway, archived or not. A list that changes while its pages are turned is
/// read anew: a session may not be missing because another one moved.
pub fn all(line: &mut Line<'_>, step: &dyn Fn()) -> Result<BTreeMap<String, Row>, Trouble> {
    let mut archived = true;
    pages(step, |limit, offset, read| {
        let mut params = json!({"limit": limit, "offset": offset, "includeDerivedTitles": true});
        if archived {
            params["archived"] = json!("all");
            match line.call("sessions.list", &params, read) {
                // A version that knows of none; one that forbids the list says so once more.
                Err(_) if line.refused().is_some() => archived = false,
                told => return told,
            }
            params.as_object_mut().and_then(|params| params.remove("archived"));
        }
        line.call("sessions.list", &params, read)
    })
}

/// Reads what a page holds.
type ReadPage<'a> = &'a dyn Fn(Value<'_>) -> Option<Page>;

/// Every session of a list of pages: `ask` gets how many rows are wanted, from where, and what reads them.
pub fn pages(
    step: &dyn Fn(),
    mut ask: impl FnMut(usize, usize, ReadPage<'_>) -> Result<Option<Page>, Trouble>,
) -> Result<BTreeMap<String, Row>, Trouble> {
    for _ in 0..TRIES {
        let (mut rows, mut odd, mut offset) = (BTreeMap::new(), 0, 0);
        let total = loop {
            let page = ask(PAGE, offset, &|list| Page::read(list, offset))?;
            let page =
                page.ok_or("it answers sessions.list with no list; is it a version that lariat does not know?")?;
            step();
            odd += page.odd;
            rows.extend(page.rows.into_iter().map(|row| (row.key.clone(), row)));
            match page.next {
                Some(next) if next > offset && next <= MOST => offset = next,
                Some(_) => return Err("its list of sessions does not come to an end".into()),
                None => break page.total,
            }
        };
        if total.is_none_or(|total| rows.len() + odd >= total) {
            return Ok(rows);
        }
    }
    Err("its list of sessions changed each time it was read; look again in a moment".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Doc;
    use crate::settings::Token;

    fn gateway(name: Option<&str>) -> Gateway {
        let name = name.map(str::to_owned);
        Gateway { name, address: "127.0.0.1".into(), port: 1, host: None, token: Token::None, device: None }
    }

    /// Whether there is more is told by where it begins, unless the gateway says that there is none.
    #[test]
    fn pages_are_turned_until_there_is_none() {
        let turned = |told: &[&str]| {
            let mut left = told.iter();
            let rows = pages(&|| (), |_, offset, read| {
                let told = left.next().ok_or("asked too often")?;
                let row = |key: &str| format!("{{\"key\":\"{key}{offset}\"}}");
                let list = format!("{{\"sessions\":[{},{}],{told}}}", row("a"), row("b"));
                let list = if told.contains("none") { format!("{{\"sessions\":[],{told}}}") } else { list };
                Ok(read(Doc::parse(list.as_bytes(), crate::openclaw::wire::KEEP, 100).unwrap().root()))
            });
            rows.map(|rows| rows.into_keys().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(turned(&["\"nextOffset\":2", "\"hasMore\":false,\"nextOffset\":4"]).unwrap(), "a0 a2 b0 b2");
        assert_eq!(
            turned(&["\"nextOffset\":2", "\"nextOffset\":4", "\"nextOffset\":null"]).unwrap(),
            "a0 a2 a4 b0 b2 b4"
        );
        assert_eq!(turned(&["\"nextOffset\":2", "\"none\":1,\"nextOffset\":2"]).unwrap(), "a0 b0");
        assert_eq!(turned(&["\"hasMore\":true", "\"hasMore\":false"]).unwrap(), "a0 a2 b0 b2");
        assert_eq!(turned(&["\"totalCount\":2"]).unwrap(), "a0 b0");
        assert!(turned(&["\"hasMore\":true", "\"hasMore\":true,\"nextOffset\":2"]).unwrap_err().contains("to an end"));
    }

    #[test]
    fn no_key_of_one_gateway_is_an_id_of_another() {
        let gateways = [gateway(None), gateway(Some("box"))];
        let keys = ["agent:main:main", "box/agent:main:main", "/x", "agent:main:a/b", "global", "box//x", "x/"];
        let mut ids: Vec<String> = Vec::new();
        for g in &gateways {
            for key in keys {
                let id = native_id(g, key);
                let found = find(&gateways, &id).map(|(g, key)| (g.name.clone(), key));
                assert_eq!(found, Some((g.name.clone(), key.to_owned())), "{id}");
                ids.push(id);
            }
        }
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 14);
        assert_eq!(native_id(&gateways[0], "agent:main:main"), "agent:main:main");
        assert_eq!(find(&gateways, "gone/agent:main:main"), None);
    }
}
