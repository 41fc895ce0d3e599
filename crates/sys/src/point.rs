//! Named points in what lariat does, where a test can hold it or end it.
//!
//! Only with the feature `points`, never in a release:
//! - `LARIAT_PAUSE_AT=<name>[,<name>…]` makes whoever comes there read from the file in
//!   `LARIAT_PAUSE_ON`, a FIFO that the test opens for writing when it may go on;
//! - `LARIAT_DIE_AT=<name>` ends the process there as `kill -9` would;
//! - `LARIAT_POINTS=<file>` notes every point passed, so that a test can
//!   enumerate them;
//! - `LARIAT_TAKES=<name>:<ms>[,<name>:<ms>…]` says how long something takes of which only the time tells that it is
//!   over, so that no test races a clock.

/// Comes to a named point.
#[cfg(feature = "points")]
pub fn point(name: &str) {
    use std::io::Write as _;
    let is = |variable: &str| std::env::var(variable).is_ok_and(|at| at.split(',').any(|at| at == name));
    if let Some(path) = std::env::var_os("LARIAT_POINTS")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path)
    {
        let _ = file.write_all(format!("{name}\n").as_bytes()); // in one piece: others come here too
    }
    if is("LARIAT_PAUSE_AT")
        && let Some(fifo) = std::env::var_os("LARIAT_PAUSE_ON")
    {
        let _ = std::fs::read(fifo);
    }
    if is("LARIAT_DIE_AT") {
        let me = rustix::process::getpid();
        #[expect(clippy::disallowed_methods, reason = "a test ends this very process")]
        let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
    }
}

/// Comes to a named point.
#[cfg(not(feature = "points"))]
#[inline]
pub fn point(_name: &str) {}

/// How long something takes, of which only the time tells that it is over.
#[cfg(feature = "points")]
pub fn takes(name: &str, ms: i64) -> i64 {
    let told = std::env::var("LARIAT_TAKES").unwrap_or_default();
    let mut pairs = told.split(',').filter_map(|pair| pair.split_once(':'));
    pairs.find(|(of, _)| *of == name).and_then(|(_, told)| told.parse().ok()).unwrap_or(ms)
}

/// How long something takes, of which only the time tells that it is over.
#[cfg(not(feature = "points"))]
#[inline]
pub fn takes(_name: &str, ms: i64) -> i64 {
    ms
}
