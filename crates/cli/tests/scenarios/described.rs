//! Agents that only the settings describe, played by a small script: what is known of them is their process,
//! and nothing more is ever said.

use std::fs;
use std::path::PathBuf;

use lariat_testkit::{DEADLINE, Output, Sandbox, Signal, copy_program, put_program, wait_for, wait_until};
use serde_json::{Value, json};

use crate::asking::{ask, lariat, list};

/// Says again what it is told, and writes it down under its id. `gate` is a pipe that it waits at.
const PARROT: &str = r#"#!/bin/sh
id= once=
while [ $# -gt 0 ]; do
    case $1 in
    --session | --again) id=$2; shift 2 ;;
    --once) once=1; shift ;;
    *) break ;;
    esac
done
say() {
    echo "said: $1"
    [ -z "$id" ] || echo "heard: $1" >> "$HOME/.parrot/$id.txt"
    case $1 in
    gate*) cat gate ;;
    fail*) cat gate; exit 3 ;;
    quit*) exit 0 ;;
    esac
}
[ $# -eq 0 ] || say "$1"
[ -z "$once" ] || [ $# -gt 0 ] || { read -r line; say "$line"; }
[ -z "$once" ] || exit 0
echo ready
while read -r line; do say "$line"; done
"#;

const SETTINGS: &str = r#"
[[agent]]
name = "parrot"
command = ["parrot"]
session_id = ["--session", "{id}"]
resume = ["--again", "{id}"]
transcripts = "~/.parr*/{id}.txt"

[[agent]]
name = "piped"
command = ["parrot", "--once"]
prompt = "stdin"

[[agent]]
name = "typed"
command = ["parrot"]
prompt = "typed"
"#;

struct Stage {
    sandbox: Sandbox,
}

impl Stage {
    fn new(name: &str) -> Stage {
        let sandbox = Sandbox::new(name);
        let program = sandbox.root().join("own/parrot");
        put_program(&program, PARROT);
        sandbox.install("parrot", &program);
        for folder in [".config/lariat", ".parrot"] {
            fs::create_dir_all(sandbox.home().join(folder)).expect("a folder");
        }
        fs::write(sandbox.home().join(".config/lariat/config.toml"), SETTINGS).expect("settings");
        sandbox.run(["mkfifo", "gate"]).expect_success();
        Stage { sandbox }
    }

    fn ask(&self, args: &[&str]) -> Output {
        ask(&self.sandbox, &[args, &["--json"]].concat())
    }

    #[track_caller]
    fn act(&self, args: &[&str]) -> Value {
        let output = self.ask(args);
        assert_eq!(output.code(), 0, "{args:?}: {} {}", output.stdout, output.stderr);
        output.json()
    }

    #[track_caller]
    fn row(&self, launched: &Value) -> Value {
        list(&self.sandbox).session(text(launched, "native_id")).clone()
    }

    #[track_caller]
    fn refused(&self, code: i32, args: &[&str], words: &str) {
        let output = self.ask(args);
        assert_eq!(output.code(), code, "{args:?}: {output:?}");
        assert!(format!("{} {}", output.stdout, output.stderr).contains(words), "{args:?}: {output:?}");
    }

    /// Waits until its terminal shows something.
    #[track_caller]
    fn until_shown(&self, launched: &Value, words: &str) {
        let handle = text(launched, "handle");
        wait_until(words, DEADLINE, || ask(&self.sandbox, &["logs", handle]).stdout.contains(words));
    }

    fn transcript(&self, launched: &Value) -> PathBuf {
        self.sandbox.home().join(".parrot").join(format!("{}.txt", text(launched, "native_id")))
    }

    fn let_go(&self) {
        self.sandbox.run(["sh", "-c", "echo > gate"]).expect_success();
    }

    #[track_caller]
    fn nothing_is_left(&self) {
        let gone = || self.sandbox.processes().iter().all(|p| p.pid == 1 || p.state == 'Z');
        wait_until("nothing is left", DEADLINE, gone);
    }

    #[track_caller]
    fn kill_from_outside(&self, launched: &Value) {
        let pid = i32::try_from(launched["pid"].as_i64().expect("a pid")).expect("a pid");
        assert!(self.sandbox.world().process(pid).expect("a live agent").signal(Signal::KILL));
    }
}

const NULL: Value = Value::Null;

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key}: {value}"))
}

#[test]
fn it_is_launched_held_told_ended_and_goes_on_as_the_settings_say() {
    let stage = Stage::new("described");
    let launched = stage.act(&["launch", "agent:parrot", "-p", "hello there", "--name", "polly"]);
    let (handle, id) = (text(&launched, "handle"), text(&launched, "native_id"));
    assert_eq!(launched["id"], format!("agent:parrot:{id}"));
    stage.until_shown(&launched, "ready");
    let row = stage.row(&launched);
    assert_eq!(
        (&row["status"], &row["live"]),
        (&json!("starting"), &json!(true)),
        "never idle, never a guess: {row:#}"
    );
    assert!(text(&row, "reason").starts_with("nothing tells of its turns"), "{row:#}");
    assert_eq!((&row["pid"], &row["name"], &row["agent"]), (&launched["pid"], &json!("polly"), &json!("agent:parrot")));
    assert_eq!(row["tokens"], Value::Null);
    let status = stage.act(&["status", handle]);
    assert_eq!(status["transcript"], stage.transcript(&launched).to_str().expect("UTF-8"));
    for agent in ["agent", "agent:parrot"] {
        let rows = stage.act(&["ls", "--agent", agent])["sessions"].clone();
        assert_eq!(rows.as_array().map(Vec::len), Some(1), "{agent}");
    }
    assert_eq!(stage.act(&["ls", "--agent", "agent:typed"])["sessions"], json!([]));

    // Its directory is its own; what is typed arrives, as its transcript shows.
    stage.refused(3, &["launch", "agent:parrot"], "works there");
    let told = stage.act(&["send", handle, "pretty \"bird\""]);
    assert_eq!(told["outcome"], "sent", "{told}");
    assert!(fs::read_to_string(stage.transcript(&launched)).expect("a transcript").contains("heard: pretty \"bird\""));
    stage.refused(3, &["send", handle, "x", "--wait"], "nothing tells when a turn of it is over");
    stage.refused(3, &["send", handle, "two\nlines"], "only one line of plain text");
    stage.refused(2, &["fork", handle, "--force"], "how it is forked is not described");
    stage.refused(3, &["wait", handle], "`--until done` waits for its end");
    stage.refused(3, &["wait", handle, "--until", "waiting"], "nothing tells when a turn of it is over");
    stage.refused(3, &["peek", "-f", handle], "`lariat logs -f` shows its terminal");
    for args in [&["peek", handle][..], &["peek", "--all", handle]] {
        let shown = ask(&stage.sandbox, args).stdout;
        assert!(shown.contains("no reply is known; `lariat logs` shows its terminal"), "{args:?}: {shown}");
    }
    stage.refused(3, &["resume", handle], "it lives");
    let terminal = stage.sandbox.terminal(&lariat(&stage.sandbox, &["attach", handle]));
    terminal.wait_for_text("pretty", DEADLINE);
    terminal.submit("by hand", DEADLINE);
    terminal.wait_for_text("said: by hand", DEADLINE);
    terminal.signal(Signal::KILL);

    let stopped = stage.act(&["stop", handle]);
    assert_eq!(stopped["outcome"], "stopped", "{stopped}");
    stage.nothing_is_left();
    assert_eq!(stage.row(&launched)["status"], "stopped");
    let short = stage.act(&["ls"]);
    assert_eq!((&short["sessions"], &short["hidden"]["ended"]), (&json!([]), &json!(1)), "{short}");
    assert_eq!(stage.act(&["restore"])["restore"], json!([]), "a person ended it");

    let again = stage.act(&["resume", handle]);
    assert_eq!(
        (&again["id"], &again["handle"], &again["way"]),
        (&launched["id"], &launched["handle"], &json!("native"))
    );
    stage.until_shown(&again, "ready");
    stage.act(&["send", handle, "once more"]);
    let heard = fs::read_to_string(stage.transcript(&launched)).expect("a transcript");
    assert!(heard.contains("hello there") && heard.contains("once more"), "one conversation: {heard}");

    // Ended by nobody's wish it is not called well ended, and it comes back.
    stage.kill_from_outside(&again);
    stage.nothing_is_left();
    let row = stage.row(&launched);
    assert_eq!(
        (&row["status"], &row["restorable"], &row["live"]),
        (&json!("interrupted"), &json!(true), &json!(false))
    );
    let back = stage.act(&["restore", "--yes"]);
    assert_eq!((&back["restore"][0]["outcome"], &back["restore"][0]["way"]), (&json!("restored"), &json!("native")));
    assert_eq!(stage.row(&launched)["live"], true);
    stage.act(&["kill", handle]);
    stage.nothing_is_left();
}

#[test]
fn without_our_files_one_that_was_given_its_id_is_still_known() {
    let stage = Stage::new("described-files");
    let launched = stage.act(&["launch", "agent:parrot"]);
    fs::remove_dir_all(stage.sandbox.home().join(".local/state/lariat")).expect("our records");
    let row = stage.row(&launched);
    assert_eq!(
        (&row["status"], &row["live"], &row["pid"]),
        (&json!("starting"), &json!(true), &launched["pid"]),
        "{row:#}"
    );
    assert!(row["because"].to_string().contains("its arguments name the session"), "{row:#}");
    stage.kill_from_outside(&launched);
    wait_until("its row is gone", DEADLINE, || list(&stage.sandbox).sessions().is_empty());
}

#[test]
fn the_words_of_its_command_are_no_id() {
    let stage = Stage::new("described-words");
    let worded = SETTINGS.replacen(r#"command = ["parrot"]"#, r#"command = ["parrot", "--session", "common"]"#, 1);
    fs::write(stage.sandbox.home().join(".config/lariat/config.toml"), worded).expect("settings");
    let launched = stage.act(&["launch", "agent:parrot"]);
    fs::remove_dir_all(stage.sandbox.home().join(".local/state/lariat")).expect("our records");
    let seen = list(&stage.sandbox);
    assert_eq!(seen.sessions().len(), 1, "{:#}", seen.json);
    assert_eq!(seen.sessions()[0]["native_id"], launched["native_id"], "{:#}", seen.json);
    stage.kill_from_outside(&launched);
}

#[test]
fn a_process_is_one_agent_s_though_the_settings_describe_two_of_its_program() {
    let stage = Stage::new("described-alike");
    let settings = stage.sandbox.home().join(".config/lariat/config.toml");
    let agent = |name: &str, command: &str| {
        format!("[[agent]]\nname = \"{name}\"\ncommand = {command}\nsession_id = [\"--session\", \"{{id}}\"]\n")
    };
    let two = [agent("first", r#"["parrot", "--session", "a"]"#), agent("second", r#"["parrot", "--session", "b"]"#)];
    fs::write(&settings, two.concat()).expect("settings");
    let launched = stage.act(&["launch", "agent:second"]);
    let only = |why: &str| {
        let seen = list(&stage.sandbox);
        let rows: Vec<_> = seen.sessions().iter().map(|row| (row["id"].clone(), row["pid"].clone())).collect();
        assert_eq!(rows, [(launched["id"].clone(), launched["pid"].clone())], "{why}: {:#}", seen.json);
    };
    only("its command tells");
    let records = stage.sandbox.home().join(".local/state/lariat");
    let kept = stage.sandbox.home().join("kept");
    fs::rename(&records, &kept).expect("our records");
    only("and so without our records");
    fs::rename(&kept, &records).expect("our records");
    stage.act(&["kill", text(&launched, "handle")]);
    stage.nothing_is_left();

    // Where nothing tells them apart but how it was launched, and that is lost, it is none of the two.
    fs::write(&settings, [agent("first", r#"["parrot"]"#), agent("second", r#"["parrot"]"#)].concat())
        .expect("settings");
    let launched = stage.act(&["launch", "agent:second"]);
    let seen = list(&stage.sandbox);
    let live: Vec<_> = seen.sessions().iter().filter(|row| row["live"] == true).map(|row| row["id"].clone()).collect();
    assert_eq!(live, [launched["id"].clone()], "{:#}", seen.json);
    fs::remove_dir_all(&records).expect("our records");
    let seen = list(&stage.sandbox);
    assert_eq!((seen.sessions().len(), &seen.json["unbound"][0]["pid"]), (0, &launched["pid"]), "{:#}", seen.json);
    let why = text(&seen.json["unbound"][0], "why");
    assert!(why.contains("agent:first, agent:second"), "{why}");
    stage.kill_from_outside(&launched);
}

#[test]
fn what_an_interpreter_runs_is_the_agent_and_not_the_interpreter() {
    let stage = Stage::new("described-interpreted");
    let script = stage.sandbox.root().join("own/parrot");
    let other = stage.sandbox.root().join("own/other");
    copy_program(&script, &other);
    let settings = format!(
        "[[agent]]\nname = \"parrot\"\ncommand = [\"sh\", \"{}\"]\nsession_id = [\"--session\", \"{{id}}\"]\n",
        script.display()
    );
    fs::write(stage.sandbox.home().join(".config/lariat/config.toml"), settings).expect("settings");
    let program = stage.sandbox.program("sh").args([other.to_str().expect("UTF-8"), "--session", "strange"]);
    let stranger = stage.sandbox.terminal(&program);
    stranger.wait_for_text("ready", DEADLINE);
    let launched = stage.act(&["launch", "agent:parrot"]);
    stage.until_shown(&launched, "ready");
    fs::remove_dir_all(stage.sandbox.home().join(".local/state/lariat")).expect("our records");
    let seen = list(&stage.sandbox);
    let rows: Vec<_> = seen.sessions().iter().map(|row| row["id"].clone()).collect();
    assert_eq!(rows, [launched["id"].clone()], "{:#}", seen.json);
    stage.kill_from_outside(&launched);
}

#[test]
fn nothing_is_asked_again_unless_there_is_surely_no_transcript() {
    let stage = Stage::new("described-replayed");
    let settings = stage.sandbox.home().join(".config/lariat/config.toml");
    let elsewhere = SETTINGS.replace("~/.parr*/{id}.txt", "~/.nest/{id}.txt");
    fs::write(&settings, &elsewhere).expect("settings");
    let launched = stage.act(&["launch", "agent:parrot", "-p", "hello there"]);
    stage.until_shown(&launched, "ready");
    stage.kill_from_outside(&launched);
    stage.nothing_is_left();
    let way = || stage.act(&["restore"])["restore"][0]["way"].clone();
    assert_eq!(way(), "replayed", "there is none where it would be, and that is said");
    // A person finds out where they really are.
    fs::write(&settings, SETTINGS).expect("settings");
    assert_eq!(way(), "native");
    // Two that fit: one of them may be its own.
    let other = stage.sandbox.home().join(".parrots");
    fs::create_dir(&other).expect("a folder");
    let copy = other.join(stage.transcript(&launched).file_name().expect("a name"));
    fs::copy(stage.transcript(&launched), &copy).expect("a copy");
    assert_eq!(way(), "native");
    // The settings as they were at the launch count too: it may have written there then.
    fs::remove_file(stage.transcript(&launched)).expect("a transcript");
    fs::remove_file(copy).expect("a copy");
    assert_eq!(way(), "replayed");
    let nest = stage.sandbox.home().join(".nest");
    fs::create_dir(&nest).expect("a folder");
    fs::write(nest.join(stage.transcript(&launched).file_name().expect("a name")), "heard").expect("a transcript");
    assert_eq!(way(), "native");
    let back = stage.act(&["restore", "--yes"]);
    assert_eq!(back["restore"][0]["way"], "native", "{back}");
    stage.act(&["kill", text(&launched, "handle")]);
    stage.nothing_is_left();
}

#[test]
fn without_a_terminal_its_exit_is_the_end_of_its_turn() {
    let stage = Stage::new("described-exits");
    let launch = |prompt: &str| stage.act(&["launch", "agent:piped", "--headless", "-p", prompt]);
    let quick = launch("- at once");
    let row = stage.row(&quick);
    assert_eq!((&row["status"], &row["exit"]), (&json!("done"), &json!({"code": 0})), "{row:#}");
    assert!(text(&row, "reason").starts_with("it exited with 0"), "{row:#}");
    assert!(ask(&stage.sandbox, &["logs", text(&quick, "handle")]).stdout.contains("said: - at once"));

    for (prompt, status, exit) in [("gate", "done", json!({"code": 0})), ("fail", "failed", json!({"code": 3}))] {
        let launched = launch(prompt);
        let row = stage.row(&launched);
        assert_eq!((&row["status"], &row["live"]), (&json!("working"), &json!(true)), "{row:#}");
        stage.refused(3, &["send", text(&launched, "handle"), "x"], "it has no terminal");
        stage.let_go();
        let ended = stage.ask(&["wait", text(&launched, "handle"), "--until", "done", "--timeout", "60s"]).json();
        assert_eq!((&ended["status"], &ended["exit"]), (&json!(status), &exit), "{ended}");
    }
    let launched = launch("gate again");
    stage.kill_from_outside(&launched);
    let row = wait_for("it is gone", DEADLINE, || Some(stage.row(&launched)).filter(|row| row["live"] == false));
    assert_eq!((&row["status"], &row["restorable"]), (&json!("interrupted"), &json!(true)), "{row:#}");
    // No way is given, so none is made up: neither is it asked again, which might be to do it twice.
    stage.refused(2, &["resume", text(&launched, "handle"), "--force"], "how its sessions go on is not described");
    let plan = stage.act(&["restore"]);
    assert!(plan["restore"][0].to_string().contains("not described"), "{plan}");
    // So nothing promises it.
    let plan = ask(&stage.sandbox, &["restore"]).stdout;
    assert!(plan.starts_with("nothing that can be brought back") && plan.contains("cannot: "), "{plan}");
    let shown = ask(&stage.sandbox, &["status", text(&launched, "handle")]).stdout;
    assert!(!shown.contains("brings it back") && shown.contains("not described"), "{shown}");
    stage.refused(3, &["keep", text(&launched, "handle")], "not described");
    let kept = ["launch", "agent:piped", "--headless", "-p", "x", "--keep", "--force"];
    stage.refused(2, &kept, "not described");
    stage.refused(2, &["launch", "agent:piped", "-p", "x", "--force"], "say --headless");
    stage.refused(2, &["launch", "agent:nobody"], "[[agent]] with name = \"nobody\"");
    stage.refused(
        2,
        &["launch", "agent:piped", "--headless", "-p", "x", "--model", "m", "--force"],
        "give its own flags",
    );
}

#[test]
fn what_is_typed_blindly_is_said_to_be() {
    let stage = Stage::new("described-typed");
    let launched = stage.act(&["launch", "agent:typed", "-p", "the first words"]);
    let handle = text(&launched, "handle");
    stage.until_shown(&launched, "said: the first words");
    let told = stage.ask(&["send", handle, "and more", "--key", "k1"]);
    assert_eq!((told.code(), &told.json()["outcome"]), (5, &json!("typed")), "{told:?}");
    assert!(text(&told.json(), "reason").contains("whether it arrived is not known"), "{told:?}");
    stage.until_shown(&launched, "said: and more");
    // Under its key it is never typed twice.
    stage.refused(4, &["send", handle, "and more", "--key", "k1"], "nothing was typed again");
    stage.ask(&["send", handle, "quit"]);
    let row = wait_for("it has ended", DEADLINE, || Some(stage.row(&launched)).filter(|row| row["live"] == false));
    assert_eq!((&row["status"], &row["restorable"]), (&json!("done"), &json!(false)), "{row:#}");
    let shown = ask(&stage.sandbox, &["logs", handle]).stdout;
    assert_eq!(shown.matches("said: and more").count(), 1, "{shown}");
    stage.refused(2, &["resume", handle], "how its sessions go on is not described");
    let fork = stage.ask(&["fork", handle]);
    assert!(fork.stderr.contains("how it is forked") && !fork.stderr.contains("needs session_id"), "{fork:?}");
    let doctor = ask(&stage.sandbox, &["doctor"]).stdout;
    assert!(doctor.contains("agent:typed program"), "{doctor}");
}

#[test]
fn what_nobody_counts_is_not_nothing() {
    let stage = Stage::new("uncounted");
    let told = stage.act(&["launch", "agent:parrot"]);
    let used = stage.act(&["usage", text(&told, "handle")]);
    assert_eq!((&used["told"], &used["total"]["tokens"], &used["total"]["answers"]), (&json!(false), &NULL, &NULL));
    let money = ["cost_usd", "recorded_usd", "table_usd", "unpriced_tokens"];
    assert!(money.iter().all(|key| used["total"][key] == NULL), "{used}");
    let shown = ask(&stage.sandbox, &["usage", text(&told, "handle")]).stdout;
    assert!(shown.contains("keeps no record") && !shown.contains('$') && !shown.contains("total"), "{shown}");
}
