//! The agent at the other end of two pipes: JSON-RPC 2.0, one message a line.
//!
//! Every message is written down right before it goes and when it came. What cannot be parsed is left
//! out, and said on standard error; a line without end is the end.

use std::fs::File;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;

use lariat_sys::{clock, spawn};
use serde_json::{Value, json};

/// The longest line that is taken from an agent.
const LONGEST: u64 = 64 << 20;

/// What the owner is woken by.
pub enum Heard {
    /// The agent said something.
    Message(Value),
    /// The agent's output has ended.
    Silence,
    /// Something lies in the folder.
    Stir,
    /// Somebody wants it to end, by this signal.
    Asked(i32),
}

/// The agent, and what is written down of it.
pub struct Wire {
    child: Child,
    input: Option<ChildStdin>,
    events: File,
    next: u64,
    /// What the agent says is known already and not written down again.
    pub mute: bool,
    /// What the agent says was said before.
    pub replay: bool,
}

impl Wire {
    /// Starts the agent. It ends with us, however we end.
    pub fn start(command: &[String], events: File) -> io::Result<(Wire, ChildStdout)> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        #[expect(clippy::disallowed_methods, reason = "the agent whose connection this process owns")]
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        spawn::end_with_us(&mut command);
        let mut child = command.spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        Ok((Wire { child, input, events, next: 0, mute: false, replay: false }, output))
    }

    /// Writes a line of our own.
    pub fn note(&mut self, mut line: Value) -> io::Result<()> {
        line["at"] = clock::now_ms().into();
        // One write for one line: whoever reads sees whole lines, the last one aside.
        self.events.write_all(format!("{line}\n").as_bytes())
    }

    /// Sends a request; its number.
    pub fn request(&mut self, method: &str, params: Value) -> io::Result<u64> {
        self.next += 1;
        let id = self.next;
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        Ok(id)
    }

    /// The number that the next request will have.
    pub fn next(&self) -> u64 {
        self.next + 1
    }

    /// Sends what wants no response.
    pub fn notify(&mut self, method: &str, params: Value) -> io::Result<()> {
        self.send(json!({"jsonrpc": "2.0", "method": method, "params": params}))
    }

    /// Responds to the agent's request.
    pub fn respond(&mut self, id: &Value, result: Value) -> io::Result<()> {
        self.send(json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }

    /// Says that we do not know that.
    pub fn refuse(&mut self, id: &Value, method: &str) -> io::Result<()> {
        let error = json!({"code": -32601, "message": format!("{method} is not offered")});
        self.send(json!({"jsonrpc": "2.0", "id": id, "error": error}))
    }

    /// Says that nobody answers that, as it was taken back.
    pub fn cancelled(&mut self, id: &Value) -> io::Result<()> {
        let error = json!({"code": -32800, "message": "it was cancelled"});
        self.send(json!({"jsonrpc": "2.0", "id": id, "error": error}))
    }

    fn send(&mut self, message: Value) -> io::Result<()> {
        let line = format!("{message}\n");
        self.note(json!({"to": message}))?;
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        input.write_all(line.as_bytes())?;
        input.flush()
    }

    /// Whether the agent has read all that was sent.
    pub fn is_taken(&self) -> bool {
        self.input.as_ref().is_some_and(|input| matches!(lariat_sys::file::unread(input), Ok(0)))
    }

    /// Writes down what came.
    pub fn came(&mut self, message: &Value) -> io::Result<()> {
        let said_before = self.replay && message["method"] == "session/update";
        match (said_before, self.mute) {
            (true, true) => Ok(()),
            (true, false) => self.note(json!({"from": message, "replay": true})),
            (false, _) => self.note(json!({"from": message})),
        }
    }

    /// Hangs up: an agent whose input has ended ends.
    pub fn hang_up(&mut self) {
        self.input = None;
    }

    /// How the agent ended, once it has.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// The agent's PID; it is ours to reap, so nobody else has it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends an agent that will not.
    pub fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hears the agent until its output ends.
pub fn hear(output: ChildStdout, tell: &Sender<Heard>) {
    let mut output = io::BufReader::new(output);
    loop {
        let mut line = Vec::new();
        match output.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
            Ok(n) if n > 0 && line.ends_with(b"\n") => {}
            _ => break,
        }
        let heard = match serde_json::from_slice::<Value>(&line) {
            Ok(message @ Value::Object(_)) => Heard::Message(message),
            _ if line.trim_ascii().is_empty() => continue,
            _ => {
                let shown = lariat_core::Untrusted::new(String::from_utf8_lossy(&line)).row_within(200);
                let _ = writeln!(io::stderr(), "not a message: {shown}");
                continue;
            }
        };
        if tell.send(heard).is_err() {
            return;
        }
    }
    let _ = tell.send(Heard::Silence);
}

/// The file of messages, to be added to.
pub fn events(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}
