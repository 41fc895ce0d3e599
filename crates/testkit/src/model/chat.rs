//! OpenAI Chat Completions: how a request is read and a reply is written on that wire.
//!
//! It decides nothing about what to reply; that is [`Script`](super::Script)'s. Several agents
//! speak this API, each with tools of its own: what a call looks like follows the tools offered.

use std::io;

use serde_json::{Value, json};

use super::{Api, Reply, Said, Script, Turn, fresh_id, script, usage};

/// The shell tools of the agents that speak this API.
const SHELLS: [&str; 3] = ["bash", "shell", "run_shell_command"];

/// Finds the newest prompt and whether a tool's result came after it.
pub(super) fn read(body: &Value) -> Said {
    let offered = body["tools"].as_array().into_iter().flatten();
    let tools: Vec<String> = offered.filter_map(|t| t["function"]["name"].as_str().map(str::to_owned)).collect();
    let mut said = Said {
        api: Api::Chat,
        main: tools.iter().any(|tool| SHELLS.contains(&tool.as_str())),
        tools,
        ..Said::default()
    };
    for message in body["messages"].as_array().into_iter().flatten().rev() {
        match message["role"].as_str() {
            Some("tool") => said.tool_result = true,
            Some("user") => {
                if let Some(prompt) = newest(&message["content"]) {
                    said.prompt = prompt;
                    break;
                }
            }
            _ => {}
        }
    }
    said
}

fn newest(content: &Value) -> Option<String> {
    let spoken = |text: &str| Some(script::spoken(text)).filter(|text| !text.is_empty());
    match content {
        Value::String(text) => spoken(text),
        _ => content.as_array()?.iter().rev().find_map(|part| spoken(part["text"].as_str()?)),
    }
}

/// Writes the reply, streamed or whole as the client asked.
pub(super) fn answer(turn: &mut Turn<'_>, body: &Value, said: &Said) -> io::Result<()> {
    let script = said.script();
    if let Reply::Fail(code) = script.reply {
        if let Some(gate) = &script.hold {
            turn.hold(gate, None)?;
        }
        // Agents ask again when it is the server's fault.
        let kind = if code < 500 { "invalid_request_error" } else { "server_error" };
        let error = json!({"error": {"type": kind, "message": "scripted failure", "code": null}});
        return turn.out.json(code, &error);
    }
    let (text, calls) = content(&script, body, said);
    let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
    let id = fresh_id("chatcmpl");
    let spent = json!({"prompt_tokens": usage::RESPONSES_INPUT, "completion_tokens": usage::OUTPUT,
        "total_tokens": usage::RESPONSES_INPUT + usage::OUTPUT,
        "prompt_tokens_details": {"cached_tokens": usage::CACHE_READ},
        "completion_tokens_details": {"reasoning_tokens": usage::RESPONSES_REASONING}});
    if body["stream"] != true {
        for gate in script.hold.iter().chain(&script.partial) {
            turn.hold(gate, None)?;
        }
        turn.sleep(script.sleep, None)?;
        let mut message = json!({"role": "assistant", "content": text});
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        let choice = json!({"index": 0, "message": message, "finish_reason": finish});
        return turn.out.json(
            200,
            &json!({"id": id, "object": "chat.completion", "created": 1, "model": body["model"],
                "choices": [choice], "usage": spent}),
        );
    }

    let chunk = |choices: Value| {
        json!({"id": id, "object": "chat.completion.chunk", "created": 1, "model": body["model"],
            "choices": choices})
    };
    let delta = |delta: Value, finish: Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": finish}]));
    let ping = delta(json!({}), Value::Null);
    turn.out.events()?;
    turn.out.event(&delta(json!({"role": "assistant", "content": ""}), Value::Null))?;
    if let Some(gate) = &script.hold {
        turn.hold(gate, Some(&ping))?;
    }
    turn.sleep(script.sleep, Some(&ping))?;
    let half = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
    if let Some(gate) = &script.partial {
        turn.out.event(&delta(json!({"content": text[..half]}), Value::Null))?;
        turn.hold(gate, Some(&ping))?;
        turn.out.event(&delta(json!({"content": text[half..]}), Value::Null))?;
    } else if !text.is_empty() {
        turn.out.event(&delta(json!({"content": text}), Value::Null))?;
    }
    for (index, call) in calls.iter().enumerate() {
        let mut call = call.clone();
        call["index"] = json!(index);
        turn.out.event(&delta(json!({"tool_calls": [call]}), Value::Null))?;
    }
    turn.out.event(&delta(json!({}), json!(finish)))?;
    let mut last = chunk(json!([]));
    last["usage"] = spent;
    turn.out.event(&last)?;
    turn.out.done()
}

/// The text of a reply and the tools it calls.
fn content(script: &Script, body: &Value, said: &Said) -> (String, Vec<Value>) {
    let offered = |name: &str| said.tools.iter().any(|tool| tool == name);
    let call = |name: &str, arguments: &Value| {
        json!({"id": fresh_id("call"), "type": "function",
            "function": {"name": name, "arguments": arguments.to_string()}})
    };
    let shell = |command: &str| {
        let name = SHELLS.into_iter().find(|name| offered(name)).unwrap_or("bash");
        call(name, &json!({"command": command, "description": "scripted"}))
    };
    let question = json!({"question": "Which colour?", "header": "Colour", "options": [
        {"label": "Red", "description": "the warm one"},
        {"label": "Blue", "description": "the cold one"}]});
    let calls = match &script.reply {
        Reply::Shell(commands) => commands.iter().map(|command| shell(command)).collect(),
        Reply::BackgroundShell(command) => vec![shell(&format!("({command}) & echo started"))],
        Reply::Write(path) => vec![call(
            "write",
            // Each agent reads the one of the two names that it knows.
            &json!({"filePath": path, "path": path, "content": "hello\n"}),
        )],
        Reply::Ask if offered("question") => vec![call("question", &json!({"questions": [question]}))],
        Reply::Agent(prompt) if offered("task") => {
            vec![call("task", &json!({"description": "scripted", "prompt": prompt, "subagent_type": "general"}))]
        }
        Reply::Call(name, input) => vec![call(name, input)],
        Reply::Echo if !said.main && wants_title(body) => return ("Scripted title".to_owned(), Vec::new()),
        _ => Vec::new(),
    };
    let text = if calls.is_empty() { said.text() } else { "running".to_owned() };
    (text, calls)
}

fn wants_title(body: &Value) -> bool {
    let messages = body["messages"].as_array().into_iter().flatten();
    let mut system = messages.filter(|m| matches!(m["role"].as_str(), Some("system" | "developer")));
    system.any(|m| m["content"].to_string().to_lowercase().contains("title"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_prompt_and_what_came_after_it() {
        let tools = json!([{"type": "function", "function": {"name": "bash"}}]);
        let mut body = json!({"tools": tools, "messages": [
            {"role": "system", "content": "You are x"},
            {"role": "user", "content": [{"type": "text", "text": "TOOL true"}]}]});
        let said = read(&body);
        assert_eq!((said.prompt.as_str(), said.main, said.tool_result), ("TOOL true", true, false));
        let messages = body["messages"].as_array_mut().expect("messages");
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": []}));
        messages.push(json!({"role": "tool", "tool_call_id": "x", "content": "done"}));
        let said = read(&body);
        assert_eq!((said.prompt.as_str(), said.main, said.tool_result), ("TOOL true", true, true));
    }

    #[test]
    fn a_request_without_a_shell_is_answered_plainly() {
        let body = json!({"messages": [{"role": "system", "content": "Make a title"},
            {"role": "user", "content": "FAIL 500"}]});
        let said = read(&body);
        assert!(!said.main);
        assert_eq!(content(&said.script(), &body, &said), ("Scripted title".to_owned(), Vec::new()));
    }
}
