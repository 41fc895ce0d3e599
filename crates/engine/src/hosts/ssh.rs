//! Calling the lariat of another machine, by the user's own ssh.
//!
//! Which keys, users, ports and jumps lead there is in the user's ssh configuration and nowhere
//! else; whoever wants connections to persist says so there. What is said here is only what a call
//! that nobody attends needs: it asks nothing, forwards nothing, and ends.
//!
//! ssh hands words to a shell there, joined by blanks. So every word is quoted here ([`quoted`]),
//! or, where it may be secret, goes by standard input.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lariat_core::Untrusted;
use lariat_sys::bounded::{self, Ran, Stream};
use lariat_sys::spawn;

use crate::hosts::{HERE, Host, WHILE_HEARD};

/// How much an answer may hold.
const MOST: usize = 64 << 20;
/// How much of what ssh complains of is kept.
const COMPLAINT: usize = 64 << 10;
/// How long a way there may take to open where something is to be done.
const CONNECT: Duration = Duration::from_secs(10);
/// The code by which ssh says that it failed itself.
const FAILED: i32 = 255;
/// The codes by which a shell says that there is no such program.
const MISSING: [i32; 2] = [126, 127];

/// What every call says.
const ALWAYS: [&str; 5] =
    ["ClearAllForwardings=yes", "ForwardX11=no", "PermitLocalCommand=no", "RemoteCommand=none", "LogLevel=ERROR"];

/// What a call is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Looking, for so long at most.
    Look(Duration),
    /// Doing something there, which goes on if we end.
    Act,
    /// Hearing of something there for as long as we are here.
    Follow,
    /// With this terminal.
    Terminal,
}

/// Why a host gave no answer, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreached {
    /// The cause, in ssh's words or ours.
    pub why: String,
    /// What to do next.
    pub next: String,
}

impl Unreached {
    /// Both in a sentence.
    pub fn told(&self) -> String {
        format!("{}; {}", self.why, self.next)
    }
}

/// A word for a shell, whichever it is.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The command that runs lariat there with these words.
fn command(host: &Host, call: Call, words: &[String]) -> Command {
    #[expect(clippy::disallowed_methods, reason = "the one place that starts ssh")]
    let mut command = Command::new("ssh");
    let mut say = |option: &str| {
        command.args(["-o", option]);
    };
    ALWAYS.into_iter().for_each(&mut say);
    let connect = if let Call::Look(patience) = call { patience } else { CONNECT };
    say(&format!("ConnectTimeout={}", connect.as_secs().max(1)));
    if call != Call::Terminal {
        say("BatchMode=yes");
    }
    match call {
        Call::Look(_) => say("ForwardAgent=no"),
        // A machine that fell silent is given up on.
        Call::Act | Call::Follow => ["ServerAliveInterval=5", "ServerAliveCountMax=3"].into_iter().for_each(say),
        Call::Terminal => {}
    }
    command.arg(if call == Call::Terminal { "-t" } else { "-T" }).arg("--").arg(&host.destination);
    let here = if call == Call::Follow { WHILE_HEARD } else { "1" };
    // The tilde is the shell's there, not a letter of a name.
    let lariat = match host.lariat.as_deref() {
        None => "lariat".to_owned(),
        Some(path) => path.strip_prefix("~/").map_or_else(|| quoted(path), |rest| format!("~/{}", quoted(rest))),
    };
    let words: Vec<String> = words.iter().map(|w| quoted(w)).collect();
    command.arg(["env", &format!("{HERE}={here}"), &lariat].join(" ")).args(words);
    command
}

/// What a lariat answered.
#[derive(Debug)]
pub struct Reply {
    /// Its exit code.
    pub code: i32,
    /// What it printed.
    pub out: Vec<u8>,
    /// What it complained of.
    pub err: String,
}

/// Asks the lariat there, and takes no longer than `patience`.
pub fn ask(host: &Host, words: &[String], patience: Duration) -> Result<Reply, Unreached> {
    let mut command = command(host, Call::Look(patience), words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn::end_with_us(&mut command);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut hear = |stream, bytes: &[u8]| {
        match stream {
            Stream::Out if out.len() + bytes.len() > MOST => {
                return Err(io::Error::other(format!("it answered with more than {} MB", MOST >> 20)));
            }
            Stream::Out => out.extend_from_slice(bytes),
            Stream::Err => err.extend_from_slice(&bytes[..bytes.len().min(COMPLAINT.saturating_sub(err.len()))]),
        }
        Ok(())
    };
    let ran = bounded::run(&mut command, Some(Instant::now() + patience), |i| Ok(Some(i)), &mut hear);
    let err = String::from_utf8_lossy(&err).into_owned();
    match ran {
        Ok(Ran::Ended(status)) => {
            let code = status.code().unwrap_or(FAILED);
            unreached(host, code, &err).map_or(Ok(Reply { code, out, err }), Err)
        }
        Ok(Ran::Late) => {
            let why = format!("it did not answer within {:.1} s", patience.as_secs_f32());
            Err(Unreached {
                why,
                next: format!("see how long `ssh {} true` takes, or give it more with --deadline", shown(host)),
            })
        }
        Err(e) => Err(not_run(host, &e)),
    }
}

/// What a verb that runs there reads from standard input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input<'a> {
    /// Nothing: what stands in ours is for somebody else.
    Nothing,
    /// What we are given.
    Ours,
    /// Its own command line, after this one word that says so: it may be secret.
    Words(&'a str),
}

/// Shows what is said there.
pub type Show<'a> = dyn FnMut(Stream, &[u8]) -> io::Result<()> + 'a;

/// Runs a verb there and shows what it says; its exit code.
pub fn run(host: &Host, call: Call, words: &[String], input: Input<'_>, show: &mut Show<'_>) -> Result<i32, Unreached> {
    let (said, stdin) = match input {
        Input::Words(by) => (vec![by.to_owned()], Stdio::piped()),
        // Held open, so that the one there hears when we are gone.
        _ if call == Call::Follow => (words.to_vec(), Stdio::piped()),
        Input::Nothing => (words.to_vec(), Stdio::null()),
        Input::Ours => (words.to_vec(), Stdio::inherit()),
    };
    let mut command = command(host, call, &said);
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn::end_with_us(&mut command);
    let feed = |mut stdin: std::process::ChildStdin| match input {
        Input::Words(_) => stdin.write_all(words.join("\0").as_bytes()).map(|()| None),
        _ => Ok(Some(stdin)),
    };
    let mut err = Vec::new();
    let mut hear = |stream, bytes: &[u8]| {
        if stream == Stream::Err {
            err.extend_from_slice(&bytes[..bytes.len().min(COMPLAINT.saturating_sub(err.len()))]);
        }
        show(stream, bytes)
    };
    let ran = bounded::run(&mut command, None, feed, &mut hear).map_err(|e| not_run(host, &e))?;
    let code = match ran {
        Ran::Ended(status) => status.code().unwrap_or(FAILED),
        Ran::Late => FAILED,
    };
    unreached(host, code, &String::from_utf8_lossy(&err)).map_or(Ok(code), Err)
}

/// Gives this terminal to a verb that runs there; its exit code.
pub fn show(host: &Host, words: &[String]) -> Result<i32, Unreached> {
    let status = command(host, Call::Terminal, words).status().map_err(|e| not_run(host, &e))?;
    let code = status.code().unwrap_or(FAILED);
    unreached(host, code, "").map_or(Ok(code), Err)
}

/// Whether such an end means that no lariat was reached.
fn unreached(host: &Host, code: i32, err: &str) -> Option<Unreached> {
    let last = err.lines().rev().map(str::trim).find(|l| !l.is_empty());
    let last = last.map(|l| Untrusted::new(l).row_within(300));
    let name = &host.name;
    match code {
        FAILED => Some(Unreached {
            why: last.unwrap_or_else(|| "ssh failed without a word".into()),
            next: format!("`ssh {} true` must work without asking anything", shown(host)),
        }),
        code if MISSING.contains(&code) => Some(Unreached {
            why: format!("no lariat was found there ({})", last.unwrap_or_else(|| format!("exit code {code}"))),
            next: format!("`lariat host add {name} {} --lariat PATH` says where it is", shown(host)),
        }),
        _ => None,
    }
}

fn not_run(host: &Host, error: &io::Error) -> Unreached {
    let why = match error.kind() {
        io::ErrorKind::NotFound => "ssh is not installed here".to_owned(),
        _ => error.to_string(),
    };
    Unreached { why, next: format!("try `ssh {} true`", shown(host)) }
}

/// Its destination as a person types it.
fn shown(host: &Host) -> String {
    Untrusted::new(quoted(&host.destination)).row()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lariat_core::Time;

    fn host(lariat: Option<&str>) -> Host {
        Host { name: "box".into(), destination: "dev@box".into(), lariat: lariat.map(Into::into), at: Time(0) }
    }

    fn said(host: &Host, call: Call, words: &[&str]) -> Vec<String> {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        let command = command(host, call, &words);
        command.get_args().map(|a| a.to_str().unwrap().to_owned()).collect()
    }

    /// What a shell makes of the words, each between two marks.
    fn by_a_shell(words: &[String]) -> String {
        #[expect(clippy::disallowed_methods, reason = "the shell that ssh would hand them to")]
        let mut sh = Command::new("sh");
        let line = format!("printf '<%s>' {}", words.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(" "));
        String::from_utf8(sh.args(["-c", &line]).output().unwrap().stdout).unwrap()
    }

    #[test]
    fn every_word_arrives_as_it_was() {
        let odd = [
            "plain",
            "",
            "two words",
            "it's",
            "$HOME `id` $(id)",
            "a\nb;c|d&e>f",
            "\\",
            "*?[a]",
            "~root",
            "-x",
            "\"q\"",
            "é#!",
        ];
        let words: Vec<String> = odd.iter().map(|w| (*w).to_owned()).collect();
        let expected: String = odd.iter().map(|w| format!("<{w}>")).collect();
        assert_eq!(by_a_shell(&words), expected);
    }

    #[test]
    fn a_call_asks_nothing_and_names_its_machine_after_all_options() {
        let look = said(&host(None), Call::Look(Duration::from_secs(3)), &["ls", "--json"]);
        let at = look.iter().position(|a| a == "--").unwrap();
        assert_eq!(look[at + 1..], ["dev@box", "env LARIAT_HERE=1 lariat", "ls", "--json"]);
        for option in ["BatchMode=yes", "ConnectTimeout=3", "ForwardAgent=no", "RemoteCommand=none"] {
            assert!(look[..at].iter().any(|a| a == option), "{option}: {look:?}");
        }
        let there = said(&host(Some("~/my bin/lariat")), Call::Act, &["kill", "a b"]);
        assert_eq!(there[there.len() - 3..], ["env LARIAT_HERE=1 ~/'my bin/lariat'", "kill", "'a b'"]);
        assert!(!said(&host(None), Call::Terminal, &["attach", "x"]).iter().any(|a| a == "BatchMode=yes"));
    }

    #[test]
    fn what_failed_is_told_with_what_to_do() {
        let told = |code, err| unreached(&host(None), code, err).map(|u| u.told());
        assert_eq!(told(0, ""), None);
        assert_eq!(told(5, "warning"), None);
        let refused = told(255, "x\nssh: connect to host box port 22: Connection refused\r\n\n").unwrap();
        assert_eq!(
            refused,
            "ssh: connect to host box port 22: Connection refused; `ssh dev@box true` must work without asking anything"
        );
        let missing = told(127, "env: 'lariat': No such file or directory").unwrap();
        assert!(
            missing.contains("no lariat was found") && missing.contains("lariat host add box dev@box --lariat PATH")
        );
    }
}
