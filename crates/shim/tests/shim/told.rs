//! Who is told to end together with its agent says so: a shutdown tells all, and some agents then end as if by
//! themselves.

use std::fs;

use lariat_shim::record::Exit;
use lariat_testkit::{DEADLINE, Signal, wait_until};

use crate::place::{Place, Session, kernel_tells, make_fifo};

/// Ends well when it is told to end.
const OBEDIENT: &str = "trap 'kill $!; exit 0' TERM; sleep 987654 & echo > ready; while :; do wait; done";

/// Starts one that is held where it comes to this point, and waits until its agent can be told.
fn start<'a>(place: &'a Place, name: &str, point: &str) -> Session<'a> {
    let session = place.script(name, OBEDIENT);
    let file = |name: &str| place.work().join(name).to_str().unwrap().to_owned();
    for old in ["ready", "points", "gate"] {
        let _ = fs::remove_file(file(old));
    }
    make_fifo(&place.work().join("gate"));
    session.put_launch();
    let env = [("LARIAT_POINTS", file("points")), ("LARIAT_PAUSE_AT", point.into()), ("LARIAT_PAUSE_ON", file("gate"))];
    assert_eq!(session.run("", &env.each_ref().map(|(name, value)| (*name, value.as_str()))), "started");
    wait_until("the agent is ready", DEADLINE, || place.work().join("ready").exists());
    session
}

fn until_held(place: &Place, point: &str) {
    let points = || fs::read_to_string(place.work().join("points")).unwrap();
    wait_until(point, DEADLINE, || points().lines().any(|l| l == point));
}

fn go_on(place: &Place, session: &Session<'_>) -> Exit {
    fs::write(place.work().join("gate"), "").unwrap();
    place.wait_for_quiet();
    session.exit()
}

#[test]
fn told_before_its_agent_has_ended_or_just_after_the_record_says_so() {
    let place = Place::new("told");
    for (n, signal) in [Signal::TERM, Signal::HUP].into_iter().enumerate() {
        let session = start(&place, &format!("before{n}"), "nowhere");
        let shim = session.shim();
        session.process(shim.shim.pid).signal(signal);
        session.process(shim.agent.pid).signal(Signal::TERM);
        let exit = session.exit();
        assert_eq!((exit.code, exit.told.is_some()), (Some(0), true), "{exit:?}");
        place.wait_for_quiet();
        for point in ["shim.ended", "shim.exited"] {
            let session = start(&place, &format!("{point}{n}"), point);
            let shim = session.shim();
            session.process(shim.agent.pid).signal(Signal::TERM);
            until_held(&place, point);
            session.process(shim.shim.pid).signal(signal);
            let exit = go_on(&place, &session);
            assert_eq!((exit.code, exit.told.is_some()), (Some(0), true), "{point}: {exit:?}");
        }
    }
}

#[test]
fn a_keeper_that_is_told_while_it_writes_says_so_too() {
    let place = Place::new("told-keeper");
    let session = start(&place, "a", "keeper.exited");
    let shim = session.shim();
    session.kill(shim.shim.pid);
    session.process(shim.agent.pid).signal(Signal::TERM);
    until_held(&place, "keeper.exited");
    assert_eq!(session.exit().told, None);
    session.process(shim.keeper.expect("a keeper").pid).signal(Signal::TERM);
    let exit = go_on(&place, &session);
    assert_eq!((exit.code, exit.told.is_some()), (kernel_tells().then_some(0), true), "{exit:?}");
}

#[test]
fn an_end_that_has_nothing_to_do_with_it_is_its_own() {
    let place = Place::new("told-alone");
    let session = start(&place, "agent", "nowhere");
    session.process(session.shim().agent.pid).signal(Signal::TERM);
    assert_eq!(session.exit().told, None);
    place.wait_for_quiet();

    // Told alone, a shim leaves after a while; its agent goes on, and how that ends is its own affair.
    let session = start(&place, "shim", "nowhere");
    let shim = session.shim();
    session.process(shim.shim.pid).signal(Signal::TERM);
    wait_until("the shim has left", DEADLINE, || session.is_gone(shim.shim.pid));
    assert_eq!(session.exit_now(), None);
    session.process(shim.agent.pid).signal(Signal::TERM);
    let exit = session.exit();
    assert_eq!((exit.code, exit.told), (kernel_tells().then_some(0), None));
    place.wait_for_quiet();

    // The keeper alone: the shim makes another.
    let session = start(&place, "keeper", "nowhere");
    let keeper = session.shim().keeper.expect("a keeper").pid;
    session.process(keeper).signal(Signal::TERM);
    wait_until("there is another", DEADLINE, || session.shim().keeper.is_some_and(|k| k.pid != keeper));
    session.process(session.shim().agent.pid).signal(Signal::TERM);
    assert_eq!(session.exit().told, None);
}
