//! The verbs, used by the command line and later by the daemon alike.
//!
//! # Theory of operation
//!
//! A question is answered from scratch. [`list`] scans the process table once,
//! lets every adapter look in a thread of its own under a deadline, and judges
//! what they saw. Nothing is kept between two questions but the adapters'
//! cache, which changes no answer.
//!
//! ```text
//!  scan /proc ──> adapter threads ──> sightings ──> judge ──> Listing
//!                  late or failed ──> a warning, and what its processes tell
//! ```
//!
//! Looking never acts: nothing here sends a signal or starts a process, but for the ssh that asks the
//! hosts a person named ([`hosts`]), which ends with the look.

pub mod acp;
pub mod after;
mod apart;
pub mod ask;
pub mod claims;
mod crew;
pub mod death;
pub mod diff;
pub mod doctor;
mod elsewhere;
pub mod evict;
mod first;
pub mod git;
mod given;
pub mod handle;
pub mod hosts;
pub mod launch;
pub mod launched;
pub mod list;
pub mod matrix;
mod one_row;
pub mod peek;
pub mod prices;
pub mod records;
pub mod restore;
pub mod resume;
mod says;
pub mod send;
pub mod series;
pub mod servers;
pub mod sockets;
pub mod start;
pub mod stop;
pub mod target;
mod up;
pub mod usage;
pub mod worktree;

pub use list::{Question, list, list_as_text};
pub use target::{NotOne, resolve};
