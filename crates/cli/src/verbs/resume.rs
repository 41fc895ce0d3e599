//! `lariat resume` and `fork`: an ended session goes on, or a copy of it does.

use lariat_adapters::look::Scope;
use lariat_engine::resume::{Again, GO_ON, Way, resume};
use lariat_engine::{list, stop};
use serde::Serialize;

use crate::Done;
use crate::args::{Common, Resume};
use crate::output::Out;
use crate::verbs::{find, launch, question};

#[derive(Serialize)]
struct Told<'a> {
    handle: &'a str,
    id: String,
    native_id: &'a str,
    agent: &'a str,
    cwd: String,
    pid: u32,
    way: &'static str,
    said: Option<&'a str>,
    from: Option<&'a str>,
}

pub fn run(args: &Resume, fork: bool, common: &Common, out: &mut Out) -> Done {
    let mut message = args.message.join(" ");
    if message == "-" {
        message = launch::read_input()?;
    }
    let again = Again {
        message: Some(message).filter(|m| !m.trim().is_empty()),
        fork,
        headless: (args.headless || args.terminal).then_some(args.headless),
        force: args.force,
        cut_off: false,
        env: args.env.clone(),
        arguments: args.arguments.clone(),
    };
    let (answer, at) = find(&args.target, common).inspect_err(|_| {
        // It acts, so it finishes what was cut short, also where it has nothing to go on with.
        let live = question(common, Scope::Live);
        stop::finish(&live.places, &list(live.clone()).listing.sessions);
    })?;
    let id = answer.listing.sessions[at].id.raw();
    let resumed = resume(&question(common, Scope::Live), id, &again).map_err(launch::failure)?;
    let (started, said) = (&resumed.started, resumed.said.as_deref());
    if out.json {
        let cwd = started.cwd.to_string_lossy().into_owned();
        let from = (fork || resumed.way == Way::Replayed).then_some(id);
        let (handle, native_id, agent, pid) = (&started.handle, &started.native_id, started.agent, started.pid);
        out.told(&Told { handle, id: started.id(), native_id, agent, cwd, pid, way: resumed.way.word(), said, from })?;
        return Ok(0);
    }
    out.line(format_args!("{}  {}", started.handle, started.id()))?;
    if resumed.way == Way::Replayed {
        out.line("its agent has no conversation of it: what it was launched with was asked again, in a new one")?;
    }
    if said == Some(GO_ON) && again.message.is_none() {
        out.line(format_args!("it was told: {GO_ON}"))?;
    }
    Ok(0)
}
