//! `lariat send`: a prompt that is known to have arrived.

use lariat_adapters::look::Scope;
use lariat_adapters::talk::Speaker;
use lariat_core::{Fact, Observation, Outcome, Session, Status, Turn, Untrusted};
use lariat_engine::list;
use lariat_engine::list::{Answer, Question};
use lariat_engine::peek;
use lariat_engine::send::{self, Around, Message, SendError, Sent};
use lariat_sys::point::point;
use serde::Serialize;

use crate::Done;
use crate::args::{Common, Send};
use crate::output::{Failure, Out, Wrong, complain};
use crate::verbs::{attach, find, launch, ls, question};

#[derive(Serialize)]
struct Told<'a> {
    id: &'a Untrusted,
    outcome: &'static str,
    reason: Option<String>,
    status: Option<Status>,
    reply: Option<Untrusted>,
    /// What stood at its prompt before, and was sent with the text: what the text came after, and what it came before.
    before: Option<Untrusted>,
    after: Option<Untrusted>,
    schema: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Wrong>,
}

pub fn run(args: &Send, common: &Common, out: &mut Out) -> Done {
    let mut text = args.text.join(" ");
    if text == "-" {
        text = launch::read_input()?;
    }
    if text.trim().is_empty() {
        return Err(Failure::Usage("nothing to send".into()));
    }
    let (mut answer, mut at) = find(&args.target, common)?;
    let session = &answer.listing.sessions[at];
    if (args.when_idle || args.wait) && send::is_mute(session.agent) {
        let why = "nothing tells when a turn of it is over: leave out --wait and --when-idle";
        return Err(Failure::Refused(format!("{}: {why}", session.id.row())));
    }
    let all = question(common, Scope::All);
    let message = || Message { text: text.trim_end(), key: args.key.as_deref(), patience: args.timeout };
    let sent = loop {
        // What will never listen is not waited for.
        let session = &answer.listing.sessions[at];
        let by_gateway = lariat_adapters::named(session.agent).is_some_and(|a| a.remote().is_some());
        if args.when_idle && (by_gateway || attach::reached(session, common).is_ok()) {
            (answer, at) = until_it_listens(answer, at, common)?;
        }
        let session = &answer.listing.sessions[at];
        let sent = give(&all, session, message(), common)?;
        let nothing_typed = matches!(sent, Err(SendError::Busy(_) | SendError::Blocked(_)));
        if !args.when_idle || !nothing_typed || session.live == Some(false) {
            break sent;
        }
        // Another was first: it does not listen any more.
        point("send.again");
        let id = session.id.clone();
        answer = list(question(common, Scope::All));
        at = place(&answer, &id)?;
    };
    let session = &answer.listing.sessions[at];
    let (outcome, code) = match &sent {
        Ok(_) => ("sent", 0),
        Err(SendError::Blind | SendError::Command(_)) => ("typed", 5),
        Err(SendError::Blocked(_)) => ("blocked", 3),
        Err(SendError::Busy(_)) => ("busy", 3),
        Err(SendError::Stalled(_) | SendError::Unread(_) | SendError::Typed(_) | SendError::Untold(_)) => {
            ("stalled", 4)
        }
        Err(SendError::OtherText(_) | SendError::Refused(_)) => ("refused", 3),
        Err(SendError::Gateway(_)) if session.live.is_none() => ("unknown", 5),
        Err(_) => ("failed", 1),
    };
    let (Sent { offset, around: Around { before, after } }, reason) = match sent {
        Ok(sent) => (sent, None),
        Err(e) => (Sent::default(), Some(e.to_string())),
    };
    let (status, reply, error, schema) = (None, None, None, 1);
    let mut told = Told { id: &session.id, outcome, reason, status, reply, before, after, schema, error };
    let mut code = code;
    if code == 0 && args.wait {
        let end = turn(session.id.raw(), offset, common)?;
        code = u8::from(end.failed);
        (told.status, told.reply) = (Some(end.status), end.reply);
        told.reason = end.reason.filter(|_| end.failed || end.status == Status::Waiting);
    }
    if told.before.is_some() || told.after.is_some() {
        let words: Vec<String> = [&told.before, &told.after].into_iter().flatten().map(|t| t.row_within(80)).collect();
        let words = words.join("' and '");
        complain(format_args!("{}: what stood at its prompt was sent with it: '{words}'", session.id.row()));
    }
    let status = told.status.map_or_else(String::new, |status| format!("{}: ", status.word()));
    let why = told.reason.as_ref().map(|reason| format!("{status}{reason}"));
    match &told.reply {
        _ if out.json => {
            told.error = Wrong::by(code, why.clone().unwrap_or_else(|| outcome.to_owned()));
            out.json(&told)?;
        }
        Some(reply) => out.line(reply.block().trim_end())?,
        None if outcome == "sent" => out.line(format_args!("sent to {}", session.id.row()))?,
        None => {}
    }
    if let Some(why) = why {
        complain(format_args!("{}: {why}", session.id.row()));
    }
    Ok(code)
}

/// Sends once. That a session cannot be reached is told as any other outcome.
fn give(
    question: &Question,
    session: &Session,
    message: Message<'_>,
    common: &Common,
) -> Result<Result<Sent, SendError>, Failure> {
    if let Some(sent) = send::through_gateway(question, session, &message) {
        return Ok(sent.map(|()| Sent::default()));
    }
    match attach::reached(session, common) {
        Ok(launched) => Ok(send::send(question, session, &launched, message)),
        Err(Failure::Refused(why)) => {
            let id = format!("{}: ", session.id.row());
            Ok(Err(SendError::Refused(why.strip_prefix(&id).unwrap_or(&why).to_owned())))
        }
        Err(e) => Err(e),
    }
}

/// Where a session stands in an answer.
fn place(answer: &Answer, id: &Untrusted) -> Result<usize, Failure> {
    let found = answer.listing.sessions.iter().position(|s| s.is(id.raw()));
    found.ok_or_else(|| Failure::Usage(format!("{} is not there any more", id.row())))
}

/// Waits until a session stands at its prompt, or has ended.
fn until_it_listens(mut answer: Answer, mut at: usize, common: &Common) -> Result<(Answer, usize), Failure> {
    let id = answer.listing.sessions[at].id.clone();
    loop {
        let session = &answer.listing.sessions[at];
        if send::takes_prompts(session) || session.live == Some(false) {
            return Ok((answer, at));
        }
        answer = ls::next(&answer, &mut || list(question(common, Scope::All)), None)?;
        at = place(&answer, &id)?;
    }
}

fn is_over(session: &Session) -> bool {
    session.because.iter().any(|(_, o)| matches!(o.fact, Fact::Turn(Turn::Over(_))))
}

/// Whether its last turn ended in an error, though it lives.
fn has_failed(session: &Session) -> bool {
    let failed = |o: &Observation| matches!(o.fact, Fact::Turn(Turn::Over(Outcome::Failed(_))));
    session.because.iter().any(|(_, o)| failed(o))
}

/// What a turn that was sent came to.
struct End {
    /// How the session is then.
    status: Status,
    /// Why.
    reason: Option<String>,
    /// The turn failed, or was cut off with the session.
    failed: bool,
    /// What it replied since.
    reply: Option<Untrusted>,
}

/// Waits for the end of the turn that was sent.
fn turn(id: &str, offset: u64, common: &Common) -> Result<End, Failure> {
    let mut look = || list(question(common, Scope::All));
    let here = |answer: &Answer| answer.listing.sessions.iter().find(|s| s.is(id)).cloned();
    let reply = |session: &Session| -> Result<Option<Untrusted>, Failure> {
        let talk = session.transcript.as_ref().map(|t| peek::since(session.agent, t, offset)).transpose()?;
        let mut said = talk.map(|t| t.said).unwrap_or_default();
        if session.live == Some(false)
            && let Some(Ok(told)) = peek::last_replies_of_gateway(session, &question(common, Scope::All).places, 2)
        {
            let asked = told.iter().rposition(|s| s.who == Speaker::Person);
            said.extend(told.into_iter().skip(asked.map_or(0, |at| at + 1)));
        }
        Ok(said.into_iter().rev().find(|s| s.who == Speaker::Agent).map(|s| s.text))
    };
    let mut answer = look();
    loop {
        // Whether it has replied, and then how it is: a look from before that knows of no failure.
        let replied = here(&answer).map_or(Ok(None), |session| reply(&session))?.is_some();
        point("send.waits");
        answer = look();
        let Some(session) = here(&answer) else {
            return Ok(End { status: Status::Unknown, reason: None, failed: false, reply: None });
        };
        let over = match session.status {
            Status::Working | Status::Starting => false,
            // The prompt is on record and opened a turn. One that failed or was interrupted has no reply.
            _ if session.at_its_prompt() => replied || is_over(&session),
            _ => true,
        };
        if over {
            let failed = matches!(session.status, Status::Failed | Status::Interrupted) || has_failed(&session);
            let reply = reply(&session)?;
            return Ok(End { status: session.status, reason: Some(session.reason.row()), failed, reply });
        }
        answer = ls::next(&answer, &mut look, None)?;
    }
}
