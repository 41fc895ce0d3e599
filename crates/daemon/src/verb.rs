//! Verbs, run by the command line itself.
//!
//! # Theory of operation
//!
//! A verb that somebody asks of the daemon is run as `lariat VERB --json` in a process
//! of its own. So there is one way to do a thing and one shape of its answer, ten
//! thousand sessions never lie in the daemon's memory, and a verb that hangs or
//! crashes harms nobody but itself. Its output goes to memory that only the kernel
//! holds, and from there to whoever asked.
//!
//! It is this very program, even if another one lies under its name by now.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};

/// The one argument of a verb that reads its command line from standard input.
pub const BY_INPUT: &str = "__verb";

/// The variable that makes `ls` and `status` tell what their answer depends on.
pub const TELL_SEEN: &str = "LARIAT_TELL_SEEN";
/// How much of what it complains of is kept.
const COMPLAINT: u64 = 64 << 10;
/// How many bytes of paths are believed.
const SEEN: u64 = 16 << 20;

/// A verb that has run.
pub struct Ran {
    /// Its exit code.
    pub code: u8,
    /// What it printed.
    pub out: File,
    /// How much of it.
    pub bytes: u64,
    /// What it complained of.
    pub complaint: String,
    /// What its answer depends on, if it told.
    pub seen: Option<Seen>,
}

/// What an answer depends on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Every change of it gives a hint.
    pub hinted: bool,
    /// The places to watch.
    pub paths: Vec<PathBuf>,
}

impl Seen {
    /// As it is told on standard error, among what is complained of.
    pub fn told(&self) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt as _;
        let mut bytes = if self.hinted { b"\0hinted".to_vec() } else { b"\0unhinted".to_vec() };
        for path in &self.paths {
            bytes.push(0);
            bytes.extend_from_slice(path.as_os_str().as_bytes());
        }
        bytes.extend_from_slice(b"\0\0"); // no path is empty
        bytes
    }

    /// What was told, and the rest of what was said.
    fn split(said: &[u8]) -> (Vec<u8>, Option<Seen>) {
        let Some(begin) = said.iter().position(|b| *b == 0) else { return (said.to_vec(), None) };
        let told = &said[begin + 1..];
        match told.windows(2).position(|w| w == b"\0\0") {
            Some(end) => ([&said[..begin], &told[end + 2..]].concat(), Seen::heard(&told[..end])),
            None => (said[..begin].to_vec(), None),
        }
    }

    fn heard(bytes: &[u8]) -> Option<Seen> {
        use std::os::unix::ffi::OsStrExt as _;
        let mut parts = bytes.split(|b| *b == 0);
        let hinted = match parts.next()? {
            b"hinted" => true,
            b"unhinted" => false,
            _ => return None,
        };
        let paths = parts.map(|p| PathBuf::from(std::ffi::OsStr::from_bytes(p))).collect();
        Some(Seen { hinted, paths })
    }
}

/// Runs a verb; one that takes longer than `at_most` is ended. It tells what its answer
/// depends on, if asked to.
pub fn run(arguments: &[String], at_most: Duration, tell_seen: bool) -> io::Result<Ran> {
    let memory = || -> io::Result<(File, Stdio)> {
        let fd: OwnedFd = memfd_create("lariat", MemfdFlags::CLOEXEC)?;
        let file = File::from(fd);
        let stdio = Stdio::from(file.try_clone()?);
        Ok((file, stdio))
    };
    let ((out, stdout), (mut err, stderr)) = (memory()?, memory()?);
    #[expect(clippy::disallowed_methods, reason = "the one place where the daemon runs a verb")]
    let mut command = Command::new("/proc/self/exe");
    command.arg0_lariat().stdout(stdout).stderr(stderr);
    match tell_seen {
        true => command.args(arguments).stdin(Stdio::null()).env(TELL_SEEN, "1"),
        // What is asked of one that acts may be secret, and arguments are for everybody to read.
        false => command.arg(BY_INPUT).stdin(Stdio::from(words(arguments)?)),
    };
    let mut child = command.spawn()?;
    if !ends_within(child.id(), at_most)? {
        child.kill()?;
        child.wait()?;
        let what = arguments.first().map_or("", String::as_str);
        return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{what} took longer than {at_most:?}")));
    }
    let code = child.wait()?.code().ok_or_else(|| io::Error::other("it was ended by a signal"))?;
    let mut said = Vec::new();
    err.rewind()?;
    err.take(COMPLAINT + SEEN).read_to_end(&mut said)?;
    let (rest, seen) = Seen::split(&said);
    let complaint = String::from_utf8_lossy(&rest[..rest.len().min(COMPLAINT as usize)]).trim_end().to_owned();
    let bytes = out.metadata()?.len();
    Ok(Ran { code: u8::try_from(code).unwrap_or(1), out, bytes, complaint, seen })
}

/// A file that holds these words, to be read from its beginning.
fn words(arguments: &[String]) -> io::Result<File> {
    let mut file = File::from(memfd_create("lariat", MemfdFlags::CLOEXEC)?);
    file.write_all(arguments.join("\0").as_bytes())?;
    file.rewind()?;
    Ok(file)
}

trait Named {
    fn arg0_lariat(&mut self) -> &mut Self;
}

impl Named for Command {
    /// The name that the process table shows, instead of the one it was found by.
    fn arg0_lariat(&mut self) -> &mut Command {
        use std::os::unix::process::CommandExt as _;
        self.arg0("lariat")
    }
}

/// Whether a child of ours ends within this time.
pub(crate) fn ends_within(pid: u32, at_most: Duration) -> io::Result<bool> {
    let (_, pidfd) = match lariat_sys::process::Identity::of_child(pid) {
        Ok(child) => child,
        Err(e) if lariat_sys::process::is_gone(&e) => return Ok(true),
        Err(e) => return Err(e),
    };
    let timeout = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
    loop {
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            ended => return Ok(ended? > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_heard_as_it_was_told() {
        for paths in [vec![], vec!["/a".into(), "/with space\n/b".into()]] {
            for hinted in [true, false] {
                let seen = Seen { hinted, paths: paths.clone() };
                let said = [b"before ", seen.told().as_slice(), b"after"].concat();
                assert_eq!(Seen::split(&said), (b"before after".to_vec(), Some(seen)));
            }
        }
        assert_eq!(Seen::split(b"plain"), (b"plain".to_vec(), None));
        assert_eq!(Seen::split(b"cut\0hinted\0/a"), (b"cut".to_vec(), None));
        assert_eq!(Seen::split(b"\0something\0/a\0\0"), (Vec::new(), None));
    }
}
