//! A world holds what is started in it, and leaves nothing behind.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    path::Path,
    process::{Command, Stdio},
};

use lariat_testkit::{DEADLINE, Exit, Sandbox, Signal, Stdin, wait_for, wait_until};

#[test]
fn runs_a_program_to_its_end() {
    let sandbox = Sandbox::new("run");
    let output = sandbox.run(["sh", "-c", "echo out; echo err >&2; echo $$; exit 3"]);
    assert_eq!(output.code(), 3);
    assert!(output.stdout.starts_with("out\n"));
    assert_eq!(output.stderr, "err\n");
    assert_eq!(sandbox.run(["no-such-program"]).code(), 127);
}

#[test]
fn the_environment_is_only_its_own() {
    let sandbox = Sandbox::new("env");
    sandbox.env("LARIAT_X", "y");
    let output = sandbox.run(["env"]).expect_success();
    let mut names: Vec<_> = output.stdout.lines().filter_map(|l| l.split('=').next()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "GIT_CONFIG_NOSYSTEM",
            "HOME",
            "LANG",
            "LARIAT_X",
            "PATH",
            "TERM",
            "XDG_CACHE_HOME",
            "XDG_CONFIG_HOME",
            "XDG_DATA_HOME",
            "XDG_RUNTIME_DIR",
            "XDG_STATE_HOME"
        ]
    );
    assert!(output.stdout.contains("LARIAT_X=y"));
    assert_eq!(sandbox.run(["git", "branch", "--show-current"]).stdout, "main\n");
}

#[test]
fn tmp_is_private() {
    let sandbox = Sandbox::new("tmp");
    let name = format!("/tmp/lariat-testkit-canary-{}", std::process::id());
    sandbox.run(["touch", &name]).expect_success();
    assert!(!Path::new(&name).exists(), "a file in the world's /tmp is seen outside");
    assert!(sandbox.root().join(&name[1..]).exists());
}

#[test]
fn signals_reach_a_child_and_its_exit_is_told() {
    let sandbox = Sandbox::new("signal");
    let child = sandbox.spawn(&sandbox.program("cat").stdin(Stdin::Pipe));
    child.write_line("hello");
    child.wait_for_stdout("hello", DEADLINE);
    assert_eq!(child.exit(), None);
    child.signal(Signal::TERM);
    assert_eq!(child.wait(DEADLINE), Exit::Signal(15));
    child.signal(Signal::TERM); // gone: nothing happens
}

#[test]
fn nothing_survives_the_world() {
    let sandbox = Sandbox::new("survive");
    let script = "(setsid sh -c 'trap \"\" TERM HUP; echo $$ > inner; cat pipe' &) ; echo started";
    sandbox.run(["mkfifo", "pipe"]).expect_success();
    sandbox.run(["sh", "-c", script]).expect_success();
    let work = sandbox.work();
    let pid: i32 = wait_for("the double-forked child", DEADLINE, || {
        fs::read_to_string(work.join("inner")).ok()?.trim().parse().ok()
    });
    let orphan = sandbox.world().process(pid).expect("the orphan lives");
    assert_eq!(orphan.parent, 1, "it was left to PID 1");
    let direct = sandbox.spawn(&sandbox.program("cat").stdin(Stdin::Pipe));
    let outside = [orphan.outside, direct.outside_pid().expect("alive"), sandbox.world().init_pid()];
    let alive = |pid: &&i32| Path::new(&format!("/proc/{pid}")).exists();
    assert_eq!(outside.iter().filter(alive).count(), 3);
    let root = sandbox.root().to_owned();
    drop(sandbox);
    assert_eq!(outside.iter().filter(alive).count(), 0, "a process outlived its world");
    assert!(!root.exists(), "the directory outlived its sandbox");
}

#[test]
fn a_reboot_ends_all_and_changes_the_boot_id() {
    let mut sandbox = Sandbox::new("reboot");
    let boot_id = |s: &Sandbox| s.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout;
    let child = sandbox.spawn(&sandbox.program("cat").stdin(Stdin::Pipe));
    let outside = child.outside_pid().expect("alive");
    sandbox.run(["touch", "kept"]).expect_success();
    let before = boot_id(&sandbox);
    sandbox.reboot();
    assert!(!Path::new(&format!("/proc/{outside}")).exists());
    assert_ne!(before, boot_id(&sandbox));
    assert!(sandbox.work().join("kept").exists());
}

#[test]
fn a_killed_test_leaves_nothing() {
    #[expect(clippy::disallowed_methods, reason = "a test that is to be killed")]
    let mut test = Command::new(std::env::current_exe().expect("this test"))
        .args(["--ignored", "--exact", "--nocapture", "sits_in_a_world_until_killed"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let said = BufReader::new(test.stdout.take().expect("its output")).lines();
    let pids: Vec<i32> = said
        .map(|line| line.expect("a line"))
        .find_map(|line| line.strip_prefix("pids ").map(str::to_owned))
        .expect("its pids")
        .split(' ')
        .map(|pid| pid.parse().expect("a pid"))
        .collect();
    let alive = || pids.iter().filter(|pid| fs::exists(format!("/proc/{pid}")).expect("/proc"));
    assert_eq!(alive().count(), 2);
    test.kill().expect("it can be killed");
    test.wait().expect("it ends");
    wait_until("its world to end", DEADLINE, || alive().count() == 0);
}

#[test]
#[ignore = "run and killed by a_killed_test_leaves_nothing"]
fn sits_in_a_world_until_killed() {
    let sandbox = Sandbox::new("killed");
    let child = sandbox.spawn(&sandbox.program("cat").stdin(Stdin::Pipe));
    let outside = child.outside_pid().expect("alive");
    writeln!(io::stdout(), "\npids {} {outside}", sandbox.world().init_pid()).expect("a reader");
    io::stdin().read_to_end(&mut Vec::new()).expect("an end");
}
