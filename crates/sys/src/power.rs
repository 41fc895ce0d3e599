//! A power cut of one file system, for tests: what was not made durable is gone.
//!
//! Only with the feature `power-cut`, never in a release. kill -9 proves nothing
//! about `fsync`: the kernel still holds what was written. This makes it forget.

#![expect(unsafe_code, reason = "this ioctl has no safe interface")]

use std::io;
use std::path::Path;

use rustix::ioctl::{Setter, ioctl, opcode};

/// `EXT4_IOC_SHUTDOWN`.
const SHUTDOWN: u32 = opcode::read::<u32>(b'X', 125);
/// What the journal holds only in memory is not written.
const NO_LOG_FLUSH: u32 = 2;

/// Cuts the ext4 file system that is mounted there off its disk, at once. It answers
/// nothing but errors until it is mounted anew.
pub fn cut(mounted: &Path) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a file system that a test made")]
    let top = std::fs::File::open(mounted)?;
    // SAFETY: the kernel reads one u32 and keeps nothing of it.
    unsafe { ioctl(&top, Setter::<SHUTDOWN, u32>::new(NO_LOG_FLUSH)) }.map_err(Into::into)
}
