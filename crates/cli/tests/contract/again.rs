//! OpenCode, Pi and Gemini go on through lariat: under the same id in the same conversation, after an end by
//! itself, by a person and by a crash, without a terminal and on one; and a fork is a session of its own.
//! That the conversation is the same is told by what reaches the model.

use std::fs;

use lariat_testkit::{
    DEADLINE, Signal,
    agents::{Claude, Gemini, OpenCode, Pi},
    wait_until,
};
use serde_json::{Value, json};

use crate::looks::Stage;

#[track_caller]
fn act(stage: &Stage, args: &[&str]) -> Value {
    let output = stage.sandbox.world().run(&stage.lariat().args(args).arg("--json"));
    assert_eq!(output.code(), 0, "{args:?}: {} {}", output.stdout, output.stderr);
    output.json()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key}: {value}"))
}

#[track_caller]
fn until_done(stage: &Stage, target: &str) {
    let ended = act(stage, &["wait", target, "--until", "done", "--timeout", "60s"]);
    assert_eq!((&ended["status"], &ended["exit"]), (&json!("done"), &json!({"code": 0})), "{ended}");
}

#[track_caller]
fn nothing_is_left(stage: &Stage) {
    wait_until("nothing is left", DEADLINE, || stage.sandbox.processes().iter().all(|p| p.pid == 1 || p.state == 'Z'));
}

/// The model was asked this, and was told all of that before.
#[track_caller]
fn was_asked(stage: &Stage, prompt: &str, before: &[&str]) {
    let requests = stage.model.requests();
    let bodies: Vec<String> = requests.iter().map(|r| r.body.to_string()).filter(|b| b.contains(prompt)).collect();
    let told = |body: &&String| before.iter().all(|words| body.contains(words));
    assert!(bodies.iter().any(|body| told(&body)), "{prompt:?} after {before:?}: {bodies:?}");
}

/// What was launched goes on, whichever way it ended; gives its handle and id.
#[track_caller]
fn goes_on(stage: &Stage, agent: &str) -> (String, String) {
    let launched = act(stage, &["launch", agent, "--headless", "-p", "first words"]);
    let (handle, id) = (text(&launched, "handle").to_owned(), text(&launched, "native_id").to_owned());
    until_done(stage, &handle);

    let again = act(stage, &["resume", &handle, "second words"]);
    assert_eq!(["handle", "native_id", "way"].map(|key| text(&again, key)), [handle.as_str(), &id, "native"]);
    until_done(stage, &handle);
    was_asked(stage, "second words", &["first words"]);
    let row = stage.now().ended("done").has("native_id", id.as_str()).has("prompt", "first words");
    stage.agree_on_reply(&row, "echo: second words");

    // Cut off in the middle of a turn, it is brought back, and told to go on.
    let again = act(stage, &["resume", &handle, "HOLD here third words"]);
    stage.model.wait_for_hold("here", DEADLINE);
    stage.until_of(&id, "working", "").has("pid", again["pid"].clone());
    let alive = stage.sandbox.world().run(&stage.lariat().args(["resume", &handle, "no"]));
    assert_eq!(alive.code(), 3, "it lives: {alive:?}");
    let pid = i32::try_from(again["pid"].as_i64().expect("a pid")).expect("a pid");
    assert!(stage.sandbox.world().process(pid).expect("it lives").signal(Signal::KILL));
    nothing_is_left(stage);
    stage.now().ended("interrupted").has("restorable", true).has("native_id", id.as_str());
    let back = act(stage, &["restore", "--yes"]);
    let [back] = back["restore"].as_array().expect("one").as_slice() else { panic!("{back}") };
    assert_eq!(["id", "outcome", "way"].map(|key| text(back, key)), [&format!("{agent}:{id}"), "restored", "native"]);
    until_done(stage, &handle);
    was_asked(stage, "Continue where you left off.", &["first words", "second words"]);

    // On a terminal.
    let again = act(stage, &["resume", &handle, "--terminal"]);
    assert_eq!((text(&again, "native_id"), text(&again, "handle")), (id.as_str(), handle.as_str()));
    stage.until("idle", "").has("native_id", id.as_str()).has("pid", again["pid"].clone());
    let told = act(stage, &["send", &handle, "fourth words", "--wait"]);
    assert_eq!(told["reply"], "echo: fourth words", "{told}");
    was_asked(stage, "fourth words", &["first words", "second words"]);
    act(stage, &["stop", &handle]);
    nothing_is_left(stage);
    stage.now().ended("stopped").has("native_id", id.as_str());
    (handle, id)
}

/// A fork knows what was said, and leaves where it came from as it was.
#[track_caller]
fn forks(stage: &Stage, handle: &str, id: &str) -> String {
    let before = stage.look().row(id);
    let forked = act(stage, &["fork", handle, "aside", "--headless"]);
    let other = text(&forked, "native_id").to_owned();
    assert!(other != id && text(&forked, "handle") != handle, "{forked}");
    until_done(stage, text(&forked, "handle"));
    was_asked(stage, "aside", &["first words", "second words"]);
    let look = stage.look();
    assert_eq!(look.rows.len(), 2);
    let row = look.row(&other).ended("done").has("handle", forked["handle"].clone());
    stage.agree_on_reply(&row, "echo: aside");
    let after = look.row(id).ended("stopped");
    assert_eq!(["updated_at", "tokens"].map(|key| &after.0[key]), ["updated_at", "tokens"].map(|key| &before.0[key]));
    stage.agree_on_reply(&after, "echo: fourth words");
    other
}

#[test]
fn opencode_goes_on_and_forks() {
    let stage = Stage::new("again-opencode");
    let opencode = OpenCode::install(&stage.sandbox, &stage.model);
    let (handle, id) = goes_on(&stage, "opencode");
    let other = forks(&stage, &handle, &id);
    let said = |id: &str| opencode.export(id)["messages"].to_string();
    assert!(said(&id).contains("fourth words") && !said(&id).contains("aside"), "its own store says so");
    assert!(said(&other).contains("first words") && said(&other).contains("aside"));
}

#[test]
fn pi_goes_on_and_forks() {
    let stage = Stage::new("again-pi");
    let pi = Pi::install(&stage.sandbox, &stage.model);
    let (handle, id) = goes_on(&stage, "pi");
    assert_eq!(pi.sessions().len(), 1, "one file all along");
    let other = forks(&stage, &handle, &id);
    assert_eq!(pi.sessions().len(), 2);
    assert_eq!(stage.look().row(&other).0["parent"], format!("pi:{id}"));
}

#[test]
fn gemini_goes_on_where_nothing_is_lost_and_forks_without_a_terminal() {
    let stage = Stage::new("again-gemini");
    let gemini = Gemini::install(&stage.sandbox, &stage.model);
    let launched = act(&stage, &["launch", "gemini", "--headless", "-p", "zeroth words"]);
    let handle = text(&launched, "handle").to_owned();
    until_done(&stage, &handle);
    let file = gemini.chats().remove(0);
    let before = fs::read(&file).expect("a conversation");
    // As Gemini comes it would remove what was resumed: nothing is started, and nothing is touched.
    for verb in ["resume", "fork"] {
        let refused = stage.sandbox.world().run(&stage.lariat().args([verb, &handle, "no", "--headless"]));
        assert_eq!(refused.code(), 3, "{refused:?}");
        assert!(refused.stderr.contains("general.sessionRetention.enabled"), "{refused:?}");
    }
    assert!(!stage.model.prompts().iter().any(|p| p == "no"));
    assert_eq!((gemini.chats().len(), fs::read(&file).expect("a conversation")), (1, before.clone()));
    stage.now().ended("done");

    gemini.configure(json!({"sessionRetention": {"enabled": false}}));
    act(&stage, &["resume", &handle, "next words"]);
    until_done(&stage, &handle);
    let kept = stage.sandbox.home().join(".local/state/lariat/sessions").join(&handle).join("kept");
    let copy = kept.join(file.file_name().expect("a name"));
    assert_eq!(fs::read(copy).expect("a copy of what it was"), before);
    was_asked(&stage, "next words", &["zeroth words"]);
    stage.now().ended("done").has("native_id", launched["native_id"].clone());
    fs::remove_dir_all(gemini.store().join("tmp")).expect("its conversations");
    fs::remove_dir_all(stage.sandbox.home().join(".local/state/lariat")).expect("our records");

    let (handle, id) = goes_on(&stage, "gemini");
    let refused = stage.sandbox.world().run(&stage.lariat().args(["fork", &handle, "--terminal"]));
    assert_eq!((refused.code(), refused.stderr.contains("only headless")), (2, true), "{refused:?}");
    forks(&stage, &handle, &id);
}

/// Claude Code copies a name with the rest; the fork is given one of its own, which its transcript keeps.
#[test]
fn claude_forks_under_a_name_of_its_own_and_takes_its_own_commands() {
    let stage = Stage::new("again-claude");
    let claude = Claude::install(&stage.sandbox, &stage.model);
    let launched = act(&stage, &["launch", "claude", "-p", "first words", "--name", "login"]);
    let handle = text(&launched, "handle");
    stage.until("idle", "turn over");
    let sent = act(&stage, &["send", handle, "/compact"]);
    assert_eq!(sent["outcome"], "sent", "{sent}");
    // Until it has begun it is idle still.
    claude.wait_for_transcript("isCompactSummary", DEADLINE);
    stage.until("idle", "");
    let sent = act(&stage, &["send", handle, "!touch made"]);
    assert_eq!(sent["outcome"], "sent", "{sent}");
    claude.wait_for_transcript("<bash-stdout>", DEADLINE);
    stage.until("idle", "");
    let fork = act(&stage, &["fork", "login", "aside", "--headless", "--force"]);
    until_done(&stage, text(&fork, "handle"));
    act(&stage, &["stop", handle]);
    let state = stage.sandbox.state_dir().join("lariat");
    fs::rename(&state, state.with_extension("away")).expect("our files are gone");
    for (id, name) in [(&launched, "login".to_owned()), (&fork, format!("login ({})", text(&fork, "handle")))] {
        assert_eq!(act(&stage, &["status", text(id, "native_id")])["name"], name);
    }
}

/// Gemini offers what is like a command that is being typed, and a submitting key takes what it offers: `/clear`, say.
#[test]
fn gemini_runs_the_very_command_that_is_sent() {
    let stage = Stage::new("gemini-commands");
    let _gemini = Gemini::install(&stage.sandbox, &stage.model);
    let launched = act(&stage, &["launch", "gemini", "-p", "first words"]);
    let (handle, id) = (text(&launched, "handle"), text(&launched, "native_id"));
    stage.until("idle", "");
    for command in ["/status", "/zzz", "/compress"] {
        let sent = act(&stage, &["send", handle, command]);
        assert_eq!(sent["outcome"], "sent", "{command}: {sent}");
        stage.until("idle", "").has("native_id", id);
    }
    // What is on record was given to it, whatever its title still says. (Of a command nothing is.)
    act(&stage, &["send", handle, "HOLD more words", "--when-idle"]);
    let told = act(&stage, &["status", handle]);
    assert!(matches!(text(&told, "status"), "starting" | "working"), "{told}");
    stage.model.wait_for_hold("more", DEADLINE);
    stage.until("working", "");
    stage.model.release("more");
    stage.until("idle", "");
    // What a command opens is for a person to answer: no key is pressed again.
    let sent = stage.lariat().args(["send", handle, "/theme", "--when-idle", "--json"]);
    let sent = stage.sandbox.world().run(&sent);
    assert_eq!((sent.code(), &sent.json()["outcome"]), (0, &json!("sent")), "{sent:?}");
    let shown = || stage.sandbox.world().run(&stage.lariat().args(["logs", handle, "-n", "30"])).stdout;
    wait_until("its dialog stands", DEADLINE, || shown().contains("Select Theme"));
    let typed = fs::read_to_string(stage.sandbox.home().join(".gemini/tmp/proj/logs.json")).expect("what was typed");
    let typed: Value = serde_json::from_str(&typed).expect("JSON");
    // It loses a line of its list where two are added at once, and has nothing there that nobody typed.
    let mut sent = ["first words", "/status", "/zzz", "/compress", "HOLD more words", "/theme"].into_iter();
    let typed = typed.as_array().expect("a list");
    assert!(!typed.is_empty() && typed.iter().all(|t| sent.any(|sent| sent == text(t, "message"))), "{typed:?}");
    act(&stage, &["kill", handle]);
}
