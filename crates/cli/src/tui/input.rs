//! What a person types and clicks, read from the bytes of a terminal.
//!
//! Plain bytes in, keys out: it reads nothing and waits for nothing. Whoever
//! feeds it asks how long an unfinished sequence may take, and then gives it up,
//! which is how a lone Esc is told from the beginning of an arrow.

use std::time::Duration;

/// One thing that a person did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Key {
    Char(char),
    Ctrl(char),
    Enter,
    Esc,
    Tab,
    BackTab,
    Backspace,
    Delete,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    /// Text that came at once.
    Paste(String),
    /// The left button, at a column and a row from 0.
    Press(u16, u16),
    WheelUp(u16, u16),
    WheelDown(u16, u16),
}

/// How long the rest of a sequence may take.
const ESCAPE: Duration = Duration::from_millis(40);
const PASTE: Duration = Duration::from_secs(1);
/// A paste larger than this is cut: nobody types a prompt of that size.
const LONGEST: usize = 1 << 20;

const BEGIN: &[u8] = b"\x1b[200~";
const END: &[u8] = b"\x1b[201~";

/// Bytes that are not keys yet.
#[derive(Default)]
pub struct Input {
    bytes: Vec<u8>,
}

enum Read {
    /// So many bytes, and the key they are, if one.
    Whole(usize, Option<Key>),
    /// The rest is not there yet.
    More,
}

impl Input {
    /// Takes what was read.
    pub fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// How long to wait for the rest of what was begun.
    pub fn patience(&self) -> Option<Duration> {
        match self.bytes.as_slice() {
            [] => None,
            bytes if bytes.starts_with(BEGIN) => Some(PASTE),
            _ => Some(ESCAPE),
        }
    }

    /// The next key that is whole.
    pub fn next(&mut self) -> Option<Key> {
        while !self.bytes.is_empty() {
            let Read::Whole(used, key) = read(&self.bytes) else { return None };
            self.bytes.drain(..used);
            if key.is_some() {
                return key;
            }
        }
        None
    }

    /// The rest did not come: what is there is all there is.
    pub fn give_up(&mut self) -> Option<Key> {
        let bytes = std::mem::take(&mut self.bytes);
        match bytes.strip_prefix(BEGIN) {
            Some(text) => Some(Key::Paste(String::from_utf8_lossy(text).into_owned())),
            None => (bytes == b"\x1b").then_some(Key::Esc),
        }
    }
}

fn read(bytes: &[u8]) -> Read {
    let one = |key| Read::Whole(1, Some(key));
    match bytes[0] {
        b'\r' | b'\n' => one(Key::Enter),
        b'\t' => one(Key::Tab),
        0x7f | 0x08 => one(Key::Backspace),
        0x1b => escape(bytes),
        0 => Read::Whole(1, None),
        control @ 1..0x20 => one(Key::Ctrl(char::from(control | 0x60))),
        first => {
            let length = match first {
                0..0x80 => 1,
                0xc0..0xe0 => 2,
                0xe0..0xf0 => 3,
                0xf0..0xf8 => 4,
                _ => return Read::Whole(1, None),
            };
            let Some(whole) = bytes.get(..length) else { return Read::More };
            match std::str::from_utf8(whole).ok().and_then(|text| text.chars().next()) {
                Some(c) if !lariat_core::text::is_hidden(c) => Read::Whole(length, Some(Key::Char(c))),
                Some(_) => Read::Whole(length, None),
                None => Read::Whole(1, None),
            }
        }
    }
}

fn escape(bytes: &[u8]) -> Read {
    match bytes.get(1) {
        None => Read::More,
        Some(b'[') if bytes.starts_with(BEGIN) => match bytes.windows(END.len()).position(|w| w == END) {
            Some(at) => {
                let text = String::from_utf8_lossy(&bytes[BEGIN.len()..at]).into_owned();
                Read::Whole(at + END.len(), Some(Key::Paste(text)))
            }
            None if bytes.len() > LONGEST => Read::Whole(bytes.len(), None),
            None => Read::More,
        },
        Some(b'[') => {
            let Some(end) = bytes[2..].iter().position(|b| (0x40..=0x7e).contains(b)) else {
                // No sequence is that long.
                return if bytes.len() > 64 { Read::Whole(bytes.len(), None) } else { Read::More };
            };
            Read::Whole(end + 3, control(&bytes[2..end + 2], bytes[end + 2]))
        }
        Some(b'O') => match bytes.get(2) {
            None => Read::More,
            Some(last) => Read::Whole(3, control(b"", *last)),
        },
        // A key right after Esc, or with Alt: two keys.
        Some(_) => Read::Whole(1, Some(Key::Esc)),
    }
}

fn control(parameters: &[u8], last: u8) -> Option<Key> {
    if let Some(mouse) = parameters.strip_prefix(b"<") {
        let numbers: Vec<u16> =
            std::str::from_utf8(mouse).ok()?.split(';').map(|n| n.parse().ok()).collect::<Option<_>>()?;
        let [button, x, y] = numbers[..] else { return None };
        let (x, y) = (x.saturating_sub(1), y.saturating_sub(1));
        return match (button, last) {
            (0, b'M') => Some(Key::Press(x, y)),
            (64, b'M') => Some(Key::WheelUp(x, y)),
            (65, b'M') => Some(Key::WheelDown(x, y)),
            _ => None,
        };
    }
    let first = parameters.split(|b| *b == b';').next().unwrap_or_default();
    Some(match (last, first) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', _) => Key::Right,
        (b'D', _) => Key::Left,
        (b'H', _) | (b'~', b"1" | b"7") => Key::Home,
        (b'F', _) | (b'~', b"4" | b"8") => Key::End,
        (b'Z', _) => Key::BackTab,
        (b'~', b"3") => Key::Delete,
        (b'~', b"5") => Key::PageUp,
        (b'~', b"6") => Key::PageDown,
        _ => return None,
    })
}

/// A line that is being typed.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Line {
    text: String,
    /// Where the next character goes, in bytes.
    at: usize,
}

impl Line {
    /// One that is there already.
    pub fn of(text: impl Into<String>) -> Line {
        let text = text.into();
        Line { at: text.len(), text }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// What stands before the cursor.
    pub fn before(&self) -> &str {
        &self.text[..self.at]
    }

    /// Whether the key was one for a line.
    pub fn key(&mut self, key: &Key) -> bool {
        let left = |text: &str| text.chars().next_back().map_or(0, char::len_utf8);
        match key {
            Key::Char(c) => {
                self.text.insert(self.at, *c);
                self.at += c.len_utf8();
            }
            Key::Paste(text) => {
                let text = text.replace("\r\n", "\n").replace('\r', "\n");
                self.text.insert_str(self.at, &text);
                self.at += text.len();
            }
            Key::Backspace => {
                let gone = left(&self.text[..self.at]);
                self.at -= gone;
                self.text.replace_range(self.at..self.at + gone, "");
            }
            Key::Delete => {
                let gone = self.text[self.at..].chars().next().map_or(0, char::len_utf8);
                self.text.replace_range(self.at..self.at + gone, "");
            }
            Key::Left => self.at -= left(&self.text[..self.at]),
            Key::Right => self.at += self.text[self.at..].chars().next().map_or(0, char::len_utf8),
            Key::Home | Key::Ctrl('a') => self.at = 0,
            Key::End | Key::Ctrl('e') => self.at = self.text.len(),
            Key::Ctrl('u') => {
                self.text.replace_range(..self.at, "");
                self.at = 0;
            }
            Key::Ctrl('w') => {
                let kept = self.text[..self.at].trim_end();
                let from = kept.rfind(char::is_whitespace).map_or(0, |at| at + 1);
                self.text.replace_range(from..self.at, "");
                self.at = from;
            }
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let mut input = Input::default();
        input.take(bytes);
        std::iter::from_fn(|| input.next()).collect()
    }

    #[test]
    fn keys_are_told_apart_however_they_are_cut() {
        let bytes =
            "jé\x1b[A\x1bOB\x1b[5~\x1b[<0;12;3M\x1b[<0;12;3m\x1b[<65;1;1M\x1b[200~a\nb\x1b[201~\r\x03".as_bytes();
        let wanted = vec![
            Key::Char('j'),
            Key::Char('é'),
            Key::Up,
            Key::Down,
            Key::PageUp,
            Key::Press(11, 2),
            Key::WheelDown(0, 0),
            Key::Paste("a\nb".into()),
            Key::Enter,
            Key::Ctrl('c'),
        ];
        assert_eq!(keys(bytes), wanted);
        for cut in 0..bytes.len() {
            let mut input = Input::default();
            let mut seen = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                input.take(part);
                seen.extend(std::iter::from_fn(|| input.next()));
            }
            assert_eq!(seen, wanted, "cut at {cut}");
        }
    }

    #[test]
    fn a_lone_escape_is_a_key_once_nothing_follows() {
        let mut input = Input::default();
        input.take(b"\x1b");
        assert_eq!((input.next(), input.patience()), (None, Some(ESCAPE)));
        assert_eq!((input.give_up(), input.patience()), (Some(Key::Esc), None));
        assert_eq!(keys(b"\x1bq"), [Key::Esc, Key::Char('q')]);
        // What is nonsense is no key, and does not swallow the next one.
        assert_eq!(keys(b"\x1b[99;1xj\xffk"), [Key::Char('j'), Key::Char('k')]);
    }

    #[test]
    fn a_line_is_typed_and_mended() {
        let mut line = Line::default();
        for key in [Key::Char('a'), Key::Char('é'), Key::Left, Key::Char('b'), Key::End, Key::Backspace, Key::Char(' ')]
        {
            assert!(line.key(&key));
        }
        assert_eq!((line.text(), line.before()), ("ab ", "ab "));
        line.key(&Key::Paste("x y".into()));
        line.key(&Key::Ctrl('w'));
        assert_eq!(line.text(), "ab x ");
        line.key(&Key::Ctrl('u'));
        assert_eq!(line.text(), "");
    }
}
