//! The last good answer of somebody who is asked over a wire, kept in the cache with its time.
//!
//! It decides nothing. It is shown, as `unknown` and with its age, while they do not answer. One that
//! is lost, damaged or of another version is simply not there.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use lariat_core::Time;
use lariat_sys::file;
use serde::Serialize;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::xxh3_64;

use crate::cache;

const LARGEST: u64 = 256 << 20;

/// Whose answers are kept, and in which form: both are part of what makes two memories the same.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// What the file's name begins with.
    pub name: &'static str,
    /// Changes with every change of what is kept.
    pub format: u64,
}

fn path(cache: &Path, kind: Kind, whose: &str) -> PathBuf {
    cache.join(format!("{}-{:016x}", kind.name, xxh3_64(whose.as_bytes())))
}

/// What they said last, and when.
pub fn recall<T: DeserializeOwned>(cache: Option<&Path>, kind: Kind, whose: &str) -> Option<(Time, T)> {
    let bytes = file::read_small(&path(cache?, kind, whose), LARGEST).ok()?;
    let (head, body) = bytes.split_at_checked(16)?;
    let [format, sum] = [0, 8].map(|at| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default()));
    if format != kind.format || sum != xxh3_64(body) {
        return None;
    }
    let (at, said): (i64, T) = postcard::from_bytes(body).ok()?;
    Some((Time(at), said))
}

/// Keeps what they said now. A cache that cannot be written is no reason to fail.
pub fn keep(cache: Option<&Path>, kind: Kind, whose: &str, now: Time, said: &(impl Serialize + ?Sized)) {
    let Some(cache) = cache else { return };
    let Ok(body) = postcard::to_stdvec(&(now.0, said)) else { return };
    let head = [kind.format, xxh3_64(&body)].map(u64::to_le_bytes);
    let _ = cache::replace(&path(cache, kind, whose), |mut file| {
        file.write_all(head.as_flattened())?;
        file.write_all(&body)
    });
}
