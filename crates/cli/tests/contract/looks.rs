//! How the tests look: `lariat` run inside the world of the agents, and its answers held to what
//! every answer must be, whatever the state (see [`Look::check`]).
//!
//! While an agent lives, a test waits for the state with [`Stage::until`], and not one look on the
//! way may call it ended. Once its end was seen, the very next look must know: [`Stage::now`] never
//! waits.

use std::{collections::HashSet, fs, path::Path, time::Instant};

use lariat_testkit::{
    DEADLINE, Model, Output, Program, Sandbox,
    record::{Store, record},
    wait_for, wait_until, workspace,
};
use serde_json::{Value, json};

/// Where to record, if anywhere; below the checkout unless it is absolute.
pub const RECORD: &str = "LARIAT_RECORD";
/// The case that is recorded without leaving anything out.
const WHOLE: &str = "p-done";
const ENDED: [&str; 4] = ["done", "failed", "stopped", "interrupted"];
/// What a connection does not tell, and its agent's own store a moment later.
const OF_ITS_STORE: [&str; 5] = ["tokens", "cost_usd", "model", "branch", "title"];
const ALIVE: [&str; 4] = ["working", "waiting", "starting", "idle"];

/// One test's place, with the model that plays in it.
pub struct Stage {
    /// The case's name, under which it is recorded.
    case: &'static str,
    pub sandbox: Sandbox,
    pub model: Model,
}

impl Stage {
    pub fn new(case: &'static str) -> Self {
        let sandbox = Sandbox::new(case);
        sandbox.install("lariat", Path::new(env!("CARGO_BIN_EXE_lariat")));
        let model = Model::start();
        Self { case, sandbox, model }
    }

    pub fn lariat(&self) -> Program {
        self.sandbox.program("lariat")
    }

    /// Everything there is, now.
    #[track_caller]
    pub fn look(&self) -> Look {
        Look::take(self, &self.lariat())
    }

    /// The only session, now, when nothing else is here.
    #[track_caller]
    pub fn now(&self) -> Row {
        self.look().only()
    }

    /// Waits until the only session is as wanted, and nothing else is here.
    #[track_caller]
    pub fn until(&self, status: &str, reason: &str) -> Row {
        self.until_look(&format!("one session, {status}: {reason}…"), |look| {
            let [row] = look.rows.as_slice() else { return None };
            (look.unbound.is_empty() && row.is(status, reason)).then(|| row.clone())
        })
    }

    /// Waits until the only session works on this prompt, which the model holds, and all that
    /// there is to be recorded of that is recorded.
    #[track_caller]
    pub fn until_at_work(&self, prompt: &str) -> Row {
        self.until_look(&format!("one session at work on {prompt:?}"), |look| {
            let [row] = look.rows.as_slice() else { return None };
            (look.unbound.is_empty() && row.is_at_work(prompt)).then(|| row.clone())
        })
    }

    /// Waits until this session is as wanted, whatever else is here.
    #[track_caller]
    pub fn until_of(&self, id: &str, status: &str, reason: &str) -> Row {
        self.until_look(&format!("{id} {status}: {reason}…"), |look| {
            let row = look.find(id)?;
            row.is(status, reason).then(|| row.clone())
        })
    }

    /// Waits until a look shows what is wanted. A session that was seen alive on the way must not
    /// be called ended as long as this waits, unless that is what is waited for.
    #[track_caller]
    pub fn until_look<T>(&self, what: &str, wanted: impl Fn(&Look) -> Option<T>) -> T {
        let end = Instant::now() + DEADLINE;
        let mut alive: HashSet<String> = HashSet::new();
        // (This one's own deadline never comes: the other one knows what was seen last.)
        wait_for(what, DEADLINE * 2, || {
            let look = self.look();
            let found = wanted(&look);
            if found.is_none() {
                assert!(Instant::now() < end, "waited in vain for {what}; now: {}", look.text);
                for row in &look.rows {
                    let ended = ENDED.contains(&row.status());
                    assert!(!(ended && alive.contains(row.id())), "alive a moment ago, waiting for {what}: {row}");
                }
                let live = look.rows.iter().filter(|row| row.0["live"] == true);
                alive.extend(live.map(|row| row.id().to_owned()));
            }
            found
        })
    }

    /// Waits until the tool `touch started; …` has begun. (Codex runs it in a PID namespace of its
    /// own, where no test sees it.)
    #[track_caller]
    pub fn until_started(&self) {
        let mark = self.sandbox.work().join("started");
        wait_until("the tool to start", DEADLINE, || mark.exists());
    }

    /// Waits until a tool of the agent's runs this command.
    #[track_caller]
    pub fn until_runs(&self, argv: &[&str]) {
        wait_until(&format!("{argv:?} to run"), DEADLINE, || {
            self.sandbox.processes().iter().any(|process| process.argv == argv)
        });
    }

    /// Whether `status`, `explain`, `peek` and the short `ls` say of a session what `ls -a` said;
    /// gives what `peek` showed. For states that do not pass by themselves.
    #[track_caller]
    pub fn agree(&self, row: &Row) -> Value {
        let run = |args: &[&str]| {
            let output = self.sandbox.world().run(&self.lariat().args(args));
            assert_eq!(output.code(), 0, "{args:?}: {output:?}");
            output.json()
        };
        let ask = |verb: &str| run(&[verb, row.id(), "--json"]);
        let short = run(&["ls", "--json"]);
        let shown = short["sessions"].as_array().expect("sessions");
        let shown = shown.iter().find(|session| session["native_id"] == row.id());
        let brief = shown.map(|session| ["status", "reason", "pid"].map(|key| &session[key]));
        let wanted = ["status", "reason", "pid"].map(|key| &row.0[key]);
        assert_eq!(brief, (row.0["live"] == true).then_some(wanted), "ls without -a: {row}");
        for verb in ["status", "explain"] {
            let said = ask(verb);
            for (key, value) in row.0.as_object().expect("a row is an object") {
                if key == "because" {
                    // What shows that it lives may grow stronger meanwhile (a log is written late): then
                    // the next look says so too.
                    let (said, before) = (told(&said["because"]), told(value));
                    if said != before {
                        let after = self.look().row(row.id());
                        assert_eq!(said, told(&after.0["because"]), "{verb}: because, before: {before:?}");
                    }
                } else if key != "updated_at" && !(row.is_of_a_connection() && OF_ITS_STORE.contains(&key.as_str())) {
                    // (Agents touch their stores at rest, too.)
                    assert_eq!(&said[key], value, "{verb} and ls disagree on {key}: {row}");
                }
            }
        }
        let peeked = ask("peek");
        for key in ["id", "status", "reason", "live", "tool"] {
            assert_eq!(peeked[key], row.0[key], "peek and ls disagree on {key}: {row}");
        }
        peeked
    }

    /// As [`agree`](Self::agree), and the whole last reply is this.
    #[track_caller]
    pub fn agree_on_reply(&self, row: &Row, reply: &str) {
        assert_eq!(self.agree(row)["reply"], reply, "{row}");
    }

    /// Records the store as it is, if asked to, with what each session must be shown as once no
    /// process is left.
    pub fn keep(&self, store: Store, sessions: &[(&Row, &str)]) {
        let Some(place) = std::env::var_os(RECORD) else { return };
        let (agent, version) = match store {
            Store::Claude => ("claude", lariat_testkit::agents::Claude::version()),
            Store::Codex => ("codex", lariat_testkit::agents::Codex::version()),
            Store::OpenCode => ("opencode", lariat_testkit::agents::OpenCode::version()),
            Store::Pi => ("pi", lariat_testkit::agents::Pi::version()),
            Store::Gemini => ("gemini", lariat_testkit::agents::Gemini::version()),
        };
        let fixture = workspace().join(place).join(agent).join(version).join(self.case);
        drop(fs::remove_dir_all(&fixture));
        for file in record(&self.sandbox, store, &fixture) {
            let text = fs::read_to_string(&file).expect("a recorded file");
            let text = if file.parent().is_some_and(|folder| folder.ends_with(".claude/sessions")) {
                of_no_boot(&text)
            } else if self.case != WHOLE && file.components().any(|c| c.as_os_str() == "projects") {
                without_requests(&text)
            } else {
                continue;
            };
            fs::write(&file, text).expect("a recorded file");
        }
        let home = self.sandbox.home().to_string_lossy().into_owned();
        let sessions: Vec<Value> = sessions
            .iter()
            .map(|(row, status)| {
                assert!(ENDED.contains(status), "{status} needs a process");
                let peeked = self.agree(row);
                let cwd = row.0["cwd"].as_str().map(|cwd| cwd.replace(&home, "/home/dev"));
                json!({"native_id": row.id(), "status_without_process": status,
                    "tokens": row.0["tokens"], "prompt": row.0["prompt"], "name": row.0["name"],
                    "cwd": cwd, "reply": peeked["reply"]})
            })
            .collect();
        let expect = serde_json::to_string_pretty(&json!({"sessions": sessions}));
        fs::write(fixture.join("expect.json"), expect.expect("JSON") + "\n").expect("what a recording must show");
    }
}

/// A transcript without Claude's copies of its own requests: up to 100 kB a turn, of which no
/// reader takes anything. One recording keeps them, to have the real shape somewhere.
fn without_requests(text: &str) -> String {
    let heavy = ["api-request", "api-request-shape", "api-request-blob", "attachment"];
    let is_heavy = |line: &str| {
        let line = serde_json::from_str::<Value>(line).unwrap_or_default();
        let tells = ["max_turns_reached", "hook_stopped_continuation", "hook_deferred_tool", "structured_output"];
        let tells = tells.iter().any(|kind| line["attachment"]["type"] == *kind);
        !tells && heavy.iter().any(|kind| line["type"] == *kind)
    };
    text.split_inclusive('\n').filter(|line| !is_heavy(line)).collect()
}

/// A registry entry that cannot be of any boot in which it is replayed. One of this very boot,
/// from the PID namespace of a world that is gone, is rightly `unknown`: nobody can look in there.
/// A start at the first tick, hours before `startedAt`, belongs to another boot wherever it is read.
fn of_no_boot(entry: &str) -> String {
    let mark = "\"procStart\":\"";
    let Some(start) = entry.find(mark).map(|at| at + mark.len()) else {
        return entry.to_owned();
    };
    let digits = entry[start..].bytes().take_while(u8::is_ascii_digit).count();
    format!("{}1{}", &entry[..start], &entry[start + digits..])
}

/// Who told what, without when: what a probe saw just now carries the moment.
fn told(because: &Value) -> Vec<(Value, Value, Value)> {
    let all = because.as_array().expect("because is a list");
    let part = |o: &Value| (o["role"].clone(), o["witness"].clone(), o["fact"].clone());
    // What only stands beside may pass between two looks: an agent forks, and the copy is gone.
    all.iter().filter(|o| o["role"] != "context").map(part).collect()
}

/// One answer of `lariat ls -a --json`.
pub struct Look {
    pub rows: Vec<Row>,
    pub unbound: Vec<Value>,
    at: Value,
    text: String,
}

impl Look {
    #[track_caller]
    pub fn take(stage: &Stage, lariat: &Program) -> Self {
        let output = stage.sandbox.world().run(&lariat.clone().args(["ls", "-a", "--json"]));
        let listing = output.json();
        let list = |key: &str| listing[key].as_array().expect(key).clone();
        let look = Self {
            rows: list("sessions").into_iter().map(Row).collect(),
            unbound: list("unbound"),
            at: listing["at"].clone(),
            text: output.stdout.clone(),
        };
        look.check(&output, &listing);
        look
    }

    /// What holds for every answer about a sound store that can be seen in full.
    #[track_caller]
    fn check(&self, output: &Output, listing: &Value) {
        assert_eq!(listing["warnings"], json!([]), "{}", self.text);
        assert_eq!(output.stderr, "", "{}", self.text);
        let unknown = self.rows.iter().any(|row| row.status() == "unknown");
        assert_eq!(output.code(), if unknown { 5 } else { 0 }, "{}", self.text);
        let ids: HashSet<_> = self.rows.iter().map(Row::id).collect();
        assert_eq!(ids.len(), self.rows.len(), "one session, one row: {}", self.text);
        let mut holders = HashSet::new();
        for row in &self.rows {
            let live = match row.status() {
                status if ALIVE.contains(&status) => json!(true),
                status if ENDED.contains(&status) => json!(false),
                // One whose process is seen and whose record is not, or the other way round.
                _ => row.0["live"].clone(),
            };
            assert_eq!(row.0["live"], live, "{row}");
            assert_eq!(row.0["pid"].is_null(), live != true, "a pid is a live one: {row}");
            assert!(row.0["ended_at"].is_null() || live == false, "{row}");
            assert_ne!(row.0["reason"], "", "{row}");
            assert!(!row.0["because"].as_array().expect("a list").is_empty(), "{row}");
            let shared = row.0["because"].to_string().contains("is a shared server");
            if !row.0["pid"].is_null() && !shared {
                assert!(holders.insert(row.0["pid"].to_string()), "one process, one session: {row}");
            }
        }
        for process in &self.unbound {
            let pid = process["pid"].to_string();
            assert!(!holders.contains(&pid), "{pid} is both bound and not: {}", self.text);
        }
    }

    pub fn find(&self, id: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.id() == id)
    }

    /// This session.
    #[track_caller]
    pub fn row(&self, id: &str) -> Row {
        self.find(id).unwrap_or_else(|| panic!("no row of {id}: {}", self.text)).clone()
    }

    /// The only session, when nothing else is here.
    #[track_caller]
    pub fn only(&self) -> Row {
        assert!(self.unbound.is_empty(), "{}", self.text);
        let [row] = self.rows.as_slice() else { panic!("not one session: {}", self.text) };
        row.clone()
    }

    /// How long ago a session's last record was made, in seconds.
    pub fn age(&self, row: &Row) -> f64 {
        let second_of_day = |time: &Value| {
            let time = time.as_str().expect("a time");
            let clock = time.split(['T', 'Z']).nth(1).expect("a time of day");
            let parts = clock.split(':').map(|part| part.parse::<f64>().expect("a number"));
            parts.fold(0.0, |sum, part| sum * 60.0 + part)
        };
        (second_of_day(&self.at) - second_of_day(&row.0["updated_at"])).rem_euclid(86_400.0)
    }

    /// The sessions that live.
    pub fn live(&self) -> Vec<&str> {
        let live = self.rows.iter().filter(|row| row.0["live"] == true);
        live.map(Row::id).collect()
    }
}

/// One session as `ls --json` shows it.
#[derive(Clone)]
pub struct Row(pub Value);

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl Row {
    pub fn id(&self) -> &str {
        self.0["native_id"].as_str().expect("a native id")
    }

    pub fn status(&self) -> &str {
        self.0["status"].as_str().expect("a status")
    }

    /// Whether lariat owns the connection to its agent.
    fn is_of_a_connection(&self) -> bool {
        self.0["agent"].as_str().is_some_and(|agent| agent.starts_with("acp:"))
    }

    /// Whether it has this status, for a reason that starts so.
    pub fn is(&self, status: &str, reason: &str) -> bool {
        let why = self.0["reason"].as_str().expect("a reason");
        self.status() == status && why.starts_with(reason)
    }

    /// Whether it is thinking about this prompt, its first.
    pub fn is_at_work(&self, prompt: &str) -> bool {
        let reason = self.0["reason"].as_str().expect("a reason");
        let thinking = ["busy", "turn open"].contains(&reason);
        self.status() == "working" && self.0["prompt"] == prompt && thinking
    }

    /// It is the session of this process.
    #[track_caller]
    pub fn held_by(self, pid: i32) -> Self {
        assert_eq!(self.0["pid"], pid, "{self}");
        assert_eq!(self.0["live"], true, "{self}");
        self
    }

    /// It has ended, so.
    #[track_caller]
    pub fn ended(self, status: &str) -> Self {
        assert_eq!(self.status(), status, "{self}");
        assert_eq!(self.0["live"], false, "{self}");
        self
    }

    /// It has used what the agent says.
    #[track_caller]
    pub fn used(self, tokens: Tokens) -> Self {
        assert_eq!(self.0["tokens"], tokens.json(), "{self}");
        self
    }

    /// A field of the row, for what has no word of its own here.
    #[track_caller]
    pub fn has(self, key: &str, value: impl Into<Value>) -> Self {
        assert_eq!(self.0[key], value.into(), "{key}: {self}");
        self
    }
}

/// Token counts, as an agent reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tokens {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
}

impl Tokens {
    fn json(self) -> Value {
        json!({"input": self.input, "output": self.output, "cache_read": self.cache_read,
            "cache_write": self.cache_write})
    }
}

/// Every JSON line of a text; a last line without an end is not one yet.
pub fn lines(text: &str) -> Vec<Value> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

/// An MCP server with two tools: `ask` has a person fill in a form, `wait` never answers.
pub fn mcp_server(sandbox: &Sandbox) -> String {
    let path = sandbox.root().join("mcp.py");
    fs::write(&path, MCP_SERVER).expect("a script");
    path.to_str().expect("UTF-8").to_owned()
}

const MCP_SERVER: &str = r#"
import json, sys
def out(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    number, method = asked.get("id"), asked.get("method")
    if method == "initialize":
        out({"id": number, "result": {"protocolVersion": asked["params"]["protocolVersion"],
            "capabilities": {"tools": {}}, "serverInfo": {"name": "forms", "version": "1"}}})
    elif method == "tools/list":
        tool = lambda name: {"name": name, "description": name, "inputSchema": {"type": "object", "properties": {}},
            "annotations": {"readOnlyHint": name == "ask", "destructiveHint": name == "wait"}}
        out({"id": number, "result": {"tools": [tool("ask"), tool("wait")]}})
    elif method == "tools/call" and asked["params"]["name"] == "ask":
        out({"id": "form", "method": "elicitation/create", "params": {"mode": "form", "message": "Which size?",
            "requestedSchema": {"type": "object", "properties": {"size": {"type": "string", "enum": ["S", "L"]}},
            "required": ["size"]}}})
    elif method and method != "tools/call" and number is not None:
        out({"id": number, "result": {}})
"#;
