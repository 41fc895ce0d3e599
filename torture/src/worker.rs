//! An agent that works: it registers, leaves a transcript, and writes into the git worktree it
//! stands in until it is told to end.
//!
//! What it did goes into the log of its folder, one line each, after it was done. So whatever is in
//! the log was on the disk, and whoever started it is in the log in the order of starts. While it
//! lives it holds a lock on its session: a second one of the same session says so at once.
//!
//! It never removes or rewrites a byte: it makes files, adds to them, and commits.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use lariat_sys::process::Stat;
use serde_json::{Value, json};

use crate::agent::transcript;
use crate::chance::Chance;

/// How often it writes before it only sits.
const WRITES: usize = 60;

/// Adds a line to a log. It begins on a line of its own, because whoever wrote before may
/// have been killed between two pages of a line.
pub fn note(folder: &Path, line: &Value) -> io::Result<()> {
    let mut log = OpenOptions::new().append(true).create(true).open(folder.join("log"))?;
    log.write_all(format!("\n{line}\n").as_bytes())
}

/// The lines of a log. One that is not whole was not written to its end: its writer is
/// still at it, or was killed before it went on.
pub fn notes(folder: &Path) -> io::Result<Vec<Value>> {
    let text = fs::read(folder.join("log"))?;
    Ok(text.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

/// Something that is found again wherever it is.
pub fn token(chance: &mut Chance) -> String {
    format!("TK{:016x}", chance.number())
}

/// Where it is told to end, and with which code.
pub fn order(folder: &Path, handle: &str) -> PathBuf {
    folder.join(format!("end-{handle}"))
}

/// The agent.
pub fn main(args: &[String], folder: &Path) -> ExitCode {
    let after = |flag: &str| args.iter().skip_while(|a| *a != flag).nth(1);
    let again = after("--resume");
    let Some(id) = again.or_else(|| after("--session-id")) else { return ExitCode::from(2) };
    let handle = std::env::var("LARIAT_SESSION").unwrap_or_default();
    match work(id, &handle, again.is_some(), folder) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(9)
        }
    }
}

fn work(id: &str, handle: &str, again: bool, folder: &Path) -> io::Result<u8> {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let record = transcript(&home, id);
    if again && !record.exists() {
        return Err(io::Error::other(format!("No conversation found with session ID: {id}")));
    }
    let lock = File::create(folder.join(format!("lock-{handle}")))?;
    if lock.try_lock().is_err() {
        note(folder, &json!({"doubled": handle, "pid": std::process::id()}))?;
    }
    note(folder, &json!({"start": handle, "id": id, "pid": std::process::id(), "again": again}))?;
    let cwd = std::env::current_dir()?;
    fs::create_dir_all(record.parent().unwrap_or(&home))?;
    let mut said = OpenOptions::new().append(true).create(true).open(&record)?;
    let at = lariat_core::Time(lariat_sys::clock::now_ms());
    let line = json!({"type": "user", "message": {"role": "user", "content": "go on"}, "timestamp": at,
        "cwd": cwd, "sessionId": id, "version": "2.1.325"});
    writeln!(said, "{line}")?;
    let entry = home.join(".claude/sessions").join(format!("{}.json", std::process::id()));
    fs::create_dir_all(entry.parent().unwrap_or(&home))?;
    let start = Stat::read(std::process::id())?.start.to_string();
    let told = json!({"pid": std::process::id(), "sessionId": id, "cwd": cwd, "procStart": start,
        "kind": "interactive", "status": "busy"});
    fs::write(&entry, told.to_string())?;

    let mut chance = Chance::new(u64::from(std::process::id()) ^ u64::from_str_radix(&id[..8], 16).unwrap_or(0));
    let mut writes = 0;
    loop {
        if let Ok(code) = fs::read_to_string(order(folder, handle)) {
            let line = json!({"type": "assistant", "cwd": cwd, "sessionId": id, "timestamp": at,
                "message": {"id": format!("m{}", std::process::id()), "role": "assistant",
                    "content": [{"type": "text", "text": "done"}], "stop_reason": "end_turn"}});
            writeln!(said, "{line}")?;
            fs::remove_file(&entry)?;
            return Ok(code.trim().parse().unwrap_or(0));
        }
        if writes < WRITES {
            writes += 1;
            write(&cwd, handle, folder, &mut chance)?;
        }
        // Only so that not everything is written at once.
        thread::sleep(Duration::from_millis(2) + chance.moment(Duration::from_millis(8)));
    }
}

/// One piece of work.
fn write(cwd: &Path, handle: &str, folder: &Path, chance: &mut Chance) -> io::Result<()> {
    let path = match chance.below(20) {
        0..9 => format!("new/{}", token(chance)),
        9..13 => "README.md".to_owned(),
        13..16 => format!("own-{handle}"),
        16 | 17 => {
            git(cwd, &["add", "--all"]);
            return Ok(());
        }
        18 => {
            git(cwd, &["add", "--all"]);
            git(cwd, &["commit", "--quiet", "--message", "Some work"]);
            return Ok(());
        }
        _ => {
            // A commit that no branch holds.
            git(cwd, &["checkout", "--quiet", "--detach"]);
            git(cwd, &["commit", "--quiet", "--all", "--message", "On no branch"]);
            return Ok(());
        }
    };
    add(&cwd.join(path), folder, chance)
}

/// Adds something to a file, and notes it once it is there.
pub fn add(path: &Path, folder: &Path, chance: &mut Chance) -> io::Result<()> {
    let token = token(chance);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(format!("{token}\n").as_bytes())?;
    drop(file);
    note(folder, &json!({"wrote": token, "path": path}))
}

fn git(cwd: &Path, args: &[&str]) {
    let mut git = Command::new("git");
    git.current_dir(cwd).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Nothing to commit, or a lock left by one that was killed: then it stays as it is.
    let _ = git.status();
}
