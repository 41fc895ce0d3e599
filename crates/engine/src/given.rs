//! What a launched agent was given, when it was started or a moment ago, and whether it may not have taken that up yet.
//!
//! An agent that has just come up, or was just told something, stands at its prompt for a moment, with something to do.
//! Nothing here says what it does instead: that something was given is one observation among others.

use std::path::Path;

use lariat_adapters::look::Sighting;
use lariat_adapters::talk::Speaker;
use lariat_core::{Fact, Observation, State, Time, Turn};
use lariat_shim::record::Shim;

use crate::launched::Launched;
use crate::peek;
use crate::send::plain;

/// How long after its start an agent may still be about to take up its prompt.
const TAKING_UP: u64 = 15_000;
/// How long after something was typed its terminal may still say that it rests.
const TOLD: u64 = 1000;

impl Launched {
    /// Whether it was started with something to do, and so lately that it may not have
    /// taken it up.
    pub fn may_not_have_begun(&self, now: Time) -> bool {
        let lately = |s: &Shim| s.started_at.is_near(now, TAKING_UP);
        self.record.prompted && self.exit.is_none() && self.shim.as_ref().is_some_and(lately)
    }

    /// When it was given what it may not have taken up yet, if that is so.
    pub(crate) fn given_at(&self, now: Time, sighting: &Sighting) -> Option<Time> {
        let at = self.started_with(now, sighting).or_else(|| self.typed_at(now, sighting))?;
        (!is_done(at, sighting)).then_some(at)
    }

    /// When a prompt was typed that is on record, and of which its terminal does not show anything yet. (What an agent
    /// starts for itself after an answer makes no turn of what was typed before.)
    fn typed_at(&self, now: Time, sighting: &Sighting) -> Option<Time> {
        let says = |test: fn(&Fact) -> bool| sighting.observations.iter().any(|o| test(&o.fact));
        let rests =
            says(|f| matches!(f, Fact::State(State::Idle))) && says(|f| matches!(f, Fact::Turn(Turn::Open(None))));
        let transcript = sighting.transcript.as_deref().filter(|_| rests)?;
        let at = self.adapter()?.typed_at(transcript, &self.record.launch.argv)?;
        let taken = sighting.about.turn_at.is_some_and(|turn| turn >= at);
        (taken && at.is_near(now, TOLD)).then_some(at)
    }

    /// When it was started with something to do, if that was a moment ago.
    fn started_with(&self, now: Time, sighting: &Sighting) -> Option<Time> {
        // What it was given is not for one that it has gone on to.
        let own = self.record.native_id.as_deref().is_none_or(|id| id == sighting.native_id);
        let at = self.shim.as_ref().filter(|_| own && self.may_not_have_begun(now))?.started_at;
        // The turn that is open is the one of what was given, as a rule; it is read only where it could be another's.
        let says = |test: fn(&Fact) -> bool| sighting.observations.iter().any(|o| test(&o.fact));
        let unclear =
            says(|f| matches!(f, Fact::State(State::Idle))) && says(|f| matches!(f, Fact::Turn(Turn::Open(_))));
        let another = |transcript: &Path| self.is_followed_by_another(at, transcript);
        (!unclear || !sighting.transcript.as_deref().is_some_and(another)).then_some(at)
    }

    /// Whether its transcript shows what it was given, and another prompt after that: of another process of the session,
    /// or a later one of its own. What cannot be read shows nothing.
    fn is_followed_by_another(&self, given_at: Time, transcript: &Path) -> bool {
        let plain = |text: &str| plain(text).trim_matches('"').to_owned();
        let Some(given) = self.record.ask.prompt.as_deref().map(plain) else { return false };
        let Ok(talk) = peek::last_prompts(&self.record.agent, transcript, 2) else { return false };
        let since = talk.said.iter().filter(|s| s.who == Speaker::Person && s.at.is_some_and(|at| at >= given_at));
        let prompts: Vec<String> = since.map(|s| plain(s.text.raw())).collect();
        matches!(prompts.as_slice(), [earlier @ .., last] if *last != given && earlier.contains(&given))
    }
}

/// Whether a turn that began since is over, and so what was given then. An agent that takes a session up may write into
/// it before its turn begins: when that began counts, where it is known. In a copy that no turn has begun in, what is over
/// was over before: Codex writes so into that of a thread that was cut off, as it makes it.
fn is_done(at: Time, sighting: &Sighting) -> bool {
    let about = &sighting.about;
    if about.parent.is_some() && about.turn_at.is_none() {
        return false;
    }
    let over = |o: &&Observation| matches!(o.fact, Fact::Turn(Turn::Over(_)));
    let began = |o: &Observation| about.turn_at.or(o.at);
    sighting.observations.iter().filter(over).any(|o| began(o).is_none_or(|began| began >= at))
}

#[cfg(test)]
mod tests {
    use lariat_adapters::look::About;
    use lariat_core::{Outcome, Witness};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test's own folder")]
    fn what_was_typed_this_second_was_given_to_a_terminal_that_says_it_rests() {
        let id = "11111111-1111-4111-8111-111111111111";
        let project = std::env::temp_dir().join(format!("lariat-given-{}", std::process::id()));
        std::fs::create_dir_all(project.join("chats")).expect("a folder");
        let entry = serde_json::json!([{"sessionId": id, "messageId": 0, "type": "user", "message": "/zzz",
            "timestamp": "2026-11-15T08:00:00.000Z"}]);
        std::fs::write(project.join("logs.json"), entry.to_string()).expect("what was typed");
        let record = serde_json::json!({"version": 1, "handle": "h", "argv": ["gemini", "--session-id", id], "cwd": "/",
            "headless": false, "socket": "/s", "agent": "gemini", "native_id": id, "group": null,
            "created_at": "2026-11-15T07:00:00Z"});
        let launched = Launched {
            folder: project.clone(),
            record: serde_json::from_value(record).expect("a record"),
            shim: None,
            starting: Ok(false),
            exit: None,
            described: None,
            unread: Vec::new(),
        };
        let typed = Time::parse("2026-11-15T08:00:00Z").expect("a time");
        let given = |state: State, doing: Option<&'static str>, began: i64, later: i64| {
            let turn = Observation::new(Witness::Store, Fact::Turn(Turn::Open(doing.map(Into::into))));
            let observations = vec![Observation::new(Witness::Shim, Fact::State(state)), turn];
            let transcript = Some(project.join("chats/session.jsonl"));
            let about = About { turn_at: Some(Time(typed.0 + began)), ..About::default() };
            launched
                .given_at(Time(typed.0 + later), &Sighting { observations, transcript, about, ..Sighting::default() })
        };
        // It may have been typed while the question was being answered.
        assert_eq!([30, -30].map(|later| given(State::Idle, None, 10, later)), [Some(typed); 2]);
        let told = TOLD.cast_signed();
        assert_eq!([told, -told].map(|later| given(State::Idle, None, 10, later)), [None; 2]);
        assert_eq!(given(State::Busy, None, 10, 30), None);
        // It was a command, and the turn that is open is another's; or something runs that is none of a turn's.
        assert_eq!((given(State::Idle, None, -10, 30), given(State::Idle, Some("a tool"), 10, 30)), (None, None));
        std::fs::remove_dir_all(project).expect("our folder");
    }

    #[test]
    fn what_an_earlier_life_came_to_is_not_what_was_given_now() {
        let of = |parent: Option<&str>, turn: Turn, at: Option<i64>, turn_at: Option<i64>| {
            let turn = Observation::new(Witness::Store, Fact::Turn(turn)).at(at.map(Time));
            let parent = parent.map(str::to_owned);
            let about = About { turn_at: turn_at.map(Time), parent, ..About::default() };
            is_done(Time(5), &Sighting { observations: vec![turn], about, ..Sighting::default() })
        };
        let told = |turn: Turn, at, turn_at| of(None, turn, at, turn_at);
        let over = || Turn::Over(Outcome::Well);
        assert_eq!([told(over(), Some(4), None), told(over(), Some(6), None)], [false, true]);
        assert!(!told(over(), Some(6), Some(4)), "it was written into before its turn began");
        assert!(told(over(), Some(6), Some(5)) && told(over(), None, None));
        assert!(!told(Turn::Open(None), Some(6), Some(6)) && !told(Turn::Never, None, None));
        // What is written into the copy of one that was cut off, as it is made.
        let aborted = || Turn::Over(Outcome::Aborted("turn aborted: interrupted".into()));
        let copy = |turn_at| of(Some("codex:parent"), aborted(), Some(6), turn_at);
        assert_eq!((copy(None), copy(Some(5)), told(aborted(), Some(6), None)), (false, true, true));
    }
}
