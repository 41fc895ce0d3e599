//! What OpenCode's sessions used: every assistant's message in its database and in the older files,
//! with the cost that OpenCode itself works out.
//!
//! A fork holds copies under new ids. A copy has the same times, model, tokens and cost, so that is
//! what a message is known by; it counts for the session that was begun first. A session that works
//! for another counts for that one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use lariat_core::{Tokens, Warning};
use lariat_sys::file::{self, Directory, Kind};
use rusqlite::Connection;

use super::{open, record, second, warning};
use crate::json::{Doc, Value};
use crate::look::Look;
use crate::spent::{self, Known, Spent, Tell, Use};

/// How far up a session is followed to the one it works for.
const DEEPEST: usize = 16;
/// No file of the older layout is larger that means anything.
const LARGEST: u64 = 32 << 20;

/// What the messages of one session used.
#[derive(Default)]
struct Session {
    /// When, in milliseconds: ids do not tell who was first, OpenCode's own run backwards.
    begun: u64,
    parent: Option<String>,
    dir: Option<String>,
    models: Vec<String>,
    uses: Vec<(Known, Use)>,
}

impl Session {
    /// Takes a message in; what it used, if it tells that. `false` if it cannot be made out.
    fn take(&mut self, message: Value<'_>) -> bool {
        match message.get("role").str() {
            Some("assistant") => {}
            role => return role == Some("user"),
        }
        let told = message.get("tokens");
        let Some(tokens) = record::tokens(told) else { return !told.exists() };
        if tokens == Tokens::default() {
            return true;
        }
        let time = |key: &str| message.get("time").get(key).u64().unwrap_or(0);
        let model = message.get("modelID").some_str().unwrap_or("unknown");
        let provider = message.get("providerID").some_str();
        let model = provider.map_or_else(|| model.to_owned(), |p| format!("{p}/{model}"));
        self.count(model, tokens, message.get("cost").f64(), [time("created"), time("completed")]);
        true
    }

    /// Takes in what an answer used, which was begun and done at these times.
    fn count(&mut self, model: String, tokens: Tokens, cost: Option<f64>, [created, completed]: [u64; 2]) {
        let cost = record::cost(cost, Some(tokens));
        let numbers = [
            created,
            completed,
            tokens.input,
            tokens.output,
            tokens.cache_read,
            tokens.cache_write,
            cost.unwrap_or(0.0).to_bits(),
        ];
        let known = spent::known_by(&[model.as_bytes(), numbers.map(u64::to_le_bytes).as_flattened()]);
        let at = Some(record::moment(i64::try_from(created).unwrap_or(i64::MAX)) / 1000).filter(|at| *at > 0);
        let model = self.models.iter().position(|m| *m == model).unwrap_or_else(|| {
            self.models.push(model);
            self.models.len() - 1
        });
        self.uses.push((known, Use { at, model, tokens, cost: cost.and_then(spent::usd), answers: 1 }));
    }
}

type Sessions = BTreeMap<String, Session>;
type Problems = Vec<(PathBuf, String)>;

/// Tells what every session used.
pub fn tell(look: &Look<'_>, only: Option<&str>, to: &mut Tell<'_>) -> Vec<Warning> {
    let mut problems: Problems = Vec::new();
    let path = &look.places.opencode_db;
    let read = open::with(path, Some(look.now), |db| stored(db, path)).unwrap_or_else(|why| {
        problems.push((path.clone(), why));
        None
    });
    let (mut sessions, more) = read.unwrap_or_default();
    problems.extend(more);
    older(&look.places.opencode, &mut sessions, &mut problems);

    let parents: HashMap<&str, &str> =
        sessions.iter().filter_map(|(id, s)| Some((id.as_str(), s.parent.as_deref()?))).collect();
    let mut seen = HashSet::new();
    let mut in_order: Vec<(&String, &Session)> = sessions.iter().collect();
    in_order.sort_by_key(|(_, session)| session.begun);
    for (id, session) in in_order {
        let mut root = id.as_str();
        for _ in 0..DEEPEST {
            root = parents.get(root).copied().filter(|p| sessions.contains_key(*p)).unwrap_or(root);
            if root == id {
                break; // it is above itself
            }
        }
        if only.is_some_and(|only| only != root) {
            continue; // what it holds copies of is its own, to who asks for it alone
        }
        let uses: Vec<Use> = session.uses.iter().filter(|(known, _)| seen.insert(*known)).map(|(_, u)| *u).collect();
        if !uses.is_empty() {
            let models: Vec<&str> = session.models.iter().map(String::as_str).collect();
            (to.to)(Spent { session: root, dir: session.dir.as_deref(), models: &models, uses: &uses });
        }
    }
    problems.into_iter().map(|(path, why)| warning(look, &path, why)).collect()
}

/// What the database holds, and what in it cannot be read.
fn stored(db: &open::Db, path: &Path) -> rusqlite::Result<(Sessions, Problems)> {
    let (mut sessions, mut problems) = (Sessions::new(), Problems::new());
    let connection = db.connection();
    if connection.query_row("SELECT count(*) FROM sqlite_master WHERE name = 'message'", [], |r| r.get(0)) == Ok(0) {
        return Ok((sessions, problems)); // a database that was just made
    }
    let moment = connection.unchecked_transaction()?;
    let mut asked = connection.prepare("SELECT id, parent_id, directory, time_created FROM session")?;
    let mut rows = asked.query([])?;
    while let Some(row) = rows.next()? {
        let begun = row.get_ref(3)?.as_i64().ok().and_then(|at| u64::try_from(at).ok()).unwrap_or(0);
        let session = Session { begun, parent: open::text(row, 1), dir: open::text(row, 2), ..Session::default() };
        sessions.insert(open::text(row, 0).unwrap_or_default(), session);
    }
    let mut asked = connection.prepare("SELECT session_id, data FROM message")?;
    let mut rows = asked.query([])?;
    let mut broken = 0;
    loop {
        // What lies behind a damaged page is lost, what came before is not.
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => break,
            Err(e) => {
                problems.push((path.to_owned(), format!("messages could not all be read: {e}")));
                break;
            }
        };
        let session = sessions.entry(open::text(row, 0).unwrap_or_default()).or_default();
        match record::message(row.get_ref(1)?.as_bytes().unwrap_or_default()) {
            Ok(message) if session.take(message.root()) => {}
            _ => broken += 1,
        }
    }
    drop(rows);
    drop(asked);
    let more = second::is_there(connection).and_then(|there| match there {
        true => answers(connection, &mut sessions),
        false => Ok(0),
    });
    match more {
        Ok(more) => broken += more,
        Err(e) => problems.push((path.to_owned(), format!("messages could not all be read: {e}"))),
    }
    if broken > 0 {
        problems.push((path.to_owned(), format!("{broken} messages cannot be read; what they used is not counted")));
    }
    moment.finish()?;
    Ok((sessions, problems))
}

/// Adds what the second interface was asked; how many answers cannot be read.
fn answers(connection: &Connection, sessions: &mut Sessions) -> rusqlite::Result<usize> {
    let mut broken = 0;
    let mut asked = connection.prepare(&second::answers())?;
    let mut rows = asked.query([])?;
    while let Some(row) = rows.next()? {
        let session = sessions.entry(open::text(row, 0).unwrap_or_default()).or_default();
        match second::spent(row.get_ref(1)?.as_bytes().unwrap_or_default()) {
            Ok(told) => told.into_iter().for_each(|u| session.count(u.model, u.tokens, u.cost, u.times)),
            Err(_) => broken += 1,
        }
    }
    Ok(broken)
}

/// Adds what the older layouts hold of sessions that the database, or the newer of them, does not know.
fn older(store: &Path, sessions: &mut Sessions, problems: &mut Problems) {
    let known: HashSet<String> = sessions.keys().cloned().collect();
    let storage = store.join("storage");
    for project in names(&storage.join("session"), problems) {
        about(&storage.join("session").join(project), &known, sessions, problems);
    }
    used(&storage.join("message"), &known, sessions, problems);
    let known: HashSet<String> = sessions.keys().cloned().collect();
    for project in names(&store.join("project"), problems) {
        let storage = store.join("project").join(project).join("storage/session");
        about(&storage.join("info"), &known, sessions, problems);
        used(&storage.join("message"), &known, sessions, problems);
    }
}

fn about(folder: &Path, known: &HashSet<String>, sessions: &mut Sessions, problems: &mut Problems) {
    for name in names(folder, problems) {
        let Some(id) = name.strip_suffix(".json").filter(|id| !known.contains(*id)) else { continue };
        let keep = |_: &[u8], key: &[u8]| matches!(key, b"directory" | b"parentID" | b"time" | b"created");
        let Some(doc) = parsed(&folder.join(&name), problems, |bytes| record::parse(bytes, keep, 4000).ok()) else {
            continue;
        };
        let session = sessions.entry(id.to_owned()).or_default();
        session.begun = doc.root().get("time").get("created").u64().unwrap_or(0);
        session.parent = doc.root().get("parentID").some_str().map(str::to_owned);
        session.dir = doc.root().get("directory").some_str().map(str::to_owned);
    }
}

fn used(folder: &Path, known: &HashSet<String>, sessions: &mut Sessions, problems: &mut Problems) {
    for id in names(folder, problems).into_iter().filter(|id| !known.contains(id)) {
        let folder = folder.join(&id);
        for name in names(&folder, problems).into_iter().filter(|name| name.ends_with(".json")) {
            let path = folder.join(name);
            let Some(doc) = parsed(&path, problems, |bytes| record::message(bytes).ok()) else { continue };
            if !sessions.entry(id.clone()).or_default().take(doc.root()) {
                problems.push((path, "a message that cannot be read; what it used is not counted".into()));
            }
        }
    }
}

fn parsed(path: &Path, problems: &mut Problems, parse: impl Fn(&[u8]) -> Option<Doc>) -> Option<Doc> {
    let read = file::read_small(path, LARGEST).map_err(|e| e.to_string());
    let doc = read.and_then(|bytes| parse(&bytes).ok_or_else(|| "it is not JSON; what it used is not counted".into()));
    doc.map_err(|why| problems.push((path.to_owned(), why))).ok()
}

/// The names in a folder, in order. A folder that is not there has none.
fn names(folder: &Path, problems: &mut Problems) -> Vec<String> {
    match Directory::open(folder).and_then(|d| d.entries()) {
        Ok(entries) => {
            let mut names: Vec<String> =
                entries.into_iter().filter(|e| e.kind != Kind::Other).map(|e| e.name).collect();
            names.sort_unstable();
            names
        }
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Vec::new(),
        Err(e) => {
            problems.push((folder.to_owned(), e.to_string()));
            Vec::new()
        }
    }
}
