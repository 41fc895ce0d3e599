//! `lariat gc`: forgets our own records of what has ended long ago, and those that could not be read and were put aside.

use anyhow::Context as _;
use lariat_adapters::look::Scope;
use lariat_core::{Time, Untrusted};
use lariat_engine::evict::Living;
use lariat_engine::{after, claims, evict, list, stop};
use serde::Serialize;

use crate::Done;
use crate::args::{Common, Gc};
use crate::output::{Failure, Out};
use crate::verbs::{question, worktree};

#[derive(Serialize)]
struct Told {
    schema: u32,
    done: bool,
    records: Vec<Row>,
    aside: Vec<Row>,
    worktrees: Vec<worktree::Removed>,
}

#[derive(Serialize)]
struct Row {
    name: Untrusted,
    last: Time,
}

pub fn run(args: &Gc, common: &Common, out: &mut Out) -> Done {
    let live = question(common, Scope::Live);
    let retain = args.retain.map_or_else(|| evict::retain(&live.places), Ok).map_err(|wrong| {
        let why = "the settings may say how long records are kept and cannot be read";
        Failure::Refused(format!("{why}: mend {wrong}; or say it with --retain"))
    })?;
    if args.yes {
        // It acts, so it finishes what was cut short.
        stop::finish(&live.places, &list(live.clone()).listing.sessions);
        after::owed(&live.places);
    }
    let worktrees = worktree::removable(common, retain, args.yes)?;
    // Nobody starts one again between the look and the forgetting.
    let guard = || claims::guard(&live.places).with_context(|| live.places.state.display().to_string());
    let _guard = args.yes.then(guard).transpose()?;
    let old = evict::old(&live.places, retain, &Living::of(&list(live.clone())));
    let aside = evict::aside(&live.places, retain);
    let forget = || -> std::io::Result<usize> { Ok(evict::forget_aside(&live.places, &aside)? + evict::forget(&old)) };
    let done = args.yes.then(forget).transpose().with_context(|| live.places.state.display().to_string())?;
    let aside = aside.into_iter().map(|(path, last)| Row { name: live.places.shown(&path), last });
    let aside: Vec<Row> = aside.collect();
    if out.json {
        let records = old.into_iter().map(|o| Row { name: o.name.into(), last: o.last }).collect();
        out.json(&Told { schema: 1, done: done.is_some(), records, aside, worktrees })?;
        return Ok(0);
    }
    for o in &old {
        out.line(format_args!("{}  last heard of at {}", Untrusted::new(o.name.clone()).row(), o.last))?;
    }
    for Row { name, last } in &aside {
        out.line(format_args!("{}  could not be read; put aside at {last}", name.row()))?;
    }
    for removed in &worktrees {
        removed.tell(out)?;
    }
    let all = old.len() + aside.len() + worktrees.len();
    match done {
        Some(n) => out.line(format_args!("{n} records forgotten"))?,
        None if all == 0 => out.line("Nothing to forget.")?,
        None => {
            out.line(format_args!("{all} in all; the same with --yes forgets records and removes worktrees"))?;
        }
    }
    Ok(0)
}
