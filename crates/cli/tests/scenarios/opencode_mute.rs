//! OpenCode's terminals that keep no log: what the record and the process tell of them.

use lariat_testkit::{DEADLINE, Lookalike, Sandbox, Signal, wait_until};
use serde_json::json;

use crate::{
    asking::{CAME_UP, COMING_UP, lariat, list, list_if},
    moment::now,
    opencode_store::OpenCodeStore,
};

const HOUR: i64 = 3_600_000;

/// What a terminal took up is at rest once that had the time to come up, though no log tells that it has.
#[test]
fn a_terminal_without_a_log_stands_at_its_prompt_after_a_while() {
    let sandbox = Sandbox::new("opencode-no-log");
    let store = OpenCodeStore::of(&sandbox);
    let session = |id: &str| store.session_at(id, &sandbox.work(), None, now() - HOUR);
    session("ses_over").asked("one").answered("1");
    session("ses_open").asked("one");
    session("ses_asked").asked("one").answered("1");
    let start = |args: &[&str]| sandbox.lookalike("opencode", args);
    let run = start(&["run", "-s", "ses_asked", "go on"]);
    let (over, open) = (start(&["-s", "ses_over"]), start(&["-s", "ses_open"]));
    let seen = list_if(&sandbox, COMING_UP);
    seen.expect("ses_over", "starting", Some(over.pid()));
    assert_eq!(seen.session("ses_over")["reason"], "alive, nothing recorded since it started");
    let seen = list_if(&sandbox, CAME_UP);
    seen.expect("ses_over", "idle", Some(over.pid()));
    seen.expect("ses_open", "idle", Some(open.pid()));
    assert_eq!(seen.session("ses_over")["reason"], "turn over");
    seen.expect("ses_asked", "starting", Some(run.pid()));
    open.signal(Signal::KILL);
    open.wait(DEADLINE);
    list(&sandbox).expect("ses_open", "interrupted", None);
}

/// A terminal that logs nothing: the record has the call, and nothing has come of it.
#[test]
fn without_a_log_a_shell_that_does_not_begin_waits_for_leave() {
    let sandbox = Sandbox::new("opencode-asks-mute");
    let store = OpenCodeStore::of(&sandbox);
    let tui = sandbox.lookalike("opencode", &["-s", "ses_waits"]);
    let run = sandbox.lookalike("opencode", &["run", "-s", "ses_run"]);
    let left = sandbox.lookalike("opencode", &["-s", "ses_left"]);
    let (at_work, began) = (sandbox.lookalike("opencode", &["-s", "ses_works"]), now() + 500);
    let calls = |id: &str, at: i64| {
        let session = store.session_at(id, &sandbox.work(), None, at).asked("one");
        session.calls("bash", &json!({"command": "make"}), false)
    };
    calls("ses_waits", began);
    calls("ses_run", began);
    calls("ses_works", began);
    calls("ses_left", began - HOUR);
    wait_until("a later moment", DEADLINE, || now() > began);
    at_work.spawn(&[]);
    list_if(&sandbox, "beginning:86400000").expect("ses_waits", "working", Some(tui.pid()));
    let seen = list_if(&sandbox, &format!("beginning:0,{COMING_UP}"));
    seen.expect("ses_waits", "waiting", Some(tui.pid()));
    assert_eq!(seen.session("ses_waits")["reason"], "permission: bash make");
    seen.expect("ses_run", "working", Some(run.pid())); // it has nobody to ask
    seen.expect("ses_works", "working", Some(at_work.pid()));
    seen.expect("ses_left", "starting", Some(left.pid())); // an earlier process asked
    store.sql("UPDATE part SET data = replace(data, '\"status\"', '\"metadata\":{\"output\":\"\"},\"status\"')");
    list_if(&sandbox, "beginning:0").expect("ses_waits", "working", Some(tui.pid()));
}

/// A terminal of whatever it is that logs nothing has the session open; who runs it says so.
#[test]
fn a_terminal_without_a_log_hides_no_server_at_work() {
    let sandbox = Sandbox::new("opencode-mute-beside");
    let store = OpenCodeStore::of(&sandbox);
    let server = sandbox.lookalike("opencode", &["serve"]);
    store.session("ses_one").asked("fix it");
    store.logs(&server, "aaaa", "message=loop session.id=ses_one step=0");
    // (The kernel counts starts in hundredths of a second.)
    let logged = now();
    wait_until("a later moment", DEADLINE, || now() > logged + 50);
    let tui = sandbox.lookalike("opencode", &["-s", "ses_one"]);
    for age in [COMING_UP, CAME_UP] {
        list_if(&sandbox, age).expect("ses_one", "working", Some(server.pid()));
    }
    server.signal(Signal::KILL);
    server.wait(DEADLINE);
    list_if(&sandbox, CAME_UP).expect("ses_one", "idle", Some(tui.pid()));
}

#[test]
fn a_launched_terminal_that_logs_nothing_has_the_session_that_begins_with_its_prompt() {
    let sandbox = Sandbox::new("opencode-mute");
    let store = OpenCodeStore::of(&sandbox);
    store.session_at("ses_before", &sandbox.work(), None, now() - HOUR).asked("fix it");
    drop(Lookalike::program(&sandbox, "opencode"));
    let launching = sandbox.spawn(&lariat(&sandbox, &["launch", "opencode", "-p", "fix it", "--json"]));
    let agent = || sandbox.processes().into_iter().find(|p| p.argv.iter().any(|a| a == "--prompt=fix it"));
    wait_until("the agent runs", DEADLINE, || agent().is_some());
    let pid = agent().expect("the agent").pid;
    store.session("ses_other").asked("fix something else");
    let mine = store.session("ses_mine").asked("fix it");
    let launched = launching.output(DEADLINE);
    assert_eq!(launched.code(), 0, "{}", launched.stderr);
    assert_eq!(launched.json()["native_id"], "ses_mine");
    list(&sandbox).expect("ses_mine", "working", Some(pid));
    mine.answered("fixed");
    let seen = list(&sandbox);
    seen.expect("ses_mine", "idle", Some(pid));
    assert_eq!(seen.session("ses_mine")["handle"], launched.json()["handle"]);
    assert_eq!(seen.unbound(), Vec::<i32>::new(), "one process, one row");
}
