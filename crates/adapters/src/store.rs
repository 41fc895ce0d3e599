//! Files of a store, many at once: keys first, then the cache, then the disk.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use lariat_sys::clock;
use lariat_sys::file::{self, Key};

use crate::cache::{Cache, Kept, Known, flat};
use crate::look::{Look, Scope};
use crate::reader::{Fold, Reader, Reading};

/// A file to be read.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Where it is.
    pub path: PathBuf,
    /// Which version of it.
    pub key: Key,
    /// Whether every line is wanted, not only head and tail.
    pub whole: bool,
}

/// How much a listing reads to fill the tokens of ended sessions.
const SMALL: u64 = 1 << 20;
const SPEND: u64 = 8 << 20;

/// Chooses which ended sessions are read whole: small ones, the newest first,
/// until a fixed sum of bytes. The choice depends on the store alone, so a lost
/// cache changes no answer.
pub fn choose_whole<'a>(files: impl Iterator<Item = &'a mut Found>) {
    let mut small: Vec<&mut Found> = files.filter(|f| !f.whole && f.key.size <= SMALL).collect();
    small.sort_by(|a, b| (b.key.mtime, &b.path).cmp(&(a.key.mtime, &a.path)));
    let mut spent = 0;
    for file in small {
        spent += file.key.size;
        if spent > SPEND {
            break;
        }
        file.whole = true;
    }
}

/// Reads files through the cache of that name, on all cores; the answers are in
/// order.
pub fn read_all<F: Fold + Sync>(look: &Look<'_>, cache: &str, files: &[Found]) -> Vec<io::Result<Box<Reading<F>>>> {
    let mut cache = Cache::<F>::load(look.places.cache.as_ref().map(|folder| folder.join(cache)));
    let now = clock::now_ms().saturating_mul(1_000_000);
    let mut readings: Vec<Option<io::Result<Box<Reading<F>>>>> = Vec::with_capacity(files.len());
    let mut newer = vec![false; files.len()];
    let mut missing = Vec::new();
    for (i, file) in files.iter().enumerate() {
        let (known, prior) = match cache.take(&file.key) {
            Known::This(reading, is_newer) if reading.whole || !file.whole => {
                newer[i] = is_newer;
                (Some(Ok(reading)), None)
            }
            Known::This(reading, _) | Known::Earlier(reading) => (None, Some(reading)),
            Known::Nothing => (None, None),
        };
        if known.is_none() {
            missing.push((i, prior));
        }
        readings.push(known);
    }
    if !missing.is_empty() {
        for (i, reading) in read_missing(files, missing, look.steps) {
            (readings[i], newer[i]) = (Some(reading), true);
        }
        let kept = files.iter().zip(&readings).zip(&newer).filter_map(|((file, reading), newer)| {
            let reading = reading.as_ref()?.as_ref().ok()?;
            Some(Kept { key: flat(&file.key), reading, newer: *newer })
        });
        cache.save(kept, look.scope == Scope::All, now);
    }
    readings.into_iter().map(|r| r.unwrap_or_else(|| Err(io::ErrorKind::Other.into()))).collect()
}

type Missing<F> = (usize, Option<Box<Reading<F>>>);
type Read<F> = Vec<(usize, io::Result<Box<Reading<F>>>)>;

/// A file whose key could not be taken is opened with all care, to say why.
fn open(wanted: &Found) -> io::Result<std::fs::File> {
    match wanted.key.inode {
        0 => file::open(&wanted.path).map(|(file, _)| file),
        _ => file::open_again(&wanted.path),
    }
}

fn read_missing<F: Fold>(files: &[Found], missing: Vec<Missing<F>>, steps: &AtomicUsize) -> Read<F> {
    let batches = spread(missing, 16);
    let done = in_parallel(batches, |batch| {
        let mut reader = Reader::<F>::default();
        let read: Read<F> = batch
            .into_iter()
            .map(|(i, prior)| {
                let wanted = &files[i];
                steps.fetch_add(1, Ordering::Relaxed);
                let reading = open(wanted).and_then(|file| reader.read(file, &wanted.key, prior, wanted.whole));
                (i, reading)
            })
            .collect();
        read
    });
    done.into_iter().flatten().collect()
}

/// Cuts items into batches.
pub fn spread<T>(items: Vec<T>, size: usize) -> Vec<Vec<T>> {
    let mut batches = Vec::with_capacity(items.len() / size + 1);
    let mut items = items.into_iter();
    loop {
        let batch: Vec<T> = items.by_ref().take(size).collect();
        if batch.is_empty() {
            return batches;
        }
        batches.push(batch);
    }
}

/// Runs `work` over the items on as many threads as there are cores (at most
/// four), and gives the results in order.
pub fn in_parallel<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    if items.len() < 2 || threads == 1 {
        return items.into_iter().map(work).collect();
    }
    let count = items.len();
    let items: Vec<std::sync::Mutex<Option<T>>> = items.into_iter().map(|i| Some(i).into()).collect();
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = items.get(i) else { return done };
            let item = slot.lock().ok().and_then(|mut slot| slot.take());
            done.extend(item.map(|item| (i, work(item))));
        }
    };
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(count)).map(|_| scope.spawn(run)).collect();
        let mut done = run();
        for other in others {
            match other.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic), // the adapter has failed, and says so
            }
        }
        done
    });
    results.sort_unstable_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, r)| r).collect()
}
