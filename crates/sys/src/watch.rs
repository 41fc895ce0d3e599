//! Sleeping until something may have changed, at no cost.
//!
//! Exits come by pidfd, changes of stores by inotify. Both are only hints that
//! wake a fresh look: a lost or a needless one does no harm. A user has only so
//! many watches; who gets none is woken now and then instead ([`BLIND`]).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How long one sleeps at most who cannot be told of every change.
pub const BLIND: Duration = Duration::from_secs(2);

/// A burst that is longer than so many of the pauses that would end it is more than one.
const BURST: u32 = 8;

/// A set of things to be woken by.
pub struct Watch {
    inotify: Option<OwnedFd>,
    pidfds: Vec<OwnedFd>,
    blind: bool,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch::new()
    }
}

impl Watch {
    /// An empty set.
    pub fn new() -> Watch {
        let inotify = open().ok();
        Watch { blind: inotify.is_none(), inotify, pidfds: Vec::new() }
    }

    /// Wakes when a file in this directory, or this file, changes; or, while it is
    /// not there, when something changes where it would be.
    pub fn path(&mut self, path: &Path) {
        use inotify::WatchFlags as W;
        let flags = W::MODIFY | W::CREATE | W::DELETE | W::MOVED_FROM | W::MOVED_TO | W::CLOSE_WRITE;
        let Some(inotify) = &self.inotify else { return };
        for path in path.ancestors() {
            match inotify::add_watch(inotify, path, flags) {
                Ok(_) => return,
                Err(e) if is_used_up(e) => return self.blind = true,
                Err(_) => {}
            }
        }
    }

    /// Wakes when this process ends.
    pub fn process(&mut self, pid: u32) {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        self.pidfds.extend(pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()));
    }

    /// Sleeps until something stirs or the time is up; then waits until it has
    /// been quiet for `settle`, so that a burst is one waking. Some are never quiet.
    pub fn sleep(&self, at_most: Duration, settle: Duration) -> io::Result<()> {
        let at_most = if self.blind { at_most.min(BLIND) } else { at_most };
        let began = Instant::now();
        if self.poll(at_most)? {
            let woken = Instant::now();
            while self.drain() {
                let left = at_most.saturating_sub(began.elapsed());
                let left = left.min((settle * BURST).saturating_sub(woken.elapsed()));
                if !self.poll_files(settle.min(left))? || left.is_zero() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn poll(&self, at_most: Duration) -> io::Result<bool> {
        let mut fds: Vec<PollFd<'_>> = self.inotify.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        fds.extend(self.pidfds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        wait(&mut fds, at_most)
    }

    fn poll_files(&self, at_most: Duration) -> io::Result<bool> {
        self.inotify.as_ref().map_or(Ok(false), |fd| wait(&mut [PollFd::new(fd, PollFlags::IN)], at_most))
    }

    /// Forgets which paths have stirred; says whether any had.
    pub fn drain(&self) -> bool {
        let Some(inotify) = &self.inotify else { return false };
        let mut buffer = [const { MaybeUninit::uninit() }; 8192];
        let mut reader = inotify::Reader::new(inotify, &mut buffer);
        let mut any = false;
        while reader.next().is_ok() {
            any = true;
        }
        any
    }

    /// Readable when a path has stirred; none if that is not told.
    pub fn stirred(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().filter(|_| !self.blind).map(AsFd::as_fd)
    }
}

/// What tells of changes, as long as this user has any left.
pub fn open() -> io::Result<OwnedFd> {
    Ok(inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?)
}

/// Whether there are no more of what tells of changes.
pub(crate) fn is_used_up(e: rustix::io::Errno) -> bool {
    use rustix::io::Errno as E;
    matches!(e, E::NOSPC | E::NOMEM | E::MFILE | E::NFILE)
}

fn wait(fds: &mut [PollFd<'_>], at_most: Duration) -> io::Result<bool> {
    let timeout = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
    match poll(fds, Some(&timeout)) {
        Ok(n) => Ok(n > 0),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test's own files")]
    fn who_waits_for_quiet_where_there_is_none_is_woken_all_the_same() {
        let folder = std::env::temp_dir().join(format!("lariat-watch-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut watch = Watch::new();
        watch.path(&folder);
        let (woken, quiet) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Far longer than anybody would wait, and not for ever.
                for _ in 0..2_000_000 {
                    std::fs::write(folder.join("log"), "x").unwrap();
                    if woken.load(Ordering::Relaxed) {
                        return;
                    }
                }
                quiet.store(true, Ordering::Relaxed);
            });
            watch.sleep(Duration::from_secs(600), Duration::from_millis(250)).unwrap();
            assert!(!quiet.load(Ordering::Relaxed), "it was woken only once nothing stirred any more");
            woken.store(true, Ordering::Relaxed);
        });
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
