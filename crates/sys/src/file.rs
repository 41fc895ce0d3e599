//! Files of others: listed, recognised and opened without ever blocking.
//!
//! A store may hold anything: a FIFO under a transcript's name would hang a
//! plain open for ever, a link may lead round in circles. [`open`] refuses all
//! but regular files, and [`Key`] tells whether one has changed since it was
//! last read.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, SeekFrom, StatxFlags};
use rustix::io::Errno;

/// How much of a directory's list the kernel gives at once: for most that is all of it.
const LISTED: usize = 32 << 10;

/// What tells one version of one file from another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Key {
    /// Device, as `stat` gives it.
    pub device: u64,
    /// Inode.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Last change of content, in nanoseconds since 1970.
    pub mtime: i64,
    /// Last change of inode, in nanoseconds since 1970.
    pub ctime: i64,
}

/// What a directory entry says it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, or something the file system does not tell.
    Unsure,
    /// A FIFO, socket or device: nothing to read.
    Other,
}

/// One entry of a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name, as bytes that are kept as far as they are UTF-8.
    pub name: String,
    /// What it is.
    pub kind: Kind,
}

/// An opened directory, for looking at its entries without walking its path
/// again.
#[derive(Debug)]
pub struct Directory(OwnedFd);

impl Directory {
    /// Opens a directory.
    pub fn open(path: &Path) -> io::Result<Directory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(Directory(rustix::fs::openat(CWD, path, flags, Mode::empty())?))
    }

    /// Its entries, without `.` and `..`. Names that are not UTF-8 are left
    /// out: no agent writes one.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        // It may have been listed before.
        rustix::fs::seek(&self.0, SeekFrom::Start(0))?;
        let mut buffer = [MaybeUninit::uninit(); LISTED];
        let mut listed = RawDir::new(&self.0, &mut buffer);
        while let Some(entry) = listed.next() {
            let entry = match entry {
                Err(Errno::NOENT) => break, // it was removed since
                entry => entry?,
            };
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::RegularFile => Kind::File,
                FileType::Directory => Kind::Directory,
                FileType::Symlink | FileType::Unknown => Kind::Unsure,
                _ => Kind::Other,
            };
            entries.push(Entry { name: name.to_owned(), kind });
        }
        Ok(entries)
    }

    /// The key of a regular file in it, links followed.
    pub fn key(&self, name: &str) -> io::Result<Key> {
        key_of(self.0.as_fd(), name, AtFlags::empty())
    }

    /// Opens a file in it whose key was just taken, as [`open_again`] does.
    pub fn open_again(&self, name: &Path) -> io::Result<File> {
        open_again_at(self.0.as_fd(), name)
    }

    /// Opens a regular file in it.
    pub fn open_file(&self, name: &str) -> io::Result<(File, Key)> {
        open_at(self.0.as_fd(), Path::new(name))
    }
}

/// Whether a directory may be written to, or made: what keeps us from it, if not.
pub fn may_write(path: &Path) -> io::Result<()> {
    // A link that leads nowhere is there.
    let there = path.ancestors().find(|p| p.symlink_metadata().is_ok()).unwrap_or(path);
    rustix::fs::access(there, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)?;
    let room = rustix::fs::statvfs(there)?;
    if room.f_blocks > 0 && room.f_bavail == 0 {
        return Err(rustix::io::Errno::NOSPC.into());
    }
    Ok(())
}

/// Opens a regular file for reading, never blocking, and tells its key as of
/// the opening.
pub fn open(path: &Path) -> io::Result<(File, Key)> {
    open_at(CWD, path)
}

/// Opens a file whose key was just taken, so that it was regular a moment ago.
/// Should something else stand there now, reading it fails or ends at once.
pub fn open_again(path: &Path) -> io::Result<File> {
    open_again_at(CWD, path)
}

fn open_again_at(dir: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(File::from(rustix::fs::openat(dir, path, flags, Mode::empty())?))
}

/// Reads a small file whole; one over `limit` bytes is an error, not memory.
pub fn read_small(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    use io::Read as _;
    let (file, key) = open(path)?;
    if key.size > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {limit} bytes")));
    }
    let mut bytes = Vec::with_capacity(key.size as usize);
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The last bytes of a file, at most so many.
pub fn tail(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    use io::{Read as _, Seek as _};
    let (mut file, key) = open(path)?;
    file.seek(io::SeekFrom::Start(key.size.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// How many bytes in a pipe nobody has read yet, by either of its ends.
pub fn unread(pipe: impl std::os::fd::AsFd) -> io::Result<u64> {
    Ok(rustix::io::ioctl_fionread(pipe)?)
}

/// Whether nothing of that name is there, where opening it found nothing: a link that leads nowhere is something.
pub fn is_absent(path: &Path, error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_err()
}

/// The device and inode that a path leads to.
pub fn place(path: &Path) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::stat(path)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// When what a path leads to was made, in nanoseconds since 1970, where the file system tells: an inode is given out again.
/// An overlay tells of the layer that a directory lies in, which changes with the first file that is made there.
pub fn born(path: &Path) -> Option<i64> {
    const OVERLAY: rustix::fs::FsWord = 0x794c_7630;
    if rustix::fs::statfs(path).is_ok_and(|fs| fs.f_type == OVERLAY) {
        return None;
    }
    let x = rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::BTIME).ok()?;
    (x.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| nanos(x.stx_btime))
}

fn nanos(t: rustix::fs::StatxTimestamp) -> i64 {
    t.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(t.tv_nsec))
}

fn open_at(dir: BorrowedFd<'_>, path: &Path) -> io::Result<(File, Key)> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = rustix::fs::openat(dir, path, flags, Mode::empty())?;
    let key = key_of(fd.as_fd(), "", AtFlags::EMPTY_PATH)?;
    Ok((File::from(fd), key))
}

fn key_of(dir: BorrowedFd<'_>, name: &str, flags: AtFlags) -> io::Result<Key> {
    let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::SIZE | StatxFlags::MTIME | StatxFlags::CTIME;
    let x = rustix::fs::statx(dir, name, flags | AtFlags::STATX_DONT_SYNC, wanted)?;
    match FileType::from_raw_mode(u32::from(x.stx_mode)) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(io::Error::new(io::ErrorKind::IsADirectory, "a directory, not a file")),
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
    Ok(Key {
        device: rustix::fs::makedev(x.stx_dev_major, x.stx_dev_minor),
        inode: x.stx_ino,
        size: x.stx_size,
        mtime: nanos(x.stx_mtime),
        ctime: nanos(x.stx_ctime),
    })
}
