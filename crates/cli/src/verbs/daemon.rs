//! `lariat daemon`: starting, stopping and asking it; and being it.
//!
//! Nothing here starts a daemon unless a person says `daemon start`, `restart` or `web`. Once
//! one is installed, systemd starts it for whoever knocks.

mod unit;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use lariat_adapters::look::Places;
use lariat_core::Untrusted;
use lariat_daemon::deliver::outbox::Owed;
use lariat_daemon::place::{self, Place};
use lariat_daemon::verb::TELL_SEEN;
use lariat_daemon::{DaemonError, Options, VERB, log, watching};
use lariat_engine::hosts::{self, HERE};
use lariat_engine::list::Answer;
use lariat_protocol::client::ClientError;
use lariat_sys::process::own_program;
use lariat_sys::{cgroup, file, spawn};
use serde_json::Value;

use crate::Done;
use crate::args::{DaemonStart, DaemonVerb};
use crate::output::{Failure, Out, complain};

/// Becomes the daemon, if that is asked: `lariat __daemon [PORT]`. Not for people, so
/// before the parser.
pub fn dispatch(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if args.nth(1)? != VERB {
        return None;
    }
    let http = args.next().and_then(|port| port.to_str()?.parse().ok());
    let ready = || lariat_daemon::tell_starter("ready\n");
    Some(match lariat_daemon::run(Places::from_env(), &Options { http }, ready) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            lariat_daemon::tell_starter(&format!("failed {e}\n"));
            complain(format_args!("lariat: {e}"));
            if matches!(e, DaemonError::Running) { ExitCode::from(3) } else { ExitCode::FAILURE }
        }
    })
}

pub fn run(verb: &DaemonVerb, out: &mut Out) -> Done {
    let places = Places::from_env();
    let place = Place::of(&places);
    match verb {
        DaemonVerb::Start(args) => start(args, &places, &place, out),
        DaemonVerb::Stop => stop(&places, &place, out),
        DaemonVerb::Restart(args) => {
            stop(&places, &place, out)?;
            start(args, &places, &place, out)
        }
        DaemonVerb::Status => status(&places, &place, out),
        DaemonVerb::Install { http } => unit::install(*http, out),
        DaemonVerb::Uninstall => unit::uninstall(out),
        DaemonVerb::Token => token(&place, out),
        DaemonVerb::Deliveries => deliveries(&places, out),
        DaemonVerb::Logs { lines } => logs(&place, *lines, out),
    }
}

/// This program as the daemon.
fn daemon(args: &DaemonStart) -> io::Result<Command> {
    #[expect(clippy::disallowed_methods, reason = "a person asked for a daemon")]
    let mut command = Command::new(own_program()?);
    command.arg(VERB).args(args.http.map(|port| port.to_string())).current_dir("/");
    Ok(command)
}

fn start(args: &DaemonStart, places: &Places, place: &Place, out: &mut Out) -> Done {
    let mut command = daemon(args)?;
    if args.foreground {
        return Err(command.exec().into());
    }
    if until_ready(command)? {
        told(out, "started", format_args!("the daemon is started; {}", shown(&place.socket)))
    } else {
        // Such a one may be systemd's, which was not told of the port.
        let http =
            args.http.map(|port| place.connect(places).and_then(|mut client| client.http(port)).map(|is| (port, is)));
        match http.transpose()? {
            Some((port, is)) if is != port => Err(Failure::Refused(format!(
                "the daemon runs already, and serves HTTP on port {is}; if systemd starts it, \
                 `lariat daemon install --http {port}` changes that"
            ))),
            _ => told(out, "running", format_args!("the daemon runs already")),
        }
    }
}

/// Starts the daemon, unless one runs, and says nothing.
pub fn start_quietly() -> Result<(), Failure> {
    until_ready(daemon(&DaemonStart { foreground: false, http: None })?).map(drop)
}

/// Starts it and waits until it can be asked; `false` if another one runs.
fn until_ready(mut command: Command) -> Result<bool, Failure> {
    let (mut reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null());
    // It is no part of the session whose tool may have asked for it.
    command.env_remove(lariat_shim::MARK);
    let above = cgroup::above_session();
    spawn::ready(&mut command, false, above.as_ref().map(|above| above.as_fd()))?.go()?;
    drop(command); // its end of the pipe
    let mut line = String::new();
    reader.read_to_string(&mut line)?;
    match line.trim_end() {
        "ready" => Ok(true),
        line => match line.strip_prefix("failed ") {
            Some(why) if why == DaemonError::Running.to_string() => Ok(false),
            Some(why) => Err(anyhow::anyhow!("{why}").into()),
            None => Err(anyhow::anyhow!("the daemon died without a word; see `lariat daemon logs`").into()),
        },
    }
}

fn told(out: &mut Out, word: &str, text: std::fmt::Arguments<'_>) -> Done {
    if out.json {
        out.json(&serde_json::json!({"schema": 1, "daemon": word}))?;
    } else {
        out.line(text)?;
    }
    Ok(0)
}

fn stop(places: &Places, place: &Place, out: &mut Out) -> Done {
    // Not asked for if there is none: systemd would start one to be stopped.
    if place.is_free() {
        return told(out, "absent", format_args!("no daemon runs"));
    }
    match place.find(places).map_err(unreached)? {
        Some(client) => {
            client.stop()?;
            place.wait_until_free()?;
            told(out, "stopped", format_args!("the daemon is stopped; every agent goes on"))
        }
        None => told(out, "absent", format_args!("no daemon runs")),
    }
}

/// There is one, by its lock, and it does not listen where we look for it.
fn unreached(e: ClientError) -> Failure {
    let hint = if e.is_absent() { "; a daemon runs, and was started with another XDG_RUNTIME_DIR" } else { "" };
    anyhow::anyhow!("{e}{hint}").into()
}

fn status(places: &Places, place: &Place, out: &mut Out) -> Done {
    let status = match place.find(places).map_err(unreached)? {
        Some(mut client) => client.status()?,
        None => {
            if out.json {
                out.json(&serde_json::json!({"schema": 1, "running": false}))?;
            } else {
                out.line("no daemon runs; nothing needs one. `lariat daemon start` starts it")?;
            }
            return Ok(1);
        }
    };
    if out.json {
        out.json(&status)?;
        return Ok(0);
    }
    let number = |v: &Value| v.as_i64().map_or_else(|| "?".to_owned(), |n| n.to_string());
    let text = |v: &Value| Untrusted::new(v.as_str().unwrap_or("-")).row();
    let memory = status["memory_bytes"].as_f64().map_or_else(|| "?".to_owned(), |b| format!("{:.1} MB", b / 1e6));
    out.line(format_args!(
        "lariat {} as process {}, up {} s, {memory}",
        text(&status["version"]),
        number(&status["pid"]),
        number(&status["uptime_s"])
    ))?;
    let counts = &status["counts"];
    let words = ["needs_you", "working", "idle", "unknown", "cut_off", "ended", "unbound"];
    let counted: Vec<String> = words.iter().map(|w| format!("{} {w}", number(&counts[*w]))).collect();
    out.line(format_args!("now: {}", counted.join(", ")))?;
    for adapter in status["adapters"].as_array().into_iter().flatten() {
        let well = if adapter["ok"] == true { "ok".to_owned() } else { text(&adapter["error"]) };
        out.line(format_args!("  {:<10} {well}", text(&adapter["name"])))?;
    }
    out.line(format_args!("{} listen; HTTP {}", number(&status["listeners"]), text(&status["http"])))?;
    for error in status["errors"].as_array().into_iter().flatten() {
        out.line(format_args!("  {}  {}: {}", text(&error["at"]), text(&error["what"]), text(&error["detail"])))?;
    }
    Ok(0)
}

fn token(place: &Place, out: &mut Out) -> Done {
    let missing = |e| match e {
        e if io::Error::kind(&e) == io::ErrorKind::NotFound => {
            Failure::Usage("there is no token yet; `lariat daemon start --http PORT` makes one".into())
        }
        e => anyhow::anyhow!("{}: {e}", shown(&place.token)).into(),
    };
    let bytes = file::read_small(&place.token, 1024).map_err(missing)?;
    let token = Untrusted::new(String::from_utf8_lossy(&bytes).trim()).row();
    if out.json {
        out.json(&serde_json::json!({"schema": 1, "token": token}))?;
    } else {
        out.line(token)?;
    }
    Ok(0)
}

fn deliveries(places: &Places, out: &mut Out) -> Done {
    let (owed, dead) = lariat_daemon::deliver::list(places);
    if out.json {
        #[derive(serde::Serialize)]
        struct Deliveries {
            schema: u32,
            owed: Vec<Owed>,
            dead: Vec<Owed>,
        }
        out.json(&Deliveries { schema: 1, owed, dead })?;
        return Ok(0);
    }
    for (word, all) in [("owed", &owed), ("dead", &dead)] {
        for o in all {
            let row = |text: &str| Untrusted::new(text).row();
            let error = o.error.as_deref().map_or_else(String::new, |e| format!(": {}", row(e)));
            let line = format!("{word}  {}  {} {}  {} tries{error}", o.at, row(&o.how), row(&o.who), o.tries);
            out.line(line)?;
        }
    }
    if owed.is_empty() && dead.is_empty() {
        out.line("Nothing is owed, and nothing was given up.")?;
    }
    Ok(0)
}

fn logs(place: &Place, lines: usize, out: &mut Out) -> Done {
    let mut last: VecDeque<Vec<u8>> = VecDeque::new();
    let mut any = false;
    for path in [log::before(&place.log), place.log.clone()] {
        match file::open(&path) {
            Ok((file, _)) => {
                any = true;
                for line in io::BufReader::new(file).split(b'\n') {
                    last.push_back(line?);
                    if last.len() > lines {
                        last.pop_front();
                    }
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(anyhow::anyhow!("{}: {e}", shown(&path)).into()),
        }
    }
    if !any {
        return Err(Failure::Usage(format!("{} is not there: no daemon has run yet", shown(&place.log))));
    }
    for line in last {
        match serde_json::from_slice::<Value>(&line) {
            Ok(value) if out.json => out.json(&value)?,
            Ok(value) => {
                let text = |name: &str| Untrusted::new(value[name].as_str().unwrap_or("-")).row();
                let line = format!("{}  {:<5}  {}: {}", text("at"), text("level"), text("what"), text("detail"));
                out.line(line)?;
            }
            Err(_) => complain("a line of the log cannot be read"),
        }
    }
    Ok(0)
}

fn shown(path: &Path) -> String {
    Untrusted::new(path.to_string_lossy()).row()
}

/// Lets the daemon answer this very command line, if one is there and looks at the
/// same things; `None` if we must look for ourselves. Only for JSON: what a person
/// reads has ages in it, and those are made when they are read.
pub fn ask(out: &mut Out) -> Result<Option<u8>, Failure> {
    if !out.json || std::env::var_os(TELL_SEEN).is_some() {
        return Ok(None);
    }
    let arguments: Option<Vec<String>> = std::env::args_os().skip(1).map(|a| a.into_string().ok()).collect();
    let Some(mut arguments) = arguments else { return Ok(None) };
    // Another lariat asks about this machine only; the daemon answers about all.
    if std::env::var_os(HERE).is_some() && !hosts::read(&Places::from_env()).0.is_empty() {
        return Ok(None);
    }
    if arguments.first().is_some_and(|first| first == lariat_daemon::verb::BY_INPUT) {
        return Ok(None); // what was asked stands elsewhere, and is answered here
    }
    if arguments.first().is_none_or(|first| first.starts_with('-')) {
        arguments.insert(0, "ls".into());
    }
    let places = Places::from_env();
    let Ok(mut client) = Place::of(&places).connect_soon(&places) else { return Ok(None) };
    let ours = place::hello(&places);
    if client.hello().view != ours.view || client.hello().lariat != ours.lariat {
        return Ok(None);
    }
    let mut begun = Begun { out, any: false };
    match client.answer(&arguments, &mut begun) {
        Ok(reply) => Ok(Some(reply.code)),
        // Half an answer cannot be taken back; none at all can be made good.
        Err(e) if begun.any => Err(e.into()),
        Err(_) => Ok(None),
    }
}

struct Begun<'a> {
    out: &'a mut Out,
    any: bool,
}

impl io::Write for Begun<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.any = true;
        self.out.bytes(bytes)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Tells what an answer depends on, if the daemon asked for it.
pub fn tell_seen(answer: &Answer) {
    if std::env::var_os(TELL_SEEN).is_some() {
        let seen = watching::depends(&Places::from_env(), answer);
        let _ = io::stderr().lock().write_all(&seen.told()); // then the daemon looks anew
    }
}
