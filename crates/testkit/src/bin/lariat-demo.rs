//! lariat at work on scripted agents: `lariat demo`, and `make demo` from the sources.
//!
//! It makes a private world with its own HOME, installs the scripted agent of
//! [`lariat_testkit::actor`] there as `claude`, launches several with the real `lariat`, and shows
//! what lariat says of them and does with them: every command is printed before it is run. On a
//! terminal it ends in a shell inside that world. It asks no key and no settings, reaches no
//! network, sees and touches nothing of the user's, and leaves nothing behind.

// As in the library: this program writes files and starts programs freely, in a place of its own.
#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, DirBuilder, File},
    io::{self, IsTerminal, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use lariat_testkit::{
    DEADLINE, Program, Sandbox, Size, Terminal, built, copy_program, put_program, sandbox, wait_until,
};

const USAGE: &str = "\
usage: lariat-demo [--tour]

Shows lariat at work on scripted agents, in a world of their own; on a terminal, ends in a shell
inside that world.

  --tour   only show, without the shell
";

/// What a newcomer may try in the shell at the end.
const CRIB: &str = "
You are in the demo's world now; `exit` ends it with everything in it. Try:

  lariat top                              the screen to live in: ? tells its keys, q leaves
  lariat web                              the page: open the address that it prints in a browser
  lariat                                  what is here, those that need you first
  lariat attach triage                    its terminal: type something, Ctrl-Q leaves it running
  lariat answer orders-v2 'Keep it'       it waits for this, and goes on
  lariat launch claude --name mine -p 'run date'       an agent of your own; `lariat approve mine`
  lariat kill migration; lariat ls -a     ended, with all it started; it stays ended
  lariat -h                               everything else

";

/// Said by this program to the copy of itself that does the work.
const INSIDE: &str = "--inside";
/// How the name of each run's place begins.
const PLACE: &str = "/tmp/lariat-demo-";

/// A tool of the projects that takes its time.
const SLOW: &str = "#!/bin/sh
n=0
while [ $n -lt 900 ]; do n=$((n+1)); echo \"$(basename \"$0\"): step $n of 900\"; sleep 1; done
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        [INSIDE, rest @ ..] => show(!rest.contains(&"--tour")),
        [] | ["--tour"] => in_a_place_of_its_own(&args),
        ["-h" | "--help"] => {
            say(USAGE);
            ExitCode::SUCCESS
        }
        _ => {
            drop(io::stderr().write_all(USAGE.as_bytes()));
            ExitCode::from(2)
        }
    }
}

/// Runs a copy of this program with a directory for its world, and removes that afterwards
/// whatever became of the copy.
fn in_a_place_of_its_own(args: &[&str]) -> ExitCode {
    sweep();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let place = format!("{PLACE}{}-{}", std::process::id(), now.subsec_micros());
    let ended = DirBuilder::new().mode(0o700).create(&place).and_then(|()| {
        // Held for as long as the world is there; see `sweep`.
        let door = File::open(&place)?;
        door.lock()?;
        let this = std::env::current_exe()?;
        let status = Command::new(this).arg(INSIDE).args(args).env(sandbox::PLACE, &place).status();
        fs::remove_dir_all(&place)?;
        status
    });
    match ended {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            drop(writeln!(io::stderr(), "lariat-demo: {place}: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Removes the places of earlier runs that were killed: those that nobody holds.
fn sweep() {
    let own = fs::metadata("/proc/self").map(|m| m.uid()).ok();
    for entry in fs::read_dir("/tmp").into_iter().flatten().flatten() {
        let path = entry.path();
        let ours = path.to_str().is_some_and(|p| p.starts_with(PLACE))
            && entry.metadata().is_ok_and(|m| m.is_dir() && Some(m.uid()) == own);
        if ours && File::open(&path).is_ok_and(|door| door.try_lock().is_ok()) {
            drop(fs::remove_dir_all(path));
        }
    }
}

fn show(stay: bool) -> ExitCode {
    let mut stage = Stage::build();
    stage.plays("an agent works; then the machine loses power, and comes up again");
    stage.types("lariat launch claude --name migration --cwd ~/work/billing -p 'Write the addresses migration'");
    stage.until(&["lariat", "logs", "migration"], "step 1");
    stage.loses_power();
    stage.plays("six more, each in a project of its own");
    for line in LAUNCHES {
        stage.types(line);
    }
    for (name, state) in STATES {
        stage.until(&["lariat", "status", name], state);
    }
    // Until then it can only be answered in its own terminal.
    stage.until(&["lariat", "explain", "release"], "  hook ");
    stage.tour();
    stage.page();
    if stay && io::stdin().is_terminal() && io::stdout().is_terminal() {
        say(CRIB);
        stage.enter(&["bash", "--noprofile", "--norc"], Stdio::inherit(), Stdio::inherit());
    } else {
        say(
            "\nThe agents were scripted, and are gone now, the page with them. On a terminal, the demo ends in a\nshell in their world, with `lariat top` and `lariat web` to look around in.\n",
        );
    }
    ExitCode::SUCCESS
}

const LAUNCHES: [&str; 6] = [
    "lariat launch claude --name release --cwd ~/work/webshop -p 'Prepare release 1.4'",
    "lariat launch claude --name orders-v2 --cwd ~/work/orders -p 'Move the orders API to v2'",
    "lariat launch claude --name parser --cwd ~/work/parser -p 'Let the parser accept trailing commas'",
    "lariat launch claude --name triage --cwd ~/work/inbox -p 'Summarise the open issues by theme'",
    "lariat launch claude --headless --name notes --cwd ~/work/notes -p 'Draft the release notes'",
    "lariat launch claude --headless --name uploads --cwd ~/work/uploads -p 'Retry uploads that time out'",
];

/// What each of them has come to when the tour begins.
const STATES: [(&str, &str); 6] = [
    ("release", "permission: Bash git tag v1.4.0"),
    ("orders-v2", "question: Keep"),
    ("parser", "running Bash ./suite"),
    ("triage", "idle:"),
    ("notes", "done:"),
    ("uploads", "failed:"),
];

fn say(text: &str) {
    let mut out = io::stdout().lock();
    // A reader that went away wants no more.
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// The world and what is in it.
struct Stage {
    sandbox: Sandbox,
    /// HOME as seen from inside.
    home: PathBuf,
}

impl Stage {
    fn build() -> Self {
        let sandbox = Sandbox::new("demo");
        let projects: Vec<PathBuf> = ["webshop", "orders", "parser", "inbox", "notes", "uploads", "billing"]
            .into_iter()
            .map(|name| sandbox.project(name))
            .collect();
        for (project, tool) in [(&projects[2], "suite"), (&projects[6], "migrate")] {
            let path = project.join(tool);
            put_program(&path, SLOW);
        }
        let programs = sandbox.home().join(".local/bin");
        fs::create_dir_all(&programs).expect("a folder for programs");
        for (name, program) in [("claude", "lariat-actor"), ("lariat", "lariat")] {
            copy_program(&built(program), &programs.join(name));
        }
        let mut stage = Self { sandbox, home: PathBuf::new() };
        stage.settle();
        stage
    }

    /// Seen from inside, HOME is /home/dev, so that paths read like anybody's.
    fn settle(&mut self) {
        let mount = "mount -t tmpfs demo /home && mkdir /home/dev && mount --bind \"$0\" /home/dev";
        let outside = self.sandbox.home();
        let mounted = self.sandbox.run([Path::new("sh"), Path::new("-c"), Path::new(mount), &outside]);
        self.home = if mounted.exit.success() { PathBuf::from("/home/dev") } else { outside };
    }

    fn loses_power(&mut self) {
        self.sandbox.reboot();
        self.settle();
        self.plays("(the power is gone, and back)");
    }

    /// The tour: what is here, why, and what can be done about it.
    fn tour(&self) {
        let scenes = [
            ("what is here now, those that need you first", "lariat"),
            ("why does it say that this one waits for me?", "lariat explain release"),
            ("what did it last say, and what does it want?", "lariat peek release"),
            ("it may; the answer reaches it wherever its terminal is", "lariat approve release"),
            (
                "its turn is over when `wait` returns, and the tag is there",
                "lariat wait release; git -C ~/work/webshop tag",
            ),
            (
                "say something to another, and wait for the reply",
                "lariat send triage 'Which one is the oldest?' --wait",
            ),
            ("end the one that runs the suite, with all that it started", "lariat kill parser"),
            ("nothing of it is left", "grep -ls '[s]uite' /proc/[0-9]*/cmdline"),
            ("and here is everything, with what has ended", "lariat ls -a"),
            ("what did the power cut cost? the one that was killed is not among it", "lariat restore"),
            ("bring it back, under its own id", "lariat restore --yes"),
            ("its conversation is back, at its prompt; the killed one stays dead", "lariat ls -a"),
            ("what its terminal showed", "lariat logs migration"),
        ];
        for (comment, line) in scenes {
            self.plays(comment);
            self.types(line);
            if line == "lariat" {
                self.screen();
            }
        }
    }

    /// The terminal screen, as a person has it: run on a terminal of its own, and shown as it looked there.
    fn screen(&self) {
        self.plays("the same as a screen to live in; the first one is chosen, and what it said stands below");
        let line = "lariat top";
        self.says_it_types(line);
        let size = Size { rows: 24, cols: 100 };
        let program = Program::new("lariat", &self.home).arg("top").env("TERM", "xterm-256color");
        let program = self.environment().into_iter().fold(program, |p, (name, value)| p.env(&name, value));
        let terminal = Terminal::start(self.sandbox.world(), &program, size);
        terminal.wait_for_screen("the list, and what one of them said", DEADLINE, |screen| {
            screen.contains("1 cut off") && screen.contains("needs you: ")
        });
        let [dim, _, plain] = styles();
        let edge = |left, right| format!("{dim}{left}{}{right}{plain}\n", "─".repeat(size.cols.into()));
        say(&edge('┌', '┐'));
        for row in terminal.picture().rows(!plain.is_empty()) {
            say(&format!("{dim}│{plain}{row}{dim}│{plain}\n"));
        }
        say(&edge('└', '┘'));
        terminal.type_text("q");
        terminal.wait(DEADLINE);
    }

    /// The page, on this machine's own loopback: a browser outside this world can open it.
    fn page(&self) {
        self.plays("the same in a browser; the address lets one in, once (docs/images has pictures of it)");
        self.types("lariat web");
    }

    /// Says what comes next.
    fn plays(&self, comment: &str) {
        let [dim, _, plain] = styles();
        say(&format!("\n{dim}# {comment}{plain}\n"));
    }

    /// Runs a line in the world on this very terminal, as if it was typed there.
    fn types(&self, line: &str) {
        self.says_it_types(line);
        self.enter(&["bash", "-c", line], Stdio::null(), Stdio::inherit());
    }

    fn says_it_types(&self, line: &str) {
        let [_, bold, plain] = styles();
        say(&format!("{bold}$ {line}{plain}\n"));
    }

    /// Waits until a command says this.
    fn until(&self, argv: &[&str], wanted: &str) {
        wait_until(&format!("{wanted:?} of {argv:?}"), DEADLINE, || {
            let told = self.enter(argv, Stdio::null(), Stdio::piped());
            String::from_utf8_lossy(&told.stdout).contains(wanted)
        });
    }

    /// What programs of this world find in their environment: nothing of the user's but where programs are.
    fn environment(&self) -> Vec<(String, String)> {
        let path = std::env::var("PATH").unwrap_or_default();
        let own = [
            ("HOME", self.home.display().to_string()),
            ("PATH", format!("{}:{path}", self.home.join(".local/bin").display())),
            ("LANG", "C.UTF-8".to_owned()),
        ];
        let colour = std::env::var("NO_COLOR").ok().map(|value| ("NO_COLOR", value));
        own.into_iter().chain(colour).map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn enter(&self, argv: &[&str], stdin: Stdio, stdout: Stdio) -> std::process::Output {
        let pid = self.sandbox.world().init_pid();
        let namespace = |who: &str| fs::read_link(format!("/proc/{who}/ns/user")).ok();
        let mut nsenter = Command::new("nsenter");
        nsenter.args(["--target", &pid.to_string(), "--pid", "--mount"]);
        if namespace("self") != namespace(&pid.to_string()) {
            nsenter.args(["--user", "--preserve-credentials"]);
        }
        nsenter.args(["--", "sh", "-c", "cd && exec \"$@\"", "sh"]).args(argv);
        nsenter.env_clear().envs(self.environment()).env("PS1", "lariat demo \\w $ ");
        nsenter.env("COLUMNS", std::env::var("COLUMNS").unwrap_or("100".into()));
        nsenter.envs(std::env::var_os("TERM").map(|value| ("TERM", value)));
        let child = nsenter.stdin(stdin).stdout(stdout).spawn();
        child.and_then(|child| child.wait_with_output()).expect("nsenter, of util-linux, can be run")
    }
}

fn styles() -> [&'static str; 3] {
    match io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        true => ["\x1b[2m", "\x1b[1m", "\x1b[0m"],
        false => [""; 3],
    }
}
