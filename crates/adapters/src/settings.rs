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
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::look::Places;

#[path = "settings_hooks.rs"]
mod hooks;

#[path = "settings_described.rs"]
mod described;

pub use described::{Described, Given, filled};
pub use hooks::{Hook, Told};

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

/// A gateway that runs sessions: `[[gateway]]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gateway {
    /// What its sessions' ids begin with. One gateway may go without.
    pub name: Option<String>,
    /// The host to connect to.
    pub address: String,
    /// The port.
    pub port: u16,
    /// The machine behind it, if that is not this one.
    pub host: Option<String>,
    /// Where its token is.
    pub token: Token,
    /// The file with the key by which it knows this client.
    pub device: Option<PathBuf>,
}

/// An agent that speaks the Agent Client Protocol: `[[acp]]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Speaks {
    /// Its agent is `acp:<name>`.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
}

/// Where a token is; never the token itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Token {
    /// None is needed.
    None,
    /// In a variable of the environment.
    Env(String),
    /// In a file that only its owner may read.
    File(PathBuf),
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

impl Gateway {
    /// `ws://127.0.0.1:18789`.
    pub fn url(&self) -> String {
        let colon = self.address.contains(':');
        let address = if colon { format!("[{}]", self.address) } else { self.address.clone() };
        format!("ws://{address}:{}", self.port)
    }
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
            settings.gateways.extend(from_env(places, &mut settings.warnings));
        }
        settings
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
        let gateways = section.tables("gateway", |entry| read_gateway(entry, places));
        settings.gateways = unique(gateways, section.wrong);
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

/// What is wrong in a file, each with its line.
struct Wrong<'a> {
    text: &'a str,
    found: Vec<String>,
}

impl Wrong<'_> {
    fn tell(&mut self, at: &Range<usize>, what: impl AsRef<str>) {
        self.found.push(format!("line {}: {}", line_of(self.text, at.start), what.as_ref()));
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count() + 1
}

/// A table of the file.
struct Section<'a, 't> {
    table: &'a DeTable<'t>,
    wrong: &'a mut Wrong<'t>,
    span: Range<usize>,
}

impl<'a, 't> Section<'a, 't> {
    /// Tells of every key that is none of these.
    fn knows(&mut self, keys: &[&str]) {
        for key in self.table.keys().filter(|k| !keys.contains(&k.get_ref().as_ref())) {
            let near = nearest(key.get_ref(), keys).map_or_else(String::new, |n| format!(", did you mean {n:?}?"));
            self.wrong.tell(&key.span(), format!("{:?} is no setting{near}", key.get_ref()));
        }
    }

    fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'t>>> {
        self.table.iter().find(|(k, _)| k.get_ref() == key).map(|(_, v)| v)
    }

    /// A text, with its place.
    fn text(&mut self, key: &str) -> Option<(&'a str, Range<usize>)> {
        let value = self.value(key)?;
        match value.get_ref().as_str() {
            Some(text) if !text.is_empty() => Some((text, value.span())),
            Some(_) => {
                self.wrong.tell(&value.span(), format!("{key} is empty"));
                None
            }
            None => {
                self.wrong.tell(&value.span(), format!("{key} is {} and should be text", a(value.get_ref())));
                None
            }
        }
    }

    /// A list of texts, the first of them not empty.
    fn words(&mut self, key: &str) -> Option<Vec<String>> {
        let value = self.value(key)?;
        let items = value.get_ref().as_array();
        let texts = items.and_then(|a| a.iter().map(|i| i.get_ref().as_str().map(str::to_owned)).collect());
        let texts = texts.filter(|t: &Vec<String>| t.first().is_some_and(|first| !first.is_empty()));
        if texts.is_none() {
            self.wrong.tell(&value.span(), format!("{key} should be a list like [\"opencode\", \"acp\"]"));
        }
        texts
    }

    /// A whole number above zero.
    fn number(&mut self, key: &str) -> Option<u32> {
        let value = self.value(key)?;
        let number = value.get_ref().as_integer().and_then(|n| n.as_str().replace('_', "").parse().ok());
        let number = number.filter(|n| *n > 0);
        if number.is_none() {
            self.wrong.tell(&value.span(), format!("{key} should be a whole number above 0"));
        }
        number
    }

    /// A number that is not below zero.
    fn amount(&mut self, key: &str) -> Option<f64> {
        let value = self.value(key)?;
        let integer = value.get_ref().as_integer().map(|n| n.as_str());
        let text = integer.or_else(|| value.get_ref().as_float().map(|n| n.as_str()));
        let amount = text.and_then(|text| text.replace('_', "").parse().ok());
        let amount = amount.filter(|n: &f64| n.is_finite() && *n >= 0.0);
        if amount.is_none() {
            self.wrong.tell(&value.span(), format!("{key} should be a number, in USD for a million tokens"));
        }
        amount
    }

    /// A time like `7d`.
    fn time(&mut self, key: &str) -> Option<Duration> {
        let (text, at) = self.text(key)?;
        let time = lariat_core::time::duration(text);
        time.map_err(|why| self.wrong.tell(&at, format!("{key} should be {why}"))).ok()
    }

    /// One of a few words.
    fn one_of<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Option<T> {
        let (text, at) = self.text(key)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let words: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
            self.wrong.tell(&at, format!("{key} {text:?}: one of {}", words.join(", ")));
        }
        found
    }

    /// A list of texts, each with its place.
    fn texts(&mut self, key: &str) -> Option<Vec<(&'a str, Range<usize>)>> {
        let value = self.value(key)?;
        let Some(list) = value.get_ref().as_array() else {
            self.wrong.tell(&value.span(), format!("{key} is {} and should be a list of texts", a(value.get_ref())));
            return None;
        };
        let mut found = Vec::new();
        for item in list.iter() {
            match item.get_ref().as_str() {
                Some(text) => found.push((text, item.span())),
                None => self.wrong.tell(&item.span(), format!("{key} has {} and should have texts", a(item.get_ref()))),
            }
        }
        Some(found)
    }

    /// One table: `[key]`.
    fn table<T>(&mut self, key: &str, read: impl FnOnce(&mut Section<'_, 't>) -> Option<T>) -> Option<T> {
        let value = self.value(key)?;
        let Some(table) = value.get_ref().as_table() else {
            self.wrong.tell(&value.span(), format!("{key} is {} and should be a table, [{key}]", a(value.get_ref())));
            return None;
        };
        read(&mut Section { table, wrong: self.wrong, span: value.span() })
    }

    /// Every table of a list of them: `[[key]]`.
    fn tables<T>(&mut self, key: &str, mut read: impl FnMut(&mut Section<'_, 't>) -> Option<T>) -> Vec<T> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let Some(list) = value.get_ref().as_array() else {
            self.wrong.tell(&value.span(), format!("write [[{key}]] with two brackets: there may be several"));
            return Vec::new();
        };
        let mut found = Vec::new();
        for item in list.iter() {
            let Some(table) = item.get_ref().as_table() else {
                self.wrong.tell(&item.span(), format!("{key} is {} and should be a table", a(item.get_ref())));
                continue;
            };
            found.extend(read(&mut Section { table, wrong: self.wrong, span: item.span() }));
        }
        found
    }
}

fn a(value: &DeValue<'_>) -> String {
    let kind = value.type_str();
    format!("{} {kind}", if kind.starts_with(['a', 'i']) { "an" } else { "a" })
}

const RESTORE: &[(&str, Restore)] = &[("ask", Restore::Ask), ("auto", Restore::Auto), ("never", Restore::Never)];
const GATEWAY: [&str; 6] = ["name", "url", "host", "token_file", "token_env", "device"];

/// One gateway; `None` if it cannot be asked as it stands.
fn read_gateway(entry: &mut Section<'_, '_>, places: &Places) -> Option<(Gateway, Range<usize>)> {
    let before = entry.wrong.found.len();
    entry.knows(&GATEWAY);
    let name = entry.text("name");
    if let Some((name, at)) = &name
        && !is_name(name)
    {
        entry.wrong.tell(at, format!("name {name:?}: small letters, digits, '-', '_' and '.', 40 at most"));
    }
    let place = match entry.text("url") {
        Some((url, at)) => match address(url) {
            Ok(place) => Some(place),
            Err(why) => {
                entry.wrong.tell(&at, why);
                None
            }
        },
        None if entry.value("url").is_none() => {
            entry.wrong.tell(&entry.span.clone(), "a gateway needs its url, like \"ws://127.0.0.1:18789\"");
            None
        }
        None => None,
    };
    let host = entry.text("host").map(|(host, _)| host.to_owned());
    let token = match (entry.text("token_file"), entry.text("token_env")) {
        (Some((_, at)), Some(_)) => {
            entry.wrong.tell(&at, "either token_file or token_env, not both");
            Token::None
        }
        (Some((path, _)), None) => Token::File(expanded(path, places)),
        (None, Some((variable, _))) => Token::Env(variable.to_owned()),
        (None, None) => Token::None,
    };
    let device = entry.text("device").map(|(path, _)| expanded(path, places));
    let (address, port) = place?;
    let host = host.or_else(|| (!is_here(&address)).then(|| address.clone()));
    let gateway = Gateway { name: name.map(|(n, _)| n.to_owned()), address, port, host, token, device };
    (entry.wrong.found.len() == before).then(|| (gateway, entry.span.clone()))
}

const PRICE: [&str; 6] = ["model", "input", "output", "cache_read", "cache_write", "as_of"];

/// One price; `None` if it cannot be used as it stands.
fn read_price(entry: &mut Section<'_, '_>) -> Option<Price> {
    let before = entry.wrong.found.len();
    entry.knows(&PRICE);
    for key in ["model", "input", "output"] {
        if entry.value(key).is_none() {
            entry.wrong.tell(&entry.span.clone(), format!("a price needs its {key}"));
        }
    }
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
    let name = entry.text("name");
    match &name {
        Some((name, at)) if !is_name(name) => {
            entry.wrong.tell(at, format!("name {name:?}: small letters, digits, '-', '_' and '.', 40 at most"));
        }
        None if entry.value("name").is_none() => entry.wrong.tell(&entry.span.clone(), "an acp needs its name"),
        _ => {}
    }
    if entry.value("command").is_none() {
        entry.wrong.tell(&entry.span.clone(), "an acp needs its command, like [\"opencode\", \"acp\"]");
    }
    let speaks = Speaks { command: entry.words("command")?, name: name?.0.to_owned() };
    (entry.wrong.found.len() == before).then(|| (speaks, entry.span.clone()))
}

/// Ids begin with the name, so two gateways never share one.
fn unique(gateways: Vec<(Gateway, Range<usize>)>, wrong: &mut Wrong<'_>) -> Vec<Gateway> {
    let mut kept: Vec<Gateway> = Vec::new();
    for (gateway, at) in gateways {
        if kept.iter().any(|k| k.name == gateway.name) {
            wrong.tell(
                &at,
                match &gateway.name {
                    Some(name) => format!("a second gateway is called {name:?}; this one is left out"),
                    None => "only one gateway may go without a name; this one is left out".to_owned(),
                },
            );
        } else {
            kept.push(gateway);
        }
    }
    kept
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

/// Host and port of a gateway's address.
fn address(url: &str) -> Result<(String, u16), String> {
    if url.starts_with("wss://") || url.starts_with("https://") {
        return Err(format!(
            "url {url:?}: TLS is not spoken; forward the port (ssh -L 18789:127.0.0.1:18789 HOST) and use ws://"
        ));
    }
    let odd = || format!("url {url:?} should be like \"ws://127.0.0.1:18789\"");
    let rest = url.strip_prefix("ws://").or_else(|| url.strip_prefix("http://")).ok_or_else(odd)?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':').unwrap_or(if port.is_empty() { "18789" } else { "" })),
        None => rest.rsplit_once(':').unwrap_or((rest, "18789")),
    };
    if host.contains('@') {
        return Err(format!("url {:?}: no password in it; use token_file or token_env", url.split('@').next_back()));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    let port = port.parse().ok().filter(|p| *p != 0).ok_or_else(odd)?;
    if host.is_empty() || !host.chars().all(plain) { Err(odd()) } else { Ok((host.to_owned(), port)) }
}

/// Whether an address is this machine's own.
fn is_here(address: &str) -> bool {
    address == "localhost" || address.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// The gateway that OpenClaw's own variables name. Without them none is looked for.
fn from_env(places: &Places, warnings: &mut Vec<Warning>) -> Option<Gateway> {
    const URL: &str = "OPENCLAW_GATEWAY_URL";
    const TOKEN: &str = "OPENCLAW_GATEWAY_TOKEN";
    let token = if places.gateway_token { Token::Env(TOKEN.into()) } else { Token::None };
    let url = match (&places.gateway_url, places.gateway_token) {
        (Some(url), _) => url.as_str(),
        (None, true) => "ws://127.0.0.1:18789",
        (None, false) => return None,
    };
    match address(url) {
        Ok((address, port)) => {
            let host = (!is_here(&address)).then(|| address.clone());
            Some(Gateway { name: None, address, port, host, token, device: None })
        }
        Err(why) => {
            let error = Untrusted::new(why.replacen("url", URL, 1));
            warnings.push(Warning { adapter: "settings", path: None, error, last_ok: None });
            None
        }
    }
}

/// The known word that is nearest to a wrong one, if any is near.
fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let far = |k: &&str| distance(word, k);
    known.iter().copied().min_by_key(far).filter(|k| distance(word, k) <= 1 + k.len() / 3)
}

/// How many letters to change, add or leave out to make one word of another.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
