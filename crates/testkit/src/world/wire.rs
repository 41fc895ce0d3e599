//! What the test and PID 1 of its world say to each other: one JSON object per packet on a
//! SOCK_SEQPACKET pair, with file descriptors beside it.
//!
//! Both ends are built from this file, so there is no compatibility to keep; [`PROTOCOL`] only
//! catches a `lariat-world` that was built before the test. It never interprets what it carries.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde_json::Value;

/// Raised whenever a packet changes its meaning.
pub(super) const PROTOCOL: u64 = 1;

/// The largest packet: a command line with its environment.
const PACKET: usize = 160 << 10;

/// Three standard streams, or one pidfd.
const FDS: usize = 3;

/// A connected pair of ends.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Sends one packet.
pub(super) fn send(to: impl AsFd, packet: &Value, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let text = packet.to_string();
    if text.len() > PACKET {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a command line too long for the world"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(beside.push(SendAncillaryMessage::ScmRights(fds)), "room for {FDS} descriptors");
    }
    sendmsg(to, &[IoSlice::new(text.as_bytes())], &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one packet; `None` when the other end is gone.
pub(super) fn receive(from: impl AsFd) -> io::Result<Option<(Value, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; PACKET];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = loop {
        match recvmsg(&from, &mut [IoSliceMut::new(&mut bytes)], &mut beside, flags) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            other => break other?,
        }
    };
    if got.bytes == 0 {
        return Ok(None);
    }
    let mut fds = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok(Some((serde_json::from_slice(&bytes[..got.bytes])?, fds)))
}
