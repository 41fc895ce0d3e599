//! Row 10: a secret stays where it belongs.
//!
//! A canary goes in by every way there is: variables that the launcher was started with, those of
//! known tokens among them, and variables that are given with `--env`. It may be in the agent's own
//! environment, and in that of the command that was given it. It may be in no argument (but those of
//! that very command, which its person typed), no other environment, no file and no answer.
//!
//! The control hands it on in an argument.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::chance::Chance;
use crate::ground::{Ground, Seen, end, is_alive, wait_until};
use crate::tally::Tally;

const TOKENS: [&str; 5] = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GH_TOKEN", "AWS_SECRET_ACCESS_KEY", "MY_PASSWORD"];

/// Runs the row.
pub fn run(ground: &Ground, count: u64, chance: &mut Chance, tally: &mut Tally) -> io::Result<()> {
    for round in 0..count {
        let canary = format!("canary{:016x}", chance.number());
        launched(ground, round, &canary, tally)?;
        failed(ground, &canary, tally)?;
        control(ground, &canary, tally)?;
    }
    Ok(())
}

fn with_tokens(command: &mut Command, canary: &str) -> io::Result<Output> {
    for name in TOKENS {
        command.env(name, format!("{canary}-{name}"));
    }
    command.output()
}

fn launched(ground: &Ground, round: u64, canary: &str, tally: &mut Tally) -> io::Result<()> {
    let given = format!("GIVEN={canary}-given");
    let headless: &[&str] = if round.is_multiple_of(2) { &["--headless", "-p", "go on"] } else { &[] };
    let mut command = ground.lariat(&[&["launch", "claude", "--json", "--force", "--env", &given], headless].concat());
    let output = with_tokens(command.env("TORTURE", "sit"), canary)?;
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
    let session = ground.session(text("handle"), text("native_id"))?;
    let environment = fs::read(format!("/proc/{}/environ", session.shim.agent.pid))?;
    let arrived = TOKENS.iter().chain(&["given"]).all(|t| contains(&environment, &format!("{canary}-{t}")));
    tally.try_one("a secret by every way into a launch");
    tally.hold(arrived, || "the secret did not reach the agent".into());
    tally.hold(!contains(&output.stdout, canary) && !contains(&output.stderr, canary), || "launch tells it".into());
    let agent = session.shim.agent.pid;
    for process in ground.processes() {
        let found = in_process(&process, canary, process.pid == agent);
        tally.hold(found.is_none(), || format!("{found:?} of {process:?}"));
    }
    for verb in [
        &["ls", "-a"][..],
        &["ls", "-a", "--json"],
        &["status", &session.id],
        &["explain", &session.id, "--json"],
        &["peek", &session.id],
        &["locks", "--json"],
        &["doctor", "--json"],
        &["kill", &session.id, "--json"],
        &["journal", "--json"],
        &["gc", "--json"],
    ] {
        let said = ground.ask(verb)?;
        let silent = !contains(&said.stdout, canary) && !contains(&said.stderr, canary);
        tally.hold(silent, || format!("`lariat {}` tells it", verb.join(" ")));
    }
    tally.hold(!is_alive(&session.shim.agent), || "it could not be ended".into());
    wait_until("its shim to be gone", || ground.processes().iter().all(|p| !p.comm.starts_with("lariat")))?;
    files_are_clean(ground, canary, tally)?;
    ground.forget(&session);
    Ok(())
}

/// An agent that dies at once: the error shows its last words, and nothing else.
fn failed(ground: &Ground, canary: &str, tally: &mut Tally) -> io::Result<()> {
    let given = format!("GIVEN={canary}-given");
    let args = ["launch", "codex", "--headless", "-p", "go on", "--force", "--env", &given];
    let output = with_tokens(ground.lariat(&args).env("TORTURE", "exit 3 0"), canary)?;
    tally.try_one("a secret into a launch that fails");
    tally.hold(!output.status.success(), || "a launch of what is not there succeeded".into());
    let silent = !contains(&output.stdout, canary) && !contains(&output.stderr, canary);
    tally.hold(silent, || "a launch that fails tells it".into());
    files_are_clean(ground, canary, tally)
}

fn control(ground: &Ground, canary: &str, tally: &mut Tally) -> io::Result<()> {
    let dir = ground.fresh("argument")?;
    let mut child =
        Command::new("tool").arg("plain").arg(&dir).arg(canary).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    wait_until("the tool", || fs::read_dir(&dir).is_ok_and(|d| d.count() > 0))?;
    let found = ground.processes().iter().any(|p| in_process(p, canary, false).is_some());
    end(&mut child);
    tally.control("hand a secret on in an argument", found);
    Ok(())
}

/// Where a process shows it, if it does.
fn in_process(process: &Seen, canary: &str, may_know: bool) -> Option<&'static str> {
    if process.argv.iter().any(|a| a.contains(canary)) {
        return Some("the arguments");
    }
    let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
    (!may_know && contains(&environment, canary)).then_some("the environment")
}

fn files_are_clean(ground: &Ground, canary: &str, tally: &mut Tally) -> io::Result<()> {
    let runtime = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR").unwrap_or_default());
    let mut folders = vec![ground.home.clone(), runtime, PathBuf::from("/tmp")];
    let mut read = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            // Mounted into the private /tmp so that programs can be run; nothing of ours is written there.
            if kind.is_dir() && !is_mounted(&entry.path()) {
                folders.push(entry.path());
            } else if kind.is_file() {
                read += 1;
                let content = fs::read(entry.path()).unwrap_or_default();
                tally.hold(!contains(&content, canary), || format!("{} has it", entry.path().display()));
            }
        }
    }
    tally.hold(read > 3, || "no files were there to look into".into());
    Ok(())
}

fn is_mounted(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|l| l.split(' ').nth(1).is_some_and(|point| Path::new(point) == path))
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|w| w == text.as_bytes())
}
