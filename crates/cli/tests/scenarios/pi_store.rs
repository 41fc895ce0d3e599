//! Pi's store, written by hand as 0.73 and 1.5 write it.

use std::{
    cell::Cell,
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use lariat_testkit::Sandbox;
use serde_json::{Value, json};

use crate::moment::{iso, now};

/// `~/.pi/agent` of a sandbox.
pub struct PiStore {
    root: PathBuf,
    cwd: PathBuf,
}

impl PiStore {
    /// The store of the sandbox's HOME.
    pub fn of(sandbox: &Sandbox) -> Self {
        Self { root: sandbox.home().join(".pi/agent"), cwd: sandbox.work() }
    }

    /// A path in the store.
    pub fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    /// A session in the sandbox's project.
    pub fn session(&self, id: &str) -> PiSession {
        self.session_in(id, &self.cwd)
    }

    /// A session in a directory.
    pub fn session_in(&self, id: &str, cwd: &Path) -> PiSession {
        self.session_at(id, cwd, now())
    }

    /// A session in a directory that began at that moment.
    pub fn session_at(&self, id: &str, cwd: &Path, moment: i64) -> PiSession {
        let cwd = cwd.to_str().expect("UTF-8");
        let folder = format!("--{}--", cwd.trim_start_matches('/').replace('/', "-"));
        let path = self.path(&format!("sessions/{folder}/2026-11-15T07-47-12-340Z_{id}.jsonl"));
        let session = PiSession { path, at: Cell::new(moment), next: Cell::new(0) };
        session.write(&json!({"type": "session", "version": 3, "id": id, "timestamp": iso(moment), "cwd": cwd}));
        session.entry("model_change", json!({"provider": "scripted", "modelId": "scripted-1"}))
    }
}

/// A session's file, which grows.
pub struct PiSession {
    /// Where it is.
    pub path: PathBuf,
    at: Cell<i64>,
    next: Cell<u64>,
}

impl PiSession {
    fn write(&self, line: &Value) {
        fs::create_dir_all(self.path.parent().expect("a folder")).expect("a folder of the store");
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path).expect("a file of the store");
        file.write_all(format!("{line}\n").as_bytes()).expect("room for a line");
    }

    fn entry(self, kind: &str, mut members: Value) -> Self {
        let number = self.next.replace(self.next.get() + 1);
        members["type"] = json!(kind);
        members["id"] = json!(format!("{number:08x}"));
        members["timestamp"] = json!(iso(self.at.replace(self.at.get() + 1)));
        self.write(&members);
        self
    }

    /// What follows was written at that moment.
    pub fn at(self, moment: i64) -> Self {
        self.at.set(moment);
        self
    }

    /// A message as it is.
    pub fn message(self, message: Value) -> Self {
        self.entry("message", json!({"message": message}))
    }

    /// The instructions, which 1.5 writes down.
    pub fn instructed(self) -> Self {
        self.message(json!({"role": "system", "content": "", "sections": {"preamble": "filler"}}))
    }

    /// A person asks.
    pub fn asked(self, prompt: &str) -> Self {
        self.message(json!({"role": "user", "content": [{"type": "text", "text": prompt}]}))
    }

    fn assistant(self, content: Value, reason: &str, error: Option<&str>) -> Self {
        let cost = json!({"input": 0.1, "output": 0.007, "cacheRead": 0.3, "cacheWrite": 0.02, "total": 0.5});
        self.message(json!({"role": "assistant", "content": content, "model": "scripted-1",
            "usage": {"input": 100, "output": 7, "cacheRead": 300, "cacheWrite": 20, "cost": cost},
            "stopReason": reason, "errorMessage": error}))
    }

    /// The agent answers.
    pub fn answered(self, text: &str) -> Self {
        self.assistant(json!([{"type": "text", "text": text}]), "stop", None)
    }

    /// The agent calls for a command.
    pub fn calls(self, call: &str, command: &str) -> Self {
        let call = json!({"type": "toolCall", "id": call, "name": "bash", "arguments": {"command": command}});
        self.assistant(json!([call]), "toolUse", None)
    }

    /// The command has run.
    pub fn result(self, call: &str) -> Self {
        self.message(json!({"role": "toolResult", "toolCallId": call, "toolName": "bash", "content": []}))
    }

    /// The model's side failed.
    pub fn failed(self, error: &str) -> Self {
        self.assistant(json!([]), "error", Some(error))
    }

    /// A person pressed Esc.
    pub fn aborted(self) -> Self {
        self.assistant(json!([]), "aborted", Some("Request was aborted"))
    }

    /// A person names it.
    pub fn named(self, name: &str) -> Self {
        self.entry("session_info", json!({"name": name}))
    }
}
