//! Where the daemon is: its lock, its socket, its files; and that there is only one.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lariat_adapters::look::Places;
use lariat_engine::servers::DAEMON_LOCK;
use lariat_engine::sockets;
use lariat_protocol::client::{Client, ClientError};
use lariat_protocol::wire::{Hello, PROTOCOL};
use lariat_shim::socket;
use lariat_sys::durable;
use xxhash_rust::xxh3::xxh3_64;

/// How long one that has the lock may take to answer, or to be gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the daemon of this user is.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its lock, never deleted.
    pub lock: PathBuf,
    /// Its socket.
    pub socket: PathBuf,
    /// Its log.
    pub log: PathBuf,
    /// What who asks by HTTP must know.
    pub token: PathBuf,
}

impl Place {
    /// By the environment, as everything else.
    pub fn of(places: &Places) -> Place {
        Place {
            lock: places.state.join(DAEMON_LOCK),
            socket: sockets::folder().join("daemon.sock"),
            log: places.state.join("daemon.log"),
            token: places.state.join("daemon.token"),
        }
    }

    /// Takes the lock; `None` if another daemon has it and answers. One that was killed
    /// has it until its last thread is gone, and one that is just starting does not
    /// answer yet: that is soon over. The lock is let go by whatever ends this process,
    /// and inherited by nothing that it starts.
    ///
    /// Who holds the lock owns the socket, with one exception: systemd may hold that open
    /// for a daemon that it starts when somebody knocks. Such a door is not ours to
    /// replace, so the lock is left to that daemon. The one whom it was `given` to does
    /// not ask there: it would ask itself.
    pub fn claim(&self, places: &Places, given: bool) -> io::Result<Option<File>> {
        let file = open(&self.lock)?;
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) if given || !socket::is_open(&self.socket) => return Ok(Some(file)),
                Ok(()) => file.unlock()?,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(e)) => return Err(e),
            }
            if (!given && self.connect(places).is_ok()) || began.elapsed() > PATIENCE {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether no daemon has the lock, as far as can be told.
    pub fn is_free(&self) -> bool {
        match OpenOptions::new().write(true).open(&self.lock) {
            Ok(file) => file.try_lock().is_ok(),
            Err(e) => e.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Waits until nobody has the lock.
    pub fn wait_until_free(&self) -> io::Result<()> {
        open(&self.lock)?.lock()
    }

    /// Connects to the daemon that is there; `None` if there is none. One that has the lock and whose socket was
    /// taken away listens there again in a moment.
    pub fn find(&self, places: &Places) -> Result<Option<Client>, ClientError> {
        let began = Instant::now();
        loop {
            match self.connect(places) {
                Ok(client) => return Ok(Some(client)),
                Err(e) if e.is_absent() && self.is_free() => return Ok(None),
                Err(e) if e.is_absent() && began.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(10)),
                Err(e) => return Err(e),
            }
        }
    }

    /// Connects to the daemon that is there.
    pub fn connect(&self, places: &Places) -> Result<Client, ClientError> {
        Client::connect(&self.socket, &hello(places))
    }

    /// As [`connect`](Self::connect), for a question that can be answered without.
    pub fn connect_soon(&self, places: &Places) -> Result<Client, ClientError> {
        Client::connect_within(&self.socket, &hello(places), Duration::from_millis(500))
    }
}

fn open(path: &Path) -> io::Result<File> {
    durable::make_folder(path.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// What this program says of itself.
pub fn hello(places: &Places) -> Hello {
    Hello { protocol: PROTOCOL, lariat: env!("CARGO_PKG_VERSION").into(), view: view(places) }
}

/// What this process looks at. Two processes with the same view give the same answer.
fn view(places: &Places) -> String {
    let namespace = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap_or_default();
    let all = format!("{places:?} {:?} {:?}", namespace("pid"), namespace("mnt"));
    format!("{:016x}", xxh3_64(all.as_bytes()))
}
