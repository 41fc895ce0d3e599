//! Gemini's store, written by hand as 0.61 writes it.

use std::{
    cell::Cell,
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use lariat_testkit::{Lookalike, Program, Sandbox};
use serde_json::{Value, json};

use crate::moment::{iso, now};

/// `~/.gemini` of a sandbox.
pub struct GeminiStore {
    root: PathBuf,
    cwd: PathBuf,
}

impl GeminiStore {
    /// The store of the sandbox's HOME.
    pub fn of(sandbox: &Sandbox) -> Self {
        Self { root: sandbox.home().join(".gemini"), cwd: sandbox.work() }
    }

    /// A path in the store.
    pub fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    /// A session in the sandbox's project.
    pub fn session(&self, id: &str) -> GeminiChat {
        self.session_at(id, &self.cwd, "07-47", now())
    }

    /// A session as versions before 0.30 or so wrote it: one document over many lines, with these messages.
    pub fn older(&self, id: &str, messages: &[Value]) -> PathBuf {
        let chat = self.session(id);
        let path = chat.path.with_extension("json");
        fs::remove_file(chat.path).expect("it was just made");
        let all = json!({"sessionId": id, "projectHash": "00", "startTime": iso(now()), "lastUpdated": iso(now()),
            "summary": "an older one", "messages": messages});
        fs::write(&path, serde_json::to_string_pretty(&all).expect("text")).expect("a file of the store");
        path
    }

    /// What was typed in the terminals of the sandbox's project: under which first session, what and when.
    pub fn typed(&self, entries: &[(&str, &str, i64)]) {
        let entry = |(number, (id, text, at)): (usize, &(&str, &str, i64))| {
            json!({"sessionId": id,
            "messageId": number, "type": "user", "message": text, "timestamp": iso(*at)})
        };
        let all: Vec<Value> = entries.iter().enumerate().map(entry).collect();
        fs::write(self.log(), serde_json::to_string_pretty(&all).expect("text")).expect("a file of the store");
    }

    /// Where that is kept.
    pub fn log(&self) -> PathBuf {
        let slug = self.cwd.file_name().and_then(|n| n.to_str()).expect("UTF-8");
        self.path(&format!("tmp/{slug}/logs.json"))
    }

    /// A session in a directory.
    pub fn session_in(&self, id: &str, cwd: &Path) -> GeminiChat {
        self.session_at(id, cwd, "07-47", now())
    }

    /// A session in a directory, begun at this minute and moment.
    pub fn session_at(&self, id: &str, cwd: &Path, minute: &str, at: i64) -> GeminiChat {
        let slug = cwd.file_name().and_then(|n| n.to_str()).expect("UTF-8");
        let folder = self.path(&format!("tmp/{slug}"));
        fs::create_dir_all(folder.join("chats")).expect("a folder of the store");
        fs::write(folder.join(".project_root"), cwd.to_str().expect("UTF-8")).expect("the project's directory");
        let path = folder.join(format!("chats/session-2026-11-15T{minute}-{}.jsonl", &id[..8.min(id.len())]));
        let chat = GeminiChat { path, at: Cell::new(at), next: Cell::new(0) };
        let header = json!({"sessionId": id, "projectHash": "00", "startTime": iso(at), "lastUpdated": iso(at),
            "kind": "main"});
        chat.write(&header);
        chat.set(json!({"messages": [scene(at)]}))
    }
}

/// What sets the scene, and is nobody's prompt.
fn scene(at: i64) -> Value {
    json!({"id": "scene", "timestamp": iso(at), "type": "user",
        "content": [{"text": "<session_context>\nfiller</session_context>"}]})
}

/// Gemini's process: Node with its script.
pub fn gemini(sandbox: &Sandbox, args: &[&str]) -> Program {
    let script = sandbox.root().join("bin/gemini");
    Lookalike::program(sandbox, "node").arg(script).args(args)
}

/// A conversation's file, which grows.
pub struct GeminiChat {
    /// Where it is.
    pub path: PathBuf,
    at: Cell<i64>,
    next: Cell<u64>,
}

impl GeminiChat {
    fn write(&self, line: &Value) {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path).expect("a file of the store");
        file.write_all(format!("{line}\n").as_bytes()).expect("room for a line");
    }

    /// Sets the moment of the next line; those after it follow at once.
    pub fn at(self, ms: i64) -> Self {
        self.at.set(ms);
        self
    }

    /// Changes members.
    pub fn set(self, mut members: Value) -> Self {
        if members.get("summary").is_none() {
            members["lastUpdated"] = json!(iso(self.at.replace(self.at.get() + 1)));
        }
        self.write(&json!({"$set": members}));
        self
    }

    /// Replaces all messages by the scene and these.
    pub fn only(self, messages: &[Value]) -> Self {
        let all: Vec<Value> = std::iter::once(scene(self.at.get())).chain(messages.iter().cloned()).collect();
        self.set(json!({"messages": all}))
    }

    /// A line as it is.
    pub fn line(self, line: Value) -> Self {
        self.write(&line);
        self
    }

    /// A message of this id.
    pub fn message(self, id: &str, kind: &str, content: Value, more: Value) -> Self {
        let mut message = json!({"id": id, "timestamp": iso(self.at.replace(self.at.get() + 1)), "type": kind,
            "content": content});
        for (key, value) in more.as_object().into_iter().flatten() {
            message[key] = value.clone();
        }
        self.write(&message);
        self.set(json!({}))
    }

    fn id(&self) -> String {
        format!("message-{}", self.next.replace(self.next.get() + 1))
    }

    /// A person asks.
    pub fn asked(self, prompt: &str) -> Self {
        let id = self.id();
        self.message(&id, "user", json!([{"text": prompt}]), json!({}))
    }

    /// The model answers; with no text it calls for tools.
    pub fn answered(self, text: &str) -> Self {
        let id = self.id();
        self.message(&id, "gemini", json!(text), spent())
    }

    /// The model's call, and again once the tool has run.
    pub fn ran(self, status: &str) -> Self {
        let id = self.id();
        let mut more = spent();
        let chat = self.message(&id, "gemini", json!(""), more.clone());
        more["toolCalls"] = json!([{"id": "c", "name": "run_shell_command", "args": {"command": "make"},
            "status": status}]);
        chat.message(&id, "gemini", json!(""), more)
    }

    /// A note of the program's.
    pub fn noted(self, kind: &str, text: &str) -> Self {
        let id = self.id();
        self.message(&id, kind, json!(text), json!({}))
    }
}

fn spent() -> Value {
    json!({"tokens": {"input": 420, "output": 7, "cached": 300, "thoughts": 2, "tool": 0, "total": 429},
        "model": "gemini-2.5-flash"})
}
