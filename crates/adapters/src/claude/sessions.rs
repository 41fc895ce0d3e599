//! Every session: its transcript, and what that and its process tell.

use std::cell::{LazyCell, OnceCell};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use lariat_core::{Ask, AskKind, Fact, Observation, Outcome, State, Time, Tokens, Turn, Unbound, Untrusted, Witness};
use lariat_sys::scan::Process;

use super::NAME;
use super::below::{self, Below};
use super::bind::Bound;
use super::fold::{CLOCKS, Stand, Transcript};
use super::history::History;
use super::registry::{self, Entry, Holder, Job};
use super::transcripts::{Stored, Told};
use crate::agent_process as ap;
use crate::look::{About, Look, Report, Scope, Sighting};
use crate::reader::Reading;
use crate::store::{self, Finder, Found, in_parallel};
use crate::tool::{Call, Calls, mark};

/// How many milliseconds a job may wait for its daemon to come up.
const COMING_UP: u64 = 10_000;

type Read = io::Result<Box<Reading<Transcript>>>;

/// Tells of every session, bound or not.
pub fn tell(look: &Look<'_>, bound: &Bound, report: &mut Report) {
    let history = History::new(look);
    std::thread::scope(|scope| {
        // Among all sessions is always one whose turn looks open; years of prompts are read meanwhile.
        if look.scope == Scope::All {
            let _ = std::thread::Builder::new().spawn_scoped(scope, || history.read_ahead());
        }
        tell_beside(look, bound, &history, report);
    });
    report.warnings.extend(history.warning());
}

fn tell_beside(look: &Look<'_>, bound: &Bound, history: &History<'_>, report: &mut Report) {
    let loose = !report.unbound.is_empty() || !bound.moved.is_empty() || !bound.strangers.is_empty();
    let everyone = look.scope == Scope::All || look.table.is_err() || loose;
    let needed = |session: &str| {
        let checkable = |(_, holder): &(Entry, Holder)| !matches!(holder, Holder::Elsewhere(_));
        everyone
            || bound.bonds.contains_key(session)
            || bound.parked.contains(session)
            || bound.entries.get(session).is_some_and(|all| !all.iter().all(checkable))
            || (bound.daemon && bound.jobs.get(session).is_some_and(|j| j.open))
    };
    let Report { unbound, warnings, watch, partial, .. } = report;
    let telling = Telling { look, bound, history, unbound };
    let cache = store::Loading::begin(look, "claude");
    let mut hidden = HashSet::new();
    let mut shut = false;
    let (mut stored, copies) = telling.transcripts(&cache, (warnings, &mut shut), &mut hidden, &needed);
    *partial |= shut;
    store::choose_whole(stored.iter_mut().map(|s| &mut s.main));
    let finder = Finder::<Transcript>::beside(&cache);
    for s in &mut stored {
        let live = bound.bonds.contains_key(&*s.session);
        s.main.whole |= live;
        if let Some(below) = s.below.as_mut().filter(|below| !s.main.whole && !below.files.is_empty()) {
            // Their tokens are of use only beside all of the main one's.
            let Below { files, described, .. } = &mut **below;
            let stirred = LazyCell::new(|| finder.reading(s.known.as_ref()?)?.fold.stirred());
            files.retain(|agent| match described.get(below::name(agent)) {
                Some(what) => what.is_some(),
                // One that was at work after all that its session was at has written after that.
                None => stirred.is_none_or(|at| agent.key.mtime / 1_000_000 >= at - CLOCKS),
            });
            files.iter_mut().for_each(|agent| agent.whole = false);
            s.counts = false;
        }
        if s.main.whole && !s.known.as_ref().is_some_and(|known| known.whole) {
            s.told = None; // there is more to tell of it
        }
        if live {
            watch.extend(s.main.path.parent().map(Path::to_owned));
        }
    }
    let mut files = Vec::with_capacity(stored.len());
    let mut later = Vec::new();
    for (i, Stored { main, below, known, told, .. }) in stored.iter_mut().enumerate() {
        if told.is_none() {
            later.push((i, files.len()));
        }
        files.push((&*main, known.take()));
        files.extend(below.iter().flat_map(|below| &below.files).map(|agent| (agent, None)));
    }
    let (copies, known): (Vec<Found>, Vec<_>) = copies.into_iter().unzip();
    let before = files.len();
    files.extend(copies.iter().zip(known));
    let (told, saving) = store::read(look, cache, files).while_saving(|readings| {
        let unread = readings.complaints(before, &copies);
        warnings.extend(unread.into_iter().map(|(path, e)| registry::warning(look, path, e)));
        let batches = later.chunks(store::batch(later.len(), 64)).collect();
        in_parallel(batches, |batch: &[(usize, usize)]| {
            let tell = |&(i, number): &(usize, usize)| {
                let stored: &Stored = &stored[i];
                let agents = stored.agents().iter().zip(number + 1..).map(|(file, i)| (file, readings.get(i, file)));
                telling.tell(stored, readings.get(number, &stored.main), agents.collect())
            };
            batch.iter().map(tell).collect::<Vec<_>>()
        })
    });
    report.saving.push(saving);
    for ((i, _), told) in later.into_iter().zip(told.into_iter().flatten()) {
        stored[i].told = Some(told);
    }
    report.lines.reserve_exact(stored.len());
    for (row, warnings) in stored.into_iter().filter_map(|stored| Some(*stored.told?)) {
        row.into_iter().for_each(|row| report.add(row));
        report.warnings.extend(warnings);
    }
    // Sessions without a transcript: at their first prompt, or ended before it.
    let mut others: Vec<&String> = bound.bonds.keys().chain(bound.entries.keys()).chain(bound.jobs.keys()).collect();
    others.extend(&bound.parked);
    others.sort_unstable();
    others.dedup();
    if !others.is_empty() {
        let told: HashSet<&str> = report.native_ids().collect();
        others.retain(|id| !told.contains(id.as_str()));
    }
    for session in others {
        // Nothing stirs when its time is over.
        report.unhinted |=
            !bound.daemon && bound.jobs.get(session).is_some_and(|job| may_start(look, bound, job, false));
        if needed_without_transcript(look, bound, session) {
            let mut sighting = sighting(look, bound, history, session.clone(), None, &report.unbound);
            // It may have one where nobody could look.
            let unread = shut.then(|| Fact::TurnUnread("a folder of transcripts cannot be read".into()));
            sighting.observations.extend(unread.map(|fact| Observation::new(Witness::Store, fact)));
            report.add((look.judge)(NAME, sighting));
        } else {
            hidden.insert(session.clone());
        }
    }
    report.hidden = hidden.len();
}

fn needed_without_transcript(look: &Look<'_>, bound: &Bound, session: &str) -> bool {
    look.scope == Scope::All
        || look.table.is_err()
        || bound.bonds.contains_key(session)
        || bound.parked.contains(session)
        || bound.entries.get(session).is_some_and(|all| all.iter().any(|(_, h)| matches!(h, Holder::Elsewhere(_))))
        || bound.jobs.get(session).is_some_and(|job| may_start(look, bound, job, false))
}

/// Whether the daemon may be about to start the worker of a job, or may be about to come up itself for one that was made
/// just now.
fn may_start(look: &Look<'_>, bound: &Bound, job: &Job, began: bool) -> bool {
    let new = job.created.is_some_and(|at| at.is_near(look.now, COMING_UP));
    job.open && (bound.daemon || new && !began)
}

/// What is needed to tell what a transcript shows.
pub(super) struct Telling<'a> {
    pub look: &'a Look<'a>,
    pub bound: &'a Bound,
    pub history: &'a History<'a>,
    pub unbound: &'a [Unbound],
}

impl Telling<'_> {
    pub fn tell(&self, stored: &Stored, main: Read, agents: Vec<(&Found, Read)>) -> Told {
        let mut warnings = Vec::new();
        for (file, read) in
            std::iter::once((&stored.main, &main)).chain(agents.iter().map(|(file, read)| (*file, read)))
        {
            let error = store::complaint(file, read);
            warnings.extend(error.map(|e| registry::warning(self.look, &file.path, e)));
        }
        let unheard =
            !self.bound.bonds.contains_key(&*stored.session) && !self.bound.entries.contains_key(&*stored.session);
        if unheard && main.as_ref().is_ok_and(|main| main.whole && main.fold.is_nobodys()) {
            return Box::new((None, warnings));
        }
        // Of one that is not read whole the last title may stand where nobody looks.
        let untitled = |main: &Reading<Transcript>| !main.whole || main.fold.custom_title.is_none();
        let untitled = stored.below.is_some() && main.as_ref().is_ok_and(|main| untitled(main));
        let title = untitled.then(|| below::custom_title(&stored.main.path)).and_then(|(path, title)| {
            title.unwrap_or_else(|e| {
                warnings.push(registry::warning(self.look, &path, e.to_string()));
                None
            })
        });
        let agents = agents.into_iter().filter_map(|(file, read)| Some((file, *read.ok()?)));
        let seen = Seen { title, ..self.seen(stored, main, agents.collect()) };
        let seen = Some((stored.main.path.clone(), seen));
        let session = stored.session.to_string();
        let sighting = sighting(self.look, self.bound, self.history, session, seen, self.unbound);
        Box::new((Some((self.look.judge)(NAME, sighting)), warnings))
    }

    fn seen(&self, stored: &Stored, main: Read, agents: Vec<(&Found, Reading<Transcript>)>) -> Seen {
        let own: HashMap<&str, &Transcript> =
            agents.iter().rev().map(|(f, read)| (below::name(f), &read.fold)).collect();
        // Versions before 2.1.325 do not say in the description that one has finished.
        let has_ended = |name: &str| {
            own.get(name).is_some_and(|a| matches!(a.stand, Stand::Well | Stand::Failed(_) | Stand::Aborted(_)))
        };
        // What an earlier run has left behind is told of by the next, or has not written since that was asked something;
        // and who goes on to another session takes it along.
        let live = self.bound.bonds.contains_key(&*stored.session);
        let all = OnceCell::new();
        let is_over = |name: &str| {
            let Ok(main) = &main else { return false };
            // Anywhere in it may stand what became of one; hardly ever that must be looked for.
            let all = all.get_or_init(|| if main.whole { None } else { store::read_whole(&stored.main).ok() });
            let fold: &Transcript = all.as_ref().map_or(&main.fold, |all| &all.fold);
            let silent = own.get(name).and_then(|a| a.updated).zip(fold.asked_at).is_some_and(|(last, at)| last < at);
            let gone_on = || silent || self.history.went_on(&stored.session, fold.updated).is_some();
            fold.was_told_of(name.strip_prefix("agent-").unwrap_or(name)) || !live && gone_on()
        };
        let described = stored.below.iter().flat_map(|below| &below.described);
        let unfinished = described.filter_map(|(name, what)| Some((name, what.as_ref()?)));
        let unfinished = unfinished.filter(|(name, _)| !has_ended(name) && !is_over(name));
        let mut unfinished: Vec<String> = unfinished.map(|(_, what)| what.clone()).collect();
        // Of one of which nothing is said only its own file tells: it was at a tool after all that the session was at.
        let described = |name: &str| stored.below.as_ref().is_some_and(|below| below.described.contains_key(name));
        let stirred = main.as_ref().ok().and_then(|main| main.fold.stirred());
        let outlived = agents.iter().filter(|(file, agent)| {
            let name = below::name(file);
            let at_a_tool = agent.fold.stand == Stand::Open && !agent.fold.calls.is_empty();
            at_a_tool && agent.fold.updated > stirred && !described(name) && !is_over(name)
        });
        unfinished.extend(outlived.map(|_| "sub-agent".to_owned()));
        let written = stored.main.key.mtime;
        Seen {
            reading: main.map_err(|e| e.to_string()),
            counts: stored.counts && stored.agents().len() == agents.len(),
            agents: agents.into_iter().map(|(_, read)| read).collect(),
            unfinished,
            title: None,
            written: (written > 0).then_some(Time(written / 1_000_000)),
        }
    }
}

/// What the transcript shows.
struct Seen {
    reading: Result<Box<Reading<Transcript>>, String>,
    agents: Vec<Reading<Transcript>>,
    unfinished: Vec<String>,
    counts: bool,
    /// The title that its folder has, where the transcript has none, or maybe not the last.
    title: Option<String>,
    written: Option<Time>,
}

impl Seen {
    fn transcript(&self) -> Option<&Transcript> {
        self.reading.as_ref().ok().map(|r| &r.fold)
    }

    /// The first call without a result, the sub-agents' included: one that only waits for a sub-agent is at what
    /// that is at.
    fn pending(&self) -> Option<&Call> {
        let main = self.transcript().and_then(|t| t.calls.first());
        let below = || self.agents.iter().find_map(|a| a.fold.calls.first());
        main.filter(|call| !matches!(call.name.as_str(), "Agent" | "Task")).or_else(below).or(main)
    }

    /// How the latest calls stand, the sub-agents' included.
    fn calls(&self) -> Calls {
        let all = || self.transcript().into_iter().chain(self.agents.iter().map(|a| &a.fold));
        Calls {
            open: all().flat_map(|t| &t.calls).map(|call| mark(&super::ask::about(call))).collect(),
            settled: all().flat_map(|t| &t.settled).map(|(mark, at)| (*mark, Time(*at))).collect(),
        }
    }

    fn turn(&self) -> Fact {
        let reading = match &self.reading {
            Ok(reading) => reading,
            Err(error) => return Fact::TurnUnread(error.clone().into()),
        };
        if let Some(why) = &reading.unread {
            return Fact::TurnUnread(why.clone().into());
        }
        let t = &reading.fold;
        Fact::Turn(match &t.stand {
            Stand::Unseen => Turn::Never,
            Stand::Queued(_) => Turn::Open(Some("a prompt is queued".into())),
            Stand::Open => Turn::Open(t.calls.first().map(|c| Untrusted::new(format!("running {}", c.told())))),
            Stand::Well if !self.unfinished.is_empty() => {
                Turn::Open(Some(Untrusted::new(format!("sub-agent at work: {}", self.unfinished.join(", ")))))
            }
            Stand::Well => Turn::Over(Outcome::Well),
            Stand::Failed(error) => Turn::Over(Outcome::Failed(error.clone().into())),
            Stand::Aborted(how) => Turn::Over(Outcome::Aborted(how.clone().into())),
        })
    }

    /// What was used, and what it cost.
    fn spent(&self) -> (Option<Tokens>, Option<f64>) {
        let Ok(reading) = &self.reading else { return (None, None) };
        let (accounted, cost) = reading.fold.accounted().unzip();
        let exact = self.counts && reading.is_exact() && self.agents.iter().all(|a| a.is_exact());
        let all = || std::iter::once(&reading.fold).chain(self.agents.iter().map(|a| &a.fold));
        let counted = exact.then(all).and_then(Transcript::tokens_together);
        // It knows nothing of an answer that was cut off, nor always of those before it.
        let (accounted, cost) = match counted.is_some() || matches!(reading.fold.stand, Stand::Well | Stand::Failed(_))
        {
            true => (accounted, cost),
            false => (None, None),
        };
        // Messages miss what `/compact` used; the accounting misses a run that was killed, and its cost.
        let size = |t: &Tokens| t.input + t.output + t.cache_read + t.cache_write;
        let tokens = [counted, accounted].into_iter().flatten().max_by_key(size);
        let cost = cost.flatten().filter(|_| tokens.as_ref().map(size) == accounted.as_ref().map(size));
        (tokens, cost)
    }
}

fn sighting(
    look: &Look<'_>,
    bound: &Bound,
    history: &History<'_>,
    session: String,
    stored: Option<(PathBuf, Seen)>,
    unbound: &[Unbound],
) -> Sighting {
    let bond = bound.bonds.get(&session);
    let entries = bound.entries.get(&session).map_or(&[][..], Vec::as_slice);
    let job = bound.jobs.get(&session);
    let mut observations = bound.notes.get(&session).cloned().unwrap_or_default();
    let (path, seen) = stored.unzip();
    let transcript = seen.as_ref().and_then(Seen::transcript);
    // What its terminal last said of itself is never renewed.
    let moved = transcript.and_then(|t| t.goes_on_as.as_ref()).filter(|_| bond.is_none());
    let entry = bond.and_then(|b| entries.iter().find(|(_, h)| h.is(b.process.pid)).map(|(e, _)| e));
    let known = entry.or_else(|| entries.first().map(|(e, _)| e));
    let recorded = transcript.and_then(|t| t.moved_to.as_deref().or(t.cwd.as_deref()));
    let cwd = entry.and_then(|e| e.cwd.as_deref()).or(recorded);
    let cwd = cwd.or_else(|| job?.cwd.as_deref()).or_else(|| known?.cwd.as_deref()).map(str::to_owned);
    let cwd = cwd.or_else(|| ap::standing(bond?.process.pid).map(|c| c.raw().to_owned()));

    match bond {
        Some(bond) => observations.push(bond.evidence.clone()),
        // Nothing was said: its terminal's entry is all that there is of it.
        None if path.is_none() && bound.parked.contains(&session) => {
            let parked = |fact| Observation::new(Witness::Registry, fact);
            observations.push(parked(Fact::Gone("its terminal has no session any more".into())));
            observations.push(parked(Fact::Left("moved to the background".into())));
        }
        None => {
            let starting = job.filter(|j| may_start(look, bound, j, seen.is_some()));
            let candidate = crate::look::could_be(unbound, cwd.as_deref()).map(|u| u.pid);
            let candidate = candidate.or_else(|| moved_to(bound, cwd.as_deref(), transcript)).map(could_be);
            let candidate = candidate.or_else(|| bound.strangers.could_hold(path.as_deref()?));
            presence(look, entries, starting, transcript, candidate, &mut observations);
        }
    }
    // What an entry said that a killed process left behind is nothing of the one that is here, or of one that came since
    // and was left.
    let is_past = |e: &&Entry| e.state_at.zip(transcript).is_some_and(|(at, t)| t.was_left_by_one_since(at));
    // Who came after the last record and was at rest has not ended the turn that an earlier one was at.
    let came_after = |e: &&Entry| {
        let since = e.started.zip(transcript.and_then(|t| t.updated)).is_some_and(|(began, last)| began > last);
        since && matches!(e.state, Some(State::Idle | State::Shell))
    };
    let left_behind = || entries.iter().map(|(e, _)| e).find(|e| moved.is_none() && !is_past(e) && !came_after(e));
    let speaks = if bond.is_some() { entry } else { left_behind() };
    if let Some((entry, state)) = speaks.and_then(|e| e.state.clone().map(|s| (e, s))) {
        let source = look.places.shown(&entry.path);
        observations.push(Observation::new(Witness::Registry, Fact::State(state)).at(entry.state_at).from(source));
    }
    if let (Some(seen), Some(path)) = (&seen, &path) {
        let updated = transcript.and_then(|t| t.updated).map(Time);
        let store = |fact| Observation::new(Witness::Store, fact).at(updated).from(look.places.shown(path));
        let fact = seen.turn();
        let open = matches!(fact, Fact::Turn(Turn::Open(_)));
        // A process younger than the last record has recorded nothing yet.
        let mut young = bond.filter(|_| entry.is_none_or(|e| e.state.is_none())).into_iter();
        let written = seen.written.map_or(0, |t| t.0 * 1_000_000);
        let from_before = young.any(|b| ap::is_past(&fact, updated, written, &b.process));
        if from_before {
            observations.push(store(Fact::Note(format!("{}, before this process started", fact.told().raw()).into())));
            observations.extend(entry.and_then(|e| rests(look, e)));
        } else {
            observations.push(store(fact));
        }
        match bond {
            Some(b) => {
                // What an earlier process lacked, this one may have.
                let failed = transcript.and_then(|t| t.failed_at).map(Time);
                let lacks = lacking(seen).filter(|_| failed.is_some_and(|at| at >= ap::started(&b.process)));
                let lacks = lacks.map(|ask| store(Fact::Asks(ask)).at(failed));
                let asks = || asks(entry, seen).filter(|_| !from_before).map(|ask| store(Fact::Asks(ask)));
                observations.extend(lacks.or_else(asks));
            }
            None => {
                // Whoever began after the last record has not left by it.
                let began = known.and_then(|e| e.started);
                let past = |t: &&Transcript| began.zip(t.updated).is_some_and(|(began, last)| began > last);
                let by = transcript.filter(|t| open && !past(t));
                let left = by.and_then(|t| left(look, history, (&session, path), (t, began), job));
                let moved = moved.map(|id| store(Fact::Left(format!("moved to the background as {id}").into())));
                observations.extend(moved.or(left));
                // That is typed at its prompt: what looks open was taken back.
                let went_on = by.and_then(|t| history.went_on(&session, t.updated.max(began)));
                let rested = |at| Observation::new(Witness::Store, Fact::State(State::Idle)).at(Some(at));
                let source = || look.places.shown(&look.places.claude.join("history.jsonl"));
                observations.extend(went_on.map(|at| rested(at).from(source())));
            }
        }
    }
    if seen.is_none() {
        observations.extend(entry.and_then(|e| rests(look, e)));
    }
    // Who leaves takes its entry along before its process is gone: it was at its prompt.
    let told = observations.iter().any(|o| matches!(o.fact, Fact::Turn(_) | Fact::TurnUnread(_)));
    let leaving = bond.filter(|_| entry.is_none() && !told).map(|b| ap::started(&b.process));
    if leaving.is_some_and(|since| history.left_by_exit(&session, Some(since.0))) {
        let source = look.places.shown(&look.places.claude.join("history.jsonl"));
        observations.push(Observation::new(Witness::Store, Fact::State(State::Idle)).from(source));
    }
    let ended = seen.as_ref().filter(|_| bond.is_none()).and_then(|s| s.transcript()?.left_at(s.written));
    let ended = ended.filter(|at| *at <= look.now); // nothing has ended in the future
    let mut about = about(known, job, seen, cwd);
    about.ended_at = ended;
    // At its prompt it runs nothing, whatever a killed process has left without a result.
    let rests = entry.is_some_and(|e| matches!(e.state, Some(State::Idle | State::Shell)));
    about.tool = about.tool.filter(|_| !rests);
    let elsewhere = entries.iter().filter(|(e, h)| matches!(h, Holder::Elsewhere(_)) && e.is_of_this_machine());
    // Nobody here, and not somebody who has gone on to another session.
    let is = |e: &Entry, p: &Process| p.pid == e.pid && Some(p.start) == e.proc_start;
    let here = |e: &Entry| bound.bonds.values().any(|b| is(e, &b.process));
    let gone = entries.iter().filter(|(e, h)| matches!(h, Holder::Gone(_)) && !here(e));
    let process = |(e, _): &(Entry, Holder)| Some((e.pid, e.proc_start?));
    Sighting {
        outlived: bound.outlived.contains(&session),
        native_id: session,
        observations,
        about,
        process: bond.map(|b| b.process.clone()),
        named: elsewhere.filter_map(process).collect(),
        missed: gone.filter_map(process).collect(),
        shared: false,
        transcript: path,
    }
}

/// Without a process of its own: gone, with the proof, or not to be told.
fn presence(
    look: &Look<'_>,
    entries: &[(Entry, Holder)],
    starting: Option<&Job>,
    transcript: Option<&Transcript>,
    candidate: Option<Fact>,
    observations: &mut Vec<Observation>,
) {
    let mut proven = false;
    for (entry, holder) in entries {
        let fact = match holder {
            Holder::Gone(proof) => {
                proven = true;
                Fact::Gone(proof.clone().into())
            }
            Holder::Elsewhere(why) => Fact::Unseen(why.clone().into()),
            Holder::Alive(_) => continue,
        };
        observations
            .push(Observation::new(Witness::Registry, fact).at(entry.state_at).from(look.places.shown(&entry.path)));
    }
    let elsewhere = entries.iter().any(|(_, h)| matches!(h, Holder::Elsewhere(_)));
    if elsewhere {
        observations.retain(|o| !matches!(o.fact, Fact::Gone(_)));
        return;
    }
    if let Some(job) = starting {
        let why = "its background worker is not there, and the daemon may be starting it";
        observations
            .push(Observation::new(Witness::Registry, Fact::Unseen(why.into())).from(look.places.shown(&job.path)));
        observations.retain(|o| !matches!(o.fact, Fact::Gone(_)));
        return;
    }
    if transcript.is_some_and(|t| t.left) {
        observations.push(Observation::new(Witness::Store, Fact::Gone("its final accounting is written".into())));
        return;
    }
    if proven {
        return;
    }
    let fact = match look.table {
        Err(why) => Fact::Unseen(Untrusted::new(format!("the process table could not be read: {why}"))),
        Ok(_) => candidate.unwrap_or_else(|| Fact::Gone("no claude process could be it".into())),
    };
    observations.push(Observation::new(Witness::Process, fact));
}

/// A terminal that is registered is past its dialogs: where nothing was recorded since it started, it is at its prompt.
/// Later versions say so themselves.
fn rests(look: &Look<'_>, entry: &Entry) -> Option<Observation> {
    let rests = Observation::new(Witness::Registry, Fact::State(State::Idle)).at(entry.started.map(Time));
    entry.terse.then(|| rests.from(look.places.shown(&entry.path)))
}

/// A process that has gone on to another session than its own could hold what was written since.
fn moved_to(bound: &Bound, cwd: Option<&str>, transcript: Option<&Transcript>) -> Option<u32> {
    let updated = transcript.and_then(|t| t.updated).map(Time);
    let written = bound.moved.iter().filter(|(_, since)| updated.is_none_or(|at| at >= *since));
    written.into_iter().find_map(|(u, _)| crate::look::could_be(std::slice::from_ref(u), cwd).map(|u| u.pid))
}

fn could_be(pid: u32) -> Fact {
    let why = "tied to no session, stands in the same or an unknown directory";
    Fact::Unseen(Untrusted::new(format!("claude process {pid}, {why}")))
}

/// What its last turn failed for the lack of.
fn lacking(seen: &Seen) -> Option<Ask> {
    match seen.transcript()? {
        Transcript { stand: Stand::Failed(error), needs: Some(need), .. } => Some(need.ask(error)),
        _ => None,
    }
}

/// What a waiting session asks, from the call that has no result.
fn asks(entry: Option<&Entry>, seen: &Seen) -> Option<Ask> {
    let call = seen.pending()?;
    let ask = super::ask::about(call);
    match entry.and_then(|e| e.state.as_ref()) {
        Some(State::Waiting(what)) if what.raw() == "dialog open" => None,
        // A tool's server asks while the tool runs: its permission was given.
        Some(State::Waiting(what)) if what.raw() == "input needed" && ask.kind == AskKind::Permission => {
            Some(Ask { kind: AskKind::Question, ..ask })
        }
        Some(State::Waiting(_)) => Some(ask),
        Some(State::Busy | State::Idle | State::Shell) => None,
        // Without a word of the agent only a question asks by itself.
        Some(State::Other(_)) | None => Some(ask).filter(|a| a.kind != AskKind::Permission),
    }
}

/// Whether a person ended it in the middle of an open turn: since that was last at anything, and since the last process that
/// is known of it began.
fn left(
    look: &Look<'_>,
    history: &History<'_>,
    (session, path): (&str, &Path),
    (t, began): (&Transcript, Option<i64>),
    job: Option<&Job>,
) -> Option<Observation> {
    let since = t.stirred().max(began);
    let is_over = |at: Time| since.is_none_or(|since| at.0 >= since);
    if let Some(job) = job.filter(|j| j.stopped && j.updated.is_none_or(is_over)) {
        let fact = Fact::Left("claude stop".into());
        return Some(Observation::new(Witness::Store, fact).at(job.updated).from(look.places.shown(&job.path)));
    }
    if t.in_terminal == Some(false) {
        return None;
    }
    let exit = Observation::new(Witness::Store, Fact::Left("/exit".into()));
    if let Some(at) = t.exited_at.filter(|at| began.is_none_or(|began| *at >= began)) {
        return Some(exit.at(Some(Time(at))).from(look.places.shown(path)));
    }
    let source = || look.places.shown(&look.places.claude.join("history.jsonl"));
    history.left_by_exit(session, since).then(|| exit.from(source()))
}

fn about(known: Option<&Entry>, job: Option<&Job>, seen: Option<Seen>, cwd: Option<String>) -> About {
    let registered = known.and_then(|e| e.started).map(Time);
    let named = known.and_then(|e| e.name.clone());
    let intent = || job.and_then(|j| j.intent.clone());
    let Some((seen, (tokens, cost_usd), tool, calls)) = seen.map(|s| {
        let (spent, tool, calls) = (s.spent(), s.pending().map(Call::told), s.calls());
        (s, spent, tool, calls)
    }) else {
        return About {
            name: named.clone(),
            title: named,
            cwd,
            prompt: intent(),
            started_at: registered.or(job.and_then(|j| j.created)),
            updated_at: known.and_then(|e| e.state_at).or(job.and_then(|j| j.updated)).max(registered),
            ..About::default()
        };
    };
    let t = seen.reading.map(|r| r.fold).unwrap_or_default();
    let branch = t.branch_in(cwd.as_deref()).map(str::to_owned);
    let name = seen.title.or(t.custom_title).or(t.agent_name).or(named);
    About {
        title: name.clone().or(t.other_title),
        name,
        cwd,
        branch,
        model: t.model,
        prompt: t.prompt.or_else(intent),
        started_at: t.started.map(Time).or(registered),
        updated_at: t.updated.map(Time).max(known.and_then(|e| e.state_at)),
        turn_at: t.asked_at.map(Time),
        tokens,
        cost_usd,
        tool,
        calls,
        parent: t.forked_from.map(|p| format!("{NAME}:{p}")),
        ..About::default()
    }
}
