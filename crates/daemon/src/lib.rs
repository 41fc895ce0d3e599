//! The daemon: it watches, and tells whoever wants to know. It adds speed and a
//! voice, and no truth.
//!
//! # Theory of operation
//!
//! ```text
//!  hints ──> watching (one thread) ──> looks ──> changes ──> hub ──> listeners
//!  unix socket, HTTP (a thread each) ──> warm answers, or verbs in processes of their own
//! ```
//!
//! It is plain threads that block. There are few, most of them sleep, and a runtime
//! would weigh more than all of them.
//!
//! It is disposable: nothing that it knows is worth keeping, so `kill -9` is a good
//! way to end it. Nothing is cleaned up at its end, and nothing has to be before its
//! start: there is one by a lock that the kernel lets go, and whoever has the lock
//! replaces the socket, unless systemd holds that open and hands it over. It signals an agent in one case only: to finish what a person
//! asked for and a crash cut short.

mod burning;
pub mod changes;
pub mod deliver;
pub mod fuses;
pub mod http;
pub mod hub;
pub mod log;
pub mod place;
mod serve;
mod status;
pub mod verb;
mod warm;
pub mod watching;

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use lariat_adapters::look::Places;
use lariat_adapters::settings::Settings;
use lariat_core::{Listing, Time};
use lariat_engine::list::DEADLINE;
use lariat_engine::records::Wishes;
use lariat_engine::stop;
use lariat_shim::socket::{self, SocketError};
use lariat_sys::vigil::Woken;
use lariat_sys::{activation, clock};
use rustix::event::{EventfdFlags, eventfd};

use crate::deliver::Deliver;
use crate::http::Http;
use crate::hub::Hub;
use crate::log::Log;
use crate::place::Place;
use crate::warm::Warm;
use crate::watching::Watching;

/// The argument that makes `lariat` the daemon.
pub const VERB: &str = lariat_engine::servers::DAEMON_VERB;

/// How it is to run.
#[derive(Clone, Default, Debug)]
pub struct Options {
    /// The port to serve HTTP on, on loopback.
    pub http: Option<u16>,
}

/// Why there is no daemon.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// There is one.
    #[error("a daemon is running already")]
    Running,
    /// Its door cannot be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// There is no place for its door.
    #[error("{0}: {1}; set XDG_RUNTIME_DIR to a directory of yours, or unset it")]
    Runtime(PathBuf, io::Error),
    /// HTTP cannot be served.
    #[error("port {0} of 127.0.0.1 cannot be served: {1}")]
    Http(u16, io::Error),
    /// Its files cannot be used.
    #[error("{0}: {1}")]
    Files(PathBuf, io::Error),
}

/// A running daemon.
pub struct Daemon {
    places: Places,
    log: Log,
    hub: Hub,
    warm: Warm,
    /// Once it is open.
    http: OnceLock<Http>,
    deliver: Deliver,
    started: Time,
    stopping: OwnedFd,
    talking: AtomicUsize,
    watched: Mutex<Watched>,
    /// Fuses whose doing is under way.
    burning: Mutex<HashSet<String>>,
}

/// What is known of the looks.
#[derive(Clone, Default, Debug)]
struct Watched {
    looks: u64,
    at: Option<Time>,
    took: Duration,
    failing: Vec<(&'static str, String)>,
}

impl Daemon {
    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        let _ = rustix::io::write(&self.stopping, &1u64.to_ne_bytes()); // called already
    }

    /// Whether nobody is at it yet.
    fn begin_burning(&self, fuse: &str) -> bool {
        self.burning.lock().unwrap_or_else(PoisonError::into_inner).insert(fuse.to_owned())
    }

    fn end_burning(&self, fuse: &str) {
        self.burning.lock().unwrap_or_else(PoisonError::into_inner).remove(fuse);
    }

    fn http_address(&self) -> Option<String> {
        self.http.get().map(|http| format!("http://127.0.0.1:{}", http.port))
    }
}

/// Runs the daemon until it is told to stop. `ready` is called once it can be asked and has
/// looked: from then on, whatever changes is told. A first look that hangs holds nobody up.
pub fn run(places: Places, options: &Options, ready: impl FnOnce() + Send + 'static) -> Result<(), DaemonError> {
    let given = activation::take().map_err(|e| DaemonError::Files("the socket that was handed over".into(), e))?;
    lariat_sys::sparing::sparing();
    more_descriptors();
    let place = Place::of(&places);
    let files = |path: &std::path::Path| {
        let path = path.to_owned();
        move |e| DaemonError::Files(path.clone(), e)
    };
    let lock = place.claim(&places, given.is_some()).map_err(files(&place.lock))?.ok_or(DaemonError::Running)?;
    std::mem::forget(lock); // let go by the end of the process, when nothing else of it is left
    let folder = place.socket.parent().unwrap_or(&place.socket).to_owned();
    lariat_sys::durable::make_folder(&folder).map_err(|e| DaemonError::Runtime(folder.clone(), e))?;
    // What is watched must be there: else the folder around it is, and our own log lies in that.
    for ours in [places.state.join("sessions"), places.state.join("claims"), fuses::place(&places)] {
        lariat_sys::durable::make_folder(&ours).map_err(files(&ours))?;
    }
    let listener = match given {
        Some(given) => socket::adopt(given, &place.socket)?,
        None => socket::listen(&place.socket)?,
    };
    let settings = Settings::read(&places);
    let opened =
        options.http.or(settings.http).map(|port| http::open(port, &places).map_err(|e| DaemonError::Http(port, e)));
    let (http, door) = opened.transpose()?.unzip();
    let started = Time(clock::now_ms());
    let epoch = format!("{:x}-{:x}", started.0, std::process::id());
    let stopping = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from);
    let daemon = Arc::new(Daemon {
        log: Log::open(&place.log),
        hub: Hub::new(epoch),
        warm: Warm::new(places.clone()).map_err(files(&folder))?,
        http: http.map_or_else(OnceLock::new, OnceLock::from),
        deliver: Deliver::new(&places.state),
        started,
        stopping: stopping.map_err(files(&folder))?,
        talking: AtomicUsize::new(0),
        watched: Mutex::default(),
        burning: Mutex::default(),
        places,
    });
    note_panics(&daemon);
    let watching = Watching::new(daemon.places.clone(), DEADLINE).map_err(files(&folder))?;
    daemon.log.info("start", format!("lariat {} as process {}", env!("CARGO_PKG_VERSION"), std::process::id()));
    for warning in settings.warnings {
        daemon.log.error("settings", warning.error.raw());
    }
    burning::make_good(&daemon);
    let watcher = Arc::clone(&daemon);
    let (looked, first_look) = mpsc::channel();
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    thread("watch").spawn(move || watch(&watcher, watching, &looked)).map_err(files(&folder))?;
    if let Some(door) = door {
        http::start(&daemon, door).map_err(files(&folder))?;
    }
    deliver::start(&daemon);
    let tell = move || {
        let _ = first_look.recv_timeout(DEADLINE); // then without
        ready();
    };
    thread("ready").stack_size(128 << 10).spawn(tell).map_err(files(&folder))?;
    let served = serve::serve(&daemon, listener, &place.socket);
    daemon.hub.close();
    served.map_err(files(&place.socket))?;
    daemon.log.info("end", "stopped as asked");
    Ok(())
}

/// Every watched process is a descriptor: the common limit of 1024 is soon reached.
fn more_descriptors() {
    const ENOUGH: u64 = 16_384;
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = limit.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    if limit.current.is_some_and(|current| current < most) {
        limit.current = Some(most);
        let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit); // then fewer are watched
    }
}

/// A thread that fails says so in the log, and fails alone.
fn note_panics(daemon: &Arc<Daemon>) {
    let daemon = Arc::clone(daemon);
    std::panic::set_hook(Box::new(move |panic| daemon.log.error("panic", panic.to_string())));
}

/// Watches for as long as the process lives.
fn watch(daemon: &Arc<Daemon>, mut watching: Watching, looked_once: &mpsc::Sender<()>) {
    let mut begun = false;
    loop {
        // A look that fails in our own code must not end all looking.
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| look(daemon, &mut watching, begun)));
        if !begun {
            let _ = looked_once.send(()); // it was waited for no longer
        }
        begun = true;
        lariat_sys::spawn::trim_memory();
        let slept = looked.map_or(Err(io::ErrorKind::Other.into()), |()| rest(daemon, &mut watching));
        if let Err(e) = slept {
            daemon.log.error("watch", e.to_string());
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

/// Sleeps until there must be a look, and tells ends that need none.
fn rest(daemon: &Arc<Daemon>, watching: &mut Watching) -> io::Result<()> {
    loop {
        match watching.sleep()? {
            Woken::Time if watching.may_rest() => continue,
            Woken::Process => {}
            _ => return Ok(()),
        }
        let Some(ends) = watching.ends() else { return Ok(()) };
        let events = daemon.hub.publish_ends(&ends);
        for end in &ends {
            daemon.log.info(end.event, end.subject());
        }
        deliver::owe(daemon, &events);
    }
}

fn look(daemon: &Arc<Daemon>, watching: &mut Watching, begun: bool) {
    let mut seen = watching.look();
    let mut fuses = burning::look(daemon, &seen.listing);
    seen.changes.append(&mut fuses.changes);
    if let Some(at) = fuses.next {
        watching.no_later_than(at);
    }
    for change in &seen.changes {
        daemon.log.info(change.event, change.subject());
    }
    if let Some(at) = finish(daemon, &seen.listing) {
        watching.no_later_than(at);
    }
    if !begun {
        daemon.log.info("watch", format!("{} sessions live or may live", seen.listing.sessions.len()));
    }
    let at = seen.listing.at;
    let events = daemon.hub.publish(&seen.changes, seen.listing);
    deliver::owe(daemon, &events);
    burning::told(daemon, fuses);
    let mut watched = daemon.watched();
    watched.looks += 1;
    (watched.at, watched.took, watched.failing) = (Some(at), watching.took(), watching.failing());
}

/// Finishes kills that a crash cut short: those that whoever asked has had all the
/// time for that he said he would take. When to look again, if some have time left.
fn finish(daemon: &Daemon, listing: &Listing) -> Option<Time> {
    let wishes = Wishes::read(&daemon.places);
    let unfinished = listing.sessions.iter().filter_map(|s| {
        let wish = wishes.by_id.get(s.id.raw()).filter(|w| stop::is_unfinished(w, s) && !s.shared)?;
        wish.intent.until
    });
    let last = unfinished.max()?;
    if last.0 >= clock::now_ms() {
        return Some(Time(last.0 + 1));
    }
    for (id, outcome) in stop::finish(&daemon.places, &listing.sessions) {
        match outcome {
            Ok(outcome) => daemon.log.info("finished a kill", format!("{id}: {outcome:?}")),
            Err(e) => daemon.log.error("finishing a kill", format!("{id}: {e}")),
        }
    }
    Some(Time(clock::now_ms() + 1000))
}

/// Says on standard output that it is ready, or why it is not, and lets go of it: for
/// whoever started it and waits.
pub fn tell_starter(text: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}
