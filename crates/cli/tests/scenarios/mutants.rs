//! A short fuzz run of all parsers and the cache, by the program itself.
//!
//! Good stores (recorded ones where the repository has them, else our own) are damaged at random,
//! hundreds of files at a time. Whatever comes: an answer, valid JSON, exit 0 or 5, no panic, every
//! session once. And however it was come by, in one go, line by line through the cache, or with a
//! damaged cache, it is the same answer.

use std::{
    fs,
    path::{Path, PathBuf},
};

use lariat_testkit::{Sandbox, workspace};
use serde_json::json;

use crate::{
    asking::{Answer, ask, id, lariat, list},
    chance::Chance,
    claude_store::ClaudeStore,
    codex_store::CodexStore,
    gemini_store::GeminiStore,
    pi_store::PiStore,
};

/// Good files, by what they are.
#[derive(Default)]
struct Good {
    transcripts: Vec<Vec<u8>>,
    rollouts: Vec<Vec<u8>>,
    entries: Vec<Vec<u8>>,
    jobs: Vec<Vec<u8>>,
    typed: Vec<Vec<u8>>,
    names: Vec<Vec<u8>>,
    pi: Vec<Vec<u8>>,
    chats: Vec<Vec<u8>>,
}

impl Good {
    fn gather() -> Self {
        let mut good = Self::default();
        let recorded = workspace().join("fixtures");
        good.take(&recorded.join("claude"));
        good.take(&recorded.join("codex"));
        good.take(&recorded.join("pi"));
        good.take(&recorded.join("gemini"));
        let own = Sandbox::new("mutants-seed");
        build(&own);
        good.take(&own.home().join(".claude"));
        good.take(&own.home().join(".codex"));
        good.take(&own.home().join(".pi"));
        good.take(&own.home().join(".gemini"));
        let kinds = [&good.transcripts, &good.rollouts, &good.entries, &good.jobs, &good.typed, &good.names];
        assert!(!good.pi.is_empty() && !good.chats.is_empty());
        assert!(kinds.iter().all(|kind| !kind.is_empty()));
        good
    }

    fn take(&mut self, folder: &Path) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort(); // a seed is to give the same mutants wherever they are bred
        for path in paths {
            if path.is_dir() {
                self.take(&path);
                continue;
            }
            let shown = path.to_str().expect("UTF-8").to_owned();
            let kind = match shown.rsplit('/').next().expect("a name") {
                "history.jsonl" => &mut self.typed,
                "session_index.jsonl" => &mut self.names,
                "state.json" => &mut self.jobs,
                name if name.starts_with("rollout-") => &mut self.rollouts,
                _ if shown.contains("/.pi/") && shown.ends_with(".jsonl") => &mut self.pi,
                _ if shown.contains("/chats/") && shown.ends_with(".jsonl") => &mut self.chats,
                name if name.ends_with(".jsonl") && shown.contains("/projects/") => &mut self.transcripts,
                name if name.ends_with(".json") && shown.contains("/sessions/") => &mut self.entries,
                _ => continue,
            };
            let text = fs::read(&path).expect("a good file");
            let text = String::from_utf8_lossy(&text);
            // Processes that are not there, whatever runs by the time they are looked for.
            kind.push(text.replace("\"pid\":", "\"pid\":4000").into_bytes());
        }
    }
}

/// A store with something of everything.
fn build(sandbox: &Sandbox) {
    let (claude, codex) = (ClaudeStore::of(sandbox), CodexStore::of(sandbox));
    let agent = sandbox.lookalike("claude", &[]);
    claude.register(&agent, &id(1)).waits_for("permission prompt");
    claude.session(&id(1)).asked("one").calls("Bash", json!({"command": "make"}));
    let talk = claude.session(&id(2)).asked("two").calls("Edit", json!({"file_path": "/x", "old": "é\n\"\\"}));
    talk.result("ok").answered("done \u{1f600}").named("two").asked("more").failed("overloaded").left();
    claude.session(&id(3)).asked("three").interrupted();
    claude.session(&id(4)).asked("four").answered("4").sub_agent("a1", false);
    // Made long ago: for some seconds, nobody can tell of one without a daemon.
    let job = claude.job(&id(4), "working");
    let mut old: serde_json::Value = serde_json::from_slice(&fs::read(&job).expect("a job")).expect("JSON");
    old["createdAt"] = json!("2026-11-15T07:00:00.000Z");
    fs::write(job, old.to_string()).expect("a job");
    claude.typed(&id(3), "/exit");
    codex.thread(&id(11)).asked("eleven").calls("c", "make").answered("11").asked("again").aborted();
    codex.thread(&id(12)).asked("twelve").failed("no");
    codex.name(&id(12), "twelve");
    let pi = PiStore::of(sandbox);
    pi.session(&id(21)).instructed().asked("one").calls("c", "make").result("c").answered("1").named("first");
    pi.session(&id(22)).asked("two").failed("no").asked("more").aborted();
    let gemini = GeminiStore::of(sandbox);
    let chat = gemini.session(&id(31)).asked("one").ran("success").answered("1").set(json!({"summary": "s"}));
    chat.asked("more").noted("info", "Request cancelled.").only(&[]).line(json!({"$rewindTo": "message-0"}));
}

/// Damages a file: bits, bytes, cuts, and lines doubled, swapped, dropped or joined.
fn mutate(chance: &mut Chance, good: &[u8]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..1 + chance.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = chance.below(bytes.len());
        match chance.below(11) {
            0 => bytes[at] ^= 1 << chance.below(8),
            1 => bytes[at] = *chance.pick(b"{}[]\",:\\\n\0\x1b\xff09eE-.tfn "),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..bytes.len().min(at + 1 + chance.below(40)))),
            4 => {
                let piece = bytes[at..bytes.len().min(at + 1 + chance.below(200))].to_vec();
                bytes.splice(at..at, piece);
            }
            5 => {
                let piece = *chance.pick::<&[u8]>(&[
                    b"\\ud800",
                    b"\\u0000",
                    b"\xed\xa0\x80",
                    b"1e999",
                    b"-",
                    b"99999999999999999999999",
                    b"[[[[[[[[",
                    b"null",
                    b"\"",
                    b"\n",
                    b"{\"type\":",
                    b"\xef\xbb\xbf",
                ]);
                bytes.splice(at..at, piece.iter().copied());
            }
            _ => bytes = mutate_lines(chance, &bytes),
        }
    }
    bytes
}

fn mutate_lines(chance: &mut Chance, bytes: &[u8]) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').collect();
    let (a, b) = (chance.below(lines.len()), chance.below(lines.len()));
    match chance.below(5) {
        0 => lines.swap(a, b),
        1 => lines.insert(a, lines[b]),
        2 => drop(lines.remove(a)),
        3 => lines.truncate(a),
        _ => lines[a] = lines[a].strip_suffix(b"\n").unwrap_or(lines[a]),
    }
    lines.concat()
}

/// A store of mutants: where each file is, and what is in it.
fn brood(chance: &mut Chance, good: &Good, sandbox: &Sandbox, count: u64) -> Vec<(PathBuf, Vec<u8>)> {
    let (claude, codex) = (ClaudeStore::of(sandbox), CodexStore::of(sandbox));
    let (pi, gemini) = (PiStore::of(sandbox), GeminiStore::of(sandbox));
    let mut files = Vec::new();
    for n in 0..count {
        let id = id(n);
        let mut put = |path: PathBuf, from: &[Vec<u8>]| {
            let good = chance.pick(from).clone();
            files.push((path, mutate(chance, &good)));
        };
        put(claude.path(&format!("projects/p{}/{id}.jsonl", n % 3)), &good.transcripts);
        put(
            codex.path(&format!("sessions/2026/11/{:02}/rollout-2026-11-15T07-47-10-{id}.jsonl", n % 3)),
            &good.rollouts,
        );
        put(pi.path(&format!("sessions/--p{}--/2026-11-15T07-47-10-000Z_{id}.jsonl", n % 3)), &good.pi);
        put(gemini.path(&format!("tmp/p{}/chats/session-2026-11-15T07-47-{}.jsonl", n % 3, &id[..8])), &good.chats);
        if n % 5 == 0 {
            put(claude.path(&format!("sessions/{n}.json")), &good.entries);
            put(claude.path(&format!("jobs/{n}/state.json")), &good.jobs);
            put(claude.path(&format!("projects/p0/{id}/subagents/agent-a.jsonl")), &good.transcripts);
            put(claude.path(&format!("projects/p0/{id}/subagents/agent-a.meta.json")), &good.jobs);
        }
    }
    files.push((claude.path("history.jsonl"), mutate(chance, &good.typed[0])));
    files.push((codex.path("session_index.jsonl"), mutate(chance, &good.names[0])));
    files
}

fn write(files: &[(PathBuf, Vec<u8>)], part: impl Fn(&[u8]) -> &[u8]) {
    for (path, bytes) in files {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, part(bytes)).expect("a mutant");
    }
}

/// The answer without any cache.
fn cold(sandbox: &Sandbox) -> Answer {
    let program = lariat(sandbox, &["ls", "-a", "--json"]).env("LARIAT_NO_CACHE", "1");
    Answer::of(&sandbox.world().run(&program))
}

#[test]
fn mutants_of_every_file_get_an_answer() {
    let mut chance = Chance::new();
    let good = Good::gather();
    for round in 0..6 {
        let sandbox = Sandbox::new("mutants");
        let files = brood(&mut chance, &good, &sandbox, 200);
        write(&files, |bytes| bytes);
        let seen = list(&sandbox);
        let live: Vec<_> = seen.sessions().iter().filter(|s| s["live"] == true).collect();
        assert!(live.is_empty(), "nothing runs here: {live:#?}");
        assert!(seen.sessions().len() >= 200, "round {round}: {} rows", seen.sessions().len());
        for session in seen.sessions().iter().step_by(40) {
            let id = session["id"].as_str().expect("an id");
            for verb in ["peek", "explain", "status"] {
                let said = ask(&sandbox, &[verb, id]);
                assert!([0, 1, 5].contains(&said.code()), "{verb} {id}: {said:?}");
            }
        }
        ask(&sandbox, &["ls", "-a"]);
    }
}

#[test]
fn mutants_read_in_parts_are_mutants_read_at_once() {
    let mut chance = Chance::new();
    let good = Good::gather();
    for round in 0..3 {
        let sandbox = Sandbox::new("mutants-parts");
        let files = brood(&mut chance, &good, &sandbox, 120);
        // Grown in steps, with a look after each: the cache goes on from where it was.
        for step in 1..=4 {
            write_growing(&files, step);
            crate::asking::settle(&files.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>());
            let warm = list(&sandbox);
            let cold = cold(&sandbox);
            same(&warm, &cold, &format!("round {round}, step {step}"));
            same(&list(&sandbox), &cold, &format!("round {round}, step {step}, again"));
        }
    }
}

/// Adds the next quarter of every file, without touching what is there.
fn write_growing(files: &[(PathBuf, Vec<u8>)], step: usize) {
    use std::io::Write;
    for (path, bytes) in files {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let (from, to) = (quarter(bytes, step - 1), quarter(bytes, step));
        let mut file = fs::File::options().create(true).append(true).open(path).expect("a mutant");
        file.write_all(&bytes[from..to]).expect("a mutant");
    }
}

/// Where a quarter ends: between lines or within an object, but not right behind a value that goes
/// on as garbage, a case that `cost::s39_a_line_that_goes_on_after_its_value` holds by itself.
fn quarter(bytes: &[u8], step: usize) -> usize {
    let fits = |at: &usize| {
        let before = &bytes[..*at];
        let line = before.iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
        line == *at || (before[line] == b'{' && !b"}] \t\r".contains(&before[at - 1]))
    };
    let start = bytes.len() * step / 4;
    (start..bytes.len()).find(fits).unwrap_or(bytes.len())
}

#[test]
fn a_mutant_cache_changes_no_answer() {
    let mut chance = Chance::new();
    let good = Good::gather();
    let sandbox = Sandbox::new("mutants-cache");
    let files = brood(&mut chance, &good, &sandbox, 60);
    write(&files, |bytes| bytes);
    crate::asking::settle(&files.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>());
    list(&sandbox);
    let cold = cold(&sandbox);
    let folder = sandbox.home().join(".cache/lariat");
    let caches: Vec<(PathBuf, Vec<u8>)> = fs::read_dir(&folder)
        .expect("a cache")
        .flatten()
        .map(|e| (e.path(), fs::read(e.path()).expect("a cache")))
        .collect();
    assert!(caches.len() >= 2);
    for round in 0..60 {
        for (path, bytes) in &caches {
            fs::write(path, mutate(&mut chance, bytes)).expect("a mutant");
        }
        same(&list(&sandbox), &cold, &format!("round {round}"));
    }
}

#[track_caller]
fn same(one: &Answer, other: &Answer, when: &str) {
    let timeless = |of: &Answer| -> std::collections::BTreeMap<String, String> {
        let at = of.json["at"].to_string();
        let row = |s: &serde_json::Value| (s["id"].to_string(), format!("{s:#}").replace(&at, "NOW"));
        of.sessions().iter().map(row).collect()
    };
    let (one_rows, other_rows) = (timeless(one), timeless(other));
    let only = |these: &Answer, those: &Answer| -> Vec<String> {
        these.warnings().into_iter().filter(|w| !those.warnings().contains(w)).collect()
    };
    let told = || format!("{:?}, {:?}", only(one, other), only(other, one));
    assert!(one_rows.keys().eq(other_rows.keys()), "{when}: other sessions: {}", told());
    for (id, row) in &one_rows {
        assert_eq!(row, &other_rows[id], "{when}:\n{row}\n{}", other_rows[id]);
    }
    assert_eq!(one.warnings(), other.warnings(), "{when}");
    assert_eq!(one.timeless(), other.timeless(), "{when}: another order");
    assert_eq!(one.code, other.code, "{when}");
}
