//! Rollouts as Codex writes them.
//!
//! Four in five have the shape of 0.166 (ordinals, `task_started` and
//! `task_complete` around each turn, `token_usage_record`), one in five that of
//! 0.4x to 0.6x, which recorded no turn boundaries except an abort: there an
//! assistant's message at the end is a turn that is over, a call without output
//! one that is open, and a failure leaves no trace.

use std::fmt;
use std::io::Write;

use super::text::{Millis, Pool, Rng, Uuid, body_len};
use super::{Ending, Plan, Tokens, Written};

const MODEL: &str = "gpt-5.2-codex";

/// Writes one whole session to `out`.
pub fn write<'a>(plan: &Plan, pool: &'a Pool, mut rng: Rng, out: &mut Vec<u8>) -> Written<'a> {
    let current = rng.chance(0.8);
    let mut ending = Ending::draw(&mut rng);
    if !current && ending == Ending::Failed {
        ending = Ending::Done;
    }
    let mut session = Session {
        pool,
        out,
        id: plan.id,
        cwd: &plan.cwd,
        exec: rng.chance(0.5),
        current,
        target: plan.target,
        at: plan.start,
        ordinal: 0,
        turn: rng.uuid(),
        turn_from: plan.start,
        call: rng.uuid(),
        used: Used::default(),
        in_turn: Used::default(),
        last_used: Used::default(),
        recorded: false,
        rng,
    };
    session.open();
    session.turns();
    let how = session.end(ending);
    let Session { at, used, recorded, .. } = session;
    let tokens = recorded.then_some(Tokens {
        input: used.input,
        output: used.output,
        cache_read: used.cached,
        cache_write: current.then_some(0),
    });
    let family = if current { "0.166" } else { "0.4x" };
    Written { ending, shape: format!("{family} {how}"), tokens, cost_usd: None, last: at, typed: Vec::new() }
}

/// Tokens as Codex counts them: what was cached is part of the input.
#[derive(Clone, Copy, Default)]
struct Used {
    input: u64,
    cached: u64,
    output: u64,
    reasoning: u64,
}

impl Used {
    fn add(&mut self, other: Self) {
        self.input += other.input;
        self.cached += other.cached;
        self.output += other.output;
        self.reasoning += other.reasoning;
    }
}

/// One usage object; the older shape had no field for cache writes.
struct Usage(Used, bool);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Used { input, cached, output, reasoning } = self.0;
        let written = if self.1 { r#""cache_write_input_tokens":0,"# } else { "" };
        let total = input + output;
        write!(
            f,
            r#"{{"input_tokens":{input},"cached_input_tokens":{cached},{written}"output_tokens":{output},"reasoning_output_tokens":{reasoning},"total_tokens":{total}}}"#
        )
    }
}

struct Session<'a, 'o> {
    pool: &'a Pool,
    out: &'o mut Vec<u8>,
    rng: Rng,
    id: Uuid,
    cwd: &'o str,
    exec: bool,
    current: bool,
    target: usize,
    at: Millis,
    ordinal: u64,
    turn: Uuid,
    turn_from: Millis,
    call: Uuid,
    used: Used,
    in_turn: Used,
    last_used: Used,
    /// Whether any line says how many tokens were used.
    recorded: bool,
}

impl<'a> Session<'a, '_> {
    fn line(&mut self, kind: &str, payload: fmt::Arguments<'_>) {
        let at = self.at;
        // Writing to a vector does not fail.
        let _ = if self.current {
            let n = self.ordinal;
            self.ordinal += 1;
            writeln!(self.out, r#"{{"timestamp":"{at}","ordinal":{n},"type":"{kind}","payload":{payload}}}"#)
        } else {
            writeln!(self.out, r#"{{"timestamp":"{at}","type":"{kind}","payload":{payload}}}"#)
        };
    }

    fn event(&mut self, payload: fmt::Arguments<'_>) {
        self.line("event_msg", payload);
    }

    fn item(&mut self, payload: fmt::Arguments<'_>) {
        self.line("response_item", payload);
    }

    fn tick(&mut self, low: u64, high: u64) {
        self.at.0 += self.rng.range(low, high) as i64;
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
        let (id, cwd, at) = (self.id, self.cwd, self.at);
        // The instructions alone are longer than a head of 16 KB, unless the file is small.
        let len = (self.rng.range(14_000, 20_000) as usize).min(self.target / 3);
        let text = self.text(len);
        let source = if self.exec { "exec" } else { "cli" };
        let commit = self.rng.next();
        if self.current {
            let originator = if self.exec { "codex_exec" } else { "codex-tui" };
            let window = self.rng.uuid_at(at);
            self.line("session_meta", format_args!(
                r#"{{"session_id":"{id}","id":"{id}","timestamp":"{at}","cwd":"{cwd}","runtime_workspace_roots":["{cwd}"],"originator":"{originator}","cli_version":"0.166.0","source":"{source}","thread_source":"user","model_provider":"openai","base_instructions":{{"text":"{text}","provenance":{{"type":"model","model":"{MODEL}"}}}},"history_mode":"paginated","context_window":{{"window_id":"{window}"}},"git":{{"commit_hash":"{commit:040x}","branch":"main"}}}}"#
            ));
        } else {
            let minor = self.rng.range(40, 60);
            self.line("session_meta", format_args!(
                r#"{{"id":"{id}","timestamp":"{at}","cwd":"{cwd}","originator":"codex_cli_rs","cli_version":"0.{minor}.0","source":"{source}","model_provider":"openai","instructions":"{text}","git":{{"commit_hash":"{commit:040x}","branch":"main"}}}}"#
            ));
            self.item(format_args!(
                r#"{{"type":"message","role":"user","content":[{{"type":"input_text","text":"<environment_context>\n  <cwd>{cwd}</cwd>\n</environment_context>"}}]}}"#
            ));
        }
    }

    /// Turns until the file has its size; the last one is left open after a prompt.
    fn turns(&mut self) {
        loop {
            self.prompt();
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
            self.turn_over(None);
        }
    }

    fn prompt(&mut self) {
        self.tick(1_000, 60_000);
        let (id, cwd) = (self.id, self.cwd);
        let len = self.rng.range(20, 400) as usize;
        let prompt = self.text(len);
        let policy = if self.exec { "never" } else { "on-request" };
        if !self.current {
            self.event(format_args!(r#"{{"type":"user_message","message":"{prompt}","kind":"plain"}}"#));
            self.line("turn_context", format_args!(
                r#"{{"cwd":"{cwd}","approval_policy":"{policy}","sandbox_policy":{{"mode":"workspace-write","network_access":false}},"model":"gpt-5-codex","effort":"medium","summary":"auto"}}"#
            ));
            return;
        }
        self.turn = self.rng.uuid_at(self.at);
        (self.turn_from, self.in_turn) = (self.at, Used::default());
        let (turn, seconds, ms) = (self.turn, self.at.seconds(), self.at.0);
        let trigger = if self.exec { "exec" } else { "user" };
        self.event(format_args!(
            r#"{{"type":"task_started","turn_attribution":{{"turn_id":"{turn}","turn_trigger":"{trigger}","parent_turn_id":null,"initiating_agent_path":null,"root_turn_id":"{turn}"}},"turn_id":"{turn}","root_turn_id":"{turn}","started_at":{seconds},"model_context_window":258400,"collaboration_mode_kind":"default"}}"#
        ));
        if self.ordinal == 2 {
            let (item, text) = (self.rng.uuid_at(self.at), self.text(900));
            self.item(format_args!(
                r#"{{"type":"message","id":"msg_{item}","role":"developer","content":[{{"type":"input_text","text":"{text}"}}],"internal_chat_message_metadata_passthrough":{{"turn_id":"{turn}","content_item_kinds":["permissions.instructions"]}}}}"#
            ));
            self.item(format_args!(
                r#"{{"type":"message","id":"msg_{item}","role":"user","content":[{{"type":"input_text","text":"<environment_context>\n  <cwd>{cwd}</cwd>\n</environment_context>"}}],"internal_chat_message_metadata_passthrough":{{"turn_id":"{turn}","content_item_kinds":["environments.environment_context"]}}}}"#
            ));
        }
        self.line("turn_context", format_args!(
            r#"{{"turn_id":"{turn}","root_turn_id":"{turn}","disabled_plugin_ids":[],"cwd":"{cwd}","approval_policy":"{policy}","approvals_reviewer":"user","sandbox_policy":{{"type":"workspace-write","network_access":false,"exclude_tmpdir_env_var":false,"exclude_slash_tmp":false}},"model":"{MODEL}","collaboration_mode":{{"mode":"default","settings":{{"model":"{MODEL}","reasoning_effort":null,"developer_instructions":null}}}},"multi_agent_version":"v1","realtime_active":false,"summary":"none"}}"#
        ));
        let item = self.rng.uuid_at(self.at);
        self.item(format_args!(
            r#"{{"type":"message","id":"msg_{item}","role":"user","content":[{{"type":"input_text","text":"{prompt}"}}],"internal_chat_message_metadata_passthrough":{{"turn_id":"{turn}","content_item_kinds":["user.text"]}}}}"#
        ));
        self.event(format_args!(
            r#"{{"type":"item_completed","thread_id":"{id}","turn_id":"{turn}","item":{{"type":"UserMessage","id":"{item}","content":[{{"type":"text","text":"{prompt}","text_elements":[]}}]}},"started_at_ms":{ms},"completed_at_ms":{ms}}}"#
        ));
    }

    /// Counts one response of the model; the current shape records it at once.
    fn spend(&mut self) {
        let input = self.rng.range(100, 20_000);
        let output = self.rng.range(5, 1_500);
        let one = Used { input, cached: self.rng.below(input), output, reasoning: output / 2 };
        self.last_used = one;
        self.used.add(one);
        self.in_turn.add(one);
        self.recorded = true;
        if self.current {
            let (id, turn, response) = (self.id, self.turn, self.rng.uuid());
            let (usage, of_turn, of_thread) = (Usage(one, true), Usage(self.in_turn, true), Usage(self.used, true));
            self.line("token_usage_record", format_args!(
                r#"{{"thread_id":"{id}","turn_id":"{turn}","session_id":"{id}","root_turn_id":"{turn}","response_id":"resp_{response}","usage":{usage},"turn_token_usage":{of_turn},"thread_token_usage":{of_thread}}}"#
            ));
        }
    }

    fn token_count(&mut self) {
        if !self.recorded {
            self.event(format_args!(r#"{{"type":"token_count","info":null,"rate_limits":{{"limit_id":"codex","primary":null,"secondary":null}}}}"#));
            return;
        }
        let (total, last) = (Usage(self.used, self.current), Usage(self.last_used, self.current));
        self.event(format_args!(
            r#"{{"type":"token_count","info":{{"total_token_usage":{total},"last_token_usage":{last},"model_context_window":258400}},"rate_limits":{{"limit_id":"codex","primary":null,"secondary":null}}}}"#
        ));
    }

    fn use_tool(&mut self) {
        self.tick(500, 20_000);
        self.call = self.rng.uuid();
        let (call, turn, thought) = (self.call, self.turn, self.body(3_000));
        let call = call.short(18);
        if self.rng.chance(0.4) {
            self.item(format_args!(
                r#"{{"type":"reasoning","summary":[{{"type":"summary_text","text":"{thought}"}}],"content":null,"encrypted_content":"Z0FB"}}"#
            ));
        }
        if self.current {
            self.item(format_args!(
                r#"{{"type":"function_call","status":"completed","id":"fc_{call}","name":"exec_command","arguments":"{{\"cmd\": \"ls -la\"}}","call_id":"call_{call}","internal_chat_message_metadata_passthrough":{{"turn_id":"{turn}"}}}}"#
            ));
            self.spend();
        } else {
            self.item(format_args!(
                r#"{{"type":"function_call","name":"shell","arguments":"{{\"command\":[\"ls\"]}}","call_id":"call_{call}"}}"#
            ));
            self.spend();
            self.token_count();
        }
    }

    fn result(&mut self) {
        self.tick(50, 20_000);
        let (id, turn, call, cwd, text) = (self.id, self.turn, self.call, self.cwd, self.body(60_000));
        let call = call.short(18);
        if !self.current {
            self.item(format_args!(r#"{{"type":"function_call_output","call_id":"call_{call}","output":"{text}"}}"#));
            return;
        }
        let (short, ms) = (self.body(2_000), self.at.0);
        self.event(format_args!(
            r#"{{"type":"item_completed","thread_id":"{id}","turn_id":"{turn}","item":{{"type":"CommandExecution","id":"call_{call}","process_id":"72055","command":["/bin/bash","-lc","ls -la"],"cwd":"file://{cwd}","parsed_cmd":[{{"type":"unknown","cmd":"ls -la"}}],"source":"unified_exec_startup","status":"completed","aggregated_output":"{short}","exit_code":0,"duration":{{"secs":0,"nanos":168780}}}},"started_at_ms":{ms},"completed_at_ms":{ms}}}"#
        ));
        self.item(format_args!(
            r#"{{"type":"function_call_output","id":"fco_{call}","call_id":"call_{call}","output":"{text}","internal_chat_message_metadata_passthrough":{{"turn_id":"{turn}"}}}}"#
        ));
        self.token_count();
    }

    fn answer(&mut self) {
        self.tick(500, 20_000);
        let (id, turn, text, item, ms) = (self.id, self.turn, self.body(4_000), self.rng.uuid(), self.at.0);
        let item = item.short(18);
        if self.current {
            self.event(format_args!(
                r#"{{"type":"item_completed","thread_id":"{id}","turn_id":"{turn}","item":{{"type":"AgentMessage","id":"msg_{item}","content":[{{"type":"Text","text":"{text}"}}]}},"started_at_ms":{ms},"completed_at_ms":{ms}}}"#
            ));
            self.item(format_args!(
                r#"{{"type":"message","status":"completed","id":"msg_{item}","role":"assistant","content":[{{"type":"output_text","text":"{text}","annotations":[]}}],"internal_chat_message_metadata_passthrough":{{"turn_id":"{turn}"}}}}"#
            ));
        } else {
            self.event(format_args!(r#"{{"type":"agent_message","message":"{text}"}}"#));
            self.item(format_args!(
                r#"{{"type":"message","role":"assistant","content":[{{"type":"output_text","text":"{text}"}}]}}"#
            ));
        }
        self.spend();
        self.token_count();
    }

    /// The record that a turn is over; the older shape has none.
    fn turn_over(&mut self, error: Option<&str>) {
        if !self.current {
            return;
        }
        self.tick(5, 200);
        let (turn, from, to) = (self.turn, self.turn_from.seconds(), self.at.seconds());
        let took = self.at.0 - self.turn_from.0;
        let outcome = match error {
            Some(message) => {
                format!(r#""last_agent_message":null,"error":{{"message":"{message}","codex_error_info":"other"}}"#)
            }
            None => format!(r#""last_agent_message":"{}""#, self.text(120)),
        };
        self.event(format_args!(
            r#"{{"type":"task_complete","root_turn_id":"{turn}","turn_id":"{turn}",{outcome},"started_at":{from},"completed_at":{to},"duration_ms":{took}}}"#
        ));
    }

    /// Ends the turn that is open, and says how.
    fn end(&mut self, ending: Ending) -> &'static str {
        match ending {
            Ending::Done => {
                self.answer();
                self.turn_over(None);
                "answered"
            }
            Ending::Failed => {
                self.turn_over(Some("stream disconnected before completion"));
                "turn failed"
            }
            Ending::Stopped => self.end_stopped(),
            Ending::Open if self.current && self.rng.chance(0.3) => "killed after a prompt or a tool",
            Ending::Open => {
                self.use_tool();
                "killed in a tool"
            }
        }
    }

    fn end_stopped(&mut self) -> &'static str {
        if !self.current {
            self.event(format_args!(r#"{{"type":"turn_aborted","reason":"interrupted"}}"#));
            return "aborted";
        }
        self.token_count();
        self.tick(5, 200);
        let (id, cwd, turn, call, item) = (self.id, self.cwd, self.turn, self.call, self.rng.uuid());
        let (from, to, ms) = (self.turn_from.seconds(), self.at.seconds(), self.at.0);
        let took = ms - self.turn_from.0;
        self.item(format_args!(
            r#"{{"type":"message","id":"msg_{item}","role":"user","content":[{{"type":"input_text","text":"<turn_aborted>\nThe user interrupted the previous turn.\n</turn_aborted>"}}],"internal_chat_message_metadata_passthrough":{{"turn_id":"{turn}","content_item_kinds":["generic.turn_aborted"]}}}}"#
        ));
        self.event(format_args!(
            r#"{{"type":"turn_aborted","root_turn_id":"{turn}","turn_id":"{turn}","reason":"interrupted","started_at":{from},"completed_at":{to},"duration_ms":{took}}}"#
        ));
        if self.rng.chance(0.5) {
            return "aborted";
        }
        // The command that was cut off may report after the abort.
        let call = call.short(18);
        self.event(format_args!(
            r#"{{"type":"item_completed","thread_id":"{id}","turn_id":"{turn}","item":{{"type":"CommandExecution","id":"call_{call}","process_id":"86252","command":["/bin/bash","-lc","ls"],"cwd":"file://{cwd}","parsed_cmd":[],"source":"unified_exec_startup","status":"failed","aggregated_output":"","exit_code":-1,"duration":{{"secs":3,"nanos":0}}}},"started_at_ms":{ms},"completed_at_ms":{ms}}}"#
        ));
        "aborted in a tool"
    }
}
