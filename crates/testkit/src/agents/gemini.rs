//! Gemini CLI, the real program, run by Node.
//!
//! It is given a key and the scripted model's address, and its projects are trusted. It may run
//! commands only when it is told so (`--approval-mode yolo`) or a person allows it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};

use super::{KEY, files_below, installed, stay_at_home, version, wait_for_file};
use crate::{Child, Model, Program, Sandbox, Terminal};

/// The model that is asked for.
pub const MODEL: &str = "gemini-2.5-flash";

/// Gemini CLI in one sandbox.
pub struct Gemini<'a> {
    sandbox: &'a Sandbox,
}

impl<'a> Gemini<'a> {
    /// Makes `gemini` work in this sandbox, with its default project trusted.
    ///
    /// # Panics
    /// When the program is not installed.
    pub fn install(sandbox: &'a Sandbox, model: &Model) -> Self {
        stay_at_home(sandbox);
        sandbox.install("gemini", &installed("@google/gemini-cli/bundle/gemini.js"));
        sandbox.env("GEMINI_API_KEY", KEY);
        sandbox.env("GOOGLE_GEMINI_BASE_URL", model.url());
        sandbox.env("GEMINI_CLI_TRUST_WORKSPACE", "true");
        let gemini = Self { sandbox };
        fs::create_dir_all(gemini.store()).expect("gemini's store");
        gemini.configure(json!({}));
        gemini.trust(&sandbox.work());
        gemini
    }

    /// Sets these members of `general` in its settings, besides what it always has.
    pub fn configure(&self, general: Value) {
        let mut settings = json!({
            "general": {"disableAutoUpdate": true, "enableAutoUpdate": false,
                "enableAutoUpdateNotification": false},
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": false}},
            "privacy": {"usageStatisticsEnabled": false},
            "telemetry": {"enabled": false},
            "ui": {"hideTips": true, "hideBanner": true, "theme": "Default"},
            "model": {"name": MODEL},
            "ide": {"hasSeenNudge": true},
        });
        for (key, value) in general.as_object().into_iter().flatten() {
            settings["general"][key] = value.clone();
        }
        fs::write(self.store().join("settings.json"), settings.to_string()).expect("gemini's settings");
    }

    /// Answers the question whether this project is trusted, before it is asked.
    pub fn trust(&self, project: &Path) {
        let path = self.store().join("trustedFolders.json");
        let mut trusted: Value =
            fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_else(|| json!({}));
        trusted[project.to_str().expect("a UTF-8 path")] = json!("TRUST_FOLDER");
        fs::write(path, trusted.to_string()).expect("gemini's trusted folders");
    }

    /// The version that is installed.
    pub fn version() -> String {
        version("@google/gemini-cli")
    }

    /// The program, without arguments, in the default project.
    pub fn program(&self) -> Program {
        self.sandbox.program("gemini")
    }

    /// One prompt without a terminal: one JSON event per line on stdout.
    pub fn headless(&self, prompt: &str, args: &[&str]) -> Child {
        let program = self.program().args(["-o", "stream-json", "-p", prompt]).args(args);
        self.sandbox.spawn(&program)
    }

    /// On a terminal.
    pub fn terminal(&self, args: &[&str]) -> Terminal {
        self.sandbox.terminal(&self.program().args(args))
    }

    /// Its store.
    pub fn store(&self) -> PathBuf {
        self.sandbox.home().join(".gemini")
    }

    /// The files of its conversations, oldest first within a project.
    pub fn chats(&self) -> Vec<PathBuf> {
        files_below(&self.store().join("tmp"), ".jsonl")
    }

    /// Waits until some conversation's file holds this text, and returns its path.
    ///
    /// # Panics
    /// When `deadline` passes first.
    #[track_caller]
    pub fn wait_for_chat(&self, text: &str, deadline: Duration) -> PathBuf {
        wait_for_file(text, deadline, || self.chats())
    }
}
