//! Named points where a test can hold a look still.
//!
//! Only with the feature `pause-points`: `LARIAT_PAUSE_AT=<name>` makes the
//! thread that comes to that point read from the file in `LARIAT_PAUSE_ON`, a
//! FIFO that the test opens for writing when it may go on. Without the feature
//! this is nothing.

/// Comes to a named point.
#[cfg(feature = "pause-points")]
pub fn point(name: &str) {
    if std::env::var("LARIAT_PAUSE_AT").is_ok_and(|at| at == name)
        && let Some(fifo) = std::env::var_os("LARIAT_PAUSE_ON")
    {
        let _ = std::fs::read(fifo);
    }
}

/// Comes to a named point.
#[cfg(not(feature = "pause-points"))]
pub fn point(_name: &str) {}
