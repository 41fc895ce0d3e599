//! Every end is recorded as it was, with the launcher dead; a start that fails says why.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use lariat_shim::record::{EXIT, SHIM};
use lariat_testkit::{DEADLINE, wait_for};

use crate::place::Place;

#[test]
fn two_hundred_ends_are_recorded_right() {
    let place = Place::new("ends");
    let signals = [1, 2, 3, 6, 9, 11, 13, 14, 15];
    let mut sessions = Vec::new();
    for n in 0..200 {
        let (wanted, how) = match n % 4 {
            0 => {
                let signal = signals[n / 4 % signals.len()];
                ((None, Some(signal)), format!("ulimit -c 0; kill -{signal} $$; exit 99"))
            }
            _ => ((Some((n % 256) as i32), None), format!("exit {}", n % 256)),
        };
        let session = place.session(&format!("s{n}"), &["sh", "-c", &how]); // bash ignores SIGQUIT
        let session = if n % 2 == 1 { session.headless() } else { session };
        session.put_launch();
        sessions.push((wanted, session));
    }
    let script = "for folder in \"$@\"; do lariat-shim __shim \"$folder\"; done | cat";
    let folders: Vec<_> = sessions.iter().map(|(_, s)| s.folder.clone()).collect();
    let said = place.world().run(&place.program("sh").args(["-c", script, "sh"]).args(folders)).stdout;
    assert_eq!(said.lines().filter(|l| *l == "started").count(), 200, "{said}");
    for (wanted, session) in &sessions {
        let exit = session.exit();
        assert_eq!((exit.code, exit.signal), *wanted, "{}", session.launch.handle);
        assert_eq!((exit.agent, exit.error), (Some(session.shim().agent), None));
    }
    place.wait_for_quiet();
    let left: Vec<_> = fs::read_dir(place.runtime_dir().join("lariat")).unwrap().flatten().collect();
    assert!(left.is_empty(), "sockets left: {left:?}");
}

#[test]
fn a_program_that_cannot_be_started_is_told_with_the_reason() {
    let place = Place::new("exec");
    let locked = place.work().join("locked");
    fs::write(&locked, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o600)).unwrap();
    let locked = locked.to_str().unwrap().to_owned();
    let none = place.work().join("no-such-folder");
    let cases = [
        (
            "gone",
            "no-such-agent".to_owned(),
            None,
            "cannot start no-such-agent: No such file or directory (os error 2)",
        ),
        ("locked", locked, None, "Permission denied (os error 13)"),
        ("nowhere", "true".to_owned(), Some(none), "No such file or directory (os error 2)"),
    ];
    for headless in [false, true] {
        for (handle, program, cwd, why) in &cases {
            let mut session = place.session(&format!("{handle}-{headless}"), &[program]);
            session.launch.headless = headless;
            if let Some(cwd) = cwd {
                session.launch.cwd = cwd.clone();
            }
            session.put_launch();
            let said = session.run("", &[]);
            assert!(said.starts_with("failed cannot start") && said.ends_with(why), "{said}");
            let exit = session.exit_now().expect("an exit record");
            assert_eq!((exit.code, exit.signal, exit.agent), (None, None, None));
            assert!(exit.error.unwrap().ends_with(why));
            assert!(!session.folder.join(SHIM).exists() && !session.launch.socket.exists());
        }
    }
    place.wait_for_quiet();
}

#[test]
fn an_old_end_never_stands_for_a_new_run() {
    let place = Place::new("again");
    let mut session = place.script("a", "exit 0");
    session.start();
    assert_eq!(session.exit().code, Some(0));
    place.wait_for_quiet();
    session.launch.argv = vec!["cat".into()];
    let shim = session.start();
    assert!(!session.folder.join(EXIT).exists());
    session.kill(shim.agent.pid);
    let exit = session.exit();
    assert_eq!((exit.signal, exit.agent), (Some(9), Some(shim.agent)));
}

#[test]
fn orphans_of_the_agent_are_reaped_and_not_ended() {
    let place = Place::new("orphans");
    let session = place.script(
        "a",
        "(setsid bash -c 'echo $BASHPID > long; read x < hold' & ); (bash -c 'echo $BASHPID > short' &); read x; exit 4",
    );
    crate::place::make_fifo(&place.work().join("hold"));
    let shim = session.start();
    let pid = |name: &str| -> u32 {
        wait_for("an orphan's pid", DEADLINE, || fs::read_to_string(place.work().join(name)).ok()?.trim().parse().ok())
    };
    let (long, short) = (pid("long"), pid("short"));
    let world = place.world();
    wait_for("the short one to be reaped", DEADLINE, || world.process(short.cast_signed()).is_none().then_some(()));
    wait_for("the long one to be the shim's", DEADLINE, || {
        (world.process(long.cast_signed())?.parent == shim.shim.pid.cast_signed()).then_some(())
    });
    session.attach(crate::place::SIZE).type_text("\n");
    assert_eq!(session.exit().code, Some(4));
    place.wait_for_quiet();
    assert!(!session.is_gone(long), "it was left alone");
}
