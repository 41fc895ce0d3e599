//! Gemini's API: how a request is read and a reply is written on that wire.
//!
//! `POST …/models/MODEL:streamGenerateContent` is answered as server-sent events,
//! `:generateContent` as a whole. It decides nothing about what to reply; that is
//! [`Script`](super::Script)'s.

use std::io;

use serde_json::{Value, json};

use super::{Api, Reply, Said, Turn, script, usage};

/// The shell tool.
const SHELL: &str = "run_shell_command";

/// Finds the newest prompt and whether a tool's result came after it.
pub(super) fn read(body: &Value) -> Said {
    let declared = body["tools"].as_array().into_iter().flatten();
    let declared = declared.flat_map(|tool| tool["functionDeclarations"].as_array().into_iter().flatten());
    let tools: Vec<String> = declared.filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect();
    // Without leave to run commands the shell is not offered; a search always is.
    let main = tools.iter().any(|tool| tool == SHELL || tool == "grep_search");
    let mut said = Said { api: Api::Gemini, main, tools, ..Said::default() };
    let contents = body["contents"].as_array().map_or(&[][..], Vec::as_slice);
    for content in contents.iter().rev().filter(|c| c["role"] == "user") {
        if let Some(prompt) = newest(&content["parts"], &mut said.tool_result) {
            said.prompt = prompt;
            break;
        }
    }
    said
}

/// The last thing said in these parts; notes a tool's result that stands after it.
fn newest(parts: &Value, tool_result: &mut bool) -> Option<String> {
    for part in parts.as_array()?.iter().rev() {
        if part["functionResponse"].is_object() {
            *tool_result = true;
        }
        let text = script::spoken(part["text"].as_str().unwrap_or_default());
        if !text.is_empty() {
            return Some(text);
        }
    }
    None
}

/// Writes the reply, streamed or whole as the path says.
pub(super) fn answer(turn: &mut Turn<'_>, path: &str, body: &Value, said: &Said) -> io::Result<()> {
    let script = said.script();
    let parts = parts(&script.reply, body, said);
    if let Reply::Fail(code) = script.reply {
        if let Some(gate) = &script.hold {
            turn.hold(gate, None)?;
        }
        let error = json!({"error": {"code": code, "message": "scripted failure", "status": status(code)}});
        return turn.out.json(code, &error);
    }
    let reply = |parts: &[Value], finish: Value| {
        json!({"candidates": [{"index": 0, "finishReason": finish,
                "content": {"role": "model", "parts": parts}}],
            "usageMetadata": {"promptTokenCount": usage::RESPONSES_INPUT,
                "cachedContentTokenCount": usage::CACHE_READ, "candidatesTokenCount": usage::OUTPUT,
                "totalTokenCount": usage::RESPONSES_INPUT + usage::OUTPUT},
            "modelVersion": "gemini-scripted", "responseId": super::fresh_id("gen")})
    };
    if !path.ends_with(":streamGenerateContent") {
        for gate in script.hold.iter().chain(&script.partial) {
            turn.hold(gate, None)?;
        }
        turn.sleep(script.sleep, None)?;
        return turn.out.json(200, &reply(&parts, json!("STOP")));
    }
    turn.out.events()?;
    if let Some(gate) = &script.hold {
        turn.hold(gate, None)?;
    }
    turn.sleep(script.sleep, None)?;
    if let (Some(gate), Some(text)) = (&script.partial, parts[0]["text"].as_str()) {
        let half = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
        turn.out.event(&reply(&[json!({"text": text[..half]})], Value::Null))?;
        turn.hold(gate, None)?;
        return turn.out.event(&reply(&[json!({"text": text[half..]})], json!("STOP")));
    }
    turn.out.event(&reply(&parts, json!("STOP")))
}

fn parts(reply: &Reply, body: &Value, said: &Said) -> Vec<Value> {
    let text = |text: &str| json!({"text": text});
    let call = |name: &str, args: Value| json!({"functionCall": {"name": name, "args": args}});
    match reply {
        Reply::Shell(commands) => {
            let call = |command: &String| call(SHELL, json!({"command": command, "description": "scripted"}));
            std::iter::once(text("running")).chain(commands.iter().map(call)).collect()
        }
        Reply::Write(path) => vec![call("write_file", json!({"file_path": path, "content": "hello\n"}))],
        Reply::Call(name, args) => vec![call(name, args.clone())],
        // A side request that wants JSON gets an object that says nothing.
        Reply::Echo if !said.main && wants_json(body) => vec![text("{}")],
        _ => vec![text(&said.text())],
    }
}

fn wants_json(body: &Value) -> bool {
    body["generationConfig"]["responseMimeType"] == "application/json"
}

fn status(code: u16) -> &'static str {
    match code {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        _ => "INTERNAL",
    }
}
