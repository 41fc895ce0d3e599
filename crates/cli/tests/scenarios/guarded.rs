//! HTTP among strangers: what one can do to the daemon who is on this machine and has no token, and what
//! he can read of those who have.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};

use lariat_testkit::{DEADLINE, Lookalike, Sandbox, wait_for};
use serde_json::json;

use crate::asking::{ask, list};
use crate::http::{Served, read};

/// Says these bytes, and leaves the connection open for more.
fn begin(served: &Served<'_>, text: &str) -> BufReader<TcpStream> {
    let mut stream = served.connect();
    stream.write_all(text.as_bytes()).expect("it listens");
    BufReader::new(stream)
}

#[test]
fn nothing_is_read_of_one_who_may_not_ask() {
    let sandbox = Sandbox::new("unread");
    let served = Served::start(&sandbox);
    let host = format!("Host: 127.0.0.1:{}\r\n", served.port);
    let wrong = format!("{host}Authorization: Bearer {}\r\n", "0".repeat(served.token.len()));
    // He is told by the head alone: of the body that he announces, no byte is waited for.
    for (head, status) in [
        (format!("POST /v1/lock HTTP/1.1\r\n{host}Content-Length: 1000000\r\n\r\n"), 401),
        (format!("POST /v1/lock HTTP/1.1\r\n{wrong}Content-Length: 1000000\r\n\r\n"), 401),
        (format!("POST /v1/lock HTTP/1.1\r\n{wrong}Transfer-Encoding: chunked\r\n\r\n"), 401),
        (format!("POST /none HTTP/1.1\r\n{wrong}Content-Length: 1000000\r\n\r\n"), 401),
        (
            format!(
                "POST /v1/lock HTTP/1.1\r\n{}Content-Length: 9\r\n\r\n",
                served.headers().replace("127.0.0.1", "x")
            ),
            421,
        ),
        (format!("POST /v1/enter HTTP/1.1\r\n{host}Content-Length: 5000\r\n\r\n"), 413),
    ] {
        let mut said = begin(&served, &head);
        let answer = read(&mut said);
        assert_eq!(answer.status, status, "{head:?}: {answer:?}");
        assert!(answer.head.contains("Connection: close"), "what follows is no request: {answer:?}");
        let mut rest = Vec::new();
        said.read_to_end(&mut rest).expect("it hangs up");
        assert_eq!(rest, b"");
    }
    // One who sends it all the same can, and then reads the answer.
    let within = format!("GET /v1/status HTTP/1.1\r\n{}\r\n", served.headers()).repeat(4000);
    let head = format!("POST /v1/lock HTTP/1.1\r\n{wrong}Content-Length: {}\r\n\r\n", within.len());
    let mut said = begin(&served, &head);
    assert_eq!(read(&mut said).status, 401);
    said.get_mut().write_all(within.as_bytes()).expect("it is let pass by, or his answer would be lost");
    said.get_ref().shutdown(Shutdown::Write).expect("that was all");
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("it hangs up");
    assert_eq!(rest, "", "what he sent is no request");
    // Without a body there is nothing to hang up for.
    let mut said = begin(&served, &format!("GET /v1/status HTTP/1.1\r\n{wrong}\r\n"));
    assert_eq!(read(&mut said).status, 401);
    said.get_mut().write_all(format!("GET /v1/status HTTP/1.1\r\n{}\r\n", served.headers()).as_bytes()).expect("open");
    assert_eq!(read(&mut said).status, 200);
}

#[test]
fn one_who_never_shows_a_token_does_not_stay() {
    let sandbox = Sandbox::new("staying");
    let served = Served::start(&sandbox);
    let page = format!("GET / HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", served.port);
    let began = Instant::now();
    let mut known = begin(&served, &format!("GET /v1/status HTTP/1.1\r\n{}\r\n", served.headers()));
    assert_eq!(read(&mut known).status, 200);
    // One who has shown it may be slow with the rest.
    let typed = "Content-Type: application/json\r\nContent-Length: 2\r\n";
    let mut slow = begin(&served, &format!("POST /v1/lock HTTP/1.1\r\n{}{typed}\r\n", served.headers()));
    let mut reads_pages = begin(&served, &page);
    assert_eq!(read(&mut reads_pages).status, 200);
    let strangers = [begin(&served, ""), begin(&served, "GET /v1/sta"), reads_pages];
    for mut stranger in strangers {
        let mut rest = Vec::new();
        stranger.read_to_end(&mut rest).expect("it is let go before the test's own deadline");
        assert_eq!(rest, b"");
    }
    slow.get_mut().write_all(b"{}").expect("open");
    assert_ne!(read(&mut slow).status, 401, "it is heard to the end");
    assert!(began.elapsed() < Duration::from_secs(30), "a minute of silence is for those who have shown it");
    known.get_mut().write_all(format!("GET /v1/status HTTP/1.1\r\n{}\r\n", served.headers()).as_bytes()).expect("open");
    assert_eq!(read(&mut known).status, 200, "who has shown it is still here");
}

#[test]
fn however_many_listen_by_http_a_question_at_the_socket_is_answered() {
    let sandbox = Sandbox::new("crowd");
    let served = Served::start(&sandbox);
    let listen = format!("GET /v1/events HTTP/1.1\r\n{}\r\n", served.headers());
    let crowd: Vec<TcpStream> = (0..600).map(|_| begin(&served, &listen).into_inner()).collect();
    let mut let_in = 0;
    for mut stream in &crowd {
        // Either a stream of events, or the end.
        let mut first = [0; 12];
        if stream.read_exact(&mut first).is_ok() {
            assert_eq!(&first, b"HTTP/1.1 200");
            let_in += 1;
        }
    }
    assert!((200..512).contains(&let_in), "{let_in} of {}", crowd.len());
    for _ in 0..3 {
        let status = ask(&sandbox, &["daemon", "status", "--json"]);
        assert_eq!(status.code(), 0, "{}", status.stderr);
        assert_eq!(status.json()["listeners"], let_in);
    }
}

#[test]
fn what_is_said_by_http_stands_in_no_process_s_arguments() {
    const CANARY: &str = "canary-6f1d0c";
    let sandbox = Sandbox::new("canary");
    drop(Lookalike::program(&sandbox, "claude"));
    let fifo = sandbox.root().join("held");
    sandbox.run(["mkfifo", fifo.to_str().expect("UTF-8")]).expect_success();
    // A launch stands still right before it starts the shim.
    sandbox.env("LARIAT_PAUSE_AT", "launch.stored");
    sandbox.env("LARIAT_PAUSE_ON", &fifo);
    let served = Served::start(&sandbox);
    sandbox.without_env("LARIAT_PAUSE_AT");
    let order = json!({"agent": "claude", "cwd": sandbox.work(), "prompt": format!("the password is {CANARY}"),
        "name": format!("name-{CANARY}"), "env": [format!("SECRET={CANARY}")]});
    let said_by = |with: &str| -> Vec<String> {
        let all = sandbox.processes();
        all.iter().filter(|p| p.argv.iter().any(|a| a.contains(with))).map(|p| format!("{:?}", p.argv)).collect()
    };
    let launched = std::thread::scope(|scope| {
        let asking = scope.spawn(|| served.post("/v1/sessions", &order));
        let held = wait_for("the launch is held", DEADLINE, || {
            assert!(!asking.is_finished(), "it was answered without being held");
            let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
            std::fs::OpenOptions::new().write(true).custom_flags(flags).open(&fifo).ok()
        });
        assert_eq!(said_by("__verb").len(), 1, "the verb runs");
        assert_eq!(said_by(CANARY), Vec::<String>::new());
        drop(held);
        asking.join().expect("no panic")
    });
    assert_eq!(launched.status, 200, "{launched:?}");
    // From here on only the agent itself has it, whose way to be told a prompt that is.
    let agent = i32::try_from(launched.json()["pid"].as_i64().expect("a pid")).expect("a pid");
    for process in sandbox.processes().iter().filter(|p| p.argv.iter().any(|a| a.contains(CANARY))) {
        assert_eq!(process.pid, agent, "{:?}", process.argv);
    }
    list(&sandbox).expect(launched.json()["native_id"].as_str().expect("an id"), "starting", Some(agent));
}
