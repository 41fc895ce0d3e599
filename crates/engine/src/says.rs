//! What a launched agent says in its output: on its terminal, or, of a headless one, in its files.
//!
//! The last of it is read, and the agent's adapter knows what it means. It counts only where the agent's store does not
//! tell: what a program draws is no record.

use std::io;
use std::path::Path;

use lariat_adapters::Adapter;
use lariat_adapters::look::Sighting;
use lariat_core::{Exit, Fact, Observation, Outcome, Session, State, Turn, Untrusted};
use lariat_shim::ring::Output;
use lariat_sys::file;

use crate::launched::Launched;

/// How much of a terminal's output is looked at first for what its agent says of itself.
const FIRST_LOOK: u64 = 64 << 10;

impl Launched {
    /// What is known of the last turn of one that has ended, besides what its store tells: `told_nothing` is whether that
    /// tells nothing at all, `exit` how it ended, if anybody saw that it did.
    pub(crate) fn last_turn(
        &self,
        exit: Option<Option<Exit>>,
        told_nothing: bool,
        sighting: &Sighting,
    ) -> Option<Fact> {
        let said = exit.and_then(|_| self.left(sighting)).or_else(|| self.turn(told_nothing));
        said.or_else(|| match self.was_cut_off_untold(exit.flatten(), sighting) {
            Ok(false) => None,
            Ok(true) => Some(Fact::Turn(Turn::Open(Some("nothing of it was recorded".into())))),
            Err(e) => Some(Fact::TurnUnread(format!("what it told of itself: {e}").into())),
        })
    }

    /// What its output tells of a turn that did not end well, and that its store may not show.
    fn left(&self, sighting: &Sighting) -> Option<Fact> {
        if !self.record.launch.headless {
            let at_work = self.says().filter(|state| matches!(state, State::Busy | State::Waiting(_)));
            return at_work.map(|_| Fact::State(State::Busy));
        }
        let adapter = self.adapter()?;
        let failed = |turn: &Turn| matches!(turn, Turn::Over(Outcome::Failed(_) | Outcome::Aborted(_)));
        let shown = sighting.observations.iter().any(|o| matches!(&o.fact, Fact::Turn(turn) if failed(turn)));
        self.by_stdout(|last| adapter.left_in_output(last).filter(|turn| !(shown && failed(turn))))
    }

    /// How its turn stands by what a headless one writes. It counts only where nobody else tells: of one that is not stored.
    pub(crate) fn turn(&self, told_nothing: bool) -> Option<Fact> {
        let adapter = self.adapter().filter(|_| self.record.launch.headless && told_nothing)?;
        self.by_stdout(|last| adapter.turn_in_output(last))
    }

    /// What the last that a headless one wrote tells of its turn. A file that cannot be read is none that says nothing.
    fn by_stdout(&self, tells: impl FnOnce(&[u8]) -> Option<Turn>) -> Option<Fact> {
        match file::tail(&self.folder.join("stdout"), FIRST_LOOK) {
            Ok(last) => tells(&last).map(Fact::Turn),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => Some(Fact::TurnUnread(format!("its output: {e}").into())),
        }
    }

    /// Whether it was at a prompt and cut off before anything was recorded of it: not every agent writes before its
    /// first answer. On a terminal a person may have taken the prompt back, which leaves a record.
    fn was_cut_off_untold(&self, how: Option<Exit>, sighting: &Sighting) -> io::Result<bool> {
        let own = self.record.native_id.as_deref().is_none_or(|id| id == sighting.native_id);
        let cut_off =
            self.shim.is_some() && sighting.process.is_none() && how.is_none_or(|exit| exit.signal().is_some());
        let tells = |o: &Observation| match &o.fact {
            Fact::Turn(turn) => *turn != Turn::Never,
            fact => matches!(fact, Fact::TurnUnread(_) | Fact::Mute(_)),
        };
        let silent = self.record.launch.headless || sighting.transcript.is_none();
        if !own || !cut_off || !silent || sighting.observations.iter().any(tells) {
            return Ok(false);
        }
        // What was typed, by `send` or by a person, is in no record of ours.
        let was_at_work = |a: &dyn Adapter| a.was_at_work(&self.folder, &sighting.native_id);
        Ok(self.record.prompted || self.adapter().map_or(Ok(false), was_at_work)?)
    }

    /// What its agent says of itself on its terminal, now or when it ended.
    pub fn says(&self) -> Option<State> {
        let adapter = self.speaker()?;
        let output = Output::open(&self.folder).ok()?;
        let mut most = FIRST_LOOK;
        loop {
            let last = self.last_of_this_run(&output, most)?;
            let said = adapter.state_in_output(&last, &self.record.launch.argv);
            if said.is_some() || (last.len() as u64) < most || most >= adapter.tells_within() {
                return said;
            }
            most *= 4;
        }
    }

    /// What its agent asks on its terminal before it listens to anything else.
    /// `untold` is whether nothing else tells what it does.
    pub(crate) fn asks(&self, untold: bool) -> Option<lariat_core::Ask> {
        let first = || self.adapter().filter(|a| untold && a.asks_first() && !self.record.launch.headless);
        let adapter = self.speaker().or_else(first)?;
        let last = self.last_of_this_run(&Output::open(&self.folder).ok()?, FIRST_LOOK)?;
        adapter.asks_in_output(&last)
    }

    /// Its adapter, if its terminal tells what nothing else does: there may be many, and much on each.
    fn speaker(&self) -> Option<&'static dyn Adapter> {
        self.adapter().filter(|adapter| !self.record.launch.headless && adapter.tells_within() > 0)
    }

    /// Whether its terminal shows another place than this session.
    pub fn shows_another_place(&self, session: &Session) -> bool {
        let tells = |adapter: &&dyn Adapter| adapter.tells_where() && !self.record.launch.headless;
        let Some(adapter) = self.adapter().filter(tells) else { return false };
        let all = Output::open(&self.folder).ok().and_then(|output| self.last_of_this_run(&output, u64::MAX));
        let title = session.title.as_ref().map(Untrusted::raw);
        all.is_some_and(|all| adapter.is_elsewhere_in_output(&all, title, &self.record.launch.argv))
    }

    /// Takes what a person has put aside on its terminal for no question any more.
    pub(crate) fn put_aside(&self, observations: &mut [Observation]) {
        let Some(adapter) = self.adapter().filter(|_| !self.record.launch.headless) else { return };
        for seen in observations {
            let Fact::Asks(ask) = &seen.fact else { continue };
            let last = Output::open(&self.folder).ok().and_then(|o| self.last_of_this_run(&o, FIRST_LOOK));
            if last.is_some_and(|last| adapter.put_aside_in_output(ask, &last)) {
                seen.fact = Fact::Note(format!("{}, which was put aside on its terminal", ask.reason().raw()).into());
            }
        }
    }

    /// The last bytes of its terminal, without those of an earlier run: a resumed agent goes on in the same files.
    fn last_of_this_run(&self, output: &Output, most: u64) -> Option<Vec<u8>> {
        let mut last = output.tail(most).ok()?;
        let from = self.shim.as_ref().map_or(0, |s| s.output_from);
        let earlier = usize::try_from(from.saturating_sub(last.at)).unwrap_or(usize::MAX);
        last.bytes.drain(..earlier.min(last.bytes.len()));
        Some(last.bytes)
    }
}

/// What an agent that is being launched asks on its terminal before it begins any session.
pub(crate) fn before_any(folder: &Path, adapter: &dyn Adapter) -> Option<&'static str> {
    let launched = Launched::read(folder).ok()?.filter(|launched| launched.shim.is_some())?;
    adapter.asks_before_any(&launched.last_of_this_run(&Output::open(folder).ok()?, FIRST_LOOK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test's own folder")]
    fn an_output_that_cannot_be_read_is_none_that_says_nothing() {
        let folder = std::env::temp_dir().join(format!("lariat-says-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let record = serde_json::json!({"version": 1, "handle": "h", "argv": ["codex"], "cwd": "/", "headless": true,
            "socket": "/s", "agent": "codex", "native_id": "n", "group": null, "created_at": "2026-11-15T08:00:00Z"});
        std::fs::write(folder.join("launch.json"), record.to_string()).expect("a record");
        let launched = Launched::read(&folder).expect("it can be read").expect("it was launched");
        let seen = || [launched.turn(true), launched.last_turn(Some(None), true, &Sighting::default())];
        assert_eq!(seen(), [None, None], "nothing was written");
        std::fs::write(folder.join("stdout"), "{\"type\":\"turn.started\"}\n").expect("some output");
        assert!(seen().iter().all(|fact| matches!(fact, Some(Fact::Turn(Turn::Open(_))))), "{:?}", seen());
        std::fs::remove_file(folder.join("stdout")).expect("it was there");
        std::fs::create_dir(folder.join("stdout")).expect("what cannot be read");
        assert!(seen().iter().all(|fact| matches!(fact, Some(Fact::TurnUnread(_)))), "{:?}", seen());
        assert_eq!(launched.turn(false), None, "its store tells");
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
