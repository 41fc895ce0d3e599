//! A door that was opened for us: the listening socket that systemd hands to the one it starts.
//!
//! By its protocol the descriptors from 3 on are ours if `LISTEN_PID` is us, and `LISTEN_FDS` says
//! how many. What kind of socket it is, and where it stands, is for the caller to check.
#![expect(unsafe_code, reason = "a descriptor known by its number, and the environment, have no safe interface")]

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// The first descriptor that is handed over.
const FIRST: i32 = 3;
/// What tells of them, and must reach nobody whom we start.
const TOLD: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// Takes the one socket that was handed to this very process, if any. To be called first of all:
/// before this process has opened anything or has a second thread.
pub fn take() -> io::Result<Option<OwnedFd>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let told = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u32>().ok());
    let (whose, count) = (told(TOLD[0]), told(TOLD[1]).unwrap_or(0));
    if TAKEN.swap(true, Ordering::Relaxed) || crate::spawn::one_thread().is_err() {
        return Ok(None);
    }
    for name in TOLD {
        // SAFETY: there is one thread, as was just seen, so nobody reads the environment meanwhile.
        unsafe { std::env::remove_var(name) };
    }
    if whose != Some(std::process::id()) || count == 0 {
        return Ok(None);
    }
    if count != 1 {
        return Err(io::Error::other(format!("{count} sockets were handed over, where one is expected")));
    }
    // SAFETY: the number is only asked for what it is; if nothing is open there, the kernel says so.
    let flags = fcntl_getfd(unsafe { BorrowedFd::borrow_raw(FIRST) })?;
    // SAFETY: it is open, whoever started us says that it is ours, nobody took it before, and nothing
    // of this process was opened yet that could have got its number.
    let fd = unsafe { OwnedFd::from_raw_fd(FIRST) };
    fcntl_setfd(&fd, flags | FdFlags::CLOEXEC)?;
    Ok(Some(fd))
}
