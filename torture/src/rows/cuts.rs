//! Row 6: what was acknowledged outlives a power cut.
//!
//! lariat's state stands on an ext4 file system of its own, in a file on a loop device. After an
//! answer, or in the middle of a deed, that file system is cut off its disk: what only the kernel
//! held is gone. Then everyone is killed, it is mounted again, and what was acknowledged must be
//! there. A wish must be there even before its answer: once the first signal may be sent.
//!
//! The controls leave out a sync: the file's, the directory's, or, with the program itself under
//! strace, all of those it makes in a folder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lariat_sys::{durable, power};
use rustix::process::Signal;
use serde_json::Value;

use crate::chance::Chance;
use crate::ground::{DEADLINE, Ground, Session, signal_pid, wait_until, which};
use crate::tally::Tally;

/// Where the wish is stored and nothing was signalled yet.
const WISHED: &str = "stop.wished";
/// So many cuts, and the file system is looked through.
const CHECKED: u64 = 100;

/// Runs the row.
pub fn run(ground: &Ground, count: u64, chance: &mut Chance, tally: &mut Tally) -> io::Result<()> {
    let disk = match Disk::make(ground) {
        Ok(disk) => disk,
        Err(why) => {
            tally.skip(format!("no file system can be mounted from a file here: {why}"));
            return Ok(());
        }
    };
    for n in 0..count {
        // Each kind once, then at random.
        let kind = if n < 8 { n * 8 } else { chance.below(100) };
        let before = tally.violated;
        let what = match kind {
            0..8 => kill(ground, &disk, "kill", tally)?,
            8..16 => kill(ground, &disk, "stop", tally)?,
            16..24 => wished(ground, &disk, None, tally)?,
            24..32 => lock(ground, &disk, tally)?,
            32..40 => launch(ground, &disk, tally)?,
            40..48 => midway(ground, &disk, chance, tally)?,
            48..56 => append(&disk, chance, tally)?,
            _ => puts(&disk, chance, tally)?,
        };
        tally.try_one(what);
        if tally.violated > before {
            tally.note(format!("that was cut {n}, after {what}"));
        }
        disk.clear()?;
        if n % CHECKED == CHECKED - 1 || n + 1 == count {
            disk.look_through(tally)?;
        }
    }
    for n in 0..(count / 20).clamp(3, 50) {
        for way in [Careless::NoFolder, Careless::NoFile] {
            let lost = careless(&disk, way, n)?;
            tally.control(way.what(), lost);
        }
    }
    if which("strace").is_none() {
        tally.note("no strace: the program itself was not tried without its syncs");
        return disk.unmount();
    }
    for _ in 0..(count / 100).clamp(1, 10) {
        let mut seen = Tally::default();
        wished(ground, &disk, Some("fsync"), &mut seen)?;
        tally.control("`lariat kill` whose directory is not synced", seen.violated > 0);
        disk.clear()?;
    }
    disk.unmount()
}

/// The file system that is cut.
struct Disk {
    image: PathBuf,
    place: PathBuf,
}

impl Disk {
    /// Makes one and mounts it where lariat keeps its state. The error is for a person.
    fn make(ground: &Ground) -> Result<Disk, String> {
        let memory = ground.fresh("disk").map_err(|e| e.to_string())?;
        let path = memory.display().to_string();
        ran("mount", &["-t", "tmpfs", "none", &path])?;
        let image = memory.join("image");
        File::create(&image).and_then(|f| f.set_len(32 << 20)).map_err(|e| e.to_string())?;
        ran("mkfs.ext4", &["-q", "-F", &image.display().to_string()])?;
        let disk = Disk { image, place: ground.state.clone() };
        disk.mount()?;
        Ok(disk)
    }

    fn mount(&self) -> Result<(), String> {
        let (image, place) = (self.image.display().to_string(), self.place.display().to_string());
        // Nothing is written by the clock: only what is synced.
        ran("mount", &["-o", "loop,commit=900", &image, &place])
    }

    fn unmount(&self) -> io::Result<()> {
        ran("umount", &[&self.place.display().to_string()]).map_err(io::Error::other)
    }

    /// The cut, the death of everyone, and the start of the machine.
    fn cut(&self, ground: &Ground) -> io::Result<()> {
        power::cut(&self.place)?;
        self.start(ground)
    }

    /// After the cut.
    fn start(&self, ground: &Ground) -> io::Result<()> {
        wait_until("everyone to be dead", || {
            let all = ground.processes();
            all.iter().for_each(|p| _ = signal_pid(p.pid, Signal::KILL));
            all.is_empty()
        })?;
        self.again()
    }

    fn again(&self) -> io::Result<()> {
        self.unmount()?;
        self.mount().map_err(io::Error::other)
    }

    /// Nothing is left of a round, durably.
    fn clear(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.place)? {
            let path = entry?.path();
            if path.is_dir() && !path.ends_with("lost+found") {
                fs::remove_dir_all(path)?;
            } else if path.is_file() {
                fs::remove_file(path)?;
            }
        }
        rustix::fs::syncfs(File::open(&self.place)?)?;
        Ok(())
    }

    /// The file system itself is whole.
    fn look_through(&self, tally: &mut Tally) -> io::Result<()> {
        self.unmount()?;
        let found = ran("e2fsck", &["-f", "-n", &self.image.display().to_string()]);
        tally.hold(found.is_ok(), || format!("the file system is damaged: {found:?}"));
        self.mount().map_err(io::Error::other)
    }

    fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.place.join(name);
        durable::make_folder(&folder)?;
        Ok(folder)
    }
}

fn ran(program: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Records and what each must hold after the cut.
fn puts(disk: &Disk, chance: &mut Chance, tally: &mut Tally) -> io::Result<&'static str> {
    let folder = disk.folder("puts")?;
    let mut stored: Vec<(String, Vec<u8>)> = Vec::new();
    for n in 0..=chance.below(6) {
        // New ones, and some again.
        let name = format!("record-{}", chance.below(n + 2));
        let content = vec![b'a' + u8::try_from(n).unwrap_or(0); usize::try_from(chance.below(9_000)).unwrap_or(0)];
        durable::put(&folder, &name, &content)?;
        stored.retain(|(other, _)| *other != name);
        stored.push((name, content));
    }
    power::cut(&disk.place)?;
    disk.again()?;
    for (name, content) in &stored {
        let now = fs::read(folder.join(name));
        let right = now.as_ref().is_ok_and(|now| now == content);
        tally.hold(right, || format!("{name} is lost, {:?} bytes of {}", now.map(|n| n.len()), content.len()));
    }
    Ok("a cut after durable writes")
}

fn append(disk: &Disk, chance: &mut Chance, tally: &mut Tally) -> io::Result<&'static str> {
    let path = disk.folder("lines")?.join("journal");
    let mut whole = String::new();
    for _ in 0..=chance.below(5) {
        let line = format!("{:x}", chance.number());
        durable::append(&path, line.as_bytes())?;
        whole += &format!("{line}\n");
    }
    power::cut(&disk.place)?;
    disk.again()?;
    let now = fs::read_to_string(&path).unwrap_or_default();
    tally.hold(now == whole, || format!("lines are lost: {now:?} of {whole:?}"));
    Ok("a cut after lines of the journal")
}

/// A launched session: it is on record, durably.
fn launched(ground: &Ground) -> io::Result<Session> {
    let place = ground.fresh("cut")?.display().to_string();
    ground.launch("sit", &["--cwd", &place])
}

fn want(session: &Session) -> String {
    let intent = fs::read(session.folder.join("intent.json")).unwrap_or_default();
    let intent: Value = serde_json::from_slice(&intent).unwrap_or_default();
    intent["want"].as_str().unwrap_or("lost").to_owned()
}

/// It was ended, and is so for ever.
fn is_ended(ground: &Ground, session: &Session, tally: &mut Tally) -> io::Result<()> {
    let want = want(session);
    tally.hold(want == "stop", || format!("an acknowledged end of {} is lost: it is to {want}", session.handle));
    let rows = ground.list()?;
    let row = rows.iter().find(|r| r["handle"] == session.handle.as_str());
    let right = row.is_some_and(|r| r["status"] == "stopped" && r["restorable"] == false && r["live"] == false);
    tally.hold(right, || format!("it was ended, and is told to be {row:?}"));
    ground.told(&["restore", "--yes", "--json"])?;
    let live = ground.others();
    tally.hold(live.is_empty(), || format!("it was ended and is back: {live:?}"));
    ground.told(&["kill", "--all", "--yes", "--json"]).map(drop)
}

fn kill(ground: &Ground, disk: &Disk, verb: &str, tally: &mut Tally) -> io::Result<&'static str> {
    let session = launched(ground)?;
    let grace: &[&str] = if verb == "stop" { &["--grace", "200ms"] } else { &[] };
    let (code, told) = ground.told(&[&[verb, &session.handle, "--json"], grace].concat())?;
    tally.hold(code == 0, || format!("it could not be ended: {told}"));
    disk.cut(ground)?;
    is_ended(ground, &session, tally)?;
    ground.forget(&session);
    Ok(if verb == "stop" { "a cut after `lariat stop`" } else { "a cut after `lariat kill`" })
}

/// Nothing is signalled before the wish is durable: a cut right before the first signal.
fn wished(ground: &Ground, disk: &Disk, swallow: Option<&str>, tally: &mut Tally) -> io::Result<&'static str> {
    let session = launched(ground)?;
    let outside = ground.fresh("held")?;
    let (fifo, passed) = (outside.join("hold"), outside.join("passed"));
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)?;
    let mut command = match swallow {
        None => ground.lariat(&["kill", &session.handle, "--json"]),
        Some(call) => {
            // Only what it does to the folder of this session, as if it were written without.
            let mut strace = Command::new("strace");
            strace.args(["-f", "-qq", "-o", "/dev/null", "-P"]).arg(&session.folder);
            strace.args(["-e", &format!("trace={call}"), "-e", &format!("inject={call}:retval=0")]);
            strace.args(["lariat", "kill", &session.handle, "--json"]).stdin(Stdio::null());
            strace
        }
    };
    command.env("LARIAT_PAUSE_AT", WISHED).env("LARIAT_PAUSE_ON", &fifo).env("LARIAT_POINTS", &passed);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    wait_until("the wish", || fs::read_to_string(&passed).is_ok_and(|p| p.lines().any(|l| l == WISHED)))?;
    power::cut(&disk.place)?;
    let _ = child.kill();
    child.wait()?;
    disk.start(ground)?;
    let want = want(&session);
    tally.hold(want == "stop", || format!("a signal would have come before the wish, which is to {want}"));
    ground.forget(&session);
    Ok("a cut between the wish and its first signal")
}

fn lock(ground: &Ground, disk: &Disk, tally: &mut Tally) -> io::Result<&'static str> {
    let place = ground.fresh("locked")?.display().to_string();
    let (code, told) = ground.told(&["lock", &place, "--by", "me", "--json"])?;
    disk.cut(ground)?;
    let (_, held) = ground.told(&["locks", "--json"])?;
    let there = held["locks"].as_array().is_some_and(|l| l.len() == 1);
    tally.hold(code == 0 && there, || format!("an acknowledged lock is lost: {told}, {held}"));
    // And it is free again, durably.
    let (code, told) = ground.told(&["unlock", &place, "--json"])?;
    disk.cut(ground)?;
    let (_, held) = ground.told(&["locks", "--json"])?;
    let free = held["locks"].as_array().is_some_and(Vec::is_empty);
    tally.hold(code == 0 && free, || format!("an acknowledged release is lost: {told}, {held}"));
    Ok("a cut after `lariat lock`, and after `unlock`")
}

fn launch(ground: &Ground, disk: &Disk, tally: &mut Tally) -> io::Result<&'static str> {
    let session = launched(ground)?;
    disk.cut(ground)?;
    let want = want(&session);
    tally.hold(want == "run", || format!("an acknowledged launch is lost: it is to {want}"));
    let rows = ground.list()?;
    let there = rows.iter().any(|r| r["handle"] == session.handle.as_str() && r["native_id"] == session.id.as_str());
    tally.hold(there, || format!("an acknowledged launch has no row: {rows:?}"));
    ground.forget(&session);
    Ok("a cut after `lariat launch`")
}

/// A cut at any moment of a kill: what stands there is whole, and if it was acknowledged, it stands.
fn midway(ground: &Ground, disk: &Disk, chance: &mut Chance, tally: &mut Tally) -> io::Result<&'static str> {
    let session = launched(ground)?;
    let mut child = ground.lariat(&["kill", &session.handle, "--json"]);
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    std::thread::sleep(chance.moment(Duration::from_millis(80)).min(DEADLINE));
    let acknowledged = child.try_wait()?.is_some_and(|status| status.success());
    power::cut(&disk.place)?;
    let _ = child.kill();
    child.wait()?;
    disk.start(ground)?;
    let want = want(&session);
    tally.hold(matches!(want.as_str(), "run" | "stop"), || format!("the wish is torn: {want}"));
    tally.hold(!acknowledged || want == "stop", || format!("an acknowledged kill is lost: it is to {want}"));
    ground.forget(&session);
    Ok("a cut at any moment of `lariat kill`")
}

/// How a record is written by somebody who forgets a sync.
#[derive(Clone, Copy)]
enum Careless {
    NoFolder,
    NoFile,
}

impl Careless {
    fn what(self) -> &'static str {
        match self {
            Careless::NoFolder => "a record whose directory is not synced",
            Careless::NoFile => "a record whose content is not synced",
        }
    }
}

/// Whether what was so written is lost.
fn careless(disk: &Disk, way: Careless, n: u64) -> io::Result<bool> {
    let folder = disk.folder("careless")?;
    let (temporary, record) = (folder.join(".record.tmp"), folder.join(format!("record-{n}")));
    let content = vec![b'x'; 5_000];
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&temporary)?;
    file.write_all(&content)?;
    if matches!(way, Careless::NoFolder) {
        file.sync_all()?;
    }
    fs::rename(&temporary, &record)?;
    if matches!(way, Careless::NoFile) {
        sync(&folder)?;
    }
    drop(file);
    power::cut(&disk.place)?;
    disk.again()?;
    let lost = fs::read(&record).map_or(true, |now| now != content);
    disk.clear()?;
    Ok(lost)
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
