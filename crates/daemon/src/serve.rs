//! The daemon's socket: who may ask, and what is answered.
//!
//! One thread a connection, blocking, with little stack. Nobody waits for a slow one:
//! who does not read for ten seconds is let go, and told so if that is possible.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lariat_protocol::wire::{Hello, LONGEST, Question, Reply};
use lariat_shim::socket;
use lariat_sys::watch::Watch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::hub::Next;
use crate::{Daemon, http, place, status};

/// How long an end may stay silent where it should speak.
const SILENT: Duration = Duration::from_secs(60);
/// How long an end may take to read.
const SLOW: Duration = Duration::from_secs(10);
/// How often it is seen whether a listener is still there.
const STILL_THERE: Duration = Duration::from_secs(15);
/// How often we try to open our own door again, while it is gone and cannot be.
const OPEN: Timespec = Timespec { tv_sec: 3, tv_nsec: 0 };
/// Verbs that only look, and end by themselves.
const LOOKING: [&str; 11] =
    ["ls", "list", "status", "explain", "peek", "diff", "wait", "locks", "journal", "doctor", "restore"];
/// What would make them stay, act, or look elsewhere.
const NOT: [&str; 6] = ["-w", "--watch", "-f", "--follow", "--yes", "--raw"];

/// Talks with one who connected.
pub fn talk(daemon: &Arc<Daemon>, stream: UnixStream) {
    let failed = stream.set_nonblocking(false).and_then(|()| converse(daemon, &stream));
    match failed {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::WouldBlock || e.kind() == io::ErrorKind::TimedOut => {
            daemon.log.info("let go", "an end was silent or too slow");
        }
        Err(e) if is_hang_up(&e) => {}
        Err(e) => daemon.log.error("connection", e.to_string()),
    }
}

fn is_hang_up(e: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(e.kind(), K::BrokenPipe | K::ConnectionReset | K::UnexpectedEof)
}

fn converse(daemon: &Arc<Daemon>, stream: &UnixStream) -> io::Result<()> {
    // Another user's end is closed without a word.
    if let Some(stranger) = socket::stranger(stream)? {
        daemon.log.error("stranger", format!("user {stranger} tried to connect"));
        return Ok(());
    }
    stream.set_read_timeout(Some(SILENT))?;
    stream.set_write_timeout(Some(SLOW))?;
    let ours = place::hello(&daemon.places);
    say(stream, &ours)?;
    let mut reader = BufReader::with_capacity(4096, stream);
    let theirs: Hello = match line(&mut reader)? {
        Some(text) => serde_json::from_str(&text).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?,
        None => return Ok(()),
    };
    if !ours.understands(&theirs) {
        return refuse(stream, format!("it is lariat {}, and lariat {} is not understood", ours.lariat, theirs.lariat));
    }
    while let Some(text) = line(&mut reader)? {
        match serde_json::from_str(&text) {
            Err(e) => refuse(stream, format!("not understood: {e}"))?,
            Ok(Question::Answer { arguments }) => answer(daemon, stream, &theirs, &ours, &arguments)?,
            Ok(Question::Status) => {
                let text = status::told(daemon);
                say(stream, &Reply { bytes: text.len() as u64, ..Reply::default() })?;
                (&*stream).write_all(text.as_bytes())?;
            }
            Ok(Question::Http { port }) => match http::open_late(daemon, port) {
                Ok(port) => {
                    let text = port.to_string();
                    say(stream, &Reply { bytes: text.len() as u64, ..Reply::default() })?;
                    (&*stream).write_all(text.as_bytes())?;
                }
                Err(e) => refuse(stream, format!("port {port} of 127.0.0.1 cannot be served: {e}"))?,
            },
            Ok(Question::Stop) => {
                daemon.log.info("stop", "asked to stop; no agent is touched");
                say(stream, &Reply::default())?;
                daemon.stop();
                return Ok(());
            }
            Ok(Question::Events { since, follow }) => return events(daemon, stream, since.as_deref(), follow),
        }
    }
    Ok(())
}

/// Whether a command line only looks and ends by itself.
pub fn only_looks(arguments: &[String]) -> bool {
    arguments.first().is_some_and(|verb| LOOKING.contains(&verb.as_str()))
        && !arguments.iter().any(|a| NOT.contains(&a.as_str()) || is_cluster(a))
}

/// Short flags in one word: `-aw`.
fn is_cluster(argument: &str) -> bool {
    argument.len() > 2 && argument.starts_with('-') && !argument.starts_with("--") && argument.contains(['w', 'f'])
}

fn answer(daemon: &Daemon, stream: &UnixStream, theirs: &Hello, ours: &Hello, arguments: &[String]) -> io::Result<()> {
    if theirs.view != ours.view || theirs.lariat != ours.lariat {
        return refuse(stream, "it is another lariat, or looks at other places".into());
    }
    if !only_looks(arguments) {
        return refuse(stream, "only verbs that look are answered here".into());
    }
    match daemon.warm.answer(arguments) {
        Err(e) => refuse(stream, e.to_string()),
        Ok((answer, warm)) if answer.complaint.is_empty() => {
            say(stream, &Reply { code: answer.code, bytes: answer.bytes, warm, error: None })?;
            send(stream, &answer)
        }
        Ok((answer, _)) => refuse(stream, answer.complaint.clone()),
    }
}

/// Sends an answer from where it lies.
pub fn send(stream: impl std::os::fd::AsFd, answer: &crate::warm::Answer) -> io::Result<()> {
    let mut at = 0u64;
    while at < answer.bytes {
        let left = usize::try_from(answer.bytes - at).unwrap_or(usize::MAX);
        match rustix::fs::sendfile(&stream, &answer.out, Some(&mut at), left) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn events(daemon: &Daemon, stream: &UnixStream, since: Option<&str>, follow: bool) -> io::Result<()> {
    if !follow {
        for event in daemon.hub.remembered() {
            write_line(stream, &event.text)?;
        }
        return Ok(());
    }
    let mut listener = daemon.hub.listen(since);
    loop {
        match listener.next(STILL_THERE) {
            Next::Events(events) => events.iter().try_for_each(|e| write_line(stream, &e.text))?,
            Next::Reset(text, _) => write_line(stream, &text)?,
            Next::Nothing if has_hung_up(stream) => return Ok(()),
            Next::Nothing => {}
            Next::Closed => return Ok(()),
        }
    }
}

fn has_hung_up(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::RDHUP)];
    !matches!(poll(&mut fds, Some(&Timespec::default())), Ok(0))
}

fn write_line(mut stream: &UnixStream, text: &str) -> io::Result<()> {
    let mut line = Vec::with_capacity(text.len() + 1);
    line.extend_from_slice(text.as_bytes());
    line.push(b'\n');
    stream.write_all(&line)
}

fn say(stream: &UnixStream, what: &impl serde::Serialize) -> io::Result<()> {
    write_line(stream, &serde_json::to_string(what)?)
}

fn refuse(stream: &UnixStream, error: String) -> io::Result<()> {
    say(stream, &Reply { error: Some(error), ..Reply::default() })
}

/// The next line; `None` at the end.
fn line(reader: &mut BufReader<&UnixStream>) -> io::Result<Option<String>> {
    let mut text = String::new();
    match reader.by_ref().take(LONGEST).read_line(&mut text)? {
        0 => Ok(None),
        _ if text.ends_with('\n') => Ok(Some(text)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Lets people in until the daemon stops.
pub fn serve(daemon: &Arc<Daemon>, mut listener: UnixListener, socket: &Path) -> io::Result<()> {
    let mut folder = watched(socket);
    let mut shut = false;
    loop {
        // Without inotify it is seen now and then.
        let told = folder.as_ref().and_then(Watch::stirred);
        let (stirred, blind) = (told.unwrap_or(daemon.stopping.as_fd()), told.is_none());
        let mut fds = [
            PollFd::from_borrowed_fd(daemon.stopping.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(stirred, PollFlags::IN),
        ];
        match poll(&mut fds, (shut || blind).then_some(&OPEN)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        }
        let [stop, somebody, stirred] = fds.map(|fd| !fd.revents().is_empty());
        if stop {
            return Ok(());
        }
        if stirred || shut || blind {
            folder.as_ref().map(Watch::drain);
            shut = false;
            // Looked at again once it is watched: whoever clears the folder may not be done.
            while !shut && is_gone(socket) {
                match open_again(socket) {
                    Some(again) => {
                        daemon.log.info("door", "its socket was taken away; it listens there again");
                        (listener, folder) = (again, watched(socket));
                    }
                    None => shut = true,
                }
            }
        }
        if !somebody {
            continue;
        }
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            Err(e) => {
                // No descriptors left: those who are here leave sooner or later.
                daemon.log.error("accept", e.to_string());
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        daemon.start_talk("unix", move |daemon| talk(daemon, stream));
    }
}

/// Watches the folder of our socket.
fn watched(socket: &Path) -> Option<Watch> {
    let mut watch = Watch::new();
    watch.path(socket.parent()?);
    Some(watch)
}

fn is_gone(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
}

/// Another door where ours was taken away: a runtime directory goes when its user logs out, and comes back.
fn open_again(path: &Path) -> Option<UnixListener> {
    lariat_sys::durable::make_folder(path.parent()?).ok()?;
    socket::listen(path).ok()
}

impl Daemon {
    /// Talks with somebody in a thread of its own, if there are not too many already.
    pub fn start_talk(self: &Arc<Self>, kind: &'static str, talk: impl FnOnce(&Arc<Daemon>) + Send + 'static) {
        const MOST: usize = 512;
        // Any user of the machine can open those of HTTP: they leave room for ours.
        const MOST_HTTP: usize = 384;
        const STACK: usize = 256 << 10;
        let most = if kind == "http" { MOST_HTTP } else { MOST };
        if self.talking.fetch_add(1, Ordering::Relaxed) >= most {
            self.talking.fetch_sub(1, Ordering::Relaxed);
            self.log.error("too many", format!("more than {most} connections; one was closed"));
            return;
        }
        let daemon = Arc::clone(self);
        let started = std::thread::Builder::new().name(kind.into()).stack_size(STACK).spawn(move || {
            let _leaving = Leaving(&daemon);
            talk(&daemon);
        });
        if let Err(e) = started {
            self.talking.fetch_sub(1, Ordering::Relaxed);
            self.log.error("thread", e.to_string());
        }
    }
}

/// Counts one less, however a talk ended.
struct Leaving<'a>(&'a Daemon);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.talking.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::only_looks;

    #[test]
    fn only_what_looks_and_ends_is_answered() {
        let ask = |line: &str| only_looks(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert!(ask("ls -a --json") && ask("status x --json") && ask("restore --json"));
        for no in
            ["kill x", "stop x", "launch claude", "ls -w", "ls -aw", "peek -f x", "restore --yes", "", "daemon stop"]
        {
            assert!(!ask(no), "{no}");
        }
    }
}
