//! Worktrees: a checkout of its own for a session, and no line of work lost.
//!
//! # Theory of operation
//!
//! A worktree that `launch --worktree` makes has a record of ours, stored before
//! the first step, so that what a crash leaves is known ([`make`]). What it holds
//! is told by git's index and by reading every file, never by what git believes
//! of it ([`capture`]). Work is saved as a commit under `refs/lariat/saved`
//! ([`saved`]) and given back from there ([`apply`]). A worktree goes only if
//! nobody is in it and everything in it can be read back ([`clean`]).
//!
//! All that acts happens under one lock ([`guard`]), and looks are not taken for
//! work ([`door`]). Nothing of the repository's
//! is run (see [`crate::git`]), and every path below a worktree goes through
//! [`lariat_sys::beneath`].

pub mod apply;
pub mod capture;
pub mod clean;
pub(crate) mod door;
mod lfs;
pub mod make;
pub mod saved;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use lariat_adapters::look::Places;
use lariat_core::{Time, Untrusted, Warning};
use lariat_sys::{durable, file};
use serde::{Deserialize, Serialize};

use crate::git::{Git, GitError};

/// A worktree that lariat made, as stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Worktree {
    /// The handle of the session it was made for.
    pub handle: String,
    /// Where it is.
    pub path: PathBuf,
    /// Its device and inode, once it is made.
    pub place: Option<(u64, u64)>,
    /// The repository: the git directory that all its worktrees share.
    pub repo: PathBuf,
    /// Its own git directory, once it is made.
    pub git_dir: Option<PathBuf>,
    /// Its branch.
    pub branch: String,
    /// The commit that the branch was at when the worktree was made.
    pub base: String,
    /// Whether the branch was made with it.
    pub made_branch: bool,
    /// Whether it was made to its end.
    pub ready: bool,
    /// While it is being removed: the saved work that holds its content, or
    /// nothing but its name if there was none to save.
    #[serde(default)]
    pub removing: Option<String>,
    /// It was removed, and is remembered for the work that was saved from it.
    #[serde(default)]
    pub gone: bool,
    /// When it was made.
    pub created_at: Time,
}

/// Why it could not be done.
#[derive(Debug, thiserror::Error)]
pub enum WorktreeError {
    /// Git did not do it.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A file could not be read or written.
    #[error("{0}: {1}")]
    Files(PathBuf, io::Error),
    /// It is wrongly asked.
    #[error("{0}")]
    Usage(String),
    /// It may not be done; the reason says what would help.
    #[error("{0}")]
    Refused(String),
    /// The setup command failed.
    #[error("the setup command failed ({0}) and the worktree was undone; all it wrote is in {1}\n{2}")]
    Setup(String, PathBuf, String),
    /// It goes on changing while it is looked at.
    #[error("{0} goes on changing while it is read; nothing was done")]
    Changing(PathBuf),
}

impl WorktreeError {
    fn files(path: &Path) -> impl FnOnce(io::Error) -> WorktreeError {
        move |e| WorktreeError::Files(path.to_owned(), e)
    }
}

impl Worktree {
    /// Git in it. The `.git` that stands in it is not believed.
    pub fn git(&self) -> Result<Git, WorktreeError> {
        self.git_at(&self.path)
    }

    fn git_at(&self, path: &Path) -> Result<Git, WorktreeError> {
        let git_dir = self.git_dir.clone().or_else(|| registered(&self.repo, &self.path));
        let git_dir = git_dir.ok_or_else(|| {
            WorktreeError::Refused(format!("{} is not a worktree of its repository any more", self.path.display()))
        })?;
        Ok(Git::of(path, &git_dir))
    }

    /// Where it stands while it is being removed.
    fn going(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.path.with_file_name(format!(".{name}.going"))
    }

    /// Git in its repository, wherever the worktree is.
    pub fn repository(&self) -> Git {
        Git::within(&self.repo)
    }
}

/// The git directory that a repository keeps for a worktree.
pub(crate) fn registered(repo: &Path, worktree: &Path) -> Option<PathBuf> {
    let all = repo.join("worktrees");
    let entries = file::Directory::open(&all).and_then(|d| d.entries()).ok()?;
    let wanted = worktree.join(".git");
    entries.into_iter().map(|e| all.join(e.name)).find(|folder| {
        let told = file::read_small(&folder.join("gitdir"), 1 << 16).unwrap_or_default();
        let told = String::from_utf8_lossy(&told).into_owned();
        Path::new(told.trim_end_matches('\n')) == wanted
    })
}

fn folder(places: &Places) -> PathBuf {
    places.state.join("worktrees")
}

/// Where what a setup command wrote is kept.
pub fn setup_output(places: &Places, handle: &str) -> PathBuf {
    folder(places).join(format!("{handle}.setup"))
}

/// Whether a name is a worktree's.
pub fn is_taken(places: &Places, handle: &str) -> bool {
    folder(places).join(format!("{handle}.json")).exists()
}

/// One at a time makes, saves and removes. A crash lets go of it.
pub fn guard(places: &Places) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    durable::make_folder(&places.state)?;
    let path = places.state.join("worktrees.lock");
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.lock()?;
    Ok(file)
}

/// Taken while a worktree is made and launched in, so that nobody takes it for
/// one that nobody needs. A crash lets go of it.
fn hold(places: &Places, handle: &str) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    durable::make_folder(&folder(places))?;
    let path = folder(places).join(format!("{handle}.lock"));
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.lock()?;
    Ok(file)
}

/// Whether somebody is making a worktree or launching in it right now. The kernel's list of locks would not tell: of some
/// file systems (btrfs, overlays) it names another device than the files do.
fn is_held(places: &Places, handle: &str) -> bool {
    match file::open(&folder(places).join(format!("{handle}.lock"))) {
        // Whoever comes now waits for that moment.
        Ok((file, _)) => file.try_lock_shared().is_err(), // what cannot be told is held
        Err(e) => e.kind() != io::ErrorKind::NotFound,
    }
}

/// All that lariat made and that are still there or have work saved.
pub fn all(places: &Places) -> (Vec<Worktree>, Vec<Warning>) {
    let (mut found, mut warnings) = (Vec::new(), Vec::new());
    let folder = folder(places);
    let entries = match file::Directory::open(&folder).and_then(|d| d.entries()) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return (found, warnings),
        Err(e) => {
            warnings.push(warning(places, &folder, e.to_string()));
            return (found, warnings);
        }
    };
    for entry in entries.iter().filter(|e| e.name.ends_with(".json")) {
        let path = folder.join(&entry.name);
        let read = file::read_small(&path, 1 << 20).map_err(|e| e.to_string());
        match read.and_then(|b| serde_json::from_slice(&b).map_err(|e| format!("not a record of ours: {e}"))) {
            Ok(worktree) => found.push(worktree),
            Err(error) => warnings.push(warning(places, &path, error)),
        }
    }
    found.sort_by(|a: &Worktree, b| a.handle.cmp(&b.handle));
    (found, warnings)
}

fn warning(places: &Places, path: &Path, error: String) -> Warning {
    Warning { adapter: "lariat", path: Some(places.shown(path)), error: Untrusted::new(error), last_ok: None }
}

fn put(places: &Places, worktree: &Worktree) -> Result<(), WorktreeError> {
    let folder = folder(places);
    let stored = || {
        durable::make_folder(&folder)?;
        let text = serde_json::to_string(worktree)?;
        durable::put(&folder, &format!("{}.json", worktree.handle), text.as_bytes())
    };
    stored().map_err(WorktreeError::files(&folder))
}

fn forget(places: &Places, handle: &str) {
    #[expect(clippy::disallowed_methods, reason = "our own record of a worktree that is gone")]
    let remove = |kind: &str| std::fs::remove_file(folder(places).join(format!("{handle}.{kind}")));
    let _ = remove("json");
    let _ = remove("lock"); // nobody comes back to that name
    let _ = durable::sync(&folder(places));
}

/// The one that a target means: a handle, a unique prefix of one, a branch, or a
/// path in it.
pub fn find<'a>(target: &str, all: &'a [Worktree]) -> Result<&'a Worktree, WorktreeError> {
    let path = std::path::absolute(target).ok().map(|p| p.canonicalize().unwrap_or(p));
    let looks_like_path = target.starts_with(['.', '/']) || target.contains('/');
    let rules: [&dyn Fn(&Worktree) -> bool; 4] = [
        &|w| w.handle == target,
        &|w| w.branch == target && !w.gone,
        &|w| looks_like_path && !w.gone && path.as_ref().is_some_and(|p| p.starts_with(&w.path)),
        &|w| !target.is_empty() && w.handle.starts_with(target),
    ];
    for rule in rules {
        let fits: Vec<&Worktree> = all.iter().filter(|w| rule(w)).collect();
        match fits.as_slice() {
            [] => {}
            [one] => return Ok(one),
            several => {
                let names: Vec<&str> = several.iter().map(|w| w.handle.as_str()).collect();
                return Err(WorktreeError::Usage(format!("'{target}' fits several worktrees: {}", names.join(", "))));
            }
        }
    }
    Err(WorktreeError::Usage(format!("no worktree fits '{target}'; `lariat worktree ls` lists them")))
}
