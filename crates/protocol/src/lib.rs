//! What lariat's programs say to each other, and how it is written.
//!
//! [`json`] is the one way JSON leaves lariat. [`wire`] is what is said on the
//! daemon's socket: lines of JSON, answers with a body of so many bytes after their
//! line. [`client`] says it; the command line uses it as any other program would.
//!
//! Nothing here decides anything, and nothing here is needed: every question can be
//! answered without a daemon.

pub mod client;
pub mod json;
pub mod wire;
