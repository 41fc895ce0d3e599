//! The nemesis: scripted agents, clients that ask, and blows that fall on everyone.
//!
//! Shims, keepers, agents and clients are killed, halted and let go again, while clients launch,
//! list, stop and kill. What each client asked and was told goes into a log. When the dust has
//! settled, a checker that reads only that log, `/proc` and the disk says what does not fit.
//!
//! The control is a checker that is shown a log with one answer made up.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use lariat_shim::record::{self, Exit};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::ground::{Ground, Seen, Session, end, signal, signal_pid, wait_until};
use crate::tally::Tally;

/// How many agents live at once.
const CROWD: usize = 10;

/// Runs the nemesis for so many blows.
pub fn run(ground: &Ground, count: u64, chance: &mut Chance, tally: &mut Tally) -> io::Result<()> {
    let path = ground.fresh("nemesis")?.join("asked");
    let mut log = fs::File::create(&path)?;
    let mut crowd: Vec<Session> = Vec::new();
    for _ in 0..count {
        if crowd.len() < CROWD {
            crowd.extend(launch(ground, chance, &mut log)?);
        }
        let at = usize::try_from(chance.below(crowd.len().max(1) as u64)).unwrap_or(0);
        let Some(session) = crowd.get(at) else { continue };
        tally.try_one(blow(ground, session, chance, &mut log)?);
        if fs::metadata(session.folder.join(record::EXIT)).is_ok() {
            crowd.swap_remove(at);
        }
    }
    // The dust settles: everyone goes on, and one verb that acts finishes what was cut short.
    for process in ground.processes() {
        signal_pid(process.pid, Signal::CONT);
    }
    ground.ask(&["kill", "no-such-session"])?;
    wait_until("clients to be done", || ground.processes().iter().all(|p| p.comm != "lariat"))?;
    let listing = ground.ask(&["ls", "-a", "--json"])?;
    let told: Value = serde_json::from_slice(&listing.stdout)?;
    let asked: Vec<Value> = fs::read_to_string(&path)?
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(io::Error::other)?;
    let found = check(&asked, &told, &ground.processes(), &ground.state);
    found.into_iter().for_each(|f| tally.violate(f));
    tally.note(format!("{} questions and answers are in the log", asked.len()));

    let live = told["sessions"].as_array().into_iter().flatten().find(|s| s["live"] == true);
    if let Some(id) = live.and_then(|s| s["native_id"].as_str()) {
        let made_up = json!({"asked": ["kill", id], "code": 0, "told": {"outcome": "stopped"}});
        let found = check(&[&asked[..], &[made_up]].concat(), &told, &ground.processes(), &ground.state);
        tally.control("a log with one answer made up, shown to the checker", !found.is_empty());
    }
    // And all can be ended.
    let last = ground.ask(&["kill", "--all", "--yes", "--json"])?;
    let left = ground.others();
    let said = || String::from_utf8_lossy(&last.stdout).into_owned() + &String::from_utf8_lossy(&last.stderr);
    tally.hold(left.is_empty(), || format!("left after `kill --all`: {left:?}: {}", said()));
    Ok(())
}

fn note(log: &mut fs::File, asked: &[&str], code: Option<i32>, told: &Value) -> io::Result<()> {
    writeln!(log, "{}", json!({"asked": asked, "code": code, "told": told}))
}

/// Asks, and at times is killed before the answer.
fn client(ground: &Ground, args: &[&str], chance: &mut Chance, log: &mut fs::File) -> io::Result<Value> {
    let mut command = ground.lariat(args);
    command.env("TORTURE", if chance.below(2) == 0 { "sit" } else { "echo" });
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    if chance.below(4) == 0 {
        std::thread::sleep(chance.moment(Duration::from_millis(120)));
        child.kill()?;
    }
    let output = child.wait_with_output()?;
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let short = if args[0] == "ls" { summary(&told) } else { told.clone() };
    note(log, args, output.status.code(), &short)?;
    Ok(told)
}

/// Who was told to be alive.
fn summary(listing: &Value) -> Value {
    let rows = listing["sessions"].as_array().into_iter().flatten();
    rows.filter(|s| s["live"] == true).map(|s| s["native_id"].clone()).collect()
}

fn launch(ground: &Ground, chance: &mut Chance, log: &mut fs::File) -> io::Result<Option<Session>> {
    let place = ground.fresh("nest")?.display().to_string();
    let headless: &[&str] = if chance.below(2) == 0 { &["--headless", "-p", "go on"] } else { &[] };
    let args = [&["launch", "claude", "--json", "--cwd", &place], headless].concat();
    let told = client(ground, &args, chance, log)?;
    let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
    Ok(ground.session(text("handle"), text("native_id")).ok().filter(|s| !s.handle.is_empty()))
}

fn blow(ground: &Ground, session: &Session, chance: &mut Chance, log: &mut fs::File) -> io::Result<&'static str> {
    let now = record::read::<record::Shim>(&session.folder, record::SHIM).ok().flatten();
    let shim = now.as_ref().unwrap_or(&session.shim);
    Ok(match chance.below(12) {
        0 => {
            signal(&shim.shim, Signal::KILL);
            "kill -9 of a shim"
        }
        1 => {
            shim.keeper.as_ref().map(|k| signal(k, Signal::KILL));
            "kill -9 of a keeper"
        }
        2 => {
            signal(&shim.agent, Signal::KILL);
            note(log, &["nemesis", &session.id], None, &json!("agent killed"))?;
            "kill -9 of an agent"
        }
        3 | 4 => {
            let who = if chance.below(2) == 0 { &shim.shim } else { &shim.agent };
            signal(who, Signal::STOP);
            std::thread::sleep(chance.moment(Duration::from_millis(30)));
            "a halt of a shim or an agent"
        }
        5 | 6 => {
            signal(&shim.shim, Signal::CONT);
            signal(&shim.agent, Signal::CONT);
            "a shim or an agent let go again"
        }
        7 => {
            // A viewer that is killed while it looks.
            let mut viewer = ground.lariat(&["attach", "--watch", &session.id]);
            let mut viewer = viewer.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
            std::thread::sleep(chance.moment(Duration::from_millis(60)));
            end(&mut viewer);
            "kill -9 of a viewer"
        }
        8 => {
            client(ground, &["kill", &session.id, "--json"], chance, log)?;
            "lariat kill"
        }
        9 => {
            client(ground, &["stop", &session.id, "--grace", "50ms", "--json"], chance, log)?;
            "lariat stop"
        }
        _ => {
            client(ground, &["ls", "-a", "--json"], chance, log)?;
            "lariat ls"
        }
    })
}

/// What does not fit. It knows nothing but what it is shown.
fn check(asked: &[Value], told: &Value, processes: &[Seen], state: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let alive = |id: &str| processes.iter().any(|p| p.comm == "claude" && p.argv.iter().any(|a| a == id));
    let rows: Vec<&Value> = told["sessions"].as_array().into_iter().flatten().collect();
    for row in &rows {
        let id = text(&row["native_id"]);
        if row["live"] == true && !alive(&id) {
            wrong.push(format!("{id} is told to live and does not: {row}"));
        }
        if row["live"] == false && alive(&id) {
            wrong.push(format!("{id} lives and is told to be gone: {row}"));
        }
        if row["live"] == false && row["exit"]["code"] == 0 {
            wrong.push(format!("{id} never ended well and is told to have: {row}"));
        }
    }
    for process in processes.iter().filter(|p| p.comm == "claude") {
        if !rows.iter().any(|r| process.argv.iter().any(|a| r["native_id"] == a.as_str())) {
            wrong.push(format!("{process:?} lives unseen"));
        }
    }
    let mut ended: Vec<String> = Vec::new();
    for question in asked {
        let verb = text(&question["asked"][0]);
        let done = question["code"] == 0;
        match verb.as_str() {
            "launch" if done => {
                let id = &question["told"]["id"];
                if !rows.iter().any(|r| r["id"] == *id) {
                    wrong.push(format!("an acknowledged launch has no row: {question}"));
                }
            }
            "kill" | "stop" if done => ended.push(text(&question["asked"][1])),
            "ls" if done => {
                let claimed = question["told"].as_array().into_iter().flatten().map(text);
                wrong.extend(claimed.filter(|id| ended.contains(id)).map(|id| format!("{id} came back: {question}")));
            }
            _ => {}
        }
    }
    for id in ended.iter().filter(|id| alive(id)) {
        wrong.push(format!("{id} was acknowledged to have ended and lives"));
    }
    // On disk: every record is whole, and no exit is made up.
    for entry in fs::read_dir(state.join("sessions")).into_iter().flatten().flatten() {
        for name in ["intent.json", record::LAUNCH, record::SHIM] {
            let Ok(bytes) = fs::read(entry.path().join(name)) else { continue };
            if serde_json::from_slice::<Value>(&bytes).is_err() {
                wrong.push(format!("{}/{name} is torn", entry.path().display()));
            }
        }
        match record::read::<Exit>(&entry.path(), record::EXIT) {
            Ok(Some(exit)) if exit.code == Some(0) => wrong.push(format!("{exit:?} is made up")),
            Ok(_) => {}
            Err(e) => wrong.push(e.to_string()),
        }
    }
    wrong
}
