//! What the screen knows: the last answer, what is chosen, what is being typed.
//!
//! It draws nothing, reads nothing and starts nothing. Sessions are remembered by
//! their id, so that a list which changes under a person's hand never makes a key
//! mean another one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lariat_core::{Session, Time, Untrusted};
use lariat_engine::list::Answer;
use lariat_sys::clock;

use crate::table::{self, Ages, Group, Row};
use crate::tui::act::{Ended, Order, Target};
use crate::tui::filter::Filter;
use crate::tui::form::Form;
use crate::tui::input::Line;
use crate::tui::preview::{Shown, Wanted};

/// Ages are told anew no more often than this.
const AGES: Duration = Duration::from_secs(60);
/// Two clicks within this time are one.
const DOUBLE: Duration = Duration::from_millis(500);

/// What fills the screen.
#[derive(Clone, PartialEq, Debug)]
pub enum View {
    List,
    /// The list, while a filter is typed.
    Filter,
    /// All that a session said, and a line to answer.
    Reply {
        id: Untrusted,
        /// The question that the line answers, if it is no prompt.
        asked: Option<Untrusted>,
        line: Line,
        scrolled: usize,
    },
    /// A question whose answer is yes by a key.
    Confirm(Confirm),
    /// What a session asks, to be denied with a reason.
    Deny {
        target: Target,
        asked: Untrusted,
        /// What it asks is in the very words of the request.
        by_hook: bool,
        line: Line,
    },
    Form(Form),
    Page(Page),
    /// Why a session's status is what it is.
    Explain {
        id: Untrusted,
        scrolled: usize,
    },
    Help {
        line: Line,
        scrolled: usize,
    },
}

/// Something that is done once a person says so.
#[derive(Clone, PartialEq, Debug)]
pub struct Confirm {
    pub question: String,
    pub order: Order,
    /// The key that asked; pressed again, it is a yes.
    pub key: char,
    /// Whose request it answers, and which: if it asks something else by then, nothing is done.
    pub asked: Option<(String, Untrusted)>,
}

/// What a command printed.
#[derive(Clone, PartialEq, Debug)]
pub struct Page {
    pub title: &'static str,
    /// The command that fills it.
    pub number: u64,
    pub order: Order,
    pub lines: Vec<String>,
    pub done: bool,
    pub scrolled: usize,
    /// What Enter does.
    pub then: Option<Order>,
}

/// What a person typed to a session.
#[derive(Clone, PartialEq, Debug)]
pub struct Typed {
    pub id: Untrusted,
    /// The question that it answers, if it is no prompt.
    pub asked: Option<Untrusted>,
    pub text: String,
}

/// How something went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub well: bool,
    pub text: String,
}

/// Something under way.
#[derive(Clone, PartialEq, Debug)]
pub struct Running {
    pub number: u64,
    pub order: Order,
    /// What it last printed.
    pub said: String,
    /// What it carries to a session.
    typed: Option<Typed>,
}

/// All of it.
pub struct App {
    home: String,
    pub answer: Option<Arc<Answer>>,
    /// Those that are shown, by their place in the answer.
    pub shown: Vec<usize>,
    pub rows: Vec<Row>,
    pub selected: Option<Untrusted>,
    /// Another one is chosen than was seen by whoever typed what comes next, and not by a key.
    pub moved: bool,
    pub last: Option<Untrusted>,
    /// Where the chosen one stands among the rows of sessions.
    ordinal: usize,
    pub top: usize,
    pub line: Line,
    pub filter: Filter,
    pub view: View,
    pub all: bool,
    /// The preview shows its terminal.
    pub terminal: bool,
    /// How far the preview is scrolled up from its end.
    pub scrolled: usize,
    pub preview: Option<Shown>,
    pub message: Option<Message>,
    pub running: Vec<Running>,
    /// What was typed to sessions that would not take it.
    unsent: Vec<Typed>,
    next: u64,
    /// Select this one when it appears.
    awaited: Option<String>,
    /// When the ages should be told anew.
    pub stale: Option<Instant>,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// Columns that the rows were made for.
    width: u16,
    clicked: Option<(Instant, Untrusted)>,
}

impl App {
    pub fn new(size: (u16, u16)) -> App {
        App {
            home: std::env::var("HOME").unwrap_or_default(),
            answer: None,
            shown: Vec::new(),
            rows: Vec::new(),
            selected: None,
            moved: false,
            last: None,
            ordinal: 0,
            top: 0,
            line: Line::default(),
            filter: Filter::default(),
            view: View::List,
            all: false,
            terminal: false,
            scrolled: 0,
            preview: None,
            message: None,
            running: Vec::new(),
            unsent: Vec::new(),
            next: 0,
            awaited: None,
            stale: None,
            size,
            width: 0,
            clicked: None,
        }
    }

    fn sessions(&self) -> &[Box<Session>] {
        self.answer.as_ref().map_or(&[], |a| &a.listing.sessions)
    }

    pub fn find(&self, id: &Untrusted) -> Option<&Session> {
        self.sessions().iter().find(|s| s.target() == *id).map(|s| &**s)
    }

    /// The one that is chosen.
    pub fn session(&self) -> Option<&Session> {
        self.selected.as_ref().and_then(|id| self.find(id))
    }

    /// The session of a row.
    fn of_row(&self, row: usize) -> Option<&Session> {
        match self.rows.get(row)? {
            Row::Session(i, _) => Some(&*self.sessions()[*self.shown.get(*i)?]),
            _ => None,
        }
    }

    /// The rows that are sessions.
    pub fn selectable(&self) -> Vec<usize> {
        (0..self.rows.len()).filter(|i| matches!(self.rows[*i], Row::Session(..))).collect()
    }

    /// The row of the chosen one.
    pub fn selected_row(&self) -> Option<usize> {
        let id = self.selected.as_ref()?;
        (0..self.rows.len()).find(|row| self.of_row(*row).is_some_and(|s| s.target() == *id))
    }

    /// Takes a new answer.
    pub fn looked(&mut self, answer: Arc<Answer>) {
        self.answer = Some(answer);
        self.refresh();
        self.choose_awaited();
        // A line that is typed stays: the next letters would be commands.
        if let View::Confirm(Confirm { asked: Some((id, asked)), .. }) = &self.view
            && !self.still_asks(id, asked)
        {
            self.view = View::List;
            self.refuse("what it asked has changed meanwhile, so nothing was answered; look again");
        }
    }

    /// Whether a session asks what it asked.
    pub fn still_asks(&self, id: &str, asked: &Untrusted) -> bool {
        self.find(&Untrusted::new(id)).is_some_and(|s| s.reason == *asked)
    }

    /// Chooses the one that was just started, once it is there.
    fn choose_awaited(&mut self) {
        let awaited = |s: &&Session| s.handle.is_some() && s.handle == self.awaited;
        if let Some(id) = self.sessions().iter().map(|s| &**s).find(awaited).map(|s| s.target()) {
            self.awaited = None;
            self.moved = true;
            self.choose(id);
        }
    }

    /// Chooses which are shown, and makes their rows.
    pub fn refresh(&mut self) {
        let (width, now) = (self.list_width(), Time(clock::now_ms()));
        self.width = width;
        let Some(answer) = self.answer.clone() else { return };
        let listing = &answer.listing;
        let fits = |i: &usize| self.filter.fits(&listing.sessions[*i]);
        self.shown = (0..listing.sessions.len()).filter(fits).collect();
        let shown: Vec<&Session> = self.shown.iter().map(|i| &*listing.sessions[*i]).collect();
        let unbound = if self.filter.is_empty() { listing.unbound.as_slice() } else { &[] };
        let ages = Ages { now, coarse: true };
        self.rows = table::all_rows(&shown, unbound, ages, &self.home, width.into());
        let soonest = shown.iter().filter_map(|s| table::aged(s)).map(|at| changes_in(at, now)).min();
        self.stale = soonest.map(|soonest| Instant::now() + soonest.max(AGES));
        match self.selected_row() {
            Some(row) => self.ordinal = self.selectable().iter().position(|r| *r == row).unwrap_or(0),
            None => {
                // The one that stands where the lost one stood.
                self.moved |= self.selected.is_some();
                let rows = self.selectable();
                self.ordinal = self.ordinal.min(rows.len().saturating_sub(1));
                self.selected = rows.get(self.ordinal).and_then(|row| self.of_row(*row)).map(|s| s.target());
                self.scrolled = 0;
            }
        }
    }

    /// The terminal has another size.
    pub fn resized(&mut self, size: (u16, u16)) {
        self.size = size;
        if self.list_width() != self.width {
            self.refresh();
        }
    }

    pub fn is_wide(&self) -> bool {
        self.size.0 >= 120 && self.size.1 >= 10
    }

    /// Columns of the list.
    pub fn list_width(&self) -> u16 {
        if self.is_wide() { self.size.0 * 11 / 20 } else { self.size.0 }
    }

    /// Whether a preview stands beside or below the list.
    pub fn has_preview(&self) -> bool {
        self.is_wide() || self.size.1 >= 20
    }

    pub fn choose(&mut self, id: Untrusted) {
        if self.selected.as_ref() != Some(&id) {
            self.last = self.selected.replace(id);
            self.scrolled = 0;
        }
        if let Some(row) = self.selected_row() {
            self.ordinal = self.selectable().iter().position(|r| *r == row).unwrap_or(0);
        }
    }

    /// Moves by so many sessions; the ends hold.
    pub fn step(&mut self, by: isize) {
        let rows = self.selectable();
        let to = self.ordinal.saturating_add_signed(by).min(rows.len().saturating_sub(1));
        if let Some(id) = rows.get(to).and_then(|row| self.of_row(*row)).map(|s| s.target()) {
            self.choose(id);
        }
    }

    /// Chooses the one that was chosen before.
    pub fn back(&mut self) {
        let there = |id: &Untrusted| self.shown.iter().any(|i| self.sessions()[*i].target() == *id);
        match self.last.clone().filter(there) {
            Some(id) => self.choose(id),
            None => self.refuse("no session was chosen before this one"),
        }
    }

    /// Chooses the next one that needs a person.
    pub fn next_in_need(&mut self) {
        let rows = self.selectable();
        let after = (1..=rows.len()).map(|n| rows[(self.ordinal + n) % rows.len()]);
        let needs = |row: &usize| self.of_row(*row).is_some_and(|s| Group::of(s) == Group::NeedsYou);
        match after.into_iter().find(needs).and_then(|row| self.of_row(row)).map(|s| s.target()) {
            Some(id) => self.choose(id),
            None => self.refuse("no session needs you"),
        }
    }

    /// A click on a row of the list; whether it was the second of two.
    pub fn click(&mut self, row: usize) -> bool {
        let Some(id) = self.of_row(row).map(|s| s.target()) else { return false };
        let now = Instant::now();
        let twice = self.clicked.take().is_some_and(|(at, of)| of == id && now.duration_since(at) < DOUBLE);
        if !twice {
            self.clicked = Some((now, id.clone()));
        }
        self.choose(id);
        twice
    }

    /// What the preview should read.
    pub fn wanted(&self) -> Wanted {
        let id = match &self.view {
            View::Reply { id, .. } => Some(id),
            View::List | View::Filter | View::Confirm(_) | View::Deny { .. } if self.has_preview() => {
                self.selected.as_ref()
            }
            _ => None,
        };
        let session = id.and_then(|id| self.find(id)).cloned().map(Box::new);
        match session {
            None => Wanted::Nothing,
            Some(session) if self.terminal => Wanted::Terminal(session),
            Some(session) => Wanted::Talk(session),
        }
    }

    pub fn refuse(&mut self, why: impl Into<String>) {
        self.message = Some(Message { well: false, text: why.into() });
    }

    pub fn tell(&mut self, what: impl Into<String>) {
        self.message = Some(Message { well: true, text: what.into() });
    }

    /// Something begins; its number.
    pub fn begin(&mut self, order: Order) -> u64 {
        self.next += 1;
        self.message = None;
        self.running.push(Running { number: self.next, order, said: String::new(), typed: None });
        self.next
    }

    /// What was typed to a session begins its way there; its number.
    pub fn begin_to_say(&mut self, order: Order, typed: Typed) -> u64 {
        let number = self.begin(order);
        self.running.iter_mut().filter(|r| r.number == number).for_each(|r| r.typed = Some(typed.clone()));
        number
    }

    /// What was typed to a session that would not take it, once.
    pub fn take_unsent(&mut self, id: &Untrusted) -> Option<Typed> {
        let at = self.unsent.iter().position(|t| t.id == *id)?;
        Some(self.unsent.remove(at))
    }

    /// Gives back what a session would not take: to its line, if nothing else was begun there.
    fn give_back(&mut self, typed: Typed) {
        match &mut self.view {
            View::Reply { id, asked, line, .. } if *id == typed.id && line.text().is_empty() => {
                (*asked, *line) = (typed.asked, Line::of(typed.text));
            }
            _ => self.unsent.push(typed),
        }
    }

    /// A line of what is under way.
    pub fn said(&mut self, number: u64, line: &str) {
        let line = Untrusted::new(line).row();
        match &mut self.view {
            View::Page(page) if page.number == number => page.lines.push(line),
            _ => self.running.iter_mut().filter(|r| r.number == number).for_each(|r| r.said.clone_from(&line)),
        }
    }

    /// Something has ended.
    pub fn ended(&mut self, number: u64, ended: &Ended) {
        let Some(at) = self.running.iter().position(|r| r.number == number) else { return };
        let Running { order, typed, .. } = self.running.remove(at);
        let err = Untrusted::new(ended.err.trim()).block();
        if let View::Page(page) = &mut self.view
            && page.number == number
        {
            page.lines.extend(err.lines().map(str::to_owned));
            page.done = true;
            return;
        }
        let out = Untrusted::new(ended.out.trim()).block();
        let told: Vec<&str> = [err.as_str(), out.as_str()].into_iter().filter(|t| !t.is_empty()).collect();
        let told = told.join("\n");
        match ended.code {
            Some(0) => {
                let starts = ["launch", "resume", "fork"].iter().any(|v| order.args.first().is_some_and(|a| a == v));
                self.awaited = starts.then(|| ended.out.split_whitespace().next().map(str::to_owned)).flatten();
                self.choose_awaited();
                self.tell(if told.is_empty() { format!("{}: done", order.what) } else { told });
            }
            code => {
                // By these two it may have arrived.
                if let Some(typed) = typed.filter(|_| !matches!(code, Some(4 | 5))) {
                    self.give_back(typed);
                }
                let code = code.map_or_else(|| "ended by a signal".into(), |c| format!("exit code {c}"));
                let told = told.strip_prefix("lariat: ").unwrap_or(&told);
                self.refuse(format!("{}: {told} ({code})", order.what));
            }
        }
    }
}

/// How a person is told of a session, and how it is meant exactly.
pub fn target(session: &Session) -> Target {
    let id = session.target().raw().to_owned();
    let name = match (&session.handle, &session.host) {
        (Some(handle), Some(host)) if session.elsewhere => format!("{host}:{handle}"),
        (Some(handle), _) => handle.clone(),
        (None, _) => id.clone(),
    };
    Target { name, id }
}

/// How long until its age reads otherwise.
fn changes_in(at: Time, now: Time) -> Duration {
    let age = now.0.saturating_sub(at.0).max(0);
    let step = match age {
        0..3_600_000 => 60_000,
        3_600_000..172_800_000 => 3_600_000,
        _ => 86_400_000,
    };
    Duration::from_millis(u64::try_from(step - age % step).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_told_anew_when_it_reads_otherwise() {
        let now = Time(1_000_000_000_000);
        let ages = [0, 59_000, 61_000, 3_600_000, 172_800_000];
        let seconds = ages.map(|ago| changes_in(Time(now.0 - ago), now).as_secs());
        assert_eq!(seconds, [60, 1, 59, 3600, 86_400]);
    }
}
