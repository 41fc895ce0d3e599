//! What time it is, and which boot this is.

use std::fs;
use std::num::NonZeroU64;
use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    millis(ClockId::Realtime)
}

/// When this boot began, in milliseconds since 1970, by today's wall clock.
pub fn booted_at_ms() -> i64 {
    millis(ClockId::Realtime) - millis(ClockId::Boottime)
}

fn millis(clock: ClockId) -> i64 {
    let t = clock_gettime(clock);
    t.tv_sec * 1000 + t.tv_nsec / 1_000_000
}

/// Has this thread wake when it asked to: else the kernel takes 50 microseconds more, to wake several together.
pub fn wake_on_time() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)); // late is well enough, too
}

/// Clock ticks since boot, by the clock that tells when processes started.
pub fn boot_ticks() -> u64 {
    let per_second = rustix::param::clock_ticks_per_second();
    u64::try_from(millis(ClockId::Boottime)).unwrap_or(0).saturating_mul(per_second) / 1000
}

/// The id of this boot. No process outlives its boot, so one reading of it is enough.
pub fn boot_id() -> std::io::Result<String> {
    static BOOT: OnceLock<String> = OnceLock::new();
    if let Some(boot) = BOOT.get() {
        return Ok(boot.clone());
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
    Ok(BOOT.get_or_init(|| boot).clone())
}

/// Turns a process start time, in clock ticks since boot, into milliseconds
/// since 1970.
pub fn ticks_to_ms(ticks: u64) -> i64 {
    booted_at_ms() + ticks_since_boot_ms(ticks)
}

/// Clock ticks as milliseconds since boot.
pub fn ticks_since_boot_ms(ticks: u64) -> i64 {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    i64::try_from(ticks.saturating_mul(1000) / per_second).unwrap_or(i64::MAX)
}
