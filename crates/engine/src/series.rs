//! What one session used, over time: the answers in its own files, in their order.
//!
//! Unlike [`crate::usage`] it looks at one session alone, so that it can be asked often. What a fork copied from its
//! parent is among it; what Codex's sub-agents used, which stands in files of their own, is not.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;

use lariat_adapters::look::{Look, Places, Scope, Sighting};
use lariat_adapters::settings::{Price, Settings};
use lariat_adapters::spent::{Grain, Spent, Tell, Use};
use lariat_core::{Row, Session, Time, Warning};
use lariat_sys::clock;

use crate::list::{DEADLINE, session};
use crate::prices;
use crate::usage::Sum;
use crate::{acp, elsewhere, launched};

/// What was used up to a time, since the step before.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// When the last of it was used.
    pub at: Time,
    /// What was used.
    pub sum: Sum,
}

/// The answer.
#[derive(Debug)]
pub struct Series {
    /// When it was asked.
    pub at: Time,
    /// Whether its store tells when what was used; if not, there are no steps, and a note says why.
    pub told: bool,
    /// In the order of time.
    pub steps: Vec<Step>,
    /// All together, what has no time included.
    pub total: Sum,
    /// What is left out on purpose, for a person to know.
    pub notes: Vec<String>,
    /// What could not be read.
    pub warnings: Vec<Warning>,
}

/// What a session used, in no more steps than `most`.
pub fn series(places: &Places, asked: &Session, most: usize) -> Series {
    let now = Time(clock::now_ms());
    let settings = Settings::read(places);
    let steps = AtomicUsize::new(0);
    let judge = |agent: &'static str, s: Sighting| {
        Row::Session(session(agent, [agent, ":", &s.native_id].concat(), s, None, now))
    };
    let look = Look {
        places,
        settings: &settings,
        table: Err("processes were not asked for"),
        now,
        deadline: DEADLINE,
        scope: Scope::All,
        steps: &steps,
        judge: &judge,
    };
    let (mut total, mut undated) = (Sum::default(), 0);
    let mut uses: Vec<(i64, Sum)> = Vec::new();
    let mut known: HashMap<String, Option<Price>> = HashMap::new();
    let mut take = |spent: Spent<'_>| {
        for used in spent.uses {
            let model = spent.models.get(used.model).copied().unwrap_or_default();
            let price = known.entry(model.to_owned()).or_insert_with(|| prices::of(model, &settings.prices));
            let add = |sum: &mut Sum, used: &Use| sum.add(used, price.as_ref());
            add(&mut total, used);
            let mut sum = Sum::default();
            add(&mut sum, used);
            match used.at {
                Some(at) => uses.push((at, sum)),
                None => undated += used.answers,
            }
        }
    };
    // It may have been launched with its store elsewhere.
    let launched = asked.handle.as_ref().and_then(|_| launched::All::read(places).take(asked));
    let stores = launched.and_then(|l| l.record.stores);
    // Behind a connection of ours is an agent with a store of its own. One of a gateway's machine is not in the stores of
    // this one.
    let own = asked.also.as_ref().filter(|_| acp::is_owned(asked.agent));
    let agent = own.and_then(|id| id.raw().split(':').next()).unwrap_or(asked.agent);
    let adapter = lariat_adapters::all().into_iter().find(|a| agent == a.name() && asked.host.is_none());
    let mut tell = Tell { grain: Grain::Answer, to: &mut take };
    let there = adapter.zip(stores).map(|(adapter, stores)| elsewhere::store_of(places, adapter, asked, &stores));
    let look = Look { places: there.as_ref().unwrap_or(places), ..look };
    let warnings = adapter.and_then(|a| a.spent_by(&look, asked.native_id.raw(), &mut tell));
    let told = warnings.is_some();
    let mut notes = Vec::new();
    if !told {
        notes.push(format!("{}: keeps no record here of when it used what", asked.agent));
    }
    if undated > 0 {
        notes.push(format!("{undated} answers without a time are in no step"));
    }
    uses.sort_by_key(|(at, _)| *at);
    let each = uses.len().div_ceil(most.max(1)).max(1);
    let step = |part: &[(i64, Sum)]| {
        let mut sum = Sum::default();
        part.iter().for_each(|(_, one)| sum.join(one));
        Step { at: Time(part.last().map_or(0, |(at, _)| at * 1000)), sum }
    };
    let steps = uses.chunks(each).map(step).collect();
    Series { at: now, told, steps, total, notes, warnings: warnings.unwrap_or_default() }
}
