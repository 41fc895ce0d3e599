//! `lariat stop` and `lariat kill`: sessions that end and stay ended.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use lariat_adapters::look::{Places, Scope};
use lariat_core::{Session, Untrusted};
use lariat_engine::after;
use lariat_engine::list;
use lariat_engine::resolve;
use lariat_engine::stop::{self, How, Outcome, StopError};
use lariat_sys::tree::Survivor;
use serde::Serialize;

use crate::Done;
use crate::args::{Common, Stop};
use crate::output::{Failure, Out, Wrong, complain};
use crate::verbs::{not_one, question, warn, worktree};

#[derive(Serialize)]
struct Told<'a> {
    id: &'a Untrusted,
    outcome: &'static str,
    reason: Option<String>,
    ended: Vec<u32>,
    survivors: Vec<Left>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worktree: Option<worktree::Removed>,
    schema: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Wrong>,
}

#[derive(Serialize)]
struct Left {
    pid: u32,
    comm: Untrusted,
}

pub fn run(args: &Stop, hard: bool, common: &Common, out: &mut Out) -> Done {
    let question = question(common, Scope::All);
    let places = question.places.clone();
    let mut answer = list(question.clone());
    if !args.all || args.yes {
        after::owed(&places);
        let finished = stop::finish(&places, &answer.listing.sessions);
        for (id, finished) in &finished {
            complain(match finished {
                Ok(Outcome::Survived(_)) => format!("{id} could not be ended"),
                Ok(outcome) => format!("finished what was cut short: {id}: {}", word(outcome)),
                Err(e) => format!("could not finish what was cut short: {id}: {e}"),
            });
        }
        if !finished.is_empty() {
            answer = list(question);
        }
    }
    let sessions = &answer.listing.sessions;
    let targets = chosen(args, &places, sessions, &answer)?;
    let verb = if hard { "kill" } else { "stop" };
    let untold = sessions.iter().filter(|s| s.live.is_none()).count();
    let mut worst = 0;
    if args.all && (untold > 0 || answer.partial) {
        complain(match untold {
            0 => "what could not be looked at is left alone".to_owned(),
            1 => "1 session of which it cannot be told if it lives is left alone".to_owned(),
            n => format!("{n} sessions of which it cannot be told if they live are left alone"),
        });
        worst = 5;
    }
    if args.all && !args.yes {
        return plan(verb, &targets, out).map(|()| worst);
    }
    match targets.is_empty() {
        true if out.json => out.json(&Nothing { schema: 1, ids: [] })?,
        true => out.line("Nothing lives that could be ended.")?,
        false => {}
    }
    let how = How { hard, grace: args.grace, force: args.force };
    each(&places, &targets, sessions, &how, |session, (outcome, unrecorded)| {
        worst = worst.max(code(&outcome));
        let gone = matches!(outcome, Ok(Outcome::Ended(_) | Outcome::Swept(_) | Outcome::AlreadyGone));
        let removed = if args.clean { worktree::after_end(common, session, gone) } else { None };
        worst = worst.max(removed.as_ref().map_or(0, worktree::Removed::code));
        // Only of what was done: a refusal says so itself.
        let unrecorded = unrecorded.filter(|_| outcome.is_ok()).map(|e| {
            format!(
                "that a person asked for it is not on record ({e}), so `lariat restore` may offer to bring it back: \
                 `lariat {verb} {}` again when that can be written",
                session.id.row()
            )
        });
        tell(session, outcome, unrecorded, removed, out)?;
        out.flush()
    })?;
    warn(&answer.listing.warnings);
    Ok(worst)
}

type Ended = (Result<Outcome, StopError>, Option<std::io::Error>);

/// Ends sessions and tells of each when it is done. Several that are given time to end are given it together.
fn each(
    places: &Places,
    targets: &[&Session],
    others: &[Box<Session>],
    how: &How,
    mut tell: impl FnMut(&Session, Ended) -> Result<(), Failure>,
) -> Result<(), Failure> {
    /// How many at once.
    const MOST: usize = 16;
    let others_too = if how.hard { 0 } else { targets.len().clamp(1, MOST) - 1 };
    let next = AtomicUsize::new(0);
    let one = || {
        let session = *targets.get(next.fetch_add(1, Ordering::Relaxed))?;
        Some((session, stop::stop(places, session, others, how)))
    };
    let (ended, told) = mpsc::channel();
    let mut failed = Ok(());
    let mut tell = |(session, outcome)| {
        // All are ended, also if nobody can be told.
        let done = tell(session, outcome);
        failed = std::mem::replace(&mut failed, Ok(())).and(done);
    };
    std::thread::scope(|scope| {
        for _ in 0..others_too {
            let (ended, one) = (ended.clone(), &one);
            let work = move || std::iter::from_fn(one).for_each(|done| drop(ended.send(done)));
            // Without a thread it only takes longer.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        drop(ended);
        while let Some(done) = one() {
            tell(done);
            told.try_iter().for_each(&mut tell);
        }
        told.into_iter().for_each(&mut tell);
    });
    failed
}

fn chosen<'a>(
    args: &Stop,
    places: &Places,
    sessions: &'a [Box<Session>],
    answer: &lariat_engine::list::Answer,
) -> Result<Vec<&'a Session>, Failure> {
    // One that was moved away from its terminal has ended, and the terminal is still there.
    let lives = |s: &Session| s.live == Some(true) || stop::has_left_terminal(places, s, sessions);
    if args.all {
        return Ok(sessions.iter().map(|s| &**s).filter(|s| lives(s)).collect());
    }
    if let Some(group) = &args.group {
        let members: Vec<&Session> =
            sessions.iter().filter(|s| s.group.as_ref() == Some(group)).map(|s| &**s).collect();
        if members.is_empty() {
            return Err(Failure::Usage(format!(
                "no session is in group '{group}'; `lariat ls -a --json` tells the group of each"
            )));
        }
        return Ok(members.into_iter().filter(|s| s.live.is_none() || lives(s)).collect());
    }
    let one = |t: &String| resolve(t, sessions).map(|at| &*sessions[at]).map_err(|e| not_one(&e, answer));
    let mut all: Vec<&Session> = Vec::new();
    for session in args.targets.iter().map(one) {
        let session = session?;
        all.extend(Some(session).filter(|s| all.iter().all(|known| known.id != s.id)));
    }
    Ok(all)
}

fn plan(verb: &str, targets: &[&Session], out: &mut Out) -> Result<(), Failure> {
    if out.json {
        let ids: Vec<&Untrusted> = targets.iter().map(|s| &s.id).collect();
        out.json(&serde_ids(verb, &ids))?;
        return Ok(());
    }
    if targets.is_empty() {
        out.line("Nothing lives that could be ended.")?;
        return Ok(());
    }
    for s in targets {
        out.line(format_args!("would {verb} {}  {}: {}", s.id.row(), s.status.word(), s.reason.row()))?;
    }
    // No command is told: this one may have been said of a host, and there is where it is to be said again.
    out.line(format_args!("{} in all; the same with --yes does it", targets.len()))?;
    Ok(())
}

/// Nobody was there to end.
#[derive(Serialize)]
struct Nothing {
    schema: u32,
    ids: [String; 0],
}

#[derive(Serialize)]
struct Plan<'a> {
    schema: u32,
    plan: &'a str,
    ids: &'a [&'a Untrusted],
}

fn serde_ids<'a>(plan: &'a str, ids: &'a [&'a Untrusted]) -> Plan<'a> {
    Plan { schema: 1, plan, ids }
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::AlreadyGone | Outcome::Swept(_) => "gone",
        Outcome::Ended(_) => "stopped",
        Outcome::Survived(_) => "survived",
        Outcome::Unknown(_) => "unknown",
        Outcome::Refused(_) => "refused",
    }
}

fn code(outcome: &Result<Outcome, StopError>) -> u8 {
    match outcome {
        Ok(Outcome::AlreadyGone | Outcome::Swept(_) | Outcome::Ended(_)) => 0,
        Ok(Outcome::Survived(_)) | Err(_) => 1,
        Ok(Outcome::Refused(_)) => 3,
        Ok(Outcome::Unknown(_)) => 5,
    }
}

/// Who is left because it is another user's.
fn not_ours(left: &[Survivor]) -> Option<String> {
    let refused: Vec<String> = left.iter().filter(|s| s.refused).map(|s| s.pid.to_string()).collect();
    (!refused.is_empty()).then(|| {
        let pids = refused.join(", ");
        format!("another user runs process {pids}, and this one may not signal it; end it as that user, or as root")
    })
}

fn tell(
    session: &Session,
    outcome: Result<Outcome, StopError>,
    unrecorded: Option<String>,
    removed: Option<worktree::Removed>,
    out: &mut Out,
) -> Result<(), Failure> {
    let reason = match &outcome {
        Err(e) => Some(e.to_string()),
        Ok(Outcome::Swept(_)) => Some("it had ended before; what it had left behind was ended".into()),
        Ok(Outcome::Unknown(why) | Outcome::Refused(why)) => Some(why.clone()),
        Ok(Outcome::Survived(left)) => not_ours(left),
        Ok(_) => None,
    };
    if let Some(unrecorded) = &unrecorded {
        complain(format_args!("warning: {unrecorded}"));
    }
    let reason = reason.or(unrecorded);
    let id = session.id.row();
    let wrong = match &outcome {
        Ok(Outcome::Survived(left)) => {
            let names: Vec<String> = left.iter().map(|s| format!("{} ({})", s.pid, s.comm)).collect();
            let why = reason.as_ref().map_or_else(String::new, |why| format!("; {why}"));
            Some(format!("still there: {}{why}", names.join(", ")))
        }
        Ok(Outcome::Unknown(why)) => Some(format!("nothing was signalled: {why}")),
        Ok(Outcome::Refused(why)) => Some(format!("refused: {why}")),
        Err(e) => Some(e.to_string()),
        Ok(_) => None,
    };
    if let Some(wrong) = &wrong {
        complain(format_args!("{id}: {wrong}"));
    }
    if out.json {
        let ended = match &outcome {
            Ok(Outcome::Ended(pids) | Outcome::Swept(pids)) => pids.clone(),
            _ => Vec::new(),
        };
        let survivors = match &outcome {
            Ok(Outcome::Survived(s)) => s.iter().map(|s| Left { pid: s.pid, comm: s.comm.clone().into() }).collect(),
            _ => Vec::new(),
        };
        let error = wrong.and_then(|wrong| Wrong::by(code(&outcome), wrong));
        let (id, outcome) = (&session.id, outcome.as_ref().map_or("failed", word));
        return out.json(&Told { id, outcome, reason, ended, survivors, worktree: removed, schema: 1, error });
    }
    match outcome {
        Ok(Outcome::AlreadyGone) => out.line(format_args!("{id} had ended before: {}", session.status.word()))?,
        Ok(Outcome::Swept(pids)) => {
            let word = session.status.word();
            out.line(format_args!("{id} had ended before: {word}; {} processes it had left are gone", pids.len()))?;
        }
        Ok(Outcome::Ended(pids)) if pids.is_empty() => out.line(format_args!("{id} stopped, its gateway says so"))?,
        Ok(Outcome::Ended(pids)) => out.line(format_args!("{id} stopped, {} processes gone", pids.len()))?,
        Ok(Outcome::Survived(_) | Outcome::Unknown(_) | Outcome::Refused(_)) | Err(_) => {}
    }
    if let Some(removed) = removed {
        removed.tell(out)?;
    }
    Ok(())
}
