//! A cgroup that was made for one session: who is in it, and the end of all of them.
//!
//! A cgroup is a name and an inode: names are used again, inodes are not. Nobody can
//! leave one by forking, by a session of its own, or by clearing its environment, so
//! what is in it belongs to whom it was made for, except what lies in another
//! session's own cgroup below it.
//!
//! It makes none and never decides whom to end: the shim makes them, the caller asks.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::process::is_gone;

/// What the cgroups of sessions begin with.
const PREFIX: &str = "lariat.";

/// What the cgroup of a session is called, by its handle and the PID of its shim.
pub fn name(handle: &str, shim: u32) -> String {
    let handle: String = handle.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).collect();
    format!("{PREFIX}{handle}.{shim}")
}

/// Whether this process stands in the cgroup of a unit of systemd's, or below it.
pub fn is_in_unit(unit: &str) -> bool {
    fs::read_to_string("/proc/self/cgroup").is_ok_and(|own| names_unit(&own, unit))
}

/// Units are in the one tree of version 2, or in systemd's own of version 1.
fn names_unit(own: &str, unit: &str) -> bool {
    let path = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (kind, path) = (parts.next()?, parts.next()?);
        (kind.is_empty() || kind == "name=systemd").then(|| path.split('/').any(|part| part == unit))
    };
    own.lines().filter_map(path).any(|found| found)
}

/// The cgroup above that of the session which this process is a part of, if it is: for what is to be no part of it.
pub fn above_session() -> Option<OwnedFd> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let is_sessions =
        |path: &&Path| path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    let above = Path::new(own).ancestors().filter(is_sessions).last()?.parent()?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    let mount = mounts.iter().find(|mount| mount.join("cgroup.controllers").exists())?;
    rustix::fs::open(mount.join(above), flags, Mode::empty()).ok()
}

/// The inode of a cgroup, by which it is known for as long as the machine runs.
pub fn inode(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().filter(fs::Metadata::is_dir).map(|m| m.ino())
}

/// A cgroup that was found to be the one it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cgroup {
    path: PathBuf,
    inode: u64,
}

impl Cgroup {
    /// The cgroup at a path, if that is on the kernel's own file system and is the very
    /// one that was recorded.
    pub fn find(path: &Path, inode: u64) -> Option<Cgroup> {
        const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;
        let kernels = rustix::fs::statfs(path).is_ok_and(|fs| fs.f_type as u64 == CGROUP2_SUPER_MAGIC);
        let found = Cgroup { path: path.to_owned(), inode };
        (kernels && found.is_there()).then_some(found)
    }

    fn is_there(&self) -> bool {
        inode(&self.path) == Some(self.inode)
    }

    /// Who is in it and below it, but for what other sessions have below it. Number 0
    /// is one in another PID namespace, whom we cannot know.
    pub fn members(&self) -> io::Result<Vec<u32>> {
        let mut pids = Vec::new();
        collect(&self.path, true, &mut pids)?;
        Ok(pids)
    }

    /// Ends everyone in it and below it with one blow that no fork escapes, unless one
    /// is there who is not its own, not known or to be spared; says whether it was done.
    pub fn kill(&self, spared: impl Fn(u32) -> bool) -> io::Result<bool> {
        let mut all = Vec::new();
        collect(&self.path, false, &mut all)?;
        let own = self.members()?;
        let strange = |pid: &u32| *pid == 0 || spared(*pid);
        if all.is_empty() || all.len() > own.len() || all.iter().chain(&own).any(strange) || !self.is_there() {
            return Ok(false);
        }
        match OpenOptions::new().write(true).open(self.path.join("cgroup.kill")) {
            Ok(mut file) => file.write_all(b"1").map(|()| true),
            // Before kernel 5.14, or not ours to write: the caller has another way.
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

fn collect(folder: &Path, only_own: bool, pids: &mut Vec<u32>) -> io::Result<()> {
    match fs::read_to_string(folder.join("cgroup.procs")) {
        Ok(text) => pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok())),
        // A threaded one lists its processes with the one above it.
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::OPNOTSUPP.raw_os_error()) => {}
        Err(e) if is_over(&e) => return Ok(()),
        Err(e) => return Err(e),
    }
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if is_over(&e) => return Ok(()),
        Err(e) => return Err(e),
    };
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(e) if is_over(&e) => return Ok(()),
            Err(e) => return Err(e),
        };
        let another = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if entry.file_type().is_ok_and(|t| t.is_dir()) && !(only_own && another) {
            collect(&entry.path(), only_own, pids)?;
        }
    }
    Ok(())
}

/// Whether an error means that the cgroup was removed meanwhile.
fn is_over(error: &io::Error) -> bool {
    is_gone(error) || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_a_folder_is_no_cgroup() {
        assert_eq!(name("brisk-heron", 7), "lariat.brisk-heron.7");
        assert_eq!(name("../x y", 7), "lariat.xy.7");
        let place = std::env::temp_dir();
        assert_eq!(Cgroup::find(&place, inode(&place).unwrap()), None);
        assert_eq!(inode(&place.join("no such")), None);
    }
    #[test]
    fn a_unit_is_a_whole_name_in_the_tree_that_units_are_in() {
        let v2 = "0::/user.slice/user@1000.service/app.slice/lariat.service\n";
        assert!(names_unit(v2, "lariat.service"));
        assert!(names_unit("0::/app.slice/lariat.service/lariat.brisk-heron.7\n", "lariat.service"));
        assert!(names_unit("4:memory:/x\n1:name=systemd:/app.slice/lariat.service\n0::/\n", "lariat.service"));
        for no in ["0::/not-lariat.service", "0::/lariat.service.d", "4:memory:/lariat.service", "0::/", "", "x"] {
            assert!(!names_unit(no, "lariat.service"), "{no}");
        }
    }
}
