//! Every rule of what is worth telling.

#![allow(clippy::vec_box, reason = "a listing has them so")]

use lariat_core::session::Hidden;
use lariat_core::{Listing, Session, Status, Time};
use lariat_engine::claims::Claim;
use lariat_engine::list::Answer;

use super::*;

pub fn session(id: &'static str, status: Status, reason: &'static str) -> Box<Session> {
    let live = match status {
        Status::Unknown => None,
        s => Some(!s.ended()),
    };
    Box::new(Session {
        id: format!("claude:{id}").into(),
        agent: "claude",
        native_id: id.into(),
        handle: None,
        name: None,
        host: None,
        status,
        reason: reason.into(),
        live,
        pid: live.filter(|l| *l).map(|_| 7),
        cwd: None,
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
        start: Some(1),
        shared: false,
        elsewhere: false,
        also: None,
        teller: None,
    })
}

fn answer(sessions: Vec<Box<Session>>, failed: &[&'static str]) -> Answer {
    Answer {
        listing: Listing {
            schema: 1,
            at: Time(1),
            sessions,
            unbound: Vec::new(),
            warnings: Vec::new(),
            hidden: Hidden::default(),
        },
        lines: Vec::new(),
        watch: Vec::new(),
        partial: !failed.is_empty(),
        unhinted: false,
        failed: failed.iter().map(|name| (*name, "did not answer".to_owned())).collect(),
        untold: Vec::new(),
        saving: Vec::new(),
    }
}

fn names(changes: &[Change]) -> Vec<&'static str> {
    changes.iter().map(|c| c.event).collect()
}

#[test]
fn one_whose_process_is_there_and_tied_to_nothing_has_not_ended() {
    let mut changes = Changes::default();
    changes.take(&answer(vec![session("a", Status::Idle, "")], &[]), true);
    let mut torn = answer(Vec::new(), &[]);
    let why = "its entry cannot be read".into();
    torn.listing.unbound =
        vec![lariat_core::Unbound { agent: "claude", host: None, pid: 7, cwd: None, started_at: None, why }];
    assert!(!changes.misses_one(&torn));
    assert!(names(&changes.take(&torn, true)).is_empty());
    torn.listing.unbound[0].pid = 8;
    assert!(changes.misses_one(&torn));
    assert_eq!(names(&changes.take(&torn, true)), ["session.ended"]);
}

#[test]
fn the_first_look_tells_nothing_and_every_change_is_told_once() {
    let mut changes = Changes::default();
    let mut take = |status, reason| names(&changes.take(&answer(vec![session("a", status, reason)], &[]), false));
    assert!(take(Status::Working, "").is_empty(), "it was there before");
    assert!(take(Status::Working, "another tool").is_empty());
    assert_eq!(take(Status::Waiting, "permission: rm"), ["session.waiting"]);
    assert!(take(Status::Waiting, "permission: rm").is_empty());
    assert_eq!(take(Status::Waiting, "permission: mv"), ["session.waiting"], "it asks something else");
    assert!(
        take(Status::Waiting, "kill asked 3s ago and not finished; permission: mv").is_empty(),
        "the same question"
    );
    assert_eq!(take(Status::Idle, ""), ["session.idle"]);
    assert_eq!(take(Status::Unknown, ""), ["session.unknown"]);
    assert_eq!(take(Status::Idle, ""), ["session.idle"]);
    assert_eq!(take(Status::Done, ""), ["session.ended"]);
    assert!(take(Status::Done, "").is_empty());
    assert_eq!(take(Status::Working, ""), ["session.started", "session.working"], "resumed");
}

#[test]
fn what_begins_later_is_told_and_what_was_never_alive_never_ends() {
    let mut changes = Changes::default();
    changes.take(&answer(vec![], &[]), false);
    let unknown = answer(vec![session("old", Status::Unknown, "")], &[]);
    assert!(changes.take(&unknown, false).is_empty());
    assert!(changes.take(&answer(vec![session("old", Status::Done, "")], &[]), true).is_empty());
    let starting = answer(vec![session("new", Status::Starting, "")], &[]);
    assert_eq!(names(&changes.take(&starting, false)), ["session.started"]);
    let mut other = session("new", Status::Starting, "");
    other.pid = Some(8);
    assert_eq!(names(&changes.take(&answer(vec![other], &[]), false)), ["session.started"], "another process");
}

#[test]
fn a_failed_look_ends_nothing() {
    for failed in ["claude", "process"] {
        let mut changes = Changes::default();
        changes.take(&answer(vec![session("a", Status::Working, "")], &[]), false);
        let broken = answer(vec![], &[failed]);
        assert!(!changes.misses_one(&broken));
        for whole in [false, true] {
            let told = changes.take(&broken, whole);
            assert!(told.iter().all(|c| !c.event.starts_with("session.")), "{told:?}");
        }
        let back = changes.take(&answer(vec![session("a", Status::Working, "")], &[]), false);
        assert_eq!(names(&back), ["adapter.recovered"]);
        // Only a whole look without it is the end of it.
        let without = answer(vec![], &[]);
        assert!(changes.misses_one(&without));
        assert!(changes.take(&without, false).is_empty());
        let gone = changes.take(&without, true);
        assert_eq!(names(&gone), ["session.ended"]);
        assert!(matches!(&gone[0].about, About::Session(s) if s.status == Status::Unknown && s.live == Some(false)));
    }
}

#[test]
fn what_a_failing_adapter_hid_at_first_has_not_started() {
    let mut changes = Changes::default();
    assert_eq!(names(&changes.take(&answer(vec![], &["claude"]), false)), ["adapter.failed"]);
    let seen = answer(vec![session("a", Status::Working, "")], &[]);
    assert_eq!(names(&changes.take(&seen, false)), ["adapter.recovered"]);
}

#[test]
fn claims_come_go_and_run_out() {
    let claim = |until| Claim {
        path: "/a".into(),
        place: (1, 2),
        born: None,
        by: "eve".into(),
        reason: None,
        at: Time(0),
        until: Time(until),
    };
    let mut changes = Changes::default();
    assert!(changes.take_claims(vec![claim(10)], Time(1)).is_empty());
    assert_eq!(names(&changes.take_claims(vec![claim(20)], Time(2))), ["claim.taken"], "for longer");
    assert_eq!(names(&changes.take_claims(vec![], Time(3))), ["claim.released"]);
    assert_eq!(names(&changes.take_claims(vec![claim(5)], Time(4))), ["claim.taken"]);
    assert_eq!(names(&changes.take_claims(vec![], Time(5))), ["claim.expired"]);
}

#[test]
fn an_event_is_one_object_with_everything_in_its_place() {
    let change = Change {
        event: "session.waiting",
        at: Time(0),
        was: Some(Status::Working),
        about: About::Session(session("a", Status::Waiting, "permission: \u{1b}[2J")),
    };
    let mut text = Vec::new();
    lariat_protocol::json::write(&mut text, &change.told("e-1")).unwrap();
    let read: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(
        (&read["event"], &read["id"], &read["was"]),
        (&"session.waiting".into(), &"e-1".into(), &"working".into())
    );
    assert_eq!(read["session"]["id"], "claude:a");
    assert!(read["claim"].is_null() && read["adapter"].is_null());
    assert!(!text.contains(&0x1b), "nothing in it acts");
}
