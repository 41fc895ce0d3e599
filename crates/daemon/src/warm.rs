//! Answers that are still true.
//!
//! # Theory of operation
//!
//! An answer is kept as the text that was printed. It is given again only if it can
//! be shown that a fresh look would say the same:
//!
//! - every place that it depends on was watched before the look began, and none of
//!   them has stirred since;
//! - the agents' processes, and all that they started, are the same as before it
//!   began, by a fresh scan of the process table: a new process gives no hint;
//! - nothing that it lists can change without a hint;
//! - it is younger than a minute.
//!
//! If one of these cannot be shown, there is a fresh look. Losing an answer changes
//! nothing.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lariat_adapters::look::Places;
use lariat_engine::hosts::Fleet;
use lariat_sys::scan::{Process, Table};
use lariat_sys::vigil::Standing;
use xxhash_rust::xxh3::Xxh3Default;

use crate::verb::{self, Ran};

/// What asks for sessions of this machine only.
const HERE_ONLY: &str = "--host=local";
/// The oldest answer that is given again.
const OLDEST: Duration = Duration::from_secs(60);
/// How many answers are kept.
const MOST: usize = 4;
/// A larger answer is not kept.
const LARGEST: u64 = 64 << 20;
/// The verbs whose answers are kept; others may take long, and depend on more.
const KEPT: [&str; 3] = ["ls", "list", "status"];
/// How long any other verb may take.
const LONGEST: Duration = Duration::from_secs(600);
/// How long a look may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// An answer that was given.
pub struct Answer {
    /// The exit code.
    pub code: u8,
    /// The text.
    pub out: File,
    /// How much of it.
    pub bytes: u64,
    /// What was complained of.
    pub complaint: String,
}

struct Kept {
    arguments: Vec<String>,
    answer: Arc<Answer>,
    agents: u64,
    made: Instant,
}

/// The answers that are kept.
pub struct Warm {
    places: Places,
    inner: Mutex<Inner>,
}

struct Inner {
    standing: Standing,
    watched: HashSet<PathBuf>,
    kept: Vec<Kept>,
    /// How many answers needed no look, and how many did.
    given: (u64, u64),
}

impl Warm {
    /// None yet.
    pub fn new(places: Places) -> io::Result<Warm> {
        let inner = Inner { standing: Standing::new()?, watched: HashSet::new(), kept: Vec::new(), given: (0, 0) };
        Ok(Warm { places, inner: Mutex::new(inner) })
    }

    /// How many answers needed no look, and how many did.
    pub fn given(&self) -> (u64, u64) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).given
    }

    /// What `lariat ARGUMENTS` prints now; and whether that needed no look.
    pub fn answer(&self, arguments: &[String]) -> io::Result<(Arc<Answer>, bool)> {
        let is_kept = arguments.first().is_some_and(|verb| KEPT.contains(&verb.as_str()));
        // Other machines give no hints, and one that hangs must not hold up who asks for something else.
        let is_here = arguments.iter().any(|a| a == HERE_ONLY);
        if !is_kept || (!is_here && Fleet::read(&self.places).is_some()) {
            let Ran { code, out, bytes, complaint, .. } = verb::run(arguments, LONGEST, false)?;
            return Ok((Arc::new(Answer { code, out, bytes, complaint }), false));
        }
        // One look at a time: who waits for it finds its answer, if that is still true.
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let agents = agents(None);
        if inner.standing.has_stirred() {
            inner.standing.forget();
            inner.kept.clear();
        }
        inner.kept.retain(|k| Some(k.agents) == agents && k.made.elapsed() < OLDEST);
        if let Some(kept) = inner.kept.iter().find(|k| k.arguments == arguments) {
            let answer = Arc::clone(&kept.answer);
            inner.given.0 += 1;
            return Ok((answer, true));
        }
        inner.given.1 += 1;
        let made = Instant::now();
        let Ran { code, out, bytes, complaint, seen } = verb::run(arguments, PATIENCE, true)?;
        let answer = Arc::new(Answer { code, out, bytes, complaint });
        let Some(seen) = seen else { return Ok((answer, false)) };
        let wanted = crate::watching::paths(&self.places, seen.paths.into_iter(), &[]);
        let all: HashSet<PathBuf> = inner.watched.union(&wanted).cloned().collect();
        let watched = inner.standing.watch(&all);
        inner.watched = all;
        let still = watched && seen.hinted && !inner.standing.has_stirred();
        if let Some(agents) = agents.filter(|_| still && code == 0 && bytes <= LARGEST) {
            if inner.kept.len() == MOST {
                inner.kept.remove(0);
            }
            let (arguments, answer) = (arguments.to_vec(), Arc::clone(&answer));
            inner.kept.push(Kept { arguments, answer, agents, made });
        }
        Ok((answer, false))
    }
}

/// Which processes there are that may be agents, or were started by one, in a number;
/// `None` if that cannot be told, or if one of them began after that.
pub(crate) fn agents(before: Option<u64>) -> Option<u64> {
    let table = Table::scan_alone().ok()?;
    let names: Vec<&str> = lariat_adapters::all().iter().flat_map(|a| a.programs()).copied().collect();
    let mut found: Vec<&Process> = table.iter().filter(|p| may_be_agent(p, &names)).collect();
    let roots: Vec<u32> = found.iter().map(|p| p.pid).collect();
    found.extend(roots.iter().flat_map(|pid| table.descendants(*pid)));
    if before.is_some_and(|ticks| found.iter().any(|p| p.start >= ticks)) {
        return None;
    }
    found.sort_unstable_by_key(|p| p.pid);
    found.dedup_by_key(|p| p.pid);
    let mut hash = Xxh3Default::new();
    for process in found {
        hash.update(&process.pid.to_le_bytes());
        hash.update(&process.start.to_le_bytes());
        hash.update(&[u8::from(process.halted)]);
        process.arguments().for_each(|a| hash.update(a.as_bytes()));
    }
    Some(hash.digest())
}

/// Whether its name, its program or the script that it runs mentions an agent: more
/// than adapters believe, so that none of those is missed. What is lariat is none,
/// whatever it was asked.
fn may_be_agent(process: &Process, names: &[&str]) -> bool {
    let mut arguments = process.arguments();
    let program = arguments.next().unwrap_or("");
    let script = arguments.find(|a| !a.starts_with('-')).unwrap_or("");
    let is_lariat = program.rsplit('/').next() == Some("lariat");
    !is_lariat && [&process.comm, program, script].iter().any(|text| names.iter().any(|name| text.contains(name)))
}
