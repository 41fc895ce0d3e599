//! A deterministic corpus: session stores of coding agents in an isolated HOME.
//!
//! A corpus is planned first (which agent, where, when, how large), then its
//! files are written by all cores, each from its own random stream, and last
//! comes `MANIFEST.json`: what a listing must say about every session while no
//! process of any agent is alive. A corpus whose manifest matches the wanted
//! parameters, and whose files still have their sizes, is used again.
//!
//! To add an agent: a variant of [`Agent`], its store path in [`Agent::path`], a
//! writer beside [`claude`] and [`codex`], and a count in [`Params`].

mod claude;
mod codex;
pub mod others;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use text::{Millis, Pool, Rng, Uuid};

/// Raised whenever the same parameters give other bytes, so that old corpora are remade.
const FORMAT: u32 = 3;
/// The end of the simulated 90 days: 2026-11-15T00:00:00Z. Fixed, so that a corpus does not depend on the day.
const END: Millis = Millis(1_794_700_800_000);
const SPAN_MS: u64 = 90 * 86_400_000;
const MEDIAN_BYTES: f64 = 200_000.0;
/// ln(50) / 2.3263: the 99th percentile is 50 times the median.
const SIGMA: f64 = 1.682;
const SMALLEST: u64 = 2_000;
const LARGEST: u64 = 40_000_000;
/// Lies in every directory that this module may delete.
const MARKER: &str = ".lariat-bench-corpus";

/// What a corpus is made from; equal parameters make equal corpora.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Params {
    pub format: u32,
    pub seed: u64,
    pub claude: usize,
    pub codex: usize,
    pub projects: usize,
    pub max_bytes: u64,
}

impl Params {
    pub fn new(claude: usize, codex: usize, max_bytes: u64, seed: u64) -> Self {
        let projects = (claude / 40).max(4);
        Self { format: FORMAT, seed, claude, codex, projects, max_bytes }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Agent {
    Claude,
    Codex,
}

impl Agent {
    pub fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
        }
    }

    /// Where the agent keeps one session, below HOME.
    fn path(self, plan: &Plan) -> String {
        let id = plan.id;
        match self {
            Self::Claude => {
                let slug: String = plan.cwd.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
                format!(".claude/projects/{slug}/{id}.jsonl")
            }
            Self::Codex => {
                let (y, mo, d, h, mi, s) = plan.start.civil();
                format!(
                    ".codex/sessions/{y:04}/{mo:02}/{d:02}/\
                     rollout-{y:04}-{mo:02}-{d:02}T{h:02}-{mi:02}-{s:02}-{id}.jsonl"
                )
            }
        }
    }

    fn write<'a>(self, plan: &Plan, pool: &'a Pool, rng: Rng, out: &mut Vec<u8>) -> Written<'a> {
        match self {
            Self::Claude => claude::write(plan, pool, rng, out),
            Self::Codex => codex::write(plan, pool, rng, out),
        }
    }
}

/// How a session's last turn ended. With no process alive, it decides the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Done,
    Open,
    Stopped,
    Failed,
}

impl Ending {
    /// The known mix: 70% done, 14% cut off in a turn, 9% stopped by a person, 7% failed.
    fn draw(rng: &mut Rng) -> Self {
        match rng.below(100) {
            0..70 => Self::Done,
            70..84 => Self::Open,
            84..93 => Self::Stopped,
            _ => Self::Failed,
        }
    }

    fn status(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Open => "interrupted",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// One session before it is written.
struct Plan {
    agent: Agent,
    id: Uuid,
    cwd: String,
    start: Millis,
    target: usize,
}

/// What a writer says about the session it wrote.
struct Written<'a> {
    ending: Ending,
    /// The family of line shapes and the way it ended, for the reader of a mismatch.
    shape: String,
    tokens: Option<Tokens>,
    cost_usd: Option<f64>,
    last: Millis,
    /// What a person typed, for the agent's own prompt history.
    typed: Vec<(Millis, &'a str)>,
}

/// Exact token totals of one session. `cache_write` is `null` where the store has no such field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: Option<u64>,
}

/// What a listing must say about one session while nothing of it is alive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    pub id: String,
    /// Which of those that the plan draws it is.
    pub agent: Option<Agent>,
    pub cwd: String,
    pub status: String,
    pub shape: String,
    pub tokens: Option<Tokens>,
    pub cost_usd: Option<f64>,
    pub path: String,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub params: Params,
    /// The size to which larger files were clamped so that the sum fits, if any were.
    pub clamped_to: Option<u64>,
    pub bytes: u64,
    pub sessions: Vec<Expected>,
}

impl Manifest {
    fn path(home: &Path) -> PathBuf {
        home.join("MANIFEST.json")
    }

    fn load(home: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(Self::path(home)).ok()?).ok()
    }

    /// Whether every session file is still there in the size it was written with.
    fn stands(&self, home: &Path) -> bool {
        self.sessions
            .iter()
            .all(|session| fs::metadata(home.join(&session.path)).is_ok_and(|file| file.len() == session.bytes))
    }
}

/// The directories below `home` that hold session files.
pub fn roots(home: &Path) -> [PathBuf; 2] {
    [home.join(".claude/projects"), home.join(".codex/sessions")]
}

/// The corpus of these parameters at `home`: the one that is there, or a new one.
/// The flag says whether it was made now.
pub fn ensure(home: &Path, params: &Params) -> io::Result<(Manifest, bool)> {
    if let Some(manifest) = Manifest::load(home)
        && manifest.params == *params
        && manifest.stands(home)
    {
        return Ok((manifest, false));
    }
    clear(home)?;
    generate(home, params).map(|manifest| (manifest, true))
}

/// Empties `home`, if it is a corpus of ours or holds nothing.
fn clear(home: &Path) -> io::Result<()> {
    if home.exists() {
        let ours = home.join(MARKER).exists();
        if !ours && fs::read_dir(home)?.next().is_some() {
            return Err(io::Error::other(format!(
                "{} is not empty and is no corpus of lariat-bench: choose another directory",
                home.display()
            )));
        }
        fs::remove_dir_all(home)?;
    }
    fs::create_dir_all(home)?;
    File::create(home.join(MARKER)).map(drop)
}

fn generate(home: &Path, params: &Params) -> io::Result<Manifest> {
    let (plans, clamped_to) = plan(params);
    let pool = Pool::new(params.seed);
    let paths: Vec<String> = plans.iter().map(|plan| plan.agent.path(plan)).collect();
    for path in &paths {
        if let Some(parent) = home.join(path).parent() {
            fs::create_dir_all(parent)?;
        }
    }

    let next = AtomicUsize::new(0);
    let worker = || -> io::Result<Vec<(usize, Written<'_>, u64)>> {
        let (mut out, mut done) = (Vec::new(), Vec::new());
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(plan) = plans.get(at) else {
                return Ok(done);
            };
            out.clear();
            let written = plan.agent.write(plan, &pool, Rng::stream(params.seed, at as u64), &mut out);
            save(&home.join(&paths[at]), &out, written.last)?;
            done.push((at, written, out.len() as u64));
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut parts = Vec::with_capacity(plans.len());
    std::thread::scope(|scope| -> io::Result<()> {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        for thread in threads {
            parts.extend(thread.join().map_err(|_| io::Error::other("a corpus writer panicked"))??);
        }
        Ok(())
    })?;
    parts.sort_by_key(|(at, ..)| *at);

    write_history(home, &plans, &parts)?;
    let sessions: Vec<Expected> =
        parts.into_iter().map(|(at, written, bytes)| expected(&plans[at], &paths[at], written, bytes)).collect();
    let bytes = sessions.iter().map(|session| session.bytes).sum();
    let manifest = Manifest { params: params.clone(), clamped_to, bytes, sessions };
    let fresh = home.join("MANIFEST.json.new");
    serde_json::to_writer(io::BufWriter::new(File::create(&fresh)?), &manifest)?;
    fs::rename(fresh, Manifest::path(home))?;
    Ok(manifest)
}

fn expected(plan: &Plan, path: &str, written: Written<'_>, bytes: u64) -> Expected {
    Expected {
        id: format!("{}:{}", plan.agent.name(), plan.id),
        agent: Some(plan.agent),
        cwd: plan.cwd.clone(),
        status: written.ending.status().to_owned(),
        shape: written.shape,
        tokens: written.tokens,
        cost_usd: written.cost_usd,
        path: path.to_owned(),
        bytes,
    }
}

/// Draws every session's place, time and size, and clamps the sizes into the budget.
fn plan(params: &Params) -> (Vec<Plan>, Option<u64>) {
    let mut rng = Rng::new(params.seed);
    let count = params.claude + params.codex;
    let sizes: Vec<u64> =
        (0..count).map(|_| (rng.log_normal(MEDIAN_BYTES, SIGMA) as u64).clamp(SMALLEST, LARGEST)).collect();
    let cap = cap_for(&sizes, params.max_bytes);

    // A few projects hold most sessions: the i-th has weight (i + 1)^-0.7.
    let mut reach = 0.0;
    let weights: Vec<f64> = (0..params.projects)
        .map(|i| {
            reach += ((i + 1) as f64).powf(-0.7);
            reach
        })
        .collect();
    let plans = sizes
        .iter()
        .enumerate()
        .map(|(at, size)| {
            let agent = if at < params.claude { Agent::Claude } else { Agent::Codex };
            let point = rng.unit() * reach;
            let project = weights.partition_point(|upto| *upto <= point).min(params.projects - 1);
            let start = Millis(END.0 - rng.below(SPAN_MS) as i64);
            let id = match agent {
                Agent::Claude => rng.uuid(),
                Agent::Codex => rng.uuid_at(start),
            };
            let target = (*size).min(cap.unwrap_or(LARGEST)) as usize;
            Plan { agent, id, cwd: format!("/home/dev/src/proj-{project:04}"), start, target }
        })
        .collect();
    (plans, cap)
}

/// The largest file size at which the sum of the clamped sizes fits, if clamping is needed.
fn cap_for(sizes: &[u64], budget: u64) -> Option<u64> {
    let fits = |cap: u64| sizes.iter().map(|size| (*size).min(cap)).sum::<u64>() <= budget;
    if fits(LARGEST) {
        return None;
    }
    let (mut low, mut high) = (SMALLEST, LARGEST);
    while high - low > 1000 {
        let middle = low.midpoint(high);
        if fits(middle) { low = middle } else { high = middle }
    }
    Some(low)
}

/// Writes one session file; its modification time is the last moment in it.
fn save(path: &Path, bytes: &[u8], last: Millis) -> io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis(last.0.unsigned_abs()))
}

/// Claude's list of everything typed at its prompt, oldest first.
fn write_history(home: &Path, plans: &[Plan], parts: &[(usize, Written<'_>, u64)]) -> io::Result<()> {
    let mut typed = BTreeMap::new();
    for (at, written, _) in parts {
        for (n, (when, text)) in written.typed.iter().enumerate() {
            typed.insert((*when, *at, n), *text);
        }
    }
    if typed.is_empty() {
        return Ok(());
    }
    let mut file = io::BufWriter::new(File::create(home.join(".claude/history.jsonl"))?);
    for ((when, at, _), text) in typed {
        let Plan { id, cwd, .. } = &plans[at];
        writeln!(
            file,
            r#"{{"display":"{text}","pastedContents":{{}},"timestamp":{},"project":"{cwd}","sessionId":"{id}"}}"#,
            when.0
        )?;
    }
    file.flush()
}
