//! What sessions have used: every record of tokens in a store, each once.
//!
//! Of a record its time, model, tokens and cost are kept, and a hash of what it is known by in 128
//! bits. [`crate::counting`] reads the files and finds what is in two of them.
//!
//! Money is counted in millionths of a millionth of a dollar, as whole numbers: so a sum is the same
//! however it was put together.
//!
//! Nothing here knows a price or a person's question.

use std::collections::HashMap;

use lariat_core::Tokens;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// So many of a day's seconds.
pub const DAY: i64 = 86_400;

/// What one session used, as far as one file tells it.
#[derive(Clone, Copy, Debug)]
pub struct Spent<'a> {
    /// The session's own id; a sub-agent's use is that of the session it works for.
    pub session: &'a str,
    /// Where it works.
    pub dir: Option<&'a str>,
    /// The models that `uses` name by number.
    pub models: &'a [&'a str],
    /// Every use that no file told before.
    pub uses: &'a [Use],
}

/// One answer of a model, or what several of a day add up to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// When, in seconds since 1970; the start of the day if it is several.
    pub at: Option<i64>,
    /// Which of the models.
    pub model: usize,
    /// What it took; `input` is what came from no cache.
    pub tokens: Tokens,
    /// What it cost, if the agent says so.
    pub cost: Option<Usd>,
    /// How many answers it is.
    pub answers: u64,
}

impl Use {
    fn join(&mut self, other: &Use) {
        let (to, from) = (&mut self.tokens, &other.tokens);
        to.input = to.input.saturating_add(from.input);
        to.output = to.output.saturating_add(from.output);
        to.cache_read = to.cache_read.saturating_add(from.cache_read);
        to.cache_write = to.cache_write.saturating_add(from.cache_write);
        self.cost = self.cost.map(|cost| cost.saturating_add(other.cost.unwrap_or(0)));
        self.answers += other.answers;
    }
}

/// Money, in millionths of a millionth of a US dollar.
pub type Usd = u64;

/// So many dollars, as a whole number; `None` if it is no amount.
pub fn usd(dollars: f64) -> Option<Usd> {
    (dollars.is_finite() && dollars >= 0.0).then_some((dollars * 1e12).round() as Usd)
}

/// How finely uses are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grain {
    /// Each by itself.
    Answer,
    /// Those of a day together will do.
    Day,
}

/// Who hears of what was used.
pub struct Tell<'a> {
    /// How finely.
    pub grain: Grain,
    /// Hears it.
    pub to: &'a mut dyn FnMut(Spent<'_>),
}

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
    pub absurd: u32,
    #[serde(skip)]
    places: HashMap<Known, usize>,
}

impl Tally {
    /// Takes a record in. One that used nothing is none.
    pub fn take(&mut self, known: Known, model: &str, used: Use, again: Again) {
        let t = used.tokens;
        let counts = [t.input, t.output, t.cache_read, t.cache_write];
        let cost = used.cost;
        if counts == [0; 4] && cost.is_none_or(|c| c == 0) {
            return;
        }
        let at = used.at.unwrap_or(0);
        let (Ok(at), Some(counts)) = (u32::try_from(at), all_u32(counts)) else { return self.refuse() };
        let Some(model) = self.model(model) else { return self.refuse() };
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

    /// A record tells a number that is none, and so cannot be taken in.
    pub fn refuse(&mut self) {
        self.absurd = self.absurd.saturating_add(1);
    }

    /// The models that the records name by number.
    pub fn models(&self) -> Vec<&str> {
        self.models.iter().map(String::as_str).collect()
    }

    /// What its records are known by, and what each used, in their order.
    pub fn records(&self) -> impl Iterator<Item = (Known, Use)> + '_ {
        self.uses.all().map(|entry| (entry.known, entry.told()))
    }

    /// What its records add up to, by day and model, those with a cost of their own apart.
    pub fn sums(&self) -> Vec<Use> {
        let mut sums: Vec<Use> = Vec::new();
        for (_, mut used) in self.records() {
            used.at = used.at.map(|at| at - at.rem_euclid(DAY));
            let same =
                |sum: &&mut Use| (sum.at, sum.model, sum.cost.is_some()) == (used.at, used.model, used.cost.is_some());
            // Days follow each other: it is one of the last, if any.
            match sums.iter_mut().rev().find(same) {
                Some(sum) => sum.join(&used),
                None => sums.push(used),
            }
        }
        sums
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
    cost: Option<Usd>,
}

impl Entry {
    fn told(&self) -> Use {
        let [input, output, cache_read, cache_write] = self.counts.map(u64::from);
        let tokens = Tokens { input, output, cache_read, cache_write };
        let at = (self.at != 0).then_some(i64::from(self.at));
        Use { at, model: usize::from(self.model), tokens, cost: self.cost, answers: 1 }
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
            (cost, rest) = (Some(Usd::from_le_bytes(*usd)), after);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn used(input: u64, output: u64) -> Use {
        Use { at: Some(5), model: 0, tokens: Tokens { input, output, ..Tokens::default() }, cost: None, answers: 1 }
    }

    fn told(tally: &Tally) -> Vec<(u64, u64, Option<Usd>)> {
        tally.uses.all().map(|e| e.told()).map(|u| (u.tokens.input, u.tokens.output, u.cost)).collect()
    }

    #[test]
    fn a_record_that_grows_counts_once() {
        let mut tally = Tally::default();
        tally.take(known_by(&[b"a"]), "m", used(10, 1), Again::Larger);
        tally.take(known_by(&[b"b"]), "m", Use { cost: Some(50), ..used(1, 1) }, Again::Larger);
        tally.take(known_by(&[b"a"]), "m", used(10, 7), Again::Larger);
        tally.take(known_by(&[b"a"]), "m", used(10, 3), Again::Larger);
        tally.take(known_by(&[b"c"]), "m", used(0, 0), Again::Larger);
        assert_eq!(told(&tally), [(10, 7, None), (1, 1, Some(50))]);
        tally.take(known_by(&[b"b"]), "m", Use { cost: Some(20), ..used(2, 0) }, Again::Last);
        assert_eq!(told(&tally)[1], (2, 0, Some(20)));
        // And so after it was kept and taken up again.
        let kept = postcard::to_stdvec(&tally).unwrap();
        let mut again: Tally = postcard::from_bytes(&kept).unwrap();
        again.take(known_by(&[b"a"]), "m", used(10, 9), Again::Larger);
        assert_eq!(told(&again), [(10, 9, None), (2, 0, Some(20))]);
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
}
