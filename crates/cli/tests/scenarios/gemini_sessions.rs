//! Gemini's sessions: how each of them stands, whose they may be, and which files are one.

use std::fs;

use lariat_testkit::{DEADLINE, Lookalike, Sandbox, Signal, wait_until};
use serde_json::json;

use crate::{
    asking::{CAME_UP, COMING_UP, ask, bytes, id, list, list_if},
    damage::{Kind, Victim},
    gemini_store::{GeminiStore, gemini},
    moment::{iso, now},
    older_versions,
};

#[test]
fn the_messages_that_are_left_tell_how_the_last_turn_stands() {
    let sandbox = Sandbox::new("gemini-stands");
    let store = GeminiStore::of(&sandbox);
    store.session(&id(1)).asked("one").ran("success").answered("1");
    store.session(&id(2)).asked("two");
    store.session(&id(3)).asked("three").answered("");
    store.session(&id(4)).asked("four").ran("success");
    store.session(&id(5)).asked("five").ran("cancelled");
    // Esc takes the prompt back; the note comes first.
    store.session(&id(6)).asked("six").noted("info", "Request cancelled.").only(&[]);
    // A failed request is taken back without a word, or with one on a terminal.
    store.session(&id(7)).asked("seven").only(&[]);
    // So is what a client cancels, which has it begun twice.
    let again = json!({"sessionId": id(12), "projectHash": "00", "startTime": iso(now()), "kind": "main"});
    store.session(&id(12)).line(again).only(&[]).asked("twelve").only(&[]);
    store.session(&id(8)).asked("eight").only(&[]).noted("error", "[API Error: no]").noted("info", "failed");
    // Another start writes a summary into it.
    store.session(&id(9)).asked("nine").answered("9").set(json!({"summary": "about nine"}));
    store.session(&id(10));
    store.session(&id(11)).asked("eleven").answered("11").asked("more").line(json!({"$rewindTo": "message-2"}));
    let seen = list(&sandbox);
    for (number, status) in [
        (1, "done"),
        (2, "interrupted"),
        (3, "interrupted"),
        (4, "interrupted"),
        (5, "stopped"),
        (6, "stopped"),
        (7, "failed"),
        (8, "failed"),
        (9, "done"),
        (10, "done"),
        (11, "done"),
        (12, "stopped"),
    ] {
        seen.expect(&id(number), status, None);
    }
    let first = seen.session(&id(1));
    // The same message twice is counted once; thoughts are output.
    assert_eq!(first["tokens"], json!({"input": 840, "output": 18, "cache_read": 600, "cache_write": 0}));
    assert_eq!((&first["prompt"], &first["cwd"]), (&"one".into(), &json!(sandbox.work())));
    assert_eq!(first["model"], "gemini-2.5-flash");
    assert_eq!(seen.session(&id(8))["reason"], "[API Error: no]");
    assert_eq!(seen.session(&id(9))["title"], "about nine");
    assert_eq!(seen.session(&id(10))["prompt"], serde_json::Value::Null, "the scene is no prompt");
    assert_eq!(seen.warnings(), [""; 0]);
}

#[test]
fn a_cancelled_turn_is_cancelled_although_all_before_it_is_said_again() {
    let sandbox = Sandbox::new("gemini-again");
    let store = GeminiStore::of(&sandbox);
    let again = |chat: crate::gemini_store::GeminiChat| {
        chat.message("again-1", "user", json!([{"text": "one"}]), json!({}))
            .message("again-2", "gemini", json!([{"text": "1"}]), json!({"tokens": null}))
            .only(&[json!({"id": "again-2", "type": "gemini", "content": [{"text": "1"}]})])
    };
    let one = || store.session(&id(1)).asked("one").answered("1").asked("more").answered("and a tool");
    again(one().noted("info", "Request cancelled."));
    let seen = list(&sandbox);
    seen.expect(&id(1), "stopped", None);
    assert_eq!(seen.session(&id(1))["tokens"]["output"], 18, "what was said again was not asked again");
    // And what was asked since counts.
    store.session_at(&id(2), &sandbox.work(), "07-48", now()).asked("x").noted("info", "Request cancelled.");
    let chat = store.session_at(&id(3), &sandbox.work(), "07-49", now());
    again(chat.asked("x").noted("info", "Request cancelled.")).asked("anew").answered("new");
    let seen = list(&sandbox);
    seen.expect(&id(2), "stopped", None);
    seen.expect(&id(3), "done", None);
}

#[test]
fn a_prompt_taken_back_is_told_in_a_long_conversation_too() {
    let sandbox = Sandbox::new("gemini-long");
    let store = GeminiStore::of(&sandbox);
    let long = || json!({"$set": {"note": "x".repeat(2_500_000)}});
    // Only the end is read at first, and there all messages stand anew.
    store.session(&id(1)).asked("one").line(long()).only(&[]);
    let answer = json!({"id": "m", "type": "gemini", "content": "1"});
    store.session(&id(2)).asked("one").answered("1").asked("two").line(long()).only(std::slice::from_ref(&answer));
    store.session(&id(3)).asked("one").line(long()).answered("1").line(long()).only(&[answer]);
    let seen = list(&sandbox);
    for (number, status) in [(1, "failed"), (2, "failed"), (3, "done")] {
        seen.expect(&id(number), status, None);
    }
}

#[test]
fn the_files_of_a_resumed_session_are_one_session() {
    let sandbox = Sandbox::new("gemini-stub");
    let store = GeminiStore::of(&sandbox);
    let work = sandbox.work();
    let first = store.session_at(&id(1), &work, "07-47", now() - 60_000).asked("one").answered("1");
    // The file that a resume leaves beside: the scene alone, and newer.
    store.session_at(&id(1), &work, "07-52", now() - 1000);
    let first = first.line(json!({"$set": {"sessionId": id(1)}}));
    let seen = list(&sandbox);
    assert_eq!(seen.sessions().len(), 1, "{:#}", seen.json);
    seen.expect(&id(1), "done", None);
    assert_eq!(seen.session(&id(1))["prompt"], "one");
    let agent = Lookalike::start(&sandbox, &gemini(&sandbox, &["-p", "more", "--resume", &id(1)]));
    list(&sandbox).expect(&id(1), "starting", Some(agent.pid()));
    first.at(now() + 1000).asked("more");
    list(&sandbox).expect(&id(1), "working", Some(agent.pid()));
    agent.signal(Signal::KILL);
    agent.wait(DEADLINE);
    list(&sandbox).expect(&id(1), "interrupted", None);
}

#[test]
fn what_a_terminal_took_up_is_at_rest_after_a_while_and_what_was_asked_with_it_is_not() {
    let sandbox = Sandbox::new("gemini-at-rest");
    let store = GeminiStore::of(&sandbox);
    for number in 1..=4 {
        let chat = store.session_at(&id(number), &sandbox.work(), "07-47", now() - 60_000).asked("one");
        let _ = if number == 2 { chat } else { chat.answered("1") };
    }
    let over = sandbox.terminal(&gemini(&sandbox, &["--resume", &id(1)]));
    let open = sandbox.terminal(&gemini(&sandbox, &["-m", "flash", "--resume", &id(2), "--approval-mode", "default"]));
    let asked = sandbox.terminal(&gemini(&sandbox, &["--resume", &id(3), "-i", "more"]));
    let headless = Lookalike::start(&sandbox, &gemini(&sandbox, &["-p", "more", "--resume", &id(4)]));
    wait_until("they run", DEADLINE, || (1..=4).all(|n| list(&sandbox).session(&id(n))["live"] == true));
    let seen = list_if(&sandbox, COMING_UP);
    seen.expect(&id(1), "starting", Some(over.pid()));
    assert_eq!(seen.session(&id(1))["reason"], "alive, nothing recorded since it started");
    let seen = list_if(&sandbox, CAME_UP);
    seen.expect(&id(1), "idle", Some(over.pid()));
    assert_eq!(seen.session(&id(1))["reason"], "turn over");
    seen.expect(&id(2), "idle", Some(open.pid()));
    seen.expect(&id(3), "starting", Some(asked.pid()));
    seen.expect(&id(4), "starting", Some(headless.pid()));
}

#[test]
fn a_sub_agent_that_thinks_is_at_work_and_one_that_calls_for_a_tool_may_wait() {
    let sandbox = Sandbox::new("gemini-beside");
    let store = GeminiStore::of(&sandbox);
    let tui = sandbox.terminal(&gemini(&sandbox, &["--session-id", &id(1)]));
    wait_until("it runs", DEADLINE, || list(&sandbox).find(&id(1)).is_some());
    let chat = store.session(&id(1)).asked("one").answered("");
    let (at_tools, done) = ("own-tools:86400000", "own-tools:0");
    assert_eq!(list_if(&sandbox, at_tools).session(&id(1))["reason"], "turn open");
    let folder = chat.path.with_file_name(id(1));
    fs::create_dir(&folder).expect("a folder");
    let write = |lines: &[serde_json::Value]| {
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(folder.join("agent.jsonl"), lines).expect("a sub-agent's file");
    };
    let head = json!({"sessionId": "agent", "projectHash": "00", "startTime": iso(now()), "kind": "subagent"});
    let task = json!({"id": "t", "timestamp": iso(now()), "type": "user", "content": [{"text": "look"}]});
    let call = json!({"id": "c", "timestamp": iso(now()), "type": "gemini", "content": ""});
    write(&[head.clone(), task.clone()]);
    let seen = list_if(&sandbox, done);
    seen.expect(&id(1), "working", Some(tui.pid()));
    assert_eq!(seen.session(&id(1))["reason"], "sub-agent at work");
    write(&[head, task, call]);
    list_if(&sandbox, done).expect(&id(1), "waiting", Some(tui.pid()));
    // What it says in between changes nothing of that.
    let chat = chat.answered("I let it look.");
    fs::File::open(folder.join("agent.jsonl"))
        .and_then(|f| f.set_modified(std::time::SystemTime::UNIX_EPOCH))
        .expect("old");
    assert_eq!(list_if(&sandbox, at_tools).session(&id(1))["status"], "unknown");
    drop(chat);
}

#[test]
fn what_is_written_again_when_a_session_is_taken_up_is_no_turn() {
    let sandbox = Sandbox::new("gemini-taken-up");
    let store = GeminiStore::of(&sandbox);
    let chat = store.session_at(&id(1), &sandbox.work(), "07-47", now() - 60_000).asked("one");
    list(&sandbox).expect(&id(1), "interrupted", None);
    let tui = sandbox.terminal(&gemini(&sandbox, &["--resume", &id(1)]));
    wait_until("it runs", DEADLINE, || list(&sandbox).session(&id(1))["live"] == true);
    // In the minute in which it was begun: the same file has its beginning once more, without the prompt, and then
    // all of it, with new times.
    let soon = now() + 1000;
    let begun = json!({"sessionId": id(1), "projectHash": "00", "startTime": iso(soon), "lastUpdated": iso(soon)});
    let chat = chat.at(soon).line(begun).only(&[]);
    list_if(&sandbox, COMING_UP).expect(&id(1), "starting", Some(tui.pid()));
    let prompt = json!({"id": "message-0", "timestamp": iso(soon), "type": "user", "content": [{"text": "one"}]});
    let chat = chat.line(json!({"$set": {"sessionId": id(1)}})).only(&[prompt]);
    list_if(&sandbox, COMING_UP).expect(&id(1), "starting", Some(tui.pid()));
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    list(&sandbox).expect(&id(1), "interrupted", None);
    // Asked something, it works; and what fails then is taken back.
    let tui = sandbox.terminal(&gemini(&sandbox, &["--resume", &id(1)]));
    let chat = chat.at(now() + 2000).asked("two");
    wait_until("it works", DEADLINE, || list(&sandbox).session(&id(1))["status"] == "working");
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    chat.only(&[]);
    list(&sandbox).expect(&id(1), "failed", None);
}

#[test]
fn what_was_written_before_a_process_started_cannot_be_its_own() {
    let sandbox = Sandbox::new("gemini-loose");
    let store = GeminiStore::of(&sandbox);
    let work = sandbox.work();
    let hour = 3_600_000;
    store.session_at(&id(1), &work, "06-47", now() - hour).asked("one").answered("1");
    store.session_at(&id(2), &sandbox.project("apart"), "06-47", now()).asked("two");
    let agent = Lookalike::start(&sandbox, &gemini(&sandbox, &[]));
    store.session_at(&id(3), &work, "07-47", now() + 1000).asked("three");
    let seen = list(&sandbox);
    seen.expect(&id(1), "done", None);
    seen.expect(&id(2), "interrupted", None);
    seen.expect(&id(3), "unknown", None);
    assert_eq!((seen.code, seen.unbound()), (5, vec![agent.pid()]));
    // Taken up again, which bears no time of its own.
    store.session_at(&id(4), &work, "05-47", now() - hour).asked("four").line(json!({"$set": {"sessionId": id(4)}}));
    list(&sandbox).expect(&id(4), "unknown", None);
    let tool = Lookalike::start(&sandbox, &gemini(&sandbox, &["mcp", "list"]));
    assert_eq!(list(&sandbox).unbound(), [agent.pid()], "{} holds no session", tool.pid());
}

#[test]
fn a_terminal_may_have_moved_on_from_the_session_it_was_started_with() {
    let sandbox = Sandbox::new("gemini-moved-on");
    let store = GeminiStore::of(&sandbox);
    let work = sandbox.work();
    store.session_at(&id(1), &work, "06-47", now() - 3_600_000).asked("one").answered("1");
    let tui = sandbox.terminal(&gemini(&sandbox, &["--session-id", &id(2)]));
    wait_until("it runs", DEADLINE, || list(&sandbox).find(&id(2)).is_some());
    let soon = now() + 1000;
    store.session_at(&id(2), &work, "07-47", soon).asked("two").noted("info", "Request cancelled.");
    store.session_at(&id(3), &work, "07-48", soon).asked("three").answered("3");
    let seen = list(&sandbox);
    seen.expect(&id(1), "done", None);
    seen.expect(&id(2), "idle", Some(tui.pid()));
    seen.expect(&id(3), "unknown", None);
    // One that answers a single prompt cannot move on.
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    list(&sandbox).expect(&id(3), "done", None);
    let _headless = Lookalike::start(&sandbox, &gemini(&sandbox, &["-p", "x", "--session-id", &id(4)]));
    store.session_at(&id(5), &work, "07-49", now() + 1000).asked("five").answered("5");
    list(&sandbox).expect(&id(5), "done", None);
}

#[test]
fn what_was_typed_in_a_terminal_tells_which_session_it_is_at() {
    let sandbox = Sandbox::new("gemini-typed");
    let store = GeminiStore::of(&sandbox);
    let work = sandbox.work();
    let (first, second) = (id(1), id(2));
    let tui = sandbox.terminal(&gemini(&sandbox, &["--session-id", &first]));
    wait_until("it runs", DEADLINE, || list(&sandbox).find(&first).is_some());
    let soon = now() + 1000;
    store.session_at(&first, &work, "07-47", soon).asked("one").answered("1");
    store.session_at(&second, &work, "07-48", soon + 200).at(soon + 330).asked("two");
    let told = |status: &str, pid: Option<i32>| {
        let seen = list(&sandbox);
        let (old, new) = (seen.session(&first), seen.session(&second));
        assert_eq!((&new["status"], &new["pid"]), (&json!(status), &json!(pid)), "{new:#}");
        // One of them has the process.
        assert_eq!(old["pid"], if pid.is_some() { json!(null) } else { json!(tui.pid()) }, "{old:#}");
        assert_eq!(old["status"], if pid.is_some() { "done" } else { "unknown" }, "{old:#}");
        assert_eq!((seen.warnings(), seen.unbound()), (Vec::<String>::new(), Vec::new()));
    };
    let cleared = [(first.as_str(), "/clear", soon + 150), (first.as_str(), "two", soon + 300)];
    told("unknown", None);
    store.typed(&cleared);
    told("working", Some(tui.pid()));

    // A list that is broken, cut off, being written or another's tells nothing.
    let text = fs::read(store.log()).expect("what was typed");
    for bad in [&b"{"[..], b"", &text[..text.len() - 2], b"[[[", b"{\"entries\": []}"] {
        fs::write(store.log(), bad).expect("room");
        told("unknown", None);
    }
    fs::remove_file(store.log()).expect("it was there");
    fs::create_dir(store.log()).expect("room");
    told("unknown", None);
    fs::remove_dir(store.log()).expect("it was there");
    // So do the words of an earlier process of the session, and of another terminal.
    store.typed(&cleared.map(|(id, text, at)| (id, text, at - 3_600_000)));
    told("unknown", None);
    store.typed(&cleared.map(|(_, text, at)| ("another", text, at)));
    told("unknown", None);
    store.typed(&[&cleared[..], &[("another", "two", soon + 700)]].concat());
    told("unknown", None);
    store.typed(&cleared);
    told("working", Some(tui.pid()));

    // Two fit.
    let twin = store.session_at(&id(3), &work, "07-49", soon + 210).at(soon + 340).asked("two");
    told("unknown", None);
    fs::remove_file(twin.path).expect("it was there");
    // Two were started for the session: which of them was it typed in?
    let other = sandbox.terminal(&gemini(&sandbox, &["--session-id", &first]));
    wait_until("it runs", DEADLINE, || list(&sandbox).session(&second)["status"] == "unknown");
    other.signal(Signal::KILL);
    other.wait(DEADLINE);
    told("working", Some(tui.pid()));

    // A terminal that could have begun or taken up any of them does not change what is known.
    let third = sandbox.terminal(&gemini(&sandbox, &["--session-id", &id(4)]));
    wait_until("it runs", DEADLINE, || list(&sandbox).find(&id(4)).is_some());
    told("working", Some(tui.pid()));
    third.signal(Signal::KILL);
    third.wait(DEADLINE);
    tui.signal(Signal::KILL);
    tui.wait(DEADLINE);
    let seen = list(&sandbox);
    seen.expect(&first, "done", None);
    seen.expect(&second, "interrupted", None);
}

#[test]
fn a_session_that_clear_has_begun_is_the_terminal_s_before_anything_is_said() {
    let sandbox = Sandbox::new("gemini-cleared");
    let store = GeminiStore::of(&sandbox);
    let work = sandbox.work();
    let tui = sandbox.terminal(&gemini(&sandbox, &["--session-id", &id(1)]));
    wait_until("it runs", DEADLINE, || list(&sandbox).find(&id(1)).is_some());
    let soon = now() + 1000;
    store.session_at(&id(1), &work, "07-47", soon).asked("one").answered("1");
    store.typed(&[(&id(1), "/clear", soon + 100)]);
    list(&sandbox).expect(&id(1), "unknown", Some(tui.pid())); // nothing has come of it yet
    store.session_at(&id(2), &work, "07-48", soon + 150);
    let seen = list(&sandbox);
    seen.expect(&id(1), "done", None);
    seen.expect(&id(2), "starting", Some(tui.pid()));
    // One that names no session may have begun it.
    let loose = Lookalike::start(&sandbox, &gemini(&sandbox, &[]));
    list(&sandbox).expect(&id(2), "unknown", None);
    loose.signal(Signal::KILL);
    loose.wait(DEADLINE);
    list(&sandbox).expect(&id(2), "starting", Some(tui.pid()));
    // Two terminals were cleared, and one session has begun so far.
    let other = sandbox.terminal(&gemini(&sandbox, &["--session-id", &id(4)]));
    wait_until("it runs", DEADLINE, || list(&sandbox).find(&id(4)).is_some());
    let late = now() + 5000;
    store.typed(&[(&id(1), "/clear", late), (&id(4), "/clear", late + 10_000)]);
    let claimed = store.session_at(&id(5), &work, "07-50", late + 10_050);
    let seen = list(&sandbox);
    seen.expect(&id(1), "unknown", Some(tui.pid()));
    seen.expect(&id(4), "starting", Some(other.pid()));
    seen.expect(&id(5), "unknown", None);
    other.signal(Signal::KILL);
    other.wait(DEADLINE);
    fs::remove_file(claimed.path).expect("it was there");
    store.typed(&[(&id(1), "/clear", soon + 100)]);
    list(&sandbox).expect(&id(2), "starting", Some(tui.pid()));
    store.session_at(&id(3), &work, "07-49", soon + 160);
    let seen = list(&sandbox);
    seen.expect(&id(1), "unknown", Some(tui.pid()));
    seen.expect(&id(2), "unknown", None);
    seen.expect(&id(3), "unknown", None);
}

#[test]
fn the_process_that_only_waits_is_not_the_agent() {
    let sandbox = Sandbox::new("gemini-wrapper");
    let store = GeminiStore::of(&sandbox);
    store.session_at(&id(1), &sandbox.work(), "07-47", now() + 1000).asked("one");
    let shell = fs::canonicalize("/bin/sh").expect("a shell");
    let node = sandbox.install_copy("sh/node", &shell);
    let script = sandbox.root().join("bin/gemini");
    drop(Lookalike::program(&sandbox, "node")); // puts the real one there
    let real = sandbox.root().join("bin/node");
    // Starts itself again with more memory, as Gemini does, and waits.
    let line = format!("{} --max-old-space-size=99 \"$0\" \"$@\"\nexit\n", real.display());
    fs::write(&script, line).expect("a script");
    let call = sandbox.program(node).arg0("node").arg(&script).args(["-p", "one", "--session-id", &id(1)]);
    let wrapper = Lookalike::start(&sandbox, &call.stdin(lariat_testkit::Stdin::Pipe));
    let child = sandbox.processes().into_iter().find(|p| p.parent == wrapper.pid()).expect("the real one").pid;
    let seen = list(&sandbox);
    seen.expect(&id(1), "working", Some(child));
    assert_eq!(seen.unbound(), Vec::<i32>::new());
    // The one that waits dies: the agent goes on.
    wrapper.signal(Signal::KILL);
    wrapper.wait(DEADLINE);
    list(&sandbox).expect(&id(1), "working", Some(child));
}

#[test]
fn a_copy_about_to_become_a_tool_hides_nobody() {
    let sandbox = Sandbox::new("gemini-copy");
    let store = GeminiStore::of(&sandbox);
    store.session_at(&id(1), &sandbox.work(), "07-47", now() + 1000).asked("one");
    sandbox.run(["mkfifo", "pipe"]).expect_success();
    // A shell that forks and does not exec: a child with all the same arguments, for as long as it lasts.
    let shell = fs::canonicalize("/bin/sh").expect("a shell");
    let node = sandbox.install_copy("node", &shell);
    let script = sandbox.root().join("bin/gemini");
    fs::write(&script, "(read line < pipe) &\nwait\nread end\n").expect("a script");
    let call = sandbox.program(node).arg0("node").arg(&script).args(["-p", "one", "--session-id", &id(1)]);
    let agent = sandbox.spawn(&call.stdin(lariat_testkit::Stdin::Pipe));
    wait_until("the copy", DEADLINE, || sandbox.processes().iter().any(|p| p.parent == agent.pid()));
    let seen = list(&sandbox);
    seen.expect(&id(1), "working", Some(agent.pid()));
    assert_eq!(seen.unbound(), Vec::<i32>::new());
}

#[test]
fn a_damaged_conversation_harms_no_other() {
    let sandbox = Sandbox::new("gemini-damage");
    let store = GeminiStore::of(&sandbox);
    let victim = store.session(&id(1)).asked("one").ran("success").answered("1").path;
    store.session(&id(2)).asked("two");
    store.session_in(&id(3), &sandbox.project("apart")).asked("three").answered("3");
    for number in 4..12 {
        store.session(&id(number)).asked("enough for a page").answered("yes");
    }
    Victim { path: victim, kind: Kind::Lines, of: &[id(1)], lives: false }.suffers_everything(&sandbox);
}

#[test]
fn what_a_person_ran_and_what_was_complained_of_after_an_answer_is_no_turn() {
    let sandbox = Sandbox::new("gemini-by-hand");
    let store = GeminiStore::of(&sandbox);
    let by_hand =
        "I ran the following shell command:\n```sh\nls\n```\n\nThis produced the following result:\n```\na\n```";
    let ran = |chat: crate::gemini_store::GeminiChat, id: &str| {
        chat.message(id, "user", json!([{"text": by_hand}]), json!({}))
    };
    drop(ran(store.session(&id(1)).asked("one").answered("1"), "x1"));
    drop(ran(store.session(&id(2)), "x2").asked("two").answered("2"));
    store.session(&id(3)).asked("three").answered("3").noted("error", "No saved checkpoint found with tag: x.");
    store.session(&id(4)).asked("four").noted("error", "[API Error: no]");
    drop(ran(store.session(&id(5)).asked("five").noted("info", "Request cancelled."), "x5"));
    let seen = list(&sandbox);
    for (n, status) in [(1, "done"), (2, "done"), (3, "done"), (4, "failed"), (5, "stopped")] {
        seen.expect(&id(n), status, None);
    }
    assert_eq!(seen.session(&id(2))["prompt"], "two");
}

#[test]
fn a_line_that_cannot_be_read_is_not_guessed_at() {
    let sandbox = Sandbox::new("gemini-broken-line");
    let store = GeminiStore::of(&sandbox);
    let chat = store.session(&id(1)).asked("one").answered("1").asked("two").answered("2");
    let good = fs::read_to_string(&chat.path).expect("a conversation");
    let answers: Vec<usize> =
        good.lines().enumerate().filter(|(_, line)| line.contains("\"tokens\"")).map(|(n, _)| n).collect();
    let [first, last] = answers[..] else { panic!("two answers: {good}") };
    for (n, status) in [(last, "unknown"), (first, "done")] {
        let lines = good.lines().enumerate().map(|(i, line)| if i == n { &line[..line.len() / 2] } else { line });
        let lines: String = lines.map(|line| format!("{line}\n")).collect();
        // Gemini dates each message in a line of its own, which tells nothing of the turn.
        let dated = format!("{lines}{}\n", json!({"$set": {"lastUpdated": "2026-11-15T07:55:16.412Z"}}));
        fs::write(&chat.path, dated).expect("a conversation");
        let seen = list(&sandbox);
        let row = seen.session(&id(1));
        assert_eq!((&row["status"], &row["tokens"]), (&json!(status), &json!(null)), "line {n}: {row}");
    }
}

#[test]
fn the_list_of_projects_is_asked_only_where_a_project_does_not_say() {
    let sandbox = Sandbox::new("gemini-projects");
    let store = GeminiStore::of(&sandbox);
    store.session(&id(1)).asked("one").answered("1");
    let root = store.path("tmp/proj/.project_root");
    fs::remove_file(&root).expect("it was there");
    let projects = json!({"projects": {"/somewhere/else": "else", "/the/very/place": "proj"}});
    fs::write(store.path("projects.json"), projects.to_string()).expect("a list of projects");
    assert_eq!(list(&sandbox).session(&id(1))["cwd"], "/the/very/place");
    fs::write(store.path("projects.json"), "{\"projects\":").expect("a broken list");
    let seen = list(&sandbox);
    seen.expect(&id(1), "done", None);
    assert!(seen.warns_of("projects.json"), "{:?}", seen.warnings());
    fs::write(&root, "/said/by/itself").expect("its directory");
    let seen = list(&sandbox);
    assert_eq!(seen.session(&id(1))["cwd"], "/said/by/itself");
    assert_eq!(seen.warnings(), [""; 0]);
}

#[test]
fn hostile_text_stays_on_its_row() {
    let sandbox = Sandbox::new("gemini-hostile");
    let store = GeminiStore::of(&sandbox);
    let soup = "\x1b[2J\u{9b}31m\u{202e}evil\r\n\u{2028}\x1b]52;c;eA==\x07\0 ● fake";
    let chat = store.session(&id(1)).asked(soup).ran(soup).answered(soup).set(json!({"summary": soup}));
    chat.message(soup, "gemini", json!(soup), json!({"model": soup})).asked(soup).noted("error", soup);
    for args in [&["ls", "-a"][..], &["status", &id(1)], &["explain", &id(1)], &["peek", "-n", "3", &id(1)]] {
        let out = bytes(&sandbox, args);
        let text = String::from_utf8([out.stdout, out.stderr].concat()).expect("UTF-8");
        let acts = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202e}' | '\u{2028}');
        assert_eq!(text.find(acts), None, "{args:?}: {text:?}");
    }
    assert_eq!(list(&sandbox).session(&id(1))["title"], soup, "as data it stays what it was");
}

#[test]
fn one_document_of_an_older_version_is_a_session_too() {
    let sandbox = Sandbox::new("gemini-older");
    let store = GeminiStore::of(&sandbox);
    let message = |n: u64, kind: &str, text: &str| {
        let mut message = json!({"id": format!("older-{n}"), "timestamp": iso(now()), "type": kind, "content": text});
        if kind == "gemini" {
            message["tokens"] =
                json!({"input": 420, "output": 7, "cached": 300, "thoughts": 2, "tool": 0, "total": 429});
            message["model"] = json!("gemini-2.5-pro");
        }
        message
    };
    let (asked, said) = (message(1, "user", "an older\nquestion"), message(2, "gemini", "an older answer"));
    let path = store.older(&id(1), &[asked.clone(), said.clone()]);
    store.older(&id(2), &[asked.clone(), said.clone(), message(3, "user", "and?")]);
    store.older(&id(3), &[asked.clone(), message(4, "error", "[API Error: no]")]);
    let torn = store.older(&id(4), std::slice::from_ref(&asked));
    let text = fs::read_to_string(&torn).expect("a document");
    fs::write(&torn, &text[..text.len() / 2]).expect("half of it");
    for memory in ["cold", "warm"] {
        let seen = list(&sandbox);
        for (number, status) in [(1, "done"), (2, "interrupted"), (3, "failed")] {
            seen.expect(&id(number), status, None);
        }
        let first = seen.session(&id(1));
        assert_eq!(
            (&first["prompt"], &first["title"]),
            (&json!("an older\nquestion"), &json!("an older one")),
            "{memory}"
        );
        assert_eq!(first["tokens"], json!({"input": 420, "output": 9, "cache_read": 300, "cache_write": 0}));
        assert_eq!(first["model"], "gemini-2.5-pro");
        let [warned] = seen.warnings().try_into().expect("one warning, of the torn one");
        let name = torn.file_name().and_then(|n| n.to_str()).expect("a name").to_owned();
        assert!(format!("{warned:?}").contains(&name), "{warned:?}");
    }
    let peeked = ask(&sandbox, &["peek", &id(1), "--json"]).json();
    assert_eq!(peeked["reply"], "an older answer", "{peeked}");
    let used = ask(&sandbox, &["usage", "--by", "agent", "--json"]).json();
    assert_eq!(used["total"]["tokens"]["output"], 9, "one answer, in two sessions: {used}");

    // Gemini goes on with it in lines, under the same name: one session, and nothing counted twice.
    let header = json!({"sessionId": id(1), "projectHash": "00", "startTime": iso(now()), "lastUpdated": iso(now())});
    let lines = [header, asked, said, message(5, "user", "more"), message(6, "gemini", "a newer answer")];
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(path.with_extension("jsonl"), lines).expect("a file of the store");
    let seen = list(&sandbox);
    assert_eq!(seen.sessions().iter().filter(|s| s["native_id"] == id(1)).count(), 1);
    assert_eq!(seen.session(&id(1))["tokens"]["output"], 18, "{:#}", seen.json);
    assert_eq!(ask(&sandbox, &["peek", &id(1), "--json"]).json()["reply"], "a newer answer");
    let used = ask(&sandbox, &["usage", "--by", "agent", "--json"]).json();
    assert_eq!(used["total"]["tokens"]["output"], 18, "{used}");
}

#[test]
fn a_result_that_is_an_error_has_failed_whatever_the_exit_code() {
    let sandbox = Sandbox::new("gemini-result");
    let store = GeminiStore::of(&sandbox);
    let says = format!(
        "echo '{{\"type\":\"init\",\"session_id\":\"{}\"}}'; read x <pipe
         echo '{{\"type\":\"error\",\"severity\":\"error\",\"message\":\"no tool call could be read\"}}'
         echo '{{\"type\":\"result\",\"status\":\"error\",\"stats\":{{}}}}'; exit 0",
        id(1)
    );
    older_versions::install(&sandbox, "gemini", older_versions::GEMINI, "0.40.1", &says);
    let launched = ask(&sandbox, &["launch", "gemini", "--headless", "-p", "hello", "--json"]);
    assert_eq!(launched.json()["native_id"], id(1), "{launched:?}");
    store.session(&id(1)).asked("hello").answered("that much came");
    sandbox.run(["sh", "-c", "echo >pipe"]).expect_success();
    wait_until("it has ended", DEADLINE, || list(&sandbox).session(&id(1))["live"] == false);
    let seen = list(&sandbox);
    seen.expect(&id(1), "failed", None);
    let row = seen.session(&id(1));
    assert_eq!((&row["exit"]["code"], &row["reason"]), (&json!(0), &json!("no tool call could be read")), "{row:#}");
}
