//! Many who listen, many who change: each hears every change, in the same order, and one who does not
//! read hurts nobody.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use lariat_testkit::{DEADLINE, Lookalike, Sandbox, wait_until};

use crate::asking::{ask, id};
use crate::claude_store::ClaudeStore;
use crate::http::Served;

const AGENTS: u64 = 50;
const LISTENERS: usize = 200;

/// What one has heard: which events, and what was said of whom. As little as tells whether two have heard
/// the same, because a campaign hears millions.
#[derive(Default)]
struct Heard {
    events: usize,
    /// The number of the last one.
    last: u64,
    /// How often a number did not follow the one before it.
    gaps: usize,
    /// Of all numbers, names and sessions, in their order.
    hash: u64,
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
            assert!(!left.is_zero() && !heard.ended, "{what}: {} events, {} resets", heard.events, heard.resets);
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
                now.gaps += usize::from(now.events > 0 && number != now.last + 1);
                (now.events, now.last) = (now.events + 1, number);
                let who = data.split("\"native_id\":\"").nth(1).and_then(|t| t.split('"').next()).unwrap_or("");
                let mut hash = DefaultHasher::new();
                (now.hash, number, &event, who).hash(&mut hash);
                now.hash = hash.finish();
                *now.told.entry((who.to_owned(), event.clone())).or_default() += 1;
            }
            _ => {}
        }
        heard.1.notify_all();
    }
    heard.0.lock().expect("no panic").ended = true;
    heard.1.notify_all();
}

/// What the daemon holds: its memory in bytes, and its descriptors.
fn holds(sandbox: &Sandbox) -> (f64, usize) {
    let status = ask(sandbox, &["daemon", "status", "--json"]).json();
    let pid = i32::try_from(status["pid"].as_i64().expect("a pid")).expect("a pid");
    let outside = sandbox.world().process(pid).expect("the daemon").outside;
    let descriptors = std::fs::read_dir(format!("/proc/{outside}/fd")).expect("its descriptors").count();
    (status["memory_bytes"].as_f64().expect("bytes"), descriptors)
}

/// `LARIAT_MINUTES` is for how long all agents change; a campaign sets it, and then ten thousand ended
/// sessions lie beside them.
#[test]
fn two_hundred_listeners_hear_every_change_of_fifty_agents() {
    let minutes: Option<f64> = std::env::var("LARIAT_MINUTES").ok().and_then(|n| n.parse().ok());
    let sandbox = Sandbox::new("fleet");
    let claude = ClaudeStore::of(&sandbox);
    if minutes.is_some() {
        for n in 1..=10_000 {
            drop(claude.session(&id(100_000 + n)).asked("a short one").answered("done").left());
        }
    }
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
    let length = Duration::from_secs_f64(minutes.unwrap_or(0.0) * 60.0);
    let (mut rounds, mut early, mut noted) = (0, None, 0);
    while rounds < 6 || began.elapsed() < length {
        rounds += 1;
        for (word, event) in [("busy", "session.working"), ("idle", "session.idle")] {
            for entry in &mut entries {
                *entry = entry.take().map(|e| e.says(word));
            }
            for listener in &listeners {
                listener
                    .until(event, |h| (1..=AGENTS).all(|n| h.told.get(&(id(n), event.to_owned())) == Some(&rounds)));
            }
        }
        // What it holds early is what it may hold late: a tenth is for warming up.
        if early.is_none() && began.elapsed() >= length / 10 {
            early = Some(holds(&sandbox));
        }
        if began.elapsed().as_secs() / 60 > noted {
            noted += 1;
            let (memory, descriptors) = holds(&sandbox);
            println!("minute {noted}: {rounds} rounds, {:.1} MB, {descriptors} descriptors", memory / 1e6);
        }
    }
    let took = began.elapsed();
    let (memory, descriptors) = holds(&sandbox);
    let (early_memory, early_descriptors) = early.expect("a first look at it");
    let hash = listeners[0].heard.0.lock().expect("no panic").hash;
    for listener in &listeners {
        let heard = listener.heard.0.lock().expect("no panic");
        let mut others = heard.told.clone();
        for n in 1..=AGENTS {
            for event in ["session.working", "session.idle"] {
                let times = others.remove(&(id(n), event.to_owned()));
                assert_eq!(times, Some(rounds), "every change, once: {event} of {n}");
            }
        }
        // A machine that is too busy may make a look late: that is told, and that it is over.
        let times = |event: &str| others.iter().filter(|((_, e), _)| e == event).map(|(_, n)| n).sum::<usize>();
        let (failed, recovered) = (times("adapter.failed"), times("adapter.recovered"));
        assert_eq!((failed + recovered, failed), (others.values().sum(), recovered), "nothing else: {others:?}");
        assert_eq!((heard.gaps, heard.resets), (0, 1), "no number is missing");
        assert_eq!(heard.hash, hash, "everyone hears the same");
    }
    // The one who does not read is let go, with a reason; until then it held up nobody.
    let waits = ask(&sandbox, &["daemon", "status", "--json"]).json()["listeners"].as_u64().expect("a count");
    println!(
        "{rounds} rounds in {took:?}: {} changes told to each of {LISTENERS}, 0 missed; {:.1} MB at first, {:.1} MB \
         at last; {early_descriptors} descriptors, then {descriptors}; {waits} listen",
        rounds * 2 * AGENTS as usize,
        early_memory / 1e6,
        memory / 1e6
    );
    assert!(memory < 64e6, "{memory} bytes");
    // In a few rounds there is no early and late.
    let grows = minutes.is_some() && memory > early_memory * 1.1 + 2e6;
    assert!(!grows, "it grows: {early_memory} bytes, then {memory}");
    assert!(descriptors <= early_descriptors + 4, "it keeps some: {early_descriptors}, then {descriptors}");
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
    assert_eq!(listener.heard.0.lock().expect("no panic").gaps, 0, "the other one heard all");
    println!("let go after {round} rounds");
    drop(entries);
}
