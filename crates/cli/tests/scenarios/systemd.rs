//! The daemon as a unit of a real systemd: started by whoever knocks, stopped without an agent noticing,
//! taken away without a trace.
//!
//! The user's systemd runs in the sandbox's world, with the sandbox's runtime directory, in a cgroup that
//! was made for it. Where that cannot be, the tests fail and say what is needed: they never pass unseen.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use lariat_testkit::{Child, DEADLINE, Lookalike, Output, Sandbox, Signal, put_program, wait_until};
use serde_json::{Value, json};

use crate::asking::{ask, list};
use crate::daemon::{daemons, kill, start};
use crate::http::Served;

/// The cgroups that were made for one user's systemd, one in each tree that it uses. They are taken away
/// when the world that used them has ended.
struct Cgroups(Vec<PathBuf>);

impl Cgroups {
    fn make(sandbox: &Sandbox) -> Self {
        let name = sandbox.root().file_name().and_then(|n| n.to_str()).expect("UTF-8").to_owned();
        let own = fs::read_to_string("/proc/self/cgroup").expect("a kernel with cgroups");
        let trees =
            [("name=systemd", "/sys/fs/cgroup/systemd"), ("", "/sys/fs/cgroup/unified"), ("", "/sys/fs/cgroup")];
        let own_in = |kind: &str| own.lines().find_map(|l| l.split_once(':')?.1.strip_prefix(kind)?.strip_prefix(":/"));
        let is_tree = |at: &&(&str, &str)| Path::new(at.1).join("cgroup.procs").exists();
        let made: Vec<PathBuf> = trees
            .iter()
            .filter(is_tree)
            .filter_map(|(kind, at)| Some(Path::new(at).join(own_in(kind)?).join(format!("lariat-test.{name}"))))
            .collect();
        assert!(!made.is_empty(), "this test needs cgroups at /sys/fs/cgroup, for a real systemd to put units into");
        for folder in &made {
            fs::create_dir(folder).unwrap_or_else(|e| {
                panic!("{}: {e}; this test needs a cgroup that it may divide, for a real systemd", folder.display())
            });
        }
        Self(made)
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for folder in &self.0 {
            remove(folder);
        }
    }
}

/// Takes a tree of cgroups away, from its leaves. What is still in use stays, and is named.
fn remove(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            remove(&entry.path());
        }
    }
    if let Err(e) = fs::remove_dir(folder) {
        println!("{} is left: {e}", folder.display());
    }
}

/// A real systemd of the sandbox's user. (Fields are dropped in this order: the world before its cgroups.)
struct Systemd {
    sandbox: Sandbox,
    cgroups: Cgroups,
    _manager: Child,
}

impl Systemd {
    fn start(name: &str) -> Self {
        let sandbox = Sandbox::new(name);
        let cgroups = Cgroups::make(&sandbox);
        let into: String = cgroups.0.iter().map(|c| format!("echo 0 > '{}/cgroup.procs'\n", c.display())).collect();
        // `/run/systemd/system` is how a booted system is told; only this world sees it.
        let script = format!(
            "set -e\nmount -t tmpfs -o mode=755 tmpfs /run\nmkdir -p /run/systemd/system\n{into}\
             for at in /usr/lib/systemd/systemd /lib/systemd/systemd; do\n\
             [ -x $at ] && exec $at --user --unit=default.target --log-target=console\ndone\n\
             echo 'systemd is not installed: `make tools` does it' >&2; exit 1\n"
        );
        let program = sandbox.program("sh").args(["-c", &script]);
        let manager = sandbox.spawn(&program);
        let systemd = Self { sandbox, cgroups, _manager: manager };
        wait_until("a real systemd of the user runs", DEADLINE, || {
            assert!(systemd._manager.exit().is_none(), "no systemd here: {}", systemd._manager.stderr());
            systemd.ctl(&["is-system-running"]).stdout.trim() == "running"
        });
        systemd
    }

    fn ctl(&self, args: &[&str]) -> Output {
        self.sandbox.run([&["systemctl", "--user"], args].concat())
    }

    fn property(&self, unit: &str, name: &str) -> String {
        self.ctl(&["show", unit, "--value", "-p", name]).expect_success().stdout.trim().to_owned()
    }

    fn main_pid(&self) -> i32 {
        self.property("lariat.service", "MainPID").parse().expect("a number")
    }

    /// The cgroups that a process of the world stands in.
    fn cgroups_of(&self, pid: i32) -> String {
        let process = self.sandbox.world().process(pid).expect("it lives");
        fs::read_to_string(format!("/proc/{}/cgroup", process.outside)).expect("its cgroups")
    }
}

fn daemon_pid(sandbox: &Sandbox) -> i32 {
    let told = ask(sandbox, &["daemon", "status", "--json"]);
    assert_eq!(told.code(), 0, "{}", told.stderr);
    i32::try_from(told.json()["pid"].as_i64().expect("a pid")).expect("a pid")
}

fn pid_of(launched: &Value) -> i32 {
    i32::try_from(launched["pid"].as_i64().expect("a pid")).expect("a pid")
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn a_unit_is_started_by_who_knocks_and_stopping_it_ends_no_agent() {
    let systemd = Systemd::start("unit");
    let sandbox = &systemd.sandbox;
    drop(Lookalike::program(sandbox, "claude"));
    let units = sandbox.home().join(".config/systemd/user");
    let door = sandbox.runtime_dir().join("lariat/daemon.sock");
    // One that was started by hand makes room.
    let by_hand = start(sandbox);
    ask(sandbox, &["daemon", "install", "--http", "0"]).expect_success();
    for unit in ["lariat.socket", "lariat.service"] {
        assert_eq!(systemd.property(unit, "ActiveState"), "active");
        assert_eq!(systemd.property(unit, "UnitFileState"), "enabled");
    }
    let verified =
        sandbox.run(["systemd-analyze", "--user", "verify", units.join("lariat.service").to_str().expect("UTF-8")]);
    assert_eq!((verified.code(), verified.stderr.as_str()), (0, ""), "systemd finds nothing wrong with it");
    let first = daemon_pid(sandbox);
    assert_eq!(first, systemd.main_pid());
    assert!(first != by_hand && daemons(sandbox) == 1);
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&door), mode(door.parent().expect("a folder"))), (0o600, 0o700));

    // The first who knocks has it started; who would only stop it does not.
    systemd.ctl(&["stop", "lariat.service"]).expect_success();
    assert_eq!(daemons(sandbox), 0);
    assert_eq!(ask(sandbox, &["daemon", "stop", "--json"]).json()["daemon"], "absent");
    assert_eq!(systemd.main_pid(), 0, "nobody knocked");
    let second = daemon_pid(sandbox);
    assert_eq!(second, systemd.main_pid());
    systemd.ctl(&["stop", "lariat.service"]).expect_success();
    ask(sandbox, &["ls", "--json"]).expect_success();
    wait_until("a list has it started", DEADLINE, || systemd.main_pid() != 0);
    // By hand there comes no second one, and the door stays systemd's.
    ask(sandbox, &["daemon", "stop"]).expect_success();
    assert_eq!(ask(sandbox, &["daemon", "start", "--json"]).json()["daemon"], "running");
    assert_eq!((daemon_pid(sandbox), daemons(sandbox)), (systemd.main_pid(), 1));

    // What it launches for others stands outside of its unit.
    let served = Served::running(sandbox);
    let launched = served.post("/v1/sessions", &json!({"agent": "claude", "cwd": sandbox.work()}));
    assert_eq!(launched.status, 200, "{launched:?}");
    let launched = launched.json();
    let (agent, native) = (pid_of(&launched), launched["native_id"].as_str().expect("an id"));
    let handle = launched["handle"].as_str().expect("a handle");
    let shim = sandbox.world().process(agent).expect("it lives").parent;
    assert!(systemd.cgroups_of(daemon_pid(sandbox)).contains("/lariat.service"), "the daemon is in its unit");
    for pid in [agent, shim] {
        let stands = systemd.cgroups_of(pid);
        assert!(!stands.contains("lariat.service"), "{pid}: {stands}");
        assert!(stands.contains(&format!("/lariat.{handle}.")) && stands.contains(".scope"), "{pid}: {stands}");
    }
    let lives = || list(sandbox).expect(native, "starting", Some(agent));
    lives();

    // Killed, it is back for the next who asks.
    let before = daemon_pid(sandbox);
    kill(sandbox, before);
    let after = daemon_pid(sandbox);
    assert!(after != before && after == systemd.main_pid());
    lives();
    // Everything in the unit is killed: that is the daemon.
    systemd.ctl(&["kill", "--kill-who=all", "--signal=KILL", "lariat.service"]).expect_success();
    wait_until("it is gone", DEADLINE, || sandbox.world().process(after).is_none_or(|p| p.state == 'Z'));
    lives();
    assert!(daemon_pid(sandbox) != after);
    systemd.ctl(&["stop", "lariat.service", "lariat.socket"]).expect_success();
    assert_eq!(daemons(sandbox), 0);
    assert!(!door.exists(), "nobody is behind it");
    lives();
    assert_eq!(ask(sandbox, &["daemon", "status"]).code(), 1, "and every verb answers without it");

    // Taken away, nothing of it is left, and the agent goes on until somebody ends it.
    systemd.ctl(&["start", "lariat.socket"]).expect_success();
    daemon_pid(sandbox);
    ask(sandbox, &["daemon", "uninstall"]).expect_success();
    assert_eq!(files(&units), Vec::<PathBuf>::new());
    assert_eq!(daemons(sandbox), 0);
    assert!(!door.exists());
    assert_eq!(systemd.property("lariat.service", "LoadState"), "not-found");
    lives();
    ask(sandbox, &["kill", handle]).expect_success();
    list(sandbox).expect(native, "stopped", None);
    let scopes = || systemd.ctl(&["list-units", "--all", "--plain", "--no-legend", "lariat*"]).expect_success().stdout;
    wait_until("its scope is gone with it", DEADLINE, || scopes().is_empty());
    assert!(!systemd.cgroups.0.is_empty());
}

#[test]
fn without_a_scope_to_be_had_an_agent_begins_in_the_unit_and_outlives_it() {
    let systemd = Systemd::start("noscope");
    let sandbox = &systemd.sandbox;
    drop(Lookalike::program(sandbox, "claude"));
    let broken = sandbox.root().join("own-systemd-run");
    put_program(&broken, "#!/bin/sh\nexit 1\n");
    sandbox.install("systemd-run", &broken);
    ask(sandbox, &["daemon", "install", "--http", "0"]).expect_success();
    let served = Served::running(sandbox);
    let launched = served.post("/v1/sessions", &json!({"agent": "claude", "cwd": sandbox.work()}));
    assert_eq!(launched.status, 200, "{launched:?}");
    let launched = launched.json();
    let (agent, native) = (pid_of(&launched), launched["native_id"].as_str().expect("an id"));
    assert!(systemd.cgroups_of(agent).contains("/lariat.service/"));
    ask(sandbox, &["daemon", "uninstall"]).expect_success();
    assert_eq!(daemons(sandbox), 0);
    list(sandbox).expect(native, "starting", Some(agent));
    sandbox.world().process(agent).expect("it lives").signal(Signal::KILL);
}
