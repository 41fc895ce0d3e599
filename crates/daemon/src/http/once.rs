//! How a person's browser gets in: by a secret that is good for one use.
//!
//! # Theory of operation
//!
//! `lariat web` writes a secret into a file that only this user can read, and opens
//! the page with the secret behind the `#` of its address, which no server and no
//! other page sees. The page sends it back and gets its pass. Whoever takes the file
//! away has used it: of several who come with the same secret one succeeds. A secret
//! that lies there for two minutes is worth nothing.
//!
//! Beside it lies a small page that leads to the address: a browser is told to open
//! that file, because what a program is started with is seen by every user.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lariat_adapters::look::Places;
use lariat_sys::point::point;
use lariat_sys::{durable, file};

use super::guard::same;

/// How long a secret is good.
pub const GOOD: Duration = Duration::from_secs(120);
/// How many are looked at.
const MOST: usize = 64;
const SECRET: &str = "once";
const LEADS: &str = "html";

/// A secret, and the page that leads to where it is used.
pub struct Once {
    /// The address, with the secret.
    pub url: String,
    /// The page.
    pub page: PathBuf,
}

fn folder(places: &Places) -> PathBuf {
    places.state.join("web")
}

/// Makes a secret for the page on this port.
pub fn make(places: &Places, port: u16) -> io::Result<Once> {
    let folder = folder(places);
    durable::make_folder(&folder)?;
    sweep(&folder);
    let secret = format!("{}{}", lariat_adapters::new_uuid()?, lariat_adapters::new_uuid()?).replace('-', "");
    let name = lariat_adapters::new_uuid()?;
    let url = format!("http://127.0.0.1:{port}/#once={secret}");
    let page = format!(
        "<!doctype html><meta charset=utf-8><meta name=referrer content=no-referrer>\
         <meta http-equiv=refresh content=\"0;url={url}\"><title>lariat</title><a href=\"{url}\">lariat</a>\n"
    );
    durable::put(&folder, &format!("{name}.{SECRET}"), format!("{secret}\n").as_bytes())?;
    durable::put(&folder, &format!("{name}.{LEADS}"), page.as_bytes())?;
    Ok(Once { url, page: folder.join(format!("{name}.{LEADS}")) })
}

/// Whether this secret is good; it is not, from now on.
pub fn take(places: &Places, given: &str) -> bool {
    let folder = folder(places);
    sweep(&folder);
    // Every one is compared, whichever fits.
    let fits: Vec<PathBuf> = files(&folder, SECRET).into_iter().filter(|p| is_fresh(p) & holds(p, given)).collect();
    fits.iter().any(|path| {
        point("once.take");
        remove(path)
    })
}

/// The files of this kind.
fn files(folder: &Path, kind: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    entries.filter(|path| path.extension().is_some_and(|e| e == kind)).take(MOST).collect()
}

fn holds(path: &Path, given: &str) -> bool {
    let secret = file::read_small(path, 1024).ok().and_then(|b| String::from_utf8(b).ok());
    secret.is_some_and(|s| s.trim().len() >= 32 && same(s.trim().as_bytes(), given.as_bytes()))
}

/// Whether it is ours alone, and young; one of the future is neither.
fn is_fresh(path: &Path) -> bool {
    let Ok(seen) = path.symlink_metadata() else { return false };
    let private = seen.is_file() && seen.mode() & 0o077 == 0 && seen.uid() == rustix::process::geteuid().as_raw();
    let age = seen.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    private && age.is_some_and(|age| age < GOOD)
}

/// Takes a secret away, with its page; whether it was us who did.
fn remove(path: &Path) -> bool {
    #[expect(clippy::disallowed_methods, reason = "our own file, which is used up")]
    let removed = fs::remove_file(path).is_ok();
    #[expect(clippy::disallowed_methods, reason = "the page that belongs to it")]
    let _ = fs::remove_file(path.with_extension(LEADS));
    removed
}

/// Takes all away: they were made for a daemon that is gone.
pub fn forget(places: &Places) {
    let folder = folder(places);
    for path in [files(&folder, SECRET), files(&folder, LEADS)].concat() {
        remove(&path);
    }
}

/// Takes away what nobody used in time.
fn sweep(folder: &Path) {
    for path in [files(folder, SECRET), files(folder, LEADS)].concat() {
        let old = |at: SystemTime| SystemTime::now().duration_since(at).map_or(true, |age| age >= GOOD);
        if path.symlink_metadata().and_then(|m| m.modified()).is_ok_and(old) {
            remove(&path);
        }
    }
}
