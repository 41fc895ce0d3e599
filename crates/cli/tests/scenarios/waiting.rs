//! `lariat wait`: woken by what changes, never early, never for ever.

use std::time::Duration;

use lariat_testkit::{Child, DEADLINE, Program, Sandbox, Signal, wait_until};
use serde_json::json;

use crate::{
    asking::{LARIAT, ask, id, lariat, list},
    claude_store::ClaudeStore,
};

/// Whether it waits to be woken: it has looked then.
fn sleeps(waiting: &Child) -> bool {
    let place = waiting.outside_pid().map(|pid| format!("/proc/{pid}/wchan"));
    place.is_some_and(|place| std::fs::read_to_string(place).unwrap_or_default().contains("poll"))
}

fn until_it_sleeps(waiting: &Child) {
    wait_until("it sleeps in poll", DEADLINE, || sleeps(waiting));
}

#[test]
fn it_returns_when_the_turn_is_over_and_not_before() {
    let sandbox = Sandbox::new("wait");
    let claude = ClaudeStore::of(&sandbox);
    let one = id(1);
    let agent = sandbox.lookalike("claude", &[]);
    let entry = claude.register(&agent, &one).says("busy");
    let talk = claude.session(&one).asked("fix it").calls("Bash", json!({"command": "make"}));
    let waiting = sandbox.spawn(&lariat(&sandbox, &["wait", &one, "--json"]));
    until_it_sleeps(&waiting);
    list(&sandbox).expect(&one, "working", Some(agent.pid()));
    assert!(waiting.exit().is_none());
    drop(talk.result("made").answered("done"));
    drop(entry.says("idle"));
    let told = waiting.output(DEADLINE);
    assert_eq!(told.code(), 0);
    assert_eq!(told.json()["status"], "idle");
}

#[test]
fn an_end_ends_the_wait_and_says_how_it_ended() {
    let sandbox = Sandbox::new("wait-end");
    let claude = ClaudeStore::of(&sandbox);
    let one = id(1);
    let agent = sandbox.lookalike("claude", &[]);
    drop(claude.register(&agent, &one).says("busy"));
    drop(claude.session(&one).asked("fix it"));
    let waiting = sandbox.spawn(&lariat(&sandbox, &["wait", &one, "--until", "done", "--json"]));
    agent.signal(Signal::KILL);
    agent.wait(DEADLINE);
    let told = waiting.output(DEADLINE);
    assert_eq!((told.code(), &told.json()["status"]), (1, &json!("interrupted")));
}

#[test]
fn whoever_left_no_record_is_told_of() {
    let sandbox = Sandbox::new("wait-gone");
    let claude = ClaudeStore::of(&sandbox);
    let agent = sandbox.lookalike("claude", &[]);
    let entry = claude.register(&agent, &id(1)).says("idle");
    let waiting = sandbox.spawn(&lariat(&sandbox, &["wait", &id(1), "--until", "done", "--json"]));
    until_it_sleeps(&waiting);
    entry.remove();
    agent.signal(Signal::KILL);
    agent.wait(DEADLINE);
    let told = waiting.output(DEADLINE);
    let gone = told.json();
    assert_eq!((told.code(), &gone["schema"], &gone["live"]), (0, &json!(1), &json!(false)), "{told:?}");
    assert_eq!((&gone["id"], &gone["status"]), (&json!(format!("claude:{}", id(1))), &json!(null)), "{told:?}");
    assert!(told.stderr.contains(gone["reason"].as_str().expect("a reason")), "{told:?}");
}

#[test]
fn any_takes_the_first_and_a_timeout_is_exit_code_4() {
    let sandbox = Sandbox::new("wait-any");
    let claude = ClaudeStore::of(&sandbox);
    let (one, two) = (id(1), id(2));
    let agents = [sandbox.lookalike("claude", &[]), sandbox.lookalike("claude", &[])];
    drop(claude.register(&agents[0], &one).says("busy"));
    drop(claude.register(&agents[1], &two).says("idle"));
    assert_eq!(ask(&sandbox, &["wait", &one, &two, "--any"]).code(), 0);
    let late = ask(&sandbox, &["wait", &one, &two, "--timeout", "10ms"]);
    assert_eq!((late.code(), late.stdout.as_str()), (4, ""), "{late:?}");
    assert!(late.stderr.contains(&one) && late.stderr.contains("working"), "what it waited for: {late:?}");
    assert!(!late.stderr.contains(&two), "the other is there: {late:?}");
    let late = ask(&sandbox, &["wait", &one, &two, "--timeout", "10ms", "--json"]);
    let told = late.json();
    assert_eq!((late.code(), &told["error"]["code"]), (4, &json!(4)), "{late:?}");
    assert_eq!(told["sessions"].as_array().map(Vec::len), Some(1), "{late:?}");
    assert_eq!((&told["sessions"][0]["native_id"], &told["sessions"][0]["status"]), (&json!(one), &json!("working")));
    assert!(ask(&sandbox, &["wait", &one, "--timeout", "0s"]).stderr.contains("not idle after 0s"));
    assert_eq!(ask(&sandbox, &["wait", "nobody"]).code(), 2);
}

#[test]
fn waiting_costs_nothing() {
    let sandbox = Sandbox::new("wait-cost");
    let claude = ClaudeStore::of(&sandbox);
    let (one, two) = (id(1), id(2));
    let agent = sandbox.lookalike("claude", &[]);
    drop(claude.register(&agent, &one).says("busy"));
    drop(claude.session(&two).asked("an old one").answered("done"));
    let waiting = sandbox.spawn(&lariat(&sandbox, &["wait", &one]));
    let outside = waiting.outside_pid().expect("it waits");
    // Voluntary switches stand still once it sleeps: a look every now and then would move them.
    let switches = || {
        let status = std::fs::read_to_string(format!("/proc/{outside}/status")).expect("it lives");
        status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:").map(|n| n.trim().to_owned()))
    };
    until_it_sleeps(&waiting);
    let before = switches();
    for _ in 0..5 {
        list(&sandbox).expect(&one, "working", Some(agent.pid()));
    }
    assert!(sleeps(&waiting));
    assert_eq!(switches(), before, "it slept while others looked");
    waiting.signal(Signal::KILL);
}

#[test]
fn one_that_ended_without_a_record_is_not_waited_for() {
    let sandbox = Sandbox::new("wait-gone");
    let claude = ClaudeStore::of(&sandbox);
    let (one, two) = (id(1), id(2));
    let agents = [sandbox.lookalike("claude", &[]), sandbox.lookalike("claude", &[])];
    let entry = claude.register(&agents[0], &one).says("idle");
    drop(claude.register(&agents[1], &two).says("busy"));
    drop(claude.session(&two).asked("fix it"));
    let waiting = sandbox.spawn(&lariat(&sandbox, &["wait", &one, &two, "--until", "done", "--json"]));
    until_it_sleeps(&waiting);
    list(&sandbox).expect(&one, "idle", Some(agents[0].pid()));
    entry.remove();
    for agent in &agents {
        agent.signal(Signal::KILL);
        agent.wait(DEADLINE);
    }
    let told = waiting.output(DEADLINE);
    assert_eq!((told.code(), &told.json()["status"]), (1, &json!("interrupted")), "{}", told.stderr);
}

/// It writes that its turn failed, and ends when it is told to.
const FAILS: &str = r#"
id=$2 dir=$HOME/.claude/projects/x now=$(date -u +%Y-%m-%dT%H:%M:%S.%3NZ)
mkdir -p "$dir" "$HOME/.claude/sessions"
start=$(cut -d' ' -f22 /proc/$$/stat)
{
    echo "{\"type\":\"user\",\"cwd\":\"$PWD\",\"sessionId\":\"$id\",\"message\":{\"role\":\"user\",\"content\":\"hi\"},\"timestamp\":\"$now\"}"
    echo "{\"type\":\"assistant\",\"cwd\":\"$PWD\",\"sessionId\":\"$id\",\"isApiErrorMessage\":true,\"error\":\"authentication_failed\",\"apiErrorStatus\":401,\"message\":{\"model\":\"<synthetic>\",\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"Please run /login\"}]},\"timestamp\":\"$now\"}"
} >> "$dir/$id.jsonl"
echo "{\"pid\":$$,\"sessionId\":\"$id\",\"cwd\":\"$PWD\",\"procStart\":\"$start\",\"status\":\"idle\"}" > "$HOME/.claude/sessions/$$.json"
while [ ! -e go ]; do sleep 0.05; done
rm "$HOME/.claude/sessions/$$.json"
exit 1"#;

#[test]
fn one_without_a_terminal_is_waited_for_to_its_end_and_asks_nobody_for_a_login() {
    let sandbox = Sandbox::new("wait-headless");
    sandbox.install("claude", &crate::scripted::put(&sandbox, "claude", FAILS));
    let launched = ask(&sandbox, &["launch", "claude", "--headless", "-p", "hi", "--json"]).json();
    let one = launched["native_id"].as_str().expect("an id");
    wait_until("its turn failed", DEADLINE, || list(&sandbox).session(one)["reason"].to_string().contains("/login"));
    assert_eq!(list(&sandbox).session(one)["status"], "idle");
    let early = ask(&sandbox, &["wait", one, "--timeout", "10ms"]);
    assert_eq!(early.code(), 4, "{early:?}");
    std::fs::write(sandbox.work().join("go"), "").expect("a sign");
    let told = ask(&sandbox, &["wait", one, "--json"]);
    assert_eq!((told.code(), &told.json()["status"]), (1, &json!("failed")), "{told:?}");
}

const SOONER: Duration = Duration::from_secs(30);

/// Runs lariat where this user has no more watches of files: as many as the first word says.
fn blind(sandbox: &Sandbox, limit: &str, args: &[&str]) -> Program {
    let script = format!("echo {limit} > /proc/sys/user/max_inotify_${{1}}; shift; exec \"$@\"");
    let what = if limit == "0" { "instances" } else { "watches" };
    sandbox.program("unshare").args(["--user", "--map-root-user", "sh", "-c", &script, "sh", what, LARIAT]).args(args)
}

#[test]
fn who_follows_sees_changes_also_where_nothing_tells_of_them() {
    // None at all, or too few.
    for limit in ["0", "1"] {
        let sandbox = Sandbox::new("blind");
        let claude = ClaudeStore::of(&sandbox);
        let one = id(1);
        let agent = sandbox.lookalike("claude", &[]);
        let entry = claude.register(&agent, &one).says("busy");
        let talk = claude.session(&one).asked("fix it");
        let events = sandbox.spawn(&blind(&sandbox, limit, &["events", "-f"]));
        let told = sandbox.spawn(&blind(&sandbox, limit, &["peek", "-f", &one]));
        let waits = sandbox.spawn(&blind(&sandbox, limit, &["wait", &one]));
        let has = |child: &Child, text: &str| {
            assert!(child.exit().is_none(), "{limit}: {} {}", child.stdout(), child.stderr());
            child.stdout().contains(text)
        };
        wait_until("the beginning", DEADLINE, || has(&events, "the beginning") && has(&told, "fix it"));
        drop(talk.answered("all is well now"));
        drop(entry.says("idle"));
        // Long before the look that is taken every minute anyway.
        wait_until("it rests", SOONER, || has(&events, "session.idle"));
        wait_until("it is said", SOONER, || has(&told, "all is well now"));
        assert_eq!(waits.output(DEADLINE).code(), 0);
        [&events, &told].iter().for_each(|child| child.signal(Signal::KILL));
    }
}

#[test]
fn one_that_has_ended_is_not_waited_for_though_how_it_ended_cannot_be_told() {
    let sandbox = Sandbox::new("wait-broken");
    let claude = ClaudeStore::of(&sandbox);
    let one = id(1);
    let agent = sandbox.lookalike("claude", &[]);
    drop(claude.register(&agent, &one).says("busy"));
    let talk = claude.session(&one).asked("fix it");
    use std::io::Write as _;
    let mut file = std::fs::OpenOptions::new().append(true).open(&talk.path).expect("a transcript");
    file.write_all(b"{\"type\":\"assistant\",\"mess\n").expect("a broken line");
    agent.signal(Signal::KILL);
    agent.wait(DEADLINE);
    let row = list(&sandbox).session(&one).clone();
    assert_eq!((&row["status"], &row["live"]), (&json!("unknown"), &json!(false)), "{row:#}");
    for until in ["idle", "done"] {
        let told = ask(&sandbox, &["wait", &one, "--until", until, "--timeout", "60s", "--json"]);
        assert_eq!((told.code(), &told.json()["status"]), (5, &json!("unknown")), "{until}: {told:?}");
    }
}
