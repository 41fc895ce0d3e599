//! JSON as text, fast and safe.
//!
//! A listing may hold ten thousand sessions, and agents choose much of its
//! text. So strings are checked a register at a time, and every character that
//! could act on a terminal (C0, DEL, C1, format characters, line separators)
//! leaves as a JSON escape: the data stays what it was. Only what lariat prints
//! is supported: objects with names, lists, strings, numbers, nothing binary.

use std::cell::RefCell;
use std::fmt;
use std::io::Write as _;

use lariat_core::text::is_hidden;
use lariat_core::{Listing, Session};
use serde::ser::{self, Impossible, Serialize};

/// Adds a value to a text.
pub fn write(to: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) -> Result<(), Unwritable> {
    value.serialize(Json(to))
}

/// A session as text that follows another one's; `None` if it cannot be written.
pub fn session(session: &Session) -> Option<Box<[u8]>> {
    // Written where the one before was, and kept in what it takes and no more.
    thread_local!(static DESK: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
    DESK.with_borrow_mut(|desk| {
        desk.clear();
        desk.push(b',');
        write(desk, session).ok()?;
        Some(desk.as_slice().into())
    })
}

/// A listing as one object.
pub fn listing(listing: &Listing) -> String {
    let mut text = format!("{{\"schema\":{},\"at\":\"{}\",\"sessions\":", listing.schema, listing.at).into_bytes();
    let mut parts = || {
        write(&mut text, &listing.sessions)?;
        text.extend_from_slice(b",\"unbound\":");
        write(&mut text, &listing.unbound)?;
        text.extend_from_slice(b",\"warnings\":");
        write(&mut text, &listing.warnings)?;
        text.extend_from_slice(b",\"hidden\":");
        write(&mut text, &listing.hidden)
    };
    let parts: Result<(), Unwritable> = parts();
    debug_assert!(parts.is_ok(), "a listing can be printed");
    text.push(b'}');
    String::from_utf8(text).unwrap_or_default()
}

/// A value that lariat has no way to print: a mistake in the program.
#[derive(Debug)]
pub struct Unwritable(String);

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unwritable {}

impl ser::Error for Unwritable {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Unwritable(text.to_string())
    }
}

fn quoted(to: &mut Vec<u8>, text: &str) {
    to.push(b'"');
    let mut rest = text;
    loop {
        let (plain, odd) = rest.split_at(plain_bytes(rest.as_bytes()));
        to.extend_from_slice(plain.as_bytes());
        let mut chars = odd.chars();
        let Some(c) = chars.next() else { break };
        escaped(to, c);
        rest = chars.as_str();
    }
    to.push(b'"');
}

/// How many bytes from the start need no second look.
fn plain_bytes(bytes: &[u8]) -> usize {
    let odd = |b: &u8| (*b < 0x20) | (*b >= 0x7f) | (*b == b'"') | (*b == b'\\');
    // Without a branch inside, this is a few vector instructions.
    let any_odd = |chunk: &[u8; 16]| chunk.iter().fold(false, |any, b| any | odd(b));
    let (chunks, rest) = bytes.as_chunks::<16>();
    for (i, chunk) in chunks.iter().enumerate() {
        if any_odd(chunk) {
            return i * 16 + chunk.iter().position(odd).unwrap_or(16);
        }
    }
    // The last sixteen, some of them for the second time.
    if bytes.last_chunk().is_some_and(|last| !any_odd(last)) {
        return bytes.len();
    }
    bytes.len() - rest.len() + rest.iter().position(odd).unwrap_or(rest.len())
}

/// A number in its digits.
fn digits(to: &mut Vec<u8>, mut n: u64) {
    let mut text = [0; 20];
    let mut from = text.len();
    loop {
        from -= 1;
        text[from] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            return to.extend_from_slice(&text[from..]);
        }
    }
}

fn escaped(to: &mut Vec<u8>, c: char) {
    match c {
        '"' => to.extend_from_slice(b"\\\""),
        '\\' => to.extend_from_slice(b"\\\\"),
        '\n' => to.extend_from_slice(b"\\n"),
        '\t' => to.extend_from_slice(b"\\t"),
        c if is_hidden(c) => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                to.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
            }
        }
        c => to.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

struct Json<'a>(&'a mut Vec<u8>);

macro_rules! numbers {
    ($($method:ident: $type:ty),*) => {$(
        fn $method(self, n: $type) -> Result<(), Unwritable> {
            #[allow(unused_comparisons, reason = "some have no sign")]
            if n < 0 {
                self.0.push(b'-');
            }
            digits(self.0, i64::from(n).unsigned_abs());
            Ok(())
        }
    )*};
}

type Nothing = Impossible<(), Unwritable>;

fn no<T>(what: &str) -> Result<T, Unwritable> {
    Err(Unwritable(format!("{what} cannot be printed")))
}

impl<'a> ser::Serializer for Json<'a> {
    type Ok = ();
    type Error = Unwritable;
    type SerializeSeq = Members<'a>;
    type SerializeTuple = Members<'a>;
    type SerializeTupleStruct = Nothing;
    type SerializeTupleVariant = Nothing;
    type SerializeMap = Members<'a>;
    type SerializeStruct = Members<'a>;
    type SerializeStructVariant = Nothing;

    numbers!(serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64);
    numbers!(serialize_u8: u8, serialize_u16: u16, serialize_u32: u32);

    fn serialize_u64(self, n: u64) -> Result<(), Unwritable> {
        digits(self.0, n);
        Ok(())
    }

    fn serialize_bool(self, b: bool) -> Result<(), Unwritable> {
        self.0.extend_from_slice(if b { b"true" } else { b"false" });
        Ok(())
    }

    fn serialize_f32(self, n: f32) -> Result<(), Unwritable> {
        self.serialize_f64(n.into())
    }

    fn serialize_f64(self, n: f64) -> Result<(), Unwritable> {
        match n.is_finite() {
            true => write!(self.0, "{n:?}").map_err(ser::Error::custom),
            false => self.serialize_none(),
        }
    }

    fn serialize_char(self, c: char) -> Result<(), Unwritable> {
        self.serialize_str(c.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, text: &str) -> Result<(), Unwritable> {
        quoted(self.0, text);
        Ok(())
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<(), Unwritable> {
        no("bytes")
    }

    fn serialize_none(self) -> Result<(), Unwritable> {
        self.0.extend_from_slice(b"null");
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Unwritable> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Unwritable> {
        self.serialize_none()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Unwritable> {
        self.serialize_none()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, word: &'static str) -> Result<(), Unwritable> {
        self.0.push(b'"');
        self.0.extend_from_slice(word.as_bytes()); // ours, as the names of members are
        self.0.push(b'"');
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Unwritable> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        word: &'static str,
        value: &T,
    ) -> Result<(), Unwritable> {
        let mut members = Members::open(self.0, b'{', b'}');
        ser::SerializeStruct::serialize_field(&mut members, word, value)?;
        members.close()
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Members<'a>, Unwritable> {
        Ok(Members::open(self.0, b'[', b']'))
    }

    fn serialize_tuple(self, _: usize) -> Result<Members<'a>, Unwritable> {
        Ok(Members::open(self.0, b'[', b']'))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Nothing, Unwritable> {
        no("a tuple struct")
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Nothing, Unwritable> {
        no("a tuple variant")
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Members<'a>, Unwritable> {
        Ok(Members::open(self.0, b'{', b'}'))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Members<'a>, Unwritable> {
        Ok(Members::open(self.0, b'{', b'}'))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Nothing, Unwritable> {
        no("a struct variant")
    }
}

/// The members of a list or an object, with the commas between them.
struct Members<'a> {
    to: &'a mut Vec<u8>,
    close: u8,
    any: bool,
}

impl<'a> Members<'a> {
    fn open(to: &'a mut Vec<u8>, open: u8, close: u8) -> Self {
        to.push(open);
        Members { to, close, any: false }
    }

    fn next(&mut self) {
        if self.any {
            self.to.push(b',');
        }
        self.any = true;
    }

    fn close(self) -> Result<(), Unwritable> {
        self.to.push(self.close);
        Ok(())
    }
}

impl ser::SerializeSeq for Members<'_> {
    type Ok = ();
    type Error = Unwritable;
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unwritable> {
        self.next();
        value.serialize(Json(self.to))
    }
    fn end(self) -> Result<(), Unwritable> {
        self.close()
    }
}

impl ser::SerializeTuple for Members<'_> {
    type Ok = ();
    type Error = Unwritable;
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unwritable> {
        ser::SerializeSeq::serialize_element(self, value)
    }
    fn end(self) -> Result<(), Unwritable> {
        self.close()
    }
}

impl ser::SerializeMap for Members<'_> {
    type Ok = ();
    type Error = Unwritable;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Unwritable> {
        self.next();
        key.serialize(Json(self.to))
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unwritable> {
        self.to.push(b':');
        value.serialize(Json(self.to))
    }
    fn end(self) -> Result<(), Unwritable> {
        self.close()
    }
}

impl ser::SerializeStruct for Members<'_> {
    type Ok = ();
    type Error = Unwritable;
    // Where the name is known, so that copying it is a few instructions.
    #[inline(always)]
    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Unwritable> {
        self.to.reserve(key.len() + 4);
        self.next();
        self.to.push(b'"');
        self.to.extend_from_slice(key.as_bytes()); // ours: nothing in it to escape
        self.to.extend_from_slice(b"\":");
        value.serialize(Json(self.to))
    }
    fn end(self) -> Result<(), Unwritable> {
        self.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;

    #[derive(Serialize)]
    struct Sample {
        text: String,
        none: Option<u8>,
        list: Vec<i64>,
        cost: f64,
        yes: bool,
        choice: Choice,
    }

    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    enum Choice {
        Number(u8),
    }

    fn sample(text: &str) -> Sample {
        Sample {
            text: text.into(),
            none: None,
            list: vec![1, -2],
            cost: 0.1 + 0.2,
            yes: true,
            choice: Choice::Number(7),
        }
    }

    #[test]
    fn says_the_same_as_a_full_writer_and_nothing_that_acts() {
        for text in ["plain", "", "\"quoted\\\"", "é日本🦀", "\x1b[2J\u{9b}\u{202e}\u{2028}\u{7f}\n\t\r\0", "\u{e0001}"]
        {
            let mut written = Vec::new();
            write(&mut written, &sample(text)).unwrap();
            let read: serde_json::Value = serde_json::from_slice(&written).unwrap();
            assert_eq!(read, serde_json::to_value(sample(text)).unwrap());
            assert!(!String::from_utf8(written).unwrap().chars().any(is_hidden), "{text:?}");
        }
    }

    #[test]
    fn numbers_and_texts_of_every_length_are_what_they_were() {
        let numbers = (vec![i64::MIN, -10, -1, 0, 9, 10, i64::MAX], vec![0, 99, u64::MAX], i8::MIN, u8::MAX);
        let mut written = Vec::new();
        write(&mut written, &numbers).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), serde_json::to_string(&numbers).unwrap());

        // An odd character at every place of a text of every length, in whichever sixteen it falls.
        for len in 0..50 {
            for at in 0..=len {
                let text: String = (0..len).map(|i| if i == at { '\n' } else { 'a' }).collect();
                let mut written = Vec::new();
                write(&mut written, &text).unwrap();
                assert_eq!(String::from_utf8(written).unwrap(), serde_json::to_string(&text).unwrap());
            }
        }
    }
}
