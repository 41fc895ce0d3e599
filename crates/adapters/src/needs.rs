//! What an error that ended a turn needs of a person.
//!
//! An agent that was refused stands at its prompt and calls itself idle, yet
//! nothing it does there can go well until somebody has logged in, or waited for
//! or paid for what was used up. Adapters say so beside the turn's end. A fault
//! of the other side, which may pass by itself, needs nobody.

use lariat_core::{Ask, AskKind, Untrusted};
use serde::{Deserialize, Serialize};

/// What is needed before it can go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Need {
    /// A login, or a key that is taken.
    Login,
    /// A limit that was reached: time, or money.
    Limit,
}

impl Need {
    /// By the status of the answer that refused it.
    pub fn of_http(status: u64) -> Option<Need> {
        match status {
            401 | 403 => Some(Need::Login),
            402 | 429 => Some(Need::Limit),
            _ => None,
        }
    }

    /// By an error's own text, where that is all an agent records: the status stands first
    /// (`401 {…}`, `429: {…}`), or as the answer's `"code"`.
    pub fn of_text(error: &str) -> Option<Need> {
        let digits = |text: &str| {
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            text[..end].parse().ok().filter(|_| end == 3)
        };
        let code = || error.split_once("\"code\":").and_then(|(_, after)| digits(after.trim_start()));
        Need::of_http(digits(error).or_else(code)?)
    }

    /// What is asked, in the words of the error.
    pub fn ask(self, error: &str) -> Ask {
        let kind = match self {
            Need::Login => AskKind::Login,
            Need::Limit => AskKind::Limit,
        };
        Ask { kind, text: Untrusted::new(error.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_from_a_fault() {
        let of = Need::of_text;
        assert_eq!(of("401 {\"error\":{\"type\":\"authentication_error\"}}"), Some(Need::Login));
        assert_eq!(of("429: {\"message\":\"slow down\"}"), Some(Need::Limit));
        assert_eq!(of("[API Error: {\"error\":{\"code\":403,\"status\":\"PERMISSION_DENIED\"}}]"), Some(Need::Login));
        for fault in ["", "400: no", "529 overloaded", "4290", "it took 401 steps", "{\"code\":\"401\"}"] {
            assert_eq!(of(fault), None, "{fault}");
        }
    }
}
