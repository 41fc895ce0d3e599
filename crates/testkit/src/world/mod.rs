//! A private world for the processes of one test: a PID and a mount namespace of its own.
//!
//! PID 1 in there is `lariat-world` ([`init`]). The test talks to it over a socket pair and passes
//! the standard streams of each program along, so terminals and pipes are held by the test itself.
//! Loopback is shared, so a [`Model`](crate::Model) in the test can be reached.
//!
//! Nothing escapes: when a [`World`] is dropped, or the test process dies in any way, PID 1 goes
//! and the kernel ends every process in the namespace, double-forked or not. Nothing here looks a
//! process up by name, and every signal goes through a pidfd.

pub mod init;
mod process;
mod program;
mod wire;

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

pub use process::{Process, Signal};
use program::text;
pub use program::{Exit, Output, Program, Stdin};
use serde_json::{Value, json};

use crate::{DEADLINE, built, forking};

/// The running world.
pub struct World {
    unshare: std::process::Child,
    link: Arc<Link>,
    reader: Option<JoinHandle<()>>,
    init: Arc<OwnedFd>,
    init_pid: i32,
    streams: PathBuf,
    next: AtomicUsize,
}

/// The test's end of the socket, shared with the children that wait for their exits.
struct Link {
    socket: OwnedFd,
    /// One request at a time; the answers come in order.
    answers: Mutex<Receiver<(Value, Vec<OwnedFd>)>>,
    exits: Mutex<Exits>,
    exited: Condvar,
}

#[derive(Default)]
struct Exits {
    by_pid: HashMap<i32, Exit>,
    over: bool,
}

/// Where a world is made and what it must be able to see.
pub(crate) struct Ground<'a> {
    /// Becomes `/tmp`.
    pub tmp: &'a Path,
    /// Where the captured streams go.
    pub streams: &'a Path,
    /// A file to read the boot id from, or the machine's own.
    pub boot_id: Option<&'a Path>,
    /// Paths that stay visible even under `/tmp`.
    pub keep: Vec<PathBuf>,
}

const POISON: &str = "no thread of the world panics while it holds a lock";

impl World {
    pub(crate) fn start(ground: &Ground<'_>) -> Self {
        let mut complaints = Vec::new();
        // Plain first; where that is not allowed, as root of a user namespace of its own.
        for extra in [&[][..], &["--user", "--map-root-user"][..]] {
            match Self::try_start(ground, extra) {
                Ok(world) => return world,
                Err(complaint) => complaints.push(complaint),
            }
        }
        panic!(
            "a private world for the test could not be made: it needs util-linux `unshare` and \
             either root with CAP_SYS_ADMIN or unprivileged user namespaces\n  as is: {}\n  \
             in a user namespace: {}",
            complaints[0].trim(),
            complaints[1].trim()
        );
    }

    fn try_start(ground: &Ground<'_>, extra: &[&str]) -> Result<Self, String> {
        let (ours, theirs) = wire::pair().expect("a socket pair");
        let log = ground.streams.join("world.log");
        let stderr = File::create(&log).expect("the world's log");
        let unshare = forking::start(
            Command::new("unshare")
                .args(["--fork", "--pid", "--mount", "--mount-proc", "--kill-child=KILL"])
                .args(extra)
                .arg("--")
                .arg(built("lariat-world"))
                .arg("--init")
                .arg(ground.tmp)
                .arg(ground.boot_id.unwrap_or(Path::new("")))
                .args(&ground.keep)
                .env_clear()
                .env("PATH", std::env::var_os("PATH").unwrap_or_default())
                .stdin(Stdio::from(theirs))
                .stdout(Stdio::null())
                .stderr(stderr),
        );
        let mut unshare = unshare.map_err(|e| format!("unshare: {e}"))?;
        let (ready, mut fds) = match wire::receive(&ours) {
            Ok(Some(packet)) => packet,
            other => {
                drop(unshare.wait());
                let said = fs::read_to_string(&log).unwrap_or_default();
                return Err(format!("{said} {}", other.err().map_or(String::new(), |e| e.to_string())));
            }
        };
        assert_eq!(
            ready["ready"],
            wire::PROTOCOL,
            "lariat-world is older than this test: run `cargo build -p lariat-testkit --bins`"
        );
        let init = Arc::new(fds.pop().expect("the pidfd of PID 1"));
        let (sender, answers) = channel();
        let link = Arc::new(Link {
            socket: ours,
            answers: Mutex::new(answers),
            exits: Mutex::default(),
            exited: Condvar::new(),
        });
        let reader = thread::spawn({
            let link = Arc::clone(&link);
            move || link.read(&sender)
        });
        Ok(Self {
            unshare,
            reader: Some(reader),
            init_pid: process::outside_pid(&init).expect("PID 1 as seen from outside"),
            init,
            link,
            streams: ground.streams.to_owned(),
            next: AtomicUsize::new(0),
        })
    }

    /// Starts a program with its output captured in files.
    ///
    /// # Panics
    /// When the world is over. A program that cannot be run exits with 127 and says why.
    pub fn spawn(&self, program: &Program) -> Child {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let stream = |name: &str| self.streams.join(format!("{number}.{name}"));
        let create = |path: &Path| File::create(path).expect("a file for a program's output");
        let (stdout, stderr) = (stream("stdout"), stream("stderr"));
        let (input, stdin) = match &program.stdin {
            Stdin::Null => (OwnedFd::from(File::open("/dev/null").expect("/dev/null")), None),
            Stdin::Pipe => {
                let (reader, writer) = io::pipe().expect("a pipe");
                (OwnedFd::from(reader), Some(writer))
            }
            Stdin::Bytes(bytes) => {
                fs::write(stream("stdin"), bytes).expect("a file for a program's input");
                let file = File::open(stream("stdin")).expect("a program's input");
                (OwnedFd::from(file), None)
            }
        };
        let (out, err) = (create(&stdout), create(&stderr));
        let (pid, pidfd) = self.ask(program, false, &[input.as_fd(), out.as_fd(), err.as_fd()]);
        Child { process: self.child(pid, pidfd, program), stdout, stderr, stdin: Mutex::new(stdin) }
    }

    /// Starts a program on a terminal whose other end the caller holds.
    pub(crate) fn spawn_on_terminal(&self, program: &Program, slave: &OwnedFd) -> Running {
        let (pid, pidfd) = self.ask(program, true, &[slave.as_fd(); 3]);
        self.child(pid, pidfd, program)
    }

    fn ask(&self, program: &Program, tty: bool, fds: &[BorrowedFd<'_>; 3]) -> (i32, OwnedFd) {
        let packet = json!({"spawn": {"argv": program.argv, "arg0": program.arg0,
            "env": program.env, "cwd": text(&program.cwd), "tty": tty}});
        let answers = self.link.answers.lock().expect(POISON);
        wire::send(&self.link.socket, &packet, fds).expect("the world is there");
        let (answer, mut fds) = answers.recv_timeout(DEADLINE).expect("the world answers");
        drop(answers);
        let pid = answer["spawned"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        match (pid, fds.pop()) {
            (Some(pid), Some(pidfd)) => (pid, pidfd),
            _ => panic!("the world refused {:?}: {answer}", program.argv),
        }
    }

    fn child(&self, pid: i32, pidfd: OwnedFd, program: &Program) -> Running {
        Running {
            pid,
            outside: process::outside_pid(&pidfd),
            pidfd,
            link: Arc::clone(&self.link),
            name: program.argv.join(" "),
        }
    }

    /// Runs a program to its end.
    ///
    /// # Panics
    /// When it does not end within [`DEADLINE`].
    #[track_caller]
    pub fn run(&self, program: &Program) -> Output {
        self.spawn(program).output(DEADLINE)
    }

    /// Every process in the world but PID 1, as seen from outside, oldest first.
    pub fn processes(&self) -> Vec<Process> {
        process::in_namespace_of(self.init_pid)
    }

    /// The process with this pid in the world, if there is one.
    pub fn process(&self, pid: i32) -> Option<Process> {
        self.processes().into_iter().find(|process| process.pid == pid)
    }

    /// PID 1, as seen from outside.
    pub fn init_pid(&self) -> i32 {
        self.init_pid
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = process::signal(&self.init, Signal::KILL);
        // PID 1 can be waited for only when the last process of its namespace is gone.
        drop(self.unshare.wait());
        if let Some(reader) = self.reader.take() {
            drop(reader.join());
        }
    }
}

impl Link {
    fn read(&self, answers: &Sender<(Value, Vec<OwnedFd>)>) {
        while let Ok(Some((packet, fds))) = wire::receive(&self.socket) {
            let number = |key: &str| packet[key].as_i64().and_then(|n| i32::try_from(n).ok());
            let Some(pid) = number("exited") else {
                // The receiver lives in this same link.
                drop(answers.send((packet, fds)));
                continue;
            };
            let exit = match (number("code"), number("signal")) {
                (Some(code), _) => Exit::Code(code),
                (_, signal) => Exit::Signal(signal.unwrap_or_default()),
            };
            self.exits.lock().expect(POISON).by_pid.insert(pid, exit);
            self.exited.notify_all();
        }
        self.exits.lock().expect(POISON).over = true;
        self.exited.notify_all();
    }
}

/// A program that was started in the world, however its streams are connected.
pub struct Running {
    pid: i32,
    outside: Option<i32>,
    pidfd: OwnedFd,
    link: Arc<Link>,
    name: String,
}

impl Running {
    /// Its pid in the world.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Its pid as the test process sees it; `None` if it had ended before that could be read.
    pub fn outside_pid(&self) -> Option<i32> {
        self.outside
    }

    /// Sends it a signal. A program that is gone already is left alone.
    pub fn signal(&self, signal: Signal) {
        match process::signal(&self.pidfd, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => panic!("signal {signal:?} to {}: {error}", self.name),
        }
    }

    /// How it ended, if it has.
    pub fn exit(&self) -> Option<Exit> {
        self.link.exits.lock().expect(POISON).by_pid.get(&self.pid).copied()
    }

    /// Blocks until it has ended.
    ///
    /// # Panics
    /// When `deadline` passes first, or the world ends.
    #[track_caller]
    pub fn wait(&self, deadline: Duration) -> Exit {
        let end = Instant::now() + deadline;
        let mut exits = self.link.exits.lock().expect(POISON);
        loop {
            if let Some(exit) = exits.by_pid.get(&self.pid) {
                return *exit;
            }
            let left = end.saturating_duration_since(Instant::now());
            if exits.over || left.is_zero() {
                drop(exits);
                panic!("waited {deadline:?} in vain for the end of {}", self.name);
            }
            exits = self.link.exited.wait_timeout(exits, left).expect(POISON).0;
        }
    }
}

/// A program whose output is captured.
pub struct Child {
    process: Running,
    stdout: PathBuf,
    stderr: PathBuf,
    stdin: Mutex<Option<io::PipeWriter>>,
}

impl std::ops::Deref for Child {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.process
    }
}

impl Child {
    /// What it has written so far.
    pub fn stdout(&self) -> String {
        read_lossy(&self.stdout)
    }

    /// What it has complained of so far.
    pub fn stderr(&self) -> String {
        read_lossy(&self.stderr)
    }

    /// Writes one line to its input, which must be [`Stdin::Pipe`].
    ///
    /// # Panics
    /// When it has no such input, or does not read it any more.
    #[track_caller]
    pub fn write_line(&self, line: &str) {
        let mut stdin = self.stdin.lock().expect(POISON);
        let pipe = stdin.as_mut().expect("a program with Stdin::Pipe, not closed yet");
        pipe.write_all(format!("{line}\n").as_bytes()).expect("a program that reads its input");
    }

    /// Ends its input.
    pub fn close_stdin(&self) {
        self.stdin.lock().expect(POISON).take();
    }

    /// Waits until what it wrote contains `wanted`, and returns all of it.
    ///
    /// # Panics
    /// When `deadline` passes first.
    #[track_caller]
    pub fn wait_for_stdout(&self, wanted: &str, deadline: Duration) -> String {
        let what = format!("{wanted:?} from {}", self.name);
        crate::wait_for(&what, deadline, || Some(self.stdout()).filter(|out| out.contains(wanted)))
    }

    /// Blocks until it has ended, and returns what it left.
    ///
    /// # Panics
    /// When `deadline` passes first.
    #[track_caller]
    pub fn output(&self, deadline: Duration) -> Output {
        let exit = self.wait(deadline);
        Output { exit, stdout: self.stdout(), stderr: self.stderr() }
    }
}

fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
