//! How sessions that speak ACP end, what is known of them then, and how they come back.

use std::fs;
use std::path::PathBuf;

use lariat_testkit::{DEADLINE, Lookalike, Sandbox, Signal, Stdin, wait_until};
use serde_json::{Value, json};

use crate::acp::{Launched, Stage};
use crate::asking::{id, lariat, list};
use crate::claude_store::ClaudeStore;
use crate::codex_store::CodexStore;
use crate::gemini_store::{GeminiStore, gemini};
use crate::moment::now;

#[test]
fn each_turn_ends_as_the_agent_says() {
    let stage = Stage::new("acp-outcomes");
    for (prompt, status, reason) in [
        ("hello", "done", "turn over"),
        ("FAIL", "failed", "the model is on fire"),
        ("REFUSE", "failed", "refusal"),
        ("DIE 3", "failed", "exited with code 3 in the middle of a turn"),
        ("DIE 0", "interrupted", "cut off in the middle of a turn"),
    ] {
        let launched = stage.launch(&["acp:scripted", "--headless", "-p", prompt]);
        stage.until(&launched, status, reason);
        stage.nothing_is_left();
    }
    // One that stays tells the same, and lives on.
    let launched = stage.launch(&["acp:scripted", "-p", "FAIL"]);
    stage.until(&launched, "idle", "last turn failed: the model is on fire");
    let told = stage.act(&["send", launched.handle(), "hello", "--wait"]);
    assert_eq!(told["reply"], "echo: hello", "{told}");
    let failed = stage.ask(&["send", launched.handle(), "FAIL"]);
    assert_eq!(failed.code(), 1, "an error is no acceptance: {failed:?}");
    assert!(failed.stdout.contains("the model is on fire"), "{failed:?}");
}

#[test]
fn a_signal_that_nobody_asked_for_cuts_off_whomever_it_ends() {
    let stage = Stage::new("acp-signals");
    let cut_off = |launched: &Launched, status: &str, signal: u8| {
        let row = stage.until(launched, status, &format!("by signal {signal}"));
        let told = ["live", "exit", "restorable"].map(|key| row[key].clone());
        assert_eq!(told, [json!(false), json!({"signal": signal}), json!(true)], "{row:#}");
        stage.nothing_is_left();
    };
    let end = |pid: i32, signal: Signal| {
        assert!(stage.sandbox.world().process(pid).expect("a live process").signal(signal));
    };
    let idle = stage.launch(&["acp:scripted"]);
    end(idle.pid(), Signal::TERM);
    cut_off(&idle, "done", 15);
    for agent in ["acp:scripted", "acp:deaf"] {
        let open = stage.launch(&[agent, "-p", "ASK leave"]);
        stage.until(&open, "waiting", "");
        end(open.pid(), Signal::TERM);
        cut_off(&open, "interrupted", 15);
    }
    let open = stage.launch(&["acp:scripted", "-p", "HOLD pipe"]);
    stage.until(&open, "working", "");
    end(stage.agents()[0], Signal::KILL);
    cut_off(&open, "interrupted", 9);
    let restored = stage.act(&["restore", "--yes", "--force"]);
    assert_eq!(restored["restore"].as_array().map(Vec::len), Some(4), "{restored:#}");
    // One that a person asks for is none.
    stage.act(&["stop", open.handle()]);
    let row = stage.until(&open, "stopped", "through lariat");
    assert_eq!((&row["exit"], &row["restorable"]), (&json!({"code": 0}), &json!(false)), "{row:#}");
}

#[test]
fn without_an_owner_a_turn_was_cut_off_and_goes_on_where_it_was() {
    let stage = Stage::new("acp-cut-off");
    for agent in ["acp:scripted", "acp:no-resume", "acp:late"] {
        let launched = stage.launch(&[agent, "-p", "hello"]);
        stage.until(&launched, "idle", "");
        stage.act(&["send", launched.handle(), "HOLD pipe"]);
        let alive = stage.ask(&["resume", launched.handle()]);
        assert_eq!(alive.code(), 3, "it lives: {alive:?}");
        stage.kill_owner(&launched);
        stage.until(&launched, "interrupted", "by signal 9");
        stage.nothing_is_left();
        let row = list(&stage.sandbox).session(launched.id()).clone();
        assert_eq!((&row["restorable"], &row["live"]), (&true.into(), &false.into()), "{row:#}");
        let again = Launched(stage.act(&["resume", launched.handle(), "and now"]));
        assert_eq!((again.id(), again.handle()), (launched.id(), launched.handle()), "{agent}");
        stage.until(&launched, "idle", "turn over");
        assert_eq!(stage.reply(&launched), "echo: and now", "{agent}");
        list(&stage.sandbox).expect(launched.id(), "idle", Some(again.pid()));
        // What was said stands there once, whether the agent repeats it or not.
        let talk = stage.act(&["peek", launched.handle(), "-n", "9"])["messages"].clone();
        let said: Vec<&str> = talk.as_array().expect("messages").iter().filter_map(|m| m["text"].as_str()).collect();
        assert_eq!(said, ["hello", "echo: hello", "HOLD pipe", "thinking", "and now", "echo: and now"], "{agent}");
        stage.act(&["stop", launched.handle()]);
    }
    let launched = stage.launch(&["acp:no-past", "-p", "hello"]);
    stage.until(&launched, "idle", "");
    stage.act(&["stop", launched.handle()]);
    let unable = stage.ask(&["resume", launched.handle()]);
    assert_eq!(unable.code(), 1, "{unable:?}");
    assert!(unable.stderr.contains("it can take up no session again"), "{}", unable.stderr);
    list(&stage.sandbox).expect(launched.id(), "stopped", None);
    stage.nothing_is_left();
}

#[test]
fn while_something_of_it_is_left_it_is_not_taken_up_again() {
    let stage = Stage::new("acp-left");
    let launched = stage.launch(&["acp:scripted", "-p", "LEAVE"]);
    stage.until(&launched, "idle", "turn over");
    stage.kill_owner(&launched);
    stage.until(&launched, "done", "");
    let refused = stage.ask(&["resume", launched.handle()]);
    assert_eq!(refused.code(), 3, "{refused:?}");
    assert!(refused.stderr.contains("left processes that may still work on it"), "{}", refused.stderr);
    stage.act(&["stop", launched.handle()]);
    stage.nothing_is_left();
    let again = Launched(stage.act(&["resume", launched.handle()]));
    list(&stage.sandbox).expect(launched.id(), "idle", Some(again.pid()));
}

#[test]
fn after_a_reboot_it_is_restored_and_a_fork_is_another() {
    let mut stage = Stage::new("acp-reboot");
    let launched = stage.launch(&["acp:scripted", "-p", "HOLD pipe"]);
    stage.until(&launched, "working", "");
    stage.sandbox.reboot();
    stage.until(&launched, "interrupted", "");
    stage.act(&["restore", "--yes"]);
    let row = stage.until(&launched, "idle", "");
    assert_eq!(row["handle"], launched.handle());
    let fork = Launched(stage.act(&["fork", launched.handle(), "--force"]));
    assert_eq!(fork.id(), "scripted-1-fork");
    let seen = list(&stage.sandbox);
    seen.expect(fork.id(), "idle", Some(fork.pid()));
    assert_eq!(seen.session(launched.id())["pid"], row["pid"], "the first is what it was");
}

#[test]
fn without_our_files_a_live_one_is_what_it_was() {
    let stage = Stage::new("acp-no-files");
    let launched = stage.launch(&["acp:scripted", "-p", "ASK leave"]);
    let before = stage.until(&launched, "waiting", "permission: leave");
    fs::remove_dir_all(stage.sandbox.state_dir().join("lariat")).expect("our files");
    fs::remove_dir_all(stage.sandbox.home().join(".cache/lariat")).expect("our cache");
    let seen = list(&stage.sandbox);
    let row = seen.session(launched.id());
    for field in ["id", "status", "reason", "live", "pid", "cwd", "prompt"] {
        assert_eq!(row[field], before[field], "{field}: {row:#}");
    }
    assert_eq!(seen.unbound(), [0; 0]);
}

/// Messages that an owner left.
fn left(sandbox: &Sandbox, handle: &str, owner: &Value, native_id: &str) -> PathBuf {
    let folder = sandbox.state_dir().join("lariat/sessions").join(handle);
    fs::create_dir_all(&folder).expect("a folder");
    let prompt = json!({"id": 3, "method": "session/prompt", "params": {"prompt": [{"type": "text", "text": "go"}]}});
    let lines = [
        json!({"at": 1_000, "owner": owner}),
        json!({"at": 2_000, "session": native_id}),
        json!({"at": 3_000, "to": prompt}),
    ];
    let path = folder.join("events.ndjson");
    fs::write(&path, lines.map(|l| format!("{l}\n")).concat()).expect("messages");
    path
}

#[test]
fn a_word_counts_only_while_that_very_owner_lives() {
    let stage = Stage::new("acp-stale");
    let sandbox = &stage.sandbox;
    let other = sandbox.lookalike("other", &[]);
    let outside = other.outside_pid().expect("a live process");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot id");
    let start = crate::claude_store::started(outside);
    let owner = |pid: i32, boot: &str, start: u64| json!({"agent": "acp:scripted", "boot": boot.trim(), "pid": pid, "start": start, "cwd": sandbox.work()});
    left(sandbox, "one", &owner(other.pid(), &boot, start + 1), "reused");
    left(sandbox, "two", &owner(other.pid(), "00000000-0000-4000-8000-000000000000", start), "rebooted");
    let torn = left(sandbox, "three", &owner(999_999, &boot, 1), "torn");
    let text = fs::read_to_string(&torn).expect("messages");
    fs::write(&torn, format!("{text}not json\n{{\"at\":4000,\"from\":{{\"id\":3,\"result\":{{\"stopReason\":\"end_tu"))
        .expect("messages");
    let path = left(sandbox, "four", &owner(999_999, &boot, 1), "taken-up");
    let text = fs::read_to_string(&path).expect("messages");
    let now = json!({"at": 5_000, "owner": owner(other.pid(), &boot, start)});
    fs::write(&path, format!("{text}{now}\n")).expect("messages");
    let seen = list(sandbox);
    seen.expect("taken-up", "starting", Some(other.pid()));
    for native_id in ["reused", "rebooted"] {
        seen.expect(native_id, "interrupted", None);
    }
    seen.expect("torn", "unknown", None); // what cannot be read may have been the turn's end
    assert!(seen.warns_of("three/events.ndjson"), "{:?}", seen.warnings());
    assert_eq!(seen.warnings().len(), 1, "{:?}", seen.warnings());
    let kill = stage.ask(&["kill", "reused"]);
    assert_eq!(kill.code(), 0, "{kill:?}");
    assert!(sandbox.world().process(other.pid()).is_some(), "nobody else is ended");
}

#[test]
fn a_session_that_its_own_program_has_open_is_one_row_and_not_ours_to_take() {
    let stage = Stage::new("acp-elsewhere");
    let sandbox = &stage.sandbox;
    let claude = ClaudeStore::of(sandbox);
    claude.session(&id(1)).asked("go").answered("gone");
    let owner = json!({"agent": "acp:scripted", "boot": "b", "pid": 999_999, "start": 1, "cwd": sandbox.work()});
    left(sandbox, "one", &owner, &id(1));
    let row = list(sandbox).session(&id(1)).clone();
    assert_eq!((&row["agent"], &row["live"]), (&"acp:scripted".into(), &false.into()), "{row:#}");
    let agent = sandbox.lookalike("claude", &["--resume", &id(1)]);
    wait_until("it is seen", DEADLINE, || list(sandbox).session(&id(1))["pid"] == agent.pid());
    let seen = list(sandbox);
    assert_eq!(seen.sessions().iter().filter(|s| s["native_id"] == id(1)).count(), 1, "{:#}", seen.json);
    let refused = stage.ask(&["resume", &id(1)]);
    assert_eq!(refused.code(), 3, "{refused:?}");
    assert_eq!(stage.agents(), [0; 0], "nothing was started");
}

#[test]
fn what_else_the_agent_behind_a_connection_has_open_is_no_session() {
    let stage = Stage::new("acp-bare");
    let sandbox = &stage.sandbox;
    let codex = CodexStore::of(sandbox);
    drop(Lookalike::program(sandbox, "codex"));
    // It is told by the input of the shell, which stays its parent.
    let owner = sandbox.program("sh").args(["-c", "codex app-server; true"]).stdin(Stdin::Pipe);
    let owner = Lookalike::start(sandbox, &owner);
    let start = crate::claude_store::started(owner.outside_pid().expect("a live process"));
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot id");
    let named = json!({"agent": "acp:scripted", "boot": boot.trim(), "pid": owner.pid(), "start": start, "cwd": sandbox.work()});
    left(sandbox, "one", &named, &id(1));
    drop(codex.thread(&id(1)).asked("go"));
    codex.lock(&owner, &id(1));
    codex.lock(&owner, &id(2));
    let rows = || -> Vec<(Value, Value)> {
        list(sandbox).sessions().iter().map(|s| (s["agent"].clone(), s["native_id"].clone())).collect()
    };
    assert_eq!(rows(), [(json!("acp:scripted"), json!(id(1)))]);
    // One in which something was said is.
    drop(codex.thread(&id(2)).asked("else"));
    assert_eq!(rows().len(), 2, "{:?}", rows());
}

#[test]
fn each_of_its_ids_means_it_wherever_it_goes_on() {
    let stage = Stage::new("acp-ids");
    let sandbox = &stage.sandbox;
    let launched = stage.launch(&["acp:scripted", "-p", "HOLD pipe"]);
    stage.until(&launched, "working", "");
    let ids = [format!("acp:scripted:{}", launched.id()), format!("gemini:{}", launched.id())];
    let expect = |shown: &str| {
        for target in ids.iter().map(String::as_str).chain([launched.handle(), launched.id()]) {
            assert_eq!(stage.act(&["status", target])["id"], shown, "{target}");
        }
    };
    drop(GeminiStore::of(sandbox).session(launched.id()).asked("go"));
    let agent = sandbox.spawn(&gemini(sandbox, &["--session-id", launched.id()]));
    expect(&ids[0]);
    let waiting = ids.each_ref().map(|id| sandbox.spawn(&lariat(sandbox, &["wait", id, "--until", "done", "--json"])));
    stage.kill_owner(&launched);
    wait_until("it is seen", DEADLINE, || list(sandbox).session(launched.id())["pid"] == agent.pid());
    expect(&ids[1]);
    stage.act(&["kill", launched.handle()]);
    for waiting in waiting {
        let told = waiting.output(DEADLINE);
        assert_eq!((told.code(), &told.json()["status"]), (0, &json!("stopped")), "{told:?}");
    }
    expect(&ids[0]);
}

#[test]
fn what_was_ended_where_its_own_program_had_it_open_is_not_brought_back() {
    let stage = Stage::new("acp-ended-elsewhere");
    let sandbox = &stage.sandbox;
    let launched = stage.launch(&["acp:scripted", "-p", "HOLD pipe", "--name", "mine", "--group", "ours", "--keep"]);
    stage.until(&launched, "working", "");
    stage.kill_owner(&launched);
    stage.until(&launched, "interrupted", "by signal 9");
    stage.nothing_is_left();
    let native = launched.0["native_id"].as_str().expect("an id").to_owned();
    let row = list(sandbox).session(&native).clone();
    assert_eq!(row["restorable"], true, "{row:#}");

    // A process of the agent's own goes on with it, as Claude's does after a kill of what speaks ACP for it.
    drop(GeminiStore::of(sandbox).session(&native).asked("go"));
    let agent = sandbox.spawn(&gemini(sandbox, &["--session-id", &native]));
    wait_until("it is seen", DEADLINE, || list(sandbox).session(&native)["pid"] == agent.pid());
    let row = list(sandbox).session(&native).clone();
    assert_eq!((&row["agent"], &row["handle"]), (&"gemini".into(), &launched.0["handle"]), "{row:#}");
    let told = ["name", "group", "kept"].map(|key| &row[key]);
    assert_eq!(told, [&json!("mine"), &json!("ours"), &json!(true)], "{row:#}");
    assert_eq!(stage.act(&["status", "mine"])["native_id"], native.as_str());
    stage.act(&["kill", launched.handle()]);
    assert!(sandbox.world().process(agent.pid()).is_none(), "it is gone");
    let row = list(sandbox).session(&native).clone();
    let told = ["agent", "handle", "status", "restorable"].map(|key| row[key].clone());
    let wanted = [json!("acp:scripted"), launched.0["handle"].clone(), json!("stopped"), json!(false)];
    assert_eq!(told, wanted, "{row:#}");
    let restored = stage.act(&["restore", "--yes"]);
    assert_eq!(restored["restore"], json!([]), "{restored:#}");
    assert_eq!(stage.agents(), [0; 0], "nothing was started");
}

#[test]
fn what_was_done_in_it_elsewhere_since_is_told_and_it_is_not_brought_back() {
    let stage = Stage::new("acp-gone-on");
    let sandbox = &stage.sandbox;
    let launched = stage.launch(&["acp:scripted", "-p", "HOLD pipe"]);
    stage.until(&launched, "working", "");
    stage.kill_owner(&launched);
    stage.until(&launched, "interrupted", "by signal 9");
    stage.nothing_is_left();
    // What its agent stored of that life completes the row.
    let store = GeminiStore::of(sandbox);
    let chat = store.session(launched.id()).asked("HOLD pipe");
    let row = || {
        let brief = stage.act(&["status", launched.handle()]);
        let listed = list(sandbox).session(launched.id()).clone();
        for key in ["id", "status", "reason", "restorable", "tokens", "model", "exit"] {
            assert_eq!(brief[key], listed[key], "{key}");
        }
        listed
    };
    let told = |keys: [&str; 4]| keys.map(|key| row()[key].clone());
    let wanted = [json!("interrupted"), json!(true), json!({"signal": 9}), Value::Null];
    assert_eq!(told(["status", "restorable", "exit", "model"]), wanted);

    let chat = chat.at(now() + 60_000).asked("go on").answered("gone on");
    let wanted = [json!("done"), json!(false), Value::Null, json!("gemini-2.5-flash")];
    assert_eq!(told(["status", "restorable", "exit", "model"]), wanted, "{:#}", row());
    assert_eq!(told(["id", "handle", "agent", "live"])[..2], [launched.0["id"].clone(), launched.0["handle"].clone()]);
    assert_eq!(row()["tokens"]["input"], 420, "{:#}", row());
    assert_eq!(stage.reply(&launched), "gone on");
    assert_eq!(stage.act(&["restore"])["restore"], json!([]));
    drop(chat);
    let again = Launched(stage.act(&["resume", launched.handle(), "and now"]));
    assert_eq!((again.id(), again.handle()), (launched.id(), launched.handle()));
    stage.until(&launched, "idle", "turn over");
    assert_eq!(stage.reply(&launched), "echo: and now");
}

#[test]
fn a_turn_that_failed_is_a_failure_whatever_the_agent_tells_its_client() {
    let stage = Stage::new("acp-hidden");
    let launched = stage.launch(&["acp:scripted", "--headless", "-p", "hello"]);
    stage.until(&launched, "done", "turn over");
    stage.nothing_is_left();
    drop(GeminiStore::of(&stage.sandbox).session(launched.id()).asked("hello").noted("error", "no such model"));
    let row = stage.until(&launched, "failed", "no such model");
    assert_eq!((&row["id"], &row["exit"]), (&launched.0["id"], &json!({"code": 0})), "{row:#}");
    let role = |fact: &str| {
        let all = row["because"].as_array().expect("observations");
        all.iter().find(|o| o["fact"].as_str().is_some_and(|f| f.contains(fact))).map(|o| o["role"].clone())
    };
    assert_eq!(
        (role("no such model"), role("turn over, answered")),
        (Some(json!("decided")), Some(json!("disagreed")))
    );
    assert_eq!(stage.ask(&["wait", launched.handle()]).code(), 1);
}
