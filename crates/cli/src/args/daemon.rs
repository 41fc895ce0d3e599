//! What can be asked of the daemon, of events, of fuses and of gateways.

use std::time::Duration;

use clap::{Args, Subcommand};

use lariat_core::time::duration;

#[derive(Args, Debug)]
pub struct Events {
    /// Stay, and tell what happens from now on, after all that lives now
    #[arg(short, long)]
    pub follow: bool,
    /// Go on after the event of this id
    #[arg(long, value_name = "ID", requires = "follow")]
    pub since: Option<String>,
    /// Have this terminal show a note when a session needs you or has ended (OSC 9 and 777)
    #[arg(long, requires = "follow")]
    pub notify: bool,
}

#[derive(Subcommand, Debug)]
pub enum GatewayVerb {
    /// Make the key that the settings name as `device`, if there is none, and ask the gateway to know it
    Pair {
        /// The gateway's name in the settings; not needed if there is one only
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
}

#[derive(Subcommand, Debug)]
pub enum FuseVerb {
    /// Set a fuse; the daemon burns it
    Set(FuseSet),
    /// List fuses, and how far they have burnt
    #[command(alias = "list")]
    Ls,
    /// Give a fuse more time
    Extend {
        /// The fuse
        #[arg(value_name = "FUSE")]
        id: String,
        /// How much more
        #[arg(long, value_name = "TIME", value_parser = duration)]
        by: Duration,
    },
    /// Take a fuse away
    #[command(alias = "rm")]
    Cancel {
        /// The fuse
        #[arg(value_name = "FUSE")]
        id: String,
    },
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("limit").required(true))]
pub struct FuseSet {
    /// A session, or a directory (with a slash in it, or '.')
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// After this time
    #[arg(long, value_name = "TIME", value_parser = duration, group = "limit")]
    pub after: Option<Duration>,
    /// When it has used so many tokens, sent and received
    #[arg(long, value_name = "N", group = "limit")]
    pub tokens: Option<u64>,
    /// When it has cost so many dollars
    #[arg(long, value_name = "USD", group = "limit")]
    pub cost: Option<f64>,
    /// When it has run so many minutes
    #[arg(long, value_name = "N", group = "limit")]
    pub minutes: Option<u32>,
    /// When it has been idle for this time
    #[arg(long, value_name = "TIME", value_parser = duration, group = "limit")]
    pub idle: Option<Duration>,
    /// What is done then; `webhook` only tells all who listen (JSON calls `cmd` `command`, and `webhook` `tell`)
    #[arg(long, value_enum, default_value = "stop")]
    pub then: Then,
    /// The command, for `--then cmd`
    #[arg(long, value_name = "COMMAND", required_if_eq("then", "cmd"))]
    pub run: Option<String>,
}

#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// End it gently
    Stop,
    /// End it at once
    Kill,
    /// Run a command
    Cmd,
    /// Tell all who listen: events, webhooks, commands
    Webhook,
}

#[derive(Subcommand, Debug)]
pub enum DaemonVerb {
    /// Start it, unless it runs
    Start(DaemonStart),
    /// Stop it; no agent notices
    Stop,
    /// Stop it if it runs, and start it
    Restart(DaemonStart),
    /// Tell how it is, and what is here now
    Status,
    /// Install systemd units that start it at login and on demand
    Install {
        /// Serve HTTP on this port of this machine
        #[arg(long, value_name = "PORT")]
        http: Option<u16>,
    },
    /// Take it away from systemd again; no agent notices
    Uninstall,
    /// Print the token that HTTP asks for
    Token,
    /// List what is owed to webhooks and commands, and what nobody took
    Deliveries,
    /// Show what it did and what went wrong
    Logs {
        /// Only so many lines from the end
        #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 50)]
        lines: usize,
    },
}

#[derive(Args, Debug)]
pub struct DaemonStart {
    /// Be the daemon, instead of starting one
    #[arg(long)]
    pub foreground: bool,
    /// Serve HTTP on this port of this machine, to those who know the token
    #[arg(long, value_name = "PORT")]
    pub http: Option<u16>,
}

#[derive(Args, Debug)]
pub struct Web {
    /// Only print the address
    #[arg(long)]
    pub no_open: bool,
    /// The port of this machine; the settings' or 4700 unless told, or another one if that is taken
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
}
