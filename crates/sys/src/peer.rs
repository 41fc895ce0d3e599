//! Who is at the other end of a unix socket, by the kernel's word.
#![expect(unsafe_code, reason = "the safe interface takes a peer's PID for one that cannot be 0, and it can")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// The user at the other end, at the time it connected. (Its PID is of no use: it is 0
/// for a process in another PID namespace, such as a container's.)
pub fn uid(socket: impl AsFd) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `peer`, which has that size and is
    // valid for any bits.
    let told = unsafe {
        let fd = socket.as_fd().as_raw_fd();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut len)
    };
    match told {
        0 => Ok(peer.uid),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    #[test]
    fn our_own_end_is_ours() {
        let (one, _two) = UnixStream::pair().unwrap();
        assert_eq!(super::uid(&one).unwrap(), rustix::process::geteuid().as_raw());
    }
}
