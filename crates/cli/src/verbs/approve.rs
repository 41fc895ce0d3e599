//! `lariat approve`, `deny`, `answer`: what a session asks, decided from anywhere.
//!
//! That the answer was taken means little: it is decided when the session is seen to ask that no longer.

use std::time::{Duration, Instant};

use lariat_adapters::Decision;
use lariat_adapters::look::{Places, Scope};
use lariat_core::{Fact, Role, Session, State, Status, Time, Untrusted};
use lariat_engine::ask::{self, Request};
use lariat_engine::launched::{All, Launched};
use lariat_engine::list;
use lariat_engine::list::Question;
use lariat_sys::clock;
use lariat_sys::point::point;
use lariat_sys::watch::Watch;
use serde::Serialize;

use crate::Done;
use crate::args::{Answer, Approve, Common, Deny, Which};
use crate::output::{Failure, Out, Wrong, complain};
use crate::verbs::{find, ls, question};

/// How long a hook may take to begin.
const HOOK: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct Told<'a> {
    id: &'a Untrusted,
    outcome: &'static str,
    asked: Untrusted,
    reason: Option<String>,
    schema: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Wrong>,
}

pub fn approve(args: &Approve, common: &Common, out: &mut Out) -> Done {
    run(&args.target, &args.which, &Decision::Allow, "approved", common, out)
}

pub fn deny(args: &Deny, common: &Common, out: &mut Out) -> Done {
    let reason = Some(args.reason.join(" ")).filter(|r| !r.is_empty());
    run(&args.target, &args.which, &Decision::Deny(reason), "denied", common, out)
}

pub fn answer(args: &Answer, common: &Common, out: &mut Out) -> Done {
    run(&args.target, &args.which, &Decision::Answer(args.answers.clone()), "answered", common, out)
}

fn run(
    target: &str,
    which: &Which,
    decision: &Decision,
    outcome: &'static str,
    common: &Common,
    out: &mut Out,
) -> Done {
    let (answer, at) = find(target, common)?;
    let session = &answer.listing.sessions[at];
    let refused = |why: String| Failure::Refused(format!("{}: {why}", session.id.row()));
    let places = question(common, Scope::Live).places;
    if session.live == Some(false) {
        return Err(refused(format!("it has ended ({}), and asks nothing", session.status.word())));
    }
    let launched = All::read(&places).take(session);
    let by_gateway = || lariat_adapters::named(session.agent).is_some_and(|a| a.remote().is_some());
    let launched = launched.ok_or_else(|| {
        refused(match session.status {
            Status::Working | Status::Starting | Status::Idle => {
                let (word, reason) = (session.status.word(), session.reason.row());
                format!(
                    "it asks nothing that can be seen (it is {word}: {reason}); if it does, answer in its own terminal"
                )
            }
            _ if by_gateway() => {
                "a gateway runs it; answer where it asked, or in the gateway's own page (`openclaw dashboard`)".into()
            }
            _ => "lariat did not launch it; answer in its own terminal".into(),
        })
    })?;
    // The agent may say that it waits a moment before its hook has told what for.
    let (began, soon) = (Instant::now(), which.timeout.min(HOOK));
    let open = || ask::open(&places, session, &launched.folder);
    until(&launched, None, soon, || session.status != Status::Waiting || !open().is_empty())?;
    let request = choose(&launched, &open(), which.request).map_err(|why| {
        let doing = format!("it is {}: {}", session.status.word(), session.reason.row());
        refused(format!("{why} ({doing})"))
    })?;
    let asked = ask::asked(&launched.record.agent, &request).map_or_else(|| "a question".into(), |a| a.reason());
    if which.expect.as_ref().is_some_and(|expected| expected != asked.raw()) {
        return Err(refused(format!("it asks something else by now, so nothing was answered: {}", asked.row())));
    }
    let since = Time(clock::now_ms());
    let answer = ask::answer(&launched, &request, decision).map_err(refused)?;
    let left = || which.timeout.saturating_sub(began.elapsed());
    let mut taken = None;
    until(&launched, Some(&request), left(), || {
        taken = ask::is_taken(&launched, &request, &answer);
        taken.is_some()
    })?;
    let stalled = match taken {
        Some(false) => return Err(refused("it was answered elsewhere, or withdrawn, before this answer".into())),
        Some(true) => {
            point("approve.taken");
            still_asks(session, &launched, since, left, common)?
        }
        None => Some("the answer lies there, and it has not taken it".to_owned()),
    };
    if let Some(why) = &stalled {
        complain(format_args!("{}: {why}", session.id.row()));
    }
    let code = if stalled.is_some() { 4 } else { 0 };
    if out.json {
        let outcome = if stalled.is_some() { "stalled" } else { outcome };
        let error = stalled.clone().and_then(|why| Wrong::by(code, why));
        out.json(&Told { id: &session.id, outcome, asked, reason: stalled, schema: 1, error })?;
    } else if stalled.is_none() {
        out.line(format_args!("{outcome}: {}", asked.row()))?;
    }
    Ok(code)
}

/// Sleeps until something holds of what a session asks, or the time is up.
fn until(
    launched: &Launched,
    request: Option<&Request>,
    patience: Duration,
    mut holds: impl FnMut() -> bool,
) -> Result<(), Failure> {
    let began = Instant::now();
    loop {
        // Anew each time: the folder of what it asks comes with the first of it.
        let mut watch = Watch::new();
        watch.path(&launched.folder.join(ask::FOLDER));
        request.into_iter().for_each(|r| watch.process(r.process.pid));
        let left = patience.saturating_sub(began.elapsed());
        if holds() || left.is_zero() {
            return Ok(());
        }
        watch.sleep(left, Duration::ZERO)?;
    }
}

/// Waits until a session that has taken an answer no longer asks what was answered; what is the case if it still does
/// when the time is up.
fn still_asks(
    session: &Session,
    launched: &Launched,
    since: Time,
    left: impl Fn() -> Duration,
    common: &Common,
) -> Result<Option<String>, Failure> {
    let asking = Question { agent: Some(session.agent), ..question(common, Scope::Live) };
    let mut look = || list(asking.clone());
    let mut answer = look();
    loop {
        let now = answer.listing.sessions.iter().find(|s| s.id == session.id);
        let why = match now {
            // It has ended, or gone on as another one.
            None if !answer.partial => return Ok(None),
            None => "it cannot be told how it is now".to_owned(),
            Some(now) if !asks_as_before(now, &asking.places, launched, since) => return Ok(None),
            Some(now) => format!("it is {}: {}", now.status.word(), now.reason.row()),
        };
        if left().is_zero() {
            return Ok(Some(format!("it took the answer, and has not gone on: {why}")));
        }
        answer = ls::next(&answer, &mut look, Some(left()))?;
    }
}

/// Whether a session may still ask what it asked before a time: nothing newer is asked, and it waits, or nobody can tell.
fn asks_as_before(now: &Session, places: &Places, launched: &Launched, since: Time) -> bool {
    let asks = |fact: &Fact| matches!(fact, Fact::Asks(_) | Fact::State(State::Waiting(_)));
    let mut decided = now.because.iter().filter(|(role, _)| *role == Role::Decided).map(|(_, o)| o);
    let newer = decided.any(|o| asks(&o.fact) && o.at > Some(since));
    let waits = now.status == Status::Waiting && ask::open(places, now, &launched.folder).is_empty() && !newer;
    waits || now.status == Status::Unknown
}

/// The request that is meant, or why none is.
fn choose(launched: &Launched, open: &[Request], number: Option<usize>) -> Result<Request, String> {
    let told = |r: &Request| ask::asked(&launched.record.agent, r).map_or_else(String::new, |a| a.reason().row());
    match (open, number) {
        ([], _) => {
            let shown = match launched.record.launch.headless {
                true => "it has no terminal, `lariat peek` shows what it says",
                false => "`lariat attach` shows its terminal",
            };
            Err(format!("it asks nothing that can be answered from here; {shown}"))
        }
        ([only], None) => Ok(only.clone()),
        (several, Some(n)) => several
            .get(n.wrapping_sub(1))
            .cloned()
            .ok_or_else(|| format!("there is no request {n}, only {}", several.len())),
        (several, None) => {
            let lines = several.iter().enumerate().map(|(i, r)| format!("\n  {}  {}", i + 1, told(r)));
            Err(format!("it asks {} things; choose by --request N:{}\n", several.len(), lines.collect::<String>()))
        }
    }
}
