//! `lariat lock`, `unlock`, `locks`: who has the right to a directory.

use lariat_adapters::look::Scope;
use lariat_core::{Time, Untrusted, Warning};
use lariat_engine::claims::{self, ClaimError, Held, Holder};
use lariat_sys::clock;
use serde::Serialize;

use crate::Done;
use crate::args::{Common, Lock, Unlock};
use crate::output::{Failure, Out};
use crate::verbs::{question, warn};

#[derive(Serialize)]
struct Told {
    path: Untrusted,
    who: Untrusted,
    session: Option<String>,
    by: Option<Untrusted>,
    reason: Option<Untrusted>,
    at: Option<Time>,
    until: Option<Time>,
}

impl From<&Holder> for Told {
    fn from(h: &Holder) -> Self {
        let claim = h.claim.as_ref();
        Told {
            path: Untrusted::new(h.path.to_string_lossy()),
            who: Untrusted::new(h.who.clone()),
            session: h.session.clone(),
            by: claim.map(|c| c.by.clone().into()),
            reason: claim.and_then(|c| c.reason.clone()).map(Into::into),
            at: claim.map(|c| c.at),
            until: claim.map(|c| c.until),
        }
    }
}

pub fn list(common: &Common, out: &mut Out) -> Done {
    let Held { holders, warnings, partial, .. } = claims::held(&question(common, Scope::Live));
    let told: Vec<Told> = holders.iter().map(Told::from).collect();
    if out.json {
        #[derive(Serialize)]
        struct Locks {
            schema: u32,
            locks: Vec<Told>,
            warnings: Vec<Warning>,
        }
        out.json(&Locks { schema: 1, locks: told, warnings })?;
    } else {
        for t in &told {
            out.line(format_args!("{}  {}", t.path.row(), t.who.row()))?;
        }
        if told.is_empty() {
            out.line(match partial {
                true => "Nobody is known to hold a directory, but not everything could be read.",
                false => "Every directory is free.",
            })?;
        }
        out.flush()?;
        warn(&warnings);
    }
    Ok(if partial { 5 } else { 0 })
}

pub fn lock(args: &Lock, common: &Common, out: &mut Out) -> Done {
    let by = args.by.clone().unwrap_or_else(lariat_engine::records::who);
    let lasts = i64::try_from(args.lasts.as_millis()).unwrap_or(i64::MAX);
    let until = Time(clock::now_ms().saturating_add(lasts));
    let question = question(common, Scope::Live);
    let claim = claims::claim(&question, &args.path, by, args.reason.clone(), until, args.force).map_err(fail)?;
    if out.json {
        out.told(&claim)?;
    } else {
        out.line(Untrusted::new(format!("{} is held by {} until {}", claim.path, claim.by, claim.until)).row())?;
    }
    Ok(0)
}

pub fn unlock(args: &Unlock, common: &Common, out: &mut Out) -> Done {
    let claim = claims::release(&question(common, Scope::Live), &args.path).map_err(fail)?;
    if out.json {
        out.told(&claim)?;
    } else {
        out.line(Untrusted::new(format!("{} is free", claim.path)).row())?;
    }
    Ok(0)
}

fn fail(error: ClaimError) -> Failure {
    match error {
        ClaimError::Held(_) => Failure::Refused(error.to_string()),
        ClaimError::NoDirectory(_) | ClaimError::NotHeld(_) => Failure::Usage(error.to_string()),
        ClaimError::Files(..) => error.into(),
    }
}
