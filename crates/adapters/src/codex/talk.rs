//! A Codex rollout as a conversation.

use lariat_core::Time;

use crate::json::{Doc, Keep, Value};
use crate::talk::{Language, Said, Speaker};
use crate::tool::gist;

/// Reads Codex's lines.
pub struct Lines;

impl Language for Lines {
    fn keep(&self) -> Keep {
        |parent, key| {
            parent == b"action"
                || matches!(
                    key,
                    b"type"
                        | b"payload"
                        | b"timestamp"
                        | b"item"
                        | b"content"
                        | b"text"
                        | b"message"
                        | b"role"
                        | b"name"
                        | b"arguments"
                        | b"input"
                        | b"action"
                        | b"id"
                        | b"call_id"
                        | b"output"
                )
        }
    }

    fn said(&self, line: Value<'_>) -> Vec<Said> {
        let at = line.get("timestamp").str().and_then(Time::parse);
        let bare = !line.get("payload").exists(); // as the first versions wrote it
        let p = if bare { line } else { line.get("payload") };
        let said = match (line.get("type").str().filter(|_| !bare).or(Some("response_item")), p.get("type").str()) {
            (_, Some("message")) if bare && p.get("role").str() == Some("user") => {
                let text = all_text(p.get("content"));
                (!text.trim_start().starts_with('<')).then(|| Said::new(Speaker::Person, at, text))
            }
            // Both history modes write the agent's words as a response item too.
            (Some("response_item"), Some("message")) if p.get("role").str() == Some("assistant") => {
                let text = all_text(p.get("content"));
                (!text.is_empty()).then(|| Said::new(Speaker::Agent, at, text))
            }
            (Some("response_item"), Some("function_call" | "custom_tool_call" | "local_shell_call")) => {
                let name = p.get("name").some_str().unwrap_or("shell");
                let input =
                    p.get("arguments").some_str().and_then(|a| Doc::parse(a.as_bytes(), |_, _| true, 1 << 16).ok());
                let told = input.as_ref().map_or_else(|| gist(p.get("input")), |doc| gist(doc.root()));
                let given = input.as_ref().map_or_else(|| p.get("input"), |doc| doc.root());
                let given = if given.exists() { given } else { p.get("action") };
                Some(Said::new(Speaker::Tool, at, format!("{name} {told}")).calling(
                    p.get("call_id").str(),
                    name,
                    given,
                ))
            }
            (Some("response_item"), Some("function_call_output" | "custom_tool_call_output")) => {
                let output = p.get("output");
                let output = output.str().map_or_else(|| all_text(output.get("content")), str::to_owned);
                let failed = exit_code(&output).map(|code| code != 0);
                p.get("call_id").str().map(|id| Said::result(id, Some(output), failed))
            }
            (Some("event_msg"), Some("user_message")) => {
                p.get("message").some_str().map(|t| Said::new(Speaker::Person, at, t))
            }
            (Some("event_msg"), Some("item_completed")) if p.get("item").get("type").str() == Some("UserMessage") => {
                Some(Said::new(Speaker::Person, at, all_text(p.get("item").get("content"))))
            }
            _ => None,
        };
        said.into_iter().collect()
    }
}

fn all_text(content: Value<'_>) -> String {
    content.items().filter_map(|c| c.get("text").str()).collect::<Vec<_>>().join("\n")
}

/// The exit code that the text around a command's output tells.
fn exit_code(output: &str) -> Option<i64> {
    let told = ["Process exited with code ", "Exit code: ", "\"exit_code\":"];
    let head: String = output.chars().take(400).collect();
    let rest = told.iter().find_map(|t| head.split_once(t))?.1;
    rest.split(|c: char| !c.is_ascii_digit() && c != '-').next()?.parse().ok()
}
