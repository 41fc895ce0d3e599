//! Running programs and reading the clock.
//!
//! Every timed program, ours or a limit, runs under the same small `meter`, from
//! the start of the process to its end. Sides are compared in rounds, one run of
//! each side per round, so that whatever else the machine does hits all of them.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One program to run, with nothing in its environment but what is given.
#[derive(Clone)]
pub struct Job {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub env: Vec<(&'static str, OsString)>,
}

impl Job {
    pub fn new(program: &Path) -> Self {
        Self { program: program.to_owned(), args: Vec::new(), env: Vec::new() }
    }

    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.env.push((name, value.into()));
        self
    }
}

/// What one run cost.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub ms: f64,
    pub rss_kb: u64,
}

/// The small program that starts, waits for and accounts for others.
pub struct Meter(pub PathBuf);

impl Meter {
    /// Runs a job once; its stdout goes to `out`. What it says on stderr is kept for a failure.
    pub fn run(&self, job: &Job, out: &Path) -> io::Result<Run> {
        let output = Command::new(&self.0)
            .arg(out)
            .arg(&job.program)
            .args(&job.args)
            .env_clear()
            .envs(job.env.iter().map(|(name, value)| (name, value)))
            .output()?;
        let told = String::from_utf8_lossy(&output.stdout);
        let number = |key: &str| told.split_whitespace().find_map(|word| word.strip_prefix(key)?.parse::<u64>().ok());
        let (Some(ns), Some(rss_kb), Some(status)) = (number("ns="), number("rss_kb="), number("status=")) else {
            return Err(failed(job, &output.stderr));
        };
        if status != 0 {
            return Err(failed(job, format!("exit {status}: {}", String::from_utf8_lossy(&output.stderr)).as_bytes()));
        }
        Ok(Run { ms: ns as f64 / 1e6, rss_kb })
    }
}

fn failed(job: &Job, why: &[u8]) -> io::Error {
    let args: Vec<_> = job.args.iter().map(|arg| arg.to_string_lossy()).collect();
    io::Error::other(format!("{} {}: {}", job.program.display(), args.join(" "), String::from_utf8_lossy(why).trim()))
}

/// The runs of one side.
#[derive(Clone, Debug, Default)]
pub struct Series(Vec<Run>);

impl Series {
    pub fn push(&mut self, run: Run) {
        self.0.push(run);
    }

    pub fn min(&self) -> f64 {
        self.0.iter().map(|run| run.ms).fold(f64::INFINITY, f64::min)
    }

    pub fn median(&self) -> f64 {
        let mut all: Vec<f64> = self.0.iter().map(|run| run.ms).collect();
        all.sort_by(f64::total_cmp);
        match all.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => all[n / 2],
            n => f64::midpoint(all[n / 2 - 1], all[n / 2]),
        }
    }

    /// Peak memory over all runs, in MB.
    pub fn peak_mb(&self) -> f64 {
        self.0.iter().map(|run| run.rss_kb).max().unwrap_or(0) as f64 / 1024.0
    }
}

/// One side of a comparison: what to do before each run, unmeasured, and what to run.
pub struct Side<'a> {
    pub job: Job,
    pub before: Box<dyn Fn() -> io::Result<()> + 'a>,
}

impl Side<'_> {
    pub fn new(job: Job) -> Self {
        Self { job, before: Box::new(|| Ok(())) }
    }
}

/// Runs all sides once a round, turning their order round each time; output is thrown away.
pub fn rounds<const N: usize>(meter: &Meter, rounds: usize, sides: &[Side<'_>; N]) -> io::Result<[Series; N]> {
    let mut series: [Series; N] = std::array::from_fn(|_| Series::default());
    for round in 0..rounds {
        for step in 0..N {
            let at = if round % 2 == 0 { step } else { N - 1 - step };
            (sides[at].before)()?;
            series[at].push(meter.run(&sides[at].job, Path::new("/dev/null"))?);
        }
    }
    Ok(series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_knows_its_minimum_median_and_peak() {
        let mut series = Series::default();
        for (ms, rss_kb) in [(3.0, 2048), (1.0, 1024), (10.0, 512), (2.0, 4096)] {
            series.push(Run { ms, rss_kb });
        }
        assert_eq!((series.min(), series.median(), series.peak_mb()), (1.0, 2.5, 4.0));
        series.push(Run { ms: 4.0, rss_kb: 0 });
        assert_eq!(series.median(), 3.0);
    }
}
