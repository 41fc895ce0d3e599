//! `lariat events`: what happens, one object a line.
//!
//! The daemon tells, if there is one. Without one this very process watches, by the
//! same code: the events are the same, and only what happened before is not known.

use std::io;
use std::time::Duration;

use lariat_adapters::look::Places;
use lariat_daemon::hub::{Hub, Listener, Next};
use lariat_daemon::place::{self, Place};
use lariat_daemon::watching::Watching;
use lariat_sys::standing::Woken;

use crate::Done;
use crate::args::{Common, Events};
use crate::output::{Out, complain};

pub fn run(args: &Events, common: &Common, out: &mut Out) -> Done {
    let places = Places::from_env();
    match Place::of(&places).connect(&places) {
        Ok(client) if client.hello().view == place::hello(&places).view => {
            client.events(args.since.clone(), args.follow, |line| {
                out.line(line)?;
                out.flush_now()
            })?;
            if args.follow {
                complain("lariat: the daemon has ended; `lariat events -f` goes on without it");
                return Ok(1);
            }
            Ok(0)
        }
        _ if !args.follow => {
            complain("no daemon runs, so nobody remembers; -f tells what happens from now on");
            Ok(0)
        }
        _ => watch(args, places, common, out),
    }
}

/// Watches by itself.
fn watch(args: &Events, places: Places, common: &Common, out: &mut Out) -> Done {
    let mut watching = Watching::new(places, common.deadline)?;
    let hub = Hub::new(format!("own-{:x}", std::process::id()));
    let mut listener = hub.listen(args.since.as_deref());
    loop {
        let looked = watching.look();
        hub.publish(&looked.changes, looked.listing);
        tell(&mut listener, out)?;
        while watching.sleep()? == Woken::Process {
            let Some(ends) = watching.ends() else { break };
            hub.publish_ends(&ends);
            tell(&mut listener, out)?;
        }
    }
}

fn tell(listener: &mut Listener<'_>, out: &mut Out) -> io::Result<()> {
    loop {
        match listener.next(Duration::ZERO) {
            Next::Events(events) => events.iter().try_for_each(|e| out.line(&e.text))?,
            Next::Reset(text, _) => out.line(text)?,
            Next::Nothing | Next::Closed => return out.flush_now(),
        }
    }
}
