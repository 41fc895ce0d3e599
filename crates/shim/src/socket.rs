//! The door: a unix socket that only this user can open, and only to this user.
//!
//! # Theory of operation
//!
//! The socket's directory must be ours, closed to all others, and not a link. Both
//! ends ask the kernel who the other one is; another user's end is closed without a
//! word. There is no abstract socket, and no path longer than the kernel takes.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest path of a unix socket.
pub const LONGEST: usize = 107;

/// How long somebody behind a door may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why there is no door.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The path is too long.
    #[error(
        "the socket path {0} is longer than the {LONGEST} bytes the kernel allows; set XDG_RUNTIME_DIR to a shorter place"
    )]
    TooLong(PathBuf),
    /// The directory is not as it must be.
    #[error("the socket directory {0} {1}; nobody is let in through it")]
    Folder(PathBuf, &'static str),
    /// Another user's.
    #[error("the other end of {0} belongs to user {1}, not to us")]
    Stranger(PathBuf, u32),
    /// One that was handed over is not what it must be.
    #[error("the socket that was handed over {1}; expected is {0}: `lariat daemon install` writes its unit anew")]
    Given(PathBuf, &'static str),
    /// Nobody answers.
    #[error("{0} was opened, but nobody answers there for {PATIENCE:?}: is its process halted (SIGSTOP)?")]
    Silent(PathBuf),
    /// The kernel's word.
    #[error("cannot {0} {1}: {2}")]
    Io(&'static str, PathBuf, io::Error),
}

/// Where the keeper of a session with this socket listens.
pub(crate) fn keeper_path(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".k");
    path.into()
}

/// Checks a socket's path and its directory.
fn check(path: &Path) -> Result<(), SocketError> {
    if path.as_os_str().len() > LONGEST {
        return Err(SocketError::TooLong(path.to_owned()));
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let wrong = |why| Err(SocketError::Folder(folder.to_owned(), why));
    let stat = folder.symlink_metadata().map_err(|e| SocketError::Io("look at", folder.to_owned(), e))?;
    if !stat.is_dir() {
        wrong("is not a directory")
    } else if stat.uid() != rustix::process::geteuid().as_raw() {
        wrong("is not ours")
    } else if stat.mode() & 0o077 != 0 {
        wrong("is open to others (it must be mode 0700)")
    } else {
        Ok(())
    }
}

/// Opens the door. The caller holds the session's lock, so what a dead shim left at
/// that path is nobody's.
pub fn listen(path: &Path) -> Result<UnixListener, SocketError> {
    check(path)?;
    remove(path);
    let io = |what| move |e| SocketError::Io(what, path.to_owned(), e);
    let listener = UnixListener::bind(path).map_err(io("listen on"))?;
    listener.set_nonblocking(true).map_err(io("set up"))?;
    Ok(listener)
}

/// Takes a door that was opened for us at this path, if it is one that we would have opened.
pub fn adopt(given: OwnedFd, path: &Path) -> Result<UnixListener, SocketError> {
    use rustix::net::{AddressFamily, SocketType, sockopt};
    check(path)?;
    let io = |what| move |e| SocketError::Io(what, path.to_owned(), e);
    let wrong = |why| Err(SocketError::Given(path.to_owned(), why));
    let listens = sockopt::socket_acceptconn(&given).unwrap_or(false)
        && sockopt::socket_type(&given).is_ok_and(|kind| kind == SocketType::STREAM)
        && sockopt::socket_domain(&given).is_ok_and(|domain| domain == AddressFamily::UNIX);
    if !listens {
        return wrong("is not a unix socket that listens");
    }
    let listener = UnixListener::from(given);
    let address = listener.local_addr().map_err(io("ask for the place of"))?;
    if address.as_pathname() != Some(path) {
        return wrong("stands elsewhere");
    }
    let stat = path.symlink_metadata().map_err(io("look at"))?;
    if !stat.file_type().is_socket() || stat.uid() != rustix::process::geteuid().as_raw() {
        return wrong("is not at its path any more");
    }
    if stat.mode() & 0o077 != 0 {
        return wrong("is open to others (it must be mode 0600)");
    }
    listener.set_nonblocking(true).map_err(io("set up"))?;
    Ok(listener)
}

/// Whether this user listens at this path, answering or not.
pub fn is_open(path: &Path) -> bool {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let knocked = SocketAddrUnix::new(path).and_then(|address| {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &address)
    });
    // A full queue is a queue; and what strangers put there, or could have, does not count.
    let ours = path.symlink_metadata().is_ok_and(|m| m.uid() == rustix::process::geteuid().as_raw());
    matches!(knocked, Ok(()) | Err(rustix::io::Errno::AGAIN)) && ours && check(path).is_ok()
}

/// Takes the socket away.
pub fn remove(path: &Path) {
    #[expect(clippy::disallowed_methods, reason = "the session's own socket")]
    let _ = std::fs::remove_file(path);
}

/// Knocks, and waits at most [`PATIENCE`] for the door and for every word after that;
/// a process that was halted holds its door open and never answers.
pub fn connect(path: &Path) -> Result<UnixStream, SocketError> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with, sockopt};
    check(path)?;
    let io = |e: rustix::io::Errno| match e {
        rustix::io::Errno::AGAIN => SocketError::Silent(path.to_owned()),
        e => SocketError::Io("connect to", path.to_owned(), e.into()),
    };
    let address = SocketAddrUnix::new(path).map_err(io)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(io)?;
    for direction in [sockopt::Timeout::Send, sockopt::Timeout::Recv] {
        sockopt::set_socket_timeout(&socket, direction, Some(PATIENCE)).map_err(io)?;
    }
    rustix::net::connect(&socket, &address).map_err(io)?;
    let stream = UnixStream::from(socket);
    match stranger(&stream) {
        Ok(None) => Ok(stream),
        Ok(Some(uid)) => Err(SocketError::Stranger(path.to_owned(), uid)),
        Err(e) => Err(SocketError::Io("ask who is behind", path.to_owned(), e)),
    }
}

/// The user at the other end, if it is not us.
pub fn stranger(stream: &UnixStream) -> io::Result<Option<u32>> {
    let peer = lariat_sys::peer::uid(stream)?;
    Ok((peer != rustix::process::geteuid().as_raw()).then_some(peer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_door_that_was_opened_for_us_is_taken_only_if_we_would_have_opened_it_so() {
        let folder = std::env::temp_dir().join(format!("lariat-adopt-{}", std::process::id()));
        let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::create_dir_all(&folder).unwrap();
        mode(&folder, 0o700);
        let path = folder.join("daemon.sock");
        let open = |at: &Path, bits| -> OwnedFd {
            remove(at);
            let listener = UnixListener::bind(at).unwrap();
            mode(at, bits);
            listener.into()
        };
        assert!(!is_open(&path), "nobody is there");
        let adopted = adopt(open(&path, 0o600), &path).unwrap();
        assert!(is_open(&path));
        // Let go of alone it may be open still: whoever another test is just forking has it, for that moment.
        rustix::net::shutdown(&adopted, rustix::net::Shutdown::Read).unwrap();
        drop(adopted);
        assert!(!is_open(&path), "nobody is there any more");
        let wrong = |given: OwnedFd, word: &str| {
            let why = adopt(given, &path).unwrap_err().to_string();
            assert!(why.contains(word), "{why}");
        };
        wrong(open(&path, 0o666), "open to others");
        wrong(open(&folder.join("other.sock"), 0o600), "stands elsewhere");
        let moved = open(&path, 0o600);
        remove(&path);
        std::os::unix::fs::symlink(folder.join("other.sock"), &path).unwrap();
        wrong(moved, "not at its path");
        remove(&path);
        wrong(std::net::TcpListener::bind("127.0.0.1:0").unwrap().into(), "not a unix socket that listens");
        wrong(std::os::unix::net::UnixDatagram::bind(&path).unwrap().into(), "not a unix socket that listens");
        wrong(UnixStream::pair().unwrap().0.into(), "not a unix socket that listens");
        let given = open(&path, 0o600);
        mode(&folder, 0o755);
        wrong(given, "open to others (it must be mode 0700)");
        #[expect(clippy::disallowed_methods, reason = "the test's own folder")]
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
