//! OpenClaw: sessions that a gateway runs, asked over its WebSocket.
//!
//! Nothing of OpenClaw's is read from disk, and its processes are not looked at:
//! only the gateway knows whether a run is open, and a stored `running` outlives
//! it. So a gateway that does not answer makes its sessions unknown. Which
//! gateways there are is in our own settings ([`crate::settings`]); without any,
//! none is looked for.
//!
//! Measured on 2026.9.6, protocol 4; see `docs/agents/openclaw.md`.

mod memory;
mod rows;
mod talk;
mod token;
mod wire;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lariat_core::{Time, Untrusted, Warning};
use serde_json::json;

use crate::look::{Look, Places, Report};
use crate::remote::{Remote, Standing};
use crate::settings::{Gateway, Settings};
use crate::talk::{Language, Said};
use crate::{Adapter, Ask, Plan};
use rows::Row;
use wire::{ADMIN, Line, READ, WRITE};

/// The agent's name.
pub const NAME: &str = "openclaw";

/// How long one step may take where a person waits for a deed.
const STEP: Duration = Duration::from_secs(15);
/// Between two looks at whether a run is over.
const BETWEEN: Duration = Duration::from_millis(100);

/// The adapter.
pub struct OpenClaw;

impl Adapter for OpenClaw {
    fn name(&self) -> &'static str {
        NAME
    }

    fn programs(&self) -> &'static [&'static str] {
        &["openclaw"]
    }

    /// There is none that is read: what leads to the sessions is in the settings.
    fn store(&self, places: &Places) -> PathBuf {
        places.settings.clone()
    }

    fn observe(&self, look: &Look<'_>) -> Report {
        lariat_sys::point::point("openclaw.observe");
        let gateways = &look.settings.gateways;
        // Our own end comes before the one that would take all gateways for late.
        let patience = look.deadline.mul_f32(0.8);
        let step = || {
            look.steps.fetch_add(1, Ordering::Relaxed);
        };
        let ask = |gateway| -> Result<Vec<Row>, String> {
            let mut line = Line::open(gateway, &[READ], patience, &step)?;
            rows::all(&mut line, &step).map(|rows| rows.into_values().collect())
        };
        let ask = &ask;
        let answers: Vec<Result<Vec<Row>, String>> = std::thread::scope(|scope| {
            let asked: Vec<_> = gateways.iter().map(|g| scope.spawn(move || ask(g))).collect();
            asked
                .into_iter()
                .map(|a| a.join().unwrap_or_else(|_| Err("lariat failed to read its answer".into())))
                .collect()
        });
        let mut report = Report { unhinted: !gateways.is_empty(), ..Report::default() };
        report.partial = look.settings.gateways_unread;
        for (gateway, answer) in gateways.iter().zip(answers) {
            match answer {
                Ok(rows) => {
                    memory::keep(look.places.cache.as_deref(), gateway, look.now, &rows.iter().collect::<Vec<_>>());
                    rows.into_iter().for_each(|row| report.add((look.judge)(NAME, row.seen(gateway))));
                }
                Err(why) => {
                    let last_ok = remember(look, gateway, &why, &mut report);
                    report.partial = true;
                    report.warnings.push(warning(gateway, &why, last_ok));
                }
            }
        }
        report
    }

    fn observe_processes(&self, look: &Look<'_>, why: &str) -> Report {
        let mut report = Report { unhinted: true, ..Report::default() };
        for gateway in &look.settings.gateways {
            remember(look, gateway, why, &mut report);
        }
        report
    }

    fn start(&self, _ask: &Ask) -> Result<Plan, String> {
        Err("a gateway starts OpenClaw's sessions: `lariat send` gives an existing one its next message".into())
    }

    fn marks(&self, _native_id: &str) -> Vec<(String, String)> {
        Vec::new()
    }

    fn language(&self) -> &'static dyn Language {
        &NoTranscript
    }

    fn remote(&self) -> Option<&'static dyn Remote> {
        Some(&OpenClaw)
    }
}

/// Tells what a silent gateway said last; when that was.
fn remember(look: &Look<'_>, gateway: &Gateway, why: &str, report: &mut Report) -> Option<Time> {
    let (at, rows) = memory::recall(look.places.cache.as_deref(), gateway)?;
    let silent = format!("the gateway {} does not answer: {why}", called(gateway));
    let told = rows.into_iter().map(|row| (look.judge)(NAME, row.remembered(gateway, &silent, at, look.now)));
    told.for_each(|row| report.add(row));
    Some(at)
}

/// A gateway as a person knows it.
fn called(gateway: &Gateway) -> String {
    match &gateway.name {
        Some(name) => format!("{name} ({})", gateway.url()),
        None => gateway.url(),
    }
}

fn warning(gateway: &Gateway, why: &str, last_ok: Option<Time>) -> Warning {
    Warning { adapter: NAME, path: Some(called(gateway).into()), error: Untrusted::new(why), last_ok }
}

/// The gateway keeps the conversations; no file of them is read.
struct NoTranscript;

impl Language for NoTranscript {
    fn keep(&self) -> crate::json::Keep {
        |_, _| false
    }

    fn said(&self, _line: crate::json::Value<'_>) -> Vec<Said> {
        Vec::new()
    }
}

/// Does something on the line to a session's gateway, if the gateway knows the
/// session: it takes most requests for one it does not know without a word.
fn on_line<T>(
    places: &Places,
    native_id: &str,
    scopes: &[&str],
    act: impl FnOnce(&mut Line<'_>, Row) -> Result<T, String>,
) -> Result<T, String> {
    let settings = Settings::read(places);
    let (gateway, key) = rows::find(&settings.gateways, native_id).ok_or("its gateway is not in the settings")?;
    let named = |why: String| format!("the gateway {}: {why}", called(gateway));
    let mut line = Line::open(gateway, scopes, STEP, &|| ()).map_err(named)?;
    let row = rows::all(&mut line, &|| ()).map_err(named)?.remove(&key);
    let row = row.ok_or_else(|| named("it does not know this session any more".into()))?;
    act(&mut line, row).map_err(named)
}

impl Remote for OpenClaw {
    fn standing(&self, places: &Places, patience: Duration) -> Vec<Standing> {
        let settings = Settings::read(places);
        let examine = |gateway: &Gateway| {
            let mut line = Line::open(gateway, &[READ], patience, &|| ())?;
            let count = rows::all(&mut line, &|| ())?.len();
            let version = &line.version;
            Ok(format!("OpenClaw {version} answers, {count} sessions"))
        };
        settings.gateways.iter().map(|g| Standing { gateway: called(g), found: examine(g) }).collect()
    }

    fn talk(&self, places: &Places, native_id: &str, messages: usize) -> Result<Vec<Said>, String> {
        on_line(places, native_id, &[READ], |line, row| talk::last(line, &row.key, messages))
    }

    fn send(&self, places: &Places, native_id: &str, text: &str) -> Result<(), String> {
        let once = crate::new_uuid().map_err(|e| format!("no random number: {e}"))?;
        on_line(places, native_id, &[READ, WRITE], |line, row| {
            if row.live != Some(false) {
                return Err("a run of it is open by now; nothing was sent".into());
            }
            let params = json!({"sessionKey": row.key, "message": text, "idempotencyKey": once});
            let status = line.call("chat.send", &params, |sent| sent.get("status").str().map(str::to_owned))?;
            match status.as_deref() {
                Some("started") => Ok(()),
                other => Err(format!("it took the message and started no run ({})", other.unwrap_or("no status"))),
            }
        })
    }

    fn run(&self, places: &Places, native_id: &str) -> Result<Option<String>, String> {
        on_line(places, native_id, &[READ], |line, row| talk::open_run(line, &row.key))
    }

    fn end(&self, places: &Places, native_id: &str, run: Option<&str>, patience: Duration) -> Result<bool, String> {
        on_line(places, native_id, &[READ, WRITE, ADMIN], |line, row| {
            if row.live == Some(false) {
                return Ok(true);
            }
            if run.is_some() && talk::open_run(line, &row.key)?.as_deref() != run {
                return Ok(false);
            }
            let params = json!({"key": row.key, "clearQueued": true});
            line.call("sessions.abort", &params, |_| ())?;
            lariat_sys::point::point("openclaw.aborted");
            let began = Instant::now();
            loop {
                let now = rows::all(line, &|| ())?.remove(&row.key);
                if now.is_none_or(|now| now.live == Some(false)) {
                    return Ok(true);
                }
                if began.elapsed() > patience {
                    return Err(format!("its run was asked to end and is still open after {patience:?}"));
                }
                std::thread::sleep(BETWEEN);
            }
        })
    }
}
