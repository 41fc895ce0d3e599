//! A hostile repository and every call that lariat makes: nothing of it is run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

struct Ground(PathBuf);

impl Ground {
    fn new(name: &str) -> Ground {
        let path = std::env::temp_dir().join(format!("lariat-git-{name}-{}", std::process::id()));
        let _ = remove(&path);
        fs::create_dir_all(&path).unwrap();
        Ground(path)
    }

    fn put(&self, path: &str, content: &str) -> PathBuf {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        #[expect(clippy::disallowed_methods, reason = "the test's own file")]
        fs::write(&path, content).unwrap();
        path
    }

    fn plain_git(&self, arguments: &[&str]) -> std::process::Output {
        #[expect(clippy::disallowed_methods, reason = "git as anybody runs it, to set the traps")]
        let mut git = Command::new("git");
        git.current_dir(self.0.join("repo")).args(arguments).env("HOME", &self.0).env("GIT_CONFIG_NOSYSTEM", "1");
        git.env("GIT_CONFIG_GLOBAL", self.0.join("none")).output().unwrap()
    }
}

fn remove(path: &Path) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "the test's own folder")]
    fs::remove_dir_all(path)
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = remove(&self.0);
    }
}

/// One call of each kind, as it is made.
fn samples(ground: &Ground) -> Vec<Vec<String>> {
    let worktree = ground.0.join("wt").display().to_string();
    let all = [
        "cat-file blob HEAD:file.txt".to_owned(),
        "check-ignore -z --stdin".into(),
        "check-ref-format --normalize refs/heads/x".into(),
        "config --list --show-scope --name-only -z".into(),
        "diff --no-ext-diff --no-textconv --no-color --ignore-submodules=all -M --patch HEAD --".into(),
        "fast-import --quiet --done --date-format=raw".into(),
        "for-each-ref --format=%(worktreepath) refs/heads/".into(),
        "ls-files -z --stage --debug".into(),
        "ls-tree -r -z --full-tree HEAD".into(),
        "merge-tree --write-tree --no-messages --name-only -z --merge-base=HEAD~1 left right".into(),
        "read-tree HEAD".into(),
        "rev-list --objects --quiet HEAD".into(),
        "rev-parse --verify --quiet HEAD^{commit}".into(),
        format!("worktree add --quiet --no-track -b x {worktree} HEAD"),
        format!("worktree remove --force {worktree}"),
        "update-ref -d refs/heads/x".into(),
        "ls-files -z --others --ignored --exclude-from=.gitattributes".into(),
    ];
    all.iter().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

/// Everything that a repository can name for git to run.
fn arm(ground: &Ground) -> PathBuf {
    let trace = ground.0.join("ran");
    let trap = ground.put("trap", &format!("#!/bin/sh\necho \"$*\" >> {}\ncat\n", trace.display()));
    let run = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    run(&trap);
    let trap = trap.display().to_string();
    let keys = [
        "core.fsmonitor",
        "core.pager",
        "core.editor",
        "core.sshCommand",
        "core.askPass",
        "core.gitProxy",
        "core.alternateRefsCommand",
        "credential.helper",
        "diff.external",
        "diff.trap.command",
        "diff.trap.textconv",
        "filter.trap.clean",
        "filter.trap.smudge",
        "filter.other.process",
        "merge.trap.driver",
        "gpg.program",
        "sequence.editor",
        "uploadpack.packObjectsHook",
        "interactive.diffFilter",
        "pager.ls-files",
        "pager.rev-list",
    ];
    for key in keys {
        assert!(ground.plain_git(&["config", key, &trap]).status.success(), "{key}");
    }
    ground.plain_git(&["config", "filter.trap.required", "true"]);
    ground.plain_git(&["config", "alias.ls-tree", &format!("!{trap}")]);
    for hook in ["post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc", "fsmonitor-watchman"] {
        let content = fs::read_to_string(ground.0.join("trap")).unwrap();
        run(&ground.put(&format!("repo/.git/hooks/{hook}"), &content));
    }
    trace
}

fn repository(name: &str) -> Ground {
    let ground = Ground::new(name);
    ground.put("repo/.gitattributes", "* filter=trap diff=trap merge=trap\n*.other filter=other\n");
    ground.put("repo/file.txt", "1\n");
    ground.put("repo/a.other", "1\n");
    let git = |args: &[&str]| {
        let named = ["-c", "user.name=a", "-c", "user.email=a@example.invalid"];
        let output = ground.plain_git(&[&named[..], args].concat());
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    git(&["init", "--quiet", "--initial-branch=main"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "1"]);
    git(&["commit", "--quiet", "--allow-empty", "-m", "2"]);
    for side in ["left", "right"] {
        git(&["checkout", "--quiet", "-b", side, "main~1"]);
        ground.put("repo/file.txt", &format!("{side}\n"));
        git(&["commit", "--quiet", "-a", "-m", side]);
    }
    git(&["checkout", "--quiet", "main"]);
    ground
}

#[test]
fn a_hostile_repository_runs_nothing_by_any_call() {
    let ground = repository("hostile");
    let trace = arm(&ground);
    ground.plain_git(&["status"]);
    assert!(trace.exists(), "the traps are set");
    let forget = || {
        #[expect(clippy::disallowed_methods, reason = "the test's own file")]
        let _ = fs::remove_file(&trace);
    };
    forget();
    let git = Git::within(&ground.0.join("repo"));
    let samples = samples(&ground);
    for call in CALLS {
        assert!(samples.iter().any(|s| s[0] == call), "no sample of `git {call}`");
    }
    for sample in &samples {
        // As if everything had been touched, so that git must look at content.
        ground.put("repo/file.txt", "1\n");
        let mut feed = |to: &mut dyn Write| to.write_all(if sample[0] == "fast-import" { b"done\n" } else { b"./x\0" });
        let reads = matches!(sample[0].as_str(), "fast-import" | "check-ignore");
        let told = git.run(sample, reads.then_some(&mut feed as Feed<'_>), PATIENCE).unwrap();
        // A merge in conflict and a path that is not ignored tell 1; nothing may be refused.
        assert!(matches!(told.status.code(), Some(0 | 1)), "{sample:?}: {}", told.stderr);
        assert!(!trace.exists(), "git {sample:?} ran {:?}", fs::read_to_string(&trace));
    }
    assert!(git.ask(&["status"]).is_err(), "a call that is not on the list");
}

#[test]
fn a_call_that_hangs_is_ended_with_all_that_it_started() {
    #[expect(clippy::disallowed_methods, reason = "the test's own child")]
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 1000 & sleep 1000"]).stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    spawn::end_with_us(&mut command);
    let told = run_bounded(&mut command, None, Duration::from_millis(100), Most::Refuse, "sleep");
    // That it returns at all shows that nobody holds its pipes any more.
    assert!(matches!(told, Err(GitError::Late(..))), "{told:?}");
}

#[test]
fn a_filter_whose_name_cannot_be_said_stops_the_call() {
    let ground = repository("unsayable");
    ground.plain_git(&["config", "filter.a=b.smudge", "true"]);
    let git = Git::within(&ground.0.join("repo"));
    let told = git.act(&["worktree", "list"]);
    assert!(matches!(&told, Err(GitError::Odd(_, why)) if why.contains("a=b")), "{told:?}");
    assert!(git.ask(&["rev-parse", "HEAD"]).is_ok(), "what checks nothing out goes on");
}
