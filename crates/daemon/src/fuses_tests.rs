//! When a fuse has burnt down, and when it cannot be told.

#![allow(clippy::vec_box, reason = "a listing has them so")]

use lariat_core::session::Hidden;
use lariat_core::{Status, Tokens};

use super::*;
use crate::changes::tests::session;

fn listing(sessions: Vec<Box<Session>>) -> Listing {
    Listing { schema: 1, at: Time(0), sessions, unbound: Vec::new(), warnings: Vec::new(), hidden: Hidden::default() }
}

fn fuse(limit: Limit) -> Fuse {
    Fuse {
        id: "f".into(),
        on: On::Session("claude:a".into()),
        limit,
        then: "stop".into(),
        run: None,
        by: "eve".into(),
        at: Time(0),
        warned_at: None,
        fired_at: None,
        outcome: None,
    }
}

fn working(change: impl FnOnce(&mut Session)) -> Listing {
    let mut one = session("a", Status::Working, "");
    change(&mut one);
    listing(vec![one, session("b", Status::Working, "")])
}

#[test]
fn a_time_is_up_whether_anybody_is_there_or_not() {
    let fuse = fuse(Limit::Until(Time(100)));
    let all = working(|_| {});
    assert_eq!(due(&fuse, &all, Time(99)), Due::Wait(Some(Time(100))));
    assert_eq!(due(&fuse, &all, Time(100)), Due::Fire(vec!["claude:a".into()]));
    assert_eq!(due(&fuse, &listing(vec![]), Time(100)), Due::Fire(vec![]));
    let burnt = Fuse { fired_at: Some(Time(100)), ..fuse };
    assert_eq!(due(&burnt, &all, Time(101)), Due::Wait(None), "once");
}

#[test]
fn a_budget_warns_and_then_burns_and_what_is_not_known_burns_nothing() {
    let budget = fuse(Limit::Tokens(100));
    let used = |n| working(|s| s.tokens = Some(Tokens { input: n, ..Tokens::default() }));
    assert_eq!(due(&budget, &used(79), Time(0)), Due::Wait(None));
    assert_eq!(due(&budget, &used(80), Time(0)), Due::Warn(vec!["claude:a".into()]));
    let warned = Fuse { warned_at: Some(Time(0)), ..budget.clone() };
    assert_eq!(due(&warned, &used(80), Time(0)), Due::Wait(None), "once");
    assert_eq!(due(&warned, &used(100), Time(0)), Due::Fire(vec!["claude:a".into()]));
    assert_eq!(due(&budget, &working(|_| {}), Time(0)), Due::Wait(None), "null is no number");
    let cost = fuse(Limit::Cost(1.5));
    assert_eq!(due(&cost, &working(|s| s.cost_usd = Some(1.5)), Time(0)), Due::Fire(vec!["claude:a".into()]));
}

#[test]
fn idle_time_counts_only_while_it_is_idle() {
    let fuse = Fuse { warned_at: Some(Time(0)), ..fuse(Limit::Idle(100)) };
    let since = |status, at| {
        working(|s| {
            s.status = status;
            s.updated_at = Some(Time(at));
        })
    };
    assert_eq!(due(&fuse, &since(Status::Working, 0), Time(500)), Due::Wait(None));
    assert_eq!(due(&fuse, &since(Status::Idle, 450), Time(500)), Due::Wait(Some(Time(550))));
    assert_eq!(due(&fuse, &since(Status::Idle, 400), Time(500)), Due::Fire(vec!["claude:a".into()]));
}

#[test]
fn one_on_a_directory_is_on_all_that_lives_in_it_and_on_nothing_beside_it() {
    let fuse = Fuse { on: On::Directory("/w/a".into()), ..fuse(Limit::Until(Time(0))) };
    let mut sessions: Vec<Box<Session>> = Vec::new();
    for (id, cwd) in [("in", "/w/a"), ("below", "/w/a/b"), ("beside", "/w/ab"), ("above", "/w")] {
        let mut one = session(id, Status::Working, "");
        one.cwd = Some(cwd.into());
        sessions.push(one);
    }
    let mut gone = session("gone", Status::Done, "");
    gone.cwd = Some("/w/a".into());
    sessions.push(gone);
    assert_eq!(due(&fuse, &listing(sessions), Time(1)), Due::Fire(vec!["claude:in".into(), "claude:below".into()]));
}
