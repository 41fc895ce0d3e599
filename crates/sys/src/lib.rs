//! What lariat needs of the kernel, one module per promise.
//!
//! This is the only room that may hold `unsafe`, and the only one that knows
//! `/proc`. It keeps nothing: every function looks or acts now and tells.
//!
//! Start with [`scan`] for the process table and [`process`] for what a process
//! is: not a PID, but a boot, a PID, a start time and a pidfd inode.

pub mod activation;
pub mod beneath;
pub mod bounded;
pub mod cgroup;
pub mod clock;
pub mod durable;
pub mod file;
pub mod locks;
pub mod memory;
pub mod names;
pub mod peer;
pub mod point;
#[cfg(feature = "power-cut")]
pub mod power;
pub mod process;
pub mod scan;
pub mod signals;
pub mod sparing;
pub mod spawn;
pub mod standing;
pub mod tree;
pub mod two;
pub mod vigil;
pub mod watch;
