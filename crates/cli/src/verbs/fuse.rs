//! `lariat fuse`: what shall be done when a time is up or a budget is used.
//!
//! A fuse is a wish, stored here; the daemon burns it. Without a daemon it waits for
//! one, and that is said.

use std::time::Duration;

use anyhow::Context as _;
use lariat_adapters::look::{Places, Scope};
use lariat_core::{Time, Untrusted, Warning};
use lariat_daemon::fuses::{self, Fuse, Limit, On};
use lariat_daemon::place::Place;
use lariat_engine::{list, records};
use lariat_sys::clock;
use serde::Serialize;

use crate::Done;
use crate::args::{Common, FuseSet, FuseVerb, Then};
use crate::output::{Failure, Out, complain};
use crate::verbs::{find, question, warn};

pub fn run(verb: &FuseVerb, common: &Common, out: &mut Out) -> Done {
    let places = Places::from_env();
    match verb {
        FuseVerb::Set(args) => set(args, &places, common, out),
        FuseVerb::Ls => ls(&places, common, out),
        FuseVerb::Extend { id, by } => loop {
            let read = chosen(&places, id)?;
            let limit = match read.limit {
                _ if read.fired_at.is_some() => return Err(Failure::Refused(format!("{id} has burnt down"))),
                Limit::Until(at) => Limit::Until(Time(at.0.saturating_add(millis(*by)))),
                Limit::Age(ms) => Limit::Age(ms.saturating_add(millis(*by))),
                Limit::Idle(ms) => Limit::Idle(ms.saturating_add(millis(*by))),
                _ => {
                    return Err(Failure::Usage(format!(
                        "fuse {id} has no time limit to extend; cancel it and set a new one"
                    )));
                }
            };
            let fuse = Fuse { limit, warned_at: None, ..read.clone() };
            if fuses::replace(&places, &read, &fuse).map_err(unstored)? {
                return tell(&fuse, &places, out);
            }
        },
        FuseVerb::Cancel { id } => {
            let fuse = chosen(&places, id)?;
            match fuses::remove(&places, &fuse) {
                // Another was faster.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(no_fuse(id)),
                removed => removed.context("the fuse could not be taken away")?,
            }
            records::tell(&places, "fuse", &fuse.id, "cancelled".into());
            if out.json {
                out.told(&fuse)?;
            } else {
                out.line(format_args!("{} is taken away", fuse.id))?;
            }
            Ok(0)
        }
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// The fuse of that name, or of the only name that begins so.
fn chosen(places: &Places, id: &str) -> Result<Fuse, Failure> {
    let (all, warnings) = fuses::read(places);
    warn(&warnings);
    let mut fit: Vec<Fuse> = all.into_iter().filter(|f| !id.is_empty() && f.id.starts_with(id)).collect();
    match fit.len() {
        1 => Ok(fit.remove(0)),
        0 => Err(no_fuse(id)),
        n => Err(Failure::Usage(format!("'{id}' fits {n} fuses"))),
    }
}

fn set(args: &FuseSet, places: &Places, common: &Common, out: &mut Out) -> Done {
    // Who has a command run does not mean that the session be stopped instead.
    if args.run.is_some() && args.then != Then::Cmd {
        return Err(Failure::Usage("--run is for `--then cmd`; say that, or leave --run out".into()));
    }
    let on = if args.target.contains('/') || args.target == "." {
        let path = std::path::Path::new(&args.target).canonicalize().ok().filter(|p| p.is_dir());
        let path = path.ok_or_else(|| Failure::Usage(format!("{} is not a directory", args.target)))?;
        On::Directory(path.to_string_lossy().into_owned())
    } else {
        let (answer, at) = find(&args.target, common)?;
        On::Session(answer.listing.sessions[at].id.raw().to_owned())
    };
    let now = clock::now_ms();
    let limit = match (args.after, args.tokens, args.cost, args.minutes, args.idle) {
        (Some(after), ..) => Limit::Until(Time(now.saturating_add(millis(after)))),
        (_, Some(n), ..) => Limit::Tokens(n),
        (_, _, Some(usd), ..) if usd.is_finite() && usd > 0.0 => Limit::Cost(usd),
        (_, _, Some(_), ..) => return Err(Failure::Usage("a cost is a number of dollars above 0".into())),
        (_, _, _, Some(n), _) => Limit::Age(i64::from(n) * 60_000),
        (.., Some(idle)) => Limit::Idle(millis(idle)),
        _ => return Err(Failure::Usage("a fuse needs what burns it".into())),
    };
    let then = match args.then {
        Then::Stop => "stop",
        Then::Kill => "kill",
        Then::Cmd => "command",
        Then::Webhook => "tell",
    };
    let fuse = Fuse {
        id: fuses::new_id(places)?,
        on,
        limit,
        then: then.into(),
        run: args.run.clone().filter(|_| args.then == Then::Cmd),
        by: records::who(),
        at: Time(now),
        warned_at: None,
        fired_at: None,
        outcome: None,
    };
    store(places, &fuse)?;
    records::tell(places, "fuse", &fuse.id, format!("set: {}", words(&fuse)));
    tell(&fuse, places, out)
}

fn store(places: &Places, fuse: &Fuse) -> Result<(), Failure> {
    fuses::put(places, fuse).map_err(unstored)
}

fn no_fuse(id: &str) -> Failure {
    Failure::Usage(format!("no fuse is called '{id}'; `lariat fuse ls` lists them"))
}

fn unstored(e: std::io::Error) -> Failure {
    anyhow::anyhow!("the fuse could not be stored: {e}").into()
}

fn tell(fuse: &Fuse, places: &Places, out: &mut Out) -> Done {
    if out.json {
        out.told(fuse)?;
    } else {
        out.line(format_args!("{}  {}", fuse.id, words(fuse)))?;
    }
    if Place::of(places).connect(places).is_err() {
        complain("warning: no daemon runs, and only a daemon burns fuses; `lariat daemon start` starts it");
    }
    Ok(0)
}

/// A fuse in words.
fn words(fuse: &Fuse) -> String {
    let on = match &fuse.on {
        On::Session(id) => Untrusted::new(id.clone()).row(),
        On::Directory(path) => Untrusted::new(path.clone()).row(),
    };
    let when = match fuse.limit {
        Limit::Until(at) => format!("at {at}"),
        Limit::Tokens(n) => format!("at {n} tokens"),
        Limit::Cost(usd) => format!("at ${usd}"),
        Limit::Age(ms) => format!("after {} minutes of its life", ms / 60_000),
        Limit::Idle(ms) => format!("after {} s of idleness", ms / 1000),
    };
    let then = match (&fuse.run, fuse.then.as_str()) {
        (Some(run), _) => format!("run {}", Untrusted::new(run.clone()).row()),
        (None, word) => word.to_owned(),
    };
    format!("{then} {on} {when}")
}

fn ls(places: &Places, common: &Common, out: &mut Out) -> Done {
    let (all, warnings) = fuses::read(places);
    let listing = list(question(common, Scope::Live)).listing;
    let now = Time(clock::now_ms());
    let part = |f: &Fuse| {
        let sessions = f.sessions(&listing).map(Some).chain([None]);
        let parts = sessions.filter_map(|s| f.burnt(s, now)).map(|b| b.part.clamp(0.0, 1.0));
        parts.fold(None, |most: Option<f64>, part| Some(most.map_or(part, |m| m.max(part))))
    };
    if out.json {
        #[derive(Serialize)]
        struct Row {
            #[serde(flatten)]
            fuse: Fuse,
            /// 1 is all of it; `null` if it cannot be told.
            burnt: Option<f64>,
        }
        #[derive(Serialize)]
        struct Fuses {
            schema: u32,
            fuses: Vec<Row>,
            warnings: Vec<Warning>,
        }
        let fuses = all.into_iter().map(|fuse| Row { burnt: part(&fuse), fuse }).collect();
        out.json(&Fuses { schema: 1, fuses, warnings })?;
        return Ok(0);
    }
    if all.is_empty() {
        out.line("No fuse is set.")?;
    }
    for fuse in &all {
        let burnt = match (fuse.fired_at, part(fuse)) {
            (Some(at), _) => {
                let how = fuse.outcome.as_deref().map_or_else(String::new, |o| Untrusted::new(o).row());
                format!("burnt down {} ago: {how}", at.age(now))
            }
            (None, Some(part)) => format!("{:.0}% burnt", part * 100.0),
            (None, None) => "cannot be told".into(),
        };
        out.line(format_args!("{}  {}  {burnt}", fuse.id, words(fuse)))?;
    }
    out.flush()?;
    warn(&warnings);
    Ok(0)
}
