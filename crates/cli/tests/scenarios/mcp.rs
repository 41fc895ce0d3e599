//! Another agent asks by the Model Context Protocol: it sees what is here, and is refused what a
//! person would be refused.

use lariat_testkit::{Child, DEADLINE, Lookalike, Sandbox, Stdin, wait_for};
use serde_json::{Value, json};

use crate::{
    asking::{id, lariat, list, through},
    claude_store::ClaudeStore,
};

/// A client on the other end.
struct Client {
    server: Child,
}

impl Client {
    fn start(sandbox: &Sandbox) -> Self {
        let server = sandbox.spawn(&lariat(sandbox, &["mcp"]).stdin(Stdin::Pipe));
        let client = Self { server };
        let hello =
            json!({"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
        let told = client.ask(1, "initialize", &hello);
        assert_eq!(told["result"]["protocolVersion"], "2025-03-26");
        client.server.write_line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        client
    }

    fn ask(&self, number: u64, method: &str, params: &Value) -> Value {
        self.server
            .write_line(&json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).to_string());
        self.answer(&json!(number))
    }

    /// The answer of that number.
    fn answer(&self, number: &Value) -> Value {
        wait_for("an answer", DEADLINE, || {
            let said = self.server.stdout();
            let whole = &said[..said.rfind('\n')?];
            whole
                .lines()
                .map(|l| serde_json::from_str::<Value>(l).expect("one object a line"))
                .find(|a| a["id"] == *number)
        })
    }

    fn call(&self, number: u64, tool: &str, arguments: &Value) -> Value {
        self.ask(number, "tools/call", &json!({"name": tool, "arguments": arguments}))["result"].clone()
    }
}

#[test]
fn it_lists_launches_waits_and_ends_with_the_same_refusals() {
    let sandbox = Sandbox::new("mcp");
    drop(Lookalike::program(&sandbox, "claude"));
    let claude = ClaudeStore::of(&sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    let entry = claude.register(&agent, &id(1)).says("busy");
    let talk = claude.session(&id(1)).asked("fix \u{1b}[2J it");
    let client = Client::start(&sandbox);
    let tools = client.ask(2, "tools/list", &json!({}))["result"]["tools"].clone();
    let names: Vec<&str> = tools.as_array().expect("tools").iter().filter_map(|t| t["name"].as_str()).collect();
    assert_eq!(names, ["list", "status", "explain", "peek", "launch", "send", "wait", "stop"]);
    assert_eq!(tools[1]["inputSchema"]["required"], json!(["target"]));
    let seen = client.call(3, "list", &json!({}));
    assert_eq!(seen["structuredContent"]["sessions"][0]["native_id"], json!(id(1)));
    assert!(!client.server.stdout().contains('\u{1b}'), "nothing in it acts");
    // One that waits holds up no other.
    let wait = json!({"name": "wait", "arguments": {"target": id(1), "until": "idle"}});
    client.server.write_line(&json!({"jsonrpc": "2.0", "id": "w", "method": "tools/call", "params": wait}).to_string());
    let status = client.call(4, "status", &json!({"target": id(1)}));
    assert_eq!(status["structuredContent"]["status"], "working");
    drop(talk.answered("done"));
    drop(entry.says("idle"));
    let waited = client.answer(&json!("w"));
    assert_eq!(waited["result"]["structuredContent"]["status"], "idle", "{waited}");
    // Refusals are answers that say why.
    let refused = client.call(5, "launch", &json!({"agent": "claude", "cwd": sandbox.work()}));
    assert_eq!(refused["isError"], true);
    assert!(refused["content"][0]["text"].as_str().expect("text").contains("works there"), "{refused}");
    let place = sandbox.project("other");
    let launched = client.call(6, "launch", &json!({"agent": "claude", "cwd": place}))["structuredContent"].clone();
    let native = launched["native_id"].as_str().expect("an id");
    let stopped = client.call(7, "stop", &json!({"target": native, "grace": "1s"}));
    assert_eq!(stopped["structuredContent"]["outcome"], "stopped", "{stopped}");
    let seen = list(&sandbox);
    assert_eq!(seen.session(native)["live"], json!(false), "{}", seen.session(native));
    agent.tell("ready");
    client.server.close_stdin();
    client.server.output(DEADLINE).expect_success();
}

#[test]
fn what_is_no_request_is_told_so_and_harms_nothing() {
    let sandbox = Sandbox::new("mcp-odd");
    let client = Client::start(&sandbox);
    client.server.write_line("{");
    assert_eq!(client.answer(&Value::Null)["error"]["code"], -32700);
    for (n, (method, params, code)) in [
        ("dance", json!({}), -32601),
        ("tools/call", json!({"name": "rm"}), -32602),
        ("tools/call", json!({"name": "stop", "arguments": {"target": "--all"}}), -32602),
        ("tools/call", json!({"name": "stop", "arguments": {}}), -32602),
        ("tools/call", json!({"name": "list", "arguments": {"target": "x"}}), -32602),
        ("tools/call", json!({"name": "list", "arguments": []}), -32602),
        ("tools/call", json!({"name": "launch", "arguments": {"agent": "claude", "cwd": "."}}), -32602),
    ]
    .into_iter()
    .enumerate()
    {
        let told = client.ask(100 + n as u64, method, &params);
        assert_eq!(told["error"]["code"], code, "{told}");
    }
    assert_eq!(client.call(200, "status", &json!({"target": "nobody"}))["isError"], true);
    client.server.write_line(r#"[{"jsonrpc":"2.0","id":300,"method":"ping"},{"jsonrpc":"2.0","method":"x"}]"#);
    client.server.wait_for_stdout("\"id\":300", DEADLINE);
}

#[test]
fn a_line_that_is_no_text_ends_nothing() {
    let sandbox = Sandbox::new("mcp-bytes");
    let ping = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
    let told = through(&sandbox, &format!("printf '\\377\\n%s\\n' '{ping}' | \"$@\""), &["mcp"]);
    let answers: Vec<Value> = told.stdout.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let codes: Vec<_> = answers.iter().map(|a| (&a["error"]["code"], &a["id"])).collect();
    assert_eq!(codes, [(&json!(-32700), &Value::Null), (&Value::Null, &json!(7))], "{told:?}");
}
