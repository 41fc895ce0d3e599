//! Many who listen, many who change: each hears every change, in the same order, and one who does not
//! read hurts nobody.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use lariat_testkit::{DEADLINE, Lookalike, Sandbox, wait_until};

use crate::asking::{ask, id};
use crate::claude_store::ClaudeStore;
use crate::http::Served;

const AGENTS: u64 = 50;
const LISTENERS: usize = 200;

/// What one has heard: numbers of events, and what was said of whom.
#[derive(Default)]
struct Heard {
    numbers: Vec<u64>,
    /// How often each event of each session was told.
    told: BTreeMap<(String, String), usize>,
    resets: usize,
    ended: bool,
}

/// One who listens, in a thread of its own.
struct Listener {
    heard: Arc<(Mutex<Heard>, Condvar)>,
}

impl Listener {
    fn start(served: &Served<'_>) -> Self {
        let mut stream = served.connect();
        stream.set_read_timeout(None).expect("no deadline");
        stream.write_all(format!("GET /v1/events HTTP/1.1\r\n{}\r\n", served.headers()).as_bytes()).expect("sent");
        let heard: Arc<(Mutex<Heard>, Condvar)> = Arc::default();
        let ours = Arc::clone(&heard);
        let thread = std::thread::Builder::new().stack_size(128 << 10);
        thread.spawn(move || listen(stream, &ours)).expect("a thread");
        Self { heard }
    }

    /// Waits until it has heard enough.
    #[track_caller]
    fn until(&self, what: &str, enough: impl Fn(&Heard) -> bool) {
        let began = Instant::now();
        let mut heard = self.heard.0.lock().expect("no panic");
        while !enough(&heard) {
            let left = DEADLINE.saturating_sub(began.elapsed());
            assert!(!left.is_zero() && !heard.ended, "{what}: {} events, {} resets", heard.numbers.len(), heard.resets);
            heard = self.heard.1.wait_timeout(heard, left).expect("no panic").0;
        }
    }
}

fn listen(stream: TcpStream, heard: &(Mutex<Heard>, Condvar)) {
    let (mut event, mut number) = (String::new(), 0);
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        let mut now = heard.0.lock().expect("no panic");
        match line.split_once(": ") {
            Some(("id", id)) => number = id.rsplit('-').next().and_then(|n| n.parse().ok()).expect("a number"),
            Some(("event", name)) => event = name.to_owned(),
            Some(("data", _)) if event == "reset" => now.resets += 1,
            Some(("data", data)) => {
                now.numbers.push(number);
                let who = data.split("\"native_id\":\"").nth(1).and_then(|t| t.split('"').next()).unwrap_or("");
                *now.told.entry((who.to_owned(), event.clone())).or_default() += 1;
            }
            _ => {}
        }
        heard.1.notify_all();
    }
    heard.0.lock().expect("no panic").ended = true;
    heard.1.notify_all();
}

/// `LARIAT_ROUNDS` is how often all agents change; a campaign sets it high.
#[test]
fn two_hundred_listeners_hear_every_change_of_fifty_agents() {
    let rounds: usize = std::env::var("LARIAT_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    let sandbox = Sandbox::new("fleet");
    let claude = ClaudeStore::of(&sandbox);
    let agents: Vec<Lookalike> = (0..AGENTS).map(|_| sandbox.lookalike("claude", &[])).collect();
    let mut entries: Vec<_> =
        agents.iter().zip(1..).map(|(a, n)| Some(claude.register(a, &id(n)).says("idle"))).collect();
    let served = Served::start(&sandbox);
    // One who never reads.
    let mut deaf = served.connect();
    deaf.write_all(format!("GET /v1/events HTTP/1.1\r\n{}\r\n", served.headers()).as_bytes()).expect("sent");
    let listeners: Vec<Listener> = (0..LISTENERS).map(|_| Listener::start(&served)).collect();
    for listener in &listeners {
        listener.until("the beginning", |h| h.resets == 1);
    }
    let began = Instant::now();
    for round in 1..=rounds {
        for (word, event) in [("busy", "session.working"), ("idle", "session.idle")] {
            for entry in &mut entries {
                *entry = entry.take().map(|e| e.says(word));
            }
            for listener in &listeners {
                listener.until(event, |h| (1..=AGENTS).all(|n| h.told.get(&(id(n), event.to_owned())) == Some(&round)));
            }
        }
    }
    let took = began.elapsed();
    let memory = ask(&sandbox, &["daemon", "status", "--json"]).json()["memory_bytes"].as_f64().expect("bytes");
    let first = listeners[0].heard.0.lock().expect("no panic").numbers.clone();
    assert_eq!(first.len(), rounds * 2 * AGENTS as usize);
    assert!(first.windows(2).all(|w| w[1] == w[0] + 1), "no number is missing");
    for listener in &listeners {
        let heard = listener.heard.0.lock().expect("no panic");
        assert!(heard.numbers == first && heard.resets == 1, "everyone hears the same");
    }
    // The one who does not read is let go, with a reason; until then it held up nobody.
    let waits = ask(&sandbox, &["daemon", "status", "--json"]).json()["listeners"].as_u64().expect("a count");
    println!("{rounds} rounds in {took:?}, {:.1} MB, {waits} listen", memory / 1e6);
    assert!(memory < 64e6, "{memory} bytes");
    for agent in &agents {
        agent.tell("ready");
    }
    drop((deaf, entries));
}

#[test]
fn a_listener_that_does_not_read_is_let_go_with_a_reason_and_the_others_hear_on() {
    let sandbox = Sandbox::new("deaf");
    let claude = ClaudeStore::of(&sandbox);
    let agents: Vec<Lookalike> = (0..8).map(|_| sandbox.lookalike("claude", &[])).collect();
    let prompt = "x".repeat(60_000);
    for n in 1..=8 {
        drop(claude.session(&id(n)).asked(&prompt));
    }
    let mut entries: Vec<_> =
        agents.iter().zip(1..).map(|(a, n)| Some(claude.register(a, &id(n)).says("idle"))).collect();
    let served = Served::start(&sandbox);
    let mut deaf = served.connect();
    rustix::net::sockopt::set_socket_recv_buffer_size(&deaf, 4096).expect("a small one");
    deaf.write_all(format!("GET /v1/events HTTP/1.1\r\n{}\r\n", served.headers()).as_bytes()).expect("sent");
    let listener = Listener::start(&served);
    listener.until("the beginning", |h| h.resets == 1);
    let let_go = || ask(&sandbox, &["daemon", "logs", "-n", "1000"]).stdout.contains("a stream's reader was too slow");
    let mut round = 0;
    wait_until("the deaf one is let go", DEADLINE, || {
        round += 1;
        for (word, event) in [("busy", "session.working"), ("idle", "session.idle")] {
            for entry in &mut entries {
                *entry = entry.take().map(|e| e.says(word));
            }
            listener.until(event, |h| (1..=8).all(|n| h.told.get(&(id(n), event.to_owned())) == Some(&round)));
        }
        let_go()
    });
    let numbers = listener.heard.0.lock().expect("no panic").numbers.clone();
    assert!(numbers.windows(2).all(|w| w[1] == w[0] + 1), "the other one heard all");
    println!("let go after {round} rounds");
    drop(entries);
}

/// For a campaign: at rest, with fifty agents and somebody who listened, the daemon uses no time.
#[test]
#[ignore = "takes minutes; `make torture` runs it"]
fn at_rest_it_uses_no_time() {
    let sandbox = Sandbox::new("rest");
    let claude = ClaudeStore::of(&sandbox);
    let agents: Vec<Lookalike> = (0..AGENTS).map(|_| sandbox.lookalike("claude", &[])).collect();
    let entries: Vec<_> = agents.iter().zip(1..).map(|(a, n)| claude.register(a, &id(n)).says("idle")).collect();
    let _talks: Vec<_> = (1..=AGENTS).map(|n| claude.session(&id(n)).asked("go").answered("done")).collect();
    ask(&sandbox, &["daemon", "start"]).expect_success();
    let status = || ask(&sandbox, &["daemon", "status", "--json"]).json();
    let pid = i32::try_from(status()["pid"].as_i64().expect("a pid")).expect("a pid");
    let outside = sandbox.world().process(pid).expect("the daemon").outside;
    let ticks = || -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{outside}/stat")).expect("the daemon");
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields.skip(11).take(4).filter_map(|f| f.parse::<u64>().ok()).sum()
    };
    std::thread::sleep(std::time::Duration::from_secs(5)); // rest begins: time is what is measured here
    for minute in 1..=2 {
        let before = ticks();
        std::thread::sleep(std::time::Duration::from_secs(60));
        let used = ticks() - before;
        println!("minute {minute}: {used} clock ticks");
        assert!(used <= 1, "in minute {minute}");
    }
    drop(entries);
}
