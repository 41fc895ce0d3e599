//! What a terminal shows is kept, within its bound, and can be read without a shim.

use lariat_shim::ring::Output;

use crate::place::Place;

#[test]
fn the_last_of_the_output_is_kept_within_the_bound() {
    let place = Place::new("ring");
    let mut session = place.script("a", "stty -onlcr; seq 1 40000");
    session.launch.output = 16 << 10;
    session.start();
    assert_eq!(session.exit().code, Some(0));
    place.wait_for_quiet();
    let whole: String = (1..=40000).map(|n| format!("{n}\n")).collect();
    let output = Output::open(&session.folder).unwrap();
    let (start, end) = output.range().unwrap();
    assert_eq!(end, whole.len() as u64, "every byte was counted");
    assert!((8 << 10..=16 << 10).contains(&(end - start)), "{start}..{end}");
    let tail = output.tail(u64::MAX).unwrap();
    assert_eq!(tail.bytes, &whole.as_bytes()[start as usize..]);
    let files: u64 = ["output.0", "output.1"].iter().map(|f| session.file(f).len() as u64).sum();
    assert!(files <= (16 << 10) + 32, "{files}");
}

#[test]
fn an_agent_without_a_terminal_writes_to_files() {
    let place = Place::new("headless");
    let session = place.script("a", "echo out; echo err >&2; cat; tty; exit 6").headless();
    session.start();
    assert_eq!(session.exit().code, Some(6));
    assert_eq!(session.file("stdout"), b"out\nnot a tty\n", "and its input was empty");
    assert_eq!(session.file("stderr"), b"err\n");
}

#[test]
fn the_last_words_before_the_end_are_kept() {
    let place = Place::new("last");
    for n in 0..20 {
        let session = place.script(&format!("s{n}"), "printf 'last words'; kill -9 $$");
        session.start();
        assert_eq!(session.exit().signal, Some(9));
        assert_eq!(Output::open(&session.folder).unwrap().tail(100).unwrap().bytes, b"last words");
    }
}
