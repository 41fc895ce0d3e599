//! Claude Code's store, written by hand as 2.1.325 writes it.
//!
//! ```text
//! let claude = ClaudeStore::of(&sandbox);
//! let agent = sandbox.lookalike("claude", &[]);
//! claude.register(&agent, ONE).says("busy");
//! claude.session(ONE).asked("fix it").calls("Bash", json!({"command": "make"}));
//! ```
//!
//! Every word writes at once, as the agent does: a transcript grows by lines, a registry entry is
//! replaced. Nothing is undone by dropping.

use std::{
    cell::Cell,
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use lariat_testkit::{Sandbox, world::Running};
use serde_json::{Value, json};

use crate::moment::{iso, now};

/// `~/.claude` of a sandbox.
pub struct ClaudeStore {
    root: PathBuf,
    cwd: PathBuf,
}

impl ClaudeStore {
    /// The store of the sandbox's HOME.
    pub fn of(sandbox: &Sandbox) -> Self {
        Self { root: sandbox.home().join(".claude"), cwd: sandbox.work() }
    }

    /// A path in the store.
    pub fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    /// Writes a file of the store.
    pub fn put(&self, below: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(below);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder of the store");
        fs::write(&path, text).expect("a file of the store");
        path
    }

    /// A session's transcript in the sandbox's project.
    pub fn session(&self, id: &str) -> Transcript {
        self.session_in(id, &self.cwd)
    }

    /// A session's transcript in a directory.
    pub fn session_in(&self, id: &str, cwd: &Path) -> Transcript {
        let slug: String =
            cwd.to_str().expect("UTF-8").chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        self.session_at(id, cwd, &self.path(&format!("projects/{slug}/{id}.jsonl")))
    }

    /// A session's transcript in a file of one's own choosing.
    pub fn session_at(&self, id: &str, cwd: &Path, path: &Path) -> Transcript {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a project's folder");
        Transcript {
            path: path.to_owned(),
            id: id.to_owned(),
            cwd: cwd.to_str().expect("UTF-8").to_owned(),
            branch: "main".into(),
            model: "claude-opus-5-5".into(),
            entrypoint: "cli",
            at: Cell::new(now()),
            messages: Cell::new(0),
        }
    }

    /// Registers a process for a session, as Claude Code does on its start: the entry names the
    /// process by its pid, its start time and its PID namespace. It has no status yet.
    pub fn register(&self, process: &Running, id: &str) -> Entry {
        let outside = process.outside_pid().expect("a live process");
        self.register_as(process.pid(), outside, id)
    }

    /// As [`register`](Self::register), for a process of the world that the test did not start.
    pub fn register_as(&self, pid: i32, outside: i32, id: &str) -> Entry {
        let namespace = fs::read_link(format!("/proc/{outside}/ns/pid")).expect("its namespace");
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let domain = format!("linux:{}:{}", machine.trim(), namespace.display());
        let entry = Entry {
            path: self.path(&format!("sessions/{pid}.json")),
            json: json!({"pid": pid, "sessionId": id, "cwd": self.cwd, "startedAt": now(),
                "procStart": started(outside).to_string(), "version": "2.1.325", "peerProtocol": 1,
                "kind": "interactive", "entrypoint": "cli", "pidDomain": domain,
                "messagingSocketPath": format!("/tmp/cc-socks/{pid}.sock"),
                "name": "proj-58", "nameSource": "derived"}),
        };
        entry.write();
        entry
    }

    /// Adds a line to what people typed.
    pub fn typed(&self, id: &str, text: &str) {
        let line = json!({"display": text, "pastedContents": {}, "timestamp": now(),
            "project": self.cwd, "sessionId": id});
        append(&self.path("history.jsonl"), &line);
    }

    /// Writes the state of a background job.
    pub fn job(&self, id: &str, state: &str) -> PathBuf {
        let job = json!({"state": state, "sessionId": id, "cwd": self.cwd, "intent": "tidy up",
            "createdAt": iso(now()), "updatedAt": iso(now()), "tempo": "idle", "tokens": 7});
        self.put(&format!("jobs/{}/state.json", &id[..8]), job.to_string())
    }
}

/// The start time of a process, as `/proc/PID/stat` tells it.
pub fn started(outside: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{outside}/stat")).expect("a live process");
    let fields = &stat[stat.rfind(')').expect("a name") + 2..];
    fields.split(' ').nth(19).expect("22 fields").parse().expect("ticks")
}

fn append(path: &Path, line: &Value) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder of the store");
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("a file of the store");
    file.write_all(format!("{line}\n").as_bytes()).expect("room for a line");
}

/// An entry of the registry, `sessions/<pid>.json`.
pub struct Entry {
    /// Where it is.
    pub path: PathBuf,
    json: Value,
}

impl Entry {
    /// Sets the status.
    pub fn says(mut self, status: &str) -> Self {
        self.json["status"] = json!(status);
        self.json["statusUpdatedAt"] = json!(now());
        self.json["updatedAt"] = json!(now());
        self.set_aside("waitingFor");
        self.write();
        self
    }

    /// Sets the status `waiting`, and for what.
    pub fn waits_for(self, what: &str) -> Self {
        self.says("waiting").with("waitingFor", json!(what))
    }

    /// Sets one field.
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.json[field] = value;
        self.write();
        self
    }

    /// Keeps the entry under another name.
    pub fn in_file(mut self, name: &str) -> Self {
        let path = self.path.with_file_name(name);
        fs::rename(&self.path, &path).expect("another name");
        self.path = path;
        self
    }

    /// Removes the entry, as on every exit but by SIGKILL.
    pub fn remove(self) {
        fs::remove_file(self.path).expect("an entry");
    }

    fn set_aside(&mut self, field: &str) {
        self.json.as_object_mut().expect("an object").remove(field);
    }

    fn write(&self) {
        fs::create_dir_all(self.path.parent().expect("a folder")).expect("the registry");
        fs::write(&self.path, self.json.to_string()).expect("an entry of the registry");
    }
}

/// A transcript that grows.
pub struct Transcript {
    /// Where it is.
    pub path: PathBuf,
    /// Whose it is.
    pub id: String,
    cwd: String,
    branch: String,
    model: String,
    entrypoint: &'static str,
    at: Cell<i64>,
    messages: Cell<u32>,
}

impl Transcript {
    /// Sets the git branch of the lines to come.
    pub fn on_branch(mut self, branch: &str) -> Self {
        self.branch = branch.to_owned();
        self
    }

    /// Sets the model of the lines to come.
    pub fn by_model(mut self, model: &str) -> Self {
        self.model = model.to_owned();
        self
    }

    /// Sets the moment of the next line; those after it follow at once.
    pub fn at(self, ms: i64) -> Self {
        self.at.set(ms);
        self
    }

    /// Adds a line as it is.
    pub fn line(self, line: &Value) -> Self {
        append(&self.path, line);
        self
    }

    fn common(&self, mut line: Value) -> Value {
        let at = self.at.get();
        self.at.set(at + 1);
        let uuid = format!("00000000-0000-4000-8000-{at:012x}");
        for (key, value) in [
            ("parentUuid", Value::Null),
            ("isSidechain", json!(false)),
            ("uuid", json!(uuid)),
            ("timestamp", json!(iso(at))),
            ("userType", json!("external")),
            ("entrypoint", json!(self.entrypoint)),
            ("cwd", json!(self.cwd)),
            ("sessionId", json!(self.id)),
            ("version", json!("2.1.325")),
            ("gitBranch", json!(self.branch)),
        ] {
            line[key] = value;
        }
        line
    }

    /// A line as it is, dated and signed.
    pub fn said(self, line: Value) -> Self {
        let line = self.common(line);
        self.line(&line)
    }

    /// A person asks.
    pub fn asked(self, prompt: &str) -> Self {
        let last = json!({"type": "last-prompt", "lastPrompt": prompt, "sessionId": self.id});
        self.said(json!({"type": "user", "message": {"role": "user", "content": prompt},
            "promptSource": "typed", "permissionMode": "default"}))
            .line(&last)
    }

    fn assistant(self, block: Value, stop: &str) -> Self {
        let number = self.messages.replace(self.messages.get() + 1);
        let message = json!({"id": format!("msg_{}_{number}", self.id), "type": "message",
            "role": "assistant", "model": self.model, "content": [block], "stop_reason": stop,
            "usage": {"input_tokens": 100, "cache_creation_input_tokens": 20,
                "cache_read_input_tokens": 300, "output_tokens": 7}});
        self.said(json!({"type": "assistant", "message": message, "requestId": "req_1"}))
    }

    /// The agent calls a tool, which has no result yet.
    pub fn calls(self, tool: &str, input: Value) -> Self {
        let block = json!({"type": "tool_use", "id": "toolu_1", "name": tool, "input": input});
        self.assistant(block, "tool_use")
    }

    /// The tool's result.
    pub fn result(self, text: &str) -> Self {
        self.said(json!({"type": "user", "message": {"role": "user", "content":
            [{"tool_use_id": "toolu_1", "type": "tool_result", "content": text, "is_error": false}]},
            "toolUseResult": {"stdout": text}}))
    }

    /// The agent answers: the turn is over.
    pub fn answered(self, text: &str) -> Self {
        self.assistant(json!({"type": "text", "text": text}), "end_turn")
            .said(json!({"type": "system", "subtype": "turn_duration", "durationMs": 12}))
    }

    /// The model's side failed: the turn is over.
    pub fn failed(self, error: &str) -> Self {
        self.said(json!({"type": "assistant", "isApiErrorMessage": true, "error": "server_error",
            "apiErrorStatus": 500, "message": {"id": "e", "role": "assistant",
            "model": "<synthetic>", "content": [{"type": "text", "text": error}],
            "stop_reason": "stop_sequence", "usage": {"input_tokens": 0, "output_tokens": 0}}}))
    }

    /// A person pressed Esc.
    pub fn interrupted(self) -> Self {
        self.said(json!({"type": "user", "message": {"role": "user", "content":
            [{"type": "text", "text": "[Request interrupted by user]"}]}}))
    }

    /// A person named the session.
    pub fn named(self, title: &str) -> Self {
        let id = self.id.clone();
        self.line(&json!({"type": "custom-title", "customTitle": title, "sessionId": id}))
            .line(&json!({"type": "agent-name", "agentName": title, "sessionId": id}))
    }

    /// The accounting that every exit but by SIGKILL writes.
    pub fn left(self) -> Self {
        let calls = u64::from(self.messages.get());
        let line = json!({"type": "cost-state", "sessionId": self.id, "totalCostUSD": 0.0014,
            "totalDuration": 524, "modelUsage": {"claude-opus-5-5": {"inputTokens": 100 * calls,
            "outputTokens": 7 * calls, "cacheReadInputTokens": 300 * calls,
            "cacheCreationInputTokens": 20 * calls, "costUSD": 0.0014}}});
        self.line(&line)
    }

    /// A sub-agent of this session, with its own file and what is said about it.
    pub fn sub_agent(&self, name: &str, finished: bool) -> (PathBuf, PathBuf) {
        let folder = self.path.with_extension("").join("subagents");
        fs::create_dir_all(&folder).expect("a folder for sub-agents");
        let (talk, meta) = (folder.join(format!("agent-{name}.jsonl")), folder.join(format!("agent-{name}.meta.json")));
        let mut about = json!({"agentType": "general-purpose", "description": "look around",
            "toolUseId": "toolu_1", "spawnDepth": 1});
        if finished {
            about["finished"] = json!(true);
        }
        fs::write(&meta, about.to_string()).expect("what is said about a sub-agent");
        let agent = Self {
            path: talk.clone(),
            id: self.id.clone(),
            cwd: self.cwd.clone(),
            branch: self.branch.clone(),
            model: self.model.clone(),
            entrypoint: "cli",
            at: Cell::new(self.at.get()),
            messages: Cell::new(1000),
        };
        let agent = agent.asked("look around");
        if finished {
            drop(agent.answered("seen"));
        }
        (talk, meta)
    }
}
