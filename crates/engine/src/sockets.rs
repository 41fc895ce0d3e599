//! Where our sockets are: in the runtime directory, which only we may enter; or where that cannot be.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use lariat_shim::socket::LONGEST;
use lariat_sys::durable;
use xxhash_rust::xxh3::xxh3_64;

use crate::start::{LaunchError, files, own_user};

/// No name of a socket is longer: `lively-kestrel-9999.sock.k`.
const NAME: usize = 32;

/// The folder of all of them.
pub fn folder() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_absolute());
    let Some(folder) = runtime.map(|runtime| runtime.join("lariat")) else { return temporary("") };
    let path = folder.as_os_str().as_bytes();
    // The kernel takes no longer path. The place that stands for this one is its alone.
    if path.len() + NAME > LONGEST { temporary(&format!("-{:016x}", xxh3_64(path))) } else { folder }
}

fn temporary(which: &str) -> PathBuf {
    std::env::temp_dir().join(format!("lariat-{}{which}", own_user()))
}

/// Where the viewers of a session connect.
pub(crate) fn of(handle: &str) -> Result<PathBuf, LaunchError> {
    let mut folder = folder();
    // One that is named and cannot be made, as for a user who never logged in, is none.
    if durable::make_folder(&folder).is_err() {
        folder = temporary("");
        durable::make_folder(&folder).map_err(files(&folder))?;
    }
    Ok(folder.join(format!("{handle}.sock")))
}
