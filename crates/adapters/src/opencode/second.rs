//! What is asked by OpenCode's second interface (`/api/session/…/prompt`), as 1.18.33 stores it.
//!
//! Such turns are in `session_message` and nowhere else: a session's own columns are not touched by them, neither its
//! times nor its tokens, and no line of the log names the session. So nothing ties a process to them: a turn that is
//! open may be run by any process that could. Messages are not `role`d but have a type, and hold their parts themselves.
//!
//! OpenCode 1.16 to 1.17.12, if told to, mirrored there what the first interface was asked (`OPENCODE_EXPERIMENTAL`): a prompt
//! then bears the very time of the message that it mirrors. Of such a session only the first one's way counts.

use lariat_core::{Time, Tokens};
use rusqlite::{Connection, OptionalExtension as _};

use super::open;
use super::record::{self, Pending, Stand, Stored, Sum};
use crate::json::{Doc, Keep, Value};
use crate::talk::{self, Said, Speaker, Talk};
use crate::tool::Call;

/// What is said of a tool that ran when a person ended the turn.
const INTERRUPTED: &str = "Tool execution interrupted";

const MESSAGE: Keep = |parent, key| match parent {
    b"" => matches!(key, b"time" | b"text" | b"model" | b"content" | b"finish" | b"error" | b"cost" | b"tokens"),
    b"time" => matches!(key, b"created" | b"completed" | b"ran"),
    b"model" => matches!(key, b"id" | b"providerID"),
    b"content" => matches!(key, b"type" | b"id" | b"name" | b"text" | b"state" | b"time"),
    b"state" => matches!(key, b"status" | b"input" | b"error"),
    b"error" => matches!(key, b"type" | b"message"),
    b"tokens" => matches!(key, b"input" | b"output" | b"reasoning" | b"cache"),
    b"cache" => matches!(key, b"read" | b"write"),
    b"input" | b"questions" => true,
    _ => false,
};

/// Whether anything was said in the first one's way.
const OTHERS: &str = "SELECT EXISTS (SELECT 1 FROM part WHERE session_id = ?1)";
/// How much of one message is told.
const LONGEST: usize = 1 << 20;
/// Of one type, in their order.
const OF_TYPE: &str = "SELECT data FROM session_message WHERE session_id = ?1 AND type = ?2 ORDER BY seq LIMIT ?3";

/// Sessions whose messages mirror those of the first interface.
const MIRRORED: &str = "SELECT s.session_id FROM session_message s JOIN message m \
     ON m.session_id = s.session_id AND m.time_created = s.time_created WHERE s.type = 'user'";

/// All answers that are no mirror, each with its session.
pub fn answers() -> String {
    format!("SELECT session_id, data FROM session_message WHERE type = 'assistant' AND session_id NOT IN ({MIRRORED})")
}

/// Whether a database holds any of that, or could, where it is damaged: each session then tells by itself.
pub fn is_there(connection: &Connection) -> rusqlite::Result<bool> {
    let columns = "SELECT count(*) FROM pragma_table_info('session_message') \
                   WHERE name IN ('session_id', 'type', 'seq', 'time_created', 'time_updated', 'data')";
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    if count(columns)? != 6 {
        return Ok(false);
    }
    match count("SELECT EXISTS (SELECT 1 FROM session_message)") {
        Err(e) if e.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseCorrupt) => Ok(true),
        any => any.map(|any| any == 1),
    }
}

/// Sessions in which something was said this way since.
pub fn stirred(connection: &Connection, since: i64) -> rusqlite::Result<Vec<String>> {
    let written = "SELECT DISTINCT session_id FROM session_message WHERE time_updated >= ?1";
    let mut asked = connection.prepare_cached(written)?;
    let ids = asked.query_map([since], |row| Ok(open::text(row, 0)))?;
    Ok(ids.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

fn parsed(json: &[u8]) -> Result<Doc, String> {
    record::parse(json, MESSAGE, 600).map_err(|_| "a message is not JSON".to_owned())
}

/// Adds what was said this way to what is stored of a session, if it is the last that was.
pub fn add(connection: &Connection, id: &str, stored: &mut Stored) -> rusqlite::Result<()> {
    let newest = "SELECT type, time_created, time_updated, data FROM session_message \
                  WHERE session_id = ?1 AND type IN ('user', 'assistant') ORDER BY seq DESC LIMIT 1";
    let read = |row: &rusqlite::Row<'_>| {
        let data = row.get_ref(3)?.as_bytes().map(<[u8]>::to_vec).unwrap_or_default();
        Ok((open::text(row, 0), open::moment(row, 1).unwrap_or(0), open::moment(row, 2).unwrap_or(0), data))
    };
    let Some((kind, since, written, data)) = connection.prepare_cached(newest)?.query_row([id], read).optional()?
    else {
        return Ok(());
    };
    let mirrored = format!("SELECT EXISTS ({MIRRORED} AND s.session_id = ?1)");
    if connection.prepare_cached(&mirrored)?.query_row([id], |row| row.get(0))? {
        return Ok(());
    }
    if stored.stand == Stand::Never || since >= stored.since {
        (stored.since, stored.second) = (since, true);
        stored.calls.clear();
        stored.stand = match parsed(&data) {
            _ if kind.as_deref() == Some("user") => Stand::Open,
            Ok(message) => {
                stored.calls.extend(message.root().get("content").items().filter_map(pending).take(record::MOST));
                stand(message.root())
            }
            Err(why) => Stand::Unread(why),
        };
        if stored.stand != Stand::Open {
            stored.calls.clear();
        }
    }
    stored.updated = stored.updated.max(written);
    let texts = |kind: &str, most: usize| -> rusqlite::Result<Vec<Result<Doc, String>>> {
        let mut asked = connection.prepare_cached(OF_TYPE)?;
        let all =
            asked.query_map((id, kind, most), |row| Ok(parsed(row.get_ref(0)?.as_bytes().unwrap_or_default())))?;
        all.collect()
    };
    if stored.prompt.is_none()
        && let Some(Ok(first)) = texts("user", 1)?.first()
    {
        let said = first.root().get("text").some_str().map(str::trim);
        stored.prompt = said.filter(|text| !text.is_empty()).map(str::to_owned);
    }
    let answers = texts("assistant", record::COUNTED + 1)?;
    let mut sum = Sum::default();
    if answers.len() > record::COUNTED {
        sum.lack();
    }
    for answer in &answers {
        match answer.as_ref().map(|answer| (model(answer.root()), used(answer.root()), answer.root().get("cost").f64()))
        {
            Ok((model, Some(tokens), cost)) => sum.count(model, tokens, cost),
            _ => sum.lack(),
        }
    }
    stored.model = sum.model.clone().or(stored.model.take());
    let before = stored.tokens.zip(Some(stored.cost));
    (stored.tokens, stored.cost) = before.map_or((None, None), |(tokens, cost)| sum.with(tokens, cost));
    Ok(())
}

/// How the turn of an answer stands.
fn stand(message: Value<'_>) -> Stand {
    let error = message.get("error");
    if error.exists() {
        let kind = error.get("type").some_str().unwrap_or("error");
        return match kind.contains("abort") || kind.contains("interrupt") {
            true => Stand::Aborted("turn aborted".into()),
            false => Stand::Failed(error.get("message").some_str().unwrap_or(kind).to_owned(), None),
        };
    }
    let over = message.get("time").get("completed").exists();
    let cut = |part: Value<'_>| part.get("state").get("error").get("message").str() == Some(INTERRUPTED);
    match message.get("finish").str() {
        _ if !over => Stand::Open,
        _ if message.get("content").items().any(cut) => Stand::Aborted("turn aborted in a tool".into()),
        Some("tool-calls" | "unknown") => Stand::Open,
        Some("error") => Stand::Failed("the turn failed".into(), None),
        _ => Stand::Well,
    }
}

/// The call of a part that has no result yet.
fn pending(part: Value<'_>) -> Option<Pending> {
    let state = part.get("state");
    let open =
        part.get("type").str() == Some("tool") && matches!(state.get("status").str(), Some("running" | "pending"));
    open.then(|| Pending {
        call: Call::new(
            part.get("id").str().unwrap_or(""),
            part.get("name").some_str().unwrap_or("tool"),
            state.get("input"),
            record::moment_of(part.get("time").get("created")),
        ),
        begun: part.get("time").get("ran").exists(),
    })
}

/// What was said this way after a place in a session, or the last of it; nothing of one that was also asked in the first
/// one's way, where places are others.
pub fn said(connection: &Connection, id: &str, offset: u64, last: Option<u64>) -> rusqlite::Result<Option<Talk>> {
    if connection.query_row(OTHERS, [id], |row| row.get::<_, i64>(0))? > 0 || !is_there(connection)? {
        return Ok(None);
    }
    let limit = last.map_or(i64::MAX, |n| i64::try_from(n).unwrap_or(i64::MAX));
    let mut asked = connection.prepare(
        "SELECT seq, type, time_created, data FROM session_message WHERE session_id = ?1 AND seq > ?2 \
         AND type IN ('user', 'assistant') ORDER BY seq DESC LIMIT ?3",
    )?;
    let rows = asked.query_map((id, i64::try_from(offset).unwrap_or(i64::MAX), limit), |row| {
        let data = row.get_ref(3)?.as_bytes().map(<[u8]>::to_vec).unwrap_or_default();
        Ok((open::number(row, 0), open::text(row, 1), open::moment(row, 2), data))
    })?;
    let rows: Vec<_> = rows.collect::<Result<_, _>>()?;
    let mut talk = Talk { said: Vec::new(), offset, more: last.is_some_and(|n| rows.len() as u64 >= n) };
    let newest = rows.first().and_then(|row| row.0);
    for (seq, kind, at, data) in rows.into_iter().rev() {
        let number = seq.and_then(|seq| u64::try_from(seq).ok()).unwrap_or(0);
        let Ok(message) = record::parse(&data, MESSAGE, LONGEST) else { continue };
        let (message, is_answer) = (message.root(), kind.as_deref() == Some("assistant"));
        let over = message.get("time").get("completed").exists();
        if is_answer && !over {
            if seq == newest {
                talk.offset = talk.offset.max(number.saturating_sub(1)); // it is being given, and comes next
                break;
            }
            continue; // it was cut off, and stays so
        }
        let at = at.map(Time);
        let parts: Vec<Said> = match is_answer {
            true => message.get("content").items().filter_map(|part| told(part, at)).collect(),
            false => {
                message.get("text").some_str().map(|text| Said::new(Speaker::Person, at, text)).into_iter().collect()
            }
        };
        for (n, said) in (0..).zip(parts) {
            talk::push(&mut talk.said, said.part_of(Some(&number.to_string())).at_place(talk::place(number, n)));
        }
        talk.offset = number;
    }
    Ok(Some(talk))
}

/// A part of an answer.
fn told(part: Value<'_>, at: Option<Time>) -> Option<Said> {
    if part.get("type").str() == Some("text") {
        return part.get("text").some_str().map(|text| Said::new(Speaker::Agent, at, text));
    }
    let (name, input) = (part.get("name").some_str()?, part.get("state").get("input"));
    let failed = match part.get("state").get("status").str() {
        Some("completed") => Some(false),
        Some("error") => Some(true),
        _ => None,
    };
    let said = Said::new(Speaker::Tool, at, Call::new("", name, input, None).told());
    Some(said.calling(part.get("id").str(), name, input).giving(None, failed))
}

fn model(message: Value<'_>) -> Option<String> {
    let (provider, id) =
        (message.get("model").get("providerID").some_str(), message.get("model").get("id").some_str()?);
    Some(provider.map_or_else(|| id.to_owned(), |p| format!("{p}/{id}")))
}

/// What an answer used; nothing while it is given, or where it failed.
fn used(message: Value<'_>) -> Option<Tokens> {
    let told = message.get("tokens");
    let over = message.get("time").get("completed").exists() && !message.get("error").exists();
    if told.exists() { record::tokens(told) } else { (!over).then(Tokens::default) }
}

/// What an answer used.
pub struct Used {
    /// Provider and model.
    pub model: String,
    /// What it took.
    pub tokens: Tokens,
    /// What that cost.
    pub cost: Option<f64>,
    /// When it was begun and done, in milliseconds.
    pub times: [u64; 2],
}

/// What an answer used, if anything; or why that cannot be told.
pub fn spent(json: &[u8]) -> Result<Option<Used>, String> {
    let doc = parsed(json)?;
    let message = doc.root();
    let tokens = used(message).ok_or("it does not say what it used")?;
    let time = |key: &str| message.get("time").get(key).u64().unwrap_or(0);
    let used = Used {
        model: model(message).unwrap_or_else(|| "unknown".to_owned()),
        tokens,
        cost: message.get("cost").f64(),
        times: [time("created"), time("completed")],
    };
    Ok(Some(used).filter(|used| used.tokens != Tokens::default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_message_tells_how_the_turn_stands() {
        let stands = |json: &str| stand(parsed(json.as_bytes()).expect("JSON").root());
        assert_eq!(stands(r#"{"time":{"created":1}}"#), Stand::Open);
        assert_eq!(stands(r#"{"time":{"created":1,"completed":2},"finish":"stop"}"#), Stand::Well);
        assert_eq!(stands(r#"{"time":{"created":1,"completed":2},"finish":"tool-calls","content":[]}"#), Stand::Open);
        let cut = r#"{"time":{"completed":2},"finish":"tool-calls","content":[{"type":"tool","state":{"status":"error",
            "error":{"type":"unknown","message":"Tool execution interrupted"}}}]}"#;
        assert!(matches!(stands(cut), Stand::Aborted(_)));
        let failed = r#"{"time":{"completed":2},"finish":"error","error":{"type":"unknown","message":"HTTP 400"}}"#;
        assert_eq!(stands(failed), Stand::Failed("HTTP 400".into(), None));
    }

    #[test]
    fn what_is_said_before_an_answer_that_is_open_is_not_said_again() {
        let connection = Connection::open_in_memory().expect("a database");
        let schema = "CREATE TABLE part (session_id); CREATE TABLE session_message (session_id, type, seq, time_created, \
                      time_updated, data)";
        connection.execute_batch(schema).expect("its tables");
        let write = |seq: u64, kind: &str, data: &str| {
            let row = "INSERT INTO session_message VALUES ('ses_1', ?1, ?2, 1, 1, ?3)";
            connection.execute(row, (kind, seq, data)).expect("a row");
        };
        let since = |offset, last| {
            let talk = said(&connection, "ses_1", offset, last).expect("no damage").expect("a conversation");
            (talk.offset, talk.said.iter().map(|said| said.text.raw().to_owned()).collect::<Vec<_>>())
        };
        write(1, "user", r#"{"text":"go on"}"#);
        write(2, "assistant", r#"{"time":{"created":1}}"#);
        assert_eq!(since(0, Some(1)), (1, vec![]), "its end, while the answer is given");
        assert_eq!(since(0, None), (1, vec!["go on".to_owned()]));
        write(3, "user", r#"{"text":"go on"}"#);
        assert_eq!(since(1, None).1.len(), 1, "the prompt that was sent, and not the one before");
    }
}
