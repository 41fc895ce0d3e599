//! What can be asked on the command line.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};

/// Shows and supervises the coding agents that run here.
///
/// Without a verb: what is here now, grouped by who needs you.
#[derive(Parser, Debug)]
#[command(name = "lariat", version, about, after_help = AFTER)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Option<Verb>,
    #[command(flatten)]
    pub ls: Ls,
    #[command(flatten)]
    pub common: Common,
}

const AFTER: &str = "\
A target is a name, the agent's own id, a unique prefix of one, a directory, or '.'.

Exit codes: 0 ok, 1 failed, 2 usage or not found or ambiguous, 3 refused,
4 timed out, 5 partly unknown.";

#[derive(Args, Debug, Clone)]
pub struct Common {
    /// Print JSON (streams as one object a line)
    #[arg(long, global = true)]
    pub json: bool,
    /// How long an agent's store may take to answer
    #[arg(long, global = true, value_name = "TIME", value_parser = duration, default_value = "3s")]
    pub deadline: Duration,
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// List sessions: those that live or may live; with -a also the ended ones
    #[command(visible_alias = "list", alias = "ps")]
    Ls(Ls),
    /// Show one session, or how many there are of each kind
    Status(Status),
    /// Tell why a session's status is what it is: every observation
    Explain(Target),
    /// Show what a session last said: its whole reply, open tool, question
    Peek(Peek),
    /// Start an agent that outlives this command; prints its handle and id
    Launch(Launch),
    /// Show a launched session's terminal and type into it; Ctrl-Q leaves
    #[command(visible_alias = "a")]
    Attach(Attach),
    /// Type a prompt into a launched session; succeeds once its transcript shows it
    #[command(visible_alias = "prompt")]
    Send(Send),
    /// Sleep until sessions come to rest, need you, or end
    Wait(Wait),
    /// Hold a directory for yourself: no agent is launched there
    Lock(Lock),
    /// Give a directory up again
    Unlock(Unlock),
    /// List who holds which directory: people, and every agent at work
    Locks,
    /// The checkouts that `launch --worktree` made: list, save, give back, remove
    Worktree {
        #[command(subcommand)]
        verb: WorktreeVerb,
    },
    /// End sessions gently, with all they started; they stay ended
    Stop(Stop),
    /// End sessions at once, with all they started; they stay ended
    Kill(Stop),
    /// Show what lariat did: who, what, on what evidence
    Journal,
    /// Forget our own records of what has ended long ago; shows them unless --yes is given
    #[command(alias = "prune")]
    Gc(Gc),
    /// Check what this machine offers, and what the lack of it costs
    Doctor,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// The same verbs under the name that other tools use
    #[command(hide = true)]
    Session {
        #[command(subcommand)]
        verb: SessionVerb,
    },
}

#[derive(Subcommand, Debug)]
pub enum SessionVerb {
    /// List sessions
    #[command(alias = "list")]
    Ls(Ls),
}

#[derive(Args, Debug, Clone, Default)]
pub struct Ls {
    /// Show ended sessions too
    #[arg(short, long)]
    pub all: bool,
    /// Only this agent (claude, codex)
    #[arg(long, value_name = "AGENT", value_parser = agent)]
    pub agent: Option<String>,
    /// Only these statuses, separated by commas
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = status)]
    pub status: Vec<lariat_core::Status>,
    /// Only this group
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Only this host
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// Stay, and show every change
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Args, Debug)]
pub struct Status {
    /// The sessions; none for a count of each status
    #[arg(value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Print only how many sessions need you
    #[arg(short, long, conflicts_with = "targets")]
    pub quiet: bool,
}

#[derive(Args, Debug)]
pub struct Launch {
    /// The agent: claude or codex
    #[arg(value_name = "AGENT")]
    pub agent: String,
    /// What to ask; '-' reads it from standard input
    #[arg(short, long, value_name = "PROMPT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// A file to put before the prompt
    #[arg(long, value_name = "FILE")]
    pub file: Vec<std::path::PathBuf>,
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
    /// Although another agent works there
    #[arg(long)]
    pub force: bool,
    /// Further arguments for the agent
    #[arg(last = true, value_name = "AGENT FLAGS")]
    pub arguments: Vec<String>,
}

#[derive(Args, Debug)]
pub struct Attach {
    /// The session
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// Only look: type nothing, never set its size
    #[arg(long)]
    pub watch: bool,
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
    #[arg(long = "for", value_name = "TIME", value_parser = duration, default_value = "24h")]
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
    /// How long the transcript may take to show it
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "15s")]
    pub timeout: Duration,
}

#[derive(Args, Debug)]
pub struct Gc {
    /// Do it
    #[arg(long)]
    pub yes: bool,
    /// How long what has ended is kept
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "7d")]
    pub retain: Duration,
}

#[derive(Args, Debug)]
pub struct Wait {
    /// The sessions
    #[arg(value_name = "TARGET", required = true)]
    pub targets: Vec<String>,
    /// For what; a session that has ended is waited for no longer
    #[arg(long, value_enum, default_value = "idle")]
    pub until: Until,
    /// Return when the first of them is there
    #[arg(long)]
    pub any: bool,
    /// Give up after this time, with exit code 4
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
}

#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Its turn is over
    Idle,
    /// It needs you
    Waiting,
    /// It has ended
    Done,
}

impl Until {
    /// The word, as given.
    pub fn word(self) -> &'static str {
        match self {
            Until::Idle => "idle",
            Until::Waiting => "waiting",
            Until::Done => "done",
        }
    }
}

#[derive(Args, Debug)]
pub struct Stop {
    /// The sessions
    #[arg(value_name = "TARGET", required_unless_present = "all")]
    pub targets: Vec<String>,
    /// Every live session; shows the plan unless --yes is given
    #[arg(long, conflicts_with = "targets")]
    pub all: bool,
    /// Carry out what --all plans
    #[arg(long, requires = "all")]
    pub yes: bool,
    /// How long a gentle end may take before everything is killed (stop only)
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
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

#[derive(Args, Debug)]
pub struct Target {
    /// The session
    #[arg(value_name = "TARGET")]
    pub target: String,
}

#[derive(Args, Debug)]
pub struct Peek {
    /// The session
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// How many replies
    #[arg(short = 'n', long = "replies", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub replies: u16,
    /// Stay, and show what is said from now on
    #[arg(short, long)]
    pub follow: bool,
}

fn agent(text: &str) -> Result<String, String> {
    let text = if text == "claude-code" { "claude" } else { text };
    let known: Vec<_> = lariat_adapters::all().iter().map(|a| a.name()).collect();
    known.contains(&text).then(|| text.to_owned()).ok_or_else(|| format!("not an agent; one of {}", known.join(", ")))
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a variable like NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn status(text: &str) -> Result<lariat_core::Status, String> {
    let known = lariat_core::Status::ALL;
    known.into_iter().find(|s| s.word() == text).ok_or_else(|| {
        let words: Vec<_> = known.iter().map(|s| s.word()).collect();
        format!("not a status; one of {}", words.join(", "))
    })
}

/// `500ms`, `3s`, `2m`, `1h`, `7d`, or seconds without a unit.
fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err("a time like 500ms, 3s, 2m, 1h or 7d".into()),
    };
    let number: f64 = number.parse().map_err(|_| "a time like 500ms, 3s, 2m, 1h or 7d".to_owned())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|e| e.to_string())
}
