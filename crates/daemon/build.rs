//! Embeds the page: every file of `web/dist`, as `make web` left it there.
//!
//! Beside a file NAME lies NAME.gz, the same compressed; that is what is embedded and
//! sent. Without `web/dist` the list is empty, and the daemon says what to do. Whoever
//! makes `web/dist` anew where there was none touches this file, as `make web` does.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where we are"));
    let dist = root.join("../../web/dist");
    let mut text = String::from("&[\n");
    if dist.is_dir() {
        println!("cargo:rerun-if-changed={}", dist.display());
        for folder in ["", "assets"] {
            for name in names(&dist.join(folder)) {
                let path = dist.join(folder).join(&name);
                let compressed = dist.join(folder).join(format!("{name}.gz"));
                let (from, gzip) = if compressed.is_file() { (compressed, true) } else { (path, false) };
                let from = fs::canonicalize(from).expect("the file was just listed");
                let at = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                writeln!(text, "File {{ path: {at:?}, gzip: {gzip}, bytes: include_bytes!({from:?}) }},")
                    .expect("a String takes every write");
            }
        }
    }
    text.push(']');
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where to write"));
    #[allow(clippy::disallowed_methods, reason = "a file of the build, in cargo's own folder")]
    fs::write(out.join("files.rs"), text).expect("cargo's own folder can be written");
}

/// The files of a folder, without their compressed forms.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_file()));
    let mut names: Vec<String> = files.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.retain(|name| !name.ends_with(".gz") && !name.starts_with('.'));
    names.sort();
    names
}
