//! Files of a store, many at once: keys first, then the cache, then the disk.

use std::collections::{BinaryHeap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use lariat_sys::file::{self, Directory, Key};
use memchr::memrchr;

use crate::cache::{self, Cache, Kept};
use crate::look::{Look, Scope};
use crate::reader::{Fold, Reader, Reading, is_document};

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
const SPEND: u64 = 4 << 20;

/// Chooses which ended sessions are read whole: small ones, the newest first,
/// until a fixed sum of bytes. The choice depends on the store alone, so a lost
/// cache changes no answer.
pub fn choose_whole<'a>(files: impl Iterator<Item = &'a mut Found>) {
    let small = files.filter(|f| !f.whole && f.key.size <= SMALL);
    // Few of very many are chosen: a heap gives those without sorting the rest.
    let mut newest: BinaryHeap<(i64, &Path, u64, &mut bool)> =
        small.map(|f| (f.key.mtime, f.path.as_path(), f.key.size, &mut f.whole)).collect();
    let mut left = SPEND;
    while let Some((_, _, size, whole)) = newest.pop() {
        let Some(less) = left.checked_sub(size) else { break };
        (left, *whole) = (less, true);
    }
}

/// What files hold, as they were read now or before.
pub struct Readings<F> {
    cache: Loading,
    places: Vec<Place>,
    fold: std::marker::PhantomData<fn() -> F>,
}

/// Where a reading is.
enum Place {
    /// There is one.
    Known(Known),
    /// The file could not be read.
    Failed(io::Error),
}

/// What is known of a file as it is now.
#[derive(Debug)]
pub struct Known {
    /// Whether every line was folded.
    pub whole: bool,
    lies: Lies,
}

/// Where that lies.
#[derive(Debug)]
enum Lies {
    /// In the cache.
    Kept(cache::Place),
    /// It was read now, and is to be kept as this.
    Fresh(Box<[u8]>),
}

/// A thread's own means of reading, and of keeping what was read.
struct Own<F: Fold> {
    reader: Reader<F>,
    scratch: Vec<u8>,
}

impl<F: Fold> Own<F> {
    fn new() -> Own<F> {
        Own { reader: Reader::default(), scratch: Vec::new() }
    }

    fn keep(&mut self, reading: &Reading<F>) -> io::Result<Known> {
        self.scratch.clear();
        self.scratch = postcard::to_extend(reading, std::mem::take(&mut self.scratch)).map_err(io::Error::other)?;
        Ok(Known { lies: Lies::Fresh(self.scratch.as_slice().into()), whole: reading.whole })
    }
}

/// How many files of a folder one thread finds; of more, others find a part.
const SHARE: usize = 256;

/// Does something with a folder's items, in this thread with what it has for that; if there are many, in several.
pub fn shared<T: Sync, S, R: Send>(
    own: &mut S,
    other: &(impl Fn() -> S + Sync),
    items: &[T],
    work: impl Fn(&mut S, &[T]) -> R + Sync,
) -> Vec<R> {
    match items.len() <= SHARE {
        true => vec![work(own, items)],
        false => in_parallel_with(items.chunks(SHARE).collect(), other, work),
    }
}

/// Finds the files of a store, in one thread, and tells at once what is known of them. Where there is no cache, a file
/// is read as it is found: to walk to it a second time costs what is to be gained by waiting.
pub struct Finder<'a, F: Fold> {
    cache: Option<&'a Loading>,
    own: Option<Own<F>>,
}

impl<F: Fold> Default for Finder<'_, F> {
    /// Only looks.
    fn default() -> Self {
        Finder { cache: None, own: None }
    }
}

impl<'a, F: Fold> Finder<'a, F> {
    /// Knows what this cache knows.
    pub fn beside(cache: &'a Loading) -> Finder<'a, F> {
        Finder { cache: Some(cache), own: (!cache.0.is_there).then(Own::new) }
    }

    /// Tells the key of a file in a directory, and what is known of it. Whatever fails here is tried
    /// again by whoever reads it, and told then.
    pub fn find(&mut self, dir: &Directory, name: &str, whole: bool) -> io::Result<(Key, Option<Early<F>>)> {
        let Some(own) = &mut self.own else {
            let key = dir.key(name)?;
            let known = self.cache.and_then(|cache| cache.get().known(&key, whole));
            return Ok((key, known.map(|known| Early { known, reading: None })));
        };
        let mut read = || {
            let (file, key) = dir.open_file(name)?;
            let reading = own.reader.read(file, &key, None, whole)?;
            let known = own.keep(&reading)?;
            io::Result::Ok((key, Some(Early { known, reading: Some(reading) })))
        };
        read().or_else(|_| Ok((dir.key(name)?, None)))
    }

    /// What a file holds of which that is known, unless the cache cannot tell after all.
    pub fn reading(&self, known: &Known) -> Option<Box<Reading<F>>> {
        decoded(known.bytes(self.cache?.get())?)
    }
}

/// What is known of a file as it is found.
pub struct Early<F> {
    /// Where it lies.
    pub known: Known,
    /// The same, if it was read now.
    pub reading: Option<Box<Reading<F>>>,
}

impl Known {
    fn bytes<'a>(&'a self, cache: &'a Cache) -> Option<&'a [u8]> {
        match &self.lies {
            Lies::Kept(place) => cache.get(*place).map(|kept| kept.bytes),
            Lies::Fresh(bytes) => Some(bytes),
        }
    }
}

impl Cache {
    /// What is kept of this very version of a file, if it is all that is wanted.
    fn known(&self, key: &Key, whole: bool) -> Option<Known> {
        let place = self.find(key)?;
        let kept = self.get(place).filter(|kept| kept.key == *key && (kept.whole || !whole))?;
        Some(Known { whole: kept.whole, lies: Lies::Kept(place) })
    }
}

fn decoded<F: Fold>(bytes: &[u8]) -> Option<Box<Reading<F>>> {
    postcard::from_bytes(bytes).ok()
}

/// A cache that is loaded by the first one who needs it, or while the store's directories are listed.
#[derive(Clone)]
pub struct Loading(Arc<Shelf>);

struct Shelf {
    path: Option<PathBuf>,
    is_there: bool,
    cache: OnceLock<Cache>,
}

impl Loading {
    /// Begins to load the cache of that name, if there is one.
    pub fn begin(look: &Look<'_>, cache: &str) -> Loading {
        let loading = Loading::later(look, cache);
        // Of those that live few are asked about.
        if loading.0.is_there && look.scope == Scope::All {
            let begun = loading.clone();
            // Where no thread can be had, whoever needs it loads it.
            drop(std::thread::Builder::new().spawn(move || _ = begun.get()));
        }
        loading
    }

    /// The cache of that name, loaded when it is needed.
    pub fn later(look: &Look<'_>, cache: &str) -> Loading {
        let path = look.places.cache.as_ref().map(|folder| folder.join(cache));
        let is_there = path.as_ref().is_some_and(|path| path.exists());
        Loading(Arc::new(Shelf { path, is_there, cache: OnceLock::new() }))
    }

    fn get(&self) -> &Cache {
        self.0.cache.get_or_init(|| Cache::load(self.0.path.clone()))
    }
}

/// What files hold, of which the cache does not know all yet.
pub struct Unsaved<F> {
    readings: Arc<Readings<F>>,
    /// What the cache is to be told: the files' keys, and whether they are all files there are.
    keys: Option<(Vec<Key>, bool)>,
    now: i64,
}

/// Readings that are being written down: whoever drops this waits for it.
#[derive(Debug, Default)]
pub struct Saving(Option<std::thread::JoinHandle<()>>);

impl Drop for Saving {
    fn drop(&mut self) {
        let _ = self.0.take().map(std::thread::JoinHandle::join); // a cache that is not written is no loss
    }
}

impl<F: Fold + 'static> Unsaved<F> {
    /// Does something with the readings while they are written down: nobody waits for that.
    pub fn while_saving<R>(self, work: impl FnOnce(&Readings<F>) -> R) -> (R, Saving) {
        let Unsaved { readings, keys, now } = self;
        let saving = keys.and_then(|(keys, all)| {
            let readings = Arc::clone(&readings);
            std::thread::Builder::new().spawn(move || readings.save(&keys, all, now)).ok()
        });
        (work(&readings), Saving(saving))
    }
}

/// Reads files through a cache, on all cores, but for those of which enough was known as they were found.
pub fn read<F: Fold>(look: &Look<'_>, cache: Loading, files: Vec<(&Found, Option<Known>)>) -> Unsaved<F> {
    let now = look.now.0.saturating_mul(1_000_000); // before anything was read
    let (mut missing, mut is_new) = (Vec::new(), false);
    let mut found = Vec::with_capacity(files.len());
    let mut places = Vec::with_capacity(files.len());
    for (i, (file, early)) in files.into_iter().enumerate() {
        let early = early.filter(|known| known.whole || !file.whole);
        places.push(match early.or_else(|| cache.get().known(&file.key, file.whole)) {
            Some(known) => {
                is_new |= matches!(known.lies, Lies::Fresh(_));
                Place::Known(known)
            }
            None => {
                missing.push((i, file, cache.get().find(&file.key)));
                Place::Failed(io::ErrorKind::Other.into()) // until it is read
            }
        });
        found.push(file);
    }
    let mut readings = Readings { cache, places, fold: std::marker::PhantomData };
    let is_new = is_new || !missing.is_empty();
    readings.read_missing(look, missing);
    let keys = is_new.then(|| (found.iter().map(|file| file.key).collect(), look.scope == Scope::All));
    Unsaved { readings: Arc::new(readings), keys, now }
}

/// Reads files through the cache of that name, on all cores; the answers are in
/// order.
pub fn read_all<F: Fold + 'static>(look: &Look<'_>, cache: &str, files: &[Found]) -> Vec<io::Result<Box<Reading<F>>>> {
    let read = read(look, Loading::later(look, cache), files.iter().map(|file| (file, None)).collect());
    read.while_saving(|readings| files.iter().enumerate().map(|(i, file)| readings.get(i, file)).collect()).0
}

impl<F: Fold> Readings<F> {
    /// What was read of a file, by its number among those asked for.
    pub fn get(&self, i: usize, file: &Found) -> io::Result<Box<Reading<F>>> {
        let known = match &self.places[i] {
            Place::Failed(e) => return Err(io::Error::new(e.kind(), e.to_string())),
            Place::Known(known) => known.bytes(self.cache.get()),
        };
        // What the cache cannot tell after all is read.
        let known = known.and_then(decoded).map(Ok);
        known.unwrap_or_else(|| read_one(&mut Reader::default(), open(file)?, file, None))
    }

    /// What could not be read of files, the first of which has this number.
    pub fn complaints<'a>(&self, first: usize, files: &'a [Found]) -> Vec<(&'a Path, String)> {
        let numbered = files.iter().zip(first..);
        numbered.filter_map(|(file, i)| Some((file.path.as_path(), complaint(file, &self.get(i, file))?))).collect()
    }

    fn read_missing(&mut self, look: &Look<'_>, missing: Vec<(usize, &Found, Option<cache::Place>)>) {
        if missing.is_empty() {
            return;
        }
        let cache = self.cache.get();
        let earlier = |place: cache::Place| decoded(cache.get(place)?.bytes);
        // In the order in which they lie on disk: those of a folder mostly follow each other.
        let mut missing = missing;
        missing.sort_unstable_by_key(|(_, file, _)| file.key.inode);
        let batches: Vec<&[_]> = missing.chunks(batch(missing.len(), 32)).collect();
        let own = || (Own::<F>::new(), Folder::default());
        let read = in_parallel_with(batches, own, |(own, folder), batch| {
            let places = batch.iter().enumerate().map(|(at, (i, wanted, place))| {
                look.steps.fetch_add(1, Ordering::Relaxed);
                let next = batch.get(at + 1).map(|(_, next, _)| *next);
                let read = folder.open(wanted, next);
                let read = read.and_then(|f| read_one(&mut own.reader, f, wanted, place.and_then(earlier)));
                let kept = read.and_then(|reading| own.keep(&reading));
                (*i, kept.map_or_else(Place::Failed, Place::Known))
            });
            places.collect::<Vec<_>>()
        });
        for (i, place) in read.into_iter().flatten() {
            self.places[i] = place;
        }
    }

    /// What nobody asked for this time is kept too, unless all was asked for: then
    /// it is of files that are gone.
    fn save(&self, keys: &[Key], all: bool, now: i64) {
        let cache = self.cache.get();
        let asked = keys.iter().zip(&self.places).filter_map(|(key, place)| match place {
            Place::Known(Known { lies: Lies::Kept(place), .. }) => cache.get(*place),
            Place::Known(Known { lies: Lies::Fresh(bytes), whole }) => {
                Some(Kept { key: *key, whole: *whole, bytes, newer: true })
            }
            Place::Failed(_) => None,
        });
        let mut kept: Vec<Kept<'_>> = asked.collect();
        if !all {
            let asked: HashSet<(u64, u64)> = keys.iter().map(|key| (key.device, key.inode)).collect();
            kept.extend(cache.all().filter(|k| !asked.contains(&(k.key.device, k.key.inode))));
        }
        cache.save(kept, now);
    }
}

/// What could not be read of a file, unless it was warned of when it was found.
pub fn complaint<F>(file: &Found, read: &Result<Box<Reading<F>>, impl ToString>) -> Option<String> {
    match read {
        Ok(reading) => reading.complaint(),
        Err(e) => Some(e.to_string()).filter(|_| file.key.inode != 0),
    }
}

/// Puts first, of copies of one file, the one that tells of the latest: a file's own time may be that of its copying. Where
/// one of them cannot be read, the one that was written last.
pub fn latest_first<S, F: Fold>(
    finder: &Finder<'_, F>,
    copies: &mut [S],
    of: impl Fn(&S) -> (&Found, Option<&Known>),
    last: impl Fn(&F) -> Option<i64>,
) {
    let told = |s: &S| {
        let (file, known) = of(s);
        let kept = known.and_then(|known| finder.reading(known));
        let read = kept.map_or_else(|| read_one(&mut Reader::default(), open(file)?, file, None), Ok);
        let read = read.ok().filter(|reading| reading.unread.is_none())?;
        Some(last(&read.fold).unwrap_or(i64::MIN))
    };
    let told: Option<Vec<i64>> = copies.iter().map(told).collect();
    let first = (0..copies.len()).max_by_key(|&i| {
        let Key { size, mtime, .. } = of(&copies[i]).0.key;
        match &told {
            Some(told) => (told[i], size, mtime),
            None => (mtime, size, 0),
        }
    });
    if let Some(first) = first {
        copies.swap(0, first);
    }
}

/// Reads a file whole, whatever was asked for, and keeps nothing of it.
pub fn read_whole<F: Fold>(file: &Found) -> io::Result<Box<Reading<F>>> {
    read_one(&mut Reader::default(), open(file)?, &Found { whole: true, ..file.clone() }, None)
}

/// A file whose key could not be taken is opened with all care, to say why.
fn open(wanted: &Found) -> io::Result<std::fs::File> {
    match wanted.key.inode {
        0 => file::open(&wanted.path).map(|(file, _)| file),
        _ => file::open_again(&wanted.path),
    }
}

/// Reads an open file: as lines, or as the one document that it is.
pub(crate) fn read_one<F: Fold>(
    reader: &mut Reader<F>,
    file: std::fs::File,
    wanted: &Found,
    prior: Option<Box<Reading<F>>>,
) -> io::Result<Box<Reading<F>>> {
    reader.begins = F::begin(&wanted.path);
    match is_document(&wanted.path) {
        true => reader.read_document(file, &wanted.key),
        false => reader.read(file, &wanted.key, prior, wanted.whole),
    }
}

/// The folder that a thread is at: its files are opened without walking to it again.
#[derive(Default)]
pub(crate) struct Folder(Option<(PathBuf, Directory)>);

impl Folder {
    /// Opens a file; `next` is the one that will be wanted after it.
    pub(crate) fn open(&mut self, wanted: &Found, next: Option<&Found>) -> io::Result<std::fs::File> {
        let Some((folder, name)) = split(&wanted.path).filter(|_| wanted.key.inode != 0) else { return open(wanted) };
        if self.0.as_ref().is_none_or(|(path, _)| path.as_os_str() != folder.as_os_str()) {
            if next.and_then(|n| split(&n.path)).is_none_or(|(path, _)| path.as_os_str() != folder.as_os_str()) {
                return open(wanted);
            }
            self.0 = Directory::open(folder).ok().map(|opened| (folder.into(), opened));
        }
        match &self.0 {
            Some((_, opened)) => opened.open_again(name),
            None => open(wanted),
        }
    }
}

/// The path of a file in a folder, which takes no more room than it needs: there may be very many.
pub fn path(folder: &Path, name: &str) -> PathBuf {
    let mut path = PathBuf::with_capacity(folder.as_os_str().len() + 1 + name.len());
    path.push(folder);
    path.push(name);
    path
}

/// A path's folder and name.
fn split(path: &Path) -> Option<(&Path, &Path)> {
    // Cheaper than by components, and a path of ours has no odd end.
    let bytes = path.as_os_str().as_bytes();
    let (folder, name) = bytes.split_at(memrchr(b'/', bytes)?);
    Some((Path::new(OsStr::from_bytes(folder)), Path::new(OsStr::from_bytes(&name[1..]))))
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

/// How many threads can run at once; to ask costs the reading of several files.
fn cores() -> usize {
    static CORES: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// How many of `count` items a thread takes at once, at most `most`: so few that all threads end at about the same time.
pub fn batch(count: usize, most: usize) -> usize {
    (count / (8 * cores())).clamp(1, most)
}

/// Runs `work` over the items on as many threads as there are cores (at most
/// four), and gives the results in order.
pub fn in_parallel<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    in_parallel_with(items, || (), |(), item| work(item))
}

/// The same, where each thread has something of its own to work with.
pub fn in_parallel_with<T: Send, S, R: Send>(
    items: Vec<T>,
    own: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, T) -> R + Sync,
) -> Vec<R> {
    if items.len() < 2 || cores() == 1 {
        let mut own = own();
        return items.into_iter().map(|item| work(&mut own, item)).collect();
    }
    let (threads, count) = (cores().min(4), items.len());
    let items: Vec<std::sync::Mutex<Option<T>>> = items.into_iter().map(|i| Some(i).into()).collect();
    let next = AtomicUsize::new(0);
    let run = || {
        let (mut own, mut done) = (own(), Vec::new());
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = items.get(i) else { return done };
            let item = slot.lock().ok().and_then(|mut slot| slot.take());
            done.extend(item.map(|item| (i, work(&mut own, item))));
        }
    };
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        // Where no thread can be had this one does it all.
        let other = || std::thread::Builder::new().spawn_scoped(scope, run).ok();
        let others: Vec<_> = (1..threads.min(count)).filter_map(|_| other()).collect();
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
