//! Requests as they come over the wire: bounded in length and in time.

use std::io::{self, Read as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The longest head of a request.
const HEAD: usize = 16 << 10;
/// The longest body.
const BODY: usize = 1 << 20;
/// How long one may stay silent between two requests.
const IDLE: Duration = Duration::from_secs(60);
/// How long a request may take to come, once it has begun.
const WHOLE: Duration = Duration::from_secs(10);

/// A request.
#[derive(Debug)]
pub struct Request {
    /// `GET` …
    pub method: String,
    /// The path.
    pub path: String,
    /// What stands behind the question mark.
    pub query: String,
    /// The headers; names in small letters.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
    /// The connection stays.
    pub stays: bool,
}

/// Why there is no request.
pub enum NoRequest {
    /// The other end is done.
    Over,
    /// It is not one: the status and the reason.
    Wrong(u16, &'static str),
}

impl From<io::Error> for NoRequest {
    fn from(_: io::Error) -> NoRequest {
        NoRequest::Over
    }
}

impl Request {
    /// Every value of a header.
    pub fn header(&self, name: &str) -> Vec<&[u8]> {
        self.headers.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_slice()).collect()
    }
}

/// Reads requests from a connection, one after the other.
pub struct Reader<'a> {
    stream: &'a TcpStream,
    buffer: Vec<u8>,
}

impl<'a> Reader<'a> {
    /// Of a connection.
    pub fn new(stream: &'a TcpStream) -> Reader<'a> {
        Reader { stream, buffer: Vec::new() }
    }

    /// The next request.
    pub fn next(&mut self) -> Result<Request, NoRequest> {
        let mut until = Instant::now() + IDLE;
        let mut begun = false;
        let (mut request, head) = loop {
            if !self.buffer.is_empty() && !begun {
                (until, begun) = (Instant::now() + WHOLE, true);
            }
            if let Some(parsed) = parse(&self.buffer)? {
                break parsed;
            }
            if self.buffer.len() > HEAD {
                return Err(NoRequest::Wrong(413, "the head is too long"));
            }
            self.more(until)?;
        };
        let length = body_length(&request)?;
        while self.buffer.len() < head + length {
            self.more(until)?;
        }
        request.body = self.buffer[head..head + length].to_vec();
        self.buffer.drain(..head + length);
        Ok(request)
    }

    fn more(&mut self, until: Instant) -> Result<(), NoRequest> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(NoRequest::Over);
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece)? {
            0 => Err(NoRequest::Over),
            n => {
                self.buffer.extend_from_slice(&piece[..n]);
                Ok(())
            }
        }
    }
}

fn parse(buffer: &[u8]) -> Result<Option<(Request, usize)>, NoRequest> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Request::new(&mut headers);
    let end = match head.parse(buffer) {
        Ok(httparse::Status::Complete(end)) if end > HEAD => return Err(NoRequest::Wrong(413, "the head is too long")),
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(NoRequest::Wrong(413, "too many headers")),
        Err(_) => return Err(NoRequest::Wrong(400, "not an HTTP request")),
    };
    let target = head.path.unwrap_or("/");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers: Vec<(String, Vec<u8>)> =
        head.headers.iter().map(|h| (h.name.to_ascii_lowercase(), h.value.to_vec())).collect();
    let closes = headers.iter().any(|(n, v)| n == "connection" && v.eq_ignore_ascii_case(b"close"));
    let request = Request {
        method: head.method.unwrap_or("").to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        headers,
        body: Vec::new(),
        stays: head.version == Some(1) && !closes,
    };
    Ok(Some((request, end)))
}

fn body_length(request: &Request) -> Result<usize, NoRequest> {
    if !request.header("transfer-encoding").is_empty() {
        return Err(NoRequest::Wrong(400, "a body is sent with its length (Content-Length)"));
    }
    let length = match request.header("content-length").as_slice() {
        [] => 0,
        [length] => {
            let digits = std::str::from_utf8(length).ok().filter(|l| l.bytes().all(|b| b.is_ascii_digit()));
            digits.and_then(|l| l.parse().ok()).ok_or(NoRequest::Wrong(400, "a length that is none"))?
        }
        _ => return Err(NoRequest::Wrong(400, "two lengths")),
    };
    if length > BODY { Err(NoRequest::Wrong(413, "the body is too long")) } else { Ok(length) }
}
