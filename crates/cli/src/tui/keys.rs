//! What each key does, in each view. Nothing is done here but to what the screen
//! knows; what goes further is given back as an [`Effect`].

use lariat_adapters::described;
use lariat_adapters::look::Places;
use lariat_adapters::settings::Settings;
use lariat_core::{Role, Session, Status, Untrusted, Witness};

use crate::tui::act::{Order, Target};
use crate::tui::draw;
use crate::tui::filter::Filter;
use crate::tui::form::Form;
use crate::tui::input::{Key, Line};
use crate::tui::state::{App, Confirm, Page, Typed, View, target};

/// What a key leads to.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    Nothing,
    Quit,
    Suspend,
    Repaint,
    Attach(Box<Session>),
    /// Something that runs beside, under a number.
    Start(u64, Order),
    Copy(String),
}

/// How many rows a turn of the wheel is.
const WHEEL: usize = 3;

/// Does what a key says.
pub fn press(app: &mut App, key: &Key) -> Effect {
    match key {
        Key::Ctrl('c') => return Effect::Quit,
        Key::Ctrl('z') => return Effect::Suspend,
        Key::Ctrl('l') => return Effect::Repaint,
        _ => app.message = None,
    }
    // Taken out, so that both can be changed; put back unless something else fills the screen.
    let view = std::mem::replace(&mut app.view, View::List);
    match view {
        View::List => list(app, key),
        View::Filter => filter(app, key),
        View::Reply { id, asked, line, scrolled } => reply(app, key, id, asked, line, scrolled),
        View::Confirm(confirm) => self::confirm(app, key, confirm),
        View::Deny { target, asked, by_hook, line } => deny(app, key, target, asked, by_hook, line),
        View::Form(form) => self::form(app, key, form),
        View::Page(page) => self::page(app, key, page),
        View::Explain { id, scrolled } => explain(app, key, id, scrolled),
        View::Help { line, scrolled } => help(app, key, line, scrolled),
    }
}

fn start(app: &mut App, order: Order) -> Effect {
    Effect::Start(app.begin(order.clone()), order)
}

fn screenful(app: &App) -> isize {
    isize::from(i16::try_from(app.size.1 / 2).unwrap_or(i16::MAX)).max(1)
}

fn list(app: &mut App, key: &Key) -> Effect {
    match key {
        Key::Char('q') => return Effect::Quit,
        Key::Char('j') | Key::Down => app.step(1),
        Key::Char('k') | Key::Up => app.step(-1),
        Key::Char('g') | Key::Home => app.step(isize::MIN),
        Key::Char('G') | Key::End => app.step(isize::MAX),
        Key::PageDown | Key::Ctrl('f') => app.step(screenful(app)),
        Key::PageUp | Key::Ctrl('b') => app.step(-screenful(app)),
        Key::Char('.') => app.next_in_need(),
        Key::Tab => app.back(),
        Key::Char('J') => app.scrolled = app.scrolled.saturating_sub(WHEEL),
        Key::Char('K') => app.scrolled = app.scrolled.saturating_add(WHEEL).min(draw::preview_scroll(app)),
        Key::Char('t') => (app.terminal, app.scrolled) = (!app.terminal, 0),
        Key::Char('a') => app.all = !app.all,
        Key::Char('/') => app.view = View::Filter,
        Key::Esc => {
            (app.line, app.filter) = (Line::default(), Filter::default());
            app.refresh();
        }
        Key::Char('?') => app.view = View::Help { line: Line::default(), scrolled: 0 },
        Key::Char('n') => app.view = View::Form(new_form(app)),
        Key::Char('l') => return open(app, "locks", Order::new("locks", None, &[]), None),
        Key::Char('w') => return open(app, "worktrees", Order::new("worktree", None, &["ls"]), None),
        Key::Char('R') => {
            let then = Order::new("restore", None, &["--yes"]);
            return open(app, "restore", Order::new("restore", None, &[]), Some(then));
        }
        Key::Char('!') => app.view = View::Page(warnings(app)),
        Key::Press(x, y) => return click(app, *x, *y),
        Key::WheelUp(x, y) | Key::WheelDown(x, y) => wheel(app, matches!(key, Key::WheelUp(..)), *x, *y),
        Key::Char(' ' | 'y' | 'N' | 'x' | 'X' | 'r' | 'f' | 'e' | 'd' | 'c') | Key::Enter => {
            return of_session(app, key);
        }
        _ => {}
    }
    Effect::Nothing
}

/// What is done with the chosen one.
fn of_session(app: &mut App, key: &Key) -> Effect {
    let Some(session) = app.session().cloned() else {
        app.refuse("no session is chosen; n launches one");
        return Effect::Nothing;
    };
    // A key means the one that was seen when it was pressed.
    if app.moved {
        app.refuse("the list has changed; look again");
        return Effect::Nothing;
    }
    let to = target(&session);
    let asked = || (to.id.clone(), session.reason.clone());
    let sure = |verb: &str, key: char, what: String| {
        View::Confirm(Confirm { question: what, order: Order::new(verb, Some(&to), &[]), key, asked: None })
    };
    match key {
        Key::Enter => return Effect::Attach(Box::new(session)),
        Key::Char(' ') => {
            let id = session.target();
            let (asked, line) = match app.take_unsent(&id) {
                Some(Typed { asked, text, .. }) => (asked, Line::of(text)),
                None => (draw::asks_question(&session).then(|| session.reason.clone()), Line::default()),
            };
            app.view = View::Reply { id, asked, line, scrolled: 0 };
        }
        Key::Char('e') => app.view = View::Explain { id: session.target(), scrolled: 0 },
        Key::Char('d') => return open(app, "diff", Order::new("diff", Some(&to), &[]), None),
        Key::Char('c') => {
            let verb = if session.handle.is_some() && session.live == Some(true) { "attach" } else { "peek" };
            return Effect::Copy(Order::new(verb, Some(&to), &[]).shown);
        }
        Key::Char('y' | 'N') if session.status != Status::Waiting => {
            app.refuse(format!("{} asks nothing: it is {}: {}", to.name, session.status.word(), session.reason.row()));
        }
        Key::Char('y') => {
            let question = format!("approve, for {}? {}", to.name, session.reason.row());
            let order = Order::new("approve", Some(&to), &[]);
            let order = if told_by_hook(&session) { order.expecting(&session.reason) } else { order };
            app.view = View::Confirm(Confirm { question, order, key: 'y', asked: Some(asked()) });
        }
        Key::Char('N') => {
            let by_hook = told_by_hook(&session);
            app.view = View::Deny { asked: session.reason, by_hook, target: to, line: Line::default() };
        }
        Key::Char('x') => app.view = sure("stop", 'x', format!("stop {} gently, with all it started?", to.name)),
        Key::Char('X') => app.view = sure("kill", 'X', format!("kill {} at once, with all it started?", to.name)),
        Key::Char('r') => app.view = sure("resume", 'r', format!("resume {}, where it worked?", to.name)),
        Key::Char('f') => {
            app.view = sure("fork", 'f', format!("begin a new session with what was said in {}?", to.name));
        }
        _ => {}
    }
    Effect::Nothing
}

fn click(app: &mut App, x: u16, y: u16) -> Effect {
    let list = draw::areas(app).list;
    if list.contains((x, y).into()) && app.click(app.top + usize::from(y - list.y)) {
        return of_session(app, &Key::Enter);
    }
    Effect::Nothing
}

fn wheel(app: &mut App, up: bool, x: u16, y: u16) {
    let over = draw::areas(app).preview.is_some_and(|p| p.contains((x, y).into()));
    match (over, up) {
        (true, true) => app.scrolled = app.scrolled.saturating_add(WHEEL).min(draw::preview_scroll(app)),
        (true, false) => app.scrolled = app.scrolled.saturating_sub(WHEEL),
        (false, true) => app.step(-(WHEEL as isize)),
        (false, false) => app.step(WHEEL as isize),
    }
}

fn filter(app: &mut App, key: &Key) -> Effect {
    match key {
        Key::Enter => return Effect::Nothing,
        Key::Esc => app.line = Line::default(),
        Key::Up | Key::Down => {
            app.view = View::Filter;
            app.step(if *key == Key::Up { -1 } else { 1 });
            return Effect::Nothing;
        }
        key => {
            app.view = View::Filter;
            app.line.key(key);
        }
    }
    app.filter = Filter::read(app.line.text());
    app.refresh();
    Effect::Nothing
}

/// How far a key scrolls, if it does: by rows, and whether down.
fn scroll(app: &App, key: &Key) -> Option<(usize, bool)> {
    Some(match key {
        Key::Up => (1, false),
        Key::Down => (1, true),
        Key::PageUp => (screenful(app).unsigned_abs(), false),
        Key::PageDown => (screenful(app).unsigned_abs(), true),
        Key::WheelUp(..) => (WHEEL, false),
        Key::WheelDown(..) => (WHEEL, true),
        Key::Home => (usize::MAX, false),
        Key::End => (usize::MAX, true),
        _ => return None,
    })
}

fn scrolled(app: &App, at: usize, key: &Key) -> Option<usize> {
    let by = match key {
        Key::Char('j') => (1, true),
        Key::Char('k') => (1, false),
        Key::Char('g') => (usize::MAX, false),
        Key::Char('G') => (usize::MAX, true),
        key => scroll(app, key)?,
    };
    Some(if by.1 { at.saturating_add(by.0) } else { at.saturating_sub(by.0) })
}

fn reply(
    app: &mut App,
    key: &Key,
    id: Untrusted,
    mut asked: Option<Untrusted>,
    mut line: Line,
    mut up: usize,
) -> Effect {
    let Some(session) = app.find(&id).cloned() else {
        match key {
            Key::Esc => return Effect::Nothing,
            Key::Enter => app.refuse(format!("nothing was sent: {}", draw::NOT_THERE)),
            key => drop(line.key(key)),
        }
        app.view = View::Reply { id, asked, line, scrolled: up };
        return Effect::Nothing;
    };
    // What the line is for is settled by its first letter.
    if line.text().is_empty() {
        asked = draw::asks_question(&session).then(|| session.reason.clone());
    }
    let mut effect = Effect::Nothing;
    match key {
        Key::Esc => return Effect::Nothing,
        Key::Ctrl('t') => (app.terminal, up) = (!app.terminal, 0),
        Key::Enter if line.text().trim().is_empty() => {}
        Key::Enter => {
            let order = said(&session, asked.as_ref(), line.text());
            let typed = Typed { id: id.clone(), asked: asked.clone(), text: line.text().to_owned() };
            effect = Effect::Start(app.begin_to_say(order.clone(), typed), order);
            line = Line::default();
        }
        // Home and End are the line's.
        Key::Up | Key::Down | Key::PageUp | Key::PageDown | Key::WheelUp(..) | Key::WheelDown(..) => {
            // What was said last stands at the end: down leads there.
            let (by, down) = scroll(app, key).unwrap_or_default();
            up = if down { up.saturating_sub(by) } else { up.saturating_add(by) };
        }
        key => drop(line.key(key)),
    }
    app.view = View::Reply { id, asked, line, scrolled: up };
    let most = draw::preview_scroll(app);
    if let View::Reply { scrolled, .. } = &mut app.view {
        *scrolled = up.min(most);
    }
    effect
}

/// Whether its reason is the very words of the request that is answered.
fn told_by_hook(session: &Session) -> bool {
    session.because.iter().any(|(role, o)| *role == Role::Decided && o.witness == Witness::Hook)
}

/// What is typed is an answer if it asked a question when the first letter was typed, else a prompt.
fn said(session: &Session, asked: Option<&Untrusted>, text: &str) -> Order {
    let to = target(session);
    if let Some(asked) = asked {
        let order = Order::new("answer", Some(&to), &["--", text]);
        return if told_by_hook(session) { order.expecting(asked) } else { order };
    }
    let shown = Order::new("send", Some(&to), &[text]).shown;
    Order { stdin: text.to_owned(), shown, ..Order::new("send", Some(&to), &["-"]) }
}

fn confirm(app: &mut App, key: &Key, confirm: Confirm) -> Effect {
    match key {
        Key::Enter => return start(app, confirm.order),
        Key::Char(c) if *c == confirm.key || *c == 'y' => return start(app, confirm.order),
        Key::Char('c') => {
            let shown = confirm.order.shown.clone();
            app.view = View::Confirm(confirm);
            return Effect::Copy(shown);
        }
        Key::Press(..) | Key::WheelUp(..) | Key::WheelDown(..) => app.view = View::Confirm(confirm),
        _ => app.tell("nothing was done"),
    }
    Effect::Nothing
}

fn deny(app: &mut App, key: &Key, target: Target, asked: Untrusted, by_hook: bool, mut line: Line) -> Effect {
    match key {
        Key::Enter if app.still_asks(&target.id, &asked) => {
            let reason = line.text().trim();
            let more: Vec<&str> = if reason.is_empty() { Vec::new() } else { vec!["--", reason] };
            let order = Order::new("deny", Some(&target), &more);
            return start(app, if by_hook { order.expecting(&asked) } else { order });
        }
        Key::Esc => {
            app.tell("nothing was done");
            return Effect::Nothing;
        }
        Key::Enter => app.refuse("nothing was answered"),
        key => drop(line.key(key)),
    }
    app.view = View::Deny { target, asked, by_hook, line };
    Effect::Nothing
}

fn new_form(app: &App) -> Form {
    let mut agents: Vec<String> = Vec::new();
    for adapter in lariat_adapters::all() {
        if adapter.name() == "acp" {
            let settings = Settings::read(&Places::from_env());
            agents.extend(settings.acp.iter().map(|s| format!("acp:{}", s.name)));
        } else if adapter.name() == described::NAME {
            let settings = Settings::read(&Places::from_env());
            agents.extend(settings.described.iter().map(|s| format!("agent:{}", s.name)));
        } else if adapter.remote().is_none() {
            agents.push(adapter.name().to_owned());
        }
    }
    let session = app.session();
    let here = || std::env::current_dir().ok().map(|d| d.to_string_lossy().into_owned());
    let cwd = session.and_then(|s| s.cwd.as_ref()).map(|c| c.raw().to_owned()).or_else(here).unwrap_or_default();
    Form::new(agents, session.map_or("claude", |s| s.agent), &cwd)
}

fn form(app: &mut App, key: &Key, mut form: Form) -> Effect {
    match key {
        Key::Enter => return start(app, form.order()),
        Key::Esc => return Effect::Nothing,
        key => form.key(key),
    }
    app.view = View::Form(form);
    Effect::Nothing
}

/// Opens a page that a command fills.
fn open(app: &mut App, title: &'static str, order: Order, then: Option<Order>) -> Effect {
    let number = app.begin(order.clone());
    let page = Page { title, number, order: order.clone(), lines: Vec::new(), done: false, scrolled: 0, then };
    app.view = View::Page(page);
    Effect::Start(number, order)
}

fn warnings(app: &App) -> Page {
    let warnings = app.answer.as_ref().map_or(&[][..], |a| &a.listing.warnings);
    let mut lines: Vec<String> = warnings
        .iter()
        .map(|w| {
            let path = w.path.as_ref().map_or_else(String::new, |p| format!("{}: ", p.row()));
            format!("{}: {path}{}", w.adapter, w.error.row())
        })
        .collect();
    if lines.is_empty() {
        lines.push("Everything could be read.".into());
    }
    let order = Order::new("doctor", None, &[]);
    Page { title: "warnings", number: 0, order, lines, done: true, scrolled: 0, then: None }
}

fn page(app: &mut App, key: &Key, mut page: Page) -> Effect {
    match key {
        Key::Char('q') | Key::Esc | Key::Left => return Effect::Nothing,
        Key::Enter if page.done && page.then.is_some() => {
            let Some(then) = page.then.take() else { return Effect::Nothing };
            let number = app.begin(then.clone());
            let empty = Page { number, order: then.clone(), lines: Vec::new(), done: false, scrolled: 0, ..page };
            app.view = View::Page(empty);
            return Effect::Start(number, then);
        }
        Key::Char('c') => {
            let shown = page.then.as_ref().unwrap_or(&page.order).shown.clone();
            app.view = View::Page(page);
            return Effect::Copy(shown);
        }
        key => page.scrolled = scrolled(app, page.scrolled, key).unwrap_or(page.scrolled),
    }
    app.view = View::Page(page);
    let most = draw::page_scroll(app);
    if let View::Page(page) = &mut app.view {
        page.scrolled = page.scrolled.min(most);
    }
    Effect::Nothing
}

fn explain(app: &mut App, key: &Key, id: Untrusted, at: usize) -> Effect {
    match key {
        Key::Char('q' | 'e') | Key::Esc | Key::Left => return Effect::Nothing,
        Key::Char('c') => {
            let shown = app.find(&id).map(|s| Order::new("explain", Some(&target(s)), &[]).shown);
            app.view = View::Explain { id, scrolled: at };
            return shown.map_or(Effect::Nothing, Effect::Copy);
        }
        _ => {}
    }
    let at = scrolled(app, at, key).unwrap_or(at);
    app.view = View::Explain { id, scrolled: at };
    let most = draw::page_scroll(app);
    if let View::Explain { scrolled, .. } = &mut app.view {
        *scrolled = at.min(most);
    }
    Effect::Nothing
}

fn help(app: &mut App, key: &Key, mut line: Line, mut at: usize) -> Effect {
    match key {
        Key::Esc | Key::Enter => return Effect::Nothing,
        key => match scroll(app, key) {
            Some((by, true)) => at = at.saturating_add(by),
            Some((by, false)) => at = at.saturating_sub(by),
            None => {
                line.key(key);
                at = 0;
            }
        },
    }
    app.view = View::Help { line, scrolled: at };
    let most = draw::page_scroll(app);
    if let View::Help { scrolled, .. } = &mut app.view {
        *scrolled = at.min(most);
    }
    Effect::Nothing
}

/// What a copied command line is told as.
pub fn copied(app: &mut App, shown: &str) {
    app.tell(format!("copied, if your terminal allows it: {shown}"));
}

/// The command that attaches to a session, by its exact id.
pub fn attach(session: &Session) -> Vec<String> {
    Order::new("attach", Some(&target(session)), &[]).args
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lariat_core::{Fact, Observation, State, Time};
    use lariat_engine::list::Answer;

    use super::*;
    use crate::tui::act::Ended;

    fn waiting(reason: &'static str) -> Session {
        Session {
            id: "claude:1c80".into(),
            agent: "claude",
            native_id: "1c80".into(),
            handle: Some("brisk-heron".into()),
            name: None,
            host: None,
            status: Status::Waiting,
            reason: reason.into(),
            live: Some(true),
            pid: None,
            cwd: None,
            branch: None,
            model: None,
            title: None,
            prompt: None,
            started_at: None,
            updated_at: None,
            ended_at: None,
            exit: None,
            tokens: None,
            cost_usd: None,
            group: None,
            kept: false,
            restorable: false,
            tool: None,
            parent: None,
            because: vec![(Role::Decided, Observation::new(Witness::Hook, Fact::State(State::Idle)))],
            transcript: None,
            start: None,
            shared: false,
            elsewhere: false,
            also: None,
            teller: None,
        }
    }

    fn shown(reason: &'static str) -> App {
        let mut app = App::new((80, 24));
        let mut answer = Answer::empty(Time(0));
        answer.listing.sessions.push(Box::new(waiting(reason)));
        app.looked(Arc::new(answer));
        app.moved = false;
        app
    }

    #[test]
    fn what_was_not_sent_is_in_the_line_when_it_is_opened_again() {
        let mut app = shown("permission: Bash make");
        let mut say = |text: &str, leave: bool, code: i32| {
            press(&mut app, &Key::Char(' '));
            press(&mut app, &Key::Paste(text.into()));
            let Effect::Start(number, _) = press(&mut app, &Key::Enter) else { panic!("{text}") };
            press(&mut app, if leave { &Key::Esc } else { &Key::Char('x') });
            app.ended(number, &Ended { code: Some(code), out: String::new(), err: "no".into() });
            press(&mut app, &Key::Esc);
            press(&mut app, &Key::Char(' '));
            let View::Reply { line, .. } = &app.view else { panic!("{:?}", app.view) };
            let text = line.text().to_owned();
            press(&mut app, &Key::Esc);
            text
        };
        assert_eq!(say("left", true, 3), "left");
        assert_eq!(say("typing on", false, 3), "typing on");
        // Once, and never what was sent or may have been.
        for code in [0, 4, 5] {
            assert_eq!(say("sent", true, code), "", "{code}");
        }
    }

    #[test]
    fn what_is_answered_is_the_request_that_was_shown() {
        let mut app = shown("permission: Bash make");
        let mut args = |keys: &[Key]| match keys.iter().map(|key| press(&mut app, key)).last() {
            Some(Effect::Start(_, order)) => order.args,
            other => panic!("{other:?}"),
        };
        let expected = "--expect=permission: Bash make";
        assert_eq!(args(&[Key::Char('y'), Key::Enter]), ["approve", "claude:1c80", expected]);
        assert_eq!(args(&[Key::Char('N'), Key::Enter]), ["deny", "claude:1c80", expected]);
        let with_reason = [Key::Char('N'), Key::Char('x'), Key::Enter];
        assert_eq!(args(&with_reason), ["deny", "claude:1c80", expected, "--", "x"]);
    }
}
