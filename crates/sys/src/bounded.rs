//! A program that must not hang us: it ends by a deadline, with all that it started, and what it
//! says is handed on as it comes.
//!
//! Its end is the end of the process, not of its output: a program that leaves another one behind
//! with its standard error open (ssh does, where a connection is to persist) keeps nobody waiting.

use std::io::{self, Read};
use std::process::{ChildStdin, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::process::Identity;
use crate::tree::Tree;

/// How much is read at once.
const PIECE: usize = 64 << 10;

/// Where a program said something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// To its standard output.
    Out,
    /// To its standard error.
    Err,
}

/// How it went.
#[derive(Debug)]
pub enum Ran {
    /// It ended by itself.
    Ended(ExitStatus),
    /// It took too long and was ended.
    Late,
}

/// Runs a command whose output and errors are piped. What it says goes to `hear`; if that fails, the
/// command is ended. Its standard input, if piped, is given to `feed` at once.
pub fn run(
    command: &mut Command,
    until: Option<Instant>,
    feed: impl FnOnce(ChildStdin) -> io::Result<Option<ChildStdin>>,
    hear: &mut dyn FnMut(Stream, &[u8]) -> io::Result<()>,
) -> io::Result<Ran> {
    let mut child = command.spawn()?;
    let (identity, pidfd) = Identity::of_child(child.id())?;
    // Held open until the end, unless it was closed to say that there is no more.
    let held = child.stdin.take().map(feed).transpose();
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let mut piece = vec![0; PIECE];
    let listen = || -> io::Result<bool> {
        let _held = held?;
        loop {
            let mut fds = vec![PollFd::new(&pidfd, PollFlags::IN)];
            fds.extend(out.iter().map(|o| PollFd::new(o, PollFlags::IN)));
            fds.extend(err.iter().map(|e| PollFd::new(e, PollFlags::IN)));
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let left = left.map(|l| Timespec { tv_sec: l.as_secs() as i64, tv_nsec: i64::from(l.subsec_nanos()) });
            match poll(&mut fds, left.as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
                Ok(0) => return Ok(false),
                Ok(_) => {}
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            let (ended, mut ready) = (ready[0], ready.into_iter().skip(1));
            let said_out = out.is_some() && ready.next() == Some(true);
            let said_err = err.is_some() && ready.next() == Some(true);
            if said_out {
                hear_one(&mut out, &mut piece, Stream::Out, hear)?;
            }
            if said_err {
                hear_one(&mut err, &mut piece, Stream::Err, hear)?;
            }
            // What it said before its end is there by now, so once nothing more is, that was all.
            if ended && !said_out && !said_err {
                return Ok(true);
            }
        }
    };
    let listened = listen();
    if !matches!(listened, Ok(true)) {
        let tree =
            Tree { root: Some(identity), marks: Vec::new(), spared: Default::default(), aside: Default::default() };
        let _ = tree.end(&[], Duration::ZERO); // it may have ended meanwhile
        let _ = child.kill();
    }
    let status = child.wait()?;
    Ok(if listened? { Ran::Ended(status) } else { Ran::Late })
}

/// Hears one piece; forgets a stream that has ended.
fn hear_one(
    from: &mut Option<impl Read>,
    piece: &mut [u8],
    stream: Stream,
    hear: &mut dyn FnMut(Stream, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let Some(reader) = from else { return Ok(()) };
    match reader.read(piece) {
        Ok(0) => *from = None,
        Ok(n) => hear(stream, &piece[..n])?,
        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
        Err(e) => return Err(e),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn sh(line: &str) -> Command {
        #[expect(clippy::disallowed_methods, reason = "the test's own child")]
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn heard(line: &str, patience: Duration) -> (Ran, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let ran = run(&mut sh(line), Some(Instant::now() + patience), |i| Ok(Some(i)), &mut |stream, bytes| {
            match stream {
                Stream::Out => out.extend_from_slice(bytes),
                Stream::Err => err.extend_from_slice(bytes),
            }
            Ok(())
        });
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (ran.unwrap(), text(out), text(err))
    }

    #[test]
    fn all_that_it_says_is_heard_and_how_it_ends() {
        let (ran, out, err) =
            heard("head -c 300000 /dev/zero | tr '\\0' a; echo no >&2; exit 7", Duration::from_secs(20));
        assert!(matches!(ran, Ran::Ended(status) if status.code() == Some(7)), "{ran:?}");
        assert_eq!((out.len(), err.as_str()), (300_000, "no\n"));
    }

    #[test]
    fn one_that_hangs_is_ended_and_one_left_behind_keeps_nobody_waiting() {
        // It has the other end of a pipe, from its very beginning: nobody knows how far it comes.
        let (mut ours, theirs) = io::pipe().unwrap();
        let mut hangs = sh("while :; do read x < /dev/zero; done");
        let ran = run(
            hangs.stdin(theirs),
            Some(Instant::now() + Duration::from_millis(100)),
            |i| Ok(Some(i)),
            &mut |_, _| Ok(()),
        );
        drop(hangs);
        assert!(matches!(ran, Ok(Ran::Late)), "{ran:?}");
        assert_eq!(ours.read(&mut [0]).unwrap(), 0, "it is ended");
        let began = Instant::now();
        let (ran, out, _) = heard("sleep 600 & echo $!", Duration::from_secs(20));
        assert!(matches!(ran, Ran::Ended(_)) && began.elapsed() < Duration::from_secs(10), "{ran:?}");
        let pid: i32 = out.trim().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL).unwrap();
    }
}
