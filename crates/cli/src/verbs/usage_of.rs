//! `lariat usage TARGET`: what one session used, over time.

use lariat_adapters::look::Scope;
use lariat_core::{Time, Untrusted, Warning};
use lariat_engine::series::{self, Series};
use lariat_engine::usage::Sum;
use serde::Serialize;

use crate::Done;
use crate::args::Common;
use crate::output::{Ink, Out};
use crate::table::short_count;
use crate::verbs::usage::{PARTLY, Row, dollars};
use crate::verbs::{find, question, warn};

/// So many steps are told at most.
const MOST: usize = 500;
/// So many to a person.
const LINES: usize = 20;

#[derive(Serialize)]
struct Told<'a> {
    schema: u32,
    at: Time,
    id: &'a Untrusted,
    /// Whether its store tells when what was used.
    told: bool,
    steps: Vec<Step<'a>>,
    /// `null` where nothing is on record: nothing is known then, and that is not 0.
    total: Row<'a>,
    notes: &'a [String],
    warnings: &'a [Warning],
}

#[derive(Serialize)]
struct Step<'a> {
    at: Time,
    #[serde(flatten)]
    used: Row<'a>,
}

pub fn run(target: &str, common: &Common, out: &mut Out) -> Done {
    let (answer, at) = find(target, common)?;
    let session = &answer.listing.sessions[at];
    let places = question(common, Scope::Live).places;
    let series = series::series(&places, session, if out.json { MOST } else { LINES });
    let code = if series.warnings.is_empty() { 0 } else { PARTLY };
    if out.json {
        let steps = series.steps.iter().map(|s| Step { at: s.at, used: Row::of(None, &s.sum) }).collect();
        let Series { at, told, ref notes, ref warnings, ref total, .. } = series;
        let total = if told { Row::of(None, total) } else { Row::default() };
        out.json(&Told { schema: 1, at, id: &session.id, told, steps, total, notes, warnings })?;
        return Ok(code);
    }
    let line = |at: &str, sum: &Sum, so_far: &str| {
        let t = sum.tokens;
        let cache = t.cache_read.saturating_add(t.cache_write);
        let [input, output, cache] = [t.input, t.output, cache].map(short_count);
        format!("{at:<20} {input:>7} in {output:>7} out {cache:>7} cache {:>9} {so_far:>9}", dollars(sum))
    };
    let mut so_far = 0u64;
    for step in &series.steps {
        so_far = so_far.saturating_add(step.sum.all_tokens());
        out.line(line(&step.at.to_string(), &step.sum, &short_count(so_far)))?;
    }
    if series.told {
        out.line(out.ink(Ink::Bold, line("total", &series.total, &short_count(series.total.all_tokens()))))?;
    }
    for note in &series.notes {
        out.line(out.ink(Ink::Dim, note))?;
    }
    out.flush()?;
    warn(&series.warnings);
    Ok(code)
}
