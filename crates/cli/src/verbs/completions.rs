//! `lariat completions`: a script for a shell, which asks lariat what may follow at every Tab.
//!
//! So it knows the sessions that are here at that moment, and the words of the lariat that is installed then. A session is
//! offered by its handle and its name, and by its agent's id where it has neither; of the ended ones those that lariat
//! launched, for they are few.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Arg, Command, CommandFactory as _};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;
use lariat_adapters::look::{Places, Scope};
use lariat_adapters::settings::Settings;
use lariat_core::{Listing, Session, Status, Untrusted};
use lariat_daemon::fuses;
use lariat_engine::hosts::{Fleet, LOCAL};
use lariat_engine::{Question, list};

use crate::Done;
use crate::args::Cli;
use crate::output::{Failure, Out};

/// Set by the script when it asks, to the name of its shell.
const ASKED: &str = "LARIAT_COMPLETE";

pub fn run(shell: clap_complete::Shell, out: &mut Out) -> Done {
    let shell = shell.to_string();
    let shells = Shells::builtins();
    let script = shells.completer(&shell).ok_or_else(|| Failure::Usage(format!("no script is known for {shell}")))?;
    // Who was called by a path is asked by that.
    let own = std::env::args_os().next().unwrap_or_default();
    let own = if own.to_string_lossy().contains('/') { std::path::absolute(own)?.into() } else { own };
    let mut text = Vec::new();
    script.write_registration(ASKED, "lariat", "lariat", &own.to_string_lossy(), &mut text)?;
    out.raw(&String::from_utf8_lossy(&text))?;
    Ok(0)
}

/// Tells what may follow, if a script asks.
pub fn dispatch(words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    std::env::var_os(ASKED)?;
    let told =
        CompleteEnv::with_factory(command).var(ASKED).try_complete(words, std::env::current_dir().ok().as_deref());
    // A shell shows nothing where nothing fits.
    told.map_or(Some(ExitCode::FAILURE), |told| told.then_some(ExitCode::SUCCESS))
}

fn command() -> Command {
    let mut command = Cli::command();
    command.build(); // what a verb takes is known only then
    knowing(command)
}

/// The command and those below it, whose arguments know what may stand there.
fn knowing(command: Command) -> Command {
    let launches = command.get_name() == "launch";
    command.mut_args(|arg| with_candidates(arg, launches)).mut_subcommands(knowing)
}

fn with_candidates(arg: Arg, launches: bool) -> Arg {
    let name = arg.get_value_names().and_then(|names| names.first()).map(|name| name.to_string());
    let candidates = match name.as_deref() {
        Some("TARGET" | "HANDLE[/N]") => ArgValueCandidates::new(targets),
        Some("AGENT") if launches => ArgValueCandidates::new(launchable),
        Some("AGENT") => ArgValueCandidates::new(|| named(lariat_adapters::all().iter().map(|a| a.name().to_owned()))),
        Some("STATUS") => ArgValueCandidates::new(|| named(Status::ALL.iter().map(|s| s.word().to_owned()))),
        Some("GROUP") => ArgValueCandidates::new(groups),
        Some("HOST") => ArgValueCandidates::new(hosts),
        Some("ID") if arg.is_positional() => ArgValueCandidates::new(burning),
        _ => return arg,
    };
    arg.add(candidates)
}

fn named(names: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    names.map(CompletionCandidate::new).collect()
}

fn all() -> Listing {
    list(Question { scope: Scope::All, ..Question::all() }).listing
}

fn targets() -> Vec<CompletionCandidate> {
    let known = |s: &Session| s.live != Some(false) || s.restorable || s.handle.is_some();
    let sessions = all().sessions.into_iter().filter(|s| known(s));
    let offered = sessions.flat_map(|s| {
        let help = format!("{}: {}", s.agent, s.reason.row());
        // A shell puts it there as it is.
        let is_word = |name: &&Untrusted| name.raw().chars().all(|c| c.is_alphanumeric() || "-_.".contains(c));
        let name = s.name.as_ref().filter(is_word).map(|name| name.raw().to_owned());
        let names = [s.handle.clone(), name];
        let names: Vec<String> = names.into_iter().flatten().collect();
        let names = if names.is_empty() { vec![s.native_id.row()] } else { names };
        names.into_iter().map(move |name| CompletionCandidate::new(name).help(Some(help.clone().into())))
    });
    offered.collect()
}

fn groups() -> Vec<CompletionCandidate> {
    let mut groups: Vec<String> = all().sessions.into_iter().filter_map(|s| s.group).collect();
    groups.sort_unstable();
    groups.dedup();
    named(groups.into_iter())
}

fn launchable() -> Vec<CompletionCandidate> {
    let settings = Settings::read(&Places::from_env());
    let own = lariat_adapters::all().into_iter().map(|a| a.name().to_owned());
    // These stand for those that the settings name.
    let own = own.filter(|name| !matches!(name.as_str(), "acp" | "agent" | "openclaw"));
    let speaking = settings.acp.iter().map(|s| format!("acp:{}", s.name));
    let described = settings.described.iter().map(|d| format!("agent:{}", d.name));
    named(own.chain(speaking).chain(described))
}

fn hosts() -> Vec<CompletionCandidate> {
    let fleet = Fleet::read(&Places::from_env());
    let known = fleet.into_iter().flat_map(|fleet| fleet.hosts).map(|host| host.name);
    named(std::iter::once(LOCAL.to_owned()).chain(known))
}

fn burning() -> Vec<CompletionCandidate> {
    named(fuses::read(&Places::from_env()).0.into_iter().map(|fuse| fuse.id))
}
