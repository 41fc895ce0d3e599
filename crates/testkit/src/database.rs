//! SQLite databases as text, and built from text.
//!
//! A dump holds what tells of sessions: the tables, their rows and indexes, one statement a line, so
//! that a changed fixture can be read. Tables that may hold secrets are never asked.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, config::DbConfig, types::ValueRef};

/// The tables that tell of sessions.
const TABLES: [&str; 4] = ["project", "session", "message", "part"];

/// The database as statements, with every text passed through `rewrite`.
///
/// # Panics
/// When it cannot be read.
pub fn dump(path: &Path, rewrite: &dyn Fn(&str) -> String) -> String {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut out = String::new();
    for table in TABLES {
        let made = "SELECT sql FROM sqlite_master WHERE tbl_name = ?1 AND sql IS NOT NULL ORDER BY type DESC, name";
        let mut asked = db.prepare(made).expect("a schema");
        let statements = asked.query_map([table], |row| row.get::<_, String>(0)).expect("a schema");
        for statement in statements {
            let words: Vec<String> = statement.expect("a statement").split_whitespace().map(str::to_owned).collect();
            out.push_str(&format!("{};\n", words.join(" ")));
        }
        let mut asked = db.prepare(&format!("SELECT * FROM {table} ORDER BY rowid")).expect("a table");
        let columns = asked.column_count();
        let mut rows = asked.query([]).expect("rows");
        while let Some(row) = rows.next().expect("a row") {
            let values: Vec<String> = (0..columns)
                .map(|i| match row.get_ref(i).expect("a value") {
                    ValueRef::Null => "NULL".to_owned(),
                    ValueRef::Integer(n) => n.to_string(),
                    ValueRef::Real(n) => format!("{n:?}"),
                    ValueRef::Text(text) | ValueRef::Blob(text) => quoted(&rewrite(&String::from_utf8_lossy(text))),
                })
                .collect();
            out.push_str(&format!("INSERT INTO {table} VALUES ({});\n", values.join(", ")));
        }
    }
    out
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Makes a database of these statements.
///
/// # Panics
/// When it cannot be made, or is there already.
pub fn build(path: &Path, sql: &str) {
    assert!(!path.exists(), "{} is there already", path.display());
    let db = Connection::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let all = format!("PRAGMA synchronous = OFF; BEGIN; {sql} COMMIT;");
    db.execute_batch(&all).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

/// Runs statements on a database that is there, and leaves it open: the log is not taken in while it
/// is, as with an agent that runs.
///
/// # Panics
/// When it cannot be opened or a statement fails.
pub fn write(path: &Path, sql: &str) -> Connection {
    let db = Connection::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    db.execute_batch(sql).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    db
}

/// Opens a database as an agent does that has no patience, writes, and dies: its log stays behind.
///
/// # Errors
/// When somebody is in the way at that moment.
pub fn write_and_die(path: &Path, sql: &str) -> Result<(), String> {
    let write = || {
        let db = Connection::open(path)?;
        db.busy_timeout(std::time::Duration::ZERO)?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        db.execute_batch(&format!("PRAGMA journal_mode = WAL; {sql}"))
    };
    write().map_err(|e: rusqlite::Error| e.to_string())
}
