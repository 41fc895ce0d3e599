//! What can be asked on the command line.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};

mod acting;
mod daemon;
mod hosts;
mod nearest;

pub use acting::{
    Answer, Approve, Attach, ControlKey, Demo, Deny, Gc, Keep, Launch, Lock, Rename, Restore, Resume, Send, Stop,
    Unlock, Which, WorktreeApply, WorktreeClean, WorktreeTargets, WorktreeVerb,
};
pub use daemon::{DaemonStart, DaemonVerb, Events, FuseSet, FuseVerb, GatewayVerb, Then, Web};
pub use hosts::HostVerb;
pub use nearest::{Asked, parse, understood};

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
A target is a handle, a name, the agent's own id, a unique prefix of one, a directory,
or '.'; HOST:TARGET is one of another machine (lariat host).

Exit codes: 0 ok, 1 failed, 2 usage or not found or ambiguous, 3 refused,
4 timed out, 5 partly unknown.";

const TOP: &str = "\
Sessions stand as `lariat ls` shows them. Enter attaches, Space shows all it said and takes a
reply, y and N answer what it asks, . goes to the next one that needs you, n launches, x stops,
/ filters, ? shows every key. What a key does is a command line: c copies it. NO_COLOR is honoured.";

const MATRIX: &str = "\
A matrix, for example:

  agents = [\"claude\", \"codex\"]
  prompts = [\"Fix the flaky test\"]
  prompt_files = [\"plan.md\"]   # more prompts; paths are relative to this file
  count = 2                    # of each combination
  group = \"flaky\"              # generated if not told
  worktree = false             # all in the directory itself; then --force, or one cwd each

Whatever it does not list is said by the other options and is the same for all. Nothing is
launched if anything is wrong with one of them. They start one after the other; one that fails
does not keep the others from starting. --json prints one object a line for each.";

const HOSTS: &str = "\
`lariat ls` asks every host at once and shows its sessions with `host` set. A target there is
HOST:TARGET, or whatever fits only one session over all machines; a verb that acts on it runs
there, over ssh, with the paths and the exit code of there. `launch`, `stop --all` and `restore`
stay here unless --host is given. One that does not answer is a warning and exit code 5.";

#[derive(Args, Debug, Clone)]
pub struct Common {
    /// Print JSON (streams as one object a line)
    #[arg(long, global = true)]
    pub json: bool,
    /// How long to wait for an agent's store or a host when looking (not when acting on a host)
    #[arg(long, global = true, value_name = "TIME", value_parser = lariat_core::time::duration, default_value = "3s")]
    pub deadline: Duration,
}

// What a verb takes is built once it is asked for: that of all of them takes longer than many a verb.
#[derive(Subcommand, Debug)]
#[command(defer = true)]
pub enum Verb {
    /// List sessions: those that live or may live; with -a also the ended ones
    #[command(visible_alias = "list", alias = "ps")]
    Ls(Ls),
    /// The terminal screen: the list, live, with a preview; ? tells its keys
    #[command(after_help = TOP)]
    Top,
    /// Show one session, or how many there are of each kind
    #[command(alias = "show", alias = "inspect")]
    Status(Status),
    /// Tell why a session's status is what it is: every observation
    Explain(Target),
    /// Show what a session last said: its whole reply, open tool, question
    Peek(Peek),
    /// Show what was changed where a session works, also what is in no commit
    Diff(Diff),
    /// Start an agent that outlives this command; prints its handle and id
    #[command(visible_alias = "run", after_help = MATRIX)]
    Launch(Box<Launch>),
    /// Show a launched session's terminal and type into it; Ctrl-Q leaves
    #[command(visible_alias = "a")]
    Attach(Attach),
    /// Type a prompt into a launched session; succeeds once its transcript shows it
    #[command(visible_alias = "prompt")]
    Send(Send),
    /// Show what a launched session wrote: its terminal as text, or its output files
    Logs(Logs),
    /// Allow what a session asks permission for
    Approve(Approve),
    /// Refuse what a session asks permission for
    #[command(alias = "reject")]
    Deny(Deny),
    /// Answer what a session asks: one answer for each question, by label, number or in own words
    Answer(Answer),
    /// Go on with an ended session, under its own id, where it worked
    #[command(alias = "continue")]
    Resume(Resume),
    /// Begin a new session with what was said in another
    Fork(Resume),
    /// Bring back what a crash or a reboot cut off; shows the plan unless --yes is given
    Restore(Restore),
    /// Bring a session back after a crash or reboot without asking
    Keep(Keep),
    /// Give a session another name
    Rename(Rename),
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
    /// Tell what happens: sessions that start, wait, work, rest and end; one object a line
    Events(Events),
    /// Fuses: end a session, or what works in a directory, when a time is up or a budget is used
    Fuse {
        #[command(subcommand)]
        verb: FuseVerb,
    },
    /// Serve other agents by the Model Context Protocol, on standard input and output
    Mcp,
    /// The daemon, which makes answers faster and tells others what happens; nothing needs it
    Daemon {
        #[command(subcommand)]
        verb: DaemonVerb,
    },
    /// Machines reached over ssh, whose own lariat answers for their sessions
    #[command(after_help = HOSTS)]
    Host {
        #[command(subcommand)]
        verb: HostVerb,
    },
    /// OpenClaw's gateways: introduce this machine to one
    Gateway {
        #[command(subcommand)]
        verb: GatewayVerb,
    },
    /// Open the page; starts the daemon if none runs
    Web(Web),
    /// Add up tokens and cost over all sessions, ended ones included
    Usage(Usage),
    /// Show what lariat did: who, what, on what evidence
    Journal(Journal),
    /// Delete lariat's own old records, of ended sessions and of files that could not be read; only lists them without --yes
    #[command(alias = "prune")]
    Gc(Gc),
    /// Check what this machine offers, and what the lack of it costs
    Doctor,
    /// Show lariat at work on scripted agents, in a world of their own: no key, no settings
    Demo(Demo),
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
    /// Only this agent (claude, codex, …; acp for all that speak ACP, agent for all that are only described)
    #[arg(long, value_name = "AGENT", value_parser = agent)]
    pub agent: Option<String>,
    /// Only these statuses, separated by commas
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = status)]
    pub status: Vec<lariat_core::Status>,
    /// Only this group
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Only this host; `local` for this machine only, without asking any
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// Stay, and show every change
    #[arg(short, long)]
    pub watch: bool,
    /// At most so many at once, in the order of ids; `next` is the last of them if there are more (for --json)
    #[arg(long, value_name = "N", conflicts_with = "watch", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Those after this id
    #[arg(long, value_name = "ID", requires = "limit")]
    pub after: Option<String>,
}

impl Ls {
    /// An option that was given. Before another verb it would be lost: `--group G kill --all` would kill all.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("--all", self.all),
            ("--agent", self.agent.is_some()),
            ("--status", !self.status.is_empty()),
            ("--group", self.group.is_some()),
            ("--host", self.host.is_some()),
            ("--watch", self.watch),
            ("--limit", self.limit.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
    }
}

#[derive(Args, Debug)]
pub struct Status {
    /// The sessions; none for a count of each status
    #[arg(value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Print only how many sessions need you
    #[arg(short, long, conflicts_with = "targets")]
    pub quiet: bool,
    /// Count those of this host only; `local` for this machine, without asking any
    #[arg(long, value_name = "HOST", conflicts_with = "targets")]
    pub host: Option<String>,
}

#[derive(Args, Debug)]
pub struct Logs {
    /// The session
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// Only so many lines from the end
    #[arg(short = 'n', long = "lines", visible_alias = "tail", value_name = "N")]
    pub lines: Option<usize>,
    /// Stay, and show what is written from now on
    #[arg(short, long)]
    pub follow: bool,
    /// The bytes of its terminal as they are; not to a terminal of yours
    #[arg(long, conflicts_with_all = ["follow", "lines"])]
    pub raw: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Each answer of a model counts once, also if forks hold copies of it. `input` is what came
from no cache. Days are those of UTC. A cost is what the agent itself recorded, else tokens
times the price in the settings ([[price]]), else in the table that comes with lariat.")]
pub struct Usage {
    /// One session: what it used over time
    #[arg(value_name = "TARGET", conflicts_with_all = ["by", "since"])]
    pub target: Option<String>,
    /// What a row stands for
    #[arg(long, value_enum, default_value = "day")]
    pub by: UsageBy,
    /// Only what was used since: 7d, 2026-11-01, 2026-11-01T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub since: Option<Since>,
}

#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageBy {
    /// A day of UTC
    Day,
    /// An agent
    Agent,
    /// A model
    Model,
    /// The directory that sessions work in
    #[value(alias = "cwd", alias = "project")]
    Dir,
    /// The group that sessions were launched in
    Group,
    /// A session
    Session,
}

/// A time to count from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Since {
    /// So long before now.
    Ago(Duration),
    /// At this moment.
    At(lariat_core::Time),
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
    #[arg(long, value_name = "TIME", value_parser = lariat_core::time::duration)]
    pub timeout: Option<Duration>,
}

#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Its turn is over; of one without a terminal, it has ended
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
    /// The whole conversation, with what tools were given and gave, in pages from the end
    #[arg(short, long, conflicts_with_all = ["follow", "replies"])]
    pub all: bool,
    /// What was said before this number, which the page after it told
    #[arg(long, value_name = "N", requires = "all")]
    pub before: Option<u64>,
    /// How much is in a page
    #[arg(long, value_name = "N", requires = "all", default_value_t = 50,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub limit: u16,
}

#[derive(Args, Debug)]
pub struct Journal {
    /// Only so many entries from the end
    #[arg(short = 'n', long = "lines", value_name = "N")]
    pub lines: Option<usize>,
    /// Those before the entry of this number
    #[arg(long, value_name = "N")]
    pub before: Option<usize>,
}

#[derive(Args, Debug)]
pub struct Diff {
    /// The session
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// Only which files, and how many lines
    #[arg(long)]
    pub stat: bool,
}

fn agent(text: &str) -> Result<String, String> {
    let known: Vec<_> = lariat_adapters::all().iter().map(|a| a.name()).collect();
    let found = lariat_adapters::named(text).map(|a| a.name().to_owned());
    found.ok_or_else(|| format!("not an agent; one of {}", known.join(", ")))
}

fn since(text: &str) -> Result<Since, String> {
    let day = || lariat_core::Time::parse(&format!("{text}T00:00:00Z"));
    let at = lariat_core::Time::parse(text).or_else(day).map(Since::At);
    let unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
    let ago = || lariat_core::time::duration(text).ok().filter(|_| unit).map(Since::Ago);
    at.or_else(ago).ok_or_else(|| "a time like 7d, 12h, 2026-11-01 or 2026-11-01T08:00:00Z".into())
}

fn status(text: &str) -> Result<lariat_core::Status, String> {
    let known = lariat_core::Status::ALL;
    known.into_iter().find(|s| s.word() == text).ok_or_else(|| {
        let words: Vec<_> = known.iter().map(|s| s.word()).collect();
        format!("not a status; one of {}", words.join(", "))
    })
}
