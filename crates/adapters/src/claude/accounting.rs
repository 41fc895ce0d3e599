//! What Claude Code writes down of itself as it is left: what was used and what that cost, since when, and for how long.
//!
//! A run that goes on with a session goes on with its accounting, too, unless the run before was killed. What lay between
//! the two is not in it.

use serde::{Deserialize, Serialize};

use crate::json::Value;

/// The last accounting of a transcript.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Accounting {
    /// What was used: `input, output, cache_read, cache_write`.
    pub tokens: Option<[u64; 4]>,
    /// What that cost, if it has a price.
    pub usd: Option<f64>,
    /// Since when it counts.
    pub since: Option<i64>,
    /// When it was written, as it says itself: too early by what lay between runs.
    pub at: Option<i64>,
    /// The session was gone on with after an earlier one, with which this one goes on.
    pub goes_on: bool,
}

impl Accounting {
    /// Takes in what is written.
    pub fn take(&mut self, line: Value<'_>) {
        let mut used = [0; 4];
        for (_, model) in line.get("modelUsage").entries() {
            let keys = ["inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"];
            for (sum, key) in used.iter_mut().zip(keys) {
                *sum = u64::saturating_add(*sum, model.get(key).u64().unwrap_or(0));
            }
        }
        // With a model whose price it does not know, it only guesses.
        let usd = line.get("totalCostUSD").f64().filter(|usd| *usd >= 0.0);
        let usd = usd.filter(|_| !line.get("hasUnknownModelCost").is_true());
        let since = line.get("startTime").u64().and_then(|at| i64::try_from(at).ok());
        let at = since.zip(line.get("totalDuration").u64()).map(|(at, ms)| at.saturating_add_unsigned(ms));
        let goes_on = self.goes_on && since == self.since;
        *self = Accounting { tokens: Some(used), usd, since, at, goes_on };
    }

    /// The session is gone on with.
    pub fn stir(&mut self) {
        self.goes_on |= self.since.is_some();
    }
}
