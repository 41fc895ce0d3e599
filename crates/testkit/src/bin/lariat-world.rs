//! PID 1 of a test's private world; see `lariat_testkit::world::init`.

use std::process::ExitCode;

fn main() -> ExitCode {
    lariat_testkit::world::init::main()
}
