//! The contract with the agents: the real agents, driven by the scripted model, in
//! every state they have, and `lariat` in the same world asked what it sees.
//!
//! A test brings a program into a state that cannot pass by itself (a reply held by the model, a
//! question on the screen, a tool that reads an empty pipe), looks, and compares with what the
//! program itself says: its exit, its events, its accounting. Nothing here knows how lariat finds
//! out. [`looks`] is how the tests look; [`replay`] shows the recorded stores again, without any
//! agent.
//!
//! The agents are those of `agents/package.json`. With `LARIAT_RECORD=DIR` each test also records
//! the store it ended with below DIR; the project's own set is in `fixtures/`.

// Tests write files and start programs freely; the rooms that own those calls are in the product.
#![allow(clippy::disallowed_methods)]

mod acp;
mod again;
mod claude;
mod codex;
mod gemini;
mod launched;
mod looks;
mod openclaw;
mod opencode;
mod pi;
mod replay;
mod usage;
