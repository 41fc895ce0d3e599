//! Links `lariat` at a fixed address.
//!
//! A position-independent program has its tables of pointers written to when it is loaded: 40 kB
//! that no two processes share. Each launched session holds two processes of this program for as
//! long as it lives, so that is a sixth of what a session costs.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
