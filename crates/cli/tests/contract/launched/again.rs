//! What a session is told when it goes on is waited for, whatever its last life came to; and what that comes to is told.

use lariat_testkit::{
    DEADLINE, Signal,
    agents::{Claude, Codex, Pi},
    wait_until,
};

use super::{act, handle, id, launch};
use crate::looks::Stage;

#[test]
fn nobody_takes_what_an_earlier_life_said_for_the_answer() {
    let stage = Stage::new("again-told");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let _codex = Codex::install(&stage.sandbox, &stage.model);
    let _pi = Pi::install(&stage.sandbox, &stage.model);
    for (agent, headless) in [("codex", true), ("claude", false), ("codex", false), ("pi", false)] {
        let way: &[&str] = if headless { &["--headless"] } else { &[] };
        let launched = launch(&stage, &[&[agent, "-p", "hello"], way].concat());
        act(&stage, &["wait", handle(&launched), "--timeout", "120s", "--json"]);
        act(&stage, &["stop", handle(&launched), "--json"]);
        let held = format!("{agent}-{headless}");
        act(&stage, &["resume", handle(&launched), &format!("HOLD {held}"), "--json"]);
        // It waits for what the model holds back, and has seen nothing that it could take for that.
        let early = stage.lariat().args(["wait", handle(&launched), "--timeout", "2s", "--json"]);
        let early = stage.sandbox.world().run(&early);
        assert_eq!(early.code(), 4, "{agent}, headless {headless}: {early:?}");
        stage.model.wait_for_hold(&held, DEADLINE);
        stage.until_of(id(&launched), "working", "");
        stage.model.release(&held);
        let told = act(&stage, &["wait", handle(&launched), "--timeout", "120s", "--json"]);
        assert_eq!(told["status"], if headless { "done" } else { "idle" }, "{told}");
        act(&stage, &["kill", handle(&launched), "--json"]);
    }
}

#[test]
fn who_waits_for_a_turn_that_fails_or_is_cut_off_is_told() {
    let stage = Stage::new("sent-in-vain");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let launched = launch(&stage, &["claude", "-p", "hello"]);
    act(&stage, &["wait", handle(&launched), "--timeout", "120s", "--json"]);
    let send = |text: &str| stage.lariat().args(["send", handle(&launched), text, "--wait"]);
    let failed = stage.sandbox.world().run(&send("FAIL 400"));
    assert_eq!(failed.code(), 1, "{failed:?}");
    assert!(failed.stderr.contains("last turn failed"), "{failed:?}");
    let sending = stage.sandbox.spawn(&send("HOLD me"));
    stage.model.wait_for_hold("me", DEADLINE);
    // What is on record of it arrived, whatever comes then.
    let transcript = act(&stage, &["status", handle(&launched), "--json"])["transcript"].clone();
    let transcript = transcript.as_str().expect("a path");
    wait_until("it is on record", DEADLINE, || {
        std::fs::read_to_string(transcript).is_ok_and(|text| text.contains("HOLD me"))
    });
    let pid = launched["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a PID");
    assert!(stage.sandbox.world().process(pid).expect("it lives").signal(Signal::KILL));
    let cut_off = sending.output(DEADLINE);
    assert_eq!(cut_off.code(), 1, "{cut_off:?}");
    assert!(cut_off.stderr.contains("interrupted"), "{cut_off:?}");
}
