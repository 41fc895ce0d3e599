//! Sleeping until something may have changed, at no cost.
//!
//! Exits come by pidfd, changes of stores by inotify. Both are only hints that
//! wake a fresh look: a lost or a needless one does no harm.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A set of things to be woken by.
pub struct Watch {
    inotify: OwnedFd,
    pidfds: Vec<OwnedFd>,
}

impl Watch {
    /// An empty set.
    pub fn new() -> io::Result<Watch> {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        Ok(Watch { inotify: inotify::init(flags)?, pidfds: Vec::new() })
    }

    /// Wakes when a file in this directory, or this file, changes; or, while it is
    /// not there, when something changes where it would be.
    pub fn path(&mut self, path: &Path) {
        use inotify::WatchFlags as W;
        let flags = W::MODIFY | W::CREATE | W::DELETE | W::MOVED_FROM | W::MOVED_TO | W::CLOSE_WRITE;
        let _ = path.ancestors().find(|path| inotify::add_watch(&self.inotify, *path, flags).is_ok());
    }

    /// Wakes when this process ends.
    pub fn process(&mut self, pid: u32) {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        self.pidfds.extend(pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()));
    }

    /// Sleeps until something stirs or the time is up; then waits until it has
    /// been quiet for `settle`, so that a burst is one waking.
    pub fn sleep(&self, at_most: Duration, settle: Duration) -> io::Result<()> {
        if self.poll(at_most)? {
            while self.drain() {
                if !self.poll_files(settle)? {
                    break;
                }
            }
        }
        Ok(())
    }

    fn poll(&self, at_most: Duration) -> io::Result<bool> {
        let mut fds = vec![PollFd::new(&self.inotify, PollFlags::IN)];
        fds.extend(self.pidfds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        wait(&mut fds, at_most)
    }

    fn poll_files(&self, at_most: Duration) -> io::Result<bool> {
        wait(&mut [PollFd::new(&self.inotify, PollFlags::IN)], at_most)
    }

    /// Forgets which paths have stirred; says whether any had.
    pub fn drain(&self) -> bool {
        let mut buffer = [const { MaybeUninit::uninit() }; 8192];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut any = false;
        while reader.next().is_ok() {
            any = true;
        }
        any
    }
}

impl AsFd for Watch {
    /// Readable when a path has stirred.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

fn wait(fds: &mut [PollFd<'_>], at_most: Duration) -> io::Result<bool> {
    let timeout = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
    match poll(fds, Some(&timeout)) {
        Ok(n) => Ok(n > 0),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(e) => Err(e.into()),
    }
}
