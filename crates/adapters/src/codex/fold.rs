//! What the lines of a Codex rollout add up to.
//!
//! Written for 0.166 in both history modes (`paginated`, `legacy`), lenient
//! towards 0.4x, whose rollouts have no task events, and towards those of 2025 before
//! September, whose lines are the items themselves without envelope and time. A turn is open from
//! `task_started` to the `task_complete` or `turn_aborted` of the same turn id;
//! lines of a turn may still come after its end, so the last line decides
//! nothing. Without task events the items decide: an assistant's message ends a
//! turn, anything else of it leaves it open. Versions between, which do not say in `task_complete` that a turn has
//! failed, may say so in an `error` before it, after which nothing was said.
//!
//! Token totals are cumulative, so the last one tells all; those of a fork
//! start at the parent's.

use lariat_core::{Time, Tokens};
use serde::{Deserialize, Serialize};

use crate::json::{Doc, Keys, Value};
use crate::needs::Need;
use crate::reader::Fold;
use crate::tool::{Call, gist};

/// How the last turn stands.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Stand {
    /// Nothing seen of it, since the start or since a gap.
    #[default]
    Unseen,
    /// Open.
    Open,
    /// Answered.
    Well,
    /// Ended in this error.
    Failed(String),
    /// Interrupted by a person.
    Aborted(String),
}

/// Whether the thread's total is known.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
enum Total {
    /// As it was told last.
    #[default]
    Told,
    /// A line since could not be read, and may have had another: the next one tells.
    Lost,
    /// So, and what the process counts is not all: only a record tells.
    Apart,
}

/// The fold of one rollout.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named after what the lines say")]
pub struct Rollout {
    /// Where it began.
    pub cwd: Option<String>,
    /// Where its last turn works: it may have been resumed from elsewhere.
    pub works_in: Option<String>,
    pub branch: Option<String>,
    pub model: Option<String>,
    pub prompt: Option<String>,
    /// The number of the line that has it.
    pub prompt_at: Option<u64>,
    /// The number of the line up to which an earlier rollout belongs to this one.
    pub base: Option<u64>,
    pub started: Option<i64>,
    pub updated: Option<i64>,
    /// The thread it was forked from.
    pub forked_from: Option<String>,
    /// The thread it works for, if it is a sub-agent; nobody's name where it does not say.
    pub works_for: Option<String>,
    pub nickname: Option<String>,
    pub policy: Option<String>,
    /// Who decides on what it asks leave for, where that is said: `user`, or another model.
    pub reviewer: Option<String>,
    pub stand: Stand,
    /// What a turn that failed needs of a person.
    pub needs: Option<Need>,
    /// When it failed.
    pub failed_at: Option<i64>,
    /// What the last turn proposes to do; nothing was said of it since.
    pub plan: Option<String>,
    /// When the last turn began.
    pub turn_at: Option<i64>,
    id: Option<String>,
    /// The number of the line that was read last.
    number: Option<u64>,
    turn: Option<String>,
    /// The turn that this one is part of: a review begins with that of its reviewer, and ends by itself.
    root: Option<String>,
    /// Calls without an output.
    pub calls: Vec<Call>,
    tokens: Option<[u64; 4]>,
    total: Total,
    /// It has records of responses: a process's own count does not tell the thread's total.
    has_records: bool,
    /// What its process said last that it has counted, and whether a record of a response came since: the record has
    /// the thread's total, and the process only its own, which lacks what was killed before it could be counted.
    counted: Option<[u64; 4]>,
    recorded: bool,
    /// What had been used when its context was full: the process has counted from nothing since.
    before: Option<[u64; 4]>,
    /// Its process has said that it has counted nothing: before 0.9x one that goes on with a thread begins so.
    fresh: bool,
    has_tasks: bool,
    /// What went wrong in the open turn, and what that needs of a person: it counts when the turn ends.
    wrong: Option<(String, Option<Need>)>,
    /// Whether the open turn has shown what was asked, and whether anything came of that.
    asked: bool,
    gave: bool,
    /// Whether the open turn has answered.
    said: bool,
    /// Lines are missing that may have shown it.
    missed: bool,
    /// It is of a version that says so when a turn fails.
    tells_errors: bool,
    /// A line since could not be read, and may have begun or ended a turn.
    unsure: bool,
    /// Lines were left out: what is asked after them was not asked first.
    gapped: bool,
}

impl Rollout {
    /// The thread's totals as Codex counts them: `input` includes `cache_read`.
    pub fn tokens(&self) -> Option<Tokens> {
        let known = self.tokens.filter(|_| self.total == Total::Told);
        known.map(|[input, output, cache_read, cache_write]| Tokens { input, output, cache_read, cache_write })
    }

    fn meta(&mut self, p: Value<'_>) {
        let text = |key: &str| p.get(key).some_str().map(str::to_owned);
        if self.id.is_some() && text("id").is_some_and(|id| self.id.as_ref() != Some(&id)) {
            return; // a copy of its parent's, as forks of versions without `history_base` hold it
        }
        self.id = self.id.take().or_else(|| text("id"));
        self.cwd = text("cwd").or(self.cwd.take());
        self.branch = p.get("git").get("branch").some_str().map(str::to_owned).or(self.branch.take());
        self.started = p.get("timestamp").str().and_then(Time::parse).map(|t| t.0).or(self.started);
        self.base = p.get("history_base").get("end_ordinal_exclusive").u64().or(self.base);
        self.forked_from = text("forked_from_id").or(self.forked_from.take());
        let spawn = p.get("source").get("subagent").get("thread_spawn");
        let source = p.get("source");
        let is_sub_agent = source.get("subagent").exists()
            || source.get("internal").exists()
            || p.get("thread_source").str() == Some("subagent");
        if is_sub_agent {
            let parent = spawn.get("parent_thread_id").some_str().map(str::to_owned);
            // Before 0.13x a reviewer does not say whose it is.
            self.works_for = parent.or_else(|| text("parent_thread_id")).or(Some(String::new()));
            self.nickname =
                text("agent_nickname").or_else(|| spawn.get("agent_nickname").some_str().map(str::to_owned));
        }
        self.has_tasks |= text("history_mode").is_some();
        self.tells_errors |= p.get("cli_version").str().is_some_and(tells_errors);
    }

    fn event(&mut self, p: Value<'_>, at: Option<i64>) {
        let turn = || p.get("turn_id").some_str().map(str::to_owned);
        match p.get("type").str().unwrap_or("") {
            "task_started" | "turn_started" => {
                self.has_tasks = true;
                (self.turn, self.turn_at) = (turn(), at);
                self.root = p.get("root_turn_id").some_str().map(str::to_owned);
                self.calls.clear();
                self.open();
                (self.needs, self.wrong, self.plan) = (None, None, None);
                (self.asked, self.gave, self.said, self.missed) = (false, false, false, false);
            }
            "task_complete" | "turn_complete" if self.is_current(turn()) => {
                let error = p.get("error");
                let said = error.get("message").some_str().or(error.some_str());
                let (stand, needs) = match (said, self.wrong.take()) {
                    (Some(message), _) => (Stand::Failed(message.to_owned()), need(error.get("codex_error_info"))),
                    (None, _) if error.exists() => (Stand::Failed("the turn failed".into()), None),
                    // One that is answered after all has survived what went wrong; what it had said before, as when a
                    // hook sent it on, is told at its end too.
                    (None, Some((message, needs))) if self.said || p.get("last_agent_message").some_str().is_none() => {
                        (Stand::Failed(message), needs)
                    }
                    // What it tells at its end may have been said before that, among the lines that are missing.
                    (None, Some(_)) if self.missed => (Stand::Unseen, None),
                    (None, _) => (self.ended(p), None),
                };
                self.close(stand);
                (self.needs, self.failed_at) = (needs, at);
                self.has_tasks = true;
            }
            "turn_aborted" if self.is_current(turn()) => {
                let reason = p.get("reason").some_str().unwrap_or("interrupted");
                self.close(Stand::Aborted(format!("turn aborted: {reason}")));
            }
            "user_message" => {
                let text = p.get("message").some_str();
                self.asked(text);
            }
            "agent_message" if !self.has_tasks => self.close(Stand::Well),
            "agent_message" => self.answers(),
            "agent_reasoning" => self.gave = true,
            "error" if !is_beside(p.get("codex_error_info")) => {
                let message = p.get("message").some_str().unwrap_or("error").to_owned();
                let needs = need(p.get("codex_error_info"));
                if self.has_tasks {
                    self.wrong = Some((message, needs));
                } else {
                    self.close(Stand::Failed(message));
                    (self.needs, self.failed_at) = (needs, at);
                }
            }
            "item_completed" => {
                let item = p.get("item");
                if item.get("type").str() == Some("UserMessage") {
                    self.asked(item.get("content").items().find_map(|c| c.get("text").some_str()));
                }
                if item.get("type").str() == Some("Plan") {
                    self.plan = item.get("text").some_str().map(|plan| plan.trim().to_owned());
                }
                self.ran(item.get("id"));
            }
            "exec_command_end" | "patch_apply_end" | "mcp_tool_call_end" => self.ran(p.get("call_id")),
            // Of a thread that only has another one review, there is no turn of its own.
            "thread_settings_applied" if self.model.is_none() => {
                self.model = p.get("thread_settings").get("model").some_str().map(str::to_owned);
            }
            "token_count" => self.count(p.get("info")),
            _ => {}
        }
    }

    /// How a turn ended of which no error is told. Versions that say nothing of an error anywhere end a turn that failed
    /// like any other: what was asked then has nothing behind it, and they say that nothing was answered. Those that
    /// name the root of a turn say it.
    fn ended(&self, end: Value<'_>) -> Stand {
        let silent = end.entries().any(|(key, said)| key == "last_agent_message" && said.some_str().is_none());
        let mute = silent && !self.gave && !self.tells_errors && !end.get("root_turn_id").exists();
        match (mute, self.missed) {
            (true, true) => Stand::Unseen,
            (true, false) if self.asked => Stand::Failed("it ended without an answer".into()),
            _ => Stand::Well,
        }
    }

    /// The open turn says something: whatever went wrong before, it has survived.
    fn answers(&mut self) {
        (self.gave, self.said, self.wrong) = (true, true, None);
    }

    /// Of several calls at once, no output is written before all have ended.
    fn ran(&mut self, call: Value<'_>) {
        if let Some(id) = call.some_str() {
            self.calls.retain(|call| call.id != id);
        }
    }

    fn asked(&mut self, text: Option<&str>) {
        // What is missing stands before what was asked: nothing was given yet.
        self.missed &= self.asked;
        self.asked = true;
        if self.prompt.is_none() && !self.gapped {
            self.prompt = text.map(|t| t.trim().to_owned());
            self.prompt_at = self.number;
        }
        if !self.has_tasks {
            self.calls.clear();
            self.open();
        }
    }

    /// A line without an envelope: the first tells what the thread is, the others are items.
    fn bare(&mut self, line: Value<'_>) {
        match line.get("type").str() {
            None if line.get("id").some_str().is_some() => self.meta(line),
            Some("message") if line.get("role").str() == Some("user") => {
                let text = line.get("content").items().find_map(|c| c.get("text").some_str()).unwrap_or("").trim();
                if !text.starts_with('<') {
                    self.asked(Some(text));
                } else if self.cwd.is_none() {
                    self.cwd = place(text).map(str::to_owned);
                }
            }
            _ => self.item(line, None),
        }
    }

    fn item(&mut self, p: Value<'_>, at: Option<i64>) {
        let id = p.get("call_id").str().unwrap_or("");
        let open = match p.get("type").str().unwrap_or("") {
            "function_call" | "custom_tool_call" | "local_shell_call" => {
                let name = p.get("name").some_str().unwrap_or("shell");
                let mut call = Call::new(id, name, p.get("input"), at);
                if let Some(arguments) = p.get("arguments").some_str() {
                    let parsed = Doc::parse(arguments.as_bytes(), |_, _| true, 600);
                    call.gist = parsed.map_or_else(|_| arguments.to_owned(), |doc| gist(doc.root()));
                } else if p.get("action").exists() {
                    call.gist = gist(p.get("action"));
                }
                if self.calls.len() < 64 {
                    self.calls.push(call);
                }
                true
            }
            "function_call_output" | "custom_tool_call_output" | "local_shell_call_output" => {
                self.calls.retain(|call| call.id != id);
                // What a tool still gives does not open a turn again that was aborted.
                self.unsure || !matches!(self.stand, Stand::Aborted(_))
            }
            "reasoning" => true,
            "message" if p.get("role").str() == Some("assistant") => {
                if !self.has_tasks {
                    self.close(Stand::Well);
                }
                self.has_tasks
            }
            _ => false,
        };
        self.gave |= open || p.get("type").word().ends_with(b"_call");
        if open && (self.unsure || !self.has_tasks) {
            self.open();
        }
    }

    /// A record of a response, with the thread's total.
    fn record(&mut self, total: Value<'_>) {
        if total.exists() {
            (self.tokens, self.recorded, self.before) = (count(total), true, None);
            (self.total, self.has_records, self.fresh) = (Total::Told, true, false);
        }
    }

    /// What the process has counted: nothing new if it said so before, or if it echoes a record.
    fn count(&mut self, info: Value<'_>) {
        let total = info.get("total_token_usage");
        let told = count(total);
        self.fresh |= !total.exists() && self.tokens.is_some();
        if told.is_some() && std::mem::take(&mut self.fresh) && told == count(info.get("last_token_usage")) {
            self.start_anew();
            self.counted = None;
        }
        if !total.exists() || told.is_some() && self.counted == told {
            return;
        }
        self.counted = told;
        // Of a context that has no room left it says just that, in place of what was used.
        if told.is_some_and(|used| used == [0; 4]) && total.get("total_tokens").u64() > Some(0) {
            return self.start_anew();
        }
        if !std::mem::take(&mut self.recorded) {
            let before = self.before.unwrap_or_default();
            let now = told.map(|used| std::array::from_fn(|i| used[i].saturating_add(before[i])));
            // One that has shrunk was begun anew in a line that could not be read.
            let shrunk =
                self.tokens.zip(now).is_some_and(|(old, now)| old.iter().zip(now).any(|(old, now)| *old > now));
            self.total = match self.total {
                Total::Lost if !shrunk && !self.has_records => Total::Told,
                Total::Lost => Total::Apart,
                known => known,
            };
            self.tokens = now;
        }
    }

    /// The process counts from nothing: what was used before comes on top of that, if it is known.
    fn start_anew(&mut self) {
        self.before = self.tokens;
        if self.total == Total::Lost {
            self.total = Total::Apart;
        }
    }

    fn is_current(&self, turn: Option<String>) -> bool {
        turn.is_none() || self.turn.is_none() || turn == self.turn || turn == self.root
    }

    /// What is left out, or cannot be read, may have been what was asked, or an answer.
    fn miss(&mut self) {
        (self.asked, self.gave, self.said, self.missed) = (false, false, false, true);
    }

    fn open(&mut self) {
        self.stand = Stand::Open;
        self.unsure = false;
    }

    fn close(&mut self, stand: Stand) {
        self.stand = stand;
        self.unsure = false;
        self.needs = None;
        self.calls.clear();
    }
}

/// A total, if it is one that we know.
fn count(usage: Value<'_>) -> Option<[u64; 4]> {
    let count = |key: &str| usage.get(key).whole();
    let beside = |key: &str| usage.get(key).count();
    let (input, output) = count("input_tokens").zip(count("output_tokens"))?;
    Some([input, output, beside("cached_input_tokens")?, beside("cache_write_input_tokens")?])
}

/// A policy's name, by itself or around what may be asked under it: where nothing may, that is `never`.
fn policy(told: Value<'_>) -> Option<String> {
    let grants = || told.entries().find(|(_, grants)| grants.is_object());
    let asks = |(name, grants): (&str, Value<'_>)| {
        let any = grants.entries().any(|(_, granted)| granted.is_true());
        if any { name.to_owned() } else { "never".to_owned() }
    };
    told.some_str().map(str::to_owned).or_else(|| grants().map(asks))
}

/// Whether a version writes down that a turn has failed: 0.133 does not, 0.152 does.
fn tells_errors(version: &str) -> bool {
    let mut numbers = version.split('.').map_while(|n| n.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(0), Some(152))
}

/// By Codex's own word for an error, which is a word or an object of one member.
fn need(info: Value<'_>) -> Option<Need> {
    let word = info.str().or_else(|| info.entries().next().map(|(word, _)| word));
    let status = info.entries().next().and_then(|(_, more)| more.get("http_status_code").u64());
    match word? {
        "unauthorized" => Some(Need::Login),
        "usage_limit_exceeded" | "session_budget_exceeded" | "rate_limit_exceeded" => Some(Need::Limit),
        _ => Need::of_http(status?),
    }
}

/// Whether an error is about something beside the turn, which goes on.
fn is_beside(info: Value<'_>) -> bool {
    let word = info.str().or_else(|| info.entries().next().map(|(word, _)| word));
    matches!(word, Some("thread_rollback_failed" | "active_turn_not_steerable"))
}

/// The directory in what Codex says of its surroundings.
fn place(context: &str) -> Option<&str> {
    let tagged = || context.split_once("<cwd>")?.1.split_once("</cwd>").map(|(place, _)| place);
    let line = || context.split_once("Current working directory: ")?.1.lines().next();
    tagged().or_else(line).map(str::trim).filter(|place| place.starts_with('/'))
}

/// What is kept of a line, wherever it stands in it.
static KEYS: Keys = Keys::new(&[
    b"timestamp",
    b"type",
    b"payload",
    b"cwd",
    b"git",
    b"branch",
    b"forked_from_id",
    b"history_base",
    b"end_ordinal_exclusive",
    b"ordinal",
    b"thread_id",
    b"history_mode",
    b"cli_version",
    b"source",
    b"subagent",
    b"internal",
    b"thread_spawn",
    b"parent_thread_id",
    b"thread_source",
    b"agent_nickname",
    b"turn_id",
    b"thread_settings",
    b"root_turn_id",
    b"model",
    b"approval_policy",
    b"approvals_reviewer",
    b"item",
    b"content",
    b"text",
    b"message",
    b"error",
    b"codex_error_info",
    b"reason",
    b"info",
    b"total_token_usage",
    b"last_token_usage",
    b"thread_token_usage",
    b"role",
    b"last_agent_message",
    b"name",
    b"arguments",
    b"input",
    b"action",
    b"call_id",
    b"http_status_code",
]);

impl Fold for Rollout {
    /// The first line has all of the agent's instructions in it.
    const HEAD_READ: usize = 24 << 10;
    fn keeps(parent: &[u8], key: &[u8]) -> bool {
        KEYS.has(key)
            || matches!(
                parent,
                b"action"
                    | b"approval_policy"
                    | b"granular"
                    | b"codex_error_info"
                    | b"total_token_usage"
                    | b"last_token_usage"
                    | b"thread_token_usage"
            )
            || (matches!(parent, b"" | b"payload" | b"item") && key == b"id")
    }

    fn reads(line: Value<'_>) -> bool {
        let payload = line.get("payload");
        match line.get("type").word() {
            b"event_msg" | b"response_item" => payload.has_kind(),
            _ => line.has_kind() || !payload.exists(), // the items of 2025 have no envelope
        }
    }

    fn line(&mut self, line: Value<'_>) {
        let at = Time::parse(line.get("timestamp").word()).map(|t| t.0);
        self.started = self.started.or(at);
        self.updated = self.updated.max(at);
        self.number = line.get("ordinal").u64();
        let payload = line.get("payload");
        match line.get("type").word() {
            b"session_meta" => self.meta(payload),
            b"turn_context" => {
                let text = |key: &str| payload.get(key).some_str().map(str::to_owned);
                self.model = text("model").or(self.model.take());
                self.policy = policy(payload.get("approval_policy")).or(self.policy.take());
                self.reviewer = text("approvals_reviewer").or(self.reviewer.take());
                self.works_in = text("cwd").or(self.works_in.take());
            }
            b"event_msg" => self.event(payload, at),
            b"response_item" => self.item(payload, at),
            b"token_usage_record" => self.record(payload.get("thread_token_usage")),
            _ if !payload.exists() => self.bare(line),
            _ => {}
        }
    }

    fn gap(&mut self) {
        (self.stand, self.unsure) = (Stand::Unseen, false);
        (self.turn, self.turn_at) = (None, None);
        self.calls.clear();
        (self.tokens, self.counted, self.recorded, self.before, self.wrong) = (None, None, false, None, None);
        (self.fresh, self.total) = (false, Total::Told);
        self.miss();
        self.gapped = true;
    }

    fn lost(&mut self) {
        self.unsure = true;
        // It may have begun a turn, the end of which has another id.
        (self.turn, self.root) = (None, None);
        self.total = if self.has_records { Total::Apart } else { self.total.max(Total::Lost) };
        self.miss();
    }

    fn knows_head(&self) -> bool {
        self.prompt.is_some() && self.cwd.is_some()
    }

    fn knows_tail(&self) -> bool {
        self.stand != Stand::Unseen && !self.unsure
    }

    fn has_enough(&self) -> bool {
        self.tokens.is_some() && self.model.is_some()
    }

    const ENOUGH: &'static [u8] = b"token";
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
