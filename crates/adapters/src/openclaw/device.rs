//! Who this client is to a gateway: an Ed25519 key in a file of the user's, which a gateway knows by its
//! public half once its owner has approved it.
//!
//! The key is made when a person asks for it, never by looking. It leaves the file only to sign a gateway's
//! challenge: it is never shown, sent or written anywhere else. The token that a gateway issues to a device is
//! not kept: the gateway's own token and the key are enough.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use ed25519_dalek::{Signer as _, SigningKey};
use lariat_sys::{durable, file};
use serde_json::json;
use sha2::{Digest as _, Sha256};

const LARGEST: u64 = 4096;

/// A key.
pub struct Device(SigningKey);

/// What a gateway asks to have signed, and what for.
pub struct Challenge<'a> {
    /// The gateway's number for this connection.
    pub nonce: &'a str,
    /// When it says it is.
    pub at: u64,
    /// Id, mode and platform of the client that connects.
    pub client: [&'a str; 3],
    /// As what it connects.
    pub role: &'a str,
    /// What it wants to do.
    pub scopes: &'a [&'a str],
    /// The gateway's token, if there is one.
    pub token: Option<&'a str>,
}

impl Device {
    /// Reads a key.
    pub fn read(path: &Path) -> Result<Device, String> {
        let shown = path.display();
        let failed = |e: std::io::Error| match e.kind() {
            ErrorKind::NotFound => absent(path),
            _ => format!("its device file {shown} cannot be read: {e}"),
        };
        let (opened, key) = file::open(path).map_err(failed)?;
        if opened.metadata().map_err(failed)?.mode() & 0o077 != 0 {
            return Err(format!("its device file {shown} may be read by others; chmod 600 {shown}"));
        }
        let mut text = String::new();
        let read = if key.size > LARGEST { Ok(0) } else { opened.take(LARGEST).read_to_string(&mut text) };
        let seed = read.ok().and_then(|_| from_hex(text.trim()));
        let seed = seed.ok_or_else(|| {
            format!("its device file {shown} holds no key; put it aside, and `lariat gateway pair` makes another")
        })?;
        Ok(Device(SigningKey::from_bytes(&seed)))
    }

    /// Why there is no key, if that is all: none was made yet, or somebody took it away.
    pub fn lacks(path: &Path) -> Option<String> {
        path.symlink_metadata().is_err_and(|e| e.kind() == ErrorKind::NotFound).then(|| absent(path))
    }

    /// Makes a key, if none is there; whether it did.
    pub fn make(path: &Path) -> Result<bool, String> {
        if path.symlink_metadata().is_ok() {
            return Ok(false);
        }
        let shown = path.display();
        let failed = |e: std::io::Error| format!("the device file {shown} cannot be made: {e}");
        let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
            return Err(format!("the device file {shown} has no name"));
        };
        let mut seed = [0u8; 32];
        #[expect(clippy::disallowed_methods, reason = "the kernel's source of randomness")]
        std::fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut seed)).map_err(failed)?;
        durable::make_folder(folder).map_err(failed)?;
        durable::put(folder, name, format!("{}\n", hex(&seed)).as_bytes()).map_err(failed)?;
        Ok(true)
    }

    /// What a gateway knows it by.
    pub fn id(&self) -> String {
        hex(&Sha256::digest(self.0.verifying_key().as_bytes()))
    }

    /// What is sent of it with a greeting.
    pub fn greeting(&self, challenge: &Challenge<'_>) -> serde_json::Value {
        let id = self.id();
        let signature = self.0.sign(signed(&id, challenge).as_bytes());
        json!({
            "id": id,
            "publicKey": base64url(self.0.verifying_key().as_bytes()),
            "signature": base64url(&signature.to_bytes()),
            "signedAt": challenge.at,
            "nonce": challenge.nonce,
        })
    }
}

fn absent(path: &Path) -> String {
    format!("its device file {} is not there yet: `lariat gateway pair` makes it", path.display())
}

/// The text that is signed; the last part, the family of the device, is empty.
fn signed(id: &str, challenge: &Challenge<'_>) -> String {
    let Challenge { nonce, at, client: [client, mode, platform], role, scopes, token } = challenge;
    let (scopes, token) = (scopes.join(","), token.unwrap_or(""));
    format!("v3|{id}|{client}|{mode}|{role}|{scopes}|{at}|{token}|{nonce}|{platform}|")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut seed = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in seed.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(seed)
}

/// Base64 for addresses, without padding.
fn base64url(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let number = part.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - part.len()));
        let letters = (0..=part.len()).map(|i| LETTERS[(number >> (18 - 6 * i)) as usize & 63]);
        text.extend(letters.map(char::from));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        // RFC 4648, 10, without padding.
        for (text, coded) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg")] {
            assert_eq!(base64url(text.as_bytes()), coded);
        }
        assert_eq!(base64url(&[0xfb, 0xff]), "-_8");
    }

    #[test]
    fn the_key_signs_what_the_gateway_checks() {
        // RFC 8032, 7.1, the first key.
        let seed = from_hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60").unwrap();
        let device = Device(SigningKey::from_bytes(&seed));
        assert_eq!(hex(device.0.verifying_key().as_bytes())[..16], *"d75a980182b10ab7");
        let challenge = Challenge {
            nonce: "n",
            at: 7,
            client: ["cli", "cli", "linux"],
            role: "operator",
            scopes: &["operator.read", "operator.write"],
            token: Some("t"),
        };
        let id = device.id();
        let text = signed(&id, &challenge);
        assert_eq!(text, format!("v3|{id}|cli|cli|operator|operator.read,operator.write|7|t|n|linux|"));
        let greeting = device.greeting(&challenge);
        let signature = device.0.sign(text.as_bytes()).to_bytes();
        assert_eq!(greeting["signature"], base64url(&signature));
        assert!(!greeting.to_string().contains(&hex(&seed)) && from_hex("zz").is_none());
    }
}
