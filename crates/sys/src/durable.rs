//! Files of ours that must survive a crash and a power cut.
//!
//! [`put`] is the only way lariat writes a record: a temporary file of a unique
//! name, its content synced, renamed over the old one, the directory synced.
//! When it returns, the record is there after any crash; until then, the old
//! one is. A record that cannot be read is put [`aside`], never overwritten.
#![expect(unsafe_code, reason = "sync_file_range has no safe interface")]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::point::point;

/// What temporary files end in; leftovers of a crash are swept by [`sweep`].
const TEMPORARY: &str = ".tmp";
/// What records that could not be read end in.
const ASIDE: &str = ".unreadable";

/// Writes a record so that it is there after a crash, or the old one is.
pub fn put(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    put_all(folder, &[(name, content)])
}

/// Writes several records of one folder, in this order: of each, the new or the old
/// one is there after a crash, and when it returns, all the new ones are. The folder
/// is synced once for all of them.
pub fn put_all(folder: &Path, records: &[(&str, &[u8])]) -> io::Result<()> {
    stage_in(folder, records, None)?.put()
}

/// Writes records durably that are to have their names in a moment, all at once, or not at all; in a folder that
/// [`begin_folder`] made, which is durable itself with them.
pub fn stage(folder: &Path, records: &[(&str, &[u8])]) -> io::Result<Staged> {
    stage_in(folder, records, folder.parent())
}

fn stage_in(folder: &Path, records: &[(&str, &[u8])], parent: Option<&Path>) -> io::Result<Staged> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let temporary = |name: &str| {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        folder.join(format!(".{name}.{}.{next}{TEMPORARY}", std::process::id()))
    };
    let mut staged = Staged { folder: folder.to_owned(), records: Vec::with_capacity(records.len()) };
    let mut files = Vec::with_capacity(records.len() + 1);
    for (name, content) in records {
        let temporary = temporary(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        staged.records.push((temporary, folder.join(name)));
        point("put.created");
        file.write_all(content)?;
        point("put.written");
        files.push(file);
    }
    #[expect(clippy::disallowed_methods, reason = "a directory of our own")]
    files.extend(parent.map(File::open).transpose()?);
    sync_together(&files)?;
    point("put.synced");
    Ok(staged)
}

/// Records that are durable but for their names. Dropped, nothing of them is left.
#[derive(Debug)]
pub struct Staged {
    folder: PathBuf,
    /// Each by the name that it has and the one that it is to have.
    records: Vec<(PathBuf, PathBuf)>,
}

impl Staged {
    /// Gives them their names, durably.
    pub fn put(mut self) -> io::Result<()> {
        for (temporary, record) in &self.records {
            #[expect(clippy::disallowed_methods, reason = "the one durable write")]
            fs::rename(temporary, record)?;
            point("put.renamed");
        }
        self.records.clear();
        sync(&self.folder)?;
        point("put.done");
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        for (temporary, _) in &self.records {
            #[expect(clippy::disallowed_methods, reason = "our own temporary file")]
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Syncs several files together: the disk has begun with all of them before the first is waited for, and what makes that
/// one durable is then most of what the others need.
fn sync_together(files: &[File]) -> io::Result<()> {
    for file in files {
        // SAFETY: it takes a descriptor that is open and no pointers. What it cannot begin, the sync does.
        unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    }
    files.iter().try_for_each(File::sync_all)
}

/// Makes a directory that only we may enter, its parents durably. It is durable itself once
/// what was staged there has its names.
pub fn begin_folder(path: &Path) -> io::Result<()> {
    make_folder(path.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

/// Makes a directory that only we may enter, durably, with its parents.
pub fn make_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    make_folder(parent)?;
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => sync(parent),
    }
}

/// Makes the entries of a directory durable.
pub fn sync(folder: &Path) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a directory of our own")]
    File::open(folder)?.sync_all()
}

/// Adds a line to an append-only file, durably. What a full disk left of another line stays a line by itself; it is not
/// taken back, for somebody else may have added to it meanwhile.
pub fn append(path: &Path, line: &[u8]) -> io::Result<()> {
    let new = !path.exists();
    let before: &[u8] = if is_torn(path) { b"\n" } else { b"" };
    // Whatever stands there under its name, nobody waits for it.
    let at_once = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(at_once).open(path)?;
    file.write_all(&[before, line, b"\n"].concat())?;
    file.sync_data()?;
    match path.parent() {
        Some(parent) if new => sync(parent),
        _ => Ok(()),
    }
}

/// Whether a file's last line has no end.
fn is_torn(path: &Path) -> bool {
    use std::os::unix::fs::FileExt as _;
    let mut last = [0];
    let read = crate::file::open(path).and_then(|(file, key)| match key.size {
        0 => Ok(false),
        size => file.read_exact_at(&mut last, size - 1).map(|()| true),
    });
    matches!(read, Ok(true)) && last != *b"\n"
}

/// Puts a record aside that could not be read, under a name of its own.
pub fn aside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().and_then(|n| n.to_str()).ok_or(io::ErrorKind::InvalidInput)?;
    let free = (0..10_000).map(|n| path.with_file_name(format!("{name}.{n}{ASIDE}"))).find(|p| !p.exists());
    let kept = free.ok_or(io::ErrorKind::AlreadyExists)?;
    #[expect(clippy::disallowed_methods, reason = "keeps an unreadable record instead of losing it")]
    fs::rename(path, &kept)?;
    path.parent().map_or(Ok(()), sync)?;
    Ok(kept)
}

/// Removes what a crash left of unfinished writes by processes that are gone.
pub fn sweep(folder: &Path) -> io::Result<usize> {
    let mut swept = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(stem) = name.to_str().and_then(|n| n.strip_prefix('.')?.strip_suffix(TEMPORARY)) else { continue };
        let writer: Option<u32> = stem.rsplit('.').nth(1).and_then(|pid| pid.parse().ok());
        let gone = writer.is_some_and(|pid| matches!(crate::scan::look(pid), Ok(None)));
        if gone {
            #[expect(clippy::disallowed_methods, reason = "an unfinished write of ours")]
            fs::remove_file(entry.path())?;
            swept += 1;
        }
    }
    Ok(swept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("lariat-durable-{name}-{}", std::process::id()));
        make_folder(&path).unwrap();
        path
    }

    fn remove(path: &Path) {
        #[expect(clippy::disallowed_methods, reason = "the test's own folder")]
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_record_is_replaced_whole_and_leaves_nothing_beside_it() {
        let dir = folder("put");
        put(&dir, "intent.json", b"one").unwrap();
        put(&dir, "intent.json", b"two").unwrap();
        assert_eq!(fs::read(dir.join("intent.json")).unwrap(), b"two");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        remove(&dir);
    }

    #[test]
    fn a_record_that_cannot_be_written_leaves_the_old_one() {
        let dir = folder("fail");
        put(&dir, "a", b"old").unwrap();
        assert!(put(&dir, "no/such", b"new").is_err());
        assert!(put(&dir.join("gone"), "a", b"new").is_err());
        assert_eq!(fs::read(dir.join("a")).unwrap(), b"old");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        remove(&dir);
    }

    #[test]
    fn what_follows_a_line_that_was_cut_short_is_a_line_of_its_own() {
        let dir = folder("append");
        let path = dir.join("journal");
        append(&path, b"one").unwrap();
        let mut torn = OpenOptions::new().append(true).open(&path).unwrap();
        torn.write_all(b"tw").unwrap();
        append(&path, b"three").unwrap();
        append(&path, b"four").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\ntw\nthree\nfour\n");
        remove(&dir);
    }

    #[test]
    fn what_is_unreadable_is_kept_and_leftovers_of_the_dead_are_swept() {
        let dir = folder("aside");
        put(&dir, "a.json", b"{").unwrap();
        let kept = aside(&dir.join("a.json")).unwrap();
        assert_eq!(fs::read(kept).unwrap(), b"{");
        put(&dir, ".b.json.4194303999.0.tmp", b"").unwrap();
        put(&dir, &format!(".c.json.{}.0.tmp", std::process::id()), b"").unwrap();
        assert_eq!(sweep(&dir).unwrap(), 1);
        assert!(dir.join(format!(".c.json.{}.0.tmp", std::process::id())).exists(), "its writer lives");
        remove(&dir);
    }
}
