//! Whether an agent that was started has come up, and with which session.
//!
//! Its own id is chosen by us where the agent allows it, else read from what it shows. An id that we chose says nothing: the
//! agent must have come up with it, or at least not have died of it at once. One that it had before says even less: there
//! must be a sign of this very run. It ends nobody: whoever started it takes it back.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use lariat_adapters::Adapter;
use lariat_adapters::look::Scope;
use lariat_core::{Session, Time, Witness};
use lariat_shim::record::{self, Process};
use lariat_shim::start::Running;
use lariat_sys::clock;
use lariat_sys::point::takes;
use lariat_sys::process::{self, Identity};
use lariat_sys::scan::Table;
use lariat_sys::signals::Heeded;

use crate::list::{Question, list};
use crate::says;
use crate::start::{LaunchError, PATIENCE, Start, until_recorded};

/// An agent that lives so long did not die of its arguments.
const AT_ONCE: Duration = Duration::from_millis(700);
/// One that was given its id shows it sooner than this, or what keeps it from that shows later. Programs on Node take a
/// second to find that they cannot run.
const UP_MS: i64 = 2000;
/// One that goes on with a session shows that sooner than this, or stands at a dialog.
const BACK: Duration = Duration::from_secs(10);
/// One that by then has not shown which session it has is known by what it was asked.
const UNHEARD: Duration = Duration::from_secs(3);
/// How soon and how late one looks again whether it is there.
const SOONEST: Duration = Duration::from_micros(50);
const LATEST: Duration = Duration::from_millis(20);
/// An agent shows its id within this much of its output.
const FIRST_OUTPUT: u64 = 1 << 20;

impl Start<'_> {
    /// Waits until the agent's own id is known.
    pub(crate) fn know(
        &self,
        agent: &Process,
        (began, heeded): (Time, Option<&Heeded>),
        recording: &mut Option<(Running, Vec<File>)>,
        locks: &mut Vec<File>,
    ) -> Result<String, LaunchError> {
        let (start, name) = (Instant::now(), self.adapter.name());
        clock::wake_on_time();
        let pidfd = Identity::open(agent.pid).ok().map(|(_, pidfd)| pidfd);
        loop {
            if heeded.is_some_and(Heeded::take) {
                return Err(LaunchError::Interrupted(name.into()));
            }
            let ended = record::read::<record::Exit>(&self.folder, record::EXIT).ok().flatten();
            let id = self.record.native_id.clone().or_else(|| self.shown(agent));
            let id = id.or_else(|| (start.elapsed() > UNHEARD).then(|| self.told_back(began)).flatten());
            if id.is_none()
                && ended.is_none()
                && let Some(what) = says::before_any(&self.folder, self.adapter)
            {
                return Err(LaunchError::Asks(name.into(), what, self.record.launch.cwd.clone()));
            }
            let far = ended.is_some() || start.elapsed() > AT_ONCE;
            let sign = id.as_ref().is_some_and(|id| self.came_up(id, agent, began, far));
            let patience = match self.adapter.is_spoken_for() {
                true => PATIENCE, // who speaks for it says when it is there
                false if self.again && !self.adapter.is_mute() => BACK,
                false if self.adapter.is_mute() => AT_ONCE,
                false => Duration::from_millis(takes("up", UP_MS).unsigned_abs()),
            };
            match (id, ended) {
                (Some(id), _) if sign => return Ok(id),
                // All that tells of its one turn is its exit.
                (Some(id), Some(exit)) if self.is_over(&exit) => return Ok(id),
                (Some(id), None) if start.elapsed() > patience || self.record.native_id.is_none() => return Ok(id),
                (_, Some(exit)) => return Err(died(name, &self.folder, &exit)),
                (None, None) if start.elapsed() > PATIENCE => {
                    return Err(LaunchError::NoId(name.into(), agent.pid, PATIENCE));
                }
                _ => {}
            }
            if start.elapsed() > AT_ONCE {
                locks.clear();
            }
            // A look soon after the start, later ones further apart. Hints of the kernel would
            // cost more than they bring: letting go of them takes it as long as a launch.
            let pause = (start.elapsed() / 4).clamp(SOONEST, LATEST);
            let waited = match (&pidfd, &*recording) {
                (Some(pidfd), Some((running, _))) => process::wait_exit_or(pidfd, running.as_fd(), pause),
                (Some(pidfd), None) => process::wait_exit(pidfd, pause).map(|ended| (ended, false)),
                (None, _) => Ok((true, false)),
            };
            let (ended, recorded) = waited.unwrap_or((true, false));
            if recorded {
                until_recorded(recording)?;
            } else if ended {
                std::thread::sleep(pause); // how it ended is being written down
            }
        }
    }

    /// Whether one that tells nothing of itself has done what it was asked.
    fn is_over(&self, exit: &record::Exit) -> bool {
        self.adapter.is_mute() && self.record.launch.headless && exit.code == Some(0)
    }

    /// Whether there is a sign that this very run has the session: the agent's own
    /// word, or what it recorded since. Where its word is quick to find, the rest is
    /// looked for only once it is late, or has ended.
    fn came_up(&self, native_id: &str, agent: &Process, began: Time, far: bool) -> bool {
        match self.adapter.came_up(&self.question.places, native_id, agent.pid) {
            Some(up) if up || !far => return up,
            _ => {}
        }
        let answer = list(Question { scope: Scope::All, agent: Some(self.adapter.name()), ..self.question.clone() });
        let mut sessions = answer.listing.sessions.iter();
        let Some(session) = sessions.find(|s| s.agent == self.adapter.name() && s.native_id.raw() == native_id) else {
            return false;
        };
        let native = |w: Witness| matches!(w, Witness::Registry | Witness::Store | Witness::Hook | Witness::Gateway);
        let recorded = session.because.iter().any(|(_, o)| native(o.witness));
        recorded && (!self.again || session.updated_at >= Some(began) || is_held_by(session, agent))
    }

    /// The id that the agent shows: in its first output, or by what its process holds, or one below it: a script
    /// around an agent may stay its parent.
    fn shown(&self, agent: &Process) -> Option<String> {
        id_in_output(&self.folder, self.adapter).or_else(|| {
            let answer =
                list(Question { scope: Scope::Live, agent: Some(self.adapter.name()), ..self.question.clone() });
            let of_it = |s: &&Session| s.agent == self.adapter.name() && s.pid.is_some();
            let held: Vec<&Session> = answer.listing.sessions.iter().map(|s| &**s).filter(of_it).collect();
            let by = |pid, start| held.iter().find(|s| (s.pid, s.start) == (Some(pid), Some(start)));
            let below = || {
                let table = (!held.is_empty()).then(Table::scan)?.ok()?;
                table.descendants(agent.pid).into_iter().find_map(|p| by(p.pid, p.start))
            };
            by(agent.pid, agent.start).or_else(below).map(|s| s.native_id.raw().to_owned())
        })
    }

    /// The one session that began where it stands, since it was started, with the very words that it was given: of
    /// an agent that shows by nothing else which one it has. Another agent there would have kept us from starting it.
    fn told_back(&self, began: Time) -> Option<String> {
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").trim_matches('"').to_owned();
        let given = self.record.ask.prompt.as_deref().map(plain).filter(|_| self.record.prompted)?;
        let answer = list(Question { scope: Scope::All, agent: Some(self.adapter.name()), ..self.question.clone() });
        let cwd = self.record.launch.cwd.to_str();
        let mut sessions = answer.listing.sessions.iter().filter(|s| {
            let here = s.cwd.as_ref().map(|c| c.raw()) == cwd && s.handle.is_none() && s.pid.is_none();
            here && s.started_at >= Some(began) && s.prompt.as_ref().is_some_and(|p| plain(p.raw()) == given)
        });
        let only = sessions.next().filter(|_| sessions.next().is_none())?;
        Some(only.native_id.raw().to_owned())
    }
}

/// The id that an agent shows in its first output: a script around it may have had a word to say before.
pub(crate) fn id_in_output(folder: &Path, adapter: &dyn Adapter) -> Option<String> {
    use io::{BufRead as _, Read as _};
    let (file, _) = lariat_sys::file::open(&folder.join("stdout")).ok()?;
    let lines = io::BufReader::new(file.take(FIRST_OUTPUT)).split(b'\n');
    lines.map_while(Result::ok).find_map(|line| adapter.id_in_output(std::str::from_utf8(&line).ok()?))
}

/// Whether somebody other than the shim ties the session to the agent it started, by
/// more than the arguments that we gave it ourselves.
fn is_held_by(session: &Session, agent: &Process) -> bool {
    use lariat_core::Fact;
    let tied = |o: &lariat_core::Observation| {
        matches!(o.witness, Witness::Registry | Witness::Store)
            && matches!(o.fact, Fact::Alive { pid, .. } if pid == Some(agent.pid))
    };
    session.pid == Some(agent.pid) && session.because.iter().any(|(_, o)| tied(o))
}

fn died(agent: &str, folder: &Path, exit: &record::Exit) -> LaunchError {
    let how = match (exit.code, exit.signal, &exit.error) {
        (Some(code), _, _) => format!("code {code}"),
        (_, Some(signal), _) => format!("signal {signal}"),
        (_, _, Some(error)) => error.clone(),
        _ => "how is not known".into(),
    };
    let words = last_words(folder);
    let words = if words.is_empty() { String::new() } else { format!(":\n{words}") };
    LaunchError::Died(agent.into(), how, words)
}

/// The last lines that an agent wrote, whichever way.
fn last_words(folder: &Path) -> String {
    let file = |name: &str| lariat_sys::file::read_small(&folder.join(name), 1 << 20).unwrap_or_default();
    let terminal =
        lariat_shim::ring::Output::open(folder).and_then(|o| o.tail(4096)).map(|p| p.bytes).unwrap_or_default();
    let all = [file("stderr"), file("stdout"), terminal].concat();
    let text = String::from_utf8_lossy(&all).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}
