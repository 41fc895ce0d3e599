//! Processes that look like an agent and do only what the test tells them.
//!
//! `lariat-lookalike` is put into the sandbox under the wanted name, so `comm`, `argv` and the
//! executable are those of an agent, and is told by lines on its input to hold locks, keep files
//! open, write into a store, have children, or end. It answers each line, so a test knows when it
//! is done. Untold, it sits still; it never acts by itself.
//!
//! | line | does |
//! |---|---|
//! | `flock PATH` | locks the file, made if missing, and keeps it |
//! | `open PATH`, `read PATH` | keeps the file open, for writing or only for reading |
//! | `log PATH TEXT` | adds a line to the file and keeps it open, at the end of that line |
//! | `close` | lets go of every file it holds |
//! | `write PATH TEXT`, `write-line PATH TEXT` | replaces the file, or adds a line to it |
//! | `remove PATH` | removes the file |
//! | `chdir PATH` | stands elsewhere |
//! | `spawn [NAME=VALUE…]` | has a child that sits still; answers its pid |
//! | `detach [NAME=VALUE…]` | the same, in a session of its own |
//! | `exit N` | ends |

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, Seek, Write},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use crate::{Child, DEADLINE, Program, Sandbox, Signal, Stdin, built, wait_for};

/// Set for a child of a lookalike: it only sits, and leads its own session if the value says so.
const SITS: &str = "LARIAT_LOOKALIKE";

/// A running lookalike.
pub struct Lookalike {
    child: Child,
    told: AtomicUsize,
}

impl std::ops::Deref for Lookalike {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl Lookalike {
    /// A program of this name, which may have folders in it, to be given arguments and started.
    pub fn program(sandbox: &Sandbox, name: &str) -> Program {
        let path = sandbox.install_copy(name, &built("lariat-lookalike"));
        let short = Path::new(name).file_name().and_then(|name| name.to_str()).unwrap_or(name);
        sandbox.program(path).arg0(short).stdin(Stdin::Pipe)
    }

    /// Starts it and waits until it listens.
    pub fn start(sandbox: &Sandbox, program: &Program) -> Self {
        let lookalike = Self { child: sandbox.spawn(program), told: AtomicUsize::new(0) };
        lookalike.tell("ready");
        lookalike
    }

    /// Starts one that ignores these signals.
    pub fn start_ignoring(sandbox: &Sandbox, program: &Program, signals: &[Signal]) -> Self {
        Self::start(sandbox, &program.clone().ignoring(signals))
    }

    /// Tells it one line, and returns what it answers.
    ///
    /// # Panics
    /// When it does not answer, or could not do it.
    #[track_caller]
    pub fn tell(&self, line: &str) -> String {
        let number = self.told.fetch_add(1, Ordering::Relaxed);
        self.child.write_line(line);
        let answer = wait_for(&format!("an answer to {line:?}"), DEADLINE, || {
            let said = self.child.stdout();
            let whole = &said[..said.rfind('\n')?];
            whole.lines().nth(number).map(str::to_owned)
        });
        match answer.split_once(' ') {
            Some(("ok", value)) => value.to_owned(),
            None if answer == "ok" => String::new(),
            _ => panic!("{line:?}: {answer}"),
        }
    }

    /// Tells it to have a child, which sits still; returns the pid in the world.
    #[track_caller]
    pub fn spawn(&self, env: &[(&str, &str)]) -> i32 {
        self.tell_spawn("spawn", env)
    }

    /// As [`spawn`](Self::spawn), in a session of its own.
    #[track_caller]
    pub fn detach(&self, env: &[(&str, &str)]) -> i32 {
        self.tell_spawn("detach", env)
    }

    #[track_caller]
    fn tell_spawn(&self, verb: &str, env: &[(&str, &str)]) -> i32 {
        let env: Vec<_> = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        self.tell(&format!("{verb} {}", env.join(" "))).parse().expect("a pid")
    }
}

/// The program `lariat-lookalike`.
pub fn main() {
    if let Some(how) = std::env::var_os(SITS) {
        if how == "detach" {
            // It is a fresh child and leads nothing yet, so this cannot fail.
            let _ = rustix::process::setsid();
        }
        drop(writeln!(io::stdout(), "here"));
        sit();
    }
    let mut held = Vec::new();
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let answer = match obey(&line, &mut held) {
            Ok(value) if value.is_empty() => "ok".to_owned(),
            Ok(value) => format!("ok {value}"),
            Err(error) => format!("error {error}"),
        };
        drop(writeln!(io::stdout(), "{answer}"));
    }
    sit();
}

fn sit() -> ! {
    loop {
        thread::park();
    }
}

fn obey(line: &str, held: &mut Vec<File>) -> io::Result<String> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (first, text) = rest.split_once(' ').unwrap_or((rest, ""));
    let mut keep = OpenOptions::new();
    keep.read(true).append(true).create(true);
    match verb {
        "ready" => {}
        "open" => held.push(keep.open(rest)?),
        "read" => held.push(File::open(rest)?),
        // The position after the line is what the kernel tells of the descriptor.
        "log" => {
            let mut file = keep.open(first)?;
            file.write_all(format!("{text}\n").as_bytes())?;
            held.push(file);
        }
        // As programs do that go to the end of what they append to before they write.
        "stand" => {
            let mut file = keep.open(first)?;
            file.seek(io::SeekFrom::End(0))?;
            held.push(file);
        }
        "flock" => {
            let file = keep.open(rest)?;
            file.try_lock().map_err(io::Error::other)?;
            held.push(file);
        }
        "close" => held.clear(),
        "write" => write(first, text, OpenOptions::new().write(true).truncate(true))?,
        "write-line" => write(first, &format!("{text}\n"), OpenOptions::new().append(true))?,
        "remove" => fs::remove_file(rest)?,
        "chdir" => std::env::set_current_dir(rest)?,
        "spawn" | "detach" => return spawn(verb, rest),
        "exit" => std::process::exit(rest.parse().map_err(io::Error::other)?),
        _ => return Err(io::Error::other("not understood")),
    }
    Ok(String::new())
}

fn write(path: &str, text: &str, how: &mut OpenOptions) -> io::Result<()> {
    if let Some(folder) = Path::new(path).parent() {
        fs::create_dir_all(folder)?;
    }
    how.create(true).open(path)?.write_all(text.as_bytes())
}

fn spawn(verb: &str, env: &str) -> io::Result<String> {
    let mut child = Command::new(std::env::current_exe()?);
    child.env(SITS, verb).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    child.envs(env.split_whitespace().filter_map(|pair| pair.split_once('=')));
    let mut child = child.spawn()?;
    // It says when it stands where it should.
    let mut said = String::new();
    let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    io::BufReader::new(stdout).read_line(&mut said)?;
    Ok(child.id().to_string())
}
