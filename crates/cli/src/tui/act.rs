//! Acting, by the command line's own verbs.
//!
//! What a key does is a command line, run by this very program in a process of its
//! own: so there is one way to do a thing, with the same refusals and the same words,
//! a verb that hangs keeps nobody from drawing, and it goes on if the screen is left.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use lariat_core::Untrusted;

use crate::tui::{Event, Teller};

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order {
    /// What it is, for a person: `stop brisk-heron`.
    pub what: String,
    pub args: Vec<String>,
    /// What it reads.
    pub stdin: String,
    /// The command line that a person would type for it.
    pub shown: String,
}

impl Order {
    /// An order whose command line is short enough to tell what it does.
    pub fn new(verb: &str, target: Option<&Target>, more: &[&str]) -> Order {
        let args = |name: Option<&String>| -> Vec<String> {
            let more = more.iter().map(|a| (*a).to_owned());
            [verb.to_owned()].into_iter().chain(name.cloned()).chain(more).collect()
        };
        let shown = args(target.map(|t| &t.name));
        Order {
            what: [verb, target.map_or("", |t| &t.name)].join(" ").trim_end().to_owned(),
            shown: line(&shown),
            args: args(target.map(|t| &t.id)),
            stdin: String::new(),
        }
    }

    /// Only if this is what the session asks when it is carried out.
    pub fn expecting(mut self, asked: &Untrusted) -> Order {
        self.args.insert(2, format!("--expect={}", asked.raw()));
        self
    }
}

/// Who is meant: by its id, which is exact, and as a person calls it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub id: String,
    pub name: String,
}

/// A command line as it is typed.
pub fn line(args: &[String]) -> String {
    let quoted = |arg: &String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+".contains(c);
        if !arg.is_empty() && arg.chars().all(plain) {
            arg.clone()
        } else {
            format!("'{}'", arg.replace('\'', r"'\''"))
        }
    };
    let line: Vec<String> = args.iter().map(quoted).collect();
    Untrusted::new(format!("lariat {}", line.join(" "))).row()
}

/// How it ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    pub code: Option<i32>,
    /// What it printed.
    pub out: String,
    /// What it complained of.
    pub err: String,
}

/// This program, with other arguments.
pub fn program() -> Command {
    #[expect(clippy::disallowed_methods, reason = "a person pressed the key for it")]
    let mut command = Command::new("/proc/self/exe");
    command.arg0("lariat");
    command
}

/// Begins it; what it prints and how it ends is told under this number.
pub fn start(number: u64, order: Order, columns: u16, tell: Teller) {
    let work = move || {
        let ended = run(number, &order, columns, &tell).unwrap_or_else(|e| Ended {
            code: None,
            out: String::new(),
            err: format!("{}: {e}", order.shown),
        });
        tell.tell(Event::Ended(number, ended));
    };
    // Without a thread nothing was begun; that is rare enough to be told by nothing happening.
    let _ = std::thread::Builder::new().name("act".into()).spawn(work);
}

fn run(number: u64, order: &Order, columns: u16, tell: &Teller) -> io::Result<Ended> {
    let mut command = program();
    // In a group of its own: what ends this terminal does not cut it short.
    command.args(&order.args).process_group(0).env("COLUMNS", columns.to_string());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        if let Some(mut stdin) = stdin {
            scope.spawn(move || drop(stdin.write_all(order.stdin.as_bytes())));
        }
        let err = scope.spawn(move || {
            let mut text = Vec::new();
            stderr.map(|mut e| e.read_to_end(&mut text)).transpose().map(|_| text).unwrap_or_default()
        });
        let mut out = String::new();
        if let Some(stdout) = stdout {
            let mut lines = BufReader::new(stdout);
            let mut bytes = Vec::new();
            while lines.read_until(b'\n', &mut bytes)? > 0 {
                let line = String::from_utf8_lossy(&bytes).into_owned();
                tell.tell(Event::Said(number, line.trim_end().to_owned()));
                out.push_str(&line);
                bytes.clear();
            }
        }
        let err = String::from_utf8_lossy(&err.join().unwrap_or_default()).into_owned();
        Ok(Ended { code: child.wait()?.code(), out, err })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_typed() {
        let target = Target { id: "claude:1c80".into(), name: "brisk-heron".into() };
        let order = Order::new("deny", Some(&target), &["it's not", "here"]);
        assert_eq!(order.args, ["deny", "claude:1c80", "it's not", "here"]);
        assert_eq!(order.shown, r"lariat deny brisk-heron 'it'\''s not' here");
    }
}
