//! What this machine offers lariat, and what the lack of it costs.

use std::path::PathBuf;

use lariat_adapters::look::{Places, Scope};
use lariat_adapters::remote::{Remote, Standing};
use lariat_adapters::settings::Settings;
use lariat_core::Warning;
use lariat_sys::process::Identity;
use lariat_sys::scan::Table;
use lariat_sys::{file, locks};

use crate::hosts;
use crate::list::{Question, list};

/// How a thing stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    /// As it should be.
    Good,
    /// Missing, and lariat does without.
    Lacking,
    /// Wrong: something will be unknown or unread.
    Bad,
}

/// One thing looked at.
#[derive(Clone, Debug)]
pub struct Check {
    /// What was looked at.
    pub what: String,
    /// How it stands.
    pub health: Health,
    /// What was found, and what it costs if it is not good.
    pub found: String,
}

fn check(what: impl Into<String>, health: Health, found: impl Into<String>) -> Check {
    Check { what: what.into(), health, found: found.into() }
}

/// Looks at everything.
pub fn examine(question: Question) -> Vec<Check> {
    let mut checks = Vec::new();
    for adapter in lariat_adapters::all() {
        if adapter.is_spoken_for() {
            let named = Settings::read(&question.places).acp;
            checks.extend(named.iter().map(|s| installed(&format!("acp:{}", s.name), &[&s.command[0]])));
            continue;
        }
        if adapter.is_mute() {
            let described = Settings::read(&question.places).described;
            checks.extend(described.iter().map(|d| installed(&format!("agent:{}", d.name), &[&d.command[0]])));
            continue;
        }
        checks.push(installed(adapter.name(), adapter.programs()));
        match adapter.remote() {
            Some(remote) => checks.extend(gateways(adapter.name(), remote, &question)),
            None => checks.push(store(adapter.name(), adapter.store(&question.places))),
        }
    }
    checks.extend(hosts(&question));
    checks.extend(kernel());
    checks.push(records(&question.places));
    checks.push(cache(&question.places));
    checks.extend(reading(question));
    checks
}

fn installed(agent: &str, programs: &[&str]) -> Check {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let found = programs.iter().flat_map(|p| folders.iter().map(move |f| f.join(p))).find(|p| p.is_file());
    match found {
        Some(program) => check(format!("{agent} program"), Health::Good, program.display().to_string()),
        None => {
            check(format!("{agent} program"), Health::Lacking, "not on PATH; its recorded sessions are still shown")
        }
    }
}

fn store(agent: &str, path: PathBuf) -> Check {
    let shown = path.display().to_string();
    match file::Directory::open(&path).and_then(|d| d.entries()) {
        Ok(_) => check(format!("{agent} store"), Health::Good, shown),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            check(format!("{agent} store"), Health::Lacking, format!("{shown} is not there: never used by this user"))
        }
        Err(e) => check(format!("{agent} store"), Health::Bad, format!("{shown}: {e}; its sessions are not seen")),
    }
}

fn gateways(agent: &str, remote: &dyn Remote, question: &Question) -> Vec<Check> {
    let what = format!("{agent} gateway");
    let found = remote.standing(&question.places, question.deadline);
    if found.is_empty() {
        let settings = question.places.shown(&question.places.settings).row();
        return vec![check(what, Health::Lacking, format!("none is set; [[gateway]] in {settings} names one"))];
    }
    let one = |standing: Standing| match standing.found {
        Ok(said) => check(&what, Health::Good, format!("{}: {said}", standing.gateway)),
        Err(why) => check(&what, Health::Bad, format!("{}: {why}; its sessions are unknown", standing.gateway)),
    };
    found.into_iter().map(one).collect()
}

fn hosts(question: &Question) -> Vec<Check> {
    let (hosts, _) = hosts::read(&question.places);
    let answers = hosts::ask::versions(&hosts, question.deadline);
    let one = |(host, answer): (&hosts::Host, Result<String, hosts::ssh::Unreached>)| match answer {
        Ok(version) => check("host", Health::Good, format!("{}: lariat {version} answers", host.name)),
        Err(unreached) => check("host", Health::Bad, format!("{}: {}", host.name, unreached.told())),
    };
    hosts.iter().zip(answers).map(one).collect()
}

fn kernel() -> Vec<Check> {
    let scan = match Table::scan() {
        Ok(table) => check("process table", Health::Good, format!("{} processes seen", table.iter().count())),
        Err(e) => check("process table", Health::Bad, format!("{e}; nothing can be proven ended")),
    };
    let pidfd = match Identity::open(std::process::id()) {
        Ok((identity, _)) if identity.pidfd_inode.is_some() => {
            check("process identity", Health::Good, "pidfd with an inode of its own (Linux 6.9 or later)")
        }
        Ok(_) => check(
            "process identity",
            Health::Lacking,
            "pidfd without inode: a reused PID is told by its start time only",
        ),
        Err(e) => {
            check("process identity", Health::Lacking, format!("no pidfd ({e}): exits are noticed by looking only"))
        }
    };
    let held = match locks::held() {
        Ok(locks) => check("/proc/locks", Health::Good, format!("{} file locks seen", locks.len())),
        Err(e) => {
            check("/proc/locks", Health::Bad, format!("{e}; a Codex thread is then known by its open rollout only"))
        }
    };
    let watch = match lariat_sys::watch::open() {
        Ok(_) => check("inotify", Health::Good, "available"),
        Err(e) => {
            let why =
                "this user has used up fs.inotify.max_user_instances; whoever follows then looks every two seconds";
            check("inotify", Health::Lacking, format!("{e}: {why}"))
        }
    };
    vec![scan, pidfd, held, watch]
}

fn records(places: &Places) -> Check {
    let shown = places.state.display().to_string();
    match file::may_write(&places.state) {
        Ok(()) => check("records", Health::Good, shown),
        Err(e) => check("records", Health::Bad, format!("{shown}: {e}: nothing can be launched, stopped or locked")),
    }
}

fn cache(places: &Places) -> Check {
    let Some(path) = &places.cache else {
        return check("cache", Health::Lacking, "switched off: every listing reads the stores again");
    };
    let shown = path.display().to_string();
    match file::may_write(path) {
        Err(e) => check("cache", Health::Lacking, format!("{shown}: {e}: every listing reads the stores again")),
        Ok(()) if path.exists() => check("cache", Health::Good, shown),
        Ok(()) => check("cache", Health::Good, format!("{shown} (made by the first listing)")),
    }
}

/// A real listing tells what cannot be read.
fn reading(question: Question) -> Vec<Check> {
    let answer = list(Question { scope: Scope::All, ..question });
    let count = answer.listing.sessions.len();
    let mut checks = vec![check("sessions", Health::Good, format!("{count} found"))];
    let asked = |w: &Warning| lariat_adapters::all().iter().any(|a| a.name() == w.adapter && a.remote().is_some());
    for warning in answer.listing.warnings.into_iter().filter(|w| !asked(w)) {
        let what = warning.path.map_or_else(|| warning.adapter.to_owned(), |p| p.row());
        checks.push(check(what, Health::Bad, warning.error.row()));
    }
    checks
}
