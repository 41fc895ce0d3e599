//! Ending sessions, for good.
//!
//! # Theory of operation
//!
//! Intent first, destruction second, confirmation third:
//!
//! 1. The process is opened and compared with the one that was seen to hold the
//!    session. If it is another one by now, the session has ended by itself.
//! 2. The wish is stored. If that fails, nothing is signalled.
//! 3. The tree is ended, gently first for `stop`, at once for `kill`.
//! 4. The answer comes after the death of all was seen; who would not die is
//!    named.
//!
//! Whoever crashes in between, the next verb that acts finishes the job
//! ([`finish`]): the wish names the process it was about, and what a launched
//! session left behind is found in its cgroup.
//!
//! To end what has ended is no error. Of a session that lariat launched, what it
//! left behind is ended then: its cgroup, its orphans and its mark prove whose
//! they are.
//!
//! A session that a gateway runs has no process: its open run is ended through
//! the gateway, by `stop` and `kill` alike, and the wish names the run.

use std::io;
use std::time::{Duration, Instant};

use lariat_adapters::look::{Places, Scope};
use lariat_adapters::remote::Remote;
use lariat_core::{Fact, Intent, Session, Time, Want};
use lariat_shim::record::Process;
use lariat_shim::start::StartError;
use lariat_sys::clock;
use lariat_sys::point::point;
use lariat_sys::process::{Identity, is_gone, own_program};
use lariat_sys::scan::ScanError;
use lariat_sys::tree::{Survivor, Tree};

use crate::acp;
use crate::first;
use crate::launched::{self, Launched};
use crate::list::{Known, Question, list};
use crate::records::{self, Locks, Run, Wish, Wishes};
use crate::servers::{hosts, is_kept, own_daemon};

/// How `stop` waits before it ends everything, unless told otherwise.
pub const GRACE: Duration = Duration::from_secs(10);
/// How long after the grace period a session may still be writing its end.
const AFTERMATH: Duration = Duration::from_secs(10);
/// How long one that must be told to end has for that when it is killed.
const TOLD: Duration = Duration::from_secs(4);

/// How long a start may take until it is on record what was started: an agent may have to be told of its session first.
const STARTING: Duration = first::LONGEST.saturating_add(Duration::from_secs(10));

/// How to end a session.
#[derive(Clone, Debug)]
pub struct How {
    /// At once, with no gentle word.
    pub hard: bool,
    /// How long the gentle way may take.
    pub grace: Duration,
    /// Go ahead even if the wish cannot be stored.
    pub force: bool,
}

impl How {
    fn verb(&self) -> &'static str {
        if self.hard { "kill" } else { "stop" }
    }
}

/// How it went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It had ended before.
    AlreadyGone,
    /// It had ended before, and left these behind, which ended now.
    Swept(Vec<u32>),
    /// These processes ended.
    Ended(Vec<u32>),
    /// These would not.
    Survived(Vec<Survivor>),
    /// It could not be told if it lives: nothing was signalled.
    Unknown(String),
    /// It may not be ended this way.
    Refused(String),
}

/// Why it could not even be tried.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// The wish could not be stored.
    #[error(
        "the wish to {0} it could not be made durable ({1}), so nothing was signalled; \
         --force goes ahead without it: then a crash of lariat meanwhile may leave it running, \
         and `lariat restore` may offer to bring it back"
    )]
    NotDurable(&'static str, io::Error),
    /// The process table could not be read.
    #[error("{0}; nothing was signalled")]
    Scan(#[from] ScanError),
    /// The process could not be opened.
    #[error("process {0} could not be opened ({1}); nothing was signalled")]
    Open(u32, io::Error),
    /// The gateway could not be made to end it.
    #[error("{0}")]
    Gateway(String),
}

/// Ends a session. `others` are all sessions: what belongs to them is spared. Besides, why the wish is not on
/// record, if it was carried out all the same.
pub fn stop(
    places: &Places,
    session: &Session,
    others: &[Box<Session>],
    how: &How,
) -> (Result<Outcome, StopError>, Option<io::Error>) {
    let mut unrecorded = None;
    let outcome = wish_and_end(places, session, others, how, &mut unrecorded);
    (outcome, unrecorded)
}

fn wish_and_end(
    places: &Places,
    session: &Session,
    others: &[Box<Session>],
    how: &How,
    unrecorded: &mut Option<io::Error>,
) -> Result<Outcome, StopError> {
    let locks = Locks::of(places, session.handle.as_deref(), session.id.raw());
    let act = locks.as_ref().map_err(copy).and_then(Locks::act);
    if let (Err(e), false) = (&act, how.force) {
        return Err(StopError::NotDurable(how.verb(), copy(e)));
    }
    // One that was launched as another agent, whose connection lariat owned, is two adapters' (`one_row`).
    let owned = session.handle.as_ref().and_then(|h| read_launched(places, h));
    let owned = owned.filter(|l| l.record.agent != session.agent && acp::is_owned(&l.record.agent));
    let agent = owned.is_none().then_some(session.agent);
    if let Some(handle) = session.handle.as_ref().filter(|handle| !until_started(places, handle)) {
        let why = format!("{handle} is just being started, and its outcome is not known yet; try again in a moment");
        return Ok(Outcome::Unknown(why));
    }
    // Looked at again, now that nobody starts it: it may have been between two runs.
    let fresh = list(Question { scope: Scope::All, agent, ..Question::of(places) });
    let fresh = fresh.listing.sessions.into_iter().find(|s| s.id == session.id);
    let session = fresh.as_deref().unwrap_or(session);
    let wishes = Wishes::read(places);
    wishes.put_unreadable_aside();
    let generation = wishes.by_id.get(session.id.raw()).map_or(1, |w| w.intent.generation + 1);
    let launched = session.handle.as_ref().and_then(|h| read_launched(places, h));
    let held = match (session.live, session.pid, session.start) {
        (Some(true), Some(pid), Some(start)) => match Identity::open(pid) {
            Ok((identity, _)) if identity.start == start && !is_stand_in(&identity, launched.as_ref()) => {
                Some(identity)
            }
            Ok(_) => None,
            Err(e) if is_gone(&e) => None,
            Err(e) => return Err(StopError::Open(pid, e)),
        },
        // A script that stays is only what it left.
        (Some(false), ..) if launched.as_ref().is_some_and(Launched::has_lost_its_agent) => None,
        (Some(false), ..) => left_terminal(launched.as_ref(), others)?,
        _ => None,
    };
    if session.shared && held.is_some() {
        let why = "a server that also holds other sessions holds it; end it from its own terminal";
        return Ok(Outcome::Refused(why.into()));
    }
    let remote = remote(session).filter(|_| session.live == Some(true));
    let now = Time(clock::now_ms());
    let grace = if how.hard { Duration::ZERO } else { how.grace };
    // The clock may have been set back since.
    let said = session.updated_at.unwrap_or(now);
    let wish = Wish {
        id: session.id.raw().to_owned(),
        intent: Intent {
            want: Want::Stop,
            generation,
            at: now,
            found_live: held.is_some() || remote.is_some(),
            until: Some(Time(now.max(said).0 + millis(grace + AFTERMATH))),
        },
        verb: how.verb().into(),
        process: held.clone().map(Into::into),
        run: open_run(remote, places, session),
        ahead: Some(said).filter(|said| *said > now),
        seen: None,
    };
    // Asking again to end what has ended changes nothing of why it ended.
    let known = wishes.by_id.get(session.id.raw()).filter(|w| w.intent.want == Want::Stop);
    if wish.process.is_none() && remote.is_none() && known.is_some() {
        if session.live.is_none() {
            return Ok(Outcome::Unknown(session.reason.raw().to_owned()));
        }
        let outcome = sweep(places, session.id.raw(), others, launched.as_ref())?;
        if outcome != Outcome::AlreadyGone {
            journal(places, how.verb(), session.id.raw(), &outcome);
        }
        return Ok(outcome);
    }
    if let Some(launched) = launched.as_ref().filter(|_| wish.process.is_some()) {
        let _ = launched.move_on(session.native_id.raw()); // only the handle's way to it
    }
    let stored = match (&owned, &launched) {
        (Some(owned), _) => put_for_both(places, &wishes, owned, session.native_id.raw(), &wish),
        (None, Some(launched)) => records::put_in(&launched.folder, &wish),
        (None, None) => records::put(places, &wish),
    };
    match stored {
        Err(e) if how.force => *unrecorded = Some(e),
        Err(e) => return Err(StopError::NotDurable(how.verb(), e)),
        Ok(()) => {}
    }
    point("stop.wished");
    // Until all are gone nobody starts it again: its mark would make the new one part
    // of the old tree.
    let _ending = locks.and_then(|l| l.ending());
    drop(act);
    let outcome = match (held, session.live) {
        (None, _) if remote.is_some() => end_run(remote, places, session, &wish, None, grace)?,
        (Some(root), _) => end_all(places, session, others, root, how, now)?,
        (None, Some(_)) => sweep(places, session.id.raw(), others, launched.as_ref())?,
        (None, None) => Outcome::Unknown(session.reason.raw().to_owned()),
    };
    point("stop.ended");
    if let (Outcome::Ended(_), None, Some(process)) = (&outcome, &launched, &wish.process) {
        let _ = records::put_end(places, session.id.raw(), process); // else it explains what is recorded a little later, too
    }
    journal(places, how.verb(), session.id.raw(), &outcome);
    Ok(outcome)
}

/// Waits until whoever launches it has put on record what was started: that is what is to be ended. Whether that was soon.
fn until_started(places: &Places, handle: &str) -> bool {
    let began = Instant::now();
    while read_launched(places, handle).is_some_and(|launched| launched.starting == Ok(true)) {
        point("stop.waits");
        if began.elapsed() > STARTING {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// The process of a session that was taken away from it: it lives and has no other, and is what else the handle means.
fn left_terminal(launched: Option<&Launched>, others: &[Box<Session>]) -> Result<Option<Identity>, StopError> {
    let shim = launched.filter(|l| l.exit.is_none()).and_then(|l| l.shim.as_ref());
    let agent = shim.map(|s| Identity::from(s.agent.clone()));
    let look = |agent: Identity| agent.here().map_err(|e| StopError::Open(agent.pid, e));
    let here = agent.map(look).transpose()?.flatten().map(|(identity, _)| identity);
    Ok(here.filter(|i| !others.iter().any(|o| o.pid == Some(i.pid))))
}

/// Whether a session has ended and left a terminal that can be ended: a person has moved it away from there. What cannot be
/// told is yes: whoever ends it says so.
pub fn has_left_terminal(places: &Places, session: &Session, others: &[Box<Session>]) -> bool {
    let launched = session.handle.as_ref().filter(|_| was_left(session));
    let launched = launched.and_then(|h| read_launched(places, h));
    !matches!(left_terminal(launched.as_ref(), others), Ok(None))
}

/// Stores a wish for a session that is shown as its agent's own, and for the same session as it was launched: once it
/// has ended, it is shown as that again, and must not be brought back.
fn put_for_both(places: &Places, wishes: &Wishes, owned: &Launched, native: &str, wish: &Wish) -> io::Result<()> {
    let mut launched = Wish { id: format!("{}:{native}", owned.record.agent), ..wish.clone() };
    launched.intent.generation = wishes.by_id.get(&launched.id).map_or(1, |w| w.intent.generation + 1);
    records::put_in(&owned.folder, &launched)?;
    records::put(places, wish)
}

fn remote(session: &Session) -> Option<&'static dyn Remote> {
    lariat_adapters::named(session.agent)?.remote()
}

/// The run that is to be ended, so that no later one is taken for it.
fn open_run(remote: Option<&dyn Remote>, places: &Places, session: &Session) -> Option<Run> {
    // A gateway that fails now will be told of when it is asked to end the run.
    let id = remote?.run(places, session.native_id.raw()).ok().flatten();
    Some(Run { id, mark: session.start?, over: None })
}

/// Ends the open run of a session through its gateway, as it was wished. Nothing is killed there,
/// so the gateway gets its time even where nobody asked for a grace period.
fn end_run(
    remote: Option<&dyn Remote>,
    places: &Places,
    session: &Session,
    wish: &Wish,
    run: Option<&str>,
    grace: Duration,
) -> Result<Outcome, StopError> {
    let Some(remote) = remote else { return Ok(Outcome::AlreadyGone) };
    match remote.end(places, session.native_id.raw(), run, grace.max(AFTERMATH)) {
        Ok(Some(mark)) => {
            let _ = records::put_over(places, wish, mark); // else it explains a later run that is lost with its gateway, too
            Ok(Outcome::Ended(Vec::new()))
        }
        Ok(None) => Ok(Outcome::AlreadyGone),
        Err(why) => Err(StopError::Gateway(why)),
    }
}

fn millis(d: Duration) -> i64 {
    i64::try_from(d.as_millis()).unwrap_or(i64::MAX)
}

fn read_launched(places: &Places, handle: &str) -> Option<Launched> {
    Launched::read(&places.state.join("sessions").join(handle)).ok().flatten()
}

/// Whether a process has the number and the start time of a launched agent and is
/// another one: start times are told in hundredths of a second.
fn is_stand_in(now: &Identity, launched: Option<&Launched>) -> bool {
    let agent = launched.and_then(|l| l.shim.as_ref()).map(|s| Identity::from(s.agent.clone()));
    agent.is_some_and(|agent| agent.pid == now.pid && agent.start == now.start && !agent.is(now))
}

/// A tree, with whom it is not about: other sessions and what they started, and those
/// that hold them.
fn tree(
    places: &Places,
    id: &str,
    handle: Option<&str>,
    others: &[Box<Session>],
    root: Option<Identity>,
    marks: Vec<(String, String)>,
) -> Result<Tree, ScanError> {
    let (mut spared, mut aside) = launched::All::read(places).processes_but(handle);
    aside.extend(own_daemon(places));
    spared.extend(others.iter().filter(|o| o.id.raw() != id).filter_map(|o| o.pid));
    let hosts = hosts(places, id, &spared)?;
    spared.extend(hosts);
    Ok(Tree { root, marks, spared, aside })
}

fn copy(e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), e.to_string())
}

/// Ends every process that has held the session since before it was asked: not every agent keeps a second one off, and
/// copies of one may outlive it. One at a time shows.
fn end_all(
    places: &Places,
    session: &Session,
    others: &[Box<Session>],
    root: Identity,
    how: &How,
    asked: Time,
) -> Result<Outcome, StopError> {
    let mut outcome = end(places, session, others, root, how)?;
    while let Outcome::Ended(gone) = &mut outcome {
        let question = Question { scope: Scope::Live, agent: Some(session.agent), ..Question::of(places) };
        let again = list(question).listing.sessions.into_iter().find(|s| s.id == session.id);
        let Some(again) = again.filter(|s| s.live == Some(true) && !s.shared) else { break };
        let (Some(pid), Some(start)) = (again.pid, again.start) else { break };
        if gone.contains(&pid) || clock::ticks_to_ms(start) > asked.0 {
            break;
        }
        let Some((root, _)) = Identity::open(pid).ok().filter(|(now, _)| now.start == start) else { break };
        match end(places, &again, others, root, how)? {
            Outcome::Ended(more) => gone.extend(more),
            survived => outcome = survived,
        }
    }
    Ok(outcome)
}

fn end(
    places: &Places,
    session: &Session,
    others: &[Box<Session>],
    root: Identity,
    how: &How,
) -> Result<Outcome, StopError> {
    let adapter = lariat_adapters::named(session.agent);
    let mut marks = adapter.map(|a| a.marks(session.native_id.raw())).unwrap_or_default();
    marks.extend(session.handle.iter().map(|h| (lariat_shim::MARK.to_owned(), h.clone())));
    let (gentle, grace) = match adapter {
        // Killed at once, it would be started again by whoever keeps it.
        Some(adapter) if how.hard && is_kept(adapter, &root)? => (adapter.gentle(), TOLD),
        Some(adapter) if !how.hard => (adapter.gentle(), how.grace),
        _ => (Default::default(), how.grace),
    };
    let house = session.handle.as_ref().and_then(|h| read_launched(places, h)).map(|l| l.house()).unwrap_or_default();
    let tree = tree(places, session.id.raw(), session.handle.as_deref(), others, Some(root.clone()), marks)?;
    let mut ended = tree.end_in(&house, gentle, grace)?;
    if ended.survivors.is_empty() && matches!(root.is_alive(), Ok(true)) {
        ended.survivors.push(Survivor { pid: root.pid, comm: session.agent.to_owned(), refused: false });
    }
    // Somebody else may have ended it at the same time: it was this one that was seen gone.
    let gone = if ended.gone.is_empty() { vec![root.pid] } else { ended.gone };
    Ok(if ended.survivors.is_empty() { Outcome::Ended(gone) } else { Outcome::Survived(ended.survivors) })
}

/// Ends what a launched session left behind that is itself gone.
fn sweep(
    places: &Places,
    id: &str,
    others: &[Box<Session>],
    launched: Option<&Launched>,
) -> Result<Outcome, StopError> {
    // Only if that very agent is gone: one that lives has moved on to another session.
    let Some(launched) = launched.filter(|l| l.shim.is_some() && is_over(l)) else { return Ok(Outcome::AlreadyGone) };
    let handle = &launched.record.launch.handle;
    let marks = vec![(lariat_shim::MARK.to_owned(), handle.clone())];
    let tree = tree(places, id, Some(handle), others, None, marks)?;
    let ended = tree.end_in(&launched.house(), &[], Duration::ZERO)?;
    Ok(match (ended.survivors.is_empty(), ended.gone.is_empty()) {
        (false, _) => Outcome::Survived(ended.survivors),
        (true, false) => Outcome::Swept(ended.gone),
        (true, true) => Outcome::AlreadyGone,
    })
}

fn journal(places: &Places, what: &str, id: &str, outcome: &Outcome) {
    let how = match outcome {
        Outcome::AlreadyGone => "it had ended before".to_owned(),
        Outcome::Ended(pids) if pids.is_empty() => "its gateway says that no run is open".to_owned(),
        Outcome::Swept(pids) => format!("it had ended before; ended what it left: {pids:?}, seen gone"),
        Outcome::Ended(pids) => format!("ended {pids:?}, seen gone"),
        Outcome::Survived(survivors) => format!("still there: {survivors:?}"),
        Outcome::Unknown(why) => format!("nothing signalled: {why}"),
        Outcome::Refused(why) => format!("refused: {why}"),
    };
    records::tell(places, what, id, how);
}

/// Finishes what a crash cut short: every session that was asked to end and
/// whose very process still runs, or that left others in its cgroup. And where a
/// shim was killed under a live agent, another one takes its place. For verbs that
/// act.
pub fn finish(places: &Places, sessions: &[Box<Session>]) -> Vec<(String, Result<Outcome, StopError>)> {
    finish_with(places, sessions)
}

/// The same for a verb that does not look at all sessions itself, if something may be left.
pub(crate) fn finish_left(question: &Question) {
    let live = Question { scope: Scope::Live, ..question.clone() };
    finish_with(&question.places, &list(live).listing.sessions);
}

/// Whether a process, a run or a cgroup that was asked to end may still be there.
pub(crate) fn may_be_left(known: &Known) -> bool {
    let alive = |p: &Process| !matches!(Identity::from(p.clone()).is_alive(), Ok(false));
    let open = |run: &Run| run.over.is_none();
    let left = |w: &Wish| w.run.as_ref().is_some_and(open) || w.process.as_ref().is_some_and(alive);
    let stop = |w: &&Wish| w.intent.want == Want::Stop;
    let stopped = |id: &String| known.wishes.by_id.get(id).filter(stop).is_some();
    known.wishes.by_id.values().filter(stop).any(left)
        || known.launched.by_id.iter().any(|(id, launched)| stopped(id) && launched.left_some())
}

/// Where nothing is left: puts a shim in every place of one that was killed.
pub(crate) fn take_over_all(places: &Places, known: &Known) {
    let wanted = |id: &String| known.wishes.by_id.get(id).is_none_or(|w| w.intent.want != Want::Stop);
    known.launched.by_id.iter().filter(|(id, _)| wanted(id)).for_each(|(id, l)| take_over(places, id, l));
}

fn finish_with(places: &Places, sessions: &[Box<Session>]) -> Vec<(String, Result<Outcome, StopError>)> {
    let wishes = Wishes::read(places);
    let mut finished: Vec<(String, Result<Outcome, StopError>)> = Vec::new();
    for session in sessions.iter().filter(|s| !s.shared) {
        let wish = wishes.by_id.get(session.id.raw());
        let Some(wish) = wish.filter(|w| is_unfinished(w, session) || may_be_unfinished(w, session)) else { continue };
        if let (remote @ Some(_), Some(run)) = (remote(session), &wish.run) {
            // Without its id, another may be open by now.
            let Some(id) = &run.id else { continue };
            let outcome = end_run(remote, places, session, wish, Some(id), GRACE);
            if !matches!(outcome, Ok(Outcome::AlreadyGone)) {
                finished.push((wish.id.clone(), outcome)); // else another run, in another life
            }
            continue;
        }
        let Some(root) = wish.process.clone().map(Identity::from) else { continue };
        let locks = Locks::of(places, session.handle.as_deref(), session.id.raw());
        let _ending = locks.and_then(|l| l.ending());
        let anothers = |root: &Identity| was_left(session) && sessions.iter().any(|o| o.pid == Some(root.pid));
        if let Some((root, _)) = root.here().ok().flatten().filter(|(root, _)| !anothers(root)) {
            let how = How { hard: wish.verb == "kill", grace: GRACE, force: false };
            finished.push((wish.id.clone(), end(places, session, sessions, root, &how)));
        }
    }
    for (id, launched) in launched::All::read(places).by_id {
        let wish = wishes.by_id.get(&id).filter(|w| w.intent.want == Want::Stop);
        if wish.is_none() {
            take_over(places, &id, &launched);
        } else if wish.is_some_and(|w| w.intent.found_live) && launched.left_some() && is_over(&launched) {
            let handle = launched.record.launch.handle.clone();
            let _act = Locks::of(places, Some(&handle), &id).and_then(|l| l.act());
            // Somebody may have started it again meanwhile.
            let swept = sweep(places, &id, sessions, read_launched(places, &handle).as_ref());
            // What is left may be what others need.
            if !matches!(swept, Ok(Outcome::AlreadyGone)) {
                finished.push((id, swept));
            }
        }
    }
    for (id, outcome) in &finished {
        if let (Ok(outcome), Some(wish)) = (outcome, wishes.by_id.get(id)) {
            journal(places, &format!("finish {}", wish.verb), id, outcome);
        }
    }
    finished
}

fn is_over(launched: &Launched) -> bool {
    matches!(launched.process(), Ok(None)) || launched.has_lost_its_agent()
}

/// Puts a shim in the place of one that was killed, so that the agent's terminal is
/// read again and its end is known. Nothing is lost if that fails: the next one tries.
fn take_over(places: &Places, id: &str, launched: &Launched) {
    if !launched.is_orphaned() {
        return;
    }
    let Ok(program) = own_program() else { return };
    let how = match lariat_shim::start::take_over(&program, &launched.folder) {
        Ok(shim) => format!("its shim was killed; process {} took over", shim.shim.pid),
        Err(StartError::Held(_)) => return, // another one was faster
        Err(e) => format!("its shim was killed, and no other could take over: {e}"),
    };
    records::tell(places, "take over", id, how);
}

/// Whether a session still runs in the very process that was asked to end, or its
/// gateway still has that very run open; or that process is the terminal that it left.
pub fn is_unfinished(wish: &Wish, session: &Session) -> bool {
    let same = |w: &Process| Some(w.pid) == session.pid && Some(w.start) == session.start;
    let is_it = |run: &Run| run.over.is_none() && Some(run.mark) == session.start;
    let same_run = session.pid.is_none() && wish.run.as_ref().is_some_and(is_it);
    let same = wish.process.as_ref().is_some_and(same) || same_run;
    let lives = |p: &Process| matches!(Identity::from(p.clone()).is_alive(), Ok(true));
    let terminal = || was_left(session) && wish.process.as_ref().is_some_and(lives);
    wish.intent.want == Want::Stop && (session.live == Some(true) && same || terminal())
}

/// Whether a session has ended because a person took it away from its process, which may be there still.
fn was_left(session: &Session) -> bool {
    session.live == Some(false) && session.because.iter().any(|(_, o)| matches!(o.fact, Fact::Left(_)))
}

/// Whether only the gateway can tell if the run it has open is the one that was
/// asked to end.
fn may_be_unfinished(wish: &Wish, session: &Session) -> bool {
    let is_open = wish.run.as_ref().is_some_and(|run| run.over.is_none() && run.id.is_some());
    wish.intent.want == Want::Stop && session.live == Some(true) && session.pid.is_none() && is_open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_that_cannot_be_looked_at_is_not_taken_for_gone() {
        let record = serde_json::json!({"version": 1, "handle": "h", "argv": ["claude"], "cwd": "/", "headless": false,
            "socket": "/s", "agent": "claude", "native_id": "n", "group": null, "created_at": "2026-11-15T08:00:00Z"});
        let boot = clock::boot_id().expect("a boot");
        let process = |pid: u32| serde_json::json!({"boot": boot, "pid": pid, "start": 1, "pidfd_inode": null});
        let shim = |pid: u32| {
            let shim = serde_json::json!({"version": 1, "protocol": 1, "program": "lariat", "shim": process(pid),
                "agent": process(pid), "keeper": null, "socket": "/s", "cgroup": null,
                "started_at": "2026-11-15T08:00:00Z", "taken_over_at": null});
            serde_json::from_value(shim).expect("a shim")
        };
        let launched = |pid: u32| Launched {
            folder: "/nowhere".into(),
            record: serde_json::from_value(record.clone()).expect("a record"),
            shim: Some(shim(pid)),
            starting: Ok(false),
            exit: None,
            described: None,
            unread: Vec::new(),
        };
        // This very process started at another time, so that one is gone; no process has the other number, and to ask
        // for it fails.
        assert!(matches!(left_terminal(Some(&launched(std::process::id())), &[]), Ok(None)));
        assert!(matches!(left_terminal(Some(&launched(u32::MAX)), &[]), Err(StopError::Open(u32::MAX, _))));
    }
}
