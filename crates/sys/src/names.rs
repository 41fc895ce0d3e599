//! What the machine's lists of names say: the addresses of a host, the home of a user.
//!
//! The C library looks names up with modules that it loads, which a program that is
//! linked with none must not do, and it cannot be told to stop. So `getent`, which
//! comes with that library, is asked, and ended when it is late. Addresses and
//! `localhost` need nobody's help.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::{ChildStdout, Command, ExitStatus, Stdio};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};

use crate::spawn;

/// More is no list of addresses.
const MOST: usize = 64 << 10;

/// Where a name leads; never nothing.
pub fn addresses(name: &str, port: u16, until: Instant) -> io::Result<Vec<SocketAddr>> {
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    let found = match bare.parse::<IpAddr>() {
        Ok(ip) => vec![ip],
        Err(_) if name.eq_ignore_ascii_case("localhost") => {
            vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]
        }
        Err(_) => looked_up(name, until)?,
    };
    Ok(found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
}

/// The home of whoever runs this, as the machine's list of users has it.
pub fn home(until: Instant) -> io::Result<PathBuf> {
    let user = rustix::process::getuid().as_raw().to_string();
    let (told, _) = getent(&["passwd", &user], until)?;
    let line = told.split(|b| *b == b'\n').next().unwrap_or_default();
    let home = line.split(|b| *b == b':').nth(5).filter(|h| h.starts_with(b"/"));
    let home = home.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("user {user} has no home")))?;
    Ok(PathBuf::from(OsStr::from_bytes(home)))
}

fn looked_up(name: &str, until: Instant) -> io::Result<Vec<IpAddr>> {
    let failed = |kind, why: String| Err(io::Error::new(kind, format!("the name {name} {why}")));
    let is_usual = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if name.is_empty() || name.starts_with('-') || !name.chars().all(is_usual) {
        return failed(io::ErrorKind::InvalidInput, "is no name of a host".into());
    }
    let (told, ended) = match getent(&["ahosts", name], until) {
        Ok(told) => told,
        Err(e) if e.kind() == io::ErrorKind::TimedOut => {
            return failed(e.kind(), "could not be looked up in time".into());
        }
        Err(e) => return failed(e.kind(), format!("cannot be looked up: getent: {e}")),
    };
    let found = parse(&String::from_utf8_lossy(&told));
    match ended.code() {
        _ if !found.is_empty() => Ok(found),
        Some(0 | 2) => failed(io::ErrorKind::NotFound, "leads nowhere".into()),
        _ => failed(io::ErrorKind::Other, format!("cannot be looked up: getent ended with {ended}")),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a name that a person wrote into the settings; a home that no variable has"
)]
fn getent(arguments: &[&str], until: Instant) -> io::Result<(Vec<u8>, ExitStatus)> {
    let mut getent = Command::new("getent");
    getent.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    spawn::end_with_us(&mut getent);
    let mut child = getent.spawn()?;
    let told = child.stdout.take().map_or_else(|| Ok(Some(Vec::new())), |out| read(out, until));
    if !matches!(told, Ok(Some(_))) {
        let _ = child.kill(); // it may have ended meanwhile
    }
    let ended = child.wait()?;
    let told = told?.ok_or(io::ErrorKind::TimedOut)?;
    Ok((told, ended))
}

/// All that is told until its end; nothing if that takes too long.
fn read(mut out: ChildStdout, until: Instant) -> io::Result<Option<Vec<u8>>> {
    let (mut told, mut piece) = (Vec::new(), [0; 4096]);
    while told.len() < MOST {
        let left = until.saturating_duration_since(Instant::now());
        let left = rustix::time::Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&out, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Ok(None),
            Err(rustix::io::Errno::INTR) => continue,
            told => told?,
        };
        match out.read(&mut piece)? {
            0 => break,
            n => told.extend_from_slice(&piece[..n]),
        }
    }
    Ok(Some(told))
}

/// Each address once, in the order in which they are to be tried.
fn parse(told: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for ip in told.lines().filter_map(|l| l.split_whitespace().next()?.parse().ok()) {
        if !found.contains(&ip) {
            found.push(ip);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    fn ask(name: &str) -> Result<Vec<String>, String> {
        let found = addresses(name, 80, Instant::now() + Duration::from_secs(10));
        found.map(|all| all.iter().map(SocketAddr::to_string).collect()).map_err(|e| e.to_string())
    }

    #[test]
    fn what_needs_no_lookup() {
        assert_eq!(ask("127.0.0.2"), Ok(vec!["127.0.0.2:80".into()]));
        assert_eq!(ask("[::1]"), Ok(vec!["[::1]:80".into()]));
        assert_eq!(ask("LocalHost"), Ok(vec!["127.0.0.1:80".into(), "[::1]:80".into()]));
    }

    #[test]
    fn the_home_of_this_user() {
        let home = home(Instant::now() + Duration::from_secs(10)).expect("a user of this machine");
        let listed = std::fs::read_to_string("/etc/passwd").expect("the list");
        assert!(listed.lines().any(|l| l.split(':').nth(5).map(Path::new) == Some(&home)), "{home:?}");
    }

    #[test]
    fn what_is_no_name_is_not_asked_for() {
        for name in ["", "--help", "a b", "a\nb", "[::1"] {
            assert_eq!(ask(name), Err(format!("the name {name} is no name of a host")));
        }
    }

    #[test]
    fn each_address_is_told_once_in_order() {
        let told = "10.0.0.1       STREAM one.test\n10.0.0.1       DGRAM\nfe80::1%eth0 STREAM\n::2  STREAM\nodd\n\n";
        assert_eq!(parse(told), ["10.0.0.1".parse::<IpAddr>().expect("one"), "::2".parse().expect("another")]);
    }
}
