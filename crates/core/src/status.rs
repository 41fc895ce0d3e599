//! How observations and intent become one status.
//!
//! # Theory of operation
//!
//! Two questions are answered in order, and never mixed.
//!
//! **Does it live?** One [`Fact::Alive`] is enough: somebody tied a running
//! process to this session. Without it, [`Fact::Gone`] must prove the end.
//! With neither, or with only [`Fact::Unseen`], the answer is `unknown`: a
//! probe that failed, and no probe at all, prove nothing. Nor does a weaker
//! witness prove what a stronger one could not see: where a shim's record names a
//! process of a container, a look at our own processes says nothing of it.
//!
//! ```text
//!              Alive                     Gone                 neither
//!                |                         |                     |
//!   agent's own word (State)      a person asked: stopped     unknown
//!     waiting/busy/idle/shell     exit record + last turn
//!     idle, but a login or limit
//!       stopped it:   waiting
//!   else it asks:     waiting       open, cut off: interrupted
//!   else turn open:   working       open, exit > 0: failed
//!   else turn over:   idle          over: done, failed, stopped
//!   else nothing yet: starting      never: done, unless it died busy
//!                                   nothing ever tells: by the exit alone
//! ```
//!
//! **How is it?** While it lives, the agent's own word beats the transcript:
//! Claude's transcript shows a finished turn while a sub-agent works on, and an
//! open one after the person took the prompt back. Only where the agent says
//! nothing does the transcript decide. `idle` is never a fallback: it needs
//! the agent's word or a turn that is over.
//!
//! The same observations in any order give the same verdict; a note never
//! changes it. Both are property-tested below.

use serde::Serialize;

use crate::intent::{Intent, Want};
use crate::observation::{Ask, Fact, Observation, Outcome, State, Turn, Witness};
use crate::session::Exit;
use crate::text::Untrusted;

/// How much sooner than its shim an agent may be told to end, where all are told, in milliseconds.
const ALL_AT_ONCE: i64 = 1_000;

/// What a session is, in one word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Alive and needs a person.
    Waiting,
    /// Alive, a turn is open.
    Working,
    /// Alive, no native record yet.
    Starting,
    /// Alive, the turn is over.
    Idle,
    /// Could not be told.
    Unknown,
    /// Gone in the middle of a turn, nobody asked.
    Interrupted,
    /// Gone, the last turn ended in an error, or the exit was not clean.
    Failed,
    /// Gone, and a person asked for it.
    Stopped,
    /// Gone, the last turn ended well.
    Done,
}

impl Status {
    /// Every status, in the order of lists.
    pub const ALL: [Status; 9] = [
        Status::Waiting,
        Status::Working,
        Status::Starting,
        Status::Idle,
        Status::Unknown,
        Status::Interrupted,
        Status::Failed,
        Status::Stopped,
        Status::Done,
    ];

    /// The word used in output.
    pub fn word(self) -> &'static str {
        match self {
            Status::Waiting => "waiting",
            Status::Working => "working",
            Status::Starting => "starting",
            Status::Idle => "idle",
            Status::Unknown => "unknown",
            Status::Interrupted => "interrupted",
            Status::Failed => "failed",
            Status::Stopped => "stopped",
            Status::Done => "done",
        }
    }

    /// Whether the word means that the session has ended.
    pub fn ended(self) -> bool {
        matches!(self, Status::Interrupted | Status::Failed | Status::Stopped | Status::Done)
    }
}

/// What part an observation played in a verdict.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It decided the status.
    Decided,
    /// It says the same.
    Agreed,
    /// It says something else, and was overruled.
    Disagreed,
    /// It bears on nothing here.
    Context,
}

/// What observations and intent add up to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The word.
    pub status: Status,
    /// Why, in a phrase.
    pub reason: Untrusted,
    /// Whether it lives; `None` if that could not be told.
    pub live: Option<bool>,
    /// Wanted running, proven gone, not ended by itself or by a person.
    pub restorable: bool,
    /// The part each observation played, in the order given.
    pub roles: Vec<Role>,
}

/// The one place where a status is made.
pub fn judge(observations: &[Observation], intent: Option<&Intent>) -> Verdict {
    let mut evidence = Evidence::sort(observations);
    evidence.gone = evidence.proof();
    let (status, reason, deciding) = match (evidence.alive, evidence.gone) {
        (Some(alive), _) => living(&evidence, alive),
        (None, Some(gone)) => ended(&evidence, gone, intent),
        (None, None) => untold(&evidence),
    };
    let live = match (evidence.alive, evidence.gone) {
        (Some(_), _) => Some(true),
        (None, Some(_)) => Some(false),
        (None, None) => None,
    };
    let cut_off = live == Some(false)
        && status != Status::Stopped
        && evidence.left.is_none()
        && (evidence.all_told.is_some() || evidence.exit.is_none_or(|(_, exit)| exit.signal().is_some()));
    Verdict {
        status,
        reason,
        live,
        restorable: cut_off && intent.is_some_and(|i| i.want == Want::Run),
        roles: evidence.roles(status, &deciding),
    }
}

/// The observations by question, the strongest witness of each.
struct Evidence<'a> {
    all: &'a [Observation],
    alive: Option<usize>,
    gone: Option<usize>,
    unseen: Option<usize>,
    state: Option<(usize, &'a State)>,
    turn: Option<(usize, &'a Turn)>,
    unread: Option<usize>,
    mute: Option<usize>,
    asks: Option<(usize, &'a Ask)>,
    exit: Option<(usize, Exit)>,
    all_told: Option<usize>,
    left: Option<usize>,
    given: Option<usize>,
}

impl<'a> Evidence<'a> {
    fn sort(all: &'a [Observation]) -> Self {
        // Strongest witness first, then newest, then by what is said: so the
        // order in which observations arrive means nothing.
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by(|&a, &b| {
            let ((a, b), said) = ((&all[a], &all[b]), |o: &Observation| (o.fact.told(), o.source.clone()));
            (a.witness, b.at).cmp(&(b.witness, a.at)).then_with(|| said(a).cmp(&said(b)))
        });
        let mut found = Evidence {
            all,
            alive: None,
            gone: None,
            unseen: None,
            state: None,
            turn: None,
            unread: None,
            mute: None,
            asks: None,
            exit: None,
            all_told: None,
            left: None,
            given: None,
        };
        for i in order {
            match &all[i].fact {
                Fact::Alive { .. } => found.alive = found.alive.or(Some(i)),
                Fact::Gone(_) => found.gone = found.gone.or(Some(i)),
                Fact::Unseen(_) => found.unseen = found.unseen.or(Some(i)),
                Fact::State(State::Other(_)) | Fact::Answered(_) | Fact::Note(_) => {}
                Fact::State(state) => found.state = found.state.or(Some((i, state))),
                Fact::Turn(turn) => found.turn = found.turn.or(Some((i, turn))),
                Fact::TurnUnread(_) => found.unread = found.unread.or(Some(i)),
                Fact::Mute(_) => found.mute = found.mute.or(Some(i)),
                Fact::Asks(ask) => found.asks = found.asks.or(Some((i, ask))),
                Fact::Exit(exit) => found.exit = found.exit.or(Some((i, *exit))),
                Fact::AllTold => found.all_told = found.all_told.or(Some(i)),
                Fact::Left(_) => found.left = found.left.or(Some(i)),
                Fact::Given => found.given = found.given.or(Some(i)),
            }
        }
        found
    }

    /// What proves the end: not if a stronger witness says that it cannot be seen.
    fn proof(&self) -> Option<usize> {
        let witness = |i: usize| self.all[i].witness;
        self.gone.filter(|&gone| self.unseen.is_none_or(|unseen| witness(unseen) >= witness(gone)))
    }

    /// Whether the abort that is recorded there was the agent's answer when all were told to end.
    fn was_aborted_by_all(&self, i: usize) -> bool {
        let told = self.all_told.and_then(|told| self.all[told].at);
        told.zip(self.all[i].at).is_some_and(|(told, aborted)| aborted.0 >= told.0 - ALL_AT_ONCE)
    }

    /// Whether it was given something since that observation.
    fn given_after(&self, i: usize) -> bool {
        let given = self.given.and_then(|given| self.all[given].at);
        given.zip(self.all[i].at).is_some_and(|(given, at)| given > at)
    }

    fn told(&self, i: usize) -> Untrusted {
        self.all[i].fact.told()
    }

    fn roles(&self, status: Status, deciding: &[usize]) -> Vec<Role> {
        let role = |(i, o): (usize, &Observation)| {
            if deciding.contains(&i) {
                return Role::Decided;
            }
            let agrees = match &o.fact {
                Fact::Note(_)
                | Fact::Answered(_)
                | Fact::Given
                | Fact::Mute(_)
                | Fact::State(State::Other(_))
                | Fact::TurnUnread(_) => {
                    return Role::Context;
                }
                Fact::Alive { .. } => !status.ended() && status != Status::Unknown,
                Fact::Gone(_) => status.ended(),
                Fact::Unseen(_) => status == Status::Unknown,
                Fact::State(State::Busy) => matches!(status, Status::Working | Status::Starting),
                Fact::State(State::Waiting(_)) | Fact::Asks(_) => status == Status::Waiting,
                Fact::State(_) => status == Status::Idle,
                Fact::Turn(Turn::Never) => matches!(status, Status::Starting | Status::Idle | Status::Done),
                Fact::Turn(Turn::Open(_)) => {
                    matches!(status, Status::Working | Status::Waiting | Status::Interrupted | Status::Stopped)
                }
                Fact::Turn(Turn::Over(Outcome::Well)) => matches!(status, Status::Idle | Status::Done),
                Fact::Turn(Turn::Over(Outcome::Failed(_))) => matches!(status, Status::Idle | Status::Failed),
                Fact::Turn(Turn::Over(Outcome::Aborted(_))) => matches!(status, Status::Idle | Status::Stopped),
                Fact::Exit(_) | Fact::AllTold | Fact::Left(_) => status.ended(),
            };
            if agrees { Role::Agreed } else { Role::Disagreed }
        };
        self.all.iter().enumerate().map(role).collect()
    }
}

type Ruling = (Status, Untrusted, Vec<usize>);

fn living(e: &Evidence<'_>, alive: usize) -> Ruling {
    // What a hook asks stands until the agent itself has said something newer.
    let newer = |asked: usize| e.state.is_some_and(|(i, _)| e.all[i].at > e.all[asked].at);
    if let Some((i, ask)) = e.asks
        && e.all[i].witness == Witness::Hook
        && !newer(i)
    {
        return (Status::Waiting, ask.reason(), vec![alive, i]);
    }
    match (&e.state, &e.asks, &e.turn) {
        (Some((i, State::Waiting(what))), asks, _) => {
            let reason = asks.map_or_else(|| what.clone(), |(_, ask)| ask.reason());
            let mut deciding = vec![alive, *i];
            deciding.extend(asks.map(|(asked, _)| asked));
            (Status::Waiting, reason, deciding)
        }
        (Some((i, State::Busy)), _, turn) => {
            let doing = match turn {
                Some((_, Turn::Open(Some(doing)))) => doing.clone(),
                Some((_, Turn::Over(_))) => "busy since its last turn".into(),
                _ => "busy".into(),
            };
            (Status::Working, doing, vec![alive, *i])
        }
        // It stands at its prompt and can do nothing there until a person has seen to this.
        (Some((i, State::Idle | State::Shell)), Some((asked, ask)), _) if ask.kind.ends_a_turn() => {
            (Status::Waiting, ask.reason(), vec![alive, *asked, *i])
        }
        (Some((i, State::Shell)), _, _) => {
            (Status::Idle, "turn over, a background shell still runs".into(), vec![alive, *i])
        }
        // At its prompt, with one in its hands that no turn shows yet: that is not rest.
        (Some((i, State::Idle)), _, None | Some((_, Turn::Never))) if e.given.is_some() && e.unread.is_none() => {
            let deciding = [alive, *i].into_iter().chain(e.given);
            (Status::Starting, "its prompt is not taken up yet".into(), deciding.collect())
        }
        // Nor if the last turn was before that.
        (None | Some((_, State::Idle)), None, Some((_, Turn::Over(_)))) if e.given.is_some() => {
            let deciding = [alive].into_iter().chain(e.given);
            (Status::Starting, "its prompt is not taken up yet".into(), deciding.collect())
        }
        // Nor if one is open that was left before that.
        (Some((_, State::Idle)), _, Some((t, Turn::Open(_)))) if e.given_after(*t) => {
            let deciding = [alive].into_iter().chain(e.given);
            (Status::Starting, "its prompt is not taken up yet".into(), deciding.collect())
        }
        // It has just taken that up, and has not said so yet.
        (Some((i, State::Idle)), _, Some((t, Turn::Open(doing))))
            if e.given.is_some() && e.all[*i].at <= e.all[*t].at =>
        {
            let deciding = [alive, *t].into_iter().chain(e.given);
            (Status::Working, doing.clone().unwrap_or_else(|| "turn open".into()), deciding.collect())
        }
        (Some((i, _)), _, turn) => {
            let reason = match turn {
                Some((_, Turn::Over(outcome))) => at_rest(outcome),
                None if e.unread.is_some() => "at its prompt".into(),
                Some((_, Turn::Never)) | None => "no turn yet".into(),
                Some((_, Turn::Open(_))) => "at its prompt".into(),
            };
            (Status::Idle, reason, vec![alive, *i])
        }
        (None, Some((i, ask)), _) => (Status::Waiting, ask.reason(), vec![alive, *i]),
        (None, None, Some((i, Turn::Open(doing)))) => {
            (Status::Working, doing.clone().unwrap_or_else(|| "turn open".into()), vec![alive, *i])
        }
        (None, None, Some((i, Turn::Over(outcome)))) => (Status::Idle, at_rest(outcome), vec![alive, *i]),
        (None, None, Some((i, Turn::Never))) => {
            (Status::Starting, "alive, no turn recorded yet".into(), vec![alive, *i])
        }
        (None, None, None) => match (e.unread, e.mute) {
            (Some(i), _) => (Status::Unknown, e.told(i), vec![alive, i]),
            // No probe has failed, so it is not unknown; and nothing says that it rests.
            (None, Some(i)) => (Status::Starting, e.told(i), vec![alive, i]),
            (None, None) => {
                // What it goes on with may be on record.
                let read = e.all.iter().any(|o| o.witness == Witness::Store);
                let why = if read { "alive, nothing recorded since it started" } else { "alive, no native record yet" };
                (Status::Starting, why.into(), vec![alive])
            }
        },
    }
}

fn at_rest(outcome: &Outcome) -> Untrusted {
    match outcome {
        Outcome::Well => "turn over".into(),
        Outcome::Failed(error) => Untrusted::new(format!("last turn failed: {}", error.raw())),
        Outcome::Aborted(_) => "last turn was interrupted by a person".into(),
    }
}

fn ended(e: &Evidence<'_>, gone: usize, intent: Option<&Intent>) -> Ruling {
    let mut deciding = vec![gone];
    deciding.extend(e.exit.map(|(i, _)| i));
    let last_record = e.turn.and_then(|(i, _)| e.all[i].at);
    // A gateway says of each run whether it was aborted: one that came to an end of its own was not stopped.
    let came_to_its_end = |(i, turn): (usize, &Turn)| {
        e.all[i].witness == Witness::Gateway && matches!(turn, Turn::Over(Outcome::Well | Outcome::Failed(_)))
    };
    if let Some(intent) = intent.filter(|i| i.explains_end(last_record) && !e.turn.is_some_and(came_to_its_end)) {
        return (Status::Stopped, Untrusted::new(format!("stopped through lariat at {}", intent.at)), deciding);
    }
    // Who ends when all are told to was ended by that, whatever it made of it.
    deciding.extend(e.all_told);
    let exit = e.exit.map(|(_, exit)| exit);
    let dirty = exit.filter(|x| e.all_told.is_none() && *x != Exit::Code(0) && x.signal().is_none());
    let by = match e.all_told {
        Some(_) => Some("when all here were told to end".to_owned()),
        None => exit.and_then(Exit::signal).map(|n| format!("by signal {n}")),
    };
    // A registry frozen at busy since the last record: it died in a turn that
    // was not written down yet.
    let since = |i: usize| match (e.turn, e.unread) {
        (Some(_), _) => e.all[i].at > last_record,
        // What cannot be read may tell how that turn ended.
        (None, Some(unread)) => e.all[unread].at.is_some_and(|last| e.all[i].at > Some(last)),
        (None, None) => true,
    };
    let frozen = e.state.filter(|(i, state)| **state == State::Busy && since(*i));
    // And one frozen at rest since: what looks open was taken back, or its end was not written down yet.
    let rested = e.state.filter(|(i, state)| {
        matches!(state, State::Idle | State::Shell) && last_record.is_some() && e.all[*i].at > last_record
    });
    let (open, over) = (Turn::Open(None), Turn::Over(Outcome::Well));
    let turn = match (e.turn, frozen, rested) {
        (Some((i, Turn::Over(Outcome::Aborted(_)))), ..) if e.was_aborted_by_all(i) => Some((i, &open)),
        (Some((_, Turn::Over(_) | Turn::Never)) | None, Some((i, _)), _) => Some((i, &open)),
        (Some((_, Turn::Open(_))), _, Some((i, _))) => Some((i, &over)),
        (turn, ..) => turn,
    };
    if let (None, Some(mute)) = (&turn, e.mute) {
        // That it was asked to run and was ended by nobody's wish is certain; that all went well is not.
        deciding.push(mute);
        let (status, how) = match (exit, dirty) {
            _ if e.all_told.is_some() => (Status::Interrupted, "it ended when all here were told to end".to_owned()),
            (Some(Exit::Code(0)), _) => (Status::Done, "it exited with 0".to_owned()),
            (_, Some(exit)) => (Status::Failed, format!("it exited with {exit}")),
            (Some(exit), None) => (Status::Interrupted, format!("it was ended by {exit}")),
            (None, None) => (Status::Interrupted, "nobody saw how it ended".to_owned()),
        };
        return (status, Untrusted::new(format!("{how}; {}", e.told(mute).raw())), deciding);
    }
    let Some((i, turn)) = &turn else {
        return match e.unread {
            Some(unread) => (Status::Unknown, e.told(unread), vec![gone, unread]),
            None => match dirty {
                Some(exit) => (Status::Failed, format!("exited with {exit} before any turn").into(), deciding),
                None => (Status::Done, cut_off("ended before any turn was recorded", by), deciding),
            },
        };
    };
    deciding.push(*i);
    let (status, reason) = match (turn, dirty, by) {
        (Turn::Open(_), _, _) if e.left.is_some() => {
            let left = e.left.unwrap_or(*i);
            deciding.push(left);
            (Status::Stopped, e.told(left))
        }
        (Turn::Over(Outcome::Aborted(how)), _, _) => (Status::Stopped, how.clone()),
        (Turn::Over(Outcome::Failed(error)), _, _) => (Status::Failed, error.clone()),
        (Turn::Open(_), Some(exit), _) => {
            (Status::Failed, Untrusted::new(format!("exited with {exit} in the middle of a turn")))
        }
        (Turn::Open(doing), None, by) => {
            let during = doing.as_ref().map_or_else(String::new, |d| format!(" ({})", d.raw()));
            let by = by.map_or_else(String::new, |by| format!(" {by}"));
            (Status::Interrupted, Untrusted::new(format!("cut off in the middle of a turn{by}{during}")))
        }
        (Turn::Over(Outcome::Well) | Turn::Never, Some(exit), _) => {
            (Status::Failed, Untrusted::new(format!("exited with {exit} after its last turn")))
        }
        (Turn::Over(Outcome::Well), None, None) if e.left.is_some() => {
            let left = e.left.unwrap_or(*i);
            deciding.push(left);
            (Status::Done, e.told(left))
        }
        (Turn::Over(Outcome::Well), None, by) => (Status::Done, cut_off("turn over", by)),
        (Turn::Never, None, by) => (Status::Done, cut_off("no turn was ever started", by)),
    };
    (status, reason, deciding)
}

fn cut_off(reason: &'static str, by: Option<String>) -> Untrusted {
    by.map_or_else(|| reason.into(), |by| Untrusted::new(format!("{reason}; its process ended {by}")))
}

fn untold(e: &Evidence<'_>) -> Ruling {
    match e.unseen {
        Some(i) => (Status::Unknown, e.told(i), vec![i]),
        None => (Status::Unknown, "nothing was seen that tells if it lives".into(), Vec::new()),
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
