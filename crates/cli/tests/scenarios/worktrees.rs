//! Worktrees: no line of work in one is ever lost. Scenarios 22, 31, 32, 33, 34.
//!
//! Seen red, each by its line broken on purpose: see docs/mutants.md.

mod teardown;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use lariat_testkit::{Child, DEADLINE, Lookalike, Program, Sandbox, wait_until};
use serde_json::{Value, json};

use crate::asking::{ask, lariat, list};

/// A sandbox with an agent to launch: it sits still until it is ended.
pub fn with_agent(name: &str) -> Sandbox {
    let sandbox = Sandbox::new(name);
    drop(Lookalike::program(&sandbox, "claude"));
    sandbox
}

/// One session in a worktree of its own.
pub struct Launched {
    pub handle: String,
    pub id: String,
    pub pid: i32,
    pub path: PathBuf,
}

#[track_caller]
pub fn launch(sandbox: &Sandbox, args: &[&str]) -> Launched {
    let output = ask(sandbox, &[&["launch", "claude", "--json"], args].concat());
    assert_eq!(output.code(), 0, "{}", output.stderr);
    let told = output.json();
    let text = |name: &str| told[name].as_str().unwrap_or_else(|| panic!("no {name}: {told}")).to_owned();
    let pid = i32::try_from(told["pid"].as_i64().expect("a pid")).expect("a pid");
    Launched { handle: text("handle"), id: text("native_id"), pid, path: text("worktree").into() }
}

/// Ends a session and waits until nothing of it is left.
#[track_caller]
pub fn end(sandbox: &Sandbox, one: &Launched) {
    let killed = ask(sandbox, &["kill", &one.handle]);
    assert_eq!(killed.code(), 0, "{}", killed.stderr);
    let gone = || !sandbox.processes().iter().any(|p| p.comm.starts_with("lariat-shim") || p.pid == one.pid);
    wait_until("its shim is gone", DEADLINE, gone);
}

#[track_caller]
pub fn clean(sandbox: &Sandbox, args: &[&str]) -> (i32, Value) {
    let output = ask(sandbox, &[&["worktree", "clean", "--json"], args].concat());
    let last = output.stdout.lines().last().unwrap_or("null");
    (output.code(), serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {output:?}")))
}

pub fn put(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, content).expect("a file");
}

/// Files by path, with mode and content.
pub type Files = BTreeMap<PathBuf, (u32, Vec<u8>)>;

/// Everything below a folder but `.git`.
pub fn tree(top: &Path) -> Files {
    let mut found = BTreeMap::new();
    let mut next = vec![top.to_owned()];
    while let Some(folder) = next.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let (path, meta) = (entry.path(), entry.path().symlink_metadata().expect("an entry"));
            let name = path.strip_prefix(top).expect("below").to_owned();
            if name == Path::new(".git") {
                continue;
            }
            if meta.is_dir() {
                next.push(path);
            } else if meta.is_symlink() {
                found.insert(name, (0, fs::read_link(&path).expect("a link").as_os_str().as_bytes().to_vec()));
            } else {
                found.insert(name, (meta.permissions().mode() & 0o111, fs::read(&path).expect("a file")));
            }
        }
    }
    found
}

/// What git says of the index: every entry with its flags, and where HEAD is.
pub fn index(sandbox: &Sandbox, top: &Path) -> (String, String, String) {
    let git = |args: &[&str]| sandbox.git(top, args);
    (git(&["ls-files", "-s"]), git(&["ls-files", "-v"]), git(&["symbolic-ref", "HEAD"]))
}

pub fn saved(sandbox: &Sandbox, repo: &Path) -> Vec<String> {
    sandbox.git(repo, &["for-each-ref", "--format=%(refname)", "refs/lariat"]).lines().map(str::to_owned).collect()
}

/// Starts `lariat` so that it waits at a point; returns when it is there.
pub struct Held {
    child: Child,
    fifo: PathBuf,
}

pub fn hold(sandbox: &Sandbox, args: &[&str], point: &str) -> Held {
    hold_as(sandbox, lariat(sandbox, args), point)
}

/// The same of any program of lariat's.
pub fn hold_as(sandbox: &Sandbox, program: Program, point: &str) -> Held {
    let fifo = sandbox.root().join("streams/hold");
    let passed = sandbox.root().join("streams/points");
    drop(fs::remove_file(&fifo));
    drop(fs::remove_file(&passed));
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a FIFO");
    let program = program.env("LARIAT_PAUSE_AT", point).env("LARIAT_PAUSE_ON", &fifo);
    let child = sandbox.spawn(&program.env("LARIAT_POINTS", &passed));
    wait_until(point, DEADLINE, || {
        assert!(child.exit().is_none(), "it never came to {point}: {} {}", child.stdout(), child.stderr());
        fs::read_to_string(&passed).is_ok_and(|p| p.lines().any(|l| l == point))
    });
    Held { child, fifo }
}

impl Held {
    /// Lets it go on, to its end.
    pub fn go_on(self) -> (i32, Value) {
        let gate = fs::OpenOptions::new().write(true).open(&self.fifo).expect("it waits");
        fs::remove_file(&self.fifo).expect("it waits only once");
        drop(gate);
        let output = self.child.output(DEADLINE);
        let last = output.stdout.lines().last().unwrap_or("null").to_owned();
        (output.code(), serde_json::from_str(&last).unwrap_or_else(|e| panic!("{e}: {output:?}")))
    }
}

/// Makes edits of every kind.
fn edit(sandbox: &Sandbox, top: &Path) {
    let git = |args: &[&str]| sandbox.git(top, args);
    put(&top.join("README.md"), "staged\n");
    git(&["add", "README.md"]);
    put(&top.join("README.md"), "staged, then changed\n");
    put(&top.join("new/staged"), "new\n");
    git(&["add", "new/staged"]);
    put(&top.join("new/untracked with space"), "loose\n");
    put(&top.join(OsStr::from_bytes(b"odd \n\xff\"\\ name")), b"\x00\xff binary \r\n");
    put(&top.join("run.sh"), "#!/bin/sh\n");
    fs::set_permissions(top.join("run.sh"), fs::Permissions::from_mode(0o755)).expect("a mode");
    symlink("nowhere/at all", top.join("link")).expect("a link");
    fs::remove_file(top.join("gone")).expect("a tracked file");
    git(&["rm", "--quiet", "--cached", "dropped"]);
    put(&top.join("ita"), "intended\n");
    git(&["add", "--intent-to-add", "ita"]);
    put(&top.join("assumed"), "changed although assumed unchanged\n");
    git(&["update-index", "--assume-unchanged", "assumed"]);
    put(&top.join("crlf.txt"), "one\r\ntwo\r\nthree\n");
    put(&top.join("big"), vec![7u8; 20 << 20]);
    put(&top.join("ignored.log"), "ignored\n");
    put(&top.join("excluded"), "excluded by info/exclude\n");
}

fn prepare(sandbox: &Sandbox) -> PathBuf {
    let repo = sandbox.work();
    for name in ["gone", "dropped", "assumed"] {
        put(&repo.join(name), format!("{name}\n"));
    }
    put(&repo.join("crlf.txt"), "one\ntwo\n");
    put(&repo.join(".gitignore"), "*.log\n.env\n");
    put(&repo.join(".gitattributes"), "crlf.txt text eol=crlf\n");
    sandbox.git(&repo, &["add", "."]);
    sandbox.git(&repo, &["commit", "--quiet", "--message", "Second"]);
    put(&repo.join(".git/info/exclude"), "excluded\n");
    repo
}

#[test]
fn a_launch_gets_a_checkout_of_its_own() {
    let sandbox = with_agent("wtlaunch");
    let repo = prepare(&sandbox);
    put(&repo.join(".env"), "KEY=made-up\n");
    put(&repo.join("deep/.env"), "KEY=deep\n");
    put(&repo.join("other.log"), "not named\n");
    put(&repo.join(".worktreeinclude"), ".env\n");
    let main = ask(&sandbox, &["launch", "claude", "--json"]);
    assert_eq!(main.code(), 0, "{}", main.stderr);
    let refused = ask(&sandbox, &["launch", "claude"]);
    assert_eq!(refused.code(), 3);
    assert!(refused.stderr.contains("--worktree"), "{}", refused.stderr);

    let one = launch(&sandbox, &["--worktree", "--setup", "pwd; echo done > made-by-setup"]);
    assert_eq!(one.path, repo.with_file_name("proj.worktrees").join(&one.handle));
    let process = sandbox.processes().into_iter().find(|p| p.pid == one.pid).expect("it lives");
    let stands = fs::read_link(format!("/proc/{}/cwd", process.outside)).expect("it lives");
    assert_eq!(stands, one.path);
    assert_eq!(sandbox.git(&one.path, &["branch", "--show-current"]).trim(), format!("lariat/{}", one.handle));
    assert_eq!(fs::read(one.path.join(".env")).expect("copied"), b"KEY=made-up\n");
    assert_eq!(fs::read(one.path.join("deep/.env")).expect("copied"), b"KEY=deep\n");
    assert!(!one.path.join("other.log").exists() && one.path.join("made-by-setup").exists());
    let two = launch(&sandbox, &["--worktree", "feature/x", "--base", "HEAD~1"]);
    assert!(!two.path.join("gone").exists(), "it began one commit earlier");

    let rows = ask(&sandbox, &["worktree", "ls", "--json"]).json();
    let row = |one: &Launched| {
        let rows = rows["worktrees"].as_array().expect("rows").clone();
        rows.into_iter()
            .find(|r| r["handle"] == one.handle)
            .unwrap_or_else(|| panic!("no row: {one:?}", one = one.path))
    };
    assert_eq!(row(&two)["branch"], "feature/x");
    assert_eq!((&row(&one)["dirty"], &row(&two)["dirty"]), (&true.into(), &false.into()), "{rows:#}");
    assert!(row(&one)["in_use"][0].as_str().expect("text").contains(&one.handle), "{rows:#}");
    assert!(row(&one)["size"].as_u64().expect("a size") > 0);
    let told = ask(&sandbox, &["worktree", "ls"]).stdout;
    assert!(told.contains("feature/x") && told.contains(&one.handle), "{told}");
    // A branch that somebody has is not taken away from them.
    for (branch, word) in [("main", "checked out"), ("feature/x", "in use")] {
        let refused = ask(&sandbox, &["launch", "claude", "--worktree", branch]);
        assert_eq!(refused.code(), 3, "{}", refused.stderr);
        assert!(refused.stderr.contains(word), "{}", refused.stderr);
    }
    for wrong in [&["--worktree", "a..b"][..], &["--worktree", "n", "--base", "nowhere"], &["--worktree", "-x"]] {
        assert_eq!(ask(&sandbox, &[&["launch", "claude"], wrong].concat()).code(), 2, "{wrong:?}");
    }
    let outside = ask(&sandbox, &["launch", "claude", "--cwd", "/", "--worktree"]);
    assert_eq!(outside.code(), 2, "{}", outside.stderr);
    assert_eq!(list(&sandbox).sessions().len(), 3);
}

#[test]
fn a_setup_that_fails_undoes_all_and_keeps_what_it_said() {
    let sandbox = with_agent("wtsetup");
    let repo = sandbox.work();
    let failed = ask(&sandbox, &["launch", "claude", "--worktree", "x", "--setup", "echo the disk is full; exit 7"]);
    assert_eq!(failed.code(), 1);
    assert!(failed.stderr.contains("the disk is full") && failed.stderr.contains('7'), "{}", failed.stderr);
    let log = failed.stderr.split(" is in ").nth(1).and_then(|s| s.lines().next()).expect("where it is");
    assert_eq!(fs::read_to_string(log.trim()).expect("what it said"), "the disk is full\n");
    assert!(!repo.with_file_name("proj.worktrees").exists());
    assert_eq!(sandbox.git(&repo, &["worktree", "list"]).lines().count(), 1);
    assert_eq!(sandbox.git(&repo, &["branch", "--list"]).lines().count(), 1);
    assert!(list(&sandbox).sessions().is_empty());
}

#[test]
fn s31_every_edit_is_identical_after_teardown_and_restore() {
    let sandbox = with_agent("s31");
    let repo = prepare(&sandbox);
    let one = launch(&sandbox, &["--worktree"]);
    edit(&sandbox, &one.path);
    let mut before = tree(&one.path);
    let told = index(&sandbox, &one.path);
    end(&sandbox, &one);
    let (code, removed) = clean(&sandbox, &[&one.handle, "--force"]);
    assert_eq!((code, &removed["outcome"]), (0, &"removed".into()), "{removed:#}");
    assert!(!one.path.exists());
    let ignored: Vec<&str> = removed["ignored"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(ignored, ["excluded", "ignored.log"]);
    let name = format!("refs/lariat/saved/{}/1", one.handle);
    assert_eq!((removed["saved"].as_str(), saved(&sandbox, &repo)), (Some(name.as_str()), vec![name.clone()]));
    // Its parents: where it was, and the index.
    let parents = sandbox.git(&repo, &["rev-list", "--parents", "-n1", &name]);
    let parents: Vec<&str> = parents.split_whitespace().collect();
    assert_eq!(parents[1], sandbox.git(&repo, &["rev-parse", "HEAD"]).trim());
    let staged = sandbox.git(&repo, &["cat-file", "blob", &format!("{}:README.md", parents[2])]);
    assert_eq!(staged, "staged\n");

    let applied = ask(&sandbox, &["worktree", "apply", &one.handle, "--json"]);
    assert_eq!(applied.code(), 0, "{}", applied.stderr);
    before.remove(Path::new("ignored.log"));
    before.remove(Path::new("excluded"));
    let after = tree(&one.path);
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    for (path, content) in &before {
        assert!(after[path] == *content, "{} differs", path.display());
    }
    assert_eq!(index(&sandbox, &one.path), told);
    assert!(saved(&sandbox, &repo).is_empty(), "it was given back");
    // And again: it is a worktree of ours as before.
    let (code, removed) = clean(&sandbox, &[&one.handle, "--force"]);
    assert_eq!((code, &removed["outcome"]), (0, &"removed".into()), "{removed:#}");
}

#[test]
fn s33_work_in_conflict_stays_saved_until_it_was_applied() {
    let sandbox = with_agent("s33");
    let repo = sandbox.work();
    let one = launch(&sandbox, &["--worktree"]);
    put(&one.path.join("README.md"), "theirs\n");
    put(&one.path.join("more"), "more\n");
    end(&sandbox, &one);
    assert_eq!(clean(&sandbox, &[&one.handle, "--force"]).0, 0);
    let name = format!("refs/lariat/saved/{}/1", one.handle);
    let into = repo.to_str().expect("UTF-8");
    let refused = |why: &str| {
        let before = tree(&repo);
        let told = ask(&sandbox, &["worktree", "apply", &one.handle, "--into", into]);
        assert_eq!(told.code(), 3, "{}", told.stderr);
        assert!(told.stderr.contains(why) && told.stderr.contains(&name), "{}", told.stderr);
        assert!(tree(&repo) == before, "nothing was touched");
        assert_eq!(saved(&sandbox, &repo), [name.as_str()]);
    };
    let gone = ask(&sandbox, &["resume", &one.handle]);
    let next = format!("`lariat worktree apply {}`", one.handle);
    assert!(gone.code() == 2 && gone.stderr.contains(&next), "{gone:?}");
    let bare = sandbox.home();
    let bare = bare.to_str().expect("UTF-8");
    let target = format!("{}/1", one.handle);
    for target in [&one.handle, &target, "nobody"] {
        let told = ask(&sandbox, &["worktree", "apply", target, "--into", bare]);
        assert!(told.code() == 2 && told.stderr.contains("is no checkout"), "{target}: {told:?}");
        assert!(!told.stderr.contains("fatal"), "git's own words: {told:?}");
    }
    let nowhere = ask(&sandbox, &["worktree", "apply", &one.handle, "--into", "nowhere"]);
    assert_eq!(nowhere.code(), 2, "{}", nowhere.stderr);
    assert!(nowhere.stderr.contains("nowhere is not a directory"), "{}", nowhere.stderr);
    put(&repo.join("README.md"), "ours\n");
    refused("changes of its own (1 changed)"); // git's own files are none of it
    sandbox.git(&repo, &["commit", "--quiet", "--all", "--message", "Ours"]);
    refused("conflict");
    sandbox.git(&repo, &["reset", "--quiet", "--hard", "HEAD~1"]);
    put(&repo.join("more"), "in the way\n");
    refused("overwritten");
    fs::remove_file(repo.join("more")).expect("out of the way");
    // Another commit that is not in conflict: it is merged.
    put(&repo.join("else"), "else\n");
    sandbox.git(&repo, &["add", "else"]);
    sandbox.git(&repo, &["commit", "--quiet", "--message", "Else"]);
    let told = ask(&sandbox, &["worktree", "apply", &format!("{}/1", one.handle), "--into", into, "--json"]);
    assert_eq!((told.code(), &told.json()["merged"]), (0, &true.into()), "{}", told.stderr);
    let now = tree(&repo);
    let content = |path: &str| now[Path::new(path)].1.clone();
    assert_eq!(
        (content("README.md"), content("more"), content("else")),
        (b"theirs\n".into(), b"more\n".into(), b"else\n".into())
    );
    assert!(saved(&sandbox, &repo).is_empty());
    assert_eq!(ask(&sandbox, &["worktree", "apply", &one.handle]).code(), 2, "there is nothing more");
}

/// A plan says what would be done, by `--force` too, and does nothing.
#[test]
fn a_plan_by_force_says_what_force_does() {
    let sandbox = with_agent("plan-force");
    prepare(&sandbox);
    let session = launch(&sandbox, &["--worktree"]);
    let in_use = clean(&sandbox, &[&session.handle, "--force", "--dry-run"]);
    assert_eq!((in_use.0, &in_use.1["outcome"]), (3, &json!("preserved")), "{:#}", in_use.1);
    end(&sandbox, &session);
    fs::write(session.path.join("new"), "untracked").expect("a file");
    let (code, told) = clean(&sandbox, &[&session.handle, "--force", "--dry-run"]);
    assert_eq!((code, &told["outcome"]), (0, &json!("would remove")), "{told:#}");
    assert!(told["reason"].as_str().expect("why").contains("saved first"), "{told:#}");
    assert!(session.path.join("new").exists());
    assert_eq!(clean(&sandbox, &[&session.handle, "--dry-run"]).0, 3);
}

#[test]
fn s34_what_is_dirty_unpushed_or_in_use_is_skipped_with_the_reason() {
    let sandbox = with_agent("s34");
    let repo = prepare(&sandbox);
    let session = launch(&sandbox, &["--worktree"]);
    let (code, told) = clean(&sandbox, &[&session.handle, "--force"]);
    assert_eq!(code, 3, "{told:#}");
    assert!(told["reason"].as_str().expect("why").contains("works in it"), "{told:#}");
    end(&sandbox, &session);

    let reason = |args: &[&str], why: &str| {
        let plan = clean(&sandbox, &[args, &["--dry-run"]].concat());
        let (code, told) = clean(&sandbox, args);
        for told in [&plan.1, &told] {
            assert_eq!(told["outcome"], "preserved", "{told:#}");
            assert!(told["reason"].as_str().expect("why").contains(why), "{told:#}");
        }
        assert_eq!(code, 3);
        assert!(session.path.join("README.md").exists());
        // Of all, what may not go is skipped, and that is no failure.
        assert_eq!(clean(&sandbox, &[]).0, 0);
        assert!(session.path.join("README.md").exists());
    };
    let one: &[&str] = &[&session.handle];
    let forced: &[&str] = &[&session.handle, "--force"];
    let git = |args: &[&str]| sandbox.git(&session.path, args);

    let editor = sandbox.lookalike("editor", &[]);
    editor.tell(&format!("chdir {}", session.path.display()));
    reason(forced, "editor");
    editor.tell("chdir /");
    editor.tell(&format!("open {}", session.path.join("crlf.txt").display()));
    reason(forced, "has a file of it open");
    editor.tell("close");

    put(&session.path.join("loose"), "1\n");
    reason(one, "1 untracked");
    git(&["add", "loose"]);
    reason(one, "1 staged");
    git(&["commit", "--quiet", "--message", "Mine"]);
    reason(one, "1 commits are neither pushed nor in another branch");
    git(&["push", "--quiet", ".", "HEAD:refs/remotes/origin/mine"]);
    put(&session.path.join("assumed"), "hidden\n");
    git(&["update-index", "--assume-unchanged", "assumed"]);
    reason(one, "1 changed");
    git(&["update-index", "--no-assume-unchanged", "assumed"]);
    git(&["checkout", "--quiet", "--", "assumed"]);
    git(&["worktree", "lock", "--reason", "mine", "."]);
    reason(forced, "lock");
    git(&["worktree", "unlock", "."]);
    fs::create_dir_all(session.path.join("inner")).expect("a folder");
    sandbox.git(&session.path.join("inner"), &["init", "--quiet"]);
    put(&session.path.join("inner/file"), "in a repository of its own\n");
    reason(forced, "inner is a repository of its own");
    fs::remove_dir_all(session.path.join("inner")).expect("moved away");
    git(&["checkout", "--quiet", "-b", "side", "HEAD~1"]);
    put(&session.path.join("loose"), "2\n");
    git(&["add", "loose"]);
    git(&["commit", "--quiet", "--message", "Side"]);
    let merge = sandbox.program("git").cwd(&session.path).args(["merge", "origin/mine"]);
    assert!(!sandbox.world().run(&merge).exit.success(), "a conflict");
    reason(forced, "a merge is not finished");
    git(&["merge", "--abort"]);
    git(&["checkout", "--quiet", "--detach"]);
    git(&["branch", "--quiet", "-D", "side"]);
    reason(one, "1 commits are neither pushed");
    let (code, told) = clean(&sandbox, forced);
    assert_eq!((code, &told["outcome"]), (0, &"removed".into()), "{told:#}");
    let name = told["saved"].as_str().expect("the commits of a detached HEAD are kept");
    assert_eq!(sandbox.git(&repo, &["cat-file", "blob", &format!("{name}:loose")]), "2\n");
    assert_eq!(sandbox.git(&repo, &["log", "-1", "--format=%s", &format!("{name}^")]).trim(), "Side");
    // One that is clean and merged goes without force, with the branch that got no commit.
    let two = launch(&sandbox, &["--worktree", "brief"]);
    put(&two.path.join("ignored.log"), "1\n");
    end(&sandbox, &two);
    let (code, told) = clean(&sandbox, &[]);
    assert_eq!(
        (code, &told["outcome"], &told["ignored"][0]),
        (0, &"removed".into(), &"ignored.log".into()),
        "{told:#}"
    );
    assert!(!two.path.exists() && sandbox.git(&repo, &["branch", "--list", "brief"]).is_empty());
    assert_eq!(clean(&sandbox, &["no-such"]).0, 2);
}

#[test]
fn s22_a_kill_that_cannot_remove_the_worktree_says_that_it_is_preserved() {
    let sandbox = with_agent("s22");
    let one = launch(&sandbox, &["--worktree"]);
    put(&one.path.join("loose"), "1\n");
    let killed = ask(&sandbox, &["kill", &one.handle, "--clean", "--json"]);
    let told = killed.json();
    assert_eq!((&told["outcome"], &told["worktree"]["outcome"]), (&"stopped".into(), &"preserved".into()), "{told:#}");
    assert!(told["worktree"]["reason"].as_str().expect("why").contains("1 untracked"), "{told:#}");
    assert_eq!(killed.code(), 3);
    list(&sandbox).expect(&one.id, "stopped", None);
    assert!(one.path.join("loose").exists());
    // Without being asked, an end touches no worktree; asked, it removes what is clean.
    let two = launch(&sandbox, &["--worktree"]);
    let killed = ask(&sandbox, &["kill", &two.handle, "--json"]);
    assert_eq!(killed.code(), 0);
    assert!(killed.json().get("worktree").is_none() && two.path.exists());
    let three = launch(&sandbox, &["--worktree"]);
    let killed = ask(&sandbox, &["kill", &three.handle, "--clean", "--json"]);
    assert_eq!((killed.code(), &killed.json()["worktree"]["outcome"]), (0, &"removed".into()), "{killed:?}");
    assert!(!three.path.exists());
}

#[test]
fn commits_that_only_the_log_knows_are_kept() {
    let sandbox = with_agent("wtlog");
    let repo = sandbox.work();
    let one = launch(&sandbox, &["--worktree"]);
    put(&one.path.join("tried"), "and thrown away\n");
    sandbox.git(&one.path, &["add", "."]);
    sandbox.git(&one.path, &["commit", "--quiet", "--message", "Tried"]);
    sandbox.git(&one.path, &["reset", "--quiet", "--hard", "HEAD~1"]);
    end(&sandbox, &one);
    let (code, told) = clean(&sandbox, &[&one.handle]);
    assert_eq!((code, &told["outcome"], &told["left_behind"]), (0, &"removed".into(), &1.into()), "{told:#}");
    let name = format!("refs/lariat/left/{}/1:tried", one.handle);
    assert_eq!(sandbox.git(&repo, &["cat-file", "blob", &name]), "and thrown away\n");
}

#[test]
fn a_line_of_work_is_gone_on_with_where_it_was_left() {
    let sandbox = with_agent("wtagain");
    let repo = sandbox.work();
    let one = launch(&sandbox, &["--worktree", "x"]);
    put(&one.path.join("loose"), "1\n");
    end(&sandbox, &one);
    let two = launch(&sandbox, &["--worktree", "x"]);
    assert_eq!((two.path.clone(), two.path.join("loose").exists()), (one.path.clone(), true));
    assert_ne!(two.handle, one.handle, "another session");
    end(&sandbox, &two);
    // Another directory in its place is not touched, whoever put it there.
    let away = one.path.with_file_name("away");
    fs::rename(&one.path, &away).expect("moved away");
    put(&one.path.join("precious"), "1\n");
    let (code, told) = clean(&sandbox, &[&one.handle, "--force"]);
    assert_eq!((code, &told["outcome"]), (3, &"preserved".into()), "{told:#}");
    assert!(one.path.join("precious").exists() && away.join("loose").exists());
    fs::remove_dir_all(&one.path).expect("the other");
    fs::remove_dir_all(&away).expect("the worktree");
    // What a person removed is made anew.
    let three = launch(&sandbox, &["--worktree", "x"]);
    assert_eq!(sandbox.git(&three.path, &["branch", "--show-current"]).trim(), "x");
    assert_eq!(sandbox.git(&repo, &["worktree", "list"]).lines().count(), 2);
}

/// Puts a folder on a file system of layers: there the kernel's list of locks names another device than the files do.
pub fn layer(sandbox: &Sandbox, folder: &Path) {
    let script = "mkdir -p $1 /tmp/l && mount -t tmpfs none /tmp/l && mkdir /tmp/l/u /tmp/l/w && \
                  mount -t overlay none -o lowerdir=$1,upperdir=/tmp/l/u,workdir=/tmp/l/w $1";
    sandbox.run(["sh", "-c", script, "sh", folder.to_str().expect("UTF-8")]).expect_success();
}

#[test]
fn what_is_being_made_or_launched_in_is_not_taken_for_something_that_nobody_needs() {
    for layered in [false, true] {
        let sandbox = with_agent("wttwo");
        if layered {
            layer(&sandbox, &sandbox.state_dir().join("lariat/worktrees"));
        }
        let order = ["launch", "claude", "--json", "--worktree", "x"];
        for point in ["worktree.copied", "worktree.ready"] {
            let held = hold(&sandbox, &order, point);
            let (code, told) = clean(&sandbox, &["x", "--force"]);
            assert_eq!((code, &told["outcome"]), (3, &"preserved".into()), "{point}: {told:#}");
            assert!(told["reason"].as_str().expect("why").contains("under way"), "{point}: {told:#}");
            // Meanwhile another one gets a worktree of its own, and the same branch is refused.
            let other = launch(&sandbox, &["--worktree"]);
            assert_eq!(ask(&sandbox, &order).code(), 3, "{point}");
            let (code, launched) = held.go_on();
            assert_eq!(code, 0, "{point}: {launched:#}");
            let path = launched["worktree"].as_str().expect("a path");
            assert_eq!(sandbox.git(Path::new(path), &["branch", "--show-current"]).trim(), "x", "{point}");
            for handle in [&other.handle, launched["handle"].as_str().expect("a handle")] {
                assert_eq!(ask(&sandbox, &["kill", handle, "--clean"]).code(), 0, "{point}");
            }
            assert!(!Path::new(path).exists(), "{point}");
        }
    }
}

#[test]
fn gc_removes_what_clean_would_and_shows_it_first() {
    let sandbox = with_agent("wtgc");
    let (one, two) = (launch(&sandbox, &["--worktree"]), launch(&sandbox, &["--worktree"]));
    put(&two.path.join("loose"), "1\n");
    assert_eq!(ask(&sandbox, &["kill", &one.handle, &two.handle]).code(), 0);
    let shims = || sandbox.processes().iter().filter(|p| p.comm.starts_with("lariat-")).count();
    wait_until("the shims are gone", DEADLINE, || shims() == 0);
    assert!(ask(&sandbox, &["gc"]).stdout.contains("Nothing"), "not yet");
    let plan = ask(&sandbox, &["gc", "--retain", "0s", "--json"]).json();
    let names = |told: &Value| -> Vec<String> {
        let all = told["worktrees"].as_array().expect("worktrees").clone();
        all.iter().filter_map(|w| w["handle"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(names(&plan), [one.handle.as_str()], "{plan:#}");
    assert!(one.path.exists(), "a plan does nothing");
    let done = ask(&sandbox, &["gc", "--retain", "0s", "--yes", "--json"]).json();
    assert_eq!(names(&done), [one.handle.as_str()]);
    assert!(!one.path.exists() && two.path.join("loose").exists());
}
