//! OpenCode: what its database, its log and its processes tell.
//!
//! OpenCode has no list of running sessions, and a turn that was cut off looks
//! in its database like one that goes on. Which process runs which session is
//! known from the log that all its processes share: the kernel tells which line
//! a process wrote last. That it waits for a person is told from what it logged
//! that it asked and from a tool that has not begun.
//!
//! A server may run many sessions at once; its being up makes none of them live.
//! It never asks a server anything, and never opens the database to write.
//!
//! Measured on 1.18.33; see `docs/agents/opencode.md`.

mod bind;
mod db;
mod kept;
mod legacy;
mod log;
mod older;
mod open;
mod record;
mod second;
mod sessions;
mod spent;
pub mod talk;

use std::path::{Path, PathBuf};

use lariat_core::{Time, Warning};
use lariat_sys::clock;
use lariat_sys::scan::Process;
use lariat_sys::tree::Signal;

use crate::agent_process as ap;
use crate::look::{Look, Places, Report};
use crate::talk::{Archive, Language, NoLines};
use crate::{Adapter, Ask, First, Past, Plan};

/// The agent's name.
pub const NAME: &str = "opencode";

const PROGRAMS: [&str; 3] = ["opencode", "opencode.exe", ".opencode"];

const NOT_SESSIONS: [&str; 20] = [
    "agent",
    "auth",
    "completion",
    "console",
    "db",
    "debug",
    "export",
    "github",
    "import",
    "mcp",
    "models",
    "plug",
    "plugin",
    "pr",
    "providers",
    "session",
    "stats",
    "uninstall",
    "upgrade",
    "generate",
];

/// Flags that take the next word, so that a word after them is no command.
const WITH_VALUE: [&str; 14] = [
    "-s",
    "--session",
    "-m",
    "--model",
    "--agent",
    "--prompt",
    "--port",
    "--hostname",
    "--log-level",
    "--mdns-domain",
    "--cors",
    "--dir",
    "--title",
    "--format",
];

/// What an OpenCode process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `run`: one prompt, one session.
    Run,
    /// A terminal.
    Terminal,
    /// `serve`, `web`: any number of sessions.
    Server,
    /// `acp`: what its one client has it open.
    Agent,
    /// A terminal of somebody else's server.
    Client,
    /// One prompt that somebody else's server runs.
    Errand,
    /// It has no session.
    Other,
}

/// What a process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Role {
    run: ap::Run,
    kind: Kind,
}

fn role(process: &Process) -> Option<Role> {
    let run = ap::runs(process, &PROGRAMS)?;
    // It is Bun, too, and runs itself as that: to install what it needs, for servers of languages.
    if lariat_sys::process::environment(process.pid).is_ok_and(|e| e.get("BUN_BE_BUN").is_some()) {
        return None;
    }
    let words: Vec<&str> = process.arguments().skip(run.arguments).collect();
    Some(Role { run, kind: kind(&words) })
}

fn kind(words: &[&str]) -> Kind {
    if words.iter().any(|w| matches!(*w, "--version" | "-v" | "--help" | "-h")) {
        return Kind::Other;
    }
    let mut words = words.iter().copied();
    let command = loop {
        match words.next() {
            Some(word) if WITH_VALUE.contains(&word) => drop(words.next()),
            Some(word) if word.starts_with('-') => {}
            word => break word,
        }
    };
    match command.unwrap_or("") {
        "run" if words.any(|w| w == "--attach" || w.starts_with("--attach=")) => Kind::Errand,
        "run" => Kind::Run,
        "serve" | "web" => Kind::Server,
        "acp" => Kind::Agent,
        "attach" => Kind::Client,
        word if NOT_SESSIONS.contains(&word) => Kind::Other,
        _ => Kind::Terminal, // at most a project's directory
    }
}

/// Whether text has the shape of a session's id.
fn is_id(text: &str) -> bool {
    let rest = text.strip_prefix("ses_").unwrap_or("");
    (1..=64).contains(&rest.len()) && rest.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// The adapter.
pub struct OpenCode;

impl Adapter for OpenCode {
    fn name(&self) -> &'static str {
        NAME
    }

    fn programs(&self) -> &'static [&'static str] {
        &["opencode"]
    }

    fn store(&self, places: &Places) -> PathBuf {
        places.opencode.clone()
    }

    /// It is imported before the launch, or named in the log and the output once it is stored.
    fn records_at_once(&self) -> bool {
        true
    }

    fn observe(&self, look: &Look<'_>) -> Report {
        lariat_sys::point::point("opencode.observe");
        let mut report = Report::default();
        let agents = bind::agents(look);
        sessions::tell(look, &agents, &mut report);
        report.watch.extend([look.places.opencode.clone(), look.places.opencode.join("log")]);
        report.watch.extend(look.places.opencode_db.parent().map(Path::to_owned));
        report
    }

    fn observe_processes(&self, look: &Look<'_>, why: &str) -> Report {
        bind::by_processes(look, &bind::agents(look), why)
    }

    fn takes_for_its_own(&self, places: &Places, process: &Process) -> bool {
        role(process).is_some() && bind::uses_store(places, process.pid)
    }

    /// The id is chosen by importing an empty session, where the program takes a
    /// session and a prompt together. A terminal takes its prompt only without
    /// a session, and then shows the id in its log.
    fn start(&self, ask: &Ask) -> Result<Plan, String> {
        if !ask.headless && ask.prompt.is_some() {
            return plan(None, ask);
        }
        let id = new_id().map_err(|e| format!("no random id: {e}"))?;
        let first = First {
            arguments: vec!["import".into(), "/dev/stdin".into()],
            input: empty_session(&id, ask.cwd.as_deref()),
        };
        Ok(Plan { first: Some(first), ..plan(Some(&Past { native_id: &id, transcript: None, fork: false }), ask)? })
    }

    fn resume(&self, ask: &Ask, past: &Past<'_>) -> Result<Plan, String> {
        if !ask.headless && ask.prompt.is_some() {
            let why = "an opencode terminal takes no prompt for a session that it resumes";
            return Err(format!("{why}; resume it without one and send it then, or use --headless"));
        }
        plan(Some(past), ask)
    }

    /// A terminal that goes on with a session says nothing of it before something is said there, but that it has come
    /// up; a whole look tells the rest.
    fn came_up(&self, places: &Places, native_id: &str, pid: u32) -> Option<bool> {
        let process = lariat_sys::scan::look(pid).ok().flatten()?;
        let logs = places.opencode.join("log");
        let heard = log::heard(pid, ap::started(&process).0, &logs.canonicalize().unwrap_or(logs))?;
        (heard.up || heard.sessions.iter().any(|(id, _)| id == native_id)).then_some(true)
    }

    fn id_in_output(&self, line: &str) -> Option<String> {
        let doc = crate::json::Doc::parse(line.as_bytes(), |_, key| key == b"sessionID", 100).ok()?;
        doc.root().get("sessionID").str().filter(|id| is_id(id)).map(str::to_owned)
    }

    fn tells_where(&self) -> bool {
        true
    }

    /// It sets its terminal's title: to its own name at home and while a session has no title, else to that of the
    /// session. One that forks stands at home until the copy is made, which has a title from the start; what is typed
    /// there begins another session, or is lost on the way.
    fn is_elsewhere_in_output(&self, all: &[u8], title: Option<&str>, argv: &[String]) -> bool {
        const AT_A_SESSION: &[u8] = b"\x1b]0;OC | ";
        let last = memchr::memmem::rfind(all, b"\x1b]0;").map(|at| &all[at..]);
        let is_home = last.is_some_and(|last| last.starts_with(b"\x1b]0;OpenCode\x07"));
        let forks = || argv.iter().any(|a| a == "--fork") && memchr::memmem::find(all, AT_A_SESSION).is_none();
        is_home && (title.is_some() || forks())
    }

    /// A terminal that is asked to end aborts its turn and writes that down; a run
    /// dies of any signal and writes nothing.
    fn gentle(&self) -> &'static [Signal] {
        &[Signal::TERM]
    }

    /// Its tools carry no mark of their session, only their parent's PID.
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
        &NoLines
    }

    fn archive(&self) -> Option<&'static dyn Archive> {
        Some(&talk::Conversations)
    }
}

fn warning(look: &Look<'_>, path: &Path, error: String) -> Warning {
    Warning { adapter: NAME, path: Some(look.places.shown(path)), error: error.into(), last_ok: None }
}

fn plan(past: Option<&Past<'_>>, ask: &Ask) -> Result<Plan, String> {
    let mut arguments: Vec<String> = Vec::new();
    if ask.headless {
        arguments.extend(["run", "--format", "json"].map(str::to_owned));
    }
    arguments.extend(ask.model.iter().flat_map(|m| ["--model".to_owned(), m.clone()]));
    arguments.extend(past.iter().flat_map(|p| ["--session".to_owned(), p.native_id.to_owned()]));
    arguments.extend(past.filter(|p| p.fork).map(|_| "--fork".to_owned()));
    arguments.extend(ask.arguments.iter().cloned());
    let native_id = past.filter(|p| !p.fork).map(|p| p.native_id.to_owned());
    let mut plan = Plan { arguments, native_id, ..Plan::default() };
    match &ask.prompt {
        // As an argument it would be stored in quotes.
        Some(prompt) if ask.headless => plan.input = Some(prompt.clone()),
        Some(prompt) if prompt.len() > crate::LONGEST_ARGUMENT => {
            return Err("the prompt is too long for an argument".into());
        }
        Some(prompt) => plan.arguments.push(format!("--prompt={prompt}")),
        None if ask.headless => return Err("a headless launch needs a prompt (-p)".into()),
        None => {}
    }
    Ok(plan)
}

/// A session without a word said, as `opencode import` takes it. It fills in the
/// project, and names it after the first prompt. The directory it fills in too, but before
/// 1.15 or so it keeps what it is told.
fn empty_session(id: &str, cwd: Option<&Path>) -> String {
    let now = clock::now_ms();
    let title = format!("New session - {}", Time(now));
    let directory = serde_json::Value::from(cwd.and_then(Path::to_str).unwrap_or("/"));
    format!(
        "{{\"info\":{{\"id\":\"{id}\",\"slug\":\"lariat\",\"projectID\":\"global\",\"directory\":{directory},\
         \"title\":\"{title}\",\"version\":\"lariat\",\"time\":{{\"created\":{now},\"updated\":{now}}}}},\"messages\":[]}}"
    )
}

/// An id as OpenCode makes them: the time, counting down, then chance.
fn new_id() -> std::io::Result<String> {
    let chance = crate::new_uuid()?.replace('-', "");
    let time = !(u64::try_from(clock::now_ms()).unwrap_or(0) << 12);
    Ok(format!("ses_{:012x}{}", time & 0xffff_ffff_ffff, &chance[..14]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_at_home_shows_no_session_that_has_a_title() {
        let at = |all: &str, title, argv: &str| {
            let argv: Vec<String> = argv.split(' ').map(str::to_owned).collect();
            OpenCode.is_elsewhere_in_output(all.as_bytes(), title, &argv)
        };
        let (home, there) = ("\x1b]0;OpenCode\x07 \x1b[2J", "\x1b]0;OC | Fix it\x07 \x1b[2J");
        assert!(at(home, Some("Fix it"), "opencode"));
        assert!(at(&format!("{there}{home}"), Some("Fix it"), "opencode"));
        assert!(!at(&format!("{home}{there}"), Some("Fix it"), "opencode"));
        assert!(!at(home, None, "opencode --session ses_1"), "it has no title yet");
        assert!(!at("", Some("Fix it"), "opencode"), "it sets none");
        assert!(!at(&format!("{home}\x1b]0;\x07"), Some("Fix it"), "opencode"), "it was told to set none");
        assert!(at(home, None, "opencode --session ses_1 --fork"));
        assert!(!at(&format!("{home}{there}"), None, "opencode --session ses_1 --fork"));
        assert!(!at(&format!("{there}{home}"), None, "opencode --session ses_1 --fork"), "another one, begun there");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test's own folder")]
    fn a_terminal_that_says_in_its_log_that_it_has_come_up_is_there() {
        use std::io::Write as _;
        let folder = std::env::temp_dir().join(format!("lariat-came-up-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("log")).expect("a folder");
        let places = Places { opencode: folder.clone(), ..Places::default() };
        let up = || OpenCode.came_up(&places, "ses_1", std::process::id());
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(folder.join("log/opencode.log"));
        let mut opened = opened.expect("a log");
        let mut logs = |rest: &str| {
            let line = format!("timestamp={} level=INFO run=aa message={rest}\n", Time(clock::now_ms()));
            opened.write_all(line.as_bytes()).expect("a line");
        };
        assert_eq!(up(), None, "it says nothing");
        logs("created id=ses_2");
        assert_eq!(up(), None, "of another session");
        logs("init count=3");
        assert_eq!(up(), Some(true));
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn what_a_process_is() {
        assert_eq!(kind(&[]), Kind::Terminal);
        assert_eq!(kind(&["-s", "run"]), Kind::Terminal);
        assert_eq!(kind(&["/some/project", "--prompt", "serve"]), Kind::Terminal);
        assert_eq!(kind(&["--print-logs", "run", "hello"]), Kind::Run);
        assert_eq!(kind(&["run", "--attach", "http://x"]), Kind::Errand);
        assert_eq!(kind(&["attach", "http://x"]), Kind::Client);
        assert_eq!(kind(&["--log-level", "INFO", "serve"]), Kind::Server);
        assert_eq!(kind(&["session", "list"]), Kind::Other);
        assert_eq!(kind(&["--version"]), Kind::Other);
    }

    #[test]
    fn a_session_is_imported_where_it_is_to_be() {
        let told = |cwd| serde_json::from_str::<serde_json::Value>(&empty_session("ses_1", cwd)).expect("JSON");
        assert_eq!(told(Some(Path::new("/some/\"place\"")))["info"]["directory"], "/some/\"place\"");
        assert_eq!(told(None)["info"]["directory"], "/");
    }

    #[test]
    fn ids_are_made_as_opencode_makes_them() {
        let (a, b) = (new_id().expect("an id"), new_id().expect("an id"));
        assert_eq!(a.len(), 30, "{a}");
        assert!(is_id(&a) && a != b, "{a} {b}");
        assert!(!is_id("ses_") && !is_id("ses_a/b") && !is_id("prt_1"));
    }
}
