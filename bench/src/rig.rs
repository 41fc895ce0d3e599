//! The place where a run happens: the binaries, the scratch directories, and the
//! environment in which lariat sees nothing but what the rig made.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::limits::Limits;
use crate::measure::{Job, Meter};

pub struct Rig {
    /// `target/bench`: corpora, limit programs, scratch.
    pub dir: PathBuf,
    pub lariat: PathBuf,
    pub this: PathBuf,
    pub limits: Limits,
    pub meter: Meter,
    pub rounds: usize,
}

impl Rig {
    pub fn new(dir: PathBuf, rounds: usize) -> io::Result<Self> {
        let this = std::env::current_exe()?;
        let lariat = match std::env::var_os("LARIAT") {
            Some(path) => PathBuf::from(path),
            None => this.with_file_name("lariat"),
        };
        let lariat = lariat.canonicalize().map_err(|error| {
            let hint = "build it first (cargo build --release -p lariat) or name it in LARIAT";
            io::Error::new(error.kind(), format!("{}: {error}: {hint}", lariat.display()))
        })?;
        let limits = Limits::build(&dir.join("limits"))?;
        let meter = Meter(limits.meter.clone());
        Ok(Self { dir, lariat, this, limits, meter, rounds })
    }

    /// A scratch directory, empty.
    pub fn fresh(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.dir.join("run").join(name);
        empty(&path)?;
        Ok(path)
    }

    /// lariat with this HOME and cache, and everything else of its own empty.
    pub fn lariat(&self, home: &Path, cache: &Path) -> io::Result<Job> {
        let own = self.dir.join("run").join("own");
        for part in ["state", "config", "runtime", "tmp"] {
            private(&own.join(part))?;
        }
        Ok(Job::new(&self.lariat)
            .env("HOME", home)
            .env("XDG_CACHE_HOME", cache)
            .env("XDG_STATE_HOME", own.join("state"))
            .env("XDG_CONFIG_HOME", own.join("config"))
            .env("XDG_RUNTIME_DIR", own.join("runtime"))
            .env("TMPDIR", own.join("tmp"))
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LANG", "C.UTF-8")
            .env("TZ", "UTC"))
    }
}

/// Empties a directory, or makes it.
pub fn empty(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => private(path),
    }
}

fn private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
