//! Where a described agent's transcript of a session is: a path with the id in it, and `*` for what may
//! stand there. No file is a session's because it is the newest.

use std::path::{Path, PathBuf};

use lariat_core::Time;
use lariat_sys::file::Directory;

use crate::look::Places;
use crate::settings::Described;

/// So many entries are looked at, at most.
const MOST: usize = 10_000;

/// The transcript of a session and when it was last written; `None` if there is none, or several.
pub fn find(places: &Places, described: &Described, id: &str) -> Option<(PathBuf, Option<Time>)> {
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
            true => found.iter().flat_map(|folder| matching(folder, part, &mut left)).collect(),
        };
    }
    let mut files = found.into_iter().filter_map(|path| Some((path.metadata().ok().filter(|m| m.is_file())?, path)));
    let (about, path) = files.next()?;
    // Two that fit: which is the session's is not said.
    if files.next().is_some() {
        return None;
    }
    let at = about.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
    Some((path, at.and_then(|at| i64::try_from(at.as_millis()).ok()).map(Time)))
}

fn matching(folder: &Path, pattern: &str, left: &mut usize) -> Vec<PathBuf> {
    let entries = Directory::open(folder).and_then(|d| d.entries()).unwrap_or_default();
    let names = entries.into_iter().take(*left).map(|e| e.name);
    let found: Vec<_> = names
        .inspect(|_| *left = left.saturating_sub(1))
        .filter(|name| fits(name, pattern))
        .map(|name| folder.join(name))
        .collect();
    found
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
