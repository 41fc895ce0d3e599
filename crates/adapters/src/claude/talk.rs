//! A Claude Code transcript as a conversation.

use lariat_core::Time;

use crate::json::{Keep, Value};
use crate::talk::{Language, Said, Speaker};
use crate::tool::Call;

/// Reads Claude Code's lines.
pub struct Lines;

impl Language for Lines {
    fn keep(&self) -> Keep {
        |parent, key| {
            matches!(parent, b"input" | b"questions" | b"options" | b"edits" | b"todos")
                || matches!(
                    key,
                    b"type"
                        | b"message"
                        | b"id"
                        | b"tool_use_id"
                        | b"is_error"
                        | b"content"
                        | b"text"
                        | b"name"
                        | b"input"
                        | b"timestamp"
                        | b"isMeta"
                        | b"isSidechain"
                        | b"isCompactSummary"
                        | b"promptSource"
                )
        }
    }

    fn said(&self, line: Value<'_>) -> Vec<Said> {
        if ["isMeta", "isSidechain", "isCompactSummary"].iter().any(|k| line.get(k).is_true()) {
            return Vec::new();
        }
        let at = line.get("timestamp").str().and_then(Time::parse);
        let message = line.get("message");
        let content = message.get("content");
        match line.get("type").str() {
            Some("user") => {
                let text = content.str().or_else(|| super::words::spoken(content));
                let prompt =
                    text.filter(|t| !t.trim_start().starts_with('<') && !t.starts_with("[Request interrupted"));
                let results = content.items().filter(|i| i.get("type").str() == Some("tool_result"));
                let results = results.filter_map(|i| {
                    let given = i.get("content");
                    let texts = || given.items().filter_map(|p| p.get("text").str()).collect::<Vec<_>>().join("\n");
                    let output = given.str().map_or_else(texts, str::to_owned);
                    Some(Said::result(i.get("tool_use_id").str()?, Some(output), Some(i.get("is_error").is_true())))
                });
                let command = text.and_then(typed_for_a_shell);
                let prompt = prompt.map(str::to_owned).or(command);
                prompt.map(|t| Said::new(Speaker::Person, at, t)).into_iter().chain(results).collect()
            }
            Some("assistant") => content.items().filter_map(|block| block_said(block, at, message.get("id"))).collect(),
            _ => Vec::new(),
        }
    }
}

/// A command for a shell, as a person types it.
fn typed_for_a_shell(text: &str) -> Option<String> {
    let command = text.trim().strip_prefix("<bash-input>")?.strip_suffix("</bash-input>")?;
    Some(format!("!{}", command.trim()))
}

fn block_said(block: Value<'_>, at: Option<Time>, message: Value<'_>) -> Option<Said> {
    match block.get("type").str()? {
        "text" => {
            let text = block.get("text").some_str()?;
            Some(Said::new(Speaker::Agent, at, text).part_of(message.str()))
        }
        "tool_use" => {
            let name = block.get("name").str().unwrap_or("tool");
            let call = Call::new("", name, block.get("input"), None);
            Some(Said::new(Speaker::Tool, at, call.told()).calling(block.get("id").str(), name, block.get("input")))
        }
        _ => None,
    }
}
