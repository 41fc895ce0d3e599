//! What viewers and a shim say to each other.
//!
//! # Theory of operation
//!
//! A unix stream of frames: one byte of kind, four of length (little-endian), the
//! payload. The first frame each way is a hello: a mark, the protocol's number, the
//! program's version. Both then speak the lower of the two numbers, so a newer
//! program serves a shim that was started long before it, and the other way round.
//! A kind that is not known is skipped. A frame longer than [`LONGEST`] ends the
//! connection: nobody who keeps to this sends one.
//!
//! ```text
//! viewer -> shim   hello attach input resize detach ask
//! shim -> viewer   hello output exited dropped status
//! ```

use serde::{Deserialize, Serialize};

use crate::record::Process;

/// The number of this protocol.
pub const PROTOCOL: u16 = 1;
/// The longest payload.
pub const LONGEST: usize = 64 << 10;
/// The longest piece of output in one frame.
pub(crate) const CHUNK: usize = 16 << 10;
/// Kind and length.
pub(crate) const HEADER: usize = 5;
const MARK: &[u8; 6] = b"lariat";

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "told in the table above")]
#[repr(u8)]
pub enum Kind {
    Hello = 0,
    Attach = 1,
    Input = 2,
    Resize = 3,
    Detach = 4,
    Ask = 5,
    Output = 16,
    Exited = 17,
    Dropped = 18,
    Status = 19,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        use Kind::*;
        [Hello, Attach, Input, Resize, Detach, Ask, Output, Exited, Dropped, Status]
            .into_iter()
            .find(|k| *k as u8 == byte)
    }
}

/// The header of a frame.
pub(crate) fn header(kind: Kind, len: usize) -> [u8; HEADER] {
    let len = u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
    [kind as u8, len[0], len[1], len[2], len[3]]
}

/// Adds a frame.
pub(crate) fn frame(out: &mut Vec<u8>, kind: Kind, payload: &[u8]) {
    out.extend_from_slice(&header(kind, payload.len()));
    out.extend_from_slice(payload);
}

/// What stands at the front of a buffer.
pub(crate) enum Front {
    /// Not a whole frame yet.
    Part,
    /// A frame, by its kind if that is known, and how many bytes it is with its
    /// header.
    Whole(Option<Kind>, usize),
    /// Nothing that keeps to the protocol.
    Wrong,
}

/// Looks at the front of a buffer.
pub(crate) fn front(bytes: &[u8]) -> Front {
    let Some((head, rest)) = bytes.split_first_chunk::<HEADER>() else { return Front::Part };
    let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
    match len {
        len if len > LONGEST => Front::Wrong,
        len if rest.len() < len => Front::Part,
        len => Front::Whole(Kind::of(head[0]), HEADER + len),
    }
}

/// The first frame each way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// What the other side speaks at most.
    pub protocol: u16,
    /// The program it is.
    pub program: String,
}

impl Hello {
    pub(crate) fn ours() -> Vec<u8> {
        let mut payload = MARK.to_vec();
        payload.extend_from_slice(&PROTOCOL.to_le_bytes());
        payload.extend_from_slice(env!("CARGO_PKG_VERSION").as_bytes());
        let mut out = Vec::new();
        frame(&mut out, Kind::Hello, &payload);
        out
    }

    pub(crate) fn parse(payload: &[u8]) -> Option<Hello> {
        let (protocol, program) = payload.strip_prefix(MARK)?.split_first_chunk::<2>()?;
        let protocol = u16::from_le_bytes(*protocol);
        (protocol > 0).then(|| Hello { protocol, program: String::from_utf8_lossy(program).into_owned() })
    }
}

/// The size of a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Size {
    /// Height.
    pub rows: u16,
    /// Width.
    pub cols: u16,
}

impl Size {
    pub(crate) fn bytes(self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.rows.to_le_bytes(), self.cols.to_le_bytes());
        [a, b, c, d]
    }

    pub(crate) fn parse(payload: &[u8]) -> Option<Size> {
        let [a, b, c, d] = *payload.first_chunk()?;
        let size = Size { rows: u16::from_le_bytes([a, b]), cols: u16::from_le_bytes([c, d]) };
        (size.rows > 0 && size.cols > 0).then_some(size)
    }
}

/// A wish to see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attach {
    /// The viewer's terminal.
    pub size: Size,
    /// Only looks: its typing is refused and it never sets the size.
    pub watch: bool,
    /// How much of the past it wants first, in bytes.
    pub tail: u32,
}

impl Attach {
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut payload = self.size.bytes().to_vec();
        payload.push(u8::from(self.watch));
        payload.extend_from_slice(&self.tail.to_le_bytes());
        payload
    }

    pub(crate) fn parse(payload: &[u8]) -> Option<Attach> {
        let size = Size::parse(payload)?;
        let (watch, tail) = payload.get(4..)?.split_first()?;
        Some(Attach { size, watch: watch & 1 == 1, tail: u32::from_le_bytes(*tail.first_chunk()?) })
    }
}

/// What a shim answers to `ask`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The agent.
    pub agent: Process,
    /// Whether it has no terminal.
    pub headless: bool,
    /// The terminal's size now.
    pub size: Size,
    /// How many are attached, watchers among them.
    pub viewers: u32,
    /// How many of them only watch.
    pub watchers: u32,
    /// How many bytes the terminal has given so far.
    pub output: u64,
    /// How many of them could not be kept on disk.
    pub lost: u64,
    /// Whether a second holder of the terminal lives.
    pub kept: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_told_apart_wherever_they_are_cut() {
        let mut bytes = Vec::new();
        frame(&mut bytes, Kind::Input, b"abc");
        for cut in 0..bytes.len() {
            assert!(matches!(front(&bytes[..cut]), Front::Part), "{cut}");
        }
        bytes.push(b'x');
        assert!(matches!(front(&bytes), Front::Whole(Some(Kind::Input), 8)));
        assert!(matches!(front(&[200, 0, 0, 0, 0]), Front::Whole(None, 5)), "a later program's");
        assert!(matches!(front(&[2, 0, 0, 0, 1]), Front::Wrong));
    }

    #[test]
    fn what_was_said_is_heard() {
        let attach = Attach { size: Size { rows: 300, cols: 2 }, watch: true, tail: 70_000 };
        assert_eq!(Attach::parse(&attach.bytes()), Some(attach));
        assert_eq!(Attach::parse(&attach.bytes()[..8]), None);
        assert_eq!(Size::parse(&[0, 0, 1, 0]), None, "no rows");
        let hello = Hello::parse(&Hello::ours()[HEADER..]).unwrap();
        assert_eq!((hello.protocol, hello.program.as_str()), (PROTOCOL, env!("CARGO_PKG_VERSION")));
        assert_eq!(Hello::parse(b"lariat"), None);
        assert_eq!(Hello::parse(b"SSH-2.0-x"), None);
    }
}
