//! Pi's sessions: how each of them stands, whose they may be, and what they are called.

use std::{fs, path::Path};

use lariat_testkit::{Child, DEADLINE, Lookalike, Sandbox, Signal, Stdin, wait_until};
use serde_json::{Value, json};

use crate::{
    asking::{ask, bytes, id, list},
    damage::{Kind, Victim},
    moment::{iso, now},
    pi_store::PiStore,
};

#[test]
fn both_generations_tell_how_the_last_turn_stands() {
    let sandbox = Sandbox::new("pi-stands");
    let pi = PiStore::of(&sandbox);
    pi.session(&id(1)).asked("one").answered("1");
    pi.session(&id(2)).instructed().asked("two").calls("c", "make").result("c").answered("2").named("second");
    pi.session(&id(3)).asked("three").calls("c", "make");
    pi.session(&id(4)).asked("four");
    pi.session(&id(5)).asked("five").calls("c", "make").result("c");
    pi.session(&id(6)).asked("six").failed("400: no");
    pi.session(&id(7)).asked("seven").aborted();
    pi.session(&id(8));
    // A command typed with `!` asks nobody.
    pi.session(&id(9)).asked("nine").answered("9").message(json!({"role": "bashExecution", "command": "ls"}));
    let seen = list(&sandbox);
    for (number, status) in
        [(1, "done"), (2, "done"), (3, "interrupted"), (4, "interrupted"), (5, "interrupted"), (6, "failed")]
    {
        seen.expect(&id(number), status, None);
    }
    seen.expect(&id(7), "stopped", None);
    seen.expect(&id(8), "done", None);
    seen.expect(&id(9), "done", None);
    let second = seen.session(&id(2));
    assert_eq!((&second["name"], &second["prompt"]), (&"second".into(), &"two".into()));
    assert_eq!(second["tokens"], json!({"input": 200, "output": 14, "cache_read": 600, "cache_write": 40}));
    assert_eq!((&second["cost_usd"], &second["model"]), (&1.0.into(), &"scripted-1".into()));
    assert_eq!(seen.session(&id(6))["reason"], "400: no");
    assert_eq!(seen.warnings(), [""; 0]);
}

#[test]
fn what_a_fork_has_copied_is_no_turn_of_its_own() {
    let sandbox = Sandbox::new("pi-forks");
    let pi = PiStore::of(&sandbox);
    let began = now();
    let fork = |number: u64| pi.session_at(&id(number), &sandbox.work(), began).at(began - 60_000).asked("first");
    let cut_off = fork(1).calls("c", "make").path;
    let prompted = fork(2).path;
    let failed = fork(3).failed("400: no").path;
    let its_own = fork(4).calls("c", "make").at(began + 10).asked("second").path;
    for path in [cut_off, prompted, failed, its_own] {
        let text = fs::read_to_string(&path).expect("a session");
        let text = text.replacen('{', r#"{"parentSession":"/x/2026-11-15T07-47-12-340Z_parent.jsonl","#, 1);
        fs::write(&path, text).expect("a fork");
    }
    let seen = list(&sandbox);
    for (number, status) in [(1, "done"), (2, "done"), (3, "failed"), (4, "interrupted")] {
        seen.expect(&id(number), status, None);
    }
    assert_eq!(seen.session(&id(1))["parent"], "pi:parent");
}

#[test]
fn an_id_that_two_projects_share_is_ambiguous_and_never_one_of_them() {
    let sandbox = Sandbox::new("pi-shared-id");
    let pi = PiStore::of(&sandbox);
    pi.session("Only.One").asked("hello").answered("hello");
    pi.session("work").asked("here").answered("here");
    let before = list(&sandbox);
    assert!(before.find("work").is_some(), "alone it has its own name: {:#}", before.json);
    pi.session_in("work", &sandbox.project("apart")).asked("there");
    let seen = list(&sandbox);
    let shared: Vec<String> = seen
        .sessions()
        .iter()
        .filter_map(|s| s["native_id"].as_str())
        .filter(|id| id.starts_with("work@"))
        .map(str::to_owned)
        .collect();
    assert_eq!(shared.len(), 2, "{:#}", seen.json);
    assert!(seen.find("work").is_none(), "neither has the bare one: {:#}", seen.json);
    for verb in ["status", "kill", "peek"] {
        let output = ask(&sandbox, &[verb, "work"]);
        assert_eq!(output.code(), 2, "{verb}: {output:?}");
        assert!(shared.iter().all(|id| output.stderr.contains(id)), "both are named: {}", output.stderr);
    }
    // Each by its own name, and the same one whether all are listed or only the live.
    let prompts: Vec<_> = shared.iter().map(|id| list(&sandbox).session(id)["prompt"].clone()).collect();
    assert!(prompts.contains(&"here".into()) && prompts.contains(&"there".into()), "{prompts:?}");
    let output = ask(&sandbox, &["status", "Only.One", "--json"]);
    assert_eq!((output.code(), &output.json()["native_id"]), (0, &"Only.One".into()), "{output:?}");
    assert_eq!(ask(&sandbox, &["status", "pi:Only.One"]).code(), 0);
}

#[test]
fn one_that_shows_no_session_could_be_any_of_its_directory() {
    let sandbox = Sandbox::new("pi-loose");
    let pi = PiStore::of(&sandbox);
    pi.session(&id(1)).asked("one").answered("1");
    pi.session(&id(2)).asked("two");
    pi.session_in(&id(3), &sandbox.project("apart")).asked("three").answered("3");
    let agent = sandbox.lookalike("pi", &[]);
    let seen = list(&sandbox);
    seen.expect(&id(1), "unknown", None);
    seen.expect(&id(2), "unknown", None);
    seen.expect(&id(3), "done", None);
    assert_eq!((seen.code, seen.unbound()), (5, vec![agent.pid()]));
    // Nothing is signalled on such grounds.
    let output = ask(&sandbox, &["kill", &id(2)]);
    assert_ne!(output.code(), 0, "{output:?}");
    assert!(sandbox.world().process(agent.pid()).is_some(), "it lives on");
    agent.signal(Signal::KILL);
    agent.wait(DEADLINE);
    let seen = list(&sandbox);
    seen.expect(&id(1), "done", None);
    seen.expect(&id(2), "interrupted", None);
}

/// Tells, as the extension does, what a process holds.
fn tells(sandbox: &Sandbox, handle: &str, pid: i32, event: &str, id: &str, file: &Path) {
    use std::io::Write;
    let folder = sandbox.home().join(".local/state/lariat/sessions").join(handle);
    fs::create_dir_all(&folder).expect("a folder of ours");
    let line = json!({"event": event, "pid": pid, "at": iso(now()), "id": id, "file": file,
        "cwd": sandbox.work(), "prompt": "hello"});
    let path = folder.join("pi-events.jsonl");
    let mut file = fs::File::options().create(true).append(true).open(path).expect("its words");
    writeln!(file, "{line}").expect("its words");
}

#[test]
fn what_a_launched_one_tells_is_believed_of_that_process_alone() {
    let sandbox = Sandbox::new("pi-tells");
    let pi = PiStore::of(&sandbox);
    let first = pi.session(&id(1)).asked("one").answered("1");
    let program = Lookalike::program(&sandbox, "pi").env("LARIAT_SESSION", "brisk-heron");
    let agent = Lookalike::start(&sandbox, &program);
    tells(&sandbox, "brisk-heron", agent.pid(), "session_start", &id(1), &first.path);
    list(&sandbox).expect(&id(1), "idle", Some(agent.pid()));
    tells(&sandbox, "brisk-heron", agent.pid(), "agent_start", &id(1), &first.path);
    let first = first.asked("more");
    list(&sandbox).expect(&id(1), "working", Some(agent.pid()));
    tells(&sandbox, "brisk-heron", agent.pid(), "agent_end", &id(1), &first.path);
    let first = first.answered("there is more");
    let seen = list(&sandbox);
    seen.expect(&id(1), "idle", Some(agent.pid()));
    assert_eq!(seen.unbound(), Vec::<i32>::new());

    // A version that says when it has settled is busy until then: it may try again.
    tells(&sandbox, "brisk-heron", agent.pid(), "agent_settled", &id(1), &first.path);
    tells(&sandbox, "brisk-heron", agent.pid(), "agent_start", &id(1), &first.path);
    tells(&sandbox, "brisk-heron", agent.pid(), "agent_end", &id(1), &first.path);
    list(&sandbox).expect(&id(1), "working", Some(agent.pid()));

    // `/new`: another session, which has no file yet. The first has ended, and its process has not.
    let unwritten = first.path.with_file_name(format!("2026-11-15T08-00-00-000Z_{}.jsonl", id(2)));
    tells(&sandbox, "brisk-heron", agent.pid(), "session_start", &id(2), &unwritten);
    let seen = list(&sandbox);
    seen.expect(&id(1), "done", None);
    seen.expect(&id(2), "idle", Some(agent.pid()));
    assert_eq!(seen.session(&id(2))["cwd"], json!(sandbox.work()));

    // One that it started inherits the name, and is not it.
    let nested = Lookalike::start(&sandbox, &program);
    let seen = list(&sandbox);
    seen.expect(&id(2), "idle", Some(agent.pid()));
    assert_eq!(seen.unbound(), [nested.pid()]);
    seen.expect(&id(1), "unknown", None);
    // Nor does it take the other's place.
    agent.signal(Signal::KILL);
    agent.wait(DEADLINE);
    let seen = list(&sandbox);
    assert_eq!(seen.unbound(), [nested.pid()]);
    assert!(seen.find(&id(2)).is_none(), "nothing was ever said in it: {:#}", seen.json);
}

#[test]
fn one_at_rest_that_was_cut_off_before_it_started_does_not_say_that_nothing_was_asked() {
    let sandbox = Sandbox::new("pi-cut-off");
    let pi = PiStore::of(&sandbox);
    let session = pi.session_at(&id(1), &sandbox.work(), now() - 60_000).asked("one").answered("1").asked("two");
    let agent = Lookalike::start(&sandbox, &Lookalike::program(&sandbox, "pi").env("LARIAT_SESSION", "brisk-heron"));
    tells(&sandbox, "brisk-heron", agent.pid(), "session_start", &id(1), &session.path);
    let seen = list(&sandbox);
    seen.expect(&id(1), "idle", Some(agent.pid()));
    assert_eq!(seen.session(&id(1))["reason"], "last turn failed: it was cut off before this process started");
    agent.signal(Signal::KILL);
    agent.wait(DEADLINE);
    list(&sandbox).expect(&id(1), "interrupted", None);
}

/// An agent that is a shell in truth, so that its children are other programs.
fn with_tools(sandbox: &Sandbox) -> Child {
    let shell = fs::canonicalize("/bin/sh").expect("a shell");
    let program = sandbox.program(sandbox.install_copy("pi", &shell));
    sandbox.spawn(&program.arg0("pi").stdin(Stdin::Pipe))
}

#[test]
fn a_tool_s_environment_tells_the_session() {
    let sandbox = Sandbox::new("pi-by-child");
    let pi = PiStore::of(&sandbox);
    let agent = with_tools(&sandbox);
    // Whatever the times in it say: a tool of it is at work.
    let session = pi.session_at(&id(1), &sandbox.work(), now() - 60_000).asked("one").calls("c", "sleep 9999");
    pi.session(&id(2)).asked("two").answered("2");
    assert_eq!(list(&sandbox).unbound(), [agent.pid()]);
    agent.write_line(&format!("PI_SESSION_ID={} PI_SESSION_FILE={} sleep 9999 &", id(1), session.path.display()));
    wait_until("the tool", DEADLINE, || sandbox.processes().iter().any(|p| p.comm == "sleep"));
    let seen = list(&sandbox);
    seen.expect(&id(1), "working", Some(agent.pid()));
    seen.expect(&id(2), "done", None);
    assert_eq!(seen.unbound(), Vec::<i32>::new());
}

#[test]
fn a_file_with_nothing_in_it_is_no_session_until_somebody_has_it() {
    let sandbox = Sandbox::new("pi-empty");
    let pi = PiStore::of(&sandbox);
    let agent = with_tools(&sandbox);
    let path = pi.session(&id(1)).path;
    fs::write(&path, "").expect("an empty file");
    pi.session(&id(2)).asked("two").answered("2");
    let seen = list(&sandbox);
    assert_eq!((seen.sessions().len(), seen.warnings().len()), (1, 0), "{:#}", seen.json);
    assert_eq!(ask(&sandbox, &["ls", "--json"]).json()["hidden"]["ended"], 0);
    agent.write_line(&format!("PI_SESSION_ID={} PI_SESSION_FILE={} sleep 9999 &", id(1), path.display()));
    wait_until("the tool", DEADLINE, || sandbox.processes().iter().any(|p| p.comm == "sleep"));
    let seen = list(&sandbox);
    seen.expect(&id(1), "starting", Some(agent.pid()));
    assert_eq!(ask(&sandbox, &["ls", "--json"]).json()["hidden"]["ended"], 1);
}

#[test]
fn of_another_store_it_is_not_ours() {
    let sandbox = Sandbox::new("pi-other-store");
    let pi = PiStore::of(&sandbox);
    pi.session(&id(1)).asked("one");
    let other = sandbox.root().join("tmp/other");
    fs::create_dir_all(&other).expect("another home");
    let of = |variable: &str| Lookalike::start(&sandbox, &Lookalike::program(&sandbox, "pi").env(variable, &other));
    let _strangers = [of("HOME"), of("PI_CODING_AGENT_DIR")];
    let seen = list(&sandbox);
    seen.expect(&id(1), "interrupted", None);
    assert_eq!((seen.code, seen.unbound()), (0, vec![]));
}

#[test]
fn a_damaged_session_harms_no_other() {
    let sandbox = Sandbox::new("pi-damage");
    let pi = PiStore::of(&sandbox);
    let victim = pi.session(&id(1)).asked("one").calls("c", "make").result("c").answered("1").path;
    pi.session(&id(2)).asked("two");
    pi.session_in(&id(3), &sandbox.project("apart")).asked("three").failed("no");
    for number in 4..12 {
        pi.session(&id(number)).asked("enough for a page").answered("yes");
    }
    Victim { path: victim, kind: Kind::Lines, of: &[id(1)], lives: false }.suffers_everything(&sandbox);
}

#[test]
fn a_request_that_is_made_again_is_no_rest() {
    let sandbox = Sandbox::new("pi-again");
    let pi = PiStore::of(&sandbox);
    let program = Lookalike::program(&sandbox, "pi").env("LARIAT_SESSION", "brisk-heron");
    let agent = Lookalike::start(&sandbox, &program);
    let shows = |session: &crate::pi_store::PiSession, number: u8, status: &str| {
        tells(&sandbox, "brisk-heron", agent.pid(), "session_start", &id(number.into()), &session.path);
        list(&sandbox).expect(&id(number.into()), status, Some(agent.pid()));
    };
    let settings =
        |retry: &str| fs::write(pi.path("settings.json"), format!("{{\"retry\":{retry}}}")).expect("settings");
    let session = pi.session(&id(1)).asked("one").failed("500 oops").failed("Connection error.").failed("429 slow");
    settings(r#"{"baseDelayMs": 25000}"#);
    shows(&session, 1, "working");
    // After the last try, or when it was told not to, it rests. What is refused is not tried again.
    shows(&session.failed("429 slow"), 1, "waiting");
    shows(&pi.session(&id(2)).asked("two").failed("400 no 500"), 2, "idle");
    let session = pi.session(&id(3)).asked("three").failed("500 oops");
    shows(&session, 3, "working");
    settings(r#"{"baseDelayMs": 25000, "enabled": false}"#);
    shows(&session, 3, "idle");
    settings(r#"{"baseDelayMs": 25000, "maxRetries": 0}"#);
    shows(&session, 3, "idle");
    // And of one that has ended, nothing is made again.
    agent.signal(Signal::KILL);
    agent.wait(DEADLINE);
    fs::remove_file(pi.path("settings.json")).expect("settings");
    list(&sandbox).expect(&id(3), "failed", None);
}

#[test]
fn what_has_no_price_has_no_cost() {
    let sandbox = Sandbox::new("pi-no-price");
    let pi = PiStore::of(&sandbox);
    let free = json!({"role": "assistant", "content": [], "model": "own", "stopReason": "stop",
        "usage": {"input": 10, "output": 1, "cost": {"total": 0}}});
    pi.session(&id(1)).asked("one").answered("1").asked("two").message(free);
    pi.session(&id(2)).asked("one");
    let seen = list(&sandbox);
    let row = seen.session(&id(1));
    assert_eq!((&row["tokens"]["input"], &row["cost_usd"]), (&json!(110), &json!(null)));
    assert_eq!(seen.session(&id(2))["cost_usd"], 0.0, "nothing was used");
}

#[test]
fn a_line_that_cannot_be_read_is_not_guessed_at() {
    let sandbox = Sandbox::new("pi-broken-line");
    let pi = PiStore::of(&sandbox);
    let session = pi.session(&id(1)).asked("one").answered("1").asked("two").answered("2");
    pi.session(&id(2)).asked("one").answered("1");
    let good = fs::read_to_string(&session.path).expect("a session");
    let broken = |n: usize| {
        let lines = good.lines().enumerate().map(|(i, line)| if i == n { &line[..line.len() / 2] } else { line });
        fs::write(&session.path, lines.map(|line| format!("{line}\n")).collect::<String>()).expect("a session");
        let seen = list(&sandbox);
        seen.expect(&id(2), "done", None);
        assert!(seen.warns_of(&format!("{}.jsonl", id(1))), "{:?}", seen.warnings());
        let row = seen.session(&id(1));
        assert_eq!((&row["tokens"], &row["cost_usd"]), (&json!(null), &json!(null)), "line {n}");
        (row["status"].clone(), row["live"].clone())
    };
    let last = good.lines().count() - 1;
    assert_eq!(broken(last), (json!("unknown"), json!(false)), "it may have been the end, or an error");
    assert_eq!(broken(last - 2), (json!("done"), json!(false)), "what came later tells");
}

#[test]
fn hostile_text_stays_on_its_row() {
    let sandbox = Sandbox::new("pi-hostile");
    let pi = PiStore::of(&sandbox);
    let soup = "\x1b[2J\u{9b}31m\u{202e}evil\r\n\u{2028}\x1b]52;c;eA==\x07\0 ● fake";
    let session = pi.session(&id(1)).asked(soup).calls(soup, soup).answered(soup);
    let session = session.named(soup).asked(soup).failed(soup);
    session.message(json!({"role": soup, "content": soup}));
    for args in [&["ls", "-a"][..], &["status", &id(1)], &["explain", &id(1)], &["peek", "-n", "3", &id(1)]] {
        let out = bytes(&sandbox, args);
        let text = String::from_utf8([out.stdout, out.stderr].concat()).expect("UTF-8");
        let acts = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202e}' | '\u{2028}');
        assert_eq!(text.find(acts), None, "{args:?}: {text:?}");
    }
    let seen = list(&sandbox);
    assert_eq!(seen.session(&id(1))["name"], soup, "as data it stays what it was");
}

#[test]
fn one_that_was_launched_and_says_nothing_holds_what_it_was_launched_for() {
    let sandbox = Sandbox::new("pi-mute");
    let pi = PiStore::of(&sandbox);
    drop(pi.session(&id(1)).asked("one").answered("1"));
    drop(Lookalike::program(&sandbox, "pi"));
    let launched = crate::asking::ask(&sandbox, &["launch", "pi", "--json"]);
    assert_eq!(launched.code(), 0, "{}", launched.stderr);
    let launched = launched.json();
    let native = launched["native_id"].as_str().expect("an id");
    let pid = i32::try_from(launched["pid"].as_i64().expect("a pid")).expect("a pid");
    let process = sandbox.processes().into_iter().find(|p| p.pid == pid).expect("the agent");
    assert!(process.argv.windows(2).any(|w| w == ["--session-id", native]), "{:?}", process.argv);
    let seen = list(&sandbox);
    seen.expect(native, "starting", Some(pid));
    assert_eq!(seen.unbound(), Vec::<i32>::new(), "one process, one row");
    seen.expect(&id(1), "done", None);
    let session = pi.session(native).asked("fix it");
    list(&sandbox).expect(native, "working", Some(pid));
    drop(session.answered("done"));
    let seen = list(&sandbox);
    seen.expect(native, "idle", Some(pid));
    assert_eq!(seen.unbound(), Vec::<i32>::new(), "one process, one row");
    // What it started bears the same mark, and is another process.
    let program = Lookalike::program(&sandbox, "pi").env("LARIAT_SESSION", launched["handle"].as_str().expect("text"));
    let nested = Lookalike::start(&sandbox, &program);
    assert_eq!(list(&sandbox).unbound(), [nested.pid()]);
}

#[test]
fn a_turn_that_was_left_open_is_not_at_work_in_a_later_process() {
    let sandbox = Sandbox::new("pi-left");
    let pi = PiStore::of(&sandbox);
    drop(Lookalike::program(&sandbox, "pi"));
    let launched = crate::asking::ask(&sandbox, &["launch", "pi", "--json"]).json();
    let native = launched["native_id"].as_str().expect("an id");
    let pid = i32::try_from(launched["pid"].as_i64().expect("a pid")).expect("a pid");
    let left = pi.session_at(native, &sandbox.work(), now() - 3_600_000).asked("fix it").calls("call_1", "make");
    let seen = list(&sandbox);
    seen.expect(native, "starting", Some(pid));
    assert_eq!(seen.session(native)["tool"], Value::Null, "what was run then is not run now");
    drop(left.at(now()).asked("and now?"));
    list(&sandbox).expect(native, "working", Some(pid));
}
