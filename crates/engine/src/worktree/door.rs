//! Looks of ours at worktrees, which nobody is to take for somebody at work there.
//!
//! A look stands in a tree while it reads it: git does, and descriptors lead there.
//! It holds a shared lock on the folder of records meanwhile, and whoever asks who
//! is in a tree shuts the door first, which waits until no look is inside. One that
//! does not leave, because it was stopped or its disk hangs, is waited for a while
//! and then told like anybody else. No look waits for a removal, only for the moment
//! in which it asks.

use std::fs::{File, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use lariat_adapters::look::Places;

/// How long looks are waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How soon is asked again.
const PAUSE: Duration = Duration::from_millis(2);

/// Held while it lives; a crash lets go of it.
#[must_use]
pub struct Door {
    _folder: Option<File>,
}

/// For a look: from before it goes in until it has left.
pub fn enter(places: &Places) -> Door {
    take(places, File::try_lock_shared)
}

/// For the question who is in a tree: no look of ours is.
pub fn shut(places: &Places) -> Door {
    take(places, File::try_lock)
}

#[expect(clippy::disallowed_methods, reason = "our own folder, never a FIFO")]
fn take(places: &Places, lock: fn(&File) -> Result<(), TryLockError>) -> Door {
    let Ok(folder) = File::open(super::folder(places)) else { return Door { _folder: None } };
    let since = Instant::now();
    while matches!(lock(&folder), Err(TryLockError::WouldBlock)) && since.elapsed() < PATIENCE {
        thread::sleep(PAUSE);
    }
    Door { _folder: Some(folder) }
}
