//! The keeper: a second holder of the terminal, and a second witness of the end.
//!
//! # Theory of operation
//!
//! If the shim alone held the terminal's master, a `kill -9` of it would hang up on
//! the agent. So a copy of the shim holds it too, and sleeps. It is a fork without an
//! exec: it shares its pages with the shim and costs those that either of the two writes to
//! afterwards.
//!
//! It keeps three descriptors, as its standard ones: the master (0), a listening
//! socket (1), the agent's pidfd (2). It wakes for two things:
//!
//! - A new shim asks on the socket. It gets the master and the pidfd, and goes on
//!   where the dead one was. Whether it may is not decided here but by the session's
//!   lock, which the asker holds.
//! - The agent has ended. The keeper then waits for the session's lock: the shim has
//!   it for as long as it lives. Once it gets it, either the exit is on record, or
//!   the shim was killed before it could write it; then the keeper does. It knows the
//!   end by the pidfd, which was open before the agent was reaped.
//!
//! Who tells it to end ends it at once, unless it is writing that record: then the record says so, as the shim's would
//! (see [`crate::hold`]).
//!
//! Should the keeper die, the shim makes another.

use std::fs::OpenOptions;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use lariat_core::Time;
use lariat_sys::clock;
use lariat_sys::point::point;
use lariat_sys::process::Identity;
use lariat_sys::signals::{self, ChildEnds};
use lariat_sys::spawn::{self, Side};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stderr, stdin, stdout};

use crate::agent::{Agent, end_of_other, remove_cgroup};
use crate::record::{self, Exit, Process};
use crate::socket::{self, SocketError};

/// What a keeper sends before anything else; the second byte is the number of this
/// little protocol.
const WORD: [u8; 2] = [b'K', 1];

/// A keeper that lives, as far as we know.
pub(crate) struct Keeper {
    pub process: Process,
    pub pidfd: OwnedFd,
}

impl Keeper {
    /// Makes one for this session.
    pub fn start(folder: &Path, socket: &Path, agent: &Agent) -> Result<Keeper, SocketError> {
        let path = socket::keeper_path(socket);
        let listener = socket::listen(&path)?;
        let io = |e| SocketError::Io("make a keeper on", path.clone(), e);
        match spawn::split_off().map_err(io)? {
            Side::Before(pid) => {
                let (identity, pidfd) = Identity::of_child(pid).map_err(io)?;
                Ok(Keeper { process: identity.into(), pidfd })
            }
            Side::Copy => {
                let kept = settle(&listener, agent).and_then(|()| keep(folder, socket, agent));
                std::process::exit(i32::from(kept.is_err()));
            }
        }
    }

    /// One that another shim made.
    pub fn known(process: Option<Process>) -> Option<Keeper> {
        let process = process?;
        let (_, pidfd) = Identity::from(process.clone()).here().ok()??;
        Some(Keeper { process, pidfd })
    }
}

/// Lets go of all but the three.
fn settle(listener: &UnixListener, agent: &Agent) -> io::Result<()> {
    if let Some(terminal) = &agent.terminal {
        dup2_stdin(&terminal.master)?;
    }
    dup2_stdout(listener)?;
    dup2_stderr(&agent.pidfd)?;
    rustix::thread::set_name(c"lariat-keeper")?;
    signals::unblock()?;
    // What this copy still owns by number is never touched again: it only exits.
    spawn::shed()
}

fn keep(folder: &Path, socket: &Path, agent: &Agent) -> io::Result<()> {
    loop {
        let (asked, ended) = {
            let mut fds =
                [PollFd::from_borrowed_fd(stdout(), PollFlags::IN), PollFd::from_borrowed_fd(stderr(), PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            (!fds[0].revents().is_empty(), !fds[1].revents().is_empty())
        };
        if ended {
            return witness(folder, socket, agent);
        }
        if asked && let Ok(asker) = rustix::net::accept_with(stdout(), rustix::net::SocketFlags::CLOEXEC) {
            let _ = hand_over(&UnixStream::from(asker), agent.terminal.is_some());
        }
    }
}

fn hand_over(asker: &UnixStream, terminal: bool) -> io::Result<()> {
    if socket::stranger(asker)?.is_some() {
        return Ok(());
    }
    let fds: &[BorrowedFd<'_>] = if terminal { &[stderr(), stdin()] } else { &[stderr()] };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(fds));
    sendmsg(asker, &[IoSlice::new(&WORD)], &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Sees to it that the end is on record.
fn witness(folder: &Path, socket: &Path, agent: &Agent) -> io::Result<()> {
    let lock = OpenOptions::new().write(true).open(folder.join(record::LOCK))?;
    while let Err(e) = rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive) {
        if e != rustix::io::Errno::INTR {
            return Err(e.into());
        }
    }
    match record::read::<Exit>(folder, record::EXIT) {
        Ok(Some(exit)) if exit.agent.as_ref() == Some(&agent.process) => return Ok(()),
        _ => {}
    }
    // A new run began in this folder meanwhile: its records are not ours to touch.
    match record::read::<record::Shim>(folder, record::SHIM) {
        Ok(Some(shim)) if shim.agent != agent.process => return Ok(()),
        _ => {}
    }
    let told = ChildEnds::watch()?;
    let mut exit = Exit::of(&agent.process, end_of_other(&stderr().try_clone_to_owned()?));
    record::put_exit(folder, &exit).map_err(io::Error::other)?;
    point("keeper.exited");
    exit.tell(folder, told.clear().then(|| Time(clock::now_ms())));
    if let Some(cgroup) = &agent.cgroup {
        remove_cgroup(cgroup);
    }
    socket::remove(socket);
    socket::remove(&socket::keeper_path(socket));
    crate::start::after(folder);
    Ok(())
}

/// Asks the keeper of a session for the agent's pidfd and, if it has one, the master
/// of its terminal.
pub(crate) fn fetch(socket: &Path) -> Result<(OwnedFd, Option<OwnedFd>), SocketError> {
    let path = socket::keeper_path(socket);
    let io = |e| SocketError::Io("take the terminal from", path.clone(), e);
    let keeper = socket::connect(&path)?;
    let mut word = [0u8; 2];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(&keeper, &mut [IoSliceMut::new(&mut word)], &mut rights, RecvFlags::CMSG_CLOEXEC)
        .map_err(|e| if e == rustix::io::Errno::AGAIN { SocketError::Silent(path.clone()) } else { io(e.into()) })?;
    let mut fds = rights.drain().filter_map(|m| match m {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let mut fds = fds.next().into_iter().flatten();
    match fds.next() {
        Some(pidfd) if got.bytes == WORD.len() && word == WORD => Ok((pidfd, fds.next())),
        _ => Err(io(io::Error::other("it did not answer as a keeper does"))),
    }
}
