//! What Claude Code asks through its `PermissionRequest` hook, and how it is
//! answered there; and what its `SessionStart` hook tells.
//!
//! The first runs while the dialog stands on the terminal; whoever answers first,
//! the person there or the hook, decides. So nothing is ever typed. The second tells
//! that a person went on to another session in the same process.

use lariat_core::{Ask, AskKind, Untrusted};
use serde_json::{Value, json};

use crate::Decision;
use crate::json::Doc;
use crate::tool::Call;

/// How long a hook may wait for a person, in seconds: a day.
const PATIENCE: u32 = 86_400;

/// The settings that make one launch tell a command.
pub fn settings(hook: &str) -> String {
    let ask = json!([{"hooks": [{"type": "command", "command": hook, "timeout": PATIENCE}]}]);
    let moved = json!([{"matcher": "clear|resume|fork", "hooks": [{"type": "command", "command": hook}]}]);
    json!({"hooks": {"PermissionRequest": ask, "SessionStart": moved}}).to_string()
}

/// The session that a process goes on with, if the event tells of one.
pub fn moved(event: &[u8]) -> Option<String> {
    let doc = Doc::parse(event, |_, key| matches!(key, b"hook_event_name" | b"session_id"), 1 << 10).ok()?;
    let starts = doc.root().get("hook_event_name").str() == Some("SessionStart");
    doc.root().get("session_id").str().filter(|id| starts && crate::agent_process::is_uuid(id)).map(str::to_owned)
}

/// The question about a tool call.
pub fn about(call: &Call) -> Ask {
    let text = |t: &str| Untrusted::new(t.to_owned());
    match call.name.as_str() {
        "AskUserQuestion" => Ask { kind: AskKind::Question, text: text(&call.gist) },
        "ExitPlanMode" => Ask { kind: AskKind::Plan, text: text(call.gist.lines().next().unwrap_or("")) },
        _ => Ask { kind: AskKind::Permission, text: Untrusted::new(call.told()) },
    }
}

/// What an event of the hook asks.
pub fn asked(event: &[u8]) -> Option<Ask> {
    let doc = Doc::parse(event, |_, _| true, 1 << 20).ok()?;
    let name = doc.root().get("tool_name").some_str()?;
    Some(about(&Call::new("", name, doc.root().get("tool_input"), None)))
}

/// What the hook says for a decision.
pub fn answer(event: &[u8], decision: &Decision) -> Result<String, String> {
    let event: Value = serde_json::from_slice(event).map_err(|e| format!("what it asked cannot be read: {e}"))?;
    let questions = event["tool_input"]["questions"].as_array().filter(|_| event["tool_name"] == "AskUserQuestion");
    let decision = match (decision, questions) {
        // A message that is null is no answer to it, and it goes on asking.
        (Decision::Deny(None), _) => json!({"behavior": "deny"}),
        (Decision::Deny(Some(why)), _) => json!({"behavior": "deny", "message": why}),
        // Where a person must have a hand in it, leave alone is not taken: it must bring what the person decided on.
        (Decision::Allow, None) if event["tool_name"] == "ExitPlanMode" => {
            json!({"behavior": "allow", "updatedInput": event["tool_input"]})
        }
        (Decision::Allow, None) => json!({"behavior": "allow"}),
        (Decision::Allow, Some(_)) => return Err("it asks a question; `lariat answer` answers it".into()),
        (Decision::Answer(_), None) => {
            return Err("it asks for a permission; `lariat approve` or `lariat deny` answers it".into());
        }
        (Decision::Answer(texts), Some(questions)) => {
            if texts.len() != questions.len() {
                return Err(format!(
                    "it asks {} question(s), and there are {} answer(s)",
                    questions.len(),
                    texts.len()
                ));
            }
            let answers = questions.iter().zip(texts).map(|(question, text)| {
                let asked = question["question"].as_str().unwrap_or_default();
                (asked.to_owned(), Value::from(choice(question, text)))
            });
            let mut input = event["tool_input"].clone();
            input["answers"] = Value::Object(answers.collect());
            json!({"behavior": "allow", "updatedInput": input})
        }
    };
    Ok(json!({"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}).to_string())
}

/// The option that a text means, by its number or its label, or, where several may be chosen, those that it names
/// between commas; else the text itself.
fn choice(question: &Value, text: &str) -> String {
    let labels: Vec<&str> =
        question["options"].as_array().into_iter().flatten().filter_map(|o| o["label"].as_str()).collect();
    let option = |text: &str| {
        let by_number = text.trim().parse::<usize>().ok().and_then(|n| labels.get(n.checked_sub(1)?));
        by_number.or_else(|| labels.iter().find(|l| l.eq_ignore_ascii_case(text.trim()))).copied()
    };
    let several = || {
        let chosen: Option<Vec<&str>> = text.split(',').map(option).collect();
        chosen.filter(|_| question["multiSelect"] == true).map(|chosen| chosen.join(", "))
    };
    option(text).map(str::to_owned).or_else(several).unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: &str = r#"{"tool_name":"AskUserQuestion","tool_input":{"questions":[{"question":"Which colour?",
        "options":[{"label":"Red"},{"label":"Blue"}],"multiSelect":false}]}}"#;

    fn said(event: &str, decision: Decision) -> Value {
        let text = answer(event.as_bytes(), &decision).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["hookSpecificOutput"]["decision"].clone()
    }

    #[test]
    fn a_question_is_answered_by_label_by_number_and_in_own_words() {
        for (given, told) in [("blue", "Blue"), ("1", "Red"), ("a dark green", "a dark green"), ("3", "3")] {
            let decision = said(QUESTION, Decision::Answer(vec![given.into()]));
            assert_eq!(decision["behavior"], "allow");
            assert_eq!(decision["updatedInput"]["answers"]["Which colour?"], told);
            assert_eq!(decision["updatedInput"]["questions"][0]["options"][1]["label"], "Blue", "the rest stays");
        }
        assert!(answer(QUESTION.as_bytes(), &Decision::Allow).is_err());
        assert!(answer(QUESTION.as_bytes(), &Decision::Answer(vec![])).is_err());
    }

    #[test]
    fn several_options_are_chosen_where_that_is_offered() {
        let several = QUESTION.replace("false", "true");
        for (given, told) in [("2,1", "Blue, Red"), ("red, 2", "Red, Blue"), ("2", "Blue"), ("1, green", "1, green")] {
            let decision = said(&several, Decision::Answer(vec![given.into()]));
            assert_eq!(decision["updatedInput"]["answers"]["Which colour?"], told);
        }
        let one = said(QUESTION, Decision::Answer(vec!["1,2".into()]));
        assert_eq!(one["updatedInput"]["answers"]["Which colour?"], "1,2", "only one may be chosen");
    }

    #[test]
    fn a_permission_is_granted_or_denied_with_a_reason() {
        let event = r#"{"tool_name":"Bash","tool_input":{"command":"rm -rf build","description":"x"}}"#;
        let ask = asked(event.as_bytes()).unwrap();
        assert_eq!(ask.reason().raw(), "permission: Bash rm -rf build");
        assert_eq!(said(event, Decision::Allow)["behavior"], "allow");
        assert_eq!(said(event, Decision::Deny(Some("not now".into())))["message"], "not now");
        assert_eq!(said(event, Decision::Deny(None)), json!({"behavior": "deny"}));
        assert!(answer(event.as_bytes(), &Decision::Answer(vec!["yes".into()])).is_err());
        let plan = r#"{"tool_name":"ExitPlanMode","tool_input":{"plan":"1. Look."}}"#;
        assert_eq!(said(plan, Decision::Allow)["updatedInput"]["plan"], "1. Look.", "or the program goes on asking");
        assert!(asked(b"nonsense").is_none() && answer(b"nonsense", &Decision::Allow).is_err());
    }
}
