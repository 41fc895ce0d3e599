//! A Pi session as a conversation.

use lariat_core::Time;

use crate::json::{Keep, Value};
use crate::talk::{Language, Said, Speaker};
use crate::tool::Call;

/// Reads Pi's lines.
pub struct Lines;

impl Language for Lines {
    fn keep(&self) -> Keep {
        |parent, key| {
            parent == b"arguments"
                || matches!(
                    key,
                    b"type"
                        | b"timestamp"
                        | b"message"
                        | b"role"
                        | b"content"
                        | b"text"
                        | b"name"
                        | b"arguments"
                        | b"id"
                        | b"toolCallId"
                        | b"isError"
                )
        }
    }

    fn said(&self, line: Value<'_>) -> Vec<Said> {
        if line.get("type").str() != Some("message") {
            return Vec::new();
        }
        let at = line.get("timestamp").str().and_then(Time::parse);
        let message = line.get("message");
        let content = message.get("content");
        let texts = || content.items().filter_map(|i| i.get("text").some_str()).collect::<Vec<_>>().join("\n");
        match message.get("role").str() {
            Some("user") => {
                let text = content.str().map_or_else(texts, str::to_owned);
                (!text.is_empty()).then(|| Said::new(Speaker::Person, at, text)).into_iter().collect()
            }
            Some("assistant") => {
                let text = texts();
                let said = (!text.is_empty()).then(|| Said::new(Speaker::Agent, at, text));
                let calls = content.items().filter(|b| b.get("type").str() == Some("toolCall")).map(|b| {
                    let name = b.get("name").str().unwrap_or("tool");
                    let call = Call::new("", name, b.get("arguments"), None);
                    Said::new(Speaker::Tool, at, call.told()).calling(b.get("id").str(), name, b.get("arguments"))
                });
                said.into_iter().chain(calls).collect()
            }
            Some("toolResult") => {
                let id = message.get("toolCallId").str();
                let failed = message.get("isError").bool();
                id.map(|id| Said::result(id, Some(texts()), failed)).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }
}
