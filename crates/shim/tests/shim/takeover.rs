//! `kill -9` of the shim, of the keeper, of both.

use lariat_shim::client::Event;
use lariat_testkit::{DEADLINE, wait_until};

use crate::place::{Place, SIZE, kernel_tells, make_fifo};

const ECHO: &str = "stty -echo; echo ready; while read x; do echo \"got $x\"; [ $x = end ] && exit 7; done; exit 8";

/// What a witness that is not the parent knows.
fn seven() -> (Option<i32>, Option<i32>) {
    (kernel_tells().then_some(7), None)
}

#[test]
fn an_agent_without_a_terminal_survives_and_its_end_is_known() {
    let place = Place::new("headless");
    make_fifo(&place.work().join("hold"));
    let session = place.script("a", "read x < hold; echo $x; exit 7").headless();
    let shim = session.start();
    session.kill(shim.shim.pid);
    assert!(!session.is_gone(shim.agent.pid));
    std::fs::write(place.work().join("hold"), "on\n").unwrap();
    let exit = session.exit();
    assert_eq!((exit.code, exit.signal), seven());
    assert_eq!(session.file("stdout"), b"on\n");
    place.wait_for_quiet();
    assert!(!session.launch.socket.exists());
}

#[test]
fn a_terminal_survives_and_another_shim_goes_on() {
    let place = Place::new("terminal");
    let session = place.script("a", ECHO);
    let before = session.start();
    let mut viewer = session.attach(SIZE);
    viewer.wait_for("ready");
    for round in 0..3 {
        let shim = session.shim();
        session.kill(shim.shim.pid);
        assert_eq!(viewer.rest(), Event::Closed);
        assert!(!session.is_gone(shim.agent.pid), "round {round}");
        assert_eq!(session.run("--take-over", &[]), "started");
        let now = session.shim();
        assert_ne!(now.shim, shim.shim);
        assert_eq!((&now.agent, now.started_at), (&before.agent, before.started_at));
        assert!(now.taken_over_at.is_some());
        viewer = session.attach(SIZE);
        viewer.wait_for("ready");
        viewer.type_text(&format!("round{round}\n"));
        viewer.wait_for(&format!("got round{round}"));
    }
    viewer.type_text("end\n");
    match viewer.rest() {
        Event::Exited(exit) => assert_eq!((exit.code, exit.signal), seven()),
        other => panic!("{other:?}"),
    }
    place.wait_for_quiet();
    assert!(session.run("--take-over", &[]).starts_with("failed nothing to take over"));
    let tail = lariat_shim::ring::Output::open(&session.folder).unwrap().tail(u64::MAX).unwrap().bytes;
    let tail = String::from_utf8(tail).unwrap();
    assert_eq!(tail, "ready\r\ngot round0\r\ngot round1\r\ngot round2\r\ngot end\r\n", "the ring went on");

    // Another agent in the same folder: it is on record where its own output begins, whoever holds it.
    assert_eq!(before.output_from, 0);
    let again = session.start();
    assert_eq!(again.output_from, tail.len() as u64);
    session.kill(again.shim.pid);
    assert_eq!(session.run("--take-over", &[]), "started");
    assert_eq!(session.shim().output_from, again.output_from);
    let mut viewer = session.attach(SIZE);
    viewer.type_text("end\n");
    assert!(matches!(viewer.rest(), Event::Exited(_)));
    place.wait_for_quiet();
}

#[test]
fn only_one_takes_over() {
    let place = Place::new("race");
    let session = place.script("a", ECHO);
    let shim = session.start();
    assert!(session.run("--take-over", &[]).starts_with("failed another shim holds this session"));
    assert!(session.run("", &[]).starts_with("failed another shim holds this session"));
    assert_eq!(session.shim(), shim);
    for round in 0..10 {
        session.kill(session.shim().shim.pid);
        let script = "for n in 1 2 3 4 5 6 7 8; do lariat-shim __shim --take-over \"$0\" & done | cat";
        let said = place.run([std::path::Path::new("sh"), "-c".as_ref(), script.as_ref(), &session.folder]).stdout;
        let started = said.lines().filter(|l| *l == "started").count();
        assert_eq!(started, 1, "round {round}: {said}");
        assert_eq!(said.lines().filter(|l| l.contains("another shim holds")).count(), 7, "{said}");
        wait_until("the others to be gone", DEADLINE, || place.named("lariat-shim").len() == 1);
    }
    let mut viewer = session.attach(SIZE);
    viewer.type_text("end\n");
    viewer.wait_for("got end");
    assert_eq!((session.exit().code, session.exit().signal), seven());
}

#[test]
fn one_that_is_halted_is_told_apart_from_one_that_is_dead() {
    let place = Place::new("halted");
    let session = place.script("a", ECHO);
    let shim = session.start();
    let halted = session.process(shim.shim.pid);
    halted.signal(lariat_testkit::Signal::STOP);
    let answer = lariat_shim::client::Client::connect(&session.launch.socket);
    assert!(answer.as_ref().is_err_and(|e| e.is_silent()), "{:?}", answer.err());
    halted.signal(lariat_testkit::Signal::CONT);
    session.attach(SIZE).wait_for("ready");
    session.kill(shim.shim.pid);
    let answer = lariat_shim::client::Client::connect(&session.launch.socket);
    assert!(answer.as_ref().is_err_and(|e| !e.is_silent()), "{:?}", answer.err());
}

#[test]
fn a_dead_keeper_is_replaced_and_the_new_one_keeps() {
    let place = Place::new("keeper");
    let session = place.script("a", ECHO);
    let shim = session.start();
    let first = shim.keeper.expect("a keeper");
    session.kill(first.pid);
    wait_until("another keeper", DEADLINE, || session.shim().keeper.is_some_and(|k| k != first));
    session.kill(shim.shim.pid);
    assert_eq!(session.run("--take-over", &[]), "started");
    let mut viewer = session.attach(SIZE);
    viewer.wait_for("ready");
    assert!(viewer.client.status().unwrap().kept);
    viewer.type_text("end\n");
    viewer.wait_for("got end");
}

#[test]
fn without_any_holder_the_end_is_not_made_up() {
    let place = Place::new("both");
    let session = place.script("a", ECHO);
    let shim = session.start();
    session.attach(SIZE).wait_for("ready");
    let (one, two) = (session.process(shim.shim.pid), session.process(shim.keeper.unwrap().pid));
    // Held still, so that neither can act on the other's death.
    two.signal(lariat_testkit::Signal::STOP);
    one.signal(lariat_testkit::Signal::KILL);
    two.signal(lariat_testkit::Signal::KILL);
    wait_until("the agent to be hung up on", DEADLINE, || session.is_gone(shim.agent.pid));
    place.wait_for_quiet();
    assert_eq!(session.exit_now(), None);
    let said = session.run("--take-over", &[]);
    assert!(said.starts_with("failed cannot connect to"), "{said}");
}
