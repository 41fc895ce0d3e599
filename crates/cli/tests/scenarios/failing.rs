//! When a look itself fails: a store that hangs, a process table that is none, files of ours that
//! are lost or damaged. Scenarios 2, 3, 7 and 28.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, time::Instant};

use lariat_testkit::{DEADLINE, Exit, Lookalike, Output, Sandbox, Signal, Size, wait_until};
use serde_json::json;

use crate::{
    asking::{Answer, ask, id, lariat, list, list_through, settle},
    claude_store::ClaudeStore,
    codex_store::CodexStore,
    damage::WITHOUT_OVERRIDE,
    launching::{install, launch},
    resuming,
};

/// One of everything, live and dead, of both agents.
struct Crowd {
    sandbox: Sandbox,
    agents: Vec<Lookalike>,
    files: Vec<PathBuf>,
}

/// The dead ones whose end only a scan can prove.
const UNPROVEN: [u64; 4] = [3, 4, 13, 14];

impl Crowd {
    fn gather(name: &str) -> Self {
        let sandbox = Sandbox::new(name);
        let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
        let busy = sandbox.lookalike("claude", &["--session-id", &id(1)]);
        claude.register(&busy, &id(1)).says("busy");
        let idle = sandbox.lookalike("claude", &[]);
        claude.register(&idle, &id(2)).says("idle");
        let thread = sandbox.lookalike("codex", &["exec", "resume", &id(11)]);
        codex.lock(&thread, &id(11));
        let files = vec![
            claude.session(&id(1)).asked("one").calls("Bash", json!({"command": "make"})).path,
            // Left once, resumed since: its accounting is no end of this process.
            claude.session(&id(2)).asked("two").answered("2").left().path,
            claude.session(&id(3)).asked("three").path,
            claude.session(&id(4)).asked("four").answered("4").path,
            claude.session(&id(5)).asked("five").answered("5").left().path,
            claude.session(&id(6)).asked("six").interrupted().left().path,
            codex.thread(&id(11)).asked("eleven").path,
            codex.thread(&id(13)).asked("thirteen").path,
            codex.thread(&id(14)).asked("fourteen").answered("14").path,
        ];
        codex.name(&id(14), "named");
        claude.typed(&id(5), "/exit");
        Self { sandbox, agents: vec![busy, idle, thread], files }
    }

    fn look(&self) -> Answer {
        let seen = list(&self.sandbox);
        seen.expect(&id(1), "working", Some(self.agents[0].pid()));
        seen.expect(&id(2), "idle", Some(self.agents[1].pid()));
        seen.expect(&id(11), "working", Some(self.agents[2].pid()));
        for (n, status) in [(3, "interrupted"), (4, "done"), (5, "done"), (6, "stopped")] {
            seen.expect(&id(n), status, None);
        }
        for (n, status) in [(13, "interrupted"), (14, "done")] {
            seen.expect(&id(n), status, None);
        }
        assert_eq!((seen.code, seen.warnings()), (0, vec![]));
        seen
    }

    fn cache(&self) -> PathBuf {
        self.sandbox.home().join(".cache/lariat")
    }
}

/// A FIFO that nobody writes into.
fn silent(sandbox: &Sandbox) -> PathBuf {
    sandbox.run(["mkfifo", "/tmp/silent"]).expect_success();
    "/tmp/silent".into()
}

#[test]
fn s02_a_store_that_hangs_holds_up_nobody() {
    let crowd = Crowd::gather("s02");
    let sandbox = &crowd.sandbox;
    let fifo = silent(sandbox);
    for (agent, known, pid) in [("claude", id(1), 0), ("codex", id(11), 2)] {
        let began = Instant::now();
        let program = lariat(sandbox, &["ls", "-a", "--json", "--deadline", "300ms"])
            .env("LARIAT_PAUSE_AT", format!("{agent}.observe"))
            .env("LARIAT_PAUSE_ON", &fifo);
        let output = sandbox.world().run(&program);
        assert!(
            !output.json()["warnings"].as_array().expect("warnings").is_empty(),
            "lariat did not stop at {agent}.observe: it was built without its pause points. \
             Run the tests with `--features lariat/pause-points`"
        );
        let took = began.elapsed();
        assert!(took.as_secs() < 30, "it took {took:?} with a deadline of 300 ms");
        let seen = Answer::of(&output);
        seen.expect(&known, "unknown", Some(crowd.agents[pid].pid()));
        let warned = seen.warnings();
        assert!(
            warned.iter().any(|w| w.starts_with(&format!("{agent} ~/.{agent} "))),
            "the warning names the adapter and its store: {warned:?}"
        );
        assert_eq!(seen.code, 5);
        // Nothing of the silent one is called ended, and the other is as ever.
        for session in seen.sessions().iter().filter(|s| s["agent"] == agent) {
            assert_eq!(session["status"], "unknown", "{session:#}");
        }
        let mut others = seen.sessions().iter().filter(|s| s["agent"] != agent);
        let before = crowd.look();
        assert!(others.clone().count() >= 3);
        assert!(others.all(|s| s["status"] == before.status(s["native_id"].as_str().expect("id"))), "{:#}", seen.json);
    }
}

#[test]
fn s02_as_many_stores_that_hang_as_there_are_threads_hold_up_nobody_else() {
    let crowd = Crowd::gather("s02-many");
    let program = lariat(&crowd.sandbox, &["ls", "-a", "--json", "--deadline", "300ms"])
        .env("LARIAT_PAUSE_AT", "claude.observe,codex.observe,opencode.observe")
        .env("LARIAT_PAUSE_ON", silent(&crowd.sandbox));
    let seen = Answer::of(&crowd.sandbox.world().run(&program));
    let warned: Vec<_> = seen.warnings().iter().filter_map(|w| Some(w.split_once(' ')?.0.to_owned())).collect();
    assert_eq!((seen.code, warned), (5, ["claude", "codex", "opencode"].map(str::to_owned).to_vec()));
}

/// Whoever reads a store that hangs is still there when a viewer has come up: signals are not for it.
#[test]
fn s02_a_viewer_beside_a_store_that_hangs_hears_what_it_is_told() {
    let sandbox = Sandbox::new("s02-viewer");
    install(&sandbox, "claude", "trap 'stty size > seen' WINCH; : > up; while :; do sleep 0.02; done");
    let launched = launch(&sandbox, &["claude"]);
    let written = |name: &str| fs::read_to_string(sandbox.work().join(name)).ok();
    wait_until("its agent", DEADLINE, || written("up").is_some());
    let program = lariat(&sandbox, &["attach", launched["handle"].as_str().expect("text"), "--deadline", "300ms"])
        .env("LARIAT_PAUSE_AT", "opencode.observe")
        .env("LARIAT_PAUSE_ON", silent(&sandbox));
    let viewer = sandbox.terminal(&program);
    viewer.wait_for_text("Ctrl-Q leaves", DEADLINE);
    viewer.resize(Size { rows: 31, cols: 97 });
    wait_until("the new size", DEADLINE, || written("seen").is_some_and(|size| size.trim() == "31 97"));
    viewer.signal(Signal::TERM);
    assert_eq!(viewer.wait(DEADLINE), Exit::Code(143));
}

#[test]
fn s02_what_was_not_read_is_not_absent() {
    let crowd = Crowd::gather("s02-absent");
    let sandbox = &crowd.sandbox;
    let fifo = silent(sandbox);
    // Sessions that only the store knows.
    for (agent, stored) in [("claude", id(5)), ("codex", id(14))] {
        for verb in ["status", "explain", "peek"] {
            let program = lariat(sandbox, &[verb, &stored, "--deadline", "300ms"])
                .env("LARIAT_PAUSE_AT", format!("{agent}.observe"))
                .env("LARIAT_PAUSE_ON", &fifo);
            let said = sandbox.world().run(&program);
            assert_eq!(said.code(), 5, "{verb} calls it absent: {said:?}");
            assert!(said.stderr.contains(agent), "it says whose store did not answer: {said:?}");
        }
        // Nor is a directory free because its holder could not be seen.
        let program = lariat(sandbox, &["locks", "--deadline", "300ms"])
            .env("LARIAT_PAUSE_AT", format!("{agent}.observe"))
            .env("LARIAT_PAUSE_ON", &fifo);
        let said = sandbox.world().run(&program);
        assert!(said.code() == 5 && !said.stdout.contains("Every directory is free"), "{said:?}");
    }
}

/// What was done may stand where nobody could look: it is not done a second time.
#[test]
fn s28_what_was_cut_off_and_cannot_be_read_is_not_asked_again() {
    let sandbox = Sandbox::new("s28-unread");
    resuming::install(&sandbox);
    let told = ask(&sandbox, &["launch", "claude", "--headless", "-p", "hi", "--json"]).json();
    let [id, handle] = ["native_id", "handle"].map(|key| told[key].as_str().expect(key).to_owned());
    wait_until("it works", DEADLINE, || list(&sandbox).session(&id)["status"] == "working");
    let pid = i32::try_from(told["pid"].as_i64().expect("a pid")).expect("a pid");
    assert!(sandbox.world().process(pid).expect("it lives").signal(Signal::KILL));
    let exit = sandbox.state_dir().join("lariat/sessions").join(&handle).join("exit.json");
    wait_until("its end is on record", DEADLINE, || exit.exists());
    // Only the transcript tells of it.
    fs::remove_dir_all(sandbox.home().join(".claude/sessions")).expect("a registry");
    let row = list(&sandbox).session(&id).clone();
    assert_eq!((&row["status"], &row["restorable"]), (&json!("interrupted"), &json!(true)), "{row:#}");

    let runs = || fs::read_to_string(sandbox.home().join("runs")).expect("runs");
    let before = runs();
    let is_left = |asked: &dyn Fn(&[&str]) -> Output| {
        let seen = Answer::of(&asked(&["ls", "-a", "--json"]));
        let row = seen.session(&id);
        assert_eq!((&row["status"], &row["live"], seen.code), (&json!("unknown"), &json!(false), 5), "{row:#}");
        let back = asked(&["restore", "--yes", "--json"]);
        assert_eq!((back.code(), &back.json()["restore"][0]["outcome"]), (3, &json!("left")), "{back:?}");
        let again = asked(&["resume", &handle]);
        assert!(again.code() != 0 && again.stderr.contains("cannot be told"), "{again:?}");
        assert_eq!(runs(), before, "nothing was started");
    };
    let fifo = silent(&sandbox);
    is_left(&|args| {
        let late = lariat(&sandbox, &[args, &["--deadline", "300ms"]].concat());
        sandbox.world().run(&late.env("LARIAT_PAUSE_AT", "claude.observe").env("LARIAT_PAUSE_ON", &fifo))
    });
    let [folder, aside] = ["projects", "aside"].map(|name| sandbox.home().join(".claude").join(name));
    fs::rename(&folder, &aside).expect("another name");
    fs::write(&folder, "a file").expect("a file in its place");
    is_left(&|args| ask(&sandbox, args));
    fs::remove_file(&folder).expect("the file");
    fs::rename(&aside, &folder).expect("its own name");
    let back = ask(&sandbox, &["restore", "--yes", "--json"]);
    assert_eq!(back.json()["restore"][0]["way"], "native", "{back:?}");
}

/// What must hold when the process table cannot be read.
#[track_caller]
fn nothing_is_called_dead(seen: &Answer) {
    for n in UNPROVEN.into_iter().chain([1, 2, 11]) {
        let session = seen.session(&id(n));
        assert_eq!((session["status"].as_str(), session["live"].as_bool()), (Some("unknown"), None), "{session:#}");
    }
    // Their own record proves the end.
    seen.expect(&id(5), "done", None);
    seen.expect(&id(6), "stopped", None);
    assert_eq!(seen.code, 5);
    assert!(seen.warns_of("/proc"), "{:?}", seen.warnings());
    assert_eq!(seen.sessions().len(), 9);
}

#[test]
fn s03_no_process_table_kills_nobody() {
    let crowd = Crowd::gather("s03");
    crowd.look();
    let empty = "mount -t tmpfs none /proc && exec \"$@\"";
    let line = format!("unshare -m sh -c '{empty}' sh \"$@\"");
    nothing_is_called_dead(&list_through(&crowd.sandbox, &line));
    // Full of numbers, but not by the kernel.
    let fake = "mount -t tmpfs none /proc && mkdir /proc/1 /proc/$$ && exec \"$@\"";
    nothing_is_called_dead(&list_through(&crowd.sandbox, &format!("unshare -m sh -c '{fake}' sh \"$@\"")));
    // By default too, what is unknown is shown.
    let shown = crate::asking::through(&crowd.sandbox, &line, &["ls"]);
    assert_eq!(shown.code(), 5, "{shown:?}");
    assert!(shown.stdout.contains("UNKNOWN"), "{shown:?}");
    crowd.look();
}

#[test]
fn s03_the_process_table_of_another_namespace_kills_nobody() {
    let crowd = Crowd::gather("s03-ns");
    let sandbox = &crowd.sandbox;
    // A namespace within, so full that lariat's own number is taken in there as well.
    let inner = "echo 100 >/proc/sys/kernel/ns_last_pid; i=0; while [ $i -lt 200 ]; do \
                 sleep 9999 & i=$((i+1)); done; echo ready; wait";
    let args = ["--pid", "--mount-proc", "--fork", "sh", "-c", inner];
    let container = sandbox.spawn(&sandbox.program("unshare").args(args));
    container.wait_for_stdout("ready", DEADLINE);
    let outside = container.outside_pid().expect("alive");
    let child = fs::read_to_string(format!("/proc/{outside}/task/{outside}/children"));
    let child = child.expect("its children");
    let status = fs::read_to_string(format!("/proc/{}/status", child.trim())).expect("a status");
    let numbers = status.lines().find(|line| line.starts_with("NSpid:")).expect("its numbers");
    // As we see it, as the world does, as it does itself.
    let [.., in_world, "1"] = numbers.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("not the first of a namespace within the world: {numbers}");
    };
    let line = format!("nsenter --target {in_world} --mount \"$@\"; exit $?");
    nothing_is_called_dead(&list_through(sandbox, &line));
    crowd.look();
}

#[test]
fn s07_without_our_files_the_answer_is_the_same() {
    let crowd = Crowd::gather("s07");
    settle(&crowd.files);
    let cold = crowd.look().timeless();
    let warm = crowd.look().timeless();
    assert_eq!(cold, warm);
    let ours: Vec<PathBuf> = [".cache/lariat", ".local/state/lariat", ".config/lariat"]
        .map(|p| crowd.sandbox.home().join(p))
        .into_iter()
        .chain([crowd.sandbox.runtime_dir().join("lariat")])
        .collect();
    assert!(ours[0].join("claude").exists(), "there is a cache to lose");
    ours.iter().for_each(|folder| drop(fs::remove_dir_all(folder)));
    assert_eq!(crowd.look().timeless(), cold);
    // Nor does it matter what was seen while they lived.
    for agent in &crowd.agents {
        agent.signal(Signal::KILL);
        agent.wait(DEADLINE);
    }
    let dead = list(&crowd.sandbox).timeless();
    ours.iter().for_each(|folder| drop(fs::remove_dir_all(folder)));
    assert_eq!(list(&crowd.sandbox).timeless(), dead);
    // Or whether there is to be a cache at all.
    crowd.sandbox.env("LARIAT_NO_CACHE", "1");
    assert_eq!(list(&crowd.sandbox).timeless(), dead);
}

/// Without a cache files are read as they are found, those of a large folder by several threads.
#[test]
fn s07_a_folder_of_very_many_is_told_the_same_with_a_cache_and_without() {
    let sandbox = Sandbox::new("s07-many");
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    let mut files = Vec::new();
    for n in 1..=600 {
        let session = claude.session(&id(n)).asked("what");
        files.push(if n % 3 == 0 { session.path } else { session.answered("that").path });
        files.push(codex.thread(&id(1000 + n)).asked("what").answered("that").path);
    }
    // A long one, of which head and tail are read first.
    let long = (0..40).fold(claude.session(&id(601)), |s, _| s.asked("what").answered(&"that ".repeat(500)));
    files.push(long.path);
    // An older copy of one in another folder, one that ends in the middle of a line, and what is no file.
    let elsewhere = files[0].parent().and_then(|p| p.parent()).expect("projects").join("-elsewhere");
    fs::create_dir(&elsewhere).expect("a folder");
    fs::write(elsewhere.join(files[0].file_name().expect("a name")), "{\"type\":\"mode\"}\n").expect("a copy");
    let torn = fs::read(&files[2]).expect("a transcript");
    fs::write(&files[2], &torn[..torn.len() - 30]).expect("a torn one");
    fs::create_dir(files[0].with_file_name(format!("{}.jsonl", id(700)))).expect("a folder of that name");
    settle(&files);
    settle(&[elsewhere.join(files[0].file_name().expect("a name"))]);
    let touched = std::time::SystemTime::now() - std::time::Duration::from_secs(86_400);
    let copy = fs::File::open(elsewhere.join(files[0].file_name().expect("a name"))).expect("the copy");
    copy.set_modified(touched).expect("an older one");
    let cold = list(&sandbox);
    let warm = list(&sandbox);
    assert!(cold.timeless() == warm.timeless(), "a cache changes the answer");
    assert_eq!(cold.sessions().len(), 1202, "each once");
    assert!(cold.session(&id(601))["tokens"].is_object(), "{:#}", cold.session(&id(601)));
    cold.expect(&id(1), "done", None);
    cold.expect(&id(3), "interrupted", None);
    cold.expect(&id(1600), "done", None);
    assert_eq!(cold.warnings().len(), 1, "{:?}", cold.warnings());
    let ids: std::collections::BTreeSet<&str> = cold.sessions().iter().filter_map(|s| s["id"].as_str()).collect();
    assert_eq!(ids.len(), cold.sessions().len());
}

#[test]
fn s07_a_damaged_cache_changes_no_answer() {
    let crowd = Crowd::gather("s07-cache");
    settle(&crowd.files);
    let good = crowd.look().timeless();
    let caches: Vec<PathBuf> = fs::read_dir(crowd.cache()).expect("a cache").flatten().map(|e| e.path()).collect();
    assert!(caches.len() >= 2, "{caches:?}");
    let kept: Vec<Vec<u8>> = caches.iter().map(|c| fs::read(c).expect("a cache")).collect();
    let other = kept[1].clone();
    type Damage<'a> = (&'a str, Box<dyn Fn(&[u8]) -> Vec<u8> + 'a>);
    let damages: Vec<Damage<'_>> = vec![
        ("garbage", Box::new(|_| (0..5000u32).map(|i| ((i * 7919) >> 3) as u8).collect())),
        ("empty", Box::new(|_| Vec::new())),
        ("cut short", Box::new(|b| b[..b.len() / 2].to_vec())),
        ("cut within its head", Box::new(|b| b[..11].to_vec())),
        ("grown", Box::new(|b| [b, b].concat())),
        ("of another kind", Box::new(|_| other.clone())),
        ("of another version", Box::new(|b| [b"lariat99".as_slice(), &b[8..]].concat())),
        (
            "one bit off",
            Box::new(|b| {
                let mut bytes = b.to_vec();
                let at = bytes.len() / 2;
                bytes[at] ^= 4;
                bytes
            }),
        ),
        (
            "a bit of its sum off",
            Box::new(|b| {
                let mut bytes = b.to_vec();
                bytes[9] ^= 4;
                bytes
            }),
        ),
    ];
    for (name, damage) in &damages {
        for (path, bytes) in caches.iter().zip(&kept) {
            fs::write(path, damage(bytes)).expect("a damaged cache");
        }
        assert_eq!(crowd.look().timeless(), good, "a cache that is {name}");
        assert_eq!(crowd.look().timeless(), good, "after a cache that was {name}");
    }
}

#[test]
fn s07_a_cache_that_cannot_be_written_changes_no_answer() {
    let crowd = Crowd::gather("s07-ro");
    settle(&crowd.files);
    let good = crowd.look().timeless();
    let cache = crowd.cache();
    fs::remove_dir_all(&cache).expect("a cache");
    fs::create_dir(&cache).expect("a folder");
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o500)).expect("a mode");
    assert_eq!(list_through(&crowd.sandbox, WITHOUT_OVERRIDE).timeless(), good, "a folder without write");
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o000)).expect("a mode");
    assert_eq!(list_through(&crowd.sandbox, WITHOUT_OVERRIDE).timeless(), good, "a folder without entry");
    assert_eq!(fs::read_dir(&cache).expect("a folder").count(), 0, "it was really refused");
    fs::remove_dir(&cache).expect("an empty folder");
    fs::write(&cache, "not a folder").expect("a file");
    assert_eq!(crowd.look().timeless(), good, "a file in its place");
    fs::remove_file(&cache).expect("a file");
    std::os::unix::fs::symlink(&cache, &cache).expect("a link to itself");
    assert_eq!(crowd.look().timeless(), good, "a link to itself in its place");
    fs::remove_file(&cache).expect("a link");
    // The whole home, and everything in it.
    let home = crowd.sandbox.home();
    let line = format!(
        "unshare -m sh -c 'mount --bind {0} {0} && mount -o remount,bind,ro {0} && \
         ! touch {0}/canary 2>/dev/null && exec \"$@\"' sh \"$@\"",
        home.display()
    );
    assert_eq!(list_through(&crowd.sandbox, &line).timeless(), good, "a read-only home");
    for verb in [&["status"][..], &["status", &id(1)], &["explain", &id(1)], &["peek", &id(5)]] {
        let said = crate::asking::through(&crowd.sandbox, &line, verb);
        assert_eq!(said.code(), 0, "{verb:?} in a read-only home: {said:?}");
    }
    // It came back by itself where it may.
    assert_eq!(crowd.look().timeless(), good);
    assert!(cache.join("claude").exists());
}

#[test]
fn looking_writes_nothing_but_its_cache() {
    let crowd = Crowd::gather("read-only");
    let listing = |s: &Sandbox| {
        let found = s.run(["sh", "-c", "find $HOME -not -path '*/.cache*' -printf '%p %s %T@ %C@ %m\\n' | sort"]);
        found.expect_success().stdout
    };
    let before = listing(&crowd.sandbox);
    for verb in
        [&["ls", "-a"][..], &["status"], &["status", &id(1)], &["explain", &id(11)], &["peek", &id(4)], &["doctor"]]
    {
        ask(&crowd.sandbox, verb);
    }
    assert_eq!(listing(&crowd.sandbox), before);
}
