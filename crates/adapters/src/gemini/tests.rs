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
        Gemini.state_in_output(all.as_bytes(), &[])
    };
    assert_eq!(said(&["◇  Ready"]), None);
    assert_eq!(said(&["◇  Ready", "◇  Ready"]), Some(State::Idle));
    assert_eq!(said(&["◇  Ready", "✦  Reading files"]), Some(State::Busy));
    assert_eq!(said(&["✦  Working…", "✋  Action Required"]), Some(State::Waiting("action required".into())));
    assert_eq!(said(&["◇  Ready", "Gemini CLI"]), None);
    assert_eq!(Gemini.state_in_output("\x1b]0;◇  Ready\x07 \x1b]0;◇  Rea".as_bytes(), &[]), None, "cut off");
    assert_eq!(Gemini.state_in_output(b"", &[]), None);

    // One that was told to resume is deaf until it has drawn its prompt again; a look may come at any byte.
    let resumed = ["gemini".to_owned(), RESUME.to_owned(), "x".to_owned()];
    let said = |text: &str| Gemini.state_in_output(text.as_bytes(), &resumed);
    let (ready, busy) = (title("◇  Ready"), title("✦  Working…"));
    let (prompt, resuming) = ("> \x1b[7m \x1b[27m Type your message or @path", "⠋ Resuming session...");
    let words = std::str::from_utf8(LISTENS[0]).unwrap();
    let erased = "\x1b[2K\x1b[1A\x1b[2K\x1b[G";
    let first = format!("{ready}\x1b[?25l{prompt}{ready}");
    let cleared = format!("\x1b[2J\x1b[3J\x1b[H{erased}> hello\x1b[?25l");
    let all = format!("{first}{cleared}{resuming}{erased}{resuming}{erased}{prompt}");
    let listens = all.rfind(words).unwrap() + words.len();
    for end in (0..all.len()).filter(|end| all.is_char_boundary(*end)) {
        let wanted = (end >= listens).then_some(State::Idle);
        assert_eq!(said(&all[..end]), wanted, "a look after {:?}", &all[..end]);
    }
    // What it clears and draws again before it resumes is no sign.
    assert_eq!(said(&format!("{first}{cleared}{prompt}")), None);
    assert_eq!(said(&format!("{all}{erased}> some words")), Some(State::Idle), "it never goes back");
    assert_eq!(said(&format!("{ready}{busy}")), Some(State::Busy));
    assert_eq!(said(&format!("{ready}{busy}{ready}")), Some(State::Idle), "long since");
}

#[test]
fn while_it_compresses_it_works() {
    let ready = "\x1b]0;◇  Ready (proj)\x07".repeat(2);
    let said = |text: &str| Gemini.state_in_output(format!("{ready}{text}").as_bytes(), &[]);
    let prompt = "\r\n> Type your message or @path";
    let spins = format!("\x1b[2K\x1b[1A\x1b[2K\x1b[G⠹ \x1b[38;5;183mCompressing chat history\x1b[39m{prompt}");
    let twice = format!("{prompt}{spins}{spins}");
    let begins = twice.find("Compressing chat history").unwrap() + "Compressing chat history".len();
    for end in (begins..=twice.len()).filter(|end| twice.is_char_boundary(*end)) {
        assert_eq!(said(&twice[..end]), Some(State::Busy), "a look after {:?}", &twice[..end]);
    }
    for end in ["✦ Nothing to compress.\r\n> some words", "✦ Chat history compressed from 9 to 3 tokens.", prompt] {
        assert_eq!(said(&format!("{twice}\x1b[2K\x1b[1A\x1b[2K\x1b[G{end}")), Some(State::Idle), "{end}");
    }
    // Somebody who talks of it does not do it.
    assert_eq!(said("✦ Compressing chat history is done by /compress.\r\n> some words"), Some(State::Idle));
}

#[test]
fn a_dialog_that_stands_is_asked_and_is_no_rest() {
    let ready = "\x1b]0;◇  Ready (proj)\x07".repeat(2);
    let said = |text: &str| {
        let all = format!("{ready}{text}");
        let asks = Gemini.asks_in_output(all.as_bytes()).map(|ask| ask.reason().raw().to_owned());
        (asks, Gemini.state_in_output(all.as_bytes(), &[]))
    };
    let dialog = "│ Do you trust the files in this folder? │\r\n│ ● 1. Trust folder │";
    let trust = Some("dialog: whether it may trust the files in this folder".to_owned());
    assert_eq!(said(dialog), (trust.clone(), None));
    assert_eq!(said(&format!("{dialog}\x1b[2K\x1b[1A")), (trust, None), "about to be drawn again");
    let answered = format!("{dialog}\x1b[2K\x1b[1A> Type your message or @path");
    assert_eq!(said(&answered), (None, Some(State::Idle)));
    let (asks, _) = said(&format!("{dialog}\x1b[2K? How would you like to authenticate for this project?"));
    assert_eq!(asks.as_deref(), Some("login: how to authenticate"), "one after the other");
    // Somebody who talks of it is asked nothing.
    assert_eq!(said(&format!("✦ {dialog}\r\n> Type your message or @path")), (None, Some(State::Idle)));
    let busy = format!("{dialog}\x1b]0;✦  Working…\x07");
    assert_eq!(said(&busy).1, Some(State::Busy));
    // What a person has opened stands there, too.
    let opened = (Some(format!("dialog: {OPENED}")), None);
    for drawn in [
        "(Press Esc to close)",
        "(Use Enter to select, Tab to change focus, Esc to │\r\n│ close)",
        "(Use Enter to select a message, Esc to close, Right/Left to expand/collapse)",
        "Use arrow keys to navigate, Enter to confirm, Esc to cancel.",
        "Press Esc to exit.",
        "Enter to select · ↑/↓ to navigate · ←/→ to reorder · Esc to close",
    ] {
        assert_eq!(said(&format!("│ {drawn} │")), opened);
    }
    assert_eq!(said(" Chat Sessions (2 total)   sorted by date desc"), opened);
    // While a request that failed is not given up, its title stays what it was.
    let model = Some(format!("dialog: {MODEL}"));
    let failed =
        format!("{busy}│ Model \"x\" was not found or is invalid. │\r\n│ \x1b[1m/model\x1b[22m to switch models. │");
    assert_eq!(said(&failed), (model, None));
    assert_eq!(said(&format!("{failed}\x1b[2K> Type your message")), (None, Some(State::Busy)), "tried again");
}

#[test]
fn only_a_result_is_the_end_of_a_turn() {
    let init = "{\"type\":\"init\",\"session_id\":\"a\"}\n";
    let result = "{\"type\":\"result\",\"status\":\"success\"}\n";
    let left = |lines: &[&str]| Gemini.left_in_output(lines.concat().as_bytes());
    assert_eq!(left(&[init]), Some(Turn::Open(Some("it gave no result".into()))));
    assert_eq!((left(&[init, result]), left(&[]), left(&["{\"type\":\"res"])), (None, None, None));
    // Nor is one that tells of an error, whatever the exit code.
    let failed = |why: &str| Some(Turn::Over(Outcome::Failed(Untrusted::new(why))));
    let error = |member: &str| format!("{{\"type\":\"result\",\"status\":\"error\"{member},\"stats\":{{}}}}\n");
    let event = "{\"type\":\"error\",\"severity\":\"error\",\"message\":\"Invalid stream\"}\n";
    assert_eq!(left(&[init, &error(",\"error\":{\"type\":\"Error\",\"message\":\"no\"}")]), failed("no"));
    assert_eq!(left(&[init, event, &error("")]), failed("Invalid stream"));
    assert_eq!(left(&[init, event, init, &error("")]), failed("its result is an error"));
    assert_eq!(left(&[init, &error(",\"error\":{\"type\":\"FatalCancellationError\",\"message\":\"x\"}")]), None);
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

#[test]
fn where_nobody_can_look_a_session_may_be_lost() {
    let home = std::env::temp_dir().join(format!("lariat-gemini-loses-{}", std::process::id()));
    let chats = home.join("tmp/proj/chats");
    fs::create_dir_all(chats.parent().expect("a folder")).expect("a folder");
    let places = Places { gemini: home.clone(), ..Places::from_env() };
    let id = "0a1b2c3d-1111-4111-8111-000000000001";
    assert_eq!(Gemini.loses(&places, id), None);
    std::os::unix::fs::symlink("chats", &chats).expect("a link to itself");
    assert_eq!(Gemini.loses(&places, id), Some(UNSEEN));
    assert_eq!(Gemini.loses(&places, "ses_0a1b2c3d"), None, "none of Gemini's");
    #[expect(clippy::disallowed_methods, reason = "made by this test")]
    fs::remove_dir_all(&home).expect("it goes");
}
