//! The words on the daemon's socket.
//!
//! Both ends say hello first, in one line. Then the client asks, one line a
//! question, and the daemon answers each in turn: one line, and, if that line
//! counts bytes, as many bytes. `events` is the last question of a connection: from
//! then on the daemon only tells, one event a line.
//!
//! Fields are added, never renamed, and a field that is not known is passed over. So
//! two ends whose protocol differs by one understand each other.

use serde::{Deserialize, Serialize};

/// The version of these words.
pub const PROTOCOL: u32 = 1;
/// The longest question.
pub const LONGEST: u64 = 1 << 20;

/// What each end says of itself first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the words.
    pub protocol: u32,
    /// The version of the program.
    pub lariat: String,
    /// What it looks at: where everything is, and in which namespaces. Two ends that
    /// look at different things have nothing to tell each other about sessions.
    pub view: String,
}

impl Hello {
    /// Whether the other end's words can be understood.
    pub fn understands(&self, other: &Hello) -> bool {
        self.protocol.abs_diff(other.protocol) <= 1
    }
}

/// A question.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase")]
pub enum Question {
    /// What `lariat ARGUMENTS` prints, for verbs that only look.
    Answer {
        /// The arguments, the verb first.
        arguments: Vec<String>,
    },
    /// What happened.
    Events {
        /// The last event that is known already.
        since: Option<String>,
        /// Go on telling.
        follow: bool,
    },
    /// How the daemon is.
    Status,
    /// Serve HTTP, unless it does; the body tells the port.
    Http {
        /// On this port, or on any that is free.
        port: u16,
    },
    /// End the daemon, and nothing else.
    Stop,
}

/// The line of an answer.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reply {
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The exit code of the verb.
    #[serde(default)]
    pub code: u8,
    /// How many bytes follow.
    #[serde(default)]
    pub bytes: u64,
    /// Nothing had stirred since it was made.
    #[serde(default)]
    pub warm: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_version_apart_is_understood_and_unknown_fields_are_passed_over() {
        let hello = |protocol| Hello { protocol, lariat: "0.1.0".into(), view: String::new() };
        assert!(hello(1).understands(&hello(2)) && hello(2).understands(&hello(1)));
        assert!(!hello(1).understands(&hello(3)));
        let later = r#"{"ask":"events","since":null,"follow":true,"colour":"blue"}"#;
        let asked: Question = serde_json::from_str(later).unwrap();
        assert_eq!(asked, Question::Events { since: None, follow: true });
        assert!(serde_json::from_str::<Question>(r#"{"ask":"dance"}"#).is_err());
    }
}
