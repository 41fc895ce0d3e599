//! What Claude Code asks on its terminal before it has a session: whether it may trust a folder, use a key, ask for
//! nothing. Until that is answered nothing of it is registered, so nothing else tells.

use lariat_core::{Ask, AskKind};

/// It asks that at once: who has written more is past it.
const EARLY: usize = 32 << 10;
/// Each of these questions ends so, whatever it is.
const ASKED: &str = "Enter to confirm";
/// What is written when one of them is over: pastes are marked no longer.
const OVER: &[u8] = b"\x1b[?2004l";
/// What is written once it has come up: its title.
const UP: &[u8] = b"\x1b]0;";

/// What each asks, by words of it.
const QUESTIONS: [(&str, &str); 3] = [
    ("trust this folder", "whether it may trust the files in this folder"),
    ("use this API key?", "whether it shall use the API key of its environment"),
    ("Bypass Permissions", "whether it may do anything without asking"),
];

/// What it asks, by the last that stands on its terminal.
pub fn asked(last: &[u8]) -> Option<Ask> {
    let shown = memchr::memmem::rfind(last, OVER).map_or(last, |at| &last[at..]);
    if last.len() > EARLY || memchr::memmem::find(shown, UP).is_some() {
        return None;
    }
    let shown = words(shown);
    let text = QUESTIONS.iter().find(|(words, _)| shown.contains(words)).map_or("what stands there", |(_, text)| text);
    shown.contains(ASKED).then(|| Ask { kind: AskKind::Dialog, text: text.into() })
}

/// The words without what moves the cursor between them.
fn words(output: &[u8]) -> String {
    let mut text = String::new();
    for (i, part) in String::from_utf8_lossy(output).split('\x1b').enumerate() {
        // What begins after an escape is a sequence, which ends with a letter.
        let plain = match part.strip_prefix('[') {
            Some(sequence) if i > 0 => {
                sequence.find(|c: char| c.is_ascii_alphabetic()).map_or("", |at| &sequence[at + 1..])
            }
            _ => part,
        };
        for word in plain.split_whitespace() {
            text.push_str(word);
            text.push(' ');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_asks_before_it_has_a_session_stands_until_it_is_over() {
        let reason = |output: &str| asked(output.as_bytes()).map(|ask| ask.reason().raw().to_owned());
        let ends = "\r\n\x1b[2G\x1b[38;5;246mEnter\x1b[8Gto\x1b[11Gconfirm\x1b[19G·\x1b[21GEsc\x1b[25Gto\x1b[28Gcancel";
        let trust = format!("\x1b[?2004h\x1b[4GYes,\x1b[9GI\x1b[11Gtrust\x1b[17Gthis\x1b[22Gfolder{ends}");
        let trusts = Some("dialog: whether it may trust the files in this folder".to_owned());
        assert_eq!(reason(&trust), trusts);
        // Another choice is marked.
        let chosen = format!("{trust}\r\x1b[1C\x1b[1B\x1b[38;5;153m❯\x1b[4GYes, I trust this folder\x1b[39m");
        assert_eq!(reason(&chosen), trusts);
        let over = format!("{chosen}\x1b[>4m\x1b[?2004l\x1b[2K");
        assert_eq!((reason(&over), reason("\x1b[2Gwords"), reason("")), (None, None, None));
        let another = format!("{over}\x1b[?2004h\x1b[3GDo\x1b[6Gyou{ends}");
        assert_eq!(reason(&another).as_deref(), Some("dialog: what stands there"));
        // Up, it says itself what it does.
        assert_eq!(reason(&format!("{over}\x1b[?2004h\x1b]0;✳ Claude Code\x07{ends}")), None);
    }
}
