//! What a person has set in `$XDG_CONFIG_HOME/lariat/config.toml`.
//!
//! A file that is not there is no settings. What is wrong in it is told with its
//! line and spoils nothing else: the rest counts. Nothing here looks at an
//! agent's own settings, and nothing is ever written.
//!
//! A section is one entry in [`SECTIONS`] and one `read_…` in [`Settings::of`]:
//! it takes a [`Section`], asks it for the keys it knows, and leaves it to tell
//! what is wrong.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lariat_core::{Untrusted, Warning};
use lariat_sys::file;
use toml::de::DeTable;

use crate::look::Places;

mod described;
mod gateway;
mod hooks;
mod section;

pub use described::{Described, Given, filled};
pub use gateway::{Gateway, Token};
pub use hooks::{Hook, Told};
use section::{Section, Wrong, line_of};

/// More than anybody writes by hand.
const LARGEST: u64 = 1 << 20;
/// The keys at the top of the file.
const SECTIONS: [&str; 11] =
    ["acp", "agent", "gateway", "max", "price", "restore", "retain", "daemon", "webhook", "command", "notify"];

/// All that is set.
#[derive(Clone, Default, Debug)]
pub struct Settings {
    /// How many launched sessions may run at once.
    pub max: Option<usize>,
    /// What is brought back without asking.
    pub restore: Restore,
    /// How long our records of what has ended are kept.
    pub retain: Option<Duration>,
    /// The gateways to ask, in the order of the file.
    pub gateways: Vec<Gateway>,
    /// What models cost, in the order of the file.
    pub prices: Vec<Price>,
    /// Agents that speak the Agent Client Protocol.
    pub acp: Vec<Speaks>,
    /// Agents that are only described.
    pub described: Vec<Described>,
    /// What is wrong in the file.
    pub warnings: Vec<Warning>,
    /// A limit may be missing because of what is wrong.
    pub unread: bool,
    /// Who is to be told of what happens, by the daemon.
    pub hooks: Vec<Hook>,
    /// The port on which the daemon serves HTTP.
    pub http: Option<u16>,
    /// A gateway may be missing from the list because of what is wrong.
    pub gateways_unread: bool,
}

/// What a start of the machine brings back by itself.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Restore {
    /// What is marked to be kept.
    #[default]
    Ask,
    /// Everything that was cut off.
    Auto,
    /// Nothing.
    Never,
}

/// An agent that speaks the Agent Client Protocol: `[[acp]]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Speaks {
    /// Its agent is `acp:<name>`.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
}

/// What a model costs: `[[price]]`, in USD for a million tokens.
#[derive(Clone, PartialEq, Debug)]
pub struct Price {
    /// The model, as the agents name it.
    pub model: String,
    /// For what is sent, and comes from no cache.
    pub input: f64,
    /// For what comes back.
    pub output: f64,
    /// For what is read from the provider's cache; as `input` unless told.
    pub cache_read: f64,
    /// For what is written to it; as `input` unless told.
    pub cache_write: f64,
    /// The day on which that was so.
    pub as_of: Option<String>,
}

impl Settings {
    /// Reads the file. Without one, the environment may name a gateway, as it does
    /// for OpenClaw's own command.
    pub fn read(places: &Places) -> Settings {
        let path = &places.settings;
        let unread = |error: String| Settings {
            warnings: vec![warning(places, path, error)],
            gateways_unread: true,
            unread: true,
            restore: Restore::Never,
            ..Settings::default()
        };
        let mut settings = match file::read_small(path, LARGEST) {
            Ok(bytes) => match String::from_utf8(bytes) {
                Ok(text) => Settings::of(&text, places),
                Err(_) => unread("it is not UTF-8, so nothing in it counts".into()),
            },
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Settings::default(),
            Err(e) => unread(e.to_string()),
        };
        if settings.gateways.is_empty() && !settings.gateways_unread {
            settings.gateways.extend(gateway::from_env(places, &mut settings.warnings));
        }
        settings
    }

    /// What is wrong, where a limit may be missing because of that.
    pub fn unreadable(&self) -> Option<String> {
        let warning = self.warnings.first().filter(|_| self.unread)?;
        let path = warning.path.as_ref().map_or_else(String::new, |p| p.row());
        Some(format!("{path}: {}", warning.error.row()))
    }

    fn of(text: &str, places: &Places) -> Settings {
        let mut settings = Settings::default();
        let top = match DeTable::parse(text) {
            Ok(top) => top,
            Err(e) => {
                let line = e.span().map_or(1, |span| line_of(text, span.start));
                let error = format!("line {line}: {}; nothing in it counts", e.message().replace('\n', " "));
                settings.warnings.push(warning(places, &places.settings, error));
                (settings.gateways_unread, settings.unread, settings.restore) = (true, true, Restore::Never);
                return settings;
            }
        };
        let mut wrong = Wrong { text, found: Vec::new() };
        let mut section = Section { table: top.get_ref(), wrong: &mut wrong, span: 0..0 };
        section.knows(&SECTIONS);
        settings.max = section.number("max").map(|n| n as usize);
        settings.retain = section.time("retain");
        settings.unread = !section.wrong.found.is_empty();
        let told = section.wrong.found.len();
        let restore = section.one_of("restore", RESTORE);
        // A word that is none may have been meant to forbid it.
        let odd = section.wrong.found.len() > told;
        settings.restore = if odd { Restore::Never } else { restore.unwrap_or_default() };
        settings.prices = section.tables("price", read_price);
        let before = section.wrong.found.len();
        let gateways = section.tables("gateway", |entry| gateway::read(entry, places));
        settings.gateways = gateway::unique(gateways, section.wrong);
        settings.gateways_unread = section.wrong.found.len() > before;
        settings.hooks = hooks::read(&mut section, places);
        settings.http = hooks::port(&mut section);
        for (speaks, at) in section.tables("acp", read_acp) {
            if settings.acp.iter().any(|s: &Speaks| s.name == speaks.name) {
                section.wrong.tell(&at, format!("a second acp is called {:?}; this one is left out", speaks.name));
            } else {
                settings.acp.push(speaks);
            }
        }
        for (agent, at) in section.tables("agent", described::read) {
            if settings.described.iter().any(|d: &Described| d.name == agent.name) {
                section.wrong.tell(&at, format!("a second agent is called {:?}; this one is left out", agent.name));
            } else {
                settings.described.push(agent);
            }
        }
        let found = std::mem::take(&mut wrong.found);
        settings.warnings.extend(found.into_iter().map(|error| warning(places, &places.settings, error)));
        settings
    }
}

fn warning(places: &Places, path: &Path, error: String) -> Warning {
    Warning { adapter: "settings", path: Some(places.shown(path)), error: Untrusted::new(error), last_ok: None }
}

const RESTORE: &[(&str, Restore)] = &[("ask", Restore::Ask), ("auto", Restore::Auto), ("never", Restore::Never)];
const PRICE: [&str; 6] = ["model", "input", "output", "cache_read", "cache_write", "as_of"];

/// One price; `None` if it cannot be used as it stands.
fn read_price(entry: &mut Section<'_, '_>) -> Option<Price> {
    let before = entry.wrong.found.len();
    entry.knows(&PRICE);
    ["model", "input", "output"].into_iter().for_each(|key| entry.needs(key, &format!("a price needs its {key}")));
    let model = entry.text("model").map(|(model, _)| model.to_owned());
    let (input, output) = (entry.amount("input"), entry.amount("output"));
    let (read, write) = (entry.amount("cache_read"), entry.amount("cache_write"));
    let as_of = entry.text("as_of").map(|(day, at)| {
        if lariat_core::Time::parse(&format!("{day}T00:00:00Z")).is_none() {
            entry.wrong.tell(&at, format!("as_of {day:?} should be a day like \"2026-11-01\""));
        }
        day.to_owned()
    });
    let (model, input, output) = (model?, input?, output?);
    let price =
        Price { model, input, output, cache_read: read.unwrap_or(input), cache_write: write.unwrap_or(input), as_of };
    (entry.wrong.found.len() == before).then_some(price)
}

/// One agent that speaks ACP; `None` if it cannot be started as it stands.
fn read_acp(entry: &mut Section<'_, '_>) -> Option<(Speaks, Range<usize>)> {
    let before = entry.wrong.found.len();
    entry.knows(&["name", "command"]);
    entry.needs("name", "an acp needs its name");
    let name = entry.name();
    entry.needs("command", "an acp needs its command, like [\"opencode\", \"acp\"]");
    let speaks = Speaks { command: entry.words("command")?, name: name?.to_owned() };
    (entry.wrong.found.len() == before).then(|| (speaks, entry.span.clone()))
}

/// Whether text can be a name in the settings, and so in ids.
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    (1..=40).contains(&name.len()) && name.chars().all(plain)
}

/// `~/` is home; what is relative lies beside the settings.
fn expanded(path: &str, places: &Places) -> PathBuf {
    match path.strip_prefix("~/") {
        Some(rest) => places.home.join(rest),
        None => places.settings.parent().unwrap_or(Path::new("/")).join(path),
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
