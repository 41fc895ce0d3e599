//! A state directory that a container, or another machine, shares: what was started there is not
//! gone because nobody here has its number.

use std::fs;
use std::path::PathBuf;

use lariat_testkit::{Child, DEADLINE, Output, Sandbox, Signal, Stdin, wait_for, wait_until};
use serde_json::{Value, json};

use crate::asking::{Answer, LARIAT, ask, id, list, through};
use crate::claude_store::ClaudeStore;
use crate::resuming::install;

/// A PID namespace of its own, with its own process table.
const CONTAINER: &str = "exec unshare --fork --pid --mount --mount-proc --kill-child=KILL \"$@\"";

/// One session, launched in a container.
struct Stage {
    sandbox: Sandbox,
    container: Child,
    told: Value,
}

impl Stage {
    fn new(name: &str) -> Stage {
        let sandbox = Sandbox::new(name);
        install(&sandbox);
        let cwd = sandbox.project("inside");
        // The first process of the container launches, and stays until its input ends.
        let first = "\"$@\"; exec cat";
        let program = sandbox.program("sh").args(["-c", CONTAINER, "sh", "sh", "-c", first, "sh", LARIAT]);
        let args = ["launch", "claude", "--headless", "-p", "hi", "--json", "--cwd", cwd.to_str().expect("UTF-8")];
        let container = sandbox.spawn(&program.args(args).stdin(Stdin::Pipe));
        let told = wait_for("a launched session", DEADLINE, || {
            assert!(container.exit().is_none(), "the container: {}", container.stderr());
            serde_json::from_str::<Value>(container.stdout().trim()).ok()
        });
        wait_until("a turn", DEADLINE, || sandbox.home().join("runs").exists());
        Stage { sandbox, container, told }
    }

    fn id(&self) -> &str {
        self.told["native_id"].as_str().expect("an id")
    }

    fn handle(&self) -> &str {
        self.told["handle"].as_str().expect("a handle")
    }

    /// Asks from another container.
    fn beside(&self, args: &[&str]) -> Output {
        through(&self.sandbox, CONTAINER, args)
    }

    fn runs(&self) -> usize {
        fs::read_to_string(self.sandbox.home().join("runs")).unwrap_or_default().lines().count()
    }

    fn record(&self) -> PathBuf {
        self.sandbox.state_dir().join("lariat/sessions").join(self.handle()).join("shim.json")
    }
}

#[test]
fn what_runs_in_a_container_is_seen_from_outside_and_ended_by_its_number_there() {
    let stage = Stage::new("outside");
    let seen = list(&stage.sandbox);
    let session = seen.session(stage.id());
    let (inner, outer) = (&stage.told["pid"], &session["pid"]);
    assert!(inner != outer && session["live"] == json!(true) && session["status"] == "working", "{session:#}");
    let shim = |o: &Value| o["witness"] == "shim" && o["fact"].as_str().is_some_and(|f| f.contains("alive"));
    assert!(session["because"].as_array().is_some_and(|all| all.iter().any(shim)), "{session:#}");
    let again = ask(&stage.sandbox, &["resume", stage.handle()]);
    assert_eq!((again.code(), stage.runs()), (3, 1), "{again:?}");
    let killed = ask(&stage.sandbox, &["kill", stage.handle(), "--json"]);
    assert_eq!(killed.code(), 0, "{killed:?}");
    let left = stage.sandbox.run(["test", "-e", &format!("/proc/{outer}")]);
    assert_eq!(left.code(), 1, "{killed:?}");
    list(&stage.sandbox).expect(stage.id(), "stopped", None);
}

#[test]
fn what_runs_in_another_container_cannot_be_told_and_starts_nothing() {
    let mut stage = Stage::new("beside");
    let seen = Answer::of(&stage.beside(&["ls", "-a", "--json"]));
    seen.expect(stage.id(), "unknown", None);
    let session = seen.session(stage.id());
    assert_eq!((&session["live"], &session["restorable"], seen.code), (&json!(null), &json!(false), 5), "{session}");
    assert!(session["reason"].as_str().is_some_and(|r| r.contains("PID namespace")), "{session}");
    // Seen by default as well, and by whoever would bring back what is gone.
    assert!(stage.beside(&["ls"]).stdout.contains("UNKNOWN"));
    let restored = stage.beside(&["restore", "--yes"]);
    assert!(restored.code() == 5 && restored.stdout.contains("not of all"), "{restored:?}");
    let plan = stage.beside(&["stop", "--all"]);
    assert!(plan.code() == 5 && plan.stderr.contains("1 session of which"), "{plan:?}");
    let resumed = stage.beside(&["resume", stage.handle()]);
    assert_ne!(resumed.code(), 0, "{resumed:?}");
    assert_eq!(stage.runs(), 1, "{restored:?} {resumed:?}");
    let gc = stage.beside(&["gc"]);
    assert!(stage.record().exists(), "{gc:?}");
    // Nor is it ended by a number that means somebody else there.
    let killed = stage.beside(&["kill", stage.handle()]);
    assert_ne!(killed.code(), 0, "{killed:?}");
    assert_eq!(list(&stage.sandbox).session(stage.id())["live"], json!(true), "{killed:?}");

    // After a reboot the namespaces are other ones, and what was in them is gone.
    stage.container.signal(Signal::KILL);
    stage.container.wait(DEADLINE);
    stage.sandbox.reboot();
    let seen = list(&stage.sandbox);
    assert_eq!(seen.session(stage.id())["live"], json!(false), "{}", seen.text);
}

#[test]
fn a_process_table_of_another_namespace_proves_no_end() {
    let stage = Stage::new("foreign-proc");
    // No transcript either: all that is known of it is what its shim wrote down.
    let transcripts = stage.sandbox.home().join(".claude/projects/x");
    fs::remove_dir_all(&transcripts).expect("its transcripts");
    fs::remove_dir_all(stage.sandbox.home().join(".claude/sessions")).expect("its entry");
    let astray = |args: &[&str]| through(&stage.sandbox, "exec unshare --fork --pid --kill-child=KILL \"$@\"", args);
    let seen = Answer::of(&astray(&["ls", "-a", "--json"]));
    let session = seen.session(stage.id());
    assert_eq!((&session["live"], &session["restorable"]), (&json!(null), &json!(false)), "{session}");
    let restored = astray(&["restore", "--yes"]);
    assert_eq!(stage.runs(), 1, "{restored:?}");
    assert!(stage.record().exists(), "{restored:?}");
    assert_eq!(list(&stage.sandbox).session(stage.id())["live"], json!(true));
}

#[test]
fn what_was_killed_in_a_container_that_goes_on_is_gone_for_who_sees_into_it() {
    let stage = Stage::new("killed-there");
    let agent = list(&stage.sandbox).session(stage.id())["pid"].to_string();
    // Those first that could tell how it ended; held, so that none of them sees another one go.
    let kill = "who=$(grep -l '^lariat-' /proc/[0-9]*/comm | cut -d/ -f3); kill -STOP $who; kill -9 $who $1";
    stage.sandbox.run(["sh", "-c", kill, "sh", &agent]).expect_success();
    let session = list(&stage.sandbox).session(stage.id()).clone();
    assert_eq!((&session["live"], &session["restorable"]), (&json!(false), &json!(true)), "{session}");
}

#[test]
fn a_container_that_was_cut_off_comes_back_after_a_reboot() {
    let mut stage = Stage::new("rebooted");
    stage.sandbox.reboot();
    let session = list(&stage.sandbox).session(stage.id()).clone();
    assert_eq!((&session["status"], &session["restorable"]), (&json!("interrupted"), &json!(true)), "{session}");
    let restored = ask(&stage.sandbox, &["restore", "--yes"]);
    assert_eq!((restored.code(), stage.runs()), (0, 2), "{restored:?}");
}

#[test]
fn what_its_shim_saw_end_has_ended_wherever_that_was() {
    let stage = Stage::new("ended-there");
    fs::write(stage.sandbox.project("inside").join("go"), "").expect("a sign to end");
    let exit = stage.record().with_file_name("exit.json");
    wait_until("an exit", DEADLINE, || exit.exists());
    let seen = Answer::of(&stage.beside(&["ls", "-a", "--json"]));
    seen.expect(stage.id(), "done", None);
    assert_eq!(seen.session(stage.id())["exit"], json!({"code": 0}));
}

#[test]
fn a_record_without_a_namespace_is_read_as_one_of_here() {
    let stage = Stage::new("of-old");
    let text = fs::read_to_string(stage.record()).expect("a record");
    let mut record: Value = serde_json::from_str(&text).expect("JSON");
    for who in ["shim", "agent"] {
        let process = record[who].as_object_mut().expect("a process");
        assert!(process.remove("namespace").is_some(), "{text}");
        process.remove("machine");
    }
    fs::write(stage.record(), record.to_string()).expect("an older record");
    // By its number it is nobody here, so it counts as gone, as it did.
    let seen = Answer::of(&stage.beside(&["ls", "-a", "--json"]));
    assert_eq!(seen.session(stage.id())["live"], json!(false), "{}", seen.text);
}

#[test]
fn what_another_machine_started_is_not_gone_with_a_boot_of_ours() {
    let stage = Stage::new("afar");
    let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    if machine.trim().is_empty() {
        return; // a machine without a name cannot be told from another
    }
    let text = fs::read_to_string(stage.record()).expect("a record");
    let mut record: Value = serde_json::from_str(&text).expect("JSON");
    for who in ["shim", "agent"] {
        record[who]["boot"] = json!("00000000-0000-4000-8000-000000000000");
        record[who]["machine"] = json!("fedcba9876543210fedcba9876543210");
    }
    fs::write(stage.record(), record.to_string()).expect("a record of another machine");
    let seen = Answer::of(&stage.beside(&["ls", "-a", "--json"]));
    seen.expect(stage.id(), "unknown", None);
    assert_eq!(seen.session(stage.id())["restorable"], json!(false));
}

#[test]
fn an_entry_of_another_machine_has_no_part_in_the_rule_of_another_boot() {
    let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    if machine.trim().is_empty() {
        return; // as above
    }
    let mut stage = Stage::new("entry-afar");
    let agent = {
        let text = fs::read_to_string(stage.record()).expect("a record");
        serde_json::from_str::<Value>(&text).expect("JSON")["agent"].clone()
    };
    stage.sandbox.reboot();
    let entry = stage.sandbox.home().join(format!(".claude/sessions/{}.json", agent["pid"]));
    let put = |machine: &str| {
        let text = json!({"pid": agent["pid"], "sessionId": stage.id(), "procStart": agent["start"].to_string(),
            "status": "busy", "pidDomain": format!("linux:{machine}:pid:[4026532999]")});
        fs::write(&entry, text.to_string()).expect("an entry");
        list(&stage.sandbox).session(stage.id()).clone()
    };
    // The same number and start, of this machine: the very process, and it was of an earlier boot.
    let here = put(machine.trim());
    assert_eq!((&here["live"], &here["restorable"]), (&json!(false), &json!(true)), "{here:#}");
    // Of another machine, which has a process of that number and start as well: nobody here can tell.
    let afar = put("fedcba9876543210fedcba9876543210");
    assert_eq!((&afar["status"], &afar["restorable"]), (&json!("unknown"), &json!(false)), "{afar:#}");
}

#[test]
fn what_was_ended_in_a_container_that_lariat_did_not_start_stays_ended() {
    let sandbox = Sandbox::new("foreign-inside");
    // It registers as Claude Code does: by its number in there.
    let registers = r#"#!/bin/sh
        put() { printf '{"pid":%s,"sessionId":"%s","cwd":"%s","startedAt":%s,"procStart":"%s","pidDomain":"linux:%s:%s",
            "status":"busy"}' $$ "$1" "$PWD" "$2" "$3" "$4" "$5" > "$HOME/.claude/sessions/$$.json"; }
        mkdir -p "$HOME/.claude/sessions"
        read -r stat < /proc/$$/stat; set -- "$2" $stat
        put "$1" "$(date +%s%3N)" "${23}" "$(cat /etc/machine-id)" "$(readlink /proc/self/ns/pid)"
        read x"#;
    let claude = sandbox.root().join("scripts/claude");
    fs::create_dir_all(claude.parent().expect("a folder")).expect("a folder");
    fs::write(&claude, registers).expect("a script");
    let program = sandbox.program("sh").args(["-c", CONTAINER, "sh", "sh", claude.to_str().expect("UTF-8")]);
    let container = sandbox.spawn(&program.args(["--session-id", &id(1)]).stdin(Stdin::Pipe));
    drop(ClaudeStore::of(&sandbox).session(&id(1)).asked("fix it"));
    let entry = sandbox.home().join(".claude/sessions/1.json");
    wait_until("its entry", DEADLINE, || fs::read_to_string(&entry).is_ok_and(|text| text.contains("busy")));
    let seen = list(&sandbox);
    assert_eq!((seen.status(&id(1)), seen.code), ("working", 0), "{}", seen.text);
    let killed = ask(&sandbox, &["kill", &id(1), "--json"]);
    assert_eq!(killed.json()["outcome"], "stopped", "{killed:?}");
    assert!(entry.exists(), "it could not clean up");
    let seen = list(&sandbox);
    seen.expect(&id(1), "stopped", None);
    assert_eq!((seen.session(&id(1))["live"].clone(), seen.code), (json!(false), 0), "{}", seen.text);
    assert_eq!(ask(&sandbox, &["locks", "--json"]).json()["locks"], json!([]));
    // Another one in its place was ended by nobody.
    container.close_stdin();
    container.wait(DEADLINE);
    let other = fs::read_to_string(&entry).expect("its entry").replace("\"procStart\":\"", "\"procStart\":\"1");
    fs::write(&entry, other.replace("\"startedAt\":", "\"began\":")).expect("another entry");
    list(&sandbox).expect(&id(1), "unknown", None);
}
