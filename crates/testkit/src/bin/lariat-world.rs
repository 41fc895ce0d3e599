//! PID 1 of a test's private world; see `lariat_testkit::world::init`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Whoever runs the tests in the background ignores signals, and everything in here would inherit that.
    lariat_sys::signals::restore();
    lariat_testkit::world::init::main()
}
