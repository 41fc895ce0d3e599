//! A watch that stands for as long as its owner does.
//!
//! As [`crate::watch`], for one who stays: what is watched changes from look to
//! look, a thread can be woken by another, and one can ask whether anything has
//! stirred without sleeping. Hints are queued by the kernel before the call that
//! causes them returns, so "nothing has stirred" is an answer about the past up to
//! the asking. A path that could not be watched is told: nothing can be said of it. Where
//! this user has no more watches left, no sleep is long ([`BLIND`]).

use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::fs::inotify;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::watch::{BLIND, is_used_up};

/// Why a sleep was over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// Another thread called.
    Called,
    /// A process ended.
    Process,
    /// A file changed.
    File,
    /// The time was up.
    Time,
}

/// A standing watch.
pub struct Standing {
    inotify: Option<OwnedFd>,
    /// Not everything that was asked for could be watched: there are no more watches.
    blind: bool,
    caller: OwnedFd,
    /// What was asked to be watched, and by which numbers it is.
    paths: HashMap<PathBuf, i32>,
    processes: HashMap<u32, OwnedFd>,
    /// All of them in one, so that an end costs the same however many are watched.
    ends: OwnedFd,
}

/// Wakes the owner of a watch from another thread.
pub struct Caller(OwnedFd);

impl Caller {
    /// Wakes it.
    pub fn call(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes()); // full is called already
    }
}

impl Standing {
    /// An empty one.
    pub fn new() -> io::Result<Standing> {
        let inotify = crate::watch::open().ok();
        Ok(Standing {
            blind: inotify.is_none(),
            inotify,
            caller: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            paths: HashMap::new(),
            processes: HashMap::new(),
            ends: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        })
    }

    /// What wakes it.
    pub fn caller(&self) -> io::Result<Caller> {
        Ok(Caller(self.caller.try_clone()?))
    }

    /// Watches these directories and files, and no others. Whether all of them were
    /// watched before: only then can nothing have been missed.
    pub fn watch(&mut self, wanted: &HashSet<PathBuf>) -> bool {
        let mut before = true;
        let mut now = HashMap::with_capacity(wanted.len());
        let Some(inotify) = &self.inotify else { return false };
        self.blind = false;
        for path in wanted {
            // Asked anew each time: what stands under a name may be another by now.
            let number = add(inotify, path).unwrap_or_else(|e| {
                self.blind |= is_used_up(e);
                None
            });
            before &= number.is_some() && self.paths.get(path).copied() == number;
            now.extend(number.map(|number| (path.clone(), number)));
        }
        let kept: HashSet<i32> = now.values().copied().collect();
        for number in self.paths.values().collect::<HashSet<_>>().into_iter().filter(|n| !kept.contains(*n)) {
            let _ = inotify::remove_watch(inotify, *number); // gone with its directory
        }
        self.paths = now;
        before
    }

    /// Watches these processes, and no others. Whether none of them had ended.
    pub fn processes(&mut self, wanted: impl IntoIterator<Item = u32>) -> bool {
        let mut all = true;
        let mut now = HashMap::new();
        for pid in wanted {
            let open = || pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok();
            // One that has ended would wake for ever, reaped or not.
            let lives = |fd: &OwnedFd| matches!(crate::process::has_exited(fd), Ok(false));
            let known = self.processes.remove(&pid);
            let kept = known.filter(|fd| lives(fd) || self.let_go(fd));
            match kept.or_else(|| open().filter(|fd| lives(fd) && self.take(pid, fd))) {
                Some(fd) => drop(now.insert(pid, fd)),
                None => all = false,
            }
        }
        for fd in std::mem::replace(&mut self.processes, now).values() {
            self.let_go(fd);
        }
        all
    }

    /// Whether the end of this process will wake us.
    fn take(&self, pid: u32, fd: &OwnedFd) -> bool {
        epoll::add(&self.ends, fd, epoll::EventData::new_u64(pid.into()), epoll::EventFlags::IN).is_ok()
    }

    /// Its end wakes us no longer; always `false`, as it is not watched.
    fn let_go(&self, fd: &OwnedFd) -> bool {
        let _ = epoll::delete(&self.ends, fd); // it was not watched
        false
    }

    /// Those of the watched processes that have ended; they are watched no longer.
    pub fn ended(&mut self) -> Vec<u32> {
        let mut ended = Vec::new();
        loop {
            let mut fired: Vec<epoll::Event> = Vec::with_capacity(64);
            let told = epoll::wait(&self.ends, spare_capacity(&mut fired), Some(&Timespec::default()));
            if !matches!(told, Ok(1..)) {
                return ended;
            }
            for event in fired {
                let pid = u32::try_from(event.data.u64()).unwrap_or_default();
                if let Some(fd) = self.processes.remove(&pid) {
                    self.let_go(&fd);
                    ended.push(pid);
                }
            }
        }
    }

    /// Whether a file has stirred since it was last told of.
    pub fn have_files_stirred(&self) -> bool {
        let Some(inotify) = &self.inotify else { return false };
        let mut fds = [PollFd::new(inotify, PollFlags::IN)];
        !matches!(poll(&mut fds, Some(&Timespec::default())), Ok(0))
    }

    /// Whether anything has stirred since it was last told of.
    pub fn has_stirred(&self) -> bool {
        !matches!(self.poll(Some(Duration::ZERO)), Ok(Woken::Time))
    }

    /// Sleeps until something stirs or the time is up.
    pub fn sleep(&self, at_most: Duration) -> io::Result<Woken> {
        self.poll(Some(if self.blind { at_most.min(BLIND) } else { at_most }))
    }

    /// Lets files go on changing until they have been quiet for `quiet`, though no
    /// longer than `at_most`, so that a burst is one waking; an end or a call cuts it
    /// short. Then all that was told of files and calls is forgotten.
    pub fn settle(&self, quiet: Duration, at_most: Duration) -> io::Result<Woken> {
        let until = Instant::now() + at_most;
        let mut why = Woken::Time;
        loop {
            self.forget();
            let left = until.saturating_duration_since(Instant::now()).min(quiet);
            why = match self.poll(Some(left))? {
                Woken::File if !left.is_zero() => Woken::File,
                Woken::Time | Woken::File => return Ok(why),
                other => return Ok(other),
            };
        }
    }

    /// Forgets what was told of files and calls.
    pub fn forget(&self) {
        if let Some(inotify) = &self.inotify {
            let mut buffer = [const { MaybeUninit::uninit() }; 8192];
            let mut reader = inotify::Reader::new(inotify, &mut buffer);
            while reader.next().is_ok() {}
        }
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.caller, &mut count); // nothing to read is no call
    }

    fn poll(&self, at_most: Option<Duration>) -> io::Result<Woken> {
        let files = self.inotify.as_ref().unwrap_or(&self.caller);
        let mut fds = [&self.caller, files, &self.ends].map(|fd| PollFd::new(fd, PollFlags::IN));
        let timeout = at_most.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: i64::from(t.subsec_nanos()) });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) => return Ok(Woken::Time),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Woken::Called),
            Err(e) => return Err(e.into()),
        }
        let fired = |fd: &PollFd<'_>| !fd.revents().is_empty();
        Ok(if fired(&fds[0]) {
            Woken::Called
        } else if fired(&fds[2]) {
            Woken::Process
        } else {
            Woken::File
        })
    }
}

/// The number of a watch on a path, or, while it is not there, on where it would be.
fn add(fd: &OwnedFd, path: &Path) -> Result<Option<i32>, rustix::io::Errno> {
    use inotify::WatchFlags as W;
    let flags = W::MODIFY | W::ATTRIB | W::CREATE | W::DELETE | W::MOVED_FROM | W::MOVED_TO | W::CLOSE_WRITE;
    for path in path.ancestors() {
        match inotify::add_watch(fd, path, flags) {
            Ok(number) => return Ok(Some(number)),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {}
            Err(e) => return Err(e), // no more watches, or not ours to see
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stirs_is_told_and_what_does_not_is_not() {
        let folder = std::env::temp_dir().join(format!("lariat-vigil-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut standing = Standing::new().unwrap();
        let wanted = HashSet::from([folder.clone(), folder.join("later")]);
        assert!(!standing.watch(&wanted), "it was not watched before");
        assert!(standing.watch(&wanted), "now it was");
        assert!(!standing.has_stirred());
        std::fs::create_dir(folder.join("later")).unwrap();
        assert!(standing.has_stirred());
        standing.forget();
        assert!(!standing.has_stirred());
        assert!(!standing.watch(&wanted), "what was not there is another place now");
        #[expect(clippy::disallowed_methods, reason = "the test's own file")]
        std::fs::write(folder.join("later/file"), "x").unwrap();
        assert_eq!(standing.sleep(Duration::from_secs(60)).unwrap(), Woken::File);
        standing.forget();
        standing.caller().unwrap().call();
        assert_eq!(standing.sleep(Duration::from_secs(60)).unwrap(), Woken::Called);
        #[expect(clippy::disallowed_methods, reason = "the test's own folder")]
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn an_end_is_told_until_the_process_is_let_go() {
        #[expect(clippy::disallowed_methods, reason = "the test's own child")]
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut standing = Standing::new().unwrap();
        assert!(standing.processes([child.id()]));
        assert!(!standing.has_stirred());
        drop(child.stdin.take());
        assert_eq!(standing.sleep(Duration::from_secs(60)).unwrap(), Woken::Process);
        child.wait().unwrap();
        assert!(!standing.processes([child.id()]), "it has ended");
        assert!(!standing.has_stirred());
    }

    #[test]
    fn of_many_those_are_told_that_have_ended_each_once() {
        #[expect(clippy::disallowed_methods, reason = "the test's own children")]
        let start = |_| std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut ending: Vec<_> = (0..150).map(start).collect();
        let mut others: Vec<_> = (0..50).map(start).collect();
        let ids = |of: &[std::process::Child]| -> Vec<u32> { of.iter().map(std::process::Child::id).collect() };
        let mut standing = Standing::new().unwrap();
        assert!(standing.processes([ids(&ending), ids(&others)].concat()));
        assert!(standing.processes([ids(&ending), ids(&others)].concat()), "they are watched on");
        assert_eq!(standing.ended(), Vec::<u32>::new());
        // More than are told in one go; and some that are not watched any more.
        let mut wanted = ids(&ending);
        assert!(standing.processes([ids(&ending), ids(&others[25..])].concat()));
        for child in ending.iter_mut().chain(&mut others[..25]) {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        let mut ended = standing.ended();
        wanted.sort_unstable();
        ended.sort_unstable();
        assert_eq!(ended, wanted);
        assert_eq!(standing.ended(), Vec::<u32>::new(), "each once");
        assert!(!standing.has_stirred(), "nor does one wake again, nor one that is not watched");
        for child in &mut others[25..] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }
}
