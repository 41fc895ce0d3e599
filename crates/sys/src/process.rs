//! What a process is, and what can be read of one.
//!
//! A PID is not an identity: the kernel gives it out again. An [`Identity`] is
//! the boot, the PID, the start time and, on kernels that have it (6.9 and
//! later), the inode of its pidfd, which is never given out twice in a boot. A PID
//! also needs the namespace it was read in: the same number names another process
//! in a container, and a record of one may lie in a directory that both share.

use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fs, io};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags};

use crate::{clock, file};

/// One process, for ever.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The boot it runs in.
    pub boot: String,
    /// Its PID in the namespace of whoever made this.
    pub pid: u32,
    /// Its start, in clock ticks since boot.
    pub start: u64,
    /// The inode of its pidfd, where the kernel gives one.
    pub pidfd_inode: Option<u64>,
    /// Where the PID was read; records of old have none.
    pub place: Option<Place>,
}

/// Where a PID means something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The PID namespace, as `pid:[4026531836]`.
    pub namespace: String,
    /// The machine's id; empty if it has none.
    pub machine: String,
}

/// The inode of the first PID namespace: who stands there sees every process.
pub const FIRST_NAMESPACE: &str = "pid:[4026531836]";

impl Place {
    /// Ours; `None` if that cannot be read. It stays what it is while we live.
    pub fn here() -> Option<&'static Place> {
        static HERE: OnceLock<Option<Place>> = OnceLock::new();
        let look = || Some(Place { namespace: own_pid_namespace().ok()?, machine: machine_id() });
        HERE.get_or_init(look).as_ref()
    }
}

/// The machine's id, or nothing: one of zeros names no machine.
pub fn machine_id() -> String {
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let id = id.trim();
    if id.bytes().all(|b| b == b'0') { String::new() } else { id.to_owned() }
}

impl Identity {
    /// Who holds this PID now, with a pidfd that names that same process. The
    /// start time is read after the pidfd was opened and the pidfd is checked
    /// to be alive after that, so the two belong together.
    pub fn open(pid: u32) -> io::Result<(Identity, OwnedFd)> {
        let raw = Pid::from_raw(i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let pidfd = rustix::process::pidfd_open(raw, PidfdFlags::empty())?;
        let stat = Stat::read(pid)?;
        if has_exited(&pidfd)? {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok((Identity::now(pid, stat.start, &pidfd)?, pidfd))
    }

    fn now(pid: u32, start: u64, pidfd: &OwnedFd) -> io::Result<Identity> {
        let place = Place::here().cloned();
        Ok(Identity { boot: clock::boot_id()?, pid, start, pidfd_inode: pidfd_inode(pidfd), place })
    }

    /// Whether both are the same process. A record of a kernel without pidfd
    /// inodes has none to compare. PIDs of two namespaces are not comparable, and
    /// neither are start times (a container may have its own clock): the inode is.
    pub fn is(&self, other: &Identity) -> bool {
        let inodes = self.pidfd_inode.zip(other.pidfd_inode);
        let places = self.place.as_ref().zip(other.place.as_ref());
        if places.is_some_and(|(a, b)| a.namespace != b.namespace) {
            return self.boot == other.boot && inodes.is_some_and(|(a, b)| a == b);
        }
        self.boot == other.boot
            && self.pid == other.pid
            && self.start == other.start
            && inodes.is_none_or(|(a, b)| a == b)
    }

    /// A child of ours that nobody has reaped yet, ended or not: as long as we do
    /// not reap it, its PID is its own.
    pub fn of_child(pid: u32) -> io::Result<(Identity, OwnedFd)> {
        let raw = Pid::from_raw(i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let pidfd = rustix::process::pidfd_open(raw, PidfdFlags::empty())?;
        let start = Stat::read(pid)?.start;
        Ok((Identity::now(pid, start, &pidfd)?, pidfd))
    }

    /// Whether that very process still runs. An error is no answer.
    pub fn is_alive(&self) -> io::Result<bool> {
        Ok(self.here()?.is_some())
    }

    /// That very process as it is called from here, with its pidfd; `None` if it is
    /// gone. An error is no answer.
    pub fn here(&self) -> io::Result<Option<(Identity, OwnedFd)>> {
        if !is_proc_ours() {
            return Err(io::Error::other("/proc shows another PID namespace than the one we are in"));
        }
        let Some(theirs) = &self.place else { return self.by_pid() };
        let ours = Place::here().ok_or_else(|| io::Error::other("it cannot be told which PID namespace this is"))?;
        let named = !theirs.machine.is_empty() && !ours.machine.is_empty();
        // Of another boot: gone with it, if it was this machine's. Namespaces are then other ones, too.
        if self.boot != clock::boot_id()? {
            if named && theirs.machine != ours.machine {
                return Err(io::Error::other("it was started on another machine, which cannot be looked at from here"));
            }
            return Ok(None);
        }
        if theirs.namespace == ours.namespace { self.by_pid() } else { self.within(&theirs.namespace, ours) }
    }

    fn by_pid(&self) -> io::Result<Option<(Identity, OwnedFd)>> {
        match Identity::open(self.pid) {
            Ok((now, pidfd)) => Ok(now.is(self).then_some((now, pidfd))),
            Err(e) if is_gone(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Looks for it among those of another namespace. Whoever sees one of them, or stands in the first of
    /// all, sees them all, so that not to find it proves its end.
    fn within(&self, namespace: &str, ours: &Place) -> io::Result<Option<(Identity, OwnedFd)>> {
        let mut seen = ours.namespace == FIRST_NAMESPACE;
        let mut unclear = false;
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let inside = match pid_namespace(pid) {
                // What was started there is there or deeper, and never where whoever sees it stands.
                Ok(other) if other == ours.namespace => continue,
                Ok(other) => other == namespace,
                Err(e) if is_gone(&e) => continue,
                Err(_) => false, // the inode may still tell
            };
            seen |= inside;
            let now = match Identity::open(pid) {
                Ok(now) => now,
                Err(e) if is_gone(&e) => continue,
                Err(e) => return Err(e),
            };
            let same = match (now.0.pidfd_inode, self.pidfd_inode) {
                (Some(a), Some(b)) => a == b,
                _ if !inside => {
                    unclear = true; // it may be deeper, where its number is another
                    false
                }
                _ => now.0.start == self.start && innermost_pid(pid).is_ok_and(|pid| pid == self.pid),
            };
            if same {
                return Ok(Some(now));
            }
        }
        if unclear {
            return Err(io::Error::other("it could be one of those whose PID namespace cannot be read"));
        }
        let why =
            || format!("it was started in another PID namespace ({namespace}), which cannot be looked into from here");
        if seen { Ok(None) } else { Err(io::Error::other(why())) }
    }
}

/// The path of our own program. One that was replaced while we run, by a later version, is called by its path still: that
/// leads to the later one.
pub fn own_program() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let left = program.as_os_str().as_bytes().strip_suffix(b" (deleted)").filter(|_| !program.exists());
    Ok(left.map_or_else(|| program.clone(), |path| PathBuf::from(OsStr::from_bytes(path))))
}

/// Lets this user into whatever this process and what it starts make, whatever else its umask keeps from everybody: records
/// that nobody can read are none.
pub fn own_what_we_make() {
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask - Mode::RWXU);
}

/// Whether `/proc` names processes as we do: one that was mounted in another PID namespace has our numbers too,
/// but for other processes.
pub fn is_proc_ours() -> bool {
    static OURS: OnceLock<bool> = OnceLock::new();
    let own =
        || fs::read_link("/proc/self").is_ok_and(|own| own.as_os_str() == std::process::id().to_string().as_str());
    *OURS.get_or_init(own)
}

/// Whether the process behind a pidfd has exited.
pub fn has_exited(pidfd: &OwnedFd) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    Ok(poll(&mut fds, Some(&Timespec::default()))? > 0)
}

/// Waits until the process behind a pidfd has exited; `false` if the time was up
/// before.
pub fn wait_exit(pidfd: &OwnedFd, at_most: std::time::Duration) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let until = std::time::Instant::now() + at_most;
    loop {
        let left = until.saturating_duration_since(std::time::Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&timeout)) {
            Ok(n) => return Ok(n > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Waits until the process behind a pidfd has exited, or something can be read from another
/// descriptor; which of the two it was, if not the time.
pub fn wait_exit_or(pidfd: &OwnedFd, other: BorrowedFd<'_>, at_most: std::time::Duration) -> io::Result<(bool, bool)> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
    let mut fds = [PollFd::new(pidfd, PollFlags::IN), PollFd::from_borrowed_fd(other, PollFlags::IN)];
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok((!fds[0].revents().is_empty(), !fds[1].revents().is_empty())),
        Err(e) => Err(e.into()),
    }
}

// Before 6.9 a pidfd is an anonymous inode that all share: useless as a name.
fn pidfd_inode(pidfd: &OwnedFd) -> Option<u64> {
    const PIDFS_MAGIC: u64 = 0x5049_4446;
    let fs = rustix::fs::fstatfs(pidfd).ok()?;
    (fs.f_type as u64 == PIDFS_MAGIC).then(|| rustix::fs::fstat(pidfd).ok().map(|s| s.st_ino)).flatten()
}

/// Whether an error of a `/proc` or pidfd call means that the process is gone.
pub fn is_gone(error: &io::Error) -> bool {
    let esrch = rustix::io::Errno::SRCH.raw_os_error();
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(esrch)
}

/// What `/proc/PID/stat` tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stat {
    /// The command name, at most 15 bytes.
    pub comm: String,
    /// `R`, `S`, `D`, `T`, `Z` …
    pub state: u8,
    /// Its parent.
    pub ppid: u32,
    /// Kernel flags.
    pub flags: u64,
    /// How many threads it still has, the first one included even if that has ended.
    pub threads: u64,
    /// Start, in clock ticks since boot.
    pub start: u64,
    /// The signals that its first thread has not taken yet. One that ends all threads is here for each of them, as
    /// `SIGKILL`, whatever it was.
    pub pending: u64,
}

impl Stat {
    /// Reads it now.
    pub fn read(pid: u32) -> io::Result<Stat> {
        // The kernel gives all of it to the first who asks for as much.
        let mut bytes = [0; 2048];
        let file = rustix::fs::open(format!("/proc/{pid}/stat"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let n = rustix::io::read(file, &mut bytes)?;
        Stat::parse(&bytes[..n]).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unreadable /proc stat"))
    }

    /// Reads `26624 (claude) S 1 …`. The name may hold anything, so the fields
    /// are counted from the last parenthesis.
    pub fn parse(bytes: &[u8]) -> Option<Stat> {
        let open = bytes.iter().position(|b| *b == b'(')?;
        let close = bytes.iter().rposition(|b| *b == b')')?;
        let comm = String::from_utf8_lossy(bytes.get(open + 1..close)?).into_owned();
        let mut fields = std::str::from_utf8(bytes.get(close + 1..)?).ok()?.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let ppid = fields.next()?.parse().ok()?;
        let flags = fields.nth(4)?.parse().ok()?;
        let threads = fields.nth(10)?.parse().ok()?;
        let start = fields.nth(1)?.parse().ok()?;
        let pending = fields.nth(8).and_then(|f| f.parse().ok()).unwrap_or(0);
        Some(Stat { comm, state, ppid, flags, threads, start, pending })
    }

    /// It will run nothing more of its program: it was killed and had no turn on a processor since, or it is on its
    /// way out. One that waits for a disk or a server may stay like that for ever.
    pub fn is_doomed(&self) -> bool {
        const EXITING: u64 = 0x4;
        const KILL: u64 = 1 << (9 - 1);
        let soon = self.state != b'D';
        self.is_ending() || soon && (self.flags & EXITING != 0 || self.pending & KILL != 0)
    }

    /// Its first thread has ended, and others are left: most likely it is dying this moment. Its files, arguments
    /// and environment are out of sight already.
    pub fn is_ending(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads > 1
    }

    /// Ended, and only not reaped yet. The state is that of the first thread: while
    /// others are left, the process runs, or is in the middle of dying.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }
}

/// Whether its memory is gone: it runs nothing any more, whatever it waits for before it is gone itself (the first
/// process of a PID namespace waits for all others). It shows neither arguments nor files then. Not for kernel
/// threads, which have none.
pub fn is_leaving(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_err_and(|e| is_gone(&e))
}

/// Where a process stands. A directory that was removed keeps its old name.
pub fn cwd(pid: u32) -> io::Result<PathBuf> {
    let here = PathBuf::from(format!("/proc/{pid}/cwd"));
    let link = fs::read_link(&here)?;
    // A directory may be called so.
    let is_there = || file::place(&link).is_ok_and(|named| file::place(&here).is_ok_and(|stood| stood == named));
    Ok(match link.to_str().and_then(|s| s.strip_suffix(" (deleted)")) {
        Some(stripped) if !is_there() => PathBuf::from(stripped),
        _ => link,
    })
}

/// Its environment, as `NAME=value` entries. It may hold secrets: look up what
/// is needed and let it go.
pub fn environment(pid: u32) -> io::Result<Environment> {
    Ok(Environment(fs::read(format!("/proc/{pid}/environ"))?))
}

/// The environment a process was started with.
pub struct Environment(Vec<u8>);

impl Environment {
    /// The value of one variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.split(|b| *b == 0).find_map(|entry| {
            let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            std::str::from_utf8(value).ok()
        })
    }
}

/// The paths that its file descriptors lead to.
pub fn open_files(pid: u32) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        match fs::read_link(entry?.path()) {
            Ok(path) => paths.push(path),
            Err(e) if is_gone(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(paths)
}

/// A file that a process has open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Where it is.
    pub path: PathBuf,
    /// It may be written through this descriptor.
    pub writes: bool,
    /// It is locked by this descriptor. The kernel's table of all locks names the process that took one; that may have
    /// been a tool, which has ended since and left the lock with the descriptor.
    pub locks: bool,
}

/// Of these files, those that it has open.
pub fn opened(pid: u32, among: impl Fn(&Path) -> bool) -> io::Result<Vec<Opened>> {
    const O_ACCMODE: u32 = 0o3;
    let mut files = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let entry = entry?;
        // Who may list them may still not look where they lead.
        let path = match fs::read_link(entry.path()) {
            Ok(path) if among(&path) => path,
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(e),
            Ok(_) | Err(_) => continue, // or closed this moment
        };
        let about = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", entry.file_name().to_string_lossy()));
        let Ok(about) = about else { continue };
        let flags = about.lines().find_map(|l| u32::from_str_radix(l.strip_prefix("flags:")?.trim(), 8).ok());
        let locks = about.lines().any(|l| l.starts_with("lock:") && l.contains("FLOCK"));
        files.push(Opened { path, writes: flags.is_some_and(|f| f & O_ACCMODE != 0), locks });
    }
    Ok(files)
}

/// A file that a process appends to, and where its own last write ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Appended {
    /// Where the file was when it was opened.
    pub path: PathBuf,
    /// Its device and inode.
    pub place: (u64, u64),
    /// The position after what was last written through this descriptor.
    pub position: u64,
    /// The descriptor, by which it can be opened even where its name is gone.
    pub through: PathBuf,
}

/// The regular files in a directory that a process has open for appending. The
/// kernel keeps a position per open file, so that of a log shared by many tells
/// which line this very process wrote last.
pub fn appended(pid: u32, folder: &Path) -> io::Result<Vec<Appended>> {
    const O_APPEND: u32 = 0o2000;
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let entry = entry?;
        let path = match fs::read_link(entry.path()) {
            Ok(path) => path,
            Err(e) if is_gone(&e) => continue,
            Err(e) => return Err(e),
        };
        if path.parent() != Some(folder) {
            continue;
        }
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", entry.file_name().to_string_lossy()));
        let (Ok(info), Ok(stat)) = (info, rustix::fs::stat(entry.path())) else { continue };
        let value = |key: &str| info.lines().find_map(|l| l.strip_prefix(key)).map(str::trim);
        let flags = value("flags:").and_then(|f| u32::from_str_radix(f, 8).ok()).unwrap_or(0);
        if let Some(position) = value("pos:").and_then(|p| p.parse().ok()).filter(|_| flags & O_APPEND != 0) {
            found.push(Appended { path, place: (stat.st_dev, stat.st_ino), position, through: entry.path() });
        }
    }
    Ok(found)
}

/// Its PID namespace, as `pid:[4026531836]`.
pub fn pid_namespace(pid: u32) -> io::Result<String> {
    Ok(fs::read_link(format!("/proc/{pid}/ns/pid"))?.to_string_lossy().into_owned())
}

/// Our own PID namespace.
pub fn own_pid_namespace() -> io::Result<String> {
    Ok(fs::read_link("/proc/self/ns/pid")?.to_string_lossy().into_owned())
}

/// Its PID inside its own, innermost namespace.
pub fn innermost_pid(pid: u32) -> io::Result<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("NSpid:"));
    line.and_then(|l| l.split_ascii_whitespace().last()?.parse().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no NSpid line"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let stat = Stat::parse(b"7 (a) S (b) c) Z 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 81703 1 2").unwrap();
        assert_eq!((stat.comm.as_str(), stat.ppid, stat.start, stat.is_dead()), ("a) S (b) c", 3, 81703, true));
        assert!(!stat.is_doomed());
        let killed = b"7 (a) S 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 81703 1 2 3 4 5 6 7 8 256 0 0 0 0";
        assert!(Stat::parse(killed).unwrap().is_doomed());
        assert!(!Stat { state: b'D', ..Stat::parse(killed).unwrap() }.is_doomed());
        let leaving = b"7 (a) R 3 7 7 0 -1 4194564 1 2 3 4 5 6 7 8 20 0 1 0 81703 1 2 3 4 5 6 7 8 0 0 0 0 0";
        assert!(Stat::parse(leaving).unwrap().is_doomed());
        assert_eq!(Stat::parse(b"7 (x"), None);
        assert_eq!(Stat::parse(b""), None);
    }

    #[test]
    fn this_process_is_itself_and_nobody_else() {
        let (me, _) = Identity::open(std::process::id()).unwrap();
        assert!(me.is_alive().unwrap());
        assert!(!Identity { start: me.start + 1, ..me.clone() }.is_alive().unwrap());
        assert!(!Identity { boot: "another".into(), ..me.clone() }.is_alive().unwrap());
        let place = me.place.clone().unwrap();
        // A record of old says nothing of its namespace: it is read as ours.
        assert!(Identity { place: None, ..me.clone() }.is_alive().unwrap());
        let elsewhere = Place { namespace: "pid:[1]".into(), ..place.clone() };
        let there = Identity { place: Some(elsewhere), pid: me.pid + 1, ..me.clone() };
        if me.pidfd_inode.is_some() {
            assert!(there.is(&me), "the inode is the same in every namespace");
        }
        let gone = Identity { pidfd_inode: Some(0), ..there };
        assert!(!gone.is(&me));
        assert_eq!(gone.is_alive().ok(), (place.namespace == FIRST_NAMESPACE).then_some(false));
        let afar = Place { machine: "another".into(), ..place };
        let afar = Identity { boot: "another".into(), place: Some(afar), ..me.clone() };
        assert_eq!(afar.is_alive().is_err(), !machine_id().is_empty(), "who knows what another machine runs");
        if let Some(inode) = me.pidfd_inode {
            assert!(!Identity { pidfd_inode: Some(inode + 1), ..me }.is_alive().unwrap());
        }
    }

    #[test]
    fn a_directory_that_is_called_deleted_is_there() {
        let top = std::env::temp_dir().join(format!("lariat-cwd-{}", std::process::id()));
        let odd = top.join("a (deleted)");
        fs::create_dir_all(&odd).unwrap();
        let top = top.canonicalize().unwrap();
        let odd = top.join("a (deleted)");
        // It lives until its input ends.
        #[expect(clippy::disallowed_methods, reason = "the test's own child")]
        let mut child =
            std::process::Command::new("cat").current_dir(&odd).stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert_eq!(cwd(child.id()).unwrap(), odd);
        #[expect(clippy::disallowed_methods, reason = "the test's own folder")]
        fs::remove_dir_all(&top).unwrap();
        assert_eq!(cwd(child.id()).unwrap(), odd, "it is gone, and keeps its old name");
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn an_ended_child_is_gone_and_a_zombie_is_dead() {
        // It lives until its input ends, so it is surely there to be opened.
        #[expect(clippy::disallowed_methods, reason = "the test's own child")]
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().expect("a child");
        let pid = child.id();
        let (identity, pidfd) = Identity::open(pid).unwrap();
        assert!(identity.is_alive().unwrap());
        drop(child.stdin.take());
        rustix::event::poll(&mut [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)], None).unwrap();
        assert!(Stat::read(pid).unwrap().is_dead(), "ended and not reaped");
        assert!(is_leaving(pid) && !is_leaving(std::process::id()));
        assert!(!identity.is_alive().unwrap());
        child.wait().unwrap();
        assert!(is_gone(&Stat::read(pid).unwrap_err()));
    }
}
