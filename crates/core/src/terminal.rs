//! What of a session's output may not reach a person's terminal: writes to its
//! clipboard, and questions that make it type an answer into the session.
//!
//! What a session asked hours ago would be answered anew at every attach, by
//! every viewer. An escape sequence is passed on whole or not at all, however it
//! is cut up; what is too long to judge is passed on.

/// The longest sequence that is held back until it can be judged.
const LONGEST: usize = 4096;

/// Passes output on.
#[derive(Default)]
pub struct Guard {
    /// The sequence so far.
    held: Vec<u8>,
    /// A string is being dropped, and this was its last byte.
    dropping: Option<u8>,
}

/// What can be said of the beginning of a sequence.
enum Said {
    /// Not all of it is there.
    More,
    /// It may pass.
    Pass,
    /// It may not; all of it is there.
    Drop,
    /// It may not; it goes on to the end of its string.
    DropString,
}

impl Guard {
    /// What may pass of the next bytes.
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut rest = bytes;
        loop {
            if self.held.is_empty() && self.dropping.is_none() {
                let plain = memchr::memchr(0x1b, rest).unwrap_or(rest.len());
                out.extend_from_slice(&rest[..plain]);
                rest = &rest[plain..];
            }
            let Some((byte, after)) = rest.split_first() else { break };
            let byte = *byte;
            rest = after;
            if let Some(last) = self.dropping {
                // It ends with BEL, or with ESC and a backslash.
                self.dropping = (byte != 0x07 && !(last == 0x1b && byte == b'\\')).then_some(byte);
                continue;
            }
            if byte == 0x1b && self.held.last() != Some(&0x1b) && !self.is_string() {
                // A new sequence begins where the last one broke off.
                out.append(&mut self.held);
            }
            self.held.push(byte);
            match judge(&self.held) {
                Said::More if self.held.len() < LONGEST => {}
                Said::More | Said::Pass => out.append(&mut self.held),
                Said::Drop => self.held.clear(),
                Said::DropString => {
                    self.held.clear();
                    self.dropping = Some(byte);
                }
            }
        }
        out
    }

    fn is_string(&self) -> bool {
        matches!(self.held.get(1), Some(b']' | b'P'))
    }
}

fn judge(held: &[u8]) -> Said {
    match held {
        [0x1b] => Said::More,
        [0x1b, b'[', rest @ ..] => match rest.split_last() {
            None => Said::More,
            Some((last, parameters)) if (0x40..=0x7e).contains(last) => {
                if asks(parameters, *last) {
                    Said::Drop
                } else {
                    Said::Pass
                }
            }
            Some((0x20..=0x3f, _)) => Said::More,
            Some(_) => Said::Pass,
        },
        // A string for the program behind the terminal: asks for settings or names.
        [0x1b, b'P', b'$' | b'+', b'q', ..] => Said::DropString,
        [0x1b, b'P'] | [0x1b, b'P', b'$' | b'+'] => Said::More,
        [0x1b, b']', rest @ ..] => command(rest),
        _ => Said::Pass,
    }
}

/// Whether a control sequence makes a terminal answer.
fn asks(parameters: &[u8], last: u8) -> bool {
    let first: Vec<u8> = parameters.iter().copied().take_while(u8::is_ascii_digit).collect();
    match last {
        b'c' | b'n' | b'x' => true,
        b'u' => parameters == b"?",
        b'q' => parameters.starts_with(b">"),
        b'p' => parameters.ends_with(b"$"),
        b't' => matches!(first.as_slice(), b"11" | b"13" | b"14" | b"15" | b"16" | b"18" | b"19" | b"20" | b"21"),
        _ => false,
    }
}

/// An operating system command: 52 is the clipboard, a lone `?` asks.
fn command(rest: &[u8]) -> Said {
    let ended = matches!(rest, [.., 0x07] | [.., 0x1b, b'\\']);
    let text = rest.split(|b| matches!(b, 0x07 | 0x1b)).next().unwrap_or_default();
    match text {
        [b'5', b'2', b';', ..] => Said::DropString,
        _ if !ended => Said::More,
        _ if text.split(|b| *b == b';').skip(1).any(|part| part == b"?") => Said::Drop,
        _ => Said::Pass,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(text: &[u8], wanted: &[u8]) {
        assert_eq!(Guard::default().pass(text), wanted);
        for cut in 0..text.len() {
            let mut guard = Guard::default();
            let passed = [guard.pass(&text[..cut]), guard.pass(&text[cut..])].concat();
            assert_eq!(passed, wanted, "cut at {cut}");
        }
    }

    #[test]
    fn the_clipboard_is_out_of_reach() {
        let text = b"a\x1b[31mb\x1b]52;c;c2VjcmV0\x07c\x1b]0;title\x07d\x1b]52;c;eA==\x1b\\e";
        passes(text, b"a\x1b[31mbc\x1b]0;title\x07de");
    }

    #[test]
    fn nothing_makes_the_terminal_answer() {
        let text = b"a\x1b[cb\x1b[>0c\x1b[6n\x1b[?6nc\x1b]11;?\x07d\x1b]4;1;?\x1b\\e\x1b[?u\x1b[>q\x1bP$qm\x1b\\f\x1b[?2026$pg\x1b[14th";
        passes(text, b"abcdefgh");
    }

    #[test]
    fn what_draws_passes_as_it_is() {
        let text = b"\x1b[2J\x1b[1;1H\x1b[38;5;1mred\x1b[0m\x1b[?2026h\x1b[>1u\x1b[<u\x1b7\x1b8\x1b(B\x1b]8;;http://x\x1b\\y\x1b]8;;\x1b\\\x1b[8;24;80t";
        passes(text, text);
        // A sequence that breaks off does not swallow the next one.
        passes(b"\x1b[3\x1b[31mx\x1b]0;a", b"\x1b[3\x1b[31mx");
    }

    #[test]
    fn a_string_without_an_end_is_not_held_for_ever() {
        let long = [b"\x1b]0;".as_slice(), &vec![b'x'; 2 * LONGEST]].concat();
        assert!(Guard::default().pass(&long).len() > LONGEST);
    }
}
