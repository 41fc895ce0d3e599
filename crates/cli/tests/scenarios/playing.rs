//! The scripted agent of the demo is told apart from the real one by nothing that lariat looks at:
//! each state it can play gives the status and the reason that the contract tests hold for Claude
//! Code; what it writes has the shape of the recorded stores.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use lariat_testkit::{Child, DEADLINE, Exit, Key, Sandbox, Signal, built, wait_for, wait_until, workspace};
use serde_json::{Value, json};

use crate::asking::{ask, lariat, list};
use crate::worktrees::hold;

fn stage(name: &str) -> Sandbox {
    let sandbox = Sandbox::new(name);
    sandbox.install_copy("claude", &built("lariat-actor"));
    sandbox
}

#[track_caller]
fn act(sandbox: &Sandbox, args: &[&str]) -> Value {
    let output = ask(sandbox, &[&args[..1], &["--json"], &args[1..]].concat());
    assert_eq!(output.code(), 0, "{args:?}: {} {}", output.stdout, output.stderr);
    output.json()
}

/// Launches one in a project of its own.
#[track_caller]
fn launch(sandbox: &Sandbox, project: &str, args: &[&str]) -> Value {
    let place = sandbox.project(project);
    act(sandbox, &[&["launch", "claude", "--cwd", place.to_str().expect("UTF-8")], args].concat())
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().expect("text")
}

/// Waits for a status and the beginning of a reason; the row.
#[track_caller]
fn until(sandbox: &Sandbox, id: &str, status: &str, reason: &str) -> Value {
    wait_for(&format!("{id} to be {status}: {reason}"), DEADLINE, || {
        let row = list(sandbox).find(id)?.clone();
        let fits = row["status"] == status && row["reason"].as_str().is_some_and(|r| r.starts_with(reason));
        fits.then_some(row)
    })
}

/// Waits until it asks this, in a way that can be answered from elsewhere.
#[track_caller]
fn asked(sandbox: &Sandbox, id: &str, reason: &str) {
    wait_until(&format!("{id} to ask {reason}"), DEADLINE, || {
        let seen = list(sandbox);
        let Some(row) = seen.find(id) else { return false };
        let by_hook = row["because"].as_array().expect("because").iter().any(|o| o["witness"] == "hook");
        by_hook && row["status"] == "waiting" && row["reason"] == reason
    });
}

fn others(sandbox: &Sandbox) -> Vec<String> {
    let all = sandbox.processes();
    all.iter().filter(|p| p.pid != 1 && p.state != 'Z').map(|p| format!("{} {:?}", p.comm, p.argv)).collect()
}

/// The session, in the kernel's sense, that a process belongs to.
fn session_of(outside: i32) -> String {
    let stat = fs::read_to_string(format!("/proc/{outside}/stat")).expect("a live process");
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(3)).expect("its fields").to_owned()
}

/// Every transcript there is.
fn transcripts(home: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(home.join(".claude/projects")).into_iter().flatten().flatten();
    let files = folders.flat_map(|f| fs::read_dir(f.path()).into_iter().flatten().flatten().map(|e| e.path()));
    files.filter(|p| p.extension().is_some_and(|e| e == "jsonl")).collect()
}

#[test]
fn each_state_is_told_as_the_real_ones_is() {
    let sandbox = stage("states");
    for (n, (args, status, reason)) in [
        (&[][..], "idle", "no turn yet"),
        (&["-p", "hello"], "idle", "turn over"),
        (&["-p", "think 600"], "working", ""),
        (&["-p", "run tail -f /dev/null", "--", "--allowedTools=Bash"], "working", "running Bash tail -f /dev/null"),
        (&["-p", "run touch made"], "waiting", "permission: Bash touch made"),
        (&["-p", "ask Which colour? Red | Blue"], "waiting", "question: Which colour?"),
        (&["-p", "fail"], "idle", "last turn failed: API Error"),
        (&["--headless", "-p", "think 600"], "working", ""),
        (&["--headless", "--ask", "-p", "run touch made"], "waiting", "permission: Bash touch made"),
        (&["--headless", "-p", "run touch made"], "done", "turn over"),
        (&["--headless", "-p", "hello"], "done", "turn over"),
        (&["--headless", "-p", "fail"], "failed", "API Error"),
    ]
    .into_iter()
    .enumerate()
    {
        let launched = launch(&sandbox, &format!("p{n}"), args);
        let row = until(&sandbox, text(&launched, "native_id"), status, reason);
        assert_eq!(row["handle"], launched["handle"]);
        let live = !["done", "failed"].contains(&status);
        assert_eq!(row["pid"], if live { launched["pid"].clone() } else { Value::Null }, "{args:?}");
        assert!(!sandbox.project(&format!("p{n}")).join("made").exists(), "{args:?}");
        if !live {
            let code = u8::from(status == "failed");
            assert_eq!(row["exit"], json!({"code": code}), "{args:?}");
        }
        if args.contains(&"hello") {
            assert!(row["tokens"]["output"].as_u64().is_some_and(|n| n > 0), "{row:#}");
        }
    }
    assert_eq!(ask(&sandbox, &["kill", "--all", "--yes"]).code(), 0);
    wait_until("all are gone", DEADLINE, || others(&sandbox).is_empty());
}

#[test]
fn its_ends_leave_what_the_real_ones_leave() {
    let sandbox = stage("ends");
    for (n, (prompt, signal, code, status)) in [
        ("hello", Signal::TERM, Some(143), "done"),
        ("hello", Signal::HUP, Some(129), "done"),
        ("hello", Signal::INT, Some(0), "done"),
        ("run sleep infinity", Signal::TERM, Some(143), "interrupted"),
        ("run sleep infinity", Signal::KILL, None, "interrupted"),
    ]
    .into_iter()
    .enumerate()
    {
        let id = crate::asking::id(n as u64 + 1);
        let place = sandbox.project(&format!("p{n}"));
        let program =
            sandbox.program("claude").args(["--session-id", &id, "--allowedTools", "Bash", prompt]).cwd(&place);
        let terminal = sandbox.terminal(&program);
        let (now, why) = if prompt == "hello" { ("idle", "turn over") } else { ("working", "running Bash") };
        until(&sandbox, &id, now, why);
        let entry = sandbox.home().join(format!(".claude/sessions/{}.json", terminal.pid()));
        assert!(entry.exists());
        let tool = |p: &lariat_testkit::world::Process| p.comm == "sleep" && p.state != 'Z';
        if now == "working" {
            let running = wait_for("its tool", DEADLINE, || sandbox.processes().into_iter().find(tool));
            let agent = terminal.outside_pid().expect("it lives");
            assert_ne!(session_of(running.outside), session_of(agent), "a tool has a session of its own");
        }
        terminal.signal(signal);
        assert_eq!(terminal.wait(DEADLINE), code.map_or(Exit::Signal(9), Exit::Code));
        assert_eq!(entry.exists(), code.is_none(), "only a kill leaves the entry: {signal:?}");
        // Nobody of ours saw the exit code, so what was said decides.
        until(&sandbox, &id, status, "");
        let left = sandbox.processes().into_iter().find(tool);
        assert_eq!(left.is_some(), code.is_none(), "only a kill orphans the tool: {signal:?}");
        left.iter().for_each(|tool| assert!(tool.signal(Signal::KILL)));
    }
}

#[test]
fn what_was_answered_at_the_terminal_is_asked_no_more_while_the_next_is() {
    let sandbox = stage("answered-in-turn");
    let launched = launch(&sandbox, "p", &["-p", "run touch one then run touch two"]);
    let (id, handle) = (text(&launched, "native_id"), text(&launched, "handle"));
    asked(&sandbox, id, "permission: Bash touch one");
    let terminal = sandbox.terminal(&lariat(&sandbox, &["attach", handle]));
    terminal.wait_for_text("Do you want to proceed?", DEADLINE);
    terminal.choose('❯', 1, DEADLINE);
    asked(&sandbox, id, "permission: Bash touch two");
    let told = act(&sandbox, &["approve", handle]);
    assert_eq!(told["asked"], "permission: Bash touch two", "{told}");
    until(&sandbox, id, "idle", "turn over");
    assert!(["one", "two"].iter().all(|name| sandbox.project("p").join(name).exists()));
    act(&sandbox, &["kill", handle]);
}

#[test]
fn whoever_answers_first_decides() {
    let sandbox = stage("answers");
    let launched = launch(&sandbox, "a", &["-p", "run touch made"]);
    let (id, handle) = (text(&launched, "native_id"), text(&launched, "handle"));
    let made = |name: &str| sandbox.project("a").join(name).exists();
    asked(&sandbox, id, "permission: Bash touch made");
    act(&sandbox, &["approve", handle]);
    until(&sandbox, id, "idle", "turn over");
    assert!(made("made"));

    act(&sandbox, &["send", handle, "run touch denied"]);
    asked(&sandbox, id, "permission: Bash touch denied");
    act(&sandbox, &["deny", handle, "not", "here"]);
    until(&sandbox, id, "idle", "turn over");
    assert!(!made("denied"));
    assert!(text(&act(&sandbox, &["peek", handle]), "reply").contains("not here"));

    act(&sandbox, &["send", handle, "ask Which colour? Red | Blue"]);
    asked(&sandbox, id, "question: Which colour?");
    act(&sandbox, &["answer", handle, "2"]);
    until(&sandbox, id, "idle", "turn over");
    assert_eq!(text(&act(&sandbox, &["peek", handle]), "reply"), "You said: Blue");

    // The person at the terminal is first: the request is withdrawn.
    act(&sandbox, &["send", handle, "run touch byhand"]);
    asked(&sandbox, id, "permission: Bash touch byhand");
    let terminal = sandbox.terminal(&lariat(&sandbox, &["attach", handle]));
    terminal.wait_for_text("Do you want to proceed?", DEADLINE);
    terminal.choose('❯', 1, DEADLINE);
    until(&sandbox, id, "idle", "turn over");
    assert!(made("byhand"));
    let asks = || sandbox.processes().iter().any(|p| p.argv.get(1).is_some_and(|a| a == "__hook"));
    wait_until("nobody asks any more", DEADLINE, || !asks());

    // What is typed there is a prompt; Esc takes a turn back; Ctrl-Q leaves, and it goes on.
    terminal.submit("think 600", DEADLINE);
    until(&sandbox, id, "working", "");
    terminal.wait_for_text("esc to interrupt", DEADLINE);
    terminal.press(Key::Esc);
    until(&sandbox, id, "idle", "at its prompt");
    terminal.press(Key::Ctrl('q'));
    assert_eq!(terminal.wait(DEADLINE), Exit::Code(0));
    act(&sandbox, &["kill", handle]);
    list(&sandbox).expect(id, "stopped", None);
    let late = ask(&sandbox, &["approve", handle]);
    assert!(late.code() == 3 && late.stderr.contains("it has ended (stopped)"), "{late:?}");
    wait_until("all are gone", DEADLINE, || others(&sandbox).is_empty());
}

#[test]
fn of_two_who_answer_at_once_only_the_one_who_is_heard_is_told_so() {
    let sandbox = stage("at-once");
    let launched = launch(&sandbox, "a", &["-p", "run touch made"]);
    let (id, handle) = (text(&launched, "native_id"), text(&launched, "handle"));
    asked(&sandbox, id, "permission: Bash touch made");
    let hook = sandbox.processes().into_iter().find(|p| p.argv.get(1).is_some_and(|a| a == "__hook"));
    let hook = hook.expect("who waits for the answer");
    assert!(hook.signal(Signal::STOP));
    let answer = |of: &Child, word: &str| {
        let asks = sandbox.state_dir().join("lariat/sessions").join(handle).join("asks");
        wait_until("an answer", DEADLINE, || {
            assert_eq!(of.exit(), None, "{}", of.stderr());
            let lying = fs::read_dir(&asks).expect("what it asks").flatten().map(|e| e.path());
            let mut answers = lying.filter(|p| p.extension().is_some_and(|e| e == "answer"));
            answers.any(|p| fs::read_to_string(p).is_ok_and(|text| text.contains(word)))
        });
    };
    let approving = sandbox.spawn(&lariat(&sandbox, &["approve", handle, "--timeout", "60s", "--json"]));
    answer(&approving, "allow");
    let denying = sandbox.spawn(&lariat(&sandbox, &["deny", handle, "--timeout", "60s", "--json"]));
    answer(&denying, "deny");
    denying.signal(Signal::STOP);
    assert!(hook.signal(Signal::CONT));
    let told = approving.output(DEADLINE);
    assert!(told.code() == 3 && told.stderr.contains("it was answered elsewhere"), "{told:?}");
    denying.signal(Signal::CONT);
    let told = denying.output(DEADLINE);
    assert_eq!((told.code(), text(&told.json(), "outcome")), (0, "denied"), "{told:?}");
    until(&sandbox, id, "idle", "turn over");
    assert!(!sandbox.project("a").join("made").exists());
    act(&sandbox, &["kill", handle]);
}

#[test]
fn an_answer_is_told_of_when_it_is_seen_to_have_gone_on() {
    let sandbox = stage("goes-on");
    let launched = launch(&sandbox, "a", &["-p", "run touch made"]);
    let (id, handle) = (text(&launched, "native_id"), text(&launched, "handle"));
    asked(&sandbox, id, "permission: Bash touch made");
    // Its hook takes the answer, and it does not go on.
    let pid = i32::try_from(launched["pid"].as_i64().expect("a PID")).expect("a PID");
    let agent = || sandbox.processes().into_iter().find(|p| p.pid == pid).expect("it lives");
    assert!(agent().signal(Signal::STOP));
    let told = ask(&sandbox, &["approve", handle, "--timeout", "500ms", "--json"]);
    assert_eq!((told.code(), text(&told.json(), "outcome")), (4, "stalled"), "{told:?}");
    assert!(text(&told.json(), "reason").contains("it took the answer"), "{told:?}");
    assert!(agent().signal(Signal::CONT));
    until(&sandbox, id, "idle", "turn over");

    // Whoever waits for that hears it as soon as it does.
    act(&sandbox, &["send", handle, "run touch other"]);
    asked(&sandbox, id, "permission: Bash touch other");
    assert!(agent().signal(Signal::STOP));
    let approving = sandbox.spawn(&lariat(&sandbox, &["approve", handle, "--timeout", "60s"]));
    let asks = || sandbox.processes().iter().any(|p| p.argv.get(1).is_some_and(|a| a == "__hook") && p.state != 'Z');
    wait_until("its hook has the answer", DEADLINE, || !asks());
    assert!(approving.exit().is_none(), "it has not gone on");
    assert!(agent().signal(Signal::CONT));
    let told = approving.output(DEADLINE);
    assert_eq!((told.code(), told.stdout.as_str()), (0, "approved: permission: Bash touch other\n"), "{told:?}");

    // What it asks by then is another question.
    act(&sandbox, &["send", handle, "run touch one then run touch two"]);
    asked(&sandbox, id, "permission: Bash touch one");
    let held = hold(&sandbox, &["approve", handle, "--json"], "approve.taken");
    asked(&sandbox, id, "permission: Bash touch two");
    let (code, told) = held.go_on();
    assert_eq!((code, text(&told, "outcome")), (0, "approved"), "{told}");
    act(&sandbox, &["approve", handle]);
    until(&sandbox, id, "idle", "turn over");
    act(&sandbox, &["kill", handle]);
}

#[test]
fn what_is_asked_before_its_shim_is_on_record_can_be_answered() {
    let sandbox = stage("early");
    let fifo = sandbox.root().join("fifo");
    sandbox.run([Path::new("mkfifo"), &fifo]).expect_success();
    let program = lariat(&sandbox, &["launch", "claude", "--json", "-p", "run touch made"]);
    let launching = sandbox.spawn(&program.env("LARIAT_PAUSE_AT", "shim.kept").env("LARIAT_PAUSE_ON", &fifo));
    let sessions = sandbox.state_dir().join("lariat/sessions");
    let files = |name: &str| {
        let folders = fs::read_dir(&sessions).into_iter().flatten().flatten();
        folders.map(|f| f.path().join(name)).find(|p| p.exists())
    };
    let asks = wait_for("a request", DEADLINE, || files("asks"));
    wait_until("it is written", DEADLINE, || fs::read_dir(&asks).is_ok_and(|mut d| d.next().is_some()));
    assert_eq!(files("shim.json"), None, "its shim is held before that");
    fs::write(&fifo, "").expect("the shim goes on");
    let launched = launching.output(DEADLINE).expect_success().json();
    act(&sandbox, &["approve", text(&launched, "handle")]);
    until(&sandbox, text(&launched, "native_id"), "idle", "turn over");
    assert!(sandbox.work().join("made").exists());
    act(&sandbox, &["kill", text(&launched, "handle")]);
}

#[test]
fn a_session_goes_on_is_copied_and_is_left_for_another() {
    let sandbox = stage("sessions");
    let launched = launch(&sandbox, "a", &["-p", "hello"]);
    let (id, handle) = (text(&launched, "native_id"), text(&launched, "handle"));
    until(&sandbox, id, "idle", "turn over");
    // Somebody is there; only what `fork` can be told is named.
    let refused = ask(&sandbox, &["fork", handle]);
    assert!(refused.code() == 3 && refused.stderr.contains("--force"), "{refused:?}");
    assert!(!refused.stderr.contains("--worktree") && !refused.stderr.contains("--cwd"), "{refused:?}");
    let forked = act(&sandbox, &["fork", handle, "--force"]);
    assert_ne!(text(&forked, "native_id"), id);
    until(&sandbox, text(&forked, "native_id"), "idle", "");
    act(&sandbox, &["kill", text(&forked, "handle")]);

    // `/clear` goes on with another session, and the handle goes with it; `/exit` leaves.
    let terminal = sandbox.terminal(&lariat(&sandbox, &["attach", handle]));
    terminal.wait_for_text("❯", DEADLINE);
    terminal.submit("/clear", DEADLINE);
    let other = wait_for("the handle to have moved on", DEADLINE, || {
        let status = act(&sandbox, &["status", handle]);
        (status["native_id"] != id).then(|| text(&status, "native_id").to_owned())
    });
    list(&sandbox).expect(id, "done", None);
    terminal.submit("hello again", DEADLINE);
    until(&sandbox, &other, "idle", "turn over");
    terminal.submit("/exit", DEADLINE);
    assert_eq!(terminal.wait(DEADLINE), Exit::Code(0));
    until(&sandbox, &other, "done", "turn over");

    let back = act(&sandbox, &["resume", handle, "hello", "once", "more"]);
    assert_eq!(text(&back, "native_id"), other);
    until(&sandbox, &other, "idle", "turn over");
    for (args, why) in [
        (["--session-id", &other], "already in use"),
        (["--resume", "00000000-0000-4000-8000-000000000000"], "No conversation found"),
        (["--resume", "nonsense"], "valid UUID"),
    ] {
        let refused = sandbox.world().run(&sandbox.program("claude").args(args));
        assert_eq!(refused.code(), 1, "{args:?}");
        assert!(refused.stderr.contains(why), "{args:?}: {}", refused.stderr);
    }
    assert_eq!(ask(&sandbox, &["kill", "--all", "--yes"]).code(), 0);
}

/// The keys of each kind of line, by what tells the kind.
fn shapes(lines: impl Iterator<Item = Value>) -> BTreeMap<String, BTreeSet<String>> {
    let mut shapes = BTreeMap::<String, BTreeSet<String>>::new();
    for line in lines {
        let kind = format!("{} {}", line["type"], line["subtype"]);
        let keys = |of: &Value| of.as_object().into_iter().flat_map(|o| o.keys().cloned()).collect::<Vec<_>>();
        shapes.entry(kind.clone()).or_default().extend(keys(&line));
        shapes.entry(format!("{kind} message")).or_default().extend(keys(&line["message"]));
        shapes.entry(format!("{kind} usage")).or_default().extend(keys(&line["message"]["usage"]));
        for block in line["message"]["content"].as_array().into_iter().flatten() {
            shapes.entry(format!("{kind} {}", block["type"])).or_default().extend(keys(block));
        }
    }
    shapes
}

fn lines_of(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("a transcript");
    text.lines().map(|l| serde_json::from_str(l).expect("a whole line")).collect()
}

#[test]
fn what_it_writes_has_the_shape_of_the_recorded_stores() {
    let recorded = workspace().join("fixtures/claude/2.1.325");
    let homes: Vec<PathBuf> =
        fs::read_dir(recorded).expect("recorded stores").map(|e| e.expect("a store").path()).collect();
    let real = shapes(homes.iter().flat_map(|h| transcripts(h)).flat_map(|t| lines_of(&t)));
    let entries = |home: &Path| -> Vec<Value> {
        let files = fs::read_dir(home.join(".claude/sessions")).into_iter().flatten().flatten();
        let files = files.filter(|f| f.path().extension().is_some_and(|e| e == "json"));
        files.map(|f| serde_json::from_slice(&fs::read(f.path()).expect("an entry")).expect("JSON")).collect()
    };
    let real_entries = shapes(homes.iter().flat_map(|h| entries(h)));

    let sandbox = stage("shapes");
    for (n, args) in [
        &["--name", "one", "-p", "run touch made"][..],
        &["-p", "fail"],
        &["-p", "ask Which colour?"],
        &["-p", "run echo hello", "--", "--allowedTools=Bash"],
        &["--headless", "-p", "hello"],
    ]
    .into_iter()
    .enumerate()
    {
        let launched = launch(&sandbox, &format!("p{n}"), args);
        let id = text(&launched, "native_id");
        wait_until("it has come to rest", DEADLINE, || list(&sandbox).status(id) != "working");
    }
    let written = transcripts(&sandbox.home()).into_iter().flat_map(|t| lines_of(&t));
    // No recorded session was given a name.
    let ours = shapes(written.filter(|line| line["type"] != "custom-title"));
    let our_entries = shapes(entries(&sandbox.home()).into_iter());
    assert!(ours.len() > 8 && our_entries.len() > 1, "{ours:#?}");
    for (ours, real) in [(&ours, &real), (&our_entries, &real_entries)] {
        for (kind, keys) in ours {
            let known = real.get(kind).unwrap_or_else(|| panic!("the real one writes no {kind}"));
            assert!(keys.is_subset(known), "{kind}: {:?} are not the real one's", keys.difference(known));
        }
    }
}

/// Whoever gives the agent an id by its own flag is told that id, and the session comes back under it.
#[test]
fn an_id_that_a_person_gives_is_the_session_s() {
    let sandbox = stage("own-id");
    let own = "5e1f0000-1111-4111-8111-000000000001";
    let told = launch(&sandbox, "mine", &["--name", "mine", "-p", "hi", "--", "--session-id", own]);
    assert_eq!(text(&told, "native_id"), own);
    until(&sandbox, own, "idle", "");
    assert_eq!(list(&sandbox).sessions().len(), 1);
    ask(&sandbox, &["kill", "mine"]).expect_success();
    // What is on record of it would be taken for a sign of another one.
    let twice = ask(&sandbox, &["launch", "claude", "-p", "hi", "--", &format!("--session-id={own}")]);
    assert!(twice.code() == 3 && twice.stderr.contains("lariat resume"), "{twice:?}");
    let seen = list(&sandbox);
    seen.expect(own, "stopped", None);
    assert_eq!(seen.session(own)["handle"], told["handle"], "{}", seen.text);
    assert_eq!(text(&act(&sandbox, &["resume", "mine"]), "native_id"), own);
    let fork = act(&sandbox, &["fork", text(&told, "handle"), "--force"]);
    assert_ne!(text(&fork, "native_id"), own);
    let wrong = ask(&sandbox, &["launch", "claude", "-p", "hi", "--", "--session-id=mine"]);
    assert!(wrong.code() != 0 && wrong.stderr.contains("takes a UUID"), "{wrong:?}");
}

/// Whoever does what a plan says does that plan, not a larger one: its options are to be said again.
#[test]
fn a_plan_names_no_command_that_does_more() {
    let sandbox = stage("plans");
    let kept = launch(&sandbox, "kept", &["-p", "think 900", "--keep"]);
    let other = launch(&sandbox, "other", &["-p", "think 900"]);
    for told in [&kept, &other] {
        until(&sandbox, text(told, "native_id"), "working", "");
        let agent = sandbox.processes().into_iter().find(|p| told["pid"] == p.pid).expect("the agent");
        assert!(agent.signal(Signal::KILL));
        until(&sandbox, text(told, "native_id"), "interrupted", "");
    }
    launch(&sandbox, "live", &["-p", "hi"]);
    for args in [&["restore", "--kept"][..], &["stop", "--all", "--grace", "1s"], &["gc", "--retain", "0s"]] {
        let plan = ask(&sandbox, args).stdout;
        assert!(plan.contains("the same with --yes") || plan.contains("Nothing to forget"), "{args:?}: {plan}");
        assert!(!plan.contains("`lariat"), "{args:?}: {plan}");
    }
}

/// A terminal that shows less than a screen has shown something all the same.
#[test]
fn whoever_follows_a_terminal_sees_what_stands_on_it() {
    let sandbox = stage("follow");
    let told = launch(&sandbox, "one", &["--name", "one", "-p", "Summarise the open issues"]);
    until(&sandbox, text(&told, "native_id"), "idle", "");
    let follow = sandbox.spawn(&lariat(&sandbox, &["logs", "-f", "one"]));
    follow.wait_for_stdout("Four themes", DEADLINE);
    ask(&sandbox, &["send", "one", "Which is the oldest?"]).expect_success();
    follow.wait_for_stdout("The slow search", DEADLINE);
    ask(&sandbox, &["kill", "one"]).expect_success();
    let said = follow.output(DEADLINE);
    assert_eq!((said.code(), said.stdout.matches("Four themes").count()), (0, 1), "{}", said.stdout);
    assert_eq!(ask(&sandbox, &["logs", "-n", "1", "one"]).stdout.lines().count(), 1);
}

/// Whoever reads only the first line is not kept until there is another one.
#[test]
fn who_stays_leaves_with_its_reader() {
    let sandbox = stage("readers");
    let told = launch(&sandbox, "one", &["--name", "one", "-p", "hi"]);
    until(&sandbox, text(&told, "native_id"), "idle", "");
    for args in
        [&["events", "-f"][..], &["ls", "-w"], &["ls", "-w", "--json"], &["peek", "-f", "one"], &["logs", "-f", "one"]]
    {
        let line = "{ \"$@\"; echo \"exit $?\" >&2; } | head -n 1";
        let program = sandbox.program("sh").args(["-c", line, "sh", crate::asking::LARIAT]).args(args);
        let said = sandbox.spawn(&program).output(DEADLINE);
        assert_eq!((said.stderr.as_str(), said.stdout.lines().count()), ("exit 0\n", 1), "{args:?}");
    }
}

/// What was said is copied, the name with it; but a name that two have means nobody.
#[test]
fn a_fork_has_a_name_of_its_own() {
    let sandbox = stage("fork-name");
    let launched = launch(&sandbox, "a", &["-p", "hello", "--name", "login"]);
    until(&sandbox, text(&launched, "native_id"), "idle", "turn over");
    let fork = act(&sandbox, &["fork", "login", "hello", "--force"]);
    until(&sandbox, text(&fork, "native_id"), "idle", "turn over");
    assert_eq!(act(&sandbox, &["status", "login"])["id"], launched["id"]);
    let name = format!("login ({})", text(&fork, "handle"));
    assert_eq!(act(&sandbox, &["status", &name])["id"], fork["id"]);
    // It is on record with the agent, not only with us.
    let elsewhere = lariat(&sandbox, &["status", "login", "--json"]).env("XDG_STATE_HOME", sandbox.root().join("none"));
    assert_eq!(sandbox.world().run(&elsewhere).json()["id"], launched["id"]);
    act(&sandbox, &["rename", &name, "other"]);
    assert_eq!(act(&sandbox, &["status", "other"])["id"], fork["id"]);
    assert_eq!(ask(&sandbox, &["kill", "--all", "--yes"]).code(), 0);
}

/// No transcript shows a command of the agent's own as a prompt; that it did something does.
#[test]
fn a_command_is_sent_if_it_did_something() {
    let sandbox = stage("commands");
    let launched = launch(&sandbox, "a", &["-p", "hello"]);
    let (id, handle) = (text(&launched, "native_id"), text(&launched, "handle"));
    until(&sandbox, id, "idle", "turn over");
    let told = act(&sandbox, &["send", handle, "/clear"]);
    assert_eq!(told["outcome"], "sent", "{told}");
    let now = act(&sandbox, &["status", handle]);
    assert!(now["native_id"] != id && now["status"] == "idle", "{now}");
    // One that does nothing that could be seen.
    let told = ask(&sandbox, &["send", handle, "/nothing", "--timeout", "1s", "--json"]);
    assert_eq!((told.code(), &told.json()["outcome"]), (5, &json!("typed")), "{told:?}");
    // One that leaves.
    let told = act(&sandbox, &["send", handle, "/exit"]);
    assert_eq!(told["outcome"], "sent", "{told}");
    until(&sandbox, text(&now, "native_id"), "done", "");
}
