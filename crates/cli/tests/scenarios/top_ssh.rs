//! `lariat top` over ssh: a real sshd on loopback, a real ssh in a real tmux.
//!
//! The "host" and the machine in front of the person are the same sandbox; what ssh carries is the terminal.

use std::fs;
use std::path::Path;

use lariat_testkit::world::Process;
use lariat_testkit::{DEADLINE, Sandbox, Signal, wait_for, wait_until};

use crate::asking::{ask, list};
use crate::moment;
use crate::sshd::{Sshd, can_serve, make_key};
use crate::tmux::{PROMPT, Pane};
use crate::top::Fleet;

/// A host that can be reached by `ssh -F CONFIG host`.
struct Host<'a> {
    sandbox: &'a Sandbox,
    config: String,
    sshd: Sshd,
}

impl<'a> Host<'a> {
    fn start(sandbox: &'a Sandbox) -> Host<'a> {
        let (identity, known) = (make_key(sandbox, "id"), sandbox.root().join("known"));
        let sshd = Sshd::start(sandbox, &identity.with_extension("pub"));
        fs::write(&known, sshd.known()).expect("a known host");
        let config = sandbox.root().join("ssh_config");
        fs::write(&config, sshd.entry("host", &identity, &known) + " BatchMode yes\n").expect("settings");
        Host { sandbox, config: config.to_str().expect("UTF-8").to_owned(), sshd }
    }

    /// Shows the screen of the host.
    fn top(&self, pane: &Pane<'_>) {
        pane.shell(&format!("clear; ssh -F {} -t host lariat top", self.config));
        pane.wait("1 needs you · 1 working · 1 idle");
    }

    /// The processes that run this program, from a world where zombies are nobody.
    fn running(&self, is: impl Fn(&Process) -> bool) -> Vec<Process> {
        self.sandbox.processes().into_iter().filter(|p| p.state != 'Z' && is(p)).collect()
    }

    fn tops(&self) -> Vec<Process> {
        self.running(|p| p.argv.get(1).is_some_and(|a| a == "top") && !p.argv[0].contains("ssh"))
    }

    /// The sshd that holds the one connection there is, as root: the one below the listener.
    fn connection(&self) -> Process {
        let listener = self.sshd.process.pid();
        let mut all = self.running(|p| p.parent == listener);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// Whoever is there besides those who were before: a shell, a screen, a part of sshd.
    fn left(&self, before: &[Process]) -> Vec<Process> {
        self.running(|p| !before.iter().any(|b| b.pid == p.pid))
    }
}

/// The terminal's settings, as `stty` tells them.
fn settings(pane: &Pane<'_>, file: &Path) -> String {
    pane.shell(&format!("stty -a > {}", file.display()));
    wait_for("the settings", DEADLINE, || fs::read_to_string(file).ok().filter(|s| s.contains("tostop")))
}

#[test]
fn over_ssh_it_is_the_same_screen_with_the_same_keys() {
    if !can_serve() {
        return;
    }
    let fleet = Fleet::new("top-ssh");
    let sandbox = &fleet.sandbox;
    let host = Host::start(sandbox);
    let pane = Pane::new(sandbox, 80, 24);
    let before = settings(&pane, &sandbox.root().join("before"));
    host.top(&pane);
    pane.wait("needs you: ");
    pane.is_recorded("list-80x24");
    pane.press(&["G"]);
    pane.wait(">● 00000003");
    pane.wait("slow search (5)");
    pane.is_recorded("idle-80x24");
    let row = pane.screen().lines().position(|l| l.contains("● 00000002")).expect("its row") + 1;
    pane.bytes(format!("\x1b[<0;10;{row}M\x1b[<0;10;{row}m").as_bytes());
    pane.wait(">● 00000002");
    pane.press(&["g"]);
    pane.resize(40, 15);
    pane.is_recorded("list-40x15");
    pane.resize(80, 24);
    pane.is_recorded("list-80x24");
    // A change on the host arrives by itself.
    let (_agent, entry) = fleet.agents.borrow_mut().remove(1);
    let entry = entry.waits_for("permission prompt").with("updatedAt", moment::now().into());
    pane.wait("2 need you · 1 idle");
    pane.text("q");
    pane.wait("Connection to 127.0.0.1 closed.");
    let given_back = |how: &str, pane: &Pane<'_>| {
        for fact in ["alternate_on", "mouse_any_flag"] {
            assert_eq!(pane.fact(fact), "0", "{how}: {fact}");
        }
        assert_eq!(pane.fact("cursor_flag"), "1", "{how}");
        assert_eq!(settings(pane, &sandbox.root().join(how)), before, "{how}");
    };
    given_back("left", &pane);
    // Told to end on the host, it gives the terminal back through the line.
    drop(entry.says("busy"));
    host.top(&pane);
    let [top] = host.tops().try_into().expect("one screen");
    assert!(top.signal(Signal::TERM));
    pane.wait("Connection to 127.0.0.1 closed.");
    given_back("ended", &pane);
}

#[test]
fn when_the_connection_is_cut_nothing_of_it_stays_on_the_host() {
    if !can_serve() {
        return;
    }
    let fleet = Fleet::new("top-ssh-cut");
    let sandbox = &fleet.sandbox;
    let host = Host::start(sandbox);
    let rows = |sandbox: &Sandbox| -> Vec<(String, String)> {
        let text = |row: &serde_json::Value, key: &str| row[key].as_str().expect("text").to_owned();
        list(sandbox).sessions().iter().map(|s| (text(s, "id"), text(s, "status"))).collect()
    };
    let known = rows(sandbox);
    for cut in ["the client", "the host"] {
        let pane = Pane::new(sandbox, 80, 24);
        let file = |name: &str| sandbox.root().join(format!("{name}-{}", cut.replace(' ', "-")));
        let before = settings(&pane, &file("before"));
        let were = host.running(|_| true);
        host.top(&pane);
        // In the middle of something, too.
        pane.text("e");
        pane.wait("decided by");
        assert_eq!(host.tops().len(), 1);
        let end = match cut {
            "the client" => host.running(|p| p.argv.first().is_some_and(|a| a == "ssh")).remove(0),
            _ => host.connection(),
        };
        assert!(end.signal(Signal::KILL), "{cut}");
        wait_until(&format!("nothing is left on the host, {cut} gone"), DEADLINE, || host.left(&were).is_empty());
        pane.until("the shell again", |s| s.contains(PROMPT));
        // Its keys ssh gives back itself, unless it was killed; then a person says `stty sane`.
        match cut {
            "the client" => {
                pane.text("stty sane");
                pane.press(&["C-j"]);
            }
            _ => assert_eq!(settings(&pane, &file("after")), before, "{cut}"),
        }
        // Nobody is left who could tell the terminal to show its first screen again. The next one that leaves does.
        host.top(&pane);
        pane.text("q");
        pane.wait("Connection to 127.0.0.1 closed.");
        for fact in ["alternate_on", "mouse_any_flag"] {
            assert_eq!(pane.fact(fact), "0", "{cut}: {fact}");
        }
        wait_until("nothing is left", DEADLINE, || host.left(&were).is_empty());
        assert_eq!(rows(sandbox), known, "{cut}: no agent has noticed");
    }
    assert_eq!(ask(sandbox, &["ls"]).code(), 0);
}
