//! Codex, the real native program (not its node wrapper).
//!
//! Its configuration names the scripted model as the provider and trusts the sandbox's projects.
//! It asks a person on request only (`ESCALATE`), and its commands may write in the project.

use std::{
    fs,
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{KEY, files_below, installed, node_modules, stay_at_home, version, wait_for_file};
use crate::{Child, Model, Program, Sandbox, Terminal};

/// Whether a terminal's threads are held by the shared daemon, as codex does by default, or by the
/// program on the terminal itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Daemon {
    /// One is started and used.
    Shared,
    /// `--no-daemon`.
    None,
}

/// Codex in one sandbox.
pub struct Codex<'a> {
    sandbox: &'a Sandbox,
}

impl<'a> Codex<'a> {
    /// Makes `codex` work in this sandbox, with its default project trusted.
    ///
    /// # Panics
    /// When the program is not installed.
    pub fn install(sandbox: &'a Sandbox, model: &Model) -> Self {
        stay_at_home(sandbox);
        sandbox.install("codex", &native());
        sandbox.env("SCRIPTED_KEY", KEY);
        let codex = Self { sandbox };
        fs::create_dir_all(codex.store()).expect("codex's store");
        let config = format!(
            r#"model = "gpt-5.1-codex"
model_provider = "scripted"
approval_policy = "on-request"
sandbox_mode = "workspace-write"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.scripted]
name = "scripted"
base_url = "{}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1
"#,
            model.url()
        );
        fs::write(codex.config(), config).expect("codex's configuration");
        codex.trust(&sandbox.work());
        codex
    }

    fn config(&self) -> PathBuf {
        self.store().join("config.toml")
    }

    /// Answers the question whether this project is trusted, before it is asked.
    pub fn trust(&self, project: &Path) {
        self.configure(&format!("[projects.{project:?}]\ntrust_level = \"trusted\"\n"));
    }

    /// Adds a table to its configuration.
    pub fn configure(&self, toml: &str) {
        let mut config = OpenOptions::new().append(true).open(self.config()).expect("codex's configuration");
        config.write_all(format!("\n{toml}").as_bytes()).expect("codex's configuration");
    }

    /// Makes `codex-acp` work, which speaks ACP for it.
    ///
    /// # Panics
    /// When the program is not installed.
    pub fn speak_acp(&self) {
        self.sandbox.install("codex-acp", &installed("@agentclientprotocol/codex-acp/dist/index.js"));
        self.sandbox.env("NO_BROWSER", "1");
    }

    /// The version that is installed.
    pub fn version() -> String {
        version("@openai/codex")
    }

    /// The program, without arguments, in the default project.
    pub fn program(&self) -> Program {
        self.sandbox.program("codex")
    }

    /// One prompt without a terminal: `codex exec --json`, one event per line on stdout.
    pub fn exec(&self, prompt: &str, args: &[&str]) -> Child {
        let program = self.program().args(["exec", "--json"]).args(args).arg(prompt);
        self.sandbox.spawn(&program)
    }

    /// On a terminal.
    pub fn terminal(&self, daemon: Daemon, args: &[&str]) -> Terminal {
        let program = match daemon {
            Daemon::None => self.program().arg("--no-daemon"),
            Daemon::Shared => self.program(),
        };
        self.sandbox.terminal(&program.args(args))
    }

    /// Its store.
    pub fn store(&self) -> PathBuf {
        self.sandbox.home().join(".codex")
    }

    /// The rollouts of its threads, oldest first.
    pub fn rollouts(&self) -> Vec<PathBuf> {
        files_below(&self.store().join("sessions"), ".jsonl")
    }

    /// Waits until some rollout holds this text, and returns its path.
    ///
    /// # Panics
    /// When `deadline` passes first.
    #[track_caller]
    pub fn wait_for_rollout(&self, text: &str, deadline: Duration) -> PathBuf {
        wait_for_file(text, deadline, || self.rollouts())
    }
}

/// The native program, for whichever platform npm installed.
fn native() -> PathBuf {
    installed("@openai/codex");
    let vendors = files_below(&node_modules().join("@openai"), "/bin/codex");
    let vendor = vendors.into_iter().find(|path| path.to_string_lossy().contains("/vendor/"));
    vendor
        .expect("codex's native program is missing: run `make agents`")
        .canonicalize()
        .expect("a file that exists has a canonical path")
}
