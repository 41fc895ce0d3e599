//! The moment between an agent's end and its shim's: a look waits for the record of it, and so does a start.

use super::*;

/// A session whose shim waits at a point once its agent has ended.
struct Leaving {
    stage: Stage,
    launched: Launched,
    gate: PathBuf,
    passed: PathBuf,
}

impl Leaving {
    fn new(name: &str, point: &str) -> Leaving {
        let stage = Stage::new(name);
        let streams = stage.sandbox.root().join("streams");
        let (gate, passed) = (streams.join("gate"), streams.join("passed"));
        rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .expect("a FIFO");
        let cwd = stage.sandbox.project("a");
        fs::write(cwd.join("serve"), "").expect("a sign");
        let place = cwd.to_str().expect("UTF-8");
        let on_exit = "echo $LARIAT_STATUS >> $HOME/ended";
        let order = ["launch", "claude", "--headless", "-p", "hi", "--on-exit", on_exit, "--json", "--cwd", place];
        let order = lariat(&stage.sandbox, &order).env("LARIAT_PAUSE_AT", point).env("LARIAT_PAUSE_ON", &gate);
        let told = stage.sandbox.spawn(&order.env("LARIAT_POINTS", &passed)).output(DEADLINE).json();
        let leaving = Leaving { launched: Launched { told, cwd }, stage, gate, passed };
        leaving.stage.until(&leaving.launched, "working");
        // Until its server is one, that is a copy of the agent.
        wait_until("its server runs", DEADLINE, || leaving.servers() == 1);
        let row = list(&leaving.stage.sandbox).session(leaving.launched.id()).clone();
        let all = leaving.stage.sandbox.processes();
        all.iter().find(|p| row["pid"] == i64::from(p.pid)).expect("it lives").signal(Signal::KILL);
        wait_until("its shim stands there", DEADLINE, || has_passed(&leaving.passed, point));
        leaving
    }

    fn let_go(&self) {
        drop(fs::OpenOptions::new().write(true).open(&self.gate).expect("it waits"));
    }

    /// Starts `lariat` and waits until it comes to a point.
    fn until_it_passes(&self, args: &[&str], point: &str) -> Child {
        let points = self.stage.sandbox.root().join("streams/points");
        let child = self.stage.sandbox.spawn(&lariat(&self.stage.sandbox, args).env("LARIAT_POINTS", &points));
        wait_until(point, DEADLINE, || {
            assert!(child.exit().is_none(), "it did not wait: {} {}", child.stdout(), child.stderr());
            has_passed(&points, point)
        });
        child
    }

    fn servers(&self) -> usize {
        self.stage.sandbox.processes().iter().filter(|p| p.comm == "sleep" && p.argv.contains(&"987654".into())).count()
    }
}

#[test]
fn cut_off_is_told_as_soon_as_the_end_is_on_record_and_waits_for_the_old_shim_to_leave() {
    let leaving = Leaving::new("leaving-shim", "shim.exited");
    let (stage, launched) = (&leaving.stage, &leaving.launched);
    let shown = ask(&stage.sandbox, &["ls"]).stdout;
    assert!(shown.contains(launched.handle()) && shown.contains("cut off"), "{shown}");

    // One that stays is not pushed aside, and what the session left running is none of a start's business.
    assert_eq!(leaving.servers(), 1);
    let told = ask(&stage.sandbox, &["restore", "--yes", "--json"]).json();
    assert_eq!(told["restore"][0]["outcome"], "left", "{told}");
    assert_eq!((leaving.servers(), stage.runs("--resume")), (1, 0), "{told}");

    let restore = leaving.until_it_passes(&["restore", "--yes", "--json"], "resume.leaving");
    leaving.let_go();
    let told = restore.output(DEADLINE).json();
    assert_eq!(told["restore"][0]["outcome"], "restored", "{told}");
    stage.until(launched, "working");
    assert_eq!(stage.runs("--resume"), 1);
    // What was hung on the end heard of the end, once.
    let heard = || fs::read_to_string(stage.sandbox.home().join("ended")).unwrap_or_default();
    wait_until("it is told", DEADLINE, || !heard().is_empty());
    assert_eq!(heard(), "interrupted\n");
}

#[test]
fn a_look_waits_for_the_end_that_is_being_written_down() {
    let leaving = Leaving::new("ending-shim", "shim.drained");
    let look = leaving.until_it_passes(&["ls"], "look.settles");
    leaving.let_go();
    let shown = look.output(DEADLINE).stdout;
    assert!(shown.contains(leaving.launched.handle()) && shown.contains("cut off"), "{shown}");
}
