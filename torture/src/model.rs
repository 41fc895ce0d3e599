//! What must be true of a sequence, read from its log, whatever happened in it.
//!
//! The log holds what was asked and what was told, what each agent did by its own account, and who
//! was seen in `/proc` after each step, all in one order. The model knows nothing of lariat: neither
//! its records nor how it decides.
//!
//! - **Nothing comes back.** Once an end was acknowledged, or the end of an agent by itself was on
//!   record, no start of that session comes before a person asks to resume it.
//! - **Nothing is twice.** No agent starts while another of its session lives.
//! - **Nothing is lost.** What an agent wrote can be read, in a worktree or from a ref.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

/// What does not fit: each a sentence.
pub fn check(log: &[Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    // Sessions that are over, by whose word.
    let mut over: BTreeMap<String, &'static str> = BTreeMap::new();
    for line in log {
        let verb = line["asked"][0].as_str().or_else(|| line["told"][0].as_str()).unwrap_or_default();
        let target = |key: &str| line[key][1].as_str().unwrap_or_default().to_owned();
        if line.get("asked").is_some() && verb == "resume" {
            over.remove(&target("asked"));
        }
        if line.get("told").is_some() && line["code"] == 0 && matches!(verb, "kill" | "stop") {
            over.insert(target("told"), "its end was acknowledged");
        }
        if let Some(handle) = line["ended"].as_str() {
            over.insert(handle.to_owned(), "it had ended by itself");
        }
        if let Some(handle) = line["start"].as_str()
            && let Some(why) = over.get(handle)
        {
            wrong.push(format!("resurrected: {why}, and {handle} was started: {line}"));
        }
        if let Some(handle) = line["doubled"].as_str() {
            wrong.push(format!("doubled: a second agent of {handle}: {line}"));
        }
        for (handle, pids) in line["seen"].as_object().into_iter().flatten() {
            if pids.as_array().is_some_and(|p| p.len() > 1) {
                wrong.push(format!("doubled: {handle} is {pids}"));
            }
            if let Some(why) = over.get(handle) {
                wrong.push(format!("resurrected: {why}, and {handle} lives: {pids}"));
            }
        }
    }
    wrong
}

/// What was written and is not among what can be read.
pub fn lost(log: &[Value], readable: &HashSet<String>) -> Vec<String> {
    let written = log.iter().filter_map(|line| Some((line["wrote"].as_str()?, line)));
    written.filter(|(token, _)| !readable.contains(*token)).map(|(_, line)| format!("lost: {line}")).collect()
}

/// Every token in some bytes.
pub fn tokens(bytes: &[u8], into: &mut HashSet<String>) {
    const LONG: usize = 16;
    let mut rest = bytes;
    while let Some(at) = rest.windows(2).position(|w| w == b"TK") {
        rest = &rest[at + 2..];
        let Some(digits) = rest.get(..LONG).filter(|d| d.iter().all(u8::is_ascii_hexdigit)) else { continue };
        into.insert(format!("TK{}", String::from_utf8_lossy(digits)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(lines: &[Value]) -> Vec<String> {
        check(lines).iter().map(|w| w.split(':').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn only_a_person_brings_back_what_is_over() {
        let (start, kill) = (json!({"start": "a"}), json!({"told": ["kill", "a"], "code": 0}));
        let (resume, restore) = (json!({"asked": ["resume", "a"]}), json!({"asked": ["restore", "--yes"]}));
        let other = json!({"asked": ["resume", "b"]});
        assert!(found(&[start.clone(), kill.clone(), resume.clone(), start.clone()]).is_empty());
        assert!(found(&[start.clone(), restore.clone(), start.clone()]).is_empty(), "it was cut off");
        assert_eq!(found(&[start.clone(), kill.clone(), restore.clone(), start.clone()]), ["resurrected"]);
        assert_eq!(found(&[kill.clone(), other, start.clone()]), ["resurrected"]);
        assert_eq!(found(&[resume, kill, start.clone()]), ["resurrected"], "asked before the end");
        assert_eq!(found(&[json!({"ended": "a"}), restore, start.clone()]), ["resurrected"]);
        let failed = json!({"told": ["kill", "a"], "code": 1});
        assert!(found(&[failed, start]).is_empty(), "it was not acknowledged");
        let seen = json!({"seen": {"a": [7]}});
        assert_eq!(found(&[json!({"told": ["stop", "a"], "code": 0}), seen]), ["resurrected"]);
    }

    #[test]
    fn two_of_one_are_one_too_many() {
        assert_eq!(found(&[json!({"doubled": "a"})]), ["doubled"]);
        assert_eq!(found(&[json!({"seen": {"a": [7, 8], "b": [9]}})]), ["doubled"]);
        assert!(found(&[json!({"seen": {"a": [7]}}), json!({"seen": {"a": [7]}})]).is_empty());
    }

    #[test]
    fn a_byte_is_lost_when_nobody_can_read_it() {
        let log = [json!({"wrote": "TK0123456789abcdef"}), json!({"wrote": "TK0000000000000000"})];
        let mut readable = HashSet::new();
        tokens(b"x TKTK0123456789abcdef\nTK01", &mut readable);
        assert_eq!(readable.len(), 1);
        assert_eq!(lost(&log, &readable).len(), 1);
    }
}
