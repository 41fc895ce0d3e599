//! The words of a line, without what Claude Code puts around them.

use crate::json::Value;
use crate::needs::Need;

/// What `/login` says of itself when it went well, else `Login interrupted`.
pub const LOGGED_IN: &str = "<local-command-stdout>Login successful";

/// What the program says to the model after its answer, if a hook does not let it end.
pub const GO_ON: &str = "Stop hook feedback:";

/// How the line begins by which it records that a person has interrupted it.
pub const INTERRUPTED: &str = "[Request interrupted by user";

/// What the program says of a task of its own that has come to an end: a background shell, a sub-agent.
pub const NOTICE: &str = "<task-notification>";

/// How a line of a command of the program itself begins, which opens no turn; the last as versions before 2.1 wrote it.
pub const OWN_COMMANDS: [&str; 3] = ["<command-name>", "<local-command", "<user-memory-input>"];

/// How a line begins by which the program records that a person left it: it is not always in time to.
pub const EXITS: [&str; 2] = ["<command-name>/exit<", "<command-name>/quit<"];

/// The text among several that a person wrote: an editor puts before it, each in a tag, what is open and selected there.
pub fn spoken(content: Value<'_>) -> Option<&str> {
    let texts = || content.items().filter_map(|i| i.get("text").str());
    texts().find(|text| !text.trim_start().starts_with("<ide_")).or_else(|| texts().next())
}

/// The tasks that a notice is about.
pub fn tasks(notice: &str) -> impl Iterator<Item = &str> {
    notice.split("<task-id>").skip(1).filter_map(|rest| rest.split("</task-id>").next())
}

/// What a person typed: a command of their own stands in tags.
pub fn typed(text: &str) -> String {
    if !text.starts_with("<command-") {
        return text.trim().to_owned();
    }
    let tag = |name: &str| {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        let from = text.find(&open)? + open.len();
        Some(text[from..].split(&close).next().unwrap_or("").trim())
    };
    match tag("command-name") {
        Some(name) => format!("{name} {}", tag("command-args").unwrap_or("")).trim().to_owned(),
        None => text.trim().to_owned(),
    }
}

/// By Claude's own word for an error; those it does not know it calls `unknown`.
pub fn need(error: &str) -> Option<Need> {
    match error {
        "authentication_failed"
        | "oauth_org_not_allowed"
        | "account_on_hold"
        | "verification_required"
        | "cloud_credential_error" => Some(Need::Login),
        "rate_limit" | "billing_error" => Some(Need::Limit),
        _ => None,
    }
}

/// A version's numbers, as far as they are numbers.
pub fn version(text: &[u8]) -> (u32, u32, u32) {
    let digit = |n: u32, d: &u8| d.is_ascii_digit().then(|| n.checked_mul(10)?.checked_add(u32::from(d - b'0')))?;
    let mut parts = text.split(|b| *b == b'.').map(|part| part.iter().try_fold(0, digit).unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next())
}
