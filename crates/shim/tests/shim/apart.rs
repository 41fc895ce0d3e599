//! The agent and the shim have what they need and nothing else; nobody else gets in.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use lariat_shim::client::Client;
use lariat_testkit::Stdin;

use crate::place::{Place, make_fifo};

#[test]
fn the_environment_is_the_given_one_and_the_mark() {
    let place = Place::new("env");
    place.env("LARIAT_TEST_CANARY", "must not pass");
    let mut session = place.session("a", &["cat", "/proc/self/environ"]).headless();
    session.launch.env = vec![("B".into(), "two words\n".into()), ("PATH".into(), "/usr/bin:/bin".into())];
    session.start();
    assert_eq!(session.exit().code, Some(0));
    let told = session.file("stdout");
    let mut told: Vec<_> = told.split(|b| *b == 0).filter(|e| !e.is_empty()).collect();
    told.sort_unstable();
    assert_eq!(told, [&b"B=two words\n"[..], b"LARIAT_SESSION=a", b"PATH=/usr/bin:/bin"]);
}

#[test]
fn no_signal_is_blocked_for_the_agent() {
    // Not through a shell, which would put it right.
    let place = Place::new("mask");
    let session = place.session("a", &["grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"]).headless();
    session.start();
    session.exit();
    assert_eq!(session.file("stdout"), b"SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

#[test]
fn nothing_of_the_launcher_reaches_the_agent_or_stays_with_the_shim() {
    let place = Place::new("fds");
    make_fifo(&place.work().join("hold"));
    let script = "ls -l /proc/self/fd > fds; grep -E 'Sig(Ign|Blk)' /proc/self/status > signals; ps -o sid= -p $$ > sid; read x < hold";
    let quick = "exec 7<>locked; flock 7; trap '' HUP INT TERM USR1; lariat-shim __shim \"$0\" | cat";
    for headless in [false, true] {
        let mut session = place.script(&format!("s{headless}"), script);
        session.launch.headless = headless;
        session.put_launch();
        let launcher = place.program("bash").args(["-c", quick]).arg(&session.folder).stdin(Stdin::Pipe);
        assert_eq!(place.world().run(&launcher).stdout.trim(), "started");
        let shim = session.shim();
        // The agent reads the FIFO when it has written everything.
        let hold = fs::OpenOptions::new().write(true).open(place.work().join("hold")).unwrap();
        let fds = fs::read_to_string(place.work().join("fds")).unwrap();
        let mut numbers: Vec<_> = fds
            .lines()
            .skip(1)
            .filter_map(|l| l.split(" -> ").next()?.rsplit(' ').next()?.parse::<u32>().ok())
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3], "3 is ls's own: {fds}");
        let signals = fs::read_to_string(place.work().join("signals")).unwrap();
        assert!(signals.lines().all(|l| l.ends_with("\t0000000000000000")), "{signals}");
        let sid: u32 = fs::read_to_string(place.work().join("sid")).unwrap().trim().parse().unwrap();
        assert_eq!(sid, shim.agent.pid, "it leads its session");
        for pid in [shim.shim.pid, shim.keeper.expect("a keeper").pid, shim.agent.pid] {
            let outside = session.process(pid).outside;
            for fd in fs::read_dir(format!("/proc/{outside}/fd")).unwrap() {
                let Ok(leads) = fs::read_link(fd.unwrap().path()) else { continue }; // closed meanwhile
                assert!(!leads.ends_with("locked"), "{pid} holds the launcher's lock");
            }
            if pid != shim.agent.pid {
                let cwd = fs::read_link(format!("/proc/{outside}/cwd")).unwrap();
                assert_eq!(cwd.to_str(), Some("/"), "{pid} stands in the way of a worktree");
            }
        }
        if let Some(cgroup) = &shim.cgroup {
            let procs = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap();
            let agent = session.process(shim.agent.pid).outside.to_string();
            assert_eq!(procs.lines().collect::<Vec<_>>(), [agent], "the agent and nobody else");
        }
        drop(hold);
        assert_eq!(session.exit().code, Some(1), "read met the end of the FIFO");
        place.wait_for_quiet();
        assert!(shim.cgroup.is_none_or(|c| !c.exists()), "its cgroup is left");
    }
}

#[test]
fn a_door_that_is_not_ours_alone_is_not_used() {
    let place = Place::new("doors");
    let open = place.runtime_dir().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    symlink(place.runtime_dir(), place.runtime_dir().join("linked")).unwrap();
    let long = "x".repeat(108);
    let cases =
        [("open/s", "is open to others"), ("linked/s", "is not a directory"), (&long, "longer than the 107 bytes")];
    for (n, (socket, why)) in cases.iter().enumerate() {
        let mut session = place.script(&format!("s{n}"), "echo must not run > ran");
        session.launch.socket = place.runtime_dir().join(socket);
        session.put_launch();
        let said = session.run("", &[]);
        assert!(said.starts_with("failed ") && said.contains(why), "{said}");
        assert!(session.exit_now().unwrap().error.unwrap().contains(why));
        let error = Client::connect(&session.launch.socket).err().unwrap().to_string();
        assert!(error.contains(why), "{error}");
    }
    assert!(!place.work().join("ran").exists());
}

#[test]
fn another_user_gets_in_nowhere() {
    if !rustix::process::geteuid().is_root() {
        return; // needs a second user
    }
    let place = Place::new("users");
    let mut session = place.script("a", "read x; echo got $x; read x");
    // Where another user can come at all: the world's own /tmp.
    let folder = place.root().join("tmp/door");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(place.root().join("tmp"), fs::Permissions::from_mode(0o755)).unwrap();
    session.launch.socket = "/tmp/door/s".into();
    let shim = session.start();
    let knock = |socket: &str| {
        let script = "use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0); \
             connect(S, pack_sockaddr_un($ARGV[0])) or do { print 'refused'; exit }; \
             print sysread(S, $x, 100) ? 'heard' : 'closed'";
        let nobody =
            ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "perl", "-e", script, socket];
        place.run(nobody).stdout
    };
    assert_eq!(knock("/tmp/door/s"), "refused");
    assert_eq!(knock("/tmp/door/s.k"), "refused");
    // Even with the door wide open, the kernel's word on who it is decides.
    for path in [folder.clone(), folder.join("s"), folder.join("s.k")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    assert_eq!(knock("/tmp/door/s"), "closed");
    assert_eq!(knock("/tmp/door/s.k"), "closed");
    assert_eq!(place.run(["perl", "-e", "use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0); connect(S, pack_sockaddr_un($ARGV[0])) or die; print sysread(S, $x, 100) ? 'heard' : 'closed'", "/tmp/door/s"]).stdout, "heard", "we do");
    assert!(!session.is_gone(shim.agent.pid));
}
