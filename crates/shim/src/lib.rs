//! The shim: one small process per launched session.
//!
//! It starts the agent, holds its terminal, keeps the last of its output on disk,
//! lets viewers in, and writes down how the agent ended. It outlives the command that
//! launched it, its terminal, the daemon, and upgrades of lariat.
//!
//! It never parses what the agent writes, never decides what a session's state is,
//! never ends the agent's tree (that is the engine's), and knows no other session. It
//! has one thread and no runtime: it is what must not fail.
//!
//! Start at [`start`] for how a launcher starts one, [`client`] for how a viewer talks
//! to one, [`record`] for what stands in the folder, [`ring`] to read its output. The
//! shim's own course is below and in `hold`.
//!
//! # Theory of operation
//!
//! ```text
//! launcher ── launch.json ──> shim ──────────── agent (own session, cgroup, terminal)
//!                              │  │ fork           │
//!                              │  └── keeper ──────┤ both hold the terminal's master
//!                              │                   │ and a pidfd of the agent
//!   ready ─ lock ─ socket ─ (the word) ─ agent ─ "running" ─ keeper ─ shim.json ─ "started"
//!                              │
//!                        holds (one poll loop)
//!                              │
//!   end seen ─ terminal drained ─ exit.json ─ viewers told ─ keeper let go ─ gone
//! ```
//!
//! Where no cgroup could be made it stays a few seconds more while the agent's orphans
//! are its children, without the lock: it is how whoever ends the session knows them.
//!
//! The lock on `shim.lock`, a file that is never deleted, makes a shim the only one of
//! its session; it is taken before the socket is touched, and is gone with the process
//! that holds it. A shim that was killed leaves an agent that goes on as long as its
//! terminal's buffer lasts. `--take-over` starts another one: it takes the lock, gets
//! the terminal from the keeper and goes on. It is not the agent's parent any more, so
//! it knows the exit by the pidfd alone, which tells on kernel 6.15 and later; on older
//! ones the record says that it is not known.

mod agent;
pub mod client;
mod hold;
mod keeper;
pub mod record;
pub mod ring;
pub mod socket;
pub mod start;
mod viewer;
pub mod wire;

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub use agent::{AgentError, MARK};
use lariat_core::Time;
use lariat_sys::point::point;
use lariat_sys::process::Identity;
use lariat_sys::signals::{self, ChildEnds};
use lariat_sys::spawn::{self, Side};
use lariat_sys::{cgroup, clock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::WaitOptions;
pub use socket::SocketError;

use agent::{Agent, Ready, Terminal, remove_cgroup};
use hold::Hold;
use keeper::Keeper;
use record::{Exit, Launch, RecordError, Shim};
use ring::Ring;

/// The argument that makes `lariat` a shim.
pub const VERB: &str = "__shim";
/// The argument that makes it take the agent's environment from its standard input.
pub const ENVIRONMENT: &str = "--environment";
/// The argument that makes it do so, make the agent ready that it is told of, and start nothing unless it is told
/// to go.
pub const WHEN_TOLD: &str = "--when-told";
/// The argument that makes it take over from one that was killed.
pub const TAKE_OVER: &str = "--take-over";
/// The argument of the program that is started after the end.
pub const AFTER: &str = "__after";
/// What it says when its agent runs, with who that is.
pub(crate) const RUNNING: &str = "running ";
/// What one says that finds another in its place.
pub(crate) const HELD: &str = "another shim holds this session";
/// How long a shim stays for the orphans of an agent that has ended.
const LINGER: Duration = Duration::from_secs(10);
/// How often one tries to have the lock.
const ASKED: u32 = 10;
/// How long a record that a full disk refuses is tried again.
const TRIES: u32 = 600;

/// Why a shim holds nothing.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// Something it needs of the kernel was refused.
    #[error("cannot {0}: {1}")]
    Io(&'static str, io::Error),
    /// The lock could not be had.
    #[error("cannot lock {0}: {1}")]
    Lock(PathBuf, io::Error),
    /// Another one has it.
    #[error("{HELD} ({0} is locked)")]
    Held(PathBuf),
    /// A record is not there.
    #[error("{0} is not there")]
    Missing(PathBuf),
    /// What was to be taken over has ended.
    #[error("nothing to take over: the agent has ended")]
    Ended,
    /// A record could not be read or written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// No door.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// No agent.
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// Runs as a shim if this command line asks for one: `lariat __shim FOLDER`, or
/// `lariat __shim --take-over FOLDER`. Call it before anything else.
pub fn dispatch(args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.skip(1);
    args.next().filter(|verb| verb == VERB)?;
    Some(main(args))
}

/// The shim, with the arguments after `__shim`.
///
/// It returns at once, having left a copy of itself that nobody waits for; that one
/// says `started` or `failed WHY` on standard output and closes it. See [`start`].
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let (how, folder) = match &args[..] {
        [folder] => (How::Alone, folder),
        [flag, folder] if flag == ENVIRONMENT => (How::Given, folder),
        [flag, folder] if flag == WHEN_TOLD => (How::WhenTold, folder),
        [flag, folder] if flag == TAKE_OVER => (How::TakeOver, folder),
        _ => return ExitCode::from(2),
    };
    let ran = match begin() {
        Ok(Side::Before(_)) => return ExitCode::SUCCESS,
        Ok(Side::Copy) => stand_apart().and_then(|()| go_on(how, Path::new(folder))),
        Err(error) => Err(ShimError::Io("begin", error)),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("failed {error}"));
            ExitCode::FAILURE
        }
    }
}

/// How a shim was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Alone,
    Given,
    WhenTold,
    TakeOver,
}

/// Where a shim has its agent from.
enum Source {
    /// The launcher told of it, and it stands ready.
    Told(Box<(Launch, Result<Ready, AgentError>)>),
    /// The record tells of it; with this in its environment.
    Recorded(Vec<(OsString, OsString)>),
    /// A shim that was killed held it.
    Killed,
}

/// Keeps nothing of whoever started us but its standard input, for a word, and its standard
/// output.
fn begin() -> io::Result<Side> {
    spawn::shed()?;
    signals::restore();
    rustix::stdio::dup2_stderr(OpenOptions::new().read(true).write(true).open("/dev/null")?)?;
    spawn::split()
}

/// Hears what there is to hear, and holds the session to its end.
fn go_on(how: How, folder: &Path) -> Result<(), ShimError> {
    let io = |what| move |e: io::Error| ShimError::Io(what, e);
    let given = || start::given_environment().map_err(io("read its input"));
    let source = match how {
        How::Alone => Source::Recorded(Vec::new()),
        How::Given => Source::Recorded(given()?),
        How::TakeOver => Source::Killed,
        How::WhenTold => {
            let given = given()?;
            let Some(launch) = start::given_launch() else { return Ok(()) };
            let ready = Ready::make(folder, &launch, given);
            point("shim.ready");
            Source::Told(Box::new((launch, ready)))
        }
    };
    run(&folder.canonicalize().map_err(io("find the session's folder"))?, source)
}

/// Lets go of its input, which a copy of ours would hold.
fn hear_no_more() -> Result<(), ShimError> {
    let null = OpenOptions::new().read(true).open("/dev/null").map_err(|e| ShimError::Io("open /dev/null", e))?;
    rustix::stdio::dup2_stdin(&null).map_err(|e| ShimError::Io("let go of its input", e.into()))
}

fn stand_apart() -> Result<(), ShimError> {
    let io = |what| move |e: rustix::io::Errno| ShimError::Io(what, e.into());
    rustix::process::setsid().map_err(io("begin a session"))?;
    // No directory is held up by us.
    rustix::process::chdir("/").map_err(io("leave the directory"))?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(io("become a subreaper"))?;
    rustix::thread::set_name(c"lariat-shim").map_err(io("take a name"))
}

/// Tells the launcher, and is silent from then on.
fn say(word: &str) {
    tell(word);
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// Tells the launcher.
fn tell(word: &str) {
    let line = format!("{}\n", word.replace('\n', " "));
    let mut rest = line.as_bytes();
    while let Ok(n) = rustix::io::write(rustix::stdio::stdout(), rest) {
        rest = &rest[n..];
        if rest.is_empty() {
            break;
        }
    }
}

fn run(folder: &Path, source: Source) -> Result<(), ShimError> {
    let lock = lock(folder)?;
    point("shim.locked");
    let recorded = || -> Result<Launch, ShimError> {
        record::read(folder, record::LAUNCH)?.ok_or_else(|| ShimError::Missing(folder.join(record::LAUNCH)))
    };
    let children = ChildEnds::watch().map_err(|e| ShimError::Io("watch for children", e))?;
    let (launch, held) = match source {
        Source::Told(told) => {
            let (launch, ready) = *told;
            let place = Place::open(folder, &launch);
            point("shim.placed");
            if !start::is_told_to_go() {
                socket::remove(&launch.socket);
                return Ok(());
            }
            hear_no_more()?;
            begin_session(folder, launch, place, ready, true)?
        }
        Source::Recorded(given) => {
            hear_no_more()?;
            let launch = recorded()?;
            let (place, ready) = (Place::open(folder, &launch), Ready::make(folder, &launch, given));
            begin_session(folder, launch, place, ready, false)?
        }
        Source::Killed => {
            hear_no_more()?;
            let launch = recorded()?;
            let held = resume(folder, &launch)?;
            (launch, held)
        }
    };
    let Held { agent, shim, keeper, ring, door } = held;
    let mut hold = Hold::new((folder, &launch, &agent), (shim, keeper), (ring, door, children));
    say("started");
    spawn::trim_memory();
    point("shim.told");

    let ended = hold.run().map_err(|e| ShimError::Io("wait", e))?;
    point("shim.ended");
    hold.drain();
    point("shim.drained");
    let mut exit = Exit { lost: hold.lost(), told: hold.told(), ..Exit::of(&agent.process, ended) };
    let recorded = put_exit(folder, &exit);
    point("shim.exited");
    exit.tell(folder, hold.told());
    let keeper = hold.take_keeper();
    hold.announce(&exit);
    point("shim.announced");
    if recorded {
        if let Some(keeper) = keeper {
            dismiss(&keeper);
        }
        socket::remove(&socket::keeper_path(&launch.socket));
    }
    drop(lock);
    start::after(folder);
    match &agent.cgroup {
        Some(cgroup) => drop(remove_cgroup(cgroup)),
        None => {
            let _ = signals::unblock(); // who is told to end now does
            linger();
        }
    }
    Ok(())
}

/// Stays a while for the orphans of an agent that had no cgroup: whoever is ending the
/// session knows them as our children, and as nobody's once we are gone. The session is
/// not held any more: the lock, the socket and the keeper are gone.
fn linger() {
    let until = Instant::now() + LINGER;
    while Instant::now() < until {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => std::thread::sleep(Duration::from_millis(50)),
            Err(_) => return, // no children
        }
    }
}

/// Whether a shim has this session, be it that it is about to leave.
pub fn is_locked(folder: &Path) -> io::Result<bool> {
    match OpenOptions::new().write(true).open(folder.join(record::LOCK)) {
        Ok(file) => match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(e)) => Err(e),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

fn lock(folder: &Path) -> Result<File, ShimError> {
    let path = folder.join(record::LOCK);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = match options.open(&path) {
        Ok(file) => file,
        Err(e) => return Err(ShimError::Lock(path, e)),
    };
    // Whoever only asks if it is held has it for a moment.
    for _ in 0..ASKED {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(2)),
            Err(TryLockError::Error(e)) => return Err(ShimError::Lock(path, e)),
        }
    }
    Err(ShimError::Held(path))
}

/// What it takes to hold a session.
struct Held {
    agent: Agent,
    shim: Shim,
    keeper: Option<Keeper>,
    ring: Option<Ring>,
    door: UnixListener,
}

/// Where a session's viewers come to, and where its output goes.
struct Place {
    door: UnixListener,
    ring: Option<Ring>,
}

impl Place {
    fn open(folder: &Path, launch: &Launch) -> Result<Place, ShimError> {
        let door = socket::listen(&launch.socket)?;
        point("shim.listening");
        Ok(Place { door, ring: open_ring(folder, launch)? })
    }
}

/// Starts the agent and writes down that it runs. If it does not come to that, the
/// exit record says why. With `early`, the launcher hears of the agent before that is on record.
fn begin_session(
    folder: &Path,
    mut launch: Launch,
    place: Result<Place, ShimError>,
    ready: Result<Ready, AgentError>,
    early: bool,
) -> Result<(Launch, Held), ShimError> {
    record::forget_last_run(folder)?;
    point("shim.forgotten");
    let socket = launch.socket.clone();
    let failed = |error: ShimError| {
        socket::remove(&socket);
        let _ = record::put(folder, record::EXIT, &Exit::not_started(error.to_string()));
        error
    };
    let Place { door, ring } = place.map_err(failed)?;
    let output_from = ring.as_ref().map_or(0, Ring::end);
    let agent = ready.and_then(Ready::go).map_err(|e| failed(e.into()))?;
    point("shim.spawned");
    if early && let Ok(agent) = serde_json::to_string(&agent.process) {
        tell(&format!("{RUNNING}{agent}"));
        std::thread::yield_now(); // whoever is woken by that is put on our processor
    }
    // The agent has them now; what the copy shares should be small.
    (launch.argv, launch.env) = Default::default();
    spawn::trim_memory();
    // Without one the session is held all the same, only less safely.
    let keeper = Keeper::start(folder, &launch.socket, &agent).ok();
    point("shim.kept");
    let shim = shim_record(&launch, &agent, keeper.as_ref(), Time(clock::now_ms()))
        .map(|shim| Shim { output_from, ..shim })
        .and_then(|shim| record::put(folder, record::SHIM, &shim).map_err(ShimError::Record).map(|()| shim));
    match shim {
        Ok(shim) => {
            point("shim.recorded");
            Ok((launch, Held { agent, shim, keeper, ring, door }))
        }
        Err(error) => {
            // A launch that cannot be recorded did not happen: the agent is taken back.
            if let Some(keeper) = keeper {
                dismiss(&keeper);
            }
            agent.undo();
            socket::remove(&socket::keeper_path(&launch.socket));
            Err(failed(error))
        }
    }
}

fn open_ring(folder: &Path, launch: &Launch) -> Result<Option<Ring>, ShimError> {
    let ring = (!launch.headless).then(|| Ring::open(folder, launch.output)).transpose();
    ring.map_err(|e| ShimError::Io("open the output", e))
}

/// Takes over what a killed shim held.
fn resume(folder: &Path, launch: &Launch) -> Result<Held, ShimError> {
    let before: Shim =
        record::read(folder, record::SHIM)?.ok_or_else(|| ShimError::Missing(folder.join(record::SHIM)))?;
    if record::read::<Exit>(folder, record::EXIT)?.is_some() {
        return Err(ShimError::Ended);
    }
    let (pidfd, master) = match keeper::fetch(&launch.socket) {
        Ok(fetched) => fetched,
        // Without a terminal there is nothing that only a keeper has.
        Err(_) if launch.headless => match Identity::from(before.agent.clone()).here() {
            Ok(Some((_, pidfd))) => (pidfd, None),
            Ok(None) => return Err(ShimError::Ended),
            Err(e) => return Err(ShimError::Io("identify the agent", e)),
        },
        Err(e) => return Err(e.into()),
    };
    let terminal = master.map(Terminal::of).transpose().map_err(|e| ShimError::Io("take over the terminal", e))?;
    let agent = Agent::taken_over(before.agent, pidfd, terminal, before.cgroup);
    point("shim.fetched");
    let ring = open_ring(folder, launch)?;
    let door = socket::listen(&launch.socket)?;
    let keeper = Keeper::known(before.keeper).or_else(|| Keeper::start(folder, &launch.socket, &agent).ok());
    let now = Time(clock::now_ms());
    let shim = shim_record(launch, &agent, keeper.as_ref(), before.started_at)?;
    let shim = Shim { taken_over_at: Some(now), output_from: before.output_from, ..shim };
    // The agent is worth more than the record of who holds it: go on without.
    let _ = record::put(folder, record::SHIM, &shim);
    point("shim.taken");
    Ok(Held { agent, shim, keeper, ring, door })
}

fn shim_record(launch: &Launch, agent: &Agent, keeper: Option<&Keeper>, started_at: Time) -> Result<Shim, ShimError> {
    let (me, _) = Identity::open(std::process::id()).map_err(|e| ShimError::Io("identify ourselves", e))?;
    Ok(Shim {
        version: record::VERSION,
        protocol: wire::PROTOCOL,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        shim: me.into(),
        agent: agent.process.clone(),
        keeper: keeper.map(|k| k.process.clone()),
        socket: launch.socket.clone(),
        cgroup: agent.cgroup.clone(),
        cgroup_inode: agent.cgroup.as_deref().and_then(cgroup::inode),
        started_at,
        taken_over_at: None,
        output_from: 0,
    })
}

/// Writes the exit record; on a full disk, until there is room again. Where the folder was deleted there is nothing to
/// write, and nobody to wait for it.
fn put_exit(folder: &Path, exit: &Exit) -> bool {
    let is_deleted = || folder.symlink_metadata().is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    for _ in 0..TRIES {
        if record::put_exit(folder, exit).is_ok() || is_deleted() {
            return true;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    false
}

/// Lets a keeper go that has nothing left to witness, and sees it gone: it waits for
/// the lock that we hold, and must not have it when the next shim of this session asks.
fn dismiss(keeper: &Keeper) {
    let _ = rustix::process::pidfd_send_signal(&keeper.pidfd, rustix::process::Signal::KILL);
    let a_moment = Timespec { tv_sec: 1, tv_nsec: 0 };
    let _ = poll(&mut [PollFd::new(&keeper.pidfd, PollFlags::IN)], Some(&a_moment));
}
