//! Processes of a world as the test sees them from outside, through `/proc` of the machine.
//!
//! It only looks, and signals through a pidfd that was checked against what was looked at.

use std::{fs, os::fd::AsFd, os::fd::AsRawFd, os::fd::OwnedFd, path::Path};

pub use rustix::process::Signal;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

/// One process of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its pid in the world.
    pub pid: i32,
    /// Its parent's pid in the world; 0 for one that was put in from outside.
    pub parent: i32,
    /// Its pid as the test process sees it.
    pub outside: i32,
    /// Its short name.
    pub comm: String,
    /// Its command line.
    pub argv: Vec<String>,
    /// Its state letter: `R`, `S`, `T`, `Z`…
    pub state: char,
}

impl Process {
    /// Sends it a signal, if it is still the same process; says whether it was.
    pub fn signal(&self, signal: Signal) -> bool {
        let Some(pid) = Pid::from_raw(self.outside) else {
            return false;
        };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else {
            return false;
        };
        let same = |now: &Self| now.pid == self.pid && now.comm == self.comm;
        read(self.outside).as_ref().is_some_and(same) && pidfd_send_signal(pidfd, signal).is_ok()
    }

    /// Its environment, as it was started.
    pub fn environ(&self) -> Vec<String> {
        strings(Path::new(&format!("/proc/{}/environ", self.outside)))
    }
}

pub(super) fn signal(pidfd: impl AsFd, signal: Signal) -> rustix::io::Result<()> {
    pidfd_send_signal(pidfd, signal)
}

/// The pid behind a pidfd, in the namespace of whoever asks.
pub(super) fn outside_pid(pidfd: &OwnedFd) -> Option<i32> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    pid.trim().parse().ok().filter(|&pid| pid > 0)
}

pub(super) fn in_namespace_of(init: i32) -> Vec<Process> {
    let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let Some(ours) = namespace(init) else {
        return Vec::new();
    };
    let pids = fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()));
    let mut found: Vec<_> =
        pids.filter(|&pid| pid != init && namespace(pid).as_ref() == Some(&ours)).filter_map(read).collect();
    let inside: std::collections::HashMap<_, _> = found.iter().map(|process| (process.outside, process.pid)).collect();
    for process in &mut found {
        process.parent = match inside.get(&process.parent) {
            Some(&pid) => pid,
            None if process.parent == init => 1,
            None => 0,
        };
    }
    found.sort_by_key(|process| process.pid);
    found
}

/// One process; its parent still as seen from outside.
fn read(outside: i32) -> Option<Process> {
    let status = fs::read_to_string(format!("/proc/{outside}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    Some(Process {
        pid: field("NSpid")?.split_whitespace().last()?.parse().ok()?,
        parent: field("PPid")?.parse().ok()?,
        outside,
        comm: field("Name")?.to_owned(),
        argv: strings(Path::new(&format!("/proc/{outside}/cmdline"))),
        state: field("State")?.chars().next()?,
    })
}

fn strings(path: &Path) -> Vec<String> {
    let bytes = fs::read(path).unwrap_or_default();
    let parts = bytes.split(|&byte| byte == 0).filter(|part| !part.is_empty());
    parts.map(|part| String::from_utf8_lossy(part).into_owned()).collect()
}
