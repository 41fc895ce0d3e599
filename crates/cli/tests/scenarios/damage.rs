//! The ways in which a file can be bad, and what must hold for each: reliability's rig, point 5.
//!
//! A [`Victim`] is one file of a store. [`Victim::suffers_everything`] damages it in every way, one
//! after the other, and each time asks for a listing: it must come in time and within its memory,
//! show every other session exactly as before, and name the file in a warning where it could not
//! be read.

use std::{
    fs::{self, File, FileTimes, Permissions},
    io::{Seek, SeekFrom, Write},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    time::{Duration, Instant, SystemTime},
};

use lariat_testkit::Sandbox;
use serde_json::Value;

use crate::asking::{Answer, ask, list, through, weigh};

/// What a listing may hold in memory, whatever it meets.
pub const MOST_MEMORY: u64 = 64 << 20;

/// A listing with time enough: a machine at its limit is no fault of the store.
const PATIENT: [&str; 5] = ["ls", "-a", "--json", "--deadline", "40s"];
/// How long it may take: its deadline, and room for a machine that does other things too.
const MOST_TIME: Duration = Duration::from_secs(50);

/// Root reads everything, so to be refused it must give up overriding.
pub const WITHOUT_OVERRIDE: &str = "exec setpriv --bounding-set -dac_override,-dac_read_search \"$@\"";

/// What kind of file it is, which decides what counts as unreadable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// One JSON object per line; an unfinished last line is normal.
    Lines,
    /// One JSON object.
    Document,
    /// A file whose content nobody reads.
    Lock,
    /// A file of our own, which changes no answer.
    Cache,
}

/// One way to be bad.
struct Damage {
    name: &'static str,
    how: How,
    /// The kinds for which the file is then unreadable, so that a warning must name it.
    told_of: &'static [Kind],
}

impl Damage {
    /// Whether it is made from lines of JSON.
    fn needs_lines(&self) -> bool {
        self.is_readable() || self.name == "nested deeply"
    }

    /// Whether it is only unusual: every session must still be there, without a warning.
    fn is_readable(&self) -> bool {
        matches!(self.how, How::Year(_)) || self.name == "from the future"
    }
}

enum How {
    /// Other bytes, made from the good ones.
    Bytes(fn(&[u8]) -> Vec<u8>),
    /// The good ones, then one line of a gigabyte.
    Huge,
    /// No permission to read.
    Unreadable,
    /// A FIFO that nobody writes into.
    Fifo,
    /// A link to itself.
    Loop,
    /// A directory.
    Directory,
    /// Good ones, all moments moved to this year, the file's own too.
    Year(u64),
}

use Kind::{Document, Lines, Lock};

const DAMAGES: &[Damage] = &[
    Damage { name: "cut in its last line", how: How::Bytes(cut_end), told_of: &[Document] },
    Damage { name: "cut in half", how: How::Bytes(cut_half), told_of: &[Document] },
    Damage { name: "binary", how: How::Bytes(binary), told_of: &[Lines, Document] },
    Damage { name: "binary in one line", how: How::Bytes(binary_line), told_of: &[Lines, Document] },
    Damage { name: "zeros", how: How::Bytes(zeros), told_of: &[Lines, Document] },
    Damage { name: "one line of 1 GB", how: How::Huge, told_of: &[Document] },
    Damage { name: "empty", how: How::Bytes(|_| Vec::new()), told_of: &[] },
    Damage { name: "unreadable", how: How::Unreadable, told_of: &[Lines, Document] },
    Damage { name: "a FIFO", how: How::Fifo, told_of: &[Lines, Document, Lock] },
    Damage { name: "a link to itself", how: How::Loop, told_of: &[Lines, Document, Lock] },
    Damage { name: "a directory", how: How::Directory, told_of: &[Lines, Document, Lock] },
    Damage { name: "from the future", how: How::Bytes(future), told_of: &[] },
    Damage { name: "not UTF-8", how: How::Bytes(not_utf8), told_of: &[Lines, Document] },
    Damage { name: "of 1970", how: How::Year(0), told_of: &[] },
    Damage { name: "of 2100", how: How::Year(4_102_444_800), told_of: &[] },
    Damage { name: "nested deeply", how: How::Bytes(deep), told_of: &[] },
    Damage { name: "nested deeply without end", how: How::Bytes(deep_open), told_of: &[Lines, Document] },
    Damage { name: "an array", how: How::Bytes(|_| b"[1,2]\n".to_vec()), told_of: &[Lines, Document] },
];

fn cut_end(good: &[u8]) -> Vec<u8> {
    good[..good.len() - good.len().min(9)].to_vec()
}

fn cut_half(good: &[u8]) -> Vec<u8> {
    good[..good.len() / 2].to_vec()
}

fn noise(count: u32) -> impl Iterator<Item = u8> {
    (1..=count).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
}

fn binary(good: &[u8]) -> Vec<u8> {
    good.iter().copied().chain(*b"\n").chain(noise(20_000)).chain(*b"\n").collect()
}

fn binary_line(_: &[u8]) -> Vec<u8> {
    noise(20_000).filter(|b| *b != b'\n').collect()
}

fn zeros(good: &[u8]) -> Vec<u8> {
    // What a power cut leaves of a file that had grown.
    [good, &[0; 5000], b"\n"].concat()
}

fn future(good: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(good);
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let mut value: Value = serde_json::from_str(line).expect("a good line");
        value["quantum"] = serde_json::json!({"states": [1, null, {"deep": [true]}], "n": 1e300});
        value["version"] = "99.0.0".into();
        lines.push(value.to_string());
    }
    if lines.len() > 1 {
        lines.insert(1, r#"{"type":"hologram","timestamp":17,"message":"flat","payload":[9]}"#.into());
        lines.push(r#"{"type":{"kind":"nested"},"timestamp":{"s":1},"payload":"text"}"#.into());
    }
    lines.join("\n").into_bytes().into_iter().chain(*b"\n").collect()
}

fn not_utf8(good: &[u8]) -> Vec<u8> {
    let mut bad = Vec::with_capacity(good.len() * 2);
    for (i, byte) in good.iter().enumerate() {
        bad.push(*byte);
        if good[..=i].ends_with(b"\":\"") {
            bad.extend(b"\xff\xc3\x28");
        }
    }
    bad
}

fn deep(good: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(good);
    let first = text.lines().next().expect("a line").trim_end().trim_end_matches('}');
    let nested = format!("{first},\"abyss\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
    let rest: Vec<&str> = text.lines().skip(1).collect();
    format!("{nested}\n{}\n", rest.join("\n")).trim_end().to_owned().into_bytes()
}

fn deep_open(good: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(good);
    format!("{{\"message\":{{\"content\":{}\n{text}", "[{\"a\":".repeat(100_000)).into_bytes()
}

/// One file to be damaged.
pub struct Victim<'a> {
    /// Where it is.
    pub path: PathBuf,
    /// What it is.
    pub kind: Kind,
    /// The sessions that it tells of: only these may change.
    pub of: &'a [String],
    /// Whether their process lives: then they may be anything but gone.
    pub lives: bool,
}

impl Victim<'_> {
    /// Damages the file in every way there is.
    #[track_caller]
    pub fn suffers_everything(&self, sandbox: &Sandbox) {
        let good = fs::read(&self.path).expect("a good file");
        let before = list(sandbox);
        assert_eq!(before.warnings(), [""; 0], "nothing is bad yet");
        let mut failures = Vec::new();
        // What is made from lines of JSON cannot be made from a cache.
        let lines = good.starts_with(b"{");
        for damage in DAMAGES.iter().filter(|d| lines || !d.needs_lines()) {
            self.apply(&damage.how, &good);
            if let Err(wrong) = self.look(sandbox, damage, &before) {
                failures.push(format!("{}: {wrong}", damage.name));
            }
            self.heal(&good);
        }
        assert!(
            failures.is_empty(),
            "{} of {} ways to damage {}:\n  {}",
            failures.len(),
            DAMAGES.len(),
            self.path.display(),
            failures.join("\n  ")
        );
        let after = list(sandbox);
        assert_eq!(others(&after, self.of), others(&before, self.of), "all is well again");
        for id in self.of {
            assert_eq!(after.status(id), before.status(id), "all is well again");
        }
    }

    fn apply(&self, how: &How, good: &[u8]) {
        match how {
            How::Bytes(make) => fs::write(&self.path, make(good)).expect("damage"),
            How::Huge => {
                let mut file = File::create(&self.path).expect("damage");
                file.write_all(good).expect("damage");
                if self.kind == Lines {
                    file.write_all(b"{\"type\":\"user\",\"payload\":\"").expect("damage");
                }
                // A hole: it is read as zeros and takes no room.
                file.seek(SeekFrom::Start(1_000_000_000)).expect("damage");
                file.write_all(b"\"}\n").expect("damage");
            }
            How::Unreadable => {
                fs::set_permissions(&self.path, Permissions::from_mode(0o000)).expect("damage");
            }
            How::Fifo => {
                fs::remove_file(&self.path).expect("damage");
                let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
                rustix::fs::mknodat(rustix::fs::CWD, &self.path, kind, mode, 0).expect("damage");
            }
            How::Loop => {
                fs::remove_file(&self.path).expect("damage");
                std::os::unix::fs::symlink(&self.path, &self.path).expect("damage");
            }
            How::Directory => {
                fs::remove_file(&self.path).expect("damage");
                fs::create_dir(&self.path).expect("damage");
            }
            How::Year(seconds) => {
                fs::write(&self.path, moved(good, *seconds)).expect("damage");
                let then = SystemTime::UNIX_EPOCH + Duration::from_secs(*seconds);
                let file = File::options().write(true).open(&self.path).expect("damage");
                file.set_times(FileTimes::new().set_modified(then).set_accessed(then)).expect("damage");
            }
        }
    }

    fn heal(&self, good: &[u8]) {
        if self.path.symlink_metadata().is_ok_and(|m| m.is_dir()) {
            fs::remove_dir(&self.path).expect("healing");
        } else {
            drop(fs::remove_file(&self.path));
        }
        fs::write(&self.path, good).expect("healing");
    }

    /// Asks for a listing, and tells what is wrong with it.
    fn look(&self, sandbox: &Sandbox, damage: &Damage, before: &Answer) -> Result<(), String> {
        let began = Instant::now();
        let (seen, memory) = match damage.how {
            How::Unreadable => (Answer::of(&through(sandbox, WITHOUT_OVERRIDE, &PATIENT)), 0),
            How::Huge => {
                let (output, memory) = weigh(sandbox, &PATIENT);
                (Answer::of(&output), memory)
            }
            _ => (Answer::of(&ask(sandbox, &PATIENT)), 0),
        };
        let took = began.elapsed();
        holds(took < MOST_TIME, || format!("it took {took:?}"))?;
        holds(memory <= MOST_MEMORY, || format!("it held {} MB", memory >> 20))?;
        for (now, then) in others(&seen, self.of).iter().zip(others(before, self.of)) {
            holds(*now == then, || format!("another session changed:\n{now}\n{then}"))?;
        }
        holds(others(&seen, self.of).len() == others(before, self.of).len(), || {
            format!("sessions were lost: {:#}", seen.json)
        })?;
        if self.kind == Kind::Cache {
            return holds(seen.warnings().is_empty(), || format!("{:?}", seen.warnings()));
        }
        for id in self.of.iter().filter(|_| self.lives) {
            let gone = seen.find(id).is_none_or(|s| s["live"] == false);
            holds(!gone, || format!("{id} lives, and is gone or missing: {:#}", seen.json))?;
        }
        let end = self.path.file_name().and_then(|n| n.to_str()).expect("a name");
        let named = seen.warns_of(end);
        let must = damage.told_of.contains(&self.kind);
        holds(named || !must, || format!("no warning names {end}: {:?}", seen.warnings()))?;
        let untold = |id: &String| seen.find(id).is_some_and(|s| s["status"] == "unknown");
        let huge_and_untold = matches!(damage.how, How::Huge) && self.of.iter().any(untold);
        holds(named || !huge_and_untold, || format!("unknown, and no warning names {end}"))?;
        if damage.is_readable() {
            let (now, then) = (seen.sessions().len(), before.sessions().len());
            holds(now == then, || format!("a session was lost: {:#}", seen.json))?;
            holds(!named, || format!("it can be read: {:?}", seen.warnings()))?;
        }
        self.of.iter().try_for_each(|id| poke(sandbox, id))
    }
}

fn holds(condition: bool, told: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(told()) }
}

/// The verbs that look at one session.
fn poke(sandbox: &Sandbox, id: &str) -> Result<(), String> {
    for verb in [&["peek", "-n", "2"][..], &["explain"]] {
        let began = Instant::now();
        let said = ask(sandbox, &[verb, &[id]].concat());
        holds([0, 1, 2, 5].contains(&said.code()), || format!("{verb:?}: {said:?}"))?;
        let took = began.elapsed();
        holds(took < 2 * MOST_TIME, || format!("{verb:?} took {took:?}"))?;
    }
    Ok(())
}

/// Every row but those of these sessions, without the moment of asking.
fn others(answer: &Answer, of: &[String]) -> Vec<String> {
    let others = answer.sessions().iter().filter(|s| !of.iter().any(|id| s["native_id"] == id.as_str()));
    // What a store says has its own time, and that may be the very moment of asking.
    let without = |session: &Value| {
        let mut session = session.clone();
        let because = session["because"].as_array_mut().into_iter().flatten();
        because
            .filter(|o| o["witness"] != "store" && o["at"] == answer.json["at"])
            .for_each(|o| o["at"] = "now".into());
        format!("{session:#}")
    };
    others.map(without).collect()
}

/// The same lines with every moment moved.
fn moved(good: &[u8], seconds: u64) -> Vec<u8> {
    fn shift(value: &mut Value, seconds: u64) {
        match value {
            Value::String(text) if text.len() == 24 && text.ends_with('Z') => {
                *text = crate::moment::iso(i64::try_from(seconds).expect("a moment") * 1000);
            }
            Value::Number(n) if n.as_u64().is_some_and(|n| n > 1_000_000_000_000) => {
                *value = (seconds * 1000).into();
            }
            Value::Array(items) => items.iter_mut().for_each(|v| shift(v, seconds)),
            Value::Object(members) => members.values_mut().for_each(|v| shift(v, seconds)),
            _ => {}
        }
    }
    let text = String::from_utf8_lossy(good);
    let lines = text.lines().map(|line| {
        let mut value: Value = serde_json::from_str(line).expect("a good line");
        shift(&mut value, seconds);
        format!("{value}\n")
    });
    lines.collect::<String>().into_bytes()
}
