//! Just enough HTTP/1.1 to serve an agent's client on loopback, one request per connection.
//!
//! It never interprets a body, and never keeps a connection for a second request: every answer
//! says `connection: close`, so a client that went away is seen at once.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

/// The most a request body may hold; a larger one is a fault of the test.
const BODY_LIMIT: usize = 256 << 20;

/// One request as it came.
pub(super) struct Incoming {
    pub method: String,
    /// Without the query.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Incoming {
    /// Reads one request; `None` when the peer closed without asking anything.
    pub fn read(stream: &TcpStream) -> io::Result<Option<Self>> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Err(invalid(format!("not a request line: {line:?}")));
        };
        let mut request = Self {
            method: method.to_owned(),
            path: target.split('?').next().unwrap_or(target).to_owned(),
            headers: read_headers(&mut reader)?,
            body: Vec::new(),
        };
        if request.header("expect").is_some_and(|v| v.eq_ignore_ascii_case("100-continue")) {
            (&mut &*stream).write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        if let Some(encoding) = request.header("content-encoding")
            && encoding != "identity"
        {
            return Err(invalid(format!("a request body in {encoding} is not understood")));
        }
        request.body = match (request.header("transfer-encoding"), request.header("content-length")) {
            (Some(encoding), _) if encoding.eq_ignore_ascii_case("chunked") => read_chunks(&mut reader)?,
            (_, Some(length)) => {
                let length = length.parse().map_err(|_| invalid("bad content-length".into()))?;
                read_exactly(&mut reader, length)?
            }
            _ => Vec::new(),
        };
        Ok(Some(request))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

fn read_headers(reader: &mut impl BufRead) -> io::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((name, value)) = line.split_once(':') else {
            return Ok(headers);
        };
        headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
}

fn read_exactly(reader: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    if length > BODY_LIMIT {
        return Err(invalid(format!("a body of {length} bytes")));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}

fn read_chunks(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| invalid(format!("bad chunk size {line:?}")))?;
        if size == 0 {
            read_headers(reader)?;
            return Ok(body);
        }
        if body.len() + size > BODY_LIMIT {
            return Err(invalid("a chunked body that does not end".into()));
        }
        body.extend(read_exactly(reader, size)?);
        let mut end = String::new();
        reader.read_line(&mut end)?;
    }
}

/// The way back to a client.
pub(super) struct Outgoing {
    stream: TcpStream,
}

impl Outgoing {
    pub fn new(stream: TcpStream) -> Self {
        Self { stream }
    }

    /// A whole JSON answer.
    pub fn json(&mut self, code: u16, value: &Value) -> io::Result<()> {
        let body = value.to_string();
        let head = format!(
            "HTTP/1.1 {code} {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             request-id: req_scripted\r\nconnection: close\r\n\r\n",
            reason(code),
            body.len()
        );
        self.stream.write_all(head.as_bytes())?;
        self.stream.write_all(body.as_bytes())
    }

    /// An answer with no body.
    pub fn empty(&mut self, code: u16) -> io::Result<()> {
        let head = format!("HTTP/1.1 {code} {}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", reason(code));
        self.stream.write_all(head.as_bytes())
    }

    /// Opens a stream of server-sent events, which ends with the connection.
    pub fn events(&mut self) -> io::Result<()> {
        self.stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n\
              request-id: req_scripted\r\nconnection: close\r\n\r\n",
        )
    }

    /// Sends one event, named by its own `type` if it has one.
    pub fn event(&mut self, value: &Value) -> io::Result<()> {
        let name = value["type"].as_str().map(|kind| format!("event: {kind}\n")).unwrap_or_default();
        self.stream.write_all(format!("{name}data: {value}\n\n").as_bytes())
    }

    /// Whether the client has hung up.
    pub fn closed(&self) -> bool {
        let mut fds = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }
}

fn reason(code: u16) -> &'static str {
    match code {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        529 => "Overloaded",
        _ => "Scripted",
    }
}
