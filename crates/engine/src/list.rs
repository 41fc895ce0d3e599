//! What is here now.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

use lariat_adapters::look::{Look, Places, Report, Scope, Sighting};
use lariat_adapters::settings::Settings;
use lariat_adapters::store::Saving;
use lariat_adapters::{Adapter, described};
use lariat_core::session::Hidden;
use lariat_core::{
    Fact, Line, Listing, Observation, Row, Session, Status, Time, Untrusted, Want, Warning, Witness, judge,
};
use lariat_sys::clock;
use lariat_sys::process::Identity;
use lariat_sys::scan::Table;

use crate::acp::is_owned;
use crate::ask;
use crate::crew::{Crew, Job};
use crate::elsewhere;
use crate::launched::{self, Record};
use crate::one_row;
use crate::records::{Wish, Wishes};
use crate::stop::is_unfinished;

/// How long an adapter may take, unless said otherwise.
pub const DEADLINE: Duration = Duration::from_secs(3);

/// An adapter that takes longer is helped: those that stand in line get a thread.
const QUICK: Duration = Duration::from_millis(2);

/// A store that moves on gets this many deadlines.
const PATIENCE: u32 = 20;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// Where things are.
    pub places: Places,
    /// Ended sessions too, or only those that live or may live.
    pub scope: Scope,
    /// How long an adapter may take.
    pub deadline: Duration,
    /// Only this agent's, if one is named: the others are not even asked.
    pub agent: Option<&'static str>,
}

impl Question {
    /// About everything there.
    pub fn of(places: &Places) -> Question {
        Question { places: places.clone(), scope: Scope::All, deadline: DEADLINE, agent: None }
    }

    /// About everything, where the environment says things are.
    pub fn all() -> Question {
        Question { places: Places::from_env(), scope: Scope::All, deadline: DEADLINE, agent: None }
    }
}

/// An answer, with what the command line needs besides.
#[derive(Debug)]
pub struct Answer {
    /// The listing.
    pub listing: Listing,
    /// More sessions of it, in the same order: the ended ones that are text already.
    pub lines: Vec<Line>,
    /// Paths whose change may change the answer.
    pub watch: Vec<PathBuf>,
    /// The answer may change without any hint.
    pub unhinted: bool,
    /// An adapter was late or failed, or a gateway did not answer.
    pub partial: bool,
    /// Which ones, and why; `process` for the process table.
    pub failed: Vec<(&'static str, String)>,
    /// Whose sessions may be more than those that are told of; `process` means anybody's.
    pub untold: Vec<&'static str>,
    /// What was read is being written down.
    pub saving: Vec<Saving>,
}

impl Answer {
    /// One that tells of nothing.
    pub fn empty(at: Time) -> Answer {
        let listing = Listing {
            schema: 1,
            at,
            sessions: Vec::new(),
            unbound: Vec::new(),
            warnings: Vec::new(),
            hidden: Hidden::default(),
        };
        Answer {
            listing,
            lines: Vec::new(),
            watch: Vec::new(),
            unhinted: false,
            partial: false,
            failed: Vec::new(),
            untold: Vec::new(),
            saving: Vec::new(),
        }
    }
}

/// What is on record of what people asked and of what lariat launched.
#[derive(Debug)]
pub(crate) struct Known {
    pub wishes: Wishes,
    pub launched: launched::All,
}

impl Known {
    /// Reads it now.
    pub fn read(places: &Places) -> Known {
        Known { wishes: Wishes::read(places), launched: launched::All::read(places) }
    }
}

/// What every adapter's thread looks at.
struct Shared {
    known: Arc<Known>,
    question: Question,
    settings: Settings,
    table: Arc<Result<Table, String>>,
    now: Time,
    /// Until when this look waits for exits that are being written down.
    settling: OnceLock<Instant>,
    write: Option<Write>,
}

/// Makes text of a session, if it can.
pub type Write = fn(&Session) -> Option<Box<[u8]>>;

/// Agents whose store was not read, or not all of it, and why.
type Unread = BTreeMap<&'static str, String>;

type Judge<'a> = dyn Fn(&'static str, Sighting) -> Row + Sync + 'a;

impl Shared {
    /// Those that are asked.
    fn adapters(&self) -> Vec<&'static dyn Adapter> {
        self.question.agent.map_or_else(lariat_adapters::all, |only| lariat_adapters::named(only).into_iter().collect())
    }

    /// Stores of launched sessions that are not where we look, with what is looked at there.
    fn elsewhere(&self) -> impl Iterator<Item = (&'static dyn Adapter, Arc<Shared>)> {
        let asked = |adapter: &dyn Adapter| self.question.agent.is_none_or(|only| only == adapter.name());
        let others = elsewhere::others(&self.question.places, &self.known.launched).into_iter();
        others.filter(move |(adapter, _)| asked(*adapter)).map(|(adapter, places)| {
            let there = Shared {
                known: Arc::clone(&self.known),
                question: Question { places, ..self.question.clone() },
                settings: self.settings.clone(),
                table: Arc::clone(&self.table),
                now: self.now,
                settling: OnceLock::new(),
                write: self.write,
            };
            (adapter, Arc::new(there))
        })
    }

    fn session(&self, agent: &'static str, sighting: Sighting) -> Box<Session> {
        let id = [agent, ":", &sighting.native_id].concat();
        let wish = self.known.wishes.by_id.get(&id);
        let mut sighting = sighting;
        let launched = self.known.launched.of(&id, &sighting);
        let launched = launched.filter(|l| l.testify(&self.question.places, self.now, &self.settling, &mut sighting));
        sighting.observations.extend(wish.and_then(|wish| seen_off(wish, &sighting)));
        let followed = launched.is_some_and(|l| l.was_followed(&sighting.about));
        let mut session = session(agent, id, sighting, wish, self.now);
        if let Some(Record { launch, ask, group, kept, .. }) = launched.map(|l| &l.record) {
            session.handle = Some(launch.handle.clone());
            session.kept = *kept;
            session.name = ask.name.clone().map(Into::into).or(session.name.take());
            session.group = group.clone();
        }
        if let Some(label) = self.known.wishes.labels.get(session.id.raw()) {
            session.name = label.name.clone().map(Into::into).or(session.name.take());
            session.kept = label.kept.unwrap_or(session.kept);
        }
        // Restored is what was launched and cut off, in the life that was launched.
        // An exit that was written down while we looked is known, though not among what was read before.
        let settled = |l: &launched::Launched| l.unread.is_empty() && l.exit.is_none() && session.exit.is_some();
        let cut_off = |l: &launched::Launched| l.could_be_cut_off() || settled(l);
        // One that was asked one thing and gave the answer has done all it was to do, though a script stays.
        let answered = |l: &launched::Launched| {
            l.record.launch.headless && session.status == Status::Done && l.has_lost_its_agent()
        };
        let restored = |l: &launched::Launched| cut_off(l) && !answered(l) && !l.stores_nothing();
        session.restorable &= !followed && launched.is_some_and(restored);
        session
    }

    /// What is told of a session. One that has ended, and of which nobody asked
    /// anything, is only a line of text where text was asked for: nothing that
    /// comes later can change it.
    fn row(&self, agent: &'static str, sighting: Sighting) -> Row {
        let session = self.session(agent, sighting);
        let Some(write) = self.write else { return Row::Session(session) };
        let id = session.id.raw();
        let asked = self.known.wishes.by_id.contains_key(id)
            || self.known.wishes.labels.contains_key(id)
            || self.known.launched.by_id.contains_key(id)
            || self.known.launched.owned.contains(session.native_id.raw());
        let plain = session.live == Some(false) && session.status.ended() && session.pid.is_none();
        let ours = session.handle.is_some() || session.group.is_some() || session.host.is_some() || session.restorable;
        if asked || !plain || ours || is_owned(agent) {
            return Row::Session(session);
        }
        let line = write(&session).and_then(|text| Line::of(&session, text));
        line.map_or(Row::Session(session), Row::Line)
    }

    /// Adds launched sessions of which no store tells: their agent has recorded nothing yet, or could not be read.
    fn add_unrecorded(&self, answer: &mut Answer, unread: &Unread) {
        if self.known.launched.by_id.is_empty() {
            return;
        }
        let Answer { listing, lines, .. } = answer;
        let known = listing.sessions.iter().map(|s| s.id.raw()).chain(lines.iter().map(Line::id));
        let known: HashSet<&str> = known.collect();
        let agents = self.adapters();
        let left = self.known.launched.by_id.iter().filter(|(id, _)| !known.contains(id.as_str()));
        // One that has moved on to another session has its handle there.
        let handles: HashSet<&str> = listing.sessions.iter().filter_map(|s| s.handle.as_deref()).collect();
        let left = left.filter(|(_, l)| !handles.contains(l.record.launch.handle.as_str()));
        let all = self.question.scope == Scope::All;
        let mut hidden = 0;
        let living = left.filter(|(_, l)| {
            let shown = (all && l.shim.is_some()) || matches!(l.process(), Ok(Some(_)) | Err(_));
            // Of one that only its shim tells of, nobody else has counted it.
            hidden += usize::from(!shown && l.shim.is_some() && described::is_one(&l.record.agent));
            shown
        });
        let found = living.filter_map(|(_, l)| {
            let agent = lariat_adapters::named(&l.record.agent)?;
            agents.iter().find(|a| lariat_adapters::means(a.name(), agent.name()))?;
            let unread = unread.iter().find(|(of, _)| lariat_adapters::means(of, agent.name()));
            Some(self.session(agent.name(), l.sighting(unread.map(|(_, why)| why.as_str()))))
        });
        let mut found: Vec<_> = found.collect();
        // One process has one session: what the shim holds is not without one.
        listing.unbound.retain(|u| !found.iter().any(|s| s.pid == Some(u.pid)));
        found.sort_by(|a, b| a.id.cmp(&b.id));
        listing.sessions.append(&mut found);
        listing.hidden.ended += hidden;
    }

    fn look<'a>(&'a self, steps: &'a AtomicUsize, judge: &'a Judge<'a>) -> Look<'a> {
        Look {
            places: &self.question.places,
            settings: &self.settings,
            deadline: self.question.deadline,
            table: (*self.table).as_ref().map_err(String::as_str),
            now: self.now,
            scope: self.question.scope,
            steps,
            judge,
        }
    }
}

/// Of a process that its own namespace alone could show: that it was ended on a wish, and is gone. Who asked had it at
/// hand.
fn seen_off(wish: &Wish, sighting: &Sighting) -> Option<Observation> {
    let ended = wish.process.as_ref().filter(|_| wish.intent.want == Want::Stop)?;
    let is_it = !sighting.named.is_empty() && sighting.named.iter().all(|(_, start)| *start == ended.start);
    let gone = || matches!(Identity::from(ended.clone()).is_alive(), Ok(false));
    let told = Fact::Gone(format!("process {}, which was registered, was ended through lariat", ended.pid).into());
    (is_it && gone()).then(|| Observation::new(Witness::Registry, told).at(Some(wish.intent.at)))
}

/// Answers what is here now.
pub fn list(question: Question) -> Answer {
    answer(question, None).0
}

/// The same, with what it read of our own records.
pub(crate) fn list_and_known(question: Question) -> (Answer, Arc<Known>) {
    answer(question, None)
}

/// Answers what is here now, the ended sessions as text. It is made at once, by the
/// thread that has just looked at the session: coming back to ten thousand of
/// them later means to wait for memory, and to hold all of it.
pub fn list_as_text(question: Question, write: Write) -> Answer {
    answer(question, Some(write)).0
}

fn answer(question: Question, write: Option<Write>) -> (Answer, Arc<Known>) {
    let now = Time(clock::now_ms());
    let table = Arc::new(Table::scan().map_err(|e| e.to_string()));
    let deadline = question.deadline;
    let mut known = Known::read(&question.places);
    let settling = OnceLock::new();
    known.launched.settle(&settling);
    let settings = Settings::read(&question.places);
    let mut question = question;
    if known.launched.any_cut_off(&known.wishes) {
        question.scope = Scope::All; // what was cut off is shown, and is among the ended
    }
    let known = Arc::new(known);
    let shared = Arc::new(Shared { known: Arc::clone(&known), question, settings, table, now, settling, write });
    let mut answer = Answer::empty(now);
    let ours =
        shared.known.wishes.warnings.iter().chain(&shared.known.launched.warnings).chain(&shared.settings.warnings);
    answer.listing.warnings.extend(ours.cloned());
    if let Err(error) = &*shared.table {
        answer.partial = true;
        answer.failed.push(("process", error.clone()));
        answer.untold.push("process");
        answer.listing.warnings.push(Warning {
            adapter: "process",
            path: Some("/proc".into()),
            error: error.clone().into(),
            last_ok: None,
        });
    }
    let began = Instant::now();
    let (looking, jobs): (Vec<_>, Vec<_>) =
        shared.adapters().into_iter().map(|adapter| Looking::new(adapter, &shared)).unzip();
    let besides = shared.elsewhere().map(|(adapter, there)| {
        let (looking, job) = Looking::new(adapter, &there);
        ((looking, there), job)
    });
    let (besides, more): (Vec<_>, Vec<_>) = besides.unzip();
    let crew = Crew::begin(jobs.into_iter().chain(more));
    let mut unread = Unread::new();
    let mut report = |looking: &Looking, shared: &Shared, answer: &mut Answer| {
        let name = looking.adapter.name();
        let report = looking.wait(&crew, began, deadline).unwrap_or_else(|why| {
            answer.partial = true;
            answer.failed.push((name, why.clone()));
            unread.insert(name, format!("its store {why}"));
            without_store(looking.adapter, shared, &why)
        });
        if report.partial {
            unread.entry(name).or_insert_with(|| "not all of its store could be read".to_owned());
        }
        report
    };
    for looking in looking {
        let report = report(&looking, &shared, &mut answer);
        take(report, &mut answer);
    }
    for (looking, there) in besides {
        let mut report = elsewhere::ours_of(report(&looking, &there, &mut answer));
        report.sessions.retain(|s| !answer.listing.sessions.iter().any(|known| known.id == s.id));
        take(report, &mut answer);
    }
    let running = shared.known.launched.by_id.values().filter(|l| l.exit.is_none());
    answer.watch.extend(running.map(|l| l.folder.join(ask::FOLDER)));
    // Time alone tells when that is over.
    let given = |s: &Session| s.because.iter().any(|(_, o)| matches!(o.fact, Fact::Given));
    answer.unhinted |= answer.listing.sessions.iter().any(|s| given(s));
    answer.unhinted |= shared.known.launched.by_id.values().any(|l| l.may_not_have_begun(now));
    shared.add_unrecorded(&mut answer, &unread);
    answer.untold.extend(unread.into_keys());
    one_row::of_both(&mut answer, &known.launched, (*shared.table).as_ref().ok());
    // One process, one row: whom its shim has tied to a session is not without one.
    let Listing { sessions, unbound, .. } = &mut answer.listing;
    unbound.retain(|u| !sessions.iter().any(|s| s.pid == Some(u.pid)));
    // Adapters tell in the order of ids, so what is equal here has a fixed order too.
    answer.listing.sessions.sort_by_cached_key(|s| (s.status, Reverse(s.updated_at)));
    answer.lines.sort_by_cached_key(|l| (l.status, Reverse(l.updated_at)));
    answer.listing.warnings.sort_unstable();
    answer.listing.warnings.dedup();
    (answer, known)
}

/// An adapter at work in a thread of its own.
struct Looking {
    adapter: &'static dyn Adapter,
    told: mpsc::Receiver<Report>,
    steps: Arc<AtomicUsize>,
}

impl Looking {
    /// An adapter, and its job.
    fn new(adapter: &'static dyn Adapter, shared: &Arc<Shared>) -> (Looking, Job) {
        let (tell, told) = mpsc::channel();
        let steps = Arc::new(AtomicUsize::new(0));
        let (counting, shared) = (Arc::clone(&steps), Arc::clone(shared));
        let job = move || {
            let judge = |agent, sighting| shared.row(agent, sighting);
            let report = adapter.observe(&shared.look(&counting, &judge));
            let _ = tell.send(report); // nobody listens if it is late
        };
        // A job that panics or cannot be begun hangs up: the adapter has failed.
        (Looking { adapter, told, steps }, Box::new(job))
    }

    /// Waits for its report. One that stands still for as long as the deadline
    /// is given up on; one that moves on gets more time, but not for ever.
    fn wait(&self, crew: &Crew, began: Instant, deadline: Duration) -> Result<Report, String> {
        let (mut steps, mut until) = (0, began + deadline);
        // While this one is at work, others may stand in line.
        let mut in_line = true;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.told.recv_timeout(if in_line { left.min(QUICK) } else { left }) {
                Ok(report) => return Ok(report),
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err("failed while reading its store".into()),
                Err(mpsc::RecvTimeoutError::Timeout) if in_line && left > QUICK => {
                    in_line = crew.help();
                    continue;
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            let now = self.steps.load(Ordering::Relaxed);
            if now == steps || began.elapsed() > deadline * PATIENCE {
                return Err(format!("did not answer within {:.1} s", began.elapsed().as_secs_f32()));
            }
            (steps, until) = (now, Instant::now() + deadline);
        }
    }
}

fn without_store(adapter: &'static dyn Adapter, shared: &Shared, why: &str) -> Report {
    let steps = AtomicUsize::new(0);
    let judge = |agent, sighting| shared.row(agent, sighting);
    let look = shared.look(&steps, &judge);
    let mut report = adapter.observe_processes(&look, &format!("its store {why}"));
    report.warnings.push(Warning {
        adapter: adapter.name(),
        path: Some(look.places.shown(&adapter.store(look.places))),
        error: Untrusted::new(why),
        last_ok: None,
    });
    report
}

fn take(report: Report, answer: &mut Answer) {
    let listing = &mut answer.listing;
    listing.sessions.extend(report.sessions);
    match answer.lines.is_empty() {
        true => answer.lines = report.lines,
        false => answer.lines.extend(report.lines),
    }
    listing.unbound.extend(report.unbound);
    listing.warnings.extend(report.warnings);
    listing.hidden.ended += report.hidden;
    answer.watch.extend(report.watch);
    answer.unhinted |= report.unhinted;
    answer.partial |= report.partial;
    answer.saving.extend(report.saving);
}

pub(crate) fn session(agent: &'static str, id: String, s: Sighting, wish: Option<&Wish>, now: Time) -> Box<Session> {
    let intent = wish.map(|w| w.as_of(&s.about));
    let verdict = judge(&s.observations, intent.as_ref());
    let mut because: Vec<_> = verdict.roles.into_iter().zip(s.observations).collect();
    because.sort_by_key(|(role, o)| (*role, o.witness));
    let exit = because.iter().find_map(|(_, o)| match o.fact {
        Fact::Exit(exit) => Some(exit),
        _ => None,
    });
    let a = s.about;
    let text = |t: Option<String>| t.map(Untrusted::new);
    let busy = verdict.live != Some(false);
    let mut session = Box::new(Session {
        id: id.into(),
        agent,
        native_id: Untrusted::new(s.native_id),
        handle: None,
        name: text(a.name),
        host: a.host,
        status: verdict.status,
        reason: verdict.reason,
        live: verdict.live,
        pid: s.process.as_ref().map(|p| p.pid),
        cwd: text(a.cwd),
        branch: text(a.branch),
        model: text(a.model),
        title: text(a.title),
        prompt: text(a.prompt),
        started_at: a.started_at,
        updated_at: a.updated_at,
        ended_at: a.ended_at.filter(|_| verdict.live == Some(false)),
        exit,
        tokens: a.tokens,
        cost_usd: a.cost_usd,
        group: None,
        kept: false,
        restorable: verdict.restorable,
        tool: text(a.tool).filter(|_| busy),
        parent: text(a.parent),
        because,
        transcript: s.transcript,
        start: s.process.map(|p| p.start).or(a.run),
        shared: s.shared,
        elsewhere: false,
        also: None,
        teller: None,
    });
    if let Some(wish) = wish.filter(|w| is_unfinished(w, &session)) {
        let asked = wish.intent.at.age(now);
        let reason = format!("{} asked {asked} ago and not finished; {}", wish.verb, session.reason.raw());
        session.reason = reason.into();
    }
    session
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_the_id_that_stands_in_its_text_or_is_none() {
        let written = |id: &str, text: &str| {
            let sighting = Sighting { native_id: id.into(), ..Sighting::default() };
            let session = session("claude", format!("claude:{id}"), sighting, None, Time(0));
            Line::of(&session, text.as_bytes().into())
        };
        let line = written("a-1", r#",{"id":"claude:a-1","agent":"claude"}"#).unwrap();
        assert_eq!((line.id(), line.native_id()), ("claude:a-1", "a-1"));
        assert_eq!(written("a\n1", r#",{"id":"claude:a\n1"}"#), None, "escaped, it is another");
        assert_eq!(written("a-1", "{}"), None);
    }
}
