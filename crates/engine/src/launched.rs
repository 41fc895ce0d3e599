//! What lariat launched: the folders under `sessions/`, and what they tell.
//!
//! A folder says what was started, and, through the shim, which process that is
//! and how it ended. That is evidence like any other: it is added to what the
//! adapter saw, and [`lariat_core::judge`] weighs it. A folder without a native
//! session is shown only while its agent lives.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use lariat_adapters::look::{About, Places, Sighting, Stores};
use lariat_adapters::settings::Described;
use lariat_adapters::{Adapter, Ask, described};
use lariat_core::{Exit, Fact, Observation, Outcome, State, Time, Turn, Untrusted, Want, Warning, Witness};
use lariat_shim::record::{self, Launch, Shim};
use lariat_sys::cgroup::{self, Cgroup};
use lariat_sys::point::point;
use lariat_sys::process::{Identity, Stat};
use lariat_sys::scan::{Process, look_at};
use lariat_sys::tree::House;
use lariat_sys::{clock, file};
use serde::{Deserialize, Serialize};

use crate::acp;
use crate::after::{self, After};
use crate::ask;
use crate::records::{self, Wishes, of_each};
use crate::start;
use crate::up;

/// How much later than an exit a record may lie and still belong to that run.
pub const AFTERMATH: i64 = 10_000;
/// What is said of one that its agent had stored, and has not now.
const DELETED: &str = "it is in its agent's store no longer";
/// How long one look waits for exits that are being written down, all of them together.
const SETTLE: Duration = Duration::from_secs(2);

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
    /// The sessions that it had before in the same process.
    #[serde(default)]
    pub earlier: Vec<String>,
    /// What it was asked, so that it can be asked again.
    #[serde(default)]
    pub ask: Ask,
    /// The group a person gave.
    pub group: Option<String>,
    /// Commands to run besides.
    #[serde(default)]
    pub commands: After,
    /// It is to be brought back without asking.
    #[serde(default)]
    pub kept: bool,
    /// Its last run was given something to do.
    #[serde(default)]
    pub prompted: bool,
    /// When.
    pub created_at: Time,
    /// The worktree it was launched in, if one was made for it.
    #[serde(default)]
    pub worktree: Option<crate::worktree::Worktree>,
    /// The agent's own process, where what was launched is a script that called it and was seen to wait for it.
    #[serde(default)]
    pub called: Option<record::Process>,
    /// Where its agent was told to have its store; nothing in records of older versions.
    #[serde(default)]
    pub stores: Option<Stores>,
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
    /// Whether somebody is starting it: it is on record, and who holds it is not yet, or the last end still is. Or why that
    /// cannot be told.
    pub starting: Result<bool, String>,
    /// How its agent ended, if that is recorded.
    pub exit: Option<record::Exit>,
    /// What the settings said of its agent when it was started, if that is all that is known of it.
    pub described: Option<Described>,
    /// Which of its other records could not be read, and why.
    pub unread: Vec<(&'static str, String)>,
}

/// All launched sessions.
#[derive(Default, Debug)]
pub struct All {
    /// By the id that listings show.
    pub by_id: HashMap<String, Launched>,
    /// The ids, by the agent's process and its start.
    by_process: HashMap<(u32, u64), String>,
    /// Those whose id is not known yet.
    pub without_id: Vec<Launched>,
    /// The native ids of those whose connection lariat owns: their agents' own stores tell of them, too.
    pub owned: HashSet<String>,
    /// What could not be read.
    pub warnings: Vec<Warning>,
    /// Folders of which nothing is known: somebody launched from there may be anywhere.
    pub hidden: Vec<PathBuf>,
}

impl All {
    /// Reads all.
    pub fn read(places: &Places) -> All {
        let mut all = All::default();
        let sessions = places.state.join("sessions");
        let entries = match file::Directory::open(&sessions).and_then(|d| d.entries()) {
            Ok(entries) => entries,
            Err(e) => {
                all.hidden.extend((e.kind() != io::ErrorKind::NotFound).then_some(sessions));
                return all; // told of where the wishes are read
            }
        };
        let folders: Vec<PathBuf> = entries.into_iter().map(|entry| sessions.join(entry.name)).collect();
        let warning = |path: &Path, error: &str| Warning {
            adapter: "lariat",
            path: Some(places.shown(path)),
            error: Untrusted::new(error),
            last_ok: None,
        };
        for (folder, read) in folders.iter().zip(of_each(&folders, Launched::read)) {
            let unread = read.iter().flatten().flat_map(|l| &l.unread);
            all.warnings.extend(unread.map(|(name, error)| warning(&folder.join(name), error)));
            match read {
                Ok(Some(launched)) => match &launched.record.native_id {
                    Some(native) => {
                        let id = format!("{}:{native}", launched.record.agent);
                        all.owned.extend(acp::is_owned(&launched.record.agent).then(|| native.clone()));
                        // Agents choose ids, and one may choose the same again: the last run has it.
                        let began = |l: &Launched| l.shim.as_ref().map(|s| s.started_at);
                        if all.by_id.get(&id).is_some_and(|other| began(other) > began(&launched)) {
                            continue;
                        }
                        let numbered_here = launched.shim.as_ref().filter(|s| s.agent.is_numbered_here());
                        let process = numbered_here.map(|s| (s.agent.pid, s.agent.start));
                        all.by_process.extend(process.map(|p| (p, id.clone())));
                        if all.by_id.get(&id).is_none_or(|other| other.rank() < launched.rank()) {
                            all.by_id.insert(id, launched);
                        }
                    }
                    None => all.without_id.push(launched),
                },
                Ok(None) => {}
                Err(error) => {
                    all.warnings.push(warning(folder, &error.to_string()));
                    all.hidden.push(folder.clone());
                }
            }
        }
        all
    }
}

impl All {
    /// What was launched under the handle that a session has.
    pub fn take(&mut self, session: &lariat_core::Session) -> Option<Launched> {
        let handle = session.handle.as_deref()?;
        let is_it = |l: &Launched| l.record.launch.handle == handle;
        match self.by_id.iter().find(|(_, l)| is_it(l)).map(|(id, _)| id.clone()) {
            Some(id) => self.by_id.remove(&id),
            None => self.without_id.iter().position(is_it).map(|at| self.without_id.swap_remove(at)),
        }
    }

    /// What was launched and is this session: by its id, or because its very process
    /// has moved on to it (`/clear`, `/new`).
    pub fn of(&self, id: &str, sighting: &Sighting) -> Option<&Launched> {
        let moved = || {
            let process = sighting.process.as_ref()?;
            let launched = self.by_id.get(self.by_process.get(&(process.pid, process.start))?)?;
            let same = id.strip_prefix(&launched.record.agent).is_some_and(|rest| rest.starts_with(':'));
            same.then_some(launched)
        };
        // One whose launcher was killed before it knew the id.
        let unnamed = || {
            let process = sighting.process.as_ref()?;
            let is_it = |l: &&Launched| {
                let agent = l.shim.as_ref().map(|s| &s.agent).filter(|agent| agent.is_numbered_here());
                agent.is_some_and(|agent| (agent.pid, agent.start) == (process.pid, process.start))
            };
            self.without_id.iter().find(is_it)
        };
        self.by_id.get(id).or_else(moved).or_else(unnamed)
    }

    /// The agents of all but one, and what was hung on their ends; and their shims and
    /// keepers: nobody else's end is theirs. Only those that are still these.
    pub fn processes_but(&self, handle: Option<&str>) -> (HashSet<u32>, HashSet<u32>) {
        let alive = |p: &record::Process| Identity::from(p.clone()).here().ok().flatten().map(|(now, _)| now.pid);
        let (mut agents, mut holders) = (HashSet::new(), HashSet::new());
        for launched in self.by_id.values().chain(&self.without_id) {
            agents.extend(after::at_work(&launched.folder).iter().filter_map(alive));
            let other = Some(launched.record.launch.handle.as_str()) != handle;
            let Some(shim) = launched.shim.as_ref().filter(|_| other) else { continue };
            agents.extend(alive(&shim.agent));
            let held = [Some(&shim.shim), shim.keeper.as_ref()];
            holders.extend(held.into_iter().flatten().filter_map(alive));
        }
        (agents, holders)
    }

    /// The ids of all that was launched, and of what their processes had before.
    pub fn ids(&self) -> impl Iterator<Item = String> {
        let all = |l: &Launched| {
            let (agent, record) = (l.record.agent.clone(), &l.record);
            let ids = record.native_id.iter().chain(&record.earlier).cloned();
            ids.map(move |id| format!("{agent}:{id}")).collect::<Vec<_>>()
        };
        self.by_id.values().flat_map(all)
    }

    /// Waits for what is being written down of those that have just ended: without it nobody
    /// can tell whether they were cut off.
    pub fn settle(&mut self, settling: &OnceLock<Instant>) {
        let ending = |l: &&mut Launched| l.exit.is_none() && l.shim.is_some() && matches!(l.process(), Ok(None));
        for launched in self.by_id.values_mut().filter(ending) {
            launched.exit = launched.settle(settling);
        }
    }

    /// Whether one of them may have been cut off: gone, not by itself, and not because a person
    /// wished it, which is never brought back.
    pub fn any_cut_off(&self, wishes: &Wishes) -> bool {
        let wanted = |id: &str, l: &Launched| match wishes.by_id.get(id) {
            Some(wish) => wish.intent.want != Want::Stop,
            None => l.is_wished(),
        };
        let is_gone = |l: &Launched| matches!(l.process(), Ok(None)) || l.has_lost_its_agent();
        let cut_off = |l: &Launched| l.could_be_cut_off() && is_gone(l);
        self.by_id.iter().any(|(id, l)| cut_off(l) && wanted(id, l))
    }
}

impl Launched {
    /// Of two that say they are one session, which one is: the one that runs, then the
    /// one that was started last.
    fn rank(&self) -> (bool, Option<Time>, Time) {
        let runs = self.exit.is_none() && !matches!(self.process(), Ok(None));
        (runs, self.shim.as_ref().map(|s| s.started_at), self.record.created_at)
    }

    /// Whether nothing on record says that it ended by itself, and nobody is about to
    /// write that down. A record that cannot be read may say so.
    pub fn could_be_cut_off(&self) -> bool {
        // Of one that died with its shim, nobody may know how.
        let by_itself = |e: &record::Exit| {
            e.error.is_some() || (e.told.is_none() && e.code.is_some_and(|c| Exit::Code(c).signal().is_none()))
        };
        let untold = || !self.is_held() || self.has_lost_its_agent();
        self.unread.is_empty() && self.exit.as_ref().map_or_else(untold, |e| !by_itself(e))
    }

    /// Whether the run that was launched is not the last one: a person has gone on with the session elsewhere. Where
    /// nobody saw it end, it did not outlive its boot.
    pub fn was_followed(&self, about: &About) -> bool {
        let booted = || {
            let booted = Time(clock::booted_at_ms());
            // A boot of which that cannot be told may be another.
            let this = |s: &Shim| clock::boot_id().is_ok_and(|boot| boot == s.agent.boot);
            let another = |s: &&Shim| !this(s) && s.started_at < booted;
            self.shim.as_ref().filter(another).map(|_| booted)
        };
        let ended = self.exit.as_ref().map(|exit| exit.at).or_else(booted);
        ended.is_some_and(|ended| is_of_another_run(about, ended))
    }

    /// Whether its agent was told to store nothing of it.
    pub fn stores_nothing(&self) -> bool {
        self.adapter().is_some_and(|adapter| adapter.stores_nothing(&self.record.launch.argv))
    }

    /// Whether a wish for it is on record, or was and cannot be read: its launcher stores one once it knows the session.
    pub fn is_wished(&self) -> bool {
        let entries = file::Directory::open(&self.folder).and_then(|folder| folder.entries());
        entries.map_or(true, |entries| entries.iter().any(|entry| entry.name.starts_with(records::INTENT)))
    }

    /// Reads one folder; `None` if nothing was launched from it. What was launched is known also if the rest cannot be
    /// read.
    pub fn read(folder: &Path) -> Result<Option<Launched>, record::RecordError> {
        let Some(mut record) = record::read::<Record>(folder, record::LAUNCH)? else { return Ok(None) };
        if record.native_id.is_none() {
            // Whoever launched it may have been killed before the agent showed it.
            let adapter = lariat_adapters::named(&record.agent);
            record.native_id = adapter.and_then(|adapter| up::id_in_output(folder, adapter));
        }
        let mut unread = Vec::new();
        // In this order: what the last run left goes the other way round.
        let exit = read_or(folder, record::EXIT, &mut unread);
        let mut shim = read_or(folder, record::SHIM, &mut unread);
        let unheld = shim.is_none() && unread.iter().all(|(name, _)| *name != record::SHIM);
        let untold = |e| format!("whether lariat is starting it: {}: {e}", records::START);
        // What ended and is started again is wanted before the record of that end is gone.
        let wanted_since = |end: &record::Exit| {
            records::read_in(folder).is_some_and(|w| w.intent.want == Want::Run && end.at < w.intent.at)
        };
        let mut starting = match unheld || exit.as_ref().is_some_and(wanted_since) {
            true => records::is_starting(folder).map_err(untold),
            false => Ok(false),
        };
        if unheld && starting != Ok(true) {
            shim = read_or(folder, record::SHIM, &mut unread); // whoever started it may just have come to an end with that
            starting = starting.or_else(|e| if shim.is_some() { Ok(false) } else { Err(e) });
        }
        Ok(Some(Launched {
            folder: folder.to_owned(),
            described: record.ask.described.clone(),
            record,
            shim,
            starting,
            exit,
            unread,
        }))
    }

    /// Puts records of its last run that cannot be read aside: another run's take their places.
    pub fn put_unread_aside(&self) -> io::Result<()> {
        self.unread.iter().try_for_each(|(name, _)| records::put_aside(&self.folder.join(name)))
    }

    fn is_unread(&self, name: &str) -> bool {
        self.unread.iter().any(|(unread, _)| *unread == name)
    }

    /// Takes what the settings say of its agent now over what they said when it was launched.
    pub fn hear_of(&mut self, places: &Places) {
        self.record.ask = start::told_of(places, &self.record.agent, std::mem::take(&mut self.record.ask));
    }

    /// Its agent's process, if that very one still runs. An error is no answer.
    pub fn process(&self) -> io::Result<Option<Process>> {
        if self.is_unread(record::SHIM) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the record that names it cannot be read"));
        }
        self.starting.as_ref().map_err(|why| io::Error::other(why.as_str()))?;
        let Some(shim) = &self.shim else { return Ok(None) };
        look_at(&shim.agent.clone().into())
    }

    /// Whether what is there still is only a script, which called the agent: that one is gone.
    pub fn has_lost_its_agent(&self) -> bool {
        let gone = |called: &record::Process| matches!(Identity::from(called.clone()).is_alive(), Ok(false));
        self.record.called.as_ref().is_some_and(gone) && matches!(self.process(), Ok(Some(_)))
    }

    /// Whether its shim or keeper lives: then how it ended is, or will be, on
    /// record, and it is not cut off.
    pub fn is_held(&self) -> bool {
        let alive = |p: &record::Process| !matches!(Identity::from(p.clone()).is_alive(), Ok(false));
        self.shim.as_ref().is_some_and(|s| alive(&s.shim) || s.keeper.as_ref().is_some_and(alive))
    }

    /// Whether its agent lives and its shim does not. What cannot be told is no.
    pub fn is_orphaned(&self) -> bool {
        let Some(shim) = self.shim.as_ref().filter(|_| self.exit.is_none()) else { return false };
        let held = Identity::from(shim.shim.clone()).is_alive();
        matches!(held, Ok(false)) && matches!(self.process(), Ok(Some(_)))
    }

    /// Where it was put when it was started: what belongs to it, whatever became of
    /// its agent. Only what is proven to be its: the very cgroup that its shim made, in
    /// this boot, and the very shim.
    pub fn house(&self) -> House {
        let Some(shim) = &self.shim else { return House::default() };
        let this_boot = clock::boot_id().is_ok_and(|boot| boot == shim.agent.boot);
        // Whoever took over keeps the name that the first one gave.
        let named = |p: &Path| p.file_name().and_then(|n| n.to_str()).is_some_and(|n| self.is_own_cgroup(n));
        let cgroup = shim.cgroup.as_deref().filter(|path| this_boot && named(path));
        // As they are called from here: what only its own namespace can see is none of ours to end.
        let here = |p: &record::Process| Identity::from(p.clone()).here().ok().flatten().map(|(now, _)| now);
        House {
            cgroup: cgroup.zip(shim.cgroup_inode).and_then(|(path, inode)| Cgroup::find(path, inode)),
            reaper: here(&shim.shim),
            holders: shim.keeper.iter().filter_map(here).collect(),
        }
    }

    fn is_own_cgroup(&self, name: &str) -> bool {
        let shim = name.rsplit('.').next().and_then(|pid| pid.parse().ok());
        shim.is_some_and(|pid| cgroup::name(&self.record.launch.handle, pid) == name)
    }

    /// Whether anybody is left in its cgroup.
    pub fn left_some(&self) -> bool {
        self.house().cgroup.is_some_and(|c| c.members().is_ok_and(|m| !m.is_empty()))
    }

    /// What it started and left behind: in its cgroup, or by the mark that all of it carries.
    pub fn leftovers(&self) -> Result<Vec<u32>, lariat_sys::scan::ScanError> {
        let inside = self.house().cgroup.map(|c| c.members()).transpose()?.unwrap_or_default();
        let handle = self.record.launch.handle.as_str();
        let House { reaper, holders, .. } = self.house();
        let holders: Vec<u32> = reaper.iter().chain(&holders).map(|p| p.pid).collect();
        let ours = |p: &Process| {
            let marked =
                || lariat_sys::process::environment(p.pid).is_ok_and(|e| e.get(lariat_shim::MARK) == Some(handle));
            !holders.contains(&p.pid) && p.pid != std::process::id() && (inside.contains(&p.pid) || marked())
        };
        let table = lariat_sys::scan::Table::scan()?;
        Ok(table.iter().filter(|p| ours(p) && !matches!(p.is_alive(), Ok(false))).map(|p| p.pid).collect())
    }

    /// Whether the process that the agent's records name, and that cannot be looked at from here, is the one that
    /// was started, before the last boot.
    fn is_named_and_of_another_boot(&self, sighting: &Sighting) -> bool {
        let Some(agent) = self.shim.as_ref().map(|s| &s.agent) else { return false };
        let another_boot = clock::boot_id().is_ok_and(|boot| boot != agent.boot);
        another_boot && sighting.named == [(agent.pid, agent.start)]
    }

    /// Whether its process is one of these, by the number that it has where it was started.
    fn is_among(&self, processes: &[(u32, u64)]) -> bool {
        self.shim.as_ref().is_some_and(|s| processes.contains(&(s.agent.pid, s.agent.start)))
    }

    /// The exit of an agent that has just ended: its shim is writing it down this
    /// moment, which takes as long as the disk does.
    fn settle(&self, settling: &OnceLock<Instant>) -> Option<record::Exit> {
        loop {
            let held = self.is_held();
            let exit = record::read(&self.folder, record::EXIT).ok().flatten();
            if exit.is_some() || !held || Instant::now() > *settling.get_or_init(|| Instant::now() + SETTLE) {
                return exit;
            }
            point("look.settles");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Stores that its process has gone on to another session, so that the handle is
    /// that one's for good.
    pub fn move_on(&self, native_id: &str) -> io::Result<()> {
        let mut record = self.record.clone();
        let before = record.native_id.replace(native_id.to_owned());
        if before.as_deref() == Some(native_id) {
            return Ok(());
        }
        record.earlier.extend(before);
        record.prompted = false; // that was another session's
        start::put(&self.folder, &record)
    }

    /// Adds to a sighting what the shim knows; whether the session still has the
    /// handle.
    pub fn testify(&self, places: &Places, now: Time, settling: &OnceLock<Instant>, sighting: &mut Sighting) -> bool {
        let seen = |fact| Observation::new(Witness::Shim, fact).from(places.shown(&self.folder));
        let told_nothing = sighting.observations.iter().all(|o| o.witness == Witness::Shim);
        let mute = self.adapter().is_some_and(|a| a.is_mute());
        if mute {
            sighting.observations.push(seen(Fact::Mute(described::WHY.into())));
            let described = self.record.ask.described.as_ref().filter(|_| sighting.transcript.is_none());
            let found = described.and_then(|d| described::find(places, d, &sighting.native_id));
            if let Some((path, at)) = found {
                (sighting.transcript, sighting.about.updated_at) = (Some(path), at);
            }
        }
        if let (Err(why), None) = (&self.starting, &sighting.process) {
            sighting.observations.push(seen(Fact::Unseen(why.clone().into())));
            return true;
        }
        if self.starting == Ok(true) && sighting.process.is_none() {
            for past in &mut sighting.observations {
                past.fact = Fact::Note(format!("{}, before it is started", past.fact.told().raw()).into());
            }
            sighting.observations.push(seen(Fact::Alive { pid: None, by: "lariat is starting it".into() }));
            return true;
        }
        sighting.outlived |= self.has_lost_its_agent();
        match self.process() {
            Ok(Some(_)) if sighting.outlived && (told_nothing || has_ended(sighting)) => {}
            // What has ended while its process is here has moved on within that, unless the record of its end names
            // the very process, or nobody but the shim knows what that is. One that was given a single prompt does not.
            Ok(Some(process))
                if has_ended(sighting)
                    && !self.record.launch.headless
                    && !is_ending(&process)
                    && !self.is_among(&sighting.missed)
                    && (is_recorded(sighting) || self.is_taken_for_its_own(places, &process)) =>
            {
                let text = format!("process {} has moved on to another session", process.pid);
                sighting.observations.push(seen(Fact::Note(text.into())));
                // Where a person took it away from its process, that has no other session which could have the handle.
                return sighting.observations.iter().any(|o| matches!(o.fact, Fact::Left(_)));
            }
            Ok(Some(process)) => {
                let by = Untrusted::from("its shim started it");
                sighting.observations.push(seen(Fact::Alive { pid: Some(process.pid), by }));
                self.put_aside(&mut sighting.observations);
                if self.record.ask.headless {
                    // Nobody can see to that before it ends of it.
                    sighting.observations.retain(|o| !matches!(&o.fact, Fact::Asks(ask) if ask.kind.ends_a_turn()));
                }
                let asks = ask::observe(&self.record.agent, places, &self.folder, &sighting.about.calls);
                let untold = !sighting.observations.iter().any(|o| matches!(o.fact, Fact::State(_)));
                let says = || self.asks(untold).map(|ask| seen(Fact::Asks(ask)));
                let says = if asks.iter().any(|o| matches!(o.fact, Fact::Asks(_))) { None } else { says() };
                sighting.observations.extend(asks.into_iter().chain(says));
                let asked = sighting.observations.iter().any(|o| matches!(o.fact, Fact::Asks(_)));
                let about = sighting.about.tool.as_deref().filter(|_| !asked);
                let says = self.says().map(|state| match (state, about) {
                    (State::Waiting(what), Some(tool)) => State::Waiting(format!("{}: {tool}", what.raw()).into()),
                    (state, _) => state,
                });
                sighting.observations.extend(says.map(|state| seen(Fact::State(state))));
                // One prompt, and its end is the turn's.
                let turn = (mute && self.record.launch.headless).then_some(Fact::Turn(Turn::Open(None)));
                sighting.observations.extend(turn.or_else(|| self.turn(told_nothing)).map(seen));
                let given = self.given_at(now, sighting);
                sighting.observations.extend(given.map(|at| seen(Fact::Given).at(Some(at))));
                sighting.process.get_or_insert(process);
                return true;
            }
            Ok(None) => {}
            // What its shim saw end has ended, wherever that was.
            Err(_) if self.exit.is_some() => {}
            // Of a record that is lost nothing is known; others may know better.
            Err(e) if self.shim.is_none() => {
                sighting.observations.push(seen(Fact::Note(format!("its process: {e}").into())));
                return true;
            }
            Err(e) => {
                let agent = self.shim.as_ref().map_or(0, |s| s.agent.pid);
                sighting.observations.push(seen(Fact::Unseen(format!("process {agent}: {e}").into())));
                return true;
            }
        }
        // How the agent ended, only what outlived it knows.
        let settled = self.exit.clone().or_else(|| if sighting.outlived { None } else { self.settle(settling) });
        let how = settled.as_ref().and_then(|exit| match (exit.code, exit.signal) {
            (Some(code), _) => Some(Exit::Code(code)),
            (None, Some(signal)) => Some(Exit::Signal(signal)),
            (None, None) => None,
        });
        let Some(exit) = &settled else {
            // Nobody saw how it ended. That it did is certain; whether the session went on
            // elsewhere, only the agent's own records could tell.
            if self.shim.is_some() && (told_nothing || self.is_named_and_of_another_boot(sighting)) {
                sighting.observations.push(seen(Fact::Gone("its process is gone, and nobody saw how".into())));
            }
            sighting.observations.extend(self.last_turn(None, told_nothing, sighting).map(seen));
            return true;
        };
        if sighting.process.is_some() || is_of_another_run(&sighting.about, exit.at) {
            return true;
        }
        let cut_off_by = if exit.told.is_some() { None } else { how };
        let turn = self.last_turn(Some(cut_off_by), told_nothing, sighting);
        // Who has one prompt and ends well once that is answered has ended by itself, whatever its shim was told.
        let open = matches!(&turn, Some(Fact::Turn(Turn::Open(_)) | Fact::TurnUnread(_)));
        let answered = sighting.observations.iter().any(|o| matches!(o.fact, Fact::Turn(Turn::Over(Outcome::Well))));
        let finished = self.record.launch.headless && how == Some(Exit::Code(0)) && answered && !open;
        sighting.observations.extend(turn.map(|fact| seen(fact).at(Some(exit.at))));
        sighting.observations.push(seen(Fact::Gone("its shim saw it end".into())).at(Some(exit.at)));
        sighting.observations.extend(how.map(|how| seen(Fact::Exit(how)).at(Some(exit.at))));
        sighting.observations.extend(exit.told.filter(|_| !finished).map(|told| seen(Fact::AllTold).at(Some(told))));
        sighting.about.ended_at = Some(exit.at);
        true
    }

    fn is_taken_for_its_own(&self, places: &Places, process: &Process) -> bool {
        self.adapter().is_some_and(|a| a.takes_for_its_own(places, process))
    }

    pub(crate) fn adapter(&self) -> Option<&'static dyn Adapter> {
        lariat_adapters::named(&self.record.agent)
    }

    /// A sighting by the shim alone, for an agent that has recorded nothing yet; or `unread` says why nothing of it could
    /// be read. Where a session is stored before anybody knows its id, one that is not there was deleted.
    pub fn sighting(&self, unread: Option<&str>) -> Sighting {
        let mut sighting =
            Sighting { native_id: self.record.native_id.clone().unwrap_or_default(), ..Sighting::default() };
        let gone = || matches!(self.process(), Ok(None));
        let deleted = || self.adapter().is_some_and(|a| a.records_at_once()) && gone();
        let fact = match unread {
            Some(why) => Some(Fact::TurnUnread(Untrusted::new(why))),
            None => deleted().then(|| Fact::Turn(Turn::Over(Outcome::Aborted(DELETED.into())))),
        };
        sighting.observations.extend(fact.map(|fact| Observation::new(Witness::Shim, fact)));
        sighting.about.cwd = self.record.launch.cwd.to_str().map(str::to_owned);
        sighting.about.prompt = self.record.ask.prompt.clone();
        sighting.about.started_at = self.shim.as_ref().map(|s| s.started_at);
        sighting
    }
}

/// Whether a run that ended then is not the last one: a turn began since, or something was recorded long after.
fn is_of_another_run(about: &About, ended: Time) -> bool {
    about.turn_at.is_some_and(|t| t > ended) || about.updated_at.is_some_and(|t| t.0 > ended.0 + AFTERMATH)
}

fn is_ending(process: &Process) -> bool {
    Stat::read(process.pid).is_ok_and(|stat| stat.is_ending())
}

/// Whether its end is on record, and not only that no process could be found to be it.
fn is_recorded(sighting: &Sighting) -> bool {
    sighting.observations.iter().any(|o| o.witness != Witness::Process && matches!(o.fact, Fact::Gone(_)))
}

/// Reads one record of a folder, or remembers why it cannot be read.
fn read_or<T: serde::de::DeserializeOwned>(
    folder: &Path,
    name: &'static str,
    unread: &mut Vec<(&'static str, String)>,
) -> Option<T> {
    record::read(folder, name).unwrap_or_else(|e| {
        unread.push((name, e.to_string()));
        None
    })
}

fn has_ended(sighting: &Sighting) -> bool {
    let says = |test: fn(&Fact) -> bool| sighting.observations.iter().any(|o| test(&o.fact));
    says(|f| matches!(f, Fact::Gone(_))) && !says(|f| matches!(f, Fact::Alive { .. }))
}
