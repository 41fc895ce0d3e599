//! Files that are counted: every byte of them once, and every record once.
//!
//! The same record in two files (a fork begins with copies of its parent's) counts in the file whose
//! path is first. Which records are in two files is found without a table of all of them: two bitmaps
//! mark those that may be, and only these are compared by their whole hash.
//!
//! What a file adds up to is kept ([`crate::sums`]) with whether it shares a record with another. Next
//! time, a file that did not change and shares nothing counts by its sum. One that changed is read from
//! where it ended; the records it did not have before are looked up in a bitmap of all that were ever
//! seen. If one may be there, everything is compared again. So a sum is taken only where no other file
//! can hold a record of that file:
//!
//! - Of two files that did not change, both are marked if they share one.
//! - A record that a changed file had before is its own, or it was marked; one that it had not is in
//!   nobody's, by the bitmap, or in that of another changed file, and these are compared.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use lariat_core::Warning;
use lariat_sys::clock;

use crate::cache::RACY;
use crate::look::Look;
use crate::reader::{Fold, Reader, Reading};
use crate::spent::{Grain, Known, Spent, Tally, Tell, Use};
use crate::store::{self, Folder, Found};
use crate::sums::{self, Bloom, Keep, Page, Sums};

/// A fold that counts.
pub trait Counts: Fold + Sync {
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

/// Makes a warning of what is wrong with a file.
type Warn<'a> = dyn Fn(&Path, String) -> Warning + 'a;
/// Hears of each file which session it says it works for.
type Show<'a> = dyn FnMut(&File, Option<&str>) + 'a;

/// Reads the files and tells what they used; gives what is wrong.
pub fn tell<F: Counts>(
    look: &Look<'_>,
    cache: &str,
    files: Vec<File>,
    warning: &Warn<'_>,
    to: &mut Tell<'_>,
) -> Vec<Warning> {
    tell_of::<F>(look, cache, files, warning, &mut |_, _| (), to)
}

/// The same, with all files shown before anything is told.
pub fn tell_of<F: Counts>(
    look: &Look<'_>,
    cache: &str,
    files: Vec<File>,
    warning: &Warn<'_>,
    show: &mut Show<'_>,
    to: &mut Tell<'_>,
) -> Vec<Warning> {
    let path = look.places.cache.as_ref().map(|folder| folder.join(cache));
    let now = clock::now_ms().saturating_mul(1_000_000);
    count::<F>(path, now, look.steps, files, warning, show, to)
}

/// Reads the files of one session alone and tells each record of theirs; gives what is wrong. What was kept is
/// read on from, and nothing is kept of it: the sums are those of all files.
pub fn tell_only<F: Counts>(
    look: &Look<'_>,
    cache: &str,
    session: &str,
    mut files: Vec<File>,
    warning: &Warn<'_>,
    to: &mut Tell<'_>,
) -> Vec<Warning> {
    // A name may hold only the beginning of the id: then the file itself tells the rest.
    files.retain(|file| !file.session.is_empty() && session.starts_with(&file.session));
    files.iter_mut().for_each(|file| file.found.whole = true);
    let kept = look.places.cache.as_ref().and_then(|folder| Sums::load(&folder.join(cache)));
    let (parts, read, warnings) = (Vec::new(), Vec::new(), Vec::new());
    let mut count = Count { files, path: None, kept: kept.as_ref(), parts, read, warnings, now: 0 };
    count.sort_out();
    let grain = to.grain;
    let mut own = |spent: Spent<'_>| {
        if spent.session == session {
            (to.to)(spent);
        }
    };
    count.tell_all::<F>(look.steps, warning, &mut |_, _| (), &mut Tell { grain, to: &mut own });
    count.warnings
}

fn count<F: Counts>(
    path: Option<PathBuf>,
    now: i64,
    steps: &AtomicUsize,
    mut files: Vec<File>,
    warning: &Warn<'_>,
    show: &mut Show<'_>,
    to: &mut Tell<'_>,
) -> Vec<Warning> {
    files.iter_mut().for_each(|file| file.found.whole = true);
    let kept = path.as_deref().and_then(Sums::load);
    let (parts, read, warnings) = (Vec::new(), Vec::new(), Vec::new());
    let mut count = Count { files, path, kept: kept.as_ref(), parts, read, warnings, now };
    count.sort_out();
    let changed = count.read_changed::<F>(steps);
    let summed = to.grain == Grain::Day && count.are_apart(&changed);
    if !summed || !count.tell_sums::<F>(warning, show, to) {
        count.tell_all::<F>(steps, warning, show, to);
    }
    count.warnings
}

/// What is known of a file.
enum Part {
    /// It did not change: its page.
    Kept(usize),
    /// It did not change, and may share records, or has two names: its page, and its reading is wanted.
    Shared(usize),
    /// It is new or changed: its page of before.
    Changed(Option<usize>),
    /// It did not change: where its reading was put, and its page.
    Loaded { batch: usize, from: usize, to: usize, page: usize },
    /// It was read now: where that is, its page of before, and what it did not have before.
    Read { batch: usize, from: usize, to: usize, before: Option<usize>, new: Vec<Known> },
    /// It could not be read.
    Failed(io::Error),
}

struct Count<'a> {
    files: Vec<File>,
    path: Option<PathBuf>,
    kept: Option<&'a Sums>,
    parts: Vec<Part>,
    /// Readings as they are kept, of some files each.
    read: Vec<Vec<u8>>,
    warnings: Vec<Warning>,
    now: i64,
}

/// What shall be kept of a file: which it is, whether it shares records, its page, and the number of that
/// page if it is kept already.
type Kept<'a> = (usize, bool, Cow<'a, [u8]>, Option<usize>);

/// What is known of a file.
enum Told<'a, F> {
    /// Its sums.
    Page(Page<'a>),
    /// Its records, which no other file has.
    Alone(Box<Reading<F>>),
    /// Its records, which others may have.
    Shared(Box<Reading<F>>),
    /// It could not be read.
    Nothing,
}

impl<F: Counts> Told<'_, F> {
    /// Its session, directory and models.
    fn parts(&self) -> (Option<&str>, Option<&str>, Vec<&str>) {
        match self {
            Told::Page(page) => (page.session, page.dir, page.models.clone()),
            Told::Alone(reading) | Told::Shared(reading) => {
                let tally = reading.fold.tally();
                (tally.session.as_deref(), tally.dir.as_deref(), tally.models())
            }
            Told::Nothing => (None, None, Vec::new()),
        }
    }
}

impl<'a> Count<'a> {
    fn sort_out(&mut self) {
        let Some(kept) = self.kept else {
            self.parts = self.files.iter().map(|_| Part::Changed(None)).collect();
            return;
        };
        let pages: Vec<Option<usize>> = self.files.iter().map(|file| kept.find(&file.found.key)).collect();
        let mut names = vec![0u8; kept.len()];
        pages.iter().flatten().for_each(|page| names[*page] = names[*page].saturating_add(1));
        let parts = self.files.iter().zip(pages).map(|(file, page)| {
            let Some(page) = page else { return Part::Changed(None) };
            let (entry, alone) = (kept.entry(page), names[page] == 1);
            match entry.key == file.found.key {
                true if alone && !entry.shares => Part::Kept(page),
                true => Part::Shared(page),
                // Of two names of one file, neither has its records for itself.
                false => Part::Changed(Some(page).filter(|_| alone)),
            }
        });
        self.parts = parts.collect();
    }

    /// Reads what changed, on all cores; which these are.
    fn read_changed<F: Counts>(&mut self, steps: &AtomicUsize) -> Vec<usize> {
        let changed = self.parts.iter().enumerate();
        let mut changed: Vec<(usize, Option<usize>)> = changed
            .filter_map(|(i, part)| if let Part::Changed(page) = part { Some((i, *page)) } else { None })
            .collect();
        // In the order in which they lie on disk: those of a folder mostly follow each other.
        changed.sort_unstable_by_key(|(i, _)| self.files[*i].found.key.inode);
        let (files, kept) = (&self.files, self.kept);
        let batches: Vec<&[_]> = changed.chunks(32).collect();
        let own = || (Reader::<F>::default(), Folder::default());
        let read = store::in_parallel_with(batches, own, |(reader, folder), batch| {
            let mut bytes = Vec::with_capacity(batch.len() * 512);
            let parts = batch.iter().enumerate().map(|(at, (i, before))| {
                steps.fetch_add(1, Ordering::Relaxed);
                let (from, wanted) = (bytes.len(), &files[*i].found);
                let next = batch.get(at + 1).map(|(i, _)| &files[*i].found);
                let prior: Option<Box<Reading<F>>> =
                    before.zip(kept).and_then(|(page, kept)| postcard::from_bytes(&kept.reading(page)?).ok());
                let had: Option<HashSet<Known>> =
                    prior.as_ref().map(|p| p.fold.tally().records().map(|(known, _)| known).collect());
                let read = folder.open(wanted, next);
                let read = read.and_then(|f| store::read_one(reader, f, wanted, prior)).and_then(|reading| {
                    bytes = postcard::to_extend(&reading, std::mem::take(&mut bytes)).map_err(io::Error::other)?;
                    Ok(reading)
                });
                let part = match read {
                    Ok(reading) => {
                        let had = had.unwrap_or_default();
                        let all = reading.fold.tally().records().map(|(known, _)| known);
                        // Without sums nobody asks what is new.
                        let new = all.filter(|known| kept.is_some() && !had.contains(known)).collect();
                        Part::Read { batch: 0, from, to: bytes.len(), before: *before, new }
                    }
                    Err(e) => Part::Failed(e),
                };
                (*i, part)
            });
            let parts: Vec<(usize, Part)> = parts.collect();
            bytes.shrink_to_fit(); // it stays until all is told
            (bytes, parts)
        });
        for (bytes, parts) in read {
            for (i, mut part) in parts {
                if let Part::Read { batch, .. } = &mut part {
                    *batch = self.read.len();
                }
                self.parts[i] = part;
            }
            self.read.push(bytes);
        }
        changed.into_iter().map(|(i, _)| i).collect()
    }

    /// Whether none of these files has a record by now that may be in another file, too.
    fn are_apart(&self, changed: &[usize]) -> bool {
        // What is too full is made anew, where all is compared.
        let Some(kept) = self.kept.filter(|kept| changed.is_empty() || !kept.is_full()) else { return false };
        let mut seen = HashSet::new();
        let new =
            changed.iter().filter_map(|i| if let Part::Read { new, .. } = &self.parts[*i] { Some(new) } else { None });
        new.flatten().all(|known| !kept.may_have(known) && seen.insert(known))
    }

    /// It may change again within the same time stamp, or nobody knows which file it is.
    fn is_racy(&self, i: usize) -> bool {
        let key = &self.files[i].found.key;
        key.inode == 0 || self.now.saturating_sub(key.ctime) <= RACY
    }

    /// What was read of a file, now or before.
    fn reading<F: Counts>(&self, i: usize) -> Option<Box<Reading<F>>> {
        match &self.parts[i] {
            Part::Read { batch, from, to, .. } | Part::Loaded { batch, from, to, .. } => {
                postcard::from_bytes(self.read[*batch].get(*from..*to)?).ok()
            }
            Part::Kept(page) | Part::Shared(page) => postcard::from_bytes(&self.kept?.reading(*page)?).ok(),
            Part::Changed(_) | Part::Failed(_) => None,
        }
    }

    fn warn(&mut self, i: usize, problem: Option<String>, warning: &Warn<'_>) {
        let problem = match &self.parts[i] {
            // What has no inode was told of when it was found.
            Part::Failed(e) => Some(e.to_string()).filter(|_| self.files[i].found.key.inode != 0),
            _ => problem,
        };
        self.warnings.extend(problem.map(|why| warning(&self.files[i].found.path, why)));
    }

    /// Tells by the sums, and of those that share records each record; `false` if something that was kept
    /// is not to be had, and nothing was told.
    fn tell_sums<F: Counts>(&mut self, warning: &Warn<'_>, show: &mut Show<'_>, to: &mut Tell<'_>) -> bool {
        let Some(known) = self.known::<F>() else { return false };
        // First who works for whom, then what was used.
        for (i, known) in known.iter().enumerate() {
            let problem = match known {
                Told::Page(page) => page.problem.map(str::to_owned),
                Told::Alone(reading) | Told::Shared(reading) => problem_of(reading),
                Told::Nothing => None,
            };
            show(&self.files[i], known.parts().0);
            self.warn(i, problem, warning);
        }
        let this = &*self;
        let is_new = |(i, part)| matches!(part, &Part::Read { .. }) && !this.is_racy(i);
        thread::scope(|scope| {
            if this.parts.iter().enumerate().any(is_new) {
                // Beside the telling: both go through everything. What cannot be kept is read again next time.
                let _ = thread::Builder::new().spawn_scoped(scope, || this.save_sums::<F>(&known));
            }
            this.tell_known(&known, to);
        });
        true
    }

    fn tell_known<F: Counts>(&self, known: &[Told<'_, F>], to: &mut Tell<'_>) {
        let mut apart = Vec::new();
        let mut uses: Vec<Use> = Vec::new();
        for (i, known) in known.iter().enumerate() {
            uses.clear();
            match known {
                Told::Page(page) => uses.extend(page.uses()),
                Told::Alone(reading) => uses.extend(reading.fold.tally().sums()),
                Told::Shared(_) => apart.push(i),
                Told::Nothing => {}
            }
            tell_one(&self.files[i], known, &uses, to);
        }
        self.in_order(&mut apart);
        let mut seen = HashSet::new();
        for i in apart {
            let Told::Shared(reading) = &known[i] else { continue };
            uses.clear();
            let records = reading.fold.tally().records();
            uses.extend(records.filter(|(known, _)| seen.insert(*known)).map(|(_, used)| used));
            tell_one(&self.files[i], &known[i], &uses, to);
        }
    }

    /// What is known of each file; `None` if some of what was kept is damaged.
    fn known<F: Counts>(&self) -> Option<Vec<Told<'a, F>>> {
        let kept = self.kept?;
        let known = (0..self.files.len()).map(|i| match &self.parts[i] {
            Part::Kept(page) => kept.page(*page).map(Told::Page),
            Part::Read { before, .. } if !before.is_some_and(|page| kept.entry(page).shares) => {
                self.reading(i).map(Told::Alone)
            }
            Part::Shared(_) | Part::Loaded { .. } | Part::Read { .. } => self.reading(i).map(Told::Shared),
            Part::Changed(_) | Part::Failed(_) => Some(Told::Nothing),
        });
        known.collect()
    }

    fn save_sums<F: Counts>(&self, known: &[Told<'_, F>]) {
        let Some(kept) = self.kept else { return };
        let mut records = kept.records();
        for (i, part) in self.parts.iter().enumerate() {
            if let (Part::Read { new, .. }, false) = (part, self.is_racy(i)) {
                new.iter().for_each(|known| records.put(known));
            }
        }
        let mut pages = Vec::with_capacity(self.files.len());
        for (i, known) in known.iter().enumerate() {
            let (before, stays) = match &self.parts[i] {
                Part::Kept(page) | Part::Shared(page) | Part::Loaded { page, .. } => (Some(*page), true),
                // What may change again stays as it was before.
                Part::Read { before, .. } => (*before, self.is_racy(i)),
                Part::Changed(_) | Part::Failed(_) => continue,
            };
            let shares = before.is_some_and(|page| kept.entry(page).shares);
            let page = match (before, known) {
                (Some(page), _) if stays => kept.page_bytes(page).map(Cow::Borrowed),
                (_, Told::Alone(reading) | Told::Shared(reading)) if !stays => {
                    Some(Cow::Owned(page_of(reading, Vec::new())))
                }
                _ => None,
            };
            pages.extend(page.filter(|page| !page.is_empty()).map(|page| (i, shares, page, before.filter(|_| stays))));
        }
        self.save(&pages, &records);
    }

    fn in_order(&self, numbers: &mut [usize]) {
        numbers.sort_unstable_by_key(|i| self.files[*i].found.path.as_os_str());
    }

    fn save(&self, pages: &[Kept<'_>], records: &Bloom) {
        let Some(path) = &self.path else { return };
        let keep = pages.iter().filter_map(|(i, shares, page, before)| {
            let before = before.zip(self.kept).map(|(page, kept)| kept.entry(page));
            let reading = match (&before, &self.parts[*i]) {
                (Some(entry), _) => Ok(entry.reading),
                (None, Part::Read { batch, from, to, .. }) => Err(self.read[*batch].get(*from..*to)?),
                _ => return None,
            };
            let key = before.map_or(self.files[*i].found.key, |entry| entry.key);
            Some(Keep { key, shares: *shares, page, reading })
        });
        sums::save(path, self.kept, keep.collect(), records);
    }

    /// Tells record by record, and finds anew which are in two files.
    fn tell_all<F: Counts>(&mut self, steps: &AtomicUsize, warning: &Warn<'_>, show: &mut Show<'_>, to: &mut Tell<'_>) {
        self.load::<F>();
        self.read_changed::<F>(steps);
        let mut order: Vec<usize> = (0..self.files.len()).collect();
        self.in_order(&mut order);
        let mut twice = Twice::for_bytes(self.files.iter().map(|f| f.found.key.size).sum());
        let mut count = 0;
        for i in &order {
            let reading = self.reading::<F>(*i);
            let tally = reading.as_ref().map(|r| r.fold.tally());
            show(&self.files[*i], tally.and_then(|t| t.session.as_deref()));
            for (known, _) in tally.into_iter().flat_map(Tally::records) {
                twice.mark(&known);
                count += 1;
            }
            self.warn(*i, reading.as_ref().and_then(|r| problem_of(r)), warning);
        }
        let keeps = self.path.is_some() && self.parts.iter().any(|part| matches!(part, Part::Read { .. }));
        let mut records = Bloom::for_records(if keeps { count } else { 0 });
        let mut pages: Vec<(usize, usize, usize)> = Vec::new();
        let mut bytes = Vec::new();
        let mut shares = vec![false; self.files.len()];
        let mut uses = Vec::new();
        for i in order {
            let Some(reading) = self.reading::<F>(i) else { continue };
            let (tally, racy) = (reading.fold.tally(), self.is_racy(i));
            uses.clear();
            for (known, used) in tally.records() {
                match twice.first(&known, i) {
                    None => uses.push(used),
                    Some(other) => {
                        shares[i] = true;
                        shares[other] = true;
                    }
                }
                if keeps && !racy {
                    records.put(&known);
                }
            }
            if keeps && !racy {
                let from = bytes.len();
                bytes = page_of(&reading, bytes);
                pages.push((i, from, bytes.len()));
            }
            tell_one(&self.files[i], &Told::Shared(reading), &uses, to);
        }
        if keeps {
            drop(twice); // writing takes some memory, too
            let pages = pages.into_iter().filter(|(_, from, to)| from < to).map(|(i, from, to)| {
                let before = if let Part::Loaded { page, .. } = &self.parts[i] { Some(*page) } else { None };
                (i, shares[i], Cow::Borrowed(&bytes[from..to]), before)
            });
            self.save(&pages.collect::<Vec<_>>(), &records);
        }
    }

    /// Loads the readings that were kept. What is not there after all counts as changed.
    fn load<F: Counts>(&mut self) {
        let Some(kept) = self.kept else { return };
        let mut bytes = Vec::new();
        for part in &mut self.parts {
            let (Part::Kept(page) | Part::Shared(page)) = part else { continue };
            let (page, from) = (*page, bytes.len());
            let reading = kept.reading(page).filter(|r| postcard::from_bytes::<Box<Reading<F>>>(r).is_ok());
            *part = match reading {
                None => Part::Changed(None),
                Some(reading) => {
                    bytes.extend_from_slice(&reading);
                    Part::Loaded { batch: self.read.len(), from, to: bytes.len(), page }
                }
            };
        }
        self.read.push(bytes);
    }
}

fn tell_one<F: Counts>(file: &File, known: &Told<'_, F>, uses: &[Use], to: &mut Tell<'_>) {
    if !uses.is_empty() {
        let (session, dir, models) = known.parts();
        let (session, dir) = (session.unwrap_or(&file.session), dir.or(file.dir.as_deref()));
        (to.to)(Spent { session, dir, models: &models, uses });
    }
}

/// Puts a reading's page behind these bytes; nothing if it cannot be.
fn page_of<F: Counts>(reading: &Reading<F>, mut bytes: Vec<u8>) -> Vec<u8> {
    let (tally, problem) = (reading.fold.tally(), problem_of(reading));
    let (session, dir) = (tally.session.as_deref(), tally.dir.as_deref());
    let page = Page::of(session, dir, tally.models(), &tally.sums(), problem.as_deref());
    bytes.extend(postcard::to_stdvec(&page).unwrap_or_default());
    bytes
}

/// What is wrong with a file, by its reading.
fn problem_of<F: Counts>(reading: &Reading<F>) -> Option<String> {
    let absurd = reading.fold.tally().absurd;
    let told = format!("{absurd} records hold numbers that cannot be true; not counted");
    let problem = reading.complaint().or(Some(told).filter(|_| absurd > 0));
    problem.or((!reading.whole).then(|| "too large to be read whole: counted in part".to_owned()))
}

/// Tells which records were there before. All are marked first, then each is asked about, in order.
struct Twice {
    once: Vec<u64>,
    again: Vec<u64>,
    seen: HashMap<Known, u32>,
}

impl Twice {
    /// For as many records as so many bytes of a store may hold.
    fn for_bytes(bytes: u64) -> Twice {
        // A record takes some 10 KB of a store; a bit in eight is set then. More only take longer.
        let bits = (bytes / 1024).next_power_of_two().clamp(1 << 16, 1 << 26) as usize;
        Twice { once: vec![0; bits / 64], again: vec![0; bits / 64], seen: HashMap::new() }
    }

    fn place(&self, known: &Known) -> (usize, u64) {
        let [a, b, c, d, ..] = *known;
        let bit = u32::from_le_bytes([a, b, c, d]) as usize % (self.once.len() * 64);
        (bit / 64, 1 << (bit % 64))
    }

    /// There is such a record.
    fn mark(&mut self, known: &Known) {
        let (word, bit) = self.place(known);
        self.again[word] |= self.once[word] & bit;
        self.once[word] |= bit;
    }

    /// `None` if this is the first record of that name, else the file that has the first.
    fn first(&mut self, known: &Known, file: usize) -> Option<usize> {
        let (word, bit) = self.place(known);
        if self.again[word] & bit == 0 {
            return None;
        }
        match self.seen.entry(*known) {
            Entry::Vacant(place) => {
                place.insert(file as u32); // nobody has billions of files
                None
            }
            Entry::Occupied(first) => Some(*first.get() as usize),
        }
    }
}

#[cfg(test)]
#[path = "counting_tests.rs"]
mod tests;
