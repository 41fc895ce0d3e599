//! Handles: names that people can say, each with a folder of its own.

use std::io;
use std::path::PathBuf;

use lariat_adapters::look::Places;
use lariat_sys::durable;

use crate::worktree;

const FIRST: [&str; 32] = [
    "amber", "brave", "brisk", "calm", "clear", "coral", "crisp", "dapper", "eager", "early", "fair", "fleet", "frank",
    "glad", "grand", "hardy", "keen", "lively", "lucid", "mellow", "merry", "neat", "noble", "plain", "proud", "quick",
    "quiet", "sharp", "sober", "stout", "swift", "warm",
];
const SECOND: [&str; 32] = [
    "badger", "bison", "crane", "curlew", "dove", "egret", "falcon", "finch", "fox", "gull", "hare", "heron", "ibis",
    "jay", "kestrel", "lark", "lynx", "marten", "merlin", "newt", "otter", "owl", "plover", "puffin", "quail", "raven",
    "robin", "stoat", "swan", "tern", "vole", "wren",
];

/// The wanted handle, if there is one and it is free, else any; and its folder, newly
/// begun. Only under the claims' lock: two who come at once must not get the same.
pub fn make(places: &Places, wanted: Option<&str>) -> io::Result<(String, PathBuf)> {
    let (handle, folder) = choose(places, wanted)?;
    durable::begin_folder(&folder)?;
    Ok((handle, folder))
}

/// The same without the folder, for who makes it under the same lock.
pub(crate) fn choose(places: &Places, wanted: Option<&str>) -> io::Result<(String, PathBuf)> {
    let sessions = places.state.join("sessions");
    let wanted = wanted.filter(|w| !sessions.join(w).exists()).map(str::to_owned);
    let handle = wanted.map_or_else(|| free(places), Ok)?;
    let folder = sessions.join(&handle);
    Ok((handle, folder))
}

/// A name that no session and no worktree has.
pub fn free(places: &Places) -> io::Result<String> {
    let sessions = places.state.join("sessions");
    let mut seed = random()?;
    for round in 0..10_000u32 {
        let (a, b) = (seed as usize % FIRST.len(), (seed >> 8) as usize % SECOND.len());
        let number = if round < 64 { String::new() } else { format!("-{round}") };
        let handle = format!("{}-{}{number}", FIRST[a], SECOND[b]);
        if !sessions.join(&handle).exists() && !worktree::is_taken(places, &handle) {
            return Ok(handle);
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 7 ^ seed << 3;
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn random() -> io::Result<u64> {
    let uuid = lariat_adapters::new_uuid()?;
    u64::from_str_radix(&uuid[24..36], 16).map_err(io::Error::other)
}
