//! What was read before, kept on disk so that it need not be read again.
//!
//! The cache decides nothing: an entry counts only for the very version of the
//! file it was made from (device, inode, size, mtime, ctime), and for an older
//! version only as a place to go on from, checked by [`crate::reader`]. A cache
//! that is lost, damaged, from another version or not to be written is simply
//! not there; the answer is the same, later.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use lariat_sys::file::{self, Key};
use xxhash_rust::xxh3::xxh3_64;

use crate::reader::{Fold, Reading};
use crate::store::in_parallel;

/// Changes with every change of what is kept: an old cache is then no cache.
const FORMAT: u64 = u64::from_le_bytes(*b"lariat02");
/// Entries are kept in shards of so many, to be read by several threads.
const SHARD: usize = 512;
/// A cache larger than this is not believed.
const LARGEST: u64 = 1 << 30;
/// A file that changed this short a while before it was read may change again
/// within the same time stamp.
const RACY: i64 = 50_000_000;
/// A file that did not change for so long will hardly change again soon.
const REST: i64 = 2_000_000_000;

type FlatKey = (u64, u64, u64, i64, i64);

fn flat(key: &Key) -> FlatKey {
    (key.device, key.inode, key.size, key.mtime, key.ctime)
}

/// The readings of one adapter's files.
pub struct Cache<F> {
    path: Option<PathBuf>,
    readings: Readings<F>,
    size: u64,
}

/// What the cache knows of a file.
pub enum Known<F> {
    /// This version was read.
    This(Box<Reading<F>>),
    /// An earlier version was read.
    Earlier(Box<Reading<F>>),
    /// Nothing.
    Nothing,
}

impl<F: Fold> Cache<F> {
    /// Loads a cache. Without a path there is none, and none is written.
    pub fn load(path: Option<PathBuf>) -> Cache<F> {
        let (readings, size) = path.as_deref().and_then(|path| read(path).ok()).unwrap_or_default();
        Cache { path, readings, size }
    }

    /// Takes out what is known of a file.
    pub fn take(&mut self, key: &Key) -> Known<F> {
        match self.readings.remove(&(key.device, key.inode)) {
            Some((kept, reading)) if kept == flat(key) => Known::This(reading),
            Some((_, reading)) => Known::Earlier(reading),
            None => Known::Nothing,
        }
    }

    /// Writes the cache anew, if what was read since is worth it: much, or of a
    /// file that has come to rest. A large cache is not rewritten for every line
    /// that a live session adds.
    pub fn save<'a>(
        &self,
        kept: impl Iterator<Item = (&'a Key, &'a Reading<F>)>,
        read: impl Iterator<Item = &'a Key>,
        bytes_read: u64,
        now_ns: i64,
    ) where
        F: 'a,
    {
        let Some(path) = &self.path else { return };
        let mut rested = read.filter(|key| now_ns.saturating_sub(key.ctime) > REST);
        if bytes_read == 0 || (bytes_read.saturating_mul(8) < self.size && rested.next().is_none()) {
            return;
        }
        let settled = kept.filter(|(key, _)| now_ns.saturating_sub(key.ctime) > RACY);
        let entries: Vec<(FlatKey, &Reading<F>)> = settled.map(|(key, reading)| (flat(key), reading)).collect();
        // A cache that cannot be written is no reason to fail.
        let _ = write(path, &entries);
    }
}

/// Inodes are numbers given out in turn: they need no better hash.
type Readings<F> = HashMap<(u64, u64), (FlatKey, Box<Reading<F>>), BuildHasherDefault<Spread>>;

#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(29) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

type Loaded<F> = (Readings<F>, u64);

fn read<F: Fold>(path: &Path) -> io::Result<Loaded<F>> {
    let bytes = file::read_small(path, LARGEST)?;
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "not our cache");
    let (head, body) = bytes.split_at_checked(16).ok_or_else(damaged)?;
    if head[..8] != FORMAT.to_le_bytes() || head[8..] != xxh3_64(body).to_le_bytes() {
        return Err(damaged());
    }
    let mut shards = Vec::new();
    let mut rest = body;
    while let Some((len, more)) = rest.split_first_chunk::<4>() {
        let shard;
        (shard, rest) = more.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or_else(damaged)?;
        shards.push(shard);
    }
    let mut readings = Readings::default();
    for shard in in_parallel(shards, decode) {
        for (key, reading) in shard.map_err(|_| damaged())? {
            readings.insert((key.0, key.1), (key, reading));
        }
    }
    Ok((readings, bytes.len() as u64))
}

fn decode<F: Fold>(mut shard: &[u8]) -> postcard::Result<Vec<(FlatKey, Box<Reading<F>>)>> {
    let mut entries = Vec::with_capacity(SHARD);
    while !shard.is_empty() {
        let entry;
        (entry, shard) = postcard::take_from_bytes(shard)?;
        entries.push(entry);
    }
    Ok(entries)
}

fn write<F: Fold>(path: &Path, entries: &[(FlatKey, &Reading<F>)]) -> io::Result<()> {
    let mut bytes = vec![0; 16];
    for shard in entries.chunks(SHARD) {
        let mut encoded = Vec::new();
        for entry in shard {
            encoded = postcard::to_extend(entry, encoded).map_err(io::Error::other)?;
        }
        let len = u32::try_from(encoded.len()).map_err(io::Error::other)?;
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.append(&mut encoded);
    }
    let sum = xxh3_64(&bytes[16..]);
    bytes[..8].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[8..16].copy_from_slice(&sum.to_le_bytes());
    if let Some(parent) = path.parent() {
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    // Not durable on purpose, but never half a file: another lariat may read it now.
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = std::fs::File::create(&temporary).and_then(|mut f| f.write_all(&bytes));
    #[expect(clippy::disallowed_methods, reason = "the one cache write")]
    let written = written.and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        #[expect(clippy::disallowed_methods, reason = "our own temporary file")]
        let _ = std::fs::remove_file(&temporary);
    }
    written
}
