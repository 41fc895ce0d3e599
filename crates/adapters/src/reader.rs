//! The one reader for append-only stores.
//!
//! A transcript is folded line by line into a small value, the [`Fold`]. What
//! was folded is remembered with the offset it reached, so the next look reads
//! only what was appended since. A large transcript of an ended session is not
//! read whole: its head tells what it is about, its tail how it ended.
//!
//! ```text
//!  0          head_end                          size - tail        size
//!  |== head ==|.............. gap ..............|====== tail ======|
//! ```
//!
//! The tail grows until the fold says that it knows how the last turn stands;
//! if it grows into the head there is no gap, and the fold is whole.
//!
//! A file of one document, over many lines, is read as one line ([`is_document`]): it is no transcript that
//! grows, so it is read whole, and anew when it has changed.
//!
//! The reader never holds a line in memory, never follows a file that is not
//! regular, and never treats a line that cannot be parsed as the end of a file.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use lariat_sys::file::Key;
use memchr::{memchr, memmem};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::json::{Bad, Doc, Value, skip_line};

/// What a store's lines are folded into.
pub trait Fold: Default + Clone + Serialize + for<'de> Deserialize<'de> + Send {
    /// The keys it needs.
    fn keeps(parent: &[u8], key: &[u8]) -> bool;
    /// Whether a line may matter, by its bytes: what surely does not is not
    /// even parsed.
    const SIEVE: Option<fn(&[u8]) -> bool> = None;
    /// The same for many short lines at once: how many bytes surely do not matter,
    /// from the start of a line to the start of another.
    const PASS: Option<fn(&[u8]) -> usize> = None;
    /// What the first read takes: the head of most files.
    const HEAD_READ: usize = 4 << 10;
    /// What a file that lies there begins as.
    fn begin(_path: &Path) -> Self {
        Self::default()
    }
    /// Whether a line says enough to be taken in. One that does not is no better than one that cannot be parsed.
    fn reads(_line: Value<'_>) -> bool {
        true
    }
    /// Takes one line in.
    fn line(&mut self, line: Value<'_>);
    /// Lines are left out here: what was known of the last turn no longer holds.
    fn gap(&mut self);
    /// A line could not be read. If the next ones need not tell how the last turn stands, that is not known
    /// until one does.
    fn lost(&mut self) {}
    /// Whether the head has told what the session is about.
    fn knows_head(&self) -> bool;
    /// Whether the lines since the gap tell how the last turn stands.
    fn knows_tail(&self) -> bool;
    /// Whether lines before those could hardly add to that: then what else was read of the tail is not looked at.
    fn has_enough(&self) -> bool {
        false
    }
    /// What stands in a line without which there is not enough: a tail that lacks it is not even parsed.
    const ENOUGH: &'static [u8] = b"";
}

/// How much of a string the fold gets to see.
pub(crate) const TEXT: usize = 600;
/// How far into a file its head may reach.
const HEAD: u64 = 4 << 20;
/// How far back a tail may reach; a store that tells nothing there is unread.
const TAIL: u64 = 64 << 20;
/// What a listing reads of a live session at most.
const WHOLE: u64 = 1 << 30;
/// What is read next is twice as long as before, between this and a chunk.
const LEAST: usize = 4 << 10;
const FIRST_TAIL: u64 = 8 << 10;
const CHUNK: usize = 64 << 10;
/// How much of its start and of what comes before an offset tells that a file was not rewritten.
const ANCHOR_HEAD: usize = 1024;
const ANCHOR_END: usize = 64;

/// What is remembered of one file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reading<F> {
    /// What its lines add up to.
    pub fold: F,
    /// Whether every line was folded.
    pub whole: bool,
    /// How large the file was: one that has changed and not grown was rewritten.
    size: u64,
    /// Where the next line will start.
    offset: u64,
    /// Hash of the first bytes and of those before the offset, to notice a
    /// rewritten file.
    anchor: u64,
    /// The last line has no newline yet: what follows on it may change what it is.
    ragged: bool,
    /// How many lines could not be parsed, and where the first one starts.
    pub broken: Option<(u32, u64)>,
    /// Some line was not taken in: what adds up is not known.
    lost: bool,
    /// The last one was not: how the turn stands is not known.
    spoilt: bool,
    /// Why the end of the file tells nothing, if so.
    pub unread: Option<String>,
}

impl<F: Fold> Reading<F> {
    /// The line that starts there is not taken in.
    fn lose(&mut self, start: u64) {
        self.lost = true;
        self.fold.lost();
        self.complain(start);
    }
}

impl<F> Reading<F> {
    fn blank(fold: F) -> Box<Reading<F>> {
        Box::new(Reading {
            fold,
            whole: true,
            size: 0,
            offset: 0,
            anchor: 0,
            ragged: false,
            broken: None,
            lost: false,
            spoilt: false,
            unread: None,
        })
    }
}

impl<F> Reading<F> {
    /// Whether every line was taken in, so that what they add up to is exact.
    pub fn is_exact(&self) -> bool {
        self.whole && !self.lost && self.unread.is_none()
    }

    /// Something about the line that starts there is wrong.
    fn complain(&mut self, start: u64) {
        let (count, first) = self.broken.unwrap_or((0, start));
        self.broken = Some((count.saturating_add(1), first));
    }

    /// What could not be read of the file, if anything.
    pub fn complaint(&self) -> Option<String> {
        match (self.broken, &self.unread) {
            (Some((1, first)), _) => Some(format!("the line at byte {first} is unreadable")),
            (Some((count, first)), _) => Some(format!("{count} lines are unreadable, the first at byte {first}")),
            (None, unread) => unread.clone(),
        }
    }
}

/// Whether a file is one document, by its name.
pub fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "json")
}

/// A reader with its buffers, reused from file to file.
pub struct Reader<F: Fold> {
    doc: Doc,
    source: Source,
    /// Bytes read from stores since the reader was made.
    pub bytes: u64,
    /// What the next file begins as.
    pub begins: F,
}

impl<F: Fold> Default for Reader<F> {
    fn default() -> Self {
        Reader { doc: Doc::new(TEXT), source: Source::default(), bytes: 0, begins: F::default() }
    }
}

impl<F: Fold> Reader<F> {
    /// Reads a file that is one document.
    pub fn read_document(&mut self, file: File, key: &Key) -> io::Result<Box<Reading<F>>> {
        self.source.open_document(file);
        let reading = self.go_on(Reading::blank(self.begins.clone()), key);
        self.bytes += self.source.taken;
        // What is before it says nothing of the rest.
        reading.map(|reading| Box::new(Reading { ragged: true, ..*reading }))
    }

    /// Reads a file, going on from an earlier reading of it where that holds.
    pub fn read(
        &mut self,
        file: File,
        key: &Key,
        prior: Option<Box<Reading<F>>>,
        whole: bool,
    ) -> io::Result<Box<Reading<F>>> {
        self.source.open(file);
        let whole = whole && key.size <= WHOLE;
        let reading = match prior {
            Some(prior) if prior.whole && !prior.ragged && self.still_holds(&prior, key)? => self.go_on(prior, key),
            _ if whole => self.go_on(Reading::blank(self.begins.clone()), key),
            _ => self.head_and_tail(key),
        };
        self.bytes += self.source.taken;
        reading
    }

    fn still_holds(&mut self, prior: &Reading<F>, key: &Key) -> io::Result<bool> {
        Ok(key.size > prior.size && self.source.anchor(prior.offset)? == prior.anchor)
    }

    fn go_on(&mut self, mut reading: Box<Reading<F>>, key: &Key) -> io::Result<Box<Reading<F>>> {
        reading.unread = None; // told anew by what is there now
        self.source.seek(reading.offset, CHUNK);
        self.fold_lines(&mut reading, key.size, |_| false)?;
        self.settle(reading, key)
    }

    fn head_and_tail(&mut self, key: &Key) -> io::Result<Box<Reading<F>>> {
        let mut headed = Reading::blank(self.begins.clone());
        self.source.seek(0, F::HEAD_READ);
        self.fold_lines(&mut headed, key.size.min(HEAD), F::knows_head)?;
        let rest = key.size.saturating_sub(headed.offset);
        headed.whole = false;
        headed.fold.gap();
        // Most turns have ended in the last half of the first tail; the other half is read if not.
        let mut tail = FIRST_TAIL / 2;
        while tail.max(FIRST_TAIL) < rest {
            // From the byte before, so that a line that starts right there is seen.
            self.source.go_back(key.size - tail - 1, tail.min(1 << 20) as usize + 1);
            let lacks = |held: &[u8]| !headed.fold.has_enough() && memmem::find(held, F::ENOUGH).is_none();
            if tail < FIRST_TAIL && lacks(self.source.fill_buf()?) {
                tail = FIRST_TAIL;
                continue;
            }
            let mut reading = headed.clone();
            if skip_line(&mut self.source)? {
                self.fold_lines(&mut reading, key.size, |_| false)?;
            }
            let known = reading.fold.knows_tail();
            if tail < FIRST_TAIL && !(known && reading.fold.has_enough()) {
                tail = FIRST_TAIL;
                continue;
            }
            if !known && tail < TAIL {
                tail *= 4;
                continue;
            }
            if !known {
                reading.unread = Some(format!("no turn found in its last {} MiB", TAIL >> 20));
            }
            return self.settle(reading, key);
        }
        self.go_on(Reading::blank(self.begins.clone()), key) // so that a broken end is told of once
    }

    fn settle(&mut self, mut reading: Box<Reading<F>>, key: &Key) -> io::Result<Box<Reading<F>>> {
        reading.size = key.size;
        if reading.whole {
            reading.anchor = self.source.anchor(reading.offset)?;
            let blank = reading.offset == 0 && key.size > 0;
            let all_broken = reading.broken.is_some() && !reading.fold.knows_tail() && !reading.fold.knows_head();
            if blank || all_broken {
                reading.unread = Some("holds no readable line".into());
            }
        }
        // What could not be read may have been the end of the turn, or the start of another.
        let untold = reading.spoilt || reading.lost && !reading.fold.knows_tail();
        if untold && reading.unread.is_none() {
            reading.unread = Some("its end is unreadable".into());
        }
        Ok(reading)
    }

    fn fold_lines(&mut self, reading: &mut Reading<F>, until: u64, enough: impl Fn(&F) -> bool) -> io::Result<()> {
        while self.source.position() < until {
            let start = self.source.position();
            if start == 0 && self.source.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
                self.source.consume(3);
            }
            if is_blank(self.source.fill_buf()?.first()) && blank_line(&mut self.source)? {
                reading.offset = self.source.position();
                continue;
            }
            let buffer = self.source.fill_buf()?;
            if let Some(passed) = F::PASS.map(|pass| pass(buffer)).filter(|n| *n > 0) {
                self.source.consume(passed);
                reading.offset = self.source.position();
                continue;
            }
            if buffer.is_empty() {
                break;
            }
            // A blank line, or one that cannot matter.
            let passes = |line: &[u8]| line.is_empty() || F::SIEVE.is_some_and(|sieve| !sieve(line));
            let end = if F::SIEVE.is_some() || buffer[0] == b'\n' { memchr(b'\n', buffer) } else { None };
            if let Some(end) = end.filter(|end| passes(&buffer[..*end])) {
                self.source.consume(end + 1);
                reading.offset = self.source.position();
                continue;
            }
            // Nearly every line lies in the buffer whole: then nothing needs to be asked of the source in between.
            let mut line = buffer;
            let read = self.doc.read(&mut line, F::keeps).and_then(|()| end_of_line(&mut line));
            let read = match read {
                Ok(false) | Err(Bad::Unfinished) => {
                    self.doc.read(&mut self.source, F::keeps).and_then(|()| end_of_line(&mut self.source))
                }
                read => {
                    let taken = buffer.len() - line.len();
                    self.source.consume(taken);
                    read
                }
            };
            let fine = match read {
                Ok(newline) => {
                    reading.ragged = !newline;
                    let root = self.doc.root();
                    let reads = root.is_object() && F::reads(root);
                    reading.spoilt = !reads;
                    if reads {
                        reading.fold.line(root);
                    }
                    reads && !self.doc.lossy
                }
                Err(Bad::Unfinished) => break,
                Err(Bad::Io(e)) => return Err(e),
                Err(Bad::Broken) => {
                    let ends = skip_line(&mut self.source)?;
                    reading.spoilt = true;
                    if !ends {
                        // No line that is still being written begins like that: a power cut leaves such ends.
                        reading.ragged = true;
                        reading.lose(start);
                        break;
                    }
                    false
                }
            };
            if reading.spoilt {
                reading.lose(start);
            } else if !fine {
                reading.complain(start);
            }
            reading.offset = self.source.position();
            if enough(&reading.fold) {
                break;
            }
        }
        Ok(())
    }
}

fn is_blank(byte: Option<&u8>) -> bool {
    matches!(byte, Some(b' ' | b'\t' | b'\r'))
}

/// Takes what is blank; whether that was a whole line.
fn blank_line(source: &mut impl BufRead) -> io::Result<bool> {
    while is_blank(source.fill_buf()?.first()) {
        source.consume(1);
    }
    let whole = source.fill_buf()?.starts_with(b"\n");
    source.consume(usize::from(whole));
    Ok(whole)
}

/// Goes to the next line; `false` if the file ends here without a newline.
fn end_of_line(source: &mut impl BufRead) -> Result<bool, Bad> {
    loop {
        let next = source.fill_buf()?.first().copied();
        match next {
            None => return Ok(false), // a whole value at the end of the file
            byte if is_blank(byte.as_ref()) => source.consume(1),
            Some(b'\n') => {
                source.consume(1);
                return Ok(true);
            }
            Some(_) => return Err(Bad::Broken),
        }
    }
}

/// A file read by position through one buffer.
#[derive(Default)]
pub struct Source {
    file: Option<File>,
    buffer: Vec<u8>,
    at: usize,
    filled: usize,
    next: u64,
    chunk: usize,
    taken: u64,
    /// Newlines are spaces.
    document: bool,
    /// The first bytes, as they were read.
    head: Vec<u8>,
}

impl Source {
    /// Starts on a file that is one document.
    pub fn open_document(&mut self, file: File) {
        self.open(file);
        self.document = true;
    }

    /// Starts on a file.
    pub fn open(&mut self, file: File) {
        self.document = false;
        self.file = Some(file);
        self.taken = 0;
        self.head.clear();
        self.seek(0, CHUNK);
    }

    /// Goes to a position; the first read from there takes `chunk` bytes.
    pub fn seek(&mut self, position: u64, chunk: usize) {
        (self.at, self.filled, self.next, self.chunk) = (0, 0, position, chunk);
    }

    /// Goes to a position, of which what comes first takes `chunk` bytes, or less where the buffer holds what follows.
    fn go_back(&mut self, position: u64, chunk: usize) {
        let held_from = self.next - self.filled as u64;
        let before = held_from.checked_sub(position).map_or(chunk, |n| n as usize);
        let file = self.file.as_ref().filter(|_| before < chunk && self.filled > 0);
        let Some(file) = file else {
            return self.seek(position, chunk);
        };
        self.buffer.resize(self.buffer.len().max(before + self.filled), 0);
        self.buffer.copy_within(..self.filled, before);
        match file.read_exact_at(&mut self.buffer[..before], position) {
            Ok(()) => {
                (self.at, self.filled) = (0, before + self.filled);
                self.taken += before as u64;
            }
            Err(_) => self.seek(position, chunk), // it was cut this moment
        }
    }

    /// Where the next byte comes from.
    pub fn position(&self) -> u64 {
        self.next - (self.filled - self.at) as u64
    }

    #[cold]
    fn refill(&mut self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        self.buffer.resize(self.buffer.len().max(self.chunk), 0);
        let n = file.read_at(&mut self.buffer[..self.chunk], self.next)?;
        if self.document {
            self.buffer[..n].iter_mut().filter(|b| **b == b'\n').for_each(|b| *b = b' ');
        }
        (self.at, self.filled) = (0, n);
        if self.next == 0 {
            self.head.clear();
            self.head.extend_from_slice(&self.buffer[..n.min(ANCHOR_HEAD)]);
        }
        self.next += n as u64;
        self.taken += n as u64;
        self.chunk = (self.chunk * 2).clamp(LEAST, CHUNK);
        Ok(())
    }

    /// What the file says at its start and before an offset: if that is the same
    /// as before, so is what lies between. What was just read is not read again.
    fn anchor(&mut self, offset: u64) -> io::Result<u64> {
        let mut bytes = [0; ANCHOR_HEAD + ANCHOR_END];
        let (head, end) = bytes.split_at_mut(ANCHOR_HEAD);
        let head = &mut head[..offset.min(ANCHOR_HEAD as u64) as usize];
        let end = &mut end[..offset.min(ANCHOR_END as u64) as usize];
        if let Some(file) = &self.file {
            let read = match self.head.get(..head.len()) {
                Some(known) => {
                    head.copy_from_slice(known);
                    Ok(())
                }
                None => file.read_exact_at(head, 0),
            };
            let from = offset - end.len() as u64;
            let read = read.and_then(|()| match self.held(from, end.len()) {
                Some(known) => {
                    end.copy_from_slice(known);
                    Ok(())
                }
                None => file.read_exact_at(end, from),
            });
            if read.is_err() {
                return Ok(0);
            }
        }
        Ok(xxh3_64(&bytes))
    }

    /// These bytes of the file, if the buffer holds them.
    fn held(&self, from: u64, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(from.checked_sub(self.next - self.filled as u64)?).ok()?;
        self.buffer[..self.filled].get(from..from.checked_add(len)?)
    }
}

impl Read for Source {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(out)?;
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Source {
    #[inline]
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.filled {
            self.refill()?;
        }
        Ok(&self.buffer[self.at..self.filled])
    }

    #[inline]
    fn consume(&mut self, n: usize) {
        self.at = (self.at + n).min(self.filled);
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
