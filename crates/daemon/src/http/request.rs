//! Requests as they come over the wire: bounded in length and in time.
//!
//! A head comes first, and its body only when somebody asks for it: who may not ask is told so
//! by the head alone, and nothing else of his is kept.

use std::io::{self, Read as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The longest head of a request.
const HEAD: usize = 16 << 10;
/// The longest body.
pub const BODY: usize = 1 << 20;
/// The longest body of one who has not shown the token.
pub const STRANGERS_BODY: usize = 4 << 10;
/// How long one may stay silent between two requests.
const IDLE: Duration = Duration::from_secs(60);
/// How long one may stay in all who has not shown the token.
const STRANGER: Duration = Duration::from_secs(5);
/// How long what is left of a refused request is let pass by.
const LEAVING: Duration = Duration::from_secs(5);
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
    /// The body, once it was asked for.
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
    /// Whether something follows its head.
    pub fn has_body(&self) -> bool {
        let length = self.header("content-length");
        !self.header("transfer-encoding").is_empty() || !(length.is_empty() || length == [b"0"])
    }

    /// Every value of a header.
    pub fn header(&self, name: &str) -> Vec<&[u8]> {
        self.headers.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_slice()).collect()
    }
}

/// Reads requests from a connection, one after the other.
pub struct Reader<'a> {
    stream: &'a TcpStream,
    buffer: Vec<u8>,
    /// Until when the next request must be there, for one who has not shown the token.
    stranger_until: Option<Instant>,
    until: Instant,
}

impl<'a> Reader<'a> {
    /// Of a connection.
    pub fn new(stream: &'a TcpStream) -> Reader<'a> {
        let now = Instant::now();
        Reader { stream, buffer: Vec::new(), stranger_until: Some(now + STRANGER), until: now }
    }

    /// From now on it is one who has shown the token.
    pub fn is_known(&mut self) {
        if self.stranger_until.take().is_some() {
            self.until = Instant::now() + WHOLE;
        }
    }

    /// The next request, without its body.
    pub fn next(&mut self) -> Result<Request, NoRequest> {
        let within = |time: Duration, strangers: Option<Instant>| {
            let until = Instant::now() + time;
            strangers.map_or(until, |most| most.min(until))
        };
        self.until = within(IDLE, self.stranger_until);
        let mut begun = false;
        loop {
            if !self.buffer.is_empty() && !begun {
                (self.until, begun) = (within(WHOLE, self.stranger_until), true);
            }
            if let Some((request, head)) = parse(&self.buffer)? {
                self.buffer.drain(..head);
                return Ok(request);
            }
            if self.buffer.len() > HEAD {
                return Err(NoRequest::Wrong(413, "the head is too long"));
            }
            self.more()?;
        }
    }

    /// Reads the body of the request that was just given, if it is no longer than this.
    pub fn body(&mut self, request: &mut Request, longest: usize) -> Result<(), NoRequest> {
        let length = body_length(request, longest)?;
        while self.buffer.len() < length {
            self.more()?;
        }
        request.body = self.buffer.drain(..length).collect();
        Ok(())
    }

    fn more(&mut self) -> Result<(), NoRequest> {
        let mut piece = [0; 4096];
        match self.read(&mut piece, self.until)? {
            0 => Err(NoRequest::Over),
            n => {
                self.buffer.extend_from_slice(&piece[..n]);
                Ok(())
            }
        }
    }

    fn read(&self, piece: &mut [u8], until: Instant) -> io::Result<usize> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(0);
        }
        self.stream.set_read_timeout(Some(left))?;
        (&mut &*self.stream).read(piece)
    }

    /// Hangs up after an answer, and lets what still comes pass by for a moment, unheard and
    /// unkept: else the kernel would take the answer back with the connection.
    pub fn hang_up(self) {
        let until = Instant::now() + LEAVING;
        let mut piece = [0; 4096];
        let mut left = BODY;
        if self.stream.shutdown(std::net::Shutdown::Write).is_err() {
            return;
        }
        while let Ok(n @ 1..) = self.read(&mut piece, until)
            && let Some(rest) = left.checked_sub(n)
        {
            left = rest;
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

fn body_length(request: &Request, longest: usize) -> Result<usize, NoRequest> {
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
    if length > longest { Err(NoRequest::Wrong(413, "the body is too long")) } else { Ok(length) }
}
