//! Four hundred short sessions of the real gateway, which is killed, started again and told to forget
//! some of them. What the gateway says by itself is the truth; at each moment lariat's counts are held
//! to it, and nothing that lariat remembers may ever be counted as more than unknown.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use lariat_testkit::{
    DEADLINE, Signal,
    agents::{Client, OpenClaw},
    wait_for, wait_until,
};
use serde_json::{Value, json};

use super::{good_look, run};
use crate::looks::Stage;

/// As many as the scenario has.
const MANY: usize = 400;
/// So many clients make them at once.
const CLIENTS: usize = 4;
/// So many are deleted: it takes long over each.
const DELETED: usize = 5;
/// So many of them stay at work.
const HELD: usize = 3;

/// How many there are of each kind: at work, unknown, ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counts {
    working: usize,
    unknown: usize,
    ended: usize,
}

impl Counts {
    fn all(self) -> usize {
        self.working + self.unknown + self.ended
    }
}

/// What lariat counts. It may answer in part only if the gateway is away.
#[track_caller]
fn counted(stage: &Stage, code: i32) -> Counts {
    let output = run(stage, &["status", "--json"]);
    assert_eq!(output.code(), code, "{output:?}");
    counts(&output.json())
}

#[track_caller]
fn counts(told: &Value) -> Counts {
    let count = |key: &str| usize::try_from(told[key].as_u64().expect(key)).expect("a count");
    for none in ["needs_you", "idle", "cut_off", "unbound"] {
        assert_eq!(count(none), 0, "{none}: {told}");
    }
    Counts { working: count("working"), unknown: count("unknown"), ended: count("ended") }
}

/// What the gateway itself says, in its own words.
fn truth(client: &mut Client) -> Counts {
    let list = client.call("sessions.list", &json!({"limit": 1000}));
    let rows = list["sessions"].as_array().expect("sessions");
    assert_eq!(list["totalCount"], rows.len());
    let working = rows.iter().filter(|row| row["hasActiveRun"] == true).count();
    Counts { working, unknown: 0, ended: rows.len() - working }
}

/// The keys of those that have a run open.
fn at_work(client: &mut Client) -> Vec<String> {
    let list = client.call("sessions.list", &json!({"limit": 1000}));
    let rows = list["sessions"].as_array().expect("sessions").iter();
    rows.filter(|row| row["hasActiveRun"] == true).map(|row| row["key"].as_str().expect("a key").to_owned()).collect()
}

/// How many sessions hold a directory.
#[track_caller]
fn holders(stage: &Stage) -> usize {
    let locks = run(stage, &["locks", "--json"]).json()["locks"].clone();
    let of_the_gateway = |lock: &&Value| lock["session"].as_str().is_some_and(|id| id.starts_with("openclaw:agent:"));
    locks.as_array().expect("locks").iter().filter(of_the_gateway).count()
}

/// Makes one that says a word or two, or one that stays at work.
fn make(client: &mut Client, stage: &Stage, n: usize) -> String {
    let made = client.call("sessions.create", &json!({"label": format!("short {n}"), "cwd": stage.sandbox.work()}));
    let key = made["key"].as_str().expect("a key").to_owned();
    let message = if n < HELD { format!("HOLD open{n} hello") } else { format!("word {n}") };
    // Some have a turn; the others are made and left, as most are.
    if n < HELD || n.is_multiple_of(20) {
        let sent = json!({"sessionKey": key, "message": message, "idempotencyKey": format!("run-{n}")});
        assert_eq!(client.call("chat.send", &sent)["status"], "started");
    }
    key
}

/// Makes all of them, some at a time, while lariat looks.
fn make_all(stage: &Stage, openclaw: &OpenClaw<'_>) -> Vec<String> {
    let (begun, made) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let client = |_| {
            scope.spawn(|| {
                let mut client = openclaw.client();
                let mut keys = Vec::new();
                loop {
                    let n = begun.fetch_add(1, Ordering::SeqCst);
                    if n >= MANY {
                        return keys;
                    }
                    keys.push((n, make(&mut client, stage, n)));
                    made.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        for some in (0..MANY).step_by(MANY / 4) {
            wait_until("some more", DEADLINE, || made.load(Ordering::SeqCst) >= some);
            let least = made.load(Ordering::SeqCst);
            let output = run(stage, &["status", "--json"]);
            let (counts, most) = (counts(&output.json()), begun.load(Ordering::SeqCst).min(MANY));
            // Four clients at once can be more than it takes. Then it says so, and nothing is ended by that.
            let overloaded = output.code() == 5 && output.stdout.contains("overloaded");
            if overloaded {
                assert_eq!((counts.working, counts.ended), (0, 0), "{output:?}");
            } else {
                assert!((least..=most).contains(&counts.all()), "{least} to {most}: {output:?}");
                assert_eq!((output.code(), counts.unknown), (0, 0), "{output:?}");
            }
        }
        let mut keys: Vec<_> = clients.into_iter().flat_map(|c| c.join().expect("a client")).collect();
        keys.sort();
        keys.into_iter().map(|(_, key)| key).collect()
    })
}

/// What the gateway says and lariat says too, once nothing changes between two words of the gateway.
#[track_caller]
fn agreed(stage: &Stage, client: &mut Client) -> Counts {
    wait_for("a moment in which the gateway changes nothing", DEADLINE, || {
        let before = truth(client);
        let (counts, holders) = (counted(stage, 0), holders(stage));
        (truth(client) == before).then(|| {
            assert_eq!(counts, before, "lariat, and the gateway");
            assert_eq!(holders, before.working, "who is at work holds its directory, and nobody else");
            counts
        })
    })
}

/// Waits until the gateway has so many runs open, or fewer but one at least, and lariat says the same.
#[track_caller]
fn settle(stage: &Stage, openclaw: &OpenClaw<'_>, all: usize, working: std::ops::RangeInclusive<usize>) -> usize {
    let mut client = openclaw.client();
    wait_for(&format!("{working:?} of {all} at work"), DEADLINE, || {
        let now = truth(&mut client);
        assert_eq!(now.all(), all, "{now:?}");
        working.contains(&now.working).then_some(())
    });
    let counts = agreed(stage, &mut client);
    assert!(counts.all() == all && working.contains(&counts.working), "{working:?} of {all}: {counts:?}");
    counts.working
}

/// Kills the gateway: every session is unknown, none is ended, and nothing is done about it.
#[track_caller]
fn away(stage: &Stage, gateway: &lariat_testkit::Child, all: usize) {
    gateway.signal(Signal::KILL);
    gateway.wait(DEADLINE);
    // (Its children notice that by themselves.)
    wait_until("all of it is gone", DEADLINE, || others(stage).is_empty());
    for _ in 0..2 {
        assert_eq!(counted(stage, 5), Counts { working: 0, unknown: all, ended: 0 });
    }
    assert_eq!(holders(stage), 0, "what is remembered holds nothing");
    let plan = run(stage, &["restore", "--json"]).json();
    assert_eq!(plan["restore"], json!([]), "{plan}");
    assert_eq!(others(stage), Vec::<String>::new(), "nothing is started");
}

fn others(stage: &Stage) -> Vec<String> {
    let all = stage.sandbox.processes();
    all.iter().filter(|p| p.pid != 1 && p.state != 'Z').map(|p| format!("{} {:?}", p.comm, p.argv)).collect()
}

#[test]
fn s04_s05_s06_four_hundred_short_sessions_and_the_counts_are_true_at_each_moment() {
    let stage = Stage::new("openclaw-many");
    let openclaw = OpenClaw::install(&stage.sandbox, &stage.model);
    stage.sandbox.env("OPENCLAW_GATEWAY_URL", openclaw.url());
    stage.sandbox.env("OPENCLAW_GATEWAY_TOKEN", OpenClaw::TOKEN);
    let gateway = openclaw.start();
    openclaw.wait(&gateway);
    let keys = make_all(&stage, &openclaw);
    assert_eq!(keys.len(), MANY);
    (0..HELD).for_each(|n| stage.model.wait_for_hold(&format!("open{n}"), DEADLINE));
    settle(&stage, &openclaw, MANY, HELD..=HELD);

    away(&stage, &gateway, MANY);

    // Started again, it goes on with open runs by itself, in its own time. Nothing else has changed.
    let gateway = openclaw.start();
    openclaw.wait(&gateway);
    settle(&stage, &openclaw, MANY, 1..=HELD);

    // One that is at work is ended through lariat and deleted, and so are some that have ended.
    let mut client = openclaw.client();
    let at_work = at_work(&mut client);
    let one = at_work.first().expect("one at work").clone();
    let stopped = run(&stage, &["stop", &one, "--json"]);
    assert_eq!((stopped.code(), &stopped.json()["outcome"]), (0, &json!("stopped")), "{stopped:?}");
    agreed(&stage, &mut client);
    let deleted: Vec<&String> = keys[HELD..].iter().take(DELETED).chain([&one]).collect();
    for (n, key) in deleted.iter().enumerate() {
        assert_eq!(client.call("sessions.delete", &json!({"key": key}))["deleted"], true, "{key}");
        if n.is_multiple_of(3) {
            agreed(&stage, &mut client);
        }
    }
    let left = MANY - deleted.len();
    assert_eq!(agreed(&stage, &mut client).all(), left);
    let seen = good_look(&stage);
    assert!(keys.iter().all(|key| seen.has(key) != deleted.contains(&key)), "{:#}", seen.json);
    let asked = run(&stage, &["status", &one, "--json"]);
    assert_eq!(asked.code(), 2, "it is not there any more: {asked:?}");

    // What was deleted does not come back when the gateway goes.
    away(&stage, &gateway, left);
    let seen = run(&stage, &["ls", "-a", "--json"]).json();
    let rows = seen["sessions"].as_array().expect("sessions");
    let is_deleted = |row: &Value| deleted.iter().any(|key| row["native_id"] == key.as_str());
    assert!(rows.len() == left && !rows.iter().any(is_deleted), "{} rows", rows.len());
}
