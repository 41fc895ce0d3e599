//! Gemini CLI: what its conversations and its processes tell.
//!
//! Gemini keeps its arguments, so a process that was given an id is known by it. What it is doing is
//! only half visible: a tool call is recorded when it has run, so in a terminal an answer and a
//! question whether a tool may run look the same in the file. A Gemini that lariat launched says which
//! it is in its terminal's title; of another one, that is not told.
//!
//! Measured on 0.61.0; see `docs/agents/gemini.md`.

mod bind;
mod fold;
mod sessions;
mod spent;
pub mod talk;
mod typed;

use std::io;
use std::path::{Path, PathBuf};

use lariat_core::{Ask as Asked, AskKind, Outcome, State, Time, Turn, Untrusted, Warning};
use lariat_sys::file;
use lariat_sys::scan::Process;
use lariat_sys::tree::Signal;

use crate::agent_process as ap;
use crate::json::Doc;
use crate::look::{Look, Places, Report};
use crate::talk::Language;
use crate::{Adapter, Ask, LONGEST_ARGUMENT, Past, Plan, new_uuid};

/// The agent's name.
pub const NAME: &str = "gemini";

const PROGRAMS: [&str; 2] = ["gemini", "gemini.js"];

/// What earlier packages ran.
const PACKAGED: [&str; 1] = ["/gemini-cli/dist/index.js"];

const RESUME: &str = "--resume";

/// What it shows, in place of its prompt, while it takes a session up.
const RESUMING: &[u8] = b"Resuming session";
/// What it shows, again and again, while it makes a conversation shorter (`/compress`).
const COMPRESSING: &[u8] = b"Compressing chat history";
/// How that came out.
const COMPRESSED: [&[u8]; 6] = [
    b"history compressed from",
    b"Compression was not",
    b"compression did not",
    b"compression failed",
    b"ompress chat history",
    b"Nothing to compress",
];
/// How it takes back what it has drawn.
const ERASED: &[u8] = b"\x1b[2K";
/// What stands in its prompt while that is empty: the last two where it has vim's keys.
const LISTENS: [&[u8]; 3] = [b"Type your message", b"Press 'i' for INSERT", b"Press 'Esc' for NORMAL"];
/// What it asks in the place of its prompt, with `Ready` in its title, or `Working…` while a request has failed;
/// whatever is typed then is an answer.
const DIALOGS: [(&[u8], AskKind, &str); 14] = [
    (b"Do you trust the files in this folder?", AskKind::Dialog, "whether it may trust the files in this folder"),
    (b"How would you like to authenticate", AskKind::Login, "how to authenticate"),
    (b"Enter Gemini API Key", AskKind::Login, "a key for the Gemini API"),
    (b"A potential loop was detected", AskKind::Dialog, "whether loops shall be looked for"),
    // Overloaded, used up, not to be found; or not for this account.
    (b"to switch models.", AskKind::Dialog, MODEL),
    (b"It seems like you don't have access to", AskKind::Dialog, MODEL),
    // Settings, models, themes, sessions: Enter chooses one.
    (b"Esc to close)", AskKind::Dialog, OPENED),
    (b"(Use Enter to select, ", AskKind::Dialog, OPENED), // what follows may stand on the next line
    (b"(Use Enter to select a message, ", AskKind::Dialog, OPENED),
    (b"Enter to confirm, Esc to cancel", AskKind::Dialog, OPENED),
    (b"Press Esc to exit", AskKind::Dialog, OPENED),
    (b" to reorder", AskKind::Dialog, OPENED),
    (b"(Press Esc to go back)", AskKind::Dialog, OPENED),
    (b"Chat Sessions (", AskKind::Dialog, OPENED),
];
const OPENED: &str = "what was opened on its terminal";
const MODEL: &str = "whether to try again, with another model, or to stop";

/// How it calls that a person ended the turn, which its exit and its store tell.
const CANCELLED: &str = "FatalCancellationError";

/// Words after the program that make it something other than a session.
const NOT_SESSIONS: [&str; 17] = [
    "--delete-session",
    "--help",
    "--list-extensions",
    "--list-sessions",
    "--version",
    "-h",
    "-l",
    "-v",
    "extension",
    "extensions",
    "gemma",
    "help",
    "hook",
    "hooks",
    "mcp",
    "skill",
    "skills",
];

/// How a process runs Gemini, if it may hold a session.
fn runs(process: &Process) -> Option<ap::Run> {
    let run = ap::runs(process, &PROGRAMS).or_else(|| ap::runs_packaged(process, &PACKAGED))?;
    let word = process.arguments().nth(run.arguments).unwrap_or("");
    (!NOT_SESSIONS.contains(&word)).then_some(run)
}

/// Whether the Gemini that would be started takes an id.
fn takes_ids() -> bool {
    ap::version_of(NAME, "gemini-cli").is_none_or(|version| version >= TAKES_IDS)
}

/// The first version that takes an id.
const TAKES_IDS: (u32, u32) = (0, 41);

/// Why one is not launched in a terminal.
const NO_ID: &str = "this Gemini takes no --session-id (0.41 is the first that does), and nothing would tell which session its \
                     terminal has; launch it --headless, or install a later one";

/// Why a session is not resumed.
const LOST: &str = "Gemini removes a resumed session at its next start; set general.sessionRetention.enabled to false in \
                    its settings.json first";

const UNSEEN: &str = "a folder of Gemini's sessions cannot be read, and Gemini removes a session that is taken up again, \
                      unless its settings keep it";

/// The adapter.
pub struct Gemini;

impl Adapter for Gemini {
    fn name(&self) -> &'static str {
        NAME
    }

    fn programs(&self) -> &'static [&'static str] {
        &[NAME]
    }

    fn store(&self, places: &Places) -> PathBuf {
        places.gemini.clone()
    }

    fn takes_for_its_own(&self, places: &Places, process: &Process) -> bool {
        runs(process).is_some() && bind::uses_store(places, process)
    }

    fn observe(&self, look: &Look<'_>) -> Report {
        lariat_sys::point::point("gemini.observe");
        let mut report = Report::default();
        let bound = bind::bind(look, &mut report, None);
        sessions::tell(look, bound, &mut report);
        report.watch.push(look.places.gemini.join("tmp"));
        report
    }

    fn observe_processes(&self, look: &Look<'_>, why: &str) -> Report {
        bind::by_processes(look, why)
    }

    /// Under an id of ours, or, where it takes none, under its own, which its first event tells.
    fn start(&self, ask: &Ask) -> Result<Plan, String> {
        match takes_ids() {
            true => {}
            false if ask.headless => return plan(Vec::new(), None, ask),
            false => return Err(NO_ID.into()),
        }
        let new = || new_uuid().map_err(|e| format!("no random id: {e}"));
        let id = ap::own_id(&ask.arguments)?.0.map_or_else(new, Ok)?;
        plan(vec!["--session-id".to_owned(), id.clone()], Some(id), ask)
    }

    /// Resuming leaves a second, empty file of the session behind, and the next Gemini that starts in
    /// the project takes both for rubbish and removes them, unless its cleaning up is switched off.
    fn resume(&self, ask: &Ask, past: &Past<'_>) -> Result<Plan, String> {
        let file = past.transcript.ok_or("the session has no file that Gemini could open")?;
        if !keeps_sessions(file) {
            return Err(LOST.into());
        }
        let path = file.to_str().ok_or("the path of its file is not UTF-8")?.to_owned();
        let mut plan = match past.fork {
            // Only its output tells the id that it makes.
            true if !ask.headless => return Err("Gemini sessions can be forked only headless".into()),
            true => plan(vec!["--session-file".to_owned(), path], None, ask)?,
            false => {
                let id = past.native_id.to_owned();
                plan(vec![RESUME.to_owned(), id.clone()], Some(id), ask)?
            }
        };
        plan.keep = vec![file.to_owned()];
        Ok(plan)
    }

    /// By `--acp` it leaves the same file behind.
    fn loses(&self, places: &Places, native_id: &str) -> Option<&'static str> {
        let end = format!("-{}.jsonl", native_id.get(..8).filter(|_| ap::is_uuid(native_id))?);
        let inside = |folder: &Path| match file::Directory::open(folder).and_then(|d| d.entries()) {
            Ok(entries) => Ok(entries.into_iter().map(|e| folder.join(e.name)).collect::<Vec<_>>()),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
            Err(_) => Err(UNSEEN), // it may be there
        };
        let ends = |path: &PathBuf| path.to_str().is_some_and(|p| p.ends_with(&end));
        let found = || {
            for project in inside(&places.gemini.join("tmp"))? {
                if let Some(stored) = inside(&project.join("chats"))?.into_iter().find(ends) {
                    return if keeps_sessions(&stored) { Ok(()) } else { Err(LOST) };
                }
            }
            Ok(())
        };
        found().err()
    }

    /// The first event of `-o stream-json`.
    fn id_in_output(&self, line: &str) -> Option<String> {
        let doc = Doc::parse(line.as_bytes(), |_, key| matches!(key, b"type" | b"session_id"), 256).ok()?;
        let init = doc.root().get("type").str() == Some("init");
        doc.root().get("session_id").some_str().filter(|_| init).map(str::to_owned)
    }

    fn took_command(&self, transcript: &Path, argv: &[String], since: Time) -> Option<bool> {
        let (first, log) = log_of(transcript, argv)?;
        Some(log.has_command(&first, since))
    }

    fn typed_at(&self, transcript: &Path, argv: &[String]) -> Option<Time> {
        let (first, log) = log_of(transcript, argv)?;
        log.last(&first)
    }

    fn tells_within(&self) -> u64 {
        u64::MAX
    }

    /// Its title: `◇  Ready`, also while it compresses, `✦  Working…` or the subject of its thought, `✋  Action
    /// Required`. The first one is set before it listens, and means nothing. One that was told to resume is deaf for
    /// longer: it draws a prompt, takes that away, shows the conversation and says that it resumes, and whatever is typed until
    /// it has drawn its prompt again is lost. The word that it resumes is drawn many times over, and a look may
    /// come between any two bytes; so only the prompt after that word is a sign, and it stays one.
    fn state_in_output(&self, last: &[u8], argv: &[String]) -> Option<State> {
        if compresses(last) {
            return Some(State::Busy);
        }
        let mut titles = memchr::memmem::rfind_iter(last, b"\x1b]0;").filter_map(|at| {
            let title = &last[at + 4..];
            let end = title.iter().position(|b| matches!(b, 0x07 | 0x1b))?;
            std::str::from_utf8(&title[..end]).ok().map(|title| (at, title))
        });
        let (at, title) = titles.next()?;
        titles.next()?;
        let state = match title.chars().next()? {
            '◇' => State::Idle,
            '✦' | '⏲' => State::Busy,
            '✋' => State::Waiting("action required".into()),
            _ => return None,
        };
        let resumed = argv.iter().any(|a| a == RESUME);
        let has_resumed = || memchr::memmem::rfind(last, RESUMING).is_some_and(|at| prompts(&last[at..]));
        let listens = !resumed || titles.next().is_some() || has_resumed();
        let told = match state {
            State::Idle => listens && self.asks_in_output(last).is_none(),
            // What was asked before it said so is answered.
            State::Busy => self.asks_in_output(&last[at..]).is_none(),
            _ => true,
        };
        told.then_some(state)
    }

    /// A dialog, until it has drawn its prompt since. (It draws all anew for each change, so for a moment nothing of
    /// the dialog is there. A conversation that has the same words is followed by the prompt.)
    fn asks_in_output(&self, last: &[u8]) -> Option<Asked> {
        let drawn = |words: &[u8]| memchr::memmem::rfind(last, words);
        let (at, kind, text) =
            DIALOGS.iter().filter_map(|(words, kind, text)| Some((drawn(words)?, *kind, *text))).max_by_key(|d| d.0)?;
        (!prompts(&last[at..])).then(|| Asked { kind, text: text.into() })
    }

    /// It exits with 0 when it is ended by a signal, too, and after an answer that it could not read: only a turn that came
    /// to its end has a result, and only one that succeeded says so. Its store shows the words of such an answer.
    fn left_in_output(&self, last: &[u8]) -> Option<Turn> {
        let keep = |_: &[u8], key: &[u8]| matches!(key, b"type" | b"status" | b"error" | b"message");
        let mut lines = last.split(|b| *b == b'\n').rev().filter(|line| !line.is_empty());
        let end = Doc::parse(lines.next()?, keep, 4 << 10).ok()?;
        let (end, error) = (end.root(), end.root().get("error"));
        match end.get("status").str() {
            _ if end.get("type").str() != Some("result") => return Some(Turn::Open(Some("it gave no result".into()))),
            Some("error") if error.get("type").str() != Some(CANCELLED) => {}
            _ => return None,
        }
        // Some say why in an event of its own.
        let events = lines.filter_map(|line| Doc::parse(line, keep, 4 << 10).ok());
        let event = events.take_while(|e| e.root().get("type").str() != Some("init")).find_map(|event| {
            let why = event.root().get("message").some_str()?;
            (event.root().get("type").str() == Some("error")).then(|| Untrusted::new(why))
        });
        let why = error.get("message").some_str().map(Untrusted::new).or(event);
        Some(Turn::Over(Outcome::Failed(why.unwrap_or_else(|| "its result is an error".into()))))
    }

    /// An interrupt only cancels what a terminal's Gemini is at.
    fn gentle(&self) -> &'static [Signal] {
        &[Signal::TERM]
    }

    /// Its tools carry nothing that names the session.
    fn marks(&self, _native_id: &str) -> Vec<(String, String)> {
        Vec::new()
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

/// The id that a terminal was started with, and what was typed in all of its project.
fn log_of(transcript: &Path, argv: &[String]) -> Option<(String, typed::Log)> {
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let (first, _) = bind::by_arguments(&argv)?;
    Some((first, typed::Log::read(transcript.parent()?.parent()?)?))
}

/// Whether it has drawn its empty prompt.
fn prompts(drawn: &[u8]) -> bool {
    LISTENS.iter().any(|words| memchr::memmem::find(drawn, words).is_some())
}

/// Whether it makes the conversation shorter, which its title does not tell: the words after a spinner are the last
/// that were drawn, or are about to be drawn again.
fn compresses(last: &[u8]) -> bool {
    let Some(at) = memchr::memmem::rfind(last, COMPRESSING) else { return false };
    let line = last[..at].rsplit(|b| *b == b'\n').next().unwrap_or_default();
    // Every glyph of the spinner is a pattern of dots, U+2800 to U+28FF.
    let spins = line.windows(2).any(|w| w[0] == 0xe2 && (0xa0..=0xa3).contains(&w[1]));
    let since = &last[at..];
    let next = memchr::memmem::find(since, ERASED).map_or(&[][..], |end| &since[end..]);
    spins && !prompts(next) && !COMPRESSED.iter().any(|words| memchr::memmem::find(next, words).is_some())
}

fn warning(look: &Look<'_>, path: &Path, error: String) -> Warning {
    Warning { adapter: NAME, path: Some(look.places.shown(path)), error: error.into(), last_ok: None }
}

/// Whether the settings beside this file of a conversation switch the cleaning up off.
fn keeps_sessions(file: &Path) -> bool {
    // STORE/tmp/PROJECT/chats/FILE
    let settings = file.ancestors().nth(4).map(|store| store.join("settings.json"));
    let text = settings.and_then(|path| file::read_small(&path, 1 << 20).ok());
    let keep = |_: &[u8], key: &[u8]| matches!(key, b"general" | b"sessionRetention" | b"enabled");
    let doc = text.and_then(|text| Doc::parse(&text, keep, 64).ok());
    doc.is_some_and(|doc| {
        let enabled = doc.root().get("general").get("sessionRetention").get("enabled");
        enabled.exists() && !enabled.is_true()
    })
}

fn plan(mut arguments: Vec<String>, native_id: Option<String>, ask: &Ask) -> Result<Plan, String> {
    // One process: else a first one only waits for the real one, and dies alone.
    let env = vec![("GEMINI_CLI_NO_RELAUNCH".to_owned(), "true".to_owned())];
    if ask.headless {
        arguments.extend(["-o", "stream-json"].map(str::to_owned));
    }
    arguments.extend(ask.model.iter().flat_map(|m| ["-m".to_owned(), m.clone()]));
    arguments.extend(ap::own_id(&ask.arguments)?.1);
    let mut plan = Plan { native_id, env, ..Plan::default() };
    match &ask.prompt {
        None if ask.headless => return Err("a headless launch needs a prompt (-p)".into()),
        Some(prompt) if prompt.len() > LONGEST_ARGUMENT && ask.headless => plan.input = Some(prompt.clone()),
        Some(prompt) if prompt.len() > LONGEST_ARGUMENT => {
            return Err("the prompt is too long for an argument".into());
        }
        // In one word, so that it is never taken for an option.
        Some(prompt) if ask.headless => arguments.push(format!("--prompt={prompt}")),
        Some(prompt) => arguments.push(format!("--prompt-interactive={prompt}")),
        None => {}
    }
    plan.arguments = arguments;
    Ok(plan)
}

#[cfg(test)]
mod tests;
