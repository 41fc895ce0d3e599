//! `lariat launch`: an agent that outlives whoever started it.

use std::io::Read as _;

use lariat_adapters::Ask;
use lariat_adapters::look::Scope;
use lariat_engine::launch::{self, LaunchError, Order};
use serde::Serialize;

use crate::Done;
use crate::args::{Common, Launch};
use crate::output::{Failure, Out};
use crate::verbs::question;

#[derive(Serialize)]
struct Told<'a> {
    handle: &'a str,
    id: String,
    native_id: &'a str,
    agent: &'a str,
    cwd: String,
    pid: u32,
    worktree: Option<String>,
}

pub fn run(args: &Launch, common: &Common, out: &mut Out) -> Done {
    let order = Order {
        agent: args.agent.clone(),
        cwd: args.cwd.clone().unwrap_or_else(|| ".".into()),
        ask: Ask {
            prompt: prompt(args)?,
            model: args.model.clone(),
            name: args.name.clone(),
            headless: args.headless,
            arguments: args.arguments.clone(),
        },
        group: args.group.clone(),
        env: args.env.clone(),
        force: args.force,
    };
    let started = match launch::launch(&question(common, Scope::Live), &order) {
        Ok(started) => started,
        Err(e @ LaunchError::Claimed(_)) => return Err(Failure::Refused(e.to_string())),
        Err(e @ (LaunchError::NoAgent(..) | LaunchError::NoDirectory(_) | LaunchError::Impossible(_))) => {
            return Err(Failure::Usage(e.to_string()));
        }
        Err(e) => return Err(e.into()),
    };
    let agent = if order.agent == "claude-code" { "claude" } else { &order.agent };
    let id = format!("{agent}:{}", started.native_id);
    if out.json {
        let cwd = order.cwd.canonicalize().unwrap_or(order.cwd).to_string_lossy().into_owned();
        out.json(&Told {
            handle: &started.handle,
            id,
            native_id: &started.native_id,
            agent,
            cwd,
            pid: started.pid,
            worktree: None,
        })?;
    } else {
        out.line(format_args!("{}  {id}", started.handle))?;
    }
    Ok(0)
}

/// The prompt: as given, from standard input for `-`, with files before it.
fn prompt(args: &Launch) -> Result<Option<String>, Failure> {
    let mut text = String::new();
    for file in &args.file {
        let content = std::fs::read_to_string(file).map_err(|e| Failure::Usage(format!("{}: {e}", file.display())))?;
        text.push_str(&format!("{}:\n{content}\n\n", file.display()));
    }
    match args.prompt.as_deref() {
        Some("-") => {
            std::io::stdin().read_to_string(&mut text)?;
        }
        Some(prompt) => text.push_str(prompt),
        None => {}
    }
    Ok(Some(text).filter(|t| !t.is_empty()))
}
