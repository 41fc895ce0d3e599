//! What a run prints: the machine, the answers, and a table of ratios.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::measure::Series;

/// One comparison. Numbers are printed, never asserted.
pub struct Row {
    pub name: String,
    pub unit: &'static str,
    pub ours: [f64; 2],
    pub limit_name: &'static str,
    pub limit: [f64; 2],
    /// How many times the limit ours may be, where that is held.
    pub hold: Option<f64>,
}

impl Row {
    /// Times in milliseconds: minimum and median of each side.
    pub fn times(name: &str, ours: &Series, limit_name: &'static str, limit: &Series, hold: Option<f64>) -> Self {
        Self {
            name: name.to_owned(),
            unit: "ms",
            ours: [ours.min(), ours.median()],
            limit_name,
            limit: [limit.min(), limit.median()],
            hold,
        }
    }

    /// One number against a fixed ceiling.
    pub fn ceiling(name: &str, unit: &'static str, ours: f64, ceiling: f64) -> Self {
        let limit_name = "fixed ceiling";
        Self { name: name.to_owned(), unit, ours: [ours; 2], limit_name, limit: [ceiling; 2], hold: Some(1.0) }
    }

    /// Ratio of the minimums and of the medians; the second decides. None of none is as it shall be.
    fn ratios(&self) -> [f64; 2] {
        let ratio = |n: usize| if self.ours[n] == self.limit[n] { 1.0 } else { self.ours[n] / self.limit[n] };
        [ratio(0), ratio(1)]
    }

    fn verdict(&self) -> &'static str {
        match self.hold {
            None => "-",
            Some(hold) if self.ratios()[1] <= hold => "holds",
            Some(_) => "MISSED",
        }
    }

    fn json(&self) -> Value {
        let [ratio_min, ratio_median] = self.ratios();
        json!({
            "name": self.name, "unit": self.unit,
            "ours": {"min": self.ours[0], "median": self.ours[1]},
            "limit": {"name": self.limit_name, "min": self.limit[0], "median": self.limit[1]},
            "ratio": {"min": ratio_min, "median": ratio_median},
            "hold": self.hold, "verdict": self.verdict(),
        })
    }
}

/// Everything one run of the rig has to say.
#[derive(Default)]
pub struct Report {
    pub facts: Vec<(&'static str, String)>,
    pub notes: Vec<String>,
    pub rows: Vec<Row>,
}

impl Report {
    pub fn fact(&mut self, name: &'static str, value: impl Into<String>) {
        self.facts.push((name, value.into()));
    }

    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// What the machine is: ratios travel, times do not.
    pub fn machine(&mut self, corpus: &Path) {
        let first = |path: &str, key: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
            line.split_once(':').map_or(line, |(_, value)| value).trim().to_owned()
        };
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        self.fact("cpu", format!("{} x {}", cores, first("/proc/cpuinfo", "model name")));
        self.fact("memory", first("/proc/meminfo", "MemTotal"));
        self.fact("kernel", first("/proc/sys/kernel/osrelease", ""));
        self.fact("file system", file_system(corpus));
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.facts {
            let _ = writeln!(text, "{name:<12} {value}");
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        let _ = writeln!(
            text,
            "\n{:<34} {:>17} {:>17}  {:<22} {:>13} {:>6}  verdict",
            "what (min/median)", "lariat", "limit", "limit is", "ratio", "hold"
        );
        for row in &self.rows {
            let [a, b] = row.ratios();
            let pair = |[low, mid]: [f64; 2]| format!("{low:.1}/{mid:.1} {}", row.unit);
            let hold = row.hold.map_or("-".to_owned(), |hold| format!("{hold:.1}x"));
            let _ = writeln!(
                text,
                "{:<34} {:>17} {:>17}  {:<22} {:>13} {:>6}  {}",
                row.name,
                pair(row.ours),
                pair(row.limit),
                row.limit_name,
                format!("{a:.2}/{b:.2}x"),
                hold,
                row.verdict()
            );
        }
        text
    }

    pub fn json(&self) -> Value {
        let facts: serde_json::Map<_, _> =
            self.facts.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let rows: Vec<_> = self.rows.iter().map(Row::json).collect();
        json!({"schema": 1, "facts": facts, "notes": self.notes, "rows": rows})
    }
}

/// The type of the file system that holds `path`.
fn file_system(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?))
        })
        .filter(|(point, _)| path.starts_with(point))
        .max_by_key(|(point, _)| point.len())
        .map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned())
}
