//! OpenCode, the real native program.
//!
//! Its configuration names the scripted model as the only provider. By default it asks nobody; a
//! test that wants questions says so with [`OpenCode::ask_for`].

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use super::{KEY, installed, stay_at_home, version};
use crate::{Child, Model, Output, Program, Sandbox, Stdin, Terminal};

/// The model that the scripted provider offers, as `--model` takes it.
pub const MODEL: &str = "scripted/scripted-1";

/// OpenCode in one sandbox.
pub struct OpenCode<'a> {
    sandbox: &'a Sandbox,
}

impl<'a> OpenCode<'a> {
    /// Makes `opencode` work in this sandbox.
    ///
    /// # Panics
    /// When the program is not installed.
    pub fn install(sandbox: &'a Sandbox, model: &Model) -> Self {
        stay_at_home(sandbox);
        sandbox.install("opencode", &installed("opencode-ai/bin/opencode.exe"));
        for off in ["OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_LSP_DOWNLOAD"] {
            sandbox.env(off, "1");
        }
        let opencode = Self { sandbox };
        opencode.write_config(&json!({
            "autoupdate": false,
            "share": "disabled",
            "model": MODEL,
            "small_model": MODEL,
            "enabled_providers": ["scripted"],
            "provider": {"scripted": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Scripted",
                "options": {"baseURL": format!("{}/v1", model.url()), "apiKey": KEY},
                "models": {"scripted-1": {
                    "name": "Scripted",
                    "tool_call": true,
                    "limit": {"context": 100_000, "output": 10_000},
                    "cost": {"input": 1, "output": 2, "cache_read": 0.1, "cache_write": 1},
                }},
            }},
        }));
        opencode
    }

    fn config(&self) -> PathBuf {
        self.sandbox.home().join(".config/opencode/opencode.json")
    }

    fn write_config(&self, config: &Value) {
        let path = self.config();
        fs::create_dir_all(path.parent().expect("a folder")).expect("opencode's configuration");
        fs::write(path, config.to_string()).expect("opencode's configuration");
    }

    /// Makes it ask a person before it uses this (`bash`, `edit`).
    pub fn ask_for(&self, permission: &str) {
        let text = fs::read_to_string(self.config()).expect("opencode's configuration");
        let mut config: Value = serde_json::from_str(&text).expect("opencode's configuration");
        config["permission"][permission] = json!("ask");
        self.write_config(&config);
    }

    /// The version that is installed.
    pub fn version() -> String {
        version("opencode-ai")
    }

    /// The program, without arguments, in the default project.
    pub fn program(&self) -> Program {
        self.sandbox.program("opencode")
    }

    /// One prompt without a terminal: `opencode run`, one JSON event per line on stdout. The prompt
    /// goes by standard input: as an argument it would be stored in quotes.
    pub fn run(&self, prompt: &str, args: &[&str]) -> Child {
        self.sandbox
            .spawn(&self.program().args(["run", "--format", "json"]).args(args).stdin(Stdin::Bytes(prompt.into())))
    }

    /// On a terminal.
    pub fn terminal(&self, args: &[&str]) -> Terminal {
        self.sandbox.terminal(&self.program().args(args))
    }

    /// A server.
    pub fn serve(&self, port: u16) -> Child {
        self.sandbox.spawn(&self.program().args(["serve", "--port", &port.to_string()]))
    }

    /// What it says of a session itself.
    pub fn export(&self, id: &str) -> Value {
        let output: Output = self.sandbox.run(["opencode", "export", id]).expect_success();
        output.json()
    }

    /// Its store.
    pub fn store(&self) -> PathBuf {
        self.sandbox.home().join(".local/share/opencode")
    }
}
