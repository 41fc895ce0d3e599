//! OpenCode's database as a file: opened to read, never held.
//!
//! A database that is being written is read as of one moment, through its
//! write-ahead log. SQLite would make that log and its index where there are
//! none; but without a log the file is complete, and is read as it stands; and
//! a log that has no index is read to its end, without one beside it. If either
//! has changed meanwhile, both are read again.

use std::cell::Cell;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lariat_core::Time;
use lariat_sys::file::{self, Key};
use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};

use super::record;
use super::second;

/// How long a lock is waited for. Writers hold theirs for milliseconds.
const PATIENCE: Duration = Duration::from_millis(400);
/// How soon it is asked again.
const AGAIN: Duration = Duration::from_millis(5);
/// Making a database takes OpenCode less than this.
const MAKING_MS: u64 = 5000;

/// Asks a database, again if it was replaced or written while it was read as a
/// plain file. One that is being made at this time is none yet.
pub fn with<T>(path: &Path, now: Option<Time>, ask: impl Fn(&Db) -> rusqlite::Result<T>) -> Result<Option<T>, String> {
    let (began, mut replaced) = (Instant::now(), 0);
    while replaced < 3 {
        // An index that is being rebuilt cannot be read; one that nobody rebuilds is done without.
        let waits = began.elapsed() < PATIENCE;
        let db = match Db::open(path, !waits) {
            Ok(db) if db.is_unknown() => match now {
                Some(now) if db.is_being_made(now).map_err(|e| why(&e))? => return Ok(None),
                _ => return Err("it has no table of sessions that this version knows".into()),
            },
            Ok(db) => db,
            Err(Open::Absent) => return Ok(None),
            Err(Open::Failed(e)) if waits && is_index(&e) => {
                std::thread::sleep(AGAIN);
                continue;
            }
            Err(Open::Failed(e)) => return Err(why(&e)),
            Err(Open::Other(why)) => return Err(why),
        };
        match ask(&db) {
            Err(e) if waits && is_index(&e) => std::thread::sleep(AGAIN),
            told if db.is_still(path) => return told.map(Some).map_err(|e| why(&e)),
            _ => replaced += 1,
        }
    }
    Err("it was replaced again and again while it was read".into())
}

fn is_index(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::ReadOnly)
}

pub fn why(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(e, _)
            if matches!(e.code, rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) =>
        {
            "the database is locked".into()
        }
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(), // and not all that was asked
        e => e.to_string(),
    }
}

enum Open {
    Absent,
    Failed(rusqlite::Error),
    Other(String),
}

/// An open database.
pub struct Db {
    pub connection: Connection,
    pub columns: HashSet<String>,
    /// It has what was asked by the second interface.
    pub second: bool,
    /// Of its file, when it was opened.
    size: u64,
    /// A row has no id.
    pub nameless: Cell<bool>,
    /// The file and its log, if they are read without anybody being kept out.
    free: Option<Files>,
    pub path: PathBuf,
}

pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A database, and its log if there is anything in it.
type Files = (Key, Option<Key>);

fn files(path: &Path) -> io::Result<Files> {
    let (_, key) = file::open(path)?;
    let log = match file::open(&beside(path, "-wal")) {
        _ if key.size == 0 => None, // to one of no size belongs no log: SQLite would remove it
        Ok((_, log)) => Some(log).filter(|log| log.size > 0),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(io::Error::new(e.kind(), format!("its write-ahead log: {e}"))),
    };
    // Read by root, SQLite gives its log to the owner of the database anew, each time.
    Ok((key, log.map(|log| Key { ctime: log.mtime, ..log })))
}

impl Db {
    /// Opens it; with `anyhow`, also if the index of its log cannot be read.
    fn open(path: &Path, anyhow: bool) -> Result<Db, Open> {
        // SQLite would wait for ever at a pipe of that name.
        let (key, log) = match files(path) {
            Ok(files) => files,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Open::Absent),
            Err(e) => return Err(Open::Other(e.to_string())),
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        // Whoever opens a database first after a crash rebuilds the index of its log, and an agent that starts
        // at that moment finds it locked and gives up. So we never are the first: we only read the index; and where
        // there is none, or nobody rebuilds it, we have one in memory, and lock nothing (`unix-none`).
        let indexed = log.is_some() && !anyhow && beside(path, "-shm").exists();
        let (how, free) = match log {
            None => ("immutable=1", Some((key, None))),
            Some(_) if indexed => ("mode=ro&readonly_shm=1", None),
            Some(log) => ("mode=ro&vfs=unix-none", Some((key, Some(log)))),
        };
        let opened = || {
            let connection = Connection::open_with_flags(format!("file:{}?{how}", escaped(path)), flags)?;
            connection.busy_timeout(PATIENCE)?;
            if log.is_some() && !indexed {
                // Who locks nothing seems to be the last to close it, and would take the log in.
                connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
                connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE")?;
            }
            let mut asked = connection.prepare("SELECT name FROM pragma_table_info('session')")?;
            let columns = asked.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
            drop(asked);
            let second = second::is_there(&connection)?;
            Ok(Db {
                connection,
                columns,
                second,
                size: key.size,
                nameless: Cell::new(false),
                free,
                path: path.to_owned(),
            })
        };
        opened().map_err(Open::Failed)
    }

    /// Whether it is no database of sessions that we know, and not a mere file either.
    fn is_unknown(&self) -> bool {
        self.size > 0 && !self.columns.contains("directory")
    }

    /// Whether OpenCode is at making its tables: there is none yet but of what it made, and that was just now.
    fn is_being_made(&self, now: Time) -> rusqlite::Result<bool> {
        let others = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '%migration%'";
        let written = [self.path.clone(), beside(&self.path, "-wal")];
        let is_new = written.iter().filter_map(|path| file::open(path).ok()).any(|(_, key)| {
            let changed = Time(key.mtime / 1_000_000);
            changed.is_near(now, MAKING_MS)
        });
        Ok(is_new && self.connection.query_row(others, [], |row| row.get::<_, i64>(0))? == 0)
    }

    fn is_still(&self, path: &Path) -> bool {
        self.free.is_none_or(|before| files(path).is_ok_and(|now| now == before))
    }

    /// The connection, for what is said in a session.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// A text, whatever its bytes.
pub fn text(row: &Row<'_>, i: usize) -> Option<String> {
    match row.get_ref(i).ok()? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

/// A whole number.
pub fn number(row: &Row<'_>, i: usize) -> Option<i64> {
    match row.get_ref(i).ok()? {
        ValueRef::Integer(n) => Some(n),
        ValueRef::Real(n) => Some(n as i64),
        _ => None,
    }
}

/// A time.
pub fn moment(row: &Row<'_>, i: usize) -> Option<i64> {
    number(row, i).map(record::moment)
}

pub fn real(row: &Row<'_>, i: usize) -> Option<f64> {
    match row.get_ref(i).ok()? {
        ValueRef::Integer(n) => Some(n as f64),
        ValueRef::Real(n) => Some(n),
        _ => None,
    }
}

/// A path as part of a URI.
fn escaped(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'-' | b'_' | b'~');
    let bytes = path.as_os_str().as_bytes().iter();
    bytes.map(|&b| if plain(b) { (b as char).to_string() } else { format!("%{b:02X}") }).collect()
}
