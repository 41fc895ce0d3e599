//! Recording what a real agent left in its store, as a fixture the project may keep.
//!
//! A fixture is a HOME with one agent's store in it. Only what says something about sessions is
//! taken: nothing secret, no database, no socket. The sandbox's paths become `/home/dev`, the
//! machine's id zeros, and long prose of the vendor's (system prompts, tool descriptions) filler.
//! Everything else stays byte for byte, in its order, torn last lines included: text is rewritten
//! in place, never parsed and printed again.
//!
//! One thing cannot survive: a byte offset into another file (a fork's `end_byte_offset` in Codex)
//! counts the recorded agent's own paths, not the rewritten ones.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{Sandbox, database};

const DATABASE: &str = "opencode.db";

/// A string longer than this is prose.
const LONGEST: usize = 200;
/// How much of a long string stays, so that its kind can still be told.
const HEAD: usize = 40;
const FILLER: &[u8] = b"lorem ipsum dolor sit amet ";
/// Long strings under these keys are the conversation's own.
const SPOKEN: [&str; 5] = ["arguments", "command", "display", "lastPrompt", "last_agent_message"];
/// The home that fixtures show.
const HOME: &str = "/home/dev";

/// Whose store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// `.claude`
    Claude,
    /// `.codex`
    Codex,
    /// `.local/share/opencode`
    OpenCode,
    /// `.pi`
    Pi,
    /// `.gemini`
    Gemini,
}

impl Store {
    fn folder(self) -> &'static str {
        match self {
            Self::Claude => ".claude",
            Self::Codex => ".codex",
            Self::OpenCode => ".local/share/opencode",
            Self::Pi => ".pi",
            Self::Gemini => ".gemini",
        }
    }

    /// The agent's name.
    fn agent(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::OpenCode => "opencode",
            Self::Pi => "pi",
            Self::Gemini => "gemini",
        }
    }

    /// What in it is about sessions.
    fn parts(self) -> &'static [&'static str] {
        match self {
            Self::Claude => &["sessions", "projects", "jobs", "daemon", "daemon.lock", "history.jsonl"],
            Self::Codex => &[
                "sessions",
                "archived_sessions",
                "thread-writer-locks",
                "app-server-daemon/daemon.pid",
                "history.jsonl",
                "session_index.jsonl",
            ],
            // Its database is recorded as text; see [`database`].
            Self::OpenCode => &[],
            Self::Pi => &["agent/sessions"],
            Self::Gemini => &["tmp", "projects.json"],
        }
    }
}

/// Where the project keeps the recording of this case: `fixtures/AGENT/VERSION/CASE`.
pub fn fixture(store: Store, version: &str, case: &str) -> PathBuf {
    let agent = store.agent();
    crate::workspace().join("fixtures").join(agent).join(version).join(case)
}

/// Copies a sandbox's store into `fixture`, which becomes a HOME; returns the files it made. An
/// older recording in that place is replaced.
///
/// # Panics
/// When a file cannot be read or written; the message names it.
pub fn record(sandbox: &Sandbox, store: Store, fixture: &Path) -> Vec<PathBuf> {
    let rewrite = Rewrite::new(sandbox);
    let from = sandbox.home().join(store.folder());
    let to = fixture.join(store.folder());
    if to.exists() {
        fs::remove_dir_all(&to).unwrap_or_else(|e| panic!("{}: {e}", to.display()));
    }
    let mut made = Vec::new();
    for part in store.parts() {
        copy(&from.join(part), &from, &to, &rewrite, &mut made)
            .unwrap_or_else(|e| panic!("recording {}: {e}", from.join(part).display()));
    }
    if store == Store::OpenCode {
        let path = to.join(DATABASE).with_extension("sql");
        fs::create_dir_all(&to).unwrap_or_else(|e| panic!("{}: {e}", to.display()));
        let sql = database::dump(&from.join(DATABASE), &|text| rewrite.text(text));
        fs::write(&path, sql).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        made.push(path);
    }
    made.sort();
    made
}

/// A HOME made of a recorded one, with its database built from its text.
///
/// # Panics
/// When a file cannot be read or written; the message names it.
pub fn restore(fixture: &Path, home: &Path) {
    let folder = Store::OpenCode.folder();
    let sql = fixture.join(folder).join(DATABASE).with_extension("sql");
    let text = fs::read_to_string(&sql).unwrap_or_else(|e| panic!("{}: {e}", sql.display()));
    fs::create_dir_all(home.join(folder)).unwrap_or_else(|e| panic!("{}: {e}", home.display()));
    database::build(&home.join(folder).join(DATABASE), &text);
}

fn copy(path: &Path, from: &Path, to: &Path, rewrite: &Rewrite, made: &mut Vec<PathBuf>) -> io::Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if kind.is_dir() {
        for entry in fs::read_dir(path)? {
            copy(&entry?.path(), from, to, rewrite, made)?;
        }
        return Ok(());
    }
    if !kind.is_file() || private(path) {
        return Ok(());
    }
    let relative = path.strip_prefix(from).map_err(io::Error::other)?;
    let target = to.join(rewrite.paths(&relative.to_string_lossy()));
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder)?;
    }
    let text = String::from_utf8_lossy(&fs::read(path)?).into_owned();
    fs::write(&target, rewrite.text(&text))?;
    made.push(target);
    Ok(())
}

/// Whether a file is not to be read at all.
fn private(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let named = ["credential", "token", "secret", "auth"].iter().any(|word| name.contains(word));
    named || name == "daemon.lock" || name.ends_with(".key") || name.ends_with(".sock") || name.contains(".sqlite")
}

struct Rewrite {
    /// From, to; longest first.
    paths: Vec<(String, String)>,
    machine_id: Option<String>,
}

impl Rewrite {
    fn new(sandbox: &Sandbox) -> Self {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let (home, root) = (text(&sandbox.home()), text(sandbox.root()));
        let machine_id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        Self {
            paths: vec![
                (slug(&home), slug(HOME)),
                (pi_slug(&home), pi_slug(HOME)),
                (home, HOME.to_owned()),
                (slug(&root), slug(HOME) + "--sandbox"),
                (root, HOME.to_owned() + "/.sandbox"),
            ],
            machine_id: Some(machine_id.trim().to_owned()).filter(|id| !id.is_empty()),
        }
    }

    fn paths(&self, text: &str) -> String {
        self.paths.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    fn text(&self, text: &str) -> String {
        let text = self.paths(&without_prose(text));
        match &self.machine_id {
            Some(id) => text.replace(id, &"0".repeat(id.len())),
            None => text,
        }
    }
}

/// How Claude names a project's folder.
fn slug(path: &str) -> String {
    path.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// How Pi names a project's folder, between dashes.
fn pi_slug(path: &str) -> String {
    path.trim_start_matches('/').replace('/', "-")
}

/// JSON text with every long string that is not the conversation's own turned into filler of the
/// same length in bytes.
fn without_prose(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut key = "";
    let mut rest = text;
    while let Some(open) = rest.find('"') {
        let (before, quoted) = rest.split_at(open + 1);
        out.extend(before.bytes());
        let Some(length) = literal(quoted) else {
            // A torn last line.
            rest = quoted;
            break;
        };
        let (inside, after) = quoted.split_at(length);
        if after[1..].trim_start().starts_with(':') {
            key = inside;
            out.extend(inside.bytes());
        } else if inside.len() > LONGEST && !SPOKEN.contains(&key) {
            out.extend(filled(inside));
        } else {
            out.extend(inside.bytes());
        }
        out.push(b'"');
        rest = &after[1..];
    }
    out.extend(rest.bytes());
    String::from_utf8(out).expect("only whole characters were replaced")
}

/// The length of the string literal that starts here, without its closing quote.
fn literal(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'\n' => return None,
            b'"' if !escaped => return Some(at),
            _ => escaped = byte == b'\\' && !escaped,
        }
    }
    None
}

/// Filler of the same length: the head stays, and so do escapes and short tags (`<like-this>`).
fn filled(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let head = (HEAD..=bytes.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(bytes.len());
    // An escape is never cut in two.
    let head = bytes[..head].iter().rposition(|&byte| byte == b'\\').map_or(head, |at| at.min(head));
    let mut out = bytes[..head].to_vec();
    let mut at = head;
    while at < bytes.len() {
        let kept = match bytes[at] {
            b'\\' if bytes.get(at + 1) == Some(&b'u') => 6,
            b'\\' => 2,
            b'<' => tag(&text[at..]),
            _ => 0,
        };
        if kept > 0 {
            let end = (at + kept).min(bytes.len());
            out.extend(&bytes[at..end]);
            at = end;
        } else {
            out.push(FILLER[at % FILLER.len()]);
            at += 1;
        }
    }
    out
}

/// The length of a short tag that opens or closes here, or 0.
fn tag(text: &str) -> usize {
    match text.find('>') {
        Some(end @ 2..40) if text[1..end].bytes().all(is_tag_byte) => end + 1,
        _ => 0,
    }
}

fn is_tag_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || matches!(byte, b'-' | b'_' | b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_prose_becomes_filler_of_the_same_length() {
        let prose = format!("<system-reminder>{} \\n\\\"ä\\u00e4 </system-reminder>", "secret ".repeat(60));
        let line = format!("{{\"a\":\"short\",\"text\":\"{prose}\",\"command\":\"{prose}\"}}\n");
        let out = without_prose(&line);
        assert_eq!(out.len(), line.len());
        assert!(out.starts_with("{\"a\":\"short\",\"text\":\"<system-reminder>secret"));
        assert_eq!(out.matches("secret").count(), 60 + 3, "the command's and the head's: {out}");
        assert_eq!(out.matches("</system-reminder>").count(), 2);
        let whole: serde_json::Value = serde_json::from_str(&out).expect("still JSON");
        assert_eq!(
            whole["command"].as_str().map(str::len),
            serde_json::from_str::<serde_json::Value>(&line).expect("JSON")["text"].as_str().map(str::len)
        );
    }

    #[test]
    fn a_torn_line_stays_as_it_is() {
        let line = format!("{{\"a\":1}}\n{{\"text\":\"{}", "x".repeat(300));
        assert_eq!(without_prose(&line), line);
    }

    #[test]
    fn secrets_are_not_read() {
        for name in ["12.ab.key", "auth.json", ".credentials.json", "x.sock", "state_5.sqlite-wal"] {
            assert!(private(Path::new(name)), "{name}");
        }
        assert!(!private(Path::new("26624.json")));
    }
}
