//! Sessions as rows that fit the terminal.
//!
//! Columns go from the right when it is narrow; who it is and what it wants
//! stay last. A value that is not known is `─`, never 0.

use std::borrow::Borrow;

use lariat_core::text::{columns, fit};
use lariat_core::{Session, Status, Time, Unbound, Untrusted};
use lariat_engine::target::tail;

use crate::output::{Ink, Spans};

/// A group of the list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Group {
    NeedsYou,
    Working,
    Idle,
    Unknown,
    CutOff,
    Ended,
}

impl Group {
    pub const ALL: [Group; 6] =
        [Group::NeedsYou, Group::Working, Group::Idle, Group::Unknown, Group::CutOff, Group::Ended];

    pub fn of(session: &Session) -> Group {
        match session.status {
            _ if session.restorable => Group::CutOff,
            Status::Waiting => Group::NeedsYou,
            Status::Working | Status::Starting => Group::Working,
            Status::Idle => Group::Idle,
            Status::Unknown => Group::Unknown,
            _ => Group::Ended,
        }
    }

    /// What stands above it.
    pub fn heading(self) -> &'static str {
        match self {
            Group::NeedsYou => "NEEDS YOU",
            Group::Working => "WORKING",
            Group::Idle => "IDLE",
            Group::Unknown => "UNKNOWN",
            Group::CutOff => "CUT OFF",
            Group::Ended => "ENDED",
        }
    }

    /// `2 need you`, `1 working`.
    pub fn count(self, n: usize) -> String {
        match self {
            Group::NeedsYou if n == 1 => "1 needs you".into(),
            Group::NeedsYou => format!("{n} need you"),
            Group::CutOff => format!("{n} cut off"),
            group => format!("{n} {}", group.heading().to_lowercase()),
        }
    }

    fn ink(self) -> Ink {
        match self {
            Group::NeedsYou => Ink::Urgent,
            Group::Working => Ink::Active,
            Group::Unknown | Group::CutOff => Ink::Odd,
            Group::Idle => Ink::Plain,
            Group::Ended => Ink::Dim,
        }
    }
}

/// How many there are in each group: the header line.
pub fn header(sessions: &[impl Borrow<Session>], hidden: usize) -> String {
    let count = |group: Group| {
        let shown = sessions.iter().filter(|s| Group::of((*s).borrow()) == group).count();
        if group == Group::Ended { shown + hidden } else { shown }
    };
    let parts: Vec<String> =
        Group::ALL.into_iter().map(|g| (g, count(g))).filter(|(_, n)| *n > 0).map(|(g, n)| g.count(n)).collect();
    parts.join(" · ")
}

const CELLS: usize = 7;
/// What goes first when it is narrow: tokens, place, agent, title, age.
const DROP: [usize; 5] = [6, 5, 2, 3, 4];

/// One row of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Row {
    /// Between two groups.
    Blank,
    /// Above a group.
    Heading(&'static str),
    /// A session, by its place among those that were given.
    Session(usize, Spans),
    /// A process without a known session.
    Unbound(Spans),
}

/// When the ages are of, and how fine they are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ages {
    pub now: Time,
    /// Less than a minute is one word: for a screen that stands still.
    pub coarse: bool,
}

impl Ages {
    /// Ages to the second.
    pub fn of(now: Time) -> Ages {
        Ages { now, coarse: false }
    }

    fn told(self, at: Time) -> String {
        if self.coarse && self.now.0.saturating_sub(at.0) < 60_000 { "<1m".into() } else { at.age(self.now) }
    }
}

/// The moment that a row's age counts from.
pub fn aged(session: &Session) -> Option<Time> {
    session.updated_at.or(session.started_at)
}

/// The rows of all groups, headings included, within so many columns.
fn rows(sessions: &[impl Borrow<Session>], ages: Ages, home: &str, available: usize) -> Vec<Row> {
    let told_apart = told_apart(sessions);
    let cells = |(s, letters): (_, usize)| cells(Borrow::<Session>::borrow(s), letters, ages, home);
    let cells: Vec<[String; CELLS]> = sessions.iter().zip(told_apart).map(cells).collect();
    let widths = widths(&cells, available);
    let mut rows = Vec::new();
    for group in Group::ALL {
        let of = |i: &usize| Group::of(sessions[*i].borrow()) == group;
        let of_group: Vec<usize> = (0..sessions.len()).filter(of).collect();
        if of_group.is_empty() {
            continue;
        }
        if !rows.is_empty() {
            rows.push(Row::Blank);
        }
        rows.push(Row::Heading(group.heading()));
        for i in of_group {
            rows.push(Row::Session(i, row(&cells[i], &widths, group, sessions[i].borrow().live)));
        }
    }
    rows
}

/// The rows of the whole list: sessions, then processes without a known one.
pub fn all_rows(
    sessions: &[impl Borrow<Session>],
    unbound: &[Unbound],
    ages: Ages,
    home: &str,
    available: usize,
) -> Vec<Row> {
    let mut rows = rows(sessions, ages, home, available);
    let others = unbound_rows(unbound, home, available);
    if !rows.is_empty() && !others.is_empty() {
        rows.push(Row::Blank);
    }
    rows.extend(others);
    rows
}

/// How many letters of an id are shown, unless it takes more to tell it from others.
const LETTERS: usize = 8;

/// What a person calls it: its handle, or the beginning of its own id.
pub fn called(s: &Session) -> String {
    called_in(s, LETTERS)
}

/// For each session, how many letters of its id tell it from all others here: ids that begin with the time are alike.
fn told_apart(sessions: &[impl Borrow<Session>]) -> Vec<usize> {
    let tail = |i: &usize| tail(sessions[*i].borrow().native_id.raw());
    let mut order: Vec<usize> = (0..sessions.len()).collect();
    order.sort_unstable_by_key(tail);
    let mut letters = vec![LETTERS; sessions.len()];
    for (one, next) in order.iter().zip(order.iter().skip(1)) {
        let alike = tail(one).chars().zip(tail(next).chars()).take_while(|(a, b)| a == b).count();
        for i in [one, next] {
            letters[*i] = letters[*i].max(alike + 1);
        }
    }
    letters
}

fn called_in(s: &Session, letters: usize) -> String {
    let called = s
        .handle
        .clone()
        .unwrap_or_else(|| Untrusted::new(tail(s.native_id.raw()).chars().take(letters).collect::<String>()).row());
    match &s.host {
        Some(host) if s.elsewhere => format!("{host}:{called}"),
        _ => called,
    }
}

// id, reason, agent, title, age, place, tokens
fn cells(s: &Session, letters: usize, ages: Ages, home: &str) -> [String; CELLS] {
    let id = called_in(s, letters);
    let reason = match s.status {
        Status::Waiting | Status::Working | Status::Unknown => s.reason.row(),
        Status::Idle if s.reason.raw() == "turn over" => "idle".into(),
        Status::Idle => format!("idle, {}", s.reason.row()),
        Status::Done => "done".into(),
        status => format!("{}: {}", status.word(), s.reason.row()),
    };
    let model = s.model.as_ref().map(|m| short_model(m.raw()));
    let agent = model.map_or_else(|| s.agent.to_owned(), |m| format!("{}·{}", s.agent, fit(&m, 16)));
    let title = [&s.name, &s.title, &s.prompt].into_iter().flatten().next().map_or_else(|| "─".into(), first_line);
    let age = aged(s).map_or_else(|| "─".into(), |t| ages.told(t));
    let folder = s.cwd.as_ref().map_or_else(|| "─".into(), |c| place(c.raw(), home));
    let place = s.branch.as_ref().map_or_else(|| folder.clone(), |b| format!("{folder} {}", b.row()));
    let tokens =
        s.tokens.map_or_else(|| "─".into(), |t| short_count(t.input + t.output + t.cache_read + t.cache_write));
    [id, reason, agent, title, age, place, tokens]
}

fn first_line(text: &Untrusted) -> String {
    Untrusted::new(text.raw().lines().find(|l| !l.trim().is_empty()).unwrap_or("").trim()).row()
}

fn short_model(model: &str) -> String {
    let model = model.strip_prefix("claude-").unwrap_or(model);
    let dated = model.len() > 9
        && model.as_bytes()[model.len() - 9] == b'-'
        && model[model.len() - 8..].bytes().all(|b| b.is_ascii_digit());
    if dated { model[..model.len() - 9].to_owned() } else { model.to_owned() }
}

/// The last two parts of a path, `~` for home.
fn place(cwd: &str, home: &str) -> String {
    let shown = match cwd.strip_prefix(home) {
        Some("") => "~".to_owned(),
        Some(rest) if rest.starts_with('/') && home.len() > 1 => format!("~{rest}"),
        _ => cwd.to_owned(),
    };
    let parts: Vec<&str> = shown.split('/').collect();
    let short = if parts.len() > 3 { format!("…/{}", parts[parts.len() - 2..].join("/")) } else { shown };
    Untrusted::new(short).row()
}

/// `950`, `12.3k`, `4.5M`.
pub fn short_count(n: u64) -> String {
    let scaled = |unit: f64, suffix: &str| {
        let value = n as f64 / unit;
        if value < 99.95 { format!("{value:.1}{suffix}") } else { format!("{value:.0}{suffix}") }
    };
    match n {
        0..1000 => n.to_string(),
        1000..1_000_000 => scaled(1e3, "k"),
        1_000_000..1_000_000_000 => scaled(1e6, "M"),
        _ => scaled(1e9, "G"),
    }
}

/// Widths for the columns that fit; 0 drops one.
fn widths(cells: &[[String; CELLS]], available: usize) -> [usize; CELLS] {
    let limits = [36, 60, 24, 40, 4, 34, 7];
    let mut widths = [0; CELLS];
    for row in cells {
        for (width, (cell, limit)) in widths.iter_mut().zip(row.iter().zip(limits)) {
            *width = (*width).max(columns(cell).min(limit));
        }
    }
    let used = |w: &[usize; CELLS]| 3 + w.iter().filter(|w| **w > 0).map(|w| w + 2).sum::<usize>();
    // First what can be cut is cut: place, title, reason; then columns go.
    for (column, least) in [(5, 16), (3, 16), (1, 36)] {
        let over = used(&widths).saturating_sub(available);
        widths[column] -= over.min(widths[column].saturating_sub(least));
    }
    for column in DROP {
        if used(&widths) > available {
            widths[column] = 0;
        }
    }
    let over = used(&widths).saturating_sub(available);
    widths[1] -= over.min(widths[1].saturating_sub(4));
    // Nothing stands behind the last column: on the narrowest terminals that counts. Who it is stays longest.
    for (column, least) in [(1, 1), (0, 1)] {
        let over = used(&widths).saturating_sub(available + 2);
        widths[column] -= over.min(widths[column].saturating_sub(least));
    }
    // What is left over goes to the reason.
    let longest = cells.iter().map(|row| columns(&row[1])).max().unwrap_or(0);
    let spare = available.saturating_sub(used(&widths));
    widths[1] += spare.min(longest.saturating_sub(widths[1]));
    widths
}

fn row(cells: &[String; CELLS], widths: &[usize; CELLS], group: Group, live: Option<bool>) -> Spans {
    let glyph = match live {
        Some(true) => "●",
        Some(false) => "○",
        None => "?",
    };
    let mut row: Spans = vec![(Ink::Plain, " ".into()), (group.ink(), glyph.into()), (Ink::Plain, " ".into())];
    for (i, (cell, width)) in cells.iter().zip(widths).enumerate().filter(|(_, (_, w))| **w > 0) {
        let text = fit(cell, *width);
        let pad = " ".repeat(width - columns(&text) + 2);
        let ink = match i {
            1 => group.ink(),
            0 | 3 => Ink::Plain,
            _ => Ink::Dim,
        };
        row.extend([(ink, text), (Ink::Plain, pad)]);
    }
    while row.last().is_some_and(|(_, text)| text.trim().is_empty()) {
        row.pop();
    }
    row
}

/// The rows of processes without a known session, if there are any.
fn unbound_rows(unbound: &[Unbound], home: &str, available: usize) -> Vec<Row> {
    if unbound.is_empty() {
        return Vec::new();
    }
    let row = |u: &Unbound| {
        let folder = u.cwd.as_ref().map_or_else(|| "directory unknown".into(), |c| place(c.raw(), home));
        let host = u.host.as_ref().map_or_else(String::new, |h| format!("{}:", Untrusted::new(h.as_str()).row()));
        let text = format!("{host}{} {}  {folder}  {}", u.agent, u.pid, u.why.row());
        let text = fit(&text, available.saturating_sub(3));
        Row::Unbound(vec![(Ink::Plain, " ".into()), (Ink::Odd, "●".into()), (Ink::Plain, format!(" {text}"))])
    };
    [Row::Heading("PROCESSES WITHOUT A KNOWN SESSION")].into_iter().chain(unbound.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_short() {
        let short = [0, 999, 1000, 12_345, 999_949, 1_500_000, 2_000_000_000].map(short_count);
        assert_eq!(short, ["0", "999", "1.0k", "12.3k", "1000k", "1.5M", "2.0G"]);
    }

    #[test]
    fn models_lose_what_all_have() {
        assert_eq!(short_model("claude-opus-4-1-20250805"), "opus-4-1");
        assert_eq!(short_model("gpt-5.2-codex"), "gpt-5.2-codex");
    }

    #[test]
    fn every_width_fits() {
        let row: [String; CELLS] = [
            "12345678",
            "permission: Bash rm -rf build && make all",
            "claude·opus-5-5",
            "fix the login page",
            "12m",
            "~/work/proj main",
            "12.3k",
        ]
        .map(str::to_owned);
        for available in 0..200 {
            let widths = widths(std::slice::from_ref(&row), available);
            let used: usize = 3 + widths.iter().filter(|w| **w > 0).map(|w| w + 2).sum::<usize>();
            assert!(used <= available.max(3 + 10 + 6), "{available}: {widths:?}");
            assert!(available < 19 || widths[0] == 8 && widths[1] >= 4, "both stay: {available}: {widths:?}");
        }
        let long = ["lively-kestrel", "permission: Bash", "claude", "fix", "1s", "~/work", "0"].map(str::to_owned);
        for available in 7..200 {
            let spans = super::row(&long, &super::widths(std::slice::from_ref(&long), available), Group::Idle, None);
            let shown: String = spans.into_iter().map(|(_, text)| text).collect();
            assert!(columns(&shown) <= available, "{available}: {shown}");
            assert!(available < 20 || shown.contains("lively-kestrel"), "{available}: {shown}");
        }
    }
}
