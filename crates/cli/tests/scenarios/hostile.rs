//! Agent text is hostile: reliability's row 11.
//!
//! Escape sequences, direction overrides, line separators and piles of marks stand in every field
//! that an agent controls, and go through every printing verb, as text and as JSON, to a pipe and
//! to a terminal. Nothing may come out but visible characters and newlines (on a terminal also
//! lariat's own colours), and one row stays one row. As data, JSON keeps what was sent.
//!
//! Mutants, each tried and seen red here:
//! - `core/src/text.rs`, `push_shown`: `c if is_hidden(c)` made `c if c == '\x1b'`, so that C1, bidi
//!   and U+2028 pass: all three tests fail.
//! - the same function, `'\n' => out.push_str("\\n")` made `out.push('\n')`: rows in are not rows
//!   out, in all three.
//! - `cli/src/json.rs`, `escaped`: `c if is_hidden(c)` made `c if c.is_ascii_control()`: the crafted
//!   and the fuzzed texts fail.
//! - `cli/src/verbs/mod.rs`, `warn`: `p.row()` made `p.raw()`: the file names fail.

use std::{fs, path::PathBuf};

use lariat_testkit::{DEADLINE, Exit, Lookalike, Sandbox, Size, Terminal, wait_for, wait_until};
use serde_json::{Value, json};

use crate::{
    asking::{Bytes, LARIAT, bytes, id, list},
    chance::Chance,
    claude_store::ClaudeStore,
    codex_store::CodexStore,
};

/// What terminals and eyes are fooled with.
const PIECES: &[&str] = &[
    "\x1b[2J",
    "\x1b[31m",
    "\x1b[1;33mbold",
    "\x1b[0m",
    "\x1b]52;c;aGFja2Vk\x07",
    "\x1b]0;a title without end",
    "\x1b]8;;http://example.invalid\x1b\\link\x1b]8;;\x1b\\",
    "\x1bP1$r\x1b\\",
    "\x1b[6n",
    "\x1b[?1049h",
    "\x1bc",
    "\x1b",
    "\x1b[",
    "\u{9b}31m",
    "\u{9d}52;c;eA==\u{9c}",
    "\u{90}",
    "\u{85}",
    "\u{80}",
    "\x07",
    "\x08\x08\x08",
    "\x0e",
    "\x7f",
    "\0",
    "\n",
    "\r",
    "\r\n",
    "\t",
    "\x0b\x0c",
    "\n\n\n ● fake row",
    "\u{2028}",
    "\u{2029}",
    "\u{202e}gpj.exe",
    "\u{202a}\u{202b}\u{202c}\u{202d}",
    "\u{2066}\u{2067}\u{2068}\u{2069}",
    "\u{200b}\u{200d}\u{200e}",
    "\u{feff}",
    "\u{ad}",
    "\u{61c}",
    "\u{180e}",
    "\u{fff9}\u{fffb}",
    "\u{e0001}\u{e0041}",
    "\u{1d173}",
    "\u{fe0f}",
    "a\u{301}\u{302}\u{303}\u{304}\u{305}\u{306}\u{307}\u{308}\u{309}",
    "日本語の長い文",
    "ﷺ",
    "👩‍👩‍👧‍👦",
    "🇩🇪",
    "\u{115f}",
    "plain words",
    "`$(reboot)`",
    "%s%n",
    "<script>",
    "\\x1b[2J",
    "\"",
    "'",
    "{}",
    "│ │",
    "…",
];

fn fuzzed(chance: &mut Chance) -> String {
    let mut text = String::new();
    for _ in 0..1 + chance.below(5) {
        match chance.below(8) {
            0 => text.push(char::from(u8::try_from(chance.below(0x20)).expect("C0"))),
            1 => text.push(char::from_u32(0x7f + chance.below(0x21) as u32).expect("C1")),
            2 => text.extend(char::from_u32(chance.below(0x11_0000) as u32)),
            3 => text.push_str(&"\u{300}".repeat(chance.below(40))),
            _ => text.push_str(chance.pick::<&str>(PIECES)),
        }
    }
    text
}

/// Whether a character acts instead of being seen: controls, Unicode's format characters (Cf),
/// and the separators of lines and paragraphs. Written down here apart from the product.
fn acts(c: char) -> bool {
    const FORMAT: [(u32, u32); 22] = [
        (0xad, 0xad),
        (0x600, 0x605),
        (0x61c, 0x61c),
        (0x6dd, 0x6dd),
        (0x70f, 0x70f),
        (0x890, 0x891),
        (0x8e2, 0x8e2),
        (0x180e, 0x180e),
        (0x200b, 0x200f),
        (0x2028, 0x2029),
        (0x202a, 0x202e),
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

#[track_caller]
fn only_seen(what: &str, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
    if let Some((at, c)) = text.char_indices().find(|(_, c)| *c != '\n' && acts(*c)) {
        let line = text[..at].lines().count();
        let around: String = text[..at].chars().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect();
        panic!("{what}: U+{:04X} in line {line} after {around:?}", c as u32);
    }
}

/// A pipe at both ends: nothing but what is seen.
#[track_caller]
fn piped(sandbox: &Sandbox, args: &[&str]) -> Bytes {
    let said = bytes(sandbox, args);
    let what = args.iter().take(3).copied().collect::<Vec<_>>().join(" ");
    only_seen(&format!("lariat {what}"), &said.stdout);
    only_seen(&format!("lariat {what}, its complaints"), &said.stderr);
    assert!(!String::from_utf8_lossy(&said.stderr).contains("panicked"), "{what}");
    said
}

/// A terminal: besides, lariat's own colours. Gives the text without them.
#[track_caller]
fn shown(sandbox: &Sandbox, args: &[&str]) -> String {
    let program = sandbox.program("sh").args(["-c", "\"$@\"; printf '<<end>>'", "sh", LARIAT]);
    let size = Size { rows: 50, cols: 120 };
    let terminal = Terminal::start(sandbox.world(), &program.args(args), size);
    let raw =
        wait_for("the end of the answer", DEADLINE, || Some(terminal.raw()).filter(|raw| raw.ends_with(b"<<end>>")));
    let mut text = String::from_utf8(raw).expect("UTF-8").replace("\r\n", "\n");
    for ours in ["0", "1", "2", "1;33", "36", "35"] {
        text = text.replace(&format!("\x1b[{ours}m"), "");
    }
    only_seen(&format!("lariat {} on a terminal", args[..args.len().min(3)].join(" ")), text.as_bytes());
    text.replace("<<end>>", "")
}

/// A place where every field of every session is hostile.
struct Place {
    sandbox: Sandbox,
    _agents: Vec<Lookalike>,
    /// What was put where: the session, the field, the text.
    sent: Vec<(String, &'static str, String)>,
}

/// Fills a place with sessions of both agents, in turn ended well, failed, and cut off.
fn fill(name: &str, sessions: u64, mut text: impl FnMut() -> String) -> Place {
    let sandbox = Sandbox::new(name);
    let (claude, codex) = (ClaudeStore::of(&sandbox), CodexStore::of(&sandbox));
    let mut sent = Vec::new();
    for n in 0..sessions {
        let id = id(n + 1);
        let [prompt, title, cwd, branch, model, tool, error] = [(); 7].map(|()| text());
        let cwd = format!("/{cwd}");
        for (field, text) in [("cwd", &cwd), ("branch", &branch)] {
            sent.push((id.clone(), field, text.clone()));
        }
        if n % 2 == 0 {
            let talk = claude.session_at(&id, cwd.as_ref(), &claude.path(&format!("projects/p/{id}.jsonl")));
            let talk = talk.on_branch(&branch).by_model(&model).asked(&prompt).named(&title);
            sent.push((id.clone(), "name", title));
            match n % 3 {
                0 => drop(talk.answered(&error).left()),
                1 => drop(talk.calls(&tool, json!({"command": tool}))),
                _ => drop(talk.failed(&error)),
            }
        } else {
            let thread = codex.thread_on(&id, &cwd, &branch).by_model(&model).asked(&prompt);
            codex.name(&id, &title);
            match n % 3 {
                0 => drop(thread.answered(&error)),
                1 => drop(thread.calls("c", &tool)),
                _ => drop(thread.failed(&error)),
            }
        }
    }
    Place { sandbox, _agents: Vec::new(), sent }
}

impl Place {
    /// Adds living agents, and files whose names and content are hostile.
    fn with_living(mut self) -> Self {
        let (claude, codex) = (ClaudeStore::of(&self.sandbox), CodexStore::of(&self.sandbox));
        let evil = "x\x1b]52;c;aGk=\x07\u{202e}\n\u{9b}2J\u{2028}";
        let waiting = self.sandbox.lookalike("claude", &[]);
        claude
            .register(&waiting, &id(9001))
            .waits_for(evil)
            .with("name", json!(evil))
            .with("nameSource", json!("user"))
            .with("cwd", json!(evil));
        claude.session(&id(9001)).asked(evil).calls("Bash", json!({"command": evil}));
        let odd = self.sandbox.lookalike("claude", &[]);
        claude.register(&odd, evil).says(evil); // even its id
        let thread = self.sandbox.lookalike("codex", &["--no-daemon"]);
        codex.lock(&thread, &id(9002));
        let then = crate::moment::now();
        codex.thread(&id(9002)).at(then).asked(evil).calls("c", evil);
        wait_until("its call to be asked for", DEADLINE, || crate::moment::now() > then + 1500);
        // One without a session, in a directory with a hostile name.
        let place = self.sandbox.home().join(format!("work/{evil}"));
        fs::create_dir_all(&place).expect("a hostile directory");
        let stray = Lookalike::program(&self.sandbox, "claude").cwd(&place);
        let stray = Lookalike::start(&self.sandbox, &stray);
        // Files that can only be warned of.
        claude.put(&format!("sessions/{evil}.json"), "{");
        claude.put(&format!("jobs/{evil}/state.json"), "{");
        let folder: PathBuf = claude.path(&format!("projects/{evil}"));
        fs::create_dir_all(folder.join(format!("{}.jsonl", id(9003)))).expect("a folder");
        self._agents.extend([waiting, odd, thread, stray]);
        self
    }

    /// How many lines `ls -a` has for this listing: its header, and each group with its heading.
    fn lines(listing: &Value) -> usize {
        let group = |s: &Value| match s["status"].as_str().expect("a status") {
            "waiting" => 0,
            "working" | "starting" => 1,
            "idle" => 2,
            "unknown" => 3,
            _ => 4,
        };
        let sessions = listing["sessions"].as_array().expect("sessions");
        let groups: std::collections::BTreeSet<_> = sessions.iter().map(group).collect();
        let unbound = listing["unbound"].as_array().expect("unbound").len();
        let apart = if unbound > 0 { 2 + unbound } else { 0 };
        2 + sessions.len() + 2 * groups.len() - 1 + apart
    }
}

#[test]
fn row_11_crafted_texts_through_every_verb() {
    let mut next = PIECES.iter().cycle();
    let place = fill("row11", 24, || (0..3).filter_map(|_| next.next().copied()).collect()).with_living();
    let sandbox = &place.sandbox;
    let listing = list(sandbox);
    let ids: Vec<String> = listing.sessions().iter().map(|s| s["id"].as_str().expect("an id").to_owned()).collect();
    assert!(ids.len() >= 27, "{ids:?}");
    assert!(listing.warnings().len() >= 3, "{:?}", listing.warnings());
    let rows = |text: &str| text.lines().count();
    let expected = Place::lines(&listing.json);
    let text = piped(sandbox, &["ls", "-a"]);
    assert_eq!(rows(&String::from_utf8_lossy(&text.stdout)), expected, "rows in are rows out");
    piped(sandbox, &["ls"]);
    piped(sandbox, &["ls", "--json"]);
    piped(sandbox, &["doctor"]);
    piped(sandbox, &["doctor", "--json"]);
    piped(sandbox, &["status"]);
    piped(sandbox, &["status", "--json"]);
    shown(sandbox, &["ls"]);
    shown(sandbox, &["ls", "-a", "--json"]);
    shown(sandbox, &["doctor"]);
    for id in &ids {
        for verb in [&["status", id][..], &["explain", id], &["peek", "-n", "5", id]] {
            let said = piped(sandbox, verb);
            let complaints = String::from_utf8_lossy(&said.stderr).into_owned();
            // What cannot be read is said in a line that nobody else can begin.
            let forged =
                complaints.lines().find(|line| !line.starts_with("lariat: ") && !line.starts_with("warning: "));
            assert_eq!(forged, None, "{verb:?}: {complaints}");
            let silent = said.stdout.is_empty() && said.exit != Exit::Code(1);
            assert!(!silent, "{verb:?}: {complaints}");
            piped(sandbox, &[verb, &["--json"]].concat());
        }
    }
    for id in ids.iter().step_by(5) {
        for verb in [&["status", id][..], &["explain", id], &["peek", "-n", "5", id]] {
            shown(sandbox, verb);
        }
    }
}

#[test]
fn row_11_errors_and_names_that_fit_several() {
    let sandbox = Sandbox::new("row11-errors");
    let claude = ClaudeStore::of(&sandbox);
    for (n, piece) in (1..).zip(PIECES) {
        claude.session(&id(n)).asked(piece).named(&format!("dup {piece}")).answered(piece);
    }
    for verb in ["status", "explain", "peek"] {
        let said = piped(&sandbox, &[verb, "dup"]);
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.stdout.is_empty() && text.contains("dup"), "{text}");
        assert_eq!(text.lines().count(), 22, "one line each, 20 of them, and how many more: {text}");
        for piece in PIECES.iter().filter(|p| !p.contains('\0')) {
            let said = piped(&sandbox, &[verb, &format!("none{piece}")]);
            assert_eq!(String::from_utf8_lossy(&said.stderr).lines().count(), 1, "{piece:?}");
        }
    }
}

#[test]
fn row_11_ten_thousand_fuzzed_strings() {
    let mut chance = Chance::new();
    let mut count = 0;
    let place = fill("row11-fuzz", 1500, || {
        count += 1;
        fuzzed(&mut chance)
    });
    assert!(count >= 10_000, "{count}");
    let sandbox = &place.sandbox;
    let listing = list(sandbox);
    assert_eq!((listing.sessions().len(), listing.warnings()), (1500, vec![]));
    // As data it is what was sent.
    for (id, field, text) in &place.sent {
        let got = &listing.session(id)[field];
        let same = got.as_str() == Some(text) || (got.is_null() && text.is_empty());
        assert!(same, "{field} of {id}: sent {text:?}, got {got:?}");
    }
    piped(sandbox, &["ls", "-a", "--json"]);
    let text = piped(sandbox, &["ls", "-a"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    let expected = Place::lines(&listing.json);
    assert_eq!(text.lines().count(), expected, "rows in are rows out");
    assert_eq!(text.lines().filter(|line| line.starts_with(" ○ ")).count(), 1500);
    assert_eq!(shown(sandbox, &["ls", "-a"]).lines().count(), expected, "on a terminal too");
    // One line for the session, one for each field.
    let ids: Vec<String> = (1..=1500).map(id).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let said = piped(sandbox, &[&["status"], &ids[..]].concat());
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let starts = |line: &&str| line.starts_with("claude:") || line.starts_with("codex:");
    assert_eq!(text.lines().filter(starts).count(), 1500);
    let stray = text.lines().find(|line| !starts(line) && !line.starts_with("  "));
    assert_eq!(stray, None);
    for id in ids.iter().step_by(100) {
        piped(sandbox, &["explain", id]);
        piped(sandbox, &["peek", "-n", "5", id]);
        piped(sandbox, &["peek", "-n", "5", "--json", id]);
    }
}
