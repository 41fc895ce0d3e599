//! `lariat launch`: an agent that outlives whoever started it.

use std::io::Read as _;

use lariat_adapters::Ask;
use lariat_adapters::look::Scope;
use lariat_core::Untrusted;
use lariat_engine::Question;
use lariat_engine::after::After;
use lariat_engine::launch::{self, LaunchError, Order, Started};
use lariat_engine::worktree::{WorktreeError, make};
use serde::Serialize;

use crate::Done;
use crate::args::{Common, Launch};
use crate::output::{Failure, Out, complain};
use crate::verbs::{matrix, question};

/// What `--json` tells of a launch.
#[derive(Serialize)]
pub struct Told<'a> {
    handle: &'a str,
    id: String,
    native_id: &'a str,
    agent: &'a str,
    cwd: String,
    pid: u32,
    worktree: Option<String>,
}

pub fn run(args: &Launch, common: &Common, out: &mut Out) -> Done {
    args.name.as_deref().map_or(Ok(()), check_name)?;
    let order = Order {
        agent: args.agent.clone().unwrap_or_default(),
        cwd: args.cwd.clone().unwrap_or_else(|| ".".into()),
        ask: Ask {
            prompt: prompt(args)?,
            model: args.model.clone(),
            name: args.name.clone(),
            headless: args.headless,
            arguments: args.arguments.clone(),
            held: args.ask,
            command: Vec::new(),
            described: None,
            hook: None,
            older: false,
            cwd: None,
        },
        group: args.group.clone(),
        env: args.env.clone(),
        force: args.force,
        max: args.max.map(|max| max as usize),
        queue: args.queue,
        after: After { on_launch: args.on_launch.clone(), on_exit: args.on_exit.clone() },
        keep: args.keep,
        worktree: None,
    };
    let question = question(common, Scope::Live);
    if args.matrix.is_some() {
        return matrix::run(args, &order, &question, out);
    }
    let launched = one(&question, &order, wish(args).as_ref()).map_err(failure)?;
    complain_of(&launched);
    match out.json {
        true => out.told(&told(&launched))?,
        false => tell(&launched, out)?,
    }
    Ok(0)
}

/// Refuses a name that could never be meant: nothing, or a directory.
pub fn check_name(name: &str) -> Result<(), Failure> {
    match name.trim() {
        "" | "." | ".." => Err(Failure::Usage("a name has letters".into())),
        _ => Ok(()),
    }
}

/// What was launched: with what went wrong besides, and the worktree that was made for it.
pub type Launched = ((Started, Option<String>), Option<make::Made>);

/// The worktree that is wished for, if one is.
pub fn wish(args: &Launch) -> Option<make::Wish> {
    let branch = args.worktree.clone()?;
    let branch = Some(branch).filter(|b| !b.is_empty());
    Some(make::Wish { branch, base: args.base.clone(), setup: args.setup.clone() })
}

/// Launches one.
pub fn one(question: &Question, order: &Order, wish: Option<&make::Wish>) -> Result<Launched, LaunchError> {
    match wish {
        None => launch::launch(question, order).map(|started| (started, None)),
        Some(wish) => make::launch(question, order, wish).map(|(started, made)| (started, Some(made))),
    }
}

/// What is told of it as data.
pub fn told(((started, _), made): &Launched) -> Told<'_> {
    Told {
        handle: &started.handle,
        id: started.id(),
        native_id: &started.native_id,
        agent: started.agent,
        cwd: started.cwd.to_string_lossy().into_owned(),
        pid: started.pid,
        worktree: made.as_ref().map(|m| m.worktree.path.to_string_lossy().into_owned()),
    }
}

/// Complains of what went wrong besides.
pub fn complain_of(((_, wrong), _): &Launched) {
    if let Some(wrong) = wrong {
        complain(format_args!("warning: {wrong}"));
    }
}

/// Tells a person what was launched.
pub fn tell(((started, _), made): &Launched, out: &mut Out) -> Result<(), Failure> {
    out.line(format_args!("{}  {}", started.handle, started.id()))?;
    if let Some(made) = made {
        let (path, branch) = (made.worktree.path.to_string_lossy(), &made.worktree.branch);
        let how = if made.reused { "in the worktree that was there" } else { "in a worktree of its own" };
        out.line(Untrusted::new(format!("{how}: {path}  {branch}")).row())?;
    }
    Ok(())
}

/// What a start that came to nothing means for the exit code.
pub fn failure(error: LaunchError) -> Failure {
    use LaunchError as E;
    match error {
        E::Worktree(WorktreeError::Usage(_)) => Failure::Usage(error.to_string()),
        E::Worktree(WorktreeError::Refused(_)) => Failure::Refused(error.to_string()),
        _ if error.is_refusal() => Failure::Refused(error.to_string()),
        E::NoAgent(..) | E::NoDirectory(_) | E::Impossible(_) => Failure::Usage(error.to_string()),
        _ => error.into(),
    }
}

/// All of standard input, which must be text.
pub fn read_input() -> Result<String, Failure> {
    let mut text = String::new();
    match std::io::stdin().read_to_string(&mut text) {
        Ok(_) => whole(text).map_err(|e| Failure::Usage(format!("standard input: {}", e.text()))),
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {
            Err(Failure::Usage("what standard input gave is not UTF-8 text".into()))
        }
        Err(e) => Err(e.into()),
    }
}

/// A text that an agent can be given.
fn whole(text: String) -> Result<String, Failure> {
    match text.contains('\0') {
        true => Err(Failure::Usage("it holds a zero byte, which no agent can be given; take it out".into())),
        false => Ok(text),
    }
}

/// The prompt: as given, from standard input for `-`, with files before it.
fn prompt(args: &Launch) -> Result<Option<String>, Failure> {
    let mut text = String::new();
    for file in &args.file {
        let content = std::fs::read_to_string(file).map_err(|e| Failure::Usage(format!("{}: {e}", file.display())))?;
        let content = whole(content).map_err(|e| Failure::Usage(format!("{}: {}", file.display(), e.text())))?;
        text.push_str(&format!("{}:\n{content}\n\n", file.display()));
    }
    match args.prompt.as_deref() {
        Some("-") => text.push_str(&read_input()?),
        Some(prompt) => text.push_str(prompt),
        None => {}
    }
    Ok(Some(text).filter(|t| !t.is_empty()))
}
