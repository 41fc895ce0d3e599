//! What a prompt asks the scripted model to do.
//!
//! A prompt is read left to right; an upper-case keyword standing alone takes the next word or the
//! rest of its line. Everything else is prose and is echoed. This module reads text only: it never
//! looks at a request's wire format, nor waits.

use std::time::Duration;

use serde_json::Value;

/// The reply a prompt asks for, and what happens before it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Script {
    /// Held before any content, until the test releases the name (`HOLD name`).
    pub hold: Option<String>,
    /// Held after half of the text was streamed (`PARTIAL name`).
    pub partial: Option<String>,
    /// Held when the agent comes back with the tool's result (`THEN name`).
    pub then: Option<String>,
    /// Silence before the content (`SLEEP seconds`): for demonstrations, tests use `HOLD`.
    pub sleep: Duration,
    /// The text is said over and over, as by a model that does not get on (`REPEAT`).
    pub repeat: bool,
    /// Ask for the tool with elevated rights, so that the agent asks a person (`ESCALATE`).
    pub escalate: bool,
    /// What the reply is.
    pub reply: Reply,
}

/// The content of a reply.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Reply {
    /// Plain text that repeats the end of the prompt.
    #[default]
    Echo,
    /// One shell call per command, all in one message (`TOOL cmd`, `PARALLEL a ;; b`).
    Shell(Vec<String>),
    /// A shell call that is left running (`BGTOOL cmd`).
    BackgroundShell(String),
    /// A file written by the agent's own tool (`WRITE path`).
    Write(String),
    /// A question to the person (`ASK`).
    Ask,
    /// A plan put before the person (`PLAN`).
    Plan,
    /// A sub-agent with this prompt (`AGENT text`).
    Agent(String),
    /// Any tool by its name, with its input as JSON (`CALL name {…}`).
    Call(String, Value),
    /// An HTTP error (`FAIL code`).
    Fail(u16),
}

impl Script {
    /// Reads a prompt.
    pub fn read(prompt: &str) -> Self {
        let mut script = Self::default();
        for line in prompt.lines() {
            script.read_line(line);
        }
        script
    }

    /// What is left of a script once the agent has run the tool it asked for.
    pub(crate) fn after_tool(self) -> Self {
        Self { hold: self.then, ..Self::default() }
    }

    fn read_line(&mut self, line: &str) {
        let mut rest = line;
        while let Some((word, tail)) = next_word(rest) {
            rest = tail;
            match word {
                "HOLD" => self.hold = take_word(&mut rest),
                "PARTIAL" => self.partial = take_word(&mut rest),
                "THEN" => self.then = take_word(&mut rest),
                "SLEEP" => {
                    let seconds = take_word(&mut rest).and_then(|word| word.parse().ok());
                    self.sleep = seconds.map_or(Duration::ZERO, Duration::from_secs_f64);
                }
                "REPEAT" => self.repeat = true,
                "ESCALATE" => self.escalate = true,
                "ASK" => self.reply = Reply::Ask,
                "PLAN" => self.reply = Reply::Plan,
                "FAIL" => {
                    let code = take_word(&mut rest).and_then(|word| word.parse().ok());
                    self.reply = Reply::Fail(code.unwrap_or(500));
                }
                "WRITE" => self.reply = take_word(&mut rest).map_or(Reply::Echo, Reply::Write),
                "CALL" => {
                    let name = take_word(&mut rest).unwrap_or_default();
                    let input = serde_json::from_str(&take_line(&mut rest));
                    self.reply = Reply::Call(name, input.unwrap_or_default());
                }
                "TOOL" => self.reply = Reply::Shell(vec![take_line(&mut rest)]),
                "BGTOOL" => self.reply = Reply::BackgroundShell(take_line(&mut rest)),
                "AGENT" => self.reply = Reply::Agent(take_line(&mut rest)),
                "PARALLEL" => {
                    let commands = take_line(&mut rest);
                    self.reply = Reply::Shell(commands.split(";;").map(|c| c.trim().to_owned()).collect());
                }
                _ => {}
            }
        }
    }
}

fn next_word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    if text.is_empty() {
        return None;
    }
    Some(text.split_at(text.find(char::is_whitespace).unwrap_or(text.len())))
}

fn take_word(rest: &mut &str) -> Option<String> {
    let (word, tail) = next_word(rest)?;
    *rest = tail;
    Some(word.to_owned())
}

fn take_line(rest: &mut &str) -> String {
    std::mem::take(rest).trim().to_owned()
}

/// What OpenClaw puts around what it says for itself.
const INTERNAL: (&str, &str) = ("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>", "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>");

/// A prompt without the blocks that agents put around it (`<system-reminder>…`,
/// `<environment_context>…`): what a person typed.
pub(crate) fn spoken(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        if let Some(end) = rest[start..].strip_prefix(INTERNAL.0).and_then(|block| block.find(INTERNAL.1)) {
            out.push_str(&rest[..start]);
            rest = &rest[start + INTERNAL.0.len() + end + INTERNAL.1.len()..];
            continue;
        }
        let (before, tagged) = rest.split_at(start);
        out.push_str(before);
        match injected_block(tagged) {
            Some(length) => rest = &tagged[length..],
            None => {
                out.push('<');
                rest = &tagged[1..];
            }
        }
    }
    out.push_str(rest);
    out.trim().to_owned()
}

/// The length of the block that opens here, if its tag is a lower-case compound name (`a-b`,
/// `a_b`, `a b`) or a known single word, and it is closed.
fn injected_block(text: &str) -> Option<usize> {
    let name_end = text.find('>')?;
    let name = &text[1..name_end];
    let compound = name.contains(['-', '_', ' ']);
    let plain = name.chars().all(|c| c.is_ascii_lowercase() || matches!(c, '-' | '_' | ' '));
    if !plain || name.starts_with('/') || !(compound || name == "session") {
        return None;
    }
    let close = format!("</{name}>");
    Some(text.find(&close)? + close.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_take_a_word_or_a_line() {
        let script = Script::read("please HOLD one THEN two TOOL echo HOLD three");
        assert_eq!(script.hold.as_deref(), Some("one"));
        assert_eq!(script.then.as_deref(), Some("two"));
        assert_eq!(script.reply, Reply::Shell(vec!["echo HOLD three".into()]));
        assert_eq!(script.after_tool().hold.as_deref(), Some("two"));
    }

    #[test]
    fn words_that_only_contain_a_keyword_are_prose() {
        assert_eq!(Script::read("a TOOLBOX, UPHOLD and a hold"), Script::default());
    }

    #[test]
    fn parallel_splits_commands() {
        let script = Script::read("PARALLEL true ;; sleep 1");
        assert_eq!(script.reply, Reply::Shell(vec!["true".into(), "sleep 1".into()]));
    }

    #[test]
    fn injected_blocks_are_not_spoken() {
        let text = "<system-reminder>TOOL rm</system-reminder> say a < b <b>x</b>\n<env_ctx>y</env_ctx>";
        assert_eq!(spoken(text), "say a < b <b>x</b>");
        let text = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nTOOL <rm>\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>";
        assert_eq!(spoken(text), "");
    }
}
