//! Transcripts as Claude Code writes them.
//!
//! Half of the files have the shape of 2.1.325 (one line per content block,
//! attachments, request records, `cost-state` at a clean exit), half the plainer
//! one of 2.0.x (no stop reason, no cost). What the real program leaves behind at
//! each kind of end is followed line by line, traps included: a snapshot of tens
//! of kilobytes may stand after the last answer, a `cost-state` may be followed
//! by turns it does not count, usage repeats on each line of one message, and a
//! killed program may leave half a line.

mod ending;

use std::fmt;
use std::io::Write;

use super::text::{Millis, Pool, Rng, Uuid, body_len};
use super::{Ending, Plan, Tokens, Written};

const MODELS: [&str; 3] = ["claude-opus-5-5", "claude-sonnet-4-5-20250929", "claude-haiku-4-5-20251001"];
/// Files below this size get no large snapshots: those alone would outgrow them.
const ROOM_FOR_SNAPSHOTS: usize = 35_000;
/// A file below this size that has its snapshots may well be a single short turn.
const SINGLE_TURN: usize = 60_000;

/// Writes one whole session to `out`.
pub fn write<'a>(plan: &Plan, pool: &'a Pool, mut rng: Rng, out: &mut Vec<u8>) -> Written<'a> {
    let ending = Ending::draw(&mut rng);
    let current = rng.chance(0.5);
    let headless = rng.chance(0.5);
    let branch = rng.pick(&["main", "dev", "feat/x", ""]);
    let (id, cwd) = (plan.id, &plan.cwd);
    let common = if current {
        let entry = if headless { "sdk-cli" } else { "cli" };
        format!(
            r#""userType":"external","entrypoint":"{entry}","cwd":"{cwd}","sessionId":"{id}","version":"2.1.325","gitBranch":"{branch}""#
        )
    } else {
        let patch = rng.range(1, 60);
        format!(
            r#""isSidechain":false,"userType":"external","cwd":"{cwd}","sessionId":"{id}","version":"2.0.{patch}","gitBranch":"{branch}""#
        )
    };
    let model = rng.below(MODELS.len() as u64) as usize;
    let mut session = Session {
        pool,
        out,
        id,
        common: &common,
        current,
        headless,
        model,
        target: plan.target,
        began: plan.start,
        at: plan.start,
        parent: None,
        call: rng.uuid(),
        request: rng.uuid(),
        prompt: "",
        turn: 0,
        snapshot_due: plan.target >= ROOM_FOR_SNAPSHOTS,
        spent: [Spent::default(); MODELS.len()],
        counted: None,
        typed: Vec::new(),
        rng,
    };
    session.open();
    session.turns();
    let how = session.end(ending);
    let family = if current { "2.1.325" } else { "2.0.x" };
    let Session { at, spent, counted, typed, .. } = session;
    let total = Spent::total(&spent);
    Written {
        ending,
        shape: format!("{family} {how}"),
        tokens: Some(Tokens {
            input: total.input,
            output: total.output,
            cache_read: total.cache_read,
            cache_write: Some(total.cache_write),
        }),
        // Known only if the last `cost-state` counts all there is.
        cost_usd: counted.filter(|counted| *counted == total).map(|_| cost(&spent)),
        last: at,
        typed,
    }
}

#[derive(Clone, Copy, Default, PartialEq)]
struct Spent {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
}

impl Spent {
    fn add(&mut self, other: Self) {
        self.input += other.input;
        self.output += other.output;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
    }

    fn total(all: &[Self]) -> Self {
        let mut total = Self::default();
        all.iter().for_each(|one| total.add(*one));
        total
    }

    /// An invented price, in dollars.
    fn cost(self) -> f64 {
        let points = self.input * 50 + self.output * 250 + self.cache_read * 5 + self.cache_write * 60;
        points as f64 / 10_000_000.0
    }
}

fn cost(spent: &[Spent]) -> f64 {
    spent.iter().map(|one| one.cost()).sum()
}

/// One message of the model: its lines share the id and the usage.
struct Message {
    id: Uuid,
    usage: Spent,
    block: u32,
}

/// A parent link as JSON.
struct Link(Option<Uuid>);

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(id) => write!(f, "\"{id}\""),
            None => f.write_str("null"),
        }
    }
}

struct Session<'a, 'o> {
    pool: &'a Pool,
    out: &'o mut Vec<u8>,
    rng: Rng,
    id: Uuid,
    /// The fields that every conversation line carries.
    common: &'o str,
    current: bool,
    headless: bool,
    model: usize,
    target: usize,
    began: Millis,
    at: Millis,
    parent: Option<Uuid>,
    /// The tool call that waits for its result.
    call: Uuid,
    request: Uuid,
    prompt: &'a str,
    turn: u32,
    snapshot_due: bool,
    spent: [Spent; MODELS.len()],
    /// What the last `cost-state` line counts.
    counted: Option<Spent>,
    typed: Vec<(Millis, &'a str)>,
}

impl<'a> Session<'a, '_> {
    fn line(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a vector does not fail.
        let _ = self.out.write_fmt(text);
        self.out.push(b'\n');
    }

    fn tick(&mut self, low: u64, high: u64) -> Millis {
        self.at.0 += self.rng.range(low, high) as i64;
        self.at
    }

    fn text(&mut self, n: usize) -> &'a str {
        self.pool.cut(&mut self.rng, n)
    }

    /// A body that lets no small file outgrow its size by much; large ones may end in a long line.
    fn body(&mut self, most: usize) -> &'a str {
        let room = self.target.saturating_sub(self.out.len()).max(self.target / 4);
        let len = body_len(&mut self.rng).min(room).min(most);
        self.text(len)
    }

    fn full(&self) -> bool {
        self.out.len() >= self.target
    }

    fn open(&mut self) {
        let (id, at) = (self.id, self.at);
        if self.current && !self.headless {
            self.line(format_args!(r#"{{"type":"mode","mode":"normal","sessionId":"{id}"}}"#));
            self.line(format_args!(r#"{{"type":"permission-mode","permissionMode":"auto","sessionId":"{id}"}}"#));
        }
        if !self.headless || !self.current {
            let m = self.rng.uuid();
            self.line(format_args!(
                r#"{{"type":"file-history-snapshot","messageId":"{m}","snapshot":{{"messageId":"{m}","trackedFileBackups":{{}},"timestamp":"{at}"}},"isSnapshotUpdate":false}}"#
            ));
        }
    }

    /// Turns until the file has its size; the last one is left open after a prompt.
    fn turns(&mut self) {
        loop {
            self.prompt();
            if self.snapshot_due && self.current && self.target < SINGLE_TURN && self.rng.chance(0.5) {
                return;
            }
            let steps = self.rng.below(12);
            for _ in 0..steps {
                if self.full() {
                    return;
                }
                self.use_tool();
                self.result();
            }
            if self.full() {
                return;
            }
            self.answer();
            self.turn_over();
            let left = self.current && self.rng.chance(0.2);
            if left {
                self.cost_state();
                self.tick(60_000, 86_400_000);
            }
        }
    }

    fn prompt(&mut self) {
        let at = self.tick(500, 40_000);
        let len = self.rng.range(20, 400) as usize;
        self.prompt = self.text(len);
        let (prompt, id, uuid, thread) = (self.prompt, self.id, self.rng.uuid(), self.rng.uuid());
        let parent = Link(self.parent.replace(uuid));
        let common = self.common;
        self.turn += 1;
        if !self.headless {
            self.typed.push((at, prompt));
        }
        if !self.current {
            self.line(format_args!(
                r#"{{"parentUuid":{parent},{common},"type":"user","message":{{"role":"user","content":"{prompt}"}},"uuid":"{uuid}","timestamp":"{at}"}}"#
            ));
            return;
        }
        let origin = if self.headless {
            self.line(format_args!(
                r#"{{"type":"queue-operation","operation":"enqueue","timestamp":"{at}","sessionId":"{id}","content":"{prompt}"}}"#
            ));
            self.line(format_args!(
                r#"{{"type":"queue-operation","operation":"dequeue","timestamp":"{at}","sessionId":"{id}"}}"#
            ));
            r#""promptSource":"sdk","turnOrigin":"sdk""#
        } else {
            r#""origin":{"kind":"human"},"promptSource":"typed""#
        };
        let turn = self.turn;
        self.line(format_args!(
            r#"{{"parentUuid":{parent},"isSidechain":false,"promptId":"{thread}","type":"user","message":{{"role":"user","content":"{prompt}"}},"uuid":"{uuid}","timestamp":"{at}","permissionMode":"default",{origin},"turnPosition":{{"promptIndex":0,"turnIndex":{turn}}},{common}}}"#
        ));
        if turn == 1 {
            self.context();
        }
    }

    /// The attachments and request records that follow the first prompt.
    fn context(&mut self) {
        let len = self.target.min(1_000);
        let environment = r#"{"type":"environment","snapshot":{"isWorktree":false,"isGitRepo":true,"additionalWorkingDirectories":[],"platform":"linux","shell":"bash"}}"#;
        self.attachment(environment, len / 3);
        self.attachment(
            r#"{"type":"skill_listing","skillCount":13,"isInitial":true,"names":["dataviz","update-config"]}"#,
            len,
        );
        self.attachment(r#"{"type":"date","date":"2026-11-15"}"#, 60);
        self.last_prompt();
        if self.snapshot_due {
            let (id, at, text, hash) = (self.id, self.at, self.text(12_000), self.rng.next());
            self.line(format_args!(
                r#"{{"type":"api-request-shape","sessionId":"{id}","shapeHash":"{hash:016x}","timestamp":"{at}","version":"2.1.325","shape":{{"system":[{{"type":"text","text":"You are a Claude agent."}}],"tools":[{{"name":"Agent","description":"{text}"}}]}}}}"#
            ));
        }
    }

    fn attachment(&mut self, what: &str, rendered: usize) {
        let (uuid, at, text) = (self.rng.uuid(), self.at, self.text(rendered));
        let parent = Link(self.parent.replace(uuid));
        let common = self.common;
        self.line(format_args!(
            r#"{{"parentUuid":{parent},"isSidechain":false,"attachment":{what},"type":"attachment","uuid":"{uuid}","timestamp":"{at}","rendered":[{{"content":"{text}"}}],"renderedRole":"system",{common}}}"#
        ));
    }

    /// The record of what was sent, once a file, after the first message of the model.
    fn snapshot(&mut self) {
        if self.current && std::mem::take(&mut self.snapshot_due) {
            let len = self.rng.range(12_000, 20_000) as usize;
            let text = self.text(len);
            let what = format!(r#"{{"type":"prompt_snapshot","systemPrompt":["{text}"],"tools":[]}}"#);
            self.attachment(&what, 1_500);
        }
    }

    fn message(&mut self) -> Message {
        if self.rng.chance(0.02) {
            self.model = self.rng.below(MODELS.len() as u64) as usize;
        }
        let usage = Spent {
            input: self.rng.range(1, 900),
            output: self.rng.range(1, 2_500),
            cache_read: self.rng.below(150_000),
            cache_write: self.rng.below(9_000),
        };
        self.spent[self.model].add(usage);
        self.request = self.rng.uuid();
        if self.current {
            let (id, at, request, model) = (self.id, self.at, self.request, MODELS[self.model]);
            let (digest, tail) = (self.rng.next(), self.rng.next());
            self.line(format_args!(
                r#"{{"type":"api-request","sessionId":"{id}","id":"{request}","timestamp":"{at}","version":"2.1.325","querySource":"sdk","shapeHash":"7cb367a6cf5c7255","params":{{"model":"{model}","betas":["claude-code-20250219","interleaved-thinking-2025-05-14"],"max_tokens":128000,"thinking":{{"type":"adaptive","display":"updates"}},"output_config":{{"effort":"medium"}}}},"keep":0,"tail":["{tail:016x}"],"requestDigest":"{digest:016x}"}}"#
            ));
        }
        Message { id: self.rng.uuid(), usage, block: 0 }
    }

    /// One content block of a message of the model, on a line of its own.
    fn block(&mut self, message: &mut Message, content: fmt::Arguments<'_>, stop: &str) {
        let (uuid, at) = (self.rng.uuid(), self.tick(200, 20_000));
        let parent = Link(self.parent.replace(uuid));
        let (model, short, request) = (MODELS[self.model], message.id, self.request);
        let (short, Spent { input, output, cache_read, cache_write }) = (short.short(23), message.usage);
        let common = self.common;
        if self.current {
            let block = message.block;
            self.line(format_args!(
                r#"{{"parentUuid":{parent},"isSidechain":false,"message":{{"id":"msg_{short}","type":"message","role":"assistant","model":"{model}","content":[{content}],"stop_reason":"{stop}","stop_sequence":null,"usage":{{"input_tokens":{input},"cache_creation_input_tokens":{cache_write},"cache_read_input_tokens":{cache_read},"output_tokens":{output},"output_tokens_details":{{"thinking_tokens":0}},"server_tool_use":{{"web_search_requests":0,"web_fetch_requests":0}},"service_tier":"standard","cache_creation":{{"ephemeral_1h_input_tokens":0,"ephemeral_5m_input_tokens":{cache_write}}},"inference_geo":"","iterations":[],"speed":"standard","fallback_credit":null}},"stop_details":null}},"apiBlockIndex":{block},"requestId":"req_{short}","requestRef":"{request}","requestedModel":"{model}","promptCacheRequested":"5m","type":"assistant","uuid":"{uuid}","timestamp":"{at}","effort":"medium","perTurnEffort":"medium","madeBy":"model",{common}}}"#
            ));
        } else {
            self.line(format_args!(
                r#"{{"parentUuid":{parent},{common},"message":{{"model":"{model}","id":"msg_{short}","type":"message","role":"assistant","content":[{content}],"stop_reason":null,"stop_sequence":null,"usage":{{"input_tokens":{input},"cache_creation_input_tokens":{cache_write},"cache_read_input_tokens":{cache_read},"cache_creation":{{"ephemeral_5m_input_tokens":{cache_write},"ephemeral_1h_input_tokens":0}},"output_tokens":{output},"service_tier":"standard"}}}},"requestId":"req_{short}","type":"assistant","uuid":"{uuid}","timestamp":"{at}"}}"#
            ));
        }
        message.block += 1;
    }

    fn use_tool(&mut self) {
        let mut message = self.message();
        if self.rng.chance(0.35) {
            let text = self.body(4_000);
            self.block(&mut message, format_args!(r#"{{"type":"text","text":"{text}"}}"#), "tool_use");
        }
        self.call = self.rng.uuid();
        let (call, name, text) = (self.call, self.rng.pick(&["Bash", "Read", "Edit", "Grep"]), self.body(1_500));
        let call = call.short(23);
        self.block(
            &mut message,
            format_args!(r#"{{"type":"tool_use","id":"toolu_{call}","name":"{name}","input":{{"command":"{text}","description":"x"}}}}"#),
            "tool_use",
        );
    }

    fn result(&mut self) {
        let (uuid, thread, at, text) = (self.rng.uuid(), self.rng.uuid(), self.tick(50, 30_000), self.body(60_000));
        let short = self.body(800);
        let before = Link(self.parent.replace(uuid));
        let (call, common) = (self.call, self.common);
        let call = call.short(23);
        if self.current {
            self.line(format_args!(
                r#"{{"parentUuid":{before},"isSidechain":false,"promptId":"{thread}","type":"user","message":{{"role":"user","content":[{{"tool_use_id":"toolu_{call}","type":"tool_result","content":"{text}","is_error":false}}]}},"uuid":"{uuid}","timestamp":"{at}","toolUseResult":{{"stdout":"{short}","stderr":"","interrupted":false,"isImage":false,"noOutputExpected":false}},"sandboxed":false,"sourceToolAssistantUUID":{before},{common}}}"#
            ));
        } else {
            self.line(format_args!(
                r#"{{"parentUuid":{before},{common},"type":"user","message":{{"role":"user","content":[{{"tool_use_id":"toolu_{call}","type":"tool_result","content":"{text}"}}]}},"uuid":"{uuid}","timestamp":"{at}","toolUseResult":{{"stdout":"{short}","stderr":"","interrupted":false}}}}"#
            ));
        }
        self.snapshot();
    }

    fn answer(&mut self) {
        let mut message = self.message();
        if self.current && self.rng.chance(0.3) {
            let text = self.body(1_000);
            self.block(
                &mut message,
                format_args!(r#"{{"type":"thinking","thinking":"{text}","signature":"c2ln"}}"#),
                "end_turn",
            );
        }
        let text = self.body(6_000);
        self.block(&mut message, format_args!(r#"{{"type":"text","text":"{text}"}}"#), "end_turn");
        self.snapshot();
    }

    /// What stands after a turn that is over.
    fn turn_over(&mut self) {
        if !self.current {
            return;
        }
        if !self.headless {
            let (uuid, at) = (self.rng.uuid(), self.at);
            let parent = Link(self.parent.replace(uuid));
            let common = self.common;
            self.line(format_args!(
                r#"{{"parentUuid":{parent},"isSidechain":false,"type":"system","subtype":"turn_duration","durationMs":15544,"messageCount":13,"timestamp":"{at}","uuid":"{uuid}","isMeta":false,{common}}}"#
            ));
        }
        self.last_prompt();
    }

    fn last_prompt(&mut self) {
        if !self.current {
            return;
        }
        let (id, prompt, leaf) = (self.id, self.prompt, Link(self.parent));
        self.line(format_args!(
            r#"{{"type":"last-prompt","lastPrompt":"{prompt}","leafUuid":{leaf},"sessionId":"{id}"}}"#
        ));
        if !self.headless {
            self.line(format_args!(r#"{{"type":"mode","mode":"normal","sessionId":"{id}"}}"#));
        }
        self.line(format_args!(r#"{{"type":"atis-latch","atis":"","sessionId":"{id}"}}"#));
    }

    /// The running totals that the program writes as it exits; 2.0.x had none.
    fn cost_state(&mut self) {
        if !self.current {
            return;
        }
        let models: Vec<String> = MODELS
            .iter()
            .zip(self.spent)
            .filter(|(_, spent)| *spent != Spent::default())
            .map(|(model, spent)| {
                let (Spent { input, output, cache_read, cache_write }, usd) = (spent, spent.cost());
                format!(
                    r#""{model}":{{"inputTokens":{input},"outputTokens":{output},"thinkingTokens":0,"cacheReadInputTokens":{cache_read},"cacheCreationInputTokens":{cache_write},"cacheCreationEphemeral5mInputTokens":0,"cacheCreationEphemeral1hInputTokens":0,"webSearchRequests":0,"costUSD":{usd}}}"#
                )
            })
            .collect();
        let (id, usd, models) = (self.id, cost(&self.spent), models.join(","));
        let start = self.began.0 - 400; // it goes on with the accounting of the runs before
        self.line(format_args!(
            r#"{{"type":"cost-state","sessionId":"{id}","totalCostUSD":{usd},"totalAPIDuration":8036,"totalAPIDurationWithoutRetries":8031,"totalToolDuration":0,"totalLinesAdded":0,"totalLinesRemoved":0,"totalDuration":8989,"startTime":{start},"modelUsage":{{{models}}},"hasUnknownModelCost":false}}"#
        ));
        self.counted = Some(Spent::total(&self.spent));
    }
}
