//! The messages of a connection as a conversation.

use lariat_core::Time;

use crate::json::{Keep, Value};
use crate::talk::{Language, Said, Speaker};

/// Reads the owner's lines.
pub struct Lines;

impl Language for Lines {
    fn keep(&self) -> Keep {
        |parent, key| {
            parent == b"rawInput"
                || matches!(
                    key,
                    b"at"
                        | b"to"
                        | b"from"
                        | b"method"
                        | b"params"
                        | b"prompt"
                        | b"text"
                        | b"update"
                        | b"sessionUpdate"
                        | b"content"
                        | b"messageId"
                        | b"title"
                        | b"replay"
                        | b"toolCallId"
                        | b"rawInput"
                        | b"status"
                )
        }
    }

    fn said(&self, line: Value<'_>) -> Vec<Said> {
        let at = line.get("at").u64().map(|ms| Time(ms.cast_signed()));
        let asked = line.get("to");
        if asked.get("method").str() == Some("session/prompt") {
            let texts = asked.get("params").get("prompt").items().filter_map(|b| b.get("text").some_str());
            let text = texts.collect::<Vec<_>>().join("\n");
            return vec![Said::new(Speaker::Person, at, text)];
        }
        let update = line.get("from").get("params").get("update");
        let text = update.get("content").get("text").str().unwrap_or("");
        let chunk = |who| vec![Said::new(who, at, text).chunk_of(update.get("messageId").some_str())];
        match update.get("sessionUpdate").str() {
            Some("agent_message_chunk") if !text.is_empty() => chunk(Speaker::Agent),
            // What we asked ourselves is told above; only what was said before we came is news.
            Some("user_message_chunk") if !text.is_empty() && line.get("replay").is_true() => chunk(Speaker::Person),
            Some("tool_call") => {
                let name = update.get("title").str().unwrap_or("tool");
                let (id, input) = (update.get("toolCallId").str(), update.get("rawInput"));
                vec![Said::new(Speaker::Tool, at, name).calling(id, name, input).giving(given(update), failed(update))]
            }
            Some("tool_call_update") => {
                let id = update.get("toolCallId").str();
                id.map(|id| Said::result(id, given(update), failed(update))).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }
}

/// What a tool has given so far.
fn given(update: Value<'_>) -> Option<String> {
    let texts: Vec<&str> = update.get("content").items().filter_map(|c| c.get("content").get("text").str()).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

fn failed(update: Value<'_>) -> Option<bool> {
    match update.get("status").str()? {
        "failed" => Some(true),
        "completed" => Some(false),
        _ => None,
    }
}
