//! Gateways that run sessions: `[[gateway]]`, or the one that the environment names.

use std::ops::Range;
use std::path::PathBuf;

use lariat_core::{Untrusted, Warning};

use super::expanded;
use super::section::{Section, Wrong};
use crate::look::Places;

const GATEWAY: [&str; 6] = ["name", "url", "host", "token_file", "token_env", "device"];

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

impl Gateway {
    /// `ws://127.0.0.1:18789`.
    pub fn url(&self) -> String {
        let colon = self.address.contains(':');
        let address = if colon { format!("[{}]", self.address) } else { self.address.clone() };
        format!("ws://{address}:{}", self.port)
    }
}

/// One gateway; `None` if it cannot be asked as it stands.
pub(super) fn read(entry: &mut Section<'_, '_>, places: &Places) -> Option<(Gateway, Range<usize>)> {
    let before = entry.wrong.found.len();
    entry.knows(&GATEWAY);
    let name = entry.name();
    entry.needs("url", "a gateway needs its url, like \"ws://127.0.0.1:18789\"");
    let place = entry.text("url").and_then(|(url, at)| address(url).map_err(|why| entry.wrong.tell(&at, why)).ok());
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
    let gateway = Gateway { name: name.map(str::to_owned), address, port, host, token, device };
    (entry.wrong.found.len() == before).then(|| (gateway, entry.span.clone()))
}

/// Ids begin with the name, so two gateways never share one.
pub(super) fn unique(gateways: Vec<(Gateway, Range<usize>)>, wrong: &mut Wrong<'_>) -> Vec<Gateway> {
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
pub(super) fn from_env(places: &Places, warnings: &mut Vec<Warning>) -> Option<Gateway> {
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
