//! What the rows stand on, inside the sandbox: the real program, processes, sessions.
//!
//! It looks at `/proc` itself and believes nothing that lariat says about what lives.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};

use lariat_core::Time;
use lariat_engine::launched::Record;
use lariat_shim::record::{self, Launch, Shim};
use lariat_sys::process::{Identity, Stat};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;

use crate::agent;

/// How long anything that must happen may take before the row has failed.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The sandbox from within.
pub struct Ground {
    /// HOME.
    pub home: PathBuf,
    /// `$XDG_STATE_HOME/lariat`.
    pub state: PathBuf,
    /// Where agents are started.
    pub work: PathBuf,
    next: std::cell::Cell<u64>,
}

/// A session that was started, by its records.
pub struct Session {
    /// Its handle.
    pub handle: String,
    /// Its agent's own id.
    pub id: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Who holds it, as of its start.
    pub shim: Shim,
}

/// A process as `/proc` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its PID.
    pub pid: u32,
    /// Its command name.
    pub comm: String,
    /// Its arguments.
    pub argv: Vec<String>,
}

impl Ground {
    /// The ground of the sandbox that this process stands in.
    pub fn here() -> io::Result<Ground> {
        let var = |name: &str| std::env::var_os(name).map(PathBuf::from).ok_or(io::ErrorKind::NotFound);
        let ground = Ground {
            home: var("HOME")?,
            state: var("XDG_STATE_HOME")?.join("lariat"),
            work: std::env::current_dir()?,
            next: std::cell::Cell::new(1),
        };
        let door = var("XDG_RUNTIME_DIR")?.join("lariat");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&door)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(ground.state.join("sessions"))?;
        Ok(ground)
    }

    /// The program under torture.
    pub fn lariat(&self, args: &[&str]) -> Command {
        let mut command = Command::new("lariat");
        command.args(args).stdin(Stdio::null());
        command
    }

    /// Runs it.
    pub fn ask(&self, args: &[&str]) -> io::Result<Output> {
        self.lariat(args).output()
    }

    /// Runs it and reads its answer, one object.
    pub fn told(&self, args: &[&str]) -> io::Result<(i32, Value)> {
        let output = self.ask(args)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let value = serde_json::from_str(text.lines().last().unwrap_or("null")).unwrap_or(Value::Null);
        Ok((output.status.code().unwrap_or(-1), value))
    }

    /// Every session that `ls -a` shows.
    pub fn list(&self) -> io::Result<Vec<Value>> {
        let output = self.ask(&["ls", "-a", "--json"])?;
        let value: Value = serde_json::from_slice(&output.stdout)?;
        Ok(value["sessions"].as_array().cloned().unwrap_or_default())
    }

    /// A folder of its own below the work.
    pub fn fresh(&self, name: &str) -> io::Result<PathBuf> {
        let n = self.next.replace(self.next.get() + 1);
        let path = self.home.join("fresh").join(format!("{name}-{n}"));
        fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// An id in the shape of the agent's.
    pub fn new_id(&self) -> String {
        let n = self.next.replace(self.next.get() + 1);
        format!("{n:08x}-1111-4111-8111-{n:012x}")
    }

    /// Launches an agent through the command line.
    pub fn launch(&self, torture: &str, more: &[&str]) -> io::Result<Session> {
        let mut command = self.lariat(&[&["launch", "claude", "--json", "--force"], more].concat());
        let output = command.env("TORTURE", torture).output()?;
        let told: Value = serde_json::from_slice(&output.stdout)
            .map_err(|e| io::Error::other(format!("{e}: {}", String::from_utf8_lossy(&output.stderr))))?;
        let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
        self.session(text("handle"), text("native_id"))
    }

    /// A session by its names.
    pub fn session(&self, handle: String, id: String) -> io::Result<Session> {
        let folder = self.state.join("sessions").join(&handle);
        let shim = record::read(&folder, record::SHIM).map_err(io::Error::other)?;
        Ok(Session { shim: shim.ok_or(io::ErrorKind::NotFound)?, handle, id, folder })
    }

    /// Prepares a session's folder as `launch` does, without starting anything.
    pub fn prepare(&self, handle: &str, id: &str, headless: bool) -> io::Result<PathBuf> {
        let folder = self.state.join("sessions").join(handle);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let runtime = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR").unwrap_or_default());
        let program = which("claude").ok_or(io::ErrorKind::NotFound)?;
        let record = Record {
            launch: Launch {
                version: record::VERSION,
                handle: handle.to_owned(),
                argv: vec![program.display().to_string(), "--session-id".into(), id.to_owned()],
                cwd: self.work.clone(),
                env: Vec::new(),
                headless,
                rows: 24,
                cols: 80,
                socket: runtime.join("lariat").join(format!("{handle}.sock")),
                output: 1 << 16,
                after: None,
            },
            agent: "claude".into(),
            native_id: Some(id.to_owned()),
            ask: Default::default(),
            earlier: Vec::new(),
            commands: Default::default(),
            kept: false,
            worktree: None,
            stores: None,
            group: None,
            called: None,
            prompted: false,
            created_at: Time(lariat_sys::clock::now_ms()),
        };
        fs::write(folder.join(record::LAUNCH), serde_json::to_vec(&record)?)?;
        let wish = serde_json::json!({"id": format!("claude:{id}"), "want": "run", "generation": 1,
            "at": Time(lariat_sys::clock::now_ms()), "found_live": true, "until": null, "verb": "launch",
            "process": null});
        fs::write(folder.join("intent.json"), wish.to_string())?;
        Ok(folder)
    }

    /// Starts a session by its shim alone, as `launch` does once it has prepared it.
    pub fn start(&self, torture: &str, headless: bool, env: &[(&str, &str)]) -> io::Result<Session> {
        let id = self.new_id();
        let handle = format!("t{}", &id[..8]);
        self.prepare(&handle, &id, headless)?;
        let said = self.shim(&handle, "--environment", torture, env)?;
        if said != "started" {
            return Err(io::Error::other(format!("the shim said {said:?}")));
        }
        self.session(handle, id)
    }

    /// Whether its agent has recorded the turn that it is in.
    pub fn has_turn(&self, session: &Session) -> bool {
        fs::read(agent::transcript(&self.home, &session.id)).is_ok_and(|text| text.ends_with(b"\n"))
    }

    /// Runs a shim for a prepared session; gives what it said.
    pub fn shim(&self, handle: &str, flag: &str, torture: &str, env: &[(&str, &str)]) -> io::Result<String> {
        let folder = self.state.join("sessions").join(handle);
        let mut command = Command::new("lariat");
        command.args(["__shim", flag]).arg(folder).envs(env.iter().copied());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            let ours = std::env::vars().filter(|(name, _)| !name.starts_with("LARIAT_"));
            let all: String = ours.map(|(name, value)| format!("{name}={value}\0")).collect();
            // One that died before it read all has said so by its silence.
            let _ = stdin.write_all(format!("{all}TORTURE={torture}\0").as_bytes());
        }
        let mut said = String::new();
        if let Some(mut stdout) = child.stdout.take() {
            stdout.read_to_string(&mut said)?;
        }
        child.wait()?;
        Ok(said.trim_end().to_owned())
    }

    /// Whoever holds a session by the records there are.
    pub fn shims(&self) -> Vec<Shim> {
        let folders = fs::read_dir(self.state.join("sessions")).into_iter().flatten().flatten();
        folders.filter_map(|f| record::read(&f.path(), record::SHIM).ok().flatten()).collect()
    }

    /// Forgets a session that is over, so that the next one finds the same ground.
    pub fn forget(&self, session: &Session) {
        let _ = fs::remove_dir_all(&session.folder);
        let _ = fs::remove_file(agent::transcript(&self.home, &session.id));
        self.remove_cgroup(&session.handle);
    }

    /// Takes away the cgroup of a session whose shim could not: cgroups outlive a reboot that is none.
    pub fn remove_cgroup(&self, handle: &str) {
        let prefix = format!("lariat.{handle}.");
        let its = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&prefix));
        for cgroup in cgroups().into_iter().filter(its) {
            let _ = fs::remove_dir(cgroup); // one that is in use stays
        }
    }

    /// Every process but this one and the sandbox's own.
    pub fn processes(&self) -> Vec<Seen> {
        let me = std::process::id();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|e| e.file_name().to_str().and_then(|n| n.parse::<u32>().ok()));
        pids.filter(|pid| *pid != me && *pid != 1).filter_map(look).collect()
    }

    /// The agents and tools that live: everything but lariat's own.
    pub fn others(&self) -> Vec<Seen> {
        self.processes()
            .into_iter()
            .filter(|p| matches!(p.comm.as_str(), "claude" | "tool" | "sh" | "editor"))
            .collect()
    }

    /// The agents of a session that live.
    pub fn agents_of(&self, id: &str) -> Vec<Seen> {
        let all = self.processes().into_iter();
        all.filter(|p| p.comm == "claude" && p.argv.iter().any(|a| a == id)).collect()
    }

    /// From here on there is no cgroup to be had in this sandbox: what was there is covered up.
    pub fn cover_cgroups(&self) -> io::Result<()> {
        let covered = Command::new("mount").args(["-t", "tmpfs", "none", "/sys/fs/cgroup"]).status()?;
        if covered.success() { Ok(()) } else { Err(io::Error::other("the cgroups could not be covered up")) }
    }

    /// Takes away the cgroups that this ground's own sessions left: cgroups are the machine's.
    pub fn remove_cgroups(&self, before: &HashSet<PathBuf>) {
        let ours = |p: &&PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("lariat.t0"));
        for cgroup in cgroups().difference(before).filter(ours) {
            let _ = fs::remove_dir(cgroup);
        }
    }
}

/// The cgroups of sessions that there are.
pub fn cgroups() -> HashSet<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|l| l.strip_prefix("0::/")).unwrap_or_default().to_owned();
    let folders = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(|m| Path::new(m).join(&own));
    let entries = folders.iter().filter_map(|f| fs::read_dir(f).ok()).flatten().flatten();
    entries.filter(|e| e.file_name().to_string_lossy().starts_with("lariat.")).map(|e| e.path()).collect()
}

fn look(pid: u32) -> Option<Seen> {
    let stat = Stat::read(pid).ok().filter(|s| !s.is_dead())?;
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let argv = bytes.split(|b| *b == 0).filter(|a| !a.is_empty()).map(|a| String::from_utf8_lossy(a).into_owned());
    Some(Seen { pid, comm: stat.comm, argv: argv.collect() })
}

/// Whether a process lives.
pub fn lives(pid: u32) -> bool {
    look(pid).is_some()
}

/// Whether that very process lives.
pub fn is_alive(process: &record::Process) -> bool {
    matches!(Identity::from(process.clone()).is_alive(), Ok(true))
}

/// Signals that very process; says whether it was there.
pub fn signal(process: &record::Process, signal: Signal) -> bool {
    let Ok((now, pidfd)) = Identity::open(process.pid) else { return false };
    now.is(&process.clone().into()) && pidfd_send_signal(pidfd, signal).is_ok()
}

/// Ends a child of the rig.
pub fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Signals a process by its number: for what the rig itself found.
pub fn signal_pid(pid: u32, signal: Signal) -> bool {
    let opened = Pid::from_raw(pid.cast_signed()).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    opened.is_some_and(|pidfd| pidfd_send_signal(pidfd, signal).is_ok())
}

/// Waits until something is there; an error names what was not.
pub fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> io::Result<T> {
    let until = Instant::now() + DEADLINE;
    loop {
        if let Some(value) = probe() {
            return Ok(value);
        }
        if Instant::now() > until {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("waited in vain for {what}")));
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Waits until something holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) -> io::Result<()> {
    wait_for(what, || holds().then_some(()))
}

/// A program on the PATH.
pub fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let runs = |p: &PathBuf| p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(runs)
}
