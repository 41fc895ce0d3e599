//! Asks the real `lariat` and reads its answers.
//!
//! Every listing that a test asks for is also held against the laws that hold in all of them: it
//! is JSON of the known shape, nothing panicked, a session is one row, a process has one session.

use std::{collections::BTreeMap, fs, time::Duration};

use lariat_testkit::{DEADLINE, Exit, Output, Program, Sandbox, wait_for};
use serde_json::Value;

/// The program under test.
pub const LARIAT: &str = env!("CARGO_BIN_EXE_lariat");

/// An id in the shape of both agents', told by its number.
pub fn id(number: u64) -> String {
    format!("{number:08x}-1111-4111-8111-{number:012x}")
}

/// The program with arguments, in the sandbox's project.
pub fn lariat(sandbox: &Sandbox, args: &[&str]) -> Program {
    sandbox.program(LARIAT).args(args)
}

/// Runs `lariat` with these arguments.
#[track_caller]
pub fn ask(sandbox: &Sandbox, args: &[&str]) -> Output {
    let output = sandbox.world().run(&lariat(sandbox, args));
    assert!(!output.stderr.contains("panicked"), "lariat {args:?} panicked: {}", output.stderr);
    output
}

/// Everything there is: `lariat ls -a --json`.
#[track_caller]
pub fn list(sandbox: &Sandbox) -> Answer {
    Answer::of(&ask(sandbox, &["ls", "-a", "--json"]))
}

/// Everything there is, if something of which only the time tells takes so long: `NAME:MS`, see `sys/src/point.rs`.
#[track_caller]
pub fn list_if(sandbox: &Sandbox, takes: &str) -> Answer {
    let program = lariat(sandbox, &["ls", "-a", "--json"]).env("LARIAT_TAKES", takes);
    Answer::of(&sandbox.world().run(&program))
}

/// For [`list_if`]: nobody has come up yet; everybody has.
pub const COMING_UP: &str = "coming-up:86400000";
/// See [`COMING_UP`].
pub const CAME_UP: &str = "coming-up:0";

/// Everything there is, asked from within a shell line that ends in `"$@"`.
#[track_caller]
pub fn list_through(sandbox: &Sandbox, shell: &str) -> Answer {
    Answer::of(&through(sandbox, shell, &["ls", "-a", "--json"]))
}

/// Runs `lariat` from within a shell line that ends in `"$@"`.
#[track_caller]
pub fn through(sandbox: &Sandbox, shell: &str, args: &[&str]) -> Output {
    let program = sandbox.program("sh").args(["-c", shell, "sh", LARIAT]).args(args);
    sandbox.world().run(&program)
}

/// What `lariat` wrote, byte for byte.
pub struct Bytes {
    /// How it ended.
    pub exit: Exit,
    /// To standard output, a pipe.
    pub stdout: Vec<u8>,
    /// To standard error.
    pub stderr: Vec<u8>,
}

/// Runs `lariat` on pipes and gives every byte that came out.
#[track_caller]
pub fn bytes(sandbox: &Sandbox, args: &[&str]) -> Bytes {
    let place = |name: &str| sandbox.root().join("streams").join(name);
    let line = format!(
        "\"$@\" 2>{} | cat >{}; exit ${{PIPESTATUS[0]}}",
        place("bytes.err").display(),
        place("bytes.out").display()
    );
    let program = sandbox.program("bash").args(["-c", &line, "bash", LARIAT]).args(args);
    let exit = sandbox.spawn(&program).wait(DEADLINE);
    let read = |name: &str| fs::read(place(name)).expect("what lariat wrote");
    Bytes { exit, stdout: read("bytes.out"), stderr: read("bytes.err") }
}

/// Runs `lariat` and gives what it wrote with the most memory it ever held, in bytes.
///
/// It writes into a pipe of one page that nobody empties until the kernel has been asked, so it
/// has done all its work and cannot have ended. An answer shorter than that page weighs nothing.
#[track_caller]
pub fn weigh(sandbox: &Sandbox, args: &[&str]) -> (Output, u64) {
    use std::io::Read;
    let fifo = sandbox.root().join("streams/weigh");
    let _ = fs::remove_file(&fifo);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a FIFO");
    let line = format!("exec \"$@\" >{}", fifo.display());
    let program = sandbox.program("sh").args(["-c", &line, "sh", LARIAT]).args(args);
    let child = sandbox.spawn(&program);
    let mut pipe = fs::File::open(&fifo).expect("the FIFO, once lariat has it");
    rustix::pipe::fcntl_setpipe_size(&pipe, 4096).expect("a small pipe");
    let status = format!("/proc/{}/status", child.outside_pid().expect("a live lariat"));
    let most = wait_for("the first page of the answer", DEADLINE, || {
        assert!(child.exit().is_none_or(Exit::success), "no answer: {}", child.stderr());
        (rustix::io::ioctl_fionread(&pipe).expect("a pipe") > 0).then(|| {
            let status = fs::read_to_string(&status).unwrap_or_default();
            let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let peak = peak.unwrap_or("0 kB").trim().trim_end_matches(" kB");
            peak.parse::<u64>().expect("a number") * 1024
        })
    });
    let mut stdout = String::new();
    pipe.read_to_string(&mut stdout).expect("the whole answer");
    let exit = child.wait(DEADLINE);
    (Output { exit, stdout, stderr: child.stderr() }, most)
}

/// One listing.
#[derive(Debug)]
pub struct Answer {
    /// The exit code.
    pub code: i32,
    /// What it complained of.
    pub stderr: String,
    /// The listing as it was printed.
    pub text: String,
    /// The listing.
    pub json: Value,
}

impl Answer {
    /// Reads a listing and holds it against the laws.
    #[track_caller]
    pub fn of(output: &Output) -> Self {
        assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
        let answer = Self {
            code: output.code(),
            stderr: output.stderr.clone(),
            text: output.stdout.clone(),
            json: output.json(),
        };
        answer.hold_against_the_laws();
        answer
    }

    #[track_caller]
    fn hold_against_the_laws(&self) {
        assert_eq!(self.json["schema"], 1);
        assert!([0, 5].contains(&self.code), "exit {}: {}", self.code, self.stderr);
        let mut ids = BTreeMap::new();
        let mut pids = BTreeMap::new();
        for session in self.sessions() {
            // Each machine answers for its own.
            let host = session["host"].to_string();
            let count = ids.entry((host.clone(), session["id"].to_string())).or_insert(0);
            *count += 1;
            assert_eq!(*count, 1, "two rows of {}: {:#}", session["id"], self.json);
            if let Some(pid) = session["pid"].as_u64()
                && session["live"] == true
                && !session["because"].to_string().contains("shared server")
                && let Some(other) = pids.insert((host, pid), session["id"].to_string())
            {
                panic!("process {pid} holds {} and {other}: {:#}", session["id"], self.json);
            }
            let ended = ["done", "failed", "stopped", "interrupted"];
            let status = session["status"].as_str().expect("a status");
            match session["live"].as_bool() {
                Some(true) => assert!(!ended.contains(&status), "alive and {status}: {session:#}"),
                Some(false) => {
                    assert!(ended.contains(&status) || status == "unknown", "gone and {status}: {session:#}")
                }
                None => assert_eq!(status, "unknown", "{session:#}"),
            }
            if status == "unknown" {
                assert_eq!(self.code, 5, "unknown is partly unknown: {session:#}");
            }
        }
    }

    /// Every row.
    pub fn sessions(&self) -> &[Value] {
        self.json["sessions"].as_array().expect("sessions")
    }

    /// The row of a session by its native id.
    pub fn find(&self, native_id: &str) -> Option<&Value> {
        self.sessions().iter().find(|s| s["native_id"] == native_id)
    }

    /// The row of a session that must be there.
    #[track_caller]
    pub fn session(&self, native_id: &str) -> &Value {
        self.find(native_id).unwrap_or_else(|| panic!("no row of {native_id}: {:#}", self.json))
    }

    /// The status of a session that must be there.
    #[track_caller]
    pub fn status(&self, native_id: &str) -> &str {
        self.session(native_id)["status"].as_str().expect("a status")
    }

    /// Checks one row, and shows all of it when it is wrong.
    #[track_caller]
    pub fn expect(&self, native_id: &str, status: &str, pid: Option<i32>) {
        let session = self.session(native_id);
        assert_eq!(session["status"], status, "{session:#}\n{:#}", self.json["warnings"]);
        let live = match status {
            "unknown" => session["live"].as_bool(),
            "waiting" | "working" | "starting" | "idle" => Some(true),
            _ => Some(false),
        };
        assert_eq!(session["live"].as_bool(), live, "{session:#}");
        assert_eq!(session["pid"].as_i64(), pid.map(i64::from), "{session:#}");
        let because = session["because"].as_array().expect("because");
        assert!(!because.is_empty(), "a status without a reason: {session:#}");
    }

    /// The pids of the processes without a known session.
    pub fn unbound(&self) -> Vec<i32> {
        let all = self.json["unbound"].as_array().expect("unbound");
        let pid = |u: &Value| i32::try_from(u["pid"].as_i64().expect("a pid")).expect("a pid");
        all.iter().map(pid).collect()
    }

    /// The warnings, each as one line with its adapter and path.
    pub fn warnings(&self) -> Vec<String> {
        let all = self.json["warnings"].as_array().expect("warnings");
        let text = |v: &Value| v.as_str().unwrap_or("-").to_owned();
        all.iter().map(|w| format!("{} {} {}", text(&w["adapter"]), text(&w["path"]), text(&w["error"]))).collect()
    }

    /// Whether a warning names a file by the end of its path.
    pub fn warns_of(&self, end: &str) -> bool {
        let all = self.json["warnings"].as_array().expect("warnings");
        all.iter().any(|w| w["path"].as_str().is_some_and(|path| path.ends_with(end)))
    }

    /// The answer as text, without the moment it was given.
    pub fn timeless(&self) -> String {
        let at = self.json["at"].as_str().expect("a moment");
        self.text.replacen(&format!("\"at\":\"{at}\""), "\"at\":\"NOW\"", 1) // of others it may be the moment too
    }
}

/// Waits until every file is old enough that its time stamp tells its version.
pub fn settle(files: &[std::path::PathBuf]) {
    wait_for("the files to be older than a time stamp's grain", DEADLINE, || {
        let old = |f: &std::path::PathBuf| crate::moment::age(f) > Duration::from_millis(100);
        files.iter().all(old).then_some(())
    });
}
