use super::*;

/// Folds lines; one that is `lost` could not be read, and at `gap` some were left out.
fn fold(lines: &[&str]) -> Rollout {
    let mut rollout = Rollout::default();
    for line in lines {
        match *line {
            "lost" => rollout.lost(),
            "gap" => rollout.gap(),
            line => rollout.line(Doc::parse(line.as_bytes(), Rollout::keeps, 600).expect("JSON").root()),
        }
    }
    rollout
}

const META_133: &str = r#"{"type":"session_meta","payload":{"id":"t","cwd":"/w","cli_version":"0.133.0"}}"#;
const ASKED: &str = r#"{"type":"event_msg","payload":{"type":"user_message","message":"do it"}}"#;
const GAVE: &str = r#"{"type":"event_msg","payload":{"type":"agent_message","message":"done"}}"#;
const MUTE: &str = r#"{"type":"event_msg","payload":{"type":"task_complete","turn_id":"b","last_agent_message":null}}"#;
const SAID: &str = r#"{"type":"event_msg","payload":{"type":"task_complete","turn_id":"b","last_agent_message":"x"}}"#;

fn begin(turn: &str) -> String {
    format!(r#"{{"type":"event_msg","payload":{{"type":"task_started","turn_id":"{turn}"}}}}"#)
}

fn usage(input: &str, cached: &str) -> String {
    format!(r#"{{"input_tokens":{input},"output_tokens":1,"cached_input_tokens":{cached}}}"#)
}

fn record(usage: &str) -> String {
    format!(r#"{{"type":"token_usage_record","payload":{{"thread_token_usage":{usage}}}}}"#)
}

fn counted(total: &str, last: &str) -> String {
    let info = format!(r#"{{"total_token_usage":{total},"last_token_usage":{last}}}"#);
    format!(r#"{{"type":"event_msg","payload":{{"type":"token_count","info":{info}}}}}"#)
}

fn input(lines: &[&str]) -> Option<u64> {
    fold(lines).tokens().map(|t| t.input)
}

#[test]
fn a_turn_whose_beginning_could_not_be_read_ends_by_its_own_end() {
    let (a, b) = (begin("a"), begin("b"));
    let work = r#"{"type":"response_item","payload":{"type":"reasoning"}}"#;
    assert_eq!(fold(&[&a, ASKED, "lost", work, GAVE, SAID]).stand, Stand::Well);
    // Where all was read, the end of another turn is none of this one.
    assert_eq!(fold(&[&b, ASKED, &a, ASKED, GAVE, SAID]).stand, Stand::Open);
}

#[test]
fn a_turn_that_came_to_nothing_is_not_well_because_lines_are_missing() {
    let b = begin("b");
    let nothing = Stand::Failed("it ended without an answer".into());
    assert_eq!(fold(&[META_133, &b, ASKED, MUTE]).stand, nothing);
    // What is missing stands before what was asked.
    assert_eq!(fold(&[META_133, &b, "lost", ASKED, MUTE]).stand, nothing);
    assert_eq!(fold(&[META_133, "gap", ASKED, MUTE]).stand, nothing);
    // It may have been the answer, or what was asked.
    for missing in ["lost", "gap"] {
        let untold = fold(&[META_133, &b, ASKED, missing, MUTE]);
        assert_eq!((untold.stand.clone(), untold.knows_tail()), (Stand::Unseen, false));
        assert_eq!(fold(&[META_133, &b, ASKED, missing, GAVE, MUTE]).stand, Stand::Well);
        assert_eq!(fold(&[META_133, &b, ASKED, missing, SAID]).stand, Stand::Well);
    }
}

#[test]
fn a_total_before_a_line_that_could_not_be_read_is_not_the_threads() {
    let (one, two) = (usage("100", "0"), usage("200", "0"));
    // Before there were records, what the process counted next is the total again.
    let (first, second) = (counted(&one, &one), counted(&two, &one));
    assert_eq!(input(&[&first]), Some(100));
    assert_eq!(input(&[&first, "lost"]), None);
    assert_eq!(input(&[&first, "lost", &second]), Some(200));
    // Unless it began to count anew, as far as can be told.
    assert_eq!(input(&[&second, "lost", &first]), None);
    assert_eq!(input(&[&second, "lost", &first, &counted(&usage("300", "0"), &two)]), None);
    let nothing = r#"{"type":"event_msg","payload":{"type":"token_count","info":null}}"#;
    assert_eq!(input(&[&second, nothing, &first]), Some(300));
    assert_eq!(input(&[&second, "lost", nothing, &first, &counted(&two, &one)]), None);
    // With records, only another one tells.
    let records = [&record(&one), &first, "lost", &second];
    assert_eq!(input(&records), None);
    assert_eq!(input(&[&records[..], &[&record(&usage("300", "0"))]].concat()), Some(300));
}

#[test]
fn a_number_that_is_none_leaves_the_total_open() {
    for bad in ["null", "\"7\"", "-7", "99999999999999999999999"] {
        assert_eq!(input(&[&record(&usage("100", bad))]), None, "{bad}");
        assert_eq!(input(&[&counted(&usage("100", bad), &usage("100", bad))]), None, "{bad}");
        assert_eq!(input(&[&record(&usage("100", bad)), &record(&usage("200", "7"))]), Some(200), "{bad}");
    }
    assert_eq!(input(&[&record(r#"{"input_tokens":100,"output_tokens":1}"#)]), Some(100));
}

/// Of a version without events of turns the items decide; but none follows on the word that it was aborted.
#[test]
fn an_aborted_turn_stays_aborted_whatever_its_tools_give() {
    let aborted = r#"{"type":"event_msg","payload":{"type":"turn_aborted","reason":"interrupted"}}"#;
    let given = r#"{"type":"response_item","payload":{"type":"function_call_output","call_id":"c"}}"#;
    assert!(matches!(fold(&[ASKED, aborted, given]).stand, Stand::Aborted(_)));
    assert_eq!(fold(&[ASKED, aborted, given, ASKED]).stand, Stand::Open);
    assert_eq!(fold(&[ASKED, aborted, "lost", given]).stand, Stand::Open, "it may have been asked there");
}

#[test]
fn what_an_error_came_to_is_not_told_where_lines_before_it_are_missing() {
    let b = begin("b");
    let wrong = r#"{"type":"event_msg","payload":{"type":"error","message":"no more"}}"#;
    let failed = Stand::Failed("no more".into());
    assert_eq!(fold(&[&b, ASKED, GAVE, wrong, SAID]).stand, failed);
    for missing in ["lost", "gap"] {
        // What it says at its end may stand there.
        let untold = fold(&[&b, ASKED, missing, wrong, SAID]);
        assert_eq!((untold.stand.clone(), untold.knows_tail()), (Stand::Unseen, false));
        assert_eq!(fold(&[missing, &b, ASKED, wrong, SAID]).stand, Stand::Well, "it was answered after that");
        assert_eq!(fold(&[&b, ASKED, missing, wrong, GAVE, SAID]).stand, Stand::Well);
        assert_eq!(fold(&[&b, ASKED, missing, GAVE, wrong, SAID]).stand, failed);
        assert_eq!(fold(&[&b, ASKED, missing, wrong, MUTE]).stand, failed);
    }
}

#[test]
fn a_line_that_does_not_say_what_it_is_cannot_be_read() {
    let reads = |line: &str| Rollout::reads(Doc::parse(line.as_bytes(), Rollout::keeps, 600).expect("JSON").root());
    for line in [
        r#"{"type":"event_msg","payload":{"type":"task_complete"}}"#,
        r#"{"type":"turn_context","payload":{}}"#,
        r#"{"type":"hologram","payload":[9]}"#,
        r#"{"type":{"kind":"nested"},"payload":"text"}"#,
        r#"{"id":"the first line of 2025","timestamp":"x"}"#,
        r#"{"record_type":"state"}"#,
    ] {
        assert!(reads(line), "{line}");
    }
    for line in [
        r#"{"type":"event_msg","payload":{"type":7}}"#,
        r#"{"type":"event_msg","payload":null}"#,
        r#"{"type":"response_item"}"#,
        r#"{"type":7,"payload":{"type":"task_complete"}}"#,
        r#"{"payload":{"type":"task_complete"}}"#,
    ] {
        assert!(!reads(line), "{line}");
    }
}

#[test]
fn a_total_that_is_no_whole_number_is_none() {
    for bad in ["1.5", "-7", "1e300", "\"7\"", "null"] {
        assert_eq!(fold(&[&record(&usage(bad, "0"))]).tokens(), None, "{bad}");
    }
}
