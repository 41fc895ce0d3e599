//! The process table, read once per question.
//!
//! Two small files per process are read, `stat` and `cmdline`; everything else
//! (directory, environment, descriptors) is asked only of the few processes
//! that turn out to be agents. A scan that could not see itself is an error:
//! an empty table must never look like proof that all have ended.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use crate::process::{self, Stat, is_gone};
use crate::two::by_two;

/// How long one thread of a look waits for processes that are dying, all of them together.
const DYING: Duration = Duration::from_millis(300);
/// Arguments beyond this are not looked at.
const MAX_ARGUMENTS: usize = 128 * 1024;
const KERNEL_THREAD: u64 = 0x0020_0000;
/// So many processes are read sooner by two threads than by one: each takes the kernel some ten microseconds.
const MANY: usize = 32;

/// One process as the scan saw it.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its PID in our namespace.
    pub pid: u32,
    /// Its parent.
    pub ppid: u32,
    /// Its start, in clock ticks since boot.
    pub start: u64,
    /// Stopped by a signal (`SIGSTOP`): alive, and not running.
    pub halted: bool,
    /// The command name.
    pub comm: String,
    arguments: Vec<u8>,
}

impl Process {
    /// Its arguments, the program's name first.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        let bytes = self.arguments.strip_suffix(b"\0").unwrap_or(&self.arguments);
        bytes.split(|b| *b == 0).map(|a| std::str::from_utf8(a).unwrap_or(""))
    }

    /// Whether it is a copy of its parent that has not started its own program
    /// yet: between `fork` and `exec` a child bears the parent's arguments and
    /// runs the parent's program.
    pub fn is_copy_of_parent(&self, table: &Table) -> bool {
        let Some(parent) = table.get(self.ppid).filter(|parent| parent.arguments == self.arguments) else {
            return false;
        };
        let program = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let same_program = program(parent.pid) == program(self.pid);
        // Asked last: it may have started its own program, or ended, just now.
        let unchanged = matches!(look(self.pid), Ok(Some(now)) if now.arguments == self.arguments);
        same_program || !unchanged
    }

    /// Whether it still runs, asked now.
    pub fn is_alive(&self) -> io::Result<bool> {
        match Stat::read(self.pid) {
            Ok(stat) => Ok(stat.start == self.start && !stat.is_dead()),
            Err(e) if is_gone(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// Every process that runs, without kernel threads and without the dead.
#[derive(Debug, Default)]
pub struct Table {
    processes: Vec<Process>,
    by_pid: HashMap<u32, usize>,
    children: HashMap<u32, Vec<u32>>,
}

/// Why a scan is not to be believed.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// `/proc` could not be read.
    #[error("reading /proc: {0}")]
    Read(#[from] io::Error),
    /// What is mounted there is not a process table.
    #[error("/proc is not a process table (mount procfs there)")]
    NotProc,
    /// The table does not show this very process.
    #[error("/proc does not show this process: it belongs to another PID namespace or hides processes")]
    Incomplete,
}

impl Table {
    /// Reads the whole table.
    pub fn scan() -> Result<Table, ScanError> {
        Table::scan_with(MANY)
    }

    /// The same by this thread alone: to begin another one would look as if somebody had begun ([`last_given`]).
    pub fn scan_alone() -> Result<Table, ScanError> {
        Table::scan_with(usize::MAX)
    }

    fn scan_with(many: usize) -> Result<Table, ScanError> {
        const PROC_SUPER_MAGIC: u64 = 0x9fa0;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::open("/proc", flags, Mode::empty()).map_err(io::Error::from)?;
        if rustix::fs::fstatfs(&proc).map_err(io::Error::from)?.f_type as u64 != PROC_SUPER_MAGIC {
            return Err(ScanError::NotProc);
        }
        // A table of another PID namespace has our number too, but for another process.
        let own = rustix::fs::readlinkat(&proc, "self", Vec::new()).map_err(|_| ScanError::Incomplete)?;
        if own.to_str() != Ok(&std::process::id().to_string()) {
            return Err(ScanError::Incomplete);
        }
        let mut pids = Vec::new();
        for entry in rustix::fs::Dir::read_from(&proc).map_err(io::Error::from)? {
            let entry = entry.map_err(io::Error::from)?;
            if let Some(pid) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok()) {
                pids.push(pid);
            }
        }
        let read = |pids: &[u32]| {
            let (mut buffer, mut patience) = (vec![0; 4096], DYING);
            let read = pids.iter().map(|pid| read_one(proc.as_fd(), *pid, &mut buffer, &mut patience));
            read.collect::<Vec<io::Result<Option<Process>>>>()
        };
        let mut table = Table::default();
        for read in by_two(&pids, many, read) {
            match read {
                Ok(Some(process)) => table.insert(process),
                Ok(None) => {}
                Err(e) if is_gone(&e) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(table)
    }

    fn insert(&mut self, process: Process) {
        self.by_pid.insert(process.pid, self.processes.len());
        self.children.entry(process.ppid).or_default().push(process.pid);
        self.processes.push(process);
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter()
    }

    /// The process with this PID as of the scan.
    pub fn get(&self, pid: u32) -> Option<&Process> {
        self.by_pid.get(&pid).map(|i| &self.processes[*i])
    }

    /// The direct children of a process.
    pub fn children(&self, pid: u32) -> impl Iterator<Item = &Process> {
        self.children.get(&pid).into_iter().flatten().filter_map(|pid| self.get(*pid))
    }

    /// Children, their children, and so on.
    pub fn descendants(&self, pid: u32) -> Vec<&Process> {
        let mut found: Vec<&Process> = self.children(pid).collect();
        let mut next = 0;
        while next < found.len() {
            let more: Vec<&Process> = self.children(found[next].pid).collect();
            found.extend(more);
            next += 1;
        }
        found
    }
}

/// The number that was last given to a process or a thread of this PID namespace; `None` if
/// the kernel does not tell. While it stays the same, none has begun.
pub fn last_given() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/kernel/ns_last_pid").ok()?.trim().parse().ok()
}

/// Reads one process now, as a scan would: `None` if it has ended.
pub fn look(pid: u32) -> io::Result<Option<Process>> {
    look_for(pid, DYING)
}

fn look_for(pid: u32, mut patience: Duration) -> io::Result<Option<Process>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = rustix::fs::open("/proc", flags, Mode::empty())?;
    match read_one(proc.as_fd(), pid, &mut vec![0; 4096], &mut patience) {
        Err(e) if is_gone(&e) => Ok(None),
        other => other,
    }
}

/// The same of one that is known, whatever its PID is called here. An error is no answer.
pub fn look_at(identity: &process::Identity) -> io::Result<Option<Process>> {
    let Some((now, _)) = identity.here()? else { return Ok(None) };
    Ok(look(now.pid)?.filter(|p| p.start == now.start))
}

fn read_one(
    proc: BorrowedFd<'_>,
    pid: u32,
    buffer: &mut Vec<u8>,
    patience: &mut Duration,
) -> io::Result<Option<Process>> {
    let mut stat = read_stat(proc, pid, buffer)?;
    if stat.is_doomed() && !stat.is_dead() && !patience.is_zero() {
        // It neither runs nor is gone: a moment later it can be told. On a busy machine one that was killed may stand
        // there for a while as if nothing had happened.
        let began = Instant::now();
        process::wait_exit(&process::Identity::open(pid)?.1, *patience)?;
        *patience = patience.saturating_sub(began.elapsed());
        stat = read_stat(proc, pid, buffer)?;
    }
    if stat.flags & KERNEL_THREAD != 0 || stat.is_dead() {
        return Ok(None);
    }
    let n = read_at(proc, &format!("{pid}/cmdline"), buffer)?;
    Ok(Some(Process {
        pid,
        ppid: stat.ppid,
        start: stat.start,
        halted: matches!(stat.state, b'T' | b't'),
        comm: stat.comm,
        arguments: buffer[..n].to_vec(),
    }))
}

fn read_stat(proc: BorrowedFd<'_>, pid: u32, buffer: &mut Vec<u8>) -> io::Result<Stat> {
    let n = read_at(proc, &format!("{pid}/stat"), buffer)?;
    let unreadable = || io::Error::new(io::ErrorKind::InvalidData, format!("unreadable stat of process {pid}"));
    Stat::parse(&buffer[..n]).ok_or_else(unreadable)
}

fn read_at(proc: BorrowedFd<'_>, name: &str, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let fd: OwnedFd = rustix::fs::openat(proc, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut filled = 0;
    loop {
        let n = rustix::io::read(&fd, &mut buffer[filled..])?;
        filled += n;
        if n == 0 || filled >= MAX_ARGUMENTS {
            return Ok(filled);
        }
        if filled == buffer.len() {
            buffer.resize(buffer.len() * 2, 0);
        } else if filled < 4000 {
            return Ok(filled); // a short read of a small /proc file is its end
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scan_sees_this_process_as_it_is() {
        let table = Table::scan().unwrap();
        let me = table.get(std::process::id()).unwrap();
        assert!(me.is_alive().unwrap());
        let given: Vec<String> = std::env::args().collect();
        assert_eq!(me.arguments().collect::<Vec<_>>(), given);
        assert!(table.descendants(me.ppid).iter().any(|p| p.pid == me.pid));
    }

    #[test]
    fn whoever_begins_gets_a_number_that_was_not_the_last_one() {
        let before = last_given();
        let mut numbers = vec![before];
        for _ in 0..3 {
            std::thread::spawn(|| {}).join().unwrap();
            numbers.push(last_given());
        }
        assert!(before.is_none() || numbers.windows(2).all(|w| w[0] != w[1]), "{numbers:?}");
    }

    #[test]
    fn nobody_is_nobody() {
        assert!(look(u32::MAX / 4).unwrap().is_none());
        assert!(look(std::process::id()).unwrap().is_some());
    }

    /// Both share one processor, so that whoever is killed has had no turn since. It rests by then: while the kernel puts a
    /// program in its place, it may wait for a disk.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a process to kill")]
    fn whoever_was_killed_is_gone_at_the_next_look() {
        use std::io::{Read as _, Write as _};
        use std::process::Stdio;

        use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
        let before = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        sched_setaffinity(None, &one).unwrap();
        for _ in 0..100 {
            let mut cat = std::process::Command::new("cat");
            let mut child = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            assert!(look(child.id()).unwrap().is_some());
            child.kill().unwrap();
            // However long a busy machine lets it stand there.
            assert!(look_for(child.id(), Duration::from_secs(60)).unwrap().is_none());
            child.wait().unwrap();
        }
        sched_setaffinity(None, &before).unwrap();
    }
}
