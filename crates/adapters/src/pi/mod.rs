//! Pi: what its session files and its processes tell.
//!
//! Pi writes one file per session and nothing about its processes: which of them holds which session
//! is visible only from within. So a Pi that lariat launches is given a small extension, for that
//! launch, which tells ([`events`]); of any other, only that it runs and where.
//!
//! Ids are unique in a project, not beyond: see [`sessions`] for the names of those that are not.
//!
//! Measured on 0.73.1 and 1.5.0; see `docs/agents/pi.md`.

mod bind;
mod events;
mod fold;
mod sessions;
mod spent;
pub mod talk;

use std::io;
use std::path::{Path, PathBuf};

use lariat_core::{State, Warning};
use lariat_sys::scan::Process;
use lariat_sys::tree::Signal;

use crate::agent_process as ap;
use crate::look::{Look, Places, Report};
use crate::talk::Language;
use crate::{Adapter, Ask, Beside, LONGEST_ARGUMENT, Past, Plan, new_uuid};

/// The agent's name.
pub const NAME: &str = "pi";

/// What a launched Pi tells lariat with.
const EXTENSION: &str = include_str!("extension.js");
/// The line of it that names the command which hears of another session.
const NO_HOOK: &str = "const hook = null;";

/// Arguments by which a person says which session it shall have.
const SESSION: [&str; 7] = ["--session", "--continue", "--resume", "--fork", "--no-session", "-c", "-r"];

/// What it is packaged as.
const PACKAGE: &str = "pi-coding-agent";

/// Whether the Pi that would be started takes an id: those before 1.0 do not.
fn takes_ids() -> bool {
    ap::version_of(NAME, PACKAGE).is_none_or(|version| version >= (1, 0))
}

/// Whether it takes a prompt from its standard input: 0.42 does not, 0.50 does.
fn takes_input() -> bool {
    ap::version_of(NAME, PACKAGE).is_none_or(|version| version >= (0, 50))
}

/// Its script in its package.
const PACKAGED: [&str; 2] = ["/pi-coding-agent/dist/cli.js", "/pi-coding-agent/dist/bundle/cli.js"];

/// How a process runs Pi: under the name it gives itself, or, in its first moment, as a script.
fn runs(process: &Process) -> Option<ap::Run> {
    ap::runs(process, &[NAME]).or_else(|| ap::runs_packaged(process, &PACKAGED))
}

/// What it shows, again and again, while it makes a conversation shorter.
const COMPACTING: [&[u8]; 3] = [b"Compacting context...", b"Auto-compacting...", b"Summarizing branch..."];
/// What it shows once that is done, has failed or was given up.
const COMPACTED: [&[u8]; 6] = [
    b"Compacted from ",
    b"ompaction failed",
    b"ompaction cancelled",
    b"overflow recovery failed",
    b"Branch summarization cancelled",
    b"Error: ",
];

/// The adapter.
pub struct Pi;

impl Adapter for Pi {
    fn name(&self) -> &'static str {
        NAME
    }

    fn programs(&self) -> &'static [&'static str] {
        &[NAME]
    }

    fn store(&self, places: &Places) -> PathBuf {
        places.pi_sessions.clone().unwrap_or_else(|| places.pi.join("sessions"))
    }

    fn store_in(&self, arguments: &[String]) -> Option<(&'static str, PathBuf)> {
        let at = arguments.iter().position(|a| a == "--session-dir")?;
        Some(("PI_CODING_AGENT_SESSION_DIR", arguments.get(at + 1)?.into()))
    }

    fn observe(&self, look: &Look<'_>) -> Report {
        lariat_sys::point::point("pi.observe");
        let mut report = Report::default();
        let (held, by_id) = bind::bind(look, &mut report, None);
        sessions::tell(look, held, by_id, &mut report);
        report.watch.push(self.store(look.places));
        report
    }

    fn observe_processes(&self, look: &Look<'_>, why: &str) -> Report {
        bind::by_processes(look, why)
    }

    fn takes_for_its_own(&self, places: &Places, process: &Process) -> bool {
        runs(process).is_some() && bind::uses_store(places, process)
    }

    /// Under an id of ours, if this Pi takes one and nobody said which session it shall have.
    fn start(&self, ask: &Ask) -> Result<Plan, String> {
        if !takes_ids() || ask.arguments.iter().any(|a| SESSION.iter().any(|flag| a.starts_with(flag))) {
            return plan(Vec::new(), None, ask);
        }
        let id = new_uuid().map_err(|e| format!("no random id: {e}"))?;
        plan(vec!["--session-id".to_owned(), id.clone()], Some(id), ask)
    }

    /// By the path of its file: an id may fit another project's session.
    fn resume(&self, ask: &Ask, past: &Past<'_>) -> Result<Plan, String> {
        let file = past.transcript.and_then(Path::to_str).ok_or("the session has no file that Pi could open")?;
        let flag = if past.fork { "--fork" } else { "--session" };
        let id = (!past.fork).then(|| past.native_id.to_owned());
        plan(vec![flag.to_owned(), file.to_owned()], id, ask)
    }

    /// `--mode json` begins with the session's header.
    fn id_in_output(&self, line: &str) -> Option<String> {
        sessions::id_in_header(line)
    }

    fn moved(&self, event: &[u8]) -> Option<String> {
        events::moved(event)
    }

    fn stores_nothing(&self, arguments: &[String]) -> bool {
        arguments.iter().any(|a| a == "--no-session")
    }

    /// What it is at is drawn again and again.
    fn tells_within(&self) -> u64 {
        64 << 10
    }

    /// That it makes the conversation shorter, as long as it says so in place of anything else. Its own word tells all
    /// the rest, and is believed before this.
    fn state_in_output(&self, last: &[u8], _argv: &[String]) -> Option<State> {
        let drawn = |words: &[&[u8]]| words.iter().filter_map(|w| memchr::memmem::rfind(last, w)).max();
        let compacting = drawn(&COMPACTING)?;
        drawn(&COMPACTED).is_none_or(|end| end < compacting).then_some(State::Busy)
    }

    fn was_at_work(&self, folder: &Path, native_id: &str) -> io::Result<bool> {
        events::was_at_work(folder, native_id)
    }

    /// On an interrupt a terminal's Pi may leave its tools behind.
    fn gentle(&self) -> &'static [Signal] {
        &[Signal::TERM]
    }

    /// Only an id that Pi made is sure to be no other session's.
    fn marks(&self, native_id: &str) -> Vec<(String, String)> {
        let mark = |name: &str| (name.to_owned(), native_id.to_owned());
        match native_id {
            "" => vec![mark("PI_SESSION_ID"), mark("PI_SESSION_FILE")],
            id if ap::is_uuid(id) => vec![mark("PI_SESSION_ID")],
            _ => Vec::new(),
        }
    }

    fn spent(&self, look: &Look<'_>, to: &mut crate::spent::Tell<'_>) -> Option<Vec<Warning>> {
        Some(spent::tell(look, None, to))
    }

    fn spent_by(&self, look: &Look<'_>, session: &str, to: &mut crate::spent::Tell<'_>) -> Option<Vec<Warning>> {
        Some(spent::tell(look, Some(session), to))
    }

    fn language(&self) -> &'static dyn Language {
        &talk::Lines
    }
}

fn warning(look: &Look<'_>, path: &Path, error: String) -> Warning {
    Warning { adapter: NAME, path: Some(look.places.shown(path)), error: error.into(), last_ok: None }
}

fn plan(mut arguments: Vec<String>, native_id: Option<String>, ask: &Ask) -> Result<Plan, String> {
    let hook = ask.hook.as_ref().map(|hook| format!("const hook = {};", serde_json::Value::from(hook.as_str())));
    let extension = EXTENSION.replacen(NO_HOOK, hook.as_deref().unwrap_or(NO_HOOK), 1);
    let mut plan = Plan {
        files: vec![Beside { name: "pi-extension.js", text: extension, flag: "-e" }],
        native_id,
        ..Plan::default()
    };
    if ask.headless {
        arguments.extend(["--mode", "json"].map(str::to_owned));
    }
    arguments.extend(ask.model.iter().flat_map(|m| ["--model".to_owned(), m.clone()]));
    arguments.extend(ask.arguments.iter().cloned());
    match &ask.prompt {
        None if ask.headless => return Err("a headless launch needs a prompt (-p)".into()),
        // As standard input nothing in it can be taken for an option or a file.
        Some(prompt) if ask.headless && takes_input() => plan.input = Some(prompt.clone()),
        Some(prompt) if prompt.len() > LONGEST_ARGUMENT => {
            return Err("the prompt is too long for an argument".into());
        }
        Some(prompt) if prompt.starts_with(['-', '@']) => arguments.push(format!(" {prompt}")),
        Some(prompt) => arguments.push(prompt.clone()),
        None => {}
    }
    plan.arguments = arguments;
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(prompt: Option<&str>, headless: bool) -> Ask {
        Ask { prompt: prompt.map(str::to_owned), headless, ..Ask::default() }
    }

    #[test]
    fn nothing_in_a_prompt_is_taken_for_an_option_or_a_file() {
        let new = |prompt: Option<&str>, headless| plan(Vec::new(), None, &ask(prompt, headless));
        let plan = new(Some("--no-session @file"), true).unwrap();
        assert_eq!(
            (plan.arguments, plan.input.as_deref()),
            (vec!["--mode".into(), "json".into()], Some("--no-session @file"))
        );
        for prompt in ["-x", "--session-id y", "@/etc/passwd"] {
            let plan = new(Some(prompt), false).unwrap();
            assert_eq!(plan.arguments, [format!(" {prompt}")]);
            assert_eq!(plan.input, None);
        }
        assert!(new(None, true).is_err());
        assert!(new(Some(&"x".repeat(LONGEST_ARGUMENT + 1)), false).is_err());
    }

    #[test]
    fn a_session_is_resumed_by_its_path_and_forked_under_an_id_of_pi_s() {
        let past = |fork| Past { native_id: "work@00c0ffee", transcript: Some(Path::new("/s/a.jsonl")), fork };
        let plan = Pi.resume(&ask(None, false), &past(false)).unwrap();
        assert_eq!(plan.arguments, ["--session", "/s/a.jsonl"]);
        assert_eq!(plan.native_id.as_deref(), Some("work@00c0ffee"));
        let plan = Pi.resume(&ask(Some("go on"), false), &past(true)).unwrap();
        assert_eq!(plan.arguments, ["--fork", "/s/a.jsonl", "go on"]);
        assert_eq!(plan.native_id, None);
        assert!(Pi.resume(&ask(None, false), &Past { transcript: None, ..past(false) }).is_err());
    }

    #[test]
    fn its_terminal_tells_that_it_compacts_until_that_has_failed() {
        let said = |text: &str| Pi.state_in_output(text.as_bytes(), &[]);
        assert_eq!(said("hello"), None);
        for words in [
            "⠋ Compacting context... (esc to cancel)",
            "⠙ Auto-compacting... (esc to cancel)",
            "⠋ Summarizing branch...",
        ] {
            assert_eq!(said(words), Some(State::Busy));
            for end in [
                "Compacted from 42 tokens",
                "Error: Compaction failed: no",
                "Auto-compaction cancelled",
                "Context overflow recovery failed",
                "Branch summarization cancelled",
                "Error: 400 no",
            ] {
                assert_eq!(said(&format!("{words}\x1b[2K {end}")), None);
                assert_eq!(said(&format!("{words}\x1b[2K {end}\x1b[2K {words}")), Some(State::Busy), "once more");
            }
        }
    }

    #[test]
    fn an_id_that_others_may_have_ends_nobody() {
        assert!(Pi.marks("work").is_empty());
        assert!(Pi.marks("1c809f1f-3e4d-4288-987c-dda9b2225483@00c0ffee").is_empty());
        assert_eq!(Pi.marks("1c809f1f-3e4d-4288-987c-dda9b2225483").len(), 1);
        assert_eq!(Pi.marks("").len(), 2, "what no launch inherits");
    }
}
