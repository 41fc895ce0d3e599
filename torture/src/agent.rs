//! The agents that are tortured, and their tools.
//!
//! The rig stands in the sandbox under the name `claude` and, started with `--session-id ID`, leaves
//! a transcript with an open turn at once, as the real one does. What it does then is in its
//! variable `TORTURE`:
//!
//! | word | does |
//! |---|---|
//! | `sit` (or nothing) | sits still |
//! | `exit N US` | ends with code N after US microseconds |
//! | `signal N US` | ends by signal N |
//! | `echo` | answers every line it is told |
//! | `tree SEED DIR` | has tools of every unruly kind; each makes a file in DIR when it is there |
//! | `nest DIR` | launches another session from within, as a tool would |
//! | `work DIR` | works in git and keeps a log of it: see [`crate::worker`] |

use std::io::{BufRead as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use std::{fs, io, thread};

use rustix::process::{Signal, getpid, kill_process, setsid};

use crate::chance::Chance;

/// How many a forker makes at most, so that a wrong way on purpose does not fill the machine.
const MOST: u64 = 40;

/// The agent.
pub fn main(args: &[String]) -> ExitCode {
    let word = std::env::var("TORTURE").unwrap_or_default();
    if let Some(folder) = word.strip_prefix("work ") {
        return crate::worker::main(args, Path::new(folder));
    }
    let id = args.iter().skip_while(|a| *a != "--session-id").nth(1);
    if let Some(id) = id {
        // Without its record the session could not be told of; a test would see that.
        let _ = record(id);
    }
    let words: Vec<&str> = word.split_whitespace().collect();
    match words[..] {
        ["exit", code, us] => {
            pause(us);
            return ExitCode::from(code.parse::<u8>().unwrap_or(99));
        }
        ["signal", number, us] => {
            pause(us);
            if let Some(signal) = number.parse().ok().and_then(Signal::from_named_raw) {
                let _ = kill_process(getpid(), signal);
            }
        }
        ["echo"] => {
            for line in io::stdin().lock().lines() {
                let Ok(line) = line else { break };
                let mut out = io::stdout();
                let _ = writeln!(out, "got {line}").and_then(|()| out.flush());
            }
            return ExitCode::from(3);
        }
        ["tree", seed, dir] => grow(seed.parse().unwrap_or(0), dir),
        ["nest", dir] => {
            let told = Command::new("lariat")
                .args(["launch", "claude", "--json", "--force"])
                .env("TORTURE", "sit")
                .output()
                .map(|o| o.stdout)
                .unwrap_or_default();
            let _ = fs::write(format!("{dir}/nested.tmp"), told);
            let _ = fs::rename(format!("{dir}/nested.tmp"), format!("{dir}/nested"));
        }
        _ => {}
    }
    sit()
}

fn pause(us: &str) {
    thread::sleep(Duration::from_micros(us.parse().unwrap_or(0)));
}

fn sit() -> ! {
    loop {
        thread::park();
    }
}

/// Where the transcript of a session lies.
pub fn transcript(home: &Path, id: &str) -> PathBuf {
    home.join(".claude/projects/torture").join(format!("{id}.jsonl"))
}

fn record(id: &str) -> io::Result<()> {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let path = transcript(&home, id);
    fs::create_dir_all(path.parent().unwrap_or(&home))?;
    let cwd = std::env::current_dir()?;
    let line = serde_json::json!({"type": "user", "message": {"role": "user", "content": "go on"},
        "timestamp": "2026-11-15T07:00:00.000Z", "cwd": cwd, "sessionId": id, "version": "2.1.325"});
    fs::write(path, format!("{line}\n"))
}

/// The kinds of tools. The last two are found by no mark and no descent.
const KINDS: [&str; 6] = ["plain", "apart", "deaf", "orphan", "bare", "forker"];

fn grow(seed: u64, dir: &str) {
    let mut chance = Chance::new(seed);
    for kind in KINDS {
        start(kind, dir, chance.number());
    }
    for _ in 0..chance.below(4) {
        let kind = *chance.pick(&KINDS);
        start(kind, dir, chance.number());
    }
}

/// How many files a tree makes at least: one for each of its own kinds.
pub const AT_LEAST: usize = KINDS.len();

fn start(kind: &str, dir: &str, seed: u64) {
    let seed = seed.to_string();
    let mut command = if kind == "deaf" {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' HUP INT TERM; exec \"$@\"", "sh", "tool"]);
        shell
    } else {
        Command::new("tool")
    };
    command.args([kind, dir, &seed]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _ = command.spawn();
}

/// A tool: it sits, each kind in its own way out of reach.
pub fn tool(args: &[String]) -> ExitCode {
    let [_, kind, dir, seed] = args else { return ExitCode::from(2) };
    let this = std::env::current_exe().unwrap_or_else(|_| "tool".into());
    // A child without a parent, in a session of its own, with nothing in its environment.
    let leave = |kind: &str| {
        let mut command = Command::new(&this);
        command.arg0("tool").args([kind, dir, seed]).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().is_ok()
    };
    match kind.as_str() {
        "apart" | "leaf" => drop(setsid()),
        "orphan" => {
            leave("apart");
            return ExitCode::SUCCESS;
        }
        "bare" => {
            leave("between");
            return ExitCode::SUCCESS;
        }
        "between" => {
            let _ = setsid();
            leave("leaf");
            return ExitCode::SUCCESS;
        }
        "forker" => {
            let _ = setsid();
            here(dir);
            let mut chance = Chance::new(seed.parse().unwrap_or(0));
            for _ in 0..MOST {
                leave(if chance.below(2) == 0 { "between" } else { "apart" });
                thread::sleep(Duration::from_micros(chance.below(1500)));
            }
        }
        _ => {}
    }
    here(dir);
    sit()
}

fn here(dir: &str) {
    let _ = fs::write(format!("{dir}/{}", std::process::id()), "");
}
