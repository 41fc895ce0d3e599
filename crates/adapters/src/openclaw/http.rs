//! What a gateway tells over HTTP to whoever has its token, where its WebSocket grants nothing: its
//! sessions, without whether a run of one is open, and what was said in them. Nothing can be done this way.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::json::{Doc, Value};
use crate::openclaw::rows::{self, Row};
use crate::openclaw::wire::{KEEP, LARGEST, LONGEST, Timed, Trouble, connect, garbled, late};
use crate::openclaw::{talk, token};
use crate::settings::Gateway;
use crate::talk::Said;

/// A gateway, asked over HTTP.
pub struct Http<'a> {
    gateway: &'a Gateway,
    patience: Duration,
}

impl<'a> Http<'a> {
    /// Asks this gateway; each question may take so long.
    pub fn new(gateway: &'a Gateway, patience: Duration) -> Http<'a> {
        Http { gateway, patience }
    }

    /// Every session. Of none it is told whether a run is open.
    pub fn all(&self, step: &dyn Fn()) -> Result<BTreeMap<String, Row>, Trouble> {
        rows::pages(step, |limit, offset, read| {
            let body = json!({"tool": "sessions_list", "args": {"limit": limit, "offset": offset}});
            self.ask("POST", "/tools/invoke", &body.to_string(), |told| read(told.get("result").get("details")))
        })
        .map(|rows| rows.into_iter().map(|(key, row)| (key, Row { live: None, ..row })).collect())
    }

    /// The last messages of a session, oldest first.
    pub fn last(&self, key: &str, messages: usize) -> Result<Vec<Said>, Trouble> {
        let path = format!("/sessions/{}/history?limit={}", escaped(key), messages.clamp(1, talk::MOST));
        self.ask("GET", &path, "", talk::messages)
    }

    fn ask<T>(&self, method: &str, path: &str, body: &str, read: impl FnOnce(Value<'_>) -> T) -> Result<T, Trouble> {
        let token = token::read(&self.gateway.token)?.ok_or("there is no token to ask with")?;
        let until = Instant::now() + self.patience;
        let mut stream = Timed { stream: connect(self.gateway, until, self.patience)?, until };
        let host = &self.gateway.url()["ws://".len()..];
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let mut answer = Vec::new();
        let asked = stream.write_all(format!("{head}{body}").as_bytes());
        let heard = asked.and_then(|()| stream.take(LARGEST as u64).read_to_end(&mut answer));
        heard.map_err(|e| match e.kind() {
            std::io::ErrorKind::TimedOut => late(self.patience),
            _ => format!("the connection failed: {e}"),
        })?;
        let (status, body) = split(&answer).ok_or_else(|| garbled("no HTTP"))?;
        match status {
            200 => {}
            401 | 403 => {
                let place = token::place(&self.gateway.token);
                return Err(format!("it refuses the token of {place} (HTTP {status})"));
            }
            status => return Err(format!("it answers HTTP {status}")),
        }
        let doc = Doc::parse(&body, KEEP, LONGEST).map_err(|_| garbled("an answer that is not JSON"))?;
        Ok(read(doc.root()))
    }
}

/// Status and body of an answer.
fn split(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = memchr::memmem::find(answer, b"\r\n\r\n")?;
    let (head, body) = (std::str::from_utf8(&answer[..end]).ok()?, &answer[end + 4..]);
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let headers = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let chunked = headers.clone().any(|(name, value)| {
        name.eq_ignore_ascii_case("transfer-encoding") && value.trim().eq_ignore_ascii_case("chunked")
    });
    if chunked {
        return Some((status, unchunked(body)?));
    }
    let mut lengths = headers.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = lengths.next().map_or(Some(body.len()), |(_, value)| value.trim().parse().ok())?;
    Some((status, body.get(..length)?.to_vec())) // one that was cut short is none
}

fn unchunked(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let line = memchr::memmem::find(body, b"\r\n")?;
        let size = std::str::from_utf8(&body[..line]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        body = &body[line + 2..];
        if size == 0 {
            return Some(whole);
        }
        whole.extend_from_slice(body.get(..size)?);
        body = body.get(size.checked_add(2)?..)?;
    }
}

/// A key as one part of a path.
fn escaped(key: &str) -> String {
    key.bytes().fold(String::new(), |mut path, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => path.push(char::from(byte)),
            _ => drop(write!(path, "%{byte:02X}")),
        }
        path
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_whole_or_not_at_all() {
        let told = |text: &str| split(text.as_bytes()).map(|(status, body)| (status, String::from_utf8(body).unwrap()));
        assert_eq!(told("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}x"), Some((200, "{}".into())));
        assert_eq!(told("HTTP/1.1 404 No\r\n\r\nabc"), Some((404, "abc".into())));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(told(&format!("{chunked}2;a=b\r\nab\r\n1\r\nc\r\n0\r\n\r\n")), Some((200, "abc".into())));
        for cut in ["HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}", "HTTP/1.1 200 OK\r\n", "noise\r\n\r\n"] {
            assert_eq!(told(cut), None, "{cut}");
        }
        for cut in ["5\r\nab", "ffffffffffffffff\r\nab", "2\r\nab\r\n"] {
            assert_eq!(told(&format!("{chunked}{cut}")), None, "{cut}");
        }
        assert_eq!(escaped("agent:main:a/b ?"), "agent%3Amain%3Aa%2Fb%20%3F");
    }
}
