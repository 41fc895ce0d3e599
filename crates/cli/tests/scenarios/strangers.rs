//! Another user of this machine gets nowhere: row 8 of what must hold.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;

use lariat_testkit::{DEADLINE, Output, Sandbox, Signal, Stdin, copy_program, wait_until};

use crate::asking::{Answer, LARIAT, ask, id, list, through};
use crate::claude_store::ClaudeStore;
use crate::codex_store::CodexStore;
use crate::daemon::start;
use crate::http::Served;
use crate::pi_store::PiStore;

const OTHER: u32 = 65534;

/// Runs a program as another user.
fn as_other(sandbox: &Sandbox, argv: &[&str]) -> Output {
    let user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    sandbox.run([&user, argv].concat())
}

/// Knocks at a socket, says hello, and tells what it heard.
const KNOCK: &str = "use IO::Socket::UNIX; $SIG{PIPE} = 'IGNORE'; my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or exit 9; \
    print $s '{\"protocol\":1,\"lariat\":\"0.1.0\",\"view\":\"x\"}', \"\\n\", '{\"ask\":\"status\"}', \"\\n\"; \
    $s->flush; local $/; print scalar <$s>;";

/// Listens at a path, as a daemon would, and says hello to whoever comes.
const PLANT: &str = "use IO::Socket::UNIX; $SIG{PIPE} = 'IGNORE'; my $s = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 9) or exit 9; \
    chmod 0777, $ARGV[0]; open my $f, '>', $ARGV[1]; close $f; \
    while (my $c = $s->accept) { print $c '{\"protocol\":1,\"lariat\":\"0.1.0\",\"view\":\"x\"}', \"\\n\"; \
    while (<$c>) { print $c '{\"code\":0,\"bytes\":2}', \"\\n\", '{}'; $c->flush } }";

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

#[test]
fn row_8_another_user_gets_nowhere() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can be another user");
        return;
    }
    let sandbox = Sandbox::new("strangers");
    let claude = ClaudeStore::of(&sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    let entry = claude.register(&agent, &id(1)).says("idle");
    // Where another user can come at all: the world's own /tmp.
    let tmp = sandbox.root().join("tmp");
    for name in ["run", "state"] {
        fs::create_dir(tmp.join(name)).expect("a folder");
        mode(&tmp.join(name), 0o755);
    }
    mode(&tmp, 0o755);
    sandbox.env("XDG_RUNTIME_DIR", "/tmp/run");
    sandbox.env("XDG_STATE_HOME", "/tmp/state");
    let folder = tmp.join("run/lariat");
    let socket = folder.join("daemon.sock");
    let at = "/tmp/run/lariat/daemon.sock";
    let mut tries = 0;
    let mut gets_nothing = |output: &Output| {
        tries += 1;
        assert!(output.stdout.is_empty(), "{output:?}");
    };
    // The door is closed to others, and so is all that would open another.
    let served = Served::start(&sandbox);
    ask(&sandbox, &["web", "--no-open"]).expect_success();
    gets_nothing(&as_other(&sandbox, &["perl", "-e", KNOCK, at]));
    let state = tmp.join("state/lariat");
    for secret in ["daemon.token", "web", "daemon.log", "sessions"] {
        assert!(state.join(secret).exists(), "{secret}");
        gets_nothing(&as_other(&sandbox, &["grep", "-r", ".", &format!("/tmp/state/lariat/{secret}")]));
    }
    let host = format!("Host: 127.0.0.1:{}\r\n", served.port);
    assert_eq!(served.say(&format!("GET /v1/sessions HTTP/1.1\r\n{host}\r\n")).status, 401);
    // Even through an open door another user hears not a word.
    mode(&folder, 0o777);
    mode(&socket, 0o777);
    let knocked = as_other(&sandbox, &["perl", "-e", KNOCK, at]);
    gets_nothing(&knocked);
    assert_ne!(knocked.code(), 9, "it did connect");
    wait_until("it is noted", DEADLINE, || {
        let logged = fs::read_to_string(state.join("daemon.log")).unwrap_or_default();
        logged.contains(&format!("user {OTHER} tried to connect"))
    });
    // And we do not use a door that others could have made.
    let told = ask(&sandbox, &["daemon", "status"]);
    assert!(told.code() == 1 && told.stderr.contains("open to others"), "{told:?}");
    list(&sandbox).expect(&id(1), "idle", Some(agent.pid()));
    mode(&folder, 0o700);
    ask(&sandbox, &["daemon", "stop"]).expect_success();
    // A directory that another user made, or a link to one: no door is opened there.
    let theirs = tmp.join("theirs");
    fs::create_dir(&theirs).expect("a folder");
    chown(&theirs, Some(OTHER), Some(OTHER)).expect("theirs");
    mode(&theirs, 0o700);
    let refuses = || {
        let refused = ask(&sandbox, &["daemon", "start"]);
        assert_eq!(refused.code(), 1, "{}", refused.stderr);
        assert!(!socket.exists() && !theirs.join("daemon.sock").exists());
        list(&sandbox).expect(&id(1), "idle", Some(agent.pid()));
        let web = ask(&sandbox, &["web", "--no-open"]);
        assert!(web.code() != 0 && web.stdout.is_empty(), "{web:?}");
        refused.stderr
    };
    let aside = tmp.join("aside");
    fs::rename(&folder, &aside).expect("aside");
    symlink("/tmp/theirs", &folder).expect("a link");
    assert!(refuses().contains("not a directory"));
    fs::remove_file(&folder).expect("the link");
    fs::rename(&theirs, &folder).expect("theirs");
    assert!(refuses().contains("is not ours"));
    // A socket that another user listens on: nothing is told to it, nothing of it is believed.
    fs::remove_dir_all(&folder).expect("theirs");
    fs::rename(&aside, &folder).expect("ours again");
    fs::remove_file(&socket).expect("the old socket");
    mode(&folder, 0o777);
    let planted = tmp.join("planted");
    fs::create_dir(&planted).expect("a folder");
    mode(&planted, 0o777);
    let up = planted.join("up");
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "perl", "-e", PLANT, at, "/tmp/planted/up"];
    let impostor = sandbox.spawn(&sandbox.program("setpriv").args(user));
    wait_until("the impostor listens", DEADLINE, || up.exists());
    mode(&folder, 0o700);
    let told = ask(&sandbox, &["daemon", "status"]);
    assert!(told.code() == 1 && told.stderr.contains(&format!("belongs to user {OTHER}")), "{told:?}");
    list(&sandbox).expect(&id(1), "idle", Some(agent.pid()));
    let web = ask(&sandbox, &["web", "--no-open"]);
    assert!(web.code() != 0 && web.stdout.is_empty(), "{web:?}");
    // Whoever has the lock replaces it.
    start(&sandbox);
    assert_eq!(ask(&sandbox, &["daemon", "status"]).code(), 0);
    gets_nothing(&as_other(&sandbox, &["perl", "-e", KNOCK, at]));
    println!("{tries} tries, 0 successes");
    drop((impostor, entry));
}

#[test]
fn a_process_of_another_user_is_named_with_the_reason() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can be another user");
        return;
    }
    let sandbox = Sandbox::new("theirs");
    let tmp = sandbox.root().join("tmp");
    mode(&tmp, 0o755);
    fs::write(tmp.join("claude"), "read x\n").expect("a script");
    mode(&tmp.join("claude"), 0o755);
    let other = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "/tmp/claude"];
    let theirs = sandbox.spawn(&sandbox.program("setpriv").args(other).cwd("/tmp").stdin(Stdin::Pipe));
    wait_until("it runs", DEADLINE, || {
        let mine = sandbox.processes().into_iter().find(|p| p.pid == theirs.pid());
        mine.is_some_and(|p| p.argv.first().is_some_and(|a| a == "sh"))
    });
    let claude = ClaudeStore::of(&sandbox);
    drop(claude.register(&theirs, &id(1)).says("busy"));
    drop(claude.session(&id(1)).asked("fix it"));
    list(&sandbox).expect(&id(1), "working", Some(theirs.pid()));
    let may_not = "exec setpriv --bounding-set -kill \"$@\"";
    for verb in ["kill", "stop"] {
        let told = through(&sandbox, may_not, &[verb, &id(1), "--json"]);
        let json = told.json();
        assert_eq!((told.code(), &json["outcome"]), (1, &"survived".into()), "{told:?}");
        assert_eq!(json["survivors"][0]["pid"], theirs.pid(), "{told:?}");
        assert!(json["reason"].as_str().is_some_and(|why| why.contains("another user")), "{told:?}");
        assert!(!told.stderr.contains("finished"), "{told:?}");
    }
    let shown = list(&sandbox);
    assert!(shown.session(&id(1))["reason"].as_str().is_some_and(|r| r.contains("not finished")), "{}", shown.text);
    // Whoever may finishes it.
    ask(&sandbox, &["kill", &id(1)]).expect_success();
    list(&sandbox).expect(&id(1), "stopped", None);
}

#[test]
fn one_that_another_user_runs_with_our_home_is_not_gone() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can be another user");
        return;
    }
    let sandbox = Sandbox::new("sudo");
    let tmp = sandbox.root().join("tmp");
    let home = tmp.join("home");
    fs::create_dir(&home).expect("a home");
    [&tmp, &home].iter().for_each(|folder| mode(folder, 0o777));
    copy_program(Path::new(LARIAT), &tmp.join("lariat"));
    let (claude, codex, pi) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox), PiStore::of(&sandbox));
    let agents = ["claude", "codex", "pi"].map(|name| sandbox.lookalike(name, &[]));
    drop(claude.session(&id(1)).asked("fix it"));
    drop(claude.session(&id(2)).asked("fix that"));
    drop(claude.register(&agents[0], &id(1)).says("busy"));
    let entry = home.join(format!(".claude/sessions/{}.json", agents[0].pid()));
    codex.lock(&agents[1], &id(3));
    drop(codex.thread(&id(3)).asked("fix it"));
    drop(pi.session(&id(4)).asked("fix it"));
    drop(pi.session(&id(5)).asked("fix that"));
    for store in [".claude", ".codex", ".pi"] {
        fs::rename(sandbox.home().join(store), home.join(store)).expect("a store");
    }
    sandbox.run(["chmod", "-R", "a+rX", "/tmp/home"]).expect_success();
    for own in [id(2), id(5)] {
        let name = format!("*{own}.jsonl");
        sandbox.run(["find", "/tmp/home", "-name", &name, "-exec", "chown", "65534", "{}", "+"]).expect_success();
    }
    let ask = |args: &[&str]| {
        let mut places = vec!["env".to_owned(), "HOME=/tmp/home".into()];
        let kinds = ["STATE_HOME", "CACHE_HOME", "DATA_HOME", "CONFIG_HOME", "RUNTIME_DIR"];
        places.extend(kinds.map(|kind| format!("XDG_{kind}=/tmp/home/{kind}")));
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
        Answer::of(&as_other(&sandbox, &[&places, &["/tmp/lariat", "ls", "--json"][..], args].concat()))
    };
    ask(&["-a"]).expect(&id(1), "working", Some(agents[0].pid()));
    // What they keep to themselves.
    mode(&entry, 0o600);
    mode(&home.join(format!(".codex/thread-writer-locks/{}.lock", id(3))), 0o600);
    for seen in [ask(&["-a"]), ask(&[])] {
        for unsure in [id(1), id(4)] {
            seen.expect(&unsure, "unknown", None);
            assert!(seen.session(&unsure)["live"].is_null() && seen.code == 5, "{}", seen.text);
        }
        seen.expect(&id(3), "working", Some(agents[1].pid()));
    }
    // Nobody else could hold what is our own.
    let seen = ask(&["-a"]);
    [id(2), id(5)].iter().for_each(|id| seen.expect(id, "interrupted", None));
    // One without an entry here has another home.
    fs::remove_file(&entry).expect("its entry");
    ask(&["-a"]).expect(&id(1), "interrupted", None);
    for agent in &agents {
        agent.signal(Signal::KILL);
        agent.wait(DEADLINE);
    }
    let seen = ask(&["-a"]);
    (1..=5).for_each(|number| seen.expect(&id(number), "interrupted", None));
}
