//! Removing worktrees, and nothing that could not be read back.
//!
//! # Theory of operation
//!
//! 1. Who is in it? A session that lives or may live, or any process that stands
//!    in it or holds a file of it, keeps it. So does a lock, an unfinished merge
//!    or rebase, a repository within it whose content is nowhere else, and, unless
//!    forced, work that is in no commit or in no other branch, and a session that
//!    was cut off in it.
//! 2. Forced, work that is in no commit is saved and read back.
//! 3. It is given a name that nobody knows, beside its own: no path leads into it
//!    from then on. Who had got in by then is looked for again.
//! 4. It is captured again. What changed in between is saved too, or, unless
//!    forced, it gets its name back.
//! 5. Only then is it removed, each file only if it is the very version that was
//!    captured. If anything is left, it gets its name back.
//!
//! Whoever crashes in between, [`recover`] gives it its name back or, if all of it
//! was read back, finishes. Branches stay, but for one that was made with the
//! worktree and never got a commit.

use std::path::{Path, PathBuf};

use lariat_adapters::look::{Places, Scope};
use lariat_core::Session;
use lariat_sys::beneath::{Seen, Top};
use lariat_sys::point::point;
use lariat_sys::standing;

use super::capture::{Capture, Dirt, Nested, capture, flat};
use super::saved::{Saved, holds, keep_left_behind, save, saved};
use super::{Worktree, WorktreeError, door, forget, put};
use crate::claims;
use crate::git::Git;
use crate::list::{Question, list};

/// What is `removing` when there was nothing to save.
const CLEAN: &str = "clean";
/// How often what changed meanwhile is saved again.
const ROUNDS: usize = 3;

/// What is known of a worktree now.
#[derive(Clone, Debug)]
pub struct Look {
    /// The worktree.
    pub worktree: Worktree,
    /// Its branch now; none if it is detached.
    pub branch: Option<String>,
    /// What is in no commit; nothing if it could not be told.
    pub dirt: Option<Dirt>,
    /// Commits beyond what it is compared with: its upstream, else where it began.
    pub ahead: Option<u64>,
    /// Commits that it lacks of that.
    pub behind: Option<u64>,
    /// What it takes on the disk, in bytes.
    pub size: Option<u64>,
    /// Who is in it.
    pub users: Vec<String>,
    /// Work saved from it.
    pub saved: Vec<Saved>,
    /// Why it may not be removed; nothing if it may.
    pub kept: Option<String>,
    /// Whether saving its work first would help.
    pub force_helps: bool,
}

/// How a removal went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Removal {
    /// It is gone.
    Removed {
        /// The work that was saved first.
        saved: Option<String>,
        /// Ignored files that went with it.
        ignored: Vec<PathBuf>,
        /// How many commits that no branch held are kept by a name of their own.
        left_behind: usize,
    },
    /// It is still there, and why.
    Kept(String),
}

/// The sessions that there are: asked once for many worktrees.
pub fn sessions(question: &Question) -> Vec<Box<Session>> {
    list(Question { scope: Scope::Live, ..question.clone() }).listing.sessions
}

/// Who is in a worktree, each in a phrase. What cannot be told is somebody.
fn users(
    places: &Places,
    worktree: &Worktree,
    path: &Path,
    place: (u64, u64),
    sessions: &[Box<Session>],
) -> Vec<String> {
    let live = sessions.iter().filter(|s| s.live != Some(false) && is_of(s, worktree, path));
    let mut users: Vec<String> = live.map(|s| format!("{} ({}) works in it", name_of(s), s.status.word())).collect();
    if super::is_held(places, &worktree.handle) {
        users.push("a launch is under way in it".into());
    }
    point("worktree.asking");
    let _alone = door::shut(places);
    match standing::within(path, place) {
        Ok(found) => users.extend(found.iter().map(|s| format!("process {} ({}) {}", s.pid, s.comm, s.how))),
        Err(e) => users.push(format!("it cannot be told who is in it: {e}")),
    }
    users
}

/// Whether a session works in a worktree, or did.
fn is_of(session: &Session, worktree: &Worktree, path: &Path) -> bool {
    let cwd = session.cwd.as_ref().map(|c| Path::new(c.raw()));
    let within = cwd.is_some_and(|c| c.starts_with(&worktree.path) || c.starts_with(path));
    within || session.handle.as_deref() == Some(&worktree.handle)
}

fn name_of(session: &Session) -> String {
    session.handle.clone().unwrap_or_else(|| session.id.raw().to_owned())
}

/// Who was cut off in it, and could not come back without it.
fn cut_off(worktree: &Worktree, sessions: &[Box<Session>]) -> Option<String> {
    let one = sessions.iter().find(|s| s.restorable && is_of(s, worktree, &worktree.path))?;
    Some(format!("{} was cut off in it; `lariat restore` brings it back", name_of(one)))
}

/// Looks at a worktree; `quick` believes git's stat cache.
pub fn look(places: &Places, worktree: &Worktree, sessions: &[Box<Session>], quick: bool) -> Look {
    let mut look = Look {
        worktree: worktree.clone(),
        branch: None,
        dirt: None,
        ahead: None,
        behind: None,
        size: None,
        users: Vec::new(),
        saved: saved(&worktree.repository(), &worktree.handle).unwrap_or_default(),
        kept: None,
        force_helps: false,
    };
    if let Err(e) = look_into(places, &mut look, sessions, quick) {
        look.kept = Some(e.to_string());
    }
    look
}

fn look_into(places: &Places, look: &mut Look, sessions: &[Box<Session>], quick: bool) -> Result<(), WorktreeError> {
    let worktree = look.worktree.clone();
    if worktree.gone {
        return Ok(());
    }
    if worktree.going().is_dir() {
        look.kept = Some("its removal was cut short; `lariat worktree clean` finishes it".into());
        return Ok(());
    }
    if !worktree.path.exists() {
        return Ok(());
    }
    let place = {
        let _inside = door::enter(places);
        open(&worktree, &worktree.path)?.place()
    };
    look.users = users(places, &worktree, &worktree.path, place, sessions);
    let _inside = door::enter(places);
    let top = open(&worktree, &worktree.path)?;
    point("worktree.looking");
    let git = worktree.git()?;
    let all = capture(&git, &top, &index_of(&worktree)?, quick)?;
    let upstream = git.maybe(&["rev-parse", "--verify", "--quiet", "@{upstream}^{commit}"])?;
    let against = upstream.unwrap_or_else(|| worktree.base.clone());
    let count = |range: String| git.maybe(&["rev-list", "--count", &range]).ok().flatten()?.parse().ok();
    look.ahead = count(format!("{against}..HEAD"));
    look.behind = count(format!("HEAD..{against}"));
    look.branch = all.branch.as_ref().map(|b| b.trim_start_matches("refs/heads/").to_owned());
    look.size = Some(all.size);
    look.dirt = Some(all.dirt());
    look.kept = if look.users.is_empty() { hindrance(&worktree, &all)? } else { Some(look.users.join("; ")) };
    if look.kept.is_none() {
        look.kept = work_of_its_own(&git, &all)?.or_else(|| cut_off(&worktree, sessions));
        look.force_helps = look.kept.is_some();
    }
    Ok(())
}

fn index_of(worktree: &Worktree) -> Result<PathBuf, WorktreeError> {
    Ok(git_dir_of(worktree)?.join("index"))
}

fn git_dir_of(worktree: &Worktree) -> Result<PathBuf, WorktreeError> {
    let known = worktree.git_dir.clone().or_else(|| super::registered(&worktree.repo, &worktree.path));
    known.filter(|d| d.is_dir()).ok_or_else(|| {
        WorktreeError::Refused(format!("{} is not a worktree of its repository any more", worktree.path.display()))
    })
}

/// Opens it, if it is the one that was made and leads to its own repository.
fn open(worktree: &Worktree, path: &Path) -> Result<Top, WorktreeError> {
    let top = Top::open(path).map_err(WorktreeError::files(path))?;
    if worktree.place.is_some_and(|p| p != top.place()) {
        return Err(WorktreeError::Refused(format!("another directory stands at {}", path.display())));
    }
    Ok(top)
}

/// A worktree, opened, with git in it and its git directory.
pub(super) fn opened(worktree: &Worktree) -> Result<(Top, Git, PathBuf), WorktreeError> {
    Ok((open(worktree, &worktree.path)?, worktree.git()?, git_dir_of(worktree)?))
}

/// What keeps a worktree, forced or not.
fn hindrance(worktree: &Worktree, all: &Capture) -> Result<Option<String>, WorktreeError> {
    let git_dir = git_dir_of(worktree)?;
    let has = |name: &str| git_dir.join(name).exists();
    if has("locked") {
        let why = lariat_sys::file::read_small(&git_dir.join("locked"), 1 << 12).unwrap_or_default();
        let why = String::from_utf8_lossy(&why);
        let told = ["git holds a lock on it", why.trim()].map(str::to_owned);
        return Ok(Some(told.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")));
    }
    let unfinished = [
        ("MERGE_HEAD", "merge"),
        ("rebase-merge", "rebase"),
        ("rebase-apply", "rebase"),
        ("CHERRY_PICK_HEAD", "cherry-pick"),
        ("REVERT_HEAD", "revert"),
        ("BISECT_LOG", "bisect"),
    ];
    if let Some((_, what)) = unfinished.iter().find(|(name, _)| has(name)) {
        return Ok(Some(format!("a {what} is not finished in it; finish or abort it")));
    }
    for nested in &all.nested {
        if let Some(why) = only_here(worktree, nested)? {
            return Ok(Some(why));
        }
    }
    Ok(None)
}

/// Whether a repository within it holds anything that is nowhere else.
fn only_here(worktree: &Worktree, nested: &Nested) -> Result<Option<String>, WorktreeError> {
    let shown = nested.path.display();
    if !nested.submodule && !nested.ignored {
        return Ok(Some(format!("{shown} is a repository of its own, which git cannot save; move it")));
    }
    let path = worktree.path.join(&nested.path);
    let kept = |why: &str| Ok(Some(format!("the repository {shown} in it {why}")));
    let git = Git::within(&path);
    // The `.git` in it may lead anywhere, but what it leads to must be a whole repository.
    let git_dir = match super::make::git_dir(&git) {
        Ok(git_dir) => git_dir,
        Err(_) => return kept("cannot be read"),
    };
    let top = Top::open(&path).map_err(WorktreeError::files(&path))?;
    let git = Git::of(&path, &git_dir);
    let Ok(all) = capture(&git, &top, &git_dir.join("index"), false) else { return kept("cannot be read") };
    if all.dirt().any() {
        return kept(&format!("holds work that is in no commit ({})", all.dirt().phrase()));
    }
    if !all.nested.is_empty() {
        return kept("holds another one");
    }
    let stash = git.maybe(&["rev-parse", "--verify", "--quiet", "refs/stash"])?;
    let more = git.maybe(&["rev-list", "--count", "--branches", "--tags", "HEAD", "--not", "--remotes"])?;
    if stash.is_some() || more.as_deref() != Some("0") {
        return kept("holds commits that are pushed nowhere");
    }
    Ok(None)
}

/// What keeps a worktree unless it is forced.
fn work_of_its_own(git: &Git, all: &Capture) -> Result<Option<String>, WorktreeError> {
    let dirt = all.dirt();
    if dirt.any() {
        return Ok(Some(format!("it holds work that is in no commit: {}", dirt.phrase())));
    }
    Ok(match own_commits(git, all)? {
        0 => None,
        n => Some(format!("{n} commits are neither pushed nor in another branch")),
    })
}

/// How many commits are in no other branch, tag or remote.
fn own_commits(git: &Git, all: &Capture) -> Result<u64, WorktreeError> {
    if all.head.is_none() {
        return Ok(0);
    }
    let own = all.branch.as_deref().unwrap_or_default().trim_start_matches("refs/heads/");
    let exclude = format!("--exclude={own}");
    let mut arguments = vec!["rev-list", "--count", "HEAD", "--not", "--remotes", "--tags"];
    if !own.is_empty() {
        arguments.push(&exclude);
    }
    arguments.push("--branches");
    Ok(git.line(&arguments)?.parse().unwrap_or(u64::MAX))
}

/// Removes a worktree if it may go; forced, after saving its work. Under the
/// lock of [`super::guard`], held by the caller.
pub fn remove(question: &Question, worktree: &Worktree, force: bool) -> Result<Removal, WorktreeError> {
    let places = &question.places;
    let mut worktree = worktree.clone();
    recover(places, &mut worktree)?;
    if worktree.gone || !worktree.path.exists() {
        if !worktree.gone {
            finish(places, &worktree, None)?;
        }
        return Ok(Removal::Removed { saved: None, ignored: Vec::new(), left_behind: 0 });
    }
    // From here to the new name nobody is let in.
    let claim = claims::guard(places).map_err(WorktreeError::files(&places.state))?;
    let sessions = sessions(question);
    let look = look(places, &worktree, &sessions, false);
    if let Some(why) = look.kept.filter(|_| !(force && look.force_helps)) {
        return Ok(Removal::Kept(why));
    }
    let mut top = open(&worktree, &worktree.path)?;
    let git_dir = git_dir_of(&worktree)?;
    let first = capture(&worktree.git()?, &top, &git_dir.join("index"), false)?;
    let mut kept = match worth_saving(&worktree.git()?, &first)? {
        true if force => Some(save(&worktree.git()?, &top, &worktree, &first, &git_dir)?),
        true => return Ok(Removal::Kept("it changed while it was looked at".into())),
        false => None,
    };
    point("worktree.captured");
    let going = worktree.going();
    worktree.removing = None;
    put(places, &worktree)?;
    top.rename(going.file_name().unwrap_or_default()).map_err(WorktreeError::files(&worktree.path))?;
    drop(claim);
    point("worktree.moved");
    let last = match settle(places, &worktree, &going, &top, &git_dir, first, &mut kept, force) {
        Ok(last) => last,
        Err(e) => {
            give_back(&worktree, &mut top)?;
            return match e {
                WorktreeError::Refused(why) => Ok(Removal::Kept(why)),
                e => Err(e),
            };
        }
    };
    let left_behind = match keep_left_behind(&worktree.git_at(&going)?, &worktree.handle, &git_dir) {
        Ok(left_behind) => left_behind,
        Err(e) => {
            give_back(&worktree, &mut top)?;
            return Err(e);
        }
    };
    worktree.removing = Some(kept.as_ref().map_or_else(|| CLEAN.to_owned(), |s| s.name.clone()));
    put(places, &worktree)?;
    point("worktree.verified");
    let left = delete(&top, &last)?;
    if !left.is_empty() {
        worktree.removing = None;
        put(places, &worktree)?;
        give_back(&worktree, &mut top)?;
        let some: Vec<String> = left.iter().take(5).map(|p| p.display().to_string()).collect();
        let why = format!("{} of its files could not be removed or changed meanwhile: {}", left.len(), some.join(", "));
        return Ok(Removal::Kept(why));
    }
    point("worktree.deleted");
    let saved = kept.map(|s| s.name);
    finish(places, &worktree, saved.as_deref())?;
    Ok(Removal::Removed { saved, ignored: last.ignored, left_behind })
}

/// Whether it holds anything that only a saved commit would keep.
fn worth_saving(git: &Git, all: &Capture) -> Result<bool, WorktreeError> {
    Ok(all.dirt().any() || all.branch.is_none() && own_commits(git, all)? > 0)
}

/// Looks again where no path leads any more, until what is there is what is held.
#[expect(clippy::too_many_arguments, reason = "one step of one deed")]
fn settle(
    places: &Places,
    worktree: &Worktree,
    going: &Path,
    top: &Top,
    git_dir: &Path,
    mut known: Capture,
    kept: &mut Option<Saved>,
    force: bool,
) -> Result<Capture, WorktreeError> {
    let git = worktree.git_at(going)?;
    for _ in 0..ROUNDS {
        let users = users(places, worktree, going, top.place(), &[]);
        if !users.is_empty() {
            return Err(WorktreeError::Refused(users.join("; ")));
        }
        let now = capture(&git, top, &git_dir.join("index"), false)?;
        if now.is_same(&known) && now.nested == known.nested {
            return Ok(now);
        }
        let why = "it was written to while it was removed";
        if !force {
            return Err(WorktreeError::Refused(why.into()));
        }
        if let Some(hindrance) = hindrance_at(worktree, going, &now)? {
            return Err(WorktreeError::Refused(format!("{why}: {hindrance}")));
        }
        *kept = Some(save(&git, top, worktree, &now, git_dir)?);
        known = now;
    }
    Err(WorktreeError::Refused("it goes on changing while it is removed".into()))
}

fn hindrance_at(worktree: &Worktree, path: &Path, all: &Capture) -> Result<Option<String>, WorktreeError> {
    let moved = Worktree { path: path.to_owned(), git_dir: Some(git_dir_of(worktree)?), ..worktree.clone() };
    hindrance(&moved, all)
}

/// Removes what was captured, and what lies in repositories that were found to
/// hold nothing of their own.
fn delete(top: &Top, all: &Capture) -> Result<Vec<PathBuf>, WorktreeError> {
    let within = |seen: &Seen| all.nested.iter().any(|n| seen.path.starts_with(&n.path));
    top.remove(&mut |seen| all.has(seen) || within(seen)).map_err(|e| WorktreeError::Files(PathBuf::from("."), e))
}

fn give_back(worktree: &Worktree, top: &mut Top) -> Result<(), WorktreeError> {
    top.rename(worktree.path.file_name().unwrap_or_default()).map_err(WorktreeError::files(&worktree.going()))
}

/// What a removal that was cut short left: it is finished if all of it was read
/// back, else the worktree gets its name back.
pub fn recover(places: &Places, worktree: &mut Worktree) -> Result<(), WorktreeError> {
    mend(worktree)?;
    let going = worktree.going();
    if worktree.gone || !going.is_dir() {
        return Ok(());
    }
    if worktree.path.exists() {
        let why = "was being removed, and something else stands in its place";
        return Err(WorktreeError::Refused(format!("{} {why} now; look at {}", worktree.handle, going.display())));
    }
    let mut top = open(worktree, &going)?;
    if let Some(name) = worktree.removing.clone() {
        let git_dir = git_dir_of(worktree)?;
        let git = worktree.git_at(&going)?;
        let all = capture(&git, &top, &git_dir.join("index"), false)?;
        let held = if name == CLEAN { all.committed.clone() } else { flat(&git, &name)? };
        let alone = users(places, worktree, &going, top.place(), &[]).is_empty();
        if alone && holds(&held, &all) && delete(&top, &all)?.is_empty() {
            finish(places, worktree, Some(name.as_str()).filter(|n| *n != CLEAN))?;
            worktree.gone = true;
            return Ok(());
        }
    }
    give_back(worktree, &mut top)?;
    worktree.removing = None;
    put(places, worktree)
}

/// git does not sync what it notes of a worktree, and one that was killed while it
/// made one leaves a file empty. With this one empty hardly anything works in the
/// whole repository. What belongs in it is known.
fn mend(worktree: &Worktree) -> Result<(), WorktreeError> {
    let known = worktree.git_dir.clone().or_else(|| super::registered(&worktree.repo, &worktree.path));
    let Some(git_dir) = known.filter(|d| d.parent() == Some(&worktree.repo.join("worktrees"))) else { return Ok(()) };
    match lariat_sys::file::read_small(&git_dir.join("commondir"), 1 << 12) {
        Ok(empty) if empty.is_empty() => {
            lariat_sys::durable::put(&git_dir, "commondir", b"../..\n").map_err(WorktreeError::files(&git_dir))
        }
        _ => Ok(()),
    }
}

/// Tells git and forgets, once nothing of it is left on the disk.
fn finish(places: &Places, worktree: &Worktree, saved_as: Option<&str>) -> Result<(), WorktreeError> {
    if !worktree.repo.is_dir() {
        forget(places, &worktree.handle); // its repository is gone too
        return Ok(());
    }
    let repository = worktree.repository();
    // Whatever stands there by now is somebody else's; `git worktree prune` forgets ours then.
    if !worktree.path.exists() && super::registered(&worktree.repo, &worktree.path).is_some() {
        repository.act(&[
            "worktree".into(),
            "remove".into(),
            "--force".into(),
            worktree.path.clone().into_os_string(),
        ])?;
    }
    point("worktree.unregistered");
    let branch = format!("refs/heads/{}", worktree.branch);
    if worktree.made_branch && saved_as.is_none() {
        let tip = repository.maybe(&["rev-parse", "--verify", "--quiet", &branch])?;
        // Never without a look at where it is: a commit of its own keeps it.
        let used = repository.maybe(&["for-each-ref", "--format=%(worktreepath)", &branch])?;
        if tip.as_deref() == Some(&worktree.base) && used.is_none() {
            repository.act(&["update-ref", "-d", &branch, &worktree.base])?;
        }
    }
    if saved(&repository, &worktree.handle).is_ok_and(|s| s.is_empty()) {
        forget(places, &worktree.handle);
    } else {
        put(places, &Worktree { gone: true, removing: None, ..worktree.clone() })?;
    }
    if let Some(parent) = worktree.path.parent().filter(|p| p.to_string_lossy().ends_with(".worktrees")) {
        let _ = std::fs::remove_dir(parent); // ours; it stays unless it is empty
    }
    Ok(())
}
