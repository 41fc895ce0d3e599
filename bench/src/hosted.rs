//! Sessions that are hosted: how soon a launch answers, what a terminal costs, and what an idle
//! session weighs, beside tmux and dtach in the same run.
//!
//! Every side runs the same stub, shell line or file. Before anything is timed: the launch gave the
//! id that the agent itself wrote down, every byte came through, and a viewer who comes back sees
//! the screen as it is.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::measure::{self, Job, Run, Series, Side};
use crate::report::{Report, Row};
use crate::rig::Rig;

/// How much of everything.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Idle sessions that are weighed.
    pub sessions: usize,
    /// Bytes that go through a terminal.
    pub flood: usize,
    /// How often each side of a terminal is measured.
    pub rounds: usize,
}

/// How many keys are typed.
const KEYS: &str = "500";
/// Lines of scrollback, and how long each is.
const LINES: usize = 2_000;
const WIDTH: usize = 100;

/// Checks, then measures. `false` if an answer was wrong.
pub fn run(rig: &Rig, scale: Scale, report: &mut Report) -> io::Result<bool> {
    for needed in ["tmux", "dtach"] {
        if which(needed).is_none() {
            report.note(format!("{needed} is not there: holds 5, 6 and 7 are not measured"));
            return Ok(true);
        }
    }
    let host = Host::new(rig)?;
    let right = launches(&host, report)? & screens(&host, report)? & floods(&host, scale, report)?;
    let right = right & echoes(&host, scale, report)? & memory(&host, scale.sessions, report)?;
    host.tmux(&["kill-server"])?;
    Ok(right)
}

/// The place where sessions are hosted.
struct Host<'a> {
    rig: &'a Rig,
    place: PathBuf,
    home: PathBuf,
    next: std::cell::Cell<usize>,
}

impl<'a> Host<'a> {
    fn new(rig: &'a Rig) -> io::Result<Host<'a>> {
        // Sockets need short paths; a private /tmp of the namespace would be better, but is not sure.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_err(io::Error::other)?;
        let place = std::env::temp_dir().join(format!("lariat-bench-{:x}", now.as_micros()));
        crate::rig::empty(&place)?;
        let host = Host { rig, home: place.join("home"), place, next: std::cell::Cell::new(0) };
        for folder in ["home", "run", "state", "bin", "work"] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(host.place.join(folder))?;
        }
        symlink(&rig.limits.stub, host.place.join("bin/claude"))?;
        host.tmux(&["-f", "/dev/null", "new-session", "-d", "-s", "first", "cat"])?;
        host.tmux(&["set", "-g", "history-limit", &LINES.to_string()])?;
        Ok(host)
    }

    fn environment(&self) -> Vec<(&'static str, std::ffi::OsString)> {
        let path = format!("{}:{}", self.place.join("bin").display(), std::env::var("PATH").unwrap_or_default());
        vec![
            ("HOME", self.home.clone().into()),
            ("XDG_STATE_HOME", self.place.join("state").into()),
            ("XDG_RUNTIME_DIR", self.place.join("run").into()),
            ("XDG_CACHE_HOME", self.home.join(".cache").into()),
            ("TMUX_TMPDIR", self.place.join("run").into()),
            ("PATH", path.into()),
            ("TERM", "xterm-256color".into()),
            ("LANG", "C.UTF-8".into()),
        ]
    }

    fn job(&self, program: &Path) -> Job {
        self.environment().into_iter().fold(Job::new(program), |job, (name, value)| job.env(name, value))
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(self.environment()).current_dir(self.place.join("work"));
        command
    }

    fn lariat(&self, args: &[&str]) -> io::Result<Vec<u8>> {
        let output = self.command(&self.rig.lariat).args(args).stdin(Stdio::null()).output()?;
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(io::Error::other(format!("lariat {args:?}: {}", String::from_utf8_lossy(&output.stderr)))),
        }
    }

    fn tmux(&self, args: &[&str]) -> io::Result<String> {
        let output = self.command("tmux").args(["-L", "bench"]).args(args).stdin(Stdio::null()).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn name(&self, what: &str) -> String {
        self.next.set(self.next.get() + 1);
        format!("{what}{}", self.next.get())
    }

    /// A session of lariat's whose agent is a shell line, as `launch` would start it.
    fn hosted(&self, line: &str) -> io::Result<String> {
        let handle = self.name("h");
        let folder = self.place.join("state/lariat/sessions").join(&handle);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(self.place.join("run/lariat"))?;
        let id = format!("{:08x}-1111-4111-8111-111111111111", self.next.get());
        let launch = json!({"version": 1, "handle": handle, "argv": ["/bin/sh", "-c", line],
            "cwd": self.place.join("work"), "env": [], "headless": false, "rows": 40, "cols": 120,
            "socket": self.place.join("run/lariat").join(&handle), "output": 4 << 20, "agent": "claude",
            "native_id": id, "name": null, "group": null, "prompt": null, "created_at": "2026-11-15T07:00:00.000Z"});
        fs::write(folder.join("launch.json"), launch.to_string())?;
        let mut shim = self.command(&self.rig.lariat);
        let mut shim =
            shim.args(["__shim", "--environment"]).arg(&folder).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        if let Some(mut stdin) = shim.stdin.take() {
            for (name, value) in self.environment() {
                stdin.write_all(format!("{name}={}\0", value.to_string_lossy()).as_bytes())?;
            }
        }
        let mut said = String::new();
        shim.stdout.take().map(|mut out| out.read_to_string(&mut said)).transpose()?;
        shim.wait()?;
        if said.trim() == "started" { Ok(handle) } else { Err(io::Error::other(format!("a shim said {said:?}"))) }
    }

    /// The same line under dtach; gives its socket.
    fn detached(&self, line: &str) -> io::Result<PathBuf> {
        let socket = self.place.join("run").join(self.name("d"));
        let status = self.command("dtach").arg("-n").arg(&socket).args(["-E", "/bin/sh", "-c", line]).status()?;
        if status.success() { Ok(socket) } else { Err(io::Error::other("dtach could not be started")) }
    }

    fn shim(&self, handle: &str) -> io::Result<Value> {
        Ok(serde_json::from_slice(&fs::read(self.place.join("state/lariat/sessions").join(handle).join("shim.json"))?)?)
    }

    /// Runs the terminal without a person; gives what it told.
    fn terminal(&self, args: &[&str]) -> io::Result<String> {
        let output = self.command(&self.rig.limits.terminal).args(args).stdin(Stdio::null()).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        // Whatever is left goes with it; the namespace takes care of what would not.
        let _ = self.tmux(&["kill-server"]);
        let _ = self.lariat(&["kill", "--all", "--yes"]);
        let _ = fs::remove_dir_all(&self.place);
    }
}

fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|p| p.is_file())
}

fn number(told: &str, key: &str) -> Option<u64> {
    told.split_whitespace().find_map(|word| word.strip_prefix(key)?.parse().ok())
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) -> io::Result<()> {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds() {
        if Instant::now() > until {
            return Err(io::Error::other(format!("waited in vain for {what}")));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Hold 5.
fn launches(host: &Host<'_>, report: &mut Report) -> io::Result<bool> {
    let told: Value = serde_json::from_slice(&host.lariat(&["launch", "claude", "--json"])?)?;
    let entry = fs::read(host.home.join(format!(".claude/sessions/{}.json", told["pid"])))?;
    let entry: Value = serde_json::from_slice(&entry)?;
    let right = entry["sessionId"] == told["native_id"];
    report.note(format!("launch gives the id that the agent wrote down: {}", if right { "yes" } else { "NO" }));
    // Every round begins where the first one did, on both sides.
    let end_all = || {
        host.lariat(&["kill", "--all", "--yes"])?;
        host.tmux(&["kill-session", "-a", "-t", "first"])?;
        ["state/lariat/sessions", "home/.claude"].iter().try_for_each(|old| crate::rig::empty(&host.place.join(old)))
    };
    end_all()?;
    let work = host.place.join("work").display().to_string();
    let ours = host.job(&host.rig.lariat).args(["launch", "claude", "--cwd", &work]);
    let stub = host.place.join("bin/claude");
    let tmux = which("tmux").unwrap_or_default();
    let theirs = host.job(&tmux).args(["-L", "bench", "new-session", "-d"]).arg(stub.clone());
    let least = host.job(Path::new("/bin/true"));
    let sides = [ours, theirs, least].map(|job| Side { job, before: Box::new(end_all) });
    let [ours, theirs, least] = measure::rounds(&host.rig.meter, host.rig.rounds, &sides)?;
    end_all()?;
    report.rows.push(Row::times("launch, with the agent's own id", &ours, "tmux new-session -d", &theirs, Some(1.0)));
    report.rows.push(Row::times("tmux new-session -d", &theirs, "start /bin/true", &least, None));
    Ok(right)
}

/// Hold 6: who comes back sees the screen as it is.
fn screens(host: &Host<'_>, report: &mut Report) -> io::Result<bool> {
    // A small full-screen program: it draws when it starts and whenever its size is told.
    let script = host.place.join("screen.sh");
    let draw = r#"draw() { set -- $(stty size); printf '\033[2J\033[H'; i=1; while [ $i -lt $1 ]; do
        printf 'row %02d of %s x %s \033[3%dmcoloured\033[0m\033[%d;60H<- column 60\r\n' $i $1 $2 $((i % 7 + 1)) $i
        i=$((i + 1)); done; printf 'last row, no newline'; }
trap draw WINCH; stty raw -echo; draw; while :; do sleep 0.02; done"#;
    fs::write(&script, draw)?;
    let line = format!("exec bash {}", script.display());
    let shown = |target: &str| host.tmux(&["capture-pane", "-p", "-e", "-t", target]);
    let open = |name: &str, line: &str| host.tmux(&["new-session", "-d", "-s", name, "-x", "100", "-y", "30", line]);
    open("true", &line)?;
    wait_until("the true screen", || shown("true").is_ok_and(|s| s.contains("last row")))?;
    let wanted = shown("true")?;
    let handle = host.hosted(&line)?;
    let attach = format!("{} attach {handle}", host.rig.lariat.display());
    let mut right = true;
    for round in ["one", "two", "three"] {
        open(round, &attach)?;
        let same = wait_until("the screen of a viewer", || shown(round).is_ok_and(|s| s == wanted)).is_ok();
        report.note(format!("attach {round}: the screen is the true one: {}", if same { "yes" } else { "NO" }));
        right &= same;
        host.tmux(&["send-keys", "-t", round, "C-q"])?;
        wait_until("the viewer to leave", || {
            host.tmux(&["list-sessions"]).is_ok_and(|l| !l.contains(&format!("{round}:")))
        })?;
    }
    host.lariat(&["kill", &handle])?;
    host.tmux(&["kill-session", "-t", "true"])?;
    Ok(right)
}

fn run_of(told: &str) -> io::Result<Run> {
    let ns = number(told, "ns=").ok_or_else(|| io::Error::other(format!("the terminal told {told:?}")))?;
    Ok(Run { ms: ns as f64 / 1e6, rss_kb: 0 })
}

/// Hold 6: 100 MB, attached and detached.
fn floods(host: &Host<'_>, scale: Scale, report: &mut Report) -> io::Result<bool> {
    let file = host.place.join("flood");
    let line = b"the quick brown fox jumps over the lazy dog, again and again, until the line is full\n";
    fs::write(&file, line.repeat(scale.flood / line.len()))?;
    let size = fs::metadata(&file)?.len();
    let ready = host.place.join("ready");
    let flood = format!("stty raw -echo; : > {}; head -c 1 > /dev/null; exec cat {}", ready.display(), file.display());
    let lariat = host.rig.lariat.display().to_string();
    let [mut relay, mut ours, mut dtach] = [(); 3].map(|()| Series::default());
    let [mut ours_shown, mut dtach_shown, mut tmux_shown] = [(); 3].map(|()| Series::default());
    let [mut ours_alone, mut dtach_alone] = [(); 2].map(|()| Series::default());
    let mut right = true;
    for round in 0..scale.rounds {
        let begun = || wait_until("the flood to be ready", || fs::remove_file(&ready).is_ok());
        relay.push(run_of(&host.terminal(&["relay", &file.display().to_string()])?)?);
        for mode in ["discard", "flood"] {
            let handle = host.hosted(&flood)?;
            begun()?;
            let told = host.terminal(&[mode, &lariat, "attach", &handle])?;
            let every = mode == "discard" || number(&told, "bytes=").is_some_and(|b| b >= size);
            right &= every;
            if mode == "discard" { &mut ours } else { &mut ours_shown }.push(run_of(&told)?);
            let socket = host.detached(&flood)?.display().to_string();
            begun()?;
            let told = host.terminal(&[mode, "dtach", "-a", &socket, "-E", "-r", "none"])?;
            if mode == "discard" { &mut dtach } else { &mut dtach_shown }.push(run_of(&told)?);
        }
        let name = host.name("t");
        host.tmux(&["new-session", "-d", "-s", &name, "-x", "120", "-y", "40", &flood])?;
        begun()?;
        let told = host.terminal(&["flood", "tmux", "-L", "bench", "attach", "-t", &name])?;
        tmux_shown.push(run_of(&told)?);
        // With nobody attached: until the agent has written all.
        for side in [round % 2, 1 - round % 2] {
            let (go, done) = (host.place.join("go"), host.place.join("done"));
            let _ = (fs::remove_file(&go), fs::remove_file(&done));
            let alone = format!(
                "stty raw -echo; : > {0}; until [ -e {1} ]; do sleep 0.01; done; date +%s%N > {2}.tmp; cat {3}; \
                 date +%s%N >> {2}.tmp; mv {2}.tmp {2}",
                ready.display(),
                go.display(),
                done.display(),
                file.display()
            );
            if side == 0 {
                host.hosted(&alone).map(drop)?
            } else {
                host.detached(&alone).map(drop)?
            }
            begun()?;
            fs::write(&go, "")?;
            wait_until("the flood to be over", || done.exists())?;
            let times: Vec<u64> = fs::read_to_string(&done)?.lines().filter_map(|l| l.parse().ok()).collect();
            let [from, to] = times[..] else { return Err(io::Error::other("no times of a flood")) };
            let run = Run { ms: (to - from) as f64 / 1e6, rss_kb: 0 };
            if side == 0 { &mut ours_alone } else { &mut dtach_alone }.push(run);
        }
    }
    let name = |how: &str| format!("{} MB {how}", scale.flood / 1_000_000);
    report.note(format!("every byte came through an attached terminal: {}", if right { "yes" } else { "NO" }));
    report.rows.push(Row::times(&name("attached"), &ours, "relay by C", &relay, Some(1.15)));
    report.rows.push(Row::times(&name("attached"), &ours, "dtach", &dtach, None));
    report.rows.push(Row::times(&name("attached, shown"), &ours_shown, "tmux", &tmux_shown, None));
    report.rows.push(Row::times(&name("attached, shown"), &ours_shown, "dtach", &dtach_shown, None));
    report.rows.push(Row::times(&name("detached"), &ours_alone, "dtach", &dtach_alone, Some(1.0)));
    fs::remove_file(&file)?;
    Ok(right)
}

/// Hold 6: a key and its echo.
fn echoes(host: &Host<'_>, scale: Scale, report: &mut Report) -> io::Result<bool> {
    let ready = host.place.join("echo-ready");
    let line = format!("stty raw -echo; : > {}; exec cat -u", ready.display());
    let lariat = host.rig.lariat.display().to_string();
    let [mut ours, mut tmux, mut dtach] = [(); 3].map(|()| Series::default());
    let mut lost = 0;
    for _ in 0..scale.rounds {
        let begun = || wait_until("the echo to be ready", || fs::remove_file(&ready).is_ok());
        let mut tell = |told: String, series: &mut Series| {
            lost += number(&told, "lost=").unwrap_or(1);
            // In microseconds.
            series.push(Run { ms: number(&told, "p50_ns=").unwrap_or(0) as f64 / 1e3, rss_kb: 0 });
        };
        let handle = host.hosted(&line)?;
        begun()?;
        tell(host.terminal(&["echo", KEYS, &lariat, "attach", &handle])?, &mut ours);
        host.lariat(&["kill", &handle])?;
        let name = host.name("e");
        host.tmux(&["new-session", "-d", "-s", &name, "-x", "120", "-y", "40", &line])?;
        begun()?;
        tell(host.terminal(&["echo", KEYS, "tmux", "-L", "bench", "attach", "-t", &name])?, &mut tmux);
        host.tmux(&["kill-session", "-t", &name])?;
        let socket = host.detached(&line)?.display().to_string();
        begun()?;
        tell(host.terminal(&["echo", KEYS, "dtach", "-a", &socket, "-E", "-r", "none"])?, &mut dtach);
    }
    report.note(format!("keys that did not come back: {lost}"));
    for (name, limit, hold) in [("tmux", &tmux, Some(1.0)), ("dtach", &dtach, None)] {
        report.rows.push(Row { unit: "us", ..Row::times("key echo, p50", &ours, name, limit, hold) });
    }
    Ok(lost == 0)
}

/// Hold 7.
fn memory(host: &Host<'_>, sessions: usize, report: &mut Report) -> io::Result<bool> {
    let idle = "stty -echo; exec cat";
    let filler = "x".repeat(WIDTH - 10);
    let full = format!("stty -echo; seq -f '%g {filler}' {LINES}; exec cat");
    let mut ours = [0.0; 2];
    for (at, line) in [idle, &full].into_iter().enumerate() {
        let handles: Vec<String> = (0..sessions).map(|_| host.hosted(line)).collect::<Result<_, _>>()?;
        for handle in &handles {
            let folder = host.place.join("state/lariat/sessions").join(handle);
            let written = || {
                ["output.0", "output.1"]
                    .map(|n| fs::metadata(folder.join(n)).map_or(0, |m| m.len()))
                    .iter()
                    .sum::<u64>()
            };
            wait_until("the scrollback", || at == 0 || written() > (LINES * (WIDTH - 10)) as u64)?;
        }
        for handle in &handles {
            let shim = host.shim(handle)?;
            for part in ["shim", "keeper"] {
                ours[at] += shim[part]["pid"].as_u64().map_or(Ok(0.0), pss)?;
            }
        }
        ours[at] /= sessions as f64;
        host.lariat(&["kill", "--all", "--yes"])?;
    }
    let sockets: Vec<PathBuf> = (0..sessions).map(|_| host.detached(idle)).collect::<Result<_, _>>()?;
    let hosts = dtach_hosts(&sockets)?;
    let dtach = hosts.iter().map(|pid| pss(*pid)).sum::<io::Result<f64>>()? / sessions as f64;
    let right = hosts.len() == sockets.len();
    end(&hosts)?;
    let server = || -> io::Result<u64> {
        host.tmux(&["display-message", "-p", "#{pid}"])?.trim().parse().map_err(io::Error::other)
    };
    let before = pss(server()?)?;
    for _ in 0..sessions {
        host.tmux(&["new-session", "-d", "-x", "120", "-y", "40", &full])?;
    }
    wait_until("tmux's scrollback", || {
        let told = host.tmux(&["list-panes", "-a", "-F", "#{history_size}"]).unwrap_or_default();
        told.lines().filter(|n| n.parse::<usize>().is_ok_and(|n| n >= LINES - 100)).count() >= sessions
    })?;
    let tmux = (pss(server()?)? - before) / sessions as f64;
    report.note(format!("{sessions} sessions of dtach were found: {}", if right { "yes" } else { "NO" }));
    let row = |name: String, ours: f64, limit_name, limit: f64, hold| Row {
        name,
        unit: "KB",
        ours: [ours; 2],
        limit_name,
        limit: [limit; 2],
        hold: Some(hold),
    };
    report.rows.push(row(format!("PSS of each of {sessions} idle"), ours[0], "dtach", dtach, 2.0));
    report.rows.push(row(format!("PSS with {LINES} lines kept"), ours[1], "tmux", tmux, 0.25));
    Ok(right)
}

/// What a process weighs, in KB.
fn pss(pid: u64) -> io::Result<f64> {
    let told = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = told.lines().find_map(|l| l.strip_prefix("Pss:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().map_err(io::Error::other)
}

/// The processes of dtach that hold these sockets.
fn dtach_hosts(sockets: &[PathBuf]) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let mut words = line.split('\0');
        if words.next() == Some("dtach") && words.any(|w| sockets.iter().any(|s| s.as_os_str() == w)) {
            found.push(pid);
        }
    }
    Ok(found)
}

fn end(pids: &[u64]) -> io::Result<()> {
    let pids: Vec<String> = pids.iter().map(u64::to_string).collect();
    Command::new("kill").args(&pids).status().map(drop)
}
