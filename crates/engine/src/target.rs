//! Which session a person means.
//!
//! A target is a handle, a name, the agent's own id (with or without the
//! agent), a unique prefix of one or of its last part, or a directory. What fits
//! several is an error that lists them; nothing is ever chosen for being the
//! newest. What is written as a path means a directory, whatever a session calls itself.

use std::path::{Path, absolute};

use lariat_core::Session;
use lariat_sys::file;

/// A target that is not one session.
#[derive(Debug, thiserror::Error)]
pub enum NotOne {
    /// It fits none.
    #[error("no session fits '{0}'")]
    None(String),
    /// It fits several.
    #[error("'{target}' fits {} sessions", .candidates.len())]
    Several {
        /// What was asked.
        target: String,
        /// Those that fit, as places in the list.
        candidates: Vec<usize>,
    },
}

/// Finds the one session that a target means; its place in the list.
pub fn resolve(target: &str, sessions: &[Box<Session>]) -> Result<usize, NotOne> {
    let target = target.strip_prefix("claude-code:").map_or_else(|| target.to_owned(), |rest| format!("claude:{rest}"));
    let lower = target.to_ascii_lowercase();
    // An id beats a name that imitates it: names are chosen by agents too.
    let rules: [&dyn Fn(&Session) -> bool; 5] = [
        &|s| has_id(s, &[&lower, &target], str::eq) || s.handle.as_deref() == Some(&target),
        &|s| s.name.as_ref().is_some_and(|n| n.raw() == target),
        &|s| {
            has_id(s, &[&lower, &target], |id, start| id.starts_with(start))
                || s.handle.as_deref().is_some_and(|h| h.starts_with(&target))
        },
        &|s| tail(s.native_id.raw()).starts_with(&lower),
        &|s| s.name.as_ref().is_some_and(|n| n.raw().starts_with(&target)),
    ];
    let [whole, named, ..] = rules;
    let by = |rule| one(&target, sessions, rule);
    let here = || in_directory(&target, sessions);
    let found = match target.as_str() {
        "" => None,
        // `kill .` must never reach one that stands elsewhere and is called `.github`.
        "." | ".." => here(),
        path if ["/", "./", "../"].iter().any(|start| path.starts_with(start)) => {
            by(whole).or_else(here).or_else(|| by(named))
        }
        _ => rules.into_iter().find_map(by).or_else(here),
    };
    found.unwrap_or(Err(NotOne::None(target)))
}

/// Whether a target is the whole id or handle of a session, so that it can mean no other.
pub fn is_whole(target: &str, session: &Session) -> bool {
    session.is(target) || session.native_id.raw() == target || session.handle.as_deref() == Some(target)
}

/// The part of an id that tells it from its like: what follows the last colon of
/// a key such as `agent:main:dashboard:e01d…`, all of any other id.
pub fn tail(native_id: &str) -> &str {
    native_id.rsplit(':').next().unwrap_or(native_id)
}

/// Whether one of its ids fits one of these spellings: some agents' ids have capitals.
fn has_id(session: &Session, spellings: &[&str], fits: fn(&str, &str) -> bool) -> bool {
    let ids = [Some(&session.native_id), Some(&session.id), session.also.as_ref()];
    ids.into_iter().flatten().any(|id| spellings.iter().any(|s| fits(id.raw(), s)))
}

fn one(target: &str, sessions: &[Box<Session>], fits: &dyn Fn(&Session) -> bool) -> Option<Result<usize, NotOne>> {
    let candidates: Vec<usize> = (0..sessions.len()).filter(|i| fits(&sessions[*i])).collect();
    match candidates.as_slice() {
        [] => None,
        [only] => Some(Ok(*only)),
        _ => Some(Err(NotOne::Several { target: target.to_owned(), candidates })),
    }
}

/// The session in a directory: the one that lives, or the only one there is.
fn in_directory(target: &str, sessions: &[Box<Session>]) -> Option<Result<usize, NotOne>> {
    if !(target.starts_with(['.', '/']) || target.contains('/')) {
        return None;
    }
    let path = absolute(target).ok()?;
    let path = path.canonicalize().unwrap_or(path);
    // Some are called by a link that leads there.
    let place = file::place(&path).ok();
    let is_it = |cwd: &Path| cwd == path || place.is_some() && file::place(cwd).ok() == place;
    let here = |s: &Session| s.cwd.as_ref().is_some_and(|c| is_it(Path::new(c.raw())));
    let live = |s: &Session| here(s) && s.live != Some(false);
    one(target, sessions, &live).or_else(|| one(target, sessions, &here))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lariat_core::Status;

    fn session(native: &'static str, name: Option<&'static str>, cwd: &'static str, live: bool) -> Box<Session> {
        Box::new(Session {
            id: format!("claude:{native}").into(),
            agent: "claude",
            native_id: native.into(),
            handle: None,
            name: name.map(Into::into),
            host: None,
            status: if live { Status::Idle } else { Status::Done },
            reason: "".into(),
            live: Some(live),
            pid: None,
            cwd: Some(cwd.into()),
            branch: None,
            model: None,
            title: None,
            prompt: None,
            started_at: None,
            updated_at: None,
            ended_at: None,
            exit: None,
            tokens: None,
            cost_usd: None,
            group: None,
            kept: false,
            restorable: false,
            tool: None,
            parent: None,
            because: Vec::new(),
            transcript: None,
            start: None,
            shared: false,
            elsewhere: false,
            also: None,
            teller: None,
        })
    }

    #[test]
    fn s19_a_shared_prefix_is_an_error_that_lists_both() {
        let sessions = [session("aaaa1111", None, "/a", true), session("aaaa2222", None, "/b", false)];
        match resolve("aaaa", &sessions) {
            Err(NotOne::Several { candidates, .. }) => assert_eq!(candidates, [0, 1]),
            other => panic!("{other:?}"),
        }
        assert_eq!(resolve("aaaa2", &sessions).unwrap(), 1);
        assert_eq!(resolve("claude:aaaa1111", &sessions).unwrap(), 0);
        assert_eq!(resolve("claude-code:aaaa1111", &sessions).unwrap(), 0);
        assert!(matches!(resolve("b", &sessions), Err(NotOne::None(_))));
        assert!(matches!(resolve("", &sessions), Err(NotOne::None(_))));
    }

    #[test]
    fn a_whole_id_beats_being_a_prefix_and_a_name_counts() {
        let sessions = [session("aa", None, "/a", true), session("aab", Some("fix-login"), "/a", false)];
        assert_eq!(resolve("aa", &sessions).unwrap(), 0);
        assert_eq!(resolve("fix-login", &sessions).unwrap(), 1);
        assert_eq!(resolve("fix", &sessions).unwrap(), 1);
    }

    #[test]
    fn a_directory_means_the_one_that_lives_there() {
        let sessions =
            [session("aa", None, "/", true), session("bb", None, "/", false), session("cc", None, "/proc", false)];
        assert_eq!(resolve("/", &sessions).unwrap(), 0);
        assert_eq!(resolve("/proc", &sessions).unwrap(), 2);
        assert!(matches!(resolve("/no/such", &sessions), Err(NotOne::None(_))));
    }

    #[test]
    fn a_path_is_a_directory_whatever_sessions_are_called() {
        let sessions = [
            session("aa", Some("."), "/no/such", true),
            session("bb", Some("/proc"), "/no/such", true),
            session("cc", Some(".github"), "/no/such", true),
            session("dd", None, "/proc", true),
            session("ee", Some("/review"), "/no/such", true),
        ];
        assert!(matches!(resolve(".", &sessions), Err(NotOne::None(_))));
        assert!(matches!(resolve("..", &sessions), Err(NotOne::None(_))));
        assert!(matches!(resolve("/", &sessions), Err(NotOne::None(_))), "no name is meant by its beginning");
        assert_eq!(resolve("/proc", &sessions).unwrap(), 3);
        assert_eq!(resolve("/review", &sessions).unwrap(), 4);
        assert_eq!(resolve(".git", &sessions).unwrap(), 2);
    }
}
