//! `lariat status`: one session in full, or how many there are of each kind.

use lariat_adapters::look::Places;
use lariat_core::{Session, Status, Time, Warning};
use lariat_engine::restore;
use serde::Serialize;

use crate::Done;
use crate::args::{self, Common, Ls};
use crate::output::{Failure, Out};
use crate::table::{self, Group, short_count};
use crate::verbs::{daemon, ls, there, warn};

/// One session as an answer of its own: its fields, and what was not readable.
#[derive(Serialize)]
pub struct One<'a> {
    schema: u32,
    at: Time,
    #[serde(flatten)]
    session: &'a Session,
    transcript: Option<String>,
    warnings: &'a [Warning],
}

pub fn run(args: &args::Status, common: &Common, out: &mut Out) -> Done {
    if args.targets.iter().all(|t| !t.contains(['.', '/']))
        && let Some(code) = daemon::ask(out)?
    {
        return Ok(code);
    }
    match args.targets.as_slice() {
        [] => counts(args, common, out),
        [target] => {
            let (answer, at) = there::find(target, common)?;
            let session = &answer.listing.sessions[at];
            one(session, answer.listing.at, &answer.listing.warnings, out)?;
            Ok(if session.status == Status::Unknown { 5 } else { 0 })
        }
        targets => {
            let (answer, places) = there::find_all(targets, common)?;
            let mut unknown = false;
            for at in places {
                let session = &answer.listing.sessions[at];
                unknown |= session.status == Status::Unknown;
                one(session, answer.listing.at, &[], out)?;
            }
            warn(&answer.listing.warnings);
            Ok(if unknown { 5 } else { 0 })
        }
    }
}

/// Prints one session in a line.
pub fn brief(session: &Session, at: Time, out: &mut Out) -> Result<(), Failure> {
    if out.json {
        return one(session, at, &[], out);
    }
    Ok(out.line(format_args!("{}  {}: {}", session.id.row(), session.status.word(), session.reason.row()))?)
}

/// Prints one session.
pub fn one(session: &Session, at: Time, warnings: &[Warning], out: &mut Out) -> Result<(), Failure> {
    let transcript = session.transcript.as_ref().map(|p| p.display().to_string());
    if out.json {
        return out.json(&One { schema: 1, at, session, transcript, warnings });
    }
    out.line(format_args!("{}  {}: {}", session.id.row(), session.status.word(), session.reason.row()))?;
    let text = |t: &Option<lariat_core::Untrusted>| t.as_ref().map(|t| t.row());
    let ago = |t: Option<Time>| t.map(|t| format!("{t} ({} ago)", t.age(at)));
    let tokens = session.tokens.map(|t| {
        let [input, output, read, write] = [t.input, t.output, t.cache_read, t.cache_write].map(short_count);
        format!("{input} in, {output} out, {read} cache read, {write} cache written")
    });
    // Of one of another machine, that one knows.
    let cut_off = session.restorable.then(|| {
        let cannot = (!session.elsewhere).then(|| restore::cannot(&Places::from_env(), session)).flatten();
        cannot.map_or_else(|| "`lariat restore` brings it back".into(), |why| format!("cannot be brought back: {why}"))
    });
    let fields = [
        ("host", session.host.as_deref().map(|h| lariat_core::Untrusted::new(h).row())),
        ("handle", session.handle.clone()),
        ("name", text(&session.name)),
        ("group", session.group.as_ref().map(|g| lariat_core::Untrusted::new(g.as_str()).row())),
        ("prompt", session.prompt.as_ref().map(|p| p.row_within(out.columns().saturating_sub(12)))),
        ("tool", text(&session.tool)),
        ("pid", session.pid.map(|p| p.to_string())),
        ("directory", text(&session.cwd)),
        ("branch", text(&session.branch)),
        ("model", text(&session.model)),
        ("tokens", tokens),
        ("cost", session.cost_usd.map(|c| format!("${c:.4}"))),
        ("started", ago(session.started_at)),
        ("updated", ago(session.updated_at)),
        ("ended", ago(session.ended_at)),
        ("exit", session.exit.map(|e| e.to_string())),
        ("cut off", cut_off),
        ("kept", session.kept.then(|| "it comes back without asking".into())),
        ("parent", text(&session.parent)),
        ("transcript", transcript.map(|t| lariat_core::Untrusted::new(t).row())),
    ];
    for (name, value) in fields.into_iter().filter_map(|(n, v)| v.map(|v| (n, v))) {
        out.line(format_args!("  {name:<10} {value}"))?;
    }
    Ok(())
}

fn counts(args: &args::Status, common: &Common, out: &mut Out) -> Done {
    let only = Ls { host: args.host.clone(), ..Ls::default() };
    let answer = ls::once(&only, common)?;
    let sessions = &answer.listing.sessions;
    let count = |group: Group| sessions.iter().filter(|s| Group::of(s) == group).count();
    let ended = count(Group::Ended) + answer.listing.hidden.ended;
    if out.json {
        #[derive(Serialize)]
        struct Counts<'a> {
            schema: u32,
            at: Time,
            needs_you: usize,
            working: usize,
            idle: usize,
            unknown: usize,
            cut_off: usize,
            ended: usize,
            unbound: usize,
            warnings: &'a [Warning],
        }
        out.json(&Counts {
            schema: 1,
            at: answer.listing.at,
            needs_you: count(Group::NeedsYou),
            working: count(Group::Working),
            idle: count(Group::Idle),
            unknown: count(Group::Unknown),
            cut_off: count(Group::CutOff),
            ended,
            unbound: answer.listing.unbound.len(),
            warnings: &answer.listing.warnings,
        })?;
    } else if args.quiet {
        out.line(count(Group::NeedsYou))?;
    } else {
        let header = table::header(sessions, answer.listing.hidden.ended);
        out.line(if header.is_empty() { "No agents here." } else { &header })?;
        warn(&answer.listing.warnings);
    }
    Ok(if answer.partial || count(Group::Unknown) > 0 { 5 } else { 0 })
}
