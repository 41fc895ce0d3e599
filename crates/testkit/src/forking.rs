//! Programs that a test writes, and processes that it starts: never both at once.
//!
//! Who is just being forked has open whatever this process has, until it is another program; and what anybody has open for
//! writing cannot be run ("Text file busy"). So nobody is forked while another test of this process writes a program.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner) // a test that failed with it spoils nothing
}

/// Starts a process of this one. When it returns, that is another program.
///
/// # Errors
/// When it cannot be started.
pub fn start(command: &mut Command) -> io::Result<Child> {
    let _alone = alone();
    command.spawn()
}

/// Runs a process of this one to its end.
///
/// # Errors
/// When it cannot be started, or what it says cannot be read.
pub fn run(command: &mut Command) -> io::Result<Output> {
    start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))?.wait_with_output()
}

/// Puts a program there that can be run, in place of what is there.
///
/// # Panics
/// When it cannot be written.
#[track_caller]
pub fn put_program(path: &Path, text: impl AsRef<[u8]>) {
    put(path, |path| fs::write(path, text));
}

/// Puts a copy of a program there that can be run.
///
/// # Panics
/// When it cannot be copied.
#[track_caller]
pub fn copy_program(program: &Path, path: &Path) {
    put(path, |path| fs::copy(program, path).map(drop));
}

#[track_caller]
fn put(path: &Path, write: impl FnOnce(&Path) -> io::Result<()>) {
    let put = || {
        fs::create_dir_all(path.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
        drop(fs::remove_file(path)); // it may be running, or be another's by a hard link
        let alone = alone();
        write(path)?;
        drop(alone);
        fs::set_permissions(path, Permissions::from_mode(0o755))
    };
    put().unwrap_or_else(|e| panic!("a program at {}: {e}", path.display()));
}
