//! One JSON reader for every store: lenient, selective, bounded.
//!
//! A transcript line may be a hundred bytes or a gigabyte, of which a handful
//! of fields matter. [`Doc::read`] streams one value from a source, keeps the
//! keys it is told to keep, cuts the strings it keeps at a limit, and skips the
//! rest without holding it. Memory stays the same whatever the line; a reader
//! reuses one [`Doc`], so a line costs no allocation.
//!
//! A newline ends a value, finished or not, and is never taken: that is how one
//! broken line cannot spoil the next. What is skipped is balanced, not
//! validated.

mod keys;
mod scan;

use std::io::{self, BufRead};

pub use keys::Keys;
pub use scan::skip_line;
use scan::{escape, next_byte, skip, skip_string, stop, word};

/// How deep kept values may nest; what lies deeper is skipped.
const MAX_DEPTH: usize = 16;

/// What is kept of a path, whatever the limit: cut short, it names another place.
const PATH: usize = 4096 + 4;

/// Which keys to keep. It gets the key of the enclosing object, empty at the
/// top, and the key itself.
pub type Keep = fn(parent: &[u8], key: &[u8]) -> bool;

/// The same, also as a function that is known when the program is built: there are many keys.
pub trait Keeps: Fn(&[u8], &[u8]) -> bool + Copy {}

impl<F: Fn(&[u8], &[u8]) -> bool + Copy> Keeps for F {}

/// Why a value could not be read.
#[derive(Debug)]
pub enum Bad {
    /// The source ended in the middle of the value.
    Unfinished,
    /// It is not JSON.
    Broken,
    /// The source failed.
    Io(io::Error),
}

impl From<io::Error> for Bad {
    fn from(e: io::Error) -> Self {
        Bad::Io(e)
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Null,
    Bool(bool),
    Number(Span),
    String(Span),
    Object,
    Array,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    from: u32,
    to: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    key: Span,
    /// Tells most keys apart: see [`keys::tag`].
    tag: u8,
    kind: Kind,
    next: u32,
    child: u32,
}

const NONE: u32 = u32::MAX;

/// The kept part of one JSON value, reused from line to line.
#[derive(Debug)]
pub struct Doc {
    nodes: Vec<Node>,
    text: Vec<u8>,
    limit: usize,
    /// Whether a kept string held bytes that are not UTF-8.
    pub lossy: bool,
}

impl Doc {
    /// A document that keeps at most `limit` bytes of a string.
    pub fn new(limit: usize) -> Doc {
        Doc { nodes: Vec::new(), text: Vec::new(), limit, lossy: false }
    }

    /// Reads the one value that a whole text holds, over however many lines. With
    /// anything behind it, or what is not UTF-8 in it, the text is broken.
    pub fn parse(text: &[u8], keep: Keep, limit: usize) -> Result<Doc, Bad> {
        let mut doc = Doc::new(limit);
        // No string holds a bare newline, so outside of one it is a blank.
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let one_line: Vec<u8> = text.iter().map(|b| if *b == b'\n' { b' ' } else { *b }).collect();
        let mut rest = one_line.as_slice();
        doc.read(&mut rest, keep)?;
        let ended = rest.iter().all(|b| matches!(b, b' ' | b'\t' | b'\r'));
        if ended && !doc.lossy { Ok(doc) } else { Err(Bad::Broken) }
    }

    /// Reads one value, up to its end and not beyond.
    pub fn read<R: BufRead>(&mut self, source: &mut R, keep: impl Keeps) -> Result<(), Bad> {
        self.nodes.clear();
        self.text.clear();
        self.lossy = false;
        let first = next_byte(source)?;
        self.value(source, keep, first, Span { from: 0, to: 0 }, 0).map(|_| ())
    }

    /// The value itself.
    pub fn root(&self) -> Value<'_> {
        Value { doc: self, node: if self.nodes.is_empty() { NONE } else { 0 } }
    }

    fn value<R: BufRead>(
        &mut self,
        r: &mut R,
        keep: impl Keeps,
        first: u8,
        key: Span,
        depth: usize,
    ) -> Result<u32, Bad> {
        let me = self.nodes.len() as u32;
        let tag = keys::tag(self.bytes(key));
        self.nodes.push(Node { key, tag, kind: Kind::Null, next: NONE, child: NONE });
        let kind = match first {
            b'"' => Kind::String(self.string(r, self.limit_of(key))?),
            b'{' => {
                self.object(r, keep, me, depth)?;
                Kind::Object
            }
            b'[' => {
                self.array(r, keep, me, depth)?;
                Kind::Array
            }
            b't' => word(r, b"rue").map(|()| Kind::Bool(true))?,
            b'f' => word(r, b"alse").map(|()| Kind::Bool(false))?,
            b'n' => word(r, b"ull").map(|()| Kind::Null)?,
            b'-' | b'0'..=b'9' => Kind::Number(self.number(r, first)?),
            _ => return Err(Bad::Broken),
        };
        self.nodes[me as usize].kind = kind;
        Ok(me)
    }

    fn object<R: BufRead>(&mut self, r: &mut R, keep: impl Keeps, me: u32, depth: usize) -> Result<(), Bad> {
        let mut last = NONE;
        let mut byte = next_byte(r)?;
        if byte == b'}' {
            return Ok(());
        }
        loop {
            if byte != b'"' {
                return Err(Bad::Broken);
            }
            let key = self.key(r, keep, me, depth)?;
            if next_byte(r)? != b':' {
                return Err(Bad::Broken);
            }
            let first = next_byte(r)?;
            match key {
                Some(key) => {
                    let node = self.value(r, keep, first, key, depth + 1)?;
                    self.link(me, &mut last, node);
                }
                None => skip(r, first)?,
            }
            match next_byte(r)? {
                b',' => byte = next_byte(r)?,
                b'}' => return Ok(()),
                _ => return Err(Bad::Broken),
            }
        }
    }

    /// Reads a key after its opening quote; `None` if its value is not kept.
    fn key<R: BufRead>(&mut self, r: &mut R, keep: impl Keeps, me: u32, depth: usize) -> Result<Option<Span>, Bad> {
        let parent = self.nodes[me as usize].key;
        let deep = depth >= MAX_DEPTH;
        // Nearly every key lies whole in the buffer, and is not wanted: no copy.
        let buffer = r.fill_buf()?;
        if let Some(end) = stop(buffer).filter(|i| buffer[*i] == b'"') {
            let wanted = !deep && keep(&self.text[parent.from as usize..parent.to as usize], &buffer[..end]);
            let span = wanted.then(|| {
                let from = self.text.len() as u32;
                self.text.extend_from_slice(&buffer[..end]);
                Span { from, to: self.text.len() as u32 }
            });
            r.consume(end + 1);
            return Ok(span);
        }
        let mark = self.text.len();
        let key = self.string(r, self.limit)?;
        let wanted = !deep && keep(self.bytes(parent), self.bytes(key));
        if !wanted {
            self.text.truncate(mark);
        }
        Ok(wanted.then_some(key))
    }

    fn array<R: BufRead>(&mut self, r: &mut R, keep: impl Keeps, me: u32, depth: usize) -> Result<(), Bad> {
        let mut last = NONE;
        let mut byte = next_byte(r)?;
        if byte == b']' {
            return Ok(());
        }
        loop {
            if depth < MAX_DEPTH {
                let key = self.nodes[me as usize].key; // items answer to their array's key
                let node = self.value(r, keep, byte, key, depth + 1)?;
                self.link(me, &mut last, node);
            } else {
                skip(r, byte)?;
            }
            match next_byte(r)? {
                b',' => byte = next_byte(r)?,
                b']' => return Ok(()),
                _ => return Err(Bad::Broken),
            }
        }
    }

    fn link(&mut self, parent: u32, last: &mut u32, node: u32) {
        match *last {
            NONE => self.nodes[parent as usize].child = node,
            last => self.nodes[last as usize].next = node,
        }
        *last = node;
    }

    fn number<R: BufRead>(&mut self, r: &mut R, first: u8) -> Result<Span, Bad> {
        let from = self.text.len() as u32;
        self.text.push(first);
        loop {
            let buffer = r.fill_buf()?;
            let n = buffer.iter().take_while(|b| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')).count();
            let room = 40usize.saturating_sub(self.text.len() - from as usize);
            self.text.extend_from_slice(&buffer[..n.min(room)]);
            let ended = n < buffer.len() || buffer.is_empty();
            r.consume(n);
            if ended {
                return Ok(Span { from, to: self.text.len() as u32 });
            }
        }
    }

    fn limit_of(&self, key: Span) -> usize {
        match self.bytes(key) {
            b"cwd" | b"relocatedCwd" | b"parentSession" => self.limit.max(PATH),
            _ => self.limit,
        }
    }

    /// Reads a string after its opening quote, decoded, cut at the limit.
    fn string<R: BufRead>(&mut self, r: &mut R, limit: usize) -> Result<Span, Bad> {
        let from = self.text.len();
        let full = from + limit;
        let mut checked = true;
        loop {
            if self.text.len() + 4 > full {
                skip_string(r)?; // enough is kept
                break;
            }
            let buffer = r.fill_buf()?;
            if buffer.is_empty() {
                return Err(Bad::Unfinished);
            }
            let stop = stop(buffer);
            let run = stop.unwrap_or(buffer.len());
            let room = full.saturating_sub(self.text.len());
            let taken = &buffer[..run.min(room)];
            checked &= taken.is_ascii();
            self.text.extend_from_slice(taken);
            let Some(at) = stop else {
                r.consume(run);
                continue;
            };
            let end = buffer[at];
            if end == b'\n' {
                r.consume(at);
                return Err(Bad::Broken);
            }
            r.consume(at + 1);
            match end {
                b'"' => break,
                _ => {
                    let escaped = escape(r)?;
                    if self.text.len() + 4 <= full {
                        let mut utf8 = [0; 4];
                        let bytes = escaped.encode_utf8(&mut utf8).as_bytes();
                        self.text.extend_from_slice(bytes);
                        checked &= bytes.is_ascii();
                    }
                }
            }
        }
        if !checked {
            self.mend_utf8(from, limit);
        }
        Ok(Span { from: from as u32, to: self.text.len() as u32 })
    }

    /// Cuts a character that the limit split, and replaces what is not UTF-8.
    fn mend_utf8(&mut self, from: usize, limit: usize) {
        let Err(e) = std::str::from_utf8(&self.text[from..]) else { return };
        if e.error_len().is_none() && self.text.len() - from + 3 >= limit {
            self.text.truncate(from + e.valid_up_to());
            return;
        }
        self.lossy = true;
        let mended = String::from_utf8_lossy(&self.text[from..]).into_owned();
        self.text.truncate(from);
        self.text.extend_from_slice(mended.as_bytes());
    }

    fn bytes(&self, span: Span) -> &[u8] {
        &self.text[span.from as usize..span.to as usize]
    }
}

/// One value of a document; asking an absent one for anything gives nothing.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    doc: &'a Doc,
    node: u32,
}

impl<'a> Value<'a> {
    fn node(&self) -> Option<&'a Node> {
        self.doc.nodes.get(self.node as usize)
    }

    /// A member of an object.
    #[inline]
    pub fn get(&self, key: &str) -> Value<'a> {
        let is_object = matches!(self.node().map(|n| n.kind), Some(Kind::Object));
        let (key, tag) = (key.as_bytes(), keys::tag(key.as_bytes()));
        let is = |n: &Node| n.tag == tag && self.doc.bytes(n.key) == key;
        let found = self.children(is_object).find(|v| v.node().is_some_and(is));
        found.unwrap_or(Value { doc: self.doc, node: NONE })
    }

    /// The kept members of an object, in order.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> + use<'a> {
        let is_object = matches!(self.node().map(|n| n.kind), Some(Kind::Object));
        self.children(is_object).map(|v| (v.node().map_or("", |n| text(v.doc, n.key)), v))
    }

    /// The items of an array.
    pub fn items(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        self.children(matches!(self.node().map(|n| n.kind), Some(Kind::Array)))
    }

    fn children(&self, any: bool) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let doc = self.doc;
        let first = self.node().filter(|_| any).map_or(NONE, |n| n.child);
        std::iter::successors(Some(first), move |n| doc.nodes.get(*n as usize).map(|n| n.next))
            .take_while(|n| *n != NONE)
            .map(move |node| Value { doc, node })
    }

    /// Whether it is there and not null.
    pub fn exists(&self) -> bool {
        self.node().is_some_and(|n| !matches!(n.kind, Kind::Null))
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        matches!(self.node().map(|n| n.kind), Some(Kind::Object))
    }

    /// Whether it says of what kind it is: by a word, or by what later versions may put in its place.
    pub fn has_kind(&self) -> bool {
        let kind = self.get("type");
        kind.some_str().is_some() || kind.is_object() || kind.is_array()
    }

    /// Whether it is an array.
    pub fn is_array(&self) -> bool {
        matches!(self.node().map(|n| n.kind), Some(Kind::Array))
    }

    /// A string.
    pub fn str(&self) -> Option<&'a str> {
        match self.node()?.kind {
            Kind::String(span) => Some(text(self.doc, span)),
            _ => None,
        }
    }

    /// The bytes of a string, to be compared; empty if it is none.
    pub fn word(&self) -> &'a [u8] {
        match self.node().map(|n| n.kind) {
            Some(Kind::String(span)) => self.doc.bytes(span),
            _ => b"",
        }
    }

    /// A string that says something.
    pub fn some_str(&self) -> Option<&'a str> {
        self.str().filter(|s| !s.is_empty())
    }

    /// A number without sign or fraction.
    pub fn u64(&self) -> Option<u64> {
        let rounded = || self.f64().filter(|n| *n >= 0.0 && *n < 1.8e19).map(|n| n as u64);
        self.number_text()?.parse().ok().or_else(rounded)
    }

    /// A count: a number that is whole and not negative.
    pub fn whole(&self) -> Option<u64> {
        self.number_text()?.parse().ok()
    }

    /// How many of something: none where that is left out; `None` if what is there does not tell.
    pub fn count(&self) -> Option<u64> {
        self.node().map_or(Some(0), |_| self.whole())
    }

    /// Any number.
    pub fn f64(&self) -> Option<f64> {
        self.number_text()?.parse().ok().filter(|n: &f64| n.is_finite())
    }

    fn number_text(&self) -> Option<&'a str> {
        match self.node()?.kind {
            Kind::Number(span) => Some(text(self.doc, span)),
            _ => None,
        }
    }

    /// `true` or `false`.
    pub fn bool(&self) -> Option<bool> {
        match self.node()?.kind {
            Kind::Bool(is) => Some(is),
            _ => None,
        }
    }

    /// Whether it is `true`.
    pub fn is_true(&self) -> bool {
        matches!(self.node().map(|n| n.kind), Some(Kind::Bool(true)))
    }
}

fn text(doc: &Doc, span: Span) -> &str {
    std::str::from_utf8(doc.bytes(span)).unwrap_or("")
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
