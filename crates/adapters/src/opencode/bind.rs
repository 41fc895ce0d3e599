//! Which process works on which session.
//!
//! By the process's own lines in the shared log (see [`super::log`]), which name
//! every session it made or ran a turn of; by the id in its arguments (`-s ID`), or by that
//! it was launched for, for one that has named none yet. A terminal may run turns of several sessions
//! at once, and a server of any number: those whose open turn it began are its
//! own, and for a terminal the one that it named last. A terminal of a server
//! leaves no trace of what it shows: it may be any that its server named since it
//! is there.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use lariat_core::{Fact, Observation, Time, Witness};
use lariat_sys::process;
use lariat_sys::scan::Process;

use super::log::{self, Heard};
use super::record::Stored;
use super::{Kind, NAME, Role, is_id, role};
use crate::agent_process as ap;
use crate::look::{Bond, Look, Places, Report, same_place};

/// Clocks of a process's start, of the log and of the store may lie so far apart.
pub const SLACK_MS: i64 = 3000;

/// What a process does is in its log after so long at the latest.
pub const LOGGED_MS: i64 = 30_000;

const LOOSE: &str = "its log names no session, and neither do its arguments";
const CLIENT: &str = "a terminal of a server, which runs its sessions";
const SERVES: &str = "its log names several sessions, of its own and of its clients', and not which of them it shows";

/// A process of OpenCode's that may have to do with sessions.
pub struct Agent {
    process: Process,
    role: Role,
    /// The session that its arguments name.
    argued: Option<String>,
    /// It was told to go on with the last session of its directory, and does not say which that is.
    continues: bool,
    heard: Option<Heard>,
    /// A terminal that others were attached to.
    serves: bool,
    /// Where it was told to work.
    told: Option<PathBuf>,
}

impl Agent {
    fn pid(&self) -> u32 {
        self.process.pid
    }

    fn started(&self) -> i64 {
        ap::started(&self.process).0
    }

    /// Whether it has one of several sessions open, or several: what a client of a terminal prompted is named as the
    /// terminal's own is, and a client that speaks ACP may have any number open.
    fn is_unsure(&self, named: &[(String, i64)]) -> bool {
        (self.serves || self.role.kind == Kind::Agent) && named.len() > 1
    }

    /// Whether all it did is known from its log.
    fn is_known(&self) -> bool {
        !self.process.halted && self.heard.as_ref().is_some_and(|h| h.whole)
    }
}

/// Finds the processes.
pub fn agents(look: &Look<'_>) -> Vec<Agent> {
    let Ok(table) = look.table else { return Vec::new() };
    let found =
        table.iter().filter_map(|p| Some((p.clone(), role(p)?.run))).filter(|(p, _)| uses_store(look.places, p.pid));
    let genuine = ap::genuine(look.places, found.collect(), table, |p| role(p).is_some());
    let logs = look.places.opencode.join("log");
    let logs = logs.canonicalize().unwrap_or(logs); // as the kernel names it
    let agents = genuine.into_iter().filter_map(|(process, _)| {
        let role = role(&process).filter(|r| r.kind != Kind::Other)?;
        let words: Vec<&str> = process.arguments().skip(role.run.arguments).collect();
        let forks = words.contains(&"--fork");
        let argued = ap::flag(&words, &["-s", "--session"]).filter(|id| is_id(id) && !forks).map(str::to_owned);
        let argued = argued.or_else(|| ap::launched_for(look.places, &process));
        let heard = log::heard(process.pid, ap::started(&process).0, &logs);
        let named = argued.is_some() || heard.as_ref().is_some_and(|h| !h.sessions.is_empty());
        let told = words.iter().any(|w| matches!(*w, "-c" | "--continue"));
        let continues = told && !forks && !named && matches!(role.kind, Kind::Terminal | Kind::Client);
        // A terminal that serves is the first to connect to itself.
        let serves = role.kind == Kind::Terminal && heard.as_ref().is_some_and(|h| h.clients > 1);
        let told = ap::flag(&words, &["--dir"]).map(PathBuf::from);
        Some(Agent { argued, continues, heard, role, serves, told, process })
    });
    let mut agents: Vec<Agent> = agents.collect();
    let strange: Vec<bool> = agents.iter().map(|a| is_anothers(a, &agents)).collect();
    agents.iter_mut().zip(strange).filter(|(_, strange)| *strange).for_each(|(a, _)| a.heard = None);
    agents
}

/// Whether what seems to be a process's run is another's, at whose last line it only stands: it was started for a
/// session that the run never named, and for that one alone, or another process is as likely that run.
fn is_anothers(agent: &Agent, all: &[Agent]) -> bool {
    let Some(heard) = &agent.heard else { return false };
    let shared = || all.iter().any(|o| o.pid() != agent.pid() && o.heard.as_ref().is_some_and(|h| h.is_run_of(heard)));
    if heard.own {
        return shared(); // no line of it says whose it is
    }
    let Some(argued) = &agent.argued else { return false };
    let named = |h: &Heard| h.sessions.iter().any(|(id, _)| id == argued);
    !named(heard) && !heard.sessions.is_empty() && (agent.role.kind == Kind::Run || shared())
}

/// Whether a process uses the database that we look at.
pub fn uses_store(places: &Places, pid: u32) -> bool {
    let Ok(environment) = process::environment(pid) else {
        return ap::uses_store(pid, "XDG_DATA_HOME", ".local/share", &places.opencode); // by its owner
    };
    let set = |name: &str| environment.get(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let data = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|h| h.join(".local/share")));
    let Some(data) = data.map(|d| d.join("opencode")) else { return true };
    let db = data.join(set("OPENCODE_DB").unwrap_or_else(|| "opencode.db".into()));
    same_place(&db, &places.opencode_db)
        || (db.file_name() == places.opencode_db.file_name() && same_place(&data, &places.opencode))
}

/// The sessions that processes name.
pub fn named(agents: &[Agent]) -> HashSet<String> {
    let heard =
        agents.iter().filter_map(|a| a.heard.as_ref()).flat_map(|h| h.sessions.iter().map(|(id, _)| id.clone()));
    heard.chain(agents.iter().filter_map(|a| a.argued.clone())).collect()
}

/// Since when a session must have been written to, to be one that some process
/// could be at without our knowing; `None` if there is no such process.
pub fn loose_since(agents: &[Agent], now: i64) -> Option<i64> {
    let could = agents.iter().filter(|a| match a.role.kind {
        Kind::Errand | Kind::Other => false,
        Kind::Client => a.argued.is_none(),
        Kind::Run => a.argued.is_none() && a.heard.as_ref().is_none_or(|h| h.sessions.is_empty()),
        Kind::Terminal | Kind::Server | Kind::Agent => true,
    });
    let since = |a: &Agent| match a.is_known() {
        _ if a.continues => i64::MIN + SLACK_MS, // it shows one that was written before
        true => a.started().max(now - LOGGED_MS),
        false => a.started(),
    };
    could.map(|a| since(a) - SLACK_MS).min()
}

/// The same for what the second interface is asked, of which no log tells.
pub fn second_since(agents: &[Agent]) -> Option<i64> {
    let could = |a: &&Agent| matches!(a.role.kind, Kind::Run | Kind::Terminal | Kind::Server | Kind::Agent);
    agents.iter().filter(could).map(|a| a.started() - SLACK_MS).min()
}

/// A session that a process has in its hands.
#[derive(Clone, Debug)]
pub struct Hold {
    /// The process.
    pub bond: Bond,
    /// What it is.
    pub kind: Kind,
    /// It has others in its hands, too.
    pub shared: bool,
    /// What it logged.
    pub heard: Option<Heard>,
    /// When it last named the session.
    at: i64,
    /// It began the turn that is open, as its log says.
    began: bool,
}

/// A process that could be at a session without our knowing.
pub struct Loose {
    /// The process.
    pub pid: u32,
    /// Where it stands; nowhere means that it may be anywhere.
    pub places: Vec<PathBuf>,
    /// When it started.
    pub started: i64,
    /// It could run a turn.
    pub runs: bool,
    /// It has another session in its hands.
    pub tied: bool,
    /// Its log was read whole and names no session that it is not tied to.
    pub quiet: bool,
    /// What it logged.
    pub heard: Option<Heard>,
    /// It has its sessions for itself, and keeps one open between turns.
    pub own: bool,
    /// It makes a session only for whoever is at it, its terminal or its client.
    pub makes: bool,
    /// It shows the session that was the last of its directory, or one that it went on to.
    pub continues: bool,
    /// That last one.
    pub last: Option<String>,
    /// A terminal of a server that is not here or does not tell: it may show whatever was said since it is there.
    pub orphan: bool,
    /// What it may show.
    pub shows: Vec<String>,
}

impl Loose {
    /// A process where it stands, which can do nothing yet.
    fn of(agent: &Agent) -> Loose {
        let pid = agent.process.pid;
        // OpenCode believes `$PWD` before the directory it stands in, and what it was told before both.
        let here = || process::environment(pid).ok().and_then(|e| e.get("PWD").map(PathBuf::from));
        let places = || process::cwd(pid).ok().into_iter().chain(here()).chain(agent.told.clone()).collect();
        Loose {
            pid,
            places: if matches!(agent.role.kind, Kind::Server | Kind::Agent) { Vec::new() } else { places() },
            started: agent.started(),
            runs: false,
            tied: false,
            quiet: false,
            heard: agent.heard.clone(),
            own: false,
            makes: false,
            continues: false,
            last: None,
            orphan: false,
            shows: Vec::new(),
        }
    }

    /// Whether it may stand in the directory of a session.
    pub fn is_at(&self, stored: &Stored) -> bool {
        let at = |directory: &String| {
            self.places.is_empty() || self.places.iter().any(|p| same_place(p, std::path::Path::new(directory)))
        };
        stored.directory.as_ref().is_none_or(at)
    }
}

/// What is known of the processes.
#[derive(Default)]
pub struct Held {
    /// Sessions by id.
    pub sessions: HashMap<String, Hold>,
    /// Processes that may be at any session of their place.
    pub loose: Vec<Loose>,
    /// Further things worth knowing of a session.
    pub notes: HashMap<String, Vec<Observation>>,
}

/// Ties processes to sessions. `root` gives the session at the root of another's
/// work, if it is stored; `stored` what is stored of it.
pub fn bind<'a>(
    agents: &[Agent],
    root: &dyn Fn(&str) -> Option<String>,
    stored: &dyn Fn(&str) -> Option<&'a Stored>,
    report: &mut Report,
) -> Held {
    let mut held = Held::default();
    let mut unbound = Vec::new();
    let (mut clients, mut serving) = (Vec::new(), Vec::new());
    for agent in agents {
        let named = named_by(agent, root);
        let claims = claims(agent, &named, stored);
        if claims.is_empty() {
            match agent.role.kind {
                Kind::Terminal if agent.is_unsure(&named) => serving.push((agent.process.clone(), agent.role.run)),
                Kind::Client | Kind::Errand => clients.push((agent.process.clone(), agent.role.run)),
                Kind::Run | Kind::Terminal => unbound.push((agent.process.clone(), agent.role.run)),
                Kind::Server | Kind::Agent | Kind::Other => {}
            }
        }
        held.loose.extend(loose(agent, claims.is_empty()).or_else(|| client(agent, agents, root)));
        if agent.is_unsure(&named) {
            let shows = named.into_iter().map(|(id, _)| id).collect();
            held.loose.push(Loose { shows, ..Loose::of(agent) });
        }
        let several = claims.len() > 1;
        for (session, hold) in claims {
            take(&mut held, session, Hold { shared: hold.shared || several, ..hold });
        }
    }
    report.unbound.extend(ap::unbound(NAME, clients, |_| CLIENT.to_owned()));
    report.unbound.extend(ap::unbound(NAME, serving, |_| SERVES.to_owned()));
    report.unbound.extend(ap::unbound(NAME, unbound, |_| LOOSE.to_owned()));
    held
}

/// Of two processes with one session, the one that runs it has it, not one that shows what another runs; then the one
/// that began the turn which is open, as its log says; then the one that named it last.
fn take(held: &mut Held, session: String, hold: Hold) {
    let rank = |hold: &Hold| (!matches!(hold.kind, Kind::Client | Kind::Errand), hold.began, hold.at);
    let other = match held.sessions.remove(&session) {
        Some(known) if rank(&known) >= rank(&hold) => {
            let pid = hold.bond.process.pid;
            held.sessions.insert(session.clone(), known);
            pid
        }
        known => {
            held.sessions.insert(session.clone(), hold);
            let Some(known) = known else { return };
            known.bond.process.pid
        }
    };
    let text = format!("process {other} has it open, too");
    held.notes.entry(session).or_default().push(Observation::new(Witness::Process, Fact::Note(text.into())));
}

/// The sessions that a process names in its log, the last one last.
fn named_by(agent: &Agent, root: &dyn Fn(&str) -> Option<String>) -> Vec<(String, i64)> {
    let mut named: Vec<(String, i64)> = Vec::new();
    for (id, at) in agent.heard.iter().flat_map(|h| &h.sessions) {
        let Some(root) = root(id) else { continue };
        named.retain(|(known, _)| *known != root);
        named.push((root, *at));
    }
    named
}

/// The sessions that a process has in its hands, with the evidence.
fn claims<'a>(
    agent: &Agent,
    named: &[(String, i64)],
    stored: &dyn Fn(&str) -> Option<&'a Stored>,
) -> Vec<(String, Hold)> {
    let kind = agent.role.kind;
    let mut named = named.to_vec();
    let several = agent.is_unsure(&named);
    let is_at_it = |id: &str, at: i64| stored(id).is_some_and(|s| s.is_open() && at + SLACK_MS >= s.since);
    let current = named
        .last()
        .map(|(id, _)| id.clone())
        .filter(|_| matches!(kind, Kind::Run | Kind::Terminal | Kind::Agent) && !several);
    named.retain(|n| Some(&n.0) == current.as_ref() || (kind != Kind::Run && is_at_it(&n.0, n.1)));
    let by_log = named.into_iter().map(|(id, at)| {
        let by = "its own lines in the log name the session";
        let source = agent.heard.as_ref().map_or_else(PathBuf::new, |h| h.path.clone());
        (id, at, by, source.to_string_lossy().into_owned())
    });
    let mut all: Vec<_> = by_log.collect();
    let by_log = !all.is_empty();
    if all.is_empty() && !matches!(kind, Kind::Server | Kind::Agent) && !several {
        let source = format!("/proc/{}", agent.process.pid);
        all.extend(agent.argued.iter().map(|id| (id.clone(), agent.started(), "started with its id", source.clone())));
    }
    let hold = |(id, at, by, source): (String, i64, &'static str, String)| {
        let alive = Fact::Alive { pid: Some(agent.process.pid), by: by.into() };
        let evidence = Observation::new(Witness::Process, alive).at(Some(Time(at))).from(source);
        let bond = Bond { process: agent.process.clone(), evidence };
        let shared = !matches!(kind, Kind::Run | Kind::Terminal) || several;
        let began = by_log && is_at_it(&id, at);
        (id, Hold { bond, kind, shared, heard: agent.heard.clone(), at, began })
    };
    all.into_iter().map(hold).collect()
}

/// A process that could be at a session besides those it is tied to. One whose
/// log is known could not, but for what it has not written down yet.
fn loose(agent: &Agent, unclaimed: bool) -> Option<Loose> {
    let could = match agent.role.kind {
        Kind::Client | Kind::Errand | Kind::Other => false,
        Kind::Run => unclaimed, // it has one session for ever
        Kind::Terminal | Kind::Server | Kind::Agent => true,
    };
    could.then(|| Loose {
        quiet: agent.is_known(),
        own: unclaimed && matches!(agent.role.kind, Kind::Run | Kind::Terminal),
        makes: matches!(agent.role.kind, Kind::Run | Kind::Terminal | Kind::Agent),
        continues: agent.continues && unclaimed,
        runs: true,
        tied: !unclaimed,
        ..Loose::of(agent)
    })
}

/// A terminal of a server. It may show what its server named since it is there: any server that is here could be its
/// own. One whose server is gone, or does not tell, may show what was said where it stands.
fn client(agent: &Agent, agents: &[Agent], root: &dyn Fn(&str) -> Option<String>) -> Option<Loose> {
    if agent.role.kind != Kind::Client || agent.argued.is_some() {
        return None;
    }
    let servers: Vec<&Agent> = agents.iter().filter(|a| a.role.kind == Kind::Server || a.serves).collect();
    let orphan = servers.is_empty() || servers.iter().any(|s| !s.is_known());
    let named = servers.iter().flat_map(|s| named_by(s, root));
    let shows = named.filter(|(_, at)| *at + SLACK_MS >= agent.started()).map(|(id, _)| id).collect();
    Some(Loose { orphan, shows, makes: true, continues: agent.continues, ..Loose::of(agent) })
}

/// What the processes alone tell, when the store does not answer.
pub fn by_processes(look: &Look<'_>, agents: &[Agent], why: &str) -> Report {
    let mut report = Report::default();
    let mut told: HashSet<&str> = HashSet::new();
    let mut unbound = Vec::new();
    for agent in agents.iter().filter(|a| !matches!(a.role.kind, Kind::Server | Kind::Agent)) {
        match &agent.argued {
            Some(id) if told.insert(id) => {
                let by = "started with its id";
                let alive = Fact::Alive { pid: Some(agent.process.pid), by: by.into() };
                let evidence = Observation::new(Witness::Process, alive).from(format!("/proc/{}", agent.process.pid));
                let bond = Bond { process: agent.process.clone(), evidence };
                report.add((look.judge)(NAME, bond.unread(id.clone(), why)));
            }
            Some(_) => {}
            None => unbound.push((agent.process.clone(), agent.role.run)),
        }
    }
    report.unbound = ap::unbound(NAME, unbound, |_| why.to_owned());
    report
}
