//! What one look asks of an adapter, and what the adapter tells.
//!
//! An adapter observes; it never judges. It gets the process table as the
//! engine scanned it (or the reason why there is none) and reads its agent's
//! store, and gives back what it saw of each session, the processes it could
//! not tie to one, and what it could not read.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use lariat_core::{Fact, Line, Observation, Row, Session, Time, Tokens, Unbound, Untrusted, Warning, Witness};
use lariat_sys::scan::{Process, Table};
use lariat_sys::{file, names};

use crate::settings::Settings;
use crate::store::Saving;
use crate::tool::Calls;

/// How long the machine may take to say where its user lives.
const PATIENCE: Duration = Duration::from_secs(5);

/// The variables by which agents find their stores, those of [`Places::STORES`] that are set.
pub type Stores = BTreeMap<String, String>;

/// Where things are: read once from the environment, then passed along.
#[derive(Clone, Default, Debug)]
pub struct Places {
    /// The user's home, for showing paths as `~`.
    pub home: PathBuf,
    /// Claude Code's store (`CLAUDE_CONFIG_DIR`).
    pub claude: PathBuf,
    /// Codex's store (`CODEX_HOME`).
    pub codex: PathBuf,
    /// OpenCode's store (`XDG_DATA_HOME`).
    pub opencode: PathBuf,
    /// OpenCode's database (`OPENCODE_DB`).
    pub opencode_db: PathBuf,
    /// Pi's folder (`PI_CODING_AGENT_DIR`).
    pub pi: PathBuf,
    /// Where Pi keeps its sessions, if not in its folder (`PI_CODING_AGENT_SESSION_DIR`).
    pub pi_sessions: Option<PathBuf>,
    /// Gemini's store (below `GEMINI_CLI_HOME`).
    pub gemini: PathBuf,
    /// Our cache directory, unless there shall be none.
    pub cache: Option<PathBuf>,
    /// Our records.
    pub state: PathBuf,
    /// Our settings.
    pub settings: PathBuf,
    /// The gateway that OpenClaw's own variable names (`OPENCLAW_GATEWAY_URL`).
    pub gateway_url: Option<String>,
    /// Whether there is a token for it (`OPENCLAW_GATEWAY_TOKEN`).
    pub gateway_token: bool,
}

impl Places {
    /// The variables that say where things are, but for `HOME`; none of them is secret.
    pub const VARIABLES: [&'static str; 10] = [
        "XDG_CONFIG_HOME",
        "XDG_STATE_HOME",
        "XDG_DATA_HOME",
        "XDG_CACHE_HOME",
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "OPENCODE_DB",
        "PI_CODING_AGENT_DIR",
        "PI_CODING_AGENT_SESSION_DIR",
        "GEMINI_CLI_HOME",
    ];

    /// Those of them that say where agents have their stores.
    pub const STORES: [&'static str; 7] = [
        "XDG_DATA_HOME",
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "OPENCODE_DB",
        "PI_CODING_AGENT_DIR",
        "PI_CODING_AGENT_SESSION_DIR",
        "GEMINI_CLI_HOME",
    ];

    /// Whether a variable that a person gives an agent says where that has its store. A home of its own does.
    pub fn is_store(name: &str) -> bool {
        name == "HOME" || Self::STORES.contains(&name)
    }

    /// What those are for an agent that gets our environment and these variables besides.
    pub fn stores_of(more: &[(String, String)]) -> Stores {
        let ours = Self::STORES.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
        let more = more.iter().filter(|(name, _)| Self::is_store(name));
        ours.chain(more.cloned()).collect()
    }

    /// Reads the environment.
    pub fn from_env() -> Places {
        let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        // Without HOME, agents ask the system where their user lives; so must we.
        let home = var("HOME").or_else(|| names::home(Instant::now() + PATIENCE).ok());
        let home = home.unwrap_or_else(|| PathBuf::from("/"));
        let base = |name: &str, under: &str| var(name).filter(|p| p.is_absolute()).unwrap_or_else(|| home.join(under));
        let cache = base("XDG_CACHE_HOME", ".cache");
        let ours = Places {
            cache: var("LARIAT_NO_CACHE").is_none().then(|| cache.join("lariat")),
            state: base("XDG_STATE_HOME", ".local/state").join("lariat"),
            settings: base("XDG_CONFIG_HOME", ".config").join("lariat/config.toml"),
            gateway_url: var("OPENCLAW_GATEWAY_URL").and_then(|v| v.into_os_string().into_string().ok()),
            gateway_token: var("OPENCLAW_GATEWAY_TOKEN").is_some(),
            home,
            ..Places::default()
        };
        ours.with_stores(var)
    }

    /// The agents' stores, as these variables say.
    fn with_stores(self, var: impl Fn(&str) -> Option<PathBuf>) -> Places {
        let home = &var("HOME").unwrap_or_else(|| self.home.clone());
        let data = var("XDG_DATA_HOME").filter(|p| p.is_absolute()).unwrap_or_else(|| home.join(".local/share"));
        let opencode = data.join("opencode");
        Places {
            claude: var("CLAUDE_CONFIG_DIR").unwrap_or_else(|| home.join(".claude")),
            codex: var("CODEX_HOME").unwrap_or_else(|| home.join(".codex")),
            opencode_db: opencode.join(var("OPENCODE_DB").unwrap_or_else(|| "opencode.db".into())),
            opencode,
            pi: var("PI_CODING_AGENT_DIR").map_or_else(|| home.join(".pi/agent"), |p| without_tilde(&p, home)),
            pi_sessions: var("PI_CODING_AGENT_SESSION_DIR").map(|p| without_tilde(&p, home)),
            gemini: var("GEMINI_CLI_HOME").unwrap_or_else(|| home.clone()).join(".gemini"),
            ..self
        }
    }

    /// The same, but for the stores of an agent that was started with these variables. What is cached of them is
    /// kept apart.
    pub fn at(&self, stores: &Stores) -> Places {
        let var = |name: &str| stores.get(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let there = self.clone().with_stores(var);
        let hash = xxhash_rust::xxh3::xxh3_64(format!("{stores:?}").as_bytes());
        let cache = self.cache.as_ref().map(|cache| cache.join(format!("elsewhere-{hash:016x}")));
        Places { cache, ..there }
    }

    /// Where agents tell at once that something has changed.
    pub fn stores(&self) -> Vec<PathBuf> {
        vec![self.claude.join("sessions")]
    }

    /// A path as a person would write it.
    pub fn shown(&self, path: &Path) -> Untrusted {
        let home = self.home.as_os_str().as_bytes();
        let below = path.as_os_str().as_bytes().strip_prefix(home).filter(|rest| rest.starts_with(b"/"));
        match below.map(String::from_utf8_lossy) {
            Some(rest) => Untrusted::new(["~", &rest].concat()),
            None => Untrusted::new(path.to_string_lossy()),
        }
    }
}

/// A path as Pi takes it from its environment: `~` is the home.
pub fn without_tilde(path: &Path, home: &Path) -> PathBuf {
    path.strip_prefix("~").map_or_else(|_| path.to_owned(), |rest| home.join(rest))
}

/// How much is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Every session.
    All,
    /// Those that live or may live; the ended ones are only counted.
    Live,
}

/// One question.
pub struct Look<'a> {
    /// Where things are.
    pub places: &'a Places,
    /// What a person has set.
    pub settings: &'a Settings,
    /// The process table, or why it could not be read.
    pub table: Result<&'a Table, &'a str>,
    /// Now.
    pub now: Time,
    /// How long a look may stand still.
    pub deadline: Duration,
    /// How much is asked for.
    pub scope: Scope,
    /// Counts the files looked at: a store that takes long but moves on is slow,
    /// one that stands still hangs.
    pub steps: &'a AtomicUsize,
    /// Makes a session of what was seen of it: the engine's part, done where
    /// the sighting is made so that both cores take part and nothing is held
    /// twice.
    pub judge: &'a (dyn Fn(&'static str, Sighting) -> Row + Sync),
}

/// What a store tells about a session besides its status.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the fields of core::Session of the same names")]
pub struct About {
    pub name: Option<String>,
    pub cwd: Option<String>,
    pub branch: Option<String>,
    pub model: Option<String>,
    pub title: Option<String>,
    pub prompt: Option<String>,
    pub started_at: Option<Time>,
    pub updated_at: Option<Time>,
    /// When its last turn began, if its store tells: no process does so that has ended.
    pub turn_at: Option<Time>,
    pub ended_at: Option<Time>,
    pub tokens: Option<Tokens>,
    pub cost_usd: Option<f64>,
    pub tool: Option<String>,
    pub parent: Option<String>,
    pub host: Option<String>,
    /// Which of a gateway's runs of it is open (`core::Session::start`).
    pub run: Option<u64>,
    /// What of its calls is known.
    pub calls: Calls,
}

/// One session as an adapter saw it.
#[derive(Clone, Debug, Default)]
pub struct Sighting {
    /// The agent's own id.
    pub native_id: String,
    /// What was seen that bears on its status.
    pub observations: Vec<Observation>,
    /// What else its store tells.
    pub about: About,
    /// Its process, if it has one.
    pub process: Option<Process>,
    /// Processes that its agent's records name and that could not be looked at: PID and start.
    pub named: Vec<(u32, u64)>,
    /// Those that its agent's records name and that nobody here is by that number: PID and start.
    pub missed: Vec<(u32, u64)>,
    /// That process is a server that others depend on too.
    pub shared: bool,
    /// What began its process is there still, as a script that called the agent and stays: that is no agent.
    pub outlived: bool,
    /// Its transcript, if it has one.
    pub transcript: Option<PathBuf>,
}

/// All that an adapter saw.
#[derive(Debug, Default)]
pub struct Report {
    /// The sessions.
    pub sessions: Vec<Box<Session>>,
    /// Those that are told as text already.
    pub lines: Vec<Line>,
    /// Agent processes without a known session.
    pub unbound: Vec<Unbound>,
    /// What could not be read.
    pub warnings: Vec<Warning>,
    /// Ended sessions that the scope left out.
    pub hidden: usize,
    /// Paths whose change may change the answer.
    pub watch: Vec<PathBuf>,
    /// The answer may change without any hint.
    pub unhinted: bool,
    /// Somebody who should have been asked did not answer, or a folder of sessions could not be read.
    pub partial: bool,
    /// What was read is being written down.
    pub saving: Vec<Saving>,
}

impl Report {
    /// Tells of one more session.
    pub fn add(&mut self, row: Row) {
        match row {
            Row::Session(session) => self.sessions.push(session),
            Row::Line(line) => self.lines.push(line),
        }
    }

    /// The agent's own ids of all that it tells of.
    pub fn native_ids(&self) -> impl Iterator<Item = &str> {
        self.sessions.iter().map(|s| s.native_id.raw()).chain(self.lines.iter().map(Line::native_id))
    }
}

/// A process tied to a session, with the evidence.
#[derive(Clone, Debug)]
pub struct Bond {
    /// The process.
    pub process: Process,
    /// What ties it to the session.
    pub evidence: Observation,
}

impl Bond {
    /// The session of this process, when its store could not be read.
    pub fn unread(self, session: String, why: &str) -> Sighting {
        let pid = self.process.pid;
        let unread = Observation::new(Witness::Store, Fact::TurnUnread(why.to_owned().into()));
        let cwd = crate::agent_process::standing(pid).map(|c| c.raw().to_owned());
        Sighting {
            native_id: session,
            observations: vec![self.evidence, unread],
            about: About { cwd, ..About::default() },
            process: Some(self.process),
            named: Vec::new(),
            missed: Vec::new(),
            shared: false,
            outlived: false,
            transcript: None,
        }
    }
}

/// Whether an agent process that is tied to no session could be the one of a
/// session in this directory: it stands there, or nobody knows where it stands.
pub fn could_be<'a>(unbound: &'a [Unbound], cwd: Option<&str>) -> Option<&'a Unbound> {
    unbound.iter().find(|u| match (&u.cwd, cwd) {
        (Some(theirs), Some(cwd)) => same_place(Path::new(theirs.raw()), Path::new(cwd)),
        _ => true,
    })
}

/// Whether two paths lead to one place, by name or by device and inode.
pub fn same_place(a: &Path, b: &Path) -> bool {
    a == b || matches!((file::place(a), file::place(b)), (Ok(a), Ok(b)) if a == b)
}
