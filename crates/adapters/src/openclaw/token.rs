//! Where a gateway's token comes from: the environment, or a file that only its
//! owner may read. Never from OpenClaw's own files, and never shown.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use lariat_sys::file;

use crate::settings::Token;

const LARGEST: u64 = 4096;

/// The token, if one is named.
pub fn read(token: &Token) -> Result<Option<String>, String> {
    let text = match token {
        Token::None => return Ok(None),
        Token::Env(name) => std::env::var(name).map_err(|_| format!("the variable {name} has no token in it"))?,
        Token::File(path) => from_file(path)?,
    };
    let text = text.trim();
    let plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic());
    plain.then(|| Some(text.to_owned())).ok_or_else(|| format!("{} has no token in it", place(token)))
}

fn from_file(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let failed = |e: std::io::Error| format!("its token_file {shown} cannot be read: {e}");
    // By where it really is: a link must not lead there either.
    let real = path.canonicalize().map_err(failed)?;
    if real.components().any(|c| c.as_os_str() == ".openclaw") {
        return Err(format!("its token_file {shown} is OpenClaw's own; copy the token into a file of yours"));
    }
    let (opened, key) = file::open(&real).map_err(failed)?;
    let mode = opened.metadata().map_err(failed)?.mode();
    if mode & 0o077 != 0 {
        return Err(format!("its token_file {shown} may be read by others; chmod 600 {shown}"));
    }
    if key.size > LARGEST {
        return Err(format!("its token_file {shown} is too large for a token"));
    }
    let mut text = String::new();
    opened.take(LARGEST).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Where the token is, in words.
pub fn place(token: &Token) -> String {
    match token {
        Token::None => "none".into(),
        Token::Env(name) => format!("the variable {name}"),
        Token::File(path) => path.display().to_string(),
    }
}
