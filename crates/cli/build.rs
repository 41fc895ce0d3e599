//! How the program is linked: at a fixed address.
//!
//! A program that can lie anywhere has its tables of addresses written at every start, in pages that
//! no two processes share. lariat is also the shim of every session it launched: the tables made up a
//! third of what an idle session weighs, and a good part of what a start takes. The stack, the heap and
//! the libraries lie at random addresses as ever.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
