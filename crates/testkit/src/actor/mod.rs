//! A scripted agent: what Claude Code 2.1.325 shows to the outside, played by a program without a
//! model, a key or a network.
//!
//! Installed as `claude`, it takes the same flags, keeps the same store, asks through the same
//! hooks, starts its tools in sessions of their own and leaves as the real one leaves. What it does
//! on a prompt is in [`script`]. It is one thread that sleeps until something happens: a key, a
//! signal, a line of a tool, the answer of a hook. Time decides nothing but how long it thinks.
//!
//! Not played: sub-agents, plans, background shells, several questions at once, queued prompts.

mod args;
mod child;
mod screen;
mod script;
mod store;

use std::{
    collections::VecDeque,
    io::{self, Write},
    os::fd::AsFd,
    process::ExitCode,
    time::{Duration, Instant},
};

use lariat_sys::signals::Caught;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Signal,
};
use serde_json::{Value, json};

use args::Args;
use child::{Work, hooks};
use screen::{Pressed, Screen};
use script::Beat;
use store::{About, Session, uuid};

/// The program `lariat-actor`.
pub fn main() -> ExitCode {
    let failed = |why: String| {
        drop(writeln!(io::stderr(), "{why}"));
        ExitCode::FAILURE
    };
    let args = match Args::read(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(why) => return failed(format!("Error: {why}")),
    };
    match Actor::enter(args).and_then(|mut actor| actor.play()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => failed(format!("Error: {error}")),
    }
}

struct Actor {
    caught: Caught,
    session: Session,
    /// None without a terminal.
    screen: Option<Screen>,
    settings: Value,
    trusted: bool,
    source: &'static str,
    /// What is being typed.
    input: String,
    /// Control-C was pressed once.
    leaving: bool,
    prompt: String,
    beats: VecDeque<Beat>,
    doing: Doing,
    began: Instant,
    /// Whether anything was said in this turn.
    spoke: bool,
    /// What the last tool gave.
    gave: String,
    failed: bool,
}

enum Doing {
    Nothing,
    Thinking(Instant),
    Running { call: String, work: Work },
    Asking { call: String, beat: Beat, hook: Option<Work>, at: usize },
}

impl Actor {
    fn enter(args: Args) -> io::Result<Self> {
        // First: what comes from now on is heard.
        let caught = Caught::watch(&[Signal::TERM, Signal::INT, Signal::HUP, Signal::WINCH])?;
        let about = About { model: args.model, name: args.name, headless: args.headless };
        let wanted = args.resume.as_ref().or(args.session_id.as_ref());
        let mut session = Session::new(&wanted.cloned().map_or_else(uuid, Ok)?, &about)?;
        match (&args.resume, session.transcript.exists()) {
            (Some(id), false) => {
                return Err(io::Error::other(format!("No conversation found with session ID: {id}")));
            }
            (None, true) => {
                return Err(io::Error::other(format!("Session ID {} is already in use.", session.id)));
            }
            _ => {}
        }
        if args.fork {
            session.become_another(&args.session_id.map_or_else(uuid, Ok)?, true)?;
        }
        let mut prompt = args.prompt.unwrap_or_default();
        if args.headless && prompt.is_empty() {
            io::Read::read_to_string(&mut io::stdin(), &mut prompt)?;
        }
        let screen = if args.headless { None } else { Some(Screen::take()?) };
        Ok(Self {
            caught,
            session,
            screen,
            settings: args.settings,
            trusted: args.trusted,
            source: if args.resume.is_some() { "resume" } else { "startup" },
            input: String::new(),
            leaving: false,
            prompt,
            beats: VecDeque::new(),
            doing: Doing::Nothing,
            began: Instant::now(),
            spoke: false,
            gave: String::new(),
            failed: false,
        })
    }

    /// Plays until it is told to end; the exit code.
    fn play(&mut self) -> io::Result<u8> {
        let asked = !self.prompt.is_empty();
        self.session.register(if asked { "busy" } else { "idle" }, None)?;
        let code = self.scenes(asked);
        self.session.unregister();
        code
    }

    fn scenes(&mut self, asked: bool) -> io::Result<u8> {
        self.begin()?;
        if asked {
            self.asked(self.prompt.clone())?;
        }
        loop {
            while matches!(self.doing, Doing::Nothing) {
                match self.beats.pop_front() {
                    Some(beat) => self.perform(beat)?,
                    None if self.screen.is_none() => return self.leave(u8::from(self.failed)),
                    None => break,
                }
            }
            self.draw();
            let [signal, keys, child] = self.sleep()?;
            if signal {
                while let Some(signal) = self.caught.next() {
                    if let Some(code) = self.signalled(signal)? {
                        return Ok(code);
                    }
                }
            }
            if keys {
                let Some(pressed) = self.screen.as_mut().and_then(Screen::pressed) else { return self.leave(129) };
                for key in pressed {
                    if self.key(key)? {
                        return self.leave(0);
                    }
                }
            }
            self.hear(child)?;
        }
    }

    /// Sleeps until something happens: a signal, a key, a child's word.
    fn sleep(&self) -> io::Result<[bool; 3]> {
        let second = Duration::from_secs(1);
        let timeout = match &self.doing {
            Doing::Thinking(until) => Some(until.saturating_duration_since(Instant::now()).min(second)),
            Doing::Running { .. } => Some(second),
            _ => None,
        };
        let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
        let work = match &self.doing {
            Doing::Running { work, .. } | Doing::Asking { hook: Some(work), .. } => Some(work),
            _ => None,
        };
        let stdin = io::stdin();
        let mut fds = vec![PollFd::from_borrowed_fd(self.caught.as_fd(), PollFlags::IN)];
        fds.extend(self.screen.as_ref().map(|_| PollFd::new(&stdin, PollFlags::IN)));
        fds.extend(work.map(|work| PollFd::new(work, PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        let keys = usize::from(self.screen.is_some());
        Ok([ready(0), keys == 1 && ready(1), work.is_some() && ready(1 + keys)])
    }

    /// Begins a session on this process: the hooks of its start, and the top of the screen.
    fn begin(&mut self) -> io::Result<()> {
        let event = json!({"source": self.source});
        for command in hooks(&self.settings, "SessionStart", self.source) {
            let mut hook = Work::hook(&self.session, &command, &self.event("SessionStart", event.clone()))?;
            while hook.listen() {}
            hook.end();
        }
        self.stream(json!({"type": "system", "subtype": "init", "cwd": std::env::current_dir()?}));
        let place = std::env::current_dir()?;
        let head =
            format!("claude (a scripted actor: no model, no network)\n{}\n{}\n", place.display(), script::ORDERS);
        self.say(&head);
        for (person, text) in self.session.conversation() {
            self.say(&format!("{} {text}", if person { '>' } else { '●' }));
        }
        Ok(())
    }

    fn asked(&mut self, prompt: String) -> io::Result<()> {
        self.session.prompt(&prompt)?;
        self.session.register("busy", None)?;
        self.say(&format!("> {prompt}"));
        self.beats = script::read(&prompt).into();
        (self.prompt, self.began, self.spoke, self.failed) = (prompt, Instant::now(), false, false);
        self.gave.clear();
        Ok(())
    }

    fn perform(&mut self, beat: Beat) -> io::Result<()> {
        match &beat {
            Beat::Think(seconds) => self.doing = Doing::Thinking(Instant::now() + Duration::from_secs(*seconds)),
            Beat::Say(text) => self.conclude(&text.replace("{}", &self.gave.clone()))?,
            Beat::Fail(error) => {
                let line = self.session.failed(error)?;
                self.failed = true;
                self.stream(line);
                self.say(&format!("● {error}"));
                self.turn_over(true)?;
            }
            Beat::Run { says, .. } | Beat::Ask { says, .. } => {
                let Some((name, input)) = beat.tool() else { return Ok(()) };
                let call = format!("toolu_{}", uuid()?.replace('-', ""));
                let tool = json!({"type": "tool_use", "id": call, "name": name, "input": input});
                let text = json!({"type": "text", "text": says});
                self.spoke = true;
                let lines = self.session.assistant(&[text, tool], "tool_use")?;
                lines.into_iter().for_each(|line| self.stream(line));
                self.say(&format!("● {says}"));
                match &beat {
                    Beat::Run { command, asks, .. } if !*asks || self.trusted => self.run(call, command)?,
                    _ => self.ask(call, beat, name, &input)?,
                }
            }
        }
        Ok(())
    }

    fn run(&mut self, call: String, command: &str) -> io::Result<()> {
        self.say(&format!("● Bash({command})"));
        self.doing = Doing::Running { call, work: Work::tool(&self.session, command)? };
        Ok(())
    }

    fn ask(&mut self, call: String, beat: Beat, tool: &str, input: &Value) -> io::Result<()> {
        let waiting_for = if matches!(beat, Beat::Ask { .. }) { "input needed" } else { "permission prompt" };
        let event = json!({"tool_name": tool, "tool_input": input, "permission_suggestions": []});
        let event = self.event("PermissionRequest", event);
        let command = hooks(&self.settings, "PermissionRequest", tool).into_iter().next();
        if self.screen.is_none() && command.is_none() {
            return self.refused(&call, "nobody can be asked");
        }
        self.session.register("waiting", Some(waiting_for))?;
        let hook = command.map(|command| Work::hook(&self.session, &command, &event)).transpose()?;
        self.doing = Doing::Asking { call, beat, hook, at: 0 };
        Ok(())
    }

    /// What a hook is told.
    fn event(&self, name: &str, mut event: Value) -> Value {
        event["hook_event_name"] = json!(name);
        event["session_id"] = json!(self.session.id);
        event["transcript_path"] = json!(self.session.transcript);
        event["cwd"] = json!(std::env::current_dir().unwrap_or_default());
        event
    }

    /// Hears the tool or the hook that it waits for, and the clock while it thinks.
    fn hear(&mut self, spoke: bool) -> io::Result<()> {
        self.doing = match std::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Thinking(until) if Instant::now() >= until => Doing::Nothing,
            Doing::Running { call, mut work } if spoke => {
                if work.listen() {
                    Doing::Running { call, work }
                } else {
                    let (code, said) = (work.end(), work.heard());
                    let said = if code == 0 { said } else { format!("Exit code {code}\n{said}") };
                    return self.gave(&call, said, code != 0);
                }
            }
            Doing::Asking { call, beat, hook: Some(mut hook), at } if spoke => {
                if hook.listen() {
                    Doing::Asking { call, beat, hook: Some(hook), at }
                } else {
                    hook.end();
                    let told: Value = serde_json::from_str(&hook.heard()).unwrap_or_default();
                    return self.decided(call, beat, at, &told["hookSpecificOutput"]["decision"]);
                }
            }
            doing => doing,
        };
        Ok(())
    }

    /// A hook has decided, or said nothing.
    fn decided(&mut self, call: String, beat: Beat, at: usize, decision: &Value) -> io::Result<()> {
        match (decision["behavior"].as_str(), &beat) {
            (Some("allow"), Beat::Ask { question, .. }) => {
                let answer = decision["updatedInput"]["answers"][question].as_str().unwrap_or_default().to_owned();
                self.allowed(call, &beat, &answer)
            }
            (Some("allow"), _) => self.allowed(call, &beat, ""),
            (Some(_), _) => self.refused(&call, decision["message"].as_str().unwrap_or("no")),
            (None, _) if self.screen.is_none() => self.refused(&call, "nobody answered"),
            (None, _) => {
                self.doing = Doing::Asking { call, beat, hook: None, at };
                Ok(())
            }
        }
    }

    fn allowed(&mut self, call: String, beat: &Beat, answer: &str) -> io::Result<()> {
        self.session.register("busy", None)?;
        match beat {
            Beat::Run { command, .. } => self.run(call, command),
            Beat::Ask { question, .. } => {
                self.gave(&call, format!("User has answered your questions: {question}={answer}"), false)?;
                self.gave = answer.to_owned();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn refused(&mut self, call: &str, why: &str) -> io::Result<()> {
        self.session.register("busy", None)?;
        self.gave(call, format!("The user doesn't want to proceed with this tool use: {why}"), true)?;
        self.beats = [Beat::Say(format!("Then I leave it ({why})."))].into();
        Ok(())
    }

    fn gave(&mut self, call: &str, said: String, error: bool) -> io::Result<()> {
        let line = self.session.result(call, &said, error)?;
        self.stream(line);
        let mut shown = said.lines().rev().take(3).map(|l| format!("  ⎿ {l}")).collect::<Vec<_>>();
        shown.reverse();
        self.say(&shown.join("\n"));
        (self.gave, self.doing) = (said, Doing::Nothing);
        Ok(())
    }

    fn conclude(&mut self, text: &str) -> io::Result<()> {
        let lines = self.session.assistant(&[json!({"type": "text", "text": text})], "end_turn")?;
        lines.into_iter().for_each(|line| self.stream(line));
        self.say(&format!("● {text}"));
        self.gave = text.to_owned();
        self.turn_over(false)
    }

    fn turn_over(&mut self, error: bool) -> io::Result<()> {
        self.beats.clear();
        self.stream(json!({"type": "result", "subtype": "success", "is_error": error, "result": self.gave}));
        if self.screen.is_some() {
            self.session.turn_over(self.began.elapsed().as_millis())?;
        }
        self.session.register("idle", None)
    }

    /// A person takes the turn back.
    fn interrupt(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Running { call, mut work } => {
                work.kill();
                self.rejected(&call)?;
            }
            // A hook sees that nothing is asked any more, and ends by itself.
            Doing::Asking { call, .. } => self.rejected(&call)?,
            Doing::Thinking(_) if self.spoke => self.session.interrupted(false)?,
            // Nothing was said: the prompt comes back to be edited.
            Doing::Thinking(_) => self.input = self.prompt.clone(),
            Doing::Nothing => return Ok(()),
        }
        self.say("  ⎿ Interrupted by user");
        self.beats.clear();
        self.session.register("idle", None)
    }

    fn rejected(&mut self, call: &str) -> io::Result<()> {
        self.session.result(call, "The user doesn't want to proceed with this tool use.", true)?;
        self.session.interrupted(true)
    }

    /// The code to end with, if this signal ends it.
    fn signalled(&mut self, signal: Signal) -> io::Result<Option<u8>> {
        let code = match signal {
            Signal::WINCH => {
                let block = self.block();
                self.screen.iter_mut().for_each(|screen| screen.redraw(&block));
                return Ok(None);
            }
            Signal::INT => {
                if self.screen.is_none() {
                    self.interrupt()?;
                }
                0
            }
            Signal::HUP => 129,
            _ => 143,
        };
        if let Doing::Running { call, work } = &mut self.doing {
            work.kill();
            self.session.result(call, "Exit code 137", true)?;
        }
        self.leave(code).map(Some)
    }

    fn leave(&mut self, code: u8) -> io::Result<u8> {
        self.session.left()?;
        Ok(code)
    }

    /// Does what a key says; whether that is to leave.
    fn key(&mut self, key: Pressed) -> io::Result<bool> {
        let left_before = std::mem::take(&mut self.leaving);
        if matches!(self.doing, Doing::Asking { .. }) {
            return self.choose(&key).map(|()| false);
        }
        let at_work = !matches!(self.doing, Doing::Nothing);
        match key {
            Pressed::Esc | Pressed::CtrlC if at_work => self.interrupt()?,
            Pressed::CtrlC if left_before => return Ok(true),
            Pressed::CtrlC => (self.leaving, self.input) = (true, String::new()),
            Pressed::CtrlD => return Ok(self.input.is_empty()),
            Pressed::Backspace => drop(self.input.pop()),
            Pressed::Text(text) => self.input += &text,
            Pressed::Enter if !at_work => {
                let typed = std::mem::take(&mut self.input);
                match typed.trim() {
                    "" => {}
                    "/exit" | "/quit" => return self.session.typed("/exit").map(|()| true),
                    "/clear" => self.begin_anew()?,
                    "/nothing" => {}
                    prompt => self.asked(prompt.to_owned())?,
                }
            }
            _ => {}
        }
        Ok(false)
    }

    /// A key while a dialog stands there.
    fn choose(&mut self, key: &Pressed) -> io::Result<()> {
        let options = self.options();
        let Doing::Asking { at, .. } = &mut self.doing else { return Ok(()) };
        let number = |text: &String| text.trim().parse::<usize>().ok().filter(|n| (1..=options.len()).contains(n));
        match key {
            Pressed::Up => *at = at.saturating_sub(1),
            Pressed::Down => *at = (*at + 1).min(options.len() - 1),
            Pressed::Text(text) => match number(text) {
                Some(n) => *at = n - 1,
                None => return Ok(()),
            },
            _ => {}
        }
        let at = *at;
        match key {
            Pressed::Esc | Pressed::CtrlC => return self.interrupt(),
            Pressed::Enter | Pressed::Text(_) => {}
            _ => return Ok(()),
        }
        if matches!(&self.doing, Doing::Asking { beat: Beat::Run { .. }, .. }) && at > 0 {
            return self.interrupt();
        }
        match std::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Asking { call, beat, .. } => self.allowed(call, &beat, &options[at]),
            _ => Ok(()),
        }
    }

    fn begin_anew(&mut self) -> io::Result<()> {
        self.session.typed("/clear")?;
        self.session.left()?;
        self.session.become_another(&uuid()?, false)?;
        self.session.register("idle", None)?;
        self.source = "clear";
        let block = self.block();
        if let Some(screen) = &mut self.screen {
            screen.clear();
            screen.redraw(&block);
        }
        self.begin()
    }

    fn options(&self) -> Vec<String> {
        match &self.doing {
            Doing::Asking { beat: Beat::Ask { options, .. }, .. } => options.clone(),
            Doing::Asking { .. } => vec!["Yes".into(), "No, and tell it what to do differently (esc)".into()],
            _ => Vec::new(),
        }
    }

    /// The lower part of the screen.
    fn block(&self) -> Vec<String> {
        let seconds = self.began.elapsed().as_secs();
        let mut block = vec![String::new()];
        match &self.doing {
            Doing::Nothing => {}
            Doing::Thinking(_) => block.push(format!("✻ Working… ({seconds}s · esc to interrupt)")),
            Doing::Running { work, .. } => {
                block.push(format!("  ⎿ {}", work.heard().lines().last().unwrap_or("Running…")));
                block.push(format!("✻ Working… ({seconds}s · esc to interrupt)"));
            }
            Doing::Asking { beat, at, .. } => {
                match beat {
                    Beat::Ask { question, .. } => block.push(question.clone()),
                    Beat::Run { command, .. } => {
                        block.extend(["Bash command".into(), format!("  {command}"), "Do you want to proceed?".into()]);
                    }
                    _ => {}
                }
                for (i, option) in self.options().iter().enumerate() {
                    block.push(format!("{} {}. {option}", if i == *at { '❯' } else { ' ' }, i + 1));
                }
                return block;
            }
        }
        if self.leaving {
            block.push("Press Ctrl-C again to exit".into());
        }
        block.push(format!("❯ {}", self.input.replace(['\n', '\r'], "⏎")));
        block
    }

    fn draw(&mut self) {
        let block = self.block();
        self.screen.iter_mut().for_each(|screen| screen.update(&block));
    }

    fn say(&mut self, text: &str) {
        let block = self.block();
        self.screen.iter_mut().for_each(|screen| screen.say(text, &block));
    }

    /// One event of the structured output, without a terminal.
    fn stream(&self, mut event: Value) {
        if self.screen.is_none() {
            event["session_id"] = json!(self.session.id);
            drop(writeln!(io::stdout(), "{event}"));
        }
    }
}
