//! The strings that once got past, and mixtures of them read back by two other parsers.

use std::num::NonZero;

use proptest::prelude::*;

use super::*;

fn passes(text: &[u8], wanted: &[u8]) {
    assert_eq!(Guard::default().pass(text), wanted);
    for cut in 0..text.len() {
        let mut guard = Guard::default();
        let passed = [guard.pass(&text[..cut]), guard.pass(&text[cut..])].concat();
        assert_eq!(passed, wanted, "cut at {cut}");
    }
}

#[test]
fn the_clipboard_is_out_of_reach() {
    let text = b"a\x1b[31mb\x1b]52;c;c2VjcmV0\x07c\x1b]0;title\x07d\x1b]52;c;eA==\x1b\\e";
    passes(text, b"a\x1b[31mbc\x1b]0;title\x07de");
}

#[test]
fn nothing_makes_the_terminal_answer() {
    let text = b"a\x1b[cb\x1b[>0c\x1b[6n\x1b[?6nc\x1b]11;?\x07d\x1b]4;1;?\x1b\\e\x1b[?u\x1b[>q\x1bP$qm\x1b\\f\x1b[?2026$pg\x1b[14th";
    passes(text, b"abcdefgh");
}

#[test]
fn what_draws_passes_as_it_is() {
    let text = b"\x1b[2J\x1b[1;1H\x1b[38;5;1mred\x1b[0m\x1b[?2026h\x1b[>1u\x1b[<u\x1b7\x1b8\x1b(B\x1b]8;;http://x\x1b\\y\x1b]8;;\x1b\\\x1b[8;24;80t";
    passes(text, text);
    // A sequence that breaks off does not swallow the next one.
    passes(b"\x1b[3\x1b[31mx\x1b]0;a", b"\x1b[31mx");
}

#[test]
fn a_string_without_an_end_is_not_held_for_ever() {
    let long = [b"\x1b]0;".as_slice(), &vec![b'x'; 2 * LONGEST]].concat();
    assert!(Guard::default().pass(&long).len() > LONGEST);
}

#[test]
fn escape_always_begins_anew() {
    passes(b"a\x1b\x1b]52;c;c2VjcmV0\x07b", b"ab");
    passes(b"a\x1b\x1b[6nb", b"ab");
    passes(b"a\x1b \x1b[6nb\x1b\x1b[31mc", b"ab\x1b[31mc");
    // What is broken off does not join what comes after the one that is dropped.
    passes(b"a\x1b[\x1b[6n6n", b"a6n");
    passes(b"a\x1b[3\x1bZ6n", b"a6n");
    // Nor does it go out: a terminal that nests them would do the first after the second.
    passes(b"a\x1b[\x1b[31m6nb\x1b[?\x1b7\x1b[0m6$pc", b"a\x1b[31m6nb\x1b7\x1b[0m6$pc");
    passes(b"a\x1b[[Ab\x1b[[\x1b[31mc", b"aAb\x1b[31mc");
}

#[test]
fn a_string_ends_at_escape() {
    passes(b"a\x1b]0;x\x1b]52;c;eA==\x07b", b"a\x1b]0;x\x1b\\b");
    passes(b"a\x1b]0;x\x1b[6n\x07b", b"a\x1b]0;x\x1b\\\x07b");
    passes(b"a\x1bPq#0~\x1b[6nb", b"a\x1bPq#0~\x1b\\b");
    passes(b"a\x1b_Gi=1,a=q;\x1b[6nb\x1b^x\x1b\\c\x1bXy\x1b\\d", b"abcd");
    passes(b"a\x1bPtmux;\x1b\x1b]52;c;eA==\x07\x1b\\b", b"a\x1b\\b");
}

#[test]
fn can_and_sub_break_off_anything() {
    passes(b"a\x1b[\x186n\x1b]52;c;\x1ab\x1b\x18[6n", b"a\x186n\x1ab\x18[6n");
    passes(b"a\x1b]0;x\x18\x1b[6nb\x1bPq~\x18c", b"a\x18b\x1bPq~\x18\x1b\\c");
}

#[test]
fn a_control_inside_a_sequence_does_not_hide_it() {
    passes(b"a\x1b[\n6nb", b"a\nb");
    passes(b"a\x1b\r[6\x7fnb\x1b[3\n1mc", b"a\rb\n\x1b[31mc");
    passes(b"a\x1b]5\n2;c;eA==\x07b", b"ab");
    // Nor does what is no control: some go on after it.
    passes("a\x1b[é6nb".as_bytes(), "aé6nb".as_bytes());
    passes(b"a\x05b\x1b[\x056nc\x1b]0;\x05d\x07", b"abc\x1b]0;d\x07");
}

#[test]
fn a_control_of_eight_bits_is_one() {
    passes(b"a\xc2\x9b6nb", b"ab");
    passes(b"a\xc2\x9d52;c;eA==\xc2\x9cb\xc2\x9d52;c;eA==\x07c", b"abc");
    passes(b"a\xc2\x90$qm\xc2\x9cb\xc2\x9ac\xc2\x9fG\xc2\x9cd", b"abcd");
    passes(b"a\x1b]0;x\xc2\x9b6nb", b"a\x1b]0;x\x1b\\b");
    passes(b"\xc2\x9b31ma\xc2\x9d0;t\xc2\x9c\xc2\x85", b"\x1b[31ma\x1b]0;t\x1b\\\x1bE");
    // Half a character on each side of what is dropped makes no new one, nor
    // does a byte on its own or one that is written too long.
    passes(b"a\xc2\x1b[6n\x9b6n", b"a\xc26n");
    passes(b"a\x9b6n\x9d52;c;eA==\x07\xe0\x82\x9b6n", b"a6n52;c;eA==\x07\xe06n");
    // Away from UTF-8, the second byte of this letter would be one.
    passes("\x1b%@Û6n\x1b%G".as_bytes(), "Û6n\x1b%G".as_bytes());
}

#[test]
fn characters_are_no_controls() {
    let text = "é ✓ › ÛÜÝ \u{a0}· 💡 日本\x1b]0;✓ Û\x07\x1b[1m✓\x1b[0m".as_bytes();
    passes(text, text);
    passes(b"caf\xe9 \xa0 \xff.", b"caf\xe9 \xa0 \xff.");
}

#[test]
fn numbers_are_numbers() {
    passes(b"a\x1b]052;c;eA==\x07b\x1b]0000052;c;eA==\x07c\x1b]4294967348;c;eA==\x07d", b"abcd");
    passes(b"a\x1b[021tb\x1b[18:0tc\x1b[0014;2td\x1b[4294967310te", b"abcde");
    passes(b"a\x1b] 52;c;eA==\x07b\x1b]+52;c;eA==\x07c", b"abc");
    passes(b"a\x1bP0$qm\x1b\\b\x1bP1;2+q544e\x1b\\c\x1bP1000pd\x1b\\e", b"abce");
    passes(b"a\x1bZb\x1b[5ic\x1b[?2048hd\x1b[1*ye\x1b[1$wf\x1b[?1;1;0Sg", b"abcdefg");
    let fine = b"\x1b[18$t\x1b[65;1;1;2;2$x\x1b[!p\x1b[ q\x1b[22;0t";
    passes(fine, fine);
}

#[test]
fn a_dropped_string_does_not_swallow_what_follows() {
    passes(b"\x1b]52;c;eA==\x1b[31mred", b"\x1b[31mred");
    passes(b"\x1b]52;c;eA==\x18red", b"\x18red");
    passes(b"\x1b]52;c;eA==\x1ared", b"\x1ared");
    let mut guard = Guard::default();
    guard.pass(b"\x1b]52;c;");
    let passed: usize = (0..2 * LONGEST_DROPPED / 1024).map(|_| guard.pass(&[b'x'; 1024]).len()).sum();
    assert!((1..=LONGEST_DROPPED).contains(&passed), "{passed}");
    assert!(guard.held.capacity() <= 2 * LONGEST);
}

#[test]
fn what_is_too_long_to_judge_asks_nothing() {
    let colours = [b"a\x1b]4".as_slice(), &b";1;red".repeat(LONGEST), b";1;?\x07b"].concat();
    assert_eq!(Guard::default().pass(&colours), b"ab");
    let digits = [b"a\x1b[".as_slice(), &vec![b'0'; 2 * LONGEST], b"21tb"].concat();
    assert_eq!(Guard::default().pass(&digits), b"ab");
    let title = [b"\x1b]2;".as_slice(), &vec![b'x'; 2 * LONGEST], b"\x1b[6nb"].concat();
    let wanted = [b"\x1b]2;".as_slice(), &vec![b'x'; 2 * LONGEST], b"\x1b\\b"].concat();
    assert_eq!(Guard::default().pass(&title), wanted);
    let broken = b"\x1b[1".repeat(LONGEST);
    let mut guard = Guard::default();
    guard.pass(&broken);
    assert!(guard.held.len() <= LONGEST);
}

/// Whether a terminal that reads controls of eight bits is asked, or its
/// clipboard written. Knows less than the guard, and in another way.
fn is_reached(bytes: &[u8]) -> bool {
    let text: Vec<char> = String::from_utf8_lossy(bytes).chars().collect();
    if text.contains(&'\u{5}') {
        return true;
    }
    (0..text.len()).any(|at| {
        let (kind, after) = match (text[at], text.get(at + 1)) {
            ('\x1b', Some(kind)) => (*kind, at + 2),
            (control @ '\u{80}'..='\u{9f}', _) => (char::from(control as u8 - 0x40), at + 1),
            _ => return false,
        };
        let rest: String = text[after..]
            .iter()
            .take_while(|c| !matches!(c, '\x1b' | '\x18' | '\x1a' | '\x07' | '\u{80}'..='\u{9f}'))
            .filter(|c| **c >= ' ' && **c != '\x7f')
            .collect();
        let header = rest.trim_start_matches(|c: char| (' '..='?').contains(&c));
        let before = &rest[..rest.len() - header.len()];
        let first = before.split([';', '$', '+']).next().unwrap_or_default().trim_start_matches('0');
        match (kind, header.chars().next()) {
            ('Z', _) => true,
            ('[', Some('n' | 'c')) => true,
            ('[', Some('p')) => before.ends_with('$'),
            ('[', Some('t')) => matches!(first, "14" | "18" | "21"),
            ('P', Some('q')) => before.ends_with(['$', '+']),
            (']', _) => first == "52" || (rest.split(';').skip(1).any(|part| part == "?")),
            _ => false,
        }
    })
}

#[test]
fn the_other_parser_sees_what_reaches_the_terminal() {
    for text in [
        b"\x1b[6n".as_slice(),
        b"\x1b[\n6n",
        b"\xc2\x9b6n",
        b"\x1b\x1b]052;c;x\x07",
        b"\x1bP0$qm\x1b\\",
        b"\x1b[021t",
        b"\x1bZ",
        b"\x1b]0;x\x1b]52;c;x\x07",
        b"\x1b]11;?\x07",
    ] {
        assert!(is_reached(text), "{text:?}");
    }
    assert!(!is_reached("\x1b[31m✓Û6n\x1b]0;52\x07".as_bytes()));
    assert!(is_reached_by_nesting(b"\x1b[\x1b[31m6n") && is_reached_by_nesting(b"\x1b[\x1b7?6$p"));
    assert!(!is_reached_by_nesting(b"\x1b[31m6n\x1b]0;[6n\x07"));
    assert!(Reached::by(b"\x1b[6n") && Reached::by(b"\x1b]52;c;eA==\x07") && !Reached::by(b"\x1b[31mx"));
}

/// The same, as the parser of our own screens has it.
#[derive(Default)]
struct Reached(bool);

impl Reached {
    fn by(bytes: &[u8]) -> bool {
        let size = NonZero::new(80).unwrap();
        let mut parser = vt100::Parser::new_with_callbacks(size, size, 0, Reached::default());
        parser.process(bytes);
        parser.callbacks().0
    }
}

impl vt100::Callbacks for Reached {
    fn copy_to_clipboard(&mut self, _: &mut vt100::Screen, _: &[u8], _: &[u8]) {
        self.0 = true;
    }

    fn paste_from_clipboard(&mut self, _: &mut vt100::Screen, _: &[u8]) {
        self.0 = true;
    }

    fn unhandled_csi(&mut self, _: &mut vt100::Screen, i: Option<u8>, _: Option<u8>, p: &[&[u16]], last: char) {
        let first = p.first().and_then(|numbers| numbers.first());
        self.0 |= matches!((i, last), (_, 'n' | 'c') | (Some(b'$'), 'p'))
            || (last == 't' && matches!(first, Some(14 | 18 | 21)));
    }

    fn unhandled_escape(&mut self, _: &mut vt100::Screen, i: Option<u8>, _: Option<u8>, last: u8) {
        // After another byte it is the name of a character set.
        self.0 |= i.is_none() && last == b'Z';
    }

    fn unhandled_osc(&mut self, _: &mut vt100::Screen, parts: &[&[u8]]) {
        self.0 |=
            parts.iter().skip(1).any(|part| *part == b"?") || parts.first().is_some_and(|code| number(code) == 52);
    }
}

/// Whether a terminal is asked that does a sequence within another one, and then goes on with that one.
fn is_reached_by_nesting(bytes: &[u8]) -> bool {
    let mut open: Vec<Vec<u8>> = Vec::new();
    let mut bytes = bytes.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match (byte, open.last_mut()) {
            (ESC, _) => match bytes.next() {
                Some(b'[') => open.push(Vec::new()),
                Some(b']' | b'P' | b'_' | b'^' | b'X') => {
                    while bytes.next_if(|b| !matches!(*b, BEL | ESC)).is_some() {}
                }
                Some(0x20..=0x2f) => drop(bytes.next()),
                _ => {}
            },
            (CAN | SUB, _) => drop(open.pop()),
            (0x20..=0x3f, Some(sequence)) => sequence.push(byte),
            (0x40..=0x7e, Some(sequence)) => {
                if matches!(byte, b'n' | b'c') || (byte, sequence.last()) == (b'p', Some(&b'$')) {
                    return true;
                }
                open.pop();
            }
            _ => {}
        }
    }
    false
}

/// What the mixtures are made of: whole sequences, and the pieces they fall into.
const PIECES: &[&[u8]] = &[
    b"\x1b",
    b"\x1b[",
    b"\x1b]",
    b"\x1bP",
    b"\x1b_",
    b"\x1b\\",
    b"\x07",
    b"\x18",
    b"\x1a",
    b"\n",
    b"\x05",
    b"\x7f",
    b"6n",
    b"c",
    b"Z",
    b"[6n",
    b"?6$p",
    b"021t",
    b"3",
    b"0$qm",
    b"+q544e",
    b"52;c;eA==",
    b"]052;c;eA==\x07",
    b"11;?",
    b"0;x",
    b";",
    b"?",
    b"$",
    b"0",
    b"%@",
    b"\xc2",
    b"\x9b",
    b"\xc2\x9b",
    b"\xc2\x9d",
    b"\xc2\x90",
    b"\xc2\x9c",
    b"\xc2\x9a",
    b"\xe2",
    b"\xe2\x9c\x93",
    b"\xc3\x9b",
    b"text",
    b"\x1b[31m",
    b"\x1b]0;title\x07",
    b"\x1bPq#0~\x1b\\",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn no_mixture_reaches_the_terminal(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 1..16),
        cuts in prop::collection::vec(1usize..6, 1..8),
    ) {
        let text = pieces.concat();
        let whole = Guard::default().pass(&text);
        prop_assert!(!is_reached(&whole), "{:?}", whole.escape_ascii().to_string());
        prop_assert!(!Reached::by(&whole), "{:?}", whole.escape_ascii().to_string());
        prop_assert!(!is_reached_by_nesting(&whole), "{:?}", whole.escape_ascii().to_string());
        let (mut guard, mut passed, mut rest) = (Guard::default(), Vec::new(), text.as_slice());
        for cut in cuts.iter().cycle() {
            let (now, after) = rest.split_at((*cut).min(rest.len()));
            passed.extend(guard.pass(now));
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(passed, whole);
        prop_assert!(guard.held.len() <= LONGEST);
    }
}
