//! OpenCode up to 1.15, in which each process has logs of its own and tells in them which session it works on.

use std::fs;

use lariat_testkit::{DEADLINE, Lookalike, Sandbox, Signal};
use serde_json::json;

use crate::{
    asking::{COMING_UP, list, list_if},
    moment::{iso, now},
    opencode_store::OpenCodeStore,
};

/// Lets a process write a line into a log of this name.
fn logs(store: &OpenCodeStore, process: &Lookalike, log: &str, rest: &str) {
    let path = store.path(&format!("log/{log}.log"));
    let at = iso(now());
    process.tell(&format!("log {} INFO  {} +1ms {rest}", path.display(), &at[..19]));
}

#[test]
fn a_process_has_what_its_own_log_names() {
    let sandbox = Sandbox::new("opencode-own-log");
    let store = OpenCodeStore::of(&sandbox);
    store.session("ses_One").asked("fix it");
    store.session("ses_Two").asked("fix that").calls("bash", &json!({"command": "make"}), false);
    let (one, two) = (sandbox.lookalike("opencode", &[]), sandbox.lookalike("opencode", &[]));
    logs(&store, &one, "2026-11-18T025044", "service=default version=1.3.0 args=[] opencode");
    logs(
        &store,
        &one,
        "2026-11-18T025044",
        "service=session id=ses_One slug=a version=1.3.0 title=New session created",
    );
    logs(&store, &one, "2026-11-18T025045", "service=session.prompt step=0 sessionID=ses_One loop");
    logs(&store, &two, "2026-11-18T025046", "service=llm providerID=p modelID=m sessionID=ses_Two small=false stream");
    // What a command says of itself is nobody's word.
    logs(&store, &two, "2026-11-18T025046", "service=permission permission=bash pattern=echo sessionID=ses_One loop");
    let seen = list(&sandbox);
    seen.expect("ses_One", "working", Some(one.pid()));
    seen.expect("ses_Two", "working", Some(two.pid()));
    assert_eq!((seen.code, seen.unbound()), (0, vec![]));
    // Later starts remove the log, which goes on.
    fs::remove_file(store.path("log/2026-11-18T025045.log")).expect("a log");
    logs(&store, &two, "2026-11-18T025046", "service=permission id=per_1 permission=bash patterns=[\"make\"] asking");
    let seen = list(&sandbox);
    seen.expect("ses_One", "working", Some(one.pid()));
    seen.expect("ses_Two", "waiting", Some(two.pid()));
    for agent in [one, two] {
        agent.signal(Signal::KILL);
        agent.wait(DEADLINE);
    }
    let seen = list(&sandbox);
    seen.expect("ses_One", "interrupted", None);
    seen.expect("ses_Two", "interrupted", None);
}

#[test]
fn a_terminal_that_has_come_up_is_at_rest() {
    let sandbox = Sandbox::new("opencode-own-up");
    let store = OpenCodeStore::of(&sandbox);
    store.session_at("ses_One", &sandbox.work(), None, now() - 3_600_000).asked("fix it").answered("fixed");
    let agent = sandbox.lookalike("opencode", &["--session", "ses_One"]);
    logs(&store, &agent, "2026-11-18T025044", "service=format init");
    list_if(&sandbox, COMING_UP).expect("ses_One", "starting", Some(agent.pid()));
    logs(&store, &agent, "2026-11-18T025044", "service=skill count=0 init");
    list(&sandbox).expect("ses_One", "idle", Some(agent.pid()));
    // Nor does one that was cut off before say that nothing was ever asked.
    store.session_at("ses_Two", &sandbox.work(), None, now() - 3_600_000).asked("fix it");
    let agent = sandbox.lookalike("opencode", &["--session", "ses_Two"]);
    logs(&store, &agent, "2026-11-18T025050", "service=skill count=0 init");
    let seen = list(&sandbox);
    seen.expect("ses_Two", "idle", Some(agent.pid()));
    assert_eq!(seen.session("ses_Two")["reason"], "last turn failed: the process that ran it is gone");
    agent.signal(Signal::KILL);
    agent.wait(DEADLINE);
    list(&sandbox).expect("ses_Two", "interrupted", None);
}

/// A log is named after the second in which it was opened.
#[test]
fn of_two_that_began_in_the_same_second_nothing_is_told() {
    let sandbox = Sandbox::new("opencode-one-log");
    let store = OpenCodeStore::of(&sandbox);
    store.session("ses_One").asked("fix it");
    store.session("ses_Two").asked("fix that");
    let (one, two) = (sandbox.lookalike("opencode", &["run"]), sandbox.lookalike("opencode", &["run"]));
    let log = "2026-11-18T025044";
    logs(&store, &one, log, "service=session.prompt step=0 sessionID=ses_One loop");
    logs(&store, &two, log, "service=session.prompt step=0 sessionID=ses_Two loop");
    let seen = list(&sandbox);
    seen.expect("ses_One", "unknown", None);
    seen.expect("ses_Two", "unknown", None);
    assert_eq!(seen.unbound().len(), 2);
    // Nor of one whose fellow is gone: both said there how they were called.
    logs(&store, &two, log, "service=default version=1.3.0 args=[] opencode");
    logs(&store, &one, log, "service=default version=1.3.0 args=[] opencode");
    two.signal(Signal::KILL);
    two.wait(DEADLINE);
    let seen = list(&sandbox);
    seen.expect("ses_One", "unknown", None);
    seen.expect("ses_Two", "unknown", None);
}

#[test]
fn what_it_runs_as_bun_is_no_agent() {
    let sandbox = Sandbox::new("opencode-bun");
    let store = OpenCodeStore::of(&sandbox);
    store.session("ses_One").asked("fix it");
    let as_bun = |args: &[&str]| {
        let program = Lookalike::program(&sandbox, "opencode").args(args).env("BUN_BE_BUN", "1");
        Lookalike::start(&sandbox, &program)
    };
    let _bun = [as_bun(&["install", "--no-cache"]), as_bun(&["run", "/opt/server.js", "--stdio"])];
    let seen = list(&sandbox);
    assert_eq!(seen.unbound(), Vec::<i32>::new(), "{}", seen.text);
    seen.expect("ses_One", "interrupted", None);
}
