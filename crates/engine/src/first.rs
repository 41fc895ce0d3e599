//! A short run of an agent's program before the session's own, for agents that must
//! be told of an id before they use it.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use lariat_adapters::{Adapter, First};
use lariat_shim::record::Launch;

use lariat_sys::durable;

use crate::start::LaunchError;

/// What it reads.
const INPUT: &str = "first.in";
/// How long it may take: others wait for the same lock.
pub(crate) const LONGEST: Duration = Duration::from_secs(30);

/// Runs the agent's program once before the session's own run, to its end.
pub(crate) fn tell(
    adapter: &'static dyn Adapter,
    folder: &Path,
    first: &First,
    launch: &Launch,
    env: &[(OsString, OsString)],
) -> Result<(), LaunchError> {
    let log = folder.join("first.log");
    let failed = |how: String| {
        let words = lariat_sys::file::tail(&log, 4096).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).trim().to_owned();
        let words = if words.is_empty() { String::new() } else { format!(":\n{words}") };
        LaunchError::Died(adapter.name().into(), how, words)
    };
    let lost = |e: io::Error| failed(e.to_string());
    // Files, not pipes: what it leaves behind may hold them for ever.
    let output = OpenOptions::new().append(true).create(true).mode(0o600).open(&log).map_err(lost)?;
    durable::put(folder, INPUT, first.input.as_bytes()).map_err(lost)?;
    let input = OpenOptions::new().read(true).open(folder.join(INPUT)).map_err(lost)?;
    #[expect(clippy::disallowed_methods, reason = "launching is what starts an agent's program")]
    let mut command = std::process::Command::new(launch.argv.first().map_or("", String::as_str));
    command.args(&first.arguments).current_dir(&launch.cwd).env_clear().envs(env.iter().cloned());
    command.env(lariat_shim::MARK, &launch.handle); // what it leaves behind is found by this
    command.stdin(input).stdout(output.try_clone().map_err(lost)?).stderr(output);
    let mut child = command.spawn().map_err(lost)?;
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(lost)? {
            break status;
        }
        if began.elapsed() > LONGEST {
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed(format!("`{}` did not end", first.arguments.join(" "))));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    match status.success() {
        true => Ok(()),
        false => Err(failed(format!("`{}`: {status}", first.arguments.join(" ")))),
    }
}
