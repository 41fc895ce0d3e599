//! What was read before, kept on disk so that it need not be read again.
//!
//! The cache decides nothing: an entry counts only for the very version of the
//! file it was made from (device, inode, size, mtime, ctime), and for an older
//! version only as a place to go on from, checked by [`crate::reader`]. A cache
//! that is lost, damaged, from another version or not to be written is simply
//! not there; the answer is the same, later.
//!
//! A reading stays as the bytes it is kept as until somebody looks at it: most
//! are looked at once, by the thread that tells of them, and a changed cache is
//! mostly made of bytes of the old one.

use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use lariat_sys::file::{self, Key};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Changes with every change of what is kept: an old cache is then no cache.
const FORMAT: u64 = u64::from_le_bytes(*b"lariat39");
/// Format, number of entries, checksum of all before the foot.
const FOOT: usize = 24;
/// An entry of the index: the key, whether it is whole, where its bytes end.
const ENTRY: usize = 56;
/// A file that changed this short a while before it was read may change again
/// within the same time stamp.
pub(crate) const RACY: i64 = 50_000_000;

/// The readings of one adapter's files, in two files of ours: the base, and
/// what was read since it was written. So a line that a live session adds costs
/// a small write, and a large base is written again only when much has changed.
#[derive(Default)]
pub struct Cache {
    path: Option<PathBuf>,
    base: Layer,
    newer: Layer,
}

/// Where the cache has something of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Only in what was read since the base was written.
    pub newer: bool,
    entry: usize,
}

/// A reading that is or shall be kept.
#[derive(Clone, Copy)]
pub struct Kept<'a> {
    /// Of which version of which file.
    pub key: Key,
    /// Whether every line was folded.
    pub whole: bool,
    /// What was read.
    pub bytes: &'a [u8],
    /// Whether the base has it not.
    pub newer: bool,
}

impl Cache {
    /// Loads a cache. Without a path there is none, and none is written.
    pub fn load(path: Option<PathBuf>) -> Cache {
        // What is damaged is not there.
        let base = path.as_deref().and_then(|path| Layer::read(path).ok()).unwrap_or_default();
        let newer = path.as_deref().and_then(|path| Layer::read(&newer(path)).ok()).unwrap_or_default();
        Cache { path, base, newer }
    }

    /// Finds what is known of a file, in this or an earlier version. One whose
    /// key could not be taken has no inode, and is not known.
    pub fn find(&self, key: &Key) -> Option<Place> {
        let newer = self.newer.find(key).map(|entry| Place { newer: true, entry });
        newer.or_else(|| self.base.find(key).map(|entry| Place { newer: false, entry }))
    }

    /// What is kept there.
    pub fn get(&self, place: Place) -> Option<Kept<'_>> {
        let layer = if place.newer { &self.newer } else { &self.base };
        let (key, whole, bytes) = layer.get(place.entry)?;
        Some(Kept { key, whole, bytes, newer: place.newer })
    }

    /// All that is kept, the newer of two readings of a file only.
    pub fn all(&self) -> impl Iterator<Item = Kept<'_>> {
        let newer = (0..self.newer.entries).filter_map(|entry| self.get(Place { newer: true, entry }));
        let base = (0..self.base.entries).filter_map(|entry| self.get(Place { newer: false, entry }));
        newer.chain(base.filter(|k| self.newer.find(&k.key).is_none()))
    }

    /// Writes down what was read. A file that changed this very moment is left
    /// out: it may change again within the same time stamp.
    pub fn save(&self, kept: Vec<Kept<'_>>, now_ns: i64) {
        let Some(base) = &self.path else { return };
        let mut kept = kept;
        kept.retain(|k| k.key.inode != 0 && now_ns.saturating_sub(k.key.ctime) > RACY);
        // A file that was found under two names is one.
        kept.sort_unstable_by_key(|k| (identity(&k.key), !k.whole));
        kept.dedup_by_key(|k| identity(&k.key));
        // A cache that cannot be written is no reason to fail.
        if kept.iter().filter(|k| k.newer).count() * 8 < self.base.entries {
            kept.retain(|k| k.newer);
            let _ = write(&newer(base), &kept);
        } else if write(base, &kept).is_ok() {
            #[expect(clippy::disallowed_methods, reason = "our own cache, now part of the base")]
            let _ = std::fs::remove_file(newer(base));
        }
    }
}

fn newer(base: &Path) -> PathBuf {
    base.with_extension("newer")
}

/// Which file it is, in whatever version.
fn identity(key: &Key) -> (u64, u64) {
    (key.device, key.inode)
}

/// One of the two files, as it lies on disk: readings, then the index in the
/// order of device and inode, then the foot.
#[derive(Default)]
struct Layer {
    bytes: Vec<u8>,
    entries: usize,
}

impl Layer {
    fn read(path: &Path) -> io::Result<Layer> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "not our cache");
        let (file, key) = file::open(path)?;
        let end = key.size.checked_sub(FOOT as u64).ok_or_else(damaged)?;
        let mut foot = [0; FOOT];
        file.read_exact_at(&mut foot, end)?;
        let [format, entries, sum] = numbers(&foot);
        if format != FORMAT || entries.saturating_mul(ENTRY as u64) > end {
            return Err(damaged()); // before any size in it is believed
        }
        let mut bytes = vec![0; end as usize];
        file.read_exact_at(&mut bytes, 0)?;
        if xxh3_64(&bytes) != sum {
            return Err(damaged());
        }
        Ok(Layer { bytes, entries: entries as usize })
    }

    fn index(&self) -> (&[u8], &[[u8; ENTRY]]) {
        let (readings, index) = self.bytes.split_at(self.bytes.len() - self.entries * ENTRY);
        (readings, index.as_chunks().0)
    }

    fn find(&self, key: &Key) -> Option<usize> {
        let (_, index) = self.index();
        index
            .binary_search_by_key(&identity(key), |entry| {
                let [device, inode] = numbers(entry);
                (device, inode)
            })
            .ok()
    }

    fn get(&self, entry: usize) -> Option<(Key, bool, &[u8])> {
        let (readings, index) = self.index();
        let [device, inode, size, mtime, ctime, whole, end] = numbers(index.get(entry)?);
        let from = entry.checked_sub(1).map_or(0, |before| numbers::<7>(&index[before])[6]);
        let key = Key { device, inode, size, mtime: mtime as i64, ctime: ctime as i64 };
        Some((key, whole != 0, readings.get(from as usize..end as usize)?))
    }
}

/// The numbers at the start of these bytes.
pub(crate) fn numbers<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let (numbers, _) = bytes.as_chunks();
    std::array::from_fn(|i| numbers.get(i).map_or(0, |n| u64::from_le_bytes(*n)))
}

/// Writes one of the two files. Not durable on purpose, but never half a file:
/// another lariat may read it now.
fn write(path: &Path, kept: &[Kept<'_>]) -> io::Result<()> {
    replace(path, |file| write_layer(file, kept))
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

fn write_layer(file: std::fs::File, kept: &[Kept<'_>]) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(256 << 10, file);
    let mut sum = Xxh3::new();
    let mut index = Vec::with_capacity(kept.len() * ENTRY);
    let mut end = 0;
    for Kept { key, whole, bytes, .. } in kept {
        file.write_all(bytes)?;
        sum.update(bytes);
        end += bytes.len() as u64;
        let Key { device, inode, size, mtime, ctime } = *key;
        let entry = [device, inode, size, mtime as u64, ctime as u64, u64::from(*whole), end];
        index.extend_from_slice(entry.map(u64::to_le_bytes).as_flattened());
    }
    file.write_all(&index)?;
    sum.update(&index);
    let foot = [FORMAT, kept.len() as u64, sum.digest()].map(u64::to_le_bytes);
    file.write_all(foot.as_flattened())?;
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(inode: u64, size: u64) -> Key {
        Key { device: 1, inode, size, mtime: 5, ctime: 5 }
    }

    fn kept(inode: u64, size: u64, bytes: &[u8], newer: bool) -> Kept<'_> {
        Kept { key: key(inode, size), whole: inode.is_multiple_of(2), bytes, newer }
    }

    fn told(cache: &Cache) -> Vec<(u64, u64, bool, Vec<u8>)> {
        let mut told: Vec<_> = cache.all().map(|k| (k.key.inode, k.key.size, k.whole, k.bytes.to_vec())).collect();
        told.sort();
        told
    }

    #[test]
    fn little_that_is_new_goes_beside_the_base_and_counts_first() {
        let folder = std::env::temp_dir().join(format!("lariat-cache-{}", std::process::id()));
        let path = folder.join("claude");
        let many: Vec<Kept<'_>> = (1..=20).rev().map(|i| kept(i, i, b"abc", true)).collect();
        Cache::load(Some(path.clone())).save(many, 1 << 60);
        let base = Cache::load(Some(path.clone()));
        assert_eq!(base.all().count(), 20);
        assert_eq!(base.find(&key(21, 0)), None);

        // One that grew, one that is new, and one that is not settled.
        let mut now: Vec<Kept<'_>> = base.all().filter(|k| k.key.inode != 7).collect();
        now.extend([kept(7, 99, b"grown", true), kept(30, 1, b"", true)]);
        now.push(Kept { key: Key { ctime: 1 << 60, ..key(31, 1) }, ..kept(31, 1, b"racy", true) });
        base.save(now, 1 << 60);
        assert!(newer(&path).exists(), "two of twenty are few");
        let both = Cache::load(Some(path.clone()));
        assert_eq!(both.all().count(), 21, "the base's own reading of 7 is hidden, 31 is left out");
        let seven = both.get(both.find(&key(7, 99)).unwrap()).unwrap();
        assert_eq!((seven.key, seven.whole, seven.bytes, seven.newer), (key(7, 99), false, &b"grown"[..], true));

        // Much that is new becomes the base.
        let all = told(&both);
        both.save(both.all().map(|k| Kept { newer: true, ..k }).collect(), 1 << 60);
        assert!(!newer(&path).exists());
        assert_eq!(told(&Cache::load(Some(path.clone()))), all);

        #[expect(clippy::disallowed_methods, reason = "this test's own folder")]
        std::fs::remove_dir_all(folder).unwrap();
    }
}
