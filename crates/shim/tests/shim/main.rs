//! The shim as a process: started as a launcher would, talked to as a viewer would, killed as
//! nobody should.
//!
//! Each test stands in a private world (see `lariat_testkit`). The test process looks from
//! outside: at the session's folder, through its socket, and at `/proc`. Agents are small shell
//! scripts that block on what the test gives them, so nothing here waits by the clock.
//!
//! Start at [`place`].

// Tests write files and start programs freely; the rooms that own those calls are in the product.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod place;

mod apart;
mod dying;
mod exits;
mod output;
mod takeover;
mod told;
mod viewers;
