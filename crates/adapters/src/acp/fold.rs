//! What the messages of a connection add up to.
//!
//! The owner writes one line for each thing that happens:
//!
//! | line | when |
//! |---|---|
//! | `{"at":…,"owner":{…}}` | it has started the agent; who it is |
//! | `{"at":…,"session":ID}` | the agent has taken the session up |
//! | `{"at":…,"to":MESSAGE}` | right before that goes to the agent |
//! | `{"at":…,"from":MESSAGE}` | when that has come from the agent |
//! | `{"at":…,"mail":NAME,…}` | what became of a prompt that somebody left |
//!
//! ```text
//!  session/prompt ──> Open ── its response: end_turn ──> Over, well
//!                       │                   cancelled ─> Over, aborted
//!                       │                   any other ─> Over, failed
//!                       └── an error for a response ───> Over, failed
//! ```
//!
//! A new owner has no turn open, whatever the last one left.

use serde::{Deserialize, Serialize};

use crate::json::{Doc, Keep, Value};
use crate::reader::Fold;

/// More calls than that are not kept at once.
const MOST: usize = 64;

/// The process that holds a connection.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields of sys::Identity")]
pub struct Owner {
    pub boot: String,
    pub pid: u32,
    pub start: u64,
    pub pidfd_inode: Option<u64>,
    pub namespace: Option<String>,
    pub machine: Option<String>,
}

/// How the last turn stands.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Stand {
    /// There was none.
    #[default]
    Never,
    /// Open.
    Open,
    /// Answered.
    Well,
    /// Ended in this error.
    Failed(String),
    /// Cancelled.
    Cancelled,
}

/// The fold of one session's messages.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named after what the lines say")]
pub struct Events {
    pub agent: Option<String>,
    pub owner: Option<Owner>,
    pub id: Option<String>,
    pub cwd: Option<String>,
    pub model: Option<String>,
    pub title: Option<String>,
    pub prompt: Option<String>,
    pub cost: Option<f64>,
    pub started: Option<i64>,
    pub updated: Option<i64>,
    pub stand: Stand,
    /// Since when the turn stands so.
    pub since: Option<i64>,
    /// The calls of the agent's tools that run, and what they are, the first one first.
    pub tools: Vec<(String, String)>,
    /// What it asks and was not answered: the request, what it is about, since when.
    pub asks: Vec<(String, String, Option<i64>)>,
    /// The request whose response ends the turn, while this owner waits for it.
    open: Option<u64>,
    /// This owner's agent has the session.
    pub up: bool,
}

impl Events {
    /// Whether a turn of this owner's is open.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    fn owned(&mut self, owner: Value<'_>) {
        let text = |key: &str| owner.get(key).some_str().map(str::to_owned);
        let number = |key: &str| owner.get(key).u64();
        let pid = number("pid").and_then(|p| u32::try_from(p).ok());
        let (Some(boot), Some(pid), Some(start)) = (text("boot"), pid, number("start")) else { return };
        let (namespace, machine) = (text("namespace"), text("machine"));
        self.owner = Some(Owner { boot, pid, start, pidfd_inode: number("pidfd_inode"), namespace, machine });
        self.agent = text("agent").or(self.agent.take());
        self.cwd = text("cwd").or(self.cwd.take());
        (self.open, self.up) = (None, false);
        self.tools.clear();
        self.asks.clear();
    }

    fn sent(&mut self, message: Value<'_>, at: Option<i64>) {
        match message.get("method").str() {
            Some("session/prompt") => {
                let prompt = message.get("params").get("prompt").items().find_map(|b| b.get("text").some_str());
                if self.prompt.is_none() {
                    self.prompt = prompt.map(str::to_owned);
                }
                self.open = message.get("id").u64();
                (self.stand, self.since) = (Stand::Open, at);
                self.tools.clear();
            }
            Some(_) => {}
            None => {
                let answered = key(message.get("id"));
                self.asks.retain(|(asked, ..)| Some(asked) != answered.as_ref());
            }
        }
    }

    fn came(&mut self, message: Value<'_>, at: Option<i64>) {
        match message.get("method").str() {
            Some("session/update") => self.update(message.get("params").get("update")),
            Some("session/request_permission") => {
                let call = message.get("params").get("toolCall");
                let what = call.get("title").some_str().or(call.get("kind").some_str()).unwrap_or("a tool");
                self.asks.extend(key(message.get("id")).map(|id| (id, what.to_owned(), at)));
            }
            // It does not want to know any more.
            Some("$/cancel_request") => {
                let taken_back = key(message.get("params").get("requestId"));
                self.asks.retain(|(asked, ..)| Some(asked) != taken_back.as_ref());
            }
            None if self.open.is_some() && message.get("id").u64() == self.open => {
                let error = message.get("error");
                self.stand = match message.get("result").get("stopReason").str() {
                    _ if error.exists() => {
                        Stand::Failed(error.get("message").str().unwrap_or("the turn failed").into())
                    }
                    Some("end_turn") => Stand::Well,
                    Some("cancelled") => Stand::Cancelled,
                    reason => Stand::Failed(format!("the turn ended with {}", reason.unwrap_or("no reason"))),
                };
                (self.open, self.since) = (None, at);
                self.tools.clear();
                self.asks.clear();
            }
            _ => {}
        }
    }

    /// A call that begins, goes on or is over. One that was over before it is told of never runs.
    fn call(&mut self, update: Value<'_>) {
        let id = update.get("toolCallId").str().unwrap_or("");
        let over = matches!(update.get("status").str(), Some("completed" | "failed"));
        let title = update.get("title").some_str();
        match self.tools.iter().position(|(running, _)| running == id) {
            Some(at) if over => drop(self.tools.remove(at)),
            Some(at) => {
                if let Some(title) = title {
                    title.clone_into(&mut self.tools[at].1);
                }
            }
            None if !over && update.get("sessionUpdate").str() == Some("tool_call") && self.tools.len() < MOST => {
                self.tools.push((id.to_owned(), title.unwrap_or("a tool").to_owned()));
            }
            None => {}
        }
    }

    fn update(&mut self, update: Value<'_>) {
        match update.get("sessionUpdate").str().unwrap_or("") {
            "tool_call" | "tool_call_update" => self.call(update),
            "session_info_update" => {
                self.title = update.get("title").some_str().map(str::to_owned).or(self.title.take())
            }
            "usage_update" => {
                let cost = update.get("cost"); // 0 where the agent knows no price
                let in_dollars = cost.get("currency").str() == Some("USD");
                self.cost = cost.get("amount").f64().filter(|c| in_dollars && *c > 0.0).or(self.cost);
            }
            _ => {}
        }
    }
}

/// A request's id as text: agents use numbers and strings.
fn key(id: Value<'_>) -> Option<String> {
    id.u64().map(|n| n.to_string()).or_else(|| id.str().map(|s| format!("\"{s}\"")))
}

const KEEP: Keep = |_, key| {
    matches!(
        key,
        b"at"
            | b"owner"
            | b"agent"
            | b"boot"
            | b"pid"
            | b"start"
            | b"pidfd_inode"
            | b"namespace"
            | b"machine"
            | b"cwd"
            | b"session"
            | b"model"
            | b"replay"
            | b"to"
            | b"from"
            | b"id"
            | b"method"
            | b"params"
            | b"prompt"
            | b"text"
            | b"result"
            | b"stopReason"
            | b"error"
            | b"message"
            | b"toolCall"
            | b"update"
            | b"sessionUpdate"
            | b"toolCallId"
            | b"title"
            | b"kind"
            | b"status"
            | b"cost"
            | b"amount"
            | b"currency"
            | b"requestId"
    )
};

impl Fold for Events {
    fn keeps(parent: &[u8], key: &[u8]) -> bool {
        KEEP(parent, key)
    }

    fn line(&mut self, line: Value<'_>) {
        let at = line.get("at").u64().map(u64::cast_signed);
        self.started = self.started.or(at);
        if line.get("owner").is_object() {
            self.owned(line.get("owner"));
        } else if let Some(id) = line.get("session").some_str() {
            (self.id, self.up) = (Some(id.to_owned()), true);
            if self.open.is_none() {
                self.since = at;
            }
            self.model = line.get("model").some_str().map(str::to_owned).or(self.model.take());
        } else if line.get("to").is_object() {
            self.sent(line.get("to"), at);
        } else if line.get("from").is_object() && !line.get("replay").is_true() {
            self.came(line.get("from"), at);
        }
        // An owner whose agent did not take the session up has changed nothing of it.
        if self.up {
            self.updated = self.updated.max(at);
        }
    }

    fn gap(&mut self) {}

    fn knows_head(&self) -> bool {
        false // it is always read whole
    }

    fn knows_tail(&self) -> bool {
        true
    }
}

/// The session that the owner's first line of output names.
pub fn id_in_line(line: &str) -> Option<String> {
    let doc = Doc::parse(line.as_bytes(), |_, key| key == b"session", 1024).ok()?;
    doc.root().get("session").some_str().map(str::to_owned)
}

/// Whether the last lines tell that the agent of this owner has this session.
pub fn has_taken_up(last: &[u8], native_id: &str, pid: u32) -> bool {
    let mut events = Events::default();
    for line in last.split(|b| *b == b'\n') {
        if let Ok(doc) = Doc::parse(line, KEEP, 1024) {
            events.line(doc.root());
        }
    }
    events.up && events.id.as_deref() == Some(native_id) && events.owner.is_some_and(|o| o.pid == pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_takes_back_is_asked_no_more() {
        let mut events = Events::default();
        let mut hear = |message: &str| {
            let line = format!(r#"{{"at":1,"from":{{{message}}}}}"#);
            events.line(Doc::parse(line.as_bytes(), Events::keeps, 600).expect("JSON").root());
            events.asks.iter().map(|(id, ..)| id.clone()).collect::<Vec<_>>().join(" ")
        };
        let mut asks = |id: &str| hear(&format!(r#""id":{id},"method":"session/request_permission","params":{{}}"#));
        assert_eq!((asks("1").as_str(), asks("\"a\"").as_str()), ("1", "1 \"a\""));
        let mut takes_back = |id: &str| hear(&format!(r#""method":"$/cancel_request","params":{{"requestId":{id}}}"#));
        assert_eq!(takes_back("7"), "1 \"a\"");
        assert_eq!(takes_back("1"), "\"a\"");
        assert_eq!(takes_back("\"a\""), "");
    }

    #[test]
    fn of_several_calls_the_first_that_still_runs_is_told() {
        let mut events = Events::default();
        let mut hear = |update: &str| {
            let line = format!(r#"{{"at":1,"from":{{"method":"session/update","params":{{"update":{{{update}}}}}}}}}"#);
            let doc = Doc::parse(line.as_bytes(), Events::keeps, 600).expect("JSON");
            events.line(doc.root());
            events.tools.first().map(|(_, title)| title.clone())
        };
        let call =
            |id: &str, more: &str| format!(r#""sessionUpdate":"tool_call","toolCallId":"{id}","title":"{id}"{more}"#);
        let goes = |id: &str, more: &str| format!(r#""sessionUpdate":"tool_call_update","toolCallId":"{id}",{more}"#);
        assert_eq!(hear(&call("one", "")).as_deref(), Some("one"));
        assert_eq!(hear(&call("two", "")).as_deref(), Some("one"));
        assert_eq!(hear(&goes("one", r#""title":"first""#)).as_deref(), Some("first"));
        assert_eq!(hear(&goes("two", r#""status":"completed""#)).as_deref(), Some("first"));
        assert_eq!(hear(&goes("one", r#""status":"failed""#)), None);
        assert_eq!(hear(&call("past", r#","status":"completed""#)), None, "it was over before it was told of");
        assert_eq!(hear(&goes("past", r#""status":"in_progress""#)), None);
    }
}
