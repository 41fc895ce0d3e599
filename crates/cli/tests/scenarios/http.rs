//! HTTP on loopback: who may ask, what is answered, what happens; row 9 of what must hold.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;

use lariat_daemon::http::routes::ROUTES;
use lariat_testkit::{DEADLINE, Lookalike, Sandbox, Signal};
use serde_json::{Value, json};

use crate::{
    asking::{ask, id, list},
    claude_store::ClaudeStore,
    daemon::kill,
};

/// A daemon that serves HTTP.
pub struct Served<'a> {
    pub sandbox: &'a Sandbox,
    pub port: u16,
    pub token: String,
}

/// An answer: its status, its head, its body.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("not JSON: {e}; {self:?}"))
    }
}

impl<'a> Served<'a> {
    pub fn start(sandbox: &'a Sandbox) -> Self {
        ask(sandbox, &["daemon", "start", "--http", "0"]).expect_success();
        Self::running(sandbox)
    }

    /// The daemon that serves already.
    pub fn running(sandbox: &'a Sandbox) -> Self {
        let status = ask(sandbox, &["daemon", "status", "--json"]).json();
        let address = status["http"].as_str().expect("an address").to_owned();
        let port = address.rsplit(':').next().expect("a port").parse().expect("a port");
        let token = ask(sandbox, &["daemon", "token"]).expect_success().stdout.trim().to_owned();
        Self { sandbox, port, token }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("somebody listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a deadline");
        stream
    }

    /// Says these bytes and reads one answer.
    pub fn say(&self, text: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(text.as_bytes()).expect("it listens");
        read(&mut BufReader::new(stream))
    }

    pub fn headers(&self) -> String {
        format!("Host: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\n", self.port, self.token)
    }

    pub fn get(&self, path: &str) -> Answer {
        self.say(&format!("GET {path} HTTP/1.1\r\n{}Connection: close\r\n\r\n", self.headers()))
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        let body = body.to_string();
        let head = format!("POST {path} HTTP/1.1\r\n{}Content-Type: application/json\r\n", self.headers());
        self.say(&format!("{head}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()))
    }
}

pub fn read(reader: &mut BufReader<TcpStream>) -> Answer {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).expect("an answer in time") > 0 {}
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or_else(|| panic!("no status: {head:?}"));
    let length = head.lines().find_map(|l| l.strip_prefix("Content-Length: ")).and_then(|l| l.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).expect("the whole body");
    Answer { status, head, body: String::from_utf8_lossy(&body).into_owned() }
}

#[test]
fn row_9_exactly_those_may_ask_who_may_on_every_route() {
    let sandbox = Sandbox::new("matrix");
    let served = Served::start(&sandbox);
    let port = served.port;
    let hosts =
        [Some(format!("127.0.0.1:{port}")), Some("evil.example".into()), Some(format!("localhost.evil:{port}")), None];
    let origins =
        [Some(format!("http://127.0.0.1:{port}")), Some("http://evil.example".into()), Some("null".into()), None];
    let tokens = [Some(served.token.clone()), None];
    let path = |path: &str| path.replace("{target}", "nobody").replace("{name}", "none.js");
    let mut paths: Vec<(&str, String, bool)> = ROUTES.iter().map(|r| (r.method, path(r.path), r.is_open())).collect();
    let open: Vec<&str> = paths.iter().filter(|p| p.2).map(|p| p.1.as_str()).collect();
    assert_eq!(open, ["/", "/assets/none.js", "/v1/enter", "/v1/meet"], "nothing else goes without a token");
    let others = ["/v1/none", "/index.html", "/assets/", "/assets/a/b", "/../etc/passwd"];
    paths.extend(others.map(|path| ("GET", path.to_owned(), false)));
    paths.extend([("OPTIONS", "/v1/sessions".into(), false), ("POST", "/".into(), false)]);
    let (mut asked, mut allowed) = (0, 0);
    for (method, path, open) in &paths {
        for (h, host) in hosts.iter().enumerate() {
            for (o, origin) in origins.iter().enumerate() {
                for token in &tokens {
                    let line = |name: &str, value: &Option<String>| {
                        value.as_ref().map_or_else(String::new, |v| format!("{name}: {v}\r\n"))
                    };
                    let token_line = line("Authorization", &token.as_ref().map(|t| format!("Bearer {t}")));
                    let (host_line, origin_line) = (line("Host", host), line("Origin", origin));
                    let answer = served.say(&format!(
                        "{method} {path} HTTP/1.1\r\n{host_line}{origin_line}{token_line}Connection: close\r\n\r\n"
                    ));
                    let cell =
                        format!("{method} {path} {host:?} {origin:?} token {}: {}", token.is_some(), answer.head);
                    let expected = match (h, o, token) {
                        (1.., _, _) => Some(421),
                        (_, 1 | 2, _) => Some(403),
                        (_, _, None) if !open => Some(401),
                        _ => None,
                    };
                    match expected {
                        Some(status) => assert_eq!(answer.status, status, "{cell}"),
                        None => {
                            assert!(![401, 403, 421].contains(&answer.status), "{cell}");
                            allowed += 1;
                        }
                    }
                    assert!(answer.head.contains("Content-Security-Policy: default-src 'none'"), "{cell}");
                    assert!(!answer.head.contains("Access-Control-Allow"), "{cell}");
                    asked += 1;
                }
            }
        }
    }
    let cells: usize = paths.iter().map(|(_, _, open)| if *open { 4 } else { 2 }).sum();
    assert_eq!((asked, allowed), (paths.len() * 32, cells));
    println!("{asked} cells, {allowed} allowed");
}

#[test]
fn the_token_is_a_file_of_ours_and_nothing_is_served_unasked() {
    let sandbox = Sandbox::new("token");
    ask(&sandbox, &["daemon", "start"]).expect_success();
    assert_eq!(ask(&sandbox, &["daemon", "status", "--json"]).json()["http"], Value::Null);
    assert_eq!(ask(&sandbox, &["daemon", "token"]).code(), 2);
    ask(&sandbox, &["daemon", "stop"]).expect_success();
    let served = Served::start(&sandbox);
    let path = sandbox.state_dir().join("lariat/daemon.token");
    assert_eq!(fs::metadata(&path).expect("the token").permissions().mode() & 0o777, 0o600);
    // It stays over a restart; one that others could read does not.
    let (first, port) = (served.token.clone(), served.port.to_string());
    ask(&sandbox, &["daemon", "restart", "--http", &port]).expect_success();
    assert_eq!(served.get("/v1/status").status, 200);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("a mode");
    ask(&sandbox, &["daemon", "restart", "--http", &port]).expect_success();
    assert_eq!(served.get("/v1/status").status, 401);
    assert_ne!(ask(&sandbox, &["daemon", "token"]).stdout.trim(), first);
    assert!(!ask(&sandbox, &["daemon", "logs"]).stdout.contains(&first), "it is in no log");
    let argv: Vec<String> = sandbox.processes().into_iter().flat_map(|p| p.argv).collect();
    assert!(!argv.iter().any(|a| a.contains(&first)), "and in no process's arguments");
    // A port that is taken is told, and no daemon is left behind.
    ask(&sandbox, &["daemon", "stop"]).expect_success();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let refused = ask(&sandbox, &["daemon", "start", "--http", &port]);
    assert!(refused.code() == 1 && refused.stderr.contains(&port), "{}", refused.stderr);
    assert_eq!(ask(&sandbox, &["daemon", "status"]).code(), 1);
}

#[test]
fn it_answers_what_the_command_line_prints_and_does_what_it_does() {
    let sandbox = Sandbox::new("http");
    drop(Lookalike::program(&sandbox, "claude"));
    let claude = ClaudeStore::of(&sandbox);
    let one = id(1);
    let agent = sandbox.lookalike("claude", &[]);
    let entry = claude.register(&agent, &one).says("busy");
    let talk = claude.session(&one).asked("fix \u{1b}[2J it").calls("Bash", json!({"command": "make"}));
    let served = Served::start(&sandbox);
    let without_time = |mut v: Value| {
        v["at"] = Value::Null;
        v
    };
    for (path, args) in [
        ("/v1/sessions", &["ls"][..]),
        ("/v1/sessions?all=true", &["ls", "-a"]),
        ("/v1/sessions?agent=codex", &["ls", "--agent", "codex"]),
        (&format!("/v1/sessions/{one}"), &["status", &one]),
        (&format!("/v1/sessions/{one}/explain"), &["explain", &one]),
        (&format!("/v1/sessions/{one}/peek?replies=2"), &["peek", &one, "-n", "2"]),
        ("/v1/status", &["status"]),
        ("/v1/locks", &["locks"]),
        ("/v1/restore", &["restore"]),
    ] {
        let answer = served.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        let told = ask(&sandbox, &[args, &["--json"]].concat()).json();
        assert_eq!(without_time(answer.json()), without_time(told), "{path}");
        assert!(!answer.body.contains('\u{1b}'), "nothing in it acts");
    }
    // Errors are clear, and of the right kind.
    for (answer, status, word) in [
        (served.get("/v1/sessions/nobody"), 404, "no session fits"),
        (served.get("/v1/sessions?colour=blue"), 400, "colour"),
        (served.get("/v1/sessions?status=dancing"), 400, "not a status"),
        (served.post("/v1/sessions", &json!({"agent": "nobody", "cwd": "/"})), 400, "no agent is called"),
        (served.post("/v1/sessions", &json!({"agent": "claude", "cwd": "/none"})), 400, "not a directory"),
        (served.post("/v1/sessions", &json!({"agent": "claude"})), 400, "cwd is missing"),
        (served.post("/v1/sessions", &json!([])), 400, "an object"),
        (served.post(&format!("/v1/sessions/{one}/approve"), &json!({})), 409, "asks nothing"),
        (served.post("/v1/sessions/--all/kill", &json!({})), 400, "no session"),
    ] {
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(answer.json()["error"]["text"].as_str().expect("a reason").contains(word), "{answer:?}");
    }
    agent.tell("ready");
    // It acts, with the same refusals.
    let place = sandbox.project("web");
    let order = json!({"agent": "claude", "cwd": place, "name": "by-http"});
    let launched = served.post("/v1/sessions", &order);
    assert_eq!(launched.status, 200, "{launched:?}");
    let launched = launched.json();
    let native = launched["native_id"].as_str().expect("an id");
    let running = i32::try_from(launched["pid"].as_i64().expect("a pid")).expect("a pid");
    list(&sandbox).expect(native, "starting", Some(running));
    let refused = served.post("/v1/sessions", &order);
    assert_eq!(refused.status, 409, "{refused:?}");
    // The daemon's end is not its end.
    kill(
        &sandbox,
        i32::try_from(ask(&sandbox, &["daemon", "status", "--json"]).json()["pid"].as_i64().expect("a pid"))
            .expect("a pid"),
    );
    list(&sandbox).expect(native, "starting", Some(running));
    ask(&sandbox, &["daemon", "start", "--http", &served.port.to_string()]).expect_success();
    let held = served.post("/v1/lock", &json!({"path": sandbox.work(), "by": "eve", "force": true}));
    assert_eq!((held.status, &held.json()["by"]), (200, &json!("eve")), "{held:?}");
    assert_eq!(served.post("/v1/unlock", &json!({"path": sandbox.work()})).status, 200);
    let ended = served.post("/v1/sessions/by-http/kill", &json!({}));
    assert_eq!((ended.status, &ended.json()["outcome"]), (200, &json!("stopped")), "{ended:?}");
    list(&sandbox).expect(native, "stopped", None);
    let journal = served.get("/v1/journal");
    assert!(journal.body.lines().count() >= 2 && journal.head.contains("application/x-ndjson"), "{journal:?}");
    drop((entry, talk));
}

#[test]
fn events_stream_and_go_on_where_they_were_left() {
    let sandbox = Sandbox::new("sse");
    let claude = ClaudeStore::of(&sandbox);
    let served = Served::start(&sandbox);
    let listen = |since: &str| {
        let mut stream = served.connect();
        stream
            .write_all(format!("GET /v1/events HTTP/1.1\r\n{}{since}\r\n", served.headers()).as_bytes())
            .expect("sent");
        let mut reader = BufReader::new(stream);
        let head = read(&mut reader);
        assert!(head.status == 200 && head.head.contains("text/event-stream"), "{head:?}");
        reader
    };
    let next = |reader: &mut BufReader<TcpStream>| -> (String, String, Value) {
        let mut fields = (String::new(), String::new(), Value::Null);
        loop {
            let mut line = String::new();
            assert!(reader.read_line(&mut line).expect("an event in time") > 0, "the stream ended");
            match line.trim_end().split_once(": ") {
                Some(("id", id)) => fields.0 = id.to_owned(),
                Some(("event", name)) => fields.1 = name.to_owned(),
                Some(("data", data)) => fields.2 = serde_json::from_str(data).expect("JSON"),
                _ if !fields.1.is_empty() => return fields,
                _ => {}
            }
        }
    };
    let mut stream = listen("");
    assert_eq!(next(&mut stream).1, "reset");
    let agent = sandbox.lookalike("claude", &[]);
    let entry = claude.register(&agent, &id(1)).says("idle");
    let started = next(&mut stream);
    assert_eq!((started.1.as_str(), &started.2["session"]["native_id"]), ("session.started", &json!(id(1))));
    assert_eq!(started.2["id"], started.0);
    assert_eq!(next(&mut stream).1, "session.idle");
    drop(stream);
    agent.signal(Signal::KILL);
    agent.wait(DEADLINE);
    let mut again = listen(&format!("Last-Event-ID: {}\r\n", started.0));
    assert_eq!(next(&mut again).1, "session.idle");
    assert_eq!(next(&mut again).1, "session.ended");
    // What another daemon told is not known to this one: it says so, with all that lives.
    let mut lost = listen("Last-Event-ID: 0-0-7\r\n");
    let reset = next(&mut lost);
    assert_eq!((reset.1.as_str(), &reset.2["listing"]["sessions"]), ("reset", &json!([])));
    drop(entry);
    // Prometheus reads numbers.
    let metrics = served.get("/metrics");
    assert!(metrics.body.contains("lariat_events_total{event=\"session.ended\"} 1"), "{}", metrics.body);
    for line in metrics.body.lines().filter(|l| !l.starts_with('#')) {
        let (_, value) = line.rsplit_once(' ').expect("a value");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn what_is_no_request_is_refused_and_harms_nobody() {
    let sandbox = Sandbox::new("nohttp");
    let served = Served::start(&sandbox);
    let headers = served.headers();
    let long = "x".repeat(20_000);
    let many = "A: b\r\n".repeat(100);
    for (said, status) in [
        ("\0\0\0\r\n\r\n".to_owned(), 400),
        ("HELLO\r\n\r\n".into(), 400),
        (format!("GET /{long} HTTP/1.1\r\n\r\n"), 413),
        (format!("GET / HTTP/1.1\r\n{many}\r\n"), 413),
        (format!("POST /v1/lock HTTP/1.1\r\n{headers}Content-Length: 9999999\r\n\r\n"), 413),
        (format!("POST /v1/lock HTTP/1.1\r\n{headers}Content-Length: -1\r\n\r\n"), 400),
        (format!("POST /v1/lock HTTP/1.1\r\n{headers}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}"), 400),
        (format!("POST /v1/lock HTTP/1.1\r\n{headers}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400),
        (format!("POST /v1/lock HTTP/1.1\r\n{headers}Content-Length: 2\r\n\r\n{{}}"), 415),
        (format!("POST /v1/lock?path=/ HTTP/1.1\r\n{headers}\r\n"), 400),
        (format!("DELETE /v1/sessions HTTP/1.1\r\n{headers}\r\n"), 405),
        (format!("GET /v1/sessions?%ff HTTP/1.1\r\n{headers}\r\n"), 400),
    ] {
        let answer = served.say(&said);
        assert_eq!(answer.status, status, "{said:.80?}: {answer:?}");
    }
    // Several requests on one connection, and one that is cut off in the middle.
    let mut stream = served.connect();
    let one = format!("GET /v1/status HTTP/1.1\r\n{headers}\r\n");
    stream.write_all(format!("{one}{one}GET /v1/st").as_bytes()).expect("sent");
    let mut reader = BufReader::new(stream.try_clone().expect("another end"));
    for _ in 0..2 {
        assert_eq!(read(&mut reader).status, 200);
    }
    stream.shutdown(std::net::Shutdown::Write).expect("cut off");
    let mut rest = String::new();
    reader.read_to_string(&mut rest).expect("the end");
    assert_eq!(rest, "");
    assert_eq!(served.get("/v1/status").status, 200);
    let errors = ask(served.sandbox, &["daemon", "status", "--json"]).json()["errors"].clone();
    assert_eq!(errors, json!([]), "nothing went wrong inside");
}
