//! Pi: launched by lariat, when it tells which session it holds; and by itself, when it shows
//! nothing, and whatever it could be is unknown until it has ended.

use std::{fs, path::Path};

use lariat_testkit::{Child, DEADLINE, Exit, Key, Signal, agents::Pi, record::Store, wait_until};
use serde_json::{Value, json};

use crate::looks::{Look, Row, Stage, Tokens, lines};

/// What the assistant's messages on stdout say was used, and what that cost.
fn reported(stdout: &str) -> (Tokens, f64) {
    let (mut sum, mut cost) = (Tokens::default(), 0.0);
    for event in lines(stdout).iter().filter(|e| e["type"] == "message_end" && e["message"]["role"] == "assistant") {
        let usage = &event["message"]["usage"];
        let count = |key: &str| usage[key].as_u64().expect("a count");
        sum.input += count("input");
        sum.output += count("output");
        sum.cache_read += count("cacheRead");
        sum.cache_write += count("cacheWrite");
        cost += usage["cost"]["total"].as_f64().expect("a price");
    }
    (sum, cost)
}

/// The id in the first line of stdout.
fn id_in(stdout: &str) -> String {
    let header = lines(stdout).remove(0);
    assert_eq!(header["type"], "session");
    header["id"].as_str().expect("an id").to_owned()
}

/// A session that has ended well.
#[track_caller]
fn finished(pi: &Pi<'_>, prompt: &str, args: &[&str]) -> (String, Tokens, f64) {
    let output = pi.headless(prompt, args).output(DEADLINE).expect_success();
    let (used, cost) = reported(&output.stdout);
    (id_in(&output.stdout), used, cost)
}

/// Waits until all that is known of a Pi is that it runs, so that its directory's sessions are unknown.
#[track_caller]
fn until_loose(stage: &Stage, child: &Child, sessions: usize) -> Look {
    stage.until_look("a process without a session", |look| {
        let loose = look.unbound.len() == 1 && look.unbound[0]["pid"] == child.pid();
        let unknown = look.rows.len() == sessions && look.rows.iter().all(|row| row.status() == "unknown");
        (loose && unknown).then(|| stage.look())
    })
}

#[track_caller]
fn act(stage: &Stage, args: &[&str]) -> Value {
    let output = stage.sandbox.world().run(&stage.lariat().args(args));
    assert_eq!(output.code(), 0, "{args:?}: {} {}", output.stdout, output.stderr);
    output.json()
}

/// Launches, and gives the handle and the id.
#[track_caller]
fn launch(stage: &Stage, args: &[&str]) -> (String, String, Value) {
    let launched = act(stage, &[&["launch", "--json", "pi"], args].concat());
    let text = |key: &str| launched[key].as_str().expect(key).to_owned();
    (text("handle"), text("native_id"), launched["pid"].clone())
}

/// What a launched headless Pi wrote.
fn stdout(stage: &Stage, handle: &str) -> String {
    let folder = stage.sandbox.home().join(".local/state/lariat/sessions").join(handle);
    fs::read_to_string(folder.join("stdout")).expect("what it wrote")
}

/// Every process that is not the world's own first one.
fn others(stage: &Stage) -> Vec<String> {
    let all = stage.sandbox.processes();
    all.iter().filter(|p| p.pid != 1 && p.state != 'Z').map(|p| format!("{} {:?}", p.comm, p.argv)).collect()
}

#[test]
fn launched_headless_it_is_known_from_the_first_moment() {
    let stage = Stage::new("launch-done");
    let _pi = Pi::install(&stage.sandbox, &stage.model);
    let (handle, id, pid) = launch(&stage, &["--headless", "-p", "- HOLD here @first line"]);
    stage.model.wait_for_hold("here", DEADLINE);
    // It has written no file yet: this version does so with the first reply.
    let row = stage.until_at_work("- HOLD here @first line").has("native_id", id.as_str()).has("pid", pid);
    let row = row.has("cwd", stage.sandbox.work().to_str().unwrap()).has("handle", handle.as_str());
    stage.model.release("here");
    let ended = act(&stage, &["wait", &handle, "--until", "done", "--timeout", "60s", "--json"]);
    assert_eq!(ended["exit"]["code"], 0, "{ended}");
    assert_eq!(id_in(&stdout(&stage, &handle)), row.id());
    let (used, cost) = reported(&stdout(&stage, &handle));
    let row = stage.now().ended("done").used(used).has("model", "scripted-1").has("cost_usd", cost);
    stage.agree_on_reply(&row, "echo: - HOLD here @first line");
    stage.keep(Store::Pi, &[(&row, "done")]);

    // A second one, killed with its tools; the first is untouched.
    let (handle, id, _) = launch(&stage, &["--headless", "-p", "TOOL touch started; setsid -w tail -f /dev/null"]);
    stage.until_started();
    let doing = "running bash touch started";
    let second = stage.until_of(&id, "working", doing);
    assert_eq!(stage.look().live(), [second.id()]);
    act(&stage, &["kill", &handle, "--json"]);
    wait_until("nothing is left", DEADLINE, || others(&stage).is_empty());
    let look = stage.look();
    look.row(&id).ended("stopped");
    look.row(row.id()).ended("done").used(used);
}

/// This version has written nothing by then.
#[test]
fn killed_before_its_first_reply_it_was_cut_off() {
    let stage = Stage::new("launch-cut-off");
    let _pi = Pi::install(&stage.sandbox, &stage.model);
    for gate in ["headless", "launched", "sent"] {
        let prompt = format!("HOLD {gate} words");
        let (handle, id, pid) = match gate {
            "headless" => launch(&stage, &["--headless", "-p", &prompt]),
            "launched" => launch(&stage, &["-p", &prompt]),
            _ => launch(&stage, &[]),
        };
        if gate == "sent" {
            stage.until_of(&id, "idle", "no turn yet");
            // It arrives, and no transcript shows it yet.
            let sent = stage.lariat().args(["send", &handle, &prompt, "--timeout", "1s"]);
            assert_eq!(stage.sandbox.world().run(&sent).code(), 4);
        }
        stage.model.wait_for_hold(gate, DEADLINE);
        stage.until_of(&id, "working", "").has("pid", pid.clone());
        let pid = i32::try_from(pid.as_i64().expect("a pid")).expect("a pid");
        assert!(stage.sandbox.world().process(pid).expect("it lives").signal(Signal::KILL));
        let row = stage.until_look("it has ended", |look| look.find(&id).filter(|r| r.0["live"] == false).cloned());
        row.ended("interrupted").has("restorable", true).has("exit", json!({"signal": 9}));
    }
}

#[test]
fn launched_in_a_terminal_it_takes_what_is_sent() {
    let stage = Stage::new("launch-tui");
    let _pi = Pi::install(&stage.sandbox, &stage.model);
    let (handle, id, pid) = launch(&stage, &[]);
    let row = stage.until("idle", "no turn yet").has("native_id", id.as_str()).has("pid", pid.clone());
    assert_eq!(row.0["tokens"], Value::Null, "nothing is written yet: {row}");
    stage.agree(&row);
    let told = act(&stage, &["send", &handle, "say something", "--wait", "--json"]);
    assert_eq!((&told["outcome"], &told["status"]), (&"sent".into(), &"idle".into()), "{told}");
    assert!(told["reply"].as_str().is_some_and(|r| r.contains("say something")), "{told}");
    let send = stage.lariat().args(["send", &handle, "FAIL 401", "--wait", "--json"]);
    let refused = stage.sandbox.world().run(&send);
    let told = refused.json();
    let outcome = (refused.code(), &told["outcome"], &told["status"]);
    assert_eq!(outcome, (1, &"sent".into(), &"waiting".into()), "{told}");
    let row = stage.until("waiting", "login: 401 ").has("pid", pid.clone());
    stage.agree(&row);

    act(&stage, &["send", &handle, "TOOL touch started; setsid -w tail -f /dev/null", "--json"]);
    stage.until_started();
    let row = stage.until("working", "running bash touch started").has("pid", pid).has("native_id", id);
    let row = row.has("tool", "bash touch started; setsid -w tail -f /dev/null");
    stage.agree_on_reply(&row, "running");
    stage.keep(Store::Pi, &[(&row, "interrupted")]);
    act(&stage, &["stop", &handle, "--json"]);
    wait_until("nothing is left", DEADLINE, || others(&stage).is_empty());
    stage.now().ended("stopped");
}

#[test]
fn its_handle_goes_along_to_another_session_and_stays_there() {
    let stage = Stage::new("launch-new");
    let _pi = Pi::install(&stage.sandbox, &stage.model);
    let (handle, first, pid) = launch(&stage, &["-p", "first words"]);
    stage.until("idle", "turn over");
    let tui = stage.sandbox.terminal(&stage.lariat().args(["attach", &handle]));
    tui.wait_for_text("first words", DEADLINE);
    tui.submit("/new", DEADLINE);
    let second = stage.until_look("another session", |look| {
        let row = look.rows.iter().find(|row| row.id() != first)?;
        // What it was launched with is not what this one is given.
        Some(row.clone().has("status", "idle").has("reason", "no turn yet").has("pid", pid.clone()))
    });
    let record = stage.sandbox.home().join(".local/state/lariat/sessions").join(&handle).join("launch.json");
    wait_until("the handle has moved", DEADLINE, || {
        fs::read_to_string(&record).is_ok_and(|text| text.contains(&format!("\"native_id\":\"{}\"", second.id())))
    });
    act(&stage, &["send", &handle, "second words", "--wait", "--json"]);
    act(&stage, &["send", &handle, "HOLD here more", "--json"]);
    stage.model.wait_for_hold("here", DEADLINE);
    let agent = stage.sandbox.world().process(i32::try_from(pid.as_i64().expect("a pid")).expect("a pid"));
    agent.expect("it lives").signal(Signal::KILL);
    drop(tui);
    let look =
        stage.until_look("it has ended", |look| look.find(second.id())?.is("interrupted", "").then(|| stage.look()));
    let row = look.row(second.id()).has("handle", handle.as_str()).has("restorable", true);
    row.has("exit", serde_json::json!({"signal": 9}));
    look.row(&first).ended("done").has("handle", ()).has("exit", ());
    let done = act(&stage, &["restore", "--yes", "--json"]);
    assert_eq!(done["restore"][0]["id"], second.0["id"], "{done}");
    let row =
        stage.until_look("it is back", |look| look.find(second.id()).filter(|row| row.0["live"] == true).cloned());
    row.has("handle", handle.as_str());
    act(&stage, &["kill", &handle, "--json"]);
}

#[test]
fn with_its_sessions_where_an_argument_says_it_is_known_and_goes_on_there() {
    let stage = Stage::new("launch-pi-apart");
    let _pi = Pi::install(&stage.sandbox, &stage.model);
    let (handle, id, pid) =
        launch(&stage, &["--headless", "-p", "THEN later TOOL true", "--", "--session-dir", "apart"]);
    stage.model.wait_for_hold("later", DEADLINE);
    let row = stage.until("working", "").has("native_id", id.as_str()).has("pid", pid);
    assert!(row.0["tokens"].is_object(), "it is read where it is: {row}");
    stage.model.release("later");
    act(&stage, &["wait", &handle, "--until", "done", "--timeout", "60s", "--json"]);
    stage.agree_on_reply(&stage.now().ended("done").has("native_id", id.as_str()), "tool finished");
    let again = act(&stage, &["resume", &handle, "HOLD here", "--json"]);
    assert_eq!((&again["native_id"], &again["way"]), (&id.as_str().into(), &"native".into()), "{again}");
    stage.model.wait_for_hold("here", DEADLINE);
    act(&stage, &["kill", &handle, "--json"]);
    stage.now().ended("stopped").has("native_id", id);
}

#[test]
fn what_it_keeps_in_memory_alone_it_tells_of_all_the_same() {
    let stage = Stage::new("launch-pi-memory");
    let _pi = Pi::install(&stage.sandbox, &stage.model);
    let (handle, id, pid) = launch(&stage, &["-p", "HOLD here", "--", "--no-session"]);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until("working", "busy").has("native_id", id.as_str()).has("pid", pid);
    stage.model.release("here");
    stage.until("idle", "no turn yet").has("native_id", id.as_str()).has("handle", handle.as_str());
    act(&stage, &["kill", &handle, "--json"]);
    stage.now().ended("stopped").has("native_id", id);
}

#[test]
fn without_a_login_it_waits_for_one() {
    let stage = Stage::new("launch-login");
    let pi = Pi::install(&stage.sandbox, &stage.model);
    let models = fs::read(pi.store().join("models.json")).expect("its models");
    fs::remove_file(pi.store().join("models.json")).expect("its models");
    let (handle, id, _) = launch(&stage, &["-p", "hello"]);
    stage.until("waiting", "login: ").has("native_id", id.as_str());
    act(&stage, &["kill", &handle, "--json"]);
    stage.now().ended("stopped");
    // With one, it is not asked for.
    fs::write(pi.store().join("models.json"), models).expect("its models");
    let (handle, id, _) = launch(&stage, &["-p", "hello"]);
    stage.until_of(&id, "idle", "turn over");
    act(&stage, &["kill", &handle, "--json"]);
}

#[test]
fn what_an_extension_asks_is_waited_for_and_nothing_is_typed() {
    let stage = Stage::new("launch-pi-asks");
    let pi = Pi::install(&stage.sandbox, &stage.model);
    let folder = pi.store().join("extensions");
    fs::create_dir_all(&folder).expect("a folder");
    let gate = "export default (pi) => pi.on('tool_call', async (event, context) =>
        (await context.ui.confirm('Gate', 'Allow ' + event.input.command + '?')) ? undefined : { block: true });";
    fs::write(folder.join("gate.js"), gate).expect("an extension");
    let (handle, _, pid) = launch(&stage, &["-p", "TOOL touch gated"]);
    let row = stage.until("waiting", "dialog: Gate: Allow touch gated?").has("pid", pid);
    stage.agree(&row);
    let output = stage.sandbox.world().run(&stage.lariat().args(["send", &handle, "no", "--json"]));
    assert_eq!((output.code(), &output.json()["outcome"]), (3, &"blocked".into()), "{output:?}");
    let viewer = stage.sandbox.terminal(&stage.lariat().args(["attach", &handle]));
    viewer.wait_for_text("Allow touch gated?", DEADLINE);
    viewer.press(Key::Enter);
    stage.until("idle", "turn over");
    assert!(stage.sandbox.work().join("gated").exists());
    act(&stage, &["kill", &handle, "--json"]);
    stage.now().ended("stopped");
}

#[test]
fn while_it_tries_again_it_works() {
    let stage = Stage::new("launch-again");
    let pi = Pi::install(&stage.sandbox, &stage.model);
    pi.try_again();
    let (handle, _, _) = launch(&stage, &["-p", "FAIL 429"]);
    stage.until("working", "");
    // It is tried four times, with two, four and eight seconds between; not one look calls that rest.
    let failures = || {
        let said = pi.sessions().iter().map(|path| fs::read_to_string(path).expect("a session")).collect::<String>();
        said.matches("\"stopReason\":\"error\"").count()
    };
    stage.until_look("the last try to fail", |look| {
        let row = look.only();
        assert!(row.is("working", "") || failures() == 4, "after {} failures: {row}", failures());
        row.is("waiting", "limit: 429").then_some(())
    });
    act(&stage, &["kill", &handle, "--json"]);
}

#[test]
fn while_it_compacts_it_works_until_that_is_done_given_up_or_failed() {
    let stage = Stage::new("launch-compact");
    let pi = Pi::install(&stage.sandbox, &stage.model);
    pi.compact_early();
    let (handle, _, pid) = launch(&stage, &["-p", "first words"]);
    stage.until("idle", "turn over");
    let tui = stage.sandbox.terminal(&stage.lariat().args(["attach", &handle]));
    for (gate, more) in [("squeeze", ""), ("press", ""), ("wring", " FAIL 400")] {
        act(&stage, &["send", &handle, &format!("words for {gate}"), "--wait", "--json"]);
        stage.model.script_beside("summary", &format!("HOLD {gate}{more}"));
        tui.submit("/compact", DEADLINE);
        stage.model.wait_for_hold(gate, DEADLINE);
        let row = stage.until("working", "busy since its last turn").has("pid", pid.clone());
        stage.agree(&row);
        match gate {
            "press" => tui.press(Key::Esc),
            _ => stage.model.release(gate),
        }
        stage.until("idle", "turn over");
    }
    let said = fs::read_to_string(pi.sessions().remove(0)).expect("a session");
    assert_eq!(said.matches("\"type\":\"compaction\"").count(), 1, "the other two came to nothing");
    act(&stage, &["stop", &handle, "--json"]);
    stage.now().ended("stopped");
}

#[test]
fn while_it_sums_up_a_branch_it_works_until_that_is_done_given_up_or_failed() {
    let stage = Stage::new("launch-tree");
    let pi = Pi::install(&stage.sandbox, &stage.model);
    let (handle, _, pid) = launch(&stage, &["-p", "first words"]);
    stage.until("idle", "turn over");
    let tui = stage.sandbox.terminal(&stage.lariat().args(["attach", &handle]));
    for (gate, more) in [("fold", ""), ("bend", ""), ("crease", " FAIL 400")] {
        act(&stage, &["send", &handle, &format!("words for {gate}"), "--wait", "--json"]);
        stage.model.script_beside("summary", &format!("HOLD {gate}{more}"));
        tui.submit("/tree", DEADLINE);
        tui.wait_for_text("Session Tree", DEADLINE);
        tui.press(Key::Up);
        tui.press(Key::Up);
        tui.press(Key::Enter);
        tui.wait_for_text("Summarize branch?", DEADLINE);
        tui.press(Key::Down);
        tui.wait_for_text("→ Summarize", DEADLINE);
        tui.press(Key::Enter);
        stage.model.wait_for_hold(gate, DEADLINE);
        let row = stage.until("working", "busy since its last turn").has("pid", pid.clone());
        stage.agree(&row);
        match gate {
            "bend" => {
                tui.press(Key::Esc);
                tui.wait_for_text("Session Tree", DEADLINE);
                tui.press(Key::Esc);
                tui.wait_for_no_text("Session Tree", DEADLINE);
            }
            _ => stage.model.release(gate),
        }
        stage.until("idle", "turn over");
    }
    let said = fs::read_to_string(pi.sessions().remove(0)).expect("a session");
    assert_eq!(said.matches("\"type\":\"branch_summary\"").count(), 1, "the other two came to nothing");
    act(&stage, &["stop", &handle, "--json"]);
    stage.now().ended("stopped");
}

#[test]
fn by_itself_it_is_a_process_without_a_session() {
    let stage = Stage::new("p-done");
    let pi = Pi::install(&stage.sandbox, &stage.model);
    let child = pi.headless("HOLD here hello", &[]);
    stage.model.wait_for_hold("here", DEADLINE);
    let look = until_loose(&stage, &child, 0);
    assert_eq!(look.unbound[0]["cwd"], stage.sandbox.work().to_str().unwrap());
    stage.model.release("here");
    let output = child.output(DEADLINE).expect_success();
    let (used, cost) = reported(&output.stdout);
    let row = stage.now().ended("done").has("native_id", id_in(&output.stdout)).used(used).has("cost_usd", cost);
    stage.agree_on_reply(&row, "echo: HOLD here hello");
    stage.keep(Store::Pi, &[(&row, "done")]);
}

/// Resumes the session at `file`, ends its turn by a signal, and looks at once.
#[track_caller]
fn ended_by(stage: &Stage, pi: &Pi<'_>, file: &Path, gate: &str, signal: Signal, exit: Exit) -> Row {
    let file = file.to_str().expect("a UTF-8 path");
    let child = pi.headless(&format!("HOLD {gate} again"), &["--session", file]);
    stage.model.wait_for_hold(gate, DEADLINE);
    // It could be any session of its directory: the one that ended is not known to have.
    until_loose(stage, &child, 1);
    pi.wait_for_session(&format!("HOLD {gate} again"), DEADLINE);
    child.signal(signal);
    assert_eq!(child.wait(DEADLINE), exit);
    let row = stage.now().ended("interrupted");
    stage.agree_on_reply(&row, "echo: hello");
    row
}

#[test]
fn resumed_and_ended_by_signals() {
    let stage = Stage::new("p-signals");
    let pi = Pi::install(&stage.sandbox, &stage.model);
    let (id, used, _) = finished(&pi, "hello", &[]);
    let file = pi.sessions().remove(0);
    for (gate, signal, exit) in [
        ("one", Signal::INT, Exit::Signal(2)),
        ("two", Signal::TERM, Exit::Code(143)),
        ("three", Signal::KILL, Exit::Signal(9)),
    ] {
        let row = ended_by(&stage, &pi, &file, gate, signal, exit).has("native_id", id.as_str());
        row.used(used);
    }
    let row = stage.now();
    stage.keep(Store::Pi, &[(&row, "interrupted")]);
}

#[test]
fn forked_failed_and_elsewhere() {
    let stage = Stage::new("p-forked-failed");
    let pi = Pi::install(&stage.sandbox, &stage.model);
    let (old, used, _) = finished(&pi, "hello", &[]);
    let file = pi.sessions().remove(0);
    let (new, more, _) = finished(&pi, "aside", &["--fork", file.to_str().unwrap()]);
    let output = pi.headless("FAIL 400", &[]).output(DEADLINE);
    let broken = id_in(&output.stdout);
    let look = stage.look();
    let parent = look.row(&old).ended("done").used(used);
    let whole = Tokens {
        input: used.input + more.input,
        output: used.output + more.output,
        cache_read: used.cache_read + more.cache_read,
        cache_write: used.cache_write + more.cache_write,
    };
    // A fork begins with its parent's lines, and so with what they used.
    let fork = look.row(&new).ended("done").used(whole).has("parent", format!("pi:{old}"));
    let failed = look.row(&broken).ended("failed");
    assert!(failed.0["reason"].as_str().is_some_and(|r| r.contains("scripted failure")), "{failed}");
    stage.agree_on_reply(&parent, "echo: hello");
    stage.agree_on_reply(&fork, "echo: aside");
    stage.keep(Store::Pi, &[(&parent, "done"), (&fork, "done"), (&failed, "failed")]);

    // Another place for its sessions.
    let elsewhere = stage.sandbox.home().join("elsewhere");
    stage.sandbox.env("PI_CODING_AGENT_SESSION_DIR", &elsewhere);
    let (moved, _, _) = finished(&pi, "moved", &[]);
    stage.look().row(&moved).ended("done");
    let outside = Look::take(&stage, &stage.lariat().without_env("PI_CODING_AGENT_SESSION_DIR"));
    assert!(outside.find(&moved).is_none(), "the usual place has it not");
}

#[test]
fn escaped_in_a_terminal() {
    let stage = Stage::new("tui-escaped");
    let pi = Pi::install(&stage.sandbox, &stage.model);
    let tui = pi.terminal(&["hello"]);
    pi.wait_for_session("echo: hello", DEADLINE);
    tui.submit("HOLD here again", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    tui.press(Key::Esc);
    pi.wait_for_session("\"stopReason\":\"aborted\"", DEADLINE);
    assert_eq!(stage.look().rows[0].status(), "unknown", "it shows no session");
    tui.signal(Signal::TERM);
    tui.wait(DEADLINE);
    let row = stage.now().ended("stopped");
    stage.agree_on_reply(&row, "echo: hello");
    stage.keep(Store::Pi, &[(&row, "stopped")]);
}
