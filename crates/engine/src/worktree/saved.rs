//! Saved work: a commit that holds all of a worktree.
//!
//! `refs/lariat/saved/<handle>/<n>` is a commit whose tree is the whole content,
//! tracked and untracked, byte for byte. Its first parent is the commit that the
//! worktree was at, its second holds the index. If the index says more than a
//! tree can (conflicts, flags, intended additions), a third parent holds the
//! index file itself and every side of the conflicts.
//!
//! Nothing counts as saved before it was read back: the tree that git then lists
//! must be the one that was captured.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use lariat_adapters::look::Places;
use lariat_sys::beneath::{self, Top};
use lariat_sys::point::point;
use lariat_sys::{clock, file};

use super::capture::{Capture, Flat, LINK, capture, flat};
use super::{Worktree, WorktreeError, clean};
use crate::git::{Git, GitError};

/// Where saved work is.
pub const REFS: &str = "refs/lariat/saved/";
/// Where commits are that only the log of a removed worktree knew.
pub const LEFT: &str = "refs/lariat/left/";
/// How far back a log is followed.
const LOGGED: usize = 1000;
/// How many ignored files a commit's message names.
const NAMED: usize = 1000;
/// How often a worktree that changes while it is saved is looked at again.
const TRIES: usize = 5;

/// One piece of saved work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Saved {
    /// `refs/lariat/saved/<handle>/<n>`.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// The commit.
    pub commit: String,
    /// The commit that the worktree was at.
    pub head: String,
    /// The commit of the index.
    pub index: String,
    /// The commit of what a tree cannot say, if there was any.
    pub more: Option<String>,
}

/// The work saved from a session's worktree, oldest first.
pub fn saved(git: &Git, handle: &str) -> Result<Vec<Saved>, WorktreeError> {
    let told =
        git.line(&["for-each-ref", "--format=%(refname) %(objectname) %(parent)", &format!("{REFS}{handle}/")])?;
    let mut found: Vec<Saved> = told.lines().filter_map(parse).collect();
    found.sort_by_key(|s| s.number);
    Ok(found)
}

fn parse(line: &str) -> Option<Saved> {
    let mut words = line.split(' ').map(str::to_owned);
    let (name, commit, head, index) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let number = name.rsplit('/').next()?.parse().ok()?;
    Some(Saved { name, number, commit, head, index, more: words.next() })
}

/// Saves what was captured; when it returns, it was read back.
pub fn save(
    git: &Git,
    top: &Top,
    worktree: &Worktree,
    capture: &Capture,
    git_dir: &Path,
) -> Result<Saved, WorktreeError> {
    let before = saved(git, &worktree.handle)?;
    let number = before.last().map_or(1, |s| s.number + 1);
    let name = format!("{REFS}{}/{number}", worktree.handle);
    let raw_index = if capture.index_says_more() { Some(index_file(git_dir)?) } else { None };
    let mut stream = |to: &mut dyn Write| {
        let mut to = io::BufWriter::with_capacity(256 << 10, to);
        write(&mut to, top, worktree, capture, &name, raw_index.as_deref())?;
        to.flush()
    };
    git.feed(&["fast-import", "--quiet", "--done", "--date-format=raw"], &mut stream)?;
    point("worktree.imported");
    let one = saved(git, &worktree.handle)?.into_iter().find(|s| s.name == name);
    let one = one.ok_or_else(|| GitError::Odd("fast-import".into(), format!("{name} is not there")))?;
    if flat(git, &one.commit)? != capture.work() || flat(git, &one.index)? != capture.staged() {
        // It changed while it was saved: what was stored is no whole.
        git.act(&["update-ref", "-d", &name, &one.commit])?;
        return Err(WorktreeError::Changing(worktree.path.clone()));
    }
    git.act(&["rev-list", "--objects", "--quiet", &one.commit, "--not", &one.head])?;
    point("worktree.saved");
    Ok(one)
}

/// Saves a worktree as it is now, if anything in it is in no commit. Also tells the
/// ignored files, which are not saved.
pub fn save_now(places: &Places, worktree: &Worktree) -> Result<(Option<Saved>, Vec<PathBuf>), WorktreeError> {
    let mut worktree = worktree.clone();
    clean::recover(places, &mut worktree)?;
    if worktree.gone || !worktree.path.is_dir() {
        return Err(WorktreeError::Usage(format!("{} is gone", worktree.path.display())));
    }
    let (top, git, git_dir) = clean::opened(&worktree)?;
    let mut last = WorktreeError::Changing(worktree.path.clone());
    for _ in 0..TRIES {
        let all = capture(&git, &top, &git_dir.join("index"), false)?;
        if let Some(nested) = all.nested.iter().find(|n| !n.submodule && !n.ignored) {
            let why = "is a repository of its own, which git cannot save; move it";
            return Err(WorktreeError::Refused(format!("{} {why}", nested.path.display())));
        }
        if !all.dirt().any() {
            return Ok((None, all.ignored));
        }
        match save(&git, &top, &worktree, &all, &git_dir) {
            Ok(one) => return Ok((Some(one), all.ignored)),
            // An agent at work: it is looked at again.
            Err(e @ (WorktreeError::Changing(_) | WorktreeError::Git(_))) => last = e,
            Err(e) => return Err(e),
        }
    }
    Err(last)
}

/// The index file, whole.
fn index_file(git_dir: &Path) -> Result<Vec<u8>, WorktreeError> {
    let shared = file::Directory::open(git_dir).and_then(|d| d.entries()).unwrap_or_default();
    if shared.iter().any(|e| e.name.starts_with("sharedindex.")) {
        let why = "its index is split in two; `git update-index --no-split-index` in it makes it one";
        return Err(WorktreeError::Refused(why.into()));
    }
    let path = git_dir.join("index");
    file::read_small(&path, 1 << 30).map_err(WorktreeError::files(&path))
}

fn write(
    to: &mut dyn Write,
    top: &Top,
    worktree: &Worktree,
    capture: &Capture,
    name: &str,
    raw_index: Option<&[u8]>,
) -> io::Result<()> {
    let now = clock::now_ms() / 1000;
    let by = format!("committer lariat <lariat@localhost> {now} +0000\n");
    let begin = |to: &mut dyn Write, mark: u32, message: &str, parents: &[&str]| -> io::Result<()> {
        write!(to, "commit {name}\nmark :{mark}\n{by}data {}\n{message}\n", message.len())?;
        for (i, parent) in parents.iter().enumerate() {
            writeln!(to, "{} {parent}", if i == 0 { "from" } else { "merge" })?;
        }
        writeln!(to, "deleteall")
    };
    let head = match &capture.head {
        Some(head) => head.clone(),
        None => {
            begin(to, 1, "No commit yet", &[])?;
            ":1".to_owned()
        }
    };
    let known: HashSet<&str> =
        capture.committed.values().chain(capture.index.iter().map(|e| &e.blob)).map(|b| b.oid.as_str()).collect();
    begin(to, 2, &format!("The index of {}", worktree.handle), &[&head])?;
    for (path, blob) in &capture.staged() {
        writeln!(to, "M {:o} {} {}", blob.mode, blob.oid, quoted(path))?;
    }
    let mut parents = vec![head.as_str(), ":2"];
    if let Some(raw) = raw_index {
        begin(to, 3, &format!("What else the index of {} says", worktree.handle), &[&head])?;
        writeln!(to, "M 100644 inline index\ndata {}", raw.len())?;
        to.write_all(raw)?;
        writeln!(to)?;
        for (i, side) in capture.sides().enumerate() {
            writeln!(to, "M {:o} {} sides/{i}", side.blob.mode, side.blob.oid)?;
        }
        parents.push(":3");
    }
    begin(to, 4, &message(worktree, capture), &parents)?;
    for (path, blob) in &capture.work() {
        match capture.files.get(path).filter(|_| !known.contains(blob.oid.as_str())) {
            None => writeln!(to, "M {:o} {} {}", blob.mode, blob.oid, quoted(path))?,
            Some(_) if blob.mode == LINK => {
                let target = top.read_link(path)?;
                writeln!(to, "M {:o} inline {}\ndata {}", blob.mode, quoted(path), target.len())?;
                to.write_all(&target)?;
                writeln!(to)?;
            }
            Some(on_disk) => {
                let (mut file, key) = top.open_file(path)?;
                if key != on_disk.key {
                    return Err(io::Error::other(format!("{} changed while it was saved", path.display())));
                }
                writeln!(to, "M {:o} inline {}\ndata {}", blob.mode, quoted(path), key.size)?;
                let mut left = key.size;
                beneath::read_through(&mut file, &mut |piece| {
                    let piece = &piece[..piece.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
                    left -= piece.len() as u64;
                    to.write_all(piece)
                })?;
                if left > 0 {
                    return Err(io::Error::other(format!("{} shrank while it was saved", path.display())));
                }
                writeln!(to)?;
            }
        }
    }
    writeln!(to, "done")
}

fn message(worktree: &Worktree, capture: &Capture) -> String {
    let mut text = format!("Work of {} saved\n\n", worktree.handle);
    let _ = writeln!(text, "worktree: {}", worktree.path.display());
    let _ = writeln!(text, "branch: {}", capture.branch.as_deref().unwrap_or("none"));
    let _ = writeln!(text, "head: {}", capture.head.as_deref().unwrap_or("none"));
    for path in capture.ignored.iter().take(NAMED) {
        let _ = writeln!(text, "ignored, not saved: {}", quoted(path));
    }
    if capture.ignored.len() > NAMED {
        let _ = writeln!(text, "and {} more", capture.ignored.len() - NAMED);
    }
    for path in capture.unstorable.iter().take(NAMED) {
        let _ = writeln!(text, "has no content, not saved: {}", quoted(path));
    }
    text
}

/// A path as fast-import reads it, whatever bytes it is made of.
fn quoted(path: &Path) -> String {
    let mut text = String::from("\"");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            0x20..=0x7e => text.push(char::from(*byte)),
            _ => {
                let _ = write!(text, "\\{byte:03o}");
            }
        }
    }
    text.push('"');
    text
}

/// Gives a name to commits that were made in a worktree and that only its own log
/// still knows (amended, reset away, left on a detached HEAD): the log goes with
/// the worktree. How many names.
pub fn keep_left_behind(git: &Git, handle: &str, git_dir: &Path) -> Result<usize, WorktreeError> {
    let log = file::read_small(&git_dir.join("logs/HEAD"), 64 << 20).unwrap_or_default();
    let log = String::from_utf8_lossy(&log).into_owned();
    let mut seen = HashSet::new();
    let commits = log.lines().rev().filter_map(|line| line.split(' ').nth(1));
    let commits: Vec<&str> = commits.filter(|oid| oid.len() >= 40 && seen.insert(*oid)).take(LOGGED).collect();
    keep_commits(git, handle, &commits, None)
}

/// Gives a name to those of these commits that nothing else holds, but for a name
/// that is about to go. How many names.
pub fn keep_commits(git: &Git, handle: &str, commits: &[&str], but: Option<&str>) -> Result<usize, WorktreeError> {
    let prefix = format!("{LEFT}{handle}/");
    let before = git.line(&["for-each-ref", "--format=%(refname)", &prefix])?;
    let first = before.lines().filter_map(|n| n.rsplit('/').next()?.parse::<usize>().ok()).max().unwrap_or(0) + 1;
    let but = but.map(|name| format!("--exclude={name}"));
    let mut count = 0;
    for oid in commits {
        let mut own = vec!["rev-list", "--count", "--max-count=1", oid, "--not", "--branches", "--remotes", "--tags"];
        own.extend(but.as_deref());
        own.push("--glob=refs/lariat/*");
        // One that git has thrown away already is no answer.
        if git.maybe(&own)?.as_deref() == Some("1") {
            git.act(&["update-ref", &format!("{prefix}{}", first + count), oid, ""])?;
            count += 1;
        }
    }
    Ok(count)
}

/// Whether everything on the disk is held by a tree.
pub fn holds(tree: &Flat, capture: &Capture) -> bool {
    capture.files.iter().all(|(path, f)| tree.get(path) == Some(&f.blob))
}
