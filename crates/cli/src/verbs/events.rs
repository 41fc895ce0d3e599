//! `lariat events`: what happens, one object a line.
//!
//! The daemon tells, if there is one. Without one, or when that one ends, this very process watches, by
//! the same code: the events are the same, and only what happened before is not known.

use std::io;
use std::time::Duration;

use lariat_adapters::look::Places;
use lariat_daemon::deliver::words;
use lariat_daemon::hub::{Hub, Listener, Next};
use lariat_daemon::place::{self, Place};
use lariat_daemon::watching::Watching;
use lariat_sys::vigil::Woken;
use serde_json::Value;

use crate::Done;
use crate::args::{Common, Events};
use crate::output::{Out, complain, leave_with_the_reader};

pub fn run(args: &Events, common: &Common, out: &mut Out) -> Done {
    let places = Places::from_env();
    if args.follow {
        leave_with_the_reader();
    }
    match Place::of(&places).connect(&places) {
        Ok(client) if client.hello().view == place::hello(&places).view => {
            let mut heard = true;
            let told = client.events(args.since.clone(), args.follow, |line| {
                let said = say(line, args.notify, out).and_then(|()| out.flush_now());
                heard = said.is_ok();
                said
            });
            if !heard || !args.follow {
                return Ok(told.map(|()| 0)?);
            }
            complain("lariat: the daemon has ended; from here on this process watches");
            watch(Some("the daemon's"), args.notify, places, common, out)
        }
        _ if !args.follow => {
            complain("no daemon runs, so nobody remembers; -f tells what happens from now on");
            Ok(0)
        }
        _ => watch(args.since.as_deref(), args.notify, places, common, out),
    }
}

/// Watches by itself.
fn watch(since: Option<&str>, notify: bool, places: Places, common: &Common, out: &mut Out) -> Done {
    let mut watching = Watching::new(places, common.deadline)?;
    let hub = Hub::new(format!("own-{:x}", std::process::id()));
    let mut listener = hub.listen(since);
    loop {
        let looked = watching.look();
        hub.publish(&looked.changes, looked.listing);
        tell(&mut listener, notify, out)?;
        while watching.sleep()? == Woken::Process {
            let Some(ends) = watching.ends() else { break };
            hub.publish_ends(&ends);
            tell(&mut listener, notify, out)?;
        }
    }
}

/// Prints an event; with a note for a terminal that shows such.
fn say(line: &str, notify: bool, out: &mut Out) -> io::Result<()> {
    out.line(line)?;
    let event: Value = if notify { serde_json::from_str(line).unwrap_or_default() } else { Value::Null };
    let name = event["event"].as_str().unwrap_or_default();
    if matches!(name, "session.waiting" | "session.ended") {
        // Nothing in the words can act; what separates parts of a note is taken out.
        let (title, text) = words(name, &event);
        let part = |text: String| text.replace(';', ",");
        let (title, text) = (part(title), part(text));
        out.raw(&format!("\x1b]9;{title}: {text}\x07\x1b]777;notify;{title};{text}\x07"))?;
    }
    Ok(())
}

fn tell(listener: &mut Listener<'_>, notify: bool, out: &mut Out) -> io::Result<()> {
    loop {
        match listener.next(Duration::ZERO) {
            Next::Events(events) => events.iter().try_for_each(|e| say(&e.text, notify, out))?,
            Next::Reset(text, _) => out.line(text)?,
            Next::Nothing | Next::Closed => return out.flush_now(),
        }
    }
}
