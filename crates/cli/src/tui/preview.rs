//! What the chosen session says, read beside the list.
//!
//! One thread reads what is wanted and tells it, then sleeps until that changes or
//! something else is wanted. What was said comes from the transcript, as `peek` gives
//! it; a terminal from the bytes that its shim kept, drawn where nobody sees it, and
//! only the cells of that are ever shown.

use std::collections::HashSet;
use std::io;
use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lariat_adapters::look::Places;
use lariat_adapters::talk::Said;
use lariat_core::text::is_hidden;
use lariat_core::{Session, Untrusted};
use lariat_engine::launched::{All, Launched};
use lariat_engine::peek;
use lariat_shim::client::Client;
use lariat_shim::ring::Output;
use lariat_sys::vigil::{Caller, Standing, Woken};
use ratatui::style::{Color, Modifier, Style};

use crate::tui::{Event, Teller};

/// How many replies are read.
const REPLIES: usize = 8;
const QUIET: Duration = Duration::from_millis(20);
const BURST: Duration = Duration::from_millis(100);
/// Nothing is missed by sleeping; this only bounds what a lost hint could cost.
const AT_MOST: Duration = Duration::from_secs(600);

/// What is wanted.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Wanted {
    #[default]
    Nothing,
    /// What it last said.
    Talk(Box<Session>),
    /// Its terminal.
    Terminal(Box<Session>),
}

impl Wanted {
    /// Whether both would be read from the same place.
    pub fn is_same(&self, other: &Wanted) -> bool {
        match (self, other) {
            (Wanted::Nothing, Wanted::Nothing) => true,
            (Wanted::Talk(a), Wanted::Talk(b)) => {
                a.target() == b.target()
                    && a.transcript == b.transcript
                    && (a.transcript.is_some() || a.updated_at == b.updated_at)
            }
            (Wanted::Terminal(a), Wanted::Terminal(b)) => a.target() == b.target(),
            _ => false,
        }
    }
}

/// One row of a terminal: what stands in each cell, and how.
pub type Cells = Vec<(String, Style)>;

/// What there is to show.
#[derive(Clone, PartialEq, Debug)]
pub enum What {
    Said(Vec<Said>),
    Screen(Vec<Cells>),
    /// There is nothing, and why.
    Not(String),
}

/// It, and of whom.
#[derive(Clone, PartialEq, Debug)]
pub struct Shown {
    pub id: Untrusted,
    pub what: What,
}

/// The one who reads.
pub struct Preview {
    wanted: Arc<Mutex<Wanted>>,
    caller: Caller,
}

impl Preview {
    pub fn start(places: Places, tell: Teller) -> io::Result<Preview> {
        let standing = Standing::new()?;
        let caller = standing.caller()?;
        let wanted = Arc::new(Mutex::new(Wanted::Nothing));
        let asked = Arc::clone(&wanted);
        let thread = std::thread::Builder::new().name("preview".into());
        thread.spawn(move || read(&places, standing, &asked, &tell))?;
        Ok(Preview { wanted, caller })
    }

    /// Wants something else.
    pub fn want(&self, wanted: Wanted) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = wanted;
        self.caller.call();
    }
}

fn read(places: &Places, mut standing: Standing, asked: &Mutex<Wanted>, tell: &Teller) {
    let mut drawn: Option<Drawn> = None;
    let mut told: Option<Shown> = None;
    loop {
        standing.forget();
        let wanted = asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let look = || look(places, &wanted, &mut standing, &mut drawn);
        let failed = || Some(What::Not("it could not be read: lariat's own code failed".into()));
        let what = catch_unwind(AssertUnwindSafe(look)).unwrap_or_else(|_| failed());
        let shown = match (&wanted, what) {
            (Wanted::Talk(session) | Wanted::Terminal(session), Some(what)) => {
                Some(Shown { id: session.target(), what })
            }
            _ => None,
        };
        if shown != told {
            told.clone_from(&shown);
            shown.into_iter().for_each(|shown| tell.tell(Event::Shown(shown)));
        }
        let slept = standing.sleep(AT_MOST).and_then(|woken| match woken {
            Woken::File => standing.settle(QUIET, BURST),
            other => Ok(other),
        });
        if slept.is_err() {
            std::thread::sleep(BURST);
        }
    }
}

fn look(places: &Places, wanted: &Wanted, standing: &mut Standing, drawn: &mut Option<Drawn>) -> Option<What> {
    let mut watch = |path: Option<PathBuf>| standing.watch(&path.into_iter().collect::<HashSet<_>>());
    match wanted {
        Wanted::Nothing => {
            watch(None);
            None
        }
        Wanted::Talk(session) | Wanted::Terminal(session) if session.elsewhere => {
            watch(None);
            let id = session.target().row();
            Some(What::Not(format!("it is on another machine: `lariat peek {id}` asks there, Enter attaches")))
        }
        Wanted::Talk(session) => {
            watch(session.transcript.as_ref().map(|t| peek::stirs(session.teller(), t)));
            let said = match &session.transcript {
                Some(transcript) => peek::last_replies(session.teller(), places, transcript, REPLIES)
                    .map(|talk| talk.said)
                    .map_err(|e| format!("its transcript could not be read: {e}")),
                None => peek::last_replies_of_gateway(session, places, REPLIES).unwrap_or(Ok(Vec::new())),
            };
            Some(said.map_or_else(|why| What::Not(Untrusted::new(why).row()), What::Said))
        }
        Wanted::Terminal(session) => {
            let Some(launched) = All::read(places).take(session) else {
                watch(None);
                return Some(What::Not("lariat did not launch it; it has a terminal of its own".into()));
            };
            watch(Some(launched.folder.clone()));
            if launched.record.launch.headless {
                return Some(What::Not("it has no terminal".into()));
            }
            Some(match Drawn::go_on(drawn, &launched) {
                Ok(cells) => What::Screen(cells),
                Err(e) => What::Not(Untrusted::new(format!("its terminal could not be read: {e}")).row()),
            })
        }
    }
}

/// A terminal, drawn where nobody sees it.
struct Drawn {
    folder: PathBuf,
    size: (u16, u16),
    offset: u64,
    screen: vt100::Parser,
}

impl Drawn {
    /// Draws what has come since, or all of it if it is another terminal by now.
    fn go_on(drawn: &mut Option<Drawn>, launched: &Launched) -> io::Result<Vec<Cells>> {
        let launch = &launched.record.launch;
        let seen = Client::connect(&launch.socket).ok().and_then(|mut client| client.status().ok()).map(|s| s.size);
        let size = seen.map_or((launch.rows, launch.cols), |s| (s.rows, s.cols));
        let fits = |d: &Drawn| d.folder == launched.folder && d.size == size;
        let mut now = drawn.take().filter(fits).unwrap_or_else(|| Drawn::new(&launched.folder, size));
        let output = Output::open(&now.folder)?;
        loop {
            let piece = output.read(now.offset, 1 << 20)?;
            if piece.bytes.is_empty() {
                break;
            }
            now.offset = piece.at + piece.bytes.len() as u64;
            now.screen.process(&piece.bytes);
        }
        let cells = cells(now.screen.screen());
        *drawn = Some(now);
        Ok(cells)
    }

    fn new(folder: &Path, size: (u16, u16)) -> Drawn {
        // One column is too few for a wide character.
        let least = |n: u16| NonZeroU16::new(n.max(2)).unwrap_or(NonZeroU16::MIN);
        let screen = vt100::Parser::new(least(size.0), least(size.1), 0);
        Drawn { folder: folder.to_owned(), size, offset: 0, screen }
    }
}

/// The cells of a screen, without the empty rows at its end.
fn cells(screen: &vt100::Screen) -> Vec<Cells> {
    let (rows, cols) = (screen.size().0.get(), screen.size().1.get());
    let cell = |row: u16, col: u16| {
        let cell = screen.cell(row, col)?;
        if cell.is_wide_continuation() {
            return None;
        }
        let text = if cell.has_contents() { cell.contents() } else { " " };
        Some((seen(text), style(cell)))
    };
    let mut all: Vec<Cells> = (0..rows).map(|row| (0..cols).filter_map(|col| cell(row, col)).collect()).collect();
    while all.last().is_some_and(|row| row.iter().all(|(text, style)| text == " " && style.bg.is_none())) {
        all.pop();
    }
    all
}

/// What may stand in a cell: nothing that acts on its neighbours, and no pile of marks.
fn seen(text: &str) -> String {
    const MARKS: usize = 4;
    if text.chars().any(is_hidden) { "·".into() } else { text.chars().take(1 + MARKS).collect() }
}

fn style(cell: &vt100::Cell) -> Style {
    let colour = |c: vt100::Color| match c {
        vt100::Color::Default => None,
        vt100::Color::Idx(n) => Some(Color::Indexed(n)),
        vt100::Color::Rgb(r, g, b) => Some(Color::Rgb(r, g, b)),
    };
    let mut style = Style { fg: colour(cell.fgcolor()), bg: colour(cell.bgcolor()), ..Style::default() };
    let modifiers = [
        (cell.bold(), Modifier::BOLD),
        (cell.dim(), Modifier::DIM),
        (cell.italic(), Modifier::ITALIC),
        (cell.underline(), Modifier::UNDERLINED),
        (cell.inverse(), Modifier::REVERSED),
    ];
    for (_, modifier) in modifiers.into_iter().filter(|(set, _)| *set) {
        style = style.add_modifier(modifier);
    }
    style
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_shown_by_its_cells_and_nothing_in_them_acts() {
        let mut parser = Drawn::new(Path::new("/"), (4, 1)).screen;
        assert_eq!(parser.screen().size().1.get(), 2, "no terminal is too narrow");
        parser = Drawn::new(Path::new("/"), (4, 12)).screen;
        parser.process(
            "\x1b[31mr\x1b[0m\u{202e}日x\x1b]52;c;eA==\x07\r\nb\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}".as_bytes(),
        );
        let cells = cells(parser.screen());
        assert_eq!(cells.len(), 2, "empty rows are left out");
        let text: Vec<String> = cells.iter().map(|row| row.iter().map(|(t, _)| t.as_str()).collect()).collect();
        assert!(text.iter().all(|t| !t.chars().any(is_hidden)), "{text:?}");
        assert!(text[0].contains('日') && text[0].contains('x'), "{text:?}");
        assert!(text[1].chars().filter(|c| *c == '\u{301}').count() <= 4, "{text:?}");
        assert_eq!(cells[0][0].1.fg, Some(Color::Indexed(1)));
    }
}
