//! What files used, added up and kept on disk, so that only what grew is read and nothing is added up
//! twice.
//!
//! Two files of ours: one with a page for each file of the store (what its records add up to, and
//! where its reading lies), and one with the readings themselves, of which only those of changed files
//! are wanted again. A reading is believed by the hash that its page has of it, the pages by a
//! checksum. What is lost, damaged or does not fit is not there; the answer is the same, later.
//!
//! Nothing here knows what a record is: it keeps hashes, and tells whether it may have one.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use lariat_core::Tokens;
use lariat_sys::file::{self, Key};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::cache::{numbers, replace};
use crate::spent::{Known, Usd, Use};

/// Changes with every change of what is kept: older ones are then not there.
const FORMAT: u64 = u64::from_le_bytes(*b"larisum4");
/// Format, number of pages, bytes of the bitmap, records in it, checksum of all before the foot.
const FOOT: usize = 40;
/// Of a page: the key, whether its file shares records, where the reading is, how long, its hash, and
/// where the page ends.
const ENTRY: usize = 80;
/// So many bytes of readings that nobody wants any more are left lying.
const SPARE: u64 = 1 << 20;

/// What a file adds up to.
#[derive(Serialize, Deserialize, Debug)]
pub struct Page<'a> {
    /// The session, if the file itself tells it.
    pub session: Option<&'a str>,
    /// Where it works.
    pub dir: Option<&'a str>,
    /// The models that `uses` name by number.
    pub models: Vec<&'a str>,
    uses: Vec<Row>,
    /// What is wrong with the file.
    pub problem: Option<&'a str>,
}

/// Day, model, tokens, cost, answers.
type Row = (Option<i64>, u32, [u64; 4], Option<Usd>, u64);

impl<'a> Page<'a> {
    /// A page of these sums.
    pub fn of(
        session: Option<&'a str>,
        dir: Option<&'a str>,
        models: Vec<&'a str>,
        uses: &[Use],
        problem: Option<&'a str>,
    ) -> Page<'a> {
        let row = |u: &Use| {
            let t = u.tokens;
            (u.at, u.model as u32, [t.input, t.output, t.cache_read, t.cache_write], u.cost, u.answers)
        };
        Page { session, dir, models, uses: uses.iter().map(row).collect(), problem }
    }

    /// What it adds up to.
    pub fn uses(&self) -> impl Iterator<Item = Use> + '_ {
        self.uses.iter().map(|(at, model, [input, output, cache_read, cache_write], cost, answers)| Use {
            at: *at,
            model: *model as usize,
            tokens: Tokens { input: *input, output: *output, cache_read: *cache_read, cache_write: *cache_write },
            cost: *cost,
            answers: *answers,
        })
    }
}

/// Where a reading is, and its hash.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    from: u64,
    len: u64,
    hash: u64,
}

/// What is kept of a file besides its page.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Of which version of which file.
    pub key: Key,
    /// Whether some other file may have a record that it has.
    pub shares: bool,
    /// Where its reading is.
    pub reading: Place,
    /// Where its page ends.
    end: u64,
}

/// What is to be kept of a file.
pub struct Keep<'a> {
    /// Of which version of which file.
    pub key: Key,
    /// Whether some other file may have a record that it has.
    pub shares: bool,
    /// Its page, as bytes.
    pub page: &'a [u8],
    /// Its reading: what is kept already, or new bytes.
    pub reading: Result<Place, &'a [u8]>,
}

/// What was kept.
pub struct Sums {
    readings: File,
    bytes: Vec<u8>,
    entries: usize,
    map: usize,
    records: u64,
}

impl Sums {
    /// Loads what was kept under this name.
    pub fn load(path: &Path) -> Option<Sums> {
        let (kept, key) = file::open(path).ok()?;
        let (readings, _) = file::open(&of_readings(path)).ok()?;
        let end = key.size.checked_sub(FOOT as u64)?;
        let mut bytes = vec![0; usize::try_from(key.size).ok()?];
        kept.read_exact_at(&mut bytes, 0).ok()?;
        let [format, entries, map, records, sum] = numbers(bytes.get(end as usize..)?);
        bytes.truncate(end as usize);
        let rest = entries.checked_mul(ENTRY as u64)?.checked_add(map)?;
        if format != FORMAT || rest > end || map % Bloom::BLOCK as u64 != 0 || map == 0 || xxh3_64(&bytes) != sum {
            return None;
        }
        Some(Sums { readings, bytes, entries: entries as usize, map: map as usize, records })
    }

    /// How many pages there are.
    pub fn len(&self) -> usize {
        self.entries
    }

    fn parts(&self) -> (&[u8], &[[u8; ENTRY]], &[u8]) {
        let (rest, map) = self.bytes.split_at(self.bytes.len() - self.map);
        let (pages, index) = rest.split_at(rest.len() - self.entries * ENTRY);
        (pages, index.as_chunks().0, map)
    }

    /// The number of a file's page, of this or an earlier version.
    pub fn find(&self, key: &Key) -> Option<usize> {
        let wanted = (key.device, key.inode);
        self.parts().1.binary_search_by_key(&wanted, |entry| numbers::<2>(entry).into()).ok().filter(|_| key.inode != 0)
    }

    /// What is kept besides a page.
    pub fn entry(&self, page: usize) -> Entry {
        let [device, inode, size, mtime, ctime, shares, from, len, hash, end] = numbers(&self.parts().1[page]);
        let key = Key { device, inode, size, mtime: mtime as i64, ctime: ctime as i64 };
        Entry { key, shares: shares != 0, reading: Place { from, len, hash }, end }
    }

    /// A page, as bytes.
    pub fn page_bytes(&self, page: usize) -> Option<&[u8]> {
        let from = page.checked_sub(1).map_or(0, |before| self.entry(before).end);
        self.parts().0.get(from as usize..self.entry(page).end as usize)
    }

    /// A page.
    pub fn page(&self, page: usize) -> Option<Page<'_>> {
        postcard::from_bytes(self.page_bytes(page)?).ok()
    }

    /// A page's reading, if it is what was kept.
    pub fn reading(&self, page: usize) -> Option<Vec<u8>> {
        self.bytes_at(self.entry(page).reading)
    }

    fn bytes_at(&self, Place { from, len, hash }: Place) -> Option<Vec<u8>> {
        if from.checked_add(len)? > self.readings.metadata().ok()?.len() {
            return None; // before the size is believed
        }
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        self.readings.read_exact_at(&mut bytes, from).ok()?;
        (xxh3_64(&bytes) == hash).then_some(bytes)
    }

    /// Whether a file may have or have had a record; if not, surely none has.
    pub fn may_have(&self, known: &Known) -> bool {
        let map = self.parts().2;
        bits(map.len(), known).all(|(byte, bit)| map[byte] & bit != 0)
    }

    /// Whether so many are in there that it takes many others for one of them.
    pub fn is_full(&self) -> bool {
        self.records > (self.map / Bloom::BLOCK) as u64 * Bloom::TO_A_BLOCK
    }

    /// Which records files have, or had.
    pub fn records(&self) -> Bloom {
        Bloom { map: self.parts().2.to_vec(), records: self.records }
    }
}

fn of_readings(path: &Path) -> PathBuf {
    path.with_extension("readings")
}

/// Keeps these, and no others. What cannot be kept is not; that is no reason to fail.
pub fn save(path: &Path, before: Option<&Sums>, mut all: Vec<Keep<'_>>, records: &Bloom) {
    // A file that was found under two names is one.
    all.sort_unstable_by_key(|k| (k.key.device, k.key.inode));
    let mut twice = Vec::new();
    all.dedup_by(|a, b| {
        let same = (a.key.device, a.key.inode) == (b.key.device, b.key.inode);
        twice.extend(same.then_some(b.key));
        same
    });
    for key in twice {
        all.iter_mut().filter(|k| k.key == key).for_each(|k| k.shares = true);
    }
    let _ = place_readings(path, before, &all).and_then(|places| {
        let kept: Vec<(&Keep<'_>, Place)> = all.iter().zip(places).filter_map(|(k, p)| Some((k, p?))).collect();
        replace(path, |file| write(file, &kept, records))
    });
}

/// Puts the new readings behind those that are there, or all into a new file; where each is then.
fn place_readings(path: &Path, before: Option<&Sums>, all: &[Keep<'_>]) -> io::Result<Vec<Option<Place>>> {
    let live: u64 = all.iter().map(|k| k.reading.map_or_else(|new| new.len() as u64, |old| old.len)).sum();
    let there = before.and_then(|b| b.readings.metadata().ok()).map(|m| m.len()).filter(|len| *len <= 2 * live + SPARE);
    let place = |from: u64, bytes: &[u8]| Place { from, len: bytes.len() as u64, hash: xxh3_64(bytes) };
    if let Some(mut end) = there {
        // One that was replaced meanwhile gets what its pages do not fit, and is then not believed.
        let file = File::options().write(true).open(of_readings(path))?;
        let (first, mut new) = (end, Vec::new());
        let places = all.iter().map(|k| {
            Some(k.reading.unwrap_or_else(|bytes| {
                new.extend_from_slice(bytes);
                end += bytes.len() as u64;
                place(end - bytes.len() as u64, bytes)
            }))
        });
        let places = places.collect();
        file.write_all_at(&new, first)?;
        return Ok(places);
    }
    let mut places = Vec::with_capacity(all.len());
    replace(&of_readings(path), |file| {
        let (mut file, mut end) = (BufWriter::with_capacity(256 << 10, file), 0);
        for keep in all {
            let old = keep.reading.ok().and_then(|at| before?.bytes_at(at));
            let bytes = keep.reading.err().or(old.as_deref());
            places.push(bytes.map(|bytes| place(end, bytes)));
            let bytes = bytes.unwrap_or_default();
            file.write_all(bytes)?;
            end += bytes.len() as u64;
        }
        file.flush()
    })?;
    Ok(places)
}

fn write(file: File, kept: &[(&Keep<'_>, Place)], records: &Bloom) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(256 << 10, file);
    let mut sum = Xxh3::new();
    let mut put = |bytes: &[u8]| {
        sum.update(bytes);
        file.write_all(bytes)
    };
    for (keep, _) in kept {
        put(keep.page)?;
    }
    let mut end = 0;
    for (keep, place) in kept {
        let Key { device, inode, size, mtime, ctime } = keep.key;
        let Place { from, len, hash } = *place;
        end += keep.page.len() as u64;
        let shares = u64::from(keep.shares);
        let entry = [device, inode, size, mtime as u64, ctime as u64, shares, from, len, hash, end];
        put(entry.map(u64::to_le_bytes).as_flattened())?;
    }
    put(&records.map)?;
    let foot = [FORMAT, kept.len() as u64, records.map.len() as u64, records.records, sum.digest()];
    file.write_all(foot.map(u64::to_le_bytes).as_flattened())?;
    file.flush()
}

/// A bitmap that surely knows what was put into it, and seldom anything else.
pub struct Bloom {
    map: Vec<u8>,
    records: u64,
}

impl Bloom {
    /// The bits of one record are all in one block: one look at memory.
    const BLOCK: usize = 64;
    /// So many records to a block.
    const TO_A_BLOCK: u64 = 20;
    /// So many bits a record.
    const BITS: u32 = 7;

    /// With room for so many records, and some more.
    pub fn for_records(records: u64) -> Bloom {
        let blocks = (records + records / 4 + 1_000) / Self::TO_A_BLOCK + 1;
        Bloom { map: vec![0; blocks as usize * Self::BLOCK], records: 0 }
    }

    /// Puts a record in.
    pub fn put(&mut self, known: &Known) {
        for (byte, bit) in bits(self.map.len(), known) {
            self.map[byte] |= bit;
        }
        self.records += 1;
    }
}

/// Where the bits of a record are in a bitmap of so many bytes.
fn bits(map: usize, known: &Known) -> impl Iterator<Item = (usize, u8)> + use<> {
    let [a, b] = numbers::<2>(known);
    let block = ((a >> 32) * (map / Bloom::BLOCK) as u64) >> 32;
    let start = block as usize * Bloom::BLOCK;
    (0..Bloom::BITS).map(move |i| {
        let bit = (b >> (9 * i)) as usize & 511;
        (start + bit / 8, 1 << (bit % 8))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spent::known_by;

    #[test]
    fn what_was_put_in_is_known_and_little_else() {
        let known = |i: u32| known_by(&[&i.to_le_bytes()]);
        let may_have =
            |bloom: &Bloom, i: u32| bits(bloom.map.len(), &known(i)).all(|(byte, bit)| bloom.map[byte] & bit != 0);
        let mut bloom = Bloom::for_records(20_000);
        (0..20_000).for_each(|i| bloom.put(&known(i)));
        assert!((0..20_000).all(|i| may_have(&bloom, i)));
        let wrong = (20_000..220_000).filter(|i| may_have(&bloom, *i)).count();
        assert!(wrong < 200, "{wrong} of 200,000");
    }
}
