//! Claude Code, the real program.
//!
//! It writes only what the program itself would have written on a first run that went well. It
//! never sets a permission mode: the program's own default stays, and a test that wants prompts
//! says `--permission-mode manual`.

use std::{fs, path::Path, path::PathBuf, time::Duration};

use serde_json::{Value, json};

use super::{KEY, files_below, installed, openclaw, stay_at_home, version, wait_for_file};
use crate::{Child, Model, Program, Sandbox, Terminal, put_program, wait_for};

/// Claude Code in one sandbox.
pub struct Claude<'a> {
    sandbox: &'a Sandbox,
}

impl<'a> Claude<'a> {
    /// Makes `claude` work in this sandbox, with its default project trusted.
    ///
    /// # Panics
    /// When the program is not installed.
    pub fn install(sandbox: &'a Sandbox, model: &Model) -> Self {
        stay_at_home(sandbox);
        sandbox.install("claude", &installed("@anthropic-ai/claude-code/bin/claude.exe"));
        sandbox.env("ANTHROPIC_BASE_URL", model.url());
        sandbox.env("ANTHROPIC_API_KEY", KEY);
        // Root is allowed to skip permissions only in what says it is a sandbox.
        sandbox.env("IS_SANDBOX", "1");
        for off in [
            "DISABLE_TELEMETRY",
            "DISABLE_AUTOUPDATER",
            "DISABLE_ERROR_REPORTING",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        ] {
            sandbox.env(off, "1");
        }
        let claude = Self { sandbox };
        claude.write_settings(&json!({
            "hasCompletedOnboarding": true,
            "theme": "dark",
            "customApiKeyResponses": {"approved": [KEY], "rejected": []},
            "projects": {},
        }));
        claude.trust(&sandbox.work());
        claude
    }

    fn settings(&self) -> PathBuf {
        self.sandbox.home().join(".claude.json")
    }

    fn write_settings(&self, settings: &Value) {
        fs::write(self.settings(), settings.to_string()).expect("claude's settings");
    }

    /// Answers the question whether this project is trusted, before it is asked.
    pub fn trust(&self, project: &Path) {
        let text = fs::read_to_string(self.settings()).expect("claude's settings");
        let mut settings: Value = serde_json::from_str(&text).expect("claude's settings");
        let project = project.to_str().expect("a UTF-8 path");
        settings["projects"][project] = json!({"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true});
        self.write_settings(&settings);
    }

    /// Makes `claude-agent-acp` work too. It brings a Claude Code of its own, and runs with the Node that is
    /// pinned with OpenClaw.
    ///
    /// # Panics
    /// When the program is not installed.
    pub fn speak_acp(&self) {
        let program = installed("@agentclientprotocol/claude-agent-acp/dist/index.js");
        let path = self.sandbox.root().join("claude-agent-acp");
        let script = format!("#!/bin/sh\nexec '{}' '{}' \"$@\"\n", openclaw::node().display(), program.display());
        put_program(&path, script);
        self.sandbox.install("claude-agent-acp", &path);
        self.sandbox.env("NO_BROWSER", "1");
    }

    /// The version that is installed.
    pub fn version() -> String {
        version("@anthropic-ai/claude-code")
    }

    /// The program, without arguments, in the default project.
    pub fn program(&self) -> Program {
        self.sandbox.program("claude")
    }

    /// One prompt without a terminal: `claude -p`, one JSON event per line on stdout.
    pub fn headless(&self, prompt: &str, args: &[&str]) -> Child {
        let program = self.program().args(["-p", prompt, "--output-format", "stream-json"]);
        self.sandbox.spawn(&program.arg("--verbose").args(args))
    }

    /// On a terminal.
    pub fn terminal(&self, args: &[&str]) -> Terminal {
        self.sandbox.terminal(&self.program().args(args))
    }

    /// Its store.
    pub fn store(&self) -> PathBuf {
        self.sandbox.home().join(".claude")
    }

    /// Its live registry: one entry per file, in the order of their names. A file that is just
    /// being written is left out.
    pub fn registry(&self) -> Vec<Value> {
        let entries = files_below(&self.store().join("sessions"), ".json");
        let read = |path: PathBuf| serde_json::from_slice(&fs::read(path).ok()?).ok();
        entries.into_iter().filter_map(read).collect()
    }

    /// Waits until an entry of the registry has this status, and returns it.
    ///
    /// # Panics
    /// When `deadline` passes first.
    #[track_caller]
    pub fn wait_for_status(&self, status: &str, deadline: Duration) -> Value {
        wait_for(&format!("claude to be {status}"), deadline, || {
            self.registry().into_iter().find(|entry| entry["status"] == status)
        })
    }

    /// Its transcripts, sub-agents' included.
    pub fn transcripts(&self) -> Vec<PathBuf> {
        files_below(&self.store().join("projects"), ".jsonl")
    }

    /// Waits until some transcript holds this text, and returns its path. (Lines reach the file a
    /// moment after the registry and the model have seen the same thing.)
    ///
    /// # Panics
    /// When `deadline` passes first.
    #[track_caller]
    pub fn wait_for_transcript(&self, text: &str, deadline: Duration) -> PathBuf {
        wait_for_file(text, deadline, || self.transcripts())
    }
}
