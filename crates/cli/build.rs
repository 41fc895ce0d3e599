//! How the program is linked: at a fixed address, and with the C library in it.
//!
//! A program that can lie anywhere, and each library beside it, has its tables of addresses written at
//! every start, in pages that no two processes share. lariat is also the shim of every session that it
//! launched: the tables made up half of what an idle session weighs, and loading the libraries a good
//! part of what a start takes. The stack and the heap lie at random addresses as ever.
//!
//! The compiler links the C library statically only when it is told of a target, which moves the program
//! to another folder. Here the linker is given files that stand for the shared libraries and lead to the
//! archives. Where those are not installed, the libraries stay beside it, and all else is the same.

#![expect(clippy::disallowed_methods, reason = "nothing of this is in the program")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What the standard library is linked with.
const LIBRARIES: [&str; 6] = ["c", "dl", "m", "pthread", "rt", "util"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let told = |name: &str| env::var(name).unwrap_or_default();
    if told("CARGO_CFG_TARGET_OS") != "linux" || told("CARGO_CFG_TARGET_ENV") != "gnu" {
        return;
    }
    println!("cargo::rustc-link-arg-bins=-no-pie");
    let folder = PathBuf::from(told("OUT_DIR"));
    if told("HOST") == told("TARGET") && lead_to_archives(&folder).is_some() {
        println!("cargo::rustc-link-arg-bins=-static");
        println!("cargo::rustc-link-arg-bins=-L{}", folder.display());
    }
}

/// Fills the folder; nothing if an archive is not there.
fn lead_to_archives(folder: &Path) -> Option<()> {
    let lead = |name: &str, to: &str| {
        let to = archive(to)?;
        fs::write(folder.join(format!("lib{name}.a")), format!("INPUT(\"{}\")\n", to.display())).ok()
    };
    lead("gcc_s", "gcc_eh")?;
    LIBRARIES.iter().try_for_each(|name| lead(name, name))
}

/// Where the linker would find it.
fn archive(name: &str) -> Option<PathBuf> {
    let asked = Command::new("cc").arg(format!("-print-file-name=lib{name}.a")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(asked.stdout).ok()?.trim_end());
    path.is_absolute().then_some(path) // a name that it does not know comes back as it is
}
