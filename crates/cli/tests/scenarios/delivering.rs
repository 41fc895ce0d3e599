//! Those who want to be told are told: at least once, signed, over every crash, and never of an end
//! that is none.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use lariat_daemon::deliver::sign::sign;
use lariat_testkit::{DEADLINE, Lookalike, Sandbox, Signal, free_port, wait_until};
use serde_json::{Value, json};

use crate::{
    asking::{ask, id, lariat},
    claude_store::ClaudeStore,
    daemon::{kill, start},
};

/// One who is told, and answers as the test wants.
struct Receiver {
    url: String,
    heard: Arc<Mutex<Vec<Request>>>,
    answers: Arc<Mutex<Vec<u16>>>,
}

#[derive(Clone, Debug)]
struct Request {
    headers: Vec<(String, String)>,
    body: String,
}

impl Request {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, v)| v.as_str()).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }
}

impl Receiver {
    /// Takes everything, after these answers have been used up.
    fn start(answers: &[u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/hook?key=canary", listener.local_addr().expect("an address"));
        let heard: Arc<Mutex<Vec<Request>>> = Arc::default();
        let answers = Arc::new(Mutex::new(answers.to_vec()));
        let (told, script) = (Arc::clone(&heard), Arc::clone(&answers));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(stream);
                let mut headers = Vec::new();
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                        break;
                    }
                    if let Some((name, value)) = line.trim_end().split_once(": ") {
                        headers.push((name.to_owned(), value.to_owned()));
                    }
                }
                // Whoever tells may be killed at any moment: before the first byte, too.
                let length = headers.iter().find(|(n, _)| n == "Content-Length").and_then(|(_, v)| v.parse().ok());
                let Some(mut body) = length.map(|n: usize| vec![0; n]) else { continue };
                if reader.read_exact(&mut body).is_err() {
                    continue;
                }
                let body = String::from_utf8(body).expect("UTF-8");
                told.lock().expect("no panic").push(Request { headers, body });
                let mut script = script.lock().expect("no panic");
                let status = if script.is_empty() { 200 } else { script.remove(0) };
                drop(script);
                let _ = write!(reader.into_inner(), "HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
            }
        });
        Self { url, heard, answers }
    }

    fn heard(&self) -> Vec<Request> {
        self.heard.lock().expect("no panic").clone()
    }

    fn names(&self) -> Vec<String> {
        self.heard().iter().map(|r| r.header("Lariat-Event").to_owned()).collect()
    }

    #[track_caller]
    fn wait_for(&self, name: &str, times: usize) {
        wait_until(&format!("{times} times {name}"), DEADLINE, || {
            self.names().iter().filter(|n| *n == name).count() >= times
        });
    }
}

fn settings(sandbox: &Sandbox, text: &str) {
    let folder = sandbox.home().join(".config/lariat");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("config.toml"), text).expect("the settings");
}

fn deliveries(sandbox: &Sandbox) -> Value {
    ask(sandbox, &["daemon", "deliveries", "--json"]).json()
}

/// A lookalike that waits for a permission.
fn waiting(sandbox: &Sandbox, number: u64) -> Lookalike {
    let claude = ClaudeStore::of(sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    drop(claude.session(&id(number)).asked("fix it").calls("Bash", json!({"command": "rm -rf build"})));
    drop(claude.register(&agent, &id(number)).waits_for("permission prompt"));
    agent
}

#[test]
fn a_webhook_is_told_what_it_wants_signed_and_never_of_an_end_that_is_none() {
    let sandbox = Sandbox::new("hook");
    let receiver = Receiver::start(&[]);
    let url = &receiver.url;
    sandbox.env("HOOK_SECRET", "s3cret-canary");
    let events = r#"["session.waiting", "session.ended"]"#;
    settings(&sandbox, &format!("[[webhook]]\nurl = \"{url}\"\nevents = {events}\nsecret_env = \"HOOK_SECRET\"\n"));
    start(&sandbox);
    // It ignores what asks it to end: until it is dead, nobody is told of an end.
    let claude = ClaudeStore::of(&sandbox);
    let program = Lookalike::program(&sandbox, "claude");
    let agent = Lookalike::start_ignoring(&sandbox, &program, &[Signal::INT, Signal::TERM]);
    drop(claude.session(&id(1)).asked("fix it").calls("Bash", json!({"command": "rm -rf build"})));
    let entry = claude.register(&agent, &id(1)).says("busy");
    drop(entry.waits_for("permission prompt"));
    receiver.wait_for("session.waiting", 1);
    let stopping = sandbox.spawn(&lariat(&sandbox, &["stop", &id(1), "--grace", "1s"]));
    let wish = sandbox.state_dir().join(format!("lariat/sessions/claude-{}/intent.json", id(1)));
    wait_until("the wish is stored", DEADLINE, || wish.exists());
    assert!(!receiver.names().contains(&"session.ended".to_owned()), "s25: no early webhook");
    stopping.output(DEADLINE).expect_success();
    receiver.wait_for("session.ended", 1);
    let heard = receiver.heard();
    assert_eq!(receiver.names(), ["session.waiting", "session.ended"], "what it does not want it is not told");
    for request in &heard {
        let signed = format!("{}.{}", request.header("Lariat-Timestamp"), request.body);
        let expected = format!("sha256={}", sign(b"s3cret-canary", signed.as_bytes()));
        assert_eq!(request.header("Lariat-Signature"), expected);
        assert_eq!(request.json()["event"], request.header("Lariat-Event"));
    }
    assert_eq!(heard[0].json()["session"]["reason"], "permission: Bash rm -rf build");
    assert_eq!(heard[1].json()["session"]["status"], "stopped");
    wait_until("nothing is owed", DEADLINE, || deliveries(&sandbox)["owed"] == json!([]));
    assert_eq!(deliveries(&sandbox)["dead"], json!([]));
    // The secret is nowhere but in the environment it came from.
    let state = sandbox.state_dir();
    let found = sandbox.run(["grep", "-r", "s3cret-canary", state.to_str().expect("UTF-8")]);
    assert_eq!(found.code(), 1, "{}", found.stdout);
}

#[test]
fn what_is_not_taken_is_tried_again_under_the_same_id() {
    let sandbox = Sandbox::new("retry");
    let receiver = Receiver::start(&[500, 503]);
    settings(&sandbox, &format!("[[webhook]]\nurl = \"{}\"\nevents = [\"session.waiting\"]\n", receiver.url));
    start(&sandbox);
    let _agent = waiting(&sandbox, 1);
    receiver.wait_for("session.waiting", 3);
    let heard = receiver.heard();
    assert!(heard.iter().all(|r| r.header("Lariat-Delivery") == heard[0].header("Lariat-Delivery")), "{heard:?}");
    wait_until("nothing is owed", DEADLINE, || deliveries(&sandbox)["owed"] == json!([]));
    let logged = ask(&sandbox, &["daemon", "logs"]).stdout;
    assert!(logged.contains("it answered with 500") && !logged.contains("canary"), "{logged}");
    assert!(receiver.answers.lock().expect("no panic").is_empty());
}

#[test]
fn a_webhook_is_found_by_its_name_and_one_that_leads_nowhere_is_told() {
    let sandbox = Sandbox::new("named");
    // This sandbox alone knows the name, and asks no network for another.
    for (file, text) in [("hosts", "127.0.0.1 hook.test\n"), ("nsswitch.conf", "hosts: files\n")] {
        let place = sandbox.root().join(file);
        fs::write(&place, text).expect("a file");
        let place = place.to_str().expect("UTF-8");
        sandbox.run(["mount", "--bind", place, &format!("/etc/{file}")]).expect_success();
    }
    let receiver = Receiver::start(&[]);
    let url = receiver.url.replace("127.0.0.1", "hook.test");
    let events = r#"events = ["session.waiting"]"#;
    let nowhere = "[[webhook]]\nurl = \"http://nowhere.test/\"";
    settings(&sandbox, &format!("[[webhook]]\nurl = \"{url}\"\n{events}\n{nowhere}\n{events}\n"));
    start(&sandbox);
    let _agent = waiting(&sandbox, 1);
    receiver.wait_for("session.waiting", 1);
    assert!(receiver.heard()[0].header("Host").starts_with("hook.test:"));
    let logs = || ask(&sandbox, &["daemon", "logs"]).stdout;
    wait_until("it is told", DEADLINE, || logs().contains("the name nowhere.test leads nowhere"));
}

#[test]
fn what_is_owed_survives_a_crash_at_every_point() {
    for point in ["deliver.owed", "deliver.sent"] {
        let sandbox = Sandbox::new("crash");
        let receiver = Receiver::start(&[]);
        settings(&sandbox, &format!("[[webhook]]\nurl = \"{}\"\nevents = [\"session.waiting\"]\n", receiver.url));
        sandbox.env("LARIAT_DIE_AT", point);
        let daemon = start(&sandbox);
        sandbox.without_env("LARIAT_DIE_AT");
        let _agent = waiting(&sandbox, 1);
        wait_until("the daemon dies", DEADLINE, || sandbox.world().process(daemon).is_none_or(|p| p.state == 'Z'));
        let owed = deliveries(&sandbox)["owed"][0]["id"].as_str().expect("it is owed").to_owned();
        let before = receiver.heard().len();
        assert_eq!(before, usize::from(point == "deliver.sent"));
        start(&sandbox);
        receiver.wait_for("session.waiting", before + 1);
        assert!(
            receiver.heard().iter().all(|r| r.header("Lariat-Delivery") == owed),
            "the id tells that it is the same"
        );
        wait_until("nothing is owed", DEADLINE, || deliveries(&sandbox)["owed"] == json!([]));
    }
}

#[test]
fn killed_again_and_again_it_loses_nothing_that_was_owed() {
    let sandbox = Sandbox::new("owed");
    let receiver = Receiver::start(&[]);
    settings(&sandbox, &format!("[[webhook]]\nurl = \"{}\"\n", receiver.url));
    let claude = ClaudeStore::of(&sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    let mut entry = claude.register(&agent, &id(1)).says("idle");
    let outbox = sandbox.state_dir().join("lariat/outbox");
    let mut owed: Vec<String> = Vec::new();
    for round in 0..15 {
        let daemon = start(&sandbox);
        let listener = crate::daemon::listen(&sandbox);
        for word in ["busy", "idle", "busy"].iter().skip(round % 2 * 2) {
            entry = entry.says(word);
        }
        wait_until("something happens", DEADLINE, || crate::daemon::heard(&listener).len() > 1);
        kill(&sandbox, daemon);
        let left = fs::read_dir(&outbox).into_iter().flatten().flatten();
        owed.extend(left.filter_map(|f| f.file_name().to_str()?.strip_suffix(".json").map(str::to_owned)));
        entry = entry.says("idle");
    }
    start(&sandbox);
    wait_until("nothing is owed", DEADLINE, || deliveries(&sandbox)["owed"] == json!([]));
    let heard: Vec<String> = receiver.heard().iter().map(|r| r.header("Lariat-Delivery").to_owned()).collect();
    for id in &owed {
        assert!(heard.contains(id), "{id} was owed and never told");
    }
    println!("{} deliveries heard, {} of them owed at a kill", heard.len(), owed.len());
    drop(entry);
}

#[test]
fn one_who_hangs_up_before_a_word_is_not_heard() {
    let receiver = Receiver::start(&[]);
    let address = receiver.url.strip_prefix("http://").and_then(|u| u.split('/').next()).expect("an address");
    drop(std::net::TcpStream::connect(address).expect("it listens"));
    let mut cut = std::net::TcpStream::connect(address).expect("it listens");
    write!(cut, "POST / HTTP/1.1\r\nLariat-Event: x\r\n").expect("sent");
    drop(cut);
    let mut whole = std::net::TcpStream::connect(address).expect("it listens");
    write!(whole, "POST / HTTP/1.1\r\nLariat-Event: y\r\nContent-Length: 0\r\n\r\n").expect("sent");
    receiver.wait_for("y", 1);
    assert_eq!(receiver.names(), ["y"]);
}

#[test]
fn a_fuse_that_only_tells_is_told_over_a_crash_at_every_point() {
    for point in ["deliver.begin", "deliver.owed", "fuse.told"] {
        let sandbox = Sandbox::new("fusetold");
        let receiver = Receiver::start(&[]);
        settings(&sandbox, &format!("[[webhook]]\nurl = \"{}\"\n", receiver.url));
        sandbox.env("LARIAT_DIE_AT", point);
        let daemon = start(&sandbox);
        sandbox.without_env("LARIAT_DIE_AT");
        let work = sandbox.project("proj");
        ask(&sandbox, &["fuse", "set", work.to_str().expect("UTF-8"), "--after", "5ms", "--then", "webhook"])
            .expect_success();
        wait_until("the daemon dies", DEADLINE, || sandbox.world().process(daemon).is_none_or(|p| p.state == 'Z'));
        start(&sandbox);
        receiver.wait_for("fuse.fired", 1);
        wait_until("nothing is owed", DEADLINE, || deliveries(&sandbox)["owed"] == json!([]));
        wait_until("it is marked", DEADLINE, || {
            !ask(&sandbox, &["fuse", "ls", "--json"]).json()["fuses"][0]["fired_at"].is_null()
        });
        let heard = receiver.heard();
        assert!(heard.iter().all(|r| r.header("Lariat-Delivery") == heard[0].header("Lariat-Delivery")), "{heard:?}");
    }
}

/// `LARIAT_KILLS` is how often; a campaign sets it to a thousand.
#[test]
fn killed_under_load_it_loses_no_delivery_no_fuse_and_no_agent() {
    let kills: usize = std::env::var("LARIAT_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let sandbox = Sandbox::new("load");
    let receiver = Receiver::start(&[]);
    settings(&sandbox, &format!("[[webhook]]\nurl = \"{}\"\n", receiver.url));
    let claude = ClaudeStore::of(&sandbox);
    drop(Lookalike::program(&sandbox, "claude"));
    let launched = ask(&sandbox, &["launch", "claude", "--json"]).expect_success().json();
    let agents: Vec<Lookalike> = (0..4).map(|_| sandbox.lookalike("claude", &[])).collect();
    let mut entries: Vec<_> =
        agents.iter().zip(1..).map(|(a, n)| Some(claude.register(a, &id(n)).says("idle"))).collect();
    let state = sandbox.state_dir().join("lariat");
    let owed_now = || -> Vec<String> {
        let left = fs::read_dir(state.join("outbox")).into_iter().flatten().flatten();
        left.filter_map(|f| f.file_name().to_str()?.strip_suffix(".json").map(str::to_owned)).collect()
    };
    let (mut owed, mut fuses, mut doomed) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..kills {
        let daemon = start(&sandbox);
        let before = receiver.heard().len();
        for entry in &mut entries {
            let word = if round % 2 == 0 { "busy" } else { "idle" };
            *entry = entry.take().map(|e| e.says(word));
        }
        let set = |args: &[&str]| {
            let told = ask(&sandbox, &[&["fuse", "set", "--json"], args].concat()).expect_success().json();
            told["id"].as_str().expect("an id").to_owned()
        };
        fuses.push(set(&[sandbox.work().to_str().expect("UTF-8"), "--after", "20ms", "--then", "webhook"]));
        if round % 10 == 3 {
            let number = 1000 + round as u64;
            let agent = sandbox.lookalike("claude", &[]);
            drop(claude.session(&id(number)).asked("fix it").answered("done"));
            drop(claude.register(&agent, &id(number)).says("idle"));
            fuses.push(set(&[&id(number), "--after", "5ms", "--then", "kill"]));
            doomed.push(agent);
        }
        // At another moment each time.
        match round % 4 {
            0 => {}
            1 => {
                wait_until("something is owed", DEADLINE, || !owed_now().is_empty() || receiver.heard().len() > before)
            }
            2 => wait_until("something is told", DEADLINE, || receiver.heard().len() > before),
            _ => wait_until("more is told", DEADLINE, || receiver.heard().len() > before + 2),
        }
        kill(&sandbox, daemon);
        owed.extend(owed_now());
    }
    start(&sandbox);
    let burnt = || {
        let told = ask(&sandbox, &["fuse", "ls", "--json"]).json();
        let all = told["fuses"].as_array().expect("fuses").clone();
        fuses.iter().all(|id| all.iter().any(|f| f["id"] == **id && !f["fired_at"].is_null()))
    };
    wait_until("every fuse has burnt down", DEADLINE, burnt);
    wait_until("nothing is owed", DEADLINE, || deliveries(&sandbox)["owed"] == json!([]));
    let heard = receiver.heard();
    let ids: std::collections::HashSet<&str> = heard.iter().map(|r| r.header("Lariat-Delivery")).collect();
    for id in &owed {
        assert!(ids.contains(id.as_str()), "{id} was owed and never told");
    }
    for fuse in &fuses {
        let fired =
            heard.iter().filter(|r| r.header("Lariat-Event") == "fuse.fired" && r.json()["fuse"]["id"] == **fuse);
        let ids: std::collections::HashSet<&str> = fired.map(|r| r.header("Lariat-Delivery")).collect();
        assert_eq!(ids.len(), 1, "fuse {fuse} was told under {ids:?}");
    }
    for agent in &doomed {
        agent.wait(DEADLINE);
    }
    for agent in &agents {
        agent.tell("ready");
    }
    let pid = i32::try_from(launched["pid"].as_i64().expect("a pid")).expect("a pid");
    assert!(sandbox.processes().iter().any(|p| p.pid == pid && p.state != 'Z'), "the launched agent is lost");
    println!(
        "{kills} kills: {} heard, {} under different ids, {} owed at a kill, {} fuses, 0 lost",
        heard.len(),
        ids.len(),
        owed.len(),
        fuses.len()
    );
}

#[test]
fn a_command_runs_once_and_what_nobody_takes_is_a_dead_letter() {
    let sandbox = Sandbox::new("command");
    let told = sandbox.root().join("told");
    let run = format!("echo $LARIAT_EVENT $LARIAT_ID $LARIAT_REASON >> {}; exit 3", told.display());
    let gone = free_port();
    settings(
        &sandbox,
        &format!(
            "[[command]]\nrun = \"{run}\"\nevents = [\"session.waiting\"]\n\
             [[webhook]]\nurl = \"http://127.0.0.1:{gone}/\"\nevents = [\"session.waiting\"]\n"
        ),
    );
    start(&sandbox);
    let _agent = waiting(&sandbox, 1);
    wait_until("the command is given up", DEADLINE, || {
        deliveries(&sandbox)["dead"].as_array().is_some_and(|d| !d.is_empty())
    });
    let said = fs::read_to_string(&told).expect("it ran");
    assert_eq!(said.trim(), format!("session.waiting claude:{} permission: Bash rm -rf build", id(1)));
    wait_until("the webhook was tried", DEADLINE, || deliveries(&sandbox)["owed"][0]["tries"].as_u64() >= Some(1));
    // One that is taken out of the settings is owed nothing.
    settings(&sandbox, "");
    wait_until("it is given up", DEADLINE, || deliveries(&sandbox)["owed"] == json!([]));
    let dead = deliveries(&sandbox)["dead"].to_string();
    assert!(dead.contains("no longer in the settings") && dead.contains("it failed"), "{dead}");
}

#[test]
fn s02_nobody_is_told_of_an_end_when_a_store_hangs() {
    let sandbox = Sandbox::new("hook02");
    let receiver = Receiver::start(&[]);
    settings(&sandbox, &format!("[[webhook]]\nurl = \"{}\"\n", receiver.url));
    let fifo = sandbox.root().join("silent");
    sandbox.env("LARIAT_PAUSE_AT", "claude.observe");
    sandbox.env("LARIAT_PAUSE_ON", &fifo);
    start(&sandbox);
    let agent = waiting(&sandbox, 1);
    receiver.wait_for("session.waiting", 1);
    sandbox.run(["mkfifo", fifo.to_str().expect("UTF-8")]).expect_success();
    ClaudeStore::of(&sandbox).put("sessions/hint.txt", "");
    receiver.wait_for("adapter.failed", 1);
    agent.tell("ready");
    assert!(!receiver.names().contains(&"session.ended".to_owned()), "{:?}", receiver.names());
}
