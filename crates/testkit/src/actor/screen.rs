//! The actor's terminal: what was said scrolls by; below it stand what it is doing, a dialog if
//! there is one, and the line that is being typed.
//!
//! It knows nothing of sessions. Lines of the lower block are cut to the width, so that it can be
//! drawn over; what was said is left to the terminal to fold.

use std::io::{self, IsTerminal, Write};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

const PASTE: &[u8] = b"\x1b[200~";
const PASTED: &[u8] = b"\x1b[201~";

/// What a person pressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pressed {
    /// Enter.
    Enter,
    /// Escape.
    Esc,
    /// Control-C.
    CtrlC,
    /// Control-D.
    CtrlD,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Backspace.
    Backspace,
    /// Anything to be typed, or pasted at once.
    Text(String),
}

/// The terminal, raw until this is dropped.
pub struct Screen {
    before: Termios,
    /// Lines of the lower block as it stands.
    drawn: usize,
    said: Vec<String>,
    /// Bytes of a key or paste that is not whole yet.
    pending: Vec<u8>,
}

impl Screen {
    /// Takes the terminal.
    pub fn take() -> io::Result<Self> {
        if !io::stdin().is_terminal() {
            return Err(io::Error::other("no terminal; use -p PROMPT"));
        }
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        show("\x1b[?2004h");
        Ok(Self { before, drawn: 0, said: Vec::new(), pending: Vec::new() })
    }

    /// Lets a line scroll by, above the block.
    pub fn say(&mut self, text: &str, block: &[String]) {
        let mut out = self.erased();
        for line in text.lines() {
            let line: String = line.chars().filter(|c| !c.is_control()).collect();
            out += &format!("{line}\r\n");
            self.said.push(line);
        }
        self.draw(out, block);
    }

    /// Draws the block anew.
    pub fn update(&mut self, block: &[String]) {
        let out = self.erased();
        self.draw(out, block);
    }

    /// Draws everything anew, on a terminal that may have another size.
    pub fn redraw(&mut self, block: &[String]) {
        let mut out = "\x1b[H\x1b[2J\x1b[3J".to_owned();
        self.said.iter().for_each(|line| out += &format!("{line}\r\n"));
        self.draw(out, block);
    }

    /// Forgets what was said.
    pub fn clear(&mut self) {
        self.said.clear();
    }

    fn erased(&self) -> String {
        match self.drawn.saturating_sub(1) {
            0 => "\r\x1b[J".to_owned(),
            up => format!("\r\x1b[{up}A\x1b[J"),
        }
    }

    fn draw(&mut self, mut out: String, block: &[String]) {
        let width = tcgetwinsize(io::stdout()).map_or(80, |w| usize::from(w.ws_col).max(20));
        let cut = |line: &String| line.chars().take(width - 1).collect::<String>();
        out += &block.iter().map(cut).collect::<Vec<_>>().join("\r\n");
        self.drawn = block.len();
        show(&out);
    }

    /// Reads what was pressed since the last time; `None` when the terminal is gone.
    pub fn pressed(&mut self) -> Option<Vec<Pressed>> {
        let mut bytes = [0; 4096];
        let n = rustix::io::read(io::stdin(), &mut bytes).ok().filter(|n| *n > 0)?;
        self.pending.extend_from_slice(&bytes[..n]);
        let mut keys = Vec::new();
        while let Some((key, taken)) = first(&self.pending) {
            self.pending.drain(..taken);
            keys.extend(key);
        }
        Some(keys)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        show("\x1b[?2004l\r\n");
        // The terminal may be gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn show(text: &str) {
    let mut out = io::stdout().lock();
    // A terminal that went away shows nothing; its end comes as a signal.
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// The first key in what was read, if it is whole, and how many bytes it takes.
fn first(bytes: &[u8]) -> Option<(Option<Pressed>, usize)> {
    if let Some(pasted) = bytes.strip_prefix(PASTE) {
        let end = pasted.windows(PASTED.len()).position(|w| w == PASTED)?;
        let text = String::from_utf8_lossy(&pasted[..end]).into_owned();
        return Some((Some(Pressed::Text(text)), PASTE.len() + end + PASTED.len()));
    }
    if let Some(rest) = bytes.strip_prefix(b"\x1b[") {
        let end = rest.iter().position(|b| (0x40..=0x7e).contains(b))?;
        let key = match rest[end] {
            b'A' => Some(Pressed::Up),
            b'B' => Some(Pressed::Down),
            _ => None,
        };
        return Some((key, 2 + end + 1));
    }
    let key = match bytes.first()? {
        b'\r' | b'\n' => Pressed::Enter,
        0x1b => Pressed::Esc,
        0x03 => Pressed::CtrlC,
        0x04 => Pressed::CtrlD,
        0x7f | 0x08 => Pressed::Backspace,
        byte if *byte < 0x20 => return Some((None, 1)),
        _ => {
            let end = bytes.iter().position(|b| *b < 0x20 || *b == 0x7f).unwrap_or(bytes.len());
            return Some((Some(Pressed::Text(String::from_utf8_lossy(&bytes[..end]).into_owned())), end));
        }
    };
    Some((Some(key), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paste_is_one_text_and_a_key_after_it_is_a_key() {
        let (key, taken) = first(b"\x1b[200~two\nlines\x1b[201~\r").unwrap();
        assert_eq!((key, taken), (Some(Pressed::Text("two\nlines".into())), 21));
        assert_eq!(first(b"\x1b[200~not yet who"), None);
        assert_eq!(first(b"\x1b"), Some((Some(Pressed::Esc), 1)));
        assert_eq!(first(b"\x1b[A1"), Some((Some(Pressed::Up), 3)));
        assert_eq!(first(b"1\r"), Some((Some(Pressed::Text("1".into())), 1)));
    }
}
