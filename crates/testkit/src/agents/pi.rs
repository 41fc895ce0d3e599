//! Pi, the real program, run by Node.
//!
//! Its configuration names the scripted model as a provider of Anthropic's Messages API and makes
//! it the default. Pi asks nobody before it runs a tool.

use std::{fs, path::PathBuf, time::Duration};

use serde_json::json;

use super::{KEY, files_below, installed, stay_at_home, version, wait_for_file};
use crate::{Child, Model, Program, Sandbox, Terminal};

/// What a million tokens of each kind cost, in dollars.
pub const PRICE: f64 = 1000.0;

/// Pi in one sandbox.
pub struct Pi<'a> {
    sandbox: &'a Sandbox,
}

impl<'a> Pi<'a> {
    /// Makes `pi` work in this sandbox.
    ///
    /// # Panics
    /// When the program is not installed.
    pub fn install(sandbox: &'a Sandbox, model: &Model) -> Self {
        stay_at_home(sandbox);
        sandbox.install("pi", &installed("@mariozechner/pi-coding-agent/dist/cli.js"));
        sandbox.env("PI_OFFLINE", "1");
        sandbox.env("PI_TELEMETRY", "0");
        let pi = Self { sandbox };
        fs::create_dir_all(pi.store()).expect("pi's store");
        let cost = json!({"input": PRICE, "output": PRICE, "cacheRead": PRICE, "cacheWrite": PRICE});
        let models = json!({"providers": {"scripted": {"baseUrl": model.url(), "api": "anthropic-messages",
            "apiKey": KEY, "models": [{"id": "scripted-1", "cost": cost}]}}});
        let settings = json!({"defaultProvider": "scripted", "defaultModel": "scripted-1",
            "quietStartup": true, "retry": {"enabled": false}});
        fs::write(pi.store().join("models.json"), models.to_string()).expect("pi's models");
        fs::write(pi.store().join("settings.json"), settings.to_string()).expect("pi's settings");
        pi
    }

    /// Lets it make a request that failed again, as it does by default.
    ///
    /// # Panics
    /// When its settings cannot be written.
    pub fn try_again(&self) {
        let settings = json!({"defaultProvider": "scripted", "defaultModel": "scripted-1", "quietStartup": true});
        fs::write(self.store().join("settings.json"), settings.to_string()).expect("pi's settings");
    }

    /// Lets it make even a short conversation shorter.
    ///
    /// # Panics
    /// When its settings cannot be written.
    pub fn compact_early(&self) {
        let settings = json!({"defaultProvider": "scripted", "defaultModel": "scripted-1", "quietStartup": true,
            "retry": {"enabled": false}, "compaction": {"keepRecentTokens": 1}});
        fs::write(self.store().join("settings.json"), settings.to_string()).expect("pi's settings");
    }

    /// The version that is installed.
    pub fn version() -> String {
        version("@mariozechner/pi-coding-agent")
    }

    /// The program, without arguments, in the default project.
    pub fn program(&self) -> Program {
        self.sandbox.program("pi")
    }

    /// One prompt without a terminal: `pi --mode json`, one event per line on stdout.
    pub fn headless(&self, prompt: &str, args: &[&str]) -> Child {
        let program = self.program().args(["--mode", "json"]).args(args).arg(prompt);
        self.sandbox.spawn(&program)
    }

    /// On a terminal.
    pub fn terminal(&self, args: &[&str]) -> Terminal {
        self.sandbox.terminal(&self.program().args(args))
    }

    /// Its store.
    pub fn store(&self) -> PathBuf {
        self.sandbox.home().join(".pi/agent")
    }

    /// Its sessions' files, oldest first within a project.
    pub fn sessions(&self) -> Vec<PathBuf> {
        files_below(&self.store().join("sessions"), ".jsonl")
    }

    /// Waits until some session's file holds this text, and returns its path.
    ///
    /// # Panics
    /// When `deadline` passes first.
    #[track_caller]
    pub fn wait_for_session(&self, text: &str, deadline: Duration) -> PathBuf {
        wait_for_file(text, deadline, || self.sessions())
    }
}
