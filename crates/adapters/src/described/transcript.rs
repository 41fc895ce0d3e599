//! Where a described agent's transcript of a session is: a path with the id in it, and `*` for what may
//! stand there. No file is a session's because it is the newest.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use lariat_core::Time;
use lariat_sys::file::Directory;

use crate::look::Places;
use crate::settings::Described;

/// So many entries are looked at, at most.
const MOST: usize = 10_000;

/// The transcript of a session and when it was last written; `None` if there is none, or several.
pub fn find(places: &Places, described: &Described, id: &str) -> Option<(PathBuf, Option<Time>)> {
    let mut files = all(places, described, id)?.into_iter();
    let (about, path) = files.next()?;
    // Two that fit: which is the session's is not said.
    if files.next().is_some() {
        return None;
    }
    let at = about.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
    Some((path, at.and_then(|at| i64::try_from(at.as_millis()).ok()).map(Time)))
}

/// Whether it is sure that a session has no transcript where the description says it would be.
pub fn has_none(places: &Places, described: &Described, id: &str) -> bool {
    all(places, described, id).is_some_and(|files| files.is_empty())
}

/// The files that fit; `None` if that cannot be said.
fn all(places: &Places, described: &Described, id: &str) -> Option<Vec<(Metadata, PathBuf)>> {
    let plain = !id.is_empty() && !id.contains(['/', '*']) && id != "." && id != "..";
    let pattern = described.transcripts.as_ref().filter(|_| plain)?.replace("{id}", id);
    let path = match pattern.strip_prefix("~/") {
        Some(rest) => places.home.join(rest),
        None => PathBuf::from(&pattern),
    };
    let mut left = MOST;
    let mut found: Vec<PathBuf> = vec![PathBuf::from("/")];
    for part in path.strip_prefix("/").ok()?.iter() {
        let part = part.to_str()?;
        found = match part.contains('*') {
            false => found.into_iter().map(|folder| folder.join(part)).collect(),
            true => {
                let mut next = Vec::new();
                for folder in &found {
                    next.extend(matching(folder, part, &mut left)?);
                }
                next
            }
        };
    }
    let mut files = Vec::new();
    for path in found {
        match path.metadata() {
            Ok(about) if about.is_file() => files.push((about, path)),
            Ok(_) => {}
            Err(e) if is_absent(&e) => {}
            Err(_) => return None,
        }
    }
    Some(files)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The names in a folder that fit; `None` if they cannot all be looked at.
fn matching(folder: &Path, pattern: &str, left: &mut usize) -> Option<Vec<PathBuf>> {
    let entries = match Directory::open(folder).and_then(|d| d.entries()) {
        Ok(entries) => entries,
        Err(e) if is_absent(&e) => return Some(Vec::new()),
        Err(_) => return None,
    };
    *left = left.checked_sub(entries.len())?;
    Some(entries.into_iter().filter(|e| fits(&e.name, pattern)).map(|e| folder.join(e.name)).collect())
}

/// Whether a name is what a pattern says, `*` being anything.
fn fits(name: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_star_is_anything() {
        assert!(fits("2026_a-1.jsonl", "*_a-1.jsonl"));
        assert!(fits("a-1.jsonl", "a-1.jsonl"));
        assert!(fits("x-a-1-y", "*a-1*"));
        assert!(!fits("a-1", "a-1.*"));
        assert!(!fits("ab", "ab*b"));
        assert!(!fits("a-12.jsonl", "*a-1.jsonl"));
    }
}
