//! The last bytes of a terminal, on disk.
//!
//! # Theory of operation
//!
//! Output is one stream, and every byte has a number: its offset since the session
//! began. Two files, `output.0` and `output.1`, hold the end of it. Each begins with
//! 16 bytes, a mark and the offset of its first byte; the rest of the file is the
//! stream. One grows until it has half of what may be kept; then the other is
//! emptied and grows. So between half and all of the bound is always there, nothing
//! is ever moved, and the length of a file is all there is to know: a writer that
//! dies leaves a file that is short, never one that is wrong.
//!
//! Readers need no writer. They take the offset of a file before and after they
//! read from it: if it changed, what they read is not what they asked for.
//!
//! Nothing is synced: output is worth keeping over a crash of ours, and not worth
//! slowing the agent for.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

const NAMES: [&str; 2] = ["output.0", "output.1"];
const MARK: [u8; 8] = *b"lariat-1";
const HEAD: u64 = 16;
/// The smallest half that makes sense.
const SMALLEST: u64 = 4096;

/// What one file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span {
    base: u64,
    len: u64,
}

impl Span {
    fn of(file: &File) -> io::Result<Option<Span>> {
        let Some(base) = base_of(file)? else { return Ok(None) };
        let len = file.metadata()?.len().saturating_sub(HEAD);
        Ok(Some(Span { base, len }))
    }

    fn end(self) -> u64 {
        self.base + self.len
    }
}

fn base_of(file: &File) -> io::Result<Option<u64>> {
    let mut head = [0u8; HEAD as usize];
    match file.read_exact_at(&mut head, 0) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(e) => return Err(e),
    }
    let (mark, base) = head.split_at(8);
    Ok((mark == MARK).then(|| base.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b))))
}

/// The writer.
pub(crate) struct Ring {
    files: [File; 2],
    spans: [Span; 2],
    now: usize,
    half: u64,
    /// Bytes that could not be written.
    pub lost: u64,
}

impl Ring {
    /// Goes on where the folder's output ends, or begins anew.
    pub fn open(folder: &Path, bound: u64) -> io::Result<Ring> {
        let open = |name| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()).open(folder.join(name))
        };
        let files = [open(NAMES[0])?, open(NAMES[1])?];
        let found = [Span::of(&files[0])?, Span::of(&files[1])?];
        let half = (bound / 2).max(SMALLEST);
        let [a, b] = found;
        let now = usize::from(b.map(|s| s.base) > a.map(|s| s.base));
        let end = found[now].map_or(0, Span::end);
        let spans = found.map(|s| s.unwrap_or(Span { base: end, len: 0 }));
        let mut ring = Ring { files, spans, now, half, lost: 0 };
        if found[now].is_none() {
            ring.begin(now, 0)?;
        }
        Ok(ring)
    }

    fn begin(&mut self, which: usize, base: u64) -> io::Result<()> {
        self.files[which].set_len(0)?;
        self.spans[which] = Span { base, len: 0 };
        let mut head = [0u8; HEAD as usize];
        head[..8].copy_from_slice(&MARK);
        head[8..].copy_from_slice(&base.to_le_bytes());
        self.files[which].write_all_at(&head, 0)
    }

    /// The offset of the first byte that is kept.
    pub fn start(&self) -> u64 {
        let other = self.spans[1 - self.now];
        let now = self.spans[self.now];
        if other.end() == now.base { other.base } else { now.base }
    }

    /// The offset of the next byte.
    pub fn end(&self) -> u64 {
        self.spans[self.now].end()
    }

    /// Keeps these bytes. What cannot be written is counted and let go: a full disk
    /// must not stop the agent.
    pub fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.half - self.spans[self.now].len.min(self.half);
            if room == 0 {
                let (other, end) = (1 - self.now, self.end());
                if self.begin(other, end).is_err() {
                    self.lost += bytes.len() as u64;
                    return;
                }
                self.now = other;
                continue;
            }
            let part = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
            let span = &mut self.spans[self.now];
            match self.files[self.now].write_at(part, HEAD + span.len) {
                Ok(0) | Err(_) => {
                    self.lost += bytes.len() as u64;
                    return;
                }
                Ok(n) => {
                    span.len += n as u64;
                    bytes = &bytes[n..];
                }
            }
        }
    }

    /// Reads from an offset on, as much as fits and lies in one file; 0 at the end or
    /// where nothing is kept any more.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        for (file, span) in self.files.iter().zip(&self.spans) {
            if (span.base..span.end()).contains(&offset) {
                let left = usize::try_from(span.end() - offset).unwrap_or(usize::MAX).min(into.len());
                return file.read_at(&mut into[..left], HEAD + offset - span.base);
            }
        }
        Ok(0)
    }
}

/// A reader, with or without a shim.
pub struct Output {
    files: [Option<File>; 2],
}

/// A piece of the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The offset of its first byte: later than was asked for if that is not kept.
    pub at: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Output {
    /// Opens what a session's folder has. Open it anew when a read gives nothing and
    /// no file was there yet.
    pub fn open(folder: &Path) -> io::Result<Output> {
        let open = |name| match lariat_sys::file::open(&folder.join(name)) {
            Ok((file, _)) => Ok(Some(file)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        };
        Ok(Output { files: [open(NAMES[0])?, open(NAMES[1])?] })
    }

    /// The offsets of the first byte that is kept and of the one after the last.
    pub fn range(&self) -> io::Result<(u64, u64)> {
        let mut spans = Vec::with_capacity(2);
        for file in self.files.iter().flatten() {
            spans.extend(Span::of(file)?);
        }
        spans.sort_by_key(|s| s.base);
        Ok(match spans[..] {
            [older, newer] if older.end() == newer.base => (older.base, newer.end()),
            [.., newest] => (newest.base, newest.end()),
            [] => (0, 0),
        })
    }

    /// At most `most` bytes from an offset on, or from the first that is kept after
    /// it; none at the end.
    pub fn read(&self, offset: u64, most: usize) -> io::Result<Piece> {
        loop {
            let (start, end) = self.range()?;
            let at = offset.max(start);
            let mut piece = Piece { at, bytes: Vec::new() };
            if at >= end {
                return Ok(piece);
            }
            for file in self.files.iter().flatten() {
                let Some(span) = Span::of(file)?.filter(|s| (s.base..s.end()).contains(&at)) else { continue };
                let left = usize::try_from(span.end() - at).unwrap_or(usize::MAX).min(most);
                piece.bytes.resize(left, 0);
                let n = file.read_at(&mut piece.bytes, HEAD + at - span.base)?;
                piece.bytes.truncate(n);
                if base_of(file)? == Some(span.base) && n > 0 {
                    return Ok(piece);
                }
            }
            // The writer went on meanwhile: look again.
        }
    }

    /// The last bytes of the stream, at most so many.
    pub fn tail(&self, most: u64) -> io::Result<Piece> {
        let (start, end) = self.range()?;
        let mut tail = self.read(end.saturating_sub(most).max(start), usize::MAX)?;
        loop {
            let more = self.read(tail.at + tail.bytes.len() as u64, usize::MAX)?;
            if more.bytes.is_empty() {
                return Ok(tail);
            }
            if more.at != tail.at + tail.bytes.len() as u64 {
                tail = more;
            } else {
                tail.bytes.extend_from_slice(&more.bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("lariat-ring-{name}-{}", std::process::id()));
        lariat_sys::durable::make_folder(&path).unwrap();
        path
    }

    fn remove(path: &Path) {
        #[expect(clippy::disallowed_methods, reason = "the test's own folder")]
        std::fs::remove_dir_all(path).unwrap();
    }

    fn stream(from: u64, to: u64) -> Vec<u8> {
        (from..to).map(|n| (n % 251) as u8).collect()
    }

    #[test]
    fn the_end_of_the_stream_is_kept_within_the_bound_and_over_openings() {
        let dir = folder("bound");
        let mut at = 0;
        for step in [1, 4095, 4096, 5000, 7, 20_000, 3, 8192] {
            let mut ring = Ring::open(&dir, 8192).unwrap();
            assert_eq!(ring.end(), at);
            ring.append(&stream(at, at + step));
            at += step;
            let output = Output::open(&dir).unwrap();
            let (start, end) = output.range().unwrap();
            assert_eq!((start, end), (ring.start(), at));
            assert!(end - start <= 8192 && (end < 4096 || end - start >= 4096), "{start}..{end}");
            let tail = output.tail(u64::MAX).unwrap();
            assert_eq!((tail.at, tail.bytes), (start, stream(start, end)));
            let mut byte = [0];
            assert_eq!(ring.read_at(end - 1, &mut byte).unwrap(), 1);
            assert_eq!(byte.as_slice(), stream(end - 1, end));
            assert_eq!(ring.read_at(end, &mut byte).unwrap(), 0);
        }
        assert_eq!(Output::open(&dir).unwrap().tail(10).unwrap().bytes, stream(at - 10, at));
        remove(&dir);
    }

    #[test]
    fn a_file_cut_short_anywhere_is_no_lie() {
        let dir = folder("short");
        Ring::open(&dir, 8192).unwrap().append(&stream(0, 6000));
        for len in [1000, 17, 16, 9, 0] {
            OpenOptions::new().write(true).open(dir.join(NAMES[1])).unwrap().set_len(len).unwrap();
            let tail = Output::open(&dir).unwrap().tail(u64::MAX).unwrap();
            assert!(tail.bytes == stream(tail.at, tail.at + tail.bytes.len() as u64), "cut to {len}");
        }
        let mut ring = Ring::open(&dir, 8192).unwrap();
        assert_eq!(ring.end(), 4096);
        ring.append(&stream(4096, 5000));
        assert!(Output::open(&dir).unwrap().tail(u64::MAX).unwrap().bytes == stream(0, 5000));
        remove(&dir);
    }
}
