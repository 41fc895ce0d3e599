//! What has ended goes on when a person asks, what was cut off comes back when a person says so, and
//! nothing else ever does: scenarios 9, 20, 27 to 30, 38.

mod leaving;
mod lives;
mod shutdown;
mod untold;

use std::fs;
use std::path::{Path, PathBuf};

use lariat_testkit::{Child, DEADLINE, Output, Sandbox, Signal, put_program, wait_until};
use serde_json::{Value, json};

use crate::asking::{ask, lariat, list, through};
use crate::worktrees::hold;

/// An agent that registers, writes a transcript with an open turn, and works until it finds the file
/// `go` (then it ends well) or `fail` (then it ends badly) where it stands. Resumed without a transcript
/// it says so and dies, as the real one does.
const AGENT: &str = r#"
case "$1" in --resume) again=1;; esac
id=$2
dir=$HOME/.claude/projects/x
mkdir -p "$dir" "$HOME/.claude/sessions"
[ -n "$again" ] && [ ! -e "$dir/$id.jsonl" ] && { echo "No conversation found with session ID: $id" >&2; exit 1; }
[ -e refuse ] && { echo "no login" >&2; exit 1; }
echo "run $*" >> "$HOME/runs"
# One that never shows a sign of life.
while [ -e mute ]; do sleep 0.05; done
# One whose tool runs something.
[ -e run ] && sh ./run
# One that leaves a server behind.
[ -e serve ] && { rm serve; setsid sleep 987654 </dev/null >/dev/null 2>&1 & }
# One that another agent stands below.
[ -e nest ] && { inner=$(cat nest); rm nest; (cd inner && exec "$0" --session-id "$inner") & }
now=$(date -u +%Y-%m-%dT%H:%M:%S.%3NZ)
echo "{\"type\":\"user\",\"cwd\":\"$PWD\",\"sessionId\":\"$id\",\"message\":{\"role\":\"user\",\"content\":\"hi\"},\"timestamp\":\"$now\"}" >> "$dir/$id.jsonl"
start=$(cut -d' ' -f22 /proc/$$/stat)
entry=$HOME/.claude/sessions/$$.json
# One that ends well when it is told to end.
[ -e heed ] && trap 'rm "$entry"; exit 0' TERM
echo "{\"pid\":$$,\"sessionId\":\"$id\",\"cwd\":\"$PWD\",\"procStart\":\"$start\",\"kind\":\"interactive\",\"status\":\"busy\"}" > "$entry"
while [ ! -e go ] && [ ! -e fail ]; do sleep 0.05; done
[ -e fail ] && { rm "$entry"; exit 7; }
echo "{\"type\":\"assistant\",\"cwd\":\"$PWD\",\"sessionId\":\"$id\",\"message\":{\"id\":\"m$$\",\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"ho\"}],\"stop_reason\":\"end_turn\"},\"timestamp\":\"$now\"}" >> "$dir/$id.jsonl"
rm "$entry"
"#;

/// Puts that agent there as `claude`.
pub fn install(sandbox: &Sandbox) {
    let path = sandbox.root().join("own/claude");
    put_program(&path, format!("#!/bin/sh\n{AGENT}"));
    sandbox.install("claude", &path);
}

struct Stage {
    sandbox: Sandbox,
}

impl Stage {
    fn new(name: &str) -> Stage {
        let sandbox = Sandbox::new(name);
        install(&sandbox);
        Stage { sandbox }
    }

    #[track_caller]
    fn act(&self, args: &[&str]) -> Value {
        let output = self.ask(args);
        assert_eq!(output.code(), 0, "{args:?}: {} {}", output.stdout, output.stderr);
        output.json()
    }

    fn ask(&self, args: &[&str]) -> Output {
        ask(&self.sandbox, &[args, &["--json"]].concat())
    }

    /// Launches one in a directory of its own, and waits until it works.
    #[track_caller]
    fn launch(&self, place: &str, args: &[&str]) -> Launched {
        let cwd = self.sandbox.project(place);
        let place = cwd.to_str().expect("UTF-8");
        let told = self.act(&[&["launch", "claude", "--headless", "-p", "hi", "--cwd", place], args].concat());
        let launched = Launched { told, cwd };
        self.until(&launched, "working");
        launched
    }

    #[track_caller]
    fn until(&self, launched: &Launched, status: &str) {
        wait_until(status, DEADLINE, || list(&self.sandbox).session(launched.id())["status"] == status);
    }

    fn folder(&self, launched: &Launched) -> PathBuf {
        self.sandbox.state_dir().join("lariat/sessions").join(launched.handle())
    }

    /// Kills an agent from outside, as a crash would.
    fn crash(&self, launched: &Launched) {
        let row = list(&self.sandbox).session(launched.id()).clone();
        let pid = row["pid"].as_i64().expect("it lives");
        let process = self.sandbox.processes().into_iter().find(|p| i64::from(p.pid) == pid).expect("it lives");
        process.signal(Signal::KILL);
        wait_until("its end is on record", DEADLINE, || self.folder(launched).join("exit.json").exists());
    }

    /// Every process is killed at once, those first that could tell how the others ended.
    fn power_cut(&self) {
        let all = self.sandbox.processes();
        let (ours, others): (Vec<_>, Vec<_>) =
            all.iter().filter(|p| p.pid != 1).partition(|p| p.comm.starts_with("lariat"));
        for process in ours.iter().chain(&others) {
            process.signal(Signal::KILL);
        }
        wait_until("all are gone", DEADLINE, || self.running().is_empty());
    }

    fn running(&self) -> Vec<i32> {
        let all = self.sandbox.processes();
        all.iter().filter(|p| p.pid != 1 && p.state != 'Z').map(|p| p.pid).collect()
    }

    /// How often an agent was started with these words.
    fn runs(&self, words: &str) -> usize {
        let text = fs::read_to_string(self.sandbox.home().join("runs")).unwrap_or_default();
        text.lines().filter(|l| l.contains(words)).count()
    }
}

struct Launched {
    told: Value,
    cwd: PathBuf,
}

impl Launched {
    fn id(&self) -> &str {
        self.told["native_id"].as_str().expect("an id")
    }

    fn handle(&self) -> &str {
        self.told["handle"].as_str().expect("a handle")
    }

    fn say(&self, word: &str) {
        fs::write(self.cwd.join(word), "").expect("a sign");
    }
}

fn has_passed(path: &Path, point: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|p| p.lines().any(|l| l == point))
}

fn ids(rows: &Value) -> Vec<&str> {
    rows.as_array().expect("rows").iter().filter_map(|r| r["handle"].as_str()).collect()
}

#[test]
fn s09_an_agent_that_died_is_dead_and_restorable_though_its_shim_lives() {
    let stage = Stage::new("s09");
    let launched = stage.launch("a", &[]);
    stage.crash(&launched);
    let seen = list(&stage.sandbox);
    seen.expect(launched.id(), "interrupted", None);
    assert_eq!(seen.session(launched.id())["restorable"], true);
    // It stands in the short list too, in a group of its own.
    let shown = ask(&stage.sandbox, &["ls"]).stdout;
    assert!(shown.contains(launched.handle()) && shown.contains("cut off"), "{shown}");
}

#[test]
fn s27_after_a_reboot_what_was_cut_off_is_offered_and_nothing_starts_by_itself() {
    let mut stage = Stage::new("s27");
    let (cut, killed, done) = (stage.launch("a", &[]), stage.launch("b", &[]), stage.launch("c", &[]));
    stage.act(&["kill", killed.handle()]);
    done.say("go");
    stage.until(&done, "done");
    stage.sandbox.reboot();
    for verb in [&["ls"][..], &["status", cut.handle()], &["explain", cut.handle()], &["restore"]] {
        stage.act(verb);
        assert!(stage.running().is_empty(), "{verb:?} started something");
    }
    let plan = stage.act(&["restore"]);
    assert_eq!(ids(&plan["restore"]), [cut.handle()], "{plan}");
    assert_eq!(plan["restore"][0]["way"], "native");
    let others: Vec<&str> = ids(&plan["others"]);
    assert!(others.contains(&killed.handle()) && others.contains(&done.handle()), "{plan}");

    let told = stage.act(&["restore", "--yes"]);
    assert_eq!((ids(&told["restore"]), &told["restore"][0]["outcome"]), (vec![cut.handle()], &json!("restored")));
    list(&stage.sandbox).expect(killed.id(), "stopped", None);
    list(&stage.sandbox).expect(done.id(), "done", None);
    assert_eq!(list(&stage.sandbox).session(cut.id())["status"], "working");
    assert_eq!((stage.runs("--resume"), stage.runs("--session-id")), (1, 3));
    // Nothing comes back twice.
    assert_eq!(stage.act(&["restore", "--yes"])["restore"], json!([]));
    assert_eq!(stage.runs("--resume"), 1);
}

#[test]
fn of_two_who_restore_at_once_both_succeed_and_one_starts_it() {
    let stage = Stage::new("two-restore");
    let (one, two) = (stage.launch("a", &[]), stage.launch("b", &[]));
    stage.power_cut();
    let (gate, points) = (stage.sandbox.root().join("gate"), stage.sandbox.root().join("points"));
    rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a FIFO");
    let late = lariat(&stage.sandbox, &["restore", "--yes", "--json"]);
    let late =
        late.env("LARIAT_PAUSE_AT", "restore.planned").env("LARIAT_PAUSE_ON", &gate).env("LARIAT_POINTS", &points);
    let late = stage.sandbox.spawn(&late);
    wait_until("it has its plan", DEADLINE, || has_passed(&points, "restore.planned"));
    assert_eq!(ids(&stage.act(&["restore", "--yes"])["restore"]).len(), 2);
    // Of the one that a person ends meanwhile nothing is left to do either.
    stage.act(&["kill", two.handle()]);
    fs::write(&gate, "").expect("it goes on");
    let told = late.output(DEADLINE);
    let rows = told.json()["restore"].clone();
    assert_eq!((told.code(), rows.as_array().expect("rows").len()), (0, 2), "{told:?}");
    for row in rows.as_array().expect("rows") {
        let reason = row["reason"].as_str().expect("a reason");
        let how = if row["id"] == two.told["id"] { "a person ended it" } else { "it is working" };
        assert!(row["outcome"] == "settled" && reason.ends_with(how), "{told:?}");
    }
    assert_eq!(stage.runs("--resume"), 2);
    list(&stage.sandbox).expect(two.id(), "stopped", None);
    assert_eq!(list(&stage.sandbox).session(one.id())["status"], "working");
}

#[test]
fn where_it_cannot_be_told_if_somebody_starts_it_nobody_else_does() {
    let stage = Stage::new("start-untold");
    let launched = stage.launch("a", &[]);
    stage.power_cut();
    let (folder, lock) = (stage.folder(&launched), stage.folder(&launched).join("start.lock"));
    // As it is while a start goes on: who holds it is not on record yet.
    fs::remove_file(folder.join("shim.json")).expect("a record");
    fs::remove_file(&lock).expect("a lock");
    fs::create_dir(&lock).expect("what cannot be opened as a lock");
    let row = list(&stage.sandbox).session(launched.id()).clone();
    assert_eq!((&row["status"], &row["live"], &row["restorable"]), (&json!("unknown"), &Value::Null, &json!(false)));
    assert!(row["reason"].as_str().is_some_and(|why| why.contains("start.lock")), "{row:#}");
    assert_eq!(stage.ask(&["resume", launched.handle()]).code(), 3);
    stage.ask(&["restore", "--yes"]);
    assert_eq!(stage.runs("--resume"), 0);
    fs::remove_dir(&lock).expect("it is gone");
    assert_eq!(list(&stage.sandbox).session(launched.id())["restorable"], true);
}

#[test]
fn a_plan_says_of_what_has_no_directory_any_more_that_it_cannot_come_back() {
    let stage = Stage::new("no-place");
    let launched = stage.launch("a", &[]);
    stage.crash(&launched);
    fs::remove_dir_all(&launched.cwd).expect("it was there");
    let plan = stage.act(&["restore"]);
    let [step] = plan["restore"].as_array().expect("rows").as_slice() else { panic!("{plan}") };
    let why = step["reason"].as_str().expect("a reason");
    assert!(step["way"].is_null() && why.contains("can go on once there is one again"), "{plan}");
    let told = stage.ask(&["resume", launched.handle()]);
    assert!(told.code() == 2 && told.stdout.contains("can go on once there is one again"), "{told:?}");
    let told = stage.ask(&["restore", "--yes"]);
    assert_eq!((told.code(), &told.json()["restore"][0]["outcome"]), (3, &json!("left")), "{told:?}");
}

#[test]
fn s20_saved_restored_killed_and_restarted_twice_it_stays_dead() {
    let stage = Stage::new("s20");
    let launched = stage.launch("a", &["--keep"]);
    stage.power_cut();
    assert_eq!(ids(&stage.act(&["restore", "--yes", "--kept"])["restore"]), [launched.handle()]);
    stage.act(&["kill", launched.handle()]);
    for _ in 0..2 {
        stage.power_cut();
        assert_eq!(stage.act(&["restore", "--yes"])["restore"], json!([]));
        stage.act(&["gc", "--yes"]);
        list(&stage.sandbox).expect(launched.id(), "stopped", None);
    }
    assert_eq!((stage.runs("--resume"), stage.running().len()), (1, 0));
}

#[test]
fn s29_what_exited_by_itself_is_resumed_under_its_own_id() {
    let stage = Stage::new("s29");
    let launched = stage.launch("a", &["--name", "login"]);
    launched.say("go");
    stage.until(&launched, "done");
    assert_eq!(stage.act(&["restore"])["restore"], json!([]), "it ended by itself");
    fs::remove_file(launched.cwd.join("go")).expect("it was there");
    let told = stage.act(&["resume", "login", "and", "now", "this"]);
    assert_eq!((&told["id"], &told["handle"]), (&launched.told["id"], &launched.told["handle"]));
    assert_eq!((&told["way"], &told["said"]), (&json!("native"), &json!("and now this")));
    list(&stage.sandbox).expect(
        launched.id(),
        "working",
        Some(i32::try_from(told["pid"].as_i64().expect("a pid")).expect("a pid")),
    );
    assert_eq!(stage.runs(&format!("--resume {}", launched.id())), 1);
    // And it can be ended again, for good.
    stage.act(&["kill", launched.handle()]);
    list(&stage.sandbox).expect(launched.id(), "stopped", None);
    stage.power_cut();
    assert_eq!(stage.act(&["restore"])["restore"], json!([]));
}

#[test]
fn a_worktree_waits_for_the_session_that_was_cut_off_in_it() {
    let stage = Stage::new("wtcutoff");
    let repo = stage.sandbox.work();
    let place = repo.to_str().expect("UTF-8");
    let told = stage.act(&["launch", "claude", "--headless", "-p", "hi", "--cwd", place, "--worktree"]);
    let launched = Launched { cwd: told["worktree"].as_str().expect("a worktree").into(), told };
    stage.until(&launched, "working");
    stage.power_cut();
    // It holds no work of its own, so nothing but the session keeps it.
    stage.act(&["gc", "--yes", "--retain", "0s"]);
    stage.act(&["worktree", "clean"]);
    let kept = stage.ask(&["worktree", "clean", launched.handle()]);
    assert_eq!(kept.code(), 3, "{}", kept.stdout);
    assert!(kept.stdout.contains("was cut off in it"), "{}", kept.stdout);
    let told = stage.act(&["restore", "--yes"]);
    assert_eq!(told["restore"][0]["outcome"], "restored", "{told}");
    stage.act(&["kill", launched.handle()]);
    stage.act(&["worktree", "clean", launched.handle()]);
    assert!(!launched.cwd.exists());
}

#[test]
fn s30_a_live_session_is_not_started_a_second_time() {
    let stage = Stage::new("s30");
    let launched = stage.launch("a", &[]);
    for force in [&[][..], &["--force"]] {
        let refused = stage.ask(&[&["resume", launched.handle()], force].concat());
        assert_eq!(refused.code(), 3, "{}", refused.stderr);
    }
    assert_eq!(stage.act(&["restore", "--yes"])["restore"], json!([]));
    // Nor one that something else runs.
    let other = "0000aaaa-0000-4000-8000-000000000001";
    let place = stage.sandbox.project("b");
    let program = stage.sandbox.program("claude").args(["--session-id", other]).cwd(&place);
    let running = stage.sandbox.spawn(&program);
    wait_until("it works", DEADLINE, || {
        list(&stage.sandbox).sessions().iter().any(|s| s["native_id"] == other && s["status"] == "working")
    });
    assert_eq!(stage.ask(&["resume", other, "--headless"]).code(), 3);
    assert_eq!(stage.runs("--resume"), 0);
    // Once it has ended it may go on, by a handle of its own.
    fs::write(place.join("go"), "").expect("a sign");
    wait_until("it has ended", DEADLINE, || list(&stage.sandbox).session(other)["status"] == "done");
    drop(running);
    fs::remove_file(place.join("go")).expect("it was there");
    let told = stage.act(&["resume", other, "--headless"]);
    assert_eq!(told["said"], "Continue where you left off.");
    assert_eq!(stage.act(&["status", told["handle"].as_str().expect("a handle")])["native_id"], other);
}

#[test]
fn a_start_that_comes_to_nothing_leaves_everything_as_it_was() {
    let stage = Stage::new("comes-to-nothing");
    let launched: Vec<Launched> = ["a", "b", "c", "d", "e"].iter().map(|p| stage.launch(p, &[])).collect();
    stage.power_cut();
    launched.iter().for_each(|l| l.say("refuse"));
    let failed = stage.ask(&["restore", "--yes"]);
    assert_eq!(failed.code(), 1, "{}", failed.stderr);
    let told = failed.json();
    let outcomes: Vec<&str> =
        told["restore"].as_array().expect("rows").iter().filter_map(|r| r["outcome"].as_str()).collect();
    // Three that fail the same way have one cause: the rest is left alone.
    assert_eq!(outcomes, ["failed", "failed", "failed", "left", "left"], "{told}");
    assert!(told["restore"][0]["reason"].as_str().is_some_and(|r| r.contains("no login")), "{told}");
    assert!(stage.running().is_empty());
    for l in &launched {
        let row = list(&stage.sandbox).session(l.id()).clone();
        assert_eq!((&row["status"], &row["restorable"]), (&json!("interrupted"), &json!(true)), "{row}");
        fs::remove_file(l.cwd.join("refuse")).expect("it was there");
    }
    let output = stage.ask(&["restore", "--yes", "--max", "4"]);
    assert_eq!(output.code(), 3, "{}", output.stderr);
    let told = output.json();
    let back = told["restore"].as_array().expect("rows").iter().filter(|r| r["outcome"] == "restored").count();
    assert_eq!(back, 4, "{told}");
}

#[test]
fn s38_with_a_cap_of_n_exactly_n_run() {
    let stage = Stage::new("s38");
    let places: Vec<PathBuf> = (0..8).map(|n| stage.sandbox.project(&format!("p{n}"))).collect();
    let launching: Vec<_> = places
        .iter()
        .map(|p| {
            let args = ["launch", "claude", "--headless", "-p", "hi", "--max", "3", "--json", "--cwd"];
            stage.sandbox.spawn(&lariat(&stage.sandbox, &[&args[..], &[p.to_str().expect("UTF-8")]].concat()))
        })
        .collect();
    let outputs: Vec<Output> = launching.iter().map(|l| l.output(DEADLINE)).collect();
    let codes: Vec<i32> = outputs.iter().map(Output::code).collect();
    assert_eq!(codes.iter().filter(|c| **c == 0).count(), 3, "{codes:?}");
    assert_eq!(codes.iter().filter(|c| **c == 3).count(), 5, "{codes:?}");
    // One that waits its turn is let in when one has ended, and not before.
    let waiting = places.iter().zip(&codes).find(|(_, code)| **code == 3).expect("a refused one").0;
    let args = ["launch", "claude", "--headless", "-p", "hi", "--max", "3", "--queue", "--json", "--cwd"];
    let queued =
        stage.sandbox.spawn(&lariat(&stage.sandbox, &[&args[..], &[waiting.to_str().expect("UTF-8")]].concat()));
    let runs = places.iter().zip(&codes).find(|(_, code)| **code == 0).expect("a running one").0;
    fs::write(runs.join("go"), "").expect("a sign");
    assert_eq!(queued.output(DEADLINE).code(), 0);
    let live = list(&stage.sandbox).sessions().iter().filter(|s| s["live"] == true).count();
    assert_eq!(live, 3);
    // A group has a count of its own.
    let place = stage.sandbox.project("other");
    let place = place.to_str().expect("UTF-8");
    stage.act(&["launch", "claude", "--headless", "-p", "hi", "--max", "1", "--group", "web", "--cwd", place]);
}

#[test]
fn commands_hung_on_a_session_run_once_each_with_its_facts() {
    let stage = Stage::new("commands");
    let home = stage.sandbox.home();
    let on_launch = "echo $LARIAT_EVENT $LARIAT_ID $LARIAT_PID >> ~/launched; echo to the log; exit 3";
    let on_exit = "echo $LARIAT_EVENT $LARIAT_HANDLE $LARIAT_STATUS $LARIAT_EXIT_CODE $LARIAT_EXIT_SIGNAL >> ~/ended";
    let place = stage.sandbox.project("a");
    let args = ["launch", "claude", "--headless", "-p", "hi", "--on-launch", on_launch, "--on-exit", on_exit, "--cwd"];
    // Something in the environment that is no text is no reason to start nothing.
    let odd = "export ODD=$(printf 'x\\377') && exec \"$@\"";
    let output = through(&stage.sandbox, odd, &[&args[..], &[place.to_str().expect("UTF-8"), "--json"]].concat());
    assert_eq!(output.code(), 0, "its failure is not the launch's: {}", output.stderr);
    assert!(output.stderr.contains("code 3"), "{}", output.stderr);
    let launched = Launched { told: output.json(), cwd: place };
    assert!(output.stderr.contains(&format!("sessions/{}/on-launch.log", launched.handle())), "{}", output.stderr);
    let text = |name: &str| fs::read_to_string(home.join(name)).unwrap_or_default();
    assert_eq!(text("launched"), format!("launch claude:{} {}\n", launched.id(), launched.told["pid"]));
    let log = fs::read_to_string(stage.folder(&launched).join("on-launch.log")).expect("its output is kept");
    assert_eq!(log, "to the log\n");

    launched.say("fail");
    wait_until("it has run", DEADLINE, || text("ended").ends_with('\n'));
    assert_eq!(text("ended"), format!("exit {} failed 7\n", launched.handle()));
    // Nobody runs it again; whoever is left runs what is owed.
    fs::remove_file(launched.cwd.join("fail")).expect("it was there");
    stage.act(&["resume", launched.handle()]);
    stage.power_cut();
    assert_eq!(text("ended").lines().count(), 1, "nobody was left to run it");
    let other = stage.launch("b", &[]);
    wait_until("what was owed has run", DEADLINE, || text("ended").lines().count() == 2);
    let third = stage.launch("c", &[]);
    assert_eq!(text("ended").lines().count(), 2, "once is enough");
    let journal = ask(&stage.sandbox, &["journal"]).stdout;
    assert!(journal.contains("on-exit") && journal.contains("on-launch"), "{journal}");
    drop((other, third));
}

#[test]
fn names_marks_and_output_are_where_people_look_for_them() {
    let stage = Stage::new("labels");
    let launched = stage.launch("a", &[]);
    stage.act(&["rename", launched.handle(), "the login bug"]);
    stage.act(&["keep", "the login bug"]);
    let row = stage.act(&["status", "the login bug"]);
    assert_eq!((&row["name"], &row["kept"], &row["id"]), (&json!("the login bug"), &json!(true), &launched.told["id"]));
    stage.act(&["keep", launched.handle(), "--off"]);
    assert_eq!(stage.act(&["status", launched.handle()])["kept"], false);
    assert_eq!(stage.ask(&["rename", launched.handle(), " "]).code(), 2);
    let asks = stage.ask(&["approve", launched.handle()]);
    assert!(asks.code() == 3 && !asks.stderr.contains("attach") && asks.stderr.contains("peek"), "{asks:?}");
    let other = stage.launch("b", &[]);
    let taken = stage.ask(&["rename", launched.handle(), other.handle()]);
    assert!(taken.code() == 3 && taken.stderr.contains("already"), "{taken:?}");
    assert_eq!(stage.act(&["status", launched.handle()])["name"], "the login bug");

    fs::write(stage.folder(&launched).join("stdout"), "one\ntwo \u{1b}[31mred\nthree\nhalf").expect("some output");
    let shown = ask(&stage.sandbox, &["logs", launched.handle()]).stdout;
    assert_eq!(shown, "one\ntwo \\x1b[31mred\nthree\nhalf\n", "what would act is shown");
    assert_eq!(ask(&stage.sandbox, &["logs", "-n", "2", launched.handle()]).stdout, "three\nhalf\n");
    let following = stage.sandbox.spawn(&lariat(&stage.sandbox, &["logs", "-f", launched.handle()]));
    launched.say("go");
    let output = following.output(DEADLINE);
    assert_eq!((output.code(), output.stdout.lines().last()), (0, Some("half")), "it ends with the session");
}

#[test]
fn what_comes_back_without_asking_is_a_persons_choice() {
    let stage = Stage::new("policy");
    let (kept, other) = (stage.launch("a", &["--keep"]), stage.launch("b", &[]));
    stage.power_cut();
    let settings = stage.sandbox.home().join(".config/lariat/config.toml");
    fs::create_dir_all(settings.parent().expect("a folder")).expect("a folder");
    for (policy, back) in [("never", vec![]), ("ask", vec![kept.handle()]), ("auto", vec![other.handle()])] {
        fs::write(&settings, format!("restore = {policy:?}\n")).expect("settings");
        let output = ask(&stage.sandbox, &["restore", "--yes", "--auto", "--json"]);
        assert_eq!(output.code(), 0, "{policy}: {}", output.stderr);
        assert_eq!(ids(&output.json()["restore"]), back, "{policy}");
    }
    // Settings that cannot be read bring nothing back, and let nobody in.
    stage.power_cut();
    for broken in ["restore = \"sometimes\"\n", "restore = \"auto\"\nmax = [\n"] {
        fs::write(&settings, broken).expect("settings");
        let refused = ask(&stage.sandbox, &["restore", "--yes", "--auto", "--json"]);
        assert_eq!((refused.code(), &refused.json()["restore"]), (0, &json!([])), "{broken}: {refused:?}");
        assert!(refused.stderr.contains("config.toml: line"), "{broken}: {refused:?}");
        assert!(stage.running().is_empty());
    }
    let refused = stage.ask(&["launch", "claude", "--headless", "-p", "hi"]);
    assert_eq!(refused.code(), 3, "{}", refused.stderr);
    assert!(refused.stderr.contains("line 2"), "{}", refused.stderr);
    fs::write(&settings, "max = 1\n").expect("settings");
    stage.act(&["resume", kept.handle()]);
    assert_eq!(stage.ask(&["resume", other.handle()]).code(), 3, "as many run as may");

    assert_eq!(ask(&stage.sandbox, &["restore", "--install"]).code(), 0);
    let unit = stage.sandbox.home().join(".config/systemd/user/lariat-restore.service");
    let unit = fs::read_to_string(unit).expect("a unit");
    assert!(unit.contains("restore --yes --auto") && unit.contains("KillMode=process"), "{unit}");
}

#[test]
fn what_is_killed_while_a_restore_is_busy_stays_dead() {
    let stage = Stage::new("busy-restore");
    let (first, second) = (stage.launch("a", &[]), stage.launch("b", &[]));
    stage.power_cut();
    let restoring = hold(&stage.sandbox, &["restore", "--yes", "--json"], "resume.claimed");
    // Nobody is in the way of a kill: not of the one that waits its turn.
    let told = stage.act(&["kill", second.handle()]);
    assert_eq!(told["outcome"], "gone");
    let (_, told) = restoring.go_on();
    let outcomes: Vec<&Value> = told["restore"].as_array().expect("rows").iter().map(|r| &r["outcome"]).collect();
    assert_eq!(outcomes, [&json!("restored"), &json!("settled")], "{told}");
    assert_eq!(stage.runs("--resume"), 1);
    assert_eq!(stage.act(&["restore", "--yes"])["restore"], json!([]));
    assert_eq!(list(&stage.sandbox).session(first.id())["status"], "working");
}

#[test]
fn a_kill_while_it_is_brought_back_is_not_undone_by_the_failure_it_causes() {
    let stage = Stage::new("kill-restored");
    let launched = stage.launch("a", &[]);
    stage.power_cut();
    launched.say("mute");
    let program = lariat(&stage.sandbox, &["resume", launched.handle(), "--json"]);
    let resuming = stage.sandbox.spawn(&program);
    wait_until("it is started", DEADLINE, || stage.runs("--resume") == 1);
    wait_until("its shim is on record", DEADLINE, || stage.folder(&launched).join("shim.json").exists());
    assert_eq!(stage.act(&["kill", launched.handle()])["outcome"], "stopped");
    assert_eq!(resuming.output(DEADLINE).code(), 1);
    fs::remove_file(launched.cwd.join("mute")).expect("it was there");
    list(&stage.sandbox).expect(launched.id(), "stopped", None);
    assert_eq!(stage.act(&["restore", "--yes"])["restore"], json!([]));
    assert_eq!(stage.runs("--resume"), 1);
}

#[test]
fn a_kill_that_comes_before_the_agent_is_up_is_not_told_that_it_had_ended() {
    let stage = Stage::new("kill-early");
    let launched = stage.launch("a", &[]);
    stage.power_cut();
    let resuming = hold(&stage.sandbox, &["resume", launched.handle(), "--json"], "launch.stored");
    // It is not cut off any more, and what it recorded before tells nothing of how it is now.
    list(&stage.sandbox).expect(launched.id(), "starting", None);
    assert_eq!(stage.act(&["restore"])["restore"], json!([]));
    let killing = stage.sandbox.spawn(&lariat(&stage.sandbox, &["kill", launched.handle(), "--json"]));
    resuming.go_on();
    let killed = killing.output(DEADLINE);
    assert_eq!((killed.code(), &killed.json()["outcome"]), (0, &json!("stopped")), "{}", killed.stderr);
    wait_until("nothing is left", DEADLINE, || stage.running().is_empty());
    list(&stage.sandbox).expect(launched.id(), "stopped", None);
    assert_eq!(stage.act(&["restore"])["restore"], json!([]));
}

#[test]
fn one_below_another_is_killed_alone_and_spared_alone() {
    let stage = Stage::new("nested");
    let inner = ["0000aaaa-0000-4000-8000-00000000000a", "0000aaaa-0000-4000-8000-00000000000b"];
    let mut outers = Vec::new();
    for (place, inner) in ["a", "b"].iter().zip(inner) {
        let cwd = stage.sandbox.project(place);
        fs::create_dir_all(cwd.join("inner")).expect("a folder");
        fs::write(cwd.join("nest"), inner).expect("an order");
        outers.push(stage.launch(place, &[]));
        wait_until("both work", DEADLINE, || {
            list(&stage.sandbox).find(inner).is_some_and(|s| s["status"] == "working")
        });
    }
    let seen = list(&stage.sandbox);
    let told = stage.act(&["kill", inner[0]]);
    assert_eq!(told["outcome"], "stopped");
    let after = list(&stage.sandbox);
    after.expect(inner[0], "stopped", None);
    assert_eq!(after.session(outers[0].id())["pid"], seen.session(outers[0].id())["pid"], "the outer one lives");
    stage.act(&["kill", outers[1].handle()]);
    let after = list(&stage.sandbox);
    after.expect(outers[1].id(), "stopped", None);
    assert_eq!(after.session(inner[1])["pid"], seen.session(inner[1])["pid"], "the inner one lives");
}
