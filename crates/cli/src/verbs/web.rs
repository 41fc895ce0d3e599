//! `lariat web`: the page, in a browser.
//!
//! The one verb besides `daemon` that may start the daemon: without it there is no
//! page. The address that is printed lets one browser in, once.

use std::io::IsTerminal as _;
use std::process::{Command, Stdio};

use lariat_adapters::look::Places;
use lariat_adapters::settings::Settings;
use lariat_core::Untrusted;
use lariat_daemon::http::once::{self, Once};
use lariat_daemon::place::Place;
use lariat_protocol::client::ClientError;
use lariat_sys::spawn;

use crate::Done;
use crate::args::Web;
use crate::output::{Failure, Out, complain};
use crate::verbs::daemon;

/// Where the page is, if nobody says where.
const PORT: u16 = 4700;

pub fn run(args: &Web, out: &mut Out) -> Done {
    let places = Places::from_env();
    let port = served(&places, args.port)?;
    let made = once::make(&places, port).map_err(|e| anyhow::anyhow!("a secret could not be stored: {e}"))?;
    if out.json {
        out.json(&serde_json::json!({"schema": 1, "port": port, "url": made.url}))?;
    } else {
        out.line(&made.url)?;
    }
    out.flush()?;
    let display =
        ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some_and(|v| !v.is_empty()));
    if !args.no_open && !out.json && display && std::io::stdout().is_terminal() {
        open(&made);
    }
    Ok(0)
}

/// Makes sure that a daemon serves HTTP; the port.
fn served(places: &Places, wanted: Option<u16>) -> Result<u16, Failure> {
    let place = Place::of(places);
    let first = wanted.or(Settings::read(places).http).unwrap_or(PORT);
    match place.connect(places) {
        Ok(_) => {}
        Err(e) if e.is_absent() => daemon::start_quietly()?,
        Err(e) => return Err(e.into()),
    }
    let ask = |port| place.connect(places).and_then(|mut client| client.http(port));
    let served = match ask(first) {
        Err(ClientError::Refused(_)) if wanted.is_none() => ask(0),
        served => served,
    };
    let port = served?;
    match wanted {
        Some(wanted) if wanted != 0 && wanted != port => Err(Failure::Refused(format!(
            "the daemon serves the page on port {port}; `lariat daemon restart --http {wanted}` moves it"
        ))),
        _ => Ok(port),
    }
}

/// Has the desktop open the page that leads there: an address with a secret in it would be seen by
/// every user in the list of processes.
fn open(made: &Once) {
    #[expect(clippy::disallowed_methods, reason = "a person asked for a browser")]
    let mut command = Command::new("xdg-open");
    command.arg(&made.page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(e) = spawn::start(&mut command) {
        complain(format_args!(
            "no browser could be opened ({}); open the address yourself",
            Untrusted::new(e.to_string()).row()
        ));
    }
}
