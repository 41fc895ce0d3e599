//! The terminal of a launched session: its viewers, and who holds it.

use std::fs;

use lariat_testkit::{DEADLINE, Exit, Key, Sandbox, Signal, Size, wait_until};

use super::{alive, install, launch, pid, with_agents};
use crate::asking::{ask, lariat, list};

#[test]
fn its_terminal_can_be_entered_left_and_entered_again() {
    let sandbox = with_agents("attach");
    let launched = launch(&sandbox, &["claude"]);
    let handle = launched["handle"].as_str().expect("text");
    for round in 0..2 {
        let terminal = sandbox.terminal(&lariat(&sandbox, &["attach", handle]));
        terminal.wait_for_text("Ctrl-Q leaves", DEADLINE);
        let answer = sandbox.work().join(format!("round{round}"));
        // The lookalike does what it is told on its terminal.
        terminal.type_text(&format!("write {} yes", answer.display()));
        terminal.press(Key::Enter);
        wait_until("what was typed was done", DEADLINE, || answer.exists());
        terminal.press(Key::Ctrl('q'));
        assert_eq!(terminal.wait(DEADLINE), Exit::Code(0));
        assert!(alive(&sandbox, pid(&launched)));
    }
    // A killed shim is replaced by the next one who comes.
    let shim = sandbox.processes().into_iter().find(|p| p.comm == "lariat-shim").expect("its shim");
    shim.signal(Signal::KILL);
    wait_until("it is gone", DEADLINE, || !alive(&sandbox, shim.pid));
    list(&sandbox).expect(launched["native_id"].as_str().expect("an id"), "starting", Some(pid(&launched)));
    let terminal = sandbox.terminal(&lariat(&sandbox, &["attach", handle]));
    let answer = sandbox.work().join("after");
    terminal.wait_for_text("Ctrl-Q leaves", DEADLINE);
    terminal.type_text(&format!("write {} yes", answer.display()));
    terminal.press(Key::Enter);
    wait_until("it still listens", DEADLINE, || answer.exists());

    let other = sandbox.lookalike("codex", &["resume", &crate::asking::id(7)]);
    let refused = ask(&sandbox, &["attach", &crate::asking::id(7)]);
    assert_eq!(refused.code(), 3, "{}", refused.stderr);
    drop(other);
}

#[test]
fn a_viewer_s_size_is_the_session_s_and_whatever_ends_a_viewer_gives_its_terminal_back() {
    let sandbox = Sandbox::new("viewer");
    install(&sandbox, "claude", "trap 'stty size > seen' WINCH; while :; do sleep 0.02; done");
    let launched = launch(&sandbox, &["claude"]);
    let handle = launched["handle"].as_str().expect("text");
    let seen = || fs::read_to_string(sandbox.work().join("seen")).unwrap_or_default();
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let terminal = sandbox.terminal(&lariat(&sandbox, &["attach", handle]));
        terminal.wait_for_text("Ctrl-Q leaves", DEADLINE);
        for rows in [31, 32] {
            terminal.resize(Size { rows, cols: 97 });
            wait_until("the new size", DEADLINE, || seen().trim() == format!("{rows} 97"));
        }
        terminal.signal(signal);
        assert_eq!(terminal.wait(DEADLINE), Exit::Code(code));
        wait_until("a terminal that is given back", DEADLINE, || {
            terminal.raw().windows(8).any(|w| w == b"\x1b[?1049l")
        });
        assert!(alive(&sandbox, pid(&launched)));
    }
}

#[test]
fn of_many_who_come_after_a_killed_shim_one_takes_over_and_all_are_let_in() {
    let sandbox = with_agents("many");
    let launched = launch(&sandbox, &["claude"]);
    let handle = launched["handle"].as_str().expect("text");
    for _ in 0..3 {
        let shim = sandbox.processes().into_iter().find(|p| p.comm == "lariat-shim").expect("its shim");
        shim.signal(Signal::KILL);
        wait_until("it is gone", DEADLINE, || !alive(&sandbox, shim.pid));
        let viewers: Vec<_> =
            (0..6).map(|_| sandbox.spawn(&lariat(&sandbox, &["attach", "--watch", handle]))).collect();
        for viewer in &viewers {
            wait_until("a viewer is let in", DEADLINE, || {
                assert_eq!(viewer.exit(), None, "{}", viewer.stderr());
                viewer.stderr().contains("attached to")
            });
        }
        for viewer in viewers {
            viewer.signal(Signal::KILL);
            viewer.wait(DEADLINE);
        }
        let shims = || sandbox.processes().iter().filter(|p| p.comm == "lariat-shim" && p.state != 'Z').count();
        wait_until("one shim is left", DEADLINE, || shims() == 1);
    }
    assert!(alive(&sandbox, pid(&launched)));
}

#[test]
fn what_acts_puts_a_shim_in_the_place_of_a_killed_one_and_looking_does_not() {
    let sandbox = with_agents("orphaned");
    let launched = launch(&sandbox, &["claude"]);
    let shims =
        || sandbox.processes().into_iter().filter(|p| p.comm == "lariat-shim" && p.state != 'Z').collect::<Vec<_>>();
    let first = shims();
    first[0].signal(Signal::KILL);
    wait_until("it is gone", DEADLINE, || shims().is_empty());
    list(&sandbox).expect(launched["native_id"].as_str().expect("an id"), "starting", Some(pid(&launched)));
    assert!(shims().is_empty(), "looking never acts");
    assert_eq!(ask(&sandbox, &["gc", "--yes"]).code(), 0);
    assert_eq!(shims().len(), 1);
    let journal = ask(&sandbox, &["journal"]);
    assert!(journal.stdout.contains("take over"), "{}", journal.stdout);
}
