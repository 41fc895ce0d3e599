//! Giving saved work back.
//!
//! Where the worktree stands at the commit that the work was saved at, it becomes
//! what it was: files, index, conflicts and flags. Elsewhere the work is merged,
//! in memory first; if anything is in conflict, nothing is touched and the work
//! stays saved. It stays until it was given back whole and read again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lariat_adapters::look::Places;
use lariat_sys::beneath::Top;
use lariat_sys::durable;
use lariat_sys::point::point;

use super::capture::{Capture, Flat, GITLINK, LINK, capture, flat};
use super::saved::{Saved, keep_commits, saved};
use super::{Worktree, WorktreeError, clean, find, guard, make, put};
use crate::git::{Git, GitError};

/// What was given back, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// What it was saved as.
    pub name: String,
    /// The commit that it was, which git keeps for a while.
    pub commit: String,
    /// Where it is now.
    pub into: PathBuf,
    /// How many files were written or removed.
    pub files: usize,
    /// It was merged, because the place is at another commit.
    pub merged: bool,
    /// How many commits that no branch holds are kept by a name of their own.
    pub left_behind: usize,
}

/// The trees to be put in place.
struct Wanted {
    /// What shall stand on the disk; `None` where nothing shall.
    files: Vec<(PathBuf, Option<super::capture::Blob>)>,
    /// The tree of the index.
    index: String,
    /// The index file itself.
    raw_index: Option<Vec<u8>>,
    merged: bool,
}

/// Gives saved work back: `<handle>` for the newest, `<handle>/<n>` for one of it.
pub fn apply(places: &Places, target: &str, into: Option<&Path>) -> Result<Applied, WorktreeError> {
    if let Some(none) = into.filter(|into| !into.is_dir()) {
        return Err(WorktreeError::Usage(format!("{} is not a directory", none.display())));
    }
    if let Some(into) = into
        && let Err(GitError::Failed(..)) = Git::within(into).path(&["rev-parse", "--show-toplevel"])
    {
        let why = "is no checkout of a repository; say one of the repository that the work is of";
        return Err(WorktreeError::Usage(format!("{} {why}", into.display())));
    }
    let _guard = guard(places).map_err(WorktreeError::files(&places.state))?;
    let (all, _) = super::all(places);
    let (handle, number) = match target.rsplit_once('/').and_then(|(h, n)| Some((h, n.parse::<u32>().ok()?))) {
        Some((handle, number)) => (handle, Some(number)),
        None => (target, None),
    };
    // Without a record, the work may still be there: the repository holds it.
    let (name, record) = match (find(handle, &all), into) {
        (Ok(worktree), _) => (worktree.handle.clone(), Some(worktree.clone())),
        (Err(_), Some(_)) => (handle.to_owned(), None),
        (Err(e), None) => return Err(e),
    };
    let repository = match (&record, into) {
        (Some(worktree), _) => worktree.repository(),
        (None, Some(into)) => Git::within(into),
        (None, None) => return Err(WorktreeError::Usage(format!("no worktree fits '{handle}'"))),
    };
    let found = saved(&repository, &name)?;
    let one = match number {
        Some(number) => found.iter().find(|s| s.number == number),
        None => found.last(),
    };
    let one = one.ok_or_else(|| WorktreeError::Usage(format!("nothing is saved as {target}")))?;
    let into = match (into, record) {
        (Some(into), _) => into.to_owned(),
        (None, Some(record)) => place(places, record, one)?,
        (None, None) => return Err(WorktreeError::Usage("say where, with --into PATH".into())),
    };
    let looked_up = Git::within(&into);
    let (top_path, git_dir) = (looked_up.path(&["rev-parse", "--show-toplevel"])?, make::git_dir(&looked_up)?);
    let git = Git::of(&top_path, &git_dir);
    if git.maybe(&["rev-parse", "--verify", "--quiet", &format!("{}^{{commit}}", one.name)])?
        != Some(one.commit.clone())
    {
        return Err(WorktreeError::Usage(format!("{} belongs to another repository", into.display())));
    }
    let top = Top::open(&top_path).map_err(WorktreeError::files(&top_path))?;
    let now = capture(&git, &top, &git_dir.join("index"), false)?;
    let wanted = wanted(&git, &now, one, &into)?;
    refuse_if_in_the_way(&git, &now, &wanted, &into, one)?;
    point("worktree.apply");
    let files = write(&git, &top, &now, &wanted)?;
    restore_index(&git, &git_dir, &wanted)?;
    point("worktree.applied");
    read_again(&git, &top, &git_dir, &wanted, one)?;
    // Merged elsewhere, the work is there, but not the commits that it was made on.
    let commits = Some(one.head.as_str()).filter(|_| wanted.merged);
    let left_behind = keep_commits(&git, &name, commits.as_slice(), Some(&one.name))?;
    git.act(&["update-ref", "-d", &one.name, &one.commit])?;
    let (name, commit) = (one.name.clone(), one.commit.clone());
    Ok(Applied { name, commit, into, files, merged: wanted.merged, left_behind })
}

/// The worktree that the work is from, made again if it is gone.
fn place(places: &Places, mut record: Worktree, one: &Saved) -> Result<PathBuf, WorktreeError> {
    clean::recover(places, &mut record)?;
    if record.path.is_dir() && !record.gone {
        return Ok(record.path);
    }
    let repository = record.repository();
    let branch = format!("refs/heads/{}", record.branch);
    let there = repository.maybe(&["rev-parse", "--verify", "--quiet", &branch])?;
    let path = record.path.clone();
    let mut arguments = vec!["worktree".into(), "add".into()];
    match there {
        Some(_) => arguments.extend([path.clone().into_os_string(), record.branch.clone().into()]),
        None => arguments.extend(["--detach".into(), path.clone().into_os_string(), one.head.clone().into()]),
    }
    repository.act(&arguments)?;
    record.git_dir = Some(make::git_dir(&Git::within(&path))?);
    record.place = Some(lariat_sys::file::place(&path).map_err(WorktreeError::files(&path))?);
    (record.gone, record.removing, record.ready) = (false, None, true);
    put(places, &record)?;
    Ok(path)
}

fn wanted(git: &Git, now: &Capture, one: &Saved, into: &Path) -> Result<Wanted, WorktreeError> {
    let same = now.head.as_deref() == Some(&one.head) || now.head.is_none() && flat(git, &one.head)?.is_empty();
    let Some(head) = now.head.as_ref().filter(|_| !same) else {
        let work = flat(git, &one.commit)?;
        let raw_index = match &one.more {
            Some(more) => Some(git.act(&["cat-file", "blob", &format!("{more}:index")])?),
            None => None,
        };
        let gone = now.files.keys().filter(|p| now.committed.contains_key(*p) && !work.contains_key(*p));
        let gone: Vec<_> = gone.map(|p| (p.clone(), None)).collect();
        let files = work.into_iter().map(|(p, b)| (p, Some(b))).chain(gone).collect();
        return Ok(Wanted { files, index: one.index.clone(), raw_index, merged: false });
    };
    let kept = || {
        let why = "is in conflict with it, so nothing was touched; it stays saved as";
        WorktreeError::Refused(format!("{} {why} {}", into.display(), one.name))
    };
    let merged = merge(git, &one.head, head, &one.commit)?.ok_or_else(kept)?;
    let index = merge(git, &one.head, head, &one.index)?.ok_or_else(kept)?;
    let tree: Flat = flat(git, &merged)?;
    let changed =
        tree.iter().filter(|(p, b)| now.committed.get(*p) != Some(b)).map(|(p, b)| (p.clone(), Some(b.clone())));
    let gone = now.committed.keys().filter(|p| !tree.contains_key(*p)).map(|p| (p.clone(), None));
    Ok(Wanted { files: changed.chain(gone).collect(), index, raw_index: None, merged: true })
}

/// Merges in memory; the tree, or nothing if there is a conflict.
fn merge(git: &Git, base: &str, ours: &str, theirs: &str) -> Result<Option<String>, WorktreeError> {
    let base = format!("--merge-base={base}");
    let arguments = ["merge-tree", "--write-tree", "--no-messages", "--name-only", "-z", &base, ours, theirs];
    let told = git.run(&arguments, None, Duration::from_secs(600))?;
    match told.status.code() {
        Some(0) => {
            let tree = told.stdout.split(|b| *b == 0).next().unwrap_or_default();
            Ok(Some(String::from_utf8_lossy(tree).trim().to_owned()))
        }
        Some(1) => Ok(None),
        _ => Err(GitError::Failed("merge-tree".into(), told.stderr.trim().to_owned()).into()),
    }
}

/// Nothing that the place holds besides its commit is overwritten. What stands
/// there as it is wanted, by a giving back that was cut short, is not in the way.
fn refuse_if_in_the_way(
    git: &Git,
    now: &Capture,
    wanted: &Wanted,
    into: &Path,
    one: &Saved,
) -> Result<(), WorktreeError> {
    let dirt = now.dirt();
    let goal: Flat = wanted.files.iter().filter_map(|(p, b)| Some((p.clone(), b.clone()?))).collect();
    let gone = |p: &PathBuf| wanted.files.iter().any(|(w, b)| w == p && b.is_none());
    let changed = now.changed();
    let half_done = !changed.is_empty()
        && changed.iter().all(|p| match now.files.get(p) {
            Some(f) => goal.get(p) == Some(&f.blob),
            None => gone(p) || !wanted.merged && !goal.contains_key(p),
        });
    let staged = now.staged();
    if half_done && (staged == now.committed || staged == flat(git, &wanted.index)?) {
        return Ok(());
    }
    let is_own = |path: &PathBuf| !now.committed.contains_key(path);
    let differs = |path: &PathBuf, blob: &Option<super::capture::Blob>| {
        now.files.get(path).is_some_and(|f| Some(&f.blob) != blob.as_ref()) || now.ignored.contains(path)
    };
    let hit = wanted.files.iter().find(|(path, blob)| is_own(path) && differs(path, blob)).map(|(path, _)| path);
    let why = if dirt.staged + dirt.unstaged + dirt.conflicted > 0 {
        format!("{} has changes of its own ({}); commit them, or choose another --into", into.display(), dirt.phrase())
    } else if let Some(path) = hit {
        format!("{} would be overwritten in {}; move it, or choose another --into", path.display(), into.display())
    } else {
        return Ok(());
    };
    Err(WorktreeError::Refused(format!("{why}; it stays saved as {}", one.name)))
}

fn write(git: &Git, top: &Top, now: &Capture, wanted: &Wanted) -> Result<usize, WorktreeError> {
    let (mut count, work) = (0, now.work());
    for (path, blob) in &wanted.files {
        let failed = |e| WorktreeError::Files(path.clone(), e);
        let on_disk = now.files.get(path);
        match blob {
            None => {
                let Some(on_disk) = on_disk else { continue };
                if !top.remove_one(path, on_disk.key).map_err(failed)? {
                    return Err(WorktreeError::Changing(path.clone()));
                }
                top.remove_empty(path.parent().unwrap_or(Path::new("")));
            }
            Some(blob) if on_disk.is_some_and(|f| f.blob == *blob) || blob.mode == GITLINK => continue,
            // What a sparse checkout left out stays out.
            Some(blob) if on_disk.is_none() && work.get(path) == Some(blob) => continue,
            Some(blob) => {
                let content = git.act(&["cat-file", "blob", &blob.oid])?;
                match blob.mode {
                    LINK => top.put_link(path, &content).map_err(failed)?,
                    mode => {
                        let mode = if mode & 0o100 != 0 { 0o777 } else { 0o666 };
                        top.put(path, &mut content.as_slice(), mode, true).map_err(failed)?;
                    }
                }
            }
        }
        count += 1;
    }
    Ok(count)
}

fn restore_index(git: &Git, git_dir: &Path, wanted: &Wanted) -> Result<(), WorktreeError> {
    match &wanted.raw_index {
        Some(raw) if !git_dir.join("index.lock").exists() => {
            durable::put(git_dir, "index", raw).map_err(WorktreeError::files(git_dir))
        }
        Some(_) => Err(WorktreeError::Refused(format!("{} is locked by another git", git_dir.display()))),
        None => git.act(&["read-tree", &wanted.index]).map(drop).map_err(Into::into),
    }
}

/// What is on the disk now must be what was wanted.
fn read_again(git: &Git, top: &Top, git_dir: &Path, wanted: &Wanted, one: &Saved) -> Result<(), WorktreeError> {
    let now = capture(git, top, &git_dir.join("index"), false)?;
    let work = now.work();
    let odd = wanted.files.iter().find(|(path, blob)| work.get(path) != blob.as_ref());
    match odd {
        None => Ok(()),
        Some((path, _)) => {
            let why = "is not what was saved: something else writes there; it stays saved as";
            Err(WorktreeError::Refused(format!("{} {why} {}", path.display(), one.name)))
        }
    }
}
