//! `lariat rename` and `keep`: what a person says of a session besides.

use lariat_adapters::look::Scope;
use lariat_core::{Session, Untrusted};
use lariat_engine::list::Answer;
use lariat_engine::records::{self, Label, Wishes};
use lariat_engine::resolve;
use serde::Serialize;

use crate::Done;
use crate::args::{Common, Keep, Rename};
use crate::output::{Failure, Out};
use crate::verbs::{find, question};

#[derive(Serialize)]
struct Told<'a> {
    id: &'a Untrusted,
    name: Option<Untrusted>,
    kept: bool,
}

pub fn rename(args: &Rename, common: &Common, out: &mut Out) -> Done {
    if matches!(args.name.trim(), "" | "." | "..") {
        return Err(Failure::Usage("a name has letters".into()));
    }
    let named = |label: &mut Label| label.name = Some(args.name.clone());
    let text = |s: &Session| format!("{} is called {}", s.id.row(), Untrusted::new(args.name.clone()).row());
    let (mut answer, at) = find(&args.target, common)?;
    can_be_meant(&args.name, &mut answer.listing.sessions, at)?;
    run((answer, at), named, text, common, out)
}

/// A name that means another session already would not mean this one.
fn can_be_meant(name: &str, sessions: &mut [Box<Session>], at: usize) -> Result<(), Failure> {
    sessions[at].name = Some(Untrusted::new(name));
    match resolve(name, sessions) {
        Ok(other) if other != at => {
            let (name, other) = (Untrusted::new(name).row(), sessions[other].id.row());
            Err(Failure::Refused(format!("'{name}' means {other} already; choose another name")))
        }
        _ => Ok(()),
    }
}

pub fn keep(args: &Keep, common: &Common, out: &mut Out) -> Done {
    let kept = |label: &mut Label| label.kept = Some(!args.off);
    let (answer, at) = find(&args.target, common)?;
    let session = &answer.listing.sessions[at];
    if !args.off && session.handle.is_none() {
        let why = "lariat did not launch it, so nothing brings it back by itself; `lariat resume` goes on with it";
        return Err(Failure::Refused(format!("{}: {why}", session.id.row())));
    }
    let how = if args.off { "is brought back only when asked" } else { "is brought back without asking" };
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
    let known = Wishes::read(&places).labels.remove(session.id.raw());
    let mut label = known.unwrap_or_else(|| Label { id: session.id.raw().to_owned(), ..Label::default() });
    change(&mut label);
    label.at = Some(answer.listing.at);
    records::put_label(&places, session.handle.as_deref(), &label)?;
    if out.json {
        let name = label.name.map(Untrusted::new).or_else(|| session.name.clone());
        out.json(&Told { id: &session.id, name, kept: label.kept.unwrap_or(session.kept) })?;
    } else {
        out.line(text(session))?;
    }
    Ok(0)
}
