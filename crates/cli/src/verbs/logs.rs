//! `lariat logs`: what a launched session wrote.
//!
//! A session without a terminal has two files, shown as they are but for what
//! would act on a terminal. A terminal's bytes are a picture that was drawn over
//! and over: they are drawn here too, on a screen that is none, and shown as the
//! lines that scrolled off it and those that still stand on it. Whoever follows is
//! shown what stands there whenever it is at rest, and again what was drawn over it.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _, Read as _, Seek as _, SeekFrom, Write as _};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lariat_adapters::look::Scope;
use lariat_core::Untrusted;
use lariat_engine::launched::{All, Launched};
use lariat_shim::client::Client;
use lariat_shim::record;
use lariat_shim::ring::Output;
use lariat_sys::watch::Watch;
use serde::Serialize;

use crate::Done;
use crate::args::{Common, Logs};
use crate::output::{Failure, Out, leave_with_the_reader};
use crate::verbs::{find, question};

/// How many lines are kept of a terminal.
const LINES: usize = 100_000;
/// A terminal on which nothing was drawn for so long is at rest.
const AT_REST: Duration = Duration::from_millis(300);

#[derive(Serialize)]
struct Line<'a> {
    stream: &'static str,
    line: &'a Untrusted,
}

pub fn run(args: &Logs, common: &Common, out: &mut Out) -> Done {
    if args.raw && out.json {
        return Err(Failure::Usage("--raw gives bytes as they are, which are no JSON; leave one of both out".into()));
    }
    let (answer, at) = find(&args.target, common)?;
    let session = &answer.listing.sessions[at];
    let launched = All::read(&question(common, Scope::Live).places).take(session);
    let why = "lariat did not launch it; `lariat peek` shows its conversation";
    let launched = launched.ok_or_else(|| Failure::Refused(format!("{}: {why}", session.id.row())))?;
    if args.raw {
        return raw(&launched);
    }
    let mut sources: Vec<Box<dyn Source>> = if launched.record.launch.headless {
        vec![Box::new(Written::new(&launched, "stdout")), Box::new(Written::new(&launched, "stderr"))]
    } else {
        vec![Box::new(Drawn::new(&launched)?)]
    };
    if args.follow {
        leave_with_the_reader();
    }
    let mut watch = Watch::new();
    watch.path(&launched.folder);
    let mut skip = args.lines.map(|_| true);
    loop {
        let ended = record::read::<record::Exit>(&launched.folder, record::EXIT).ok().flatten().is_some();
        let last = ended || !args.follow;
        for source in &mut sources {
            let mut lines = source.more(last)?;
            if skip.is_some() {
                lines.drain(..lines.len().saturating_sub(args.lines.unwrap_or(usize::MAX)));
            }
            for line in lines {
                show(source.name(), &Untrusted::new(line), out)?;
            }
        }
        skip = None;
        out.flush()?;
        if last {
            return Ok(0);
        }
        let moves = sources.iter().any(|source| source.moves());
        watch.sleep(if moves { AT_REST } else { Duration::from_secs(2) }, Duration::from_millis(20))?;
    }
}

fn show(stream: &'static str, line: &Untrusted, out: &mut Out) -> Result<(), Failure> {
    if out.json {
        return out.json(&Line { stream, line });
    }
    if stream == "stderr" {
        crate::output::complain(line.row());
        return Ok(());
    }
    Ok(out.line(line.row())?)
}

/// The bytes of a terminal, or of the first file.
fn raw(launched: &Launched) -> Done {
    if io::stdout().is_terminal() {
        return Err(Failure::Usage("--raw would act on your terminal; send it to a file or a pipe".into()));
    }
    let bytes = if launched.record.launch.headless {
        lariat_sys::file::read_small(&launched.folder.join("stdout"), u64::MAX)?
    } else {
        Output::open(&launched.folder)?.tail(u64::MAX)?.bytes
    };
    io::stdout().lock().write_all(&bytes)?;
    Ok(0)
}

/// Something that lines come from.
trait Source {
    /// What it is called.
    fn name(&self) -> &'static str;
    /// The lines since the last time; with `last`, also what is not a whole one.
    fn more(&mut self, last: bool) -> io::Result<Vec<String>>;
    /// Whether there is something that is told only when it is at rest.
    fn moves(&self) -> bool {
        false
    }
}

/// A file that an agent writes.
struct Written {
    name: &'static str,
    path: PathBuf,
    offset: u64,
    rest: Vec<u8>,
}

impl Written {
    fn new(launched: &Launched, name: &'static str) -> Written {
        Written { name, path: launched.folder.join(name), offset: 0, rest: Vec::new() }
    }
}

impl Source for Written {
    fn name(&self) -> &'static str {
        self.name
    }

    fn more(&mut self, last: bool) -> io::Result<Vec<String>> {
        match lariat_sys::file::open(&self.path) {
            Ok((mut file, _)) => {
                file.seek(SeekFrom::Start(self.offset))?;
                self.offset += file.read_to_end(&mut self.rest)? as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let whole = self.rest.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let whole = if last { self.rest.len() } else { whole };
        let text: Vec<u8> = self.rest.drain(..whole).collect();
        Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
    }
}

/// A terminal, drawn where nobody sees it.
struct Drawn {
    folder: PathBuf,
    screen: Screen,
    offset: u64,
    /// Whether something was drawn at the last look; nothing before the first.
    moved: Option<bool>,
}

impl Drawn {
    fn new(launched: &Launched) -> Result<Drawn, Failure> {
        let launch = &launched.record.launch;
        let seen = Client::connect(&launch.socket).ok().and_then(|mut client| client.status().ok()).map(|s| s.size);
        let (rows, cols) = seen.map_or((launch.rows, launch.cols), |s| (s.rows, s.cols));
        Ok(Drawn { folder: launched.folder.clone(), screen: Screen::new(rows, cols, LINES), offset: 0, moved: None })
    }
}

impl Source for Drawn {
    fn name(&self) -> &'static str {
        "terminal"
    }

    fn more(&mut self, last: bool) -> io::Result<Vec<String>> {
        let output = Output::open(Path::new(&self.folder))?;
        let mut lines = Vec::new();
        let before = self.offset;
        loop {
            let piece = output.read(self.offset, 1 << 20)?;
            if piece.bytes.is_empty() {
                break;
            }
            self.offset = piece.at + piece.bytes.len() as u64;
            lines.extend(self.screen.draw(&piece.bytes));
        }
        let moved = self.offset != before;
        if last || !moved || self.moved.is_none() {
            lines.extend(self.screen.standing());
        }
        self.moved = Some(moved);
        Ok(lines.into_iter().map(|l| l.trim_end().to_owned()).collect())
    }

    fn moves(&self) -> bool {
        self.moved == Some(true)
    }
}

/// What is drawn on, and the lines that scrolled off it.
struct Screen {
    parser: vt100::Parser,
    /// How many lines that scrolled off are kept.
    most: usize,
    /// How many of them were given out.
    given: usize,
    /// The lines of the screen, from its top, that were given out while they stood there.
    early: VecDeque<String>,
}

impl Screen {
    fn new(rows: u16, cols: u16, most: usize) -> Screen {
        let size = |n: u16| NonZeroU16::new(n.max(2)).unwrap_or(NonZeroU16::MIN);
        Screen { parser: vt100::Parser::new(size(rows), size(cols), most), most, given: 0, early: VecDeque::new() }
    }

    /// Draws, and gives out what scrolls off.
    fn draw(&mut self, bytes: &[u8]) -> Vec<String> {
        let half = (self.most / 2).max(1);
        let (mut lines, mut drawn) = (Vec::new(), 0);
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            // A byte is a line at most, so that none scrolls off unseen.
            for piece in line.chunks(half) {
                if drawn + piece.len() > half {
                    lines.extend(self.scrolled());
                    drawn = 0;
                }
                self.parser.process(piece);
                drawn += piece.len();
            }
            // Between lines, because nothing is half said there.
            if self.given >= half && line.ends_with(b"\n") {
                lines.extend(self.scrolled());
                self.forget();
            }
        }
        lines.extend(self.scrolled());
        lines
    }

    /// The lines that scrolled off since the last time.
    fn scrolled(&mut self) -> Vec<String> {
        let screen = self.parser.screen_mut();
        let (height, cols) = (usize::from(screen.size().0.get()), screen.size().1.get());
        let gone = screen.scrollback_len();
        let mut lines = Vec::new();
        let mut at = self.given.min(gone);
        while at < gone {
            screen.set_scrollback(gone - at);
            let rows: Vec<String> = screen.rows(0, cols).take(height.min(gone - at)).collect();
            at += rows.len();
            lines.extend(rows);
        }
        screen.set_scrollback(0);
        self.given = gone;
        lines.retain(|line| self.early.pop_front().as_ref() != Some(line));
        lines
    }

    /// Goes on with what stands on the screen, and without what scrolled off: once it
    /// holds the most there may be, nobody could tell what is new.
    fn forget(&mut self) {
        let screen = self.parser.screen();
        let (rows, cols) = screen.size();
        let state = screen.state_formatted();
        self.parser = vt100::Parser::new(rows, cols, self.most);
        self.parser.process(state.as_bytes());
        self.given = self.parser.screen().scrollback_len();
    }

    /// The lines that stand on the screen, but for those that stood there the last time.
    fn standing(&mut self) -> Vec<String> {
        let screen = self.parser.screen();
        let mut standing: VecDeque<String> = screen.rows(0, screen.size().1.get()).collect();
        while standing.back().is_some_and(|l| l.trim().is_empty()) {
            standing.pop_back();
        }
        let before = std::mem::replace(&mut self.early, standing);
        let lines = self.early.iter().enumerate();
        let new = lines.filter(|(i, line)| before.get(*i).is_none_or(|old| old != *line && !line.trim().is_empty()));
        new.map(|(_, line)| line.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_much_scrolls_off_every_line_is_given_once() {
        let mut screen = Screen::new(24, 80, 200);
        let said: Vec<String> = (0..5_000).map(|n| format!("line {n}")).collect();
        let text: String = said.iter().map(|line| format!("\x1b[1m{line}\x1b[m\r\n")).collect();
        let mut told = Vec::new();
        for piece in text.as_bytes().chunks(1_777) {
            told.extend(screen.draw(piece));
        }
        told.extend(screen.standing());
        assert_eq!(told, said);
    }

    #[test]
    fn whoever_follows_is_shown_what_stands_there_and_what_is_drawn_over_it() {
        let mut screen = Screen::new(4, 20, 200);
        assert!(screen.draw(b"one\r\ntwo\r\n\r\n> ").is_empty());
        assert_eq!(screen.standing(), ["one", "two", "", "> "]);
        assert!(screen.standing().is_empty(), "nothing moved");
        // The last line is drawn over, and an empty one is no news.
        assert!(screen.draw(b"\rthree\x1b[1A\x1b[1A\r\x1b[K\x1b[2B\r").is_empty());
        assert_eq!(screen.standing(), ["three"]);
        // What was told is not told again when it scrolls off.
        assert_eq!(screen.draw(b"\r\nfour\r\nfive\r\nsix\r\nseven\r\n"), ["four"]);
        assert_eq!(screen.standing(), ["five", "six", "seven"]);
        // What was drawn over since is.
        assert_eq!(screen.draw(b"\x1b[H\x1b[Kanew\x1b[4;1Height\r\n"), ["anew"]);
        assert_eq!(screen.standing(), ["eight"]);
    }
}
