//! What `lariat top` shows: the rows of `ls`, a preview, help, filters, reasons; on terminals of three
//! sizes, as a real tmux has them.

use lariat_testkit::{DEADLINE, Key, Lookalike, Sandbox, Size, Terminal, wait_until};
use serde_json::json;

use crate::asking::{ask, id};
use crate::claude_store::{ClaudeStore, Entry, Transcript};
use crate::moment;
use crate::page::{PICTURES, a_day};
use crate::tmux::{PROMPT, Pane};

/// Agents of every kind, none of them launched, so that each screen is the same every time.
pub struct Fleet {
    pub sandbox: Sandbox,
    pub agents: std::cell::RefCell<Vec<(Lookalike, Entry)>>,
}

impl Fleet {
    pub fn new(name: &str) -> Fleet {
        let sandbox = Sandbox::new(name);
        let store = ClaudeStore::of(&sandbox);
        let minutes = |n: i64| moment::now() - n * 60_000 - 5_000;
        let talk = |n: u64, project: &str, ago: i64| -> Transcript {
            let place = sandbox.project(project);
            store.session_in(&id(n), &place).on_branch("main").by_model("claude-opus-4-1-20250805").at(minutes(ago))
        };
        let mut agents = Vec::new();
        let mut live = |n: u64, project: &str| {
            let program =
                Lookalike::program(&sandbox, "claude").args(["--session-id", &id(n)]).cwd(sandbox.project(project));
            let agent = Lookalike::start(&sandbox, &program);
            let entry = store.register(&agent, &id(n)).with("cwd", json!(sandbox.project(project)));
            agents.push((agent, entry));
        };
        talk(1, "webshop", 3).asked("Prepare release 1.4").calls("Bash", json!({"command": "git tag v1.4.0"}));
        live(1, "webshop");
        talk(2, "parser", 7)
            .asked("Let the parser accept trailing commas")
            .calls("Bash", json!({"command": "./suite"}));
        live(2, "parser");
        talk(3, "inbox", 70)
            .asked("Summarise the open issues by theme")
            .answered("Four themes:\n\n- import errors (9)\n- slow search (5)");
        live(3, "inbox");
        talk(4, "notes", 3000).asked("Draft the release notes").answered("Drafted in NOTES.md.").left();
        talk(5, "uploads", 4000).asked("Retry uploads").failed("API Error: 529 Overloaded").left();
        let words = ["waiting", "busy", "idle"];
        let says = |((agent, entry), (word, ago)): ((Lookalike, Entry), (&str, i64))| {
            let entry = if word == "waiting" { entry.waits_for("permission prompt") } else { entry.says(word) };
            let since = json!(minutes(ago));
            (agent, entry.with("statusUpdatedAt", since.clone()).with("updatedAt", since))
        };
        let agents: Vec<_> = agents.into_iter().zip(words.into_iter().zip([3, 7, 70])).map(says).collect();
        Fleet { sandbox, agents: agents.into() }
    }

    /// The screen, with the whole list on it.
    fn top(&self, columns: u16, rows: u16) -> Pane<'_> {
        let pane = Pane::new(&self.sandbox, columns, rows);
        pane.shell("lariat top");
        pane.wait("1 needs you · 1 working · 1 idle");
        pane
    }
}

const SIZES: [(u16, u16); 3] = [(80, 24), (200, 50), (40, 15)];

#[test]
fn each_view_is_as_recorded_on_terminals_of_three_sizes() {
    let fleet = Fleet::new("top-views");
    for (columns, rows) in SIZES {
        let pane = fleet.top(columns, rows);
        let name = |view: &str| format!("{view}-{columns}x{rows}");
        if columns > 40 {
            pane.wait("needs you: ");
        }
        pane.is_recorded(&name("list"));
        pane.press(&["G"]);
        pane.wait(">● 00000003");
        if columns > 40 {
            pane.wait("slow search (5)");
        }
        pane.is_recorded(&name("idle"));
        pane.press(&["e"]);
        let screen = pane.wait("decided by");
        let told = ["explain 00000003", "idle: turn over", "registry", "status idle", "turn over, answered"];
        // What does not fit is a key away.
        pane.press(&["G"]);
        let screen = format!("{screen} {}", pane.screen()).replace('\n', " ");
        for told in told {
            assert!(screen.contains(told), "{told:?} at {columns}x{rows}: {screen}");
        }
        pane.press(&["Escape"]);
        pane.wait(">● 00000003");
        pane.press(&["?"]);
        pane.wait("search>");
        pane.is_recorded(&name("help"));
        pane.text("kill");
        pane.until("only what fits", |s| s.contains("kill it at once") && !s.contains("wheel"));
        pane.press(&["Escape"]);
        pane.text("/s:waiting");
        pane.until("only what waits", |s| s.contains("00000001") && !s.contains("00000002"));
        pane.is_recorded(&name("filter"));
        pane.press(&["Escape"]);
        pane.wait("00000002");
        pane.text("a");
        pane.wait("ENDED");
        pane.press(&["G"]);
        pane.wait(">○ 0000000");
        pane.is_recorded(&name("ended"));
        pane.text("q");
        pane.wait(PROMPT);
    }
}

#[test]
fn the_rows_are_those_of_ls() {
    let fleet = Fleet::new("top-rows");
    let pane = fleet.top(100, 40);
    let listed = ask_columns(&fleet.sandbox, 100);
    let rows = |text: &str| -> Vec<String> {
        let is_row = |l: &&str| l.trim_start_matches(['>', ' ']).starts_with(['●', '○']);
        let plain = |l: &str| {
            l.replacen('>', " ", 1).split_whitespace().filter(|w| !w.ends_with('m')).collect::<Vec<_>>().join(" ")
        };
        text.lines().filter(is_row).map(plain).collect()
    };
    let screen = pane.screen();
    assert_eq!(rows(&screen), rows(&listed), "{screen}\n{listed}");
    assert!(screen.contains("a 2 ended"), "{screen}");
    // And no others, with a daemon there.
    assert_eq!(ask(&fleet.sandbox, &["daemon", "start"]).code(), 0);
    let beside = fleet.top(100, 40);
    assert_eq!(rows(&beside.screen()), rows(&listed));
    assert_eq!(ask(&fleet.sandbox, &["daemon", "stop"]).code(), 0);
    pane.press(&["j"]);
    pane.wait(">● 00000002");
}

fn ask_columns(sandbox: &Sandbox, columns: u16) -> String {
    let program = crate::asking::lariat(sandbox, &["ls"]).env("COLUMNS", columns.to_string());
    sandbox.world().run(&program).stdout
}

#[test]
fn a_change_arrives_by_itself_and_the_chosen_one_stays_chosen() {
    let fleet = Fleet::new("top-change");
    let pane = fleet.top(80, 24);
    pane.press(&["j"]);
    pane.wait(">● 00000002");
    // What is about to be answered is answered only if it is still what is asked.
    pane.text("gy");
    pane.wait("? approve, for");
    let (asking, entry) = fleet.agents.borrow_mut().remove(0);
    let entry = entry.says("busy");
    let screen = pane.wait("what it asked has changed meanwhile");
    assert!(!screen.contains("? approve"), "{screen}");
    let entry = entry.waits_for("permission prompt");
    pane.wait("1 needs you · 1 working · 1 idle");
    fleet.agents.borrow_mut().insert(0, (asking, entry));
    pane.text("j");
    pane.wait(">● 00000002");
    let (agent, entry) = fleet.agents.borrow_mut().remove(1);
    let _entry = entry.waits_for("permission prompt");
    let screen = Pane::until(&pane, "two that need somebody", |s| s.contains("2 need you · 1 idle"));
    assert!(screen.contains(">● 00000002"), "{screen}");
    // A live preview: what is said comes as it is said.
    let store = ClaudeStore::of(&fleet.sandbox);
    let _more = store.session_in(&id(2), &fleet.sandbox.project("parser")).result("ok").answered("All 412 tests pass.");
    pane.wait("All 412 tests pass.");
    // And an end.
    agent.signal(lariat_testkit::Signal::KILL);
    agent.wait(DEADLINE);
    pane.wait("1 needs you · 1 idle");
}

#[test]
fn a_key_is_for_the_row_that_was_seen_when_it_was_pressed() {
    let fleet = Fleet::new("top-moved");
    let sandbox = &fleet.sandbox;
    let [gate, passed] = ["gate", "passed"].map(|name| sandbox.root().join(name));
    sandbox.run(["mkfifo", gate.to_str().expect("UTF-8")]).expect_success();
    let program = crate::asking::lariat(sandbox, &["top"]).env("LARIAT_POINTS", &passed);
    let program = program.env("LARIAT_PAUSE_AT", "top.moved").env("LARIAT_PAUSE_ON", &gate);
    let screen = Terminal::start(sandbox.world(), &program, Size { rows: 24, cols: 80 });
    screen.wait_for_text(">● 00000001", DEADLINE);
    // It ends, the next one takes its place, and the screen knows but has not drawn it when the key is pressed.
    let (agent, _entry) = fleet.agents.borrow_mut().remove(0);
    agent.signal(lariat_testkit::Signal::KILL);
    agent.wait(DEADLINE);
    let times = |point: &str| std::fs::read_to_string(&passed).map_or(0, |s| s.lines().filter(|l| *l == point).count());
    wait_until("another one is chosen", DEADLINE, || times("top.moved") > 0);
    let settled = times("top.settled");
    assert!(screen.text().contains(">● 00000001"), "{}", screen.text());
    screen.type_text("x");
    drop(std::fs::OpenOptions::new().write(true).open(&gate).expect("the gate"));
    let seen = screen.wait_for_text("the list has changed; look again", DEADLINE);
    assert!(seen.contains(">● 00000002") && !seen.contains("? stop"), "{seen}");
    // Whoever has seen that, all of it, means this one.
    wait_until("it is drawn", DEADLINE, || times("top.settled") > settled);
    screen.type_text("x");
    let seen = screen.wait_for_text("? stop", DEADLINE);
    assert!(seen.contains("lariat stop claude:00000002"), "{seen}");
    screen.press(Key::Esc);
    screen.wait_for_text("nothing was done", DEADLINE);
    screen.type_text("q");
    screen.wait(DEADLINE);
}

#[test]
fn filters_keys_and_reasons() {
    let fleet = Fleet::new("top-keys");
    let pane = fleet.top(80, 24);
    pane.text("/trailing");
    pane.until("the one with that word", |s| s.contains(">● 00000002") && !s.contains("00000003"));
    pane.press(&["Enter", "e"]);
    let screen = pane.wait("decided by");
    assert!(screen.contains("explain 00000002") && screen.contains("registry"), "{screen}");
    pane.press(&["Escape"]);
    pane.press(&["Escape"]);
    pane.wait("00000003");
    pane.press(&["G"]);
    pane.wait(">● 00000003");
    pane.text(".");
    pane.wait(">● 00000001");
    pane.press(&["Tab"]);
    pane.wait(">● 00000003");
    pane.text("c");
    pane.wait(&format!("lariat peek claude:{}", id(3)));
    // What lariat did not launch has a terminal of its own: the same words as `attach` has.
    pane.press(&["Enter"]);
    pane.wait("lariat did not launch it; it has a terminal of its own");
    pane.text("y");
    pane.wait("asks nothing: it is idle");
    pane.text("ky");
    pane.until("what is asked", |s| s.contains("asks nothing: it is working"));
    pane.text("gy");
    pane.until("the request", |s| s.contains("? approve, for") && s.contains("Bash git tag v1.4.0"));
    pane.press(&["Escape"]);
    pane.wait("nothing was done");
    pane.text("l");
    pane.wait("work/webshop");
    pane.press(&["Escape"]);
    std::fs::write(fleet.sandbox.project("webshop").join("README.md"), "# changed by hand\n").expect("a change");
    pane.text("d");
    pane.wait("+# changed by hand");
    pane.press(&["Escape"]);
    pane.text("w");
    pane.wait("No worktrees.");
    pane.press(&["Escape"]);
    // A click chooses; the wheel goes on from there.
    let screen = pane.wait("00000003");
    let row = screen.lines().position(|l| l.contains("● 00000002")).expect("its row");
    pane.bytes(format!("\x1b[<0;10;{}M\x1b[<0;10;{}m", row + 1, row + 1).as_bytes());
    pane.wait(">● 00000002");
    pane.bytes(b"\x1b[<65;10;4M");
    pane.wait(">● 00000003");
    pane.resize(40, 15);
    pane.until("a narrow list", |s| s.contains(">● 00000003") && !s.contains("what it said"));
    pane.resize(200, 50);
    pane.until("the preview beside it", |s| s.lines().any(|l| l.contains("│") && l.contains("what it said")));
}

#[test]
fn without_a_terminal_it_says_what_to_do_instead() {
    let sandbox = Sandbox::new("top-pipe");
    let refused = ask(&sandbox, &["top"]);
    assert_eq!(refused.code(), 2);
    assert!(refused.stderr.contains("`lariat ls`"), "{}", refused.stderr);
    assert_eq!(refused.stdout, "");
    assert_eq!(ask(&sandbox, &["top", "--json"]).code(), 2);
    assert!(ask(&sandbox, &["top", "--help"]).stdout.contains("Enter attaches"));
}

#[test]
fn no_colour_is_used_where_none_is_wanted() {
    let fleet = Fleet::new("top-colour");
    let count = |coloured: bool| {
        let pane = Pane::new(&fleet.sandbox, 80, 24);
        pane.shell(if coloured { "lariat top" } else { "NO_COLOR=1 lariat top" });
        pane.wait("needs you: ");
        let screen = pane.tmux(&["capture-pane", "-p", "-e"]);
        let colours: Vec<&str> =
            screen.split('\x1b').filter(|s| s.starts_with("[3") && !s.starts_with("[39")).collect();
        assert!(screen.contains(";7m"), "what is chosen stands out: {screen:?}");
        colours.len()
    };
    assert!(count(true) > 0);
    assert_eq!(count(false), 0);
}

#[test]
fn what_leads_out_is_told_however_narrow_it_is() {
    let sandbox = Sandbox::new("top-narrow");
    let store = ClaudeStore::of(&sandbox);
    for n in 1..=12 {
        drop(store.session(&id(n)).asked("fix it").answered("fixed").left());
    }
    let agents: Vec<_> = (21..=23).map(|n| sandbox.lookalike("claude", &["--session-id", &id(n)])).collect();
    for ((n, agent), word) in (21..).zip(&agents).zip(["idle", "busy", "waiting"]) {
        let entry = store.register(agent, &id(n));
        drop(if word == "waiting" { entry.waits_for("permission prompt") } else { entry.says(word) });
    }
    let pane = Pane::new(&sandbox, 80, 24);
    pane.shell("lariat top");
    pane.wait("1 needs you · 1 working · 1 idle");
    let footer = |screen: &str| screen.lines().last().unwrap_or_default().to_owned();
    for (columns, told) in
        [(80, "a 12 ended"), (60, "a 12 ended"), (40, "⏎ attach"), (30, "? help  q quit"), (14, "? help")]
    {
        pane.resize(columns, 24);
        let screen = pane.until(&format!("its keys at {columns}"), |s| {
            let last = footer(s);
            last.ends_with("? help  q quit") && last.contains(told) && s.lines().count() == 24
        });
        assert!(!footer(&screen).contains('…'), "{screen}");
    }
    pane.resize(30, 24);
    pane.until("a header that is cut", |s| {
        s.starts_with("lariat  1 needs you") && s.lines().next().is_some_and(|l| l.ends_with('…'))
    });
}

#[test]
fn a_picture_for_the_documents() {
    let sandbox = a_day("top-picture");
    let pane = Pane::new(&sandbox, 100, 26);
    pane.shell("lariat top");
    pane.wait("2 need you · 1 working · 1 idle · 1 cut off");
    pane.press(&["j"]);
    pane.until("the request of the chosen one", |s| s.contains("needs you: permission: Bash git tag v1.4.0"));
    let picture = pane.picture();
    assert_eq!(picture.rows(false).join("\n").lines().map(str::trim_end).collect::<Vec<_>>().join("\n"), pane.screen());
    // Drawn as it stands there: who needs somebody is yellow and bold, and the chosen row is turned over.
    let svg = picture.svg();
    let urgent = "fill=\"#e5c07b\" font-weight=\"bold\"";
    assert!(svg.contains(urgent) && svg.contains(">NEEDS YOU</text>") && svg.contains("fill=\"#d8dce3\"/>"), "{svg}");
    let folder = std::env::var_os(PICTURES).map_or_else(|| sandbox.root().to_owned(), Into::into);
    std::fs::write(folder.join("top.svg"), svg).expect("the picture");
}

#[test]
fn hostile_text_stays_in_its_cells() {
    let sandbox = Sandbox::new("top-hostile");
    let store = ClaudeStore::of(&sandbox);
    let agent = sandbox.lookalike("claude", &["--session-id", &id(1)]);
    let _entry = store.register(&agent, &id(1)).says("idle");
    let bad = "\x1b[2J\x1b[H\x1b]0;owned\x07\x1b[?1049l\u{202e}evil\u{9b}31m";
    let _talk = store.session(&id(1)).asked(bad).answered(&format!("first {bad}\nlast line"));
    let pane = Pane::new(&sandbox, 80, 24);
    pane.shell("lariat top");
    let screen = pane.wait("last line");
    assert!(screen.contains("1 idle") && screen.contains(r"\x1b[2J"), "{screen}");
    assert_eq!((pane.fact("alternate_on").as_str(), pane.fact("pane_title") == "owned"), ("1", false));
    wait_until("it is still there", DEADLINE, || pane.screen().contains("\\u{202e}evil"));
}
