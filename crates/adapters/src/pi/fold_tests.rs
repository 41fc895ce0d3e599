use super::*;
use crate::json::Doc;

/// Folds lines; one that is `lost` could not be read.
fn fold(lines: &[&str]) -> Transcript {
    let mut transcript = Transcript::default();
    for line in lines {
        match *line {
            "lost" => transcript.lost(),
            line => transcript.line(Doc::parse(line.as_bytes(), Transcript::keeps, 600).expect("JSON").root()),
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
    for (good, bad) in [("\"input\":5,", ""), ("\"output\":1,", ""), ("\"usage\":", "\"usage\":7,\"other\":")] {
        assert_eq!(input(&[HEAD, &SAID.replace(good, bad)]), None, "{bad}");
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

#[test]
fn an_aborted_turn_stays_aborted_whatever_its_tools_give() {
    let asked = r#"{"type":"message","id":"u","message":{"role":"user","content":"do it"}}"#;
    let aborted = r#"{"type":"message","id":"a","message":{"role":"assistant","stopReason":"aborted"}}"#;
    let given = r#"{"type":"message","id":"r","message":{"role":"toolResult","toolCallId":"c"}}"#;
    assert!(matches!(fold(&[HEAD, asked, aborted, given]).stand, Stand::Aborted(_)));
    assert_eq!(fold(&[HEAD, asked, aborted, given, &asked.replace("\"u\"", "\"v\"")]).stand, Stand::Open);
}

#[test]
fn how_a_reply_ended_is_not_guessed() {
    let stand = |end: &str| fold(&[HEAD, &SAID.replace(r#""stopReason":"stop","#, end)]).stand;
    for (end, known) in
        [("stop", Stand::Well), ("length", Stand::Well), ("toolUse", Stand::Open), ("pending", Stand::Open)]
    {
        assert_eq!(stand(&format!(r#""stopReason":"{end}","#)), known, "{end}");
    }
    for end in ["", r#""stopReason":null,"#, r#""stopReason":"paused","#] {
        assert!(matches!(stand(end), Stand::Untold(_)), "{end}");
    }
}

#[test]
fn what_is_used_beside_the_answers_counts_too() {
    let usage = r#""usage":{"input":70,"output":3,"cacheRead":1,"cacheWrite":0,"cost":{"total":0.25}}"#;
    let all = |line: &str| {
        let fold = fold(&[HEAD, SAID, line]);
        (fold.tokens().map(|t| (t.input, t.output, t.cache_read)), fold.cost(), fold.stand)
    };
    for kind in ["compaction", "branch_summary", "usage"] {
        let line = format!(r#"{{"type":"{kind}","id":"c1",{usage}}}"#);
        assert_eq!(all(&line), (Some((75, 4, 3)), Some(0.75), Stand::Well), "{kind}");
        // Older versions do not say.
        let silent = format!(r#"{{"type":"{kind}","id":"c1"}}"#);
        assert_eq!(all(&silent), (Some((5, 1, 2)), Some(0.5), Stand::Well), "{kind}");
    }
    let tool = format!(r#"{{"type":"message","id":"t1","message":{{"role":"toolResult","toolCallId":"x",{usage}}}}}"#);
    assert_eq!(all(&tool), (Some((75, 4, 3)), Some(0.75), Stand::Open));
}

#[test]
fn a_line_that_does_not_say_what_it_is_cannot_be_read() {
    let reads =
        |line: &str| Transcript::reads(Doc::parse(line.as_bytes(), Transcript::keeps, 600).expect("JSON").root());
    for line in [HEAD, SAID, r#"{"type":"hologram"}"#, r#"{"type":{"kind":"nested"},"message":7}"#] {
        assert!(reads(line), "{line}");
    }
    let silent = SAID.replace("\"assistant\"", "7");
    for line in [r#"{"id":"m"}"#, r#"{"type":null}"#, r#"{"type":""}"#, r#"{"type":"message"}"#, &silent] {
        assert!(!reads(line), "{line}");
    }
}
