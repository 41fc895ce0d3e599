//! A short run of an agent's program before the session's own, for agents that must
//! be told of an id before they use it.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;
use std::time::{Duration, Instant};

use lariat_adapters::{Adapter, First};
use lariat_shim::record::Launch;

use crate::start::{self, LaunchError};

/// Runs the agent's program once before the session's own run, to its end.
pub(crate) fn tell(
    adapter: &'static dyn Adapter,
    first: &First,
    launch: &Launch,
    env: &[(OsString, OsString)],
) -> Result<(), LaunchError> {
    use std::io::Write as _;
    let failed = |how: String, words: &str| {
        let words = if words.is_empty() { String::new() } else { format!(":\n{words}") };
        LaunchError::Died(adapter.name().into(), how, words)
    };
    let lost = |e: io::Error| failed(e.to_string(), "");
    #[expect(clippy::disallowed_methods, reason = "launching is what starts an agent's program")]
    let mut command = std::process::Command::new(launch.argv.first().map_or("", String::as_str));
    command.args(&first.arguments).current_dir(&launch.cwd).env_clear().envs(env.iter().cloned());
    command.env(lariat_shim::MARK, &launch.handle); // what it leaves behind is found by this
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(lost)?;
    if let Some(mut input) = child.stdin.take() {
        let _ = input.write_all(first.input.as_bytes()); // one that does not read it says why
    }
    let began = Instant::now();
    while child.try_wait().map_err(lost)?.is_none() {
        if began.elapsed() > start::PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed(format!("`{}` did not end", first.arguments.join(" ")), ""));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().map_err(lost)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&[output.stderr, output.stdout].concat()).into_owned();
    Err(failed(format!("`{}`: {}", first.arguments.join(" "), output.status), said.trim()))
}
