//! `lariat usage`: what was used, and what it cost.

use lariat_adapters::look::Scope;
use lariat_core::text::{columns, fit};
use lariat_core::{Time, Tokens, Untrusted, Warning};
use lariat_engine::prices;
use lariat_engine::usage::{self, By, Sum, Usage};
use lariat_sys::clock;
use serde::Serialize;

use crate::Done;
use crate::args::{self, Common, Since, UsageBy};
use crate::output::{Ink, Out};
use crate::table::short_count;
use crate::verbs::{question, usage_of, warn};

/// Some store could not be read whole.
pub const PARTLY: u8 = 5;
/// The widest that a name is shown.
const LONGEST: usize = 44;
/// A bar that is shorter says nothing.
const SHORTEST_BAR: usize = 6;
const LONGEST_BAR: usize = 40;

pub fn run(args: &args::Usage, common: &Common, out: &mut Out) -> Done {
    if let Some(target) = &args.target {
        return usage_of::run(target, common, out);
    }
    let by = match args.by {
        UsageBy::Day => By::Day,
        UsageBy::Agent => By::Agent,
        UsageBy::Model => By::Model,
        UsageBy::Dir => By::Dir,
        UsageBy::Group => By::Group,
        UsageBy::Session => By::Session,
    };
    let since = args.since.map(|since| match since {
        Since::At(at) => at,
        Since::Ago(ago) => Time(clock::now_ms().saturating_sub(i64::try_from(ago.as_millis()).unwrap_or(i64::MAX))),
    });
    let places = question(common, Scope::All).places;
    let usage = usage::usage(&places, by, since);
    if out.json {
        out.json(&Told::of(&usage, by, since))?;
    } else {
        for line in lines(&usage, places.home.to_str().unwrap_or(""), out) {
            out.line(line)?;
        }
        out.flush()?;
        warn(&usage.warnings);
    }
    Ok(if usage.partial { PARTLY } else { 0 })
}

fn word(by: By) -> &'static str {
    match by {
        By::Day => "day",
        By::Agent => "agent",
        By::Model => "model",
        By::Dir => "dir",
        By::Group => "group",
        By::Session => "session",
    }
}

#[derive(Serialize)]
struct Told<'a> {
    schema: u32,
    at: Time,
    by: &'static str,
    since: Option<Time>,
    rows: Vec<Row<'a>>,
    total: Row<'a>,
    unpriced_models: &'a [Untrusted],
    prices: Vec<PriceTold<'a>>,
    notes: &'a [String],
    warnings: &'a [Warning],
}

/// What was used; by default of what is not known.
#[derive(Default, Serialize)]
pub struct Row<'a> {
    key: Option<&'a Untrusted>,
    tokens: Option<Tokens>,
    answers: Option<u64>,
    cost_usd: Option<f64>,
    recorded_usd: Option<f64>,
    table_usd: Option<f64>,
    unpriced_tokens: Option<u64>,
}

impl<'a> Row<'a> {
    pub fn of(key: Option<&'a Untrusted>, sum: &Sum) -> Row<'a> {
        Row {
            key,
            tokens: Some(sum.tokens),
            answers: Some(sum.answers),
            cost_usd: sum.cost().map(cents),
            recorded_usd: Some(cents(sum.recorded())),
            table_usd: Some(cents(sum.by_table())),
            unpriced_tokens: Some(sum.unpriced),
        }
    }
}

#[derive(Serialize)]
struct PriceTold<'a> {
    model: &'a Untrusted,
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: f64,
    as_of: Option<&'a str>,
}

impl<'a> Told<'a> {
    fn of(usage: &'a Usage, by: By, since: Option<Time>) -> Told<'a> {
        Told {
            schema: 1,
            at: usage.at,
            by: word(by),
            since,
            rows: usage.rows.iter().map(|(key, sum)| Row::of(key.as_ref(), sum)).collect(),
            total: Row::of(None, &usage.total),
            unpriced_models: &usage.unpriced,
            prices: usage
                .prices
                .iter()
                .map(|(model, p)| PriceTold {
                    model,
                    input: p.input,
                    output: p.output,
                    cache_read: p.cache_read,
                    cache_write: p.cache_write,
                    as_of: p.as_of.as_deref(),
                })
                .collect(),
            notes: &usage.notes,
            warnings: &usage.warnings,
        }
    }
}

/// Without the noise of adding up many small numbers.
fn cents(usd: f64) -> f64 {
    (usd * 1e9).round() / 1e9
}

/// The cost as a person reads it: `≥` if a part has no price, `─` if all of it has none.
pub fn dollars(sum: &Sum) -> String {
    match sum.at_least() {
        None => "─".into(),
        Some(usd) => format!("{}{}", if sum.unpriced > 0 { "≥" } else { "" }, shown(usd)),
    }
}

/// What is less than a cent is shown to the hundredth of one.
fn shown(usd: f64) -> String {
    if usd > 0.0 && usd < 0.01 { format!("${usd:.4}") } else { format!("${usd:.2}") }
}

const CELLS: usize = 7;

fn cells(name: String, sum: &Sum) -> [String; CELLS] {
    let t = sum.tokens;
    let counts = [t.input, t.output, t.cache_read, t.cache_write].map(short_count);
    let [input, output, read, write] = counts;
    [name, input, output, read, write, short_count(sum.all_tokens()), dollars(sum)]
}

fn lines(usage: &Usage, home: &str, out: &Out) -> Vec<String> {
    let mut lines = Vec::new();
    if usage.rows.is_empty() {
        lines.push("Nothing was used.".to_owned());
    } else {
        let name = |name: &Option<Untrusted>| match name.as_ref().map(|n| (n, n.raw().strip_prefix(home))) {
            None => "─".into(),
            Some((_, Some(rest))) if home.len() > 1 && rest.starts_with('/') => {
                Untrusted::new(format!("~{rest}")).row()
            }
            Some((name, _)) => name.row(),
        };
        let mut rows = vec![["", "input", "output", "read", "written", "tokens", "cost"].map(str::to_owned)];
        rows.extend(usage.rows.iter().map(|(key, sum)| cells(name(key), sum)));
        rows.push(cells("total".into(), &usage.total));
        let largest = usage.rows.iter().map(|(_, sum)| sum.all_tokens()).max().unwrap_or(0);
        let bars: Vec<u64> = usage.rows.iter().map(|(_, sum)| sum.all_tokens()).collect();
        let widths = widths(&rows, out.columns());
        for (i, row) in rows.iter().enumerate() {
            let bar =
                i.checked_sub(1).and_then(|i| bars.get(i)).map_or_else(String::new, |n| bar(*n, largest, widths.1));
            let ink = if i == 0 || i + 1 == rows.len() { Ink::Bold } else { Ink::Plain };
            let text = out.ink(ink, line(row, &widths.0));
            let gap = if bar.is_empty() { "" } else { "  " };
            lines.push(format!("{text}{gap}{}", out.ink(Ink::Active, bar)));
        }
    }
    let mut notes = Vec::new();
    if usage.total.recorded() > 0.0 {
        notes.push(format!("{} of it is what the agents themselves recorded", shown(usage.total.recorded())));
    }
    if usage.total.by_table() > 0.0 {
        let ours = usage.prices.iter().any(|(_, p)| p.as_of.as_deref() == Some(prices::AS_OF));
        let of = if ours { format!(", as of {}", prices::AS_OF) } else { String::new() };
        notes.push(format!("{} of it is tokens times prices{of}", shown(usage.total.by_table())));
    }
    if !usage.unpriced.is_empty() {
        let names: Vec<String> = usage.unpriced.iter().take(8).map(Untrusted::row).collect();
        let more = if usage.unpriced.len() > 8 { ", …" } else { "" };
        let tokens = short_count(usage.total.unpriced);
        notes.push(format!("{tokens} tokens have no price ([[price]] in the settings): {}{more}", names.join(", ")));
    }
    notes.extend(usage.notes.iter().cloned());
    if !notes.is_empty() {
        lines.push(String::new());
        lines.extend(notes.into_iter().map(|note| out.ink(Ink::Dim, note)));
    }
    lines
}

/// Widths of the cells, and of the bar; 0 drops one. First the bar goes, then the parts of the
/// tokens, then what is left of the name.
fn widths(rows: &[[String; CELLS]], available: usize) -> ([usize; CELLS], usize) {
    let mut widths = [0; CELLS];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(columns(cell));
        }
    }
    widths[0] = widths[0].min(LONGEST);
    let used = |w: &[usize; CELLS]| w.iter().filter(|w| **w > 0).map(|w| w + 2).sum::<usize>();
    for column in [4, 3, 1, 2] {
        if used(&widths) > available {
            widths[column] = 0;
        }
    }
    let over = used(&widths).saturating_sub(available + 2);
    widths[0] -= over.min(widths[0].saturating_sub(4));
    let left = available.saturating_sub(used(&widths));
    (widths, if left < SHORTEST_BAR { 0 } else { left.min(LONGEST_BAR) })
}

fn line(row: &[String; CELLS], widths: &[usize; CELLS]) -> String {
    let mut line = String::new();
    for (i, (cell, width)) in row.iter().zip(widths).enumerate().filter(|(_, (_, w))| **w > 0) {
        let text = fit(cell, *width);
        let pad = " ".repeat(width - columns(&text));
        let gap = if line.is_empty() { "" } else { "  " };
        line.push_str(gap);
        line.push_str(&if i == 0 { text + &pad } else { pad + &text });
    }
    line.trim_end().to_owned()
}

/// A bar in eighths of a column; whatever is more than nothing is seen.
fn bar(of: u64, largest: u64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if largest == 0 || width == 0 {
        return String::new();
    }
    let eighths = (of as f64 / largest as f64 * (width * 8) as f64).round() as usize;
    let eighths = eighths.clamp(usize::from(of > 0), width * 8);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_what_they_show() {
        assert_eq!(bar(100, 100, 4), "████");
        assert_eq!(bar(50, 100, 4), "██");
        assert_eq!(bar(1, 100_000, 4), "▏", "little is not nothing");
        assert_eq!((bar(0, 100, 4), bar(0, 0, 4), bar(1, 1, 0)), Default::default());
    }

    #[test]
    fn every_width_fits() {
        let long = "~/work/a-directory-with-quite-a-long-name/below".to_owned();
        let row = [long, "12.3k".into(), "1.0M".into(), "99".into(), "0".into(), "13.4M".into(), "≥$1234.56".into()];
        for available in 0..200 {
            let (widths, bar) = widths(std::slice::from_ref(&row), available);
            let text = columns(&line(&row, &widths)) + if bar > 0 { bar + 2 } else { 0 };
            assert!(text <= available.max(4 + 2 + 5 + 2 + 9), "{available}: {text}, {widths:?}, {bar}");
            assert!(widths[5] > 0 && widths[6] > 0 && widths[0] >= 4, "name, tokens and cost stay");
        }
    }
}
