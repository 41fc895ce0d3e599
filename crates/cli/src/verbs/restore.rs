//! `lariat restore`: the plan of what was cut off, and its carrying out.

use lariat_adapters::look::{Places, Scope};
use lariat_adapters::settings::{Restore as Policy, Settings};
use lariat_core::{Session, Untrusted};
use lariat_engine::after;
use lariat_engine::restore::{self, Outcome, Plan};
use lariat_engine::resume::{GO_ON, Resumed, Way};
use lariat_engine::{list, stop};
use lariat_sys::durable;
use lariat_sys::point::point;
use lariat_sys::process::own_program;
use serde::Serialize;

use crate::Done;
use crate::args::{Common, Restore};
use crate::output::{Failure, Out};
use crate::verbs::{question, warn};

#[derive(Serialize)]
struct Row<'a> {
    id: &'a Untrusted,
    handle: Option<&'a str>,
    agent: &'a str,
    cwd: Option<&'a Untrusted>,
    status: &'a str,
    /// How it comes back.
    way: Option<&'static str>,
    /// What became of it: `restored`, `failed`, `left`, `settled`; or nothing, in a plan.
    outcome: Option<&'static str>,
    /// What it is told, or was.
    said: Option<&'a str>,
    /// The session that it goes on as, where its own could not.
    new_id: Option<String>,
    /// Why not, if not.
    reason: Option<String>,
}

#[derive(Serialize)]
struct Told<'a> {
    schema: u32,
    plan: bool,
    restore: Vec<Row<'a>>,
    others: Vec<Row<'a>>,
}

fn row<'a>(session: &'a Session, way: Option<&'static str>, reason: Option<String>) -> Row<'a> {
    Row {
        id: &session.id,
        handle: session.handle.as_deref(),
        agent: session.agent,
        cwd: session.cwd.as_ref(),
        status: session.status.word(),
        way,
        outcome: None,
        said: None,
        new_id: None,
        reason,
    }
}

pub fn run(args: &Restore, common: &Common, out: &mut Out) -> Done {
    let question = question(common, Scope::All);
    if args.install {
        return install(&question.places, out);
    }
    let Settings { restore: policy, warnings, .. } = Settings::read(&question.places);
    if args.auto && policy == Policy::Never {
        warn(&warnings); // what cannot be read may have said something else
        if out.json {
            out.json(&Told { schema: 1, plan: !args.yes, restore: Vec::new(), others: Vec::new() })?;
        }
        return Ok(0);
    }
    if args.yes {
        // It acts, so it finishes what was cut short, whatever the plan is.
        stop::finish(&question.places, &list(question.clone()).listing.sessions);
    }
    let plan = restore::plan(&question, args.kept || args.auto && policy == Policy::Ask);
    let partial = plan.partial;
    let untold = if partial { 5 } else { 0 };
    if !args.yes {
        show(&plan, out)?;
        return Ok(untold);
    }
    point("restore.planned");
    after::owed(&question.places);
    let json = out.json;
    let total = plan.steps.len();
    let mut told = 0;
    let done = restore::restore(&question, plan, args.max.map(|m| m as usize), args.force, |session, outcome| {
        told += 1;
        if !json {
            let name = session.handle.clone().unwrap_or_else(|| session.id.row());
            let how = match outcome {
                Outcome::Back(resumed) => back(resumed),
                _ => format!("{}: {}", word(outcome), said(outcome).unwrap_or_default()),
            };
            let _ = out.line(format_args!("[{told}/{total}] {name} {how}"));
            let _ = out.flush();
        }
    });
    let failed = done.iter().any(|(_, o)| matches!(o, Outcome::Failed(_)));
    let left = done.iter().any(|(_, o)| matches!(o, Outcome::Left(_)));
    if json {
        let rows = done.iter().map(|(session, outcome)| {
            let back = match outcome {
                Outcome::Back(resumed) => Some(resumed),
                _ => None,
            };
            let new_id = back.filter(|b| b.way == Way::Replayed).map(|b| b.started.id());
            let told = back.and_then(|b| b.said.as_deref());
            let row = row(session, back.map(|b| b.way.word()), said(outcome));
            Row { outcome: Some(word(outcome)), said: told, new_id, ..row }
        });
        out.json(&Told { schema: 1, plan: false, restore: rows.collect(), others: Vec::new() })?;
    } else if done.is_empty() {
        out.line(nothing(partial))?;
    }
    Ok(match (failed, left) {
        (true, _) => 1,
        (false, true) => 3,
        (false, false) => untold,
    })
}

/// The unit that was written.
#[derive(Serialize)]
struct Installed<'a> {
    schema: u32,
    unit: &'a Untrusted,
}

/// Writes the unit that restores at login. What it starts outlives it: only its own
/// process is ended with it.
fn install(places: &Places, out: &mut Out) -> Done {
    const NAME: &str = "lariat-restore.service";
    let folder = places.settings.parent().and_then(|p| p.parent()).map(|c| c.join("systemd/user"));
    let folder = folder.ok_or_else(|| Failure::Usage("there is no directory for settings".into()))?;
    let program = own_program()?;
    let quoted = program.to_string_lossy().replace('%', "%%").replace('"', "\\\"");
    let unit = format!(
        "[Unit]\nDescription=Bring back the coding agents that a reboot cut off\n\n\
         [Service]\nType=oneshot\nExecStart=\"{quoted}\" restore --yes --auto\nKillMode=process\n\n\
         [Install]\nWantedBy=default.target\n"
    );
    durable::make_folder(&folder)?;
    durable::put(&folder, NAME, unit.as_bytes())?;
    let path = Untrusted::new(folder.join(NAME).to_string_lossy());
    if out.json {
        out.json(&Installed { schema: 1, unit: &path })?;
    } else {
        let path = path.row();
        out.line(format_args!("wrote {path}; `systemctl --user enable {NAME}` makes it run at login"))?;
    }
    Ok(0)
}

/// What is said if there is nothing to do.
fn nothing(partial: bool) -> &'static str {
    if partial {
        "nothing is known to have been cut off, but not of all can that be told"
    } else {
        "nothing was cut off"
    }
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Back(_) => "restored",
        Outcome::Failed(_) => "failed",
        Outcome::Left(_) => "left",
        Outcome::Settled(_) => "settled",
    }
}

/// How one came back, and what it was told.
fn back(resumed: &Resumed) -> String {
    match (resumed.way, resumed.said.as_deref()) {
        (Way::Replayed, _) => {
            let id = resumed.started.id();
            format!(
                "is back as {id}: its agent has no conversation of it, so what it was launched with was asked again"
            )
        }
        (Way::Native, None) => "is back".into(),
        (Way::Native, Some(GO_ON)) => format!("is back, and was told: {GO_ON}"),
        (Way::Native, Some(_)) => "is back, and was asked what it was launched with".into(),
    }
}

fn said(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Back(_) => None,
        Outcome::Failed(error) => Some(Untrusted::new(error.to_string()).row()),
        Outcome::Left(why) | Outcome::Settled(why) => Some(Untrusted::new(why).row()),
    }
}

fn show(plan: &Plan, out: &mut Out) -> Result<(), Failure> {
    let way = |s: &restore::Step| (s.way.as_ref().ok().map(|w| w.word()), s.way.as_ref().err().cloned());
    if out.json {
        let rows = plan.steps.iter().map(|s| {
            let (way, reason) = way(s);
            Row { said: s.said.as_deref(), ..row(&s.session, way, reason) }
        });
        let others = plan.others.iter().map(|(s, why)| row(s, None, Some(why.clone())));
        out.json(&Told { schema: 1, plan: true, restore: rows.collect(), others: others.collect() })?;
        return Ok(());
    }
    if plan.steps.is_empty() {
        out.line(nothing(plan.partial))?;
    } else {
        match plan.steps.iter().filter(|s| s.way.is_ok()).count() {
            0 => out.line("nothing that can be brought back:")?,
            n => out.line(format_args!("{n} to bring back; the same with --yes does it:"))?,
        }
    }
    for step in &plan.steps {
        let how = match way(step) {
            (Some("native"), _) => match step.said.as_deref() {
                None => "goes on with its conversation".to_owned(),
                Some(GO_ON) => format!("goes on with its conversation, told: {GO_ON}"),
                Some(_) => "goes on with its conversation, asked what it was launched with".to_owned(),
            },
            (Some(_), _) => "has no conversation on record: its prompt is asked again".to_owned(),
            (None, why) => format!("cannot: {}", why.unwrap_or_default()),
        };
        out.line(line(&step.session, &how))?;
    }
    if !plan.others.is_empty() {
        out.line("not these:")?;
    }
    for (session, why) in &plan.others {
        out.line(line(session, why))?;
    }
    Ok(())
}

fn line(session: &Session, how: &str) -> String {
    let cwd = session.cwd.as_ref().map_or_else(String::new, |c| c.row());
    format!("  {:<16} {:<8} {cwd}  {how}", session.handle.as_deref().unwrap_or("-"), session.agent)
}
