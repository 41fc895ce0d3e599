//! Sessions as the agents write them down, a believable while ago.
//!
//! Written as Claude Code 2.1.325 and Codex 0.166 do, with what lariat reads and no more. Moments
//! are told as seconds before now, so that ages look like those of a working day.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use lariat_testkit::Lookalike;
use serde_json::{Value, json};

/// Where the stores are written, and how the world calls that place.
pub struct Home {
    /// The directory as this program sees it.
    pub outside: PathBuf,
    /// The same directory as the agents see it.
    pub inside: PathBuf,
}

impl Home {
    /// A project's directory, as the agents see it.
    pub fn project(&self, name: &str) -> String {
        self.inside.join("work").join(name).display().to_string()
    }

    fn append(&self, below: &str, line: &Value) {
        let path = self.outside.join(below);
        make_folder_of(&path);
        let mut file = OpenOptions::new().create(true).append(true).open(&path).expect("a store's file");
        file.write_all(format!("{line}\n").as_bytes()).expect("room for a line");
    }
}

fn make_folder_of(path: &Path) {
    fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a store's folder");
}

/// Milliseconds since 1970, so many seconds ago.
fn ago(seconds: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    i64::try_from(now.as_millis()).expect("a clock of this age") - seconds * 1000
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

/// The start time of a process, as `/proc/PID/stat` tells it.
fn start_ticks(agent: &Lookalike) -> u64 {
    let outside = agent.outside_pid().expect("a live process");
    let stat = fs::read_to_string(format!("/proc/{outside}/stat")).expect("a live process");
    let fields = &stat[stat.rfind(')').expect("a name") + 2..];
    fields.split(' ').nth(19).expect("22 fields").parse().expect("ticks")
}

/// One Claude Code session: its transcript, and its entry in the registry.
pub struct Claude<'a> {
    home: &'a Home,
    id: &'a str,
    cwd: String,
    branch: &'a str,
    messages: u64,
}

impl<'a> Claude<'a> {
    /// A session in a project.
    pub fn new(home: &'a Home, id: &'a str, project: &str, branch: &'a str) -> Self {
        Self { home, id, cwd: home.project(project), branch, messages: 0 }
    }

    /// Registers its process, as Claude Code does: by pid, start time and PID namespace.
    pub fn registered(self, agent: &Lookalike, status: &str, waiting_for: Option<&str>, seconds: i64) -> Self {
        self.register(agent, start_ticks(agent), status, waiting_for, seconds)
    }

    /// Leaves the entry of a process that had this pid earlier.
    pub fn was_registered(self, now: &Lookalike, status: &str, waiting_for: Option<&str>, seconds: i64) -> Self {
        let earlier = start_ticks(now).saturating_sub(360_000).max(1);
        self.register(now, earlier, status, waiting_for, seconds)
    }

    fn register(self, agent: &Lookalike, start: u64, status: &str, waiting_for: Option<&str>, seconds: i64) -> Self {
        let outside = agent.outside_pid().expect("a live process");
        let namespace = fs::read_link(format!("/proc/{outside}/ns/pid")).expect("its namespace");
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let pid = agent.pid();
        let mut entry = json!({"pid": pid, "sessionId": self.id, "cwd": self.cwd, "startedAt": ago(seconds + 300),
            "procStart": start.to_string(), "version": "2.1.325", "kind": "interactive", "entrypoint": "cli",
            "pidDomain": format!("linux:{}:{}", machine.trim(), namespace.display()),
            "status": status, "updatedAt": ago(seconds), "statusUpdatedAt": ago(seconds)});
        if let Some(what) = waiting_for {
            entry["waitingFor"] = json!(what);
        }
        let path = self.home.outside.join(format!(".claude/sessions/{pid}.json"));
        make_folder_of(&path);
        fs::write(path, entry.to_string()).expect("a registry entry");
        self
    }

    fn line(&self, line: &Value) {
        let slug: String = self.cwd.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        self.home.append(&format!(".claude/projects/{slug}/{}.jsonl", self.id), line);
    }

    fn said(self, seconds: i64, mut line: Value) -> Self {
        for (key, value) in [
            ("timestamp", json!(iso(ago(seconds)))),
            ("sessionId", json!(self.id)),
            ("cwd", json!(self.cwd)),
            ("gitBranch", json!(self.branch)),
            ("version", json!("2.1.325")),
            ("entrypoint", json!("cli")),
            ("isSidechain", json!(false)),
        ] {
            line[key] = value;
        }
        self.line(&line);
        self
    }

    /// A person asks.
    pub fn asked(self, seconds: i64, prompt: &str) -> Self {
        let message = json!({"role": "user", "content": prompt});
        self.said(seconds, json!({"type": "user", "message": message, "promptSource": "typed"}))
    }

    fn assistant(mut self, seconds: i64, content: Value, stop: &str) -> Self {
        self.messages += 1;
        let n = self.messages;
        let usage = json!({"input_tokens": 12, "cache_creation_input_tokens": 2_140 + 310 * n,
            "cache_read_input_tokens": 15_800 * n, "output_tokens": 240 + 35 * n});
        let message = json!({"id": format!("msg_{}_{n}", self.id), "role": "assistant", "model": "claude-opus-5-5",
            "content": content, "stop_reason": stop, "usage": usage});
        self.said(seconds, json!({"type": "assistant", "message": message}))
    }

    /// The agent says something and calls a tool, which has no result yet.
    pub fn calls(self, seconds: i64, text: &str, tool: &str, input: Value) -> Self {
        let id = format!("toolu_{}", self.messages + 1);
        let content =
            json!([{"type": "text", "text": text}, {"type": "tool_use", "id": id, "name": tool, "input": input}]);
        self.assistant(seconds, content, "tool_use")
    }

    /// The last tool's result.
    pub fn result(self, seconds: i64, text: &str) -> Self {
        let content =
            json!([{"type": "tool_result", "tool_use_id": format!("toolu_{}", self.messages), "content": text}]);
        self.said(seconds, json!({"type": "user", "message": {"role": "user", "content": content}}))
    }

    /// The agent answers: the turn is over.
    pub fn answered(self, seconds: i64, text: &str) -> Self {
        self.assistant(seconds, json!([{"type": "text", "text": text}]), "end_turn")
            .said(seconds, json!({"type": "system", "subtype": "turn_duration", "durationMs": 48_211}))
    }

    /// A person gives it a name.
    pub fn named(self, name: &str) -> Self {
        self.line(&json!({"type": "custom-title", "customTitle": name, "sessionId": self.id}));
        self
    }

    /// The accounting that every clean exit writes.
    pub fn left(self) -> Self {
        let n = self.messages;
        let usage = json!({"inputTokens": 12 * n, "outputTokens": 240 * n + 35 * n * (n + 1) / 2,
            "cacheReadInputTokens": 15_800 * n * (n + 1) / 2, "cacheCreationInputTokens": 2_140 * n + 310 * n * (n + 1) / 2});
        self.line(&json!({"type": "cost-state", "sessionId": self.id, "totalCostUSD": 0.31,
            "modelUsage": {"claude-opus-5-5": usage}}));
        self
    }
}

/// One Codex thread: its rollout, and its lock.
pub struct Codex<'a> {
    home: &'a Home,
    id: &'a str,
    cwd: String,
    rollout: String,
    calls: u64,
}

const TURN: &str = "019a8f10-77aa-7c11-9e02-5b1d2c3e4f50";

impl<'a> Codex<'a> {
    /// A thread in a project, begun so many seconds ago.
    pub fn new(home: &'a Home, id: &'a str, project: &str, branch: &str, seconds: i64) -> Self {
        let began = iso(ago(seconds));
        let (day, time) = (began[..10].replace('-', "/"), began[..19].replace(':', "-"));
        let rollout = format!(".codex/sessions/{day}/rollout-{time}-{id}.jsonl");
        let thread = Self { home, id, cwd: home.project(project), rollout, calls: 0 };
        let meta = json!({"id": id, "session_id": id, "timestamp": began, "cwd": thread.cwd,
            "originator": "codex-tui", "cli_version": "0.166.0", "source": "cli", "history_mode": "paginated",
            "git": {"branch": branch}});
        thread.line(seconds, "session_meta", meta)
    }

    fn line(self, seconds: i64, kind: &str, payload: Value) -> Self {
        let line = json!({"timestamp": iso(ago(seconds)), "type": kind, "payload": payload});
        self.home.append(&self.rollout, &line);
        self
    }

    /// Lets its process hold the thread's lock, as Codex does.
    pub fn held_by(self, agent: &Lookalike) -> Self {
        let lock = format!(".codex/thread-writer-locks/{}.lock", self.id);
        make_folder_of(&self.home.outside.join(&lock));
        agent.tell(&format!("flock {}", self.home.inside.join(lock).display()));
        self
    }

    /// The mark that a tool of its last call carries.
    pub fn mark(&self) -> [(&'static str, String); 2] {
        [("CODEX_THREAD_ID", self.id.to_owned()), ("CODEX_TOOL_CALL_ID", self.call())]
    }

    fn call(&self) -> String {
        format!("call_{}", self.calls)
    }

    /// A person asks: a turn is open.
    pub fn asked(self, seconds: i64, prompt: &str) -> Self {
        let context = json!({"turn_id": TURN, "cwd": self.cwd, "approval_policy": "on-request", "model": "gpt-5.2"});
        let item = json!({"type": "UserMessage", "content": [{"type": "text", "text": prompt}]});
        self.line(seconds, "event_msg", json!({"type": "task_started", "turn_id": TURN}))
            .line(seconds, "turn_context", context)
            .line(seconds, "event_msg", json!({"type": "item_completed", "turn_id": TURN, "item": item}))
    }

    /// The agent says something.
    pub fn says(self, seconds: i64, text: &str) -> Self {
        let content = json!([{"type": "output_text", "text": text}]);
        self.line(seconds, "response_item", json!({"type": "message", "role": "assistant", "content": content}))
    }

    /// The agent calls for a command, which has no output yet.
    pub fn calls(mut self, seconds: i64, command: &str) -> Self {
        self.calls += 1;
        let n = self.calls;
        let call = json!({"type": "function_call", "name": "exec_command", "call_id": self.call(),
            "arguments": json!({"cmd": command}).to_string()});
        let used = json!({"input_tokens": 9_400 * n, "cached_input_tokens": 7_100 * n,
            "cache_write_input_tokens": 0, "output_tokens": 310 * n});
        self.line(seconds, "response_item", call).line(
            seconds,
            "event_msg",
            json!({"type": "token_count", "info": {"total_token_usage": used}}),
        )
    }

    /// The last command's output.
    pub fn output(self, seconds: i64, text: &str) -> Self {
        let output = json!({"type": "function_call_output", "call_id": self.call(), "output": text});
        self.line(seconds, "response_item", output)
    }

    /// The model's side failed: the turn is over.
    pub fn failed(self, seconds: i64, error: &str) -> Self {
        let end = json!({"type": "task_complete", "turn_id": TURN, "error": {"message": error}});
        self.line(seconds, "event_msg", end)
    }

    /// A person pressed Esc.
    pub fn aborted(self, seconds: i64) -> Self {
        self.line(seconds, "event_msg", json!({"type": "turn_aborted", "turn_id": TURN, "reason": "interrupted"}))
    }
}
