//! Starting a shim, for whoever launches a session.
//!
//! # Theory of operation
//!
//! The launcher has made the session's folder and put `launch.json` there, durably. The
//! shim is started with one pipe, its standard output, and leaves its parent at once.
//! It says one line: `started`, once the agent runs and `shim.json` is durable, or
//! `failed` and why. A pipe that closes without a line is a shim that died; what then
//! became of the agent must be looked for.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::record::{self, RecordError, Shim};
use crate::{TAKE_OVER, VERB};

/// Why no shim holds the session.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program could not be run.
    #[error("cannot run {0} as a shim: {1}")]
    Run(PathBuf, io::Error),
    /// It said why not.
    #[error("{0}")]
    Failed(String),
    /// It died without a word: an agent may have been started.
    #[error("the shim died without a word; an agent may have been started")]
    Died,
    /// It runs, but its record cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Starts a shim for a folder with a launch record; `program` is lariat itself.
/// Returns when the agent runs.
pub fn start(program: &Path, folder: &Path) -> Result<Shim, StartError> {
    run(program, folder, false)
}

/// Starts one in place of one that was killed.
pub fn take_over(program: &Path, folder: &Path) -> Result<Shim, StartError> {
    run(program, folder, true)
}

fn run(program: &Path, folder: &Path, take_over: bool) -> Result<Shim, StartError> {
    let failed = |e| StartError::Run(program.to_owned(), e);
    #[expect(clippy::disallowed_methods, reason = "the one place where a shim is started")]
    let mut command = Command::new(program);
    command.arg(VERB).args(take_over.then_some(TAKE_OVER)).arg(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    let mut line = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut line).map_err(failed)?;
    }
    child.wait().map_err(failed)?;
    match line.trim_end() {
        "started" => record::read(folder, record::SHIM)?.ok_or(StartError::Died),
        line => Err(line.strip_prefix("failed ").map_or(StartError::Died, |why| StartError::Failed(why.to_owned()))),
    }
}
