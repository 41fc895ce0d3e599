//! Every thread: its rollout, and what that and its holder tell.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use lariat_core::{Ask, AskKind, Fact, Observation, Outcome, State, Time, Turn, Untrusted, Witness};
use lariat_sys::file;
use lariat_sys::process;
use serde::{Deserialize, Serialize};

use super::bind::{self, Held, Hold};
use super::fold::{Rollout, Stand};
use super::rollouts::{Stored, beginnings, is_archived, rollouts};
use super::script::{self, is_script};
use super::{NAME, is_exec, warning};
use crate::agent_process as ap;
use crate::json::Value;
use crate::look::{About, Look, Report, Scope, Sighting, could_be};
use crate::reader::{Fold, Reading};
use crate::store::{self, Found, Known, Readings, in_parallel, read_all};
use crate::tool::Call;

/// A call younger than this may not have started its command yet.
const SETTLING_MS: i64 = 1000;

/// Tools that run a command, as versions have called them.
const COMMANDS: [&str; 5] = ["exec_command", "shell", "shell_command", "local_shell", "container.exec"];

/// A rollout as read, or why it could not be.
type Read = Result<Box<Reading<Rollout>>, String>;

/// Tells of every thread, held or not.
pub fn tell(look: &Look<'_>, mut held: Held, report: &mut Report) {
    let could_hold = !held.loose.is_empty() || !held.blind.is_empty();
    let everyone = look.scope == Scope::All || look.table.is_err() || could_hold;
    let cache = store::Loading::begin(look, "codex");
    let (mut stored, copies) = rollouts(look, report, &cache, &|thread| everyone || held.threads.contains_key(thread));
    let late =
        |s: &Stored| s.file.key.mtime / 1_000_000 + ap::TICK >= look.now.0 && !held.threads.contains_key(&s.thread);
    if stored.iter().any(late) {
        bind::again(look, &mut held, report);
    }
    report.unhinted |= !held.newer.is_empty();
    for s in &mut stored {
        if held.threads.contains_key(&s.thread) && !s.superseded {
            s.file.whole = true;
            report.watch.extend(s.file.path.parent().map(Path::to_owned));
        }
    }
    // The terminal of a launched one tells what its store does not.
    report.watch.extend(held.threads.values().filter_map(|h| ap::launched_folder(look.places, h.bond.process.pid)));
    store::choose_whole(stored.iter_mut().map(|s| &mut s.file));
    let known: Vec<Option<Known>> = stored.iter_mut().map(|s| s.known.take()).collect();
    let (copies, kept): (Vec<Found>, Vec<_>) = copies.into_iter().unzip();
    let files = stored.iter().map(|s| &s.file).zip(known).chain(copies.iter().zip(kept));
    let readings = store::read(look, cache, files.collect());
    let ((), saving) = readings.while_saving(|readings| {
        let unread = readings.complaints(stored.len(), &copies);
        report.warnings.extend(unread.into_iter().map(|(path, e)| warning(look, path, e)));
        tell_stored(look, held, stored, readings, report);
    });
    report.saving.push(saving);
}

fn tell_stored(
    look: &Look<'_>,
    mut held: Held,
    stored: Vec<Stored>,
    readings: &Readings<Rollout>,
    report: &mut Report,
) {
    let numbered: Vec<(usize, &Stored)> = stored.iter().enumerate().collect();
    let parts = in_parallel(numbered.chunks(64).collect(), |batch: &[(usize, &Stored)]| {
        let part = |(i, s): &(usize, &Stored)| {
            let Some(fold) = readings.get(*i, &s.file).ok().filter(|_| !s.superseded).map(|r| r.fold) else {
                return (None, Says::Something(None));
            };
            (Part::of(look, &held, &s.thread, &fold), Says::of(&held, &s.thread, &fold))
        };
        batch.iter().map(part).collect::<Vec<_>>()
    });
    let (parts, says): (Vec<Option<Part>>, Vec<Says>) = parts.into_iter().flatten().unzip();
    let names = names(look, report);
    let mut sub_agents = at_work(&stored, &parts, &held);
    let unborn = take_unborn(look, &mut held, &stored, &says, report);
    move_on(&mut held, &stored, &parts, &says);
    let mut begun = beginnings(&stored, readings);
    let mut told = HashSet::new();
    for (i, (s, part)) in stored.into_iter().zip(parts).enumerate() {
        let read = readings.get(i, &s.file).map_err(|e| e.to_string());
        let error = store::complaint(&s.file, &read);
        report.warnings.extend(error.map(|e| warning(look, &s.file.path, e)));
        told.insert(s.thread.clone());
        if part.is_some() || s.superseded || unborn.contains(&s.thread) {
            continue; // a sub-agent is part of the session it works for
        }
        let below = sub_agents.remove(&s.thread).and_then(|all| Working::of(all, last_turn(&s, &read)));
        let begun = begun.remove(&s.thread);
        let mut sighting = sighting(look, &mut held, &names, s, read, below);
        if let Some(begun) = begun {
            let about = &mut sighting.about;
            (about.prompt, about.started_at) = (begun.prompt, begun.started.map(Time));
            about.model = about.model.take().or(begun.model);
        }
        report.add((look.judge)(NAME, sighting));
    }
    // Threads without a rollout: open, and nothing was asked yet.
    let mut bare: Vec<String> = held.threads.keys().filter(|t| !told.contains(*t)).cloned().collect();
    bare.sort_unstable();
    for thread in bare {
        if let Some(hold) = held.threads.remove(&thread) {
            let sighting = without_rollout(&thread, hold, held.notes.remove(&thread));
            report.add((look.judge)(NAME, sighting));
        }
    }
}

/// What a sub-agent's rollout tells of the session it is part of.
struct Part {
    works_for: String,
    open: bool,
    updated: Option<i64>,
    what: String,
    asks: Option<Observation>,
}

impl Part {
    fn of(look: &Look<'_>, held: &Held, thread: &str, fold: &Rollout) -> Option<Part> {
        let works_for = fold.works_for.clone()?;
        let hold = held.threads.get(thread).filter(|hold| !was_left(hold, fold));
        Some(Part {
            asks: hold.and_then(|hold| asks(look, hold, thread, fold)),
            open: fold.stand == Stand::Open,
            updated: fold.updated,
            works_for,
            what: fold.nickname.clone().or(fold.prompt.clone()).unwrap_or_else(|| "sub-agent".into()),
        })
    }
}

/// When a thread's last turn began, also if that stands before what was read of it.
fn last_turn(stored: &Stored, read: &Read) -> Option<i64> {
    let read = read.as_ref().ok()?;
    let all = || store::read_whole::<Rollout>(&stored.file).ok();
    read.fold.turn_at.or_else(|| if read.whole { None } else { all()?.fold.turn_at })
}

/// A sub-agent whose turn is open.
struct Open {
    name: String,
    asks: Option<Observation>,
    /// When it last wrote, if nobody holds it.
    left: Option<i64>,
}

/// What the sub-agents of a thread are at.
struct Working {
    names: String,
    asks: Vec<Observation>,
}

impl Working {
    /// One that nobody holds, and that has written nothing since the thread it works for began its last turn, was cut
    /// off before that: a kill leaves its turn open for ever.
    fn of(all: Vec<Open>, turn_at: Option<i64>) -> Option<Working> {
        let is_behind = |open: &Open| open.left.zip(turn_at).is_some_and(|(left, turn)| left < turn);
        let (names, asks): (Vec<_>, Vec<_>) =
            all.into_iter().filter(|open| !is_behind(open)).map(|open| (open.name, open.asks)).unzip();
        let asks = asks.into_iter().flatten().collect();
        (!names.is_empty()).then(|| Working { names: names.join(", "), asks })
    }
}

/// Sub-agents whose turn is open, by the thread at the root of their work.
fn at_work(stored: &[Stored], parts: &[Option<Part>], held: &Held) -> HashMap<String, Vec<Open>> {
    let parts = || stored.iter().zip(parts).filter_map(|(s, part)| Some((s.thread.as_str(), part.as_ref()?)));
    let parents: HashMap<&str, &str> = parts().map(|(thread, part)| (thread, part.works_for.as_str())).collect();
    let mut working: HashMap<String, Vec<Open>> = HashMap::new();
    for (thread, part) in parts().filter(|(_, part)| part.open) {
        let mut root = thread;
        for _ in 0..16 {
            root = parents.get(root).copied().unwrap_or(root);
        }
        // One that is not held while its root is has been left behind.
        let is_held = held.threads.contains_key(thread);
        if held.threads.contains_key(root) && !is_held {
            continue;
        }
        let left = part.updated.filter(|_| !is_held);
        let open = Open { name: part.what.clone(), asks: part.asks.clone(), left };
        working.entry(root.to_owned()).or_default().push(open);
    }
    working
}

/// What a rollout says of its thread, so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    /// Not even whose it is.
    Nothing,
    /// That whoever holds it is at a turn, and when that began.
    AtWork(Option<i64>),
    /// When its last turn began, if one did.
    Something(Option<i64>),
}

impl Says {
    fn of(held: &Held, thread: &str, fold: &Rollout) -> Says {
        let at_work =
            || held.threads.get(thread).is_some_and(|hold| fold.stand == Stand::Open && !was_left(hold, fold));
        match (fold.cwd.is_none() && fold.started.is_none(), at_work()) {
            (true, _) => Says::Nothing,
            (_, true) => Says::AtWork(fold.turn_at),
            _ => Says::Something(fold.turn_at),
        }
    }
}

/// Takes the threads that say nothing yet and are nobody's conversation. What a process at work has begun is a sub-agent's:
/// of one in mid turn nobody asks for another conversation. And what it keeps ready for itself, as for the model that
/// decides in a person's place, is known by the shell, which it records for conversations only.
fn take_unborn(
    look: &Look<'_>,
    held: &mut Held,
    stored: &[Stored],
    says: &[Says],
    report: &mut Report,
) -> HashSet<String> {
    let says: HashMap<&str, Says> = stored.iter().map(|s| s.thread.as_str()).zip(says.iter().copied()).collect();
    let of = |thread: &str| says.get(thread).copied().unwrap_or(Says::Nothing);
    let own = |hold: &Hold| (!hold.server).then_some(hold.bond.process.pid);
    let at_work = held.threads.iter().filter(|(thread, _)| matches!(of(thread), Says::AtWork(_)));
    let at_work: HashSet<u32> = at_work.filter_map(|(_, hold)| own(hold)).collect();
    let says_nothing = |thread: &str, hold: &Hold| of(thread) == Says::Nothing && hold.opened > 0;
    let shells = match held.threads.iter().any(|(thread, hold)| says_nothing(thread, hold)) {
        true => bind::shells(look, report),
        false => HashSet::new(),
    };
    let recorded = held.threads.iter().filter(|(thread, _)| shells.contains(*thread));
    let recorded: HashSet<u32> = recorded.map(|(_, hold)| hold.bond.process.pid).collect();
    let is_unborn = |thread: &str, hold: &Hold| {
        let its_own = recorded.contains(&hold.bond.process.pid) && !shells.contains(thread);
        says_nothing(thread, hold) && (its_own || own(hold).is_some_and(|pid| at_work.contains(&pid)))
    };
    held.threads.extract_if(|thread, hold| is_unborn(thread, hold)).map(|(thread, _)| thread).collect()
}

/// A terminal keeps the locks of the threads it has left with `/new`. Only the
/// one opened last is its session, or in which a turn began since; the sub-agents of any are its own.
fn move_on(held: &mut Held, stored: &[Stored], parts: &[Option<Part>], says: &[Says]) {
    let sub_agents: HashSet<&str> =
        stored.iter().zip(parts).filter(|(_, part)| part.is_some()).map(|(s, _)| s.thread.as_str()).collect();
    held.threads.retain(|thread, _| !sub_agents.contains(thread.as_str()));
    let turn = |(s, says): (&Stored, &Says)| match says {
        Says::AtWork(at) | Says::Something(at) if held.threads.contains_key(&s.thread) => {
            Some((s.thread.clone(), (*at)?))
        }
        _ => None,
    };
    let turns: HashMap<String, i64> = stored.iter().zip(says).filter_map(turn).collect();
    let mut current: HashMap<u32, (i64, String)> = HashMap::new();
    for (thread, hold) in held.threads.iter().filter(|(_, h)| !h.server) {
        let newest = current.entry(hold.bond.process.pid).or_default();
        let last = turns.get(thread).map_or(hold.opened, |at| hold.opened.max(at * 1_000_000));
        if (last, thread) > (newest.0, &newest.1) {
            *newest = (last, thread.clone());
        }
    }
    let left: Vec<(String, u32)> = held
        .threads
        .iter()
        .filter(|(thread, h)| !h.server && current.get(&h.bond.process.pid).is_some_and(|(_, c)| c != *thread))
        .map(|(thread, h)| (thread.clone(), h.bond.process.pid))
        .collect();
    for (thread, pid) in left {
        held.threads.remove(&thread);
        let now = current.get(&pid).map_or("", |(_, c)| c);
        let proof = Fact::Gone(Untrusted::new(format!("its terminal, process {pid}, has moved on to {now}")));
        held.notes.entry(thread).or_default().push(Observation::new(Witness::Registry, proof));
    }
}

fn sighting(
    look: &Look<'_>,
    held: &mut Held,
    names: &BTreeMap<String, String>,
    stored: Stored,
    read: Read,
    sub_agents: Option<Working>,
) -> Sighting {
    let hold = held.threads.remove(&stored.thread);
    let mut observations = held.notes.remove(&stored.thread).unwrap_or_default();
    let source = look.places.shown(&stored.file.path);
    let fold = read.as_ref().ok().map(|r| &r.fold);
    let updated = fold.and_then(|f| f.updated).map(Time);
    let (at_work, asked_below) = sub_agents.map(|w| (w.names, w.asks)).unzip();
    let fact = match turn(&read, at_work) {
        // It is rewound to the end of a turn.
        Fact::Turn(Turn::Never) if stored.rewound.is_some() => Fact::Turn(Turn::Over(Outcome::Well)),
        fact => fact,
    };
    let open = matches!(fact, Fact::Turn(Turn::Open(_)));
    let by_word = hold.as_ref().filter(|h| h.bond.evidence.witness == Witness::Process && h.opened == 0);
    let younger = by_word.is_some_and(|h| ap::is_past(&fact, updated, stored.file.key.mtime, &h.bond.process));
    // A terminal that has taken a thread up is at its prompt, as after any turn that ended, or came to nothing.
    let rests = hold.as_ref().is_some_and(|h| !is_exec(&h.bond.process) && (h.taken || !younger));
    let left = hold.as_ref().zip(fold).is_some_and(|(h, f)| was_left(h, f)) || open && younger && rests;
    match &hold {
        Some(hold) => {
            observations.push(hold.bond.evidence.clone());
            observations.extend(hosting(hold));
            // What an earlier process asked, this one does not.
            let asked = fold.filter(|_| !left && !younger).and_then(|f| asks(look, hold, &stored.thread, f));
            let archived = by_word.filter(|h| asks_to_unarchive(h, &stored.file));
            observations.extend(archived.map(|_| Observation::new(Witness::Store, Fact::Asks(unarchive()))));
            observations.extend(asked.into_iter().chain(asked_below.unwrap_or_default()));
            let rests = fold.is_some_and(|f| is_new_fork(look, hold, f)) && matches!(fact, Fact::Turn(Turn::Never));
            observations.extend(rests.then(|| Observation::new(Witness::Store, Fact::State(State::Idle)).at(updated)));
        }
        None if observations.iter().any(|o| matches!(o.fact, Fact::Gone(_))) => {}
        None if held.newer.contains(&stored.thread) => {
            let why = "a process holds its lock that has begun meanwhile";
            observations.push(Observation::new(Witness::Process, Fact::Unseen(why.into())));
        }
        None => observations.push(presence(look, held, fold, open)),
    }
    let fact = match fact {
        _ if left && rests => {
            Fact::Turn(Turn::Over(Outcome::Failed("it was cut off before this process started".into())))
        }
        over @ Fact::Turn(Turn::Over(_)) if younger && rests => over,
        fact if !younger && !left => fact,
        fact => Fact::Note(Untrusted::new(format!("{}, before this process started", fact.told().raw()))),
    };
    observations.push(Observation::new(Witness::Store, fact).at(updated).from(source));
    let name = names.get(&stored.thread).cloned();
    // Its rollout is there before anything stands in it.
    let empty = fold.is_some_and(|f| f.cwd.is_none() && f.started.is_none());
    let begun = hold.as_ref().filter(|_| empty).map(opened);
    let about = read.map(|r| r.fold).map_or_else(
        |_| About::default(),
        |f| About {
            name: name.clone(),
            title: name,
            tokens: f.tokens(),
            // While it works that counts; where it began is where it is found again.
            cwd: f.works_in.filter(|_| hold.is_some()).or(f.cwd).or_else(|| stands_in(hold.as_ref()?)),
            branch: f.branch,
            model: f.model,
            prompt: f.prompt,
            started_at: f.started.map(Time).or(begun),
            updated_at: updated.or(begun),
            turn_at: f.turn_at.map(Time),
            tool: f.calls.last().filter(|_| open && !left && !younger).map(Call::told),
            parent: f.forked_from.map(|p| format!("codex:{p}")),
            ..About::default()
        },
    );
    Sighting {
        native_id: stored.thread,
        observations,
        about,
        named: Vec::new(),
        missed: Vec::new(),
        outlived: false,
        shared: hold.as_ref().is_some_and(|h| h.server),
        process: hold.map(|h| h.bond.process),
        transcript: Some(stored.file.path),
    }
}

/// When a thread was begun, or taken up, as far as its holder tells.
fn opened(hold: &Hold) -> Time {
    if hold.opened > 0 { Time(hold.opened / 1_000_000) } else { ap::started(&hold.bond.process) }
}

fn without_rollout(thread: &str, hold: Hold, notes: Option<Vec<Observation>>) -> Sighting {
    let mut observations = notes.unwrap_or_default();
    observations.extend(hosting(&hold));
    let opened = opened(&hold);
    let cwd = stands_in(&hold);
    observations.push(hold.bond.evidence);
    Sighting {
        named: Vec::new(),
        missed: Vec::new(),
        outlived: false,
        shared: hold.server,
        native_id: thread.to_owned(),
        observations,
        about: About { cwd, started_at: Some(opened), updated_at: Some(opened), ..About::default() },
        process: Some(hold.bond.process),
        transcript: None,
    }
}

/// Where a thread's own process stands: its rollout may not say yet.
fn stands_in(hold: &Hold) -> Option<String> {
    let pid = Some(hold.bond.process.pid).filter(|_| !hold.server)?;
    ap::standing(pid).map(|c| c.raw().to_owned())
}

fn hosting(hold: &Hold) -> Option<Observation> {
    let text = format!("process {} is a shared server that may host many threads", hold.bond.process.pid);
    hold.server.then(|| Observation::new(Witness::Process, Fact::Note(text.into())))
}

fn turn(read: &Read, sub_agent: Option<String>) -> Fact {
    let reading = match read {
        Ok(reading) => reading,
        Err(error) => return Fact::TurnUnread(error.clone().into()),
    };
    if let Some(why) = &reading.unread {
        return Fact::TurnUnread(why.clone().into());
    }
    let f = &reading.fold;
    Fact::Turn(match (&f.stand, sub_agent) {
        (Stand::Open, _) => Turn::Open(f.calls.last().map(|c| Untrusted::new(format!("running {}", c.told())))),
        (Stand::Well | Stand::Unseen, Some(who)) => {
            Turn::Open(Some(Untrusted::new(format!("sub-agent at work: {who}"))))
        }
        (Stand::Unseen, None) => Turn::Never,
        (Stand::Well, None) => Turn::Over(Outcome::Well),
        (Stand::Failed(error), _) => Turn::Over(Outcome::Failed(error.clone().into())),
        (Stand::Aborted(how), _) => Turn::Over(Outcome::Aborted(how.clone().into())),
    })
}

/// Whether the open turn was begun, and left open, by an earlier process: none is ever taken up again. It must have
/// begun before this one took the lock and before it started: a clock that was set could mislead about either.
fn was_left(hold: &Hold, f: &Rollout) -> bool {
    let before = |at: i64| at < hold.opened / 1_000_000 && Time(at) < ap::started(&hold.bond.process);
    f.stand == Stand::Open && hold.opened > 0 && f.turn_at.is_some_and(before)
}

/// Whether a terminal that was told to go on with an archived thread has not been allowed to yet. One that was put away
/// since, it has left for another.
fn asks_to_unarchive(hold: &Hold, rollout: &Found) -> bool {
    let put_away = rollout.key.ctime / 1_000_000; // by its new name
    let before = put_away <= ap::started(&hold.bond.process).0 + ap::TICK;
    is_archived(&rollout.path) && before && !hold.server && !hold.taken && !is_exec(&hold.bond.process)
}

fn unarchive() -> Ask {
    Ask { kind: AskKind::Dialog, text: "the conversation is archived; unarchive it and go on?".into() }
}

/// Whether nothing was asked of a fork yet: it is stored as it is made, and stands at its prompt. One that was made with
/// a prompt takes that up at once.
fn is_new_fork(look: &Look<'_>, hold: &Hold, f: &Rollout) -> bool {
    let settled = f.started.is_some_and(|at| look.now.0 - at >= SETTLING_MS);
    f.forked_from.is_some() && f.stand == Stand::Unseen && settled && !is_exec(&hold.bond.process)
}

/// Nobody holds the thread: gone, unless that could not be seen. A process that
/// holds no thread at all can only matter to a turn that is open: every Codex
/// that runs a turn has its rollout or its lock in its hands.
fn presence(look: &Look<'_>, held: &Held, fold: Option<&Rollout>, open: bool) -> Observation {
    let cwd = fold.and_then(|f| f.works_in.as_deref().or(f.cwd.as_deref()));
    let unseen = match look.table {
        Err(why) => Some(format!("the process table could not be read: {why}")),
        Ok(_) => {
            let last = fold.and_then(|f| f.updated).map(Time);
            let blind = held.blind.iter().find(|blind| blind.could_hold(cwd, last, open)).map(|blind| &blind.unbound);
            let blind = blind.map(|u| format!("codex process {} may hold it: {}", u.pid, u.why.raw()));
            let loose = || {
                let pid = could_be(&held.loose, cwd).filter(|_| open)?.pid;
                Some(format!("codex process {pid}, tied to no session, stands in the same or an unknown directory"))
            };
            blind.or_else(loose)
        }
    };
    let gone = || Fact::Gone("no process holds its lock or its rollout".into());
    Observation::new(Witness::Process, unseen.map_or_else(gone, |why| Fact::Unseen(Untrusted::new(why))))
}

/// A call that nobody runs, where Codex may ask, waits for a person; and so does
/// a thread whose last turn was refused.
fn asks(look: &Look<'_>, hold: &Hold, thread: &str, f: &Rollout) -> Option<Observation> {
    if let (Stand::Failed(error), Some(need)) = (&f.stand, f.needs) {
        let failed = f.failed_at.map(Time);
        // What an earlier process lacked, this one may have.
        let own = failed.is_some_and(|at| at >= ap::started(&hold.bond.process));
        return own.then(|| Observation::new(Witness::Store, Fact::Asks(need.ask(error))).at(failed));
    }
    if f.stand == Stand::Well {
        // It is put before the person as the turn ends, not when the thread is opened again.
        let own = f.turn_at.is_some_and(|at| Time(at) >= ap::started(&hold.bond.process));
        let plan = f.plan.as_ref().filter(|_| own)?;
        let ask = Ask { kind: AskKind::Plan, text: Untrusted::new(plan.clone()) };
        return Some(Observation::new(Witness::Store, Fact::Asks(ask)).at(f.turn_at.map(Time)));
    }
    if f.stand != Stand::Open {
        return None;
    }
    let (call, kind) = f.calls.iter().enumerate().rev().find_map(|(i, call)| {
        // Commands run side by side. Anything else is alone: it waits for what was called before, and what was
        // called after waits for it.
        let alone = |call: &Call| !COMMANDS.contains(&call.name.as_str());
        let begun = if alone(call) { i == 0 } else { !f.calls[..i].iter().any(alone) };
        let kind = match call.name.as_str() {
            "request_user_input" => AskKind::Question,
            "apply_patch" | "request_permissions" => AskKind::Permission,
            name if COMMANDS.contains(&name) => AskKind::Permission,
            _ if script::may_ask(call) => AskKind::Permission,
            _ => return None,
        };
        let asks = || {
            let person = f.reviewer.as_deref().is_none_or(|who| who == "user");
            let asks = person && f.policy.as_deref().is_some_and(|p| p != "never");
            // A script begins anew with each tool that has ended.
            let since = call.at.max(f.updated.filter(|_| is_script(call)));
            let settled = since.is_none_or(|at| look.now.0 - at >= SETTLING_MS);
            asks && settled && !is_running(look, hold, thread, call)
        };
        (begun && (kind == AskKind::Question || asks())).then_some((call, kind))
    })?;
    let text = if kind == AskKind::Question { call.gist.clone() } else { call.told() };
    let ask = Ask { kind, text: Untrusted::new(text) };
    let source = format!("/proc/{}/task", hold.bond.process.pid);
    Some(Observation::new(Witness::Process, Fact::Asks(ask)).at(call.at.map(Time)).from(source))
}

/// Whether a child runs this call: marked with its id, or unmarked or by a script and started
/// since. Commands of earlier calls may live on, and servers of tools always do.
fn is_running(look: &Look<'_>, hold: &Hold, thread: &str, call: &Call) -> bool {
    let Ok(table) = look.table else { return true };
    table.descendants(hold.bond.process.pid).into_iter().filter(|child| child.comm != script::HOST).any(|child| {
        let since = || call.at.is_none_or(|at| ap::started(child).0 >= at - SETTLING_MS / 2);
        match process::environment(child.pid) {
            Ok(environment) => match (environment.get("CODEX_THREAD_ID"), environment.get("CODEX_TOOL_CALL_ID")) {
                (other, Some(_)) if is_script(call) => other == Some(thread) && since(),
                (_, Some(id)) => id == call.id,
                (Some(other), None) => other == thread && since(),
                (None, None) => !hold.server && since(),
            },
            Err(_) => since(),
        }
    })
}

/// The names that people gave, from `session_index.jsonl`.
fn names(look: &Look<'_>, report: &mut Report) -> BTreeMap<String, String> {
    #[derive(Clone, Default, Serialize, Deserialize)]
    struct Names(BTreeMap<String, String>, bool);
    impl Fold for Names {
        fn keeps(_: &[u8], key: &[u8]) -> bool {
            matches!(key, b"id" | b"thread_name")
        }
        fn line(&mut self, line: Value<'_>) {
            self.1 = true;
            let Some(id) = line.get("id").str() else { return };
            match line.get("thread_name").some_str() {
                Some(name) => drop(self.0.insert(id.to_owned(), name.to_owned())),
                None => drop(self.0.remove(id)),
            }
        }
        fn gap(&mut self) {}
        fn knows_head(&self) -> bool {
            self.1
        }
        fn knows_tail(&self) -> bool {
            self.1
        }
    }
    let path = look.places.codex.join("session_index.jsonl");
    let key = match file::open(&path) {
        Ok((_, key)) => key,
        Err(e) if file::is_absent(&path, &e) => return BTreeMap::new(),
        Err(e) => {
            report.warnings.push(warning(look, &path, e.to_string()));
            return BTreeMap::new();
        }
    };
    match read_all::<Names>(look, "codex-names", &[Found { path: path.clone(), key, whole: true }]).pop() {
        Some(Ok(reading)) => {
            report.warnings.extend(reading.complaint().map(|e| warning(look, &path, e)));
            reading.fold.0
        }
        Some(Err(e)) => {
            report.warnings.push(warning(look, &path, e.to_string()));
            BTreeMap::new()
        }
        None => BTreeMap::new(),
    }
}
