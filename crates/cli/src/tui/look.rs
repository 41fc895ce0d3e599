//! Looking again whenever something may have changed.
//!
//! One thread that looks, tells what has changed, and sleeps on the same hints as
//! `ls -w`: ends of processes and changes of files. The watch stands before the look
//! that could miss something. Where every change gives a hint there is no need to
//! look for the mere passing of time; where one may come without, there is.

use std::collections::HashSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lariat_adapters::look::Places;
use lariat_core::Status;
use lariat_daemon::watching;
use lariat_engine::hosts::watch::Watch as Hosts;
use lariat_engine::list::Answer;
use lariat_sys::vigil::{Caller, Standing, Woken};

use crate::args::{Common, Ls};
use crate::tui::{Event, Teller};
use crate::verbs::ls;

/// How soon the next look is where a change may come without a hint.
const SOON: Duration = Duration::from_secs(2);
/// The same where it seldom does.
const AT_LEAST: Duration = Duration::from_secs(60);
/// The same where it never should.
const SELDOM: Duration = Duration::from_secs(300);
/// Files that were quiet for so long are looked at,
const QUIET: Duration = Duration::from_millis(30);
/// a burst of changes no later than this,
const BURST: Duration = Duration::from_millis(200);
/// and files wait for so many times as long as the last look took.
const REST: u32 = 8;
/// A look that names new places is taken again, so many times at most.
const AGAIN: usize = 3;

/// The one who looks.
pub struct Looks {
    ended: Arc<AtomicBool>,
    caller: Caller,
}

impl Looks {
    pub fn start(common: &Common, tell: Teller) -> io::Result<Looks> {
        let standing = Standing::new()?;
        let caller = standing.caller()?;
        let ended = Arc::new(AtomicBool::new(false));
        let (common, wanted) = (common.clone(), Arc::clone(&ended));
        let thread = std::thread::Builder::new().name("look".into());
        thread.spawn(move || watch(&common, standing, &wanted, &tell))?;
        Ok(Looks { ended, caller })
    }

    /// Whether the ended ones are wanted, too.
    pub fn want_ended(&self, wanted: bool) {
        if self.ended.swap(wanted, Ordering::Relaxed) != wanted {
            self.caller.call();
        }
    }

    /// Looks now.
    pub fn again(&self) {
        self.caller.call();
    }
}

fn watch(common: &Common, mut standing: Standing, ended: &AtomicBool, tell: &Teller) {
    let mut told: Option<(bool, Arc<Answer>)> = None;
    let mut hosts = Hosts::default();
    loop {
        let began = Instant::now();
        let all = ended.load(Ordering::Relaxed);
        let looked = catch_unwind(AssertUnwindSafe(|| look(common, all, &mut standing, &mut hosts)));
        let Ok((answer, next)) = looked else {
            tell.tell(Event::Failed("a look failed in lariat's own code; `lariat ls` shows how".into()));
            std::thread::sleep(SOON);
            continue;
        };
        let took = began.elapsed();
        let news = told.as_ref().is_none_or(|(was, last)| *was != all || !ls::same(last, &answer));
        if news {
            let answer = Arc::new(answer);
            told = Some((all, Arc::clone(&answer)));
            tell.tell(Event::Looked(answer));
        }
        lariat_sys::spawn::trim_memory();
        if rest(&standing, next, took).is_err() {
            std::thread::sleep(SOON);
        }
    }
}

fn rest(standing: &Standing, next: Duration, took: Duration) -> io::Result<()> {
    if standing.sleep(next)? == Woken::File {
        let rest = took * REST;
        if rest > BURST {
            standing.settle(rest, rest)?
        } else {
            standing.settle(QUIET, BURST)?
        };
    }
    Ok(())
}

/// One look, with the watch in place; and when the next one is due.
fn look(common: &Common, ended: bool, standing: &mut Standing, hosts: &mut Hosts) -> (Answer, Duration) {
    let places = Places::from_env();
    let args = Ls { all: ended, ..Ls::default() };
    standing.forget();
    let mut tries = 0;
    loop {
        let answer = ls::look(&args, common, hosts);
        let listing = &answer.listing;
        let seen = watching::depends(&places, &answer);
        // A PID of another machine is nobody here.
        let living = listing.sessions.iter().filter(|s| s.live != Some(false) && !s.elsewhere);
        let unbound = listing.unbound.iter().filter(|u| u.host.is_none()).map(|u| u.pid);
        let pids: HashSet<u32> = living.filter_map(|s| s.pid).chain(unbound).collect();
        let alive = standing.processes(pids);
        let stood = standing.watch(&seen.paths.into_iter().collect::<HashSet<PathBuf>>());
        tries += 1;
        if (!stood || !alive) && tries < AGAIN {
            continue;
        }
        // That a call of Codex waits for a person is told by its processes, which give no hint.
        let codex = listing.sessions.iter().any(|s| s.agent == "codex" && s.status == Status::Working);
        let next = match (answer.unhinted || codex || !listing.unbound.is_empty(), seen.hinted && stood && alive) {
            (true, _) => SOON,
            (false, true) => SELDOM,
            (false, false) => AT_LEAST,
        };
        return (answer, next);
    }
}
