//! Starting a process that stands on its own, and learning how it ended.
//!
//! [`stand_alone`] makes a [`Command`] begin in a session of its own, on its own
//! terminal and in its own cgroup, before the first instruction of the program.
//! It is done between fork and exec rather than by a second stage of our own
//! binary: that costs an exec less, and a program that cannot be executed is told
//! by the very call that starts it, with its reason.
//!
//! [`split`] forks, for a process that has one thread and only sleeps: it shares
//! every page with its parent, so it costs next to nothing.
#![expect(unsafe_code, reason = "fork, pre_exec, close_range and PIDFD_GET_INFO have no safe interface")]

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::{fs, io};

/// Makes what this command starts the leader of a new session; with `terminal`,
/// its standard input becomes its controlling terminal; with a cgroup's open
/// `cgroup.procs`, it begins in that cgroup if it may.
pub fn stand_alone(command: &mut Command, terminal: bool, cgroup: Option<OwnedFd>) {
    let ground = move || {
        if let Some(procs) = &cgroup {
            let _ = rustix::io::write(procs, b"0"); // best effort: the caller looks where it is
        }
        rustix::process::setsid()?;
        if terminal {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe work may be done. This
    // makes three system calls and allocates nothing.
    unsafe { command.pre_exec(ground) };
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
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("a process with several threads cannot be split"));
    }
    // SAFETY: there is no other thread, so no lock or allocator state can be caught
    // half-way in the copy.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Side::Copy),
        pid => Ok(Side::Before(pid.unsigned_abs())),
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
