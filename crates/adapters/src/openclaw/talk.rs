//! A conversation, as a gateway tells it.

use lariat_core::Time;
use serde_json::json;

use crate::json::Value;
use crate::openclaw::wire::{Line, Trouble};
use crate::talk::{Said, Speaker};
use crate::tool::gist;

/// The gateway gives at most so many messages at once.
pub const MOST: usize = 1000;

/// The last messages of a session, oldest first.
pub fn last(line: &mut Line<'_>, key: &str, messages: usize) -> Result<Vec<Said>, Trouble> {
    let params = json!({"sessionKey": key, "limit": messages.clamp(1, MOST)});
    line.call("chat.history", &params, self::messages)
}

/// What a history holds.
pub fn messages(history: Value<'_>) -> Vec<Said> {
    history.get("messages").items().flat_map(said).collect()
}

/// The id of the run that is open.
pub fn open_run(line: &mut Line<'_>, key: &str) -> Result<Option<String>, Trouble> {
    let params = json!({"sessionKey": key, "limit": 1});
    line.call("chat.history", &params, |history| history.get("inFlightRun").get("runId").some_str().map(str::to_owned))
}

fn said(message: Value<'_>) -> Vec<Said> {
    let at = message.get("timestamp").u64().and_then(|t| i64::try_from(t).ok()).map(Time);
    let who = match message.get("role").str() {
        Some("user") => Speaker::Person,
        Some("assistant") => Speaker::Agent,
        _ => return Vec::new(),
    };
    let content = message.get("content");
    let mut parts = Vec::new();
    let mut text: Vec<&str> = content.some_str().into_iter().collect();
    for part in content.items() {
        match part.get("type").str() {
            Some("text") => text.extend(part.get("text").some_str()),
            Some("toolCall" | "tool_use" | "toolUse") => {
                let name = part.get("name").str().unwrap_or("tool");
                parts.push(Said::new(Speaker::Tool, at, format!("{name} {}", gist(part.get("arguments")))));
            }
            _ => {}
        }
    }
    if !text.is_empty() {
        parts.insert(0, Said::new(who, at, text.join("\n")));
    }
    parts
}
