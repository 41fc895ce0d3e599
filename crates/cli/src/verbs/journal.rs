//! `lariat journal`: what lariat did, by whom, on what evidence.

use lariat_adapters::look::Scope;
use lariat_core::Untrusted;
use lariat_engine::records;

use crate::Done;
use crate::args::Common;
use crate::output::{Out, complain};
use crate::verbs::question;

pub fn run(common: &Common, out: &mut Out) -> Done {
    let (entries, odd) = records::journal(&question(common, Scope::All).places)?;
    for entry in &entries {
        if out.json {
            out.json(entry)?;
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
