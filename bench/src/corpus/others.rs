//! The agents that are fewer: Pi, a file for each session, and OpenCode, one database.
//!
//! They lie in a directory of their own beside the corpus, so that both can be listed together or apart.
//! What they cost is in parts of 1/1024 of a dollar, so that a sum is exact.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use super::text::{Millis, Pool, Rng, body_len};
use super::{END, Ending, Expected, SPAN_MS, Tokens, clear, save};

/// Raised whenever the same parameters give other bytes.
const FORMAT: u32 = 1;
/// So many directories they work in.
const PROJECTS: u64 = 20;
/// Of a Pi session, at least, and at most twice as much.
const PI_BYTES: usize = 60_000;

const SCHEMA: &str = "
PRAGMA journal_mode = WAL;
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, slug text NOT NULL,
    directory text NOT NULL, title text NOT NULL, version text NOT NULL, cost real DEFAULT 0 NOT NULL,
    tokens_input integer DEFAULT 0 NOT NULL, tokens_output integer DEFAULT 0 NOT NULL,
    tokens_reasoning integer DEFAULT 0 NOT NULL, tokens_cache_read integer DEFAULT 0 NOT NULL,
    tokens_cache_write integer DEFAULT 0 NOT NULL, agent text, model text, time_created integer NOT NULL,
    time_updated integer NOT NULL, time_archived integer);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
    time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
    time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE INDEX message_session_time_created_id_idx ON message (session_id, time_created, id);
CREATE INDEX part_message_id_id_idx ON part (message_id, id);
CREATE INDEX part_session_idx ON part (session_id);
CREATE INDEX session_parent_idx ON session (parent_id);
";

/// What was made, and from what.
#[derive(Serialize, Deserialize)]
pub struct Others {
    format: u32,
    seed: u64,
    pi: usize,
    opencode: usize,
    /// What a listing must say of each.
    pub sessions: Vec<Expected>,
}

/// Pi's folder, as `PI_CODING_AGENT_DIR` names it.
pub fn pi(dir: &Path) -> PathBuf {
    dir.join("pi")
}

/// Where OpenCode's store is, as `XDG_DATA_HOME` names it.
pub fn data(dir: &Path) -> PathBuf {
    dir.join("data")
}

/// The stores of these parameters in `dir`: those that are there, or new ones.
pub fn ensure(dir: &Path, seed: u64, pi: usize, opencode: usize) -> io::Result<Others> {
    let manifest = dir.join("OTHERS.json");
    let there: Option<Others> = fs::read(&manifest).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    if let Some(others) = there.filter(|o| (o.format, o.seed, o.pi, o.opencode) == (FORMAT, seed, pi, opencode)) {
        return Ok(others);
    }
    clear(dir)?;
    let pool = Pool::new(seed);
    let mut sessions = Vec::new();
    for number in 0..pi {
        sessions.push(write_pi(dir, &pool, Rng::stream(seed, 1 << 32 | number as u64))?);
    }
    write_opencode(dir, &pool, seed, opencode, &mut sessions).map_err(io::Error::other)?;
    let others = Others { format: FORMAT, seed, pi, opencode, sessions };
    fs::write(manifest, serde_json::to_vec(&others)?)?;
    Ok(others)
}

/// What the answers of a session used, and cost in 1/1024 dollars.
#[derive(Default)]
struct Used {
    tokens: [u64; 4],
    cost: u64,
}

impl Used {
    /// One more answer: what it used, and what it cost.
    fn more(&mut self, rng: &mut Rng) -> ([u64; 4], f64) {
        let one = [rng.range(1, 4_000), rng.range(1, 900), rng.range(0, 90_000), rng.range(0, 4_000)];
        self.tokens.iter_mut().zip(one).for_each(|(sum, n)| *sum += n);
        let cost = rng.range(1, 40);
        self.cost += cost;
        (one, cost as f64 / 1024.0)
    }

    fn told(&self) -> (Option<Tokens>, Option<f64>) {
        let [input, output, cache_read, cache_write] = self.tokens;
        let tokens = Tokens { input, output, cache_read, cache_write: Some(cache_write) };
        (Some(tokens), Some(self.cost as f64 / 1024.0))
    }
}

fn draw(rng: &mut Rng) -> (String, Millis, Ending) {
    let cwd = format!("/home/dev/src/proj-{:04}", rng.below(PROJECTS));
    (cwd, Millis(END.0 - rng.below(SPAN_MS) as i64), Ending::draw(rng))
}

fn write_pi(dir: &Path, pool: &Pool, mut rng: Rng) -> io::Result<Expected> {
    let (cwd, start, ending) = draw(&mut rng);
    let (id, mut at, mut number) = (rng.uuid_at(start), start, 0u32);
    let mut used = Used::default();
    let mut out = Vec::new();
    let target = rng.range(PI_BYTES as u64, 2 * PI_BYTES as u64) as usize;
    writeln!(out, r#"{{"type":"session","version":3,"id":"{id}","timestamp":"{at}","cwd":"{cwd}"}}"#)?;
    let mut entry = |out: &mut Vec<u8>, message: &str| {
        (number, at) = (number + 1, Millis(at.0 + 900));
        writeln!(out, r#"{{"type":"message","id":"{number:08x}","timestamp":"{at}","message":{message}}}"#)
    };
    let answer = |rng: &mut Rng, used: &mut Used, content: &str, stop: &str| {
        let ([input, output, read, write], cost) = used.more(rng);
        format!(
            r#"{{"role":"assistant","content":[{content}],"model":"scripted-1","usage":{{"input":{input},"output":{output},"cacheRead":{read},"cacheWrite":{write},"cost":{{"total":{cost}}}}},"stopReason":{stop}}}"#
        )
    };
    loop {
        let prompt = pool.cut(&mut rng, 200);
        entry(&mut out, &format!(r#"{{"role":"user","content":[{{"type":"text","text":"{prompt}"}}]}}"#))?;
        for _ in 0..rng.range(1, 6) {
            let call = rng.uuid();
            let call_text =
                format!(r#"{{"type":"toolCall","id":"{call}","name":"bash","arguments":{{"command":"make"}}}}"#);
            let message = answer(&mut rng, &mut used, &call_text, r#""toolUse""#);
            entry(&mut out, &message)?;
            if ending == Ending::Open && out.len() > target {
                break; // killed while the command ran
            }
            let length = body_len(&mut rng);
            let text = pool.cut(&mut rng, length);
            entry(
                &mut out,
                &format!(
                    r#"{{"role":"toolResult","toolCallId":"{call}","toolName":"bash","content":[{{"type":"text","text":"{text}"}}]}}"#
                ),
            )?;
        }
        let last = out.len() > target;
        let (stop, content) = match ending {
            Ending::Open if last => break,
            Ending::Failed if last => (r#""error","errorMessage":"provider said 500""#, String::new()),
            Ending::Stopped if last => (r#""aborted","errorMessage":"Request was aborted""#, String::new()),
            _ => (r#""stop""#, format!(r#"{{"type":"text","text":"{}"}}"#, pool.cut(&mut rng, 400))),
        };
        let message = answer(&mut rng, &mut used, &content, stop);
        entry(&mut out, &message)?;
        if last {
            break;
        }
    }
    let folder = format!("--{}--", cwd.trim_start_matches('/').replace('/', "-"));
    let stamp = start.to_string().replace([':', '.'], "-");
    let path = format!("pi/sessions/{folder}/{stamp}_{id}.jsonl");
    fs::create_dir_all(dir.join("pi/sessions").join(&folder))?;
    save(&dir.join(&path), &out, at)?;
    let ((tokens, cost_usd), bytes) = (used.told(), out.len() as u64);
    let (status, shape) = (ending.status().to_owned(), "pi 1.5".to_owned());
    Ok(Expected { id: format!("pi:{id}"), agent: None, cwd, status, shape, tokens, cost_usd, path, bytes })
}

fn write_opencode(
    dir: &Path,
    pool: &Pool,
    seed: u64,
    count: usize,
    sessions: &mut Vec<Expected>,
) -> rusqlite::Result<()> {
    let path = data(dir).join("opencode");
    fs::create_dir_all(path.join("log")).map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
    let mut db = Connection::open(path.join("opencode.db"))?;
    db.execute_batch(SCHEMA)?;
    let all = db.transaction()?;
    for number in 0..count {
        let mut rng = Rng::stream(seed, 2 << 32 | number as u64);
        let (cwd, start, ending) = draw(&mut rng);
        let id = format!("ses_{number:06}{}", rng.uuid().short(8));
        let mut used = Used::default();
        let mut at = start.0;
        let turns = rng.range(2, 12);
        for turn in 0..turns {
            let last = turn + 1 == turns;
            at += 60_000;
            let prompt = pool.cut(&mut rng, 200);
            let message = format!(r#"{{"role":"user","time":{{"created":{at}}}}}"#);
            put(&all, &id, at, turn * 10, &message, &[format!(r#"{{"type":"text","text":"{prompt}"}}"#)])?;
            at += 5_000;
            let error = match ending {
                Ending::Failed if last => r#","error":{"name":"APIError","data":{"message":"provider said 500"}}"#,
                Ending::Stopped if last => r#","error":{"name":"MessageAbortedError","data":{"message":"aborted"}}"#,
                _ => "",
            };
            let open = ending == Ending::Open && last;
            let over = if open { String::new() } else { format!(r#","completed":{}"#, at + 4_000) };
            let finish = if open || !error.is_empty() { "" } else { r#","finish":"stop""# };
            let tokens = if open {
                String::new()
            } else {
                let ([input, output, read, write], cost) = used.more(&mut rng);
                format!(
                    r#","cost":{cost},"tokens":{{"input":{input},"output":{output},"reasoning":0,"cache":{{"read":{read},"write":{write}}}}}"#
                )
            };
            let message = format!(
                r#"{{"role":"assistant","providerID":"p","modelID":"m-1","time":{{"created":{at}{over}}}{finish}{tokens}{error}}}"#
            );
            let length = body_len(&mut rng);
            let text = pool.cut(&mut rng, length);
            let (status, end) =
                if open { ("running", String::new()) } else { ("completed", format!(r#","end":{}"#, at + 9)) };
            let part = format!(
                r#"{{"type":"tool","tool":"bash","callID":"c","state":{{"status":"{status}","input":{{"command":"make"}},"metadata":{{"output":"{text}"}},"time":{{"start":{at}{end}}}}}}}"#
            );
            put(&all, &id, at, turn * 10 + 5, &message, &[part])?;
        }
        let ([input, output, read, write], (tokens, cost_usd)) = (used.tokens, used.told());
        all.execute(
            "INSERT INTO session (id, project_id, slug, directory, title, version, cost, tokens_input, tokens_output, \
             tokens_cache_read, tokens_cache_write, model, time_created, time_updated) \
             VALUES (?1, 'global', 'x', ?2, ?3, '1.18.33', ?4, ?5, ?6, ?7, ?8, '{\"id\":\"m-1\",\"providerID\":\"p\"}', ?9, ?10)",
            params![id, cwd, format!("session {number}"), cost_usd, input, output, read, write, start.0, at],
        )?;
        let (status, shape) = (ending.status().to_owned(), "opencode 1.18".to_owned());
        let (id, path) = (format!("opencode:{id}"), "data/opencode/opencode.db".to_owned());
        sessions.push(Expected { id, agent: None, cwd, status, shape, tokens, cost_usd, path, bytes: 0 });
    }
    all.commit()?;
    db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
}

fn put(db: &Connection, session: &str, at: i64, number: u64, data: &str, parts: &[String]) -> rusqlite::Result<()> {
    let id = format!("msg_{session}_{number:06}");
    db.execute("INSERT INTO message VALUES (?1, ?2, ?3, ?3, ?4)", params![id, session, at, data])?;
    for (n, part) in parts.iter().enumerate() {
        let part_id = format!("prt_{session}_{number:06}_{n}");
        db.execute("INSERT INTO part VALUES (?1, ?2, ?3, ?4, ?4, ?5)", params![part_id, id, session, at, part])?;
    }
    Ok(())
}
