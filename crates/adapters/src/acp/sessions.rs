//! Every session that was launched to speak ACP: its messages, and whether its owner lives.
//!
//! The connection is the owner's alone: while that very process lives, the session does; once it is
//! gone, nobody has it. What the messages say of the turn is the owner's own word, and is believed as
//! such only then. (Whether the agent's own program has opened the session elsewhere is for the adapter
//! of that agent to see; the engine makes one row of both.)
//!
//! An owner whose folder is gone still has its messages open, and is read through that.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use lariat_core::{Ask, AskKind, Fact, Observation, Outcome, State, Time, Turn, Unbound, Untrusted, Warning, Witness};
use lariat_sys::file::{self, Directory};
use lariat_sys::process::{self, Identity, Place};
use lariat_sys::scan::{self, Process};

use super::fold::{Events, Stand};
use super::{EVENTS, NAME, VERB, is_events};
use crate::agent_process as ap;
use crate::look::{About, Look, Report, Scope, Sighting};
use crate::reader::Reading;
use crate::store::{Found, read_all};

/// Tells of every session of this agent, or of all that speak ACP.
pub fn tell(look: &Look<'_>, agent: &str, report: &mut Report) {
    let mut files = files(look, report);
    files.extend(orphaned(look, &files));
    let read = read_all::<Events>(look, "acp", &files);
    let mut seen: Vec<(&'static str, Sighting)> = Vec::new();
    for (file, read) in files.into_iter().zip(read) {
        let reading = match read {
            Ok(reading) => reading,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => {
                report.warnings.push(warning(look, &file.path, e.to_string()));
                continue;
            }
        };
        report.warnings.extend(reading.complaint().map(|why| warning(look, &file.path, why)));
        let name = reading.fold.agent.as_deref().and_then(super::named).map(|a| a.name());
        seen.extend(name.zip(sighting(look, &file.path, *reading)));
    }
    // Agents choose ids, and one may choose the same again: the one that lives is the session, else the newest.
    seen.sort_by_key(|(_, s)| (s.process.is_none(), std::cmp::Reverse(s.about.updated_at)));
    let mut told: HashSet<(&str, String)> = HashSet::new();
    seen.retain(|(name, s)| told.insert((name, s.native_id.clone())));
    let owners: Vec<u32> = seen.iter().filter_map(|(_, s)| s.process.as_ref()).map(|p| p.pid).collect();
    for (name, sighting) in seen.into_iter().filter(|(name, _)| crate::means(agent, name)) {
        let ended = sighting.process.is_none() && has_ended(&sighting);
        if ended && look.scope == Scope::Live {
            report.hidden += 1;
            continue;
        }
        if !ended {
            report.watch.extend(sighting.transcript.as_ref().and_then(|t| t.parent()).map(Path::to_owned));
        }
        report.add((look.judge)(name, sighting));
    }
    owners_without(look, &owners, "its messages tell of no session", report);
    report.watch.push(look.places.state.join("sessions"));
    report.sessions.sort_by(|a, b| a.id.cmp(&b.id));
}

fn has_ended(sighting: &Sighting) -> bool {
    sighting.observations.iter().any(|o| matches!(o.fact, Fact::Gone(_)))
}

fn warning(look: &Look<'_>, path: &Path, error: String) -> Warning {
    Warning { adapter: NAME, path: Some(look.places.shown(path)), error: error.into(), last_ok: None }
}

/// The messages in the folders of launched sessions.
fn files(look: &Look<'_>, report: &mut Report) -> Vec<Found> {
    let sessions = look.places.state.join("sessions");
    let entries = match Directory::open(&sessions).and_then(|d| d.entries()) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(e) => {
            report.warnings.push(warning(look, &sessions, e.to_string()));
            return Vec::new();
        }
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = sessions.join(entry.name).join(EVENTS);
        look.steps.fetch_add(1, Ordering::Relaxed);
        match file::open(&path) {
            Ok((_, key)) => found.push(Found { path, key, whole: true }),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(e) => report.warnings.push(warning(look, &path, e.to_string())),
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Processes that own a connection.
fn owners<'a>(look: &Look<'a>) -> impl Iterator<Item = &'a Process> {
    let owns = |p: &&Process| p.arguments().nth(1) == Some(VERB) && ap::runs(p, &["lariat"]).is_some();
    look.table.ok().into_iter().flat_map(|table| table.iter()).filter(owns)
}

/// Messages that an owner holds open and that are in no folder any more.
fn orphaned(look: &Look<'_>, known: &[Found]) -> Vec<Found> {
    let held = owners(look).filter_map(|p| {
        let folder = PathBuf::from(format!("/proc/{}/fd", p.pid));
        let entries = Directory::open(&folder).and_then(|d| d.entries()).ok()?;
        let mut links = entries.into_iter().map(|e| folder.join(e.name));
        let path = links.find(|link| std::fs::read_link(link).is_ok_and(|to| is_events(&to)))?;
        let (_, key) = file::open(&path).ok()?;
        let listed = known.iter().any(|f| (f.key.device, f.key.inode) == (key.device, key.inode));
        (!listed).then_some(Found { path, key, whole: true })
    });
    held.collect()
}

/// Owners of whom nothing could be read: processes without a known session.
pub fn owners_without(look: &Look<'_>, known: &[u32], why: &str, report: &mut Report) {
    let unknown = owners(look).filter(|p| !known.contains(&p.pid) && !matches!(p.is_alive(), Ok(false)));
    report.unbound.extend(unknown.map(|p| Unbound {
        agent: NAME,
        host: None,
        pid: p.pid,
        cwd: process::cwd(p.pid).ok().map(|c| Untrusted::new(c.to_string_lossy())),
        started_at: Some(ap::started(p)),
        why: Untrusted::new(why),
    }));
}

/// One session; `None` if its agent never took one up.
fn sighting(look: &Look<'_>, path: &Path, reading: Reading<Events>) -> Option<Sighting> {
    let unread = reading.unread.clone();
    let f = reading.fold;
    let native_id = f.id.clone()?;
    let source = look.places.shown(path);
    let (life, process) = presence(&f);
    let mut observations = vec![Observation::new(Witness::Process, life).from(source.clone())];
    let since = f.since.map(Time);
    if process.is_some() {
        let state = if f.is_open() { State::Busy } else { State::Idle };
        // Until the agent has the session, the owner has nothing to say of it.
        observations
            .extend(f.up.then(|| Observation::new(Witness::Hook, Fact::State(state)).at(since).from(source.clone())));
        observations.extend(f.asks.iter().map(|(_, what, at)| {
            let ask = Ask { kind: AskKind::Permission, text: Untrusted::new(what.as_str()) };
            Observation::new(Witness::Hook, Fact::Asks(ask)).at(at.map(Time)).from(source.clone())
        }));
    }
    let doing = f.tools.first().map(|(_, title)| title.clone());
    let turn = match (unread, &f.stand) {
        (Some(why), _) => Fact::TurnUnread(why.into()),
        (None, Stand::Never) => Fact::Turn(Turn::Never),
        (None, Stand::Open) => Fact::Turn(Turn::Open(doing.as_ref().map(|d| Untrusted::new(format!("running {d}"))))),
        (None, Stand::Well) => Fact::Turn(Turn::Over(Outcome::Well)),
        (None, Stand::Failed(error)) => Fact::Turn(Turn::Over(Outcome::Failed(error.clone().into()))),
        (None, Stand::Cancelled) => Fact::Turn(Turn::Over(Outcome::Aborted("its turn was cancelled".into()))),
    };
    // Before its agent has the session, a new owner is not where the last one stopped.
    if process.is_none() || f.up {
        observations.push(Observation::new(Witness::Store, turn).at(since).from(source));
    }
    Some(Sighting {
        native_id,
        observations,
        about: About {
            cwd: f.cwd,
            model: f.model,
            title: f.title,
            prompt: f.prompt,
            started_at: f.started.map(Time),
            updated_at: f.updated.map(Time),
            cost_usd: f.cost,
            tool: doing,
            ..About::default()
        },
        process,
        named: Vec::new(),
        missed: Vec::new(),
        outlived: false,
        shared: false,
        transcript: Some(path.to_owned()),
    })
}

/// Whether the very process that holds its connection lives.
fn presence(f: &Events) -> (Fact, Option<Process>) {
    let Some(owner) = f.owner.clone() else { return (Fact::Unseen("its messages name no owner".into()), None) };
    let (boot, pid, machine) = (owner.boot, owner.pid, owner.machine.unwrap_or_default());
    let place = owner.namespace.map(|namespace| Place { namespace, machine });
    let identity = Identity { boot, pid, start: owner.start, pidfd_inode: owner.pidfd_inode, place };
    match scan::look_at(&identity) {
        Ok(Some(process)) => {
            (Fact::Alive { pid: Some(process.pid), by: "it holds the agent's connection".into() }, Some(process))
        }
        Ok(None) => (Fact::Gone(Untrusted::new(format!("process {pid}, which held its connection, is gone"))), None),
        Err(e) => (Fact::Unseen(Untrusted::new(format!("process {pid}, which held its connection: {e}"))), None),
    }
}
