//! Asking git, with nothing of the repository's run.
//!
//! # Theory of operation
//!
//! A repository may name programs that git runs by itself: hooks, a file system
//! monitor, filters, merge drivers, ssh commands, pagers, editors. An agent that
//! works in a worktree can write them. So every call goes through [`Git::run`],
//! which
//!
//! - lets only the subcommands of [`CALLS`] through, none of which needs them;
//! - says on the command line, which beats every file, that there are none; the
//!   names of filters and merge drivers are read from the configuration first, or,
//!   for comparing, that is not read at all (see [`crate::apart`]);
//! - takes the environment away but for a few names;
//! - never fetches, prompts, pages or recurses into submodules;
//! - ends the call, with all it started, at a deadline, and when lariat dies;
//! - bounds what it reads.
//!
//! One exception, by choice: when a new worktree is checked out, filters that
//! the user's own configuration defines (`git lfs install`) may run, as they do
//! for any checkout of that user. Those that the repository defines never do.
//!
//! The repository of a worktree is never looked up by the `.git` in it, which its
//! agent can rewrite: it was stored when the worktree was made.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use lariat_sys::point::point;
use lariat_sys::process::Identity;
use lariat_sys::spawn;
use lariat_sys::tree::Tree;

use crate::apart::Apart;

/// The subcommands that are ever called.
pub const CALLS: [&str; 15] = [
    "cat-file",
    "check-ignore",
    "check-ref-format",
    "config",
    "diff",
    "fast-import",
    "for-each-ref",
    "ls-files",
    "ls-tree",
    "merge-tree",
    "read-tree",
    "rev-list",
    "rev-parse",
    "update-ref",
    "worktree",
];

/// How long a question may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a checkout or a save may take.
const LONG: Duration = Duration::from_secs(30 * 60);
/// How much a call may tell.
const MOST: u64 = 1 << 30;

/// What is said on every command line.
const SETTINGS: [&str; 25] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.pager=cat",
    "core.editor=false",
    "core.askPass=",
    "core.sshCommand=false",
    "core.gitProxy=",
    "core.alternateRefsCommand=",
    "core.untrackedCache=false",
    "core.quotePath=true",
    "core.fsync=all",
    "credential.helper=",
    "diff.external=",
    "submodule.recurse=false",
    "uploadpack.packObjectsHook=",
    "protocol.allow=never",
    "gc.auto=0",
    "maintenance.auto=false",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "gpg.program=false",
    "log.showSignature=false",
    "merge.renormalize=false",
    "advice.detachedHead=false",
    "checkout.workers=1",
];

/// What git is told of our environment.
const KEPT: [&str; 10] = [
    "PATH",
    "HOME",
    "XDG_CONFIG_HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "LANG",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
];

/// Why git did not do it.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// It could not be run.
    #[error("git could not be run: {0}; is it installed?")]
    Run(io::Error),
    /// It said no.
    #[error("git {0}: {1}")]
    Failed(String, String),
    /// It took too long.
    #[error("git {0} did not end within {1:?} and was ended")]
    Late(String, Duration),
    /// It told too much, or what cannot be read.
    #[error("git {0} printed something unexpected: {1}")]
    Odd(String, String),
}

/// A repository, as git is to see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Git {
    folder: PathBuf,
    git_dir: Option<PathBuf>,
    index: Option<PathBuf>,
    apart: Option<Apart>,
}

/// What a call told.
#[derive(Debug)]
pub struct Told {
    /// How it ended.
    pub status: ExitStatus,
    /// What it told.
    pub stdout: Vec<u8>,
    /// It told more.
    pub cut: bool,
    /// What it complained of.
    pub stderr: String,
}

/// What a call reads: it is written while the answer is read.
pub type Feed<'a> = &'a mut (dyn FnMut(&mut dyn Write) -> io::Result<()> + Send);

impl Git {
    /// In a directory whose repository git looks up.
    pub fn within(folder: &Path) -> Git {
        Git { folder: folder.to_owned(), git_dir: None, index: None, apart: None }
    }

    /// In a worktree whose repository is known.
    pub fn of(worktree: &Path, git_dir: &Path) -> Git {
        Git { folder: worktree.to_owned(), git_dir: Some(git_dir.to_owned()), index: None, apart: None }
    }

    /// The same, with another index.
    pub fn with_index(&self, index: &Path) -> Git {
        Git { index: Some(index.to_owned()), ..self.clone() }
    }

    /// The same, with what is told instead of what the repository says.
    pub(crate) fn apart(self, apart: Apart) -> Git {
        Git { apart: Some(apart), ..self }
    }

    /// The same repository, seen from another directory of it.
    pub fn at(&self, folder: &Path) -> Git {
        Git { folder: folder.to_owned(), ..self.clone() }
    }

    /// Asks, and takes what is told if it went well.
    pub fn ask<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Result<Vec<u8>, GitError> {
        let told = self.run(arguments, None, PATIENCE)?;
        well(told, arguments)
    }

    /// Asks, and takes so many bytes of what is told; whether there was more.
    pub fn ask_at_most<A: AsRef<OsStr>>(&self, arguments: &[A], most: u64) -> Result<(Vec<u8>, bool), GitError> {
        let settings = self.settings(arguments)?;
        let told = self.call(arguments, &settings, None, PATIENCE, Most::Cut(most))?;
        let cut = told.cut;
        Ok((well(told, arguments)?, cut))
    }

    /// Asks for one line.
    pub fn line<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Result<String, GitError> {
        let told = self.ask(arguments)?;
        let text = String::from_utf8(told).map_err(|_| odd(arguments, "not UTF-8"))?;
        Ok(text.trim_end_matches('\n').to_owned())
    }

    /// Asks for one path.
    pub fn path<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Result<PathBuf, GitError> {
        let mut told = self.ask(arguments)?;
        if told.last() == Some(&b'\n') {
            told.pop();
        }
        Ok(OsString::from_vec(told).into())
    }

    /// Asks for one line that there may be none of: a question whose answer is no.
    pub fn maybe<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Result<Option<String>, GitError> {
        let told = self.run(arguments, None, PATIENCE)?;
        if !told.status.success() {
            return Ok(None);
        }
        Ok(String::from_utf8(told.stdout).ok().map(|s| s.trim_end_matches('\n').to_owned()).filter(|s| !s.is_empty()))
    }

    /// Does something that may take long, with something to read.
    pub fn feed<A: AsRef<OsStr>>(&self, arguments: &[A], feed: Feed<'_>) -> Result<Vec<u8>, GitError> {
        let told = self.run(arguments, Some(feed), LONG)?;
        well(told, arguments)
    }

    /// Does something that may take long.
    pub fn act<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Result<Vec<u8>, GitError> {
        let told = self.run(arguments, None, LONG)?;
        well(told, arguments)
    }

    /// Runs git; how it ended is the caller's to judge.
    pub fn run<A: AsRef<OsStr>>(
        &self,
        arguments: &[A],
        feed: Option<Feed<'_>>,
        patience: Duration,
    ) -> Result<Told, GitError> {
        let settings = self.settings(arguments)?;
        self.call(arguments, &settings, feed, patience, Most::Refuse)
    }

    /// What is said on the command line of a call that may be made.
    fn settings<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Result<Vec<OsString>, GitError> {
        let first = arguments.first().map(|a| a.as_ref().to_string_lossy().into_owned()).unwrap_or_default();
        if !CALLS.contains(&first.as_str()) {
            return Err(odd(arguments, "not a call that lariat makes"));
        }
        let mut settings: Vec<OsString> = SETTINGS.iter().map(OsString::from).collect();
        match first.as_str() {
            "worktree" | "merge-tree" | "read-tree" | "fast-import" => settings.extend(self.disarmed(false)?),
            // Looking runs nobody's filter.
            "diff" if self.apart.is_none() => settings.extend(self.disarmed(true)?),
            _ => {}
        }
        Ok(settings)
    }

    fn call<A: AsRef<OsStr>>(
        &self,
        arguments: &[A],
        settings: &[OsString],
        feed: Option<Feed<'_>>,
        patience: Duration,
        most: Most,
    ) -> Result<Told, GitError> {
        #[expect(clippy::disallowed_methods, reason = "the one place that starts git")]
        let mut command = Command::new("git");
        command.env_clear().envs(KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.envs([
            ("LC_ALL", "C.UTF-8"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_ASKPASS", "false"),
            ("SSH_ASKPASS", "false"),
            ("GIT_SSH_COMMAND", "false"),
            ("GIT_PAGER", "cat"),
            ("GIT_EDITOR", "false"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_ALLOW_PROTOCOL", "none"),
            ("GIT_ADVICE", "0"),
        ]);
        command.current_dir(&self.folder).arg("--no-pager");
        if let Some(git_dir) = &self.git_dir {
            command.arg(joined("--git-dir=", git_dir.as_os_str())).arg(joined("--work-tree=", self.folder.as_os_str()));
        }
        if let Some(index) = &self.index {
            command.env("GIT_INDEX_FILE", index);
        }
        if let Some(apart) = &self.apart {
            command.env("GIT_OBJECT_DIRECTORY", &apart.objects);
            command.envs(["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"].map(|name| (name, "/dev/null")));
        }
        let more = self.apart.iter().flat_map(|apart| &apart.settings);
        for setting in more.chain(settings) {
            command.arg("-c").arg(setting);
        }
        command.args(arguments);
        let input = if feed.is_some() { Stdio::piped() } else { Stdio::null() };
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        spawn::end_with_us(&mut command);
        if arguments.first().is_some_and(|a| a.as_ref() == "diff") {
            point("git.diff");
        }
        run_bounded(&mut command, feed, patience, most, &shown(arguments))
    }

    /// Settings that take the programs away which the repository's configuration
    /// gives to filters and merge drivers; those of the user's filters too, if told.
    fn disarmed(&self, users_too: bool) -> Result<Vec<OsString>, GitError> {
        let settings: Vec<OsString> = SETTINGS.iter().map(OsString::from).collect();
        let list = ["config", "--list", "--show-scope", "--name-only", "-z"];
        let told = well(self.call(&list, &settings, None, PATIENCE, Most::Refuse)?, &list)?;
        let mut found = Vec::new();
        let mut words = told.split(|b| *b == 0);
        while let (Some(scope), Some(key)) = (words.next(), words.next()) {
            let users = matches!(scope, b"global" | b"system") && !users_too;
            let name = |kind: &[u8]| {
                let rest = key.strip_prefix(kind)?;
                rest.iter().rposition(|b| *b == b'.').map(|dot| rest[..dot].to_vec())
            };
            let said = |kind: &str, name: &[u8], what: &str| {
                OsString::from_vec([kind.as_bytes(), name, b".", what.as_bytes()].concat())
            };
            if let Some(filter) = name(b"filter.").filter(|_| !users) {
                found.extend(["clean=", "smudge=", "process=", "required=false"].map(|w| said("filter.", &filter, w)));
            }
            // A driver that fails is a conflict, which is told.
            if let Some(driver) = name(b"merge.") {
                found.push(said("merge.", &driver, "driver=false"));
            }
        }
        // A name with `=` cannot be said on the command line: then nothing is done at all.
        if let Some(bad) = found.iter().find(|s| s.as_bytes().iter().filter(|b| **b == b'=').count() > 1) {
            return Err(GitError::Odd("config".into(), format!("{} cannot be switched off", bad.to_string_lossy())));
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}

fn joined(option: &str, value: &OsStr) -> OsString {
    let mut all = OsString::from(option);
    all.push(value);
    all
}

fn shown<A: AsRef<OsStr>>(arguments: &[A]) -> String {
    arguments.iter().take(2).map(|a| a.as_ref().to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

fn odd<A: AsRef<OsStr>>(arguments: &[A], why: &str) -> GitError {
    GitError::Odd(shown(arguments), why.into())
}

fn well<A: AsRef<OsStr>>(told: Told, arguments: &[A]) -> Result<Vec<u8>, GitError> {
    if told.status.success() {
        return Ok(told.stdout);
    }
    let lines: Vec<&str> = told.stderr.lines().filter(|l| !l.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(4)..].join("; ");
    Err(GitError::Failed(shown(arguments), if last.is_empty() { told.status.to_string() } else { last }))
}

/// Runs a command to its end, or ends it with all that it started.
pub(crate) fn run_bounded(
    command: &mut Command,
    feed: Option<Feed<'_>>,
    patience: Duration,
    most: Most,
    shown: &str,
) -> Result<Told, GitError> {
    let until = Instant::now() + patience;
    let mut child = command.spawn().map_err(GitError::Run)?;
    let (identity, pidfd) = Identity::of_child(child.id()).map_err(GitError::Run)?;
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let end = || {
        let tree = Tree {
            root: Some(identity.clone()),
            marks: Vec::new(),
            spared: Default::default(),
            aside: Default::default(),
        };
        let _ = tree.end(&[], Duration::ZERO);
    };
    std::thread::scope(|scope| {
        let told = scope.spawn(move || read(output, most));
        let complained = scope.spawn(move || read(errors, Most::Cut(1 << 20)));
        let fed = scope.spawn(move || match (input, feed) {
            (Some(mut input), Some(feed)) => feed(&mut input).and_then(|()| input.flush()),
            _ => Ok(()),
        });
        let late = !wait(&pidfd, until);
        if late {
            end();
        }
        let status = child.wait().map_err(GitError::Run)?;
        let odd = |why: String| GitError::Odd(shown.into(), why);
        let panicked = || odd("a reading thread failed".into());
        let fed = fed.join().map_err(|_| panicked())?;
        let stdout = told.join().map_err(|_| panicked())?;
        let (stderr, _) = complained.join().map_err(|_| panicked())?.unwrap_or_default();
        if late {
            return Err(GitError::Late(shown.into(), patience));
        }
        // A call that ended early tells why by itself; one that went well must have read all.
        if let (Err(e), true) = (fed, status.success()) {
            return Err(odd(e.to_string()));
        }
        let (stdout, cut) = stdout.map_err(|e| odd(e.to_string()))?;
        Ok(Told { status, stdout, cut, stderr: String::from_utf8_lossy(&stderr).into_owned() })
    })
}

/// What becomes of more than may be told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Most {
    /// More than [`MOST`] bytes are refused.
    Refuse,
    /// What is beyond so many bytes is left out.
    Cut(u64),
}

fn read(from: Option<impl io::Read>, most: Most) -> io::Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    let Some(mut from) = from else { return Ok((bytes, false)) };
    let limit = if let Most::Cut(limit) = most { limit } else { MOST };
    from.by_ref().take(limit).read_to_end(&mut bytes)?;
    let more = io::copy(&mut from, &mut io::sink())? > 0;
    match most {
        Most::Refuse if more => Err(io::Error::other(format!("more than {limit} bytes"))),
        _ => Ok((bytes, more)),
    }
}

/// Waits for an exit; `false` if the time was up before.
fn wait(pidfd: &std::os::fd::OwnedFd, until: Instant) -> bool {
    lariat_sys::process::wait_exit(pidfd, until.saturating_duration_since(Instant::now())).unwrap_or(false)
}

#[cfg(test)]
#[path = "git_tests.rs"]
mod tests;
