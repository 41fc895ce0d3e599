//! OpenClaw: sessions that a gateway runs, asked over its WebSocket.
//!
//! Nothing of OpenClaw's is read from disk, and its processes are not looked at:
//! only the gateway knows whether a run is open, and a stored `running` outlives
//! it. So a gateway that does not answer makes its sessions unknown. Which
//! gateways there are is in our own settings ([`crate::settings`]); without any,
//! none is looked for.
//!
//! Measured on 2026.9.6, protocol 4; see `docs/agents/openclaw.md`.

mod approvals;
mod device;
mod http;
mod memory;
mod rows;
mod talk;
mod tasks;
mod token;
mod wire;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lariat_core::{Time, Untrusted, Warning};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::look::{Look, Places, Report};
use crate::remote::{Remote, Standing, Unsent};
use crate::settings::{Gateway, Settings};
use crate::talk::{Language, Said};
use crate::{Adapter, Ask, Plan};
use device::Device;
use http::Http;
use rows::Row;
use wire::{ADMIN, Line, READ, Shut, WRITE};

/// The agent's name.
pub const NAME: &str = "openclaw";

/// How long one step may take where a person waits for a deed.
const STEP: Duration = Duration::from_secs(15);
/// What is left to whom nothing is granted.
const READ_ONLY: &str = "Until then its sessions are read over HTTP, which does not tell whether one has a run open";
/// Between two looks at whether a run is over.
const BETWEEN: Duration = Duration::from_millis(100);
/// A run that is open so long after it was asked to end is asked again: while one is prepared, the gateway drops that.
const AGAIN: Duration = Duration::from_secs(1);

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
        // The rows, what keeps them from telling all that they could, and what else is wrong.
        type Rows = (Vec<Row>, Option<String>, Option<String>);
        let ask = |gateway| -> Result<Rows, String> {
            let (gateway, keyless) = without_lost_key(gateway);
            let over_line = || -> Result<BTreeMap<String, Row>, Shut> {
                let mut line = Line::open(&gateway, &[READ], patience, &step)?;
                let mut rows = rows::all(&mut line, &step).map_err(|why| line.shut(why))?;
                tasks::complete(&mut line, &mut rows);
                step();
                drop(line);
                approvals::add(&gateway, patience, &step, &mut rows);
                Ok(rows)
            };
            let also = |why: String| keyless.as_ref().map_or(why.clone(), |keyless| format!("{why}; {keyless}"));
            let (rows, lacking) = match over_line() {
                Ok(rows) => (rows, None),
                Err(Shut::Trouble(why)) => return Err(also(why)),
                Err(Shut::NoScope(why, _)) => match Http::new(&gateway, patience).all(&step) {
                    Ok(rows) => (rows, Some(why)),
                    Err(more) => return Err(also(format!("{why}; asked over HTTP, {more}"))),
                },
            };
            Ok((rows.into_values().collect(), lacking, keyless))
        };
        let ask = &ask;
        let answers: Vec<Result<Rows, String>> = std::thread::scope(|scope| {
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
                // What it says over HTTP is no good answer, so the last one stays in memory.
                Ok((rows, Some(why), keyless)) => {
                    let why = keyless.map_or(why.clone(), |keyless| format!("{keyless}. {why}"));
                    let last_ok = memory::recall(look.places.cache.as_deref(), gateway).map(|(at, _)| at);
                    report.partial = true;
                    report.warnings.push(warning(gateway, &format!("{why}. {READ_ONLY}"), last_ok));
                    rows.into_iter().for_each(|row| report.add((look.judge)(NAME, row.seen(gateway))));
                }
                Ok((rows, None, keyless)) => {
                    report.warnings.extend(keyless.map(|why| warning(gateway, &why, Some(look.now))));
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

/// The gateway as it is looked at where the key that it may know this client by is not there: the token may be enough to
/// look, and looking makes no key. With what is wrong.
fn without_lost_key(gateway: &Gateway) -> (Gateway, Option<String>) {
    let lacks = gateway.device.as_deref().and_then(Device::lacks);
    let device = gateway.device.clone().filter(|_| lacks.is_none());
    (Gateway { device, ..gateway.clone() }, lacks)
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
    let open = |scopes: &[&str]| Line::open(gateway, scopes, STEP, &|| ());
    let (mut line, lacking) = match open(scopes) {
        // Whose run it is decides whether that is needed: the gateway knows, and says so.
        Err(Shut::NoScope(why, _)) if scopes.contains(&ADMIN) => {
            let fewer: Vec<&str> = scopes.iter().copied().filter(|s| *s != ADMIN).collect();
            (open(&fewer).map_err(|_| named(why.clone()))?, Some(why))
        }
        line => (line.map_err(|shut| named(shut.into()))?, None),
    };
    let row = known(&mut line, &key).map_err(named)?;
    act(&mut line, row).map_err(|why| named(lacking.map_or(why.clone(), |lacking| format!("{why}; {lacking}"))))
}

/// A session's row, if the gateway knows the session.
fn known(line: &mut Line<'_>, key: &str) -> Result<Row, String> {
    rows::all(line, &|| ())?.remove(key).ok_or_else(|| "it does not know this session any more".into())
}

/// What a message of this key is known by: the same for the same, in one session.
fn uuid_of(native_id: &str, key: &str) -> String {
    let hash: [u8; 32] = Sha256::digest([native_id, "\0", key].concat()).into();
    let mut first = [0; 16];
    first.copy_from_slice(&hash[..16]);
    crate::uuid(first, 8)
}

/// What a gateway says to this client's device.
pub struct Paired {
    /// The gateway, as a person knows it.
    pub gateway: String,
    /// What the gateway knows the device by.
    pub device: String,
    /// Whether its key was made now.
    pub made: bool,
    /// Nothing if it may do all that lariat does, else what its owner has to say first.
    pub lacking: Option<String>,
    /// The request that waits for its owner's word.
    pub request: Option<String>,
}

/// Why it could not be asked.
pub enum Unasked {
    /// The settings do not say what to do.
    Settings(String),
    /// It failed.
    Failed(String),
}

/// Introduces this client to a gateway, by its name; makes the key that it is known by, if there is none.
pub fn pair(places: &Places, name: Option<&str>) -> Result<Paired, Unasked> {
    let settings = Settings::read(places);
    let mut fitting = settings.gateways.iter().filter(|g| name.is_none() || g.name.as_deref() == name);
    let gateway = match (fitting.next(), fitting.next(), name) {
        (Some(gateway), None, _) => gateway,
        (None, ..) => {
            let why = "the settings name no such gateway; `lariat doctor` shows those there are";
            return Err(Unasked::Settings(why.into()));
        }
        _ => return Err(Unasked::Settings("there are several gateways; say which, by its name".into())),
    };
    let Some(path) = gateway.device.as_deref() else {
        let why = "has no device in the settings; name a file there: device = \"openclaw-device\"";
        return Err(Unasked::Settings(format!("the gateway {} {why}", called(gateway))));
    };
    let made = Device::make(path).map_err(Unasked::Failed)?;
    let device = Device::read(path).map_err(Unasked::Failed)?.id();
    let (lacking, request) = match Line::open(gateway, &[READ, WRITE, ADMIN], STEP, &|| ()) {
        Ok(_) => (None, None),
        Err(Shut::NoScope(why, request)) => (Some(why), request),
        Err(Shut::Trouble(why)) => return Err(Unasked::Failed(format!("the gateway {}: {why}", called(gateway)))),
    };
    Ok(Paired { gateway: called(gateway), device, made, lacking, request })
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
        let settings = Settings::read(places);
        let (gateway, key) = rows::find(&settings.gateways, native_id).ok_or("its gateway is not in the settings")?;
        let (gateway, _) = without_lost_key(gateway);
        let named = |why: String| format!("the gateway {}: {why}", called(&gateway));
        let over_line = || -> Result<Vec<Said>, Shut> {
            let mut line = Line::open(&gateway, &[READ], STEP, &|| ())?;
            let row = known(&mut line, &key).map_err(|why| line.shut(why))?;
            talk::last(&mut line, &row.key, messages).map_err(|why| line.shut(why))
        };
        match over_line() {
            Err(Shut::NoScope(..)) => Http::new(&gateway, STEP).last(&key, messages).map_err(named),
            said => said.map_err(|shut| named(shut.into())),
        }
    }

    fn send(&self, places: &Places, native_id: &str, text: &str, key: Option<&str>) -> Result<(), Unsent> {
        let once = match key {
            Some(key) => Ok(uuid_of(native_id, key)),
            None => crate::new_uuid().map_err(|e| Unsent::Not(format!("no random number: {e}"))),
        }?;
        let untold = on_line(places, native_id, &[READ, WRITE], |line, row| {
            if row.live != Some(false) {
                return Err("a run of it is open by now; nothing was sent".into());
            }
            let params = json!({"sessionKey": row.key, "message": text, "idempotencyKey": once});
            match line.call("chat.send", &params, |sent| sent.get("status").str().map(str::to_owned)) {
                Ok(Some(status)) if status == "started" => Ok(None),
                // It knows that message: it was said before, under the same key.
                Ok(Some(status)) if key.is_some() && matches!(status.as_str(), "ok" | "in_flight") => Ok(None),
                Ok(status) => {
                    let status = status.as_deref().unwrap_or("no status");
                    Err(format!("it took the message and started no run ({status})"))
                }
                Err(why) if line.refused().is_none() => Ok(Some(why)),
                Err(why) => Err(why),
            }
        });
        untold.map_err(Unsent::Not)?.map_or(Ok(()), |why| Err(Unsent::Untold(why)))
    }

    fn run(&self, places: &Places, native_id: &str) -> Result<Option<String>, String> {
        on_line(places, native_id, &[READ], |line, row| talk::open_run(line, &row.key))
    }

    fn end(
        &self,
        places: &Places,
        native_id: &str,
        run: Option<&str>,
        patience: Duration,
    ) -> Result<Option<u64>, String> {
        on_line(places, native_id, &[READ, WRITE, ADMIN], |line, row| {
            if row.live == Some(false) {
                return Ok(Some(row.mark()));
            }
            if run.is_some() && talk::open_run(line, &row.key)?.as_deref() != run {
                return Ok(None);
            }
            let params = json!({"key": row.key, "clearQueued": true});
            line.call("sessions.abort", &params, |_| ())?;
            lariat_sys::point::point("openclaw.aborted");
            let (began, mut asked) = (Instant::now(), Instant::now());
            // One that is prepared has no id yet.
            let mut meant = run.map(str::to_owned);
            loop {
                let now = rows::all(line, &|| ())?.remove(&row.key);
                let mark = now.as_ref().map_or(0, Row::mark);
                if now.is_none_or(|now| now.live == Some(false)) {
                    return Ok(Some(mark));
                }
                if began.elapsed() > patience {
                    return Err(format!("its run was asked to end and is still open after {patience:?}"));
                }
                if asked.elapsed() > AGAIN {
                    let open = talk::open_run(line, &row.key)?;
                    if meant.is_some() && open.is_some() && open != meant {
                        return Ok(Some(mark)); // a later one
                    }
                    meant = meant.or(open);
                    line.call("sessions.abort", &params, |_| ())?;
                    asked = Instant::now();
                }
                std::thread::sleep(BETWEEN);
            }
        })
    }
}
