//! `lariat daemon install` and `uninstall`: a unit of the user's systemd.
//!
//! The unit ends nothing but the daemon (`KillMode=process`): agents that it launched
//! for others, and their shims, go on when it is stopped, restarted or taken away. A
//! file that we did not write is left as it is.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lariat_core::Untrusted;
use lariat_daemon::VERB;
use lariat_sys::{durable, file};

use crate::Done;
use crate::output::{Failure, Out, complain};

const NAME: &str = "lariat.service";
/// The first line of a unit that we wrote.
const OURS: &str = "# Written by `lariat daemon install`; `lariat daemon uninstall` takes it away.";

fn folder() -> Result<PathBuf, Failure> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let config = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    let config = config.ok_or_else(|| Failure::Usage("HOME is not set".into()))?;
    Ok(config.join("systemd/user"))
}

/// As systemd reads it within quotes: what it would take for its own is written twice.
fn quoted(text: &str) -> String {
    text.replace('%', "%%").replace('\\', "\\\\").replace('"', "\\\"")
}

fn unit(program: &Path, path: Option<&str>, http: Option<u16>) -> String {
    let program = quoted(&program.to_string_lossy());
    // Agents that are launched by HTTP are found where the person who installs it finds them.
    let path = path
        .filter(|p| !p.contains('\n'))
        .map_or_else(String::new, |p| format!("Environment=\"PATH={}\"\n", quoted(p)));
    let http = http.map_or_else(String::new, |port| format!(" {port}"));
    format!(
        "{OURS}\n[Unit]\nDescription=lariat: watches coding agents and tells what happens\n\n\
         [Service]\nExecStart=\"{program}\" {VERB}{http}\n{path}KillMode=process\nRestart=on-failure\n\n\
         [Install]\nWantedBy=default.target\n"
    )
}

/// Who wrote the unit that is there: nobody, us, or somebody else.
fn writer(path: &Path) -> Result<Option<bool>, Failure> {
    match file::read_small(path, 1 << 16) {
        Ok(bytes) => Ok(Some(bytes.starts_with(OURS.as_bytes()))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(anyhow::anyhow!("{}: {e}", shown(path)).into()),
    }
}

pub fn install(http: Option<u16>, out: &mut Out) -> Done {
    let folder = folder()?;
    let path = folder.join(NAME);
    if writer(&path)? == Some(false) {
        return Err(Failure::Refused(format!("{} is there, and lariat did not write it", shown(&path))));
    }
    durable::make_folder(&folder)?;
    durable::put(
        &folder,
        NAME,
        unit(&std::env::current_exe()?, std::env::var("PATH").ok().as_deref(), http).as_bytes(),
    )?;
    let started = systemctl(&["daemon-reload"]).and_then(|()| systemctl(&["enable", "--now", NAME]));
    told(started, "installed", &path, "the daemon is installed and started", out)
}

pub fn uninstall(out: &mut Out) -> Done {
    let path = folder()?.join(NAME);
    match writer(&path)? {
        None => return super::told(out, "absent", format_args!("it is not installed")),
        Some(false) => return Err(Failure::Refused(format!("lariat did not write {}", shown(&path)))),
        Some(true) => {}
    }
    let stopped = systemctl(&["disable", "--now", NAME]);
    #[expect(clippy::disallowed_methods, reason = "a unit that we wrote")]
    std::fs::remove_file(&path)?;
    let stopped = stopped.and_then(|()| systemctl(&["daemon-reload"]));
    told(stopped, "uninstalled", &path, "the daemon is taken away; every agent goes on", out)
}

fn told(done: Result<(), String>, word: &str, path: &Path, text: &str, out: &mut Out) -> Done {
    match done {
        Ok(()) => super::told(out, word, format_args!("{text} ({})", shown(path))),
        Err(why) => {
            complain(format_args!("{}: {why}", shown(path)));
            Ok(1)
        }
    }
}

fn systemctl(arguments: &[&str]) -> Result<(), String> {
    #[expect(clippy::disallowed_methods, reason = "a person asked for a unit")]
    let mut command = Command::new("systemctl");
    command.arg("--user").args(arguments).stdin(Stdio::null());
    let line = format!("systemctl --user {}", arguments.join(" "));
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{line} failed: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(e) => Err(format!("{line}: {e}")),
    }
}

fn shown(path: &Path) -> String {
    Untrusted::new(path.to_string_lossy()).row()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_ends_nothing_but_the_daemon() {
        let text = unit(Path::new("/opt/50% \"odd\"/lariat"), Some("/a:/50% \\b"), Some(4700));
        assert!(text.contains("\nEnvironment=\"PATH=/a:/50%% \\\\b\"\n"), "{text}");
        assert!(text.starts_with(OURS));
        assert!(text.contains("\nExecStart=\"/opt/50%% \\\"odd\\\"/lariat\" __daemon 4700\n"), "{text}");
        assert!(text.contains("\nKillMode=process\n"));
    }
}
