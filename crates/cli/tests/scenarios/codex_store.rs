//! Codex's store, written by hand as 0.166 writes it.
//!
//! ```text
//! let codex = CodexStore::of(&sandbox);
//! let agent = sandbox.lookalike("codex", &["--no-daemon"]);
//! codex.lock(&agent, ONE);
//! codex.thread(ONE).asked("fix it").calls("call_1", "make");
//! ```
//!
//! A rollout grows by lines; a lock is really held by the lookalike, with `flock`.

use std::{
    cell::Cell,
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use lariat_testkit::{Lookalike, Sandbox};
use serde_json::{Value, json};

use crate::moment::{iso, now};

/// `~/.codex` of a sandbox.
pub struct CodexStore {
    root: PathBuf,
    cwd: PathBuf,
}

impl CodexStore {
    /// The store of the sandbox's HOME.
    pub fn of(sandbox: &Sandbox) -> Self {
        Self { root: sandbox.home().join(".codex"), cwd: sandbox.work() }
    }

    /// A path in the store.
    pub fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    /// A thread's rollout in the sandbox's project.
    pub fn thread(&self, id: &str) -> Rollout {
        self.thread_in(id, &self.cwd)
    }

    /// A thread's rollout in a directory.
    pub fn thread_in(&self, id: &str, cwd: &Path) -> Rollout {
        let cwd = cwd.to_str().expect("UTF-8");
        Rollout::new(self.path(&format!("sessions/2026/11/15/{}", name(id))), id, cwd, "main")
    }

    /// A thread's rollout whose first line names a branch.
    pub fn thread_on(&self, id: &str, cwd: &str, branch: &str) -> Rollout {
        Rollout::new(self.path(&format!("sessions/2026/11/15/{}", name(id))), id, cwd, branch)
    }

    /// An archived thread's rollout.
    pub fn archived(&self, id: &str) -> Rollout {
        let cwd = self.cwd.to_str().expect("UTF-8");
        Rollout::new(self.path(&format!("archived_sessions/{}", name(id))), id, cwd, "main")
    }

    /// The lock file of a thread, held by nobody unless somebody is told to.
    pub fn lock_file(&self, id: &str) -> PathBuf {
        let folder = self.path("thread-writer-locks");
        fs::create_dir_all(&folder).expect("the folder of locks");
        folder.join(format!("{id}.lock"))
    }

    /// Lets a process hold a thread's lock.
    pub fn lock(&self, process: &Lookalike, id: &str) -> PathBuf {
        let path = self.lock_file(id);
        process.tell(&format!("flock {}", path.display()));
        path
    }

    /// A person names a thread.
    pub fn name(&self, id: &str, text: &str) {
        let line = json!({"id": id, "thread_name": text, "updated_at": iso(now())});
        append(&self.path("session_index.jsonl"), &line);
    }
}

/// `rollout-2026-11-15T07-47-10-<id>.jsonl`.
fn name(id: &str) -> String {
    format!("rollout-2026-11-15T07-47-10-{id}.jsonl")
}

fn append(path: &Path, line: &Value) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder of the store");
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("a file of the store");
    file.write_all(format!("{line}\n").as_bytes()).expect("room for a line");
}

/// A rollout that grows.
pub struct Rollout {
    /// Where it is.
    pub path: PathBuf,
    id: String,
    cwd: String,
    branch: String,
    model: String,
    policy: &'static str,
    at: Cell<i64>,
    ordinal: Cell<u64>,
    turn: Cell<u64>,
}

impl Rollout {
    fn new(path: PathBuf, id: &str, cwd: &str, branch: &str) -> Self {
        Self {
            path,
            id: id.to_owned(),
            cwd: cwd.to_owned(),
            branch: branch.to_owned(),
            model: "gpt-5.2-codex".into(),
            policy: "on-request",
            at: Cell::new(now()),
            ordinal: Cell::new(0),
            turn: Cell::new(0),
        }
    }

    /// Adds a line; the first one of the file tells what it is, and is written with it.
    pub fn add(self, kind: &str, payload: Value) -> Self {
        if !self.path.exists() {
            let meta = json!({"session_id": self.id, "id": self.id,
                "timestamp": iso(self.at.get()), "cwd": self.cwd, "originator": "codex-tui",
                "cli_version": "0.166.0", "source": "cli", "model_provider": "openai",
                "history_mode": "paginated", "base_instructions": {"text": "filler"},
                "git": {"commit_hash": "9fb3e5", "branch": self.branch}});
            self.write("session_meta", &meta);
        }
        self.write(kind, &payload);
        self
    }

    fn write(&self, kind: &str, payload: &Value) {
        let at = self.at.replace(self.at.get() + 1);
        let ordinal = self.ordinal.replace(self.ordinal.get() + 1);
        append(&self.path, &json!({"timestamp": iso(at), "ordinal": ordinal, "type": kind, "payload": payload}));
    }

    fn turn_id(&self) -> String {
        format!("01a1de2c-a50d-75f1-88ab-{:012x}", self.turn.get())
    }

    /// Sets the model of the turns to come.
    pub fn by_model(mut self, model: &str) -> Self {
        self.model = model.to_owned();
        self
    }

    /// Sets when the agent asks a person, for the turns to come.
    pub fn with_policy(mut self, policy: &'static str) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the moment of the next line; those after it follow at once.
    pub fn at(self, ms: i64) -> Self {
        self.at.set(ms);
        self
    }

    /// A person asks: a turn is open.
    pub fn asked(self, prompt: &str) -> Self {
        self.turn.set(self.turn.get() + 1);
        let (turn, id) = (self.turn_id(), self.id.clone());
        let context = json!({"turn_id": turn, "cwd": self.cwd, "approval_policy": self.policy,
            "model": self.model, "sandbox_policy": {"type": "workspace-write"}});
        self.add(
            "event_msg",
            json!({"type": "task_started", "turn_id": turn,
            "started_at": now() / 1000}),
        )
        .add("turn_context", context)
        .add(
            "response_item",
            json!({"type": "message", "role": "user",
                "content": [{"type": "input_text", "text": prompt}]}),
        )
        .add(
            "event_msg",
            json!({"type": "item_completed", "thread_id": id, "turn_id": turn,
                "item": {"type": "UserMessage", "content": [{"type": "text", "text": prompt}]}}),
        )
    }

    /// The agent calls for a command, which has no output yet.
    pub fn calls(self, call: &str, command: &str) -> Self {
        let arguments = json!({"cmd": command}).to_string();
        self.add(
            "response_item",
            json!({"type": "function_call", "name": "exec_command",
            "arguments": arguments, "call_id": call}),
        )
    }

    /// The agent answers: the turn is over.
    pub fn answered(self, text: &str) -> Self {
        let (turn, id) = (self.turn_id(), self.id.clone());
        let used = json!({"input_tokens": 420, "cached_input_tokens": 300,
            "cache_write_input_tokens": 0, "output_tokens": 7, "total_tokens": 427});
        self.add(
            "event_msg",
            json!({"type": "item_completed", "thread_id": id, "turn_id": turn,
            "item": {"type": "AgentMessage", "content": [{"type": "Text", "text": text}]}}),
        )
        .add(
            "response_item",
            json!({"type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": text}]}),
        )
        .add("event_msg", json!({"type": "token_count", "info": {"total_token_usage": used}}))
        .add(
            "event_msg",
            json!({"type": "task_complete", "turn_id": turn,
                "last_agent_message": text, "duration_ms": 234}),
        )
    }

    /// The model's side failed: the turn is over.
    pub fn failed(self, error: &str) -> Self {
        self.failed_by(error, &json!("other"))
    }

    /// The same, with Codex's own word for what went wrong.
    pub fn failed_by(self, error: &str, info: &Value) -> Self {
        let turn = self.turn_id();
        let error = json!({"message": error, "codex_error_info": info});
        self.add("event_msg", json!({"type": "task_complete", "turn_id": turn, "error": error}))
    }

    /// A person pressed Esc.
    pub fn aborted(self) -> Self {
        let turn = self.turn_id();
        self.add(
            "event_msg",
            json!({"type": "turn_aborted", "turn_id": turn,
            "reason": "interrupted"}),
        )
    }
}
