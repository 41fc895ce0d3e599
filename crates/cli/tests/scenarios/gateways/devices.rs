//! A gateway that grants nothing to a client of another machine, and one that knows it as a device. The real
//! gateway's part of it is in `contract/openclaw/devices.rs`.

use std::{fs, os::unix::fs::PermissionsExt};

use lariat_testkit::gateway::{Manner, row};
use serde_json::{Value, json};

use super::{ONE, TOKEN, TWO, expect_silent, outcome, settings, stage};
use crate::asking::{Answer, ask, list};

#[test]
fn where_nothing_is_granted_sessions_are_read_over_http_and_are_unknown() {
    let (sandbox, gateway) = stage("gateway-afar");
    gateway.run(ONE);
    gateway.put(row(TWO));
    list(&sandbox).expect(ONE, "working", None);
    // More than one page, and what ended well: none of it is called ended.
    for n in 0..150 {
        let key = format!("agent:main:more-{n}");
        gateway.run(&key);
        gateway.end(&key, "done");
    }
    // One says so when it is greeted, another when it is asked for the list.
    for (manner, grants) in [
        (Manner::Afar(200), "grants no operator.read (granted: none)"),
        (Manner::ForbidsList, "grants no operator.read for sessions.list (MISSING_SCOPE)"),
    ] {
        gateway.behave(manner);
        let seen = list(&sandbox);
        assert_eq!((seen.code, seen.sessions().len()), (5, 152), "{:#}", seen.json["warnings"]);
        for row in seen.sessions() {
            assert_eq!((&row["status"], &row["live"]), (&json!("unknown"), &Value::Null), "{row:#}");
            let reason = row["reason"].as_str().expect("a reason");
            assert!(reason.contains("does not say whether a run of it is open"), "{reason}");
        }
        let warning = &seen.json["warnings"][0];
        let error = warning["error"].as_str().expect("text");
        for words in [grants, "`lariat gateway pair`", "are read over HTTP"] {
            assert!(error.contains(words), "{words}: {error}");
        }
        assert!(warning["last_ok"].is_string() && !seen.text.contains(TOKEN), "{warning}");
    }
    // Nothing is done on that account.
    for verb in ["kill", "stop"] {
        assert_eq!(outcome(&sandbox, &[verb, ONE, "--json"]).1["outcome"], "unknown");
    }
    assert!(gateway.asked("sessions.abort").is_empty());
    // What was said over HTTP is not remembered as a good answer.
    gateway.behave(Manner::Http(503));
    expect_silent(&list(&sandbox), "HTTP 503");
    assert_eq!(list(&sandbox).sessions().len(), 2);
    for (status, words) in [(401, "refuses the token of"), (404, "it answers HTTP 404")] {
        gateway.behave(Manner::Afar(status));
        expect_silent(&list(&sandbox), words);
    }
    gateway.behave(Manner::Afar(0));
    let output = ask(&sandbox, &["ls", "-a", "--json", "--deadline", "400ms"]);
    expect_silent(&Answer::of(&output), "did not answer within");
}

#[test]
fn a_device_is_made_when_asked_for_and_never_shown() {
    let (sandbox, gateway) = stage("gateway-device");
    gateway.run(ONE);
    gateway.put(row(TWO));
    list(&sandbox);
    let told = ask(&sandbox, &["gateway", "pair"]);
    assert_eq!(told.code(), 2, "no device in the settings: {told:?}");
    let text = format!("[[gateway]]\nurl = \"{}\"\ntoken_file = \"token\"\ndevice = \"key\"\n", gateway.url());
    settings(&sandbox, &text);
    let file = sandbox.home().join(".config/lariat/key");
    // To look, the token is enough where the gateway thinks so.
    let keyless = |status: &str| {
        let seen = list(&sandbox);
        seen.expect(ONE, status, None);
        let warning = seen.json["warnings"][0]["error"].as_str().expect("text").to_owned();
        assert!(warning.contains("is not there yet: `lariat gateway pair` makes it"), "{warning}");
        assert!(!file.exists(), "looking makes nothing");
        warning
    };
    keyless("working");
    assert_eq!(ask(&sandbox, &["peek", ONE]).code(), 0);
    gateway.behave(Manner::Afar(200));
    assert!(keyless("unknown").contains("are read over HTTP"));
    gateway.behave(Manner::Http(503));
    assert!(keyless("unknown").contains("HTTP 503"));
    gateway.behave(Manner::Well);
    let told = outcome(&sandbox, &["stop", ONE, "--json"]);
    assert!(told.1.to_string().contains("is not there yet: `lariat gateway pair`"), "{told:?}");
    let told = ask(&sandbox, &["gateway", "pair", "--json"]);
    assert_eq!((told.code(), &told.json()["made"]), (0, &json!(true)), "{told:?}");
    let key = fs::read_to_string(&file).expect("a key");
    assert_eq!(fs::metadata(&file).expect("a key").permissions().mode() & 0o777, 0o600);
    list(&sandbox).expect(ONE, "working", None);
    let sent = gateway.asked("connect").last().expect("a greeting")["device"].clone();
    let id = told.json()["device"].clone();
    assert_eq!((&sent["id"], &sent["nonce"]), (&id, &json!("scripted")), "{sent}");
    assert!(sent["signature"].as_str().is_some_and(|s| s.len() == 86), "{sent}");
    assert!(![told.stdout, sent.to_string()].concat().contains(key.trim()), "a key is never shown");
    // It stays what it is.
    let again = ask(&sandbox, &["gateway", "pair", "--json"]).json();
    assert_eq!((&again["made"], &again["device"]), (&json!(false), &id));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("a mode");
    expect_silent(&list(&sandbox), "may be read by others; chmod 600");
    fs::write(&file, "no key").expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a mode");
    expect_silent(&list(&sandbox), "holds no key");
    let refused = ask(&sandbox, &["gateway", "pair"]);
    assert_eq!((refused.code(), fs::read_to_string(&file).expect("a file").as_str()), (1, "no key"), "{refused:?}");
    drop(gateway);
    fs::remove_file(&file).expect("a key");
    assert_eq!(ask(&sandbox, &["gateway", "pair"]).code(), 1, "nobody listens");
}
