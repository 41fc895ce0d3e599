//! What the tests of lariat stand on: a scripted model, a private world for processes, real
//! terminals, the real agents, and a recorder of their stores.
//!
//! Start at [`Sandbox`]: it gives a test its own HOME, project and process namespace. [`Model`]
//! plays the vendor's side of the conversation. [`agents`] runs the real programs between the two;
//! [`actor`] is a program that plays one, for the demo and where no real agent is installed.
//!
//! This crate never ships. Nothing in it reads the clock to decide an outcome: a test waits for
//! what it can see ([`wait_until`]) or blocks on an event, and a deadline only ends a wait that
//! has already gone wrong. (One exception, for dialogs that drop keys: [`Terminal::choose`].) It
//! panics rather than returning errors, because its callers are tests.

// Tests write files and start programs freely; the rooms that own those calls are in the product.
#![allow(clippy::disallowed_methods)]

pub mod acp;
pub mod actor;
pub mod agents;
pub mod database;
pub mod forking;
pub mod gateway;
pub mod lookalike;
pub mod model;
pub mod picture;
pub mod record;
pub mod sandbox;
pub mod terminal;
mod wait;
pub mod world;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};

pub use forking::{copy_program, put_program};
pub use gateway::Gateway;
pub use lookalike::Lookalike;
pub use model::Model;
pub use picture::Picture;
pub use sandbox::Sandbox;
pub use terminal::{Key, Size, Terminal};
pub use wait::{DEADLINE, wait_for, wait_until};
pub use world::{Child, Exit, Output, Program, Signal, Stdin, World};

/// A program of this workspace, as built beside the running test.
///
/// # Panics
/// When it is not there.
pub fn built(name: &str) -> PathBuf {
    find_built(name)
        .unwrap_or_else(|| panic!("{name} is not built: run `cargo build --workspace --bins` with the test's profile"))
}

fn find_built(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().expect("the path of the running test");
    // target/PROFILE/deps/TEST or target/PROFILE/PROGRAM
    test.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// A port for a program that must be told one: another each time, and none that the kernel gives to anybody by itself.
///
/// # Panics
/// When there is none.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).expect("small");
    (0..2000)
        .map(|_| first + NEXT.fetch_add(1, Ordering::Relaxed))
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}

/// The top of the checkout this crate was built from.
pub fn workspace() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).expect("crates/testkit lies two levels down")
}
