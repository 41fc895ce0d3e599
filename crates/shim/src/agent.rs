//! The agent's process: how it is started, and how its end is known.
//!
//! # Theory of operation
//!
//! It leads a session of its own, finds every signal at its default, exactly the
//! environment that was given plus `LARIAT_SESSION`, and no descriptor but its three.
//! With a terminal, these are the terminal, which is its controlling one. Without,
//! they are `/dev/null` (or the file `stdin`, if the launcher made one) and two files
//! in the session's folder, which need nobody to read them: such an agent does not
//! notice when its shim dies.
//!
//! The shim keeps the terminal's other side open as well, for itself: so the master
//! never reports a hang-up while the agent lives, whatever it closes and reopens.
//!
//! All of that takes as long as a disk does to write, so it is made ready while the launcher writes down what is
//! wished: a copy of the shim, in its place, that waits for the word to become the agent's program.
//!
//! It begins in a cgroup of its own where one can be made below the shim's. The shim
//! stays outside, so that whoever ends the cgroup does not end the witness.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lariat_sys::cgroup;
use lariat_sys::process::Identity;
use lariat_sys::spawn::{self, Ended};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitOptions};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use crate::record::{Launch, Process};
use crate::wire::Size;

/// What marks everything that the agent starts.
pub const MARK: &str = "LARIAT_SESSION";
/// How long its parent may take to reap an agent that is not our child.
const REAPING: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Why the agent does not run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Nothing to run.
    #[error("the launch record names no program")]
    NoProgram,
    /// Nowhere to run.
    #[error("cannot start {0} in {1}: {2}")]
    Folder(String, PathBuf, io::Error),
    /// It could not be executed.
    #[error("cannot start {0}: {1}")]
    Exec(String, io::Error),
    /// There was no terminal to be had.
    #[error("cannot make a terminal: {0}")]
    Terminal(io::Error),
    /// Its input or output files could not be opened.
    #[error("cannot open {0}: {1}")]
    Output(PathBuf, io::Error),
    /// It cannot be told who it is.
    #[error("cannot identify the agent's process: {0}")]
    Identify(io::Error),
}

/// A terminal that we hold.
pub(crate) struct Terminal {
    pub master: OwnedFd,
    // See above: held, never used.
    _slave: OwnedFd,
}

impl Terminal {
    fn new(size: Size) -> io::Result<(Terminal, OwnedFd)> {
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        rustix::pty::unlockpt(&master)?;
        let terminal = Terminal::of(master)?;
        terminal.set_size(size)?;
        let slave = terminal._slave.try_clone()?;
        Ok((terminal, slave))
    }

    /// A terminal by its master.
    pub fn of(master: OwnedFd) -> io::Result<Terminal> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
        rustix::io::ioctl_fionbio(&master, true)?;
        Ok(Terminal { master, _slave: slave })
    }

    pub fn set_size(&self, size: Size) -> io::Result<()> {
        let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(rustix::termios::tcsetwinsize(&self.master, size)?)
    }

    pub fn size(&self) -> io::Result<Size> {
        let size = rustix::termios::tcgetwinsize(&self.master)?;
        Ok(Size { rows: size.ws_row, cols: size.ws_col })
    }
}

/// The agent.
pub(crate) struct Agent {
    pub process: Process,
    pub pidfd: OwnedFd,
    pub terminal: Option<Terminal>,
    pub cgroup: Option<PathBuf>,
    /// Whether it is our child, so that only we can reap it.
    ours: bool,
}

/// An agent that stands ready: all there is to it but its program. Dropped, nothing of it is left.
pub(crate) struct Ready {
    agent: Option<Agent>,
    waiting: Option<spawn::Ready>,
    program: String,
}

impl Ready {
    /// Makes it ready.
    pub fn make(folder: &Path, launch: &Launch, given: Vec<(OsString, OsString)>) -> Result<Ready, AgentError> {
        let program = launch.argv.first().filter(|p| !p.is_empty()).ok_or(AgentError::NoProgram)?;
        // Otherwise a missing directory would look like a missing program.
        fs::read_dir(&launch.cwd).map_err(|e| AgentError::Folder(program.clone(), launch.cwd.clone(), e))?;
        #[expect(clippy::disallowed_methods, reason = "the one place where an agent is started")]
        let mut command = Command::new(program);
        command.args(&launch.argv[1..]).current_dir(&launch.cwd).env_clear();
        command.envs(given).envs(launch.env.iter().map(|(name, value)| (name, value))).env(MARK, &launch.handle);
        let terminal = if launch.headless {
            command.stdin(input(folder)?).stdout(output(folder, "stdout")?).stderr(output(folder, "stderr")?);
            None
        } else {
            let size = Size { rows: launch.rows.max(1), cols: launch.cols.max(1) };
            let (terminal, slave) = Terminal::new(size).map_err(AgentError::Terminal)?;
            let more = || slave.try_clone().map_err(AgentError::Terminal);
            command.stdin(more()?).stdout(more()?).stderr(slave);
            Some(terminal)
        };
        // What could not be told apart from others afterwards is not started: nobody could end it.
        Identity::open(std::process::id()).map_err(AgentError::Identify)?;
        let cgroup = Cgroup::make(&launch.handle);
        let into = cgroup.as_ref().and_then(Cgroup::open);
        let waiting = match spawn::ready(&mut command, !launch.headless, into.as_ref().map(OwnedFd::as_fd)) {
            Ok(waiting) => waiting,
            Err(e) => {
                if let Some(cgroup) = cgroup {
                    remove_cgroup(&cgroup.0);
                }
                return Err(AgentError::Exec(program.clone(), e));
            }
        };
        let (identity, pidfd) = Identity::of_child(waiting.pid).map_err(AgentError::Identify)?;
        let cgroup = cgroup.map(|c| c.0).filter(|c| waiting.inside || !remove_cgroup(c));
        let agent = Agent { process: identity.into(), pidfd, terminal, cgroup, ours: true };
        Ok(Ready { agent: Some(agent), waiting: Some(waiting), program: program.clone() })
    }

    /// Starts it.
    pub fn go(mut self) -> Result<Agent, AgentError> {
        if let Some(waiting) = self.waiting.take() {
            waiting.go().map_err(|e| AgentError::Exec(self.program.clone(), e))?;
        }
        self.agent.take().ok_or(AgentError::NoProgram)
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        drop(self.waiting.take()); // it has left
        if let Some(cgroup) = self.agent.take().and_then(|a| a.cgroup) {
            remove_cgroup(&cgroup);
        }
    }
}

impl Agent {
    /// One that another shim started.
    pub fn taken_over(process: Process, pidfd: OwnedFd, terminal: Option<Terminal>, cgroup: Option<PathBuf>) -> Agent {
        Agent { process, pidfd, terminal, cgroup, ours: false }
    }

    /// Reaps whatever child has ended, and says how the agent did, if it was that.
    pub fn reap(&self) -> Option<Ended> {
        let mut ended = None;
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if self.ours && Pid::from_raw(self.process.pid.cast_signed()) == Some(pid) {
                ended = Ended::from_status(status.as_raw());
            }
        }
        ended
    }

    /// How it ended, when its pidfd says that it has.
    pub fn end(&self, reaped: Option<Ended>) -> Option<Ended> {
        if self.ours { reaped.or_else(|| self.reap()) } else { end_of_other(&self.pidfd) }
    }

    /// Ends it at once: only for one that must not have been started.
    pub fn undo(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, rustix::process::Signal::KILL);
    }
}

/// How a process ended that somebody else reaps: the kernel tells once that is done.
pub(crate) fn end_of_other(pidfd: &OwnedFd) -> Option<Ended> {
    // Readable since it ended; a hang-up once it was reaped.
    let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::empty())];
    let _ = poll(&mut fds, Some(&REAPING));
    spawn::how_it_ended(pidfd)
}

/// What the launcher left for it to read, or nothing.
fn input(folder: &Path) -> Result<Stdio, AgentError> {
    let path = folder.join(crate::record::INPUT);
    match OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()).open(&path) {
        Ok(file) => Ok(file.into()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Stdio::null()),
        Err(e) => Err(AgentError::Output(path, e)),
    }
}

fn output(folder: &Path, name: &str) -> Result<File, AgentError> {
    let path = folder.join(name);
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    options.open(&path).map_err(|e| AgentError::Output(path, e))
}

/// A cgroup made for one agent, by its path.
struct Cgroup(PathBuf);

impl Cgroup {
    /// Below our own, if that may be.
    fn make(handle: &str) -> Option<Cgroup> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|l| l.strip_prefix("0::/"))?;
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let folder = mounts.iter().find(|m| m.join("cgroup.controllers").exists())?.join(own);
        sweep(&folder);
        let path = folder.join(cgroup::name(handle, std::process::id()));
        fs::create_dir(&path).ok()?;
        Some(Cgroup(path))
    }

    fn open(&self) -> Option<OwnedFd> {
        use rustix::fs::{Mode, OFlags};
        rustix::fs::open(&self.0, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
    }
}

/// Takes away what shims left that were killed. A cgroup with anybody in it cannot be removed.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let shim = name.to_str().and_then(|n| n.strip_prefix("lariat.")?.rsplit('.').next());
        if shim.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            remove_cgroup(&entry.path());
        }
    }
}

/// Takes a cgroup away if nobody is in it any more; says whether it was so.
pub(crate) fn remove_cgroup(path: &Path) -> bool {
    fs::remove_dir(path).is_ok()
}
