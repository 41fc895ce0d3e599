//! Who holds which file lock, as `/proc/locks` tells.
//!
//! Looking never takes a lock: a probe by `flock` could make an agent that
//! starts at that moment fail.

use std::{fs, io};

/// One held `flock`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lock {
    /// The process that took it, in our PID namespace.
    pub pid: u32,
    /// Device of the file, major and minor.
    pub device: (u32, u32),
    /// Inode of the file.
    pub inode: u64,
}

impl Lock {
    /// The device as one number, as `stat` gives it.
    pub fn number(&self) -> u64 {
        rustix::fs::makedev(self.device.0, self.device.1)
    }
}

/// All `flock`s held now by processes that can be seen from here.
///
/// The kernel gives the table in pieces and counts on from where it stopped: a
/// lock that is let go in between makes it leave out another one. So it is read
/// twice, and what either reading has, is held.
pub fn held() -> io::Result<Vec<Lock>> {
    let mut locks = parse(&fs::read_to_string("/proc/locks")?);
    for lock in parse(&fs::read_to_string("/proc/locks")?) {
        if !locks.contains(&lock) {
            locks.push(lock);
        }
    }
    Ok(locks)
}

fn parse(table: &str) -> Vec<Lock> {
    table.lines().filter_map(parse_line).collect()
}

// `1: FLOCK  ADVISORY  WRITE 26624 fe:00:12345 0 EOF`; a waiter has `->`.
fn parse_line(line: &str) -> Option<Lock> {
    let mut words = line.split_ascii_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let pid = words.nth(2)?.parse().ok()?;
    let mut place = words.next()?.split(':');
    let major = u32::from_str_radix(place.next()?, 16).ok()?;
    let minor = u32::from_str_radix(place.next()?, 16).ok()?;
    Some(Lock { pid, device: (major, minor), inode: place.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_held_flocks_and_nothing_else() {
        let table = "1: FLOCK  ADVISORY  WRITE 26624 fe:00:12345 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 5 fe:00:1 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 fe:00:12345 0 EOF\n\
                     garbage\n\
                     3: FLOCK  ADVISORY  READ 1 00:1b:77 0 EOF\n";
        let locks = parse(table);
        assert_eq!(
            locks,
            [Lock { pid: 26624, device: (0xfe, 0), inode: 12345 }, Lock { pid: 1, device: (0, 0x1b), inode: 77 }]
        );
    }

    #[test]
    fn sees_a_lock_that_is_really_held() {
        let path = std::env::temp_dir().join(format!("lariat-locks-{}", std::process::id()));
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path).unwrap();
        file.lock().unwrap();
        let (device, inode) = crate::file::place(&path).unwrap();
        let device = (rustix::fs::major(device), rustix::fs::minor(device));
        let mine = |locks: Vec<Lock>| {
            locks.iter().any(|l| l.device == device && l.inode == inode && l.pid == std::process::id())
        };
        assert!(mine(held().unwrap()));
        file.unlock().unwrap();
        assert!(!mine(held().unwrap()));
        #[expect(clippy::disallowed_methods, reason = "the test's own file")]
        fs::remove_file(&path).unwrap();
    }
}
