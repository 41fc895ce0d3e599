//! Claude Code: what its store, its registry and its processes tell.
//!
//! The registry knows which process holds which session and what it is doing;
//! the transcript knows what was said and how the last turn stands; history
//! knows that a person typed `/exit`. [`Claude`] puts the three beside the
//! process table. It reads no key file, no credentials, and writes nothing.
//!
//! Measured on 2.1.325; see `docs/agents/claude.md`.

mod accounting;
mod ask;
mod below;
mod bind;
mod first;
mod fold;
mod history;
pub mod registry;
mod sessions;
mod spent;
pub mod talk;
mod tokens;
mod transcripts;
mod words;

use std::path::{Path, PathBuf};

use lariat_core::{Outcome, Turn, Untrusted};
use lariat_sys::scan::Process;

use crate::agent_process as ap;
use crate::json::Doc;
use crate::look::{Look, Places, Report};
use crate::talk::Language;
use crate::{Adapter, Ask, Decision, Past, Plan, new_uuid};

/// The agent's name.
pub const NAME: &str = "claude";

const PROGRAMS: [&str; 3] = ["claude", "claude.exe", "claude-code"];

/// Before it was a native program it was a script in its package.
const PACKAGED: [&str; 2] = ["/claude-code/cli.js", "/claude-agent-sdk/cli.js"];

/// Words after the program that make it something other than a session.
const NOT_SESSIONS: [&str; 28] = [
    "agents",
    "attach",
    "auth",
    "auto-mode",
    "bg-pty-host",
    "bg-spare",
    "config",
    "daemon",
    "doctor",
    "gateway",
    "import",
    "install",
    "kill",
    "logs",
    "mcp",
    "migrate-installer",
    "plugin",
    "plugins",
    "project",
    "purge",
    "remote-control",
    "respawn",
    "rm",
    "setup-token",
    "stop",
    "ultrareview",
    "update",
    "upgrade",
];

/// What a Claude Code process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// It may hold a session.
    Session(ap::Run),
    /// The background daemon, a spare worker, or a command that holds none.
    Other,
}

fn role(process: &Process) -> Option<Role> {
    let run = ap::runs(process, &PROGRAMS).or_else(|| ap::runs_packaged(process, &PACKAGED)).or_else(|| {
        let itself = process.arguments().next().is_some_and(is_a_version);
        itself.then_some(ap::Run { arguments: 1, script: false })
    })?;
    let word = process.arguments().nth(run.arguments).unwrap_or("");
    let other = NOT_SESSIONS.contains(&word) || matches!(word, "--bg-pty-host" | "--bg-spare" | "--version" | "--help");
    Some(if other { Role::Other } else { Role::Session(run) })
}

/// Whether a process is the background daemon, which starts a worker for each background session of the user's.
fn is_daemon(process: &Process) -> bool {
    role(process) == Some(Role::Other) && process.arguments().any(|a| a == "daemon")
}

/// Whether a file is a Claude Code, by its name or its place.
fn is_program(file: &str) -> bool {
    PROGRAMS.contains(&ap::base(file)) || is_a_version(file) || PACKAGED.iter().any(|end| file.ends_with(end))
}

/// The installer keeps its programs as `…/claude/versions/2.1.325`, and links `claude` to the last. What one of them
/// starts itself (workers, team mates) it starts by that path.
fn is_a_version(file: &str) -> bool {
    file.rsplit_once('/').is_some_and(|(folder, _)| folder.ends_with("/claude/versions"))
}

/// The adapter.
pub struct Claude;

impl Adapter for Claude {
    fn name(&self) -> &'static str {
        NAME
    }

    fn programs(&self) -> &'static [&'static str] {
        &["claude"]
    }

    fn store(&self, places: &Places) -> PathBuf {
        places.claude.clone()
    }

    fn directories(&self, places: &Places) -> Option<Vec<(PathBuf, usize)>> {
        let below = [("sessions", 0), ("projects", 1), ("jobs", 1)];
        let below = below.into_iter().map(|(name, depth)| (places.claude.join(name), depth));
        Some(std::iter::once((places.claude.clone(), 0)).chain(below).collect())
    }

    fn observe(&self, look: &Look<'_>) -> Report {
        lariat_sys::point::point("claude.observe");
        let mut report = Report::default();
        let mut bound = bind::bind(look, &mut report);
        sessions::tell(look, &bound, &mut report);
        // None of the sessions is theirs.
        report.unbound.append(&mut bound.choosing);
        report.unbound.extend(bound.moved.into_iter().map(|(process, _)| process));
        // Of one that is not registered yet its terminal tells, if lariat launched it.
        let unheard = bound.bonds.iter().filter(|(id, _)| !bound.entries.contains_key(*id));
        let unheard = unheard.filter_map(|(_, bond)| ap::launched_folder(look.places, bond.process.pid));
        report.watch.extend(unheard);
        report.watch.push(look.places.claude.join("sessions"));
        report.watch.push(look.places.claude.join("projects"));
        report
    }

    fn observe_processes(&self, look: &Look<'_>, why: &str) -> Report {
        bind::by_processes(look, why)
    }

    fn takes_for_its_own(&self, places: &Places, process: &Process) -> bool {
        role(process).is_some() && bind::uses_store(places, process)
    }

    fn hosts(&self, process: &Process) -> bool {
        is_daemon(process)
    }

    fn start(&self, ask: &Ask) -> Result<Plan, String> {
        let id = ap::own_id(&ask.arguments)?.0.map_or_else(new_id, Ok)?;
        let arguments = vec!["--session-id".to_owned(), id.clone()];
        plan(arguments, Some(id), ask)
    }

    fn resume(&self, ask: &Ask, past: &Past<'_>) -> Result<Plan, String> {
        let mut arguments = vec!["--resume".to_owned(), past.native_id.to_owned()];
        let mut id = past.native_id.to_owned();
        if past.fork {
            let own = ap::own_id(&ask.arguments)?.0.filter(|own| own != past.native_id);
            id = own.map_or_else(new_id, Ok)?;
            arguments.extend(["--fork-session".to_owned(), "--session-id".to_owned(), id.clone()]);
        }
        plan(arguments, Some(id), ask)
    }

    /// What cannot be read is left to the program to judge.
    fn goes_on_with(&self, transcript: &Path) -> bool {
        transcripts::read(transcript).is_none_or(|t| t.is_a_conversation())
    }

    fn came_up(&self, places: &Places, native_id: &str, pid: u32) -> Option<bool> {
        let path = places.claude.join("sessions").join(format!("{pid}.json"));
        let entry = lariat_sys::file::read_small(&path, 1 << 20).unwrap_or_default();
        Some(memchr::memmem::find(&entry, native_id.as_bytes()).is_some())
    }

    fn asks_first(&self) -> bool {
        true
    }

    fn asks_in_output(&self, last: &[u8]) -> Option<lariat_core::Ask> {
        first::asked(last)
    }

    fn moved(&self, event: &[u8]) -> Option<String> {
        ask::moved(event)
    }

    fn asked(&self, event: &[u8]) -> Option<lariat_core::Ask> {
        ask::asked(event)
    }

    fn answer(&self, event: &[u8], decision: &Decision) -> Result<String, String> {
        ask::answer(event, decision)
    }

    fn stores_nothing(&self, arguments: &[String]) -> bool {
        arguments.iter().any(|a| a == "--no-session-persistence")
    }

    /// What `--no-session-persistence` keeps from being stored. After a result it may go on: a sub-agent has ended.
    fn turn_in_output(&self, last: &[u8]) -> Option<Turn> {
        const KEYS: [&[u8]; 5] = [b"type", b"subtype", b"is_error", b"result", b"terminal_reason"];
        last.split(|b| *b == b'\n').rev().find_map(|line| {
            let doc = Doc::parse(line, |_, key| KEYS.contains(&key), 4 << 10).ok()?;
            let event = doc.root();
            match (event.get("type").str()?, event.get("subtype").str()) {
                ("result", _) => Some(Turn::Over(outcome(&event))),
                ("assistant" | "user" | "stream_event", _) | ("system", Some("init")) => Some(Turn::Open(None)),
                _ => None,
            }
        })
    }

    fn marks(&self, native_id: &str) -> Vec<(String, String)> {
        vec![("CLAUDE_CODE_SESSION_ID".to_owned(), native_id.to_owned())]
    }

    fn spent(&self, look: &Look<'_>, to: &mut crate::spent::Tell<'_>) -> Option<Vec<lariat_core::Warning>> {
        Some(spent::tell(look, None, to))
    }

    fn spent_by(
        &self,
        look: &Look<'_>,
        session: &str,
        to: &mut crate::spent::Tell<'_>,
    ) -> Option<Vec<lariat_core::Warning>> {
        Some(spent::tell(look, Some(session), to))
    }

    fn language(&self) -> &'static dyn Language {
        &talk::Lines
    }
}

fn new_id() -> Result<String, String> {
    new_uuid().map_err(|e| format!("no random id: {e}"))
}

/// How a turn ended, by the result that it gave.
fn outcome(result: &crate::json::Value<'_>) -> Outcome {
    if result.get("terminal_reason").str().is_some_and(|reason| reason.starts_with("aborted")) {
        return Outcome::Aborted("interrupted by a person".into());
    }
    if !result.get("is_error").is_true() {
        return Outcome::Well;
    }
    let why = result.get("result").some_str().or_else(|| result.get("subtype").some_str());
    Outcome::Failed(Untrusted::new(why.unwrap_or("the turn failed")))
}

fn plan(mut arguments: Vec<String>, native_id: Option<String>, ask: &Ask) -> Result<Plan, String> {
    if let Some(flag) = ask.arguments.iter().find(|a| matches!(a.as_str(), "--bg" | "--background")) {
        return Err(format!(
            "{flag} would start another session than this one; what lariat launches is in the background"
        ));
    }
    if ask.headless {
        arguments.extend(["-p", "--output-format", "stream-json", "--verbose"].map(str::to_owned));
    }
    for (flag, value) in [("--model", &ask.model), ("-n", &ask.name)] {
        arguments.extend(value.iter().flat_map(|v| [flag.to_owned(), v.clone()]));
    }
    // Settings that a person gives are not ours to join.
    let hook = ask.hook.as_ref().filter(|_| !ask.arguments.iter().any(|a| a.starts_with("--settings")));
    arguments.extend(hook.iter().flat_map(|hook| ["--settings".to_owned(), ask::settings(hook)]));
    arguments.extend(ap::own_id(&ask.arguments)?.1);
    Plan { arguments, native_id, ..Plan::default() }.ask(ask, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_store_its_output_tells_how_the_turn_stands() {
        let said = |lines: &[&str]| Claude.turn_in_output(lines.join("\n").as_bytes());
        let init = r#"{"type":"system","subtype":"init","tools":["Bash"]}"#;
        let title = r#"{"type":"system","subtype":"session_title_changed","title":"x"}"#;
        assert_eq!((said(&[]), said(&[title]), said(&["words"])), (None, None, None));
        assert_eq!(said(&[init, title, r#"{"type":"resu"#]), Some(Turn::Open(None)));
        let well = r#"{"is_error":false,"subtype":"success","type":"result","result":"hello"}"#;
        assert_eq!(said(&[init, well, title, ""]), Some(Turn::Over(Outcome::Well)));
        assert_eq!(said(&[init, well, init]), Some(Turn::Open(None)), "a sub-agent has ended");
        let failed = r#"{"type":"result","subtype":"success","is_error":true,"result":"API Error: 500"}"#;
        assert_eq!(said(&[init, failed]), Some(Turn::Over(Outcome::Failed("API Error: 500".into()))));
        let aborted = r#"{"type":"result","is_error":true,"terminal_reason":"aborted_streaming"}"#;
        assert_eq!(said(&[init, aborted]), Some(Turn::Over(Outcome::Aborted("interrupted by a person".into()))));
    }
}
