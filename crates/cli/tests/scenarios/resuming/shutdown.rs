//! A shutdown tells every process to end. Who ends well then, as some agents do, did not end by itself: scenario 27.

use super::*;

/// Has agents end well when they are told to, as Gemini and OpenCode do.
fn heed(stage: &Stage, place: &str) {
    fs::write(stage.sandbox.project(place).join("heed"), "").expect("a sign");
}

fn pid(stage: &Stage, launched: &Launched, who: &str) -> i64 {
    let shim: Value = serde_json::from_slice(&fs::read(stage.folder(launched).join("shim.json")).expect("a record"))
        .expect("a record");
    shim[who]["pid"].as_i64().expect("a process")
}

fn tell(stage: &Stage, pid: i64) {
    let process = stage.sandbox.processes().into_iter().find(|p| i64::from(p.pid) == pid).expect("it lives");
    process.signal(Signal::TERM);
}

fn exit_of(stage: &Stage, launched: &Launched) -> Value {
    fs::read(stage.folder(launched).join("exit.json"))
        .map_or(Value::Null, |b| serde_json::from_slice(&b).expect("JSON"))
}

#[test]
fn s27_who_ends_well_when_a_shutdown_tells_all_to_end_is_offered_for_restore() {
    let mut stage = Stage::new("s27-shutdown");
    ["a", "b", "c", "d", "e"].iter().for_each(|place| heed(&stage, place));
    let (gate, points) = (stage.sandbox.root().join("gate"), stage.sandbox.root().join("points"));
    rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a FIFO");

    // The agent is told first, and has ended before its shim is told.
    let cwd = stage.sandbox.project("a");
    let late = lariat(&stage.sandbox, &["launch", "claude", "--headless", "-p", "hi", "--json", "--cwd"]).arg(&cwd);
    let late = late.env("LARIAT_PAUSE_AT", "shim.exited").env("LARIAT_PAUSE_ON", &gate).env("LARIAT_POINTS", &points);
    let late = Launched { told: stage.sandbox.spawn(&late).output(DEADLINE).json(), cwd };
    stage.until(&late, "working");
    let early = stage.launch("b", &[]);
    let (stopped, told, own) = (stage.launch("c", &[]), stage.launch("d", &[]), stage.launch("e", &[]));
    let answered = stage.launch("f", &[]);
    // These were ended before, by a person through lariat, by a person past lariat, and by themselves.
    stage.act(&["stop", stopped.handle()]);
    tell(&stage, pid(&stage, &told, "agent"));
    own.say("go");
    stage.until(&told, "interrupted");
    stage.until(&own, "done");

    tell(&stage, pid(&stage, &late, "agent"));
    wait_until("its end is on record", DEADLINE, || has_passed(&points, "shim.exited"));
    assert_eq!(exit_of(&stage, &late)["code"], 0);
    tell(&stage, pid(&stage, &late, "shim"));
    // Who has one prompt and gives its answer meanwhile is done.
    tell(&stage, pid(&stage, &answered, "shim"));
    answered.say("go");
    stage.until(&answered, "done");
    assert!(exit_of(&stage, &answered)["told"].is_string());
    tell(&stage, pid(&stage, &early, "shim"));
    tell(&stage, pid(&stage, &early, "keeper"));
    tell(&stage, pid(&stage, &early, "agent"));
    fs::write(&gate, "").expect("it goes on");
    wait_until("all are gone", DEADLINE, || stage.running().is_empty());
    stage.sandbox.reboot();

    let seen = list(&stage.sandbox);
    for cut_off in [&late, &early] {
        let row = seen.session(cut_off.id());
        assert_eq!((&row["status"], &row["restorable"]), (&json!("interrupted"), &json!(true)), "{row:#}");
        assert_eq!(row["exit"], json!({"code": 0}), "{row:#}");
        let reason = row["reason"].as_str().expect("a reason");
        assert!(reason.contains("when all here were told to end"), "{reason}");
    }
    for (ended, status) in [(&stopped, "stopped"), (&told, "interrupted"), (&own, "done"), (&answered, "done")] {
        let row = seen.session(ended.id());
        assert_eq!((&row["status"], &row["restorable"]), (&json!(status), &json!(false)), "{row:#}");
    }
    let plan = stage.act(&["restore"]);
    let mut offered = ids(&plan["restore"]);
    offered.sort_unstable();
    let mut wanted = [late.handle(), early.handle()];
    wanted.sort_unstable();
    assert_eq!(offered, wanted, "{plan}");
}
