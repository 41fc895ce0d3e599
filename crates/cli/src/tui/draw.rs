//! What stands where. It looks at what the screen knows and changes nothing of it,
//! but for how far the list is scrolled.

use lariat_core::text::{columns, fit};
use lariat_core::{Session, Status, Time, Untrusted};
use lariat_sys::clock;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Modifier, Style};

use crate::output::{Ink, Spans};
use crate::table::{self, Row};
use crate::tui::form::{FIELDS, Form};
use crate::tui::help;
use crate::tui::input::Line;
use crate::tui::lines::{cut, fold, fold_all, line, put, put_all, put_styled};
use crate::tui::preview::What;
use crate::tui::state::{App, View};
use crate::verbs::{explain, peek};

/// The parts of the screen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Areas {
    pub list: Rect,
    /// The preview, its title included.
    pub preview: Option<Rect>,
    /// Below everything: what went how, what is asked, which keys there are.
    pub bottom: Rect,
}

/// Where everything stands.
pub fn areas(app: &App) -> Areas {
    let (width, height) = app.size;
    let low = u16::try_from(bottom(app).len()).unwrap_or(u16::MAX).min(height / 2).max(1);
    let middle = height.saturating_sub(1 + low);
    let bottom = Rect::new(0, height - low.min(height), width, low.min(height));
    let whole = Rect::new(0, 1.min(height), width, middle);
    if app.is_wide() {
        let left = app.list_width();
        let list = Rect { width: left, ..whole };
        let preview = Rect { x: left + 1, width: width - left - 1, ..whole };
        return Areas { list, preview: Some(preview), bottom };
    }
    if app.has_preview() && middle >= 8 {
        let low = middle * 2 / 5;
        let list = Rect { height: middle - low, ..whole };
        let preview = Rect { y: list.bottom(), height: low, ..whole };
        return Areas { list, preview: Some(preview), bottom };
    }
    Areas { list: whole, preview: None, bottom }
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let area = frame.area();
    let areas = areas(app);
    if matches!(app.view, View::List | View::Filter | View::Confirm(_) | View::Deny { .. }) {
        head(frame.buffer_mut(), app, area.width);
        list(frame.buffer_mut(), app, areas.list);
        if let Some(preview) = areas.preview {
            self::preview(frame.buffer_mut(), app, preview);
        }
    } else {
        title(frame.buffer_mut(), app, area.width);
        let body = Rect::new(0, 1.min(area.height), area.width, areas.bottom.y.saturating_sub(1));
        match &app.view {
            View::Reply { .. } => said(frame.buffer_mut(), app, body),
            _ => put_all(frame.buffer_mut(), body, page(app).iter().skip(scrolled(app))),
        }
    }
    let low = bottom(app);
    put_all(frame.buffer_mut(), areas.bottom, &low);
    if let Some(at) = cursor(app, &areas) {
        frame.set_cursor_position(at);
    }
}

fn head(buffer: &mut Buffer, app: &App, width: u16) {
    let mut parts: Spans = line(Ink::Bold, "lariat");
    match &app.answer {
        None => parts.push((Ink::Plain, "  looking…".into())),
        Some(answer) => {
            let listing = &answer.listing;
            let counts = table::header(&listing.sessions, 0);
            parts.push((Ink::Plain, format!("  {}", if counts.is_empty() { "no agent runs here" } else { &counts })));
            if !listing.warnings.is_empty() {
                parts.push((Ink::Odd, format!("  ! {} unread", listing.warnings.len())));
            }
        }
    }
    if !app.filter.is_empty() {
        parts.push((Ink::Urgent, format!("  /{}", Untrusted::new(app.line.text()).row())));
    }
    put(buffer, 0, 0, width, &cut(&parts, width.into()));
}

fn list(buffer: &mut Buffer, app: &mut App, area: Rect) {
    let height = usize::from(area.height);
    let rows = app.rows.len();
    if let Some(row) = app.selected_row() {
        // The heading of the first one is worth a row.
        let above = if row <= 1 { 0 } else { row };
        app.top = app.top.min(above).max((row + 1).saturating_sub(height));
    }
    app.top = app.top.min(rows.saturating_sub(height));
    let selected = app.selected_row();
    for (row, y) in (app.top..rows).zip(area.top()..area.bottom()) {
        match &app.rows[row] {
            Row::Blank => {}
            Row::Heading(heading) => put(buffer, area.x, y, area.width, &line(Ink::Bold, *heading)),
            Row::Unbound(spans) => put(buffer, area.x, y, area.width, spans),
            Row::Session(_, spans) if selected == Some(row) => {
                // Told by a mark as well: not every terminal can show more than letters.
                let chosen = Style::new().add_modifier(Modifier::REVERSED);
                buffer.set_style(Rect::new(area.x, y, area.width, 1), chosen);
                let bold = |ink| if ink == Ink::Urgent { chosen.add_modifier(Modifier::BOLD) } else { chosen };
                put_styled(buffer, area.x, y, area.width, spans, bold);
                put_styled(buffer, area.x, y, 1, &line(Ink::Plain, ">"), bold);
            }
            Row::Session(_, spans) => put(buffer, area.x, y, area.width, spans),
        }
    }
    if let (true, Some(answer)) = (app.rows.is_empty(), &app.answer) {
        let none = match (app.filter.is_empty(), answer.listing.hidden.ended) {
            (false, _) => "No session fits the filter. Esc shows all.".to_owned(),
            (true, 0) => "No agents here. n launches one.".into(),
            (true, n) => format!("No agent runs here now. a shows {n} ended, n launches one."),
        };
        put_all(buffer, area, &fold(&line(Ink::Plain, none), area.width.into()));
    }
}

fn preview(buffer: &mut Buffer, app: &App, area: Rect) {
    let kind = if app.terminal { "terminal, t: what it said" } else { "what it said, t: terminal" };
    let name = app.session().map_or_else(String::new, table::called);
    let heading = fit(&format!("── {name} ({kind}) "), area.width.into());
    let rule = "─".repeat(usize::from(area.width).saturating_sub(columns(&heading)));
    put(buffer, area.x, area.y, area.width, &line(Ink::Dim, heading + &rule));
    if app.is_wide() {
        for y in area.top()..area.bottom() {
            put(buffer, area.x - 1, y, 1, &line(Ink::Dim, "│"));
        }
    }
    said(buffer, app, below(area));
}

/// What is left under a title.
fn below(area: Rect) -> Rect {
    Rect { y: area.y + 1.min(area.height), height: area.height.saturating_sub(1), ..area }
}

/// What the session said, or its terminal, from its end.
fn said(buffer: &mut Buffer, app: &App, area: Rect) {
    let height = usize::from(area.height);
    if let Some(What::Screen(rows)) = shown(app) {
        let from = rows.len().saturating_sub(height + scrolled(app));
        for (row, y) in rows.iter().skip(from).zip(area.top()..area.bottom()) {
            let mut x = area.x;
            for (text, style) in row {
                let wide = u16::try_from(columns(text)).unwrap_or(1).max(1);
                if x + wide > area.right() {
                    break;
                }
                buffer.set_stringn(x, y, text, wide.into(), *style);
                x += wide;
            }
        }
        return;
    }
    let lines = talk(app, area.width);
    let from = lines.len().saturating_sub(height + scrolled(app));
    put_all(buffer, area, lines.iter().skip(from));
}

/// What was read of the session that is looked at.
fn shown(app: &App) -> Option<&What> {
    let shown = app.preview.as_ref()?;
    let fits = looked_at(app).is_some_and(|s| s.target() == shown.id);
    let kind = |what: &What| matches!(what, What::Not(_)) || matches!(what, What::Screen(_)) == app.terminal;
    Some(&shown.what).filter(|what| fits && kind(what))
}

fn looked_at(app: &App) -> Option<&Session> {
    match &app.view {
        View::Reply { id, .. } => app.find(id),
        _ => app.session(),
    }
}

fn talk(app: &App, width: u16) -> Vec<Spans> {
    let Some(session) = looked_at(app) else { return Vec::new() };
    match shown(app) {
        Some(What::Said(said)) => fold_all(&peek::lines(session, said, width.into()), width.into()),
        Some(What::Not(why)) => fold(&line(Ink::Dim, why.clone()), width.into()),
        _ => Vec::new(),
    }
}

/// How far what was said can be scrolled.
pub fn preview_scroll(app: &App) -> usize {
    let areas = areas(app);
    let area = match &app.view {
        View::Reply { .. } => Rect::new(0, 1, app.size.0, areas.bottom.y.saturating_sub(1)),
        _ => areas.preview.map(below).unwrap_or_default(),
    };
    let lines = match shown(app) {
        Some(What::Screen(rows)) => rows.len(),
        _ => talk(app, area.width).len(),
    };
    lines.saturating_sub(area.height.into())
}

/// How far a page can be scrolled.
pub fn page_scroll(app: &App) -> usize {
    page(app).len().saturating_sub(areas(app).bottom.y.saturating_sub(1).into())
}

fn scrolled(app: &App) -> usize {
    match &app.view {
        View::Reply { scrolled, .. } | View::Explain { scrolled, .. } | View::Help { scrolled, .. } => *scrolled,
        View::Page(page) => page.scrolled,
        _ => app.scrolled,
    }
}

/// The lines of a view that fills the screen.
fn page(app: &App) -> Vec<Spans> {
    let width = usize::from(app.size.0);
    match &app.view {
        View::Page(page) => {
            let lines: Vec<Spans> = page.lines.iter().map(|l| line(Ink::Plain, l.clone())).collect();
            fold_all(&lines, width)
        }
        View::Explain { id, .. } => match app.find(id) {
            Some(session) => fold_all(&explain::lines(session, Time(clock::now_ms())), width),
            None => vec![line(Ink::Plain, NOT_THERE)],
        },
        View::Help { line: search, .. } => {
            let found = help::found(search.text());
            let row =
                |(key, does): &(&str, &str)| vec![(Ink::Bold, format!("{key:<13}")), (Ink::Plain, (*does).to_owned())];
            let rows: Vec<Spans> = found.iter().map(row).collect();
            fold_all(&rows, width)
        }
        View::Form(form) => self::form(form, width),
        _ => Vec::new(),
    }
}

fn form(form: &Form, width: usize) -> Vec<Spans> {
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let row = |text: &str| Untrusted::new(text).row();
    let values = [
        format!("< {} >", row(form.agent())),
        row(form.directory.text()),
        row(form.prompt.text()),
        yes(form.worktree),
        yes(form.headless),
    ];
    let mut rows = vec![Spans::new()];
    for (i, (name, value)) in FIELDS.iter().zip(values).enumerate() {
        let mark = if form.at == i { ">" } else { " " };
        let ink = if form.at == i { Ink::Bold } else { Ink::Plain };
        // Of a long text its end is seen, which is where one types.
        let room = width.saturating_sub(FIELD + 1);
        let over = columns(&value).saturating_sub(room);
        let value: String = if over > 0 { format!("…{}", tail(&value, room.saturating_sub(1))) } else { value };
        rows.push(vec![(ink, format!("{mark} {name:<10}  ")), (Ink::Plain, value)]);
    }
    rows.push(Spans::new());
    rows.extend(fold(&line(Ink::Dim, form.order().shown), width));
    rows
}

/// Where the values of a form begin.
const FIELD: usize = 14;

fn tail(text: &str, width: usize) -> String {
    let mut used = 0;
    let mut kept: Vec<char> = Vec::new();
    for c in text.chars().rev() {
        used += columns(c.encode_utf8(&mut [0; 4]));
        if used > width {
            break;
        }
        kept.push(c);
    }
    kept.into_iter().rev().collect()
}

fn title(buffer: &mut Buffer, app: &App, width: u16) {
    let named = |id: &Untrusted| app.find(id).map_or_else(String::new, table::called);
    let text = match &app.view {
        View::Reply { id, .. } => named(id),
        View::Explain { id, .. } => format!("explain {}", named(id)),
        View::Page(page) => page.title.to_owned(),
        View::Help { .. } => "help".into(),
        View::Form(_) => "new session".into(),
        _ => String::new(),
    };
    put(buffer, 0, 0, width, &vec![(Ink::Bold, "lariat".into()), (Ink::Plain, format!("  {text}"))]);
}

/// Of a session that was looked at by itself.
pub const NOT_THERE: &str = "the session is not there any more";

/// Whether what is typed to it is an answer.
pub fn asks_question(session: &Session) -> bool {
    session.status == Status::Waiting && session.reason.raw().starts_with("question:")
}

/// A line that is typed: as much of its end as fits.
fn typed(before: &str, typed: &Line, width: usize) -> Spans {
    let text = Untrusted::new(typed.text()).row();
    let room = width.saturating_sub(columns(before) + 1);
    vec![(Ink::Bold, before.to_owned()), (Ink::Plain, tail(&text, room))]
}

fn prompt_of(app: &App) -> Option<(String, &Line)> {
    match &app.view {
        View::Filter => Some(("/".into(), &app.line)),
        View::Reply { id, asked, line, .. } => {
            let asks = if line.text().is_empty() { app.find(id).is_some_and(asks_question) } else { asked.is_some() };
            Some((if asks { "answer> " } else { "say> " }.into(), line))
        }
        View::Deny { line, .. } => Some(("why not> ".into(), line)),
        View::Help { line, .. } => Some(("search> ".into(), line)),
        _ => None,
    }
}

/// The lines at the bottom, the last one being the keys.
fn bottom(app: &App) -> Vec<Spans> {
    const MOST: usize = 6;
    let width = usize::from(app.size.0);
    let mut lines = Vec::new();
    for running in &app.running {
        let in_page = matches!(&app.view, View::Page(page) if page.number == running.number);
        if !in_page {
            let said = if running.said.is_empty() { String::new() } else { format!(": {}", running.said) };
            lines.push(line(Ink::Active, fit(&format!("… {}{said}", running.order.what), width)));
        }
    }
    if let Some(message) = &app.message {
        let (ink, mark) = if message.well { (Ink::Active, "✓") } else { (Ink::Urgent, "✗") };
        let text = Untrusted::new(message.text.clone()).block();
        let folded: Vec<Spans> = text
            .lines()
            .enumerate()
            .flat_map(|(i, l)| fold(&line(ink, if i == 0 { format!("{mark} {l}") } else { format!("  {l}") }), width))
            .collect();
        lines.extend(folded.into_iter().take(MOST));
    }
    match &app.view {
        View::Confirm(confirm) => {
            let room = usize::from(app.size.1 / 2).saturating_sub(3).max(1);
            lines.extend(fold(&line(Ink::Urgent, format!("? {}", confirm.question)), width).into_iter().take(room));
            lines.push(line(Ink::Dim, fit(&confirm.order.shown, width)));
        }
        View::Deny { target, asked, .. } => {
            let room = usize::from(app.size.1 / 2).saturating_sub(3).max(1);
            let question = match app.still_asks(&target.id, asked) {
                true => format!("? deny, for {}? {}", target.name, asked.row()),
                false => format!("✗ what it asked has changed meanwhile, so ⏎ answers nothing: {}", asked.row()),
            };
            lines.extend(fold(&line(Ink::Urgent, question), width).into_iter().take(room));
        }
        View::Reply { id, .. } if app.find(id).is_none() => {
            lines.push(line(Ink::Urgent, fit(&format!("✗ {NOT_THERE}"), width)));
        }
        _ => {}
    }
    if let Some((before, text)) = prompt_of(app) {
        lines.push(typed(&before, text, width));
    }
    lines.push(line(Ink::Dim, fit(&hint(app, width), width)));
    lines
}

/// The keys of the view. Of the list those that matter least are left out where there is no room.
fn hint(app: &App, width: usize) -> String {
    let hidden = app.answer.as_ref().map_or(0, |a| a.listing.hidden.ended);
    match &app.view {
        View::List => {
            let ended = match (app.all, hidden) {
                (true, _) => "a live only".to_owned(),
                (false, 0) => String::new(),
                (false, n) => format!("a {n} ended"),
            };
            // With how much each matters.
            let mut keys = vec![
                (6, "⏎ attach"),
                (5, "␣ reply"),
                (4, "y approve"),
                (2, ". next"),
                (1, "n new"),
                (0, "/ filter"),
                (3, ended.as_str()),
                (8, "? help"),
                (7, "q quit"),
            ];
            keys.retain(|(_, key)| !key.is_empty());
            let shown = |keys: &[(u8, &str)]| keys.iter().map(|(_, key)| *key).collect::<Vec<_>>().join("  ");
            while columns(&shown(&keys)) > width && keys.len() > 1 {
                let least = keys.iter().map(|(matters, _)| *matters).min();
                keys.retain(|(matters, _)| Some(*matters) != least);
            }
            shown(&keys)
        }
        View::Filter => "⏎ keep  Esc no filter  words, or s:waiting".into(),
        View::Reply { .. } => "⏎ send  ↑↓ scroll  ^T terminal  Esc back".into(),
        View::Confirm(confirm) => format!("{} or ⏎ yes  c copy  any other key no", confirm.key),
        View::Deny { target, asked, .. } if !app.still_asks(&target.id, asked) => "Esc back".into(),
        View::Deny { .. } => "⏎ deny  Esc back".into(),
        View::Form(_) => "⏎ launch  ⇥ next field  ←→ change  Esc back".into(),
        View::Page(page) if !page.done => "…".into(),
        View::Page(page) if page.then.is_some() => "⏎ carry it out  c copy  Esc back".into(),
        View::Page(_) | View::Explain { .. } => "↑↓ scroll  c copy  Esc back".into(),
        View::Help { .. } => "type to search  ↑↓ scroll  Esc back".into(),
    }
}

/// Where the cursor stands, if something is typed.
fn cursor(app: &App, areas: &Areas) -> Option<Position> {
    let width = app.size.0;
    let shown = |text: &str| columns(&Untrusted::new(text).row());
    if let View::Form(form) = &app.view {
        let value = match form.at {
            1 => form.directory.before(),
            2 => form.prompt.before(),
            _ => return None,
        };
        let x = FIELD + shown(value);
        let y = u16::try_from(2 + form.at).unwrap_or(2);
        return Some(Position::new(u16::try_from(x).unwrap_or(width).min(width.saturating_sub(1)), y));
    }
    let (before, typed) = prompt_of(app)?;
    // Of a text that is too long its end is shown.
    let room = usize::from(width).saturating_sub(columns(&before) + 1);
    let over = shown(typed.text()).saturating_sub(room);
    let x = columns(&before) + shown(typed.before()).saturating_sub(over);
    let y = areas.bottom.bottom().checked_sub(2)?;
    Some(Position::new(u16::try_from(x).unwrap_or(width).min(width.saturating_sub(1)), y))
}
