//! `lariat approve`, `deny`, `answer`: what a session asks, decided from anywhere.

use std::time::{Duration, Instant};

use lariat_adapters::Decision;
use lariat_adapters::look::Scope;
use lariat_core::{Status, Untrusted};
use lariat_engine::ask::{self, Request};
use lariat_engine::launched::{All, Launched};
use serde::Serialize;

use crate::Done;
use crate::args::{Answer, Approve, Common, Deny, Which};
use crate::output::{Failure, Out, complain};
use crate::verbs::{find, question};

/// How long a hook may take to begin.
const HOOK: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct Told<'a> {
    id: &'a Untrusted,
    outcome: &'static str,
    asked: Untrusted,
}

pub fn approve(args: &Approve, common: &Common, out: &mut Out) -> Done {
    run(&args.target, &args.which, &Decision::Allow, "approved", common, out)
}

pub fn deny(args: &Deny, common: &Common, out: &mut Out) -> Done {
    let reason = Some(args.reason.join(" ")).filter(|r| !r.is_empty());
    run(&args.target, &args.which, &Decision::Deny(reason), "denied", common, out)
}

pub fn answer(args: &Answer, common: &Common, out: &mut Out) -> Done {
    run(&args.target, &args.which, &Decision::Answer(args.answers.clone()), "answered", common, out)
}

fn run(
    target: &str,
    which: &Which,
    decision: &Decision,
    outcome: &'static str,
    common: &Common,
    out: &mut Out,
) -> Done {
    let (answer, at) = find(target, common)?;
    let session = &answer.listing.sessions[at];
    let refused = |why: String| Failure::Refused(format!("{}: {why}", session.id.row()));
    let launched = All::read(&question(common, Scope::Live).places).take(session);
    let launched = launched.ok_or_else(|| refused("lariat did not launch it; answer in its own terminal".into()))?;
    // The agent may say that it waits a moment before its hook has told what for.
    let began = Instant::now();
    let soon = which.timeout.min(HOOK);
    while session.status == Status::Waiting && ask::pending(&launched.folder).is_empty() && began.elapsed() < soon {
        std::thread::sleep(Duration::from_millis(10));
    }
    if session.live == Some(false) {
        return Err(refused(format!("it has ended ({}), and asks nothing", session.status.word())));
    }
    let request = choose(&launched, which.request).map_err(|why| {
        let doing = format!("it is {}: {}", session.status.word(), session.reason.row());
        refused(format!("{why} ({doing})"))
    })?;
    let asked = ask::asked(&launched.record.agent, &request).map_or_else(|| "a question".into(), |a| a.reason());
    if which.expect.as_ref().is_some_and(|expected| expected != asked.raw()) {
        return Err(refused(format!("it asks something else by now, so nothing was answered: {}", asked.row())));
    }
    ask::answer(&launched, &request, decision).map_err(refused)?;
    let began = Instant::now();
    loop {
        match ask::is_taken(&launched, &request) {
            Some(true) => break,
            Some(false) => return Err(refused("it was answered elsewhere, or withdrawn, before this answer".into())),
            None if began.elapsed() > which.timeout => {
                complain(format_args!("{}: the answer lies there, and it has not taken it", session.id.row()));
                return Ok(4);
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    if out.json {
        out.json(&Told { id: &session.id, outcome, asked })?;
    } else {
        out.line(format_args!("{outcome}: {}", asked.row()))?;
    }
    Ok(0)
}

/// The request that is meant, or why none is.
fn choose(launched: &Launched, number: Option<usize>) -> Result<Request, String> {
    let pending = ask::pending(&launched.folder);
    let told = |r: &Request| ask::asked(&launched.record.agent, r).map_or_else(String::new, |a| a.reason().row());
    match (pending.as_slice(), number) {
        ([], _) => Err("it asks nothing that can be answered from here; `lariat attach` shows its terminal".into()),
        ([only], None) => Ok(only.clone()),
        (several, Some(n)) => several
            .get(n.wrapping_sub(1))
            .cloned()
            .ok_or_else(|| format!("there is no request {n}, only {}", several.len())),
        (several, None) => {
            let lines = several.iter().enumerate().map(|(i, r)| format!("\n  {}  {}", i + 1, told(r)));
            Err(format!("it asks {} things; choose by --request N:{}\n", several.len(), lines.collect::<String>()))
        }
    }
}
