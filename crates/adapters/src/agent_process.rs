//! Telling an agent's process from the thousand others.
//!
//! By the name of the program that runs: the command name, the first argument,
//! or the script an interpreter was given. A word somewhere in the arguments
//! (`vim claude`, `grep codex`) is no program.

use std::path::{Path, PathBuf};

use lariat_core::{Fact, Time, Unbound, Untrusted};
use lariat_sys::point::takes;
use lariat_sys::scan::{Process, Table};
use lariat_sys::{clock, file, process};

use crate::json::{Doc, Value};
use crate::look::{Look, Places, same_place};

/// The variable in which a launched agent carries its session's name.
const MARK: &str = "LARIAT_SESSION";

const INTERPRETERS: [&str; 15] = [
    "node", "nodejs", "bun", "deno", "python", "python3", "pypy3", "bash", "sh", "dash", "ash", "ksh", "zsh", "perl",
    "ruby",
];

/// How a process runs a program: directly, or by an interpreter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Where its own arguments start.
    pub arguments: usize,
    /// Whether an interpreter runs a script of that name.
    pub script: bool,
}

/// Whether a process runs one of these programs.
pub fn runs(process: &Process, names: &[&str]) -> Option<Run> {
    let mut arguments = process.arguments().enumerate();
    let program = base(arguments.next().map_or("", |(_, a)| a));
    let named = |path: &str| names.contains(&base(path));
    if is_interpreter(program) {
        let (at, script) = match script(process) {
            Some((at, script)) => (at, script),
            // A text of its own: it is what it calls itself.
            None => (arguments.find(|(_, a)| !a.starts_with('-'))?.0, ""),
        };
        return (named(script) || named(&process.comm)).then_some(Run { arguments: at + 1, script: true });
    }
    // One binary may be several programs, told apart by the name it is called
    // by: `codex-linux-sandbox` is a tool, whatever file it was started from.
    let another = names.iter().any(|n| program.strip_prefix(n).is_some_and(|rest| rest.starts_with('-')));
    let ours = named(program) || (named(&process.comm) && !another);
    ours.then_some(Run { arguments: 1, script: false })
}

/// The file that a process runs, whatever name it was called by: its program, or the script that this was given. It
/// costs a look at the process, so it is for one that a record names, never for all.
pub fn file(process: &Process) -> Option<(String, Run)> {
    let link = |name: &str| std::fs::read_link(format!("/proc/{}/{name}", process.pid)).ok();
    let program = link("exe")?;
    let program = program.to_string_lossy();
    let program = program.strip_suffix(" (deleted)").unwrap_or(&program);
    if !is_interpreter(base(program)) {
        return Some((program.to_owned(), Run { arguments: 1, script: false }));
    }
    let (at, script) = script(process)?;
    let script = std::fs::canonicalize(link("cwd")?.join(script)).ok()?;
    Some((script.to_string_lossy().into_owned(), Run { arguments: at + 1, script: true }))
}

/// How a process runs a script of a package, which is known by the end of its path only: many are called `cli.js`. A path
/// that says less, because it is relative or leads through a link, is followed.
pub fn runs_packaged(process: &Process, ends: &[&str]) -> Option<Run> {
    is_interpreter(base(process.arguments().next()?)).then_some(())?;
    let (at, script) = script(process)?;
    let called_so = ends.iter().any(|end| base(end) == base(script));
    let ours = |path: &str| ends.iter().any(|end| path.ends_with(end));
    let is_it = called_so && (ours(script) || file(process).is_some_and(|(file, _)| ours(&file)));
    is_it.then_some(Run { arguments: at + 1, script: true })
}

/// The script that an interpreter was given, and where in its arguments; none if it was given a text to run.
fn script(process: &Process) -> Option<(usize, &str)> {
    let mut arguments = process.arguments().enumerate();
    let program = base(arguments.next()?.1);
    // Options that take the next word with them, and letters among the short ones that say: here is the text.
    let (take, text): (&[&str], &[char]) = match program {
        p if p.starts_with("py") => (&["-W", "-X", "--check-hash-based-pycs"], &['c', 'm']),
        "node" | "nodejs" | "bun" | "deno" => {
            (&["-r", "--require", "--import", "--loader", "--experimental-loader", "-C", "--conditions"], &['e', 'p'])
        }
        "perl" | "ruby" => (&["-I"], &['e', 'E']),
        _ => (&["-o", "+o", "-O", "+O", "--rcfile", "--init-file"], &['c']),
    };
    while let Some((at, word)) = arguments.next() {
        let Some(option) = word.strip_prefix('-').or(word.strip_prefix('+')) else {
            match (program, word) {
                ("bun" | "deno", "run") => continue,
                _ => return Some((at, word)),
            }
        };
        if take.contains(&word) {
            arguments.next();
        } else if option == "-" {
            return arguments.next();
        } else if matches!(option, "-eval" | "-print") {
            return None;
        } else if !option.starts_with('-') && option.split(['W', 'X']).next()?.contains(text) {
            return None; // of `-Wonce` only the first letter is an option
        }
    }
    None
}

/// The last part of a path.
pub fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a program runs what it is given.
pub fn is_interpreter(name: &str) -> bool {
    INTERPRETERS.contains(&name) || name.starts_with("python3.")
}

/// The value of `--flag VALUE` or `--flag=VALUE`.
pub fn flag<'a>(arguments: &[&'a str], names: &[&str]) -> Option<&'a str> {
    for (i, argument) in arguments.iter().enumerate() {
        if names.contains(argument) {
            return arguments.get(i + 1).copied();
        }
        let value = names.iter().find_map(|n| argument.strip_prefix(n)?.strip_prefix('='));
        if value.is_some() {
            return value;
        }
    }
    None
}

/// The session id that a person gives an agent by `--session-id`, of several the last one, and all other arguments.
/// Given besides one of ours, the agent would have a session that the launch does not tell of.
pub fn own_id(arguments: &[String]) -> Result<(Option<String>, Vec<String>), String> {
    const FLAG: &str = "--session-id";
    let (mut id, mut others) = (None, Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let given = match word.strip_prefix(FLAG) {
            Some("") => words.next().map_or("", String::as_str),
            Some(rest) if rest.starts_with('=') => &rest[1..],
            _ => {
                others.push(word.clone());
                continue;
            }
        };
        if !is_uuid(given) {
            return Err(format!("{FLAG} takes a UUID, not '{given}'"));
        }
        id = Some(given.to_owned());
    }
    Ok((id, others))
}

/// Whether an agent process uses the store at `ours`: another user's, or one
/// with another home, has nothing to do with the sessions there.
pub fn uses_store(pid: u32, variable: &str, under_home: &str, ours: &Path) -> bool {
    let Ok(environment) = process::environment(pid) else {
        // Unreadable: of another user, or of ours and shy. Only ours counts.
        return owner(pid) == Some(own_user());
    };
    let set = |name: &str| environment.get(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let theirs = set(variable).or_else(|| set("HOME").map(|h| h.join(under_home)));
    theirs.is_none_or(|theirs| same_place(&theirs, ours))
}

/// The user whose process it is.
pub(crate) fn owner(pid: u32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(format!("/proc/{pid}")).ok().map(|m| m.uid())
}

/// The user we are.
pub(crate) fn own_user() -> u32 {
    owner(std::process::id()).unwrap_or(0)
}

/// Whether text is a UUID, the shape of both agents' ids.
pub fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}

/// How exactly a start is told, in milliseconds: what was written then may bear an earlier time.
pub const TICK: i64 = 10;

/// When a process started.
pub fn started(process: &Process) -> Time {
    Time(clock::ticks_to_ms(process.start))
}

/// Whether a record is older than a process. One that is told in whole seconds may be of any moment of its second.
pub fn is_before(record: Option<Time>, process: &Process) -> bool {
    let latest = |t: Time| if t.0 % 1000 == 0 { t.0 + 999 } else { t.0 };
    record.is_none_or(|record| latest(record) < started(process).0)
}

/// Whether what a store shows is older than a process. What cannot be read is as old as its file, if even that is known.
pub fn is_past(shown: &Fact, record: Option<Time>, mtime: i64, process: &Process) -> bool {
    match shown {
        Fact::TurnUnread(_) => mtime > 0 && is_before(Some(Time(mtime / 1_000_000)), process),
        _ => is_before(record, process),
    }
}

/// How long a terminal takes to come up, as a rule.
const COMING_UP_MS: i64 = 5000;

/// Whether a terminal may still be coming up, if nothing tells.
pub fn comes_up(look: &Look<'_>, process: &Process) -> bool {
    look.now.0 - started(process).0 < takes("coming-up", COMING_UP_MS)
}

/// Whether a terminal stands at its prompt that was asked nothing and of which nothing tells that it has come up. Of one
/// that lariat launched its own terminal tells, and more exactly.
pub fn is_up(look: &Look<'_>, process: &Process) -> bool {
    !comes_up(look, process) && launched_for(look.places, process).is_none()
}

/// The folder of the launched session that a process's environment names, its own or one around it.
pub fn launched_folder(places: &Places, pid: u32) -> Option<PathBuf> {
    let environment = process::environment(pid).ok()?;
    let handle = environment.get(MARK).filter(|h| !h.is_empty() && !h.contains(['/', '.']))?;
    Some(places.state.join("sessions").join(handle))
}

/// The session that lariat launched this very process for, as far as its launch is on record. What it started has the
/// same mark, and is another process.
pub fn launched_for(places: &Places, process: &Process) -> Option<String> {
    launched_as(places, process)?.1
}

/// The agent that lariat launched this very process as, or had a script call, and the session, as far as that is on
/// record.
pub fn launched_as(places: &Places, process: &Process) -> Option<(String, Option<String>)> {
    let launch = Launch::of(places, process)?;
    let root = launch.record.root();
    let is_it = if launch.is_started(process) { !launch.calls() } else { is(process, root.get("called")) };
    let text = |key: &str| root.get(key).some_str().map(str::to_owned);
    is_it.then_some(())?;
    Some((text("agent")?, text("native_id")))
}

/// Whether lariat launched a script that called its agent: that one is the agent, and when it is gone nobody is.
pub fn is_caller(places: &Places, script: &Process) -> bool {
    Launch::of(places, script).is_some_and(|launch| launch.is_started(script) && launch.calls())
}

/// The launch that a process comes of, in its own place or somewhere below.
struct Launch {
    record: Doc,
    shim: Doc,
}

impl Launch {
    fn of(places: &Places, process: &Process) -> Option<Launch> {
        let folder = launched_folder(places, process.pid)?;
        let read =
            |name: &str| Doc::parse(&file::read_small(&folder.join(name), 1 << 20).ok()?, |_, _| true, 4096).ok();
        Some(Launch { shim: read("shim.json")?, record: read("launch.json")? })
    }

    fn is_started(&self, process: &Process) -> bool {
        is(process, self.shim.root().get("agent"))
    }

    fn calls(&self) -> bool {
        self.record.root().get("called").get("pid").u64().is_some()
    }
}

fn is(process: &Process, record: Value<'_>) -> bool {
    record.get("pid").u64() == Some(process.pid.into()) && record.get("start").u64() == Some(process.start)
}

/// The agent that a script called in its own place. Of one that writes over its arguments, that it is the script's own
/// child must do.
pub fn called_by(script: &Process, is_agent: impl Fn(&Process) -> bool) -> Option<Process> {
    let (_, run) = file(script).filter(|(_, run)| run.script)?;
    let children = std::fs::read(format!("/proc/{0}/task/{0}/children", script.pid));
    if children.is_ok_and(|all| all.is_empty()) {
        return None;
    }
    let table = Table::scan().ok()?;
    let below = table.descendants(script.pid).into_iter().filter(|d| is_agent(d) && !d.is_copy_of_parent(&table));
    let mute = |d: &Process| d.ppid == script.pid && d.arguments().filter(|a| !a.is_empty()).count() == 1;
    below.filter(|d| passes_on(script, &run, d) || mute(d)).last().cloned()
}

/// The first two numbers of the version of a program that would be started by this name, as the package says in which it
/// stands; nothing, if it stands in none of that name.
pub fn version_of(program: &str, package: &str) -> Option<(u32, u32)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program =
        std::env::split_paths(&path).map(|folder| folder.join(program)).find_map(|p| p.canonicalize().ok())?;
    let said = program.ancestors().skip(1).take(3).find_map(|folder| {
        let text = file::read_small(&folder.join("package.json"), 1 << 20).ok()?;
        let doc = Doc::parse(&text, |_, key| matches!(key, b"name" | b"version"), 256).ok()?;
        doc.root().get("name").some_str().filter(|name| name.ends_with(package))?;
        doc.root().get("version").some_str().map(str::to_owned)
    })?;
    let mut numbers = said.split(['.', '-']).map(|n| n.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// The argument that makes `lariat` own an agent's connection.
pub const OWNS: &str = "__acp";

/// Whether lariat owns this process's connection, for a session that is known: that one is all it has.
pub fn is_owned(places: &Places, process: &Process, table: &Table) -> bool {
    // One that starts itself again is two.
    let again = |p: &&Process| p.arguments().last() == process.arguments().last();
    let parent = table.get(process.ppid);
    let owner = parent.filter(again).map_or(parent, |first| table.get(first.ppid));
    owner.is_some_and(|p| p.arguments().nth(1) == Some(OWNS) && launched_for(places, p).is_some())
}

/// Where a process stands, if that can be read.
pub fn standing(pid: u32) -> Option<Untrusted> {
    process::cwd(pid).ok().map(|p| Untrusted::new(p.to_string_lossy()))
}

/// Leaves out what only looks like the agent: wrappers, scripts that wait for
/// the real program they started and die alone, or stay when it is gone; and
/// copies of an agent that are about to become one of its tools.
pub fn genuine(
    places: &Places,
    found: Vec<(Process, Run)>,
    table: &Table,
    is_agent: impl Fn(&Process) -> bool,
) -> Vec<(Process, Run)> {
    let wraps = |p: &Process, run: &Run| {
        let mut below = table.descendants(p.pid).into_iter().filter(|d| is_agent(d) && !d.is_copy_of_parent(table));
        below.any(|d| passes_on(p, run, d)) || is_caller(places, p)
    };
    found.into_iter().filter(|(p, run)| !(p.is_copy_of_parent(table) || run.script && wraps(p, run))).collect()
}

/// Whether a script gave its place to a program below it: what it was told and what it hears. An agent that one of its
/// tools started has neither.
fn passes_on(script: &Process, run: &Run, below: &Process) -> bool {
    let told: Vec<&str> = script.arguments().skip(run.arguments).collect();
    let all: Vec<&str> = below.arguments().collect();
    // What everybody may hear says nothing, and who was told something passes that on.
    let hears = |pid: u32| std::fs::read_link(format!("/proc/{pid}/fd/0")).ok().filter(|f| f != Path::new("/dev/null"));
    match told.len() {
        0 => hears(script.pid).is_some_and(|input| hears(below.pid) == Some(input)),
        1 => all.len() > 1 && all.ends_with(&told),
        several => all.windows(several).skip(1).any(|part| part == told),
    }
}

/// Processes that could not be tied to a session, told as what they are, without
/// those that have ended since the scan, and those that are dying this moment: with
/// their first thread gone they show neither what they held nor where they stood.
pub fn unbound(agent: &'static str, found: Vec<(Process, Run)>, why: impl Fn(&Process) -> String) -> Vec<Unbound> {
    let living = found.iter().map(|(p, _)| p).filter(|p| !matches!(p.is_alive(), Ok(false)));
    let living = living.filter(|p| !process::Stat::read(p.pid).is_ok_and(|stat| stat.is_ending()));
    // The last of a sandbox that Codex made has its name and nothing else.
    let living = living.filter(|p| !process::is_leaving(p.pid));
    let told = living.map(|p| Unbound {
        agent,
        host: None,
        pid: p.pid,
        cwd: standing(p.pid),
        started_at: Some(started(p)),
        why: why(p).into(),
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_in_both_spellings() {
        assert_eq!(flag(&["-p", "--session-id", "x"], &["--session-id"]), Some("x"));
        assert_eq!(flag(&["--session-id=x"], &["--session-id"]), Some("x"));
        assert_eq!(flag(&["--session-idx=x", "--session-id"], &["--session-id"]), None);
    }

    #[test]
    fn an_id_that_a_person_gives_is_taken_out() {
        let (one, other) = ("1c809f1f-3e4d-4288-987c-dda9b2225483", "1c809f1f-3e4d-4288-987c-dda9b2225484");
        let taken = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            own_id(&words).map(|(id, others)| (id, others.join(" ")))
        };
        assert_eq!(taken("--a b"), Ok((None, "--a b".into())));
        assert_eq!(taken(&format!("--a --session-id {one} b")), Ok((Some(one.into()), "--a b".into())));
        assert_eq!(taken(&format!("--session-id={one} --session-id {other}")), Ok((Some(other.into()), String::new())));
        assert_eq!(taken("--session-ids x"), Ok((None, "--session-ids x".into())));
        for wrong in ["--session-id", "--session-id x", "--session-id=", "--session-id=../x"] {
            assert!(taken(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ids_are_uuids() {
        assert!(is_uuid("1c809f1f-3e4d-4288-987c-dda9b2225483"));
        assert!(!is_uuid("1c809f1f-3e4d-4288-987c-dda9b222548"));
        assert!(!is_uuid("agent-1f-3e4d-4288-987c-dda9b222548354"));
    }
}
