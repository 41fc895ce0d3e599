//! Starting an agent in a folder of ours, new or once more, and knowing that it
//! is there.
//!
//! # Theory of operation
//!
//! 1. Its shim has begun, and is told what it is to start: it makes the agent ready, and waits for the word to go.
//!    What is to be stored is written meanwhile, durably but for the names ([`Start::stand_ready`]). A launcher
//!    looks at the same time if anything is in the way; until the names are given nothing has happened.
//! 2. The launch and the wish that it shall run get their names, durably ([`Standing::go`]).
//! 3. The shim starts the agent; the claims' lock is let go once the agent is on record,
//!    where others see it.
//! 4. While that is written, the agent comes up, and shows which session it has ([`crate::up`]).

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lariat_adapters::look::{Places, Scope, Stores};
use lariat_adapters::settings::Settings;
use lariat_adapters::{Adapter, Ask, Plan, agent_process};
use lariat_core::{Intent, Time, Want};
use lariat_shim::record::{self, Launch, Process, VERSION};
use lariat_shim::start::{self, Begun, Running, StartError};
use lariat_sys::durable::Staged;
use lariat_sys::point::point;
use lariat_sys::process::{self, Identity};
use lariat_sys::scan::look_at;
use lariat_sys::signals::Heeded;
use lariat_sys::tree::{House, Tree};
use lariat_sys::{clock, durable};

use crate::after::After;
use crate::first;
use crate::launched::{All, Launched, Record};
use crate::list::{Question, list};
use crate::records::{self, Wish};
use crate::servers;
use crate::sockets;
use crate::worktree::WorktreeError;

/// How long an agent may take to show its id.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Where copies of the agent's files are kept, in the session's folder.
const KEPT: &str = "kept";
/// How much of a terminal's output is kept.
const OUTPUT: u64 = 4 << 20;
/// What was started.
#[derive(Clone, Debug)]
pub struct Started {
    /// The name for it.
    pub handle: String,
    /// The agent's name.
    pub agent: &'static str,
    /// The agent's own id.
    pub native_id: String,
    /// Its process.
    pub pid: u32,
    /// Where it works.
    pub cwd: PathBuf,
}

impl Started {
    /// The id that listings show.
    pub fn id(&self) -> String {
        format!("{}:{}", self.agent, self.native_id)
    }
}

/// Why nothing runs.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There is no such agent.
    #[error("no agent is called '{0}'; there are {1}")]
    NoAgent(String, String),
    /// Its program is not there.
    #[error("{0} is not on PATH; install it, or say where it is by PATH")]
    NoProgram(String),
    /// The directory is not there.
    #[error("{0} is not a directory")]
    NoDirectory(PathBuf),
    /// Somebody works there; with the ways on.
    #[error("{0}")]
    Claimed(String),
    /// Its worktree could not be made.
    #[error(transparent)]
    Worktree(#[from] WorktreeError),
    /// As many run as may.
    #[error("{running} of at most {max} run already{whose}; --queue waits until one has ended")]
    Full {
        /// How many run.
        running: usize,
        /// How many may.
        max: usize,
        /// Whose they are, if not everybody's.
        whose: String,
    },
    /// It lives, or might.
    #[error("{0}")]
    Alive(String),
    /// It was to be brought back, and somebody was faster or wants it no more.
    #[error("{0} is not cut off any more: {1}")]
    Settled(String, String),
    /// Its conversation would be lost by that, as things are.
    #[error("{0}")]
    AtRisk(&'static str),
    /// The agent cannot do that.
    #[error("{0}")]
    Impossible(String),
    /// Our own files could not be written.
    #[error("{0}: {1}")]
    Files(PathBuf, io::Error),
    /// The shim or the agent could not be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It died before it had an id.
    #[error("{0} ended before it had a session ({1}){2}")]
    Died(String, String, String),
    /// It shows no id.
    #[error(
        "{0} (process {1}) showed no session within {2:?} and was ended; start it in a terminal to see what it asks"
    )]
    NoId(String, u32, Duration),
    /// It begins none before a person has answered something.
    #[error(
        "{0} asks {1} before it begins a session, and was ended; run `{0}` in {2}, answer that once, and launch it again"
    )]
    Asks(String, &'static str, PathBuf),
    /// A person, or whoever ends this program, would not wait for its id.
    #[error("interrupted before {0} had shown a session; it was ended, and nothing is left of it")]
    Interrupted(String),
    /// It runs, and was not asked anything.
    #[error("{0} runs, but its prompt could not be typed: {1}; `lariat send {0} -` tries again")]
    Unasked(String, String),
}

impl LaunchError {
    /// Whether its agent ended at once for an option that only later versions know.
    pub(crate) fn is_older_than_asked(&self) -> bool {
        matches!(self, Self::Died(agent, _, words) if adapter(agent).is_ok_and(|a| a.is_older(words)))
    }

    /// Whether it may not be done, as things are, and nothing was tried.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Claimed(_) | Self::Full { .. } | Self::Alive(_) | Self::Settled(..) | Self::AtRisk(_))
    }
}

/// Turns an error of our files into one that names the place.
pub(crate) fn files(path: &Path) -> impl Fn(io::Error) -> LaunchError + use<> {
    let path = path.to_owned();
    move |e| LaunchError::Files(path.clone(), e)
}

/// The adapter of this name.
pub fn adapter(name: &str) -> Result<&'static dyn Adapter, LaunchError> {
    lariat_adapters::named(name).ok_or_else(|| LaunchError::NoAgent(name.into(), launchable().join(", ")))
}

/// The agents that are launched by their own names.
pub(crate) fn launchable() -> Vec<String> {
    let is_one = |a: &&&dyn Adapter| a.remote().is_none() && !a.is_mute() && !a.is_spoken_for();
    lariat_adapters::all().iter().filter(is_one).map(|a| a.name().to_owned()).collect()
}

/// The agent's real program; of one that the settings describe, the first word of its command.
pub fn program(adapter: &'static dyn Adapter, ask: &Ask) -> Result<PathBuf, LaunchError> {
    use std::os::unix::fs::PermissionsExt as _;
    if adapter.is_spoken_for() {
        return process::own_program().map_err(files(Path::new("lariat")));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let runs = |p: &PathBuf| p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let described = ask.described.as_ref().and_then(|d| d.command.first()).map(String::as_str);
    let name = adapter.programs().first().copied().or(described).unwrap_or_default();
    // What a gateway starts is not started here, whatever programs there are.
    if adapter.remote().is_some() || adapter.is_mute() && name.is_empty() {
        return Err(LaunchError::Impossible(adapter.start(ask).err().unwrap_or_default()));
    }
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(runs);
    let found = found.ok_or_else(|| LaunchError::NoProgram(name.into()))?;
    Ok(adapter.native(&found).filter(runs).unwrap_or(found))
}

/// Adds what the settings say of an agent; without that, what it was launched with stands.
pub fn told_of(places: &Places, agent: &str, mut ask: Ask) -> Ask {
    let settings = Settings::read(places);
    let speaks = settings.acp.into_iter().find(|s| agent.strip_prefix("acp:") == Some(s.name.as_str()));
    ask.command = speaks.map_or(ask.command, |s| s.command);
    let described = settings.described.into_iter().find(|d| agent.strip_prefix("agent:") == Some(d.name.as_str()));
    ask.described = described.or(ask.described);
    ask
}

/// The directory, if it is one.
pub fn directory(path: &Path) -> Result<PathBuf, LaunchError> {
    let real = path.canonicalize().ok().filter(|p| p.is_dir());
    let real = real.ok_or_else(|| LaunchError::NoDirectory(path.to_owned()))?;
    match real.to_str() {
        Some(_) => Ok(real),
        None => Err(LaunchError::Impossible(format!(
            "{}: no agent is launched in a directory whose name is not UTF-8; rename it, or choose another --cwd",
            real.display()
        ))),
    }
}

/// Refuses an id that a person gave the agent and that a session has: what is on record of that one would be taken for
/// a sign of the new one.
pub(crate) fn is_new(question: &Question, adapter: &dyn Adapter, ask: &Ask, plan: &Plan) -> Result<(), LaunchError> {
    let given = |id: &&String| ask.arguments.iter().any(|word| word.ends_with(id.as_str()));
    let Some(id) = plan.native_id.as_ref().filter(given) else { return Ok(()) };
    let id = format!("{}:{id}", adapter.name());
    let is_launched = || All::read(&question.places).by_id.contains_key(&id);
    let all = list(Question { scope: Scope::All, agent: Some(adapter.name()), ..question.clone() });
    if all.listing.sessions.iter().any(|s| s.id.raw() == id) || is_launched() {
        return Err(LaunchError::Alive(format!("{id} is there already; `lariat resume {id}` goes on with it")));
    }
    match all.partial {
        true => {
            Err(LaunchError::Alive(format!("it cannot be told if {id} is there already; `lariat doctor` says why")))
        }
        false => Ok(()),
    }
}

/// What the shim starts.
pub(crate) fn shim_launch(
    folder: &Path,
    handle: &str,
    program: &Path,
    plan: &Plan,
    cwd: &Path,
    headless: bool,
    after: &After,
) -> Result<Launch, LaunchError> {
    let mut argv = vec![program.to_string_lossy().into_owned()];
    for file in &plan.files {
        argv.extend([file.flag.to_owned(), folder.join(file.name).to_string_lossy().into_owned()]);
    }
    argv.extend(plan.arguments.iter().cloned());
    let socket = sockets::of(handle)?;
    Ok(Launch {
        version: VERSION,
        handle: handle.to_owned(),
        argv,
        cwd: cwd.to_owned(),
        env: Vec::new(), // handed over by pipe: it may hold secrets
        headless: headless || plan.no_terminal,
        rows: 24,
        cols: 80,
        socket,
        output: OUTPUT,
        after: after.environment(),
    })
}

pub(crate) fn own_user() -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").map_or(0, |m| m.uid())
}

/// Our environment for the agent, without what names a session: a launch from
/// within another session's tool is not part of that one.
///
/// Its store is where it was when it was launched, whatever our own environment says now.
fn environment(stores: &Stores, needed: &[(String, String)], more: &[(String, String)]) -> Vec<(OsString, OsString)> {
    let marks: Vec<String> = lariat_adapters::all().iter().flat_map(|a| a.marks("")).map(|(name, _)| name).collect();
    let is_mark = |name: &str| {
        marks.iter().any(|m| m == name) || matches!(name, "CLAUDE_PID" | "CODEX_TOOL_CALL_ID" | "OPENCODE_PID")
    };
    let is_store = |name: &str| Places::STORES.contains(&name);
    let is_not_ours = |name: &str| name.starts_with("LARIAT_") || is_mark(name) || is_store(name);
    let ours = std::env::vars_os().filter(|(name, _)| !is_not_ours(&name.to_string_lossy()));
    let told = stores.iter().chain(needed.iter().chain(more).map(|(name, value)| (name, value)));
    ours.chain(told.map(|(name, value)| (name.into(), value.into()))).collect()
}

/// Begins the shim of a folder, which may not be there yet.
pub(crate) fn begin(folder: &Path) -> Result<Begun, LaunchError> {
    let program = process::own_program().map_err(files(folder))?;
    Ok(start::begin(&program, folder)?)
}

/// Everything that is needed to start an agent in a folder.
pub(crate) struct Start<'a> {
    pub question: Question,
    pub adapter: &'static dyn Adapter,
    pub folder: PathBuf,
    /// What is stored; its id is what the plan chose.
    pub record: Record,
    pub plan: Plan,
    pub env: &'a [(String, String)],
    /// The generation of the wish that it shall run.
    pub generation: u64,
    /// The verb that wished it.
    pub verb: &'static str,
    /// What the journal calls that.
    pub what: &'static str,
    /// It goes on with a session that is on record already.
    pub again: bool,
}

/// One that lacks nothing but the word. Dropped without it, its shim has left and nothing is stored.
pub(crate) struct Standing<'a> {
    // In this order: the shim has left before anything in the folder is taken away.
    begun: Begun,
    staging: Staging,
    start: Start<'a>,
    env: Vec<(OsString, OsString)>,
    began: Time,
    /// The lock that says so.
    starting: File,
}

/// The records of it, being written.
struct Staging(Option<JoinHandle<io::Result<Staged>>>);

impl Staging {
    fn begin(folder: &Path, launch: String, wish: Option<Wish>) -> io::Result<Staging> {
        let folder = folder.to_owned();
        let stage = move || records::stage(&folder, &launch, wish.as_ref());
        Ok(Staging(Some(thread::Builder::new().name("store".into()).spawn(stage)?)))
    }

    fn wait(&mut self) -> io::Result<Staged> {
        let thread = self.0.take().ok_or(io::ErrorKind::NotFound)?;
        thread.join().map_err(|_| io::Error::other("what was to be stored could not be written"))?
    }

    /// Stores them; when it returns, no crash undoes it.
    fn put(mut self) -> io::Result<()> {
        self.wait()?.put()
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = self.wait();
    }
}

impl<'a> Start<'a> {
    /// Makes all ready, by the shim that was begun for that.
    pub fn stand_ready(mut self, mut begun: Begun) -> Result<Standing<'a>, LaunchError> {
        let files = files(&self.folder);
        let began = Time(clock::now_ms());
        let starting = records::begin_start(&self.folder).map_err(&files)?;
        clear(&self.folder).map_err(&files)?;
        if let Some(input) = &self.plan.input {
            durable::put(&self.folder, record::INPUT, input.as_bytes()).map_err(&files)?;
        }
        put_beside(&self.folder, &self.plan).map_err(&files)?;
        let launch = serde_json::to_string(&self.record).map_err(|e| files(e.into()))?;
        // Some believe this before where they stand.
        self.plan.env.push(("PWD".into(), self.record.launch.cwd.to_string_lossy().into_owned()));
        let stores = self.record.stores.clone().unwrap_or_default();
        let env = environment(&stores, &self.plan.env, self.env);
        begun.ready(&launch, &env);
        let wish = self.record.native_id.as_ref().map(|id| self.wish(id, None));
        let staging = Staging::begin(&self.folder, launch, wish).map_err(&files)?;
        Ok(Standing { begun, staging, start: self, env, began, starting })
    }
}

impl Standing<'_> {
    /// Starts it. The first of the locks, that of the claims, is let go once the agent can be seen where it stands.
    /// `heeded` hears that it is to be taken back, as long as nobody was told of it.
    pub fn go(self, heeded: Option<&Heeded>, locks: Vec<File>) -> Result<Started, LaunchError> {
        let Standing { begun, staging, mut start, env, began, starting } = self;
        let folder = start.folder.clone();
        staging.put().map_err(files(&folder))?;
        point("launch.wished");
        // After the wish: what ended by itself is not cut off until it is wished back.
        if start.verb == "resume"
            && let Ok(Some(before)) = Launched::read(&folder)
        {
            before.put_unread_aside().map_err(files(&folder))?;
        }
        record::forget_last_run(&folder).map_err(|e| LaunchError::Files(folder.clone(), io::Error::other(e)))?;
        point("launch.stored");
        let launch = &start.record.launch;
        let first = start.plan.first.as_ref().map_or(Ok(()), |f| first::tell(start.adapter, &folder, f, launch, &env));
        let running = first.and_then(|()| Ok(begun.go()?))?;
        let agent = running.agent.clone();
        let mut locks = locks.into_iter();
        let mut recording = Some((running, locks.next().into_iter().chain([starting]).collect()));
        // Until it is up it looks like one that has gone on elsewhere: who would end it waits a
        // moment for that.
        let mut locks: Vec<File> = locks.collect();
        let chosen = start.record.native_id.is_some();
        // While the agent comes up, and its shim writes down that it runs.
        if let Some(native_id) = &start.record.native_id {
            start.tell(native_id, &agent);
        }
        let known = start.know(&agent, (began, heeded), &mut recording, &mut locks);
        // However that went: nobody goes on before the agent is on record, or taken back.
        until_recorded(&mut recording)?;
        let native_id = known?;
        start.record.called = start.called(&agent);
        if !chosen || start.record.called.is_some() {
            start.record.native_id = Some(native_id.clone());
            put(&folder, &start.record).map_err(files(&folder))?;
        }
        if !chosen {
            // A stop that came first stands: of equal wishes the stop wins.
            records::put_in(&folder, &start.wish(&native_id, Some(&agent))).map_err(files(&folder))?;
            start.tell(&native_id, &agent);
        }
        point("launch.known");
        let launch = start.record.launch;
        Ok(Started { handle: launch.handle, agent: start.adapter.name(), native_id, pid: agent.pid, cwd: launch.cwd })
    }
}

impl Start<'_> {
    /// Adds to the journal that it runs.
    fn tell(&self, native_id: &str, agent: &Process) {
        let how = format!("process {} in {}", agent.pid, self.record.launch.cwd.display());
        records::tell(&self.question.places, self.what, &format!("{}:{native_id}", self.adapter.name()), how);
    }

    /// The agent's own process, if a script was started and called it.
    fn called(&self, agent: &Process) -> Option<Process> {
        let script = look_at(&agent.clone().into()).ok().flatten()?;
        let is_agent = |p: &_| self.adapter.takes_for_its_own(&self.question.places, p);
        let called = agent_process::called_by(&script, is_agent)?;
        let (identity, _pidfd) = Identity::open(called.pid).ok()?;
        (identity.start == called.start).then(|| identity.into())
    }

    fn wish(&self, native_id: &str, agent: Option<&Process>) -> Wish {
        let at = Time(clock::now_ms());
        Wish {
            id: format!("{}:{native_id}", self.adapter.name()),
            intent: Intent { want: Want::Run, generation: self.generation, at, found_live: true, until: None },
            verb: self.verb.into(),
            process: agent.cloned(),
            run: None,
            ahead: None,
            seen: None,
        }
    }
}

/// Waits until the agent is on record, and lets the locks of the claims and of the start go.
pub(crate) fn until_recorded(recording: &mut Option<(Running, Vec<File>)>) -> Result<(), LaunchError> {
    recording.take().map_or(Ok(()), |(running, _locks)| Ok(running.recorded().map(drop)?))
}

/// Makes room in a folder that is used again: what the last run wrote is kept under
/// another name, what it read is not read again.
fn clear(folder: &Path) -> io::Result<()> {
    for name in ["stdout", "stderr"] {
        let path = folder.join(name);
        if path.exists() {
            let free = (0..).map(|n| folder.join(format!("{name}.{n}"))).find(|p| !p.exists());
            #[expect(clippy::disallowed_methods, reason = "keeps the output of the run before")]
            free.map_or(Ok(()), |free| std::fs::rename(&path, free))?;
        }
    }
    #[expect(clippy::disallowed_methods, reason = "our own copy of the last prompt")]
    match std::fs::remove_file(folder.join(record::INPUT)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Puts what the agent is started with, and copies of what that puts at risk, into the
/// session's folder.
fn put_beside(folder: &Path, plan: &Plan) -> io::Result<()> {
    for file in &plan.files {
        durable::put(folder, file.name, file.text.as_bytes())?;
    }
    let kept = folder.join(KEPT);
    for path in &plan.keep {
        durable::make_folder(&kept)?;
        let name = path.file_name().and_then(|n| n.to_str()).ok_or(io::ErrorKind::InvalidInput)?;
        durable::put(&kept, name, &std::fs::read(path)?)?;
    }
    Ok(())
}

pub(crate) fn put(folder: &Path, record: &Record) -> io::Result<()> {
    durable::put(folder, record::LAUNCH, serde_json::to_string(record)?.as_bytes())
}

/// Ends what a start that came to nothing left behind; whether all of it is gone.
pub(crate) fn take_back(places: &Places, folder: &Path, handle: &str) -> bool {
    let launched = Launched::read(folder).ok().flatten();
    let house = launched.as_ref().map(Launched::house).unwrap_or_default();
    end(places, launched.as_ref(), vec![(lariat_shim::MARK.to_owned(), handle.to_owned())], &house)
}

/// Ends the script that was started and outlived the agent that it called, not what that agent had left; whether it is
/// gone.
pub(crate) fn end_script(places: &Places, launched: &Launched) -> bool {
    end(places, Some(launched), Vec::new(), &House::default())
}

fn end(places: &Places, launched: Option<&Launched>, marks: Vec<(String, String)>, house: &House) -> bool {
    // An earlier run of it may have been the first to need what others need.
    let Ok(spared) = servers::hosts(places, "", &HashSet::new()) else { return false };
    let root = launched.and_then(|l| l.shim.as_ref()).map(|s| s.agent.clone().into());
    let tree = Tree { root, marks, spared, aside: HashSet::new() };
    tree.end_in(house, &[], Duration::ZERO).is_ok_and(|ended| ended.survivors.is_empty())
}

/// Adds to the journal why nothing runs.
pub(crate) fn journal(places: &Places, what: &str, id: &str, error: &LaunchError) {
    let how = match error {
        LaunchError::Died(_, how, _) => format!("died before it had a session ({how})"),
        e => e.to_string(),
    };
    records::tell(places, what, id, how);
}
