//! Which sessions are shown: words that must be there, and statuses.
//!
//! `s:waiting` shows what waits, `s:idle,working` two kinds; any other word must
//! stand somewhere in what is known of a session. A beginning is enough.

use lariat_core::{Session, Status, Untrusted};

use crate::table::{self, Group};

/// A filter, read.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Filter {
    words: Vec<String>,
    statuses: Vec<String>,
}

impl Filter {
    pub fn read(text: &str) -> Filter {
        let mut filter = Filter::default();
        for word in text.split_whitespace().map(str::to_lowercase) {
            match word.strip_prefix("s:") {
                Some(list) => filter.statuses.extend(list.split(',').filter(|w| !w.is_empty()).map(str::to_owned)),
                None => filter.words.push(word),
            }
        }
        filter
    }

    pub fn is_empty(&self) -> bool {
        *self == Filter::default()
    }

    /// Whether it names a status of what has ended: then those are looked for, as `ls --status` does.
    pub fn wants_ended(&self) -> bool {
        let ended = |word: &&Status| word.ended();
        let named = |status: &Status| self.statuses.iter().any(|s| status.word().starts_with(s.as_str()));
        Status::ALL.iter().filter(ended).any(named) || self.statuses.iter().any(|s| "ended".starts_with(s.as_str()))
    }

    pub fn fits(&self, session: &Session) -> bool {
        let group = Group::of(session).heading().to_lowercase().replace(' ', "");
        let status = |s: &String| session.status.word().starts_with(s.as_str()) || group.starts_with(s.as_str());
        if !self.statuses.is_empty() && !self.statuses.iter().any(status) {
            return false;
        }
        let of = |text: &Option<Untrusted>| text.as_ref().map(|t| t.raw().to_lowercase()).unwrap_or_default();
        let known = || {
            [
                table::called(session).to_lowercase(),
                session.id.raw().to_lowercase(),
                session.reason.raw().to_lowercase(),
                session.group.clone().unwrap_or_default().to_lowercase(),
                session.status.word().to_owned(),
                of(&session.name),
                of(&session.title),
                of(&session.prompt),
                of(&session.model),
                of(&session.cwd),
                of(&session.branch),
            ]
        };
        self.words.is_empty() || {
            let known = known();
            self.words.iter().all(|word| known.iter().any(|text| text.contains(word)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_words_and_statuses() {
        let filter = Filter::read("Proj s:waiting,id  main");
        assert_eq!(filter.words, ["proj", "main"]);
        assert_eq!(filter.statuses, ["waiting", "id"]);
        assert!(!filter.wants_ended() && !Filter::read("s:").wants_ended());
        assert!(Filter::read("s:don").wants_ended() && Filter::read("s:ended").wants_ended());
        assert!(Filter::read(" s: ").is_empty());
    }
}
