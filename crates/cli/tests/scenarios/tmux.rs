//! A real tmux with one pane, for what is drawn on a terminal.
//!
//! The screen is what tmux has after it has followed every sequence: what a person would see. The
//! pane runs a shell, so that what a program leaves behind can be seen, too.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use lariat_testkit::{DEADLINE, Picture, Sandbox, Size, wait_for, workspace};

use crate::asking::LARIAT;

/// A pane of so many columns and rows.
pub struct Pane<'a> {
    sandbox: &'a Sandbox,
    /// Of the server: each pane has its own.
    name: String,
}

impl Drop for Pane<'_> {
    fn drop(&mut self) {
        drop(self.sandbox.run(["tmux", "-L", &self.name, "kill-server"]));
    }
}

/// What the shell asks with.
pub const PROMPT: &str = "ready$";

impl<'a> Pane<'a> {
    /// A shell at its prompt, in which `lariat` is the program under test.
    pub fn new(sandbox: &'a Sandbox, columns: u16, rows: u16) -> Pane<'a> {
        let conf = sandbox.root().join("tmux.conf");
        fs::write(&conf, "set -g status off\nset -g escape-time 0\nset -g default-terminal tmux-256color\n")
            .expect("a file");
        sandbox.install("lariat", LARIAT.as_ref());
        let size = [columns.to_string(), rows.to_string()];
        let shell = format!("env PS1='{PROMPT} ' sh -i");
        let conf = conf.to_str().expect("UTF-8");
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let start = ["tmux", "-L", &name, "-f", conf, "new-session", "-d", "-x", &size[0], "-y", &size[1], &shell];
        sandbox.run(start).expect_success();
        let pane = Pane { sandbox, name };
        pane.wait(PROMPT);
        pane
    }

    /// Has tmux do something; what it says.
    pub fn tmux(&self, args: &[&str]) -> String {
        let line = [&["tmux", "-L", &self.name], args].concat();
        self.sandbox.run(line).expect_success().stdout
    }

    /// The screen, without what stands blank at the ends of lines and at its own.
    pub fn screen(&self) -> String {
        let rows = self.tmux(&["capture-pane", "-p"]);
        let rows: Vec<&str> = rows.lines().map(str::trim_end).collect();
        rows.join("\n").trim_end().to_owned()
    }

    /// How the screen looks, with its colours.
    pub fn picture(&self) -> Picture {
        let number = |name| self.fact(name).parse().expect("a number");
        let size = Size { rows: number("pane_height"), cols: number("pane_width") };
        Picture::of_rows(&self.tmux(&["capture-pane", "-p", "-e"]), size)
    }

    /// A fact that tmux knows of the pane, like `alternate_on`.
    pub fn fact(&self, name: &str) -> String {
        self.tmux(&["display-message", "-p", &format!("#{{{name}}}")]).trim().to_owned()
    }

    /// Presses keys by tmux's names for them, all at once.
    pub fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Types text as it is.
    pub fn text(&self, text: &str) {
        self.tmux(&["send-keys", "-l", "--", text]);
    }

    /// Sends bytes as a terminal would: a click, say.
    pub fn bytes(&self, bytes: &[u8]) {
        let hex: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
        let hex: Vec<&str> = hex.iter().map(String::as_str).collect();
        self.tmux(&[&["send-keys", "-H"], hex.as_slice()].concat());
    }

    /// Types a line at the shell's prompt.
    pub fn shell(&self, line: &str) {
        self.text(line);
        self.press(&["Enter"]);
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        self.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }

    /// Waits until the screen is as wanted; the screen.
    #[track_caller]
    pub fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let last = std::cell::RefCell::new(String::new());
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for(what, DEADLINE, || {
                let screen = self.screen();
                last.replace(screen.clone());
                wanted(&screen).then_some(screen)
            })
        }));
        seen.unwrap_or_else(|_| panic!("{what} was not shown:\n{}", last.borrow()))
    }

    /// Waits until this text is on the screen, folded between words or not; the screen.
    #[track_caller]
    pub fn wait(&self, text: &str) -> String {
        let shown = |screen: &str| screen.contains(text) || screen.replace('\n', " ").contains(text);
        self.until(&format!("{text:?}"), shown)
    }

    /// Waits until this text is gone; the screen.
    #[track_caller]
    pub fn wait_gone(&self, text: &str) -> String {
        self.until(&format!("no {text:?}"), |screen| !screen.contains(text))
    }

    /// Waits until the screen is the recorded one, ages aside. `LARIAT_SCREENS=write` records it.
    #[track_caller]
    pub fn is_recorded(&self, name: &str) {
        let path = workspace().join("crates/cli/tests/scenarios/screens").join(format!("{name}.txt"));
        if std::env::var_os("LARIAT_SCREENS").is_some() {
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(&path, format!("{}\n", timeless(&self.screen()))).expect("a recorded screen");
        }
        let recorded = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self.until(&format!("the screen {name}, which is\n{recorded}\n"), |s| timeless(s) == recorded.trim_end());
    }
}

/// A screen with every age as `#`: `5m`, `<1m`. Their columns stay.
fn timeless(screen: &str) -> String {
    let word = |word: &str| {
        let digits = word.trim_end_matches(['s', 'm', 'h', 'd']);
        let age =
            word == "<1m" || digits.len() + 1 == word.len() && !digits.is_empty() && digits.parse::<u32>().is_ok();
        if age { "#".repeat(word.len()) } else { word.to_owned() }
    };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    screen.lines().map(line).collect::<Vec<_>>().join("\n")
}
