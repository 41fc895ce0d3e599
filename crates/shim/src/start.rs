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
//!
//! What a unit of systemd's starts belongs to the unit: its limits hold for all of it, and
//! it goes when the unit is stopped, unless that is told otherwise. A session is nobody's
//! part. So a launcher that stands in the unit of our daemon has the shim begin in a scope
//! of its own, by `systemd-run`. Where that cannot be had the shim begins in the unit,
//! which is written so that only the daemon ends with it.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use lariat_sys::cgroup;

use crate::record::{self, RecordError, Shim};
use crate::{AFTER, ENVIRONMENT, HELD, TAKE_OVER, VERB};

/// The unit of systemd's that our daemon runs in, if it is installed.
pub const UNIT: &str = "lariat.service";
/// What `systemd-run` needs of the environment to find the user's systemd.
const TO_SYSTEMD: [&str; 3] = ["PATH", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"];

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
    let apart = if cgroup::is_in_unit(UNIT) { said_apart(program, folder, take_over, env) } else { None };
    let line = match apart {
        Some(line) => line,
        None => said(begin_at(program), folder, take_over, env).map_err(failed)?.0,
    };
    match line.trim_end() {
        "started" => record::read(folder, record::SHIM)?.ok_or(StartError::Died),
        line => Err(match line.strip_prefix("failed ") {
            Some(why) if why.starts_with(HELD) => StartError::Held(why.to_owned()),
            Some(why) => StartError::Failed(why.to_owned()),
            None => StartError::Died,
        }),
    }
}

fn begin_at(program: &Path) -> Command {
    #[expect(clippy::disallowed_methods, reason = "the one place where a shim is started")]
    let mut command = Command::new(program);
    command.env_clear();
    command
}

/// What a shim says that begins in a scope of its own; `None` if there was none to be had,
/// and no shim has begun.
fn said_apart(program: &Path, folder: &Path, take_over: bool, env: &[(OsString, OsString)]) -> Option<String> {
    let handle = folder.file_name().unwrap_or_default().to_string_lossy();
    let mut command = begin_at(Path::new("systemd-run"));
    command.envs(TO_SYSTEMD.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.args(["--user", "--scope", "--quiet", "--collect", "--property=Delegate=yes"]);
    command.arg(format!("--unit={}.scope", cgroup::name(&handle, std::process::id())));
    command.arg(format!("--description=lariat: session {handle}")).arg("--").arg(program);
    match said(command, folder, take_over, env) {
        // It becomes the shim, which says a word whenever it does not leave well.
        Ok((line, status)) if line.is_empty() && status.code() != Some(0) => None,
        Ok((line, _)) => Some(line),
        // Not there, or gone before it had read all; a shim reads all before it does anything.
        Err(_) => None,
    }
}

/// Has a command go on as a shim: what it says, and how the process ended that it began as.
fn said(
    mut command: Command,
    folder: &Path,
    take_over: bool,
    env: &[(OsString, OsString)],
) -> io::Result<(String, ExitStatus)> {
    command.arg(VERB).arg(if take_over { TAKE_OVER } else { ENVIRONMENT }).arg(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.envs(std::env::vars_os().filter(|(n, _)| n.as_bytes().starts_with(b"LARIAT_") && n != crate::MARK));
    let mut child = command.spawn()?;
    let given: Vec<u8> = env.iter().flat_map(|(n, v)| [n.as_bytes(), b"=", v.as_bytes(), b"\0"].concat()).collect();
    let told = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(&given));
    let mut line = String::new();
    let heard = child.stdout.take().map_or(Ok(0), |mut stdout| stdout.read_to_string(&mut line));
    let status = child.wait()?;
    told.and(heard.map(drop))?;
    Ok((line, status))
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
