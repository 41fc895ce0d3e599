//! What the page stands on: how a browser is let in, and a session's terminal on a WebSocket.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use lariat_testkit::{DEADLINE, Lookalike, Sandbox, Signal, put_program, wait_until};
use serde_json::{Value, json};
use tungstenite::client::IntoClientRequest as _;
use tungstenite::{Error, Message, WebSocket};

use crate::asking::ask;
use crate::http::Served;

/// What `lariat web` prints: the port and the secret.
fn web(sandbox: &Sandbox) -> (u16, String) {
    let told = ask(sandbox, &["web", "--json"]).json();
    let url = told["url"].as_str().expect("an address").to_owned();
    let (address, secret) = url.split_once("/#once=").expect("a secret behind the #");
    assert_eq!(address, format!("http://127.0.0.1:{}", told["port"]));
    (u16::try_from(told["port"].as_u64().expect("a port")).expect("a port"), secret.to_owned())
}

/// Tries to enter, without a token.
fn enter(port: u16, secret: &str) -> (u16, Value) {
    let body = json!({"once": secret}).to_string();
    let served = format!("Host: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}\r\n");
    let request = format!(
        "POST /v1/enter HTTP/1.1\r\n{served}Content-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("somebody listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a deadline");
    std::io::Write::write_all(&mut stream, request.as_bytes()).expect("it listens");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut stream, &mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
    (status, serde_json::from_str(body).expect("JSON"))
}

/// The files with secrets.
fn secrets(sandbox: &Sandbox) -> Vec<PathBuf> {
    let folder = sandbox.state_dir().join("lariat/web");
    let paths = fs::read_dir(folder).expect("the folder").map(|e| e.expect("an entry").path());
    paths.filter(|p| p.extension().is_some_and(|e| e == "once")).collect()
}

#[test]
fn a_browser_is_let_in_once_and_soon_or_not_at_all() {
    let sandbox = Sandbox::new("enter");
    let (port, secret) = web(&sandbox);
    let served = Served::running(&sandbox);
    let daemon = ask(&sandbox, &["daemon", "status", "--json"]).json()["pid"].clone();
    // Only we can read it, and nobody else can see it.
    let [file] = secrets(&sandbox).try_into().expect("one secret");
    for path in [file.clone(), file.with_extension("html")] {
        assert_eq!(fs::metadata(&path).expect("the file").permissions().mode() & 0o777, 0o600);
        assert!(fs::read_to_string(&path).expect("the file").contains(&secret));
    }
    let argv: Vec<String> = sandbox.processes().into_iter().flat_map(|p| p.argv).collect();
    assert!(!argv.iter().any(|a| a.contains(&secret)), "{argv:?}");
    // Guesses are refused, and slowly.
    for wrong in ["", "x", &secret[1..], &format!("{secret}x"), &"0".repeat(secret.len())] {
        let began = Instant::now();
        assert_eq!(enter(port, wrong).0, 401, "{wrong}");
        assert!(began.elapsed() >= Duration::from_millis(250));
    }
    // Of many who come at once with the right one, one is let in.
    let all: Vec<(u16, Value)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| enter(port, &secret))).collect();
        threads.into_iter().map(|t| t.join().expect("an answer")).collect()
    });
    let let_in: Vec<&Value> = all.iter().filter(|(status, _)| *status == 200).map(|(_, told)| told).collect();
    assert_eq!(let_in.len(), 1, "{all:?}");
    // What it gets is a pass, and not the token; the page that has it is told its key again.
    let pass = let_in[0]["token"].as_str().expect("a pass").to_owned();
    assert!(!let_in[0].to_string().contains(&served.token), "{:?}", let_in[0]);
    let asks = |method: &str, path: &str, pass: &str| {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n");
        served.say(&format!("{head}Authorization: Bearer {pass}\r\n\r\n"))
    };
    assert_eq!(asks("GET", "/v1/sessions", &pass).status, 200);
    let again: Value = serde_json::from_str(&asks("POST", "/v1/page", &pass).body).expect("JSON");
    assert_eq!(again, *let_in[0]);
    assert_eq!(asks("GET", "/v1/sessions", &format!("{pass}0")).status, 401);
    assert!(secrets(&sandbox).is_empty() && !file.with_extension("html").exists());
    assert_eq!(enter(port, &secret).0, 401);
    // One that is old, of the future, or readable by others is worth nothing.
    let age = |file: &PathBuf, at: SystemTime| fs::File::open(file).and_then(|f| f.set_modified(at)).expect("a time");
    let minutes = |n: u64| Duration::from_secs(60 * n);
    for spoil in [
        &(|f: &PathBuf| age(f, SystemTime::now() - minutes(2))) as &dyn Fn(&PathBuf),
        &|f| age(f, SystemTime::now() + minutes(1)),
        &|f| fs::set_permissions(f, fs::Permissions::from_mode(0o644)).expect("a mode"),
    ] {
        let (_, secret) = web(&sandbox);
        secrets(&sandbox).iter().for_each(spoil);
        assert_eq!(enter(port, &secret).0, 401);
    }
    let (_, first) = web(&sandbox);
    let (_, second) = web(&sandbox);
    assert_eq!((enter(port, &second).0, enter(port, &first).0), (200, 200), "two browsers at once");
    // A daemon that runs opens its door and goes on. What was made for the one before lets nobody in.
    let (_, unused) = web(&sandbox);
    ask(&sandbox, &["daemon", "restart"]).expect_success();
    let before = ask(&sandbox, &["daemon", "status", "--json"]).json();
    assert!(before["http"].is_null() && before["pid"] != daemon, "{before}");
    let (port, secret) = web(&sandbox);
    let after = ask(&sandbox, &["daemon", "status", "--json"]).json();
    assert_eq!((&after["pid"], &after["http"]), (&before["pid"], &json!(format!("http://127.0.0.1:{port}"))));
    assert_eq!(enter(port, &unused).0, 401);
    assert_eq!(enter(port, &secret).0, 200);
    let elsewhere = ask(&sandbox, &["web", "--port", "1"]);
    assert!(elsewhere.code() == 3 && elsewhere.stderr.contains("restart --http 1"), "{}", elsewhere.stderr);
    assert!(!ask(&sandbox, &["daemon", "logs"]).stdout.contains(&secret), "it is in no log");
}

#[test]
fn of_those_who_come_with_one_secret_at_the_same_moment_one_is_let_in() {
    let sandbox = Sandbox::new("enterrace");
    let (gate, passed) = (sandbox.root().join("gate"), sandbox.root().join("passed"));
    sandbox.run(["mkfifo", gate.to_str().expect("UTF-8")]).expect_success();
    sandbox.env("LARIAT_PAUSE_AT", "once.take");
    sandbox.env("LARIAT_PAUSE_ON", &gate);
    sandbox.env("LARIAT_POINTS", &passed);
    let (port, secret) = web(&sandbox);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(|| enter(port, &secret).0)).collect();
        wait_until("all have found it", DEADLINE, || {
            let said = fs::read_to_string(&passed).unwrap_or_default();
            said.lines().filter(|l| *l == "once.take").count() == 6
        });
        drop(fs::OpenOptions::new().write(true).open(&gate).expect("the gate"));
        threads.into_iter().map(|t| t.join().expect("an answer")).collect()
    });
    assert_eq!(statuses.iter().filter(|s| **s == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|s| **s == 401).count(), 5, "{statuses:?}");
}

#[test]
fn the_page_is_served_as_it_was_built() {
    let sandbox = Sandbox::new("page");
    let served = Served::start(&sandbox);
    let say = |path: &str| {
        let mut stream = served.connect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\r\n", served.port);
        std::io::Write::write_all(&mut stream, request.as_bytes()).expect("sent");
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut stream, &mut bytes).expect("an answer");
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4;
        (String::from_utf8_lossy(&bytes[..end]).into_owned(), bytes[end..].to_vec())
    };
    let (head, body) = say("/");
    for line in [
        "HTTP/1.1 200 OK",
        "Content-Type: text/html; charset=utf-8",
        "script-src 'self'; style-src 'self' 'unsafe-inline'",
        "frame-ancestors 'none'",
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-store",
    ] {
        assert!(head.contains(line), "{line}: {head}");
    }
    assert_eq!(head.contains("Content-Encoding: gzip"), body.starts_with(&[0x1f, 0x8b]), "{head}");
    for path in ["/assets/none.js", "/assets/..%2findex.html"] {
        assert!(say(path).0.starts_with("HTTP/1.1 404"), "{path}");
    }
}

/// A browser's end of a terminal.
struct Browser {
    socket: WebSocket<TcpStream>,
    seen: Vec<u8>,
    told: Vec<Value>,
}

impl Browser {
    /// Connects as a page does: it can give no header but the protocols.
    fn connect(served: &Served<'_>, target: &str, token: &str) -> Result<Browser, u16> {
        let address = format!("ws://127.0.0.1:{}/v1/sessions/{target}/terminal", served.port);
        let mut request = address.into_client_request().expect("a request");
        let protocols = format!("lariat.terminal.v1, lariat.token.{token}");
        request.headers_mut().insert("Sec-WebSocket-Protocol", protocols.parse().expect("a header"));
        let origin = format!("http://127.0.0.1:{}", served.port);
        request.headers_mut().insert("Origin", origin.parse().expect("a header"));
        match tungstenite::client(request, served.connect()) {
            Ok((socket, answer)) => {
                assert_eq!(answer.headers()["Sec-WebSocket-Protocol"], "lariat.terminal.v1");
                Ok(Browser { socket, seen: Vec::new(), told: Vec::new() })
            }
            Err(tungstenite::HandshakeError::Failure(Error::Http(answer))) => Err(answer.status().as_u16()),
            Err(e) => panic!("{e}"),
        }
    }

    fn say(&mut self, what: &Value) {
        self.socket.send(Message::text(what.to_string())).expect("sent");
    }

    fn type_text(&mut self, text: &str) {
        self.socket.send(Message::binary(text.as_bytes().to_vec())).expect("sent");
    }

    /// Takes the next message; the reason, if that was the last.
    fn next(&mut self) -> Option<String> {
        match self.socket.read() {
            Ok(Message::Binary(bytes)) => self.seen.extend_from_slice(&bytes),
            Ok(Message::Text(text)) => self.told.push(serde_json::from_str(text.as_str()).expect("JSON")),
            Ok(Message::Close(frame)) => return Some(frame.map_or_else(String::new, |f| f.reason.to_string())),
            Ok(_) => {}
            Err(e) => return Some(e.to_string()),
        }
        None
    }

    fn until(&mut self, what: &str, seen: impl Fn(&str, &[Value]) -> bool) {
        let began = Instant::now();
        while !seen(&self.end(), &self.told) {
            let late = (began.elapsed() > DEADLINE).then(|| "too late".to_owned());
            if let Some(over) = late.or_else(|| self.next()) {
                panic!("{what}: {over}; {} {:?}", self.end(), self.told);
            }
        }
    }

    /// The end of what was seen.
    fn end(&self) -> String {
        String::from_utf8_lossy(&self.seen[self.seen.len().saturating_sub(4096)..]).into_owned()
    }

    fn until_seen(&mut self, text: &str) {
        self.until(text, |seen, _| seen.contains(text));
    }

    fn until_over(&mut self) -> String {
        loop {
            if let Some(over) = self.next() {
                return over;
            }
        }
    }
}

/// A session whose program is a script.
fn launch(sandbox: &Sandbox, script: &str) -> String {
    let path = sandbox.root().join("own/claude");
    put_program(&path, format!("#!/bin/sh\n{script}\n"));
    sandbox.install("claude", &path);
    let launched = ask(sandbox, &["launch", "claude", "--json", "--force"]).expect_success().json();
    launched["handle"].as_str().expect("a handle").to_owned()
}

#[test]
fn a_terminal_is_seen_typed_into_and_sized_and_watchers_only_watch() {
    let sandbox = Sandbox::new("webterm");
    let script = "stty -echo; printf 'a\\033]52;c;c2VjcmV0\\007b\\033[6nc'; echo ready; \
                  while read x; do echo \"got $x at $(stty size)\"; [ \"$x\" = end ] && exit 7; done";
    let handle = launch(&sandbox, script);
    let served = Served::start(&sandbox);
    let token = served.token.clone();
    let mut page = Browser::connect(&served, &handle, &token).expect("let in");
    page.say(&json!({"resize": [100, 30]}));
    page.until_seen("ready");
    page.until("its size", |_, told| told.contains(&json!({"size": [100, 30]})));
    // Neither the clipboard nor a question to the terminal comes through.
    assert!(String::from_utf8_lossy(&page.seen).contains("abcready"), "{:?}", String::from_utf8_lossy(&page.seen));
    page.type_text("one\n");
    page.until_seen("got one at 30 100");
    page.say(&json!({"resize": [90, 20]}));
    page.until("its new size", |_, told| told.contains(&json!({"size": [90, 20]})));
    page.type_text("two\n");
    page.until_seen("got two at 20 90");
    // One that watches neither types nor sets the size.
    let mut watcher = Browser::connect(&served, &handle, &token).expect("let in");
    watcher.say(&json!({"watch": true}));
    watcher.type_text("intruder\n");
    watcher.say(&json!({"resize": [40, 10]}));
    watcher.until_seen("got two at 20 90");
    watcher.until("the size it has", |_, told| told == [json!({"size": [90, 20]})]);
    page.type_text("three\n");
    for browser in [&mut page, &mut watcher] {
        browser.until_seen("got three at 20 90");
        assert!(!String::from_utf8_lossy(&browser.seen).contains("intruder"));
    }
    // One that says nothing is shown what there is, and can type.
    let mut silent = Browser::connect(&served, &handle, &token).expect("let in");
    silent.until_seen("got three at 20 90");
    silent.type_text("four\n");
    silent.until_seen("got four at"); // a row less for a moment: that is how it is drawn again
    // What makes no sense is told, and ends that one only.
    silent.say(&json!({"resize": [0, 5]}));
    assert!(silent.until_over().contains("a size is"));
    // A killed shim is replaced for the next who comes; who is there is told.
    let shim = sandbox.processes().into_iter().find(|p| p.comm == "lariat-shim").expect("its shim");
    shim.signal(Signal::KILL);
    assert!(watcher.until_over().contains("connect again"));
    let mut again = Browser::connect(&served, &handle, &token).expect("let in");
    again.say(&json!({"resize": [90, 20]}));
    again.type_text("end\n");
    let reason = again.until_over();
    assert!(again.told.contains(&json!({"ended": {"code": 7, "signal": null}})), "{:?} {reason}", again.told);
    assert_eq!(reason, "the session has ended");
}

#[test]
fn only_what_has_a_terminal_gives_one_and_only_to_those_who_may() {
    let sandbox = Sandbox::new("noterm");
    let handle = launch(&sandbox, "echo ready; read x");
    let served = Served::start(&sandbox);
    let token = served.token.clone();
    let status = |target: &str, token: &str| Browser::connect(&served, target, token).err();
    assert_eq!(status(&handle, "wrong"), Some(401));
    assert_eq!(status(&handle, &token[1..]), Some(401));
    assert_eq!(status("nobody", &token), Some(404));
    assert_eq!(status("--all", &token), Some(400));
    let plain = served.get(&format!("/v1/sessions/{handle}/terminal"));
    assert!(plain.status == 426 && plain.head.contains("Upgrade: websocket"), "{plain:?}");
    // Elsewhere the token is no protocol.
    let protocol = format!("Sec-WebSocket-Protocol: lariat.token.{token}\r\n");
    let host = format!("Host: 127.0.0.1:{}\r\n", served.port);
    assert_eq!(served.say(&format!("GET /v1/status HTTP/1.1\r\n{host}{protocol}\r\n")).status, 401);
    let mut page = Browser::connect(&served, &handle, &token).expect("let in");
    page.until_seen("ready");
    assert_eq!(served.post(&format!("/v1/sessions/{handle}/kill"), &json!({})).status, 200);
    assert!(page.until_over().contains("has ended"));
    assert!(page.told.iter().any(|t| t["ended"]["signal"] == 9), "{:?}", page.told);
    assert_eq!(status(&handle, &token), Some(409), "it has ended");
    drop(Lookalike::program(&sandbox, "claude"));
    let headless = ask(&sandbox, &["launch", "claude", "--headless", "-p", "go", "--json", "--force"]).json();
    let handle = headless["handle"].as_str().expect("a handle");
    assert_eq!(status(handle, &token), Some(409), "it has no terminal");
}

#[test]
fn a_browser_that_takes_nothing_is_let_go_and_hurts_nobody() {
    let sandbox = Sandbox::new("webslow");
    let script = "stty raw -echo; echo ready; head -c 1 >/dev/null; head -c 40000000 /dev/zero | tr '\\0' x; \
                  echo done; head -c 1 >/dev/null";
    let handle = launch(&sandbox, script);
    let served = Served::start(&sandbox);
    let token = served.token.clone();
    let mut slow = Browser::connect(&served, &handle, &token).expect("let in");
    slow.say(&json!({"resize": [80, 24]}));
    slow.until_seen("ready");
    let mut fast = Browser::connect(&served, &handle, &token).expect("let in");
    fast.say(&json!({"resize": [80, 24]}));
    fast.until_seen("ready");
    fast.type_text("x");
    fast.until("all of it", |seen, _| seen.ends_with("done\r\n") || seen.ends_with("done\n"));
    assert!(fast.seen.len() > 40_000_000);
    // It is let go while it takes nothing; once it reads, it finds out.
    wait_until("the slow one is let go", DEADLINE, || ask(&sandbox, &["daemon", "logs"]).stdout.contains("terminal:"));
    let reason = slow.until_over();
    assert!(slow.seen.len() < 40_000_000, "{reason}");
}
