//! Starting a shim, for whoever launches a session.
//!
//! # Theory of operation
//!
//! The launcher has made the session's folder and put `launch.json` there, durably. The
//! shim is started with two pipes and leaves its parent at once. By its standard input
//! it gets the agent's environment, which may hold secrets: so these stand in no file,
//! in no argument, and not in the shim's own environment. Its standard output answers.
//! It says one line: `started`, once the agent runs and `shim.json` is durable, or
//! `failed` and why. A pipe that closes without a line is a shim that died; what then
//! became of the agent must be looked for.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::record::{self, RecordError, Shim};
use crate::{AFTER, ENVIRONMENT, HELD, TAKE_OVER, VERB};

/// Why no shim holds the session.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program could not be run.
    #[error("cannot run {0} as a shim: {1}")]
    Run(PathBuf, io::Error),
    /// It said why not.
    #[error("{0}")]
    Failed(String),
    /// Another one holds the session, or is about to.
    #[error("{0}")]
    Held(String),
    /// It died without a word: an agent may have been started.
    #[error("the shim died without a word; an agent may have been started")]
    Died,
    /// It runs, but its record cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Starts a shim for a folder with a launch record; `program` is lariat itself, `env`
/// the agent's environment. Returns when the agent runs.
pub fn start(program: &Path, folder: &Path, env: &[(OsString, OsString)]) -> Result<Shim, StartError> {
    run(program, folder, false, env)
}

/// Starts one in place of one that was killed.
pub fn take_over(program: &Path, folder: &Path) -> Result<Shim, StartError> {
    run(program, folder, true, &[])
}

fn run(program: &Path, folder: &Path, take_over: bool, env: &[(OsString, OsString)]) -> Result<Shim, StartError> {
    let failed = |e| StartError::Run(program.to_owned(), e);
    #[expect(clippy::disallowed_methods, reason = "the one place where a shim is started")]
    let mut command = Command::new(program);
    command.arg(VERB).arg(if take_over { TAKE_OVER } else { ENVIRONMENT }).arg(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"LARIAT_") && name != crate::MARK));
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        let given: Vec<u8> = env.iter().flat_map(|(n, v)| [n.as_bytes(), b"=", v.as_bytes(), b"\0"].concat()).collect();
        stdin.write_all(&given).map_err(failed)?;
    }
    let mut line = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut line).map_err(failed)?;
    }
    child.wait().map_err(failed)?;
    match line.trim_end() {
        "started" => record::read(folder, record::SHIM)?.ok_or(StartError::Died),
        line => Err(match line.strip_prefix("failed ") {
            Some(why) if why.starts_with(HELD) => StartError::Held(why.to_owned()),
            Some(why) => StartError::Failed(why.to_owned()),
            None => StartError::Died,
        }),
    }
}

/// Starts what the launcher wants run once the end is on record, if anything. It is
/// on its own: nobody waits for it.
pub fn after(folder: &Path) {
    let launch: Option<record::Launch> = record::read(folder, record::LAUNCH).ok().flatten();
    let Some(env) = launch.and_then(|l| l.after) else { return };
    let Ok(program) = std::env::current_exe() else { return };
    // The program may have been replaced while we ran: its path still leads to one.
    let program = program.to_string_lossy();
    #[expect(clippy::disallowed_methods, reason = "what the launcher asked for")]
    let mut command = Command::new(program.trim_end_matches(" (deleted)"));
    command.arg(AFTER).arg(folder).env_clear().envs(env);
    let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
}

/// The environment that a launcher hands over on standard input, to its end.
pub(crate) fn given_environment() -> Vec<(OsString, OsString)> {
    let mut bytes = Vec::new();
    if io::stdin().read_to_end(&mut bytes).is_err() {
        return Vec::new();
    }
    let entries = bytes.split(|b| *b == 0).filter_map(|entry| {
        let at = entry.iter().position(|b| *b == b'=').filter(|at| *at > 0)?;
        Some((OsStr::from_bytes(&entry[..at]).to_owned(), OsString::from_vec(entry[at + 1..].to_vec())))
    });
    entries.collect()
}
