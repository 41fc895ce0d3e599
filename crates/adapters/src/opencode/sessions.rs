//! Every session: what is stored of it, and what that and its process tell.

use std::collections::{HashMap, HashSet};

use lariat_core::{Ask, AskKind, Fact, Observation, Outcome, State, Time, Turn, Untrusted, Witness};
use lariat_sys::point::takes;
use lariat_sys::scan::Process;

use super::bind::{self, Agent, Held, Hold, LOGGED_MS, Loose, SLACK_MS};
use super::log::{self, Heard};
use super::record::{Stand, Stored};
use super::{Kind, NAME, db, legacy, warning};
use crate::agent_process as ap;
use crate::look::{About, Look, Report, Scope, Sighting};
use crate::tool::Call;

/// What becomes of a turn that nobody is at.
const LEFT: &str = "the process that ran it is gone";

/// Whoever has such a session open need not be at its turn, and whoever is may be gone.
const UNTOLD: &str = "asked by the second interface of a server: nothing tells who runs it";

/// A shell that may begins sooner than this.
const BEGINNING_MS: i64 = 2000;

/// Tells of every session.
pub fn tell(look: &Look<'_>, agents: &[Agent], report: &mut Report) {
    let all = look.scope == Scope::All || look.table.is_err();
    let since = bind::loose_since(agents, look.now.0);
    let named = bind::named(agents);
    let second_since = bind::second_since(agents);
    let read = db::read(look, &db::Wanted { all, named: &named, since, second_since });
    let unread = read.as_ref().err().cloned();
    let contents = read.ok().flatten().unwrap_or_default();
    let problem = unread.clone().or_else(|| contents.damage.clone());
    report.warnings.extend(problem.map(|why| warning(look, &look.places.opencode_db, why)));
    report.partial |= unread.is_some() || contents.cut;
    let (mut sessions, below, roots) = (contents.sessions, contents.below, contents.roots);
    report.hidden += contents.hidden;

    let known: HashSet<String> = sessions.iter().map(|s| s.id.clone()).collect();
    let needed = |id: &str| (all || since.is_some() || named.contains(id)) && !known.contains(id);
    let older = legacy::read(look, &needed);
    report.warnings.extend(older.problems.into_iter().map(|(path, e)| warning(look, &path, e)));
    report.hidden += if all { 0 } else { older.hidden };
    sessions.extend(older.sessions);

    let by_id: HashMap<&str, &Stored> = sessions.iter().map(|s| (s.id.as_str(), s)).collect();
    let root = |id: &str| roots.get(id).cloned().or_else(|| by_id.contains_key(id).then(|| id.to_owned()));
    let mut held = bind::bind(agents, &root, &|id| by_id.get(id).copied(), report);
    drop(by_id);
    for loose in held.loose.iter_mut().filter(|l| l.continues) {
        let before = |s: &&Stored| s.updated <= loose.started && loose.is_at(s);
        loose.last = sessions.iter().filter(before).max_by_key(|s| s.updated).map(|s| s.id.clone());
    }
    for stored in sessions {
        let hold = held.sessions.remove(&stored.id);
        let below = hold.as_ref().map_or_else(Vec::new, |h| at_work(h, below.get(&stored.id)));
        let (mute, call) = (|h: &Hold| is_mute(h) && ap::comes_up(look, &h.bond.process), unheard(&stored, &below));
        report.unhinted |= hold.as_ref().is_some_and(|h| mute(h) || (h.heard.is_none() && call.is_some()));
        report.add((look.judge)(NAME, sighting(look, &mut held, stored, hold, &below)));
    }
    // Named by a process and not stored, or not to be read.
    let mut bare: Vec<(String, Hold)> = held.sessions.drain().collect();
    bare.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    for (id, hold) in bare {
        let mut sighting = match &unread {
            Some(why) => hold.bond.clone().unread(id, why),
            None => without_record(id, &hold),
        };
        sighting.shared = hold.shared;
        report.add((look.judge)(NAME, sighting));
    }
}

/// A terminal that has come up and has a session which is not stored: a person has deleted that, and it stands where a
/// new one begins.
fn without_record(id: String, hold: &Hold) -> Sighting {
    let started = ap::started(&hold.bond.process);
    let cwd = ap::standing(hold.bond.process.pid).map(|c| c.raw().to_owned());
    let up = hold.heard.as_ref().filter(|h| h.up && hold.kind == Kind::Terminal);
    let idle = up.map(|h| {
        Observation::new(Witness::Store, Fact::State(State::Idle)).from(h.path.to_string_lossy().into_owned())
    });
    Sighting {
        native_id: id,
        observations: [hold.bond.evidence.clone()].into_iter().chain(idle).collect(),
        about: About { cwd, started_at: Some(started), updated_at: Some(started), ..About::default() },
        process: Some(hold.bond.process.clone()),
        ..Sighting::default()
    }
}

/// The sub-agents whose turn this process runs.
fn at_work<'a>(hold: &Hold, below: Option<&'a Vec<Stored>>) -> Vec<&'a Stored> {
    let started = ap::started(&hold.bond.process).0;
    let below = below.into_iter().flatten();
    below.filter(|s| s.is_open() && s.updated + SLACK_MS >= started).collect()
}

fn sighting(look: &Look<'_>, held: &mut Held, stored: Stored, hold: Option<Hold>, below: &[&Stored]) -> Sighting {
    let source = look.places.shown(&stored.transcript);
    let mut observations = held.notes.remove(&stored.id).unwrap_or_default();
    let updated = Some(Time(stored.updated)).filter(|t| t.0 > 0);
    let seen = |fact| Observation::new(Witness::Store, fact).at(updated).from(source.clone());
    let mut fact = turn(&stored, below);
    if hold.as_ref().is_some_and(|hold| stored.is_open() && !is_run(look, hold, &held.loose, &stored)) {
        fact = Fact::Turn(Turn::Over(Outcome::Failed(LEFT.into())));
    }
    let open = matches!(fact, Fact::Turn(Turn::Open(_)));
    match &hold {
        Some(hold) => {
            observations.push(hold.bond.evidence.clone());
            observations.extend(hosting(hold));
            let (now, more) = as_of(look, hold, &stored, below, fact);
            fact = now;
            if stored.second && stored.is_open() && matches!(fact, Fact::Turn(Turn::Open(_))) {
                fact = Fact::TurnUnread(UNTOLD.into());
            }
            match asks(look, hold, &stored, below) {
                Some(Asked::Sure(asks)) => observations.push(asks),
                Some(Asked::Perhaps(what)) => fact = Fact::TurnUnread(what.into()),
                None => {}
            }
            observations.extend(more);
        }
        None => observations.push(presence(look, &held.loose, &stored)),
    }
    observations.push(seen(fact));
    let about = About {
        cwd: stored.directory,
        model: stored.model,
        title: stored.title,
        prompt: stored.prompt,
        started_at: stored.created.map(Time),
        updated_at: updated,
        turn_at: Some(Time(stored.since)).filter(|t| t.0 > 0),
        tokens: stored.tokens,
        cost_usd: stored.cost,
        tool: stored.calls.first().filter(|_| open).map(|p| p.call.told()),
        ..About::default()
    };
    Sighting {
        native_id: stored.id,
        observations,
        about,
        named: Vec::new(),
        missed: Vec::new(),
        outlived: false,
        shared: hold.as_ref().is_some_and(|h| h.shared),
        process: hold.map(|h| h.bond.process),
        transcript: Some(stored.transcript),
    }
}

fn hosting(hold: &Hold) -> Option<Observation> {
    let pid = hold.bond.process.pid;
    let text = match hold.kind {
        Kind::Client | Kind::Errand => format!("process {pid} shows a session that is a shared server's"),
        Kind::Agent => {
            format!("process {pid} is a shared server that speaks ACP with a client, and may host many sessions")
        }
        _ => format!("process {pid} is a shared server that may host many sessions"),
    };
    hold.shared.then(|| Observation::new(Witness::Process, Fact::Note(text.into())))
}

fn turn(stored: &Stored, below: &[&Stored]) -> Fact {
    let names = below.iter().map(|s| s.title.as_deref().or(s.prompt.as_deref()).unwrap_or("sub-agent"));
    let at_work = (!below.is_empty()).then(|| names.collect::<Vec<_>>().join(", "));
    Fact::Turn(match (&stored.stand, at_work) {
        (Stand::Unread(why), _) => return Fact::TurnUnread(why.clone().into()),
        (Stand::Open, Some(who)) if stored.calls.is_empty() => Turn::Open(Some(working(&who))),
        (Stand::Open, _) => {
            Turn::Open(stored.calls.first().map(|p| Untrusted::new(format!("running {}", p.call.told()))))
        }
        (Stand::Never | Stand::Well, Some(who)) => Turn::Open(Some(working(&who))),
        (Stand::Never, None) => Turn::Never,
        (Stand::Well, None) => Turn::Over(Outcome::Well),
        (Stand::Failed(error, _), _) => Turn::Over(Outcome::Failed(error.clone().into())),
        (Stand::Aborted(how), _) => Turn::Over(Outcome::Aborted(how.clone().into())),
    })
}

fn working(who: &str) -> Untrusted {
    Untrusted::new(format!("sub-agent at work: {who}"))
}

/// What the record means for a process that may be younger. One that has recorded
/// nothing yet and has not come up is starting; a terminal that has come up, or whose log
/// does not tell and that had the time, stands at its prompt, whatever an earlier process left behind.
fn as_of(look: &Look<'_>, hold: &Hold, stored: &Stored, below: &[&Stored], fact: Fact) -> (Fact, Option<Observation>) {
    let started = ap::started(&hold.bond.process).0;
    let named = hold.heard.as_ref().is_some_and(|h| !h.sessions.is_empty());
    let left_open = stored.is_open() && stored.updated + SLACK_MS < started;
    // A client shows what its server does, however young it is.
    if (named && !left_open)
        || matches!(hold.kind, Kind::Client | Kind::Errand)
        || (stored.stand != Stand::Never && stored.updated >= started)
    {
        // What its client has begun is ready to be asked something.
        let ready = hold.kind == Kind::Agent && stored.stand == Stand::Never;
        return (fact, ready.then(|| Observation::new(Witness::Store, Fact::State(State::Idle))));
    }
    if below.is_empty() && is_mute(hold) && ap::is_up(look, &hold.bond.process) {
        match fact {
            Fact::Turn(Turn::Open(_)) => return (Fact::Turn(Turn::Over(Outcome::Failed(LEFT.into()))), None),
            Fact::Turn(Turn::Over(_)) => return (fact, None),
            _ => {}
        }
    }
    let note = Fact::Note(Untrusted::new(format!("{}, before this process started", fact.told().raw())));
    let heard = hold.heard.as_ref().filter(|h| h.up && hold.kind == Kind::Terminal);
    let idle = heard.map(|h| {
        Observation::new(Witness::Store, Fact::State(State::Idle)).from(h.path.to_string_lossy().into_owned())
    });
    match (stored.stand == Stand::Never, &idle) {
        (true, _) => (fact, idle),
        (false, Some(_)) if !stored.is_open() => (fact, idle),
        (false, Some(_)) => (Fact::Turn(Turn::Over(Outcome::Failed(LEFT.into()))), idle),
        (false, None) => (note, None),
    }
}

/// Whether a terminal's log does not tell if it has come up.
fn is_mute(hold: &Hold) -> bool {
    hold.kind == Kind::Terminal && hold.heard.as_ref().is_none_or(|h| !h.whole && !h.up)
}

/// No process has it: gone, unless one could have it unseen. Whoever runs a turn
/// writes the database, and names the session in its log a moment later. So only
/// what was written to since that process started could be its own: an open turn, one
/// that it has made for its first turn, and, of one whose log is not known, what it may have open between turns.
fn presence(look: &Look<'_>, loose: &[Loose], stored: &Stored) -> Observation {
    let fact = match look.table {
        Err(why) => Fact::Unseen(Untrusted::new(format!("the process table could not be read: {why}"))),
        Ok(_) => match loose.iter().find(|l| could_run(look, l, stored) || could_show(look, l, stored)) {
            Some(l) if could_show(look, l, stored) && !l.continues => Fact::Unseen(Untrusted::new(format!(
                "opencode process {} is a terminal beside a server, or has a client, and may have it open: nothing tells \
                 which session that is",
                l.pid
            ))),
            Some(l) if could_show(look, l, stored) => Fact::Unseen(Untrusted::new(format!(
                "opencode process {} went on with the last session of its directory, which may be this one",
                l.pid
            ))),
            Some(l) if l.tied => Fact::Unseen(Untrusted::new(format!(
                "opencode process {} stands in the same or an unknown directory and may have begun its turn, which it \
                 logs a moment later",
                l.pid
            ))),
            Some(l) => Fact::Unseen(Untrusted::new(format!(
                "opencode process {}, tied to no session, stands in the same or an unknown directory",
                l.pid
            ))),
            None => Fact::Gone("no opencode process runs a turn of it or has it open".into()),
        },
    };
    Observation::new(Witness::Process, fact)
}

fn could_run(look: &Look<'_>, loose: &Loose, stored: &Stored) -> bool {
    let since = stored.created.is_some_and(|at| at + SLACK_MS >= loose.started);
    let new = loose.makes && since && stored.stand == Stand::Never; // what a server has made is nobody's yet
    let open = new || matches!(stored.stand, Stand::Open | Stand::Unread(_)) || loose.own && !loose.quiet;
    let written = stored.updated + SLACK_MS >= loose.started;
    let logged = loose.quiet
        && !stored.second
        && (look.now.0 - stored.updated > LOGGED_MS || is_anothers(loose.heard.as_ref(), stored));
    loose.runs && open && written && !logged && loose.is_at(stored)
}

/// Whether its open turn was begun by another process, which had the time to log that.
fn is_anothers(heard: Option<&Heard>, stored: &Stored) -> bool {
    heard.is_some_and(|h| log::is_at_work_elsewhere(&h.path, &h.runs, &stored.id, stored.since))
}

/// What a terminal that was told to continue shows, it does not say before it is asked something; a terminal of a
/// server never says it, and what it has just had made its server has not named yet.
fn could_show(look: &Look<'_>, loose: &Loose, stored: &Stored) -> bool {
    let since = |at: i64| at + SLACK_MS >= loose.started && look.now.0 - at <= LOGGED_MS;
    let new = loose.makes && !loose.runs && stored.stand == Stand::Never && stored.created.is_some_and(since);
    let touched = || stored.updated > loose.started && loose.is_at(stored);
    let continues = loose.continues && (loose.last.as_ref() == Some(&stored.id) || touched());
    new || continues || loose.shows.contains(&stored.id) || (loose.orphan && touched())
}

/// Whether anybody could run the open turn of a session that is held. A terminal of a server shows it, and does not; nor
/// does one that has not named it since another began that turn, who would hold it if it were still there.
fn is_run(look: &Look<'_>, hold: &Hold, loose: &[Loose], stored: &Stored) -> bool {
    let shows = matches!(hold.kind, Kind::Client | Kind::Errand);
    let silent = |h: &&Heard| h.whole && h.sessions.iter().all(|(id, at)| *id != stored.id || *at < stored.since);
    let is_left = || is_anothers(hold.heard.as_ref().filter(silent), stored);
    !(shows || is_left()) || loose.iter().any(|l| could_run(look, l, stored))
}

/// What a process asks a person.
enum Asked {
    Sure(Observation),
    /// It asked, and what has become of that is not recorded.
    Perhaps(String),
}

/// A tool that has not begun since the process asked for something waits for a
/// person: the session's own, or one of a sub-agent's. Shells and sub-agents show
/// that they run; what is done with files, and questions, end when answered. Of
/// other tools it cannot be told whether they were allowed meanwhile.
fn asks(look: &Look<'_>, hold: &Hold, stored: &Stored, below: &[&Stored]) -> Option<Asked> {
    if let Stand::Failed(error, Some(need)) = &stored.stand {
        // What an earlier process lacked, this one may have.
        let own = stored.updated >= ap::started(&hold.bond.process).0;
        let seen = Observation::new(Witness::Store, Fact::Asks(need.ask(error))).at(Some(Time(stored.updated)));
        return own.then_some(Asked::Sure(seen));
    }
    let Some(heard) = &hold.heard else { return waits_unheard(look, hold, unheard(stored, below)?).map(Asked::Sure) };
    let open = [stored].into_iter().filter(|s| s.is_open()).chain(below.iter().copied());
    let calls = open.flat_map(|s| &s.calls).filter(|p| !p.begun).map(|p| &p.call);
    let waits = |call: &Call| heard.asked(&call.name).filter(|at| call.at.is_some_and(|start| at + SLACK_MS >= start));
    let calls: Vec<(&Call, i64)> = calls.filter_map(|call| Some((call, waits(call)?))).collect();
    let sure = calls.iter().find_map(|(call, asked)| {
        let (kind, text) = match call.name.as_str() {
            "question" => (AskKind::Question, call.gist.clone()),
            "plan_exit" => (AskKind::Plan, call.told()),
            "bash" | "shell" | "task" | "read" | "glob" | "grep" | "list" | "edit" | "write" | "patch"
            | "apply_patch" | "multiedit" | "skill" | "todowrite" => (AskKind::Permission, call.told()),
            _ => return None,
        };
        Some((Ask { kind, text: Untrusted::new(text) }, *asked))
    });
    let told = |(ask, asked)| {
        let seen = Observation::new(Witness::Store, Fact::Asks(ask)).at(Some(Time(asked)));
        Asked::Sure(seen.from(heard.path.to_string_lossy().into_owned()))
    };
    let perhaps = || {
        let call = calls.first()?.0.told();
        Some(Asked::Perhaps(format!(
            "it asked for leave, and may wait for it or be at {call}: OpenCode does not record which"
        )))
    };
    sure.map(told).or_else(perhaps)
}

/// A shell that has not begun is most of a wait's traces in the record.
fn unheard<'a>(stored: &'a Stored, below: &[&'a Stored]) -> Option<&'a Call> {
    let open = [stored].into_iter().filter(|s| s.is_open() && !s.second).chain(below.iter().copied());
    let mut calls = open.flat_map(|s| &s.calls).filter(|p| !p.begun).map(|p| &p.call);
    calls.find(|call| matches!(call.name.as_str(), "bash" | "shell"))
}

/// Without a log: what a terminal has called for and not begun after a while, though nothing has started below it since,
/// waits for leave. (Without a terminal it asks nobody, and what a server runs is not below the one that shows it.)
fn waits_unheard(look: &Look<'_>, hold: &Hold, call: &Call) -> Option<Observation> {
    let (table, at) = (look.table.ok()?, call.at?);
    let pid = hold.bond.process.pid;
    let own = hold.kind == Kind::Terminal && at >= ap::started(&hold.bond.process).0;
    let begun = |child: &Process| ap::started(child).0 + SLACK_MS >= at && !child.is_copy_of_parent(table);
    if !own || look.now.0 - at < takes("beginning", BEGINNING_MS) || table.descendants(pid).into_iter().any(begun) {
        return None;
    }
    let ask = Ask { kind: AskKind::Permission, text: Untrusted::new(call.told()) };
    Some(Observation::new(Witness::Process, Fact::Asks(ask)).at(Some(Time(at))).from(format!("/proc/{pid}/task")))
}
