//! The terminal: taking it, giving it back, and drawing on it.
//!
//! Whatever happens, it is given back as it was found: when we leave, when we are
//! told to end, and when our own code fails. It is drawn on cell by cell, only where
//! something has changed, in one write that a terminal which can shows at once.
//! Nothing but drawing is asked of it; what it cannot do it ignores.

use std::io::{self, Write as _};
use std::sync::Mutex;

use ratatui::backend::{Backend, ClearType, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};
use ratatui::style::{Color, Modifier};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The other screen, no cursor, the mouse, pastes as one.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b[0m\x1b[2J";
const LEAVE: &[u8] = b"\x1b[?2026l\x1b[?2004l\x1b[?1006l\x1b[?1000l\x1b[0m\x1b[?25h\x1b[?1049l";

/// How the terminal was, while we have it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

fn before() -> std::sync::MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Takes the terminal, or takes it back from whoever it was lent to.
pub fn enter() -> io::Result<()> {
    let mut before = before();
    let found = before.take().map_or_else(|| tcgetattr(io::stdin()), Ok)?;
    let mut raw = found.clone();
    raw.make_raw();
    *before = Some(found);
    tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
    write(ENTER)
}

/// Lets another program draw. Keys stay as they are: what is typed while that one
/// starts is for it, and is neither echoed nor a signal.
pub fn lend() -> io::Result<()> {
    write(LEAVE)
}

/// Gives it back, if we have it. A terminal that is gone wants nothing back.
pub fn leave() {
    if let Some(found) = before().take() {
        let _ = write(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &found);
    }
}

/// Gives it back before a failure of our own is told. A thread that looks for us
/// fails alone, and without a word on the screen: what it was to tell stays untold.
pub fn give_back_on_panic() {
    let main = std::thread::current().id();
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() == main {
            leave();
            told(panic);
        }
    }));
}

/// Puts text on the clipboard of whoever sits there, if the terminal does that.
pub fn copy(text: &str) -> io::Result<()> {
    write(format!("\x1b]52;c;{}\x07", base64(text.as_bytes())).as_bytes())
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let number = part.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - part.len()));
        for i in 0..4 {
            let digit = DIGITS[(number >> (18 - 6 * i)) as usize & 63];
            text.push(if i <= part.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// What is drawn, until it is shown.
pub struct Drawing {
    bytes: Vec<u8>,
    colour: bool,
    cursor: bool,
}

impl Drawing {
    pub fn new(colour: bool) -> Drawing {
        Drawing { bytes: Vec::new(), colour, cursor: false }
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = self.bytes.write_fmt(text); // memory takes every write
    }

    fn style(&mut self, cell: &Cell) {
        self.bytes.extend_from_slice(b"\x1b[0");
        let modifiers = [
            (Modifier::BOLD, 1),
            (Modifier::DIM, 2),
            (Modifier::ITALIC, 3),
            (Modifier::UNDERLINED, 4),
            (Modifier::REVERSED, 7),
        ];
        for (_, code) in modifiers.into_iter().filter(|(m, _)| cell.modifier.contains(*m)) {
            self.put(format_args!(";{code}"));
        }
        if self.colour {
            self.colour(cell.fg, 30);
            self.colour(cell.bg, 40);
        }
        self.bytes.push(b'm');
    }

    fn colour(&mut self, colour: Color, base: u8) {
        match colour {
            Color::Yellow => self.put(format_args!(";{}", base + 3)),
            Color::Magenta => self.put(format_args!(";{}", base + 5)),
            Color::Cyan => self.put(format_args!(";{}", base + 6)),
            Color::Indexed(n @ 0..8) => self.put(format_args!(";{}", base + n)),
            Color::Indexed(n @ 8..16) => self.put(format_args!(";{}", base + 52 + n)),
            Color::Indexed(n) => self.put(format_args!(";{};5;{n}", base + 8)),
            Color::Rgb(r, g, b) => self.put(format_args!(";{};2;{r};{g};{b}", base + 8)),
            _ => {}
        }
    }
}

impl Backend for Drawing {
    type Error = io::Error;

    fn draw<'a, I: Iterator<Item = (u16, u16, &'a Cell)>>(&mut self, content: I) -> io::Result<()> {
        let mut next = None;
        let mut last: Option<&Cell> = None;
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                self.put(format_args!("\x1b[{};{}H", y + 1, x + 1));
            }
            let same = |c: &Cell| (c.fg, c.bg, c.modifier) == (cell.fg, cell.bg, cell.modifier);
            if !last.is_some_and(same) {
                self.style(cell);
                last = Some(cell);
            }
            let symbol = cell.symbol();
            self.bytes.extend_from_slice(symbol.as_bytes());
            // How wide anything else is, terminals do not agree on: then the place is told again.
            next = (symbol.len() == 1).then_some((x + 1, y));
        }
        if last.is_some() {
            self.bytes.extend_from_slice(b"\x1b[0m");
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.cursor) {
            self.bytes.extend_from_slice(b"\x1b[?25l");
        }
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.cursor, true) {
            self.bytes.extend_from_slice(b"\x1b[?25h");
        }
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let at = position.into();
        self.put(format_args!("\x1b[{};{}H", at.y + 1, at.x + 1));
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.bytes.extend_from_slice(b"\x1b[0m\x1b[2J");
        Ok(())
    }

    fn clear_region(&mut self, _: ClearType) -> io::Result<()> {
        self.clear()
    }

    fn size(&self) -> io::Result<Size> {
        let seen = tcgetwinsize(io::stdout()).ok().filter(|w| w.ws_row > 0 && w.ws_col > 0);
        Ok(seen.map_or(Size::new(80, 24), |w| Size::new(w.ws_col, w.ws_row)))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::new(0, 0) })
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let drawn = std::mem::take(&mut self.bytes);
        write(&[b"\x1b[?2026h", drawn.as_slice(), b"\x1b[?2026l"].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_reads_back() {
        assert_eq!(
            ["", "f", "fo", "foo", "foob"].map(|t| base64(t.as_bytes())),
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]
        );
    }
}
