//! Going on with a session that has ended, under its own id; or with a copy of it.
//!
//! # Theory of operation
//!
//! 1. Under the claims' lock the session is looked at once more. Only what is
//!    proven gone may go on: a second writer would spoil the conversation, and not
//!    every agent guards against one. What cannot be told is refused too.
//! 2. There must be a conversation on record. If there is none, because the agent
//!    died before it wrote one, what it was launched with is asked again in a new
//!    session, and that is said.
//! 3. The wish to run gets a generation above every wish before it, so that an
//!    older stop does not count against it, and a later one does.
//! 4. It is started where it worked, with the flags it had, and must show a sign of
//!    life of its own. If it does not, everything on record is put back as it was.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lariat_adapters::described::{self, NO_WAY};
use lariat_adapters::look::{Places, Scope};
use lariat_adapters::{Adapter, Ask, Past, Plan};
use lariat_core::{Fact, Session, Time, Turn, Want, Witness};
use lariat_shim::record;
use lariat_shim::start::StartError;
use lariat_sys::clock;
use lariat_sys::point::point;

use crate::acp;
use crate::after;
use crate::ask;
use crate::claims;
use crate::elsewhere;
use crate::handle;
use crate::launch::{free, most, running};
use crate::launched::{All, Launched, Record};
use crate::list::{Question, list};
use crate::records::{self, Locks, Wish, Wishes};
use crate::start::{self, LaunchError, Start, Started, files};
use crate::stop;
use crate::worktree::saved::saved;
use crate::worktree::{self, Worktree};

/// What a session without a terminal is told when nobody says what to do.
pub const GO_ON: &str = "Continue where you left off.";

/// How a session is to go on.
#[derive(Clone, Default, Debug)]
pub struct Again {
    /// What to say to it.
    pub message: Option<String>,
    /// A new session shall begin with what was said in it.
    pub fork: bool,
    /// Without a terminal; as it was, if not said.
    pub headless: Option<bool>,
    /// Although somebody works there.
    pub force: bool,
    /// Only if it is still wanted and cut off.
    pub cut_off: bool,
    /// Variables to set besides our own environment.
    pub env: Vec<(String, String)>,
    /// Further arguments for the agent, besides those it had.
    pub arguments: Vec<String>,
}

/// Which way it went on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The agent's own conversation.
    Native,
    /// A new conversation with the prompt it was launched with.
    Replayed,
}

impl Way {
    /// The word used in output.
    pub fn word(self) -> &'static str {
        match self {
            Way::Native => "native",
            Way::Replayed => "replayed",
        }
    }
}

/// How long a shim whose agent has ended may take to leave, and what was hung on the end to begin.
const LEAVING: Duration = Duration::from_secs(5);

/// A session that goes on.
#[derive(Clone, Debug)]
pub struct Resumed {
    /// What was started.
    pub started: Started,
    /// Which way.
    pub way: Way,
    /// What it was told, if anything.
    pub said: Option<String>,
}

/// Which way a session would go on; or why it cannot.
pub fn way(places: &Places, session: &Session, launched: Option<&Launched>) -> Result<Way, String> {
    let on_record = session.because.iter().any(|(_, o)| matches!(o.witness, Witness::Store | Witness::Gateway));
    let goes_on = |a: &dyn Adapter| session.transcript.as_deref().is_none_or(|t| a.goes_on_with(t));
    let on_record = on_record && lariat_adapters::named(session.agent).is_none_or(goes_on);
    match (launched, unread(session)) {
        _ if adapter_is_mute(session) => described_way(places, session, launched),
        _ if on_record => Ok(Way::Native),
        // It may well have one: what it was launched with would be done twice.
        (_, Some(why)) => Err(format!("what it has done cannot be told: {why}")),
        (Some(launched), None) if launched.stores_nothing() => {
            Err("its agent was told to store nothing of it, so what of it was done cannot be told".into())
        }
        (Some(_), None) => Ok(Way::Replayed),
        (None, None) if session.live == Some(false) => {
            Err("its agent has no conversation of it on record, so there is nothing to go on with".into())
        }
        (None, None) => {
            Err("its agent has no conversation of it on record yet; say something to it first, in its own terminal"
                .into())
        }
    }
}

/// Why nothing of it could be read, if that is so.
fn unread(session: &Session) -> Option<String> {
    let unread = session.because.iter().find(|(_, o)| matches!(o.fact, Fact::TurnUnread(_)));
    unread.map(|(_, o)| o.fact.told().row())
}

fn adapter_is_mute(session: &Session) -> bool {
    lariat_adapters::named(session.agent).is_some_and(|a| a.is_mute())
}

/// Of one that tells nothing: as the settings say, under the id that lariat chose. Nothing is asked anew,
/// because nothing tells that it was not done; unless the description says where its transcript would be, as it
/// was at the launch and as it is now, and there is surely none.
fn described_way(places: &Places, session: &Session, launched: Option<&Launched>) -> Result<Way, String> {
    let described = launched.and_then(|l| l.record.ask.described.as_ref());
    let now = described.ok_or("lariat did not launch it, so it goes on only by its own program")?;
    let then = launched.and_then(|l| l.described.as_ref());
    let mut says_where = [then, Some(now)].into_iter().flatten().filter(|d| d.transcripts.is_some()).peekable();
    let surely_none =
        says_where.peek().is_some() && says_where.all(|d| described::has_none(places, d, session.native_id.raw()));
    match now {
        _ if surely_none => Ok(Way::Replayed),
        d if d.resume.is_empty() => Err(NO_WAY.into()),
        _ => Ok(Way::Native),
    }
}

/// Goes on with a session.
pub fn resume(question: &Question, id: &str, again: &Again) -> Result<Resumed, LaunchError> {
    match attempt(question, id, again, false) {
        Err(e) if e.is_older_than_asked() => attempt(question, id, again, true),
        attempted => attempted,
    }
}

fn attempt(question: &Question, id: &str, again: &Again, older: bool) -> Result<Resumed, LaunchError> {
    let places = &question.places;
    let all = Question { scope: Scope::All, ..question.clone() };
    stop::finish(places, &list(all.clone()).listing.sessions);
    let before = All::read(places).by_id.remove(id);
    let handle = before.as_ref().filter(|_| !again.fork).map(|l| l.record.launch.handle.as_str());
    if let Some(before) = before.as_ref().filter(|_| !again.fork) {
        let_leave(before)?;
        after::begin_owed(before, LEAVING);
    }
    let guard = claims::guard(places).map_err(files(&places.state))?;
    // A copy changes nothing of the session itself.
    let locks = (!again.fork).then(|| Locks::of(places, handle, id)).transpose().map_err(files(&places.state))?;
    let act = locks.as_ref().map(Locks::act).transpose().map_err(files(&places.state))?;
    let starting = locks.as_ref().map(Locks::starting).transpose().map_err(files(&places.state))?;
    if matches!(starting, Some(None)) {
        return Err(LaunchError::Alive(format!("{id} is being started or ended at this moment")));
    }
    let answer = list(all);
    let session = answer.listing.sessions.into_iter().find(|s| s.id.raw() == id);
    let session = session.ok_or_else(|| LaunchError::Impossible(format!("{id} is not there any more")))?;
    let mut launched = All::read(places).by_id.remove(id);
    if let Some(launched) = &mut launched {
        launched.hear_of(places);
    }
    if again.cut_off && !session.restorable && session.live.is_some() {
        let stopped = || Wishes::read(places).by_id.get(id).is_some_and(|w| w.intent.want == Want::Stop);
        let how = match session.live {
            Some(true) => format!("it is {}", session.status.word()),
            _ if stopped() => "a person ended it".into(),
            _ => session.reason.row(),
        };
        return Err(LaunchError::Settled(id.to_owned(), how));
    }
    if !again.fork {
        match session.live {
            Some(false) => {}
            Some(true) => {
                let listens = |l: &Launched| !l.record.launch.headless || acp::is_owned(&l.record.agent);
                let way = match &launched {
                    Some(launched) if listens(launched) => "`lariat send` talks to it",
                    Some(_) => "`lariat wait` tells when it has ended",
                    None => "go on in its own terminal",
                };
                return Err(LaunchError::Alive(format!("{id} is {}: it lives; {way}", session.status.word())));
            }
            None => {
                let why =
                    format!("it cannot be told if {id} lives ({}), so it is not started again", session.reason.row());
                return Err(LaunchError::Alive(why));
            }
        }
    }
    let most = most(places)?.filter(|most| running(question, None).len() >= *most);
    if let Some(max) = most {
        let why = format!("{max} of at most {max} run already; end one, or set a larger `max` in the settings");
        return Err(LaunchError::Alive(why));
    }
    let adapter = start::adapter(session.agent)?;
    if again.fork && adapter.is_mute() {
        return Err(LaunchError::Impossible(described::NO_FORK.into()));
    }
    let way =
        way(places, &session, launched.as_ref()).map_err(|why| LaunchError::Impossible(format!("{id}: {why}")))?;
    let stores = elsewhere::goes_on_with(places, adapter, &session, launched.as_ref(), &again.env);
    // Behind a connection is an agent with a store of its own.
    let keepers = if acp::is_owned(session.agent) { lariat_adapters::all() } else { vec![adapter] };
    let lost = keepers.into_iter().find_map(|a| a.loses(&places.at(&stores), session.native_id.raw()));
    lost.map_or(Ok(()), |why| Err(LaunchError::AtRisk(why)))?;
    let told =
        start::told_of(places, session.agent, launched.as_ref().map(|l| l.record.ask.clone()).unwrap_or_default());
    let program = start::program(adapter, &told)?;
    let cwd = launched.as_ref().map(|l| l.record.launch.cwd.clone());
    let cwd = cwd.or_else(|| session.cwd.as_ref().map(|c| PathBuf::from(c.raw())));
    let cwd = cwd.ok_or_else(|| LaunchError::Impossible(format!("it is not known where {id} worked")))?;
    let cwd = place(places, &cwd, launched.as_ref())?;
    if !again.force {
        free(question, &cwd)?;
        nobody_is_left(launched.as_ref().filter(|l| !again.fork && acp::is_owned(&l.record.agent)))?;
    }
    point("resume.claimed");
    let wishes = Wishes::read(places);
    let before = wishes.by_id.get(id);
    let kept = launched.as_ref().filter(|_| !again.fork);
    let (handle, folder) = match kept {
        Some(launched) => (launched.record.launch.handle.clone(), launched.folder.clone()),
        None => handle::make(places, None).map_err(files(&places.state))?,
    };
    // A new id has a count of its own.
    let goes_on = !again.fork && way == Way::Native;
    let generation = if goes_on { before.map_or(1, |w| w.intent.generation + 1) } else { 1 };
    let there = elsewhere::seen_from(question, adapter, &stores);
    let mut asked = question_of(&session, launched.as_ref(), again, way, &folder);
    (asked.command, asked.described, asked.older) = (told.command, told.described, older);
    // Agents copy a name with the rest, and then it would mean two.
    asked.name = session.name.as_ref().filter(|_| again.fork).map(|name| format!("{} ({handle})", name.raw()));
    let what = match (again.fork, again.cut_off) {
        (true, _) => "fork",
        (false, true) => "restore",
        (false, false) => "resume",
    };
    let started = plan(adapter, &session, &asked, again, way).and_then(|plan| {
        if again.fork {
            start::is_new(&there, adapter, &asked, &plan)?;
        }
        let record = Record {
            launch: {
                let after = kept.map(|l| l.record.commands.clone()).unwrap_or_default();
                start::shim_launch(&folder, &handle, &program, &plan, &cwd, asked.headless, &after)?
            },
            native_id: plan.native_id.clone(),
            prompted: asked.prompt.is_some(),
            called: None,
            stores: Some(stores),
            ..record_of(adapter, launched.as_ref(), again, &asked)
        };
        let (verb, again, folder, env) = ("resume", way == Way::Native, folder.clone(), again.env.as_slice());
        kept.filter(|l| l.has_lost_its_agent()).map_or(Ok(()), |l| end_script(places, l))?;
        let begun = start::begin(&folder)?;
        let start = Start { question: there, adapter, folder, record, plan, env, generation, verb, what, again };
        // Let go in this order: who may act then finds nobody at starting it.
        let locks = [Some(guard), starting.flatten(), act].into_iter().flatten().collect();
        start.stand_ready(begun)?.go(None, locks) // it is on record, and has its name
    });
    match started {
        Ok(started) => Ok(Resumed { started, way, said: asked.prompt }),
        Err(error) => {
            start::journal(places, what, id, &error);
            let _act = locks.as_ref().map(Locks::act);
            // Who has wished something else meanwhile is not undone, nor what they started.
            let ours = |w: Wish| w.intent.want == Want::Run && w.intent.generation == generation;
            let untouched = records::read_in(&folder).is_none_or(ours);
            // Whoever finds another in its place has started nothing.
            let nothing = matches!(error, LaunchError::Start(StartError::Held(_)));
            if untouched && (nothing || start::take_back(places, &folder, &handle)) {
                // Its shim writes down how that ended; then what was there before takes its place.
                let _ = Launched::read(&folder).map(|launched| launched.as_ref().map(let_leave));
                put_back(&folder, kept, before);
            }
            Err(error)
        }
    }
}

/// The directory that it worked in.
pub(crate) fn place(places: &Places, cwd: &Path, launched: Option<&Launched>) -> Result<PathBuf, LaunchError> {
    start::directory(cwd).map_err(|e| match e {
        LaunchError::NoDirectory(gone) => {
            let again = match launched.map(|l| &l.record.launch.handle).filter(|h| has_saved_work(places, h)) {
                Some(handle) => format!("`lariat worktree apply {handle}` makes it again, with the work saved from it"),
                None => "it can go on once there is one again".into(),
            };
            let gone = gone.display();
            LaunchError::Impossible(format!("{gone} is not a directory any more: it worked there; {again}"))
        }
        other => other,
    })
}

/// Whether its worktree was removed, and what was in it is kept.
fn has_saved_work(places: &Places, handle: &str) -> bool {
    let (all, _) = worktree::all(places);
    let saved = |w: &Worktree| saved(&w.repository(), handle).is_ok_and(|saved| !saved.is_empty());
    all.iter().any(|w| w.handle == handle && saved(w))
}

/// Waits until the shim of a run that has ended has left: it wrote down the end, and tells its viewers.
pub(crate) fn let_leave(launched: &Launched) -> Result<(), LaunchError> {
    let files = files(&launched.folder);
    let began = Instant::now();
    while matches!(launched.process(), Ok(None)) && lariat_shim::is_locked(&launched.folder).map_err(&files)? {
        point("resume.leaving");
        if began.elapsed() > LEAVING {
            let handle = &launched.record.launch.handle;
            let why =
                format!("{handle} has ended, but its shim still tells that to its viewers; try again in a moment");
            return Err(LaunchError::Alive(why));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Ends the script that called the agent and stays though that is gone: the session goes on with another.
fn end_script(places: &Places, launched: &Launched) -> Result<(), LaunchError> {
    if !start::end_script(places, launched) {
        let handle = &launched.record.launch.handle;
        let why = format!("the script that called {handle} is there still; `lariat kill {handle}` tells of it");
        return Err(LaunchError::Alive(why));
    }
    let_leave(launched)?;
    after::begin_owed(launched, LEAVING);
    Ok(())
}

/// The agent behind a connection is its owner's child, and may have children that still write to the
/// session after both are gone.
fn nobody_is_left(launched: Option<&Launched>) -> Result<(), LaunchError> {
    let Some(launched) = launched else { return Ok(()) };
    let handle = &launched.record.launch.handle;
    match launched.leftovers() {
        Ok(left) if left.is_empty() => Ok(()),
        Ok(left) => Err(LaunchError::Alive(format!(
            "{handle} left processes that may still work on it: {left:?}; `lariat stop {handle}` ends them"
        ))),
        Err(e) => Err(LaunchError::Alive(format!("it cannot be told if {handle} left processes that work on it: {e}"))),
    }
}

/// What it is asked when it goes on: what it was asked at first, but for the words.
fn question_of(session: &Session, launched: Option<&Launched>, again: &Again, way: Way, folder: &Path) -> Ask {
    let mut asked = launched.map(|l| l.record.ask.clone()).unwrap_or_default();
    asked.headless = again.headless.unwrap_or(asked.headless);
    asked.arguments.extend(again.arguments.iter().cloned());
    asked.name = None; // it has its name
    asked.prompt = again.message.clone().or_else(|| unasked(session, &asked, way));
    asked.hook = ask::hook(folder, &asked);
    asked
}

/// What it is told when it comes back and nobody says what: in a new conversation, what it was launched with; else only
/// without a terminal, for there a person goes on.
pub(crate) fn unasked(session: &Session, asked: &Ask, way: Way) -> Option<String> {
    // Where nothing was taken up, there is nothing to go on with: it is asked what it was launched with.
    let first = || asked.prompt.clone().filter(|_| was_asked_nothing(session));
    match way {
        Way::Replayed => asked.prompt.clone(),
        Way::Native => asked.headless.then(|| first().unwrap_or_else(|| GO_ON.to_owned())),
    }
}

/// Whether its conversation is on record and has no turn.
fn was_asked_nothing(session: &Session) -> bool {
    session.because.iter().any(|(_, o)| o.witness == Witness::Store && o.fact == Fact::Turn(Turn::Never))
}

fn plan(
    adapter: &'static dyn Adapter,
    session: &Session,
    asked: &Ask,
    again: &Again,
    way: Way,
) -> Result<Plan, LaunchError> {
    let past = Past { native_id: session.native_id.raw(), transcript: session.transcript.as_deref(), fork: again.fork };
    let plan = match way {
        Way::Native => adapter.resume(asked, &past),
        Way::Replayed => adapter.start(asked),
    };
    plan.map_err(LaunchError::Impossible)
}

/// What is stored of it besides what the shim starts.
fn record_of(adapter: &'static dyn Adapter, launched: Option<&Launched>, again: &Again, asked: &Ask) -> Record {
    let before = launched.map(|l| l.record.clone());
    let fresh = || Record {
        launch: record::Launch::default(),
        agent: adapter.name().to_owned(),
        native_id: None,
        earlier: Vec::new(),
        ask: Ask { prompt: again.message.clone(), hook: None, ..asked.clone() },
        group: None,
        commands: Default::default(),
        kept: false,
        prompted: false,
        worktree: None,
        called: None,
        stores: None,
        created_at: Time(clock::now_ms()),
    };
    match before {
        Some(before) if again.fork => Record { group: before.group, ..fresh() },
        Some(before) => before,
        None => fresh(),
    }
}

/// Puts everything on record back as it was before a start that came to nothing.
fn put_back(folder: &Path, kept: Option<&Launched>, wish: Option<&Wish>) {
    let Some(launched) = kept else {
        #[expect(clippy::disallowed_methods, reason = "our own record of a start that came to nothing")]
        let _ = std::fs::remove_dir_all(folder);
        return;
    };
    // What cannot be read may still be where it was.
    let aside = Launched::read(folder).ok().flatten().map_or(Ok(()), |now| now.put_unread_aside());
    if aside.is_ok() {
        let _ = record::forget_last_run(folder);
    }
    let _ = start::put(folder, &launched.record);
    if let Some(shim) = &launched.shim {
        let _ = record::put(folder, record::SHIM, shim);
    }
    if let Some(exit) = &launched.exit {
        let _ = record::put(folder, record::EXIT, exit);
    }
    for (name, _) in launched.unread.iter().filter(|(name, _)| !folder.join(name).exists()) {
        // What it said lies aside; that it was there, and cannot be read, stays so.
        let _ = record::put(folder, name, &());
    }
    if let Some(wish) = wish {
        let _ = records::put_in(folder, wish);
    }
}
