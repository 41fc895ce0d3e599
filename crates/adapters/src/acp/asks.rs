//! What an agent asks by `session/request_permission`, and what it is answered.
//!
//! The agent offers options, each of a kind. A decision is the option that does just that: once, this
//! time. What an agent does not offer is not made up.

use lariat_core::{Ask, AskKind, Untrusted};
use serde_json::{Value, json};

use crate::Decision;

/// A request in words.
pub fn asked(event: &[u8]) -> Option<Ask> {
    let event: Value = serde_json::from_slice(event).ok()?;
    let call = &event["params"]["toolCall"];
    let text = ["title", "kind", "toolCallId"].iter().find_map(|key| call[key].as_str().filter(|t| !t.is_empty()));
    Some(Ask { kind: AskKind::Permission, text: Untrusted::new(text.unwrap_or("a tool")) })
}

/// The `result` that carries a decision.
pub fn answer(event: &[u8], decision: &Decision) -> Result<String, String> {
    let event: Value = serde_json::from_slice(event).map_err(|e| format!("its request cannot be read: {e}"))?;
    let options = event["params"]["options"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_kind = |kind: &str| options.iter().find(|o| o["kind"] == kind);
    let offered = || {
        let names: Vec<String> =
            options.iter().filter_map(|o| o["optionId"].as_str()).map(|o| format!("'{o}'")).collect();
        format!("it offers {}; `lariat answer` takes one of them", names.join(", "))
    };
    let chosen = match decision {
        Decision::Allow => of_kind("allow_once"),
        Decision::Deny(None) => of_kind("reject_once"),
        Decision::Deny(Some(_)) => return Err("the protocol carries no reason; deny it without one".into()),
        Decision::Answer(answers) => match answers.as_slice() {
            [one] => {
                let is = |o: &&Value| {
                    ["optionId", "name"].iter().any(|k| o[*k].as_str().is_some_and(|t| t.eq_ignore_ascii_case(one)))
                };
                options.iter().find(is)
            }
            _ => return Err("it asks one thing".into()),
        },
    };
    let id = chosen.and_then(|o| o["optionId"].as_str()).ok_or_else(offered)?;
    Ok(json!({"outcome": {"outcome": "selected", "optionId": id}}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_is_the_option_that_does_just_that() {
        let event = br#"{"id":0,"method":"session/request_permission","params":{"toolCall":{"title":"rm x"},"options":[
            {"optionId":"always","name":"Always","kind":"allow_always"},{"optionId":"once","name":"Once","kind":"allow_once"},
            {"optionId":"no","kind":"reject_once"}]}}"#;
        let chosen =
            |d: &Decision| answer(event, d).map(|t| serde_json::from_str::<Value>(&t).unwrap()["outcome"].clone());
        assert_eq!(asked(event).unwrap().reason().raw(), "permission: rm x");
        assert_eq!(chosen(&Decision::Allow).unwrap(), json!({"outcome": "selected", "optionId": "once"}));
        assert_eq!(chosen(&Decision::Deny(None)).unwrap()["optionId"], "no");
        assert_eq!(chosen(&Decision::Answer(vec!["ALWAYS".into()])).unwrap()["optionId"], "always");
        assert!(chosen(&Decision::Deny(Some("because".into()))).is_err());
        assert!(chosen(&Decision::Answer(vec!["perhaps".into()])).unwrap_err().contains("'once'"));
        let only_always = br#"{"params":{"options":[{"optionId":"always","kind":"allow_always"}]}}"#;
        assert!(answer(only_always, &Decision::Allow).is_err(), "always is more than was decided");
    }
}
