//! `lariat rename` and `keep`: what a person says of a session besides.

use lariat_adapters::look::Scope;
use lariat_core::{Session, Untrusted};
use lariat_engine::list::Answer;
use lariat_engine::records::{self, Label};
use lariat_engine::restore;
use lariat_engine::{NotOne, resolve};
use serde::Serialize;

use crate::Done;
use crate::args::{Common, Keep, Rename};
use crate::output::{Failure, Out};
use crate::verbs::launch::check_name;
use crate::verbs::{find, question};

#[derive(Serialize)]
struct Told<'a> {
    id: &'a Untrusted,
    name: Option<Untrusted>,
    kept: bool,
}

pub fn rename(args: &Rename, common: &Common, out: &mut Out) -> Done {
    check_name(&args.name)?;
    let named = |label: &mut Label| label.name = Some(args.name.clone());
    let text = |s: &Session| format!("{} is called {}", s.id.row(), Untrusted::new(args.name.clone()).row());
    let (mut answer, at) = find(&args.target, common)?;
    can_be_meant(&args.name, &mut answer.listing.sessions, at)?;
    run((answer, at), named, text, common, out)
}

/// A name that means another session already would not mean this one.
fn can_be_meant(name: &str, sessions: &mut [Box<Session>], at: usize) -> Result<(), Failure> {
    sessions[at].name = Some(Untrusted::new(name));
    let other = match resolve(name, sessions) {
        Ok(other) => Some(other).filter(|other| *other != at),
        Err(NotOne::Several { candidates, .. }) => candidates.into_iter().find(|other| *other != at),
        Err(NotOne::None(_)) => None,
    };
    other.map_or(Ok(()), |other| {
        let (name, other) = (Untrusted::new(name).row(), sessions[other].id.row());
        Err(Failure::Refused(format!("'{name}' means {other} already; choose another name")))
    })
}

pub fn keep(args: &Keep, common: &Common, out: &mut Out) -> Done {
    let kept = |label: &mut Label| label.kept = Some(!args.off);
    let (answer, at) = find(&args.target, common)?;
    let session = &answer.listing.sessions[at];
    if !args.off && session.handle.is_none() {
        let by_gateway = lariat_adapters::named(session.agent).is_some_and(|a| a.remote().is_some());
        let way = if by_gateway { "send" } else { "resume" };
        let why =
            format!("lariat did not launch it, so nothing brings it back by itself; `lariat {way}` goes on with it");
        return Err(Failure::Refused(format!("{}: {why}", session.id.row())));
    }
    let how = if args.off { "is brought back only when asked" } else { "is brought back without asking" };
    let places = question(common, Scope::All).places;
    let is_mute = lariat_adapters::named(session.agent).is_some_and(|a| a.is_mute());
    if let Some(why) = restore::cannot(&places, session).filter(|_| !args.off && is_mute) {
        return Err(Failure::Refused(format!("{}: it cannot be brought back: {why}", session.id.row())));
    }
    run((answer, at), kept, |s| format!("{} {how}", s.id.row()), common, out)
}

fn run(
    (answer, at): (Answer, usize),
    change: impl Fn(&mut Label),
    text: impl Fn(&Session) -> String,
    common: &Common,
    out: &mut Out,
) -> Done {
    let session = &answer.listing.sessions[at];
    let places = question(common, Scope::All).places;
    let (handle, id) = (session.handle.as_deref(), session.id.raw());
    let label = records::change_label(&places, handle, id, answer.listing.at, change)?;
    if out.json {
        let name = label.name.map(Untrusted::new).or_else(|| session.name.clone());
        out.told(&Told { id: &session.id, name, kept: label.kept.unwrap_or(session.kept) })?;
    } else {
        out.line(text(session))?;
    }
    Ok(0)
}
