//! The benchmark rig: lariat against the least work that could give its answer.
//!
//! Both sides run in one session on one machine, the answer is checked before
//! anything is timed, and the result is a table of ratios. Numbers are printed,
//! never asserted; a wrong answer exits 1. The rig runs in a PID namespace of its
//! own where it may, so that agents which happen to run on the machine are not
//! part of the answer. It writes nothing outside its directory (`target/bench`).
//!
//! Start at [`list`], [`mixed`], [`usage`], [`procs`], [`hosted`], [`daemon`], [`screens`] or [`page`]; [`corpus`] makes the
//! stores they read, [`limits`] the programs they compare with, [`answer`] knows what is right.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a program of its own, whose output is for a person and which owns the directory it works in"
)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod answer;
mod corpus;
mod daemon;
mod hosted;
mod limits;
mod list;
mod measure;
mod mixed;
mod options;
mod page;
mod procs;
mod report;
mod rig;
mod screens;
mod usage;

use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use options::{Jobs, Options};
use report::Report;
use rig::Rig;

/// Set for the copy of this program that runs inside the namespace.
const INSIDE: &str = "LARIAT_BENCH_INSIDE";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let ended = match args.split_first() {
        Some((first, rest)) if first == "limit-headtail" => limit_headtail(rest),
        _ => match Options::parse(&args) {
            Ok(None) => {
                print!("{}", options::HELP);
                Ok(true)
            }
            Ok(Some(options)) => start(&options, &args),
            Err(problem) => {
                eprintln!("lariat-bench: {problem}\n\n{}", options::HELP);
                return ExitCode::from(2);
            }
        },
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("lariat-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn limit_headtail(args: &[String]) -> io::Result<bool> {
    let threads = args.first().and_then(|threads| threads.parse().ok()).unwrap_or(1);
    let roots: Vec<PathBuf> = args.iter().skip(1).map(PathBuf::from).collect();
    println!("{}", limits::headtail(threads, &roots)?);
    Ok(true)
}

/// Goes on inside a PID namespace if one can be had, else right here.
fn start(options: &Options, args: &[String]) -> io::Result<bool> {
    let inside = std::env::var_os(INSIDE);
    if options.jobs == Jobs::Corpus || inside.is_some() {
        return bench(options, inside.is_some_and(|how| how == "1"));
    }
    let this = std::env::current_exe()?;
    for flags in [&["-fp", "--mount-proc", "--kill-child"][..], &["-Urfp", "--mount-proc", "--kill-child"]] {
        let unshare = || {
            let mut command = Command::new("unshare");
            command.args(flags);
            command
        };
        if unshare().arg("true").output().is_ok_and(|tried| tried.status.success()) {
            // A shell as the first process, so that the rig itself can still be interrupted.
            let status = unshare()
                .args(["sh", "-c", "\"$@\"; exit $?", "sh"])
                .arg(&this)
                .args(args)
                .env(INSIDE, "1")
                .status()?;
            return Ok(status.success());
        }
    }
    bench(options, false)
}

fn bench(options: &Options, isolated: bool) -> io::Result<bool> {
    let mut report = Report::default();
    let (home, params) = (options.corpus_dir()?, options.params());
    if options.jobs == Jobs::Corpus {
        list::corpus(&home, &params, &mut report)?;
        report.facts.iter().for_each(|(name, value)| println!("{name}: {value}"));
        return Ok(true);
    }
    let rig = Rig::new(options.dir()?, options.rounds())?;
    let mut right = true;
    report.fact("lariat", rig.lariat.display().to_string());
    report.fact("rounds", format!("{}, page cache warm, sides alternate", rig.rounds));
    if !isolated {
        report.note("no PID namespace could be made: processes of this machine are part of what lariat sees");
    }
    if matches!(options.jobs, Jobs::All | Jobs::List | Jobs::Daemon | Jobs::Usage) {
        let manifest = list::corpus(&home, &params, &mut report)?;
        if matches!(options.jobs, Jobs::All | Jobs::List) {
            right &= list::run(&rig, &home, &manifest, &mut report)?;
            right &= mixed::run(&rig, &home, &manifest, &mut report)?;
        }
        if matches!(options.jobs, Jobs::All | Jobs::Usage) {
            right &= usage::run(&rig, &home, &manifest, &mut report)?;
        }
        if matches!(options.jobs, Jobs::All | Jobs::Daemon) {
            right &= daemon::run(&rig, &home, &manifest, options.is_quick(), &mut report)?;
        }
    }
    if matches!(options.jobs, Jobs::All | Jobs::Procs) {
        right &= procs::run(&rig, &mut report)?;
    }
    if matches!(options.jobs, Jobs::All | Jobs::Hosted) {
        right &= hosted::run(&rig, options.hosted(), &mut report)?;
    }
    if matches!(options.jobs, Jobs::All | Jobs::Screens) {
        right &= page::run(&rig, options.is_quick(), &mut report)?;
        right &= screens::run(&rig, &mut report)?;
    }
    report.machine(&rig.dir);
    print!("{}", report.text());
    if let Some(path) = &options.json {
        std::fs::write(path, format!("{:#}\n", report.json()))?;
    }
    if !right {
        eprintln!("lariat-bench: a wrong answer was not measured");
    }
    Ok(right)
}
