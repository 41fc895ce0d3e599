//! One file per verb.

pub mod approve;
pub mod attach;
pub mod completions;
pub mod daemon;
pub mod demo;
pub mod diff;
pub mod doctor;
pub mod events;
pub mod explain;
pub mod fuse;
pub mod gateway;
pub mod gc;
pub mod host;
pub mod journal;
pub mod launch;
pub mod locks;
pub mod logs;
pub mod ls;
pub mod matrix;
pub mod mcp;
pub mod peek;
pub mod rename;
pub mod restore;
pub mod resume;
pub mod send;
pub mod status;
pub mod stop;
pub mod there;
pub mod top;
pub mod usage;
pub mod usage_of;
pub mod wait;
pub mod web;
pub mod worktree;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lariat_adapters::look::{Places, Scope};
use lariat_core::Warning;
use lariat_engine::list::Answer;
use lariat_engine::{NotOne, Question, list, resolve};

use crate::args::Common;
use crate::output::{Failure, complain};

/// What lariat runs of itself, on behalf of a session: not for people, so before the
/// parser.
pub fn within(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let verb = args.nth(1)?;
    let folder = PathBuf::from(args.next()?);
    if verb == lariat_engine::acp::VERB {
        return Some(lariat_engine::acp::owner::run(&folder).map_or_else(|e| failed(&folder, &e), ExitCode::from));
    }
    let question = Question { scope: Scope::Live, ..Question::all() };
    let done = match verb.to_str()? {
        lariat_engine::ask::VERB => lariat_engine::ask::hear(&question, &folder),
        lariat_engine::after::VERB => lariat_engine::after::ended(&question, &folder),
        _ => return None,
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => failed(&folder, &e),
    })
}

fn failed(path: &Path, error: &std::io::Error) -> ExitCode {
    complain(format_args!("lariat: {}: {error}", path.display()));
    ExitCode::FAILURE
}

/// What is asked by default.
pub fn question(common: &Common, scope: Scope) -> Question {
    Question { places: Places::from_env(), scope, deadline: common.deadline, agent: None }
}

/// Everything there is, and the one session that a target means.
pub fn find(target: &str, common: &Common) -> Result<(Answer, usize), Failure> {
    let answer = list(question(common, Scope::All));
    daemon::tell_seen(&answer);
    match resolve(target, &answer.listing.sessions) {
        Ok(at) => Ok((answer, at)),
        Err(error) => {
            warn(&answer.listing.warnings);
            Err(not_one(&error, &answer))
        }
    }
}

fn not_one(error: &NotOne, answer: &Answer) -> Failure {
    let sessions = &answer.listing.sessions;
    if answer.partial && matches!(error, NotOne::None(_)) {
        return Failure::Unread(format!("{}, but not every store could be read", escape(error)));
    }
    Failure::Usage(match error {
        NotOne::None(_) => format!("{}; `lariat ls -a` lists all {}", escape(error), sessions.len()),
        NotOne::Several { candidates, .. } => {
            let mut text = format!("{}; which one?", escape(error));
            for i in candidates.iter().take(20) {
                let s = &sessions[*i];
                let what = s.name.as_ref().or(s.title.as_ref()).or(s.prompt.as_ref());
                let what = what.map_or_else(String::new, |w| w.row_within(40));
                let handle = s.handle.as_deref().unwrap_or("─");
                text.push_str(&format!("\n  {}  {handle:<14}  {:<11} {what}", s.id.row(), s.status.word()));
            }
            if candidates.len() > 20 {
                text.push_str(&format!("\n  and {} more", candidates.len() - 20));
            }
            text
        }
    })
}

fn escape(error: &NotOne) -> String {
    lariat_core::Untrusted::new(error.to_string()).row()
}

/// Prints warnings where they do not disturb the answer.
pub fn warn(warnings: &[Warning]) {
    const MOST: usize = 20;
    for w in warnings.iter().take(MOST) {
        let path = w.path.as_ref().map_or_else(String::new, |p| format!("{}: ", p.row()));
        complain(format_args!("warning: {}: {path}{}", w.adapter, w.error.row()));
    }
    if warnings.len() > MOST {
        complain(format_args!("warning: and {} more; `lariat doctor` shows all", warnings.len() - MOST));
    }
}
