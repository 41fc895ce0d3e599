//! Rows 5 and 14: kill -9 at any point loses nothing that was acknowledged, and brings nothing back.
//!
//! First every named point of `kill`, `stop`, `launch`, `lock` and of a durable write, each once:
//! they are found by letting each verb run to its end and note what it passes. Then at random
//! moments. After each blow the records must be whole, what was acknowledged must be there, and the
//! next verb that acts completes what was asked: what was asked to end is dead, what was not lives,
//! nothing lives unseen, and nothing that was ended is ever started again.
//!
//! The control rewrites a record in place.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::chance::Chance;
use crate::ground::{Ground, Session, is_alive, wait_until};
use crate::tally::Tally;

/// How often the putter writes at most: it is killed long before.
const MOST: u64 = 2_000;
/// What the putter writes beside its number, so that a write takes a while.
const PADDING: usize = 40_000;

/// Runs the row.
pub fn run(ground: &Ground, count: u64, chance: &mut Chance, tally: &mut Tally) -> io::Result<()> {
    let mut named = 0;
    for verb in ["kill", "stop", "launch", "lock"] {
        for point in points(ground, verb, chance)? {
            named += 1;
            strike(ground, verb, Blow::At(&point), chance, tally)?;
        }
    }
    let mut putting = Putting::new(ground)?;
    for point in ["put.created", "put.written", "put.synced", "put.renamed", "put.done"] {
        named += 1;
        putting.strike(Blow::At(point), false, tally)?;
    }
    tally.note(format!("{named} of them at named points, each verb at each of its own"));
    for _ in named..count {
        let verb = match chance.below(100) {
            0..7 => "kill",
            7..12 => "stop",
            12..18 => "launch",
            18..28 => "lock",
            _ => {
                let blow = Blow::After(chance.moment(Duration::from_millis(15)));
                putting.strike(blow, false, tally)?;
                continue;
            }
        };
        let reach = if verb == "launch" { 150 } else { 60 };
        strike(ground, verb, Blow::After(chance.moment(Duration::from_millis(reach))), chance, tally)?;
    }
    // Without a cgroup a tree is ended in more steps.
    ground.cover_cgroups()?;
    for verb in ["kill", "stop"] {
        for point in points(ground, verb, chance)? {
            strike(ground, verb, Blow::At(&point), chance, tally)?;
        }
    }
    let mut careless = Putting::new(ground)?;
    for _ in 0..(count / 50).clamp(40, 300) {
        careless.strike(Blow::After(chance.moment(Duration::from_millis(15))), true, tally)?;
    }
    Ok(())
}

/// Where a process is ended.
#[derive(Clone, Copy, Debug)]
enum Blow<'a> {
    /// At a named point.
    At(&'a str),
    /// So long after its start.
    After(Duration),
}

/// Starts a command, ends it there, and says whether it had ended well before, with what it wrote.
fn struck(mut command: Command, blow: Blow<'_>) -> io::Result<(bool, Vec<u8>)> {
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    if let Blow::At(point) = blow {
        command.env("LARIAT_DIE_AT", point);
    }
    let mut child = command.spawn()?;
    if let Blow::After(moment) = blow {
        std::thread::sleep(moment);
        // It may have ended by itself: then this is nobody's, for it is not reaped yet.
        child.kill()?;
    }
    let output = child.wait_with_output()?;
    Ok((output.status.success(), output.stdout))
}

/// The points that a verb passes.
fn points(ground: &Ground, verb: &str, chance: &mut Chance) -> io::Result<BTreeSet<String>> {
    let file = ground.fresh("points")?.join("passed");
    let (mut command, session) = prepare(ground, verb, chance)?;
    command.env("LARIAT_POINTS", &file).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    clear(ground, session.as_ref())?;
    let passed = std::fs::read_to_string(&file)?;
    Ok(passed.lines().filter(|p| !p.ends_with(".observe")).map(str::to_owned).collect())
}

/// The command of a verb, and the session it is about.
fn prepare(ground: &Ground, verb: &str, chance: &mut Chance) -> io::Result<(Command, Option<Session>)> {
    Ok(match verb {
        "launch" => {
            let place = ground.fresh("launched")?.display().to_string();
            let headless: &[&str] = if chance.below(2) == 0 { &["--headless", "-p", "go on"] } else { &[] };
            let mut command = ground.lariat(&[&["launch", "claude", "--json", "--cwd", &place], headless].concat());
            command.env("TORTURE", "sit");
            (command, None)
        }
        "lock" => {
            let place = ground.fresh("locked")?.display().to_string();
            (ground.lariat(&["lock", &place, "--by", "me", "--json"]), None)
        }
        verb => {
            let session = ground.start("sit", chance.below(2) == 0, &[])?;
            let grace: &[&str] = if verb == "stop" { &["--grace", "30ms"] } else { &[] };
            (ground.lariat(&[&[verb, &session.id, "--json"], grace].concat()), Some(session))
        }
    })
}

fn strike(ground: &Ground, verb: &str, blow: Blow<'_>, chance: &mut Chance, tally: &mut Tally) -> io::Result<()> {
    let (command, session) = prepare(ground, verb, chance)?;
    let (acknowledged, wrote) = struck(command, blow)?;
    let told: Value = serde_json::from_slice(&wrote).unwrap_or_default();
    let what = format!("kill -9 of `lariat {verb}`");
    tally.try_one(&what);
    let before = tally.violated;
    match (verb, &session) {
        ("lock", _) => after_lock(ground, acknowledged, &told, tally)?,
        (_, Some(session)) => after_end(ground, session, acknowledged, tally)?,
        _ => after_launch(ground, acknowledged, &told, tally)?,
    }
    if tally.violated > before {
        tally.note(format!("that was {what} {blow:?}, acknowledged: {acknowledged}, told {told}"));
    }
    clear(ground, session.as_ref())
}

fn after_end(ground: &Ground, session: &Session, acknowledged: bool, tally: &mut Tally) -> io::Result<()> {
    let intent = std::fs::read(session.folder.join("intent.json"))?;
    let intent: Value = serde_json::from_slice(&intent).unwrap_or_default();
    let want = intent["want"].as_str().unwrap_or("torn").to_owned();
    tally.hold(matches!(want.as_str(), "run" | "stop"), || format!("the wish is torn: {intent}"));
    tally.hold(!acknowledged || want == "stop", || format!("an acknowledged wish is lost: {intent}"));
    tally.hold(want == "stop" || is_alive(&session.shim.agent), || "it was ended before the wish was stored".into());
    // Any verb that acts completes it, and no verb ever brings it back.
    for _ in 0..2 {
        ground.ask(&["kill", "no-such-session"])?;
        let live = ground.agents_of(&session.id);
        tally.hold(live.is_empty() == (want == "stop"), || format!("want {want}, and these live: {live:?}"));
    }
    if want == "stop" {
        let (_, told) = ground.told(&["status", &session.id, "--json"])?;
        let stopped = told["status"] == "stopped" && told["live"] == false;
        tally.hold(stopped, || format!("it was asked to end, is gone, and is told as {told}"));
    }
    Ok(())
}

fn after_launch(ground: &Ground, acknowledged: bool, told: &Value, tally: &mut Tally) -> io::Result<()> {
    // What it started goes on to its own end: a shim comes up, or gives up.
    wait_until("shims to come up", || {
        let held: Vec<u32> = ground.shims().iter().map(|s| s.shim.pid).collect();
        ground.processes().iter().all(|p| p.comm != "lariat" && (p.comm != "lariat-shim" || held.contains(&p.pid)))
    })?;
    let live = ground.others();
    tally.hold(live.len() <= 1, || format!("one launch, and these live: {live:?}"));
    tally.hold(!acknowledged || live.len() == 1, || format!("acknowledged, and nothing lives: {told}"));
    let rows = ground.list()?;
    let shown: Vec<&Value> = rows.iter().filter(|r| r["live"] == true).collect();
    for agent in &live {
        let seen = shown.iter().any(|r| agent.argv.iter().any(|a| r["native_id"] == a.as_str()));
        tally.hold(seen, || format!("{agent:?} lives unseen"));
    }
    tally.hold(shown.len() == live.len(), || format!("{} live and {} are told to", live.len(), shown.len()));
    if acknowledged {
        let there = rows.iter().any(|r| r["handle"] == told["handle"] && r["id"] == told["id"]);
        tally.hold(there, || format!("an acknowledged launch is lost: {told}"));
    }
    ground.told(&["kill", "--all", "--yes", "--json"])?;
    let live = ground.others();
    tally.hold(live.is_empty(), || format!("ended, and these live: {live:?}"));
    Ok(())
}

fn after_lock(ground: &Ground, acknowledged: bool, told: &Value, tally: &mut Tally) -> io::Result<()> {
    let (code, held) = ground.told(&["locks", "--json"])?;
    let count = held["locks"].as_array().map_or(0, Vec::len);
    tally.hold(code == 0 && count <= 1, || format!("the locks are torn: {code} {held}"));
    tally.hold(!acknowledged || count == 1, || format!("an acknowledged lock is lost: {told}, {held}"));
    for lock in held["locks"].as_array().into_iter().flatten() {
        let path = lock["path"].as_str().unwrap_or_default();
        let freed = ground.ask(&["unlock", path])?;
        tally.hold(freed.status.success(), || format!("it cannot be freed: {lock}"));
    }
    Ok(())
}

/// Ends what a round started, without lariat, and forgets all of it.
fn clear(ground: &Ground, session: Option<&Session>) -> io::Result<()> {
    if let Some(session) = session {
        ground.told(&["kill", &session.id, "--json"])?;
    } else {
        ground.told(&["kill", "--all", "--yes", "--json"])?;
    }
    wait_until("all to be gone", || {
        ground.processes().iter().all(|p| !p.comm.starts_with("lariat-") && p.comm != "claude")
    })?;
    for entry in std::fs::read_dir(ground.state.join("sessions"))? {
        let _ = std::fs::remove_dir_all(entry?.path());
    }
    let _ = std::fs::remove_dir_all(ground.home.join(".claude"));
    let _ = std::fs::remove_dir_all(ground.state.join("claims"));
    Ok(())
}

/// A record that is written again and again.
struct Putting {
    folder: std::path::PathBuf,
    number: u64,
}

impl Putting {
    fn new(ground: &Ground) -> io::Result<Putting> {
        Ok(Putting { folder: ground.fresh("put")?, number: 0 })
    }

    fn strike(&mut self, blow: Blow<'_>, in_place: bool, tally: &mut Tally) -> io::Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("putter").arg(&self.folder).arg(self.number.to_string());
        command.args(in_place.then_some("--in-place"));
        let (_, wrote) = struck(command, blow)?;
        let acknowledged =
            BufReader::new(&wrote[..]).lines().map_while(Result::ok).filter_map(|l| l.parse().ok()).max();
        let acknowledged = acknowledged.unwrap_or(self.number);
        let stored = number_in(&self.folder.join("record"));
        let right = match stored {
            Some(stored) => stored == acknowledged || stored == acknowledged + 1,
            None => acknowledged == 0 && !self.folder.join("record").exists(),
        };
        if in_place {
            tally.control("rewrite a record in place", !right);
        } else {
            tally.try_one("kill -9 of a durable write");
            tally.hold(right, || format!("{blow:?}: {acknowledged} was acknowledged, stored is {stored:?}"));
        }
        self.number = stored.unwrap_or(0).max(acknowledged);
        lariat_sys::durable::sweep(&self.folder)?;
        let left = std::fs::read_dir(&self.folder)?.count();
        tally.hold(left <= 1, || format!("{left} files are left where one should be"));
        Ok(())
    }
}

fn number_in(path: &Path) -> Option<u64> {
    let value: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    let whole = value["padding"].as_str().is_some_and(|p| p.len() == PADDING);
    value["number"].as_u64().filter(|_| whole)
}

/// The program that puts: a folder, the number to go on from; tells each number once it is stored.
pub fn putter(args: &[String]) -> ExitCode {
    let (Some(folder), Some(from)) = (args.first(), args.get(1).and_then(|n| n.parse::<u64>().ok())) else {
        return ExitCode::from(2);
    };
    let in_place = args.iter().any(|a| a == "--in-place");
    let (folder, padding) = (Path::new(folder), "x".repeat(PADDING));
    for number in from + 1..from + MOST {
        let record = json!({"number": number, "padding": padding}).to_string();
        let put = if in_place {
            std::fs::write(folder.join("record"), &record)
        } else {
            lariat_sys::durable::put(folder, "record", record.as_bytes())
        };
        let mut out = io::stdout().lock();
        if put.is_err() || writeln!(out, "{number}").and_then(|()| out.flush()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
