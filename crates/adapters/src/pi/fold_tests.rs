use super::*;
use crate::json::Doc;

/// Folds lines; one that is `lost` could not be read.
fn fold(lines: &[&str]) -> Transcript {
    let mut transcript = Transcript::default();
    for line in lines {
        match *line {
            "lost" => transcript.lost(),
            line => transcript.line(Doc::parse(line.as_bytes(), Transcript::KEEP, 600).expect("JSON").root()),
        }
    }
    transcript
}

const HEAD: &str = r#"{"type":"session","id":"one","cwd":"/w"}"#;
const SAID: &str = r#"{"type":"message","id":"m1","message":{"role":"assistant","stopReason":"stop",
    "usage":{"input":5,"output":1,"cacheRead":2,"cacheWrite":0,"cost":{"total":0.5}}}}"#;

fn input(lines: &[&str]) -> Option<u64> {
    fold(lines).tokens().map(|t| t.input)
}

#[test]
fn a_line_that_was_written_twice_counts_once() {
    assert_eq!((input(&[HEAD, SAID, SAID]), fold(&[HEAD, SAID, SAID]).cost()), (Some(5), Some(0.5)));
    assert_eq!(input(&[HEAD, SAID, &SAID.replace("m1", "m2")]), Some(10));
    // Without an id nothing tells that it is the same.
    let nameless = SAID.replace("\"id\":\"m1\",", "");
    assert_eq!(input(&[HEAD, &nameless, &nameless]), Some(10));
}

#[test]
fn a_number_that_is_none_leaves_the_sum_open() {
    for bad in ["null", "\"7\"", "-7", "99999999999999999999999"] {
        for (key, count) in [("input", "5"), ("cacheRead", "2")] {
            let line = SAID.replace(&format!("\"{key}\":{count}"), &format!("\"{key}\":{bad}"));
            assert_eq!(input(&[HEAD, &line]), None, "{key} {bad}");
        }
    }
    assert_eq!(input(&[HEAD, &SAID.replace("\"cacheRead\":2,", "")]), Some(5));
}

#[test]
fn a_header_behind_a_lost_first_line_may_be_another_sessions() {
    let second = HEAD.replace("one", "two");
    let told = |lines: &[&str]| Some(fold(lines)).map(|f| (f.id, f.beheaded)).unwrap();
    assert_eq!(told(&[HEAD, "lost", &second]), (Some("one".into()), false));
    assert_eq!(told(&["lost", &second]), (Some("two".into()), true));
}
