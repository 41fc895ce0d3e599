//! Tests of counting: whatever happens to the files, and to what is kept of them, the answer is that of
//! counting everything anew.

#![allow(clippy::disallowed_methods, reason = "a folder of the test's own")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::time::{Duration, SystemTime};

use lariat_core::{Tokens, Untrusted};
use lariat_sys::file::Directory;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;
use crate::json::Value;
use crate::spent::{Again, known_by};

#[test]
fn every_record_is_first_once_however_full_the_bitmaps_are() {
    // Many more than there are bits: nearly all are compared by their hash.
    let all: Vec<Known> = (0..200_000u32).map(|i| known_by(&[&(i / 2).to_le_bytes()])).collect();
    let mut twice = Twice::for_bytes(0);
    all.iter().for_each(|known| twice.mark(known));
    let firsts: Vec<bool> = all.iter().enumerate().map(|(i, known)| twice.first(known, i).is_none()).collect();
    assert!(firsts.chunks(2).all(|pair| pair == [true, false]));
}

/// Lines `{"id":…,"at":…,"n":…}`, some with a cost or a session.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Lines(Tally);

impl Counts for Lines {
    fn tally(&self) -> &Tally {
        &self.0
    }
}

impl Fold for Lines {
    fn keeps(_: &[u8], _: &[u8]) -> bool {
        true
    }

    fn line(&mut self, line: Value<'_>) {
        if let Some(session) = line.get("session").some_str() {
            self.0.session = Some(session.to_owned());
        }
        let Some(id) = line.get("id").u64() else { return };
        let tokens = Tokens { input: line.get("n").u64().unwrap_or(0), ..Tokens::default() };
        let at = line.get("at").u64().map(|at| at as i64);
        let cost = line.get("cost").f64().and_then(crate::spent::usd);
        let used = Use { at, model: 0, tokens, cost, answers: 1 };
        let model = if id.is_multiple_of(3) { "three" } else { "other" };
        self.0.take(known_by(&[&id.to_le_bytes()]), model, used, Again::Larger);
    }

    fn gap(&mut self) {}

    fn knows_head(&self) -> bool {
        true
    }

    fn knows_tail(&self) -> bool {
        true
    }
}

#[derive(Clone, Debug)]
enum Deed {
    /// Lines are appended: ids and numbers. The last may lack its end.
    Append(usize, Vec<(u16, u32)>, bool),
    /// Of a file so many bytes are left.
    Truncate(usize, u64),
    /// Another file takes its place.
    Replace(usize, Vec<(u16, u32)>),
    Remove(usize),
    Rename(usize, usize),
    /// One file has two names.
    Link(usize, usize),
    Broken(usize),
    /// What is kept is lost, in part or whole.
    Forget(u8),
    /// A byte of it is another.
    Spoil(bool, u16, u8),
    /// An older state of the sums comes back, as when two lariats write at once.
    Older,
}

const FILES: usize = 5;

fn lines() -> impl Strategy<Value = Vec<(u16, u32)>> {
    prop::collection::vec((0..60u16, 1..1000u32), 1..6)
}

fn deeds() -> impl Strategy<Value = Vec<(Deed, bool, bool, bool)>> {
    let file = || 0..FILES;
    let deed = prop_oneof![
        8 => (file(), lines(), any::<bool>()).prop_map(|(f, l, e)| Deed::Append(f, l, e)),
        1 => (file(), 0..200u64).prop_map(|(f, n)| Deed::Truncate(f, n)),
        1 => (file(), lines()).prop_map(|(f, l)| Deed::Replace(f, l)),
        1 => file().prop_map(Deed::Remove),
        1 => (file(), file()).prop_map(|(a, b)| Deed::Rename(a, b)),
        1 => (file(), file()).prop_map(|(a, b)| Deed::Link(a, b)),
        1 => file().prop_map(Deed::Broken),
        1 => (0..3u8).prop_map(Deed::Forget),
        1 => (any::<bool>(), any::<u16>(), 1..=255u8).prop_map(|(w, at, x)| Deed::Spoil(w, at, x)),
        1 => Just(Deed::Older),
    ];
    let mostly = || prop::bool::weighted(0.8);
    prop::collection::vec((deed, mostly(), mostly(), mostly()), 1..40)
}

struct Store {
    folder: PathBuf,
    /// Every change has a time of its own.
    moment: u64,
    older: Option<Vec<u8>>,
}

impl Store {
    fn new(name: &str) -> Store {
        let folder = std::env::temp_dir().join(format!("lariat-counting-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("store")).unwrap();
        Store { folder, moment: 0, older: None }
    }

    fn file(&self, number: usize) -> PathBuf {
        self.folder.join(format!("store/{number}.jsonl"))
    }

    fn kept(&self) -> PathBuf {
        self.folder.join("cache/usage-test")
    }

    fn append(&mut self, path: &Path, lines: &[(u16, u32)], ends: bool) {
        let mut text = String::new();
        for (id, n) in lines {
            let at = u64::from(*n) * 977 % 400_000;
            let cost = if id.is_multiple_of(5) { format!(",\"cost\":{}", f64::from(*n) / 7.0) } else { String::new() };
            let session = if id.is_multiple_of(11) { ",\"session\":\"root\"" } else { "" };
            text += &format!("{{\"id\":{id},\"at\":{at},\"n\":{n}{cost}{session}}}\n");
        }
        let text = if ends { text.as_str() } else { &text[..text.len() - 1] };
        fs::File::options().append(true).create(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
        self.stamp(path);
    }

    fn stamp(&mut self, path: &Path) {
        self.moment += 1;
        if let Ok(file) = fs::File::options().write(true).open(path) {
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis(self.moment)).unwrap();
        }
    }

    fn act(&mut self, deed: &Deed) {
        match deed {
            Deed::Append(f, lines, ends) => self.append(&self.file(*f), lines, *ends),
            Deed::Truncate(f, to) => {
                if let Ok(file) = fs::File::options().write(true).open(self.file(*f)) {
                    let size = file.metadata().unwrap().len();
                    file.set_len(size.min(*to)).unwrap();
                }
                self.stamp(&self.file(*f));
            }
            Deed::Replace(f, lines) => {
                let new = self.folder.join("new");
                self.append(&new, lines, true);
                fs::rename(new, self.file(*f)).unwrap();
            }
            Deed::Remove(f) => drop(fs::remove_file(self.file(*f))),
            Deed::Rename(a, b) => drop(fs::rename(self.file(*a), self.file(*b))),
            Deed::Link(a, b) => drop(fs::hard_link(self.file(*a), self.file(*b))),
            Deed::Broken(f) => {
                let _ =
                    fs::File::options().append(true).open(self.file(*f)).map(|mut file| file.write_all(b"{nothing\n"));
                self.stamp(&self.file(*f));
            }
            Deed::Forget(which) => {
                if *which != 1 {
                    let _ = fs::remove_file(self.kept());
                }
                if *which != 0 {
                    let _ = fs::remove_file(self.kept().with_extension("readings"));
                }
            }
            Deed::Spoil(sums, at, other) => {
                let path = if *sums { self.kept() } else { self.kept().with_extension("readings") };
                if let Ok(mut bytes) = fs::read(&path) {
                    let at = usize::from(*at) % bytes.len().clamp(1, 300); // where the pages are
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= other;
                    }
                    fs::write(path, bytes).unwrap();
                }
            }
            Deed::Older => {
                let now = fs::read(self.kept()).ok();
                if let Some(older) = std::mem::replace(&mut self.older, now) {
                    fs::create_dir_all(self.folder.join("cache")).unwrap();
                    fs::write(self.kept(), older).unwrap();
                }
            }
        }
    }

    fn files(&self) -> Vec<File> {
        let dir = Directory::open(&self.folder.join("store")).unwrap();
        let entries = dir.entries().unwrap().into_iter();
        let file = |name: String| {
            let found =
                Found { path: self.folder.join("store").join(&name), key: dir.key(&name).unwrap(), whole: true };
            File { session: name, dir: None, found }
        };
        entries.map(|entry| file(entry.name)).collect()
    }

    fn count(&self, cached: bool, settled: bool, grain: Grain) -> Answer {
        let mut answer = Answer::default();
        let now = clock::now_ms() * 1_000_000 + if settled { 1_000_000_000 } else { 0 };
        let warning = |path: &Path, why: String| Warning {
            adapter: "test",
            path: Some(Untrusted::new(path.to_string_lossy())),
            error: Untrusted::new(why),
            last_ok: None,
        };
        let mut shown = Vec::new();
        let steps = AtomicUsize::new(0);
        let mut to = |spent: Spent<'_>| {
            for used in spent.uses {
                let day = used.at.map(|at| at.div_euclid(crate::spent::DAY));
                let key = (spent.session.to_owned(), spent.models[used.model].to_owned(), day);
                let sum = answer.sums.entry(key).or_default();
                sum.0 += used.tokens.input;
                sum.1 += used.cost.unwrap_or(0);
                sum.2 += used.answers;
            }
        };
        let mut warnings = count::<Lines>(
            cached.then(|| self.kept()),
            now,
            &steps,
            self.files(),
            &warning,
            &mut |file, session| shown.push((file.session.clone(), session.map(str::to_owned))),
            &mut Tell { grain, to: &mut to },
        );
        warnings.sort_unstable();
        shown.sort();
        answer.warnings = warnings.into_iter().map(|w| format!("{w:?}")).collect();
        answer.shown = shown;
        answer.steps = steps.into_inner();
        answer
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

type Key = (String, String, Option<i64>);
type Told = BTreeMap<Key, (u64, u64, u64)>;
type Shown = (String, Option<String>);

#[derive(Default, Debug)]
struct Answer {
    sums: Told,
    warnings: Vec<String>,
    shown: Vec<Shown>,
    steps: usize,
}

impl Answer {
    fn told(&self) -> (&Told, &[String], &[Shown]) {
        (&self.sums, &self.warnings, &self.shown)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_kept_changes_no_answer(deeds in deeds()) {
        let mut store = Store::new("kept");
        for (deed, settled, by_day, asked) in deeds {
            store.act(&deed);
            if !asked {
                continue; // several change before the next look
            }
            let grain = if by_day { Grain::Day } else { Grain::Answer };
            let cached = store.count(true, settled, grain);
            let anew = store.count(false, settled, Grain::Answer);
            prop_assert_eq!(cached.told(), anew.told(), "after {:?}", deed);
        }
    }
}

#[test]
fn only_what_grew_is_read() {
    let mut store = Store::new("grew");
    for file in 0..FILES {
        let own = file as u16 * 10;
        store.append(&store.file(file), &[(own + 1, 5), (own + 2, 6)], true);
    }
    assert_eq!(store.count(true, true, Grain::Day).steps, FILES);
    assert_eq!(store.count(true, true, Grain::Day).steps, 0, "nothing has changed");
    store.append(&store.file(3), &[(33, 7)], true);
    let grown = store.count(true, true, Grain::Day);
    assert_eq!((grown.steps, grown.sums.values().map(|sum| sum.0).sum::<u64>()), (1, 5 * 11 + 7));
    // What may change again within the same moment is read again.
    store.append(&store.file(2), &[(24, 9)], true);
    assert_eq!([(); 2].map(|()| store.count(true, false, Grain::Day).steps), [1, 1]);
    assert_eq!([(); 2].map(|()| store.count(true, true, Grain::Day).steps), [1, 0]);
    // A copy of another file's record: it is found without reading what did not change, and stays found.
    store.append(&store.file(4), &[(1, 5)], true);
    for (asked, steps) in [(Grain::Day, 1), (Grain::Day, 0), (Grain::Answer, 0)] {
        let copied = store.count(true, true, asked);
        assert_eq!((copied.steps, copied.sums.values().map(|sum| sum.0).sum::<u64>()), (steps, 5 * 11 + 7 + 9));
    }
}
