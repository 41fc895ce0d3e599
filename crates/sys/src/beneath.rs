//! The one door to what lies below a directory that others may change meanwhile.
//!
//! A worktree belongs to agents: a folder in it may become a link to somewhere
//! else, or be swapped for another one, between two of our steps. So the top is
//! opened once, every path below it is resolved by the kernel from there
//! (`openat2`: beneath, no links, no other file system), and what is removed is
//! removed by the descriptor of its folder, after a look at what bears the name
//! now. The top itself is its device and inode: if another one stands in its
//! place, it is not touched.
//!
//! It never follows a link, and never decides what may go: the caller says so,
//! entry by entry.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat};

use crate::file::Key;

/// What stands under a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A regular file.
    File {
        /// Its owner may execute it.
        executable: bool,
    },
    /// A symbolic link.
    Link,
    /// A directory.
    Directory {
        /// It holds a `.git`: a repository of its own.
        repository: bool,
        /// It holds nothing.
        empty: bool,
    },
    /// A FIFO, socket or device: it has no content.
    Other,
}

/// One entry below a top.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Its path from the top.
    pub path: PathBuf,
    /// What it is.
    pub kind: Kind,
    /// Which version of which file.
    pub key: Key,
    /// What it takes on the disk, in bytes.
    pub size: u64,
}

/// A directory, held open.
#[derive(Debug)]
pub struct Top {
    parent: OwnedFd,
    name: OsString,
    fd: OwnedFd,
    place: (u64, u64),
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
/// A rename elsewhere may make the kernel give up on a path for a moment.
const TRIES: usize = 64;

impl Top {
    /// Opens a directory; a link in its last step is refused.
    pub fn open(path: &Path) -> io::Result<Top> {
        let (parent, name) = path.parent().zip(path.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let parent = rustix::fs::openat(CWD, parent, FOLDER & !OFlags::NOFOLLOW, Mode::empty())?;
        let fd = rustix::fs::openat(&parent, name, FOLDER, Mode::empty())?;
        let place = place_of(&rustix::fs::fstat(&fd)?);
        Ok(Top { parent, name: name.to_owned(), fd, place })
    }

    /// Its device and inode.
    pub fn place(&self) -> (u64, u64) {
        self.place
    }

    /// Refuses if another directory stands in its place by now.
    pub fn is_in_place(&self) -> io::Result<()> {
        let now = rustix::fs::statat(&self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        if place_of(&now) == self.place {
            return Ok(());
        }
        Err(io::Error::other("another directory stands in its place"))
    }

    /// Gives it another name beside its own, which must be free.
    pub fn rename(&mut self, name: &OsStr) -> io::Result<()> {
        self.is_in_place()?;
        rustix::fs::renameat_with(&self.parent, &self.name, &self.parent, name, RenameFlags::NOREPLACE)?;
        let old = std::mem::replace(&mut self.name, name.to_owned());
        if let Err(e) = self.is_in_place() {
            // Another one was swapped in at that moment: it goes back to its name.
            let _ = rustix::fs::renameat_with(&self.parent, name, &self.parent, &old, RenameFlags::NOREPLACE);
            self.name = old;
            return Err(e);
        }
        rustix::fs::fsync(&self.parent)?;
        Ok(())
    }

    /// The door: everything below is opened here.
    fn enter(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        for _ in 0..TRIES {
            match rustix::fs::openat2(&self.fd, path, flags, mode, resolve) {
                Err(rustix::io::Errno::AGAIN) => {}
                other => return Ok(other?),
            }
        }
        Err(rustix::io::Errno::AGAIN.into())
    }

    /// The folder of a path, and its last name.
    fn folder_of<'a>(&self, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((self.enter(path.parent().unwrap_or(Path::new("")), FOLDER, Mode::empty())?, name))
    }

    /// Opens a regular file for reading, with its key as of the opening.
    pub fn open_file(&self, path: &Path) -> io::Result<(File, Key)> {
        let fd = self.enter(path, READ, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok((File::from(fd), key_of(&stat))),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
        }
    }

    /// Where a symbolic link leads.
    pub fn read_link(&self, path: &Path) -> io::Result<Vec<u8>> {
        let (folder, name) = self.folder_of(path)?;
        Ok(rustix::fs::readlinkat(&folder, name, Vec::new())?.into_bytes())
    }

    /// Everything below, folders before what is in them. Repositories are not
    /// entered unless `all` is said.
    pub fn walk(&self, all: bool) -> io::Result<Vec<Seen>> {
        let mut found: Vec<Seen> = Vec::new();
        let mut next: Vec<(PathBuf, Option<usize>)> = vec![(PathBuf::new(), None)];
        while let Some((path, at)) = next.pop() {
            let folder = match self.enter(&path, FOLDER, Mode::empty()) {
                Ok(folder) => folder,
                // Gone or swapped since it was listed: the next look finds what is there.
                Err(e) if at.is_some() && is_swapped(&e) => continue,
                Err(e) => return Err(named(&path, e)),
            };
            let names = names(folder.as_fd()).map_err(|e| named(&path, e))?;
            if let Some(at) = at {
                let repository = names.iter().any(|n| n == ".git");
                found[at].kind = Kind::Directory { repository, empty: names.is_empty() };
                if repository && !all {
                    continue;
                }
            }
            for name in names {
                let below = path.join(&name);
                let stat = match rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => stat,
                    Err(rustix::io::Errno::NOENT) => continue,
                    Err(e) => return Err(named(&below, e.into())),
                };
                if let Kind::Directory { .. } = kind_of(&stat) {
                    next.push((below.clone(), Some(found.len())));
                }
                let size = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
                found.push(Seen { path: below, kind: kind_of(&stat), key: key_of(&stat), size });
            }
        }
        Ok(found)
    }

    /// Removes what is below and may go, then the top itself if it is empty. Each
    /// entry is looked at in its folder, by the folder's descriptor, right before
    /// it goes. What stays is told.
    pub fn remove(&self, may: &mut dyn FnMut(&Seen) -> bool) -> io::Result<Vec<PathBuf>> {
        self.is_in_place()?;
        let all = self.walk(true)?;
        let mut left = Vec::new();
        // Backwards: what is in a folder before the folder.
        for seen in all.iter().rev() {
            let removed = self.folder_of(&seen.path).and_then(|(folder, name)| {
                let stat = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
                let is_folder = matches!(kind_of(&stat), Kind::Directory { .. });
                let same = place_of(&stat) == (seen.key.device, seen.key.inode);
                let now = Seen { key: key_of(&stat), ..seen.clone() };
                if !same || !is_folder && !may(&now) {
                    return Ok(false);
                }
                let how = if is_folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                match rustix::fs::unlinkat(&folder, name, how) {
                    Ok(()) => Ok(true),
                    Err(rustix::io::Errno::NOTEMPTY) => Ok(false),
                    Err(e) => Err(e.into()),
                }
            });
            match removed {
                Ok(true) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Ok(false) | Err(_) => left.push(seen.path.clone()),
            }
        }
        if left.is_empty() {
            self.is_in_place()?;
            match rustix::fs::unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR) {
                Ok(()) => rustix::fs::fsync(&self.parent)?,
                Err(_) => left.push(PathBuf::from(".")),
            }
        }
        Ok(left)
    }

    /// Removes one file or link, and nothing but the version that was seen.
    pub fn remove_one(&self, path: &Path, seen: Key) -> io::Result<bool> {
        let (folder, name) = self.folder_of(path)?;
        let stat = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if key_of(&stat) != seen || matches!(kind_of(&stat), Kind::Directory { .. }) {
            return Ok(false);
        }
        rustix::fs::unlinkat(&folder, name, AtFlags::empty())?;
        Ok(true)
    }

    /// Removes a folder if it is empty, and those above it that are empty then.
    pub fn remove_empty(&self, path: &Path) {
        let mut path = path;
        while let Ok((folder, name)) = self.folder_of(path) {
            if rustix::fs::unlinkat(&folder, name, AtFlags::REMOVEDIR).is_err() {
                return;
            }
            let Some(parent) = path.parent() else { return };
            path = parent;
        }
    }

    /// What stands under a name, if anything.
    pub fn look(&self, path: &Path) -> io::Result<Option<Seen>> {
        let found = self
            .folder_of(path)
            .and_then(|(folder, name)| Ok(rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?));
        match found {
            Ok(stat) => {
                let size = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
                Ok(Some(Seen { path: path.to_owned(), kind: kind_of(&stat), key: key_of(&stat), size }))
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Makes the folders that a path lies in.
    fn make_folders(&self, path: &Path) -> io::Result<()> {
        let parents: Vec<&Path> = path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()).collect();
        for parent in parents.into_iter().rev() {
            let (folder, name) = self.folder_of(parent)?;
            match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Writes a file whole, under a name of its own first; with `replace`, over
    /// what stands there, else only where nothing does.
    pub fn put(&self, path: &Path, content: &mut dyn io::Read, mode: u32, replace: bool) -> io::Result<()> {
        self.make_folders(path)?;
        let (folder, name) = self.folder_of(path)?;
        let own = temporary(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let written = rustix::fs::openat(&folder, &own, flags, Mode::from_raw_mode(mode)).map_err(io::Error::from);
        let written = written.and_then(|fd| {
            let mut file = File::from(fd);
            io::copy(content, &mut file)?;
            file.flush()?;
            file.sync_all()
        });
        let put = written.and_then(|()| place_at(folder.as_fd(), &own, name, replace));
        if put.is_err() {
            let _ = rustix::fs::unlinkat(&folder, &own, AtFlags::empty());
        }
        put
    }

    /// Makes a symbolic link, over what stands there.
    pub fn put_link(&self, path: &Path, target: &[u8]) -> io::Result<()> {
        self.make_folders(path)?;
        let (folder, name) = self.folder_of(path)?;
        let own = temporary(name);
        rustix::fs::symlinkat(target, &folder, &own)?;
        let put = place_at(folder.as_fd(), &own, name, true);
        if put.is_err() {
            let _ = rustix::fs::unlinkat(&folder, &own, AtFlags::empty());
        }
        put
    }
}

fn place_at(folder: BorrowedFd<'_>, own: &OsStr, name: &OsStr, replace: bool) -> io::Result<()> {
    let how = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    Ok(rustix::fs::renameat_with(folder, own, folder, name, how)?)
}

fn temporary(name: &OsStr) -> OsString {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    // The name may be as long as names can be, so only a little of it is used.
    let short = String::from_utf8_lossy(&name.as_bytes()[..name.len().min(16)]).into_owned();
    OsString::from(format!(".{}.{}.{next}.lariat", short.replace(char::REPLACEMENT_CHARACTER, "-"), std::process::id()))
}

fn names(folder: BorrowedFd<'_>) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder)? {
        let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Whether an error means that something else bears the name by now.
fn is_swapped(error: &io::Error) -> bool {
    let raw = error.raw_os_error();
    let swapped = [rustix::io::Errno::NOENT, rustix::io::Errno::LOOP, rustix::io::Errno::NOTDIR];
    swapped.iter().any(|e| raw == Some(e.raw_os_error()))
}

fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn place_of(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

fn kind_of(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File { executable: stat.st_mode & 0o100 != 0 },
        FileType::Symlink => Kind::Link,
        FileType::Directory => Kind::Directory { repository: false, empty: false },
        _ => Kind::Other,
    }
}

fn key_of(stat: &Stat) -> Key {
    let nanos = |s: i64, n: u64| s.saturating_mul(1_000_000_000).saturating_add(n as i64);
    Key {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mtime: nanos(stat.st_mtime, stat.st_mtime_nsec),
        ctime: nanos(stat.st_ctime, stat.st_ctime_nsec),
    }
}

/// Reads a file through, in pieces.
pub fn read_through(file: &mut File, each: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<u64> {
    let mut piece = vec![0; 256 << 10];
    let mut total = 0;
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(total),
            Ok(n) => {
                each(&piece[..n])?;
                total += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
#[path = "beneath_tests.rs"]
mod tests;
