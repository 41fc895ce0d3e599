//! The shim ends, as by `kill -9`, at every named point and at any other moment: whatever is on
//! record afterwards is true.

use std::collections::BTreeSet;
use std::fs;

use lariat_shim::record::{Exit, Shim};
use lariat_testkit::{DEADLINE, Signal, wait_until};

use crate::place::{Place, Session, kernel_tells, make_fifo};

/// Nothing of it runs any more; what it left may say nothing, or the truth.
fn settled(place: &Place, session: &Session<'_>) -> Option<Exit> {
    place.wait_for_quiet();
    wait_until("the agent to be gone", DEADLINE, || place.named("bash").is_empty());
    session.exit_now()
}

#[test]
fn at_every_point_nothing_false_is_recorded() {
    let place = Place::new("points");
    let notes = place.work().join("points");
    let mut points = BTreeSet::new();
    for headless in [false, true] {
        let mut session = place.script(&format!("all{headless}"), "exit 3");
        session.launch.headless = headless;
        session.put_launch();
        assert_eq!(session.run("", &[("LARIAT_POINTS", notes.to_str().unwrap())]), "started");
        assert_eq!(session.exit().code, Some(3));
        place.wait_for_quiet();
        points.extend(fs::read_to_string(&notes).unwrap().lines().map(str::to_owned));
    }
    assert!(points.len() >= 15, "{points:?}");
    for (n, point) in points.iter().enumerate() {
        for headless in [false, true] {
            let mut session = place.script(&format!("s{n}{headless}"), "exit 3");
            session.launch.headless = headless;
            session.put_launch();
            let said = session.run("", &[("LARIAT_DIE_AT", point)]);
            let exit = settled(&place, &session);
            let told = exit.as_ref().map(|e| (e.code, e.signal, e.error.as_deref()));
            // A terminal whose holder dies before there is a keeper hangs up.
            let honest = [None, Some((Some(3), None, None)), Some((None, Some(1), None)), Some((None, None, None))];
            assert!(honest.contains(&told), "{point}: {told:?} after {said:?}");
            if point.starts_with("shim.ended") || point.starts_with("shim.drained") {
                let code = kernel_tells().then_some(3);
                assert_eq!(exit.as_ref().expect("the keeper is a witness").code, code, "{point}");
            }
            if point == "shim.exited" || point == "shim.announced" {
                assert_eq!(exit.as_ref().expect("it was on record").code, Some(3), "{point}");
            }
        }
    }
}

#[test]
fn who_is_not_told_to_go_starts_nothing() {
    let place = Place::new("untold");
    let mut beside = None;
    for (n, given) in ["\\0LAUNCH\\0!", "A=3\\0\\0LAUNCH\\0!"].into_iter().enumerate() {
        let session = place.script(&format!("t{n}"), "exit ${A:-3}");
        session.put_launch();
        let said = session.run_given(given);
        let (first, then) = said.split_once('\n').expect("two lines");
        let Shim { agent, cgroup, .. } = session.shim();
        assert_eq!(first.strip_prefix("running "), Some(serde_json::to_string(&agent).unwrap().as_str()), "{given}");
        assert_eq!((then, session.exit().code), ("started", Some(3)), "{given}");
        beside = cgroup.and_then(|own| Some(own.parent()?.to_owned()));
    }
    // What a launcher had handed over when it died: nothing, a part, all but the word, another word.
    let untold =
        ["", "A=1", "A=1\\0", "A=1\\0B=2\\0\\0", "A=1\\0\\0{", "\\0LAUNCH", "A=1\\0\\0LAUNCH\\0", "\\0LAUNCH\\0?"];
    let name = format!("untold-{}", std::process::id()); // cgroups are everybody's
    for (n, given) in untold.into_iter().enumerate() {
        let session = place.script(&format!("{name}-{n}"), "echo > began; exit 3");
        session.put_launch();
        assert_eq!(session.run_given(given), "", "{given}");
        place.wait_for_quiet();
        assert!(!place.work().join("began").exists(), "{given}");
        // What stood ready tells nothing: no process, no end, no door.
        let left = fs::read_dir(&session.folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let told: Vec<_> = left.filter(|name| name != "shim.lock" && !name.starts_with("output.")).collect();
        assert_eq!(told, ["launch.json"], "{given}");
        assert!(!session.launch.socket.exists(), "{given}");
        // Where a cgroup can be made, the one that it would have begun in is gone.
        let cgroups = beside.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
        let mut cgroups = cgroups.map(|e| e.unwrap().file_name().into_string().unwrap());
        assert_eq!(cgroups.find(|cgroup| cgroup.contains(&name)), None, "{given}");
    }
}

#[test]
fn a_take_over_that_dies_leaves_all_as_it_was() {
    let place = Place::new("taking");
    let session = place.script("a", "read x; exit 3");
    session.start();
    for point in ["shim.locked", "shim.fetched", "put.written", "shim.taken"] {
        session.kill(session.shim().shim.pid);
        assert_eq!(session.run("--take-over", &[("LARIAT_DIE_AT", point)]), "", "{point}");
        assert_eq!(session.exit_now(), None);
        assert_eq!(session.run("--take-over", &[]), "started", "after {point}");
    }
    session.attach(crate::place::SIZE).type_text("\n");
    assert_eq!(session.exit().code, kernel_tells().then_some(3));
}

#[test]
fn killed_around_the_exit_no_success_is_made_up() {
    let place = Place::new("around");
    make_fifo(&place.work().join("hold"));
    let mut told = [0; 3];
    for n in 0..60u32 {
        let mut session = place.script(&format!("s{n}"), "read x < hold; exit 3");
        session.launch.headless = n % 2 == 1;
        let shim = session.start();
        let process = session.process(shim.shim.pid);
        fs::write(place.work().join("hold"), "\n").unwrap();
        // Somewhere from before the agent reads to after the record.
        for _ in 0..n * 2000 {
            std::hint::spin_loop();
        }
        process.signal(Signal::KILL);
        let exit = settled(&place, &session);
        let exit = exit.expect("one of two witnesses");
        match (exit.code, exit.signal) {
            (Some(3), None) => told[0] += 1,
            (None, Some(1)) => told[1] += 1,
            (None, None) => told[2] += 1,
            other => panic!("round {n}: {other:?}"),
        }
    }
    println!("60 kills around the exit: {} right codes, {} hung up, {} not known", told[0], told[1], told[2]);
    if kernel_tells() {
        assert_eq!(told, [60, 0, 0]);
    }
}
