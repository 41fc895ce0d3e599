//! The daemon: it is one, it is disposable, it tells what happens, and no answer depends on it.
//! Scenarios 1, 2, 6, 20, 26 and 37 with a daemon in play; rows 7 and 8 of what must hold.

mod telling;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use lariat_testkit::{Child, DEADLINE, Exit, Lookalike, Sandbox, Signal, put_program, wait_until};
use serde_json::{Value, json};
use telling::life;

use crate::{
    asking::{LARIAT, ask, id, lariat, list},
    claude_store::ClaudeStore,
};

/// Starts a daemon, as a person would.
#[track_caller]
pub fn start(sandbox: &Sandbox) -> i32 {
    let told = ask(sandbox, &["daemon", "start"]);
    assert_eq!(told.code(), 0, "{}", told.stderr);
    pid(sandbox)
}

#[track_caller]
fn status(sandbox: &Sandbox) -> Value {
    let told = ask(sandbox, &["daemon", "status", "--json"]);
    assert_eq!(told.code(), 0, "{}", told.stderr);
    told.json()
}

#[track_caller]
fn pid(sandbox: &Sandbox) -> i32 {
    i32::try_from(status(sandbox)["pid"].as_i64().expect("a pid")).expect("a pid")
}

/// Ends the daemon as the kernel does when memory runs out.
#[track_caller]
pub fn kill(sandbox: &Sandbox, pid: i32) {
    let daemon = sandbox.world().process(pid).expect("the daemon");
    assert!(daemon.signal(Signal::KILL));
    wait_until("the daemon is gone", DEADLINE, || sandbox.world().process(pid).is_none_or(|p| p.state == 'Z'));
}

pub fn daemons(sandbox: &Sandbox) -> usize {
    let is = |p: &lariat_testkit::world::Process| p.argv.get(1).is_some_and(|a| a == "__daemon") && p.state != 'Z';
    sandbox.processes().iter().filter(|p| is(p)).count()
}

fn with_agents(name: &str) -> Sandbox {
    let sandbox = Sandbox::new(name);
    drop(Lookalike::program(&sandbox, "claude"));
    sandbox
}

fn launch(sandbox: &Sandbox, project: &str) -> Value {
    let place = sandbox.project(project);
    let told = ask(sandbox, &["launch", "claude", "--json", "--cwd", place.to_str().expect("UTF-8")]);
    assert_eq!(told.code(), 0, "{}", told.stderr);
    told.json()
}

fn agent_pid(launched: &Value) -> i32 {
    i32::try_from(launched["pid"].as_i64().expect("a pid")).expect("a pid")
}

/// Listens to events; returns once it hears.
pub fn listen(sandbox: &Sandbox) -> Child {
    let listener = sandbox.spawn(&lariat(sandbox, &["events", "-f"]));
    listener.wait_for_stdout("\"event\":\"reset\"", DEADLINE);
    listener
}

/// The events heard so far.
pub fn heard(listener: &Child) -> Vec<Value> {
    let said = listener.stdout();
    let whole = &said[..said.rfind('\n').map_or(0, |end| end + 1)];
    whole.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect()
}

/// The names of the events about one session.
pub fn names(listener: &Child, native_id: &str) -> Vec<String> {
    let about = |e: &Value| e["session"]["native_id"] == native_id;
    let name = |e: Value| e["event"].as_str().expect("a name").to_owned();
    heard(listener).into_iter().filter(about).map(name).collect()
}

#[track_caller]
pub fn wait_for_event(listener: &Child, native_id: &str, name: &str) {
    wait_until(&format!("{name} of {native_id}"), DEADLINE, || names(listener, native_id).iter().any(|n| n == name));
}

#[test]
fn there_is_one_however_many_are_started_at_once() {
    let sandbox = Sandbox::new("one");
    for _ in 0..5 {
        let starting: Vec<_> =
            (0..16).map(|_| sandbox.spawn(&lariat(&sandbox, &["daemon", "start", "--json"]))).collect();
        let told: Vec<Value> = starting.iter().map(|s| s.output(DEADLINE).expect_success().json()).collect();
        assert_eq!(told.iter().filter(|t| t["daemon"] == "started").count(), 1, "{told:?}");
        assert_eq!(told.iter().filter(|t| t["daemon"] == "running").count(), 15, "{told:?}");
        // Those that lost have said so, and are leaving.
        wait_until("the others are gone", DEADLINE, || daemons(&sandbox) == 1);
        // No clean-up: the next one starts on what this one leaves.
        kill(&sandbox, pid(&sandbox));
    }
    start(&sandbox);
    assert_eq!(ask(&sandbox, &["daemon", "restart"]).code(), 0);
    assert_eq!(ask(&sandbox, &["daemon", "stop"]).code(), 0);
    assert_eq!(daemons(&sandbox), 0);
    assert_eq!(ask(&sandbox, &["daemon", "stop"]).code(), 0, "there is none to stop");
    assert_eq!(ask(&sandbox, &["daemon", "status"]).code(), 1);
    let logged = ask(&sandbox, &["daemon", "logs"]);
    assert!(logged.stdout.contains("start: lariat"), "{}", logged.stdout);
    let lock = sandbox.state_dir().join("lariat/daemon.lock");
    assert!(lock.exists(), "the lock is never deleted");
}

#[test]
fn in_the_foreground_it_is_the_very_process_and_nothing_starts_one_unasked() {
    let sandbox = Sandbox::new("fore");
    for verb in [&["ls", "--json"][..], &["status", "--json"], &["events"], &["daemon", "status"], &["daemon", "stop"]]
    {
        ask(&sandbox, verb);
        assert_eq!(daemons(&sandbox), 0, "{verb:?}");
    }
    let daemon = sandbox.spawn(&lariat(&sandbox, &["daemon", "start", "--foreground"]));
    daemon.wait_for_stdout("ready", DEADLINE);
    assert_eq!(pid(&sandbox), daemon.pid());
    let second = ask(&sandbox, &["daemon", "start", "--foreground"]);
    assert_eq!(second.code(), 3, "{}", second.stderr);
    assert_eq!(ask(&sandbox, &["daemon", "stop"]).code(), 0);
    assert_eq!(daemon.wait(DEADLINE), Exit::Code(0));
}

#[test]
fn a_door_that_others_could_open_is_none() {
    let sandbox = Sandbox::new("door");
    let folder = sandbox.runtime_dir().join("lariat");
    let elsewhere = sandbox.root().join("elsewhere");
    fs::create_dir_all(&elsewhere).expect("a folder");
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o700)).expect("a mode");
    std::os::unix::fs::symlink(&elsewhere, &folder).expect("a link where our folder should be");
    let refused = ask(&sandbox, &["daemon", "start"]);
    assert_eq!(refused.code(), 1);
    assert!(refused.stderr.contains("not a directory"), "{}", refused.stderr);
    fs::remove_file(&folder).expect("the link is gone");
    fs::create_dir(&folder).expect("a folder");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("a mode");
    let refused = ask(&sandbox, &["daemon", "start"]);
    assert!(refused.code() == 1 && refused.stderr.contains("open to others"), "{}", refused.stderr);
    // One that was opened later is not walked through by clients either.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("a mode");
    start(&sandbox);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("a mode");
    let refused = ask(&sandbox, &["daemon", "status"]);
    assert!(refused.code() == 1 && refused.stderr.contains("open to others"), "{}", refused.stderr);
    assert_eq!(ask(&sandbox, &["ls", "--json"]).code(), 0, "and every question is answered all the same");
    assert_eq!(fs::read_dir(&elsewhere).expect("a folder").count(), 0);
}

#[test]
fn s01_launcher_and_daemon_are_killed_and_the_next_daemon_lists_it() {
    let sandbox = with_agents("d01");
    let daemon = start(&sandbox);
    let launched = launch(&sandbox, "proj");
    let native = launched["native_id"].as_str().expect("an id");
    kill(&sandbox, daemon);
    start(&sandbox);
    for _ in 0..2 {
        let seen = list(&sandbox);
        seen.expect(native, "starting", Some(agent_pid(&launched)));
        assert_eq!(seen.session(native)["handle"], launched["handle"]);
    }
    let listener = listen(&sandbox);
    let there = &heard(&listener)[0]["listing"]["sessions"];
    assert_eq!((&there[0]["id"], &there[0]["pid"]), (&launched["id"], &launched["pid"]));
}

#[test]
fn s26_whatever_becomes_of_the_daemon_no_agent_notices() {
    let sandbox = with_agents("d26");
    let first = launch(&sandbox, "before");
    start(&sandbox);
    let second = launch(&sandbox, "during");
    let steps: [&dyn Fn(); 4] = [
        &|| drop(ask(&sandbox, &["daemon", "stop"]).expect_success()),
        &|| {
            start(&sandbox);
        },
        &|| drop(ask(&sandbox, &["daemon", "restart"]).expect_success()),
        &|| kill(&sandbox, pid(&sandbox)),
    ];
    for step in steps {
        step();
        let seen = list(&sandbox);
        for launched in [&first, &second] {
            seen.expect(launched["native_id"].as_str().expect("an id"), "starting", Some(agent_pid(launched)));
        }
    }
}

#[test]
fn it_is_no_part_of_the_session_whose_tool_started_it() {
    let sandbox = Sandbox::new("daemon-by-tool");
    crate::resuming::install(&sandbox);
    let place = sandbox.project("a");
    fs::write(place.join("run"), format!("{LARIAT} daemon start\n")).expect("a tool");
    let told = ask(
        &sandbox,
        &["launch", "claude", "--headless", "-p", "hi", "--json", "--cwd", place.to_str().expect("UTF-8")],
    );
    let handle = told.json()["handle"].as_str().expect("a handle").to_owned();
    wait_until("it can be asked", DEADLINE, || ask(&sandbox, &["daemon", "status"]).code() == 0);
    let daemon = pid(&sandbox);
    for verb in ["kill", "stop"] {
        ask(&sandbox, &[verb, &handle]).expect_success();
        assert_eq!(pid(&sandbox), daemon, "after {verb}");
    }
    let environment = sandbox.run(["cat", &format!("/proc/{daemon}/environ")]).stdout;
    assert!(environment.contains("HOME=") && !environment.contains("LARIAT_SESSION="), "{environment}");
    let cgroup = sandbox.run(["cat", &format!("/proc/{daemon}/cgroup")]).stdout;
    assert!(!cgroup.contains("lariat."), "{cgroup}");
}

#[test]
fn s37_a_lock_ends_with_its_holder_and_a_persons_survives_every_daemon() {
    let sandbox = with_agents("d37");
    start(&sandbox);
    let listener = listen(&sandbox);
    let (mine, theirs) = (sandbox.project("mine"), sandbox.project("theirs"));
    let launched = launch(&sandbox, "theirs");
    ask(&sandbox, &["lock", mine.to_str().expect("UTF-8"), "--by", "eve"]).expect_success();
    listener.wait_for_stdout("claim.taken", DEADLINE);
    let locks = |sandbox: &Sandbox| ask(sandbox, &["locks", "--json"]).json()["locks"].to_string();
    assert!(locks(&sandbox).contains(theirs.to_str().expect("UTF-8")));
    let agent = sandbox.world().process(agent_pid(&launched)).expect("it lives");
    assert!(agent.signal(Signal::KILL));
    wait_until("it is gone", DEADLINE, || sandbox.world().process(agent.pid).is_none_or(|p| p.state == 'Z'));
    assert!(!locks(&sandbox).contains(theirs.to_str().expect("UTF-8")), "free within one question");
    kill(&sandbox, pid(&sandbox));
    start(&sandbox);
    assert!(locks(&sandbox).contains("eve"), "a person's lock is a person's wish");
    let listener = listen(&sandbox);
    ask(&sandbox, &["unlock", mine.to_str().expect("UTF-8")]).expect_success();
    listener.wait_for_stdout("claim.released", DEADLINE);
}

#[test]
fn s06_after_many_short_sessions_the_counts_are_those_of_what_lives() {
    let sandbox = Sandbox::new("d06");
    let claude = ClaudeStore::of(&sandbox);
    start(&sandbox);
    let mut alive = Vec::new();
    for n in 1..=40 {
        let agent = sandbox.lookalike("claude", &[]);
        let entry = claude.register(&agent, &id(n)).says("idle");
        drop(claude.session(&id(n)).asked("a short one").answered("done").left());
        if n % 10 == 0 {
            alive.push((agent, entry));
        } else {
            entry.remove();
            agent.signal(Signal::KILL);
            agent.wait(DEADLINE);
        }
    }
    let counts = status(&sandbox)["counts"].clone();
    assert_eq!((&counts["idle"], &counts["ended"], &counts["unknown"]), (&json!(4), &json!(36), &json!(0)), "{counts}");
    let locks = ask(&sandbox, &["locks", "--json"]).json();
    assert_eq!(locks["locks"].as_array().expect("locks").len(), 4);
}

#[test]
fn the_daemon_finishes_a_kill_that_a_crash_cut_short_and_s20_nothing_comes_back() {
    let sandbox = with_agents("d20");
    let launched = launch(&sandbox, "proj");
    let native = launched["native_id"].as_str().expect("an id");
    let handle = launched["handle"].as_str().expect("a handle");
    let died = sandbox.world().run(&lariat(&sandbox, &["kill", handle]).env("LARIAT_DIE_AT", "stop.wished"));
    assert_eq!(died.exit, Exit::Signal(9), "built without --features lariat/pause-points");
    list(&sandbox).expect(native, "starting", Some(agent_pid(&launched)));
    start(&sandbox);
    wait_until("the kill is finished", DEADLINE, || {
        sandbox.world().process(agent_pid(&launched)).is_none_or(|p| p.state == 'Z')
    });
    for _ in 0..2 {
        kill(&sandbox, pid(&sandbox));
        start(&sandbox);
        list(&sandbox).expect(native, "stopped", None);
        let lookalikes = sandbox.processes().iter().filter(|p| p.comm == "claude" && p.state != 'Z').count();
        assert_eq!(lookalikes, 0, "never relaunched");
    }
}

#[test]
fn its_answer_is_the_one_a_fresh_look_gives_at_every_moment() {
    let sandbox = Sandbox::new("fresh");
    let claude = ClaudeStore::of(&sandbox);
    let one = id(1);
    drop(claude.session(&id(2)).asked("an old one").answered("done"));
    let agent = sandbox.lookalike("claude", &[]);
    let mut entry = claude.register(&agent, &one).says("busy");
    let mut talk = claude.session(&one).asked("fix it").calls("Bash", json!({"command": "make"}));
    start(&sandbox);
    let through = |args: &[&str]| ask(&sandbox, args).json();
    // Straight after each change, with no time for anybody to notice.
    for n in 0..25 {
        for _ in 0..2 {
            let seen = through(&["ls", "-a", "--json"]);
            let row =
                seen["sessions"].as_array().expect("rows").iter().find(|s| s["native_id"] == *one).expect("a row");
            assert_eq!(row["status"], "working", "round {n}");
        }
        entry = entry.waits_for("permission prompt");
        assert_eq!(through(&["ls", "--json"])["sessions"][0]["status"], "waiting", "round {n}");
        assert_eq!(through(&["status", "--json"])["needs_you"], 1, "round {n}");
        entry = entry.says("busy");
        talk = talk.result("made").calls("Bash", json!({"command": format!("make {n}")}));
    }
    // A process gives no hint when it begins; so first there must be an answer that would be given again.
    let warm = |sandbox: &Sandbox| status(sandbox)["answers_warm"].as_u64().expect("a count");
    let before = warm(&sandbox);
    wait_until("a warm answer", DEADLINE, || {
        through(&["ls", "--json"]);
        warm(&sandbox) > before
    });
    let stranger = sandbox.lookalike("claude", &[]);
    assert_eq!(through(&["ls", "--json"])["unbound"][0]["pid"], stranger.pid());
    stranger.signal(Signal::KILL);
    stranger.wait(DEADLINE);
    assert_eq!(through(&["ls", "--json"])["unbound"], json!([]));
    // Nothing stirs any more: the same words, with and without the daemon.
    let wants = |status: &Value| status["answers_warm"].as_u64().expect("a count");
    let before = wants(&status(&sandbox));
    for _ in 0..5 {
        through(&["ls", "-a", "--json"]);
    }
    let after = wants(&status(&sandbox));
    assert!(after > before, "no answer was warm: {before} {after}");
    let warm = list(&sandbox).timeless();
    ask(&sandbox, &["daemon", "stop"]).expect_success();
    assert_eq!(warm, list(&sandbox).timeless());
    drop((entry, talk));
}

#[test]
fn one_that_looks_elsewhere_is_not_asked() {
    let sandbox = Sandbox::new("view");
    let claude = ClaudeStore::of(&sandbox);
    drop(claude.session(&id(1)).asked("an old one").answered("done"));
    start(&sandbox);
    assert_eq!(list(&sandbox).sessions().len(), 1);
    let elsewhere = lariat(&sandbox, &["ls", "-a", "--json"]).env("CLAUDE_CONFIG_DIR", sandbox.root().join("none"));
    assert_eq!(sandbox.world().run(&elsewhere).json()["sessions"], json!([]));
}

#[test]
fn what_is_no_question_is_refused_and_harms_nobody() {
    let sandbox = Sandbox::new("odd");
    start(&sandbox);
    let socket = sandbox.runtime_dir().join("lariat/daemon.sock");
    let listener = listen(&sandbox);
    let hello = r#"{"protocol":1,"lariat":"0","view":""}"#;
    let long = format!("{hello}\n{}\n", "x".repeat(2 << 20));
    let odd = [
        "",
        "\n",
        "\0\0\0",
        "GET / HTTP/1.1\r\n\r\n",
        hello,
        &long,
        &format!("{hello}\n{{}}\n"),
        &format!("{hello}\n{{\"ask\":\"answer\",\"arguments\":[\"kill\",\"x\"]}}\n"),
        r#"{"protocol":99,"lariat":"9","view":""}"#,
    ];
    for (n, said) in odd.iter().enumerate() {
        let file = sandbox.root().join(format!("odd{n}"));
        fs::write(&file, said).expect("a file");
        let talk = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\ns.settimeout(30)\n\
            d=open(sys.argv[2],'rb').read()\ntry:\n s.sendall(d)\n s.shutdown(1)\n r=b''\n while True:\n  p=s.recv(65536)\n  if not p: break\n  r+=p\n\
            except (BrokenPipeError, ConnectionResetError): r=b'{}'\nprint(r.decode())";
        let said = sandbox.run(["python3", "-c", talk, socket.to_str().expect("UTF-8"), file.to_str().expect("UTF-8")]);
        said.clone().expect_success();
        assert!(!said.stdout.contains("\"bytes\":1"), "{n}: {}", said.stdout);
    }
    assert_eq!(life(&sandbox, &listener, 1).last().map(String::as_str), Some("session.ended"));
}

#[test]
fn killed_again_and_again_under_load_it_loses_no_agent() {
    let sandbox = with_agents("load");
    let claude = ClaudeStore::of(&sandbox);
    let launched: Vec<Value> = (0..4).map(|n| launch(&sandbox, &format!("p{n}"))).collect();
    let mut entries: Vec<_> = launched
        .iter()
        .map(|l| {
            let process = sandbox.world().process(agent_pid(l)).expect("it lives");
            claude.register_as(process.pid, process.outside, l["native_id"].as_str().expect("an id"))
        })
        .collect();
    for round in 0..20 {
        let daemon = start(&sandbox);
        let listeners = [listen(&sandbox), listen(&sandbox)];
        entries = entries.into_iter().map(|e| e.says(if round % 2 == 0 { "busy" } else { "idle" })).collect();
        let asking: Vec<_> = (0..3).map(|_| sandbox.spawn(&lariat(&sandbox, &["ls", "-a", "--json"]))).collect();
        kill(&sandbox, daemon);
        for answer in asking {
            // A daemon that dies in mid-answer is an error, never half an answer that looks whole.
            let told = answer.output(DEADLINE);
            if told.code() == 0 {
                assert_eq!(told.json()["sessions"].as_array().expect("rows").len(), 4, "{}", told.stdout);
            }
        }
        for (listener, number) in listeners.iter().zip(100..) {
            // It goes on by itself, and says that there is a gap.
            listener.wait_for_stdout("\"why\":\"events were missed\"", DEADLINE);
            if round == 19 {
                assert_eq!(life(&sandbox, listener, number).last().map(String::as_str), Some("session.ended"));
            }
            listener.signal(Signal::KILL);
        }
    }
    let seen = list(&sandbox);
    for l in &launched {
        seen.expect(l["native_id"].as_str().expect("an id"), "idle", Some(agent_pid(l)));
    }
}

#[test]
fn a_unit_is_written_and_taken_away_and_one_of_somebody_else_is_left() {
    let sandbox = Sandbox::new("unit");
    let folder = sandbox.home().join(".config/systemd/user");
    let (path, socket) = (folder.join("lariat.service"), folder.join("lariat.socket"));
    // A systemd that only notes what it was told.
    let (noted, fake) = (sandbox.root().join("noted"), sandbox.root().join("own-systemctl"));
    put_program(&fake, format!("#!/bin/sh\necho $@ >> {}\n", noted.display()));
    sandbox.install("systemctl", &fake);
    ask(&sandbox, &["daemon", "install", "--http", "4700"]).expect_success();
    let unit = fs::read_to_string(&path).expect("a unit");
    assert!(unit.contains("KillMode=process") && unit.contains("__daemon 4700"), "{unit}");
    ask(&sandbox, &["daemon", "install"]).expect_success();
    ask(&sandbox, &["daemon", "uninstall"]).expect_success();
    assert!(!path.exists() && !socket.exists());
    let said = fs::read_to_string(&noted).expect("what was told");
    for verb in ["enable", "start", "stop", "disable"] {
        assert!(said.contains(&format!("--user {verb} lariat.socket lariat.service")), "{said}");
    }
    // One that cannot be asked keeps no unit from being taken away; and that is said.
    ask(&sandbox, &["daemon", "install"]).expect_success();
    put_program(&fake, "#!/bin/sh\necho no bus >&2; exit 1\n");
    let before = fs::read_to_string(&path).expect("a unit");
    assert_eq!(ask(&sandbox, &["daemon", "install", "--http", "4701"]).code(), 1);
    assert_eq!(fs::read_to_string(&path).expect("as it was"), before);
    let told = ask(&sandbox, &["daemon", "uninstall"]);
    assert!(told.code() == 1 && told.stderr.contains("are taken away, but systemctl --user stop"), "{told:?}");
    assert!(!path.exists() && !socket.exists());
    for path in [&path, &socket] {
        fs::write(path, "[Service]\nExecStart=/bin/true\n").expect("a unit of somebody else");
        for verb in ["install", "uninstall"] {
            assert_eq!(ask(&sandbox, &["daemon", verb]).code(), 3);
        }
        assert!(fs::read_to_string(path).expect("it is left").contains("/bin/true"));
        fs::remove_file(path).expect("taken away again");
    }
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0, "nothing was written beside it");
}

#[test]
fn a_daemon_that_stands_still_holds_up_no_question() {
    let sandbox = Sandbox::new("still");
    let daemon = start(&sandbox);
    let process = sandbox.world().process(daemon).expect("the daemon");
    assert!(process.signal(Signal::STOP));
    assert_eq!(ask(&sandbox, &["ls", "--json"]).code(), 0);
    assert_eq!(ask(&sandbox, &["status", "--json"]).code(), 0);
    assert!(process.signal(Signal::CONT));
    assert_eq!(status(&sandbox)["running"], true);
}

#[test]
fn a_terminal_is_noted_of_what_is_asked_in_words_that_cannot_act() {
    let sandbox = Sandbox::new("note");
    let claude = ClaudeStore::of(&sandbox);
    let listener = sandbox.spawn(&lariat(&sandbox, &["events", "-f", "--notify"]));
    listener.wait_for_stdout("\"event\":\"reset\"", DEADLINE);
    let agent = sandbox.lookalike("claude", &[]);
    drop(claude.session(&id(1)).asked("fix it").calls("Bash", json!({"command": "x\u{7}\u{1b}]0;evil;y"})));
    drop(claude.register(&agent, &id(1)).waits_for("permission prompt"));
    let said = listener.wait_for_stdout("\u{1b}]777;notify;", DEADLINE);
    let note = said.split('\u{1b}').nth(1).expect("a note");
    assert!(note.starts_with("]9;") && note.ends_with("\\x07\\x1b]0,evil,y\u{7}"), "{note:?}");
}
