//! `lariat`: the command line.
//!
//! It parses, asks the engine, and prints; it decides nothing. One file per
//! verb in `verbs`, one way to print in `output`. Exit codes: 0 ok, 1 failed,
//! 2 usage, not found or ambiguous, 3 refused, 4 timed out, 5 partly unknown.

mod args;
mod output;
mod table;
mod tui;
mod verbs;

use std::process::ExitCode;

use args::Verb;
use lariat_protocol::json;
use lariat_sys::process::own_what_we_make;
use lariat_sys::{memory, signals};
use output::{Failure, Out};

#[global_allocator]
static MEMORY: memory::Pool = memory::Pool;

fn main() -> ExitCode {
    own_what_we_make();
    // Before any parser: this process may have to stay small for days.
    if let Some(code) = lariat_shim::dispatch(std::env::args_os()) {
        return code;
    }
    // Likewise, and it runs verbs in processes of their own.
    if let Some(code) = verbs::daemon::dispatch(std::env::args_os()) {
        return code;
    }
    if let Some(code) = verbs::within(std::env::args_os()) {
        return code;
    }
    if let Some(code) = verbs::completions::dispatch(std::env::args_os()) {
        return code;
    }
    signals::outlive_limits();
    let asked = args::parse();
    let mut out = Out::new(asked.cli.common.json);
    let done = verbs::there::run(&asked, &mut out).unwrap_or_else(|| here(asked.cli, &mut out));
    match done.and_then(|code| out.flush().map(|()| code)) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => out.fail(&failure),
    }
}

/// Does what was asked, on this machine.
fn here(cli: args::Cli, out: &mut Out) -> Done {
    match cli.verb {
        None => verbs::ls::run(&cli.ls, &cli.common, out),
        Some(Verb::Ls(ls) | Verb::Session { verb: args::SessionVerb::Ls(ls) }) => verbs::ls::run(&ls, &cli.common, out),
        Some(Verb::Top) => verbs::top::run(&cli.common),
        Some(Verb::Status(args)) => verbs::status::run(&args, &cli.common, out),
        Some(Verb::Explain(args)) => verbs::explain::run(&args, &cli.common, out),
        Some(Verb::Peek(args)) => verbs::peek::run(&args, &cli.common, out),
        Some(Verb::Diff(args)) => verbs::diff::run(&args, &cli.common, out),
        Some(Verb::Launch(args)) => verbs::launch::run(&args, &cli.common, out),
        Some(Verb::Attach(args)) => verbs::attach::run(&args, &cli.common, out),
        Some(Verb::Locks | Verb::Lock(args::Lock { verb: Some(_), .. })) => verbs::locks::list(&cli.common, out),
        Some(Verb::Lock(args)) => verbs::locks::lock(&args, &cli.common, out),
        Some(Verb::Unlock(args)) => verbs::locks::unlock(&args, &cli.common, out),
        Some(Verb::Logs(args)) => verbs::logs::run(&args, &cli.common, out),
        Some(Verb::Approve(args)) => verbs::approve::approve(&args, &cli.common, out),
        Some(Verb::Deny(args)) => verbs::approve::deny(&args, &cli.common, out),
        Some(Verb::Answer(args)) => verbs::approve::answer(&args, &cli.common, out),
        Some(Verb::Resume(args)) => verbs::resume::run(&args, false, &cli.common, out),
        Some(Verb::Fork(args)) => verbs::resume::run(&args, true, &cli.common, out),
        Some(Verb::Restore(args)) => verbs::restore::run(&args, &cli.common, out),
        Some(Verb::Keep(args)) => verbs::rename::keep(&args, &cli.common, out),
        Some(Verb::Rename(args)) => verbs::rename::rename(&args, &cli.common, out),
        Some(Verb::Send(args)) => verbs::send::run(&args, &cli.common, out),
        Some(Verb::Wait(args)) => verbs::wait::run(&args, &cli.common, out),
        Some(Verb::Worktree { verb }) => verbs::worktree::run(&verb, &cli.common, out),
        Some(Verb::Stop(args)) => verbs::stop::run(&args, false, &cli.common, out),
        Some(Verb::Kill(args)) => verbs::stop::run(&args, true, &cli.common, out),
        Some(Verb::Web(args)) => verbs::web::run(&args, out),
        Some(Verb::Mcp) => verbs::mcp::run(),
        Some(Verb::Fuse { verb }) => verbs::fuse::run(&verb, &cli.common, out),
        Some(Verb::Host { verb }) => verbs::host::run(&verb, &cli.common, out),
        Some(Verb::Gateway { verb }) => verbs::gateway::run(&verb, &cli.common, out),
        Some(Verb::Daemon { verb }) => verbs::daemon::run(&verb, out),
        Some(Verb::Events(args)) => verbs::events::run(&args, &cli.common, out),
        Some(Verb::Usage(args)) => verbs::usage::run(&args, &cli.common, out),
        Some(Verb::Journal(args)) => verbs::journal::run(&args, &cli.common, out),
        Some(Verb::Gc(args)) => verbs::gc::run(&args, &cli.common, out),
        Some(Verb::Demo(args)) => verbs::demo::run(&args, &cli.common),
        Some(Verb::Doctor) => verbs::doctor::run(&cli.common, out),
        Some(Verb::Completions { shell }) => verbs::completions::run(shell, out),
    }
}

/// What a verb gives: an exit code, or why it could not do it.
type Done = Result<u8, Failure>;
