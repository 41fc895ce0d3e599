//! The rows. Each is one function that tries, counts and tells.

pub mod crashes;
pub mod cuts;
pub mod escapes;
pub mod exits;
pub mod nemesis;
pub mod races;
pub mod reuse;
pub mod secrets;
pub mod sequences;
pub mod terminals;
pub mod trees;

use std::io;
use std::process::ExitCode;

use crate::chance::Chance;
use crate::ground::{Ground, cgroups};
use crate::tally::Tally;

/// A row inside its sandbox: its number, how often, and the seed.
pub fn inside(args: &[String]) -> ExitCode {
    let number = |at: usize| args.get(at).and_then(|a| a.parse::<u64>().ok());
    let (Some(row), Some(count), Some(seed)) = (number(0), number(1), number(2)) else { return ExitCode::from(2) };
    let before = cgroups();
    let mut tally = Tally::default();
    let mut chance = Chance::new(seed);
    let done = Ground::here().and_then(|ground| {
        let done = run(row, &ground, count, &mut chance, &mut tally);
        ground.remove_cgroups(&before);
        done
    });
    if let Err(error) = done {
        tally.violate(format!("the row could not go on: {error}"));
    }
    match serde_json::to_string(&tally) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(row: u64, ground: &Ground, count: u64, chance: &mut Chance, tally: &mut Tally) -> io::Result<()> {
    match row {
        0 => nemesis::run(ground, count, chance, tally),
        1 => reuse::run(ground, count, chance, tally),
        2 => trees::run(ground, count, chance, tally),
        3 => exits::run(ground, count, chance, tally),
        4 => terminals::run(ground, count, chance, tally),
        5 => crashes::run(ground, count, chance, tally),
        6 => cuts::run(ground, count, chance, tally),
        7 => races::run(ground, count, chance, tally),
        10 => secrets::run(ground, count, chance, tally),
        11 => escapes::run(ground, count, chance, tally),
        14 => sequences::run(ground, count, chance, tally),
        _ => Err(io::Error::other("no such row")),
    }
}
