//! `lariat rename` and `keep`: what a person says of a session besides.

use lariat_adapters::look::Scope;
use lariat_core::{Session, Untrusted};
use lariat_engine::records::{self, Label, Wishes};
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
    if args.name.trim().is_empty() {
        return Err(Failure::Usage("a name has letters".into()));
    }
    let named = |label: &mut Label| label.name = Some(args.name.clone());
    let text = |s: &Session| format!("{} is called {}", s.id.row(), Untrusted::new(args.name.clone()).row());
    run(&args.target, named, text, common, out)
}

pub fn keep(args: &Keep, common: &Common, out: &mut Out) -> Done {
    let kept = |label: &mut Label| label.kept = Some(!args.off);
    if !args.off {
        let (answer, at) = find(&args.target, common)?;
        let session = &answer.listing.sessions[at];
        if session.handle.is_none() {
            let why = "lariat did not launch it, so nothing brings it back by itself; `lariat resume` goes on with it";
            return Err(Failure::Refused(format!("{}: {why}", session.id.row())));
        }
    }
    let how = if args.off { "is brought back only when asked" } else { "is brought back without asking" };
    run(&args.target, kept, |s| format!("{} {how}", s.id.row()), common, out)
}

fn run(
    target: &str,
    change: impl Fn(&mut Label),
    text: impl Fn(&Session) -> String,
    common: &Common,
    out: &mut Out,
) -> Done {
    let (answer, at) = find(target, common)?;
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
