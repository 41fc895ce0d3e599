//! What each key does. The one list of them: the screen of help and its search read it.

/// The keys of the list, by what they are for.
pub const KEYS: [(&str, &str); 35] = [
    ("j k ↓ ↑", "next, previous session"),
    ("g G", "first, last session"),
    ("PgUp PgDn", "a screenful up, down"),
    (".", "the next session that needs you"),
    ("Tab", "the session chosen before this one"),
    ("Enter", "attach: its terminal; Ctrl-Q comes back here"),
    ("Space", "peek and reply: all it said, and a line to answer"),
    ("t", "preview: what it said, or its terminal"),
    ("J K", "scroll the preview"),
    ("y", "approve what it asks"),
    ("N", "deny what it asks, with a reason"),
    ("n", "new: launch an agent"),
    ("r", "resume an ended session"),
    ("f", "fork: a new session with what was said in this one"),
    ("x", "stop it gently, with all it started"),
    ("X", "kill it at once, with all it started"),
    ("R", "restore: the plan of what was cut off; Enter carries it out"),
    ("e", "explain its status: every observation"),
    ("d", "diff: what has changed where it works"),
    ("l", "locks: who holds which directory"),
    ("w", "worktrees: what is in them"),
    ("!", "warnings: what could not be read"),
    ("a", "show ended sessions, or hide them"),
    ("/", "filter by words"),
    ("/ s:waiting", "filter by status, several by commas"),
    ("Esc", "no filter; in other views: back"),
    ("c", "copy the command line that does the same"),
    ("Ctrl-L", "draw everything anew"),
    ("Ctrl-Z", "suspend; `fg` comes back"),
    ("?", "this help; type to search it"),
    ("q Ctrl-C", "quit; every agent goes on"),
    ("click", "choose a session"),
    ("double click", "attach"),
    ("wheel", "scroll the list, or the preview under it"),
    ("● ○ ?", "a live process, none, cannot be told"),
];

/// Those that have all the words of a search.
pub fn found(search: &str) -> Vec<(&'static str, &'static str)> {
    let words: Vec<String> = search.split_whitespace().map(str::to_lowercase).collect();
    let fits = |(key, does): &&(&str, &str)| {
        let text = format!("{key} {does}").to_lowercase();
        words.iter().all(|w| text.contains(w.as_str()))
    };
    KEYS.iter().filter(fits).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_finds_by_every_word() {
        assert_eq!(found("").len(), KEYS.len());
        assert_eq!(found("gently STOP").first().map(|k| k.0), Some("x"));
        assert!(found("no such thing").is_empty());
    }
}
