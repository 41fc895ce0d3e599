//! Whole conversations in pages, and what was changed where a session works: what a page shows of one
//! session.

use std::fs;

use lariat_testkit::{Lookalike, Sandbox};
use serde_json::{Value, json};

use crate::asking::{ask, id};
use crate::claude_store::ClaudeStore;
use crate::codex_store::CodexStore;
use crate::gemini_store::GeminiStore;
use crate::http::Served;
use crate::opencode_store::OpenCodeStore;
use crate::pi_store::PiStore;
use crate::worktrees::hold;

/// All turns of a conversation, in pages of that size.
fn talk(sandbox: &Sandbox, target: &str, limit: usize) -> Vec<Value> {
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let limit = limit.to_string();
        let mut line = vec!["peek", target, "--all", "--json", "--limit", &limit];
        let place: Option<String> = before.map(|n: u64| n.to_string());
        line.extend(place.iter().flat_map(|p| ["--before", p.as_str()]));
        let page = ask(sandbox, &line).expect_success().json();
        let turns = page["turns"].as_array().expect("turns").clone();
        assert!(!turns.is_empty() && turns.len() <= limit.parse().expect("a number"), "{page}");
        all.splice(0..0, turns);
        match page["before"].as_u64() {
            Some(n) => before = Some(n),
            None => return all,
        }
    }
}

#[test]
fn a_conversation_comes_in_pages_and_nothing_is_missed_or_told_twice() {
    let sandbox = Sandbox::new("pages");
    let claude = ClaudeStore::of(&sandbox);
    let mut session = claude.session(&id(1));
    // Long enough that no page needs all of it.
    for n in 0..120 {
        session = session.asked(&format!("prompt {n}")).calls("Bash", json!({"command": format!("make {n}")}));
        session = session.result(&format!("made {n} {}", "x".repeat(4000))).answered(&format!("reply {n}"));
    }
    session = session.calls("Bash", json!({"command": "sleep 9"})).asked("\u{1b}[2J");
    // Two at once: what the first gave stands after the second call.
    for call in ["a", "b"] {
        let block = json!({"type": "tool_use", "id": call, "name": "Read", "input": {"file_path": call}});
        let message = json!({"id": format!("m{call}"), "role": "assistant", "content": [block]});
        session = session.line(&json!({"type": "assistant", "message": message}));
    }
    for call in ["a", "b"] {
        let block =
            json!({"type": "tool_result", "tool_use_id": call, "content": format!("gave {call}"), "is_error": true});
        session = session.line(&json!({"type": "user", "message": {"role": "user", "content": [block]}}));
    }
    let whole = talk(&sandbox, &id(1), 1000);
    assert_eq!(whole.len(), 120 * 3 + 4);
    for (turn, call) in whole[362..].iter().zip(["a", "b"]) {
        assert_eq!(turn["tool"]["output"], format!("gave {call}"), "{turn}");
        assert_eq!(turn["tool"]["failed"], true, "{turn}");
    }
    for (at, turn) in whole[..360].iter().enumerate() {
        let n = at / 3;
        match at % 3 {
            0 => assert_eq!((&turn["who"], &turn["text"]), (&json!("person"), &json!(format!("prompt {n}")))),
            1 => {
                assert_eq!((&turn["who"], &turn["text"]), (&json!("tool"), &json!(format!("Bash make {n}"))));
                let tool = &turn["tool"];
                assert_eq!((&tool["name"], &tool["failed"]), (&json!("Bash"), &json!(false)));
                let input: Value = serde_json::from_str(tool["input"].as_str().expect("text")).expect("JSON");
                assert_eq!(input, json!({"command": format!("make {n}")}));
                assert!(tool["output"].as_str().expect("text").starts_with(&format!("made {n} x")), "{turn}");
            }
            _ => assert_eq!((&turn["who"], &turn["text"]), (&json!("agent"), &json!(format!("reply {n}")))),
        }
    }
    assert_eq!(whole[360]["tool"]["output"], Value::Null, "it has not ended");
    let numbers: Vec<u64> = whole.iter().map(|t| t["n"].as_u64().expect("a number")).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    for limit in [1000, 50, 7, 1] {
        assert_eq!(talk(&sandbox, &id(1), limit), whole, "in pages of {limit}");
    }
    // Numbers stay where they are while the session goes on.
    session = session.answered("more");
    let grown = talk(&sandbox, &id(1), 100);
    assert_eq!(grown[..whole.len()], whole);
    let served = Served::start(&sandbox);
    let page = served.get(&format!("/v1/sessions/{}/talk?limit=2", id(1)));
    assert!(page.status == 200 && !page.body.contains('\u{1b}'), "{page:?}");
    assert_eq!(page.json()["turns"].as_array().expect("turns")[..], grown[grown.len() - 2..]);
    assert_eq!(page.json()["session"]["native_id"], id(1));
    assert_eq!(served.get(&format!("/v1/sessions/{}/talk?limit=0", id(1))).status, 400);
    drop(session);
}

#[test]
fn every_agents_tools_are_told_with_what_they_gave() {
    let sandbox = Sandbox::new("tools");
    let codex = CodexStore::of(&sandbox).thread(&id(2)).asked("go").calls("c1", "make");
    let output = "Chunk ID: 1\nProcess exited with code 2\nOutput:\nboom";
    let codex = codex.add("response_item", json!({"type": "function_call_output", "call_id": "c1", "output": output}));
    let codex = codex.answered("it failed");
    let pi = PiStore::of(&sandbox).session(&id(3)).asked("go").calls("p1", "make");
    let given = json!({"role": "toolResult", "toolCallId": "p1", "toolName": "bash", "isError": true,
        "content": [{"type": "text", "text": "boom"}]});
    let pi = pi.message(given).answered("it failed");
    let gemini = GeminiStore::of(&sandbox).session(&id(4)).asked("go").message(
        "m",
        "gemini",
        json!(""),
        json!({"toolCalls": [{"id": "c", "name": "run_shell_command", "args": {"command": "make"}, "status": "error",
            "result": [{"functionResponse": {"id": "c", "response": {"output": "boom"}}}]}]}),
    );
    let gemini = gemini.answered("it failed");
    let opencode = OpenCodeStore::of(&sandbox);
    let state =
        json!({"status": "error", "input": {"command": "make"}, "error": "boom", "time": {"start": 1, "end": 2}});
    let message = json!({"role": "assistant", "time": {"created": 1, "completed": 2}});
    let part = |call: &str| json!({"type": "tool", "tool": "bash", "callID": call, "state": state});
    let stored = opencode.session("ses_tools").asked("go").message(&message, &[part("a"), part("b")]);
    let stored = stored.answered("it failed");
    for (target, calls) in [(id(2), 1), (id(3), 1), (id(4), 1), ("ses_tools".to_owned(), 2)] {
        let turns = talk(&sandbox, &target, 2);
        let who: Vec<&str> = turns.iter().map(|t| t["who"].as_str().expect("who")).collect();
        assert_eq!(who, [&["person"][..], &vec!["tool"; calls], &["agent"]].concat(), "{target}: {turns:?}");
        let tool = &turns[1]["tool"];
        assert!(tool["input"].as_str().expect("text").contains("make"), "{target}: {tool}");
        assert!(tool["output"].as_str().is_some_and(|o| o.ends_with("boom")), "{target}: {tool}");
        assert_eq!(tool["failed"], true, "{target}: {tool}");
    }
    drop((codex, pi, gemini, stored));
}

#[test]
fn a_diff_tells_all_that_was_changed_and_runs_nothing() {
    let sandbox = Sandbox::new("diff");
    let place = sandbox.project("changed");
    for name in ["kept", "edited", "gone", "old", "half"] {
        fs::write(place.join(name), format!("{name}\nsecond\nthird\n")).expect("a file");
    }
    fs::write(place.join(".gitignore"), "ignored\n").expect("a file");
    fs::write(place.join(".gitattributes"), "* filter=trap diff=trap\n").expect("a file");
    sandbox.git(&place, &["add", "."]);
    sandbox.git(&place, &["commit", "--quiet", "--message", "Second"]);
    let claude = ClaudeStore::of(&sandbox);
    let session = claude.session_in(&id(1), &place.join("below")).asked("go").answered("done");
    fs::create_dir(place.join("below")).expect("a folder");
    let diff = |args: &[&str]| ask(&sandbox, &[&["diff", &id(1), "--json"], args].concat()).expect_success().json();
    assert_eq!(diff(&[])["files"], json!([]));
    fs::write(place.join("edited"), "edited\nother\nthird\n").expect("a file");
    fs::remove_file(place.join("gone")).expect("gone");
    fs::rename(place.join("old"), place.join("new name")).expect("renamed");
    sandbox.git(&place, &["add", "-A", "old", "new name"]);
    fs::write(place.join("half"), "staged\nsecond\nthird\n").expect("a file");
    sandbox.git(&place, &["add", "half"]);
    fs::write(place.join("half"), "staged\nsecond\nand not\n").expect("a file");
    fs::write(place.join("below/fresh\u{1b}[2J"), "a\nb").expect("a file");
    fs::write(place.join("binary"), b"a\0b").expect("a file");
    fs::write(place.join("ignored"), "x").expect("a file");
    // Traps that git would run by itself.
    let trace = sandbox.root().join("ran");
    for key in ["filter.trap.clean", "filter.trap.smudge", "diff.trap.command", "diff.trap.textconv", "core.fsmonitor"]
    {
        sandbox.git(&place, &["config", key, &format!("touch {}; cat", trace.display())]);
    }
    let told = diff(&[]);
    let row = |path: &str| {
        let files = told["files"].as_array().expect("files").iter();
        files.clone().find(|f| f["path"] == path).unwrap_or_else(|| panic!("no {path}: {told}")).clone()
    };
    let fields = |path: &str| {
        let f = row(path);
        (f["change"].clone(), f["added"].clone(), f["removed"].clone(), f["staged"] == true, f["unstaged"] == true)
    };
    assert_eq!(fields("edited"), (json!("modified"), json!(1), json!(1), false, true));
    assert_eq!(fields("gone"), (json!("deleted"), json!(0), json!(3), false, true));
    assert_eq!(fields("new name"), (json!("renamed"), json!(0), json!(0), true, false));
    assert_eq!(row("new name")["old_path"], "old");
    assert_eq!(fields("half"), (json!("modified"), json!(2), json!(2), true, true));
    assert_eq!(fields("below/fresh\u{1b}[2J"), (json!("added"), json!(2), json!(0), false, true));
    assert_eq!(fields("binary"), (json!("added"), Value::Null, Value::Null, false, true));
    assert_eq!(told["files"].as_array().expect("files").len(), 6, "{told}");
    assert_eq!((&told["added"], &told["removed"], &told["cut"]), (&json!(5), &json!(6), &json!(false)));
    let patch = told["patch"].as_str().expect("a patch");
    for line in ["-second", "+other", "+and not", "rename from old", "+b\n\\ No newline"] {
        assert!(patch.contains(line), "{line}: {patch}");
    }
    assert!(diff(&["--stat"])["patch"].is_null());
    assert!(!trace.exists(), "nothing of the repository's was run");
    let shown = ask(&sandbox, &["diff", &id(1)]).expect_success();
    assert!(shown.stdout.contains("new name (was old)") && !shown.stdout.contains('\u{1b}'), "{}", shown.stdout);
    // A patch ends somewhere, and says so.
    fs::write(place.join("huge"), "line\n".repeat(200_000)).expect("a file");
    fs::write(place.join("kept"), "line\n".repeat(700_000)).expect("a file");
    let long = diff(&[]);
    assert!(long["cut"] == true && long["patch"].as_str().expect("a patch").len() <= 2 << 20);
    let served = Served::start(&sandbox);
    let by_http = served.get(&format!("/v1/sessions/{}/diff?stat=true", id(1)));
    assert_eq!((by_http.status, &by_http.json()["files"]), (200, &long["files"]), "{by_http:?}");
    // Where there is no git, that is said.
    let bare = sandbox.home().join("bare");
    fs::create_dir(&bare).expect("a folder");
    let other = claude.session_in(&id(2), &bare).asked("go");
    let refused = ask(&sandbox, &["diff", &id(2)]);
    assert!(refused.code() == 3 && refused.stderr.contains("not in a checkout"), "{}", refused.stderr);
    drop((session, other));
}

#[test]
fn what_is_configured_while_a_diff_is_made_is_not_run_either() {
    let sandbox = Sandbox::new("diff-race");
    let place = sandbox.project("changed");
    fs::write(place.join("text"), "one\r\ntwo\r\n").expect("a file");
    sandbox.git(&place, &["-c", "core.autocrlf=input", "add", "."]);
    sandbox.git(&place, &["commit", "--quiet", "--message", "Second"]);
    // What the repository says of line ends counts: stored it would be as before.
    sandbox.git(&place, &["config", "core.autocrlf", "input"]);
    fs::write(place.join("text"), "one\r\ntwo\r\n").expect("a file, written anew");
    fs::write(place.join("README.md"), "changed\n").expect("a file");
    let claude = ClaudeStore::of(&sandbox);
    let session = claude.session_in(&id(1), &place).asked("go").answered("done");
    let trace = sandbox.root().join("ran");
    let paths = |told: &Value| {
        let files = told["files"].as_array().expect("files").iter();
        files.map(|f| f["path"].as_str().expect("a path").to_owned()).collect::<Vec<_>>()
    };
    let held = hold(&sandbox, &["diff", &id(1), "--json"], "git.diff");
    sandbox.git(&place, &["config", "--global", "filter.late.clean", &format!("touch {}; cat", trace.display())]);
    for key in ["filter.late.clean", "filter.late.process", "diff.late.textconv", "diff.late.command", "diff.external"]
    {
        sandbox.git(&place, &["config", key, &format!("touch {}; cat", trace.display())]);
    }
    let attributes = "* filter=late diff=late\n";
    fs::write(place.join(".git/info/attributes"), attributes).expect("attributes");
    fs::write(place.join(".gitattributes"), attributes).expect("attributes");
    fs::write(place.join("README.md"), "changed again\n").expect("a file");
    let (code, told) = held.go_on();
    assert_eq!((code, paths(&told)), (0, vec![".gitattributes".to_owned(), "README.md".to_owned()]), "{told}");
    assert!(told["patch"].as_str().is_some_and(|p| p.contains("+changed again")), "{told}");
    assert!(!trace.exists(), "what was configured in between was run");
    // An index in two parts, a linked checkout, another kind of hash: all are compared.
    sandbox.git(&place, &["config", "--remove-section", "filter.late"]);
    sandbox.git(&place, &["config", "--global", "--remove-section", "filter.late"]);
    sandbox.git(&place, &["update-index", "--split-index"]);
    let parts = fs::read_dir(place.join(".git")).expect("a folder").flatten();
    assert!(parts.map(|e| e.file_name()).any(|n| n.to_string_lossy().starts_with("sharedindex.")));
    let told = ask(&sandbox, &["diff", &id(1), "--json"]).expect_success().json();
    assert_eq!(paths(&told), [".gitattributes", "README.md"], "{told}");
    let linked = sandbox.home().join("work/linked");
    sandbox.git(&place, &["worktree", "add", "--quiet", linked.to_str().expect("UTF-8")]);
    fs::write(linked.join("README.md"), "there\n").expect("a file");
    let there = claude.session_in(&id(2), &linked).asked("go").answered("done");
    let told = ask(&sandbox, &["diff", &id(2), "--json"]).expect_success().json();
    assert_eq!(paths(&told), ["README.md"], "{told}");
    let other = sandbox.home().join("work/sha256");
    fs::create_dir(&other).expect("a folder");
    sandbox.git(&other, &["init", "--quiet", "--object-format=sha256"]);
    fs::write(other.join("new"), "x\n").expect("a file");
    sandbox.git(&other, &["add", "."]);
    let last = claude.session_in(&id(3), &other).asked("go").answered("done");
    let told = ask(&sandbox, &["diff", &id(3), "--json"]).expect_success().json();
    assert_eq!(paths(&told), ["new"], "{told}");
    drop((session, there, last));
}

#[test]
fn a_worktrees_diff_begins_where_the_worktree_did() {
    let sandbox = Sandbox::new("wtdiff");
    drop(Lookalike::program(&sandbox, "claude"));
    sandbox.project("proj");
    let served = Served::start(&sandbox);
    let order = json!({"agent": "claude", "cwd": sandbox.work(), "worktree": "topic", "name": "tree"});
    let launched = served.post("/v1/sessions", &order);
    assert_eq!(launched.status, 200, "{launched:?}");
    let handle = launched.json()["handle"].as_str().expect("a handle").to_owned();
    let place = std::path::PathBuf::from(launched.json()["worktree"].as_str().expect("a worktree"));
    fs::write(place.join("committed"), "a\n").expect("a file");
    sandbox.git(&place, &["add", "."]);
    sandbox.git(&place, &["commit", "--quiet", "--message", "Work"]);
    fs::write(place.join("loose"), "b\n").expect("a file");
    let told = served.get(&format!("/v1/sessions/{handle}/diff")).json();
    let paths: Vec<&Value> = told["files"].as_array().expect("files").iter().map(|f| &f["path"]).collect();
    assert_eq!(paths, ["committed", "loose"], "{told}");
    assert_eq!((&told["files"][0]["staged"], &told["files"][0]["unstaged"]), (&json!(false), &json!(false)));
    // All that is done to worktrees, fuses and records is done by HTTP too.
    let listed = served.get("/v1/worktrees").json();
    assert!(listed.to_string().contains("topic"), "{listed}");
    let saved = served.post("/v1/worktrees/save", &json!({"targets": [handle]}));
    assert_eq!(saved.status, 200, "{saved:?}");
    let refused = served.post("/v1/worktrees/clean", &json!({"targets": [handle]}));
    assert_eq!(refused.status, 409, "somebody is in it: {refused:?}");
    let fuse = served.post("/v1/fuses", &json!({"target": handle, "after": "1h"}));
    assert_eq!(fuse.status, 200, "{fuse:?}");
    let fuses = served.get("/v1/fuses").json();
    let number = fuses["fuses"][0]["id"].as_str().expect("a fuse").to_owned();
    assert_eq!(served.post(&format!("/v1/fuses/{number}/extend"), &json!({"by": "1h"})).status, 200);
    assert_eq!(served.post(&format!("/v1/fuses/{number}/cancel"), &json!({})).status, 200);
    assert_eq!(served.get("/v1/fuses").json()["fuses"], json!([]));
    for path in ["/v1/usage?by=agent", "/v1/gc", "/v1/deliveries", "/v1/daemon/logs?lines=3"] {
        assert_eq!(served.get(path).status, 200, "{path}: {:?}", served.get(path));
    }
    assert_eq!(served.post("/v1/gc", &json!({"yes": true})).status, 200);
    assert_eq!(served.post("/v1/gc", &json!({})).status, 400);
    // The journal in pages.
    let lines = |path: &str| -> Vec<Value> {
        let told = served.get(path);
        told.body.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect()
    };
    let journal = lines("/v1/journal");
    let last = lines("/v1/journal?lines=1");
    assert_eq!(last[..], journal[journal.len() - 1..]);
    let before = lines(&format!("/v1/journal?lines=1&before={}", last[0]["n"]));
    assert_eq!(before[..], journal[journal.len() - 2..journal.len() - 1]);
}

#[test]
fn a_listing_comes_in_pages_in_a_stable_order() {
    let sandbox = Sandbox::new("lspages");
    let claude = ClaudeStore::of(&sandbox);
    let sessions: Vec<_> = (1..=7).map(|n| claude.session(&id(n)).asked("go").answered("done")).collect();
    let served = Served::start(&sandbox);
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = served.get(&format!("/v1/sessions?all=true&limit=3{after}")).json();
        seen.extend(page["sessions"].as_array().expect("sessions").iter().map(|s| s["native_id"].clone()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, (1..=7).map(|n| json!(id(n))).collect::<Vec<_>>());
    assert!(served.get("/v1/sessions").json().get("next").is_none());
    drop(sessions);
}
