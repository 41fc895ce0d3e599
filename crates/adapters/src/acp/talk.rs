//! The messages of a connection as a conversation.

use lariat_core::Time;

use crate::json::{Keep, Value};
use crate::talk::{Language, Said, Speaker};

/// Reads the owner's lines.
pub struct Lines;

impl Language for Lines {
    fn keep(&self) -> Keep {
        |_, key| {
            matches!(
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
            Some("tool_call") => vec![Said::new(Speaker::Tool, at, update.get("title").str().unwrap_or("tool"))],
            _ => Vec::new(),
        }
    }
}
