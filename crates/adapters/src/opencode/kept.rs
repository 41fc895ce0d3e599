//! What a database held when it was last read whole, kept in the cache: a listing of a thousand sessions asks it
//! thousands of questions, and mostly nothing has changed since.
//!
//! It counts only for the very version of the database and of its log that it was read from.

use std::io;
use std::path::Path;

use lariat_core::Time;
use lariat_sys::file::{self, Key};

use super::db::Contents;
use super::open::beside;
use super::record::Stored;
use crate::cache::RACY;
use crate::look::Look;
use crate::memory::{self, Kind};

/// The format changes with every change of what is kept.
const KIND: Kind = Kind { name: "opencode", format: u64::from_le_bytes(*b"ocstore6") };

/// A version as it is kept.
type Numbers = [(u64, u64, u64, i64, i64); 2];

/// Which version of a database: its file, and its log if it has one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Version([Key; 2]);

impl Version {
    /// The one that is there now.
    pub fn of(path: &Path) -> Option<Version> {
        let key = |path: &Path| match file::open(path) {
            Ok((_, key)) => Some(key),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Some(Key::default()),
            Err(_) => None,
        };
        let log = key(&beside(path, "-wal"))?;
        // Read by root, SQLite gives its log to the owner of the database anew, each time.
        Some(Version([key(path)?, Key { ctime: log.mtime, ..log }]))
    }

    fn numbers(self) -> Numbers {
        self.0.map(|k| (k.device, k.inode, k.size, k.mtime, k.ctime))
    }

    /// Whether it may have changed again within the same time stamp.
    fn is_racy(self, now: Time) -> bool {
        self.0.iter().any(|k| now.0.saturating_mul(1_000_000).saturating_sub(k.ctime) <= RACY)
    }
}

/// All sessions of this version, if they are kept.
pub fn recall(look: &Look<'_>, version: Version) -> Option<Contents> {
    let whose = look.places.opencode_db.to_str()?;
    let cache = look.places.cache.as_deref();
    let (_, (of, sessions)) = memory::recall::<(Numbers, Vec<Stored>)>(cache, KIND, whose)?;
    (version.numbers() == of).then(|| Contents { sessions, ..Contents::default() })
}

/// Keeps all sessions of a version, if that is still the one that is there.
pub fn keep(look: &Look<'_>, version: Version, contents: &Contents) {
    let Some(whose) = look.places.opencode_db.to_str() else { return };
    let settled = !version.is_racy(look.now) && Version::of(&look.places.opencode_db) == Some(version);
    if settled && contents.damage.is_none() {
        let kept = (version.numbers(), &contents.sessions);
        memory::keep(look.places.cache.as_deref(), KIND, whose, look.now, &kept);
    }
}
