//! What a person moves from a launched Claude Code into the background, and the terminal that stays.

use lariat_testkit::{DEADLINE, Exit, Key, agents::Claude, wait_for, wait_until};
use serde_json::Value;

use super::{act, handle, id, launch};
use crate::looks::Stage;

#[test]
fn what_is_in_the_background_is_nobody_s_who_put_it_there() {
    let stage = Stage::new("background-launched");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let launched = launch(&stage, &["claude", "-p", "first words", "--", "--permission-mode", "manual"]);
    stage.until("idle", "turn over");
    let terminal = stage.sandbox.terminal(&stage.lariat().args(["attach", handle(&launched)]));
    terminal.wait_for_text("first words", DEADLINE);
    // It is the first that needs the daemon, which is a child of its from then on, and its hooks go along.
    terminal.submit("/fork TOOL touch made", DEADLINE);
    let fork = stage.until_look("the fork asking", |look| {
        look.rows.iter().find(|row| row.id() != id(&launched) && row.is("waiting", "permission: Bash")).cloned()
    });
    let asks = |row: &str| act(&stage, &["peek", row, "--json"])["asks"].clone();
    assert_eq!((asks(handle(&launched)), asks(fork.id())), (Value::Null, "permission: Bash touch made".into()));
    stage.look().row(id(&launched)).has("status", "idle");

    // Others of this user have their sessions there too.
    stage.sandbox.world().run(&claude.program().args(["--bg", "HOLD precious words"])).expect_success();
    stage.model.wait_for_hold("precious", DEADLINE);
    let precious = stage.until_look("the other at work", |look| {
        look.rows.iter().find(|row| row.is_at_work("HOLD precious words")).cloned()
    });
    terminal.press(Key::Left);
    terminal.wait_for_text("Your conversation moved to the background", DEADLINE);
    let moved = wait_for("the one that goes on", DEADLINE, || {
        let look = stage.look();
        let known = [id(&launched), fork.id(), precious.id()];
        look.rows.iter().find(|row| !known.contains(&row.id()) && row.is("idle", "")).cloned()
    });
    // The handle answers still, and nothing is typed into what its terminal shows now.
    stage.look().row(id(&launched)).ended("done").has("handle", launched["handle"].clone()).has("restorable", false);
    let send = stage.sandbox.world().run(&stage.lariat().args(["send", handle(&launched), "more words"]));
    assert_eq!(send.code(), 3, "{send:?}");

    // To end it is to end its terminal; and the same once more, when only what it left could be ended.
    for _ in 0..2 {
        act(&stage, &["kill", handle(&launched), "--json"]);
        let look = stage.look();
        assert!(look.unbound.is_empty(), "{:?}", look.unbound);
        assert_eq!(look.row(id(&launched)).0["live"], false);
        for other in [&precious, &fork, &moved] {
            let now = look.row(other.id());
            assert_eq!((&now.0["status"], &now.0["pid"]), (&other.0["status"], &other.0["pid"]), "{now}");
        }
    }
}

/// Whether anything was said or not: the handle answers for what has ended, and means the terminal still.
#[test]
fn a_terminal_whose_session_was_moved_away_ends_when_told() {
    for (name, prompt) in [("moved-unsaid", &[][..]), ("moved-said", &["-p", "first words"])] {
        let stage = Stage::new(name);
        let _claude = Claude::install(&stage.sandbox, &stage.model);
        let launched = launch(&stage, &[&["claude"], prompt].concat());
        stage.until("idle", if prompt.is_empty() { "no turn yet" } else { "turn over" });
        let terminal = stage.sandbox.terminal(&stage.lariat().args(["attach", handle(&launched)]));
        terminal.wait_for_text(if prompt.is_empty() { "shift+tab to cycle" } else { "first words" }, DEADLINE);
        terminal.press(Key::Left);
        terminal.wait_for_text("Your conversation moved to the background", DEADLINE);
        let moved = wait_for("the one that goes on", DEADLINE, || {
            let look = stage.look();
            look.rows.iter().find(|row| row.id() != id(&launched) && row.is("idle", "")).cloned()
        });
        let old = stage.look().row(id(&launched)).ended("done");
        let old = old.has("handle", launched["handle"].clone()).has("restorable", false);
        assert!(old.0["because"].to_string().contains("moved to the background"), "{old}");
        stage.agree(&old);
        // It is among what lives there.
        let plan = act(&stage, &["stop", "--all", "--json"]);
        let ids = plan["ids"].as_array().expect("ids");
        assert!(ids.contains(&launched["id"]) && ids.contains(&moved.0["id"]), "{plan}");

        // Who asked is killed before anything was ended: the next one who acts sees to it.
        let stop = stage.lariat().args(["kill", handle(&launched)]).env("LARIAT_DIE_AT", "stop.wished");
        assert_eq!(stage.sandbox.world().run(&stop).exit, Exit::Signal(9));
        let pid = i32::try_from(launched["pid"].as_i64().expect("a pid")).expect("a pid");
        assert!(stage.sandbox.world().process(pid).is_some(), "nothing was ended");
        let row = stage.look().row(id(&launched));
        assert!(row.0["reason"].as_str().is_some_and(|r| r.starts_with("kill asked")), "{row}");
        act(&stage, &["gc", "--yes", "--json"]);
        wait_until("the terminal is gone", DEADLINE, || stage.sandbox.world().process(pid).is_none());
        let look = stage.look();
        assert!(look.unbound.is_empty(), "{:?}", look.unbound);
        let now = look.row(moved.id());
        assert_eq!((&now.0["status"], &now.0["pid"]), (&moved.0["status"], &moved.0["pid"]), "{now}");
    }
}
