//! What of a session's output may not reach a person's terminal: writes to its
//! clipboard and to whatever else lies outside it, and questions that make it
//! type an answer into the session.
//!
//! What a session asked hours ago would be answered anew at every attach, by
//! every viewer. Terminals differ in how they read what is malformed, so nothing
//! is passed on that has to be guessed at: a sequence goes out whole, in its
//! seven-bit form and with its end, or not at all, however it was cut up. The
//! states are those of the parser that terminals since the VT500 have in common.
//! It never changes what is plainly text, and never holds more than one short
//! sequence.

/// The longest sequence that is held back until it can be judged.
const LONGEST: usize = 4096;

/// The longest string that is dropped; what comes after is text again.
const LONGEST_DROPPED: usize = 1 << 20;

const BEL: u8 = 0x07;
const ENQ: u8 = 0x05;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;
const ESC: u8 = 0x1b;
const DEL: u8 = 0x7f;
/// What ends a string.
const ST: &[u8] = b"\x1b\\";

/// Passes output on.
#[derive(Default)]
pub struct Guard {
    state: State,
    /// The sequence so far.
    held: Vec<u8>,
    /// The ESC of this sequence ended a string, and its end is already out.
    ended: bool,
    /// How much of a string was dropped.
    dropped: usize,
    /// The beginning of a character of more than one byte.
    partial: Vec<u8>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Ground,
    Escape,
    EscapeIntermediate,
    CsiEntry,
    CsiParameter,
    CsiIntermediate,
    CsiIgnore,
    DcsEntry,
    DcsParameter,
    DcsIntermediate,
    /// Its beginning is out.
    DcsPass,
    Osc,
    /// Its beginning is out.
    OscPass,
    /// A string that is dropped: of a DCS, of an OSC (which BEL ends as well),
    /// or SOS, PM or APC, none of which draws without being answered.
    Ignore {
        bell: bool,
    },
}

impl Guard {
    /// What may pass of the next bytes.
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut rest = bytes;
        loop {
            if self.state == State::Ground && self.partial.is_empty() {
                // 0xc2 begins the controls of eight bits, as UTF-8 writes them.
                let plain = memchr::memchr3(ESC, ENQ, 0xc2, rest).unwrap_or(rest.len());
                let (run, after) = rest.split_at(plain);
                self.text(run, after.is_empty(), &mut out);
                rest = after;
            }
            let Some((byte, after)) = rest.split_first() else { break };
            self.byte(*byte, &mut out);
            rest = after;
        }
        out
    }

    /// A run of text without controls that matter. A character that `last` cuts
    /// off waits for its end.
    fn text(&mut self, run: &[u8], last: bool, out: &mut Vec<u8>) {
        let mut seen = 0;
        for chunk in run.utf8_chunks() {
            out.extend_from_slice(chunk.valid().as_bytes());
            seen += chunk.valid().len() + chunk.invalid().len();
            if last && seen == run.len() && unfinished(chunk.invalid()) {
                self.partial.extend_from_slice(chunk.invalid());
            } else {
                chunk.invalid().iter().for_each(|byte| self.stray(*byte, out));
            }
        }
    }

    /// One byte, in any state: puts characters together.
    fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            self.partial.push(byte);
            if unfinished(&self.partial) {
                return;
            }
            let mut character = std::mem::take(&mut self.partial);
            match std::str::from_utf8(&character).map(|text| text.chars().next()) {
                Ok(Some(control @ '\u{80}'..='\u{9f}')) => return self.eight_bits(control, out),
                Ok(_) => return self.character(&character, out),
                Err(_) => {
                    character.pop();
                    character.iter().for_each(|byte| self.stray(*byte, out));
                }
            }
        }
        if byte.is_ascii() {
            self.ascii(byte, out);
        } else if unfinished(&[byte]) {
            self.partial.push(byte);
        } else {
            self.stray(byte, out);
        }
    }

    /// A control of eight bits is the ESC and the letter that it stands for.
    fn eight_bits(&mut self, control: char, out: &mut Vec<u8>) {
        self.escape(out);
        if let Ok(code) = u8::try_from(u32::from(control)) {
            self.ascii(code - 0x40, out);
        }
    }

    /// A byte that is no part of a character. Some terminals take those below
    /// 0xa0 for controls, so they do not pass.
    fn stray(&mut self, byte: u8, out: &mut Vec<u8>) {
        let bytes = [byte];
        self.character(if byte < 0xa0 { &[] } else { &bytes }, out);
    }

    /// Something that is drawn, and has no place in a sequence outside its string.
    fn character(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        match self.state {
            State::Ground | State::OscPass | State::DcsPass => out.extend_from_slice(bytes),
            State::Osc => bytes.iter().for_each(|byte| self.hold(*byte, out)),
            State::DcsEntry | State::DcsParameter | State::DcsIntermediate => self.ignore(false),
            State::Ignore { .. } => self.drop_more(),
            State::Escape
            | State::EscapeIntermediate
            | State::CsiEntry
            | State::CsiParameter
            | State::CsiIntermediate
            | State::CsiIgnore => {
                self.reset();
                out.extend_from_slice(bytes);
            }
        }
    }

    fn ascii(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            ESC => return self.escape(out),
            // Asks who is there, in whatever state.
            ENQ => return,
            CAN | SUB => {
                out.push(byte);
                if matches!(self.state, State::OscPass | State::DcsPass) {
                    out.extend_from_slice(ST);
                }
                return self.reset();
            }
            _ => {}
        }
        match self.state {
            State::Ground => out.push(byte),
            State::Escape | State::EscapeIntermediate => self.in_escape(byte, out),
            State::CsiEntry | State::CsiParameter | State::CsiIntermediate | State::CsiIgnore => self.in_csi(byte, out),
            State::DcsEntry | State::DcsParameter | State::DcsIntermediate => self.in_dcs(byte, out),
            State::DcsPass => out.push(byte),
            State::Osc => match byte {
                BEL => self.end_command(&[BEL], out),
                0x00..0x20 | DEL => {}
                _ => self.hold(byte, out),
            },
            State::OscPass => match byte {
                BEL => {
                    out.push(BEL);
                    self.reset();
                }
                0x00..0x20 | DEL => {}
                _ => out.push(byte),
            },
            State::Ignore { bell: true } if byte == BEL => self.reset(),
            State::Ignore { .. } => self.drop_more(),
        }
    }

    /// ESC breaks off whatever there is, ends a string, and begins anew.
    fn escape(&mut self, out: &mut Vec<u8>) {
        self.ended = false;
        match self.state {
            // What is broken off does not go out: some terminals go on with it once they have done the one within.
            State::Ground
            | State::Escape
            | State::EscapeIntermediate
            | State::CsiEntry
            | State::CsiParameter
            | State::CsiIntermediate
            | State::CsiIgnore => self.reset(),
            State::Osc => {
                self.end_command(ST, out);
                self.ended = true;
            }
            State::OscPass | State::DcsPass => {
                out.extend_from_slice(ST);
                self.reset();
                self.ended = true;
            }
            State::DcsEntry | State::DcsParameter | State::DcsIntermediate | State::Ignore { .. } => {
                self.reset();
                self.ended = true;
            }
        }
        self.held.push(ESC);
        self.state = State::Escape;
    }

    fn in_escape(&mut self, byte: u8, out: &mut Vec<u8>) {
        let first = self.state == State::Escape;
        match byte {
            0x00..0x20 => out.push(byte),
            DEL => {}
            0x20..=0x2f => self.hold_in(State::EscapeIntermediate, byte, out),
            b'[' if first => self.hold_in(State::CsiEntry, byte, out),
            b']' if first => self.hold_in(State::Osc, byte, out),
            b'P' if first => self.hold_in(State::DcsEntry, byte, out),
            b'X' | b'^' | b'_' if first => self.ignore(false),
            b'\\' if first && self.ended => self.reset(),
            // Asks what it is.
            b'Z' if first => self.reset(),
            _ => {
                let between = self.held.get(1..).unwrap_or_default();
                // Away from UTF-8, half a character could be a control.
                if between.contains(&b'%') && (between, byte) != (b"%".as_slice(), b'G') {
                    self.reset();
                } else {
                    self.finish(&[byte], out);
                }
            }
        }
    }

    fn in_csi(&mut self, byte: u8, out: &mut Vec<u8>) {
        match (self.state, byte) {
            // Done at once, before the sequence around it.
            (_, 0x00..0x20) => out.push(byte),
            (_, DEL) => {}
            (State::CsiIgnore, 0x40..) => self.reset(),
            (State::CsiIgnore, _) => {}
            (_, 0x20..=0x2f) => self.hold_in(State::CsiIntermediate, byte, out),
            (State::CsiEntry | State::CsiParameter, 0x30..=0x3b) | (State::CsiEntry, 0x3c..=0x3f) => {
                self.hold_in(State::CsiParameter, byte, out);
            }
            (_, 0x30..=0x3f) => {
                self.reset();
                self.state = State::CsiIgnore;
            }
            _ if asks(self.held.get(2..).unwrap_or_default(), byte) => self.reset(),
            _ => self.finish(&[byte], out),
        }
    }

    fn in_dcs(&mut self, byte: u8, out: &mut Vec<u8>) {
        match (self.state, byte) {
            (_, 0x00..0x20 | DEL) => {}
            (_, 0x20..=0x2f) => self.hold_in(State::DcsIntermediate, byte, out),
            (State::DcsEntry | State::DcsParameter, 0x30..=0x3b) | (State::DcsEntry, 0x3c..=0x3f) => {
                self.hold_in(State::DcsParameter, byte, out);
            }
            (_, 0x40..) if draws(self.held.get(2..).unwrap_or_default(), byte) => {
                self.finish(&[byte], out);
                self.state = State::DcsPass;
            }
            _ => self.ignore(false),
        }
    }

    /// The end of an operating system command.
    fn end_command(&mut self, end: &[u8], out: &mut Vec<u8>) {
        if reaches_out(self.held.get(2..).unwrap_or_default()) {
            self.reset();
        } else {
            self.finish(end, out);
        }
    }

    fn hold_in(&mut self, state: State, byte: u8, out: &mut Vec<u8>) {
        self.state = state;
        self.hold(byte, out);
    }

    /// One more byte of the sequence. Of what is too long only a text passes.
    fn hold(&mut self, byte: u8, out: &mut Vec<u8>) {
        match self.state {
            State::OscPass => return out.push(byte),
            State::Ignore { .. } => return self.drop_more(),
            State::CsiIgnore => return,
            _ => self.held.push(byte),
        }
        if self.held.len() < LONGEST {
            return;
        }
        match self.state {
            State::Osc if is_text(self.held.get(2..).unwrap_or_default()) => {
                self.finish(&[], out);
                self.state = State::OscPass;
            }
            State::Osc => self.ignore(true),
            State::DcsEntry | State::DcsParameter | State::DcsIntermediate => self.ignore(false),
            State::CsiEntry | State::CsiParameter | State::CsiIntermediate => {
                self.reset();
                self.state = State::CsiIgnore;
            }
            _ => self.reset(),
        }
    }

    /// Passes on what is held, with this after it.
    fn finish(&mut self, end: &[u8], out: &mut Vec<u8>) {
        out.append(&mut self.held);
        out.extend_from_slice(end);
        self.reset();
    }

    fn ignore(&mut self, bell: bool) {
        self.reset();
        self.state = State::Ignore { bell };
    }

    fn drop_more(&mut self) {
        self.dropped += 1;
        if self.dropped >= LONGEST_DROPPED {
            self.reset();
        }
    }

    fn reset(&mut self) {
        self.state = State::Ground;
        self.held.clear();
        self.dropped = 0;
        self.ended = false;
    }
}

/// Whether this is the beginning of a character.
fn unfinished(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

/// What the digits say. One that is too large to be meant is `u32::MAX`.
fn number(digits: &[u8]) -> u32 {
    digits.iter().fold(0, |sum: u32, digit| match digit {
        b'0'..=b'9' if sum < 100_000 => sum * 10 + u32::from(digit - b'0'),
        _ => u32::MAX,
    })
}

/// The parameters of a sequence with their mark, and what stands before its last byte.
fn parts(before: &[u8]) -> (Option<u8>, &[u8], &[u8]) {
    let end = before.iter().position(|byte| *byte < 0x30).unwrap_or(before.len());
    let (parameters, intermediates) = before.split_at(end);
    match parameters.split_first() {
        Some((mark @ 0x3c..=0x3f, parameters)) => (Some(*mark), parameters, intermediates),
        _ => (None, parameters, intermediates),
    }
}

/// Whether a control sequence makes a terminal answer, or print on paper, or means another thing to each.
fn asks(before: &[u8], last: u8) -> bool {
    let (mark, parameters, intermediates) = parts(before);
    let mut numbers = parameters.split(|byte| matches!(byte, b';' | b':')).map(number);
    match (intermediates, last) {
        (_, b'c' | b'n') | ([_, _, ..], _) => true,
        // On the console it takes the next letter with it; elsewhere it is nothing.
        (b"", b'[') => true,
        (b"", b'x' | b'i') => true,
        (b"", b'u' | b'm' | b'S') => mark == Some(b'?'),
        (b"", b'q') => mark == Some(b'>'),
        // The window's size, place and titles.
        (b"", b't') => numbers.next().is_some_and(|first| matches!(first, 11..=21 | u32::MAX)),
        // Tells the size at once, and at every change.
        (b"", b'h') => mark == Some(b'?') && numbers.any(|mode| matches!(mode, 2048 | u32::MAX)),
        // Modes, states, checksums and macros, which can hold any of the others.
        (b"$", b'p' | b'u' | b'w') | (b"&" | b",", b'u') | (b"*", b'y' | b'z') => true,
        (b"+", b'x') | (b"\"", b'v') | (b"'", b'|') | (b"#", b'|' | b'R') => true,
        _ => false,
    }
}

/// Whether a device control string draws: pictures, fonts, states of the
/// screen. The others ask, program keys, or carry commands for something else.
fn draws(before: &[u8], last: u8) -> bool {
    let (mark, _, intermediates) = parts(before);
    matches!(
        (mark, intermediates, last),
        (None, b"", b'q') | (None, _, b'{') | (None, b"$", b't') | (Some(b'='), b"", b's')
    )
}

/// The number of an operating system command and its parts; `None` without one.
fn command(text: &[u8]) -> Option<(u32, &[u8])> {
    let digits = text.iter().position(|byte| *byte == b';').unwrap_or(text.len());
    let (digits, rest) = text.split_at(digits);
    (!digits.is_empty() && digits.iter().all(u8::is_ascii_digit)).then(|| (number(digits), rest))
}

/// Whether an operating system command is a title, a link or the like: its end,
/// however late it comes, does not change what it does.
fn is_text(text: &[u8]) -> bool {
    !reaches_out(text) && command(text).is_some_and(|(code, _)| matches!(code, 0..=2 | 7..=9 | 66 | 133 | 777 | 1337))
}

/// Whether an operating system command asks, or does something outside the terminal.
fn reaches_out(text: &[u8]) -> bool {
    let Some((code, rest)) = command(text) else {
        // A few old ones have a letter instead: titles, and the console's colours.
        return !matches!(text.first(), Some(b'l' | b'L' | b'I' | b'P' | b'R'));
    };
    let mut values = rest.split(|byte| *byte == b';').skip(1);
    match code {
        // Clipboards, calls into an editor, files, and what a terminal allows.
        52 | 5522 | 51 | 5113 | 60 | 61 | u32::MAX => true,
        50 => values.any(|value| value.starts_with(b"?")),
        21 | 99 => rest.windows(2).any(|pair| pair == b"=?") || values.any(|value| value == b"?"),
        1337 => values.next().is_some_and(|value| {
            let outside: [&[u8]; 6] = [b"Copy", b"EndCopy", b"Report", b"Request", b"Capabilities", b"OpenURL"];
            outside.iter().any(|name| value.starts_with(name))
        }),
        _ => values.any(|value| value == b"?"),
    }
}

#[cfg(test)]
#[path = "terminal_tests.rs"]
mod tests;
