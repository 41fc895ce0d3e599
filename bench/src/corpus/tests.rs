//! The generator holds its word: one seed is one corpus, every line is JSON, and
//! the manifest says what the files say.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use super::*;

/// The sessions of a small corpus, in memory.
fn sessions(seed: u64) -> Vec<(Expected, Vec<u8>)> {
    let params = Params::new(120, 80, 12_000_000, seed);
    let (plans, _) = plan(&params);
    let pool = Pool::new(seed);
    plans
        .iter()
        .enumerate()
        .map(|(at, plan)| {
            let mut out = Vec::new();
            let written = plan.agent.write(plan, &pool, Rng::stream(seed, at as u64), &mut out);
            (expected(plan, &plan.agent.path(plan), written, out.len() as u64), out)
        })
        .collect()
}

fn hash(sessions: &[(Expected, Vec<u8>)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (expected, bytes) in sessions {
        expected.id.hash(&mut hasher);
        expected.path.hash(&mut hasher);
        bytes.hash(&mut hasher);
    }
    hasher.finish()
}

/// The lines that were written to their end.
fn lines(bytes: &[u8]) -> impl Iterator<Item = Value> {
    bytes
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| line.ends_with(b"\n"))
        .map(|line| serde_json::from_slice(line).expect("a line is JSON"))
}

#[test]
fn one_seed_is_one_corpus() {
    let first = hash(&sessions(7));
    assert_eq!(first, hash(&sessions(7)));
    assert_ne!(first, hash(&sessions(8)));
}

#[test]
fn every_line_is_json_and_only_killed_writes_are_torn() {
    for (expected, bytes) in sessions(7) {
        assert!(lines(&bytes).count() > 1, "{}", expected.path);
        let torn = !bytes.ends_with(b"\n");
        assert_eq!(torn, expected.shape.ends_with("killed in a write"), "{}", expected.path);
    }
}

#[test]
fn all_endings_and_shapes_occur() {
    let all = sessions(7);
    let seen: HashSet<_> = all.iter().map(|(e, _)| (e.agent.unwrap().name(), e.status.as_str())).collect();
    for status in ["done", "interrupted", "stopped", "failed"] {
        for agent in ["claude", "codex"] {
            assert!(seen.contains(&(agent, status)), "{agent} {status}");
        }
    }
    let ids: HashSet<_> = all.iter().map(|(e, _)| e.id.as_str()).collect();
    assert_eq!(ids.len(), all.len());
}

#[test]
fn the_manifest_counts_the_tokens_that_the_lines_hold() {
    for (expected, bytes) in sessions(7) {
        let told = expected.tokens.map(|t| [t.input, t.output, t.cache_read, t.cache_write.unwrap_or(0)]);
        let found = match expected.agent.unwrap() {
            Agent::Claude => Some(claude_tokens(&bytes)),
            Agent::Codex => codex_tokens(&bytes),
        };
        assert_eq!(told, found, "{} {}", expected.path, expected.shape);
    }
}

#[test]
fn a_cost_is_expected_only_where_the_last_cost_state_counts_everything() {
    let mut with_cost = 0;
    for (expected, bytes) in sessions(7) {
        let last = lines(&bytes).filter(|line| line["type"] == "cost-state").last();
        let counted = last.as_ref().map(|state| {
            let models = state["modelUsage"].as_object().expect("usage by model");
            models.values().map(|usage| usage["inputTokens"].as_u64().expect("a count")).sum::<u64>()
        });
        let whole = counted.is_some() && counted == expected.tokens.map(|tokens| tokens.input);
        assert_eq!(expected.cost_usd.is_some(), whole, "{}", expected.path);
        if let (Some(cost), Some(state)) = (expected.cost_usd, last) {
            assert_eq!(state["totalCostUSD"].as_f64(), Some(cost));
            with_cost += 1;
        }
    }
    assert!(with_cost > 10);
}

#[test]
fn the_sizes_fit_the_budget() {
    let all = sessions(7);
    let total: usize = all.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!((10_000_000..14_000_000).contains(&total), "{total}");
}

#[test]
fn a_foreign_directory_is_left_alone() {
    let dir = std::env::temp_dir().join(format!("lariat-bench-foreign-{}", std::process::id()));
    fs::create_dir_all(dir.join("keep")).expect("a directory");
    let refused = ensure(&dir, &Params::new(1, 1, 1_000_000, 7));
    assert!(refused.is_err() && dir.join("keep").exists());
    fs::remove_dir_all(dir).expect("gone");
}

#[test]
fn a_corpus_is_used_again_until_it_changes() {
    let dir = std::env::temp_dir().join(format!("lariat-bench-reuse-{}", std::process::id()));
    let params = Params::new(6, 3, 3_000_000, 7);
    let (first, made) = ensure(&dir, &params).expect("made");
    assert!(made);
    let (again, made) = ensure(&dir, &params).expect("found");
    assert!(!made && again == first);
    fs::remove_file(dir.join(&first.sessions[0].path)).expect("gone");
    let (remade, made) = ensure(&dir, &params).expect("made again");
    assert!(made && remade == first);
    fs::remove_dir_all(dir).expect("gone");
}

fn count(usage: &Value, names: [&str; 4]) -> [u64; 4] {
    names.map(|name| usage[name].as_u64().unwrap_or(0))
}

fn claude_tokens(bytes: &[u8]) -> [u64; 4] {
    let (mut seen, mut total) = (HashSet::new(), [0; 4]);
    let names = ["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
    for line in lines(bytes).filter(|line| line["type"] == "assistant") {
        let message = &line["message"];
        if seen.insert(message["id"].as_str().expect("an id").to_owned()) {
            let one = count(&message["usage"], names);
            total.iter_mut().zip(one).for_each(|(sum, n)| *sum += n);
        }
    }
    total
}

fn codex_tokens(bytes: &[u8]) -> Option<[u64; 4]> {
    let names = ["input_tokens", "output_tokens", "cached_input_tokens", "cache_write_input_tokens"];
    lines(bytes)
        .filter_map(|line| {
            let payload = &line["payload"];
            let usage = match line["type"].as_str() {
                Some("token_usage_record") => &payload["thread_token_usage"],
                _ => &payload["info"]["total_token_usage"],
            };
            usage.is_object().then(|| count(usage, names))
        })
        .last()
}
