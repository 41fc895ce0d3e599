//! The torture rig: what must never happen, tried by the thousand.
//!
//! Each row drives the real `lariat` (built with pause points) and its shims on scripted agents,
//! in a sandbox of its own: a PID and a mount namespace, a HOME, a `/tmp`. Besides what must hold,
//! each row has a control: the wrong way on purpose, in the same run, which must lose. A rig whose
//! control wins proves nothing, so that is a failure too.
//!
//! Start at [`campaign`]: it puts a row into a sandbox and reads what came out. [`ground`] is what
//! the rows stand on in there, [`agent`] the agents they start, [`rows`] the rows.
//!
//! Nothing is decided by time: delays only choose where a blow falls. What is random comes from a
//! seed that is printed, and `--seed` has it again.

// A rig writes files, starts programs and signals them freely, in namespaces of its own.
#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr)]

pub mod agent;
pub mod campaign;
pub mod chance;
pub mod ground;
pub mod model;
pub mod rows;
pub mod tally;
pub mod worker;
