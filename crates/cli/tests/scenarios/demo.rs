//! What a newcomer sees first: `lariat demo`, to its end, without a terminal and on one.

use std::path::Path;

use lariat_testkit::{DEADLINE, Exit, Key, Program, Sandbox, wait_until};

use crate::asking::{LARIAT, lariat};

fn demo(sandbox: &Sandbox) -> Program {
    let program = lariat(sandbox, &["demo"]).env("COLUMNS", "100");
    // It makes places of its own, in the sandbox's /tmp.
    program.without_env("XDG_CACHE_HOME").without_env("XDG_RUNTIME_DIR").without_env("XDG_STATE_HOME")
}

fn nothing_is_left(sandbox: &Sandbox) {
    wait_until("all are gone", DEADLINE, || sandbox.processes().iter().all(|p| p.pid == 1 || p.state == 'Z'));
    let places = std::fs::read_dir(sandbox.root().join("tmp")).expect("its /tmp").flatten();
    let left: Vec<_> =
        places.map(|e| e.file_name()).filter(|n| n.to_string_lossy().starts_with("lariat-demo-")).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!Path::new(&sandbox.home()).join(".claude").exists(), "it touches nothing of the user's");
}

/// What a command of the tour printed: the last one that begins so.
#[track_caller]
fn printed<'a>(shown: &'a str, command: &str) -> &'a str {
    let at = shown.rfind(&format!("$ {command}\n")).unwrap_or_else(|| panic!("no {command:?} in\n{shown}"));
    shown[at..].split("\n# ").next().expect("a first part")
}

/// The row of a name.
#[track_caller]
fn row<'a>(listing: &'a str, name: &str) -> &'a str {
    let mut rows = listing.lines().filter(|l| l.starts_with(" ●") || l.starts_with(" ○"));
    rows.find(|l| l.contains(&format!(" {name} "))).unwrap_or_else(|| panic!("no row of {name} in\n{listing}"))
}

#[test]
fn the_tour_shows_what_it_says() {
    let sandbox = Sandbox::new("tour");
    let output = sandbox.world().run(&demo(&sandbox));
    assert!(output.exit.success(), "{:?}\n{}\n{}", output.exit, output.stdout, output.stderr);
    assert_eq!(output.stderr, "", "{}", output.stdout);
    let shown = &output.stdout;

    let first = printed(shown, "lariat");
    assert!(first.contains("2 need you · 1 working · 1 idle · 1 cut off"), "{first}");
    assert!(first.contains("2 ended not shown"), "{first}");
    for (name, mark, says) in [
        ("release", '●', "permission: Bash git tag v1.4.0"),
        ("orders-v2", '●', "question: Keep /v1/orders"),
        ("parser", '●', "running Bash ./suite"),
        ("triage", '●', "idle"),
        ("migration", '○', "interrupted: cut off"),
    ] {
        let row = row(first, name);
        assert!(row.contains(mark) && row.contains(says), "{row}");
    }
    // The same on the screen, as it looked on a terminal: framed, with the chosen one and what it said.
    let top = printed(shown, "lariat top");
    let framed: Vec<&str> = top.lines().filter_map(|l| l.strip_prefix('│')?.strip_suffix('│')).collect();
    assert!(framed.iter().all(|row| row.chars().count() == 100), "{top}");
    assert!(framed[0].starts_with("lariat  2 need you · 1 working · 1 idle · 1 cut off"), "{top}");
    for told in [">● ", "orders-v2", "running Bash ./suite", "interrupted: cut off", "needs you: "] {
        assert!(framed.iter().any(|row| row.contains(told)), "{told:?} in\n{top}");
    }
    assert!(!top.contains('\x1b'), "no colours but on a terminal: {top}");
    assert!(printed(shown, "lariat web").contains("http://127.0.0.1:"), "{shown}");
    assert!(printed(shown, "lariat explain release").contains("hook"), "{shown}");
    assert!(printed(shown, "lariat peek release").contains("I'd like to tag it."));
    assert!(printed(shown, "lariat approve release").contains("approved: permission: Bash git tag v1.4.0"));
    assert!(printed(shown, "lariat wait release; git -C ~/work/webshop tag").lines().any(|l| l == "v1.4.0"));
    assert!(printed(shown, "lariat send triage 'Which one is the oldest?' --wait").contains("The slow search"));
    assert!(printed(shown, "lariat kill parser").contains("stopped"));
    let left = printed(shown, "grep -ls '[s]uite' /proc/[0-9]*/cmdline");
    assert_eq!(left.trim().lines().count(), 1, "nothing but the command: {left}");

    // The plan has what was cut off, and not what a person ended.
    let (plan, not) = printed(shown, "lariat restore").split_once("not these:").expect("a plan");
    assert!(plan.contains("/work/billing") && !plan.contains("/work/parser"), "{plan}");
    assert!(not.contains("a person ended it"), "{not}");
    assert!(printed(shown, "lariat restore --yes").contains("is back"));
    let last = printed(shown, "lariat ls -a");
    for (name, mark, says) in [
        ("migration", '●', "idle"),
        ("parser", '○', "stopped"),
        ("uploads", '○', "failed: API Error"),
        ("notes", '○', "done"),
        ("orders-v2", '●', "question: Keep"),
    ] {
        let row = row(last, name);
        assert!(row.contains(mark) && row.contains(says), "{row}");
    }
    assert!(printed(shown, "lariat logs migration").contains("migrate: step"));
    nothing_is_left(&sandbox);
}

#[test]
fn where_it_is_not_installed_it_says_what_to_do() {
    let sandbox = Sandbox::new("no-demo");
    let alone = sandbox.install_copy("alone/lariat", Path::new(LARIAT));
    let output = sandbox.world().run(&sandbox.program(alone).arg("demo"));
    assert_eq!((output.code(), output.stderr.contains("make install")), (1, true), "{output:?}");
}

#[test]
fn a_newcomer_attaches_answers_kills_and_leaves() {
    let sandbox = Sandbox::new("newcomer");
    let shell = sandbox.terminal(&demo(&sandbox));
    let prompt = "lariat demo ~ $";
    shell.wait_for_text(prompt, DEADLINE);
    let types = |line: &str| {
        shell.type_text(&format!("clear; {line}"));
        shell.press(Key::Enter);
    };
    types("lariat top");
    shell.wait_for_text("3 idle", DEADLINE);
    shell.type_text("/triage");
    shell.wait_for_screen("only that one", DEADLINE, |s| s.contains("triage") && !s.contains("orders-v2"));
    shell.press(Key::Esc);
    shell.wait_for_text("orders-v2", DEADLINE);
    shell.type_text("q");
    shell.wait_for_text(prompt, DEADLINE);
    types("lariat web");
    let screen =
        shell.wait_for_screen("an address", DEADLINE, |s| s.contains("/#once=") && s.trim_end().ends_with(prompt));
    let port = screen.split("http://127.0.0.1:").nth(1).and_then(|rest| rest.split('/').next()).expect("a port");
    let page = sandbox.run(["curl", "-sS", "--compressed", &format!("http://127.0.0.1:{port}/")]).expect_success();
    assert!(
        page.stdout.contains("<title>lariat</title>"),
        "a browser outside the demo's world gets the page: {}",
        page.stdout
    );
    let before = shell.raw().len();
    types("lariat attach triage");
    shell.wait_for_text("The slow search", DEADLINE);
    // It is said before the session's own screen is shown, which may begin by clearing it.
    assert!(String::from_utf8_lossy(&shell.raw()[before..]).contains("Ctrl-Q leaves"), "{}", shell.text());
    shell.submit("think 0", DEADLINE);
    shell.wait_for_text("for 0 seconds", DEADLINE);
    shell.press(Key::Ctrl('q'));
    shell.wait_for_text("detached; the session goes on", DEADLINE);

    types("lariat answer orders-v2 'Keep it' && lariat wait orders-v2 && lariat peek orders-v2");
    shell.wait_for_text("“Keep it” it is.", DEADLINE);
    types("lariat kill migration && lariat restore --yes; lariat ls -a");
    let screen =
        shell.wait_for_screen("the listing", DEADLINE, |s| s.contains("ENDED") && s.trim_end().ends_with(prompt));
    assert!(screen.contains("nothing was cut off"), "{screen}");
    assert!(row(&screen, "migration").contains("stopped"), "{screen}");
    types("exit");
    assert_eq!(shell.wait(DEADLINE), Exit::Code(0));
    nothing_is_left(&sandbox);
}
