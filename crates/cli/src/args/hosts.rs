//! What can be asked of hosts, and which words of a command line lead to one.

use clap::Subcommand;

use super::{FuseVerb, Verb};

#[derive(Subcommand, Debug)]
pub enum HostVerb {
    /// Name a machine, and say whether its lariat answers
    Add {
        /// What to call it
        #[arg(value_name = "NAME")]
        name: String,
        /// What ssh takes for it; the name unless told
        #[arg(value_name = "DESTINATION")]
        destination: Option<String>,
        /// Where lariat is there, if not on its PATH
        #[arg(long, value_name = "PATH")]
        lariat: Option<String>,
    },
    /// List hosts, and which lariat answers there
    #[command(visible_alias = "list")]
    Ls,
    /// Forget a machine; nothing is done there
    #[command(alias = "remove")]
    Rm {
        /// What it is called
        #[arg(value_name = "NAME")]
        name: String,
    },
}

impl Verb {
    /// The sessions that it is done to, where it is done by the machine that has them. (`ls`, `status`
    /// and `explain` only tell, of all machines.)
    pub fn targets(&self) -> Vec<&str> {
        match self {
            Verb::Peek(a) => vec![&a.target],
            Verb::Diff(a) => vec![&a.target],
            Verb::Attach(a) => vec![&a.target],
            Verb::Send(a) => vec![&a.target],
            Verb::Logs(a) => vec![&a.target],
            Verb::Approve(a) => vec![&a.target],
            Verb::Deny(a) => vec![&a.target],
            Verb::Answer(a) => vec![&a.target],
            Verb::Resume(a) | Verb::Fork(a) => vec![&a.target],
            Verb::Keep(a) => vec![&a.target],
            Verb::Rename(a) => vec![&a.target],
            Verb::Wait(a) => a.targets.iter().map(String::as_str).collect(),
            Verb::Stop(a) | Verb::Kill(a) => a.targets.iter().map(String::as_str).collect(),
            Verb::Usage(a) => a.target.iter().map(String::as_str).collect(),
            Verb::Fuse { verb: FuseVerb::Set(a) } => vec![&a.target],
            _ => Vec::new(),
        }
    }

    /// The machine that it is to be done on, where that is said.
    pub fn host(&self) -> Option<&str> {
        match self {
            Verb::Launch(a) => a.host.as_deref(),
            Verb::Restore(a) => a.host.as_deref(),
            Verb::Stop(a) | Verb::Kill(a) => a.host.as_deref(),
            _ => None,
        }
    }
}
