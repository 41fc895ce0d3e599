//! What the lariat of another machine says, read with suspicion.
//!
//! It may be older or newer than this one, or no lariat at all. A field that is not known is
//! ignored, one that is missing or of another kind is `null`, a row without an id is none. Its
//! text stays [`Untrusted`]; the few fields that are plain text here are escaped as they come in.

use std::sync::Mutex;

use lariat_adapters::settings::is_name;
use lariat_core::session::Hidden;
use lariat_core::{
    Exit, Fact, Observation, Role, Session, Status, Time, Tokens, Unbound, Untrusted, Warning, Witness, judge,
};
use serde_json::Value;

use crate::hosts::Host;

/// The version of the shape that is read here.
const SCHEMA: u64 = 1;
/// So many agents that this version does not know are told apart.
const STRANGERS: usize = 256;
/// So many warnings of a host are passed on.
const WARNINGS: usize = 50;
/// So many observations of a row are.
const BECAUSE: usize = 200;

/// What a host said.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// Its sessions.
    pub sessions: Vec<Box<Session>>,
    /// Its agent processes without a known session.
    pub unbound: Vec<Unbound>,
    /// What could not be read there, or not be understood here.
    pub warnings: Vec<Warning>,
    /// What it left out.
    pub hidden: Hidden,
}

/// Reads a listing.
pub fn listing(host: &Host, json: &[u8]) -> Result<Rows, String> {
    let said = object(json)?;
    let Some(sessions) = said["sessions"].as_array() else {
        return Err("it answered, but not with a listing".into());
    };
    let mut rows = Rows::default();
    check_schema(host, &said, &mut rows);
    let mut odd = 0;
    for row in sessions {
        match session(host, row) {
            Some(session) => rows.sessions.push(session),
            None => odd += 1,
        }
    }
    if odd > 0 {
        rows.warnings.push(warning(host, format!("{odd} of its rows are not understood here; is its lariat newer?")));
    }
    rows.unbound = said["unbound"].as_array().into_iter().flatten().filter_map(|u| unbound(host, u)).collect();
    for told in said["warnings"].as_array().into_iter().flatten().take(WARNINGS) {
        let text = |name: &str| told[name].as_str().map(|t| format!("{t}: ")).unwrap_or_default();
        let error = format!("{}{}{}", text("adapter"), text("path"), told["error"].as_str().unwrap_or("?"));
        rows.warnings.push(Warning { last_ok: time(&told["last_ok"]), ..warning(host, error) });
    }
    rows.hidden.ended = said["hidden"]["ended"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    Ok(rows)
}

/// Reads one session, as `status` tells it.
pub fn one(host: &Host, json: &[u8]) -> Result<Rows, String> {
    let said = object(json)?;
    let mut rows = Rows::default();
    check_schema(host, &said, &mut rows);
    rows.sessions.push(session(host, &said).ok_or("it answered, but not with a session")?);
    Ok(rows)
}

fn object(json: &[u8]) -> Result<Value, String> {
    match serde_json::from_slice::<Value>(json) {
        Ok(value) if value.is_object() => Ok(value),
        _ => {
            let begins = Untrusted::new(String::from_utf8_lossy(&json[..json.len().min(200)])).row_within(60);
            Err(format!("it does not answer as lariat does: '{begins}'"))
        }
    }
}

fn check_schema(host: &Host, said: &Value, rows: &mut Rows) {
    if said["schema"].as_u64() != Some(SCHEMA) {
        let schema = Untrusted::new(said["schema"].to_string()).row_within(20);
        let error =
            format!("it speaks schema {schema}, and this lariat schema {SCHEMA}; install the same version on both");
        rows.warnings.push(warning(host, error));
    }
}

/// A warning about a host.
pub fn warning(host: &Host, error: impl Into<String>) -> Warning {
    let path = match host.name == host.destination {
        true => host.name.clone(),
        false => format!("{} ({})", host.name, host.destination),
    };
    Warning { adapter: "host", path: Some(path.into()), error: Untrusted::new(error), last_ok: None }
}

/// The same row, as what a silent host said at that time.
pub fn remembered(mut session: Box<Session>, why: &str, at: Time, now: Time) -> Box<Session> {
    let seen = |fact| Observation::new(Witness::Host, fact).at(Some(at));
    let unseen = Fact::Unseen(format!("{why}; its last good answer is {} old", at.age(now)).into());
    let then = Fact::Note(format!("then it was {}: {}", session.status.word(), session.reason.raw()).into());
    let observations = vec![seen(unseen), seen(then)];
    let verdict = judge(&observations, None);
    session.because = verdict.roles.into_iter().zip(observations).collect();
    (session.status, session.reason, session.live) = (verdict.status, verdict.reason, verdict.live);
    // What is told of now is not known now.
    (session.pid, session.exit, session.ended_at, session.tool) = (None, None, None, None);
    session.restorable = false;
    session
}

fn session(host: &Host, row: &Value) -> Option<Box<Session>> {
    let text = |name: &str| row[name].as_str().map(Untrusted::new);
    // What is printed as it is on this side.
    let plain = |name: &str| row[name].as_str().map(|t| Untrusted::new(t).row_within(100));
    let at = |name: &str| time(&row[name]);
    let agent = agent(row["agent"].as_str()?)?;
    let id = row["id"].as_str()?;
    let native_id = id.strip_prefix(agent)?.strip_prefix(':').filter(|n| !n.is_empty())?;
    let word = row["status"].as_str().unwrap_or_default();
    let status = Status::ALL.into_iter().find(|s| s.word() == word);
    let reason = match status {
        Some(_) => text("reason").unwrap_or_default(),
        None => format!("its lariat says '{word}', which this one does not know").into(),
    };
    Some(Box::new(Session {
        id: Untrusted::new(id),
        agent,
        native_id: Untrusted::new(native_id),
        handle: plain("handle"),
        name: text("name"),
        host: Some(host.name.clone()),
        status: status.unwrap_or(Status::Unknown),
        reason,
        live: row["live"].as_bool().filter(|_| status.is_some()),
        pid: row["pid"].as_u64().and_then(|p| u32::try_from(p).ok()),
        cwd: text("cwd"),
        branch: text("branch"),
        model: text("model"),
        title: text("title"),
        prompt: text("prompt"),
        started_at: at("started_at"),
        updated_at: at("updated_at"),
        ended_at: at("ended_at"),
        exit: exit(&row["exit"]),
        tokens: tokens(&row["tokens"]),
        cost_usd: row["cost_usd"].as_f64(),
        group: plain("group"),
        kept: row["kept"].as_bool().unwrap_or(false),
        restorable: row["restorable"].as_bool().unwrap_or(false),
        tool: text("tool"),
        parent: text("parent"),
        because: row["because"].as_array().into_iter().flatten().take(BECAUSE).map(because).collect(),
        transcript: None,
        start: None,
        shared: false,
        elsewhere: true,
        also: None,
        teller: None,
    }))
}

fn unbound(host: &Host, row: &Value) -> Option<Unbound> {
    Some(Unbound {
        agent: agent(row["agent"].as_str()?)?,
        host: Some(host.name.clone()),
        pid: row["pid"].as_u64().and_then(|p| u32::try_from(p).ok())?,
        cwd: row["cwd"].as_str().map(Untrusted::new),
        started_at: time(&row["started_at"]),
        why: Untrusted::new(row["why"].as_str().unwrap_or_default()),
    })
}

fn because(told: &Value) -> (Role, Observation) {
    use Witness::{Gateway, Hook, Host, Process, Registry, Shim, Store};
    let word = |name: &str| told[name].as_str().unwrap_or_default();
    let witness = [Hook, Gateway, Shim, Registry, Store, Process].into_iter().find(|w| w.word() == word("witness"));
    let role = match word("role") {
        "decided" => Role::Decided,
        "agreed" => Role::Agreed,
        "disagreed" => Role::Disagreed,
        _ => Role::Context,
    };
    // It was judged there; here it is only shown.
    let observation = Observation {
        witness: witness.unwrap_or(Host),
        fact: Fact::Note(Untrusted::new(word("fact"))),
        at: time(&told["at"]),
        source: told["source"].as_str().map(Untrusted::new),
    };
    (role, observation)
}

fn time(value: &Value) -> Option<Time> {
    value.as_str().and_then(Time::parse)
}

fn exit(value: &Value) -> Option<Exit> {
    let number = |name: &str| value[name].as_i64().and_then(|n| i32::try_from(n).ok());
    number("code").map(Exit::Code).or_else(|| number("signal").map(Exit::Signal))
}

fn tokens(value: &Value) -> Option<Tokens> {
    let number = |name: &str| value[name].as_u64();
    Some(Tokens {
        input: number("input")?,
        output: number("output")?,
        cache_read: number("cache_read")?,
        cache_write: number("cache_write")?,
    })
}

/// An agent's name for as long as the program runs. A host may name any, so there is an end to it.
fn agent(name: &str) -> Option<&'static str> {
    static STRANGE: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    if let Some(known) = lariat_adapters::all().iter().map(|a| a.name()).find(|known| *known == name) {
        return Some(known);
    }
    let parts = name.split_once(':').map_or([name, name], |(kind, name)| [kind, name]);
    if !parts.iter().all(|part| is_name(part)) {
        return None;
    }
    let mut strange = STRANGE.lock().ok()?;
    if let Some(known) = strange.iter().find(|known| **known == name) {
        return Some(known);
    }
    if strange.len() == STRANGERS {
        return None;
    }
    let made: &'static str = Box::leak(name.to_owned().into_boxed_str());
    strange.push(made);
    Some(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host { name: "box".into(), destination: "dev@box".into(), lariat: None, at: Time(0) }
    }

    const ROW: &str = r#"{"id":"claude:1c80","agent":"claude","native_id":"1c80","handle":"brisk-heron","status":"working",
        "reason":"turn open","live":true,"pid":7,"cwd":"/w","updated_at":"2026-11-15T08:00:00Z","exit":{"signal":9},
        "tokens":{"input":1,"output":2,"cache_read":3,"cache_write":4},"cost_usd":0.5,"kept":true,"later":[1],
        "because":[{"witness":"registry","fact":"status busy","at":null,"source":"x","role":"decided"},{"witness":"oracle"}]}"#;

    #[test]
    fn a_row_is_what_its_lariat_said() {
        let text = format!(
            r#"{{"schema":1,"sessions":[{ROW}],"unbound":[{{"agent":"codex","pid":9,"why":"x"}}],"hidden":{{"ended":3}}}}"#
        );
        let rows = listing(&host(), text.as_bytes()).unwrap();
        let [s] = rows.sessions.as_slice() else { panic!("{rows:?}") };
        assert_eq!((s.id.raw(), s.host.as_deref(), s.elsewhere), ("claude:1c80", Some("box"), true));
        assert_eq!(
            (s.status, s.live, s.pid, s.handle.as_deref()),
            (Status::Working, Some(true), Some(7), Some("brisk-heron"))
        );
        assert_eq!((s.exit, s.tokens.map(|t| t.cache_write), s.kept), (Some(Exit::Signal(9)), Some(4), true));
        assert_eq!(s.target().raw(), "box:claude:1c80");
        let words: Vec<_> = s.because.iter().map(|(r, o)| (*r, o.witness.word())).collect();
        assert_eq!(words, [(Role::Decided, "registry"), (Role::Context, "host")]);
        assert_eq!((rows.unbound[0].host.as_deref(), rows.hidden.ended, rows.warnings.len()), (Some("box"), 3, 0));
    }

    #[test]
    fn what_is_missing_is_null_and_what_is_odd_is_told() {
        let text = r#"{"schema":2,"sessions":[{"id":"claude:a","agent":"claude"},{"id":"x"},7,{"id":"codex:a","agent":"claude"},
            {"id":"newer:a","agent":"newer","status":"dreaming","live":true,"pid":-1,"handle":"\u001b[2J","tokens":{"input":1}}]}"#;
        let rows = listing(&host(), text.as_bytes()).unwrap();
        let [bare, newer] = rows.sessions.as_slice() else { panic!("{rows:?}") };
        assert_eq!((bare.status, bare.live, &bare.cwd, bare.tokens), (Status::Unknown, None, &None, None));
        assert_eq!((newer.agent, newer.status, newer.live, newer.pid), ("newer", Status::Unknown, None, None));
        assert!(newer.reason.raw().contains("dreaming") && !newer.handle.as_ref().unwrap().contains('\x1b'));
        let told: Vec<&str> = rows.warnings.iter().map(|w| w.error.raw()).collect();
        assert!(told[0].contains("schema 2") && told[1].contains("3 of its rows"), "{told:?}");
        for garbage in ["", "[]", "Welcome!\n{}", "{\"sessions\":7}", "{\"schema\":1}", "\x1b[2J"] {
            let error = listing(&host(), garbage.as_bytes()).unwrap_err();
            assert!(!error.contains('\x1b'), "{error:?}");
        }
    }

    #[test]
    fn what_is_remembered_is_unknown_whatever_it_was() {
        let rows = listing(&host(), format!(r#"{{"schema":1,"sessions":[{ROW}]}}"#).as_bytes()).unwrap();
        let then = rows.sessions.into_iter().next().unwrap();
        let now = remembered(then, "box does not answer", Time(0), Time(300_000));
        assert_eq!((now.status, now.live, now.pid, now.restorable), (Status::Unknown, None, None, false));
        assert!(now.reason.raw().contains("its last good answer is 5m old"), "{:?}", now.reason);
        assert!(now.because.iter().any(|(_, o)| o.fact.told().raw().contains("then it was working")));
    }
}
