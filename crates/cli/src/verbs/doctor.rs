//! `lariat doctor`: what this machine offers, and what the lack of it costs.

use lariat_adapters::look::Scope;
use lariat_core::Untrusted;
use lariat_engine::doctor::{Check, Health, examine};
use serde::Serialize;

use crate::Done;
use crate::args::Common;
use crate::output::{Ink, Out};
use crate::verbs::question;

#[derive(Serialize)]
struct Told<'a> {
    what: &'a str,
    health: &'static str,
    found: &'a str,
}

pub fn run(common: &Common, out: &mut Out) -> Done {
    let checks = examine(question(common, Scope::All));
    let bad = checks.iter().any(|c| c.health == Health::Bad);
    if out.json {
        #[derive(Serialize)]
        struct Report<'a> {
            schema: u32,
            version: &'static str,
            checks: Vec<Told<'a>>,
        }
        let told = checks.iter().map(|c| Told { what: &c.what, health: word(c), found: &c.found });
        out.json(&Report { schema: 1, version: env!("CARGO_PKG_VERSION"), checks: told.collect() })?;
    } else {
        for check in &checks {
            let (mark, ink) = match check.health {
                Health::Good => ("ok  ", Ink::Active),
                Health::Lacking => ("none", Ink::Dim),
                Health::Bad => ("bad ", Ink::Urgent),
            };
            let row = |t: &str| Untrusted::new(t).row();
            out.line(format_args!("{}  {:<18} {}", out.ink(ink, mark), row(&check.what), row(&check.found)))?;
        }
    }
    Ok(u8::from(bad))
}

fn word(check: &Check) -> &'static str {
    match check.health {
        Health::Good => "good",
        Health::Lacking => "lacking",
        Health::Bad => "bad",
    }
}
