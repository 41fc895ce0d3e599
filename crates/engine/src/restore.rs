//! Bringing back what a crash or a reboot cut off, and nothing else.
//!
//! # Theory of operation
//!
//! What may come back is decided by [`lariat_core::judge`] alone: wanted running,
//! proven gone, and not ended by itself or by a person. Each is looked at again,
//! under a lock, right before it is started ([`crate::resume`]), so that nothing
//! comes back twice, and nothing that a person ended meanwhile.
//!
//! They are started one after the other, each seen to be back before the next. If
//! several in a row fail the same way, the cause is not theirs (no login, no
//! quota, no program): then the rest is left for later.

use lariat_adapters::look::{Places, Scope};
use lariat_adapters::settings::Settings;
use lariat_core::{Session, Want};

use crate::launch::running;
use crate::launched::{All, Launched};
use crate::list::{Question, list};
use crate::records::Wishes;
use crate::resume::{Again, Resumed, Way, place, resume, unasked, way};
use crate::start::LaunchError;

/// So many failures in a row have one cause.
const BRAKE: usize = 3;

/// One session that comes back.
#[derive(Clone, Debug)]
pub struct Step {
    /// The session.
    pub session: Box<Session>,
    /// How it will come back, or why it cannot.
    pub way: Result<Way, String>,
    /// What it will be told, if anything.
    pub said: Option<String>,
}

/// What would be brought back, and what not.
#[derive(Debug, Default)]
pub struct Plan {
    /// Those that come back, longest gone first.
    pub steps: Vec<Step>,
    /// Those that were wanted once and do not, with the reason.
    pub others: Vec<(Box<Session>, String)>,
    /// Something could not be told: there may be more.
    pub partial: bool,
}

/// How it went with one of them.
#[derive(Debug)]
pub enum Outcome {
    /// It is back.
    Back(Resumed),
    /// It is not.
    Failed(LaunchError),
    /// It was not tried, and why.
    Left(String),
    /// There was nothing left to do: another brought it back meanwhile, or a person ended it.
    Settled(String),
}

/// Makes the plan. `kept` leaves only what is to be brought back without asking.
pub fn plan(question: &Question, kept: bool) -> Plan {
    let places = &question.places;
    let answer = list(Question { scope: Scope::All, ..question.clone() });
    let mut launched = All::read(places).by_id;
    let wishes = Wishes::read(places);
    let mut plan = Plan { partial: answer.partial, ..Plan::default() };
    for session in answer.listing.sessions {
        let Some(mut folder) = launched.remove(session.id.raw()) else { continue };
        folder.hear_of(places);
        plan.partial |= session.live.is_none();
        if session.restorable && (session.kept || !kept) {
            let there = place(places, &folder.record.launch.cwd, Some(&folder)).map_err(|e| e.to_string());
            let way = there.and_then(|_| way(places, &session, Some(&folder)));
            let said = way.as_ref().ok().and_then(|way| unasked(&session, &folder.record.ask, *way));
            plan.steps.push(Step { session, way, said });
        } else if session.live != Some(true) {
            let want = wishes.by_id.get(session.id.raw()).map(|w| w.intent.want);
            let why = why_not(&session, &folder, want);
            plan.others.push((session, why));
        }
    }
    plan.steps.sort_by_key(|s| (s.session.updated_at, s.session.id.clone()));
    plan
}

/// Why one would not be brought back though it was cut off, if that is so.
pub fn cannot(places: &Places, session: &Session) -> Option<String> {
    let mut launched = All::read(places).take(session)?;
    launched.hear_of(places);
    way(places, session, Some(&launched)).err()
}

fn why_not(session: &Session, launched: &Launched, want: Option<Want>) -> String {
    match session.live {
        None => format!("it cannot be told if it lives: {}", session.reason.row()),
        _ if session.restorable => "it is not marked to be kept".into(),
        _ if want == Some(Want::Stop) => "a person ended it".into(),
        _ if launched.exit.is_some() => format!("it ended by itself: {}", session.reason.row()),
        _ => session.reason.row(),
    }
}

/// Carries a plan out; `tell` hears of each as it is done.
pub fn restore(
    question: &Question,
    plan: Plan,
    max: Option<usize>,
    force: bool,
    mut tell: impl FnMut(&Session, &Outcome),
) -> Vec<(Box<Session>, Outcome)> {
    let max = max.or_else(|| Settings::read(&question.places).max);
    let mut done: Vec<(Box<Session>, Outcome)> = Vec::new();
    let mut failing: (usize, String) = (0, String::new());
    for step in plan.steps {
        let full = max.filter(|max| running(question, None).len() >= *max);
        let outcome = match (full, &step.way) {
            _ if failing.0 >= BRAKE => {
                Outcome::Left(format!("{BRAKE} in a row failed ({}), so the rest was left", failing.1))
            }
            (Some(max), _) => Outcome::Left(format!("{max} sessions run already, and {max} is the limit")),
            (None, Err(why)) => Outcome::Left(why.clone()),
            (None, Ok(_)) => {
                let again = Again { force, cut_off: true, ..Again::default() };
                match resume(question, step.session.id.raw(), &again) {
                    Ok(back) => Outcome::Back(back),
                    Err(e @ LaunchError::Settled(..)) => Outcome::Settled(e.to_string()),
                    Err(e) if e.is_refusal() => Outcome::Left(e.to_string()),
                    Err(e) => Outcome::Failed(e),
                }
            }
        };
        failing = match &outcome {
            Outcome::Failed(e) => {
                let cause = cause(e);
                let before = if failing.1 == cause { failing.0 } else { 0 };
                (before + 1, cause)
            }
            Outcome::Back(_) => (0, String::new()),
            Outcome::Left(_) | Outcome::Settled(_) => failing,
        };
        tell(&step.session, &outcome);
        done.push((step.session, outcome));
    }
    done
}

/// What failures have in common when they have one cause.
fn cause(error: &LaunchError) -> String {
    match error {
        LaunchError::NoProgram(program) => format!("{program} is not on PATH"),
        LaunchError::Died(agent, how, _) => format!("{agent} ended at once, {how}"),
        LaunchError::NoId(agent, ..) => format!("{agent} shows no session"),
        LaunchError::Files(path, _) => format!("{} cannot be written", path.display()),
        LaunchError::Start(_) => "no shim could be started".into(),
        other => other.to_string(), // of that session alone
    }
}
