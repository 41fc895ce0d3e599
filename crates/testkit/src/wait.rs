//! The one place where a test waits for something that cannot announce itself.
//!
//! It never decides anything by time: the interval only sets how soon a change is noticed, and the
//! deadline only turns a test that would hang into one that fails with a reason.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How long a wait may take before the test has failed. Generous, because two cores may be shared
/// by many tests; a passing test never comes near it.
pub const DEADLINE: Duration = Duration::from_secs(120);

const INTERVAL: Duration = Duration::from_millis(10);
const BRIEF: Duration = Duration::from_micros(200);

/// Waits until `probe` gives a value, and returns it.
///
/// # Panics
/// When `deadline` passes first; the message names `what` was awaited.
#[track_caller]
pub fn wait_for<T>(what: &str, deadline: Duration, probe: impl FnMut() -> Option<T>) -> T {
    look_every(INTERVAL, what, deadline, probe)
}

/// As [`wait_for`], for what is a matter of microseconds and holds up others.
#[track_caller]
pub(crate) fn wait_briefly(what: &str, mut condition: impl FnMut() -> bool) {
    look_every(BRIEF, what, DEADLINE, || condition().then_some(()));
}

#[track_caller]
fn look_every<T>(interval: Duration, what: &str, deadline: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + deadline;
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < end, "waited {deadline:?} in vain for {what}");
        thread::park_timeout(interval);
    }
}

/// Waits until `condition` holds.
///
/// # Panics
/// When `deadline` passes first; the message names `what` was awaited.
#[track_caller]
pub fn wait_until(what: &str, deadline: Duration, mut condition: impl FnMut() -> bool) {
    wait_for(what, deadline, || condition().then_some(()));
}
