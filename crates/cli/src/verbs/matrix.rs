//! `lariat launch --matrix`: every combination of what a file lists, in one group.

use lariat_core::Untrusted;
use lariat_engine::launch::{LaunchError, Order};
use lariat_engine::matrix::{self, Matrix};
use lariat_engine::{Question, handle};
use serde::Serialize;

use crate::Done;
use crate::args::Launch;
use crate::output::{Failure, Out, complain};
use crate::verbs::launch;

/// What would be launched.
#[derive(Serialize)]
struct Planned<'a> {
    number: usize,
    agent: &'a str,
    model: Option<&'a str>,
    name: Option<&'a str>,
    cwd: String,
    prompt: Option<&'a str>,
}

#[derive(Serialize)]
struct Plan<'a> {
    schema: u32,
    plan: bool,
    group: &'a str,
    worktree: bool,
    launch: Vec<Planned<'a>>,
}

/// One that was launched: what `launch --json` tells, and which of them it is.
#[derive(Serialize)]
struct Launched<'a> {
    #[serde(flatten)]
    told: launch::Told<'a>,
    number: usize,
    group: &'a str,
    model: Option<&'a str>,
    error: Option<&'a str>,
}

/// One that could not be launched.
#[derive(Serialize)]
struct NotLaunched<'a> {
    #[serde(flatten)]
    what: &'a Planned<'a>,
    group: &'a str,
    error: String,
}

pub fn run(args: &Launch, all: &Order, question: &Question, out: &mut Out) -> Done {
    let Some(path) = &args.matrix else { return Ok(0) };
    let matrix = matrix::read(path).map_err(Failure::Usage)?;
    once(args, &matrix)?;
    let group = match matrix.group.as_ref().or(args.group.as_ref()) {
        Some(group) => group.clone(),
        None => format!("matrix-{}", handle::free(&question.places)?),
    };
    let all = Order { group: Some(group.clone()), ..all.clone() };
    let orders = matrix.orders(&all).map_err(|why| Failure::Usage(format!("{}: {why}", path.display())))?;
    let wish = launch::wish(args);
    let wish = matrix.worktree.unwrap_or(true).then(|| wish.unwrap_or_default());
    matrix::check(question, &orders, wish.as_ref()).map_err(|(n, e)| whole(n, orders.len(), &orders[n - 1], e))?;
    let planned: Vec<Planned<'_>> = orders.iter().enumerate().map(|(n, order)| planned(n + 1, order)).collect();
    if args.dry_run {
        return show(&planned, &group, wish.is_some(), out);
    }
    let mut worst = 0;
    for (order, what) in orders.iter().zip(&planned) {
        match launch::one(question, order, wish.as_ref()) {
            Ok(launched) => {
                launch::complain_of(&launched);
                if out.json {
                    let (told, number, model) = (launch::told(&launched), what.number, what.model);
                    out.told(&Launched { told, number, group: &group, model, error: None })?;
                } else {
                    out.raw(&format!("[{}/{}] ", what.number, orders.len()))?;
                    launch::tell(&launched, out)?;
                }
            }
            Err(error @ LaunchError::Interrupted(_)) => return Err(launch::failure(error)),
            Err(error) => {
                let failure = launch::failure(error);
                worst = worse(worst, &failure);
                let error = Untrusted::new(failure.text()).row();
                if out.json {
                    out.told(&NotLaunched { what, group: &group, error })?;
                } else {
                    complain(format_args!("[{}/{}] {}: {error}", what.number, orders.len(), line(what)));
                }
            }
        }
        out.flush()?;
    }
    if !out.json {
        let group = Untrusted::new(group).row();
        out.line(format_args!("all in group {group}: `lariat ls --group {group}` shows them"))?;
    }
    Ok(worst)
}

/// What differs is said in one place.
fn once(args: &Launch, matrix: &Matrix) -> Result<(), Failure> {
    let twice = [
        ("agents", !matrix.agents.is_empty() && args.agent.is_some()),
        ("models", !matrix.models.is_empty() && args.model.is_some()),
        ("prompts", !matrix.prompts.is_empty() && args.prompt.is_some()),
        ("cwd", !matrix.cwd.is_empty() && args.cwd.is_some()),
        ("group", matrix.group.is_some() && args.group.is_some()),
        ("worktree", matrix.worktree == Some(false) && args.worktree.is_some()),
    ];
    if let Some((what, _)) = twice.iter().find(|(_, twice)| *twice) {
        return Err(Failure::Usage(format!("{what}: the matrix says it and the command line too; say it once")));
    }
    if matrix.agents.is_empty() && args.agent.is_none() {
        return Err(Failure::Usage("the matrix lists no agents and none is named; add agents = [\"claude\"]".into()));
    }
    if args.worktree.as_ref().is_some_and(|branch| !branch.is_empty()) {
        return Err(Failure::Usage("each of a matrix gets a branch of its own; leave the branch out".into()));
    }
    Ok(())
}

/// Nothing is launched if one of them cannot be.
fn whole(n: usize, of: usize, order: &Order, error: LaunchError) -> Failure {
    let before = format!("nothing was launched: number {n} of {of} ({})", line(&planned(n, order)));
    match launch::failure(error) {
        Failure::Refused(why) => Failure::Refused(format!("{before}: {why}")),
        Failure::Error(why) => Failure::Error(why.context(before)),
        failure => Failure::Usage(format!("{before}: {}", failure.text())),
    }
}

fn planned(number: usize, order: &Order) -> Planned<'_> {
    Planned {
        number,
        agent: &order.agent,
        model: order.ask.model.as_deref(),
        name: order.ask.name.as_deref(),
        cwd: order.cwd.to_string_lossy().into_owned(),
        prompt: order.ask.prompt.as_deref(),
    }
}

fn line(what: &Planned<'_>) -> String {
    let model = what.model.map_or_else(String::new, |m| format!(" {m}"));
    let prompt = what.prompt.map_or_else(String::new, |p| format!("  {}", Untrusted::new(p).row_within(60)));
    Untrusted::new(format!("{}{model}  {}", what.agent, what.cwd)).row() + &prompt
}

fn show(planned: &[Planned<'_>], group: &str, worktree: bool, out: &mut Out) -> Done {
    if out.json {
        let launch = planned.iter().map(|p| Planned { cwd: p.cwd.clone(), ..*p }).collect();
        out.json(&Plan { schema: 1, plan: true, group, worktree, launch })?;
        return Ok(0);
    }
    let how = if worktree { ", each in a worktree of its own" } else { "" };
    out.line(format_args!("{} to launch in group {}{how}:", planned.len(), Untrusted::new(group).row()))?;
    for what in planned {
        out.line(format_args!("  {:>4}  {}", what.number, line(what)))?;
    }
    Ok(0)
}

/// Something failed, or was only refused.
fn worse(worst: u8, failure: &Failure) -> u8 {
    match (worst, failure) {
        (1, _) => 1,
        (_, Failure::Refused(_)) => 3,
        _ => 1,
    }
}
