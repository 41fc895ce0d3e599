//! `lariat journal`: what lariat did, by whom, on what evidence.

use lariat_adapters::look::Scope;
use lariat_core::Untrusted;
use lariat_engine::records::{self, Entry};
use serde::Serialize;

use crate::Done;
use crate::args::{Common, Journal};
use crate::output::{Out, complain};
use crate::verbs::question;

/// An entry with its number, by which a page can go on.
#[derive(Serialize)]
struct Numbered<'a> {
    n: usize,
    #[serde(flatten)]
    entry: &'a Entry,
}

pub fn run(args: &Journal, common: &Common, out: &mut Out) -> Done {
    let (entries, odd) = records::journal(&question(common, Scope::All).places)?;
    let end = args.before.map_or(entries.len(), |n| n.saturating_sub(1).min(entries.len()));
    let start = args.lines.map_or(0, |lines| end.saturating_sub(lines));
    for (n, entry) in (start + 1..).zip(&entries[start..end]) {
        if out.json {
            out.json(&Numbered { n, entry })?;
            continue;
        }
        let text = format!("{}  {} {}  by {}: {}", entry.at, entry.what, entry.id, entry.by, entry.how);
        out.line(Untrusted::new(text).row())?;
    }
    if entries.is_empty() && !out.json {
        out.line("Nothing was done yet.")?;
    }
    if odd > 0 {
        complain(format_args!("warning: {odd} lines of the journal are unreadable"));
    }
    Ok(0)
}
