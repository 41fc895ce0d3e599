//! The daemon's log: one object a line, and never more than two files of it.
//!
//! It tells what the daemon did and what went wrong. No prompt, no output, no token
//! and no environment is ever written to it: only names, ids and reasons.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lariat_core::{Time, Untrusted};
use lariat_protocol::json;
use lariat_sys::clock;
use serde::Serialize;

/// A file larger than this is put aside, in place of the one that was before.
const LARGEST: u64 = 1 << 20;
/// So many of the last errors are remembered.
const ERRORS: usize = 20;

/// One line.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// When.
    pub at: Time,
    /// `info` or `error`.
    pub level: &'static str,
    /// What, in a word or two.
    pub what: &'static str,
    /// The rest.
    pub detail: Untrusted,
}

/// The log.
pub struct Log {
    path: PathBuf,
    inner: Mutex<Inner>,
}

struct Inner {
    file: Option<File>,
    size: u64,
    errors: VecDeque<Line>,
}

/// Where the log before this one is.
pub fn before(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

impl Log {
    /// Opens it; one that cannot be written is no reason to do nothing.
    pub fn open(path: &Path) -> Log {
        let (file, size) = open(path).map_or((None, 0), |(file, size)| (Some(file), size));
        Log { path: path.to_owned(), inner: Mutex::new(Inner { file, size, errors: VecDeque::new() }) }
    }

    /// Tells what was done.
    pub fn info(&self, what: &'static str, detail: impl Into<String>) {
        self.write("info", what, detail.into());
    }

    /// Tells what went wrong.
    pub fn error(&self, what: &'static str, detail: impl Into<String>) {
        self.write("error", what, detail.into());
    }

    /// The last errors, oldest first.
    pub fn errors(&self) -> Vec<Line> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).errors.iter().cloned().collect()
    }

    fn write(&self, level: &'static str, what: &'static str, detail: String) {
        let line = Line { at: Time(clock::now_ms()), level, what, detail: detail.into() };
        let mut text = Vec::new();
        if json::write(&mut text, &line).is_err() {
            return;
        }
        text.push(b'\n');
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if level == "error" {
            inner.errors.push_back(line);
            if inner.errors.len() > ERRORS {
                inner.errors.pop_front();
            }
        }
        if inner.size + text.len() as u64 > LARGEST {
            #[expect(clippy::disallowed_methods, reason = "our own log, in place of the one before it")]
            let _ = std::fs::rename(&self.path, before(&self.path));
            inner.file = None;
        }
        if inner.file.is_none() {
            (inner.file, inner.size) = open(&self.path).map_or((None, 0), |(file, size)| (Some(file), size));
        }
        inner.size += text.len() as u64;
        if let Some(file) = &mut inner.file {
            let _ = file.write_all(&text); // there is nobody left to tell
        }
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_grows_beyond_two_files_and_remembers_the_last_errors() {
        let folder = std::env::temp_dir().join(format!("lariat-log-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("daemon.log");
        let log = Log::open(&path);
        let long = "x".repeat(10_000);
        for n in 0..350 {
            log.error("test", format!("{n} {long}\u{1b}[2J"));
        }
        let sizes = [&path, &before(&path)].map(|p| std::fs::metadata(p).unwrap().len());
        assert!(sizes.iter().all(|s| *s <= LARGEST), "{sizes:?}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
        let last = std::fs::read_to_string(&path).unwrap();
        for line in last.lines() {
            let read: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(read["level"], "error");
        }
        assert!(!last.contains('\u{1b}'));
        let errors = log.errors();
        assert_eq!(errors.len(), ERRORS);
        assert!(errors[ERRORS - 1].detail.raw().starts_with("349 "));
        #[expect(clippy::disallowed_methods, reason = "the test's own folder")]
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
