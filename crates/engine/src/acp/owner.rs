//! The process that owns one connection, from the first message to the last.
//!
//! # Theory of operation
//!
//! 1. It says who it is, starts the agent, and agrees on version 1 of the protocol.
//! 2. It makes a session, or takes one up again: by `session/resume`, which says nothing again, else by
//!    `session/load`, which repeats all, by some agents after the response. It says on standard output which session that is.
//! 3. Then it waits: for the agent, for mail, for answers. One turn is open at a time; mail that comes
//!    meanwhile is refused, as it was for the sender to look.
//! 4. It ends when the agent does, as the agent did; when a person asks it to, after it has cancelled the turn; by any other
//!    signal, which cuts the turn off; and, if it was started for one prompt only, when that turn is over.
//!
//! What it knows of the turn is in memory only for as long as it acts on it. Others read the messages.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use lariat_adapters::acp::{EVENTS, Order};
use lariat_core::{Time, Want};
use lariat_shim::record;
use lariat_sys::point::point;
use lariat_sys::process::{self, Identity};
use lariat_sys::signals::{self, Asked};
use lariat_sys::watch::Watch;
use lariat_sys::{clock, durable, file};
use serde_json::{Value, json};

use super::wire::{self, Heard, Wire};
use super::{MAIL, Mail, TURN_OPEN};
use crate::ask::{self, Request};
use crate::records;

/// How long an agent may take to end a turn that is cancelled, and to end itself.
const PATIENCE: Duration = Duration::from_secs(4);
/// An agent that says nothing for so long has repeated all.
const SILENCE: Duration = Duration::from_millis(250);
/// Our own looks into the folder, should a hint be lost.
const LOOK: Duration = Duration::from_secs(30);
/// When to look first whether the agent has read what was sent; then seldom and seldomer.
const FIRST_LOOK: Duration = Duration::from_millis(5);
/// Prompts are no larger.
const LARGEST: u64 = 64 << 20;

/// Owns the connection that an order describes, until its end; the exit code. Where a signal ended the agent, or this process
/// and no person asked for that, it ends by the same.
pub fn run(order: &Path) -> io::Result<u8> {
    let folder = order.parent().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    let name = order.file_name().and_then(|n| n.to_str()).ok_or(io::ErrorKind::InvalidInput)?;
    let order: Order = record::read(&folder, name).map_err(io::Error::other)?.ok_or(io::ErrorKind::NotFound)?;
    let (me, _) = Identity::open(std::process::id())?;
    let events = folder.join(EVENTS);
    let known = events.exists();
    let events = wire::events(&events)?;
    for sub in [MAIL, ask::FOLDER] {
        durable::make_folder(&folder.join(sub))?;
    }
    let program = order.command.first().cloned().unwrap_or_default();
    let started = Wire::start(&order.command, events);
    let (mut wire, output) = started.map_err(|e| io::Error::new(e.kind(), format!("cannot start {program}: {e}")))?;
    wire.mute = known && !order.fork;
    let cwd = std::env::current_dir()?;
    let process = record::Process::from(me.clone());
    wire.note(json!({"owner": {"agent": order.agent, "boot": process.boot, "pid": process.pid,
        "start": process.start, "pidfd_inode": process.pidfd_inode, "namespace": process.namespace,
        "machine": process.machine, "cwd": cwd}}))?;
    // Only now: the agent would inherit that we do not heed signals.
    let asked = Asked::watch()?;
    let (tell, heard) = mpsc::channel();
    let mut watch = Watch::new();
    [MAIL, ask::FOLDER].iter().for_each(|sub| watch.path(&folder.join(sub)));
    let (by_agent, by_folder, by_signal) = (tell.clone(), tell.clone(), tell);
    std::thread::spawn(move || wire::hear(output, &by_agent));
    std::thread::spawn(
        move || {
            while watch.sleep(LOOK, Duration::ZERO).is_ok() && by_folder.send(Heard::Stir).is_ok() {}
        },
    );
    std::thread::spawn(move || while asked.wait().is_ok_and(|signal| by_signal.send(Heard::Asked(signal)).is_ok()) {});
    let owner = Owner {
        folder,
        order,
        cwd,
        process,
        wire,
        heard,
        session: String::new(),
        turn: None,
        asks: HashMap::new(),
        untaken: None,
        parts: 0,
    };
    owner.live()
}

/// Why it comes to its end.
enum End {
    /// The agent has ended.
    Agent,
    /// Somebody asked for it, by this signal.
    Asked(i32),
    /// All is done.
    Done,
    /// It could not begin.
    Unable(String),
    /// Our own files failed.
    Io(io::Error),
}

impl From<io::Error> for End {
    fn from(e: io::Error) -> End {
        // A pipe that nobody reads is an agent that has ended.
        if e.kind() == io::ErrorKind::BrokenPipe { End::Agent } else { End::Io(e) }
    }
}

struct Owner {
    folder: PathBuf,
    order: Order,
    cwd: PathBuf,
    process: record::Process,
    wire: Wire,
    heard: Receiver<Heard>,
    session: String,
    /// The request whose response ends the open turn.
    turn: Option<u64>,
    /// What the agent asks, by the name of our record of it.
    asks: HashMap<String, Value>,
    parts: u32,
    /// Mail that was sent and that the agent may not have read yet, and when to look next.
    untaken: Option<(String, Duration)>,
}

impl Owner {
    fn live(mut self) -> io::Result<u8> {
        let end = self.begin().and_then(|()| self.go_on());
        let end = end.err().unwrap_or(End::Done);
        // A signal that no person sent through lariat cuts the turn off; to cancel it would look like a person's wish.
        let wished = matches!(end, End::Asked(_)) && is_to_stop(&self.folder);
        if wished {
            let _ = self.cancel();
        }
        self.wire.hang_up();
        let ended = self.agent_ends()?;
        for stem in self.asks.keys() {
            withdraw(&self.folder, stem);
        }
        match end {
            End::Asked(signal) if !wished => Ok(by_signal(signal)),
            End::Done | End::Asked(_) => Ok(0),
            End::Agent => {
                let _ = writeln!(io::stderr(), "the agent ended: {ended}");
                let code = ended.code().and_then(|code| u8::try_from(code).ok());
                Ok(code.unwrap_or_else(|| ended.signal().map_or(1, by_signal)))
            }
            End::Unable(why) => Err(io::Error::other(why)),
            End::Io(e) => Err(e),
        }
    }

    /// Waits for the agent to end, which has no input any more; makes it, if it will not.
    fn agent_ends(&mut self) -> io::Result<ExitStatus> {
        if let Some(ended) = self.wire.ended()? {
            return Ok(ended);
        }
        let gone = Identity::of_child(self.wire.pid()).and_then(|(_, pidfd)| process::wait_exit(&pidfd, PATIENCE));
        if !matches!(gone, Ok(true)) {
            self.wire.end();
        }
        self.wire.ended()?.ok_or_else(|| io::Error::other("the agent would not end"))
    }

    /// Until the agent has the session and the first prompt.
    fn begin(&mut self) -> Result<(), End> {
        let about = json!({"name": "lariat", "version": env!("CARGO_PKG_VERSION")});
        let offered = json!({"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false});
        let params = json!({"protocolVersion": 1, "clientCapabilities": offered, "clientInfo": about});
        let told = self.call("initialize", params)?;
        if told["protocolVersion"] != 1 {
            let why = format!("it speaks version {} of the protocol, and lariat 1", told["protocolVersion"]);
            return Err(End::Unable(why));
        }
        let can = &told["agentCapabilities"];
        let params = json!({"cwd": self.cwd, "mcpServers": []});
        let with_id = |id: &String| {
            let mut params = params.clone();
            params["sessionId"] = id.as_str().into();
            params
        };
        let has = |what: &str| !matches!(can["sessionCapabilities"][what], Value::Null | Value::Bool(false));
        let opened = match &self.order.past.clone() {
            None => self.call("session/new", params)?,
            Some(id) if self.order.fork => {
                if !has("fork") {
                    return Err(End::Unable("it cannot fork a session".into()));
                }
                self.call("session/fork", with_id(id))?
            }
            Some(id) => {
                let again = if has("resume") {
                    self.call("session/resume", with_id(id))?
                } else if can["loadSession"] == true {
                    self.wire.replay = true;
                    let loaded = self.call("session/load", with_id(id));
                    let loaded = loaded.and_then(|loaded| self.hear_out().map(|()| loaded));
                    self.wire.replay = false;
                    loaded?
                } else {
                    return Err(End::Unable("it can take up no session again".into()));
                };
                json!({"sessionId": id, "configOptions": again["configOptions"], "models": again["models"]})
            }
        };
        self.session = match opened["sessionId"].as_str() {
            Some(id) if is_id(id) => id.to_owned(),
            _ => return Err(End::Unable("it gave no session id that could be used".into())),
        };
        let model = self.choose_model(&opened)?;
        // What was left for an owner before this one was not said to it.
        for (name, _) in self.mail() {
            self.refuse_mail(&name, "the owner that it was left for is gone")?;
        }
        // The prompt first: whoever learns of the session must not find it at rest before its turn.
        if let Some(prompt) = self.order.prompt.clone() {
            self.prompt(&prompt)?;
        }
        self.wire.note(json!({"session": self.session, "model": model}))?;
        writeln!(io::stdout(), "{}", json!({"session": self.session}))?;
        point("acp.known");
        Ok(())
    }

    /// Sets the model that was asked for; which one it has.
    fn choose_model(&mut self, opened: &Value) -> Result<Option<String>, End> {
        let options = opened["configOptions"].as_array().cloned().unwrap_or_default();
        let option = options.iter().find(|o| o["category"] == "model" || o["id"] == "model");
        let now = option.and_then(|o| o["currentValue"].as_str()).or(opened["models"]["currentModelId"].as_str());
        let Some(wanted) = self.order.model.clone().filter(|m| Some(m.as_str()) != now) else {
            return Ok(now.map(str::to_owned));
        };
        let Some(id) = option.and_then(|o| o["id"].as_str()) else {
            return Err(End::Unable("it lets nobody choose its model; choose it in its own settings".into()));
        };
        let params = json!({"sessionId": self.session, "configId": id, "value": wanted});
        self.call("session/set_config_option", params)?;
        Ok(Some(wanted))
    }

    /// Asks the agent and waits for its response.
    fn call(&mut self, method: &str, params: Value) -> Result<Value, End> {
        let id = self.wire.request(method, params)?;
        loop {
            match self.heard.recv().unwrap_or(Heard::Silence) {
                Heard::Message(message) => {
                    self.came(&message)?;
                    if message["method"].is_null() && message["id"] == id {
                        return match message["error"].is_object() {
                            true => Err(End::Unable(format!("{method}: {}", told(&message["error"])))),
                            false => Ok(message["result"].clone()),
                        };
                    }
                    self.hear(&message)?;
                }
                Heard::Silence => return Err(End::Agent),
                Heard::Asked(signal) => return Err(End::Asked(signal)),
                Heard::Stir => {}
            }
        }
    }

    /// Hears what an agent that has loaded a session still repeats of it, until it is silent for a moment.
    fn hear_out(&mut self) -> Result<(), End> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            match self.heard.recv_timeout(SILENCE) {
                Ok(Heard::Message(message)) => {
                    self.came(&message)?;
                    self.hear(&message)?;
                }
                Ok(Heard::Stir) => {}
                Ok(Heard::Asked(signal)) => return Err(End::Asked(signal)),
                Ok(Heard::Silence) | Err(RecvTimeoutError::Disconnected) => return Err(End::Agent),
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        Ok(())
    }

    /// The next thing to heed. Meanwhile, tells when the agent has read the last mail.
    fn next(&mut self) -> Result<Heard, End> {
        while let Some((name, pause)) = self.untaken.take() {
            if self.wire.is_taken() {
                self.wire.note(json!({"mail": name, "taken": true}))?;
                break;
            }
            match self.heard.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => self.untaken = Some((name, (pause * 2).min(LOOK))),
                heard => {
                    self.untaken = Some((name, pause));
                    return Ok(heard.unwrap_or(Heard::Silence));
                }
            }
        }
        Ok(self.heard.recv().unwrap_or(Heard::Silence))
    }

    fn go_on(&mut self) -> Result<(), End> {
        // What came while it was beginning gave its hint in vain.
        self.look_around()?;
        loop {
            match self.next()? {
                Heard::Message(message) => {
                    self.came(&message)?;
                    self.hear(&message)?;
                    if self.order.once && self.turn.is_none() {
                        return Ok(());
                    }
                }
                Heard::Silence => return Err(End::Agent),
                Heard::Asked(signal) => return Err(End::Asked(signal)),
                Heard::Stir => self.look_around()?,
            }
        }
    }

    fn look_around(&mut self) -> Result<(), End> {
        for (name, mail) in self.mail() {
            self.take_mail(&name, mail)?;
        }
        self.answers()?;
        Ok(())
    }

    /// Writes down what came; what it asks lies where it can be answered before anybody hears of it.
    fn came(&mut self, message: &Value) -> io::Result<()> {
        if message["method"] == "session/request_permission" && !message["id"].is_null() {
            self.asked(message)?;
        }
        self.wire.came(message)
    }

    /// Heeds what the agent says, which is written down already.
    fn hear(&mut self, message: &Value) -> Result<(), End> {
        match (message["method"].as_str(), &message["id"]) {
            (Some("$/cancel_request"), Value::Null) => self.take_back(&message["params"]["requestId"])?,
            (Some(_), Value::Null) => {}
            (Some("session/request_permission"), _) => {}
            (Some(method), id) => self.wire.refuse(id, method)?,
            (None, id) if self.turn.is_some_and(|turn| *id == turn) => {
                self.turn = None;
                // What it asked in that turn it does not wait for any more.
                self.asks.drain().for_each(|(stem, _)| withdraw(&self.folder, &stem));
            }
            (None, _) => {}
        }
        Ok(())
    }

    /// Withdraws what the agent does not want to know any more.
    fn take_back(&mut self, id: &Value) -> io::Result<()> {
        let Some(stem) = self.asks.iter().find(|(_, asked)| *asked == id).map(|(stem, _)| stem.clone()) else {
            return Ok(()); // it was answered
        };
        self.asks.remove(&stem);
        withdraw(&self.folder, &stem);
        self.wire.cancelled(id)
    }

    fn prompt(&mut self, text: &str) -> io::Result<()> {
        let prompt = json!([{"type": "text", "text": text}]);
        let params = json!({"sessionId": self.session, "prompt": prompt});
        self.turn = Some(self.wire.request("session/prompt", params)?);
        Ok(())
    }

    /// Puts what it asks where a person finds it.
    fn asked(&mut self, message: &Value) -> io::Result<()> {
        self.parts += 1;
        let at = Time(clock::now_ms());
        let request = Request { process: self.process.clone(), at, event: message.to_string(), part: self.parts };
        let stem = request.stem();
        let text = serde_json::to_string(&request)?;
        durable::put(&self.folder.join(ask::FOLDER), &format!("{stem}.json"), text.as_bytes())?;
        self.asks.insert(stem, message["id"].clone());
        point("ask.asked");
        Ok(())
    }

    /// Hands over the answers that lie there.
    fn answers(&mut self) -> io::Result<()> {
        let stems: Vec<String> = self.asks.keys().cloned().collect();
        for stem in stems {
            let path = self.folder.join(ask::FOLDER).join(format!("{stem}.answer"));
            let Some(text) = ask::take(&path) else { continue };
            let Ok(result) = serde_json::from_slice::<Value>(&text) else { continue };
            if let Some(id) = self.asks.remove(&stem) {
                self.wire.respond(&id, result)?;
                withdraw(&self.folder, &stem);
            }
        }
        Ok(())
    }

    /// Prompts that lie there, oldest first, if they can be read.
    fn mail(&self) -> Vec<(String, Option<Mail>)> {
        let folder = self.folder.join(MAIL);
        let entries = file::Directory::open(&folder).and_then(|d| d.entries()).unwrap_or_default();
        let names = entries.into_iter().map(|e| e.name).filter(|n| n.ends_with(".json") && !n.starts_with('.'));
        let mut mail: Vec<_> = names
            .map(|name| {
                let path = folder.join(&name);
                let age = path.metadata().and_then(|m| m.modified()).ok();
                let text = file::read_small(&path, LARGEST).ok();
                (age, name, text.and_then(|t| serde_json::from_slice(&t).ok()))
            })
            .collect();
        mail.sort_by(|a: &(_, String, Option<Mail>), b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        mail.into_iter().map(|(_, name, mail)| (name, mail)).collect()
    }

    /// Sends mail, unless a turn is open. Whoever takes the file away decides what becomes of it.
    fn take_mail(&mut self, name: &str, mail: Option<Mail>) -> io::Result<()> {
        let Some(mail) = mail else { return self.refuse_mail(name, "it cannot be read") };
        if self.turn.is_some() {
            return self.refuse_mail(name, TURN_OPEN);
        }
        if !self.remove_mail(name) {
            return Ok(());
        }
        let request = self.wire.next();
        self.wire.note(json!({"mail": name, "request": request}))?;
        self.prompt(&mail.prompt)?;
        self.untaken = Some((name.to_owned(), FIRST_LOOK));
        Ok(())
    }

    fn refuse_mail(&mut self, name: &str, why: &str) -> io::Result<()> {
        if self.remove_mail(name) { self.wire.note(json!({"mail": name, "refused": why})) } else { Ok(()) }
    }

    fn remove_mail(&self, name: &str) -> bool {
        #[expect(clippy::disallowed_methods, reason = "mail that is taken")]
        std::fs::remove_file(self.folder.join(MAIL).join(name)).is_ok()
    }

    /// Cancels the open turn and waits for its end, for a while.
    fn cancel(&mut self) -> Result<(), End> {
        if self.turn.is_none() {
            return Ok(());
        }
        self.wire.notify("session/cancel", json!({"sessionId": self.session}))?;
        let asks: Vec<(String, Value)> = self.asks.drain().collect();
        for (stem, id) in asks {
            self.wire.respond(&id, json!({"outcome": {"outcome": "cancelled"}}))?;
            withdraw(&self.folder, &stem);
        }
        let until = Instant::now() + PATIENCE;
        while self.turn.is_some() {
            match self.heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Heard::Message(message)) => {
                    self.wire.came(&message)?;
                    if message["method"] == "session/request_permission" {
                        self.wire.respond(&message["id"], json!({"outcome": {"outcome": "cancelled"}}))?;
                    } else {
                        self.hear(&message)?;
                    }
                }
                Ok(Heard::Silence) | Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => break,
                Ok(Heard::Asked(_) | Heard::Stir) => {}
            }
        }
        Ok(())
    }
}

/// Whether a person has asked for the session's end: that is on record before anybody is signalled.
fn is_to_stop(folder: &Path) -> bool {
    records::read_in(folder).is_some_and(|wish| wish.intent.want == Want::Stop)
}

/// Ends this process by a signal; the code that says the same, should that fail.
fn by_signal(signal: i32) -> u8 {
    signals::end_by(signal);
    u8::try_from(128 + signal).unwrap_or(1)
}

/// Takes away what was asked and is no more.
fn withdraw(folder: &Path, stem: &str) {
    for kind in ["answer", "json"] {
        #[expect(clippy::disallowed_methods, reason = "our own request, which is over")]
        let _ = std::fs::remove_file(folder.join(ask::FOLDER).join(format!("{stem}.{kind}")));
    }
}

/// Whether text can be a session's id: it becomes part of names, lines and commands.
fn is_id(text: &str) -> bool {
    (1..=200).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

fn told(error: &Value) -> String {
    let message = error["message"].as_str().unwrap_or("it failed");
    match (error["data"]["details"].as_str(), error["code"].as_i64()) {
        (_, Some(-32000)) => format!("{message}: it needs a login; use its own way to log in, then try again"),
        (Some(details), _) => format!("{message}: {details}"),
        (None, _) => message.to_owned(),
    }
}
