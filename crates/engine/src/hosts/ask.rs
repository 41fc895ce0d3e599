//! Asks every host at once, under one deadline, and lets what they say join an answer.

use std::cmp::Reverse;
use std::thread::JoinHandle;
use std::time::Duration;

use lariat_adapters::look::{Places, Scope};
use lariat_adapters::memory::{self, Kind};
use lariat_core::{Session, Time, Untrusted, Warning};
use lariat_sys::clock;

use crate::hosts::rows::{self, Rows, warning};
use crate::hosts::ssh::{self, Unreached};
use crate::hosts::{Fleet, Host};
use crate::list::Answer;
use crate::target::{NotOne, resolve};

/// The last good listing of each host.
const KIND: Kind = Kind { name: "host", format: u64::from_le_bytes(*b"hostrow1") };
/// The code of a listing that could not tell everything.
const PARTLY: i32 = 5;
/// The code of a target that is not one session there.
const NOT_ONE: i32 = 2;

/// Hosts that are being asked.
#[derive(Debug)]
pub struct Asking {
    asked: Vec<(Host, JoinHandle<Told>)>,
    warnings: Vec<Warning>,
}

/// What became of asking one.
#[derive(Debug, Default)]
struct Told {
    rows: Rows,
    partial: bool,
    /// Why a target is not one session there, in the words of the lariat there.
    several: Option<String>,
}

/// What all of them said of one target.
#[derive(Debug, Default)]
pub struct Found {
    /// The sessions that it fits, one of a host at most.
    pub sessions: Vec<Box<Session>>,
    /// Hosts where it fits several, with what their lariat says of them.
    pub several: Vec<(String, String)>,
    /// What could not be read or asked.
    pub warnings: Vec<Warning>,
    /// A host did not answer.
    pub partial: bool,
}

/// Begins to ask hosts for their sessions; all of them, or one.
pub fn list(fleet: Fleet, only: Option<&str>, places: &Places, scope: Scope, deadline: Duration) -> Asking {
    let places = places.clone();
    begin(fleet, only, move |host| listing(host, &places, scope, deadline))
}

/// Begins to ask hosts which session a target means there.
pub fn find(fleet: Fleet, only: Option<&str>, places: &Places, target: &str, deadline: Duration) -> Asking {
    let (places, target) = (places.clone(), target.to_owned());
    begin(fleet, only, move |host| one(host, &places, &target, deadline))
}

fn begin(fleet: Fleet, only: Option<&str>, ask: impl Fn(&Host) -> Told + Clone + Send + 'static) -> Asking {
    let hosts = fleet.hosts.into_iter().filter(|h| only.is_none_or(|only| h.name == only));
    let mut warnings = fleet.warnings;
    let begin = |host: Host| {
        let (ask, asked) = (ask.clone(), host.clone());
        let thread = std::thread::Builder::new().name("host".into()).spawn(move || ask(&asked));
        match thread {
            Ok(thread) => Some((host, thread)),
            Err(e) => {
                warnings.push(warning(&host, format!("it was not asked: {e}")));
                None
            }
        }
    };
    let asked = hosts.filter_map(begin).collect();
    Asking { asked, warnings }
}

impl Asking {
    fn told(self) -> (Vec<(Host, Told)>, Vec<Warning>) {
        let failed = |host: &Host| Told {
            rows: Rows { warnings: vec![warning(host, "lariat failed to read its answer")], ..Rows::default() },
            partial: true,
            several: None,
        };
        let wait = |(host, thread): (Host, JoinHandle<Told>)| {
            let told = thread.join().unwrap_or_else(|_| failed(&host));
            (host, told)
        };
        (self.asked.into_iter().map(wait).collect(), self.warnings)
    }

    /// Waits for what they say of their sessions.
    pub fn heard(self) -> Heard {
        let (told, warnings) = self.told();
        let mut heard = Heard { rows: Rows { warnings, ..Rows::default() }, partial: false };
        for (_, told) in told {
            heard.rows.sessions.extend(told.rows.sessions);
            heard.rows.unbound.extend(told.rows.unbound);
            heard.rows.warnings.extend(told.rows.warnings);
            heard.rows.hidden.ended += told.rows.hidden.ended;
            heard.partial |= told.partial;
        }
        heard
    }

    /// Waits for what they say of one target.
    pub fn found(self) -> Found {
        let (told, warnings) = self.told();
        let mut found = Found { warnings, ..Found::default() };
        for (host, told) in told {
            found.sessions.extend(told.rows.sessions);
            found.warnings.extend(told.rows.warnings);
            found.partial |= told.partial;
            found.several.extend(told.several.map(|text| (host.name, text)));
        }
        found
    }
}

/// What hosts said of their sessions.
#[derive(Clone, Debug)]
pub struct Heard {
    rows: Rows,
    partial: bool,
}

impl Heard {
    /// Adds it to a listing.
    pub fn join(self, answer: &mut Answer) {
        let (listing, rows) = (&mut answer.listing, self.rows);
        listing.sessions.extend(rows.sessions);
        listing.unbound.extend(rows.unbound);
        listing.warnings.extend(rows.warnings);
        listing.hidden.ended += rows.hidden.ended;
        answer.partial |= self.partial;
        answer.unhinted = true;
        // In the order of every listing; what is equal stays in the order of the hosts' names.
        listing.sessions.sort_by_cached_key(|s| (s.status, Reverse(s.updated_at)));
    }
}

/// What the lariat there may take, so that its answer is here in time.
fn within(deadline: Duration) -> String {
    format!("{}ms", deadline.mul_f32(0.6).as_millis().max(1))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

fn whose(host: &Host) -> String {
    format!("{} {}", host.name, host.destination)
}

fn listing(host: &Host, places: &Places, scope: Scope, deadline: Duration) -> Told {
    let mut asked = words(&["ls", "--json", "--deadline", &within(deadline)]);
    asked.extend((scope == Scope::All).then(|| "-a".to_owned()));
    let answer = ssh::ask(host, &asked, deadline).and_then(|reply| {
        let rows = rows::listing(host, &reply.out).map_err(|why| odd(host, &why, &reply.err))?;
        Ok((rows, reply))
    });
    match answer {
        Ok((rows, reply)) => {
            memory::keep(places.cache.as_deref(), KIND, &whose(host), Time(clock::now_ms()), &reply.out);
            Told { rows, partial: reply.code == PARTLY, several: None }
        }
        Err(unreached) => {
            silent(host, places, &unreached, |s| scope == Scope::All || !s.status.ended() || s.restorable)
        }
    }
}

fn one(host: &Host, places: &Places, target: &str, deadline: Duration) -> Told {
    let asked = words(&["status", "--json", "--deadline", &within(deadline), "--", target]);
    let answer = ssh::ask(host, &asked, deadline).and_then(|reply| match reply.code {
        NOT_ONE if reply.err.contains("no session fits") => Ok(Told::default()),
        NOT_ONE => Ok(Told { several: Some(reply.err), ..Told::default() }),
        _ => {
            let rows = rows::one(host, &reply.out).map_err(|why| odd(host, &why, &reply.err))?;
            Ok(Told { rows, ..Told::default() })
        }
    });
    answer.unwrap_or_else(|unreached| {
        let mut told = silent(host, places, &unreached, |_| true);
        match resolve(target, &told.rows.sessions) {
            Ok(at) => told.rows.sessions = vec![told.rows.sessions.swap_remove(at)],
            Err(NotOne::Several { candidates, .. }) => {
                let ids: Vec<String> = candidates.iter().map(|i| told.rows.sessions[*i].id.row()).collect();
                told.several = Some(ids.join("\n"));
                told.rows.sessions.clear();
            }
            Err(NotOne::None(_)) => told.rows.sessions.clear(),
        }
        told
    })
}

/// An answer that is not lariat's.
pub fn odd(host: &Host, why: &str, err: &str) -> Unreached {
    let last = err.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or_default();
    let complained =
        if last.is_empty() { String::new() } else { format!(" ({})", Untrusted::new(last).row_within(200)) };
    let lariat = host.lariat.as_deref().unwrap_or("lariat");
    let next = format!("see what `ssh {} {lariat} ls --json` says; a login there must print nothing", host.destination);
    Unreached { why: format!("{why}{complained}"), next: Untrusted::new(next).row() }
}

/// What is told of a host that does not answer: that, and the rows of its last good answer.
fn silent(host: &Host, places: &Places, unreached: &Unreached, shown: impl Fn(&Session) -> bool) -> Told {
    let now = Time(clock::now_ms());
    let memory = memory::recall::<Vec<u8>>(places.cache.as_deref(), KIND, &whose(host));
    let last_ok = memory.as_ref().map(|(at, _)| *at);
    let mut told = Told { partial: true, ..Told::default() };
    if let Some((at, bytes)) = memory
        && let Ok(then) = rows::listing(host, &bytes)
    {
        let why = format!("the host {} does not answer: {}", host.name, unreached.why);
        let (shown, hidden): (Vec<_>, Vec<_>) = then.sessions.into_iter().partition(|s| shown(s));
        told.rows.sessions = shown.into_iter().map(|s| rows::remembered(s, &why, at, now)).collect();
        told.rows.hidden.ended = then.hidden.ended + hidden.len();
    }
    told.rows.warnings.push(Warning { last_ok, ..warning(host, unreached.told()) });
    told
}

/// The version of the lariat that answers there.
pub fn version(host: &Host, patience: Duration) -> Result<String, Unreached> {
    let reply = ssh::ask(host, &words(&["--version"]), patience)?;
    let said = String::from_utf8_lossy(&reply.out).into_owned();
    match said.trim_end().strip_prefix("lariat ") {
        Some(version) if reply.code == 0 && !version.contains('\n') => Ok(Untrusted::new(version).row_within(40)),
        _ => Err(odd(
            host,
            &format!("it does not answer as lariat does: '{}'", Untrusted::new(said).row_within(60)),
            &reply.err,
        )),
    }
}

/// The version of every one, asked at once.
pub fn versions(hosts: &[Host], patience: Duration) -> Vec<Result<String, Unreached>> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = hosts.iter().map(|host| scope.spawn(move || version(host, patience))).collect();
        let failed = || Err(Unreached { why: "lariat failed to read its answer".into(), next: "ask again".into() });
        asked.into_iter().map(|a| a.join().unwrap_or_else(|_| failed())).collect()
    })
}
