//! Is the answer right? A listing is held against the manifest before it is timed.
//!
//! Every session must be there exactly once with its status, directory and
//! (where a number is given at all) exact tokens and cost; nothing else may be
//! there, and no warning. Knowledge may be absent, never wrong: `null` tokens
//! pass where tokens exist, numbers fail where none are recorded.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use crate::corpus::{Expected, Tokens};

/// The part of `lariat ls --json` that is checked.
#[derive(Deserialize)]
pub struct Listing {
    schema: u32,
    sessions: Vec<Row>,
    unbound: Vec<Value>,
    warnings: Vec<Value>,
}

#[derive(Deserialize)]
struct Row {
    id: String,
    status: String,
    live: Option<bool>,
    cwd: Option<String>,
    tokens: Option<RowTokens>,
    cost_usd: Option<f64>,
}

#[derive(Deserialize)]
struct RowTokens {
    input: Option<u64>,
    output: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
}

/// What a check found: how much was known, and everything that was wrong.
#[derive(Default)]
pub struct Verdict {
    pub sessions: usize,
    pub with_tokens: usize,
    pub with_cost: usize,
    pub wrong: Vec<String>,
}

impl Verdict {
    pub fn right(&self) -> bool {
        self.wrong.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 20;
        if self.right() {
            let Self { sessions, with_tokens, with_cost, .. } = self;
            return write!(f, "right: {sessions} sessions, {with_tokens} with exact tokens, {with_cost} with cost");
        }
        write!(f, "WRONG in {} points", self.wrong.len())?;
        for point in self.wrong.iter().take(SHOWN) {
            write!(f, "\n    {point}")?;
        }
        if self.wrong.len() > SHOWN {
            write!(f, "\n    … and {} more", self.wrong.len() - SHOWN)?;
        }
        Ok(())
    }
}

/// Holds the output of `ls -a --json` (or, with no expectations, of `ls --json`) against the manifest.
pub fn check(output: &[u8], expected: &[Expected]) -> Verdict {
    let mut verdict = Verdict::default();
    let listing: Listing = match serde_json::from_slice(output) {
        Ok(listing) => listing,
        Err(error) => {
            verdict.wrong.push(format!("the output is not a listing: {error}"));
            return verdict;
        }
    };
    let wrong = &mut verdict.wrong;
    if listing.schema != 1 {
        wrong.push(format!("schema {} instead of 1", listing.schema));
    }
    wrong.extend(listing.warnings.iter().map(|warning| format!("a warning: {warning}")));
    wrong.extend(listing.unbound.iter().map(|process| format!("an unbound process: {process}")));

    let mut due: HashMap<&str, (&Expected, bool)> =
        expected.iter().map(|session| (session.id.as_str(), (session, false))).collect();
    for row in &listing.sessions {
        match due.get_mut(row.id.as_str()) {
            None => wrong.push(format!("{}: not in the corpus (status {})", row.id, row.status)),
            Some((_, seen)) if *seen => wrong.push(format!("{}: listed twice", row.id)),
            Some((session, seen)) => {
                *seen = true;
                verdict.sessions += 1;
                verdict.with_tokens += usize::from(row.tokens.is_some());
                verdict.with_cost += usize::from(row.cost_usd.is_some());
                compare(row, session, wrong);
            }
        }
    }
    let missing = expected.iter().filter(|session| due.get(session.id.as_str()).is_some_and(|(_, seen)| !seen));
    wrong.extend(missing.map(|session| format!("{}: missing ({}, {})", session.id, session.shape, session.path)));
    verdict
}

fn compare(row: &Row, session: &Expected, wrong: &mut Vec<String>) {
    let mut differ = |what: &str, told: &dyn fmt::Debug, truth: &dyn fmt::Debug| {
        wrong.push(format!("{}: {what} {told:?} instead of {truth:?} ({}, {})", row.id, session.shape, session.path));
    };
    if row.status != session.status {
        differ("status", &row.status, &session.status);
    }
    if row.live != Some(false) {
        differ("live", &row.live, &Some(false));
    }
    if row.cwd.as_deref() != Some(session.cwd.as_str()) {
        differ("cwd", &row.cwd, &session.cwd);
    }
    match (&row.tokens, session.tokens) {
        (None, _) => {}
        (Some(told), None) => {
            if told.input.is_some() || told.output.is_some() {
                differ("tokens", &(told.input, told.output), &None::<u64>);
            }
        }
        (Some(told), Some(truth)) => {
            let Tokens { input, output, cache_read, cache_write } = truth;
            let pairs = [
                ("input tokens", told.input, Some(input)),
                ("output tokens", told.output, Some(output)),
                ("cache reads", told.cache_read, Some(cache_read)),
                ("cache writes", told.cache_write, cache_write),
            ];
            for (what, told, truth) in pairs {
                // Where the store has no such field, 0 is as good as null.
                if told.is_some_and(|told| told != truth.unwrap_or(0)) {
                    differ(what, &told, &truth);
                }
            }
        }
    }
    if let (Some(told), Some(truth)) = (row.cost_usd, session.cost_usd)
        && (told - truth).abs() > 1e-6
    {
        differ("cost", &told, &truth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::Agent;

    fn session(id: &str, tokens: Option<Tokens>) -> Expected {
        Expected {
            id: id.to_owned(),
            agent: Some(Agent::Claude),
            cwd: "/home/dev/src/a".to_owned(),
            status: "done".to_owned(),
            shape: "test".to_owned(),
            tokens,
            cost_usd: Some(0.25),
            path: "x.jsonl".to_owned(),
            bytes: 1,
        }
    }

    fn row(id: &str, change: &str) -> String {
        let plain = format!(
            r#"{{"id":"{id}","status":"done","live":false,"cwd":"/home/dev/src/a","tokens":{{"input":1,"output":2,"cache_read":3,"cache_write":4}},"cost_usd":0.25}}"#
        );
        match change.split_once('>') {
            Some((from, to)) => {
                assert!(plain.contains(from), "{from}");
                plain.replace(from, to)
            }
            None => plain,
        }
    }

    fn listing(rows: &[String], warnings: &str) -> String {
        format!(r#"{{"schema":1,"at":"","sessions":[{}],"unbound":[],"warnings":[{warnings}]}}"#, rows.join(","))
    }

    fn wrong(rows: &[String], warnings: &str) -> usize {
        let tokens = Tokens { input: 1, output: 2, cache_read: 3, cache_write: Some(4) };
        let expected = [session("claude:a", Some(tokens)), session("claude:b", Some(tokens))];
        check(listing(rows, warnings).as_bytes(), &expected).wrong.len()
    }

    #[test]
    fn a_right_answer_passes_and_absent_knowledge_is_no_fault() {
        assert_eq!(wrong(&[row("claude:a", ""), row("claude:b", "")], ""), 0);
        let absent = row("claude:b", r#"{"input":1,"output":2,"cache_read":3,"cache_write":4}>null"#);
        assert_eq!(wrong(&[row("claude:a", r#""cost_usd":0.25>"cost_usd":null"#), absent], ""), 0);
    }

    #[test]
    fn every_kind_of_wrong_answer_is_seen() {
        let changes = [
            r#""done">"failed""#,
            r#""live":false>"live":true"#,
            r#""live":false>"live":null"#,
            r#"src/a>src/b"#,
            r#""input":1>"input":2"#,
            r#""output":2>"output":0"#,
            r#""cache_read":3>"cache_read":0"#,
            r#""cache_write":4>"cache_write":0"#,
            r#""cost_usd":0.25>"cost_usd":0.5"#,
        ];
        for change in changes {
            assert_eq!(wrong(&[row("claude:a", ""), row("claude:b", change)], ""), 1, "{change}");
        }
        let (a, b) = (row("claude:a", ""), row("claude:b", ""));
        assert_eq!(wrong(std::slice::from_ref(&a), ""), 1, "missing");
        assert_eq!(wrong(&[a.clone(), b.clone(), b.clone()], ""), 1, "twice");
        assert_eq!(wrong(&[a.clone(), b.clone(), row("claude:c", "")], ""), 1, "extra");
        assert_eq!(wrong(&[a, b], r#"{"adapter":"claude","error":"x"}"#), 1, "a warning");
        assert_eq!(check(b"nonsense", &[]).wrong.len(), 1);
    }

    #[test]
    fn tokens_where_none_are_recorded_are_a_guess() {
        let output = listing(&[row("claude:a", "")], "");
        assert_eq!(check(output.as_bytes(), &[session("claude:a", None)]).wrong.len(), 1);
    }
}
