//! A session whose process was seen to end, judged without another look.
//!
//! What was observed of it stands, but for that its process lives: in its place stands
//! that this very process has ended, by the kernel's word. That is what a fresh look
//! would observe, as long as nothing else has changed: the caller must know that no
//! file has stirred since the look. Where more is needed to tell, there is no answer.

use lariat_core::{Fact, Observation, Session, Witness, judge};

use crate::records::Wish;

/// The session as it is now that its process has ended; `None` if that takes a look.
pub fn judged(session: &Session, wish: Option<&Wish>) -> Option<Box<Session>> {
    let pid = session.pid?;
    let tied = |o: &Observation| matches!(o.fact, Fact::Alive { .. });
    let bonds: Vec<&Observation> = session.because.iter().map(|(_, o)| o).filter(|o| tied(o)).collect();
    // Only where the agent's own record names the process: that record now proves the
    // end. Of what we launched, the shim is just writing down how it ended.
    let by_record = matches!(bonds.as_slice(), [bond] if bond.witness == Witness::Registry);
    if !by_record || session.handle.is_some() || session.shared || session.live != Some(true) {
        return None;
    }
    let gone = |o: &Observation| Observation {
        fact: Fact::Gone(format!("process {pid} has ended").into()),
        witness: o.witness,
        at: o.at,
        source: o.source.clone(),
    };
    let observations = session.because.iter().map(|(_, o)| if tied(o) { gone(o) } else { o.clone() });
    // What it asked, it asks no longer.
    let observations: Vec<Observation> = observations.filter(|o| !matches!(o.fact, Fact::Asks(_))).collect();
    let verdict = judge(&observations, wish.map(|w| &w.intent));
    let mut because: Vec<_> = verdict.roles.into_iter().zip(observations).collect();
    because.sort_by_key(|(role, o)| (*role, o.witness));
    let mut ended = Box::new(session.clone());
    (ended.status, ended.reason, ended.live) = (verdict.status, verdict.reason, verdict.live);
    (ended.pid, ended.start, ended.tool, ended.restorable) = (None, None, None, false);
    ended.because = because;
    Some(ended)
}
