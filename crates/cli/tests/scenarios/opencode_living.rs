//! Which OpenCode process has which session, by its own lines in the shared log and by its arguments.

use std::sync::atomic::{AtomicBool, Ordering};

use lariat_testkit::{
    DEADLINE, Lookalike, Sandbox, Signal,
    database::{write as write_to, write_and_die},
    wait_until,
};
use serde_json::{Value, json};

use crate::{
    asking::{Answer, COMING_UP, ask, list, list_if},
    moment::now,
    opencode_store::OpenCodeStore,
};

const HOUR: i64 = 3_600_000;

#[test]
fn a_process_has_the_session_that_its_own_lines_name() {
    let sandbox = Sandbox::new("opencode-log");
    let store = OpenCodeStore::of(&sandbox);
    store.session("ses_One").asked("fix it");
    store.session("ses_Two").asked("fix that");
    let (one, two) = (sandbox.lookalike("opencode", &[]), sandbox.lookalike("opencode", &["run"]));
    store.logs(&two, "bbbb", "message=loop session.id=ses_Two step=0");
    store.logs(&one, "aaaa", "message=loop session.id=ses_One step=0");
    // What others write later changes nothing, nor does what a line quotes.
    store.logs(&two, "bbbb", "message=evaluated pattern=\"echo session.id=ses_One now\"");
    let seen = list(&sandbox);
    seen.expect("ses_One", "working", Some(one.pid()));
    seen.expect("ses_Two", "working", Some(two.pid()));
    assert_eq!((seen.code, seen.unbound()), (0, vec![]));
    // The newest session in the directory means nothing.
    store.session("ses_Three").asked("hello").answered("hi");
    list(&sandbox).expect("ses_Three", "done", None);
    one.signal(Signal::KILL);
    one.wait(DEADLINE);
    let seen = list(&sandbox);
    seen.expect("ses_One", "interrupted", None);
    seen.expect("ses_Two", "working", Some(two.pid()));
    // Ids know capitals, and are found by them.
    let status = ask(&sandbox, &["status", "ses_Tw", "--json"]);
    assert_eq!((status.code(), &status.json()["native_id"]), (0, &json!("ses_Two")));
}

#[test]
fn what_a_fork_has_copied_is_no_turn_of_its_own() {
    let sandbox = Sandbox::new("opencode-fork");
    let store = OpenCodeStore::of(&sandbox);
    let forked =
        |id: &str| store.sql(&format!("UPDATE session SET time_created = {} WHERE id = '{id}'", now() + 60_000));
    store.session("ses_Open").asked("fix it").calls("bash", &json!({"command": "make"}), true);
    store.session("ses_Failed").asked("fix it").failed("ProviderAuthError", "no key");
    store.session("ses_Well").asked("fix it").answered("fixed");
    let agents = ["ses_Open", "ses_Failed", "ses_Well"].map(|id| {
        let agent = sandbox.lookalike("opencode", &[]);
        store.logs(&agent, &id.to_lowercase(), &format!("message=loop session.id={id} step=0"));
        agent
    });
    let pid = |n: usize| Some(agents[n].pid());
    store.sql(&format!("UPDATE message SET time_updated = {0}", now() + 60_000));
    let seen = list(&sandbox);
    seen.expect("ses_Open", "working", pid(0));
    seen.expect("ses_Failed", "waiting", pid(1));
    ["ses_Open", "ses_Failed", "ses_Well"].iter().for_each(|id| forked(id));
    let seen = list(&sandbox);
    seen.expect("ses_Open", "idle", pid(0));
    assert_eq!(seen.session("ses_Open")["tool"], Value::Null);
    seen.expect("ses_Failed", "idle", pid(1));
    seen.expect("ses_Well", "idle", pid(2));
    agents.iter().for_each(|agent| {
        agent.signal(Signal::KILL);
        agent.wait(DEADLINE);
    });
    let seen = list(&sandbox);
    seen.expect("ses_Open", "done", None);
    seen.expect("ses_Failed", "failed", None);
}

/// Some programs go to the end of the log when they open it: there stands what another wrote.
#[test]
fn who_only_stands_where_another_wrote_has_not_written_it() {
    let sandbox = Sandbox::new("opencode-stands");
    let store = OpenCodeStore::of(&sandbox);
    let log = store.path("log/opencode.log");
    let stands = |agent: &Lookalike| drop(agent.tell(&format!("stand {}", log.display())));
    let before = now() - HOUR;
    for session in ["ses_One", "ses_Two", "ses_Three"] {
        store.session_at(session, &sandbox.work(), None, before).asked("fix it").answered("fixed");
    }
    // One that began before the other wrote, and was started for one session only.
    let early = sandbox.lookalike("opencode", &["run", "--session", "ses_Three"]);
    let first = sandbox.lookalike("opencode", &["run"]);
    store.logs(&first, "aaaa", "message=loop session.id=ses_One step=0");
    stands(&early);
    let seen = list(&sandbox);
    seen.expect("ses_One", "idle", Some(first.pid()));
    seen.expect("ses_Three", "starting", Some(early.pid()));
    first.signal(Signal::KILL);
    first.wait(DEADLINE);
    list(&sandbox).expect("ses_One", "done", None);
    // One that began after the other had written. (The kernel counts starts in hundredths of a second.)
    let written = now();
    wait_until("a later moment", DEADLINE, || now() > written + 50);
    let later = sandbox.lookalike("opencode", &["--session", "ses_Two"]);
    stands(&later);
    let seen = list_if(&sandbox, COMING_UP);
    seen.expect("ses_One", "done", None);
    seen.expect("ses_Two", "starting", Some(later.pid()));
    // What it writes itself is its own.
    store.logs(&later, "bbbb", "message=loop session.id=ses_One step=0");
    list(&sandbox).expect("ses_One", "idle", Some(later.pid()));
}

#[test]
fn one_that_names_no_session_could_be_one_that_was_written_since() {
    let sandbox = Sandbox::new("opencode-could-be");
    let store = OpenCodeStore::of(&sandbox);
    let work = sandbox.work();
    store.session_at("ses_old", &work, None, now() - HOUR).asked("long ago");
    let someone = sandbox.lookalike("opencode", &[]);
    store.session("ses_open").asked("fix it");
    store.session("ses_over").asked("fix it").answered("fixed");
    store.session_at("ses_elsewhere", &sandbox.project("elsewhere"), None, now()).asked("fix it");
    let seen = list(&sandbox);
    seen.expect("ses_open", "unknown", None);
    // Its turn is over, and it may be the one that the process has open.
    seen.expect("ses_over", "unknown", None);
    assert_eq!(ask(&sandbox, &["kill", "ses_over"]).code(), 5, "it may live, so it is not said to be gone");
    seen.expect("ses_elsewhere", "interrupted", None);
    // It was cut off before that process was there.
    seen.expect("ses_old", "interrupted", None);
    assert_eq!((seen.code, seen.unbound()), (5, vec![someone.pid()]));
    someone.signal(Signal::KILL);
    someone.wait(DEADLINE);
    let seen = list(&sandbox);
    seen.expect("ses_open", "interrupted", None);
    seen.expect("ses_over", "done", None);
}

#[test]
fn what_a_terminal_has_made_for_its_first_turn_is_not_ended() {
    let sandbox = Sandbox::new("opencode-first");
    let store = OpenCodeStore::of(&sandbox);
    let tui = sandbox.lookalike("opencode", &[]);
    store.logs(&tui, "aaaa", "message=init");
    store.session("ses_first");
    store.session_at("ses_elsewhere", &sandbox.project("elsewhere"), None, now());
    store.session_at("ses_before", &sandbox.work(), None, now() - HOUR);
    let seen = list(&sandbox);
    seen.expect("ses_first", "unknown", None);
    seen.expect("ses_elsewhere", "done", None);
    seen.expect("ses_before", "done", None);
    store.logs(&tui, "aaaa", "message=created id=ses_first slug=x");
    let seen = list(&sandbox);
    assert!(seen.session("ses_first")["live"] == true && seen.unbound().is_empty(), "{:#}", seen.json);
}

#[test]
fn what_an_acp_client_has_just_begun_is_not_ended_and_what_a_server_made_is_nobody_s() {
    let sandbox = Sandbox::new("opencode-begun");
    let store = OpenCodeStore::of(&sandbox);
    let server = sandbox.lookalike("opencode", &["serve"]);
    store.logs(&server, "aaaa", "message=init");
    store.session("ses_first");
    list(&sandbox).expect("ses_first", "done", None);
    let agent = sandbox.lookalike("opencode", &["acp"]);
    store.logs(&agent, "bbbb", "message=init");
    list(&sandbox).expect("ses_first", "unknown", None);
    store.logs(&agent, "bbbb", "message=created id=ses_first slug=x");
    list(&sandbox).expect("ses_first", "idle", Some(agent.pid()));
    // A second one, while it has the first.
    store.session("ses_second");
    list(&sandbox).expect("ses_second", "unknown", None);
}

#[test]
fn what_a_terminal_of_a_server_has_just_had_made_is_not_ended() {
    let sandbox = Sandbox::new("opencode-client-new");
    let store = OpenCodeStore::of(&sandbox);
    let server = sandbox.lookalike("opencode", &["serve"]);
    store.logs(&server, "aaaa", "message=init");
    let client = sandbox.lookalike("opencode", &["attach", "http://127.0.0.1:1"]);
    // The server logs its name, and that a turn begins, a moment later.
    store.session("ses_new");
    list(&sandbox).expect("ses_new", "unknown", None);
    client.signal(Signal::KILL);
    client.wait(DEADLINE);
    list(&sandbox).expect("ses_new", "done", None);
}

#[test]
fn one_whose_whole_log_is_known_is_at_no_turn_that_it_does_not_name() {
    let sandbox = Sandbox::new("opencode-quiet");
    let store = OpenCodeStore::of(&sandbox);
    let someone = sandbox.lookalike("opencode", &[]);
    let open = store.session_at("ses_open", &sandbox.work(), None, now() + 100_000);
    open.asked("written just now, and perhaps not yet in the log");
    store.logs(&someone, "aaaa", "message=init");
    list(&sandbox).expect("ses_open", "unknown", None);
    // A minute later it would be there.
    for table in ["session", "message", "part"] {
        store.sql(&format!("UPDATE {table} SET time_updated = {}", now() - 60_000));
    }
    store.sql(&format!("UPDATE session SET time_created = {0}, time_updated = {0}", now() - 60_000));
    let seen = list(&sandbox);
    seen.expect("ses_open", "interrupted", None);
    assert_eq!(seen.unbound(), [someone.pid()]);
}

#[test]
fn a_terminal_moves_on_and_may_work_on_several() {
    let sandbox = Sandbox::new("opencode-several");
    let store = OpenCodeStore::of(&sandbox);
    store.session("ses_first").asked("one").answered("done");
    let tui = sandbox.lookalike("opencode", &[]);
    store.logs(&tui, "aaaa", "message=loop session.id=ses_first step=0");
    list(&sandbox).expect("ses_first", "idle", Some(tui.pid()));
    // What it begins it logs a moment later; nobody is called dead meanwhile.
    let second = store.session("ses_second").asked("two");
    list(&sandbox).expect("ses_second", "unknown", None);
    store.logs(&tui, "aaaa", "message=created id=ses_second slug=x");
    let seen = list(&sandbox);
    seen.expect("ses_first", "done", None);
    seen.expect("ses_second", "working", Some(tui.pid()));
    // A third while the second goes on: both are its own, and neither is ended alone.
    drop(second);
    store.session("ses_third").asked("three");
    store.logs(&tui, "aaaa", "message=loop session.id=ses_third step=0");
    let seen = list(&sandbox);
    seen.expect("ses_second", "working", Some(tui.pid()));
    seen.expect("ses_third", "working", Some(tui.pid()));
    assert_eq!(ask(&sandbox, &["kill", "ses_third"]).code(), 3);
    assert!(sandbox.processes().iter().any(|p| p.pid == tui.pid()));
}

#[test]
fn what_another_run_has_logged_is_none_of_those_that_are_left() {
    let sandbox = Sandbox::new("opencode-anothers");
    let store = OpenCodeStore::of(&sandbox);
    store.session("ses_own").asked("one").answered("done");
    let tui = sandbox.lookalike("opencode", &[]);
    let server = sandbox.lookalike("opencode", &["serve"]);
    store.logs(&tui, "aaaa", "message=loop session.id=ses_own step=0");
    store.logs(&server, "bbbb", "message=init");
    let run = sandbox.lookalike("opencode", &["run"]);
    store.session("ses_run").asked("two");
    store.logs(&run, "cccc", "message=created id=ses_run slug=x");
    run.signal(Signal::KILL);
    run.wait(DEADLINE);
    // Who made it need not be the one that works on it.
    list(&sandbox).expect("ses_run", "unknown", None);
    let run = sandbox.lookalike("opencode", &["run", "-s", "ses_run"]);
    store.logs(&run, "dddd", "message=loop session.id=ses_run step=0");
    list(&sandbox).expect("ses_run", "working", Some(run.pid()));
    run.signal(Signal::KILL);
    run.wait(DEADLINE);
    let seen = list(&sandbox);
    seen.expect("ses_run", "interrupted", None);
    seen.expect("ses_own", "idle", Some(tui.pid()));
    // What is asked after that is not the dead one's.
    let later = now() + 1;
    let asked = json!({"role": "user", "time": {"created": later}});
    store.sql(&format!("INSERT INTO message VALUES ('msg_later', 'ses_run', {later}, {later}, '{asked}')"));
    list(&sandbox).expect("ses_run", "unknown", None);
}

#[test]
fn a_turn_that_another_began_and_left_open_is_nobody_s_who_has_the_session_open() {
    let sandbox = Sandbox::new("opencode-left-open");
    let store = OpenCodeStore::of(&sandbox);
    store.session_at("ses_one", &sandbox.work(), None, now() - 1000).asked("one").answered("1");
    let tui = sandbox.lookalike("opencode", &["-s", "ses_one"]);
    store.logs(&tui, "aaaa", "message=init count=1");
    list(&sandbox).expect("ses_one", "idle", Some(tui.pid()));
    let run = sandbox.lookalike("opencode", &["run", "-s", "ses_one"]);
    let asks = |message: &str| {
        let at = now();
        let asked = json!({"role": "user", "time": {"created": at}});
        store.sql(&format!("INSERT INTO message VALUES ('{message}', 'ses_one', {at}, {at}, '{asked}')"));
    };
    asks("msg_second");
    // Whose it is, is logged a moment later.
    list(&sandbox).expect("ses_one", "working", Some(run.pid()));
    store.logs(&run, "bbbb", "message=loop session.id=ses_one step=0");
    list(&sandbox).expect("ses_one", "working", Some(run.pid()));
    run.signal(Signal::KILL);
    run.wait(DEADLINE);
    let seen = list(&sandbox);
    seen.expect("ses_one", "idle", Some(tui.pid()));
    assert_eq!(seen.session("ses_one")["reason"], "last turn failed: the process that ran it is gone");
    // What is asked after that is its own.
    let logged = now();
    wait_until("a later moment", DEADLINE, || now() > logged + 1);
    asks("msg_third");
    list(&sandbox).expect("ses_one", "working", Some(tui.pid()));
    store.logs(&tui, "aaaa", "message=loop session.id=ses_one step=0");
    list(&sandbox).expect("ses_one", "working", Some(tui.pid()));
}

#[test]
fn a_server_that_is_up_makes_nothing_live() {
    let sandbox = Sandbox::new("opencode-server");
    let store = OpenCodeStore::of(&sandbox);
    let server = sandbox.lookalike("opencode", &["serve", "--port", "1"]);
    store.logs(&server, "aaaa", "message=loop session.id=ses_over step=0");
    store.session("ses_over").asked("one").answered("done");
    let seen = list(&sandbox);
    seen.expect("ses_over", "done", None);
    assert!(seen.unbound().is_empty());
    store.session("ses_open").asked("two");
    store.logs(&server, "aaaa", "message=loop session.id=ses_open step=0");
    list(&sandbox).expect("ses_open", "working", Some(server.pid()));
    let client = sandbox.lookalike("opencode", &["attach", "http://127.0.0.1:1", "-s", "ses_over"]);
    let loose = sandbox.lookalike("opencode", &["attach", "http://127.0.0.1:1"]);
    let seen = list(&sandbox);
    seen.expect("ses_over", "idle", Some(client.pid()));
    assert_eq!(seen.unbound(), [loose.pid()]);
}

#[test]
fn the_id_in_the_arguments_names_the_session_of_a_young_process() {
    let sandbox = Sandbox::new("opencode-argv");
    let store = OpenCodeStore::of(&sandbox);
    let long_ago = now() - HOUR;
    store.session_at("ses_cut", &sandbox.work(), None, long_ago).asked("one");
    store.session_at("ses_new", &sandbox.work(), None, long_ago);
    let cut = sandbox.lookalike("opencode", &["-s", "ses_cut"]);
    let new = sandbox.lookalike("opencode", &["--session=ses_new"]);
    let fork = sandbox.lookalike("opencode", &["-s", "ses_cut", "--fork"]);
    let seen = list_if(&sandbox, COMING_UP);
    // Neither works on what an earlier process left open.
    seen.expect("ses_cut", "starting", Some(cut.pid()));
    seen.expect("ses_new", "starting", Some(new.pid()));
    assert_eq!(seen.unbound(), [fork.pid()]);
    for (process, run) in [(&cut, "aaaa"), (&new, "bbbb")] {
        store.logs(process, run, "message=init count=1");
    }
    let seen = list(&sandbox);
    seen.expect("ses_cut", "idle", Some(cut.pid()));
    seen.expect("ses_new", "idle", Some(new.pid()));
}

#[test]
fn waiting_is_told_from_a_tool_that_runs() {
    let sandbox = Sandbox::new("opencode-asks");
    let store = OpenCodeStore::of(&sandbox);
    let input = json!({"command": "make"});
    store.session("ses_bash").asked("one").calls("bash", &input, false);
    let run = sandbox.lookalike("opencode", &["-s", "ses_bash"]);
    store.logs(&run, "aaaa", "message=loop session.id=ses_bash step=0");
    // Without a word that it asked, it may be about to start.
    list(&sandbox).expect("ses_bash", "working", Some(run.pid()));
    store.logs(&run, "aaaa", "message=asking id=per_1 permission=bash");
    let seen = list(&sandbox);
    seen.expect("ses_bash", "waiting", Some(run.pid()));
    assert_eq!(seen.session("ses_bash")["reason"], "permission: bash make");
    store.sql("UPDATE part SET data = replace(data, '\"status\"', '\"metadata\":{\"output\":\"\"},\"status\"')");
    list(&sandbox).expect("ses_bash", "working", Some(run.pid()));
    // What else may be slow cannot be told from what waits, and nothing is claimed of it.
    store.session("ses_fetch").asked("two").calls("webfetch", &json!({"url": "http://x"}), false);
    let other = sandbox.lookalike("opencode", &["-s", "ses_fetch"]);
    store.logs(&other, "bbbb", "message=loop session.id=ses_fetch step=0");
    store.logs(&other, "bbbb", "message=asking id=per_2 permission=webfetch");
    list(&sandbox).expect("ses_fetch", "unknown", Some(other.pid()));
}

#[test]
fn what_one_session_of_a_server_asks_another_does_not_wait_for() {
    let sandbox = Sandbox::new("opencode-asks-one");
    let store = OpenCodeStore::of(&sandbox);
    let server = sandbox.lookalike("opencode", &["serve"]);
    store.session("ses_asks").asked("one").calls("bash", &json!({"command": "make"}), false);
    store.session("ses_reads").asked("two").calls("grep", &json!({"pattern": "x"}), false);
    store.session("ses_fetches").asked("three").calls("webfetch", &json!({"url": "http://x"}), false);
    store.session("ses_serves").asked("four").calls("server_tool", &json!({}), false);
    for id in ["ses_asks", "ses_reads", "ses_fetches", "ses_serves"] {
        store.logs(&server, "aaaa", &format!("message=loop session.id={id} step=0"));
    }
    let all = |expected: [&str; 4]| {
        let seen = list(&sandbox);
        for (id, status) in ["ses_asks", "ses_reads", "ses_fetches", "ses_serves"].iter().zip(expected) {
            seen.expect(id, status, Some(server.pid()));
        }
    };
    store.logs(&server, "aaaa", "message=asking id=per_1 permission=bash patterns=\"[]\"");
    all(["waiting", "working", "working", "working"]);
    store.logs(&server, "aaaa", "message=asking id=que_1 questions=1");
    store.logs(&server, "aaaa", "message=asking id=per_2 permission=server_tool patterns=\"[]\"");
    // A tool that nobody here knows the permission of may wait for anything.
    assert_eq!(list(&sandbox).session("ses_serves")["status"], "unknown");
    // And anybody may be at a directory elsewhere.
    store.logs(&server, "aaaa", "message=asking id=per_3 permission=external_directory");
    all(["waiting", "waiting", "unknown", "unknown"]);
}

#[test]
fn what_a_sub_agent_or_a_second_call_asks_is_asked_too() {
    let sandbox = Sandbox::new("opencode-asks-below");
    let store = OpenCodeStore::of(&sandbox);
    let input = json!({"command": "make"});
    store.session("ses_root").asked("one").calls("task", &json!({"description": "look around"}), true);
    store.below("ses_sub", "ses_root").asked("look around").calls("bash", &input, false);
    let run = sandbox.lookalike("opencode", &[]);
    store.logs(&run, "aaaa", "message=loop session.id=ses_root step=0");
    list(&sandbox).expect("ses_root", "working", Some(run.pid()));
    store.logs(&run, "aaaa", "message=asking id=per_1 permission=bash");
    // A question that was answered is not the one that waits.
    store.logs(&run, "aaaa", "message=asking id=que_1 questions=1");
    store.logs(&run, "aaaa", "message=replied requestID=que_1");
    let seen = list(&sandbox);
    seen.expect("ses_root", "waiting", Some(run.pid()));
    assert_eq!(seen.session("ses_root")["reason"], "permission: bash make");

    store.session("ses_two").asked("two").message(
        &json!({"role": "assistant", "time": {"created": now()}}),
        &[
            json!({"type": "tool", "tool": "bash", "callID": "1", "state":
                {"status": "running", "input": {"command": "sleep 9"}, "metadata": {}, "time": {"start": now()}}}),
            json!({"type": "tool", "tool": "read", "callID": "2", "state":
                {"status": "running", "input": {"filePath": "/etc/hosts"}, "time": {"start": now()}}}),
        ],
    );
    let other = sandbox.lookalike("opencode", &["-s", "ses_two"]);
    store.logs(&other, "bbbb", "message=loop session.id=ses_two step=0");
    list(&sandbox).expect("ses_two", "working", Some(other.pid()));
    store.logs(&other, "bbbb", "message=asking id=per_2 permission=external_directory");
    let seen = list(&sandbox);
    seen.expect("ses_two", "waiting", Some(other.pid()));
    assert_eq!(seen.session("ses_two")["reason"], "permission: read /etc/hosts");
}

#[test]
fn what_was_said_after_a_reply_that_was_cut_off_is_told() {
    let sandbox = Sandbox::new("opencode-cut-off");
    let store = OpenCodeStore::of(&sandbox);
    // Killed while it wrote, then resumed: the old reply stays without an end.
    let cut_off = json!({"role": "assistant", "time": {"created": now()}});
    let half = [json!({"type": "text", "text": "", "time": {"start": now()}})];
    store.session("ses_one").asked("one").message(&cut_off, &half).asked("two").answered("2");
    let peeked = ask(&sandbox, &["peek", "ses_one", "-n", "9", "--json"]).json();
    let said = peeked["messages"].as_array().expect("messages").iter().map(|m| m["text"].as_str());
    assert_eq!(said.collect::<Vec<_>>(), [Some("one"), Some("two"), Some("2")]);
    assert_eq!(peeked["reply"], "2");
    // The newest one is still being written, even if more was asked meanwhile.
    store.session("ses_two").asked("one").message(&cut_off, &half).asked("two");
    let peeked = ask(&sandbox, &["peek", "ses_two", "-n", "9", "--json"]).json();
    assert_eq!(peeked["messages"].as_array().expect("messages").len(), 1, "{peeked}");
}

#[test]
fn what_is_queued_is_not_taken_up_after_an_error_or_an_abort() {
    let sandbox = Sandbox::new("opencode-queued");
    let store = OpenCodeStore::of(&sandbox);
    let ended = |how: Value, at: i64| {
        let mut message = json!({"role": "assistant", "time": {"created": now(), "completed": at}});
        message.as_object_mut().expect("an object").extend(how.as_object().expect("an object").clone());
        message
    };
    let later = now() + HOUR;
    let aborted = json!({"error": {"name": "MessageAbortedError", "data": {}}});
    let failed = json!({"error": {"name": "APIError", "data": {"message": "it broke"}}});
    let cases = [("ses_a", aborted.clone(), later, "stopped"), ("ses_b", failed, later, "failed")];
    // What was answered well lets the next be taken up; and what was asked after an abort is a turn of its own.
    let goes_on = [("ses_c", json!({"finish": "stop"}), later, "interrupted"), ("ses_d", aborted, 1, "interrupted")];
    for (id, how, at, _) in cases.iter().chain(&goes_on) {
        store.session(id).asked("one").message(&ended(how.clone(), *at), &[]).asked("two");
    }
    // Ended by a person while a failed request was to be made again; and a command that a person ran.
    let begun = [json!({"type": "step-start"})];
    store.session("ses_e").asked("one").message(&ended(json!({}), later), &begun);
    let by_hand = [json!({"type": "tool", "tool": "bash", "state": {"status": "completed", "input": {}}})];
    let own = [json!({"type": "text", "text": "The following tool was executed by the user", "synthetic": true})];
    let user = json!({"role": "user", "time": {"created": now()}});
    let ran = store.session("ses_f").message(&user, &own).message(&ended(json!({}), later), &by_hand);
    ran.asked("now this").answered("done");
    let seen = list(&sandbox);
    for (id, .., status) in cases.iter().chain(&goes_on) {
        seen.expect(id, status, None);
    }
    seen.expect("ses_e", "stopped", None);
    seen.expect("ses_f", "done", None);
    assert_eq!(seen.session("ses_f")["prompt"], "now this");
}

#[test]
fn one_that_was_told_to_continue_may_show_the_last_session() {
    let sandbox = Sandbox::new("opencode-continue");
    let store = OpenCodeStore::of(&sandbox);
    let at = |id: &'static str, ago: i64| store.session_at(id, &sandbox.work(), None, now() - ago);
    at("ses_old", 2 * HOUR).asked("one").answered("1");
    at("ses_last", HOUR).asked("two").answered("2");
    let elsewhere = sandbox.project("elsewhere");
    store.session_at("ses_elsewhere", &elsewhere, None, now() - 1000).asked("three").answered("3");
    let someone = sandbox.lookalike("opencode", &["--continue"]);
    for args in [&["ls", "--json"][..], &["ls", "-a", "--json"]] {
        let seen = Answer::of(&ask(&sandbox, args));
        seen.expect("ses_last", "unknown", None);
        assert_eq!((seen.code, seen.unbound()), (5, vec![someone.pid()]));
    }
    let seen = list(&sandbox);
    seen.expect("ses_old", "done", None);
    seen.expect("ses_elsewhere", "done", None);
    // Once it names one, it is at no other.
    store.logs(&someone, "aaaa", "message=loop session.id=ses_old step=0");
    let seen = list(&sandbox);
    seen.expect("ses_old", "idle", Some(someone.pid()));
    seen.expect("ses_last", "done", None);
}

#[test]
fn a_sub_agent_is_part_of_its_session() {
    let sandbox = Sandbox::new("opencode-task");
    let store = OpenCodeStore::of(&sandbox);
    store.session("ses_root").asked("one").answered("started");
    store.below("ses_sub", "ses_root").asked("look around");
    let run = sandbox.lookalike("opencode", &[]);
    store.logs(&run, "aaaa", "message=loop session.id=ses_sub step=0");
    let seen = list(&sandbox);
    seen.expect("ses_root", "working", Some(run.pid()));
    assert_eq!(seen.session("ses_root")["reason"], "sub-agent at work: look around");
    assert!(seen.find("ses_sub").is_none());
    run.signal(Signal::KILL);
    run.wait(DEADLINE);
    list(&sandbox).expect("ses_root", "done", None);
}

#[test]
fn looking_is_never_in_the_way_of_one_that_starts() {
    let sandbox = Sandbox::new("opencode-locks");
    let store = OpenCodeStore::of(&sandbox);
    store.session("ses_one").asked("fix it").answered("fixed");
    let path = store.path("opencode.db");
    let write =
        |n: usize| write_and_die(&path, &format!("UPDATE session SET title = 'title {n}' WHERE id = 'ses_one'"));
    write(0).expect("nobody is there");
    let over = AtomicBool::new(false);
    let refused = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    list(&sandbox).expect("ses_one", "done", None);
                }
            });
        }
        let refused: Vec<String> = (1..=2_000).filter_map(|n| write(n).err()).collect();
        over.store(true, Ordering::SeqCst);
        refused
    });
    assert_eq!(refused, Vec::<String>::new());
    // And what is only in the log is seen.
    assert_eq!(list(&sandbox).session("ses_one")["title"], "title 2000");
}

#[test]
fn an_index_that_nobody_rebuilds_is_waited_for_and_then_done_without() {
    let sandbox = Sandbox::new("opencode-index");
    let store = OpenCodeStore::of(&sandbox);
    store.session("ses_one").asked("fix it").answered("fixed");
    let write = "PRAGMA journal_mode = WAL; UPDATE session SET title = 'in the log' WHERE id = 'ses_one'";
    // One who has it open was cut off in the middle of rebuilding the index of its log. (Another process writes
    // there: who closes a file lets go of all its locks on it.)
    let opened = write_to(&store.path("opencode.db"), write);
    let index = format!("of={}", store.path("opencode.db-shm").display());
    sandbox.run(["dd", "if=/dev/zero", &index, "bs=136", "count=1", "conv=notrunc"]).expect_success();
    let index = || sandbox.run(["sha256sum", &store.path("opencode.db-shm").display().to_string()]).stdout;
    let before = index();
    let seen = list(&sandbox);
    assert_eq!(index(), before, "that is for the one who has it open");
    drop(opened);
    seen.expect("ses_one", "done", None);
    assert_eq!((seen.session("ses_one")["title"].as_str(), seen.code), (Some("in the log"), 0), "{}", seen.text);
}

#[test]
fn another_store_is_none_of_ours() {
    let sandbox = Sandbox::new("opencode-elsewhere");
    let store = OpenCodeStore::of(&sandbox);
    store.session("ses_open").asked("fix it");
    let elsewhere = Lookalike::program(&sandbox, "opencode").env("XDG_DATA_HOME", sandbox.home().join("data"));
    let _other = Lookalike::start(&sandbox, &elsewhere);
    let editor = sandbox.lookalike("vim", &["opencode"]);
    let seen = list(&sandbox);
    seen.expect("ses_open", "interrupted", None);
    assert!(seen.unbound().is_empty(), "{:?}, {}", seen.unbound(), editor.pid());
}
