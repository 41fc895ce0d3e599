//! Launching an agent so that it outlives whoever launched it.
//!
//! # Theory of operation
//!
//! Under one lock of ours: who stands in that directory, or above or below it?
//! Any live agent does, whoever started it. How many run already? If either
//! forbids it, the launch is refused. While we look, all is made ready but the agent's
//! program; then it is started ([`crate::start`]), or taken away again.
//!
//! A launch that dies before it has an id is an error with the agent's last
//! words, and leaves no row behind.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lariat_adapters::described::NO_WAY;
use lariat_adapters::look::{Places, Scope};
use lariat_adapters::settings::{Given, Settings};
use lariat_adapters::{Adapter, Ask, LONGEST_ARGUMENT};
use lariat_core::{Status, Time, Untrusted};
use lariat_sys::point::point;
use lariat_sys::signals::Heeded;
use lariat_sys::watch::Watch;
use lariat_sys::{clock, durable};

pub use crate::start::{LaunchError, Started};

use crate::after::{self, After};
use crate::ask;
use crate::claims::{self, Held};
use crate::elsewhere;
use crate::evict::{self, Living};
use crate::handle;
use crate::launched::{self, Launched, Record};
use crate::list::{Known, Question, list};
use crate::resume;
use crate::send::{self, SendError};
use crate::start::{self, Standing, Start, files};
use crate::stop;
use crate::worktree::Worktree;

/// What to launch.
#[derive(Clone, Default, Debug)]
pub struct Order {
    /// The agent's name.
    pub agent: String,
    /// Where.
    pub cwd: PathBuf,
    /// What the agent is asked.
    pub ask: Ask,
    /// The group it belongs to.
    pub group: Option<String>,
    /// Variables to set besides our own environment.
    pub env: Vec<(String, String)>,
    /// Although somebody works there.
    pub force: bool,
    /// How many may run at once, this one included.
    pub max: Option<usize>,
    /// Wait while as many run, instead of being refused.
    pub queue: bool,
    /// Commands to run besides.
    pub after: After,
    /// Bring it back after a crash or reboot without asking.
    pub keep: bool,
    /// The worktree that was made for it, and that `cwd` lies in.
    pub worktree: Option<Worktree>,
}

/// An order that can be carried out, as far as that can be told without doing it.
struct Ready {
    adapter: &'static dyn Adapter,
    cwd: PathBuf,
    program: PathBuf,
    ask: Ask,
    /// The prompt, if it is to be typed.
    typed: Option<String>,
}

fn ready(places: &Places, order: &Order) -> Result<Ready, LaunchError> {
    let adapter = adapter(places, &order.agent)?;
    let cwd = start::directory(&order.cwd)?;
    let mut ask = start::told_of(places, &order.agent, order.ask.clone());
    ask.cwd = Some(cwd.clone());
    let program = start::program(adapter, &ask)?;
    if order.keep && ask.described.as_ref().is_some_and(|d| d.resume.is_empty() && d.transcripts.is_none()) {
        return Err(LaunchError::Impossible(format!("it cannot be kept: {NO_WAY}")));
    }
    // What is too long for an argument is typed into a terminal instead.
    let is_typed = ask.described.as_ref().is_some_and(|d| d.prompt == Given::Typed);
    let typed = ask.prompt.take_if(|p| !ask.headless && (is_typed || p.len() > LONGEST_ARGUMENT));
    adapter.start(&ask).map_err(LaunchError::Impossible)?;
    Ok(Ready { adapter, cwd, program, ask, typed })
}

/// The adapter of one that is to be launched.
fn adapter(places: &Places, name: &str) -> Result<&'static dyn Adapter, LaunchError> {
    lariat_adapters::named(name).ok_or_else(|| {
        let settings = Settings::read(places);
        let mut names = start::launchable();
        names.extend(settings.acp.iter().map(|s| format!("acp:{}", s.name)));
        names.extend(settings.described.iter().map(|d| format!("agent:{}", d.name)));
        LaunchError::NoAgent(name.into(), names.join(", "))
    })
}

/// Says what is wrong with an order, if anything, without carrying it out; the directory it means.
pub fn check(places: &Places, order: &Order) -> Result<PathBuf, LaunchError> {
    ready(places, order).map(|ready| ready.cwd)
}

/// Launches an agent; with what went wrong with the command that was to run then.
pub fn launch(question: &Question, order: &Order) -> Result<(Started, Option<String>), LaunchError> {
    match attempt(question, order) {
        Err(e) if e.is_older_than_asked() && !order.ask.older => {
            let ask = Ask { older: true, ..order.ask.clone() };
            attempt(question, &Order { ask, ..order.clone() })
        }
        attempted => attempted,
    }
}

fn attempt(question: &Question, order: &Order) -> Result<(Started, Option<String>), LaunchError> {
    let places = &question.places;
    let ready = ready(places, order)?;
    durable::make_folder(&places.state).map_err(files(&places.state))?;
    let Entered { standing, folder, handle, known, living, heeded, lock } = enter(question, order, &ready)?;
    point("launch.claimed");
    if let (Some(living), Ok(retain)) = (&living, evict::retain(places)) {
        evict::forget(&evict::old_among(places, retain, &known, living));
    }
    let folder = folder.keep();
    let started = standing.go(Some(&heeded), vec![lock]);
    let started = match started {
        Ok(started) => started,
        Err(e) => {
            start::journal(places, "launch", &order.agent, &e);
            // What would not end keeps its folder.
            if start::take_back(places, &folder, &handle) {
                // Its shim writes down how that ended.
                let _ = Launched::read(&folder).map(|launched| launched.as_ref().map(resume::let_leave));
                #[expect(clippy::disallowed_methods, reason = "our own record of a launch that came to nothing")]
                let _ = std::fs::remove_dir_all(&folder);
            }
            heeded.take(); // whoever asked for more than that has it
            return Err(e);
        }
    };
    drop(heeded);
    let wrong = order.after.on_launch.as_ref().and_then(|_| after::launched(places, &folder, &started));
    if let Some(prompt) = ready.typed {
        type_in(question, &started, &folder, &prompt)
            .map_err(|why| LaunchError::Unasked(started.handle.clone(), why))?;
    }
    Ok((started, wrong))
}

/// A launch that nothing is in the way of.
struct Entered<'a> {
    /// Its agent, which waits for the word.
    standing: Standing<'a>,
    /// What is taken away again without that.
    folder: NewFolder,
    handle: String,
    /// What is on record then.
    known: Arc<Known>,
    /// Who lives, if anybody looked.
    living: Option<Living>,
    /// What nobody has been told of yet can be taken back; and nobody could end it by its name.
    heeded: Heeded,
    /// The lock under which it happens.
    lock: File,
}

/// A folder of ours for a session that may not come to be.
struct NewFolder(Option<PathBuf>);

impl NewFolder {
    fn begin(path: PathBuf) -> std::io::Result<NewFolder> {
        durable::begin_folder(&path)?;
        Ok(NewFolder(Some(path)))
    }

    /// From now on it is not taken away.
    fn keep(mut self) -> PathBuf {
        self.0.take().unwrap_or_default()
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            #[expect(clippy::disallowed_methods, reason = "our own folder, of a launch that was not to be")]
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

/// Waits until nothing is in the way of a launch. What was cut short is finished first; all is made ready
/// while we look.
fn enter<'a>(question: &Question, order: &'a Order, ready: &Ready) -> Result<Entered<'a>, LaunchError> {
    let places = &question.places;
    let most = most(places)?;
    let mut finished = false;
    loop {
        let lock = claims::guard(places).map_err(files(&places.state))?;
        let wanted = order.worktree.as_ref().map(|w| w.handle.as_str());
        let (handle, path) = handle::choose(places, wanted).map_err(files(&places.state))?;
        let heeded = Heeded::begin();
        let folder = NewFolder::begin(path.clone()).map_err(files(&path))?;
        let standing = stand_ready(question, order, ready, (&handle, &path))
            .inspect_err(|e| start::journal(places, "launch", &order.agent, e))?;
        let look = (!order.force).then(|| claims::held(question));
        let known = look.as_ref().map_or_else(|| Arc::new(Known::read(places)), |held| Arc::clone(&held.known));
        if heeded.take() {
            let interrupted = LaunchError::Interrupted(order.agent.clone());
            start::journal(places, "launch", &order.agent, &interrupted);
            return Err(interrupted);
        }
        if !std::mem::replace(&mut finished, true) {
            after::owed_of(&known.launched);
            if stop::may_be_left(&known) {
                drop((standing, folder, heeded, lock)); // to end somebody takes its time
                stop::finish_left(question);
                continue;
            }
            stop::take_over_all(places, &known);
        }
        if let Some(held) = &look {
            let ways = "wait for it, give it a --worktree of its own, choose another --cwd, or use --force";
            is_free(held, &ready.cwd).map_err(|who| LaunchError::Claimed(format!("{who}; {ways}")))?;
        }
        let max = order.max.or(most);
        let running = max.map_or_else(Vec::new, |_| running(question, order.group.as_deref()));
        let Some(max) = max.filter(|max| running.len() >= *max) else {
            let living = look.map(|held| held.living);
            return Ok(Entered { standing, folder, handle, known, living, heeded, lock });
        };
        if !order.queue || max == 0 {
            let whose = order.group.as_ref().map_or_else(String::new, |g| format!(" in group {g}"));
            return Err(LaunchError::Full { running: running.len(), max, whose });
        }
        drop((standing, folder, heeded, lock));
        let mut watch = Watch::new();
        running.iter().for_each(|pid| watch.process(*pid));
        // One whose process cannot be watched is looked at again.
        watch.sleep(Duration::from_secs(2), Duration::ZERO).map_err(files(&places.state))?;
    }
}

/// Has an agent stand ready in a folder that was begun for it.
fn stand_ready<'a>(
    question: &Question,
    order: &'a Order,
    ready: &Ready,
    (handle, folder): (&str, &Path),
) -> Result<Standing<'a>, LaunchError> {
    let begun = start::begin(folder)?;
    let Ready { adapter, cwd, program, .. } = ready;
    let ask = Ask { hook: ask::hook(folder, &ready.ask), ..ready.ask.clone() };
    let mut stores = Places::stores_of(&order.env);
    if let Some((name, path)) = adapter.store_in(&ask.arguments)
        && let Some(path) = cwd.join(path).to_str()
    {
        stores.insert(name.to_owned(), path.to_owned());
    }
    let there = elsewhere::seen_from(question, *adapter, &stores);
    let plan = adapter.start(&ask).map_err(LaunchError::Impossible)?;
    start::is_new(&there, *adapter, &ask, &plan)?;
    let record = Record {
        launch: start::shim_launch(folder, handle, program, &plan, cwd, ask.headless, &order.after)?,
        agent: adapter.name().to_owned(),
        native_id: plan.native_id.clone(),
        earlier: Vec::new(),
        ask: Ask { command: ask.command.clone(), described: ask.described.clone(), ..order.ask.clone() },
        group: order.group.clone(),
        created_at: Time(clock::now_ms()),
        commands: order.after.clone(),
        kept: order.keep,
        prompted: ask.prompt.is_some(), // what is typed is known to have arrived
        called: None,
        worktree: order.worktree.clone(),
        stores: Some(stores),
    };
    let (folder, env, verb) = (folder.to_owned(), order.env.as_slice(), "launch");
    let adapter = *adapter;
    let start =
        Start { question: there, adapter, folder, record, plan, env, generation: 1, verb, what: verb, again: false };
    start.stand_ready(begun)
}

/// How many may run at once, as the settings say. Settings that cannot be read may hold a
/// limit, so they let nobody in.
pub(crate) fn most(places: &Places) -> Result<Option<usize>, LaunchError> {
    let settings = Settings::read(places);
    match settings.unreadable() {
        Some(wrong) => {
            Err(LaunchError::Alive(format!("the settings may hold a limit and cannot be read: mend {wrong}")))
        }
        None => Ok(settings.max),
    }
}

/// Whether nobody works in a directory, above it or below it, so that a session can go on there.
pub(crate) fn free(question: &Question, cwd: &Path) -> Result<(), LaunchError> {
    is_free(&claims::held(question), cwd)
        .map_err(|who| LaunchError::Claimed(format!("{who}; wait for it, or use --force")))
}

/// The same; who does, if somebody.
fn is_free(held: &Held, cwd: &Path) -> Result<(), String> {
    if let Some(path) = held.unread.as_ref().map(Untrusted::row) {
        return Err(format!("it cannot be told who holds it, {path} is unreadable"));
    }
    match claims::in_the_way(held.holders.iter(), cwd) {
        Some(holder) => Err(format!("{}: {}", holder.path.display(), holder.who)),
        None => Ok(()),
    }
}

/// The agents that we launched and that live, or cannot be told to have ended: by what their shims started, and by
/// what is seen of their sessions, which live on without the program that started them.
pub(crate) fn running(question: &Question, group: Option<&str>) -> Vec<u32> {
    let all = launched::All::read(&question.places);
    let sessions = all.by_id.into_values().chain(all.without_id);
    let counted = sessions.filter(|l| group.is_none() || l.record.group.as_deref() == group);
    let living = counted.filter(|l| !matches!(l.process(), Ok(None)));
    let by_shim = living.filter_map(|l| Some((l.record.launch.handle, l.shim?.agent.pid)));
    let mut running: BTreeMap<String, u32> = by_shim.collect();
    let seen = list(Question { scope: Scope::Live, ..question.clone() });
    for s in seen.listing.sessions.iter().filter(|s| s.live != Some(false)) {
        let Some(handle) = s.handle.as_ref().filter(|_| group.is_none() || s.group.as_deref() == group) else {
            continue;
        };
        running.entry(handle.clone()).or_insert_with(|| s.pid.unwrap_or_default());
    }
    running.into_values().collect()
}

/// Types the first prompt into a terminal, once its agent stands at its own prompt.
fn type_in(question: &Question, started: &Started, folder: &Path, prompt: &str) -> Result<(), String> {
    let launched = Launched::read(folder).map_err(|e| e.to_string())?.ok_or("its folder is gone")?;
    let began = Instant::now();
    loop {
        let answer = list(Question { scope: Scope::Live, ..question.clone() });
        let session = answer.listing.sessions.into_iter().find(|s| s.id.raw() == started.id());
        let session = session.filter(|s| s.live != Some(false)).ok_or("it has ended")?;
        let mute = send::is_mute(session.agent);
        if mute {
            send::until_quiet(&launched, start::PATIENCE);
        }
        if send::takes_prompts(&session) || mute {
            let message = send::Message { text: prompt, key: None, patience: start::PATIENCE };
            let sent = send::send(question, &session, &launched, message);
            return match sent {
                // Of one that tells nothing more is never known.
                Ok(_) | Err(SendError::Blind) => Ok(()),
                Err(e) => Err(e.to_string()),
            };
        }
        if began.elapsed() > start::PATIENCE || session.status == Status::Waiting {
            return Err(format!("it is {}: {}", session.status.word(), session.reason.row()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
