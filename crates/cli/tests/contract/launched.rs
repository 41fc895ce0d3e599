//! The real agents, launched by lariat: with a terminal and without, killed shims, ended trees.

mod again;
mod answered;
mod background;
mod drafts;

use lariat_testkit::{
    DEADLINE, Key, Signal,
    agents::{Claude, Codex},
    wait_for, wait_until,
};
use serde_json::{Value, json};

use crate::looks::Stage;

#[track_caller]
fn launch(stage: &Stage, args: &[&str]) -> Value {
    let output = stage.sandbox.world().run(&stage.lariat().args([&["launch", "--json"], args].concat()));
    assert_eq!(output.code(), 0, "{}", output.stderr);
    output.json()
}

#[track_caller]
fn act(stage: &Stage, args: &[&str]) -> Value {
    let output = stage.sandbox.world().run(&stage.lariat().args(args));
    assert_eq!(output.code(), 0, "{args:?}: {} {}", output.stdout, output.stderr);
    output.json()
}

fn id(launched: &Value) -> &str {
    launched["native_id"].as_str().expect("an id")
}

fn handle(launched: &Value) -> &str {
    launched["handle"].as_str().expect("a handle")
}

/// Every process that is not the world's own first one.
fn others(stage: &Stage) -> Vec<String> {
    let all = stage.sandbox.processes();
    all.iter().filter(|p| p.pid != 1 && p.state != 'Z').map(|p| format!("{} {:?}", p.comm, p.argv)).collect()
}

#[test]
fn a_headless_claude_runs_to_its_end() {
    let stage = Stage::new("launch-p");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let launched = launch(&stage, &["claude", "--headless", "-p", "HOLD me"]);
    stage.model.wait_for_hold("me", DEADLINE);
    let row = stage.until_at_work("HOLD me");
    assert_eq!((row.id(), row.0["handle"].as_str()), (id(&launched), Some(handle(&launched))));
    assert_eq!(row.0["pid"], launched["pid"]);
    stage.model.release("me");
    let ended = act(&stage, &["wait", handle(&launched), "--until", "done", "--timeout", "60s", "--json"]);
    assert_eq!((&ended["status"], &ended["exit"]["code"]), (&"done".into(), &0.into()), "{ended}");
}

#[test]
fn of_a_codex_that_stores_nothing_its_output_tells() {
    let stage = Stage::new("launch-ephemeral");
    let _codex = Codex::install(&stage.sandbox, &stage.model);
    let start = |prompt: &str| launch(&stage, &["codex", "--headless", "-p", prompt, "--", "--ephemeral"]);
    let launched = start("HOLD me");
    stage.model.wait_for_hold("me", DEADLINE);
    let row = stage.until("working", "");
    assert_eq!((row.id(), &row.0["pid"]), (id(&launched), &launched["pid"]));
    stage.agree(&row);
    stage.model.release("me");
    let ended = act(&stage, &["wait", handle(&launched), "--until", "done", "--timeout", "60s", "--json"]);
    assert_eq!((&ended["status"], &ended["reason"]), (&"done".into(), &"turn over".into()), "{ended}");
    // Killed, it was cut off like any other. What it was asked may have been done, and is not asked again.
    let launched = start("HOLD again");
    stage.model.wait_for_hold("again", DEADLINE);
    stage.until_of(id(&launched), "working", "");
    let pid = launched["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a PID");
    assert!(stage.sandbox.world().process(pid).expect("it lives").signal(Signal::KILL));
    let cut_off = stage.until_of(id(&launched), "interrupted", "cut off in the middle of a turn by signal 9");
    assert_eq!(cut_off.0["restorable"], false, "{cut_off}");
    let again = stage.sandbox.world().run(&stage.lariat().args(["resume", handle(&launched), "--json"]));
    assert!(again.code() == 2 && again.stderr.contains("store nothing"), "{again:?}");
}

#[test]
fn of_a_claude_that_stores_nothing_its_output_tells() {
    let stage = Stage::new("launch-unstored");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let unstored = "--no-session-persistence";
    for (signal, held, status) in [(Signal::TERM, "one", "interrupted"), (Signal::INT, "two", "stopped")] {
        let launched = launch(&stage, &["claude", "--headless", "-p", &format!("HOLD {held}"), "--", unstored]);
        stage.model.wait_for_hold(held, DEADLINE);
        stage.until_of(id(&launched), "working", "");
        let pid = launched["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a PID");
        assert!(stage.sandbox.world().process(pid).expect("it lives").signal(signal));
        stage.until_of(id(&launched), status, "");
    }
    let launched = launch(&stage, &["claude", "--headless", "-p", "hello", "--", unstored]);
    stage.until_of(id(&launched), "done", "turn over");
}

#[test]
fn a_launched_codex_says_that_it_asks_for_what_no_file_tells() {
    let stage = Stage::new("launch-codex-mcp");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let server = crate::looks::mcp_server(&stage.sandbox);
    codex.configure(&format!("[mcp_servers.forms]\ncommand = \"python3\"\nargs = [{server:?}]\n"));
    let launched = launch(&stage, &["codex", "-p", "CALL mcp__forms.wait {}"]);
    let row = stage.until_look("it to ask, and its tokens", |look| {
        look.rows.iter().find(|row| row.is("waiting", "permission: wait") && !row.0["tokens"].is_null()).cloned()
    });
    assert_eq!((row.id(), &row.0["pid"]), (id(&launched), &launched["pid"]));
    stage.agree(&row);
    // Allowed, it runs.
    let tui = stage.sandbox.terminal(&stage.lariat().args(["attach", handle(&launched)]));
    tui.wait_for_text("Allow", DEADLINE);
    tui.choose('›', 1, DEADLINE);
    stage.until("working", "running wait");
    act(&stage, &["kill", handle(&launched), "--json"]);
}

#[test]
fn a_plan_that_a_launched_codex_was_told_to_put_aside_is_asked_no_more() {
    let stage = Stage::new("launch-codex-plan");
    let _codex = Codex::install(&stage.sandbox, &stage.model);
    let launched = launch(&stage, &["codex", "-p", "HOLD here"]);
    stage.until_at_work("HOLD here");
    let tui = stage.sandbox.terminal(&stage.lariat().args(["attach", handle(&launched)]));
    tui.wait_for_text("Working", DEADLINE);
    // What comes after it has drawn for a new viewer: what is typed while it does, it may keep until the next key.
    stage.model.release("here");
    tui.wait_for_text("Worked for", DEADLINE);
    tui.submit("/plan", DEADLINE);
    tui.wait_for_text("Plan mode", DEADLINE);
    for (key, words) in [(Key::Esc, "PLAN"), (Key::Enter, "PLAN again")] {
        tui.submit(words, DEADLINE);
        tui.wait_for_text("Implement this plan?", DEADLINE);
        stage.until("waiting", "plan: 1. Look.");
        // Another choice is none yet, and is told by the same word as the end of it.
        tui.press(Key::Down);
        tui.press(Key::Down);
        tui.wait_for_text("› 3. No", DEADLINE);
        let row = stage.now();
        assert!(row.is("waiting", "plan: 1. Look."), "{row}");
        stage.agree(&row);
        tui.press(key);
        let row = stage.until("idle", "turn over");
        stage.agree(&row);
    }
    act(&stage, &["kill", handle(&launched), "--json"]);
}

#[test]
fn what_a_launched_claude_asks_before_it_has_a_session_is_told() {
    let stage = Stage::new("launch-claude-trust");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let project = stage.sandbox.project("untrusted");
    let launched = launch(&stage, &["claude", "-p", "hello", "--cwd", project.to_str().expect("UTF-8")]);
    let row = stage.until("waiting", "dialog: whether it may trust the files in this folder");
    stage.agree(&row);
    let refused = stage.sandbox.world().run(&stage.lariat().args(["send", handle(&launched), "hello"]));
    assert!(refused.code() == 3 && refused.stderr.contains("trust"), "{refused:?}");
    let tui = stage.sandbox.terminal(&stage.lariat().args(["attach", handle(&launched)]));
    tui.wait_for_text("❯ No, exit", DEADLINE);
    tui.press_away(Key::Down, "❯ No, exit", DEADLINE);
    tui.press_away(Key::Enter, "Quick safety check", DEADLINE);
    stage.until("idle", "turn over").has("native_id", launched["native_id"].clone());
    act(&stage, &["kill", handle(&launched), "--json"]);
}

#[test]
fn what_a_codex_asks_before_it_has_a_session_ends_its_launch_at_once() {
    let stage = Stage::new("launch-codex-trust");
    let codex = Codex::install(&stage.sandbox, &stage.model);
    let project = stage.sandbox.project("untrusted");
    let command = ["launch", "codex", "-p", "hello", "--cwd", project.to_str().expect("UTF-8")];
    let output = stage.sandbox.world().run(&stage.lariat().args(command));
    let told = format!(
        "whether this folder is to be trusted before it begins a session, and was ended; run `codex` in {}",
        project.display()
    );
    assert!(output.code() == 1 && output.stderr.contains(&told), "{output:?}");
    wait_until("nothing is left", DEADLINE, || others(&stage).is_empty());
    codex.trust(&project);
    let unknown = [&command[..], &["--", "-c", "model_provider=openai"]].concat();
    let output = stage.sandbox.world().run(&stage.lariat().args(unknown));
    assert!(output.code() == 1 && output.stderr.contains("asks for a login"), "{output:?}");
    // What it is asked may have the words.
    let words = "\u{203a} 1. Trust and continue > 1. Sign in with ChatGPT";
    let command: Vec<&str> = command[1..].iter().map(|a| if *a == "hello" { words } else { a }).collect();
    let launched = launch(&stage, &command);
    stage.until_of(id(&launched), "idle", "");
}

#[test]
fn claude_in_a_terminal_outlives_its_shim_and_ends_with_its_tools() {
    let stage = Stage::new("launch-tui");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let launched = launch(
        &stage,
        &[
            "claude",
            "-p",
            "TOOL touch started; setsid tail -f /dev/null",
            "--",
            "--permission-mode",
            "manual",
            "--allowedTools=Bash",
        ],
    );
    stage.until_started();
    let row = stage.until("working", "running Bash");
    assert_eq!(row.0["pid"], launched["pid"]);
    // Every process of lariat's own is killed: the shim, and whoever holds the terminal with it.
    for process in stage.sandbox.processes() {
        if process.comm.starts_with("lariat") && process.pid != 1 {
            process.signal(lariat_testkit::Signal::KILL);
            break; // one holder of the terminal must stay, or it hangs up
        }
    }
    let row = stage.until("working", "running Bash");
    assert_eq!((row.id(), &row.0["pid"]), (id(&launched), &launched["pid"]));
    act(&stage, &["stop", handle(&launched), "--json"]);
    wait_until("nothing is left", DEADLINE, || others(&stage).is_empty());
    assert_eq!(stage.look().find(id(&launched)).expect("its row").status(), "stopped");
}

#[test]
fn of_three_at_once_one_is_started_and_tmux_shows_its_own_screen() {
    let stage = Stage::new("tmux");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let launching = ["launch", "claude", "--json", "-p", "say heron", "--", "--permission-mode", "manual"];
    let launches = [(); 3].map(|()| stage.sandbox.spawn(&stage.lariat().args(launching)));
    let outputs = launches.map(|launch| launch.output(DEADLINE));
    let mut codes = outputs.iter().map(lariat_testkit::Output::code).collect::<Vec<_>>();
    codes.sort_unstable();
    assert_eq!(codes, [0, 3, 3], "{outputs:?}");
    let launched = outputs.iter().find(|o| o.code() == 0).expect("one").json();
    stage.until("idle", "turn over");

    let tmux = |args: &[&str]| stage.sandbox.run([&["tmux", "-L", "lariat", "-f", "/dev/null"], args].concat());
    let attach = format!("exec lariat attach {}", handle(&launched));
    for size in [("100", "30"), ("80", "24")] {
        // Each time it is drawn from nothing, and then anew in the size of the viewer.
        let args = ["new-session", "-d", "-x", size.0, "-y", size.1, "-s", "one", &attach];
        assert_eq!(tmux(&args).code(), 0);
        let rule = "─".repeat(size.0.parse().expect("a number"));
        wait_until("Claude's own screen in tmux", DEADLINE, || {
            let screen = tmux(&["capture-pane", "-p", "-t", "one"]).stdout;
            let lines: Vec<&str> = screen.lines().map(str::trim_end).collect();
            lines.contains(&"❯ say heron") && lines.contains(&"● echo: say heron") && lines.contains(&rule.as_str())
        });
        assert_eq!(tmux(&["send-keys", "-t", "one", "C-q"]).code(), 0);
        wait_until("it is left", DEADLINE, || tmux(&["list-sessions"]).code() != 0);
        assert_eq!(stage.now().status(), "idle", "leaving ends nothing");
    }
    act(&stage, &["stop", handle(&launched), "--json"]);
    wait_until("nothing is left", DEADLINE, || others(&stage).is_empty());
}

#[test]
fn every_process_of_lariat_is_killed_and_who_works_is_found_again() {
    let stage = Stage::new("killed-all");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let _codex = Codex::install(&stage.sandbox, &stage.model);
    let tool = "TOOL touch started; setsid tail -f /dev/null";
    let allowed = ["claude", "--headless", "-p", tool, "--", "--permission-mode", "manual", "--allowedTools=Bash"];
    let claude = launch(&stage, &allowed);
    stage.until_started();
    let codex = launch(&stage, &["codex", "--headless", "--force", "-p", "HOLD me"]);
    stage.model.wait_for_hold("me", DEADLINE);
    let ours = || {
        let all = stage.sandbox.processes().into_iter();
        all.filter(|p| p.comm.starts_with("lariat") && p.pid != 1 && p.state != 'Z').collect::<Vec<_>>()
    };
    assert!(ours().len() >= 2, "a shim for each");
    for process in ours() {
        process.signal(lariat_testkit::Signal::KILL);
    }
    wait_until("lariat's own are gone", DEADLINE, || ours().is_empty());
    for launched in [&claude, &codex] {
        let row = stage.until_of(id(launched), "working", "");
        assert_eq!((&row.0["pid"], &row.0["handle"]), (&launched["pid"], &launched["handle"]));
    }
    for launched in [&claude, &codex] {
        act(&stage, &["stop", handle(launched), "--json"]);
        assert_eq!(stage.look().row(id(launched)).status(), "stopped");
    }
    wait_until("nothing is left, not even the tool that left its session", DEADLINE, || others(&stage).is_empty());
}

#[test]
fn codex_shows_its_id_with_a_terminal_and_without() {
    let stage = Stage::new("launch-codex");
    let _codex = Codex::install(&stage.sandbox, &stage.model);
    let exec = launch(&stage, &["codex", "--headless", "-p", "HOLD me"]);
    stage.model.wait_for_hold("me", DEADLINE);
    let row = stage.until_of(id(&exec), "working", "");
    assert_eq!(row.0["pid"], exec["pid"]);
    let terminal = launch(&stage, &["codex", "--force"]);
    assert_ne!(id(&exec), id(&terminal));
    let row = stage.until_of(id(&terminal), "starting", "");
    assert_eq!(row.0["handle"], terminal["handle"]);
    for launched in [&exec, &terminal] {
        act(&stage, &["stop", handle(launched), "--json"]);
    }
    wait_until("nothing is left", DEADLINE, || others(&stage).is_empty());
    assert_eq!(stage.look().find(id(&exec)).expect("its row").status(), "stopped");
}

#[test]
fn s40_what_is_sent_arrives_and_nothing_is_typed_into_a_question() {
    let stage = Stage::new("send");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let launched = launch(&stage, &["claude", "--", "--permission-mode", "manual"]);
    stage.until("idle", "");
    let told = act(&stage, &["send", handle(&launched), "say something", "--wait", "--json"]);
    assert_eq!((&told["outcome"], &told["status"]), (&"sent".into(), &"idle".into()), "{told}");
    assert!(told["reply"].as_str().is_some_and(|r| r.contains("say something")), "{told}");

    // Scenario 40: on a permission prompt the text is held back, and nothing is typed.
    act(&stage, &["send", handle(&launched), "TOOL touch made", "--json"]);
    stage.until("waiting", "permission: Bash touch made");
    let output = stage.sandbox.world().run(&stage.lariat().args(["send", handle(&launched), "yes please", "--json"]));
    assert_eq!((output.code(), &output.json()["outcome"]), (3, &"blocked".into()));
    assert!(!stage.sandbox.work().join("made").exists());
    stage.until("waiting", "permission: Bash touch made");
    // Held back, it is delivered later, and once.
    let held = ["send", handle(&launched), "a later word", "--when-idle", "--key", "k1", "--wait", "--json"];
    let held = stage.sandbox.spawn(&stage.lariat().args(held));
    act(&stage, &["approve", handle(&launched), "--json"]);
    let told = held.output(DEADLINE).json();
    assert!(told["reply"].as_str().is_some_and(|r| r.contains("a later word")), "{told}");
    act(&stage, &["send", handle(&launched), "a later word", "--key", "k1", "--json"]);
    let other = stage.sandbox.world().run(&stage.lariat().args(["send", handle(&launched), "else", "--key", "k1"]));
    assert_eq!(other.code(), 3, "{}", other.stderr);
    let said = stage.model.prompts();
    assert_eq!(said.iter().filter(|p| p.contains("a later word")).count(), 1, "{said:?}");
    act(&stage, &["kill", handle(&launched), "--json"]);
}

#[test]
fn codex_takes_what_is_sent() {
    let stage = Stage::new("send-codex");
    let _codex = Codex::install(&stage.sandbox, &stage.model);
    let launched = launch(&stage, &["codex", "-p", "first words"]);
    stage.until("idle", "");
    let told = act(&stage, &["send", handle(&launched), "second", "words", "--wait", "--json"]);
    assert!(told["reply"].as_str().is_some_and(|r| r.contains("second words")), "{told}");
    // A turn that fails is over too, and has no reply.
    for (fails, status) in [("FAIL 400", "idle"), ("FAIL 429", "waiting")] {
        let send = stage.lariat().args(["send", handle(&launched), fails, "--wait", "--json"]);
        let sent = stage.sandbox.world().run(&send);
        let told = sent.json();
        assert_eq!((sent.code(), &told["status"], &told["reply"]), (1, &status.into(), &Value::Null), "{told}");
    }
    act(&stage, &["kill", handle(&launched), "--json"]);
}

#[test]
fn what_claude_asks_is_answered_from_another_terminal() {
    let stage = Stage::new("approve");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let launched = launch(&stage, &["claude", "-p", "TOOL touch made", "--", "--permission-mode", "manual"]);
    let made = |name: &str| stage.sandbox.work().join(name).exists();
    stage.until("waiting", "permission: Bash touch made");
    // What does not fit the question is refused, and nothing happens.
    let refused = stage.sandbox.world().run(&stage.lariat().args(["answer", handle(&launched), "yes"]));
    assert_eq!(refused.code(), 3, "{}", refused.stderr);
    // Nor is anything approved that nobody has seen.
    let other = ["approve", handle(&launched), "--expect", "permission: Bash ls"];
    let refused = stage.sandbox.world().run(&stage.lariat().args(other));
    assert_eq!((refused.code(), made("made")), (3, false), "{}", refused.stderr);
    let seen = ["approve", handle(&launched), "--expect", "permission: Bash touch made", "--json"];
    let told = act(&stage, &seen);
    assert_eq!((&told["outcome"], &told["asked"]), (&"approved".into(), &"permission: Bash touch made".into()));
    stage.until("idle", "");
    assert!(made("made"));

    act(&stage, &["send", handle(&launched), "TOOL touch denied", "--json"]);
    stage.until("waiting", "permission: Bash touch denied");
    act(&stage, &["deny", handle(&launched), "not", "here", "--json"]);
    stage.until("idle", "");
    assert!(!made("denied"));
    let asked = stage.model.requests();
    assert!(asked.iter().any(|r| r.body.to_string().contains("not here")), "the reason reaches the model");

    act(&stage, &["send", handle(&launched), "ASK", "--json"]);
    stage.until("waiting", "question: Which colour?");
    act(&stage, &["answer", handle(&launched), "blue", "--json"]);
    stage.until("idle", "");
    let asked = stage.model.requests();
    assert!(asked.iter().any(|r| r.body.to_string().contains("have been answered")), "the answer reaches the model");

    let options = json!([{"label": "Apple", "description": "a"}, {"label": "Fig", "description": "f"}]);
    let question = |text, several| json!({"question": text, "header": "h", "multiSelect": several, "options": options});
    let call = json!({"questions": [question("Which one?", false), question("Which ones?", true)]});
    act(&stage, &["send", handle(&launched), &format!("CALL AskUserQuestion {call}"), "--json"]);
    stage.until("waiting", "question: Which one? / Which ones?");
    act(&stage, &["answer", handle(&launched), "2", "2,apple", "--json"]);
    stage.until("idle", "");
    let asked = stage.model.requests();
    assert!(asked.iter().any(|r| r.body.to_string().contains("Fig, Apple")), "all that was chosen reaches the model");

    // The person at the terminal is first: the request is withdrawn, and nothing is left that asks.
    act(&stage, &["send", handle(&launched), "TOOL touch byhand", "--json"]);
    stage.until("waiting", "permission: Bash touch byhand");
    let terminal = stage.sandbox.terminal(&stage.lariat().args(["attach", handle(&launched)]));
    terminal.wait_for_text("touch byhand", DEADLINE);
    terminal.choose('❯', 1, DEADLINE);
    stage.until("idle", "");
    assert!(made("byhand"));
    let asks = || stage.sandbox.processes().iter().any(|p| p.argv.get(1).is_some_and(|a| a == "__hook"));
    wait_until("nobody asks any more", DEADLINE, || !asks());
    let refused = stage.sandbox.world().run(&stage.lariat().args(["approve", handle(&launched)]));
    assert_eq!(refused.code(), 3, "{}", refused.stderr);
    act(&stage, &["kill", handle(&launched), "--json"]);
}

#[test]
fn a_plan_of_claude_s_is_approved_from_another_terminal() {
    let stage = Stage::new("approve-plan");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let launched = launch(&stage, &["claude", "-p", "PLAN it", "--", "--permission-mode", "plan"]);
    let row = stage.until("waiting", "plan");
    assert_eq!(row.0["reason"], "plan", "no plan was written up");
    // Without a reason, too.
    act(&stage, &["deny", handle(&launched), "--json"]);
    stage.until("idle", "");
    act(&stage, &["send", handle(&launched), "PLAN anew", "--json"]);
    stage.until("waiting", "plan");
    act(&stage, &["approve", handle(&launched), "--json"]);
    stage.until("idle", "");
    let asked = stage.model.requests();
    assert!(asked.iter().any(|r| r.body.to_string().contains("approved")), "the model is told that it may go on");
    act(&stage, &["kill", handle(&launched), "--json"]);
}

#[test]
fn a_headless_claude_that_is_told_to_ask_waits_for_the_answer() {
    let stage = Stage::new("approve-p");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let args = ["claude", "--headless", "--ask", "-p", "TOOL touch made", "--", "--permission-mode", "manual"];
    let launched = launch(&stage, &args);
    let row = stage.until("waiting", "permission: Bash touch made");
    assert_eq!(row.0["because"][0]["witness"], "hook", "{}", row.0);
    act(&stage, &["approve", handle(&launched), "--json"]);
    let ended = act(&stage, &["wait", handle(&launched), "--until", "done", "--timeout", "60s", "--json"]);
    assert_eq!(ended["status"], "done", "{ended}");
    assert!(stage.sandbox.work().join("made").exists());
}

#[test]
fn a_prompt_of_any_size_arrives() {
    let stage = Stage::new("long");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let long = format!("{} the end", "many words ".repeat(30_000));
    let file = stage.sandbox.work().join("prompt");
    std::fs::write(&file, &long).expect("a prompt");
    let launched = launch(&stage, &["claude", "--headless", "--file", file.to_str().expect("UTF-8")]);
    let ended = act(&stage, &["wait", handle(&launched), "--until", "done", "--timeout", "60s", "--json"]);
    assert_eq!(ended["status"], "done", "{ended}");
    assert!(ended["prompt"].as_str().is_some_and(|p| p.contains("many words")));
    let asked = stage.model.requests();
    assert!(asked.iter().any(|r| r.body.to_string().contains("the end")));
}

#[test]
fn killed_in_mid_turn_and_rebooted_they_go_on_in_the_same_conversation() {
    let stage = Stage::new("restore");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let _codex = Codex::install(&stage.sandbox, &stage.model);
    let claude = launch(&stage, &["claude", "--headless", "-p", "HOLD one"]);
    stage.model.wait_for_hold("one", DEADLINE);
    let codex = launch(&stage, &["codex", "--headless", "-p", "HOLD two", "--force"]);
    stage.model.wait_for_hold("two", DEADLINE);
    let other = launch(&stage, &["claude", "--headless", "-p", "HOLD three", "--force"]);
    stage.model.wait_for_hold("three", DEADLINE);
    act(&stage, &["kill", handle(&other), "--json"]);
    // Everything is killed at once, the shims first, so that nobody writes down how it ended.
    for process in stage.sandbox.processes().iter().filter(|p| p.pid != 1).filter(|p| p.comm.starts_with("lariat")) {
        process.signal(lariat_testkit::Signal::KILL);
    }
    for process in stage.sandbox.processes().iter().filter(|p| p.pid != 1) {
        process.signal(lariat_testkit::Signal::KILL);
    }
    wait_until("all are gone", DEADLINE, || others(&stage).is_empty());
    let before = stage.look();
    for launched in [&claude, &codex] {
        let row = before.row(id(launched));
        assert_eq!((row.status(), &row.0["restorable"]), ("interrupted", &true.into()), "{}", row.0);
    }
    let plan = act(&stage, &["restore", "--json"]);
    assert_eq!(plan["restore"].as_array().map(Vec::len), Some(2), "{plan}");
    assert!(others(&stage).is_empty(), "a plan starts nothing");
    let done = act(&stage, &["restore", "--yes", "--force", "--json"]);
    for row in done["restore"].as_array().expect("rows") {
        assert_eq!((&row["outcome"], &row["way"]), (&"restored".into(), &"native".into()), "{done}");
    }
    for launched in [&claude, &codex] {
        let ended = act(&stage, &["wait", handle(launched), "--until", "done", "--timeout", "60s", "--json"]);
        assert_eq!((&ended["id"], &ended["status"]), (&launched["id"], &"done".into()), "{ended}");
        let peeked = act(&stage, &["peek", handle(launched), "--json"]);
        assert!(peeked["reply"].as_str().is_some_and(|r| r.contains("Continue where you left off")), "{peeked}");
    }
    let row = stage.look().row(id(&other));
    assert_eq!(row.status(), "stopped", "what a person ended stays ended");
    assert_eq!(stage.look().rows.len(), 3, "no session has been doubled");
}

#[test]
fn after_clear_the_handle_answers_for_the_new_session() {
    let stage = Stage::new("clear-launched");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let launched = launch(&stage, &["claude", "-p", "first words"]);
    stage.until("idle", "");
    let terminal = stage.sandbox.terminal(&stage.lariat().args(["attach", handle(&launched)]));
    terminal.wait_for_text("first words", DEADLINE);
    terminal.submit("/clear", DEADLINE);
    let new = stage.until_look("another session", |look| {
        look.rows.iter().find(|r| r.id() != id(&launched) && r.0["handle"] == launched["handle"]).cloned()
    });
    assert_eq!(new.0["pid"], launched["pid"]);
    let told = act(&stage, &["send", handle(&launched), "second words", "--when-idle", "--wait", "--json"]);
    assert_eq!(told["id"], new.0["id"], "{told}");
    act(&stage, &["kill", handle(&launched), "--json"]);
    let row = stage.look().row(new.id());
    assert_eq!((row.status(), &row.0["handle"]), ("stopped", &launched["handle"]));
    assert_eq!(stage.look().row(id(&launched)).status(), "done");
}

#[test]
fn after_branch_the_handle_is_the_branch_s_for_good() {
    let stage = Stage::new("branch-launched");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let launched = launch(&stage, &["claude", "-p", "first words"]);
    stage.until("idle", "turn over");
    let terminal = stage.sandbox.terminal(&stage.lariat().args(["attach", handle(&launched)]));
    terminal.wait_for_text("first words", DEADLINE);
    terminal.submit("/branch", DEADLINE);
    terminal.wait_for_text("Branched conversation", DEADLINE);
    let new = wait_for("the branch on record", DEADLINE, || {
        let path = stage.sandbox.state_dir().join("lariat/sessions").join(handle(&launched)).join("launch.json");
        let record: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        (record["native_id"] != launched["native_id"]).then(|| record["native_id"].clone())
    });
    stage.until_of(new.as_str().expect("an id"), "idle", "turn over").has("handle", launched["handle"].clone());
    let agent = launched["pid"].as_i64().expect("a pid");
    let processes = stage.sandbox.processes();
    processes.iter().find(|p| i64::from(p.pid) == agent).expect("the agent").signal(lariat_testkit::Signal::KILL);
    wait_until("its end", DEADLINE, || stage.sandbox.processes().iter().all(|p| i64::from(p.pid) != agent));
    // What is brought back is what was cut off, not what it had left before.
    let look = stage.look();
    let (old, new) = (look.row(id(&launched)), look.row(new.as_str().expect("an id")));
    assert_eq!((&old.0["handle"], &old.0["restorable"]), (&Value::Null, &false.into()), "{old}");
    assert_eq!((&new.0["handle"], &new.0["restorable"]), (&launched["handle"], &true.into()), "{new}");
}

#[test]
fn who_is_told_to_start_another_session_is_not_launched() {
    let stage = Stage::new("launch-bg");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let launch = stage.lariat().args(["launch", "claude", "-p", "words", "--", "--bg"]);
    let told = stage.sandbox.world().run(&launch);
    assert!(told.code() != 0 && told.stderr.contains("--bg"), "{told:?}");
    assert!(stage.look().rows.is_empty());
}
