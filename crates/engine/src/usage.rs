//! What was used: tokens and cost over every byte of every store.
//!
//! Adapters tell each use once; here it is put into the row that was asked for. Days are those of
//! UTC, so that an answer is the same wherever it is asked. A use costs what its agent says, else
//! what the tables say; what neither knows has tokens and no cost.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::AtomicUsize;

use lariat_adapters::look::{Look, Places, Scope, Sighting};
use lariat_adapters::settings::{Price, Settings};
use lariat_adapters::spent::{DAY, Grain, Spent, Tell, Use};
use lariat_core::{Row, Time, Tokens, Untrusted, Warning};
use lariat_sys::clock;

use crate::launched::{self, Launched};
use crate::list::{DEADLINE, session};
use crate::prices;
use crate::{acp, elsewhere};

/// What a row stands for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum By {
    /// A day of UTC.
    #[default]
    Day,
    /// An agent.
    Agent,
    /// A model.
    Model,
    /// A directory.
    Dir,
    /// A group that sessions were launched in.
    Group,
    /// A session.
    Session,
}

/// What was used and what it cost.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sum {
    /// `input` is what came from no cache.
    pub tokens: Tokens,
    /// How many answers.
    pub answers: u64,
    /// What the agents themselves say they cost, in millionths of a millionth of a USD.
    recorded: u128,
    /// What the others cost by the tables.
    by_table: u128,
    /// Answers whose cost is known.
    pub priced: u64,
    /// Tokens that have no price.
    pub unpriced: u64,
}

impl Sum {
    /// All tokens.
    pub fn all_tokens(&self) -> u64 {
        let t = self.tokens;
        [t.output, t.cache_read, t.cache_write].iter().fold(t.input, |sum, n| sum.saturating_add(*n))
    }

    /// The cost, in USD; `None` if any part of it is not known.
    pub fn cost(&self) -> Option<f64> {
        self.at_least().filter(|_| self.unpriced == 0)
    }

    /// What is known of the cost, in USD; `None` if nothing is.
    pub fn at_least(&self) -> Option<f64> {
        (self.priced > 0 || self.answers == 0).then_some(dollars(self.recorded + self.by_table))
    }

    /// What the agents themselves say they cost, in USD.
    pub fn recorded(&self) -> f64 {
        dollars(self.recorded)
    }

    /// What the others cost by the tables, in USD.
    pub fn by_table(&self) -> f64 {
        dollars(self.by_table)
    }

    pub(crate) fn add(&mut self, used: &Use, price: Option<&Price>) {
        let (to, from) = (&mut self.tokens, &used.tokens);
        to.input = to.input.saturating_add(from.input);
        to.output = to.output.saturating_add(from.output);
        to.cache_read = to.cache_read.saturating_add(from.cache_read);
        to.cache_write = to.cache_write.saturating_add(from.cache_write);
        self.answers += used.answers;
        match (used.cost, price) {
            (Some(cost), _) => self.recorded += u128::from(cost),
            (None, Some(price)) => self.by_table += prices::cost(price, from),
            (None, None) => {
                let all = [from.input, from.output, from.cache_read, from.cache_write];
                self.unpriced = all.iter().fold(self.unpriced, |sum, n| sum.saturating_add(*n));
                return;
            }
        }
        self.priced += used.answers;
    }

    pub(crate) fn join(&mut self, other: &Sum) {
        let (to, from) = (&mut self.tokens, &other.tokens);
        to.input = to.input.saturating_add(from.input);
        to.output = to.output.saturating_add(from.output);
        to.cache_read = to.cache_read.saturating_add(from.cache_read);
        to.cache_write = to.cache_write.saturating_add(from.cache_write);
        self.answers += other.answers;
        self.recorded += other.recorded;
        self.by_table += other.by_table;
        self.priced += other.priced;
        self.unpriced = self.unpriced.saturating_add(other.unpriced);
    }
}

fn dollars(usd: u128) -> f64 {
    usd as f64 / 1e12
}

/// The answer.
#[derive(Debug)]
pub struct Usage {
    /// When it was asked.
    pub at: Time,
    /// Each row: its name, `None` for what has none, and what was used. Days in their order, all
    /// else by what was used most.
    pub rows: Vec<(Option<Untrusted>, Sum)>,
    /// All together.
    pub total: Sum,
    /// Models that were used and have no price.
    pub unpriced: Vec<Untrusted>,
    /// The prices that were taken, with the model each was taken for.
    pub prices: Vec<(Untrusted, Price)>,
    /// What is left out on purpose, for a person to know.
    pub notes: Vec<String>,
    /// What could not be read.
    pub warnings: Vec<Warning>,
    /// Something could not be read: the numbers are too small.
    pub partial: bool,
}

/// Adds up what was used since a time, or ever.
pub fn usage(places: &Places, by: By, since: Option<Time>) -> Usage {
    let now = Time(clock::now_ms());
    let settings = Settings::read(places);
    let launched = launched::All::read(places);
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
    let since = since.map(|t| t.0.div_euclid(1000));
    // What began within a day is told by answers only.
    let grain = if since.is_some_and(|since| since.rem_euclid(DAY) != 0) { Grain::Answer } else { Grain::Day };
    let mut rows = Rows { by, since, own: &settings.prices, ..Rows::default() };
    let mut usage = Usage {
        at: now,
        rows: Vec::new(),
        total: Sum::default(),
        unpriced: Vec::new(),
        prices: Vec::new(),
        notes: Vec::new(),
        warnings: settings.warnings.clone(),
        partial: false,
    };
    let mut silent = Vec::new();
    // What was launched to speak ACP is in its agent's own store, under the same id.
    let owned = launched.by_id.values().filter(|l| acp::is_owned(&l.record.agent));
    let owned: HashMap<&str, &Launched> = owned.filter_map(|l| Some((l.record.native_id.as_deref()?, l))).collect();
    let group = |agent: &str, session: &str| {
        let id = [agent, ":", session].concat();
        launched.by_id.get(&id).or_else(|| owned.get(session).copied())?.record.group.clone()
    };
    // Of the stores of others only what was launched there is ours, unless it is here, too.
    let mut ours: HashSet<String> = launched.ids().collect();
    let here = lariat_adapters::all().into_iter().map(|adapter| (adapter, None));
    let others = elsewhere::others(places, &launched);
    for (adapter, there) in here.chain(others.iter().map(|(adapter, there)| (*adapter, Some(there)))) {
        let agent = adapter.name();
        let group = |session: &str| group(agent, session);
        let mut told = HashSet::new();
        let mut take = |spent: Spent<'_>| {
            let owned = (!ours.is_empty()).then(|| [agent, ":", spent.session].concat()).filter(|id| ours.contains(id));
            if there.is_some() && owned.is_none() {
                return;
            }
            told.extend(owned.filter(|_| !spent.uses.is_empty()));
            rows.take(agent, &spent, &group);
        };
        match adapter.spent(&Look { places: there.unwrap_or(places), ..look }, &mut Tell { grain, to: &mut take }) {
            Some(warnings) => usage.warnings.extend(warnings),
            None if there.is_none() => silent.push(agent),
            None => {}
        }
        ours.retain(|id| !told.contains(id));
    }
    // They tell of other stores, and of groups.
    usage.warnings.extend(launched.warnings.iter().cloned());
    // Settings that cannot be read may hold prices.
    usage.partial = settings.unread || usage.warnings.len() > settings.warnings.len();
    if !silent.is_empty() {
        usage.notes.push(format!("{}: keeps no record of what it uses here", silent.join(", ")));
    }
    if rows.undated > 0 {
        usage.notes.push(format!("{} answers without a time are left out", rows.undated));
    }
    usage.warnings.sort_unstable();
    usage.warnings.dedup();
    rows.tell(usage)
}

#[derive(Default)]
struct Rows<'a> {
    by: By,
    since: Option<i64>,
    own: &'a [Price],
    days: BTreeMap<Option<i64>, Sum>,
    named: HashMap<Option<String>, Sum>,
    /// Where each model stands in `priced`.
    models: HashMap<String, usize>,
    /// Of each model, its price, if it has one, and whether it was needed.
    priced: Vec<(String, Option<Price>, bool)>,
    undated: u64,
}

impl Rows<'_> {
    fn take(&mut self, agent: &str, spent: &Spent<'_>, group: &dyn Fn(&str) -> Option<String>) {
        let models: Vec<usize> = spent.models.iter().map(|model| self.number(model)).collect();
        let mut by_model = vec![Sum::default(); if self.by == By::Model { models.len() } else { 1 }];
        let mut day = (None, Sum::default());
        for used in spent.uses {
            match (self.since, used.at) {
                (Some(since), Some(at)) if at < since => continue,
                (Some(_), None) => {
                    self.undated += used.answers;
                    continue;
                }
                _ => {}
            }
            let of = used.at.map(|at| at.div_euclid(DAY));
            if self.by == By::Day && of != day.0 {
                self.of_day(std::mem::replace(&mut day, (of, Sum::default())));
            }
            let mut price = None;
            if let Some((_, known, needed)) = models.get(used.model).and_then(|m| self.priced.get_mut(*m)) {
                *needed |= used.cost.is_none();
                price = known.as_ref();
            }
            match self.by {
                By::Day => day.1.add(used, price),
                By::Model => by_model[used.model.min(models.len() - 1)].add(used, price),
                _ => by_model[0].add(used, price),
            }
        }
        self.of_day(day);
        let name = match self.by {
            By::Day => return,
            By::Model => {
                for (model, sum) in spent.models.iter().zip(by_model) {
                    self.of_name(Some((*model).to_owned()), &sum);
                }
                return;
            }
            By::Agent => Some(agent.to_owned()),
            By::Dir => spent.dir.map(str::to_owned),
            By::Group => group(spent.session),
            By::Session => Some([agent, ":", spent.session].concat()),
        };
        self.of_name(name, &by_model[0]);
    }

    /// Where a model stands in `priced`.
    fn number(&mut self, model: &str) -> usize {
        if let Some(number) = self.models.get(model) {
            return *number;
        }
        self.priced.push((model.to_owned(), prices::of(model, self.own), false));
        self.models.insert(model.to_owned(), self.priced.len() - 1);
        self.priced.len() - 1
    }

    fn of_day(&mut self, (day, sum): (Option<i64>, Sum)) {
        if sum.answers > 0 {
            self.days.entry(day).or_default().join(&sum);
        }
    }

    fn of_name(&mut self, name: Option<String>, sum: &Sum) {
        if sum.answers > 0 {
            self.named.entry(name).or_default().join(sum);
        }
    }

    fn tell(self, mut usage: Usage) -> Usage {
        let day = |day: i64| Untrusted::new(Time(day * DAY * 1000).to_string().chars().take(10).collect::<String>());
        let days = self.days.into_iter().map(|(at, sum)| (at.map(day), sum));
        let mut named: Vec<_> = self.named.into_iter().map(|(name, sum)| (name.map(Untrusted::new), sum)).collect();
        named.sort_by(|a, b| b.1.all_tokens().cmp(&a.1.all_tokens()).then_with(|| a.0.cmp(&b.0)));
        usage.rows = days.chain(named).collect();
        for (_, sum) in &usage.rows {
            usage.total.join(sum);
        }
        let mut unpriced = BTreeSet::new();
        for (model, price, needed) in self.priced {
            match price {
                _ if !needed => {}
                Some(price) => usage.prices.push((Untrusted::new(model), price)),
                None => drop(unpriced.insert(model)),
            }
        }
        usage.prices.sort_by(|a, b| a.0.cmp(&b.0));
        usage.unpriced = unpriced.into_iter().map(Untrusted::new).collect();
        usage
    }
}
