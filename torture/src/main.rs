//! `lariat-torture`: the whole campaign, or a part of it. `make torture` runs it.

#![allow(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

use std::process::ExitCode;
use std::time::Instant;

use lariat_torture::campaign::{self, ROWS, Row};
use lariat_torture::{agent, rows};

const HELP: &str = "\
usage: lariat-torture [--rows 1,2,…] [--count N] [--seed N] [--short]

  --rows N,…   only these rows (0 is the nemesis)
  --count N    how often each is tried, instead of its full number
  --short      the numbers of `make test`
  --seed N     the seed of another run, to have it again

Exit code 1 if anything happened that must not, or if a wrong way on purpose did not lose.
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let name = args[0].rsplit('/').next().unwrap_or_default();
    match (name, args.get(1).map(String::as_str)) {
        ("claude" | "editor", _) => agent::main(&args),
        ("tool", _) => agent::tool(&args),
        (_, Some("putter")) => rows::crashes::putter(&args[2..]),
        (_, Some("inside")) => rows::inside(&args[2..]),
        _ => campaign(&args[1..]),
    }
}

fn campaign(args: &[String]) -> ExitCode {
    let (mut wanted, mut count, mut short, mut seed) = (None::<Vec<u32>>, None, false, None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|v| v.replace(['_', ','], "").parse::<u64>().ok());
        match arg.as_str() {
            "--short" => short = true,
            "--count" => count = number(),
            "--seed" => seed = number(),
            "--rows" => wanted = args.next().map(|v| v.split(',').filter_map(|n| n.parse().ok()).collect()),
            "-h" | "--help" => {
                print!("{HELP}");
                return ExitCode::SUCCESS;
            }
            _ => {
                eprint!("lariat-torture: {arg}: no such option\n\n{HELP}");
                return ExitCode::from(2);
            }
        }
    }
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = seed.unwrap_or_else(|| since.map_or(1, |d| d.as_secs()));
    println!("seed {seed}; `--seed {seed}` has this run again");
    let chosen = |row: &&Row| wanted.as_ref().is_none_or(|w| w.contains(&row.number));
    let (mut tried, mut skipped, mut failed) = (0, 0, Vec::new());
    for row in ROWS.iter().filter(chosen) {
        let began = Instant::now();
        let times = count.unwrap_or(if short { row.short } else { row.full });
        let tally = campaign::run(row.number, times, seed);
        let verdict = match (tally.holds(), &tally.skipped) {
            (true, None) => "holds",
            (true, Some(_)) => "SKIPPED",
            _ => "FAILED",
        };
        skipped += usize::from(tally.skipped.is_some());
        println!("row {:>2}  {}: {verdict} ({:.0?})\n{}", row.number, row.name, began.elapsed(), tally.text());
        tried += 1;
        if !tally.holds() {
            failed.push(row.number.to_string());
        }
    }
    if tried == 0 {
        eprintln!("lariat-torture: no such row");
        return ExitCode::from(2);
    }
    if failed.is_empty() {
        println!("{}", if skipped == 0 { "every row holds" } else { "every row holds that could be tried" });
        return ExitCode::SUCCESS;
    }
    println!("rows that failed: {}", failed.join(", "));
    ExitCode::FAILURE
}
