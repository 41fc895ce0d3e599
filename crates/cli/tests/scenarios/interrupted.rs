//! What becomes of what lariat was asked when it is interrupted, or when the machine does not let it write.

use lariat_testkit::{DEADLINE, Lookalike, Sandbox, Signal, wait_until};
use serde_json::json;

use crate::asking::{ask, id, lariat, list, through};
use crate::claude_store::ClaudeStore;
use crate::scripted::put;

fn agents(sandbox: &Sandbox) -> usize {
    sandbox.processes().iter().filter(|p| p.comm == "codex" && p.state != 'Z').count()
}

/// Nothing of a launch is left: no process, no row, no claim, no record, no worktree.
fn is_as_before(sandbox: &Sandbox) {
    assert_eq!(agents(sandbox), 0);
    let seen = list(sandbox);
    assert!(seen.sessions().is_empty() && seen.unbound().is_empty(), "{}", seen.text);
    assert_eq!(ask(sandbox, &["locks", "--json"]).json()["locks"], json!([]));
    let records = sandbox.state_dir().join("lariat/sessions").read_dir().expect("a folder");
    assert_eq!(records.count(), 0);
    assert_eq!(sandbox.git(&sandbox.work(), &["worktree", "list"]).lines().count(), 1);
}

#[test]
fn a_launch_that_is_interrupted_before_it_has_an_id_leaves_nothing() {
    let sandbox = Sandbox::new("interrupted");
    drop(Lookalike::program(&sandbox, "codex")); // says nothing
    let order = ["launch", "codex", "--headless", "-p", "fix it", "--worktree", "fix", "--json"];
    for signal in [Signal::INT, Signal::TERM] {
        let launching = sandbox.spawn(&lariat(&sandbox, &order));
        wait_until("the agent", DEADLINE, || agents(&sandbox) == 1);
        launching.signal(signal);
        let told = launching.output(DEADLINE);
        let text = told.json()["error"]["text"].to_string();
        assert!(told.code() == 1 && text.contains("interrupted") && text.contains("nothing is left"), "{told:?}");
        is_as_before(&sandbox);
    }
    assert!(ask(&sandbox, &["journal"]).stdout.contains("interrupted"));
}

#[test]
fn a_launch_that_is_interrupted_while_it_looks_leaves_nothing() {
    let sandbox = Sandbox::new("interrupted-look");
    drop(Lookalike::program(&sandbox, "codex"));
    let gate = sandbox.root().join("gate");
    rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a FIFO");
    let order = lariat(&sandbox, &["launch", "codex", "--headless", "-p", "fix it", "--worktree", "fix", "--json"]);
    let launching = sandbox.spawn(&order.env("LARIAT_PAUSE_AT", "claude.observe").env("LARIAT_PAUSE_ON", &gate));
    let word = std::fs::OpenOptions::new().write(true).open(&gate).expect("it looks");
    launching.signal(Signal::INT);
    drop(word);
    let told = launching.output(DEADLINE);
    assert!(told.code() == 1 && told.json()["error"]["text"].to_string().contains("interrupted"), "{told:?}");
    is_as_before(&sandbox);
}

#[test]
fn a_terminal_that_is_closed_takes_no_launch_back() {
    let sandbox = Sandbox::new("hung-up");
    let said = json!({"type": "thread.started", "thread_id": id(1)});
    let gate = sandbox.root().join("gate");
    let told = format!("read x <'{}'\necho '{said}'\nexec sleep 1000", gate.display());
    sandbox.install("codex", &put(&sandbox, "codex", &told));
    rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a FIFO");
    let launching = sandbox.spawn(&lariat(&sandbox, &["launch", "codex", "--headless", "-p", "fix it", "--json"]));
    // It waits for a word, so the agent runs.
    let word = std::fs::OpenOptions::new().write(true).open(&gate).expect("the agent waits");
    launching.signal(Signal::HUP);
    drop(word);
    assert_eq!(launching.output(DEADLINE).expect_success().json()["native_id"], id(1));
    let seen = list(&sandbox);
    let session = seen.session(&id(1));
    assert!(session["live"] == true && session["handle"].is_string(), "{session}");
}

#[test]
fn who_takes_a_launch_back_lets_its_shim_leave_first() {
    let sandbox = Sandbox::new("interrupted-shim");
    drop(Lookalike::program(&sandbox, "codex"));
    let streams = sandbox.root().join("streams");
    let (gate, passed) = (streams.join("gate"), streams.join("passed"));
    rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a FIFO");
    // It has seen its agent end, and is about to write that down.
    let order = lariat(&sandbox, &["launch", "codex", "--headless", "-p", "fix it", "--json"]);
    let order = order.env("LARIAT_PAUSE_AT", "shim.drained").env("LARIAT_PAUSE_ON", &gate);
    let launching = sandbox.spawn(&order.env("LARIAT_POINTS", &passed));
    wait_until("the agent", DEADLINE, || agents(&sandbox) == 1);
    launching.signal(Signal::INT);
    wait_until("it waits", DEADLINE, || {
        assert!(launching.exit().is_none(), "it did not wait: {}", launching.stderr());
        std::fs::read_to_string(&passed).is_ok_and(|all| all.lines().any(|point| point == "resume.leaving"))
    });
    drop(std::fs::OpenOptions::new().write(true).open(&gate).expect("the shim waits"));
    assert_eq!(launching.output(DEADLINE).code(), 1);
    is_as_before(&sandbox);
}

#[test]
fn an_interrupt_ends_all_of_a_matrix() {
    let sandbox = Sandbox::new("interrupted-matrix");
    drop(Lookalike::program(&sandbox, "codex"));
    let matrix = sandbox.home().join("matrix.toml");
    std::fs::write(&matrix, "agents = [\"codex\"]\nprompts = [\"one\", \"two\"]\n").expect("a matrix");
    let order = ["launch", "--headless", "--matrix", matrix.to_str().expect("UTF-8"), "--json"];
    let launching = sandbox.spawn(&lariat(&sandbox, &order));
    wait_until("the first", DEADLINE, || agents(&sandbox) == 1);
    launching.signal(Signal::INT);
    let told = launching.output(DEADLINE);
    assert!(told.code() == 1 && told.stderr.contains("interrupted"), "{told:?}");
    is_as_before(&sandbox);
}

#[test]
fn a_file_that_may_not_grow_is_an_error_like_any_other() {
    let sandbox = Sandbox::new("no-growth");
    drop(Lookalike::program(&sandbox, "claude"));
    let launched = ask(&sandbox, &["launch", "claude", "--json"]).json();
    let (native, handle) =
        (launched["native_id"].as_str().expect("an id"), launched["handle"].as_str().expect("a handle"));
    let _ended = ClaudeStore::of(&sandbox).session(&id(1)).asked("fix it").answered("fixed");
    let limited = |args: &[&str]| through(&sandbox, "(ulimit -f 0; exec \"$@\") | cat", args);
    // There is something to keep in the cache.
    assert_eq!(limited(&["ls", "-a", "--json"]).json()["sessions"].as_array().map(Vec::len), Some(2));
    let told = limited(&["kill", handle, "--json"]).json();
    assert!(told["reason"].as_str().is_some_and(|why| why.contains("nothing was signalled")), "{told}");
    list(&sandbox).expect(native, "starting", launched["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()));
}

#[test]
fn doctor_tells_that_nothing_can_be_written() {
    let sandbox = Sandbox::new("read-only");
    let of = |told: &serde_json::Value, what: &str| {
        let checks = told["checks"].as_array().cloned().unwrap_or_default();
        checks.into_iter().find(|c| c["what"] == what).map(|c| c["health"].clone())
    };
    let told = ask(&sandbox, &["doctor", "--json"]).json();
    assert_eq!((of(&told, "records"), of(&told, "cache")), (Some(json!("good")), Some(json!("good"))), "{told}");
    let sealed = "exec unshare --mount sh -c 'mount --bind \"$HOME\" \"$HOME\" && mount -o remount,bind,ro \"$HOME\" && \
                  exec \"$@\"' sh \"$@\"";
    let full = "exec unshare --mount sh -c 'mount -t tmpfs -o size=64k tmpfs \"$HOME\" && \
                { cat /dev/zero > \"$HOME/all\" || exec \"$@\"; }' sh \"$@\"";
    for how in [sealed, full] {
        let told = through(&sandbox, how, &["doctor", "--json"]).json();
        assert_eq!((of(&told, "records"), of(&told, "cache")), (Some(json!("bad")), Some(json!("lacking"))), "{told}");
    }
}
