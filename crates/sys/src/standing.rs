//! Who stands in a directory, or holds something of it open.
//!
//! A process stands in it if its working or root directory is the directory or
//! lies below it, by device and inode, so that a container which sees it under
//! another name is found too. It holds something of it if a descriptor, its
//! program or a mapping leads there. Processes that we may not look into, those
//! of other users, are not told of.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::scan::{ScanError, Table};

/// A process that is in the way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Its PID.
    pub pid: u32,
    /// Its command name.
    pub comm: String,
    /// What it does there: `stands in it`, `has a file of it open`.
    pub how: &'static str,
}

/// How far up from where a process stands is looked.
const DEPTH: usize = 128;

/// Everyone in a directory but this process. `path` is its real path, `place` its
/// device and inode.
pub fn within(path: &Path, place: (u64, u64)) -> Result<Vec<Standing>, ScanError> {
    let table = Table::scan()?;
    let me = std::process::id();
    let found = table.iter().filter(|p| p.pid != me).filter_map(|p| {
        let how = stands(p.pid, place).or_else(|| holds(p.pid, path))?;
        Some(Standing { pid: p.pid, comm: p.comm.clone(), how })
    });
    Ok(found.collect())
}

fn stands(pid: u32, place: (u64, u64)) -> Option<&'static str> {
    let is_within = |link: &str| {
        let mut here = PathBuf::from(format!("/proc/{pid}/{link}"));
        let mut last = None;
        for _ in 0..DEPTH {
            let Ok(meta) = fs::metadata(&here) else { return false };
            let now = (meta.dev(), meta.ino());
            if now == place {
                return true;
            }
            if last.replace(now) == Some(now) {
                return false; // the root of what it sees
            }
            here.push("..");
        }
        false
    };
    (is_within("cwd") || is_within("root")).then_some("stands in it")
}

fn holds(pid: u32, path: &Path) -> Option<&'static str> {
    let is_below = |link: &Path| link.starts_with(path);
    let program = fs::read_link(format!("/proc/{pid}/exe"));
    if program.is_ok_and(|p| is_below(&p)) {
        return Some("runs a program of it");
    }
    let files = crate::process::open_files(pid).unwrap_or_default();
    if files.iter().any(|f| is_below(f)) {
        return Some("has a file of it open");
    }
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let shown = path.as_os_str().as_bytes().to_vec();
    let shown = String::from_utf8_lossy(&shown).replace('\n', "\\012");
    let mapped = maps.split(|b| *b == b'\n').any(|line| {
        let at = line.iter().position(|b| *b == b'/');
        at.is_some_and(|at| String::from_utf8_lossy(&line[at..]).starts_with(&format!("{shown}/")))
    });
    mapped.then_some("has a file of it mapped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_below_is_found_and_one_elsewhere_is_not() {
        let top = std::env::temp_dir().join(format!("lariat-standing-{}", std::process::id()));
        let below = top.join("a/b");
        fs::create_dir_all(&below).unwrap();
        let place = crate::file::place(&top).unwrap();
        assert_eq!(within(&top, place).unwrap(), []);
        let started = |folder: &Path, held: Option<fs::File>| {
            // It lives until its input ends, and says when it is there.
            #[expect(clippy::disallowed_methods, reason = "the test's own child")]
            let mut cat = std::process::Command::new("cat");
            cat.current_dir(folder).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
            if let Some(held) = held {
                cat.stderr(held);
            }
            let mut child = cat.spawn().unwrap();
            use std::io::{Read as _, Write as _};
            child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            child
        };
        let end = |mut child: std::process::Child| {
            drop(child.stdin.take());
            child.wait().unwrap();
        };
        // By its PID: whoever another test is just forking has what this process has open, for that moment.
        let how = |child: &std::process::Child| {
            within(&top, place).unwrap().into_iter().find(|s| s.pid == child.id()).map(|s| s.how)
        };
        let one = started(&below, None);
        assert_eq!(how(&one), Some("stands in it"));
        end(one);
        let file = fs::OpenOptions::new().create(true).append(true).open(below.join("log")).unwrap();
        let two = started(Path::new("/"), Some(file));
        assert_eq!(how(&two), Some("has a file of it open"));
        let three = started(Path::new("/"), None);
        assert_eq!(how(&three), None, "it is elsewhere");
        end(three);
        end(two);
        #[expect(clippy::disallowed_methods, reason = "the test's own folder")]
        fs::remove_dir_all(&top).unwrap();
    }
}
