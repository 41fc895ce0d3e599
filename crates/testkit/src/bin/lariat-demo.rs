//! lariat at work on scripted agents: `make demo`.
//!
//! It makes a private world with its own HOME, starts processes that look like Claude Code and
//! Codex in every state a person meets, and shows what lariat says of them. It asks no key and no
//! settings, reaches no network, sees and touches nothing of the user's, and leaves nothing behind.
//! With `--stay` it ends in a shell inside that world, for trying more.
//!
//! The stores are written by [`store`]; the agents are [`Lookalike`]s, so their PIDs, start times,
//! children and locks are real, and the one that is killed is really killed.

// As in the library: this program writes files and starts programs freely, in a place of its own.
#![allow(clippy::disallowed_methods)]

#[path = "../demo/store.rs"]
mod store;

use std::{
    fs::{self, DirBuilder},
    io::{self, IsTerminal, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use lariat_testkit::{DEADLINE, Lookalike, Sandbox, Signal, Stdin, built, sandbox};
use serde_json::json;
use store::{Claude, Codex, Home};

const USAGE: &str = "\
usage: lariat-demo [--stay]

Shows lariat at work on scripted agents, in a world of their own.

  --stay   end in a shell inside that world, to try lariat by hand
";

/// Said by this program to the copy of itself that does the work.
const INSIDE: &str = "--inside";
/// Each run has a place of this name and its pid.
const PLACE: &str = "/tmp/lariat-demo-";

const LOOKALIKE: &str = "lariat-lookalike";

const CHECKOUT: &str = "3f0c2b7e-58d1-4c6a-9b1f-0f6f0d8c1a42";
const ORDERS: &str = "b81d4c09-6a52-4f0e-8a77-2c9be1f3d560";
const PARSER: &str = "7e94a1d3-0c2f-4b8d-b3e6-91c5f2a7084b";
const NOTES: &str = "c5a2f6b0-9e13-47d8-8f4c-6d0b7e21a9f3";
const MIGRATE: &str = "e1d70f4a-3b96-4c25-a8d0-5f7c9b16e284";
const CHANGELOG: &str = "94b3e8c7-1f60-4d2a-9c5e-8a7d0b2f6e13";
const UPLOAD: &str = "2a6f9d15-c4e7-4083-b92d-7e1f5a0c8d64";
const IMPORTS: &str = "019a8f10-2b4c-7d31-8a95-4f6e0c1d2b73";
const COMPOSE: &str = "019a8f0e-6d1f-7a42-b3c8-9e5d7f0a1c26";
const DEPS: &str = "019a8ed2-81c5-7f03-9d6a-1b4e8c7f2a50";
const RENAME: &str = "019a8eb7-4e9a-7c14-a5f2-6d0c3b8e9f17";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        [INSIDE, rest @ ..] => show(rest.contains(&"--stay")),
        [] | ["--stay"] => in_a_place_of_its_own(&args),
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
    let place = format!("{PLACE}{}", std::process::id());
    let ended = DirBuilder::new().mode(0o700).create(&place).and_then(|()| {
        let this = std::env::current_exe()?;
        Command::new(this).arg(INSIDE).args(args).env(sandbox::PLACE, &place).status()
    });
    drop(fs::remove_dir_all(&place));
    match ended {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            drop(writeln!(io::stderr(), "lariat-demo: {place}: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Removes the places of earlier runs that were killed.
fn sweep() {
    let own = fs::metadata("/proc/self").map(|m| m.uid()).ok();
    for entry in fs::read_dir("/tmp").into_iter().flatten().flatten() {
        let path = entry.path();
        let pid = path.to_str().and_then(|p| p.strip_prefix(PLACE)).and_then(|pid| pid.parse::<u32>().ok());
        let ours = entry.metadata().is_ok_and(|m| m.is_dir() && Some(m.uid()) == own);
        if ours && pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            drop(fs::remove_dir_all(path));
        }
    }
}

fn show(stay: bool) -> ExitCode {
    let stage = Stage::build();
    let cast = cast(&stage);
    stage.plays("what is here now, those that need you first", &["lariat"]);
    stage.plays("the same with what has ended", &["lariat", "ls", "-a"]);
    stage.plays("why does it say that this one waits for me?", &["lariat", "explain", "fix-checkout"]);
    stage.plays("this one was killed in mid-turn; its registry still says busy", &["lariat", "explain", &MIGRATE[..6]]);
    stage.plays("what did it last say, and what does it want?", &["lariat", "peek", "fix-checkout"]);
    stage.plays("how many need me? (for a prompt or a status bar)", &["lariat", "status", "-q"]);
    stage.plays("what does this machine offer?", &["lariat", "doctor"]);
    if stay {
        stage.shell();
    } else {
        say("\nThe agents were scripted. Try it by hand: target/release/lariat-demo --stay\n");
    }
    drop(cast);
    ExitCode::SUCCESS
}

fn say(text: &str) {
    let mut out = io::stdout().lock();
    // A reader that went away wants no more.
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// The world and what is in it.
struct Stage {
    sandbox: Sandbox,
    home: Home,
}

impl Stage {
    fn build() -> Self {
        let sandbox = Sandbox::new("demo");
        for project in ["webshop", "parser", "notes", "infra"] {
            sandbox.project(project);
        }
        let programs = [("bin/claude", LOOKALIKE), ("bin/codex", LOOKALIKE), ("bin/lariat", "lariat")];
        let tools = [("tools/cargo", LOOKALIKE), ("tools/make", LOOKALIKE)];
        for (name, program) in programs.into_iter().chain(tools) {
            let path = sandbox.home().join(".local").join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder for programs");
            fs::copy(built(program), path).expect("a program in the demo's home");
        }
        // Seen from inside, HOME is /home/dev, so that paths read like anybody's.
        let mount = "mount -t tmpfs demo /home && mkdir /home/dev && mount --bind \"$0\" /home/dev";
        let outside = sandbox.home();
        let mounted = sandbox.run([Path::new("sh"), Path::new("-c"), Path::new(mount), &outside]);
        let inside = if mounted.exit.success() { PathBuf::from("/home/dev") } else { outside.clone() };
        let home = Home { outside, inside };
        for (name, value) in home_environment(&home) {
            sandbox.env(name, value);
        }
        Self { sandbox, home }
    }

    /// Starts a process that looks like this agent, in a project.
    fn start(&self, name: &str, args: &[&str], project: &str) -> Lookalike {
        self.start_as(&format!("bin/{name}"), name, args, project)
    }

    /// Starts a process whose executable may be another than the name it is called by: its
    /// children are then named after the executable, as an agent's tools are.
    fn start_as(&self, executable: &str, name: &str, args: &[&str], project: &str) -> Lookalike {
        let program = self.sandbox.program(self.home.inside.join(".local").join(executable));
        let program = program.arg0(name).args(args).stdin(Stdin::Pipe).cwd(self.home.project(project));
        Lookalike::start(&self.sandbox, &program)
    }

    /// Runs a command in the world on this very terminal, as if it was typed there.
    fn plays(&self, comment: &str, argv: &[&str]) {
        let (dim, bold, plain) = match io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
            true => ("\x1b[2m", "\x1b[1m", "\x1b[0m"),
            false => ("", "", ""),
        };
        say(&format!("\n{dim}# {comment}{plain}\n{bold}$ {}{plain}\n", argv.join(" ")));
        self.enter(argv);
    }

    fn enter(&self, argv: &[&str]) {
        let pid = self.sandbox.world().init_pid();
        let namespace = |who: &str| fs::read_link(format!("/proc/{who}/ns/user")).ok();
        let mut nsenter = Command::new("nsenter");
        nsenter.args(["--target", &pid.to_string(), "--pid", "--mount"]);
        if namespace("self") != namespace(&pid.to_string()) {
            nsenter.args(["--user", "--preserve-credentials"]);
        }
        nsenter.args(["--", "sh", "-c", "cd \"$0\" && exec \"$@\"", &self.home.project("webshop")]).args(argv);
        nsenter.env_clear().envs(home_environment(&self.home));
        let path = std::env::var("PATH").unwrap_or_default();
        nsenter.env("PATH", format!("{}:{path}", self.home.inside.join(".local/bin").display()));
        nsenter.env("LANG", "C.UTF-8").env("COLUMNS", std::env::var("COLUMNS").unwrap_or("100".into()));
        for name in ["TERM", "NO_COLOR"] {
            nsenter.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        nsenter.env("PS1", "demo:\\w\\$ ");
        nsenter.status().expect("nsenter, of util-linux, can be run");
    }

    fn shell(&self) {
        say("\nThis shell is inside the demo's world; `exit` ends it and everything in it.\n\
             Try: lariat -h, lariat ls --json, lariat status ., kill -9 one of the agents and look again.\n\n");
        self.enter(&["bash", "--noprofile", "--norc"]);
    }
}

fn home_environment(home: &Home) -> [(&'static str, PathBuf); 2] {
    [("HOME", home.inside.clone()), ("XDG_CACHE_HOME", home.inside.join(".cache"))]
}

/// Everybody who plays, each in a state of its own. They live until this is dropped.
fn cast(stage: &Stage) -> Vec<Lookalike> {
    let mut cast = claude_at_work(stage);
    cast.extend(claude_gone(stage));
    cast.extend(codex(stage));
    // In a directory where no session was ever recorded: nothing tells what it is at.
    cast.push(stage.start("claude", &[], "infra"));
    cast
}

fn claude_at_work(stage: &Stage) -> Vec<Lookalike> {
    let home = &stage.home;
    let asks = stage.start("claude", &[], "webshop");
    Claude::new(home, CHECKOUT, "webshop", "fix/flaky-checkout")
        .asked(412, "The checkout test fails about one run in ten. Find out why and fix it.")
        .named("fix-checkout")
        .calls(398, "I'll run it until it fails.", "Bash", json!({"command": "npm test -- checkout --repeat 40"}))
        .result(301, "1 failed, 39 passed: expected 2 items in the cart, got 1")
        .calls(
            252,
            "The test clicks “Pay” before the second item's request has come back; it only passes when the \
             server is quick. I wait for the cart's count instead, and ran it 200 times without a failure.\n\n\
             I'd like to push the branch.",
            "Bash",
            json!({"command": "git push origin fix/flaky-checkout"}),
        )
        .registered(&asks, "waiting", Some("permission prompt"), 251);

    let question = stage.start("claude", &[], "webshop");
    Claude::new(home, ORDERS, "webshop", "orders-v2")
        .asked(1620, "Move the orders API to v2.")
        .calls(
            1500,
            "Two clients still call the old route.",
            "AskUserQuestion",
            json!({"questions": [{"question": "Keep /v1/orders as an alias, or remove it?",
                "options": [{"label": "Keep it"}, {"label": "Remove it"}]}]}),
        )
        .registered(&question, "waiting", Some("input needed"), 1499);

    let works = stage.start_as("tools/cargo", "claude", &[], "parser");
    Claude::new(home, PARSER, "parser", "main")
        .asked(96, "Make the parser accept trailing commas, with tests.")
        .calls(64, "The grammar is done.", "Edit", json!({"file_path": "src/list.rs"}))
        .result(63, "The file was updated.")
        .calls(8, "Now the whole suite.", "Bash", json!({"command": "cargo test"}))
        .registered(&works, "busy", None, 95);
    works.spawn(&[("CLAUDE_CODE_SESSION_ID", PARSER), ("CLAUDE_PID", &works.pid().to_string())]);

    let rests = stage.start("claude", &[], "notes");
    Claude::new(home, NOTES, "notes", "main")
        .asked(2900, "Summarise the open issues by theme.")
        .answered(2840, "Four themes: import errors (9), slow search (5), dark mode (3), typos (2).")
        .registered(&rests, "idle", None, 2839);
    vec![asks, question, works, rests]
}

fn claude_gone(stage: &Stage) -> Vec<Lookalike> {
    let home = &stage.home;
    let killed = stage.start("claude", &[], "webshop");
    Claude::new(home, MIGRATE, "webshop", "main")
        .asked(3700, "Write the migration for the new addresses table.")
        .calls(3610, "First the schema.", "Bash", json!({"command": "npm run migrate:dry"}))
        .registered(&killed, "busy", None, 3609);
    killed.signal(Signal::KILL);
    killed.wait(DEADLINE);

    Claude::new(home, CHANGELOG, "notes", "main")
        .asked(9200, "Draft the release notes from the commits since the last tag.")
        .answered(9100, "Drafted in CHANGELOG.md: 3 features, 7 fixes.")
        .left();

    let other = stage.start_as("tools/make", "make", &["all"], "parser");
    Claude::new(home, UPLOAD, "webshop", "uploads")
        .asked(12_400, "Retry uploads that time out.")
        .calls(12_300, "May I try it against the staging bucket?", "Bash", json!({"command": "npm run e2e:upload"}))
        .was_registered(&other, "waiting", Some("permission prompt"), 12_299);
    vec![other]
}

fn codex(stage: &Stage) -> Vec<Lookalike> {
    let home = &stage.home;
    let works = stage.start_as("tools/cargo", "codex", &["--no-daemon"], "parser");
    let thread = Codex::new(home, IMPORTS, "parser", "main", 75)
        .asked(74, "Find unused imports and remove them.")
        .calls(60, "cargo clippy --message-format short")
        .output(33, "14 warnings")
        .says(30, "Fourteen, in five files. I remove them and build again.")
        .calls(12, "cargo build --all-targets")
        .held_by(&works);
    let mark = thread.mark();
    works.spawn(&mark.each_ref().map(|(name, value)| (*name, value.as_str())));

    let asks = stage.start("codex", &["--no-daemon"], "notes");
    Codex::new(home, COMPOSE, "notes", "search", 540)
        .asked(539, "Measure the search with a database of real size.")
        .says(500, "I need the test database for that.")
        .calls(498, "docker compose up -d db")
        .held_by(&asks);

    Codex::new(home, DEPS, "webshop", "main", 7300)
        .asked(7299, "Update the dependencies, one commit each.")
        .calls(7200, "npm outdated")
        .failed(7100, "stream disconnected before completion: 503 Service Unavailable");
    Codex::new(home, RENAME, "parser", "main", 15_000)
        .asked(14_999, "Rename Token to Lexeme everywhere.")
        .aborted(14_950);
    vec![works, asks]
}
