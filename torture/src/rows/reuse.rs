//! Row 1: a PID that the kernel gave out again.
//!
//! A process is started under a chosen number, its identity is taken, it is ended, and another is
//! started under the same number, most often within the same clock tick: then PID and start time
//! are equal. Three ways lead lariat to that number: a launched session's record, an agent's own
//! registry, and a kill that a crash cut short. Whoever has the number now must not be signalled.
//!
//! The control ends whoever has the same PID and start time.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use lariat_shim::record::{self, Process, Shim};
use lariat_sys::process::{Identity, Stat};
use rustix::process::Signal;
use serde_json::json;

use crate::agent;
use crate::chance::Chance;
use crate::ground::{Ground, end, lives, signal_pid};
use crate::tally::Tally;

/// Numbers that are not in use in a sandbox of a few processes.
const FIRST: u64 = 20_000;
const CONTROL: &str = "end whoever has the same PID and start time";

/// Runs the row.
pub fn run(ground: &Ground, count: u64, chance: &mut Chance, tally: &mut Tally) -> io::Result<()> {
    let mut equal = 0;
    for round in 0..count {
        let pid = u32::try_from(FIRST + chance.below(10_000)).unwrap_or(20_000);
        let id = ground.new_id();
        let way = round % 3;
        let (before, mut other, same) = reuse(pid, if way == 1 { "editor" } else { "claude" })?;
        equal += u64::from(same);
        leave_traces(ground, way, &id, &before)?;
        // The third way: any verb that acts finishes what was cut short.
        let target = if way == 2 { "no-such-session" } else { &id };
        let verb = *chance.pick(&["kill", "stop"]);
        let answer = ground.ask(&[verb, target, "--json"])?;
        let hit = !lives(pid) || other.try_wait()?.is_some() || is_halted(pid);
        let names = ["a launched session", "an agent's registry", "a kill that was cut short"];
        tally.try_one(&format!("the number of {} given out again", names[usize::try_from(way).unwrap_or(0)]));
        tally.hold(!hit, || {
            let said = String::from_utf8_lossy(&answer.stdout).into_owned();
            format!("round {round}: {verb} hit process {pid}, which was another by then: {said}")
        });
        // Every fifth time, so that the rows above are not the only ones with nobody signalled.
        if round % 5 == 0 {
            let looks_the_same = Stat::read(pid).is_ok_and(|s| s.start == before.start);
            if looks_the_same {
                signal_pid(pid, Signal::KILL);
            }
            tally.control(CONTROL, looks_the_same && other.wait().is_ok());
        }
        end(&mut other);
        forget(ground, &id, pid);
    }
    tally.note(format!("PID and start time were equal in {equal} of {count}"));
    Ok(())
}

fn is_halted(pid: u32) -> bool {
    Stat::read(pid).is_ok_and(|s| matches!(s.state, b'T' | b't'))
}

/// Starts a program under a chosen number.
fn start_at(pid: u32, program: &str) -> io::Result<Child> {
    for _ in 0..1000 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string())?;
        let mut command = Command::new(program);
        let mut child = command.env("TORTURE", "sit").stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        if child.id() == pid {
            return Ok(child);
        }
        end(&mut child); // somebody else was faster
    }
    Err(io::Error::other(format!("the number {pid} could not be had")))
}

/// One that ended, by its identity, and another under the same number; tried until both began in
/// the same tick, which is most often the first time.
fn reuse(pid: u32, program: &str) -> io::Result<(Process, Child, bool)> {
    let mut tries = 0;
    loop {
        let mut first = start_at(pid, "claude")?;
        let (identity, _) = Identity::open(pid)?;
        end(&mut first);
        let mut second = start_at(pid, program)?;
        let same = Stat::read(pid)?.start == identity.start;
        tries += 1;
        if same || tries == 50 {
            return Ok((identity.into(), second, same));
        }
        end(&mut second);
    }
}

fn leave_traces(ground: &Ground, way: u64, id: &str, before: &Process) -> io::Result<()> {
    let talk = agent::transcript(&ground.home, id);
    let line = json!({"type": "user", "message": {"role": "user", "content": "go on"}, "cwd": ground.work,
        "timestamp": "2026-11-15T07:00:00.000Z", "sessionId": id});
    put(&talk, &line.to_string())?;
    let namespace = std::fs::read_link("/proc/self/ns/pid")?;
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let entry = json!({"pid": before.pid, "sessionId": id, "cwd": ground.work, "status": "busy", "kind": "interactive",
        "startedAt": lariat_sys::clock::now_ms(), "procStart": before.start.to_string(), "version": "2.1.325",
        "pidDomain": format!("linux:{}:{}", machine.trim(), namespace.display())});
    put(&ground.home.join(format!(".claude/sessions/{}.json", before.pid)), &entry.to_string())?;
    if way == 0 {
        let folder = ground.prepare(&handle(id), id, true)?;
        let gone = Process { start: before.start + 1, ..before.clone() };
        let shim = Shim {
            version: record::VERSION,
            protocol: lariat_shim::wire::PROTOCOL,
            program: "0".into(),
            shim: gone,
            agent: before.clone(),
            keeper: None,
            socket: folder.join("none"),
            cgroup: None,
            cgroup_inode: None,
            started_at: lariat_core::Time(lariat_sys::clock::now_ms()),
            taken_over_at: None,
            output_from: 0,
        };
        record::put(&folder, record::SHIM, &shim).map_err(io::Error::other)?;
    }
    if way == 2 {
        let now = lariat_core::Time(lariat_sys::clock::now_ms());
        let wish = json!({"id": format!("claude:{id}"), "want": "stop", "generation": 1, "at": now, "found_live": true,
            "until": now, "verb": "kill", "process": before});
        put(&ground.state.join(format!("sessions/claude-{id}/intent.json")), &wish.to_string())?;
    }
    Ok(())
}

fn handle(id: &str) -> String {
    format!("t{}", &id[..8])
}

fn put(path: &Path, text: &str) -> io::Result<()> {
    std::fs::create_dir_all(path.parent().unwrap_or(path))?;
    std::fs::write(path, format!("{text}\n"))
}

fn forget(ground: &Ground, id: &str, pid: u32) {
    let _ = std::fs::remove_file(agent::transcript(&ground.home, id));
    let _ = std::fs::remove_file(ground.home.join(format!(".claude/sessions/{pid}.json")));
    for name in [handle(id), format!("claude-{id}")] {
        let _ = std::fs::remove_dir_all(ground.state.join("sessions").join(name));
    }
}
