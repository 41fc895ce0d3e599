//! `[[agent]]`: agents that lariat knows by nothing but what a person says of them.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::section::{Section, a};

const KEYS: [&str; 6] = ["name", "command", "prompt", "session_id", "resume", "transcripts"];
/// What stands for the session's id.
const ID: &str = "{id}";
/// What stands for the prompt.
const PROMPT: &str = "{prompt}";

/// An agent that is only described: `[[agent]]`.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Described {
    /// Its agent is `agent:<name>`.
    pub name: String,
    /// The program and its arguments, for every start.
    pub command: Vec<String>,
    /// How it is given a prompt.
    #[serde(default)]
    pub prompt: Given,
    /// The arguments by which its id is chosen; none if it cannot be.
    #[serde(default)]
    pub session_id: Vec<String>,
    /// The arguments by which a session goes on; none if that is not known.
    #[serde(default)]
    pub resume: Vec<String>,
    /// The path of a session's transcript, with its id in it.
    #[serde(default)]
    pub transcripts: Option<String>,
}

/// How an agent is given its first prompt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Given {
    /// By these last arguments.
    Words(Vec<String>),
    /// By its standard input, without a terminal.
    Stdin,
    /// By being typed into its terminal.
    Typed,
}

impl Default for Given {
    fn default() -> Self {
        Given::Words(vec![PROMPT.to_owned()])
    }
}

impl Given {
    /// The arguments that give this prompt.
    pub fn words(&self, prompt: &str) -> Option<Vec<String>> {
        match self {
            Given::Words(words) => Some(words.iter().map(|w| w.replace(PROMPT, prompt)).collect()),
            _ => None,
        }
    }
}

/// A template with this id in its places.
pub fn filled(template: &[String], id: &str) -> Vec<String> {
    template.iter().map(|word| word.replace(ID, id)).collect()
}

/// One described agent; `None` if it cannot be started as it stands.
pub(super) fn read(entry: &mut Section<'_, '_>) -> Option<(Described, Range<usize>)> {
    let before = entry.wrong.found.len();
    let span = entry.span.clone();
    entry.knows(&KEYS);
    entry.needs("name", "an agent needs its name");
    let name = entry.name();
    entry.needs("command", "an agent needs its command, like [\"aider\"]");
    let command = entry.words("command");
    let session_id = template(entry, "session_id");
    let resume = template(entry, "resume");
    let transcripts = entry.text("transcripts");
    if let Some((path, at)) = &transcripts
        && !path.contains(ID)
    {
        entry.wrong.tell(at, "transcripts needs {id} in it: no file is a session's because it is the newest");
    }
    // Of an id that the agent chose and shows nobody, nothing can be said.
    for key in ["resume", "transcripts"] {
        if entry.value(key).is_some() && entry.value("session_id").is_none() {
            entry.wrong.tell(&span, format!("{key} needs session_id: an id that lariat did not choose is not known"));
        }
    }
    let described = Described {
        prompt: prompt(entry),
        session_id: session_id.unwrap_or_default(),
        resume: resume.unwrap_or_default(),
        transcripts: transcripts.map(|(path, _)| path.to_owned()),
        command: command?,
        name: name?.to_owned(),
    };
    (entry.wrong.found.len() == before).then_some((described, span))
}

/// Arguments with an id among them.
fn template(entry: &mut Section<'_, '_>, key: &str) -> Option<Vec<String>> {
    let span = entry.value(key)?.span();
    let words = entry.words(key)?;
    if !words.iter().any(|word| word.contains(ID)) {
        entry
            .wrong
            .tell(&span, format!("{key} needs {{id}} in it, like [\"--{}\", \"{{id}}\"]", key.replace('_', "-")));
    }
    Some(words)
}

fn prompt(entry: &mut Section<'_, '_>) -> Given {
    let Some(value) = entry.value("prompt") else { return Given::default() };
    let span = value.span();
    let like = "\"argument\", \"stdin\", \"typed\", or a list like [\"--message\", \"{prompt}\"]";
    match value.get_ref().as_str() {
        Some("argument") => return Given::default(),
        Some("stdin") => return Given::Stdin,
        Some("typed") => return Given::Typed,
        Some(word) => entry.wrong.tell(&span, format!("prompt {word:?}: {like}")),
        None if value.get_ref().as_array().is_none() => {
            entry.wrong.tell(&span, format!("prompt is {}; it should be {like}", a(value.get_ref())));
        }
        None => {
            let words = entry.words("prompt").unwrap_or_default();
            if words.iter().any(|word| word.contains(PROMPT)) {
                return Given::Words(words);
            }
            entry.wrong.tell(&span, format!("prompt needs {{prompt}} in it: {like}"));
        }
    }
    Given::default()
}
