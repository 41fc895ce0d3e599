//! The words of a line, without what Claude Code puts around them.

use crate::json::Value;

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
