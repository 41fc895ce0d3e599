//! What `launch` starts outlives it, has its own id at once, and ends when told: scenarios 1, 16,
//! 17, 18.

mod claims;
mod terminals;

use std::fs;
use std::path::Path;

use lariat_testkit::{DEADLINE, Lookalike, Output, Sandbox, Signal, copy_program, put_program, wait_until};
use serde_json::{Value, json};

use crate::asking::{LARIAT, ask, id, lariat, list};
use crate::claude_store::ClaudeStore;
use crate::codex_store::CodexStore;
use crate::scripted::put;
use crate::worktrees::{hold, hold_as};

/// A sandbox with agents to launch: they sit still until they are ended.
fn with_agents(name: &str) -> Sandbox {
    let sandbox = Sandbox::new(name);
    drop(Lookalike::program(&sandbox, "claude"));
    drop(Lookalike::program(&sandbox, "codex"));
    sandbox
}

#[track_caller]
pub fn launch(sandbox: &Sandbox, args: &[&str]) -> Value {
    let output = ask(sandbox, &[&["launch", "--json"], args].concat());
    assert_eq!(output.code(), 0, "{}", output.stderr);
    output.json()
}

fn pid(launched: &Value) -> i32 {
    i32::try_from(launched["pid"].as_i64().expect("a pid")).expect("a pid")
}

fn alive(sandbox: &Sandbox, pid: i32) -> bool {
    sandbox.processes().iter().any(|p| p.pid == pid && p.state != 'Z')
}

/// Puts a program of the test's own in an agent's place.
pub fn install(sandbox: &Sandbox, name: &str, script: &str) {
    let path = sandbox.root().join("own").join(name);
    put_program(&path, format!("#!/bin/sh\n{script}\n"));
    sandbox.install(name, &path);
}

#[test]
fn s01_it_outlives_its_launcher_with_the_same_id_and_process() {
    let sandbox = with_agents("s01");
    for mode in [&["claude"][..], &["claude", "--headless", "-p", "fix it", "--force"]] {
        let launched = launch(&sandbox, mode);
        let id = launched["native_id"].as_str().expect("an id");
        assert_eq!(launched["id"], format!("claude:{id}"));
        for _ in 0..2 {
            let seen = list(&sandbox);
            seen.expect(id, "starting", Some(pid(&launched)));
            assert_eq!(seen.session(id)["handle"], launched["handle"]);
        }
    }
}

/// Runs a program for which the kernel has no `pidfd_open`, as an old one or a strict container.
const NO_PIDFD: &str = r"
import ctypes, os, struct, sys
lines = [(0x20, 0, 0, 0), (0x15, 0, 1, 434), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in lines))
filter = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(lines), ctypes.addressof(code)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filter, 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
";

#[test]
fn what_nobody_could_end_is_not_started() {
    let sandbox = with_agents("no-pidfd");
    let refused =
        sandbox.run(["python3", "-c", NO_PIDFD, "lariat", "launch", "claude", "--headless", "-p", "hi", "--json"]);
    assert_eq!(refused.code(), 1, "{refused:?}");
    let left: Vec<_> =
        sandbox.processes().into_iter().filter(|p| p.argv.iter().any(|a| a.ends_with("claude"))).collect();
    assert!(left.is_empty(), "a launch that failed left its agent running: {left:?}");
    assert_eq!(list(&sandbox).sessions().len(), 0);
    launch(&sandbox, &["claude", "--headless", "-p", "hi"]);
}

#[test]
fn what_will_never_listen_is_not_waited_for() {
    let sandbox = with_agents("never-listens");
    let launched = launch(&sandbox, &["claude", "--headless", "-p", "work for long"]);
    let handle = launched["handle"].as_str().expect("text");
    let told = ask(&sandbox, &["send", handle, "hello", "--when-idle", "--json"]);
    assert_eq!((told.code(), &told.json()["outcome"]), (3, &json!("refused")), "{told:?}");
    assert!(alive(&sandbox, pid(&launched)), "it was told while it works");
}

#[test]
fn s16_its_id_and_its_handle_answer_at_once() {
    let sandbox = with_agents("s16");
    let launched = launch(&sandbox, &["claude", "--name", "fix-login", "--group", "web"]);
    for target in [&launched["native_id"], &launched["handle"], &launched["id"], &json!("fix-login")] {
        let target = target.as_str().expect("text");
        for verb in ["status", "explain", "peek"] {
            let told = ask(&sandbox, &[verb, target, "--json"]);
            assert_eq!((told.code(), &told.json()["id"]), (0, &launched["id"]), "{verb} {target}: {}", told.stderr);
        }
    }
    let grouped = ask(&sandbox, &["ls", "--group", "web", "--json"]).json();
    assert_eq!(grouped["sessions"][0]["id"], launched["id"]);
    let stopped = ask(&sandbox, &["stop", launched["handle"].as_str().expect("text"), "--json"]);
    assert_eq!(stopped.code(), 0, "{}", stopped.stderr);
    assert!(!alive(&sandbox, pid(&launched)));
    let seen = list(&sandbox);
    assert!(seen.sessions().iter().all(|s| s["live"] != true));
}

#[test]
fn a_kill_that_meets_a_launch_ends_what_is_launched() {
    let sandbox = with_agents("kill-launch");
    let launching = hold(&sandbox, &["launch", "claude", "--headless", "-p", "hi", "--json"], "launch.stored");
    let sessions = sandbox.state_dir().join("lariat/sessions");
    let folder = fs::read_dir(&sessions).expect("sessions").next().expect("one").expect("one").path();
    let wish: Value = serde_json::from_slice(&fs::read(folder.join("intent.json")).expect("a wish")).expect("JSON");
    let native = wish["id"].as_str().and_then(|id| id.strip_prefix("claude:")).expect("an id").to_owned();
    // Some agents have a record of it by now.
    drop(ClaudeStore::of(&sandbox).session(&native).asked("hi"));
    list(&sandbox).expect(&native, "starting", None);
    let points = sandbox.root().join("streams/kill-points");
    let killing = sandbox.spawn(&lariat(&sandbox, &["kill", &native, "--json"]).env("LARIAT_POINTS", &points));
    wait_until("it waits, or has ended", DEADLINE, || {
        killing.exit().is_some() || fs::read_to_string(&points).is_ok_and(|p| p.contains("stop.waits"))
    });
    let (_, launched) = launching.go_on();
    let told = killing.output(DEADLINE);
    assert_eq!((told.code(), &told.json()["outcome"]), (0, &json!("stopped")), "{told:?} {launched}");
    let agents = || sandbox.processes().into_iter().filter(|p| p.argv.iter().any(|a| a == &native) && p.state != 'Z');
    assert_eq!(agents().count(), 0, "{launched}");
}

#[test]
fn s17_parallel_launches_have_ids_of_their_own() {
    let sandbox = with_agents("s17");
    let places: Vec<_> = (0..3).map(|n| sandbox.project(&format!("p{n}"))).collect();
    let launching: Vec<_> = places
        .iter()
        .map(|p| sandbox.spawn(&lariat(&sandbox, &["launch", "claude", "--json", "--cwd", p.to_str().expect("UTF-8")])))
        .collect();
    let told: Vec<Value> = launching.iter().map(|l| l.output(DEADLINE)).map(|o: Output| o.json()).collect();
    let seen = list(&sandbox);
    for launched in &told {
        seen.expect(launched["native_id"].as_str().expect("an id"), "starting", Some(pid(launched)));
    }
    let mut ids: Vec<&str> = told.iter().filter_map(|l| l["native_id"].as_str()).collect();
    ids.dedup();
    assert_eq!((ids.len(), seen.sessions().len()), (3, 3));
}

#[test]
fn s18_an_agent_that_dies_first_leaves_no_row_and_says_why() {
    let sandbox = Sandbox::new("s18");
    install(&sandbox, "codex", "echo the key is wrong >&2; exit 3");
    let failed = ask(&sandbox, &["launch", "codex", "--headless", "-p", "fix it"]);
    assert_eq!(failed.code(), 1);
    assert!(failed.stderr.contains("the key is wrong") && failed.stderr.contains("code 3"), "{}", failed.stderr);
    assert!(list(&sandbox).sessions().is_empty());
    let journal = ask(&sandbox, &["journal"]);
    assert!(journal.stdout.contains("launch") && journal.stdout.contains("code 3"), "{}", journal.stdout);
    // Nothing is in the way of the next one.
    drop(Lookalike::program(&sandbox, "claude"));
    launch(&sandbox, &["claude"]);
}

#[test]
fn s18_nor_does_one_that_takes_a_second_to_find_that_it_cannot_run() {
    let sandbox = Sandbox::new("s18-later");
    install(&sandbox, "claude", "sleep 1; echo no login >&2; exit 9");
    let order = lariat(&sandbox, &["launch", "claude", "--headless", "-p", "fix it"]);
    let failed = sandbox.world().run(&order.env("LARIAT_TAKES", "up:60000"));
    assert_eq!(failed.code(), 1, "{failed:?}");
    assert!(failed.stderr.contains("no login") && failed.stderr.contains("code 9"), "{}", failed.stderr);
    assert!(list(&sandbox).sessions().is_empty());
}

#[test]
fn what_a_script_around_an_agent_says_first_does_not_hide_its_id() {
    let sandbox = Sandbox::new("says-first");
    let id = "01a1de24-3535-7512-88ed-744b178748bc";
    let shows = format!(r#"{{"type":"thread.started","thread_id":"{id}"}}"#);
    install(&sandbox, "codex", &format!("printf 'Hello\\n\\377\\n{{}}\\n'; echo '{shows}'; exec sleep 987654"));
    let launched = launch(&sandbox, &["codex", "--headless", "-p", "fix it"]);
    assert_eq!(launched["native_id"], id);
    assert!(alive(&sandbox, pid(&launched)));
}

#[test]
fn a_terminal_whose_script_stays_its_agents_parent_has_the_agents_session() {
    let sandbox = Sandbox::new("parent");
    let lock = CodexStore::of(&sandbox).lock_file(&id(1));
    let agent = put(&sandbox, "codex", &format!("exec 9>>'{}'; flock 9", lock.display()));
    install(&sandbox, "codex", &format!("'{}' \"$@\"; exit 3", agent.display()));
    let launched = launch(&sandbox, &["codex"]);
    assert_eq!(launched["native_id"], id(1));
    let seen = list(&sandbox);
    assert_eq!((seen.sessions().len(), seen.unbound().len()), (1, 0), "{}", seen.text);
    assert_eq!(seen.session(&id(1))["handle"], launched["handle"]);
    let killed = ask(&sandbox, &["kill", launched["handle"].as_str().expect("text")]);
    assert_eq!(killed.code(), 0, "{}", killed.stderr);
    let left =
        sandbox.processes().into_iter().filter(|p| p.argv.iter().any(|a| a.ends_with("codex")) && p.state != 'Z');
    assert_eq!(left.count(), 0);
}

#[test]
fn what_ends_while_its_launcher_is_still_at_it_has_ended() {
    let sandbox = Sandbox::new("ends-early");
    install(&sandbox, "claude", &format!("{WRITES}exit 7"));
    let on_exit = "echo $LARIAT_STATUS $LARIAT_EXIT_CODE > ~/told; mv ~/told ~/ended";
    let args = ["launch", "claude", "--headless", "-p", "hi", "--on-exit", on_exit, "--json"];
    let launching = hold(&sandbox, &args, "launch.known");
    let ended = sandbox.home().join("ended");
    wait_until("what was hung on its end has run", DEADLINE, || ended.exists());
    assert_eq!(fs::read_to_string(ended).expect("what it was told"), "failed 7\n");
    let seen = list(&sandbox);
    assert_eq!((&seen.sessions()[0]["status"], &seen.sessions()[0]["live"]), (&json!("failed"), &json!(false)));
    assert_eq!(launching.go_on().0, 0);
}

/// Puts a session whose turn is over on record.
const WRITES: &str = r#"id=$2; dir=$HOME/.claude/projects/x; mkdir -p $dir; echo '{"type":"user","message":{"role":"user","content":"hi"},"timestamp":"2026-11-15T07:00:00.000Z"}
{"type":"assistant","message":{"id":"m","role":"assistant","content":[{"type":"text","text":"ho"}],"stop_reason":"end_turn"},"timestamp":"2026-11-15T07:00:01.000Z"}' > $dir/$id.jsonl; "#;

#[test]
fn how_it_ended_is_known() {
    let sandbox = with_agents("ends");
    for (script, status, exit) in [
        ("exit 0", "done", json!({"code": 0})),
        ("exit 7", "failed", json!({"code": 7})),
        ("kill -9 $$", "done", json!({"signal": 9})),
    ] {
        // The session is on record before it ends: that is what makes it one.
        install(&sandbox, "claude", &format!("{WRITES}while [ ! -e go ]; do :; done; {script}"));
        let place = sandbox.project(&format!("p{}", exit));
        let launched = launch(&sandbox, &["claude", "--headless", "-p", "hi", "--cwd", place.to_str().expect("UTF-8")]);
        let id = launched["native_id"].as_str().expect("an id").to_owned();
        fs::write(place.join("go"), "").expect("a sign");
        wait_until("it has ended", DEADLINE, || !alive(&sandbox, pid(&launched)));
        let record = sandbox.state_dir().join("lariat/sessions").join(launched["handle"].as_str().expect("text"));
        wait_until("its exit is on record", DEADLINE, || record.join("exit.json").exists());
        let seen = list(&sandbox);
        seen.expect(&id, status, None);
        assert_eq!(seen.session(&id)["exit"], exit);
        // Wanted running, and not ended by itself or by a person.
        assert_eq!(seen.session(&id)["restorable"], exit.get("signal").is_some());
    }
}

#[test]
fn what_cannot_be_launched_is_said_and_nothing_is_left() {
    let sandbox = Sandbox::new("cannot");
    for (args, code) in [
        (&["launch", "clod"][..], 2),
        (&["launch", "claude", "--cwd", "/no/such/place"], 2),
        (&["launch"], 2),
        (&["launch", "claude", "--env", "x"], 2),
        (&["launch", "claude", "--env", "=x"], 2),
        (&["launch", "claude", "--name", " "], 2),
    ] {
        let failed = ask(&sandbox, args);
        assert_eq!(failed.code(), code, "{args:?}: {}", failed.stderr);
        assert!(!failed.stderr.is_empty());
    }
    let settings = sandbox.home().join(".config/lariat/config.toml");
    fs::create_dir_all(settings.parent().expect("a folder")).expect("a folder");
    let text = "[[acp]]\nname = \"mine\"\ncommand = [\"mine\"]\n[[agent]]\nname = \"own\"\ncommand = [\"own\"]\n";
    fs::write(&settings, text).expect("settings");
    let nobody = ask(&sandbox, &["launch", "clod"]).stderr;
    assert!(nobody.contains("there are claude, codex, opencode, pi, gemini, acp:mine, agent:own"), "{nobody}");
    fs::remove_file(settings).expect("settings");
    drop(Lookalike::program(&sandbox, "codex"));
    assert_eq!(ask(&sandbox, &["launch", "codex", "--headless"]).code(), 2);
    assert!(list(&sandbox).sessions().is_empty());
    assert!(!sandbox.state_dir().join("lariat/sessions").exists());
}

#[test]
fn a_secret_reaches_the_agent_and_nothing_else() {
    let sandbox = with_agents("secret");
    let program = lariat(&sandbox, &["launch", "claude", "--json", "--env", "CANARY_ONE=sing-one"]);
    let launched = sandbox.world().run(&program.env("CANARY_TWO", "sing-two"));
    let pid = pid(&launched.json());
    for process in sandbox.processes().iter().filter(|p| p.pid != 1) {
        let environ = process.environ();
        let sings = environ.iter().any(|entry| entry.contains("=sing-"));
        assert_eq!(sings, process.pid == pid, "{} {:?}", process.comm, process.argv);
        assert!(!process.argv.iter().any(|a| a.contains("sing-")), "{:?}", process.argv);
    }
    let mut folders = vec![sandbox.home().to_path_buf(), sandbox.runtime_dir()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if let Ok(text) = fs::read(entry.path()) {
                let text = String::from_utf8_lossy(&text).into_owned();
                assert!(!text.contains("sing-"), "{}", entry.path().display());
            }
        }
    }
}

#[test]
fn what_ended_long_ago_is_forgotten_and_nothing_else() {
    let sandbox = with_agents("gc");
    let live = launch(&sandbox, &["claude"]);
    let place = sandbox.project("other");
    let ended = launch(&sandbox, &["claude", "--cwd", place.to_str().expect("UTF-8")]);
    assert_eq!(ask(&sandbox, &["kill", ended["handle"].as_str().expect("text")]).code(), 0);
    let folder = |l: &Value| sandbox.state_dir().join("lariat/sessions").join(l["handle"].as_str().expect("text"));
    wait_until("its exit is on record", DEADLINE, || folder(&ended).join("exit.json").exists());
    let shims = || sandbox.processes().iter().filter(|p| p.comm.starts_with("lariat-")).count();
    wait_until("only the other's shim and keeper are left", DEADLINE, || shims() == 2);
    assert!(ask(&sandbox, &["gc"]).stdout.contains("Nothing"), "not yet");
    let plan = ask(&sandbox, &["gc", "--retain", "0s"]);
    assert!(plan.stdout.contains(ended["handle"].as_str().expect("text")), "{}", plan.stdout);
    assert!(folder(&ended).exists(), "a plan does nothing");
    assert_eq!(ask(&sandbox, &["gc", "--retain", "0s", "--yes"]).code(), 0);
    assert!(!folder(&ended).exists() && folder(&live).exists());
    list(&sandbox).expect(live["native_id"].as_str().expect("an id"), "starting", Some(pid(&live)));
}

#[test]
fn what_left_something_behind_keeps_its_handle_until_that_is_ended() {
    let sandbox = Sandbox::new("left-behind");
    let script = "setsid sleep 1000 > /dev/null 2>&1 & while ! [ -e go ]; do sleep 0.02; done";
    install(&sandbox, "claude", script);
    let launched = launch(&sandbox, &["claude", "--headless", "-p", "hi"]);
    let handle = launched["handle"].as_str().expect("text");
    let folder = sandbox.state_dir().join("lariat/sessions").join(handle);
    fs::write(sandbox.work().join("go"), "").expect("a sign");
    wait_until("its end is on record", DEADLINE, || folder.join("exit.json").exists());
    let named = |name: &str| sandbox.processes().iter().any(|p| p.comm == name && p.state != 'Z');
    wait_until("its shim is gone", DEADLINE, || !named("lariat-shim"));
    let forget = || ask(&sandbox, &["gc", "--retain", "0s", "--yes"]).expect_success();
    forget();
    assert!(folder.exists() && named("sleep"), "another session could have its handle, and that be ended with it");
    ask(&sandbox, &["kill", handle]).expect_success();
    assert!(!named("sleep"));
    forget();
    assert!(!folder.exists());
}

/// As an upgrade does, while a launch waits its turn, makes a worktree, or is asked for by way of a daemon.
#[test]
fn one_that_was_replaced_meanwhile_launches_all_the_same() {
    let sandbox = with_agents("replaced");
    let own = sandbox.root().join("own/lariat");
    copy_program(Path::new(LARIAT), &own);
    let path = own.to_str().expect("UTF-8");
    let order = sandbox.program(path).args(["launch", "claude", "--json", "--worktree"]);
    let launching = hold_as(&sandbox, order, "worktree.copied");
    let later = own.with_extension("later");
    copy_program(Path::new(LARIAT), &later);
    fs::rename(&later, &own).expect("it is replaced");
    let (code, launched) = launching.go_on();
    assert_eq!(code, 0, "{launched}");
    let agent = sandbox.processes().into_iter().find(|p| p.pid == pid(&launched)).expect("it lives");
    let hook = format!("'{path}' __hook");
    assert!(agent.argv.iter().any(|word| word.contains(&hook)), "{:?}", agent.argv);
    ask(&sandbox, &["kill", launched["handle"].as_str().expect("text")]).expect_success();
}

#[test]
fn what_was_launched_from_within_a_session_is_not_part_of_it() {
    let sandbox = with_agents("inner");
    let outer = launch(&sandbox, &["claude"]);
    let (handle, id) = (outer["handle"].as_str().expect("text"), outer["native_id"].as_str().expect("an id"));
    // As a tool of the outer one would: it carries the outer's marks.
    let program = lariat(&sandbox, &["launch", "claude", "--json", "--force"]);
    let program = program.env("LARIAT_SESSION", handle).env("CLAUDE_CODE_SESSION_ID", id);
    let inner = sandbox.world().run(&program).json();
    assert_eq!(ask(&sandbox, &["kill", handle]).code(), 0);
    assert!(!alive(&sandbox, pid(&outer)) && alive(&sandbox, pid(&inner)));
    let shims = sandbox.processes().iter().filter(|p| p.comm == "lariat-shim" && p.state != 'Z').count();
    assert!(shims >= 1, "the inner one's shim lives");
    list(&sandbox).expect(inner["native_id"].as_str().expect("an id"), "starting", Some(pid(&inner)));
}

#[test]
fn asking_again_changes_no_word_and_the_handle_answers_for_ever() {
    let sandbox = with_agents("again");
    let launched = launch(&sandbox, &["claude"]);
    let (handle, id) = (launched["handle"].as_str().expect("text"), launched["native_id"].as_str().expect("an id"));
    for _ in 0..3 {
        assert_eq!(ask(&sandbox, &["kill", handle]).code(), 0);
        list(&sandbox).expect(id, "stopped", None);
        assert_eq!(ask(&sandbox, &["wait", handle, "--until", "done", "--timeout", "5s"]).code(), 0);
    }
}

#[test]
fn after_clear_the_handle_goes_with_the_process() {
    let sandbox = with_agents("moved");
    let claude = crate::claude_store::ClaudeStore::of(&sandbox);
    let launched = launch(&sandbox, &["claude"]);
    let (handle, old) = (launched["handle"].as_str().expect("text"), launched["native_id"].as_str().expect("an id"));
    drop(claude.session(old).asked("first").answered("done").left());
    let newer = crate::asking::id(9);
    let process = sandbox.processes().into_iter().find(|p| p.pid == pid(&launched)).expect("it lives");
    drop(claude.register_as(process.pid, process.outside, &newer).says("busy"));
    let seen = list(&sandbox);
    seen.expect(old, "done", None);
    seen.expect(&newer, "working", Some(pid(&launched)));
    assert_eq!((&seen.session(&newer)["handle"], &seen.session(old)["handle"]), (&launched["handle"], &Value::Null));
    // The old one has ended: ending it harms nobody.
    let told = ask(&sandbox, &["kill", old, "--json"]);
    assert_eq!((told.code(), &told.json()["outcome"]), (0, &json!("gone")));
    assert!(alive(&sandbox, pid(&launched)));
    let told = ask(&sandbox, &["kill", handle, "--json"]);
    assert_eq!((told.code(), &told.json()["outcome"]), (0, &json!("stopped")), "{}", told.stderr);
    assert!(!alive(&sandbox, pid(&launched)));
    list(&sandbox).expect(&newer, "stopped", None);
    assert_eq!(list(&sandbox).session(&newer)["handle"], launched["handle"], "for good");
}

#[test]
fn wait_does_not_take_the_moment_before_a_turn_for_its_end() {
    let sandbox = with_agents("given");
    let claude = crate::claude_store::ClaudeStore::of(&sandbox);
    let launched = launch(&sandbox, &["claude", "-p", "go"]);
    let id = launched["native_id"].as_str().expect("an id");
    // It stands at its prompt, and has not taken up what it was given.
    let process = sandbox.processes().into_iter().find(|p| p.pid == pid(&launched)).expect("it lives");
    let entry = claude.register_as(process.pid, process.outside, id).says("idle");
    list(&sandbox).expect(id, "starting", Some(pid(&launched)));
    let waited = ask(&sandbox, &["wait", id, "--timeout", "300ms"]);
    assert_eq!(waited.code(), 4, "{}", waited.stdout);
    let entry = entry.says("busy");
    list(&sandbox).expect(id, "working", Some(pid(&launched)));
    drop(claude.session(id).asked("go").answered("done"));
    drop(entry.says("idle"));
    list(&sandbox).expect(id, "idle", Some(pid(&launched)));
    assert_eq!(ask(&sandbox, &["wait", id, "--timeout", "60s"]).code(), 0);
}

#[test]
fn a_turn_that_fails_while_whoever_sent_it_looks_has_failed() {
    let sandbox = with_agents("sent-failing");
    let claude = crate::claude_store::ClaudeStore::of(&sandbox);
    let launched = launch(&sandbox, &["claude"]);
    let id = launched["native_id"].as_str().expect("an id");
    let process = sandbox.processes().into_iter().find(|p| p.pid == pid(&launched)).expect("it lives");
    let talk = claude.session(id).asked("hello").answered("hello");
    let entry = claude.register_as(process.pid, process.outside, id).says("idle");
    let (gate, points) = (sandbox.root().join("gate"), sandbox.root().join("points"));
    rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a FIFO");
    let send = lariat(&sandbox, &["send", id, "somewords", "--wait"]);
    let send = send.env("LARIAT_PAUSE_AT", "send.waits").env("LARIAT_PAUSE_ON", &gate).env("LARIAT_POINTS", &points);
    let send = sandbox.spawn(&send);
    wait_until("it is typed", DEADLINE, || ask(&sandbox, &["logs", id]).stdout.contains("somewords"));
    let talk = talk.asked("somewords");
    wait_until("it is on record", DEADLINE, || {
        fs::read_to_string(&points).is_ok_and(|passed| passed.lines().any(|p| p == "send.waits"))
    });
    drop(talk.failed("API Error: 400"));
    fs::write(&gate, "").expect("it goes on");
    let told = send.output(DEADLINE);
    assert_eq!((told.code(), told.stderr.contains("last turn failed")), (1, true), "{told:?}");
    drop(entry);
}

#[test]
fn what_another_process_was_killed_at_is_not_what_it_was_given() {
    let sandbox = with_agents("given-another");
    let claude = crate::claude_store::ClaudeStore::of(&sandbox);
    let launched = launch(&sandbox, &["claude", "-p", "go"]);
    let id = launched["native_id"].as_str().expect("an id");
    let process = sandbox.processes().into_iter().find(|p| p.pid == pid(&launched)).expect("it lives");
    let entry = claude.register_as(process.pid, process.outside, id).says("idle");
    let talk = claude.session(id).asked("go");
    list(&sandbox).expect(id, "working", Some(process.pid)); // it has not said so yet
    let talk = talk.answered("gone");
    let _entry = entry.says("idle");
    list(&sandbox).expect(id, "idle", Some(process.pid));
    let other = sandbox.lookalike("claude", &["--resume", id]);
    let _other = claude.register(&other, id).says("busy");
    let _talk = talk.at(crate::moment::now()).asked("and more");
    assert_eq!(list(&sandbox).session(id)["status"], "working");
    other.signal(Signal::KILL);
    other.wait(DEADLINE);
    list(&sandbox).expect(id, "idle", Some(process.pid));
}

#[test]
fn a_prompt_is_never_a_flag() {
    let sandbox = with_agents("flag");
    let launched = launch(&sandbox, &["claude", "-p", "--dangerously-skip-permissions"]);
    let process = sandbox.processes().into_iter().find(|p| p.pid == pid(&launched)).expect("it lives");
    let argv: Vec<&str> = process.argv.iter().map(String::as_str).collect();
    assert!(argv.ends_with(&["--", "--dangerously-skip-permissions"]), "{argv:?}");
}

#[test]
fn s09_a_script_that_stays_when_its_agent_is_killed_is_not_at_work() {
    let sandbox = Sandbox::new("stays");
    let gate = sandbox.root().join("gate");
    rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a FIFO");
    let native = sandbox.install_copy("native/claude", &lariat_testkit::built("lariat-lookalike"));
    install(&sandbox, "claude", &format!("'{}' \"$@\"; read x < '{}'", native.display(), gate.display()));
    let launched = launch(&sandbox, &["claude", "-p", "go"]);
    let (id, handle) = (launched["native_id"].as_str().expect("an id"), launched["handle"].as_str().expect("a handle"));
    let real = || sandbox.processes().into_iter().find(|p| p.parent == pid(&launched) && p.comm == "claude");
    wait_until("its agent is there", DEADLINE, || real().is_some());
    let agent = real().expect("it is there");
    let claude = crate::claude_store::ClaudeStore::of(&sandbox);
    let _entry = claude.register_as(agent.pid, agent.outside, id).says("busy");
    drop(claude.session(id).asked("go"));
    list(&sandbox).expect(id, "working", Some(agent.pid));
    agent.signal(Signal::KILL);
    wait_until("it is gone", DEADLINE, || !alive(&sandbox, agent.pid));
    let seen = list(&sandbox);
    seen.expect(id, "interrupted", None);
    let row = seen.session(id);
    let told = (&row["handle"], &row["live"], &row["restorable"]);
    assert_eq!(told, (&handle.into(), &false.into(), &true.into()), "{row}");
    assert_eq!(seen.unbound(), Vec::<i32>::new());
    assert!(alive(&sandbox, pid(&launched)) && real().is_none(), "looking ends nothing");
    // To end what it left explains no end of its own.
    let killed = ask(&sandbox, &["kill", handle]).expect_success();
    assert!(killed.stdout.contains("had ended before: interrupted"), "{killed:?}");
    wait_until("the script is gone", DEADLINE, || !alive(&sandbox, pid(&launched)));
    list(&sandbox).expect(id, "interrupted", None);
    assert_eq!(list(&sandbox).session(id)["restorable"], false);
}

#[test]
fn one_that_lives_on_without_its_wrapper_counts() {
    let sandbox = Sandbox::new("wrapped");
    let native = sandbox.install_copy("native/claude", &lariat_testkit::built("lariat-lookalike"));
    install(&sandbox, "claude", &format!("'{}' \"$@\" <&0 & wait", native.display()));
    let launched = launch(&sandbox, &["claude", "--max", "1", "--headless", "-p", "fix it"]);
    let id = launched["native_id"].as_str().expect("an id");
    let wrapper = sandbox.processes().into_iter().find(|p| p.pid == pid(&launched)).expect("the wrapper");
    wrapper.signal(Signal::KILL);
    wait_until("it is gone", DEADLINE, || !alive(&sandbox, wrapper.pid));
    let row = list(&sandbox).session(id).clone();
    assert_eq!((&row["live"], &row["handle"]), (&json!(true), &launched["handle"]), "{row:#}");
    let other = sandbox.project("other");
    let more = ask(&sandbox, &["launch", "claude", "--max", "1", "--cwd", other.to_str().expect("UTF-8")]);
    assert_eq!(more.code(), 3, "{}", more.stdout);
    assert_eq!(ask(&sandbox, &["kill", id]).code(), 0);
}

#[test]
fn one_that_goes_on_as_another_program_is_still_what_was_launched() {
    let sandbox = Sandbox::new("renamed");
    // Its entry names the very process that its shim holds, though nothing else tells that it is Claude Code.
    let script = r#"
        mkdir -p "$HOME/.claude/sessions"
        start=$(cut -d' ' -f22 /proc/$$/stat)
        echo "{\"pid\":$$,\"sessionId\":\"$2\",\"procStart\":\"$start\",\"status\":\"busy\"}" > "$HOME/.claude/sessions/$$.json"
        exec sleep 987654"#;
    install(&sandbox, "claude", script);
    let launched = launch(&sandbox, &["claude", "--headless", "-p", "fix it"]);
    wait_until("another name", DEADLINE, || {
        sandbox.processes().iter().any(|p| p.pid == pid(&launched) && p.comm == "sleep")
    });
    let row = list(&sandbox).session(launched["native_id"].as_str().expect("an id")).clone();
    assert_eq!((&row["live"], &row["handle"], &row["status"]), (&json!(true), &launched["handle"], &json!("working")));
    let killed = ask(&sandbox, &["kill", launched["handle"].as_str().expect("a handle")]);
    assert_eq!((killed.code(), alive(&sandbox, pid(&launched))), (0, false), "{killed:?}");
}
