//! Comparing files apart from the repository's own configuration.
//!
//! A comparison reads files as git would store them, through whatever filter the
//! configuration names at that moment. To read the names first and to switch them off
//! leaves a gap in which an agent can write another. So git is given a folder of ours in
//! the place of the repository's: with a configuration that holds nothing, and only the
//! real objects and the real index besides. What decides how a file is to be read (line
//! ends, modes) is asked once and said on the command line; none of it names a program.
//! The user's own configuration is left out too: looking runs nobody's filter.
//!
//! The folder is the same for every repository. It never holds anything of one, and
//! nothing is ever written through it.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use lariat_sys::durable;

use crate::git::{Git, GitError};

/// What tells how files are read; git writes keys so.
const READING: [&str; 9] = [
    "core.autocrlf",
    "core.eol",
    "core.filemode",
    "core.symlinks",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.trustctime",
    "core.checkstat",
    "core.bigfilethreshold",
];
const SHA1: &[u8] = b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n";
const SHA256: &[u8] = b"[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectFormat = sha256\n";

/// What git is told instead of what the repository would tell it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Apart {
    /// The real objects.
    pub objects: PathBuf,
    /// How files are read.
    pub settings: Vec<OsString>,
}

/// The repository that git sees from `top`, for comparing. `shelf` is where the folder is made.
pub(crate) fn apart(git: &Git, top: &Path, shelf: &Path) -> Result<Git, GitError> {
    let path = |what: &str| git.path(&["rev-parse", "--path-format=absolute", "--git-path", what]);
    let (objects, index) = (path("objects")?, path("index")?);
    let (name, config) = match git.line(&["rev-parse", "--show-object-format"])?.as_str() {
        "sha256" => ("sha256", SHA256),
        _ => ("sha1", SHA1),
    };
    let settings = reading(&git.ask(&["config", "--list", "-z"])?);
    let folder = shelf.join(name);
    let unmade = |e: io::Error| {
        let why = format!("{} could not be made: {e}; lariat compares nothing without it", folder.display());
        GitError::Odd("diff".into(), why)
    };
    make(&folder, config).map_err(unmade)?;
    Ok(Git::of(top, &folder).with_index(&index).apart(Apart { objects, settings }))
}

fn reading(told: &[u8]) -> Vec<OsString> {
    let entries = told.split(|b| *b == 0);
    let known = entries.filter_map(|entry| {
        let end = entry.iter().position(|b| *b == b'\n').unwrap_or(entry.len());
        let (key, value) = (std::str::from_utf8(&entry[..end]).ok()?, entry.get(end + 1..));
        // A key without a value is true.
        READING.contains(&key).then(|| [key.as_bytes(), b"=", value.unwrap_or(b"true")].concat())
    });
    known.map(OsString::from_vec).collect()
}

fn make(folder: &Path, config: &[u8]) -> io::Result<()> {
    // What is there is looked at each time: it decides what git runs.
    if lariat_sys::file::read_small(&folder.join("config"), 4096).is_ok_and(|c| c == config) {
        return Ok(());
    }
    for inner in ["objects", "refs"] {
        durable::make_folder(&folder.join(inner))?;
    }
    durable::put_all(folder, &[("HEAD", b"ref: refs/heads/none\n"), ("config", config)])
}
