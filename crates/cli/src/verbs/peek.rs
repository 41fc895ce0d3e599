//! `lariat peek`: the last whole reply, the open tool, the pending question.

use std::borrow::Cow;
use std::time::Duration;

use lariat_adapters::look::{Places, Scope};
use lariat_adapters::talk::{Said, Speaker};
use lariat_core::{Session, Status, Time, Untrusted};
use lariat_engine::list::{Answer, Question};
use lariat_engine::{list, peek, send};
use lariat_sys::watch::Watch;
use serde::Serialize;

use crate::Done;
use crate::args::{self, Common};
use crate::output::{Failure, Ink, Out, Spans, complain, leave_with_the_reader};
use crate::verbs::{find, question, warn};

/// Between two questions to a gateway whose session is followed.
const BETWEEN: Duration = Duration::from_secs(1);

/// Of one of which nothing is told.
const UNTOLD: &str = "no reply is known; `lariat logs` shows its terminal";

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    at: Option<Time>,
    text: &'a Untrusted,
}

impl<'a> From<&'a Said> for Message<'a> {
    fn from(said: &'a Said) -> Self {
        let role = match said.who {
            Speaker::Person => "person",
            Speaker::Agent => "agent",
            Speaker::Tool => "tool",
        };
        Message { role, at: said.at, text: &said.text }
    }
}

#[derive(Serialize)]
struct Peeked<'a> {
    schema: u32,
    at: Time,
    id: &'a Untrusted,
    status: Status,
    reason: &'a Untrusted,
    live: Option<bool>,
    reply: Option<&'a Untrusted>,
    tool: Option<&'a Untrusted>,
    asks: Option<&'a Untrusted>,
    messages: Vec<Message<'a>>,
}

pub fn run(args: &args::Peek, common: &Common, out: &mut Out) -> Done {
    if args.follow {
        leave_with_the_reader();
    }
    let (answer, at) = find(&args.target, common)?;
    let session = &answer.listing.sessions[at];
    let places = question(common, Scope::All).places;
    if args.follow && send::is_mute(session.agent) {
        let why = "nothing tells what it says; `lariat logs -f` shows its terminal";
        return Err(Failure::Refused(format!("{}: {why}", session.id.row())));
    }
    if args.all {
        let shown = page(args, session, &places, out);
        warn(&answer.listing.warnings);
        return shown;
    }
    let Some(transcript) = session.transcript.as_deref() else {
        return without_transcript(args, session, &answer, common, out);
    };
    let talk = peek::last_replies(session.teller(), &places, transcript, args.replies.into())
        .map_err(|e| anyhow::anyhow!("reading {}: {e}", Untrusted::new(transcript.to_string_lossy()).row()))?;
    show(session, answer.listing.at, &talk.said, out)?;
    out.flush()?;
    warn(&answer.listing.warnings);
    if args.follow { follow(session, transcript, talk.offset, out) } else { Ok(0) }
}

/// One thing said, of a whole conversation.
#[derive(Serialize)]
struct Turn<'a> {
    n: u64,
    at: Option<Time>,
    who: &'static str,
    text: Cow<'a, Untrusted>,
    tool: Option<Tool<'a>>,
    /// It was longer.
    cut: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a Untrusted,
    input: Cow<'a, Untrusted>,
    output: Option<Cow<'a, Untrusted>>,
    failed: Option<bool>,
}

#[derive(Serialize)]
struct Talk<'a> {
    schema: u32,
    session: &'a Session,
    turns: Vec<Turn<'a>>,
    before: Option<u64>,
}

impl<'a> From<&'a Said> for Turn<'a> {
    fn from(said: &'a Said) -> Self {
        const TEXT: usize = 256 << 10;
        const TOOL: usize = 32 << 10;
        let mut cut = false;
        let mut shorter = |text: &'a Untrusted, most: usize| {
            let raw = text.raw();
            if raw.len() <= most {
                return Cow::Borrowed(text);
            }
            cut = true;
            let end = (0..=most).rev().find(|at| raw.is_char_boundary(*at)).unwrap_or(0);
            Cow::Owned(Untrusted::new(&raw[..end]))
        };
        let text = shorter(&said.text, TEXT);
        let tool = said.tool.as_ref().map(|tool| Tool {
            name: &tool.name,
            input: shorter(&tool.input, TOOL),
            output: tool.output.as_ref().map(|output| shorter(output, TOOL)),
            failed: tool.failed,
        });
        Turn { n: said.place, at: said.at, who: Message::from(said).role, text, tool, cut }
    }
}

/// A part of the whole conversation.
fn page(args: &args::Peek, session: &Session, places: &Places, out: &mut Out) -> Done {
    let page = peek::page(session, places, args.before, args.limit.into())
        .map_err(|e| anyhow::anyhow!("{}", Untrusted::new(e).row()))?;
    if out.json {
        let turns = page.said.iter().map(Turn::from).collect();
        out.json(&Talk { schema: 1, session, turns, before: page.before })?;
        return Ok(0);
    }
    if send::is_mute(session.agent) {
        out.line(UNTOLD)?;
    }
    for said in &page.said {
        show_message(said, out)?;
        if let Some(output) = said.tool.as_ref().and_then(|t| t.output.as_ref()) {
            for line in output.block().trim_end().lines() {
                out.line(out.ink(Ink::Dim, format_args!("    {line}")))?;
            }
        }
    }
    if let Some(before) = page.before {
        out.line(out.ink(Ink::Dim, format_args!("there is more: --before {before}")))?;
    }
    Ok(0)
}

/// What a gateway tells of its session; else there is nothing to show.
fn without_transcript(args: &args::Peek, session: &Session, answer: &Answer, common: &Common, out: &mut Out) -> Done {
    let places = question(common, Scope::All).places;
    let told = peek::last_replies_of_gateway(session, &places, args.replies.into());
    let follows = args.follow && told.as_ref().is_some_and(Result::is_ok);
    let (said, code) = match told {
        Some(Ok(said)) => (said, 0),
        Some(Err(why)) => {
            complain(format_args!("{}: {}", session.id.row(), Untrusted::new(why).row()));
            (Vec::new(), 5)
        }
        None => (Vec::new(), 0),
    };
    show(session, answer.listing.at, &said, out)?;
    out.flush()?;
    warn(&answer.listing.warnings);
    if follows { follow_gateway(session, said.last(), common, out) } else { Ok(code) }
}

/// Shows what is said from now on, until the gateway says that no run of the session is open. It is asked
/// again and again: nothing else tells of it.
fn follow_gateway(session: &Session, shown: Option<&Said>, common: &Common, out: &mut Out) -> Done {
    let question = Question { agent: Some(session.agent), ..question(common, Scope::All) };
    let mut shown = shown.cloned();
    loop {
        // First whether it is over, then what was said: so the last words are not missed.
        let found = list(question.clone()).listing.sessions.into_iter().find(|s| s.id == session.id);
        let live = found.as_ref().map_or(Some(false), |s| s.live);
        let told = match (live, peek::said_at_gateway(session, &question.places)) {
            (Some(_), Some(Ok(told))) => told,
            (_, Some(Err(why))) if live.is_some() && found.is_some() => {
                complain(format_args!("{}: {}", session.id.row(), Untrusted::new(why).row()));
                return Ok(5);
            }
            (None, _) => {
                let why = found.map_or_else(String::new, |s| s.reason.row());
                complain(format_args!("{}: {why}", session.id.row()));
                return Ok(5);
            }
            _ => Vec::new(), // it is not there any more
        };
        let same = |a: &Said, b: &Said| (a.who, a.at, &a.text) == (b.who, b.at, &b.text);
        let from = shown.as_ref().and_then(|last| told.iter().rposition(|s| same(s, last))).map_or(0, |at| at + 1);
        for said in &told[from..] {
            if out.json { out.json(&Message::from(said))? } else { show_message(said, out)? }
        }
        out.flush()?;
        shown = told.last().cloned().or(shown);
        if live == Some(false) {
            return Ok(0);
        }
        std::thread::sleep(BETWEEN);
    }
}

/// Shows what is said from now on, until the session's process has ended.
fn follow(session: &Session, transcript: &std::path::Path, mut offset: u64, out: &mut Out) -> Done {
    loop {
        let mut watch = Watch::new();
        watch.path(&peek::stirs(session.teller(), transcript));
        session.pid.into_iter().for_each(|pid| watch.process(pid));
        let same = |p: lariat_sys::scan::Process| Some(p.start) == session.start;
        let ended = session.pid.is_none_or(|pid| lariat_sys::scan::look(pid).is_ok_and(|p| !p.is_some_and(same)));
        let more = peek::since(session.teller(), transcript, offset)?;
        for said in &more.said {
            if out.json {
                out.json(&Message::from(said))?;
                continue;
            }
            show_message(said, out)?;
        }
        out.flush()?;
        if ended {
            return Ok(0);
        }
        if more.offset == offset {
            watch.sleep(Duration::from_secs(60), Duration::from_millis(20))?;
        }
        offset = more.offset;
    }
}

fn show(session: &Session, at: Time, said: &[Said], out: &mut Out) -> Result<(), Failure> {
    let asks = (session.status == Status::Waiting).then_some(&session.reason);
    let reply = said.iter().rev().find(|s| s.who == Speaker::Agent).map(|s| &s.text);
    if out.json {
        return out.json(&Peeked {
            schema: 1,
            at,
            id: &session.id,
            status: session.status,
            reason: &session.reason,
            live: session.live,
            reply,
            tool: session.tool.as_ref(),
            asks,
            messages: said.iter().map(Message::from).collect(),
        });
    }
    for line in lines(session, said, out.columns()) {
        out.line(out.spans(&line))?;
    }
    Ok(())
}

/// What a session last said, line by line; only tool calls are cut to fit.
pub fn lines(session: &Session, said: &[Said], columns: usize) -> Vec<Spans> {
    let head = format!("{}  {}: {}", session.id.row(), session.status.word(), session.reason.row());
    let mut lines = vec![vec![(Ink::Dim, head)]];
    said.iter().for_each(|s| lines.extend(message(s, columns)));
    if !said.iter().any(|s| s.who == Speaker::Agent) {
        let none = if send::is_mute(session.agent) { UNTOLD } else { "no reply yet" };
        lines.push(vec![(Ink::Plain, none.into())]);
    }
    let asks = (session.status == Status::Waiting).then_some(&session.reason);
    let more = [(Ink::Active, "open tool:", session.tool.as_ref()), (Ink::Urgent, "needs you:", asks)];
    for (ink, what, text) in more.into_iter().filter_map(|(ink, what, text)| text.map(|t| (ink, what, t))) {
        lines.extend([Vec::new(), vec![(ink, what.to_owned()), (Ink::Plain, format!(" {}", text.row()))]]);
    }
    lines
}

fn show_message(said: &Said, out: &mut Out) -> Result<(), Failure> {
    for line in message(said, out.columns()) {
        out.line(out.spans(&line))?;
    }
    Ok(())
}

fn message(said: &Said, columns: usize) -> Vec<Spans> {
    match said.who {
        Speaker::Person => {
            let block = said.text.block();
            let lines = block.lines().map(|line| vec![(Ink::Bold, format!("> {line}"))]);
            lines.chain([Vec::new()]).collect()
        }
        Speaker::Agent => said.text.block().trim_end().lines().map(|l| vec![(Ink::Plain, l.to_owned())]).collect(),
        Speaker::Tool => {
            let text = said.text.row_within(columns.saturating_sub(4));
            vec![vec![(Ink::Dim, format!("  $ {text}"))]]
        }
    }
}
