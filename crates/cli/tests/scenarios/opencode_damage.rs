//! OpenCode's store damaged, locked, absent, huge and hostile; and its older layout.

use std::fs;

use lariat_testkit::{DEADLINE, Sandbox, database, wait_until};
use serde_json::{Value, json};

use crate::{
    asking::{ask, list, list_through},
    opencode_store::OpenCodeStore,
};

#[test]
fn a_database_that_cannot_be_read_is_a_warning_and_hides_nothing_else() {
    let sandbox = Sandbox::new("opencode-damage");
    let store = OpenCodeStore::of(&sandbox);
    store.session("ses_one").asked("one").answered("done");
    let run = sandbox.lookalike("opencode", &["run", "-s", "ses_one"]);
    legacy(&store, "ses_older", r#"{"role": "assistant", "time": {"created": 1, "completed": 2}, "finish": "stop"}"#);
    let path = store.path("opencode.db");
    let sound = fs::read(&path).expect("the database");

    let mut damaged = sound.clone();
    damaged[..100].fill(7);
    let cut = sound[..5000].to_vec();
    for broken in [damaged, cut, b"not a database, but long enough to be read as one".repeat(40)] {
        fs::write(&path, broken).expect("a damaged database");
        let seen = list(&sandbox);
        assert!(seen.warns_of("opencode.db"), "{:?}", seen.warnings());
        seen.expect("ses_older", "done", None);
        // The process lives; what it does cannot be read.
        seen.expect("ses_one", "unknown", Some(run.pid()));
    }
    fs::remove_file(&path).expect("no database");
    let seen = list(&sandbox);
    assert_eq!(seen.warnings(), [""; 0]);
    seen.expect("ses_one", "starting", Some(run.pid()));
    sandbox.run(["mkfifo", path.to_str().expect("a path")]).expect_success();
    assert!(list(&sandbox).warns_of("opencode.db"), "a pipe is no database, and nobody waits at it");
    fs::remove_file(&path).expect("no pipe");
    fs::write(&path, &sound).expect("the database");
    list(&sandbox).expect("ses_older", "done", None);
    // What is said last may stand in a log that cannot be read.
    sandbox.run(["mkfifo", store.path("opencode.db-wal").to_str().expect("a path")]).expect_success();
    let seen = list(&sandbox);
    assert!(seen.warns_of("opencode.db"), "{:?}", seen.warnings());
    seen.expect("ses_one", "unknown", Some(run.pid()));
}

#[test]
fn a_database_that_is_being_made_is_an_empty_store_and_one_that_stays_so_is_not() {
    let sandbox = Sandbox::new("opencode-made");
    let store = OpenCodeStore::without_database(&sandbox);
    fs::create_dir_all(store.path("log")).expect("the store");
    let path = store.path("opencode.db");
    let _run = sandbox.lookalike("opencode", &["run"]);
    for (tables, is_made) in [
        ("PRAGMA user_version = 1;", true),
        ("CREATE TABLE migration (id text);", true),
        ("CREATE TABLE other (id text);", false),
    ] {
        database::build(&path, tables);
        let seen = list(&sandbox);
        assert_eq!(
            (seen.code == 0, seen.warns_of("opencode.db")),
            (is_made, !is_made),
            "{tables} {:?}",
            seen.warnings()
        );
        sandbox.run(["touch", "-d", "1 minute ago", path.to_str().expect("a path")]).expect_success();
        assert!(list(&sandbox).warns_of("opencode.db"), "{tables}");
        fs::remove_file(&path).expect("the database");
    }
}

#[test]
fn a_page_that_is_damaged_is_told_of_and_what_it_held_is_not_made_up() {
    let sandbox = Sandbox::new("opencode-pages");
    let store = OpenCodeStore::of(&sandbox);
    let text = "a prompt that fills pages ".repeat(40);
    for n in 0..40 {
        store.session(&format!("ses_{n:02}")).asked(&text).answered("done");
    }
    let path = store.path("opencode.db");
    let sound = fs::read(&path).expect("the database");
    let told = |of: &crate::asking::Answer| -> Vec<String> {
        let all = of.json["sessions"].as_array().expect("sessions").iter();
        all.map(|s| format!("{} {} {}", s["native_id"], s["status"], s["prompt"])).collect()
    };
    let before = told(&list(&sandbox));
    let mut harmed = 0;
    for page in 1..sound.len() / 4096 {
        let mut damaged = sound.clone();
        damaged[page * 4096..(page + 1) * 4096].fill(0);
        fs::write(&path, damaged).expect("a damaged database");
        let seen = list(&sandbox);
        let other: Vec<String> = told(&seen).into_iter().filter(|row| !before.contains(row)).collect();
        let lost = before.len() - told(&seen).len();
        assert!(other.is_empty() && lost == 0 || seen.warns_of("opencode.db"), "page {page}, {lost} lost: {other:?}");
        assert!(other.iter().all(|row| row.starts_with("\"ses_")), "page {page}: {other:?}");
        harmed += usize::from(!other.is_empty());
    }
    assert!(harmed > 2, "some pages held what is shown: {harmed}");
}

#[test]
fn a_database_that_is_written_or_locked() {
    let sandbox = Sandbox::new("opencode-locked");
    let store = OpenCodeStore::of(&sandbox);
    let path = store.path("opencode.db");
    store.sql("PRAGMA journal_mode = WAL");
    store.session("ses_one").asked("one").answered("done");
    let before = names(&store);
    list(&sandbox).expect("ses_one", "done", None);
    assert_eq!(names(&store), before, "looking makes no file beside the database");

    // A writer in the middle of its work: what it has finished is seen, the rest is not.
    let writer = database::write(
        &path,
        "UPDATE session SET title = 'in the log'; BEGIN IMMEDIATE; UPDATE session SET title = 'never'",
    );
    let seen = list(&sandbox);
    assert_eq!((seen.warnings().len(), &seen.session("ses_one")["title"]), (0, &json!("in the log")));
    drop(writer);

    // One that lets nobody in.
    let holder =
        database::write(&path, "PRAGMA journal_mode = DELETE; PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE");
    let beside = ["opencode.db-wal", "opencode.db-shm"].map(|name| store.path(name));
    for path in &beside {
        fs::write(path, "so that it is not read as a plain file").expect("a log and its index");
    }
    let seen = list(&sandbox);
    assert!(seen.warns_of("opencode.db") && seen.find("ses_one").is_none(), "{:?}", seen.warnings());
    for path in &beside {
        fs::remove_file(path).expect("no log");
    }
    drop(holder);
    list(&sandbox).expect("ses_one", "done", None);
}

/// One that died left its log, and somebody took the index away, or all but that was copied.
#[test]
fn a_log_without_its_index_is_read_and_nothing_is_made_beside_it() {
    let sandbox = Sandbox::new("opencode-no-index");
    let store = OpenCodeStore::of(&sandbox);
    store.session("ses_one").asked("one").answered("done");
    let write = |sql: &str| database::write_and_die(&store.path("opencode.db"), sql).expect("nobody is there");
    write("UPDATE session SET title = 'in the log'");
    fs::remove_file(store.path("opencode.db-shm")).expect("an index");
    let files = || names(&store).iter().map(|name| (name.clone(), fs::read(store.path(name)).ok())).collect::<Vec<_>>();
    let before = files();
    let expect = |title: &str, how: &str| {
        let seen = list_through(&sandbox, how);
        seen.expect("ses_one", "done", None);
        assert_eq!((&seen.session("ses_one")["title"], seen.code), (&json!(title), 0), "{}", seen.text);
    };
    expect("in the log", "exec \"$@\"");
    assert!(files() == before, "looking wrote: {:?}", names(&store));
    // Where nothing can be written.
    let sealed = "exec unshare --mount sh -c 'mount --bind \"$HOME\" \"$HOME\" && mount -o remount,bind,ro \"$HOME\" && \
                  exec \"$@\"' sh \"$@\"";
    expect("in the log", sealed);
    // What is written then is seen.
    write("UPDATE session SET title = 'later'");
    expect("later", "exec \"$@\"");
    // To a file of no size belongs no log, but that is not for us to remove.
    fs::write(store.path("opencode.db"), "").expect("no database");
    let before = files();
    list(&sandbox);
    assert!(files() == before, "looking wrote: {:?}", names(&store));
}

fn names(store: &OpenCodeStore) -> Vec<String> {
    let entries = fs::read_dir(store.path("")).expect("the store");
    let mut names: Vec<_> = entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn rows_that_make_no_sense_spoil_no_others() {
    let sandbox = Sandbox::new("opencode-rows");
    let store = OpenCodeStore::of(&sandbox);
    store.session("ses_good").asked("one").answered("done");
    store.session("ses_torn").raw(r#"{"role": "assist"#, &[]);
    store.session("ses_odd").raw(r#"{"role": 7}"#, &["[]".into()]);
    store.session("ses_failed").asked("two").failed("APIError", "no credit");
    store.session("ses_auth").asked("two").failed("ProviderAuthError", "");
    store.session("ses_stopped").asked("two").failed("MessageAbortedError", "Aborted");
    store.session("ses_called").asked("three").calls("bash", &json!({"command": "make"}), true);
    store.below("ses_orphan", "ses_not_there").asked("four").answered("done");
    store.below("ses_self", "ses_self").asked("five").answered("done");
    store.sql("UPDATE session SET tokens_input = 'many', directory = x'ff00fe' WHERE id = 'ses_odd'");
    store.sql("UPDATE session SET tokens_input = 5, tokens_output = 3, tokens_reasoning = 2, cost = 0.5 WHERE id = 'ses_good'");
    let seen = list(&sandbox);
    seen.expect("ses_good", "done", None);
    let tokens = json!({"input": 5, "output": 5, "cache_read": 0, "cache_write": 0});
    assert_eq!((&seen.session("ses_good")["tokens"], &seen.session("ses_good")["cost_usd"]), (&tokens, &json!(0.5)));
    seen.expect("ses_torn", "unknown", None);
    seen.expect("ses_odd", "unknown", None);
    assert!(seen.warns_of("opencode.db"), "{:?}", seen.warnings());
    assert!(seen.session("ses_odd")["tokens"].is_null());
    seen.expect("ses_failed", "failed", None);
    assert_eq!(seen.session("ses_failed")["reason"], "no credit");
    assert_eq!(seen.session("ses_auth")["reason"], "ProviderAuthError");
    seen.expect("ses_stopped", "stopped", None);
    seen.expect("ses_called", "interrupted", None);
    seen.expect("ses_orphan", "done", None);
    // Nor does one without an id hide who worked for one that is gone.
    let before = seen.sessions().len();
    store.sql("UPDATE session SET id = NULL WHERE id = 'ses_auth'");
    let seen = list(&sandbox);
    assert!(seen.warnings().iter().any(|w| w.contains("a session without an id")), "{:?}", seen.warnings());
    assert_eq!(seen.sessions().len(), before - 1, "{:#}", seen.json);
}

#[test]
fn a_part_that_cannot_be_read_is_told_of() {
    for (which, word) in [("'$.text') = 'one'", "done"), ("'$.tool') = 'bash'", "interrupted")] {
        let sandbox = Sandbox::new("opencode-parts");
        let store = OpenCodeStore::of(&sandbox);
        store.session("ses_good").asked("good").answered("done");
        let odd = store.session("ses_odd").asked("one");
        drop(if word == "done" { odd.answered("done") } else { odd.calls("bash", &json!({"command": "make"}), true) });
        assert_eq!(list(&sandbox).warnings(), [""; 0]);
        store.sql(&format!("UPDATE part SET data = '{{' WHERE json_extract(data, {which}"));
        let seen = list(&sandbox);
        assert!(seen.warns_of("opencode.db") && seen.warnings()[0].contains("ses_odd"), "{:?}", seen.warnings());
        seen.expect("ses_odd", word, None);
        seen.expect("ses_good", "done", None);
    }
}

#[test]
fn what_a_count_leaves_out_is_not_known() {
    let sandbox = Sandbox::new("opencode-counts");
    let store = OpenCodeStore::of(&sandbox);
    store.session("ses_one").asked("one").answered("done");
    store.sql("UPDATE session SET tokens_input = 5, tokens_output = 3, tokens_reasoning = 2");
    assert_eq!(list(&sandbox).session("ses_one")["tokens"]["output"], 5);
    store.sql("ALTER TABLE session RENAME COLUMN tokens_reasoning TO tokens_thoughts");
    assert_eq!(list(&sandbox).session("ses_one")["tokens"], Value::Null);
}

#[test]
fn numbers_that_cannot_be_true_spoil_nothing() {
    let sandbox = Sandbox::new("opencode-numbers");
    let store = OpenCodeStore::of(&sandbox);
    drop((store.session("ses_odd").asked("one"), store.session("ses_fine").asked("one").answered("two")));
    let run = sandbox.lookalike("opencode", &["run", "-s", "ses_odd"]);
    let huge = json!({"role": "assistant", "time": {"created": u64::MAX, "completed": 1e300}, "tokens": {
        "input": u64::MAX, "output": u64::MAX, "reasoning": u64::MAX, "total": 1, "cache": {"read": 1, "write": 1}}});
    legacy(&store, "ses_older", &huge.to_string());
    for number in ["9223372036854775807", "-9223372036854775808", "1e300", "-1e300"] {
        let columns = ["time_created", "time_updated", "tokens_input", "tokens_output", "tokens_reasoning"];
        let set = |columns: &[&str]| columns.iter().map(|c| format!("{c} = {number}")).collect::<Vec<_>>().join(", ");
        for (table, columns) in [("session", &columns[..]), ("message", &columns[..2]), ("part", &columns[..2])] {
            let whose = if table == "session" { "id" } else { "session_id" };
            store.sql(&format!("UPDATE {table} SET {} WHERE {whose} = 'ses_odd'", set(columns)));
        }
        let seen = list(&sandbox);
        assert_eq!(seen.warnings(), [""; 0], "{number}");
        seen.expect("ses_fine", "done", None);
        seen.expect("ses_older", "done", None);
        assert_eq!(seen.session("ses_odd")["pid"], run.pid(), "{number}");
        assert!(ask(&sandbox, &["usage", "--json"]).json()["total"].is_object(), "{number}");
    }
}

#[test]
fn who_works_for_itself_is_a_session_of_its_own() {
    let sandbox = Sandbox::new("opencode-rings");
    let store = OpenCodeStore::of(&sandbox);
    store.session("ses_alone").asked("go").answered("gone");
    store.below("ses_own", "ses_own").asked("go").answered("gone");
    store.below("ses_two", "ses_three").asked("go").answered("gone");
    store.below("ses_three", "ses_two").asked("go");
    store.below("ses_helper", "ses_own").asked("help").answered("helped");
    store.below("ses_orphan", "ses_deleted").asked("go").answered("gone");
    let wanted = ["ses_alone", "ses_orphan", "ses_own", "ses_three", "ses_two"];
    let shown = |of: &Value, live: bool| -> Vec<String> {
        let all = of["sessions"].as_array().expect("sessions").iter().filter(|s| !live || s["live"] == true);
        let mut ids: Vec<String> = all.map(|s| s["native_id"].as_str().expect("an id").to_owned()).collect();
        ids.sort();
        ids
    };
    let seen = list(&sandbox);
    assert_eq!(shown(&seen.json, false), wanted);
    assert_eq!(seen.warnings(), [""; 0]);
    seen.expect("ses_own", "done", None);
    seen.expect("ses_two", "done", None);
    seen.expect("ses_three", "interrupted", None);
    let brief = || ask(&sandbox, &["ls", "--json"]).json();
    assert_eq!(brief()["hidden"]["ended"], 5, "none of them is forgotten");

    // Of two that name each other, only the one that runs lives; its helper is its work.
    let run = sandbox.lookalike("opencode", &["run", "--session", "ses_own"]);
    wait_until("it is seen", DEADLINE, || list(&sandbox).session("ses_own")["pid"] == run.pid());
    let other = sandbox.lookalike("opencode", &["run", "--session", "ses_two"]);
    wait_until("it is seen", DEADLINE, || list(&sandbox).session("ses_two")["pid"] == other.pid());
    assert_eq!(shown(&list(&sandbox).json, false), wanted);
    assert_eq!(shown(&brief(), true), ["ses_own", "ses_two"], "{:#}", brief());
    store.logs(&other, "r2", "message=loop session.id=ses_two");
    wait_until("its log is read", DEADLINE, || {
        list(&sandbox).session("ses_two")["because"].to_string().contains("opencode.log")
    });
    store.sql("UPDATE session SET time_updated = 4102444800000 WHERE id IN ('ses_two', 'ses_three')");
    let told = list(&sandbox).session("ses_two")["because"].to_string();
    assert!(!told.contains("sub-agent"), "the other works for itself: {told}");
}

#[test]
fn hostile_text_stays_text_and_secrets_are_not_asked_for() {
    let sandbox = Sandbox::new("opencode-hostile");
    let store = OpenCodeStore::of(&sandbox);
    let evil = "\u{1b}[31mred\u{7}'; DROP TABLE session; --";
    store.session("ses_evil").asked(evil).answered(evil);
    store.sql(&format!("UPDATE session SET title = '{}'", evil.replace('\'', "''")));
    store.sql("INSERT INTO credential VALUES ('x', 'SECRETKEY')");
    for args in [&["ls", "-a"][..], &["peek", "ses_evil"], &["status", "ses_evil"], &["ls", "-a", "--json"]] {
        let output = ask(&sandbox, args);
        assert_eq!(output.code(), 0, "{args:?}: {}", output.stderr);
        assert!(
            !output.stdout.contains(['\u{1b}', '\u{7}']) && !output.stdout.contains("SECRETKEY"),
            "{}",
            output.stdout
        );
    }
    assert_eq!(list(&sandbox).session("ses_evil")["prompt"], evil);
}

#[test]
fn hundreds_of_sessions_and_only_the_living_are_read() {
    let sandbox = Sandbox::new("opencode-many");
    let store = OpenCodeStore::of(&sandbox);
    let work = sandbox.work();
    let mut sql = String::from("BEGIN;");
    for n in 0..600 {
        sql.push_str(&format!(
            "INSERT INTO session (id, project_id, slug, directory, title, version, time_created, time_updated) \
             VALUES ('ses_{n:04}', 'global', 'x', '{}', 't{n}', '1', {n}, {n});\
             INSERT INTO message VALUES ('msg_{n:04}', 'ses_{n:04}', {n}, {n}, \
             '{{\"role\":\"assistant\",\"time\":{{\"created\":1,\"completed\":2}},\"finish\":\"stop\"}}');",
            work.display()
        ));
    }
    store.sql(&format!("{sql} COMMIT"));
    let run = sandbox.lookalike("opencode", &["run"]);
    store.logs(&run, "aaaa", "message=loop session.id=ses_0007 step=0");
    let all = list(&sandbox);
    assert_eq!(all.sessions().len(), 600);
    all.expect("ses_0007", "idle", Some(run.pid()));
    let live = ask(&sandbox, &["ls", "--json"]).json();
    assert_eq!((live["sessions"].as_array().map(Vec::len), &live["hidden"]["ended"]), (Some(1), &json!(599)));
}

/// One session in the older layout, which has a prompt and this last message.
fn legacy(store: &OpenCodeStore, id: &str, last: &str) {
    let put = |path: &str, text: &str| {
        let path = store.path(&format!("storage/{path}"));
        fs::create_dir_all(path.parent().expect("a folder")).expect("the older store");
        fs::write(path, text).expect("a file of the older store");
    };
    let info = format!(
        "{{\n  \"id\": \"{id}\",\n  \"directory\": \"/home/dev\",\n  \"title\": \"old\",\n  \"time\": {{\n    \"created\": 1,\n    \"updated\": 2\n  }}\n}}"
    );
    put(&format!("session/global/{id}.json"), &info);
    put(&format!("message/{id}/msg_1.json"), r#"{"role": "user", "time": {"created": 1}}"#);
    put("part/msg_1/prt_1.json", "{\n \"type\": \"text\",\n \"text\": \"hello\"\n}");
    put(&format!("message/{id}/msg_2.json"), last);
    put("part/msg_2/prt_2.json", r#"{"type": "text", "text": "hi there"}"#);
}

#[test]
fn the_oldest_layout_is_read_too() {
    let sandbox = Sandbox::new("opencode-oldest");
    let store = OpenCodeStore::without_database(&sandbox);
    let put = |path: &str, text: &Value| {
        let path = store.path(&format!("project/home-dev/storage/session/{path}.json"));
        fs::create_dir_all(path.parent().expect("a folder")).expect("the oldest store");
        fs::write(path, format!("{text:#}")).expect("a file of the oldest store");
    };
    let session = |id: &str, last: &Value| {
        put(&format!("info/{id}"), &json!({"id": id, "title": "old", "time": {"created": 1, "updated": 2}}));
        put(&format!("message/{id}/msg_1"), &json!({"id": "msg_1", "role": "user", "time": {"created": 1}}));
        put(&format!("part/{id}/msg_1/prt_1"), &json!({"type": "text", "text": "hello"}));
        put(&format!("message/{id}/msg_2"), last);
        put(&format!("part/{id}/msg_2/prt_2"), &json!({"type": "text", "text": "hi there"}));
    };
    let tokens = json!({"input": 3, "output": 4, "reasoning": 1, "cache": {"read": 2, "write": 0}});
    let path = json!({"cwd": "/home/dev/work", "root": "/home/dev"});
    let last = json!({"role": "assistant", "modelID": "m", "providerID": "p", "cost": 0.25, "tokens": tokens,
        "path": path, "time": {"created": 1, "completed": 2}});
    session("ses_a", &last);
    session("ses_b", &json!({"role": "assistant", "time": {"created": 1}}));
    // What a later version has copied is told from there.
    let mut other = last.clone();
    other["time"]["created"] = json!(2);
    session("ses_older", &other);
    legacy(&store, "ses_older", &other.to_string());
    let seen = list(&sandbox);
    seen.expect("ses_a", "done", None);
    seen.expect("ses_b", "interrupted", None);
    let row = seen.session("ses_a");
    assert_eq!(
        (&row["prompt"], &row["model"], &row["cwd"]),
        (&json!("hello"), &json!("p/m"), &json!("/home/dev/work"))
    );
    assert_eq!(row["tokens"], json!({"input": 3, "output": 5, "cache_read": 2, "cache_write": 0}));
    assert_eq!((seen.sessions().len(), &seen.session("ses_older")["cwd"]), (3, &json!("/home/dev")));
    assert_eq!(ask(&sandbox, &["peek", "ses_a", "--json"]).json()["reply"], "hi there");
    let used = ask(&sandbox, &["usage", "--json"]).json();
    assert_eq!(used["total"]["tokens"]["input"], 6, "{used:#}");
}

#[test]
fn the_older_layout_is_read_too() {
    let sandbox = Sandbox::new("opencode-legacy");
    let store = OpenCodeStore::without_database(&sandbox);
    let tokens = r#""tokens": {"input": 3, "output": 4, "reasoning": 1, "cache": {"read": 2, "write": 0}}"#;
    let last = format!(
        r#"{{"role": "assistant", "modelID": "m", "providerID": "p", "cost": 0.25, {tokens}, "time": {{"created": 1, "completed": 2}}}}"#
    );
    legacy(&store, "ses_older", &last);
    let seen = list(&sandbox);
    seen.expect("ses_older", "done", None);
    let row = seen.session("ses_older");
    assert_eq!((&row["prompt"], &row["model"], &row["cost_usd"]), (&json!("hello"), &json!("p/m"), &json!(0.25)));
    assert_eq!(row["tokens"], json!({"input": 3, "output": 5, "cache_read": 2, "cache_write": 0}));
    assert_eq!(ask(&sandbox, &["peek", "ses_older", "--json"]).json()["reply"], "hi there");
    // Who works for another is no row; who works for itself, or for one that is gone, is.
    for (id, above) in [("ses_helper", "ses_older"), ("ses_own", "ses_own"), ("ses_orphan", "ses_deleted")] {
        let info = format!(r#"{{"id": "{id}", "parentID": "{above}", "time": {{"created": 1}}}}"#);
        fs::write(store.path(&format!("storage/session/global/{id}.json")), info).expect("a session");
        assert_eq!(list(&sandbox).find(id).is_some(), id != "ses_helper", "{id}");
        fs::remove_file(store.path(&format!("storage/session/global/{id}.json"))).expect("no session");
    }
    // Cut off in a tool; then a file that cannot be read.
    legacy(&store, "ses_older", r#"{"role": "assistant", "time": {"created": 1}}"#);
    list(&sandbox).expect("ses_older", "interrupted", None);
    fs::write(store.path("storage/message/ses_older/msg_2.json"), "{").expect("a torn file");
    let seen = list(&sandbox);
    seen.expect("ses_older", "unknown", None);
    assert!(seen.warns_of("msg_2.json"));
    // The database knows better.
    fs::create_dir_all(store.path("log")).expect("a folder");
    OpenCodeStore::of(&sandbox).session("ses_older").asked("newer").answered("yes");
    let seen = list(&sandbox);
    seen.expect("ses_older", "done", None);
    assert_eq!((&seen.session("ses_older")["prompt"], seen.warnings().len()), (&json!("newer"), 0));
}
