//! The last good answer of each gateway, kept in the cache with its time.
//!
//! It decides nothing. It is shown, as `unknown` and with its age, while the
//! gateway does not answer. One that is lost, damaged or of another version is
//! simply not there.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use lariat_core::Time;
use lariat_sys::file;
use xxhash_rust::xxh3::xxh3_64;

use crate::cache;
use crate::openclaw::rows::Row;
use crate::settings::Gateway;

/// Changes with every change of what is kept.
const FORMAT: u64 = u64::from_le_bytes(*b"gateway2");
const LARGEST: u64 = 256 << 20;

/// The file of a gateway: another address is another gateway.
fn path(cache: &Path, gateway: &Gateway) -> PathBuf {
    let which = format!("{} {}", gateway.name.as_deref().unwrap_or(""), gateway.url());
    cache.join(format!("gateway-{:016x}", xxh3_64(which.as_bytes())))
}

/// What it said last, and when.
pub fn recall(cache: Option<&Path>, gateway: &Gateway) -> Option<(Time, Vec<Row>)> {
    let bytes = file::read_small(&path(cache?, gateway), LARGEST).ok()?;
    let (head, body) = bytes.split_at_checked(16)?;
    let [format, sum] = [0, 8].map(|at| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default()));
    if format != FORMAT || sum != xxh3_64(body) {
        return None;
    }
    let (at, rows): (i64, Vec<Row>) = postcard::from_bytes(body).ok()?;
    Some((Time(at), rows))
}

/// Keeps what it said now. A cache that cannot be written is no reason to fail.
pub fn keep(cache: Option<&Path>, gateway: &Gateway, now: Time, rows: &[&Row]) {
    let Some(cache) = cache else { return };
    let Ok(body) = postcard::to_stdvec(&(now.0, rows)) else { return };
    let head = [FORMAT, xxh3_64(&body)].map(u64::to_le_bytes);
    let _ = cache::replace(&path(cache, gateway), |mut file| {
        file.write_all(head.as_flattened())?;
        file.write_all(&body)
    });
}
