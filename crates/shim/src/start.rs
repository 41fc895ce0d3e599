//! Starting a shim, for whoever launches a session.
//!
//! # Theory of operation
//!
//! The launcher has made the session's folder. The shim is begun with two pipes, and leaves its
//! parent at once. By its standard input it gets the agent's environment, which may hold secrets:
//! so these stand in no file, in no argument, and not in the shim's own environment. With it
//! comes what is to be launched, and the shim makes all ready but the agent's program: it takes the
//! lock, opens the door and begins the output. Meanwhile the launcher looks if anything is in the way, and puts `launch.json`
//! there, durably: a process takes as long to begin as a disk does to write. Then comes the word to go;
//! without it the launcher changed its mind or died, and nothing is started.
//!
//! Its standard output answers: `running` and who, once the agent runs; then `started`, once
//! `shim.json` is durable; or `failed` and why. So the launcher looks for a sign of the agent
//! while that is written. A pipe that closes without a line is a shim that died; what then
//! became of the agent must be looked for.
//!
//! What a unit of systemd's starts belongs to the unit: its limits hold for all of it, and
//! it goes when the unit is stopped, unless that is told otherwise. A session is nobody's
//! part. So a launcher that stands in the unit of our daemon has the shim begin in a scope
//! of its own, by `systemd-run`. Where that cannot be had the shim begins in the unit,
//! which is written so that only the daemon ends with it.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use lariat_sys::cgroup;
use lariat_sys::process::own_program;

use crate::record::{self, Process, RecordError, Shim};
use crate::{AFTER, HELD, RUNNING, TAKE_OVER, VERB, WHEN_TOLD};

/// The unit of systemd's that our daemon runs in, if it is installed.
pub const UNIT: &str = "lariat.service";
/// The word to go.
const GO: u8 = b'!';
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

/// A shim that waits for the word to go. Dropped without it, it has left, and nothing is started.
#[derive(Debug)]
pub struct Begun {
    program: PathBuf,
    folder: PathBuf,
    /// None yet, where it has to begin in a scope of its own.
    child: Option<Child>,
    /// What it has still to be told.
    untold: Vec<u8>,
}

/// Begins a shim for a folder that is about to have a launch record; `program` is lariat itself.
pub fn begin(program: &Path, folder: &Path) -> Result<Begun, StartError> {
    let here = !cgroup::is_in_unit(UNIT);
    let child = here.then(|| spawn(begin_at(program), WHEN_TOLD, folder)).transpose();
    let child = child.map_err(|e| StartError::Run(program.to_owned(), e))?;
    Ok(Begun { program: program.to_owned(), folder: folder.to_owned(), child, untold: Vec::new() })
}

impl Begun {
    /// Has it make the agent ready: `launch` is about to be its record, `env` is the agent's environment.
    pub fn ready(&mut self, launch: &str, env: &[(OsString, OsString)]) {
        let entries = env.iter().flat_map(|(n, v)| [n.as_bytes(), b"=", v.as_bytes(), b"\0"].concat());
        let told: Vec<u8> = entries.chain([0]).chain(launch.bytes()).chain([0]).collect();
        match self.child.as_mut().and_then(|child| child.stdin.as_mut()) {
            Some(stdin) => drop(stdin.write_all(&told)), // what has died says so when it is to go
            None => self.untold = told,
        }
    }

    /// Has it start the agent, now that its launch is on record. Returns when the agent runs.
    pub fn go(mut self) -> Result<Running, StartError> {
        let mut untold = std::mem::take(&mut self.untold);
        untold.push(GO);
        let said = match self.child.take() {
            Some(child) => tell(child, &untold),
            None => said_apart(&self.program, &self.folder, WHEN_TOLD, &untold)
                .map_or_else(|| tell(spawn(begin_at(&self.program), WHEN_TOLD, &self.folder)?, &untold), Ok),
        };
        let said = said.map_err(|e| StartError::Run(self.program.clone(), e))?;
        match said.line.strip_prefix(RUNNING).map(serde_json::from_str) {
            Some(Ok(agent)) => Ok(Running { agent, folder: self.folder.clone(), rest: said.rest }),
            Some(Err(_)) => Err(StartError::Died),
            None => Err(refusal(&said.line)),
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.stdin.take());
            // Its end is that of the shim itself: from then on nobody touches the folder.
            let _ = child.stdout.take().map(|mut out| io::copy(&mut out, &mut io::sink()));
            let _ = child.wait();
        }
    }
}

/// A shim whose agent runs, and which is writing that down.
#[derive(Debug)]
pub struct Running {
    /// The agent.
    pub agent: Process,
    folder: PathBuf,
    rest: BufReader<ChildStdout>,
}

impl Running {
    /// Waits until it is written down, durably. If that failed, the agent was taken back.
    pub fn recorded(mut self) -> Result<Shim, StartError> {
        let mut line = String::new();
        self.rest.read_line(&mut line).map_err(|_| StartError::Died)?;
        recorded(&line, &self.folder)
    }
}

/// Readable once it says more.
impl AsFd for Running {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.rest.get_ref().as_fd()
    }
}

/// Starts one in place of one that was killed.
pub fn take_over(program: &Path, folder: &Path) -> Result<Shim, StartError> {
    let apart = cgroup::is_in_unit(UNIT).then(|| said_apart(program, folder, TAKE_OVER, b"")).flatten();
    let said = apart.map_or_else(|| tell(spawn(begin_at(program), TAKE_OVER, folder)?, b""), Ok);
    recorded(&said.map_err(|e| StartError::Run(program.to_owned(), e))?.line, folder)
}

fn recorded(line: &str, folder: &Path) -> Result<Shim, StartError> {
    match line.trim_end() {
        "started" => record::read(folder, record::SHIM)?.ok_or(StartError::Died),
        _ => Err(refusal(line)),
    }
}

fn refusal(line: &str) -> StartError {
    match line.trim_end().strip_prefix("failed ") {
        Some(why) if why.starts_with(HELD) => StartError::Held(why.to_owned()),
        Some(why) => StartError::Failed(why.to_owned()),
        None => StartError::Died,
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
fn said_apart(program: &Path, folder: &Path, how: &str, given: &[u8]) -> Option<Said> {
    let handle = folder.file_name().unwrap_or_default().to_string_lossy();
    let mut command = begin_at(Path::new("systemd-run"));
    command.envs(TO_SYSTEMD.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.args(["--user", "--scope", "--quiet", "--collect", "--property=Delegate=yes"]);
    command.arg(format!("--unit={}.scope", cgroup::name(&handle, std::process::id())));
    command.arg(format!("--description=lariat: session {handle}")).arg("--").arg(program);
    match spawn(command, how, folder).and_then(|child| tell(child, given)) {
        // It becomes the shim, which says a word whenever it does not leave well.
        Ok(said) if said.line.is_empty() && said.status.code() != Some(0) => None,
        Ok(said) => Some(said),
        // Not there, or gone before it had read all; a shim reads all before it does anything.
        Err(_) => None,
    }
}

/// Has a command go on as a shim.
fn spawn(mut command: Command, how: &str, folder: &Path) -> io::Result<Child> {
    command.arg(VERB).arg(how).arg(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.envs(std::env::vars_os().filter(|(n, _)| n.as_bytes().starts_with(b"LARIAT_") && n != crate::MARK));
    command.spawn()
}

/// What a shim says.
struct Said {
    line: String,
    /// What comes after that.
    rest: BufReader<ChildStdout>,
    /// How the process ended that it began as.
    status: ExitStatus,
}

/// Tells a shim what it needs, and hears its first line.
fn tell(mut child: Child, given: &[u8]) -> io::Result<Said> {
    let told = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(given));
    let mut rest = BufReader::new(child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
    let mut line = String::new();
    let heard = rest.read_line(&mut line);
    let status = child.wait()?;
    // What has a word to say may have left before it heard all.
    if line.is_empty() {
        told.and(heard.map(drop))?;
    }
    Ok(Said { line, rest, status })
}

/// Starts what the launcher wants run once the end is on record, if anything. It is
/// on its own: nobody waits for it.
pub fn after(folder: &Path) {
    let launch: Option<record::Launch> = record::read(folder, record::LAUNCH).ok().flatten();
    let Some(env) = launch.and_then(|l| l.after) else { return };
    let Ok(program) = own_program() else { return };
    #[expect(clippy::disallowed_methods, reason = "what the launcher asked for")]
    let mut command = Command::new(program);
    command.arg(AFTER).arg(folder).env_clear().envs(env);
    let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
}

/// The environment that a launcher hands over on standard input: to an empty entry, or to the end.
pub(crate) fn given_environment() -> io::Result<Vec<(OsString, OsString)>> {
    let mut given = Vec::new();
    loop {
        let entry = given_entry()?;
        if entry.is_empty() {
            return Ok(given);
        }
        if let Some(at) = entry.iter().position(|b| *b == b'=').filter(|at| *at > 0) {
            given.push((OsStr::from_bytes(&entry[..at]).to_owned(), OsString::from_vec(entry[at + 1..].to_vec())));
        }
    }
}

/// What it hands over next: what is to be launched.
pub(crate) fn given_launch() -> Option<record::Launch> {
    serde_json::from_slice(&given_entry().ok()?).ok()
}

/// Waits for the word to go; whether it came.
pub(crate) fn is_told_to_go() -> bool {
    let mut word = [0];
    io::stdin().read_exact(&mut word).is_ok() && word == [GO]
}

fn given_entry() -> io::Result<Vec<u8>> {
    let mut entry = Vec::new();
    io::stdin().lock().read_until(0, &mut entry)?;
    entry.pop_if(|last| *last == 0);
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_left_before_it_heard_all_has_said_why() {
        let says = |script: &str| {
            #[expect(clippy::disallowed_methods, reason = "the test's own child")]
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
            tell(command.spawn().unwrap(), &[b'x'; 1 << 20]).map(|said| said.line)
        };
        assert_eq!(says("exec <&-; echo failed why").unwrap(), "failed why\n");
        assert!(says("exec <&-").is_err());
        assert_eq!(says("cat > /dev/null").unwrap(), "");
    }
}
