//! `lariat worktree`: checkouts of sessions, listed, saved, given back, removed.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use lariat_adapters::look::{Places, Scope};
use lariat_core::{Session, Time, Untrusted, Warning};
use lariat_engine::worktree::clean::{self, Look, Removal};
use lariat_engine::worktree::{self, Worktree, WorktreeError, apply, make, saved};
use lariat_engine::{Question, list, resolve};
use lariat_sys::clock;
use serde::Serialize;

use crate::Done;
use crate::args::{Common, WorktreeApply, WorktreeClean, WorktreeTargets, WorktreeVerb};
use crate::output::{Failure, Ink, Out, Wrong, complain};
use crate::verbs::{question, warn};

/// How many ignored files are named on a terminal.
const NAMED: usize = 10;

pub fn run(verb: &WorktreeVerb, common: &Common, out: &mut Out) -> Done {
    match verb {
        WorktreeVerb::Ls => ls(common, out),
        WorktreeVerb::Clean(args) => clean(args, common, out),
        WorktreeVerb::Save(args) => save(args, common, out),
        WorktreeVerb::Apply(args) => give_back(args, common, out),
    }
}

/// The lock of whoever acts on worktrees.
fn guard(places: &Places) -> Result<File, Failure> {
    Ok(worktree::guard(places).with_context(|| places.state.display().to_string())?)
}

fn fail(error: WorktreeError) -> Failure {
    match error {
        WorktreeError::Usage(_) => Failure::Usage(error.to_string()),
        WorktreeError::Refused(_) | WorktreeError::Changing(_) => Failure::Refused(error.to_string()),
        error => error.into(),
    }
}

#[derive(Serialize)]
struct Row {
    handle: String,
    path: Untrusted,
    branch: Option<Untrusted>,
    repo: Untrusted,
    base: String,
    dirty: Option<bool>,
    work: Option<String>,
    ahead: Option<u64>,
    behind: Option<u64>,
    size: Option<u64>,
    in_use: Vec<Untrusted>,
    saved: Vec<String>,
    gone: bool,
    removable: bool,
    kept: Option<Untrusted>,
    created_at: Time,
}

impl From<Look> for Row {
    fn from(look: Look) -> Row {
        let w = look.worktree;
        let gone = w.gone || !w.path.exists();
        Row {
            handle: w.handle,
            path: Untrusted::new(w.path.to_string_lossy()),
            branch: look.branch.or(Some(w.branch).filter(|_| gone)).map(Untrusted::new),
            repo: Untrusted::new(w.repo.to_string_lossy()),
            base: w.base,
            dirty: look.dirt.map(|d| d.any()),
            work: look.dirt.filter(|d| d.any()).map(|d| d.phrase()),
            ahead: look.ahead,
            behind: look.behind,
            size: look.size,
            in_use: look.users.into_iter().map(Untrusted::new).collect(),
            saved: look.saved.into_iter().map(|s| s.name).collect(),
            gone,
            removable: look.kept.is_none() && !gone,
            kept: look.kept.map(Untrusted::new),
            created_at: w.created_at,
        }
    }
}

#[derive(Serialize)]
struct Told {
    schema: u32,
    worktrees: Vec<Row>,
    warnings: Vec<Warning>,
}

fn ls(common: &Common, out: &mut Out) -> Done {
    let question = question(common, Scope::Live);
    let (found, warnings) = worktree::all(&question.places);
    let sessions = clean::sessions(&question);
    let rows: Vec<Row> = found.iter().map(|w| clean::look(&question.places, w, &sessions, true).into()).collect();
    if out.json {
        out.json(&Told { schema: 1, worktrees: rows, warnings })?;
        return Ok(0);
    }
    for row in &rows {
        let branch = row.branch.as_ref().map_or_else(|| "detached".to_owned(), Untrusted::row);
        let mut facts: Vec<String> = Vec::new();
        facts.extend(row.work.clone());
        facts.extend(row.ahead.filter(|n| *n > 0).map(|n| format!("{n} ahead")));
        facts.extend(row.behind.filter(|n| *n > 0).map(|n| format!("{n} behind")));
        facts.extend(row.size.map(size));
        facts.extend(row.in_use.iter().map(Untrusted::row));
        facts.extend(Some("removed".to_owned()).filter(|_| row.gone));
        facts.extend(row.saved.last().map(|s| format!("saved as {s}")));
        let name = out.ink(Ink::Bold, &row.handle);
        out.line(format_args!("{name}  {branch}  {}", facts.join(", ")))?;
        let path = out.ink(Ink::Dim, row.path.row());
        out.line(format_args!("  {path}"))?;
    }
    if rows.is_empty() {
        out.line("No worktrees. `lariat launch AGENT --worktree` makes one.")?;
    }
    out.flush()?;
    warn(&warnings);
    Ok(0)
}

fn size(bytes: u64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB"];
    let mut number = bytes as f64;
    let mut unit = 0;
    while number >= 1000.0 && unit + 1 < units.len() {
        number /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{number:.1} {}", units[unit]) }
}

/// How the removal of one worktree went.
#[derive(Serialize)]
pub struct Removed {
    handle: String,
    path: Untrusted,
    outcome: &'static str,
    reason: Option<Untrusted>,
    saved: Option<String>,
    ignored: Vec<Untrusted>,
    left_behind: usize,
}

/// The same, as an answer.
#[derive(Serialize)]
struct Cleaned {
    #[serde(flatten)]
    removed: Removed,
    schema: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Wrong>,
}

impl Removed {
    fn of(worktree: &Worktree, removal: Result<Removal, WorktreeError>) -> Removed {
        let (outcome, reason, saved, ignored, left_behind) = match removal {
            Ok(Removal::Removed { saved, ignored, left_behind }) => ("removed", None, saved, ignored, left_behind),
            Ok(Removal::Kept(why)) => ("preserved", Some(why), None, Vec::new(), 0),
            Err(e) => ("preserved", Some(e.to_string()), None, Vec::new(), 0),
        };
        Removed {
            handle: worktree.handle.clone(),
            path: Untrusted::new(worktree.path.to_string_lossy()),
            outcome,
            reason: reason.map(Untrusted::new),
            saved,
            ignored: ignored.iter().map(|p: &PathBuf| Untrusted::new(p.to_string_lossy())).collect(),
            left_behind,
        }
    }

    fn plan(look: &Look, force: bool) -> Removed {
        let forced = force && look.force_helps;
        let plan = match &look.kept {
            None => Removal::Removed { saved: None, ignored: Vec::new(), left_behind: 0 },
            Some(why) if forced => Removal::Kept(format!("{why}; its work would be saved first")),
            Some(why) => Removal::Kept(why.clone()),
        };
        let mut told = Removed::of(&look.worktree, Ok(plan));
        if look.kept.is_none() || forced {
            told.outcome = "would remove";
        }
        told
    }

    /// 3 if it was refused.
    pub fn code(&self) -> u8 {
        if self.outcome == "preserved" { 3 } else { 0 }
    }

    /// Tells a person.
    pub fn tell(&self, out: &mut Out) -> Result<(), Failure> {
        let (handle, path) = (&self.handle, self.path.row());
        let why = self.reason.as_ref().map_or_else(String::new, |r| format!(": {}", r.row()));
        out.line(format_args!("{handle}  worktree {}  {path}{why}", self.outcome))?;
        if let Some(saved) = &self.saved {
            out.line(format_args!("  its work is saved as {saved}; `lariat worktree apply {handle}` gives it back"))?;
        }
        if self.left_behind > 0 {
            let n = self.left_behind;
            out.line(format_args!("  {n} commits that no branch holds are kept as refs/lariat/left/{handle}/"))?;
        }
        for path in self.ignored.iter().take(NAMED) {
            out.line(format_args!("  ignored, not saved: {}", path.row()))?;
        }
        if self.ignored.len() > NAMED {
            out.line(format_args!("  and {} more ignored files", self.ignored.len() - NAMED))?;
        }
        Ok(())
    }
}

/// The worktree that a target means: by itself, or by its session.
fn find(target: &str, found: &[Worktree], common: &Common) -> Result<Worktree, Failure> {
    let missing = match worktree::find(target, found) {
        Ok(worktree) => return Ok(worktree.clone()),
        Err(e) => e,
    };
    let answer = list(question(common, Scope::All));
    let session = resolve(target, &answer.listing.sessions).ok().map(|at| &answer.listing.sessions[at]);
    let of_session = session.and_then(|s| of(s, found));
    of_session.cloned().ok_or_else(|| fail(missing))
}

/// The worktree that a session works in.
fn of<'a>(session: &Session, found: &'a [Worktree]) -> Option<&'a Worktree> {
    let cwd = session.cwd.as_ref().map(|c| std::path::Path::new(c.raw()));
    let by_handle = found.iter().find(|w| session.handle.as_deref() == Some(&w.handle));
    by_handle.or_else(|| found.iter().find(|w| !w.gone && cwd.is_some_and(|c| c.starts_with(&w.path))))
}

fn remove(question: &Question, worktree: &Worktree, force: bool) -> Removed {
    let removed = Removed::of(worktree, clean::remove(question, worktree, force));
    let why = removed.reason.as_ref().map_or_else(String::new, |r| format!(": {}", r.raw()));
    let saved = removed.saved.as_ref().map_or_else(String::new, |s| format!(", work saved as {s}"));
    make::note(&question.places, "worktree clean", &worktree.handle, format!("{}{saved}{why}", removed.outcome));
    removed
}

fn clean(args: &WorktreeClean, common: &Common, out: &mut Out) -> Done {
    let question = question(common, Scope::Live);
    let (found, warnings) = worktree::all(&question.places);
    let named: Vec<Worktree> = args.targets.iter().map(|t| find(t, &found, common)).collect::<Result<_, _>>()?;
    let targets = if args.targets.is_empty() { found.into_iter().filter(|w| !w.gone).collect() } else { named };
    let mut worst = 0;
    let sessions = if args.dry_run { clean::sessions(&question) } else { Vec::new() };
    for worktree in &targets {
        let removed = if args.dry_run {
            Removed::plan(&clean::look(&question.places, worktree, &sessions, false), args.force)
        } else {
            let _guard = guard(&question.places)?;
            remove(&question, worktree, args.force)
        };
        // Whoever names one wants that one gone.
        let code = if args.targets.is_empty() { 0 } else { removed.code() };
        worst = worst.max(code);
        if out.json {
            let why = removed.reason.clone().unwrap_or_else(|| removed.outcome.into());
            if code != 0 {
                complain(format_args!("lariat: {}: {}", removed.handle, why.raw()));
            }
            out.json(&Cleaned { removed, schema: 1, error: Wrong::by(code, why) })?;
        } else {
            removed.tell(out)?;
        }
        out.flush()?;
    }
    match targets.is_empty() {
        true if out.json => out.json(&Told { schema: 1, worktrees: Vec::new(), warnings: warnings.clone() })?,
        true => out.line("No worktrees to remove.")?,
        false => {}
    }
    warn(&warnings);
    Ok(worst)
}

/// After a session was ended: its worktree goes, if nothing in it would be lost.
pub fn after_end(common: &Common, session: &Session, gone: bool) -> Option<Removed> {
    let question = question(common, Scope::Live);
    let (found, _) = worktree::all(&question.places);
    let worktree = of(session, &found).filter(|w| !w.gone)?;
    if !gone {
        let why = Removal::Kept("its session has not ended".into());
        return Some(Removed::of(worktree, Ok(why)));
    }
    match worktree::guard(&question.places) {
        Ok(_guard) => Some(remove(&question, worktree, false)),
        Err(e) => Some(Removed::of(worktree, Err(WorktreeError::Files(question.places.state.clone(), e)))),
    }
}

/// For `gc`: what `clean` would remove and was made that long ago.
pub fn removable(common: &Common, retain: Duration, act: bool) -> Result<Vec<Removed>, Failure> {
    let question = question(common, Scope::Live);
    let _guard = act.then(|| guard(&question.places)).transpose()?;
    let limit = clock::now_ms() - i64::try_from(retain.as_millis()).unwrap_or(i64::MAX);
    let (found, _) = worktree::all(&question.places);
    let old: Vec<Worktree> = found.into_iter().filter(|w| !w.gone && w.created_at.0 < limit).collect();
    if old.is_empty() {
        return Ok(Vec::new());
    }
    let sessions = clean::sessions(&question);
    let may = old.iter().map(|w| clean::look(&question.places, w, &sessions, false)).filter(|look| look.kept.is_none());
    Ok(may
        .map(|look| if act { remove(&question, &look.worktree, false) } else { Removed::plan(&look, false) })
        .collect())
}

#[derive(Serialize)]
struct ToldSaved {
    handle: String,
    saved: Option<String>,
    commit: Option<String>,
    ignored: Vec<Untrusted>,
}

fn save(args: &WorktreeTargets, common: &Common, out: &mut Out) -> Done {
    let question = question(common, Scope::Live);
    let (found, _) = worktree::all(&question.places);
    for target in &args.targets {
        let worktree = find(target, &found, common)?;
        let _guard = guard(&question.places)?;
        let (one, ignored) = saved::save_now(&question.places, &worktree).map_err(fail)?;
        if let Some(one) = &one {
            make::note(&question.places, "worktree save", &worktree.handle, one.name.clone());
        }
        let ignored: Vec<Untrusted> = ignored.iter().map(|p| Untrusted::new(p.to_string_lossy())).collect();
        if out.json {
            let (saved, commit) = (one.as_ref().map(|s| s.name.clone()), one.map(|s| s.commit));
            out.told(&ToldSaved { handle: worktree.handle, saved, commit, ignored })?;
            continue;
        }
        match one {
            Some(one) => out.line(format_args!("{}  saved as {}", worktree.handle, one.name))?,
            None => out.line(format_args!("{}  has nothing that is not in a commit", worktree.handle))?,
        }
        for path in ignored.iter().take(NAMED) {
            out.line(format_args!("  ignored, not saved: {}", path.row()))?;
        }
    }
    Ok(0)
}

#[derive(Serialize)]
struct ToldApplied {
    saved: String,
    commit: String,
    into: Untrusted,
    files: usize,
    merged: bool,
    left_behind: usize,
}

fn give_back(args: &WorktreeApply, common: &Common, out: &mut Out) -> Done {
    let places = question(common, Scope::Live).places;
    let applied = apply::apply(&places, &args.target, args.into.as_deref()).map_err(fail)?;
    let into = Untrusted::new(applied.into.to_string_lossy());
    make::note(&places, "worktree apply", &args.target, format!("{} into {}", applied.name, into.raw()));
    if out.json {
        let (saved, commit) = (applied.name, applied.commit);
        let (files, merged, left_behind) = (applied.files, applied.merged, applied.left_behind);
        out.told(&ToldApplied { saved, commit, into, files, merged, left_behind })?;
        return Ok(0);
    }
    let how = if applied.merged { "merged into" } else { "given back to" };
    out.line(format_args!("{} {how} {}, {} files", applied.name, into.row(), applied.files))?;
    if applied.left_behind > 0 {
        let n = applied.left_behind;
        out.line(format_args!("  {n} commits that no branch holds are kept below refs/lariat/left/"))?;
    }
    complain(format_args!("git keeps it as {} for a while", applied.commit));
    Ok(0)
}
