//! What a page is let in with: never the token, but a pass that is worth nothing once this daemon has gone.
//!
//! # Theory of operation
//!
//! An open page outlives the daemon that served it, and goes on asking the same port. Whoever takes that port
//! meanwhile hears what the page says, can answer it, and gets to see what the page has stored as soon as somebody
//! reloads it. So a page has two things:
//!
//! ```text
//!  key   = HMAC(token, page's name)        in the page's memory alone; never sent by it, never stored
//!  pass  = HMAC(key, port, run)            sent with every request, stored for the tab
//! ```
//!
//! A run is one life of one daemon, and for all of it the daemon holds its port. So a pass that anybody else hears
//! is one that nobody takes any more. When the line was lost, the page names itself and gives a number that it has
//! just made up; whoever proves that it knows the key, for this number, this port and its run, is the daemon, and
//! only then does the page make the pass for that run. The port is a part of it so that nobody who took ours can
//! pass the question on to a daemon that has gone to another.
//!
//! Nothing is remembered here of a page: a key can be made again from the token.

use serde_json::{Value, json};

use super::guard::same;
use crate::deliver::sign::sign;

/// How a pass begins, so that it is never taken for the token.
const KIND: &str = "page.";

/// This daemon's run on its port.
pub struct Run {
    port: u16,
    /// What no other run has.
    name: String,
}

impl Run {
    /// A new one.
    pub fn new(port: u16) -> std::io::Result<Run> {
        Ok(Run { port, name: random()? })
    }

    /// Whether this is the token, or a pass of this run.
    pub fn knows(&self, token: &str, given: &[u8]) -> bool {
        same(given, token.as_bytes()) || self.page(token, given).is_some()
    }

    /// The name of the page whose pass this is.
    pub fn page<'a>(&self, token: &str, given: &'a [u8]) -> Option<&'a str> {
        let (page, pass) = std::str::from_utf8(given).ok()?.strip_prefix(KIND)?.split_once('.')?;
        let right = is_name(page) && same(pass.as_bytes(), self.pass(&key(token, page)).as_bytes());
        right.then_some(page)
    }

    /// Lets a page in; one that has no name yet gets one.
    pub fn admit(&self, token: &str, page: Option<&str>) -> std::io::Result<Value> {
        let page = page.map_or_else(random, |page| Ok(page.to_owned()))?;
        let key = key(token, &page);
        let pass = format!("{KIND}{page}.{}", self.pass(&key));
        Ok(json!({"schema": 1, "token": pass, "page": page, "key": key, "run": self.name}))
    }

    /// Proves to a page that we know its key; `None` if what it says makes no sense.
    pub fn prove(&self, token: &str, page: &str, nonce: &str) -> Option<Value> {
        let proof = self.proof(token, page, nonce)?;
        Some(json!({"schema": 1, "run": self.name, "proof": proof}))
    }

    /// The proof alone.
    pub fn proof(&self, token: &str, page: &str, nonce: &str) -> Option<String> {
        let text = format!("daemon\n{}\n{}\n{nonce}", self.port, self.name);
        (is_name(page) && is_name(nonce)).then(|| sign(key(token, page).as_bytes(), text.as_bytes()))
    }

    fn pass(&self, key: &str) -> String {
        sign(key.as_bytes(), format!("page\n{}\n{}", self.port, self.name).as_bytes())
    }
}

fn key(token: &str, page: &str) -> String {
    sign(token.as_bytes(), format!("key\n{page}").as_bytes())
}

fn random() -> std::io::Result<String> {
    Ok(lariat_adapters::new_uuid()?.replace('-', ""))
}

/// Whether it is one of ours by its form: so no two texts that are signed can be the same by accident.
fn is_name(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    const NONCE: &str = "00000000000000000000000000000001";

    fn text<'a>(told: &'a Value, key: &str) -> &'a str {
        told[key].as_str().unwrap()
    }

    #[test]
    fn a_pass_is_good_for_one_run_on_one_port() {
        let run = Run::new(4700).unwrap();
        let told = run.admit(TOKEN, None).unwrap();
        let (pass, page) = (text(&told, "token"), text(&told, "page"));
        assert_eq!(run.page(TOKEN, pass.as_bytes()), Some(page));
        assert!(run.knows(TOKEN, pass.as_bytes()) && run.knows(TOKEN, TOKEN.as_bytes()));
        assert!(!pass.contains(text(&told, "key")) && !told.to_string().contains(TOKEN));
        // The next daemon, the same one elsewhere, and one with another token do not know it.
        assert!(!Run::new(4700).unwrap().knows(TOKEN, pass.as_bytes()));
        assert!(!Run { port: 4701, name: run.name.clone() }.knows(TOKEN, pass.as_bytes()));
        assert!(!run.knows(&TOKEN.replace('0', "1"), pass.as_bytes()));
        // Nor is any part of it enough, or that of another page.
        let other = run.admit(TOKEN, None).unwrap();
        let mixed = format!("page.{page}.{}", text(&other, "token").rsplit('.').next().unwrap());
        for wrong in ["", "page.", "page..", page, &pass[5..], &pass[..pass.len() - 1], &mixed, text(&told, "key")] {
            assert!(!run.knows(TOKEN, wrong.as_bytes()), "{wrong}");
        }
        // A page that comes again keeps its name and its key.
        let again = run.admit(TOKEN, Some(page)).unwrap();
        assert_eq!((&again["key"], &again["token"]), (&told["key"], &told["token"]));
    }

    #[test]
    fn a_proof_is_for_one_question_at_one_port_and_is_no_pass() {
        let run = Run::new(4700).unwrap();
        let told = run.admit(TOKEN, None).unwrap();
        let page = text(&told, "page");
        let proof = run.proof(TOKEN, page, NONCE).unwrap();
        let elsewhere = Run { port: 4701, name: run.name.clone() };
        assert_ne!(elsewhere.proof(TOKEN, page, NONCE).unwrap(), proof);
        assert_ne!(run.proof(TOKEN, page, &NONCE.replace('1', "2")).unwrap(), proof);
        assert_ne!(run.proof(&TOKEN.replace('0', "1"), page, NONCE).unwrap(), proof);
        assert!(!run.knows(TOKEN, format!("page.{page}.{proof}").as_bytes()));
        for (page, nonce) in [("", NONCE), (page, ""), (page, "x"), (&page.to_uppercase()[..], NONCE), ("a\nb", NONCE)]
        {
            assert_eq!(run.prove(TOKEN, page, nonce), None, "{page:?} {nonce:?}");
        }
    }
}
