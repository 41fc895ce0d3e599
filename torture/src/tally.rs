//! What a row found.

use serde::{Deserialize, Serialize};

/// How many violations are told in full.
const TOLD: usize = 20;

/// The count of one row.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Tally {
    /// How often it was tried, by what was tried.
    pub tried: Vec<(String, u64)>,
    /// What must never happen and did.
    pub violations: Vec<String>,
    /// How many there were in all.
    pub violated: u64,
    /// The wrong ways on purpose: what each is, how often it lost, of how many.
    pub controls: Vec<(String, u64, u64)>,
    /// What else is worth knowing.
    pub notes: Vec<String>,
    /// Why it could not be tried at all here.
    #[serde(default)]
    pub skipped: Option<String>,
}

impl Tally {
    /// Counts one try.
    pub fn try_one(&mut self, what: &str) {
        self.try_some(what, 1);
    }

    /// Counts several.
    pub fn try_some(&mut self, what: &str, count: u64) {
        match self.tried.iter_mut().find(|(name, _)| name == what) {
            Some((_, n)) => *n += count,
            None => self.tried.push((what.to_owned(), count)),
        }
    }

    /// Something that must never happen.
    pub fn violate(&mut self, what: impl Into<String>) {
        self.violated += 1;
        if self.violations.len() < TOLD {
            self.violations.push(what.into());
        }
    }

    /// Unless it holds, it is a violation.
    pub fn hold(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violate(what());
        }
    }

    /// Counts a try of a wrong way, and whether it lost.
    pub fn control(&mut self, what: &str, lost: bool) {
        let lost = u64::from(lost);
        match self.controls.iter_mut().find(|(name, ..)| name == what) {
            Some((_, n, of)) => (*n, *of) = (*n + lost, *of + 1),
            None => self.controls.push((what.to_owned(), lost, 1)),
        }
    }

    /// Something worth knowing.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// It cannot be tried on this machine, and why.
    pub fn skip(&mut self, why: impl Into<String>) {
        self.skipped = Some(why.into());
    }

    /// Nothing happened that must not, and every wrong way lost. What was skipped is said to be.
    pub fn holds(&self) -> bool {
        if self.skipped.is_some() {
            return self.violated == 0;
        }
        self.violated == 0 && !self.tried.is_empty() && self.controls.iter().all(|(_, lost, _)| *lost > 0)
    }

    /// For a person.
    pub fn text(&self) -> String {
        let mut lines: Vec<String> = self.tried.iter().map(|(what, n)| format!("  {n:>9} x {what}")).collect();
        lines.extend(self.skipped.iter().map(|why| format!("    SKIPPED: {why}")));
        lines.push(format!("  {:>9} violations", self.violated));
        lines.extend(self.violations.iter().map(|v| format!("            {v}")));
        let controls = self.controls.iter().map(|(what, lost, of)| {
            let word = if *lost > 0 { "as it must" } else { "NEVER: the rig cannot fail" };
            format!("            the wrong way lost {lost} of {of}, {word}: {what}")
        });
        lines.extend(controls);
        lines.extend(self.notes.iter().map(|n| format!("            note: {n}")));
        lines.join("\n")
    }
}
