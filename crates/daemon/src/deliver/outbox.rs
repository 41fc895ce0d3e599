//! What is owed, on disk: one file for each thing that is to be told to somebody.
//!
//! A delivery is owed from the moment its file is durable until somebody has taken
//! it; a crash in between means that it is told once more. It never holds a secret:
//! only what is told, and to whom.

use std::io;
use std::path::{Path, PathBuf};

use lariat_adapters::settings::Told;
use lariat_core::Time;
use lariat_sys::{durable, file};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// No event is longer.
const LARGEST: u64 = 16 << 20;

/// Something that is owed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Owed {
    /// Which; the same however often it is told.
    pub id: String,
    /// How somebody is told: `webhook`, `command` or `desktop`.
    pub how: String,
    /// Who: the address, or the command.
    pub who: String,
    /// The event's name.
    pub event: String,
    /// Since when.
    pub at: Time,
    /// How often it was tried.
    pub tries: u32,
    /// When it is tried next.
    pub next: Time,
    /// Why it was not taken.
    pub error: Option<String>,
    /// What is told.
    pub body: String,
}

impl Owed {
    /// An event that is to be told to somebody.
    pub fn new(told: &Told, event_id: &str, event: &str, at: Time, body: &str) -> Owed {
        let (how, who) = match told {
            Told::Webhook(url) => ("webhook", url.as_str()),
            Told::Command(run) => ("command", run.as_str()),
            Told::Desktop => ("desktop", ""),
        };
        let id = format!("{event_id}-{:08x}", xxh3_64(format!("{how} {who}").as_bytes()) >> 32);
        let (how, who, event, body) = (how.into(), who.into(), event.into(), body.into());
        Owed { id, how, who, event, at, tries: 0, next: at, error: None, body }
    }

    /// Who is to be told.
    pub fn told(&self) -> Told {
        match self.how.as_str() {
            "webhook" => Told::Webhook(self.who.clone()),
            "command" => Told::Command(self.who.clone()),
            _ => Told::Desktop,
        }
    }

    fn name(&self) -> String {
        format!("{}.json", self.id)
    }
}

/// The files.
pub struct Outbox {
    folder: PathBuf,
}

impl Outbox {
    /// In a folder.
    pub fn at(state: &Path) -> Outbox {
        Outbox { folder: state.join("outbox") }
    }

    fn dead_folder(&self) -> PathBuf {
        self.folder.join("dead")
    }

    /// From now on it is owed, whatever crashes.
    pub fn put(&self, owed: &Owed) -> io::Result<()> {
        durable::make_folder(&self.folder)?;
        durable::put(&self.folder, &owed.name(), serde_json::to_string(owed)?.as_bytes())
    }

    /// It is owed no longer.
    pub fn done(&self, owed: &Owed) -> io::Result<()> {
        #[expect(clippy::disallowed_methods, reason = "our own note of what is owed, which is paid")]
        std::fs::remove_file(self.folder.join(owed.name()))
    }

    /// Nobody takes it: it is put aside, to be seen by a person.
    pub fn give_up(&self, owed: &Owed) -> io::Result<()> {
        let dead = self.dead_folder();
        durable::make_folder(&dead)?;
        durable::put(&dead, &owed.name(), serde_json::to_string(owed)?.as_bytes())?;
        self.done(owed)
    }

    /// One of them, as it lies on disk.
    pub fn get(&self, id: &str) -> Option<Owed> {
        let bytes = file::read_small(&self.folder.join(format!("{id}.json")), LARGEST).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// All that is owed, oldest first.
    pub fn owed(&self) -> Vec<Owed> {
        read(&self.folder, false)
    }

    /// Clears up what a crash left, and puts aside what cannot be read.
    pub fn tidy(&self) {
        let _ = durable::sweep(&self.folder); // it is not there, or it stays
        read(&self.folder, true);
    }

    /// All that nobody took, oldest first.
    pub fn dead(&self) -> Vec<Owed> {
        read(&self.dead_folder(), false)
    }

    /// Forgets what nobody took, but for the newest.
    pub fn keep_dead(&self, most: usize) {
        let dead = self.dead();
        for owed in dead.iter().take(dead.len().saturating_sub(most)) {
            #[expect(clippy::disallowed_methods, reason = "our own note, long since given up")]
            let _ = std::fs::remove_file(self.dead_folder().join(owed.name()));
        }
    }
}

fn read(folder: &Path, aside: bool) -> Vec<Owed> {
    let entries = file::Directory::open(folder).and_then(|d| d.entries()).unwrap_or_default();
    let mut found = Vec::new();
    for entry in entries.into_iter().filter(|e| e.name.ends_with(".json")) {
        let path = folder.join(entry.name);
        let owed = file::read_small(&path, LARGEST).ok().and_then(|b| serde_json::from_slice::<Owed>(&b).ok());
        match owed {
            Some(owed) => found.push(owed),
            None if aside => drop(durable::aside(&path)),
            None => {}
        }
    }
    found.sort_by(|a, b| (a.at, &a.id).cmp(&(b.at, &b.id)));
    found
}
