//! Every kind of file that lariat reads, damaged in every way that [`damage`](crate::damage)
//! knows: one test per kind.

use std::{fs, path::PathBuf};

use lariat_testkit::{DEADLINE, Lookalike, Sandbox, Signal};
use serde_json::json;

use crate::{
    asking::{id, list, list_through, settle, through},
    claude_store::ClaudeStore,
    codex_store::CodexStore,
    damage::{Kind, Victim, WITHOUT_OVERRIDE},
    gemini_store::GeminiStore,
    pi_store::PiStore,
};

/// A place with sessions of both agents that must not notice anything.
struct Place {
    sandbox: Sandbox,
    claude: ClaudeStore,
    codex: CodexStore,
    /// A directory where only the victim stands.
    apart: PathBuf,
    _agents: Vec<Lookalike>,
}

impl Place {
    fn new(name: &str) -> Self {
        let sandbox = Sandbox::new(name);
        let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
        let agent = sandbox.lookalike("claude", &[]);
        claude.register(&agent, &id(1)).waits_for("permission prompt");
        claude.session(&id(1)).asked("one").calls("Bash", json!({"command": "make"}));
        claude.session(&id(2)).asked("two").answered("2").left();
        claude.session(&id(3)).asked("three");
        let thread = sandbox.lookalike("codex", &["--no-daemon"]);
        codex.lock(&thread, &id(11));
        codex.thread(&id(11)).asked("eleven");
        codex.thread(&id(12)).asked("twelve").answered("12");
        codex.archived(&id(13)).asked("thirteen").answered("13");
        let apart = sandbox.project("apart");
        Self { claude, codex, apart, _agents: vec![agent, thread], sandbox }
    }

    fn lookalike(&self, name: &str, args: &[&str]) -> Lookalike {
        let program = Lookalike::program(&self.sandbox, name).args(args).cwd(&self.apart);
        Lookalike::start(&self.sandbox, &program)
    }

    #[track_caller]
    fn suffers(&self, path: PathBuf, kind: Kind, of: &[String], lives: bool) {
        Victim { path, kind, of, lives }.suffers_everything(&self.sandbox);
    }
}

#[test]
fn claude_registry_entry() {
    let place = Place::new("bad-registry");
    let agent = place.lookalike("claude", &[]);
    place.claude.session_in(&id(99), &place.apart).asked("hello");
    let entry = place.claude.register(&agent, &id(99)).says("busy");
    place.suffers(entry.path, Kind::Document, &[id(99)], true);
}

#[test]
fn claude_transcript_of_the_dead() {
    let place = Place::new("bad-transcript");
    let talk = place.claude.session_in(&id(99), &place.apart).asked("hello").answered("hi").left();
    place.suffers(talk.path, Kind::Lines, &[id(99)], false);
}

#[test]
fn claude_transcript_of_the_living() {
    let place = Place::new("bad-live");
    let agent = place.lookalike("claude", &[]);
    place.claude.register(&agent, &id(99)).says("busy");
    let talk = place.claude.session_in(&id(99), &place.apart).asked("hello").answered("hi").asked("and");
    place.suffers(talk.path, Kind::Lines, &[id(99)], true);
}

#[test]
fn claude_sub_agent() {
    let place = Place::new("bad-sub-agent");
    let talk = place.claude.session_in(&id(99), &place.apart).asked("hello").answered("hi");
    let (path, _) = talk.sub_agent("a1", true);
    place.suffers(path, Kind::Lines, &[id(99)], false);
}

#[test]
fn claude_sub_agent_s_description() {
    let place = Place::new("bad-meta");
    let talk = place.claude.session_in(&id(99), &place.apart).asked("hello").answered("hi");
    let (_, path) = talk.sub_agent("a1", true);
    place.suffers(path, Kind::Document, &[id(99)], false);
}

#[test]
fn claude_job() {
    let place = Place::new("bad-job");
    place.claude.session_in(&id(99), &place.apart).asked("hello");
    let path = place.claude.job(&id(99), "stopped");
    assert_eq!(list(&place.sandbox).status(&id(99)), "stopped");
    place.suffers(path, Kind::Document, &[id(99)], false);
}

#[test]
fn claude_history() {
    let place = Place::new("bad-history");
    place.claude.session_in(&id(99), &place.apart).asked("hello");
    place.claude.typed(&id(98), "hello");
    place.claude.typed(&id(99), "/exit");
    assert_eq!(list(&place.sandbox).status(&id(99)), "stopped");
    place.suffers(place.claude.path("history.jsonl"), Kind::Lines, &[id(99)], false);
}

#[test]
fn codex_rollout_of_the_dead() {
    let place = Place::new("bad-rollout");
    let thread = place.codex.thread_in(&id(99), &place.apart).asked("hello").answered("hi");
    place.suffers(thread.path, Kind::Lines, &[id(99)], false);
}

#[test]
fn codex_rollout_of_the_living() {
    let place = Place::new("bad-live-roll");
    let agent = place.lookalike("codex", &["--no-daemon"]);
    place.codex.lock(&agent, &id(99));
    let thread = place.codex.thread_in(&id(99), &place.apart).asked("hello").answered("hi");
    place.suffers(thread.path, Kind::Lines, &[id(99)], true);
}

#[test]
fn codex_archived_rollout() {
    let place = Place::new("bad-archived");
    let thread = place.codex.archived(&id(99)).asked("hello").answered("hi");
    place.suffers(thread.path, Kind::Lines, &[id(99)], false);
}

#[test]
fn codex_names() {
    let place = Place::new("bad-names");
    place.codex.thread_in(&id(99), &place.apart).asked("hello").answered("hi");
    place.codex.name(&id(98), "another");
    place.codex.name(&id(99), "this one");
    assert_eq!(list(&place.sandbox).session(&id(99))["name"], "this one");
    place.suffers(place.codex.path("session_index.jsonl"), Kind::Lines, &[id(99)], false);
}

#[test]
fn codex_lock() {
    let place = Place::new("bad-lock");
    place.codex.thread_in(&id(99), &place.apart).asked("hello").answered("hi");
    let path = place.codex.lock_file(&id(99));
    fs::write(&path, "{}").expect("a lock that somebody wrote into");
    place.suffers(path, Kind::Lock, &[id(99)], false);
}

#[test]
fn a_lock_that_cannot_be_opened_and_is_held() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("shy-lock");
    let agent = place.lookalike("codex", &["--no-daemon"]);
    let path = place.codex.lock(&agent, &id(99));
    place.codex.thread_in(&id(99), &place.apart).asked("hello");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("a mode");
    let seen = list_through(&place.sandbox, WITHOUT_OVERRIDE);
    assert_ne!(seen.session(&id(99))["live"], false, "{:#}", seen.json);
}

#[test]
fn our_own_cache() {
    let place = Place::new("bad-cache");
    let (claude, codex) = (&place.claude, &place.codex);
    claude.typed(&id(3), "/exit");
    codex.name(&id(12), "twelve");
    let files = [claude.path("history.jsonl"), codex.path("session_index.jsonl"), codex.path("archived_sessions")];
    settle(&files);
    list(&place.sandbox);
    let folder = place.sandbox.home().join(".cache/lariat");
    let caches: Vec<PathBuf> = fs::read_dir(folder).expect("a cache").flatten().map(|e| e.path()).collect();
    assert!(caches.len() >= 3, "{caches:?}");
    for path in caches {
        // The lines of JSON that some damages are made of do not exist here.
        place.suffers(path, Kind::Cache, &[], false);
    }
}

/// The folders themselves: each in turn is a file, a FIFO, a link to itself, or shut.
#[test]
fn folders_of_the_stores() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("bad-folders");
    let before = list(&place.sandbox);
    let count =
        |answer: &crate::asking::Answer, agent: &str| answer.sessions().iter().filter(|s| s["agent"] == agent).count();
    for (agent, folder) in [
        ("claude", place.claude.path("")),
        ("claude", place.claude.path("projects")),
        ("claude", place.claude.path("sessions")),
        ("codex", place.codex.path("")),
        ("codex", place.codex.path("sessions")),
        ("codex", place.codex.path("sessions/2026/11")),
        ("codex", place.codex.path("archived_sessions")),
        ("codex", place.codex.path("thread-writer-locks")),
    ] {
        let folder = PathBuf::from(folder.to_str().expect("UTF-8").trim_end_matches('/'));
        let other = if agent == "claude" { "codex" } else { "claude" };
        let aside = folder.with_extension("aside");
        let shown = folder.strip_prefix(place.sandbox.home()).expect("below home");
        let shown = format!(" ~/{}", shown.display());
        let check = |what: &str, seen: &crate::asking::Answer| {
            let at = folder.display();
            assert_eq!(count(seen, other), count(&before, other), "{at} {what}");
            let named = seen.warnings().iter().any(|w| w.contains(&shown));
            assert!(named, "no warning names {at}, which is {what}: {:?}", seen.warnings());
            for n in [1, 11] {
                let gone = seen.find(&id(n)).is_some_and(|s| s["live"] == false);
                assert!(!gone, "{at} is {what}, and a living session is called gone: {:#}", seen.json);
            }
        };
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o000)).expect("a mode");
        check("shut", &list_through(&place.sandbox, WITHOUT_OVERRIDE));
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("a mode");
        fs::rename(&folder, &aside).expect("another name");
        // A file among folders by date is litter; in the place of a folder it is a loss.
        if !folder.ends_with("2026/11") {
            fs::write(&folder, "a file").expect("a file");
            check("a file", &list(&place.sandbox));
            fs::remove_file(&folder).expect("a file");
        }
        std::os::unix::fs::symlink(&folder, &folder).expect("a link");
        check("a link to itself", &list(&place.sandbox));
        fs::remove_file(&folder).expect("a link");
        fs::rename(&aside, &folder).expect("its own name");
    }
}

/// Whoever may be in there, nobody has looked: what is not found has not ended.
#[test]
fn a_folder_that_is_shut_leaves_part_of_the_answer_unknown() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::new("shut");
    let claude = ClaudeStore::of(&sandbox).session(&id(1)).asked("one").answered("1");
    let codex = CodexStore::of(&sandbox).thread(&id(2)).asked("two").answered("2");
    let pi = PiStore::of(&sandbox).session(&id(3)).asked("three").answered("3");
    let gemini = GeminiStore::of(&sandbox).session(&id(4)).asked("four").answered("4");
    assert_eq!(list(&sandbox).code, 0);
    for (n, path) in [(1, &claude.path), (2, &codex.path), (3, &pi.path), (4, &gemini.path)] {
        let folder = path.parent().expect("a folder");
        fs::set_permissions(folder, fs::Permissions::from_mode(0o000)).expect("a mode");
        let seen = list_through(&sandbox, WITHOUT_OVERRIDE);
        let asked = through(&sandbox, WITHOUT_OVERRIDE, &["status", &id(n)]);
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).expect("a mode");
        assert!(seen.find(&id(n)).is_none(), "{}", seen.text);
        assert_eq!((seen.code, asked.code()), (5, 5), "{} {}", folder.display(), asked.stderr);
    }
}

#[test]
fn what_the_living_have_written_and_nobody_can_read_is_not_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::new("unread-living");
    let claude = ClaudeStore::of(&sandbox);
    // One that says nothing of itself besides, in a folder of its own; and one that was killed at its prompt.
    let alone = sandbox.lookalike("claude", &["--session-id", &id(1)]);
    let shut = sandbox.home().join("work/shut");
    let session = claude.session_in(&id(1), &shut).asked("fix it");
    let killed = sandbox.lookalike("claude", &[]);
    drop(claude.register(&killed, &id(2)).says("idle"));
    let failed = claude.session_in(&id(2), &shut).asked("fix it").failed("no");
    killed.signal(Signal::KILL);
    killed.wait(DEADLINE);
    let seen = list(&sandbox);
    seen.expect(&id(1), "working", Some(alone.pid()));
    seen.expect(&id(2), "failed", None);
    // A folder where nobody can look.
    let folder = session.path.parent().expect("a folder");
    assert_eq!(Some(folder), failed.path.parent());
    fs::set_permissions(folder, fs::Permissions::from_mode(0o000)).expect("a mode");
    let seen = list_through(&sandbox, WITHOUT_OVERRIDE);
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).expect("a mode");
    seen.expect(&id(1), "unknown", Some(alone.pid()));
    seen.expect(&id(2), "unknown", None);
    // A file that nobody can open, or that is none.
    fs::set_permissions(&session.path, fs::Permissions::from_mode(0o000)).expect("a mode");
    let seen = list_through(&sandbox, WITHOUT_OVERRIDE);
    seen.expect(&id(1), "unknown", Some(alone.pid()));
    fs::remove_file(&session.path).expect("removed");
    fs::create_dir(&session.path).expect("a folder");
    list(&sandbox).expect(&id(1), "unknown", Some(alone.pid()));
    fs::remove_dir(&session.path).expect("removed");
    list(&sandbox).expect(&id(1), "starting", Some(alone.pid()));
}

#[test]
fn what_was_unreadable_before_a_process_began_is_not_its_turn() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::new("unread-before");
    let session = ClaudeStore::of(&sandbox).session(&id(1)).asked("fix it");
    fs::set_permissions(&session.path, fs::Permissions::from_mode(0o000)).expect("a mode");
    let file = fs::File::open(session.path.parent().expect("a folder")).and_then(|_| fs::File::open(&session.path));
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    file.and_then(|f| f.set_modified(long_ago)).expect("an older file");
    let resumed = sandbox.lookalike("claude", &["--resume", &id(1)]);
    let seen = list_through(&sandbox, WITHOUT_OVERRIDE);
    seen.expect(&id(1), "starting", Some(resumed.pid()));
}

#[test]
fn blank_lines_say_nothing() {
    let sandbox = Sandbox::new("blank");
    let session = ClaudeStore::of(&sandbox).session(&id(1)).asked("fix it").answered("fixed");
    let text = fs::read_to_string(&session.path).expect("a transcript");
    for blank in ["\n", "\r\n", " \n", "\t \r\n\r\n"] {
        fs::write(&session.path, format!("{blank}{}{blank}", text.replace('\n', &format!("\r\n{blank}"))))
            .expect("written");
        let seen = list(&sandbox);
        seen.expect(&id(1), "done", None);
        assert!(seen.warnings().is_empty() && !seen.session(&id(1))["tokens"].is_null(), "{blank:?} {}", seen.text);
    }
}

/// What ended the turn stands there, and does not say what it is: then how it ended is not known.
#[test]
fn a_line_that_does_not_say_what_it_is_is_no_proof() {
    let sandbox = Sandbox::new("kindless");
    let (claude, codex, pi) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox), PiStore::of(&sandbox));
    let files = [
        (claude.session(&id(1)).asked("fix it").answered("fixed").path, r#""type":"assistant""#, r#""type":null"#),
        (
            claude.session(&id(2)).asked("fix it").answered("fixed").path,
            r#""stop_reason":"end_turn""#,
            r#""stop_reason":7"#,
        ),
        (codex.thread(&id(3)).asked("fix it").answered("fixed").path, r#""type":"task_complete""#, r#""type":7"#),
        (pi.session(&id(4)).asked("fix it").answered("fixed").path, r#""role":"assistant""#, r#""role":null"#),
    ];
    claude.session(&id(8)).asked("fix it").answered("fixed");
    codex.thread(&id(9)).asked("fix it").answered("fixed");
    for (path, good, bad) in &files {
        let text = fs::read_to_string(path).expect("a transcript");
        assert!(text.contains(good), "{good}: {text}");
        fs::write(path, text.replace(good, bad)).expect("a transcript");
    }
    let seen = list(&sandbox);
    for (n, (path, ..)) in (1..).zip(&files) {
        seen.expect(&id(n), "unknown", None);
        assert_eq!(seen.session(&id(n))["tokens"], json!(null), "{n}");
        assert!(seen.warns_of(&path.file_name().expect("a name").to_string_lossy()), "{:?}", seen.warnings());
    }
    seen.expect(&id(8), "done", None);
    seen.expect(&id(9), "done", None);
    assert_eq!(seen.warnings().len(), files.len(), "{:?}", seen.warnings());
}

#[test]
fn what_claude_wrote_is_told_as_it_means_it() {
    let sandbox = Sandbox::new("meant");
    let claude = ClaudeStore::of(&sandbox);
    claude.session(&id(1)).asked("why is <command-name>/x</command-name> in it?").answered("because");
    // No price is below nothing.
    let account = json!({"type": "cost-state", "sessionId": id(2), "totalCostUSD": -5.0, "modelUsage": {}});
    claude.session(&id(2)).asked("fix it").failed("API Error: 500").line(&account);
    let seen = list(&sandbox);
    assert_eq!(seen.session(&id(1))["prompt"], "why is <command-name>/x</command-name> in it?");
    assert_eq!(seen.session(&id(2))["cost_usd"], json!(null), "{:#}", seen.session(&id(2)));
    // A link that leads nowhere is no session that is gone this moment.
    let nowhere = claude.path("projects/-w").join(format!("{}.jsonl", id(3)));
    fs::create_dir_all(nowhere.parent().expect("a folder")).expect("a folder");
    std::os::unix::fs::symlink("nowhere", &nowhere).expect("a link");
    let used = crate::asking::ask(&sandbox, &["usage", "--json"]);
    assert_eq!((used.code(), used.stdout.contains(&id(3))), (5, true), "{used:?}");
}
