//! OpenAI Responses: how a request is read and a reply is written on that wire.
//!
//! It decides nothing about what to reply; that is [`Script`](super::Script)'s.

use std::io;

use serde_json::{Value, json};

use super::{Api, Reply, Said, Script, Turn, fresh_id, script, usage};

/// The shell tools, newest first, and how each takes a command.
const SHELLS: [&str; 3] = ["exec_command", "shell_command", "shell"];
/// The tool that takes a script, which calls the others.
const SCRIPTS: &str = "functions.exec";

/// Finds the newest prompt and whether a tool's result came after it.
pub(super) fn read(body: &Value) -> Said {
    let mut tools = Vec::new();
    let items = || body["input"].as_array().into_iter().flatten();
    let added = items().filter(|item| item["type"] == "additional_tools").map(|item| &item["tools"]);
    for tool in std::iter::once(&body["tools"]).chain(added).filter_map(Value::as_array).flatten() {
        let name = tool["name"].as_str().or(tool["type"].as_str()).unwrap_or_default();
        tools.push(name.to_owned());
        // A namespace holds tools of its own, shown here as `namespace.tool`.
        for inner in tool["tools"].as_array().into_iter().flatten() {
            tools.extend(inner["name"].as_str().map(|inner| format!("{name}.{inner}")));
        }
    }
    let mut said = Said {
        api: Api::Responses,
        main: tools.iter().any(|tool| SHELLS.contains(&tool.as_str()) || tool == SCRIPTS),
        tools,
        ..Said::default()
    };
    if let Some(prompt) = body["input"].as_str() {
        said.prompt = prompt.to_owned();
    }
    for item in items().rev() {
        let kind = item["type"].as_str().unwrap_or("message");
        if kind.ends_with("_call_output") {
            said.tool_result = true;
        } else if kind == "message"
            && item["role"] == "user"
            && let Some(prompt) = newest(&item["content"])
        {
            said.prompt = prompt;
            break;
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
        let error = json!({"error": {"type": "server_error", "message": "scripted failure",
            "code": null}});
        return turn.out.json(code, &error);
    }
    let items = items(&script, said);
    let id = fresh_id("resp");
    let whole = json!({"id": id, "object": "response", "status": "completed",
        "model": body["model"], "output": items, "usage": {
            "input_tokens": usage::RESPONSES_INPUT,
            "input_tokens_details": {"cached_tokens": usage::CACHE_READ},
            "output_tokens": usage::OUTPUT,
            "output_tokens_details": {"reasoning_tokens": usage::RESPONSES_REASONING},
            "total_tokens": usage::RESPONSES_INPUT + usage::OUTPUT}});
    if body["stream"] != true {
        for gate in script.hold.iter().chain(&script.partial) {
            turn.hold(gate, None)?;
        }
        turn.sleep(script.sleep, None)?;
        return turn.out.json(200, &whole);
    }

    let started = json!({"id": id, "object": "response", "status": "in_progress", "output": []});
    let ping = json!({"type": "response.in_progress", "response": started});
    turn.out.events()?;
    turn.out.event(&json!({"type": "response.created", "response": started}))?;
    if let Some(gate) = &script.hold {
        turn.hold(gate, Some(&ping))?;
    }
    turn.sleep(script.sleep, Some(&ping))?;
    let mut partial = script.partial.as_deref();
    for (index, item) in items.iter().enumerate() {
        stream_item(turn, index, item, partial.take(), &ping)?;
    }
    turn.out.event(&json!({"type": "response.completed", "response": whole}))
}

fn stream_item(turn: &mut Turn<'_>, index: usize, item: &Value, partial: Option<&str>, ping: &Value) -> io::Result<()> {
    let mut opening = item.clone();
    if item["type"] == "message" {
        opening["content"] = json!([]);
    } else {
        opening["arguments"] = json!("");
    }
    turn.out.event(&json!({"type": "response.output_item.added", "output_index": index,
        "item": opening}))?;
    if let Some(text) = item["content"][0]["text"].as_str() {
        let half = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
        let delta = |part: &str| {
            json!({"type": "response.output_text.delta", "item_id": item["id"],
                "output_index": index, "content_index": 0, "delta": part})
        };
        if let Some(gate) = partial {
            turn.out.event(&delta(&text[..half]))?;
            turn.hold(gate, Some(ping))?;
            turn.out.event(&delta(&text[half..]))?;
        } else {
            turn.out.event(&delta(text))?;
        }
    }
    turn.out.event(&json!({"type": "response.output_item.done", "output_index": index,
        "item": item}))
}

fn items(script: &Script, said: &Said) -> Vec<Value> {
    let offered = |name: &str| said.tools.iter().any(|tool| tool == name);
    let call = |name: &str, arguments: &Value| {
        let mut item = json!({"type": "function_call", "id": fresh_id("fc"),
            "call_id": fresh_id("call"), "name": name, "arguments": arguments.to_string(),
            "status": "completed"});
        if let Some((namespace, name)) = name.split_once('.') {
            item["namespace"] = json!(namespace);
            item["name"] = json!(name);
        }
        item
    };
    let scripted = offered(SCRIPTS);
    let shell = |command: &str| {
        let name = SHELLS.into_iter().find(|name| offered(name)).unwrap_or("shell");
        let mut arguments = match name {
            _ if scripted => json!({"cmd": command}),
            "exec_command" => json!({"cmd": command}),
            "shell_command" => json!({"command": command}),
            _ => json!({"command": ["bash", "-lc", command]}),
        };
        if script.escalate {
            arguments["sandbox_permissions"] = json!("require_escalated");
            arguments["justification"] = json!("scripted");
        }
        if scripted {
            let input = format!("text(await tools.exec_command({arguments}));");
            return json!({"type": "custom_tool_call", "id": fresh_id("ctc"), "call_id": fresh_id("call"),
                "name": "exec", "input": input, "status": "completed"});
        }
        call(name, &arguments)
    };
    let spawner = said.tools.iter().map(String::as_str).find(|tool| tool.ends_with("spawn_agent"));
    match &script.reply {
        Reply::Shell(commands) => commands.iter().map(|command| shell(command)).collect(),
        Reply::BackgroundShell(command) => vec![shell(&format!("({command}) & echo started"))],
        Reply::Write(path) => vec![shell(&format!("echo hello > {path}"))],
        Reply::Ask if offered("request_user_input") => vec![call(
            "request_user_input",
            &json!({"questions": [{"id": "colour", "header": "Colour",
                "question": "Which colour?", "options": [
                    {"label": "Red", "description": "the warm one"},
                    {"label": "Blue", "description": "the cold one"}]}]}),
        )],
        Reply::Agent(prompt) if spawner.is_some() => {
            vec![call(spawner.unwrap_or_default(), &json!({"message": prompt}))]
        }
        Reply::Call(name, input) => vec![call(name, input)],
        reply => {
            // Codex takes a plan from the text, while it is told to plan.
            let plan = "<proposed_plan>\n1. Look.\n2. Act.\n</proposed_plan>\n";
            let text = if *reply == Reply::Plan { plan.to_owned() } else { said.text() };
            let text = json!({"type": "output_text", "text": text, "annotations": []});
            vec![json!({"type": "message", "id": fresh_id("msg"), "role": "assistant",
                "status": "completed", "content": [text]})]
        }
    }
}
