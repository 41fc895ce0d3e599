use super::*;
use crate::json::Doc;

fn fold(lines: &[&str]) -> Chat {
    let mut chat = Chat::default();
    lines.iter().for_each(|l| chat.line(Doc::parse(l.as_bytes(), Chat::keeps, 600).expect("JSON").root()));
    chat
}

fn input(chats: &[Chat]) -> Option<u64> {
    Chat::tokens_together(chats.iter()).map(|t| t.input)
}

const FULL: &str = r#"{"id":"a","type":"gemini","content":"x","tokens":{"input":5,"output":1,"cached":2}}"#;
const BARE: &str = r#"{"id":"a","type":"gemini","content":"x"}"#;

#[test]
fn an_answer_that_does_not_say_what_it_used_leaves_the_sum_open() {
    assert_eq!(input(&[fold(&[FULL])]), Some(5));
    assert_eq!(input(&[fold(&[BARE])]), None);
    // It says so later, or in another file of the session.
    assert_eq!(input(&[fold(&[BARE, FULL])]), Some(5));
    assert_eq!(input(&[fold(&[FULL, BARE])]), Some(5));
    assert_eq!(input(&[fold(&[BARE]), fold(&[FULL])]), Some(5));
    // A tool's result is no answer, nor is what is said again after a cancelled turn.
    let ran = r#"{"id":"b","type":"gemini","content":"","toolCalls":[{"status":"success"}]}"#;
    let cancelled = r#"{"id":"c","type":"info","content":"Request cancelled."}"#;
    let again = r#"{"id":"d","type":"gemini","content":"x","tokens":null}"#;
    let anew = r#"{"$set":{"messages":[{"id":"d","type":"gemini","content":"x"}]}}"#;
    assert_eq!(input(&[fold(&[FULL, ran, cancelled, again, anew])]), Some(5));
    assert_eq!(input(&[fold(&[FULL, again])]), None);
}

#[test]
fn a_number_that_is_none_leaves_the_sum_open() {
    for bad in ["null", "\"7\"", "-7", "99999999999999999999999"] {
        assert_eq!(input(&[fold(&[&FULL.replace("\"input\":5", &format!("\"input\":{bad}"))])]), None, "{bad}");
        assert_eq!(input(&[fold(&[&FULL.replace("\"cached\":2", &format!("\"cached\":{bad}"))])]), None, "{bad}");
    }
    assert_eq!(input(&[fold(&[&FULL.replace(",\"cached\":2", "")])]), Some(5));
    assert_eq!(input(&[fold(&[&FULL.replace("\"input\":5,", "")])]), None);
    assert_eq!(input(&[fold(&[&FULL.replace("\"tokens\":", "\"tokens\":7,\"other\":")])]), None);
}

#[test]
fn a_line_that_does_not_say_what_it_is_cannot_be_read() {
    let reads = |line: &str| Chat::reads(Doc::parse(line.as_bytes(), Chat::keeps, 600).expect("JSON").root());
    for line in [FULL, BARE, r#"{"sessionId":"s","kind":"main"}"#, r#"{"$set":{}}"#, r#"{"type":"hologram"}"#] {
        assert!(reads(line), "{line}");
    }
    for (good, bad) in [("\"gemini\"", "7"), ("\"gemini\"", "null"), ("\"a\"", "7"), ("\"id\":\"a\",", "")] {
        assert!(!reads(&BARE.replace(good, bad)), "{good} {bad}");
    }
}

/// What a tool that was at work still gives is recorded after that its turn was cancelled.
#[test]
fn a_cancelled_turn_stays_cancelled_whatever_its_tools_give() {
    let asked = r#"{"id":"p","type":"user","content":[{"text":"do it"}]}"#;
    let cancelled = r#"{"id":"c","type":"info","content":"Request cancelled."}"#;
    let given = r#"{"id":"r","type":"user","content":[{"functionResponse":{"name":"sh"}}]}"#;
    let aborted = Some(Stand::Aborted("cancelled by a person".into()));
    for status in ["cancelled", "error", "success"] {
        let call = format!(r#"{{"id":"g","type":"gemini","content":"","toolCalls":[{{"status":"{status}"}}]}}"#);
        let mut lines = vec![asked, FULL, cancelled, &call, given];
        assert_eq!(fold(&lines).stand(), aborted, "{status}");
        lines.extend([r#"{"id":"q","type":"user","content":[{"text":"do more"}]}"#, call.as_str()]);
        assert_eq!(fold(&lines).stand(), Some(Stand::Open), "{status}");
    }
}

/// Nothing but who began it tells a request that a client cancelled from one that failed.
#[test]
fn what_is_taken_back_without_a_word_was_cancelled_by_a_client_and_has_failed_elsewhere() {
    let header = r#"{"sessionId":"s","projectHash":"0","kind":"main"}"#;
    let scene = r#"{"$set":{"messages":[{"id":"c","type":"user","content":[{"text":"<session_context>"}]}]}}"#;
    let asked = r#"{"id":"p","type":"user","content":[{"text":"do it"}]}"#;
    let by_client = [header, scene, header, scene, asked];
    let stands = |more: &[&str]| fold(&[&by_client[..], more].concat()).stand();
    assert!(matches!(fold(&[header, scene, asked, scene]).stand(), Some(Stand::Failed(_))));
    assert!(matches!(stands(&[scene]), Some(Stand::Aborted(_))));
    assert_eq!(stands(&[]), Some(Stand::Open));
    // Taken up again by somebody else.
    let more = r#"{"id":"q","type":"user","content":[{"text":"go on"}]}"#;
    assert!(matches!(stands(&[header, more, scene]), Some(Stand::Failed(_))));
    assert!(matches!(stands(&[r#"{"$set":{"sessionId":"s"}}"#, more, scene]), Some(Stand::Failed(_))));
    assert!(matches!(fold(&[header, scene, asked, FULL, header, scene, more, scene]).stand(), Some(Stand::Failed(_))));
}

/// Who took it up since it was begun may stand in what was not read.
#[test]
fn what_is_taken_back_after_a_gap_tells_nothing_of_one_that_a_client_began() {
    let header = r#"{"sessionId":"s","projectHash":"0","kind":"main"}"#;
    let scene = r#"{"$set":{"messages":[{"id":"c","type":"user","content":[{"text":"<session_context>"}]}]}}"#;
    let asked = r#"{"id":"p","type":"user","content":[{"text":"do it"}]}"#;
    let after_a_gap = |begin: &[&str], more: &[&str]| {
        let mut chat = fold(begin);
        chat.gap();
        more.iter().for_each(|l| chat.line(Doc::parse(l.as_bytes(), Chat::keeps, 600).expect("JSON").root()));
        chat.stand()
    };
    let by_client = [header, scene, header, scene, asked];
    let taken_up = r#"{"$set":{"sessionId":"s"}}"#;
    assert_eq!(after_a_gap(&by_client, &[asked, scene]), None);
    assert!(matches!(after_a_gap(&by_client, &[taken_up, asked, scene]), Some(Stand::Failed(_))));
    assert!(matches!(after_a_gap(&[header, scene, asked], &[asked, scene]), Some(Stand::Failed(_))));
}
