//! What the daemon adds: warm answers, little memory, no cost at rest, and how soon a
//! death is told.
//!
//! The agents are processes that bear an agent's name and sleep, each with a registry
//! entry and a short transcript as Claude Code writes them. They live in a HOME of the
//! rig's own, with the corpus's stores linked into it where those are wanted.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::answer;
use crate::corpus::{self, Manifest};
use crate::measure::{self, Job, Side};
use crate::report::{Report, Row};
use crate::rig::{Rig, empty};

const MEMORY_MB: f64 = 12.0;
const DEATH_MS: f64 = 3.0;
/// How many times as fast as reading all of it, which takes long: few rounds.
const WHOLE: f64 = 2_000.0;
const WHOLE_ROUNDS: usize = 3;

/// Checks, then measures. `false` if an answer was wrong.
pub fn run(rig: &Rig, home: &Path, manifest: &Manifest, quick: bool, report: &mut Report) -> io::Result<bool> {
    let right = warm(rig, home, manifest, quick, report)?;
    let told = deaths(rig, quick, report)?;
    Ok(right && told)
}

/// A running daemon, ended when this is dropped.
pub(crate) struct Daemon {
    job: Job,
    pid: u32,
}

impl Daemon {
    /// `more` goes to `daemon start`.
    pub(crate) fn start(job: Job, more: &[&str]) -> io::Result<Self> {
        let told = command(&job).args(["daemon", "start"]).args(more).output()?;
        if !told.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&told.stderr).into_owned()));
        }
        let status = command(&job).args(["daemon", "status", "--json"]).output()?;
        let status: Value = serde_json::from_slice(&status.stdout).map_err(io::Error::other)?;
        let pid = status["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        Ok(Self { pid: pid.ok_or_else(|| io::Error::other("the daemon has no PID"))?, job })
    }

    fn resident_mb(&self) -> io::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or("0 kB");
        let kb: f64 = line.trim().trim_end_matches(" kB").parse().map_err(io::Error::other)?;
        Ok(kb / 1024.0)
    }

    /// Clock ticks that it has used, with those of what it started and waited for.
    fn ticks(&self) -> io::Result<u64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        Ok(fields.skip(11).take(4).filter_map(|f| f.parse::<u64>().ok()).sum())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = command(&self.job).args(["daemon", "stop"]).output(); // it may have died
    }
}

/// A job as a command.
pub fn command(job: &Job) -> Command {
    let mut command = Command::new(&job.program);
    command.args(&job.args).env_clear().envs(job.env.iter().map(|(name, value)| (name, value)));
    command
}

/// Agents that sleep.
pub(crate) struct Agents(Vec<(String, Child)>);

impl Agents {
    pub(crate) fn start(rig: &Rig, home: &Path, count: usize) -> io::Result<Self> {
        let sessions = home.join(".claude/sessions");
        let project = home.join(".claude/projects/-bench");
        fs::create_dir_all(&sessions)?;
        fs::create_dir_all(&project)?;
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let namespace = fs::read_link("/proc/self/ns/pid")?;
        let domain = format!("linux:{}:{}", machine.trim(), namespace.display());
        let mut agents = Self(Vec::new());
        for n in 0..count {
            let id = format!("be0c{n:04x}-1111-4111-8111-{n:012x}");
            let child = Command::new(&rig.limits.agent).arg0("claude").env_clear().current_dir(home).spawn()?;
            let pid = child.id();
            agents.0.push((id.clone(), child));
            let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
            let start = stat.rsplit(')').next().and_then(|s| s.split_whitespace().nth(19)).unwrap_or_default();
            fs::write(project.join(format!("{id}.jsonl")), transcript(home, &id))?;
            let entry = json!({"pid": pid, "sessionId": id, "cwd": home, "startedAt": 1_794_727_992_654u64,
                "procStart": start, "version": "2.1.325", "kind": "interactive", "entrypoint": "cli",
                "pidDomain": domain, "status": "idle"});
            fs::write(sessions.join(format!("{pid}.json")), entry.to_string())?;
        }
        Ok(agents)
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            let _ = child.kill(); // ended already
            let _ = child.wait();
        }
    }
}

/// A short talk, as Claude Code writes it down.
fn transcript(home: &Path, id: &str) -> String {
    let common = |mut line: Value| {
        line["sessionId"] = json!(id);
        line["timestamp"] = json!("2026-11-15T07:00:00.000Z");
        line["cwd"] = json!(home);
        line.to_string()
    };
    let asked = common(json!({"type": "user", "uuid": "a", "message": {"role": "user", "content": "hi"}}));
    let said = common(json!({"type": "assistant", "uuid": "b", "message": {"id": "m", "role": "assistant",
        "model": "m", "content": [{"type": "text", "text": "ho"}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1}}}));
    format!("{asked}\n{said}\n")
}

/// Sessions that have ended, beside those of the corpus.
fn write_ended(home: &Path, count: usize) -> io::Result<()> {
    let project = home.join(".claude/projects/-bench-ended");
    fs::create_dir_all(&project)?;
    for n in 0..count {
        let id = format!("ed0c{n:04x}-1111-4111-8111-{n:012x}");
        fs::write(project.join(format!("{id}.jsonl")), transcript(Path::new("/nowhere"), &id))?;
    }
    Ok(())
}

/// Holds 1 and 8: thousands of ended sessions, fifty live ones.
fn warm(rig: &Rig, corpus: &Path, manifest: &Manifest, quick: bool, report: &mut Report) -> io::Result<bool> {
    let home = rig.fresh("daemon-home")?;
    link_stores(corpus, &home)?;
    let cache = rig.fresh("daemon-cache")?;
    let ours = rig.lariat(&home, &cache)?;
    let all = ours.clone().args(["ls", "-a", "--json"]);
    let verdict = answer::check(&command(&all).output()?.stdout, &manifest.sessions);
    report.note(format!("answer, before the daemon: {verdict}"));
    if !verdict.right() {
        return Ok(false);
    }
    // As many more as make 12,500 of 12,000.
    let agents = Agents::start(rig, &home, 50)?;
    let ended = (manifest.sessions.len() / 24).saturating_sub(agents.0.len());
    write_ended(&home, ended)?;
    let daemon = Daemon::start(ours, &[])?;
    let first = command(&all).output()?.stdout;
    // Twice: the first look of a daemon sets up what the second one can rely on.
    let bytes = command(&all).output()?.stdout;
    let listed = |bytes: &[u8]| -> io::Result<(usize, usize)> {
        let value: Value = serde_json::from_slice(bytes).map_err(io::Error::other)?;
        let sessions = value["sessions"].as_array().cloned().unwrap_or_default();
        Ok((sessions.len(), sessions.iter().filter(|s| s["live"] == true).count()))
    };
    let expected = (manifest.sessions.len() + ended + agents.0.len(), agents.0.len());
    let told = [listed(&first)?, listed(&bytes)?];
    report.note(format!("answer, from the daemon: {told:?} sessions and live ones, {expected:?} expected"));
    if told != [expected; 2] {
        return Ok(false);
    }
    let socket = rig.dir.join("run").join("floor.sock");
    let _ = fs::remove_file(&socket); // of an earlier run
    let listener = UnixListener::bind(&socket)?;
    let body = bytes.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(&body); // who left does not count
        }
    });
    let floor = Job::new(&rig.limits.sockget).arg(&socket);
    let alone = all.clone().env("XDG_RUNTIME_DIR", rig.fresh("no-daemon")?);
    let sides = [Side::new(all.clone()), Side::new(floor), Side::new(alone)];
    let [warm, floor, alone] = measure::rounds(&rig.meter, rig.rounds, &sides)?;
    report.rows.push(Row::times("ls -a, from the daemon", &warm, "the same bytes, socket", &floor, Some(6.0)));
    report.rows.push(Row::times("ls -a, from the daemon", &warm, "ls -a, no daemon", &alone, None));

    whole(rig, corpus, manifest, &all, report)?;

    let lists = if quick { 200 } else { 1_000 };
    let mut early = 0.0;
    for n in 1..=lists {
        let told = command(&all).stdout(Stdio::null()).status()?;
        if !told.success() {
            return Err(io::Error::other("a list failed"));
        }
        if n == lists / 10 {
            early = daemon.resident_mb()?;
        }
    }
    let late = daemon.resident_mb()?;
    let status = command(&daemon.job).args(["daemon", "status", "--json"]).output()?.stdout;
    let status: Value = serde_json::from_slice(&status).map_err(io::Error::other)?;
    report.note(format!(
        "answers that needed no look: {}, that did: {}",
        status["answers_warm"], status["answers_fresh"]
    ));
    report.rows.push(Row::ceiling(&format!("daemon, resident after {lists} lists"), "MB", late, MEMORY_MB));
    let growth = (late / early - 1.0) * 100.0;
    report.rows.push(Row::ceiling("daemon, growth over 9/10 of them", "%", growth.max(0.01), 5.0));
    let rest = Duration::from_secs(if quick { 15 } else { 60 });
    let before = daemon.ticks()?;
    std::thread::sleep(rest);
    let used = daemon.ticks()? - before;
    let seconds = rest.as_secs();
    report.rows.push(Row::ceiling(&format!("daemon at rest, {seconds} s"), "ticks", used as f64, 0.0));
    drop((daemon, agents));
    Ok(true)
}

/// The rest of hold 1: beside a program that reads all of it each time, in the runtime that such programs
/// are written for.
fn whole(rig: &Rig, corpus: &Path, manifest: &Manifest, all: &Job, report: &mut Report) -> io::Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let Some(node) = std::env::split_paths(&path).map(|folder| folder.join("node")).find(|p| p.is_file()) else {
        report.note("node is not there: reading all of it each time is not measured");
        return Ok(());
    };
    let reads = Job::new(&node).arg(&rig.limits.whole).args(corpus::roots(corpus));
    let told = command(&reads).output()?.stdout;
    let expected = format!("{{\"files\":{},", manifest.sessions.len());
    if !told.starts_with(expected.as_bytes()) {
        return Err(io::Error::other("reading all of it found another number of sessions"));
    }
    let sides = [Side::new(all.clone()), Side::new(reads)];
    let [warm, whole] = measure::rounds(&rig.meter, rig.rounds.min(WHOLE_ROUNDS), &sides)?;
    let times = whole.median() / warm.median();
    report.note(format!("the daemon's list: {times:.0} times as fast as reading all of it in Node (hold {WHOLE})"));
    report.rows.push(Row::times("ls -a, from the daemon", &warm, "all of it read in Node", &whole, Some(1.0 / WHOLE)));
    Ok(())
}

/// A HOME with the corpus's stores in it, so that the corpus itself stays as it is.
fn link_stores(corpus: &Path, home: &Path) -> io::Result<()> {
    for store in [".claude/projects", ".codex/sessions"] {
        let (from, to) = (corpus.join(store), home.join(store));
        fs::create_dir_all(&to)?;
        for entry in fs::read_dir(&from)? {
            let entry = entry?;
            std::os::unix::fs::symlink(entry.path(), to.join(entry.file_name()))?;
        }
    }
    for file in [".claude/history.jsonl", ".codex/session_index.jsonl"] {
        if corpus.join(file).exists() {
            std::os::unix::fs::symlink(corpus.join(file), home.join(file))?;
        }
    }
    Ok(())
}

/// Hold 4: how soon the death of one of many is on a listener's standard output. `false` if
/// one was told that was none.
fn deaths(rig: &Rig, quick: bool, report: &mut Report) -> io::Result<bool> {
    let (left, kills) = if quick { (100, 30) } else { (1_000, 1_000) };
    let count = left + kills;
    let home: PathBuf = rig.fresh("watch-home")?;
    let cache = rig.fresh("watch-cache")?;
    let job = rig.lariat(&home, &cache)?;
    let mut agents = Agents::start(rig, &home, count)?;
    let daemon = Daemon::start(job.clone(), &[])?;
    let mut listener = command(&job)
        .args(["events", "-f"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let out = listener.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
    let (told, heard) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if told.send((Instant::now(), line)).is_err() {
                return;
            }
        }
    });
    let wait = Duration::from_secs(60);
    let late = || io::Error::other("an event did not come within a minute");
    while !heard.recv_timeout(wait).map_err(|_| late())?.1.contains("\"event\":\"reset\"") {}
    let (mut times, mut floor) = (Vec::new(), Vec::new());
    let mut wrong = 0;
    for (id, child) in agents.0.iter_mut().take(kills) {
        let from = Instant::now();
        child.kill()?;
        child.wait()?;
        floor.push(from.elapsed().as_secs_f64() * 1000.0);
        loop {
            let (at, line) = heard.recv_timeout(wait).map_err(|_| late())?;
            let event: Value = serde_json::from_str(&line).map_err(io::Error::other)?;
            if event["event"] == "session.ended" && event["session"]["native_id"] == id.as_str() {
                times.push(at.duration_since(from).as_secs_f64() * 1000.0);
                break;
            }
            wrong += usize::from(event["event"] == "session.ended");
        }
    }
    times.sort_by(f64::total_cmp);
    floor.sort_by(f64::total_cmp);
    let at = |all: &[f64], part: f64| all[((all.len() - 1) as f64 * part) as usize];
    report.note(format!(
        "deaths of {kills} of {count} watched: {} told, 0 missed, {wrong} false; p50 {:.2} ms, p99 {:.2} ms; \
         to those who wait for their own child, p50 {:.2} ms, p99 {:.2} ms",
        times.len(),
        at(&times, 0.5),
        at(&times, 0.99),
        at(&floor, 0.5),
        at(&floor, 0.99)
    ));
    report.rows.push(Row::ceiling(&format!("death of 1 of {left} told, p99"), "ms", at(&times, 0.99), DEATH_MS));
    let _ = listener.kill(); // the listener is ours
    let _ = listener.wait();
    drop(daemon);
    drop(agents);
    empty(&home)?;
    Ok(wrong == 0)
}
