//! What can be asked of the verbs that act: launch, talk to, end, bring back, lock, clean.

use std::time::Duration;

use clap::{Args, Subcommand};

#[derive(Args, Debug)]
pub struct Launch {
    /// The agent: claude, codex, opencode, pi, gemini, or acp:NAME or agent:NAME as the settings name it
    #[arg(value_name = "AGENT", required_unless_present = "matrix")]
    pub agent: Option<String>,
    /// Launch every combination of what this file lists (TOML or JSON: agents, models, prompts,
    /// prompt_files, cwd, count), each in a worktree of its own, in one group
    #[arg(long, value_name = "FILE")]
    pub matrix: Option<std::path::PathBuf>,
    /// Only show what --matrix would launch
    #[arg(short = 'n', long, requires = "matrix")]
    pub dry_run: bool,
    /// What to ask; '-' reads it from standard input
    #[arg(short, long, value_name = "PROMPT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// A file to put before the prompt
    #[arg(long, value_name = "FILE")]
    pub file: Vec<std::path::PathBuf>,
    /// Launch it on this host, by the lariat there: paths are those of there
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// A name for the session
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Where it works
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<std::path::PathBuf>,
    /// The model
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// The group it belongs to
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// A variable for its environment
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Give it a checkout of its own beside the repository, on this branch (lariat/HANDLE unless
    /// told); ignored files that .worktreeinclude names are copied
    #[arg(long, value_name = "BRANCH", num_args = 0..=1, default_missing_value = "")]
    pub worktree: Option<String>,
    /// Where the new branch begins, instead of where the directory stands
    #[arg(long, value_name = "REF", requires = "worktree")]
    pub base: Option<String>,
    /// A command to run in the new worktree before the agent starts
    #[arg(long, value_name = "CMD", requires = "worktree")]
    pub setup: Option<String>,
    /// One prompt, structured output, no terminal
    #[arg(long)]
    pub headless: bool,
    /// Hold what it asks for `approve`, `deny` and `answer`, though it has no terminal
    #[arg(long, requires = "headless")]
    pub ask: bool,
    /// A command to run once it is launched, with LARIAT_ID and more in its environment
    #[arg(long, value_name = "COMMAND")]
    pub on_launch: Option<String>,
    /// A command to run once it has ended, with LARIAT_ID, LARIAT_STATUS and more in its environment
    #[arg(long, value_name = "COMMAND")]
    pub on_exit: Option<String>,
    /// How many launched sessions may run at once (of the group, with --group)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max: Option<u32>,
    /// Wait while as many run as may, by --max or by the settings
    #[arg(long)]
    pub queue: bool,
    /// Bring it back after a crash or reboot without asking
    #[arg(long)]
    pub keep: bool,
    /// Go ahead even if another agent works in that directory
    #[arg(long)]
    pub force: bool,
    /// Further arguments for the agent
    #[arg(last = true, value_name = "AGENT FLAGS")]
    pub arguments: Vec<String>,
}

#[derive(Args, Debug)]
pub struct Approve {
    /// The session
    #[arg(value_name = "TARGET")]
    pub target: String,
    #[command(flatten)]
    pub which: Which,
}

#[derive(Args, Debug)]
pub struct Deny {
    /// The session
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// Why, for the agent to read
    #[arg(value_name = "REASON")]
    pub reason: Vec<String>,
    #[command(flatten)]
    pub which: Which,
}

#[derive(Args, Debug)]
pub struct Answer {
    /// The session
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// The answers, one for each question
    #[arg(value_name = "ANSWER", required = true)]
    pub answers: Vec<String>,
    #[command(flatten)]
    pub which: Which,
}

#[derive(Args, Debug)]
pub struct Which {
    /// Only if this is what it asks, as `status` shows it; else nothing is answered
    #[arg(long, value_name = "REASON")]
    pub expect: Option<String>,
    /// Which of several requests, counted from 1, longest waiting first
    #[arg(long, value_name = "N")]
    pub request: Option<usize>,
    /// How long the session may take to go on
    #[arg(long, value_name = "TIME", value_parser = lariat_core::time::duration, default_value = "15s")]
    pub timeout: Duration,
}

#[derive(Args, Debug)]
pub struct Resume {
    /// The session
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// What to say to it; '-' reads it from standard input
    #[arg(value_name = "MESSAGE")]
    pub message: Vec<String>,
    /// Without a terminal
    #[arg(long, conflicts_with = "terminal")]
    pub headless: bool,
    /// With a terminal, though it had none
    #[arg(long)]
    pub terminal: bool,
    /// A variable for its environment
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Go ahead even if another agent works in that directory
    #[arg(long)]
    pub force: bool,
    /// Further arguments for the agent
    #[arg(last = true, value_name = "AGENT FLAGS")]
    pub arguments: Vec<String>,
}

#[derive(Args, Debug)]
pub struct Restore {
    /// Carry the plan out
    #[arg(long)]
    pub yes: bool,
    /// How many launched sessions may run at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max: Option<u32>,
    /// Act on this host's sessions, through its own lariat
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// Only those that are kept (`launch --keep`, `lariat keep`)
    #[arg(long)]
    pub kept: bool,
    /// Follow `restore` in the settings: "auto" brings back all, "ask" only kept sessions, "never" none
    #[arg(long, conflicts_with = "kept")]
    pub auto: bool,
    /// Write a systemd user unit that does `restore --yes --auto` at login
    #[arg(long, conflicts_with_all = ["yes", "max", "kept", "auto", "force"])]
    pub install: bool,
    /// Although other agents work there
    #[arg(long)]
    pub force: bool,
}

#[derive(Args, Debug)]
pub struct Keep {
    /// The session
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// Stop keeping it
    #[arg(long)]
    pub off: bool,
}

#[derive(Args, Debug)]
pub struct Rename {
    /// The session
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// Its new name
    #[arg(value_name = "NAME")]
    pub name: String,
}

#[derive(Args, Debug)]
pub struct Attach {
    /// The session
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// Only look: type nothing, never set its size
    #[arg(long)]
    pub watch: bool,
    /// The key that leaves, like ctrl-q
    #[arg(long, value_name = "KEY", env = "LARIAT_DETACH", value_parser = control_key, default_value = "ctrl-q")]
    pub detach: ControlKey,
    /// Let the session write to your clipboard and answer its questions to the terminal
    #[arg(long)]
    pub allow_clipboard: bool,
    /// Only tell where its terminal is reached
    #[arg(long = "where", hide = true)]
    pub to_where: bool,
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Lock {
    /// The directory
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: std::path::PathBuf,
    /// Who holds it
    #[arg(long, value_name = "WHO")]
    pub by: Option<String>,
    /// What for
    #[arg(long, value_name = "WHY")]
    pub reason: Option<String>,
    /// How long
    #[arg(long = "for", value_name = "TIME", value_parser = lariat_core::time::duration, default_value = "24h")]
    pub lasts: Duration,
    /// Although somebody else holds it
    #[arg(long)]
    pub force: bool,
    #[command(subcommand)]
    pub verb: Option<LockVerb>,
}

#[derive(Subcommand, Debug)]
pub enum LockVerb {
    /// The same as `locks`
    #[command(hide = true, alias = "ls")]
    List,
}

#[derive(Args, Debug)]
pub struct Unlock {
    /// The directory
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: std::path::PathBuf,
}

#[derive(Args, Debug)]
pub struct Send {
    /// The session
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// What to say; '-' reads it from standard input
    #[arg(value_name = "TEXT", required = true)]
    pub text: Vec<String>,
    /// Wait for the end of the turn and print the reply
    #[arg(long)]
    pub wait: bool,
    /// If it is at work or waits for an answer, hold the text back and type it when it stands at its prompt
    #[arg(long, visible_alias = "queue")]
    pub when_idle: bool,
    /// Type a text with the same key only once
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// How long the transcript may take to show it
    #[arg(long, value_name = "TIME", value_parser = lariat_core::time::duration, default_value = "15s")]
    pub timeout: Duration,
}

#[derive(Args, Debug)]
pub struct Demo {
    /// Only show, without the shell at the end
    #[arg(long)]
    pub tour: bool,
}

#[derive(Args, Debug)]
pub struct Gc {
    /// Do it
    #[arg(long)]
    pub yes: bool,
    /// How long what has ended, or was put aside, is kept; 7d unless the settings say otherwise
    #[arg(long, value_name = "TIME", value_parser = lariat_core::time::duration)]
    pub retain: Option<Duration>,
}

#[derive(Args, Debug)]
pub struct Stop {
    /// The sessions
    #[arg(value_name = "TARGET", required_unless_present_any = ["all", "group"])]
    pub targets: Vec<String>,
    /// Every live session of this group
    #[arg(long, value_name = "GROUP", conflicts_with_all = ["targets", "all"])]
    pub group: Option<String>,
    /// Every live session; shows the plan unless --yes is given
    #[arg(long, conflicts_with = "targets")]
    pub all: bool,
    /// Act on this host's sessions, through its own lariat
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// Carry out what --all plans
    #[arg(long, requires = "all", conflicts_with_all = ["targets", "group"])]
    pub yes: bool,
    /// How long a gentle end may take before everything is killed (stop only)
    #[arg(long, value_name = "TIME", value_parser = lariat_core::time::duration, default_value = "10s")]
    pub grace: Duration,
    /// Go ahead even if the wish cannot be stored durably
    #[arg(long)]
    pub force: bool,
    /// Then remove its worktree, if nothing in it would be lost
    #[arg(long)]
    pub clean: bool,
}

#[derive(Subcommand, Debug)]
pub enum WorktreeVerb {
    /// List them: branch, unsaved work, size, who is in them
    #[command(visible_alias = "list")]
    Ls,
    /// Remove those that nobody is in and whose work is in a commit that is pushed or merged
    #[command(after_help = "\
Skipped, with the reason: what a live session or any process stands in, what holds
work that is in no commit, commits that are neither pushed nor in another branch,
an unfinished merge or rebase, a git lock, a repository within it.

--force saves work first, as refs/lariat/saved/HANDLE/N in the repository, and reads
it back; `lariat worktree apply HANDLE` gives it back. Ignored files are listed, not
saved. Branches stay. A target that was refused makes the exit code 3.")]
    Clean(WorktreeClean),
    /// Save everything in a worktree, staged, changed and untracked, as a commit of its own
    Save(WorktreeTargets),
    /// Give saved work back, exactly; what is in conflict stays saved
    Apply(WorktreeApply),
}

#[derive(Args, Debug)]
pub struct WorktreeClean {
    /// A handle, a branch or a path; none for all that lariat made
    #[arg(value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Save work that is in no commit, then remove
    #[arg(long)]
    pub force: bool,
    /// Only say what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

#[derive(Args, Debug)]
pub struct WorktreeTargets {
    /// A handle, a branch or a path
    #[arg(value_name = "TARGET", required = true)]
    pub targets: Vec<String>,
}

#[derive(Args, Debug)]
pub struct WorktreeApply {
    /// HANDLE for what was saved last, HANDLE/N for one of it
    #[arg(value_name = "HANDLE[/N]")]
    pub target: String,
    /// A checkout of the same repository; the session's own worktree unless told
    #[arg(long, value_name = "PATH")]
    pub into: Option<std::path::PathBuf>,
}

/// A key that is typed with Control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlKey(pub u8);

impl ControlKey {
    /// The key itself.
    pub fn unmodified(self) -> u8 {
        (self.0 | 0x40).to_ascii_lowercase()
    }

    /// How a person says it.
    pub fn shown(self) -> String {
        format!("Ctrl-{}", char::from(self.0 | 0x40))
    }
}

fn control_key(text: &str) -> Result<ControlKey, String> {
    let lower = text.to_ascii_lowercase();
    let key = ["ctrl-", "ctrl+", "c-", "^"].iter().find_map(|prefix| lower.strip_prefix(prefix));
    match key.map(str::as_bytes) {
        Some([key @ (b'a'..=b'z' | b'\\' | b']' | b'^' | b'_')]) => Ok(ControlKey(key & 0x1f)),
        _ => Err("a key like ctrl-q or ctrl-]".into()),
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("a variable like NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
