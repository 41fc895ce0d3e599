//! `lariat explain`: every observation, which decided, which disagreed.

use lariat_core::{Role, Session, Status, Time};

use crate::Done;
use crate::args::{Common, Target};
use crate::output::{Ink, Out, Spans};
use crate::verbs::{status, there, warn};

pub fn run(args: &Target, common: &Common, out: &mut Out) -> Done {
    let (answer, at) = there::find(&args.target, common)?;
    let session = &answer.listing.sessions[at];
    let code = if session.status == Status::Unknown { 5 } else { 0 };
    if out.json {
        status::one(session, answer.listing.at, &answer.listing.warnings, out)?;
        return Ok(code);
    }
    for line in lines(session, answer.listing.at) {
        out.line(out.spans(&line))?;
    }
    warn(&answer.listing.warnings);
    Ok(code)
}

/// Every observation, line by line.
pub fn lines(session: &Session, now: Time) -> Vec<Spans> {
    let plain = |text: String| vec![(Ink::Plain, text)];
    let mut lines = vec![plain(format!("{}  {}: {}", session.id.row(), session.status.word(), session.reason.row()))];
    let mut last = None;
    for (role, o) in &session.because {
        if last != Some(*role) {
            lines.extend([Vec::new(), vec![(Ink::Bold, heading(*role).to_owned())]]);
            last = Some(*role);
        }
        let age = o.at.map_or_else(String::new, |t| format!("  {} ago", t.age(now)));
        let source = o.source.as_ref().map_or_else(String::new, |s| format!("  {}", s.row()));
        let told = format!("  {:<8}  {}", o.witness.word(), o.fact.told().row());
        lines.push(vec![(Ink::Plain, told), (Ink::Dim, format!("{age}{source}"))]);
    }
    if session.because.is_empty() {
        lines.push(plain("  nothing was observed".into()));
    }
    lines
}

fn heading(role: Role) -> &'static str {
    match role {
        Role::Decided => "decided by",
        Role::Agreed => "agreeing",
        Role::Disagreed => "overruled",
        Role::Context => "also seen",
    }
}
