//! What a prompt makes the actor do.
//!
//! A few scenes of a working day, told by a word in the prompt, and four plain orders (`run`,
//! `think`, `ask`, `fail`) for whoever wants to try something else. This module reads text only:
//! it never writes, runs or waits.

use serde_json::{Value, json};

/// One thing the actor does.
#[derive(Debug, Clone, PartialEq)]
pub enum Beat {
    /// Works for so many seconds, with nothing to show for it yet.
    Think(u64),
    /// Says something and runs a command, once a person allowed it if it `asks`.
    Run {
        /// What it says first.
        says: String,
        /// The command.
        command: String,
        /// Whether it asks first.
        asks: bool,
    },
    /// Says something and asks a question.
    Ask {
        /// What it says first.
        says: String,
        /// The question.
        question: String,
        /// The answers it offers.
        options: Vec<String>,
    },
    /// Says something; `{}` is what the tool before it gave. The turn is over.
    Say(String),
    /// The model's side fails, and the turn is over.
    Fail(String),
}

impl Beat {
    /// The tool that it calls: its name and what it is given.
    pub fn tool(&self) -> Option<(&'static str, Value)> {
        match self {
            Beat::Run { command, .. } => Some(("Bash", json!({"command": command, "description": "scripted"}))),
            Beat::Ask { question, options, .. } => {
                let options: Vec<Value> = options.iter().map(|o| json!({"label": o, "description": o})).collect();
                let question =
                    json!({"question": question, "header": "Choice", "options": options, "multiSelect": false});
                Some(("AskUserQuestion", json!({"questions": [question]})))
            }
            _ => None,
        }
    }
}

/// What the actor can be told, for whoever attaches to it.
pub const ORDERS: &str = "run COMMAND · think SECONDS · ask QUESTION? A | B · fail · /clear · /exit";

/// The beats that a prompt asks for. The last one ends the turn.
pub fn read(prompt: &str) -> Vec<Beat> {
    let (order, rest) = prompt.trim().split_once(char::is_whitespace).unwrap_or((prompt.trim(), ""));
    match order.to_ascii_lowercase().as_str() {
        "run" if !rest.is_empty() => {
            let commands = rest.split(" then run ").map(|command| run("I run it.", command, true));
            return commands.chain([say("It said:\n{}")]).collect();
        }
        "think" => {
            let seconds = rest.parse().unwrap_or(5);
            return vec![Beat::Think(seconds), say(&format!("I thought about it for {seconds} seconds."))];
        }
        "ask" => {
            let (question, options) = rest.split_once('?').unwrap_or((rest, ""));
            let options: Vec<&str> = options.split('|').map(str::trim).filter(|o| !o.is_empty()).collect();
            let options = if options.is_empty() { vec!["Yes", "No"] } else { options };
            return vec![ask("One thing first.", &format!("{question}?"), &options), say("You said: {}")];
        }
        "fail" => return vec![Beat::Fail("API Error: 529 Overloaded".into())],
        _ => {}
    }
    scene(prompt).unwrap_or_else(|| {
        let words = prompt.split_whitespace().count();
        vec![say(&format!("I am a scripted agent and heard {words} words. I know: {ORDERS}"))]
    })
}

fn scene(prompt: &str) -> Option<Vec<Beat>> {
    let has = |word: &str| prompt.to_lowercase().contains(word);
    let beats = if has("release notes") {
        vec![Beat::Think(1), say("Drafted in NOTES.md: 3 features, 7 fixes.")]
    } else if has("release") {
        let says = "The tests pass and the version is 1.4.0 everywhere. I'd like to tag it.";
        vec![run(says, "git tag v1.4.0", true), say("Tagged v1.4.0. Pushing it is up to you.")]
    } else if has("orders") {
        let question = "Keep /v1/orders as an alias, or remove it?";
        let says = "Two clients still call the old route.";
        vec![ask(says, question, &["Keep it", "Remove it"]), say("\u{201c}{}\u{201d} it is. The routes are changed.")]
    } else if has("parser") {
        vec![run("The grammar is done. Now the whole suite.", "./suite", false), say("All tests pass.")]
    } else if has("addresses") {
        vec![run("First a dry run on a copy.", "./migrate --dry-run", false), say("The migration fits.")]
    } else if has("issues") {
        vec![say("Four themes: import errors (9), slow search (5), dark mode (3), typos (2).")]
    } else if has("oldest") {
        vec![Beat::Think(1), say("The slow search, open since March. It has the most votes, too.")]
    } else if has("uploads") {
        vec![Beat::Think(1), Beat::Fail("API Error: 529 Overloaded".into())]
    } else {
        return None;
    };
    Some(beats)
}

fn run(says: &str, command: &str, asks: bool) -> Beat {
    Beat::Run { says: says.into(), command: command.into(), asks }
}

fn ask(says: &str, question: &str, options: &[&str]) -> Beat {
    Beat::Ask { says: says.into(), question: question.into(), options: options.iter().map(|&o| o.to_owned()).collect() }
}

fn say(text: &str) -> Beat {
    Beat::Say(text.into())
}
