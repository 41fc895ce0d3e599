//! Row 14, with worktrees: whatever comes after what, nothing is resurrected, doubled or lost.
//!
//! Each sequence has a git repository of its own, a few sessions, and a dozen random steps: launch,
//! stop, kill, resume, restore, `worktree clean`, `save` and `apply`, a crash of an agent or an end of
//! its own, a reboot, and any of lariat's own deaths, at a named point or at any moment. The agents
//! work in their worktrees all the while. What was asked, told, done and seen is in one log, which
//! [`crate::model`] judges.
//!
//! A sequence is had again by its own seed: `--rows 14 --count 1 --seed N`.
//!
//! The controls do what a careless supervisor would: end an agent without storing the wish, start a
//! second one, remove a worktree by force.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lariat_sys::process::Stat;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::ground::{Ground, signal_pid, wait_until};
use crate::model;
use crate::tally::Tally;
use crate::worker;

/// What a sequence is made of, and how often each is in proportion.
const STEPS: &[(u64, &str)] = &[
    (16, "launch"),
    (3, "launch in the repository"),
    (8, "stop"),
    (9, "kill"),
    (9, "crash of an agent"),
    (6, "end of an agent by itself"),
    (5, "reboot"),
    (10, "restore"),
    (10, "resume"),
    (7, "worktree clean"),
    (7, "worktree clean --force"),
    (5, "worktree save"),
    (9, "worktree apply"),
    (8, "write by a person"),
];
/// Branches that launches ask for by name.
const BRANCHES: [&str; 3] = ["one", "two", "three"];

/// Runs the row.
pub fn run(ground: &Ground, count: u64, chance: &mut Chance, tally: &mut Tally) -> io::Result<()> {
    let points = points(ground)?;
    let seeds = chance.clone();
    for n in 0..count {
        // The first has the row's own seed.
        let seed = seeds.seed().wrapping_add(n);
        let mut one = Sequence::new(ground, seed)?;
        let steps = 10 + one.chance.below(7);
        for _ in 0..steps {
            let what = pick(&mut one.chance);
            one.step(what, &points)?;
            tally.try_one(what);
        }
        let wrong = one.settle()?;
        if !wrong.is_empty() {
            let kept = one.keep()?;
            tally.note(format!("sequence {n} fails: `--rows 14 --count 1 --seed {seed}`; its log: {kept}"));
        }
        wrong.into_iter().for_each(|w| tally.violate(format!("seed {seed}: {w}")));
        one.clear()?;
    }
    tally.note(format!("{count} sequences; lariat was ended at any of {} points", points.values().flatten().count()));
    for n in 0..(count / 50).clamp(1, 5) {
        controls(ground, seeds.seed().wrapping_add(n), tally)?;
    }
    Ok(())
}

fn pick(chance: &mut Chance) -> &'static str {
    let mut number = chance.below(STEPS.iter().map(|(weight, _)| weight).sum());
    for (weight, what) in STEPS {
        match number.checked_sub(*weight) {
            Some(rest) => number = rest,
            None => return what,
        }
    }
    "nothing"
}

/// Where a verb is ended.
enum Blow<'a> {
    None,
    At(&'a str),
    After(Duration),
    Note(&'a Path),
}

/// One sequence.
struct Sequence<'a> {
    ground: &'a Ground,
    chance: Chance,
    /// Its log, and what its agents need.
    folder: PathBuf,
    repo: PathBuf,
    boot: u64,
}

impl<'a> Sequence<'a> {
    fn new(ground: &'a Ground, seed: u64) -> io::Result<Sequence<'a>> {
        let folder = ground.fresh("sequence")?;
        let repo = folder.join("repo");
        ran(Command::new("cp").arg("-a").arg(&ground.work).arg(&repo))?;
        worker::note(&folder, &json!({"seed": seed}))?;
        Ok(Sequence { ground, chance: Chance::new(seed), folder, repo, boot: 0 })
    }

    fn log(&self) -> io::Result<Vec<Value>> {
        worker::notes(&self.folder)
    }

    /// Asks, writes down what was asked, told, and who lives then.
    fn ask(&self, args: &[&str], blow: &Blow<'_>) -> io::Result<Value> {
        worker::note(&self.folder, &json!({"asked": args, "blow": blow.text()}))?;
        let mut command = self.ground.lariat(&[args, &["--json"]].concat());
        command.current_dir(&self.repo).env("TORTURE", format!("work {}", self.folder.display()));
        match blow {
            Blow::At(point) => drop(command.env("LARIAT_DIE_AT", point)),
            Blow::Note(file) => drop(command.env("LARIAT_POINTS", file)),
            _ => {}
        }
        // Files, not pipes: what outlives the verb must not hold up its answer.
        let (out, err) = (self.folder.join("out"), self.folder.join("err"));
        command.stdout(fs::File::create(&out)?).stderr(fs::File::create(&err)?);
        let mut child = command.spawn()?;
        if let Blow::After(moment) = blow {
            std::thread::sleep(*moment);
            child.kill()?;
        }
        let status = child.wait()?;
        let text = fs::read_to_string(&out).unwrap_or_default();
        let told: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or_default();
        let said = fs::read_to_string(&err).unwrap_or_default();
        let short = said.lines().last().unwrap_or_default();
        worker::note(&self.folder, &json!({"told": args, "code": status.code(), "answer": told, "said": short}))?;
        self.look()?;
        Ok(told)
    }

    /// Writes down who lives, by `/proc` alone.
    fn look(&self) -> io::Result<()> {
        let seen: BTreeMap<String, Vec<u32>> = self.living();
        worker::note(&self.folder, &json!({"seen": seen}))
    }

    /// The agents that live, by the session that they were started for.
    fn living(&self) -> BTreeMap<String, Vec<u32>> {
        let mut seen: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        let agents: Vec<_> = self.ground.processes().into_iter().filter(|p| p.comm == "claude").collect();
        // A child that is about to become git still bears its parent's name.
        let is_child = |pid: u32| Stat::read(pid).is_ok_and(|s| agents.iter().any(|p| p.pid == s.ppid));
        for process in agents.iter().filter(|p| !is_child(p.pid)) {
            let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
            let mark = environment.split(|b| *b == 0).find_map(|v| v.strip_prefix(b"LARIAT_SESSION="));
            let Some(mark) = mark else { continue };
            seen.entry(String::from_utf8_lossy(mark).into_owned()).or_default().push(process.pid);
        }
        seen
    }

    /// The sessions that were told of or have shown themselves, in that order.
    fn handles(&self) -> io::Result<Vec<String>> {
        let mut handles: Vec<String> = Vec::new();
        for line in self.log()? {
            let told = line["answer"]["handle"].as_str().filter(|_| line["told"][0] == "launch");
            let handle = told.or_else(|| line["start"].as_str()).unwrap_or_default();
            if !handle.is_empty() && !handles.iter().any(|h| h == handle) {
                handles.push(handle.to_owned());
            }
        }
        Ok(handles)
    }

    /// One step. What has no session to be about is a launch.
    fn step(&mut self, what: &str, points: &BTreeMap<&str, Vec<String>>) -> io::Result<()> {
        let handles = self.handles()?;
        let alone = handles.is_empty();
        let handle = if alone { String::new() } else { self.chance.pick(&handles).clone() };
        let what = if alone { "launch" } else { what };
        let verb = if what == "launch in the repository" { "launch" } else { what };
        let known = points.get(verb).cloned().unwrap_or_default();
        let blow = match self.chance.below(100) {
            0..30 if !known.is_empty() => Blow::At(choose(self.chance.number(), &known)),
            30..40 => Blow::After(self.chance.moment(Duration::from_millis(150))),
            _ => Blow::None,
        };
        match what {
            "launch" => {
                let branch: &[&str] = if self.chance.below(3) == 0 { &[*self.chance.pick(&BRANCHES)] } else { &[] };
                let args = [&["launch", "claude", "--headless", "-p", "go on", "--worktree"], branch].concat();
                self.ask(&args, &blow)?;
            }
            "launch in the repository" => {
                self.ask(&["launch", "claude", "--headless", "-p", "go on"], &blow)?;
            }
            "stop" => drop(self.ask(&["stop", &handle, "--grace", "200ms"], &blow)?),
            "kill" => drop(self.ask(&["kill", &handle], &blow)?),
            "resume" => drop(self.ask(&["resume", &handle], &blow)?),
            "restore" => drop(self.ask(&["restore", "--yes"], &blow)?),
            "worktree clean" => drop(self.ask(&["worktree", "clean", &handle], &blow)?),
            "worktree clean --force" => drop(self.ask(&["worktree", "clean", &handle, "--force"], &blow)?),
            "worktree save" => drop(self.ask(&["worktree", "save", &handle], &blow)?),
            "worktree apply" => drop(self.ask(&["worktree", "apply", &handle], &blow)?),
            "crash of an agent" => self.crash(&handle)?,
            "end of an agent by itself" => self.end(&handle)?,
            "reboot" => self.reboot()?,
            "write by a person" => self.write(&handle)?,
            _ => {}
        }
        // The agents work for a while.
        std::thread::sleep(self.chance.moment(Duration::from_millis(40)));
        Ok(())
    }

    fn crash(&self, handle: &str) -> io::Result<()> {
        for pid in self.living().remove(handle).unwrap_or_default() {
            worker::note(&self.folder, &json!({"crash": handle, "pid": pid}))?;
            signal_pid(pid, Signal::KILL);
            wait_until("it to be dead", || !self.living().contains_key(handle))?;
        }
        Ok(())
    }

    /// Nobody holds a session any more: what a shim still holds cannot be restored.
    fn alone(&self) -> io::Result<()> {
        wait_until("the shims to be gone", || self.ground.processes().iter().all(|p| !p.comm.starts_with("lariat")))
    }

    /// Lets an agent end by itself. If its end is on record, it is over.
    fn end(&mut self, handle: &str) -> io::Result<()> {
        let code = *self.chance.pick(&["0", "7"]);
        let Some(pids) = self.living().remove(handle) else { return Ok(()) };
        let order = worker::order(&self.folder, handle);
        fs::write(order.with_extension("tmp"), code)?;
        fs::rename(order.with_extension("tmp"), &order)?;
        wait_until("it to end", || pids.iter().all(|pid| !crate::ground::lives(*pid)))?;
        fs::remove_file(order)?;
        let exit = self.ground.state.join("sessions").join(handle).join(lariat_shim::record::EXIT);
        let held = || self.ground.processes().iter().any(|p| p.comm.starts_with("lariat"));
        wait_until("its end to be on record, or nobody to write it", || exit.exists() || !held())?;
        if exit.exists() {
            worker::note(&self.folder, &json!({"ended": handle, "code": code}))?;
        }
        Ok(())
    }

    /// Everyone is killed, those first who could tell how the others ended; another boot id.
    fn reboot(&mut self) -> io::Result<()> {
        self.boot += 1;
        worker::note(&self.folder, &json!({"reboot": self.boot}))?;
        wait_until("everyone to be dead", || {
            let all = self.ground.processes();
            let (ours, others): (Vec<_>, Vec<_>) = all.iter().partition(|p| p.comm.starts_with("lariat"));
            for process in ours.iter().chain(&others) {
                signal_pid(process.pid, Signal::KILL);
            }
            all.is_empty()
        })?;
        let file = self.folder.join("boot_id");
        let place = "/proc/sys/kernel/random/boot_id";
        if self.boot > 1 {
            ran(Command::new("umount").arg(place))?;
        }
        let number = self.chance.below(1 << 40);
        fs::write(&file, format!("b007b007-0000-4000-8000-{number:012x}\n"))?;
        ran(Command::new("mount").arg("--bind").arg(&file).arg(place))?;
        let runtime = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR").unwrap_or_default());
        for entry in fs::read_dir(runtime)? {
            fs::remove_dir_all(entry?.path())?;
        }
        self.look()
    }

    fn write(&mut self, handle: &str) -> io::Result<()> {
        let worktree = self.worktrees().join(handle);
        if worktree.is_dir() {
            let name = *self.chance.pick(&["README.md", "new/by-a-person", "note"]);
            worker::add(&worktree.join(name), &self.folder, &mut self.chance)?;
        }
        Ok(())
    }

    fn worktrees(&self) -> PathBuf {
        self.repo.with_file_name("repo.worktrees")
    }

    /// Everything is ended, then everything is removed that may be: what does not fit.
    fn settle(&mut self) -> io::Result<Vec<String>> {
        let mut wrong = Vec::new();
        for handle in self.handles()? {
            self.ask(&["kill", &handle], &Blow::None)?;
        }
        self.ask(&["kill", "--all", "--yes"], &Blow::None)?;
        let left = self.living();
        if !left.is_empty() {
            wrong.push(format!("these live after all was killed: {left:?}"));
        }
        for force in [&[][..], &["--force"]] {
            self.ask(&[&["worktree", "clean"], force].concat(), &Blow::None)?;
        }
        // Whoever could be brought back would be, now.
        self.ask(&["restore", "--yes"], &Blow::None)?;
        wrong.extend(model::check(&self.log()?));
        match self.readable() {
            Ok(readable) => wrong.extend(model::lost(&self.log()?, &readable)),
            Err(error) => wrong.push(format!("lost: {error}")),
        }
        Ok(wrong)
    }

    /// Every token in a worktree, in the repository's own folder, or below a ref.
    fn readable(&self) -> io::Result<HashSet<String>> {
        let mut found = HashSet::new();
        let mut next = vec![self.repo.clone(), self.worktrees()];
        while let Some(folder) = next.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                match entry.file_type()? {
                    kind if kind.is_dir() && entry.file_name() != ".git" => next.push(path),
                    kind if kind.is_file() => model::tokens(&fs::read(&path).unwrap_or_default(), &mut found),
                    _ => {}
                }
            }
        }
        let git = |args: &[&str], input: Stdio| {
            let output = Command::new("git").arg("-C").arg(&self.repo).args(args).stdin(input).output()?;
            let said = || io::Error::other(format!("git {args:?}: {}", String::from_utf8_lossy(&output.stderr)));
            if output.status.success() { Ok(output.stdout) } else { Err(said()) }
        };
        let objects = git(&["rev-list", "--objects", "--no-object-names", "--all"], Stdio::null())?;
        let list = self.folder.join("objects");
        fs::write(&list, objects)?;
        let content = git(&["cat-file", "--batch", "--buffer"], fs::File::open(&list)?.into())?;
        model::tokens(&content, &mut found);
        Ok(found)
    }

    /// Keeps the log where a person can read it: the last lines in the note itself.
    fn keep(&self) -> io::Result<String> {
        let log = fs::read_to_string(self.folder.join("log"))?;
        if let Some(place) = std::env::var_os("LARIAT_KEEP_SANDBOXES") {
            return Ok(format!("{} ({place:?})", self.folder.join("log").display()));
        }
        let told = log.lines().filter(|l| !l.starts_with("{\"path") && !l.starts_with("{\"seen"));
        Ok(told.collect::<Vec<_>>().join("\n              "))
    }

    /// Nothing of it is left.
    fn clear(self) -> io::Result<()> {
        wait_until("all to be gone", || {
            let all = self.ground.processes();
            all.iter().filter(|p| p.comm == "claude").for_each(|p| _ = signal_pid(p.pid, Signal::KILL));
            all.iter().all(|p| !p.comm.starts_with("lariat") && p.comm != "claude")
        })?;
        if self.boot > 0 {
            ran(Command::new("umount").arg("/proc/sys/kernel/random/boot_id"))?;
        }
        self.handles()?.iter().for_each(|handle| self.ground.remove_cgroup(handle));
        for entry in fs::read_dir(&self.ground.state)? {
            let path = entry?.path();
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
        let _ = fs::remove_dir_all(self.ground.home.join(".claude"));
        if std::env::var_os("LARIAT_KEEP_SANDBOXES").is_none() {
            fs::remove_dir_all(&self.folder)?;
        }
        Ok(())
    }
}

impl Blow<'_> {
    fn text(&self) -> Option<String> {
        match self {
            Blow::At(point) => Some(format!("at {point}")),
            Blow::After(moment) => Some(format!("after {moment:?}")),
            _ => None,
        }
    }
}

/// One of these by a number, the same one although a few others are there or not: which points a
/// verb passes hangs a little on what it finds.
fn choose(number: u64, from: &[String]) -> &str {
    let rank = |name: &&String| name.bytes().fold(number, |n, b| Chance::new(n ^ u64::from(b)).number());
    from.iter().min_by_key(rank).map_or("", String::as_str)
}

fn ran(command: &mut Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(io::Error::other(format!("{command:?}: {said}"))) }
}

/// The points that each verb passes, found by one sequence that has everything.
fn points(ground: &Ground) -> io::Result<BTreeMap<&'static str, Vec<String>>> {
    let mut one = Sequence::new(ground, 0)?;
    let files = ground.fresh("points")?;
    let mut passed: Vec<(&'static str, PathBuf)> = Vec::new();
    // Each verb has a file of its own, which its shim goes on with to its end.
    let mut pass = |one: &Sequence<'_>, what: &'static str, args: &[&str]| -> io::Result<Value> {
        let file = files.join(passed.len().to_string());
        let told = one.ask(args, &Blow::Note(&file))?;
        passed.push((what, file));
        Ok(told)
    };
    let told = pass(&one, "launch", &["launch", "claude", "--headless", "-p", "go on", "--worktree"])?;
    let handle = told["handle"].as_str().unwrap_or_default().to_owned();
    one.write(&handle)?;
    pass(&one, "worktree save", &["worktree", "save", &handle])?;
    pass(&one, "stop", &["stop", &handle, "--grace", "200ms"])?;
    pass(&one, "worktree clean --force", &["worktree", "clean", &handle, "--force"])?;
    pass(&one, "worktree apply", &["worktree", "apply", &handle])?;
    pass(&one, "resume", &["resume", &handle])?;
    one.crash(&handle)?;
    one.alone()?;
    pass(&one, "restore", &["restore", "--yes"])?;
    pass(&one, "kill", &["kill", &handle])?;
    // One with nothing in it that would be lost.
    let told = pass(&one, "launch", &["launch", "claude", "--headless", "-p", "go on", "--worktree"])?;
    let handle = told["handle"].as_str().unwrap_or_default().to_owned();
    pass(&one, "kill", &["kill", &handle])?;
    pass(&one, "worktree clean", &["worktree", "clean", &handle, "--force"])?;
    one.settle()?;
    one.clear()?;
    let mut found: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    for (what, file) in passed {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let points = text.lines().filter(|p| !p.ends_with(".observe")).map(str::to_owned);
        found.entry(what).or_default().extend(points);
    }
    let missing: Vec<_> = found.iter().filter(|(_, points)| points.is_empty()).map(|(verb, _)| *verb).collect();
    if !missing.is_empty() {
        return Err(io::Error::other(format!("no points in {missing:?}: is lariat built with pause points?")));
    }
    Ok(found.into_iter().map(|(verb, points)| (verb, points.into_iter().collect())).collect())
}

/// What a careless supervisor would do.
fn controls(ground: &Ground, seed: u64, tally: &mut Tally) -> io::Result<()> {
    let mut one = Sequence::new(ground, seed)?;
    let told = one.ask(&["launch", "claude", "--headless", "-p", "go on", "--worktree"], &Blow::None)?;
    let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
    let (handle, id, worktree) = (text("handle"), text("native_id"), text("worktree"));
    one.write(&handle)?;
    // A second agent of one session.
    let mut second = Command::new("claude");
    second.args(["--resume", &id]).current_dir(&worktree).stdin(Stdio::null()).stderr(Stdio::null());
    second.env("TORTURE", format!("work {}", one.folder.display())).env("LARIAT_SESSION", &handle);
    let mut second = second.spawn()?;
    wait_until("the second", || one.living().get(&handle).is_some_and(|pids| pids.len() > 1))?;
    wait_until("its word", || one.log().is_ok_and(|log| log.iter().any(|l| l["pid"] == second.id())))?;
    crate::ground::end(&mut second);
    let found = |one: &Sequence<'_>, word: &str| -> io::Result<bool> {
        Ok(model::check(&one.log()?).iter().any(|w| w.starts_with(word)))
    };
    tally.control("a second agent of one session", found(&one, "doubled")?);
    // An end without a wish.
    one.crash(&handle)?;
    worker::note(&one.folder, &json!({"told": ["kill", handle], "code": 0, "answer": "made up"}))?;
    one.alone()?;
    one.ask(&["restore", "--yes"], &Blow::None)?;
    tally.control("an end without a stored wish", found(&one, "resurrected")?);
    // A worktree removed by force.
    one.ask(&["kill", &handle], &Blow::None)?;
    one.write(&handle)?;
    let mut remove = Command::new("git");
    remove.arg("-C").arg(&one.repo).args(["worktree", "remove", "--force", &worktree]);
    if Path::new(&worktree).exists() {
        ran(&mut remove)?;
    }
    let lost = model::lost(&one.log()?, &one.readable()?);
    tally.control("`git worktree remove --force`", !lost.is_empty());
    one.clear()
}
