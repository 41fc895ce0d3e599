//! What the actor starts: tools, each in a session of its own as Claude Code's are, and the hooks
//! of its settings.

use std::{
    io::{self, PipeReader, Read, Write},
    os::fd::{AsFd, BorrowedFd},
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::store::Session;

/// How much of a tool's output is kept.
const KEPT: usize = 16 << 10;

/// A program at work, whose output is read as it comes.
pub struct Work {
    child: Child,
    output: PipeReader,
    heard: Vec<u8>,
}

impl Work {
    /// Runs a tool.
    pub fn tool(session: &Session, command: &str) -> io::Result<Self> {
        let (output, input) = io::pipe()?;
        let mut tool = Command::new("setsid");
        tool.args(["bash", "-c", command]).stdin(Stdio::null());
        tool.stdout(input.try_clone()?).stderr(input);
        Ok(Self { child: marked(&mut tool, session).spawn()?, output, heard: Vec::new() })
    }

    /// Runs a hook and tells it an event.
    pub fn hook(session: &Session, command: &str, event: &Value) -> io::Result<Self> {
        let (output, input) = io::pipe()?;
        let mut hook = Command::new("sh");
        hook.args(["-c", command]).stdin(Stdio::piped()).stdout(input).stderr(Stdio::null());
        let mut child = marked(&mut hook, session).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that does not listen is its own business.
            drop(stdin.write_all(event.to_string().as_bytes()));
        }
        Ok(Self { child, output, heard: Vec::new() })
    }

    /// Reads what it wrote; says whether there is more to come.
    pub fn listen(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let n = self.output.read(&mut bytes).unwrap_or(0);
        self.heard.extend_from_slice(&bytes[..n]);
        let excess = self.heard.len().saturating_sub(KEPT);
        self.heard.drain(..excess);
        n > 0
    }

    /// What it wrote so far.
    pub fn heard(&self) -> String {
        String::from_utf8_lossy(&self.heard).trim_end().to_owned()
    }

    /// Waits for its end; the code, or 128 and the signal.
    pub fn end(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt as _;
        let status = self.child.wait().ok();
        status.and_then(|s| s.code().or_else(|| s.signal().map(|n| 128 + n))).unwrap_or(1)
    }

    /// Ends it with its whole group.
    pub fn kill(&mut self) {
        // Not reaped yet, so the number is its own. Before it leads a group it is alone.
        if kill_process_group(Pid::from_child(&self.child), Signal::KILL).is_err() {
            drop(self.child.kill());
        }
        drop(self.child.wait());
    }
}

impl AsFd for Work {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }
}

/// What the children of a session carry.
fn marked<'a>(command: &'a mut Command, session: &Session) -> &'a mut Command {
    command.env("CLAUDECODE", "1").env("CLAUDE_CODE_ENTRYPOINT", "cli");
    command.env("CLAUDE_PID", std::process::id().to_string()).env("CLAUDE_CODE_SESSION_ID", &session.id)
}

/// The commands that settings want run at an event; `what` is held against their matchers.
pub fn hooks(settings: &Value, event: &str, what: &str) -> Vec<String> {
    let all = settings["hooks"][event].as_array().into_iter().flatten();
    let fits = |entry: &&Value| match entry["matcher"].as_str() {
        None | Some("" | "*") => true,
        Some(matcher) => matcher.split('|').any(|word| word == what),
    };
    let commands = all.filter(fits).flat_map(|entry| entry["hooks"].as_array().into_iter().flatten());
    commands.filter_map(|hook| hook["command"].as_str().map(str::to_owned)).collect()
}
