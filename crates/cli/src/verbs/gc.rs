//! `lariat gc`: forgets our own records of what has ended long ago.

use anyhow::Context as _;
use lariat_adapters::look::Scope;
use lariat_core::{Time, Untrusted};
use lariat_engine::{after, claims, evict, list, stop};
use serde::Serialize;

use crate::Done;
use crate::args::{Common, Gc};
use crate::output::Out;
use crate::verbs::{question, worktree};

#[derive(Serialize)]
struct Told {
    schema: u32,
    done: bool,
    records: Vec<Row>,
    worktrees: Vec<worktree::Removed>,
}

#[derive(Serialize)]
struct Row {
    name: Untrusted,
    last: Time,
}

pub fn run(args: &Gc, common: &Common, out: &mut Out) -> Done {
    let live = question(common, Scope::Live);
    let retain = args.retain.unwrap_or_else(|| evict::retain(&live.places));
    if args.yes {
        // It acts, so it finishes what was cut short.
        stop::finish(&live.places, &list(live.clone()).listing.sessions);
        after::owed(&live.places);
    }
    let worktrees = worktree::removable(common, retain, args.yes)?;
    // Nobody starts one again between the look and the forgetting.
    let guard = || claims::guard(&live.places).with_context(|| live.places.state.display().to_string());
    let _guard = args.yes.then(guard).transpose()?;
    let old = evict::old(&live.places, retain);
    let done = args.yes.then(|| evict::forget(&old));
    if out.json {
        let records = old.into_iter().map(|o| Row { name: o.name.into(), last: o.last }).collect();
        out.json(&Told { schema: 1, done: done.is_some(), records, worktrees })?;
        return Ok(0);
    }
    for o in &old {
        out.line(format_args!("{}  last heard of at {}", Untrusted::new(o.name.clone()).row(), o.last))?;
    }
    for removed in &worktrees {
        removed.tell(out)?;
    }
    match done {
        Some(n) => out.line(format_args!("{n} records forgotten"))?,
        None if old.is_empty() && worktrees.is_empty() => out.line("Nothing to forget.")?,
        None => {
            let all = old.len() + worktrees.len();
            out.line(format_args!("{all} in all; the same with --yes forgets records and removes worktrees"))?;
        }
    }
    Ok(0)
}
