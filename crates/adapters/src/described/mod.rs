//! Agents that lariat knows nothing of but what `[[agent]]` in the settings says: a command, how it is
//! given a prompt, how it goes on, where its transcripts are.
//!
//! There is no store that is understood, so nothing is ever said of their turns. Whether one lives is
//! known by the process that its shim started, and, where the description says by which arguments an id
//! is given, by a process that was given it. A transcript's path is told and its time is; what is in it
//! is not read.
//!
//! See `docs/agents/described.md`.

mod transcript;

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Mutex;

use lariat_core::{Fact, Observation, Untrusted, Witness};
use lariat_sys::scan::Process;

pub use transcript::{find, has_none};

use crate::agent_process as ap;
use crate::look::{About, Look, Places, Report, Sighting};
use crate::settings::{Described, Given, filled, is_name};
use crate::talk::{Language, Said};
use crate::{Adapter, Ask, LONGEST_ARGUMENT, Past, Plan, new_uuid};

/// What every one of them is called.
pub const NAME: &str = "agent";
/// Why nothing is told of their turns.
pub const WHY: &str = "the settings describe this agent, and lariat knows no more of it";
const PREFIX: &str = "agent:";
/// How a process runs of which only its number matters.
const OWN: ap::Run = ap::Run { arguments: 1, script: false };

/// The one that looks at all of them.
pub static EVERY: Agent = Agent { name: NAME };

/// The adapter of one, or of every one.
pub struct Agent {
    name: &'static str,
}

/// The adapter of one of them. It is known by its name alone: a session outlives the settings that it
/// was launched with.
pub fn named(name: &str) -> Option<&'static dyn Adapter> {
    static KNOWN: Mutex<Vec<&'static Agent>> = Mutex::new(Vec::new());
    name.strip_prefix(PREFIX).filter(|short| is_name(short))?;
    let mut known = KNOWN.lock().ok()?;
    if let Some(found) = known.iter().find(|a| a.name == name) {
        return Some(*found);
    }
    // Once for each name: rows carry it for as long as the program runs.
    let made: &'static Agent = Box::leak(Box::new(Agent { name: Box::leak(name.to_owned().into_boxed_str()) }));
    known.push(made);
    Some(made)
}

/// Whether an agent is one of them.
pub fn is_one(agent: &str) -> bool {
    agent.starts_with(PREFIX)
}

impl Agent {
    fn described<'a>(&self, ask: &'a Ask) -> Result<&'a Described, String> {
        if self.name == NAME {
            return Err("say which one: agent:<name>, as [[agent]] in the settings names it".into());
        }
        let short = self.name.trim_start_matches(PREFIX);
        ask.described.as_ref().ok_or_else(|| {
            format!(
                "the settings have no [[agent]] with name = \"{short}\"; add it with its command, \
                 like command = [\"{short}\"]"
            )
        })
    }
}

/// The command after its program, with what makes it this session, and the prompt.
fn plan(described: &Described, of_session: Vec<String>, native_id: String, ask: &Ask) -> Result<Plan, String> {
    if ask.model.is_some() {
        return Err("how its model is chosen is not described; give its own flags after --".into());
    }
    let mut arguments: Vec<String> = described.command.iter().skip(1).cloned().collect();
    arguments.extend(of_session);
    arguments.extend(ask.arguments.iter().cloned());
    let mut plan = Plan { native_id: Some(native_id), ..Plan::default() };
    match (&ask.prompt, &described.prompt) {
        (None, _) if ask.headless => return Err("a headless launch needs a prompt (-p)".into()),
        (None, _) => {}
        (Some(_), Given::Typed) if ask.headless => {
            return Err("its prompt is typed, so it needs a terminal: leave out --headless".into());
        }
        (Some(_), Given::Typed) => return Err("its prompt is typed; `lariat send` does that once it runs".into()),
        (Some(_), Given::Stdin) if !ask.headless => {
            return Err("it reads its prompt from its standard input: say --headless".into());
        }
        (Some(prompt), Given::Stdin) => plan.input = Some(prompt.clone()),
        (Some(prompt), _) if prompt.len() > LONGEST_ARGUMENT => {
            return Err("the prompt is too long for an argument; prompt = \"stdin\" has no such limit".into());
        }
        (Some(prompt), given) => {
            let words = given.words(prompt).unwrap_or_default();
            // Alone, it would be taken for an option.
            if words.last() == Some(prompt) && words.len() == 1 && prompt.starts_with('-') {
                return Err("a prompt that begins with '-' would be taken for an option".into());
            }
            arguments.extend(words);
        }
    }
    plan.arguments = arguments;
    Ok(plan)
}

impl Adapter for Agent {
    fn name(&self) -> &'static str {
        self.name
    }

    /// What the settings say.
    fn programs(&self) -> &'static [&'static str] {
        &[]
    }

    fn store(&self, places: &Places) -> PathBuf {
        places.settings.clone()
    }

    fn observe(&self, look: &Look<'_>) -> Report {
        let mut report = Report::default();
        let mut told = HashSet::new();
        for (process, fits) in given_an_id(look) {
            let [(described, id)] = fits.as_slice() else {
                let names: Vec<String> = fits.iter().map(|(d, _)| format!("{PREFIX}{}", d.name)).collect();
                let why = format!("it may be any of {}, which the settings describe alike", names.join(", "));
                if names.iter().any(|name| crate::means(self.name, name)) {
                    report.unbound.extend(ap::unbound(NAME, vec![(process, OWN)], |_| why.clone()));
                }
                continue;
            };
            let name = format!("{PREFIX}{}", described.name);
            let Some(agent) = named(&name).filter(|_| crate::means(self.name, &name)) else { continue };
            if told.insert((agent.name(), id.clone())) {
                report.add((look.judge)(agent.name(), sighting(look, described, process, id.clone())));
            }
        }
        report.sessions.sort_by(|a, b| a.id.cmp(&b.id));
        report
    }

    fn observe_processes(&self, look: &Look<'_>, _why: &str) -> Report {
        self.observe(look)
    }

    fn is_mute(&self) -> bool {
        true
    }

    fn start(&self, ask: &Ask) -> Result<Plan, String> {
        let described = self.described(ask)?;
        let id = new_uuid().map_err(|e| format!("no random id: {e}"))?;
        plan(described, filled(&described.session_id, &id), id, ask)
    }

    fn resume(&self, ask: &Ask, past: &Past<'_>) -> Result<Plan, String> {
        let described = self.described(ask)?;
        if past.fork {
            return Err(NO_FORK.into());
        }
        if described.resume.is_empty() {
            return Err(NO_WAY.into());
        }
        plan(described, filled(&described.resume, past.native_id), past.native_id.to_owned(), ask)
    }

    /// Its tools carry nothing but the mark of the launch.
    fn marks(&self, _native_id: &str) -> Vec<(String, String)> {
        Vec::new()
    }

    fn language(&self) -> &'static dyn Language {
        &NotRead
    }
}

/// Why one of them does not go on.
pub const NO_WAY: &str =
    "how its sessions go on is not described: its [[agent]] needs session_id and resume, like [\"--resume\", \"{id}\"]";

/// Why none of them is forked.
pub const NO_FORK: &str =
    "how it is forked is not described, and no field of its [[agent]] would say it; `lariat launch` begins another";

/// Nobody knows what is in their transcripts.
struct NotRead;

impl Language for NotRead {
    fn keep(&self) -> crate::json::Keep {
        |_, _| false
    }

    fn said(&self, _line: crate::json::Value<'_>) -> Vec<Said> {
        Vec::new()
    }
}

/// An agent that is described, and the id that a process was given as it.
type Fit<'a> = (&'a Described, String);

/// Processes that were given an id, each with whom of those that are described it is: whose command stands in its
/// arguments with the most words. Of several, the one that lariat launched it as.
fn given_an_id<'a>(look: &Look<'a>) -> Vec<(Process, Vec<Fit<'a>>)> {
    let Ok(table) = look.table else { return Vec::new() };
    let mut all: BTreeMap<u32, (Process, usize, Vec<Fit<'a>>)> = BTreeMap::new();
    for described in look.settings.described.iter().filter(|d| !d.session_id.is_empty()) {
        let Some(program) = described.command.first().map(|c| ap::base(c)) else { continue };
        let runs = |p: &Process| ap::runs(p, &[program]);
        let found = table.iter().filter_map(|p| Some((p.clone(), runs(p)?))).collect();
        for (process, run) in ap::genuine(look.places, found, table, |p| runs(p).is_some()) {
            let Some((words, id)) = fit(described, &process, run) else { continue };
            let (_, most, fits) = all.entry(process.pid).or_insert_with(|| (process, 0, Vec::new()));
            if words > *most {
                (*most, *fits) = (words, Vec::new());
            }
            fits.extend((words == *most).then_some((described, id)));
        }
    }
    let all = all.into_values().filter(|(p, ..)| !matches!(p.is_alive(), Ok(false)));
    let one = |(process, _, mut fits): (Process, usize, Vec<Fit<'a>>)| {
        let launched = (fits.len() > 1).then(|| ap::launched_as(look.places, &process)).flatten();
        let is_it =
            |d: &Described| launched.as_ref().is_some_and(|(agent, _)| agent.strip_prefix(PREFIX) == Some(&d.name));
        if fits.iter().any(|(d, _)| is_it(d)) {
            fits.retain(|(d, _)| is_it(d));
        }
        (process, fits)
    };
    all.map(one).collect()
}

/// The id that a process was given, and how many words of the command stand before it.
fn fit(described: &Described, process: &Process, run: ap::Run) -> Option<(usize, String)> {
    let command: Vec<&str> = described.command.iter().map(String::as_str).collect();
    let (program, fixed) = command.split_first()?;
    // What an interpreter was given says which program it is, and so may the first words of any command.
    let interprets = ap::is_interpreter(ap::base(program));
    let first = fixed.iter().take_while(|word| !word.starts_with('-')).count();
    let arguments: Vec<&str> = process.arguments().skip(if interprets { 1 } else { run.arguments }).collect();
    // The id stands behind the words of the command itself, which stand in every start of ours.
    let (words, rest) = match arguments.strip_prefix(fixed) {
        Some(rest) => (command.len(), rest),
        None if interprets => return None,
        None => (0, arguments.strip_prefix(&fixed[..first])?),
    };
    let templates = [&described.session_id, &described.resume];
    let id = templates.into_iter().find_map(|template| id_in(rest, template))?;
    Some((words, id))
}

/// The id that these arguments give, where the template's words stand among them.
fn id_in(arguments: &[&str], template: &[String]) -> Option<String> {
    let fits = |words: &[&str]| {
        let mut id = None;
        for (word, wanted) in words.iter().zip(template) {
            match wanted.split_once("{id}") {
                None if word == wanted => {}
                None => return None,
                Some((before, after)) => {
                    let found = word.strip_prefix(before)?.strip_suffix(after)?;
                    if id.is_some_and(|id| id != found) {
                        return None;
                    }
                    id = Some(found);
                }
            }
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        id.filter(|id| (1..=200).contains(&id.len()) && id.chars().all(plain)).map(str::to_owned)
    };
    if template.is_empty() { None } else { arguments.windows(template.len()).find_map(fits) }
}

fn sighting(look: &Look<'_>, described: &Described, process: Process, id: String) -> Sighting {
    let by = Untrusted::from("its arguments name the session");
    let alive = Fact::Alive { pid: Some(process.pid), by };
    let transcript = find(look.places, described, &id);
    Sighting {
        observations: vec![
            Observation::new(Witness::Process, alive).from(format!("/proc/{}/cmdline", process.pid)),
            Observation::new(Witness::Process, Fact::Mute(WHY.into())),
        ],
        about: About {
            cwd: ap::standing(process.pid).map(|c| c.raw().to_owned()),
            started_at: Some(ap::started(&process)),
            updated_at: transcript.as_ref().and_then(|(_, at)| *at),
            ..About::default()
        },
        native_id: id,
        process: Some(process),
        named: Vec::new(),
        missed: Vec::new(),
        outlived: false,
        shared: false,
        transcript: transcript.map(|(path, _)| path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &[&str]) -> Vec<String> {
        text.iter().map(|w| (*w).to_owned()).collect()
    }

    #[test]
    fn an_id_is_read_where_the_template_has_it_and_nowhere_else() {
        let template = words(&["--session", "{id}"]);
        assert_eq!(id_in(&["-x", "--session", "a-1", "hello"], &template).as_deref(), Some("a-1"));
        assert_eq!(id_in(&["--session"], &template), None);
        assert_eq!(id_in(&["--sessions", "a-1"], &template), None);
        assert_eq!(id_in(&["--session", "a b"], &template), None, "no id has a space");
        assert_eq!(id_in(&["--session", ""], &template), None);
        let template = words(&["--id={id}"]);
        assert_eq!(id_in(&["x", "--id=a-1"], &template).as_deref(), Some("a-1"));
        assert_eq!(id_in(&["a-1"], &[]), None);
    }

    #[test]
    fn a_prompt_goes_the_way_that_is_described() {
        let agent = |prompt: Given| Described {
            name: "x".into(),
            command: words(&["x", "--quiet"]),
            prompt,
            session_id: words(&["--id", "{id}"]),
            resume: words(&["--again={id}"]),
            transcripts: None,
        };
        let ask = |prompt: Option<&str>, headless, given| Ask {
            prompt: prompt.map(str::to_owned),
            headless,
            described: Some(agent(given)),
            ..Ask::default()
        };
        let it = named("agent:x").expect("a name");
        let plan = it.start(&ask(Some("do it"), false, Given::default())).unwrap();
        let id = plan.native_id.clone().expect("an id that we chose");
        assert_eq!(plan.arguments, ["--quiet", "--id", id.as_str(), "do it"]);
        let plan = it.start(&ask(Some("-x"), true, Given::Words(words(&["--say", "{prompt}"])))).unwrap();
        assert_eq!(plan.arguments[3..], ["--say", "-x"]);
        assert!(it.start(&ask(Some("-x"), true, Given::default())).is_err(), "taken for an option");
        let plan = it.start(&ask(Some("-x"), true, Given::Stdin)).unwrap();
        assert_eq!((plan.arguments.len(), plan.input.as_deref()), (3, Some("-x")));
        assert!(it.start(&ask(Some("x"), false, Given::Stdin)).is_err(), "a terminal has no other input");
        assert!(it.start(&ask(Some("x"), true, Given::Typed)).is_err(), "nothing to type into");
        assert!(it.start(&ask(None, true, Given::Stdin)).is_err());
        let past = |fork| Past { native_id: "a-1", transcript: None, fork };
        let plan = it.resume(&ask(None, false, Given::Typed), &past(false)).unwrap();
        assert_eq!((plan.arguments, plan.native_id.as_deref()), (words(&["--quiet", "--again=a-1"]), Some("a-1")));
        assert!(it.resume(&ask(None, false, Given::Typed), &past(true)).is_err());
        assert!(it.start(&Ask::default()).is_err(), "not in the settings");
        assert!(EVERY.start(&ask(None, false, Given::Typed)).is_err(), "which one?");
    }
}
