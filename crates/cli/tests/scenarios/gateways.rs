//! Sessions of a gateway: scenarios 4, 5 and 6, and every way a gateway can fail.

mod acting;
mod devices;

use std::{fs, os::unix::fs::PermissionsExt, time::Instant};

use lariat_testkit::{
    Gateway, Sandbox,
    gateway::{Manner, row},
};
use serde_json::{Value, json};

use crate::asking::{Answer, ask, lariat, list};

const TOKEN: &str = "scripted-token";
const ONE: &str = "agent:main:one";
const TWO: &str = "agent:main:two";

/// A sandbox whose settings are this text.
fn settings(sandbox: &Sandbox, text: &str) {
    let folder = sandbox.home().join(".config/lariat");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("config.toml"), text).expect("settings");
    let token = folder.join("token");
    fs::write(&token, format!("{TOKEN}\n")).expect("a token");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("a mode");
}

/// A sandbox with one gateway in its settings, without a name.
fn stage(name: &str) -> (Sandbox, Gateway) {
    let sandbox = Sandbox::new(name);
    let gateway = Gateway::start(TOKEN);
    settings(&sandbox, &format!("[[gateway]]\nurl = \"{}\"\ntoken_file = \"token\"\n", gateway.url()));
    (sandbox, gateway)
}

fn outcome(sandbox: &Sandbox, args: &[&str]) -> (i32, Value) {
    let output = ask(sandbox, args);
    let last = output.stdout.lines().last().unwrap_or("null");
    (output.code(), serde_json::from_str(last).expect("one object a line"))
}

/// A listing in which this gateway has failed: the sessions it had are unknown, with their age and
/// the reason; a warning says when it last worked.
#[track_caller]
fn expect_silent(seen: &Answer, words: &str) {
    assert_eq!(seen.code, 5, "{:#}", seen.json);
    for key in [ONE, TWO] {
        seen.expect(key, "unknown", None);
        let reason = seen.session(key)["reason"].as_str().expect("a reason");
        assert!(reason.contains(words) && reason.contains("last good answer is"), "{words}: {reason}");
        assert_eq!(seen.session(key)["live"], Value::Null);
    }
    let [warning] = seen.json["warnings"].as_array().expect("warnings").as_slice() else {
        panic!("not one warning: {:#}", seen.json)
    };
    assert!(warning["error"].as_str().expect("text").contains(words), "{words}: {warning}");
    assert!(warning["last_ok"].is_string(), "when it last worked: {warning}");
}

#[test]
fn a_row_says_what_the_gateway_says() {
    let (sandbox, gateway) = stage("gateway-rows");
    gateway.put(row("agent:main:never"));
    for (key, status) in [("done", "done"), ("failed", "failed"), ("killed", "killed"), ("late", "timeout")] {
        let key = format!("agent:main:{key}");
        gateway.run(&key);
        gateway.end(&key, status);
    }
    gateway.set("agent:main:failed", "lastRunError", json!("provider said 400"));
    gateway.run(ONE);
    gateway.run(TWO);
    gateway.set(TWO, "status", json!("queued"));
    // Stored while it ran, by a gateway that was killed.
    let mut stale = row("agent:main:stale");
    stale["status"] = json!("running");
    gateway.put(stale);
    // Words and shapes of another version.
    let mut odd = row("agent:main:odd");
    odd["status"] = json!("meditating");
    gateway.put(odd);
    let mut silent = row("agent:main:silent");
    silent.as_object_mut().expect("a row").retain(|key, _| !matches!(key.as_str(), "hasActiveRun" | "activeRunIds"));
    gateway.put(silent);
    // Those of a version that only lists what is open.
    for (key, runs) in [("rests", json!([])), ("runs", json!(["run-1"])), ("queued", json!(["run-1"]))] {
        let mut listed = row(&format!("agent:main:{key}"));
        listed.as_object_mut().expect("a row").remove("hasActiveRun");
        listed["status"] = json!(if key == "queued" { "queued" } else { "done" });
        listed["activeRunIds"] = runs;
        gateway.put(listed);
    }
    let mut wild = row("agent:main:wild");
    wild["updatedAt"] = json!(1e300);
    wild["label"] = json!({"a": [1, 2]});
    wild["model"] = json!(7);
    gateway.put(wild);
    gateway.put(json!({"nothing": "here"}));

    let seen = list(&sandbox);
    assert_eq!((seen.code, seen.warnings()), (5, vec![]), "{:#}", seen.json);
    for (key, status, reason) in [
        ("never", "done", "no turn was ever started"),
        ("done", "done", "turn over"),
        ("failed", "failed", "provider said 400"),
        ("killed", "stopped", "its last run was aborted"),
        ("late", "failed", "its last run took too long"),
        ("one", "working", "turn open"),
        ("two", "working", "queued by the gateway"),
        ("stale", "interrupted", "cut off in the middle of a turn"),
        ("odd", "unknown", "meditating"),
        ("silent", "unknown", "does not say whether a run of it is open"),
        ("rests", "done", "turn over"),
        ("runs", "working", "turn open"),
        ("queued", "working", "queued by the gateway"),
        ("wild", "done", "no turn was ever started"),
    ] {
        let key = format!("agent:main:{key}");
        seen.expect(&key, status, None);
        let told = seen.session(&key)["reason"].as_str().expect("a reason");
        assert!(told.contains(reason), "{key}: {told}");
    }
    assert_eq!(seen.sessions().len(), 14, "what has no key is no row");
    let one = seen.session(ONE);
    assert_eq!(one["id"], format!("openclaw:{ONE}"));
    assert_eq!((&one["host"], &one["tokens"], &one["cost_usd"]), (&Value::Null, &Value::Null, &Value::Null));
    assert_eq!(one["because"][0]["source"], gateway.url());
    // The token goes to the gateway and nowhere else.
    assert!(!seen.text.contains(TOKEN));
    assert_eq!(gateway.asked("connect")[0]["scopes"], json!(["operator.read"]), "looking may only look");
}

#[test]
fn a_run_that_asks_leave_waits_and_who_may_not_see_that_is_told_so() {
    let (sandbox, gateway) = stage("gateway-asks");
    gateway.run(ONE);
    gateway.run(TWO);
    gateway.ask(ONE, Some("rm -rf build"));
    let seen = list(&sandbox);
    seen.expect(ONE, "waiting", None);
    seen.expect(TWO, "working", None);
    assert_eq!(seen.session(ONE)["reason"], "permission: exec rm -rf build");
    let (code, told) = outcome(&sandbox, &["send", ONE, "more", "--json"]);
    assert_eq!((code, &told["outcome"]), (3, &json!("blocked")), "{told}");
    let refused = ask(&sandbox, &["approve", ONE]);
    assert_eq!((refused.code(), refused.stderr.contains("`openclaw dashboard`")), (3, true), "{refused:?}");
    // Whatever it waits for; a version that knows of no questions has none.
    gateway.question(TWO, Some("Red or blue?"));
    let seen = list(&sandbox);
    assert_eq!(
        (&seen.session(TWO)["status"], &seen.session(TWO)["reason"]),
        (&json!("waiting"), &json!("question: Red or blue?"))
    );
    gateway.behave(Manner::Older);
    let seen = list(&sandbox);
    seen.expect(ONE, "waiting", None);
    seen.expect(TWO, "working", None);
    // One that knows of them and does not tell may have any; what it told is known.
    for manner in [Manner::NoQuestions("UNAVAILABLE"), Manner::NoQuestions("")] {
        gateway.behave(manner);
        let seen = list(&sandbox);
        seen.expect(ONE, "waiting", None);
        seen.expect(TWO, "working", None);
        let because = seen.session(TWO)["because"].to_string();
        assert!(because.contains("waits for a person could not be asked"), "{because}");
    }
    gateway.behave(Manner::Well);
    gateway.question(TWO, None);
    gateway.ask_by_plugin(TWO, Some("Delete everything"));
    let seen = list(&sandbox);
    assert_eq!(
        (&seen.session(TWO)["status"], &seen.session(TWO)["reason"]),
        (&json!("waiting"), &json!("permission: Delete everything"))
    );
    gateway.ask_by_plugin(TWO, None);
    // Not granted: it is as it was, and says what it does not know.
    gateway.behave(Manner::GrantsNoAdmin);
    let seen = list(&sandbox);
    seen.expect(ONE, "working", None);
    let because = seen.session(ONE)["because"].to_string();
    assert!(because.contains("waits for a person could not be asked"), "{because}");
    gateway.behave(Manner::Well);
    gateway.ask(ONE, None);
    list(&sandbox).expect(ONE, "working", None);
    // Only while a run is open is more asked for than to read.
    gateway.end(ONE, "done");
    gateway.end(TWO, "done");
    let before = gateway.asked("connect").len();
    list(&sandbox).expect(ONE, "done", None);
    let asked = gateway.asked("connect").split_off(before);
    assert_eq!(asked.iter().map(|c| c["scopes"].clone()).collect::<Vec<_>>(), [json!(["operator.read"])]);
}

#[test]
fn what_a_gateway_starts_is_not_started_here() {
    let (sandbox, gateway) = stage("gateway-starts");
    gateway.run(ONE);
    gateway.end(ONE, "done");
    assert_eq!(list(&sandbox).session(ONE)["cwd"], Value::Null);
    for args in [&["launch", "openclaw"][..], &["resume", ONE], &["fork", ONE]] {
        let output = ask(&sandbox, args);
        assert_eq!(output.code(), 2, "{args:?}: {output:?}");
        assert!(output.stderr.contains("a gateway starts OpenClaw's sessions"), "{args:?}: {}", output.stderr);
    }
}

#[test]
fn runs_on_schedule_end_as_the_ledger_says_and_what_is_put_away_is_still_there() {
    let (sandbox, gateway) = stage("gateway-ledger");
    let scheduled = |name: &str| {
        let mut new = row(&format!("agent:main:cron:{name}"));
        new["systemSent"] = json!(true);
        new["sessionId"] = json!(format!("t-{name}"));
        gateway.put(new);
        format!("agent:main:cron:{name}")
    };
    let ends = [
        ("good", "completed", "", "done"),
        ("bad", "failed", "no such model", "failed"),
        ("slow", "timed_out", "", "failed"),
        ("ended", "failed", "agent run aborted | OPENCLAW_DIRECT_ABORT", "stopped"),
        ("given-up", "cancelled", "", "stopped"),
        ("odd", "lost", "", "unknown"),
    ];
    for (name, status, error, _) in ends {
        gateway.task(&scheduled(name), "t-earlier", "failed", "an earlier run");
        gateway.task(&scheduled(name), &format!("t-{name}"), status, error);
    }
    let forgotten = scheduled("forgotten");
    gateway.put(row("agent:main:never"));
    gateway.run(ONE);
    gateway.end(ONE, "done");
    gateway.set(ONE, "archived", json!(true));
    let seen = list(&sandbox);
    assert_eq!((seen.code, seen.warnings().len()), (5, 0), "{:#}", seen.json);
    for (name, _, _, word) in ends {
        seen.expect(&format!("agent:main:cron:{name}"), word, None);
    }
    assert_eq!(seen.session("agent:main:cron:bad")["reason"], "no such model");
    seen.expect(&forgotten, "unknown", None);
    seen.expect("agent:main:never", "done", None);
    seen.expect(ONE, "done", None);
    assert!(seen.session(ONE)["because"].to_string().contains("archived there"), "{:#}", seen.session(ONE));
    assert_eq!(outcome(&sandbox, &["status", ONE, "--json"]).1["status"], "done");

    // One that knows of neither tells what it can.
    gateway.behave(Manner::Older);
    let seen = list(&sandbox);
    assert_eq!((seen.code, seen.warnings().len()), (5, 0), "{:#}", seen.json);
    seen.expect("agent:main:cron:good", "unknown", None);
    seen.expect("agent:main:never", "done", None);
    assert!(seen.find(ONE).is_none(), "{:#}", seen.json);

    // Where nothing is missing, nothing more is asked.
    gateway.behave(Manner::Well);
    ends.iter().for_each(|(name, ..)| gateway.delete(&format!("agent:main:cron:{name}")));
    gateway.delete(&forgotten);
    let before = gateway.asked("tasks.list").len();
    assert_eq!(list(&sandbox).code, 0);
    assert_eq!((before > 0, gateway.asked("tasks.list").len()), (true, before));
}

#[test]
fn s04_a_gateway_that_is_down_makes_its_sessions_unknown_not_absent() {
    let (sandbox, gateway) = stage("s04");
    gateway.run(ONE);
    gateway.put(row(TWO));
    list(&sandbox).expect(ONE, "working", None);
    let address = gateway.address();
    drop(gateway);
    let seen = list(&sandbox);
    expect_silent(&seen, "connection refused");
    // The short list shows them too; nothing is notified of an end, nothing is ended.
    let short = Answer::of(&ask(&sandbox, &["ls", "--json"]));
    assert_eq!(short.sessions().len(), 2);
    let (code, told) = outcome(&sandbox, &["kill", ONE, "--json"]);
    assert_eq!((code, &told["outcome"]), (5, &json!("unknown")), "{told}");
    let (code, told) = outcome(&sandbox, &["send", ONE, "hello", "--json"]);
    assert_eq!((code, &told["outcome"]), (5, &json!("unknown")), "{told}");
    // What is remembered decides nothing: without it only the warning stands.
    fs::remove_dir_all(sandbox.home().join(".cache/lariat")).expect("our cache");
    let seen = list(&sandbox);
    assert_eq!((seen.code, seen.sessions().len()), (5, 0), "{:#}", seen.json);
    assert_eq!(seen.json["warnings"][0]["last_ok"], Value::Null);
    let unread = ask(&sandbox, &["status", ONE]);
    assert_eq!(unread.code(), 5, "not 'there is none': {unread:?}");
    // Up again, and all is as it says now.
    let gateway = Gateway::start_at(address, TOKEN);
    gateway.run(ONE);
    gateway.end(ONE, "done");
    let seen = list(&sandbox);
    assert_eq!((seen.code, seen.warnings()), (0, vec![]));
    seen.expect(ONE, "done", None);
    assert!(seen.find(TWO).is_none());
}

#[test]
fn s04_every_failure_is_a_warning_that_says_what_to_do() {
    let (sandbox, gateway) = stage("s04-each");
    gateway.run(ONE);
    gateway.put(row(TWO));
    list(&sandbox).expect(ONE, "working", None);
    for (manner, words) in [
        (Manner::Http(503), "shutting down or starting (HTTP 503)"),
        (Manner::Http(404), "HTTP 404"),
        (Manner::Noise, "is this the gateway's port?"),
        (Manner::Babbles, "a frame that is not JSON"),
        (Manner::Binary, "bytes instead of text"),
        (Manner::Oversized, "1073741824 bytes"),
        (Manner::HangsUp(1012), "it hung up (1012 service restart)"),
        (Manner::Speaks(5), "it speaks protocol 5 (PROTOCOL_MISMATCH)"),
        (Manner::Greets(3), "it speaks protocol 3"),
        (Manner::GrantsNothing, "grants no operator.read (granted: none)"),
        (Manner::Endless, "does not come to an end"),
        (Manner::Miscounts, "changed each time it was read"),
        (Manner::NoList(Value::Null), "with no list"),
        (Manner::NoList(json!({})), "with no list"),
        (Manner::NoList(json!("none")), "with no list"),
    ] {
        gateway.behave(manner);
        expect_silent(&list(&sandbox), words);
    }
    // Those that hang hold up nobody.
    for manner in [Manner::Mute, Manner::Deaf, Manner::Stops, Manner::Trickles] {
        gateway.behave(manner.clone());
        let began = Instant::now();
        let output = ask(&sandbox, &["ls", "-a", "--json", "--deadline", "400ms"]);
        assert!(began.elapsed().as_secs() < 30, "{manner:?} held it up for {:?}", began.elapsed());
        expect_silent(&Answer::of(&output), "did not answer within");
    }
    // What is said besides an answer disturbs nothing.
    gateway.behave(Manner::Chatty);
    let seen = list(&sandbox);
    assert_eq!((seen.code, seen.warnings()), (0, vec![]), "{:#}", seen.json);
    seen.expect(ONE, "working", None);
}

#[test]
fn s02_a_look_that_stands_still_is_given_up_on() {
    let (sandbox, gateway) = stage("s02-gateway");
    gateway.run(ONE);
    list(&sandbox).expect(ONE, "working", None);
    sandbox.run(["mkfifo", "/tmp/silent"]).expect_success();
    let program = lariat(&sandbox, &["ls", "-a", "--json", "--deadline", "300ms"])
        .env("LARIAT_PAUSE_AT", "openclaw.observe")
        .env("LARIAT_PAUSE_ON", "/tmp/silent");
    let seen = Answer::of(&sandbox.world().run(&program));
    seen.expect(ONE, "unknown", None);
    assert!(seen.warnings()[0].starts_with("openclaw "), "{:?}", seen.warnings());
}

#[test]
fn a_token_that_is_wrong_missing_or_open_to_others() {
    let (sandbox, gateway) = stage("gateway-token");
    gateway.run(ONE);
    gateway.put(row(TWO));
    list(&sandbox);
    let token = sandbox.home().join(".config/lariat/token");
    fs::write(&token, "another").expect("a token");
    expect_silent(&list(&sandbox), "(AUTH_TOKEN_MISMATCH)");
    fs::write(&token, " \n").expect("a token");
    expect_silent(&list(&sandbox), "has no token in it");
    fs::write(&token, TOKEN).expect("a token");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o640)).expect("a mode");
    expect_silent(&list(&sandbox), "chmod 600");
    fs::remove_file(&token).expect("a token");
    expect_silent(&list(&sandbox), "cannot be read");
    // OpenClaw's own files are not read, by whatever way.
    let own = sandbox.home().join(".openclaw");
    fs::create_dir(&own).expect("a folder");
    fs::write(own.join("openclaw.json"), TOKEN).expect("a file");
    fs::set_permissions(own.join("openclaw.json"), fs::Permissions::from_mode(0o600)).expect("a mode");
    std::os::unix::fs::symlink(own.join("openclaw.json"), &token).expect("a link");
    expect_silent(&list(&sandbox), "is OpenClaw's own");
    settings(&sandbox, &format!("[[gateway]]\nurl = \"{}\"\n", gateway.url()));
    expect_silent(&list(&sandbox), "(DEVICE_IDENTITY_REQUIRED)");
    settings(&sandbox, &format!("[[gateway]]\nurl = \"{}\"\ntoken_env = \"MINE\"\n", gateway.url()));
    expect_silent(&list(&sandbox), "the variable MINE has no token in it");
    sandbox.env("MINE", TOKEN);
    list(&sandbox).expect(ONE, "working", None);
    let doctor = ask(&sandbox, &["doctor"]);
    assert!(doctor.stdout.contains("OpenClaw scripted answers, 2 sessions"), "{}", doctor.stdout);
    sandbox.env("MINE", "another");
    let doctor = ask(&sandbox, &["doctor"]);
    assert_eq!(doctor.code(), 1);
    assert!(doctor.stdout.contains("AUTH_TOKEN_MISMATCH"), "{}", doctor.stdout);
    assert!(!doctor.stdout.contains("another;"), "a token is never shown");
}

#[test]
fn without_settings_nothing_is_looked_for_and_broken_ones_are_a_warning() {
    let sandbox = Sandbox::new("no-gateway");
    let seen = list(&sandbox);
    assert_eq!((seen.code, seen.warnings()), (0, vec![]));
    settings(&sandbox, "[[gateway]]\nurll = \"ws://127.0.0.1:1\"\n");
    let seen = list(&sandbox);
    let warned = seen.warnings().join("\n");
    assert!(warned.contains("settings ~/.config/lariat/config.toml line 2: \"urll\" is no setting"), "{warned}");
    assert!(warned.contains("did you mean \"url\"?"), "{warned}");
    assert_eq!(seen.code, 5, "a gateway may be missing");
    settings(&sandbox, "[[gateway\n");
    for verb in [&["ls"][..], &["status"], &["doctor"], &["locks"]] {
        let said = ask(&sandbox, verb);
        let all = said.stdout.clone() + &said.stderr;
        assert!(all.contains("line 1"), "{verb:?}: {all}");
    }
    // OpenClaw's own variables do where there are no settings.
    let gateway = Gateway::start(TOKEN);
    gateway.run(ONE);
    fs::remove_file(sandbox.home().join(".config/lariat/config.toml")).expect("settings");
    sandbox.env("OPENCLAW_GATEWAY_URL", gateway.url());
    sandbox.env("OPENCLAW_GATEWAY_TOKEN", TOKEN);
    list(&sandbox).expect(ONE, "working", None);
}

#[test]
fn two_gateways_with_the_same_keys_are_two_rows_each() {
    let sandbox = Sandbox::new("two-gateways");
    let (here, there) = (Gateway::start(TOKEN), Gateway::start(TOKEN));
    settings(
        &sandbox,
        &format!(
            "[[gateway]]\nurl = \"{}\"\ntoken_file = \"token\"\n\
             [[gateway]]\nname = \"box\"\nurl = \"{}\"\nhost = \"box.lan\"\ntoken_file = \"token\"\n",
            here.url(),
            there.url()
        ),
    );
    here.run(ONE);
    there.run(ONE);
    let cwd = sandbox.work();
    for gateway in [&here, &there] {
        gateway.set(ONE, "spawnedCwd", json!(cwd));
    }
    // One that imitates a session of the other.
    here.put(row(&format!("box/{ONE}")));
    let other = format!("box/{ONE}");
    let seen = list(&sandbox);
    seen.expect(ONE, "working", None);
    seen.expect(&other, "working", None);
    seen.expect(&format!("/box/{ONE}"), "done", None);
    assert_eq!(seen.session(&other)["host"], "box.lan");
    let only = Answer::of(&ask(&sandbox, &["ls", "--json", "--host", "box.lan"]));
    assert_eq!(only.sessions().len(), 1);
    // A directory of another machine is not claimed here.
    let locks = ask(&sandbox, &["locks", "--json"]).stdout;
    assert!(locks.contains(&format!("openclaw:{ONE} ")) && !locks.contains("box/"), "{locks}");
    // Ended is the one that was meant.
    let (code, _) = outcome(&sandbox, &["kill", &other, "--json"]);
    assert_eq!(code, 0);
    assert_eq!((here.asked("sessions.abort").len(), there.asked("sessions.abort").len()), (0, 1));
    list(&sandbox).expect(ONE, "working", None);
    // One that is down takes nothing from the other.
    drop(there);
    let seen = list(&sandbox);
    seen.expect(ONE, "working", None);
    seen.expect(&other, "unknown", None);
}

#[test]
fn s05_what_a_good_answer_leaves_out_is_gone_and_its_directory_free() {
    let (sandbox, gateway) = stage("s05");
    gateway.run(ONE);
    gateway.set(ONE, "spawnedCwd", json!(sandbox.work()));
    list(&sandbox).expect(ONE, "working", None);
    let locks = || ask(&sandbox, &["locks", "--json"]).stdout;
    assert!(locks().contains(ONE), "{}", locks());
    // A gateway that is silent for a while holds nothing: what is remembered decides nothing.
    gateway.behave(Manner::Http(503));
    list(&sandbox).expect(ONE, "unknown", None);
    assert!(!locks().contains(ONE), "{}", locks());
    gateway.behave(Manner::Well);
    assert!(locks().contains(ONE), "{}", locks());
    gateway.delete(ONE);
    let seen = list(&sandbox);
    assert_eq!((seen.code, seen.sessions().len()), (0, 0), "{:#}", seen.json);
    assert!(!locks().contains(ONE), "{}", locks());
    // Nor does it come back as unknown later.
    gateway.behave(Manner::Http(503));
    assert_eq!(list(&sandbox).sessions().len(), 0);
}

#[test]
fn s06_four_hundred_short_sessions_and_the_counts_are_true_at_each_moment() {
    let (sandbox, gateway) = stage("s06");
    let key = |n: usize| format!("agent:main:short-{n}");
    let mut open: Vec<usize> = Vec::new();
    for n in 0..400 {
        gateway.run(&key(n));
        gateway.set(&key(n), "spawnedCwd", json!(sandbox.work()));
        open.push(n);
        // Some end at once, some later, some never by themselves.
        let ends = [("done", 3), ("failed", 5), ("killed", 7)].into_iter().find(|(_, every)| n % every == 0);
        if let Some((word, _)) = ends {
            let ended = open.remove((n * 7) % open.len());
            gateway.end(&key(ended), word);
        }
        if n % 40 == 39 {
            let counts = ask(&sandbox, &["status", "--json"]).json();
            let told = [&counts["working"], &counts["unknown"], &counts["ended"]].map(Value::as_u64);
            let truth = [open.len(), 0, n + 1 - open.len()].map(|n| Some(n as u64));
            assert_eq!(told, truth, "after {n}: {counts}");
            let locks = ask(&sandbox, &["locks", "--json"]).stdout.matches("openclaw:agent:main:short-").count();
            assert!(locks >= open.len(), "every live one holds its directory: {locks} of {}", open.len());
        }
    }
    open.drain(..).for_each(|n| gateway.end(&key(n), "done"));
    let seen = list(&sandbox);
    assert_eq!(seen.sessions().len(), 400, "in pages of a hundred");
    assert!(seen.sessions().iter().all(|s| s["live"] == false));
    assert!(!ask(&sandbox, &["locks", "--json"]).stdout.contains("openclaw:"));
    assert!(gateway.asked("sessions.list").iter().any(|p| p["offset"] == 300));
}

#[test]
fn hostile_keys_and_texts_stay_where_they_belong() {
    let (sandbox, gateway) = stage("gateway-hostile");
    let keys = ["../../../../tmp/out", "a\u{1b}]0;x\u{7}b", "agent:main:\u{202e}x", &"k".repeat(900), "agent:x:\n\ny"];
    for key in keys {
        gateway.run(key);
        gateway.set(key, "displayName", json!("\u{1b}[2J\u{9b}31m"));
    }
    gateway.put(row(&"k".repeat(5000)));
    let seen = list(&sandbox);
    assert_eq!(seen.sessions().len(), keys.len(), "{:#}", seen.json);
    let table = ask(&sandbox, &["ls", "-a"]).stdout;
    assert!(!table.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}']), "{table:?}");
    for session in seen.sessions() {
        let (code, told) = outcome(&sandbox, &["kill", session["id"].as_str().expect("an id"), "--json"]);
        assert_eq!((code, &told["outcome"]), (0, &json!("stopped")), "{told}");
    }
    let folders = fs::read_dir(sandbox.state_dir().join("lariat/sessions")).expect("our records").flatten();
    let wishes = folders.filter(|folder| folder.path().join("intent.json").is_file()).count();
    assert_eq!(wishes, keys.len(), "a folder each, and none elsewhere");
    assert!(list(&sandbox).sessions().iter().all(|s| s["status"] == "stopped"));
}

#[test]
fn a_damaged_memory_is_none() {
    let (sandbox, gateway) = stage("gateway-memory");
    gateway.run(ONE);
    list(&sandbox);
    gateway.behave(Manner::Http(503));
    let cache = sandbox.home().join(".cache/lariat");
    let file = fs::read_dir(&cache).expect("a cache").flatten().map(|e| e.path());
    let file = file.into_iter().find(|p| p.to_string_lossy().contains("gateway-")).expect("a memory");
    let good = fs::read(&file).expect("a memory");
    list(&sandbox).expect(ONE, "unknown", None);
    for at in [0, 9, 20, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 4;
        fs::write(&file, bad).expect("a damaged memory");
        assert_eq!(list(&sandbox).sessions().len(), 0, "byte {at}");
    }
    for cut in [0, 7, 16, good.len() / 2] {
        fs::write(&file, &good[..cut]).expect("a cut memory");
        assert_eq!(list(&sandbox).sessions().len(), 0, "cut at {cut}");
    }
    fs::write(&file, &good).expect("a memory");
    list(&sandbox).expect(ONE, "unknown", None);
}
