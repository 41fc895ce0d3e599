//! What Claude Code 2.1.325 keeps in its store, as the actor keeps it: the registry entry of
//! this process, the transcript, and the history of what was typed.
//!
//! It writes what the real one writes of the fields that mean anything to others, one line per
//! content block, each file opened for one line and closed again. Nothing is read back but what a
//! resumed or forked session needs.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

const VERSION: &str = "2.1.325";

/// One session of this process.
pub struct Session {
    store: PathBuf,
    /// The session's id.
    pub id: String,
    cwd: PathBuf,
    /// The transcript, which may not be there yet.
    pub transcript: PathBuf,
    branch: String,
    model: String,
    name: Option<String>,
    /// `cli` on a terminal, `sdk-cli` without.
    entrypoint: &'static str,
    started: i64,
    /// The last line that others follow.
    leaf: Value,
    messages: u64,
}

/// How one process is run, as far as its lines tell.
pub struct About {
    /// The model it was asked to use.
    pub model: Option<String>,
    /// The name that a person gave.
    pub name: Option<String>,
    /// Whether it has no terminal.
    pub headless: bool,
}

impl Session {
    /// A session of this id in the current directory; its transcript is where it already is.
    pub fn new(id: &str, about: &About) -> io::Result<Self> {
        let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
        let store = std::env::var_os("CLAUDE_CONFIG_DIR").map_or_else(|| home.join(".claude"), PathBuf::from);
        let cwd = std::env::current_dir()?;
        let slug: String =
            cwd.to_string_lossy().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let transcript = find(&store, id).unwrap_or_else(|| store.join("projects").join(slug).join(file(id)));
        let branch = Command::new("git").args(["branch", "--show-current"]).output();
        let branch = branch.map_or_else(|_| String::new(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
        let (name, entrypoint) = (about.name.clone(), if about.headless { "sdk-cli" } else { "cli" });
        let model = about.model.clone().unwrap_or_else(|| "claude-opus-5-5".into());
        let started = now();
        let before = lines(&transcript);
        let leaf = before.iter().rev().map(|l| l["uuid"].clone()).find(|u| !u.is_null()).unwrap_or_default();
        let messages = before.iter().filter(|l| l["type"] == "assistant").count() as u64;
        let id = id.to_owned();
        Ok(Self { store, id, cwd, transcript, branch, model, name, entrypoint, started, leaf, messages })
    }

    /// Goes on under another id; with `copied`, with all that was said so far, as a fork does.
    pub fn become_another(&mut self, id: &str, copied: bool) -> io::Result<()> {
        let before = std::mem::replace(&mut self.id, id.to_owned());
        let transcript = self.transcript.with_file_name(file(id));
        if copied {
            let text = fs::read_to_string(&self.transcript)?;
            fs::write(&transcript, text.replace(&before, id))?;
        }
        (self.transcript, self.leaf, self.messages) = (transcript, Value::Null, 0);
        Ok(())
    }

    /// Tells the registry how this process stands.
    pub fn register(&self, status: &str, waiting_for: Option<&str>) -> io::Result<()> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        let start = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19)).unwrap_or("0");
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let domain = format!("linux:{}:{}", machine.trim(), fs::read_link("/proc/self/ns/pid")?.display());
        let mut entry = json!({"pid": std::process::id(), "sessionId": self.id, "cwd": self.cwd,
            "startedAt": self.started, "procStart": start, "version": VERSION, "kind": "interactive",
            "entrypoint": self.entrypoint, "pidDomain": domain, "status": status,
            "updatedAt": now(), "statusUpdatedAt": now()});
        if let Some(name) = &self.name {
            (entry["name"], entry["nameSource"]) = (json!(name), json!("user"));
        }
        if let Some(what) = waiting_for {
            entry["waitingFor"] = json!(what);
        }
        fs::create_dir_all(self.store.join("sessions"))?;
        fs::write(self.entry(), entry.to_string())
    }

    /// Leaves the registry.
    pub fn unregister(&self) {
        drop(fs::remove_file(self.entry()));
    }

    fn entry(&self) -> PathBuf {
        self.store.join("sessions").join(format!("{}.json", std::process::id()))
    }

    fn line(&self, line: &Value) -> io::Result<()> {
        append(&self.transcript, line)
    }

    /// A line of the conversation, as it was written.
    fn said(&mut self, mut line: Value) -> io::Result<Value> {
        let uuid = json!(uuid()?);
        for (key, value) in [
            ("parentUuid", self.leaf.clone()),
            ("uuid", uuid.clone()),
            ("timestamp", json!(iso(now()))),
            ("sessionId", json!(self.id)),
            ("cwd", json!(self.cwd)),
            ("gitBranch", json!(self.branch)),
            ("version", json!(VERSION)),
            ("entrypoint", json!(self.entrypoint)),
            ("userType", json!("external")),
            ("isSidechain", json!(false)),
        ] {
            line[key] = value;
        }
        self.leaf = uuid;
        self.line(&line)?;
        Ok(line)
    }

    /// A person's prompt. The first one makes the transcript.
    pub fn prompt(&mut self, text: &str) -> io::Result<()> {
        if self.entrypoint == "cli" {
            self.typed(text)?;
        } else {
            for operation in ["enqueue", "dequeue"] {
                let line = json!({"type": "queue-operation", "operation": operation, "content": text,
                    "timestamp": iso(now()), "sessionId": self.id});
                self.line(&line)?;
            }
        }
        if let Some(name) = self.name.take() {
            self.line(&json!({"type": "custom-title", "customTitle": name, "sessionId": self.id}))?;
            self.name = Some(name);
        }
        let source = if self.entrypoint == "cli" { "typed" } else { "sdk" };
        let message = json!({"role": "user", "content": text});
        self.said(json!({"type": "user", "message": message, "promptSource": source})).map(drop)
    }

    /// What was typed on the terminal, prompt or command.
    pub fn typed(&self, text: &str) -> io::Result<()> {
        let line = json!({"display": text, "timestamp": now(), "project": self.cwd, "sessionId": self.id});
        append(&self.store.join("history.jsonl"), &line)
    }

    /// One message of the agent, a line for each of its blocks.
    pub fn assistant(&mut self, blocks: &[Value], stop: &str) -> io::Result<Vec<Value>> {
        self.messages += 1;
        let n = self.messages;
        let usage = json!({"input_tokens": 12, "cache_creation_input_tokens": 2_140 + 310 * n,
            "cache_read_input_tokens": 15_800 * n, "output_tokens": 240 + 35 * n});
        let id = format!("msg_{}", uuid()?);
        let message = |block: &Value| {
            json!({"id": id, "type": "message", "role": "assistant", "model": self.model,
                "content": [block], "stop_reason": stop, "usage": usage})
        };
        let messages: Vec<Value> = blocks.iter().map(message).collect();
        messages.into_iter().map(|m| self.said(json!({"type": "assistant", "message": m}))).collect()
    }

    /// What a tool gave.
    pub fn result(&mut self, call: &str, text: &str, error: bool) -> io::Result<Value> {
        let content = json!([{"type": "tool_result", "tool_use_id": call, "content": text, "is_error": error}]);
        self.said(json!({"type": "user", "message": {"role": "user", "content": content}, "toolUseResult": text}))
    }

    /// The person's interruption.
    pub fn interrupted(&mut self, in_tool: bool) -> io::Result<()> {
        let what = if in_tool { "[Request interrupted by user for tool use]" } else { "[Request interrupted by user]" };
        let message = json!({"role": "user", "content": [{"type": "text", "text": what}]});
        self.said(json!({"type": "user", "message": message})).map(drop)
    }

    /// The model's side failed.
    pub fn failed(&mut self, error: &str) -> io::Result<Value> {
        let message = json!({"id": uuid()?, "type": "message", "role": "assistant", "model": "<synthetic>",
            "content": [{"type": "text", "text": error}], "stop_reason": "stop_sequence",
            "usage": {"input_tokens": 0, "output_tokens": 0}});
        self.said(json!({"type": "assistant", "message": message, "isApiErrorMessage": true, "error": "unknown"}))
    }

    /// The end of a turn on a terminal.
    pub fn turn_over(&mut self, ms: u128) -> io::Result<()> {
        let duration = u64::try_from(ms).unwrap_or(u64::MAX);
        self.said(json!({"type": "system", "subtype": "turn_duration", "durationMs": duration})).map(drop)
    }

    /// The accounting of a clean end, if there is anything to account for.
    pub fn left(&self) -> io::Result<()> {
        if !self.transcript.exists() {
            return Ok(());
        }
        let n = self.messages;
        let used = json!({"inputTokens": 12 * n, "outputTokens": 240 * n + 35 * n * (n + 1) / 2,
            "cacheReadInputTokens": 15_800 * n * (n + 1) / 2,
            "cacheCreationInputTokens": 2_140 * n + 310 * n * (n + 1) / 2});
        self.line(&json!({"type": "cost-state", "sessionId": self.id, "totalCostUSD": 0.02 * n as f64,
            "modelUsage": {(self.model.as_str()): used}}))
    }

    /// What was said so far: who, and what.
    pub fn conversation(&self) -> Vec<(bool, String)> {
        let said = lines(&self.transcript).into_iter().filter_map(|line| {
            let content = &line["message"]["content"];
            let text = content.as_str().or_else(|| content[0]["text"].as_str())?;
            Some((line["type"] == "user", text.to_owned()))
        });
        said.collect()
    }
}

fn file(id: &str) -> String {
    format!("{id}.jsonl")
}

/// Where a session's transcript is, whichever directory it began in.
fn find(store: &Path, id: &str) -> Option<PathBuf> {
    let projects = fs::read_dir(store.join("projects")).ok()?;
    projects.flatten().map(|project| project.path().join(file(id))).find(|path| path.exists())
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn append(path: &Path, line: &Value) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())
}

/// A new id.
pub fn uuid() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// `2026-11-15T08:00:00.000Z`.
fn iso(ms: i64) -> String {
    let (days, of_day) = (ms.div_euclid(86_400_000) + 719_468, ms.rem_euclid(86_400_000));
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (month, day) = (if shifted < 10 { shifted + 3 } else { shifted - 9 }, of_year - (153 * shifted + 2) / 5 + 1);
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", of_day % 1000)
}
