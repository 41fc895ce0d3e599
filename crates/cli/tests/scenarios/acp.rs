//! Agents that speak the Agent Client Protocol, played by `lariat-acp-agent`: launched, talked to, asked,
//! stopped. How they end and come back: [`crate::acp_ended`].

use std::fs;

use lariat_testkit::{DEADLINE, Output, Sandbox, Signal, built, wait_for, wait_until};
use serde_json::{Value, json};

use crate::asking::{ask, lariat, list};

/// A sandbox whose settings name the scripted agent, once for each thing that it may lack.
pub struct Stage {
    pub sandbox: Sandbox,
}

impl Stage {
    pub fn new(name: &str) -> Stage {
        let sandbox = Sandbox::new(name);
        sandbox.install_copy("scripted", &built("lariat-acp-agent"));
        let lacks = ["", "no-resume", "late", "no-past", "v2", "login", "deaf"].map(|lack| {
            let name = if lack.is_empty() { "scripted" } else { lack };
            format!("[[acp]]\nname = \"{name}\"\ncommand = [\"scripted\", \"{lack}\"]\n")
        });
        let settings = format!("{}[[acp]]\nname = \"missing\"\ncommand = [\"no-such-program\"]\n", lacks.concat());
        let folder = sandbox.home().join(".config/lariat");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("config.toml"), settings).expect("settings");
        sandbox.run(["mkfifo", "pipe"]).expect_success();
        Stage { sandbox }
    }

    pub fn ask(&self, args: &[&str]) -> Output {
        ask(&self.sandbox, &[args, &["--json"]].concat())
    }

    #[track_caller]
    pub fn act(&self, args: &[&str]) -> Value {
        let output = self.ask(args);
        assert_eq!(output.code(), 0, "{args:?}: {} {}", output.stdout, output.stderr);
        output.json()
    }

    #[track_caller]
    pub fn launch(&self, args: &[&str]) -> Launched {
        Launched(self.act(&[&["launch"], args].concat()))
    }

    /// Waits until a session's row is so; the row.
    #[track_caller]
    pub fn until(&self, launched: &Launched, status: &str, reason: &str) -> Value {
        wait_for(&format!("{status}: {reason}"), DEADLINE, || {
            let row = list(&self.sandbox).session(launched.id()).clone();
            (row["status"] == status && row["reason"].as_str().is_some_and(|r| r.contains(reason))).then_some(row)
        })
    }

    #[track_caller]
    pub fn reply(&self, launched: &Launched) -> Value {
        self.act(&["peek", launched.handle()])["reply"].clone()
    }

    pub fn let_go(&self) {
        self.sandbox.run(["sh", "-c", "echo > pipe"]).expect_success();
    }

    #[track_caller]
    pub fn nothing_is_left(&self) {
        wait_until("nothing is left", DEADLINE, || {
            self.sandbox.processes().iter().all(|p| p.pid == 1 || p.state == 'Z')
        });
    }

    pub fn agents(&self) -> Vec<i32> {
        self.sandbox.processes().iter().filter(|p| p.comm == "scripted" && p.state != 'Z').map(|p| p.pid).collect()
    }

    /// Kills the owner of a session's connection.
    #[track_caller]
    pub fn kill_owner(&self, launched: &Launched) {
        let owner = self.sandbox.world().process(launched.pid()).expect("a live owner");
        assert!(owner.signal(Signal::KILL));
    }
}

/// What `launch` or `resume` printed.
#[derive(Debug)]
pub struct Launched(pub Value);

impl Launched {
    pub fn id(&self) -> &str {
        self.0["native_id"].as_str().expect("an id")
    }

    pub fn handle(&self) -> &str {
        self.0["handle"].as_str().expect("a handle")
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.0["pid"].as_i64().expect("a pid")).expect("a pid")
    }
}

#[test]
fn it_is_launched_under_its_own_id_and_talked_to() {
    let stage = Stage::new("acp-talk");
    let launched = stage.launch(&["acp:scripted", "--name", "talker"]);
    assert_eq!(launched.0["agent"], "acp:scripted");
    assert_eq!(launched.0["id"], "acp:scripted:scripted-1");
    list(&stage.sandbox).expect(launched.id(), "idle", Some(launched.pid()));
    let told = stage.act(&["send", "talker", "hello there", "--wait"]);
    assert_eq!((&told["outcome"], &told["reply"]), (&"sent".into(), &"echo: hello there".into()), "{told}");
    let told = stage.act(&["send", launched.handle(), "READ", "--wait"]);
    assert_eq!(told["reply"], "told: -32601", "what is not offered is refused: {told}");
    let seen = list(&stage.sandbox);
    let row = seen.session(launched.id());
    assert_eq!(
        (&row["handle"], &row["name"], &row["prompt"]),
        (&launched.0["handle"], &json!("talker"), &json!("hello there"))
    );
    assert_eq!((&row["cost_usd"], &row["tokens"]), (&0.25.into(), &Value::Null));
    assert_eq!((seen.unbound(), seen.warnings().len()), (vec![], 0), "{:#}", seen.json);
    for target in ["acp:scripted:scripted-1", "scripted-1", launched.handle(), "talker", "."] {
        assert_eq!(stage.act(&["status", target])["id"], launched.0["id"], "{target}");
    }
    for (agent, rows) in [("acp", 1), ("acp:scripted", 1), ("acp:other", 0), ("claude", 0)] {
        assert_eq!(stage.act(&["ls", "--agent", agent])["sessions"].as_array().expect("rows").len(), rows, "{agent}");
    }
    let attached = stage.ask(&["attach", "talker", "--watch"]);
    assert_eq!(attached.code(), 3, "it has no terminal: {}", attached.stderr);
    let second = stage.ask(&["launch", "acp:scripted"]);
    assert_eq!(second.code(), 3, "its directory is claimed: {}", second.stderr);
    stage.act(&["stop", "talker"]);
    stage.nothing_is_left();
    list(&stage.sandbox).expect(launched.id(), "stopped", None);
    assert_eq!(stage.reply(&launched), "told: -32601", "what was said stays");
}

#[test]
fn at_work_it_takes_nothing_more_and_a_stop_cancels_the_turn() {
    let stage = Stage::new("acp-work");
    let launched = stage.launch(&["acp:scripted", "-p", "TOOL pipe"]);
    let row = stage.until(&launched, "working", "running TOOL pipe");
    assert_eq!((&row["tool"], &row["pid"]), (&"TOOL pipe".into(), &launched.0["pid"]));
    let told = stage.ask(&["send", launched.handle(), "more"]);
    assert_eq!((told.code(), &told.json()["outcome"]), (3, &"busy".into()), "{told:?}");
    stage.let_go();
    stage.until(&launched, "idle", "turn over");
    assert_eq!(stage.reply(&launched), "tool finished");
    stage.act(&["send", launched.handle(), "HOLD pipe"]);
    assert_eq!(list(&stage.sandbox).status(launched.id()), "working", "sent means begun");
    stage.act(&["stop", launched.handle()]);
    let row = list(&stage.sandbox).session(launched.id()).clone();
    assert_eq!((&row["status"], &row["exit"]["code"]), (&"stopped".into(), &0.into()), "{row:#}");
    assert!(row["because"].to_string().contains("its turn was cancelled"), "{row:#}");
    stage.nothing_is_left();
    // One that heeds nothing is ended all the same.
    let deaf = stage.launch(&["acp:deaf", "-p", "HOLD pipe"]);
    stage.until(&deaf, "working", "");
    stage.act(&["stop", deaf.handle(), "--grace", "20s"]);
    stage.nothing_is_left();
    list(&stage.sandbox).expect(deaf.id(), "stopped", None);
}

#[test]
fn sent_means_that_the_agent_has_read_it() {
    let stage = Stage::new("acp-sent");
    let launched = stage.launch(&["acp:scripted"]);
    // A model may think for long before its first word.
    let told = stage.act(&["send", launched.handle(), "MUTE pipe"]);
    assert_eq!(told["outcome"], "sent");
    list(&stage.sandbox).expect(launched.id(), "working", Some(launched.pid()));
    stage.let_go();
    stage.until(&launched, "idle", "turn over");
    let [agent] = stage.agents()[..] else { panic!("{:?}", stage.agents()) };
    let agent = stage.sandbox.world().process(agent).expect("an agent");
    assert!(agent.signal(Signal::STOP));
    let told = stage.ask(&["send", launched.handle(), "hello", "--timeout", "2s", "--key", "once"]);
    assert_eq!((told.code(), &told.json()["outcome"]), (4, &"stalled".into()), "{told:?}");
    assert!(agent.signal(Signal::CONT));
    stage.until(&launched, "idle", "turn over");
    assert_eq!(stage.reply(&launched), "echo: hello", "it was sent all the same");
    let told = stage.act(&["send", launched.handle(), "hello", "--key", "once"]);
    assert_eq!(told["outcome"], "sent", "{told}");
    let talk = stage.act(&["peek", launched.handle(), "-n", "9"])["messages"].clone();
    let hellos = talk.as_array().expect("messages").iter().filter(|m| m["text"] == "hello").count();
    assert_eq!(hellos, 1, "and once: {talk}");
    // An owner that reads no mail has taken none.
    let owner = stage.sandbox.world().process(launched.pid()).expect("an owner");
    assert!(owner.signal(Signal::STOP));
    let told = stage.ask(&["send", launched.handle(), "never", "--timeout", "1s"]);
    assert_eq!(told.code(), 3, "{told:?}");
    assert!(owner.signal(Signal::CONT));
    let told = stage.act(&["send", launched.handle(), "now", "--wait"]);
    assert_eq!(told["reply"], "echo: now", "{told}");
}

#[test]
fn launched_with_a_prompt_it_is_never_seen_at_rest_before_its_turn() {
    let stage = Stage::new("acp-first");
    stage.sandbox.run(["mkfifo", "gate"]).expect_success();
    let gate = format!("LARIAT_PAUSE_ON={}", stage.sandbox.work().join("gate").display());
    let held = ["--env", "LARIAT_PAUSE_AT=acp.known", "--env", &gate];
    let launched = stage.launch(&[&["acp:scripted", "-p", "HOLD pipe"], &held[..]].concat());
    list(&stage.sandbox).expect(launched.id(), "working", Some(launched.pid()));
    stage.sandbox.run(["sh", "-c", "echo > gate"]).expect_success();
    stage.let_go();
    stage.until(&launched, "idle", "turn over");
}

#[test]
fn of_two_prompts_at_once_one_is_taken() {
    let stage = Stage::new("acp-race");
    let launched = stage.launch(&["acp:scripted"]);
    stage.sandbox.run(["mkfifo", "gate"]).expect_success();
    let points = stage.sandbox.root().join("points");
    let late = lariat(&stage.sandbox, &["send", launched.handle(), "late", "--json"])
        .env("LARIAT_PAUSE_AT", "acp.post")
        .env("LARIAT_PAUSE_ON", stage.sandbox.work().join("gate"))
        .env("LARIAT_POINTS", &points);
    let late = stage.sandbox.spawn(&late);
    let there = || fs::read_to_string(&points).is_ok_and(|p| p.contains("acp.post"));
    wait_until("it has looked and saw nobody", DEADLINE, there);
    stage.act(&["send", launched.handle(), "HOLD pipe"]);
    stage.sandbox.run(["sh", "-c", "echo > gate"]).expect_success();
    let told = late.output(DEADLINE);
    assert_eq!((told.code(), &told.json()["outcome"]), (3, &"busy".into()), "{told:?}");
    stage.let_go();
    stage.until(&launched, "idle", "turn over");
    assert_eq!(stage.reply(&launched), "thinking", "the other was not said");
}

#[test]
fn who_waits_until_it_listens_waits_again_if_another_was_first() {
    let stage = Stage::new("acp-waits-again");
    let launched = stage.launch(&["acp:scripted"]);
    stage.sandbox.run(["mkfifo", "gate"]).expect_success();
    let points = stage.sandbox.root().join("points");
    let late = lariat(&stage.sandbox, &["send", launched.handle(), "late", "--when-idle", "--key", "once", "--json"])
        .env("LARIAT_PAUSE_AT", "acp.post")
        .env("LARIAT_PAUSE_ON", stage.sandbox.work().join("gate"))
        .env("LARIAT_POINTS", &points);
    let late = stage.sandbox.spawn(&late);
    let came = |point: &str, times| fs::read_to_string(&points).is_ok_and(|p| p.matches(point).count() == times);
    wait_until("it has looked and saw nobody", DEADLINE, || came("acp.post", 1));
    stage.act(&["send", launched.handle(), "HOLD pipe"]);
    stage.sandbox.run(["sh", "-c", "echo > gate"]).expect_success();
    wait_until("it knows that another was first", DEADLINE, || came("send.again", 1));
    stage.let_go();
    wait_until("it has looked again", DEADLINE, || came("acp.post", 2));
    stage.sandbox.run(["sh", "-c", "echo > gate"]).expect_success();
    let told = late.output(DEADLINE);
    assert_eq!((told.code(), &told.json()["outcome"]), (0, &"sent".into()), "{told:?}");
}

#[test]
fn an_id_that_an_agent_gives_again_is_one_row() {
    let stage = Stage::new("acp-again");
    let first = stage.launch(&["acp:scripted", "-p", "hello"]);
    stage.until(&first, "idle", "");
    stage.act(&["stop", first.handle()]);
    // It forgets, and begins to count anew.
    fs::remove_dir_all(stage.sandbox.home().join(".scripted-acp")).expect("its store");
    let second = stage.launch(&["acp:scripted"]);
    assert_eq!(second.id(), first.id());
    list(&stage.sandbox).expect(second.id(), "idle", Some(second.pid()));
    assert_eq!(list(&stage.sandbox).session(second.id())["handle"], second.handle());
}

fn is_request(entry: &fs::DirEntry) -> bool {
    entry.path().extension().is_some_and(|e| e == "json")
}

#[test]
fn what_it_asks_is_shown_and_answered() {
    let stage = Stage::new("acp-asks");
    let launched = stage.launch(&["acp:scripted", "-p", "ASK rm -rf build"]);
    let decisions: [(&[&str], &str); 3] =
        [(&["approve"], "chosen: once"), (&["deny"], "chosen: no"), (&["answer", "always"], "chosen: always")];
    for (at, (decision, reply)) in decisions.into_iter().enumerate() {
        if at > 0 {
            stage.act(&["send", launched.handle(), "ASK rm -rf build"]);
        }
        stage.until(&launched, "waiting", "permission: rm -rf build");
        let blocked = stage.ask(&["send", launched.handle(), "yes"]);
        assert_eq!((blocked.code(), &blocked.json()["outcome"]), (3, &"blocked".into()), "{blocked:?}");
        let args: Vec<&str> = decision[..1].iter().chain([&launched.handle()]).chain(&decision[1..]).copied().collect();
        stage.act(&args);
        stage.until(&launched, "idle", "");
        assert_eq!(stage.reply(&launched), reply);
    }
    stage.act(&["send", launched.handle(), "TWICE"]);
    stage.until(&launched, "waiting", "permission: ");
    wait_until("both are asked", DEADLINE, || {
        let which = stage.ask(&["approve", launched.handle()]);
        which.code() == 3 && which.stderr.contains("first") && which.stderr.contains("second")
    });
    stage.act(&["deny", launched.handle(), "--request", "1"]);
    stage.until(&launched, "waiting", "permission: second");
    stage.act(&["approve", launched.handle()]);
    stage.until(&launched, "idle", "");
    assert_eq!(stage.reply(&launched), "chosen: no once");
    // The agent takes back what it asked.
    stage.act(&["send", launched.handle(), "UNASK pipe"]);
    let asks = stage.sandbox.state_dir().join("lariat/sessions").join(launched.handle()).join("asks");
    let asked = || fs::read_dir(&asks).expect("a folder").filter(|e| e.as_ref().is_ok_and(is_request)).count();
    wait_until("both are asked", DEADLINE, || asked() == 2);
    stage.let_go();
    wait_until("one is taken back", DEADLINE, || asked() == 1);
    stage.until(&launched, "waiting", "permission: second");
    stage.act(&["approve", launched.handle()]);
    stage.until(&launched, "idle", "");
    assert_eq!(stage.reply(&launched), "told: -32800 once");
    // What it asks is withdrawn with its turn.
    stage.act(&["send", launched.handle(), "ASK more"]);
    stage.until(&launched, "waiting", "permission: more");
    stage.act(&["stop", launched.handle()]);
    assert_eq!(fs::read_dir(asks).expect("a folder").count(), 0);
}

#[test]
fn what_cannot_be_launched_leaves_nothing() {
    let stage = Stage::new("acp-unable");
    for (agent, code, why) in [
        ("acp:unheard-of", 2, "no [[acp]] with name = \"unheard-of\""),
        ("acp", 2, "acp:<name>"),
        ("acp:Bad Name", 2, "no agent is called"),
        ("acp:missing", 1, "cannot start no-such-program"),
        ("acp:v2", 1, "version 2 of the protocol"),
        ("acp:login", 1, "it needs a login"),
    ] {
        let output = stage.ask(&["launch", agent]);
        assert_eq!(output.code(), code, "{agent}: {output:?}");
        assert!(output.stderr.contains(why), "{agent}: {}", output.stderr);
        stage.nothing_is_left();
        assert_eq!(list(&stage.sandbox).sessions().len(), 0, "{agent}");
    }
    let sessions = stage.sandbox.state_dir().join("lariat/sessions");
    assert_eq!(fs::read_dir(sessions).map_or(0, Iterator::count), 0);
    let output = stage.ask(&["launch", "acp:scripted", "--headless"]);
    assert_eq!(output.code(), 2, "{output:?}");
}

#[test]
fn a_model_that_fails_is_a_failure_and_no_refusal() {
    let stage = Stage::new("acp-fails");
    let launched = stage.launch(&["acp:scripted"]);
    for _ in 0..2 {
        let told = stage.ask(&["send", launched.handle(), "FAIL", "--key", "once"]);
        assert_eq!((told.code(), &told.json()["outcome"]), (1, &"failed".into()), "{told:?}");
        assert_eq!(told.json()["reason"], "the agent answered: the model is on fire");
        // Nothing came of it, so the same may be said again.
        stage.until(&launched, "idle", "");
    }
    let talk = stage.act(&["peek", launched.handle(), "-n", "9"])["messages"].clone();
    assert_eq!(talk.as_array().expect("messages").iter().filter(|m| m["text"] == "FAIL").count(), 2, "{talk}");
}
