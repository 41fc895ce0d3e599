//! `lariat wait`: sleeps until sessions come to rest, need you, or end.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use lariat_adapters::look::Scope;
use lariat_core::time::lasting;
use lariat_core::{Session, Status, Time, Untrusted};
use lariat_engine::launched::All;
use lariat_engine::list::Answer;
use lariat_engine::{list, resolve, send};
use serde::Serialize;

use crate::Done;
use crate::args::{Common, Until, Wait};
use crate::output::{Failure, Out, Told, complain};
use crate::verbs::{ls, not_one, question, status, warn};

#[derive(Serialize)]
struct TimedOut<'a> {
    #[serde(flatten)]
    told: Told,
    /// Those that are not there yet.
    sessions: &'a [&'a Session],
}

/// What is known of a session that is not there any more. How it ended is not.
#[derive(Serialize)]
struct Gone {
    schema: u32,
    at: Time,
    id: Untrusted,
    status: Option<Status>,
    reason: &'static str,
    live: bool,
}

pub fn run(args: &Wait, common: &Common, out: &mut Out) -> Done {
    let began = Instant::now();
    let first = list(question(common, Scope::All));
    let ids = resolve_all(args, &first)?;
    let headless = headless(&first, common);
    let hopeless = |id: &&String| {
        let session = first.listing.sessions.iter().find(|s| s.is(id));
        args.until != Until::Done && !headless.contains(*id) && session.is_some_and(|s| tells_nothing(s))
    };
    if let Some(id) = ids.iter().find(hopeless)
        && (!args.any || ids.iter().all(|id| hopeless(&id)))
    {
        let why = "nothing tells when a turn of it is over; `--until done` waits for its end";
        return Err(Failure::Refused(format!("{}: {why}", Untrusted::new(id).row())));
    }
    let mut answer = first;
    loop {
        let found = |id: &String| answer.listing.sessions.iter().find(|s| s.is(id));
        let is_there = |id: &String| match found(id) {
            Some(session) => there(session, args.until, headless.contains(id)),
            // What was there and is no longer has ended, if all could be read.
            None => !answer.partial,
        };
        if if args.any { ids.iter().any(is_there) } else { ids.iter().all(is_there) } {
            let sessions: Vec<&Session> =
                ids.iter().filter(|id| is_there(id)).filter_map(found).map(|s| &**s).collect();
            for session in &sessions {
                status::brief(session, answer.listing.at, out)?;
            }
            if sessions.is_empty() {
                let mut gone = ids.iter().filter(|id| is_there(id));
                gone.try_for_each(|id| left_no_record(id, answer.listing.at, out))?;
            }
            warn(&answer.listing.warnings);
            let any = |statuses: &[Status]| sessions.iter().any(|s| statuses.contains(&s.status));
            return Ok(match any(&[Status::Failed, Status::Interrupted]) {
                true => 1,
                false if any(&[Status::Unknown]) => 5,
                false => 0,
            });
        }
        let left = args.timeout.map(|t| t.saturating_sub(began.elapsed()));
        if left == Some(Duration::ZERO) {
            let missing: Vec<&Session> =
                ids.iter().filter(|id| !is_there(id)).filter_map(found).map(|s| &**s).collect();
            timed_out(args, &missing, out)?;
            return Ok(4);
        }
        answer = ls::next(&answer, &mut || list(question(common, Scope::All)), left)?;
    }
}

/// Tells of one that is not there any more.
fn left_no_record(id: &str, at: Time, out: &mut Out) -> Result<(), Failure> {
    let (id, reason) = (Untrusted::new(id), "it has ended and left no record");
    complain(format_args!("lariat: {}: {reason}", id.row()));
    if out.json {
        out.json(&Gone { schema: 1, at, id, status: None, reason, live: false })?;
    }
    Ok(())
}

/// Tells what was waited for in vain.
fn timed_out(args: &Wait, missing: &[&Session], out: &mut Out) -> Result<(), Failure> {
    let mut text = format!("still not {} after {}", args.until.word(), lasting(args.timeout.unwrap_or_default()));
    for session in missing {
        text.push_str(&format!("\n  {}  {}: {}", session.id.row(), session.status.word(), session.reason.row()));
    }
    complain(format_args!("lariat: {text}"));
    if out.json {
        out.json(&TimedOut { told: Told::new(4, &text), sessions: missing })?;
    }
    Ok(())
}

fn resolve_all(args: &Wait, answer: &Answer) -> Result<Vec<String>, Failure> {
    let one = |t: &String| {
        let at = resolve(t, &answer.listing.sessions).map_err(|e| not_one(&e, answer))?;
        Ok(answer.listing.sessions[at].id.raw().to_owned())
    };
    args.targets.iter().map(one).collect()
}

/// Those that were launched without a terminal: they have no prompt to come to, and what their turn came to is told by
/// their end.
fn headless(answer: &Answer, common: &Common) -> HashSet<String> {
    let mut launched = All::read(&question(common, Scope::Live).places);
    let sessions = answer.listing.sessions.iter();
    let headless = sessions.filter(|s| launched.take(s).is_some_and(|l| l.record.ask.headless));
    headless.map(|s| s.id.raw().to_owned()).collect()
}

/// Whether a session lives, and nothing ever tells of its turns.
fn tells_nothing(session: &Session) -> bool {
    session.live != Some(false) && send::is_mute(session.agent)
}

/// Whether a session is where we wait for it to be. One that has ended can come
/// no nearer, so that counts too, also where it cannot be told how it ended.
fn there(session: &Session, until: Until, headless: bool) -> bool {
    session.status.ended()
        || session.live == Some(false)
        || match until {
            Until::Idle if headless => false,
            Until::Idle => session.at_its_prompt(),
            Until::Waiting => session.status == Status::Waiting,
            Until::Done => false,
        }
}
