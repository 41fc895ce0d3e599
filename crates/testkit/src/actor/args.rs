//! The part of Claude Code's command line that the actor knows.

use serde_json::Value;

/// What the actor was started with.
#[derive(Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "named after the flags")]
pub struct Args {
    pub session_id: Option<String>,
    pub resume: Option<String>,
    pub fork: bool,
    pub headless: bool,
    pub name: Option<String>,
    pub model: Option<String>,
    pub settings: Value,
    /// Everything is allowed beforehand.
    pub trusted: bool,
    pub prompt: Option<String>,
}

impl Args {
    /// Reads the arguments after the program.
    pub fn read(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut args = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let (flag, value) = match argument.split_once('=') {
                Some((flag, value)) if flag.starts_with("--") => (flag.to_owned(), Some(value.to_owned())),
                _ => (argument, None),
            };
            let mut value = || value.clone().or_else(|| arguments.next()).ok_or(format!("{flag} needs a value"));
            match flag.as_str() {
                "--session-id" => args.session_id = Some(id(value()?)?),
                "-r" | "--resume" => args.resume = Some(id(value()?)?),
                "--fork-session" => args.fork = true,
                "-p" | "--print" => args.headless = true,
                "-n" | "--name" => args.name = Some(value()?),
                "--model" => args.model = Some(value()?),
                "--settings" => {
                    args.settings = serde_json::from_str(&value()?).map_err(|e| format!("--settings: {e}"))?;
                }
                "--permission-mode" => args.trusted |= value()? == "bypassPermissions",
                "--allowedTools" | "--allowed-tools" => args.trusted |= value()?.contains("Bash"),
                "--output-format" | "--input-format" => drop(value()?),
                "--" => args.prompt = arguments.next(),
                flag if flag.starts_with('-') => {}
                _ => args.prompt = Some(flag),
            }
        }
        match (&args.session_id, &args.resume, args.fork) {
            (Some(_), Some(_), false) => Err("--session-id can only be used with --resume if --fork-session is".into()),
            (_, None, true) => Err("--fork-session needs --resume".into()),
            _ => Ok(args),
        }
    }
}

fn id(text: String) -> Result<String, String> {
    let dashes = [8, 13, 18, 23];
    let fits = |(i, b): (usize, u8)| if dashes.contains(&i) { b == b'-' } else { b.is_ascii_hexdigit() };
    let is_uuid = text.len() == 36 && text.bytes().enumerate().all(fits);
    if is_uuid { Ok(text.to_ascii_lowercase()) } else { Err("Invalid session ID. Must be a valid UUID.".into()) }
}
