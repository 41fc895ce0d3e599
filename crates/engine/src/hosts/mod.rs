//! Hosts: machines reached over ssh whose own lariat answers for their sessions.
//!
//! # Theory of operation
//!
//! A host is a wish, stored durably, one file each: its name, where ssh finds it, and where lariat
//! is there if not on its `PATH`. Nothing of what a host says is believed to be about this machine.
//! Its rows are made by its own lariat ([`rows`]) and join an answer only where somebody looks
//! ([`ask`]): no verb that acts here ever sees one, so none can be bound to a process here, hold a
//! directory here, or be signalled. Acting on one is running that verb there ([`ssh`]).
//!
//! ```text
//!  lariat ls ──┬─ here, as ever ──────────────────────────────┐
//!              └─ ssh each host lariat ls --json, at once ────┴─> one listing
//!                 no answer: the rows of its last one, unknown, with their age
//! ```
//!
//! A lariat that is asked by another one answers for its own machine only ([`HERE`]), so hosts may
//! name each other.

pub mod ask;
pub mod rows;
pub mod ssh;
pub mod watch;

use std::io;
use std::path::PathBuf;

use lariat_adapters::look::Places;
use lariat_core::{Time, Untrusted, Warning};
use lariat_sys::{durable, file};
use serde::{Deserialize, Serialize};

/// The variable that makes lariat answer for its own machine only: it was asked by another one.
pub const HERE: &str = "LARIAT_HERE";
/// Its value where the answer is wanted only for as long as standard input is open.
pub const WHILE_HEARD: &str = "while-heard";
/// What means this machine where a host is named.
pub const LOCAL: &str = "local";
/// No entry is longer.
const LARGEST: u64 = 1 << 16;
/// No name is longer.
const LONGEST: usize = 64;

/// A machine that a person named.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Host {
    /// What it is called here.
    pub name: String,
    /// Where ssh finds it: `user@machine`, or a name of the user's ssh configuration.
    pub destination: String,
    /// Where lariat is there, if not on its `PATH`.
    #[serde(default)]
    pub lariat: Option<String>,
    /// When it was added.
    pub at: Time,
}

/// All hosts that are to be asked.
#[derive(Clone, PartialEq, Debug)]
pub struct Fleet {
    /// In the order of their names.
    pub hosts: Vec<Host>,
    /// Entries that cannot be read.
    pub warnings: Vec<Warning>,
}

impl Fleet {
    /// Reads which there are; `None` if there is none, or only this machine is asked for.
    pub fn read(places: &Places) -> Option<Fleet> {
        if std::env::var_os(HERE).is_some() {
            return None;
        }
        let (hosts, warnings) = read(places);
        (!hosts.is_empty() || !warnings.is_empty()).then_some(Fleet { hosts, warnings })
    }

    /// The host of this name.
    pub fn named(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|h| h.name == name)
    }

    /// The host that a target names, and the rest of it: `HOST:target`.
    pub fn split<'t>(&self, target: &'t str) -> Option<(&Host, &'t str)> {
        let (name, rest) = target.split_once(':')?;
        Some((self.named(name)?, rest)).filter(|(_, rest)| !rest.is_empty())
    }
}

/// Where hosts are kept.
pub fn place(places: &Places) -> PathBuf {
    places.state.join("hosts")
}

/// All that there are, by name, and what could not be read.
pub fn read(places: &Places) -> (Vec<Host>, Vec<Warning>) {
    let folder = place(places);
    let warning = |path: &std::path::Path, error: String| Warning {
        adapter: "lariat",
        path: Some(places.shown(path)),
        error: Untrusted::new(error),
        last_ok: None,
    };
    let entries = match file::Directory::open(&folder).and_then(|d| d.entries()) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return (Vec::new(), Vec::new()),
        Err(e) => return (Vec::new(), vec![warning(&folder, e.to_string())]),
    };
    let (mut hosts, mut warnings) = (Vec::new(), Vec::new());
    for name in entries.into_iter().map(|e| e.name).filter(|n| n.ends_with(".json") && !n.starts_with('.')) {
        let path = folder.join(&name);
        let read = file::read_small(&path, LARGEST).map_err(|e| e.to_string());
        let host = read.and_then(|b| serde_json::from_slice::<Host>(&b).map_err(|e| e.to_string()));
        let host = host.and_then(|h| fits(&h.name, &h.destination).map(|()| h));
        match host {
            Ok(host) if name == file_name(&host.name) => hosts.push(host),
            Ok(_) => warnings.push(warning(&path, "it names another host than its file does".into())),
            Err(e) => {
                warnings.push(warning(&path, format!("not a host of ours: {e}; `lariat host add` writes it anew")));
            }
        }
    }
    hosts.sort_by(|a, b| a.name.cmp(&b.name));
    (hosts, warnings)
}

fn file_name(name: &str) -> String {
    format!("{name}.json")
}

/// Whether these can be a host's name and destination; what to choose instead if not.
pub fn fits(name: &str, destination: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > LONGEST || name.starts_with(['-', '.']) || !name.chars().all(plain) {
        return Err(
            "a host's name is made of letters, digits, '-', '_' and '.', and begins with a letter or digit".into()
        );
    }
    // What stands before a colon in a target must not mean two things.
    if name == LOCAL || lariat_adapters::named(name).is_some() || name == "claude-code" {
        return Err(format!("'{name}' means something else in a target; choose another name"));
    }
    if destination.is_empty() || destination.starts_with('-') || destination.chars().any(|c| c.is_control() || c == ' ')
    {
        return Err("a destination is what ssh takes: user@machine, ssh://user@machine:port, or a name of your ssh configuration".into());
    }
    Ok(())
}

/// Keeps a host; when it returns, no crash undoes it.
pub fn put(places: &Places, host: &Host) -> io::Result<()> {
    let folder = place(places);
    durable::make_folder(&folder)?;
    let text = serde_json::to_string_pretty(host)?;
    durable::put(&folder, &file_name(&host.name), format!("{text}\n").as_bytes())
}

/// Forgets a host; `false` if there is none of this name.
pub fn remove(places: &Places, name: &str) -> io::Result<bool> {
    if fits(name, "x").is_err() {
        return Ok(false);
    }
    let folder = place(places);
    #[expect(clippy::disallowed_methods, reason = "a host that its person takes away")]
    match std::fs::remove_file(folder.join(file_name(name))) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        removed => removed.and_then(|()| durable::sync(&folder)).map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_may_be_called() {
        for name in ["box", "box.lan", "build-7", "A_1"] {
            assert_eq!(fits(name, "dev@box"), Ok(()), "{name}");
        }
        for name in ["", "-box", ".box", "a/b", "a b", "a:b", "../x", "local", "claude", "claude-code", "acp", "bóx"] {
            assert!(fits(name, "dev@box").is_err(), "{name}");
        }
        for destination in ["", "-oProxyCommand=x", "a b", "a\nb"] {
            assert!(fits("box", destination).is_err(), "{destination}");
        }
    }

    #[test]
    fn a_target_names_a_host_only_if_there_is_one() {
        let host = Host { name: "box".into(), destination: "box".into(), lariat: None, at: Time(0) };
        let fleet = Fleet { hosts: vec![host], warnings: Vec::new() };
        let split = |target| fleet.split(target).map(|(host, rest)| (host.name.as_str(), rest));
        assert_eq!(split("box:claude:1c80"), Some(("box", "claude:1c80")));
        for target in ["claude:1c80", "box", "box:", ":x", "other:x"] {
            assert_eq!(split(target), None, "{target}");
        }
    }
}
