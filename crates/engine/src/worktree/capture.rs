//! What a worktree holds, to the last byte.
//!
//! Every file that is tracked or untracked is read and hashed as git would store
//! it with no filter and no conversion of line ends, so that what is given back
//! is what was there. What git believes of a file (its flags, its stat cache) is
//! never enough to call it saved: an agent can set those. Ignored files are listed.
//!
//! It changes nothing, and it runs nothing of the repository's.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lariat_sys::beneath::{self, Kind, Seen, Top};
use lariat_sys::file::{self, Key};
use sha1::Digest as _;

use super::WorktreeError;
use super::lfs::{self, Differs};
use crate::git::{Git, GitError};

/// A submodule's entry.
pub const GITLINK: u32 = 0o160_000;
/// A symbolic link's entry.
pub const LINK: u32 = 0o120_000;
const VALID: u32 = 0x8000;
const STAGES: u32 = 0x3000;
const INTENT_TO_ADD: u32 = 1 << 29;
const SKIP_WORKTREE: u32 = 1 << 30;
/// How often a file that changes while it is read is read again.
const TRIES: usize = 5;

/// What a tree says of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blob {
    /// `100644`, `100755`, `120000` or `160000`.
    pub mode: u32,
    /// The object.
    pub oid: String,
}

/// A tree, flat.
pub type Flat = BTreeMap<PathBuf, Blob>;

/// An entry of the index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Staged {
    /// Its path.
    pub path: PathBuf,
    /// What it says.
    pub blob: Blob,
    /// 0, or the side of a conflict.
    pub stage: u32,
    flags: u32,
    /// Modification and change in nanoseconds, inode, size, as git remembers them.
    stat: (i64, i64, u32, u32),
}

impl Staged {
    fn is_intended(&self) -> bool {
        self.flags & INTENT_TO_ADD != 0
    }

    fn is_skipped(&self) -> bool {
        self.flags & SKIP_WORKTREE != 0
    }
}

/// A file on the disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OnDisk {
    /// What it holds.
    pub blob: Blob,
    /// Which version of which file.
    pub key: Key,
}

/// What a worktree holds.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The commit it is at; none on a branch without one.
    pub head: Option<String>,
    /// The branch, in full; none if it is detached.
    pub branch: Option<String>,
    /// What that commit holds.
    pub committed: Flat,
    /// The index.
    pub index: Vec<Staged>,
    /// Tracked and untracked files on the disk.
    pub files: BTreeMap<PathBuf, OnDisk>,
    /// Files that git is told to ignore.
    pub ignored: Vec<PathBuf>,
    /// FIFOs, sockets, devices and empty folders: nothing that git can hold.
    pub unstorable: Vec<PathBuf>,
    /// Repositories of their own: submodules first.
    pub nested: Vec<Nested>,
    /// What it takes on the disk, in bytes.
    pub size: u64,
    /// Every entry that is no folder, as it was seen.
    pub keys: HashMap<PathBuf, Key>,
    unchanged: HashSet<PathBuf>,
}

/// A repository within a worktree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nested {
    /// Where.
    pub path: PathBuf,
    /// It is a submodule.
    pub submodule: bool,
    /// It lies in what git is told to ignore.
    pub ignored: bool,
}

/// How much there is that no commit holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Dirt {
    /// Differences between the commit and the index.
    pub staged: usize,
    /// Differences between the index and the disk.
    pub unstaged: usize,
    /// Files that git does not know.
    pub untracked: usize,
    /// Paths with a conflict.
    pub conflicted: usize,
}

impl Dirt {
    /// Whether there is any.
    pub fn any(&self) -> bool {
        *self != Dirt::default()
    }

    /// In a phrase.
    pub fn phrase(&self) -> String {
        let parts = [
            (self.staged, "staged"),
            (self.unstaged, "changed"),
            (self.untracked, "untracked"),
            (self.conflicted, "in conflict"),
        ];
        let parts: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        parts.join(", ")
    }
}

/// Looks at a worktree. A quick look believes git's stat cache; only for showing.
pub fn capture(git: &Git, top: &Top, index_file: &Path, quick: bool) -> Result<Capture, WorktreeError> {
    let format = git.line(&["rev-parse", "--show-object-format"])?;
    let head = git.maybe(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?;
    let branch = git.maybe(&["rev-parse", "--symbolic-full-name", "HEAD"])?.filter(|b| b.starts_with("refs/"));
    let committed = head.as_ref().map_or_else(|| Ok(Flat::new()), |head| flat(git, head))?;
    let written = file::open(index_file).map(|(_, key)| key.mtime).unwrap_or(0);
    let index = index(git)?;
    let seen = top.walk(false).map_err(|e| WorktreeError::Files(index_file.to_owned(), e))?;
    let tracked: HashMap<&Path, &Staged> = index.iter().map(|s| (s.path.as_path(), s)).collect();
    // Of a checkout that is no linked worktree, git's own files lie in it.
    let own = seen.iter().any(|s| s.path == Path::new(".git") && is_at(s, index_file.parent()));
    let is_gits = |s: &Seen| s.path == Path::new(".git") || own && s.path.starts_with(".git");
    let content = |s: &&Seen| is_content(s) && !is_gits(s) && !tracked.contains_key(s.path.as_path());
    let strangers = seen.iter().filter(content);
    let ignored = ignored(git, strangers.map(|s| s.path.as_path()))?;

    let mut all = Capture {
        head,
        branch,
        committed,
        index: Vec::new(),
        files: BTreeMap::new(),
        ignored: Vec::new(),
        unstorable: Vec::new(),
        nested: Vec::new(),
        size: seen.iter().map(|s| s.size).sum(),
        keys: HashMap::new(),
        unchanged: HashSet::new(),
    };
    let mut differing = Vec::new();
    for s in &seen {
        if !matches!(s.kind, Kind::Directory { .. }) {
            all.keys.insert(s.path.clone(), s.key);
        }
        let entry = tracked.get(s.path.as_path());
        match s.kind {
            _ if is_gits(s) => {}
            Kind::Directory { repository: true, .. } => {
                let submodule = entry.is_some_and(|e| e.blob.mode == GITLINK);
                all.nested.push(Nested { path: s.path.clone(), submodule, ignored: ignored.contains(&s.path) });
            }
            Kind::Directory { empty: true, .. } if entry.is_none() => all.unstorable.push(s.path.clone()),
            Kind::Directory { .. } => {}
            _ if ignored.contains(&s.path) => all.ignored.push(s.path.clone()),
            Kind::Other => all.unstorable.push(s.path.clone()),
            Kind::File { .. } | Kind::Link => {
                let clean = entry.is_some_and(|e| is_same_version(e, s) && e.stat.0 < written);
                let known = entry.filter(|e| quick && clean && e.stage == 0);
                let on_disk = match known {
                    Some(e) => OnDisk { blob: e.blob.clone(), key: s.key },
                    None => read(top, s, &format)?,
                };
                if let Some(e) = entry.filter(|e| e.stage == 0 && on_disk.blob != e.blob) {
                    let same_mode = e.blob.mode == on_disk.blob.mode;
                    // Git converted it when it was checked out and it was not touched since.
                    let converted = || is_same_version(e, s) && lf_oid(top, s, &format).is_ok_and(|o| o == e.blob.oid);
                    if same_mode {
                        let (path, oid) = (s.path.clone(), e.blob.oid.clone());
                        differing.push((Differs { path, key: on_disk.key, oid }, clean || converted()));
                    }
                }
                all.keys.insert(s.path.clone(), on_disk.key); // the version that was read
                all.files.insert(s.path.clone(), on_disk);
            }
        }
    }
    // Of what git LFS keeps apart, git's belief that it is untouched does not tell that it is kept.
    let held = lfs::held(git, top, differing.iter().map(|(file, _)| file))?;
    let unchanged = differing.into_iter().filter(|(file, same)| held.get(&file.path).copied().unwrap_or(*same));
    all.unchanged.extend(unchanged.map(|(file, _)| file.path));
    all.nested.sort_by_key(|n| !n.submodule);
    all.index = index;
    Ok(all)
}

fn is_content(seen: &Seen) -> bool {
    let repository = matches!(seen.kind, Kind::Directory { repository: true, .. });
    repository || !matches!(seen.kind, Kind::Directory { .. })
}

/// Whether an entry is what this path leads to.
fn is_at(seen: &Seen, path: Option<&Path>) -> bool {
    path.and_then(|path| file::place(path).ok()) == Some((seen.key.device, seen.key.inode))
}

impl Capture {
    /// The whole content: what is on the disk, and what a sparse checkout left out.
    pub fn work(&self) -> Flat {
        let mut work: Flat = self.files.iter().map(|(p, f)| (p.clone(), f.blob.clone())).collect();
        for entry in self.index.iter().filter(|e| e.stage == 0) {
            let absent = entry.is_skipped() && !work.contains_key(&entry.path);
            if absent || entry.blob.mode == GITLINK {
                work.insert(entry.path.clone(), entry.blob.clone());
            }
        }
        work
    }

    /// The index as a tree; of a conflict our side.
    pub fn staged(&self) -> Flat {
        let entries = self.index.iter().filter(|e| matches!(e.stage, 0 | 2) && !e.is_intended());
        entries.map(|e| (e.path.clone(), e.blob.clone())).collect()
    }

    /// Whether the index says more than a tree can.
    pub fn index_says_more(&self) -> bool {
        self.index.iter().any(|e| e.flags & (VALID | STAGES | INTENT_TO_ADD | SKIP_WORKTREE) != 0 || e.stage != 0)
    }

    /// How much there is that no commit holds.
    pub fn dirt(&self) -> Dirt {
        let conflicts: HashSet<&Path> = self.index.iter().filter(|e| e.stage != 0).map(|e| e.path.as_path()).collect();
        let staged = self.staged();
        let known: HashSet<&Path> = self.index.iter().map(|e| e.path.as_path()).collect();
        let added = staged.iter().filter(|(p, b)| self.committed.get(*p) != Some(b)).count();
        let removed = self.committed.keys().filter(|p| !staged.contains_key(*p) && !conflicts.contains(p.as_path()));
        let changed = self.index.iter().filter(|e| e.stage == 0 && e.blob.mode != GITLINK);
        let changed = changed.filter(|e| match self.files.get(&e.path) {
            None => !e.is_skipped(),
            Some(_) if e.is_intended() => true,
            Some(f) => f.blob != e.blob && !self.unchanged.contains(&e.path),
        });
        Dirt {
            staged: added + removed.count(),
            unstaged: changed.count(),
            untracked: self.files.keys().filter(|p| !known.contains(p.as_path())).count(),
            conflicted: conflicts.len(),
        }
    }

    /// Every path whose content on the disk is not what the commit holds.
    pub fn changed(&self) -> Vec<PathBuf> {
        let differs = |p: &Path, f: &OnDisk| self.committed.get(p) != Some(&f.blob) && !self.unchanged.contains(p);
        let changed = self.files.iter().filter(|(p, f)| differs(p, f)).map(|(p, _)| p.clone());
        let work = self.work();
        let gone = self.committed.keys().filter(|p| !work.contains_key(*p)).cloned();
        changed.chain(gone).collect()
    }

    /// Whether two captures hold the same.
    pub fn is_same(&self, other: &Capture) -> bool {
        let index = |c: &Capture| -> Vec<_> {
            let told = |e: &Staged| (e.path.clone(), e.blob.clone(), e.stage, e.flags & (VALID | SKIP_WORKTREE));
            c.index.iter().map(told).collect()
        };
        self.head == other.head && self.work() == other.work() && index(self) == index(other)
    }

    /// Whether this very version of an entry was seen.
    pub fn has(&self, seen: &Seen) -> bool {
        self.keys.get(&seen.path) == Some(&seen.key)
    }

    /// The objects of conflicts.
    pub fn sides(&self) -> impl Iterator<Item = &Staged> {
        self.index.iter().filter(|e| e.stage != 0)
    }
}

/// Git's own test of an unchanged file: the stat that it remembers.
fn is_same_version(entry: &Staged, seen: &Seen) -> bool {
    let (mtime, ctime, inode, size) = entry.stat;
    let key = &seen.key;
    key.mtime == mtime && key.ctime == ctime && key.inode as u32 == inode && key.size as u32 == size
}

/// A tree or commit, flat.
pub fn flat(git: &Git, tree: &str) -> Result<Flat, WorktreeError> {
    let told = git.ask(&["ls-tree", "-r", "-z", "--full-tree", tree])?;
    let odd = || GitError::Odd("ls-tree".into(), "an entry of another shape".into());
    let entries = told.split(|b| *b == 0).filter(|e| !e.is_empty()).map(|entry| {
        let tab = entry.iter().position(|b| *b == b'\t').ok_or_else(odd)?;
        let head = std::str::from_utf8(&entry[..tab]).map_err(|_| odd())?;
        let mut words = head.split(' ');
        let mode = words.next().and_then(|m| u32::from_str_radix(m, 8).ok()).ok_or_else(odd)?;
        let oid = words.nth(1).ok_or_else(odd)?.to_owned();
        Ok((path(&entry[tab + 1..]), Blob { mode, oid }))
    });
    entries.collect::<Result<Flat, GitError>>().map_err(Into::into)
}

fn path(bytes: &[u8]) -> PathBuf {
    OsString::from_vec(bytes.to_vec()).into()
}

/// Reads the index, with the stat cache and flags of every entry.
fn index(git: &Git) -> Result<Vec<Staged>, WorktreeError> {
    let told = git.ask(&["ls-files", "-z", "--stage", "--debug"])?;
    let odd = || GitError::Odd("ls-files".into(), "an entry of another shape".into());
    let mut rest = told.as_slice();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let end = rest.iter().position(|b| *b == 0).ok_or_else(odd)?;
        let (entry, after) = (&rest[..end], &rest[end + 1..]);
        // Five lines about it follow.
        let ends = after.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1);
        let length = ends.take(5).last().ok_or_else(odd)?;
        let about = std::str::from_utf8(&after[..length]).map_err(|_| odd())?;
        rest = &after[length..];
        found.push(staged(entry, about).ok_or_else(odd)?);
    }
    Ok(found)
}

fn staged(entry: &[u8], about: &str) -> Option<Staged> {
    let tab = entry.iter().position(|b| *b == b'\t')?;
    let mut words = std::str::from_utf8(&entry[..tab]).ok()?.split(' ');
    let mode = u32::from_str_radix(words.next()?, 8).ok()?;
    let oid = words.next()?.to_owned();
    let stage = words.next()?.parse().ok()?;
    let value = |name: &str| {
        let at = about.find(name)? + name.len();
        about[at..].split_whitespace().next()
    };
    let time = |name: &str| -> Option<i64> {
        let (s, n) = value(name)?.split_once(':')?;
        Some(s.parse::<i64>().ok()? * 1_000_000_000 + n.parse::<i64>().ok()?)
    };
    let stat = (time("mtime: ")?, time("ctime: ")?, value("ino: ")?.parse().ok()?, value("size: ")?.parse().ok()?);
    let flags = u32::from_str_radix(value("flags: ")?, 16).ok()?;
    Some(Staged { path: path(&entry[tab + 1..]), blob: Blob { mode, oid }, stage, flags, stat })
}

/// Which of these paths git is told to ignore.
pub(super) fn ignored<'a>(git: &Git, paths: impl Iterator<Item = &'a Path>) -> Result<HashSet<PathBuf>, WorktreeError> {
    let mut text = Vec::new();
    for path in paths {
        text.extend_from_slice(b"./"); // a name that begins with a colon is a name
        text.extend_from_slice(path.as_os_str().as_bytes());
        text.push(0);
    }
    if text.is_empty() {
        return Ok(HashSet::new());
    }
    let arguments = ["check-ignore", "-z", "--stdin"];
    let told = git.run(&arguments, Some(&mut |to: &mut dyn Write| to.write_all(&text)), Duration::from_secs(300))?;
    match told.status.code() {
        Some(0 | 1) => Ok(told.stdout.split(|b| *b == 0).filter_map(|p| p.strip_prefix(b"./")).map(path).collect()),
        _ => Err(GitError::Failed("check-ignore".into(), told.stderr.trim().to_owned()).into()),
    }
}

enum Hash {
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
}

impl Hash {
    fn new(format: &str, size: u64) -> Hash {
        let mut hash = match format {
            "sha256" => Hash::Sha256(sha2::Sha256::new()),
            _ => Hash::Sha1(sha1::Sha1::new()),
        };
        hash.update(format!("blob {size}\0").as_bytes());
        hash
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Hash::Sha1(h) => h.update(bytes),
            Hash::Sha256(h) => h.update(bytes),
        }
    }

    fn finish(self) -> String {
        let bytes = match self {
            Hash::Sha1(h) => h.finalize().to_vec(),
            Hash::Sha256(h) => h.finalize().to_vec(),
        };
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }
}

/// Reads one entry and hashes it as it is.
fn read(top: &Top, seen: &Seen, format: &str) -> Result<OnDisk, WorktreeError> {
    let path = &seen.path;
    let failed = |e: io::Error| match e.kind() {
        // It went, or became something else: another look is needed.
        io::ErrorKind::NotFound | io::ErrorKind::InvalidInput => WorktreeError::Changing(path.clone()),
        _ => WorktreeError::Files(path.clone(), e),
    };
    if seen.kind == Kind::Link {
        let target = top.read_link(path).map_err(failed)?;
        let mut hash = Hash::new(format, target.len() as u64);
        hash.update(&target);
        return Ok(OnDisk { blob: Blob { mode: LINK, oid: hash.finish() }, key: seen.key });
    }
    for _ in 0..TRIES {
        let (mut file, before) = top.open_file(path).map_err(failed)?;
        let mut hash = Hash::new(format, before.size);
        let total = beneath::read_through(&mut file, &mut |piece| {
            hash.update(piece);
            Ok(())
        })
        .map_err(failed)?;
        let after = top.look(path).map_err(failed)?;
        if let Some(after) = after.filter(|a| a.key == before && total == before.size)
            && let Kind::File { executable } = after.kind
        {
            let mode = if executable { 0o100_755 } else { 0o100_644 };
            return Ok(OnDisk { blob: Blob { mode, oid: hash.finish() }, key: before });
        }
    }
    Err(WorktreeError::Changing(path.clone()))
}

/// What a text file would be with plain line ends.
fn lf_oid(top: &Top, seen: &Seen, format: &str) -> io::Result<String> {
    let (mut file, _) = top.open_file(&seen.path)?;
    let mut text = Vec::new();
    beneath::read_through(&mut file, &mut |piece| {
        text.extend_from_slice(piece);
        if text.len() > 64 << 20 { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(()) }
    })?;
    let mut plain = Vec::with_capacity(text.len());
    for (i, byte) in text.iter().enumerate() {
        if !(*byte == b'\r' && text.get(i + 1) == Some(&b'\n')) {
            plain.push(*byte);
        }
    }
    let mut hash = Hash::new(format, plain.len() as u64);
    hash.update(&plain);
    Ok(hash.finish())
}
