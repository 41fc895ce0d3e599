//! What sessions have used: every record of tokens in a store, each once.
//!
//! A store is read whole, through the reader and a cache of its own, so that later only what was
//! appended is read. Of a record its time, model, tokens and cost are kept, and a hash of what it
//! is known by in 128 bits. The same record in two files (a fork begins with copies of its
//! parent's) counts in the file whose path is first.
//!
//! Telling which records are there twice takes no table of all of them: two bitmaps mark those that
//! may be, and only these are compared by their whole hash.
//!
//! Nothing here knows a price, a day or a person's question.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use lariat_core::{Tokens, Warning};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::look::Look;
use crate::reader::Fold;
use crate::store::{self, Found, Loading, Readings};

/// What one session used, as far as one file tells it.
#[derive(Clone, Copy, Debug)]
pub struct Spent<'a> {
    /// The session's own id; a sub-agent's use is that of the session it works for.
    pub session: &'a str,
    /// Where it works.
    pub dir: Option<&'a str>,
    /// The models that `uses` name by number.
    pub models: &'a [String],
    /// Every use that no file told before.
    pub uses: &'a [Use],
}

/// One answer of a model.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Use {
    /// When, in seconds since 1970.
    pub at: Option<i64>,
    /// Which of the models.
    pub model: usize,
    /// What it took; `input` is what came from no cache.
    pub tokens: Tokens,
    /// What it cost, if the agent says so.
    pub cost: Option<f64>,
}

/// Hears of what was used.
pub type Tell<'a> = dyn FnMut(Spent<'_>) + 'a;

/// What a record is known by.
pub type Known = [u8; 16];

/// The name of a record by all that tells it from others.
pub fn known_by(parts: &[&[u8]]) -> Known {
    let mut hash = Xxh3::new();
    for part in parts {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.digest128().to_le_bytes()
}

/// What happens with a record that the same file has told before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Again {
    /// The larger numbers count: it is told while it grows.
    Larger,
    /// The last word counts.
    Last,
}

/// The records of one file, packed.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Tally {
    /// The session, if the file itself tells it.
    pub session: Option<String>,
    /// Where it works.
    pub dir: Option<String>,
    models: Vec<String>,
    uses: Packed,
    /// Records whose numbers cannot be true.
    absurd: u32,
    #[serde(skip)]
    places: HashMap<Known, usize>,
}

impl Tally {
    /// Takes a record in. One that used nothing is none.
    pub fn take(&mut self, known: Known, model: &str, used: Use, again: Again) {
        let t = used.tokens;
        let counts = [t.input, t.output, t.cache_read, t.cache_write];
        let cost = used.cost.filter(|c| c.is_finite() && *c >= 0.0);
        if counts == [0; 4] && cost.is_none_or(|c| c == 0.0) {
            return;
        }
        let at = used.at.unwrap_or(0);
        let (Ok(at), Some(counts)) = (u32::try_from(at), all_u32(counts)) else {
            self.absurd = self.absurd.saturating_add(1);
            return;
        };
        let Some(model) = self.model(model) else {
            self.absurd = self.absurd.saturating_add(1);
            return;
        };
        if self.places.is_empty() {
            let mut from = 0;
            while let Some((entry, next)) = self.uses.entry(from) {
                self.places.insert(entry.known, from);
                from = next;
            }
        }
        let entry = Entry { known, at, model, counts, cost };
        match self.places.get(&known) {
            None => {
                self.places.insert(known, self.uses.0.len());
                self.uses.push(&entry);
            }
            Some(place) => {
                if !self.uses.change(*place, &entry, again) {
                    self.places.clear(); // found anew when the next is told
                }
            }
        }
    }

    fn model(&mut self, name: &str) -> Option<u16> {
        let found = self.models.iter().position(|m| m == name).or_else(|| {
            self.models.push(name.to_owned());
            Some(self.models.len() - 1)
        });
        found.and_then(|i| u16::try_from(i).ok())
    }
}

fn all_u32(counts: [u64; 4]) -> Option<[u32; 4]> {
    let mut all = [0; 4];
    for (to, from) in all.iter_mut().zip(counts) {
        *to = u32::try_from(from).ok()?;
    }
    Some(all)
}

/// One record.
#[derive(Clone, Copy, Debug)]
struct Entry {
    known: Known,
    at: u32,
    model: u16,
    counts: [u32; 4],
    cost: Option<f64>,
}

impl Entry {
    fn told(&self) -> Use {
        let [input, output, cache_read, cache_write] = self.counts.map(u64::from);
        let tokens = Tokens { input, output, cache_read, cache_write };
        let at = (self.at != 0).then_some(i64::from(self.at));
        Use { at, model: usize::from(self.model), tokens, cost: self.cost }
    }
}

/// Records one after the other, some 30 bytes each: the hash, the time, then numbers as long as they
/// need to be, and the cost if there is one.
#[derive(Clone, Default, Debug)]
struct Packed(Vec<u8>);

impl Packed {
    fn entry(&self, from: usize) -> Option<(Entry, usize)> {
        let bytes = self.0.get(from..)?;
        let (known, rest) = bytes.split_first_chunk()?;
        let (at, mut rest) = rest.split_first_chunk()?;
        let head = number(&mut rest)?;
        let mut counts = [0; 4];
        for count in &mut counts {
            *count = number(&mut rest)?;
        }
        let mut cost = None;
        if head & 1 == 1 {
            let (usd, after) = rest.split_first_chunk()?;
            (cost, rest) = (Some(f64::from_le_bytes(*usd)), after);
        }
        let model = u16::try_from(head >> 1).ok()?;
        let entry = Entry { known: *known, at: u32::from_le_bytes(*at), model, counts, cost };
        Some((entry, self.0.len() - rest.len()))
    }

    fn all(&self) -> impl Iterator<Item = Entry> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let (entry, next) = self.entry(from)?;
            from = next;
            Some(entry)
        })
    }

    fn push(&mut self, entry: &Entry) {
        self.0.extend_from_slice(&entry.known);
        self.0.extend_from_slice(&entry.at.to_le_bytes());
        let head = u32::from(entry.model) << 1 | u32::from(entry.cost.is_some());
        for mut number in std::iter::once(head).chain(entry.counts) {
            while number >= 0x80 {
                self.0.push(number as u8 | 0x80);
                number >>= 7;
            }
            self.0.push(number as u8);
        }
        if let Some(cost) = entry.cost {
            self.0.extend_from_slice(&cost.to_le_bytes());
        }
    }

    /// Changes a record; `false` if others have moved by that.
    fn change(&mut self, from: usize, entry: &Entry, again: Again) -> bool {
        let Some((before, end)) = self.entry(from) else { return true };
        let mut now = *entry;
        if again == Again::Larger {
            now.at = before.at;
            now.model = before.model;
            for (now, before) in now.counts.iter_mut().zip(before.counts) {
                *now = (*now).max(before);
            }
            now.cost = match (now.cost, before.cost) {
                (Some(now), Some(before)) => Some(now.max(before)),
                (now, before) => now.or(before),
            };
        }
        let rest = self.0.split_off(end);
        self.0.truncate(from);
        self.push(&now);
        let stayed = rest.is_empty() || self.0.len() == end;
        self.0.extend_from_slice(&rest);
        stayed
    }
}

/// A number of seven bits a byte, the lowest first.
fn number(bytes: &mut &[u8]) -> Option<u32> {
    let mut number = 0u32;
    for shift in (0..35).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

// As bytes: a list of numbers would be written and read one by one.
impl Serialize for Packed {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Packed {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl serde::de::Visitor<'_> for Bytes {
            type Value = Packed;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Packed, E> {
                Ok(Packed(bytes.to_vec()))
            }
        }
        d.deserialize_bytes(Bytes)
    }
}

/// A fold that counts.
pub trait Counts: Fold {
    /// What it has counted.
    fn tally(&self) -> &Tally;
}

/// A file that is counted.
pub struct File {
    /// The session, unless the file tells another.
    pub session: String,
    /// Where it works, unless the file tells.
    pub dir: Option<String>,
    /// Where it is, and which version of it.
    pub found: Found,
}

/// Files that were read, and what is twice in them.
pub struct Counted<F> {
    files: Vec<File>,
    readings: Readings<F>,
    twice: Twice,
    warnings: Vec<Warning>,
}

/// Reads the files and tells what they used, in the order of their paths; gives what is wrong.
pub fn tell<F: Counts>(
    look: &Look<'_>,
    cache: &str,
    files: Vec<File>,
    warning: &dyn Fn(&Path, String) -> Warning,
    to: &mut Tell<'_>,
) -> Vec<Warning> {
    read::<F>(look, cache, files, warning, &mut |_, _| ()).tell(to)
}

/// Reads the files, and shows each of them. What could not be read is warned of, by `warning`.
pub fn read<F: Counts>(
    look: &Look<'_>,
    cache: &str,
    mut files: Vec<File>,
    warning: &dyn Fn(&Path, String) -> Warning,
    show: &mut dyn FnMut(&File, &F),
) -> Counted<F> {
    files.sort_unstable_by(|a, b| a.found.path.cmp(&b.found.path));
    files.dedup_by(|a, b| a.found.path == b.found.path);
    for file in &mut files {
        file.found.whole = true;
    }
    let found: Vec<&Found> = files.iter().map(|f| &f.found).collect();
    let read = store::read::<F>(look, Loading::later(look, cache), &found);
    let mut warnings = Vec::new();
    let mut twice = Twice::for_bytes(files.iter().map(|f| f.found.key.size).sum());
    let ((), readings) = read.while_saving(|readings| {
        for (i, file) in files.iter().enumerate() {
            let problem = match readings.get(i, &file.found) {
                Ok(reading) => {
                    show(file, &reading.fold);
                    let tally = reading.fold.tally();
                    tally.uses.all().for_each(|entry| twice.mark(&entry.known));
                    let absurd = format!("{} records hold numbers that cannot be true; not counted", tally.absurd);
                    let problem = reading.complaint().or(Some(absurd).filter(|_| tally.absurd > 0));
                    problem.or((!reading.whole).then(|| "too large to be read whole: counted in part".to_owned()))
                }
                Err(e) => Some(e.to_string()).filter(|_| file.found.key.inode != 0), // else told when it was found
            };
            warnings.extend(problem.map(|why| warning(&file.found.path, why)));
        }
    });
    Counted { files, readings, twice, warnings }
}

impl<F: Counts> Counted<F> {
    /// Tells what the files used, and gives what is wrong with them.
    pub fn tell(mut self, to: &mut Tell<'_>) -> Vec<Warning> {
        let mut uses = Vec::new();
        for (i, file) in self.files.iter().enumerate() {
            let Ok(reading) = self.readings.get(i, &file.found) else { continue };
            let tally = reading.fold.tally();
            uses.clear();
            uses.extend(tally.uses.all().filter(|e| self.twice.is_first(&e.known)).map(|e| e.told()));
            if !uses.is_empty() {
                to(Spent {
                    session: tally.session.as_deref().unwrap_or(&file.session),
                    dir: tally.dir.as_deref().or(file.dir.as_deref()),
                    models: &tally.models,
                    uses: &uses,
                });
            }
        }
        self.warnings
    }
}

/// Tells which records were there before. All are marked first, then each is asked about, in order.
pub struct Twice {
    once: Vec<u64>,
    again: Vec<u64>,
    seen: HashSet<Known>,
}

impl Twice {
    /// For as many records as so many bytes of a store may hold.
    pub fn for_bytes(bytes: u64) -> Twice {
        // A record takes some 10 KB of a store; a bit in eight is set then. More only take longer.
        let bits = (bytes / 1024).next_power_of_two().clamp(1 << 16, 1 << 26) as usize;
        Twice { once: vec![0; bits / 64], again: vec![0; bits / 64], seen: HashSet::new() }
    }

    fn place(&self, known: &Known) -> (usize, u64) {
        let [a, b, c, d, ..] = *known;
        let bit = u32::from_le_bytes([a, b, c, d]) as usize % (self.once.len() * 64);
        (bit / 64, 1 << (bit % 64))
    }

    /// There is such a record.
    pub fn mark(&mut self, known: &Known) {
        let (word, bit) = self.place(known);
        self.again[word] |= self.once[word] & bit;
        self.once[word] |= bit;
    }

    /// Whether this is the first record of that name.
    pub fn is_first(&mut self, known: &Known) -> bool {
        let (word, bit) = self.place(known);
        self.again[word] & bit == 0 || self.seen.insert(*known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(input: u64, output: u64) -> Use {
        Use { at: Some(5), model: 0, tokens: Tokens { input, output, ..Tokens::default() }, cost: None }
    }

    fn told(tally: &Tally) -> Vec<(u64, u64, Option<f64>)> {
        tally.uses.all().map(|e| e.told()).map(|u| (u.tokens.input, u.tokens.output, u.cost)).collect()
    }

    #[test]
    fn a_record_that_grows_counts_once() {
        let mut tally = Tally::default();
        tally.take(known_by(&[b"a"]), "m", used(10, 1), Again::Larger);
        tally.take(known_by(&[b"b"]), "m", Use { cost: Some(0.5), ..used(1, 1) }, Again::Larger);
        tally.take(known_by(&[b"a"]), "m", used(10, 7), Again::Larger);
        tally.take(known_by(&[b"a"]), "m", used(10, 3), Again::Larger);
        tally.take(known_by(&[b"c"]), "m", used(0, 0), Again::Larger);
        assert_eq!(told(&tally), [(10, 7, None), (1, 1, Some(0.5))]);
        tally.take(known_by(&[b"b"]), "m", Use { cost: Some(0.2), ..used(2, 0) }, Again::Last);
        assert_eq!(told(&tally)[1], (2, 0, Some(0.2)));
        // And so after it was kept and taken up again.
        let kept = postcard::to_stdvec(&tally).unwrap();
        let mut again: Tally = postcard::from_bytes(&kept).unwrap();
        again.take(known_by(&[b"a"]), "m", used(10, 9), Again::Larger);
        assert_eq!(told(&again), [(10, 9, None), (2, 0, Some(0.2))]);
        // Numbers that need more room than before move what is behind them.
        again.take(known_by(&[b"a"]), "m", used(u64::from(u32::MAX), 300), Again::Larger);
        again.take(known_by(&[b"b"]), "n", used(3, 129), Again::Last);
        again.take(known_by(&[b"d"]), "n", used(1, 1), Again::Last);
        assert_eq!(told(&again), [(u64::from(u32::MAX), 300, None), (3, 129, None), (1, 1, None)]);
    }

    #[test]
    fn what_cannot_be_true_is_told_and_not_counted() {
        let mut tally = Tally::default();
        tally.take(known_by(&[b"a"]), "m", used(u64::MAX, 1), Again::Larger);
        tally.take(known_by(&[b"b"]), "m", Use { at: Some(-1), ..used(1, 1) }, Again::Larger);
        assert_eq!((told(&tally).len(), tally.absurd), (0, 2));
    }

    #[test]
    fn every_record_is_first_once_however_full_the_bitmaps_are() {
        // Many more than there are bits: nearly all are compared by their hash.
        let all: Vec<Known> = (0..200_000u32).map(|i| known_by(&[&(i / 2).to_le_bytes()])).collect();
        let mut twice = Twice::for_bytes(0);
        all.iter().for_each(|known| twice.mark(known));
        let firsts: Vec<bool> = all.iter().map(|known| twice.is_first(known)).collect();
        assert!(firsts.chunks(2).all(|pair| pair == [true, false]));
    }
}
