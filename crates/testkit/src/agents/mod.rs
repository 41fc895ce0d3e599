//! The real agents, at the versions pinned in `agents/package.json`, run against the scripted
//! model. OpenClaw, which needs another Node, is in `agents/openclaw`.
//!
//! [`Claude::install`], [`Codex::install`] and the others' make a sandbox one in which the agent works as it
//! does for a person who has used it before: by its name on `PATH`, without first-run questions,
//! with the model's address in place of the vendor's, and with all other traffic off. From then on
//! whatever runs there, lariat too, can start it.
//!
//! Nothing here reads an agent's store to decide anything but when a wait is over, and no key in
//! it is a real one.

mod claude;
mod codex;
mod gemini;
mod openclaw;
mod opencode;
mod pi;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

pub use claude::Claude;
pub use codex::{Codex, Daemon};
pub use gemini::Gemini;
pub use openclaw::{Client, OpenClaw, Proxy};
pub use opencode::OpenCode;
pub use pi::Pi;
use serde_json::Value;

use crate::{Sandbox, wait_for, workspace};

/// Where OpenClaw is installed, if not in `agents/openclaw/node_modules` of the checkout.
pub const OPENCLAW_PLACE: &str = "LARIAT_OPENCLAW";
/// Where the agents are installed, if not in `agents/node_modules` of the checkout.
pub const PLACE: &str = "LARIAT_AGENTS";

/// The key that all agents are given; it opens nothing.
const KEY: &str = "scripted-key";

/// Sends whatever an agent still wants from outside to a closed door of loopback.
fn stay_at_home(sandbox: &Sandbox) {
    sandbox.env("HTTPS_PROXY", "http://127.0.0.1:9");
    // Claude takes that proxy for plain HTTP too.
    sandbox.env("NO_PROXY", "127.0.0.1,localhost");
}

/// `node_modules` with the agents in it.
fn node_modules() -> PathBuf {
    match std::env::var_os(PLACE) {
        Some(place) => PathBuf::from(place),
        None => workspace().join("agents/node_modules"),
    }
}

/// A file of what is installed beside the agents.
#[track_caller]
pub fn file(relative: &str) -> PathBuf {
    installed(relative)
}

/// A file of an installed agent.
#[track_caller]
fn installed(relative: &str) -> PathBuf {
    let path = node_modules().join(relative);
    assert!(path.exists(), "{} is missing: run `make agents`", path.display());
    path.canonicalize().expect("a file that exists has a canonical path")
}

/// The version of an installed agent, as its package says.
#[track_caller]
fn version(package: &str) -> String {
    let path = installed(package).join("package.json");
    let text = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let package: Value = serde_json::from_slice(&text).expect("a package description");
    package["version"].as_str().expect("a version").to_owned()
}

/// Every file below a folder whose name ends so, oldest name first.
fn files_below(folder: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(suffix) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[track_caller]
fn wait_for_file(text: &str, deadline: Duration, files: impl Fn() -> Vec<PathBuf>) -> PathBuf {
    let holds = |path: &PathBuf| std::fs::read_to_string(path).is_ok_and(|all| all.contains(text));
    wait_for(&format!("{text:?} in the store"), deadline, || files().into_iter().find(holds))
}
