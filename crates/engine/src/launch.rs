//! Launching an agent so that it outlives whoever launched it.
//!
//! # Theory of operation
//!
//! 1. Under one lock of ours: who stands in that directory, or above or below
//!    it? Any live agent does, whoever started it. If one does, the launch is
//!    refused.
//! 2. The folder is made and what is to be started is stored, with the wish that
//!    it shall run.
//! 3. The shim starts the agent; the lock is let go once the agent can be seen.
//! 4. The agent's own id is known: chosen by us where the agent allows it, else
//!    read from what it shows. Only then is there an answer.
//!
//! A launch that dies before it has an id is an error with the agent's last
//! words, and leaves no row behind.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lariat_adapters::look::{Places, Scope};
use lariat_adapters::{Adapter, Ask};
use lariat_core::{Intent, Time, Want, Witness};
use lariat_shim::record::{self, Launch, Shim, VERSION};
use lariat_shim::start::{self, StartError};
use lariat_sys::point::point;
use lariat_sys::tree::Tree;
use lariat_sys::{clock, durable};

use crate::claims;
use crate::evict;
use crate::launched::Record;
use crate::list::{Question, list};
use crate::records::{self, Entry, Wish};
use crate::stop;
use crate::worktree::{self, Worktree, WorktreeError};

/// How long an agent may take to show its id.
const PATIENCE: Duration = Duration::from_secs(30);
/// An agent that lives so long did not die of its arguments.
const AT_ONCE: Duration = Duration::from_millis(700);

/// What to launch.
#[derive(Clone, Debug)]
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
    /// The worktree that was made for it, and that `cwd` lies in.
    pub worktree: Option<Worktree>,
}

/// What was launched.
#[derive(Clone, Debug)]
pub struct Started {
    /// The name for it.
    pub handle: String,
    /// The agent's own id.
    pub native_id: String,
    /// Its process.
    pub pid: u32,
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
    /// Somebody works there.
    #[error("{0}; wait for it, give it a --worktree of its own, choose another --cwd, or use --force")]
    Claimed(String),
    /// Its worktree could not be made.
    #[error(transparent)]
    Worktree(#[from] WorktreeError),
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
}

/// Launches an agent.
pub fn launch(question: &Question, order: &Order) -> Result<Started, LaunchError> {
    let places = &question.places;
    let adapter = find(&order.agent)?;
    stop::finish(places, &list(Question { scope: Scope::Live, ..question.clone() }).listing.sessions);
    let cwd = order.cwd.canonicalize().ok().filter(|p| p.is_dir());
    let cwd = cwd.ok_or_else(|| LaunchError::NoDirectory(order.cwd.clone()))?;
    let program = program(adapter)?;
    let plan = adapter.start(&order.ask).map_err(LaunchError::Impossible)?;
    let mut argv = vec![program.to_string_lossy().into_owned()];
    argv.extend(plan.arguments);

    let files = |path: &Path| {
        let path = path.to_owned();
        move |e| LaunchError::Files(path.clone(), e)
    };
    durable::make_folder(&places.state).map_err(files(&places.state))?;
    let lock = claims::guard(places).map_err(files(&places.state))?;
    if !order.force {
        free(question, &cwd)?;
    }
    point("launch.claimed");
    evict::forget(&evict::old(places, evict::RETAIN));
    let (handle, folder) =
        make_folder(places, order.worktree.as_ref().map(|w| w.handle.as_str())).map_err(files(&places.state))?;
    let record = Record {
        launch: Launch {
            version: VERSION,
            handle: handle.clone(),
            argv,
            cwd: cwd.clone(),
            env: Vec::new(), // handed over by pipe: it may hold secrets
            headless: order.ask.headless,
            rows: 24,
            cols: 80,
            socket: socket(&handle).map_err(files(&folder))?,
            output: 4 << 20,
        },
        agent: adapter.name().to_owned(),
        native_id: plan.native_id,
        name: order.ask.name.clone(),
        group: order.group.clone(),
        prompt: order.ask.prompt.clone(),
        created_at: Time(clock::now_ms()),
        worktree: order.worktree.clone(),
    };
    if let Some(input) = &plan.input {
        durable::put(&folder, record::INPUT, input.as_bytes()).map_err(files(&folder))?;
    }
    put(&folder, &record).map_err(files(&folder))?;
    if let Some(id) = &record.native_id {
        records::put_in(&folder, &wish_to_run(adapter, id, None)).map_err(files(&folder))?;
    }
    point("launch.stored");
    let shim = start::start(&own_program().map_err(files(&folder))?, &folder, &environment(&plan.env, &order.env));
    drop(lock); // from here on the agent can be seen where it stands
    let started = shim.map_err(LaunchError::from).and_then(|shim| know(question, adapter, &folder, record, &shim));
    let told = match &started {
        Ok(s) => format!("process {} in {}", s.pid, cwd.display()),
        Err(LaunchError::Died(_, how, _)) => format!("died before it had a session ({how})"),
        Err(e) => e.to_string(),
    };
    if started.is_err() {
        take_back(&folder, &handle);
    }
    let id = started.as_ref().map_or_else(|_| order.agent.clone(), |s| format!("{}:{}", adapter.name(), s.native_id));
    let by = std::env::var("USER").unwrap_or_else(|_| "unknown".into());
    let _ = records::note(places, &Entry { at: Time(clock::now_ms()), what: "launch".into(), id, by, how: told });
    started
}

fn find(name: &str) -> Result<&'static dyn Adapter, LaunchError> {
    let name = if name == "claude-code" { "claude" } else { name };
    let all = lariat_adapters::all();
    let names = || all.iter().map(|a| a.name()).collect::<Vec<_>>().join(", ");
    all.iter().find(|a| a.name() == name).copied().ok_or_else(|| LaunchError::NoAgent(name.into(), names()))
}

fn program(adapter: &'static dyn Adapter) -> Result<PathBuf, LaunchError> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let runs = |p: &PathBuf| p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let name = adapter.programs().first().copied().unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(runs);
    let found = found.ok_or_else(|| LaunchError::NoProgram(name.into()))?;
    Ok(adapter.native(&found).filter(runs).unwrap_or(found))
}

fn own_program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// Whether nobody works in a directory, above it or below it.
fn free(question: &Question, cwd: &Path) -> Result<(), LaunchError> {
    let (holders, warnings) = claims::holders(question);
    if let Some(w) = warnings.iter().find(|w| w.adapter == "lariat") {
        let path = w.path.as_ref().map_or("", |p| p.raw());
        return Err(LaunchError::Claimed(format!("it cannot be told who holds it, {path} is unreadable")));
    }
    match claims::in_the_way(holders.iter(), cwd) {
        Some(holder) => Err(LaunchError::Claimed(format!("{}: {}", holder.path.display(), holder.who))),
        None => Ok(()),
    }
}

/// Our environment for the agent, without what names a session: a launch from
/// within another session's tool is not part of that one.
fn environment(needed: &[(String, String)], more: &[(String, String)]) -> Vec<(OsString, OsString)> {
    let marks: Vec<String> = lariat_adapters::all().iter().flat_map(|a| a.marks("")).map(|(name, _)| name).collect();
    let is_mark = |name: &str| marks.iter().any(|m| m == name) || matches!(name, "CLAUDE_PID" | "CODEX_TOOL_CALL_ID");
    let ours = std::env::vars_os()
        .filter(|(name, _)| !name.as_encoded_bytes().starts_with(b"LARIAT_") && !name.to_str().is_some_and(is_mark));
    ours.chain(needed.iter().chain(more).map(|(name, value)| (name.into(), value.into()))).collect()
}

/// Where viewers connect: in the runtime directory, which only we may enter.
fn socket(handle: &str) -> io::Result<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_absolute());
    let folder = match runtime {
        Some(runtime) => runtime.join("lariat"),
        None => std::env::temp_dir().join(format!("lariat-{}", own_user())),
    };
    durable::make_folder(&folder)?;
    Ok(folder.join(format!("{handle}.sock")))
}

fn own_user() -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").map_or(0, |m| m.uid())
}

const FIRST: [&str; 32] = [
    "amber", "brave", "brisk", "calm", "clear", "coral", "crisp", "dapper", "eager", "early", "fair", "fleet", "frank",
    "glad", "grand", "hardy", "keen", "lively", "lucid", "mellow", "merry", "neat", "noble", "plain", "proud", "quick",
    "quiet", "sharp", "sober", "stout", "swift", "warm",
];
const SECOND: [&str; 32] = [
    "badger", "bison", "crane", "curlew", "dove", "egret", "falcon", "finch", "fox", "gull", "hare", "heron", "ibis",
    "jay", "kestrel", "lark", "lynx", "marten", "merlin", "newt", "otter", "owl", "plover", "puffin", "quail", "raven",
    "robin", "stoat", "swan", "tern", "vole", "wren",
];

/// A folder under the wanted name, if there is one and it is free, else under any.
fn make_folder(places: &Places, wanted: Option<&str>) -> io::Result<(String, PathBuf)> {
    let sessions = places.state.join("sessions");
    let wanted = wanted.filter(|w| !sessions.join(w).exists()).map(str::to_owned);
    let handle = wanted.map_or_else(|| free_handle(places), Ok)?;
    let folder = sessions.join(&handle);
    durable::make_folder(&folder)?;
    Ok((handle, folder))
}

/// A name that no session and no worktree has.
pub fn free_handle(places: &Places) -> io::Result<String> {
    let sessions = places.state.join("sessions");
    let mut seed = random()?;
    for round in 0..10_000u32 {
        let (a, b) = (seed as usize % FIRST.len(), (seed >> 8) as usize % SECOND.len());
        let number = if round < 64 { String::new() } else { format!("-{round}") };
        let handle = format!("{}-{}{number}", FIRST[a], SECOND[b]);
        if !sessions.join(&handle).exists() && !worktree::is_taken(places, &handle) {
            return Ok(handle);
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 7 ^ seed << 3;
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn random() -> io::Result<u64> {
    let uuid = lariat_adapters::new_uuid()?;
    u64::from_str_radix(&uuid[24..36], 16).map_err(io::Error::other)
}

fn put(folder: &Path, record: &Record) -> io::Result<()> {
    durable::put(folder, record::LAUNCH, serde_json::to_string(record)?.as_bytes())
}

/// Waits until the agent's own id is known, stores it with the wish to run.
fn know(
    question: &Question,
    adapter: &'static dyn Adapter,
    folder: &Path,
    mut record: Record,
    shim: &Shim,
) -> Result<Started, LaunchError> {
    let began = Instant::now();
    let chosen = record.native_id.is_some();
    let native_id = loop {
        let ended = record::read::<record::Exit>(folder, record::EXIT).ok().flatten();
        // An id that we chose says nothing: the agent must have come up with it, or
        // at least not have died of it at once.
        let id = match &record.native_id {
            Some(id) => (is_recorded(question, adapter, id) || began.elapsed() > AT_ONCE).then(|| id.clone()),
            None => shown(question, adapter, folder, shim),
        };
        match (id, ended) {
            (Some(id), None) => break id,
            (Some(id), Some(_)) if is_recorded(question, adapter, &id) => break id,
            (_, Some(exit)) => return Err(died(adapter, folder, &exit)),
            (None, None) => {}
        }
        if began.elapsed() > PATIENCE {
            return Err(LaunchError::NoId(adapter.name().into(), shim.agent.pid, PATIENCE));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let files = |e| LaunchError::Files(folder.to_owned(), e);
    record.native_id = Some(native_id.clone());
    if !chosen {
        put(folder, &record).map_err(files)?;
    }
    if !chosen {
        // A stop that came first stands: of equal wishes the stop wins.
        records::put_in(folder, &wish_to_run(adapter, &native_id, Some(shim))).map_err(files)?;
    }
    point("launch.known");
    Ok(Started { handle: record.launch.handle, native_id, pid: shim.agent.pid })
}

/// Whether the agent itself has written anything of a session.
fn is_recorded(question: &Question, adapter: &'static dyn Adapter, native_id: &str) -> bool {
    let answer = list(Question { scope: Scope::All, ..question.clone() });
    let session = answer.listing.sessions.iter().find(|s| s.agent == adapter.name() && s.native_id.raw() == native_id);
    let native = |w: Witness| matches!(w, Witness::Registry | Witness::Store | Witness::Hook | Witness::Gateway);
    session.is_some_and(|s| s.because.iter().any(|(_, o)| native(o.witness)))
}

fn wish_to_run(adapter: &'static dyn Adapter, native_id: &str, shim: Option<&Shim>) -> Wish {
    Wish {
        id: format!("{}:{native_id}", adapter.name()),
        intent: Intent { want: Want::Run, generation: 1, at: Time(clock::now_ms()), found_live: true, until: None },
        verb: "launch".into(),
        process: shim.map(|s| s.agent.clone()),
    }
}

/// The id that the agent shows: in its first output, or by what its process holds.
fn shown(question: &Question, adapter: &'static dyn Adapter, folder: &Path, shim: &Shim) -> Option<String> {
    let output = lariat_sys::file::open(&folder.join("stdout")).ok().and_then(|(file, _)| {
        use io::BufRead as _;
        io::BufReader::new(file).lines().next()?.ok()
    });
    output.and_then(|line| adapter.id_in_output(&line)).or_else(|| {
        let answer = list(Question { scope: Scope::Live, ..question.clone() });
        let (pid, start) = (Some(shim.agent.pid), Some(shim.agent.start));
        let mine =
            answer.listing.sessions.iter().find(|s| s.agent == adapter.name() && s.pid == pid && s.start == start);
        mine.map(|s| s.native_id.raw().to_owned())
    })
}

fn died(adapter: &'static dyn Adapter, folder: &Path, exit: &record::Exit) -> LaunchError {
    let how = match (exit.code, exit.signal, &exit.error) {
        (Some(code), _, _) => format!("code {code}"),
        (_, Some(signal), _) => format!("signal {signal}"),
        (_, _, Some(error)) => error.clone(),
        _ => "how is not known".into(),
    };
    let words = last_words(folder);
    let words = if words.is_empty() { String::new() } else { format!(":\n{words}") };
    LaunchError::Died(adapter.name().into(), how, words)
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

/// Takes a launch back that came to nothing: ends what it started, and forgets
/// it. What would not end keeps its folder.
fn take_back(folder: &Path, handle: &str) {
    let shim: Option<Shim> = record::read(folder, record::SHIM).ok().flatten();
    let tree = Tree {
        root: shim.map(|s| s.agent.into()),
        marks: vec![(lariat_shim::MARK.to_owned(), handle.to_owned())],
        spared: HashSet::new(),
    };
    if tree.end(&[], Duration::ZERO).is_ok_and(|ended| ended.survivors.is_empty()) {
        #[expect(clippy::disallowed_methods, reason = "our own record of a launch that came to nothing")]
        let _ = std::fs::remove_dir_all(folder);
    }
}
