//! What OpenCode's database holds: asked little, all of it as of one moment.
//!
//! Four tables are asked: `session`, `message`, `part`, and `session_message` where there is one. Others hold secrets.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use lariat_core::Tokens;
use rusqlite::{CachedStatement, Row};

use super::kept::{self, Version};
use super::open::{Db, moment, number, real, text, why, with};
use super::record::{self, Stand, Stored, Sum};
use super::second;
use crate::json::Doc;
use crate::look::Look;

/// How far up a session is followed to the one it works for.
const DEEPEST: usize = 16;
/// Which sessions work for no other one that is stored. (Nothing is NOT IN a list with a NULL.)
const TOP: &str = "(parent_id IS NULL OR parent_id NOT IN (SELECT id FROM session WHERE id IS NOT NULL))";
/// How much of a prompt is kept.
const LONGEST: usize = 4000;

/// What is asked of the database.
pub struct Wanted<'a> {
    /// Every session, or only those named.
    pub all: bool,
    /// Sessions that processes name.
    pub named: &'a HashSet<String>,
    /// And those that a turn was begun in since. (OpenCode touches a session when
    /// it is asked something.)
    pub since: Option<i64>,
    /// And those that were asked something by the second interface since, which touches none.
    pub second_since: Option<i64>,
}

/// What it holds.
#[derive(Default)]
pub struct Contents {
    /// The sessions, in the order of their ids; those that work for another are
    /// no sessions of their own.
    pub sessions: Vec<Stored>,
    /// Of each named session, the one at the root of its work.
    pub roots: HashMap<String, String>,
    /// Those that work for a named session, by its root.
    pub below: HashMap<String, Vec<Stored>>,
    /// Sessions that were left out.
    pub hidden: usize,
    /// What could not be read of it.
    pub damage: Option<String>,
    /// There may be more sessions, behind what could not be read.
    pub cut: bool,
}

/// Reads what is wanted; `None` if there is no database.
pub fn read(look: &Look<'_>, wanted: &Wanted<'_>) -> Result<Option<Contents>, String> {
    let ask = || with(&look.places.opencode_db, Some(look.now), |db| db.contents(look, wanted));
    // With somebody at work in it, it changes all the time.
    let Some(version) =
        (wanted.all && wanted.named.is_empty()).then(|| Version::of(&look.places.opencode_db)).flatten()
    else {
        return ask();
    };
    if let Some(contents) = kept::recall(look, version) {
        return Ok(Some(contents));
    }
    let read = ask()?;
    if let Some(contents) = &read {
        kept::keep(look, version, contents);
    }
    Ok(read)
}

impl Db {
    fn contents(&self, look: &Look<'_>, wanted: &Wanted<'_>) -> rusqlite::Result<Contents> {
        let mut contents = Contents::default();
        if self.columns.is_empty() {
            return Ok(contents); // a database that was just made
        }
        // One moment for all that is asked.
        let moment = self.connection.unchecked_transaction()?;
        let rings = self.rings().unwrap_or_else(|e| {
            contents.damage = Some(why(&e));
            HashSet::new()
        });
        for id in wanted.named {
            if let Some(root) = self.root(id)? {
                contents.roots.insert(id.clone(), root);
            }
        }
        let mut only: Vec<&String> = contents.roots.values().collect();
        only.sort_unstable();
        only.dedup();
        for root in &only {
            contents.below.insert((*root).clone(), self.below(root, &rings)?);
        }
        if wanted.all {
            let mut asked = self.sessions(TOP)?;
            let mut rows = asked.query([])?;
            loop {
                // What lies behind a damaged page is lost, what came before is not.
                match rows.next() {
                    Ok(Some(row)) => contents.sessions.extend(self.session(row)),
                    Ok(None) => break,
                    Err(e) if contents.sessions.is_empty() => return Err(e),
                    Err(e) => {
                        contents.damage = Some(why(&e));
                        contents.cut = true;
                        break;
                    }
                }
                look.steps.fetch_add(1, Ordering::Relaxed);
            }
            self.add(&rings, None, &mut contents)?;
        } else {
            let mut asked = self.sessions("id = ?1")?;
            for root in only {
                let mut rows = asked.query([root])?;
                if let Some(row) = rows.next()? {
                    contents.sessions.extend(self.session(row));
                }
            }
            if let Some(since) = wanted.since {
                let mut asked = self.sessions(&format!("{TOP} AND time_updated >= ?1"))?;
                let mut rows = asked.query([since])?;
                while let Some(row) = rows.next()? {
                    let stored = self.session(row);
                    let known = |stored: &Stored| contents.sessions.iter().any(|s| s.id == stored.id);
                    let new = stored.filter(|stored| !known(stored));
                    contents.sessions.extend(new);
                }
                self.add(&rings, Some(since), &mut contents)?;
            }
            if let Some(since) = wanted.second_since.filter(|_| self.second) {
                let stirred = second::stirred(&self.connection, since).unwrap_or_else(|e| {
                    (contents.damage, contents.cut) = (Some(why(&e)), true);
                    Vec::new()
                });
                let roots: Vec<Option<String>> = stirred.iter().map(|id| self.root(id)).collect::<Result<_, _>>()?;
                self.add(&roots.into_iter().flatten().collect(), None, &mut contents)?;
            }
            let count = format!("SELECT count(*) FROM session WHERE {TOP}");
            let roots: usize = self.connection.query_row(&count, [], |row| row.get(0))?;
            contents.hidden = (roots + rings.len()).saturating_sub(contents.sessions.len());
        }
        contents.sessions.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        let below = contents.below.values().flatten();
        let problem = below.chain(&contents.sessions).find_map(|s| s.problem.clone().map(|why| (s.id.clone(), why)));
        let problem = problem.map(|(id, why)| format!("{id} could not all be read: {why}"));
        let nameless = self.nameless.take().then(|| "it holds a session without an id".to_owned());
        contents.damage = contents.damage.take().or(nameless).or(problem);
        moment.finish()?;
        Ok(contents)
    }

    /// The sessions that are said to work for themselves, or for one that works for them: each is one of its own.
    fn rings(&self) -> rusqlite::Result<HashSet<String>> {
        let below = "SELECT id, parent_id FROM session \
                     WHERE parent_id IN (SELECT id FROM session WHERE parent_id IS NOT NULL)";
        let mut asked = self.connection.prepare_cached(below)?;
        let rows = asked.query_map([], |row| Ok((text(row, 0), text(row, 1))))?;
        let rows: Vec<_> = rows.collect::<Result<_, _>>()?;
        Ok(rings(&rows.into_iter().filter_map(|(id, above)| id.zip(above)).collect()))
    }

    /// Adds these sessions, if they were written since and are not known yet.
    fn add(&self, ids: &HashSet<String>, since: Option<i64>, contents: &mut Contents) -> rusqlite::Result<()> {
        let known: HashSet<String> = contents.sessions.iter().map(|s| s.id.clone()).collect();
        let mut asked = self.sessions("id = ?1 AND (?2 IS NULL OR time_updated >= ?2)")?;
        for id in ids.difference(&known) {
            let mut rows = asked.query((id, since))?;
            contents.sessions.extend(rows.next()?.and_then(|row| self.session(row)));
        }
        Ok(())
    }

    fn sessions(&self, which: &str) -> rusqlite::Result<CachedStatement<'_>> {
        let column = |name: &'static str| if self.columns.contains(name) { name } else { "NULL" };
        let columns = COLUMNS.map(column).join(", ");
        self.connection.prepare_cached(&format!("SELECT {columns} FROM session WHERE {which}"))
    }

    /// The session at the root of this one's work; `None` if it is not stored.
    fn root(&self, id: &str) -> rusqlite::Result<Option<String>> {
        let mut asked = self.connection.prepare_cached("SELECT parent_id FROM session WHERE id = ?1")?;
        let mut way: Vec<String> = Vec::new();
        let mut next = Some(id.to_owned());
        while let Some(id) = next.take().filter(|_| way.len() < DEEPEST) {
            if way.contains(&id) {
                return Ok(Some(id)); // the first of a ring
            }
            let mut rows = asked.query([&id])?;
            let Some(row) = rows.next()? else { break };
            next = text(row, 0);
            way.push(id);
        }
        Ok(way.pop())
    }

    /// The sessions that work for this one, at any depth, but those of a ring.
    fn below(&self, root: &str, rings: &HashSet<String>) -> rusqlite::Result<Vec<Stored>> {
        let mut asked = self.sessions("parent_id = ?1")?;
        let mut all: Vec<Stored> = Vec::new();
        let mut of = vec![root.to_owned()];
        while let Some(parent) = of.pop() {
            let mut rows = asked.query([&parent])?;
            while let Some(row) = rows.next()? {
                let Some(stored) = self.session(row) else { continue };
                if !rings.contains(&stored.id) && !all.iter().any(|known| known.id == stored.id) {
                    of.push(stored.id.clone());
                    all.push(stored);
                }
            }
        }
        Ok(all)
    }

    /// One session. What cannot be read of its turn is told as that; one without an id is none.
    fn session(&self, row: &Row<'_>) -> Option<Stored> {
        let id = text(row, 0).filter(|id| super::is_id(id));
        self.nameless.set(self.nameless.get() || id.is_none());
        let id = id?;
        let count = |i| number(row, i).and_then(|n| u64::try_from(n).ok());
        let tokens = || {
            Some(Tokens {
                input: count(4)?,
                output: count(5)?.saturating_add(count(6)?),
                cache_read: count(7)?,
                cache_write: count(8)?,
            })
        };
        let tokens = tokens();
        let mut stored = Stored {
            directory: text(row, 1),
            title: record::title(text(row, 2)),
            cost: record::cost(real(row, 3), tokens),
            tokens,
            model: text(row, 9).and_then(|json| model(&json)),
            created: moment(row, 10),
            updated: moment(row, 11).or(moment(row, 10)).unwrap_or(0),
            transcript: self.path.join(&id),
            ..Stored::default()
        };
        if !self.columns.contains("tokens_input")
            && let Ok(sum) = self.sum(&id)
        {
            (stored.tokens, stored.cost) = sum.told();
            stored.model = sum.model;
        }
        let undone = text(row, 12).and_then(|json| undone(&json));
        if let Err(e) = self.turn(&id, undone.as_deref(), &mut stored) {
            stored.stand = Stand::Unread(why(&e));
        }
        if let Err(e) = self.prompt(&id, &mut stored) {
            stored.problem = Some(why(&e));
        }
        if self.second
            && let Err(e) = second::add(&self.connection, &id, &mut stored)
        {
            stored.stand = Stand::Unread(why(&e));
        }
        stored.disown_copies();
        if let Stand::Unread(why) = &stored.stand {
            stored.problem = Some(why.clone());
        }
        stored.id = id;
        Some(stored)
    }

    /// How the newest message that was not undone leaves the turn, and what it is at.
    fn turn(&self, id: &str, undone: Option<&str>, stored: &mut Stored) -> rusqlite::Result<()> {
        let newest = "SELECT id, time_created, time_updated, data FROM message WHERE session_id = ?1 \
                      AND (?2 IS NULL OR id < ?2) ORDER BY time_created DESC, id DESC LIMIT 1";
        let mut asked = self.connection.prepare_cached(newest)?;
        let mut rows = asked.query((id, undone))?;
        let Some(row) = rows.next()? else {
            // All that was said was taken back: there is nothing left to be at.
            stored.stand = undone.map_or(Stand::Never, |_| Stand::Well);
            return Ok(());
        };
        stored.since = moment(row, 1).unwrap_or(0);
        stored.updated = stored.updated.max(moment(row, 2).unwrap_or(0));
        let mut mute = false;
        stored.stand = match record::message(row.get_ref(3)?.as_bytes().unwrap_or_default()) {
            Ok(message) if message.root().get("role").str() == Some("user") => {
                self.before(id, stored.since)?.unwrap_or(Stand::Open)
            }
            Ok(message) => {
                mute = record::ends_without_a_word(message.root());
                record::stand(message.root())
            }
            Err(why) => Stand::Unread(why),
        };
        if !stored.is_open() && !mute {
            return Ok(());
        }
        let parts = "SELECT time_updated, data FROM part WHERE message_id = ?1 ORDER BY id";
        let mut asked = self.connection.prepare_cached(parts)?;
        let mut parts = asked.query([text(row, 0)])?;
        while let Some(row) = parts.next()? {
            stored.updated = stored.updated.max(moment(row, 0).unwrap_or(0));
            let part = record::part(row.get_ref(1)?.as_bytes().unwrap_or_default(), 600);
            let Some(part) = part.map_err(|why| stored.problem = Some(why)).ok() else {
                mute = false;
                continue;
            };
            mute &= !record::gives(part.root());
            if stored.is_open() {
                stored.take(part.root());
            }
        }
        if mute {
            stored.given_up();
        }
        Ok(())
    }

    /// What its messages add up to, in a database that has no such columns (before 1.15).
    fn sum(&self, id: &str) -> rusqlite::Result<Sum> {
        let newest = "SELECT data FROM message WHERE session_id = ?1 ORDER BY time_created DESC, id DESC LIMIT ?2";
        let mut asked = self.connection.prepare_cached(newest)?;
        let rows = asked.query_map((id, record::COUNTED + 1), |row| {
            Ok(record::message(row.get_ref(0)?.as_bytes().unwrap_or_default()))
        })?;
        let messages: Vec<_> = rows.collect::<Result<_, _>>()?;
        let mut sum = Sum::default();
        for message in messages.iter().rev() {
            match message {
                Ok(message) => sum.add(message.root()),
                Err(_) => sum.lack(),
            }
        }
        if messages.len() > record::COUNTED {
            sum.lack();
        }
        Ok(sum)
    }

    /// How what was answered before leaves a prompt of this moment, if it does not let it be taken up.
    fn before(&self, id: &str, asked: i64) -> rusqlite::Result<Option<Stand>> {
        let earlier = "SELECT data FROM message WHERE session_id = ?1 ORDER BY time_created DESC, id DESC LIMIT 32";
        let mut asked_for = self.connection.prepare_cached(earlier)?;
        let mut rows = asked_for.query([id])?;
        while let Some(row) = rows.next()? {
            let Ok(message) = record::message(row.get_ref(0)?.as_bytes().unwrap_or_default()) else { return Ok(None) };
            if message.root().get("role").str() == Some("assistant") {
                return Ok(record::stand_behind(asked, message.root()));
            }
        }
        Ok(None)
    }

    /// What a person asked first. Before that they may have run a command, of which OpenCode says so itself.
    fn prompt(&self, id: &str, stored: &mut Stored) -> rusqlite::Result<()> {
        let first = "SELECT id, data FROM message WHERE session_id = ?1 ORDER BY time_created, id LIMIT 8";
        let mut asked = self.connection.prepare_cached(first)?;
        let mut messages = asked.query([id])?;
        while let Some(row) = messages.next()? {
            let message = record::message(row.get_ref(1)?.as_bytes().unwrap_or_default());
            if message.is_ok_and(|m| m.root().get("role").str() == Some("assistant")) {
                continue;
            }
            let parts = "SELECT data FROM part WHERE message_id = ?1 ORDER BY id LIMIT 8";
            let mut asked = self.connection.prepare_cached(parts)?;
            let mut rows = asked.query([text(row, 0)])?;
            while let Some(row) = rows.next()? {
                let part = record::part(row.get_ref(0)?.as_bytes().unwrap_or_default(), LONGEST);
                let Some(part) = part.map_err(|why| stored.problem = Some(why)).ok() else { continue };
                stored.prompt = record::spoken(part.root()).map(str::to_owned);
                if stored.prompt.is_some() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The message from which on a person has undone what was said in a session.
    pub fn undone(&self, id: &str) -> rusqlite::Result<Option<String>> {
        let mut asked = self.sessions("id = ?1")?;
        let mut rows = asked.query([id])?;
        Ok(rows.next()?.and_then(|row| text(row, 12)).and_then(|json| undone(&json)))
    }
}

const COLUMNS: [&str; 13] = [
    "id",
    "directory",
    "title",
    "cost",
    "tokens_input",
    "tokens_output",
    "tokens_reasoning",
    "tokens_cache_read",
    "tokens_cache_write",
    "model",
    "time_created",
    "time_updated",
    "revert",
];

/// Who is above itself, by who is above whom. Everybody is passed once.
fn rings(above: &HashMap<String, String>) -> HashSet<String> {
    let mut met: HashMap<&str, usize> = HashMap::new(); // on which walk
    let mut rings = HashSet::new();
    for (walk, start) in above.keys().enumerate() {
        let mut at = start.as_str();
        while let Some(up) = above.get(at).filter(|_| !met.contains_key(at)) {
            met.insert(at, walk);
            at = up;
        }
        // Met on this very walk, it is come to again: round from there.
        while met.get(at) == Some(&walk) && rings.insert(at.to_owned()) {
            at = &above[at];
        }
    }
    rings
}

/// `{"id":"m","providerID":"p"}` as `p/m`, which is how `--model` takes it.
fn model(json: &str) -> Option<String> {
    let doc = Doc::parse(json.as_bytes(), |_, key| matches!(key, b"id" | b"providerID"), 400).ok()?;
    let id = doc.root().get("id").some_str()?;
    Some(doc.root().get("providerID").some_str().map_or_else(|| id.to_owned(), |p| format!("{p}/{id}")))
}

/// The message from which on all was undone. It stays stored until the next prompt, so that it can be redone.
fn undone(json: &str) -> Option<String> {
    let doc = Doc::parse(json.as_bytes(), |_, key| key == b"messageID", 100).ok()?;
    doc.root().get("messageID").some_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_above_itself_is_found_in_one_pass() {
        let found = |above: &[(&str, &str)]| {
            let rings = rings(&above.iter().map(|(id, up)| ((*id).to_owned(), (*up).to_owned())).collect());
            let mut rings: Vec<String> = rings.into_iter().collect();
            rings.sort_unstable();
            rings.concat()
        };
        assert_eq!(found(&[]), "");
        assert_eq!(found(&[("b", "a"), ("c", "b"), ("d", "b")]), "", "a is above all, and nobody above it");
        assert_eq!(found(&[("a", "a"), ("b", "a"), ("c", "b")]), "a");
        assert_eq!(
            found(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "b"), ("e", "d"), ("f", "g"), ("g", "f")]),
            "abcfg"
        );
        let many: HashMap<String, String> = (0..200_000).map(|n: u32| (n.to_string(), (n / 2).to_string())).collect();
        assert_eq!(rings(&many).len(), 1);
    }
}
