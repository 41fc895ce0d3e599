//! The status table row by row, and the properties that hold for any evidence.

use proptest::prelude::*;

use super::*;
use crate::observation::{Ask, AskKind, Witness};
use crate::time::Time;

fn see(witness: Witness, fact: Fact) -> Observation {
    Observation::new(witness, fact)
}

fn alive() -> Observation {
    see(Witness::Process, Fact::Alive { pid: Some(7), by: "registry".into() })
}

fn gone() -> Observation {
    see(Witness::Process, Fact::Gone("process 7 is gone".into()))
}

fn state(state: State) -> Observation {
    see(Witness::Registry, Fact::State(state))
}

fn turn(turn: Turn) -> Observation {
    see(Witness::Store, Fact::Turn(turn))
}

fn well() -> Observation {
    turn(Turn::Over(Outcome::Well))
}

fn open() -> Observation {
    turn(Turn::Open(None))
}

fn exit(exit: Exit) -> Observation {
    see(Witness::Shim, Fact::Exit(exit))
}

fn word(observations: &[Observation]) -> Status {
    judge(observations, None).status
}

#[test]
fn while_it_lives_the_agents_own_word_decides() {
    let permission =
        see(Witness::Store, Fact::Asks(Ask { kind: AskKind::Permission, text: "Bash rm -rf build".into() }));
    let verdict = judge(&[alive(), state(State::Waiting("permission prompt".into())), permission, open()], None);
    assert_eq!((verdict.status, verdict.live), (Status::Waiting, Some(true)));
    assert_eq!(verdict.reason.raw(), "permission: Bash rm -rf build");

    assert_eq!(word(&[alive(), state(State::Waiting("dialog open".into()))]), Status::Waiting);
    assert_eq!(word(&[alive(), state(State::Busy), open()]), Status::Working);
    assert_eq!(word(&[alive(), state(State::Idle), well()]), Status::Idle);
    assert_eq!(word(&[alive(), state(State::Shell), well()]), Status::Idle);
}

#[test]
fn what_a_hook_asks_stands_until_the_agent_says_something_newer() {
    let ask = Fact::Asks(Ask { kind: AskKind::Permission, text: "touch x".into() });
    let ask = see(Witness::Hook, ask).at(Some(Time(100)));
    let busy = |at| state(State::Busy).at(Some(Time(at)));
    let verdict = judge(&[alive(), busy(50), ask.clone(), open()], None);
    assert_eq!((verdict.status, verdict.reason.raw()), (Status::Waiting, "permission: touch x"));
    assert_eq!(word(&[alive(), ask.clone(), open()]), Status::Waiting);
    assert_eq!(word(&[alive(), busy(150), ask.clone(), open()]), Status::Working);
    assert_eq!(word(&[gone(), ask, open()]), Status::Interrupted);
}

#[test]
fn of_an_agent_that_tells_nothing_only_its_process_is_believed() {
    let mute = || see(Witness::Shim, Fact::Mute("it is only described".into()));
    let live = judge(&[alive(), mute()], None);
    assert_eq!((live.status, live.live), (Status::Starting, Some(true)));
    assert_eq!(live.reason.raw(), "nothing tells of its turns: it is only described");
    assert_eq!(word(&[alive(), mute(), open()]), Status::Working, "one prompt, until it exits");
    assert_eq!(word(&[gone(), mute(), exit(Exit::Code(0))]), Status::Done);
    assert_eq!(word(&[gone(), mute(), exit(Exit::Code(3))]), Status::Failed);
    for how in [vec![exit(Exit::Signal(9))], vec![exit(Exit::Code(137))], vec![]] {
        let wanted = Intent { want: Want::Run, generation: 1, at: Time(1), found_live: true, until: None };
        let verdict = judge(&[vec![gone(), mute()], how].concat(), Some(&wanted));
        assert_eq!((verdict.status, verdict.restorable), (Status::Interrupted, true), "never called well ended");
    }
    assert_eq!(word(&[mute()]), Status::Unknown, "and it proves neither life nor death");
}

#[test]
fn a_prompt_that_no_turn_shows_yet_is_not_rest() {
    let given = || see(Witness::Shim, Fact::Given);
    for turn in [None, Some(see(Witness::Store, Fact::Turn(Turn::Never)))] {
        let idle = [alive(), state(State::Idle), given()].into_iter().chain(turn).collect::<Vec<_>>();
        let verdict = judge(&idle, None);
        assert_eq!((verdict.status, verdict.roles[2]), (Status::Starting, Role::Decided));
    }
    // What an earlier turn came to is not what it was given now.
    assert_eq!(word(&[alive(), state(State::Idle), given(), well()]), Status::Starting);
    assert_eq!(word(&[alive(), given(), well()]), Status::Starting);
    // A turn that is recorded was begun, unless the agent has said since that it rests.
    let open = || turn(Turn::Open(None)).at(Some(Time(5)));
    assert_eq!(word(&[alive(), state(State::Idle), given(), open()]), Status::Working);
    assert_eq!(word(&[alive(), state(State::Idle).at(Some(Time(6))), given(), open()]), Status::Idle);
    assert_eq!(word(&[alive(), state(State::Idle), open()]), Status::Idle);
    // One that an earlier process was killed in says nothing of what was given since.
    let (idle, given_at) = (state(State::Idle).at(Some(Time(8))), |at| given().at(Some(Time(at))));
    let verdict = judge(&[alive(), idle.clone(), given_at(7), open()], None);
    assert_eq!((verdict.status, verdict.reason.raw()), (Status::Starting, "its prompt is not taken up yet"));
    assert_eq!(word(&[alive(), idle, given_at(5), open()]), Status::Idle);
    assert_eq!(word(&[alive(), state(State::Busy), given()]), Status::Working);
    assert_eq!(word(&[gone(), given()]), word(&[gone()]));
}

#[test]
fn at_its_prompt_with_a_login_or_a_limit_in_the_way_it_needs_a_person() {
    let failed = || turn(Turn::Over(Outcome::Failed("Please run /login".into())));
    let ask = |kind| see(Witness::Store, Fact::Asks(Ask { kind, text: "Please run /login".into() }));
    let verdict = judge(&[alive(), state(State::Idle), failed(), ask(AskKind::Login)], None);
    assert_eq!((verdict.status, verdict.reason.raw()), (Status::Waiting, "login: Please run /login"));
    assert_eq!(word(&[alive(), state(State::Shell), failed(), ask(AskKind::Limit)]), Status::Waiting);
    assert_eq!(word(&[alive(), failed(), ask(AskKind::Limit)]), Status::Waiting);
    assert_eq!(word(&[alive(), state(State::Busy), failed(), ask(AskKind::Limit)]), Status::Working);
    assert_eq!(word(&[alive(), state(State::Idle), open(), ask(AskKind::Permission)]), Status::Idle);
    assert_eq!(word(&[gone(), state(State::Idle), failed(), ask(AskKind::Login)]), Status::Failed);
}

#[test]
fn the_agents_word_beats_the_transcript_and_says_so() {
    let background = judge(&[alive(), state(State::Busy), well()], None);
    assert_eq!(background.status, Status::Working);
    assert_eq!(background.roles, [Role::Decided, Role::Decided, Role::Disagreed]);
    let taken_back = judge(&[alive(), state(State::Idle), open()], None);
    assert_eq!(taken_back.status, Status::Idle);
    assert_eq!(taken_back.roles[2], Role::Disagreed);
}

#[test]
fn without_a_word_the_transcript_decides() {
    assert_eq!(word(&[alive(), open()]), Status::Working);
    assert_eq!(word(&[alive(), well()]), Status::Idle);
    assert_eq!(word(&[alive()]), Status::Starting);
    assert_eq!(word(&[alive(), state(State::Other("pondering".into())), open()]), Status::Working);
    let ask = see(Witness::Process, Fact::Asks(Ask { kind: AskKind::Permission, text: "touch x".into() }));
    assert_eq!(word(&[alive(), open(), ask]), Status::Waiting);
    assert_eq!(word(&[alive(), see(Witness::Store, Fact::TurnUnread("EACCES".into()))]), Status::Unknown);
}

#[test]
fn gone_and_nobody_asked() {
    let table = [
        (vec![gone(), well()], Status::Done),
        (vec![gone(), open()], Status::Interrupted),
        (vec![gone(), turn(Turn::Over(Outcome::Failed("API Error: 400".into())))], Status::Failed),
        (vec![gone(), turn(Turn::Over(Outcome::Aborted("interrupted by user".into())))], Status::Stopped),
        (vec![gone(), turn(Turn::Never)], Status::Done),
        (vec![gone()], Status::Done),
        (vec![gone(), open(), exit(Exit::Signal(9))], Status::Interrupted),
        (vec![gone(), open(), exit(Exit::Code(143))], Status::Interrupted),
        (vec![gone(), open(), exit(Exit::Code(0))], Status::Interrupted),
        (vec![gone(), open(), exit(Exit::Code(101))], Status::Failed),
        (vec![gone(), well(), exit(Exit::Signal(15))], Status::Done),
        (vec![gone(), well(), exit(Exit::Code(143))], Status::Done),
        (vec![gone(), well(), exit(Exit::Code(1))], Status::Failed),
        (vec![gone(), exit(Exit::Code(1))], Status::Failed),
        (vec![gone(), exit(Exit::Code(145))], Status::Failed),
        (vec![gone(), open(), exit(Exit::Code(173))], Status::Failed),
        (vec![gone(), open(), see(Witness::Store, Fact::Left("/exit".into()))], Status::Stopped),
        (vec![gone(), well(), see(Witness::Store, Fact::Left("claude stop".into()))], Status::Done),
        (vec![gone(), see(Witness::Store, Fact::TurnUnread("EACCES".into()))], Status::Unknown),
    ];
    for (observations, expected) in table {
        let verdict = judge(&observations, None);
        assert_eq!(verdict.status, expected, "{observations:?}");
        assert_eq!(verdict.live, Some(false));
        assert!(!verdict.restorable, "nothing is restorable that nobody wanted: {observations:?}");
    }
}

#[test]
fn a_dead_process_beats_the_last_word_it_left() {
    assert_eq!(word(&[gone(), state(State::Busy), open()]), Status::Interrupted);
    assert_eq!(word(&[gone(), state(State::Waiting("permission prompt".into())), open()]), Status::Interrupted);
    assert_eq!(word(&[gone(), state(State::Idle), well()]), Status::Done);
}

#[test]
fn a_word_frozen_at_rest_tells_that_what_looks_open_was_over() {
    let open_at = |at: i64| turn(Turn::Open(None)).at(Some(Time(at)));
    for rest in [State::Idle, State::Shell] {
        let rest = |at: i64| state(rest.clone()).at(Some(Time(at)));
        assert_eq!(word(&[gone(), rest(5), open_at(4)]), Status::Done);
        assert_eq!(word(&[gone(), rest(4), open_at(5)]), Status::Interrupted, "that turn began since");
        assert_eq!(word(&[gone(), rest(5), open_at(5)]), Status::Interrupted, "who was first cannot be told");
    }
    let untold = [gone(), state(State::Idle).at(Some(Time(5))), turn(Turn::Open(None))];
    assert_eq!(word(&untold), Status::Interrupted, "nor where nothing has a time");
}

#[test]
fn a_word_frozen_at_busy_tells_of_a_turn_not_yet_written_down() {
    let busy = |at: i64| state(State::Busy).at(Some(Time(at)));
    let well_at = |at: i64| well().at(Some(Time(at)));
    assert_eq!(word(&[gone(), busy(5)]), Status::Interrupted);
    assert_eq!(word(&[gone(), busy(5), well_at(4)]), Status::Interrupted);
    assert_eq!(word(&[gone(), busy(4), well_at(5)]), Status::Done, "a later run has ended well since");
    assert_eq!(word(&[gone(), state(State::Idle).at(Some(Time(5)))]), Status::Done);
    for before in [Outcome::Failed("API Error".into()), Outcome::Aborted("Esc".into())] {
        let before = |at: i64| turn(Turn::Over(before.clone())).at(Some(Time(at)));
        assert_eq!(word(&[gone(), busy(5), before(4)]), Status::Interrupted, "the next turn had begun");
        assert_ne!(word(&[gone(), busy(4), before(5)]), Status::Interrupted, "that very turn had ended");
    }
}

#[test]
fn a_failed_probe_proves_nothing() {
    let unseen = see(Witness::Process, Fact::Unseen("process scan failed".into()));
    let verdict = judge(&[unseen.clone(), open(), state(State::Busy)], None);
    assert_eq!((verdict.status, verdict.live), (Status::Unknown, None));
    assert_eq!(judge(&[], None).status, Status::Unknown);
    assert_eq!(word(&[unseen, see(Witness::Store, Fact::Gone("native end record".into())), well()]), Status::Done);
}

fn intent(want: Want, found_live: bool) -> Intent {
    Intent { want, generation: 1, at: Time(0), found_live, until: Some(Time(5)) }
}

#[test]
fn intent_explains_an_end_and_never_makes_one() {
    let stop = intent(Want::Stop, true);
    assert_eq!(judge(&[gone(), open()], Some(&stop)).status, Status::Stopped);
    assert_eq!(judge(&[alive(), open()], Some(&stop)).status, Status::Working);
    assert_eq!(judge(&[gone(), well()], Some(&intent(Want::Stop, false))).status, Status::Done);
    let later = well().at(Some(Time(9)));
    assert_eq!(judge(&[gone(), later], Some(&stop)).status, Status::Done, "it ran again since, and ended by itself");
}

#[test]
fn cut_off_means_wanted_gone_and_not_ended_by_anyone() {
    let run = intent(Want::Run, true);
    let restorable = |o: &[Observation]| judge(o, Some(&run)).restorable;
    assert!(restorable(&[gone(), open()]));
    assert!(restorable(&[gone(), well()]));
    assert!(restorable(&[gone(), well(), exit(Exit::Signal(9))]));
    assert!(!restorable(&[gone(), well(), exit(Exit::Code(0))]));
    assert!(!restorable(&[gone(), open(), exit(Exit::Code(101))]));
    assert!(!restorable(&[gone(), turn(Turn::Over(Outcome::Aborted("Esc".into())))]));
    assert!(!restorable(&[alive(), open()]));
    assert!(!restorable(&[see(Witness::Process, Fact::Unseen("late".into())), open()]));
    assert!(!judge(&[gone(), open()], Some(&intent(Want::Stop, true))).restorable);
}

#[test]
fn who_ended_when_all_were_told_to_was_cut_off() {
    let run = intent(Want::Run, true);
    let told = |at| see(Witness::Shim, Fact::AllTold).at(Some(Time(at)));
    let judged = |o: &[Observation]| {
        let verdict = judge(o, Some(&run));
        (verdict.status, verdict.restorable)
    };
    for code in [0, 1, 143] {
        assert_eq!(judged(&[gone(), well(), exit(Exit::Code(code)), told(9)]), (Status::Done, true));
        assert_eq!(judged(&[gone(), open(), exit(Exit::Code(code)), told(9)]), (Status::Interrupted, true));
    }
    let verdict = judge(&[gone(), well(), exit(Exit::Code(0)), told(9)], Some(&run));
    assert_eq!(verdict.reason.raw(), "turn over; its process ended when all here were told to end");
    // What the agent writes of a person's interrupt is its answer to the signal, if it was written then.
    let aborted = |at| turn(Turn::Over(Outcome::Aborted("aborted".into()))).at(Some(Time(at)));
    assert_eq!(judged(&[gone(), aborted(50_000), exit(Exit::Code(0)), told(50_010)]), (Status::Interrupted, true));
    assert_eq!(judged(&[gone(), aborted(40_000), exit(Exit::Code(0)), told(50_010)]), (Status::Stopped, false));
    assert_eq!(judged(&[gone(), aborted(50_000), exit(Exit::Code(0))]), (Status::Stopped, false));
    // A person who left, or asked for the end, is heard first.
    assert!(!judged(&[gone(), well(), see(Witness::Store, Fact::Left("/exit".into())), told(9)]).1);
    let stop = intent(Want::Stop, true);
    assert_eq!(judge(&[gone(), open(), exit(Exit::Code(0)), told(9)], Some(&stop)).status, Status::Stopped);
    assert!(!judge(&[gone(), open(), exit(Exit::Code(0)), told(9)], Some(&stop)).restorable);
}

fn any_fact() -> impl Strategy<Value = Fact> {
    let text = || "[a-c]{0,3}".prop_map(Untrusted::new);
    let outcome = prop_oneof![Just(Outcome::Well), text().prop_map(Outcome::Failed), text().prop_map(Outcome::Aborted)];
    prop_oneof![
        text().prop_map(|by| Fact::Alive { pid: Some(1), by }),
        text().prop_map(Fact::Gone),
        text().prop_map(Fact::Unseen),
        Just(Fact::State(State::Busy)),
        Just(Fact::State(State::Idle)),
        Just(Fact::State(State::Shell)),
        text().prop_map(|w| Fact::State(State::Waiting(w))),
        text().prop_map(|w| Fact::State(State::Other(w))),
        Just(Fact::Turn(Turn::Never)),
        text().prop_map(|d| Fact::Turn(Turn::Open(Some(d)))),
        outcome.prop_map(|o| Fact::Turn(Turn::Over(o))),
        text().prop_map(Fact::TurnUnread),
        text().prop_map(Fact::Mute),
        text().prop_map(|text| Fact::Asks(Ask { kind: AskKind::Question, text })),
        (0..200i32).prop_map(|n| Fact::Exit(Exit::Code(n))),
        (1..32i32).prop_map(|n| Fact::Exit(Exit::Signal(n))),
        text().prop_map(Fact::Left),
        text().prop_map(Fact::Note),
        Just(Fact::Given),
        Just(Fact::AllTold),
    ]
}

fn any_observation() -> impl Strategy<Value = Observation> {
    let witness = prop::sample::select(vec![
        Witness::Hook,
        Witness::Gateway,
        Witness::Shim,
        Witness::Registry,
        Witness::Store,
        Witness::Process,
    ]);
    (witness, any_fact(), prop::option::of((0..9i64).prop_map(Time))).prop_map(|(witness, fact, at)| Observation {
        witness,
        fact,
        at,
        source: None,
    })
}

fn any_intent() -> impl Strategy<Value = Option<Intent>> {
    prop::option::of(
        (any::<bool>(), any::<bool>()).prop_map(|(run, live)| intent(if run { Want::Run } else { Want::Stop }, live)),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn laws_of_the_verdict(seen in prop::collection::vec(any_observation(), 0..8), intent in any_intent()) {
        let verdict = judge(&seen, intent.as_ref());
        let any = |test: fn(&Fact) -> bool| seen.iter().any(|o| test(&o.fact));
        let is_alive = any(|f| matches!(f, Fact::Alive { .. }));
        let first = |test: fn(&Fact) -> bool| seen.iter().filter(|o| test(&o.fact)).map(|o| o.witness).min();
        // Dead is only what no stronger witness failed to see.
        let is_gone = match (first(|f| matches!(f, Fact::Gone(_))), first(|f| matches!(f, Fact::Unseen(_)))) {
            (Some(gone), Some(unseen)) => gone <= unseen,
            (gone, _) => gone.is_some(),
        };

        // Dead needs proof, and never against a live process.
        prop_assert!(!verdict.status.ended() || (is_gone && !is_alive));
        prop_assert_eq!(verdict.live, if is_alive { Some(true) } else if is_gone { Some(false) } else { None });
        // A live word needs a live process.
        let live_word = matches!(verdict.status, Status::Waiting | Status::Working | Status::Starting | Status::Idle);
        prop_assert!(!live_word || is_alive);
        // Idle is never guessed.
        if verdict.status == Status::Idle {
            prop_assert!(any(|f| matches!(f, Fact::State(State::Idle | State::Shell) | Fact::Turn(Turn::Over(_)))));
        }
        // Restore needs a wish and a proven end.
        if verdict.restorable {
            prop_assert!(is_gone && !is_alive && intent.as_ref().is_some_and(|i| i.want == Want::Run));
        }
        // A stop or an end needs somebody who asked.
        if verdict.status == Status::Stopped {
            prop_assert!(intent.is_some() || any(|f| matches!(f, Fact::Left(_) | Fact::Turn(Turn::Over(Outcome::Aborted(_))))));
        }
        prop_assert_eq!(verdict.roles.len(), seen.len());
    }

    #[test]
    fn order_and_notes_mean_nothing(
        seen in prop::collection::vec(any_observation(), 0..8),
        intent in any_intent(),
        seed in any::<u64>(),
    ) {
        let verdict = judge(&seen, intent.as_ref());
        let mut shuffled = seen.clone();
        shuffled.push(see(Witness::Hook, Fact::Note("by the way".into())));
        let len = shuffled.len();
        for i in 0..len {
            shuffled.swap(i, (seed.rotate_left(i as u32 * 7) % len as u64) as usize);
        }
        let again = judge(&shuffled, intent.as_ref());
        prop_assert_eq!((again.status, again.reason, again.live, again.restorable),
                        (verdict.status, verdict.reason, verdict.live, verdict.restorable));
    }
}
