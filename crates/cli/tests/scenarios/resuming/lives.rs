//! A session may have several lives: what was asked of one, or seen of its end, says nothing of the next.

use lariat_testkit::{DEADLINE, Exit, Signal, wait_until};
use serde_json::Value;

use super::{Launched, Stage, hold};
use crate::asking::{id, list};
use crate::claude_store::ClaudeStore;
use crate::moment::{iso, now};

impl Stage {
    /// Goes on with a session by its own program, as a person would, until it ends well.
    fn go_on_by_hand(&self, native_id: &str, place: &str) {
        let cwd = self.sandbox.project(place);
        std::fs::write(cwd.join("go"), "").expect("a sign");
        let again = self.sandbox.spawn(&self.sandbox.program("claude").args(["--resume", native_id]).cwd(&cwd));
        assert_eq!(again.wait(DEADLINE), Exit::Code(0), "{}", again.stderr());
        std::fs::remove_file(cwd.join("go")).expect("the sign");
    }

    #[track_caller]
    fn is_over_for_good(&self, launched: &Launched) {
        let seen = list(&self.sandbox);
        seen.expect(launched.id(), "done", None);
        assert_eq!(seen.session(launched.id())["restorable"], false, "{:#}", seen.session(launched.id()));
        let plan = self.act(&["restore", "--yes"]);
        assert_eq!(self.runs("--resume"), 1, "only by hand: {plan:#}");
    }
}

#[test]
fn what_was_cut_off_and_gone_on_with_elsewhere_is_not_brought_back() {
    let stage = Stage::new("life-by-hand");
    let launched = stage.launch("a", &[]);
    stage.crash(&launched);
    assert_eq!(list(&stage.sandbox).session(launched.id())["restorable"], true);
    stage.go_on_by_hand(launched.id(), "a");
    stage.is_over_for_good(&launched);
}

#[test]
fn what_a_script_called_comes_back_in_the_place_of_that_script() {
    let stage = Stage::new("life-called");
    let (own, real) = (stage.sandbox.root().join("own/claude"), stage.sandbox.root().join("own/real/claude"));
    std::fs::create_dir_all(real.parent().expect("a folder")).expect("a folder");
    std::fs::copy(&own, &real).expect("the agent");
    let stays = format!("#!/bin/sh\n'{}' \"$@\" <&0 &\nwait\nsleep 987654\n", real.display());
    std::fs::write(&own, stays).expect("a script");
    let launched = stage.launch("a", &["--on-exit", "echo $LARIAT_STATUS >> $HOME/ended"]);
    let process = |pid: &Value| stage.sandbox.processes().into_iter().find(|p| *pid == i64::from(p.pid));
    let crash = || {
        let row = list(&stage.sandbox).session(launched.id()).clone();
        process(&row["pid"]).expect("it lives").signal(Signal::KILL);
        stage.until(&launched, "interrupted");
    };
    crash();
    assert!(process(&launched.told["pid"]).is_some(), "the script stays");
    let seen = list(&stage.sandbox);
    let row = seen.session(launched.id());
    assert_eq!((&row["live"], &row["restorable"]), (&false.into(), &true.into()), "{row:#}");
    let shown = crate::asking::ask(&stage.sandbox, &["ls"]).stdout;
    assert!(shown.contains(launched.handle()) && shown.contains("cut off"), "{shown}");
    let told = stage.act(&["restore", "--yes"]);
    assert_eq!(told["restore"][0]["outcome"], "restored", "{told}");
    stage.until(&launched, "working");
    assert_eq!((stage.runs("--resume"), process(&launched.told["pid"]).is_none()), (1, true));
    let heard = || std::fs::read_to_string(stage.sandbox.home().join("ended")).unwrap_or_default();
    assert_eq!(heard(), "interrupted\n", "of the first end");
    crash();
    stage.act(&["kill", launched.handle()]);
    stage.until(&launched, "interrupted");
    stage.act(&["restore", "--yes"]);
    assert_eq!(stage.runs("--resume"), 1, "never again");
}

#[test]
fn nor_after_a_reboot() {
    let mut stage = Stage::new("life-after-boot");
    let launched = stage.launch("a", &[]);
    stage.sandbox.reboot();
    // As long ago as it would be: this boot is older than the test.
    let transcript = stage.sandbox.home().join(format!(".claude/projects/x/{}.jsonl", launched.id()));
    for path in [stage.folder(&launched).join("shim.json"), transcript] {
        let text = std::fs::read_to_string(&path).expect("a record");
        std::fs::write(&path, text.replace(&iso(now())[..5], "2001-")).expect("a record");
    }
    assert_eq!(list(&stage.sandbox).session(launched.id())["restorable"], true);
    stage.go_on_by_hand(launched.id(), "a");
    stage.is_over_for_good(&launched);
}

#[test]
fn nor_where_it_cannot_be_told_which_boot_this_is() {
    let mut stage = Stage::new("life-unknown-boot");
    let launched = stage.launch("a", &[]);
    stage.sandbox.reboot();
    let transcript = stage.sandbox.home().join(format!(".claude/projects/x/{}.jsonl", launched.id()));
    for path in [stage.folder(&launched).join("shim.json"), transcript] {
        let text = std::fs::read_to_string(&path).expect("a record");
        std::fs::write(&path, text.replace(&iso(now())[..5], "2001-")).expect("a record");
    }
    // As where nobody could tell in which PID namespace it was started, and nobody has its number now.
    let path = stage.folder(&launched).join("shim.json");
    let mut shim: Value = serde_json::from_slice(&std::fs::read(&path).expect("a record")).expect("JSON");
    for (who, pid) in [("agent", 3_999_991), ("shim", 3_999_992), ("keeper", 3_999_993)] {
        shim[who]["pid"] = pid.into();
        shim[who].as_object_mut().expect("a process").remove("namespace");
    }
    std::fs::write(&path, shim.to_string()).expect("a record");
    stage.go_on_by_hand(launched.id(), "a");
    std::fs::write(stage.sandbox.root().join("boot_id"), [0xff]).expect("no boot id");
    stage.is_over_for_good(&launched);
}

#[test]
fn a_stop_explains_no_end_of_a_later_life() {
    let stage = Stage::new("life-after-stop");
    let launched = stage.launch("a", &[]);
    stage.act(&["stop", launched.handle(), "--grace", "5m"]);
    let (place, other) = (stage.sandbox.project("b"), id(7));
    let by_hand = |args: [&str; 2]| stage.sandbox.spawn(&stage.sandbox.program("claude").args(args).cwd(&place));
    let works = || wait_until("it works", DEADLINE, || list(&stage.sandbox).session(&other)["status"] == "working");
    let agent = by_hand(["--session-id", &other]);
    wait_until("it is there", DEADLINE, || list(&stage.sandbox).find(&other).is_some());
    works();
    stage.act(&["stop", &other, "--grace", "5m"]);
    agent.wait(DEADLINE);
    for (session, place) in [(launched.id(), "a"), (&*other, "b")] {
        list(&stage.sandbox).expect(session, "stopped", None);
        stage.go_on_by_hand(session, place);
        list(&stage.sandbox).expect(session, "done", None);
    }
    // Nor if that was cut off; and nothing of it comes back: the wish stands.
    let agent = by_hand(["--resume", &other]);
    works();
    agent.signal(Signal::KILL);
    agent.wait(DEADLINE);
    let seen = list(&stage.sandbox);
    seen.expect(&other, "interrupted", None);
    assert_eq!(seen.session(&other)["restorable"], false);
}

#[test]
fn an_end_of_which_nobody_knows_how_it_came_is_none_of_its_own() {
    let stage = Stage::new("life-untold");
    let launched = stage.launch("a", &[]);
    stage.crash(&launched);
    // As where the shim was killed first, and nobody may ask the kernel.
    let path = stage.folder(&launched).join("exit.json");
    let exit = std::fs::read_to_string(&path).expect("its end");
    let mut exit: serde_json::Value = serde_json::from_str(&exit).expect("a record");
    exit["signal"] = serde_json::Value::Null;
    std::fs::write(&path, exit.to_string()).expect("its end");
    let seen = list(&stage.sandbox);
    seen.expect(launched.id(), "interrupted", None);
    assert_eq!(seen.session(launched.id())["restorable"], true);
    stage.act(&["restore", "--yes"]);
    stage.until(&launched, "working");
}

#[test]
fn a_copy_that_is_refused_leaves_nothing() {
    let stage = Stage::new("life-copied");
    let launched = stage.launch("a", &[]);
    let refused = stage.ask(&["fork", launched.handle()]);
    assert_eq!(refused.code(), 3, "{refused:?}");
    let folders = std::fs::read_dir(stage.sandbox.state_dir().join("lariat/sessions")).expect("sessions");
    let names: Vec<_> = folders.map(|entry| entry.expect("a folder").file_name()).collect();
    assert_eq!(names, [launched.handle()]);
    let plan = stage.act(&["gc", "--retain", "0s"]);
    assert_eq!(plan["records"], serde_json::json!([]), "{plan}");
}

#[test]
fn one_that_has_said_nothing_yet_is_not_copied_and_that_is_said_of_it() {
    let stage = Stage::new("life-mute");
    let agent = stage.sandbox.lookalike("claude", &[]);
    let one = id(1);
    drop(ClaudeStore::of(&stage.sandbox).register(&agent, &one).says("idle"));
    let told = stage.ask(&["fork", &one, "--force"]);
    assert_eq!(told.code(), 2, "{told:?}");
    assert!(told.stderr.contains(&one) && told.stderr.contains("say something to it first"), "{told:?}");
}

#[test]
fn what_a_person_stopped_and_takes_up_again_is_at_no_moment_cut_off() {
    let stage = Stage::new("life-taken-up");
    let launched = stage.launch("a", &[]);
    stage.act(&["kill", launched.handle()]);
    list(&stage.sandbox).expect(launched.id(), "stopped", None);
    // It is wanted again, and how it ended before is still on record.
    let resuming = hold(&stage.sandbox, &["resume", launched.handle(), "--json"], "launch.wished");
    let seen = list(&stage.sandbox);
    seen.expect(launched.id(), "starting", None);
    assert_eq!(seen.session(launched.id())["restorable"], false);
    assert_eq!(stage.act(&["restore"])["restore"], serde_json::json!([]));
    resuming.go_on();
    stage.until(&launched, "working");
}
