//! A Gemini conversation, for people to read.
//!
//! Messages are re-emitted as they grow: of each, the last form counts. What was taken back from the
//! conversation was said all the same, and stays.

use lariat_core::Time;

use crate::json::{Keep, Value};
use crate::talk::{Language, Said, Speaker};
use crate::tool::Call;

/// Reads Gemini's lines.
pub struct Lines;

impl Language for Lines {
    fn keep(&self) -> Keep {
        |parent, key| {
            matches!(parent, b"args" | b"response")
                || matches!(
                    key,
                    b"messages"
                        | b"id"
                        | b"timestamp"
                        | b"type"
                        | b"content"
                        | b"text"
                        | b"toolCalls"
                        | b"name"
                        | b"args"
                        | b"status"
                        | b"result"
                        | b"functionResponse"
                        | b"response"
                )
        }
    }

    /// A line is a message; the one document of an older version has all of them.
    fn said(&self, line: Value<'_>) -> Vec<Said> {
        if line.get("id").str().is_none() {
            return line.get("messages").items().flat_map(|message| self.said(message)).collect();
        }
        let Some(id) = line.get("id").str() else { return Vec::new() };
        let at = line.get("timestamp").str().and_then(Time::parse);
        let content = line.get("content");
        let parts = || content.items().filter_map(|p| p.get("text").some_str()).collect::<Vec<_>>().join("\n");
        let text = content.str().map_or_else(parts, str::to_owned);
        let who = match line.get("type").str() {
            Some("user") if !text.trim_start().starts_with("<session_context>") => Speaker::Person,
            Some("gemini") => Speaker::Agent,
            _ => return Vec::new(),
        };
        let said = (!text.trim().is_empty()).then(|| Said::new(who, at, text).instead_of(id));
        let calls = line.get("toolCalls").items().map(|call| {
            let name = call.get("name").str().unwrap_or("tool");
            let told = Call::new("", name, call.get("args"), None).told();
            let given = call.get("result").items().map(|r| r.get("functionResponse").get("response"));
            let texts = given.filter_map(|r| r.get("output").str().or_else(|| r.get("error").str()).map(str::to_owned));
            let texts: Vec<String> = texts.collect();
            let output = (!texts.is_empty()).then(|| texts.join("\n"));
            let failed = call.get("status").str().map(|s| s == "error");
            let said = Said::new(Speaker::Tool, at, told).instead_of(call.get("id").str().unwrap_or(id));
            said.calling(call.get("id").str(), name, call.get("args")).giving(output, failed)
        });
        said.into_iter().chain(calls).collect()
    }
}
