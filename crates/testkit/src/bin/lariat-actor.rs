//! A scripted agent; see `lariat_testkit::actor`.

use std::process::ExitCode;

fn main() -> ExitCode {
    lariat_testkit::actor::main()
}
