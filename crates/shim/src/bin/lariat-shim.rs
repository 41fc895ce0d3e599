//! The shim alone, as `lariat __shim` runs it: for its tests and measures.

use std::process::ExitCode;

fn main() -> ExitCode {
    lariat_shim::dispatch(std::env::args_os()).unwrap_or(ExitCode::from(2))
}
