//! Cost follows change: scenario 39, and a directory with a hundred thousand entries.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use lariat_testkit::{Sandbox, built, database};
use serde_json::json;

use crate::{
    asking::{LARIAT, ask, id, list, settle},
    claude_store::ClaudeStore,
    codex_store::CodexStore,
    opencode_store::OpenCodeStore,
};

/// Runs a listing and gives what strace saw of the files it opened and read.
fn seen(sandbox: &Sandbox) -> String {
    let log = sandbox.root().join("streams/strace");
    let program = sandbox
        .program("strace")
        .args(["-f", "-y", "-e", "trace=open,openat,openat2,read,pread64,preadv,mmap", "-o"])
        .arg(&log)
        .args([LARIAT, "ls", "-a", "--json"]);
    crate::asking::Answer::of(&sandbox.world().run(&program));
    let log = fs::read_to_string(log).expect("what strace saw");
    assert!(log.contains("/proc/self") || log.contains("/proc"), "strace saw nothing: {log}");
    log
}

/// Runs a listing and gives the transcripts and rollouts it opened.
fn opened(sandbox: &Sandbox) -> BTreeSet<String> {
    let named = |line: &str| {
        let end = line.find(".jsonl")?;
        let start = line[..end].rfind('/')? + 1;
        let id = line[start..end].get(line[start..end].len().checked_sub(36)?..)?;
        id.starts_with('0').then(|| id.to_owned())
    };
    seen(sandbox).lines().filter_map(named).collect()
}

/// Runs a listing and tells whether it read OpenCode's database.
fn asks_database(sandbox: &Sandbox) -> bool {
    let reads = |line: &str| line.contains("read") && line.contains("opencode.db>");
    seen(sandbox).lines().any(reads)
}

/// Whether there is an strace to look with; says so loudly if not.
fn can_look(test: &str) -> bool {
    let found =
        std::env::var("PATH").unwrap_or_default().split(':').any(|folder| Path::new(folder).join("strace").is_file());
    if !found {
        println!("{test}: SKIPPED, there is no strace here: install it to run this test");
    }
    found
}

const SESSIONS: u64 = 150;

fn many(sandbox: &Sandbox) -> Vec<PathBuf> {
    let (claude, codex) = (ClaudeStore::of(sandbox), CodexStore::of(sandbox));
    let mut files = Vec::new();
    for n in 1..=SESSIONS {
        files.push(claude.session(&id(n)).asked("fix it").answered("fixed").left().path);
        files.push(codex.thread(&id(1000 + n)).asked("fix it").answered("fixed").path);
    }
    // One that is too large to be read whole for its tokens.
    let large = claude.session(&id(500)).asked("a long one");
    let filler = serde_json::json!({"type": "attachment", "text": "x".repeat(1 << 16)});
    let large = (0..40).fold(large, |talk, _| talk.line(&filler));
    files.push(large.answered("done").left().path);
    files
}

#[test]
fn s39_nothing_changed_and_nothing_is_read_again() {
    if !can_look("s39") {
        return;
    }
    let sandbox = Sandbox::new("s39");
    let mut files = many(&sandbox);
    // Copies, too, that tell of nothing more than others.
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    let copied = [
        (claude.session(&id(7)).path, claude.path("projects/-copy")),
        (codex.thread(&id(1007)).path, codex.path("archived_sessions")),
    ];
    for (path, folder) in copied {
        let copy = folder.join(path.file_name().expect("a name"));
        fs::create_dir_all(folder).expect("a folder");
        fs::copy(path, &copy).expect("a copy");
        files.push(copy);
    }
    settle(&files);
    let all = usize::try_from(SESSIONS).expect("few") * 2 + 1;
    assert_eq!(opened(&sandbox).len(), all, "the first look reads all, and is seen to");
    assert_eq!(opened(&sandbox), BTreeSet::new(), "the second reads none");
    assert_eq!(opened(&sandbox), BTreeSet::new(), "nor does the third");
    assert_eq!(list(&sandbox).sessions().len(), all);
}

#[test]
fn s39_one_line_more_and_one_file_is_read() {
    if !can_look("s39") {
        return;
    }
    let sandbox = Sandbox::new("s39-grown");
    let files = many(&sandbox);
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    settle(&files);
    opened(&sandbox);
    let grown = claude.session(&id(7)).asked("and this").path;
    assert_eq!(opened(&sandbox), BTreeSet::from([id(7)]));
    list(&sandbox).expect(&id(7), "interrupted", None);
    settle(&[grown]);
    opened(&sandbox); // may note what has settled
    assert_eq!(opened(&sandbox), BTreeSet::new(), "the line is known by now");

    let grown = codex.thread(&id(1007)).asked("and this").path;
    assert_eq!(opened(&sandbox), BTreeSet::from([id(1007)]));
    list(&sandbox).expect(&id(1007), "interrupted", None);
    settle(&[grown]);
    opened(&sandbox);
    assert_eq!(opened(&sandbox), BTreeSet::new(), "the line is known by now");
}

#[test]
fn s39_a_database_that_did_not_change_is_not_asked_again() {
    if !can_look("s39") {
        return;
    }
    let sandbox = Sandbox::new("s39-database");
    let store = OpenCodeStore::of(&sandbox);
    let path = store.path("opencode.db");
    for n in 0..20 {
        drop(store.session(&format!("ses_{n:02}")).asked("fix it").answered("fixed"));
    }
    drop(store.session("ses_open").asked("fix this too").calls("bash", &json!({"command": "make"}), true));
    settle(std::slice::from_ref(&path));
    assert!(asks_database(&sandbox), "the first look reads it, and is seen to");
    assert!(!asks_database(&sandbox), "the second does not");
    let known = list(&sandbox);
    known.expect("ses_open", "interrupted", None);
    assert_eq!(known.sessions().len(), 21);
    fs::remove_dir_all(sandbox.home().join(".cache")).expect("a cache");
    assert_eq!(list(&sandbox).timeless(), known.timeless(), "without the cache it tells the same");

    // What stands only in its log, as long as that is open, counts at once.
    let ended = "UPDATE message SET data = json_set(data, '$.finish', 'stop', '$.time.completed', 1) \
                 WHERE session_id = 'ses_open' AND json_extract(data, '$.role') = 'assistant'";
    let open = database::write(&path, &format!("PRAGMA journal_mode = WAL; {ended}"));
    list(&sandbox).expect("ses_open", "done", None);
    settle(&[path.clone(), store.path("opencode.db-wal")]);
    list(&sandbox).expect("ses_open", "done", None);
    assert!(!asks_database(&sandbox), "its log did not change either");
    open.execute_batch("DELETE FROM session WHERE id = 'ses_open'").expect("a session less");
    assert_eq!(list(&sandbox).sessions().len(), 20);
}

#[test]
fn s39_a_file_that_was_rewritten_is_read_anew() {
    let sandbox = Sandbox::new("s39-rewrite");
    let claude = ClaudeStore::of(&sandbox);
    let talk = claude.session(&id(1)).asked("first words").answered("fixed").left();
    settle(std::slice::from_ref(&talk.path));
    assert_eq!(list(&sandbox).session(&id(1))["prompt"], "first words");
    // Same inode, as long or longer, other words.
    let text = fs::read_to_string(&talk.path).expect("a transcript");
    fs::write(&talk.path, text.replace("first words", "other words") + "\n").expect("a rewrite");
    assert_eq!(list(&sandbox).session(&id(1))["prompt"], "other words");
    // Shorter.
    fs::write(&talk.path, "").expect("a rewrite");
    drop(claude.session(&id(1)).asked("short").answered("ok"));
    assert_eq!(list(&sandbox).session(&id(1))["prompt"], "short");
}

#[test]
fn s39_a_first_line_seen_half_is_seen_whole_later() {
    let sandbox = Sandbox::new("s39-half");
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    let files = [
        claude.session(&id(1)).asked("fix it").answered("fixed").left().path,
        codex.thread(&id(2)).asked("fix it").answered("fixed").path,
    ];
    let whole = files.clone().map(|path| fs::read(path).expect("a store"));
    for (path, bytes) in files.iter().zip(&whole) {
        fs::write(path, &bytes[..40]).expect("half a line");
    }
    settle(&files);
    list(&sandbox);
    for (path, bytes) in files.iter().zip(&whole) {
        fs::write(path, bytes).expect("all of it");
    }
    let seen = list(&sandbox);
    seen.expect(&id(1), "done", None);
    seen.expect(&id(2), "done", None);
}

#[test]
fn s39_a_line_that_goes_on_after_its_value() {
    let sandbox = Sandbox::new("s39-goes-on");
    let claude = ClaudeStore::of(&sandbox);
    let path = claude.session(&id(1)).asked("fix it").path;
    let good = fs::read_to_string(&path).expect("a transcript");
    let mut lines = good.lines();
    let (first, second) = (lines.next().expect("a line"), lines.next().expect("a line"));
    fs::write(&path, first).expect("a line without its end");
    settle(std::slice::from_ref(&path));
    list(&sandbox);
    // Two lines joined by a torn write: no line at all.
    fs::write(&path, format!("{first}{second}\n")).expect("a torn line");
    let warm = list(&sandbox);
    sandbox.env("LARIAT_NO_CACHE", "1");
    assert_eq!(warm.timeless(), list(&sandbox).timeless());
}

#[test]
fn what_a_terminal_shows_is_not_read_where_a_store_tells_all() {
    if !can_look("what_a_terminal_shows") {
        return;
    }
    let sandbox = Sandbox::new("unread-terminal");
    sandbox.install_copy("claude", &built("lariat-actor"));
    let launched = ask(&sandbox, &["launch", "claude", "--json"]).expect_success().json();
    let handle = launched["handle"].as_str().expect("a handle");
    // Only before it is registered nothing else tells.
    ask(&sandbox, &["wait", handle, "--timeout", "60s"]).expect_success();
    let seen = seen(&sandbox);
    assert!(seen.contains("launch.json") && !seen.contains("/output."), "{seen}");
    ask(&sandbox, &["kill", handle]).expect_success();
}

/// Whether a program takes pastes is looked for in all that it wrote; which session its terminal shows, only where it tells.
#[test]
fn what_is_sent_is_not_held_up_by_all_that_a_terminal_showed() {
    if !can_look("what_is_sent") {
        return;
    }
    let sandbox = Sandbox::new("unread-all");
    sandbox.install_copy("claude", &built("lariat-actor"));
    let launched = ask(&sandbox, &["launch", "claude", "--json"]).expect_success().json();
    let handle = launched["handle"].as_str().expect("a handle");
    ask(&sandbox, &["wait", handle, "--timeout", "60s"]).expect_success();
    let log = sandbox.root().join("streams/strace");
    let strace = sandbox.program("strace").args(["-f", "-y", "-e", "trace=pread64", "-o"]).arg(&log);
    sandbox.world().run(&strace.args([LARIAT, "send", handle, "hello"])).expect_success();
    let log = fs::read_to_string(log).expect("what strace saw");
    // From its first byte on, which follows the head of the file.
    let whole = log.lines().filter(|line| line.contains("/output.") && line.contains(", 16) = ")).count();
    assert_eq!(whole, 1, "{log}");
    ask(&sandbox, &["kill", handle]).expect_success();
}

/// Files of `projects/<slug>/` beyond counting: transcripts that ended long ago, and litter.
#[test]
fn a_hundred_thousand_entries_in_one_directory() {
    let sandbox = Sandbox::new("100000");
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    let model = claude.session(&id(1)).asked("fix it").answered("fixed").left();
    codex.thread(&id(2)).asked("fix it").answered("fixed");
    let text = fs::read(&model.path).expect("a transcript");
    let folder = model.path.parent().expect("a folder").to_owned();
    const ENTRIES: u64 = 100_000;
    std::thread::scope(|scope| {
        for part in 0..2 {
            let (folder, text) = (&folder, &text);
            scope.spawn(move || {
                for n in (10 + part..10 + ENTRIES).step_by(2) {
                    let name = folder.join(format!("{}.jsonl", id(n)));
                    fs::write(name, &text[..]).expect("one of many");
                }
            });
        }
    });
    let agent = sandbox.lookalike("claude", &[]);
    claude.register(&agent, &id(77)).says("busy");

    let began = Instant::now();
    let seen = ask(&sandbox, &["ls", "--json", "--deadline", "60s"]);
    let took = began.elapsed();
    assert_eq!(seen.code(), 0, "{} {:#}", seen.stderr, seen.json()["warnings"]);
    assert_eq!(seen.json()["sessions"].as_array().map(Vec::len), Some(1));
    assert_eq!(seen.json()["hidden"]["ended"], ENTRIES + 1, "counted, not read");
    assert!(took.as_secs() < 30, "ls took {took:?}");

    // All of them in a second: perhaps not, but an answer, and the other agent's as ever.
    let began = Instant::now();
    let seen = ask(&sandbox, &["status", "--json", "--deadline", "1s", &id(2)]);
    let took = began.elapsed();
    assert_eq!(
        (seen.code(), seen.json()["status"].as_str().map(str::to_owned)),
        (0, Some("done".into())),
        "{}",
        seen.stderr
    );
    // A store that still gives gets more time than its deadline, but not for ever.
    assert!(took.as_secs() < 60, "status took {took:?} with a deadline of 1 s");
}
