//! The bytes below a value: where a text stops, what an escape means, and how to pass over what is not kept.
//!
//! Nothing here holds more than its source's buffer, and nothing takes a newline.

use std::io::{self, BufRead};

use memchr::{memchr, memchr_iter, memchr3};

use super::Bad;

/// Where a quote, a backslash or a newline comes first.
///
/// Keys and most values are short, so the beginning is looked at here, eight bytes at once: a call would take
/// longer than that.
#[inline]
pub(super) fn stop(buffer: &[u8]) -> Option<usize> {
    const NEAR: usize = 6;
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    // The lowest bit that is set stands for the first byte that is zero; those above it may stand for none.
    let zero = |word: u64| word.wrapping_sub(ONES) & !word & (ONES << 7);
    let is = |word: u64, byte: u8| zero(word ^ (ONES * u64::from(byte)));
    let (words, _) = buffer.as_chunks::<8>();
    for (at, word) in words.iter().take(NEAR).enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = is(word, b'"') | is(word, b'\\') | is(word, b'\n');
        if found != 0 {
            return Some(at * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let from = words.len().min(NEAR) * 8;
    memchr3(b'"', b'\\', b'\n', &buffer[from..]).map(|at| from + at)
}

/// The next byte that is not blank. A newline ends the value too early.
#[inline]
pub(super) fn next_byte<R: BufRead>(r: &mut R) -> Result<u8, Bad> {
    if let Some(byte) = r.fill_buf()?.first().copied().filter(|b| *b > b' ') {
        r.consume(1);
        return Ok(byte);
    }
    next_solid_byte(r)
}

fn next_solid_byte<R: BufRead>(r: &mut R) -> Result<u8, Bad> {
    loop {
        let buffer = r.fill_buf()?;
        if buffer.is_empty() {
            return Err(Bad::Unfinished);
        }
        match buffer.iter().position(|b| !matches!(b, b' ' | b'\t' | b'\r')) {
            Some(at) => {
                let byte = buffer[at];
                if byte == b'\n' {
                    r.consume(at);
                    return Err(Bad::Broken);
                }
                r.consume(at + 1);
                return Ok(byte);
            }
            None => {
                let n = buffer.len();
                r.consume(n);
            }
        }
    }
}

/// The very next byte. A newline is never taken: it ends the line.
#[inline]
fn raw_byte<R: BufRead>(r: &mut R) -> Result<u8, Bad> {
    let byte = *r.fill_buf()?.first().ok_or(Bad::Unfinished)?;
    if byte == b'\n' {
        return Err(Bad::Broken);
    }
    r.consume(1);
    Ok(byte)
}

pub(super) fn word<R: BufRead>(r: &mut R, rest: &[u8]) -> Result<(), Bad> {
    rest.iter().try_for_each(|want| if raw_byte(r)? == *want { Ok(()) } else { Err(Bad::Broken) })
}

pub(super) fn escape<R: BufRead>(r: &mut R) -> Result<char, Bad> {
    Ok(match raw_byte(r)? {
        b'n' => '\n',
        b't' => '\t',
        b'r' => '\r',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'u' => {
            let high = hex4(r)?;
            if !(0xd800..0xdc00).contains(&high) {
                return Ok(char::from_u32(high).unwrap_or('\u{fffd}'));
            }
            // A pair, unless the second half is missing: then both are odd.
            if !r.fill_buf()?.starts_with(b"\\") {
                return Ok('\u{fffd}');
            }
            raw_byte(r)?;
            if raw_byte(r)? != b'u' {
                return Ok('\u{fffd}');
            }
            let low = hex4(r)?;
            let code = 0x10000 + ((high - 0xd800) << 10) + low.wrapping_sub(0xdc00);
            char::from_u32(code).filter(|_| (0xdc00..0xe000).contains(&low)).unwrap_or('\u{fffd}')
        }
        other => char::from(other),
    })
}

fn hex4<R: BufRead>(r: &mut R) -> Result<u32, Bad> {
    (0..4).try_fold(0, |n, _| {
        let digit = char::from(raw_byte(r)?).to_digit(16).ok_or(Bad::Broken)?;
        Ok(n * 16 + digit)
    })
}

/// Skips a value whose first byte was taken.
pub(super) fn skip<R: BufRead>(r: &mut R, first: u8) -> Result<(), Bad> {
    match first {
        b'"' => skip_string(r),
        b'{' | b'[' => skip_nested(r),
        b't' => word(r, b"rue"),
        b'f' => word(r, b"alse"),
        b'n' => word(r, b"ull"),
        b'-' | b'0'..=b'9' => loop {
            let buffer = r.fill_buf()?;
            let n = buffer.iter().take_while(|b| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')).count();
            let ended = n < buffer.len() || buffer.is_empty();
            r.consume(n);
            if ended {
                return Ok(());
            }
        },
        _ => Err(Bad::Broken),
    }
}

/// Skips to the end of a string. Code is full of escapes, so these are not
/// looked at one by one: a quote ends the string unless an odd number of
/// backslashes stands before it.
pub(super) fn skip_string<R: BufRead>(r: &mut R) -> Result<(), Bad> {
    let mut odd = false; // whether the buffer before ended in the middle of an escape
    loop {
        let buffer = r.fill_buf()?;
        if buffer.is_empty() {
            return Err(Bad::Unfinished);
        }
        // Most are short, and have no escapes.
        let near = stop(buffer).filter(|_| !odd);
        if let Some(at) = near.filter(|at| buffer[*at] == b'"') {
            r.consume(at + 1);
            return Ok(());
        }
        let is_odd = |end: usize| {
            let run = buffer[..end].iter().rev().take_while(|b| **b == b'\\').count();
            (run + usize::from(run == end && odd)) % 2 == 1
        };
        let mut quotes = memchr_iter(b'"', buffer);
        let end = quotes.find(|at| !is_odd(*at));
        let taken = end.unwrap_or(buffer.len());
        if let Some(newline) = memchr(b'\n', &buffer[..taken]) {
            r.consume(newline);
            return Err(Bad::Broken);
        }
        if end.is_some() {
            r.consume(taken + 1);
            return Ok(());
        }
        odd = is_odd(taken);
        r.consume(taken);
    }
}

fn skip_nested<R: BufRead>(r: &mut R) -> Result<(), Bad> {
    let mut depth = 1usize;
    loop {
        let buffer = r.fill_buf()?;
        if buffer.is_empty() {
            return Err(Bad::Unfinished);
        }
        let mut at = 0;
        let mut string = false;
        while at < buffer.len() {
            let byte = buffer[at];
            at += 1;
            match byte {
                b'{' | b'[' => depth += 1,
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        r.consume(at);
                        return Ok(());
                    }
                }
                b'"' => {
                    string = true;
                    break;
                }
                b'\n' => {
                    r.consume(at - 1);
                    return Err(Bad::Broken);
                }
                _ => {}
            }
        }
        r.consume(at);
        if string {
            skip_string(r)?;
        }
    }
}

/// Skips to the start of the next line; `false` if there is none.
pub fn skip_line<R: BufRead>(r: &mut R) -> io::Result<bool> {
    loop {
        let buffer = r.fill_buf()?;
        if buffer.is_empty() {
            return Ok(false);
        }
        match memchr(b'\n', buffer) {
            Some(at) => {
                r.consume(at + 1);
                return Ok(true);
            }
            None => {
                let n = buffer.len();
                r.consume(n);
            }
        }
    }
}
