//! Row 11: nothing that acts is printed, and one row stays one row.
//!
//! Fuzzed strings stand in every field of a transcript that an agent controls, thousands of
//! sessions in one store, and go through every printing verb. Out may come only what is seen, and
//! newlines; and as many rows as there are sessions.
//!
//! The control strips escape sequences instead of showing them.

use std::fs;
use std::io;

use serde_json::{Value, json};

use crate::chance::Chance;
use crate::ground::Ground;
use crate::tally::Tally;

/// What terminals and eyes are fooled with.
const PIECES: &[&str] = &[
    "\x1b[2J",
    "\x1b[31m",
    "\x1b]52;c;aGFja2Vk\x07",
    "\x1b]0;a title without end",
    "\x1bP1$r\x1b\\",
    "\x1b[6n",
    "\x1bc",
    "\x1b",
    "\x1b[",
    "\u{9b}31m",
    "\u{9d}52;c;eA==\u{9c}",
    "\u{85}",
    "\x07",
    "\x08\x08\x08",
    "\x7f",
    "\0",
    "\n",
    "\r",
    "\r\n",
    "\t",
    "\x0b\x0c",
    "\n\n ● fake row",
    "\n ○ fake row",
    "\u{2028}",
    "\u{2029}",
    "\u{202e}gpj.exe",
    "\u{2066}\u{2069}",
    "\u{200b}\u{200d}\u{200e}",
    "\u{feff}",
    "\u{ad}",
    "\u{61c}",
    "\u{180e}",
    "\u{fff9}",
    "\u{e0001}\u{e0041}",
    "\u{1d173}",
    "a\u{301}\u{302}\u{303}",
    "日本語の長い文",
    "👩‍👩‍👧‍👦",
    "plain words",
    "%s%n",
    "\\x1b[2J",
    "\"",
    "{}",
    "│ │",
    "…",
];
/// Strings in one session.
const FIELDS: u64 = 7;
/// Sessions in one store.
const BATCH: u64 = 3_000;

/// Runs the row.
pub fn run(ground: &Ground, count: u64, chance: &mut Chance, tally: &mut Tally) -> io::Result<()> {
    let mut left = count.div_ceil(FIELDS);
    while left > 0 {
        let sessions = left.min(BATCH);
        batch(ground, sessions, chance, tally)?;
        left -= sessions;
    }
    Ok(())
}

fn fuzzed(chance: &mut Chance) -> String {
    let mut text = String::new();
    for _ in 0..1 + chance.below(5) {
        match chance.below(8) {
            0 => text.extend(char::from_u32(u32::try_from(chance.below(0x20)).unwrap_or(0))),
            1 => text.extend(char::from_u32(0x7f + u32::try_from(chance.below(0x21)).unwrap_or(0))),
            2 => text.extend(char::from_u32(u32::try_from(chance.below(0x11_0000)).unwrap_or(0))),
            3 => text.push_str(&"\u{300}".repeat(usize::try_from(chance.below(40)).unwrap_or(0))),
            _ => text.push_str(chance.pick::<&str>(PIECES)),
        }
    }
    text
}

fn batch(ground: &Ground, sessions: u64, chance: &mut Chance, tally: &mut Tally) -> io::Result<()> {
    let folder = ground.home.join(".claude/projects/p");
    let _ = fs::remove_dir_all(ground.home.join(".claude"));
    fs::create_dir_all(&folder)?;
    let mut ids = Vec::new();
    for n in 0..sessions {
        let id = ground.new_id();
        let texts: [String; 7] = std::array::from_fn(|_| fuzzed(chance));
        let stripped = strip(&texts[0]);
        tally.control("strip escape sequences", stripped.chars().any(acts));
        fs::write(folder.join(format!("{id}.jsonl")), transcript(&id, n, &texts))?;
        ids.push(id);
    }
    tally.try_some("a fuzzed string through ls, ls --json and status", sessions * FIELDS);
    let text = printed(ground, &["ls", "-a"], tally)?;
    let rows = text.lines().filter(|l| l.starts_with(" ○ ")).count() as u64;
    tally.hold(rows == sessions, || format!("{sessions} sessions are {rows} rows"));
    let stray = text.lines().find(|l| l.contains("fake row") && !l.starts_with(" ○ "));
    tally.hold(stray.is_none(), || format!("a row is made up: {stray:?}"));
    let json = printed(ground, &["ls", "-a", "--json"], tally)?;
    let listed: Value = serde_json::from_str(&json)?;
    let count = listed["sessions"].as_array().map_or(0, Vec::len) as u64;
    tally.hold(count == sessions, || format!("{sessions} sessions are {count} in JSON"));
    for some in ids.chunks(1_000) {
        let some: Vec<&str> = some.iter().map(String::as_str).collect();
        let text = printed(ground, &[&["status"], &some[..]].concat(), tally)?;
        let rows = text.lines().filter(|l| l.starts_with("claude:")).count();
        tally.hold(rows == some.len(), || format!("{} sessions are {rows} in status", some.len()));
        let stray = text.lines().find(|l| !l.starts_with("claude:") && !l.starts_with("  "));
        tally.hold(stray.is_none(), || format!("a line of its own in status: {stray:?}"));
    }
    for _ in 0..(sessions / 150).max(2) {
        let id = chance.pick(&ids).clone();
        for verb in [&["explain", &id][..], &["explain", &id, "--json"], &["peek", &id], &["peek", &id, "--json"]] {
            printed(ground, verb, tally)?;
        }
        let none = format!("none{}", fuzzed(chance).replace('\0', ""));
        printed(ground, &["status", "--", &none], tally)?;
        tally.try_some("a session through explain and peek, and a name that is none through an error", 1);
    }
    Ok(())
}

/// What a verb prints, held against the rule.
fn printed(ground: &Ground, args: &[&str], tally: &mut Tally) -> io::Result<String> {
    let output = ground.ask(args)?;
    for (name, bytes) in [("output", &output.stdout), ("complaints", &output.stderr)] {
        let what = || format!("{name} of `lariat {}`", args[..args.len().min(2)].join(" "));
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                let found = text.chars().find(|c| *c != '\n' && acts(*c));
                tally.hold(found.is_none(), || format!("U+{:04X} in the {}", found.unwrap_or(' ') as u32, what()));
                tally.hold(!text.contains("panicked"), || format!("a panic in the {}", what()));
            }
            Err(e) => tally.violate(format!("{e} in the {}", what())),
        }
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn transcript(id: &str, number: u64, texts: &[String; 7]) -> String {
    let [prompt, title, cwd, branch, model, tool, error] = texts;
    let common = |mut line: Value| {
        for (key, value) in [
            ("timestamp", json!("2026-11-15T07:00:00.000Z")),
            ("cwd", json!(format!("/{cwd}"))),
            ("sessionId", json!(id)),
            ("version", json!("2.1.325")),
            ("gitBranch", json!(branch)),
        ] {
            line[key] = value;
        }
        line.to_string()
    };
    let said = |block: Value, stop: &str| {
        json!({"type": "assistant", "message": {"id": format!("m{number}"), "role": "assistant", "model": model,
            "content": [block], "stop_reason": stop, "usage": {"input_tokens": 1, "output_tokens": 1}}})
    };
    let last = match number % 3 {
        0 => said(json!({"type": "text", "text": error}), "end_turn"),
        1 => said(json!({"type": "tool_use", "id": "t", "name": tool, "input": {"command": tool}}), "tool_use"),
        _ => json!({"type": "assistant", "isApiErrorMessage": true, "error": "server_error", "message": {"id": "e",
            "role": "assistant", "model": "<synthetic>", "content": [{"type": "text", "text": error}],
            "stop_reason": "stop_sequence", "usage": {"input_tokens": 0, "output_tokens": 0}}}),
    };
    let asked = json!({"type": "user", "message": {"role": "user", "content": prompt}});
    let named = json!({"type": "custom-title", "customTitle": title, "sessionId": id});
    format!("{}\n{named}\n{}\n", common(asked), common(last))
}

/// The wrong way: what looks like an escape sequence goes, the rest stays.
fn strip(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\x1b', Some('[')) => while chars.next().is_some_and(|c| !c.is_ascii_alphabetic()) {},
            ('\x1b', Some(']')) => while chars.next().is_some_and(|c| c != '\x07') {},
            (c, _) if c.is_ascii_control() => {}
            (c, _) => out.push(c),
        }
    }
    out
}

/// Whether a character acts instead of being seen: controls, Unicode's format characters, and the
/// separators of lines and paragraphs. Written down here apart from the product.
fn acts(c: char) -> bool {
    const FORMAT: [(u32, u32); 21] = [
        (0xad, 0xad),
        (0x600, 0x605),
        (0x61c, 0x61c),
        (0x6dd, 0x6dd),
        (0x70f, 0x70f),
        (0x890, 0x891),
        (0x8e2, 0x8e2),
        (0x180e, 0x180e),
        (0x200b, 0x200f),
        (0x2028, 0x202e),
        (0x2060, 0x2064),
        (0x2066, 0x206f),
        (0xfeff, 0xfeff),
        (0xfff9, 0xfffb),
        (0x1_10bd, 0x1_10bd),
        (0x1_10cd, 0x1_10cd),
        (0x1_3430, 0x1_343f),
        (0x1_bca0, 0x1_bca3),
        (0x1_d173, 0x1_d17a),
        (0xe_0001, 0xe_0001),
        (0xe_0020, 0xe_007f),
    ];
    c.is_control() || FORMAT.iter().any(|(from, to)| (*from..=*to).contains(&(c as u32)))
}
