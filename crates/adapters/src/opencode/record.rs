//! What OpenCode records of a session, whichever way it is stored.
//!
//! Written for 1.18 and its database, lenient towards 1.1 and its JSON files:
//! messages and parts have the same shape in both. The newest message tells how
//! the last turn stands. A resumed session leaves an older unfinished message
//! unfinished for ever, so no other message is asked.

use std::path::PathBuf;

use lariat_core::Tokens;
use serde::{Deserialize, Serialize};

use crate::json::{Bad, Doc, Keep, Value};
use crate::needs::Need;
use crate::tool::Call;

/// No time that is stored is later: the end of the year 9999, in milliseconds.
const LATEST: i64 = 253_402_300_799_999;
/// A message that is older than its session by more than that was another session's.
const COPIED_MS: i64 = 1000;
/// More calls than that are not asked for at once.
pub const MOST: usize = 64;

/// How the last turn stands.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Stand {
    /// Nothing was asked yet.
    #[default]
    Never,
    /// Open.
    Open,
    /// Answered.
    Well,
    /// Ended in this error.
    Failed(String, Option<Need>),
    /// Ended by a person, so.
    Aborted(String),
    /// It could not be read.
    Unread(String),
}

/// One session as it is stored.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Stored {
    /// The id.
    pub id: String,
    /// Where it works.
    pub directory: Option<String>,
    /// What it is called.
    pub title: Option<String>,
    /// Provider and model.
    pub model: Option<String>,
    /// What was asked first.
    pub prompt: Option<String>,
    /// When it was made, in milliseconds since 1970.
    pub created: Option<i64>,
    /// When anything of it was last written.
    pub updated: i64,
    /// What it has used.
    pub tokens: Option<Tokens>,
    /// What that cost.
    pub cost: Option<f64>,
    /// How its last turn stands.
    pub stand: Stand,
    /// When the newest message was made.
    pub since: i64,
    /// Tools that run, or wait to.
    pub calls: Vec<Pending>,
    /// What was said last was asked by the second interface, of which the log tells nothing.
    pub second: bool,
    /// What of it could not be read.
    pub problem: Option<String>,
    /// Where it is stored.
    pub transcript: PathBuf,
}

/// A tool call without a result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pending {
    /// The call.
    pub call: Call,
    /// Whether the tool has said anything yet. A shell does as soon as it runs.
    pub begun: bool,
}

impl Stored {
    /// Whether its last turn is open.
    pub fn is_open(&self) -> bool {
        self.stand == Stand::Open
    }

    /// What a fork has copied is no turn of its own: nobody is at it, and what it lacked was lacking elsewhere.
    pub fn disown_copies(&mut self) {
        let copied = self.since > 0 && self.created.is_some_and(|made| self.since + COPIED_MS < made);
        if !copied {
            return;
        }
        self.stand = match std::mem::take(&mut self.stand) {
            Stand::Open => Stand::Well,
            Stand::Failed(error, _) => Stand::Failed(error, None),
            other => other,
        };
        if self.stand == Stand::Well {
            self.calls.clear();
        }
    }

    /// An answer that gave nothing was ended by a person.
    pub fn given_up(&mut self) {
        self.stand = Stand::Aborted("ended while its request was to be made again".into());
    }

    /// Takes in what a part of the newest message shows of an open turn.
    pub fn take(&mut self, part: Value<'_>) {
        if let Some(how) = refused(part) {
            self.stand = Stand::Aborted(how);
        }
        self.calls.extend(pending(part).filter(|_| self.calls.len() < MOST));
    }
}

const MESSAGE: Keep = |parent, key| match parent {
    b"" => matches!(
        key,
        b"id" | b"role" | b"time" | b"error" | b"finish" | b"tokens" | b"cost" | b"modelID" | b"providerID" | b"path"
    ),
    b"path" => key == b"cwd",
    b"time" => matches!(key, b"created" | b"completed"),
    b"error" => matches!(key, b"name" | b"data"),
    b"data" => matches!(key, b"message" | b"statusCode"),
    b"tokens" => matches!(key, b"total" | b"input" | b"output" | b"reasoning" | b"cache"),
    b"cache" => matches!(key, b"read" | b"write"),
    _ => false,
};

const PART: Keep = |parent, key| match parent {
    b"" => {
        matches!(key, b"id" | b"type" | b"text" | b"synthetic" | b"ignored" | b"tool" | b"callID" | b"state" | b"time")
    }
    b"state" => matches!(key, b"status" | b"input" | b"metadata" | b"time" | b"error" | b"output"),
    b"time" => matches!(key, b"start" | b"end"),
    b"input" | b"questions" => true,
    _ => false,
};

/// A time as it is stored, whatever number that is.
pub fn moment(stored: i64) -> i64 {
    stored.clamp(0, LATEST)
}

/// A time of a message or a part.
pub fn moment_of(stored: Value<'_>) -> Option<i64> {
    stored.u64().map(|t| moment(i64::try_from(t).unwrap_or(i64::MAX)))
}

/// A message.
pub fn message(json: &[u8]) -> Result<Doc, String> {
    parse(json, MESSAGE, 2000).map_err(|_| "a message is not JSON".to_owned())
}

/// A part of a message, with its text up to `limit` bytes.
pub fn part(json: &[u8], limit: usize) -> Result<Doc, String> {
    parse(json, PART, limit).map_err(|_| "a part is not JSON".to_owned())
}

/// Parses one value; files have it on many lines, which only blanks can cause.
pub fn parse(json: &[u8], keep: Keep, limit: usize) -> Result<Doc, Bad> {
    if !json.contains(&b'\n') {
        return Doc::parse(json, keep, limit);
    }
    let one_line: Vec<u8> = json.iter().map(|b| if *b == b'\n' { b' ' } else { *b }).collect();
    Doc::parse(&one_line, keep, limit)
}

/// How the turn of the newest message stands.
pub fn stand(message: Value<'_>) -> Stand {
    match message.get("role").str() {
        Some("user") => return Stand::Open,
        Some("assistant") => {}
        _ => return Stand::Unread("a message says neither user nor assistant".into()),
    }
    let error = message.get("error");
    if error.exists() {
        let name = error.get("name").some_str().unwrap_or("error");
        return match name {
            "MessageAbortedError" => Stand::Aborted("turn aborted".into()),
            _ => {
                let data = error.get("data");
                let refused = (name == "ProviderAuthError").then_some(Need::Login);
                let need = refused.or_else(|| Need::of_http(data.get("statusCode").u64()?));
                Stand::Failed(data.get("message").some_str().unwrap_or(name).to_owned(), need)
            }
        };
    }
    let over = message.get("time").get("completed").exists();
    match message.get("finish").str() {
        // A step that called a tool is followed by the next step.
        Some("tool-calls" | "unknown") => Stand::Open,
        _ if over => Stand::Well,
        _ => Stand::Open,
    }
}

/// How a turn stands that ends with a message of a person's, by the newest of the agent's: what was queued is not taken
/// up after an error, nor after a person has ended what went before.
pub fn stand_behind(asked: i64, answer: Value<'_>) -> Option<Stand> {
    let ended = moment_of(answer.get("time").get("completed"));
    let ended = answer.get("error").exists() && ended.is_some_and(|at| at >= asked);
    ended.then(|| stand(answer))
}

/// Whether an answer has an end, of which neither a step nor an error tells. That is so of commands that a person ran;
/// and where nothing was given, a person ended it while a failed request was about to be made again.
pub fn ends_without_a_word(message: Value<'_>) -> bool {
    let has = |key: &str| message.get(key).exists();
    message.get("role").str() == Some("assistant")
        && message.get("time").get("completed").exists()
        && !has("finish")
        && !has("error")
}

/// Whether a part is something that an answer gives.
pub fn gives(part: Value<'_>) -> bool {
    !matches!(part.get("type").str(), None | Some("step-start" | "retry" | "snapshot"))
}

/// The call of a part that has no result yet.
fn pending(part: Value<'_>) -> Option<Pending> {
    let state = part.get("state");
    let open =
        part.get("type").str() == Some("tool") && matches!(state.get("status").str(), Some("running" | "pending"));
    open.then(|| Pending {
        call: Call::new(
            part.get("callID").str().unwrap_or(""),
            part.get("tool").some_str().unwrap_or("tool"),
            state.get("input"),
            moment_of(state.get("time").get("start")),
        ),
        begun: state.get("metadata").exists(),
    })
}

/// A call that a person refused. That ends the turn, although the step that made
/// the call reads as if another would follow.
fn refused(part: Value<'_>) -> Option<String> {
    let state = part.get("state");
    let what = match state.get("error").str()? {
        "The user rejected permission to use this specific tool call." => "permission",
        "The user dismissed this question" => "question",
        // A sub-agent that a command began: the message around it reads as if it had ended by itself.
        "Cancelled" => "cancelled",
        _ => return None,
    };
    let call = Call::new("", part.get("tool").some_str().unwrap_or("tool"), state.get("input"), None);
    let rejected = if what == "cancelled" { "" } else { " rejected" };
    Some(format!("{what}{rejected}: {}", call.told()))
}

/// What a person wrote in a part; OpenCode adds parts of its own.
pub fn spoken(part: Value<'_>) -> Option<&str> {
    let said =
        part.get("type").str() == Some("text") && !part.get("synthetic").is_true() && !part.get("ignored").is_true();
    part.get("text").some_str().filter(|_| said).map(|t| unquoted(t.trim())).filter(|t| !t.is_empty())
}

/// What was said, without the quotes that `run` puts around an argument that holds a blank.
fn unquoted(text: &str) -> &str {
    let within = text.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
    within.filter(|t| t.contains(' ') && !t.contains('"')).unwrap_or(text)
}

/// Title, unless it is the one that every session starts with.
pub fn title(title: Option<String>) -> Option<String> {
    let made = |t: &str| t.starts_with("New session - ") || t.starts_with("Child session - ");
    title.filter(|t| !t.is_empty() && !made(t))
}

/// Sums are made of at most so many messages.
pub const COUNTED: usize = 400;

/// What the messages of a session add up to, where nothing else tells that.
#[derive(Default)]
pub struct Sum {
    tokens: Tokens,
    cost: f64,
    /// Something of it is not known.
    lacks: bool,
    /// The model that answered last.
    pub model: Option<String>,
}

impl Sum {
    /// Takes in a message.
    pub fn add(&mut self, message: Value<'_>) {
        match message.get("role").str() {
            Some("assistant") => {}
            Some("user") => return,
            _ => return self.lack(), // it may be an answer
        }
        let provider = message.get("providerID").some_str();
        let model = message.get("modelID").some_str();
        let model = model.map(|m| provider.map_or_else(|| m.to_owned(), |p| format!("{p}/{m}")));
        match tokens(message.get("tokens")) {
            Some(tokens) => self.count(model, tokens, message.get("cost").f64()),
            None => {
                self.model = model;
                self.lack();
            }
        }
    }

    /// Takes in what an answer of this model used.
    pub fn count(&mut self, model: Option<String>, t: Tokens, cost: Option<f64>) {
        self.model = model;
        let sum = &mut self.tokens;
        sum.input = sum.input.saturating_add(t.input);
        sum.output = sum.output.saturating_add(t.output);
        sum.cache_read = sum.cache_read.saturating_add(t.cache_read);
        sum.cache_write = sum.cache_write.saturating_add(t.cache_write);
        self.cost += cost.unwrap_or(0.0);
    }

    /// The tokens, and what they cost, together with what is known besides.
    pub fn with(&self, other: Tokens, cost: Option<f64>) -> (Option<Tokens>, Option<f64>) {
        let mut all = Sum { tokens: self.tokens, cost: self.cost, lacks: self.lacks, model: None };
        all.count(None, other, cost);
        let (tokens, told) = all.told();
        // Of the one or the other the price may not be known.
        (tokens, told.filter(|_| cost.is_some() && self.told().1.is_some()))
    }

    /// Something could not be added.
    pub fn lack(&mut self) {
        self.lacks = true;
    }

    /// The tokens, and what they cost.
    pub fn told(&self) -> (Option<Tokens>, Option<f64>) {
        let tokens = (!self.lacks).then_some(self.tokens);
        (tokens, cost(tokens.map(|_| self.cost), tokens))
    }
}

/// What it cost. OpenCode writes 0 where it knows no price, too.
pub fn cost(cost: Option<f64>, tokens: Option<Tokens>) -> Option<f64> {
    let used = tokens.is_some_and(|t| [t.input, t.output, t.cache_read, t.cache_write].iter().any(|count| *count > 0));
    cost.filter(|c| c.is_finite() && *c >= 0.0 && (*c > 0.0 || !used))
}

/// Counts as OpenCode counts: what was read from the cache is no input. What was
/// spent on reasoning is output that the provider charges for. Older versions have
/// it in the output already; all of it together tells that.
pub fn tokens(of: Value<'_>) -> Option<Tokens> {
    let count = |v: Value<'_>| v.u64();
    let (input, output) = (count(of.get("input"))?, count(of.get("output"))?);
    let (cache_read, cache_write) = (count(of.get("cache").get("read"))?, count(of.get("cache").get("write"))?);
    let each = [output, cache_read, cache_write];
    let sum = each.into_iter().try_fold(input, u64::checked_add);
    let is_in = sum.is_some() && count(of.get("total")) == sum;
    let reasoning = count(of.get("reasoning")).filter(|_| !is_in).unwrap_or(0);
    Some(Tokens { input, output: output.saturating_add(reasoning), cache_read, cache_write })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stands(json: &str) -> Stand {
        stand(message(json.as_bytes()).expect("JSON").root())
    }

    #[test]
    fn the_newest_message_tells_how_the_turn_stands() {
        assert_eq!(stands(r#"{"role":"user","time":{"created":1}}"#), Stand::Open);
        assert_eq!(stands(r#"{"role":"assistant","time":{"created":1}}"#), Stand::Open);
        assert_eq!(
            stands(r#"{"role":"assistant","time":{"created":1,"completed":2},"finish":"tool-calls"}"#),
            Stand::Open
        );
        assert_eq!(stands(r#"{"role":"assistant","time":{"created":1,"completed":2},"finish":"stop"}"#), Stand::Well);
        let aborted = r#"{"role":"assistant","time":{"completed":2},"error":{"name":"MessageAbortedError","data":{}}}"#;
        assert_eq!(stands(aborted), Stand::Aborted("turn aborted".into()));
        let failed = r#"{"role":"assistant","error":{"name":"APIError","data":{"message":"no credit"}}}"#;
        assert_eq!(stands(failed), Stand::Failed("no credit".into(), None));
        let refused = r#"{"role":"assistant","error":{"name":"APIError","data":{"message":"who?","statusCode":401}}}"#;
        assert_eq!(stands(refused), Stand::Failed("who?".into(), Some(Need::Login)));
        assert!(matches!(stands(r#"{"role":"robot"}"#), Stand::Unread(_)));
    }

    #[test]
    fn the_quotes_of_an_argument_are_not_what_was_said() {
        let said = |text: &str| {
            let json = serde_json::json!({"type": "text", "text": text}).to_string();
            spoken(part(json.as_bytes(), 600).expect("JSON").root()).unwrap_or_default().to_owned()
        };
        assert_eq!(said("\"fix it\"\n"), "fix it");
        for whole in ["fix it", "\"word\"", "\"a b\" and \"c d\"", "\"say \\\"a b\\\" now\"", "\"fix it", "\"", "\"\""]
        {
            assert_eq!(said(whole), whole);
        }
    }

    #[test]
    fn a_message_that_may_be_an_answer_leaves_the_sum_open() {
        let answer = r#"{"role":"assistant","tokens":{"input":5,"output":1,"cache":{"read":0,"write":0}},"cost":1}"#;
        let summed = |other: &str| {
            let mut sum = Sum::default();
            [answer, other].iter().for_each(|json| sum.add(message(json.as_bytes()).expect("JSON").root()));
            sum.told().0.map(|t| t.input)
        };
        assert_eq!((summed(answer), summed(r#"{"role":"user"}"#)), (Some(10), Some(5)));
        for bad in ["null", "[]", "{}", r#"{"role":null}"#, &answer.replace("\"input\":5", "\"input\":\"5\"")] {
            assert_eq!(summed(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_call_without_a_result_is_pending() {
        let of = |json: &str| pending(part(json.as_bytes(), 600).expect("JSON").root());
        let waits = r#"{"type":"tool","tool":"bash","callID":"c","state":{"status":"running","input":{"command":"ls"},"time":{"start":5}}}"#;
        let waits = of(waits).expect("a call");
        assert_eq!((waits.call.told().as_str(), waits.call.at, waits.begun), ("bash ls", Some(5), false));
        let runs = r#"{"type":"tool","tool":"bash","state":{"status":"running","metadata":{"output":""},"input":{}}}"#;
        assert!(of(runs).expect("a call").begun);
        assert_eq!(of(r#"{"type":"tool","tool":"bash","state":{"status":"completed","input":{}}}"#), None);
        assert_eq!(of(r#"{"type":"text","text":"running"}"#), None);
    }

    #[test]
    fn a_refused_call_ends_the_turn() {
        let of = |error: &str| {
            let json = format!(
                r#"{{"type":"tool","tool":"bash","state":{{"status":"error","input":{{"command":"ls"}},"error":"{error}"}}}}"#
            );
            refused(part(json.as_bytes(), 600).expect("JSON").root())
        };
        let refused = of("The user rejected permission to use this specific tool call.");
        assert_eq!(refused.as_deref(), Some("permission rejected: bash ls"));
        assert_eq!(
            of("The user rejected permission to use this specific tool call with the following feedback: x"),
            None
        );
        assert_eq!(of("Cancelled").as_deref(), Some("cancelled: bash ls"));
    }

    #[test]
    fn what_was_spent_on_reasoning_is_counted_once() {
        let output = |counts: &str| {
            let json = format!(r#"{{"tokens":{{{counts},"cache":{{"read":300,"write":0}}}}}}"#);
            tokens(message(json.as_bytes()).expect("JSON").root().get("tokens")).expect("counts").output
        };
        assert_eq!(output(r#""total":427,"input":120,"output":5,"reasoning":2"#), 7, "beside the output");
        assert_eq!(output(r#""total":427,"input":120,"output":7,"reasoning":2"#), 7, "in it, before 1.15");
        assert_eq!(output(r#""input":120,"output":5,"reasoning":2"#), 7);
    }

    #[test]
    fn no_price_is_no_cost() {
        let used = Tokens { input: 1, output: 0, cache_read: 0, cache_write: 0 };
        assert_eq!(cost(Some(0.0), Some(used)), None);
        assert_eq!(cost(Some(0.0), Some(Tokens::default())), Some(0.0));
        assert_eq!(cost(Some(0.5), Some(used)), Some(0.5));
    }
}
