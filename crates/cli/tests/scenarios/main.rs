//! Scenarios with lookalike agents and stores made by hand.
//!
//! Each test stands in a private world (see `lariat_testkit`), puts together what real agents
//! leave behind, starts processes that look like them, and asks the real `lariat`. What the real
//! agents write is held by the `contract` tests; here the cases are those that no real agent can
//! be made to show on demand: reused PIDs, torn files, hostile text, a process table that fails.
//!
//! Start at [`claude_store`] and the other stores, which write what agents leave, and [`asking`], which
//! asks. Tests named `sNN_…` are the scenarios of that number.
//!
//! Run with `--features lariat/pause-points`, after `cargo build --workspace --bins`.

// Tests write files, start programs and print freely; the rooms that own those calls are in the
// product.
#![allow(clippy::disallowed_methods, clippy::print_stdout)]

mod acp;
mod acp_ended;
mod asking;
mod chance;
mod claude_store;
mod codex_store;
mod gemini_store;
mod moment;
mod opencode_store;
mod pi_store;
mod sshd;
mod tmux;

mod bad_input;
mod beside;
mod clients;
mod codex_locks;
mod conventions;
mod copies;
mod cost;
mod daemon;
mod damage;
mod delivering;
mod demo;
mod described;
mod elsewhere;
mod failing;
mod fuses;
mod gateways;
mod gemini_sessions;
mod guarded;
mod hostile;
mod hosts;
mod http;
mod interrupted;
mod launching;
mod leaving;
mod living;
mod matrix;
mod mcp;
mod mutants;
mod namespaces;
mod needs;
mod older;
mod older_versions;
mod opencode_damage;
mod opencode_launching;
mod opencode_living;
mod opencode_mute;
mod opencode_older;
mod opencode_second;
mod orphaned;
mod page;
mod pi_sessions;
mod playing;
mod reading;
mod recorded;
mod records;
mod registered;
mod resuming;
mod runtime_gone;
mod scripted;
mod servers;
mod stopping;
mod strangers;
mod subscribers;
mod systemd;
mod targets;
mod told;
mod top;
mod top_acting;
mod top_ssh;
mod turns;
mod unbound;
mod unsaid;
mod usage;
mod waiting;
mod web;
mod worktrees;
mod worktrees_cut_short;
mod worktrees_odd;
