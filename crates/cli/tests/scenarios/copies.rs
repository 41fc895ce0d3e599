//! Copies of a session's file, restored or made by hand: one session, told by the copy that goes on the farthest.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use lariat_testkit::Sandbox;
use serde_json::json;

use crate::{
    asking::{Answer, id, list, list_through},
    claude_store::ClaudeStore,
    codex_store::CodexStore,
    damage::WITHOUT_OVERRIDE,
    gemini_store::GeminiStore,
    moment::now,
    pi_store::PiStore,
};

#[test]
fn of_copies_the_lines_tell_which_is_newer() {
    let sandbox = Sandbox::new("copies");
    // Restored, copied or given a summary: the file that was written last is not the one that goes on.
    let session = PiStore::of(&sandbox).session("one").asked("fix it");
    let early = fs::read(&session.path).expect("a session");
    let whole = session.answered("fixed");
    let folder = whole.path.parent().expect("a folder").with_file_name("--copy--");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join(whole.path.file_name().expect("a name")), early).expect("a copy");
    let (gemini, before) = (GeminiStore::of(&sandbox), now() - 60_000);
    let first = gemini.session_at(&id(1), &sandbox.work(), "07-47", before).asked("fix it");
    let second = gemini.session_at(&id(1), &sandbox.work(), "07-48", now()).asked("go on").answered("gone on");
    drop((first.set(json!({"summary": "Fixing it"})), second));
    let seen = list(&sandbox);
    seen.expect("one", "done", None);
    seen.expect(&id(1), "done", None);
}

#[test]
fn a_copy_that_was_written_later_is_not_what_was_said_later() {
    let sandbox = Sandbox::new("copies-touched");
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    let talk = claude.session(&id(1)).at(now() - 60_000).asked("fix it");
    let thread = codex.thread(&id(2)).at(now() - 60_000).asked("fix it");
    let early = [&talk.path, &thread.path].map(|path| fs::read(path).expect("a file"));
    let beside =
        talk.path.parent().expect("a folder").with_file_name("-copy").join(talk.path.file_name().expect("a name"));
    let archived = codex.path("archived_sessions").join(thread.path.file_name().expect("a name"));
    drop((talk.answered("fixed"), thread.answered("fixed")));
    let put = |path: &Path, bytes: &[u8]| {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, bytes).expect("a copy");
    };
    put(&beside, &early[0]);
    put(&archived, &early[1]);
    let told = || {
        let seen = list(&sandbox);
        assert_eq!((seen.sessions().len(), seen.code), (2, 0), "{}", seen.text);
        [1, 2].map(|n| seen.status(&id(n)).to_owned())
    };
    assert_eq!(told(), ["done", "done"]);
    // As from the cache.
    crate::asking::settle(&[beside.clone(), archived.clone()]);
    assert_eq!((told(), told()), (["done", "done"].map(str::to_owned), ["done", "done"].map(str::to_owned)));
    // One of nothing is no word.
    put(&beside, b"");
    put(&archived, b"");
    assert_eq!(told(), ["done", "done"]);
    // Where one cannot be read, it may be the one that tells.
    put(&beside, b"x\n");
    put(&archived, b"x\n");
    let seen = list(&sandbox);
    seen.expect(&id(1), "unknown", None);
    seen.expect(&id(2), "unknown", None);
}

#[test]
fn a_copy_that_cannot_be_read_is_warned_of() {
    let sandbox = Sandbox::new("copies-unread");
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    let (talk, thread) = (claude.session(&id(1)), codex.thread(&id(2)));
    let beside =
        talk.path.parent().expect("a folder").with_file_name("-copy").join(talk.path.file_name().expect("a name"));
    let archived = codex.path("archived_sessions").join(thread.path.file_name().expect("a name"));
    for copy in [&beside, &archived] {
        fs::create_dir_all(copy.parent().expect("a folder")).expect("a folder");
        fs::write(copy, b"x\n").expect("a copy");
    }
    crate::asking::settle(&[beside.clone(), archived.clone()]);
    drop((talk.asked("fix it").answered("fixed"), thread.asked("fix it").answered("fixed")));
    let warned = |seen: &Answer| {
        seen.expect(&id(1), "done", None);
        seen.expect(&id(2), "done", None);
        let of =
            |path: &Path| seen.warns_of(path.strip_prefix(sandbox.home()).expect("at home").to_str().expect("UTF-8"));
        assert!(of(&beside) && of(&archived), "{:?}", seen.warnings());
        assert_eq!(seen.warnings().len(), 2);
    };
    (0..2).for_each(|_| warned(&list(&sandbox)));
    let mode = |mode| {
        for copy in [&beside, &archived] {
            fs::set_permissions(copy, fs::Permissions::from_mode(mode)).expect("a mode");
        }
    };
    mode(0);
    warned(&list_through(&sandbox, WITHOUT_OVERRIDE));
    mode(0o600);
}
