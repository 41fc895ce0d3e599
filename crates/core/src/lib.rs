//! The pure heart of lariat: what a session is, what was observed of it, and
//! what that adds up to.
//!
//! Nothing here reads a file, asks the kernel or looks at a clock: every
//! function gets what it needs as an argument, so every rule can be tested by
//! itself. Start with [`status`], which tells how observations and intent
//! become one status, then [`observation`] for what can be observed.
//!
//! The words are fixed (session, agent, observation, status, intent); they
//! mean the same in code, output and documents.

pub mod intent;
pub mod observation;
pub mod session;
pub mod status;
pub mod terminal;
pub mod text;
pub mod time;

pub use intent::{Intent, Want};
pub use observation::{Ask, AskKind, Fact, Observation, Outcome, State, Turn, Witness};
pub use session::{Exit, Line, Listing, Row, Session, Tokens, Unbound, Warning};
pub use status::{Role, Status, Verdict, judge};
pub use text::Untrusted;
pub use time::Time;
