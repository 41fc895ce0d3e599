//! Launching versions of agents that do not take what later ones do. Which version it is, its package says.
//!
//! Seen red: `gemini`, `takes_ids` always; `pi`, `takes_input` always.

use std::fs;

use lariat_testkit::{DEADLINE, Sandbox, put_program, wait_until};

use crate::asking::{ask, id, list};

/// Makes a script callable by the name of an agent, as a version of its package. It stays until it is ended.
pub fn install(sandbox: &Sandbox, agent: &str, (package, script): (&str, &str), version: &str, text: &str) {
    let folder = sandbox.root().join("packages").join(package);
    let script = folder.join(script);
    let described = format!("{{\"name\":\"@some/{package}\",\"version\":\"{version}\"}}");
    put_program(&script, format!("#!/bin/sh\n{text}\nexec 3<>pipe\nread x <&3\n"));
    fs::write(folder.join("package.json"), described).expect("a package");
    sandbox.install(agent, &script);
    sandbox.run(["mkfifo", "pipe"]).expect_success();
}

/// Gemini's package, and the program in it.
pub const GEMINI: (&str, &str) = ("gemini-cli", "dist/index.js");

#[test]
fn a_gemini_that_takes_no_id_tells_its_own_or_is_not_launched() {
    let sandbox = Sandbox::new("gemini-older");
    let says = format!("echo '{{\"type\":\"init\",\"session_id\":\"{}\"}}'; echo \"$@\" > arguments", id(1));
    install(&sandbox, "gemini", GEMINI, "0.40.1", &says);
    let refused = ask(&sandbox, &["launch", "gemini", "--json"]);
    assert_eq!(refused.code(), 2, "{refused:?}");
    assert!(refused.stdout.contains("takes no --session-id"), "{refused:?}");
    let launched = ask(&sandbox, &["launch", "gemini", "--headless", "-p", "hello", "--json"]);
    assert_eq!(launched.code(), 0, "{launched:?}");
    assert_eq!(launched.json()["native_id"], id(1));
    let pid = launched.json()["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    let seen = list(&sandbox);
    seen.expect(&id(1), "starting", pid);
    assert_eq!(seen.unbound(), Vec::<i32>::new(), "{}", seen.text);
    let arguments = fs::read_to_string(sandbox.work().join("arguments")).expect("what it was given");
    assert_eq!(arguments.trim(), "-o stream-json --prompt=hello");
    assert_eq!(ask(&sandbox, &["kill", &id(1), "--json"]).code(), 0);
}

#[test]
fn a_pi_that_does_not_read_its_input_is_given_its_prompt_as_an_argument() {
    let sandbox = Sandbox::new("pi-older");
    let says =
        format!("echo '{{\"type\":\"session\",\"id\":\"{}\"}}'; for a; do last=$a; done; echo \"$last\" > last", id(1));
    install(&sandbox, "pi", ("pi-coding-agent", "dist/cli.js"), "0.42.5", &says);
    let launched = ask(&sandbox, &["launch", "pi", "--headless", "-p", "hello there", "--json"]);
    assert_eq!(launched.code(), 0, "{launched:?}");
    let last = sandbox.work().join("last");
    wait_until("it was given its prompt", DEADLINE, || {
        fs::read_to_string(&last).is_ok_and(|last| last == "hello there\n")
    });
    assert_eq!(ask(&sandbox, &["kill", &id(1), "--json"]).code(), 0);
}
