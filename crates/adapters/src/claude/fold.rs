//! What the lines of a Claude Code transcript add up to.
//!
//! Written for 2.1.325, lenient towards 2.0 and 2.1.197. One prompt opens a
//! turn; an answer, an API error or an interruption closes it:
//!
//! ```text
//!  prompt ──> Open ──tool_use/tool_result──> Open
//!               │── assistant, stop_reason other than tool_use ──> Over, well
//!               │── assistant with isApiErrorMessage ────────────> Over, failed
//!               └── user "[Request interrupted by user…" ────────> Over, aborted
//! ```
//!
//! Traps, all measured: commands of the program itself (`/compact`, `/clear`)
//! leave `user` lines that open no turn; one message is several lines with the
//! same id, which count their tokens once; a hook that halts the turn, and
//! `--json-schema`, end it without an answer, and results may still follow; `cost-state` is written at exit and
//! at `/clear`, but holds nothing of a run that was killed; a resumed session
//! gets a synthetic answer that ends nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lariat_core::{Time, Tokens};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::accounting::Accounting;
use super::ask::about;
use super::tokens::{grow, sum, to_tokens};
use super::words::{EXITS, GO_ON, INTERRUPTED, LOGGED_IN, NOTICE, OWN_COMMANDS, need, spoken, tasks, typed, version};
use crate::agent_process::is_uuid;
use crate::json::{Keys, Value};
use crate::needs::Need;
use crate::reader::Fold;
use crate::tool::{Call, mark};

/// Since this version a command typed with `!` also asks the model.
const BASH_ASKS_MODEL: (u32, u32, u32) = (2, 1, 325);

/// Since this version an answer that ended always has a `stop_reason`.
const TELLS_REASONS: (u32, u32, u32) = (2, 1, 90);

/// How many calls that have their result are kept: whoever still asks for one is told of it at once.
const SETTLED: usize = 8;

/// How long after all that a transcript tells of its end its file may have been written last, to tell of it too: who goes
/// on with a session has been away before.
const LEAVING: i64 = 600_000;

/// What stands for a branch where there is none: outside of a repository, or at a commit that was checked out by itself.
const NO_BRANCH: &str = "HEAD";

/// By how much a file's time may lie behind that of a line.
pub const CLOCKS: i64 = 1000;

/// How the last turn stands.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Stand {
    /// Nothing seen of it, since the start or since a gap.
    #[default]
    Unseen,
    /// Open.
    Open,
    /// Opened by a message that is only queued so far.
    Queued(Box<Stand>),
    /// Answered.
    Well,
    /// Ended in this error.
    Failed(String),
    /// Interrupted, in the agent's words.
    Aborted(String),
}

/// The fold of one transcript.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named after what the lines say")]
pub struct Transcript {
    pub cwd: Option<String>,
    /// Where `/cd` has taken it.
    pub moved_to: Option<String>,
    branch: Option<String>,
    /// Where it last worked outside of its directory, and the branch there.
    elsewhere: Option<(String, String)>,
    /// The session that `/branch` has copied it from; `--fork-session` does not say.
    pub forked_from: Option<String>,
    version: (u32, u32, u32),
    pub model: Option<String>,
    /// Whether a person sits before it, if it says.
    pub in_terminal: Option<bool>,
    pub custom_title: Option<String>,
    pub other_title: Option<String>,
    /// Titles by hash of the record that each was made up to: versions before 2.1 wrote those of other sessions, too,
    /// into whichever transcript was at hand.
    titles: Vec<(u64, String)>,
    /// The last record, by hash of its id.
    last: u64,
    pub agent_name: Option<String>,
    pub prompt: Option<String>,
    pub started: Option<i64>,
    pub updated: Option<i64>,
    pub stand: Stand,
    /// When a person last gave it a prompt.
    pub asked_at: Option<i64>,
    /// When it was last asked anything, by whomever, or the model last said something: whoever left after that left the
    /// turn as it stands. What tools still give, and what the program notes of itself, is written after an exit too.
    stirred_at: Option<i64>,
    /// What a turn that failed needs of a person, until it is seen to.
    pub needs: Option<Need>,
    /// When it failed.
    pub failed_at: Option<i64>,
    /// Tool calls without a result.
    pub calls: Vec<Call>,
    /// The latest that have one, by the mark of what they ask, and since when.
    pub settled: Vec<(u64, i64)>,
    /// The turn was ended without an answer: what its tools still give opens none.
    halted: bool,
    /// Whether this is a sub-agent's own transcript: there all lines are marked as beside the main one.
    beside: bool,
    /// The last thing said was the exit's accounting: the session was left.
    pub left: bool,
    /// When a person left it, since it was last asked anything or the model said something, and since its last turn ended.
    pub exited_at: Option<i64>,
    /// A person moved it to the background, where it goes on under this id.
    pub goes_on_as: Option<String>,
    accounting: Accounting,
    /// Tasks whose end was told to the model, by hash of their id.
    told_of: BTreeSet<u64>,
    /// Usage by hash of the message id: `input, output, cache_read, cache_write`.
    /// It adds up only if all lines were seen, so nothing is kept after a gap.
    messages: BTreeMap<u64, [u64; 4]>,
    /// An answer does not say what it used.
    uncounted: bool,
    /// Some answer has a `stop_reason`.
    tells_reasons: bool,
    gapped: bool,
    /// Copies of how files were stand in it, and anything else: 2.1.47 leaves a file of nothing but copies whenever it
    /// goes on with a session.
    copies: bool,
    speaks: bool,
    /// Something was said in it.
    said: bool,
    /// Nothing since the gap, or since a line that was lost, tells whether the turn was ended before: what a tool gives
    /// does not.
    blind: bool,
}

impl Transcript {
    /// The tokens of several transcripts together, a message in two of them once; if every answer tells its own.
    pub fn tokens_together<'a>(all: impl Iterator<Item = &'a Transcript>) -> Option<Tokens> {
        let mut messages: BTreeMap<u64, [u64; 4]> = BTreeMap::new();
        for transcript in all {
            if transcript.uncounted {
                return None;
            }
            transcript.messages.iter().for_each(|(id, usage)| grow(messages.entry(*id).or_default(), usage));
        }
        Some(sum(messages.values()))
    }

    /// Since when the turn stands as it does, as far as its lines tell.
    pub fn stirred(&self) -> Option<i64> {
        self.stirred_at.or(self.updated)
    }

    /// What the exit's accounting says, if nothing was said since, and it counts from the start: tokens, and their
    /// cost if it knows that.
    pub fn accounted(&self) -> Option<(Tokens, Option<f64>)> {
        let Accounting { tokens, usd, since, .. } = self.accounting;
        let all = since.is_none_or(|since| self.started.is_none_or(|started| since <= started));
        tokens.filter(|_| self.left && all).map(|used| (to_tokens(used), usd))
    }

    /// Whether anything was said in it, by whomever: Claude Code goes on with nothing else, not even with what is queued.
    pub fn is_a_conversation(&self) -> bool {
        self.said
    }

    /// Whether it is no transcript of anything.
    pub fn is_nobodys(&self) -> bool {
        self.copies && !self.speaks
    }

    /// Whether the process that left it had started after this.
    pub fn was_left_by_one_since(&self, at: Time) -> bool {
        self.left && self.accounting.since.is_some_and(|since| since > at.0)
    }

    /// When it was left: as its file was written then, unless that was copied or touched since; then as it says itself.
    pub fn left_at(&self, written: Option<Time>) -> Option<Time> {
        let Accounting { at, goes_on, .. } = self.accounting;
        let accounted = at.filter(|at| self.updated.is_none_or(|last| *at >= last)).filter(|_| self.left);
        let last = accounted.or(self.updated)?;
        let about = last.saturating_sub(CLOCKS)..=last.saturating_add(LEAVING);
        let own = written.filter(|at| self.left && about.contains(&at.0));
        // It is too early by what lay between runs, which may stand among what is not read.
        own.map(|at| at.0.max(last)).or(accounted.filter(|_| !goes_on && !self.gapped)).map(Time)
    }

    /// Whether the model was told that this task of its own has come to an end.
    pub fn was_told_of(&self, task: &str) -> bool {
        self.told_of.contains(&xxh3_64(task.as_bytes()))
    }

    /// A branch belongs to the directory that it was seen in.
    fn checked_out(&mut self, cwd: &[u8], branch: &[u8]) {
        let own = self.cwd.as_deref().is_none_or(|own| cwd.is_empty() || is_within(cwd, own.as_bytes()));
        let known = if own { self.branch.as_deref() } else { self.elsewhere.as_ref().map(|(_, b)| b.as_str()) };
        let there = own || self.elsewhere.as_ref().is_some_and(|(at, _)| at.as_bytes() == cwd);
        if there && known.map(str::as_bytes) == Some(branch) {
            return;
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match own {
            true => self.branch = Some(text(branch)),
            false => self.elsewhere = Some((text(cwd), text(branch))),
        }
    }

    /// The branch in this directory, as far as it is known.
    pub fn branch_in(&self, cwd: Option<&str>) -> Option<&str> {
        let own = cwd.zip(self.cwd.as_deref()).is_none_or(|(cwd, own)| is_within(cwd.as_bytes(), own.as_bytes()));
        let branch = match &self.elsewhere {
            Some((at, branch)) if Some(at.as_str()) == cwd => Some(branch.as_str()),
            _ => self.branch.as_deref().filter(|_| own),
        };
        branch.filter(|branch| *branch != NO_BRANCH)
    }

    fn summary(&mut self, line: Value<'_>) {
        let Some(title) = line.get("summary").some_str() else { return };
        let leaf = line.get("leafUuid").some_str().map(|leaf| xxh3_64(leaf.as_bytes()));
        match leaf.filter(|leaf| *leaf != self.last) {
            Some(leaf) if self.titles.len() < 64 => self.titles.push((leaf, title.to_owned())),
            Some(_) => {}
            None => self.other_title = Some(title.to_owned()),
        }
    }

    fn record(&mut self, id: &[u8]) {
        self.last = xxh3_64(id);
        if let Some(own) = self.titles.iter().position(|(leaf, _)| *leaf == self.last) {
            self.other_title = Some(self.titles.swap_remove(own).1);
        }
    }

    fn user(&mut self, line: Value<'_>) {
        let content = line.get("message").get("content");
        let mut results = 0;
        for item in content.items().filter(|i| i.get("type").word() == b"tool_result") {
            results += 1;
            self.settle(item.get("tool_use_id").str().unwrap_or(""), line);
        }
        let interrupts = |text: &str| text.starts_with(INTERRUPTED);
        // Where it interrupts a tool, that may stand beside what the tool gave.
        if results > 0 && content.items().any(|i| i.get("text").str().is_some_and(interrupts)) {
            self.close(Stand::Aborted("interrupted by a person".into()));
            return;
        }
        if results > 0 {
            // What the tools of a turn still give that was ended does not open it again.
            if !self.halted && !self.blind && !matches!(self.stand, Stand::Aborted(_)) {
                self.open();
            }
            return;
        }
        let text = content.str().or_else(|| spoken(content)).unwrap_or("");
        if interrupts(text) {
            self.close(Stand::Aborted("interrupted by a person".into()));
            return;
        }
        if text.starts_with(GO_ON) {
            self.stir();
            self.open();
            return;
        }
        if text.starts_with(NOTICE) {
            self.told_of.extend(tasks(text).map(|task| xxh3_64(task.as_bytes())));
        }
        if line.get("isMeta").is_true() || line.get("isCompactSummary").is_true() {
            return;
        }
        let text = text.trim_start();
        if text.starts_with(LOGGED_IN) && self.needs == Some(Need::Login) {
            self.needs = None;
        }
        if OWN_COMMANDS.iter().any(|tag| text.starts_with(tag)) {
            self.unqueue(); // it was what waited
            if EXITS.iter().any(|exit| text.starts_with(exit)) {
                self.exited_at = self.updated;
            }
            return;
        }
        if text.starts_with("<bash-input>") || text.starts_with("<bash-stdout>") {
            if self.version >= BASH_ASKS_MODEL {
                self.stir();
                self.open();
            }
            return;
        }
        let by_program = line.get("promptSource").str() == Some("system");
        if self.prompt.is_none() && !by_program && !self.gapped {
            self.prompt = Some(typed(text)).filter(|t| !t.is_empty());
        }
        if !by_program && !text.starts_with(NOTICE) {
            self.asked_at = line.get("timestamp").str().and_then(Time::parse).map(|t| t.0);
        }
        self.calls.clear();
        self.stir();
        self.open();
    }

    fn settle(&mut self, id: &str, line: Value<'_>) {
        let Some(call) = self.calls.iter().position(|call| call.id == id) else { return };
        let mark = mark(&about(&self.calls.remove(call)));
        if let Some(at) = Time::parse(line.get("timestamp").word()) {
            self.settled.truncate(SETTLED - 1);
            self.settled.insert(0, (mark, at.0));
        }
    }

    fn is_aside(&self, line: Value<'_>) -> bool {
        !self.beside && line.get("isSidechain").is_true()
    }

    fn assistant(&mut self, line: Value<'_>) {
        let message = line.get("message");
        let model = message.get("model").some_str();
        let usage = message.get("usage");
        if usage.exists() && !self.gapped {
            // Without any id it can only be itself.
            let ids = [message.get("id"), line.get("uuid"), line.get("timestamp")];
            let id = ids.iter().find_map(Value::some_str).unwrap_or("");
            let number = |key: &str| Some(usage.get(key)).filter(|n| n.exists()).map(|n| n.whole());
            // Without a cache there are no such numbers.
            let cached = |key: &str| number(key).unwrap_or(Some(0));
            let used = [
                number("input_tokens").flatten(),
                number("output_tokens").flatten(),
                cached("cache_read_input_tokens"),
                cached("cache_creation_input_tokens"),
            ];
            self.uncounted |= used.contains(&None);
            let used = used.map(Option::unwrap_or_default);
            grow(self.messages.entry(xxh3_64(id.as_bytes())).or_default(), &used);
        }
        if self.is_aside(line) {
            return; // a sub-agent's line, as older versions kept them here
        }
        let blocks = message.get("content");
        if line.get("isApiErrorMessage").is_true() {
            let said = blocks.items().find_map(|b| b.get("text").some_str());
            let error = said.or(line.get("error").some_str()).unwrap_or("API error");
            let kind = line.get("error").str();
            self.close(Stand::Failed(error.to_owned()));
            self.needs = kind.and_then(need).or_else(|| Need::of_http(line.get("apiErrorStatus").u64()?));
            self.failed_at = line.get("timestamp").str().and_then(Time::parse).map(|t| t.0);
            return;
        }
        if model == Some("<synthetic>") {
            return;
        }
        self.uncounted |= !usage.exists();
        // What was cut off is written at an exit.
        if !line.get("isAbortedMidStream").is_true() {
            self.stir();
        }
        if let Some(model) = model
            && self.model.as_deref() != Some(model)
        {
            self.model = Some(model.to_owned());
        }
        for block in blocks.items().filter(|b| b.get("type").word() == b"tool_use") {
            if let Some(id) = block.get("id").str()
                && !self.calls.iter().any(|c| c.id == id)
                && self.calls.len() < 64
            {
                let name = block.get("name").str().unwrap_or("tool");
                self.calls.push(Call::new(id, name, block.get("input"), None));
            }
        }
        let last_block = blocks.items().last().and_then(|b| b.get("type").str());
        let over = match message.get("stop_reason").str() {
            // Where the limit cut it off it goes on by itself, or says that it failed.
            Some("tool_use" | "pause_turn" | "max_tokens") => false,
            Some(_) => true,
            // 2.1.47 never writes one; where it is written, what has none is not the end of an answer.
            None => {
                let silent = !self.tells_reasons && self.version < TELLS_REASONS;
                last_block == Some("text") && silent && !line.get("isAbortedMidStream").is_true()
            }
        };
        self.tells_reasons |= message.get("stop_reason").exists();
        if over {
            self.close(Stand::Well);
        } else {
            self.open();
        }
    }

    fn stir(&mut self) {
        self.stirred_at = self.updated;
        self.exited_at = None;
        self.accounting.stir();
    }

    fn open(&mut self) {
        self.stand = Stand::Open;
        self.needs = None;
        self.left = false;
        self.goes_on_as = None;
        self.halted = false;
        self.blind = false;
    }

    fn close(&mut self, stand: Stand) {
        self.stand = stand;
        self.needs = None;
        self.calls.clear();
        self.left = false;
        self.exited_at = None;
        self.goes_on_as = None;
        self.halted = false;
        self.blind = false;
    }

    /// Ends it with no answer to come, as somebody has set it up to.
    fn halt(&mut self) {
        self.close(Stand::Well);
        self.halted = true;
    }

    fn unqueue(&mut self) {
        if let Stand::Queued(before) = &mut self.stand {
            self.stand = std::mem::take(before);
        }
    }

    fn queue(&mut self, line: Value<'_>) {
        match line.get("operation").str() {
            // At an exit it is queued of those that end with it, and nobody takes it up.
            Some("enqueue") if line.get("content").str().is_some_and(|c| c.starts_with(NOTICE)) => {}
            Some("enqueue") => {
                let prompt = line.get("content").some_str().filter(|c| !c.starts_with('<'));
                if self.prompt.is_none() && !self.gapped {
                    self.prompt = prompt.map(str::to_owned);
                }
                self.stir();
                if !matches!(self.stand, Stand::Open | Stand::Queued(_)) {
                    self.stand = Stand::Queued(Box::new(std::mem::take(&mut self.stand)));
                    self.left = false;
                }
            }
            Some("remove" | "popAll") => self.unqueue(),
            // 2.1.4 begins so, and writes what was asked only with the answer.
            Some("dequeue") if self.stand == Stand::Unseen && !self.gapped => {
                self.stand = Stand::Queued(Box::default());
            }
            _ => {}
        }
    }

    /// `--max-turns` ends a run between a tool's result and the next request; so do a hook that halts it or puts a tool
    /// off, and what `--json-schema` asked for.
    fn attachment(&mut self, attached: Value<'_>) {
        match attached.get("type").word() {
            b"max_turns_reached" => {
                let most = attached.get("maxTurns").u64().map_or_else(String::new, |n| format!(" of {n} turns"));
                self.close(Stand::Failed(format!("it reached its limit{most}")));
            }
            b"hook_stopped_continuation" | b"hook_deferred_tool" | b"structured_output" => self.halt(),
            _ => {}
        }
    }
}

/// What is kept of a line, wherever it stands in it.
#[rustfmt::skip]
static KEYS: Keys = Keys::new(&[
    b"type", b"subtype", b"message", b"id", b"model", b"content", b"text", b"name", b"input", b"tool_use_id",
    b"stop_reason", b"usage", b"input_tokens", b"output_tokens", b"cache_read_input_tokens",
    b"cache_creation_input_tokens", b"timestamp", b"cwd", b"relocatedCwd", b"continuedInSessionId", b"forkedFrom",
    b"gitBranch", b"version", b"entrypoint", b"isAbortedMidStream", b"isSidechain", b"isMeta", b"isCompactSummary",
    b"promptSource", b"isApiErrorMessage", b"error", b"apiErrorStatus", b"operation", b"attachment", b"maxTurns",
    b"preventContinuation", b"customTitle", b"agentName", b"aiTitle", b"summary", b"leafUuid", b"uuid",
    b"totalCostUSD", b"hasUnknownModelCost", b"startTime", b"totalDuration", b"modelUsage", b"inputTokens", b"outputTokens",
    b"cacheReadInputTokens", b"cacheCreationInputTokens",
]);

impl Fold for Transcript {
    /// A session's own is named by nothing but its id. What stands in it does not tell: older versions begin it with what
    /// they say to a sub-agent to warm up.
    fn begin(path: &Path) -> Self {
        let own = path.file_stem().and_then(|stem| stem.to_str()).is_some_and(is_uuid);
        Transcript { beside: !own, ..Transcript::default() }
    }

    fn keeps(parent: &[u8], key: &[u8]) -> bool {
        match KEYS.has(key) {
            true => (parent, key) != (b"content", b"content"), // what a tool gave
            false => {
                matches!(parent, b"modelUsage" | b"input" | b"questions")
                    || (parent, key) == (b"forkedFrom", b"sessionId")
            }
        }
    }

    fn reads(line: Value<'_>) -> bool {
        if !matches!(line.get("type").word(), b"user" | b"assistant") {
            return line.has_kind();
        }
        let message = line.get("message");
        let ends = message.get("stop_reason");
        ends.str().is_some() || !ends.exists() && message.get("content").exists()
    }

    fn line(&mut self, line: Value<'_>) {
        let at = Time::parse(line.get("timestamp").word()).map(|t| t.0);
        self.started = self.started.or(at);
        self.updated = self.updated.max(at);
        let kept = |key: &str| line.get(key).some_str().map(str::to_owned);
        if self.cwd.is_none() {
            self.cwd = kept("cwd");
        }
        if self.forked_from.is_none() {
            self.forked_from = line.get("forkedFrom").get("sessionId").some_str().map(str::to_owned);
        }
        let branch = line.get("gitBranch").word();
        if !branch.is_empty() {
            self.checked_out(line.get("cwd").word(), branch);
        }
        match line.get("version").word() {
            b"" => {}
            text => self.version = version(text),
        }
        match line.get("uuid").word() {
            b"" => {}
            id => self.record(id),
        }
        match line.get("entrypoint").word() {
            b"" => {}
            entrypoint => self.in_terminal = Some(entrypoint == b"cli"),
        }
        let kind = line.get("type").word();
        (self.copies, self.speaks) =
            if kind == b"file-history-snapshot" { (true, self.speaks) } else { (self.copies, true) };
        self.said |= matches!(kind, b"user" | b"assistant");
        match kind {
            b"user" if !self.is_aside(line) => self.user(line),
            b"assistant" => self.assistant(line),
            b"queue-operation" => self.queue(line),
            b"cost-state" => {
                self.accounting.take(line);
                self.left = true;
            }
            b"attachment" if !self.is_aside(line) => self.attachment(line.get("attachment")),
            // A hook took the prompt back.
            b"system" if line.get("preventContinuation").is_true() && !self.is_aside(line) => self.halt(),
            // Of a command that it does not know 2.1.259 writes no more with `-p`: it was what waited.
            b"system" if line.get("subtype").word() == b"local_command" && self.in_terminal == Some(false) => {
                self.unqueue();
            }
            b"custom-title" => self.custom_title = kept("customTitle"),
            b"agent-name" => self.agent_name = kept("agentName"),
            b"ai-title" => self.other_title = kept("aiTitle"),
            b"summary" => self.summary(line),
            b"continued-in" => {
                self.left = true;
                self.goes_on_as = kept("continuedInSessionId");
            }
            b"relocated" => self.moved_to = kept("relocatedCwd").or(self.moved_to.take()),
            _ => {}
        }
    }

    fn gap(&mut self) {
        self.stand = Stand::Unseen;
        self.asked_at = None;
        self.stirred_at = None;
        self.needs = None;
        self.calls.clear();
        self.left = false;
        self.exited_at = None;
        self.goes_on_as = None;
        self.halted = false;
        self.accounting = Accounting::default();
        self.messages.clear();
        self.gapped = true;
        self.blind = true;
    }

    fn lost(&mut self) {
        self.stand = Stand::Unseen;
        self.calls.clear();
        self.blind = true;
    }

    fn knows_head(&self) -> bool {
        self.prompt.is_some() && self.cwd.is_some()
    }

    fn knows_tail(&self) -> bool {
        match self.stand {
            Stand::Unseen | Stand::Queued(_) => false,
            // What was written at an exit, or when a hook ended the turn: what came before that stands farther up.
            Stand::Open | Stand::Well => !self.gapped || self.stirred_at.is_some() || self.updated.is_none(),
            Stand::Failed(_) | Stand::Aborted(_) => true,
        }
    }

    fn has_enough(&self) -> bool {
        self.model.is_some()
    }

    const ENOUGH: &'static [u8] = b"\"model\"";
}

/// Whether a directory is another one, or lies in it.
fn is_within(directory: &[u8], other: &[u8]) -> bool {
    directory.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}
