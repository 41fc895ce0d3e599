//! How runs ended of which a gateway's list of sessions does not tell: those it begins by itself, on schedule.
//!
//! Such a row has no word for its last run, as if it had never run. The gateway's ledger of tasks has it, for some
//! days. It is asked only where a row needs it.

use std::collections::BTreeMap;

use serde_json::json;

use crate::json::Value;
use crate::openclaw::rows::Row;
use crate::openclaw::wire::Line;

/// As many as it gives at once, the latest first.
const MOST: usize = 500;
/// What the error of a run ends with that somebody aborted.
const ABORTED: &str = "OPENCLAW_DIRECT_ABORT";

/// One task that is over.
struct Task {
    /// The session it ran in, with the transcript.
    run: String,
    status: &'static str,
    error: Option<String>,
    ended: Option<i64>,
}

impl Task {
    fn read(task: Value<'_>) -> Option<Task> {
        let error = task.get("error").some_str().map(str::to_owned);
        let aborted = error.as_ref().is_some_and(|e| e.ends_with(ABORTED));
        let status = match task.get("status").str()? {
            "completed" | "succeeded" => "done",
            "failed" if aborted => "killed",
            "failed" => "failed",
            "timed_out" => "timeout",
            "cancelled" => "killed",
            _ => return None,
        };
        let run = task.get("childSessionKey").some_str()?.to_owned();
        let ended = task.get("endedAt").u64().and_then(|t| i64::try_from(t).ok());
        Some(Task { run, status, error, ended })
    }
}

/// Adds what the ledger tells to the rows that need it. Without one, they stand as they are.
pub fn complete(line: &mut Line<'_>, rows: &mut BTreeMap<String, Row>) {
    if !rows.values().any(Row::lacks_its_end) {
        return;
    }
    let read = |told: Value<'_>| told.get("tasks").items().filter_map(Task::read).collect::<Vec<_>>();
    let Ok(tasks) = line.call("tasks.list", &json!({"limit": MOST}), read) else { return };
    for row in rows.values_mut().filter(|row| row.lacks_its_end()) {
        let Some(run) = row.transcript.as_ref().map(|id| format!("{}:run:{id}", row.key)) else { continue };
        let Some(task) = tasks.iter().find(|task| task.run == run) else { continue };
        row.status = Some(task.status.to_owned());
        row.error = task.error.clone();
        row.ended = task.ended;
    }
}
