//! The habits of the command line: help, aliases, filters, colours, widths, pipes, exit codes.

use lariat_testkit::{DEADLINE, Sandbox, Size, Terminal, wait_for};
use serde_json::{Value, json};

use crate::{
    asking::{LARIAT, ask, id, lariat, through},
    claude_store::ClaudeStore,
    codex_store::CodexStore,
};

/// Live and ended sessions of both agents, with long texts in every column.
fn busy_place(name: &str) -> (Sandbox, Vec<lariat_testkit::Lookalike>) {
    let sandbox = Sandbox::new(name);
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    let long = "make the login page work again on every browser that people use 日本語 ".repeat(4);
    let deep = sandbox.project("a-project-with-quite-a-long-name-in-a-deep-place");
    let agents: Vec<_> = (0..4).map(|_| sandbox.lookalike("claude", &[])).collect();
    for (n, agent) in (1..).zip(&agents) {
        let branch = "feature/".to_owned() + &"long-".repeat(12);
        let talk = claude.session_in(&id(n), &deep).on_branch(&branch).asked(&long);
        let talk = talk.named(&long).calls("Bash", json!({"command": long}));
        let entry = claude.register(agent, &id(n));
        match n {
            1 => drop(entry.waits_for("permission prompt")),
            2 => drop(entry.says("busy")),
            3 => drop((entry.says("idle"), talk.result("x").answered(&long))),
            _ => drop(entry.says("shell")),
        }
    }
    codex.thread(&id(11)).asked(&long).failed(&long);
    codex.thread(&id(12)).asked("short").answered("ok");
    codex.thread(&id(13)).asked(&long).calls("c", &long);
    (sandbox, agents)
}

#[test]
fn without_the_variable_home_is_where_the_machine_says() {
    let sandbox = Sandbox::new("homeless");
    drop(ClaudeStore::of(&sandbox).session(&id(1)).asked("hello").answered("hi"));
    let users = sandbox.root().join("passwd");
    let home = sandbox.home();
    std::fs::write(&users, format!("root:x:0:0:root:{}:/bin/sh\n", home.display())).expect("a file");
    let users = users.to_str().expect("UTF-8");
    sandbox.run(["mount", "--bind", users, "/etc/passwd"]).expect_success();
    let told = sandbox.run(["env", "-u", "HOME", LARIAT, "ls", "-a", "--json"]);
    assert_eq!(told.json()["sessions"][0]["native_id"], id(1), "{told:?}");
}

#[test]
fn every_verb_has_help() {
    let sandbox = Sandbox::new("help");
    let verbs = [
        &[][..],
        &["ls"],
        &["list"],
        &["ps"],
        &["status"],
        &["explain"],
        &["peek"],
        &["doctor"],
        &["completions"],
        &["session"],
        &["session", "ls"],
    ];
    for verb in verbs {
        let said = ask(&sandbox, &[verb, &["--help"]].concat());
        assert_eq!(said.code(), 0, "{verb:?}: {said:?}");
        assert!(said.stdout.contains("Usage: lariat"), "{verb:?}: {said:?}");
        assert_eq!(said.stderr, "", "{verb:?}");
    }
    let version = ask(&sandbox, &["--version"]);
    assert_eq!(version.stdout, format!("lariat {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn what_is_not_understood_exits_2_and_suggests() {
    let sandbox = Sandbox::new("usage");
    let wrong = [
        (&["statsu"][..], "status"),
        (&["lst"], "ls"),
        (&["explian", "x"], "explain"),
        (&["ls", "--agnet", "claude"], "--agent"),
        (&["ls", "--jsn"], "--json"),
        (&["ls", "--status", "workin"], "working"),
        (&["ls", "--status", "busy"], "idle"),
        (&["ls", "--deadline", "soon"], "3s"),
        (&["status", "--quite"], "--quiet"),
        (&["peek"], "TARGET"),
        (&["explain"], "TARGET"),
        (&["completions", "fsh"], "fish"),
        // However far off it is, the nearest one is named.
        (&["frobnicate"], "a similar subcommand exists: '"),
        (&["lz"], "'ls'"),
        (&["stauts"], "a similar subcommand exists: 'status'"),
        (&["worktree", "prune"], "a similar subcommand exists: '"),
        (&["ls", "--zzz"], "a similar argument exists: '--"),
        (&["stop", "--wait", "x"], "a similar argument exists: '--"),
        // What would mean nothing is not taken.
        (&["stop", "--yes", "x"], "cannot be used with"),
        (&["kill", "--group", "g", "--yes"], "cannot be used with"),
    ];
    for (args, right) in wrong {
        let said = ask(&sandbox, args);
        assert_eq!(said.code(), 2, "{args:?}: {said:?}");
        assert!(said.stderr.contains(right), "{args:?} should lead to {right}: {said:?}");
        assert_eq!(said.stdout, "", "{args:?}");
    }
}

/// Whoever reads JSON has something to read, with the code that the program ends with.
#[test]
fn what_fails_is_told_in_json_too() {
    let sandbox = Sandbox::new("json-errors");
    let wrong = [
        (&["statsu"][..], "status"),
        (&["machine", "ls"], "a similar subcommand exists: '"), // what stands behind it is a verb
        (&["ls", "--agnet", "claude"], "--agent"),
        (&["ls", "--agent", "clod"], "claude"),
        (&["stop"], "TARGET"),
        (&["status", "nobody"], "nobody"),
        (&["send", "nobody", "hello"], "nobody"),
        (&["launch", "clod"], "clod"),
        (&["launch", "claude", "--cwd", "/nowhere"], "/nowhere"),
        (&["unlock", "/nowhere"], "/nowhere"),
        (&["logs", "nobody", "--raw"], "--raw"),
        (&["launch", "claude", "--name", "."], "a name has letters"),
        (&["launch", "claude", "--file", "/proc/self/environ"], "/proc/self/environ: it holds a zero byte"),
    ];
    for (args, why) in wrong {
        let said = ask(&sandbox, &[args, &["--json"]].concat());
        let told = said.json();
        assert_eq!((said.code(), &told["error"]["code"]), (2, &json!(2)), "{args:?}: {said:?}");
        let text = told["error"]["text"].as_str().expect("a text");
        assert!(text.contains(why) && said.stderr.contains(why), "{args:?}: {said:?}");
        assert!(!text.contains("Usage:"), "{args:?}: {said:?}");
    }
    for verb in [&["launch", "claude", "-p"][..], &["resume", "nobody"], &["send", "nobody"]] {
        let said = through(&sandbox, "printf 'a\\0b' | \"$@\"", &[verb, &["-", "--json"]].concat());
        assert_eq!((said.code(), &said.json()["error"]["code"]), (2, &json!(2)), "{verb:?}: {said:?}");
        assert!(said.stderr.contains("zero byte"), "{verb:?}: {said:?}");
    }
    // Words for an agent ask for nothing here.
    let said = ask(&sandbox, &["launch", "clod", "--", "--json"]);
    assert_eq!((said.code(), said.stdout.as_str()), (2, ""), "{said:?}");
    assert!(ask(&sandbox, &["ls", "--help", "--json"]).stdout.contains("Usage: lariat"));
}

/// Nobody is sent to a terminal where nothing is asked, or that is gone.
#[test]
fn of_one_that_asks_nothing_that_is_told_whoever_launched_it() {
    let (sandbox, _agents) = busy_place("asks-nothing");
    let told = [
        (1, "lariat did not launch it; answer in its own terminal"),
        (2, "it asks nothing that can be seen (it is working: "),
        (3, "it asks nothing that can be seen (it is idle: "),
        (11, "it has ended (failed), and asks nothing"),
    ];
    for (n, why) in told {
        for args in [&["approve", &id(n)][..], &["deny", &id(n)], &["answer", &id(n), "yes"]] {
            let said = ask(&sandbox, args);
            assert!(said.code() == 3 && said.stderr.contains(why), "{args:?}: {said:?}");
        }
    }
}

#[test]
fn an_agent_that_is_none_is_a_mistake() {
    let (sandbox, _agents) = busy_place("agent-name");
    let said = ask(&sandbox, &["ls", "--agent", "clod"]);
    assert_eq!(said.code(), 2, "an unknown agent looks like an empty list: {said:?}");
}

#[test]
fn no_verb_is_ls_and_aliases_are_it_too() {
    let (sandbox, _agents) = busy_place("aliases");
    let at = |args: &[&str]| crate::asking::Answer::of(&ask(&sandbox, args)).timeless();
    let ls = at(&["ls", "--json"]);
    for same in [
        &["--json"][..],
        &["list", "--json"],
        &["ps", "--json"],
        &["session", "ls", "--json"],
        &["session", "list", "--json"],
    ] {
        assert_eq!(at(same), ls, "{same:?}");
    }
    let all = at(&["ls", "-a", "--json"]);
    assert_ne!(all, ls);
    for same in [
        &["-a", "--json"][..],
        &["ps", "-a", "--json"],
        &["list", "--all", "--json"],
        &["session", "ls", "-a", "--json"],
    ] {
        assert_eq!(at(same), all, "{same:?}");
    }
    // As text too, but for the ages.
    let (bare, ls) = (ask(&sandbox, &[]), ask(&sandbox, &["ls"]));
    assert_eq!(bare.stdout.lines().count(), ls.stdout.lines().count());
    assert_eq!((bare.code(), ls.code()), (0, 0));
}

#[test]
fn ls_is_ls_a_without_what_has_ended() {
    let (sandbox, agents) = busy_place("scopes");
    // Besides, one that may live: its registry entry cannot be checked from here.
    let claude = ClaudeStore::of(&sandbox);
    let entry = claude.register(&agents[3], &id(21)).in_file("21.json");
    entry.says("busy").with("pidDomain", json!("linux:ffff:pid:[1]"));
    claude.session(&id(21)).asked("fix it");
    claude.session(&id(22)).asked("fix it").answered("fixed").left();
    let answers = [&["ls", "-a", "--json"][..], &["ls", "--json"]];
    let answers = answers.map(|args| crate::asking::Answer::of(&ask(&sandbox, args)));
    // A session may have been written to at the very moment of one of them.
    let moments = answers.each_ref().map(|answer| answer.json["at"].to_string());
    let [(mut all, none), (some, hidden)] = answers.each_ref().map(|answer| {
        let timeless = |s: &Value| moments.iter().fold(s.to_string(), |text, at| text.replace(at, "NOW"));
        let row = |s: &Value| (s["status"].to_string(), timeless(s));
        let ended = answer.json["hidden"]["ended"].as_u64().expect("a number");
        (answer.sessions().iter().map(row).collect::<Vec<_>>(), ended)
    });
    let count = all.len() as u64;
    let ended = ["\"done\"", "\"failed\"", "\"stopped\"", "\"interrupted\""];
    all.retain(|(status, _)| !ended.contains(&status.as_str()));
    assert_eq!(some, all);
    assert_eq!((none, hidden), (0, count - all.len() as u64));
}

#[test]
fn filters_choose_by_agent_and_status() {
    let (sandbox, _agents) = busy_place("filters");
    let chosen = |args: &[&str]| -> Vec<Value> {
        let said = ask(&sandbox, &[&["ls", "--json"], args].concat());
        assert_eq!(said.code(), 0, "{args:?}: {}", said.stderr);
        said.json()["sessions"].as_array().expect("sessions").clone()
    };
    let agents = |rows: &[Value]| rows.iter().map(|r| r["agent"].clone()).collect::<Vec<_>>();
    assert_eq!(agents(&chosen(&["-a", "--agent", "codex"])), ["codex"; 3]);
    assert_eq!(agents(&chosen(&["-a", "--agent", "claude"])), ["claude"; 4]);
    assert_eq!(chosen(&["-a", "--agent", "claude-code"]), chosen(&["-a", "--agent", "claude"]));
    let statuses = |args: &[&str]| {
        let mut all: Vec<String> =
            chosen(args).iter().map(|r| r["status"].as_str().expect("a status").to_owned()).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(statuses(&["--status", "waiting"]), ["waiting"]);
    assert_eq!(statuses(&["--status", "idle,working"]), ["idle", "idle", "working"]);
    assert_eq!(statuses(&["--status", "failed"]), ["failed"], "asked for, so shown without -a");
    assert_eq!(statuses(&["--status", "failed", "--status", "done"]), ["done", "failed"]);
    assert_eq!(statuses(&["--status", "starting"]), [""; 0]);
    assert_eq!(statuses(&[]), ["idle", "idle", "waiting", "working"]);
}

#[test]
fn status_counts_and_its_quiet_form_is_a_number() {
    let (sandbox, _agents) = busy_place("counts");
    let said = ask(&sandbox, &["status", "--json"]);
    let counts = said.json();
    for (name, n) in [("needs_you", 1), ("working", 1), ("idle", 2), ("unknown", 0), ("ended", 3)] {
        assert_eq!(counts[name], n, "{counts:#}");
    }
    assert_eq!(ask(&sandbox, &["status", "-q"]).stdout, "1\n");
    let text = ask(&sandbox, &["status"]).stdout;
    assert_eq!(text, "1 needs you · 1 working · 2 idle · 3 ended\n");
}

/// Runs on a terminal and gives every byte that was shown.
fn on_terminal(sandbox: &Sandbox, cols: u16, env: &[(&str, &str)], args: &[&str]) -> String {
    let line = "\"$@\"; printf '<<end>>'";
    let program = sandbox.program("sh").args(["-c", line, "sh", LARIAT]).args(args);
    let program = env.iter().fold(program, |program, (name, value)| program.env(name, value));
    let terminal = Terminal::start(sandbox.world(), &program, Size { rows: 50, cols });
    let shown = wait_for("the end of the answer", DEADLINE, || {
        Some(String::from_utf8_lossy(&terminal.raw()).into_owned()).filter(|raw| raw.contains("<<end>>"))
    });
    shown.replace("<<end>>", "").replace("\r\n", "\n")
}

#[test]
fn colour_only_on_a_terminal_and_not_if_unwanted() {
    let (sandbox, _agents) = busy_place("colour");
    assert!(!ask(&sandbox, &["ls", "-a"]).stdout.contains('\x1b'));
    assert!(on_terminal(&sandbox, 120, &[], &["ls", "-a"]).contains("\x1b["));
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let shown = on_terminal(&sandbox, 120, &[(name, value)], &["ls", "-a"]);
        assert!(!shown.contains('\x1b'), "{name}={value}: {shown}");
    }
    assert!(on_terminal(&sandbox, 120, &[("NO_COLOR", "")], &["ls", "-a"]).contains("\x1b["));
    assert!(!on_terminal(&sandbox, 120, &[], &["ls", "-a", "--json"]).contains('\x1b'));
}

/// How many columns a line takes: wide characters two, marks none.
fn width(line: &str) -> usize {
    let wide = |c: char| matches!(c, '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{a4cf}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}' | '\u{fe30}'..='\u{fe6f}' | '\u{ff00}'..='\u{ff60}');
    line.chars().map(|c| 1 + usize::from(wide(c))).sum()
}

#[test]
fn no_row_is_wider_than_the_terminal() {
    let (sandbox, _agents) = busy_place("widths");
    let _stray = sandbox.lookalike("claude", &[]);
    for cols in [40u16, 80, 200] {
        for args in [&["ls"][..], &["ls", "-a"]] {
            let shown = on_terminal(&sandbox, cols, &[("NO_COLOR", "1")], args);
            let program = lariat(&sandbox, args).env("COLUMNS", cols.to_string());
            let piped = sandbox.world().run(&program).stdout;
            for line in shown.lines().chain(piped.lines()) {
                assert!(width(line) <= usize::from(cols), "{} > {cols}: {line}", width(line));
            }
            // Narrow as it is, each row still says who it is.
            for n in 1..=4 {
                assert!(shown.contains(&id(n)[..8]) && piped.contains(&id(n)[..8]), "{shown}");
            }
        }
    }
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let (sandbox, _agents) = busy_place("pipe");
    let codex = CodexStore::of(&sandbox);
    for n in 100..400 {
        codex.thread(&id(n)).asked(&"many words ".repeat(20)).answered("ok");
    }
    for args in [&["ls", "-a"][..], &["ls", "-a", "--json"], &["completions", "bash"], &["status", "--json", &id(1)]] {
        let line = "{ \"$@\"; echo \"exit $?\" >&2; } | head -c 10";
        let said = through(&sandbox, line, args);
        assert_eq!(said.stderr, "exit 0\n", "{args:?}");
        assert_eq!(said.stdout.len(), 10);
        // Nobody reads at all.
        let said = through(&sandbox, "{ \"$@\"; echo \"exit $?\" >&2; } | true", args);
        assert_eq!(said.stderr, "exit 0\n", "{args:?}");
    }
}

#[test]
fn completions_know_the_verbs_and_who_is_here() {
    let (sandbox, _agents) = busy_place("completions");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = ask(&sandbox, &["completions", shell]);
        assert!(said.code() == 0 && said.stdout.contains("LARIAT_COMPLETE"), "{said:?}");
    }
    // What a Tab gives in a real shell.
    let tab = |words: &[&str]| -> Vec<String> {
        let script = "lariat=$1; shift; source <(\"$lariat\" completions bash); COMP_WORDS=(lariat \"$@\"); COMP_CWORD=$#; \
                      COMP_TYPE=9; _clap_complete_lariat lariat \"${@: -1}\" && printf '%s\\n' \"${COMPREPLY[@]}\"";
        let said = sandbox.world().run(&sandbox.program("bash").args(["-c", script, "bash", LARIAT]).args(words));
        assert_eq!((said.code(), said.stderr.as_str()), (0, ""), "{said:?}");
        said.stdout.lines().map(|line| line.trim_end().to_owned()).collect()
    };
    let has = |all: &[String], word: &str| all.iter().any(|offered| offered == word);
    let verbs = tab(&[""]);
    assert!(["status", "explain", "peek", "doctor"].iter().all(|verb| has(&verbs, verb)), "{verbs:?}");
    assert!(!has(&verbs, "session"), "what is hidden is not offered: {verbs:?}");
    assert_eq!(tab(&["dae"]), ["daemon"]);
    let all = tab(&["stop", ""]);
    assert!((1..=4).all(|n| has(&all, &id(n))) && !has(&all, &id(12)), "those that live, by their ids: {all:?}");
    assert_eq!(tab(&["stop", &id(2)[..20]]), [id(2)]);
    assert!(has(&tab(&["stop", "--"]), "--grace"));
    assert_eq!(tab(&["launch", "cl"]), ["claude"]);
    assert_eq!(tab(&["ls", "--status", "wai"]), ["waiting"]);
    assert_eq!(tab(&["ls", "--agent", "pi"]), ["pi"]);
}

#[test]
fn an_empty_place_says_what_to_do() {
    let sandbox = Sandbox::new("empty");
    let said = ask(&sandbox, &[]);
    assert_eq!((said.code(), said.stderr.as_str()), (0, ""));
    assert!(said.stdout.contains("No agents here"), "{said:?}");
    let json = ask(&sandbox, &["--json"]).json();
    assert_eq!(json["sessions"], json!([]));
    assert_eq!(json["warnings"], json!([]));
    // No home at all.
    let program = lariat(&sandbox, &["ls", "--json"]).without_env("HOME").without_env("XDG_CACHE_HOME");
    let said = sandbox.world().run(&program);
    assert_eq!(said.code(), 0, "{said:?}");
}

#[test]
fn the_json_has_every_documented_field() {
    let (sandbox, agents) = busy_place("schema");
    let seen = crate::asking::list(&sandbox);
    let fields = [
        "id",
        "agent",
        "native_id",
        "handle",
        "name",
        "host",
        "status",
        "reason",
        "live",
        "pid",
        "cwd",
        "branch",
        "model",
        "title",
        "prompt",
        "started_at",
        "updated_at",
        "ended_at",
        "exit",
        "tokens",
        "cost_usd",
        "group",
        "kept",
        "restorable",
        "because",
    ];
    for session in seen.sessions() {
        for field in fields {
            assert!(session.get(field).is_some(), "{field} is missing: {session:#}");
        }
        let id = session["id"].as_str().expect("an id");
        let (agent, native) = id.split_once(':').expect("agent:id");
        assert_eq!((session["agent"].as_str(), session["native_id"].as_str()), (Some(agent), Some(native)));
        for because in session["because"].as_array().expect("because") {
            for field in ["witness", "fact", "at", "source"] {
                assert!(because.get(field).is_some(), "{field} is missing: {because:#}");
            }
        }
        for moment in ["started_at", "updated_at"] {
            let text = session[moment].as_str().expect("a moment");
            assert!(text.ends_with('Z') && text.len() >= 20, "{moment}: {text}");
        }
    }
    let waiting = seen.session(&id(1));
    assert_eq!(waiting["pid"], agents[0].pid());
    assert_eq!(waiting["tokens"], json!({"input": 100, "output": 7, "cache_read": 300, "cache_write": 20}));
    // Not known is null, never 0.
    assert_eq!(seen.session(&id(13))["tokens"], Value::Null);
    assert_eq!(seen.session(&id(13))["cost_usd"], Value::Null);
    let one = ask(&sandbox, &["status", "--json", &id(1)]).json();
    assert_eq!((&one["id"], &one["status"]), (&waiting["id"], &waiting["status"]));
    let why = ask(&sandbox, &["explain", "--json", &id(1)]).json();
    assert_eq!(why["because"], waiting["because"]);
}

#[test]
fn the_answer_of_every_verb_says_which_shape_it_has() {
    let sandbox = Sandbox::new("shapes");
    drop(lariat_testkit::Lookalike::program(&sandbox, "claude"));
    let place = sandbox.project("a");
    let told = |args: &[&str]| {
        let output = ask(&sandbox, &[args, &["--json"]].concat());
        assert_eq!((output.code(), &output.json()["schema"]), (0, &json!(1)), "{args:?}: {output:?}");
        output.json()
    };
    let cwd = place.to_str().expect("UTF-8");
    told(&["lock", cwd]);
    told(&["unlock", cwd]);
    let launched = told(&["launch", "claude", "--cwd", cwd]);
    let handle = launched["handle"].as_str().expect("a handle");
    told(&["keep", handle]);
    told(&["rename", handle, "other"]);
    let fuse = told(&["fuse", "set", handle, "--after", "1h"]);
    told(&["fuse", "cancel", fuse["id"].as_str().expect("an id")]);
}

/// `lariat --group G kill --all --yes` is no wish to kill all.
#[test]
fn an_option_of_the_list_before_another_verb_is_a_mistake() {
    let (sandbox, _agents) = busy_place("misplaced");
    let before = ask(&sandbox, &["status", "--json"]).json();
    for option in [&["--group", "g"][..], &["--host", "local"], &["--agent", "codex"], &["-a"], &["--status", "idle"]] {
        let said = ask(&sandbox, &[option, &["kill", "--all", "--yes", "--json"]].concat());
        assert_eq!((said.code(), &said.json()["error"]["code"]), (2, &json!(2)), "{option:?}: {said:?}");
        assert!(said.stderr.contains("after the verb"), "{option:?}: {said:?}");
    }
    let after = ask(&sandbox, &["status", "--json"]).json();
    assert_eq!((&before["idle"], &before["needs_you"]), (&after["idle"], &after["needs_you"]));
    assert_eq!(ask(&sandbox, &["-a", "ls"]).code(), 2);
    // What every verb heeds may stand anywhere.
    assert_eq!(ask(&sandbox, &["--json", "--deadline", "5s", "status"]).json()["schema"], 1);
}

/// What could not be read is told in JSON too, as are help and answers that nobody gets.
#[test]
fn nothing_is_lost_without_a_word() {
    let sandbox = Sandbox::new("told");
    let ours = sandbox.state_dir().join("lariat");
    for (folder, verb) in [("claims", &["locks"][..]), ("fuses", &["fuse", "ls"])] {
        std::fs::create_dir_all(ours.join(folder)).expect("a folder of ours");
        std::fs::write(ours.join(folder).join("x.json"), "garbage").expect("a file");
        let said = ask(&sandbox, &[verb, &["--json"]].concat());
        let told = said.json();
        // Who else may hold what is not known.
        assert_eq!(said.code(), if folder == "claims" { 5 } else { 0 }, "{said:?}");
        let path = told["warnings"][0]["path"].as_str().unwrap_or_default();
        assert!(path.ends_with(&format!("{folder}/x.json")), "{verb:?}: {told}");
    }
    assert_eq!(ask(&sandbox, &["worktree", "ls", "--json"]).json()["warnings"], json!([]));
    for args in [&["--help"][..], &["--version"], &["help", "ls"], &["ls"], &["doctor"]] {
        let said = through(&sandbox, "exec \"$@\" > /dev/full", args);
        assert_eq!(said.code(), 1, "{args:?}: {said:?}");
        assert!(said.stderr.contains("standard output"), "{args:?}: {said:?}");
        let said = through(&sandbox, "(\"$@\"; echo $? >&2) | true", args);
        assert_eq!(said.stderr, "0\n", "{args:?}: {said:?}");
    }
}

/// An error names the place that it is about, and what to do.
#[test]
fn what_cannot_be_used_is_named() {
    let sandbox = Sandbox::new("named");
    let file = sandbox.root().join("file");
    std::fs::write(&file, "").expect("a file");
    let path = file.to_str().expect("UTF-8");
    let said = sandbox.run(["env", &format!("XDG_RUNTIME_DIR={path}"), LARIAT, "daemon", "start"]);
    assert!(said.code() == 1 && said.stderr.contains(path) && said.stderr.contains("unset it"), "{said:?}");
    let state = format!("XDG_STATE_HOME={path}");
    for verb in [&["gc", "--yes"][..], &["worktree", "clean"], &["lock"], &["host", "add", "box"], &["journal"]] {
        let said = sandbox.run([&["env", &state, LARIAT], verb].concat());
        assert!(said.code() == 0 || said.stderr.contains(path), "{verb:?}: {said:?}");
    }
    // Our records may lie on a disk that is not there.
    std::os::unix::fs::symlink("/nowhere/at/all", sandbox.root().join("lariat")).expect("a link");
    let state = format!("XDG_STATE_HOME={}", sandbox.root().display());
    let told = |verb: &str| sandbox.run(["env", &state, LARIAT, verb, "--json"]).json();
    assert_eq!(told("ls")["warnings"][0]["error"], "it is a link that leads nowhere");
    let checks = told("doctor")["checks"].clone();
    let records = checks.as_array().expect("checks").iter().find(|c| c["what"] == "records").cloned();
    assert_eq!(records.expect("records")["health"], "bad", "{checks}");
}

/// Where systemd cannot be asked, whoever reads JSON hears of it.
#[test]
fn units_are_told_of_in_json() {
    let sandbox = Sandbox::new("units");
    let failed = ask(&sandbox, &["daemon", "install", "--json"]);
    assert_eq!((failed.code(), &failed.json()["error"]["code"]), (1, &json!(1)), "{failed:?}");
    let text = failed.json()["error"]["text"].to_string();
    assert!(text.contains("daemon-reload") && !text.contains("  ") && text.contains("must work first"), "{text}");
    let units = sandbox.home().join(".config/systemd/user");
    assert_eq!(std::fs::read_dir(&units).expect("a folder").count(), 0, "nothing was installed");
    let written = ask(&sandbox, &["restore", "--install", "--json"]).json();
    let unit = written["unit"].as_str().expect("a path");
    assert!(sandbox.home().join(".config/systemd/user/lariat-restore.service").is_file(), "{unit}");
}

/// The narrowest terminals: the footer, and the heading of processes without a session, are cut like the rows.
#[test]
fn whatever_stands_around_the_rows_fits_too() {
    let (sandbox, _agents) = busy_place("narrow");
    let _loose = sandbox.lookalike("claude", &["--session-id"]);
    for columns in [20, 30, 32] {
        let shown = through(&sandbox, &format!("COLUMNS={columns} exec \"$@\""), &["ls"]).stdout;
        assert!(shown.contains("3 ended not") && shown.contains("PROCESSES"), "{shown}");
        for line in shown.lines() {
            assert!(lariat_core::text::columns(line) <= columns, "{columns}: {line}");
        }
    }
}
