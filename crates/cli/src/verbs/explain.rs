//! `lariat explain`: every observation, which decided, which disagreed.

use lariat_core::{Role, Status};

use crate::Done;
use crate::args::{Common, Target};
use crate::output::{Ink, Out};
use crate::verbs::{find, status, warn};

pub fn run(args: &Target, common: &Common, out: &mut Out) -> Done {
    let (answer, at) = find(&args.target, common)?;
    let session = &answer.listing.sessions[at];
    let code = if session.status == Status::Unknown { 5 } else { 0 };
    if out.json {
        status::one(session, answer.listing.at, &answer.listing.warnings, out)?;
        return Ok(code);
    }
    out.line(format_args!("{}  {}: {}", session.id.row(), session.status.word(), session.reason.row()))?;
    let mut last = None;
    for (role, o) in &session.because {
        if last != Some(*role) {
            out.line("")?;
            out.line(out.ink(Ink::Bold, heading(*role)))?;
            last = Some(*role);
        }
        let age = o.at.map_or_else(String::new, |t| format!("  {} ago", t.age(answer.listing.at)));
        let source = o.source.as_ref().map_or_else(String::new, |s| format!("  {}", s.row()));
        out.line(format_args!(
            "  {:<8}  {}{}",
            o.witness.word(),
            o.fact.told().row(),
            out.ink(Ink::Dim, format_args!("{age}{source}"))
        ))?;
    }
    if session.because.is_empty() {
        out.line("  nothing was observed")?;
    }
    warn(&answer.listing.warnings);
    Ok(code)
}

fn heading(role: Role) -> &'static str {
    match role {
        Role::Decided => "decided by",
        Role::Agreed => "agreeing",
        Role::Disagreed => "overruled",
        Role::Context => "also seen",
    }
}
