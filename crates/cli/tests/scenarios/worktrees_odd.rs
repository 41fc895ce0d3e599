//! Worktrees of odd repositories: submodules, sparse checkouts, bare ones, no commit yet, names
//! that are none, conflicts, filters; and hostile ones, which run nothing (row 13).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use lariat_testkit::{Sandbox, copy_program, put_program};

use crate::asking::{ask, list};
use crate::worktrees::{clean, end, index, launch, put, saved, tree, with_agent};

fn at(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn commit(sandbox: &Sandbox, repo: &Path) {
    sandbox.git(repo, &["add", "--all"]);
    sandbox.git(repo, &["commit", "--quiet", "--message", "More"]);
}

#[test]
fn a_submodule_is_not_broken_and_goes_only_if_it_is_pushed() {
    let sandbox = with_agent("wtsub");
    let (repo, library) = (sandbox.work(), sandbox.project("library"));
    let local = ["-c", "protocol.file.allow=always"];
    sandbox.git(&repo, &[&local[..], &["submodule", "--quiet", "add", at(&library), "lib"]].concat());
    commit(&sandbox, &repo);
    let one = launch(&sandbox, &["--worktree"]);
    sandbox.git(&one.path, &[&local[..], &["submodule", "--quiet", "update", "--init"]].concat());
    let lib = one.path.join("lib");
    assert!(lib.join("README.md").exists());
    end(&sandbox, &one);
    put(&lib.join("loose"), "1\n");
    let (code, told) = clean(&sandbox, &[&one.handle, "--force"]);
    assert_eq!(code, 3, "{told:#}");
    assert!(told["reason"].as_str().expect("why").contains("lib in it holds work"), "{told:#}");
    commit(&sandbox, &lib);
    let (code, told) = clean(&sandbox, &[&one.handle, "--force"]);
    assert_eq!(code, 3, "{told:#}");
    assert!(told["reason"].as_str().expect("why").contains("pushed nowhere"), "{told:#}");
    sandbox.git(&lib, &[&local[..], &["push", "--quiet", "origin", "HEAD:refs/heads/new"]].concat());
    sandbox.git(&lib, &[&local[..], &["fetch", "--quiet"]].concat());
    let (code, told) = clean(&sandbox, &[&one.handle, "--force"]);
    assert_eq!((code, &told["outcome"]), (0, &"removed".into()), "{told:#}");
    assert!(!one.path.exists() && repo.join("lib/README.md").exists());
    assert_eq!(sandbox.git(&repo, &["status", "--porcelain"]), "");
}

#[test]
fn a_sparse_checkout_stays_sparse_and_lacks_nothing_afterwards() {
    let sandbox = with_agent("wtsparse");
    let repo = sandbox.work();
    put(&repo.join("in/file"), "in\n");
    put(&repo.join("out/file"), "out\n");
    commit(&sandbox, &repo);
    sandbox.git(&repo, &["sparse-checkout", "set", "in"]);
    let one = launch(&sandbox, &["--worktree"]);
    assert!(one.path.join("in/file").exists() && !one.path.join("out").exists());
    put(&one.path.join("in/file"), "changed\n");
    let (before, told) = (tree(&one.path), index(&sandbox, &one.path));
    end(&sandbox, &one);
    assert_eq!(clean(&sandbox, &[&one.handle, "--force"]).0, 0);
    let name = &saved(&sandbox, &repo)[0];
    assert_eq!(sandbox.git(&repo, &["cat-file", "blob", &format!("{name}:out/file")]), "out\n");
    let applied = ask(&sandbox, &["worktree", "apply", &one.handle]);
    assert_eq!(applied.code(), 0, "{}", applied.stderr);
    // The index is what it was, so that what it leaves out is left out as before.
    assert_eq!(index(&sandbox, &one.path), told);
    assert!(before.iter().all(|(path, content)| tree(&one.path).get(path) == Some(content)));
    assert_eq!(sandbox.git(&one.path, &["status", "--porcelain"]).trim(), "M in/file");
}

#[test]
fn a_bare_repository_one_without_a_commit_and_one_of_an_odd_name() {
    let sandbox = with_agent("wtbare");
    let bare = sandbox.home().join("work/store.git");
    sandbox.git(&sandbox.work(), &["clone", "--quiet", "--bare", ".", at(&bare)]);
    let one = launch(&sandbox, &["--cwd", at(&bare), "--worktree"]);
    assert_eq!(one.path, sandbox.home().join("work/store.worktrees").join(&one.handle));
    put(&one.path.join("loose"), "1\n");
    end(&sandbox, &one);
    assert_eq!(clean(&sandbox, &[&one.handle, "--force"]).0, 0);
    assert_eq!(ask(&sandbox, &["worktree", "apply", &one.handle]).code(), 0);
    assert!(one.path.join("loose").exists());

    let empty = sandbox.home().join("work/empty");
    fs::create_dir_all(&empty).expect("a folder");
    sandbox.git(&empty, &["init", "--quiet"]);
    let refused = ask(&sandbox, &["launch", "claude", "--cwd", at(&empty), "--worktree"]);
    assert_eq!(refused.code(), 2);
    assert!(refused.stderr.contains("no commit yet"), "{}", refused.stderr);

    let long = sandbox.home().join("work/long");
    fs::create_dir_all(&long).expect("a folder");
    sandbox.git(&long, &["init", "--quiet", "--object-format=sha256"]);
    put(&long.join("file"), "1\n");
    commit(&sandbox, &long);
    let three = launch(&sandbox, &["--cwd", at(&long), "--worktree"]);
    put(&three.path.join("loose"), "1\n");
    end(&sandbox, &three);
    let (code, told) = clean(&sandbox, &[&three.handle, "--force"]);
    assert_eq!(code, 0, "{told:#}");
    assert_eq!(ask(&sandbox, &["worktree", "apply", &three.handle]).code(), 0);
    assert!(three.path.join("loose").exists());

    let odd = sandbox.project("an odd\nname");
    fs::create_dir_all(odd.join("deep/er")).expect("a folder");
    put(&odd.join("deep/er/file"), "1\n");
    commit(&sandbox, &odd);
    let two = launch(&sandbox, &["--cwd", at(&odd.join("deep/er")), "--worktree"]);
    let seen = list(&sandbox);
    assert_eq!(seen.session(&two.id)["cwd"], at(&two.path.join("deep/er")), "it starts where it was asked to");
    put(&two.path.join("deep/loose"), "1\n");
    end(&sandbox, &two);
    let (code, told) = clean(&sandbox, &[&two.handle, "--force"]);
    assert_eq!(code, 0, "{told:#}");
    assert_eq!(ask(&sandbox, &["worktree", "apply", &two.handle]).code(), 0);
    assert!(two.path.join("deep/loose").exists());
}

#[test]
fn a_branch_without_a_commit_and_an_index_in_conflict_are_saved_whole() {
    let sandbox = with_agent("wtorphan");
    let repo = sandbox.work();
    let one = launch(&sandbox, &["--worktree"]);
    let git = |args: &[&str]| sandbox.git(&one.path, args);
    git(&["commit", "--quiet", "--allow-empty", "--message", "Base"]);
    for side in ["left", "right"] {
        git(&["checkout", "--quiet", "-b", side, "HEAD"]);
        put(&one.path.join("README.md"), format!("{side}\n"));
        git(&["commit", "--quiet", "--all", "--message", side]);
        git(&["checkout", "--quiet", "-"]);
    }
    git(&["checkout", "--quiet", "left"]);
    let merge = sandbox.program("git").cwd(&one.path).args(["merge", "right"]);
    assert!(!sandbox.world().run(&merge).exit.success(), "a conflict");
    git(&["merge", "--quit"]);
    let (before, told) = (tree(&one.path), index(&sandbox, &one.path));
    assert!(told.0.contains(" 3\t"), "{told:?}");
    end(&sandbox, &one);
    let (code, removed) = clean(&sandbox, &[&one.handle, "--force"]);
    assert_eq!(code, 0, "{removed:#}");
    // Into a checkout of the branch that it was on.
    let other = sandbox.home().join("work/other");
    sandbox.git(&repo, &["worktree", "add", "--quiet", at(&other), "left"]);
    let applied = ask(&sandbox, &["worktree", "apply", &one.handle, "--into", at(&other)]);
    assert_eq!(applied.code(), 0, "{}", applied.stderr);
    assert!(tree(&other) == before);
    assert_eq!(index(&sandbox, &other), told);

    let two = launch(&sandbox, &["--worktree", "--force"]);
    sandbox.git(&two.path, &["checkout", "--quiet", "--orphan", "fresh"]);
    put(&two.path.join(":(glob)*"), "a name that looks like a pattern\n");
    end(&sandbox, &two);
    let (code, removed) = clean(&sandbox, &[&two.handle, "--force"]);
    assert_eq!(code, 0, "{removed:#}");
    let name = removed["saved"].as_str().expect("a name");
    let held = sandbox.git(&repo, &["ls-tree", "-r", "--name-only", name]);
    assert!(held.contains(":(glob)*") && held.contains("README.md"), "{held}");
}

#[test]
fn content_stays_what_it_is_whatever_filters_and_line_ends_say() {
    let sandbox = with_agent("wtfilter");
    let repo = sandbox.work();
    sandbox.git(&repo, &["config", "core.autocrlf", "true"]);
    sandbox.git(&repo, &["config", "filter.rot.clean", "tr a-z b-za"]);
    sandbox.git(&repo, &["config", "filter.rot.smudge", "tr b-za a-z"]);
    put(&repo.join(".gitattributes"), "*.rot filter=rot\n*.u16 working-tree-encoding=UTF-16\n");
    put(&repo.join("a.rot"), "hello\n");
    put(&repo.join("text"), "one\r\ntwo\r\n");
    commit(&sandbox, &repo);
    let one = launch(&sandbox, &["--worktree"]);
    put(&one.path.join("b.rot"), "secret\r\nmixed\n");
    put(&one.path.join("text"), "one\ntwo\r\n");
    put(&one.path.join("n.u16"), b"\xff\xfeh\x00i\x00");
    put(&one.path.join(OsStr::from_bytes(b"\xc3\x28")), "no UTF-8\n");
    let before = tree(&one.path);
    end(&sandbox, &one);
    let (code, told) = clean(&sandbox, &[&one.handle, "--force"]);
    assert_eq!(code, 0, "{told:#}");
    let applied = ask(&sandbox, &["worktree", "apply", &one.handle]);
    assert_eq!(applied.code(), 0, "{}", applied.stderr);
    assert!(tree(&one.path) == before);
    // Untouched files that git converts are not mistaken for work.
    let two = launch(&sandbox, &["--worktree"]);
    end(&sandbox, &two);
    sandbox.git(&repo, &["config", "core.autocrlf", "true"]);
    let (code, told) = clean(&sandbox, &[&two.handle]);
    assert_eq!((code, &told["outcome"]), (0, &"removed".into()), "{told:#}");
}

#[test]
fn s31_what_git_lfs_keeps_elsewhere_comes_back_too() {
    let sandbox = with_agent("wtlfs");
    let repo = sandbox.work();
    let large = |n: u8| vec![n; 100_000];
    sandbox.git(&repo, &["lfs", "install"]);
    put(&repo.join(".gitattributes"), "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    put(&repo.join("same.bin"), large(1));
    put(&repo.join("changed.bin"), large(2));
    commit(&sandbox, &repo);
    let one = launch(&sandbox, &["--worktree"]);
    assert_eq!(fs::read(one.path.join("same.bin")).expect("a file"), large(1), "the user's own filter ran");
    end(&sandbox, &one);
    let (code, told) = clean(&sandbox, &[&one.handle, "--dry-run"]);
    assert_eq!((code, &told["outcome"]), (0, &"would remove".into()), "nothing was changed: {told:#}");
    // Without its store, the files are here and nowhere else.
    let (store, aside) = (repo.join(".git/lfs/objects"), repo.join(".git/lfs/aside"));
    fs::rename(&store, &aside).expect("moved");
    let (_, told) = clean(&sandbox, &[&one.handle, "--dry-run"]);
    assert!(told["reason"].as_str().expect("why").contains("2 changed"), "{told:#}");
    fs::rename(&aside, &store).expect("moved back");
    put(&one.path.join("changed.bin"), large(3));
    let (_, told) = clean(&sandbox, &[&one.handle, "--dry-run"]);
    assert!(told["reason"].as_str().expect("why").contains("1 changed"), "{told:#}");
    put(&one.path.join("staged.bin"), large(4));
    sandbox.git(&one.path, &["add", "staged.bin"]);
    put(&one.path.join("untracked.bin"), large(5));
    let (before, staged) = (tree(&one.path), index(&sandbox, &one.path));
    let (code, told) = clean(&sandbox, &[&one.handle, "--force"]);
    assert_eq!(code, 0, "{told:#}");
    assert!(!one.path.exists());
    let applied = ask(&sandbox, &["worktree", "apply", &one.handle]);
    assert_eq!(applied.code(), 0, "{}", applied.stderr);
    assert!(tree(&one.path) == before);
    assert_eq!(index(&sandbox, &one.path), staged);
}

#[test]
fn a_worktree_is_apart_from_the_checkout_it_lies_in() {
    let sandbox = with_agent("wtapart");
    let repo = sandbox.work();
    let inner = repo.join(".worktrees/x");
    sandbox.git(&repo, &["worktree", "add", "--quiet", "-b", "x", inner.to_str().expect("UTF-8")]);
    fs::create_dir_all(inner.join("sub")).expect("a folder");
    fs::create_dir_all(repo.join("sub")).expect("a folder");
    let launch = |cwd: &Path| ask(&sandbox, &["launch", "claude", "--cwd", cwd.to_str().expect("UTF-8")]).code();
    assert_eq!(launch(&repo), 0);
    assert_eq!(launch(&repo.join("sub")), 3, "below it");
    assert_eq!(launch(&inner.join("sub")), 0, "a worktree below it is apart");
    assert_eq!(launch(&inner), 3, "above the one in the worktree");
    assert_eq!(launch(repo.parent().expect("a folder")), 3, "above all of them, and no checkout");
    // A folder that only says it is a worktree is none.
    put(&repo.join("fake/.git"), format!("gitdir: {}\n", repo.join(".git").display()));
    assert_eq!(launch(&repo.join("fake")), 3);
}

/// Everything that a repository can name for git to run, each of which leaves a trace.
fn arm(sandbox: &Sandbox, repo: &Path) -> std::path::PathBuf {
    let trace = sandbox.root().join("ran");
    let trap = sandbox.root().join("trap");
    put_program(&trap, format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat\nexit 0\n", trace.display()));
    let trap = at(&trap);
    for (key, value) in [
        ("core.fsmonitor", trap),
        ("core.pager", trap),
        ("core.editor", trap),
        ("core.sshCommand", trap),
        ("core.askPass", trap),
        ("core.alternateRefsCommand", trap),
        ("credential.helper", trap),
        ("diff.external", trap),
        ("diff.trap.command", trap),
        ("diff.trap.textconv", trap),
        ("filter.trap.clean", trap),
        ("filter.trap.smudge", trap),
        ("filter.trap.required", "true"),
        ("filter.trap two.process", trap),
        ("merge.trap.driver", trap),
        ("gpg.program", trap),
        ("commit.gpgSign", "true"),
        ("log.showSignature", "true"),
        ("sequence.editor", trap),
        ("submodule.recurse", "true"),
        ("alias.ls-files", &format!("!{trap}")),
        ("uploadpack.packObjectsHook", trap),
    ] {
        sandbox.git(repo, &["config", key, value]);
    }
    put(&repo.join(".git/info/attributes"), "*.txt filter=trap\\ two\n");
    let hooks = repo.join(".git/hooks");
    for hook in [
        "post-checkout",
        "pre-commit",
        "post-commit",
        "reference-transaction",
        "post-index-change",
        "fsmonitor-watchman",
        "post-merge",
        "pre-auto-gc",
        "post-rewrite",
    ] {
        copy_program(Path::new(trap), &hooks.join(hook));
    }
    trace
}

#[test]
fn a_hostile_repository_runs_nothing_by_any_verb() {
    let sandbox = with_agent("wthostile");
    let repo = sandbox.work();
    put(&repo.join(".gitattributes"), "* filter=trap diff=trap merge=trap\n*.txt filter=other\n");
    put(&repo.join("file.txt"), "1\n2\n3\n");
    commit(&sandbox, &repo);
    let trace = arm(&sandbox, &repo);
    // The trap works: git itself falls into it.
    let status = sandbox.program("git").cwd(&repo).args(["status"]);
    sandbox.world().run(&status);
    assert!(trace.exists(), "the traps are set");
    fs::remove_file(&trace).expect("a trace");
    let calm = |what: &str| assert!(!trace.exists(), "{what}: {}", fs::read_to_string(&trace).unwrap_or_default());

    let one = launch(&sandbox, &["--worktree"]);
    calm("launch");
    put(&one.path.join("file.txt"), "1\n2\n3\n4\n");
    put(&one.path.join("new"), "new\n");
    // Besides, the agent makes its `.git` lead to a repository of its own making.
    ask(&sandbox, &["worktree", "ls"]);
    calm("ls");
    assert_eq!(ask(&sandbox, &["worktree", "save", &one.handle]).code(), 0);
    calm("save");
    end(&sandbox, &one);
    let (code, told) = clean(&sandbox, &[&one.handle]);
    assert_eq!(code, 3, "{told:#}");
    calm("clean");
    let (code, told) = clean(&sandbox, &[&one.handle, "--force"]);
    assert_eq!(code, 0, "{told:#}");
    calm("clean --force");
    let applied = ask(&sandbox, &["worktree", "apply", &one.handle]);
    assert_eq!(applied.code(), 0, "{}", applied.stderr);
    calm("apply");
    // A merge, for which the repository has a driver.
    let quiet = [
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "filter.trap.clean=",
        "-c",
        "filter.trap.required=false",
        "-c",
        "filter.trap two.process=",
        "-c",
        "core.fsmonitor=false",
        "-c",
        "commit.gpgSign=false",
    ];
    put(&repo.join("file.txt"), "0\n1\n2\n3\n");
    sandbox.git(&repo, &[&quiet[..], &["commit", "--quiet", "--all", "--message", "Theirs"]].concat());
    drop(fs::remove_file(&trace));
    let into = ask(&sandbox, &["worktree", "apply", &format!("{}/1", one.handle), "--into", at(&repo)]);
    assert_eq!(into.code(), 3, "{}{}", into.stdout, into.stderr);
    calm("apply --into");
    ask(&sandbox, &["gc", "--retain", "0s", "--yes"]);
    calm("gc");
    let two = launch(&sandbox, &["--worktree", "x", "--setup", "true"]);
    let killed = ask(&sandbox, &["kill", &two.handle, "--clean"]);
    assert!([0, 3].contains(&killed.code()), "{}", killed.stderr);
    calm("kill --clean");
}

#[test]
fn a_git_file_that_leads_elsewhere_is_not_believed() {
    let sandbox = with_agent("wtgitfile");
    let one = launch(&sandbox, &["--worktree"]);
    put(&one.path.join("loose"), "1\n");
    let trap = sandbox.project("trap");
    let trace = arm(&sandbox, &trap);
    put(&one.path.join(".git"), format!("gitdir: {}\n", trap.join(".git").display()));
    end(&sandbox, &one);
    let (code, told) = clean(&sandbox, &[&one.handle, "--force"]);
    assert!(!trace.exists());
    assert_eq!((code, &told["outcome"]), (0, &"removed".into()), "{told:#}");
    let name = told["saved"].as_str().expect("a name");
    assert_eq!(sandbox.git(&sandbox.work(), &["cat-file", "blob", &format!("{name}:loose")]), "1\n");
    assert!(saved(&sandbox, &trap).is_empty());
}

#[test]
fn commits_on_no_branch_are_kept_when_their_work_is_given_back_to_a_branch() {
    let sandbox = with_agent("wtalone");
    let repo = sandbox.work();
    let one = launch(&sandbox, &["--worktree", "two"]);
    sandbox.git(&one.path, &["checkout", "--quiet", "--detach"]);
    put(&one.path.join("alone"), "on no branch\n");
    commit(&sandbox, &one.path);
    let alone = sandbox.git(&one.path, &["rev-parse", "HEAD"]);
    put(&one.path.join("loose"), "in no commit\n");
    end(&sandbox, &one);
    let (code, removed) = clean(&sandbox, &[&one.handle, "--force"]);
    assert_eq!((code, &removed["outcome"]), (0, &"removed".into()), "{removed:#}");
    let applied = ask(&sandbox, &["worktree", "apply", &one.handle, "--json"]);
    assert_eq!(applied.code(), 0, "{}", applied.stderr);
    assert_eq!(fs::read(one.path.join("loose")).expect("given back"), b"in no commit\n");
    let held = sandbox.git(&repo, &["rev-list", "--all"]);
    assert!(held.contains(alone.trim()), "its commit is lost: {}", applied.stdout);
    assert_eq!(applied.json()["left_behind"], 1, "{}", applied.stdout);
}

#[test]
fn a_git_that_was_killed_while_it_made_a_worktree_spoils_nothing() {
    let sandbox = with_agent("wtempty");
    let repo = sandbox.work();
    let one = launch(&sandbox, &["--worktree"]);
    put(&one.path.join("loose"), "in no commit\n");
    end(&sandbox, &one);
    put(&repo.join(".git/worktrees").join(&one.handle).join("commondir"), "");
    let two = launch(&sandbox, &["--worktree"]);
    assert_eq!(sandbox.git(&repo, &["worktree", "list"]).lines().count(), 3);
    end(&sandbox, &two);
    let (code, removed) = clean(&sandbox, &[&one.handle, "--force"]);
    assert_eq!((code, &removed["outcome"]), (0, &"removed".into()), "{removed:#}");
}
