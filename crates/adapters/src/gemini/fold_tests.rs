use super::*;
use crate::json::Doc;

fn fold(lines: &[&str]) -> Chat {
    let mut chat = Chat::default();
    lines.iter().for_each(|l| chat.line(Doc::parse(l.as_bytes(), Chat::KEEP, 600).expect("JSON").root()));
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
}
