//! The limits that lariat is compared with: the least work that could give the answer.
//!
//! The C programs are part of this binary and are built with `cc -O2` when they
//! are needed; `limit-headtail` is this binary itself.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How much of each end of a file `headtail` reads.
const END_BYTES: u64 = 16 * 1024;

/// The built programs.
pub struct Limits {
    pub meter: PathBuf,
    pub walk: PathBuf,
    pub procscan: PathBuf,
    pub crowd: PathBuf,
    pub stub: PathBuf,
    pub terminal: PathBuf,
    pub sockget: PathBuf,
    pub agent: PathBuf,
    /// A script for Node.
    pub whole: PathBuf,
}

impl Limits {
    /// Builds all of them in `dir`.
    pub fn build(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        Ok(Self {
            meter: compile(dir, "meter", include_str!("../limits/meter.c"))?,
            walk: compile(dir, "walk", include_str!("../limits/walk.c"))?,
            procscan: compile(dir, "procscan", include_str!("../limits/procscan.c"))?,
            crowd: compile(dir, "crowd", include_str!("../limits/crowd.c"))?,
            stub: compile(dir, "stub", include_str!("../limits/stub.c"))?,
            terminal: compile(dir, "terminal", include_str!("../limits/terminal.c"))?,
            sockget: compile(dir, "sockget", include_str!("../limits/sockget.c"))?,
            agent: compile(dir, "claude", include_str!("../limits/agent.c"))?,
            whole: script(dir, "whole.mjs", include_str!("../limits/whole.mjs"))?,
        })
    }
}

fn script(dir: &Path, name: &str, source: &str) -> io::Result<PathBuf> {
    let to = dir.join(name);
    fs::write(&to, source)?;
    Ok(to)
}

fn compile(dir: &Path, name: &str, source: &str) -> io::Result<PathBuf> {
    let (from, to) = (dir.join(name).with_extension("c"), dir.join(name));
    if fs::read_to_string(&from).is_ok_and(|old| old == source) && to.exists() {
        return Ok(to);
    }
    fs::write(&from, source)?;
    let cc = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(&cc).arg("-O2").arg("-o").arg(&to).arg(&from).status().map_err(|error| {
        io::Error::new(error.kind(), format!("{} (a C compiler builds the limit programs): {error}", cc.display()))
    })?;
    if !status.success() {
        // So that the next run does not take a failed build for a finished one.
        fs::remove_file(&from)?;
        return Err(io::Error::other(format!("{} could not be built: {status}", from.display())));
    }
    Ok(to)
}

/// Reads the first and last 16 KB of every `*.jsonl` below the roots; prints what it did.
pub fn headtail(threads: usize, roots: &[PathBuf]) -> io::Result<String> {
    let mut files = Vec::new();
    for root in roots {
        find(root, &mut files)?;
    }
    const BATCH: usize = 64;
    let (next, bytes) = (AtomicUsize::new(0), AtomicU64::new(0));
    let worker = || -> io::Result<()> {
        let mut buffer = vec![0; END_BYTES as usize];
        loop {
            let from = next.fetch_add(BATCH, Ordering::Relaxed);
            if from >= files.len() {
                return Ok(());
            }
            for path in &files[from..files.len().min(from + BATCH)] {
                let file = File::open(path)?;
                let len = file.metadata()?.len();
                let mut got = file.read_at(&mut buffer, 0)?;
                if len > END_BYTES {
                    got += file.read_at(&mut buffer, (len - END_BYTES).max(END_BYTES))?;
                }
                bytes.fetch_add(got as u64, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        all.into_iter().try_for_each(|thread| thread.join().map_err(|_| io::Error::other("a reader panicked"))?)
    })?;
    Ok(format!("files={} bytes={}", files.len(), bytes.into_inner()))
}

fn find(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find(&entry.path(), files)?;
        } else if entry.file_name().as_encoded_bytes().ends_with(b".jsonl") {
            files.push(entry.path());
        }
    }
    Ok(())
}
