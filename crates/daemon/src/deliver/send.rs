//! Telling somebody, once: by a request, by a command, or on the desktop.
//!
//! `http://` is spoken here. `https://` is left to `curl`, which knows the machine's
//! certificates and proxies; a second TLS would be larger than all of the daemon.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lariat_adapters::settings::{Hook, Token};
use lariat_core::{Time, Untrusted};
use lariat_sys::{clock, file, names};
use serde_json::Value;

use super::outbox::Owed;
use super::sign::sign;

/// How long somebody may take to take it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a command may run.
const RUNS: Duration = Duration::from_secs(60);

/// The headers of a request, signed now if there is a secret.
fn headers(owed: &Owed, secret: Option<&[u8]>) -> Vec<(&'static str, String)> {
    let now = clock::now_ms() / 1000;
    let mut headers = vec![
        ("Content-Type", "application/json".to_owned()),
        ("User-Agent", concat!("lariat/", env!("CARGO_PKG_VERSION")).to_owned()),
        ("Lariat-Event", owed.event.clone()),
        ("Lariat-Delivery", owed.id.clone()),
        ("Lariat-Timestamp", now.to_string()),
    ];
    headers.extend(secret.map(|secret| {
        let signed = [now.to_string().as_bytes(), b".", owed.body.as_bytes()].concat();
        ("Lariat-Signature", format!("sha256={}", sign(secret, &signed)))
    }));
    headers
}

/// The secret of a hook; an error if it should have one that is not there.
fn secret(hook: &Hook) -> Result<Option<Vec<u8>>, String> {
    match &hook.secret {
        Token::None => Ok(None),
        Token::Env(name) => match std::env::var(name) {
            Ok(secret) if !secret.is_empty() => Ok(Some(secret.into_bytes())),
            _ => Err(format!("the variable {name} of the daemon's environment holds no secret")),
        },
        Token::File(path) => match file::read_small(path, 4096) {
            Ok(bytes) => Ok(Some(bytes.trim_ascii().to_vec()).filter(|b| !b.is_empty())),
            Err(e) => Err(format!("the secret in {}: {e}", path.display())),
        },
    }
}

/// Tells by a request; whether it was taken.
pub fn webhook(owed: &Owed, hook: &Hook) -> Result<(), String> {
    let secret = secret(hook)?;
    let headers = headers(owed, secret.as_deref());
    let status = match owed.who.strip_prefix("http://") {
        Some(rest) => plain(rest, &headers, &owed.body).map_err(|e| e.to_string())?,
        None => by_curl(&owed.who, &headers, &owed.body)?,
    };
    if (200..300).contains(&status) { Ok(()) } else { Err(format!("it answered with {status}")) }
}

fn plain(rest: &str, headers: &[(&str, String)], body: &str) -> io::Result<u16> {
    let (host, path) = rest.split_once('/').map_or((rest, String::new()), |(host, path)| (host, path.to_owned()));
    let port = host.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse().ok()?)));
    let (name, port) = port.unwrap_or((host, 80));
    let until = Instant::now() + PATIENCE;
    let left = || Some(until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
    let mut error = io::Error::from(io::ErrorKind::NotFound);
    for address in names::addresses(name, port, until)? {
        let mut stream = match TcpStream::connect_timeout(&address, left().unwrap_or(PATIENCE)) {
            Ok(stream) => stream,
            Err(e) => {
                error = e;
                continue;
            }
        };
        stream.set_write_timeout(left())?;
        stream.set_read_timeout(left())?;
        let mut head = format!("POST /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        stream.write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
        let mut line = String::new();
        BufReader::new(stream).take(1024).read_line(&mut line)?;
        let status = line.strip_prefix("HTTP/1.").and_then(|l| l.split(' ').nth(1)?.parse().ok());
        return status.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "what answers does not speak HTTP"));
    }
    Err(error)
}

fn by_curl(url: &str, headers: &[(&str, String)], body: &str) -> Result<u16, String> {
    // Everything by its standard input: arguments can be read by others.
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let mut config = format!("url = \"{}\"\nrequest = POST\n", quoted(url));
    headers.iter().for_each(|(n, v)| config.push_str(&format!("header = \"{n}: {}\"\n", quoted(v))));
    config.push_str(&format!("data-raw = \"{}\"\n", quoted(body)));
    #[expect(clippy::disallowed_methods, reason = "a person's webhook needs TLS")]
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--max-time", "10", "--proto", "=https", "--output", "/dev/null"]);
    curl.args(["--write-out", "%{http_code}", "--config", "-"]);
    let (said, error, ok) = run(&mut curl, config.as_bytes(), PATIENCE * 2)?;
    match said.trim().parse() {
        Ok(status) if ok => Ok(status),
        _ => Err(Untrusted::new(error.trim()).row()),
    }
}

/// Tells by running a command, with what it is about in its environment and the event
/// on its standard input.
pub fn command(owed: &Owed) -> Result<(), String> {
    let event: Value = serde_json::from_str(&owed.body).unwrap_or_default();
    #[expect(clippy::disallowed_methods, reason = "a person's command")]
    let mut shell = Command::new("sh");
    shell.args(["-c", &owed.who]).env("LARIAT_EVENT", &owed.event).env("LARIAT_DELIVERY", &owed.id);
    let session = &event["session"];
    let about = [
        ("LARIAT_ID", &session["id"]),
        ("LARIAT_HANDLE", &session["handle"]),
        ("LARIAT_STATUS", &session["status"]),
        ("LARIAT_REASON", &session["reason"]),
        ("LARIAT_CWD", &session["cwd"]),
    ];
    for (name, value) in about {
        // The kernel takes no NUL in a variable.
        shell.env(name, value.as_str().unwrap_or("").replace('\0', ""));
    }
    let (_, error, ok) = run(&mut shell, owed.body.as_bytes(), RUNS)?;
    if ok { Ok(()) } else { Err(format!("it failed: {}", Untrusted::new(error.trim()).row_within(200))) }
}

/// Tells on the desktop what is asked, in words that cannot act.
pub fn desktop(owed: &Owed) -> Result<(), String> {
    let event: Value = serde_json::from_str(&owed.body).unwrap_or_default();
    let (title, text) = words(&owed.event, &event);
    let marked = |text: String| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    #[expect(clippy::disallowed_methods, reason = "a person wants notes on the desktop")]
    let mut note = Command::new("notify-send");
    note.args(["--app-name=lariat", "--", &title, &marked(text)]);
    let (_, error, ok) = run(&mut note, b"", PATIENCE)?;
    if ok { Ok(()) } else { Err(Untrusted::new(error.trim()).row_within(200)) }
}

/// An event in a title and a line.
pub fn words(name: &str, event: &Value) -> (String, String) {
    let row = |v: &Value| v.as_str().map(|t| Untrusted::new(t).row_within(120)).filter(|t| !t.is_empty());
    let session = &event["session"];
    let who = row(&session["name"]).or_else(|| row(&session["handle"])).or_else(|| row(&session["id"]));
    let what = name.rsplit('.').next().unwrap_or(name);
    let title = who.map_or_else(|| name.to_owned(), |who| format!("{who}: {what}"));
    let claim = || row(&event["claim"]["path"]);
    let text = row(&session["reason"]).or_else(|| row(&event["adapter"]["name"])).or_else(claim);
    (title, text.unwrap_or_default())
}

/// Runs a program to its end: what it said, what it complained of, whether it went well.
fn run(command: &mut Command, input: &[u8], at_most: Duration) -> Result<(String, String, bool), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |e: io::Error| format!("{name}: {e}");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let read = |pipe: Option<Box<dyn io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = pipe.map(|p| p.take(64 << 10).read_to_end(&mut text)); // what came is enough
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let said = read(stdout.map(|p| Box::new(p) as _));
    let complained = read(stderr.map(|p| Box::new(p) as _));
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(input); // it need not listen
    }
    let ended = wait(&mut child, at_most).map_err(failed)?;
    let text = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    match ended {
        Some(ok) => Ok((text(said), text(complained), ok)),
        None => Err(format!("{name} took longer than {at_most:?}")),
    }
}

/// Whether it ended well; `None` if it had to be ended.
fn wait(child: &mut Child, at_most: Duration) -> io::Result<Option<bool>> {
    if crate::verb::ends_within(child.id(), at_most)? {
        return child.wait().map(|status| Some(status.success()));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// When to try again after so many tries; `None` if that is enough.
pub fn again(tries: u32, now: Time) -> Option<Time> {
    const SECONDS: [i64; 9] = [1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 12 * 3600];
    let wait = SECONDS.get(usize::try_from(tries).ok()?.checked_sub(1)?)?;
    Some(Time(now.0 + wait * 1000))
}
