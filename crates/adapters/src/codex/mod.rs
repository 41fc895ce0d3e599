//! Codex: what its rollouts, its thread locks and its processes tell.
//!
//! Codex has no list of running sessions. It holds a lock per thread while a
//! process has that thread open, which `/proc/locks` shows: that is how a
//! thread is known to live. What it is doing is in the rollout; that it waits
//! for an approval is nowhere, and is told from a call that nobody runs.
//!
//! A shared daemon may hold many threads at once, and one terminal may hold
//! several threads after `/new`: then the one opened last is the current one.
//! It never takes a lock to probe for one.
//!
//! Measured on 0.166.0; see `docs/agents/codex.md`.

mod bind;
mod fold;
mod rollouts;
mod script;
mod sessions;
mod spent;
pub mod talk;

use std::path::{Path, PathBuf};

use lariat_core::{Ask as Asked, AskKind, Outcome, State, Turn, Untrusted, Warning};
use lariat_sys::file::Directory;
use lariat_sys::scan::Process;

use crate::agent_process as ap;
use crate::json::Doc;
use crate::look::{Look, Places, Report};
use crate::talk::Language;
use crate::{Adapter, Ask, Past, Plan};

/// The agent's name.
pub const NAME: &str = "codex";

const PROGRAMS: [&str; 2] = ["codex", "codex.js"];

const NOT_SESSIONS: [&str; 26] = [
    "a",
    "agents",
    "app",
    "apply",
    "archive",
    "cloud",
    "completion",
    "debug",
    "delete",
    "doctor",
    "exec-server",
    "execpolicy",
    "features",
    "help",
    "login",
    "logout",
    "mcp",
    "migrate-nfs-db",
    "migrate-rollouts",
    "plugin",
    "queue",
    "sandbox",
    "stdio-to-uds",
    "unarchive",
    "update",
    "remote-control",
];

/// Options before the verb that take the next word with them.
const TAKES_A_WORD: [&str; 20] = [
    "-c",
    "--config",
    "--enable",
    "--disable",
    "--remote",
    "--remote-auth-token-env",
    "-i",
    "--image",
    "-m",
    "--model",
    "--local-provider",
    "-p",
    "--profile",
    "-s",
    "--sandbox",
    "-a",
    "--ask-for-approval",
    "-C",
    "--cd",
    "--add-dir",
];

/// Keeps a terminal from being one of the shared daemon.
const NO_DAEMON: &str = "--no-daemon";

/// How a folder with programs for this machine begins.
const PLATFORM: &str = if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-" } else { "x86_64-unknown-linux-" };

/// How its title begins while it needs a person, in turn.
const ASKING: [&str; 2] = ["[ ! ] Action Required", "[ . ] Action Required"];

/// What it offers first where nobody has said yet whether a folder is to be trusted, or who pays, and what it asks by that: as
/// it draws a choice that is marked, for a prompt or an earlier conversation may have the words.
const BEFORE_ANY: [(&[u8], &str); 2] = [
    ("\x1b[7m\x1b[1m› 1. Trust and continue".as_bytes(), "whether this folder is to be trusted"),
    (b"> 1. \x1b[22mSign in with ChatGPT", "for a login"),
];

/// What it asks of a plan, at the place of its prompt.
const PLAN: &[u8] = b"Implement this plan?";
/// What it draws with its prompt and never while it asks that: the words in an empty one, or the key that changes its
/// mode, in the line below.
const PROMPT: [&[u8]; 2] = [b"Ask Codex to do anything", b"shift+tab"];

/// What a Codex process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// A terminal or an `exec`: it may hold one session.
    Session(ap::Run),
    /// An app server: it may hold many.
    Server,
    /// It holds none.
    Other,
}

fn role(process: &Process) -> Option<Role> {
    Some(role_of(process, ap::runs(process, &PROGRAMS)?))
}

/// What one does that was started so, whatever it is called.
fn role_of(process: &Process, run: ap::Run) -> Role {
    match verb(process, run) {
        ("app-server", "daemon") => Role::Other,
        ("app-server" | "mcp-server", _) => Role::Server,
        ("--version" | "-V" | "--help" | "-h", _) => Role::Other,
        (word, _) if NOT_SESSIONS.contains(&word) => Role::Other,
        _ => Role::Session(run),
    }
}

/// The first word that is neither an option nor taken by one, unless one asks for nothing but help; and the next.
fn verb(process: &Process, run: ap::Run) -> (&str, &str) {
    let mut words = process.arguments().skip(run.arguments);
    while let Some(word) = words.next() {
        if !word.starts_with('-') || matches!(word, "--version" | "-V" | "--help" | "-h") {
            return (word, words.next().unwrap_or(""));
        }
        if TAKES_A_WORD.contains(&word) {
            words.next();
        }
    }
    ("", "")
}

/// Whether it was started with something to do, and ends with it.
fn is_exec(process: &Process) -> bool {
    let run = ap::runs(process, &PROGRAMS).unwrap_or(ap::Run { arguments: 1, script: false });
    matches!(verb(process, run).0, "exec" | "e" | "review")
}

/// The adapter.
pub struct Codex;

impl Adapter for Codex {
    fn name(&self) -> &'static str {
        NAME
    }

    fn programs(&self) -> &'static [&'static str] {
        &["codex"]
    }

    fn store(&self, places: &Places) -> PathBuf {
        places.codex.clone()
    }

    fn directories(&self, places: &Places) -> Option<Vec<(PathBuf, usize)>> {
        let below = [("sessions", 3), ("archived_sessions", 0), ("thread-writer-locks", 0), ("shell_snapshots", 0)];
        let below = below.into_iter().map(|(name, depth)| (places.codex.join(name), depth));
        Some(std::iter::once((places.codex.clone(), 0)).chain(below).collect())
    }

    fn observe(&self, look: &Look<'_>) -> Report {
        lariat_sys::point::point("codex.observe");
        let mut report = Report::default();
        let held = bind::held(look, &mut report);
        sessions::tell(look, held, &mut report);
        report.watch.extend(["thread-writer-locks", "shell_snapshots"].map(|name| look.places.codex.join(name)));
        report
    }

    fn observe_processes(&self, look: &Look<'_>, why: &str) -> Report {
        bind::by_processes(look, why)
    }

    fn takes_for_its_own(&self, places: &Places, process: &Process) -> bool {
        role(process).is_some() && bind::uses_store(places, process)
    }

    fn start(&self, ask: &Ask) -> Result<Plan, String> {
        plan(way(&[], ask), None, ask)
    }

    fn resume(&self, ask: &Ask, past: &Past<'_>) -> Result<Plan, String> {
        // A terminal would ask its person first, and have no session until it is answered.
        if past.transcript.is_some_and(rollouts::is_archived) {
            return Err(format!("it is archived; `codex unarchive {}` brings it back", past.native_id));
        }
        let verb = if past.fork { "fork" } else { "resume" };
        plan(way(&[verb], ask), Some(past), ask)
    }

    /// Versions before 0.153 or so have no daemon.
    fn is_older(&self, last_words: &str) -> bool {
        last_words.contains("unexpected argument") && last_words.contains(NO_DAEMON)
    }

    /// The package's `bin/codex.js` only starts the binary of another package,
    /// and dies alone.
    fn native(&self, found: &Path) -> Option<PathBuf> {
        let script = found.canonicalize().ok().filter(|p| p.extension().is_some_and(|e| e == "js"))?;
        let package = script.parent()?.parent()?;
        let vendors = [
            package.parent()?.join("codex-linux-x64"),
            package.parent()?.join("codex-linux-arm64"),
            package.join("node_modules/@openai/codex-linux-x64"),
            package.to_owned(),
        ];
        vendors.iter().find_map(|v| {
            let triples = Directory::open(&v.join("vendor")).and_then(|d| d.entries()).ok()?;
            // Old packages hold the programs of all platforms, each in a folder of its own name.
            let ours = triples.into_iter().filter(|t| t.name.starts_with(PLATFORM));
            let mut places =
                ours.flat_map(|t| ["bin/codex", "codex/codex"].map(|p| v.join("vendor").join(&t.name).join(p)));
            places.find(|p| p.is_file())
        })
    }

    fn id_in_output(&self, line: &str) -> Option<String> {
        let doc = Doc::parse(line.as_bytes(), |_, key| matches!(key, b"type" | b"thread_id"), 64).ok()?;
        let started = doc.root().get("type").str() == Some("thread.started");
        doc.root().get("thread_id").str().filter(|id| started && ap::is_uuid(id)).map(str::to_owned)
    }

    fn stores_nothing(&self, arguments: &[String]) -> bool {
        arguments.iter().any(|a| a == "--ephemeral")
    }

    /// What `--ephemeral` keeps from being stored. A process has one turn, and what it does is of that.
    fn turn_in_output(&self, last: &[u8]) -> Option<Turn> {
        last.split(|b| *b == b'\n').rev().find_map(|line| {
            let doc = Doc::parse(line, |_, key| matches!(key, b"type" | b"error" | b"message"), 4 << 10).ok()?;
            match doc.root().get("type").str()? {
                "turn.completed" => Some(Turn::Over(Outcome::Well)),
                "turn.failed" => {
                    let error = doc.root().get("error").get("message").some_str().unwrap_or("the turn failed");
                    Some(Turn::Over(Outcome::Failed(Untrusted::new(error))))
                }
                "turn.started" => Some(Turn::Open(None)),
                other => other.starts_with("item.").then_some(Turn::Open(None)),
            }
        })
    }

    fn tells_within(&self) -> u64 {
        u64::MAX
    }

    /// Only that it asks is taken from here, which nothing in its store tells of an MCP server's tool or form:
    /// everything else its rollout knows better. While it asks it writes its title again and again.
    fn state_in_output(&self, last: &[u8], _argv: &[String]) -> Option<State> {
        let word = |sign: &[u8]| {
            memchr::memmem::rfind_iter(last, sign).find_map(|at| {
                let said = &last[at + sign.len()..];
                let end = said.iter().position(|b| matches!(b, 0x07 | 0x1b))?;
                std::str::from_utf8(&said[..end]).ok()
            })
        };
        let asks = |text: &'static str| Some(State::Waiting(text.into()));
        match (word(b"\x1b]7501;state="), word(b"\x1b]0;")) {
            (Some(state), _) if state.starts_with("blocked") => {
                asks(if state.contains(":kind=permission") { "permission" } else { "action required" })
            }
            (None, Some(title)) if ASKING.iter().any(|sign| title.starts_with(sign)) => asks("action required"),
            (None, None) if last.is_empty() => None,
            _ => Some(State::Other("its terminal asks nothing".into())),
        }
    }

    fn asks_before_any(&self, last: &[u8]) -> Option<&'static str> {
        BEFORE_ANY.iter().find(|(words, _)| memchr::memmem::find(last, words).is_some()).map(|(_, asks)| *asks)
    }

    /// A plan that is not wanted leaves nothing on disk, and its own word is the same for any key. Its terminal has
    /// drawn the prompt since.
    fn put_aside_in_output(&self, ask: &Asked, last: &[u8]) -> bool {
        let asked = memchr::memmem::rfind(last, PLAN).filter(|_| ask.kind == AskKind::Plan);
        asked.is_some_and(|at| PROMPT.iter().any(|words| memchr::memmem::find(&last[at..], words).is_some()))
    }

    fn marks(&self, native_id: &str) -> Vec<(String, String)> {
        vec![("CODEX_THREAD_ID".to_owned(), native_id.to_owned())]
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

    fn before(&self, places: &Places, transcript: &Path) -> Option<(PathBuf, u64)> {
        rollouts::base_of(places, transcript)
    }
}

fn warning(look: &Look<'_>, path: &Path, error: String) -> Warning {
    Warning { adapter: NAME, path: Some(look.places.shown(path)), error: error.into(), last_ok: None }
}

/// The words before all others. One process per session: the shared daemon would hold it otherwise. Old versions know
/// `--json` only before the verb.
fn way<'a>(verb: &[&'a str], ask: &Ask) -> Vec<&'a str> {
    match ask.headless {
        true => [&["exec", "--json"], verb].concat(),
        false if ask.older => verb.to_vec(),
        false => [verb, &[NO_DAEMON]].concat(),
    }
}

fn plan(way: Vec<&str>, past: Option<&Past<'_>>, ask: &Ask) -> Result<Plan, String> {
    let mut arguments: Vec<String> = way.into_iter().map(str::to_owned).collect();
    arguments.extend(ask.model.iter().flat_map(|m| ["-m".to_owned(), m.clone()]));
    arguments.extend(ask.arguments.iter().cloned());
    arguments.extend(past.map(|p| p.native_id.to_owned()));
    let native_id = past.filter(|p| !p.fork).map(|p| p.native_id.to_owned());
    Plan { arguments, native_id, ..Plan::default() }.ask(ask, &["-"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test's own files")]
    fn the_program_is_found_where_any_version_keeps_it() {
        let root = std::env::temp_dir().join(format!("lariat-codex-{}", std::process::id()));
        let put = |path: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(&path, "").expect("a file");
            path
        };
        let script = put("old/codex/bin/codex.js");
        put("old/codex/vendor/0-apple-darwin/codex/codex");
        let old = put(&format!("old/codex/vendor/{PLATFORM}musl/codex/codex"));
        assert_eq!(Codex.native(&script), Some(old));
        let script = put("new/codex/bin/codex.js");
        let new = put(&format!("new/codex-linux-x64/vendor/{PLATFORM}musl/bin/codex"));
        assert_eq!(Codex.native(&script), Some(new));
        std::fs::remove_dir_all(root).expect("it can be removed");
    }

    #[test]
    fn what_old_versions_do_not_know_stands_where_they_do_or_is_left_out() {
        let past = Past { native_id: "x", transcript: None, fork: false };
        let told = |headless, older, past: Option<&Past<'_>>| {
            let ask = Ask { headless, older, prompt: Some("hi".into()), ..Ask::default() };
            let plan = past.map_or_else(|| Codex.start(&ask), |past| Codex.resume(&ask, past));
            plan.expect("a plan").arguments.join(" ")
        };
        assert_eq!(told(true, false, None), "exec --json -- hi");
        assert_eq!(told(true, false, Some(&past)), "exec --json resume x -- hi");
        assert_eq!((told(false, false, None), told(false, true, None)), ("--no-daemon -- hi".into(), "-- hi".into()));
        assert_eq!(told(false, false, Some(&past)), "resume --no-daemon x -- hi");
        assert_eq!(told(false, true, Some(&past)), "resume x -- hi");
        assert!(Codex.is_older("error: unexpected argument '\x1b[33m--no-daemon\x1b[0m' found"));
        assert!(!Codex.is_older("error: unexpected argument '--frobnicate' found"));
    }

    #[test]
    fn what_it_asks_before_any_session_is_a_choice_and_no_word_of_a_prompt() {
        let asks = |output: &str| Codex.asks_before_any(output.as_bytes());
        let trust = "\x1b[10;1H\x1b[7m\x1b[1m› 1. Trust and continue   \x1b[11;3H\x1b[27m\x1b[22m2.\x1b[11;6HQuit";
        assert_eq!(asks(trust), Some("whether this folder is to be trusted"));
        assert_eq!(asks("\x1b[2m\x1b[38;5;6;49m> 1. \x1b[22mSign in with ChatGPT\x1b[6;1H"), Some("for a login"));
        for words in ["› 1. Trust and continue", "> 1. Sign in with ChatGPT", "\x1b[1m› \x1b[22m1. Trust and continue"]
        {
            assert_eq!(asks(&format!("\x1b[21;1H{words}\x1b[22;1H")), None, "{words}");
        }
    }

    #[test]
    fn what_a_person_has_put_away_is_brought_back_by_a_person() {
        let go_on = |place: &str, fork| {
            let rollout = Path::new(place).join("rollout-2026-11-15T07-47-10-x.jsonl");
            Codex.resume(&Ask::default(), &Past { native_id: "x", transcript: Some(&rollout), fork })
        };
        for fork in [false, true] {
            let refused = go_on("/home/dev/.codex/archived_sessions", fork).expect_err("it is archived");
            assert!(refused.contains("`codex unarchive x`"), "{refused}");
            assert!(go_on("/home/dev/.codex/sessions/2026/11/15", fork).is_ok());
        }
    }

    #[test]
    fn a_plan_is_put_aside_once_the_prompt_is_drawn_after_it() {
        let ask = |kind| Asked { kind, text: "1. Look.".into() };
        let aside = |text: &str| Codex.put_aside_in_output(&ask(AskKind::Plan), text.as_bytes());
        let asked = "Ask Codex to do anything\x1b[41;1HImplement this plan?\x1b[44;1H3. No, stay in Plan mode";
        assert!(!aside(asked) && !aside("Ask Codex to do anything"));
        assert!(!aside(&format!("{asked}\x1b]7501;state=idle:app=codex\x1b\\\x1b[42;1H› 2. Yes")), "another choice");
        let dismissed = format!("{asked}\x1b[42;3HAsk Codex to do anything");
        assert!(aside(&dismissed) && aside(&format!("{asked}› a draft\x1b[44;1HPlan mode (shift+tab to cycle)")));
        assert!(!aside(&format!("{dismissed}Implement this plan?")), "the next one");
        assert!(!Codex.put_aside_in_output(&ask(AskKind::Permission), dismissed.as_bytes()));
    }

    #[test]
    fn without_a_store_its_output_tells_how_the_turn_stands() {
        let said = |lines: &[&str]| Codex.turn_in_output(lines.join("\n").as_bytes());
        let [begun, open] = [r#"{"type":"thread.started","thread_id":"x"}"#, r#"{"type":"turn.started"}"#];
        assert_eq!((said(&[]), said(&[begun]), said(&["no event"])), (None, None, None));
        assert_eq!(said(&[begun, open]), Some(Turn::Open(None)));
        // The beginning lies too far back, and the last line is not whole.
        let item =
            r#"{"type":"item.completed","item":{"type":"agent_message","text":"{\"type\":\"turn.completed\"}"}}"#;
        assert_eq!(said(&["rt\"}", item, r#"{"type":"turn.comp"#]), Some(Turn::Open(None)));
        assert_eq!(said(&[open, r#"{"type":"turn.completed","usage":{}}"#, ""]), Some(Turn::Over(Outcome::Well)));
        let failed = said(&[open, r#"{"type":"turn.failed","error":{"message":"no"}}"#]);
        assert_eq!(failed, Some(Turn::Over(Outcome::Failed("no".into()))));
    }

    #[test]
    fn only_a_question_is_taken_from_its_terminal() {
        let said = |text: &str| Codex.state_in_output(text.as_bytes(), &[]);
        let waits = |text: &'static str| Some(State::Waiting(text.into()));
        let rests = Some(State::Other("its terminal asks nothing".into()));
        let asked = "\x1b]7501;state=working:app=codex\x07\x1b]7501;state=blocked:app=codex:kind=permission\x07";
        assert_eq!(said(asked), waits("permission"));
        assert_eq!(said(&format!("{asked}\x1b]0;[ . ] Action Required | proj\x07")), waits("permission"));
        assert_eq!(said(&format!("{asked}\x1b]7501;state=working:app=codex\x1b\\")), rests);
        // Cut off, it is not said yet.
        assert_eq!(said(&format!("{asked}\x1b]7501;state=work")), waits("permission"));
        assert_eq!(said("\x1b]7501;state=blocked:app=codex\x07"), waits("action required"));
        // Asked long ago, only the title is left, which blinks.
        assert_eq!(said("\x1b]0;[ ! ] Action Required | proj\x07"), waits("action required"));
        assert_eq!(said("\x1b]0;⠹ Action Required\x07"), rests);
        assert_eq!((said("hello"), said("")), (rests, None));
    }
}
