//! A client that is on another machine than the gateway, and one that the gateway knows as a device.

use std::{fs, os::unix::fs::PermissionsExt};

use lariat_testkit::{DEADLINE, Signal, agents::OpenClaw};
use serde_json::{Value, json};

use super::{Seen, good_look, hold, look, run, until};
use crate::looks::Stage;

/// Settings with one gateway, and maybe a device.
fn settings(stage: &Stage, url: &str, device: Option<&str>) {
    let folder = stage.sandbox.home().join(".config/lariat");
    fs::create_dir_all(&folder).expect("a folder");
    let device = device.map_or_else(String::new, |file| format!("device = \"{file}\"\n"));
    let text = format!("[[gateway]]\nurl = \"{url}\"\ntoken_file = \"token\"\n{device}");
    fs::write(folder.join("config.toml"), text).expect("settings");
    let token = folder.join("token");
    fs::write(&token, OpenClaw::TOKEN).expect("a token");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("a mode");
}

/// The key of a device, which nobody else may see.
fn key(stage: &Stage, file: &str) -> String {
    let path = stage.sandbox.home().join(".config/lariat").join(file);
    let mode = fs::metadata(&path).expect("a key").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only its owner may read it");
    fs::read_to_string(path).expect("a key").trim().to_owned()
}

/// The gateway tells its sessions and not whether they run: a warning says what to do.
#[track_caller]
fn expect_read_only(seen: &Seen, words: &[&str], keys: &[&str]) {
    assert_eq!(seen.output.code(), 5, "{:?}", seen.output);
    let warning = seen.json["warnings"][0]["error"].as_str().expect("a warning").to_owned();
    for words in words.iter().chain(&["read over HTTP"]) {
        assert!(warning.contains(words), "{words}: {warning}");
    }
    for key in keys {
        let row = seen.row(key);
        assert_eq!((&row["status"], &row["live"]), (&json!("unknown"), &Value::Null), "{row:#}");
        let reason = row["reason"].as_str().expect("a reason");
        assert!(reason.contains("does not say whether a run of it is open"), "{row:#}");
    }
}

#[test]
fn a_device_on_loopback_and_from_afar() {
    let stage = Stage::new("openclaw-device");
    let openclaw = OpenClaw::install(&stage.sandbox, &stage.model);
    let gateway = openclaw.start();
    openclaw.wait(&gateway);
    let afar = openclaw.from_afar();
    let create = |label: &str| {
        let made = openclaw.client().call("sessions.create", &json!({"label": label, "cwd": stage.sandbox.work()}));
        made["key"].as_str().expect("a key").to_owned()
    };
    let (one, two) = (create("one"), create("two"));

    // On loopback, with a token only; then as a device, which must be made first: looking makes nothing.
    settings(&stage, &openclaw.url(), None);
    good_look(&stage);
    settings(&stage, &openclaw.url(), Some("near"));
    let warned = look(&stage).json["warnings"].to_string();
    assert!(warned.contains("is not there yet: `lariat gateway pair` makes it"), "{warned}");
    let paired = run(&stage, &["gateway", "pair", "--json"]);
    let told = paired.json();
    assert_eq!((paired.code(), &told["made"], &told["paired"]), (0, &json!(true), &json!(true)), "{paired:?}");
    let near = key(&stage, "near");
    hold(&stage, &one, "first");
    stage.model.release("first");
    until(&stage, &one, "done");
    let again = run(&stage, &["gateway", "pair"]);
    assert_eq!(again.code(), 0, "{again:?}");
    assert!(again.stdout.contains("knows this device") && !again.stdout.contains("made"), "{again:?}");

    // From another machine, without a device: what is there, and not what it does.
    settings(&stage, &afar.url(), None);
    expect_read_only(&look(&stage), &["grants no operator.read (granted: none)", "gateway pair"], &[&one, &two]);
    let peeked = run(&stage, &["peek", "one", "--json"]).json();
    assert!(peeked["reply"].as_str().expect("a reply").ends_with("HOLD first hello"), "{peeked:#}");
    let sent = run(&stage, &["send", &one, "hello", "--json"]);
    assert_eq!((sent.code(), &sent.json()["outcome"]), (5, &json!("unknown")), "{sent:?}");

    // As one that nobody has approved; then its owner does.
    settings(&stage, &afar.url(), Some("far"));
    let paired = run(&stage, &["gateway", "pair", "--json"]);
    let told = paired.json();
    assert_eq!((paired.code(), &told["made"], &told["paired"]), (3, &json!(true), &json!(false)), "{paired:?}");
    let far = key(&stage, "far");
    let request = told["request"].as_str().expect("a request").to_owned();
    let seen = look(&stage);
    let warning = seen.json["warnings"][0]["error"].as_str().expect("a warning").to_owned();
    expect_read_only(&seen, &["(PAIRING_REQUIRED)", "openclaw devices approve "], &[&one, &two]);
    assert!(warning.contains(&format!("openclaw devices approve {request}")), "{request}: {warning}");
    let approved = openclaw.run(&["devices", "approve", &request]);
    assert_eq!(approved.code(), 0, "{approved:?}");
    assert_eq!(good_look(&stage).row(&one)["status"], "done");
    hold(&stage, &two, "second");
    let stopped = run(&stage, &["stop", &two, "--json"]);
    assert_eq!((stopped.code(), &stopped.json()["outcome"]), (0, &json!("stopped")), "{stopped:?}");

    // A device that is known is known from wherever it comes.
    settings(&stage, &afar.url(), Some("near"));
    good_look(&stage);
    let told = [paired.stdout, again.stdout, warned, warning, run(&stage, &["journal", "--json"]).stdout].concat();
    assert!(!told.contains(&near) && !told.contains(&far), "a key is never shown");
    gateway.signal(Signal::KILL);
    gateway.wait(DEADLINE);
}
