//! Who has the right to a directory.
//!
//! A live session holds the directory it works in: that is seen, not stored, so
//! it ends with the session however that dies. A person may hold one too: that
//! is stored, and has an end. A directory is its device and inode (and when it was
//! made, for an inode is given out again), so two names are one place; one above or
//! below another is in conflict with it, except that a git worktree is apart from the
//! checkout it lies in.
//!
//! Every check that is followed by a start or a new claim happens under one lock
//! ([`guard`]), so that of two who come at once one wins.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use lariat_adapters::look::{Places, Scope};
use lariat_core::{Observation, Session, Time, Untrusted, Warning, Witness};
use lariat_sys::{clock, durable, file, process};
use serde::{Deserialize, Serialize};

use crate::evict::Living;
use crate::list::{Known, Question, list_and_known};
use crate::records;

/// A claim that a person made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// The directory, as it was named.
    pub path: String,
    /// Its device and inode.
    pub place: (u64, u64),
    /// When it was made, in nanoseconds since 1970, where that is known: the inode of one that is gone is another's soon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub born: Option<i64>,
    /// Who made it.
    pub by: String,
    /// What for.
    pub reason: Option<String>,
    /// When.
    pub at: Time,
    /// Until when.
    pub until: Time,
}

impl Claim {
    /// Whether what a path leads to is the directory that was claimed, whatever it was called then.
    fn is_of(&self, path: &Path) -> bool {
        let Ok((device, inode)) = file::place(path) else { return false };
        let born = self.born.zip(file::born(path));
        // The machine may count its devices otherwise since its last start.
        let on_it = device == self.place.0 || born.is_some() && path == Path::new(&self.path);
        on_it && inode == self.place.1 && born.is_none_or(|(claimed, now)| claimed == now)
    }
}

/// Somebody's right to a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The directory.
    pub path: PathBuf,
    /// Who, in a phrase.
    pub who: String,
    /// The session that holds it, if it is one.
    pub session: Option<String>,
    /// The claim, if a person made it.
    pub claim: Option<Claim>,
}

fn folder(places: &Places) -> PathBuf {
    places.state.join("claims")
}

fn name(place: (u64, u64)) -> String {
    format!("{}-{}.json", place.0, place.1)
}

/// One at a time looks who is where and acts on it. The file is never deleted; a
/// crash lets go of it.
pub fn guard(places: &Places) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    durable::make_folder(&places.state)?;
    let path = places.state.join("claims.lock");
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.lock()?;
    Ok(file)
}

/// Who holds what.
#[derive(Debug)]
pub struct Held {
    /// Everyone who holds a directory now.
    pub holders: Vec<Holder>,
    /// What could not be read.
    pub warnings: Vec<Warning>,
    /// Something could not be told: whether one of them lives, or if there are more.
    pub partial: bool,
    /// What may tell of more of them, and cannot be read.
    pub(crate) unread: Option<Untrusted>,
    /// What was read of our own records.
    pub(crate) known: Arc<Known>,
    /// Which sessions live or may live, wherever.
    pub(crate) living: Living,
}

/// Looks who holds which directory.
pub fn held(question: &Question) -> Held {
    let (answer, known) = list_and_known(Question { scope: Scope::Live, ..question.clone() });
    let alive = Living::of(&answer);
    let mut warnings = answer.listing.warnings;
    let living = || answer.listing.sessions.iter().filter(|s| s.live != Some(false) && is_here_and_now(s));
    let sessions = living().flat_map(|s| {
        let name = s.handle.clone().unwrap_or_else(|| s.id.raw().to_owned());
        let who = format!("{name} ({}) works there", s.status.word());
        let session = Some(s.id.raw().to_owned());
        stands(s).into_iter().map(move |path| Holder { path, who: who.clone(), session: session.clone(), claim: None })
    });
    let processes = answer.listing.unbound.iter().filter_map(|u| {
        Some(Holder {
            path: real(Path::new(u.cwd.as_ref()?.raw())),
            who: format!("{} process {} stands there", u.agent, u.pid),
            session: None,
            claim: None,
        })
    });
    let mut holders: Vec<Holder> = sessions.chain(processes).collect();
    let (claims, mut unread) = claims(&question.places);
    let partial =
        answer.partial || !unread.is_empty() || !known.launched.hidden.is_empty() || living().any(|s| s.live.is_none());
    let hidden = known.launched.hidden.first().map(|path| question.places.shown(path));
    let first = unread.first().and_then(|w| w.path.clone()).or(hidden);
    warnings.append(&mut unread);
    holders.extend(claims.into_iter().map(|claim| {
        let why = claim.reason.as_ref().map_or_else(String::new, |r| format!(": {r}"));
        let who = format!("{} holds it until {}{why}", claim.by, claim.until);
        Holder { path: real(Path::new(&claim.path)), who, session: None, claim: Some(claim) }
    }));
    holders.sort_by(|a, b| (&a.path, &a.who).cmp(&(&b.path, &b.who)));
    Held { holders, warnings, partial, unread: first, known, living: alive }
}

/// A directory of another machine is none of ours, and what a gateway said before
/// it fell silent decides nothing.
fn is_here_and_now(session: &Session) -> bool {
    let told_by_gateway = |(_, o): &(_, Observation)| o.witness == Witness::Gateway;
    session.host.is_none() && (session.live.is_some() || !session.because.iter().any(told_by_gateway))
}

/// Where a session works. A directory that was moved meanwhile is not called any more what its store calls it, and another may
/// be called so by now: then both may be where it works. One whose process stands above what is named is no proof of that; and
/// the server of several stands anywhere.
fn stands(session: &Session) -> Vec<PathBuf> {
    let Some(named) = session.cwd.as_ref().map(|cwd| real(Path::new(cwd.raw()))) else { return Vec::new() };
    let is_there = named.exists();
    let pid = session.pid.filter(|_| !session.shared && (!is_there || was_made_since(&named, session)));
    let stood = pid.and_then(|pid| process::cwd(pid).ok()).filter(|stood| stood.is_dir() && !named.starts_with(stood));
    match stood {
        None => vec![named],
        Some(stood) if is_there => vec![named, stood],
        Some(stood) => vec![stood],
    }
}

/// Whether a directory was made since the session's process began: it is not the one in which that began.
fn was_made_since(directory: &Path, session: &Session) -> bool {
    let began = session.start.map(clock::ticks_to_ms);
    file::born(directory).zip(began).is_some_and(|(born, began)| born / 1_000_000 > began)
}

/// Its path without links, whoever names it from where; of one that is gone, by what is left above it.
fn real(path: &Path) -> PathBuf {
    let path = absolute(path).unwrap_or_else(|_| path.to_owned());
    let left = path.ancestors().find_map(|above| Some((path.strip_prefix(above).ok()?, above.canonicalize().ok()?)));
    match left {
        Some((below, above)) if below.as_os_str().is_empty() => above,
        Some((below, above)) => above.join(below),
        None => path,
    }
}

/// The first of those whose directory is this one, above it or below it: by
/// device and inode, whatever it is called now.
pub fn in_the_way<'a>(mut holders: impl Iterator<Item = &'a Holder>, directory: &Path) -> Option<&'a Holder> {
    let above = |path: &Path| path.ancestors().filter_map(|p| file::place(p).ok()).collect::<Vec<_>>();
    let mine = above(directory);
    holders.find(|h| {
        let within = match &h.claim {
            Some(claim) => directory.ancestors().any(|path| claim.is_of(path)),
            None => file::place(&h.path).is_ok_and(|place| mine.contains(&place)),
        };
        let theirs = if h.claim.is_some() { Vec::new() } else { above(&h.path) };
        let below = mine.first().is_some_and(|m| theirs.contains(m) || h.claim.is_some() && is_above(directory, h));
        (within || below) && !are_apart(&h.path, directory)
    })
}

/// Whether one of two directories is in a git worktree that lies below the other,
/// and the other in a checkout of its own: they share no file.
fn are_apart(a: &Path, b: &Path) -> bool {
    let (upper, lower) = if b.starts_with(a) { (a, b) } else { (b, a) };
    let checkout = |path: &Path| path.ancestors().find(|p| p.join(".git").exists()).map(Path::to_owned);
    let Some(worktree) = checkout(lower).filter(|w| w != upper && w.starts_with(upper)) else { return false };
    checkout(upper).is_some() && is_linked(&worktree)
}

/// Whether a directory is a worktree that its repository knows.
fn is_linked(worktree: &Path) -> bool {
    let text = |path: &Path| {
        let bytes = file::read_small(path, 1 << 16).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_end().to_owned()
    };
    let link = text(&worktree.join(".git"));
    let git_dir = link.strip_prefix("gitdir: ").map(|dir| worktree.join(dir));
    let back = git_dir.filter(|d| d.join("commondir").exists()).map(|d| text(&d.join("gitdir")));
    back.is_some_and(|back| Path::new(&back) == worktree.join(".git"))
}

/// Whether a claimed directory lies below another, where it still is what was
/// claimed.
fn is_above(directory: &Path, holder: &Holder) -> bool {
    let still = holder.claim.as_ref().is_some_and(|c| c.is_of(&holder.path));
    still && holder.path.starts_with(directory)
}

/// The claims of people that have not run out, and what could not be read.
pub fn claims(places: &Places) -> (Vec<Claim>, Vec<Warning>) {
    let (mut found, mut warnings) = (Vec::new(), Vec::new());
    let folder = folder(places);
    let now = clock::now_ms();
    let entries = match file::Directory::open(&folder).and_then(|d| d.entries()) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(e) => {
            let error = Untrusted::new(e.to_string());
            warnings.push(Warning { adapter: "lariat", path: Some(places.shown(&folder)), error, last_ok: None });
            Vec::new()
        }
    };
    for entry in entries.iter().filter(|e| e.name.ends_with(".json")) {
        let path = folder.join(&entry.name);
        let read = file::read_small(&path, 1 << 16).map_err(|e| e.to_string());
        match read.and_then(|b| serde_json::from_slice::<Claim>(&b).map_err(|e| format!("not a claim of ours: {e}"))) {
            Ok(claim) if claim.until.0 > now => found.push(claim),
            Ok(_) => {}
            Err(error) => warnings.push(Warning {
                adapter: "lariat",
                path: Some(places.shown(&path)),
                error: Untrusted::new(error),
                last_ok: None,
            }),
        }
    }
    (found, warnings)
}

/// Why a directory could not be claimed or freed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// It is not there.
    #[error("{0} is not a directory")]
    NoDirectory(PathBuf),
    /// Somebody else has it.
    #[error("{0}; wait for it, or use --force")]
    Held(String),
    /// Nobody has claimed it.
    #[error("nobody holds a lock on {0}; `lariat locks` lists them")]
    NotHeld(PathBuf),
    /// Our own files could not be written.
    #[error("{0}: {1}")]
    Files(PathBuf, io::Error),
}

/// Claims a directory for a person.
pub fn claim(
    question: &Question,
    path: &Path,
    by: String,
    reason: Option<String>,
    until: Time,
    force: bool,
) -> Result<Claim, ClaimError> {
    let places = &question.places;
    let directory = path.canonicalize().ok().filter(|p| p.is_dir());
    let directory = directory.ok_or_else(|| ClaimError::NoDirectory(path.to_owned()))?;
    let folder = folder(places);
    let files = |e| ClaimError::Files(folder.clone(), e);
    let _guard = guard(places).map_err(files)?;
    let Held { holders, unread, .. } = held(question);
    if let Some(path) = unread.filter(|_| !force) {
        return Err(ClaimError::Held(format!("it cannot be told who holds it, {} is unreadable", path.row())));
    }
    let mine = |h: &&Holder| h.claim.as_ref().is_some_and(|c| c.by == by && h.path == directory);
    if let Some(other) = in_the_way(holders.iter().filter(|h| !mine(h)), &directory).filter(|_| !force) {
        return Err(ClaimError::Held(format!("{}: {}", other.path.display(), other.who)));
    }
    let place = file::place(&directory).map_err(files)?;
    let shown = directory.to_string_lossy().into_owned();
    let born = file::born(&directory);
    let claim = Claim { path: shown, place, born, by, reason, at: Time(clock::now_ms()), until };
    durable::make_folder(&folder).map_err(files)?;
    records::make_room::<Claim>(&folder.join(name(place))).map_err(files)?;
    let text = serde_json::to_string(&claim).map_err(|e| files(e.into()))?;
    durable::put(&folder, &name(place), text.as_bytes()).map_err(files)?;
    // The same directory, when its device had another number.
    for earlier in holders.iter().filter_map(|h| h.claim.as_ref()).filter(|c| c.place != place && c.is_of(&directory)) {
        #[expect(clippy::disallowed_methods, reason = "a claim that this one takes the place of")]
        std::fs::remove_file(folder.join(name(earlier.place))).and_then(|()| durable::sync(&folder)).map_err(files)?;
    }
    records::tell(places, "lock", &claim.path, format!("held by {} until {}", claim.by, claim.until));
    Ok(claim)
}

/// Gives a person's claim up.
pub fn release(question: &Question, path: &Path) -> Result<Claim, ClaimError> {
    let places = &question.places;
    let folder = folder(places);
    let files = |e| ClaimError::Files(folder.clone(), e);
    let _guard = guard(places).map_err(files)?;
    let directory = real(path);
    let place = file::place(&directory).ok();
    let (held, damaged) = claims(places);
    // One on what was called so before gives way to one on what is called so now.
    let on_it = held.iter().find(|c| c.is_of(&directory));
    let found = on_it.or_else(|| held.iter().find(|c| Path::new(&c.path) == directory)).cloned();
    // One that cannot be read is still named by its place.
    let unread = || {
        let file = |place| Some(places.shown(&folder.join(name(place))));
        let place = place.filter(|place| damaged.iter().any(|w| w.path == file(*place)))?;
        let (path, at) = (directory.to_string_lossy().into_owned(), Time(clock::now_ms()));
        Some(Claim { path, place, born: None, by: "nobody that can be read".into(), reason: None, at, until: at })
    };
    let claim = found.or_else(unread).ok_or_else(|| ClaimError::NotHeld(path.to_owned()))?;
    #[expect(clippy::disallowed_methods, reason = "a claim that its person gives up")]
    std::fs::remove_file(folder.join(name(claim.place))).and_then(|()| durable::sync(&folder)).map_err(files)?;
    records::tell(places, "unlock", &claim.path, format!("given up; it was held by {}", claim.by));
    Ok(claim)
}
