//! `lariat daemon install` and `uninstall`: units of the user's systemd.
//!
//! There are two. The socket is open from the login on, and whoever knocks there first has
//! the daemon started; the service starts it at login as well, because fuses and webhooks
//! wait for nobody to knock. Stopping them ends nothing but the daemon: what it launches
//! for others begins outside of its unit (see `lariat_shim::start`), and where that could
//! not be had, `KillMode=process` spares it.
//!
//! A file that we did not write is left as it is.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lariat_adapters::look::Places;
use lariat_core::Untrusted;
use lariat_daemon::VERB;
use lariat_daemon::place::Place;
use lariat_shim::start::UNIT;
use lariat_sys::process::own_program;
use lariat_sys::{durable, file};

use crate::Done;
use crate::output::{Failure, Out};

const SOCKET: &str = "lariat.socket";
/// Both, the one that the other needs first.
const UNITS: [&str; 2] = [SOCKET, UNIT];
/// The first line of a unit that we wrote.
const OURS: &str = "# Written by `lariat daemon install`; `lariat daemon uninstall` takes it away.";

/// What to do where systemd cannot be asked.
const NEXT: &str = "`systemctl --user status` must work first; `lariat daemon start` needs no systemd";

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

fn service(program: &Path, variables: &[(&str, String)], http: Option<u16>) -> String {
    let program = quoted(&program.to_string_lossy());
    // Agents are found, and looked for, where the person who installs it finds them.
    let plain = variables.iter().filter(|(_, value)| !value.contains('\n'));
    let variables: String = plain.map(|(n, v)| format!("Environment=\"{n}={}\"\n", quoted(v))).collect();
    let http = http.map_or_else(String::new, |port| format!(" {port}"));
    format!(
        "{OURS}\n[Unit]\nDescription=lariat: watches coding agents and tells what happens\n\
         Requires={SOCKET}\nAfter={SOCKET}\nStartLimitIntervalSec=60\nStartLimitBurst=30\n\n\
         [Service]\nExecStart=\"{program}\" {VERB}{http}\n{variables}KillMode=process\nRestart=on-failure\n\
         # There is one already: another will not do better.\nRestartPreventExitStatus=3\n\n\
         [Install]\nWantedBy=default.target\n"
    )
}

fn socket() -> String {
    format!(
        "{OURS}\n[Unit]\nDescription=lariat: the door to its daemon\n\n\
         [Socket]\nListenStream=%t/lariat/daemon.sock\nSocketMode=0600\nDirectoryMode=0700\nRemoveOnStop=yes\n\n\
         [Install]\nWantedBy=sockets.target\n"
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

/// Which of the units are there; refused if one of them is not ours.
fn there(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut there = Vec::new();
    for path in UNITS.map(|name| folder.join(name)) {
        match writer(&path)? {
            Some(false) => {
                let text = format!("{} is there, and lariat did not write it; move it away first", shown(&path));
                return Err(Failure::Refused(text));
            }
            Some(true) => there.push(path),
            None => {}
        }
    }
    Ok(there)
}

pub fn install(http: Option<u16>, out: &mut Out) -> Done {
    let folder = folder()?;
    there(&folder)?;
    durable::make_folder(&folder)?;
    let set = |name: &&'static str| Some((*name, std::env::var(name).ok().filter(|v| !v.is_empty())?));
    let variables: Vec<(&str, String)> = Places::VARIABLES.iter().chain([&"PATH"]).filter_map(set).collect();
    let before = UNITS.map(|name| (name, file::read_small(&folder.join(name), 1 << 16).ok()));
    durable::put(&folder, UNIT, service(&own_program()?, &variables, http).as_bytes())?;
    durable::put(&folder, SOCKET, socket().as_bytes())?;
    // One that runs holds the lock, or serves what was installed before; no agent notices.
    let cleared = systemctl("daemon-reload", &[]).and_then(|()| systemctl("stop", &UNITS));
    if let Err(why) = cleared {
        // A systemd that nobody can ask starts nothing; what it would read at some later login was not asked for.
        for (name, text) in before {
            put_back(&folder, name, text.as_deref())?;
        }
        return Err(anyhow::anyhow!("nothing was installed: {why}; {NEXT}").into());
    }
    let started = stop_other()
        .map_err(|e| format!("the daemon that runs cannot be stopped: {e}"))
        .and_then(|()| systemctl("enable", &UNITS))
        .and_then(|()| systemctl("start", &UNITS));
    told(started, "installed", &folder.join(UNIT), "the daemon is installed and started", out)
}

/// Puts a unit back as it was.
fn put_back(folder: &Path, name: &str, text: Option<&[u8]>) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a unit that we wrote")]
    text.map_or_else(|| std::fs::remove_file(folder.join(name)), |text| durable::put(folder, name, text))
}

/// Stops a daemon that was started by hand.
fn stop_other() -> Result<(), anyhow::Error> {
    let places = Places::from_env();
    let place = Place::of(&places);
    if !place.is_free() {
        match place.connect(&places) {
            Ok(client) => client.stop()?,
            Err(e) if e.is_absent() => {} // on its way out
            Err(e) => return Err(e.into()),
        }
        place.wait_until_free()?;
    }
    Ok(())
}

pub fn uninstall(out: &mut Out) -> Done {
    let folder = folder()?;
    let there = there(&folder)?;
    if there.is_empty() {
        return super::told(out, "absent", format_args!("it is not installed"));
    }
    let stopped = systemctl("stop", &UNITS).and_then(|()| systemctl("disable", &UNITS));
    for path in &there {
        #[expect(clippy::disallowed_methods, reason = "a unit that we wrote")]
        std::fs::remove_file(path)?;
    }
    let stopped = stopped.and_then(|()| systemctl("daemon-reload", &[]));
    let stopped = stopped.map_err(|why| format!("the units are taken away, but {why}; {NEXT}"));
    told(stopped, "uninstalled", &folder.join(UNIT), "the daemon is taken away; every agent goes on", out)
}

fn told(done: Result<(), String>, word: &str, path: &Path, text: &str, out: &mut Out) -> Done {
    match done {
        Ok(()) => super::told(out, word, format_args!("{text} ({})", shown(path))),
        Err(why) => Err(anyhow::anyhow!("{}: {why}", path.display()).into()),
    }
}

fn systemctl(verb: &str, units: &[&str]) -> Result<(), String> {
    #[expect(clippy::disallowed_methods, reason = "a person asked for a unit")]
    let mut command = Command::new("systemctl");
    command.args(["--user", verb]).args(units).stdin(Stdio::null());
    let line = [&["systemctl", "--user", verb], units].concat().join(" ");
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
        let variables = [("PATH", "/a:/50% \\b".to_owned()), ("CODEX_HOME", "two\nlines".to_owned())];
        let text = service(Path::new("/opt/50% \"odd\"/lariat"), &variables, Some(4700));
        assert!(text.contains("\nEnvironment=\"PATH=/a:/50%% \\\\b\"\n"), "{text}");
        assert!(!text.contains("CODEX_HOME"), "a line that could be another setting: {text}");
        assert!(text.starts_with(OURS) && socket().starts_with(OURS));
        assert!(text.contains("\nExecStart=\"/opt/50%% \\\"odd\\\"/lariat\" __daemon 4700\n"), "{text}");
        assert!(text.contains("\nKillMode=process\n"));
    }
}
