//! Starting a process that stands on its own, and learning how it ended.
//!
//! [`ready`] makes a [`Command`] begin in a session of its own, on its own terminal and in its
//! own cgroup, before the first instruction of the program. It is done between fork and exec
//! rather than by a second stage of our own binary: that costs an exec less, and a program that
//! cannot be executed is told by the very call that lets it go, with its reason.
//!
//! [`split`] forks, for a process that has one thread and only sleeps: it shares
//! every page with its parent, so it costs next to nothing.
#![expect(unsafe_code, reason = "fork, pre_exec, close_range and PIDFD_GET_INFO have no safe interface")]

use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::{fs, io};

use rustix::process::{Pid, WaitOptions};

/// Starts a command as the leader of a new session, with no signal blocked. It is a child of ours, to be reaped by us.
pub fn start(command: &mut Command) -> io::Result<()> {
    ready(command, false, None)?.go()
}

/// Has a command stand ready to begin as the leader of a new session, with no signal blocked; with `terminal`, its
/// standard input becomes its controlling terminal; with a cgroup (its directory, opened), it is born there if that may
/// be. It is a child of ours, to be reaped by us.
///
/// Born, not moved: to move a process into a cgroup makes the kernel wait for all others, which
/// took 2 to 25 ms here.
pub fn ready(command: &mut Command, terminal: bool, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Ready> {
    let (mut told, word) = io::pipe()?;
    let (answer, mut answers) = io::pipe()?;
    let ground = move || {
        rustix::process::setsid()?;
        if terminal {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        crate::signals::unblock()?;
        // All is done but the program.
        told.read_exact(&mut [0])
    };
    // SAFETY: it makes a few system calls and allocates nothing. (It would be free to: the copy
    // that runs it is made of a process with a single thread.)
    unsafe { command.pre_exec(ground) };
    let born = cgroup.and_then(|cgroup| split_into(cgroup).ok());
    let inside = born.is_some();
    match born.map_or_else(split, Ok)? {
        Side::Copy => {
            drop((word, answer));
            let error = command.exec().raw_os_error().unwrap_or(libc::EIO);
            let _ = answers.write_all(&error.to_ne_bytes());
            std::process::exit(127);
        }
        Side::Before(pid) => Ok(Ready { pid, inside, word: Some(word), answer }),
    }
}

/// A copy of ours that waits for the word to become a program. Dropped without it, it leaves.
#[derive(Debug)]
pub struct Ready {
    /// Its PID, which stays.
    pub pid: u32,
    /// Whether it is in the cgroup.
    pub inside: bool,
    word: Option<PipeWriter>,
    answer: PipeReader,
}

impl Ready {
    /// Gives it the word, and learns whether it could become the program. (Two pipes, for how the kernel wakes by them:
    /// who writes rests next, and who becomes a program does not.)
    pub fn go(mut self) -> io::Result<()> {
        let mut word = self.word.take().ok_or(io::ErrorKind::NotConnected)?;
        // If it has left already, it has said why.
        let _ = word.write_all(b"!");
        let mut error = [0; 4];
        // Closed by the exec, or told why there was none.
        if self.answer.read_exact(&mut error).is_err() {
            return Ok(());
        }
        self.reap();
        Err(io::Error::from_raw_os_error(i32::from_ne_bytes(error)))
    }

    fn reap(&self) {
        let _ = rustix::process::waitpid(Pid::from_raw(self.pid.cast_signed()), WaitOptions::empty());
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        if let Some(word) = self.word.take() {
            drop(word);
            self.reap();
        }
    }
}

/// Makes a command lead a group of its own and end with the thread that starts it: a helper
/// program that must not go on alone when lariat is killed.
pub fn end_with_us(command: &mut Command) {
    command.process_group(0);
    // SAFETY: it makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            Ok(())
        })
    };
}

/// Which side of a [`split`] this is.
pub enum Side {
    /// The one that was there before, with the PID of the copy.
    Before(u32),
    /// The copy.
    Copy,
}

/// Goes on as two processes. Refused unless this process has a single thread.
pub fn split() -> io::Result<Side> {
    one_thread()?;
    // SAFETY: there is no other thread, so no lock or allocator state can be caught half-way in
    // the copy.
    side_of(unsafe { libc::fork() }.into())
}

/// As [`split`], but without the C library's own work in the copy, which would write to pages
/// that the two could share: for a copy that sleeps, and then does little and exits. What the
/// library remembers of the thread's id is the parent's there.
pub fn split_off() -> io::Result<Side> {
    one_thread()?;
    // SAFETY: without flags but the signal of its end, and without a stack, `clone` is `fork`.
    // There is no other thread, as above.
    side_of(unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) })
}

/// As [`split`], with the copy born in a cgroup.
fn split_into(cgroup: BorrowedFd<'_>) -> io::Result<Side> {
    one_thread()?;
    // struct clone_args of linux/sched.h: flags, pidfd, child_tid, parent_tid, exit_signal, stack,
    // stack_size, tls, set_tid, set_tid_size, cgroup.
    const INTO_CGROUP: u64 = 0x2_0000_0000;
    let mut args = [0u64; 11];
    (args[0], args[4]) = (INTO_CGROUP, libc::SIGCHLD as u64);
    args[10] = u64::try_from(cgroup.as_raw_fd()).map_err(io::Error::other)?;
    // SAFETY: the structure lives through the call and has the size that is told; without a stack
    // and without flags that share anything, this is `fork`. There is no other thread.
    side_of(unsafe { libc::syscall(libc::SYS_clone3, args.as_ptr(), size_of_val(&args)) })
}

pub(crate) fn one_thread() -> io::Result<()> {
    match fs::read_dir("/proc/self/task")?.count() {
        1 => Ok(()),
        _ => Err(io::Error::other("a process with several threads cannot be split")),
    }
}

fn side_of(pid: libc::c_long) -> io::Result<Side> {
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Side::Copy),
        pid => Ok(Side::Before(u32::try_from(pid).map_err(io::Error::other)?)),
    }
}

/// Gives memory back that was freed, down to single pages.
pub fn trim_memory() {
    // SAFETY: it only touches memory that the allocator knows to be free.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Closes every descriptor above the standard three. Only for a process that holds
/// none of its own there, or will never touch them again (a copy that keeps what it
/// needs as its standard three).
pub fn shed() -> io::Result<()> {
    // SAFETY: it takes no pointers; what it means for owners of descriptors is the
    // caller's promise, above.
    match unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Ended {
    /// Reads a wait status of a process that has ended.
    pub fn from_status(status: i32) -> Option<Ended> {
        match status & 0x7f {
            0 => Some(Ended::Code((status >> 8) & 0xff)),
            0x7f => None, // stopped, not ended
            signal => Some(Ended::Signal(signal)),
        }
    }
}

/// How a process ended that is not our child, by a pidfd that was open before it
/// was reaped (kernel 6.15 and later). `None` if it was not reaped yet or the kernel
/// does not tell.
pub fn how_it_ended(pidfd: impl AsFd) -> Option<Ended> {
    // struct pidfd_info of linux/pidfd.h, first version: the later ones only grow.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    const EXIT: u64 = 1 << 3;
    const GET_INFO: libc::Ioctl = 0xc040_ff0b; // _IOWR(0xFF, 11, 64 bytes)
    const { assert!(size_of::<Info>() == 64) };
    let mut info = Info { mask: EXIT, ..Info::default() };
    // SAFETY: the request carries the size of the structure, which lives through the
    // call; the kernel fills no more than that.
    let told = unsafe { libc::ioctl(pidfd.as_fd().as_raw_fd(), GET_INFO, &raw mut info) };
    if told != 0 || info.mask & EXIT == 0 {
        return None;
    }
    Ended::from_status(info.exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_status_is_read_right() {
        assert_eq!(Ended::from_status(0), Some(Ended::Code(0)));
        assert_eq!(Ended::from_status(0x0300), Some(Ended::Code(3)));
        assert_eq!(Ended::from_status(0xff00), Some(Ended::Code(255)));
        assert_eq!(Ended::from_status(9), Some(Ended::Signal(9)));
        assert_eq!(Ended::from_status(0x80 | 11), Some(Ended::Signal(11)), "with a core");
        assert_eq!(Ended::from_status(0x137f), None, "stopped");
    }

    #[test]
    fn the_end_of_a_reaped_process_is_told_by_its_pidfd() {
        #[expect(clippy::disallowed_methods, reason = "the test's own child")]
        let mut child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
        let (_, pidfd) = crate::process::Identity::of_child(child.id()).unwrap();
        child.wait().unwrap();
        // None on kernels before 6.15.
        assert!(matches!(how_it_ended(&pidfd), Some(Ended::Code(7)) | None));
    }
}
