//! Claude Code where one process is not one session, or one session is not one process: resumed,
//! forked, nested, side by side, with sub-agents, and in the background.

use lariat_testkit::{DEADLINE, Exit, Signal, agents::Claude, record::Store, wait_for, wait_until};
use serde_json::Value;

use super::{FREE, accounted, asked, last_result, reported, same_session, session_id, transcript};
use crate::looks::{Row, Stage, Tokens, lines};

/// The id of a finished session.
#[track_caller]
fn finished(claude: &Claude<'_>, prompt: &str) -> String {
    let output = claude.headless(prompt, &[]).output(DEADLINE).expect_success();
    session_id(&output.stdout)
}

#[test]
fn resumed() {
    let stage = Stage::new("p-resumed");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let id = finished(&claude, "hello");
    let child = claude.headless("HOLD here again", &["--resume", &id]);
    stage.model.wait_for_hold("here", DEADLINE);
    claude.wait_for_transcript(&asked("HOLD here again"), DEADLINE);
    let row = stage.until("working", "busy").held_by(child.pid()).has("native_id", id.as_str());
    stage.agree_on_reply(&row, "echo: hello");
    stage.model.release("here");
    let output = child.output(DEADLINE).expect_success();
    same_session(&row, &output.stdout);
    let row = stage.now().ended("done").used(accounted(&transcript(&claude, &id)));
    let row = row.has("prompt", "hello");
    stage.agree_on_reply(&row, "echo: HOLD here again");
    stage.keep(Store::Claude, &[(&row, "done")]);
}

#[test]
fn resumed_after_a_kill() {
    let stage = Stage::new("p-resumed-after-kill");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    stage.sandbox.run(["mkfifo", "pipe"]).expect_success();
    let child = claude.headless("TOOL cat pipe", &FREE);
    let row = stage.until("working", "running Bash cat pipe");
    let id = row.id();
    child.signal(Signal::KILL);
    child.wait(DEADLINE);
    stage.now().ended("interrupted");
    let args = ["--resume", id];
    claude.headless("go on", &args).output(DEADLINE).expect_success();
    // Its own accounting has lost the killed run; the messages have both.
    let row = stage.now().ended("done").used(by_messages(&claude, id));
    stage.agree_on_reply(&row, "echo: go on");
    stage.keep(Store::Claude, &[(&row, "done")]);
}

/// The usage of every message in a transcript, each once.
fn by_messages(claude: &Claude<'_>, id: &str) -> Tokens {
    let text = std::fs::read_to_string(transcript(claude, id)).expect("a transcript");
    let mut seen = std::collections::HashSet::new();
    let mut sum = Tokens::default();
    for line in lines(&text) {
        let message = &line["message"];
        if line["type"] != "assistant" || !seen.insert(message["id"].to_string()) {
            continue;
        }
        let count = |key: &str| message["usage"][key].as_u64().expect("a count");
        sum.input += count("input_tokens");
        sum.output += count("output_tokens");
        sum.cache_read += count("cache_read_input_tokens");
        sum.cache_write += count("cache_creation_input_tokens");
    }
    sum
}

#[test]
fn forked() {
    let stage = Stage::new("p-forked");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let old = finished(&claude, "hello");
    let child = claude.headless("HOLD here aside", &["--resume", &old, "--fork-session"]);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = stage.until_look("the fork at work", |look| {
        look.rows.iter().find(|row| row.id() != old && row.is("working", "")).cloned()
    });
    let new = row.held_by(child.pid()).id().to_owned();
    let look = stage.look();
    assert_eq!((look.rows.len(), look.live()), (2, vec![new.as_str()]));
    look.row(&old).ended("done");
    stage.model.release("here");
    let output = child.output(DEADLINE).expect_success();
    assert_eq!(session_id(&output.stdout), new);
    let look = stage.look();
    assert_eq!(look.rows.len(), 2);
    let parent = look.row(&old).ended("done").used(by_messages(&claude, &old));
    let fork = look.row(&new).ended("done").used(by_messages(&claude, &new));
    stage.agree_on_reply(&parent, "echo: hello");
    stage.agree_on_reply(&fork, "echo: HOLD here aside");
    stage.keep(Store::Claude, &[(&parent, "done"), (&fork, "done")]);
}

#[test]
fn taken_elsewhere_then_branched() {
    let stage = Stage::new("tui-branched");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let elsewhere = stage.sandbox.project("elsewhere");
    claude.trust(&elsewhere);
    let there = elsewhere.to_str().expect("UTF-8");
    let tui = claude.terminal(&[]);
    stage.until("idle", "no turn yet").held_by(tui.pid());
    tui.submit("hello", DEADLINE);
    let old = stage.until("idle", "turn over").held_by(tui.pid()).has("parent", ());
    tui.submit(&format!("/cd {there}"), DEADLINE);
    tui.wait_for_text("Moved to", DEADLINE);
    stage.until_look("another directory", |look| {
        let row = look.only();
        (row.0["cwd"] == there && row.is("idle", "turn over")).then_some(row)
    });
    tui.submit("/branch", DEADLINE);
    // (The old one ends before the new one rests.)
    let new = wait_for("a second session", DEADLINE, || {
        let branch = |row: &Row| row.id() != old.id() && row.is("idle", "turn over");
        stage.look().rows.into_iter().find(branch)
    });
    let new = new.held_by(tui.pid()).has("parent", format!("claude:{}", old.id()));
    tui.submit("/exit", DEADLINE);
    assert_eq!(tui.wait(DEADLINE), Exit::Code(0));
    // The first line of either names the directory where it began.
    let look = stage.look();
    let (old, new) = (look.row(old.id()).ended("done"), look.row(new.id()).ended("done"));
    let (old, new) = (old.has("cwd", there), new.has("cwd", there));
    stage.keep(Store::Claude, &[(&old, "done"), (&new, "done")]);
}

#[test]
fn two_in_one_directory() {
    let stage = Stage::new("p-two");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let old = finished(&claude, "hello");
    let child = claude.headless("HOLD here hello", &[]);
    stage.model.wait_for_hold("here", DEADLINE);
    let row = stage.until_look("the second at work", |look| {
        look.rows.iter().find(|row| row.is_at_work("HOLD here hello")).cloned()
    });
    let row = row.held_by(child.pid());
    let id = session_id(&child.stdout());
    assert_eq!(row.id(), id);
    let look = stage.look();
    assert_eq!((look.rows.len(), look.live()), (2, vec![row.id()]));
    assert!(look.unbound.is_empty());
    let first = look.row(&old).ended("done");
    stage.keep(Store::Claude, &[(&first, "done"), (&row, "interrupted")]);

    child.signal(Signal::KILL);
    child.wait(DEADLINE);
    let look = stage.look();
    look.row(&old).ended("done");
    look.row(&id).ended("interrupted");
}

#[test]
fn nested() {
    let stage = Stage::new("p-nested");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let child = claude.headless("TOOL claude -p 'HOLD inner hello'", &FREE);
    stage.model.wait_for_hold("inner", DEADLINE);
    let (outer, inner) = stage.until_look("both at work", |look| {
        let at_work = |pid: &dyn Fn(&Value) -> bool| {
            let found = look.rows.iter().find(|row| row.is("working", "") && pid(&row.0["pid"]));
            found.cloned()
        };
        let outer = at_work(&|pid| *pid == child.pid())?;
        let inner = at_work(&|pid| *pid != child.pid())?;
        let inner = inner.is_at_work("HOLD inner hello").then_some(inner)?;
        look.unbound.is_empty().then_some((outer, inner))
    });
    let entries = claude.registry();
    assert_eq!(entries.len(), 2);
    for row in [&outer, &inner] {
        let entry = entries.iter().find(|entry| entry["sessionId"] == row.id());
        assert_eq!(row.0["pid"], entry.expect("registered")["pid"], "{row}");
    }
    let outer = outer.has("prompt", "TOOL claude -p 'HOLD inner hello'");
    assert_eq!(stage.look().rows.len(), 2);
    stage.agree(&outer);
    stage.agree(&inner);
    stage.keep(Store::Claude, &[(&outer, "interrupted"), (&inner, "interrupted")]);

    stage.model.release("inner");
    let output = child.output(DEADLINE).expect_success();
    let look = stage.look();
    look.row(outer.id()).ended("done").used(reported(&output.stdout));
    look.row(inner.id()).ended("done").used(accounted(&transcript(&claude, inner.id())));
}

#[test]
fn with_a_sub_agent() {
    let stage = Stage::new("p-sub-agent");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let child = claude.headless("AGENT HOLD below hello", &[]);
    stage.model.wait_for_hold("below", DEADLINE);
    claude.wait_for_transcript("tool finished", DEADLINE);
    let row = stage.until("working", "").held_by(child.pid());
    stage.agree_on_reply(&row, "tool finished");
    stage.keep(Store::Claude, &[(&row, "interrupted")]);

    stage.model.release("below");
    let output = child.output(DEADLINE).expect_success();
    let row = stage.now().ended("done").used(accounted(&transcript(&claude, row.id())));
    let row = row.used(reported(&output.stdout));
    stage.agree_on_reply(&row, last_result(&output.stdout)["result"].as_str().unwrap());
}

#[test]
fn killed_with_a_sub_agent_at_work() {
    let stage = Stage::new("p-sub-agent-killed");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let child = claude.headless("AGENT HOLD below hello", &[]);
    stage.model.wait_for_hold("below", DEADLINE);
    claude.wait_for_transcript("tool finished", DEADLINE);
    stage.until("working", "").held_by(child.pid());
    child.signal(Signal::KILL);
    assert_eq!(child.wait(DEADLINE), Exit::Signal(9));
    let row = stage.now().ended("interrupted");
    stage.keep(Store::Claude, &[(&row, "interrupted")]);
}

/// Starts a background job; gives the eight digits it is known by.
#[track_caller]
fn background(stage: &Stage, claude: &Claude<'_>, prompt: &str) -> String {
    let program = claude.program().args(["--bg", prompt]);
    let said = stage.sandbox.world().run(&program).expect_success().stdout;
    let mut words = said.split(|c: char| !c.is_ascii_hexdigit());
    words.find(|word| word.len() == 8).expect("a job's id").to_owned()
}

#[track_caller]
fn stop(stage: &Stage, claude: &Claude<'_>, job: &str) {
    stage.sandbox.world().run(&claude.program().args(["stop", job])).expect_success();
}

/// Waits for the end of a background job's worker, which nobody here has started.
#[track_caller]
fn gone(stage: &Stage, worker: &Value) {
    wait_until("the worker's end", DEADLINE, || stage.sandbox.processes().iter().all(|process| *worker != process.pid));
}

#[test]
fn in_the_background() {
    let stage = Stage::new("bg-stopped-idle");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let job = background(&stage, &claude, "HOLD here hello");
    stage.model.wait_for_hold("here", DEADLINE);
    claude.wait_for_transcript(&asked("HOLD here hello"), DEADLINE);
    let row = stage.until_at_work("HOLD here hello");
    assert!(row.id().starts_with(&job), "{row}");
    let entries = claude.registry();
    assert_eq!((&entries[0]["sessionId"], &entries[0]["pid"]), (&row.0["native_id"], &row.0["pid"]));
    stage.agree(&row);

    stage.model.release("here");
    let row = stage.until("idle", "turn over");
    stage.agree_on_reply(&row, "echo: HOLD here hello");
    let worker = row.0["pid"].clone();
    stop(&stage, &claude, &job);
    gone(&stage, &worker);
    let row = stage.now().ended("done");
    let used = accounted(&transcript(&claude, row.id()));
    let row = row.used(used);
    stage.agree_on_reply(&row, "echo: HOLD here hello");
    stage.keep(Store::Claude, &[(&row, "done")]);
}

#[test]
fn a_worker_that_is_kept_ready_is_no_session() {
    let stage = Stage::new("bg-spare");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let view = claude.terminal(&["agents"]);
    view.wait_for_text("describe a task", DEADLINE);
    let spare = |entry: &&Value| entry["spare"] == true;
    wait_until("one is registered", DEADLINE, || claude.registry().iter().find(spare).is_some());
    let look = stage.look();
    let rows: Vec<String> = look.rows.iter().map(Row::to_string).collect();
    assert_eq!((rows, look.unbound), (Vec::new(), Vec::new()), "{:?}", claude.registry());
    view.submit("HOLD here hello", DEADLINE);
    stage.model.wait_for_hold("here", DEADLINE);
    claude.wait_for_transcript(&asked("HOLD here hello"), DEADLINE);
    let row = stage.until_at_work("HOLD here hello");
    let client = claude.terminal(&["attach", &row.id()[..8]]);
    client.wait_for_text("HOLD here hello", DEADLINE);
    let look = stage.look();
    assert_eq!((look.live(), look.unbound.len()), (vec![row.id()], 0));
    stage.agree(&row);
}

#[test]
fn stopped_in_the_background() {
    let stage = Stage::new("bg-stopped-working");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let job = background(&stage, &claude, "HOLD here hello");
    stage.model.wait_for_hold("here", DEADLINE);
    claude.wait_for_transcript(&asked("HOLD here hello"), DEADLINE);
    let worker = stage.until_at_work("HOLD here hello").0["pid"].clone();
    stop(&stage, &claude, &job);
    gone(&stage, &worker);
    let row = stage.now().ended("stopped");
    stage.agree(&row);
    stage.keep(Store::Claude, &[(&row, "stopped")]);
}

#[test]
fn killed_in_the_background() {
    let stage = Stage::new("bg-respawned");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    background(&stage, &claude, "HOLD here hello");
    stage.model.wait_for_hold("here", DEADLINE);
    claude.wait_for_transcript(&asked("HOLD here hello"), DEADLINE);
    let row = stage.until_at_work("HOLD here hello");
    let worker = row.0["pid"].clone();
    let processes = stage.sandbox.processes();
    let process = processes.iter().find(|process| worker == process.pid).expect("the worker");
    assert!(process.signal(Signal::KILL));
    gone(&stage, &worker);
    // Its daemon will bring it back: as long as that may happen, nobody knows.
    let look = stage.look();
    assert_eq!(look.row(row.id()).status(), "unknown");
    let again = stage.until_of(row.id(), "working", "");
    assert_ne!(again.0["pid"], worker);
    let entries = claude.registry();
    let now = entries.iter().find(|entry| entry["pid"] == again.0["pid"]).expect("registered");
    assert_eq!(now["sessionId"], row.id(), "two entries, one of them stale: {entries:?}");
    assert_eq!(stage.look().rows.len(), 1);
}

#[test]
fn killed_through_lariat_in_the_background() {
    let stage = Stage::new("bg-killed-by-us");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let job = background(&stage, &claude, "HOLD here hello");
    stage.model.wait_for_hold("here", DEADLINE);
    claude.wait_for_transcript(&asked("HOLD here hello"), DEADLINE);
    let row = stage.until_at_work("HOLD here hello");
    stage.sandbox.world().run(&stage.lariat().args(["kill", row.id()])).expect_success();
    gone(&stage, &row.0["pid"]);
    // Its daemon takes it for one that has ended, and brings nothing back; of one that crashed it says so.
    let state = claude.store().join("jobs").join(&job).join("state.json");
    let told = || std::fs::read_to_string(&state).unwrap_or_default();
    wait_until("the daemon knows", DEADLINE, || !told().contains(r#""state": "working""#));
    assert!(told().contains(r#""state": "done""#), "{}", told());
    let row = stage.now().ended("stopped");
    stage.agree(&row);
}

#[test]
fn two_processes_on_one_session() {
    let stage = Stage::new("tui-and-p");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let id = finished(&claude, "hello");
    let tui = claude.terminal(&["--resume", &id]);
    let row = stage.until("idle", "turn over").held_by(tui.pid());
    assert_eq!(row.id(), id);
    // Claude does not keep the second one off. The row shows the one that is busy.
    let child = claude.headless("HOLD here again", &["--resume", &id]);
    stage.model.wait_for_hold("here", DEADLINE);
    claude.wait_for_transcript(&asked("HOLD here again"), DEADLINE);
    let row = stage.until("working", "busy").held_by(child.pid());
    stage.agree(&row.has("native_id", id.as_str()));
    stage.model.release("here");
    child.output(DEADLINE).expect_success();
    let row = stage.now().held_by(tui.pid());
    assert!(row.is("idle", ""), "{row}");
}

#[test]
fn a_sub_agent_that_asks() {
    let stage = Stage::new("tui-sub-agent-permission");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let args = ["--permission-mode", "manual", "--allowedTools", "Agent,Task"];
    let tui = claude.terminal(&args);
    stage.until("idle", "no turn yet");
    tui.submit("AGENT TOOL touch made", DEADLINE);
    tui.wait_for_text("Do you want to proceed?", DEADLINE);
    claude.wait_for_transcript("tool finished", DEADLINE);
    let row = stage.until("waiting", "permission: Bash touch made").held_by(tui.pid());
    stage.agree(&row);
    stage.keep(Store::Claude, &[(&row, "interrupted")]);
}
