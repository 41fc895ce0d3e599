//! `lariat ls`: what is here now, grouped by who needs you.

use std::time::Duration;

use lariat_adapters::look::{Places, Scope};
use lariat_adapters::settings::Settings;
use lariat_core::text::fit;
use lariat_core::{Session, Status, Untrusted};
use lariat_engine::hosts::watch::Watch as Hosts;
use lariat_engine::hosts::{Fleet, LOCAL, ask};
use lariat_engine::list::Answer;
use lariat_engine::{Question, list, list_as_text};
use lariat_sys::memory;
use lariat_sys::watch::Watch;

use crate::Done;
use crate::args::{Common, Ls};
use crate::json;
use crate::output::{Failure, Ink, Out, leave_with_the_reader};
use crate::table::{self, Ages, Row};
use crate::verbs::{daemon, question, there, warn};

/// How long a burst of changes may go on before the list is shown again.
const SETTLE: Duration = Duration::from_millis(50);
/// However quiet it is, a fresh look is taken this often.
const AT_LEAST: Duration = Duration::from_secs(60);
/// How soon the next look is where a change may come without a hint.
const SOON: Duration = Duration::from_secs(2);

pub fn run(args: &Ls, common: &Common, out: &mut Out) -> Done {
    if args.watch {
        return watch(args, common, out);
    }
    if let Some(code) = daemon::ask(out)? {
        return Ok(code);
    }
    memory::for_a_moment(args.all);
    check_host(args)?;
    let mut answer = look_with(args, common, None, |question| {
        if out.json && args.limit.is_none() { list_as_text(question, json::session) } else { list(question) }
    });
    let code = code(&answer);
    match args.limit {
        Some(limit) if out.json => {
            let next = page(&mut answer, args.after.as_deref(), limit as usize);
            out.listing_page(&answer.listing, next.as_ref())?;
        }
        _ => show(&answer, is_narrowed(args), out)?,
    }
    answer.saving.clear(); // what was read is written down by now
    std::mem::forget(answer); // the process ends now: freeing ten thousand rows is for nobody
    Ok(code)
}

/// 5 if something could not be told.
fn code(answer: &Answer) -> u8 {
    let unknown = answer.listing.sessions.iter().any(|s| s.status == Status::Unknown);
    if answer.partial || unknown { 5 } else { 0 }
}

/// A host that nobody named has no sessions because it is not known, not because it is idle.
fn check_host(args: &Ls) -> Result<(), Failure> {
    let Some(name) = args.host.as_deref().filter(|name| *name != LOCAL) else { return Ok(()) };
    let places = Places::from_env();
    let gateways = || Settings::read(&places).gateways.into_iter().any(|g| g.host.as_deref() == Some(name));
    if Fleet::read(&places).is_some_and(|f| f.named(name).is_some()) || gateways() {
        return Ok(());
    }
    Err(there::no_host(name))
}

/// What is here now and on hosts, of what was asked for.
pub fn once(args: &Ls, common: &Common) -> Result<Answer, Failure> {
    check_host(args)?;
    Ok(look_with(args, common, None, list))
}

/// What is here now, of what was asked for, by one who stays and looks again.
pub fn look(args: &Ls, common: &Common, hosts: &mut Hosts) -> Answer {
    look_with(args, common, Some(hosts), list)
}

fn look_with(args: &Ls, common: &Common, hosts: Option<&mut Hosts>, list: impl FnOnce(Question) -> Answer) -> Answer {
    let ended = args.all || args.status.iter().any(|s| s.ended());
    let question = question(common, if ended { Scope::All } else { Scope::Live });
    let (places, scope, only) = (question.places.clone(), question.scope, args.host.as_deref());
    let abroad = only != Some(LOCAL);
    // They are asked while we look here.
    let once = hosts.is_none() && abroad;
    let asking = once.then(|| Fleet::read(&places)).flatten();
    let asking = asking.map(|fleet| ask::list(fleet, only, &places, scope, common.deadline));
    let mut answer = list(question);
    let heard = match hosts {
        Some(hosts) if abroad => hosts.hear(&places, only, scope, common.deadline),
        _ => asking.map(ask::Asking::heard),
    };
    heard.into_iter().for_each(|heard| heard.join(&mut answer));
    daemon::tell_seen(&answer);
    let agent = args.agent.as_deref();
    let is_of = |host: Option<&str>, elsewhere: bool| match only {
        None => true,
        Some(LOCAL) => !elsewhere,
        Some(name) => host == Some(name),
    };
    let wanted = |s: &Session| {
        agent.is_none_or(|a| lariat_adapters::means(a, s.agent))
            && (args.status.is_empty() || args.status.contains(&s.status))
            && args.group.as_ref().is_none_or(|g| s.group.as_ref() == Some(g))
            && is_of(s.host.as_deref(), s.elsewhere)
    };
    let listing = &mut answer.listing;
    let here = |s: &Session| ended || !s.status.ended() || s.restorable;
    listing.hidden.ended += listing.sessions.iter().filter(|s| !here(s)).count();
    listing.sessions.retain(|s| here(s) && wanted(s));
    let narrowed = args.group.is_some() || only.is_some_and(|h| h != LOCAL);
    if !ended {
        listing.hidden.ended += answer.lines.len();
        answer.lines.clear();
    }
    if narrowed || agent.is_some() || !args.status.is_empty() {
        answer.lines.retain(|l| {
            !narrowed
                && agent.is_none_or(|a| lariat_adapters::means(a, l.agent))
                && (args.status.is_empty() || args.status.contains(&l.status))
        });
    }
    let of_group = args.group.is_some();
    listing.unbound.retain(|u| {
        let here = is_of(u.host.as_deref(), u.host.is_some());
        here && !of_group && agent.is_none_or(|a| lariat_adapters::means(a, u.agent))
    });
    answer
}

/// Leaves one page of a listing, in the order of ids; the last id of it, if there are more.
fn page(answer: &mut Answer, after: Option<&str>, limit: usize) -> Option<Untrusted> {
    let sessions = &mut answer.listing.sessions;
    sessions.sort_by(|a, b| a.id.raw().cmp(b.id.raw()));
    sessions.retain(|s| after.is_none_or(|after| s.id.raw() > after));
    let more = sessions.len() > limit;
    sessions.truncate(limit);
    sessions.last().filter(|_| more).map(|s| s.id.clone())
}

/// Whether only some of what is here was asked for.
fn is_narrowed(args: &Ls) -> bool {
    args.agent.is_some() || !args.status.is_empty() || args.group.is_some() || args.host.is_some()
}

fn show(answer: &Answer, narrowed: bool, out: &mut Out) -> Result<(), Failure> {
    let listing = &answer.listing;
    if out.json {
        return out.listing(listing, &answer.lines);
    }
    let home = std::env::var("HOME").unwrap_or_default();
    let hidden = listing.hidden.ended;
    let nothing = listing.sessions.is_empty() && listing.unbound.is_empty();
    let header = table::header(&listing.sessions, 0);
    if !header.is_empty() {
        out.line(fit(&header, out.columns()))?;
        out.line("")?;
    }
    let ages = Ages::of(listing.at);
    for row in table::all_rows(&listing.sessions, &listing.unbound, ages, &home, out.columns()) {
        out.line(match row {
            Row::Blank => String::new(),
            Row::Heading(heading) => out.ink(Ink::Bold, fit(heading, out.columns())),
            Row::Session(_, spans) | Row::Unbound(spans) => out.spans(&spans),
        })?;
    }
    match (nothing, hidden) {
        (true, _) if narrowed => out.line("None of these is here now; `lariat ls -a` lists all there is.")?,
        (true, 0) => out.line("No agents here. Start claude or codex in a terminal and look again.")?,
        (true, n) => out.line(format_args!("No agent runs here now. {n} ended: lariat ls -a"))?,
        (false, 0) => {}
        (false, n) => {
            out.line("")?;
            let footer = format!("{n} ended not shown: lariat ls -a");
            out.line(out.ink(Ink::Dim, fit(&footer, out.columns())))?;
        }
    }
    out.flush()?;
    warn(&listing.warnings);
    Ok(())
}

/// Shows the list, and again whenever it has changed.
fn watch(args: &Ls, common: &Common, out: &mut Out) -> Done {
    check_host(args)?;
    leave_with_the_reader();
    let mut hosts = Hosts::default();
    let mut look = || look(args, common, &mut hosts);
    let mut answer = look();
    loop {
        if out.is_terminal() && !out.json {
            out.raw("\x1b[H\x1b[2J\x1b[3J")?;
        }
        show(&answer, is_narrowed(args), out)?;
        out.flush()?;
        answer = loop {
            let next = next(&answer, &mut look, None)?;
            // On a terminal the ages move on even if nothing else does.
            if out.is_terminal() || !same(&answer, &next) {
                break next;
            }
        };
    }
}

/// Whether two answers say the same, but for the moment.
pub fn same(a: &Answer, b: &Answer) -> bool {
    let (a, b) = (&a.listing, &b.listing);
    a.sessions == b.sessions && a.unbound == b.unbound && a.warnings == b.warnings && a.hidden == b.hidden
}

/// The next answer: at once if something has changed since, else when a store or
/// a process gives a hint, or it is time for a look. Nothing is missed: the
/// watch stands before the look that it could miss.
pub fn next(answer: &Answer, look: &mut dyn FnMut() -> Answer, no_longer: Option<Duration>) -> Result<Answer, Failure> {
    let sessions = &answer.listing.sessions;
    // That a call of Codex waits for a person is told by its processes, which give no hint.
    let unhinted = answer.unhinted || sessions.iter().any(|s| s.agent == "codex" && s.status == Status::Working);
    let at_most = if unhinted || !answer.listing.unbound.is_empty() { SOON } else { AT_LEAST };
    let at_most = no_longer.map_or(at_most, |n| n.min(at_most));
    let mut watch = Watch::new();
    answer.watch.iter().for_each(|path| watch.path(path));
    // A PID of another machine is nobody here.
    let processes = sessions.iter().filter(|s| !s.elsewhere).filter_map(|s| s.pid);
    let unbound = answer.listing.unbound.iter().filter(|u| u.host.is_none()).map(|u| u.pid);
    let processes = processes.chain(unbound);
    processes.for_each(|pid| watch.process(pid));
    let now = look();
    if !same(answer, &now) {
        return Ok(now);
    }
    watch.sleep(at_most, SETTLE)?;
    Ok(look())
}
