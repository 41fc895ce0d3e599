//! OpenCode's store, written by hand as 1.18 writes it.
//!
//! ```text
//! let store = OpenCodeStore::of(&sandbox);
//! store.session("ses_1").asked("fix it").calls("bash", json!({"command": "make"}));
//! let agent = sandbox.lookalike("opencode", &[]);
//! store.logs(&agent, "aaaa", "message=loop session.id=ses_1 step=0");
//! ```
//!
//! The database has the three tables that tell of sessions, with their real columns and indexes. A
//! line of the log is really written by the lookalike, through a descriptor that it keeps.

use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
};

use lariat_testkit::{Lookalike, Sandbox, database};
use serde_json::{Value, json};

use crate::moment::{iso, now};

const SCHEMA: &str = "
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, slug text NOT NULL,
    directory text NOT NULL, title text NOT NULL, version text NOT NULL, cost real DEFAULT 0 NOT NULL,
    tokens_input integer DEFAULT 0 NOT NULL, tokens_output integer DEFAULT 0 NOT NULL,
    tokens_reasoning integer DEFAULT 0 NOT NULL, tokens_cache_read integer DEFAULT 0 NOT NULL,
    tokens_cache_write integer DEFAULT 0 NOT NULL, agent text, model text, time_created integer NOT NULL,
    time_updated integer NOT NULL, time_archived integer);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
    time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
    time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE credential (id text PRIMARY KEY, value text NOT NULL);
CREATE INDEX message_session_time_created_id_idx ON message (session_id, time_created, id);
CREATE INDEX part_message_id_id_idx ON part (message_id, id);
CREATE INDEX part_session_idx ON part (session_id);
CREATE INDEX session_parent_idx ON session (parent_id);
";

/// `~/.local/share/opencode` of a sandbox.
pub struct OpenCodeStore {
    root: PathBuf,
    cwd: PathBuf,
    next: Cell<u64>,
}

impl OpenCodeStore {
    /// The store of the sandbox's HOME, with an empty database.
    pub fn of(sandbox: &Sandbox) -> Self {
        let store = Self::without_database(sandbox);
        fs::create_dir_all(store.path("log")).expect("the store");
        database::build(&store.path("opencode.db"), SCHEMA);
        store
    }

    /// The store of the sandbox's HOME, with nothing in it.
    pub fn without_database(sandbox: &Sandbox) -> Self {
        let root = sandbox.home().join(".local/share/opencode");
        Self { root, cwd: sandbox.work(), next: Cell::new(1) }
    }

    /// A path in the store.
    pub fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    /// Runs statements on the database.
    pub fn sql(&self, sql: &str) {
        drop(database::write(&self.path("opencode.db"), sql));
    }

    /// A session in the sandbox's project.
    pub fn session(&self, id: &str) -> Stored<'_> {
        self.session_at(id, &self.cwd, None, now())
    }

    /// A session that works for another.
    pub fn below(&self, id: &str, parent: &str) -> Stored<'_> {
        self.session_at(id, &self.cwd, Some(parent), now())
    }

    /// A session that was last written at a moment.
    pub fn session_at(&self, id: &str, cwd: &Path, parent: Option<&str>, at: i64) -> Stored<'_> {
        let parent = parent.map_or("NULL".to_owned(), quoted);
        let model = json!({"id": "m-1", "providerID": "p"}).to_string();
        self.sql(&format!(
            "INSERT INTO session (id, project_id, parent_id, slug, directory, title, version, model, time_created, \
             time_updated) VALUES ({}, 'global', {parent}, 'x', {}, 'New session - x', '1.18.33', {}, {at}, {at})",
            quoted(id),
            quoted(cwd.to_str().expect("UTF-8")),
            quoted(&model)
        ));
        Stored { store: self, id: id.to_owned(), at }
    }

    /// Lets a process write a line into the log, as a run of this name.
    pub fn logs(&self, process: &Lookalike, run: &str, rest: &str) {
        let log = self.path("log/opencode.log");
        process.tell(&format!("log {} timestamp={} level=INFO run={run} {rest}", log.display(), iso(now())));
    }

    fn fresh(&self, kind: &str) -> String {
        self.next.set(self.next.get() + 1);
        format!("{kind}_{:012}", self.next.get())
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A session that grows.
pub struct Stored<'a> {
    store: &'a OpenCodeStore,
    id: String,
    at: i64,
}

impl Stored<'_> {
    /// A message with its parts.
    pub fn message(self, message: &Value, parts: &[Value]) -> Self {
        self.raw(&message.to_string(), &parts.iter().map(Value::to_string).collect::<Vec<_>>())
    }

    /// As [`message`](Self::message), of any text.
    pub fn raw(self, message: &str, parts: &[String]) -> Self {
        let (id, at) = (self.store.fresh("msg"), self.at);
        let session = quoted(&self.id);
        let mut sql =
            format!("INSERT INTO message VALUES ({}, {session}, {at}, {at}, {});", quoted(&id), quoted(message));
        for part in parts {
            let fresh = quoted(&self.store.fresh("prt"));
            sql.push_str(&format!(
                "INSERT INTO part VALUES ({fresh}, {}, {session}, {at}, {at}, {});",
                quoted(&id),
                quoted(part)
            ));
        }
        self.store.sql(&sql);
        self
    }

    /// A person asks.
    pub fn asked(self, text: &str) -> Self {
        let message = json!({"role": "user", "time": {"created": self.at}});
        self.message(&message, &[json!({"type": "text", "text": text})])
    }

    /// The agent answers.
    pub fn answered(self, text: &str) -> Self {
        let time = json!({"created": self.at, "completed": self.at});
        let message = json!({"role": "assistant", "time": time, "finish": "stop"});
        self.message(&message, &[json!({"type": "text", "text": text, "time": {"start": 1, "end": 2}})])
    }

    /// The turn ends in an error.
    pub fn failed(self, name: &str, text: &str) -> Self {
        let error = json!({"name": name, "data": {"message": text}});
        let message = json!({"role": "assistant", "time": {"created": self.at}, "error": error});
        self.message(&message, &[])
    }

    /// The agent calls a tool, which runs; it has said something if it has begun.
    pub fn calls(self, tool: &str, input: &Value, begun: bool) -> Self {
        let mut state = json!({"status": "running", "input": input, "time": {"start": self.at}});
        if begun {
            state["metadata"] = json!({"output": ""});
        }
        let message = json!({"role": "assistant", "time": {"created": self.at}});
        self.message(&message, &[json!({"type": "tool", "tool": tool, "callID": "c", "state": state})])
    }
}
