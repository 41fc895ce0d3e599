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
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use lariat_sys::file::{self, Key};
use xxhash_rust::xxh3::xxh3_64;

use crate::reader::{Fold, Reading};
use crate::store::in_parallel;

/// Changes with every change of what is kept: an old cache is then no cache.
const FORMAT: u64 = u64::from_le_bytes(*b"lariat05");
/// Entries are kept in shards of so many, to be read by several threads.
const SHARD: usize = 256;
/// Format, number of shards, checksum of the index. The index has the length
/// and the checksum of each shard.
const FOOT: usize = 24;
/// A file that changed this short a while before it was read may change again
/// within the same time stamp.
const RACY: i64 = 50_000_000;

/// A key as it is stored: device, inode, size, mtime, ctime.
pub type FlatKey = (u64, u64, u64, i64, i64);

/// A key as it is stored.
pub fn flat(key: &Key) -> FlatKey {
    (key.device, key.inode, key.size, key.mtime, key.ctime)
}

/// The readings of one adapter's files, in two files of ours: the base, and
/// what was read since it was written. So a line that a live session adds costs
/// a small write, and a large base is written again only when much has changed.
pub struct Cache<F> {
    base: Option<PathBuf>,
    readings: Readings<F>,
    base_entries: usize,
}

/// What the cache knows of a file.
pub enum Known<F> {
    /// This version was read; whether that is only in the newer file.
    This(Box<Reading<F>>, bool),
    /// An earlier version was read.
    Earlier(Box<Reading<F>>),
    /// Nothing.
    Nothing,
}

/// A reading to be kept.
pub struct Kept<'a, F> {
    /// Of which version of which file.
    pub key: FlatKey,
    /// What was read.
    pub reading: &'a Reading<F>,
    /// Whether the base has it not.
    pub newer: bool,
}

impl<F: Fold> Cache<F> {
    /// Loads a cache. Without a path there is none, and none is written.
    pub fn load(base: Option<PathBuf>) -> Cache<F> {
        let mut readings = Readings::default();
        let mut base_entries = 0;
        if let Some(path) = &base {
            base_entries = read(path, false, &mut readings).unwrap_or(0);
            let _ = read(&newer(path), true, &mut readings); // what is damaged is not there
        }
        Cache { base, readings, base_entries }
    }

    /// Takes out what is known of a file.
    pub fn take(&mut self, key: &Key) -> Known<F> {
        match self.readings.remove(&(key.device, key.inode)) {
            Some((kept, newer, reading)) if kept == flat(key) => Known::This(reading, newer),
            Some((_, _, reading)) => Known::Earlier(reading),
            None => Known::Nothing,
        }
    }

    /// Writes down what was read. A file that changed this very moment is left
    /// out: it may change again within the same time stamp. What nobody asked for
    /// this time is kept too, unless all was asked for: then it is of files that
    /// are gone.
    pub fn save<'a>(&'a self, kept: impl Iterator<Item = Kept<'a, F>> + Clone, all: bool, now_ns: i64)
    where
        F: 'a,
    {
        let Some(base) = &self.base else { return };
        let unasked = self.readings.values().filter(|_| !all);
        let unasked = unasked.map(|(key, newer, reading)| Kept { key: *key, reading, newer: *newer });
        let settled = kept.filter(|k| now_ns.saturating_sub(k.key.4) > RACY).chain(unasked);
        let since = settled.clone().filter(|k| k.newer);
        // A cache that cannot be written is no reason to fail.
        if since.clone().count() * 8 < self.base_entries {
            let _ = write(&newer(base), since);
        } else if write(base, settled).is_ok() {
            #[expect(clippy::disallowed_methods, reason = "our own cache, now part of the base")]
            let _ = std::fs::remove_file(newer(base));
        }
    }
}

fn newer(base: &Path) -> PathBuf {
    base.with_extension("newer")
}

/// Inodes are numbers given out in turn: they need no better hash.
type Readings<F> = HashMap<(u64, u64), (FlatKey, bool, Box<Reading<F>>), BuildHasherDefault<Spread>>;

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

/// Reads one of the two files; how many entries it has.
fn read<F: Fold>(path: &Path, newer: bool, into: &mut Readings<F>) -> io::Result<usize> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "not our cache");
    let (file, key) = file::open(path)?;
    let end = key.size.checked_sub(FOOT as u64).ok_or_else(damaged)?;
    let mut foot = [0; FOOT];
    file.read_exact_at(&mut foot, end)?;
    let [format, shards, sum] =
        [0, 8, 16].map(|at| u64::from_le_bytes(foot[at..at + 8].try_into().unwrap_or_default()));
    let index_size = shards.saturating_mul(16);
    if format != FORMAT || index_size > end {
        return Err(damaged()); // before any size in it is believed
    }
    let mut index = vec![0; index_size as usize];
    file.read_exact_at(&mut index, end - index_size)?;
    if xxh3_64(&index) != sum {
        return Err(damaged());
    }
    let mut offset = 0u64;
    let mut places = Vec::new();
    for entry in index.as_chunks::<8>().0.chunks_exact(2) {
        let (len, sum) = (u64::from_le_bytes(entry[0]), u64::from_le_bytes(entry[1]));
        places.push((offset, len, sum));
        offset = offset.saturating_add(len);
    }
    if offset != end - index_size {
        return Err(damaged());
    }
    let read_shard = |(offset, len, sum): (u64, u64, u64)| {
        let mut shard = vec![0; len as usize];
        file.read_exact_at(&mut shard, offset)?;
        if xxh3_64(&shard) != sum {
            return Err(damaged());
        }
        decode(&shard).map_err(|_| damaged())
    };
    let mut count = 0;
    for shard in in_parallel(places, read_shard) {
        for (key, reading) in shard? {
            into.insert((key.0, key.1), (key, newer, reading));
            count += 1;
        }
    }
    Ok(count)
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

/// Writes one of the two files: shards, then the index, then the foot. Not
/// durable on purpose, but never half a file: another lariat may read it now.
fn write<'a, F: Fold + 'a>(path: &Path, kept: impl Iterator<Item = Kept<'a, F>>) -> io::Result<()> {
    replace(path, |file| write_shards(file, kept))
}

/// Puts a file of the cache into its place, or leaves it as it was.
pub(crate) fn replace(path: &Path, fill: impl FnOnce(std::fs::File) -> io::Result<()>) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = std::fs::File::create(&temporary).and_then(fill);
    #[expect(clippy::disallowed_methods, reason = "the one cache write")]
    let written = written.and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        #[expect(clippy::disallowed_methods, reason = "our own temporary file")]
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

fn write_shards<'a, F: Fold + 'a>(mut file: std::fs::File, kept: impl Iterator<Item = Kept<'a, F>>) -> io::Result<()> {
    let mut kept = kept.peekable();
    let mut index = Vec::new();
    let mut shard = Vec::with_capacity(1 << 17);
    while kept.peek().is_some() {
        shard.clear();
        for k in kept.by_ref().take(SHARD) {
            shard = postcard::to_extend(&(k.key, k.reading), shard).map_err(io::Error::other)?;
        }
        index.extend_from_slice(&(shard.len() as u64).to_le_bytes());
        index.extend_from_slice(&xxh3_64(&shard).to_le_bytes());
        file.write_all(&shard)?;
    }
    file.write_all(&index)?;
    let foot = [FORMAT, (index.len() / 16) as u64, xxh3_64(&index)].map(u64::to_le_bytes);
    file.write_all(foot.as_flattened())
}
