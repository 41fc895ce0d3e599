//! Sessions of other machines, over a real ssh to a real sshd.
//!
//! A machine is a sandbox of its own, with its own HOME, process table and lariat, and an sshd on a
//! port of loopback. The one in front of the person has a real ssh with keys and settings of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use lariat_testkit::{DEADLINE, Exit, Key, Lookalike, Output, Sandbox, Signal, put_program, wait_for, wait_until};
use serde_json::{Value, json};

use crate::asking::{self, Answer, id, lariat, through};
use crate::claude_store::ClaudeStore;
use crate::sshd::{Sshd, can_serve, make_key};
use crate::tmux::Pane;

/// So long a host may take here: a test is about what it says, unless it is about how long it takes.
const PATIENCE: [&str; 2] = ["--deadline", "60s"];

/// Runs lariat, with patience unless told otherwise.
#[track_caller]
fn ask(sandbox: &Sandbox, args: &[&str]) -> Output {
    let patience = if args.contains(&PATIENCE[0]) { &[][..] } else { &PATIENCE };
    asking::ask(sandbox, &[&args[..1], patience, &args[1..]].concat())
}

/// Everything there is on every machine.
#[track_caller]
fn list(sandbox: &Sandbox) -> Answer {
    Answer::of(&ask(sandbox, &["ls", "-a", "--json"]))
}

/// The machine in front of the person: an ssh that knows where the others are.
fn desk(name: &str) -> Sandbox {
    let desk = Sandbox::new(name);
    let at = |name: &str| desk.root().join(name).to_str().expect("UTF-8").to_owned();
    make_key(&desk, "id");
    fs::write(at("known"), "").expect("known hosts");
    fs::write(at("config"), "").expect("settings");
    script(&desk, "ssh", &format!("exec /usr/bin/ssh -F {} \"$@\"", at("config")));
    desk
}

/// Puts a shell script on the PATH of a machine.
fn script(sandbox: &Sandbox, name: &str, line: &str) {
    put_program(&sandbox.root().join("bin").join(name), format!("#!/bin/sh\n{line}\n"));
}

/// A machine that `ssh NAME` reaches from the desk.
struct Machine {
    sandbox: Sandbox,
    sshd: Sshd,
}

impl Machine {
    fn start(desk: &Sandbox, name: &str) -> Machine {
        let sandbox = Sandbox::new(name);
        let sshd = Sshd::start(&sandbox, &desk.root().join("id.pub"));
        let (identity, known) = (desk.root().join("id"), desk.root().join("known"));
        append(&known, &sshd.known());
        append(&desk.root().join("config"), &sshd.entry(name, &identity, &known));
        Machine { sandbox, sshd }
    }

    /// The same, named to the lariat of the desk.
    fn added(desk: &Sandbox, name: &str) -> Machine {
        let machine = Machine::start(desk, name);
        let added = ask(desk, &["host", "add", name]);
        assert_eq!(added.code(), 0, "{}{}", added.stdout, added.stderr);
        machine
    }

    fn is_gone(&self) {
        self.sshd.process.signal(Signal::KILL);
        self.sshd.process.wait(DEADLINE);
    }
}

fn append(path: &Path, text: &str) {
    let before = fs::read_to_string(path).expect("a file");
    fs::write(path, before + text).expect("a file");
}

/// A lookalike in the middle of a turn.
fn working(sandbox: &Sandbox, number: u64) -> (Lookalike, String) {
    let claude = ClaudeStore::of(sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    let one = id(number);
    drop(claude.register(&agent, &one).says("busy"));
    drop(claude.session(&one).asked("fix it").calls("Bash", json!({"command": "make"})));
    (agent, one)
}

fn is_alive(sandbox: &Sandbox, agent: &Lookalike) -> bool {
    sandbox.processes().iter().any(|p| p.pid == agent.pid() && p.state != 'Z')
}

/// The warnings about hosts.
fn of_hosts(seen: &Answer) -> Vec<String> {
    seen.warnings().into_iter().filter(|w| w.starts_with("host ")).collect()
}

fn outcome(output: &Output) -> (i32, Value) {
    let last = output.stdout.lines().last().unwrap_or("null");
    (output.code(), serde_json::from_str(last).unwrap_or_else(|_| panic!("{}{}", output.stdout, output.stderr)))
}

#[test]
fn a_host_is_kept_listed_and_forgotten() {
    if !can_serve() {
        return;
    }
    let desk = desk("hosts-kept");
    let machine = Machine::start(&desk, "box");
    let version = asking::ask(&desk, &["--version"]).stdout;
    let added = ask(&desk, &["host", "add", "box"]);
    assert_eq!(added.code(), 0, "{}", added.stderr);
    assert!(added.stdout.contains(&format!("{} answers at box", version.trim())), "{}", added.stdout);
    let folder = desk.state_dir().join("lariat/hosts");
    let mode = |path: &Path| fs::metadata(path).expect("our file").permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("box.json"))), (0o700, 0o600));
    // One that cannot be reached is kept all the same, with what to do next.
    let (code, told) = outcome(&ask(&desk, &["host", "add", "far", "dev@far.invalid", "--json"]));
    assert_eq!((code, &told["reachable"], &told["version"]), (5, &json!(false), &Value::Null), "{told}");
    assert!(told["error"].as_str().expect("why").contains("`ssh dev@far.invalid true` must work"), "{told}");
    // One without lariat says so, until it is told where that is.
    fs::remove_file(machine.sandbox.root().join("bin/lariat")).expect("its lariat");
    let (code, told) = outcome(&ask(&desk, &["host", "add", "box", "--json"]));
    assert!(code == 5 && told["error"].as_str().expect("why").contains("--lariat PATH"), "{told}");
    machine.sandbox.install("lariat of mine", Path::new(asking::LARIAT));
    let place = machine.sandbox.root().join("bin/lariat of mine");
    let place = place.to_str().expect("UTF-8");
    let (code, told) = outcome(&ask(&desk, &["host", "add", "box", "--lariat", place, "--json"]));
    assert_eq!((code, &told["reachable"]), (0, &json!(true)), "{told}");
    let checked = ask(&desk, &["doctor"]).stdout;
    assert!(checked.contains("box: lariat") && checked.contains("far: "), "{checked}");
    let (code, told) = outcome(&ask(&desk, &["host", "ls", "--json"]));
    let names: Vec<&Value> = told["hosts"].as_array().expect("hosts").iter().map(|h| &h["name"]).collect();
    assert_eq!((code, names), (5, vec![&json!("box"), &json!("far")]), "{told}");
    assert_eq!(told["hosts"][0]["lariat"], place);
    assert_eq!(ask(&desk, &["host", "rm", "far"]).code(), 0);
    assert_eq!(ask(&desk, &["host", "rm", "far"]).code(), 2);
    let (code, told) = outcome(&ask(&desk, &["host", "ls", "--json"]));
    assert_eq!((code, told["hosts"].as_array().expect("hosts").len()), (0, 1), "{told}");
    // Names that would mean two things, and destinations that would be options.
    for bad in [&["claude"][..], &["local"], &["a/b"], &["x", "-oProxyCommand=touch"]] {
        let refused = ask(&desk, &[&["host", "add"], bad].concat());
        assert_eq!(refused.code(), 2, "{bad:?}: {}", refused.stdout);
    }
    assert_eq!(ask(&desk, &["ls", "--host", "nobody"]).code(), 2);
}

#[test]
fn every_host_answers_for_its_own_and_one_that_is_down_harms_nobody() {
    if !can_serve() {
        return;
    }
    let desk = desk("hosts-rows");
    let (one, two) = (Machine::added(&desk, "one"), Machine::added(&desk, "two"));
    let (here, a) = working(&desk, 1);
    let (there, b) = working(&one.sandbox, 2);
    let (far, c) = working(&two.sandbox, 3);
    let seen = list(&desk);
    assert_eq!((seen.code, seen.warnings()), (0, vec![]), "{:#}", seen.json);
    for (id, agent, host) in [(&a, &here, Value::Null), (&b, &there, json!("one")), (&c, &far, json!("two"))] {
        seen.expect(id, "working", Some(agent.pid()));
        assert_eq!((&seen.session(id)["host"], &seen.session(id)["prompt"]), (&host, &json!("fix it")));
    }
    let table = ask(&desk, &["ls"]);
    assert!(table.stdout.contains("one:00000002") && table.stdout.contains("two:00000003"), "{}", table.stdout);
    let of = |host: &str| Answer::of(&ask(&desk, &["ls", "--json", "--host", host]));
    assert_eq!((of("two").sessions().len(), of("two").session(&c)["host"].clone()), (1, json!("two")));
    assert_eq!((of("local").sessions().len(), of("local").find(&a).is_some()), (1, true));
    for (host, count) in [("local", 1), ("one", 1)] {
        let (code, told) = outcome(&ask(&desk, &["status", "--host", host, "--json"]));
        assert_eq!((code, &told["working"]), (0, &json!(count)), "{host}: {told}");
    }
    assert_eq!(outcome(&ask(&desk, &["status", "--json"])).1["working"], 3);
    // One session, by its name there or by what fits only it.
    for target in [format!("one:{b}"), b.clone(), "00000002".into(), "one:0".into()] {
        let (code, told) = outcome(&ask(&desk, &["status", &target, "--json"]));
        assert_eq!((code, &told["native_id"], &told["host"]), (0, &json!(b), &json!("one")), "{target}: {told}");
    }
    let many = ask(&desk, &["status", "0000"]);
    let all = [format!("claude:{a}"), format!("one:claude:{b}"), format!("two:claude:{c}")];
    assert!(many.code() == 2 && all.iter().all(|id| many.stderr.contains(id)), "{}", many.stderr);
    let told = ask(&desk, &["explain", &format!("one:{b}")]).stdout;
    assert!(told.contains("decided by") && told.contains("registry"), "{told}");
    let said = ask(&desk, &["peek", &format!("two:{c}"), "--json"]);
    assert!(said.code() == 0 && said.stdout.contains("fix it"), "{}{}", said.stdout, said.stderr);
    // What a host says of itself is only of itself: they may name each other.
    ask(&one.sandbox, &["host", "add", "back", "desk.invalid"]);
    assert_eq!(list(&desk).code, 0, "a host that is asked asks nobody");

    // A daemon gives the same, and none of it warm.
    ask(&desk, &["daemon", "start"]).expect_success();
    list(&desk).expect(&c, "working", Some(far.pid()));
    drop(ClaudeStore::of(&two.sandbox).register(&far, &c).says("idle"));
    list(&desk).expect(&c, "idle", Some(far.pid()));
    ask(&desk, &["daemon", "stop"]).expect_success();

    two.is_gone();
    let seen = list(&desk);
    seen.expect(&a, "working", Some(here.pid()));
    seen.expect(&b, "working", Some(there.pid()));
    seen.expect(&c, "unknown", None);
    assert_eq!((seen.code, &seen.session(&c)["host"], &seen.session(&c)["live"]), (5, &json!("two"), &Value::Null));
    let reason = seen.session(&c)["reason"].as_str().expect("a reason");
    assert!(reason.contains("the host two does not answer") && reason.contains("last good answer is"), "{reason}");
    let [warning] = of_hosts(&seen).try_into().expect("one warning");
    assert!(warning.contains("Connection refused") && warning.contains("`ssh two true` must work"), "{warning}");
    assert!(seen.json["warnings"][0]["last_ok"].is_string(), "{:#}", seen.json["warnings"]);
    // It is looked at by memory and acted on by nobody.
    let (code, told) = outcome(&ask(&desk, &["status", &c, "--json"]));
    assert_eq!((code, &told["status"]), (5, &json!("unknown")), "{told}");
    let killed = ask(&desk, &["kill", &c]);
    assert!(killed.code() == 5 && killed.stderr.contains("may not have been done"), "{}", killed.stderr);
    assert!(is_alive(&two.sandbox, &far) && is_alive(&desk, &here));
    // What is whole here needs nobody else.
    assert_eq!(outcome(&ask(&desk, &["status", &a, "--json"])).0, 0);
    // Without the memory only the warning stands.
    fs::remove_dir_all(desk.home().join(".cache/lariat")).expect("our cache");
    let seen = list(&desk);
    assert_eq!((seen.code, seen.find(&c), of_hosts(&seen).len()), (5, None, 1), "{:#}", seen.json);
}

#[test]
fn one_that_hangs_costs_no_more_than_the_deadline() {
    if !can_serve() {
        return;
    }
    let desk = desk("hosts-hang");
    let (one, two) = (Machine::added(&desk, "one"), Machine::added(&desk, "two"));
    let (_here, a) = working(&desk, 1);
    let (there, b) = working(&one.sandbox, 2);
    let (far, c) = working(&two.sandbox, 3);
    list(&desk).expect(&c, "working", Some(far.pid()));
    two.sshd.process.signal(Signal::STOP);
    let began = Instant::now();
    let seen = Answer::of(&ask(&desk, &["ls", "--json", "--deadline", "4s"]));
    let took = began.elapsed();
    // A whole id of here, and one that names its machine, wait for nobody else.
    let began = Instant::now();
    for target in [a.clone(), format!("one:{b}")] {
        assert_eq!(ask(&desk, &["status", &target, "--deadline", "60s"]).code(), 0);
    }
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    // One that lets us in and then says nothing is no better.
    script(&one.sandbox, "lariat", "exec tail -f /dev/null");
    let asked = Instant::now();
    let silent = Answer::of(&ask(&desk, &["ls", "--json", "--host", "one", "--deadline", "2s"]));
    assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
    silent.expect(&b, "unknown", None);
    two.sshd.process.signal(Signal::CONT);
    assert!(took >= Duration::from_secs(3) && took < Duration::from_secs(20), "{took:?}");
    seen.expect(&b, "working", Some(there.pid()));
    seen.expect(&c, "unknown", None);
    assert_eq!((seen.code, of_hosts(&seen).len()), (5, 1), "{:#}", seen.json);
    assert!(!desk.processes().iter().any(|p| p.comm == "ssh" && p.state != 'Z'), "an ssh is left");
}

#[test]
fn a_kill_ends_the_session_there_and_not_the_process_of_that_number_here() {
    if !can_serve() {
        return;
    }
    let desk = desk("hosts-kill");
    let one = Machine::added(&desk, "one");
    // Of two worlds that number their processes alike, two agents with one number.
    let mut ours: Vec<Lookalike> = vec![desk.lookalike("claude", &[])];
    let mut theirs: Vec<Lookalike> = vec![one.sandbox.lookalike("claude", &[])];
    let (here, there) = wait_for("two agents of one number", DEADLINE, || {
        let (a, b) = (ours.last().expect("one").pid(), theirs.last().expect("one").pid());
        match a.cmp(&b) {
            std::cmp::Ordering::Less => ours.push(desk.lookalike("claude", &[])),
            std::cmp::Ordering::Greater => theirs.push(one.sandbox.lookalike("claude", &[])),
            std::cmp::Ordering::Equal => return Some((ours.pop().expect("one"), theirs.pop().expect("one"))),
        }
        None
    });
    let register = |sandbox: &Sandbox, agent: &Lookalike, id: &str| {
        drop(ClaudeStore::of(sandbox).register(agent, id).says("busy"));
        drop(ClaudeStore::of(sandbox).session(id).asked("fix it"));
    };
    let (a, b) = (id(1), id(2));
    register(&desk, &here, &a);
    register(&one.sandbox, &there, &b);
    assert_eq!(list(&desk).session(&b)["pid"], list(&desk).session(&a)["pid"]);
    let (code, told) = outcome(&ask(&desk, &["kill", &b, "--json"]));
    assert_eq!((code, &told["outcome"], &told["ended"]), (0, &json!("stopped"), &json!([there.pid()])), "{told}");
    there.wait(DEADLINE);
    assert!(is_alive(&desk, &here), "the process of that number here goes on");
    let seen = list(&desk);
    seen.expect(&b, "stopped", None);
    seen.expect(&a, "working", Some(here.pid()));
    // The wish is theirs to keep.
    let journal =
        |sandbox: &Sandbox| fs::read_to_string(sandbox.state_dir().join("lariat/journal.ndjson")).unwrap_or_default();
    assert!(journal(&one.sandbox).contains(&b) && !journal(&desk).contains(&b));
    // Its exit code and its words are passed on.
    let none = ask(&desk, &["kill", "one:nobody"]);
    assert!(none.code() == 2 && none.stderr.contains("no session fits 'nobody'"), "{}", none.stderr);
    // What is on two machines is not done by halves.
    let both = ask(&desk, &["kill", &a, &format!("one:{b}")]);
    assert!(both.code() == 2 && both.stderr.contains("different machines"), "{}", both.stderr);
    assert!(is_alive(&desk, &here));
    // All of a machine, only if that is said; all of this one says nothing to any other.
    let (other, c) = working(&one.sandbox, 3);
    let plan = ask(&desk, &["kill", "--all"]).stdout;
    assert!(plan.contains(&a) && !plan.contains(&c), "{plan}");
    assert_eq!(ask(&desk, &["kill", "--all", "--yes", "--host", "one"]).code(), 0);
    other.wait(DEADLINE);
    assert!(is_alive(&desk, &here));
    assert_eq!(ask(&desk, &["restore", "--host", "nobody"]).code(), 2);
}

#[test]
fn what_a_host_sends_acts_on_nothing() {
    if !can_serve() {
        return;
    }
    let desk = desk("hosts-garbage");
    let (one, two) = (Machine::added(&desk, "one"), Machine::added(&desk, "two"));
    let (there, b) = working(&two.sandbox, 2);
    let says = |text: &str| {
        fs::write(one.sandbox.root().join("answer"), text).expect("an answer");
        let answer = one.sandbox.root().join("answer");
        script(&one.sandbox, "lariat", &format!("cat {}; printf '\\033[2Jfor you\\n' >&2", answer.display()));
    };
    for garbage in ["", "Welcome to one!\n{}", "[[[[", "{\"schema\":1,\"sessions\":{}}", "\x1b]0;x\x07\u{202e}", "null"]
    {
        says(garbage);
        let seen = list(&desk);
        seen.expect(&b, "working", Some(there.pid()));
        let warnings = of_hosts(&seen);
        assert_eq!((seen.code, warnings.len()), (5, 1), "{garbage:?}: {warnings:?}");
        assert!(!seen.text.contains('\x1b') && !seen.text.contains('\u{202e}'), "{}", seen.text);
    }
    // A newer one: what is not known is left out, what is missing is null.
    let newer = json!({"schema": 9, "sessions": [
        {"id": "claude:x", "agent": "claude", "status": "working", "live": true, "pid": there.pid(), "mood": "good",
         "title": "\u{1b}[31mred", "handle": "\u{1b}]0;x\u{7}", "reason": "turn open"},
        {"id": "nothing"}, "odd"], "unbound": [{"agent": "codex", "pid": 1, "why": "\u{1b}[2J"}]});
    says(&newer.to_string());
    let seen = list(&desk);
    let row = seen.session("x");
    assert_eq!(
        (&row["status"], &row["host"], &row["cwd"], &row["tokens"]),
        (&json!("working"), &json!("one"), &Value::Null, &Value::Null)
    );
    let warnings = of_hosts(&seen).join("\n");
    assert!(warnings.contains("schema 9") && warnings.contains("2 of its rows"), "{warnings}");
    assert_eq!((&seen.json["unbound"][0]["host"], seen.unbound()), (&json!("one"), vec![1]));
    for words in [&["ls"][..], &["kill", "one:claude:x"], &["explain", "one:claude:x"], &["logs", "one:x"]] {
        let shown = ask(&desk, words);
        assert!(!shown.stdout.contains('\x1b') && !shown.stderr.contains('\x1b'), "{words:?}: {shown:?}");
    }
    says("\x1b[2Jdone \u{202e}\n\x1b]0;x\x07");
    let shown = ask(&desk, &["kill", "one:claude:x"]);
    assert!(shown.stdout.contains("2Jdone") && !shown.stdout.contains(['\x1b', '\u{202e}']), "{shown:?}");
    // One that never stops talking is given up on.
    script(&one.sandbox, "lariat", "cat /dev/zero");
    let seen = Answer::of(&ask(&desk, &["ls", "-a", "--json", "--deadline", "20s"]));
    seen.expect(&b, "working", Some(there.pid()));
    assert!(of_hosts(&seen)[0].contains("more than 64 MB"), "{:?}", of_hosts(&seen));
}

#[test]
fn words_arrive_as_they_were_said_and_what_is_followed_ends_with_us() {
    if !can_serve() {
        return;
    }
    let desk = desk("hosts-words");
    let one = Machine::added(&desk, "one");
    let heard = one.sandbox.root().join("heard");
    script(
        &one.sandbox,
        "lariat",
        &format!("{{ printf '<%s>' \"$LARIAT_HERE\" \"$@\"; cat; }} >{}; exit 3", heard.display()),
    );
    let odd = "it's $HOME `id` $(id) \\ \"q\" ; exit\nnew line * ?";
    let sent = asking::ask(&desk, &["send", "one:x", odd, "--key", "one:x"]);
    assert_eq!(sent.code(), 3, "its exit code is ours: {}", sent.stderr);
    assert_eq!(fs::read_to_string(&heard).expect("what was heard"), format!("<1><send><x><{odd}><--key><one:x>"));
    let launched = asking::ask(&desk, &["launch", "claude", "--host", "one", "-p", odd, "--", "--host", "one"]);
    assert_eq!(launched.code(), 3);
    let expected = format!("<1><launch><claude><-p><{odd}><--><--host><one>");
    assert_eq!(fs::read_to_string(&heard).expect("what was heard"), expected);
    // What stands in our standard input is for whoever was told to read it, and for nobody else.
    let told = || fs::read(&heard).expect("what was heard");
    assert_eq!(through(&desk, "printf 'by input' | \"$@\"", &["send", "one:x", "-"]).code(), 3);
    assert_eq!(told(), b"<1><send><x><->by input");
    let each = "printf 'a\\nb\\n' | while read line; do \"$@\" one:$line; echo $line; done";
    assert_eq!(through(&desk, each, &["kill"]).stdout, "a\nb\n");
    // A command line that came by standard input may be secret, and goes on the same way.
    assert_eq!(through(&desk, "printf 'send\\0one:x\\0a secret' | \"$@\"", &["__verb"]).code(), 3);
    assert_eq!(told(), b"<1><__verb>send\0x\0a secret");
    // One that waits there ends when we do.
    one.sandbox.install("lariat", Path::new(asking::LARIAT));
    let (_there, b) = working(&one.sandbox, 2);
    let waiting = desk.spawn(&lariat(&desk, &["wait", &format!("one:{b}")]));
    let waits = || {
        one.sandbox
            .processes()
            .iter()
            .any(|p| p.state != 'Z' && p.argv.iter().any(|a| a == "wait") && p.comm == "lariat")
    };
    wait_until("it waits there", DEADLINE, waits);
    waiting.signal(Signal::KILL);
    waiting.wait(DEADLINE);
    wait_until("nobody waits there any more", DEADLINE, || !waits());
}

#[test]
fn what_is_launched_there_is_shown_attached_to_and_stopped_from_here() {
    if !can_serve() {
        return;
    }
    let desk = desk("hosts-launch");
    let one = Machine::added(&desk, "one");
    drop(Lookalike::program(&one.sandbox, "claude"));
    let place = one.sandbox.work();
    let cwd = place.to_str().expect("UTF-8");
    let (code, launched) = outcome(&ask(&desk, &["launch", "claude", "--host", "one", "--cwd", cwd, "--json"]));
    assert_eq!(code, 0, "{launched}");
    let (handle, native) = (launched["handle"].as_str().expect("text"), launched["native_id"].as_str().expect("text"));
    let seen = list(&desk);
    assert_eq!((&seen.session(native)["host"], &seen.session(native)["handle"]), (&json!("one"), &json!(handle)));
    assert!(fs::read_dir(desk.state_dir().join("lariat/sessions")).is_err(), "nothing was launched here");
    // Its terminal, in ours.
    let terminal = desk.terminal(&lariat(&desk, &["attach", handle]));
    terminal.wait_for_text("Ctrl-Q leaves", DEADLINE);
    let answer = place.join("answer");
    // The lookalike does what it is told on its terminal.
    terminal.type_text(&format!("write {} yes", answer.display()));
    terminal.press(Key::Enter);
    wait_until("what was typed was done there", DEADLINE, || answer.exists());
    terminal.press(Key::Ctrl('q'));
    assert_eq!(terminal.wait(DEADLINE), Exit::Code(0), "{}", terminal.text());
    // The screen shows it, and its keys act there.
    let pane = Pane::new(&desk, 120, 30);
    pane.shell("lariat top --deadline 60s");
    pane.wait(&format!("one:{handle}"));
    pane.press(&["x"]);
    pane.wait(&format!("stop one:{handle}"));
    pane.press(&["y"]);
    wait_until("it has ended there", DEADLINE, || list(&one.sandbox).status(native) == "stopped");
    pane.press(&["q"]);
}

#[test]
fn a_daemon_that_knows_an_answer_by_heart_hears_of_the_first_host() {
    if !can_serve() {
        return;
    }
    let desk = desk("hosts-warm");
    let one = Machine::start(&desk, "one");
    let (there, b) = working(&one.sandbox, 2);
    // With these there, nothing stirs when a host is added.
    for folder in ["claims", "fuses", "sessions"] {
        fs::create_dir_all(desk.state_dir().join("lariat").join(folder)).expect("a folder of ours");
    }
    ask(&desk, &["daemon", "start"]).expect_success();
    let warm = || ask(&desk, &["daemon", "status", "--json"]).json()["answers_warm"].as_u64().expect("a number");
    wait_until("an answer that needed no look", DEADLINE, || {
        let before = warm();
        assert!(list(&desk).find(&b).is_none());
        warm() > before
    });
    ask(&desk, &["host", "add", "one"]).expect_success();
    list(&desk).expect(&b, "working", Some(there.pid()));
    ask(&desk, &["daemon", "stop"]).expect_success();
}

#[test]
fn a_connection_that_the_user_s_ssh_keeps_is_used_and_holds_nobody_up() {
    if !can_serve() {
        return;
    }
    let desk = desk("hosts-persist");
    let one = Machine::added(&desk, "one");
    let (there, b) = working(&one.sandbox, 2);
    append(&desk.root().join("config"), "Host *\n ControlMaster auto\n ControlPath /tmp/%n\n ControlPersist yes\n");
    let listeners = || desk.processes().into_iter().filter(|p| p.comm == "ssh" && p.state != 'Z').collect::<Vec<_>>();
    list(&desk).expect(&b, "working", Some(there.pid()));
    let kept = listeners();
    assert_eq!(kept.len(), 1, "ssh keeps its connection: {kept:?}");
    // Nobody new is let in, and the one that is there serves.
    one.is_gone();
    list(&desk).expect(&b, "working", Some(there.pid()));
    assert_eq!(asking::ask(&desk, &["kill", &format!("one:{b}")]).code(), 0);
    there.wait(DEADLINE);
    assert_eq!(listeners().first().map(|p| p.pid), kept.first().map(|p| p.pid));
    desk.run(["ssh", "-O", "exit", "one"]).expect_success();
}

#[test]
fn what_is_not_lariat_s_is_no_answer_of_a_verb_that_acts() {
    let desk = desk("hosts-odd");
    script(&desk, "ssh", "echo hello, not json");
    ask(&desk, &["host", "add", "junk"]);
    for verb in [&["kill"][..], &["stop"], &["send", "x"], &["peek"], &["wait"], &["rename", "x"]] {
        let (verb, rest) = verb.split_first().expect("a verb");
        let told = asking::ask(&desk, &[&[*verb, "junk:foo"], rest, &["--json"]].concat());
        let error = &told.json()["error"];
        assert_eq!((told.code(), &error["code"]), (5, &json!(5)), "{verb}: {told:?}");
        let text = error["text"].as_str().expect("a text");
        assert!(text.contains("junk") && text.contains("hello, not json"), "{verb}: {told:?}");
    }
    for args in [&["launch", "claude", "--host", "junk"][..], &["restore", "--host", "junk"]] {
        assert_eq!(asking::ask(&desk, &[args, &["--json"]].concat()).code(), 5, "{args:?}");
    }
    // Nor is there a number of sessions on a machine that was not asked for it.
    script(&desk, "ssh", "echo \"lariat: no session fits 'foo'\" >&2; exit 2");
    let told = asking::ask(&desk, &["status", "junk:foo"]);
    assert!(told.code() == 2 && !told.stderr.contains("lists all 0"), "{told:?}");
    assert!(told.stderr.contains("lariat ls -a --host junk"), "{told:?}");
}
