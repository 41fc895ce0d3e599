//! What is told by a terminal and by output, and how a session is started again.

use std::fs;

use super::*;

fn ask(prompt: Option<&str>, headless: bool) -> Ask {
    Ask { prompt: prompt.map(str::to_owned), headless, ..Ask::default() }
}

#[test]
fn the_last_title_tells_and_the_first_one_nothing() {
    let title = |text: &str| format!("x\x1b]0;{text} (proj)\x07y");
    let said = |titles: &[&str]| {
        let all: String = titles.iter().map(|t| title(t)).collect();
        Gemini.state_in_output(all.as_bytes())
    };
    assert_eq!(said(&["◇  Ready"]), None);
    assert_eq!(said(&["◇  Ready", "◇  Ready"]), Some(State::Idle));
    assert_eq!(said(&["◇  Ready", "✦  Reading files"]), Some(State::Busy));
    assert_eq!(said(&["✦  Working…", "✋  Action Required"]), Some(State::Waiting("action required".into())));
    assert_eq!(said(&["◇  Ready", "Gemini CLI"]), None);
    assert_eq!(Gemini.state_in_output("\x1b]0;◇  Ready\x07 \x1b]0;◇  Rea".as_bytes()), None, "cut off");
    assert_eq!(Gemini.state_in_output(b""), None);
}

#[test]
fn only_a_result_is_the_end_of_a_turn() {
    let init = "{\"type\":\"init\",\"session_id\":\"a\"}\n";
    let result = "{\"type\":\"result\",\"status\":\"success\"}\n";
    assert_eq!(Gemini.finished_in_output(init.as_bytes()), Some(false));
    assert_eq!(Gemini.finished_in_output(format!("{init}{result}").as_bytes()), Some(true));
    assert_eq!(Gemini.finished_in_output(b""), None);
    assert_eq!(Gemini.id_in_output(init.trim_end()).as_deref(), Some("a"));
    assert_eq!(Gemini.id_in_output(result.trim_end()), None);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test's own files")]
fn a_session_is_resumed_only_where_gemini_does_not_remove_it_afterwards() {
    let store = std::env::temp_dir().join(format!("lariat-gemini-{}", std::process::id()));
    let chats = store.join("tmp/proj/chats");
    fs::create_dir_all(&chats).unwrap();
    let file = chats.join("session-2026-11-15T07-58-cccccccc.jsonl");
    let past = |fork| Past { native_id: "cccccccc", transcript: Some(&file), fork };
    let settings = |text: &str| fs::write(store.join("settings.json"), text).unwrap();
    let resume = |headless, fork| Gemini.resume(&ask(Some("go on"), headless), &past(fork));

    assert!(resume(true, false).is_err(), "no settings: it is switched on");
    for on in ["{}", "{\"general\":{\"sessionRetention\":{\"enabled\":true}}}", "{\"general\":", "{\"enabled\":false}"]
    {
        settings(on);
        assert!(resume(true, false).is_err(), "{on}");
        assert!(resume(true, true).is_err(), "{on}");
    }
    settings("{\"general\":{\"sessionRetention\":{\"enabled\":false}}}");
    let plan = resume(true, false).unwrap();
    assert_eq!(plan.arguments, ["--resume", "cccccccc", "-o", "stream-json", "--prompt=go on"]);
    assert_eq!((plan.native_id.as_deref(), plan.keep), (Some("cccccccc"), vec![file.clone()]));
    let fork = resume(true, true).unwrap();
    assert_eq!((&fork.arguments[0], fork.native_id), (&"--session-file".to_owned(), None));
    assert!(resume(false, true).is_err(), "its id could not be known");
    fs::remove_dir_all(&store).unwrap();
}
