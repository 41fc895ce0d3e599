//! A row in its sandbox.
//!
//! The rig starts a copy of itself in there, which does the work beside the agents it tortures and
//! writes its tally as its last line. When the sandbox goes, so does everything in it.

use std::io::Write as _;
use std::time::Duration;

use lariat_testkit::{Sandbox, built};

use crate::tally::Tally;

/// One row of reliability.
pub struct Row {
    /// Its number; the nemesis has none there and is 0.
    pub number: u32,
    /// What it is about.
    pub name: &'static str,
    /// How often it is tried in full.
    pub full: u64,
    /// How often in the short form, which `make test` runs.
    pub short: u64,
}

/// Every row that the rig knows.
pub const ROWS: &[Row] = &[
    Row { number: 1, name: "a PID that was given out again is not signalled", full: 1_000, short: 12 },
    Row { number: 2, name: "of a tree that was ended nothing is left", full: 2_000, short: 8 },
    Row { number: 3, name: "an exit is told right or not at all", full: 2_000, short: 24 },
    Row { number: 4, name: "an agent outlives those who hold it", full: 1_000, short: 12 },
    Row { number: 5, name: "what was acknowledged outlives kill -9 (with row 14)", full: 10_000, short: 120 },
    Row { number: 6, name: "what was acknowledged outlives a power cut", full: 1_000, short: 10 },
    Row { number: 7, name: "of many at once one wins", full: 1_000, short: 9 },
    Row { number: 10, name: "a secret stays where it belongs", full: 200, short: 2 },
    Row { number: 11, name: "nothing that acts is printed", full: 1_000_000, short: 7_000 },
    Row { number: 14, name: "nothing is resurrected, doubled or lost, whatever comes after what", full: 500, short: 8 },
    Row { number: 0, name: "nemesis: everything at once, checked from outside", full: 1_000, short: 25 },
];

/// How long a row may take at all.
const LONGEST: Duration = Duration::from_secs(4 * 3600);

/// Runs a row in a sandbox of its own.
pub fn run(number: u32, count: u64, seed: u64) -> Tally {
    let sandbox = Sandbox::new(&format!("torture-{number}"));
    let rig = built("lariat-torture");
    for name in ["claude", "editor", "tool"] {
        sandbox.install_copy(name, &rig);
    }
    let program = sandbox.program(&rig).args(["inside", &number.to_string(), &count.to_string(), &seed.to_string()]);
    let child = sandbox.spawn(&program);
    let output = child.output(LONGEST);
    let last = output.stdout.lines().last().unwrap_or_default();
    let mut tally: Tally = serde_json::from_str(last).unwrap_or_default();
    if !output.exit.success() || (tally.tried.is_empty() && tally.skipped.is_none()) {
        let end: String = output.stderr.lines().rev().take(12).collect::<Vec<_>>().into_iter().rev().collect();
        tally.violate(format!("the rig itself ended with {:?}: {end}", output.exit));
    }
    tally
}

/// Runs the short form of a row and panics unless it holds.
///
/// # Panics
/// When something happened that must not, or a wrong way did not lose.
#[track_caller]
pub fn short(number: u32) {
    let row = ROWS.iter().find(|row| row.number == number).expect("a row of the rig");
    let seed = std::env::var("LARIAT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261_115);
    let tally = run(number, row.short, seed);
    println!("LARIAT_SEED={seed}\n{}", tally.text());
    if let Some(why) = &tally.skipped {
        // Past the test's own output, which is shown only when it fails.
        let _ = writeln!(std::io::stderr(), "row {number} was SKIPPED: {why}");
    }
    assert!(tally.holds(), "row {number}, {}:\n{}", row.name, tally.text());
}
