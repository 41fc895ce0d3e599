//! What was changed where a session works: against the commit its worktree began at,
//! or against `HEAD`.
//!
//! Git compares, with nothing of the repository's run (see [`crate::apart`]): no filter,
//! no text conversion, no program for differences, whatever is configured meanwhile. What git does not know, files that
//! are new and not ignored, is read by ourselves. What is read is bounded: a patch ends
//! at two megabytes and says so.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use lariat_adapters::look::Places;
use lariat_core::{Session, Untrusted};
use lariat_sys::beneath::{Kind, Top};
use serde::Serialize;

use crate::apart::apart;
use crate::git::{Git, GitError};
use crate::worktree::{self, WorktreeError};

/// The longest patch.
const PATCH: usize = 2 << 20;
/// The most files that are listed.
const FILES: usize = 5000;
/// How much of a new file is looked at.
const NEW_FILE: u64 = 1 << 20;
/// What is said for every comparison.
const COMPARE: [&str; 8] =
    ["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-relative", "--ignore-submodules=all", "-z", "-M"];

/// What was changed.
#[derive(Debug, Serialize)]
pub struct Diff {
    /// The top of the checkout.
    pub directory: Untrusted,
    /// The commit that it is compared with; none in a repository without one.
    pub base: Option<String>,
    /// The files.
    pub files: Vec<File>,
    /// How many more there are.
    pub more_files: usize,
    /// Lines that were added, and removed.
    pub added: u64,
    /// See there.
    pub removed: u64,
    /// The patch; none if it was not asked for.
    pub patch: Option<Untrusted>,
    /// The patch was longer.
    pub cut: bool,
}

/// A file that was changed.
#[derive(Debug, Serialize)]
pub struct File {
    /// Where it is, from the top.
    pub path: Untrusted,
    /// Where it was.
    pub old_path: Option<Untrusted>,
    /// In a word.
    pub change: &'static str,
    /// Lines that were added; not known of a binary file.
    pub added: Option<u64>,
    /// Lines that were removed.
    pub removed: Option<u64>,
    /// It, or a part of its changes, is staged.
    pub staged: bool,
    /// It has changes that are not.
    pub unstaged: bool,
    /// Git does not know it.
    pub untracked: bool,
}

/// What was changed where a session works.
pub fn diff(places: &Places, session: &Session, patch: bool) -> Result<Diff, WorktreeError> {
    let cwd = session.cwd.as_ref().map(|c| PathBuf::from(OsStr::new(c.raw())));
    let cwd = cwd.ok_or_else(|| WorktreeError::Refused("it is not known where it works".into()))?;
    let ours = worktree::all(places).0.into_iter().find(|w| w.ready && !w.gone && cwd.starts_with(&w.path));
    let (git, base) = match ours {
        Some(ours) => (ours.git()?, Some(ours.base)),
        None if !cwd.is_dir() => {
            return Err(WorktreeError::Refused(format!("{} is not there any more", cwd.display())));
        }
        None => (Git::within(&cwd), None),
    };
    let _inside = worktree::door::enter(places);
    let top = git.path(&["rev-parse", "--show-toplevel"]).map_err(|e| not_git(&cwd, e))?;
    let head = git.maybe(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?;
    let base = base.or_else(|| head.clone());
    // From the top, so that all of it is compared.
    let git = git.at(&top);
    let shelf = places.cache.as_ref().unwrap_or(&places.state).join("git");
    let apart = apart(&git, &top, &shelf)?;
    compare(&git, &apart, &top, base, head.as_deref(), patch)
}

fn not_git(cwd: &Path, error: GitError) -> WorktreeError {
    match error {
        GitError::Failed(_, why) if why.contains("not a git repository") || why.contains("work tree") => {
            WorktreeError::Refused(format!("{} is not in a checkout of git, so there is no diff", cwd.display()))
        }
        other => other.into(),
    }
}

fn compare(
    git: &Git,
    apart: &Git,
    top: &Path,
    base: Option<String>,
    head: Option<&str>,
    patch: bool,
) -> Result<Diff, WorktreeError> {
    let against = match &base {
        Some(base) => base.clone(),
        None => empty_tree(git)?.to_owned(),
    };
    let ask = |more: &[&str]| apart.ask(&[&COMPARE, more].concat());
    let mut files = parse(&ask(&["--raw", "--numstat", "--no-abbrev", &against, "--"])?);
    let staged = names(&ask(&["--cached", "--name-only", "--no-renames", head.unwrap_or(&against), "--"])?);
    let unstaged = names(&ask(&["--name-only", "--no-renames", "--"])?);
    for file in &mut files {
        let is_in = |names: &[Untrusted]| names.binary_search_by(|n| n.raw().cmp(file.path.raw())).is_ok();
        (file.staged, file.unstaged) = (is_in(&staged), is_in(&unstaged));
    }
    let mut text = Vec::new();
    let mut cut = false;
    if patch {
        // `-z` would change how names stand in a patch.
        let words: Vec<&str> = COMPARE.iter().filter(|w| **w != "-z").copied().collect();
        let rest = ["--patch", "--src-prefix=a/", "--dst-prefix=b/", &against, "--"];
        (text, cut) = apart.ask_at_most(&[&words[..], &rest].concat(), PATCH as u64)?;
    }
    let new = names(&git.ask(&["ls-files", "-z", "--others", "--exclude-standard"])?);
    let root = Top::open(top).map_err(|e| WorktreeError::Files(top.to_owned(), e))?;
    let mut more_files = files.len().saturating_sub(FILES);
    for path in new {
        if files.len() >= FILES {
            more_files += 1;
            continue;
        }
        let (lines, shown) = new_file(&root, &path, patch && !cut);
        if patch && !cut {
            cut = text.len() + shown.len() > PATCH;
            text.extend_from_slice(if cut { b"" } else { shown.as_bytes() });
        }
        let (added, removed) = (lines, lines.map(|_| 0));
        let (staged, unstaged, untracked) = (false, true, true);
        files.push(File { path, old_path: None, change: "added", added, removed, staged, unstaged, untracked });
    }
    files.truncate(FILES);
    files.sort_by(|a, b| a.path.raw().cmp(b.path.raw()));
    let sum = |lines: fn(&File) -> Option<u64>| files.iter().filter_map(lines).sum();
    let (added, removed) = (sum(|f| f.added), sum(|f| f.removed));
    let patch = patch.then(|| Untrusted::new(String::from_utf8_lossy(&text)));
    let directory = Untrusted::new(top.to_string_lossy());
    Ok(Diff { directory, base, files, more_files, added, removed, patch, cut })
}

/// The tree with nothing in it, which every repository knows.
fn empty_tree(git: &Git) -> Result<&'static str, GitError> {
    Ok(match git.line(&["rev-parse", "--show-object-format"])?.as_str() {
        "sha256" => "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
        _ => "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    })
}

/// Names that end in a zero byte, sorted.
fn names(told: &[u8]) -> Vec<Untrusted> {
    let names = told.split(|b| *b == 0).filter(|n| !n.is_empty());
    let mut names: Vec<Untrusted> = names.map(|n| Untrusted::new(String::from_utf8_lossy(n))).collect();
    names.sort_by(|a, b| a.raw().cmp(b.raw()));
    names
}

/// What `--raw --numstat -z` tells: first what happened to each file, then its lines.
fn parse(told: &[u8]) -> Vec<File> {
    let mut words = told.split(|b| *b == 0).filter(|w| !w.is_empty());
    let text = |word: &[u8]| Untrusted::new(String::from_utf8_lossy(word));
    let mut files: Vec<File> = Vec::new();
    let mut at = 0;
    while let Some(word) = words.next() {
        if word.starts_with(b":") {
            let letter = word.rsplit(|b| *b == b' ').next().and_then(|w| w.first()).copied().unwrap_or(b'M');
            let moved = matches!(letter, b'R' | b'C');
            let old_path = if moved { words.next().map(text) } else { None };
            let Some(path) = words.next().map(text) else { break };
            let change = match letter {
                b'A' => "added",
                b'D' => "deleted",
                b'R' => "renamed",
                b'C' => "copied",
                b'T' => "type changed",
                b'U' => "in conflict",
                _ => "modified",
            };
            let (added, removed) = (None, None);
            let (staged, unstaged, untracked) = (false, false, false);
            files.push(File { path, old_path, change, added, removed, staged, unstaged, untracked });
            continue;
        }
        // ADDED<tab>REMOVED<tab>PATH, in the same order; what was moved has its two paths after it.
        let mut parts = word.splitn(3, |b| *b == b'\t');
        let mut number = || parts.next().and_then(|n| std::str::from_utf8(n).ok()?.parse().ok());
        let (added, removed) = (number(), number());
        if parts.next().is_none_or(<[u8]>::is_empty) {
            words.nth(1);
        }
        if let Some(file) = files.get_mut(at) {
            (file.added, file.removed) = (added, removed);
        }
        at += 1;
    }
    files
}

/// How many lines a new file has, and the patch that adds it.
fn new_file(top: &Top, path: &Untrusted, patch: bool) -> (Option<u64>, String) {
    let place = Path::new(OsStr::from_bytes(path.raw().as_bytes()));
    let name = path.row();
    let mut shown = format!("diff --git a/{name} b/{name}\nnew file\n");
    let is_file = matches!(top.look(place), Ok(Some(seen)) if matches!(seen.kind, Kind::File { .. }));
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        top.open_file(place)?.0.take(NEW_FILE + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let content = if is_file { read().ok() } else { None };
    let Some(content) = content.filter(|c| c.len() as u64 <= NEW_FILE && !c.contains(&0)) else {
        shown.push_str("Binary, large or special, so it is not shown\n");
        return (None, if patch { shown } else { String::new() });
    };
    let text = String::from_utf8_lossy(&content);
    let lines = text.lines().count() as u64;
    if !patch {
        return (Some(lines), String::new());
    }
    let _ = write!(shown, "--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,{lines} @@\n"); // a String takes every write
    for line in text.split_inclusive('\n') {
        shown.push('+');
        shown.push_str(line);
    }
    if !text.is_empty() && !text.ends_with('\n') {
        shown.push_str("\n\\ No newline at end of file\n");
    }
    (Some(lines), shown)
}
