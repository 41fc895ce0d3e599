//! What lariat launched: the folders under `sessions/`, and what they tell.
//!
//! A folder says what was started, and, through the shim, which process that is
//! and how it ended. That is evidence like any other: it is added to what the
//! adapter saw, and [`lariat_core::judge`] weighs it. A folder without a native
//! session is shown only while its agent lives.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lariat_adapters::look::{Places, Sighting};
use lariat_core::{Exit, Fact, Observation, Time, Untrusted, Warning, Witness};
use lariat_shim::record::{self, Launch, Shim};
use lariat_sys::file;
use lariat_sys::process::Identity;
use lariat_sys::scan::{Process, look};
use serde::{Deserialize, Serialize};

/// How much later than an exit a record may lie and still belong to that run.
pub const AFTERMATH: i64 = 10_000;
/// How long a look waits for an exit that is being written down.
const SETTLE: Duration = Duration::from_secs(1);

/// `launch.json`: what the shim needs, and what only the launcher knows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// What the shim starts.
    #[serde(flatten)]
    pub launch: Launch,
    /// The agent's name.
    pub agent: String,
    /// The agent's own id, once it is known.
    pub native_id: Option<String>,
    /// The name a person gave.
    pub name: Option<String>,
    /// The group a person gave.
    pub group: Option<String>,
    /// The prompt it was launched with.
    pub prompt: Option<String>,
    /// When.
    pub created_at: Time,
    /// The worktree it was launched in, if one was made for it.
    #[serde(default)]
    pub worktree: Option<crate::worktree::Worktree>,
}

/// One launched session.
#[derive(Clone, Debug)]
pub struct Launched {
    /// Its folder.
    pub folder: PathBuf,
    /// What was launched.
    pub record: Record,
    /// Who holds it, if it got that far.
    pub shim: Option<Shim>,
    /// How its agent ended, if that is recorded.
    pub exit: Option<record::Exit>,
}

/// All launched sessions.
#[derive(Default, Debug)]
pub struct All {
    /// By the id that listings show.
    pub by_id: HashMap<String, Launched>,
    /// Those whose id is not known yet.
    pub without_id: Vec<Launched>,
    /// Folders that could not be read.
    pub warnings: Vec<Warning>,
}

impl All {
    /// Reads all.
    pub fn read(places: &Places) -> All {
        let mut all = All::default();
        let sessions = places.state.join("sessions");
        let entries = match file::Directory::open(&sessions).and_then(|d| d.entries()) {
            Ok(entries) => entries,
            Err(_) => return all, // told of where the wishes are read
        };
        for entry in entries {
            let folder = sessions.join(entry.name);
            match Launched::read(&folder) {
                Ok(Some(launched)) => match &launched.record.native_id {
                    Some(native) => {
                        all.by_id.insert(format!("{}:{native}", launched.record.agent), launched);
                    }
                    None => all.without_id.push(launched),
                },
                Ok(None) => {}
                Err(error) => all.warnings.push(Warning {
                    adapter: "lariat",
                    path: Some(places.shown(&folder)),
                    error: Untrusted::new(error.to_string()),
                    last_ok: None,
                }),
            }
        }
        all
    }
}

impl All {
    /// The agents, shims and keepers of all but one: nobody else's end is theirs.
    pub fn processes_but(&self, handle: Option<&str>) -> Vec<u32> {
        let others = self.by_id.values().chain(&self.without_id);
        let others = others.filter(|l| Some(l.record.launch.handle.as_str()) != handle);
        let shims = others.filter_map(|l| l.shim.as_ref());
        shims.flat_map(|s| [Some(&s.agent), Some(&s.shim), s.keeper.as_ref()]).flatten().map(|p| p.pid).collect()
    }

    /// Whether one of them may have been cut off: gone, and not by itself.
    pub fn any_cut_off(&self) -> bool {
        self.by_id.values().any(|l| l.could_be_cut_off() && matches!(l.process(), Ok(None)))
    }
}

impl Launched {
    /// Whether nothing on record says that it ended by itself.
    pub fn could_be_cut_off(&self) -> bool {
        self.exit.as_ref().is_none_or(|e| e.signal.is_some() || e.code.is_some_and(|c| c > 128)) && !self.is_held()
    }

    /// Reads one folder; `None` if nothing was launched from it.
    pub fn read(folder: &Path) -> Result<Option<Launched>, record::RecordError> {
        let Some(record) = record::read::<Record>(folder, record::LAUNCH)? else { return Ok(None) };
        Ok(Some(Launched {
            folder: folder.to_owned(),
            record,
            shim: record::read(folder, record::SHIM)?,
            exit: record::read(folder, record::EXIT)?,
        }))
    }

    /// Its agent's process, if that very one still runs. An error is no answer.
    pub fn process(&self) -> io::Result<Option<Process>> {
        let Some(shim) = &self.shim else { return Ok(None) };
        let identity: Identity = shim.agent.clone().into();
        if !identity.is_alive()? {
            return Ok(None);
        }
        Ok(look(identity.pid)?.filter(|p| p.start == identity.start))
    }

    /// Whether its shim or keeper lives: then how it ended is, or will be, on
    /// record, and it is not cut off.
    pub fn is_held(&self) -> bool {
        let alive = |p: &record::Process| !matches!(Identity::from(p.clone()).is_alive(), Ok(false));
        self.shim.as_ref().is_some_and(|s| alive(&s.shim) || s.keeper.as_ref().is_some_and(alive))
    }

    /// The exit of an agent that has just ended: its shim is writing it down this
    /// moment, which takes as long as the disk does.
    fn settle(&self) -> Option<record::Exit> {
        let until = Instant::now() + SETTLE;
        loop {
            let held = self.is_held();
            let exit = record::read(&self.folder, record::EXIT).ok().flatten();
            if exit.is_some() || !held || Instant::now() > until {
                return exit;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Adds to a sighting what the shim knows.
    pub fn testify(&self, places: &Places, sighting: &mut Sighting) {
        let seen = |fact| Observation::new(Witness::Shim, fact).from(places.shown(&self.folder));
        match self.process() {
            // What the agent itself records as ended has moved on within its process.
            Ok(Some(process)) if has_ended(sighting) => {
                let text = format!("process {} has moved on to another session", process.pid);
                return sighting.observations.push(seen(Fact::Note(text.into())));
            }
            Ok(Some(process)) => {
                let by = Untrusted::from("its shim started it");
                sighting.observations.push(seen(Fact::Alive { pid: Some(process.pid), by }));
                sighting.process.get_or_insert(process);
                return;
            }
            Ok(None) => {}
            Err(e) => return sighting.observations.push(seen(Fact::Note(format!("its shim's agent: {e}").into()))),
        }
        let settled = self.exit.clone().or_else(|| self.settle());
        let Some(exit) = &settled else { return };
        // What it recorded long after that exit belongs to another run.
        let later = sighting.about.updated_at.is_some_and(|t| t.0 > exit.at.0 + AFTERMATH);
        if sighting.process.is_some() || later {
            return;
        }
        let how = match (exit.code, exit.signal) {
            (Some(code), _) => Some(Exit::Code(code)),
            (None, Some(signal)) => Some(Exit::Signal(signal)),
            (None, None) => None,
        };
        sighting.observations.push(seen(Fact::Gone("its shim saw it end".into())).at(Some(exit.at)));
        sighting.observations.extend(how.map(|how| seen(Fact::Exit(how)).at(Some(exit.at))));
        sighting.about.ended_at = Some(exit.at);
    }

    /// A sighting by the shim alone, for an agent that has recorded nothing yet.
    pub fn sighting(&self) -> Sighting {
        let mut sighting =
            Sighting { native_id: self.record.native_id.clone().unwrap_or_default(), ..Sighting::default() };
        sighting.about.cwd = self.record.launch.cwd.to_str().map(str::to_owned);
        sighting.about.prompt = self.record.prompt.clone();
        sighting.about.started_at = self.shim.as_ref().map(|s| s.started_at);
        sighting
    }
}

fn has_ended(sighting: &Sighting) -> bool {
    let says = |test: fn(&Fact) -> bool| sighting.observations.iter().any(|o| test(&o.fact));
    says(|f| matches!(f, Fact::Gone(_))) && !says(|f| matches!(f, Fact::Alive { .. }))
}
