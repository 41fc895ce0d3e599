//! One fold over random files: whatever is appended, cut or broken, reading in
//! steps must tell the same as reading at once, and head and tail the same of
//! the last turn as the whole.

use std::io::Write as _;
use std::path::PathBuf;

use lariat_sys::file;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
struct Last {
    first: Option<u64>,
    last: Option<u64>,
    sum: u64,
    enough: bool,
}

impl Fold for Last {
    fn keeps(_: &[u8], key: &[u8]) -> bool {
        matches!(key, b"n" | b"enough")
    }
    fn line(&mut self, line: Value<'_>) {
        self.enough |= line.get("enough").is_true();
        if let Some(n) = line.get("n").u64() {
            self.first = self.first.or(Some(n));
            self.last = Some(n);
            self.sum += n;
        }
    }
    fn gap(&mut self) {
        self.last = None;
    }
    fn knows_head(&self) -> bool {
        self.first.is_some()
    }
    fn knows_tail(&self) -> bool {
        self.last.is_some()
    }
    fn has_enough(&self) -> bool {
        self.enough
    }
}

struct Temp(PathBuf);

impl Temp {
    fn new(name: &str) -> Temp {
        let path = std::env::temp_dir().join(format!("lariat-reader-{name}-{}", std::process::id()));
        let temp = Temp(path);
        temp.set(b"");
        temp
    }
    fn set(&self, bytes: &[u8]) {
        #[expect(clippy::disallowed_methods, reason = "the test's own file")]
        std::fs::write(&self.0, bytes).unwrap();
    }
    fn add(&self, bytes: &[u8]) {
        std::fs::OpenOptions::new().append(true).open(&self.0).unwrap().write_all(bytes).unwrap();
    }
    fn read(&self, prior: Option<Reading<Last>>, whole: bool) -> Reading<Last> {
        let (file, key) = file::open(&self.0).unwrap();
        *Reader::default().read(file, &key, prior.map(Box::new), whole).unwrap()
    }
    fn bytes_read(&self, prior: Option<Reading<Last>>, whole: bool) -> u64 {
        let (file, key) = file::open(&self.0).unwrap();
        let mut reader = Reader::<Last>::default();
        reader.read(file, &key, prior.map(Box::new), whole).unwrap();
        reader.bytes
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        #[expect(clippy::disallowed_methods, reason = "the test's own file")]
        let _ = std::fs::remove_file(&self.0);
    }
}

fn line(n: u64, filler: usize) -> Vec<u8> {
    format!("{{\"pad\":\"{}\",\"n\":{n}}}\n", "x".repeat(filler)).into_bytes()
}

#[test]
fn only_what_was_appended_is_read() {
    let temp = Temp::new("append");
    for n in 1..=1000 {
        temp.add(&line(n, 1000));
    }
    let first = temp.read(None, true);
    assert_eq!((first.fold.sum, first.whole), (500_500, true));
    temp.add(&line(7, 10));
    assert!(temp.bytes_read(Some(first.clone()), true) < 1000, "a megabyte was not read again");
    let second = temp.read(Some(first), true);
    assert_eq!((second.fold.sum, second.fold.last), (500_507, Some(7)));
}

#[test]
fn a_rewritten_file_is_read_afresh() {
    let temp = Temp::new("rewrite");
    temp.set(&[line(1, 50), line(2, 50)].concat());
    let first = temp.read(None, true);
    temp.set(&[line(3, 50), line(4, 50), line(5, 50)].concat());
    assert_eq!(temp.read(Some(first.clone()), true).fold.sum, 12);
    temp.set(&line(9, 5));
    assert_eq!(temp.read(Some(first), true).fold.sum, 9);

    // Neither its first bytes nor its last ones, and not its size.
    let middle = |n: u64| [line(1, 2000), line(n, 50), line(3, 200)].concat();
    temp.set(&middle(4));
    let first = temp.read(None, true);
    temp.set(&middle(5));
    assert_eq!(temp.read(Some(first), true).fold.sum, 9);
}

#[test]
fn a_large_file_is_told_by_head_and_tail() {
    let temp = Temp::new("large");
    let mut bytes = line(1, 10);
    for n in 2..3000 {
        bytes.extend(line(n, 1000));
    }
    bytes.extend(line(4711, 10));
    bytes.extend(br#"{"pad":""#);
    bytes.extend(b"x".repeat(100_000)); // unfinished
    temp.set(&bytes);
    let reading = temp.read(None, false);
    assert_eq!((reading.fold.first, reading.fold.last, reading.whole), (Some(1), Some(4711), false));
    assert!(reading.broken.is_none() && reading.unread.is_none());
    assert!(temp.bytes_read(None, false) < 900_000);
}

#[test]
fn of_the_tail_only_its_end_is_read_if_that_tells_enough() {
    let temp = Temp::new("enough");
    let mut lines: Vec<_> = (0..100).map(|_| line(1, 1000)).collect();
    let mut seen = |at: usize, told: &str| {
        lines[at] = line(1, 1000);
        lines[at].splice(0..1, told.bytes());
        temp.set(&lines.concat());
        (temp.read(None, false).fold.sum, temp.bytes_read(None, false))
    };
    let all = seen(99, "{");
    assert_eq!(all, (1 + 8, (4 << 10) + (8 << 10) + 1), "the head's, and those in the last 8 KiB: nothing twice");
    assert_eq!(seen(94, r#"{"enough":true,"#), all, "told where the last half ends, it is not seen there");
    assert_eq!(seen(97, r#"{"enough":true,"#), (1 + 4, all.1 - (4 << 10)), "half of it");
}

#[test]
fn one_line_without_end_is_unread_in_bounded_memory() {
    let temp = Temp::new("endless");
    let file = std::fs::OpenOptions::new().write(true).open(&temp.0).unwrap();
    file.set_len(300 << 20).unwrap(); // sparse: 300 MiB of NUL bytes in one "line"
    drop(file);
    let reading = temp.read(None, false);
    assert!(reading.unread.is_some());
    assert_eq!(reading.fold, Last::default());
}

#[test]
fn a_value_that_ends_with_the_buffer_is_not_the_end_of_its_line() {
    let temp = Temp::new("brim");
    let mut full = line(1, CHUNK);
    full.truncate(CHUNK - 2);
    full.extend(b"\"}");
    temp.set(&[&full[..], b" trailing\n", &line(2, 5)].concat());
    let reading = temp.read(None, true);
    assert_eq!((reading.broken, reading.fold.last), (Some((1, 0)), Some(2)));
}

#[test]
fn broken_lines_are_counted_and_harm_nothing() {
    let temp = Temp::new("broken");
    temp.set(b"{\"n\":1}\nnot json\n{\"n\":\"\xff\"}\n[1]\n\n{\"n\":2} trailing\n{\"n\":3}");
    let reading = temp.read(None, true);
    assert_eq!((reading.fold.first, reading.fold.last), (Some(1), Some(3)));
    assert_eq!(reading.broken.map(|(_, first)| first), Some(8));
    assert!(reading.unread.is_none() && !reading.is_exact());
    temp.set(b"\x7fELF\n\0\0\0\n");
    assert!(temp.read(None, true).unread.is_some());
}

#[test]
fn after_an_unreadable_last_line_the_end_is_unknown_until_another_tells() {
    let temp = Temp::new("spoilt");
    temp.set(b"{\"n\":1}\n");
    assert!(temp.read(None, true).is_exact());
    temp.add(b"{\"n\":\0\n");
    for whole in [true, false] {
        assert_eq!(temp.read(None, whole).unread.as_deref(), Some("its end is unreadable"));
    }
    // Also to one who goes on from there.
    let spoilt = temp.read(None, true);
    assert!(temp.read(Some(spoilt.clone()), true).unread.is_some());
    temp.add(b"{\"n\":");
    assert!(temp.read(Some(spoilt.clone()), true).unread.is_some());
    temp.add(b"2}\n");
    let mended = temp.read(Some(spoilt), true);
    assert_eq!((mended.fold.last, mended.unread.as_deref(), mended.is_exact()), (Some(2), None, false));
    // What a power cut leaves is no line that is still being written, and what comes after it is read.
    temp.set(b"{\"n\":1}\n");
    temp.add(&[0; 5000]);
    let cut = temp.read(None, true);
    assert_eq!((cut.broken, cut.unread.is_some(), cut.is_exact()), (Some((1, 8)), true, false));
    temp.add(b"\n{\"n\":2}\n");
    let mended = temp.read(Some(cut), true);
    assert_eq!((mended.broken, mended.fold.sum, mended.unread.as_deref()), (Some((1, 8)), 3, None));
    // What is not UTF-8 is read all the same.
    temp.set(b"{\"n\":1}\n{\"n\":\"\xff\"}\n");
    let odd = temp.read(None, true);
    assert!(odd.broken.is_some() && odd.is_exact());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn in_steps_is_the_same_as_at_once(
        lines in prop::collection::vec((1u64..100, 0usize..6000), 1..40),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        seed in any::<u32>(),
    ) {
        let temp = Temp::new(&format!("steps-{seed}"));
        let all: Vec<u8> = lines.iter().flat_map(|(n, pad)| line(*n, *pad)).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|c| c.index(all.len())).collect();
        cuts.sort_unstable();
        let mut prior = None;
        let mut written = 0;
        for cut in cuts {
            temp.add(&all[written..cut.max(written)]);
            written = cut.max(written);
            prior = Some(temp.read(prior.take(), true));
        }
        temp.add(&all[written..]);
        let stepped = temp.read(prior, true);
        let at_once = temp.read(None, true);
        prop_assert_eq!(&stepped.fold, &at_once.fold);
        prop_assert_eq!(stepped.broken, None);
        let ends = temp.read(None, false);
        prop_assert_eq!((ends.fold.first, ends.fold.last), (at_once.fold.first, at_once.fold.last));
        if ends.whole {
            prop_assert_eq!(ends.fold.sum, at_once.fold.sum);
        }
    }
}
