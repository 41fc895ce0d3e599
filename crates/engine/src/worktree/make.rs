//! Making a worktree for a session, all or nothing.
//!
//! # Theory of operation
//!
//! A record is stored first. Then git adds the worktree, the ignored files that
//! `.worktreeinclude` names are copied, and the setup command runs; then the
//! record says that it is ready, and the agent is launched in it. If a step
//! fails, all is undone. If lariat dies, the record tells the next launch what was
//! left, and it is undone then; so the same branch can be launched again.
//!
//! A branch that exists is used if nobody has it checked out; if a worktree of
//! ours has it and nobody is in there, that worktree is used as it is, with all
//! the work in it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lariat_adapters::look::Places;
use lariat_core::Time;
use lariat_sys::beneath::Top;
use lariat_sys::point::point;
use lariat_sys::{clock, durable, file, spawn};

use super::{Worktree, WorktreeError, all, capture, clean, folder, guard, hold, put, setup_output};
use crate::git::{Git, GitError, Most, run_bounded};
use crate::handle;
use crate::launch::{self, LaunchError, Order, Started};
use crate::list::Question;
use crate::records;

/// The file that names ignored files to be copied, in the manner of `.gitignore`.
const INCLUDE: &str = ".worktreeinclude";
/// How long a setup command may take.
const SETUP: Duration = Duration::from_secs(30 * 60);

/// What kind of worktree is wished for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Wish {
    /// The branch; one that says the handle if not told.
    pub branch: Option<String>,
    /// Where a new branch begins; where the directory stands if not told.
    pub base: Option<String>,
    /// A command to run in it before the agent.
    pub setup: Option<String>,
}

/// What was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Made {
    /// The worktree.
    pub worktree: Worktree,
    /// Where in it the agent starts.
    pub cwd: PathBuf,
    /// It was there before.
    pub reused: bool,
}

/// Launches an agent in a worktree of its own.
pub fn launch(
    question: &Question,
    order: &Order,
    wish: &Wish,
) -> Result<((Started, Option<String>), Made), LaunchError> {
    let (made, held) = make(question, &order.cwd, wish)?;
    let order = Order { cwd: made.cwd.clone(), worktree: Some(made.worktree.clone()), ..order.clone() };
    match launch::launch(question, &order) {
        Ok(started) => {
            drop(held); // its agent can be seen from here on
            Ok((started, made))
        }
        Err(e) => {
            drop(held);
            if !made.reused {
                undo(question, &made.worktree);
            }
            Err(e)
        }
    }
}

fn undo(question: &Question, worktree: &Worktree) {
    let undone = guard(&question.places).map(|_guard| clean::remove(question, worktree, true));
    // What could not be undone keeps its record: `worktree ls` shows it.
    let how = match undone {
        Ok(Ok(clean::Removal::Removed { .. })) => "undone".to_owned(),
        Ok(Ok(clean::Removal::Kept(why))) => format!("kept: {why}"),
        Ok(Err(e)) => format!("kept: {e}"),
        Err(e) => format!("kept: {e}"),
    };
    note(&question.places, "worktree", &worktree.handle, how);
}

/// Adds to the journal.
pub fn note(places: &Places, what: &str, handle: &str, how: String) {
    records::tell(places, what, handle, how);
}

/// The git directory of a checkout, in full.
pub(super) fn git_dir(git: &Git) -> Result<PathBuf, GitError> {
    git.path(&["rev-parse", "--path-format=absolute", "--git-dir"])
}

/// Where a launch stands.
struct Ground {
    git: Git,
    repo: PathBuf,
    top: Option<PathBuf>,
    prefix: PathBuf,
}

fn ground(cwd: &Path) -> Result<Ground, WorktreeError> {
    let real = cwd.canonicalize().ok().filter(|p| p.is_dir());
    let cwd = real.ok_or_else(|| WorktreeError::Usage(format!("{} is not a directory", cwd.display())))?;
    let git = Git::within(&cwd);
    let repo = match git.path(&["rev-parse", "--path-format=absolute", "--git-common-dir"]) {
        Ok(repo) => repo.canonicalize().map_err(WorktreeError::files(&repo))?,
        Err(GitError::Failed(_, why)) => {
            let why = format!("{} has no git repository to make a worktree of ({why})", cwd.display());
            return Err(WorktreeError::Usage(why));
        }
        Err(e) => return Err(e.into()),
    };
    let top = git.path(&["rev-parse", "--show-toplevel"]).ok().filter(|p| !p.as_os_str().is_empty());
    let prefix = if top.is_some() { git.path(&["rev-parse", "--show-prefix"])? } else { PathBuf::new() };
    Ok(Ground { git, repo, top, prefix })
}

impl Ground {
    /// The folder that worktrees are made in: beside the repository, under its name.
    fn folder(&self) -> Result<PathBuf, WorktreeError> {
        let named_git = self.repo.file_name().is_some_and(|n| n == ".git");
        let main = match &self.top {
            _ if named_git => self.repo.parent(),
            Some(top) => Some(top.as_path()),
            None => Some(self.repo.as_path()), // a bare one
        };
        let told = main.and_then(|m| Some((m.parent()?, m.file_name()?.to_str()?.trim_end_matches(".git"))));
        let (parent, name) = told.filter(|(p, _)| p.to_str().is_some()).ok_or_else(|| {
            WorktreeError::Usage(format!(
                "no worktree can be made beside {}: it is not UTF-8, or has no parent directory",
                self.repo.display()
            ))
        })?;
        Ok(parent.join(format!("{name}.worktrees")))
    }
}

/// A branch that shall be checked out.
struct Line {
    branch: String,
    base: String,
    start: String,
    exists: bool,
}

/// Says whether a worktree could be made of what lies there, without making it.
pub fn check(cwd: &Path, wish: &Wish) -> Result<(), WorktreeError> {
    let ground = ground(cwd)?;
    ground.folder()?;
    line(&ground, "new", wish).map(drop)
}

/// Makes a worktree, or finds one of ours that has the branch. It is held until
/// the file is let go of.
pub fn make(question: &Question, cwd: &Path, wish: &Wish) -> Result<(Made, File), WorktreeError> {
    let places = &question.places;
    let guarded = guard(places).map_err(WorktreeError::files(&places.state))?;
    sweep(question);
    let ground = ground(cwd)?;
    let handle = handle::free(places).map_err(WorktreeError::files(&places.state))?;
    let line = line(&ground, &handle, wish)?;
    if line.exists
        && let Some(made) = checked_out(question, &ground, &line.branch)?
    {
        let held = hold(places, &made.worktree.handle).map_err(WorktreeError::files(&places.state))?;
        return Ok((made, held));
    }
    let held = hold(places, &handle).map_err(WorktreeError::files(&places.state))?;
    let path = ground.folder()?.join(&handle);
    let mut worktree = Worktree {
        handle,
        path,
        place: None,
        repo: ground.repo.clone(),
        git_dir: None,
        branch: line.branch.clone(),
        base: line.base.clone(),
        made_branch: !line.exists,
        ready: false,
        removing: None,
        gone: false,
        created_at: Time(clock::now_ms()),
    };
    put(places, &worktree)?;
    point("worktree.recorded");
    let added = add(places, &ground, &mut worktree, &line);
    drop(guarded); // what follows may take long, and is this worktree's own
    match added.and_then(|()| fill(places, &ground, &mut worktree, wish)) {
        Ok(()) => {
            let within = worktree.path.join(&ground.prefix);
            let cwd = if within.is_dir() { within } else { worktree.path.clone() };
            note(places, "worktree", &worktree.handle, format!("made at {}", worktree.path.display()));
            Ok((Made { worktree, cwd, reused: false }, held))
        }
        Err(e) => {
            let _guard = guard(places).map_err(WorktreeError::files(&places.state))?;
            drop(held);
            let _ = clean::remove(question, &worktree, true); // what stays has its record
            Err(e)
        }
    }
}

/// Undoes what crashed launches left: nobody else is at it, we hold the lock.
fn sweep(question: &Question) {
    let (found, _) = all(&question.places);
    for mut worktree in found {
        let _ = clean::recover(&question.places, &mut worktree);
        if !worktree.ready && !worktree.gone && !super::is_held(&question.places, &worktree.handle) {
            let _ = clean::remove(question, &worktree, true);
        }
    }
    let kept = file::Directory::open(&folder(&question.places)).and_then(|d| d.entries()).unwrap_or_default();
    let week = clock::now_ms() - 7 * 24 * 3_600_000;
    for handle in kept.iter().filter_map(|e| e.name.strip_suffix(".setup")) {
        let path = setup_output(&question.places, handle);
        let old = file::open(&path).is_ok_and(|(_, key)| key.mtime / 1_000_000 < week);
        if old && !super::is_taken(&question.places, handle) {
            #[expect(clippy::disallowed_methods, reason = "what a setup command wrote long ago")]
            let _ = std::fs::remove_file(path);
        }
    }
}

fn line(ground: &Ground, handle: &str, wish: &Wish) -> Result<Line, WorktreeError> {
    let git = &ground.git;
    let tip = |name: &str| git.maybe(&["rev-parse", "--verify", "--quiet", "--end-of-options", name]);
    let branch = match &wish.branch {
        Some(branch) => {
            let full = format!("refs/heads/{branch}");
            if branch.starts_with('-')
                || git.maybe(&["check-ref-format", "--normalize", &full])?.as_ref() != Some(&full)
            {
                return Err(WorktreeError::Usage(format!("'{branch}' is no name for a branch")));
            }
            branch.clone()
        }
        None if tip("refs/heads/lariat")?.is_some() => format!("lariat-{handle}"),
        None => format!("lariat/{handle}"),
    };
    if let Some(base) = tip(&format!("refs/heads/{branch}^{{commit}}"))? {
        if wish.base.is_some() {
            let why = format!("the branch '{branch}' exists; --base says where a new one begins");
            return Err(WorktreeError::Usage(why));
        }
        return Ok(Line { start: branch.clone(), branch, base, exists: true });
    }
    let remote = format!("refs/remotes/origin/{branch}");
    let start = match &wish.base {
        Some(base) => base.clone(),
        None if wish.branch.is_some() && tip(&remote)?.is_some() => remote,
        None => "HEAD".to_owned(),
    };
    let base = tip(&format!("{start}^{{commit}}"))?.ok_or_else(|| {
        let what = if start == "HEAD" { "it has no commit yet".to_owned() } else { format!("there is no '{start}'") };
        WorktreeError::Usage(format!("{}: {what}; a worktree begins at a commit", ground.repo.display()))
    })?;
    Ok(Line { branch, start: base.clone(), base, exists: false })
}

/// Who has a branch checked out: a worktree of ours that nobody is in is used
/// again, anybody else's is refused.
fn checked_out(question: &Question, ground: &Ground, branch: &str) -> Result<Option<Made>, WorktreeError> {
    let name = format!("refs/heads/{branch}");
    let path = ground.git.path(&["for-each-ref", "--format=%(worktreepath)", &name])?;
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    let ours = all(&question.places).0.into_iter().find(|w| w.path == path && w.repo == ground.repo && !w.gone);
    let Some(worktree) = ours else {
        let why =
            format!("the branch '{branch}' is checked out at {}; use --cwd there, or another branch", path.display());
        return Err(WorktreeError::Refused(why));
    };
    if !worktree.path.exists() {
        // Somebody removed the directory: git is told, and it is made anew, on the same branch.
        clean::remove(question, &Worktree { made_branch: false, ..worktree }, false)?;
        return Ok(None);
    }
    let look = clean::look(&question.places, &worktree, &clean::sessions(question), true);
    if !look.users.is_empty() {
        let why = format!("the branch '{branch}' is in use at {}: {}", path.display(), look.users.join("; "));
        return Err(WorktreeError::Refused(why));
    }
    let within = worktree.path.join(&ground.prefix);
    let cwd = if within.is_dir() { within } else { worktree.path.clone() };
    Ok(Some(Made { worktree, cwd, reused: true }))
}

fn add(places: &Places, ground: &Ground, worktree: &mut Worktree, line: &Line) -> Result<(), WorktreeError> {
    let mut add: Vec<OsString> = ["worktree", "add", "--quiet"].map(Into::into).to_vec();
    if line.exists {
        add.extend([worktree.path.clone().into(), line.branch.clone().into()]);
    } else {
        add.extend(["--no-track".into(), "-b".into(), line.branch.clone().into()]);
        add.extend([worktree.path.clone().into(), line.start.clone().into()]);
    }
    ground.git.act(&add)?;
    point("worktree.added");
    worktree.git_dir = Some(git_dir(&Git::within(&worktree.path))?);
    worktree.place = Some(file::place(&worktree.path).map_err(WorktreeError::files(&worktree.path))?);
    put(places, worktree)
}

fn fill(places: &Places, ground: &Ground, worktree: &mut Worktree, wish: &Wish) -> Result<(), WorktreeError> {
    if let Some(top) = &ground.top {
        copy_included(top, worktree)?;
    }
    point("worktree.copied");
    if let Some(setup) = &wish.setup {
        run_setup(places, worktree, setup)?;
    }
    point("worktree.setup");
    worktree.ready = true;
    put(places, worktree)?;
    point("worktree.ready");
    Ok(())
}

/// Copies the files that `.worktreeinclude` names and that are ignored on both
/// sides, so that no secret of theirs is committed by an agent that adds all;
/// never over another.
fn copy_included(top: &Path, worktree: &Worktree) -> Result<(), WorktreeError> {
    let include = top.join(INCLUDE);
    if file::open(&include).is_err() {
        return Ok(());
    }
    let git = Git::within(top);
    let from = format!("--exclude-from={INCLUDE}");
    let told = git.ask(&["ls-files", "-z", "--others", "--ignored", &from])?;
    let named: Vec<PathBuf> = told.split(|b| *b == 0).filter(|p| !p.is_empty()).map(path).collect();
    let ignored = capture::ignored(&git, named.iter().filter(|p| !ends_in_slash(p)).map(PathBuf::as_path))?;
    let ignored = capture::ignored(&worktree.git()?, ignored.iter().map(PathBuf::as_path))?;
    let source = Top::open(top).map_err(WorktreeError::files(top))?;
    let target = Top::open(&worktree.path).map_err(WorktreeError::files(&worktree.path))?;
    for path in named.iter().filter(|p| ignored.contains(*p)) {
        let (mut content, _) = match source.open_file(path) {
            Ok(opened) => opened,
            Err(_) => continue, // a link or a FIFO: not content
        };
        match target.put(path, &mut content, 0o600, false) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(WorktreeError::Files(path.clone(), e)),
            _ => {}
        }
    }
    Ok(())
}

fn path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    OsString::from_vec(bytes.to_vec()).into()
}

fn ends_in_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// Runs the setup command; what it writes is kept, also when it fails.
fn run_setup(places: &Places, worktree: &Worktree, setup: &str) -> Result<(), WorktreeError> {
    let log = setup_output(places, &worktree.handle);
    let failed = WorktreeError::files(&log);
    durable::put(&folder(places), &format!("{}.setup", worktree.handle), b"").map_err(failed)?;
    let open = || std::fs::OpenOptions::new().append(true).open(&log);
    let (out, err) = (open().map_err(WorktreeError::files(&log))?, open().map_err(WorktreeError::files(&log))?);
    #[expect(clippy::disallowed_methods, reason = "the person's own command, in the new worktree")]
    let mut command = Command::new("sh");
    command.args(["-c", setup]).current_dir(&worktree.path).env("LARIAT_WORKTREE", &worktree.path);
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    spawn::end_with_us(&mut command);
    let told = run_bounded(&mut command, None, SETUP, Most::Refuse, "setup");
    let how = match told {
        Ok(told) if told.status.success() => return Ok(()),
        Ok(told) => told.status.to_string(),
        Err(e) => e.to_string(),
    };
    let said = file::read_small(&log, 1 << 20).unwrap_or_default();
    let said = String::from_utf8_lossy(&said).into_owned();
    let lines: Vec<&str> = said.lines().filter(|l| !l.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(5)..].join("\n");
    note(places, "setup", &worktree.handle, format!("failed: {how}"));
    Err(WorktreeError::Setup(how, log, last))
}
