//! `lariat diff`: what was changed where a session works.

use lariat_adapters::look::Scope;
use lariat_core::{Time, Untrusted};
use lariat_engine::diff::{self, Diff};
use lariat_engine::worktree::WorktreeError;
use serde::Serialize;

use crate::Done;
use crate::args::{self, Common};
use crate::output::{Failure, Ink, Out};
use crate::verbs::{find, question};

#[derive(Serialize)]
struct Told<'a> {
    schema: u32,
    at: Time,
    id: &'a Untrusted,
    #[serde(flatten)]
    diff: Diff,
}

pub fn run(args: &args::Diff, common: &Common, out: &mut Out) -> Done {
    let (answer, at) = find(&args.target, common)?;
    let session = &answer.listing.sessions[at];
    let places = question(common, Scope::Live).places;
    let row = |e: String| Untrusted::new(e).row();
    let diff = diff::diff(&places, session, !args.stat).map_err(|e| match e {
        WorktreeError::Refused(why) => Failure::Refused(row(why)),
        other => anyhow::anyhow!("{}", row(other.to_string())).into(),
    })?;
    if out.json {
        out.json(&Told { schema: 1, at: answer.listing.at, id: &session.id, diff })?;
        return Ok(0);
    }
    for file in &diff.files {
        let count = |n: Option<u64>, sign: char| n.map_or_else(|| "?".into(), |n| format!("{sign}{n}"));
        let (added, removed) = (count(file.added, '+'), count(file.removed, '-'));
        let mark = if file.untracked { "new, untracked" } else { file.change };
        let from = file.old_path.as_ref().map_or_else(String::new, |p| format!(" (was {})", p.row()));
        out.line(format_args!("{added:>6} {removed:>6}  {}{from}  {}", file.path.row(), out.ink(Ink::Dim, mark)))?;
    }
    if diff.files.is_empty() {
        out.line("nothing is changed")?;
    }
    if let Some(patch) = &diff.patch {
        out.line("")?;
        for line in patch.block().lines() {
            match line.as_bytes().first() {
                Some(b'@') => out.line(out.ink(Ink::Active, line))?,
                Some(b'd') => out.line(out.ink(Ink::Bold, line))?,
                _ => out.line(line)?,
            }
        }
    }
    if diff.cut || diff.more_files > 0 {
        out.line(out.ink(Ink::Dim, format_args!("… cut here; {} more files are not listed", diff.more_files)))?;
    }
    Ok(0)
}
