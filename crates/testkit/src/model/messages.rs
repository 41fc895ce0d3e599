//! Anthropic Messages: how a request is read and a reply is written on that wire.
//!
//! It decides nothing about what to reply; that is [`Script`](super::Script)'s.

use std::io;

use serde_json::{Value, json};

use super::{Api, Reply, Said, Turn, fresh_id, script, usage};

/// The shell tools of the agents that speak this: Claude Code's, Pi's, OpenClaw's.
const SHELLS: [&str; 3] = ["Bash", "bash", "exec"];

/// Finds the newest prompt and whether a tool's result came after it.
pub(super) fn read(body: &Value) -> Said {
    let tools: Vec<String> = body["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tool| tool["name"].as_str().map(str::to_owned))
        .collect();
    let mut said = Said { api: Api::Messages, main: shell(&tools).is_some(), tools, ..Said::default() };
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    for message in messages.iter().rev().filter(|m| m["role"] == "user") {
        if let Some(prompt) = newest(&message["content"], &mut said.tool_result) {
            said.prompt = prompt;
            break;
        }
    }
    said
}

/// The shell tool among those offered.
fn shell(tools: &[String]) -> Option<&str> {
    tools.iter().map(String::as_str).find(|tool| SHELLS.contains(tool))
}

/// The last thing said in this content; notes a tool's result that stands after it.
fn newest(content: &Value, tool_result: &mut bool) -> Option<String> {
    if let Some(text) = content.as_str() {
        return Some(script::spoken(text)).filter(|text| !text.is_empty());
    }
    for block in content.as_array()?.iter().rev() {
        match block["type"].as_str() {
            Some("tool_result") => *tool_result = true,
            Some("text") => {
                let text = script::spoken(block["text"].as_str().unwrap_or_default());
                if !text.is_empty() {
                    return Some(text);
                }
            }
            _ => {}
        }
    }
    None
}

/// Writes the reply, streamed or whole as the client asked.
pub(super) fn answer(turn: &mut Turn<'_>, body: &Value, said: &Said) -> io::Result<()> {
    let script = said.script();
    let streamed = body["stream"] == true;
    let blocks = blocks(&script.reply, body, said);
    if let Reply::Fail(code) = script.reply {
        if let Some(gate) = &script.hold {
            turn.hold(gate, None)?;
        }
        let error = json!({"type": "error", "error": {"type": error_kind(code),
            "message": "scripted failure"}});
        return turn.out.json(code, &error);
    }
    let calls = blocks.iter().any(|block| block["type"] == "tool_use");
    let stop = if calls { "tool_use" } else { "end_turn" };
    let message = |content: &[Value], stop: Value, output: u64| {
        json!({"id": fresh_id("msg"), "type": "message", "role": "assistant",
            "model": body["model"], "content": content, "stop_reason": stop, "stop_sequence": null,
            "usage": {"input_tokens": usage::INPUT,
                "cache_creation_input_tokens": usage::CACHE_WRITE,
                "cache_read_input_tokens": usage::CACHE_READ, "output_tokens": output}})
    };
    if !streamed {
        for gate in script.hold.iter().chain(&script.partial) {
            turn.hold(gate, None)?;
        }
        turn.sleep(script.sleep, None)?;
        return turn.out.json(200, &message(&blocks, json!(stop), usage::OUTPUT));
    }

    let ping = json!({"type": "ping"});
    turn.out.events()?;
    turn.out.event(&json!({"type": "message_start", "message": message(&[], Value::Null, 1)}))?;
    if let Some(gate) = &script.hold {
        turn.hold(gate, Some(&ping))?;
    }
    turn.sleep(script.sleep, Some(&ping))?;
    let mut partial = script.partial.as_deref();
    for (index, block) in blocks.iter().enumerate() {
        stream_block(turn, index, block, partial.take())?;
    }
    turn.out.event(&json!({"type": "message_delta",
        "delta": {"stop_reason": stop, "stop_sequence": null},
        "usage": {"output_tokens": usage::OUTPUT}}))?;
    turn.out.event(&json!({"type": "message_stop"}))
}

fn stream_block(turn: &mut Turn<'_>, index: usize, block: &Value, partial: Option<&str>) -> io::Result<()> {
    let mut start = block.clone();
    let deltas = if block["type"] == "text" {
        start["text"] = json!("");
        let text = block["text"].as_str().unwrap_or_default();
        let half = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
        let cut = if partial.is_some() { half } else { 0 };
        [&text[..cut], &text[cut..]].map(|part| json!({"type": "text_delta", "text": part}))
    } else {
        start["input"] = json!({});
        ["", &block["input"].to_string()].map(|part| json!({"type": "input_json_delta", "partial_json": part}))
    };
    let [first, second] = deltas.map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta}));
    turn.out.event(&json!({"type": "content_block_start", "index": index, "content_block": start}))?;
    if let Some(gate) = partial {
        turn.out.event(&first)?;
        turn.hold(gate, Some(&json!({"type": "ping"})))?;
    }
    turn.out.event(&second)?;
    turn.out.event(&json!({"type": "content_block_stop", "index": index}))
}

fn blocks(reply: &Reply, body: &Value, said: &Said) -> Vec<Value> {
    let text = |text: &str| json!({"type": "text", "text": text});
    let call =
        |name: &str, input: Value| json!({"type": "tool_use", "id": fresh_id("toolu"), "name": name, "input": input});
    let shell = shell(&said.tools).unwrap_or(SHELLS[0]);
    match reply {
        Reply::Shell(commands) => {
            let calls =
                commands.iter().map(|command| call(shell, json!({"command": command, "description": "scripted"})));
            std::iter::once(text("running")).chain(calls).collect()
        }
        Reply::BackgroundShell(command) => vec![
            text("running"),
            call(shell, json!({"command": command, "description": "scripted", "run_in_background": true})),
        ],
        Reply::Write(path) => {
            vec![call("Write", json!({"file_path": path, "content": "hello\n"}))]
        }
        Reply::Ask => vec![call(
            "AskUserQuestion",
            json!({"questions": [{"question": "Which colour?", "header": "Colour",
                "multiSelect": false, "options": [
                    {"label": "Red", "description": "the warm one"},
                    {"label": "Blue", "description": "the cold one"}]}]}),
        )],
        Reply::Plan => vec![call("ExitPlanMode", json!({"plan": "1. Look.\n2. Act."}))],
        Reply::Agent(prompt) => {
            let name = if said.tools.iter().any(|tool| tool == "Agent") { "Agent" } else { "Task" };
            vec![call(
                name,
                json!({"description": "scripted", "prompt": prompt,
                    "subagent_type": "general-purpose"}),
            )]
        }
        Reply::Call(name, input) => vec![call(name, input.clone())],
        Reply::Echo if !said.main && wants_title(body) => {
            vec![text(&json!({"title": "Scripted title"}).to_string())]
        }
        Reply::Echo | Reply::Fail(_) => vec![text(&said.text())],
    }
}

fn wants_title(body: &Value) -> bool {
    body["system"].to_string().to_lowercase().contains("title")
}

fn error_kind(code: u16) -> &'static str {
    match code {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    }
}
